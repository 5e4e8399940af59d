//! What came between two checkpoints: how far watermarks and offsets went, which windows appeared, changed and went.
//!
//! One pass over both databases side by side, in the order of their keys, in bounded memory. Expired panes count as gone
//! on either side, whether or not they are still on disk.

mod moved;
mod panes;

use std::path::Path;

use serde::Serialize;

pub use moved::{CounterMoved, FilesMoved, PartitionMoved, WatermarkMoved};
pub use panes::{PaneCounts, WindowDiff};

use crate::error::{Error, ErrorKind, Result};
use crate::inspect::choice::{Chosen, with_checkpoint};
use crate::inspect::key::Key;
use crate::inspect::scan::Watcher;
use crate::inspect::shape::OpenState;
use crate::inspect::windows::{Origin, origin};

/// What came between two checkpoints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiffReport {
    /// The earlier checkpoint.
    pub before: Origin,
    /// The later checkpoint.
    pub after: Origin,
    /// Milliseconds between them, by the clocks of their writers.
    pub between_ms: i64,
    /// The task's watermark.
    pub watermark: WatermarkMoved,
    /// The eviction horizon.
    pub horizon: WatermarkMoved,
    /// The partitions, by name.
    pub partitions: Vec<PartitionMoved>,
    /// Running totals that moved, by name.
    pub counters: Vec<CounterMoved>,
    /// The files of the two databases.
    pub files: FilesMoved,
    /// The operators of both.
    pub operators: Vec<OperatorDiff>,
    /// Operators of the earlier one alone.
    pub operators_gone: Vec<String>,
    /// Operators of the later one alone.
    pub operators_appeared: Vec<String>,
}

/// What came between two checkpoints in one operator.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperatorDiff {
    /// Its name.
    pub name: String,
    /// Names of its key fields, in the later checkpoint.
    pub key: Vec<String>,
    /// How far it has fired.
    pub fired: WatermarkMoved,
    /// True when its definition is another one; then panes are compared byte by byte all the same.
    pub definition_changed: bool,
    /// All panes.
    pub panes: PaneCounts,
    /// Windows in which something changed, by end, up to the limit.
    pub windows: Vec<WindowDiff>,
    /// Windows beyond the limit in which something changed.
    pub windows_left_out: u64,
}

/// Which two checkpoints, and how much of what is between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiffOptions {
    /// Epoch of the earlier one; without it the parent of the later one.
    pub before: Option<u64>,
    /// Epoch of the later one; without it the newest.
    pub after: Option<u64>,
    /// Of the operator of this name only.
    pub window: Option<String>,
    /// Of this key only.
    pub key: Option<Key>,
    /// Windows listed for each operator.
    pub limit: usize,
}

/// Compares two checkpoints: the earlier one under `path`, the later one under `other`, or under `path` too.
///
/// # Errors
/// [`ErrorKind::Invalid`] when there are no such checkpoints or they are of two histories,
/// [`ErrorKind::Damaged`] when files cannot be read back, [`ErrorKind::Incompatible`] when another version wrote them.
pub fn diff(
    path: &Path,
    other: Option<&Path>,
    options: &DiffOptions,
    now_ms: i64,
    watcher: Watcher<'_>,
) -> Result<DiffReport> {
    with_checkpoint(other.unwrap_or(path), options.after, |after| {
        let earlier = match (options.before, other) {
            (Some(epoch), _) => Some(epoch),
            (None, Some(_)) => None,
            (None, None) => Some(after.manifest.parent.ok_or_else(|| without_parent(after))?),
        };
        with_checkpoint(path, earlier, |before| compare(before, after, options, now_ms, &mut *watcher))
    })
}

fn without_parent(after: &Chosen) -> Error {
    let message =
        format!("this checkpoint is the first, there is none before it: epoch={}", after.manifest.epoch);
    Error::new(ErrorKind::Invalid, message)
        .with_remedy("name two checkpoints with --before and --after; `floodmark inspect list` shows them")
}

fn compare(
    before: &Chosen,
    after: &Chosen,
    options: &DiffOptions,
    now_ms: i64,
    watcher: Watcher<'_>,
) -> Result<DiffReport> {
    let (old, new) = (&before.manifest, &after.manifest);
    let opened = (OpenState::open(&before.summary, old)?, OpenState::open(&after.summary, new)?);
    let position =
        |open: &OpenState, name: &str| open.shapes.iter().position(|shape| shape.spec().name == *name);
    let names = |open: &OpenState| -> Vec<String> {
        open.shapes.iter().map(|shape| shape.spec().name.clone()).collect()
    };
    let (old_names, new_names) = (names(&opened.0), names(&opened.1));
    if let Some(window) = &options.window
        && !new_names.contains(window)
    {
        return Err(Error::new(ErrorKind::Invalid, format!("no such window: window={window:?}"))
            .with_remedy(format!("name one of the windows that are there: {}", new_names.join(", "))));
    }
    let mut operators = Vec::new();
    for name in new_names.iter().filter(|name| options.window.as_ref().is_none_or(|asked| asked == *name)) {
        let (Some(from), Some(to)) = (position(&opened.0, name), position(&opened.1, name)) else { continue };
        let sides = panes::Sides {
            before: panes::Side { open: &opened.0, manifest: old, index: from },
            after: panes::Side { open: &opened.1, manifest: new, index: to },
        };
        operators.push(sides.compare(options, &mut *watcher)?);
    }
    let without =
        |of: &[String], from: &[String]| of.iter().filter(|name| !from.contains(name)).cloned().collect();
    Ok(DiffReport {
        before: origin(before, now_ms),
        after: origin(after, now_ms),
        between_ms: new.created_at_ms.saturating_sub(old.created_at_ms),
        watermark: WatermarkMoved::between(old.watermark, new.watermark),
        horizon: WatermarkMoved::between(old.horizon, new.horizon),
        partitions: moved::partitions(old, new),
        counters: moved::counters(old, new),
        files: moved::files(old, new),
        operators,
        operators_gone: without(&old_names, &new_names),
        operators_appeared: without(&new_names, &old_names),
    })
}
