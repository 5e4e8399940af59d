//! Restoring: which checkpoint, verified, and its files laid out as a fresh working database.
//!
//! Never falls back by itself. The decision is `plan`'s; sinks and sources are told what to do by others.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::checkpoint::directory::{Parent, Shared, StateDirectory, remove_any};
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::layout::{self, Layout};
use crate::checkpoint::lineage::Lineage;
use crate::checkpoint::listing::{complete_epochs, load_directory};
use crate::checkpoint::manifest::FileEntry;
use crate::checkpoint::plan::{RestorePlan, alternatives, plan_restore};
use crate::checkpoint::verify::{Problem, VerifiedManifest, VerifyReport, verify};
use crate::checkpoint::writer::Published;

/// What to start from.
#[derive(Clone, Debug)]
pub struct RestoreChoice {
    /// The verified checkpoint; `None` when there never was one.
    pub chosen: Option<VerifiedManifest>,
    /// Newer ones passed over because an older one was asked for. Outputs published after [`RestoreChoice::chosen`]
    /// are ahead of the state: a sink that cannot be taken back must refuse.
    pub newer: Vec<u64>,
    /// Other checkpoints whose manifests cannot be read.
    pub damaged: Vec<DamagedCheckpoint>,
}

/// A checkpoint that cannot be restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedCheckpoint {
    /// Its epoch, by its name.
    pub epoch: u64,
    /// What is wrong.
    pub reason: String,
}

impl StateDirectory {
    /// The checkpoint to restore: the newest, or the one that `at` names, with every file verified.
    ///
    /// # Errors
    /// [`CheckpointError::Damaged`] when it does not verify, with an older one that does and how to ask for it;
    /// [`CheckpointError::NewestMissing`] when a checkpoint that an earlier start saw is gone;
    /// [`CheckpointError::NoSuchCheckpoint`]; [`CheckpointError::Newer`]; I/O errors.
    pub fn newest_verified(&self, at: Option<u64>) -> Result<RestoreChoice, CheckpointError> {
        let present: BTreeSet<u64> = complete_epochs(&self.checkpoints())?.into_iter().collect();
        let Shared { layout, lineage, .. } = &*self.shared;
        Choosing { layout, lineage }.newest_verified(&present, at)
    }

    /// Lays the checkpoint's files out as the working database of this open: tables as hard links, the rest copied,
    /// since the database rewrites only those. Nothing is synced; the working database is disposable.
    ///
    /// Checkpoints begun from here on name it as their parent.
    ///
    /// # Errors
    /// [`CheckpointError::Damaged`] when a file no longer is what was verified; I/O errors, also when the working
    /// directory exists. What was laid out until then is removed.
    pub fn materialise(&self, verified: &VerifiedManifest) -> Result<PathBuf, CheckpointError> {
        self.check_owner()?;
        let work = self.work_dir();
        let fs = self.shared.fs.as_ref();
        fs.create_dir(&work).map_err(CheckpointError::io("create the working directory", &work))?;
        if let Err(error) = self.lay_out(verified, &work) {
            if let Err(error) = remove_any(fs, &work) {
                tracing::warn!(path = %work.display(), %error, "left for the next start to sweep");
            }
            return Err(error);
        }
        let parent = Parent { manifest: Arc::clone(verified.manifest()), path: verified.path().to_owned() };
        self.shared.progress().parent = Some(Arc::new(parent));
        Ok(work)
    }

    fn lay_out(&self, verified: &VerifiedManifest, work: &Path) -> Result<(), CheckpointError> {
        let database = verified.database();
        for file in &verified.manifest().files {
            let (from, to) = (database.join(&file.name), work.join(&file.name));
            if !(is_immutable(&file.name) && self.link(&from, &to)?) {
                self.copy(verified, file, &from, &to)?;
            }
        }
        Ok(())
    }

    /// Links a file; false when the filesystem cannot, and a copy must do.
    fn link(&self, from: &Path, to: &Path) -> Result<bool, CheckpointError> {
        match self.shared.fs.hard_link(from, to) {
            Ok(()) => Ok(true),
            Err(error) if cannot_link(&error) => {
                let mut progress = self.shared.progress();
                if progress.copied_files == 0 {
                    tracing::warn!(path = %from.display(), %error, "files cannot be linked and are copied");
                }
                progress.copied_files += 1;
                Ok(false)
            }
            Err(error) => Err(CheckpointError::io("link a file of the checkpoint", from)(error)),
        }
    }

    fn copy(
        &self,
        verified: &VerifiedManifest,
        file: &FileEntry,
        from: &Path,
        to: &Path,
    ) -> Result<(), CheckpointError> {
        let copied = self.shared.fs.copy_new(from, to);
        let copied = copied.map_err(CheckpointError::io("copy a file of the checkpoint", from))?;
        if (copied.bytes, copied.crc32) == (file.bytes, file.crc32) {
            return Ok(());
        }
        Err(CheckpointError::Damaged {
            epoch: verified.manifest().epoch,
            path: verified.path().to_owned(),
            problems: format!("file changed after it was verified: name={}", file.name),
            alternative: None,
            lasting: true,
        })
    }

