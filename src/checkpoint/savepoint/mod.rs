//! Savepoints: named checkpoints that nothing ever collects, and new state directories made of them.
//!
//! The tour: [`create`] gives a complete checkpoint a name ([`record`] says what stands in it), [`list()`] and
//! [`delete`] look after those of a state directory, [`restore`] makes a state directory of a savepoint or of any
//! checkpoint. `copy` lays files out, in a place that is renamed when it is whole. None of it takes the lock of a
//! state directory: it only reads checkpoints, beside a running task. The rules are in `docs/SAVEPOINTS.md`.
//!
//! [`create`]: create()
//! [`delete`]: delete()
//! [`record`]: SavepointRecord
//! [`restore`]: restore()

mod copy;
mod keep;
pub(super) mod record;
mod restore;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::checkpoint::directory::Environment;
use crate::checkpoint::durable::create_dir_durably;
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::layout::{self, Layout};
use crate::checkpoint::listing::{self, CheckpointSummary};
use crate::checkpoint::manifest::{Manifest, ManifestError};
use crate::checkpoint::verify::verify;
use crate::checkpoint::writer::pass;
use crate::codec::DecodeError;

pub(super) use keep::sweep;
pub use keep::{ListedSavepoint, delete, list};
pub use record::{LatePart, Origin, OriginKind, SavepointRecord};
pub(crate) use restore::restore_scratch;
pub use restore::{PartitionChanges, RestoreAs, RestoreRequest, RestoredState, restore};

use copy::{Attempt, lay_out, write_synced};

/// How often another newest checkpoint is taken when one was retired while it was read.
const CHOICES_MAX: u32 = 8;
/// Longest name of a savepoint.
const NAME_LENGTH_MAX: usize = 100;
/// Longest note of a savepoint, in bytes.
const NOTE_BYTES_MAX: usize = 4096;

/// The name of a savepoint: 1 to 100 of `[0-9A-Za-z_-]`, not like that of a checkpoint (`chk-…`) and no option (`-…`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SavepointName(String);

