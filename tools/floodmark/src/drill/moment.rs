//! Waiting for the moment of a kill: a time, or something that a run can be seen doing in its directories.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use floodmark::error::Error;

use super::plan::{Moment, Point};
use super::process::Running;
use super::redirect;

/// Time between two looks at the clock.
const LOOK_AT_CLOCK: Duration = Duration::from_millis(1);
/// Time between two looks into directories: a checkpoint is written within milliseconds.
const LOOK_AT_DISK: Duration = Duration::from_micros(100);

/// Looks for the traces of a point. What was there when it was made does not count.
#[derive(Debug)]
struct Traces {
    directories: Vec<PathBuf>,
    point: Point,
    before: BTreeSet<PathBuf>,
}

impl Traces {
    fn new(root: &Path, point: Point) -> Self {
        let state = redirect::state(root);
        let outputs = || names(&redirect::outputs(root)).into_iter();
        let directories = match point {
            Point::Writing | Point::Complete | Point::Retiring => vec![state.join("checkpoints")],
            Point::Restoring => vec![state.join("work")],
            Point::Staged => outputs().map(|output| output.join(".staging")).collect(),
            Point::Visible => outputs().collect(),
        };
        let mut traces = Self { directories, point, before: BTreeSet::new() };
        traces.before = traces.now().collect();
        traces
    }

    fn now(&self) -> impl Iterator<Item = PathBuf> + '_ {
        let all = self.directories.iter().flat_map(|directory| names(directory));
        all.filter(|path| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| is_trace(self.point, name))
        })
    }

    fn is_new(&self) -> bool {
        self.now().any(|path| !self.before.contains(&path))
    }
}

/// True for names that only exist while, or once, the point was reached.
fn is_trace(point: Point, name: &str) -> bool {
    match point {
        Point::Writing => name.ends_with(".tmp"),
        Point::Complete => name.starts_with("chk-") && !name.contains('.'),
        Point::Retiring => name.ends_with(".retired"),
        Point::Restoring => true,
        Point::Staged => name.contains('-') && !name.contains("-open."),
        Point::Visible => name.starts_with("part-"),
    }
}

/// Paths in a directory; none where there is no directory yet.
fn names(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

/// A kill that waits for its moment. Made before the run is started, whose directories it knows.
#[derive(Debug)]
pub(super) struct Ambush {
    root: PathBuf,
    moment: Moment,
    length: Duration,
    traces: Option<Traces>,
}

impl Ambush {
    /// For a run in `root`; shares are of `length`.
    pub(super) fn new(root: &Path, moment: Moment, length: Duration) -> Self {
        let traces = match moment {
            Moment::Point { point, after: 0.0 } => Some(Traces::new(root, point)),
            _ => None,
        };
        Self { root: root.to_owned(), moment, length, traces }
    }

    /// Waits for the moment. False when the run ended before it came.
    ///
    /// # Errors
    /// As [`Running::has_ended`].
    pub(super) fn wait(mut self, running: &mut Running<'_>) -> Result<bool, Error> {
        let (share, point) = match self.moment {
            Moment::Random { share } => (share, None),
            Moment::Point { point, after } => (after, Some(point)),
        };
        let due = self.length.mul_f64(share);
        while running.age() < due {
            if running.has_ended()? {
                return Ok(false);
            }
            std::thread::sleep(LOOK_AT_CLOCK.min(due.saturating_sub(running.age())));
        }
        let Some(point) = point else { return Ok(!running.has_ended()?) };
        let traces = self.traces.take().unwrap_or_else(|| Traces::new(&self.root, point));
        loop {
            if traces.is_new() {
                return Ok(!running.has_ended()?);
            }
            if running.has_ended()? {
                return Ok(false);
            }
            std::thread::sleep(LOOK_AT_DISK);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_told_by_the_names_that_a_run_leaves() {
        let traces = |point| {
            let names = [
                "chk-0000000007",
                "chk-0000000008.3-0.tmp",
                "chk-0000000001.retired",
                "abababab-3-12.jsonl",
                "abababab-3-open.jsonl",
                "part-0000000007.jsonl",
                "LOCK",
                "OWNER",
            ];
            names.into_iter().filter(|name| is_trace(point, name)).collect::<Vec<_>>()
        };
        assert_eq!(traces(Point::Writing), ["chk-0000000008.3-0.tmp"]);
        assert_eq!(traces(Point::Complete), ["chk-0000000007"]);
        assert_eq!(traces(Point::Retiring), ["chk-0000000001.retired"]);
        assert_eq!(traces(Point::Visible), ["part-0000000007.jsonl"]);
        assert!(traces(Point::Staged).contains(&"abababab-3-12.jsonl"));
        assert!(!traces(Point::Staged).contains(&"abababab-3-open.jsonl"));
    }

    #[test]
    fn what_was_there_before_is_no_sign() {
        let root = tempfile::tempdir().expect("a directory");
        let checkpoints = redirect::state(root.path()).join("checkpoints");
        let make = |name: &str| std::fs::create_dir_all(checkpoints.join(name)).expect("made");
        make("chk-0000000001");
        let traces = Traces::new(root.path(), Point::Complete);
        assert!(!traces.is_new());
        make("chk-0000000002.1-0.tmp");
        assert!(!traces.is_new());
        make("chk-0000000002");
        assert!(traces.is_new());
    }
}