    /// The permit to publish what a restored checkpoint staged: idempotent, for a publish that was cut.
    ///
    /// # Errors
    /// [`CheckpointError::NoSuchCheckpoint`] for a checkpoint that is not one of this directory.
    pub fn permit(&self, verified: &VerifiedManifest) -> Result<Published, CheckpointError> {
        let manifest = verified.manifest();
        let own_path = self.shared.layout.checkpoint(manifest.epoch);
        if manifest.lineage != self.lineage() || verified.path() != own_path {
            let (epoch, path) = (manifest.epoch, self.checkpoints());
            return Err(CheckpointError::NoSuchCheckpoint { epoch, path, present: Vec::new() });
        }
        Ok(Published::restored(Arc::clone(manifest), own_path))
    }
}

/// A state directory of which a checkpoint is to be chosen.
pub(super) struct Choosing<'a> {
    pub(super) layout: &'a Layout,
    pub(super) lineage: &'a Lineage,
}

impl Choosing<'_> {
    /// As [`StateDirectory::newest_verified`], of the checkpoints `present`.
    pub(super) fn newest_verified(
        &self,
        present: &BTreeSet<u64>,
        at: Option<u64>,
    ) -> Result<RestoreChoice, CheckpointError> {
        let (path, seen) = (self.layout.checkpoints(), self.lineage.newest_epoch_seen);
        let (epoch, newer) = match plan_restore(present, seen, at) {
            RestorePlan::Empty => {
                return Ok(RestoreChoice { chosen: None, newer: Vec::new(), damaged: Vec::new() });
            }
            RestorePlan::NewestMissing { present } => {
                return Err(CheckpointError::NewestMissing { path, seen, present });
            }
            RestorePlan::NoSuch => {
                let epoch = at.unwrap_or_default();
                let present = present.iter().rev().copied().take(20).collect();
                return Err(CheckpointError::NoSuchCheckpoint { epoch, path, present });
            }
            RestorePlan::Verify { epoch, newer } => (epoch, newer),
        };
        match self.verify_epoch(epoch).into_verified() {
            Ok(chosen) => {
                let damaged = self.unreadable_manifests(present);
                Ok(RestoreChoice { chosen: Some(chosen), newer, damaged })
            }
            Err(report) => Err(self.refuse(epoch, &report, present)),
        }
    }

    /// Verifies the checkpoint of `epoch` as one of this directory's own: not behind a symlink, of this history.
    fn verify_epoch(&self, epoch: u64) -> VerifyReport {
        let path = self.layout.checkpoint(epoch);
        let is_symlink = std::fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_symlink());
        let mut report = verify(&path);
        if is_symlink {
            report.problem(Problem::Irregular { name: layout::checkpoint_name(epoch) });
        }
        let ours = self.lineage.id;
        if let Some(found) =
            report.manifest.as_ref().map(|manifest| manifest.lineage).filter(|&id| id != ours)
        {
            report.problem(Problem::OtherLineage { found, ours });
        }
        report
    }

    fn refuse(&self, epoch: u64, report: &VerifyReport, present: &BTreeSet<u64>) -> CheckpointError {
        let path = report.path.clone();
        for problem in &report.problems {
            if let Problem::Newer { found, known } = *problem {
                return CheckpointError::Newer { what: "checkpoint", path, found, known };
            }
        }
        let parent = report.manifest.as_ref().and_then(|manifest| manifest.parent);
        let mut candidates = alternatives(present, epoch, parent).into_iter();
        let alternative = candidates.find(|&older| self.verify_epoch(older).is_sound());
        let lasting = !report.problems.iter().all(Problem::is_passing);
        CheckpointError::Damaged { epoch, path, problems: report.problem_line(), alternative, lasting }
    }

    fn unreadable_manifests(&self, present: &BTreeSet<u64>) -> Vec<DamagedCheckpoint> {
        let load = |&epoch: &u64| {
            let reason = load_directory(&self.layout.checkpoint(epoch)).err()?.to_string();
            Some(DamagedCheckpoint { epoch, reason })
        };
        present.iter().filter_map(load).collect()
    }
}

/// True for the database's table and blob files, which are never written again.
pub(super) fn is_immutable(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "sst" || extension == "blob")
}

/// True when a hard link is refused for what the filesystem is, not for what the file is.
pub(super) fn cannot_link(error: &io::Error) -> bool {
    use io::ErrorKind::{CrossesDevices, PermissionDenied, TooManyLinks, Unsupported};
    matches!(error.kind(), CrossesDevices | PermissionDenied | TooManyLinks | Unsupported)
}
