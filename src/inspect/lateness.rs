//! How late the events of a checkpoint's partitions were, from the sketches in its manifest. Its files are not looked at.

use std::path::Path;

use serde::Serialize;

use crate::checkpoint::{Manifest, PartitionState};
use crate::error::Result;
use crate::event_time::EventTime;
use crate::inspect::choice::with_checkpoint;
use crate::inspect::windows::{Origin, origin};
use crate::operator::{Distribution, LatenessSketch, Spread};

/// How late events were, up to a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LatenessReport {
    /// The checkpoint.
    pub checkpoint: Origin,
    /// By what share of itself any length here may be wrong, steps excepted.
    pub relative_error: f64,
    /// Over all partitions.
    pub lateness: Spread,
    /// Each partition. Those that were read to their end may be without: see `sources`.
    pub partitions: Vec<StoredLateness>,
    /// What was added up by source, of partitions that were read to their end, where there are very many.
    pub sources: Vec<SourceLateness>,
    /// All of it, to ask other questions.
    #[serde(skip)]
    pub distribution: Distribution,
}

/// How late the events of a partition were.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoredLateness {
    /// Its name.
    pub partition: String,
    /// Its source; empty when an older version wrote it.
    pub source: String,
    /// It was read to its end.
    pub finished: bool,
    /// How far its events lay behind the latest event time of the partition so far.
    pub lateness: Spread,
    /// The furthest that one event went past all before it, in milliseconds.
    pub step_max_ms: i64,
    /// How far its latest event time is ahead of the clock that the checkpoint was written by, in milliseconds; zero when
    /// it is not.
    pub ahead_of_clock_ms: i64,
    /// How far its latest event time is ahead of the median of those of the other partitions of its source that are not
    /// read to their end, in milliseconds; `None` without any.
    pub ahead_of_partitions_ms: Option<i64>,
}

/// How late the events were of partitions that were added up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceLateness {
    /// Name of the source.
    pub source: String,
    /// How far events lay behind the latest event time of their partition so far.
    pub lateness: Spread,
    /// The furthest that one event went past all before it in its partition, in milliseconds.
    pub step_max_ms: i64,
}

/// What the checkpoint of epoch `at`, or the newest one under `path`, knows of how late events were.
///
/// # Errors
/// [`crate::error::ErrorKind::Invalid`] when there is no such checkpoint, `Damaged` or `Incompatible` when its manifest
/// cannot be read.
pub fn lateness(path: &Path, at: Option<u64>, now_ms: i64) -> Result<LatenessReport> {
    with_checkpoint(path, at, |chosen| {
        let manifest = &chosen.manifest;
        let parts = manifest.partitions.iter().map(|partition| &partition.lateness);
        let parts = parts.chain(manifest.sources.iter().map(|source| &source.lateness));
        let parts: Vec<Distribution> = parts.map(LatenessSketch::distribution).collect();
        let distribution = Distribution::sum(&parts);
        let sources = manifest.sources.iter().filter(|source| source.lateness.events() > 0);
        let sources = sources.map(|source| SourceLateness {
            source: source.name.clone(),
            lateness: source.lateness.distribution().spread(),
            step_max_ms: source.lateness.step_max_ms(),
        });
        Ok(LatenessReport {
            checkpoint: origin(chosen, now_ms),
            relative_error: LatenessSketch::RELATIVE_ERROR,
            lateness: distribution.spread(),
            partitions: manifest.partitions.iter().map(|one| partition(one, manifest)).collect(),
            sources: sources.collect(),
            distribution,
        })
    })
}

fn partition(state: &PartitionState, manifest: &Manifest) -> StoredLateness {
    let latest = state.max_time.map(EventTime::as_millis);
    let ahead = |of: i64| latest.map_or(0, |latest| latest.saturating_sub(of).max(0));
    StoredLateness {
        partition: state.name.clone(),
        source: state.source.clone(),
        finished: state.finished,
        lateness: state.lateness.distribution().spread(),
        step_max_ms: state.lateness.step_max_ms(),
        ahead_of_clock_ms: ahead(manifest.created_at_ms),
        ahead_of_partitions_ms: median_of_others(state, manifest).map(ahead),
    }
}

/// The median of the latest event times of the others, as the bound against them has it: of two in the middle, the later.
fn median_of_others(own: &PartitionState, manifest: &Manifest) -> Option<i64> {
    let others = manifest.partitions.iter();
    let others =
        others.filter(|other| other.name != own.name && other.source == own.source && !other.finished);
    let mut latest: Vec<i64> = others.filter_map(|other| Some(other.max_time?.as_millis())).collect();
    latest.sort_unstable();
    latest.get(latest.len() / 2).copied()
}
