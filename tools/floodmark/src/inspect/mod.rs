//! `floodmark inspect`: the reports of `floodmark::inspect`, as tables or as JSON.

mod diff;
mod export;
mod fsck;
mod growth;
mod leaks;
mod panes;
mod place;
mod stats;
mod text;
mod why;

use std::process::ExitCode;

use crate::console::print_report as print;
use crate::{CommandResult, console, exit_code};
use clap::{Args, Subcommand};
use floodmark::clock::{Clock, SystemClock};
use floodmark::error::{Error, ErrorKind};
use floodmark::inspect::{self, Which};
use place::{KeyArguments, Need, One, Place};

/// Arguments of `floodmark inspect`.
#[derive(Debug, Args)]
#[command(
    after_help = "PATH is a state directory, its directory `checkpoints`, one checkpoint, also one that was copied \
elsewhere, a pipeline file whose state it is, or the URL of a repository (s3://bucket/prefix, file:///mnt/shared), of \
which what is needed is fetched into a temporary directory. Nothing is written and no lock is taken: a pipeline may be \
running on it.

Examples:
  floodmark inspect list state/                     which checkpoints there are
  floodmark inspect show state/ --at 12             offsets, watermark, definitions, files
  floodmark inspect windows state/ --key JFK        every pane of one key, with its aggregates
  floodmark inspect panes state/ --status expired   panes and where they stand against the watermark
  floodmark inspect why state/ JFK 2013-01-01T05:00:00Z    why a window has not closed
  floodmark inspect diff state/                     what came between the newest and the one before
  floodmark inspect list s3://bucket/flights        the checkpoints of a repository
  floodmark inspect verify /backup/chk-0000000012   whether a copy is whole; exit code 5 when not"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    report: Report,
}

#[derive(Debug, Subcommand)]
enum Report {
    /// List the checkpoints, oldest first.
    #[command(after_help = "Examples:
  floodmark inspect list state/
  floodmark inspect list state/ --json | jq '.[-1].watermark'")]
    List(Place),
    /// Show what one checkpoint says of itself: offsets, watermark, definitions, files, outputs, counters.
    #[command(after_help = "Examples:
  floodmark inspect show state/                     the newest
  floodmark inspect show state/ --at 12
  floodmark inspect show /backup/chk-0000000012 --json")]
    Show(One),
    /// Show the windows in a checkpoint and their largest keys, or the panes of one key.
    #[command(after_help = "Examples:
  floodmark inspect windows state/                  windows, and the ten keys with the most events
  floodmark inspect windows state/ --window hourly --top 50
  floodmark inspect windows state/ --key JFK        the panes of one key, with their aggregates
  floodmark inspect windows state/ --key JFK --key 7    one --key for each field of the key")]
    Windows(Windows),
    /// List panes with their status: by window, key, beginning of a key, time and status; expired ones too.
    #[command(after_help = "Examples:
  floodmark inspect panes state/ --status accepts-late,closing
  floodmark inspect panes state/ --window hourly --key-prefix J --limit 1000
  floodmark inspect panes pipeline.toml --from 2013-01-01T05:00:00Z --to 2013-01-01T07:00:00Z
  floodmark inspect panes state/ --status expired --json | jq '.operators[].totals'

STATUS, against the checkpoint's own watermark W:
  open          takes events: W has not reached its end
  closing       W has reached its end, and it is yet to fire: a long firing was under way
  accepts-late  has fired, and takes late events until its allowed lateness has passed
  expired       takes no more events; still on disk")]
    Panes(panes::Panes),
    /// Tell why a window of a key has closed, or has not: what holds the watermark back, and what would close it.
    #[command(after_help = "Examples:
  floodmark inspect why pipeline.toml JFK 2013-01-01T05:00:00Z
  floodmark inspect why state/ JFK LAX 2013-01-01T05:00:00Z --window pairs   a word for each field
  floodmark inspect why state/ JFK 2013-01-01T05:00:00Z..2013-01-01T06:00:00Z --at 12
  floodmark inspect why state/ --json -- -dash 1357016400000    a key that begins with a dash

It answers from a checkpoint alone. `floodmark explain` tells the same from the input, event by event.")]
    Why(why::Arguments),
    /// Tell what is past its expiry and still on disk: rows, files, bytes that would be free, and the reason.
    #[command(after_help = "Examples:
  floodmark inspect leaks state/
  floodmark inspect leaks state/ --json | jq '.operators[].reasons[] | {reason, rows}'

Rows that expired in the epoch of the checkpoint are in every checkpoint; horizon-behind is what should be gone.")]
    Leaks(One),
    /// Compare two checkpoints: how far watermarks and offsets went, which windows appeared, changed and went.
    #[command(after_help = "Examples:
  floodmark inspect diff state/                       the newest and its parent
  floodmark inspect diff state/ --before 11 --after 14 --window hourly
  floodmark inspect diff /backup/chk-0000000012 state/    a copy and the newest
  floodmark inspect diff state/ --key JFK --json | jq '.operators[].windows'")]
    Diff(diff::Arguments),
    /// Tell what the state is made of: by window, by beginning of the key, the largest panes, sessions, what is due when.
    #[command(after_help = "Examples:
  floodmark inspect stats state/
  floodmark inspect stats state/ --window hourly --prefix-chars 3 --top 20
  floodmark inspect stats state/ --json | jq '.operators[].timers.next_closings'")]
    Stats(stats::Arguments),
    /// Tell how the state has grown over the checkpoints that are still there, as a table and a plot.
    #[command(after_help = "Examples:
  floodmark inspect growth state/
  floodmark inspect growth state/ --plot .          growth.svg and growth.png here
  floodmark inspect growth s3://bucket/flights      over the history that a repository keeps")]
    Growth(growth::Arguments),
    /// Write panes into files that other tools read: Parquet, CSV or JSON lines, one for each window.
    #[command(after_help = "Examples:
  floodmark inspect export state/ --into /tmp/panes
  duckdb -c \"select pane_status, count(*) from '/tmp/panes/hourly.parquet' group by 1\"
  floodmark inspect export state/ --into /tmp/late --status accepts-late --format csv

Columns: the key fields, window_start, window_end, pane_status, pane_events, pane_emissions, pane_bytes,
pane_problem, the aggregates. Of windows that share slices each row is a slice of a key.")]
    Export(export::Arguments),
    /// Prove a checkpoint: every file against its checksum, every row read back. Exit code 5 when it is damaged.
    #[command(after_help = "Examples:
  floodmark inspect verify state/                   the newest
  floodmark inspect verify state/ --all
  floodmark inspect verify /backup/chk-0000000012   a copy")]
    Verify(Verify),
    /// Prove all that can be proven: verify, every reference, what must hold in a checkpoint and from one to the next.
    #[command(after_help = "Examples:
  floodmark inspect fsck state/                     the newest, and what is around it
  floodmark inspect fsck state/ --all
  floodmark inspect fsck s3://bucket/flights        what a restore would get

Each finding names the rule it breaks and what to do. Exit code 5 when there is a problem, 0 with warnings alone.")]
    Fsck(Verify),
}

