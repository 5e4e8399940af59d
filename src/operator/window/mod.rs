//! The windowed aggregation itself: assigns, accumulates, fires and forgets.
//!
//! [`WindowOperator`] is the one face of its two kinds: aligned windows, which many keys share, and sessions, which
//! each key has for itself.

mod aligned;
mod closing;
mod cursor;
mod rows;
mod session;
mod session_time;
mod spill;
mod view;

use std::sync::Arc;

use aligned::AlignedOperator;
use session::SessionOperator;
pub use spill::{Ends, SpillKind, Spilled};

use super::fire::History;
use super::{Emit, EventBatch, Marks, OperatorSpec, Panes, RowBuffer, Workers};
use crate::aggregate::Layout;
use crate::event_time::{EventTime, Span, Watermark, Window};

/// What an operator tells about one of its open windows, or about a slice that windows share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenWindow {
    /// Its bounds.
    pub window: Window,
    /// Panes in memory.
    pub resident: usize,
    /// True while no pane is only in the state database.
    pub complete: bool,
}

/// What an operator holds, in figures that cost little to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenSummary {
    /// Windows in memory, or slices that windows share; sessions, where each key has its own.
    pub windows: usize,
    /// Panes in memory.
    pub panes: usize,
    /// Those of the windows that are due and were not fired yet: more than none only while it is firing in steps.
    pub due: usize,
    /// The end of the first window that is still to close. Of sessions, the first instant at which one may be due.
    pub next_end: Option<EventTime>,
}

/// What memory holds of the pane of one key.
#[derive(Clone, Debug)]
pub struct HeldPane {
    /// Its window, or the slice that windows share.
    pub window: Window,
    /// True when parts of it, or all, may be in the state database.
    pub partial: bool,
    /// One row: what is in memory, the identity where that is nothing.
    pub row: RowBuffer,
}

/// A windowed aggregation.
#[derive(Debug)]
pub struct WindowOperator {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Aligned(Box<AlignedOperator>),
    Sessions(Box<SessionOperator>),
}

/// Runs the same call on either kind.
macro_rules! either {
    ($operator:expr, $inner:ident => $call:expr) => {
        match &$operator.kind {
            Kind::Aligned($inner) => $call,
            Kind::Sessions($inner) => $call,
        }
    };
    (mut $operator:expr, $inner:ident => $call:expr) => {
        match &mut $operator.kind {
            Kind::Aligned($inner) => $call,
            Kind::Sessions($inner) => $call,
        }
    };
}

impl WindowOperator {
    /// The operator at `index` of its pipeline.
    #[must_use]
    pub fn new(index: usize, spec: OperatorSpec) -> Self {
        let kind = match spec.windows.session_gap() {
            Some(gap) => Kind::Sessions(Box::new(SessionOperator::new(index, spec, gap))),
            None => Kind::Aligned(Box::new(AlignedOperator::new(index, spec))),
        };
        Self { kind }
    }

    /// Its place in the pipeline.
    #[must_use]
    pub fn index(&self) -> usize {
        either!(self, inner => inner.index)
    }

    /// What it was asked to do.
    #[must_use]
    pub fn spec(&self) -> &OperatorSpec {
        either!(self, inner => &inner.spec)
    }

    /// The accumulators of its panes.
    #[must_use]
    pub fn layout(&self) -> &Arc<Layout> {
        either!(self, inner => &inner.layout)
    }

    /// The window of a stored row, whose window, or slice, ends at `end`.
    #[must_use]
    pub fn stored_window(&self, end: EventTime, words: &[u64]) -> Window {
        match &self.kind {
            Kind::Aligned(inner) if inner.sliced => inner.spec.windows.piece_ending(end),
            Kind::Aligned(inner) => inner.spec.windows.window_ending(end),
            Kind::Sessions(inner) => Window { start: inner.start_of(words), end },
        }
    }

    /// How often the pane of a stored row was emitted; `None` where panes fire once and are gone.
    #[must_use]
    pub fn stored_emissions(&self, words: &[u64]) -> Option<u32> {
        (!self.spec().fires_once()).then(|| History::of(words).pane_index)
    }

    /// When the pane of a stored row fires early next, by event time; `None` where it does not.
    #[must_use]
    pub fn stored_boundary(&self, words: &[u64]) -> Option<EventTime> {
        if self.spec().fires_once() { None } else { History::of(words).next_boundary }
    }

