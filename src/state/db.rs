//! The working database of a task: created or opened, read, moved on by the horizon, compacted.
//!
//! Writing, eviction and linking are in files of their own. The directory is disposable: it is never opened again
//! after the process that wrote it ended; a new one is made from a checkpoint.

use std::fs;
use std::ops::{Bound, RangeBounds};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use rocksdb::{BottommostLevelCompaction, CompactOptions, Options, WaitForCompactOptions};

use super::engine::{Access, Engine, Setup, check_families};
use super::error::StateError;
use super::family::{FamilyId, FamilySpec};
use super::memory::StateMemory;
use super::scan::{PaneScan, Reach};
use super::selftest::self_test_with;
use super::value::OwnedStored;
use super::{StateOptions, options};
use crate::codec::PaneKey;
use crate::event_time::{EventTime, Watermark};

/// The state of one task: open panes by operator, window end and key.
///
/// One thread writes, evicts and links, the others may read; calls that change something take turns.
pub struct StateDb {
    pub(super) engine: Engine,
    pub(super) memory: StateMemory,
    pub(super) specs: Vec<FamilySpec>,
    /// Options for files made for ingestion, one per family.
    pub(super) file_options: Vec<Options>,
    /// Where such files are made: beside the database, never in it.
    pub(super) spill_dir: PathBuf,
    writer: Mutex<Writer>,
}

/// What only the changing calls touch.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// Last bound of an eviction, per family.
    pub(super) evicted_to: Vec<Option<Vec<u8>>>,
    /// Range deletes since the last flush.
    pub(super) range_deletes_unflushed: u32,
    /// Range deletes since the database was opened.
    pub(super) range_deletes: u64,
    /// Number of the next file made for ingestion.
    pub(super) next_file: u64,
    /// Epoch of the checkpoint that was linked or opened last.
    pub(super) epoch: Option<u64>,
}

impl std::fmt::Debug for StateDb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StateDb").field("dir", &self.engine.dir).finish_non_exhaustive()
    }
}

impl StateDb {
    /// Creates an empty database in `dir`, which must not exist or be empty, with default options.
    ///
    /// # Errors
    /// See [`StateDb::create_with`].
    pub fn create(dir: &Path, families: &[FamilySpec], memory: &StateMemory) -> Result<Self, StateError> {
        Self::create_with(dir, families, memory, &StateOptions::default())
    }

    /// Creates an empty database in `dir`, which must not exist or be empty.
    ///
    /// # Errors
    /// [`StateError::NotEmpty`], [`StateError::FamilyName`], [`StateError::SelfTest`], or what the disk says.
    pub fn create_with(
        dir: &Path,
        families: &[FamilySpec],
        memory: &StateMemory,
        options: &StateOptions,
    ) -> Result<Self, StateError> {
        let setup = Setup { families, memory, options, filter: true, env: None };
        self_test_with(setup)?;
        Self::create_as(dir, setup)
    }

    pub(super) fn create_as(dir: &Path, setup: Setup<'_>) -> Result<Self, StateError> {
        fs::create_dir_all(dir).map_err(StateError::io("create the state directory", dir))?;
        let mut files = fs::read_dir(dir).map_err(StateError::io("read the state directory", dir))?;
        if files.next().is_some() {
            return Err(StateError::NotEmpty { dir: dir.to_owned() });
        }
        let engine = setup.open(dir, Access::Create)?;
        Self::ready(engine, setup, None)
    }

    /// Opens a working copy of a checkpoint's database, with default options.
    ///
    /// # Errors
    /// See [`StateDb::open_with`].
    pub fn open(dir: &Path, families: &[FamilySpec], memory: &StateMemory) -> Result<Self, StateError> {
        Self::open_with(dir, families, memory, &StateOptions::default())
    }

    /// Opens a working copy of a checkpoint's database. Never the checkpoint itself: opening changes the files.
    ///
    /// Set the horizon of the checkpoint right after.
    ///
    /// # Errors
    /// [`StateError::Missing`] without a database, [`StateError::Families`] when its families are not exactly
    /// these, [`StateError::Torn`] when they do not all hold one epoch, [`StateError::SelfTest`], or what the disk
    /// says.
    pub fn open_with(
        dir: &Path,
        families: &[FamilySpec],
        memory: &StateMemory,
        options: &StateOptions,
    ) -> Result<Self, StateError> {
        let setup = Setup { families, memory, options, filter: true, env: None };
        check_families(dir, families)?;
        self_test_with(setup)?;
        let engine = setup.open(dir, Access::Write)?;
        let epoch = engine.complete_epoch()?;
        Self::ready(engine, setup, Some(epoch))
    }

