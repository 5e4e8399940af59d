//! What a savepoint says of itself (`SAVEPOINT.fm`), and what a restored state directory says of its origin (`ORIGIN`).
//!
//! Plain data in envelopes; the bytes are written down in `docs/FORMAT.md`. Neither is needed to restore.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::checkpoint::layout;
use crate::checkpoint::lineage::LineageId;
use crate::codec::{self, DecodeError};

pub(in crate::checkpoint) const SAVEPOINT_MAGIC: [u8; 8] = *b"FLOODSAV";
pub(in crate::checkpoint) const SAVEPOINT_VERSION: u32 = 1;
pub(in crate::checkpoint) const ORIGIN_MAGIC: [u8; 8] = *b"FLOODORI";
pub(in crate::checkpoint) const ORIGIN_VERSION: u32 = 1;
/// A longer file is not one of these.
const BYTES_MAX: u64 = 64 << 20;

/// A part of a late output by its content: names change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LatePart {
    /// Its length.
    pub bytes: u64,
    /// CRC32 of its bytes.
    pub crc32: u32,
}

/// What stands in `SAVEPOINT.fm`, beside the manifest that it is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavepointRecord {
    /// Its name; its directory may have another.
    pub name: String,
    /// Why it was made; empty for no reason given.
    pub note: String,
    /// Name of the pipeline.
    pub pipeline: String,
    /// The history that it was taken from.
    pub lineage: LineageId,
    /// The open that wrote its checkpoint.
    pub generation: u64,
    /// The epoch of its checkpoint.
    pub epoch: u64,
    /// Length of the manifest.
    pub manifest_bytes: u64,
    /// CRC32 of the manifest, envelope included.
    pub manifest_crc32: u32,
    /// Version of Floodmark that made the savepoint.
    pub created_by: String,
    /// Wall-clock milliseconds at which it was made.
    pub created_at_ms: i64,
    /// Parts of late outputs that were worked into it.
    pub late_parts: BTreeSet<LatePart>,
}

impl SavepointRecord {
    pub(in crate::checkpoint) fn encode(&self) -> Result<Vec<u8>, DecodeError> {
        codec::encode(SAVEPOINT_MAGIC, SAVEPOINT_VERSION, self)
    }

    pub(in crate::checkpoint) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        codec::decode(SAVEPOINT_MAGIC, SAVEPOINT_VERSION, bytes)
    }

    /// Reads the record of the checkpoint directory `dir`; `None` when it is no savepoint.
    ///
    /// # Errors
    /// The system's; `InvalidData` for bytes that are no such record.
    pub fn load(dir: &Path) -> io::Result<Option<Self>> {
        read(&dir.join(layout::SAVEPOINT), Self::decode)
    }
}

/// How a state directory came out of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OriginKind {
    /// It goes on with the same history.
    Moved,
    /// It is a history of its own from there on.
    Forked,
}

/// What stands in `ORIGIN` of a state directory that was made by a restore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Whether it was moved or forked.
    pub kind: OriginKind,
    /// Name of the pipeline there.
    pub pipeline: String,
    /// The history there.
    pub lineage: LineageId,
    /// The open that wrote the checkpoint.
    pub generation: u64,
    /// The checkpoint.
    pub epoch: u64,
    /// Name of the savepoint; empty for a checkpoint.
    pub savepoint: String,
    /// Wall-clock milliseconds at which it was restored.
    pub restored_at_ms: i64,
    /// Source partitions that were given up, as if they had been read to their end.
    pub dropped_partitions: Vec<String>,
    /// Source partitions with another name since: old, new.
    pub renamed_partitions: Vec<(String, String)>,
}

impl Origin {
    pub(in crate::checkpoint) fn encode(&self) -> Result<Vec<u8>, DecodeError> {
        codec::encode(ORIGIN_MAGIC, ORIGIN_VERSION, self)
    }

    pub(in crate::checkpoint) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        codec::decode(ORIGIN_MAGIC, ORIGIN_VERSION, bytes)
    }

    /// Reads where the state directory `state` came from; `None` when it was not made by a restore.
    ///
    /// # Errors
    /// The system's; `InvalidData` for bytes that are no such record.
    pub fn load(state: &Path) -> io::Result<Option<Self>> {
        read(&state.join(layout::ORIGIN), Self::decode)
    }
}

fn read<T>(path: &Path, decode: impl Fn(&[u8]) -> Result<T, DecodeError>) -> io::Result<Option<T>> {
    let file = match layout::open_regular(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes)?;
    decode(&bytes).map(Some).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_of_a_savepoint_is_pinned_by_golden_bytes() {
        let record = SavepointRecord {
            name: "before".to_owned(),
            note: String::new(),
            pipeline: "p".to_owned(),
            lineage: LineageId([7; 16]),
            generation: 3,
            epoch: 12,
            manifest_bytes: 500,
            manifest_crc32: 9,
            created_by: "0".to_owned(),
            created_at_ms: -1,
            late_parts: BTreeSet::from([LatePart { bytes: 4, crc32: 5 }]),
        };
        let bytes = record.encode().unwrap();
        assert_eq!(&bytes[..12], b"FLOODSAV\x01\0\0\0");
        let text = |body: &mut Vec<u8>, text: &str| {
            body.extend((text.len() as u64).to_le_bytes());
            body.extend(text.as_bytes());
        };
        let mut body = Vec::new();
        ["before", "", "p"].iter().for_each(|part| text(&mut body, part));
        body.extend([7; 16]);
        [3_u64, 12, 500].iter().for_each(|number| body.extend(number.to_le_bytes()));
        body.extend(9_u32.to_le_bytes());
        text(&mut body, "0");
        body.extend((-1_i64).to_le_bytes());
        body.extend(1_u64.to_le_bytes());
        body.extend(4_u64.to_le_bytes());
        body.extend(5_u32.to_le_bytes());
        assert_eq!(&bytes[24..], body);
        assert_eq!(SavepointRecord::decode(&bytes).unwrap(), record);
    }

    #[test]
    fn the_origin_of_a_state_directory_is_pinned_by_golden_bytes() {
        let origin = Origin {
            kind: OriginKind::Forked,
            pipeline: "p".to_owned(),
            lineage: LineageId([7; 16]),
            generation: 3,
            epoch: 12,
            savepoint: String::new(),
            restored_at_ms: 5,
            dropped_partitions: vec!["a".to_owned()],
            renamed_partitions: Vec::new(),
        };
        let bytes = origin.encode().unwrap();
        assert_eq!(&bytes[..12], b"FLOODORI\x01\0\0\0");
        let mut body = vec![1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, b'p'];
        body.extend([7; 16]);
        [3_u64, 12, 0, 5, 1, 1].iter().for_each(|number| body.extend(number.to_le_bytes()));
        body.push(b'a');
        body.extend(0_u64.to_le_bytes());
        assert_eq!(&bytes[24..], body);
        assert_eq!(Origin::decode(&bytes).unwrap(), origin);
    }
}
