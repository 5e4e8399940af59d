//! The manifest: everything a checkpoint says about itself, as one checksummed record.
//!
//! Plain data, and the checks that any manifest passes before it is believed. It does not look at the files it
//! names. The bytes are written down in `docs/FORMAT.md`.

mod version_1;
mod version_2;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::checkpoint::layout;
use crate::checkpoint::lineage::LineageId;
use crate::codec::{self, DecodeError};
use crate::event_time::{EventTime, Span, Watermark};
use crate::operator::LatenessSketch;

pub(super) const MAGIC: [u8; 8] = *b"FLOODCHK";
pub(super) const VERSION: u32 = 3;
/// No manifest is longer: the bound of an envelope. A longer file is not read.
const BYTES_MAX: u64 = (256 << 20) + 24;

/// What a checkpoint holds, where its input stood, and what it promised to publish.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Name of the pipeline.
    pub pipeline: String,
    /// The history this checkpoint belongs to.
    pub lineage: LineageId,
    /// The open that wrote it.
    pub generation: u64,
    /// Its number; unique in a lineage and never reused.
    pub epoch: u64,
    /// The checkpoint that the work went on from.
    pub parent: Option<u64>,
    /// Version of Floodmark that wrote it.
    pub created_by: String,
    /// Wall-clock milliseconds at which it was written.
    pub created_at_ms: i64,
    /// The sources, in the order declared; empty when a version wrote it that knew no more than one.
    pub sources: Vec<SourceState>,
    /// Where each source partition stood.
    pub partitions: Vec<PartitionState>,
    /// The watermark of the task.
    pub watermark: Watermark,
    /// What operators that advance by batches reach at the end of the batch.
    pub batch_watermark: Watermark,
    /// The eviction horizon that every operator has reached: state of windows expired under it may be gone.
    pub horizon: Watermark,
    /// The operators and the shape of their state.
    pub operators: Vec<OperatorState>,
    /// The files under `db/`, by name in ascending order.
    pub files: Vec<FileEntry>,
    /// Output of the epoch, staged and to be published.
    pub staged: Vec<StagedOutput>,
    /// Running totals: events, late, dead-letter, results.
    pub counters: BTreeMap<String, u64>,
}

/// How far a partition was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Position {
    /// Decompressed bytes before the next record.
    pub bytes: u64,
    /// Records before the next record.
    pub records: u64,
}

/// What a partition looked like when it was first opened, to notice that it was replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SourceIdentity {
    /// Length of the head that was fingerprinted.
    pub head_bytes: u32,
    /// CRC32 of that head.
    pub head_crc32: u32,
}

/// A source at the barrier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceState {
    /// Its name.
    pub name: String,
    /// Its watermark.
    pub watermark: Watermark,
    /// How late the events were of its partitions that no longer have a sketch of their own.
    pub lateness: LatenessSketch,
}

/// A source partition at the barrier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionState {
    /// Its name (a path, a topic partition).
    pub name: String,
    /// Name of its source; empty when a version wrote it that knew no more than one.
    pub source: String,
    /// The next record to read.
    pub position: Position,
    /// How to know it again.
    pub identity: SourceIdentity,
    /// True when it was read to its end.
    pub finished: bool,
    /// Latest event time seen in it.
    pub max_time: Option<EventTime>,
    /// Its own watermark.
    pub watermark: Watermark,
    /// True while it does not hold the watermark back.
    pub idle: bool,
    /// How late its events were.
    pub lateness: LatenessSketch,
}

/// An operator and the shape of its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorState {
    /// Its name in the pipeline.
    pub name: String,
    /// The column family of its panes.
    pub family: String,
    /// Window and aggregates as canonical JSON, for people and for `diff`.
    pub definition: String,
    /// Hash over the ordered columns; state is opened only under the same one.
    pub fingerprint: u64,
    /// Version of the accumulators' encoding.
    pub state_version: u32,
    /// Allowed lateness.
    pub allowed_lateness: Span,
    /// How far the watermark has come in it: every window that ends by it has fired.
    pub watermark: Watermark,
    /// Its eviction horizon.
    pub horizon: Watermark,
    /// Open panes, when all of them were in memory and so could be counted.
    pub open_panes: Option<u64>,
}

/// One file under `db/`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Its plain name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// CRC32 of its contents.
    pub crc32: u32,
    /// The family whose data it holds; `None` for the database's own files.
    pub family: Option<String>,
    /// First key, empty when unknown.
    pub smallest_key: Vec<u8>,
    /// Last key, empty when unknown.
    pub largest_key: Vec<u8>,
    /// Entries, tombstones included.
    pub entries: u64,
}

