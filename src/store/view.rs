//! A store at one moment, told to somebody who watches it: open windows, queues, the panes of one key.
//!
//! Read by the task between two batches; nothing here changes the store or waits for a disk that is busy.

use super::WindowStore;
use super::panes::decode;
use crate::aggregate::Value;
use crate::codec::PaneKey;
use crate::error::Result;
use crate::event_time::{Watermark, Window};
use crate::operator::{HeldPane, Jump, OpenSummary, RowBuffer, WatermarkTracker};
use crate::state::FamilyId;

/// An operator that keeps events rather than panes, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventsHeld {
    /// Events, or ids, in memory.
    pub events: usize,
    /// Bytes of memory that they take.
    pub memory_bytes: usize,
    /// How far the watermark has come there.
    pub watermark: Watermark,
}

/// A pane of one key at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenPane {
    /// Its window, or the slice that windows share.
    pub window: Window,
    /// Events counted in it.
    pub events: u64,
    /// One value per aggregate, in the order declared.
    pub values: Vec<Value>,
    /// True when rows of the operator are on their way to the state database, and what they hold of this pane is missing.
    pub partial: bool,
}

impl WindowStore {
    /// What the windowed aggregation at `index` holds, without a look at each pane.
    #[must_use]
    pub fn open_summary(&self, index: usize) -> Option<OpenSummary> {
        self.operators.get(index).map(crate::operator::WindowOperator::summary)
    }

    /// Bytes of memory that the windowed aggregation at `index` takes.
    #[must_use]
    pub fn operator_bytes(&self, index: usize) -> usize {
        self.operators.get(index).map_or(0, crate::operator::WindowOperator::memory_bytes)
    }

    /// True while the windowed aggregation at `index` fires step by step.
    #[must_use]
    pub fn is_operator_firing(&self, index: usize) -> bool {
        self.operators.get(index).is_some_and(crate::operator::WindowOperator::is_firing)
    }

    /// What the joins hold, in the order declared.
    pub fn joins_held(&self) -> impl Iterator<Item = EventsHeld> + '_ {
        self.events.joins().map(|join| EventsHeld {
            events: join.len(),
            memory_bytes: join.memory_bytes(),
            watermark: join.watermark(),
        })
    }

    /// Jobs that wait for the thread that writes, the one it is at included.
    #[must_use]
    pub fn writes_waiting(&self) -> u64 {
        self.writer.waiting()
    }

    /// Events that moved the watermark further than events should, since the store was opened, and the last of them with
    /// the name of its partition.
    #[must_use]
    pub fn jumps(&self) -> (u64, Option<(&str, Jump)>) {
        let named = |jump: Jump| {
            let known = self.partitions.get(jump.partition.0 as usize);
            (known.map_or("", |known| known.name.as_str()), jump)
        };
        (self.warned.jumps, self.warned.last_jump.map(named))
    }

    /// The tracker, for whoever explains where the watermark is.
    pub(crate) fn tracker(&self) -> &WatermarkTracker {
        &self.tracker
    }

    /// The open panes of one key of the operator at `index`, at most `max`, by end of their windows. `stored` is the key
    /// as [`crate::codec::KeyWriter`] writes it.
    ///
    /// # Errors
    /// [`crate::error::ErrorKind::Damaged`] for a stored pane that cannot be understood, or when the disk fails.
    pub(crate) fn panes_of(&self, index: usize, stored: &[u8], max: usize) -> Result<Vec<OpenPane>> {
        let Some(operator) = self.operators.get(index) else { return Ok(Vec::new()) };
        let is_writing = self.writer.waiting() > 0;
        let mut panes = Vec::new();
        for HeldPane { window, partial, mut row } in operator.held_panes(stored, max) {
            if partial {
                self.add_stored(index, window, stored, &mut row)?;
            }
            let partial = partial && is_writing;
            if row.row(0).events() > 0 || partial {
                let mut values = Vec::new();
                row.row(0).finish(&mut values);
                panes.push(OpenPane { window, events: row.row(0).events(), values, partial });
            }
        }
        Ok(panes)
    }

    /// Adds to a row what the state database holds of its pane.
    fn add_stored(&self, index: usize, window: Window, key: &[u8], row: &mut RowBuffer) -> Result<()> {
        let pane = PaneKey { end: window.end, key };
        let Some(stored) = self.db.get(FamilyId(index), pane)? else { return Ok(()) };
        let mut other = RowBuffer::new(row.layout());
        decode(stored.get(), window.end, key, |payload| other.push_payload(key, payload))?;
        row.row_mut(0).merge(other.row(0));
        Ok(())
    }
}
