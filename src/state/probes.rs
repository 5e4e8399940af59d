//! What this version of RocksDB, through this version of its crate, really does.
//!
//! Each test pins down a behaviour that a rule of this module rests on. When an upgrade breaks one, read the rule
//! before changing the test.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rocksdb::checkpoint::Checkpoint;
use rocksdb::{
    BottommostLevelCompaction, ColumnFamilyDescriptor, CompactOptions, DB, IteratorMode, Options, WriteBatch,
};
use tempfile::TempDir;

use super::engine::background_failures;
use super::key::write_pane;
use super::tests::{Bench, FIRST, horizon, pane};
use super::{StateError, Write, WritePath, options};

fn compact(db: &DB) {
    let mut options = CompactOptions::default();
    options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
    db.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &options);
}

fn plain() -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options
}

#[test]
fn the_filter_sees_merged_panes_only_in_the_second_compaction() {
    let bench = Bench::new();
    let one = 1_u64.to_le_bytes();
    for _ in 0..2 {
        let keys: Vec<_> = (0..1_000_u32).map(u32::to_be_bytes).collect();
        let entries = keys.iter().map(|key| (pane(10, key), Write::Merge(&one)));
        bench.db.write_by(WritePath::Batch, FIRST, entries).unwrap();
        bench.db.flush(&mut bench.db.writer().unwrap()).unwrap();
    }
    bench.db.set_horizon(horizon(10));
    // One pass over every file; `StateDb::compact` makes a second one over the last level.
    let engine = &bench.db.engine;
    let mut once = CompactOptions::default();
    once.set_bottommost_level_compaction(BottommostLevelCompaction::ForceOptimized);
    let handle = engine.handle("first.windows").unwrap();
    engine.db.compact_range_cf_opt(handle, None::<&[u8]>, None::<&[u8]>, &once);
    assert_eq!(bench.db.stats().unwrap().filter.rows_seen, 0);
    assert_eq!(bench.physical_rows(FIRST), 1_000, "results of a merge bypass the filter");
    bench.db.compact().unwrap();
    assert_eq!(bench.db.stats().unwrap().filter.rows_removed, 1_000);
    assert_eq!(bench.physical_rows(FIRST), 0);
    assert_eq!(bench.live(FIRST), []);
}

#[test]
fn a_snapshot_does_not_protect_from_the_filter() {
    let bench = Bench::new();
    bench.put(WritePath::Batch, FIRST, &[(10, b"k", 1)]);
    let mut key = Vec::new();
    write_pane(&mut key, pane(10, b"k"));
    let engine = &bench.db.engine;
    let handle = engine.handle("first.windows").unwrap();
    let snapshot = engine.db.snapshot();
    bench.db.set_horizon(horizon(10));
    bench.db.compact().unwrap();
    assert_eq!(snapshot.get_cf(handle, &key).unwrap(), None);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "shows why the call is disallowed")]
fn a_checkpoint_with_a_log_size_is_an_empty_success_and_the_sentinel_says_so() {
    let bench = Bench::new();
    bench.put(WritePath::Batch, FIRST, &[(10, b"k", 1)]);
    let engine = &bench.db.engine;
    let mut batch = WriteBatch::default();
    for (_, handle) in engine.handles().unwrap() {
        batch.put_cf(handle, super::key::SENTINEL, 7_u64.to_le_bytes());
    }
    engine.db.write_opt(batch, &options::write()).unwrap();
    let target = bench.path("empty");
    Checkpoint::new(&engine.db).unwrap().create_checkpoint_with_log_size(&target, 1 << 20).unwrap();
    let opened = super::ReadOnlyState::open(&target, &super::tests::specs());
    assert!(matches!(opened, Err(StateError::Torn { .. })), "{opened:?}");

    let target = bench.path("full");
    Checkpoint::new(&engine.db).unwrap().create_checkpoint(&target).unwrap();
    assert_eq!(super::ReadOnlyState::open(&target, &super::tests::specs()).unwrap().epoch(), 7);
}

#[test]
fn a_merge_that_returns_nothing_poisons_the_database_and_the_failure_count_says_so() {
    let home = TempDir::new().unwrap();
    let mut options = plain();
    options.set_merge_operator_associative("refuses", |_, _, _| None);
    let db = DB::open(&options, home.path()).unwrap();
    db.put(b"good", b"1").unwrap();
    db.put(b"bad", b"1").unwrap();
    db.flush().unwrap();
    db.merge(b"bad", b"?").unwrap();
    db.flush().unwrap();
    assert_eq!(background_failures(&db).unwrap(), 0);
    assert!(db.get(b"bad").is_err());
    compact(&db);
    assert!(db.put(b"other", b"1").is_err(), "writes of other keys fail, too");
    assert_eq!(db.get(b"good").unwrap().as_deref(), Some(b"1".as_slice()));
    assert!(background_failures(&db).unwrap() > 0, "the only sign that the compaction gave");
}

