//! The pipeline file: TOML in, checked plain data out, every refusal with its place, its reason and its remedy.
//!
//! Looks at no other file: that inputs exist is found out by the source, that directories can be written by the
//! store and the sinks.

mod aggregate;
mod contradiction;
mod emission;
mod join;
mod kind;
mod origin;
mod output;
mod reader;
mod source;
mod units;
mod watch;
mod watermark;
mod window;

use std::path::{Component, Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::event_time::Span;
use crate::operator::Workers;
use crate::repository::Location;
use crate::store::{MEMORY_BYTES_MIN, VERIFY_EVERY};

pub use aggregate::{AggregateConfig, Beyond, Fraction, Function, InputType, Keep};
pub use join::{JoinConfig, JoinOutput, SelectedField};
pub(crate) use origin::closest;
pub use output::{OutputFormat, OutputTarget, OutputTime, TableConfig, TableWrite};
pub use source::{
    Bound, Compression, CsvConfig, DedupConfig, EpochUnit, Filter, Format, Partitioning, Scalar,
    SourceConfig, TimeConfig, TimeFormat,
};
pub use watch::{Jumps, StatusConfig, WatchConfig, parse_address};
pub use watermark::{Policy, SourceWatermark, TimeBounds, WatermarkConfig, WatermarkStrategy};
pub use window::{
    Accumulation, Advance, KeyField, KeyType, Mode, OutputConfig, Renames, Repeat, TimeDomain, Trigger,
    WindowConfig,
};

use origin::Origin;
use reader::Section;

/// Checkpoints are taken this often unless the file says otherwise, in milliseconds.
const CHECKPOINT_INTERVAL_MS: i64 = 10_000;
/// Checkpoints kept unless the file says otherwise.
const CHECKPOINTS_RETAINED: u32 = 3;
/// Memory for buffers and caches unless the file says otherwise.
const MEMORY_BYTES: u64 = 512 << 20;
/// More memory than this is taken for a slip.
const MEMORY_BYTES_MAX: u64 = 64 << 40;
/// A pipeline file is read whole; nothing written by hand comes near this.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Longest pipeline name.
const NAME_LENGTH_MAX: usize = 64;

/// A pipeline as its file describes it, checked, with defaults filled in and paths resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineConfig {
    /// Name of the pipeline.
    pub name: String,
    /// What is read, at least one source.
    pub sources: Vec<SourceConfig>,
    /// How event time advances.
    pub watermark: WatermarkConfig,
    /// Where state lives.
    pub state: StateConfig,
    /// When state is made durable.
    pub checkpoint: CheckpointConfig,
    /// The windowed aggregations; at least one, or a join.
    pub windows: Vec<WindowConfig>,
    /// The joins.
    pub joins: Vec<JoinConfig>,
    /// Directory for late events, when they are kept.
    pub late: Option<PathBuf>,
    /// Directory for rejected records, when they are kept.
    pub dead_letter: Option<PathBuf>,
    /// Where a run shows how it stands, when it does.
    pub status: Option<StatusConfig>,
    /// What a run warns of.
    pub watch: WatchConfig,
}

/// Where state lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateConfig {
    /// Directory of the working state and its checkpoints.
    pub directory: PathBuf,
    /// Memory for buffers and caches, in bytes.
    pub memory_bytes: u64,
    /// Threads that share the work on each batch; as many as there are cores when it is not said.
    pub workers: Option<usize>,
}

/// When state is made durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointConfig {
    /// Time between checkpoints.
    pub interval: Span,
    /// Also after so many input bytes.
    pub input_bytes: Option<u64>,
    /// Checkpoints kept.
    pub retain: u32,
    /// After every so many checkpoints all files are read again; 0 for never.
    pub verify_every: u32,
    /// Where checkpoints are mirrored to, so that a lost machine can be replaced.
    pub repository: Option<RepositoryConfig>,
}

/// Where checkpoints are mirrored to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepositoryConfig {
    /// A directory or an object store.
    pub location: Location,
    /// True when output waits until the repository has its checkpoint.
    pub required: bool,
}

impl PipelineConfig {
    /// True when an output is printed, so that standard output is not free for anything else.
    #[must_use]
    pub fn prints_results(&self) -> bool {
        let windows = self.windows.iter().map(|window| &window.output.target);
        let mut targets = windows.chain(self.joins.iter().map(|join| &join.output.target));
        targets.any(|target| *target == OutputTarget::Console)
    }

