//! The dependency checks: advisories, licences, bans, sources (`deny.toml`).
//!
//! Gets the pinned cargo-deny where it is missing, and says plainly when the advisory database cannot be reached.

use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::platform::output;
use crate::step::{Failure, Steps, root};

/// Built with `--locked`; 2 cores take some minutes for it.
const VERSION: &str = "0.20.2";

/// The longest that fetching the advisory database may take.
const FETCH_SECONDS_MAX: u32 = 120;

/// `cargo xtask deny`.
pub(crate) fn run() -> Result<(), Failure> {
    let mut list = Steps::new(Vec::new());
    let done = steps(&mut list);
    eprintln!("\n{}", list.table());
    done
}

/// The checks as steps of a longer task.
pub(crate) fn steps(steps: &mut Steps) -> Result<(), Failure> {
    let installed = output("cargo-deny", &["--version"]).unwrap_or_default();
    if installed.trim() != format!("cargo-deny {VERSION}") {
        steps.cargo("install cargo-deny", &["install", "--locked", "cargo-deny", "--version", VERSION])?;
    }
    steps.cargo("dependencies", &["deny", "--workspace", "check", "licenses", "bans", "sources"])?;
    if advisories_fetched() {
        steps.cargo("advisories", &["deny", "--offline", "--workspace", "check", "advisories"])
    } else {
        steps.skip("advisories", "the RustSec advisory database cannot be reached from this machine");
        Ok(())
    }
}

/// Brings the advisory database up to date; false when that is not possible within the limit.
fn advisories_fetched() -> bool {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command.args(["deny", "fetch", "db"]).current_dir(root()).stdin(Stdio::null());
    let Ok(mut child) = command.spawn() else { return false };
    for _ in 0..FETCH_SECONDS_MAX * 10 {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => thread::sleep(Duration::from_millis(100)),
            Err(_) => break,
        }
    }
    // Nothing depends on how the stopped fetch ends; the checks below do not use it.
    drop(child.kill());
    drop(child.wait());
    false
}
