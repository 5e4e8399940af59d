//! Panes on their way out of memory and back: spilling for a checkpoint or for room, restoring at a start.

use std::sync::Arc;

use super::WindowOperator;
use crate::event_time::{EventTime, Watermark};
use crate::operator::fire::History;
use crate::operator::table::{PaneTable, key_hash};
use crate::operator::{Mode, RowBuffer, Trigger};

/// How spilled rows go into the state database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpillKind {
    /// Rows are whole panes and replace what is there.
    Put,
    /// Rows are what was added since the last spill and are merged with what is there.
    Merge,
}

/// Rows of one window on their way to the state database.
#[derive(Clone, Debug)]
pub struct Spilled {
    /// End of the window.
    pub end: EventTime,
    /// Put or merge.
    pub kind: SpillKind,
    /// The rows, in no order.
    pub rows: RowBuffer,
}

impl WindowOperator {
    /// Copies out everything that the state database does not have yet, for a checkpoint.
    ///
    /// Whole panes stay in memory and count as clean; parts of panes leave memory, since they must not be merged
    /// twice. Call between batches only.
    pub fn spill_dirty(&mut self) -> Vec<Spilled> {
        let tables: Vec<usize> = self.by_end.values().copied().collect();
        tables.into_iter().filter_map(|table| self.spill_table(table, false)).collect()
    }

    /// Moves the table with the most memory out, to make room. `None` when nothing can be moved.
    ///
    /// Panes that wait for early firings stay: their boundaries are known in memory only.
    pub fn spill_largest(&mut self) -> Option<Spilled> {
        self.spare = None;
        if matches!((self.spec.mode, self.spec.trigger), (Mode::Append, Trigger::Early(_))) {
            return None;
        }
        let tables = self.by_end.values().copied();
        let filled = tables.filter(|&table| self.tables[table].as_ref().is_some_and(|open| !open.is_empty()));
        let largest = filled.max_by_key(|&table| self.tables[table].as_ref().map_or(0, PaneTable::bytes))?;
        let window = self.open_table(largest).window;
        let spilled = self.spill_table(largest, true);
        let empty = || Spilled { end: window.end, kind: SpillKind::Put, rows: RowBuffer::new(&self.layout) };
        Some(spilled.unwrap_or_else(empty))
    }

    fn spill_table(&mut self, table: usize, leave: bool) -> Option<Spilled> {
        let (fires_once, layout) = (self.fires_once, Arc::clone(&self.layout));
        let open = self.open_table(table);
        let parts = fires_once && !open.complete;
        let rows = open.take_dirty();
        let mut spilled = RowBuffer::new(&layout);
        for row in rows {
            spilled.push(open.key(row), open.row(row));
        }
        if parts || leave {
            let closed = open.closed;
            let mut emptied = PaneTable::new(open.window, &layout, false);
            emptied.closed = closed;
            *open = emptied;
        }
        let kind = if parts { SpillKind::Merge } else { SpillKind::Put };
        let end = open.window.end;
        (!spilled.is_empty()).then_some(Spilled { end, kind, rows: spilled })
    }

    /// Takes up a window that a checkpoint holds, before the first batch. With `rows` these are all its panes and
    /// it is complete; without, its panes stay in the state database.
    pub fn restore_window(&mut self, end: EventTime, watermark: Watermark, rows: Option<&RowBuffer>) {
        let window = self.spec.windows.window_ending(end);
        let table = self.open(window, rows.is_some());
        self.note_closed(table, watermark);
        let Some(rows) = rows else { return };
        for index in 0..rows.len() {
            let key = rows.key(index);
            let open = self.open_table(table);
            let (row, _) = open.find_or_insert(key, key_hash(key));
            open.row_mut(row).assign(rows.row(index));
            open.mark_clean(row);
            if !self.fires_once && matches!(self.spec.trigger, Trigger::Early(_)) {
                let boundary = History::of(rows.row(index).words()).next_boundary;
                self.plan_boundary(table, row, boundary);
            }
        }
    }

    /// True when a window's panes must be in memory for its early firings to be known.
    #[must_use]
    pub fn needs_resident_panes(&self) -> bool {
        self.spec.mode == Mode::Append && matches!(self.spec.trigger, Trigger::Early(_))
    }
}
