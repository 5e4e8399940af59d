//! `floodmark bench`: the whole pipeline, from text files to exactly-once files, next to an in-memory reference that
//! reads the same bytes in the same run.

mod beyond_memory;
mod latency;
mod pipeline;
mod reference;
mod report;
mod state_size;
mod workload;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use floodmark::error::{Error, ErrorKind};
use floodmark::pipeline::generate::TextFormat;

use crate::generate::{Progress, Shape, write_files};
use crate::{CommandResult, console};

use report::{Measured, Report, ShapeReport, median};

/// The seed of every benchmark's stream.
const SEED: u64 = 1;
/// Text and state of one event on disk, about; three checkpoints and the output included.
const DISK_BYTES_PER_EVENT: u64 = 400;

/// Arguments of `floodmark bench`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:
  floodmark bench                                both shapes, 5 million events, three times
  floodmark bench --shape s4 --events 20000000   one shape, longer
  floodmark bench --dir /data/bench --json       on another disk; the text stays there
  floodmark bench latency                        from the closing event to the result, under load
  floodmark bench beyond-memory                  state of eight times the memory budget
  floodmark bench state-size --out sizes         state size against watermark delay, with plots

The reference reads the text with one thread into a hash map and keeps nothing; it is the speed of light for this \
work on this machine. The pipeline is `floodmark run` with checkpoints every 10 s. Build with --release. \
docs/PERFORMANCE.md has what was measured.")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    other: Option<Other>,
    /// What to run.
    #[arg(long, value_enum, default_value_t = Which::All)]
    shape: Which,
    /// Events of each stream.
    #[arg(long, short = 'n', default_value_t = 5_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    events: u64,
    /// How often each is run; the median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repetitions: u32,
    /// Memory budget of the pipeline, in MiB; at least 16.
    #[arg(long, value_name = "MIB", default_value_t = 512, value_parser = clap::value_parser!(u64).range(16..))]
    memory: u64,
    /// Where text, state and output go; the text stays and is used again. A temporary directory when left out.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
    /// Nothing but the report.
    #[arg(long, short)]
    quiet: bool,
}

/// What else can be measured.
#[derive(Debug, Subcommand)]
enum Other {
    /// How long results take from the event that closes their window, under steady load.
    Latency(latency::Arguments),
    /// How fast a pipeline is whose state is many times its memory budget.
    BeyondMemory(beyond_memory::Arguments),
    /// How large the state becomes against the watermark delay, and whether it stays that large.
    StateSize(state_size::Arguments),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Which {
    S1,
    S4,
    All,
}

impl Which {
    fn shapes(self) -> &'static [Shape] {
        match self {
            Self::S1 => &[Shape::S1],
            Self::S4 => &[Shape::S4],
            Self::All => &[Shape::S1, Shape::S4],
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    match &arguments.other {
        Some(Other::Latency(arguments)) => return latency::run(arguments),
        Some(Other::BeyondMemory(arguments)) => return beyond_memory::run(arguments),
        Some(Other::StateSize(arguments)) => return state_size::run(arguments),
        None => {}
    }
    let place = directory(arguments.dir.as_deref())?;
    warn_of_debug(arguments.quiet);
    let shapes = arguments.shape.shapes().iter().map(|&shape| measure(shape, arguments, place.path()));
    let report = Report {
        events: arguments.events,
        repetitions: arguments.repetitions,
        memory_budget_bytes: arguments.memory << 20,
        shapes: shapes.collect::<Result<_, Error>>()?,
    };
    console::print(&if arguments.json { report.to_json()? } else { report.to_table() })?;
    Ok(ExitCode::SUCCESS)
}

/// Where a benchmark works.
enum Place {
    Given(PathBuf),
    /// Removed with all that is in it.
    Temporary(tempfile::TempDir),
}

impl Place {
    fn path(&self) -> &Path {
        match self {
            Self::Given(dir) => dir,
            Self::Temporary(dir) => dir.path(),
        }
    }
}

/// The directory that was asked for, made if need be, or a temporary one.
fn directory(given: Option<&Path>) -> Result<Place, Error> {
    if let Some(dir) = given {
        std::fs::create_dir_all(dir).map_err(|error| unavailable("cannot create", dir, error))?;
        return Ok(Place::Given(dir.to_owned()));
    }
    let place = std::env::temp_dir();
    let made = tempfile::Builder::new().prefix("floodmark-bench-").tempdir_in(&place);
    made.map(Place::Temporary).map_err(|error| unavailable("cannot create a directory", &place, error))
}

fn warn_of_debug(quiet: bool) {
    if cfg!(debug_assertions) && !quiet {
        console::say("this is a debug build: build with --release for figures that mean something");
    }
}

/// Runs reference and pipeline by turns, so that a machine that slows down slows both.
fn measure(shape: Shape, arguments: &Arguments, dir: &Path) -> Result<ShapeReport, Error> {
    let name = match shape {
        Shape::S1 => "s1",
        Shape::S4 => "s4",
    };
    let text = stream(shape, name, arguments, dir)?;
    let setup = pipeline::Setup {
        text: &text,
        dir,
        name,
        memory_mib: arguments.memory,
        window: "1m",
        close_at_end: true,
        show: false,
    };
    let (mut light, mut whole) = (Vec::new(), Vec::new());
    for repetition in 1..=arguments.repetitions {
        if !arguments.quiet {
            console::say(&format!("{name}: run {repetition} of {}", arguments.repetitions));
        }
        let reference = reference::measure(&text)?;
        let pipeline = pipeline::measure(&setup)?;
        agree(&reference, &pipeline)?;
        light.push(reference);
        whole.push(pipeline);
    }
    Ok(ShapeReport::new(name, arguments.memory << 20, median(light)?, median(whole)?))
}

/// Both have to come to the same number of results, or one of them did not do the work.
fn agree(reference: &Measured, pipeline: &Measured) -> Result<(), Error> {
    if (reference.events, reference.results) == (pipeline.events, pipeline.results) {
        return Ok(());
    }
    let message = format!(
        "reference and pipeline differ: events={}/{} results={}/{}",
        reference.events, pipeline.events, reference.results, pipeline.results
    );
    Err(Error::new(ErrorKind::Bug, message))
}

/// The text of a shape, generated unless it is there from the last time.
fn stream(shape: Shape, name: &str, arguments: &Arguments, dir: &Path) -> Result<PathBuf, Error> {
    let path = dir.join(format!("{name}-{}-seed{SEED}.jsonl", arguments.events));
    if path.exists() {
        return Ok(path);
    }
    if !arguments.quiet {
        let mib = arguments.events.saturating_mul(DISK_BYTES_PER_EVENT) >> 20;
        console::say(&format!("{name}: generating {}; up to {mib} MiB of disk will be used", path.display()));
    }
    let mut progress = Progress::new(arguments.events, arguments.quiet);
    write_files(shape.spec(arguments.events), SEED, TextFormat::Jsonl, &path, false, &mut progress)?;
    Ok(path)
}

fn unavailable(what: &str, path: &Path, error: std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{what}: path={}", path.display()))
        .with_remedy("give a directory that can be written with --dir")
        .with_source(error)
}
