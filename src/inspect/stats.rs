//! What a checkpoint's state is made of: by window, by beginning of the key, the largest panes, sessions, and what is due
//! when. One scan, in bounded memory.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::path::Path;

use serde::Serialize;

use crate::error::Result;
use crate::event_time::{EventTime, Span, Window};
use crate::inspect::choice::with_checkpoint;
use crate::inspect::key::Key;
use crate::inspect::listing::{PaneTotals, StatusTotals};
use crate::inspect::scan::{Counter, PaneFilter, Seen, Watcher, each_pane};
use crate::inspect::shape::{OpenState, Shape};
use crate::inspect::status::{Standing, WindowStatus, last_end};
use crate::inspect::text::{as_optional_text, as_text};
use crate::inspect::top::TopCounter;
use crate::inspect::windows::{Origin, origin};

/// What the state of a checkpoint is made of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StatsReport {
    /// The checkpoint.
    pub checkpoint: Origin,
    /// By operator.
    pub operators: Vec<OperatorStats>,
}

/// What the state of one operator is made of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperatorStats {
    /// Its name.
    pub name: String,
    /// Its windows, in words.
    pub windows: String,
    /// Names of its key fields.
    pub key: Vec<String>,
    /// All its panes by status.
    pub totals: StatusTotals,
    /// Bytes of the files of its family, by the manifest.
    pub file_bytes: u64,
    /// The windows, or slices, with the most bytes. None for sessions, which each key has for itself.
    pub largest_windows: Vec<WindowStats>,
    /// The panes with the most bytes.
    pub largest_panes: Vec<PaneStats>,
    /// The beginnings of keys with the most bytes, in live panes.
    pub prefixes: Vec<PrefixStats>,
    /// Characters of the first key field that make a beginning.
    pub prefix_chars: usize,
    /// By how many bytes a beginning may be too low; zero unless there are more than a million of them.
    pub prefix_bytes_missed_max: u64,
    /// Of windows that are sessions.
    pub sessions: Option<SessionStats>,
    /// What is due when the watermark gets there.
    pub timers: Timers,
}

/// One window with all its panes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WindowStats {
    /// First instant inside.
    #[serde(serialize_with = "as_text")]
    pub start: EventTime,
    /// First instant after.
    #[serde(serialize_with = "as_text")]
    pub end: EventTime,
    /// Where it stands.
    pub status: WindowStatus,
    /// Its panes.
    pub panes: PaneTotals,
}

/// One large pane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PaneStats {
    /// Its key.
    pub key: Key,
    /// First instant of its window.
    #[serde(serialize_with = "as_text")]
    pub start: EventTime,
    /// First instant after it.
    #[serde(serialize_with = "as_text")]
    pub end: EventTime,
    /// Where it stands.
    pub status: WindowStatus,
    /// Bytes of key and value, before compression.
    pub bytes: u64,
    /// Its events; absent when it cannot be read.
    pub events: Option<u64>,
}

/// All keys that begin alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PrefixStats {
    /// The beginning of the first key field.
    pub prefix: Key,
    /// Panes.
    pub panes: u64,
    /// Events in them.
    pub events: u64,
    /// Bytes of keys and values, before compression.
    pub bytes: u64,
}

/// Sessions that have not expired.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SessionStats {
    /// The pause that ends one.
    #[serde(serialize_with = "as_text")]
    pub gap: Span,
    /// How many there are.
    pub sessions: u64,
    /// Events in them.
    pub events: u64,
    /// The mean length, gap included.
    #[serde(serialize_with = "as_optional_text")]
    pub length_mean: Option<Span>,
    /// The longest, by length.
    pub longest: Vec<PaneStats>,
    /// Start of the earliest one.
    #[serde(serialize_with = "as_optional_text")]
    pub start_min: Option<EventTime>,
}

