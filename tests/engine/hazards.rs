//! Hazards of docs/HAZARDS.md that no other module is about: a late update that waits, a clock that steps back, a
//! checkpoint asked for during another, sessions of keys that never come back, a table that goes bad.

use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::num::NonZeroU32;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use floodmark::aggregate::{AggregateSpec, Value};
use floodmark::checkpoint::SourceIdentity;
use floodmark::clock::ManualClock;
use floodmark::error::ErrorKind;
use floodmark::event::{EventBatch, Number};
use floodmark::event_time::{EventTime, Span, Tumbling, Windows};
use floodmark::operator::{OperatorSpec, PaneKind, Repeat, TimeDomain, Trigger};
use floodmark::store::{Barrier, Collected, WindowStore};

fn span(millis: i64) -> Span {
    Span::from_millis(millis).unwrap()
}

/// Counts of events, by windows of ten milliseconds.
fn counts() -> OperatorSpec {
    let windows = Tumbling::new(span(10), 0).unwrap();
    OperatorSpec::new("counts", windows, &["key"], vec![AggregateSpec::count("count")])
}

fn process(store: &mut WindowStore, seen: &mut Collected, events: &[(i64, &str)]) {
    let (partition, _) = store.partition("p", SourceIdentity::default()).unwrap();
    let mut batch = EventBatch::with_columns(partition, 1, Vec::new());
    for (time, key) in events {
        batch.push_event::<Number>(EventTime::from_millis(*time), &[key.as_bytes()], &[]);
    }
    store.process(&batch, seen).unwrap();
}

/// Window start, count and kind of each result, in order.
fn rows(seen: &Collected) -> Vec<(i64, i128, PaneKind)> {
    let count = |value: &Value| match value {
        Value::Int(count) => *count,
        other => panic!("a count is an integer: {other:?}"),
    };
    seen.rows.iter().map(|row| (row.window.start.as_millis(), count(&row.values[0]), row.kind)).collect()
}

#[test]
fn a_late_update_that_waits_is_emitted_before_its_window_is_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let mut spec = counts();
        spec.allowed_lateness = span(20);
        spec.trigger = Trigger::Composite { early: Repeat::Never, late: Repeat::Count(3) };
        WindowStore::builder("hazards").window(spec).open(folder.path().join("state")).unwrap()
    };
    let (mut store, mut seen) = (open(), Collected::default());
    // 15 closes the first window; the event at 6 is accepted late and is not the third, so it waits.
    process(&mut store, &mut seen, &[(5, "a"), (15, "a"), (6, "a")]);
    assert_eq!(rows(&seen), [(0, 1, PaneKind::OnTime)]);
    store.checkpoint(Barrier::default()).unwrap();
    drop(store);
    let mut store = open();
    process(&mut store, &mut seen, &[(29, "a")]);
    assert_eq!(rows(&seen)[1..], [(10, 1, PaneKind::OnTime)]);
    process(&mut store, &mut seen, &[(30, "a")]);
    assert!(
        rows(&seen).contains(&(0, 2, PaneKind::Late)),
        "an accepted event is never shown: {:?}",
        rows(&seen)
    );
    assert!(seen.late.is_empty(), "late: {:?}", seen.late);
}

#[test]
fn a_wall_clock_that_steps_back_reopens_no_window_and_loses_no_event() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(3_600_005));
    let mut spec = counts();
    spec.time = TimeDomain::Processing;
    let builder = WindowStore::builder("hazards").window(spec).clock(clock.clone());
    let mut store = builder.open(folder.path().join("state")).unwrap();
    let mut seen = Collected::default();
    process(&mut store, &mut seen, &[(1, "a")]);
    clock.advance(Duration::from_millis(10));
    process(&mut store, &mut seen, &[(2, "a")]);
    clock.set_wall(5);
    process(&mut store, &mut seen, &[(3, "a")]);
    store.tick(|_| false, &mut seen).unwrap();
    assert_eq!(rows(&seen), [(3_600_000, 1, PaneKind::OnTime)]);
    clock.set_wall(3_600_020);
    store.tick(|_| false, &mut seen).unwrap();
    assert_eq!(rows(&seen)[1..], [(3_600_010, 2, PaneKind::OnTime)]);
    assert!(seen.late.is_empty(), "late: {:?}", seen.late);
}

