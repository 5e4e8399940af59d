//! Aggregates with states of variable size in a store: whatever is moved out of memory, checkpointed and restored, the
//! results are those of one uninterrupted pass in memory.

use std::path::Path;

use floodmark::aggregate::{
    Aggregate, AggregateSpec, Beyond, Datum, Fraction, Function, InputType, Keep, Observation, StateError,
    Value, laws,
};
use floodmark::checkpoint::{Position, SourceIdentity};
use floodmark::error::ErrorKind;
use floodmark::event::{EventBatch, KeyColumn, ValueColumn};
use floodmark::event_time::{EventTime, Span, Tumbling};
use floodmark::operator::{OperatorSpec, PartitionId, Trigger};
use floodmark::store::{Barrier, Collected, CollectedRow, ReadTo, WindowStore};

/// The product of the values modulo a prime: an aggregate that no library has.
#[derive(Debug)]
struct Product;

const PRIME: u64 = 1_000_000_007;

impl Aggregate for Product {
    type State = u64;

    fn name(&self) -> String {
        format!("product(modulo={PRIME})")
    }

    fn version(&self) -> u32 {
        1
    }

    fn accepts(&self, input: InputType) -> bool {
        input == InputType::Int
    }

    fn identity(&self) -> u64 {
        1
    }

    fn update(&self, state: &mut u64, event: &Observation<'_>) {
        if let Datum::Int(value) = event.value {
            *state = *state * (value.rem_euclid(PRIME as i64) as u64) % PRIME;
        }
    }

    fn merge(&self, state: &mut u64, other: &u64) {
        *state = *state * other % PRIME;
    }

    fn finish(&self, state: &u64) -> Value {
        Value::Int(i128::from(*state))
    }

    fn encode(&self, state: &u64, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&state.to_le_bytes());
    }

    fn decode(&self, bytes: &[u8]) -> Result<u64, StateError> {
        let state = bytes.try_into().map(u64::from_le_bytes).map_err(|_| StateError("not eight bytes"))?;
        if state < PRIME { Ok(state) } else { Err(StateError("not below the prime")) }
    }
}

fn aggregates() -> Vec<AggregateSpec> {
    let int = |name: &str, function| AggregateSpec::over(name, function, "n", InputType::Int, 0);
    let text = |name: &str, function| AggregateSpec::over(name, function, "s", InputType::Text, 1);
    let price = |name: &str, function| AggregateSpec::over(name, function, "p", InputType::Decimal(2), 2);
    vec![
        AggregateSpec::count("rows"),
        int("stddev", Function::Stddev),
        int("median", Function::Quantile { q: Fraction::HALF }),
        AggregateSpec::defined("product", Product, "n", InputType::Int, 0),
        text("distinct", Function::Distinct { limit: 50, beyond: Beyond::Estimate }),
        text("approx", Function::ApproxDistinct { precision: 8 }),
        text("top", Function::TopK { k: 3, limit: 1_000 }),
        text("least", Function::Min),
        price("first", Function::First),
        price("last", Function::Last),
        price("average", Function::Avg),
        price("list", Function::Collect { limit: 200, keep: Keep::Last }),
    ]
}

fn spec() -> OperatorSpec {
    let windows = Tumbling::new(Span::from_millis(1_000).unwrap(), 0).unwrap();
    OperatorSpec::new("op", windows, &["key"], aggregates())
}

/// Events that come out of order within a second, from a fixed sequence.
fn batch(partition: PartitionId, events: std::ops::Range<u64>) -> EventBatch {
    let columns = vec![ValueColumn::int(), ValueColumn::text(), ValueColumn::decimal(2)];
    let mut batch = EventBatch::with_columns(partition, 1, columns);
    for event in events {
        let mixed = event.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        let time = (event / 2_000 * 100 + mixed % 300) as i64;
        let key = format!("key-{}", mixed % 97);
        let text = format!("a text that is long enough to be on the heap: {}", mixed % 211);
        let values = [
            (!mixed.is_multiple_of(5)).then_some(Datum::Int(mixed as i64 % 1_000)),
            Some(Datum::Text(text.as_bytes())),
            Some(Datum::Decimal { unscaled: (mixed % 10_000) as i64, scale: 2 }),
        ];
        batch.push_event(EventTime::from_millis(time), &[key.as_bytes()], &values);
        batch.records.push(event + 1);
    }
    batch
}

