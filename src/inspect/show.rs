//! Everything that one manifest says.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::checkpoint::{FileEntry, OperatorState, PartitionState, SourceState, StagedOutput};
use crate::error::Result;
use crate::event_time::{EventTime, Span, Watermark};
use crate::inspect::choice::{Chosen, with_checkpoint};
use crate::inspect::list::age_ms;
use crate::inspect::shape::{definition, event_definition};
use crate::inspect::text::{as_hex, as_hex32, as_optional_text, as_text};
use crate::operator::{EventDefinition, OperatorSpec};
use crate::state::window_end;

/// One checkpoint as its manifest describes it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckpointDetails {
    /// Its directory.
    pub path: PathBuf,
    /// Name of the pipeline.
    pub pipeline: String,
    /// The history it belongs to, in hexadecimal.
    pub lineage: String,
    /// The open that wrote it.
    pub generation: u64,
    /// Its epoch.
    pub epoch: u64,
    /// The checkpoint that the work went on from.
    pub parent: Option<u64>,
    /// Version of Floodmark that wrote it.
    pub created_by: String,
    /// When it was written, by the wall clock there.
    #[serde(serialize_with = "as_text")]
    pub created_at: EventTime,
    /// Milliseconds since it was written; zero when the clocks disagree.
    pub age_ms: u64,
    /// The operator's watermark.
    #[serde(serialize_with = "as_text")]
    pub watermark: Watermark,
    /// State of windows expired under it may be gone.
    #[serde(serialize_with = "as_text")]
    pub horizon: Watermark,
    /// The sources; empty when an older version wrote it.
    pub sources: Vec<SourceDetails>,
    /// Where each source partition stood.
    pub partitions: Vec<PartitionDetails>,
    /// The windowed aggregations.
    pub operators: Vec<OperatorDetails>,
    /// The files of the database, by name.
    pub files: Vec<FileDetails>,
    /// Bytes of these files.
    pub database_bytes: u64,
    /// Output that is published with the checkpoint.
    pub staged: Vec<StagedDetails>,
    /// Running totals.
    pub counters: BTreeMap<String, u64>,
}

/// A source and its watermark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceDetails {
    /// Its name.
    pub name: String,
    /// Its watermark.
    #[serde(serialize_with = "as_text")]
    pub watermark: Watermark,
}

/// How far a partition was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartitionDetails {
    /// Its name.
    pub name: String,
    /// Its source; empty when an older version wrote it.
    pub source: String,
    /// Its own watermark.
    #[serde(serialize_with = "as_text")]
    pub watermark: Watermark,
    /// Decompressed bytes before the next record.
    pub bytes: u64,
    /// Records before the next record.
    pub records: u64,
    /// True when it was read to its end.
    pub finished: bool,
    /// True while it does not hold the watermark back.
    pub idle: bool,
    /// Latest event time seen in it.
    #[serde(serialize_with = "as_optional_text")]
    pub max_time: Option<EventTime>,
    /// Events that came behind it; see [`super::lateness()`] for more of them.
    pub late: u64,
    /// Of 100 events 99 were at most so late, in milliseconds, by a sketch.
    pub lateness_p99_ms: i64,
}

/// A windowed aggregation and the shape of its state.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperatorDetails {
    /// Its name.
    pub name: String,
    /// The column family of its panes.
    pub family: String,
    /// Version of the accumulators' encoding.
    pub state_version: u32,
    /// Hash over the ordered columns.
    #[serde(serialize_with = "as_hex")]
    pub fingerprint: u64,
    /// How long after its end a window still takes events.
    #[serde(serialize_with = "as_text")]
    pub allowed_lateness: Span,
    /// Open panes, when the writer could count them.
    pub open_panes: Option<u64>,
    /// The definition as it was stored.
    pub definition: serde_json::Value,
    /// The definition, when this version understands it.
    #[serde(skip)]
    pub spec: Option<OperatorSpec>,
    /// The definition of a join or of deduplication, when this version understands it.
    #[serde(skip)]
    pub events: Option<EventDefinition>,
}

