//! Sessions: windows that each key has for itself, which grow with its events and join where they touch.
//!
//! This file places events, joins, and moves sessions to the state database and back; `session_time` fires and
//! forgets. All live sessions are in memory: where a session ends is known there only.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::OpenWindow;
use super::rows::Rows;
use super::spill::{Ends, SpillKind, Spilled};
use crate::aggregate::{Layout, Touch};
use crate::event_time::{EventTime, Span, Watermark, Window};
use crate::operator::fire::{HISTORY_WORDS, History};
use crate::operator::step::FiringStep;
use crate::operator::table::{PaneTable, hash_keys, key_hash};
use crate::operator::{
    Advance, Emit, EventBatch, LateEvent, Marks, Mode, OperatorSpec, Repeat, RowBuffer, RowKind, TimeDomain,
};

/// No session.
pub(super) const NONE: u32 = u32::MAX;
/// Events whose places in the table of keys are looked up ahead.
const WARMED_EVENTS: usize = 64;
/// Keys without a session are cleared away once there are so many, and as many as keys with one.
const IDLE_KEYS_MIN: usize = 4_096;

/// A live session. Its words are at the same index of `SessionOperator::words`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session {
    /// Row of its key in `SessionOperator::keys`; `NONE` in a vacant place.
    pub(super) key: u32,
    /// The next session of the same key.
    pub(super) next: u32,
    pub(super) window: Window,
    /// The watermark has passed its end.
    pub(super) closed: bool,
    /// When it is looked at next; never later than something is due.
    pub(super) timer: EventTime,
    /// The end under which the state database holds it.
    stored: Option<EventTime>,
    dirty: bool,
    /// Waits to be emitted with others.
    pub(super) waits: bool,
    /// Tells sessions apart that used the same place.
    pub(super) generation: u32,
}

/// A windowed aggregation over sessions.
#[derive(Debug)]
pub(super) struct SessionOperator {
    pub(super) index: usize,
    pub(super) spec: OperatorSpec,
    pub(super) gap: Span,
    // With a word for the start of the session, and the history words of a pane that may fire more than once.
    pub(super) layout: Arc<Layout>,
    pub(super) fires_once: bool,
    // How far the watermark has come here.
    pub(super) watermark: Watermark,
    pub(super) step: FiringStep,
    // What has expired under this is gone, also where the watermark alone would not say so.
    pub(super) forgotten: Watermark,
    pub(super) now: EventTime,
    pub(super) intervals: [Option<EventTime>; 2],
    gathers: bool,
    // From user key to its first session.
    pub(super) keys: PaneTable,
    idle_keys: usize,
    pub(super) sessions: Vec<Session>,
    pub(super) rows: Rows,
    vacant: Vec<u32>,
    dirty: Vec<u32>,
    // Rows in the state database that no session stands for any more.
    deleted: Vec<(EventTime, Vec<u8>)>,
    // (when, session, its generation); an entry whose session has another timer counts for nothing.
    pub(super) timers: BinaryHeap<Reverse<(EventTime, u32, u32)>>,
    // Sessions that changed and wait to be emitted together.
    pub(super) changed: Vec<(u32, u32)>,
    hashes: Vec<u64>,
    touches: Vec<Touch>,
}

impl SessionOperator {
    pub(super) fn new(index: usize, spec: OperatorSpec, gap: Span) -> Self {
        let layout = Arc::new(spec.layout());
        Self {
            index,
            gap,
            rows: Rows::new(&layout),
            layout,
            fires_once: spec.fires_once(),
            gathers: spec.gathers_changes(),
            spec,
            watermark: Watermark::None,
            step: FiringStep::default(),
            forgotten: Watermark::None,
            now: EventTime::MIN,
            intervals: [None; 2],
            keys: new_keys(),
            idle_keys: 0,
            sessions: Vec::new(),
            vacant: Vec::new(),
            dirty: Vec::new(),
            deleted: Vec::new(),
            timers: BinaryHeap::new(),
            changed: Vec::new(),
            hashes: Vec::new(),
            touches: Vec::new(),
        }
    }

    /// Where a stored row keeps the start of its session.
    fn start_word(&self) -> usize {
        self.layout.stride() - 1 - if self.fires_once { 0 } else { HISTORY_WORDS }
    }

