//! The handle of a staged file, as it stands in a checkpoint's manifest. It knows names and sums, not the disk.

use serde::{Deserialize, Serialize};

use super::error::SinkError;
use super::names::{self, StagingName};
use crate::codec;
use crate::error::Result;

const MAGIC: [u8; 8] = *b"FLOODOUT";
const VERSION: u32 = 1;

/// Which run writes an output: the checkpoint lineage, and its generation, which grows with each opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkContext {
    /// Identity of the state directory's line of checkpoints.
    pub lineage: [u8; 16],
    /// Number of this run within the lineage.
    pub generation: u64,
}

/// The output of one epoch, durable and not yet visible.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagedFile {
    pub(super) sink: String,
    pub(super) epoch: u64,
    // Both are plain names that `names` understands; checked on decode.
    pub(super) staged_name: String,
    pub(super) final_name: String,
    pub(super) rows: u64,
    pub(super) bytes: u64,
    pub(super) crc32: u32,
}

impl StagedFile {
    /// Name of the output it belongs to.
    #[must_use]
    pub fn sink(&self) -> &str {
        &self.sink
    }

    /// The epoch whose rows it holds.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Number of rows.
    #[must_use]
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// Size in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The file name it gets when published.
    #[must_use]
    pub fn part_name(&self) -> &str {
        &self.final_name
    }

    /// The same file as that of an output with another name, for one that was renamed.
    #[must_use]
    pub fn of_sink(&self, sink: &str) -> Self {
        Self { sink: sink.to_owned(), ..self.clone() }
    }

    /// The handle as bytes for the manifest.
    ///
    /// # Errors
    /// When the handle cannot be serialised, which would be a defect.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let failed = |source| SinkError::Decode { what: format!("handle of {}", self.staged_name), source };
        Ok(codec::encode(MAGIC, VERSION, self).map_err(failed)?)
    }

    /// The name that it has until it is published.
    pub(crate) fn staged_name(&self) -> &str {
        &self.staged_name
    }

    /// Reads a handle from a manifest.
    ///
    /// # Errors
    /// When the bytes are damaged, or name a file that a sink could not have staged.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let failed = |source| SinkError::Decode { what: "staged output handle".to_owned(), source };
        let handle: Self = codec::decode(MAGIC, VERSION, bytes).map_err(failed)?;
        handle.check_names()?;
        Ok(handle)
    }

    fn check_names(&self) -> Result<(), SinkError> {
        let staged = StagingName::parse(&self.staged_name);
        let Some(staged) = staged.filter(|staged| staged.epoch == Some(self.epoch)) else {
            return Err(SinkError::Name { name: self.staged_name.clone() });
        };
        if self.final_name != names::part(self.epoch, &staged.extension) {
            return Err(SinkError::Name { name: self.final_name.clone() });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle() -> StagedFile {
        StagedFile {
            sink: "hourly".to_owned(),
            epoch: 12,
            staged_name: "abababab-3-12.jsonl".to_owned(),
            final_name: "part-0000000012.jsonl".to_owned(),
            rows: 3,
            bytes: 99,
            crc32: 7,
        }
    }

    #[test]
    fn a_handle_survives_the_manifest() {
        assert_eq!(StagedFile::decode(&handle().encode().unwrap()).unwrap(), handle());
    }

    #[test]
    fn a_handle_that_leaves_the_directory_is_refused() {
        for name in ["../../etc/passwd", "abababab-3-13.jsonl", "abababab-3-open.jsonl"] {
            let hostile = StagedFile { staged_name: name.to_owned(), ..handle() };
            assert!(StagedFile::decode(&hostile.encode().unwrap()).is_err(), "{name}");
        }
        for name in ["../part-0000000012.jsonl", "part-0000000013.jsonl", "part-0000000012.csv"] {
            let hostile = StagedFile { final_name: name.to_owned(), ..handle() };
            assert!(StagedFile::decode(&hostile.encode().unwrap()).is_err(), "{name}");
        }
    }
}
