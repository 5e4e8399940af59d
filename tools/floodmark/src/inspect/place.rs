//! What a report is about: a path, a pipeline file whose state it is, or the URL of a repository. And which part of it.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use clap::Args;
use floodmark::clock::SystemClock;
use floodmark::error::{Error, ErrorKind};
use floodmark::event_time::EventTime;
use floodmark::inspect::{self, Key, PaneFilter, Scanned, WindowStatus, parse_base64};
use floodmark::pipeline::config::PipelineConfig;
use floodmark::pipeline::explain::parse_instant;
use floodmark::repository::{self, Fetched, Location, Retry};
use tempfile::TempDir;

use crate::console;
use crate::progress::Progress;
use crate::run::grouped;

#[derive(Debug, Args)]
pub(super) struct Place {
    /// A state directory, its directory `checkpoints`, one checkpoint, a pipeline file (.toml) whose state it is, or the URL
    /// of a repository.
    path: String,
    /// Print the same facts as JSON.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct One {
    #[command(flatten)]
    pub(super) place: Place,
    /// The checkpoint of this epoch instead of the newest.
    #[arg(long, value_name = "EPOCH")]
    pub(super) at: Option<u64>,
}

/// How much of a repository a report needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// The manifests of all checkpoints.
    Manifests,
    /// The checkpoint of this epoch, or the newest; and all manifests.
    Checkpoint(Option<u64>),
    /// Two checkpoints, as `diff` names them; and all manifests.
    Two(Option<u64>, Option<u64>),
    /// Every checkpoint.
    All,
}

/// Where a report finds its checkpoints.
pub(super) struct Located {
    pub(super) path: PathBuf,
    /// The repository that they were brought from, into a directory that goes with this.
    from: Option<(String, TempDir)>,
}

impl Located {
    /// Names the repository where a report would name the directory that it was read from.
    pub(super) fn name(&self, path: &mut PathBuf) {
        if let Some((url, scratch)) = &self.from
            && let Ok(inside) = path.strip_prefix(scratch.path())
        {
            *path = PathBuf::from(format!("{}/{}", url.trim_end_matches('/'), inside.display()));
        }
    }
}

impl Place {
    /// The directory that is meant, with as much of a repository in it as is needed.
    pub(super) fn locate(&self, need: Need) -> Result<Located, Error> {
        locate(&self.path, need)
    }
}

/// The directory that a path, a pipeline file or a URL means.
pub(super) fn locate(text: &str, need: Need) -> Result<Located, Error> {
    if text.contains("://") {
        return bring(text, need);
    }
    let path = Path::new(text);
    let is_pipeline = path.extension().is_some_and(|extension| extension == "toml") && path.is_file();
    let path = if is_pipeline { PipelineConfig::load(path)?.state.directory } else { path.to_owned() };
    Ok(Located { path, from: None })
}

/// Brings what is needed of a repository into a directory of its own.
fn bring(url: &str, need: Need) -> Result<Located, Error> {
    let location = Location::parse(url, Path::new(""))?;
    if let Location::Directory(path) = &location
        && !path.is_dir()
    {
        let message = format!("there is no such directory: path={}", path.display());
        return Err(Error::new(ErrorKind::Invalid, message)
            .with_remedy("give what `checkpoint.repository` of the pipeline file says"));
    }
    let repository = location.open()?;
    let scratch = TempDir::with_prefix("floodmark-inspect-").map_err(|error| {
        Error::new(ErrorKind::Unavailable, "cannot make a directory for what is fetched")
            .with_remedy("free space, or name another directory with TMPDIR")
            .with_source(error)
    })?;
    let (repository, retry, into) = (repository.as_ref(), Retry::default(), scratch.path());
    let brought = repository::bring_manifests(repository, &retry, into)?;
    for (key, reason) in &brought.unreadable {
        console::say(&format!("a record of the repository cannot be read: epoch={} {reason}", key.epoch));
    }
    let progress = Mutex::new(Progress::new(false, SystemClock::shared()));
    let watch = |so_far: Fetched| {
        let line = format!("fetched {} of {} bytes", grouped(so_far.bytes), grouped(so_far.bytes_total));
        progress.lock().unwrap_or_else(PoisonError::into_inner).line(&line);
    };
    for epoch in wanted(into, &brought.epochs, need)? {
        repository::bring_checkpoint(repository, &retry, epoch, into, &watch)?;
    }
    progress.lock().unwrap_or_else(PoisonError::into_inner).clear();
    // Not the directory above: a repository has no lineage beside its checkpoints.
    Ok(Located { path: into.join("checkpoints"), from: Some((location.to_string(), scratch)) })
}