/// A file of the database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileDetails {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// CRC32 of its contents.
    #[serde(serialize_with = "as_hex32")]
    pub crc32: u32,
    /// The family whose data it holds; absent for the database's own files.
    pub family: Option<String>,
    /// Entries, tombstones included.
    pub entries: u64,
    /// End of the first window in it, when its first key is a pane's.
    #[serde(serialize_with = "as_optional_text")]
    pub end_min: Option<EventTime>,
    /// End of the last window in it, when its last key is a pane's.
    #[serde(serialize_with = "as_optional_text")]
    pub end_max: Option<EventTime>,
}

/// Output of one sink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StagedDetails {
    /// The sink's name.
    pub sink: String,
    /// Rows.
    pub rows: u64,
    /// Bytes.
    pub bytes: u64,
}

/// What the manifest of the checkpoint of epoch `at`, or of the newest one under `path`, says.
///
/// # Errors
/// [`crate::error::ErrorKind::Invalid`] when there is no such checkpoint, [`crate::error::ErrorKind::Damaged`] when its
/// manifest is, [`crate::error::ErrorKind::Unavailable`] when it cannot be read.
pub fn show(path: &Path, at: Option<u64>, now_ms: i64) -> Result<CheckpointDetails> {
    with_checkpoint(path, at, |chosen| Ok(details(chosen, now_ms)))
}

fn details(chosen: &Chosen, now_ms: i64) -> CheckpointDetails {
    let manifest = &chosen.manifest;
    CheckpointDetails {
        path: chosen.summary.path.clone(),
        pipeline: manifest.pipeline.clone(),
        lineage: manifest.lineage.to_string(),
        generation: manifest.generation,
        epoch: manifest.epoch,
        parent: manifest.parent,
        created_by: manifest.created_by.clone(),
        created_at: EventTime::from_millis(manifest.created_at_ms),
        age_ms: age_ms(manifest, now_ms),
        watermark: manifest.watermark,
        horizon: manifest.horizon,
        sources: manifest.sources.iter().map(source).collect(),
        partitions: manifest.partitions.iter().map(partition).collect(),
        operators: manifest.operators.iter().map(operator).collect(),
        files: manifest.files.iter().map(file).collect(),
        database_bytes: manifest.database_bytes(),
        staged: manifest.staged.iter().map(staged).collect(),
        counters: manifest.counters.clone(),
    }
}

fn source(state: &SourceState) -> SourceDetails {
    SourceDetails { name: state.name.clone(), watermark: state.watermark }
}

fn partition(state: &PartitionState) -> PartitionDetails {
    let late = state.lateness.distribution();
    PartitionDetails {
        name: state.name.clone(),
        source: state.source.clone(),
        watermark: state.watermark,
        bytes: state.position.bytes,
        records: state.position.records,
        finished: state.finished,
        idle: state.idle,
        max_time: state.max_time,
        late: late.above_zero(),
        lateness_p99_ms: late.quantile(9_900),
    }
}

fn operator(state: &OperatorState) -> OperatorDetails {
    let text = || serde_json::Value::String(state.definition.clone());
    OperatorDetails {
        name: state.name.clone(),
        family: state.family.clone(),
        state_version: state.state_version,
        fingerprint: state.fingerprint,
        allowed_lateness: state.allowed_lateness,
        open_panes: state.open_panes,
        definition: serde_json::from_str(&state.definition).unwrap_or_else(|_| text()),
        spec: definition(state),
        events: event_definition(state),
    }
}

fn file(entry: &FileEntry) -> FileDetails {
    FileDetails {
        name: entry.name.clone(),
        bytes: entry.bytes,
        crc32: entry.crc32,
        family: entry.family.clone(),
        entries: entry.entries,
        end_min: window_end(&entry.smallest_key),
        end_max: window_end(&entry.largest_key),
    }
}

fn staged(output: &StagedOutput) -> StagedDetails {
    StagedDetails { sink: output.sink.clone(), rows: output.rows, bytes: output.bytes }
}
