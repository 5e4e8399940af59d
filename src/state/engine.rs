//! A database opened with its families: what the writable and the read-only face have in common.
//!
//! Reads here never surface an expired pane, whatever is in the files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rocksdb::{ColumnFamily, ColumnFamilyDescriptor, DB, Options};

use super::error::StateError;
use super::family::{FamilyId, FamilySpec, check_names, column_families};
use super::filter::{self, FilterCounters, PaneFilterFactory};
use super::horizon::Horizon;
use super::key::{SENTINEL, write_pane};
use super::memory::StateMemory;
use super::value::OwnedStored;
use super::{StateOptions, merge, options};
use crate::codec::PaneKey;
use crate::event_time::{Span, Watermark};

/// One operator's family, opened.
pub(super) struct Family {
    pub(super) column_family: String,
    pub(super) allowed_lateness: Span,
    pub(super) horizon: Arc<Horizon>,
    pub(super) counters: Arc<FilterCounters>,
}

pub(super) struct Engine {
    pub(super) db: DB,
    pub(super) dir: PathBuf,
    pub(super) families: Vec<Family>,
}

/// How a database is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Create,
    Write,
    Read,
}

/// What a database is opened with.
#[derive(Clone, Copy)]
pub(super) struct Setup<'a> {
    pub(super) families: &'a [FamilySpec],
    pub(super) memory: &'a StateMemory,
    pub(super) options: &'a StateOptions,
    /// Off only in tests that show what holds without the filter.
    pub(super) filter: bool,
    /// Where files are; elsewhere only in the self-test.
    pub(super) env: Option<&'a rocksdb::Env>,
}

impl Setup<'_> {
    /// Options of an operator's family, exactly as every database has them.
    pub(super) fn family_options(
        &self,
        spec: &FamilySpec,
        horizon: &Arc<Horizon>,
        counters: &Arc<FilterCounters>,
    ) -> Options {
        let mut options = options::column_family(self.options, self.memory);
        merge::install(&mut options, Arc::clone(&spec.merge));
        if self.filter {
            let factory =
                PaneFilterFactory::new(Arc::clone(horizon), spec.allowed_lateness, Arc::clone(counters));
            filter::install(&mut options, factory);
        }
        options
    }

    pub(super) fn open(&self, dir: &Path, access: Access) -> Result<Engine, StateError> {
        check_names(self.families)?;
        let mut families = Vec::with_capacity(self.families.len());
        let mut descriptors = Vec::new();
        for name in column_families(self.families) {
            descriptors
                .push(ColumnFamilyDescriptor::new(name, options::column_family(self.options, self.memory)));
        }
        descriptors.truncate(super::family::FIXED.len());
        for spec in self.families {
            let (horizon, counters) = (Arc::new(Horizon::new()), Arc::default());
            let options = self.family_options(spec, &horizon, &counters);
            descriptors.push(ColumnFamilyDescriptor::new(spec.column_family(), options));
            families.push(Family {
                column_family: spec.column_family(),
                allowed_lateness: spec.allowed_lateness,
                horizon,
                counters,
            });
        }
        let mut database = options::database(self.options, self.memory);
        if let Some(env) = self.env {
            database.set_env(env);
        }
        database.create_if_missing(access == Access::Create);
        database.create_missing_column_families(access == Access::Create);
        let db = match access {
            Access::Create | Access::Write => DB::open_cf_descriptors(&database, dir, descriptors),
            Access::Read => DB::open_cf_descriptors_read_only(&database, dir, descriptors, false),
        }
        .map_err(StateError::engine("open the state database"))?;
        let engine = Engine { db, dir: dir.to_owned(), families };
        // The self-test's database in memory lives for a moment.
        if access != Access::Read && self.env.is_none() {
            engine.check_more()?;
        }
        Ok(engine)
    }
}

/// Names of all column families of the database in `dir`.
pub(super) fn list_column_families(dir: &Path) -> Result<Vec<String>, StateError> {
    if !dir.join("CURRENT").is_file() {
        return Err(StateError::Missing { dir: dir.to_owned() });
    }
    DB::list_cf(&Options::default(), dir)
        .map_err(StateError::engine("list the families of the state database"))
}