    /// Reads and checks the pipeline file at `path`.
    ///
    /// # Errors
    /// `Unavailable` when the file cannot be read, `Invalid` with `file:line:column` for anything in it.
    pub fn load(path: &Path) -> Result<Self> {
        let unreadable = |error: std::io::Error| {
            Error::new(
                ErrorKind::Unavailable,
                format!("cannot read the pipeline file: path={}", path.display()),
            )
            .with_remedy("check the path and its permissions")
            .with_source(error)
        };
        let length = std::fs::metadata(path).map_err(unreadable)?.len();
        if length > FILE_BYTES_MAX {
            let message =
                format!("this is too large for a pipeline file: path={} bytes={length}", path.display());
            return Err(
                Error::new(ErrorKind::Invalid, message).with_remedy("name a pipeline file, not a data file")
            );
        }
        let bytes = std::fs::read(path).map_err(unreadable)?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let offset = error.utf8_error().valid_up_to();
            Error::new(
                ErrorKind::Invalid,
                format!("{}: this is not UTF-8 text: offset={offset}", path.display()),
            )
            .with_remedy("save the pipeline file as UTF-8")
        })?;
        Self::from_str(&text, path)
    }

    /// Checks the text of a pipeline file. `origin` is its path: shown in messages, and relative paths start at
    /// its directory.
    ///
    /// # Errors
    /// `Invalid` with `file:line:column`, the reason and the remedy.
    pub fn from_str(text: &str, origin: &Path) -> Result<Self> {
        let name = origin.display().to_string();
        let base = origin.parent().unwrap_or(Path::new(""));
        read(&Origin { name: &name, text }, base)
    }
}

const ROOT: [&str; 11] = [
    "name",
    "source",
    "watermark",
    "state",
    "checkpoint",
    "window",
    "join",
    "late",
    "dead_letter",
    "status",
    "watch",
];

fn read(origin: &Origin<'_>, base: &Path) -> Result<PipelineConfig> {
    let mut root = Section::parse(origin, &ROOT)?;
    let mut places = contradiction::Places::new(origin);

    let name = read_name(&mut root)?;
    let defaults = watermark::read(&mut root)?;
    let source = root.require("source", "add a [source] table with `path` and `time`")?;
    let sources = source::read_all(source, base, &defaults, &mut places)?;
    let delays = sources.iter().filter_map(|source| source.delay());
    let delay = delays.max();
    defaults.check(delay.is_some())?;
    let watermark = defaults.config;
    let timing = window::Timing { delay, advance: watermark.advance, close_at_end: watermark.close_at_end };
    let state = read_state(&mut root, base, &mut places)?;
    let checkpoint = read_checkpoint(&mut root, base, &mut places)?;
    let joins = root.take("join");
    let windows = match root.take("window") {
        Some(item) => window::read_all(item, base, timing, &mut places)?,
        None if joins.is_some() => Vec::new(),
        None => {
            return Err(root.error("`window` is missing", "add at least one [[window]] or [[join]] table"));
        }
    };
    let joins = match joins {
        Some(item) => join::read_all(item, base, timing, &windows, &mut places)?,
        None => Vec::new(),
    };
    let late = read_side_output(&mut root, "late", base, &mut places)?;
    let dead_letter = read_side_output(&mut root, "dead_letter", base, &mut places)?;
    places.check_directories(&sources)?;
    let status = watch::read_status(&mut root)?;
    let watch = watch::read_watch(&mut root, &sources, checkpoint.interval)?;
    Ok(PipelineConfig {
        name,
        sources,
        watermark,
        state,
        checkpoint,
        windows,
        joins,
        late,
        dead_letter,
        status,
        watch,
    })
}

fn read_name(root: &mut Section<'_>) -> Result<String> {
    let item = root.require("name", "add `name = \"my-pipeline\"` at the top of the file")?;
    let name = item.name()?;
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    if name.len() > NAME_LENGTH_MAX || !name.bytes().all(plain) {
        let message = format!("\"{name}\" is not a pipeline name");
        return Err(item.error(message, "use 1 to 64 of the characters a-z, 0-9, _ and -"));
    }
    Ok(name)
}

fn read_state(
    root: &mut Section<'_>,
    base: &Path,
    places: &mut contradiction::Places<'_>,
) -> Result<StateConfig> {
    let remedy = "add a [state] table with `directory = \"state/my-pipeline\"`";
    let mut section = root.require("state", remedy)?.section(&["directory", "memory", "workers"])?;
    let item = section.require("directory", remedy)?;
    let directory = resolve(base, &item.name()?);
    places.add_directory(&item, "the state directory", &directory);
    let memory_bytes = section.take("memory").map_or(Ok(MEMORY_BYTES), |item| read_memory(&item))?;
    let workers = section.take("workers").map(|item| read_workers(&item)).transpose()?;
    Ok(StateConfig { directory, memory_bytes, workers })
}

