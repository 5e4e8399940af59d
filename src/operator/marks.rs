//! The watermark before and after each event of a batch, and which events are left out, worked out once for all
//! operators.

use super::{EventBatch, Rejection, WatermarkTracker, WindowOperator};
use crate::event_time::{EventTime, Watermark};

/// The running watermark of one batch, and the events that no operator is to see.
///
/// Working it out event by event, before any operator sees the batch, is what makes results independent of where
/// batches are cut.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    // before[i] is the watermark that event i meets; one entry more for the watermark after the last event.
    before: Vec<Watermark>,
    // Ascending, without repetition.
    skipped: Vec<u32>,
    rejected: Vec<(u32, Rejection)>,
}

impl Marks {
    /// Runs `tracker` over `batch`. An event whose time is not believed, or lies outside the range of an operator that
    /// would take it, is left out and moves nothing.
    pub fn observe(
        &mut self,
        tracker: &mut WatermarkTracker,
        operators: &[WindowOperator],
        batch: &EventBatch,
    ) {
        self.observe_where(tracker, batch, |time| {
            operators.iter().all(|operator| {
                let spec = operator.spec();
                operator.reaches(time) || spec.input.is_some() || !spec.reads(batch.source)
            })
        });
    }

    /// As [`Marks::observe`], for whatever lies behind `reached`, which says whether a time is in range.
    pub fn observe_where(
        &mut self,
        tracker: &mut WatermarkTracker,
        batch: &EventBatch,
        reached: impl Fn(EventTime) -> bool,
    ) {
        self.before.clear();
        self.skipped.clear();
        self.rejected.clear();
        self.before.push(tracker.current());
        let limits = tracker.limits(batch.partition);
        let mut punctuations = batch.punctuations.as_slice();
        for (index, &millis) in batch.times.iter().enumerate() {
            let time = EventTime::from_millis(millis);
            let punctuation = take_at(&mut punctuations, index);
            let rejection = if reached(time) {
                limits.check(time).or_else(|| punctuation.and_then(|time| limits.without_lower().check(time)))
            } else {
                Some(Rejection::OutOfRange)
            };
            if let Some(rejection) = rejection {
                self.before.push(tracker.current());
                self.skipped.push(index as u32);
                self.rejected.push((index as u32, rejection));
                continue;
            }
            let mut after = tracker.observe(batch.partition, time);
            if let Some(time) = punctuation {
                after = tracker.punctuate(batch.partition, time);
            }
            self.before.push(after);
        }
    }

    /// The marks of events that the watermark stands still for.
    #[must_use]
    pub fn steady(watermark: Watermark, events: usize) -> Self {
        Self { before: vec![watermark; events + 1], ..Self::default() }
    }

    /// Leaves out further events, which have moved the watermark all the same: repeated ones, say. `indexes` ascend.
    pub fn skip(&mut self, indexes: &[u32]) {
        if !indexes.is_empty() {
            self.skipped.extend_from_slice(indexes);
            self.skipped.sort_unstable();
            self.skipped.dedup();
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

    /// The marks of the event at `index` alone, for a batch that holds only that event.
    ///
    /// # Panics
    /// When there is no such event.
    #[must_use]
    pub fn single(&self, index: usize) -> Self {
        let own = |&(at, rejection): &(u32, Rejection)| (at as usize == index).then_some((0, rejection));
        let skipped = self.skipped.binary_search(&(index as u32)).is_ok();
        Self {
            before: vec![self.before(index), self.after(index)],
            skipped: if skipped { vec![0] } else { Vec::new() },
            rejected: self.rejected.iter().filter_map(own).collect(),
        }
    }

    /// The watermark after the last event; without events, before the first.
    #[must_use]
    pub fn last(&self) -> Watermark {
        self.before.last().copied().unwrap_or(Watermark::None)
    }

    /// Indexes of all events that are left out, ascending.
    #[must_use]
    pub fn skipped(&self) -> &[u32] {
        &self.skipped
    }

    /// Those of them that were rejected, each with the reason, ascending.
    #[must_use]
    pub fn rejected(&self) -> &[(u32, Rejection)] {
        &self.rejected
    }
}

/// The punctuation of the event at `index`, taken off the front.
#[inline]
fn take_at(punctuations: &mut &[(u32, EventTime)], index: usize) -> Option<EventTime> {
    let [(at, time), rest @ ..] = *punctuations else { return None };
    if *at as usize > index {
        return None;
    }
    *punctuations = rest;
    (*at as usize == index).then_some(*time)
}
