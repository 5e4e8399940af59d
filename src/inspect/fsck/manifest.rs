//! What must hold within one manifest. Pure.

use std::collections::BTreeSet;

use super::Finding;
use crate::checkpoint::{Manifest, OperatorState};
use crate::event_time::{EventTime, Watermark};
use crate::inspect::shape::{definition, event_definition};
use crate::operator::{Advance, TimeDomain};

/// Families that hold no operator's rows.
const FIXED: [&str; 2] = ["default", "meta"];
const ADVICE: &str = "do not start from this checkpoint: its writer had a defect or it was made by hand; take another with \
                      --at, and report it";

/// Everything that a manifest breaks.
pub(super) fn check(manifest: &Manifest) -> Vec<Finding> {
    let mut findings = Vec::new();
    watermarks(manifest, &mut findings);
    manifest.operators.iter().for_each(|state| operator(manifest, state, &mut findings));
    partitions(manifest, &mut findings);
    files(manifest, &mut findings);
    findings
}

fn problem(findings: &mut Vec<Finding>, rule: &'static str, what: String) {
    findings.push(Finding::problem(rule, what, ADVICE));
}

fn watermarks(manifest: &Manifest, findings: &mut Vec<Finding>) {
    if manifest.horizon > manifest.watermark {
        let (horizon, watermark) = (manifest.horizon, manifest.watermark);
        let what = format!("the horizon is ahead of the watermark: horizon={horizon} watermark={watermark}");
        problem(findings, "horizon-behind-watermark", what);
    }
}

fn operator(manifest: &Manifest, state: &OperatorState, findings: &mut Vec<Finding>) {
    let name = &state.name;
    if state.horizon > state.watermark {
        let what = format!(
            "state may be gone that has not fired: operator={name} horizon={} fired_to={}",
            state.horizon, state.watermark
        );
        problem(findings, "horizon-behind-watermark", what);
    }
    let spec = definition(state);
    let events = event_definition(state);
    let follows =
        spec.as_ref().is_some_and(|spec| spec.time == TimeDomain::Event && spec.advance == Advance::Event);
    if (follows || events.is_some()) && state.watermark > manifest.watermark {
        let what = format!(
            "an operator is ahead of its task: operator={name} fired_to={} watermark={}",
            state.watermark, manifest.watermark
        );
        problem(findings, "operator-behind-task", what);
    }
    if let Some(spec) = &spec
        && spec.allowed_lateness != state.allowed_lateness
    {
        let what = format!(
            "the allowed lateness is not that of the definition: operator={name} stored={} definition={}",
            state.allowed_lateness, spec.allowed_lateness
        );
        problem(findings, "lateness-of-definition", what);
    }
    if spec.is_none() && events.is_none() {
        findings.push(Finding::warning(
            "definition-known",
            format!("this version does not understand a definition: operator={name}"),
            "use the version of floodmark that wrote the checkpoint; `floodmark inspect show` names it",
        ));
    }
}

fn partitions(manifest: &Manifest, findings: &mut Vec<Finding>) {
    let sources: BTreeSet<&str> = manifest.sources.iter().map(|source| source.name.as_str()).collect();
    for partition in &manifest.partitions {
        let name = &partition.name;
        if partition.watermark != Watermark::None && partition.max_time.is_none() {
            let what = format!("a partition that never spoke has a watermark: partition={name}");
            problem(findings, "watermark-from-events", what);
        }
        if partition.max_time.is_some() && partition.position.records == 0 {
            let what = format!("a partition has event times and no records: partition={name}");
            problem(findings, "times-from-records", what);
        }
        if !partition.source.is_empty() && !sources.contains(partition.source.as_str()) {
            let what = format!("a partition names no source: partition={name} source={}", partition.source);
            problem(findings, "partition-of-source", what);
        }
    }
}

fn files(manifest: &Manifest, findings: &mut Vec<Finding>) {
    let families: BTreeSet<&str> = manifest.operators.iter().map(|state| state.family.as_str()).collect();
    if families.len() < manifest.operators.len() {
        problem(findings, "family-of-operator", "two operators share a column family".to_owned());
    }
    for file in &manifest.files {
        let name = &file.name;
        let Some(family) = &file.family else { continue };
        if !families.contains(family.as_str()) && !FIXED.contains(&family.as_str()) {
            let what = format!("a file is of no operator: file={name} family={family}");
            problem(findings, "family-of-operator", what);
        }
        if !file.smallest_key.is_empty() && file.smallest_key > file.largest_key {
            let what = format!("the first key of a file comes after its last: file={name}");
            problem(findings, "keys-in-order", what);
        }
    }
    if manifest.file("CURRENT").is_none() {
        problem(findings, "database-complete", "the database has no file CURRENT".to_owned());
    }
    if manifest.created_at_ms <= EventTime::from_millis(0).as_millis() {
        findings.push(Finding::warning(
            "written-at",
            format!("the clock of its writer was wrong: created_at_ms={}", manifest.created_at_ms),
            "set the clock of the machine; ages in reports are wrong until then",
        ));
    }
}
