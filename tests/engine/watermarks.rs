//! Watermarks through the public store and the pipeline: failures that people reported elsewhere, as small histories.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use floodmark::aggregate::AggregateSpec;
use floodmark::checkpoint::{Position, SourceIdentity};
use floodmark::clock::{Clock, ManualClock};
use floodmark::error::ErrorKind;
use floodmark::event::{EventBatch, Number, PartitionId, SourceId};
use floodmark::event_time::{EventTime, Span, Tumbling, Watermark};
use floodmark::operator::{Bounds, OperatorSpec, Policy, Rejection, SourceSpec, Strategy};
use floodmark::pipeline::config::PipelineConfig;
use floodmark::pipeline::{RunOptions, RunSummary, Silent, StopFlag, run};
use floodmark::store::{Barrier, Collected, ReadTo, WindowStore, WindowStoreBuilder};
use proptest::prelude::*;

const SECOND: Duration = Duration::from_secs(1);

fn span(millis: i64) -> Span {
    Span::from_millis(millis).unwrap()
}

fn at(millis: i64) -> Watermark {
    Watermark::At(EventTime::from_millis(millis))
}

fn count(name: &str, size: i64) -> OperatorSpec {
    let windows = Tumbling::new(span(size), 0).unwrap();
    OperatorSpec::new(name, windows, &["key"], vec![AggregateSpec::count("count")])
}

/// A store with a clock of its own, and what came out of it.
struct Task {
    folder: tempfile::TempDir,
    clock: Arc<ManualClock>,
    store: WindowStore,
    seen: Collected,
}

impl Task {
    fn open(builder: WindowStoreBuilder) -> Self {
        Self::open_at(0, builder)
    }

    fn open_at(wall_millis: i64, builder: WindowStoreBuilder) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(wall_millis));
        let shared: Arc<dyn Clock> = clock.clone();
        let store = builder.clock(shared).open(folder.path().join("state")).unwrap();
        Self { folder, clock, store, seen: Collected::default() }
    }

    /// A checkpoint, and another process that goes on from it.
    fn restart(mut self, builder: WindowStoreBuilder) -> Self {
        self.store.checkpoint(Barrier::default()).unwrap();
        drop(self.store);
        let clock: Arc<dyn Clock> = self.clock.clone();
        let store = builder.clock(clock).open(self.folder.path().join("state")).unwrap();
        Self { store, ..self }
    }

    fn partition(&mut self, source: u16, name: &str) -> PartitionId {
        self.store.partition_of(SourceId(source), name, SourceIdentity::default()).unwrap().0
    }

    fn event(&mut self, source: u16, partition: PartitionId, time: i64) -> Watermark {
        self.batch(source, partition, &[(time, None)])
    }

    fn batch(&mut self, source: u16, partition: PartitionId, events: &[(i64, Option<i64>)]) -> Watermark {
        let mut batch = EventBatch::with_columns(partition, 1, Vec::new());
        batch.source = SourceId(source);
        for (index, (time, punctuation)) in events.iter().enumerate() {
            batch.push_event::<Number>(EventTime::from_millis(*time), &[b"a"], &[]);
            let said = punctuation.map(|time| (index as u32, EventTime::from_millis(time)));
            batch.punctuations.extend(said);
        }
        self.store.process(&batch, &mut self.seen).unwrap();
        self.store.watermark()
    }

    fn tick(&mut self, has_backlog: impl Fn(PartitionId) -> bool) -> Watermark {
        self.store.tick(has_backlog, &mut self.seen).unwrap();
        self.store.watermark()
    }

    /// Window start and count of each result, in order.
    fn rows(&self) -> Vec<(i64, i64)> {
        let row = |row: &floodmark::store::CollectedRow| {
            let floodmark::aggregate::Value::Int(count) = row.values[0] else {
                panic!("a count is an integer")
            };
            (row.window.start.as_millis(), count as i64)
        };
        self.seen.rows.iter().map(row).collect()
    }

    fn late(&self) -> Vec<i64> {
        self.seen.late.iter().map(|late| late.time.as_millis()).collect()
    }

    fn end(&mut self) {
        self.store.end_of_input(&mut self.seen).unwrap();
    }
}

