//! A state directory as a start finds it: whose it is, what an open would go on from, and under which generation.
//!
//! Nothing is changed before [`FoundDirectory::lock`], and of what counts nothing before [`FoundDirectory::open`]: a start
//! that is refused in between leaves the generation as it was, by which the next start is judged.

use std::collections::BTreeSet;
use std::path::Path;

use crate::checkpoint::adopt::{epochs, holder};
use crate::checkpoint::directory::{Environment, StateDirectory, next_lineage, refuse_foreign, take_lock};
use crate::checkpoint::durable::create_dir_durably;
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::layout::Layout;
use crate::checkpoint::lineage::{Lineage, LineageId};
use crate::checkpoint::lock::DirectoryLock;
use crate::checkpoint::restore::{Choosing, RestoreChoice};

/// A state directory, or the place for one, that was looked at to be opened.
#[derive(Debug)]
pub struct FoundDirectory {
    pub(super) layout: Layout,
    pub(super) environment: Environment,
    pub(super) pipeline: String,
    /// The lineage file that is there.
    pub(super) before: Option<Lineage>,
    /// Its complete checkpoints.
    pub(super) present: BTreeSet<u64>,
    /// The lineage file that an open writes.
    pub(super) lineage: Lineage,
    pub(super) lock: Option<DirectoryLock>,
}

impl FoundDirectory {
    /// Looks at the state directory of `pipeline` at `path`, which need not exist. Changes nothing.
    ///
    /// # Errors
    /// As [`StateDirectory::open`].
    pub fn look(path: &Path, pipeline: &str, environment: Environment) -> Result<Self, CheckpointError> {
        let layout = Layout { root: path.to_owned() };
        refuse_foreign(&layout)?;
        if let Some(holder) = holder(path)? {
            return Err(CheckpointError::Locked { path: layout.root, holder });
        }
        Self::read(layout, pipeline, environment)
    }

    /// As [`FoundDirectory::look`], with the lock held from the start: for an open that nobody has a say in.
    pub(super) fn locked(
        path: &Path,
        pipeline: &str,
        environment: Environment,
    ) -> Result<Self, CheckpointError> {
        let layout = Layout { root: path.to_owned() };
        let lock = make_and_lock(&layout, &environment)?;
        Ok(Self { lock: Some(lock), ..Self::read(layout, pipeline, environment)? })
    }

    fn read(layout: Layout, pipeline: &str, mut environment: Environment) -> Result<Self, CheckpointError> {
        let before = Lineage::load(&layout.lineage())?;
        let present = epochs(&layout)?;
        let lineage = next_lineage(&layout, before.as_ref(), &present, pipeline, &environment)?;
        // What was drawn at random is the same when it is looked at once more.
        environment.new_lineage = Some(lineage.id);
        let pipeline = pipeline.to_owned();
        Ok(Self { layout, environment, pipeline, before, present, lineage, lock: None })
    }

    /// The history of checkpoints that an open goes on with.
    #[must_use]
    pub fn lineage(&self) -> LineageId {
        self.lineage.id
    }

    /// The generation that an open takes; higher than that of any before.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.lineage.generation
    }

    /// The generation of the last open; 0 when there was none.
    #[must_use]
    pub fn last_generation(&self) -> u64 {
        self.before.as_ref().map_or(0, |lineage| lineage.generation)
    }

    /// As [`StateDirectory::next_epoch`], right after an open.
    #[must_use]
    pub fn next_epoch(&self) -> u64 {
        self.lineage.newest_epoch_seen.max(self.environment.epochs_above).saturating_add(1)
    }

    /// As [`StateDirectory::newest_verified`].
    ///
    /// # Errors
    /// As there.
    pub fn newest_verified(&self, at: Option<u64>) -> Result<RestoreChoice, CheckpointError> {
        Choosing { layout: &self.layout, lineage: &self.lineage }.newest_verified(&self.present, at)
    }

    /// Takes the lock, making the directory where there is none, and sees that all is as it was found.
    ///
    /// # Errors
    /// [`CheckpointError::Locked`], [`CheckpointError::Changed`]; I/O errors.
    pub fn lock(&mut self) -> Result<(), CheckpointError> {
        if self.lock.is_some() {
            return Ok(());
        }
        let lock = make_and_lock(&self.layout, &self.environment)?;
        let now = Self::read(self.layout.clone(), &self.pipeline, self.environment.clone())?;
        if (now.before, now.present) != (self.before.clone(), self.present.clone()) {
            return Err(CheckpointError::Changed { path: self.layout.root.clone() });
        }
        self.lock = Some(lock);
        Ok(())
    }

    /// Opens it: raises the generation, and sweeps what cut attempts left over.
    ///
    /// # Errors
    /// As [`FoundDirectory::lock`].
    pub fn open(mut self) -> Result<StateDirectory, CheckpointError> {
        self.lock()?;
        StateDirectory::open_found(self)
    }
}

fn make_and_lock(layout: &Layout, environment: &Environment) -> Result<DirectoryLock, CheckpointError> {
    refuse_foreign(layout)?;
    create_dir_durably(environment.fs.as_ref(), &layout.root)
        .map_err(CheckpointError::io("create the state directory", &layout.root))?;
    take_lock(layout, environment.clock.as_ref())
}
