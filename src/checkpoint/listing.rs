//! Listing checkpoints for people and tools, without the lock and beside a running writer.
//!
//! Reads manifests only; whether the files hold is for `verify` to say.

use std::io;
use std::path::{Path, PathBuf};

use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::layout::{self, EntryName};
use crate::checkpoint::manifest::{Manifest, ManifestError};

/// One checkpoint as its manifest describes it.
#[derive(Debug)]
pub struct CheckpointSummary {
    /// Its directory.
    pub path: PathBuf,
    /// The epoch in the directory's name, or in the manifest of one that was copied under another name.
    pub epoch: Option<u64>,
    /// The manifest, or why it is not believed.
    pub manifest: Result<Manifest, ManifestError>,
}

impl CheckpointSummary {
    /// Its database, to be opened read-only.
    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.path.join(layout::DATABASE)
    }

    /// False once retention has taken it away.
    #[must_use]
    pub fn is_there(&self) -> bool {
        !vanished(&self.path)
    }
}

/// The checkpoints under `path`, oldest first: a state directory, its directory `checkpoints`, or one checkpoint.
///
/// One that vanishes meanwhile, as retention makes them, is left out; so is anything not named as a checkpoint.
///
/// # Errors
/// [`CheckpointError::NoCheckpoints`] when `path` is none of these, [`CheckpointError::Io`] when it cannot be read.
pub fn list(path: &Path) -> Result<Vec<CheckpointSummary>, CheckpointError> {
    if std::fs::symlink_metadata(path.join(layout::MANIFEST)).is_ok() {
        return Ok(summary(path.to_owned(), None).into_iter().collect());
    }
    let checkpoints = path.join("checkpoints");
    let is_state_directory = checkpoints.is_dir();
    let directory = if is_state_directory { checkpoints.as_path() } else { path };
    let epochs = complete_epochs(directory)?;
    if epochs.is_empty() && !is_state_directory && !path.ends_with("checkpoints") {
        return Err(CheckpointError::NoCheckpoints { path: path.to_owned() });
    }
    let summaries = epochs
        .into_iter()
        .filter_map(|epoch| summary(directory.join(layout::checkpoint_name(epoch)), Some(epoch)));
    Ok(summaries.collect())
}

/// Epochs of the complete checkpoints in a directory of checkpoints, ascending, by their names alone.
pub(super) fn complete_epochs(directory: &Path) -> Result<Vec<u64>, CheckpointError> {
    let mut epochs = Vec::new();
    for entry in layout::entries(directory).map_err(CheckpointError::io("list checkpoints", directory))? {
        let (name, _) = entry.map_err(CheckpointError::io("list checkpoints", directory))?;
        if let EntryName::Complete(epoch) = EntryName::parse(&name) {
            epochs.push(epoch);
        }
    }
    epochs.sort_unstable();
    Ok(epochs)
}

/// The summary of one checkpoint; `None` when it vanished.
fn summary(path: PathBuf, named: Option<u64>) -> Option<CheckpointSummary> {
    let manifest = match load_directory(&path) {
        Err(ManifestError::Missing) if vanished(&path) => return None,
        other => other,
    };
    let epoch = named.or_else(|| manifest.as_ref().ok().map(|manifest| manifest.epoch));
    Some(CheckpointSummary { path, epoch, manifest })
}

/// As [`Manifest::load`], for a path that must be a directory and not a symlink to one.
pub(super) fn load_directory(path: &Path) -> Result<Manifest, ManifestError> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => Manifest::load(path),
        Ok(_) => {
            Err(ManifestError::Unreadable(io::Error::new(io::ErrorKind::InvalidData, "not a directory")))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(ManifestError::Missing),
        Err(error) => Err(ManifestError::Unreadable(error)),
    }
}

fn vanished(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}