const EVENTS: u64 = 60_000;

struct Run {
    memory_bytes: usize,
    batch: u64,
    /// The store is dropped and opened again after so many batches.
    restart_every: u64,
    workers: usize,
    spec: OperatorSpec,
}

impl Run {
    fn open(&self, path: &Path) -> (WindowStore, PartitionId, u64) {
        let builder = WindowStore::builder("test").window(self.spec.clone());
        let builder = builder
            .delay(Span::from_millis(500).unwrap())
            .memory_bytes(self.memory_bytes)
            .workers(self.workers);
        let mut store = builder.open(path).unwrap();
        let (partition, position) = store.partition("input", SourceIdentity::default()).unwrap();
        (store, partition, position.records)
    }

    /// The results, and whether panes were moved out of memory.
    fn results(&self) -> (Vec<CollectedRow>, bool) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let (mut store, mut partition, mut at) = self.open(&path);
        let (mut collected, mut spilled) = (Collected::default(), false);
        let mut batches = 0;
        while at < EVENTS {
            let to = (at + self.batch).min(EVENTS);
            store.process(&batch(partition, at..to), &mut collected).unwrap();
            spilled |= store.open_windows(0).any(|window| !window.complete);
            at = to;
            batches += 1;
            if batches % self.restart_every == 0 {
                let position = Position { bytes: 0, records: at };
                let read_to = vec![ReadTo { partition, position, finished: false }];
                store.checkpoint(Barrier { read_to, ..Barrier::default() }).unwrap();
                drop(store);
                (store, partition, at) = self.open(&path);
            }
        }
        store.end_of_input(&mut collected).unwrap();
        (collected.rows, spilled)
    }
}

fn same(left: &[CollectedRow], right: &[CollectedRow]) {
    assert_eq!(left.len(), right.len());
    for (left, right) in left.iter().zip(right) {
        assert_eq!((left.window, &left.key, left.kind), (right.window, &right.key, right.kind));
        for (found, expected) in left.values.iter().zip(&right.values) {
            assert!(laws::same_value(found, expected), "{:?}: {found:?} {expected:?}", left.key);
        }
    }
}

#[test]
fn results_are_those_of_one_pass_whatever_is_spilled_and_restored() {
    let straight =
        Run { memory_bytes: 1 << 30, batch: EVENTS, restart_every: u64::MAX, workers: 1, spec: spec() };
    let (expected, spilled) = straight.results();
    assert!(!spilled && expected.len() > 97 * 3);
    for workers in [1, 2, 3, 8] {
        let cut = Run { batch: 1_777, restart_every: 7, workers, spec: spec(), ..straight };
        same(&cut.results().0, &expected);
    }
    let tight = Run { memory_bytes: 16 << 20, batch: 500, restart_every: 40, workers: 2, spec: spec() };
    let (found, spilled) = tight.results();
    assert!(spilled, "the budget was large enough");
    same(&found, &expected);
}

#[test]
fn panes_that_fire_more_than_once_keep_their_states() {
    let mut spec = spec();
    spec.trigger = Trigger::Count(50);
    let straight =
        Run { memory_bytes: 1 << 30, batch: EVENTS, restart_every: u64::MAX, workers: 8, spec: spec.clone() };
    let (expected, _) = straight.results();
    assert!(expected.iter().any(|row| row.pane_index > 0));
    let tight = Run { memory_bytes: 16 << 20, batch: 700, restart_every: 30, workers: 3, spec };
    same(&tight.results().0, &expected);
}

