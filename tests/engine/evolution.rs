//! State taken over by a changed definition: what was counted stays counted, what is new starts empty, what may not
//! change is refused, and doing it again gives the same.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use floodmark::aggregate::{
    Aggregate, AggregateSpec, Datum, Function, InputType, Observation, StateError, Value,
};
use floodmark::checkpoint::{OperatorState, SourceIdentity};
use floodmark::error::ErrorKind;
use floodmark::event::{EventBatch, Number, ValueColumn};
use floodmark::event_time::{EventTime, Span, Tumbling, Windows};
use floodmark::operator::{OperatorSpec, PaneKind, Trigger};
use floodmark::store::evolution::{PaneMigration, Renames, StoredPane};
use floodmark::store::{Barrier, Collected, CollectedRow, ReadTo, WindowStore, WindowStoreBuilder};

fn span(millis: i64) -> Span {
    Span::from_millis(millis).unwrap()
}

fn over(name: &str, function: Function) -> AggregateSpec {
    AggregateSpec::over(name, function, "x", InputType::Int, 0)
}

fn window(name: &str, size: i64, aggregates: Vec<AggregateSpec>) -> OperatorSpec {
    let windows: Windows = Tumbling::new(span(size), 0).unwrap().into();
    OperatorSpec::new(name, windows, &["k"], aggregates)
}

fn builder(windows: impl IntoIterator<Item = OperatorSpec>) -> WindowStoreBuilder {
    windows.into_iter().fold(WindowStore::builder("evolving"), WindowStoreBuilder::window)
}

/// Processes events, and ends with a checkpoint.
fn feed(store: &mut WindowStore, events: &[(i64, &str, i64)]) -> Collected {
    let seen = feed_only(store, events);
    let (partition, mut position) = store.partition("p", SourceIdentity::default()).unwrap();
    position.records += events.len() as u64;
    let read_to = vec![ReadTo { partition, position, finished: false }];
    store.checkpoint(Barrier { read_to, ..Barrier::default() }).unwrap();
    seen
}

fn feed_only(store: &mut WindowStore, events: &[(i64, &str, i64)]) -> Collected {
    let (partition, _) = store.partition("p", SourceIdentity::default()).unwrap();
    let mut seen = Collected::default();
    for chunk in events.chunks(10_000) {
        let mut batch = EventBatch::with_columns(partition, 1, vec![ValueColumn::int()]);
        for (time, key, value) in chunk {
            batch.push_event(EventTime::from_millis(*time), &[key.as_bytes()], &[Some(Number::Int(*value))]);
        }
        store.process(&batch, &mut seen).unwrap();
    }
    seen
}

fn ints(rows: &[CollectedRow], operator: usize) -> BTreeMap<(i64, String), Vec<Option<i128>>> {
    let int = |value: &Value| match value {
        Value::Int(value) => Some(*value),
        Value::Null => None,
        other => panic!("an integer or null: {other:?}"),
    };
    let rows = rows.iter().filter(|row| row.operator == operator);
    rows.map(|row| {
        let key = String::from_utf8(row.key.clone()).unwrap();
        ((row.window.end.as_millis(), key), row.values.iter().map(int).collect())
    })
    .collect()
}

/// Every file of the checkpoints, with its bytes.
fn checkpoints(path: &Path) -> BTreeMap<std::path::PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut open = vec![path.join("checkpoints")];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                files.insert(path.clone(), std::fs::read(path).unwrap());
            }
        }
    }
    files
}