#[test]
fn file_drops_leave_level_0_and_files_that_are_covered_in_part() {
    let bench = Bench::new();
    let files = || {
        let engine = &bench.db.engine;
        engine.db.get_column_family_metadata_cf(engine.handle("first.windows").unwrap()).file_count
    };
    let drop_to = |end: i64| {
        let engine = &bench.db.engine;
        let handle = engine.handle("first.windows").unwrap();
        let (from, to) = (super::key::BEFORE_PANES.to_vec(), super::key::first_of_end(super::tests::at(end)));
        engine.db.delete_file_in_range_cf(handle, from, to).unwrap();
    };
    bench.put(WritePath::Batch, FIRST, &[(10, b"k", 1), (20, b"k", 1)]);
    bench.db.flush(&mut bench.db.writer().unwrap()).unwrap();
    assert_eq!(files(), 1);
    drop_to(100);
    assert_eq!(files(), 1, "level 0 stays");
    bench.db.compact().unwrap();
    drop_to(15);
    assert_eq!(files(), 1, "half covered stays");
    drop_to(100);
    assert_eq!(files(), 0);
}

#[test]
fn the_upper_bound_of_a_file_drop_is_inclusive() {
    let bench = Bench::new();
    bench.put(WritePath::Files, FIRST, &[(10, b"", 1)]);
    let engine = &bench.db.engine;
    let handle = engine.handle("first.windows").unwrap();
    let (from, to) = (super::key::BEFORE_PANES.to_vec(), super::key::first_of_end(super::tests::at(10)));
    engine.db.delete_file_in_range_cf(handle, from, to).unwrap();
    assert_eq!(bench.live(FIRST), [], "which is why eviction stops short of its bound");
}

#[test]
fn checkpoints_taken_while_writing_are_whole_across_families_with_atomic_flush() {
    let bench = Bench::new();
    let engine = &bench.db.engine;
    let (first, second) = (engine.handle("first.windows").unwrap(), engine.handle("second.windows").unwrap());
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut key = Vec::new();
            for number in 0_u64.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                // The same pane in both families, in one batch.
                write_pane(&mut key, pane(10, &number.to_be_bytes()));
                let mut batch = WriteBatch::default();
                batch.put_cf(first, &key, b"x");
                batch.put_cf(second, &key, b"x");
                engine.db.write_opt(batch, &options::write()).unwrap();
                written.store(number, Ordering::Relaxed);
            }
        });
        for attempt in 0..8_u64 {
            while written.load(Ordering::Relaxed) < (attempt + 1) * 200 {
                std::thread::yield_now();
            }
            let target = bench.path(&format!("checkpoint-{attempt}"));
            Checkpoint::new(&engine.db).unwrap().create_checkpoint(&target).unwrap();
            let copy = DB::open_cf_for_read_only(
                &Options::default(),
                &target,
                ["default", "first.windows", "second.windows"],
                false,
            )
            .unwrap();
            let count = |name: &str| {
                let handle = copy.cf_handle(name).unwrap();
                copy.iterator_cf(handle, IteratorMode::Start).inspect(|row| assert!(row.is_ok())).count()
            };
            assert_eq!(count("first.windows"), count("second.windows"), "attempt {attempt}");
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_read_write_open_rewrites_a_checkpoint_and_a_read_only_open_hides_unnamed_families() {
    let home = TempDir::new().unwrap();
    let target = home.path().join("checkpoint");
    {
        let families = ["default", "other"].map(|name| ColumnFamilyDescriptor::new(name, Options::default()));
        let db = DB::open_cf_descriptors(&plain(), home.path().join("db"), families).unwrap();
        db.put(b"k", b"1").unwrap();
        db.put_cf(db.cf_handle("other").unwrap(), b"k", b"1").unwrap();
        Checkpoint::new(&db).unwrap().create_checkpoint(&target).unwrap();
    }
    let names = || {
        let files = std::fs::read_dir(&target).unwrap().map(|entry| entry.unwrap().file_name());
        files.collect::<std::collections::BTreeSet<_>>()
    };
    let before = names();
    let hidden = DB::open_for_read_only(&Options::default(), &target, false).unwrap();
    assert_eq!(hidden.get(b"k").unwrap().as_deref(), Some(b"1".as_slice()));
    assert!(hidden.cf_handle("other").is_none(), "which is why families are compared first");
    assert_eq!(names(), before);

    assert!(DB::open(&Options::default(), &target).is_err(), "read-write refuses without all families");
    drop(DB::open_cf(&Options::default(), &target, ["default", "other"]).unwrap());
    assert_ne!(names(), before);
}

#[test]
fn one_factory_serves_concurrent_compactions_and_no_live_row_is_lost() {
    let bench = Bench::new();
    bench.db.set_horizon(horizon(50));
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let bench = &bench;
            scope.spawn(move || {
                for round in 0..10_i64 {
                    let entries: Vec<_> = (0..100_i64).map(|end| (end, [thread, round as u8])).collect();
                    let run = entries.iter().map(|(end, key)| (pane(*end, key), Write::Put(&[0; 8])));
                    bench.db.write_by(WritePath::Batch, FIRST, run).unwrap();
                    bench.db.compact().unwrap();
                }
            });
        }
    });
    bench.db.compact().unwrap();
    assert_eq!(bench.live(FIRST).len(), 4 * 10 * 49);
    assert_eq!(bench.physical_rows(FIRST), 4 * 10 * 49);
    let filter = bench.db.stats().unwrap().filter;
    assert_eq!((filter.rows_removed, filter.rows_unknown_kept), (4 * 10 * 51, 0));
}
