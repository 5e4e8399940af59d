//! A long jump of the watermark is fired in steps: with a restart between any two of them the rows are those of one go,
//! in the same order and with the same watermark beside them.

use floodmark::aggregate::{AggregateSpec, Function, InputType};
use floodmark::checkpoint::SourceIdentity;
use floodmark::event::{EventBatch, Number, ValueColumn};
use floodmark::event_time::{Cumulative, EventTime, Sliding, Span, Tumbling, Watermark, Windows};
use floodmark::operator::{Mode, OperatorSpec, Repeat, Trigger};
use floodmark::store::{Barrier, Collected, ReadTo, WindowStore, WindowStoreBuilder};

const KEYS: i64 = 5;

fn span(millis: i64) -> Span {
    Span::from_millis(millis).unwrap()
}

fn tumbling(millis: i64) -> Windows {
    Tumbling::new(span(millis), 0).unwrap().into()
}

fn total(field: &str) -> AggregateSpec {
    AggregateSpec::over("total", Function::Sum, field, InputType::Int, 0)
}

/// One window of each sort that fires in a way of its own.
fn windows() -> Vec<OperatorSpec> {
    let of = |name: &str, windows: Windows| OperatorSpec::new(name, windows, &["k"], vec![total("v")]);
    let mut late = of("late", Sliding::new(span(30), span(10), 0).unwrap().into());
    late.allowed_lateness = span(45);
    late.trigger = Trigger::Composite { early: Repeat::Never, late: Repeat::Count(3) };
    let mut early = of("early", tumbling(40));
    early.trigger = Trigger::Composite { early: Repeat::EventTime(span(15)), late: Repeat::Each };
    let mut update = of("update", tumbling(20));
    update.mode = Mode::Update;
    let mut second = of("second", tumbling(60));
    second.input = Some("tumbling".to_owned());
    second.aggregates = vec![total("total")];
    let mut third = of("third", Sliding::new(span(240), span(120), 0).unwrap().into());
    third.input = Some("second".to_owned());
    third.aggregates = vec![total("total")];
    vec![
        of("tumbling", tumbling(10)),
        of("slices", Sliding::new(span(50), span(10), 0).unwrap().into()),
        of("cumulative", Cumulative::new(span(60), span(20), 0).unwrap().into()),
        of("sessions", Windows::session(span(7)).unwrap()),
        late,
        early,
        update,
        second,
        third,
    ]
}

fn builder(step_rows: Option<usize>) -> WindowStoreBuilder {
    let builder = WindowStore::builder("firing").delay(span(100_000)).memory_bytes(16 << 20);
    let builder = windows().into_iter().fold(builder, WindowStoreBuilder::window);
    match step_rows {
        Some(rows) => builder.firing_step_rows(rows),
        None => builder,
    }
}

/// Many windows open at once, a jump over all of them, late events of some, and a second jump.
fn events() -> Vec<(i64, i64)> {
    let spread = (0..400_i64).map(|at| ((at * 37) % 1_000, at % KEYS));
    let late = [(985, 1), (990, 2), (1_100, 3), (1_190, 4)];
    let second = (0..60_i64).map(|at| (1_200 + (at * 29) % 300, at % KEYS));
    let jump = |to: i64| [(to + 100_000, 0)];
    spread.chain(jump(1_010)).chain(late).chain(second).chain(jump(1_350)).collect()
}

fn batch(store: &mut WindowStore, events: &[(i64, i64)]) -> EventBatch {
    let (partition, _) = store.partition("p", SourceIdentity::default()).unwrap();
    let mut batch = EventBatch::with_columns(partition, 1, vec![ValueColumn::int()]);
    for (time, key) in events {
        let name = format!("k{key}");
        let value = Some(Number::Int(*time));
        batch.push_event(EventTime::from_millis(*time), &[name.as_bytes()], &[value]);
    }
    batch
}

type Row = (i64, i64, String, String, Watermark, u32);