    pub(super) fn start_of(&self, words: &[u64]) -> EventTime {
        EventTime::from_millis(words.get(self.start_word()).copied().unwrap_or(0) as i64)
    }

    pub(super) fn bytes_per_pane(&self, key_bytes: usize) -> usize {
        PaneTable::bytes_per_row(2, key_bytes) + self.layout.stride() * 8 + size_of::<Session>() + 24
    }

    pub(super) fn reaches(&self, time: EventTime) -> bool {
        self.spec.time == TimeDomain::Processing || self.spec.windows.reaches(time)
    }

    pub(super) fn open_windows(&self) -> Vec<OpenWindow> {
        let live = self.sessions.iter().filter(|session| session.key != NONE);
        let mut open: Vec<OpenWindow> =
            live.map(|session| OpenWindow { window: session.window, resident: 1, complete: true }).collect();
        open.sort_unstable_by_key(|open| (open.window.end, open.window.start));
        open
    }

    pub(super) fn resident_panes(&self) -> usize {
        self.sessions.len() - self.vacant.len()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.keys.bytes()
            + self.sessions.capacity() * size_of::<Session>()
            + self.rows.bytes()
            + self.timers.capacity() * size_of::<(EventTime, u32, u32)>()
    }

    /// Bytes that its tables are about to take.
    pub(super) fn growth_bytes(&self) -> usize {
        self.keys.growth_bytes()
    }

    /// True when a session ending at `end` takes no more events.
    pub(super) fn expired(&self, end: EventTime, watermark: Watermark) -> bool {
        let expired = |by: Watermark| by.expired(end, self.spec.allowed_lateness);
        self.spec.mode != Mode::Complete && (expired(watermark) || expired(self.forgotten))
    }

    /// Processes a batch, event by event in arrival order, each against the watermark it meets.
    pub(super) fn process<E>(
        &mut self,
        batch: &EventBatch,
        marks: &Marks,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        let follows_events = self.spec.time == TimeDomain::Event && self.spec.advance == Advance::Event;
        if !self.spec.reads(batch.source) {
            return if follows_events { self.pass_over(batch, marks, emit) } else { Ok(()) };
        }
        let keys = &batch.keys[self.spec.key_column];
        let mut hashes = std::mem::take(&mut self.hashes);
        hash_keys(keys, &mut hashes);
        let mut skipped = marks.skipped();
        for (index, &hash) in hashes.iter().enumerate() {
            if let [next, rest @ ..] = skipped
                && *next as usize == index
            {
                skipped = rest;
                self.follow(batch, marks, index, emit)?;
                continue;
            }
            if index % WARMED_EVENTS == 0 {
                self.keys.warm(&hashes[index..hashes.len().min(index + WARMED_EVENTS)]);
            }
            let time = match self.spec.time {
                TimeDomain::Event => EventTime::from_millis(batch.times[index]),
                TimeDomain::Processing => self.now,
            };
            let before = if follows_events { marks.before(index) } else { self.watermark };
            self.place(batch, index, (keys.get(index), hash), time, before, emit)?;
            self.follow(batch, marks, index, emit)?;
        }
        self.settle(batch);
        self.hashes = hashes;
        if follows_events {
            self.note_watermark(marks.last());
        }
        Ok(())
    }

    /// Lets the watermark reach what event `index` has moved it to, whether or not the event counts here.
    #[inline]
    fn follow<E>(
        &mut self,
        batch: &EventBatch,
        marks: &Marks,
        index: usize,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        let follows_events = self.spec.time == TimeDomain::Event && self.spec.advance == Advance::Event;
        let after = marks.after(index);
        if follows_events && after > marks.before(index) && self.is_due(after) {
            self.settle(batch);
            self.advance(after, emit)?;
        }
        Ok(())
    }

    /// Takes the watermark of a batch and none of its events.
    fn pass_over<E>(
        &mut self,
        batch: &EventBatch,
        marks: &Marks,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        for index in 0..batch.len() {
            let after = marks.after(index);
            if after > marks.before(index) && self.is_due(after) {
                self.advance(after, emit)?;
            }
        }
        self.note_watermark(marks.last());
        Ok(())
    }

    /// The watermark after a batch, unless what it makes due waits for the next step.
    fn note_watermark(&mut self, last: Watermark) {
        if self.step.target() <= self.watermark {
            self.watermark = self.watermark.max(last);
        }
    }

