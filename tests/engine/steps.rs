//! Aggregations over the results of others: a second step sees every result of the first, once, before its watermark
//! passes it.

use std::collections::BTreeMap;

use floodmark::aggregate::{AggregateSpec, Function, InputType, Value};
use floodmark::checkpoint::SourceIdentity;
use floodmark::error::ErrorKind;
use floodmark::event::{EventBatch, Number};
use floodmark::event_time::{EventTime, Sliding, Span, Tumbling, Windows};
use floodmark::operator::{OperatorSpec, Trigger};
use floodmark::store::{Barrier, Collected, ReadTo, WindowStore, WindowStoreBuilder};

type Results = BTreeMap<(usize, i64, i64, String), (i128, u32)>;

fn span(millis: i64) -> Span {
    Span::from_millis(millis).unwrap()
}

fn tumbling(millis: i64) -> Windows {
    Tumbling::new(span(millis), 0).unwrap().into()
}

fn sum_of(field: &str) -> AggregateSpec {
    AggregateSpec::over("total", Function::Sum, field, InputType::Int, 0)
}

/// Counts by key in windows of 5, adds these up in windows of 10, and those over all keys in sliding windows.
fn builder() -> WindowStoreBuilder {
    let first = OperatorSpec::new("first", tumbling(5), &["k"], vec![AggregateSpec::count("n")]);
    let mut second = OperatorSpec::new("second", tumbling(10), &["k"], vec![sum_of("n")]);
    second.input = Some("first".to_owned());
    let sliding = Sliding::new(span(20), span(10), 0).unwrap();
    let mut third = OperatorSpec::new("third", sliding, &[], vec![sum_of("total")]);
    third.input = Some("second".to_owned());
    WindowStore::builder("steps").window(first).window(second).window(third)
}

/// Runs the events, ending the process after those in `kills`; with `close` the input ends.
fn run(events: &[(i64, &str)], kills: &[usize], close: bool) -> Results {
    let directory = tempfile::tempdir().unwrap();
    let mut results = Results::new();
    let mut take = |seen: Collected| {
        assert!(seen.late.iter().all(|late| late.operator == 0), "a result came late: {:?}", seen.late);
        for row in seen.rows {
            let [Value::Int(value)] = row.values[..] else { panic!("one integer: {:?}", row.values) };
            let key = String::from_utf8(row.key).unwrap();
            let place = (row.operator, row.window.start.as_millis(), row.window.end.as_millis(), key);
            let entry = results.entry(place).or_default();
            *entry = (value, entry.1 + 1);
        }
    };
    let mut store = builder().open(directory.path()).unwrap();
    for (index, (time, key)) in events.iter().enumerate() {
        let (partition, mut at) = store.partition("p", SourceIdentity::default()).unwrap();
        let mut batch = EventBatch::with_columns(partition, 2, Vec::new());
        batch.push_event::<Number>(EventTime::from_millis(*time), &[key.as_bytes(), b""], &[]);
        let mut seen = Collected::default();
        store.process(&batch, &mut seen).unwrap();
        take(seen);
        if kills.contains(&index) {
            at.records = index as u64 + 1;
            let read_to = vec![ReadTo { partition, position: at, finished: false }];
            store.checkpoint(Barrier { read_to, ..Barrier::default() }).unwrap();
            drop(store);
            store = builder().open(directory.path()).unwrap();
        }
    }
    if close {
        let mut seen = Collected::default();
        store.end_of_input(&mut seen).unwrap();
        take(seen);
    }
    results
}

fn expected(rows: &[(usize, i64, i64, &str, i128)]) -> Results {
    rows.iter()
        .map(|&(step, start, end, key, value)| ((step, start, end, key.to_owned()), (value, 1)))
        .collect()
}

#[test]
fn b50_the_second_step_loses_nothing_to_the_first_ones_watermark() {
    let events = [(1, "a"), (6, "a"), (12, "a"), (30, "a")];
    let all = expected(&[
        (0, 0, 5, "a", 1),
        (0, 5, 10, "a", 1),
        (0, 10, 15, "a", 1),
        (0, 30, 35, "a", 1),
        (1, 0, 10, "a", 2),
        (1, 10, 20, "a", 1),
        (1, 30, 40, "a", 1),
        (2, -10, 10, "", 2),
        (2, 0, 20, "", 3),
        (2, 10, 30, "", 1),
        (2, 20, 40, "", 1),
        (2, 30, 50, "", 1),
    ]);
    assert_eq!(run(&events, &[], true), all);
    for kill in 0..events.len() {
        assert_eq!(run(&events, &[kill], true), all, "killed after {kill}");
    }
    assert_eq!(run(&events, &[0, 1, 2, 3], true), all);
    // While the input goes on, what is closed in the first step is closed in the others as well.
    let closed = |result: &Results| result.keys().filter(|(_, _, end, _)| *end <= 30).count();
    assert_eq!(run(&events, &[], false).len(), closed(&all));
}

#[test]
fn a_step_that_could_not_be_exact_is_refused_before_any_input() {
    let refused = |change: fn(&mut OperatorSpec, &mut OperatorSpec)| {
        let mut first = OperatorSpec::new("first", tumbling(5), &["k"], vec![AggregateSpec::count("n")]);
        let mut second = OperatorSpec::new("second", tumbling(10), &["k"], vec![sum_of("n")]);
        second.input = Some("first".to_owned());
        change(&mut first, &mut second);
        let directory = tempfile::tempdir().unwrap();
        let opened = WindowStore::builder("steps").window(first).window(second).open(directory.path());
        let error = opened.expect_err("it has to be refused");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        error.to_string()
    };
    assert!(refused(|_, second| second.input = Some("none".to_owned())).contains("input=none"));
    assert!(refused(|first, _| first.allowed_lateness = span(5)).contains("more than once"));
    assert!(refused(|first, _| first.trigger = Trigger::Count(2)).contains("more than once"));
    assert!(refused(|_, second| second.key = vec!["z".to_owned()]).contains("field=z"));
    assert!(refused(|_, second| second.aggregates = vec![sum_of("m")]).contains("field=m"));
    let float = |_: &mut OperatorSpec, second: &mut OperatorSpec| {
        second.aggregates = vec![AggregateSpec::over("t", Function::Sum, "n", InputType::Float, 0)];
    };
    assert!(refused(float).contains("another type"));
}
