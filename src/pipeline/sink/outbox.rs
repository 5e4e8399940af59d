//! Staged files of an output that is no directory of parts: kept until they were delivered, then removed.
//!
//! It knows files and sums, not where their bytes go.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use super::contract::{RecoverReport, SinkContext};
use super::durable;
use super::error::SinkError;
use super::publisher::{lock, sweep};
use super::staged::StagedFile;
use super::writer::Place;

/// Bytes read at once.
const CHUNK_BYTES: usize = 256 * 1024;

/// A directory of staged files, held by one process.
#[derive(Debug)]
pub(super) struct Outbox {
    place: Place,
    // Holds the directory for as long as the outbox lives.
    _lock: File,
}

impl Outbox {
    /// Takes hold of the directory, which need not exist.
    pub(super) fn open(place: &Place) -> Result<Self, SinkError> {
        durable::create_directory(&place.directory)?;
        durable::create_directory(&place.staging())?;
        Ok(Self { place: place.clone(), _lock: lock(&place.staging())? })
    }

    /// Passes a fault point of this output.
    pub(super) fn fault(&self, name: &'static str) -> Result<(), SinkError> {
        durable::fault(name, &self.place.directory)
    }

    /// Hands all bytes of a staged file to `take`. Whoever takes them must not make them count before this has
    /// returned: only then are they known to be those that were staged.
    pub(super) fn read<E: From<SinkError>>(
        &self,
        staged: &StagedFile,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let path = self.path(staged);
        let mut file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(SinkError::Missing { path, epoch: staged.epoch }.into());
            }
            opened => opened.map_err(SinkError::io("read staged output", &path))?,
        };
        let (mut crc, mut bytes) = (crc32fast::Hasher::new(), 0);
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let read = file.read(&mut chunk).map_err(SinkError::io("read staged output", &path))?;
            if read == 0 {
                break;
            }
            crc.update(&chunk[..read]);
            bytes += read as u64;
            // Longer than it may be: what follows is not ours.
            if bytes <= staged.bytes {
                take(&chunk[..read])?;
            }
        }
        let crc32 = crc.finalize();
        if bytes == staged.bytes && crc32 == staged.crc32 {
            return Ok(());
        }
        let (expected_bytes, expected_crc32) = (staged.bytes, staged.crc32);
        Err(SinkError::Damaged { path, bytes, expected_bytes, crc32, expected_crc32 }.into())
    }

    /// Removes a file that was delivered. Cut before it: the next start finds that it was delivered, and removes it.
    pub(super) fn remove(&self, staged: &StagedFile) -> Result<(), SinkError> {
        durable::remove(&self.path(staged))
    }

    /// True while the file waits.
    pub(super) fn holds(&self, staged: &StagedFile) -> bool {
        self.path(staged).exists()
    }

    /// Removes what earlier runs of this lineage staged and nobody needs any more.
    pub(super) fn sweep(&self, context: SinkContext, report: &mut RecoverReport) -> Result<(), SinkError> {
        sweep(&self.place, context, report)
    }

    fn path(&self, staged: &StagedFile) -> PathBuf {
        self.place.staging().join(&staged.staged_name)
    }
}