#[test]
fn panes_that_were_spilled_in_parts_are_taken_over_whole() {
    let directory = tempfile::tempdir().unwrap();
    let old =
        || builder([window("w", 1_000, vec![over("sum", Function::Sum), over("last", Function::Last)])]);
    let small = |builder: WindowStoreBuilder| builder.memory_bytes(16 << 20).open(directory.path()).unwrap();
    let names: Vec<String> =
        (0..60_000).map(|key| format!("key-{key:08}-with-a-tail-that-takes-memory")).collect();
    let pass = |time: i64, value: i64| -> Vec<(i64, &str, i64)> {
        names.iter().map(|name| (time, name.as_str(), value)).collect()
    };
    let mut store = small(old());
    feed_only(&mut store, &pass(1, 5));
    // Panes have left memory; what comes now is merged into them unread.
    feed(&mut store, &pass(2, 7));
    drop(store);
    let new = vec![over("max", Function::Max), over("last", Function::Last), over("sum", Function::Sum)];
    let mut store = small(builder([window("w", 1_000, new)]));
    feed_only(&mut store, &[(3, names[0].as_str(), 1)]);
    let seen = feed(&mut store, &[(1_000, "end", 0)]);
    let rows = ints(&seen.rows, 0);
    assert_eq!(rows.len(), names.len());
    for (index, name) in names.iter().enumerate() {
        let expected =
            if index == 0 { vec![Some(1), Some(1), Some(13)] } else { vec![None, Some(7), Some(12)] };
        assert_eq!(rows[&(1_000, name.clone())], expected, "{name}");
    }
}

#[test]
fn a_change_is_repeated_until_a_checkpoint_holds_it_and_touches_no_older_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let (sum, count) = (over("sum", Function::Sum), AggregateSpec::count("rows"));
    let mut store = builder([window("old", 100, vec![sum.clone()]), window("gone", 50, vec![count.clone()])])
        .open(path)
        .unwrap();
    feed(&mut store, &[(10, "a", 5), (20, "b", 6)]);
    drop(store);
    let stored = checkpoints(path);
    let mut total = sum;
    total.name = "total".to_owned();
    let changed = || {
        let aggregates = vec![over("least", Function::Min), total.clone()];
        let renames = Renames {
            was: Some("old".to_owned()),
            aggregates: BTreeMap::from([("total".to_owned(), "sum".to_owned())]),
            ..Renames::default()
        };
        builder([window("fresh", 15, vec![count.clone()]), window("new", 100, aggregates)])
            .renames("new", renames)
    };
    let refused = changed().open(path).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Incompatible);
    assert!(refused.to_string().contains("\"gone\""), "{refused}");
    for round in 0..3 {
        let mut store = changed().allow_dropped(true).open(path).unwrap();
        let seen = feed_only(&mut store, &[(12, "a", 1), (30, "a", 3), (100, "b", 1)]);
        let expected = BTreeMap::from([
            ((100, "a".to_owned()), vec![Some(1), Some(9)]),
            ((100, "b".to_owned()), vec![None, Some(6)]),
        ]);
        assert_eq!(ints(&seen.rows, 1), expected, "round {round}");
        // Windows that the watermark had passed are not produced by one that is new.
        let fresh: Vec<i64> = ints(&seen.rows, 0).into_keys().map(|(end, _)| end).collect();
        assert_eq!(fresh, [45], "round {round}");
        assert_eq!(seen.late.len(), 1, "12 is late for the new window only");
        drop(store);
        assert_eq!(checkpoints(path), stored, "round {round}");
    }
    let mut store = changed().allow_dropped(true).open(path).unwrap();
    feed(&mut store, &[(30, "a", 3)]);
    drop(store);
    // Nothing is left to be allowed or renamed.
    let mut store = changed().open(path).unwrap();
    let seen = feed_only(&mut store, &[(100, "b", 1)]);
    assert_eq!(ints(&seen.rows, 1)[&(100, "a".to_owned())], [Some(3), Some(8)]);
}

#[test]
fn windows_that_were_forgotten_stay_late_when_the_allowed_lateness_grows() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let with = |lateness: i64| {
        let mut spec = window("w", 10, vec![over("sum", Function::Sum)]);
        spec.allowed_lateness = span(lateness);
        builder([spec])
    };
    let mut store = with(5).open(path).unwrap();
    // Ends by 20 are closed; 10 has expired, 20 has not.
    feed(&mut store, &[(5, "a", 1), (15, "a", 2), (22, "a", 4)]);
    drop(store);
    for round in 0..2 {
        let mut store = with(1_000).open(path).unwrap();
        let seen = feed(&mut store, &[(6, "a", 10), (16, "a", 20)]);
        let late: Vec<(i64, i64)> =
            seen.late.iter().map(|late| (late.time.as_millis(), late.late_by_ms)).collect();
        assert_eq!(late, [(6, 0)], "round {round}");
        let again: Vec<_> = seen.rows.iter().map(|row| (row.window.end.as_millis(), row.kind)).collect();
        assert_eq!(again, [(20, PaneKind::Late)], "round {round}");
        assert_eq!(ints(&seen.rows, 0)[&(20, "a".to_owned())], [Some(22 + 20 * round)], "round {round}");
    }
    // A window that closes under the longer lateness has all of it.
    let mut store = with(1_000).open(path).unwrap();
    feed(&mut store, &[(900, "a", 0)]);
    let seen = feed(&mut store, &[(25, "a", 1)]);
    assert_eq!(ints(&seen.rows, 0)[&(30, "a".to_owned())], [Some(5)]);
}

