//! The preflight: can this build and this pipeline file open this state, and what would change. Nothing is touched: no
//! lock is taken, nothing is written, and a pipeline may be running on it.
//!
//! [`check`] makes a [`CheckReport`], plain data. What operators say of their state is decided in `store::evolution`;
//! `inputs` and `outputs` look at the files around it.

mod inputs;
mod outputs;
mod text;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use self::outputs::Known;
use super::assemble;
use super::config::{OutputTarget, PipelineConfig};
use super::sink::Secret;
use super::source::check_columns;
use crate::checkpoint::{LocalState, Manifest, preflight, verify};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::inspect;
use crate::repository::{Preview, preview};
use crate::store::evolution::{Evolution, Verdict};

/// What to check against.
#[derive(Clone, Debug, Default)]
pub struct CheckOptions {
    /// The state directory, or one checkpoint; that of the pipeline file when `None`, which then need not exist.
    pub state: Option<PathBuf>,
    /// The checkpoint of this epoch instead of the newest.
    pub at: Option<u64>,
    /// As for a run: state that is not asked for any more may be dropped.
    pub allow_dropped: bool,
    /// As for a run: output that does not fit is moved aside.
    pub set_aside_output: bool,
    /// As for a run: rows that a checkpoint staged and that are gone are given up.
    pub accept_lost_output: bool,
}

/// Whether a run would start, and what it would take over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// Name of the pipeline.
    pub pipeline: String,
    /// The worst of all verdicts.
    pub verdict: Verdict,
    /// The checkpoint that was looked at; `None` when there is no state yet.
    pub checkpoint: Option<PathBuf>,
    /// Windows, joins and deduplication; `None` without state.
    pub state: Option<Evolution>,
    /// What else is in the way, or worth knowing.
    pub findings: Vec<Finding>,
    /// The inputs as they are found, next to what was read of them.
    pub inputs: Vec<InputCheck>,
    /// The outputs as they are found.
    pub outputs: Vec<OutputCheck>,
}

/// Something that is about no single operator, input or output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it means.
    pub verdict: Verdict,
    /// What was found.
    pub message: String,
    /// What to do about it.
    pub remedy: Option<String>,
}

impl Finding {
    fn refused(error: &Error) -> Self {
        let source = std::error::Error::source(error).map_or(String::new(), |cause| format!(": {cause}"));
        Self {
            verdict: Verdict::Refused,
            message: format!("{error}{source}"),
            remedy: error.remedy().map(str::to_owned),
        }
    }
}

/// An input partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InputCheck {
    /// Its name.
    pub name: String,
    /// Its source, where that is known.
    pub source: Option<String>,
    /// `new`, `read on`, `finished`, `gone`, `replaced`.
    pub status: &'static str,
    /// Whether a run would take it.
    pub verdict: Verdict,
    /// How far it was read, or what is wrong.
    pub detail: String,
}

/// An output directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OutputCheck {
    /// Name of the output.
    pub name: String,
    /// Where its rows go: `files`, `stdout`, `postgres`.
    pub kind: &'static str,
    /// Its directory; that of rows which wait to be delivered, where they are no files.
    pub path: PathBuf,
    /// Whether a run would write to it.
    pub verdict: Verdict,
    /// What was found.
    pub detail: String,
    /// What to do about a refusal.
    pub remedy: Option<String>,
}

/// Checks a pipeline against its state, or against nothing when there is none.
///
/// # Errors
/// [`crate::error::ErrorKind::Invalid`] for a pipeline that cannot work, and when the checkpoint that was asked for is not
/// there; [`crate::error::ErrorKind::Damaged`] and [`crate::error::ErrorKind::Unavailable`] when its manifest cannot be
/// read. That state does not fit is in the report and no error.
pub fn check(config: &PipelineConfig, options: &CheckOptions, clock: &Arc<dyn Clock>) -> Result<CheckReport> {
    let (plans, operators) = assemble::operators(config);
    check_columns(&config.sources, &plans)?;
    let store = assemble::store(config, operators).allow_dropped(options.allow_dropped);
    let mut findings = Vec::new();
    let local = local(config, options, &mut findings);
    let Preview { generation_above, fetched } = repository(config, options, &mut findings)?;
    let found = match fetched {
        Some((place, manifest)) => Some((PathBuf::from(place), manifest)),
        None => checkpoint(config, options, &mut findings)?,
    };
    findings.extend(tables_that_cannot_be_reached(config));
    let mut report = CheckReport {
        pipeline: config.name.clone(),
        verdict: Verdict::Same,
        checkpoint: found.as_ref().map(|(path, _)| path.clone()),
        state: None,
        findings,
        inputs: Vec::new(),
        outputs: Vec::new(),
    };
    let manifest = found.as_ref().map(|(_, manifest)| manifest);
    match manifest {
        Some(manifest) => {
            let evolution = store.evolution(manifest)?;
            report.findings.extend(about(config, manifest));
            report.state = Some(evolution);
        }
        // Its own contradictions are found all the same.
        None => store.check_only()?,
    }
    inputs::check(config, plans, manifest, clock, &mut report);
    let known = Known { manifest, local: local.as_ref(), generation_above };
    outputs::check(config, known, options, &mut report);
    let verdicts = report.state.iter().map(|state| state.verdict);
    let verdicts = verdicts.chain(report.findings.iter().map(|finding| finding.verdict));
    let verdicts = verdicts.chain(report.inputs.iter().map(|input| input.verdict));
    let verdicts = verdicts.chain(report.outputs.iter().map(|output| output.verdict));
    report.verdict = verdicts.max().unwrap_or_default();
    Ok(report)
}

