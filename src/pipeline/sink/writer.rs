//! The writing half of an output: bytes of rows into a staging file, and from there into a durable handle.
//!
//! It knows neither how rows look nor when a checkpoint is durable.

use std::fs::File;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use super::contract::SinkContext;
use super::durable;
use super::error::SinkError;
use super::names::{self, StagingName};
use super::staged::StagedFile;
use crate::checkpoint::StagedOutput;

/// Rows gather in memory up to this many bytes, plus one row, before they are written.
const BUFFER_BYTES: usize = 256 * 1024;
/// An epoch's file that is this long is written on by a thread of its own.
const LARGE_BYTES: u64 = 4 * BUFFER_BYTES as u64;
/// Full buffers that may wait for that thread.
const BUFFERS_AHEAD: usize = 32;
/// Bytes after which that thread forces its file to the disk, so that little is left to do at the barrier.
const SYNC_BYTES: u64 = 32 << 20;

/// Where an output lives and what its parts are called.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The output's name in handles and messages.
    pub(super) sink: String,
    /// The directory of its parts.
    pub(super) directory: PathBuf,
    /// Extension of its parts.
    pub(super) extension: &'static str,
    /// What its rows look like; an output has one look for good.
    pub(super) look: String,
    /// What every staged file begins with; nothing for most.
    pub(super) preamble: Vec<u8>,
}

impl Place {
    pub(super) fn staging(&self) -> PathBuf {
        self.directory.join(names::STAGING)
    }
}

#[derive(Debug)]
struct OpenFile {
    file: File,
    path: PathBuf,
    bytes: u64,
    crc: crc32fast::Hasher,
}

/// The file of an epoch.
#[derive(Debug)]
enum Open {
    Here(OpenFile),
    Beside(Beside),
}

/// A file that a thread writes to, while the pipeline goes on.
#[derive(Debug)]
struct Beside {
    // `None` once the last buffer was handed over.
    buffers: Option<SyncSender<Vec<u8>>>,
    spent: Receiver<Vec<u8>>,
    thread: Option<JoinHandle<Result<OpenFile, SinkError>>>,
}

/// Takes rows and stages them by epoch.
#[derive(Debug)]
pub(super) struct PartWriter {
    place: Place,
    context: SinkContext,
    buffer: Vec<u8>,
    rows: u64,
    // Created by the first full buffer or by `stage`, so an epoch without rows leaves no trace.
    open: Option<Open>,
    last_epoch: u64,
    failed: bool,
}

impl PartWriter {
    /// A writer for epochs after `last_epoch`. The directory must have been recovered.
    pub(super) fn new(place: Place, context: SinkContext, last_epoch: u64) -> Self {
        Self { place, context, buffer: Vec::new(), rows: 0, open: None, last_epoch, failed: false }
    }

    pub(super) fn sink(&self) -> &str {
        &self.place.sink
    }