#[test]
fn a_program_with_another_version_of_an_aggregate_is_refused_its_state() {
    #[derive(Debug)]
    struct Newer;
    impl Aggregate for Newer {
        type State = u64;
        fn name(&self) -> String {
            Product.name()
        }
        fn version(&self) -> u32 {
            2
        }
        fn identity(&self) -> u64 {
            1
        }
        fn update(&self, _: &mut u64, _: &Observation<'_>) {}
        fn merge(&self, _: &mut u64, _: &u64) {}
        fn finish(&self, _: &u64) -> Value {
            Value::Null
        }
        fn encode(&self, _: &u64, _: &mut Vec<u8>) {}
        fn decode(&self, _: &[u8]) -> Result<u64, StateError> {
            Ok(1)
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let run = Run { memory_bytes: 64 << 20, batch: 1, restart_every: 1, workers: 1, spec: spec() };
    let (mut store, partition, _) = run.open(&path);
    store.process(&batch(partition, 0..100), &mut Collected::default()).unwrap();
    store.checkpoint(Barrier::default()).unwrap();
    drop(store);
    let mut newer = spec();
    newer.aggregates[3] = AggregateSpec::defined("product", Newer, "n", InputType::Int, 0);
    let refused = WindowStore::builder("test").window(newer).open(&path).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Incompatible);
    assert!(refused.to_string().contains("product(modulo=1000000007)"), "{refused}");
    let report = floodmark::inspect::windows(&path, None, None, 5, 0).unwrap_err();
    assert!(report.to_string().contains("product(modulo=1000000007) version 1"), "{report}");
}

#[test]
fn a_user_defined_aggregate_keeps_the_laws() {
    let values = [-4, 0, 7, i64::MAX, i64::MIN].map(Datum::Int);
    laws::check(&Product, &laws::at_different_times(&values)).unwrap();
}

#[test]
fn aggregates_that_cannot_be_computed_are_refused_before_any_input() {
    let folder = tempfile::tempdir().unwrap();
    let refusal = |aggregate: AggregateSpec| {
        let mut spec = spec();
        spec.aggregates = vec![aggregate];
        let error = WindowStore::builder("test").window(spec).open(folder.path().join("state")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        error.to_string()
    };
    let sum = AggregateSpec::over("total", Function::Sum, "s", InputType::Text, 0);
    assert!(refusal(sum).contains("name=total: sum does not work with values of type string"));
    let product = AggregateSpec::defined("p", Product, "s", InputType::Text, 0);
    assert!(refusal(product).contains("product(modulo=1000000007) version 1 does not work"));
}

#[test]
fn a_column_of_another_type_than_declared_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let run = Run { memory_bytes: 64 << 20, batch: 1, restart_every: 1, workers: 1, spec: spec() };
    let (mut store, partition, _) = run.open(&folder.path().join("state"));
    let mut batch = batch(partition, 0..3);
    batch.values.swap(0, 1);
    let error = store.process(&batch, &mut Collected::default()).unwrap_err();
    assert!(error.to_string().contains("another type: field=n type=int"), "{error}");
}

/// A table that is large enough for the workers to be woken.
#[test]
fn workers_side_by_side_give_what_one_gives() {
    const KEYS: u64 = 30_000;
    let run = |workers: usize| {
        let folder = tempfile::tempdir().unwrap();
        let windows = Tumbling::new(Span::from_millis(1 << 40).unwrap(), 0).unwrap();
        let spec = OperatorSpec::new("op", windows, &["key"], aggregates());
        let run = Run { memory_bytes: 1 << 30, batch: 1, restart_every: 1, workers, spec };
        let (mut store, partition, _) = run.open(&folder.path().join("state"));
        let mut collected = Collected::default();
        for first in (0..KEYS * 3).step_by(5_000) {
            let mut batch = batch(partition, first..first + 5_000);
            batch.keys = vec![KeyColumn::default()];
            for event in first..first + 5_000 {
                batch.keys[0].push(format!("a key of many that begin alike {}", event * 7 % KEYS).as_bytes());
            }
            store.process(&batch, &mut collected).unwrap();
        }
        assert!(store.hot_bytes() > 8 << 20);
        store.end_of_input(&mut collected).unwrap();
        collected.rows
    };
    let one = run(1);
    assert_eq!(one.len(), KEYS as usize);
    for workers in [2, 3, 16] {
        same(&run(workers), &one);
    }
}
