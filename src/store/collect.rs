//! A receiver that keeps everything, for tests and for programs whose results fit into memory.

use crate::aggregate::Value;
use crate::error::Error;
use crate::event::EventBatch;
use crate::event_time::{EventTime, Watermark, Window};
use crate::operator::{
    Emit, JoinedEvent, JoinedRow, LateEvent, PaneKind, Rejection, ResultBlock, RowKind, SourceId,
};

/// One result, owned.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectedRow {
    /// Index of the window operator.
    pub operator: usize,
    /// The window.
    pub window: Window,
    /// User key.
    pub key: Vec<u8>,
    /// One value per aggregate.
    pub values: Vec<Value>,
    /// Emissions of this pane before.
    pub pane_index: u32,
    /// Early, on time or late.
    pub kind: PaneKind,
    /// The watermark at emission.
    pub watermark: Watermark,
    /// What it does to earlier results.
    pub row_kind: RowKind,
}

/// One late event, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectedLate {
    /// Index of the window operator.
    pub operator: usize,
    /// Event time.
    pub time: EventTime,
    /// The window that had expired.
    pub window: Window,
    /// How far the watermark was past its end and allowed lateness, in milliseconds.
    pub late_by_ms: i64,
}

/// One event of a joined row, owned.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectedEvent {
    /// Event time.
    pub time: EventTime,
    /// The fields selected.
    pub values: Vec<Value>,
}

/// One row of a join, owned.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectedJoin {
    /// Index of the operator.
    pub operator: usize,
    /// User key.
    pub key: Vec<u8>,
    /// The event of the left source.
    pub left: Option<CollectedEvent>,
    /// The event of the right source.
    pub right: Option<CollectedEvent>,
    /// The watermark at emission.
    pub watermark: Watermark,
}

/// Keeps results and late events in memory, in order. Grows without bound: take the contents now and then.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Collected {
    /// Results.
    pub rows: Vec<CollectedRow>,
    /// Late events.
    pub late: Vec<CollectedLate>,
    /// Times, in milliseconds, of events that were left out, each with the reason.
    pub rejected: Vec<(i64, Rejection)>,
    /// Rows of joins.
    pub joined: Vec<CollectedJoin>,
    /// Times, in milliseconds, of events that were dropped as repetitions, each with its source.
    pub duplicates: Vec<(SourceId, i64)>,
}

impl Emit for Collected {
    type Error = Error;

    fn results(&mut self, operator: usize, block: &mut dyn ResultBlock) -> Result<(), Error> {
        let (window, watermark, takes_back) = (block.window(), block.watermark(), block.takes_back());
        while let Some(row) = block.next_row() {
            self.rows.push(CollectedRow {
                operator,
                window,
                key: row.key.to_vec(),
                values: row.values.to_vec(),
                pane_index: row.pane_index,
                kind: row.kind,
                watermark,
                row_kind: takes_back.unwrap_or(match row.pane_index {
                    0 => RowKind::Insert,
                    _ => RowKind::UpdateAfter,
                }),
            });
        }
        Ok(())
    }

    fn late(&mut self, operator: usize, event: LateEvent<'_>) -> Result<(), Error> {
        let LateEvent { window, late_by_ms, .. } = event;
        self.late.push(CollectedLate { operator, time: event.time(), window, late_by_ms });
        Ok(())
    }

    fn rejected(&mut self, batch: &EventBatch, index: usize, rejection: Rejection) -> Result<(), Error> {
        self.rejected.extend(batch.times.get(index).map(|&time| (time, rejection)));
        Ok(())
    }

    fn joined(&mut self, operator: usize, row: &JoinedRow<'_>) -> Result<(), Error> {
        let owned =
            |event: JoinedEvent<'_>| CollectedEvent { time: event.time, values: event.values.to_vec() };
        self.joined.push(CollectedJoin {
            operator,
            key: row.key.to_vec(),
            left: row.left.map(owned),
            right: row.right.map(owned),
            watermark: row.watermark,
        });
        Ok(())
    }

    fn duplicates(&mut self, source: SourceId, batch: &EventBatch, indexes: &[u32]) -> Result<(), Error> {
        let times = indexes.iter().filter_map(|&index| batch.times.get(index as usize));
        self.duplicates.extend(times.map(|&time| (source, time)));
        Ok(())
    }
}
