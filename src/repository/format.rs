//! The objects of a repository: their names, the owner record, and the record of one stored checkpoint.
//!
//! Plain data and strict parsing; what comes from a store is hostile. Bytes and names are in `docs/FORMAT.md`.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::error::RepositoryError;
use crate::checkpoint::{LineageId, Manifest, is_plain_name};
use crate::codec::{self, DecodeError};

/// Name of the object that says who may publish.
pub(super) const OWNER: &str = "OWNER";
/// Folder of the records of checkpoints.
pub(super) const MANIFESTS: &str = "manifests";
/// Folder of the files of checkpoints.
pub(super) const DATA: &str = "data";
/// An owner record is a few names and numbers.
pub(super) const OWNER_BYTES_MAX: u64 = 64 << 10;
/// The bound of an envelope.
pub(super) const RECORD_BYTES_MAX: u64 = (256 << 20) + 24;

pub(super) const OWNER_MAGIC: [u8; 8] = *b"FLOODREO";
pub(super) const RECORD_MAGIC: [u8; 8] = *b"FLOODREC";
pub(super) const VERSION: u32 = 1;

/// Who may publish checkpoints: replaced by every start, conditionally.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The pipeline.
    pub pipeline: String,
    /// The history of its checkpoints.
    pub lineage: LineageId,
    /// Higher than that of any owner before.
    pub generation: u64,
    /// Drawn at random by each start: no two owner records are equal.
    pub session: [u8; 16],
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// Since when, in Unix milliseconds of that machine.
    pub since_ms: i64,
    /// Epoch of the checkpoint that it went on from; retention keeps that one.
    pub base: Option<u64>,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host: String = self.host.chars().filter(|c| !c.is_control()).take(64).collect();
        write!(f, "host={host} pid={} generation={}", self.pid, self.generation)?;
        match jiff::Timestamp::from_millisecond(self.since_ms) {
            Ok(since) => write!(f, " since={since}"),
            Err(_) => Ok(()),
        }
    }
}

impl Owner {
    pub(super) fn encode(&self) -> Result<Vec<u8>, RepositoryError> {
        codec::encode(OWNER_MAGIC, VERSION, self).map_err(|error| damaged(OWNER, &error))
    }

    /// An owner record from its bytes.
    ///
    /// # Errors
    /// [`RepositoryError::Damaged`], [`RepositoryError::Newer`].
    pub fn decode(bytes: &[u8]) -> Result<Self, RepositoryError> {
        codec::decode(OWNER_MAGIC, VERSION, bytes).map_err(|error| undecodable(OWNER, error))
    }
}

/// Names one attempt to upload one checkpoint: never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UploadId {
    /// The uploading owner.
    pub generation: u64,
    /// The checkpoint.
    pub epoch: u64,
    /// Counts the attempts of that owner.
    pub attempt: u64,
}

/// A file of a stored checkpoint, and the object that holds it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StoredFile {
    /// Its name in the checkpoint.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// CRC32 of its contents.
    pub crc32: u32,
    /// The upload that brought it here.
    pub upload: UploadId,
}

/// The record of a checkpoint in the repository; when it is there, so are all objects that it names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredCheckpoint {
    /// The pipeline.
    pub pipeline: String,
    /// Its history.
    pub lineage: LineageId,
    /// Its epoch.
    pub epoch: u64,
    /// The owner that uploaded it; the checkpoint itself may be of an earlier generation.
    pub generation: u64,
    /// The stored checkpoint that it shares files with: epoch and generation.
    pub base: Option<ManifestKey>,
    /// When the upload began, in Unix milliseconds of the uploading machine.
    pub uploaded_at_ms: i64,
    /// The bytes of `MANIFEST.fm`.
    pub manifest: Vec<u8>,
    /// Its files, by name.
    pub files: Vec<StoredFile>,
}

impl StoredCheckpoint {
    /// The name of its record.
    #[must_use]
    pub const fn key(&self) -> ManifestKey {
        ManifestKey { epoch: self.epoch, generation: self.generation }
    }

    /// The object that holds `file`.
    #[must_use]
    pub fn object(&self, file: &StoredFile) -> ObjectName {
        ObjectName { lineage: self.lineage, upload: file.upload, name: file.name.clone() }
    }

    /// The file of that name.
    #[must_use]
    pub fn file(&self, name: &str) -> Option<&StoredFile> {
        let index = self.files.binary_search_by(|file| file.name.as_str().cmp(name)).ok()?;
        self.files.get(index)
    }

    /// Bytes of all its files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.bytes))
    }

    /// Bytes of the files that came with its own upload.
    #[must_use]
    pub fn new_bytes(&self) -> u64 {
        let own =
            |file: &&StoredFile| (file.upload.epoch, file.upload.generation) == (self.epoch, self.generation);
        self.files.iter().filter(own).fold(0, |sum, file| sum.saturating_add(file.bytes))
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>, RepositoryError> {
        codec::encode(RECORD_MAGIC, VERSION, self).map_err(|error| damaged(&self.key().object_name(), &error))
    }

    /// A record from its bytes, which are those of the object called after `key`; with the manifest inside.
    ///
    /// # Errors
    /// [`RepositoryError::Damaged`] for anything but bytes that an upload wrote, [`RepositoryError::Newer`].
    pub fn decode(key: ManifestKey, bytes: &[u8]) -> Result<(Self, Manifest), RepositoryError> {
        let name = key.object_name();
        let stored: Self =
            codec::decode(RECORD_MAGIC, VERSION, bytes).map_err(|error| undecodable(&name, error))?;
        let manifest = Manifest::decode(&stored.manifest).map_err(|error| damaged(&name, &error))?;
        let listed = manifest.files.iter().map(|file| (&file.name, file.bytes, file.crc32));
        let held = stored.files.iter().map(|file| (&file.name, file.bytes, file.crc32));
        let same = stored.key() == key
            && (manifest.epoch, manifest.lineage) == (stored.epoch, stored.lineage)
            && manifest.pipeline == stored.pipeline
            && listed.eq(held);
        if !same {
            return Err(damaged(&name, &"record, name and manifest do not agree"));
        }
        if stored.base.is_some_and(|base| base >= key) {
            return Err(damaged(&name, &"the checkpoint it shares files with is not older"));
        }
        Ok((stored, manifest))
    }
}

