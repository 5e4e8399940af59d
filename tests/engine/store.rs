//! The store against the naive model: whatever the batches, checkpoints, crashes and the memory budget, the results
//! are those of one uninterrupted pass.

use std::collections::BTreeMap;
use std::path::Path;

use floodmark::aggregate::{AggregateSpec, Function, InputType, Value};
use floodmark::checkpoint::{Position, SourceIdentity};
use floodmark::error::{Error, ErrorKind};
use floodmark::event::Number;
use floodmark::event_time::{EventTime, Span, Tumbling};
use floodmark::operator::{
    Emit, EventBatch, KeyColumn, LateEvent, OperatorSpec, PartitionId, Rejection, ResultBlock, ValueColumn,
};
use floodmark::store::{Barrier, Collected, ReadTo, WindowStore};
use proptest::prelude::*;

use crate::model::{Event, Model, Row};

const INPUT: SourceIdentity = SourceIdentity { head_bytes: 4, head_crc32: 7 };

/// Output as an exactly-once sink sees it: what was emitted after the last checkpoint is lost with the process.
#[derive(Default)]
struct Output {
    results: Vec<Row>,
    late: Vec<i64>,
    committed: (usize, usize),
}

impl Output {
    fn commit(&mut self) {
        self.committed = (self.results.len(), self.late.len());
    }

    fn lose_uncommitted(&mut self) {
        self.results.truncate(self.committed.0);
        self.late.truncate(self.committed.1);
    }
}

impl Emit for Output {
    type Error = Error;

    fn results(&mut self, _: usize, block: &mut dyn ResultBlock) -> Result<(), Error> {
        let end = block.window().end.as_millis();
        while let Some(row) = block.next_row() {
            let [Value::Int(count), Value::Int(sum)] = row.values else {
                panic!("unexpected {:?}", row.values)
            };
            self.results.push((end, row.key.to_vec(), *count as i64, *sum, row.pane_index));
        }
        Ok(())
    }

    fn late(&mut self, _: usize, event: LateEvent<'_>) -> Result<(), Error> {
        self.late.push(event.time().as_millis());
        Ok(())
    }

    fn rejected(&mut self, _: &EventBatch, index: usize, rejection: Rejection) -> Result<(), Error> {
        panic!("event {index} is rejected: its time {rejection}");
    }
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    size: i64,
    delay: i64,
    lateness: i64,
    memory_bytes: usize,
}

fn span(millis: i64) -> Span {
    Span::from_millis(millis).unwrap()
}

fn spec(settings: Settings) -> OperatorSpec {
    let windows = Tumbling::new(span(settings.size), 0).unwrap();
    let sum = AggregateSpec::over("sum", Function::Sum, "value", InputType::Int, 0);
    let mut spec = OperatorSpec::new("op", windows, &["key"], vec![AggregateSpec::count("count"), sum]);
    spec.allowed_lateness = span(settings.lateness);
    spec
}

fn open(path: &Path, settings: Settings) -> (WindowStore, PartitionId, usize) {
    let builder = WindowStore::builder("test").window(spec(settings)).delay(span(settings.delay));
    let mut store = builder.memory_bytes(settings.memory_bytes).open(path).unwrap();
    let (partition, position) = store.partition("input", INPUT).unwrap();
    (store, partition, position.records as usize)
}

fn batch(partition: PartitionId, events: &[Event]) -> EventBatch {
    let (mut keys, mut values) = (KeyColumn::default(), ValueColumn::int());
    for (_, key, value) in events {
        keys.push(key);
        values.push_int(*value);
    }
    let times = events.iter().map(|event| event.0).collect();
    EventBatch { partition, times, keys: vec![keys], values: vec![values], ..EventBatch::default() }
}

fn barrier(partition: PartitionId, records: usize) -> Barrier {
    let position = Position { bytes: 0, records: records as u64 };
    Barrier { read_to: vec![ReadTo { partition, position, finished: false }], ..Barrier::default() }
}

/// What happens after a batch.
#[derive(Clone, Copy, Debug)]
enum Step {
    Nothing,
    Checkpoint,
    /// A checkpoint that is still under way while the next batch is processed.
    CheckpointBeside,
    Kill,
}

