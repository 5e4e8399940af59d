//! The savepoints of a state directory: listed, deleted when somebody says so, and their left-overs swept.
//!
//! Nothing here deletes a savepoint by itself, and retention knows nothing of them.

use std::io;
use std::path::{Path, PathBuf};

use super::SavepointName;
use super::copy::lock;
use super::record::SavepointRecord;
use crate::checkpoint::directory::{Environment, remove_any};
use crate::checkpoint::durable::DurableFs;
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::layout::{self, Layout};
use crate::checkpoint::listing::load_directory;
use crate::checkpoint::manifest::Manifest;
use crate::checkpoint::writer::pass;

/// One savepoint of a state directory.
#[derive(Clone, Debug)]
pub struct ListedSavepoint {
    /// The name of its directory.
    pub name: String,
    /// Its directory.
    pub path: PathBuf,
    /// What it says of itself and the manifest of its checkpoint, or why they are not believed.
    pub contents: Result<(SavepointRecord, Manifest), String>,
}

/// The savepoints in the state directory `state`, by name. Whether their files hold is for `verify` to say.
///
/// # Errors
/// [`CheckpointError::Io`] when the directory cannot be read.
pub fn list(state: &Path) -> Result<Vec<ListedSavepoint>, CheckpointError> {
    let savepoints = Layout { root: state.to_owned() }.savepoints();
    let mut listed = Vec::new();
    for name in names(&savepoints)?.into_iter().filter(|name| SavepointName::parse(name).is_ok()) {
        let path = savepoints.join(&name);
        let contents = contents(&path);
        listed.push(ListedSavepoint { name, path, contents });
    }
    listed.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(listed)
}

fn contents(path: &Path) -> Result<(SavepointRecord, Manifest), String> {
    let manifest = load_directory(path).map_err(|error| error.to_string())?;
    match SavepointRecord::load(path) {
        Ok(Some(record)) => Ok((record, manifest)),
        Ok(None) => Err("it has no SAVEPOINT.fm".to_owned()),
        Err(error) => Err(format!("SAVEPOINT.fm cannot be read: {error}")),
    }
}

fn names(savepoints: &Path) -> Result<Vec<String>, CheckpointError> {
    let list = || match layout::entries(savepoints) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries?.map(|entry| entry.map(|(name, _)| name)).collect::<io::Result<Vec<_>>>(),
    };
    list().map_err(CheckpointError::io("list the savepoints", savepoints))
}

/// Deletes a savepoint of the state directory `state`. It loses its name durably before its first file goes. The
/// tables that checkpoints share with it stay theirs.
///
/// # Errors
/// [`CheckpointError::Refused`] when there is none of this name; I/O errors.
pub fn delete(state: &Path, name: &SavepointName, environment: &Environment) -> Result<(), CheckpointError> {
    let fs = environment.fs.as_ref();
    let savepoints = Layout { root: state.to_owned() }.savepoints();
    let path = savepoints.join(name.as_str());
    if !std::fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir()) {
        return Err(CheckpointError::Refused {
            what: format!("there is no savepoint of this name: name={name}"),
            path: savepoints,
            remedy: "`floodmark savepoint list` shows those that there are".to_owned(),
        });
    }
    let away = savepoints.join(format!(".{name}.deleted"));
    remove_if_there(fs, &away)?;
    pass("savepoint.delete.before", &path)?;
    fs.rename(&path, &away).map_err(CheckpointError::io("delete a savepoint", &path))?;
    fs.sync_dir(&savepoints).map_err(CheckpointError::sync("sync the savepoints", &savepoints))?;
    pass("savepoint.delete.after", &path)?;
    remove_if_there(fs, &away)
}

fn remove_if_there(fs: &dyn DurableFs, path: &Path) -> Result<(), CheckpointError> {
    match remove_any(fs, path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(CheckpointError::io("remove a left-over", path)),
    }
}

/// Removes what cut attempts and deletions left among the savepoints; never a savepoint, and never what another
/// process is at work on.
pub(in crate::checkpoint) fn sweep(fs: &dyn DurableFs, layout: &Layout) -> Result<(), CheckpointError> {
    let savepoints = layout.savepoints();
    for name in names(&savepoints)?.into_iter().filter(|name| is_left_over(name)) {
        let path = savepoints.join(&name);
        let lock = lock(&path).map_err(CheckpointError::io("look at a left-over", &path))?;
        if lock.is_some() {
            remove_if_there(fs, &path)?;
            tracing::info!(path = %path.display(), "swept a left-over");
        }
    }
    Ok(())
}

fn is_left_over(name: &str) -> bool {
    let stem = name.strip_prefix('.');
    let stem = stem.and_then(|rest| rest.strip_suffix(".tmp").or_else(|| rest.strip_suffix(".deleted")));
    stem.is_some_and(|stem| SavepointName::parse(stem).is_ok())
}
