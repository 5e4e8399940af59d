//! What an operator asks the outside to do: emit results, report late events.

use serde::{Deserialize, Serialize};

use super::{EventBatch, Rejection, RowBuffer, SourceId};
use crate::aggregate::{RowMut, Value};
use crate::event_time::{EventTime, Watermark, Window};

/// When a pane was emitted, relative to the closing of its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PaneKind {
    /// Before the watermark reached the window's end.
    Early,
    /// The first emission after it.
    OnTime,
    /// A later one, because late events were accepted.
    Late,
}

impl PaneKind {
    /// Stable lowercase name: `early`, `on_time`, `late`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Early => "early",
            Self::OnTime => "on_time",
            Self::Late => "late",
        }
    }
}

/// What a result does to the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RowKind {
    /// The first result of its pane.
    Insert,
    /// Takes back the last result of its pane; the next one follows.
    UpdateBefore,
    /// A further result of its pane.
    UpdateAfter,
    /// Takes back the last result of its pane; the pane is part of another one now.
    Delete,
}

impl RowKind {
    /// The short names that changelogs use: `+I`, `-U`, `+U`, `-D`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Insert => "+I",
            Self::UpdateBefore => "-U",
            Self::UpdateAfter => "+U",
            Self::Delete => "-D",
        }
    }
}

/// One result: a pane as it was when it fired.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultRow<'a> {
    /// User key, as written by [`crate::codec::KeyWriter`].
    pub key: &'a [u8],
    /// 0 for the first emission of this pane, counting up.
    pub pane_index: u32,
    /// Early, on time or late.
    pub kind: PaneKind,
    /// One value per aggregate of the operator, in the order declared.
    pub values: &'a [Value],
}

/// Results of one window that fired together, in key order, handed out row by row.
pub trait ResultBlock {
    /// The window of all rows.
    fn window(&self) -> Window;
    /// The watermark at emission.
    fn watermark(&self) -> Watermark;
    /// Set when all rows take back earlier results, which happens in update mode with retractions.
    fn takes_back(&self) -> Option<RowKind> {
        None
    }
    /// The next row, or `None` after the last.
    fn next_row(&mut self) -> Option<ResultRow<'_>>;
}

/// An event that came after every window it belongs to had expired.
#[derive(Clone, Copy, Debug)]
pub struct LateEvent<'a> {
    /// The batch it arrived in; with `index` this gives time, key, values, text and record number.
    pub batch: &'a EventBatch,
    /// Its place in the batch.
    pub index: usize,
    /// The last of its windows to expire.
    pub window: Window,
    /// The watermark that it came after.
    pub watermark: Watermark,
    /// How far the watermark was past `window.end + allowed lateness`, in milliseconds, never negative.
    pub late_by_ms: i64,
}

impl LateEvent<'_> {
    /// Its event time.
    ///
    /// # Panics
    /// When `index` is outside of `batch`, which an operator never produces.
    #[must_use]
    pub fn time(&self) -> EventTime {
        EventTime::from_millis(self.batch.times[self.index])
    }
}

/// One side of a joined row: an event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JoinedEvent<'a> {
    /// Its event time.
    pub time: EventTime,
    /// The fields selected of its side, in the order declared.
    pub values: &'a [Value],
}

/// One row of a join: a pair, or with one side only an event that found no partner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JoinedRow<'a> {
    /// The key of both sides, as written by [`crate::codec::KeyWriter`].
    pub key: &'a [u8],
    /// The event of the left source.
    pub left: Option<JoinedEvent<'a>>,
    /// The event of the right source.
    pub right: Option<JoinedEvent<'a>>,
    /// The watermark at emission: the one that the later event of a pair came after, or the one that showed that no
    /// partner can come any more.
    pub watermark: Watermark,
}

/// Where an operator's effects go.
///
/// `operator` is the index in the pipeline: the windowed aggregations first, then the joins, each in the order
/// declared.
pub trait Emit {
    /// What may go wrong outside.
    type Error;

    /// Takes the results of one firing.
    ///
    /// # Errors
    /// Whatever the receiver could not do; the operator stops there.
    fn results(&mut self, operator: usize, block: &mut dyn ResultBlock) -> Result<(), Self::Error>;

    /// Takes an event that was late for all its windows.
    ///
    /// # Errors
    /// Whatever the receiver could not do; the operator stops there.
    fn late(&mut self, operator: usize, event: LateEvent<'_>) -> Result<(), Self::Error>;

    /// Takes an event that was left out: its windows reach past the end of representable time, or its time is not
    /// believed. It moved no watermark and is in no pane.
    ///
    /// # Errors
    /// Whatever the receiver could not do; the operator stops there.
    fn rejected(&mut self, batch: &EventBatch, index: usize, rejection: Rejection)
    -> Result<(), Self::Error>;

    /// Takes a row of a join. For receivers of stores without joins there is nothing to take.
    ///
    /// # Errors
    /// Whatever the receiver could not do; the operator stops there.
    fn joined(&mut self, operator: usize, row: &JoinedRow<'_>) -> Result<(), Self::Error> {
        let _ = (operator, row);
        Ok(())
    }

    /// Learns which events of a batch were dropped because they repeat one that came before; `indexes` ascend and are
    /// not empty. They moved the watermark and are in no pane.
    ///
    /// # Errors
    /// Whatever the receiver could not do; the store stops there.
    fn duplicates(
        &mut self,
        source: SourceId,
        batch: &EventBatch,
        indexes: &[u32],
    ) -> Result<(), Self::Error> {
        let _ = (source, batch, indexes);
        Ok(())
    }
}

/// Panes of an operator that are not in memory.
pub trait Panes {
    /// What may go wrong outside.
    type Error;

    /// Reads the pane of `key` in the window ending at `end` into `row`. False when there is none.
    ///
    /// # Errors
    /// When the pane cannot be read.
    fn load(
        &mut self,
        operator: usize,
        end: EventTime,
        key: &[u8],
        row: RowMut<'_>,
    ) -> Result<bool, Self::Error>;

    /// Appends up to `limit` panes of the window ending at `end` to `rows`, in key order, starting after the key
    /// `after`. Fewer than `limit` mean that there are no more.
    ///
    /// # Errors
    /// When the panes cannot be read.
    fn scan(
        &mut self,
        operator: usize,
        end: EventTime,
        after: Option<&[u8]>,
        limit: usize,
        rows: &mut RowBuffer,
    ) -> Result<(), Self::Error>;

    /// Replaces panes outside of memory by `rows`.
    ///
    /// # Errors
    /// When they cannot be written.
    fn put(&mut self, operator: usize, end: EventTime, rows: RowBuffer) -> Result<(), Self::Error>;
}
