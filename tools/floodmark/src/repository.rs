//! `floodmark repository`: looks into a repository of checkpoints, brings one back, and collects what nobody needs.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use floodmark::clock::{Clock, SystemClock};
use floodmark::error::{Error, ErrorKind};
use floodmark::repository::{self, Location, Repository, RepositoryEntry, Retry};
use serde_json::json;

use crate::run::grouped;
use crate::table::Table;
use crate::{CommandResult, console};

/// Arguments of `floodmark repository`.
#[derive(Debug, Args)]
#[command(
    after_help = "URL is what `checkpoint.repository` of the pipeline file says: a directory, s3://bucket/prefix, \
gs://bucket/prefix, az://container/prefix. Credentials and endpoints come from the environment (AWS_*, GOOGLE_*, \
AZURE_*).

Examples:
  floodmark repository list s3://bucket/flights
  floodmark repository fetch s3://bucket/flights --into /tmp/chk   the newest, verified
  floodmark repository gc s3://bucket/flights --dry-run            what retention lets go"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the checkpoints, oldest first.
    #[command(after_help = "Examples:
  floodmark repository list s3://bucket/flights
  floodmark repository list /mnt/shared/flights --json")]
    List(Place),
    /// Bring one checkpoint into a new directory; what a cut fetch left is gone on with.
    #[command(after_help = "Examples:
  floodmark repository fetch s3://bucket/flights --into /tmp/chk            the newest
  floodmark repository fetch s3://bucket/flights --into /tmp/chk --at 12
  floodmark restore --from /tmp/chk --state state-2 --as-fork               and go on from it")]
    Fetch(Fetch),
    /// Delete old checkpoints and what cut uploads left. A pipeline may be running; it does the same by itself.
    #[command(after_help = "Examples:
  floodmark repository gc s3://bucket/flights --dry-run
  floodmark repository gc s3://bucket/flights --keep 10")]
    Gc(Gc),
}

#[derive(Debug, Args)]
struct Place {
    /// The repository.
    url: String,
    /// Print the same facts as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Fetch {
    #[command(flatten)]
    place: Place,
    /// The checkpoint of this epoch instead of the newest.
    #[arg(long, value_name = "EPOCH")]
    at: Option<u64>,
    /// The directory that becomes the checkpoint.
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
}

#[derive(Debug, Args)]
struct Gc {
    #[command(flatten)]
    place: Place,
    /// Checkpoints to keep; not fewer than `retain` of the pipeline that runs.
    #[arg(long, value_name = "N", default_value = "3")]
    keep: NonZeroU32,
    /// Print the plan and delete nothing.
    #[arg(long)]
    dry_run: bool,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    console::start_log(true);
    match &arguments.action {
        Action::List(place) => list(place)?,
        Action::Fetch(arguments) => fetch(arguments)?,
        Action::Gc(arguments) => gc(arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn open(place: &Place) -> Result<Arc<dyn Repository>, Error> {
    let location = Location::parse(&place.url, Path::new(""))?;
    // A run makes the directory; to look into one that is not there is a slip.
    if let Location::Directory(path) = &location
        && !path.is_dir()
    {
        let message = format!("there is no such directory: path={}", path.display());
        return Err(Error::new(ErrorKind::Invalid, message)
            .with_remedy("give what `checkpoint.repository` of the pipeline file says"));
    }
    Ok(location.open()?)
}

fn list(place: &Place) -> Result<(), Error> {
    let entries = repository::list(open(place)?.as_ref(), &Retry::default())?;
    if place.json {
        return print_json(&json!(entries));
    }
    if entries.is_empty() {
        return console::print("no checkpoints\n");
    }
    let mut table =
        Table::new(&[">epoch", ">generation", "created", "watermark", ">files", ">bytes", ">new bytes", ""]);
    for entry in &entries {
        table.row(row(entry));
    }
    console::print(&table.render(0))
}

fn row(entry: &RepositoryEntry) -> Vec<String> {
    let number = |number: Option<u64>| number.map(grouped).unwrap_or_default();
    vec![
        entry.epoch.to_string(),
        entry.generation.to_string(),
        entry.created_at.clone().unwrap_or_default(),
        entry.watermark.clone().unwrap_or_default(),
        number(entry.files),
        number(entry.bytes),
        number(entry.new_bytes),
        entry.problem.clone().unwrap_or_default(),
    ]
}

fn fetch(arguments: &Fetch) -> Result<(), Error> {
    let Fetch { place, at, into } = arguments;
    if into.is_file() {
        let message = format!("this is a file: path={}", into.display());
        return Err(Error::new(ErrorKind::Invalid, message).with_remedy(
            "name a directory that does not exist, or the one of a fetch that was cut, with --into",
        ));
    }
    let verified = repository::fetch(open(place)?.as_ref(), *at, into)?;
    let (epoch, bytes) = (verified.manifest().epoch, verified.manifest().database_bytes());
    if place.json {
        return print_json(&json!({ "epoch": epoch, "bytes": bytes, "path": into }));
    }
    console::print(&format!("checkpoint {epoch}, {} bytes, verified: {}\n", grouped(bytes), into.display()))
}

fn gc(arguments: &Gc) -> Result<(), Error> {
    let Gc { place, keep, dry_run } = arguments;
    let now_ms = SystemClock::new().wall_millis();
    let repository = open(place)?;
    let plan = repository::collect(repository.as_ref(), &Retry::default(), *keep, now_ms, *dry_run)?;
    if !place.json {
        let done = if *dry_run { "nothing was deleted (--dry-run)" } else { "done" };
        return console::print(&format!("{plan}{done}\n"));
    }
    let key = |key: &repository::ManifestKey| json!({ "epoch": key.epoch, "generation": key.generation });
    let keep: Vec<_> = plan.keep.iter().map(|(kept, _)| key(kept)).collect();
    let retire: Vec<_> = plan.retire.iter().map(key).collect();
    let delete: Vec<_> = plan.delete.iter().map(|(name, ..)| name).collect();
    print_json(&json!({
        "dry_run": dry_run, "keep": keep, "retire": retire, "delete": delete, "freed_bytes": plan.freed_bytes()
    }))
}

fn print_json(value: &serde_json::Value) -> Result<(), Error> {
    let text = serde_json::to_string(value)
        .map_err(|error| Error::new(ErrorKind::Bug, "cannot write the report").with_source(error))?;
    console::print(&format!("{text}\n"))
}