    /// Appends one row, whose bytes `encode` adds to the buffer. A row that cannot be encoded leaves no bytes.
    #[inline]
    pub(super) fn row(
        &mut self,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), SinkError>,
    ) -> Result<(), SinkError> {
        self.check()?;
        let before = self.buffer.len();
        if let Err(error) = encode(&mut self.buffer) {
            self.buffer.truncate(before);
            return Err(error);
        }
        self.rows += 1;
        if self.buffer.len() >= BUFFER_BYTES { self.guarded(Self::flush) } else { Ok(()) }
    }

    /// Appends bytes that hold `rows` rows, those written by what keeps rows back for a while included.
    #[cfg(feature = "parquet")]
    pub(super) fn append(&mut self, rows: u64, bytes: &[u8]) -> Result<(), SinkError> {
        self.check()?;
        self.rows += rows;
        self.guarded(|writer| {
            writer.buffer.extend_from_slice(bytes);
            writer.flush()
        })
    }

    /// Refuses work after a failure.
    pub(super) fn check(&self) -> Result<(), SinkError> {
        if self.failed {
            return Err(SinkError::Poisoned { sink: self.place.sink.clone() });
        }
        Ok(())
    }

    /// Refuses work from here on.
    #[cfg(feature = "parquet")]
    pub(super) fn poison(&mut self) {
        self.failed = true;
    }

    /// Makes the rows since the last call durable under a name of `epoch`; see [`super::Sink::stage`].
    pub(super) fn stage(&mut self, epoch: u64) -> Result<Option<StagedFile>, SinkError> {
        self.check()?;
        if epoch <= self.last_epoch {
            let what =
                format!("epoch is staged twice or out of order: epoch={epoch} last={}", self.last_epoch);
            return Err(SinkError::Protocol { sink: self.place.sink.clone(), what });
        }
        self.guarded(|writer| {
            durable::fault("sink.stage.before", &writer.place.directory)?;
            let staged = writer.stage_rows(epoch)?;
            durable::fault("sink.stage.after", &writer.place.directory)?;
            writer.last_epoch = epoch;
            Ok(staged)
        })
    }

    /// As [`PartWriter::stage`], in the form that manifests keep.
    pub(super) fn stage_output(&mut self, epoch: u64) -> Result<Option<StagedOutput>, SinkError> {
        self.stage(epoch)?.as_ref().map(StagedFile::to_output).transpose()
    }

    /// Runs a step after which, if it fails, nobody can say what is on disk: the writer then refuses work.
    fn guarded<T>(&mut self, step: impl FnOnce(&mut Self) -> Result<T, SinkError>) -> Result<T, SinkError> {
        let result = step(self);
        self.failed |= result.is_err();
        result
    }

    /// Cut anywhere: an open or staged file of this generation is left, which the next recovery sweeps.
    fn stage_rows(&mut self, epoch: u64) -> Result<Option<StagedFile>, SinkError> {
        if self.rows == 0 {
            return Ok(None);
        }
        self.flush()?;
        let Some(open) = self.open.take() else { return Ok(None) };
        let OpenFile { file, path, bytes, crc } = match open {
            Open::Here(open) => open,
            Open::Beside(beside) => beside.finish()?,
        };
        durable::sync_file(&file, &path)?;
        let SinkContext { lineage, generation } = self.context;
        let staged_name =
            StagingName::new(lineage, generation, Some(epoch), self.place.extension).to_string();
        let staging = self.place.staging();
        durable::rename(&path, &staging.join(&staged_name))?;
        durable::sync_directory(&staging)?;
        Ok(Some(StagedFile {
            sink: self.place.sink.clone(),
            epoch,
            staged_name,
            final_name: names::part(epoch, self.place.extension),
            rows: std::mem::take(&mut self.rows),
            bytes,
            crc32: crc.finalize(),
        }))
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let open = match self.open.take() {
            Some(Open::Here(open)) if open.bytes >= LARGE_BYTES => Open::Beside(Beside::start(open)?),
            Some(open) => open,
            None => {
                let mut open = create(&self.place, self.context)?;
                if !self.place.preamble.is_empty() {
                    open.append(&self.place.preamble)?;
                }
                Open::Here(open)
            }
        };
        match self.open.insert(open) {
            Open::Here(open) => {
                open.append(&self.buffer)?;
                self.buffer.clear();
                Ok(())
            }
            Open::Beside(beside) => beside.append(&mut self.buffer),
        }
    }
}

impl Beside {
    fn start(open: OpenFile) -> Result<Self, SinkError> {
        let path = open.path.clone();
        let (buffers, full) = sync_channel(BUFFERS_AHEAD);
        let (empty, spent) = sync_channel(BUFFERS_AHEAD);
        let spawned = std::thread::Builder::new()
            .name("floodmark-output".to_owned())
            .spawn(move || open.write_all(&full, &empty));
        let thread = spawned.map_err(SinkError::io("start the thread that writes output", path))?;
        Ok(Self { buffers: Some(buffers), spent, thread: Some(thread) })
    }

