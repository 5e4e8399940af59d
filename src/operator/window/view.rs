//! What is open, told to somebody who watches: figures without a look at each pane, and the panes of one key.
//!
//! Changes nothing; the task asks between two batches.

use std::cmp::Reverse;

use super::aligned::AlignedOperator;
use super::session::{NONE, SessionOperator};
use super::{HeldPane, OpenSummary};
use crate::operator::RowBuffer;

impl AlignedOperator {
    pub(super) fn summary(&self) -> OpenSummary {
        let (target, windows) = (self.step.target(), &self.spec.windows);
        let open = || self.by_end.values().filter_map(|&table| self.tables[table].as_ref());
        let unclosed = |piece| windows.next_holding(piece, self.closed_to).map(|window| window.end);
        let due = if target > self.watermark {
            let firing = open().take_while(|table| target.closed(table.window.end));
            firing.filter(|table| table.window.end > self.closed_to).count()
        } else {
            0
        };
        OpenSummary {
            windows: self.by_end.len(),
            panes: self.resident_panes(),
            due,
            next_end: open().find_map(|table| unclosed(table.window)),
        }
    }

    pub(super) fn held_panes(&self, key: &[u8], max: usize) -> Vec<HeldPane> {
        let open = self.by_end.values().filter_map(|&table| self.tables[table].as_ref());
        let held = open.filter_map(|table| {
            let found = table.find(key);
            if found.is_none() && table.complete {
                return None;
            }
            let mut row = RowBuffer::new(&self.layout);
            match found {
                Some(found) => row.push(key, table.row(found)),
                None => row.push_identity(key),
            }
            Some(HeldPane { window: table.window, partial: !table.complete, row })
        });
        held.take(max).collect()
    }
}

impl SessionOperator {
    pub(super) fn summary(&self) -> OpenSummary {
        let target = self.step.target();
        let due = if target > self.watermark {
            self.timers.iter().filter(|Reverse((when, ..))| target.closed(*when)).count()
        } else {
            0
        };
        let panes = self.resident_panes();
        let next_end = self.timers.peek().map(|Reverse((when, ..))| *when);
        OpenSummary { windows: panes, panes, due, next_end }
    }

    pub(super) fn held_panes(&self, key: &[u8], max: usize) -> Vec<HeldPane> {
        let mut at = self.keys.find(key).map_or(NONE, |row| self.first_of(row));
        let mut held = Vec::new();
        while let Some(session) = self.sessions.get(at as usize).filter(|_| at != NONE && held.len() < max) {
            let mut row = RowBuffer::new(&self.layout);
            row.push(key, self.rows.get(at));
            held.push(HeldPane { window: session.window, partial: false, row });
            at = session.next;
        }
        held.sort_by_key(|pane| pane.window.end);
        held
    }
}
