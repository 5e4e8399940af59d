//! What the public face does not show: the database behind a store.

use std::sync::{Arc, Mutex};

use super::{AfterPublish, Barrier, Collected, WindowStore};
use crate::aggregate::AggregateSpec;
use crate::checkpoint::{Manifest, Published, SourceIdentity};
use crate::codec::KeyWriter;
use crate::error::{Error, ErrorKind};
use crate::event::{EventBatch, Number};
use crate::event_time::{EventTime, Span, Tumbling, Watermark, Windows};
use crate::operator::OperatorSpec;
use crate::state::FamilyId;

fn at(millis: i64) -> Watermark {
    Watermark::At(EventTime::from_millis(millis))
}

fn process(store: &mut WindowStore, time: i64) {
    let (partition, _) = store.partition("p", SourceIdentity::default()).unwrap();
    let mut batch = EventBatch::with_columns(partition, 1, Vec::new());
    batch.push_event::<Number>(EventTime::from_millis(time), &[b"a"], &[]);
    store.process(&batch, &mut Collected::default()).unwrap();
}

#[test]
fn panes_of_closed_windows_stay_until_their_results_are_delivered() {
    let folder = tempfile::tempdir().unwrap();
    let windows = Tumbling::new(Span::from_millis(10).unwrap(), 0).unwrap();
    let spec = OperatorSpec::new("op", windows, &["key"], vec![AggregateSpec::count("count")]);
    let open =
        || WindowStore::builder("horizon").window(spec.clone()).open(folder.path().join("state")).unwrap();
    let mut store = open();
    process(&mut store, 5);
    store.checkpoint(Barrier::default()).unwrap();
    assert_eq!(store.db.horizon(), at(5));
    // Closes the window whose pane is in the database by now.
    process(&mut store, 15);
    let (db, found) = (Arc::clone(&store.db), Arc::new(Mutex::new(None)));
    let noted = Arc::clone(&found);
    let away: AfterPublish = Box::new(move |_: &Published| {
        db.compact()?;
        let is_there = db.scan(FamilyId(0), ..=EventTime::from_millis(10))?.next_pane()?.is_some();
        *noted.lock().unwrap() = Some((db.horizon(), is_there));
        Err(Error::new(ErrorKind::Unavailable, "the output is away"))
    });
    store.checkpoint(Barrier { after_publish: Some(away), ..Barrier::default() }).unwrap_err();
    assert_eq!(*found.lock().unwrap(), Some((at(5), true)));
    assert_eq!(store.db.horizon(), at(5), "nothing was delivered");
    drop(store);
    let mut store = open();
    assert_eq!((store.watermark(), store.db.horizon()), (at(15), at(5)));
    store.checkpoint(Barrier::default()).unwrap();
    assert_eq!(store.db.horizon(), at(15));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a manifest is forged on purpose")]
fn other_rules_of_a_time_zone_than_those_of_the_checkpoint_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let aggregates = || vec![AggregateSpec::count("count")];
    let days = |name: &str, zone: &str| {
        OperatorSpec::new(name, Windows::days(zone).unwrap(), &["key"], aggregates())
    };
    let open = || {
        let builder = WindowStore::builder("zones").window(days("a", "Europe/Berlin"));
        builder.window(days("b", "America/Sao_Paulo")).open(&path).unwrap()
    };
    let mut store = open();
    process(&mut store, 1_700_000_000_000);
    store.checkpoint(Barrier::default()).unwrap();
    drop(store);
    assert_eq!(open().restored().unwrap().changed_zones, Vec::<String>::new());
    let checkpoint = path.join("checkpoints/chk-0000000001");
    let mut manifest = Manifest::load(&checkpoint).unwrap();
    *manifest.counters.get_mut("tz.Europe/Berlin").unwrap() ^= 1;
    assert!(manifest.counters.contains_key("tz.America/Sao_Paulo"));
    std::fs::write(checkpoint.join("MANIFEST.fm"), manifest.encode().unwrap()).unwrap();
    assert_eq!(open().restored().unwrap().changed_zones, ["Europe/Berlin"]);
    // A checkpoint of a version that noted nothing says nothing.
    manifest.counters.clear();
    std::fs::write(checkpoint.join("MANIFEST.fm"), manifest.encode().unwrap()).unwrap();
    assert_eq!(open().restored().unwrap().changed_zones, Vec::<String>::new());
}

#[test]
fn the_panes_of_a_key_are_told_from_memory_and_disk_together() {
    let folder = tempfile::tempdir().unwrap();
    let windows = Tumbling::new(Span::from_millis(10).unwrap(), 0).unwrap();
    let spec = OperatorSpec::new("op", windows, &["key"], vec![AggregateSpec::count("count")]);
    let mut store = WindowStore::builder("view").window(spec).open(folder.path().join("state")).unwrap();
    let mut key = Vec::new();
    KeyWriter::new(&mut key, 1).push(b"a");
    let counted = |store: &WindowStore| -> Vec<(i64, u64)> {
        let panes = store.panes_of(0, &key, 10).unwrap();
        panes.iter().map(|pane| (pane.window.end.as_millis(), pane.events)).collect()
    };
    process(&mut store, 5);
    assert_eq!(counted(&store), [(10, 1)]);
    let spilled = store.operators[0].spill_largest().unwrap();
    store.writer.write(0, spilled).unwrap();
    store.writer.wait_until_written().unwrap();
    assert_eq!(counted(&store), [(10, 1)], "the pane is on disk alone");
    process(&mut store, 6);
    assert_eq!(counted(&store), [(10, 2)], "one event on disk, one in memory");
    let summary = store.open_summary(0).unwrap();
    assert_eq!((summary.windows, summary.panes, summary.due), (1, 1, 0));
    assert_eq!(summary.next_end, Some(EventTime::from_millis(10)));
    assert!(store.panes_of(0, b"b", 10).unwrap().is_empty(), "another key has nothing there");
    assert_eq!(store.writes_waiting(), 0);
}
