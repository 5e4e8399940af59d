//! `cargo xtask compare`: the same workload on Floodmark and on what else a Rust program would use.
//!
//! benches/compare is a workspace of its own, since what it compares with is heavy; its build stays in a folder of the
//! target directory and never touches the product's.

use std::path::PathBuf;

use crate::step::{Failure, Steps, root};

const MANIFEST: &str = "benches/compare/Cargo.toml";

/// Runs it with these arguments, or checks it with `--check` alone.
pub(crate) fn run(steps: &mut Steps, target: &str, args: &[String]) -> Result<(), Failure> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let place = ["--release", "--locked", "--manifest-path", MANIFEST, "--target-dir", target];
    if !args.contains(&"--check") {
        return steps.cargo("compare", &[&["run"], place.as_slice(), &["--"], &args].concat());
    }
    if args.len() > 1 {
        return Err(Failure::Usage);
    }
    steps.cargo("format", &["fmt", "--manifest-path", MANIFEST, "--", "--check"])?;
    let lints = ["--all-targets", "--", "-D", "warnings"];
    steps.cargo("lints", &[&["clippy"], place.as_slice(), &lints].concat())?;
    steps.cargo("tests", &[&["test"], place.as_slice()].concat())
}

/// Where its build goes, below the target directory of everything else.
pub(crate) fn target_dir(of_all: PathBuf) -> PathBuf {
    root().join(of_all).join("compare")
}
