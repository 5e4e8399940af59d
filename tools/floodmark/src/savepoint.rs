//! `floodmark savepoint`: makes, lists and deletes savepoints, as tables or as JSON.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use floodmark::checkpoint::Environment;
use floodmark::checkpoint::savepoint::{
    self, CreateRequest, ListedSavepoint, Origin, OriginKind, Savepoint, SavepointName,
};
use floodmark::clock::SystemClock;
use floodmark::error::{Error, ErrorKind};
use floodmark::event_time::EventTime;
use floodmark::pipeline::config::PipelineConfig;
use serde::Serialize;

use crate::table::Table;
use crate::{CommandResult, console};

/// Arguments of `floodmark savepoint`.
#[derive(Debug, Args)]
#[command(
    after_help = "A savepoint is a checkpoint with a name that is never collected. Making one reads and links files, takes no \
lock, and disturbs no running pipeline. `floodmark restore` makes a state directory of one; `floodmark inspect` looks \
into it like into any checkpoint.

Examples:
  floodmark savepoint create pipeline.toml --name before-upgrade --note 'last one of 1.4'
  floodmark savepoint create --state state --name monday --at 12 --to /backup/monday
  floodmark savepoint list pipeline.toml
  floodmark savepoint delete pipeline.toml --name monday"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a savepoint of the newest complete checkpoint, also while the pipeline runs.
    #[command(after_help = "Examples:
  floodmark savepoint create pipeline.toml --name before-upgrade --note 'last one of 1.4'
  floodmark savepoint create --state state --name monday --at 12 --to /backup/monday")]
    Create(Create),
    /// List the savepoints of a state directory.
    #[command(after_help = "Examples:
  floodmark savepoint list pipeline.toml
  floodmark savepoint list --state state --json")]
    List(List),
    /// Delete a savepoint of a state directory.
    #[command(after_help = "Examples:
  floodmark savepoint delete pipeline.toml --name monday")]
    Delete(Delete),
}

/// Whose state it is.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Place {
    /// The pipeline file (TOML).
    pipeline: Option<PathBuf>,
    /// The state directory; for `create` also one checkpoint.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

impl Place {
    /// As [`Place::state`]; a directory that is named is to be there. That of a pipeline file may be yet to come.
    fn existing_state(&self) -> Result<PathBuf, Error> {
        match &self.state {
            Some(state) if !state.is_dir() => {
                let message = format!("there is no state directory: path={}", state.display());
                Err(Error::new(ErrorKind::Invalid, message).with_remedy(
                    "name the state directory, `state.directory` of the pipeline file, or that file",
                ))
            }
            _ => self.state(),
        }
    }

    fn state(&self) -> Result<PathBuf, Error> {
        match (&self.state, &self.pipeline) {
            (Some(state), _) => Ok(state.clone()),
            (None, Some(pipeline)) => Ok(PipelineConfig::load(pipeline)?.state.directory),
            (None, None) => {
                Err(Error::new(ErrorKind::Invalid, "neither a pipeline file nor a state directory")
                    .with_remedy("name the pipeline file, or --state DIR"))
            }
        }
    }
}

