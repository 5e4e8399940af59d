//! Manifests of version 1, as the first release wrote them: one source without a name, partitions without a watermark
//! of their own. Read, never written.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{FileEntry, Manifest, OperatorState, PartitionState, Position, SourceIdentity, StagedOutput};
use crate::checkpoint::lineage::LineageId;
use crate::event_time::{EventTime, Span, Watermark};
use crate::operator::LatenessSketch;

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
    pub(super) operators: Vec<OperatorV1>,
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

/// An operator in it: all of them were equally far.
#[derive(Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
pub(super) struct OperatorV1 {
    pub(super) name: String,
    pub(super) family: String,
    pub(super) definition: String,
    pub(super) fingerprint: u64,
    pub(super) state_version: u32,
    pub(super) allowed_lateness: Span,
    pub(super) open_panes: Option<u64>,
}

impl From<ManifestV1> for Manifest {
    fn from(old: ManifestV1) -> Self {
        let (watermark, horizon) = (old.watermark, old.horizon);
        let operator = |old: OperatorV1| OperatorState {
            name: old.name,
            family: old.family,
            definition: old.definition,
            fingerprint: old.fingerprint,
            state_version: old.state_version,
            allowed_lateness: old.allowed_lateness,
            watermark,
            horizon,
            open_panes: old.open_panes,
        };
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
            batch_watermark: Watermark::None,
            horizon: old.horizon,
            operators: old.operators.into_iter().map(operator).collect(),
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
            lateness: LatenessSketch::default(),
        }
    }
}