#[test]
fn a_checkpoint_is_not_begun_while_another_is_under_way() {
    let folder = tempfile::tempdir().unwrap();
    let mut store =
        WindowStore::builder("hazards").window(counts()).open(folder.path().join("state")).unwrap();
    store.begin_checkpoint(Barrier::default()).unwrap();
    let error = store.begin_checkpoint(Barrier::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let report = store.checkpoint_report(true).unwrap().unwrap();
    assert_eq!(report.epoch, 1);
    assert_eq!(store.checkpoint(Barrier::default()).unwrap().epoch, 2);
}

#[test]
fn sessions_of_keys_that_never_come_back_leave_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = Windows::session(span(10)).unwrap();
    let spec = OperatorSpec::new("sessions", sessions, &["key"], vec![AggregateSpec::count("count")]);
    let mut store = WindowStore::builder("hazards").window(spec).open(folder.path().join("state")).unwrap();
    let mut bytes = Vec::new();
    for round in 0..60_i64 {
        let keys: Vec<String> = (0..500).map(|key| format!("{round}-{key}")).collect();
        let events: Vec<(i64, &str)> = keys.iter().map(|key| (round * 1_000, key.as_str())).collect();
        process(&mut store, &mut Collected::default(), &events);
        store.checkpoint(Barrier::default()).unwrap();
        assert_eq!(store.resident_panes(), 500, "round={round}");
        bytes.push(store.hot_bytes());
    }
    // Keys without a session are cleared away now and then, so it goes up and down.
    let most = |range: &[usize]| range.iter().copied().max().unwrap_or(0);
    assert!(most(&bytes[30..]) <= most(&bytes[5..30]) * 3 / 2, "memory grows: {bytes:?}");
}

#[test]
fn a_table_that_goes_bad_during_a_run_is_noticed_by_a_checkpoint_that_shares_it() {
    let folder = tempfile::tempdir().unwrap();
    let run = |state: &str, verify_every: u32| {
        let path = folder.path().join(state);
        let builder = WindowStore::builder("hazards").window(counts()).delay(span(1_000_000));
        let builder = builder.retain(NonZeroU32::new(9).unwrap()).verify_every(verify_every);
        let mut store = builder.open(&path).unwrap();
        let mut checkpoint = |count: usize| {
            let keys: Vec<String> = (0..count).map(|key| format!("{count}-{key:05}")).collect();
            let events: Vec<(i64, &str)> = keys.iter().map(|key| (10, key.as_str())).collect();
            process(&mut store, &mut Collected::default(), &events);
            store.checkpoint(Barrier::default())
        };
        let first = checkpoint(3_000).unwrap();
        assert_eq!((first.reread_bytes, first.hard_linked), (0, true));
        let database = path.join("checkpoints/chk-0000000001/db");
        let tables = fs::read_dir(database).unwrap().map(|entry| entry.unwrap().path());
        let tables = tables.filter(|path| path.extension().is_some_and(|extension| extension == "sst"));
        let largest = tables.max_by_key(|path| path.metadata().unwrap().len()).unwrap();
        // The working database has it too.
        assert_eq!(largest.metadata().unwrap().nlink(), 2);
        let mut file = OpenOptions::new().write(true).open(&largest).unwrap();
        file.seek(SeekFrom::Start(100)).unwrap();
        file.write_all(b"rot").unwrap();
        let name = largest.file_name().unwrap().to_str().unwrap().to_owned();
        (checkpoint(1), name)
    };
    let (outcome, name) = run("verified", 2);
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    for word in [name.as_str(), "shared_by=[chk-0000000001, chk-0000000002]"] {
        assert!(error.to_string().contains(word), "no {word:?} in {error}");
    }
    // Without looking there is nothing to see.
    run("unseen", 0).0.unwrap();
    run("not_yet", 3).0.unwrap();
}
