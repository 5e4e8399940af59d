//! Late events of several operators in the order of the events, so that where batches are cut does not show in an output
//! that they share.

use crate::error::{Error, Result};
use crate::event::{EventBatch, SourceId};
use crate::event_time::{Watermark, Window};
use crate::operator::{Emit, JoinedRow, LateEvent, Rejection, ResultBlock};

/// Hands everything on at once, except late events, which wait for the end of the batch.
pub(super) struct LateInOrder<'a> {
    emit: &'a mut dyn Emit<Error = Error>,
    held: Vec<Held>,
}

/// A late event without its batch.
struct Held {
    index: usize,
    operator: usize,
    window: Window,
    watermark: Watermark,
    late_by_ms: i64,
}

impl<'a> LateInOrder<'a> {
    pub(super) fn new(emit: &'a mut dyn Emit<Error = Error>) -> Self {
        Self { emit, held: Vec::new() }
    }

    /// Hands on what was held of `batch`: by event, then by operator.
    pub(super) fn finish(mut self, batch: &EventBatch) -> Result<()> {
        self.held.sort_by_key(|held| (held.index, held.operator));
        for Held { index, operator, window, watermark, late_by_ms } in self.held {
            self.emit.late(operator, LateEvent { batch, index, window, watermark, late_by_ms })?;
        }
        Ok(())
    }
}

impl Emit for LateInOrder<'_> {
    type Error = Error;

    fn results(&mut self, operator: usize, block: &mut dyn ResultBlock) -> Result<()> {
        self.emit.results(operator, block)
    }

    fn late(&mut self, operator: usize, event: LateEvent<'_>) -> Result<()> {
        let LateEvent { index, window, watermark, late_by_ms, .. } = event;
        self.held.push(Held { index, operator, window, watermark, late_by_ms });
        Ok(())
    }

    fn rejected(&mut self, batch: &EventBatch, index: usize, rejection: Rejection) -> Result<()> {
        self.emit.rejected(batch, index, rejection)
    }

    fn joined(&mut self, operator: usize, row: &JoinedRow<'_>) -> Result<()> {
        self.emit.joined(operator, row)
    }

    fn duplicates(&mut self, source: SourceId, batch: &EventBatch, indexes: &[u32]) -> Result<()> {
        self.emit.duplicates(source, batch, indexes)
    }
}
