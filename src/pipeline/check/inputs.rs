//! The files of the sources, next to what a checkpoint says was read of them. Opens them for reading only.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{CheckReport, Finding, InputCheck};
use crate::checkpoint::Manifest;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::pipeline::config::PipelineConfig;
use crate::pipeline::source::{FileSource, ParsePlan, PartitionResume};
use crate::pipeline::task;
use crate::store::evolution::Verdict;
use crate::store::{RestoredPartition, partitions_of};

/// Partitions that are looked at one by one when something is wrong with one of them; of more only the first is named.
const EACH_MAX: usize = 1_000;

pub(super) fn check(
    config: &PipelineConfig,
    plans: Vec<ParsePlan>,
    manifest: Option<&Manifest>,
    clock: &Arc<dyn Clock>,
    report: &mut CheckReport,
) {
    let known: Vec<RestoredPartition> =
        manifest.map(|manifest| partitions_of(manifest).collect()).unwrap_or_default();
    let resume = task::resume(config, known.into_iter());
    let open = |resume: &[PartitionResume]| -> Result<FileSource> {
        let nothing = Box::new(std::io::empty());
        FileSource::open_with_stdin(&config.sources, plans.clone(), resume, Arc::clone(clock), nothing)
    };
    let fresh = match open(&[]) {
        Ok(source) => source,
        Err(error) if manifest.is_some() && open(&resume).is_ok() => {
            // Everything was read, and has gone since.
            drop(error);
            report.inputs.extend(resume.iter().map(gone));
            return;
        }
        Err(error) => return report.findings.push(Finding::refused(&error)),
    };
    if let Err(error) = task::refuse_own_files(config, &fresh) {
        report.findings.push(Finding::refused(&error));
    }
    let failed = open(&resume).err();
    let by_name: BTreeMap<&str, &PartitionResume> =
        resume.iter().map(|known| (known.name.as_str(), known)).collect();
    let mut explained = false;
    for info in fresh.partitions() {
        let name = info.resume.name.clone();
        let source = config.sources.get(usize::from(info.resume.source.0)).map(|source| source.name.clone());
        let known = by_name.get(name.as_str());
        let wrong = known
            .filter(|_| failed.is_some() && resume.len() <= EACH_MAX)
            .and_then(|known| open(std::slice::from_ref(known)).err());
        explained |= wrong.is_some();
        report.inputs.push(input(name, source, known.copied(), wrong.as_ref()));
    }
    let present = |name: &str| fresh.partitions().iter().any(|info| info.resume.name == name);
    for known in resume.iter().filter(|known| !present(&known.name)) {
        explained |= !known.finished;
        report.inputs.push(gone(known));
    }
    if let Some(error) = failed.filter(|_| !explained) {
        report.findings.push(Finding::refused(&error));
    }
}

fn input(
    name: String,
    source: Option<String>,
    known: Option<&PartitionResume>,
    wrong: Option<&Error>,
) -> InputCheck {
    let read = |known: &PartitionResume| {
        format!("{} records, {} bytes", known.position.records, known.position.bytes)
    };
    let (status, verdict, detail) = match (known, wrong) {
        (_, Some(error)) => ("replaced", Verdict::Refused, error.to_string()),
        (None, None) => ("new", Verdict::Same, "read from its beginning".to_owned()),
        (Some(known), None) if known.finished => ("finished", Verdict::Same, read(known)),
        (Some(known), None) => ("read on", Verdict::Same, format!("from {}", read(known))),
    };
    InputCheck { name, source, status, verdict, detail }
}

fn gone(known: &PartitionResume) -> InputCheck {
    let (verdict, detail) = match known.finished {
        true => (Verdict::Same, "was read to its end"),
        false => (Verdict::Refused, "was not read to its end: put it back"),
    };
    InputCheck { name: known.name.clone(), source: None, status: "gone", verdict, detail: detail.to_owned() }
}
