//! Interval joins: pairs of events of two sources with one key whose times lie within an interval.
//!
//! `spec` says which, `held` keeps the events of both sides. This file pairs each event as it comes with those that are
//! there, and lets go what the watermark has passed, in steps where that is much. All live events are in memory: their
//! number is bounded by how many come within the interval and the disorder that the watermark allows.

mod held;
mod spec;

use held::{Held, HeldEvents, Place};
pub use spec::{JoinField, JoinInput, JoinKind, JoinSpec, Side};

use super::step::FiringStep;
use super::{Emit, Entries, EntryError, EventBatch, JoinedEvent, JoinedRow, LateEvent, Marks};
use crate::aggregate::{Value, decode_fields, encode_fields};
use crate::event_time::{EventTime, Watermark, Window};

/// An interval join.
#[derive(Debug)]
pub struct JoinOperator {
    index: usize,
    spec: JoinSpec,
    held: HeldEvents,
    watermark: Watermark,
    step: FiringStep,
    arrivals: u64,
}

impl JoinOperator {
    /// The operator at `index` of its pipeline.
    #[must_use]
    pub fn new(index: usize, spec: JoinSpec) -> Self {
        let (held, step) = (HeldEvents::default(), FiringStep::default());
        Self { index, spec, held, watermark: Watermark::None, step, arrivals: 0 }
    }

    /// What it was asked to do.
    #[must_use]
    pub fn spec(&self) -> &JoinSpec {
        &self.spec
    }

    /// How far the watermark has come here.
    #[must_use]
    pub fn watermark(&self) -> Watermark {
        self.watermark
    }

