//! Joins and deduplication through the store, against all pairs and all ids found the plain way: whatever the batches,
//! checkpoints and deaths of the process.

use std::collections::HashMap;
use std::path::Path;

use floodmark::aggregate::{AggregateSpec, InputType, Value};
use floodmark::checkpoint::{Position, SourceIdentity};
use floodmark::error::ErrorKind;
use floodmark::event::{EventBatch, Number, ValueColumn};
use floodmark::event_time::{EventTime, Span, Tumbling};
use floodmark::operator::{
    DedupSpec, JoinInput, JoinKind, JoinSpec, OperatorSpec, PartitionId, SourceId, SourceSpec,
    Strategy as Rule,
};
use floodmark::store::{Barrier, Collected, CollectedEvent, ReadTo, WindowStore};
use proptest::prelude::*;

const INPUT: SourceIdentity = SourceIdentity { head_bytes: 4, head_crc32: 7 };
const KEYS: u8 = 3;

/// An event of the left source (0) or the right one (1).
#[derive(Clone, Copy, Debug)]
struct Event {
    source: usize,
    time: i64,
    key: u8,
    id: u8,
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    from: i64,
    to: i64,
    kind: JoinKind,
    delays: [i64; 2],
    /// How long ids of the left source are remembered, if they are.
    remember: Option<i64>,
}

/// A side of a row: time, and the number of the event in the history.
type SideOfRow = Option<(i64, usize)>;
type Row = (u8, SideOfRow, SideOfRow);

/// What comes out.
#[derive(Debug, Default, PartialEq)]
struct Out {
    rows: Vec<Row>,
    late: Vec<i64>,
    duplicates: Vec<i64>,
}

/// The rules written down plainly: nothing is forgotten, everything is compared with everything.
struct Naive {
    settings: Settings,
    newest: [Option<i64>; 2],
    // None before both sources have spoken, i64::MAX after the end.
    watermark: Option<i64>,
    accepted: Vec<(usize, Event, bool)>,
    ids: HashMap<u8, i64>,
    out: Out,
}

impl Naive {
    fn needed_until(&self, event: Event) -> i64 {
        let reach = if event.source == 0 { self.settings.to } else { -self.settings.from };
        event.time + reach.max(0) + 1
    }

    fn passed(&self, time: i64) -> bool {
        self.watermark.is_some_and(|watermark| time <= watermark)
    }

    fn event(&mut self, number: usize, event: Event) {
        if event.source == 0 && self.repeats(event) {
            self.out.duplicates.push(event.time);
        } else if self.passed(self.needed_until(event)) {
            self.out.late.push(event.time);
        } else {
            self.pair(number, event);
        }
        let newest = &mut self.newest[event.source];
        *newest = Some(newest.map_or(event.time, |newest| newest.max(event.time)));
        if let [Some(left), Some(right)] = self.newest {
            let [left_delay, right_delay] = self.settings.delays;
            self.advance((left - left_delay).min(right - right_delay));
        }
    }

    fn repeats(&mut self, event: Event) -> bool {
        let Some(within) = self.settings.remember else { return false };
        let known = self.ids.get(&event.id).copied();
        if known.is_some_and(|until| !self.passed(until)) {
            return true;
        }
        self.ids.insert(event.id, event.time + within);
        false
    }

    fn pair(&mut self, number: usize, event: Event) {
        let Settings { from, to, .. } = self.settings;
        let mut found: Vec<(i64, usize, usize)> = Vec::new();
        for (index, (other_number, other, _)) in self.accepted.iter().enumerate() {
            let (left, right) = if event.source == 0 { (event, *other) } else { (*other, event) };
            let near = (left.time + from..=left.time + to).contains(&right.time);
            if event.source != other.source
                && event.key == other.key
                && near
                && !self.passed(self.needed_until(*other))
            {
                found.push((other.time, *other_number, index));
            }
        }
        found.sort_unstable();
        for &(time, other, index) in &found {
            self.accepted[index].2 = true;
            let (own, other) = (Some((event.time, number)), Some((time, other)));
            let row = if event.source == 0 { (event.key, own, other) } else { (event.key, other, own) };
            self.out.rows.push(row);
        }
        self.accepted.push((number, event, !found.is_empty()));
    }