fn run(settings: Settings, events: &[Event], plan: &[(usize, Step)]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let mut output = Output::default();
    let (mut store, mut partition, mut at) = open(&path, settings);
    let mut plan = plan.iter().copied();
    let mut beside: Option<(usize, usize)> = None;
    while at < events.len() {
        let (length, step) = plan.next().unwrap_or((events.len(), Step::Nothing));
        let to = (at + length).min(events.len());
        store.process(&batch(partition, &events[at..to]), &mut output).unwrap();
        at = to;
        if let Some(committed) = beside.take() {
            store.checkpoint_report(true).unwrap().unwrap();
            output.committed = committed;
        }
        match step {
            Step::Nothing => {}
            Step::Checkpoint => {
                store.checkpoint(barrier(partition, at)).unwrap();
                output.commit();
            }
            Step::CheckpointBeside => {
                store.begin_checkpoint(barrier(partition, at)).unwrap();
                beside = Some((output.results.len(), output.late.len()));
            }
            Step::Kill => {
                drop(store);
                output.lose_uncommitted();
                (store, partition, at) = open(&path, settings);
            }
        }
    }
    store.end_of_input(&mut output).unwrap();
    output
}

fn expected(settings: Settings, events: &[Event]) -> Model {
    let mut model = Model::new(settings.size, settings.delay, settings.lateness);
    events.iter().for_each(|event| model.event(event));
    model.end();
    model
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        (0_u8..4).prop_map(|n| vec![b'k', b'0' + n]),
        Just(vec![]),
        Just(vec![0]),
        Just(vec![0xff]),
        Just(vec![0xff, 0]),
        Just(b"a-key-that-does-not-fit-into-its-slot".to_vec()),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Nothing),
        3 => Just(Step::Checkpoint),
        1 => Just(Step::CheckpointBeside),
        2 => Just(Step::Kill),
    ]
}

fn settings() -> impl Strategy<Value = Settings> {
    (prop_oneof![Just(1_i64), Just(7), Just(10)], 0_i64..15, prop_oneof![Just(0_i64), 1_i64..20])
        .prop_map(|(size, delay, lateness)| Settings { size, delay, lateness, memory_bytes: 16 << 20 })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if std::env::var_os("FLOODMARK_DEEP").is_some() { 2_000 } else { 40 }))]

    #[test]
    fn crashes_checkpoints_and_cuts_do_not_show_in_the_results(
        settings in settings(),
        events in prop::collection::vec((-60_i64..60, key(), -9_i64..9), 1..60),
        plan in prop::collection::vec((1_usize..9, step()), 0..14),
    ) {
        let model = expected(settings, &events);
        let output = run(settings, &events, &plan);
        prop_assert_eq!(output.results, model.results);
        prop_assert_eq!(output.late, model.late);
    }
}

/// Many more panes than the memory budget holds, so that windows are moved out and merged back.
fn crowd(events: usize, keys: u64) -> Vec<Event> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..events)
        .map(|n| {
            let jitter = (random() % 2_000) as i64;
            (
                n as i64 / 50 - jitter,
                format!("key-{:06}", random() % keys).into_bytes(),
                (random() % 100) as i64,
            )
        })
        .collect()
}

fn check_crowd(lateness: i64) {
    let settings = Settings { size: 4_000, delay: 1_000, lateness, memory_bytes: 16 << 20 };
    let events = crowd(400_000, 60_000);
    let steps =
        [Step::Nothing, Step::Checkpoint, Step::Nothing, Step::CheckpointBeside, Step::Nothing, Step::Kill];
    let plan: Vec<(usize, Step)> = (0..60).map(|n| (9_000, steps[n % steps.len()])).collect();
    let model = expected(settings, &events);
    assert!(!model.late.is_empty());
    let output = run(settings, &events, &plan);
    assert_eq!(output.late, model.late);
    assert_eq!(output.results.len(), model.results.len());
    assert!(output.results == model.results, "results differ");
}

#[test]
fn state_beyond_the_memory_budget_gives_the_same_results() {
    check_crowd(0);
}

#[test]
fn state_beyond_the_memory_budget_refires_as_it_should() {
    check_crowd(700);
}

#[test]
fn a_restart_restores_watermark_and_due_windows_without_any_event() {
    let settings = Settings { size: 10, delay: 0, lateness: 0, memory_bytes: 16 << 20 };
    let folder = tempfile::tempdir().unwrap();
    let mut output = Output::default();
    let (mut store, partition, _) = open(folder.path(), settings);
    let events = [(1, b"a".to_vec(), 1), (2, b"b".to_vec(), 1)];
    store.process(&batch(partition, &events), &mut output).unwrap();
    store.checkpoint(barrier(partition, 2)).unwrap();
    drop(store);
    let (mut store, partition, position) = open(folder.path(), settings);
    assert_eq!(position, 2);
    assert_eq!(store.restored().unwrap().panes_loaded, 2);
    // Only b speaks again; a's window closes all the same.
    store.process(&batch(partition, &[(30, b"b".to_vec(), 1)]), &mut output).unwrap();
    assert_eq!(output.results, [(10, b"a".to_vec(), 1, 1, 0), (10, b"b".to_vec(), 1, 1, 0)]);
    store.process(&batch(partition, &[(9, b"a".to_vec(), 1)]), &mut output).unwrap();
    assert_eq!(output.late, [9]);
}

