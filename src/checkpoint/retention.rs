//! Retiring old checkpoints: gathers the facts for the plan, and carries a plan out so that any cut is harmless.
//!
//! What stays is decided in `plan`. Checkpoints share files by hard link, so the filesystem counts the references.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::checkpoint::directory::{Shared, StateDirectory, remove_any};
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::listing::{complete_epochs, list};
use crate::checkpoint::plan::{Keep, RetentionFact, RetentionPlan, plan_retention};
use crate::checkpoint::writer::pass;

/// Keeps one checkpoint from being retired until dropped, for somebody who reads it beside the task.
#[derive(Debug)]
pub struct Pin {
    shared: Arc<Shared>,
    epoch: u64,
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut progress = self.shared.progress();
        if let Some(count) = progress.pins.get_mut(&self.epoch) {
            *count -= 1;
            if *count == 0 {
                progress.pins.remove(&self.epoch);
            }
        }
    }
}

impl StateDirectory {
    /// Keeps the checkpoint of `epoch` from being retired until the pin is dropped.
    #[must_use]
    pub fn pin(&self, epoch: u64) -> Pin {
        *self.shared.progress().pins.entry(epoch).or_default() += 1;
        Pin { shared: Arc::clone(&self.shared), epoch }
    }

    /// Which checkpoints `keep` lets go. Changes nothing; print it for a dry run.
    ///
    /// # Errors
    /// I/O errors of listing.
    pub fn retention_plan(&self, keep: &Keep) -> Result<RetentionPlan, CheckpointError> {
        let mut facts = BTreeMap::new();
        for summary in list(&self.checkpoints())? {
            let Some(epoch) = summary.epoch else { continue };
            let fact = match summary.manifest {
                Ok(manifest) => RetentionFact {
                    parent: manifest.parent,
                    readable: true,
                    files: manifest
                        .files
                        .into_iter()
                        .map(|file| (file.name, file.bytes, file.crc32))
                        .collect(),
                },
                Err(_) => RetentionFact::default(),
            };
            facts.insert(epoch, fact);
        }
        let mut keep = keep.clone();
        keep.pinned.extend(self.shared.progress().pins.keys());
        Ok(plan_retention(&facts, &keep, self.epoch_in_use()))
    }

    /// Carries a plan out: each checkpoint loses its name durably before its first file goes, so that none is ever
    /// found half deleted. The newest and the one in use stay whatever the plan says.
    ///
    /// # Errors
    /// [`CheckpointError::Fenced`], [`CheckpointError::Poisoned`], I/O errors. What is left over then is swept at the
    /// next open.
    pub fn retire(&self, plan: &RetentionPlan) -> Result<(), CheckpointError> {
        let checkpoints = self.checkpoints();
        pass("retain.before", &checkpoints)?;
        self.check_owner()?;
        let (fs, layout) = (self.shared.fs.as_ref(), &self.shared.layout);
        let present = complete_epochs(&checkpoints)?;
        let spared = [present.last().copied(), self.epoch_in_use()];
        let going = plan.retire.iter().map(|retired| retired.epoch);
        let going: Vec<u64> =
            going.filter(|epoch| present.contains(epoch) && !spared.contains(&Some(*epoch))).collect();
        let going: Vec<u64> = {
            let progress = self.shared.progress();
            going.into_iter().filter(|epoch| !progress.pins.contains_key(epoch)).collect()
        };
        if !going.is_empty() {
            for &epoch in &going {
                let path = layout.checkpoint(epoch);
                let renamed = fs.rename(&path, &layout.retired(epoch));
                renamed.map_err(CheckpointError::io("retire a checkpoint", &path))?;
            }
            self.shared.sync_dir("retire checkpoints", &checkpoints)?;
            for &epoch in &going {
                let path = layout.retired(epoch);
                remove_any(fs, &path).map_err(CheckpointError::io("remove a retired checkpoint", &path))?;
            }
        }
        pass("retain.after", &checkpoints)
    }

    fn epoch_in_use(&self) -> Option<u64> {
        self.shared.progress().parent.as_ref().map(|parent| parent.manifest.epoch)
    }
}
