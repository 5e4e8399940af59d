//! What other engines gave on real streams, got again through the public store.

use std::collections::BTreeMap;

use crate::against_oracle::same_as_golden;
use crate::cases::{compare_unplaced, deep, goldens, report};
use crate::drivers::{Plan, Step, through_store};

/// Longer streams are left to the long version of the tests.
const ROWS_MAX: usize = 60_000;

#[test]
fn the_store_gives_what_other_engines_gave_on_real_streams() {
    let (mut goldens, mut streams) = (goldens(), BTreeMap::new());
    assert!(goldens.len() >= 8, "only {} golden cases found", goldens.len());
    goldens.retain(|golden| deep() || golden.input_rows() <= ROWS_MAX);
    // Batches of odd sizes, a checkpoint now and then, and a process that dies between two of them.
    let mut after = vec![Step::Nothing; 7_001];
    (after[1_500], after[4_000], after[5_000]) = (Step::Checkpoint, Step::Checkpoint, Step::Kill);
    let plan = Plan { batches: vec![997, 64, 1, 300], after, step_rows: Some(100) };
    let mut failures = Vec::new();
    for golden in &goldens {
        let found = through_store(&golden.settings, &golden.ops(&mut streams), &plan);
        let outcome = found.and_then(|found| same_as_golden(golden, &found, compare_unplaced));
        failures.extend(outcome.err().map(|error| format!("{}: {error}", golden.name)));
    }
    report("golden cases", goldens.len(), &failures);
}
