//! Update mode with retractions: whoever applies the rows in order holds the state of every pane, and nothing else.

use std::collections::BTreeMap;

use floodmark::aggregate::{AggregateSpec, Function, InputType, Value};
use floodmark::checkpoint::SourceIdentity;
use floodmark::event::{EventBatch, Number, ValueColumn};
use floodmark::event_time::{EventTime, Sliding, Span, Window, Windows};
use floodmark::operator::{Mode, OperatorSpec, RowKind};
use floodmark::store::{Barrier, Collected, CollectedRow, ReadTo, WindowStore};

type Table = BTreeMap<(Window2, Vec<u8>), Vec<Value>>;
type Window2 = (i64, i64);

fn bounds(window: Window) -> Window2 {
    (window.start.as_millis(), window.end.as_millis())
}

fn apply(table: &mut Table, rows: &[CollectedRow]) {
    for row in rows {
        let place = (bounds(row.window), row.key.clone());
        let held = match row.row_kind {
            RowKind::Insert => table.insert(place, row.values.clone()),
            RowKind::UpdateAfter => {
                assert!(!table.contains_key(&place), "an update without the row before it taken back");
                table.insert(place, row.values.clone())
            }
            RowKind::UpdateBefore | RowKind::Delete => {
                let held = table.remove(&place);
                assert_eq!(held.as_ref(), Some(&row.values), "took back what was not there: {row:?}");
                None
            }
        };
        assert_eq!(held, None, "a row for a pane that has one already: {row:?}");
    }
}

/// The table that the rows make, and the rows.
fn run(
    windows: Windows,
    events: &[(i64, &str, i64)],
    restart_after: Option<usize>,
) -> (Table, Vec<CollectedRow>) {
    let directory = tempfile::tempdir().unwrap();
    let aggregates = vec![
        AggregateSpec::count("count"),
        AggregateSpec::over("sum", Function::Sum, "v", InputType::Int, 0),
    ];
    let mut spec = OperatorSpec::new("w", windows, &["k"], aggregates);
    spec.mode = Mode::Update;
    spec.retractions = true;
    let open = || {
        let delay = Span::from_millis(1_000).unwrap();
        WindowStore::builder("test").window(spec.clone()).delay(delay).open(directory.path()).unwrap()
    };
    let mut store = open();
    let (mut table, mut rows) = (Table::new(), Vec::new());
    for (index, (time, key, value)) in events.iter().enumerate() {
        let (partition, mut at) = store.partition("p", SourceIdentity::default()).unwrap();
        let mut batch = EventBatch::with_columns(partition, 1, vec![ValueColumn::int()]);
        batch.push_event(EventTime::from_millis(*time), &[key.as_bytes()], &[Some(Number::Int(*value))]);
        let mut seen = Collected::default();
        store.process(&batch, &mut seen).unwrap();
        apply(&mut table, &seen.rows);
        rows.extend(seen.rows);
        if restart_after == Some(index) {
            at.records = index as u64 + 1;
            let read_to = vec![ReadTo { partition, position: at, finished: false }];
            store.checkpoint(Barrier { read_to, ..Barrier::default() }).unwrap();
            drop(store);
            store = open();
        }
    }
    (table, rows)
}

const EVENTS: [(i64, &str, i64); 7] =
    [(0, "a", 1), (25, "a", 2), (3, "b", 7), (12, "a", 3), (14, "a", 4), (40, "b", 5), (36, "a", 6)];

#[test]
fn sessions_that_join_take_their_rows_back() {
    let sessions = || Windows::session(Span::from_millis(13).unwrap()).unwrap();
    let ints = |values: [i128; 2]| values.map(Value::Int).to_vec();
    let expected = Table::from([
        (((0, 49), b"a".to_vec()), ints([5, 16])),
        (((3, 16), b"b".to_vec()), ints([1, 7])),
        (((40, 53), b"b".to_vec()), ints([1, 5])),
    ]);
    // The later session opened first, or second.
    let mut swapped = EVENTS;
    swapped.swap(0, 1);
    for events in [EVENTS, swapped] {
        let (table, rows) = run(sessions(), &events, None);
        assert_eq!(table, expected);
        for restart in 0..events.len() {
            assert_eq!(run(sessions(), &events, Some(restart)).1, rows, "restart after {restart}");
        }
    }
}

#[test]
fn every_overlapping_window_is_taken_back_and_given_anew() {
    let span = |millis| Span::from_millis(millis).unwrap();
    let windows = || Sliding::new(span(20), span(10), 0).unwrap().into();
    let (table, rows) = run(windows(), &EVENTS, None);
    assert_eq!(table[&((10, 30), b"a".to_vec())], [Value::Int(3), Value::Int(9)]);
    assert_eq!(table[&((0, 20), b"a".to_vec())], [Value::Int(3), Value::Int(8)]);
    assert_eq!(run(windows(), &EVENTS, Some(3)).1, rows);
}
