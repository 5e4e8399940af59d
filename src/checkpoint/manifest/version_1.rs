//! Manifests of version 1, as the first release wrote them: one source without a name, partitions without a watermark
//! of their own. Read, never written.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{FileEntry, Manifest, OperatorState, PartitionState, Position, SourceIdentity, StagedOutput};
use crate::checkpoint::lineage::LineageId;
use crate::event_time::{EventTime, Watermark};

/// The body of a manifest of version 1.
#[derive(Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
pub(super) struct ManifestV1 {
    pub(super) pipeline: String,
    pub(super) lineage: LineageId,
    pub(super) generation: u64,
    pub(super) epoch: u64,
    pub(super) parent: Option<u64>,
    pub(super) created_by: String,
    pub(super) created_at_ms: i64,
    pub(super) partitions: Vec<PartitionV1>,
    pub(super) watermark: Watermark,
    pub(super) horizon: Watermark,
    pub(super) operators: Vec<OperatorState>,
    pub(super) files: Vec<FileEntry>,
    pub(super) staged: Vec<StagedOutput>,
    pub(super) counters: BTreeMap<String, u64>,
}

/// A partition in it.
#[derive(Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
pub(super) struct PartitionV1 {
    pub(super) name: String,
    pub(super) position: Position,
    pub(super) identity: SourceIdentity,
    pub(super) finished: bool,
    pub(super) max_time: Option<EventTime>,
    pub(super) idle: bool,
}

impl From<ManifestV1> for Manifest {
    fn from(old: ManifestV1) -> Self {
        Self {
            pipeline: old.pipeline,
            lineage: old.lineage,
            generation: old.generation,
            epoch: old.epoch,
            parent: old.parent,
            created_by: old.created_by,
            created_at_ms: old.created_at_ms,
            sources: Vec::new(),
            partitions: old.partitions.into_iter().map(PartitionState::from).collect(),
            watermark: old.watermark,
            horizon: old.horizon,
            operators: old.operators,
            files: old.files,
            staged: old.staged,
            counters: old.counters,
        }
    }
}

impl From<PartitionV1> for PartitionState {
    fn from(old: PartitionV1) -> Self {
        Self {
            name: old.name,
            source: String::new(),
            position: old.position,
            identity: old.identity,
            finished: old.finished,
            max_time: old.max_time,
            watermark: Watermark::None,
            idle: old.idle,
        }
    }
}
