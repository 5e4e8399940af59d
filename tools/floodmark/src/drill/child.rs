//! The run that is killed: the pipeline of the user with redirected places, in a process of its own. It tells the drill,
//! line by line, what it came to, and keeps the number of its events where a kill leaves it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use floodmark::clock::SystemClock;
use floodmark::error::{Error, ErrorKind};
use floodmark::pipeline::config::PipelineConfig;
use floodmark::pipeline::{Restart, RunOptions, RunSummary, Watch, run_until_signalled};
use serde::{Deserialize, Serialize};

use super::redirect;
use crate::{CommandResult, console};

/// Arguments of a run of the drill.
#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// The pipeline file.
    pipeline: PathBuf,
    /// Where state and outputs go.
    #[arg(long)]
    scratch: PathBuf,
    /// The longest time between two checkpoints.
    #[arg(long)]
    interval_ms: i64,
    #[arg(long)]
    at: Option<u64>,
    #[arg(long)]
    set_aside_output: bool,
    #[arg(long)]
    rate: Option<std::num::NonZeroU32>,
}

/// What a run says on standard output, one JSON object a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line {
    /// State and outputs are restored.
    Started {
        /// The checkpoint, or none.
        epoch: Option<u64>,
        /// By its own account.
        took_ms: f64,
    },
    /// The first new event was processed.
    FirstEvent,
    /// The end of the input.
    Finished(Finished),
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Finished {
    /// `completed`, or `stopped` by a signal.
    pub(super) outcome: String,
    /// Events of this run.
    pub(super) events: u64,
    /// Events of the whole lineage.
    pub(super) events_total: u64,
    /// Seconds by its own account.
    pub(super) seconds: f64,
    /// Checkpoints of this run.
    pub(super) checkpoints: u64,
}

pub(crate) fn run_child(arguments: &RunArguments) -> CommandResult {
    console::start_log(true);
    let mut config = PipelineConfig::load(&arguments.pipeline)?;
    redirect::redirect(&mut config, &arguments.scratch, arguments.interval_ms)?;
    let options = RunOptions {
        restore_at: arguments.at,
        set_aside_output: arguments.set_aside_output,
        rate: arguments.rate,
        ..RunOptions::default()
    };
    let mut tell = Tell::new(&arguments.scratch)?;
    let summary = run_until_signalled(&config, options, SystemClock::shared(), &mut tell)?;
    console::print(&text(&Line::Finished(finished(&summary)))?)?;
    Ok(ExitCode::SUCCESS)
}

fn finished(summary: &RunSummary) -> Finished {
    Finished {
        outcome: summary.outcome.to_owned(),
        events: summary.events,
        events_total: summary.total.events,
        seconds: summary.seconds,
        checkpoints: summary.checkpoints.count,
    }
}

fn text(line: &Line) -> Result<String, Error> {
    serde_json::to_string(line)
        .map(|json| json + "\n")
        .map_err(|error| Error::new(ErrorKind::Bug, "cannot write a line of the drill").with_source(error))
}

/// Where a run in `root` keeps how many events it has processed.
fn tally(root: &Path) -> PathBuf {
    root.join("events")
}

/// The events of the lineage that a killed run in `root` had processed; none where it processed none.
pub(super) fn events_processed(root: &Path) -> Option<u64> {
    std::fs::read_to_string(tally(root)).ok()?.trim().parse().ok()
}

/// Forgets what an earlier run had processed.
///
/// # Errors
/// `Unavailable` when the disk is in the way.
pub(super) fn forget_events(root: &Path) -> Result<(), Error> {
    let path = tally(root);
    File::create(&path).map(drop).map_err(|error| {
        Error::new(ErrorKind::Unavailable, format!("cannot write: path={}", path.display()))
            .with_source(error)
    })
}

/// Tells the drill how the run goes. What cannot be told is no reason to stop: the drill notices.
struct Tell {
    tally: File,
    ready: bool,
    first: bool,
    events: u64,
}

impl Tell {
    fn new(root: &Path) -> Result<Self, Error> {
        forget_events(root)?;
        let path = tally(root);
        let tally = File::options().write(true).open(&path).map_err(|error| {
            Error::new(ErrorKind::Unavailable, format!("cannot write: path={}", path.display()))
                .with_source(error)
        })?;
        Ok(Self { tally, ready: false, first: false, events: 0 })
    }

    fn say(line: &Line) {
        let _ = text(line).and_then(|text| console::print(&text));
    }
}

impl Watch for Tell {
    fn started(&mut self, restart: &Restart) {
        Self::say(&Line::Started { epoch: restart.epoch, took_ms: restart.took_ms });
        self.ready = true;
    }

    fn processed(&mut self, events: u64) {
        if events == self.events {
            return;
        }
        self.events = events;
        // The kernel has it once this returns; a kill takes nothing away.
        let _ = self.tally.write_all_at(format!("{events:020}").as_bytes(), 0);
        if self.ready && !std::mem::replace(&mut self.first, true) {
            Self::say(&Line::FirstEvent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_known_after_the_run_is_gone() {
        let root = tempfile::tempdir().expect("a directory");
        assert_eq!(events_processed(root.path()), None);
        let mut tell = Tell::new(root.path()).expect("told");
        assert_eq!(events_processed(root.path()), None, "none yet");
        for events in [5, 99, 1_000_000] {
            tell.processed(events);
        }
        drop(tell);
        assert_eq!(events_processed(root.path()), Some(1_000_000));
        forget_events(root.path()).expect("forgotten");
        assert_eq!(events_processed(root.path()), None);
    }
}
