//! `floodmark bench latency`: from the event that closes a window to its results, under steady load below capacity,
//! with and without checkpoints. The stream comes by a schedule that was fixed before, however the store gets on.

mod case;
mod latencies;
mod report;
mod stream;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use floodmark::clock::{Clock, SystemClock};
use floodmark::error::{Error, ErrorKind};

use super::{directory, unavailable};
use crate::generate::duration;
use crate::progress::Progress;
use crate::run::grouped;
use crate::{CommandResult, console};

use case::{Outcome, Setup};
use report::{CaseReport, Report, Series, Until};
use stream::{Lap, Pace};

/// Results of the first part of a case do not count: caches and files are cold.
const WARM_UP_SHARE: u32 = 5;
const WARM_UP_MAX: Duration = Duration::from_secs(3);
/// How long the run for the capacity takes, at most.
const CAPACITY: Duration = Duration::from_secs(10);
/// Batches of that run are of the size that this pace has.
const CAPACITY_PACE: f64 = 4e6;
/// A run that is less behind at its end has kept up.
const BEHIND_MAX: Duration = Duration::from_millis(250);

/// Arguments of `floodmark bench latency`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  floodmark bench latency                              50 and 80 % of capacity, three intervals
  floodmark bench latency --loads 80 --intervals 1s    one load, with checkpoints and without
  floodmark bench latency --capacity 4000000 --json    the same load on another build or machine

A time begins when the event that closes the window was due, so that waiting counts. `fired`: the row was staged by \
the operator, which is when a program that embeds the store has it, and standard output. `published`: readers of the \
output directory see it, once the checkpoint of its epoch is durable; so this is about half an interval. Events come \
as columns; reading text comes on top. Build with --release. docs/PERFORMANCE.md has what was measured.")]
pub(super) struct Arguments {
    /// Loads, in percent of capacity, comma-separated.
    #[arg(long, value_delimiter = ',', default_value = "50,80", value_name = "PERCENT",
          value_parser = clap::value_parser!(u32).range(1..=100))]
    loads: Vec<u32>,
    /// Times between two checkpoints, comma-separated; each load runs without checkpoints as well.
    #[arg(long, value_delimiter = ',', value_parser = interval, default_value = "1s,10s")]
    intervals: Vec<Duration>,
    /// Length of each case in seconds, behind a warm-up.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: u32,
    /// The capacity in events per second, instead of measuring it.
    #[arg(long, value_name = "EVENTS", value_parser = clap::value_parser!(u64).range(1..))]
    capacity: Option<u64>,
    /// Keys.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    keys: u64,
    /// Events of a window: with fewer, windows close more often.
    #[arg(long, value_name = "EVENTS", default_value_t = 500_000, value_parser = clap::value_parser!(u64).range(60..=5_000_000))]
    events_per_window: u64,
    /// Another seed, another stream.
    #[arg(long, default_value_t = super::SEED)]
    seed: u64,
    /// Memory budget of the store, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 512, value_parser = clap::value_parser!(u64).range(16..=1_048_576))]
    memory: u64,
    /// Where state and output go; removed afterwards. A temporary directory when left out.
    #[arg(long)]
    dir: Option<std::path::PathBuf>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
    /// Nothing but the report.
    #[arg(long, short)]
    quiet: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    match duration(text) {
        Ok(interval) if interval >= Duration::from_millis(1) => Ok(interval),
        _ => Err(format!("`{text}` is no time between checkpoints; write 200ms, 1s or 1m")),
    }
}

/// What all runs of one call share.
struct Bench<'a> {
    arguments: &'a Arguments,
    dir: &'a Path,
    clock: Arc<dyn Clock>,
    progress: Progress,
    runs: usize,
    runs_all: usize,
}

/// A row is counted from one checkpoint on, and published by the next: both have to come.
fn check(arguments: &Arguments) -> Result<(), Error> {
    let length = Duration::from_secs(arguments.seconds.into());
    let Some(longest) = arguments.intervals.iter().max().filter(|longest| **longest * 2 > length) else {
        return Ok(());
    };
    let message = format!(
        "a case is too short for its checkpoints: seconds={} interval={} s",
        arguments.seconds,
        longest.as_secs_f64()
    );
    Err(Error::new(ErrorKind::Invalid, message)
        .with_remedy("give --seconds of twice the longest interval, or shorter --intervals"))
}

pub(super) fn run(arguments: &Arguments) -> CommandResult {
    check(arguments)?;
    let place = directory(arguments.dir.as_deref())?;
    super::warn_of_debug(arguments.quiet);
    let clock = SystemClock::shared();
    let cases = arguments.loads.len() * (1 + arguments.intervals.len());
    let mut bench = Bench {
        arguments,
        dir: place.path(),
        progress: Progress::new(arguments.quiet, Arc::clone(&clock)),
        clock,
        runs: 0,
        runs_all: cases + usize::from(arguments.capacity.is_none()),
    };
    let report = bench.measure()?;
    bench.progress.clear();
    console::print_report(arguments.json, &report, Report::to_table)?;
    Ok(ExitCode::SUCCESS)
}

