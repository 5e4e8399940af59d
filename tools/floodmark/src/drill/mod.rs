//! `floodmark drill`: the recovery drill. On a copy of the state, in a directory of its own, runs of the pipeline are killed,
//! started again and compared with a run that nobody interrupted; stored bytes are damaged, and a start has to notice.
//!
//! The tour: `plan` decides from a seed alone; `scratch`, `base`, `redirect` and `load` make what a run needs without
//! touching what is the user's; `child` is the run, `process` its handle, `moment` the wait for a kill; `reference`,
//! `trial` and `damage` are the three kinds of experiments, `compare` their judge; `report` counts and gives the verdict.

mod base;
mod child;
mod compare;
mod damage;
mod load;
mod moment;
mod plan;
mod process;
mod redirect;
mod reference;
mod report;
mod scratch;
mod trial;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use floodmark::clock::{Clock, SystemClock};
use floodmark::error::{Error, ErrorKind};
use floodmark::pipeline::config::PipelineConfig;
use floodmark::pipeline::{StopFlag, stop_on_signals};

use crate::compare::DIFFERENT;
use crate::progress::Progress;
use crate::{CommandResult, console, exit_code, generate};

use base::Base;
use damage::{Damage, Specimen};
use process::Runner;
use report::{Environment, Report, Verdict};
use scratch::Scratch;
use trial::{Reference, Trial};

pub(crate) use child::{RunArguments, run_child};

/// Exit code after a signal.
const INTERRUPTED: u8 = 130;
/// Checkpoints in a run of the drill, about.
const CHECKPOINTS_PER_RUN: u32 = 12;
/// They do not come more often.
const INTERVAL_MS_MIN: u128 = 10;
/// Failed trials whose directories are kept.
const EVIDENCE_MAX: usize = 3;
/// With --for, no more kills than this.
const KILLS_MAX: u32 = 1_000_000;
/// A run hangs when it takes so many times as long as the uninterrupted one, and a minute.
const PATIENCE_TIMES: u32 = 10;

/// Arguments of `floodmark drill`.
#[derive(Debug, Args)]
#[command(
    after_help = "State, outputs and inputs are only read: the drill works on a copy of the newest checkpoint, in a \
directory beside the state directory that is removed at the end. A pipeline may be running. Without a checkpoint it \
starts from the beginning of the input. docs/DRILL.md says what a verdict proves and what it does not.

Examples:
  floodmark drill pipeline.toml                         20 kills, 24 damages, about a minute
  floodmark drill pipeline.toml --for 10m --html d.html   ten minutes of kills, a report with plots
  floodmark drill --generate 500000                     without a pipeline: this machine and disk
  floodmark drill pipeline.toml --json | jq '.verdict'

Exit codes: 0 passed, 7 failed, 2 nothing was proved; the others as for every command."
)]
pub(crate) struct Arguments {
    /// The pipeline file (TOML); without one, --generate.
    #[arg(conflicts_with = "generate")]
    pipeline: Option<PathBuf>,
    /// How often to kill.
    #[arg(long, value_name = "NUMBER", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    kills: u32,
    /// Go on killing for so long, such as 10m, however many kills that makes.
    #[arg(long = "for", value_name = "DURATION", value_parser = generate::duration, conflicts_with = "kills")]
    time: Option<Duration>,
    /// How many damaged checkpoints to start from.
    #[arg(long, value_name = "NUMBER", default_value_t = 24, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    damages: u32,
    /// Decides which kills and damages; drawn and printed when left out.
    #[arg(long)]
    seed: Option<u64>,
    /// A run that is faster is slowed down to about this, so that kills find it at work.
    #[arg(long, value_name = "DURATION", value_parser = generate::duration, default_value = "2s")]
    run_time: Duration,
    /// Start from empty state although there is a checkpoint.
    #[arg(long)]
    fresh: bool,
    /// Drill on so many generated events and a pipeline made for them.
    #[arg(long, value_name = "EVENTS", value_parser = clap::value_parser!(u64).range(1..))]
    generate: Option<u64>,
    /// Run this executable instead of this one: another build of the same version.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Work in this directory, which must be empty or new, and leave everything there.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Also write a report with plots, one HTML file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print the report as one JSON object.
    #[arg(long)]
    json: bool,
    /// No progress.
    #[arg(long, short)]
    quiet: bool,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    console::start_log(true);
    let stop = StopFlag::default();
    let _signals = stop_on_signals(&stop)?;
    let clock = SystemClock::shared();
    check_html(arguments.html.as_deref())?;
    let seed = arguments.seed.unwrap_or_else(|| clock.wall_millis().unsigned_abs() % 1_000_000);
    let (mut scratch, pipeline, config) = prepare(arguments, seed)?;
    let mut progress = Progress::new(arguments.quiet, Arc::clone(&clock));
    progress.note(&format!("drilling in {}", scratch.root().display()));
    let drill = Drill { arguments, seed, pipeline, config, stop: stop.clone(), clock };
    let report = drill.carry_out(&mut scratch, &mut progress);
    progress.clear();
    match report {
        Err(_) if stop.is_set() => {
            let left = if scratch.is_kept() { "what was made is in" } else { "nothing is left in" };
            console::say(&format!("interrupted: {left} {}", scratch.root().display()));
            Ok(ExitCode::from(INTERRUPTED))
        }
        Err(error) => Err(error),
        Ok(report) => {
            if let Some(path) = &arguments.html {
                report.write_html(path)?;
            }
            console::print(&if arguments.json { report.to_json()? } else { report.to_text() })?;
            Ok(match report.verdict {
                Verdict::Pass => ExitCode::SUCCESS,
                Verdict::Fail => ExitCode::from(DIFFERENT),
                Verdict::Inconclusive => ExitCode::from(exit_code(ErrorKind::Invalid)),
            })
        }
    }
}