/// What is due when the watermark gets there. Nothing of it is stored: it follows from the panes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Timers {
    /// Panes that the watermark has still to close.
    pub closings: u64,
    /// The next instants at which panes close.
    pub next_closings: Vec<Timer>,
    /// Panes that have still to expire.
    pub expiries: u64,
    /// The next instants at which panes expire.
    pub next_expiries: Vec<Timer>,
    /// Panes that wait for an early firing at an instant of event time.
    pub early_firings: u64,
    /// The next instants of these.
    pub next_early_firings: Vec<Timer>,
}

/// Something due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Timer {
    /// The watermark at which it is.
    #[serde(serialize_with = "as_text")]
    pub at: EventTime,
    /// Panes that it is due for.
    pub panes: u64,
}

/// How much is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatsOptions {
    /// Windows, panes, beginnings of keys and instants that are named, each.
    pub top: usize,
    /// Characters of the first key field that make a beginning.
    pub prefix_chars: usize,
}

/// What the state of the checkpoint of epoch `at`, or of the newest one under `path`, is made of, as far as `filter`
/// asks for it.
///
/// # Errors
/// [`crate::error::ErrorKind::Invalid`] when there is no such checkpoint, window or key,
/// [`crate::error::ErrorKind::Damaged`] when files cannot be read back,
/// [`crate::error::ErrorKind::Incompatible`] when another version wrote them.
pub fn stats(
    path: &Path,
    at: Option<u64>,
    filter: &PaneFilter,
    options: StatsOptions,
    now_ms: i64,
    watcher: Watcher<'_>,
) -> Result<StatsReport> {
    with_checkpoint(path, at, |chosen| {
        let (open, manifest) = (OpenState::open(&chosen.summary, &chosen.manifest)?, &chosen.manifest);
        let mut counter = Counter::new(manifest, &mut *watcher);
        let mut operators = Vec::new();
        for index in filter.operators(&open)? {
            let mut tally = Tally::new(&open.shapes[index], open.standing(manifest, index), options);
            each_pane(&open, manifest, index, filter, &mut counter, &mut |seen| {
                tally.add(seen);
                Ok(())
            })?;
            let family = &manifest.operators[index].family;
            let own = manifest.files.iter().filter(|file| file.family.as_ref() == Some(family));
            operators.push(tally.finish(own.map(|file| file.bytes).sum()));
        }
        Ok(StatsReport { checkpoint: origin(chosen, now_ms), operators })
    })
}

/// The largest of many, by a measure.
struct Largest<T> {
    top: usize,
    serial: u64,
    heap: BinaryHeap<Reverse<(u64, u64)>>,
    held: BTreeMap<u64, T>,
}

impl<T> Largest<T> {
    fn new(top: usize) -> Self {
        Self { top, serial: 0, heap: BinaryHeap::new(), held: BTreeMap::new() }
    }

    /// Takes in one; `make` is called only where it is among the largest so far. Of equals the first stays.
    fn offer(&mut self, measure: u64, make: impl FnOnce() -> T) {
        if self.heap.len() >= self.top && self.heap.peek().is_none_or(|Reverse((least, _))| measure <= *least)
        {
            return;
        }
        self.serial += 1;
        // Later ones count as smaller, so that they go first.
        self.heap.push(Reverse((measure, u64::MAX - self.serial)));
        self.held.insert(u64::MAX - self.serial, make());
        if self.heap.len() > self.top
            && let Some(Reverse((_, least))) = self.heap.pop()
        {
            self.held.remove(&least);
        }
    }

    fn finish(mut self) -> Vec<T> {
        let mut order: Vec<(u64, u64)> = self.heap.into_iter().map(|Reverse(place)| place).collect();
        order.sort_unstable_by(|a, b| b.cmp(a));
        order.into_iter().filter_map(|(_, serial)| self.held.remove(&serial)).collect()
    }
}

/// The first of many instants, with the number of panes at each.
#[derive(Default)]
struct First {
    top: usize,
    total: u64,
    at: BTreeMap<EventTime, u64>,
}

impl First {
    fn add(&mut self, at: EventTime) {
        self.total += 1;
        *self.at.entry(at).or_default() += 1;
        // What is let go is later than all that stay, and so never comes in again.
        if self.at.len() > self.top {
            self.at.pop_last();
        }
    }

