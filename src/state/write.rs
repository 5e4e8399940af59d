//! Spilling: a sorted run of panes into the database, as one batch or as files handed over.
//!
//! Never with the WAL. Nothing here is durable: that is the work of a checkpoint.

use std::fs;
use std::path::PathBuf;

use rocksdb::{ColumnFamily, IngestExternalFileOptions, Options, SstFileWriter, WriteBatch};

use super::db::{StateDb, Writer};
use super::error::StateError;
use super::family::FamilyId;
use super::key::write_pane;
use super::options::{self, FILE_BYTES};
use super::value::write_payload;
use crate::codec::PaneKey;
use crate::event_time::EventTime;

/// Runs of so many entries or more are written as files.
///
/// Measured on two busy cores, 57-byte entries, write and link together, three epochs over the
/// same panes: 16,384 entries 43–65 ms as a batch and 39–74 ms as files, 65,536 entries 181–273 ms and 136–180 ms,
/// 1,048,576 entries 964–2,355 ms and 756–788 ms. Small files cost a sync each, large batches a sorted tree.
pub(super) const FILES_FROM_ENTRIES: usize = 32_768;
/// A batch is written in pieces of about this size, so that it never takes more memory.
const BATCH_BYTES: usize = 4 << 20;
/// A file of at least this size ends where a window ends, so that it can be dropped as a whole.
const FILE_BYTES_WHOLE_WINDOWS: u64 = 2 << 20;

/// What to do with the payload of a pane.
#[derive(Clone, Copy, Debug)]
pub enum Write<'a> {
    /// It is the whole pane.
    Put(&'a [u8]),
    /// It is a part, to be merged with what is stored, which is not read for it.
    Merge(&'a [u8]),
    /// There is no such pane any more.
    Delete,
}

/// The way a run took into the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritePath {
    /// Through the write buffer.
    Batch,
    /// As files.
    Files,
}

/// What [`StateDb::write_sorted`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteStats {
    /// Panes written.
    pub entries: usize,
    /// Bytes of their keys and values, before compression.
    pub bytes: u64,
    /// Which way.
    pub path: WritePath,
}

/// Takes entries in order; where they go differs.
trait Sink {
    fn add(&mut self, end: EventTime, key: &[u8], entry: Entry<'_>) -> Result<(), StateError>;
}

impl StateDb {
    /// Writes panes in strictly ascending order of end, then key. `count_hint` is about how many there are.
    ///
    /// After an error a part of them may have been written: give the database up and restore the last checkpoint.
    ///
    /// # Errors
    /// [`StateError::Order`] when entries are not ascending, [`StateError::Engine`] or [`StateError::Io`] when the
    /// disk is full or fails.
    pub fn write_sorted<'a>(
        &self,
        family: FamilyId,
        entries: impl Iterator<Item = (PaneKey<'a>, Write<'a>)>,
        count_hint: usize,
    ) -> Result<WriteStats, StateError> {
        let path = if count_hint >= FILES_FROM_ENTRIES { WritePath::Files } else { WritePath::Batch };
        self.write_by(path, family, entries)
    }

    pub(super) fn write_by<'a>(
        &self,
        path: WritePath,
        id: FamilyId,
        entries: impl Iterator<Item = (PaneKey<'a>, Write<'a>)>,
    ) -> Result<WriteStats, StateError> {
        let mut writer = self.writer()?;
        let family = self.engine.family(id)?;
        let handle = self.engine.handle(&family.column_family)?;
        let (entries, bytes) = match path {
            WritePath::Batch => {
                let mut sink = BatchSink { db: self, handle, batch: WriteBatch::default() };
                let counts = pour(entries, &family.column_family, &mut sink)?;
                sink.write_out()?;
                counts
            }
            WritePath::Files => {
                let options = self
                    .file_options
                    .get(id.0)
                    .ok_or(StateError::NoFamily { index: id.0, families: self.file_options.len() })?;
                fs::create_dir_all(&self.spill_dir)
                    .map_err(StateError::io("create the spill directory", &self.spill_dir))?;
                let mut sink = FileSink { db: self, writer: &mut writer, options, open: None, paths: vec![] };
                let counts = pour(entries, &family.column_family, &mut sink)?;
                sink.hand_over(handle)?;
                counts
            }
        };
        Ok(WriteStats { entries, bytes, path })
    }
}

