//! `floodmark restore`: makes a new state directory of a savepoint or a checkpoint.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use floodmark::checkpoint::Environment;
use floodmark::checkpoint::savepoint::{RestoreAs, RestoreRequest, RestoredState, restore};
use floodmark::clock::SystemClock;
use floodmark::error::Error;
use floodmark::pipeline::config::PipelineConfig;
use floodmark::pipeline::{PartitionChoice, PartitionsPlan, plan_partitions};
use serde::Serialize;

use crate::savepoint::OriginRow;
use crate::{CommandResult, console};

/// Arguments of `floodmark restore`.
#[derive(Debug, Args)]
#[command(after_help = "Which of the two it is has to be said, since both look alike until they write:
  --move     the same pipeline goes on here and nowhere else, into the same outputs;
             the original is fenced out of them
  --as-fork  a pipeline of its own from there on, with output directories of its own;
             what was staged stays with the original

Point `state.directory` of a pipeline file at the new directory, then `floodmark run` goes on from it.

Examples:
  floodmark restore --from /backup/monday --state state-2 --move
  floodmark restore --from state --at 12 --state what-if --as-fork --name flights-what-if
  floodmark restore --from /backup/monday --state state-2 --move --pipeline pipeline.toml
                    with --allow-missing-partitions where input files are gone

A checkpoint of a repository is brought here first: `floodmark repository fetch`.")]
pub(crate) struct Arguments {
    /// A savepoint, a checkpoint, or a state directory, whose newest checkpoint is taken.
    #[arg(long, value_name = "PATH")]
    from: PathBuf,
    /// The new state directory; must not exist, or be empty.
    #[arg(long, value_name = "NEWDIR")]
    state: PathBuf,
    #[command(flatten)]
    how: How,
    /// Name of the forked pipeline, as its pipeline file says; the same by default.
    #[arg(long, value_name = "NAME", requires = "as_fork", conflicts_with = "moved")]
    name: Option<String>,
    /// The checkpoint of this epoch instead of the newest.
    #[arg(long, value_name = "EPOCH")]
    at: Option<u64>,
    /// Compare the input of this pipeline file with what was read, and refuse when files are missing or renamed.
    #[arg(long, value_name = "FILE")]
    pipeline: Option<PathBuf>,
    /// Give up partitions whose files are gone: what was read of them stays counted, the rest is lost.
    #[arg(long, requires = "pipeline")]
    allow_missing_partitions: bool,
    /// Take new files that begin with the same bytes as missing ones for these.
    #[arg(long, requires = "pipeline")]
    accept_renamed_partitions: bool,
    /// Print what was done as one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct How {
    /// The same pipeline goes on here: same history, same outputs.
    #[arg(long = "move")]
    moved: bool,
    /// A new pipeline begins here, with outputs of its own.
    #[arg(long)]
    as_fork: bool,
}

/// What was done.
#[derive(Debug, Serialize)]
struct Done {
    state: PathBuf,
    pipeline: String,
    lineage: String,
    epoch: u64,
    origin: OriginRow,
    staged_rows: u64,
    rows_left_to_original: u64,
    linked_bytes: u64,
    copied_bytes: u64,
    partitions: Option<PartitionsPlan>,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    console::start_log(true);
    let partitions = plan(arguments)?;
    let request = RestoreRequest {
        from: arguments.from.clone(),
        // The one that was compared, when the original has gone on since.
        at: arguments.at.or(partitions.as_ref().map(|plan| plan.epoch)),
        to: arguments.state.clone(),
        how: if arguments.how.as_fork {
            RestoreAs::Fork { name: arguments.name.clone() }
        } else {
            RestoreAs::Move
        },
        partitions: partitions.as_ref().map(PartitionsPlan::changes).unwrap_or_default(),
    };
    let restored = restore(&request, &Environment::new(SystemClock::shared()))?;
    console::print_report(arguments.json, &done(restored, partitions), describe)?;
    Ok(ExitCode::SUCCESS)
}

fn plan(arguments: &Arguments) -> Result<Option<PartitionsPlan>, Error> {
    let Some(pipeline) = &arguments.pipeline else { return Ok(None) };
    let choice = PartitionChoice {
        allow_missing: arguments.allow_missing_partitions,
        accept_renamed: arguments.accept_renamed_partitions,
    };
    plan_partitions(&PipelineConfig::load(pipeline)?, &arguments.from, arguments.at, choice).map(Some)
}

fn done(restored: RestoredState, partitions: Option<PartitionsPlan>) -> Done {
    Done {
        state: restored.path,
        pipeline: restored.pipeline,
        lineage: restored.lineage.to_string(),
        epoch: restored.epoch,
        origin: OriginRow::from(&restored.origin),
        staged_rows: restored.staged_rows,
        rows_left_to_original: restored.rows_left,
        linked_bytes: restored.linked_bytes,
        copied_bytes: restored.copied_bytes,
        partitions,
    }
}

fn describe(done: &Done) -> String {
    let mut lines = vec![format!(
        "state directory {}, {}: {} bytes linked, {} copied, verified",
        done.state.display(),
        done.origin.describe(),
        done.linked_bytes,
        done.copied_bytes
    )];
    if done.rows_left_to_original > 0 {
        let rows = match done.rows_left_to_original {
            1 => "1 row of that epoch is".to_owned(),
            rows => format!("{rows} rows of that epoch are"),
        };
        lines.push(format!("{rows} the original's to publish"));
    }
    for partition in done.partitions.iter().flat_map(|plan| &plan.added) {
        lines.push(format!("new input {partition}: read from its beginning"));
    }
    for (old, new) in done.partitions.iter().flat_map(|plan| &plan.renamed) {
        lines.push(format!("input {old} goes on as {new}"));
    }
    for dropped in done.partitions.iter().flat_map(|plan| &plan.dropped) {
        lines.push(format!(
            "input {} is given up: {} records ({} bytes) of it stay counted, what it held beyond is lost",
            dropped.name, dropped.read_records, dropped.read_bytes
        ));
    }
    lines.push(format!(
        "next: set `state.directory` to it in the file of pipeline {}, then run",
        done.pipeline
    ));
    lines.join("\n") + "\n"
}