impl Bench<'_> {
    fn measure(&mut self) -> Result<Report, Error> {
        let arguments = self.arguments;
        let capacity = match arguments.capacity {
            Some(capacity) => capacity as f64,
            None => self.capacity()?,
        };
        let mut cases = Vec::new();
        for &load in &arguments.loads {
            let none = std::iter::once(None);
            for interval in none.chain(arguments.intervals.iter().copied().map(Some)) {
                cases.push(self.case(load, capacity, interval)?);
            }
        }
        Ok(Report {
            keys: arguments.keys,
            events_per_window: arguments.events_per_window,
            seed: arguments.seed,
            seconds: f64::from(arguments.seconds),
            memory_budget_bytes: arguments.memory << 20,
            capacity_events_per_second: capacity,
            capacity_measured: arguments.capacity.is_none(),
            cases,
            debug_build: cfg!(debug_assertions),
        })
    }

    /// What the store takes at full speed, with the most checkpoints of all cases.
    fn capacity(&mut self) -> Result<f64, Error> {
        let interval = self.arguments.intervals.iter().copied().min();
        let length = CAPACITY.min(Duration::from_secs(self.arguments.seconds.into()));
        let outcome = self.run("capacity", CAPACITY_PACE, Pace::Full, interval, length)?;
        let capacity = outcome.events_per_second;
        if capacity < 1.0 {
            return Err(Error::new(ErrorKind::Unavailable, "the run for the capacity took nothing in")
                .with_remedy("give it more --seconds, or a capacity with --capacity"));
        }
        self.progress.note(&format!("capacity: {} events/s", grouped(capacity as u64)));
        Ok(capacity)
    }

    fn case(
        &mut self,
        load_percent: u32,
        capacity: f64,
        interval: Option<Duration>,
    ) -> Result<CaseReport, Error> {
        let rate = capacity * f64::from(load_percent) / 100.0;
        let length = Duration::from_secs(self.arguments.seconds.into());
        let what = format!("{load_percent} % of capacity");
        let outcome = self.run(&what, rate, Pace::Events(rate), interval, length)?;
        let fired = |latencies: &latencies::Latencies, beside| {
            let figures = latencies.figures()?;
            Some(Series { until: Until::Fired, beside_checkpoint: Some(beside), figures })
        };
        let published = outcome.published.figures();
        let published =
            published.map(|figures| Series { until: Until::Published, beside_checkpoint: None, figures });
        let series: Vec<Series> =
            [fired(&outcome.fired, false), fired(&outcome.fired_beside, true), published]
                .into_iter()
                .flatten()
                .collect();
        if series.is_empty() {
            let message = format!("no window closed in the time of a case: load={load_percent} %");
            return Err(Error::new(ErrorKind::Invalid, message)
                .with_remedy("give more --seconds, or fewer --events-per-window"));
        }
        Ok(CaseReport {
            load_percent,
            offered_events_per_second: rate,
            events_per_second: outcome.events_per_second,
            kept_up: outcome.behind <= BEHIND_MAX,
            behind_ms: outcome.behind.as_secs_f64() * 1e3,
            checkpoint_interval_ms: interval
                .map(|interval| u64::try_from(interval.as_millis()).unwrap_or(u64::MAX)),
            checkpoints: outcome.checkpoints,
            pause_ms_max: outcome.pause_max.as_secs_f64() * 1e3,
            series,
        })
    }

    fn run(
        &mut self,
        what: &str,
        events_per_second: f64,
        pace: Pace,
        interval: Option<Duration>,
        length: Duration,
    ) -> Result<Outcome, Error> {
        self.runs += 1;
        let arguments = self.arguments;
        let checkpoints = match interval {
            None => "no checkpoints".to_owned(),
            Some(interval) => format!("checkpoints every {} ms", interval.as_millis()),
        };
        let line = format!("run {} of {}: {what}, {checkpoints}", self.runs, self.runs_all);
        self.progress.line(&line);
        let dir = self.dir.join(format!("latency-{}", self.runs));
        let setup = Setup {
            lap: Lap::new(arguments.keys, arguments.events_per_window, events_per_second, arguments.seed)?,
            pace,
            warm_up: WARM_UP_MAX.min(length / WARM_UP_SHARE),
            length,
            interval,
            memory_bytes: usize::try_from(arguments.memory << 20).unwrap_or(usize::MAX),
            dir: &dir,
        };
        let whole = (setup.warm_up + setup.length).as_secs();
        let mut told = 0;
        let progress = &mut self.progress;
        let outcome = case::run(setup, &self.clock, &mut |elapsed| {
            if elapsed.as_secs() > told {
                told = elapsed.as_secs();
                progress.line(&format!("{line}, {told} of {whole} s"));
            }
        });
        // Also after an error: what is left is of no use.
        let removed = std::fs::remove_dir_all(&dir);
        let outcome = outcome?;
        removed.map_err(|error| unavailable("cannot remove", &dir, error))?;
        Ok(outcome)
    }
}
