//! Linking: the database at an epoch's end, as a directory of hard links that nobody writes to again.
//!
//! Makes the directory's name durable; what is in the files is checksummed and published above.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rocksdb::checkpoint::Checkpoint;
use rocksdb::{LiveFile, WriteBatch};

use super::db::StateDb;
use super::error::StateError;
use super::key::{SENTINEL, window_end};
use super::{ReadOnlyState, options};
use crate::event_time::EventTime;

/// A linked checkpoint of the database.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Linked {
    /// Every file of the directory, by name.
    pub files: Vec<LinkedFile>,
    /// False when the target is on another file system, where RocksDB copies instead: slow, and twice the space.
    pub hard_linked: bool,
}

/// One file of a linked checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkedFile {
    /// Its name, without a path.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// What a table file covers; `None` for the few small files beside the tables.
    pub range: Option<FileRange>,
}

#[cfg(test)]
impl LinkedFile {
    /// A file that only its name is known of.
    pub(crate) fn named(name: &str) -> Self {
        Self { name: name.to_owned(), bytes: 0, range: None }
    }
}

/// What a table file covers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileRange {
    /// Its column family.
    pub column_family: String,
    /// Its level; 0 is the newest.
    pub level: u32,
    /// Its first key, as in the database.
    pub smallest: Vec<u8>,
    /// Its last key, as in the database.
    pub largest: Vec<u8>,
    /// First window end in it, when its first key is a pane's.
    pub end_min: Option<EventTime>,
    /// Last window end in it, when its last key is a pane's.
    pub end_max: Option<EventTime>,
    /// Entries, deletions included; zero when RocksDB has not read it yet.
    pub entries: u64,
}

impl StateDb {
    /// Links the database as it is into `target`, which must not exist, as the state of `epoch`.
    ///
    /// Writers must have stopped: calls of this type take turns, so they have. Cut at any step, nothing at
    /// `target`, a left-over beside it named `<target>.tmp`, or a complete directory is found; the caller publishes
    /// only what this call returned.
    ///
    /// # Errors
    /// [`StateError::Engine`] or [`StateError::Io`] when the disk is full or fails, [`StateError::Torn`] when the
    /// result does not hold `epoch` in every family, [`StateError::Background`] when RocksDB failed before.
    pub fn link_checkpoint(&self, target: &Path, epoch: u64) -> Result<Linked, StateError> {
        let mut writer = self.writer()?;
        self.engine.check_background()?;
        let mut batch = WriteBatch::default();
        for (_, handle) in self.engine.handles()? {
            batch.put_cf(handle, SENTINEL, epoch.to_le_bytes());
        }
        let written = self.engine.db.write_opt(batch, &options::write());
        written.map_err(StateError::engine("write the epoch"))?;
        self.flush(&mut writer)?;
        let checkpoint =
            Checkpoint::new(&self.engine.db).map_err(StateError::engine("prepare a checkpoint"))?;
        checkpoint.create_checkpoint(target).map_err(StateError::engine("link a checkpoint"))?;
        // RocksDB syncs the directory but not the entry that names it.
        sync_parent(target)?;
        let linked = self.prove(target, epoch)?;
        writer.epoch = Some(epoch);
        Ok(linked)
    }
}

impl StateDb {
    /// Opens what was linked, sees that every family holds the epoch, and lists the files.
    ///
    /// It costs one read-only open, and has caught checkpoints that RocksDB called a success and that were empty.
    /// Only the linked directory knows its own files: a compaction may have changed the database since.
    fn prove(&self, target: &Path, epoch: u64) -> Result<Linked, StateError> {
        let state = ReadOnlyState::open(target, &self.specs)?;
        if state.epoch() != epoch {
            let epochs = self.specs.iter().map(|spec| (spec.column_family(), Some(state.epoch()))).collect();
            return Err(StateError::Torn { dir: target.to_owned(), epochs });
        }
        list_files(target, state.live_files()?)
    }
}

fn list_files(target: &Path, live: Vec<LiveFile>) -> Result<Linked, StateError> {
    let mut ranges: HashMap<String, FileRange> = live.into_iter().map(range).collect();
    let mut linked = Linked { files: Vec::new(), hard_linked: true };
    let read = StateError::io;
    for entry in fs::read_dir(target).map_err(read("list a linked checkpoint", target))? {
        let entry = entry.map_err(read("list a linked checkpoint", target))?;
        let metadata = entry.metadata().map_err(read("list a linked checkpoint", target))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let range = ranges.remove(&name);
        linked.hard_linked &= range.is_none() || metadata.nlink() > 1;
        linked.files.push(LinkedFile { name, bytes: metadata.len(), range });
    }
    if !ranges.is_empty() {
        let absent = ranges.into_keys().collect();
        return Err(StateError::Files { dir: target.to_owned(), absent });
    }
    linked.files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(linked)
}

/// Table files as the database knows them, by name.
pub(super) fn tables(live: Vec<LiveFile>) -> Vec<LinkedFile> {
    let table = |file: LiveFile| {
        let bytes = file.size as u64;
        let (name, range) = range(file);
        LinkedFile { name, bytes, range: Some(range) }
    };
    let mut tables: Vec<LinkedFile> = live.into_iter().map(table).collect();
    tables.sort_by(|a, b| a.name.cmp(&b.name));
    tables
}

fn range(file: LiveFile) -> (String, FileRange) {
    let smallest = file.start_key.unwrap_or_default();
    let largest = file.end_key.unwrap_or_default();
    let range = FileRange {
        column_family: file.column_family_name,
        level: u32::try_from(file.level).unwrap_or(0),
        end_min: window_end(&smallest),
        end_max: window_end(&largest),
        smallest,
        largest,
        entries: file.num_entries,
    };
    (file.name.trim_start_matches('/').to_owned(), range)
}

fn sync_parent(target: &Path) -> Result<(), StateError> {
    let parent = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let synced = File::open(parent).and_then(|directory| directory.sync_all());
    synced.map_err(StateError::io("sync the directory of checkpoints", parent))
}