/// A report that cannot be written is found out before the drill.
fn check_html(path: Option<&Path>) -> Result<(), Error> {
    let Some(path) = path else { return Ok(()) };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if parent.is_dir() && !path.is_dir() {
        return Ok(());
    }
    let message = format!("the report cannot be written there: path={}", path.display());
    Err(Error::new(ErrorKind::Invalid, message)
        .with_remedy("name a file in a directory that exists with --html"))
}

/// The directory to work in, the pipeline file, and what it says.
fn prepare(arguments: &Arguments, seed: u64) -> Result<(Scratch, PathBuf, PipelineConfig), Error> {
    let Some(path) = &arguments.pipeline else {
        if arguments.generate.is_none() {
            return Err(Error::new(ErrorKind::Invalid, "there is nothing to drill")
                .with_remedy("name a pipeline file, or drill on made-up events: --generate 500000"));
        }
        let scratch = Scratch::new(arguments.keep.as_deref(), Path::new("state"))?;
        let events = arguments.generate.unwrap_or_default();
        let path = load::generate(events, seed, scratch.root())?;
        let config = PipelineConfig::load(&path)?;
        return Ok((scratch, path, config));
    };
    let config = PipelineConfig::load(path)?;
    if let Some(source) = config.sources.iter().find(|source| source.is_live()) {
        let message = format!("{}: standard input cannot be read again and again", source.declared_at);
        return Err(Error::new(ErrorKind::Invalid, message)
            .with_remedy("drill a pipeline over files that hold such input, or drill with --generate"));
    }
    let scratch = Scratch::new(arguments.keep.as_deref(), &config.state.directory)?;
    Ok((scratch, path.clone(), config))
}

/// A drill that is prepared.
struct Drill<'a> {
    arguments: &'a Arguments,
    seed: u64,
    pipeline: PathBuf,
    config: PipelineConfig,
    stop: StopFlag,
    clock: Arc<dyn Clock>,
}

