//! `floodmark check`: the preflight of a changed pipeline file.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use floodmark::clock::SystemClock;
use floodmark::error::{Error, ErrorKind};
use floodmark::pipeline::check::{CheckOptions, check};
use floodmark::pipeline::config::PipelineConfig;
use floodmark::store::evolution::Verdict;

use crate::{CommandResult, console, exit_code};

/// Arguments of `floodmark check`.
#[derive(Debug, Args)]
#[command(
    after_help = "Nothing is written and no lock is taken: a pipeline may be running on the state, and the directory may be \
read-only. Reads the files of a checkpoint of the state directory as a restore does. Exit code 0 when a run would \
start, 6 when it would be refused. docs/EVOLUTION.md says what may change.

Examples:
  floodmark check pipeline.toml                      against its own state, or alone without one
  floodmark check pipeline.toml --state state/       against another state directory
  floodmark check pipeline.toml --from /backup/chk-0000000012 --json"
)]
pub(crate) struct Arguments {
    /// The pipeline file (TOML).
    pipeline: PathBuf,
    /// The state directory to check against, instead of that of the pipeline file.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// One checkpoint or savepoint to check against.
    #[arg(long, value_name = "CHECKPOINT", conflicts_with = "state")]
    from: Option<PathBuf>,
    /// The checkpoint of this epoch instead of the newest.
    #[arg(long, value_name = "EPOCH")]
    at: Option<u64>,
    /// As for `run`: state that the pipeline file no longer has may be dropped.
    #[arg(long)]
    allow_dropped: bool,
    /// As for `run`: output that does not fit is moved aside.
    #[arg(long)]
    set_aside_output: bool,
    /// As for `run`: rows that the checkpoint staged and that are gone are given up.
    #[arg(long)]
    accept_lost_output: bool,
    /// Print the same facts as one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    console::start_log(true);
    let config = PipelineConfig::load(&arguments.pipeline)?;
    let options = CheckOptions {
        state: arguments.state.clone().or_else(|| arguments.from.clone()),
        at: arguments.at,
        allow_dropped: arguments.allow_dropped,
        set_aside_output: arguments.set_aside_output,
        accept_lost_output: arguments.accept_lost_output,
    };
    let report = check(&config, &options, &SystemClock::shared())?;
    if arguments.json {
        let text = serde_json::to_string(&report)
            .map_err(|error| Error::new(ErrorKind::Bug, "cannot write the report").with_source(error))?;
        console::print(&format!("{text}\n"))?;
    } else {
        console::print(&report.to_string())?;
    }
    Ok(match report.verdict {
        Verdict::Same | Verdict::Compatible => ExitCode::SUCCESS,
        Verdict::Refused => ExitCode::from(exit_code(ErrorKind::Incompatible)),
    })
}
