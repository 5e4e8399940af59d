//! `floodmark bench state-size`: how large the state becomes against the watermark delay, next to what a simple model
//! says, and whether it stays that large. Real stores with checkpoints over generated streams, driven by event time.

mod figures;
mod growth;
mod lateness;
mod measure;
mod model;
mod report;
mod shape;
mod stream;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use floodmark::clock::{Clock, SystemClock};
use floodmark::error::{Error, ErrorKind};

use super::unavailable;
use crate::generate::duration;
use crate::progress::Progress;
use crate::{CommandResult, console};

use figures::Modelled;
use growth::{Growth, LongRun};
use lateness::Profile;
use measure::{CHECKPOINT_MS, Measured, Setup};
use model::{ByteCost, Load, Prediction, predict};
use report::{Case, Costs, Report};
use shape::Kind;
use stream::StreamSpec;

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;
/// The longest delay: state is steady after this and a window.
const DELAY_MS_MAX: u64 = 24 * HOUR_MS;
/// Arrival time until the state is steady at any delay, and the length of a stream: a day of it counts.
const WARM_UP_MS: u64 = DELAY_MS_MAX + 2 * HOUR_MS;
const SPAN_MS: u64 = WARM_UP_MS + DAY_MS;
/// Length of the streams that show whether the state grows; the first two days do not count.
const LONG_SPAN_MS: u64 = 8 * DAY_MS;
const LONG_WARM_UP_MS: u64 = 2 * DAY_MS;
/// Delays of the runs that give the bytes of a pane.
const COST_DELAYS_MS: [u64; 3] = [0, HOUR_MS, 12 * HOUR_MS];
/// Delays at which the model is drawn, evenly spread over the axis.
const MODEL_POINTS: u32 = 120;
/// Exit code for state that grows: the one of a drill that failed.
const STATE_GROWS: u8 = 7;

/// Arguments of `floodmark bench state-size`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  floodmark bench state-size --out sizes           everything: tables, CSV, SVG and PNG
  floodmark bench state-size --windows session --delays 0,1h,24h --profiles none,heavy-tail
  floodmark bench state-size --only growth         does the state stay as large as it is?

Exit code 7 when the state kept growing at a fixed delay. docs/STATE_SIZE.md says how to read the result, \
what the model assumes, and shows what was measured.")]
pub(super) struct Arguments {
    /// Watermark delays, comma-separated, 0 to 24h.
    #[arg(long, value_delimiter = ',', value_parser = delay, default_value = "0,1m,5m,15m,1h,3h,6h,12h,24h")]
    delays: Vec<Duration>,
    /// How late events are.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Profile::ALL)]
    profiles: Vec<Profile>,
    /// Kinds of windows.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Kind::ALL)]
    windows: Vec<Kind>,
    /// Events of each stream of 50 h; the long ones have as many per hour.
    #[arg(long, short = 'n', default_value_t = 300_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    events: u64,
    /// Keys.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    keys: u64,
    /// Another seed, other streams.
    #[arg(long, default_value_t = super::SEED)]
    seed: u64,
    /// Only one half of the benchmark.
    #[arg(long, value_enum)]
    only: Option<Half>,
    /// Delay of the long runs.
    #[arg(long, value_name = "DELAY", value_parser = delay, default_value = "6h")]
    growth_delay: Duration,
    /// Memory budget of each store, in MiB; all panes have to fit.
    #[arg(long, value_name = "MIB", default_value_t = 512, value_parser = clap::value_parser!(u64).range(16..=1_048_576))]
    memory: u64,
    /// Writes state-size.csv, growth.csv and the plots, SVG and PNG, into this directory.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Where state goes while it is measured; removed afterwards. A temporary directory when left out.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
    /// Nothing but the report.
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Half {
    /// State size against the delay.
    Delays,
    /// State size over time.
    Growth,
}

fn delay(text: &str) -> Result<Duration, String> {
    let parsed = if text == "0" { Ok(Duration::ZERO) } else { duration(text) };
    let delay = parsed.map_err(|_| format!("`{text}` is not a delay; write 0, 30s, 10m or 24h"))?;
    if delay > Duration::from_millis(DELAY_MS_MAX) {
        return Err(format!("`{text}` is longer than the streams allow; write 24h or less"));
    }
    Ok(delay)
}

fn millis(delay: Duration) -> u64 {
    u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)
}

/// What all runs of one call share.
struct Bench<'a> {
    arguments: &'a Arguments,
    dir: &'a Path,
    clock: &'a dyn Clock,
    progress: Progress,
    runs: usize,
    runs_all: usize,
}