    /// Events held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// True when no event is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.len() == 0
    }

    /// Bytes of memory that it holds, about.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.held.bytes()
    }

    /// Processes a batch, event by event in arrival order, each against the watermark it meets. With pauses on, at most
    /// the last event of it may make more due than fits into one step.
    ///
    /// # Errors
    /// The first error of `emit`. The operator must not be used after it.
    pub fn process<E>(
        &mut self,
        batch: &EventBatch,
        marks: &Marks,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        let side = self.spec.side_of(batch.source);
        let mut skipped = marks.skipped();
        for index in 0..batch.len() {
            match skipped {
                [next, rest @ ..] if *next as usize == index => skipped = rest,
                _ => {
                    if let Some(side) = side {
                        self.take(batch, index, side, marks.before(index), emit)?;
                    }
                }
            }
            let after = marks.after(index);
            if after > marks.before(index) {
                self.advance(after, emit)?;
            }
        }
        if self.is_firing() { Ok(()) } else { self.advance(marks.last(), emit) }
    }

    /// Pairs an event with those of the other side that are there, and keeps it for those to come.
    fn take<E>(
        &mut self,
        batch: &EventBatch,
        index: usize,
        side: Side,
        before: Watermark,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        let time = EventTime::from_millis(batch.times[index]);
        let expiry = self.spec.expiry(side, time).unwrap_or(EventTime::MAX);
        if before.closed(expiry) {
            let window = Window { start: time, end: expiry };
            let behind = |now: EventTime| now.as_millis().saturating_sub(expiry.as_millis());
            let late_by_ms = before.instant().map_or(i64::MAX, behind);
            return emit.late(self.index, LateEvent { batch, index, window, watermark: before, late_by_ms });
        }
        let input = self.spec.input(side);
        let key = batch.keys[input.key_column].get(index);
        let mut fields = Vec::new();
        let column = |column: usize| batch.values.get(column).and_then(|values| values.get(index));
        encode_fields(input.fields.iter().map(|field| column(field.column)), &mut fields);
        let values = self.values(side, &fields);
        let mut matched = Vec::new();
        let (first, last) = self.spec.partners(side, time);
        for (place, partner) in self.held.between(side.other(), key, first, last) {
            let theirs = self.values(side.other(), &partner.fields);
            let own = JoinedEvent { time, values: &values };
            let other = JoinedEvent { time: place.time, values: &theirs };
            let (left, right) = if side == Side::Left { (own, other) } else { (other, own) };
            let row = JoinedRow { key, left: Some(left), right: Some(right), watermark: before };
            emit.joined(self.index, &row)?;
            matched.push(place);
        }
        if self.spec.kind.keeps(side.other()) {
            self.held.mark_matched(&matched);
        }
        let place = Place { expiry, time, arrival: self.arrivals };
        self.arrivals = self.arrivals.saturating_add(1);
        let matched = !matched.is_empty() && self.spec.kind.keeps(side);
        self.held.insert(side, key, place, Held { fields: fields.into(), matched }, true);
        Ok(())
    }

    fn values(&self, side: Side, fields: &[u8]) -> Vec<Value> {
        decode_fields(fields, self.spec.input(side).fields.len())
            .expect("fields are encoded by this operator, or were checked when they were restored")
    }

    /// From now on [`JoinOperator::advance`] pauses after so many events, about: between two instants of event time,
    /// never within one. Without, it never pauses.
    pub fn set_step_rows(&mut self, rows: usize) {
        self.step.set_rows(rows);
    }

    /// Turns these pauses off, while several events are processed at once, and on again.
    pub fn set_pauses(&mut self, pauses: bool) {
        self.step.set_pauses(pauses);
    }

    /// True while [`JoinOperator::advance`] has paused: calling it again, with any watermark, goes on. Until it is done
    /// no events may come.
    #[must_use]
    pub fn is_firing(&self) -> bool {
        self.step.target() > self.watermark
    }

    /// The watermark, up to `bound`, from which more is due than fits into one step, and at several instants.
    #[must_use]
    pub fn surges_at(&self, bound: Watermark) -> Option<EventTime> {
        self.held.more_than(self.step.rows_max(), bound)
    }

    /// Lets the watermark reach `watermark`: what can find no partner any more comes out, if it is to, and is
    /// forgotten. Pauses after [`JoinOperator::set_step_rows`] events.
    ///
    /// # Errors
    /// The first error of `emit`. The operator must not be used after it.
    pub fn advance<E>(&mut self, watermark: Watermark, emit: &mut dyn Emit<Error = E>) -> Result<(), E> {
        let target = self.step.aim(watermark);
        while let Some(expiry) = self.held.first_expiry().filter(|expiry| target.closed(*expiry)) {
            if let Some(reached) = self.step.pause_before(expiry) {
                self.watermark = self.watermark.max(reached);
                return Ok(());
            }
            let Some(expired) = self.held.pop_first() else { break };
            self.step.count(1);
            let side = expired.side;
            if expired.held.matched || !self.spec.kind.keeps(side) {
                continue;
            }
            let values = self.values(side, &expired.held.fields);
            let event = Some(JoinedEvent { time: expired.place.time, values: &values });
            let (left, right) = if side == Side::Left { (event, None) } else { (None, event) };
            let row = JoinedRow { key: &expired.key, left, right, watermark: target };
            emit.joined(self.index, &row)?;
        }
        self.watermark = self.watermark.max(self.step.done());
        Ok(())
    }

    /// Copies out what the state database does not have yet.
    pub fn spill_dirty(&mut self) -> Entries {
        self.held.spill_dirty()
    }

    /// Starts to take up what a checkpoint holds, as of the watermark that it had come to here.
    pub fn restore(&mut self, watermark: Watermark) {
        self.watermark = watermark;
    }

    /// Takes up a row that a checkpoint holds. False when it has expired.
    ///
    /// # Errors
    /// [`EntryError`] when it is no such row.
    pub fn restore_row(&mut self, end: EventTime, key: &[u8], payload: &[u8]) -> Result<bool, EntryError> {
        let row = held::read(key, payload)?;
        check(&self.spec, end, &row)?;
        if self.watermark.closed(end) {
            return Ok(false);
        }
        let place = Place { expiry: end, time: row.time, arrival: row.arrival };
        self.arrivals = self.arrivals.max(row.arrival.saturating_add(1));
        let held = Held { fields: row.fields.into(), matched: row.matched };
        self.held.insert(row.side, row.key, place, held, false);
        Ok(true)
    }
}

/// Fuzz target of a stored event: a row that is read is written as it was.
#[cfg(feature = "fault-injection")]
pub(crate) fn fuzz_row(key: &[u8], payload: &[u8]) {
    let Ok(row) = held::read(key, payload) else { return };
    let place = Place { expiry: EventTime::MIN, time: row.time, arrival: row.arrival };
    let event = Held { fields: row.fields.into(), matched: row.matched };
    let written = held::write(row.side, row.key, place, &event);
    assert_eq!(written, (key.to_vec(), payload.to_vec()), "a stored event is written as other bytes");
}

pub(super) fn check_row(
    spec: &JoinSpec,
    end: EventTime,
    key: &[u8],
    payload: &[u8],
) -> Result<(), EntryError> {
    check(spec, end, &held::read(key, payload)?)
}

fn check(spec: &JoinSpec, end: EventTime, row: &held::Row<'_>) -> Result<(), EntryError> {
    if spec.expiry(row.side, row.time) != Some(end) {
        return Err(EntryError("an event expires at another time than its definition says"));
    }
    match decode_fields(row.fields, spec.input(row.side).fields.len()) {
        Ok(_) => Ok(()),
        Err(_) => Err(EntryError("an event has other fields than its definition")),
    }
}
