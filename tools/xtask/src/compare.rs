//! `cargo xtask compare`: the same workload on Floodmark and on what else a Rust program would use.
//!
//! benches/compare is a workspace of its own, since what it compares with is heavy; its build stays in a folder of the
//! target directory and never touches the product's.

use std::path::PathBuf;

use crate::step::{Failure, Steps, root};

const MANIFEST: &str = "benches/compare/Cargo.toml";
/// LaminarDB brings a query engine along: some 230 crates more.
const LAMINARDB: &str = "--laminardb";
const CHECK: &str = "--check";

/// Runs it with these arguments, or checks it with `--check`.
pub(crate) fn run(steps: &mut Steps, target: &str, args: &[String]) -> Result<(), Failure> {
    let has = |wanted: &str| args.iter().any(|arg| arg == wanted);
    let features: &[&str] = if has(LAMINARDB) { &["--features", "laminardb"] } else { &[] };
    let rest: Vec<&str> =
        args.iter().map(String::as_str).filter(|arg| ![LAMINARDB, CHECK].contains(arg)).collect();
    let place = ["--manifest-path", MANIFEST, "--locked", "--target-dir", target];
    if !has(CHECK) {
        let run = ["run", "--release"];
        return steps.cargo("compare", &[&run, place.as_slice(), features, &["--"], &rest].concat());
    }
    if !rest.is_empty() {
        return Err(Failure::Usage);
    }
    steps.cargo("format", &["fmt", "--manifest-path", MANIFEST, "--", "--check"])?;
    let deny = ["--", "-D", "warnings"];
    steps.cargo(
        "lints",
        &[&["clippy", "--release", "--all-targets"], place.as_slice(), features, &deny].concat(),
    )?;
    steps.cargo("tests", &[&["test", "--release"], place.as_slice(), features].concat())
}

/// Where its build goes, below the target directory of everything else.
pub(crate) fn target_dir(of_all: PathBuf) -> PathBuf {
    root().join(of_all).join("compare")
}
