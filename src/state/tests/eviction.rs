//! Eviction: expired panes are invisible at once and gone in the end, live ones never are.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::state::selftest::self_test_with;

#[derive(Clone, Debug)]
enum Step {
    Write { files: bool, second: bool, merge: bool, panes: BTreeMap<(i64, Vec<u8>), u64> },
    Horizon(i64),
    Evict,
    Compact,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![Just(0_u8), Just(0xff), Just(b'a')], 0..3)
}

fn step() -> impl Strategy<Value = Step> {
    let panes = prop::collection::btree_map((0_i64..40, key()), 0_u64..1_000, 1..12);
    prop_oneof![
        4 => (any::<bool>(), any::<bool>(), any::<bool>(), panes)
            .prop_map(|(files, second, merge, panes)| Step::Write { files, second, merge, panes }),
        2 => (0_i64..50).prop_map(Step::Horizon),
        2 => Just(Step::Evict),
        1 => Just(Step::Compact),
    ]
}

type Model = [BTreeMap<(i64, Vec<u8>), u64>; 2];

fn expected(model: &Model, family: usize, horizon: Watermark) -> Vec<(i64, Vec<u8>, u64)> {
    let lateness = specs()[family].allowed_lateness;
    let rows = model[family].iter().filter(|((end, _), _)| !horizon.expired(at(*end), lateness));
    rows.map(|((end, key), value)| (*end, key.clone(), *value)).collect()
}

fn apply(bench: &Bench, model: &mut Model, step: &Step) {
    match step {
        Step::Write { files, second, merge, panes } => {
            let (path, family) =
                (if *files { WritePath::Files } else { WritePath::Batch }, usize::from(*second));
            let lateness = specs()[family].allowed_lateness;
            // As the store does: nothing is written for a pane that has expired.
            let horizon = bench.db.horizon();
            let panes: Vec<_> =
                panes.iter().filter(|((end, _), _)| !horizon.expired(at(*end), lateness)).collect();
            let payloads: Vec<_> = panes.iter().map(|(_, value)| value.to_le_bytes()).collect();
            let entries = panes.iter().zip(&payloads).map(|(((end, key), _), payload)| {
                (pane(*end, key), if *merge { Write::Merge(payload) } else { Write::Put(payload) })
            });
            bench.db.write_by(path, FamilyId(family), entries).unwrap();
            for (pane, value) in panes {
                let stored = model[family].entry(pane.clone()).or_insert(0);
                *stored = if *merge { stored.wrapping_add(*value) } else { *value };
            }
        }
        Step::Horizon(millis) => bench.db.set_horizon(horizon(*millis)),
        Step::Evict => {
            bench.db.evict().unwrap();
        }
        Step::Compact => bench.db.compact().unwrap(),
    }
}

