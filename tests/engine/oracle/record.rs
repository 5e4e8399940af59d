//! The record profile: each record is handled with the watermark as it was before it.

use std::collections::{BTreeMap, BTreeSet};

use super::watermark::Watermarks;
use super::{Contents, Emitted, Event, Key, Late, Mode, Observed, Op, Pane, Row, Rule, Settings, Trigger};

/// Panes by end, then start, then key: the order in which they fire.
type PaneId = (i64, i64, Key);

/// What becomes due at an instant, in the order in which it happens there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Closing,
    Early,
    Expiry,
}

#[derive(Default)]
struct State {
    contents: Contents,
    /// Records since the last firing.
    counted: u64,
    /// The next multiple of event time at which it fires early.
    next_early: Option<i128>,
}

impl State {
    /// Takes in another session of the same key.
    fn join(&mut self, other: Self) {
        self.contents.append(other.contents);
        self.counted += other.counted;
        self.next_early = match (self.next_early, other.next_early) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
}

pub(super) struct Records {
    settings: Settings,
    watermarks: Watermarks,
    panes: BTreeMap<PaneId, State>,
    fired_on_time: BTreeSet<PaneId>,
    /// The multiple of processing time that the early and the late rule wait for.
    clock: [Option<i64>; 2],
    /// The row last emitted of each pane, as long as nothing took it back.
    table: BTreeMap<PaneId, Row>,
    /// Ids seen, with the instant from which they cannot come again.
    ids: BTreeMap<String, i128>,
    at: usize,
}

impl Records {
    pub(super) fn new(settings: &Settings) -> Self {
        let watermarks = Watermarks::new(settings.delay_ms, settings.idle_timeout_ms, settings.partitions);
        Self {
            settings: settings.clone(),
            watermarks,
            panes: BTreeMap::new(),
            fired_on_time: BTreeSet::new(),
            clock: [None; 2],
            table: BTreeMap::new(),
            ids: BTreeMap::new(),
            at: 0,
        }
    }

    pub(super) fn watermark(&self) -> Option<i64> {
        self.watermarks.current()
    }

    pub(super) fn apply(&mut self, at: usize, op: &Op, seen: &mut Observed) {
        self.at = at;
        match op {
            Op::Event(event) => self.event(event, seen),
            Op::Tick { now_ms, backlog } => {
                self.moving(seen, |watermarks| watermarks.tick(*now_ms, backlog));
                self.clock_moves(seen);
            }
            Op::EndOfInput => self.moving(seen, Watermarks::end),
            Op::EndOfPartition(partition) => {
                self.moving(seen, |watermarks| watermarks.end_partition(*partition));
                // The end of all is the end of time.
                if self.watermarks.all_ended() {
                    self.moving(seen, Watermarks::end);
                }
            }
            Op::PartitionAdded(_) => self.watermarks.add(),
            // The end of a batch is nothing here, and what belongs to one process must not show.
            Op::BatchEnd | Op::Checkpoint | Op::Kill | Op::ForceCompaction => {}
        }
    }

    pub(super) fn state(&self) -> Vec<Row> {
        let held = self.panes.iter().filter(|(_, state)| !state.contents.is_empty());
        held.map(|((end, start, key), state)| state.contents.row(key, (*start, *end))).collect()
    }

    /// What a reader holds who applies each row to a table, taking back what is taken back.
    pub(super) fn table(&self) -> Vec<Row> {
        self.table.values().cloned().collect()
    }

    /// True when the watermark has reached `instant`; an instant past 64 bits is never reached.
    fn reached(&self, instant: i128) -> bool {
        let watermark = self.watermarks.current().map(i128::from);
        instant <= i128::from(i64::MAX) && watermark.is_some_and(|watermark| instant <= watermark)
    }

    fn expired(&self, end: i64) -> bool {
        self.reached(i128::from(end) - 1 + i128::from(self.settings.allowed_lateness_ms))
    }

    fn event(&mut self, event: &Event, seen: &mut Observed) {
        let (ts, key) = match (event.ts, &event.key) {
            (None, _) => return seen.reject(self.at, "null_timestamp"),
            (_, None) => return seen.reject(self.at, "null_key"),
            (Some(ts), Some(key)) => (ts, key),
        };
        if let Some(reason) = self.unbelievable(ts) {
            return seen.reject(self.at, reason);
        }
        let Some(windows) = self.settings.windows.of(ts) else {
            return seen.reject(self.at, "timestamp_out_of_range");
        };
        if !self.repeated(event, ts) {
            let accepted = if self.settings.windows.is_session() {
                self.join_session(windows[0], key, event, seen)
            } else {
                self.add(&windows, key, event, seen)
            };
            if !accepted && self.reached(i128::from(ts) + i128::from(self.settings.allowed_lateness_ms)) {
                seen.late.push(Late { at: self.at, ts, key: key.clone(), window: None });
            }
        }
        self.moving(seen, |watermarks| watermarks.observe(event.partition, ts));
    }

