//! Making a state directory around a checkpoint that came from elsewhere, and looking at one without opening it.
//!
//! Where the checkpoint comes from is the caller's business. The order lets a cut leave a directory without
//! checkpoints, which is adopted again, or one that is complete.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use crate::checkpoint::directory::{create_if_missing, refuse_foreign, take_lock, write_lineage};
use crate::checkpoint::durable::{DiskFs, DurableFs, create_dir_durably};
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::layout::Layout;
use crate::checkpoint::lineage::{Lineage, LineageId};
use crate::checkpoint::listing::complete_epochs;
use crate::checkpoint::lock::{DirectoryLock, Holder, holder_of};
use crate::checkpoint::verify::verify;
use crate::clock::Clock;

/// What a state directory says of itself, from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalState {
    /// The pipeline.
    pub pipeline: String,
    /// The history of its checkpoints.
    pub lineage: LineageId,
    /// The generation of its last open.
    pub generation: u64,
    /// Its complete checkpoints, by their names.
    pub epochs: BTreeSet<u64>,
}

/// Looks at the state directory at `path`, without its lock; `None` when there is none, or none that was ever opened.
///
/// # Errors
/// [`CheckpointError::LineageDamaged`], [`CheckpointError::Newer`]; I/O errors.
pub fn look(path: &Path) -> Result<Option<LocalState>, CheckpointError> {
    let layout = Layout { root: path.to_owned() };
    let Some(lineage) = Lineage::load(&layout.lineage())? else { return Ok(None) };
    Ok(Some(LocalState {
        pipeline: lineage.pipeline,
        lineage: lineage.id,
        generation: lineage.generation,
        epochs: epochs(&layout)?,
    }))
}

/// As [`look`], and refuses what [`StateDirectory::open`](super::StateDirectory::open) refuses of a directory as a whole,
/// before it takes the lock. Changes nothing.
///
/// # Errors
/// As [`look`]; [`CheckpointError::Foreign`], [`CheckpointError::LineageLost`], [`CheckpointError::OtherPipeline`].
pub fn preflight(path: &Path, pipeline: &str) -> Result<Option<LocalState>, CheckpointError> {
    refuse_foreign(&Layout { root: path.to_owned() })?;
    match look(path)? {
        Some(local) if local.pipeline != pipeline => Err(CheckpointError::OtherPipeline {
            path: path.to_owned(),
            found: local.pipeline,
            asked: pipeline.to_owned(),
        }),
        local => Ok(local),
    }
}

/// Who holds the state directory at `path`, if anybody does. Changes nothing.
///
/// # Errors
/// When its lock cannot be looked at.
pub fn holder(path: &Path) -> Result<Option<Holder>, CheckpointError> {
    let lock = Layout { root: path.to_owned() }.lock();
    holder_of(&lock).map_err(CheckpointError::io("look at the lock", &lock))
}

pub(super) fn epochs(layout: &Layout) -> Result<BTreeSet<u64>, CheckpointError> {
    match complete_epochs(&layout.checkpoints()) {
        Err(CheckpointError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Ok(BTreeSet::new())
        }
        other => Ok(other?.into_iter().collect()),
    }
}

/// A state directory without checkpoints that is about to get its first, from elsewhere. Holds the lock.
#[derive(Debug)]
pub struct Adoption {
    layout: Layout,
    pipeline: String,
    epoch: u64,
    incoming: PathBuf,
    _lock: DirectoryLock,
}

impl Adoption {
    /// Makes `path` ready to take the checkpoint of `epoch`. Repeated with the same `source` (what tells two
    /// checkpoints of one epoch apart), it finds what an earlier attempt left in [`Adoption::incoming`].
    ///
    /// # Errors
    /// [`CheckpointError::Locked`], [`CheckpointError::Foreign`], [`CheckpointError::OtherPipeline`];
    /// [`CheckpointError::EpochTaken`] when there are checkpoints; I/O errors.
    pub fn begin(
        path: &Path,
        pipeline: &str,
        epoch: u64,
        source: u64,
        clock: &dyn Clock,
    ) -> Result<Self, CheckpointError> {
        let layout = Layout { root: path.to_owned() };
        refuse_foreign(&layout)?;
        create_dir_durably(&DiskFs, path).map_err(CheckpointError::io("create the state directory", path))?;
        let lock = take_lock(&layout, clock)?;
        if let Some(known) = Lineage::load(&layout.lineage())?
            && known.pipeline != pipeline
        {
            let (path, asked) = (path.to_owned(), pipeline.to_owned());
            return Err(CheckpointError::OtherPipeline { path, found: known.pipeline, asked });
        }
        if let Some(&newest) = epochs(&layout)?.last() {
            return Err(CheckpointError::EpochTaken { epoch, next: newest.saturating_add(1) });
        }
        create_if_missing(&DiskFs, &layout.checkpoints())?;
        // The writer counts its attempts from one: this name is nobody else's, and swept like theirs.
        let incoming = layout.attempt(epoch, source, 0);
        Ok(Self { layout, pipeline: pipeline.to_owned(), epoch, incoming, _lock: lock })
    }

    /// Where the checkpoint belongs until it is complete.
    #[must_use]
    pub fn incoming(&self) -> PathBuf {
        self.incoming.clone()
    }

    /// Takes the checkpoint in, as the only one of `lineage`, last opened under `generation`.
    ///
    /// # Errors
    /// [`CheckpointError::Damaged`] when it does not verify or is another one; I/O errors.
    pub fn complete(self, lineage: LineageId, generation: u64) -> Result<(), CheckpointError> {
        let report = verify(&self.incoming);
        let fits = report.manifest.as_ref().is_some_and(|manifest| {
            (manifest.epoch, manifest.lineage) == (self.epoch, lineage) && manifest.pipeline == self.pipeline
        });
        if !report.is_sound() || !fits {
            return Err(CheckpointError::Damaged {
                epoch: self.epoch,
                path: self.incoming,
                problems: format!("not the checkpoint that was to be taken in; {}", report.problem_line()),
                alternative: None,
                lasting: true,
            });
        }
        let lineage = Lineage { id: lineage, pipeline: self.pipeline, generation, newest_epoch_seen: 0 };
        write_lineage(&DiskFs, &self.layout, &lineage)?;
        let path = self.layout.checkpoint(self.epoch);
        DiskFs.rename(&self.incoming, &path).map_err(CheckpointError::io("take a checkpoint in", &path))?;
        let checkpoints = self.layout.checkpoints();
        DiskFs.sync_dir(&checkpoints).map_err(CheckpointError::sync("sync the checkpoints", &checkpoints))
    }
}