/// Output of one sink, durable and not yet visible.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagedOutput {
    /// The sink's name.
    pub sink: String,
    /// What the sink needs to publish it; only the sink reads it.
    pub handle: Vec<u8>,
    /// Rows staged.
    pub rows: u64,
    /// Bytes staged.
    pub bytes: u64,
}

/// Why a manifest is not believed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// There is none.
    #[error("there is no manifest")]
    Missing,
    /// It cannot be read.
    #[error("manifest cannot be read: {0}")]
    Unreadable(io::Error),
    /// It is larger than any manifest.
    #[error("manifest is too large: bytes={bytes}")]
    TooLarge {
        /// Its size.
        bytes: u64,
    },
    /// Its bytes are not those that were written.
    #[error("manifest cannot be decoded: {0}")]
    Decode(#[from] DecodeError),
    /// A file name could leave the directory.
    #[error("manifest names a file outside its directory: name={0:?}")]
    Name(String),
    /// File names are not in strictly ascending order.
    #[error("manifest lists files out of order or twice: name={0:?}")]
    Order(String),
    /// The parent is not older.
    #[error("manifest names a parent that is not older: epoch={epoch} parent={parent}")]
    Parent {
        /// The checkpoint.
        epoch: u64,
        /// Its parent.
        parent: u64,
    },
    /// An operator, a partition or a source appears twice.
    #[error("manifest lists a {what} twice: name={name:?}")]
    Twice {
        /// Operator, partition or source.
        what: &'static str,
        /// The name.
        name: String,
    },
}

impl Manifest {
    /// The bytes of the manifest file.
    ///
    /// # Errors
    /// [`ManifestError`] when the manifest breaks a rule that reading it back would enforce.
    pub fn encode(&self) -> Result<Vec<u8>, ManifestError> {
        self.check()?;
        Ok(codec::encode(MAGIC, VERSION, self)?)
    }

    /// A manifest from the bytes of its file, checked.
    ///
    /// # Errors
    /// [`ManifestError`] for anything but the bytes that [`Manifest::encode`] wrote, in this or an earlier version.
    pub fn decode(bytes: &[u8]) -> Result<Self, ManifestError> {
        let manifest: Self = match codec::decode(MAGIC, VERSION, bytes) {
            Err(DecodeError::Version { found: 1, .. }) => {
                codec::decode::<version_1::ManifestV1>(MAGIC, 1, bytes)?.into()
            }
            Err(DecodeError::Version { found: 2, .. }) => {
                codec::decode::<version_2::ManifestV2>(MAGIC, 2, bytes)?.into()
            }
            outcome => outcome?,
        };
        manifest.check()?;
        Ok(manifest)
    }

    /// Reads the manifest of a checkpoint directory. It says nothing yet about the files it names.
    ///
    /// # Errors
    /// [`ManifestError`], [`ManifestError::Missing`] when there is none.
    pub fn load(checkpoint: &Path) -> Result<Self, ManifestError> {
        let file =
            layout::open_regular(&checkpoint.join(layout::MANIFEST)).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => ManifestError::Missing,
                _ => ManifestError::Unreadable(error),
            })?;
        let bytes = file.metadata().map_err(ManifestError::Unreadable)?.len();
        if bytes > BYTES_MAX {
            return Err(ManifestError::TooLarge { bytes });
        }
        let mut contents = Vec::new();
        file.take(BYTES_MAX).read_to_end(&mut contents).map_err(ManifestError::Unreadable)?;
        Self::decode(&contents)
    }

    /// Bytes of all files under `db/`.
    #[must_use]
    pub fn database_bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.bytes))
    }

    /// The file of that name.
    #[must_use]
    pub fn file(&self, name: &str) -> Option<&FileEntry> {
        let index = self.files.binary_search_by(|file| file.name.as_str().cmp(name)).ok()?;
        self.files.get(index)
    }

    fn check(&self) -> Result<(), ManifestError> {
        if let Some(file) = self.files.iter().find(|file| !layout::is_plain_name(&file.name)) {
            return Err(ManifestError::Name(file.name.clone()));
        }
        let unordered = self.files.windows(2).find_map(|pair| match pair {
            [left, right] if left.name >= right.name => Some(right.name.clone()),
            _ => None,
        });
        if let Some(name) = unordered {
            return Err(ManifestError::Order(name));
        }
        if let Some(parent) = self.parent.filter(|&parent| parent >= self.epoch) {
            return Err(ManifestError::Parent { epoch: self.epoch, parent });
        }
        once("source", self.sources.iter().map(|source| source.name.as_str()))?;
        once("partition", self.partitions.iter().map(|partition| partition.name.as_str()))?;
        once("operator", self.operators.iter().map(|operator| operator.name.as_str()))
    }
}