    /// How far the watermark has come here: every window that ends by it has fired.
    #[must_use]
    pub fn watermark(&self) -> Watermark {
        either!(self, inner => inner.watermark)
    }

    /// True when `time` lies in windows with representable bounds only.
    #[inline]
    #[must_use]
    pub fn reaches(&self, time: EventTime) -> bool {
        either!(self, inner => inner.reaches(time))
    }

    /// Its open windows, by end.
    #[must_use]
    pub fn open_windows(&self) -> Vec<OpenWindow> {
        match &self.kind {
            Kind::Aligned(inner) => inner.open_windows().collect(),
            Kind::Sessions(inner) => inner.open_windows(),
        }
    }

    /// What it holds, without looking at each pane.
    #[must_use]
    pub fn summary(&self) -> OpenSummary {
        either!(self, inner => inner.summary())
    }

    /// What memory holds of one key, stored as [`crate::codec::KeyWriter`] writes it, by end of the windows. Those of
    /// which panes may be in the state database are among them even where memory has nothing of the key. At most `max`.
    #[must_use]
    pub fn held_panes(&self, key: &[u8], max: usize) -> Vec<HeldPane> {
        either!(self, inner => inner.held_panes(key, max))
    }

    /// Panes in memory.
    #[must_use]
    pub fn resident_panes(&self) -> usize {
        either!(self, inner => inner.resident_panes())
    }

