//! What must hold between a checkpoint and the one that the work went on from. Pure.

use std::collections::BTreeMap;

use super::Finding;
use crate::checkpoint::{CheckpointSummary, Manifest, PartitionState};
use crate::event_time::Watermark;

const ADVICE: &str = "do not trust the later one: go on from the earlier with --at, after a look at what its outputs have \
                      published, and report it";

/// Everything that the checkpoints of a directory break between each other.
pub(super) fn check(summaries: &[CheckpointSummary]) -> Vec<Finding> {
    let manifests: Vec<&Manifest> =
        summaries.iter().filter_map(|summary| summary.manifest.as_ref().ok()).collect();
    let by_epoch: BTreeMap<u64, &Manifest> =
        manifests.iter().map(|manifest| (manifest.epoch, *manifest)).collect();
    let mut findings = Vec::new();
    for manifest in &manifests {
        if let Some(parent) = manifest.parent.and_then(|parent| by_epoch.get(&parent)) {
            between(parent, manifest, &mut findings);
        }
    }
    if let Some(first) = manifests.first()
        && let Some(other) = manifests.iter().find(|manifest| manifest.lineage != first.lineage)
    {
        findings.push(Finding::problem(
            "one-history",
            format!("checkpoints of two histories: epochs={} and {}", first.epoch, other.epoch),
            "move the one that does not belong here away; `floodmark inspect show` tells the lineage of each",
        ));
    }
    findings
}

fn between(parent: &Manifest, manifest: &Manifest, findings: &mut Vec<Finding>) {
    if parent.lineage != manifest.lineage {
        return;
    }
    let epochs = format!("epochs={}..{}", parent.epoch, manifest.epoch);
    let mut problem = |rule, what: String| {
        findings.push(Finding::problem(rule, format!("{what} {epochs}"), ADVICE));
    };
    let mut back = |what: &str, from: Watermark, to: Watermark| {
        if to < from {
            problem("never-backwards", format!("{what} went back: from={from} to={to}"));
        }
    };
    back("the watermark", parent.watermark, manifest.watermark);
    back("the horizon", parent.horizon, manifest.horizon);
    for source in &manifest.sources {
        let before = parent.sources.iter().find(|before| before.name == source.name);
        let before = before.map_or(Watermark::None, |before| before.watermark);
        back(&format!("the watermark of source {}", source.name), before, source.watermark);
    }
    for state in &manifest.operators {
        let before = parent.operators.iter().find(|before| before.name == state.name);
        let before = before.filter(|before| before.family == state.family);
        let before = before.map_or(Watermark::None, |before| before.watermark);
        back(&format!("what operator {} has fired", state.name), before, state.watermark);
    }
    if manifest.generation < parent.generation {
        let (from, to) = (parent.generation, manifest.generation);
        problem("one-writer", format!("an earlier open wrote a later checkpoint: generation={from}..{to}"));
    }
    for partition in &manifest.partitions {
        let before = parent.partitions.iter().find(|before| before.name == partition.name);
        if let Some(what) = before.and_then(|before| partition_back(before, partition)) {
            problem("never-backwards", what);
        }
    }
    let lost = parent
        .counters
        .iter()
        .find(|(name, before)| manifest.counters.get(*name).is_some_and(|after| after < *before));
    if let Some((name, before)) = lost {
        let after = manifest.counters.get(name).copied().unwrap_or(0);
        problem(
            "never-backwards",
            format!("a running total went back: counter={name} from={before} to={after}"),
        );
    }
    if manifest.created_at_ms < parent.created_at_ms {
        findings.push(Finding::warning(
            "written-at",
            format!("it was written before the one it goes on from, by the clock of its writer {epochs}"),
            "nothing is lost; the clock of the machine was set back",
        ));
    }
}

fn partition_back(before: &PartitionState, after: &PartitionState) -> Option<String> {
    let name = &after.name;
    if after.position.records < before.position.records || after.position.bytes < before.position.bytes {
        let (from, to) = (before.position.records, after.position.records);
        return Some(format!("a partition was read backwards: partition={name} records={from}..{to}"));
    }
    if after.watermark < before.watermark {
        let (from, to) = (before.watermark, after.watermark);
        return Some(format!("the watermark of a partition went back: partition={name} from={from} to={to}"));
    }
    (after.max_time < before.max_time)
        .then(|| format!("the latest event time of a partition went back: partition={name}"))
}