    /// Adds an event to the session that it falls into, extends, joins or opens.
    fn place<E>(
        &mut self,
        batch: &EventBatch,
        index: usize,
        (key, hash): (&[u8], u64),
        time: EventTime,
        before: Watermark,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        let own = Window { start: time, end: time.saturating_add(self.gap) };
        // By batches the event's own interval is tested; else the one that it is part of, which cannot be late when
        // there is a live session to join.
        if self.spec.advance == Advance::Batch && self.expired(own.end, before) {
            return self.emit_late(batch, index, own, before, emit);
        }
        let (key_row, new_key) = self.keys.find_or_insert(key, hash);
        self.idle_keys += usize::from(new_key);
        let (mut into, window) = match self.only_session(key_row, own) {
            Some(only) => only,
            None => {
                let (touched, window) = self.touched_by(key_row, own);
                if self.spec.retractions {
                    self.take_back(&touched, window, batch, before, emit)?;
                }
                for &absorbed in touched.iter().skip(1) {
                    self.join(touched[0], absorbed, batch);
                }
                (touched.first().copied().unwrap_or(NONE), window)
            }
        };
        if into == NONE {
            if self.expired(own.end, before) {
                return self.emit_late(batch, index, own, before, emit);
            }
            into = self.open(key_row, own, before);
        } else if self.sessions[into as usize].window != window {
            self.resize(into, window, before);
        }
        self.mark_dirty(into);
        self.touches.push(Touch { row: into, event: index as u32 });
        if self.fires_once { Ok(()) } else { self.after_event(into, batch, time, before, emit) }
    }

    /// The one session of a key and what it becomes with an interval, in the common case: no other session, nothing to
    /// take back.
    #[inline]
    fn only_session(&self, key: u32, own: Window) -> Option<(u32, Window)> {
        let only = self.first_of(key);
        let session = self.sessions.get(only as usize).filter(|_| !self.spec.retractions)?;
        let touches = session.window.start <= own.end && own.start <= session.window.end;
        if session.next != NONE || !touches {
            return None;
        }
        let start = session.window.start.min(own.start);
        Some((only, Window { start, end: session.window.end.max(own.end) }))
    }

    /// The sessions of a key that an interval overlaps or touches, by start, and the window that they make together.
    fn touched_by(&self, key: u32, own: Window) -> (Vec<u32>, Window) {
        let (mut touched, mut window) = (Vec::new(), own);
        let mut at = self.first_of(key);
        while at != NONE {
            let session = &self.sessions[at as usize];
            if session.window.start <= own.end && own.start <= session.window.end {
                window.start = window.start.min(session.window.start);
                window.end = window.end.max(session.window.end);
                touched.push(at);
            }
            at = session.next;
        }
        // In which order they are linked is another after a restart.
        touched.sort_unstable_by_key(|&at| self.sessions[at as usize].window.start);
        (touched, window)
    }

    /// Takes back the last results of sessions that an event is about to change.
    fn take_back<E>(
        &mut self,
        touched: &[u32],
        window: Window,
        batch: &EventBatch,
        watermark: Watermark,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        self.settle(batch);
        for &at in touched {
            if History::of(self.rows.words(at)).pane_index == 0 {
                continue;
            }
            let same = self.sessions[at as usize].window == window;
            let kind = if same { RowKind::UpdateBefore } else { RowKind::Delete };
            self.emit_session(at, watermark, Some(kind), emit)?;
        }
        Ok(())
    }

    pub(super) fn first_of(&self, key: u32) -> u32 {
        self.keys.words(key).last().map_or(NONE, |&first| first as u32)
    }

    fn open(&mut self, key: u32, window: Window, watermark: Watermark) -> u32 {
        let next = self.first_of(key);
        self.idle_keys -= usize::from(next == NONE);
        let fresh = Session {
            key,
            next,
            window,
            closed: watermark.closed(window.end),
            timer: EventTime::MAX,
            stored: None,
            dirty: false,
            waits: false,
            generation: 0,
        };
        let at = match self.vacant.pop() {
            Some(at) => {
                let generation = self.sessions[at as usize].generation.wrapping_add(1);
                self.sessions[at as usize] = Session { generation, ..fresh };
                self.rows.clear(at);
                at
            }
            None => {
                self.sessions.push(fresh);
                self.rows.push();
                self.sessions.len() as u32 - 1
            }
        };
        self.set_first(key, at);
        self.plan(at);
        at
    }

