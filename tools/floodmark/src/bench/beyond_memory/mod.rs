//! `floodmark bench beyond-memory`: the same pipeline twice in one run, with state that fits its memory budget and with
//! state many times as large, from text to exactly-once files.
//!
//! Keys come evenly from all of them, which is the worst that can be: no part of the state is left alone for long. The
//! window stays open until all is read, so that taking in and firing are measured apart.

mod report;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use floodmark::checkpoint::SourceIdentity;
use floodmark::error::{Error, ErrorKind};
use floodmark::event::{EventBatch, Number};
use floodmark::event_time::{EventTime, Span, Tumbling};
use floodmark::inspect;
use floodmark::operator::{Emit, LateEvent, OperatorSpec, Rejection, ResultBlock};
use floodmark::pipeline::generate::{Generator, Spec, TextFormat};
use floodmark::store::WindowStore;

use super::pipeline::{self, Setup};
use super::{directory, unavailable, workload};
use crate::generate::{Progress, write_files};
use crate::run::grouped;
use crate::{CommandResult, console};

use report::{Report, RunReport};

/// Length of the window; the streams are shorter.
const WINDOW: &str = "30d";
/// Events per second of event time: a stream is minutes long, whatever its number of events.
const RATE: u64 = 200_000;
/// State of the run within the budget, as a share of it: panes in memory get two fifths.
const WITHIN_SHARE: f64 = 0.2;
/// Panes of the probe that tells what one takes.
const PROBE_PANES: u64 = 200_000;
/// Exit code when memory was not kept to, or the state was not as large as asked for.
const RULE_BROKEN: u8 = 7;
/// Text and output of one event on disk, about.
const DISK_BYTES_PER_EVENT: u64 = 250;

/// Arguments of `floodmark bench beyond-memory`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  floodmark bench beyond-memory                         8 times a budget of 512 MiB
  floodmark bench beyond-memory --memory 64             the same with less, and sooner done
  floodmark bench beyond-memory --memory 64 --times 64  8 times the budget on disk as well

