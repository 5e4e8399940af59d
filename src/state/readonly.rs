//! A published checkpoint, opened for reading. The directory stays as it is, byte for byte.
//!
//! Never for the working directory of a running task: RocksDB gives no promise for that.

use std::ops::{Bound, RangeBounds};
use std::path::Path;

use rocksdb::{LiveFile, ReadOptions};

use super::StateOptions;
use super::engine::{Access, Engine, Setup, check_families, list_column_families};
use super::error::StateError;
use super::family::{FIXED, FamilyId, FamilySpec};
use super::key::{StateKey, parse};
use super::link::{self, LinkedFile};
use super::memory::StateMemory;
use super::scan::{PaneScan, Reach};
use super::value::{OwnedStored, Stored};
use crate::codec::PaneKey;
use crate::event_time::{EventTime, Watermark};

/// Memory of a reader: it scans once, or looks up a few panes.
const MEMORY_BYTES: usize = 8 << 20;
/// Files a reader keeps open.
const OPEN_FILES: u32 = 64;

/// The state of a published checkpoint. It has no method that writes.
pub struct ReadOnlyState {
    engine: Engine,
    epoch: u64,
}

impl std::fmt::Debug for ReadOnlyState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { engine, epoch } = self;
        f.debug_struct("ReadOnlyState").field("dir", &engine.dir).field("epoch", epoch).finish()
    }
}

/// What a full read of one column family found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FamilyVerified {
    /// The column family.
    pub column_family: String,
    /// Live panes.
    pub panes: u64,
    /// Of these, damaged ones.
    pub damaged: u64,
    /// Panes expired under the horizon, on their way out.
    pub expired: u64,
    /// Keys that this version does not know.
    pub unknown: u64,
}

impl ReadOnlyState {
    /// Opens the database in `dir`. Its families must be exactly those of `families`.
    ///
    /// Set the horizon of the checkpoint's manifest right after; without it, expired panes that are still in the
    /// files are shown.
    ///
    /// # Errors
    /// [`StateError::Missing`], [`StateError::Families`], [`StateError::Torn`], or [`StateError::Engine`] when the
    /// database is damaged.
    pub fn open(dir: &Path, families: &[FamilySpec]) -> Result<Self, StateError> {
        check_families(dir, families)?;
        let memory = StateMemory::new(MEMORY_BYTES);
        let options = StateOptions { max_open_files: OPEN_FILES, ..StateOptions::default() };
        let setup = Setup { families, memory: &memory, options: &options, filter: true, env: None };
        let engine = setup.open(dir, Access::Read)?;
        let epoch = engine.complete_epoch()?;
        Ok(Self { engine, epoch })
    }

    /// Names of the operators whose panes the database in `dir` holds.
    ///
    /// # Errors
    /// [`StateError::Missing`] without a database, [`StateError::Engine`] when it is damaged.
    pub fn list_families(dir: &Path) -> Result<Vec<String>, StateError> {
        let names = list_column_families(dir)?;
        let operators = names.into_iter().filter(|name| !FIXED.contains(&name.as_str()));
        Ok(operators.map(|name| name.strip_suffix(".windows").map_or(name.clone(), str::to_owned)).collect())
    }

    /// The epoch that every family holds.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Masks what is expired under `horizon` in one family.
    ///
    /// # Errors
    /// [`StateError::NoFamily`] for an index out of range.
    pub fn set_horizon(&self, family: FamilyId, horizon: Watermark) -> Result<(), StateError> {
        self.engine.raise(family, horizon)
    }

    /// What is stored for a pane.
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

    /// Goes on with a scan after `pane`, up to `to`.
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

    /// Every pane whose bytes are still in the files, by end, then by key: also what eviction has deleted already and no
    /// compaction has removed. What was deleted by itself, or written again, is not among it. Masks nothing.
    ///
    /// # Errors
    /// [`StateError::NoFamily`] for an index out of range.
    pub fn scan_remains(&self, family: FamilyId) -> Result<PaneScan<'_>, StateError> {
        self.engine.scan_remains(family)
    }

    /// The table files with what each of them covers, by name.
    ///
    /// # Errors
    /// [`StateError::Engine`] when RocksDB does not answer.
    pub fn table_files(&self) -> Result<Vec<LinkedFile>, StateError> {
        Ok(link::tables(self.live_files()?))
    }

    /// Reads every row of every family, checksums included, and says what is there.
    ///
    /// Covers what is read through the database; that files are whole to the last byte is shown by the checksums
    /// of the manifest.
    ///
    /// # Errors
    /// [`StateError::Engine`] at the first block that cannot be read or fails its checksum.
    pub fn verify(&self) -> Result<Vec<FamilyVerified>, StateError> {
        let mut report = Vec::new();
        for (name, handle) in self.engine.handles()? {
            let lateness = self.engine.families.iter().find(|family| family.column_family == name);
            let mut found = FamilyVerified {
                column_family: name.to_owned(),
                panes: 0,
                damaged: 0,
                expired: 0,
                unknown: 0,
            };
            let mut options = ReadOptions::default();
            options.set_verify_checksums(true);
            options.fill_cache(false);
            options.set_total_order_seek(true);
            let mut rows = self.engine.db.raw_iterator_cf_opt(handle, options);
            rows.seek_to_first();
            while let Some((key, value)) = rows.item() {
                match (parse(key), lateness) {
                    (Some(StateKey::Sentinel), _) => {}
                    (Some(StateKey::Pane(pane)), Some(family)) => {
                        if family.horizon.get().expired(pane.end, family.allowed_lateness) {
                            found.expired += 1;
                        } else {
                            found.panes += 1;
                            found.damaged += u64::from(matches!(Stored::parse(value), Stored::Damaged(_)));
                        }
                    }
                    _ => found.unknown += 1,
                }
                rows.next();
            }
            rows.status().map_err(StateError::engine("read every row"))?;
            report.push(found);
        }
        Ok(report)
    }

    /// Every table file, as the database knows it.
    pub(super) fn live_files(&self) -> Result<Vec<LiveFile>, StateError> {
        self.engine.db.live_files().map_err(StateError::engine("list the files of the state database"))
    }
}