pub(super) fn run(arguments: &Arguments) -> CommandResult {
    let mut arguments = arguments.clone();
    arguments.delays.sort_unstable();
    arguments.delays.dedup();
    let (profiles, windows) = (arguments.profiles.clone(), arguments.windows.clone());
    arguments.profiles = Profile::ALL.into_iter().filter(|profile| profiles.contains(profile)).collect();
    arguments.windows = Kind::ALL.into_iter().filter(|kind| windows.contains(kind)).collect();
    let arguments = &arguments;
    let place = match &arguments.dir {
        Some(dir) => {
            std::fs::create_dir_all(dir).map_err(|error| unavailable("cannot create", dir, error))?;
            dir.clone()
        }
        None => std::env::temp_dir(),
    };
    if let Some(out) = &arguments.out {
        // Before the work, not after it.
        std::fs::create_dir_all(out).map_err(|error| {
            Error::new(ErrorKind::Unavailable, format!("cannot create: path={}", out.display()))
                .with_remedy("give a directory that can be written with --out")
                .with_source(error)
        })?;
    }
    let made = tempfile::Builder::new().prefix("floodmark-state-size-").tempdir_in(&place);
    let temporary = made.map_err(|error| unavailable("cannot create a directory", &place, error))?;
    let clock = SystemClock::shared();
    let started = clock.monotonic();
    let mut bench = Bench::new(arguments, temporary.path(), clock.as_ref());
    let mut report = bench.measure()?;
    bench.progress.clear();
    report.seconds = clock.monotonic().saturating_sub(started).as_secs_f64();
    if let Some(out) = &arguments.out {
        write(&report, out)?;
    }
    console::print_report(arguments.json, &report, Report::to_text)?;
    Ok(if report.plateau == Some(false) { ExitCode::from(STATE_GROWS) } else { ExitCode::SUCCESS })
}

impl<'a> Bench<'a> {
    fn new(arguments: &'a Arguments, dir: &'a Path, clock: &'a dyn Clock) -> Self {
        let per_kind = match arguments.only {
            Some(Half::Growth) => 1,
            Some(Half::Delays) => arguments.delays.len() * arguments.profiles.len() + COST_DELAYS_MS.len(),
            None => arguments.delays.len() * arguments.profiles.len() + COST_DELAYS_MS.len() + 1,
        };
        Self {
            arguments,
            dir,
            clock,
            progress: Progress::new(arguments.quiet, SystemClock::shared()),
            runs: 0,
            runs_all: per_kind * arguments.windows.len(),
        }
    }

    fn measure(&mut self) -> Result<Report, Error> {
        let arguments = self.arguments;
        let mut report = Report {
            events: arguments.events,
            keys: arguments.keys,
            seed: arguments.seed,
            span_ms: SPAN_MS,
            warm_up_ms: WARM_UP_MS,
            checkpoint_interval_ms: CHECKPOINT_MS,
            costs: Vec::new(),
            cases: Vec::new(),
            growth: Vec::new(),
            plateau: None,
            debug_build: cfg!(debug_assertions),
            seconds: 0.0,
        };
        for &kind in &arguments.windows {
            if arguments.only != Some(Half::Growth) {
                let costs = self.costs(kind)?;
                report.costs.push(costs);
                report.cases.extend(self.cases(kind, &costs)?);
            }
            if arguments.only != Some(Half::Delays) {
                report.growth.push(self.growth(kind)?);
            }
        }
        if !report.growth.is_empty() {
            report.plateau = Some(report.growth.iter().all(|growth| growth.plateau));
        }
        Ok(report)
    }

    fn stream(&self, profile: Profile) -> StreamSpec {
        StreamSpec {
            profile,
            events: self.arguments.events,
            span_ms: SPAN_MS,
            keys: self.arguments.keys,
            key_life_ms: 0,
            seed: self.arguments.seed,
        }
    }

    fn load(&self, profile: Profile) -> Load {
        let rate = self.arguments.events as f64 / SPAN_MS as f64;
        Load::new(rate, self.arguments.keys as f64, profile)
    }

    /// Bytes per pane, from three runs over a stream in order that is measured for nothing else.
    fn costs(&mut self, kind: Kind) -> Result<Costs, Error> {
        let stream = StreamSpec { seed: self.arguments.seed.wrapping_add(1), ..self.stream(Profile::None) };
        let mut run = |delay_ms| self.run(kind, delay_ms, stream, WARM_UP_MS).map(|(measured, _)| measured);
        let runs = [run(COST_DELAYS_MS[0])?, run(COST_DELAYS_MS[1])?, run(COST_DELAYS_MS[2])?];
        let cost = |bytes: fn(&Measured) -> f64| ByteCost {
            points: runs.map(|run| (run.open_panes_mean, bytes(&run))),
        };
        Ok(Costs {
            window: kind,
            memory: cost(|run| run.memory_bytes_mean),
            disk: cost(|run| run.disk_bytes_mean),
            checkpoint: cost(|run| run.checkpoint_bytes_mean),
        })
    }