/// The rows of each operator in their order.
fn by_operator(seen: Collected) -> Vec<Vec<Row>> {
    let mut rows = vec![Vec::new(); windows().len()];
    for row in seen.rows {
        let window = (row.window.start.as_millis(), row.window.end.as_millis());
        let key = String::from_utf8(row.key).unwrap();
        let values = format!("{:?} {:?}", row.kind, row.values);
        rows[row.operator].push((window.0, window.1, key, values, row.watermark, row.pane_index));
    }
    rows
}

fn straight(close: bool) -> Vec<Vec<Row>> {
    let directory = tempfile::tempdir().unwrap();
    let mut store = builder(None).open(directory.path()).unwrap();
    let mut seen = Collected::default();
    let batch = batch(&mut store, &events());
    store.process(&batch, &mut seen).unwrap();
    assert!(!store.is_firing());
    if close {
        store.end_of_input(&mut seen).unwrap();
    }
    by_operator(seen)
}

/// In steps, each in a process of its own. Returns the number of pauses as well.
fn in_steps(step_rows: usize, close: bool) -> (Vec<Vec<Row>>, usize) {
    let directory = tempfile::tempdir().unwrap();
    let open = || builder(Some(step_rows)).open(directory.path()).unwrap();
    let mut store = open();
    let mut seen = Collected::default();
    let events = events();
    let (mut next, mut pauses) = (0, 0);
    let mut pause = |mut store: WindowStore, records: usize, seen: &mut Collected| {
        while store.is_firing() {
            let (partition, mut at) = store.partition("p", SourceIdentity::default()).unwrap();
            at.records = records as u64;
            let read_to = vec![ReadTo { partition, position: at, finished: false }];
            store.checkpoint(Barrier { read_to, ..Barrier::default() }).unwrap();
            drop(store);
            store = open();
            assert!(store.is_firing(), "what was left to fire is known after a restart");
            assert_eq!(store.partition("p", SourceIdentity::default()).unwrap().1.records, records as u64);
            store.fire_some(seen).unwrap();
            pauses += 1;
        }
        store
    };
    while next < events.len() {
        let rest = batch(&mut store, &events[next..]);
        next += store.process_some(&rest, 0, &mut seen).unwrap();
        store = pause(store, next, &mut seen);
    }
    if close {
        store.end_of_input(&mut seen).unwrap();
        pause(store, next, &mut seen);
    }
    (by_operator(seen), pauses)
}

#[test]
fn b70_a_long_jump_is_fired_in_steps_and_a_restart_goes_on_in_the_middle() {
    for close in [false, true] {
        let expected = straight(close);
        let total: usize = expected.iter().map(Vec::len).sum();
        assert!(expected.iter().all(|rows| rows.len() > 10), "every operator has much to fire");
        for (step_rows, pauses_min) in [(40, 10), (100, 3)] {
            let (found, pauses) = in_steps(step_rows, close);
            assert!(pauses >= pauses_min, "step_rows={step_rows} pauses={pauses} of {total} rows");
            for (index, (expected, found)) in expected.iter().zip(&found).enumerate() {
                let first = expected.iter().zip(found).position(|(a, b)| a != b);
                assert_eq!(first.map(|at| (&expected[at], &found[at])), None, "{}", windows()[index].name);
                assert_eq!(expected.len(), found.len(), "{}", windows()[index].name);
            }
        }
    }
}

#[test]
fn whatever_else_is_called_first_does_what_is_left_to_fire() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = builder(Some(10)).open(directory.path()).unwrap();
    let mut seen = Collected::default();
    let events = events();
    let all = batch(&mut store, &events);
    let mut next = 0;
    while !store.is_firing() {
        next = store.process_some(&all, next, &mut seen).unwrap();
        assert!(next < all.len(), "it stops behind the jump");
    }
    store.process(&all.part(next..all.len()), &mut seen).unwrap();
    assert!(!store.is_firing());
    assert_eq!(by_operator(seen), straight(false));
}
