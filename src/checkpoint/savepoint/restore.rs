//! Making a new state directory of a savepoint, or of any checkpoint: the same history elsewhere, or one of its own.
//!
//! What a fork must not take along is decided here: the lineage, and output that is staged for the original.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::copy::{Attempt, lay_out, write_synced};
use super::record::{Origin, OriginKind, SavepointRecord};
use super::{sound, with_checkpoint};
use crate::checkpoint::directory::Environment;
use crate::checkpoint::durable::{create_dir_durably, parent};
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::layout::{self, Layout};
use crate::checkpoint::lineage::{Lineage, LineageId};
use crate::checkpoint::listing::CheckpointSummary;
use crate::checkpoint::lock::holder_of;
use crate::checkpoint::manifest::Manifest;
use crate::checkpoint::writer::pass;

/// Bits of a generation that count opens of one state directory; those above count moves.
const OPENS_BITS: u32 = 32;

/// What the new state directory is to the old one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestoreAs {
    /// The same pipeline, which goes on there and nowhere else: same lineage, and a generation above all that the
    /// original can ever have, so that it is fenced out of the outputs.
    Move,
    /// A pipeline of its own from there on: new lineage, nothing staged, outputs of its own.
    Fork {
        /// Its name; that of the original when `None`.
        name: Option<String>,
    },
}

/// Source partitions that are not what they were at the checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionChanges {
    /// Given up: they count as read to their end. What they held beyond is lost.
    pub drop: BTreeSet<String>,
    /// Under another name: old to new.
    pub rename: BTreeMap<String, String>,
}

/// What is to be restored to where.
#[derive(Clone, Debug)]
pub struct RestoreRequest {
    /// A savepoint, a checkpoint, or a state directory, whose newest checkpoint is taken.
    pub from: PathBuf,
    /// The checkpoint of this epoch instead of the newest.
    pub at: Option<u64>,
    /// The new state directory; must not exist, or be empty.
    pub to: PathBuf,
    /// Move or fork.
    pub how: RestoreAs,
    /// Partitions given up or renamed.
    pub partitions: PartitionChanges,
}

/// A state directory that was made.
#[derive(Clone, Debug)]
pub struct RestoredState {
    /// Where it is.
    pub path: PathBuf,
    /// The name of its pipeline.
    pub pipeline: String,
    /// Its lineage.
    pub lineage: LineageId,
    /// The checkpoint in it.
    pub epoch: u64,
    /// Where it came from.
    pub origin: Origin,
    /// Rows that are staged for the outputs: a move publishes them at its first start, if that was not done.
    pub staged_rows: u64,
    /// Rows that were staged and that a fork leaves to the original.
    pub rows_left: u64,
    /// Bytes shared with the original by hard links.
    pub linked_bytes: u64,
    /// Bytes copied.
    pub copied_bytes: u64,
}

/// Makes a state directory with one checkpoint in it, from which a pipeline goes on. It is there completely or not at
/// all, and every byte of it was read and verified. The original is not changed.
///
/// # Errors
/// [`CheckpointError::OriginalInUse`] for a move while a process runs on the original; [`CheckpointError::Refused`] when the
/// target is taken or a partition is not known; otherwise as [`super::create()`].
pub fn restore(
    request: &RestoreRequest,
    environment: &Environment,
) -> Result<RestoredState, CheckpointError> {
    let new_lineage = match (&request.how, environment.new_lineage) {
        (RestoreAs::Move, _) => None,
        (RestoreAs::Fork { .. }, Some(id)) => Some(id),
        (RestoreAs::Fork { .. }, None) => {
            Some(LineageId::random().map_err(CheckpointError::io("draw a lineage id", &request.to))?)
        }
    };
    with_checkpoint(&request.from, request.at, |summary, manifest| {
        if new_lineage.is_none() {
            refuse_running(&summary.path)?;
        }
        make(request, environment, new_lineage, summary, manifest)
    })
}

