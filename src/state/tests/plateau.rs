//! State does not grow with the stream: new keys for ever, a horizon that follows, bytes that level off.

use super::*;

/// Panes open at a time, times their size: the floor of what must be on disk.
const KEYS_PER_EPOCH: u64 = 3_000;
const EPOCHS: u64 = 60;

/// Runs a stream in which every key is new, and returns live file bytes after each epoch's checkpoint.
fn stream(bench: &Bench, merges: bool) -> Vec<u64> {
    let mut bytes = Vec::new();
    for epoch in 0..EPOCHS {
        let payload = epoch.to_le_bytes();
        let keys: Vec<_> = (0..KEYS_PER_EPOCH)
            .map(|key| (epoch * KEYS_PER_EPOCH + key).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes())
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .collect();
        let end = epoch as i64 * 10;
        for round in 0..2 {
            let write =
                |_: &_| if merges || round == 1 { Write::Merge(&payload) } else { Write::Put(&payload) };
            let entries = keys.iter().map(|key| (pane(end, key), write(key)));
            bench.db.write_sorted(FIRST, entries, keys.len()).unwrap();
        }
        let target = bench.path("checkpoint");
        bench.db.link_checkpoint(&target, epoch).unwrap();
        std::fs::remove_dir_all(&target).unwrap();
        // Two windows stay open.
        bench.db.set_horizon(horizon(end - 20));
        bench.db.evict().unwrap();
        // The compactions that RocksDB starts by itself; on a busy machine they may be many epochs behind.
        bench.db.engine.db.wait_for_compact(&rocksdb::WaitForCompactOptions::default()).unwrap();
        bytes.push(bench.db.stats().unwrap().live_file_bytes);
    }
    bytes
}

fn assert_plateau(bytes: &[u64]) {
    let max = |range: &[u64]| range.iter().copied().max().unwrap_or(0);
    let early = max(&bytes[10..30]);
    let late = max(&bytes[30..]);
    // Sizes saw-tooth with compactions. Without eviction they would be twice as large by now, and growing.
    assert!(late <= early.saturating_mul(3) / 2, "bytes grow: early={early} late={late} all={bytes:?}");
}

#[test]
fn bytes_level_off_under_endless_new_keys() {
    assert_plateau(&stream(&Bench::new(), false));
}

#[test]
fn bytes_level_off_without_the_filter_and_with_merges_alone() {
    assert_plateau(&stream(&Bench::with_filter(false), true));
}
