//! The watermark before and after each event of a batch, worked out once for all operators.

use super::{EventBatch, WatermarkTracker, WindowOperator};
use crate::event_time::{EventTime, Watermark};

/// The running watermark of one batch.
///
/// Working it out event by event, before any operator sees the batch, is what makes results independent of where
/// batches are cut.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    // before[i] is the watermark that event i meets; one entry more for the watermark after the last event.
    before: Vec<Watermark>,
    out_of_range: Vec<u32>,
}

impl Marks {
    /// Runs `tracker` over `batch`. An event outside the time range of any operator is left out.
    pub fn observe(
        &mut self,
        tracker: &mut WatermarkTracker,
        operators: &[WindowOperator],
        batch: &EventBatch,
    ) {
        self.before.clear();
        self.out_of_range.clear();
        self.before.push(tracker.current());
        for (index, &millis) in batch.times.iter().enumerate() {
            let time = EventTime::from_millis(millis);
            let fits = operators.iter().all(|operator| operator.reaches(time));
            if fits {
                self.before.push(tracker.observe(batch.partition, time));
            } else {
                self.before.push(tracker.current());
                self.out_of_range.push(index as u32);
            }
        }
    }

    /// The watermark that event `index` meets.
    #[inline]
    #[must_use]
    pub fn before(&self, index: usize) -> Watermark {
        self.before[index]
    }

    /// The watermark after event `index`.
    #[inline]
    #[must_use]
    pub fn after(&self, index: usize) -> Watermark {
        self.before[index + 1]
    }

    /// The watermark after the last event; without events, before the first.
    #[must_use]
    pub fn last(&self) -> Watermark {
        self.before.last().copied().unwrap_or(Watermark::None)
    }

    /// Indexes of events that no window can hold, in order.
    #[must_use]
    pub fn out_of_range(&self) -> &[u32] {
        &self.out_of_range
    }
}