/// As a move, for a directory that nobody runs a pipeline on: where one savepoint is made of another.
///
/// # Errors
/// As [`restore`], but a process on the original is no obstacle.
pub(crate) fn restore_scratch(
    from: &Path,
    to: &Path,
    environment: &Environment,
) -> Result<RestoredState, CheckpointError> {
    let request = RestoreRequest {
        from: from.to_owned(),
        at: None,
        to: to.to_owned(),
        how: RestoreAs::Move,
        partitions: PartitionChanges::default(),
    };
    with_checkpoint(from, None, |summary, manifest| make(&request, environment, None, summary, manifest))
}

fn make(
    request: &RestoreRequest,
    environment: &Environment,
    new_lineage: Option<LineageId>,
    summary: &CheckpointSummary,
    original: &Manifest,
) -> Result<RestoredState, CheckpointError> {
    let fs = environment.fs.as_ref();
    let known = original_lineage(&summary.path, original)?;
    let manifest = manifest_of(request, new_lineage, original)?;
    let lineage = Lineage {
        id: manifest.lineage,
        pipeline: manifest.pipeline.clone(),
        generation: match new_lineage {
            Some(_) => 0,
            None => moved_generation(original.generation.max(known)),
        },
        newest_epoch_seen: manifest.epoch,
    };
    let origin = origin_of(request, environment, new_lineage.is_some(), summary, original);
    let home = parent(&request.to);
    create_dir_durably(fs, home).map_err(CheckpointError::io("create a directory", home))?;
    let attempt = Attempt::begin(fs, &request.to)?;
    pass("restore.link.before", attempt.dir())?;
    let layout = Layout { root: attempt.dir().to_owned() };
    let checkpoint = layout.checkpoint(manifest.epoch);
    for dir in [layout.checkpoints(), checkpoint.clone()] {
        fs.create_dir(&dir).map_err(CheckpointError::io("create a directory", &dir))?;
    }
    let laid = lay_out(fs, &summary.path, original, &checkpoint)?;
    let encoded = |result: Result<Vec<u8>, String>| {
        result.map_err(|reason| CheckpointError::Draft { epoch: original.epoch, reason })
    };
    let bytes = encoded(manifest.encode().map_err(|error| error.to_string()))?;
    write_synced(fs, &checkpoint.join(layout::MANIFEST), &bytes)?;
    for dir in [&checkpoint, &layout.checkpoints()] {
        fs.sync_dir(dir).map_err(CheckpointError::sync("sync the checkpoint", dir))?;
    }
    sound(&checkpoint, &summary.path, original.epoch)?;
    let bytes = encoded(origin.encode().map_err(|error| error.to_string()))?;
    write_synced(fs, &attempt.dir().join(layout::ORIGIN), &bytes)?;
    let bytes = encoded(lineage.encode().map_err(|error| error.to_string()))?;
    write_synced(fs, &layout.lineage(), &bytes)?;
    pass("restore.link.after", attempt.dir())?;
    attempt.reveal("restore.publish.before", "restore.publish.after")?;
    let rows = |manifest: &Manifest| manifest.staged.iter().map(|staged| staged.rows).sum::<u64>();
    Ok(RestoredState {
        path: request.to.clone(),
        pipeline: lineage.pipeline,
        lineage: lineage.id,
        epoch: manifest.epoch,
        origin,
        staged_rows: rows(&manifest),
        rows_left: rows(original).saturating_sub(rows(&manifest)),
        linked_bytes: laid.linked_bytes,
        copied_bytes: laid.copied_bytes,
    })
}

/// A generation above every one that the original can reach by being opened again.
fn moved_generation(known: u64) -> u64 {
    ((known >> OPENS_BITS) + 1).checked_mul(1 << OPENS_BITS).unwrap_or(u64::MAX - 1)
}

/// The manifest of the checkpoint in its new place.
fn manifest_of(
    request: &RestoreRequest,
    new_lineage: Option<LineageId>,
    original: &Manifest,
) -> Result<Manifest, CheckpointError> {
    let mut manifest = original.clone();
    if let (RestoreAs::Fork { name }, Some(id)) = (&request.how, new_lineage) {
        manifest.lineage = id;
        manifest.generation = 0;
        manifest.parent = None;
        // These rows are the original's: it publishes them, or has done so.
        manifest.staged.clear();
        if let Some(name) = name {
            manifest.pipeline.clone_from(name);
        }
    }
    change_partitions(&mut manifest, &request.partitions, &request.from)?;
    Ok(manifest)
}

