//! The lineage file: whose state a directory holds, and the generation that fences one writer from the next.
//!
//! Rewritten, durably, by every open for writing; it knows no checkpoint, only the newest epoch ever seen here.

use std::fmt;
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::layout;
use crate::codec::{self, DecodeError};

pub(super) const MAGIC: [u8; 8] = *b"FLOODLIN";
pub(super) const VERSION: u32 = 1;
/// A lineage file is a name and a few numbers.
const BYTES_MAX: u64 = 1 << 20;

/// Names one history of checkpoints; drawn at random when a state directory is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LineageId(pub [u8; 16]);

impl LineageId {
    /// A new id from the machine's source of randomness.
    ///
    /// # Errors
    /// The system's, when there is no such source.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; 16];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Self(bytes))
    }
}

impl fmt::Display for LineageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The contents of the lineage file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lineage {
    pub(super) id: LineageId,
    pub(super) pipeline: String,
    /// Raised by each open for writing; the highest one may publish.
    pub(super) generation: u64,
    /// The newest epoch that was there at any open. A later open that does not find it knows that it was removed.
    pub(super) newest_epoch_seen: u64,
}

impl Lineage {
    /// Reads the lineage file; `None` when there is none.
    pub(super) fn load(path: &Path) -> Result<Option<Self>, CheckpointError> {
        let file = match layout::open_regular(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(CheckpointError::io("open the lineage file", path)(error)),
        };
        let mut bytes = Vec::new();
        file.take(BYTES_MAX)
            .read_to_end(&mut bytes)
            .map_err(CheckpointError::io("read the lineage file", path))?;
        Self::decode(&bytes).map(Some).map_err(|source| match source {
            DecodeError::Version { found, known } => {
                CheckpointError::Newer { what: "state directory", path: path.to_owned(), found, known }
            }
            source => CheckpointError::LineageDamaged { path: path.to_owned(), source },
        })
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>, DecodeError> {
        codec::encode(MAGIC, VERSION, self)
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        codec::decode(MAGIC, VERSION, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lineage_file_is_pinned_by_golden_bytes() {
        let lineage = Lineage {
            id: LineageId([0xab; 16]),
            pipeline: "flights".to_owned(),
            generation: 3,
            newest_epoch_seen: 7,
        };
        let bytes = lineage.encode().unwrap();
        assert_eq!(&bytes[..12], b"FLOODLIN\x01\0\0\0");
        let mut body = vec![0xab; 16];
        body.extend(7_u64.to_le_bytes());
        body.extend(b"flights");
        body.extend(3_u64.to_le_bytes());
        body.extend(7_u64.to_le_bytes());
        assert_eq!(&bytes[24..], body);
        assert_eq!(Lineage::decode(&bytes).unwrap(), lineage);
        assert_eq!(lineage.id.to_string(), "ab".repeat(16));
    }
}