fn read_workers(item: &reader::Item<'_>) -> Result<usize> {
    let workers = item.count()? as usize;
    if workers > Workers::MAX {
        let message = format!("more workers than there can be, workers={workers}");
        return Err(item.error(message, format!("write a number from 1 to {}", Workers::MAX)));
    }
    Ok(workers)
}

fn read_memory(item: &reader::Item<'_>) -> Result<u64> {
    let bytes = item.bytes()?;
    if bytes < MEMORY_BYTES_MIN as u64 {
        let least = MEMORY_BYTES_MIN >> 20;
        return Err(item.error(format!("a store needs at least {least}MiB"), "write for example \"512MiB\""));
    }
    if bytes > MEMORY_BYTES_MAX {
        let message = format!("no machine has so much memory, bytes={bytes}");
        return Err(item.error(message, "write what the pipeline may use, for example \"512MiB\""));
    }
    Ok(bytes)
}

fn read_checkpoint(
    root: &mut Section<'_>,
    base: &Path,
    places: &mut contradiction::Places<'_>,
) -> Result<CheckpointConfig> {
    let interval = Span::from_millis(CHECKPOINT_INTERVAL_MS).unwrap_or(Span::ZERO);
    let defaults = CheckpointConfig {
        interval,
        input_bytes: None,
        retain: CHECKPOINTS_RETAINED,
        verify_every: VERIFY_EVERY,
        repository: None,
    };
    let Some(item) = root.take("checkpoint") else { return Ok(defaults) };
    let keys = ["interval", "bytes", "retain", "verify_every", "repository", "repository_required"];
    let mut section = item.section(&keys)?;
    Ok(CheckpointConfig {
        interval: section.take("interval").map_or(Ok(defaults.interval), |item| item.positive_span())?,
        input_bytes: section.take("bytes").map(|item| item.bytes()).transpose()?,
        retain: section.take("retain").map_or(Ok(defaults.retain), |item| item.count())?,
        verify_every: section
            .take("verify_every")
            .map_or(Ok(defaults.verify_every), |item| item.count_or_zero())?,
        repository: read_repository(&mut section, base, places)?,
    })
}

fn read_repository(
    section: &mut Section<'_>,
    base: &Path,
    places: &mut contradiction::Places<'_>,
) -> Result<Option<RepositoryConfig>> {
    let required = section.take("repository_required");
    let Some(item) = section.take("repository") else {
        return match required {
            Some(item) => Err(item.error(
                "`repository_required` without `repository`",
                "add `repository = \"s3://bucket/my-pipeline\"`, or take this line out",
            )),
            None => Ok(None),
        };
    };
    let location = Location::parse(&item.name()?, base).map_err(|error| {
        let error = Error::from(error);
        item.error(error.to_string(), error.remedy().unwrap_or_default())
    })?;
    let location = match location {
        Location::Directory(path) => {
            let path = resolve(base, &path.to_string_lossy());
            places.add_directory(&item, "the repository", &path);
            Location::Directory(path)
        }
        store @ Location::Store { .. } => store,
    };
    let required = required.map_or(Ok(false), |item| item.boolean())?;
    Ok(Some(RepositoryConfig { location, required }))
}

fn read_side_output(
    root: &mut Section<'_>,
    key: &'static str,
    base: &Path,
    places: &mut contradiction::Places<'_>,
) -> Result<Option<PathBuf>> {
    let Some(item) = root.take(key) else { return Ok(None) };
    let mut section = item.section(&["path"])?;
    let item = section.require("path", &format!("add `path = \"out/{key}\"`"))?;
    let name = item.name()?;
    if name == "-" {
        let remedy =
            format!("give a directory, such as `path = \"out/{key}\"`; standard output is for results");
        return Err(item.error("this output goes into a directory, not to standard output", remedy));
    }
    let directory = resolve(base, &name);
    places.add_directory(&item, &format!("the {key} output"), &directory);
    Ok(Some(directory))
}

/// `path` as seen from `base`, without `.` and, where it can be told from the text, without `..`.
fn resolve(base: &Path, path: &str) -> PathBuf {
    let mut resolved = PathBuf::new();
    for component in base.join(path).components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir
                if matches!(resolved.components().next_back(), Some(Component::Normal(_))) =>
            {
                resolved.pop();
            }
            other => resolved.push(other),
        }
    }
    resolved
}

#[cfg(test)]
mod tests;