/// Runs the steps, compares what is visible after each, then compacts twice and counts what is left on disk.
fn run(steps: &[Step], filter: bool, evict_at_end: bool) -> Result<(), TestCaseError> {
    let bench = Bench::with_filter(filter);
    let mut model = Model::default();
    for step in steps {
        apply(&bench, &mut model, step);
        for family in 0..2 {
            let expected = expected(&model, family, bench.db.horizon());
            prop_assert_eq!(bench.live(FamilyId(family)), expected, "family {} after {:?}", family, step);
        }
    }
    if evict_at_end {
        bench.db.evict().unwrap();
    }
    bench.db.compact().unwrap();
    bench.db.compact().unwrap();
    for family in 0..2 {
        let expected = expected(&model, family, bench.db.horizon());
        prop_assert_eq!(bench.live(FamilyId(family)), expected.clone());
        prop_assert_eq!(bench.physical_rows(FamilyId(family)), expected.len(), "rows on disk");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn exactly_the_expired_are_invisible_at_once_and_gone_after_two_compactions(
        steps in prop::collection::vec(step(), 1..14),
    ) {
        run(&steps, true, true)?;
    }

    #[test]
    fn eviction_needs_no_filter(steps in prop::collection::vec(step(), 1..14)) {
        run(&steps, false, true)?;
    }

    #[test]
    fn the_filter_finishes_what_was_not_evicted(steps in prop::collection::vec(step(), 1..14)) {
        let steps: Vec<_> = steps.into_iter().filter(|step| !matches!(step, Step::Evict)).collect();
        run(&steps, true, false)?;
    }
}

#[test]
fn a_get_masks_an_expired_pane_that_is_still_on_disk() {
    let bench = Bench::new();
    bench.put(WritePath::Batch, FIRST, &[(10, b"k", 1), (11, b"k", 2)]);
    bench.put(WritePath::Batch, SECOND, &[(10, b"k", 3)]);
    bench.db.set_horizon(horizon(10));
    assert_eq!(bench.db.get(FIRST, pane(10, b"k")).unwrap(), None);
    assert!(bench.db.get(FIRST, pane(11, b"k")).unwrap().is_some());
    assert!(bench.db.get(SECOND, pane(10, b"k")).unwrap().is_some(), "lateness keeps it for 5 ms");
    bench.db.set_horizon(horizon(10 + LATENESS));
    assert_eq!(bench.db.get(SECOND, pane(10, b"k")).unwrap(), None);
    assert_eq!(bench.physical_rows(SECOND), 1);
}

#[test]
fn a_live_pane_with_the_empty_key_survives_the_file_drop_at_its_bound() {
    let bench = Bench::new();
    // One file for each, in the last level: ingested files go there when nothing is in the way.
    bench.put(WritePath::Files, FIRST, &[(9, b"", 1), (9, b"z", 1)]);
    bench.put(WritePath::Files, FIRST, &[(10, b"", 7)]);
    bench.db.set_horizon(horizon(9));
    let evicted = bench.db.evict().unwrap();
    assert_eq!(evicted.files_dropped, 1, "the file of end 9 goes as a whole");
    assert_eq!(bench.live(FIRST), [(10, vec![], 7)]);
    bench.db.compact().unwrap();
    assert_eq!(bench.live(FIRST), [(10, vec![], 7)]);
}

#[test]
fn the_end_of_input_evicts_everything_but_the_epoch() {
    let bench = Bench::new();
    bench.put(WritePath::Batch, FIRST, &[(i64::MIN, b"", 1), (0, b"a", 1), (i64::MAX, b"\xff\xff", 1)]);
    bench.db.link_checkpoint(&bench.path("one"), 1).unwrap();
    bench.db.set_horizon(Watermark::End);
    assert_eq!(bench.live(FIRST), []);
    bench.db.evict().unwrap();
    bench.db.compact().unwrap();
    bench.db.compact().unwrap();
    assert_eq!(bench.physical_rows(FIRST), 1);
    assert_eq!(bench.db.engine.complete_epoch().unwrap(), 1);
}

#[test]
fn eviction_without_a_new_horizon_writes_nothing() {
    let bench = Bench::new();
    bench.put(WritePath::Batch, FIRST, &[(10, b"k", 1)]);
    assert_eq!(bench.db.evict().unwrap(), EvictStats::default());
    bench.db.set_horizon(horizon(10));
    assert_eq!(bench.db.evict().unwrap().range_deletes, 2);
    assert_eq!(bench.db.evict().unwrap(), EvictStats::default());
    assert_eq!(bench.db.stats().unwrap().range_deletes, 2);
}

#[test]
fn thousands_of_advances_leave_nothing_for_a_scan_to_walk_over() {
    let bench = Bench::new();
    let advances = 2_000;
    for end in 0..advances {
        bench.put(WritePath::Batch, FIRST, &[(end, b"a", 1), (end + 3, b"b", 1)]);
        bench.db.set_horizon(horizon(end));
        bench.db.evict().unwrap();
    }
    let mut perf = rocksdb::PerfContext::default();
    rocksdb::perf::set_perf_stats(rocksdb::PerfStatsLevel::EnableCount);
    perf.reset();
    let live = bench.live(FIRST);
    let skipped = perf.metric(rocksdb::PerfMetric::InternalKeySkippedCount)
        + perf.metric(rocksdb::PerfMetric::InternalDeleteSkippedCount);
    rocksdb::perf::set_perf_stats(rocksdb::PerfStatsLevel::Disable);
    assert_eq!(live.len(), 3);
    assert!(skipped < 16, "the scan walked over {skipped} entries");
    assert!(bench.db.writer().unwrap().range_deletes_unflushed < 16);
}

#[test]
fn keys_of_an_unknown_shape_are_kept_and_counted() {
    let bench = Bench::new();
    let engine = &bench.db.engine;
    let handle = engine.handle("first.windows").unwrap();
    let strange: [&[u8]; 4] = [b"", b"\x01short", b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", b"\x03later"];
    for key in strange {
        engine.db.put_cf_opt(handle, key, b"?", &options::write()).unwrap();
    }
    bench.put(WritePath::Batch, FIRST, &[(1, b"k", 1), (90, b"k", 2)]);
    bench.db.set_horizon(horizon(50));
    bench.db.compact().unwrap();
    // Two passes over the rows, the second without the one that was removed.
    let stats = bench.db.stats().unwrap();
    assert_eq!(stats.filter, FilterCounts { rows_seen: 6 + 5, rows_removed: 1, rows_unknown_kept: 4 + 4 });
    assert_eq!(bench.physical_rows(FIRST), 5);
    assert_eq!(bench.live(FIRST), [(90, b"k".to_vec(), 2)]);
}

#[test]
fn the_self_test_notices_a_filter_that_does_nothing() {
    let (families, memory, options) = (specs(), StateMemory::new(8 << 20), StateOptions::default());
    let setup = Setup { families: &families, memory: &memory, options: &options, filter: true, env: None };
    self_test_with(setup).unwrap();
    let broken = self_test_with(Setup { filter: false, ..setup });
    assert!(matches!(broken, Err(StateError::SelfTest { .. })), "{broken:?}");
}

#[test]
fn a_scan_in_progress_stops_showing_panes_that_expire_meanwhile() {
    let bench = Bench::new();
    bench.put(WritePath::Batch, FIRST, &[(1, b"a", 1), (2, b"a", 1), (3, b"a", 1)]);
    let mut scan = bench.db.scan(FIRST, ..).unwrap();
    assert_eq!(scan.next_pane().unwrap().unwrap().0.end, at(1));
    bench.db.set_horizon(horizon(2));
    bench.db.evict().unwrap();
    bench.db.compact().unwrap();
    assert_eq!(scan.next_pane().unwrap().unwrap().0.end, at(3));
    assert!(scan.next_pane().unwrap().is_none());
}

#[test]
fn scans_keep_to_their_bounds_and_go_on_after_a_pane() {
    let bench = Bench::new();
    bench.put(WritePath::Batch, FIRST, &[(1, b"", 1), (1, b"a", 2), (2, b"", 3), (2, b"a", 4), (3, b"", 5)]);
    let values = |scan: PaneScan<'_>| rows(scan).into_iter().map(|row| row.2).collect::<Vec<_>>();
    assert_eq!(values(bench.db.scan(FIRST, ..=at(1)).unwrap()), [1, 2]);
    assert_eq!(values(bench.db.scan(FIRST, at(2)..at(3)).unwrap()), [3, 4]);
    assert_eq!(values(bench.db.scan(FIRST, at(3)..).unwrap()), [5]);
    let reversed = bench.db.scan(FIRST, at(3)..at(1)).unwrap();
    assert!(values(reversed).is_empty());
    let after = |end, key, to| values(bench.db.scan_after(FIRST, pane(end, key), to).unwrap());
    assert_eq!(after(1, b"", std::ops::Bound::Included(at(2))), [2, 3, 4]);
    assert!(after(1, b"a", std::ops::Bound::Excluded(at(2))).is_empty());
    assert_eq!(after(2, b"a", std::ops::Bound::Unbounded), [5]);
    bench.db.set_horizon(horizon(1));
    assert_eq!(after(1, b"", std::ops::Bound::Unbounded), [3, 4, 5]);
}