impl Drill<'_> {
    fn carry_out(&self, scratch: &mut Scratch, progress: &mut Progress) -> Result<Report, Error> {
        let started = self.clock.monotonic();
        let outputs = redirect::outputs_of(&self.config);
        let mut runner = self.runner()?;
        progress.note("running without kills");
        let base = scratch.root().join("base");
        let turned = redirect::turned(&self.config);
        let base = match self.arguments.fresh || !turned.is_empty() {
            true => Base::empty(base),
            false => Base::copy_of(&self.config.state.directory, &outputs, base)?,
        };
        let measured = reference::measure(&runner, base, &outputs, self.arguments.run_time, scratch)?;
        runner.patience = measured.reference.length * PATIENCE_TIMES + Duration::from_secs(60);
        let mut report =
            Report::new(&self.config.name, self.seed, self.command(), Environment::here(), &measured);
        if !turned.is_empty() {
            report.notes.push(format!(
                "these outputs are files of text in the drill, and runs start with empty state: {}",
                turned.join(", ")
            ));
        }
        let trials = self.trials(&runner, &measured.base, &measured.reference, scratch, progress)?;
        let input_changed = trials.iter().any(|trial| !trial.differences.is_empty())
            && self.input_changed(&runner, &measured.base, &measured.reference, scratch)?;
        let damages = self.damages(&runner, &measured.base, &measured.reference, scratch, progress)?;
        report.judge(trials, damages, input_changed);
        if report.verdict == Verdict::Fail {
            scratch.keep();
        }
        if scratch.is_kept() {
            report.evidence = Some(scratch.root().to_owned());
        }
        report.seconds = self.clock.monotonic().saturating_sub(started).as_secs_f64();
        Ok(report)
    }

    fn runner(&self) -> Result<Runner, Error> {
        let program = match &self.arguments.program {
            Some(program) => program.clone(),
            None => std::env::current_exe().map_err(|error| {
                Error::new(ErrorKind::Unavailable, "cannot find this program").with_source(error)
            })?,
        };
        let interval = self.arguments.run_time / CHECKPOINTS_PER_RUN;
        Ok(Runner {
            program,
            pipeline: self.pipeline.clone(),
            interval_ms: i64::try_from(interval.as_millis().max(INTERVAL_MS_MIN)).unwrap_or(i64::MAX),
            // Nobody knows yet how long it takes.
            patience: Duration::MAX,
            clock: Arc::clone(&self.clock),
            stop: self.stop.clone(),
        })
    }

    fn trials(
        &self,
        runner: &Runner,
        base: &Base,
        reference: &Reference,
        scratch: &mut Scratch,
        progress: &mut Progress,
    ) -> Result<Vec<Trial>, Error> {
        let started = self.clock.monotonic();
        let planned = if self.arguments.time.is_some() { KILLS_MAX } else { self.arguments.kills };
        let (mut trials, mut kills, mut failed) = (Vec::new(), 0, 0);
        for number in 1.. {
            let time_is_up = |time| self.clock.monotonic().saturating_sub(started) >= time;
            if kills >= planned || self.arguments.time.is_some_and(time_is_up) {
                break;
            }
            let plan = plan::trial(self.seed, number, planned - kills);
            progress.trial(kills + 1, self.arguments.time.is_none().then_some(planned), failed);
            kills += plan.kills.len() as u32;
            let root = scratch.place(&format!("trial-{number:03}"))?;
            let trial = trial::carry_out(&plan, runner, base, reference, &root)?;
            failed += usize::from(!trial.is_good());
            if trial.is_good() && !scratch.is_kept() || failed > EVIDENCE_MAX {
                scratch::remove(&root)?;
            }
            trials.push(trial);
        }
        Ok(trials)
    }

    /// Runs without kills once more: where that differs as well, kills are not the reason.
    fn input_changed(
        &self,
        runner: &Runner,
        base: &Base,
        reference: &Reference,
        scratch: &Scratch,
    ) -> Result<bool, Error> {
        let root = scratch.place("again")?;
        base.lay_out(&root)?;
        let ended = runner.run(&root, process::How::default())?;
        Ok(ended.failure().is_some() || !reference.differences(&root)?.is_empty())
    }

    fn damages(
        &self,
        runner: &Runner,
        base: &Base,
        reference: &Reference,
        scratch: &Scratch,
        progress: &mut Progress,
    ) -> Result<Vec<Damage>, Error> {
        if self.arguments.damages == 0 {
            return Ok(Vec::new());
        }
        let Some(specimen) = Specimen::new(runner, base, reference, scratch)? else { return Ok(Vec::new()) };
        let plans = plan::damages(self.seed, self.arguments.damages, &specimen.present()?);
        let count = plans.len();
        plans
            .iter()
            .map(|plan| {
                progress.damage(plan.number, count);
                specimen.carry_out(plan, runner, reference, scratch)
            })
            .collect()
    }

    /// The command that does the same again.
    fn command(&self) -> String {
        let seed = self.seed;
        let Arguments { kills, time, damages, run_time, fresh, .. } = self.arguments;
        let subject = match (&self.arguments.pipeline, self.arguments.generate) {
            (Some(pipeline), _) => pipeline.display().to_string(),
            (None, events) => format!("--generate {}", events.unwrap_or_default()),
        };
        let length = time.map_or(format!("--kills {kills}"), |time| format!("--for {}ms", time.as_millis()));
        let fresh = if *fresh { " --fresh" } else { "" };
        format!(
            "floodmark drill {subject} --seed {seed} {length} --damages {damages} --run-time {}ms{fresh}",
            run_time.as_millis()
        )
    }
}