impl SavepointName {
    /// Takes `name` for a name.
    ///
    /// # Errors
    /// [`CheckpointError::Refused`] when it has another form.
    pub fn parse(name: &str) -> Result<Self, CheckpointError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        let good = (1..=NAME_LENGTH_MAX).contains(&name.len()) && name.bytes().all(plain);
        if good && !name.starts_with('-') && !name.starts_with("chk-") {
            return Ok(Self(name.to_owned()));
        }
        Err(CheckpointError::Refused {
            what: format!("this is no name of a savepoint: name={name:?}"),
            path: PathBuf::from("savepoints"),
            remedy: "use 1 to 100 of the characters 0-9, A-Z, a-z, _ and -, and begin neither with - nor with chk-"
                .to_owned(),
        })
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SavepointName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What savepoint to make of what.
#[derive(Clone, Debug)]
pub struct CreateRequest {
    /// Its name.
    pub name: SavepointName,
    /// A state directory, its directory `checkpoints`, or one checkpoint or savepoint.
    pub from: PathBuf,
    /// The checkpoint of this epoch instead of the newest.
    pub at: Option<u64>,
    /// The directory that becomes the savepoint, which must not exist; by default `savepoints/<name>` in the state
    /// directory.
    pub to: Option<PathBuf>,
    /// Why it was made; empty for no reason given.
    pub note: String,
    /// Late parts that were worked into it.
    pub late_parts: std::collections::BTreeSet<LatePart>,
}

/// A savepoint that was made.
#[derive(Clone, Debug)]
pub struct Savepoint {
    /// Its directory.
    pub path: PathBuf,
    /// What it says of itself.
    pub record: SavepointRecord,
    /// The manifest of its checkpoint.
    pub manifest: Arc<Manifest>,
    /// Bytes that it shares with the checkpoint by hard links.
    pub linked_bytes: u64,
    /// Bytes that were copied.
    pub copied_bytes: u64,
}

/// Makes a savepoint of the newest complete checkpoint, or of that of an epoch. A task may be running on the state
/// directory, and may retire checkpoints meanwhile.
///
/// The savepoint is there completely or not at all, and every byte of it was read and verified. A kill leaves at most
/// a hidden directory, which the next attempt under this name and the next start of the task remove.
///
/// # Errors
/// [`CheckpointError::Refused`] when the name is taken or there is nothing to make it of,
/// [`CheckpointError::NoSuchCheckpoint`], [`CheckpointError::Damaged`] when the checkpoint does not verify (there is
/// no fall-back to an older one), [`CheckpointError::Newer`], [`CheckpointError::Sync`]; I/O errors.
pub fn create(request: &CreateRequest, environment: &Environment) -> Result<Savepoint, CheckpointError> {
    let target = target_of(request)?;
    with_checkpoint(&request.from, request.at, |summary, manifest| {
        make(request, environment, &target, summary, manifest)
    })
}

fn make(
    request: &CreateRequest,
    environment: &Environment,
    target: &Path,
    summary: &CheckpointSummary,
    manifest: &Manifest,
) -> Result<Savepoint, CheckpointError> {
    let fs = environment.fs.as_ref();
    refuse_other_epoch(target, manifest)?;
    // Its writer may have been cut before it synced the rename: what is built on here must not be lost before us.
    if let Some(checkpoints) = summary.path.parent().filter(|parent| parent.ends_with("checkpoints")) {
        fs.sync_dir(checkpoints).map_err(CheckpointError::sync("sync the checkpoints", checkpoints))?;
    }
    let parent = crate::checkpoint::durable::parent(target);
    create_dir_durably(fs, parent).map_err(CheckpointError::io("create a directory", parent))?;
    let attempt = Attempt::begin(fs, target)?;
    pass("savepoint.link.before", attempt.dir())?;
    let laid = lay_out(fs, &summary.path, manifest, attempt.dir())?;
    let copied = attempt.copy_manifest(&summary.path)?;
    let record = SavepointRecord {
        name: request.name.to_string(),
        note: request.note.clone(),
        pipeline: manifest.pipeline.clone(),
        lineage: manifest.lineage,
        generation: manifest.generation,
        epoch: manifest.epoch,
        manifest_bytes: copied.bytes,
        manifest_crc32: copied.crc32,
        created_by: env!("CARGO_PKG_VERSION").to_owned(),
        created_at_ms: environment.clock.wall_millis(),
        late_parts: request.late_parts.clone(),
    };
    let bytes = record
        .encode()
        .map_err(|error| CheckpointError::Draft { epoch: manifest.epoch, reason: error.to_string() })?;
    write_synced(fs, &attempt.dir().join(layout::SAVEPOINT), &bytes)?;
    pass("savepoint.link.after", attempt.dir())?;
    // Not what was read of the checkpoint counts, but what is here now.
    let verified = sound(attempt.dir(), &summary.path, manifest.epoch)?;
    attempt.reveal("savepoint.publish.before", "savepoint.publish.after")?;
    Ok(Savepoint {
        path: target.to_owned(),
        record,
        manifest: verified,
        linked_bytes: laid.linked_bytes,
        copied_bytes: laid.copied_bytes,
    })
}

/// Where the savepoint goes; refused when something is there.
fn target_of(request: &CreateRequest) -> Result<PathBuf, CheckpointError> {
    if request.note.len() > NOTE_BYTES_MAX {
        return Err(CheckpointError::Refused {
            what: format!("the note is too long: bytes={} bytes_max={NOTE_BYTES_MAX}", request.note.len()),
            path: request.from.clone(),
            remedy: "shorten it".to_owned(),
        });
    }
    if let Some(to) = &request.to {
        return Ok(to.clone());
    }
    let Some(root) = state_directory(&request.from) else {
        return Err(CheckpointError::Refused {
            what: "a savepoint of something else than a state directory has no place of its own".to_owned(),
            path: request.from.clone(),
            remedy: "name the state directory, or say with --to where the savepoint goes".to_owned(),
        });
    };
    Ok(Layout { root }.savepoints().join(request.name.as_str()))
}

/// The state directory that `path` is, or whose `checkpoints` it is.
fn state_directory(path: &Path) -> Option<PathBuf> {
    let is_one = |path: &Path| std::fs::symlink_metadata(path.join("LINEAGE")).is_ok();
    if is_one(path) {
        return Some(path.to_owned());
    }
    let parent = path.parent().filter(|_| path.ends_with("checkpoints"))?;
    is_one(parent).then(|| parent.to_owned())
}

/// A directory named as the checkpoint of another epoch would never verify.
fn refuse_other_epoch(target: &Path, manifest: &Manifest) -> Result<(), CheckpointError> {
    let name = target.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match layout::epoch_of(&name) {
        Some(epoch) if epoch != manifest.epoch => Err(CheckpointError::Refused {
            what: format!("the directory has the name of another checkpoint: epoch={}", manifest.epoch),
            path: target.to_owned(),
            remedy: "choose another name".to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Hands the checkpoint of epoch `at`, or the newest one, to `read`; the next one when it was retired meanwhile.
fn with_checkpoint<T>(
    from: &Path,
    at: Option<u64>,
    mut read: impl FnMut(&CheckpointSummary, &Manifest) -> Result<T, CheckpointError>,
) -> Result<T, CheckpointError> {
    for _ in 0..CHOICES_MAX {
        let summary = choose(from, at)?;
        let result = match &summary.manifest {
            Ok(manifest) => read(&summary, manifest),
            Err(error) => Err(not_believed(&summary, error)),
        };
        // Only what comes of reading a checkpoint can come of its being taken away.
        let of_reading = matches!(result, Err(CheckpointError::Io { .. } | CheckpointError::Damaged { .. }));
        if !of_reading || summary.is_there() {
            return result;
        }
    }
    Err(CheckpointError::Refused {
        what: "checkpoints were retired faster than they could be linked".to_owned(),
        path: from.to_owned(),
        remedy: "try again, or keep more checkpoints with `retain`".to_owned(),
    })
}

/// The manifest that a savepoint or restore of `from` would start from. It says nothing yet about the files.
///
/// # Errors
/// As [`create()`].
pub fn peek(from: &Path, at: Option<u64>) -> Result<Manifest, CheckpointError> {
    with_checkpoint(from, at, |_, manifest| Ok(manifest.clone()))
}

/// A directory is not listed in one moment: while a checkpoint takes the place of the only other one, both can be missed.
fn list_again_if_empty(from: &Path) -> Result<Vec<CheckpointSummary>, CheckpointError> {
    for _ in 1..CHOICES_MAX {
        let summaries = listing::list(from)?;
        if !summaries.is_empty() {
            return Ok(summaries);
        }
    }
    listing::list(from)
}

fn choose(from: &Path, at: Option<u64>) -> Result<CheckpointSummary, CheckpointError> {
    let mut summaries = list_again_if_empty(from)?;
    let Some(epoch) = at else {
        return summaries.pop().ok_or_else(|| CheckpointError::Refused {
            what: "there is no checkpoint yet".to_owned(),
            path: from.to_owned(),
            remedy: "wait for the first checkpoint, or look for the directory in the pipeline file"
                .to_owned(),
        });
    };
    match summaries.iter().position(|summary| summary.epoch == Some(epoch)) {
        Some(index) => Ok(summaries.swap_remove(index)),
        None => {
            let present = summaries.iter().rev().filter_map(|summary| summary.epoch).take(20).collect();
            Err(CheckpointError::NoSuchCheckpoint { epoch, path: from.to_owned(), present })
        }
    }
}

fn not_believed(summary: &CheckpointSummary, error: &ManifestError) -> CheckpointError {
    let path = summary.path.clone();
    match error {
        ManifestError::Decode(DecodeError::Version { found, known }) => {
            CheckpointError::Newer { what: "checkpoint", path, found: *found, known: *known }
        }
        _ => CheckpointError::Damaged {
            epoch: summary.epoch.unwrap_or_default(),
            path,
            problems: error.to_string(),
            alternative: None,
            lasting: !matches!(error, ManifestError::Unreadable(_)),
        },
    }
}

/// Verifies what was laid out in `dir`; damage is the damage of the checkpoint that it was taken from.
fn sound(dir: &Path, source: &Path, epoch: u64) -> Result<Arc<Manifest>, CheckpointError> {
    match verify(dir).into_verified() {
        Ok(verified) => Ok(Arc::clone(verified.manifest())),
        Err(report) => Err(CheckpointError::Damaged {
            epoch,
            path: source.to_owned(),
            problems: report.problem_line(),
            alternative: None,
            lasting: !report.problems.iter().all(super::Problem::is_passing),
        }),
    }
}