    fn unbelievable(&self, ts: i64) -> Option<&'static str> {
        let bounds = self.settings.bounds;
        let ahead = |max| i128::from(ts) > i128::from(self.watermarks.now_ms()) + i128::from(max);
        if bounds.min_ms.is_some_and(|min| ts < min) {
            Some("timestamp_too_old")
        } else if bounds.max_ahead_ms.is_some_and(ahead) {
            Some("timestamp_too_far_ahead")
        } else {
            None
        }
    }

    fn repeated(&mut self, event: &Event, ts: i64) -> bool {
        let Some(id) = event.id.as_ref().filter(|_| self.settings.dedupe) else { return false };
        if self.ids.contains_key(id) {
            return true;
        }
        let until = i128::from(ts) + i128::from(self.settings.delay_ms);
        // An id that can be forgotten at once is not remembered.
        if !self.reached(until - 1) {
            self.ids.insert(id.clone(), until);
        }
        false
    }

    /// Adds the record to those of its windows that are not past; true if there was one.
    fn add(&mut self, windows: &[(i64, i64)], key: &Key, event: &Event, seen: &mut Observed) -> bool {
        let mut accepted = false;
        for &(start, end) in windows {
            if self.expired(end) {
                continue;
            }
            accepted = true;
            let id = (end, start, key.clone());
            self.panes.entry(id.clone()).or_default().contents.push(event.value);
            self.after_record(&id, event, seen);
        }
        accepted
    }

    /// Joins the record with every session of its key that it overlaps or touches; true if the result is not past.
    fn join_session(
        &mut self,
        (mut start, mut end): (i64, i64),
        key: &Key,
        event: &Event,
        seen: &mut Observed,
    ) -> bool {
        let touches = |id: &&PaneId| id.2 == *key && id.1 <= end && id.0 >= start;
        let touched: Vec<PaneId> = self.panes.keys().filter(touches).cloned().collect();
        for id in &touched {
            (start, end) = (start.min(id.1), end.max(id.0));
        }
        if self.expired(end) {
            return false;
        }
        let mut joined = State::default();
        for id in &touched {
            joined.join(self.panes.remove(id).unwrap());
            self.table.remove(id);
        }
        joined.contents.push(event.value);
        let id = (end, start, key.clone());
        self.panes.insert(id.clone(), joined);
        self.after_record(&id, event, seen);
        true
    }

    /// What a record that was just added makes its pane do.
    fn after_record(&mut self, id: &PaneId, event: &Event, seen: &mut Observed) {
        let closed = self.reached(i128::from(id.0) - 1);
        let state = self.panes.get_mut(id).unwrap();
        state.counted += 1;
        let trigger = self.settings.trigger;
        let waits = matches!(trigger.early(), Rule::Clock(_));
        let fires = match (self.settings.mode, if closed { trigger.late() } else { trigger.early() }) {
            // In update mode the early rule is the only one.
            (Mode::Update, _) if waits => false,
            (Mode::Update | Mode::Complete, _) | (Mode::Append, Rule::Each) => true,
            (Mode::Append, Rule::Count(n)) => state.counted >= n,
            (Mode::Append, Rule::EventTime(interval)) => {
                if state.next_early.is_none() {
                    state.next_early = event.ts.map(|ts| next_multiple(ts, interval));
                }
                false
            }
            (Mode::Append, Rule::Never | Rule::Clock(_)) => false,
        };
        if fires {
            self.fire(id, seen);
        }
    }

    /// Lets the watermark move, fires what is due in the order of the instants at which it is, and forgets what has
    /// expired.
    fn moving(&mut self, seen: &mut Observed, how: impl FnOnce(&mut Watermarks)) {
        let before = self.watermarks.current();
        how(&mut self.watermarks);
        let after = self.watermarks.current();
        if after == before {
            return;
        }
        let mut due: Vec<(i128, Due, PaneId)> = Vec::new();
        if self.settings.mode == Mode::Append {
            self.due_at_closing(before, &mut due);
            self.due_early(&mut due);
        }
        self.due_if_changed(before, &mut due);
        due.sort();
        for (_, what, id) in due {
            // Closing fires whatever has happened, in append mode; so does an early multiple.
            let always = self.settings.mode == Mode::Append && what != Due::Expiry;
            if always || self.panes[&id].counted > 0 {
                self.fire(&id, seen);
            }
        }
        while let Some(first) = self.panes.keys().next().cloned() {
            if !self.expired(first.0) {
                break;
            }
            self.panes.remove(&first);
        }
        let after = after.map_or(i128::MIN, i128::from);
        self.ids.retain(|_, until| *until > after + 1);
    }