    fn set_first(&mut self, key: u32, first: u32) {
        if let [.., word] = self.keys.words_mut(key) {
            *word = u64::from(first);
        }
    }

    /// Moves what `from` holds into `into`, which gets the bounds of both from the caller.
    fn join(&mut self, into: u32, from: u32, batch: &EventBatch) {
        self.settle(batch);
        self.rows.merge(into, from);
        if !self.fires_once {
            let absorbed = History::of(self.rows.words(from));
            let mut history = History::of(self.rows.words(into));
            history.since_fire = history.since_fire.saturating_add(absorbed.since_fire);
            history.next_boundary = match (history.next_boundary, absorbed.next_boundary) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            history.store(self.rows.words_mut(into));
        }
        self.forget(from);
    }

    /// Gives a session other bounds: it is another window now, which never fired.
    fn resize(&mut self, at: u32, window: Window, watermark: Watermark) {
        let stored = self.sessions[at as usize].stored;
        if stored.is_some_and(|end| end != window.end) {
            self.delete_stored(at);
        }
        let session = &mut self.sessions[at as usize];
        session.window = window;
        session.closed = watermark.closed(window.end);
        if !self.fires_once {
            let words = self.rows.words_mut(at);
            let mut history = History::of(words);
            history.pane_index = 0;
            history.fired_on_time = false;
            history.store(words);
            self.plan(at);
        }
    }

    /// Notes that the state database holds a row for `at` that no longer stands for anything.
    fn delete_stored(&mut self, at: u32) {
        if let Some(end) = self.sessions[at as usize].stored.take() {
            let key = self.keys.key(self.sessions[at as usize].key).to_vec();
            self.deleted.push((end, key));
        }
    }

    /// Takes a session out of memory; its row in the state database goes as well.
    fn forget(&mut self, at: u32) {
        self.delete_stored(at);
        self.release(at);
    }

    /// Takes a session out of memory.
    pub(super) fn release(&mut self, at: u32) {
        let Session { key, next, .. } = self.sessions[at as usize];
        let first = self.first_of(key);
        if first == at {
            self.set_first(key, next);
            self.idle_keys += usize::from(next == NONE);
        } else {
            let mut before = first;
            while before != NONE && self.sessions[before as usize].next != at {
                before = self.sessions[before as usize].next;
            }
            if before != NONE {
                self.sessions[before as usize].next = next;
            }
        }
        let session = &mut self.sessions[at as usize];
        session.key = NONE;
        session.dirty = false;
        session.waits = false;
        session.timer = EventTime::MAX;
        self.vacant.push(at);
    }

    /// Forgets keys without sessions once they are many.
    pub(super) fn forget_idle_keys(&mut self) {
        if self.idle_keys < IDLE_KEYS_MIN || self.idle_keys * 2 < self.keys.len() {
            return;
        }
        let old = std::mem::replace(&mut self.keys, new_keys());
        for row in 0..old.len() as u32 {
            let first = old.words(row).last().map_or(NONE, |&first| first as u32);
            if first == NONE {
                continue;
            }
            let key = old.key(row);
            let (moved, _) = self.keys.find_or_insert(key, key_hash(key));
            self.set_first(moved, first);
            let mut at = first;
            while at != NONE {
                self.sessions[at as usize].key = moved;
                at = self.sessions[at as usize].next;
            }
        }
        self.idle_keys = 0;
    }

    #[inline]
    pub(super) fn mark_dirty(&mut self, at: u32) {
        let session = &mut self.sessions[at as usize];
        if !session.dirty {
            session.dirty = true;
            self.dirty.push(at);
        }
    }

    /// Adds the touched events to their sessions.
    pub(super) fn settle(&mut self, batch: &EventBatch) {
        if !self.touches.is_empty() {
            self.rows.update(&self.touches, batch);
            self.touches.clear();
        }
    }

    #[cold]
    fn emit_late<E>(
        &self,
        batch: &EventBatch,
        index: usize,
        window: Window,
        watermark: Watermark,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        let limit = window.end.saturating_add(self.spec.allowed_lateness);
        let behind = |now: EventTime| now.as_millis().saturating_sub(limit.as_millis());
        let late_by_ms = watermark.instant().map_or(i64::MAX, behind).max(0);
        emit.late(self.index, LateEvent { batch, index, window, watermark, late_by_ms })
    }