    /// Bytes of memory that it holds.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        either!(self, inner => inner.memory_bytes())
    }

    /// Bytes that it is about to take at once, beside those that it holds.
    pub(crate) fn growth_bytes(&self) -> usize {
        either!(self, inner => inner.growth_bytes())
    }

    /// About how many bytes of memory a pane with a key of `key_bytes` takes, without states of variable size.
    #[must_use]
    pub fn bytes_per_pane(&self, key_bytes: usize) -> usize {
        either!(self, inner => inner.bytes_per_pane(key_bytes))
    }

    /// Processes a batch, event by event in arrival order, each against the watermark it meets.
    ///
    /// # Errors
    /// The first error of `panes` or `emit`. The operator must not be used after it.
    pub fn process<E>(
        &mut self,
        batch: &EventBatch,
        marks: &Marks,
        panes: &mut dyn Panes<Error = E>,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        match &mut self.kind {
            Kind::Aligned(inner) => inner.process(batch, marks, panes, emit),
            Kind::Sessions(inner) => inner.process(batch, marks, emit),
        }
    }

    /// Lets the watermark reach `watermark`: fires what is due, in the order of event time, and forgets what
    /// expired.
    ///
    /// # Errors
    /// The first error of `panes` or `emit`. The operator must not be used after it.
    pub fn advance<E>(
        &mut self,
        watermark: Watermark,
        panes: &mut dyn Panes<Error = E>,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        match &mut self.kind {
            Kind::Aligned(inner) => inner.advance(watermark, panes, emit),
            Kind::Sessions(inner) => inner.advance(watermark, emit),
        }
    }

    /// From now on [`WindowOperator::advance`] pauses after emitting so many rows, about: between two instants of event
    /// time, never within one. Without, it never pauses.
    pub fn set_step_rows(&mut self, rows: usize) {
        either!(mut self, inner => inner.step.set_rows(rows));
    }

    /// Shares the work on each batch among `workers`, before the first one. Sessions, and windows that may fire more than
    /// once, stay with one.
    pub fn set_workers(&mut self, workers: &Arc<Workers>) {
        if let Kind::Aligned(inner) = &mut self.kind {
            inner.workers = Arc::clone(workers);
        }
    }

    /// Turns these pauses off, while several events are processed at once, and on again.
    pub fn set_pauses(&mut self, pauses: bool) {
        either!(mut self, inner => inner.step.set_pauses(pauses));
    }

    /// What is due later than `limit` waits, whatever the watermark: an operator fed by another is not to overtake it.
    pub fn set_limit(&mut self, limit: Watermark) {
        either!(mut self, inner => inner.step.set_limit(limit));
    }

    /// True while [`WindowOperator::advance`] has paused: calling it again, with any watermark, goes on. Until it is
    /// done no events may come, except those of the operator that this one waits for.
    #[must_use]
    pub fn is_firing(&self) -> bool {
        either!(self, inner => inner.step.target() > inner.watermark)
    }

    /// How far an operator fed by this one may go: as far as this one while it is firing, else wherever it likes.
    #[must_use]
    pub fn firing_limit(&self) -> Watermark {
        if self.is_firing() { self.watermark() } else { Watermark::End }
    }

    /// True when `watermark` would make more due than fits into one step, after `events` that are still to come in.
    #[must_use]
    pub fn surges(&self, watermark: Watermark, events: usize) -> bool {
        either!(self, inner => inner.surges(watermark, events))
    }

    /// Ends a batch of an operator that advances by batches: emits what it changed, then lets the watermark reach
    /// `watermark`.
    ///
    /// # Errors
    /// The first error of `panes` or `emit`. The operator must not be used after it.
    pub fn end_batch<E>(
        &mut self,
        watermark: Watermark,
        panes: &mut dyn Panes<Error = E>,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        match &mut self.kind {
            Kind::Aligned(inner) => inner.end_batch(watermark, panes, emit),
            Kind::Sessions(inner) => inner.end_batch(watermark, emit),
        }
    }

    /// Lets the wall clock reach `now`, in the same milliseconds as event time: windows that follow it close, and
    /// changes that wait for it are emitted.
    ///
    /// # Errors
    /// The first error of `panes` or `emit`. The operator must not be used after it.
    pub fn tick<E>(
        &mut self,
        now: EventTime,
        panes: &mut dyn Panes<Error = E>,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        match &mut self.kind {
            Kind::Aligned(inner) => inner.tick(now, panes, emit),
            Kind::Sessions(inner) => inner.tick(now, emit),
        }
    }

    /// Copies out everything that the state database does not have yet, for a checkpoint.
    ///
    /// Whole panes stay in memory and count as clean; parts of panes leave memory, since they must not be merged
    /// twice. Call between batches only.
    pub fn spill_dirty(&mut self) -> Vec<Spilled> {
        either!(mut self, inner => inner.spill_dirty())
    }

    /// Moves the table with the most memory out, to make room. `None` when nothing can be moved.
    ///
    /// Panes that wait for firings of their own stay, and so do sessions: where they are is known in memory only.
    pub fn spill_largest(&mut self) -> Option<Spilled> {
        match &mut self.kind {
            Kind::Aligned(inner) => inner.spill_largest(),
            Kind::Sessions(_) => None,
        }
    }

    /// Starts to take up what a checkpoint holds, as of the watermark that it had come to here.
    pub fn restore(&mut self, watermark: Watermark) {
        either!(mut self, inner => inner.restore(watermark));
    }

    /// Notes the eviction horizon of the checkpoint: what has expired under it is gone for good. It is behind the
    /// watermark, and so says nothing new, unless the allowed lateness has grown since.
    pub fn forget(&mut self, horizon: Watermark) {
        either!(mut self, inner => inner.forgotten = horizon);
    }

    /// Takes up a window, or a slice, that a checkpoint holds, before the first batch. With `rows` these are all its
    /// panes and it is complete; without, its panes stay in the state database.
    pub fn restore_window(&mut self, end: EventTime, rows: Option<&RowBuffer>) {
        match &mut self.kind {
            Kind::Aligned(inner) => inner.restore_window(end, rows),
            Kind::Sessions(inner) => inner.restore_sessions(end, rows),
        }
    }

    /// True when panes must be in memory because what waits for a firing is known there only.
    #[must_use]
    pub fn needs_resident_panes(&self) -> bool {
        match &self.kind {
            Kind::Aligned(inner) => inner.needs_resident_panes(),
            Kind::Sessions(_) => true,
        }
    }

    /// True when nothing needs stored panes of the window, or slice, ending at `end` any more.
    #[must_use]
    pub fn is_expired(&self, end: EventTime) -> bool {
        match &self.kind {
            Kind::Aligned(inner) => inner.is_expired(end),
            Kind::Sessions(inner) => inner.expired(end, inner.watermark),
        }
    }
}

/// The last instant inside a window ending at `end`.
fn last_instant(end: EventTime) -> EventTime {
    EventTime::from_millis(end.as_millis().saturating_sub(1))
}

/// The watermark that has passed `instant`.
fn instant_after(instant: EventTime) -> EventTime {
    EventTime::from_millis(instant.as_millis().saturating_add(1))
}

/// The first multiple of `interval` after `time`.
fn next_multiple(time: EventTime, interval: Span) -> Option<EventTime> {
    let (time, interval) = (time.as_millis(), interval.as_millis().max(1));
    time.checked_sub(time.rem_euclid(interval))?.checked_add(interval).map(EventTime::from_millis)
}