/// Refuses a database whose families are not exactly those of the operators: RocksDB would open it read-only and
/// hide the others.
pub(super) fn check_families(dir: &Path, families: &[FamilySpec]) -> Result<(), StateError> {
    check_names(families)?;
    let expected = column_families(families);
    let present = list_column_families(dir)?;
    let without = |from: &[String], of: &[String]| -> Vec<String> {
        from.iter().filter(|name| !of.contains(name)).cloned().collect()
    };
    let (absent, unexpected) = (without(&expected, &present), without(&present, &expected));
    if absent.is_empty() && unexpected.is_empty() {
        return Ok(());
    }
    Err(StateError::Families { dir: dir.to_owned(), absent, unexpected })
}

impl Engine {
    /// Turns the checks on that have no setter.
    fn check_more(&self) -> Result<(), StateError> {
        for (_, handle) in self.handles()? {
            let set = self.db.set_options_cf(handle, &options::INTEGRITY);
            set.map_err(StateError::engine("turn on the checks of the state database"))?;
        }
        Ok(())
    }

    pub(super) fn family(&self, id: FamilyId) -> Result<&Family, StateError> {
        self.families.get(id.0).ok_or(StateError::NoFamily { index: id.0, families: self.families.len() })
    }

    /// Moves the horizon of one family forward.
    pub(super) fn raise(&self, id: FamilyId, horizon: Watermark) -> Result<(), StateError> {
        self.family(id)?.horizon.raise(horizon);
        Ok(())
    }

    pub(super) fn handle(&self, column_family: &str) -> Result<&ColumnFamily, StateError> {
        self.db.cf_handle(column_family).ok_or_else(|| StateError::Families {
            dir: self.dir.clone(),
            absent: vec![column_family.to_owned()],
            unexpected: Vec::new(),
        })
    }

    /// Handles of all column families, fixed ones first.
    pub(super) fn handles(&self) -> Result<Vec<(&str, &ColumnFamily)>, StateError> {
        let fixed = super::family::FIXED.into_iter();
        let names = fixed.chain(self.families.iter().map(|family| family.column_family.as_str()));
        names.map(|name| Ok((name, self.handle(name)?))).collect()
    }

    pub(super) fn get(&self, id: FamilyId, pane: PaneKey<'_>) -> Result<Option<OwnedStored>, StateError> {
        let family = self.family(id)?;
        if family.horizon.get().expired(pane.end, family.allowed_lateness) {
            return Ok(None);
        }
        let mut buffer = Vec::with_capacity(9 + pane.key.len());
        let key = write_pane(&mut buffer, pane);
        let value = self.db.get_cf(self.handle(&family.column_family)?, key);
        Ok(value.map_err(StateError::engine("read a pane"))?.map(OwnedStored::new))
    }

    /// The epoch that every family says it belongs to; `None` when none says anything.
    pub(super) fn epoch(&self) -> Result<Option<u64>, StateError> {
        let mut epochs = Vec::new();
        for (name, handle) in self.handles()? {
            let value = self.db.get_cf(handle, SENTINEL).map_err(StateError::engine("read the epoch"))?;
            let epoch = value.and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
            epochs.push((name.to_owned(), epoch));
        }
        let first = epochs.first().and_then(|(_, epoch)| *epoch);
        if epochs.iter().all(|(_, epoch)| *epoch == first) {
            return Ok(first);
        }
        Err(StateError::Torn { dir: self.dir.clone(), epochs })
    }

    /// The epoch, which must be there.
    pub(super) fn complete_epoch(&self) -> Result<u64, StateError> {
        self.epoch()?.ok_or_else(|| StateError::Torn {
            dir: self.dir.clone(),
            epochs: self.families.iter().map(|family| (family.column_family.clone(), None)).collect(),
        })
    }

    /// RocksDB drops the status of a manual compaction, and reports a failed background job at some later write.
    /// This asks.
    pub(super) fn check_background(&self) -> Result<(), StateError> {
        match background_failures(&self.db)? {
            0 => Ok(()),
            failures => Err(StateError::Background { failures }),
        }
    }
}

/// RocksDB's count of failures in the background.
pub(super) fn background_failures(db: &DB) -> Result<u64, StateError> {
    let failures = db.property_int_value(rocksdb::properties::BACKGROUND_ERRORS);
    Ok(failures.map_err(StateError::engine("read the number of background failures"))?.unwrap_or(0))
}