fn change_partitions(
    manifest: &mut Manifest,
    changes: &PartitionChanges,
    from: &Path,
) -> Result<(), CheckpointError> {
    let refused = |what: String| CheckpointError::Refused {
        what,
        path: from.to_owned(),
        remedy: "`floodmark inspect show` lists the partitions of a checkpoint".to_owned(),
    };
    let mut names: BTreeSet<&str> =
        manifest.partitions.iter().map(|partition| partition.name.as_str()).collect();
    for name in changes.drop.iter().chain(changes.rename.keys()) {
        if !names.contains(name.as_str()) {
            return Err(refused(format!("the checkpoint has no such source partition: name={name:?}")));
        }
    }
    for old in changes.rename.keys() {
        names.remove(old.as_str());
    }
    for new in changes.rename.values() {
        if !names.insert(new) {
            return Err(refused(format!("two source partitions would have one name: name={new:?}")));
        }
    }
    for partition in &mut manifest.partitions {
        partition.finished |= changes.drop.contains(&partition.name);
        if let Some(new) = changes.rename.get(&partition.name) {
            partition.name.clone_from(new);
        }
    }
    Ok(())
}

fn origin_of(
    request: &RestoreRequest,
    environment: &Environment,
    forked: bool,
    summary: &CheckpointSummary,
    original: &Manifest,
) -> Origin {
    // A record that cannot be read makes the note poorer; verification has its say about it.
    let record = SavepointRecord::load(&summary.path).ok().flatten();
    Origin {
        kind: if forked { OriginKind::Forked } else { OriginKind::Moved },
        pipeline: original.pipeline.clone(),
        lineage: original.lineage,
        generation: original.generation,
        epoch: original.epoch,
        savepoint: record.map(|record| record.name).unwrap_or_default(),
        restored_at_ms: environment.clock.wall_millis(),
        dropped_partitions: request.partitions.drop.iter().cloned().collect(),
        renamed_partitions: request.partitions.rename.clone().into_iter().collect(),
    }
}

/// The state directory that a checkpoint or savepoint lies in, when it lies in one.
fn home_of(checkpoint: &Path) -> Option<Layout> {
    let inside = checkpoint.parent()?;
    let inside =
        inside.file_name().filter(|name| *name == "checkpoints" || *name == "savepoints").map(|_| inside)?;
    let layout = Layout { root: inside.parent()?.to_owned() };
    std::fs::symlink_metadata(layout.lineage()).is_ok().then_some(layout)
}

/// The generation that the original has come to, where that can be seen; 0 otherwise.
fn original_lineage(checkpoint: &Path, manifest: &Manifest) -> Result<u64, CheckpointError> {
    let Some(layout) = home_of(checkpoint) else { return Ok(0) };
    let lineage = Lineage::load(&layout.lineage())?.filter(|lineage| lineage.id == manifest.lineage);
    Ok(lineage.map_or(0, |lineage| lineage.generation))
}

/// The same history must not go on in two places.
fn refuse_running(checkpoint: &Path) -> Result<(), CheckpointError> {
    let Some(layout) = home_of(checkpoint) else { return Ok(()) };
    let held = holder_of(&layout.lock()).map_err(CheckpointError::io("look at the lock", &layout.lock()))?;
    match held {
        Some(holder) => Err(CheckpointError::OriginalInUse { path: layout.root, holder }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moved_generation_is_above_all_that_the_original_can_reach() {
        for known in [0, 1, 7, u64::from(u32::MAX)] {
            assert_eq!(moved_generation(known), 1 << 32, "{known}");
        }
        assert_eq!(moved_generation((1 << 32) + 5), 2 << 32);
        assert_eq!(moved_generation(u64::MAX - 5), u64::MAX - 1);
    }
}