#[test]
fn another_definition_is_refused_with_both_shapes() {
    let settings = Settings { size: 10, delay: 0, lateness: 0, memory_bytes: 16 << 20 };
    let folder = tempfile::tempdir().unwrap();
    let (mut store, partition, _) = open(folder.path(), settings);
    store.checkpoint(barrier(partition, 0)).unwrap();
    drop(store);
    let mut other = spec(settings);
    other.aggregates[1].function = Function::Max;
    let error = WindowStore::builder("test").window(other).open(folder.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    let text = error.to_string();
    assert!(text.contains("stored") && text.contains("max of value"), "{text}");
    assert!(error.remedy().is_some());
}

#[test]
fn a_replaced_input_is_refused() {
    let settings = Settings { size: 10, delay: 0, lateness: 0, memory_bytes: 16 << 20 };
    let folder = tempfile::tempdir().unwrap();
    let (mut store, partition, _) = open(folder.path(), settings);
    store.checkpoint(barrier(partition, 1)).unwrap();
    drop(store);
    let mut store = WindowStore::builder("test").window(spec(settings)).open(folder.path()).unwrap();
    let other = SourceIdentity { head_bytes: 4, head_crc32: 8 };
    assert_eq!(store.partition("input", other).unwrap_err().kind(), ErrorKind::Incompatible);
}

#[test]
fn columns_that_do_not_fit_are_refused_before_anything_is_counted() {
    let settings = Settings { size: 10, delay: 0, lateness: 0, memory_bytes: 16 << 20 };
    let folder = tempfile::tempdir().unwrap();
    let (mut store, partition, _) = open(folder.path(), settings);
    let mut short = batch(partition, &[(1, b"a".to_vec(), 1)]);
    short.values[0].clear();
    let error = store.process(&short, &mut Output::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[test]
fn every_checkpoint_of_a_long_run_keeps_the_state_at_one_size() {
    let settings = Settings { size: 1_000, delay: 0, lateness: 0, memory_bytes: 16 << 20 };
    let folder = tempfile::tempdir().unwrap();
    let (mut store, partition, _) = open(folder.path(), settings);
    let mut output = Output::default();
    let mut sizes = BTreeMap::new();
    for round in 0..60_i64 {
        // New keys in each window, none of which ever comes back.
        let events: Vec<Event> =
            (0..2_000).map(|n| (round * 700 + n / 3, format!("{round}-{n}").into_bytes(), 1)).collect();
        store.process(&batch(partition, &events), &mut output).unwrap();
        let report = store.checkpoint(barrier(partition, (round as usize + 1) * 2_000)).unwrap();
        sizes.insert(round, report.new_bytes + report.shared_bytes);
    }
    let early = sizes.range(10..30).map(|(_, bytes)| *bytes).max().unwrap();
    let late = sizes.range(40..60).map(|(_, bytes)| *bytes).max().unwrap();
    assert!(late < early * 2, "checkpoints grow: {sizes:?}");
}

#[test]
fn late_events_of_several_windows_come_by_event_however_the_batches_are_cut() {
    let windows = Tumbling::new(Span::from_millis(10).unwrap(), 0).unwrap();
    let spec = |name: &str| OperatorSpec::new(name, windows, &["k"], vec![AggregateSpec::count("n")]);
    let run = |cuts: &[usize]| {
        let directory = tempfile::tempdir().unwrap();
        let builder = WindowStore::builder("late").window(spec("a")).window(spec("b"));
        let mut store = builder.open(directory.path()).unwrap();
        let (partition, _) = store.partition("p", SourceIdentity::default()).unwrap();
        let mut seen = Collected::default();
        let mut times = [100_i64, 1, 2, 150, 101].as_slice();
        for &cut in cuts {
            let (now, later) = times.split_at(cut);
            let mut batch = EventBatch::with_columns(partition, 1, Vec::new());
            for &time in now {
                batch.push_event::<Number>(EventTime::from_millis(time), &[b"k"], &[]);
            }
            store.process(&batch, &mut seen).unwrap();
            times = later;
        }
        seen.late.iter().map(|late| (late.time.as_millis(), late.operator)).collect::<Vec<_>>()
    };
    let expected = [(1, 0), (1, 1), (2, 0), (2, 1), (101, 0), (101, 1)];
    assert_eq!(run(&[5]), expected);
    assert_eq!(run(&[1, 1, 1, 1, 1]), expected);
    assert_eq!(run(&[2, 3]), expected);
}