/// The checkpoints whose databases are needed; `None` stands for the newest.
fn wanted(into: &Path, epochs: &[u64], need: Need) -> Result<Vec<Option<u64>>, Error> {
    Ok(match need {
        Need::Manifests => Vec::new(),
        Need::Checkpoint(epoch) => vec![epoch],
        Need::All => epochs.iter().copied().map(Some).collect(),
        Need::Two(before, after) => {
            let parent = match before {
                Some(_) => before,
                None => inspect::show(&into.join("checkpoints"), after, 0)?.parent,
            };
            parent.map(Some).into_iter().chain([after]).collect()
        }
    })
}

/// Which key, or which beginning of one.
#[derive(Debug, Args)]
pub(super) struct KeyArguments {
    /// Only this key; repeat it for each field of a composite key.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(super) key: Vec<String>,
    /// As --key, for keys that are not text.
    #[arg(long, value_name = "B64", conflicts_with = "key")]
    pub(super) key_base64: Vec<String>,
}

impl KeyArguments {
    pub(super) fn asked(&self) -> Result<Option<Key>, Error> {
        asked_key(&self.key, &self.key_base64)
    }
}

/// The key that is asked for in one of two ways.
pub(super) fn asked_key(text: &[String], base64: &[String]) -> Result<Option<Key>, Error> {
    let text = text.iter().map(|component| Ok(component.clone().into_bytes()));
    let base64 = base64.iter().map(|component| {
        parse_base64(component).ok_or_else(|| {
            Error::new(ErrorKind::Invalid, format!("this is not base64: --key-base64={component:?}"))
                .with_remedy("give the standard alphabet of RFC 4648, or use --key for a key that is text")
        })
    });
    let components = text.chain(base64).collect::<Result<Vec<_>, Error>>()?;
    Ok(if components.is_empty() { None } else { Some(Key(components)) })
}

/// Which panes.
#[derive(Debug, Args)]
pub(super) struct FilterArguments {
    /// Only this window of the pipeline.
    #[arg(long, value_name = "NAME")]
    window: Option<String>,
    #[command(flatten)]
    key: KeyArguments,
    /// Only keys that begin so; of a composite key repeat it, the last one is the beginning.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, conflicts_with_all = ["key", "key_base64"])]
    key_prefix: Vec<String>,
    /// Only windows that end after this time (RFC 3339, or milliseconds since 1970).
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    from: Option<String>,
    /// Only windows that start before this time.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    to: Option<String>,
    /// Only windows that stand so: open, closing, accepts-late, expired; several with commas.
    #[arg(long, value_name = "STATUS", value_delimiter = ',')]
    status: Vec<Status>,
}

#[derive(Clone, Copy, Debug)]
struct Status(WindowStatus);

impl FromStr for Status {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        WindowStatus::parse(text).map(Self).ok_or_else(|| {
            let known: Vec<&str> = WindowStatus::ALL.iter().map(|status| status.name()).collect();
            format!("choose of {}", known.join(", "))
        })
    }
}

impl FilterArguments {
    pub(super) fn filter(&self) -> Result<PaneFilter, Error> {
        let time = |text: &Option<String>| -> Result<Option<EventTime>, Error> {
            text.as_deref().map(parse_instant).transpose()
        };
        let (from, to) = (time(&self.from)?, time(&self.to)?);
        if let (Some(from), Some(to)) = (from, to)
            && from >= to
        {
            let message = format!("no window is between these times: --from={from} --to={to}");
            return Err(Error::new(ErrorKind::Invalid, message).with_remedy("give an earlier --from"));
        }
        let prefix = self.key_prefix.iter().map(|part| part.clone().into_bytes()).collect::<Vec<_>>();
        Ok(PaneFilter {
            window: self.window.clone(),
            key: self.key.asked()?,
            key_prefix: if prefix.is_empty() { None } else { Some(Key(prefix)) },
            from,
            to,
            statuses: self.status.iter().map(|status| status.0).collect(),
        })
    }
}

/// Tells on standard error how far a scan has come; with nothing to redraw it stays silent for the first seconds.
pub(super) struct Watching(Progress);

impl Watching {
    pub(super) fn new() -> Self {
        Self(Progress::new(false, SystemClock::shared()))
    }

    /// Tells how far a scan has come.
    pub(super) fn scanned(&mut self, scanned: Scanned) {
        let (rows, about) = (grouped(scanned.rows), grouped(scanned.rows_about));
        self.0.line(&format!("read {rows} of about {about} rows"));
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.clear();
    }
}