    fn due_at_closing(&self, before: Option<i64>, due: &mut Vec<(i128, Due, PaneId)>) {
        if matches!(self.settings.trigger, Trigger::Count(_)) {
            return;
        }
        for id in self.panes.keys() {
            let closes = i128::from(id.0) - 1;
            if !self.reached(closes) {
                break;
            }
            if before.is_none_or(|before| closes > before.into()) {
                due.push((closes, Due::Closing, id.clone()));
            }
        }
    }

    /// Panes whose rules may have kept records waiting: until they expire, and in update mode until they close.
    fn due_if_changed(&self, before: Option<i64>, due: &mut Vec<(i128, Due, PaneId)>) {
        let trigger = self.settings.trigger;
        let update = match self.settings.mode {
            Mode::Update if matches!(trigger.early(), Rule::Clock(_)) => true,
            Mode::Append if matches!(trigger, Trigger::Composite { .. }) => false,
            _ => return,
        };
        let lateness = i128::from(self.settings.allowed_lateness_ms);
        for id in self.panes.keys() {
            let closes = i128::from(id.0) - 1;
            let (closing, expiry) =
                ((closes, Due::Closing, update), (closes + lateness, Due::Expiry, lateness > 0));
            for (instant, what, waits) in [closing, expiry] {
                let news = before.is_none_or(|before| instant > before.into());
                if waits && news && self.reached(instant) {
                    due.push((instant, what, id.clone()));
                }
            }
        }
    }

    /// Processing time has moved: a multiple of it that is reached makes panes fire that have changed. The first
    /// multiple is the one after the first tick.
    fn clock_moves(&mut self, seen: &mut Observed) {
        let now = self.watermarks.now_ms();
        let trigger = self.settings.trigger;
        for (at, rule) in [trigger.early(), trigger.late()].into_iter().enumerate() {
            let Rule::Clock(interval) = rule else { continue };
            let reached = self.clock[at].is_some_and(|next| next <= now);
            if reached || self.clock[at].is_none() {
                self.clock[at] = Some(now - now.rem_euclid(interval) + interval);
            }
            if !reached || (self.settings.mode == Mode::Update && at == 1) {
                continue;
            }
            let of_rule = |id: &PaneId| {
                self.settings.mode == Mode::Update || self.reached(i128::from(id.0) - 1) == (at == 1)
            };
            let changed = self.panes.iter().filter(|(id, state)| state.counted > 0 && of_rule(id));
            for id in changed.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
                self.fire(&id, seen);
            }
        }
    }

    fn due_early(&mut self, due: &mut Vec<(i128, Due, PaneId)>) {
        let Rule::EventTime(interval) = self.settings.trigger.early() else { return };
        let watermark = self.watermarks.current().map_or(i128::MIN, i128::from);
        for (id, state) in &mut self.panes {
            while let Some(next) = state.next_early.filter(|next| *next <= watermark) {
                // From the closing on there is nothing early any more; a session may still be given a later end.
                if next >= i128::from(id.0) - 1 {
                    break;
                }
                due.push((next, Due::Early, id.clone()));
                state.next_early = Some(next + i128::from(interval));
            }
        }
    }

    fn fire(&mut self, id: &PaneId, seen: &mut Observed) {
        let closed = self.reached(i128::from(id.0) - 1);
        let (end, start, key) = id;
        let state = self.panes.get_mut(id).unwrap();
        state.counted = 0;
        if state.contents.is_empty() {
            return;
        }
        let row = state.contents.row(key, (*start, *end));
        self.table.insert(id.clone(), row.clone());
        if self.settings.discarding {
            state.contents.clear();
        }
        let pane = match closed {
            false => Pane::Early,
            true if self.fired_on_time.insert(id.clone()) => Pane::OnTime,
            true => Pane::Late,
        };
        let watermark = match self.watermarks.current() {
            None => Some(i64::MIN),
            Some(i64::MAX) => None,
            set => set,
        };
        seen.emits.push(Emitted { at: self.at, watermark, row, pane: Some(pane) });
    }
}

/// The first multiple of `interval` after `ts`.
fn next_multiple(ts: i64, interval: i64) -> i128 {
    let (ts, interval) = (i128::from(ts), i128::from(interval));
    ts - ts.rem_euclid(interval) + interval
}

#[test]
fn an_event_so_late_that_its_id_can_be_forgotten_is_not_remembered() {
    let mut settings = Settings::new(super::Windows::Global);
    (settings.delay_ms, settings.dedupe) = (2, true);
    let event = |ts: i64, id: &str| {
        let (key, value) = (Some(b"k".to_vec()), None);
        Op::Event(Event { ts: Some(ts), key, value, partition: 0, id: Some(id.to_owned()) })
    };
    let count = |ops: &[Op]| super::Oracle::run(&settings, ops).unwrap().state.unwrap()[0].count;
    assert_eq!(count(&[event(10, "a"), event(7, "b"), event(7, "b")]), 2);
    assert_eq!(count(&[event(10, "a"), event(6, "b"), event(6, "b")]), 3);
}