#[test]
fn a_shorter_lateness_and_a_new_trigger_keep_what_is_open() {
    for (before, after, trigger) in
        [(50, 0, Trigger::Watermark), (0, 50, Trigger::Watermark), (0, 0, Trigger::Early(span(4)))]
    {
        let directory = tempfile::tempdir().unwrap();
        let with = |lateness: i64, trigger: Trigger| {
            let mut spec = window("w", 10, vec![over("sum", Function::Sum)]);
            (spec.allowed_lateness, spec.trigger) = (span(lateness), trigger);
            builder([spec])
        };
        let mut store = with(before, Trigger::Watermark).open(directory.path()).unwrap();
        feed(&mut store, &[(5, "a", 1), (13, "a", 2)]);
        drop(store);
        let mut store = with(after, trigger).open(directory.path()).unwrap();
        let seen = feed(&mut store, &[(4, "a", 9), (14, "a", 4), (20, "a", 0)]);
        let on_time: Vec<_> = seen.rows.iter().filter(|row| row.kind == PaneKind::OnTime).cloned().collect();
        let expected = BTreeMap::from([((20, "a".to_owned()), vec![Some(6)])]);
        assert_eq!(ints(&on_time, 0), expected, "{before} {after} {trigger}");
        assert_eq!(seen.late.len(), 1, "{before} {after} {trigger}");
    }
}

#[test]
fn sessions_keep_their_starts_beside_what_is_added() {
    let directory = tempfile::tempdir().unwrap();
    let with = |aggregates| {
        let windows = Windows::session(span(10)).unwrap();
        builder([OperatorSpec::new("s", windows, &["k"], aggregates)])
    };
    let mut store = with(vec![over("sum", Function::Sum)]).open(directory.path()).unwrap();
    feed(&mut store, &[(5, "a", 1), (12, "a", 2)]);
    drop(store);
    let aggregates =
        vec![over("sum", Function::Sum), over("max", Function::Max), over("first", Function::First)];
    let mut store = with(aggregates).open(directory.path()).unwrap();
    let seen = feed(&mut store, &[(15, "a", 7), (100, "b", 0)]);
    let row = &seen.rows[0];
    assert_eq!((row.window.start.as_millis(), row.window.end.as_millis()), (5, 25));
    assert_eq!(row.values, [Value::Int(10), Value::Int(7), Value::Int(7)]);
}

/// Counts values above a threshold; its first version kept the number in four bytes.
#[derive(Debug)]
struct Above {
    version: u32,
    migrates: bool,
}

impl Aggregate for Above {
    type State = u64;