    fn cases(&mut self, kind: Kind, costs: &Costs) -> Result<Vec<Case>, Error> {
        let mut cases = Vec::new();
        for &profile in &self.arguments.profiles {
            for &delay in &self.arguments.delays {
                let delay_ms = millis(delay);
                let (measured, _) = self.run(kind, delay_ms, self.stream(profile), WARM_UP_MS)?;
                let model = predict(kind.shape(), &self.load(profile), delay_ms as f64);
                let model_bytes = costs.of(model.open_panes_mean);
                cases.push(Case { window: kind, profile, delay_ms, measured, model, model_bytes });
            }
        }
        Ok(cases)
    }

    fn growth(&mut self, kind: Kind) -> Result<Growth, Error> {
        let wanted = &self.arguments.profiles;
        let profile = if wanted.contains(&Profile::HeavyTail) { Profile::HeavyTail } else { wanted[0] };
        let events = u128::from(self.arguments.events) * u128::from(LONG_SPAN_MS) / u128::from(SPAN_MS);
        let events = u64::try_from(events).unwrap_or(u64::MAX);
        let stream =
            StreamSpec { events, span_ms: LONG_SPAN_MS, key_life_ms: DAY_MS, ..self.stream(profile) };
        let delay_ms = millis(self.arguments.growth_delay);
        let (measured, samples) = self.run(kind, delay_ms, stream, LONG_WARM_UP_MS)?;
        let model: Prediction = predict(kind.shape(), &self.load(profile), delay_ms as f64);
        Growth::judge(LongRun {
            window: kind,
            profile,
            delay_ms,
            events,
            warm_up_ms: LONG_WARM_UP_MS,
            open_panes_model: model.open_panes_mean,
            seconds: measured.seconds,
            samples,
        })
    }

    fn run(
        &mut self,
        kind: Kind,
        delay_ms: u64,
        stream: StreamSpec,
        warm_up_ms: u64,
    ) -> Result<(Measured, Vec<measure::Sample>), Error> {
        self.runs += 1;
        self.progress.line(&format!(
            "run {} of {}: {} windows, lateness {}, delay {}",
            self.runs,
            self.runs_all,
            kind.name(),
            stream.profile.name(),
            report::span(delay_ms)
        ));
        let dir = self.dir.join(format!("run-{}", self.runs));
        let memory_bytes = usize::try_from(self.arguments.memory << 20).unwrap_or(usize::MAX);
        let setup = Setup { kind, delay_ms, stream, warm_up_ms, memory_bytes, dir: &dir };
        let measured = measure::measure(setup, self.clock)?;
        std::fs::remove_dir_all(&dir).map_err(|error| unavailable("cannot remove", &dir, error))?;
        Ok(measured)
    }
}

/// Writes tables and plots.
fn write(report: &Report, out: &Path) -> Result<(), Error> {
    if !report.cases.is_empty() {
        write_text(&out.join("state-size.csv"), &report.cases_csv())?;
        figures::delays(report, &modelled(report)).write(out, "state-size")?;
    }
    if !report.growth.is_empty() {
        write_text(&out.join("growth.csv"), &report.growth_csv())?;
        figures::growth(&report.growth).write(out, "growth")?;
    }
    Ok(())
}

/// The model between the delays that were measured.
fn modelled(report: &Report) -> Vec<Modelled> {
    let longest = report.cases.iter().map(|case| case.delay_ms).max().unwrap_or(0);
    let decades = (1.0 + longest as f64 / MINUTE_MS as f64).ln();
    let delay = |point: u32| {
        let place = decades * f64::from(point) / f64::from(MODEL_POINTS);
        (place.exp_m1() * MINUTE_MS as f64).round() as u64
    };
    let mut modelled = Vec::new();
    for costs in &report.costs {
        let mut profiles: Vec<Profile> = report.cases.iter().map(|case| case.profile).collect();
        profiles.dedup();
        for profile in Profile::ALL.into_iter().filter(|profile| profiles.contains(profile)) {
            let load = Load::new(report.events as f64 / report.span_ms as f64, report.keys as f64, profile);
            for delay_ms in (0..=MODEL_POINTS).map(delay) {
                let said = predict(costs.window.shape(), &load, delay_ms as f64);
                let sizes = costs.of(said.open_panes_mean);
                modelled.push(Modelled {
                    window: costs.window,
                    profile,
                    delay_ms,
                    open_panes: said.open_panes_mean,
                    memory_bytes: sizes.memory_bytes_mean,
                    disk_bytes: sizes.disk_bytes_mean,
                    late_share: said.late_share,
                });
            }
        }
    }
    modelled
}

#[expect(
    clippy::disallowed_methods,
    reason = "a table can be measured again and need not survive a power cut"
)]
fn write_text(path: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(path, text).map_err(|error| {
        Error::new(ErrorKind::Unavailable, format!("cannot write: path={}", path.display()))
            .with_remedy("free space, or give another directory with --out")
            .with_source(error)
    })
}