/// The state directory that a run would open; what is asked for elsewhere says nothing of it.
fn local(config: &PipelineConfig, options: &CheckOptions, findings: &mut Vec<Finding>) -> Option<LocalState> {
    if options.state.is_some() {
        return None;
    }
    preflight(&config.state.directory, &config.name).unwrap_or_else(|error| {
        findings.push(Finding::refused(&error.into()));
        None
    })
}

/// What a run would do with the repository.
fn repository(
    config: &PipelineConfig,
    options: &CheckOptions,
    findings: &mut Vec<Finding>,
) -> Result<Preview> {
    let settings = assemble::repository(config)?.filter(|_| options.state.is_none());
    let Some(settings) = settings else { return Ok(Preview::default()) };
    let found = preview(&settings, &config.state.directory, &config.name, options.at);
    let found = found.unwrap_or_else(|error| {
        findings.push(Finding::refused(&error.into()));
        Preview::default()
    });
    if let Some((_, manifest)) = &found.fetched {
        let message = format!("the state comes from the repository: epoch={}", manifest.epoch);
        findings.push(Finding { verdict: Verdict::Compatible, message, remedy: None });
    }
    Ok(found)
}

/// The local checkpoint that a run would go on from, with its place.
fn checkpoint(
    config: &PipelineConfig,
    options: &CheckOptions,
    findings: &mut Vec<Finding>,
) -> Result<Option<(PathBuf, Manifest)>> {
    if let Some(path) = &options.state {
        return inspect::manifest_of(path, options.at).map(Some);
    }
    let own = &config.state.directory;
    if options.at.is_none() && !has_checkpoints(own) {
        return Ok(None);
    }
    let (path, manifest) = inspect::manifest_of(own, options.at)?;
    if let Err(report) = verify(&path).into_verified() {
        findings.push(Finding {
            verdict: Verdict::Refused,
            message: format!("the checkpoint is damaged: path={} {}", path.display(), report.problem_line()),
            remedy: Some("choose an older one with --at; `floodmark inspect verify` says more".to_owned()),
        });
    }
    Ok(Some((path, manifest)))
}

fn has_checkpoints(directory: &Path) -> bool {
    inspect::list(directory, 0).is_ok_and(|list| !list.is_empty())
}

/// Tables whose address a run would not find.
fn tables_that_cannot_be_reached(config: &PipelineConfig) -> impl Iterator<Item = Finding> + '_ {
    let windows = config.windows.iter().map(|window| &window.output.target);
    let targets = windows.chain(config.joins.iter().map(|join| &join.output.target));
    let tables = targets.filter_map(|target| match target {
        OutputTarget::Postgres(table) => Some(table),
        OutputTarget::Files | OutputTarget::Console => None,
    });
    tables.filter_map(|table| Secret::from_env(&table.url_env).err().map(|error| Finding::refused(&error)))
}

/// What of the manifest as a whole does not fit.
fn about(config: &PipelineConfig, manifest: &Manifest) -> Vec<Finding> {
    let mut findings = Vec::new();
    if manifest.pipeline != config.name {
        findings.push(Finding {
            verdict: Verdict::Refused,
            message: format!(
                "the state is of another pipeline: state={:?} file={:?}",
                manifest.pipeline, config.name
            ),
            remedy: Some(
                "name the pipeline as before; its windows may have other names, the pipeline may not"
                    .to_owned(),
            ),
        });
    }
    let sources: Vec<_> = assemble::sources(config).collect();
    if let Err(error) = crate::store::saved_watermarks(manifest, &sources) {
        findings.push(Finding::refused(&error));
    }
    for source in &sources {
        let known = manifest.sources.iter().any(|known| known.name == source.name);
        if !known && !manifest.sources.is_empty() && sources.len() > 1 {
            findings.push(Finding {
                verdict: Verdict::Compatible,
                message: format!(
                    "source \"{}\" is new: the watermark does not go back for it, and holds still until it has spoken",
                    source.name
                ),
                remedy: None,
            });
        }
    }
    findings
}