    fn finish(self) -> (u64, Vec<Timer>) {
        (self.total, self.at.into_iter().map(|(at, panes)| Timer { at, panes }).collect())
    }
}

struct Tally<'a> {
    shape: &'a Shape,
    standing: Standing,
    options: StatsOptions,
    totals: StatusTotals,
    current: Option<WindowStats>,
    windows: Largest<WindowStats>,
    panes: Largest<PaneStats>,
    prefixes: TopCounter,
    sessions: SessionTally,
    timers: [First; 3],
}

struct SessionTally {
    count: u64,
    events: u64,
    length_ms: u128,
    longest: Largest<PaneStats>,
    start_min: Option<EventTime>,
}

impl<'a> Tally<'a> {
    fn new(shape: &'a Shape, standing: Standing, options: StatsOptions) -> Self {
        let first = || First { top: options.top, ..First::default() };
        Self {
            shape,
            standing,
            options,
            totals: StatusTotals::default(),
            current: None,
            windows: Largest::new(options.top),
            panes: Largest::new(options.top),
            prefixes: TopCounter::by_bytes(),
            sessions: SessionTally {
                count: 0,
                events: 0,
                length_ms: 0,
                longest: Largest::new(options.top),
                start_min: None,
            },
            timers: [first(), first(), first()],
        }
    }

    fn is_session(&self) -> bool {
        self.shape.spec().windows.session_gap().is_some()
    }

    fn add(&mut self, seen: &Seen<'_>) {
        self.totals.add(seen);
        self.panes.offer(seen.bytes, || pane(self.shape, seen));
        if !self.is_session() {
            self.window(seen);
        }
        if seen.status == WindowStatus::Expired {
            return;
        }
        let events = *seen.events.as_ref().unwrap_or(&0);
        self.prefixes.add_bytes(&prefix(self.shape, seen.key, self.options.prefix_chars), events, seen.bytes);
        if self.is_session() {
            self.session(seen, events);
        }
        self.timers(seen);
    }

    fn window(&mut self, seen: &Seen<'_>) {
        let Window { start, end } = seen.piece;
        if self.current.as_ref().is_none_or(|window| (window.start, window.end) != (start, end)) {
            self.close_window();
        }
        let fresh = || WindowStats { start, end, status: seen.status, panes: PaneTotals::default() };
        self.current.get_or_insert_with(fresh).panes.add(seen);
    }

    fn close_window(&mut self) {
        if let Some(window) = self.current.take() {
            self.windows.offer(window.panes.bytes, || window);
        }
    }

    fn session(&mut self, seen: &Seen<'_>, events: u64) {
        let length = seen.piece.end.as_millis().saturating_sub(seen.piece.start.as_millis());
        let length = u64::try_from(length).unwrap_or(0);
        let pane = pane(self.shape, seen);
        let sessions = &mut self.sessions;
        sessions.count += 1;
        sessions.events = sessions.events.saturating_add(events);
        sessions.length_ms += u128::from(length);
        sessions.start_min = Some(sessions.start_min.map_or(pane.start, |first| first.min(pane.start)));
        sessions.longest.offer(length, || pane);
    }

    fn timers(&mut self, seen: &Seen<'_>) {
        let spec = self.shape.spec();
        let last = last_end(spec, seen.piece);
        if self.standing.endless || last == EventTime::MAX {
            return;
        }
        let [closings, expiries, early] = &mut self.timers;
        // Of a slice the next window that holds it.
        let reached = self.standing.fired.instant().unwrap_or(EventTime::MIN);
        let next = match spec.shares_slices() {
            true => spec.windows.next_holding(seen.piece, reached).map(|window| window.end),
            false => Some(seen.piece.end).filter(|end| !self.standing.fired.closed(*end)),
        };
        if let Some(next) = next {
            closings.add(next);
        }
        if let Some(expires) = self.standing.expires_at(last) {
            expiries.add(expires);
        }
        if let Some(boundary) = self.shape.next_boundary(seen.row).filter(|_| seen.events.is_ok()) {
            early.add(boundary);
        }
    }

