//! Writing and merging: deltas add up to the whole, and one bad payload damages one pane.

use proptest::prelude::*;

use super::*;
use crate::state::merge::merge_values;
use crate::state::value::{DAMAGED_BYTES_MAX, payload_value};

fn value(number: u64) -> Vec<u8> {
    payload_value(number.to_le_bytes().to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn merged_deltas_equal_a_put_of_the_whole(
        base in prop::option::of(any::<u64>()),
        deltas in prop::collection::vec((any::<u64>(), any::<bool>(), 0_u8..4), 1..24),
    ) {
        let bench = Bench::new();
        if let Some(base) = base {
            bench.put(WritePath::Batch, FIRST, &[(7, b"k", base)]);
        }
        let mut whole = base.unwrap_or(0);
        for (delta, files, then) in deltas {
            let path = if files { WritePath::Files } else { WritePath::Batch };
            let payload = delta.to_le_bytes();
            bench.db.write_by(path, FIRST, [(pane(7, b"k"), Write::Merge(&payload))].into_iter()).unwrap();
            whole = whole.wrapping_add(delta);
            match then {
                0 => bench.db.flush(&mut bench.db.writer().unwrap()).unwrap(),
                1 => bench.db.compact().unwrap(),
                _ => {}
            }
            prop_assert_eq!(bench.live(FIRST), [(7, b"k".to_vec(), whole)]);
        }
    }
}

proptest! {
    #[test]
    fn merging_any_bytes_in_any_grouping_never_panics_and_gives_one_answer(
        values in prop::collection::vec(
            prop_oneof![
                any::<u64>().prop_map(value),
                prop::collection::vec(prop_oneof![Just(1_u8), Just(2), Just(0), any::<u8>()], 0..14),
            ],
            1..7,
        ),
        cut in 0_usize..7,
    ) {
        let refs = || values.iter().map(Vec::as_slice);
        let together = merge_values(&Sum, None, refs());
        let cut = cut.min(values.len());
        if cut > 0 && cut < values.len() {
            let left = merge_values(&Sum, None, refs().take(cut));
            let right = merge_values(&Sum, None, refs().skip(cut));
            let grouped = merge_values(&Sum, Some(&left), [right.as_slice()].into_iter());
            // Payloads add up before they meet damage, so groupings differ in how many inputs they keep, never in
            // whether the pane is whole.
            let whole = |bytes: &[u8]| matches!(Stored::parse(bytes), Stored::Pane(_));
            prop_assert_eq!(whole(&grouped), whole(&together));
            if whole(&together) {
                prop_assert_eq!(grouped, together.clone());
            }
        }
        prop_assert!(together.len() <= DAMAGED_BYTES_MAX + 16);
        let _ = damaged_inputs(&together);
    }
}

#[test]
fn one_bad_operand_damages_one_pane_and_everything_else_goes_on() {
    let bench = Bench::new();
    bench.put(WritePath::Batch, FIRST, &[(7, b"bad", 1), (7, b"good", 1)]);
    bench.db.flush(&mut bench.db.writer().unwrap()).unwrap();
    let (one, broken) = (1_u64.to_le_bytes(), b"broken");
    let entries = [(pane(7, b"bad"), Write::Merge(broken)), (pane(7, b"good"), Write::Merge(&one))];
    bench.db.write_sorted(FIRST, entries.into_iter(), 2).unwrap();
    bench.db.compact().unwrap();

    let bad = bench.db.get(FIRST, pane(7, b"bad")).unwrap().unwrap();
    let Stored::Damaged(bytes) = bad.get() else { panic!("the damage is hidden: {bad:?}") };
    let (inputs, left_out) = damaged_inputs(bytes);
    assert_eq!((inputs, left_out), (vec![value(1).as_slice(), b"\x01broken".as_slice()], 0));

    bench.db.write_sorted(FIRST, [(pane(7, b"good"), Write::Merge(&one))].into_iter(), 1).unwrap();
    bench.db.compact().unwrap();
    let good = bench.db.get(FIRST, pane(7, b"good")).unwrap().unwrap();
    assert_eq!(good.get(), Stored::Pane(&3_u64.to_le_bytes()));
    assert_eq!(bench.db.stats().unwrap().background_failures, 0);
}

#[test]
fn a_value_of_an_unknown_tag_is_reported_as_damaged_and_merging_keeps_it() {
    let bench = Bench::new();
    let engine = &bench.db.engine;
    let handle = engine.handle("first.windows").unwrap();
    let mut key = Vec::new();
    key::write_pane(&mut key, pane(7, b"k"));
    engine.db.put_cf_opt(handle, &key, b"\x77garbage", &options::write()).unwrap();
    let read = || bench.db.get(FIRST, pane(7, b"k")).unwrap().unwrap();
    assert_eq!(read().get(), Stored::Damaged(b"\x77garbage"));
    let one = 1_u64.to_le_bytes();
    bench.db.write_sorted(FIRST, [(pane(7, b"k"), Write::Merge(&one))].into_iter(), 1).unwrap();
    bench.db.compact().unwrap();
    let stored = read();
    let Stored::Damaged(bytes) = stored.get() else { panic!("the damage is hidden") };
    assert_eq!(damaged_inputs(bytes), (vec![b"\x77garbage".as_slice(), &value(1)], 0));
}

#[test]
fn a_damaged_pane_stops_growing_and_counts_what_it_leaves_out() {
    let broken = payload_value(vec![9; 1_000]);
    let operands = vec![broken.as_slice(); 200];
    let merged = merge_values(&Sum, None, operands.into_iter());
    let (inputs, left_out) = damaged_inputs(&merged);
    assert_eq!(inputs.len() + left_out as usize, 200);
    assert!(left_out > 0 && merged.len() <= DAMAGED_BYTES_MAX + 5);
    let again = merge_values(&Sum, Some(&merged), [broken.as_slice()].into_iter());
    assert_eq!(damaged_inputs(&again).1, left_out + 1);
}

#[test]
fn a_merge_that_panics_damages_its_pane() {
    struct Panics;
    impl PaneMerge for Panics {
        fn merge(&self, base: &mut Vec<u8>, _operand: &[u8]) -> bool {
            base.clear();
            panic!("a defect in an aggregate");
        }
    }
    let merged = merge_values(&Panics, Some(&value(1)), [value(2).as_slice()].into_iter());
    assert_eq!(damaged_inputs(&merged), (vec![value(1).as_slice(), &value(2)], 0));
}

#[test]
fn entries_out_of_order_are_refused() {
    let bench = Bench::new();
    for path in [WritePath::Batch, WritePath::Files] {
        for wrong in [pane(1, b"b"), pane(2, b"a"), pane(0, b"z")] {
            let entries = [pane(1, b"b"), pane(1, b"c"), pane(2, b"a"), wrong];
            let entries = entries.map(|pane| (pane, Write::Put(b"x")));
            let refused = bench.db.write_by(path, FIRST, entries.into_iter());
            assert!(matches!(refused, Err(StateError::Order { entry: 3, .. })), "{refused:?}");
        }
    }
    assert_eq!(std::fs::read_dir(&bench.db.spill_dir).unwrap().count(), 0, "no file is left behind");
}

#[test]
fn large_runs_go_as_files_that_end_where_windows_end() {
    let bench = Bench::new();
    let payload = [7_u8; 64];
    let mut random = 1_u64;
    let entries: Vec<_> = (0..6_i64)
        .flat_map(|end| (0..60_000_u32).map(move |key| (end, key)))
        .map(|(end, key)| {
            // Payloads that do not compress, so that files reach their size.
            let mut payload = payload;
            for byte in &mut payload {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = (random >> 56) as u8;
            }
            (end, key.to_be_bytes(), payload)
        })
        .collect();
    let run = entries.iter().map(|(end, key, payload)| (pane(*end, key), Write::Put(payload)));
    let stats = bench.db.write_sorted(FIRST, run, entries.len()).unwrap();
    assert_eq!((stats.path, stats.entries), (WritePath::Files, 360_000));
    let linked = bench.db.link_checkpoint(&bench.path("one"), 1).unwrap();
    let tables = linked.files.iter().filter_map(|file| file.range.as_ref());
    let tables: Vec<_> = tables.filter(|range| range.column_family == "first.windows").collect();
    let of_panes: Vec<_> = tables.iter().filter(|range| range.end_min.is_some()).collect();
    assert_eq!(of_panes.len(), 6);
    assert!(of_panes.iter().all(|range| range.end_min == range.end_max));
    assert_eq!(std::fs::read_dir(&bench.db.spill_dir).unwrap().count(), 0);
}

#[test]
fn nothing_ever_goes_to_a_write_ahead_log() {
    let bench = Bench::new();
    for epoch in 0..20 {
        bench.put(WritePath::Batch, FIRST, &[(100, b"k", epoch)]);
        bench.put(WritePath::Files, SECOND, &[(100, b"k", epoch)]);
        bench.db.set_horizon(horizon(epoch as i64));
        bench.db.evict().unwrap();
        bench.db.link_checkpoint(&bench.path(&format!("chk{epoch}")), epoch).unwrap();
    }
    let files = std::fs::read_dir(bench.db.dir()).unwrap().map(|entry| entry.unwrap());
    let logs: Vec<_> = files.filter(|file| file.path().extension().is_some_and(|ext| ext == "log")).collect();
    assert!(!logs.is_empty());
    assert_eq!(logs.iter().map(|file| file.metadata().unwrap().len()).sum::<u64>(), 0);
}