/// An entry as the database takes it.
#[derive(Clone, Copy)]
enum Entry<'a> {
    Put(&'a [u8]),
    Merge(&'a [u8]),
    Delete,
}

/// Encodes entries, checks their order and adds them to a sink. Returns their number and bytes.
fn pour<'a>(
    entries: impl Iterator<Item = (PaneKey<'a>, Write<'a>)>,
    family: &str,
    sink: &mut impl Sink,
) -> Result<(usize, u64), StateError> {
    let (mut key, mut previous, mut value) = (Vec::new(), Vec::new(), Vec::new());
    let (mut count, mut bytes) = (0_usize, 0_u64);
    for (pane, write) in entries {
        write_pane(&mut key, pane);
        // Before the first entry `previous` is empty, which is less than any key.
        if key <= previous {
            return Err(StateError::Order { family: family.to_owned(), entry: count });
        }
        let entry = match write {
            Write::Put(payload) => Entry::Put(write_payload(&mut value, payload)),
            Write::Merge(payload) => Entry::Merge(write_payload(&mut value, payload)),
            Write::Delete => {
                value.clear();
                Entry::Delete
            }
        };
        sink.add(pane.end, &key, entry)?;
        count += 1;
        bytes += (key.len() + value.len()) as u64;
        std::mem::swap(&mut key, &mut previous);
    }
    Ok((count, bytes))
}

struct BatchSink<'a> {
    db: &'a StateDb,
    handle: &'a ColumnFamily,
    batch: WriteBatch,
}

impl BatchSink<'_> {
    fn write_out(&mut self) -> Result<(), StateError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let written = self.db.engine.db.write_opt(std::mem::take(&mut self.batch), &options::write());
        written.map_err(StateError::engine("write panes"))
    }
}

impl Sink for BatchSink<'_> {
    fn add(&mut self, _end: EventTime, key: &[u8], entry: Entry<'_>) -> Result<(), StateError> {
        match entry {
            Entry::Put(value) => self.batch.put_cf(self.handle, key, value),
            Entry::Merge(value) => self.batch.merge_cf(self.handle, key, value),
            Entry::Delete => self.batch.delete_cf(self.handle, key),
        }
        if self.batch.size_in_bytes() >= BATCH_BYTES { self.write_out() } else { Ok(()) }
    }
}

struct FileSink<'a> {
    db: &'a StateDb,
    writer: &'a mut Writer,
    options: &'a Options,
    open: Option<OpenFile<'a>>,
    paths: Vec<PathBuf>,
}

struct OpenFile<'a> {
    file: SstFileWriter<'a>,
    last_end: EventTime,
}

impl FileSink<'_> {
    fn open_next(&mut self, end: EventTime) -> Result<(), StateError> {
        let path = self.db.spill_dir.join(format!("{:06}.sst", self.writer.next_file));
        self.writer.next_file += 1;
        let file = SstFileWriter::create(self.options);
        file.open(&path).map_err(StateError::engine("create a file of panes"))?;
        self.paths.push(path);
        self.open = Some(OpenFile { file, last_end: end });
        Ok(())
    }

    fn close(&mut self) -> Result<(), StateError> {
        match self.open.take() {
            Some(mut open) => open.file.finish().map_err(StateError::engine("finish a file of panes")),
            None => Ok(()),
        }
    }

    /// Moves the finished files into the database, all or none.
    fn hand_over(mut self, handle: &ColumnFamily) -> Result<(), StateError> {
        self.close()?;
        if self.paths.is_empty() {
            return Ok(());
        }
        let mut ingest = IngestExternalFileOptions::default();
        ingest.set_move_files(true);
        ingest.set_snapshot_consistency(true);
        ingest.set_allow_global_seqno(true);
        ingest.set_allow_blocking_flush(true);
        let paths = std::mem::take(&mut self.paths);
        let ingested = self.db.engine.db.ingest_external_file_cf_opts(handle, &ingest, paths);
        ingested.map_err(StateError::engine("take over files of panes"))
    }
}

impl Sink for FileSink<'_> {
    fn add(&mut self, end: EventTime, key: &[u8], entry: Entry<'_>) -> Result<(), StateError> {
        if let Some(open) = &self.open {
            let bytes = open.file.file_size();
            if bytes >= FILE_BYTES || (end != open.last_end && bytes >= FILE_BYTES_WHOLE_WINDOWS) {
                self.close()?;
            }
        }
        if self.open.is_none() {
            self.open_next(end)?;
        }
        if let Some(open) = &mut self.open {
            open.last_end = end;
            let added = match entry {
                Entry::Put(value) => open.file.put(key, value),
                Entry::Merge(value) => open.file.merge(key, value),
                Entry::Delete => open.file.delete(key),
            };
            added.map_err(StateError::engine("write a file of panes"))?;
        }
        Ok(())
    }
}

impl Drop for FileSink<'_> {
    /// What was not handed over is of no use to anybody; left-overs are cleared at the next open as well.
    fn drop(&mut self) {
        for path in &self.paths {
            let _ = fs::remove_file(path);
        }
    }
}