fn damaged(name: &str, reason: &dyn fmt::Display) -> RepositoryError {
    RepositoryError::Damaged { name: name.to_owned(), reason: reason.to_string() }
}

fn undecodable(name: &str, error: DecodeError) -> RepositoryError {
    match error {
        DecodeError::Version { found, known } => {
            RepositoryError::Newer { name: name.to_owned(), found, known }
        }
        error => damaged(name, &error),
    }
}

/// Names the record of a checkpoint. Later epochs are greater; of one epoch, that of the later owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ManifestKey {
    /// The epoch.
    pub epoch: u64,
    /// The uploading owner.
    pub generation: u64,
}

impl ManifestKey {
    /// The object's name.
    #[must_use]
    pub fn object_name(self) -> String {
        format!("{MANIFESTS}/chk-{:010}.{:010}", self.epoch, self.generation)
    }

    /// The key in an object's name; only the exact form that [`ManifestKey::object_name`] writes.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let rest = name.strip_prefix(MANIFESTS)?.strip_prefix("/chk-")?;
        let (epoch, generation) = rest.split_once('.')?;
        let key = Self { epoch: epoch.parse().ok()?, generation: generation.parse().ok()? };
        (key.object_name() == name).then_some(key)
    }
}

/// Names an object that holds one file of checkpoints.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    /// The history.
    pub lineage: LineageId,
    /// The upload that wrote it.
    pub upload: UploadId,
    /// The file's name.
    pub name: String,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UploadId { generation, epoch, attempt } = self.upload;
        write!(f, "{DATA}/{}/{generation:010}-{epoch:010}-{attempt:06}/{}", self.lineage, self.name)
    }
}

impl ObjectName {
    /// The name in an object's name; only the exact form that is written.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix(DATA)?.strip_prefix('/')?.splitn(3, '/');
        let (lineage, upload, name) = (parts.next()?, parts.next()?, parts.next()?);
        let mut numbers = upload.split('-').map(|number| number.parse::<u64>().ok());
        let upload =
            UploadId { generation: numbers.next()??, epoch: numbers.next()??, attempt: numbers.next()?? };
        let parsed = Self { lineage: lineage_of(lineage)?, upload, name: name.to_owned() };
        (is_plain_name(name) && parsed.to_string() == text).then_some(parsed)
    }
}

fn lineage_of(hex: &str) -> Option<LineageId> {
    let mut bytes = [0; 16];
    if hex.len() != 32 || !hex.is_ascii() {
        return None;
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(LineageId(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> ObjectName {
        ObjectName {
            lineage: LineageId([0xab; 16]),
            upload: UploadId { generation: 3, epoch: 12, attempt: 4 },
            name: "000012.sst".to_owned(),
        }
    }

    #[test]
    fn names_read_back_as_they_were_written() {
        let text = object().to_string();
        assert_eq!(text, "data/abababababababababababababababab/0000000003-0000000012-000004/000012.sst");
        assert_eq!(ObjectName::parse(&text), Some(object()));
        let key = ManifestKey { epoch: 12, generation: 3 };
        assert_eq!(key.object_name(), "manifests/chk-0000000012.0000000003");
        assert_eq!(ManifestKey::parse(&key.object_name()), Some(key));
    }

    #[test]
    fn names_that_are_not_ours_are_not_read() {
        let good = object().to_string();
        let bad = [
            good.replace("000012.sst", "../x"),
            good.replace("000012.sst", ".."),
            good.replace("0000000003", "3"),
            good.replace("-000004", ""),
            good.replace("-000004", "-000004-5"),
            good.replace("abab", "ABAB"),
            good.replace("data/", "data//"),
        ];
        for name in bad {
            assert_eq!(ObjectName::parse(&name), None, "{name}");
        }
        for name in
            ["manifests/chk-12.3", "manifests/chk-0000000012.0000000003.part", "chk-0000000012.0000000003"]
        {
            assert_eq!(ManifestKey::parse(name), None, "{name}");
        }
    }

    #[test]
    fn the_owner_record_is_pinned_by_golden_bytes() {
        let owner = Owner {
            pipeline: "flights".to_owned(),
            lineage: LineageId([7; 16]),
            generation: 3,
            session: [9; 16],
            host: "one".to_owned(),
            pid: 12,
            since_ms: 1_700_000_000_000,
            base: Some(4),
        };
        let bytes = owner.encode().unwrap();
        assert_eq!(&bytes[..12], b"FLOODREO\x01\0\0\0");
        assert_eq!(bytes.len(), 24 + 8 + 7 + 16 + 8 + 16 + 8 + 3 + 4 + 8 + 9);
        assert_eq!(Owner::decode(&bytes).unwrap(), owner);
        assert_eq!(owner.to_string(), "host=one pid=12 generation=3 since=2023-11-14T22:13:20Z");
        for index in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[index] ^= 0x10;
            assert!(Owner::decode(&flipped).is_err(), "flipped byte {index}");
        }
    }
}