    fn name(&self) -> String {
        "above(3)".to_owned()
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn identity(&self) -> u64 {
        0
    }

    fn update(&self, state: &mut u64, event: &Observation<'_>) {
        *state += u64::from(matches!(event.value, Datum::Int(value) if value > 3));
    }

    fn merge(&self, state: &mut u64, other: &u64) {
        *state = state.saturating_add(*other);
    }

    fn finish(&self, state: &u64) -> Value {
        Value::Int(i128::from(*state))
    }

    fn encode(&self, state: &u64, bytes: &mut Vec<u8>) {
        match self.version {
            1 => bytes.extend_from_slice(&(*state as u32).to_le_bytes()),
            _ => bytes.extend_from_slice(&state.to_le_bytes()),
        }
    }

    fn decode(&self, bytes: &[u8]) -> Result<u64, StateError> {
        let wrong = StateError("a number of another width");
        match self.version {
            1 => Ok(u32::from_le_bytes(bytes.try_into().map_err(|_| wrong)?).into()),
            _ => Ok(u64::from_le_bytes(bytes.try_into().map_err(|_| wrong)?)),
        }
    }

    fn migrate(&self, version: u32, bytes: &[u8]) -> Option<Result<u64, StateError>> {
        (self.migrates && version == 1).then(|| Self { version: 1, migrates: false }.decode(bytes))
    }
}

#[test]
fn a_new_version_of_an_own_aggregate_needs_a_migration_and_takes_it() {
    let directory = tempfile::tempdir().unwrap();
    let with = |version: u32, migrates: bool| {
        let above = AggregateSpec::defined("above", Above { version, migrates }, "x", InputType::Int, 0);
        builder([window("w", 10, vec![over("sum", Function::Sum), above])])
    };
    let mut store = with(1, false).open(directory.path()).unwrap();
    feed(&mut store, &[(1, "a", 5), (2, "a", 1)]);
    drop(store);
    let refused = with(2, false).open(directory.path()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Incompatible);
    assert!(refused.to_string().contains("version 1, the code is of version 2"), "{refused}");
    let mut store = with(2, true).open(directory.path()).unwrap();
    let seen = feed(&mut store, &[(3, "a", 4), (10, "b", 0)]);
    assert_eq!(ints(&seen.rows, 0)[&(10, "a".to_owned())], [Some(10), Some(2)]);
    drop(store);
    with(2, false).open(directory.path()).unwrap();
}

/// What was summed in euros is summed in cents from now on.
#[derive(Debug)]
struct Cents;

impl PaneMigration for Cents {
    fn accepts(&self, stored: &OperatorState) -> bool {
        stored.definition.contains("\"euros\"")
    }

    fn migrate(&self, pane: StoredPane<'_>) -> Result<Vec<u8>, String> {
        assert_eq!(pane.end, EventTime::from_millis(10));
        let (counts, sum) = pane.payload.split_last_chunk::<16>().ok_or("too short")?;
        Ok([counts, &(i128::from_le_bytes(*sum) * 100).to_le_bytes()].concat())
    }
}

#[test]
fn a_declared_migration_rewrites_panes_that_no_rule_covers() {
    let directory = tempfile::tempdir().unwrap();
    let with = |name: &str| builder([window("w", 10, vec![over(name, Function::Sum)])]);
    let mut store = with("euros").open(directory.path()).unwrap();
    feed(&mut store, &[(1, "a", 5)]);
    drop(store);
    assert!(with("cents").open(directory.path()).is_err(), "nothing is declared");
    let declared = || with("cents").migrate("w", Arc::new(Cents));
    let mut store = declared().open(directory.path()).unwrap();
    feed(&mut store, &[(2, "a", 250)]);
    drop(store);
    // It does not take what it has written itself.
    let mut store = declared().open(directory.path()).unwrap();
    let seen = feed(&mut store, &[(10, "b", 0)]);
    assert_eq!(ints(&seen.rows, 0)[&(10, "a".to_owned())], [Some(750)]);
}

#[test]
fn what_is_added_stays_apart_through_restarts_and_further_changes() {
    let directory = tempfile::tempdir().unwrap();
    let with = |aggregates: &[(&str, Function)]| {
        let aggregates = aggregates.iter().map(|(name, function)| over(name, *function)).collect();
        builder([window("w", 100, aggregates)]).allow_dropped(true).open(directory.path()).unwrap()
    };
    let (sum, min, max) = (("sum", Function::Sum), ("min", Function::Min), ("max", Function::Max));
    feed(&mut with(&[sum]), &[(1, "a", 2), (2, "b", 2)]);
    feed(&mut with(&[sum, min]), &[(3, "a", 7)]);
    feed(&mut with(&[sum, min]), &[(4, "a", 5)]);
    feed(&mut with(&[max, min, sum]), &[(5, "a", 4)]);
    feed(&mut with(&[max, sum]), &[(6, "a", 3)]);
    let seen = feed(&mut with(&[min, max, sum]), &[(7, "a", 6), (100, "c", 0)]);
    let rows = ints(&seen.rows, 0);
    // The second min knows the last event only; sum has them all.
    assert_eq!(rows[&(100, "a".to_owned())], [Some(6), Some(6), Some(27)]);
    assert_eq!(rows[&(100, "b".to_owned())], [None, None, Some(2)]);
}
