//! What is compared, and the loop that feeds the contenders that only store panes.
//!
//! A store of panes is told the window and the key of every event; when to fire and when to make things durable is the
//! loop's matter, the same for all. Floodmark decides on its own, and has loops of its own.

mod fjall;
mod floodmark;
mod floodmark_text;
mod map;
mod redb;
mod rocksdb;
mod sqlite;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::ValueEnum;

use crate::Outcome;
use crate::results::Results;
use crate::stream::{DELAY_MS, Rows, Stream, WINDOW_MS};

/// Time between two moments at which what was taken is made durable, for everything that can.
pub(crate) const DURABLE_EVERY: Duration = Duration::from_secs(1);
/// Memory that each store may use for caches and buffers, as far as it can be told.
pub(crate) const MEMORY_BYTES: usize = 512 << 20;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Contender {
    /// A hash map per window, in memory.
    HashMap,
    /// RocksDB: get, add, put for every event.
    Rocksdb,
    /// The same without a log, with checkpoints instead.
    RocksdbCheckpoints,
    /// RocksDB: a merge for every event, batches written at once.
    RocksdbMerge,
    /// fjall: get, add, insert for every event.
    Fjall,
    /// redb: get, add, insert for every event, in transactions.
    Redb,
    /// SQLite: an upsert for every event, in transactions.
    Sqlite,
    /// A Floodmark store, on the thread that reads the batches.
    Floodmark,
    /// A Floodmark store, with the batches read on a thread beside it.
    FloodmarkTwoThreads,
    /// A Floodmark pipeline from JSON lines to files, published exactly once.
    FloodmarkText,
}

/// What a reader of the table has to know of a contender.
pub(crate) struct Facts {
    /// Its name.
    pub(crate) name: &'static str,
    /// What it reads.
    pub(crate) input: &'static str,
    /// What of its state survives.
    pub(crate) durable: &'static str,
}

/// One run of a contender.
pub(crate) struct Run {
    /// From the first event to the last result and the last durable moment.
    pub(crate) took: Duration,
    /// How often what was taken was made durable.
    pub(crate) kept: u64,
    /// What it answered.
    pub(crate) results: Results,
}

impl Contender {
    /// The name that the command line knows it by.
    pub(crate) fn id(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    pub(crate) const fn facts(self) -> Facts {
        let (name, input, durable) = match self {
            Self::HashMap => ("hash map", "Arrow", "nothing"),
            Self::Rocksdb => ("RocksDB get/put", "Arrow", "log, synced every second"),
            Self::RocksdbCheckpoints => ("RocksDB get/put", "Arrow", "checkpoint every second"),
            Self::RocksdbMerge => ("RocksDB merge", "Arrow", "log, synced every second"),
            Self::Fjall => ("fjall get/insert", "Arrow", "log, synced every second"),
            Self::Redb => ("redb get/insert", "Arrow", "transaction of a second"),
            Self::Sqlite => ("SQLite upsert", "Arrow", "transaction of a second"),
            Self::Floodmark => ("Floodmark", "Arrow", "checkpoint every second"),
            Self::FloodmarkTwoThreads => ("Floodmark, two threads", "Arrow", "checkpoint every second"),
            Self::FloodmarkText => {
                ("Floodmark pipeline", "JSON lines", "checkpoint every second, output once")
            }
        };
        Facts { name, input, durable }
    }

    /// Runs it over a stream, with an empty directory for what it keeps on disk.
    pub(crate) fn run(self, stream: &Stream, dir: &Path) -> Outcome<Run> {
        match self {
            Self::HashMap => drive(map::Panes::default(), stream),
            Self::Rocksdb => drive(rocksdb::GetPut::open(dir, rocksdb::Keep::Log)?, stream),
            Self::RocksdbCheckpoints => drive(rocksdb::GetPut::open(dir, rocksdb::Keep::Checkpoint)?, stream),
            Self::RocksdbMerge => drive(rocksdb::Merge::open(dir)?, stream),
            Self::Fjall => drive(fjall::Panes::open(dir)?, stream),
            Self::Redb => drive(redb::Panes::open(dir)?, stream),
            Self::Sqlite => drive(sqlite::Panes::open(dir)?, stream),
            Self::Floodmark => floodmark::one_thread(stream, dir),
            Self::FloodmarkTwoThreads => floodmark::two_threads(stream, dir),
            Self::FloodmarkText => floodmark_text::run(stream, dir),
        }
    }
}

/// Keeps panes, and is told everything else.
trait PaneStore {
    /// Adds the events of a batch to their panes.
    fn add(&mut self, rows: Rows<'_>) -> Outcome<()>;

    /// Hands out the panes of the window that starts at `window`, and forgets them.
    fn fire(&mut self, window: i64, results: &mut Results) -> Outcome<()>;

    /// Makes everything so far durable; false when this store keeps nothing.
    fn keep(&mut self) -> Outcome<bool>;
}

/// Feeds a store with a stream: windows fire when the watermark passes their end, and all of them at the end.
fn drive(mut store: impl PaneStore, stream: &Stream) -> Outcome<Run> {
    let (mut results, mut open) = (Results::default(), BTreeSet::new());
    let (mut newest, mut kept) = (i64::MIN, 0);
    let started = now();
    let mut last = started;
    for batch in &stream.batches {
        let rows = Rows::of(batch);
        for &time in rows.times {
            newest = newest.max(time);
        }
        windows_of(rows, &mut open);
        store.add(rows)?;
        while let Some(&window) = open.first()
            && window + WINDOW_MS <= newest - DELAY_MS
        {
            store.fire(window, &mut results)?;
            open.pop_first();
        }
        if last.elapsed() >= DURABLE_EVERY {
            kept += u64::from(store.keep()?);
            last = now();
        }
    }
    for window in open {
        store.fire(window, &mut results)?;
    }
    kept += u64::from(store.keep()?);
    Ok(Run { took: started.elapsed(), kept, results })
}

/// The windows that a batch has events of; neighbours mostly share theirs.
fn windows_of(rows: Rows<'_>, open: &mut BTreeSet<i64>) {
    let mut before = i64::MIN;
    for &time in rows.times {
        let window = time.div_euclid(WINDOW_MS) * WINDOW_MS;
        if window != before {
            open.insert(window);
            before = window;
        }
    }
}

/// The key of a pane in a store of ordered bytes: the window first, so that a window is one range.
fn write_key(bytes: &mut Vec<u8>, window: i64, key: &str) {
    bytes.clear();
    bytes.extend_from_slice(&window.to_be_bytes());
    bytes.extend_from_slice(key.as_bytes());
}

/// Takes a stored pane of a fired window: its key as [`write_key`] wrote it, and its bytes.
fn take_pair(window: i64, key: &[u8], pane: &[u8], results: &mut Results) -> Outcome<()> {
    let key = key.get(8..).ok_or("a key is shorter than its window")?;
    let pane = crate::results::Pane::from_bytes(pane).ok_or("a stored pane is not as long as a pane")?;
    results.take(window, key, pane);
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests;
