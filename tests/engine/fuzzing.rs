//! The corpus of every fuzz target, once through: what a fuzzer once found stays found.
//!
//! `cargo xtask fuzz` looks for more. How the corpus is made: `tests/data/fuzz/SOURCE.md`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use floodmark::fuzzing::TARGETS;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fuzz")
}

fn names_in(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| entry.file_name().into_string().unwrap()).filter(|name| name != "SOURCE.md").collect()
}

#[test]
fn every_target_has_a_corpus_and_every_corpus_a_target() {
    let targets: BTreeSet<String> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    assert_eq!(names_in(&corpus()), targets);
}

#[test]
fn what_fuzzing_once_found_stays_found() {
    let mut total = 0;
    for target in TARGETS {
        let folder = corpus().join(target.name);
        let files = names_in(&folder);
        assert!(files.len() >= 2, "the corpus of {} is empty", target.name);
        for file in files {
            let bytes = fs::read(folder.join(&file)).unwrap();
            total += bytes.len();
            // A panic names the target; the file is the last one printed.
            println!("{}/{file}", target.name);
            (target.run)(&bytes);
            for cut in [bytes.len() / 2, bytes.len().saturating_sub(1)] {
                (target.run)(&bytes[..cut]);
            }
        }
    }
    assert!(total < 300 << 10, "the corpus has {total} bytes; keep what finds something and is small");
}
