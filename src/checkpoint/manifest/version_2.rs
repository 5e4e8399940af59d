//! Manifests of version 2: without how late events were. Read, never written.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{
    FileEntry, Manifest, OperatorState, PartitionState, Position, SourceIdentity, SourceState, StagedOutput,
};
use crate::checkpoint::lineage::LineageId;
use crate::event_time::{EventTime, Watermark};
use crate::operator::LatenessSketch;

/// The body of a manifest of version 2.
#[derive(Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
pub(super) struct ManifestV2 {
    pipeline: String,
    lineage: LineageId,
    generation: u64,
    epoch: u64,
    parent: Option<u64>,
    created_by: String,
    created_at_ms: i64,
    sources: Vec<SourceV2>,
    partitions: Vec<PartitionV2>,
    watermark: Watermark,
    batch_watermark: Watermark,
    horizon: Watermark,
    operators: Vec<OperatorState>,
    files: Vec<FileEntry>,
    staged: Vec<StagedOutput>,
    counters: BTreeMap<String, u64>,
}

/// A source in it.
#[derive(Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
struct SourceV2 {
    name: String,
    watermark: Watermark,
}

/// A partition in it.
#[derive(Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
struct PartitionV2 {
    name: String,
    source: String,
    position: Position,
    identity: SourceIdentity,
    finished: bool,
    max_time: Option<EventTime>,
    watermark: Watermark,
    idle: bool,
}

impl From<ManifestV2> for Manifest {
    fn from(old: ManifestV2) -> Self {
        Self {
            pipeline: old.pipeline,
            lineage: old.lineage,
            generation: old.generation,
            epoch: old.epoch,
            parent: old.parent,
            created_by: old.created_by,
            created_at_ms: old.created_at_ms,
            sources: old.sources.into_iter().map(SourceState::from).collect(),
            partitions: old.partitions.into_iter().map(PartitionState::from).collect(),
            watermark: old.watermark,
            batch_watermark: old.batch_watermark,
            horizon: old.horizon,
            operators: old.operators,
            files: old.files,
            staged: old.staged,
            counters: old.counters,
        }
    }
}

impl From<SourceV2> for SourceState {
    fn from(old: SourceV2) -> Self {
        Self { name: old.name, watermark: old.watermark, lateness: LatenessSketch::default() }
    }
}

impl From<PartitionV2> for PartitionState {
    fn from(old: PartitionV2) -> Self {
        Self {
            name: old.name,
            source: old.source,
            position: old.position,
            identity: old.identity,
            finished: old.finished,
            max_time: old.max_time,
            watermark: old.watermark,
            idle: old.idle,
            lateness: LatenessSketch::default(),
        }
    }
}

#[cfg(test)]
impl ManifestV2 {
    /// What version 2 would have written of a manifest.
    pub(super) fn of(manifest: &Manifest) -> Self {
        let manifest = manifest.clone();
        let source = |source: SourceState| SourceV2 { name: source.name, watermark: source.watermark };
        let partition = |state: PartitionState| PartitionV2 {
            name: state.name,
            source: state.source,
            position: state.position,
            identity: state.identity,
            finished: state.finished,
            max_time: state.max_time,
            watermark: state.watermark,
            idle: state.idle,
        };
        Self {
            pipeline: manifest.pipeline,
            lineage: manifest.lineage,
            generation: manifest.generation,
            epoch: manifest.epoch,
            parent: manifest.parent,
            created_by: manifest.created_by,
            created_at_ms: manifest.created_at_ms,
            sources: manifest.sources.into_iter().map(source).collect(),
            partitions: manifest.partitions.into_iter().map(partition).collect(),
            watermark: manifest.watermark,
            batch_watermark: manifest.batch_watermark,
            horizon: manifest.horizon,
            operators: manifest.operators,
            files: manifest.files,
            staged: manifest.staged,
            counters: manifest.counters,
        }
    }
}
