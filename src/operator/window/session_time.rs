//! What time does to sessions: the watermark closes, fires and expires them, the wall clock emits what waits.

use std::cmp::Reverse;

use super::session::{NONE, SessionOperator};
use super::{instant_after, last_instant};
use crate::aggregate::Layout;
use crate::event_time::{EventTime, Span, Watermark, Window};
use crate::operator::fire::{Firing, History};
use crate::operator::{Accumulation, Emit, Mode, Repeat, RowBuffer, RowKind, TimeDomain, Trigger};

/// What a timer that went off stands for. In this order at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Close,
    Boundary,
    Expiry,
}

impl SessionOperator {
    /// True when `watermark` may make something due.
    pub(super) fn is_due(&self, watermark: Watermark) -> bool {
        self.timers.peek().is_some_and(|Reverse((when, _, _))| watermark.closed(*when))
    }

    /// When something is due for a session next, and what.
    fn next_due(&self, at: u32) -> (EventTime, Due) {
        let session = &self.sessions[at as usize];
        let end = session.window.end;
        let boundary = if self.fires_once { None } else { History::of(self.rows.words(at)).next_boundary };
        match boundary {
            // Of a session that joined after it closed, one may have been left behind.
            Some(instant) if instant < last_instant(end) => (instant_after(instant), Due::Boundary),
            _ if session.closed => (end.saturating_add(self.spec.allowed_lateness), Due::Expiry),
            _ => (end, Due::Close),
        }
    }

    /// Sets the timer of a session, unless an earlier one will look at it anyway.
    pub(super) fn plan(&mut self, at: u32) {
        if self.spec.mode == Mode::Complete {
            return;
        }
        let (when, _) = self.next_due(at);
        let session = &mut self.sessions[at as usize];
        if when < session.timer || session.timer == EventTime::MAX {
            session.timer = when;
            self.timers.push(Reverse((when, at, session.generation)));
        }
    }

    /// Lets the watermark reach `watermark`: fires what is due, in the order of event time, and forgets what
    /// expired. Pauses at an instant of event time after [`super::WindowOperator::set_step_rows`] rows.
    pub(super) fn advance<E>(
        &mut self,
        watermark: Watermark,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        let target = self.step.aim(watermark);
        if target <= self.watermark {
            return Ok(());
        }
        if self.spec.mode == Mode::Complete {
            self.watermark = target;
            return if target == Watermark::End { self.emit_everything(target, emit) } else { Ok(()) };
        }
        let mut together = Vec::new();
        while let Some(&Reverse((when, ..))) = self.timers.peek() {
            if !target.closed(when) {
                break;
            }
            if let Some(reached) = self.step.pause_before(when) {
                // All that was due up to here is done, and nothing that comes after it.
                self.watermark = self.watermark.max(reached);
                return Ok(());
            }
            self.take_due(when, &mut together);
            for (due, _, _, at) in together.drain(..) {
                self.let_happen(due, at, target, emit)?;
            }
        }
        self.watermark = self.watermark.max(self.step.done());
        self.forget_idle_keys();
        Ok(())
    }

    /// True when a watermark makes several instants due, with more rows than fit into one step, after `events` that are
    /// still to come in.
    pub(super) fn surges(&self, watermark: Watermark, events: usize) -> bool {
        if events > self.step.rows_max() {
            return true;
        }
        let far = match (self.watermark.instant(), watermark.instant()) {
            (Some(from), Some(to)) => to.as_millis().saturating_sub(from.as_millis()) >= self.gap.as_millis(),
            _ => true,
        };
        // In a steady stream a few sessions are due at a time, and it would not do to look at all of them.
        if !far || !self.is_due(watermark) || self.spec.mode == Mode::Complete {
            return false;
        }
        let due = self.timers.iter().filter(|Reverse((when, ..))| watermark.closed(*when)).count();
        due + events > self.step.rows_max()
    }

    /// Takes what is due at `when`, in the order in which it happens. Timers of sessions that have grown since are set
    /// anew.
    fn take_due(&mut self, when: EventTime, together: &mut Vec<(Due, Window, Vec<u8>, u32)>) {
        while let Some(&Reverse((next, at, generation))) = self.timers.peek() {
            if next != when {
                break;
            }
            self.timers.pop();
            let session = &mut self.sessions[at as usize];
            if session.key == NONE || session.generation != generation || session.timer != when {
                continue;
            }
            session.timer = EventTime::MAX;
            let (window, key) = (session.window, session.key);
            let (actual, due) = self.next_due(at);
            if actual > when {
                self.plan(at);
            } else {
                together.push((due, window, self.keys.key(key).to_vec(), at));
            }
        }
        together.sort_unstable_by(|(due_a, a, key_a, _), (due_b, b, key_b, _)| {
            (*due_a, a.end, a.start, key_a).cmp(&(*due_b, b.end, b.start, key_b))
        });
    }

    fn let_happen<E>(
        &mut self,
        due: Due,
        at: u32,
        watermark: Watermark,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        match due {
            Due::Boundary => {
                self.fire(at, watermark, emit)?;
                let Repeat::EventTime(interval) = self.spec.trigger.early() else { return Ok(()) };
                let mut history = History::of(self.rows.words(at));
                history.next_boundary = history.next_boundary.and_then(|instant| {
                    instant.as_millis().checked_add(interval.as_millis()).map(EventTime::from_millis)
                });
                history.store(self.rows.words_mut(at));
                self.mark_dirty(at);
                self.plan(at);
            }
            Due::Close => {
                self.sessions[at as usize].closed = true;
                let changed = || self.sessions[at as usize].waits;
                let fires = match self.spec.mode {
                    Mode::Append => self.spec.trigger.on_time(),
                    Mode::Update => changed(),
                    Mode::Complete => false,
                };
                if fires {
                    self.fire(at, watermark, emit)?;
                }
                if self.spec.allowed_lateness == Span::ZERO {
                    self.release(at);
                } else {
                    self.plan(at);
                }
            }
            Due::Expiry => {
                if self.emits_at_expiry() && History::of(self.rows.words(at)).since_fire > 0 {
                    self.fire(at, watermark, emit)?;
                }
                self.release(at);
            }
        }
        Ok(())
    }

