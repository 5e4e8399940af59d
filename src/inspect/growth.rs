//! How the state has grown over the checkpoints that are still there. Reads manifests alone.

use std::path::Path;

use serde::Serialize;

use crate::checkpoint::Manifest;
use crate::error::{Error, ErrorKind, Result};
use crate::event_time::{EventTime, Watermark};
use crate::inspect::choice::summaries;
use crate::inspect::list::new_bytes;
use crate::inspect::text::as_text;

/// The size of the state over the retained history.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GrowthReport {
    /// Name of the pipeline.
    pub pipeline: String,
    /// One point for each checkpoint whose manifest is believed, oldest first.
    pub points: Vec<GrowthPoint>,
    /// Checkpoints whose manifest is not believed.
    pub left_out: u64,
    /// Bytes of the last checkpoint less those of the first.
    pub bytes_change: i64,
    /// The same for each hour between them, by the clocks of their writers; absent within less than a second.
    pub bytes_per_hour: Option<f64>,
    /// Entries of the last checkpoint less those of the first.
    pub entries_change: i64,
}

/// The size of the state at one checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GrowthPoint {
    /// Its epoch.
    pub epoch: u64,
    /// When it was written, by the wall clock there.
    #[serde(serialize_with = "as_text")]
    pub created_at: EventTime,
    /// Its watermark.
    #[serde(serialize_with = "as_text")]
    pub watermark: Watermark,
    /// Its eviction horizon.
    #[serde(serialize_with = "as_text")]
    pub horizon: Watermark,
    /// Files of its database.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Bytes of files that the checkpoint before does not hold, when that one is still there.
    pub new_bytes: Option<u64>,
    /// Entries in them, deletions included.
    pub entries: u64,
    /// Open panes, when its writer could count them.
    pub open_panes: Option<u64>,
    /// By operator.
    pub operators: Vec<OperatorGrowth>,
}

/// The size of one operator's state at one checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OperatorGrowth {
    /// Its name.
    pub name: String,
    /// Bytes of the files of its family.
    pub bytes: u64,
    /// Entries in them, deletions included.
    pub entries: u64,
    /// Open panes, when its writer could count them.
    pub open_panes: Option<u64>,
}

/// How the state has grown over the checkpoints under `path`.
///
/// # Errors
/// [`ErrorKind::Invalid`] when `path` has no checkpoint whose manifest is believed, [`ErrorKind::Unavailable`] when it
/// cannot be read.
pub fn growth(path: &Path) -> Result<GrowthReport> {
    let summaries = summaries(path)?;
    let manifests: Vec<&Manifest> =
        summaries.iter().filter_map(|summary| summary.manifest.as_ref().ok()).collect();
    let (Some(first), Some(last)) = (manifests.first(), manifests.last()) else {
        let message =
            format!("there is no checkpoint here whose manifest can be read: path={}", path.display());
        return Err(Error::new(ErrorKind::Invalid, message).with_remedy(
            "wait for the first checkpoint, or look with `floodmark inspect list` what is wrong with those there are",
        ));
    };
    let points: Vec<GrowthPoint> = manifests.iter().map(|manifest| point(manifest, &manifests)).collect();
    let change = |of: fn(&GrowthPoint) -> u64| match points.as_slice() {
        [first, .., last] => signed(of(last)) - signed(of(first)),
        _ => 0,
    };
    let between_ms = last.created_at_ms.saturating_sub(first.created_at_ms);
    let bytes_change = change(|point| point.bytes);
    Ok(GrowthReport {
        pipeline: last.pipeline.clone(),
        left_out: (summaries.len() - manifests.len()) as u64,
        bytes_change,
        bytes_per_hour: (between_ms >= 1_000).then(|| bytes_change as f64 * 3_600_000.0 / between_ms as f64),
        entries_change: change(|point| point.entries),
        points,
    })
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn point(manifest: &Manifest, all: &[&Manifest]) -> GrowthPoint {
    let parent = all.iter().find(|other| Some(other.epoch) == manifest.parent);
    let operators: Vec<OperatorGrowth> = manifest
        .operators
        .iter()
        .map(|operator| {
            let own = manifest.files.iter().filter(|file| file.family.as_ref() == Some(&operator.family));
            OperatorGrowth {
                name: operator.name.clone(),
                bytes: own.clone().map(|file| file.bytes).sum(),
                entries: own.map(|file| file.entries).sum(),
                open_panes: operator.open_panes,
            }
        })
        .collect();
    GrowthPoint {
        epoch: manifest.epoch,
        created_at: EventTime::from_millis(manifest.created_at_ms),
        watermark: manifest.watermark,
        horizon: manifest.horizon,
        files: manifest.files.len() as u64,
        bytes: manifest.database_bytes(),
        new_bytes: parent.map(|parent| new_bytes(manifest, parent)),
        entries: operators.iter().map(|operator| operator.entries).sum(),
        open_panes: operators.iter().try_fold(0_u64, |sum, operator| sum.checked_add(operator.open_panes?)),
        operators,
    }
}
