//! RocksDB, used as most programs use it: read, add and write back for every event, or a merge operand for every event.
//!
//! With a Bloom filter, a cache and write buffers that take what the others may take, LZ4, and both cores for its own
//! work. The log is handed to the system and synced once a second rather than at every write, and a fired window goes
//! as one range.

use std::fs;
use std::path::{Path, PathBuf};

use rocksdb::checkpoint::Checkpoint;
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, MergeOperands, Options, ReadOptions, WriteBatch,
    WriteOptions,
};

use super::{MEMORY_BYTES, PaneStore, take_pair, write_key};
use crate::Outcome;
use crate::results::{Pane, Results};
use crate::stream::Rows;

/// How what was written is made durable.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    /// The write-ahead log.
    Log,
    /// No log, but checkpoints of the whole database; the last one stays.
    Checkpoint,
}

struct Database {
    db: DB,
    write: WriteOptions,
    keep: Keep,
    dir: PathBuf,
    checkpoints: u64,
}

impl Database {
    fn open(dir: &Path, keep: Keep) -> Outcome<Self> {
        let mut blocks = BlockBasedOptions::default();
        blocks.set_block_cache(&Cache::new_lru_cache(MEMORY_BYTES / 2));
        blocks.set_bloom_filter(10.0, false);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.increase_parallelism(2);
        options.set_block_based_table_factory(&blocks);
        options.set_compression_type(DBCompressionType::Lz4);
        options.set_write_buffer_size(MEMORY_BYTES / 8);
        options.set_max_write_buffer_number(4);
        options.set_manual_wal_flush(true);
        options.set_merge_operator_associative("pane", merge);
        let mut write = WriteOptions::default();
        write.disable_wal(keep == Keep::Checkpoint);
        let db = DB::open(&options, dir.join("db"))?;
        Ok(Self { db, write, keep, dir: dir.to_owned(), checkpoints: 0 })
    }

    fn fire(&self, window: i64, results: &mut Results) -> Outcome<()> {
        let (start, end) = (window.to_be_bytes(), (window + 1).to_be_bytes());
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(end);
        let mut panes = self.db.raw_iterator_opt(options);
        panes.seek(start);
        while let (Some(key), Some(pane)) = (panes.key(), panes.value()) {
            take_pair(window, key, pane, results)?;
            panes.next();
        }
        panes.status()?;
        let mut batch = WriteBatch::default();
        batch.delete_range(start, end);
        Ok(self.db.write_opt(batch, &self.write)?)
    }

    fn keep(&mut self) -> Outcome<bool> {
        if self.keep == Keep::Log {
            self.db.flush_wal(true)?;
            return Ok(true);
        }
        let path = |number: u64| self.dir.join(format!("checkpoint-{number}"));
        Checkpoint::new(&self.db)?.create_checkpoint(path(self.checkpoints + 1))?;
        if self.checkpoints > 0 {
            fs::remove_dir_all(path(self.checkpoints))?;
        }
        self.checkpoints += 1;
        Ok(true)
    }
}

fn merge(_: &[u8], existing: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    let mut panes = existing.into_iter().chain(operands).map(Pane::from_bytes);
    let first = panes.next()??;
    let merged = panes.try_fold(first, |mut merged, pane| {
        merged.merge(pane?);
        Some(merged)
    })?;
    Some(merged.to_bytes().to_vec())
}

/// Reads, adds and writes back.
pub(super) struct GetPut(Database);

impl GetPut {
    pub(super) fn open(dir: &Path, keep: Keep) -> Outcome<Self> {
        Database::open(dir, keep).map(Self)
    }
}

impl PaneStore for GetPut {
    fn add(&mut self, rows: Rows<'_>) -> Outcome<()> {
        let Database { db, write, .. } = &self.0;
        let mut bytes = Vec::new();
        for (window, key, value) in rows.iter() {
            write_key(&mut bytes, window, key);
            let mut pane = Pane::of(value);
            if let Some(stored) = db.get_pinned(&bytes)? {
                pane.merge(Pane::from_bytes(&stored).ok_or("a stored pane is not as long as a pane")?);
            }
            db.put_opt(&bytes, pane.to_bytes(), write)?;
        }
        Ok(())
    }

    fn fire(&mut self, window: i64, results: &mut Results) -> Outcome<()> {
        self.0.fire(window, results)
    }

    fn keep(&mut self) -> Outcome<bool> {
        self.0.keep()
    }
}

/// Writes merge operands, those of a batch of events at once.
pub(super) struct Merge(Database);

impl Merge {
    pub(super) fn open(dir: &Path) -> Outcome<Self> {
        Database::open(dir, Keep::Log).map(Self)
    }
}

impl PaneStore for Merge {
    fn add(&mut self, rows: Rows<'_>) -> Outcome<()> {
        let (mut batch, mut bytes) = (WriteBatch::default(), Vec::new());
        for (window, key, value) in rows.iter() {
            write_key(&mut bytes, window, key);
            batch.merge(&bytes, Pane::of(value).to_bytes());
        }
        Ok(self.0.db.write_opt(batch, &self.0.write)?)
    }

    fn fire(&mut self, window: i64, results: &mut Results) -> Outcome<()> {
        self.0.fire(window, results)
    }

    fn keep(&mut self) -> Outcome<bool> {
        self.0.keep()
    }
}
