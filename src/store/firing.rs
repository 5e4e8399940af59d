//! Firing in steps: when a long jump of the watermark makes much due at once, a checkpoint may come in between.
//!
//! A batch is cut behind the event that makes the jump. From there operators lag behind the task's watermark until all is
//! fired; how far each has come is in the manifest, so that a restart goes on in the middle of it.

use super::WindowStore;
use super::panes::StorePanes;
use super::steps::Tee;
use crate::error::{Error, Result};
use crate::event::EventBatch;
use crate::event_time::{EventTime, Watermark};
use crate::operator::{Advance, Emit, Marks, OperatorSpec, TimeDomain, WindowOperator};

impl WindowStore {
    /// As [`WindowStore::process`], from event `from` on, but stops behind the first event that makes more due than the
    /// rows of [`super::WindowStoreBuilder::firing_step_rows`]. Returns the index of the next event.
    ///
    /// While [`WindowStore::is_firing`] is true afterwards, [`WindowStore::fire_some`] goes on, and a checkpoint may come
    /// before it: its barrier then names the position behind the event before the returned one.
    ///
    /// # Errors
    /// As [`WindowStore::process`].
    pub fn process_some(
        &mut self,
        batch: &EventBatch,
        from: usize,
        emit: &mut dyn Emit<Error = Error>,
    ) -> Result<usize> {
        self.guarded(|store| {
            store.check_batch(batch)?;
            store.finish_firing(emit)?;
            match store.next_surge(batch, from) {
                None if from == 0 => store.process_whole(batch, emit)?,
                None => store.process_whole(&batch.part(from..batch.len()), emit)?,
                Some(surge) => {
                    if from < surge {
                        store.process_whole(&batch.part(from..surge), emit)?;
                    }
                    store.process_batch(&batch.part(surge..surge + 1), emit)?;
                    return Ok(surge + 1);
                }
            }
            Ok(batch.len())
        })
    }

    /// True while windows that the watermark has passed wait to be fired. Also after a restart from a checkpoint that
    /// was made meanwhile.
    #[must_use]
    pub fn is_firing(&self) -> bool {
        let reached = self.tracker.current();
        let mut operators = self.operators.iter().filter(|operator| follows_events(operator.spec()));
        operators.any(|operator| operator.watermark() < reached) || self.events.is_firing(reached)
    }

    /// Fires what is due, up to about [`super::WindowStoreBuilder::firing_step_rows`] rows of each window and join.
    /// Whatever else is called does the rest of it first.
    ///
    /// # Errors
    /// As [`WindowStore::process`].
    pub fn fire_some(&mut self, emit: &mut dyn Emit<Error = Error>) -> Result<()> {
        self.guarded(|store| {
            store.fire_step(emit)?;
            store.make_room()
        })
    }

    fn fire_step(&mut self, emit: &mut dyn Emit<Error = Error>) -> Result<()> {
        let reached = self.tracker.current();
        let mut panes = StorePanes { db: &self.db, writer: &mut self.writer };
        for (index, operator) in self.operators.iter_mut().enumerate() {
            if follows_events(operator.spec()) && !self.steps.is_fed(index) {
                let mut tee = Tee { emit: &mut *emit, steps: &mut self.steps };
                operator.advance(reached, &mut panes, &mut tee)?;
            }
        }
        self.feed(emit)?;
        self.events.advance(reached, emit)
    }

    /// Fires all that is due.
    pub(super) fn finish_firing(&mut self, emit: &mut dyn Emit<Error = Error>) -> Result<()> {
        while self.is_firing() {
            self.fire_step(emit)?;
        }
        Ok(())
    }

    /// Processes a batch without a pause, whatever it makes due.
    pub(super) fn process_whole(
        &mut self,
        batch: &EventBatch,
        emit: &mut dyn Emit<Error = Error>,
    ) -> Result<()> {
        self.set_pauses(false);
        let processed = self.process_batch(batch, emit);
        self.set_pauses(true);
        processed
    }

    fn set_pauses(&mut self, pauses: bool) {
        self.operators.iter_mut().for_each(|operator| operator.set_pauses(pauses));
        self.events.set_pauses(pauses);
    }

    /// The first event, from `from` on, that makes more due than fits into one step.
    fn next_surge(&mut self, batch: &EventBatch, from: usize) -> Option<usize> {
        self.step_rows?;
        // No watermark is ahead of all events.
        let latest = batch.times.get(from..)?.iter().copied().max()?;
        let told = batch.punctuations.iter().map(|(_, time)| time.as_millis()).max();
        let bound = Watermark::At(EventTime::from_millis(told.map_or(latest, |told| told.max(latest))));
        let bound = bound.max(self.tracker.current());
        let joins = self.events.surges_at(bound);
        if joins.is_none() && !self.surges(bound, batch.len() - from) {
            return None;
        }
        let rest;
        let events = if from == 0 {
            batch
        } else {
            rest = batch.part(from..batch.len());
            &rest
        };
        // The watermark of each event, tried out on the side.
        let mut tracker = self.tracker.clone();
        tracker.set_wall_clock(self.clock.wall_millis());
        tracker.touch(batch.partition, self.clock.monotonic());
        let mut marks = Marks::default();
        marks.observe_where(&mut tracker, events, |time| {
            super::reach(&self.operators, &self.events, batch.source, time)
        });
        let moves = |index: &usize| marks.after(*index) > marks.before(*index);
        let surges = |watermark: Watermark, index| {
            joins.is_some_and(|instant| watermark.closed(instant)) || self.surges(watermark, index)
        };
        let mut surging = (0..events.len()).filter(moves).filter(|&index| surges(marks.after(index), index));
        surging.next().map(|index| from + index)
    }

    fn surges(&self, watermark: Watermark, events: usize) -> bool {
        let mut operators = self.operators.iter();
        operators.any(|operator| follows_events(operator.spec()) && operator.surges(watermark, events))
    }
}

/// True when the watermark moves with each event.
pub(super) fn follows_events(spec: &OperatorSpec) -> bool {
    spec.time == TimeDomain::Event && spec.advance == Advance::Event
}

/// Tells the operators how much to fire in one go: those that follow events and no other operator.
pub(super) fn set_step_rows(operators: &mut [WindowOperator], rows: Option<usize>) {
    for operator in operators {
        if let Some(rows) =
            rows.filter(|_| follows_events(operator.spec()) && operator.spec().input.is_none())
        {
            operator.set_step_rows(rows.max(1));
        }
    }
}