#[derive(Debug, Args)]
struct Windows {
    #[command(flatten)]
    one: One,
    /// Only this window of the pipeline.
    #[arg(long, value_name = "NAME")]
    window: Option<String>,
    /// How many keys to name.
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    #[command(flatten)]
    key: KeyArguments,
}

#[derive(Debug, Args)]
struct Verify {
    #[command(flatten)]
    one: One,
    /// Every checkpoint that is there.
    #[arg(long, conflicts_with = "at")]
    all: bool,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    console::start_log(true);
    let now_ms = SystemClock::new().wall_millis();
    match &arguments.report {
        Report::List(place) => {
            let located = place.locate(Need::Manifests)?;
            let mut list = inspect::list(&located.path, now_ms)?;
            list.iter_mut().for_each(|checkpoint| located.name(&mut checkpoint.path));
            print(place.json, &list, |list| text::list(list))?;
        }
        Report::Show(One { place, at }) => {
            let located = place.locate(Need::Manifests)?;
            let mut details = inspect::show(&located.path, *at, now_ms)?;
            located.name(&mut details.path);
            print(place.json, &details, text::show)?;
        }
        Report::Windows(arguments) => windows(arguments, now_ms)?,
        Report::Panes(arguments) => panes::run(arguments, now_ms)?,
        Report::Leaks(arguments) => leaks::run(arguments, now_ms)?,
        Report::Diff(arguments) => diff::run(arguments, now_ms)?,
        Report::Stats(arguments) => stats::run(arguments, now_ms)?,
        Report::Growth(arguments) => growth::run(arguments)?,
        Report::Export(arguments) => export::run(arguments, now_ms)?,
        Report::Why(arguments) => why::run(arguments, now_ms)?,
        Report::Verify(arguments) => return verify(arguments),
        Report::Fsck(arguments) => return fsck::run(arguments),
    }
    Ok(ExitCode::SUCCESS)
}

fn windows(arguments: &Windows, now_ms: i64) -> Result<(), Error> {
    let Windows { one: One { place, at }, window, top, .. } = arguments;
    let key = arguments.key.asked()?;
    let located = place.locate(Need::Checkpoint(*at))?;
    match key {
        Some(key) => {
            let mut report = inspect::key_panes(&located.path, *at, window.as_deref(), &key, now_ms)?;
            located.name(&mut report.checkpoint.path);
            print(place.json, &report, text::key_panes)
        }
        None => {
            let mut report = inspect::windows(&located.path, *at, window.as_deref(), *top, now_ms)?;
            located.name(&mut report.checkpoint.path);
            print(place.json, &report, text::windows)
        }
    }
}

fn verify(arguments: &Verify) -> CommandResult {
    let place = &arguments.one.place;
    let (which, need) = arguments.which();
    let located = place.locate(need)?;
    let mut verified = inspect::verify(&located.path, which)?;
    verified.iter_mut().for_each(|checkpoint| located.name(&mut checkpoint.path));
    print(place.json, &verified, |verified| text::verify(verified))?;
    Ok(verdict(verified.iter().all(|checkpoint| checkpoint.sound)))
}

impl Verify {
    /// Which checkpoints, and what is needed of a repository for that.
    fn which(&self) -> (Which, Need) {
        match self.one.at {
            _ if self.all => (Which::All, Need::All),
            Some(epoch) => (Which::At(epoch), Need::Checkpoint(Some(epoch))),
            None => (Which::Newest, Need::Checkpoint(None)),
        }
    }
}

fn verdict(sound: bool) -> ExitCode {
    if sound { ExitCode::SUCCESS } else { ExitCode::from(exit_code(ErrorKind::Damaged)) }
}
