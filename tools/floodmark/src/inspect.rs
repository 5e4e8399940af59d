//! `floodmark inspect`: the reports of `floodmark::inspect`, as tables or as JSON.

mod text;

use std::path::PathBuf;
use std::process::ExitCode;

use crate::console::print_report as print;
use crate::{CommandResult, console, exit_code};
use clap::{Args, Subcommand};
use floodmark::clock::{Clock, SystemClock};
use floodmark::error::{Error, ErrorKind};
use floodmark::inspect::{self, Key, Which, parse_base64};

/// Arguments of `floodmark inspect`.
#[derive(Debug, Args)]
#[command(
    after_help = "PATH is a state directory, its directory `checkpoints`, or one checkpoint, also one that was \
copied elsewhere. Nothing is written and no lock is taken: a pipeline may be running on it.

Examples:
  floodmark inspect list state/                     which checkpoints there are
  floodmark inspect show state/ --at 12             offsets, watermark, definitions, files
  floodmark inspect windows state/ --key JFK        every pane of one key, with its aggregates
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
    /// Prove a checkpoint: every file against its checksum, every row read back. Exit code 5 when it is damaged.
    #[command(after_help = "Examples:
  floodmark inspect verify state/                   the newest
  floodmark inspect verify state/ --all
  floodmark inspect verify /backup/chk-0000000012   a copy")]
    Verify(Verify),
}

#[derive(Debug, Args)]
struct Place {
    /// A state directory, its directory `checkpoints`, or one checkpoint.
    path: PathBuf,
    /// Print the same facts as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct One {
    #[command(flatten)]
    place: Place,
    /// The checkpoint of this epoch instead of the newest.
    #[arg(long, value_name = "EPOCH")]
    at: Option<u64>,
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
    /// The panes of this key; repeat it for each field of a composite key.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    key: Vec<String>,
    /// As --key, for keys that are not text.
    #[arg(long, value_name = "B64", conflicts_with = "key")]
    key_base64: Vec<String>,
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
            let list = inspect::list(&place.path, now_ms)?;
            print(place.json, &list, |list| text::list(list))?;
        }
        Report::Show(One { place, at }) => {
            let details = inspect::show(&place.path, *at, now_ms)?;
            print(place.json, &details, text::show)?;
        }
        Report::Windows(arguments) => windows(arguments, now_ms)?,
        Report::Verify(arguments) => return verify(arguments),
    }
    Ok(ExitCode::SUCCESS)
}

fn windows(arguments: &Windows, now_ms: i64) -> Result<(), Error> {
    let Windows { one: One { place, at }, window, top, .. } = arguments;
    match asked_key(arguments)? {
        Some(key) => {
            let report = inspect::key_panes(&place.path, *at, window.as_deref(), &key, now_ms)?;
            print(place.json, &report, text::key_panes)
        }
        None => {
            let report = inspect::windows(&place.path, *at, window.as_deref(), *top, now_ms)?;
            print(place.json, &report, text::windows)
        }
    }
}

fn asked_key(arguments: &Windows) -> Result<Option<Key>, Error> {
    let text = arguments.key.iter().map(|component| Ok(component.clone().into_bytes()));
    let base64 = arguments.key_base64.iter().map(|component| {
        parse_base64(component).ok_or_else(|| {
            Error::new(ErrorKind::Invalid, format!("this is not base64: --key-base64={component:?}"))
                .with_remedy("give the standard alphabet of RFC 4648, or use --key for a key that is text")
        })
    });
    let components = text.chain(base64).collect::<Result<Vec<_>, Error>>()?;
    Ok(if components.is_empty() { None } else { Some(Key(components)) })
}

fn verify(arguments: &Verify) -> CommandResult {
    let Verify { one: One { place, at }, all } = arguments;
    let which = match at {
        _ if *all => Which::All,
        Some(epoch) => Which::At(*epoch),
        None => Which::Newest,
    };
    let verified = inspect::verify(&place.path, which)?;
    print(place.json, &verified, |verified| text::verify(verified))?;
    let sound = verified.iter().all(|checkpoint| checkpoint.sound);
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::from(exit_code(ErrorKind::Damaged)) })
}
