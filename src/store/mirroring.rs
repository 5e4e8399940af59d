//! What a store has to do with a repository: hand checkpoints over, wait for them where that is asked for, and stop
//! when another machine has taken over.

use std::time::Duration;

use super::WindowStore;
use crate::checkpoint::Published;
use crate::clock::Clock;
use crate::error::Result;
use crate::repository::{Settings, UploadStats, Uploader};

/// The way of a checkpoint to the repository. Clones are one way.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    uploader: Uploader,
    required: bool,
    patience: Duration,
}

impl Outbox {
    pub(super) fn new(uploader: Uploader, settings: &Settings) -> Self {
        Self { uploader, required: settings.required, patience: settings.patience }
    }

    /// Hands a checkpoint over. Where the repository is required, returns only once it has the checkpoint: nothing of
    /// it may be visible before.
    pub(super) fn send(&self, published: &Published, clock: &dyn Clock) -> Result<()> {
        if self.required {
            self.uploader.upload(published, self.patience, clock)?;
        } else {
            self.uploader.offer(published)?;
        }
        Ok(())
    }

    /// As [`Outbox::send`], for what was restored, unless the repository has it.
    pub(super) fn send_restored(&self, published: &Published, clock: &dyn Clock) -> Result<()> {
        if self.uploader.mirror().holds(published.manifest()) {
            self.uploader.note_held(published.epoch());
            return Ok(());
        }
        tracing::info!(epoch = published.epoch(), "the restored checkpoint is not in the repository yet");
        self.send(published, clock)
    }
}

/// The outbox of a store: when the store goes, nobody goes on waiting for the repository.
#[derive(Debug)]
pub(super) struct Mirroring(pub(super) Outbox);

impl Drop for Mirroring {
    fn drop(&mut self) {
        self.0.uploader.stop();
    }
}

impl WindowStore {
    /// Fails once another process has taken the repository over.
    pub(super) fn check_repository(&self) -> Result<()> {
        match &self.mirroring {
            Some(mirroring) => Ok(mirroring.0.uploader.check()?),
            None => Ok(()),
        }
    }

    /// What was uploaded so far; `None` without a repository.
    #[must_use]
    pub fn uploads(&self) -> Option<UploadStats> {
        self.mirroring.as_ref().map(|mirroring| mirroring.0.uploader.stats())
    }

    /// Waits until the newest checkpoint is in the repository, or could not be brought there after all retries, which
    /// [`UploadStats::problem`] tells. A store that is dropped without this leaves that to its next open.
    ///
    /// # Errors
    /// [`crate::error::ErrorKind::Locked`] when another process has taken the repository over.
    pub fn finish_uploads(&mut self) -> Result<Option<UploadStats>> {
        self.guarded(|store| match &store.mirroring {
            Some(mirroring) => Ok(Some(mirroring.0.uploader.drain()?)),
            None => Ok(None),
        })
    }
}