    fn advance(&mut self, to: i64) {
        let before = self.watermark;
        self.watermark = Some(before.map_or(to, |before| before.max(to)));
        let mut alone: Vec<(i64, i64, usize, Event)> = Vec::new();
        for &(number, event, matched) in &self.accepted {
            let until = self.needed_until(event);
            let already = before.is_some_and(|before| until <= before);
            let kept = match self.settings.kind {
                JoinKind::Inner => false,
                JoinKind::Left => event.source == 0,
                JoinKind::Right => event.source == 1,
                JoinKind::Full => true,
            };
            if kept && !matched && !already && self.passed(until) {
                alone.push((until, event.time, number, event));
            }
        }
        alone.sort_unstable_by_key(|&(until, time, number, _)| (until, time, number));
        for (_, time, number, event) in alone {
            let side = Some((time, number));
            let row = if event.source == 0 { (event.key, side, None) } else { (event.key, None, side) };
            self.out.rows.push(row);
        }
    }
}

fn expected(settings: Settings, events: &[Event]) -> Out {
    let mut naive = Naive {
        settings,
        newest: [None; 2],
        watermark: None,
        accepted: Vec::new(),
        ids: HashMap::new(),
        out: Out::default(),
    };
    events.iter().enumerate().for_each(|(number, &event)| naive.event(number, event));
    naive.advance(i64::MAX);
    naive.out
}

fn millis(millis: i64) -> Span {
    Span::from_millis(millis).unwrap()
}

fn spec(settings: Settings) -> JoinSpec {
    let input = |source: &str| JoinInput::new(source).field(&format!("{source}_n"), "n", InputType::Int, 0);
    JoinSpec::new("pairs", &["key"], input("left"), input("right"), (settings.from, settings.to))
        .of_kind(settings.kind)
}

fn open(settings: Settings, step_rows: Option<usize>, path: &Path) -> WindowStore {
    let rows = vec![AggregateSpec::count("rows")];
    let window = OperatorSpec::new("counts", Tumbling::new(millis(10), 0).unwrap(), &["key"], rows);
    let source = |name: &str, delay| SourceSpec::new(name, Rule::Bounded(millis(delay)));
    let [left, right] = settings.delays;
    let dedup = settings.remember.map(|within| DedupSpec::new(&["id"], millis(within), 1));
    let builder = WindowStore::builder("joins");
    let builder = match step_rows {
        Some(rows) => builder.firing_step_rows(rows),
        None => builder,
    };
    builder
        .window(window)
        .join(spec(settings))
        .source(SourceSpec { dedup, ..source("left", left) })
        .source(source("right", right))
        .memory_bytes(16 << 20)
        .open(path)
        .unwrap()
}

fn register(store: &mut WindowStore) -> [u64; 2] {
    [0, 1].map(|source| {
        let name = ["l", "r"][source as usize];
        let (id, position) = store.partition_of(SourceId(source), name, INPUT).unwrap();
        assert_eq!(id, PartitionId(u32::from(source)));
        position.records
    })
}

fn batch_of(source: usize, events: &[(usize, Event)]) -> EventBatch {
    let partition = PartitionId(source as u32);
    let mut batch = EventBatch::with_columns(partition, 2, vec![ValueColumn::int()]);
    batch.source = SourceId(source as u16);
    for &(number, event) in events {
        let keys: [&[u8]; 2] = [&[event.key], &[event.id]];
        batch.push_event(EventTime::from_millis(event.time), &keys, &[Some(Number::Int(number as i64))]);
    }
    batch
}

fn side(event: &Option<CollectedEvent>) -> SideOfRow {
    event.as_ref().map(|event| match event.values[..] {
        [Value::Int(number)] => (event.time.as_millis(), number as usize),
        _ => panic!("another row than asked for: {event:?}"),
    })
}