fn store(size: i64) -> WindowStoreBuilder {
    WindowStore::builder("watermarks").window(count("op", size))
}

#[test]
fn b31_a_watermark_once_shown_is_never_taken_back() {
    let mut task = Task::open(store(100));
    let partition = task.partition(0, "p");
    let shown: Vec<Watermark> = [200, 250, 230, 500].map(|time| task.event(0, partition, time)).into();
    assert_eq!(shown, [at(200), at(250), at(250), at(500)]);
}

#[test]
fn b32_the_slower_partition_decides_what_is_late() {
    let mut task = Task::open(store(100));
    let (slow, fast) = (task.partition(0, "slow"), task.partition(0, "fast"));
    for (partition, time) in [(fast, 1_000), (slow, 0), (fast, 2_000), (slow, 100), (slow, 50)] {
        task.event(0, partition, time);
    }
    task.end();
    assert_eq!(task.rows(), [(0, 1), (100, 1), (1_000, 1), (2_000, 1)]);
    assert_eq!(task.late(), [50]);
}

#[test]
fn b34_when_all_are_idle_the_maximum_counts_in_whatever_order_they_fell_idle() {
    for first in [0, 1] {
        let mut task = Task::open(store(6).idle_timeout(Some(SECOND)));
        let partitions = [task.partition(0, "p0"), task.partition(0, "p1")];
        task.event(0, partitions[0], 0);
        task.event(0, partitions[0], 6);
        task.event(0, partitions[1], 5);
        task.clock.advance(SECOND / 2);
        task.event(0, partitions[1 - first], if first == 0 { 5 } else { 6 });
        task.clock.advance(SECOND / 2);
        task.tick(|_| false);
        task.clock.advance(SECOND);
        assert_eq!(task.tick(|_| false), at(6), "first {first}");
        assert_eq!(task.rows().len(), 1);
    }
}

#[test]
fn b35_no_record_means_no_watermark_and_not_an_infinite_one() {
    let mut task = Task::open(store(10).idle_timeout(Some(SECOND)).idle_advance(Some(SECOND)));
    let partitions = [task.partition(0, "p0"), task.partition(0, "p1")];
    task.clock.advance(SECOND * 5);
    assert_eq!(task.tick(|_| false), Watermark::None);
    task.event(0, partitions[0], 3);
    task.event(0, partitions[1], 4);
    assert_eq!((task.rows(), task.late()), (vec![], vec![]));
}

#[test]
fn b37_a_partition_with_unread_records_is_not_idle() {
    let mut task = Task::open(store(10).idle_timeout(Some(SECOND)));
    let (read, behind) = (task.partition(0, "read"), task.partition(0, "behind"));
    task.event(0, read, 100);
    task.clock.advance(SECOND * 5);
    assert_eq!(task.tick(|partition| partition == behind), Watermark::None);
    task.event(0, read, 200);
    assert_eq!(task.event(0, behind, 101), at(101));
    task.event(0, behind, 102);
    assert!(task.late().is_empty(), "late: {:?}", task.late());
}

#[test]
fn b38_an_added_partition_holds_back_what_comes_and_takes_nothing_back() {
    let mut task = Task::open(store(10).idle_timeout(Some(SECOND)));
    let old = task.partition(0, "old");
    assert_eq!(task.event(0, old, 16), at(16));
    let added = task.partition(0, "added");
    assert_eq!(task.event(0, added, 5), at(16));
    assert_eq!(task.event(0, added, 17), at(16));
    assert_eq!(task.event(0, old, 30), at(17));
    assert_eq!(task.late(), [5]);
    task.end();
    assert_eq!(task.rows(), [(10, 2), (30, 1)]);
}

#[test]
fn b40_one_clock_a_day_ahead_silences_nobody() {
    let wall = 1_789_300_800_000;
    let bounds = Bounds { max_ahead: Some(span(3_600_000)), ..Bounds::default() };
    let mut task = Task::open_at(wall, store(60_000).delay(span(60_000)).bounds(bounds));
    let partition = task.partition(0, "fleet");
    let mut times = vec![wall - 60_000, wall + 86_340_000];
    times.extend((0..10).map(|minute| wall + minute * 60_000));
    let events: Vec<(i64, Option<i64>)> = times.iter().map(|time| (*time, None)).collect();
    task.batch(0, partition, &events);
    task.end();
    assert_eq!(task.rows().len(), 11);
    assert!(task.rows().iter().all(|(_, count)| *count == 1));
    assert!(task.late().is_empty(), "late: {:?}", task.late());
    let [(time, rejection)] = task.seen.rejected[..] else {
        panic!("one is rejected: {:?}", task.seen.rejected)
    };
    assert_eq!((time, rejection.name()), (wall + 86_340_000, "timestamp_ahead_of_clock"));
}

