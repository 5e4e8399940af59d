//! The list of checkpoints, from their manifests alone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::checkpoint::{CheckpointSummary, Manifest};
use crate::error::Result;
use crate::event_time::{EventTime, Watermark};
use crate::inspect::choice::summaries;
use crate::inspect::text::as_optional_text;

/// One checkpoint in a list. What only a manifest can tell is absent when the manifest is not believed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListedCheckpoint {
    /// Its directory.
    pub path: PathBuf,
    /// Its epoch, by the directory's name or by the manifest.
    pub epoch: Option<u64>,
    /// The checkpoint that the work went on from.
    pub parent: Option<u64>,
    /// The open that wrote it.
    pub generation: Option<u64>,
    /// When it was written, by the wall clock there.
    #[serde(serialize_with = "as_optional_text")]
    pub created_at: Option<EventTime>,
    /// Milliseconds since it was written; zero when the clocks disagree.
    pub age_ms: Option<u64>,
    /// Its watermark.
    #[serde(serialize_with = "as_optional_text")]
    pub watermark: Option<Watermark>,
    /// Open panes, when its writer could count them.
    pub open_panes: Option<u64>,
    /// Files of its database.
    pub files: Option<u64>,
    /// Bytes of these files.
    pub bytes: Option<u64>,
    /// Bytes of files that the checkpoint before does not hold, when that one is still there.
    pub new_bytes: Option<u64>,
    /// Why its manifest is not believed.
    pub problem: Option<String>,
}

/// The checkpoints under `path`, oldest first: a state directory, its directory `checkpoints`, or one checkpoint.
///
/// # Errors
/// [`crate::error::ErrorKind::Invalid`] when `path` is none of these, [`crate::error::ErrorKind::Unavailable`] when it
/// cannot be read. A manifest that is damaged is a line of the list and no error.
pub fn list(path: &Path, now_ms: i64) -> Result<Vec<ListedCheckpoint>> {
    let summaries = summaries(path)?;
    let manifests: BTreeMap<u64, &Manifest> = summaries
        .iter()
        .filter_map(|summary| summary.manifest.as_ref().ok())
        .map(|manifest| (manifest.epoch, manifest))
        .collect();
    Ok(summaries.iter().map(|summary| listed(summary, &manifests, now_ms)).collect())
}

fn listed(summary: &CheckpointSummary, all: &BTreeMap<u64, &Manifest>, now_ms: i64) -> ListedCheckpoint {
    let manifest = summary.manifest.as_ref().ok();
    ListedCheckpoint {
        path: summary.path.clone(),
        epoch: summary.epoch,
        parent: manifest.and_then(|manifest| manifest.parent),
        generation: manifest.map(|manifest| manifest.generation),
        created_at: manifest.map(|manifest| EventTime::from_millis(manifest.created_at_ms)),
        age_ms: manifest.map(|manifest| age_ms(manifest, now_ms)),
        watermark: manifest.map(|manifest| manifest.watermark),
        open_panes: manifest.and_then(open_panes),
        files: manifest.map(|manifest| manifest.files.len() as u64),
        bytes: manifest.map(Manifest::database_bytes),
        new_bytes: manifest.and_then(|manifest| match manifest.parent {
            None => Some(manifest.database_bytes()),
            Some(parent) => all.get(&parent).map(|parent| new_bytes(manifest, parent)),
        }),
        problem: summary.manifest.as_ref().err().map(ToString::to_string),
    }
}

/// Milliseconds since a checkpoint was written; zero when the clocks disagree.
pub(super) fn age_ms(manifest: &Manifest, now_ms: i64) -> u64 {
    u64::try_from(now_ms.saturating_sub(manifest.created_at_ms)).unwrap_or(0)
}

fn open_panes(manifest: &Manifest) -> Option<u64> {
    manifest.operators.iter().try_fold(0_u64, |sum, operator| sum.checked_add(operator.open_panes?))
}

/// Bytes of the files that are not those of `parent`: a file is the same under one name, size and checksum.
pub(super) fn new_bytes(manifest: &Manifest, parent: &Manifest) -> u64 {
    let known = |name: &str| parent.file(name).map(|file| (file.bytes, file.crc32));
    let new = manifest.files.iter().filter(|file| known(&file.name) != Some((file.bytes, file.crc32)));
    new.fold(0, |sum, file| sum.saturating_add(file.bytes))
}
