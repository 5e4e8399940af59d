//! What every run of a drill starts from: a verified copy of the newest checkpoint with the output that belongs to it, or
//! nothing at all. Takes no lock; a pipeline may be running on the original.

use std::path::{Path, PathBuf};

use floodmark::checkpoint::{self, CheckpointSummary};
use floodmark::error::{Error, ErrorKind};

use super::redirect::{self, Output};
use super::scratch::{self, Tables};

/// How often another newest checkpoint is taken when one was retired while it was copied.
const COPIES_MAX: u32 = 5;

/// A checkpoint, by what its manifest says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) epoch: u64,
    /// Events of the lineage up to it.
    pub(super) events: u64,
    pub(super) path: PathBuf,
}

/// Where runs start.
#[derive(Clone, Debug)]
pub(super) struct Base {
    root: PathBuf,
    /// The checkpoint; none for a start with empty state.
    pub(super) stored: Option<Stored>,
}

impl Base {
    /// Empty state and no output.
    pub(super) fn empty(root: PathBuf) -> Self {
        Self { root, stored: None }
    }

    /// Copies the newest checkpoint of `state` into `root`; empty state where there is none yet.
    ///
    /// # Errors
    /// `Damaged` when the copy does not verify, `Unavailable` when the disk is in the way.
    pub(super) fn copy_of(state: &Path, outputs: &[Output], root: PathBuf) -> Result<Self, Error> {
        for _ in 0..COPIES_MAX {
            let Some(stored) = newest(state)? else { return Ok(Self::empty(root)) };
            scratch::remove(&root)?;
            let copied = copy_checkpoint(state, &stored, &root);
            // Retention took it away, or another one came: that one, then.
            if newest(state)?.map(|newest| newest.epoch) != Some(stored.epoch) {
                continue;
            }
            copied?;
            copy_staging(outputs, &root)?;
            if newest(state)?.map(|newest| newest.epoch) == Some(stored.epoch) {
                return Ok(Self { root, stored: Some(stored) });
            }
        }
        let message = format!("checkpoints come faster than they can be copied: path={}", state.display());
        Err(Error::new(ErrorKind::Unavailable, message)
            .with_remedy("stop the pipeline for the drill, or copy its directory and drill the copy"))
    }

    /// Lays it out in `to` for a run.
    ///
    /// # Errors
    /// `Unavailable` when the disk is in the way.
    pub(super) fn lay_out(&self, to: &Path) -> Result<(), Error> {
        match self.stored {
            Some(_) => scratch::copy(&self.root, to, Tables::Linked),
            None => Ok(()),
        }
    }
}

/// The newest complete checkpoint of a state directory; none where there is none, or no directory.
///
/// # Errors
/// `Damaged` when its manifest is, `Unavailable` when it cannot be read.
pub(super) fn newest(state: &Path) -> Result<Option<Stored>, Error> {
    Ok(stored(state)?.pop())
}

/// The complete checkpoints of a state directory, oldest first. Of those before the newest, the damaged are left out.
///
/// # Errors
/// As [`newest`].
pub(super) fn stored(state: &Path) -> Result<Vec<Stored>, Error> {
    if !state.join("checkpoints").is_dir() {
        return Ok(Vec::new());
    }
    let mut summaries = checkpoint::list(state)?;
    let Some(last) = summaries.pop() else { return Ok(Vec::new()) };
    let older = summaries.into_iter().filter_map(|summary| read(summary).ok());
    let mut all: Vec<Stored> = older.collect();
    all.push(read(last)?);
    Ok(all)
}

fn read(summary: CheckpointSummary) -> Result<Stored, Error> {
    let path = summary.path;
    let manifest =
        summary.manifest.map_err(|error| damaged(&path, "its manifest cannot be read").with_source(error))?;
    let events = manifest.counters.get("events").copied().unwrap_or(0);
    Ok(Stored { epoch: manifest.epoch, events, path })
}

fn copy_checkpoint(state: &Path, stored: &Stored, root: &Path) -> Result<(), Error> {
    let copied = redirect::state(root);
    let name = stored.path.file_name().unwrap_or_default();
    let checkpoint = copied.join("checkpoints").join(name);
    scratch::copy(&stored.path, &checkpoint, Tables::Copied)?;
    let (from, to) = (state.join("LINEAGE"), copied.join("LINEAGE"));
    std::fs::copy(&from, &to).map_err(|error| scratch::failed("copy", &from, error))?;
    let report = checkpoint::verify(&checkpoint);
    if report.is_sound() { Ok(()) } else { Err(damaged(&stored.path, &report.problem_line())) }
}

/// What a checkpoint has still to publish, and how far its outputs were published. Parts are not needed.
fn copy_staging(outputs: &[Output], root: &Path) -> Result<(), Error> {
    for output in outputs {
        let to = redirect::outputs(root).join(&output.name).join(".staging");
        scratch::copy(&output.original.join(".staging"), &to, Tables::Copied)?;
    }
    Ok(())
}

fn damaged(path: &Path, problem: &str) -> Error {
    let message = format!("the newest checkpoint is damaged: path={} problems={problem}", path.display());
    Error::new(ErrorKind::Damaged, message).with_remedy(
        "this is what a restart would find now: restore an older one with `floodmark run --at`; \
         `floodmark inspect verify --all` shows which are whole",
    )
}
