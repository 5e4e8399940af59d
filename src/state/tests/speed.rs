//! Measurements behind choices in this module: `cargo test --release --lib state::tests::speed -- --ignored --nocapture`.

#![expect(clippy::disallowed_methods, reason = "measures time")]

use std::time::Instant;

use super::*;

#[test]
#[ignore = "a measurement"]
fn spilling_as_batch_and_as_files() {
    for entries in [4_096_u64, 16_384, 65_536, 262_144, 1_048_576] {
        for path in [WritePath::Batch, WritePath::Files] {
            let bench = Bench::new();
            let mut keys: Vec<_> =
                (0..entries / 2).map(|key| key.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()).collect();
            keys.sort_unstable();
            let payload = [5_u8; 40];
            let mut report = format!("entries={entries:>8} path={path:?}");
            for epoch in 0..3 {
                let ends = [100_i64, 200].into_iter();
                let run = ends.flat_map(|end| keys.iter().map(move |key| (end, key)));
                let start = Instant::now();
                let run = run.map(|(end, key)| (pane(end, key), Write::Put(&payload)));
                bench.db.write_by(path, FIRST, run).unwrap();
                let written = start.elapsed();
                let linked = bench.path(&format!("checkpoint{epoch}"));
                bench.db.link_checkpoint(&linked, epoch).unwrap();
                report += &format!(
                    " write+link_ms={}+{}",
                    written.as_millis(),
                    (start.elapsed() - written).as_millis()
                );
            }
            println!("{report}");
        }
    }
}

#[test]
#[ignore = "a measurement"]
fn opening_with_its_self_test() {
    let home = TempDir::new().unwrap();
    let memory = StateMemory::new(16 << 20);
    for attempt in 0..5 {
        let start = Instant::now();
        self_test(&specs(), &memory).unwrap();
        let tested = start.elapsed();
        let db = StateDb::create(&home.path().join(format!("db{attempt}")), &specs(), &memory).unwrap();
        let created = start.elapsed() - tested;
        let start = Instant::now();
        db.link_checkpoint(&home.path().join(format!("checkpoint{attempt}")), 1).unwrap();
        println!("self_test={tested:?} create={created:?} empty_link={:?}", start.elapsed());
    }
}
