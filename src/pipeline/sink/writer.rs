//! The writing half of an output: bytes of rows into a staging file, and from there into a durable handle.
//!
//! It knows neither how rows look nor when a checkpoint is durable.

use std::fs::File;
use std::path::PathBuf;

use super::contract::SinkContext;
use super::durable;
use super::error::SinkError;
use super::names::{self, StagingName};
use super::staged::StagedFile;
use crate::checkpoint::StagedOutput;

/// Rows gather in memory up to this many bytes, plus one row, before they are written.
const BUFFER_BYTES: usize = 256 * 1024;

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

/// Takes rows and stages them by epoch.
#[derive(Debug)]
pub(super) struct PartWriter {
    place: Place,
    context: SinkContext,
    buffer: Vec<u8>,
    rows: u64,
    // Created by the first full buffer or by `stage`, so an epoch without rows leaves no trace.
    open: Option<OpenFile>,
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
        let Some(OpenFile { file, path, bytes, crc }) = self.open.take() else { return Ok(None) };
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
        let open = match &mut self.open {
            Some(open) => open,
            None => {
                let mut open = create(&self.place, self.context)?;
                if !self.place.preamble.is_empty() {
                    open.append(&self.place.preamble)?;
                }
                self.open.insert(open)
            }
        };
        open.append(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

impl OpenFile {
    fn append(&mut self, bytes: &[u8]) -> Result<(), SinkError> {
        durable::write(&mut self.file, &self.path, bytes)?;
        self.crc.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

fn create(place: &Place, context: SinkContext) -> Result<OpenFile, SinkError> {
    let SinkContext { lineage, generation } = context;
    let name = StagingName::new(lineage, generation, None, place.extension).to_string();
    let path = place.staging().join(name);
    Ok(OpenFile { file: durable::create(&path)?, path, bytes: 0, crc: crc32fast::Hasher::new() })
}