    /// Hands `buffer` over, and leaves an empty one in its place.
    fn append(&mut self, buffer: &mut Vec<u8>) -> Result<(), SinkError> {
        let mut next = self.spent.try_recv().unwrap_or_else(|_| Vec::with_capacity(BUFFER_BYTES + 4096));
        std::mem::swap(buffer, &mut next);
        match &self.buffers {
            Some(buffers) if buffers.send(next).is_ok() => Ok(()),
            // The thread is gone before its time, which only an error does.
            _ => Err(self.end().err().unwrap_or(SinkError::Thread)),
        }
    }

    fn finish(mut self) -> Result<OpenFile, SinkError> {
        self.end()
    }

    /// Waits until everything is written.
    fn end(&mut self) -> Result<OpenFile, SinkError> {
        self.buffers = None;
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(ended)) => ended,
            _ => Err(SinkError::Thread),
        }
    }
}

impl Drop for Beside {
    /// Whoever sweeps the directory next meets no writer of this process.
    fn drop(&mut self) {
        if self.thread.is_some() {
            // What it says is of rows that are given up.
            let _ = self.end();
        }
    }
}

impl OpenFile {
    fn append(&mut self, bytes: &[u8]) -> Result<(), SinkError> {
        durable::write(&mut self.file, &self.path, bytes)?;
        self.crc.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Appends what comes until there is no more, and gives the buffers back.
    fn write_all(mut self, full: &Receiver<Vec<u8>>, empty: &SyncSender<Vec<u8>>) -> Result<Self, SinkError> {
        let mut synced = self.bytes;
        for mut buffer in full {
            self.append(&buffer)?;
            if self.bytes - synced >= SYNC_BYTES {
                durable::sync_file(&self.file, &self.path)?;
                synced = self.bytes;
            }
            buffer.clear();
            // With enough of them waiting, or the writer gone, its memory is freed.
            let _ = empty.try_send(buffer);
        }
        Ok(self)
    }
}

fn create(place: &Place, context: SinkContext) -> Result<OpenFile, SinkError> {
    let SinkContext { lineage, generation } = context;
    let name = StagingName::new(lineage, generation, None, place.extension).to_string();
    let path = place.staging().join(name);
    Ok(OpenFile { file: durable::create(&path)?, path, bytes: 0, crc: crc32fast::Hasher::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(path: &str) -> OpenFile {
        let file = std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(path).unwrap();
        OpenFile { file, path: path.into(), bytes: 0, crc: crc32fast::Hasher::new() }
    }

    #[test]
    fn a_thread_writes_what_the_pipeline_would_have_written_in_its_order() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("rows");
        let mut beside = Beside::start(opened(path.to_str().unwrap())).unwrap();
        let mut expected = Vec::new();
        for number in 0..1_000_u32 {
            let mut buffer = number.to_string().repeat(number as usize % 50).into_bytes();
            expected.extend_from_slice(&buffer);
            beside.append(&mut buffer).unwrap();
            assert!(buffer.is_empty(), "it can be filled again");
        }
        let OpenFile { bytes, crc, .. } = beside.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), expected);
        assert_eq!((bytes, crc.finalize()), (expected.len() as u64, crc32fast::hash(&expected)));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_that_cannot_write_is_noticed_at_the_next_buffer_and_at_the_end() {
        let mut beside = Beside::start(opened("/dev/full")).unwrap();
        let failed = (0..).find_map(|_| beside.append(&mut vec![b'x'; 100]).err()).unwrap();
        assert!(failed.to_string().contains("/dev/full") && failed.to_string().contains("space"), "{failed}");
        let mut beside = Beside::start(opened("/dev/full")).unwrap();
        beside.append(&mut vec![b'x'; 100]).unwrap();
        assert!(beside.finish().unwrap_err().to_string().contains("/dev/full"));
    }
}