/// What a run does between two batches.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Nothing,
    Checkpoint,
    Kill,
}

/// A run of a history, with what it had come to when its last checkpoint was made.
struct Run<'a> {
    settings: Settings,
    step_rows: Option<usize>,
    path: &'a Path,
    // One at a time has the directory.
    store: Option<WindowStore>,
    out: Collected,
    at: usize,
    read: [u64; 2],
    durable: (Collected, usize),
    pauses: usize,
}

impl<'a> Run<'a> {
    fn new(settings: Settings, step_rows: Option<usize>, path: &'a Path) -> Self {
        let mut store = open(settings, step_rows, path);
        let read = register(&mut store);
        let (out, durable) = Default::default();
        Run { settings, step_rows, path, store: Some(store), out, at: 0, read, durable, pauses: 0 }
    }

    fn store(&mut self) -> &mut WindowStore {
        self.store.as_mut().expect("a process runs")
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Nothing => {}
            Step::Checkpoint => {
                let read_to = [0, 1].map(|source| ReadTo {
                    partition: PartitionId(source as u32),
                    position: Position { bytes: 0, records: self.read[source] },
                    finished: false,
                });
                self.store().checkpoint(Barrier { read_to: read_to.to_vec(), ..Barrier::default() }).unwrap();
                self.durable = (self.out.clone(), self.at);
            }
            Step::Kill => {
                self.store = None;
                self.store = Some(open(self.settings, self.step_rows, self.path));
                self.read = register(self.store());
                (self.out, self.at) = self.durable.clone();
                assert_eq!(self.read.iter().sum::<u64>() as usize, self.at);
            }
        }
    }
}

/// Runs a history in batches of at most so many events, with steps between them and between the pieces of a long
/// firing, each again and again. Returns the number of pauses in firings as well.
fn through_store(
    settings: Settings,
    events: &[Event],
    batches: &[usize],
    steps: &[Step],
    step_rows: Option<usize>,
) -> (Out, Collected, usize) {
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let path = directory.path().join("state");
    let mut run = Run::new(settings, step_rows, &path);
    let mut steps = steps.iter().copied().cycle();
    let mut batches = batches.iter().copied().cycle();
    while run.at < events.len() || run.store().is_firing() {
        if run.store().is_firing() {
            run.pauses += 1;
            run.store.as_mut().unwrap().fire_some(&mut run.out).unwrap();
        } else {
            let (at, source) = (run.at, events[run.at].source);
            let most = batches.next().unwrap();
            let length = events[at..].iter().take(most).take_while(|event| event.source == source).count();
            let numbered: Vec<(usize, Event)> =
                (at..at + length).map(|number| (number, events[number])).collect();
            let batch = batch_of(source, &numbered);
            let done = run.store.as_mut().unwrap().process_some(&batch, 0, &mut run.out).unwrap();
            run.at += done;
            run.read[source] += done as u64;
        }
        run.take(steps.next().unwrap());
    }
    let mut store = run.store.take().unwrap();
    store.end_of_input(&mut run.out).unwrap();
    while store.is_firing() {
        // The end of the input is told anew to a run that died: nothing of it is in the last checkpoint.
        run.pauses += 1;
        store.fire_some(&mut run.out).unwrap();
    }
    let out = run.out;
    assert!(out.rejected.is_empty());
    let rows = out.joined.iter().map(|row| {
        assert_eq!(row.operator, 1);
        (row.key[0], side(&row.left), side(&row.right))
    });
    let late = out.late.iter().filter(|late| late.operator == 1).map(|late| late.time.as_millis());
    let found = Out {
        rows: rows.collect(),
        late: late.collect(),
        duplicates: out.duplicates.iter().map(|(_, time)| *time).collect(),
    };
    (found, out, run.pauses)
}

fn histories() -> impl Strategy<Value = Vec<Event>> {
    let event = (0..2_usize, -20_i64..20, 0..KEYS, 0..12_u8);
    let events = prop::collection::vec(event, 0..80);
    // Times run on and are out of order by what is drawn.
    events.prop_map(|events| {
        let events = events.into_iter().enumerate();
        events
            .map(|(index, (source, off, key, id))| Event { source, time: index as i64 * 2 + off, key, id })
            .collect()
    })
}