    /// True when accepted events may wait to be emitted until their session expires.
    fn emits_at_expiry(&self) -> bool {
        match self.spec.mode {
            Mode::Append => {
                !matches!(self.spec.trigger, Trigger::Count(_)) && self.spec.trigger.late() != Repeat::Each
            }
            Mode::Update => self.spec.gathers_changes(),
            Mode::Complete => false,
        }
    }

    /// Emits one session, unless it was cleared and has taken nothing since.
    pub(super) fn fire<E>(
        &mut self,
        at: u32,
        watermark: Watermark,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        self.sessions[at as usize].waits = false;
        let discarding = self.spec.accumulation == Accumulation::Discarding;
        if discarding && self.rows.get(at).events() == 0 {
            return Ok(());
        }
        self.emit_session(at, watermark, None, emit)?;
        self.step.count(1);
        if !self.fires_once {
            let layout = std::sync::Arc::clone(&self.layout);
            let firing = self.firing(&layout, at, watermark, None);
            firing.settle(self.rows.get_mut(at));
            self.mark_dirty(at);
        }
        Ok(())
    }

    fn firing<'a>(
        &self,
        layout: &'a Layout,
        at: u32,
        watermark: Watermark,
        takes_back: Option<RowKind>,
    ) -> Firing<'a> {
        Firing {
            layout,
            fires_once: self.fires_once,
            accumulation: self.spec.accumulation,
            window: self.sessions[at as usize].window,
            watermark,
            takes_back,
        }
    }

    /// Emits what a session holds, or takes back what was emitted of it last.
    pub(super) fn emit_session<E>(
        &self,
        at: u32,
        watermark: Watermark,
        takes_back: Option<RowKind>,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        let mut rows = RowBuffer::new(&self.layout);
        rows.push(self.keys.key(self.sessions[at as usize].key), self.rows.get(at));
        emit.results(self.index, &mut self.firing(&self.layout, at, watermark, takes_back).buffer(&rows))
    }

    /// Lets the wall clock reach `now`: sessions that follow it close, and changes that wait for it are emitted.
    pub(super) fn tick<E>(&mut self, now: EventTime, emit: &mut dyn Emit<Error = E>) -> Result<(), E> {
        self.now = self.now.max(now);
        if self.spec.time == TimeDomain::Processing {
            self.advance(Watermark::At(self.now), emit)?;
        }
        let (early, late) = (self.spec.trigger.early(), self.spec.trigger.late());
        for (at, repeat) in [early, late].into_iter().enumerate() {
            let Repeat::Interval(interval) = repeat else { continue };
            let due = self.intervals[at].is_some_and(|due| self.now >= due);
            if due || self.intervals[at].is_none() {
                self.intervals[at] = super::next_multiple(self.now, interval);
            }
            if !due {
                continue;
            }
            match self.spec.mode {
                Mode::Complete if at == 0 => self.emit_everything(self.watermark, emit)?,
                Mode::Update if at == 0 => self.emit_changed(self.watermark, None, emit)?,
                Mode::Complete | Mode::Update => {}
                Mode::Append => self.emit_changed(self.watermark, Some(at == 1), emit)?,
            }
        }
        Ok(())
    }

    /// Ends a batch: emits what it changed, then lets the watermark reach `watermark`.
    pub(super) fn end_batch<E>(
        &mut self,
        watermark: Watermark,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        match self.spec.mode {
            Mode::Append => {}
            Mode::Update => self.emit_changed(watermark, None, emit)?,
            Mode::Complete => self.emit_everything(watermark, emit)?,
        }
        self.advance(watermark, emit)
    }

    /// Emits the sessions that changed, or of them only those that are closed, or are not.
    fn emit_changed<E>(
        &mut self,
        watermark: Watermark,
        closed: Option<bool>,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        let mut waiting = std::mem::take(&mut self.changed);
        // A session that fired by another rule and changed again since is on the list a second time.
        waiting.sort_unstable();
        waiting.dedup();
        let mut due = Vec::new();
        for (at, generation) in waiting {
            let session = &self.sessions[at as usize];
            if session.key == NONE || session.generation != generation || !session.waits {
                continue;
            }
            if closed.is_some_and(|closed| closed != session.closed) {
                self.changed.push((at, generation));
            } else {
                due.push(at);
            }
        }
        self.fire_in_order(due, watermark, emit)
    }

    fn emit_everything<E>(&mut self, watermark: Watermark, emit: &mut dyn Emit<Error = E>) -> Result<(), E> {
        let live = (0..self.sessions.len() as u32).filter(|&at| self.sessions[at as usize].key != NONE);
        let live = live.collect();
        self.fire_in_order(live, watermark, emit)
    }

    fn fire_in_order<E>(
        &mut self,
        mut due: Vec<u32>,
        watermark: Watermark,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        due.sort_unstable_by(|&a, &b| {
            let place = |at: u32| {
                let session = &self.sessions[at as usize];
                (session.window.end, session.window.start, self.keys.key(session.key))
            };
            place(a).cmp(&place(b))
        });
        for at in due {
            self.fire(at, watermark, emit)?;
        }
        Ok(())
    }
}
