//! Finding the checkpoint that is asked for, beside a task that may retire it at any moment.

use std::io;
use std::path::{Path, PathBuf};

use crate::checkpoint::{self, CheckpointSummary, Manifest, ManifestError};
use crate::codec::DecodeError;
use crate::error::{Error, ErrorKind, Result};

/// How often another newest checkpoint is taken when one was retired while it was read.
pub(super) const CHOICES_MAX: u32 = 5;

/// A checkpoint whose manifest is believed. Its files may still not be as the manifest says.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) summary: CheckpointSummary,
    pub(super) manifest: Manifest,
}

/// Hands the checkpoint of epoch `at`, or the newest one, to `read`; the next one when it was retired meanwhile.
pub(super) fn with_checkpoint<T>(
    path: &Path,
    at: Option<u64>,
    mut read: impl FnMut(&Chosen) -> Result<T>,
) -> Result<T> {
    for _ in 0..CHOICES_MAX {
        let chosen = believed(choose(path, at)?)?;
        let result = read(&chosen);
        if result.is_ok() || chosen.summary.is_there() {
            return result;
        }
    }
    Err(retired(path))
}

/// The path and the manifest of the checkpoint of epoch `at`, or of the newest one; its files are not looked at.
pub(crate) fn manifest_of(path: &Path, at: Option<u64>) -> Result<(PathBuf, Manifest)> {
    with_checkpoint(path, at, |chosen| Ok((chosen.summary.path.clone(), chosen.manifest.clone())))
}

/// The error for checkpoints that vanish faster than they can be read.
pub(super) fn retired(path: &Path) -> Error {
    let message = format!("checkpoints were retired while they were read: path={}", path.display());
    Error::new(ErrorKind::Unavailable, message)
        .with_remedy("copy the newest checkpoint elsewhere and inspect the copy, or keep more with `retain`")
}

/// The checkpoints under `path`, oldest first.
pub(super) fn summaries(path: &Path) -> Result<Vec<CheckpointSummary>> {
    const REMEDY: &str = "name a state directory (`state.directory` in the pipeline file), its directory \
                          `checkpoints`, or one checkpoint";
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(checkpoint::list(path)?),
        Ok(_) => {
            let message = format!("this is not a directory: path={}", path.display());
            Err(Error::new(ErrorKind::Invalid, message).with_remedy(REMEDY))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let message = format!("there is no such directory: path={}", path.display());
            Err(Error::new(ErrorKind::Unavailable, message).with_remedy(REMEDY))
        }
        Err(_) => Ok(checkpoint::list(path)?),
    }
}

/// The checkpoint of epoch `at`, or the newest one.
pub(super) fn choose(path: &Path, at: Option<u64>) -> Result<CheckpointSummary> {
    let mut summaries = summaries(path)?;
    let index = match at {
        None => summaries.len().checked_sub(1),
        Some(epoch) => summaries.iter().position(|summary| summary.epoch == Some(epoch)),
    };
    match index {
        Some(index) => Ok(summaries.swap_remove(index)),
        None => Err(none_such(path, at, &summaries)),
    }
}

fn none_such(path: &Path, at: Option<u64>, summaries: &[CheckpointSummary]) -> Error {
    let path = path.display();
    let present: Vec<String> =
        summaries.iter().filter_map(|summary| summary.epoch).map(|epoch| epoch.to_string()).collect();
    let (message, remedy) = match at {
        Some(epoch) if !present.is_empty() => (
            format!("no checkpoint of this epoch: path={path} epoch={epoch}"),
            format!("ask for one of the epochs that are there: {}", present.join(", ")),
        ),
        _ => (
            format!("there is no checkpoint here yet: path={path}"),
            "wait for the first checkpoint, or look for the directory in the pipeline file".to_owned(),
        ),
    };
    Error::new(ErrorKind::Invalid, message).with_remedy(remedy)
}

/// A checkpoint whose manifest can be read.
pub(super) fn believed(mut summary: CheckpointSummary) -> Result<Chosen> {
    let manifest = std::mem::replace(&mut summary.manifest, Err(ManifestError::Missing));
    match manifest {
        Ok(manifest) => Ok(Chosen { summary, manifest }),
        Err(error) => Err(not_believed(&summary.path, error)),
    }
}

fn not_believed(path: &Path, error: ManifestError) -> Error {
    let (kind, remedy) = match &error {
        ManifestError::Decode(DecodeError::Version { .. }) => (
            ErrorKind::Incompatible,
            "use a version of floodmark that is at least as new as the one that wrote it",
        ),
        ManifestError::Unreadable(_) => {
            (ErrorKind::Unavailable, "check that the directory and the files in it can be read")
        }
        _ => {
            (ErrorKind::Damaged, "ask for an older checkpoint with --at; `floodmark inspect list` shows them")
        }
    };
    let message = format!("checkpoint cannot be read: path={}", path.display());
    Error::new(kind, message).with_remedy(remedy).with_source(error)
}