#[test]
fn absolute_bounds_and_the_other_partitions_bound_times_as_well() {
    let bounds = Bounds {
        min: Some(EventTime::from_millis(0)),
        max: Some(EventTime::from_millis(10_000)),
        max_ahead_of_partitions: Some(span(100)),
        ..Bounds::default()
    };
    let mut task = Task::open(store(10).bounds(bounds));
    let partitions = [task.partition(0, "p0"), task.partition(0, "p1"), task.partition(0, "p2")];
    for (partition, time) in [(2, -1), (2, 10_001), (0, 5_000), (1, 50), (2, 5_101), (1, 5_100), (2, 5_100)] {
        task.event(0, partitions[partition], time);
    }
    let names: Vec<(i64, &str)> = task.seen.rejected.iter().map(|(time, why)| (*time, why.name())).collect();
    let expected = [
        (-1, "timestamp_before_min"),
        (10_001, "timestamp_after_max"),
        (5_101, "timestamp_ahead_of_partitions"),
    ];
    assert_eq!(names, expected);
    assert_eq!(task.store.watermark(), at(5_000));
    let none = Bounds { min: bounds.max, max: bounds.min, ..bounds };
    let folder = tempfile::tempdir().unwrap();
    let error = store(10).bounds(none).open(folder.path().join("state")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[test]
fn a_time_that_no_window_can_hold_is_rejected_and_moves_nothing() {
    let mut task = Task::open(store(10));
    let partition = task.partition(0, "p");
    task.batch(0, partition, &[(5, None), (i64::MAX - 3, None), (7, None)]);
    assert_eq!(task.seen.rejected, [(i64::MAX - 3, Rejection::OutOfRange)]);
    assert_eq!(task.store.watermark(), at(7));
}

#[test]
fn what_is_known_of_partitions_is_in_place_before_the_first_record_after_a_restart() {
    let builder = || store(10).idle_timeout(Some(SECOND)).delay(span(5));
    let mut task = Task::open(builder());
    let (live, idle) = (task.partition(0, "live"), task.partition(0, "idle"));
    task.event(0, idle, 8);
    task.clock.advance(SECOND);
    task.event(0, live, 30);
    assert_eq!(task.tick(|_| false), at(25));
    let mut task = task.restart(builder());
    assert_eq!(task.store.watermark(), at(25));
    let known: Vec<_> =
        task.store.partitions().map(|(_, progress)| (progress.idle, progress.watermark)).collect();
    assert_eq!(known, [(false, at(25)), (true, at(3))]);
    assert_eq!(task.event(0, live, 40), at(35), "the idle one still holds nothing back");
    task.event(0, idle, 9);
    assert_eq!(task.late(), [9]);
    assert_eq!(task.store.watermark(), at(35));
}

#[test]
fn a_partition_under_another_name_takes_nothing_back() {
    let mut task = Task::open(store(10));
    let before = task.partition(0, "day-1");
    task.event(0, before, 100);
    task.store.finish_partition(before, &mut task.seen).unwrap();
    let mut task = task.restart(store(10));
    let after = task.partition(0, "day-2");
    assert_eq!(task.event(0, after, 50), at(100));
    assert_eq!(task.late(), [50]);
    assert_eq!(task.event(0, after, 120), at(120));
}

fn two_sources(policy: Policy) -> WindowStoreBuilder {
    let mut of_orders = count("orders_only", 10);
    of_orders.sources = Some(vec!["orders".to_owned()]);
    WindowStore::builder("watermarks")
        .source(SourceSpec::new("orders", Strategy::Bounded(Span::ZERO)))
        .source(SourceSpec::new("payments", Strategy::Punctuated))
        .policy(policy)
        .window(count("both", 10))
        .window(of_orders)
}

#[test]
fn sources_have_rules_of_their_own_and_one_watermark() {
    for (policy, late) in [(Policy::Min, vec![]), (Policy::Max, vec![3])] {
        let mut task = Task::open(two_sources(policy));
        let (orders, payments) = (task.partition(0, "orders-0"), task.partition(1, "payments-0"));
        task.batch(0, orders, &[(1, None), (40, None)]);
        task.batch(1, payments, &[(3, None), (900, Some(20))]);
        let expected = if policy == Policy::Min { at(20) } else { at(40) };
        assert_eq!(task.store.watermark(), expected, "{policy:?}");
        let mut task = task.restart(two_sources(policy));
        assert_eq!(task.store.watermark(), expected);
        let sources: Vec<(&str, Watermark)> =
            task.store.sources().map(|(spec, watermark)| (spec.name.as_str(), watermark)).collect();
        assert_eq!(sources, [("orders", at(40)), ("payments", at(20))]);
        task.end();
        assert_eq!(task.late(), late, "{policy:?}");
        let of_orders = task.seen.rows.iter().filter(|row| row.operator == 1).count();
        assert_eq!(of_orders, 2, "payments are not in it");
    }
}

#[test]
fn a_source_that_is_not_declared_any_more_is_noticed_unless_it_was_finished() {
    let mut task = Task::open(two_sources(Policy::Min));
    let (orders, payments) = (task.partition(0, "orders-0"), task.partition(1, "payments-0"));
    task.event(0, orders, 1);
    task.event(1, payments, 2);
    let finished = |finished| {
        let partition =
            |partition| ReadTo { partition, position: Position { bytes: 1, records: 1 }, finished };
        Barrier { read_to: vec![partition(payments)], ..Barrier::default() }
    };
    task.store.checkpoint(finished(false)).unwrap();
    let Task { store, folder, .. } = task;
    drop(store);
    let mut of_orders = count("orders_only", 10);
    of_orders.sources = Some(vec!["orders".to_owned()]);
    let orders_alone = WindowStore::builder("watermarks")
        .source(SourceSpec::new("orders", Strategy::Bounded(Span::ZERO)))
        .source(SourceSpec::new("refunds", Strategy::Monotone))
        .window(count("both", 10))
        .window(of_orders);
    let error = orders_alone.open(folder.path().join("state")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert!(error.to_string().contains("source=payments"), "{error}");
}

#[test]
fn windows_close_in_a_silent_stream_when_asked_to() {
    let wall = 1_000_000_000;
    let builder = || store(10_000).delay(span(1_000)).idle_advance(Some(SECOND * 30));
    let mut task = Task::open_at(wall, builder());
    let partition = task.partition(0, "p");
    task.event(0, partition, wall - 500);
    task.clock.advance(SECOND * 29);
    assert_eq!(task.tick(|_| false), at(wall - 1_500));
    task.clock.advance(SECOND);
    assert_eq!(task.tick(|_| true), at(wall - 1_500), "something waits to be read");
    assert_eq!(task.tick(|_| false), at(wall + 28_500));
    assert_eq!(task.rows(), [(wall - 10_000, 1)]);
    let mut task = task.restart(builder());
    assert_eq!(task.store.watermark(), at(wall + 28_500));
    task.clock.advance(SECOND * 30);
    assert_eq!(task.tick(|_| false), at(wall + 58_500));
    assert_eq!(task.event(0, partition, wall + 59_000), at(wall + 58_500));
    assert!(task.late().is_empty(), "late: {:?}", task.late());
}

/// Source of each partition of the property below.
const SOURCES: [u16; 3] = [0, 0, 1];

fn run_in_pieces(
    policy: Policy,
    events: &[(usize, i64)],
    cuts: &[(usize, bool)],
) -> (Vec<(usize, i64, i64)>, Vec<i64>) {
    let builder = || {
        let mut first = count("first", 10);
        first.sources = Some(vec!["first".to_owned()]);
        WindowStore::builder("watermarks")
            .source(SourceSpec::new("first", Strategy::Bounded(span(7))))
            .source(SourceSpec::new("second", Strategy::Monotone))
            .policy(policy)
            .window(count("all", 8))
            .window(first)
    };
    let mut task = Task::open(builder());
    let mut cuts = cuts.iter().copied();
    let mut rest = events;
    while !rest.is_empty() {
        let (length, restart) = cuts.next().unwrap_or((1, false));
        let (piece, later) = rest.split_at(length.clamp(1, rest.len()));
        let partitions: Vec<PartitionId> =
            (0..3).map(|index| task.partition(SOURCES[index], &format!("p{index}"))).collect();
        for run in piece.chunk_by(|left, right| left.0 == right.0) {
            let times: Vec<(i64, Option<i64>)> = run.iter().map(|(_, time)| (*time, None)).collect();
            task.batch(SOURCES[run[0].0], partitions[run[0].0], &times);
        }
        rest = later;
        if restart {
            task = task.restart(builder());
        }
    }
    task.end();
    let counts = task.rows();
    let rows = task.seen.rows.iter().zip(counts).map(|(row, (start, count))| (row.operator, start, count));
    let mut rows: Vec<_> = rows.collect();
    rows.sort_unstable();
    let mut late = task.late();
    late.sort_unstable();
    (rows, late)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn where_batches_are_cut_and_where_a_process_ends_does_not_show(
        max in any::<bool>(),
        events in prop::collection::vec((0_usize..3, 0_i64..80), 1..60),
        cuts in prop::collection::vec((1_usize..9, prop::bool::weighted(0.2)), 0..20),
    ) {
        let policy = if max { Policy::Max } else { Policy::Min };
        let (rows, late) = run_in_pieces(policy, &events, &cuts);
        let (straight, straight_late) = run_in_pieces(policy, &events, &[(events.len(), false)]);
        prop_assert_eq!(rows, straight);
        prop_assert_eq!(late, straight_late);
    }
}

/// Runs a pipeline over one file of `lines`, with `extra` in front of the windows.
fn run_file(folder: &Path, lines: &str) -> RunSummary {
    std::fs::create_dir_all(folder).unwrap();
    let mut file = std::fs::File::create(folder.join("in.jsonl")).unwrap();
    std::io::Write::write_all(&mut file, lines.as_bytes()).unwrap();
    let text = r#"name = "t"
source = { path = "in.jsonl", time = { field = "ts", format = "epoch_ms" } }
watermark = { delay = "0s" }
state = { directory = "state" }
dead_letter = { path = "dead" }
[[window]]
name = "w"
key = ["key"]
type = "tumbling"
size = "10ms"
aggregates = [{ name = "rows", function = "count" }]
output = { path = "out" }
"#;
    let config = PipelineConfig::from_str(text, &folder.join("t.toml")).unwrap();
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    run(&config, RunOptions::default(), &StopFlag::default(), clock, &mut Silent).unwrap()
}

#[test]
fn b41_b44_what_has_no_time_or_no_key_is_set_aside_and_an_empty_key_counts() {
    let folder = tempfile::tempdir().unwrap();
    let lines = "{\"ts\":1,\"key\":\"\"}\n{\"ts\":null,\"key\":\"a\"}\n{\"ts\":2,\"key\":null}\n{\"ts\":3,\"key\":\"a\"}\n";
    let summary = run_file(folder.path(), lines);
    assert_eq!(summary.total.results["w"], 2);
    let rejected: Vec<(&str, u64)> =
        summary.total.rejected.iter().map(|(reason, count)| (reason.as_str(), *count)).collect();
    assert_eq!(rejected, [("null_key", 1), ("null_timestamp", 1)]);
}

#[test]
fn b43_a_partition_that_ends_with_rejected_records_is_read_to_its_end_once() {
    let folder = tempfile::tempdir().unwrap();
    let lines = "{\"ts\":5,\"key\":\"a\"}\n{\"ts\":7,\"key\":\"a\"}\n{\"ts\":null,\"key\":\"a\"}\n";
    let first = run_file(folder.path(), lines);
    assert_eq!((first.total.events, first.total.rejected["null_timestamp"]), (2, 1));
    let again = run_file(folder.path(), lines);
    assert_eq!((again.events, again.input_bytes, again.total.rejected["null_timestamp"]), (0, 0, 1));
}
