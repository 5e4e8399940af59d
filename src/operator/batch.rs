//! The watermark of operators that advance by batches: one batch behind what the events have reached.
//!
//! Knows no batch sizes; whoever cuts the input says when a batch ends.

use crate::event_time::{EventTime, Watermark};

/// What operators that advance by batches ([`super::Advance::Batch`]) reach at the end of the batch.
///
/// It starts at 1970, so windows that end by then are closed from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchWatermark {
    next: Watermark,
}

impl BatchWatermark {
    /// Where a checkpoint left off; [`Watermark::None`] for a new beginning.
    #[must_use]
    pub fn new(saved: Watermark) -> Self {
        Self { next: since_1970(saved) }
    }

    /// What operators reach when the batch ends.
    #[must_use]
    pub const fn next(self) -> Watermark {
        self.next
    }

    /// Ends a batch whose events have brought the task to `current`: returns what operators reach now.
    pub fn end_batch(&mut self, current: Watermark) -> Watermark {
        std::mem::replace(&mut self.next, since_1970(current))
    }
}

fn since_1970(watermark: Watermark) -> Watermark {
    watermark.max(Watermark::At(EventTime::from_millis(0)))
}