State counts as what its panes would take in memory. Peak memory is that of the pipeline's own process. Exit code 7 \
when it broke the rule of 1.25 times the budget and 100 MB, or the state did not come to its size. Build with \
--release. docs/PERFORMANCE.md has what was measured.")]
pub(super) struct Arguments {
    /// Memory budget of the pipeline, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 512, value_parser = clap::value_parser!(u64).range(16..=1_048_576))]
    memory: u64,
    /// How many times the budget the state is to be.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=1_000))]
    times: u32,
    /// Events per key, on average.
    #[arg(long, value_name = "EVENTS", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    events_per_key: u32,
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

/// A stream, and what it has to lead to.
struct Stream {
    text: PathBuf,
    events: u64,
    panes: u64,
}

pub(super) fn run(arguments: &Arguments) -> CommandResult {
    let place = directory(arguments.dir.as_deref())?;
    super::warn_of_debug(arguments.quiet);
    let report = measure(arguments, place.path())?;
    console::print_report(arguments.json, &report, Report::to_table)?;
    Ok(if report.holds() { ExitCode::SUCCESS } else { ExitCode::from(RULE_BROKEN) })
}

fn measure(arguments: &Arguments, dir: &Path) -> Result<Report, Error> {
    let budget = arguments.memory << 20;
    let pane_bytes = probe(dir)?;
    let panes = |bytes: f64| (bytes / pane_bytes) as u64;
    // Of keys drawn at random some never come.
    let drawn = 1.0 - (-f64::from(arguments.events_per_key)).exp();
    let keys_beyond = (panes(budget as f64 * f64::from(arguments.times)) as f64 * 1.01 / drawn) as u64;
    let keys_within = panes(budget as f64 * WITHIN_SHARE).max(1);
    let events = keys_beyond.saturating_mul(arguments.events_per_key.into());
    if !arguments.quiet {
        let mib = events.saturating_mul(DISK_BYTES_PER_EVENT) >> 20;
        console::say(&format!(
            "a pane takes {pane_bytes:.0} bytes: {} keys, {} events; up to {mib} MiB of disk will be used",
            grouped(keys_beyond),
            grouped(events)
        ));
    }
    let within = stream(keys_within, events, arguments, dir)?;
    let beyond = stream(keys_beyond, events, arguments, dir)?;
    let within = measure_one("within", &within, pane_bytes, arguments, dir)?;
    let beyond = measure_one("beyond", &beyond, pane_bytes, arguments, dir)?;
    Ok(Report::new(budget, arguments.times, pane_bytes, within, beyond))
}

/// Takes a stream in, then closes what is open.
fn measure_one(
    name: &'static str,
    stream: &Stream,
    pane_bytes: f64,
    arguments: &Arguments,
    dir: &Path,
) -> Result<RunReport, Error> {
    let show = !arguments.quiet;
    let setup = Setup {
        text: &stream.text,
        dir,
        name,
        memory_mib: arguments.memory,
        window: WINDOW,
        close_at_end: false,
        show,
    };
    let say = |line: &str| {
        if show {
            console::say(line);
        }
    };
    let work = setup.work();
    pipeline::remove(&work)?;
    say(&format!("{name}: taking in {} events", grouped(stream.events)));
    let taken = pipeline::run(&setup)?;
    let disk_bytes = checkpoint_bytes(&work.join("state"))?;
    say(&format!("{name}: closing {} panes", grouped(stream.panes)));
    let closed = pipeline::run(&Setup { close_at_end: true, ..setup })?;
    pipeline::remove(&work)?;
    if (taken.events, taken.results, closed.results) != (stream.events, 0, stream.panes) {
        let message = format!(
            "the pipeline did not do its work: events={}/{} early={} results={}/{}",
            taken.events, stream.events, taken.results, closed.results, stream.panes
        );
        return Err(Error::new(ErrorKind::Bug, message));
    }
    Ok(RunReport::new(name, arguments.memory << 20, pane_bytes, disk_bytes, taken, closed))
}

/// Bytes of the files of the newest checkpoint.
fn checkpoint_bytes(state: &Path) -> Result<u64, Error> {
    let listed = inspect::list(state, 0)?;
    listed
        .last()
        .and_then(|newest| newest.bytes)
        .ok_or_else(|| Error::new(ErrorKind::Bug, "the pipeline left no checkpoint"))
}

/// The text of a stream, generated unless it is there from the last time, and the panes that it makes.
fn stream(keys: u64, events: u64, arguments: &Arguments, dir: &Path) -> Result<Stream, Error> {
    let spec = Spec { keys, rate: RATE, ..Spec::s1(events) };
    let text = dir.join(format!("keys-{keys}-{events}-seed{}.jsonl", super::SEED));
    let panes = distinct(Generator::new(spec.clone(), super::SEED).map_err(too_large)?, keys);
    if !text.exists() {
        if !arguments.quiet {
            console::say(&format!("generating {}", text.display()));
        }
        let mut progress = Progress::new(events, arguments.quiet);
        write_files(spec, super::SEED, TextFormat::Jsonl, &text, false, &mut progress)?;
    }
    Ok(Stream { text, events, panes })
}

fn too_large(error: Error) -> Error {
    Error::new(ErrorKind::Invalid, "the state would have too many panes")
        .with_remedy("give less --memory, or fewer --times")
        .with_source(error)
}

/// Keys that come in a stream.
fn distinct(events: Generator, keys: u64) -> u64 {
    let mut seen = vec![0_u64; (keys as usize).div_ceil(64)];
    for event in events {
        seen[event.key as usize / 64] |= 1 << (event.key % 64);
    }
    seen.iter().map(|word| u64::from(word.count_ones())).sum()
}

/// Bytes of memory that a pane takes while it is in memory.
fn probe(dir: &Path) -> Result<f64, Error> {
    let state = dir.join("probe");
    pipeline::remove(&state)?;
    let bug = |error| Error::new(ErrorKind::Bug, "the window of the probe cannot be").with_source(error);
    let window = Tumbling::new(Span::from_millis(86_400_000).unwrap_or_default(), 0).map_err(bug)?;
    let mut store = WindowStore::builder("probe")
        .window(OperatorSpec::new("probe", window, &["key"], workload::aggregates()))
        .open(&state)?;
    let (partition, _) = store.partition("probe", SourceIdentity::default())?;
    let mut batch = workload::batch(partition);
    for key in 0..PROBE_PANES {
        let key = format!("k{key:08}");
        batch.push_event(EventTime::from_millis(0), &[key.as_bytes()], &[Some(Number::Int(1))]);
    }
    store.process(&batch, &mut Nothing)?;
    let bytes = store.hot_bytes() as f64 / store.resident_panes().max(1) as f64;
    drop(store);
    std::fs::remove_dir_all(&state).map_err(|error| unavailable("cannot remove", &state, error))?;
    Ok(bytes)
}

/// Nothing closes in the probe.
struct Nothing;

impl Nothing {
    fn unexpected() -> Error {
        Error::new(ErrorKind::Bug, "the probe is to emit nothing")
    }
}

impl Emit for Nothing {
    type Error = Error;

    fn results(&mut self, _operator: usize, _block: &mut dyn ResultBlock) -> Result<(), Error> {
        Err(Self::unexpected())
    }

    fn late(&mut self, _operator: usize, _event: LateEvent<'_>) -> Result<(), Error> {
        Err(Self::unexpected())
    }

    fn rejected(&mut self, _batch: &EventBatch, _index: usize, _rejection: Rejection) -> Result<(), Error> {
        Err(Self::unexpected())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_come_are_counted_once() {
        let spec = Spec { keys: 100, ..Spec::s1(3_000) };
        assert_eq!(distinct(Generator::new(spec, 1).expect("a stream"), 100), 100);
        let spec = Spec { keys: 100, ..Spec::s1(1) };
        assert_eq!(distinct(Generator::new(spec, 1).expect("a stream"), 100), 1);
    }

    #[test]
    fn the_probe_tells_what_a_pane_takes() {
        let dir = tempfile::tempdir().expect("a directory");
        let bytes = probe(dir.path()).expect("a probe");
        assert!((64.0..512.0).contains(&bytes), "{bytes}");
    }
}
