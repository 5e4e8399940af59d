//! Walks the panes of one piece in key order, wherever they are: in its table, in the state database, or in both.

use std::iter::Peekable;
use std::sync::Arc;
use std::vec::IntoIter;

use crate::aggregate::{Layout, RowRef};
use crate::event_time::EventTime;
use crate::operator::table::PaneTable;
use crate::operator::workers::Workers;
use crate::operator::{Panes, RowBuffer};

/// A place in the panes of one piece.
pub(super) struct Cursor {
    /// Index of its table.
    pub(super) table: usize,
    end: EventTime,
    resident: Peekable<IntoIter<u32>>,
    stored: RowBuffer,
    next_stored: usize,
    // Last key read from the state database.
    after: Option<Vec<u8>>,
    more: bool,
    limit: usize,
}

impl Cursor {
    /// At the first pane of the piece whose panes in memory are in `open`; reads `limit` stored panes at once.
    pub(super) fn new(
        table: usize,
        open: &PaneTable,
        layout: &Arc<Layout>,
        limit: usize,
        workers: &Workers,
    ) -> Self {
        Self {
            table,
            end: open.window.end,
            resident: open.sorted_rows(workers).into_iter().peekable(),
            stored: RowBuffer::new(layout),
            next_stored: 0,
            after: None,
            more: !open.complete,
            limit,
        }
    }

    /// Reads on when all stored panes read before were taken.
    pub(super) fn refill<E>(&mut self, operator: usize, panes: &mut dyn Panes<Error = E>) -> Result<(), E> {
        if self.next_stored < self.stored.len() || !self.more {
            return Ok(());
        }
        self.stored.clear();
        self.next_stored = 0;
        panes.scan(operator, self.end, self.after.as_deref(), self.limit, &mut self.stored)?;
        self.more = self.stored.len() == self.limit;
        self.after = self.stored.len().checked_sub(1).map(|last| self.stored.key(last).to_vec());
        Ok(())
    }

    /// The smallest key that was not taken.
    pub(super) fn head<'a>(&'a mut self, open: &'a PaneTable) -> Option<&'a [u8]> {
        let resident = self.resident.peek().map(|&row| open.key(row));
        let stored = (self.next_stored < self.stored.len()).then(|| self.stored.key(self.next_stored));
        match (resident, stored) {
            (Some(resident), Some(stored)) => Some(resident.min(stored)),
            (resident, stored) => resident.or(stored),
        }
    }

    /// Takes the stored pane of `key`, if that is the next.
    pub(super) fn take_stored(&mut self, key: &[u8]) -> Option<RowRef<'_>> {
        if self.next_stored >= self.stored.len() || self.stored.key(self.next_stored) != key {
            return None;
        }
        self.next_stored += 1;
        Some(self.stored.row(self.next_stored - 1))
    }

    /// Takes the row in memory of `key`, if that is the next.
    pub(super) fn take_resident(&mut self, key: &[u8], open: &PaneTable) -> Option<u32> {
        self.resident.next_if(|&row| open.key(row) == key)
    }
}