#[derive(Debug, Args)]
struct Create {
    #[command(flatten)]
    place: Place,
    /// Name of the savepoint: 0-9, A-Z, a-z, _ and -.
    #[arg(long, value_name = "NAME")]
    name: String,
    /// Make it this directory, which must not exist, instead of `savepoints/NAME` in the state directory. On another
    /// filesystem everything is copied.
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// The checkpoint of this epoch instead of the newest.
    #[arg(long, value_name = "EPOCH")]
    at: Option<u64>,
    /// Why it is made.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    note: String,
    /// Print it as one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct List {
    #[command(flatten)]
    place: Place,
    /// Print them as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Delete {
    #[command(flatten)]
    place: Place,
    /// Name of the savepoint.
    #[arg(long, value_name = "NAME")]
    name: String,
    /// Print it as one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    console::start_log(true);
    match &arguments.action {
        Action::Create(create) => make(create)?,
        Action::List(list) => {
            let state = list.place.existing_state()?;
            console::print_report(list.json, &listing(&state)?, describe)?;
        }
        Action::Delete(delete) => remove(delete)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn environment() -> Environment {
    Environment::new(SystemClock::shared())
}

/// A savepoint as reports show it. What only its files tell is absent when these are not believed.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    path: PathBuf,
    epoch: Option<u64>,
    created_at: Option<String>,
    pipeline: Option<String>,
    lineage: Option<String>,
    watermark: Option<String>,
    bytes: Option<u64>,
    note: Option<String>,
    problem: Option<String>,
}

/// What was made.
#[derive(Debug, Serialize)]
struct Made {
    #[serde(flatten)]
    row: Row,
    linked_bytes: u64,
    copied_bytes: u64,
}

/// All savepoints of a state directory, and where that directory came from.
#[derive(Debug, Serialize)]
struct Listing {
    state: PathBuf,
    origin: Option<OriginRow>,
    savepoints: Vec<Row>,
}

/// Where a state directory came from.
#[derive(Debug, Serialize)]
pub(crate) struct OriginRow {
    kind: &'static str,
    pipeline: String,
    lineage: String,
    epoch: u64,
    savepoint: String,
    restored_at: String,
    dropped_partitions: Vec<String>,
    renamed_partitions: Vec<(String, String)>,
}

impl From<&Origin> for OriginRow {
    fn from(origin: &Origin) -> Self {
        Self {
            kind: match origin.kind {
                OriginKind::Moved => "moved",
                OriginKind::Forked => "forked",
            },
            pipeline: origin.pipeline.clone(),
            lineage: origin.lineage.to_string(),
            epoch: origin.epoch,
            savepoint: origin.savepoint.clone(),
            restored_at: time(origin.restored_at_ms),
            dropped_partitions: origin.dropped_partitions.clone(),
            renamed_partitions: origin.renamed_partitions.clone(),
        }
    }
}

impl OriginRow {
    /// One sentence of it.
    pub(crate) fn describe(&self) -> String {
        let Self { kind, pipeline, lineage, epoch, savepoint, .. } = self;
        let savepoint = if savepoint.is_empty() { String::new() } else { format!(", savepoint {savepoint}") };
        format!("{kind} from epoch {epoch} of {pipeline} (lineage {lineage}{savepoint})")
    }
}

fn time(millis: i64) -> String {
    EventTime::from_millis(millis).to_string()
}

fn make(create: &Create) -> Result<(), Error> {
    let request = CreateRequest {
        name: SavepointName::parse(&create.name)?,
        from: create.place.state()?,
        at: create.at,
        to: create.to.clone(),
        note: create.note.clone(),
        late_parts: Default::default(),
    };
    let Savepoint { path, record, manifest, linked_bytes, copied_bytes } =
        savepoint::create(&request, &environment())?;
    let name = record.name.clone();
    let manifest = std::sync::Arc::unwrap_or_clone(manifest);
    let row = row(ListedSavepoint { name, path, contents: Ok((record, manifest)) });
    console::print_report(create.json, &Made { row, linked_bytes, copied_bytes }, |made| {
        format!(
            "savepoint {} of epoch {}: {} bytes linked, {} copied, verified\n",
            made.row.path.display(),
            made.row.epoch.unwrap_or_default(),
            made.linked_bytes,
            made.copied_bytes
        )
    })
}

fn row(listed: ListedSavepoint) -> Row {
    let ListedSavepoint { name, path, contents } = listed;
    let (contents, problem) = match contents {
        Ok(contents) => (Some(contents), None),
        Err(problem) => (None, Some(problem)),
    };
    let record = contents.as_ref().map(|(record, _)| record);
    let manifest = contents.as_ref().map(|(_, manifest)| manifest);
    Row {
        name,
        path,
        epoch: record.map(|record| record.epoch),
        created_at: record.map(|record| time(record.created_at_ms)),
        pipeline: record.map(|record| record.pipeline.clone()),
        lineage: record.map(|record| record.lineage.to_string()),
        watermark: manifest.map(|manifest| manifest.watermark.to_string()),
        bytes: manifest.map(|manifest| manifest.database_bytes()),
        note: record.map(|record| record.note.clone()),
        problem,
    }
}

fn listing(state: &Path) -> Result<Listing, Error> {
    let savepoints = savepoint::list(state)?.into_iter().map(row).collect();
    // A note that cannot be read is no reason to hide the savepoints.
    let origin = Origin::load(state).ok().flatten();
    Ok(Listing { state: state.to_owned(), origin: origin.as_ref().map(OriginRow::from), savepoints })
}

fn describe(listing: &Listing) -> String {
    let mut text =
        listing.origin.as_ref().map(|origin| format!("{}\n", origin.describe())).unwrap_or_default();
    if listing.savepoints.is_empty() {
        text.push_str("no savepoints\n");
        return text;
    }
    let mut table = Table::new(&["name", ">epoch", "made at", "watermark", ">bytes", "note"]);
    let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let number = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
    for row in &listing.savepoints {
        let note = row.problem.as_ref().map(|problem| format!("NOT READABLE: {problem}"));
        table.row(vec![
            row.name.clone(),
            number(row.epoch),
            shown(&row.created_at),
            shown(&row.watermark),
            number(row.bytes),
            note.or_else(|| row.note.clone()).unwrap_or_default(),
        ]);
    }
    text.push_str(&table.render(0));
    text
}

fn remove(delete: &Delete) -> Result<(), Error> {
    #[derive(Serialize)]
    struct Deleted {
        deleted: String,
        state: PathBuf,
    }
    let (name, state) = (SavepointName::parse(&delete.name)?, delete.place.state()?);
    savepoint::delete(&state, &name, &environment())?;
    let deleted = Deleted { deleted: name.to_string(), state };
    console::print_report(delete.json, &deleted, |done| format!("deleted savepoint {}\n", done.deleted))
}