    fn ready(engine: Engine, setup: Setup<'_>, epoch: Option<u64>) -> Result<Self, StateError> {
        let mut spill_name = engine.dir.file_name().unwrap_or_default().to_owned();
        spill_name.push(".spill");
        let spill_dir = engine.dir.with_file_name(spill_name);
        if spill_dir.exists() {
            fs::remove_dir_all(&spill_dir)
                .map_err(StateError::io("clear the spill directory", &spill_dir))?;
        }
        let mut file_options = Vec::with_capacity(setup.families.len());
        for (spec, family) in setup.families.iter().zip(&engine.families) {
            let options = setup.family_options(spec, &family.horizon, &family.counters);
            file_options.push(options::handed_over(options));
        }
        let evicted_to = vec![None; setup.families.len()];
        let writer = Mutex::new(Writer { evicted_to, epoch, ..Writer::default() });
        Ok(Self {
            engine,
            memory: setup.memory.clone(),
            specs: setup.families.to_vec(),
            file_options,
            spill_dir,
            writer,
        })
    }

    /// The turn of a call that changes something.
    pub(super) fn writer(&self) -> Result<MutexGuard<'_, Writer>, StateError> {
        self.writer.lock().map_err(|_| StateError::HalfChanged)
    }

    /// The directory of this database.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.engine.dir
    }

    /// Epoch of the checkpoint that was opened, or linked since.
    ///
    /// # Errors
    /// [`StateError::HalfChanged`] after a thread panicked in a changing call.
    pub fn epoch(&self) -> Result<Option<u64>, StateError> {
        Ok(self.writer()?.epoch)
    }

    /// What is stored for a pane. An expired pane is not there, whatever is in the files.
    ///
    /// A point read; firing uses [`StateDb::scan`].
    ///
    /// # Errors
    /// [`StateError::Engine`] when a file cannot be read or fails its checksum.
    pub fn get(&self, family: FamilyId, pane: PaneKey<'_>) -> Result<Option<OwnedStored>, StateError> {
        self.engine.get(family, pane)
    }

    /// Live panes whose window end lies in `ends`, by end, then by key.
    ///
    /// # Errors
    /// [`StateError::NoFamily`] for an index out of range.
    pub fn scan(
        &self,
        family: FamilyId,
        ends: impl RangeBounds<EventTime>,
    ) -> Result<PaneScan<'_>, StateError> {
        self.engine.scan(family, Reach::ends(ends))
    }

    /// Goes on with a scan after `pane`, up to `to`: how a large emission is done in steps.
    ///
    /// # Errors
    /// [`StateError::NoFamily`] for an index out of range.
    pub fn scan_after(
        &self,
        family: FamilyId,
        pane: PaneKey<'_>,
        to: Bound<EventTime>,
    ) -> Result<PaneScan<'_>, StateError> {
        self.engine.scan(family, Reach::after(pane, to))
    }

    /// Moves the eviction horizon forward. Panes that expire by it are gone from every read at once; call
    /// [`StateDb::evict`] to free their space.
    ///
    /// Only to a watermark that a durable checkpoint holds, after the results it closes were delivered.
    pub fn set_horizon(&self, horizon: Watermark) {
        for family in &self.engine.families {
            family.horizon.raise(horizon);
        }
    }

    /// As [`StateDb::set_horizon`], for one family: operators need not be equally far.
    ///
    /// # Errors
    /// [`StateError::NoFamily`] for an index out of range.
    pub fn set_family_horizon(&self, family: FamilyId, horizon: Watermark) -> Result<(), StateError> {
        self.engine.raise(family, horizon)
    }

    /// The eviction horizon of a family.
    ///
    /// # Errors
    /// [`StateError::NoFamily`] for an index out of range.
    pub fn family_horizon(&self, family: FamilyId) -> Result<Watermark, StateError> {
        Ok(self.engine.family(family)?.horizon.get())
    }

    /// The horizon that every family has reached; [`Watermark::End`] without families.
    #[must_use]
    pub fn horizon(&self) -> Watermark {
        self.engine.families.iter().map(|family| family.horizon.get()).min().unwrap_or(Watermark::End)
    }

    /// Rewrites every file of every family, and waits for it. For tests and repair; expect it to take long.
    ///
    /// The last level is rewritten twice: results of a merge meet the filter only in the compaction after it.
    ///
    /// # Errors
    /// [`StateError::Background`] when a compaction failed, which RocksDB itself does not say.
    pub fn compact(&self) -> Result<(), StateError> {
        let mut options = CompactOptions::default();
        options.set_exclusive_manual_compaction(true);
        options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        for (_, handle) in self.engine.handles()? {
            self.engine.db.compact_range_cf_opt(handle, None::<&[u8]>, None::<&[u8]>, &options);
        }
        let waited = self.engine.db.wait_for_compact(&WaitForCompactOptions::default());
        waited.map_err(StateError::engine("compact the state database"))?;
        self.engine.check_background()
    }
}
