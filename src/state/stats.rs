//! Figures of a state database, for the status page and the tests.
//!
//! Reads RocksDB's own counts; changes nothing.

use std::sync::atomic::Ordering;

use rocksdb::properties;

use super::db::StateDb;
use super::engine::background_failures;
use super::error::StateError;
use super::memory::MemoryUse;

/// What compaction filters did since the database was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterCounts {
    /// Rows shown to a filter.
    pub rows_seen: u64,
    /// Expired panes removed.
    pub rows_removed: u64,
    /// Rows with keys that this version does not know; always kept. More than zero deserves a look.
    pub rows_unknown_kept: u64,
}

/// Figures of a state database at one moment. Sums over its families unless said otherwise.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct StateStats {
    /// Bytes of the files in use.
    pub live_file_bytes: u64,
    /// Bytes of all files, those included that wait for a reader to finish.
    pub total_file_bytes: u64,
    /// Bytes of write buffers.
    pub write_buffer_bytes: u64,
    /// Memory in use by all databases of the process.
    pub memory: MemoryUse,
    /// RocksDB's estimate of the number of entries.
    pub entries_estimate: u64,
    /// Most files in level 0 of any family; writes slow down at 20 and stop at 36.
    pub level0_files_max: u64,
    /// True while writes are stopped.
    pub write_stopped: bool,
    /// Bytes per second that writes are slowed down to; zero when they are not.
    pub delayed_write_rate: u64,
    /// Compactions running.
    pub compactions_running: u64,
    /// Bytes that compactions are behind.
    pub compaction_pending_bytes: u64,
    /// Background failures since the database was opened.
    pub background_failures: u64,
    /// What compaction filters did.
    pub filter: FilterCounts,
    /// Range deletes issued since the database was opened.
    pub range_deletes: u64,
}

impl StateDb {
    /// Figures of this moment.
    ///
    /// # Errors
    /// [`StateError::Engine`] when RocksDB does not answer.
    pub fn stats(&self) -> Result<StateStats, StateError> {
        let db = &self.engine.db;
        let what = || StateError::engine("read the figures of the state database");
        let mut stats = StateStats {
            memory: self.memory.usage(),
            background_failures: background_failures(db)?,
            range_deletes: self.writer()?.range_deletes,
            filter: self.filter_counts(),
            ..StateStats::default()
        };
        let whole = |name| Ok(db.property_int_value(name).map_err(what())?.unwrap_or(0));
        stats.write_stopped = whole(properties::IS_WRITE_STOPPED)? != 0;
        stats.delayed_write_rate = whole(properties::ACTUAL_DELAYED_WRITE_RATE)?;
        stats.compactions_running = whole(properties::NUM_RUNNING_COMPACTIONS)?;
        for (_, handle) in self.engine.handles()? {
            let of = |name| Ok(db.property_int_value_cf(handle, name).map_err(what())?.unwrap_or(0));
            stats.live_file_bytes += of(properties::LIVE_SST_FILES_SIZE)?;
            stats.total_file_bytes += of(properties::TOTAL_SST_FILES_SIZE)?;
            stats.write_buffer_bytes += of(properties::CUR_SIZE_ALL_MEM_TABLES)?;
            stats.entries_estimate += of(properties::ESTIMATE_NUM_KEYS)?;
            stats.compaction_pending_bytes += of(properties::ESTIMATE_PENDING_COMPACTION_BYTES)?;
            let level0 = db.property_value_cf(handle, properties::num_files_at_level(0)).map_err(what())?;
            let files = level0.and_then(|text| text.parse().ok()).unwrap_or(0);
            stats.level0_files_max = stats.level0_files_max.max(files);
        }
        Ok(stats)
    }

    fn filter_counts(&self) -> FilterCounts {
        let mut counts = FilterCounts::default();
        for family in &self.engine.families {
            counts.rows_seen += family.counters.seen.load(Ordering::Relaxed);
            counts.rows_removed += family.counters.removed.load(Ordering::Relaxed);
            counts.rows_unknown_kept += family.counters.unknown_kept.load(Ordering::Relaxed);
        }
        counts
    }
}