    /// What one accepted event sets off in an operator whose panes may fire more than once.
    fn after_event<E>(
        &mut self,
        at: u32,
        batch: &EventBatch,
        time: EventTime,
        watermark: Watermark,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        let Session { closed, waits, generation, .. } = self.sessions[at as usize];
        let mut history = History::of(self.rows.words(at));
        history.since_fire = history.since_fire.saturating_add(1);
        let repeat = if closed { self.spec.trigger.late() } else { self.spec.trigger.early() };
        let mut plans = false;
        let fires = match (self.spec.mode, repeat) {
            (Mode::Complete, _) => false,
            (Mode::Update, _) if self.gathers => false,
            (Mode::Update, _) | (Mode::Append, Repeat::Each) => true,
            (Mode::Append, Repeat::Count(n)) => history.since_fire >= n,
            (Mode::Append, Repeat::EventTime(interval)) => {
                if history.next_boundary.is_none() {
                    history.next_boundary = super::next_multiple(time, interval);
                    plans = true;
                }
                false
            }
            (Mode::Append, Repeat::Never | Repeat::Interval(_)) => false,
        };
        history.store(self.rows.words_mut(at));
        if plans {
            self.plan(at);
        }
        if fires {
            self.settle(batch);
            return self.fire(at, watermark, emit);
        }
        if self.gathers && !waits {
            self.sessions[at as usize].waits = true;
            self.changed.push((at, generation));
        }
        Ok(())
    }

    /// Copies out everything that the state database does not have yet.
    pub(super) fn spill_dirty(&mut self) -> Vec<Spilled> {
        let mut spilled = Vec::new();
        if !self.deleted.is_empty() {
            let mut rows = RowBuffer::new(&self.layout);
            let mut ends = Vec::with_capacity(self.deleted.len());
            for (end, key) in self.deleted.drain(..) {
                ends.push(end);
                rows.push_identity(&key);
            }
            spilled.push(Spilled { ends: Ends::Each(ends), kind: SpillKind::Delete, rows });
        }
        let dirty = std::mem::take(&mut self.dirty);
        let mut rows = RowBuffer::new(&self.layout);
        let mut ends = Vec::with_capacity(dirty.len());
        for at in dirty {
            let Session { key, window, dirty, .. } = self.sessions[at as usize];
            if !dirty {
                continue;
            }
            let start = self.start_word();
            self.rows.words_mut(at)[start] = window.start.as_millis() as u64;
            rows.push(self.keys.key(key), self.rows.get(at));
            ends.push(window.end);
            let session = &mut self.sessions[at as usize];
            session.dirty = false;
            session.stored = Some(window.end);
        }
        if !rows.is_empty() {
            spilled.push(Spilled { ends: Ends::Each(ends), kind: SpillKind::Put, rows });
        }
        spilled
    }

    pub(super) fn restore(&mut self, watermark: Watermark) {
        self.watermark = watermark;
    }

    /// Takes up the sessions ending at `end` that a checkpoint holds.
    pub(super) fn restore_sessions(&mut self, end: EventTime, rows: Option<&RowBuffer>) {
        let Some(rows) = rows else { return };
        for index in 0..rows.len() {
            let (key, row) = (rows.key(index), rows.row(index));
            let (key_row, new_key) = self.keys.find_or_insert(key, key_hash(key));
            self.idle_keys += usize::from(new_key);
            let window = Window { start: self.start_of(row.words()), end };
            let at = self.open(key_row, window, self.watermark);
            self.rows.get_mut(at).assign(row);
            self.sessions[at as usize].stored = Some(end);
            self.plan(at);
            if self.gathers && History::of(row.words()).since_fire > 0 {
                let session = &mut self.sessions[at as usize];
                session.waits = true;
                let generation = session.generation;
                self.changed.push((at, generation));
            }
        }
    }
}

/// A table from key to its first session.
fn new_keys() -> PaneTable {
    let layout = Arc::new(Layout::with_extra(&[], &[u64::from(NONE)]));
    // One worker, so that rows are numbered from 0 on.
    PaneTable::new(Window::ALL, &layout, true, 1)
}
