//! The engine against answers that were found elsewhere: conformance cases, scenarios, a naive model, and golden
//! outputs of other engines.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::Path;

mod against_oracle;
mod aggregates;
mod cases;
mod drivers;
mod evolution;
mod firing;
#[cfg(feature = "fault-injection")]
mod fuzzing;
mod golden;
mod hazards;
mod histories;
mod joins;
mod known_answers;
mod model;
mod oracle;
mod retractions;
#[cfg(feature = "fault-injection")]
mod simulation;
mod steps;
mod store;
mod watermarks;

/// The bytes of a file packed with zstd.
fn unpacked(path: &Path) -> Vec<u8> {
    let file = fs::File::open(path).unwrap_or_else(|error| panic!("cannot open {}: {error}", path.display()));
    zstd::decode_all(file).unwrap()
}