fn once<'a>(what: &'static str, names: impl Iterator<Item = &'a str>) -> Result<(), ManifestError> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(ManifestError::Twice { what, name: name.to_owned() });
        }
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn file(name: &str) -> FileEntry {
        FileEntry {
            name: name.to_owned(),
            bytes: 10,
            crc32: 0xdead_beef,
            family: None,
            smallest_key: vec![0, 1],
            largest_key: vec![2],
            entries: 5,
        }
    }

    /// Four events: two in order, one 20 ms and one 100 ms behind.
    fn lateness() -> LatenessSketch {
        let mut sketch = LatenessSketch::default();
        sketch.observe(None, &[-105, -5, -25, -105], &[]);
        sketch
    }

    pub(crate) fn sample() -> Manifest {
        Manifest {
            pipeline: "flights".to_owned(),
            lineage: LineageId([7; 16]),
            generation: 3,
            epoch: 12,
            parent: Some(11),
            created_by: "0.1.0".to_owned(),
            created_at_ms: 1_700_000_000_000,
            sources: vec![SourceState {
                name: "flights".to_owned(),
                watermark: Watermark::At(EventTime::from_millis(-20)),
                lateness: LatenessSketch::default(),
            }],
            partitions: vec![PartitionState {
                name: "a.csv".to_owned(),
                source: "flights".to_owned(),
                position: Position { bytes: 100, records: 4 },
                identity: SourceIdentity { head_bytes: 64, head_crc32: 9 },
                finished: false,
                max_time: Some(EventTime::from_millis(-5)),
                watermark: Watermark::At(EventTime::from_millis(-15)),
                idle: true,
                lateness: lateness(),
            }],
            watermark: Watermark::At(EventTime::from_millis(-15)),
            batch_watermark: Watermark::None,
            horizon: Watermark::None,
            operators: vec![OperatorState {
                name: "hourly".to_owned(),
                family: "hourly.windows".to_owned(),
                definition: "{}".to_owned(),
                fingerprint: u64::MAX,
                state_version: 1,
                allowed_lateness: Span::ZERO,
                watermark: Watermark::At(EventTime::from_millis(-15)),
                horizon: Watermark::None,
                open_panes: Some(2),
            }],
            files: vec![file("000012.sst"), file("CURRENT")],
            staged: vec![StagedOutput { sink: "out".to_owned(), handle: vec![1, 2], rows: 3, bytes: 40 }],
            counters: BTreeMap::from([("late".to_owned(), 6)]),
        }
    }

    /// Encodes without the checks, as an attacker would.
    fn forged(manifest: &Manifest) -> Vec<u8> {
        codec::encode(MAGIC, VERSION, manifest).unwrap()
    }

    #[test]
    fn the_manifest_is_pinned_by_golden_bytes() {
        let bytes = sample().encode().unwrap();
        assert_eq!(&bytes[..12], b"FLOODCHK\x03\0\0\0");
        assert_eq!(&bytes[24..39], b"\x07\0\0\0\0\0\0\0flights");
        assert_eq!(&bytes[39..55], [7; 16]);
        // Length and checksum of the body as a second encoder, written from docs/FORMAT.md alone, gives them. A change
        // of any field, its order or its width moves them: then raise VERSION and keep a decoder for this one.
        assert_eq!((bytes.len(), crc32fast::hash(&bytes[24..])), (600, 2_157_053_735));
    }

    #[test]
    fn a_manifest_reads_back_as_it_was_written() {
        assert_eq!(Manifest::decode(&sample().encode().unwrap()).unwrap(), sample());
    }

    #[test]
    fn a_manifest_of_version_1_is_read_as_that_of_one_nameless_source() {
        let mut expected = sample();
        expected.sources.clear();
        expected.partitions[0].source.clear();
        expected.partitions[0].watermark = Watermark::None;
        expected.partitions[0].lateness = LatenessSketch::default();
        let old = version_1::ManifestV1 {
            pipeline: "flights".to_owned(),
            lineage: LineageId([7; 16]),
            generation: 3,
            epoch: 12,
            parent: Some(11),
            created_by: "0.1.0".to_owned(),
            created_at_ms: 1_700_000_000_000,
            partitions: vec![version_1::PartitionV1 {
                name: "a.csv".to_owned(),
                position: Position { bytes: 100, records: 4 },
                identity: SourceIdentity { head_bytes: 64, head_crc32: 9 },
                finished: false,
                max_time: Some(EventTime::from_millis(-5)),
                idle: true,
            }],
            watermark: expected.watermark,
            horizon: expected.horizon,
            operators: vec![version_1::OperatorV1 {
                name: "hourly".to_owned(),
                family: "hourly.windows".to_owned(),
                definition: "{}".to_owned(),
                fingerprint: u64::MAX,
                state_version: 1,
                allowed_lateness: Span::ZERO,
                open_panes: Some(2),
            }],
            files: expected.files.clone(),
            staged: expected.staged.clone(),
            counters: expected.counters.clone(),
        };
        let bytes = codec::encode(MAGIC, 1, &old).unwrap();
        // What version 1 was pinned by while it was written.
        assert_eq!((bytes.len(), crc32fast::hash(&bytes[24..])), (450, 1_852_054_357));
        assert_eq!(Manifest::decode(&bytes).unwrap(), expected);
    }

    #[test]
    fn a_manifest_of_version_2_is_read_as_one_that_knows_nothing_of_lateness() {
        let mut expected = sample();
        expected.partitions[0].lateness = LatenessSketch::default();
        let bytes = codec::encode(MAGIC, 2, &version_2::ManifestV2::of(&expected)).unwrap();
        // What version 2 was pinned by while it was written.
        assert_eq!((bytes.len(), crc32fast::hash(&bytes[24..])), (532, 1_722_295_495));
        assert_eq!(Manifest::decode(&bytes).unwrap(), expected);
    }

    #[test]
    fn every_flipped_byte_of_a_manifest_is_noticed() {
        let bytes = sample().encode().unwrap();
        for index in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[index] ^= 0x41;
            assert!(Manifest::decode(&damaged).is_err(), "byte {index} went unnoticed");
        }
        for length in 0..bytes.len() {
            assert!(Manifest::decode(&bytes[..length]).is_err(), "cut at {length} went unnoticed");
        }
    }

    #[test]
    fn names_that_leave_the_directory_are_refused_both_ways() {
        for name in ["../../etc/passwd", "/etc/passwd", "..", "", "a/b", "a\0"] {
            let mut manifest = sample();
            manifest.files = vec![file(name)];
            assert!(matches!(manifest.encode(), Err(ManifestError::Name(_))), "{name:?}");
            assert!(matches!(Manifest::decode(&forged(&manifest)), Err(ManifestError::Name(_))), "{name:?}");
        }
    }

    #[test]
    fn a_forged_manifest_with_contradictions_is_refused() {
        let forge = |change: fn(&mut Manifest)| {
            let mut manifest = sample();
            change(&mut manifest);
            Manifest::decode(&forged(&manifest)).unwrap_err()
        };
        assert!(matches!(forge(|m| m.files.swap(0, 1)), ManifestError::Order(_)));
        assert!(matches!(forge(|m| m.files[1] = m.files[0].clone()), ManifestError::Order(_)));
        assert!(matches!(forge(|m| m.parent = Some(12)), ManifestError::Parent { .. }));
        assert!(matches!(forge(|m| m.sources.push(m.sources[0].clone())), ManifestError::Twice { .. }));
        assert!(matches!(forge(|m| m.partitions.push(m.partitions[0].clone())), ManifestError::Twice { .. }));
        assert!(matches!(forge(|m| m.operators.push(m.operators[0].clone())), ManifestError::Twice { .. }));
    }

    #[test]
    fn length_bombs_in_a_valid_envelope_are_errors() {
        let bomb = codec::encode(MAGIC, VERSION, &u64::MAX).unwrap();
        assert!(matches!(Manifest::decode(&bomb), Err(ManifestError::Decode(_))));
        let honest = sample().encode().unwrap();
        for offset in (24..honest.len() - 8).step_by(3) {
            // Rewrite eight bytes of the body to a giant length and mend the checksum, as an attacker would.
            let mut body = honest[24..].to_vec();
            body[offset - 24..offset - 16].copy_from_slice(&(1_u64 << 62).to_le_bytes());
            let mut bytes = honest[..20].to_vec();
            let mut hasher = crc32fast::Hasher::new();
            hasher.update(&bytes);
            hasher.update(&body);
            bytes.extend(hasher.finalize().to_le_bytes());
            bytes.extend(&body);
            let _ = Manifest::decode(&bytes);
        }
    }

    #[test]
    fn a_newer_format_is_told_apart_from_damage() {
        let bytes = codec::encode(MAGIC, VERSION + 1, &sample()).unwrap();
        let error = Manifest::decode(&bytes).unwrap_err();
        assert!(
            matches!(error, ManifestError::Decode(DecodeError::Version { found: 4, known: 3 })),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = Manifest::decode(&bytes);
            let mut enveloped = codec::encode(MAGIC, VERSION, &bytes).unwrap();
            let _ = Manifest::decode(&enveloped);
            enveloped.truncate(bytes.len());
            let _ = Manifest::decode(&enveloped);
        }
    }
}
