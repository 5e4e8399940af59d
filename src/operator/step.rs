//! How much an operator fires in one go. A long jump of the watermark, after a pause of the input say, makes many windows
//! due at once; they are fired in steps, and a checkpoint may come between two of them.

use crate::event_time::{EventTime, Watermark};

/// The step that is being fired: what it is to reach, and how far it has come.
#[derive(Clone, Copy, Debug)]
pub(in crate::operator) struct FiringStep {
    // The watermark that all is fired for.
    target: Watermark,
    // What comes later than this waits: the results that it is made of are not there yet.
    limit: Watermark,
    rows_max: usize,
    pauses: bool,
    rows: usize,
    // The instant of event time whose turn came last.
    when: Option<EventTime>,
}

impl Default for FiringStep {
    fn default() -> Self {
        Self {
            target: Watermark::None,
            limit: Watermark::End,
            rows_max: usize::MAX,
            pauses: true,
            rows: 0,
            when: None,
        }
    }
}

impl FiringStep {
    /// Starts a step towards `watermark`, or towards what earlier ones were to reach.
    pub(in crate::operator) fn aim(&mut self, watermark: Watermark) -> Watermark {
        self.target = self.target.max(watermark);
        self.rows = 0;
        self.when = None;
        self.target
    }

    /// The watermark that all is fired for.
    pub(in crate::operator) const fn target(&self) -> Watermark {
        self.target
    }

    /// Counts rows that were emitted.
    pub(in crate::operator) const fn count(&mut self, rows: usize) {
        self.rows = self.rows.saturating_add(rows);
    }

    /// Where to pause, when what comes next is due at `when`; `None` to go on.
    ///
    /// A full step pauses between two instants. The end of time is no place to stop: what has no later instant would be
    /// taken for done.
    pub(in crate::operator) fn pause_before(&mut self, when: EventTime) -> Option<Watermark> {
        if !self.limit.closed(when) {
            return Some(self.limit);
        }
        let full = self.pauses && self.rows >= self.rows_max;
        if let Some(last) = self.when.filter(|last| full && *last < when) {
            return Some(Watermark::At(last));
        }
        self.when = Some(when);
        None
    }

    /// Where the watermark is once nothing more is due.
    pub(in crate::operator) fn done(&self) -> Watermark {
        self.target.min(self.limit)
    }

    /// Rows of a full step.
    pub(in crate::operator) const fn rows_max(&self) -> usize {
        self.rows_max
    }

    /// From now on steps are of so many rows, about.
    pub(in crate::operator) const fn set_rows(&mut self, rows: usize) {
        self.rows_max = rows;
    }

    /// Whether full steps pause.
    pub(in crate::operator) const fn set_pauses(&mut self, pauses: bool) {
        self.pauses = pauses;
    }

    /// What comes later than `limit` waits.
    pub(in crate::operator) const fn set_limit(&mut self, limit: Watermark) {
        self.limit = limit;
    }
}