fn settings() -> impl Strategy<Value = Settings> {
    let kind =
        prop_oneof![Just(JoinKind::Inner), Just(JoinKind::Left), Just(JoinKind::Right), Just(JoinKind::Full)];
    let remember = prop_oneof![Just(None), (1_i64..40).prop_map(Some)];
    (-15_i64..15, 0_i64..15, kind, (0_i64..15, 0_i64..15), remember).prop_map(
        |(from, length, kind, (left, right), remember)| Settings {
            from,
            to: from + length,
            kind,
            delays: [left, right],
            remember,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn joins_and_deduplication_give_what_all_pairs_give(
        settings in settings(),
        events in histories(),
        batches in prop::collection::vec(1_usize..6, 1..4),
        steps in prop::collection::vec(
            prop_oneof![3 => Just(Step::Nothing), 2 => Just(Step::Checkpoint), 1 => Just(Step::Kill)], 1..7
        ),
        step_rows in prop::option::of(1_usize..4),
    ) {
        // A run that dies again and again before its checkpoint would not end.
        let kills = steps.contains(&Step::Kill);
        prop_assume!(!kills || steps.contains(&Step::Checkpoint));
        let expected = expected(settings, &events);
        let (found, one_by_one, _) = through_store(settings, &events, &[1], &[Step::Nothing], None);
        prop_assert_eq!(&found, &expected);
        let (found, cut, _) = through_store(settings, &events, &batches, &steps, step_rows);
        prop_assert_eq!(&found, &expected);
        prop_assert_eq!(&cut.joined, &one_by_one.joined);
        // Events that are left out move the watermark for windows as well.
        prop_assert_eq!(&cut.rows, &one_by_one.rows);
        prop_assert_eq!(cut.late.len(), one_by_one.late.len());
    }
}

const PLAIN: Settings = Settings { from: -5, to: 10, kind: JoinKind::Full, delays: [0, 0], remember: None };

fn event(source: usize, time: i64, id: u8) -> Event {
    Event { source, time, key: 0, id }
}

#[test]
fn both_ends_of_the_interval_belong_to_it_and_what_is_alone_comes_out_once() {
    let events = [
        event(0, 100, 0),
        event(1, 94, 0),
        event(1, 95, 0),
        event(1, 110, 0),
        event(1, 111, 0),
        event(0, 200, 0),
    ];
    let steps = [Step::Checkpoint, Step::Kill, Step::Nothing];
    let (found, ..) = through_store(PLAIN, &events, &[1], &steps, None);
    let pair = |right: i64, number| (0, Some((100, 0)), Some((right, number)));
    let alone = |time: i64, number| (0, None, Some((time, number)));
    let last = (0, Some((200, 5)), None);
    assert_eq!(found.rows, [pair(95, 2), pair(110, 3), alone(94, 1), alone(111, 4), last]);
}

#[test]
fn what_is_alone_after_a_long_jump_comes_out_in_steps_and_a_restart_goes_on_in_the_middle() {
    let mut events: Vec<Event> = (0..60).map(|n| event(0, n / 2, n as u8)).collect();
    events.push(event(1, 29, 0));
    // The sources are 100,000 ms apart until the second one jumps as well.
    events.extend([event(0, 100_000, 0), event(1, 100_000, 0)]);
    let (straight, all, pauses) = through_store(PLAIN, &events, &[1], &[Step::Nothing], None);
    assert_eq!(straight, expected(PLAIN, &events));
    assert_eq!(pauses, 0);
    let steps = [Step::Checkpoint, Step::Kill, Step::Nothing];
    for (step_rows, at_least) in [(1, 29), (10, 5), (1_000, 0)] {
        let (found, out, pauses) = through_store(PLAIN, &events, &[7], &steps, Some(step_rows));
        assert_eq!(found, straight, "step_rows={step_rows}");
        assert_eq!(out.joined, all.joined, "the watermark beside each row as well");
        assert!(pauses >= at_least, "step_rows={step_rows} pauses={pauses}");
    }
}

#[test]
fn a_checkpoint_holds_no_event_and_no_id_that_the_watermark_has_passed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let settings = Settings { remember: Some(10), ..PLAIN };
    let mut store = open(settings, None, &path);
    register(&mut store);
    let mut out = Collected::default();
    for round in 0..40_i64 {
        for source in 0..2 {
            let events: Vec<(usize, Event)> =
                (0..50).map(|n| (0, event(source, round * 1_000 + n, n as u8))).collect();
            store.process(&batch_of(source, &events), &mut out).unwrap();
        }
        store.checkpoint(Barrier::default()).unwrap();
        // Two seconds' worth at most: the newest of each source, and ids of the left one.
        assert!(store.resident_panes() < 250, "round={round} held={}", store.resident_panes());
    }
    let bytes = store.hot_bytes();
    drop(store);
    let mut store = open(settings, None, &path);
    assert!(store.restored().unwrap().panes_loaded < 250);
    assert!(store.hot_bytes() <= bytes);
    store.end_of_input(&mut out).unwrap();
    assert_eq!(store.resident_panes(), 0);
}

#[test]
fn a_store_refuses_joins_that_cannot_be() {
    let directory = tempfile::tempdir().unwrap();
    let source = |name: &str| SourceSpec::new(name, Rule::Bounded(millis(1)));
    let refused = |spec: JoinSpec, dedup: Option<DedupSpec>| {
        let builder = WindowStore::builder("joins").join(spec).source(source("left"));
        let right = SourceSpec { dedup, ..source("right") };
        let error = builder.source(right).open(directory.path().join("state")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        error.to_string()
    };
    let good = spec(PLAIN);
    let none = Span::ZERO;
    assert!(refused(JoinSpec { from_ms: 11, ..good.clone() }, None).contains("ends before it begins"));
    assert!(refused(JoinSpec { right: good.left.clone(), ..good.clone() }, None).contains("one source"));
    let other = JoinSpec { right: JoinInput::new("elsewhere"), ..good.clone() };
    assert!(refused(other, None).contains("source=elsewhere"));
    assert!(
        refused(good.clone(), Some(DedupSpec::new(&["id"], none, 0))).contains("needs fields and a span")
    );
    let named = JoinSpec { name: "dedup-right".to_owned(), ..good };
    assert!(refused(named, Some(DedupSpec::new(&["id"], millis(1), 0))).contains("name=dedup-right"));
}

#[test]
fn state_of_another_join_or_another_deduplication_is_refused_with_both() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let mut store = open(Settings { remember: Some(10), ..PLAIN }, None, &path);
    store.checkpoint(Barrier::default()).unwrap();
    drop(store);
    let builder = |to: i64, by: Option<(&str, i64)>| {
        let settings = Settings { to, ..PLAIN };
        let dedup = by.map(|(by, within)| DedupSpec::new(&[by], millis(within), 1));
        let source = |name: &str| SourceSpec::new(name, Rule::Bounded(millis(0)));
        let rows = vec![AggregateSpec::count("rows")];
        let window = OperatorSpec::new("counts", Tumbling::new(millis(10), 0).unwrap(), &["key"], rows);
        let builder = WindowStore::builder("joins").window(window).join(spec(settings));
        builder.source(SourceSpec { dedup, ..source("left") }).source(source("right")).open(&path)
    };
    let refused = |to, by| {
        let error = builder(to, by).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Incompatible);
        error.to_string()
    };
    assert!(refused(11, Some(("id", 10))).contains("join \"pairs\": refused"));
    assert!(refused(10, Some(("other", 10))).contains("dedup \"dedup-left\": refused"));
    assert!(refused(10, None).contains("dedup: not asked for any more"));
    builder(10, Some(("id", 9))).unwrap();
    builder(10, Some(("id", 10))).unwrap();
}