    fn finish(mut self, file_bytes: u64) -> OperatorStats {
        self.close_window();
        let spec = self.shape.spec();
        let (top, missed) = self.prefixes.finish(self.options.top);
        let prefixes = top.into_iter().map(|(prefix, count)| PrefixStats {
            prefix: Key(vec![prefix.into_vec()]),
            panes: count.panes,
            events: count.events,
            bytes: count.bytes,
        });
        let sessions = self.sessions;
        let mean = u64::try_from(sessions.length_ms / u128::from(sessions.count.max(1))).unwrap_or(0);
        let stats = spec.windows.session_gap().map(|gap| SessionStats {
            gap,
            sessions: sessions.count,
            events: sessions.events,
            length_mean: Span::from_millis(i64::try_from(mean).unwrap_or(i64::MAX))
                .filter(|_| sessions.count > 0),
            longest: sessions.longest.finish(),
            start_min: sessions.start_min,
        });
        let [closings, expiries, early] = self.timers.map(First::finish);
        OperatorStats {
            name: spec.name.clone(),
            windows: spec.windows.to_string(),
            key: spec.key.clone(),
            totals: self.totals,
            file_bytes,
            largest_windows: self.windows.finish(),
            largest_panes: self.panes.finish(),
            prefixes: prefixes.collect(),
            prefix_chars: self.options.prefix_chars,
            prefix_bytes_missed_max: missed,
            sessions: stats,
            timers: Timers {
                closings: closings.0,
                next_closings: closings.1,
                expiries: expiries.0,
                next_expiries: expiries.1,
                early_firings: early.0,
                next_early_firings: early.1,
            },
        }
    }
}

fn pane(shape: &Shape, seen: &Seen<'_>) -> PaneStats {
    PaneStats {
        key: Key::from_stored(seen.key, shape.spec().key.len()),
        start: seen.piece.start,
        end: seen.piece.end,
        status: seen.status,
        bytes: seen.bytes,
        events: seen.events.as_ref().ok().copied(),
    }
}

/// The first characters of the first field of a stored key; bytes, where it is not text.
fn prefix(shape: &Shape, key: &[u8], chars: usize) -> Vec<u8> {
    let fields = shape.spec().key.len();
    let mut first = Vec::new();
    let first = match fields > 1 {
        true if crate::codec::split_component(key, &mut first).is_some() => first.as_slice(),
        _ => key,
    };
    let bytes = match std::str::from_utf8(first) {
        Ok(text) => text.char_indices().nth(chars).map_or(first.len(), |(at, _)| at),
        Err(_) => chars.min(first.len()),
    };
    first.get(..bytes).unwrap_or(first).to_vec()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_largest_of_many_are_those_a_sort_gives(
            measures in prop::collection::vec(0_u64..20, 0..60),
            top in 0_usize..8,
        ) {
            let mut largest = Largest::new(top);
            for (at, &measure) in measures.iter().enumerate() {
                largest.offer(measure, || (measure, at));
            }
            let mut sorted: Vec<(u64, usize)> =
                measures.iter().enumerate().map(|(at, &measure)| (measure, at)).collect();
            sorted.sort_by_key(|&(measure, at)| (Reverse(measure), at));
            sorted.truncate(top);
            prop_assert_eq!(largest.finish(), sorted);
        }

        #[test]
        fn the_first_of_many_instants_keep_their_counts(
            instants in prop::collection::vec(0_i64..12, 0..60),
            top in 1_usize..6,
        ) {
            let mut first = First { top, ..First::default() };
            let mut exact: BTreeMap<i64, u64> = BTreeMap::new();
            for &instant in &instants {
                first.add(EventTime::from_millis(instant));
                *exact.entry(instant).or_default() += 1;
            }
            let (total, timers) = first.finish();
            prop_assert_eq!(total, instants.len() as u64);
            let found: Vec<(i64, u64)> = timers.iter().map(|timer| (timer.at.as_millis(), timer.panes)).collect();
            prop_assert_eq!(found, exact.into_iter().take(top).collect::<Vec<_>>());
        }
    }
}
