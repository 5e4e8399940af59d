//! Builds the guard of a tree and runs it: by the clock, and by instructions where valgrind is there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::figures::{Figure, field, short};
use crate::platform::on_path;
use crate::step::{Failure, Steps, root};

/// What callgrind counts inside of.
const COUNTED: &str = "*floodmark_measured*";

/// Where cargo builds; work trees of commits share it, so that dependencies are built once.
pub(super) fn target_dir() -> PathBuf {
    let root = root().canonicalize().unwrap_or_else(|_| root());
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir))
}

/// A work tree of a commit, gone when it is dropped.
pub(super) struct Tree {
    path: PathBuf,
    hash: String,
}

impl Tree {
    /// Checks the commit out.
    pub(super) fn of(steps: &mut Steps, hash: &str) -> Result<Self, Failure> {
        let path = target_dir().join("bench").join(short(hash));
        // Left from a run that was killed.
        let tree = Self { path, hash: hash.to_owned() };
        tree.remove();
        let mut git = Command::new("git");
        git.args(["worktree", "add", "--detach", "--quiet"]).arg(&tree.path).arg(hash);
        steps.run("check out", &format!("git worktree add {} {}", tree.path.display(), short(hash)), git)?;
        Ok(tree)
    }

    /// Its manifest, unless it is older than the guard.
    pub(super) fn manifest(&self) -> Result<PathBuf, Failure> {
        if !self.path.join("benches/guard/main.rs").is_file() {
            let why = "has no benches/guard: it is older than the guard and cannot be compared";
            return Err(Failure::Step("bench".to_owned(), format!("{} {why}", short(&self.hash))));
        }
        Ok(self.path.join("Cargo.toml"))
    }

    fn remove(&self) {
        if !self.path.exists() {
            return;
        }
        let mut git = Command::new("git");
        git.args(["worktree", "remove", "--force"]).arg(&self.path).current_dir(root());
        // What git does not know as a work tree is of no use either.
        if !git.output().is_ok_and(|done| done.status.success()) {
            drop(fs::remove_dir_all(&self.path));
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Builds the guard of a tree and says where it is.
pub(super) fn build(steps: &mut Steps, name: &str, manifest: &Path) -> Result<PathBuf, Failure> {
    let mut cargo = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
    cargo.args(["bench", "--bench", "guard", "--no-run", "--message-format", "json-render-diagnostics"]);
    cargo.arg("--manifest-path").arg(manifest).env("CARGO_TARGET_DIR", target_dir());
    let said = steps.capture(
        &format!("build, {name}"),
        "cargo bench --bench guard --no-run --message-format json",
        cargo,
    )?;
    let built = said.lines().filter(|line| line.contains("\"name\":\"guard\"") && line.contains("\"bench\""));
    let built = built.filter_map(|line| field(line, "executable")).next_back();
    built.map(PathBuf::from).ok_or_else(|| {
        Failure::Step(format!("build, {name}"), "cargo did not say where the guard is".to_owned())
    })
}

/// Every figure by the clock.
pub(super) fn times(steps: &mut Steps, name: &str, guard: &Path) -> Result<Vec<Figure>, Failure> {
    let mut command = Command::new(guard);
    command.arg("--json");
    let said = steps.capture(&format!("times, {name}"), "guard --json", command)?;
    let figures: Option<Vec<Figure>> = said.lines().map(Figure::parse).collect();
    figures.filter(|figures| !figures.is_empty()).ok_or_else(|| {
        Failure::Step(
            format!("times, {name}"),
            format!("the guard printed something else than figures:\n{said}"),
        )
    })
}

/// The figures without threads and disk, counted in instructions. Without valgrind there are none, which is said.
pub(super) fn instructions(steps: &mut Steps, name: &str, guard: &Path) -> Result<Vec<Figure>, Failure> {
    let step = format!("instructions, {name}");
    if !on_path("valgrind") {
        steps.skip(&step, "valgrind is not installed (on Debian and Ubuntu: sudo apt-get install valgrind)");
        return Ok(Vec::new());
    }
    let mut list = Command::new(guard);
    list.arg("--counted");
    let counted = steps.capture(&step, "guard --counted", list)?;
    counted.lines().map(|figure| count(steps, &step, guard, figure)).collect()
}

fn count(steps: &mut Steps, step: &str, guard: &Path, figure: &str) -> Result<Figure, Failure> {
    let log = target_dir().join("bench").join("callgrind.log");
    let failed = |why: String| Failure::Step(step.to_owned(), format!("{figure}: {why}"));
    let made = log.parent().map_or(Ok(()), fs::create_dir_all);
    made.map_err(|error| failed(format!("cannot create {}: {error}", log.display())))?;
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command.arg(format!("--toggle-collect={COUNTED}")).arg(format!("--log-file={}", log.display()));
    command.arg(guard).args(["--once", figure]);
    let said = steps.capture(step, &format!("valgrind --tool=callgrind guard --once '{figure}'"), command)?;
    let log = fs::read_to_string(&log).map_err(|error| failed(format!("callgrind left no log: {error}")))?;
    let instructions = collected(&log).ok_or_else(|| failed(format!("callgrind counted nothing:\n{log}")))?;
    let done: f64 = said.trim().parse().map_err(|_| failed(format!("the guard said `{}`", said.trim())))?;
    let each = instructions as f64 / done.max(1.0);
    let unit = "instructions".to_owned();
    Ok(Figure { name: figure.to_owned(), unit, median: each, least: each, runs: 1 })
}

/// The instructions of a log of callgrind; nothing when it counted none.
fn collected(log: &str) -> Option<u64> {
    let line = log.lines().find(|line| line.contains("Collected :"))?;
    line.split_whitespace().next_back()?.parse().ok().filter(|&count| count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_read_from_a_log() {
        let log = "==1== Callgrind, a call-graph generating cache profiler\n==1== \n==1== Events    : Ir\n==1== Collected : 123456\n";
        assert_eq!(collected(log), Some(123_456));
        assert_eq!(collected("==1== Collected : 0\n"), None);
        assert_eq!(collected("==1== Events    : Ir\n"), None);
    }
}
