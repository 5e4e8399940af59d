//! The directory of a drill, and the copies in it. Everything that a drill writes is below it; what it copies from is
//! only read.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use floodmark::error::{Error, ErrorKind};
use tempfile::TempDir;

/// Names of the directories that drills make beside a state directory.
const PREFIX: &str = ".floodmark-drill-";

/// Where a drill works.
#[derive(Debug)]
pub(super) struct Scratch {
    root: PathBuf,
    // Removed at the end, unless it is kept.
    temporary: Option<TempDir>,
}

impl Scratch {
    /// At `keep`, which stays, or beside the state directory, which does not: on the same disk, recovery takes as long as
    /// it would.
    ///
    /// # Errors
    /// `Invalid` when `keep` holds something already, `Unavailable` when nothing can be written there.
    pub(super) fn new(keep: Option<&Path>, state: &Path) -> Result<Self, Error> {
        let remedy = "name a directory that can be written with --keep";
        if let Some(keep) = keep {
            fs::create_dir_all(keep).map_err(|error| failed("create", keep, error).with_remedy(remedy))?;
            let mut entries = fs::read_dir(keep).map_err(|error| failed("read", keep, error))?;
            if entries.next().is_some() {
                let message = format!("the directory for the drill is not empty: path={}", keep.display());
                return Err(Error::new(ErrorKind::Invalid, message).with_remedy("name a new one with --keep"));
            }
            let root = fs::canonicalize(keep).map_err(|error| failed("find", keep, error))?;
            return Ok(Self { root, temporary: None });
        }
        let parents = state.ancestors().skip(1);
        let beside = parents.map(here).find(|path| path.is_dir()).unwrap_or_else(std::env::temp_dir);
        let made = tempfile::Builder::new().prefix(PREFIX).tempdir_in(&beside);
        let made =
            made.map_err(|error| failed("create a directory in", &beside, error).with_remedy(remedy))?;
        let root = fs::canonicalize(made.path()).map_err(|error| failed("find", made.path(), error))?;
        Ok(Self { root, temporary: Some(made) })
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// True when it stays.
    pub(super) fn is_kept(&self) -> bool {
        self.temporary.is_none()
    }

    /// Lets it stay.
    pub(super) fn keep(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            let _ = temporary.keep();
        }
    }

    /// The directory of one run, made anew.
    ///
    /// # Errors
    /// `Unavailable` when the disk is in the way.
    pub(super) fn place(&self, name: &str) -> Result<PathBuf, Error> {
        let path = self.root.join(name);
        remove(&path)?;
        fs::create_dir_all(&path).map_err(|error| failed("create", &path, error))?;
        Ok(path)
    }
}

/// The current directory has an empty name as a parent.
fn here(path: &Path) -> PathBuf {
    if path.as_os_str().is_empty() { PathBuf::from(".") } else { path.to_owned() }
}

/// Removes a directory of the drill with all that is in it; one that is not there is fine.
///
/// # Errors
/// `Unavailable` when the disk is in the way.
pub(super) fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path, error)),
        _ => Ok(()),
    }
}

/// Whether tables, which are never written again, may be the same file in both places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tables {
    /// Between two places of the drill.
    Linked,
    /// From the user's state, and where they are to be damaged.
    Copied,
}

/// Copies a directory and all below it. A directory that is not there is copied as none. Locks are left out: who holds
/// one holds that file.
///
/// # Errors
/// `Unavailable` when the disk is in the way; the cause is `NotFound` when something went away meanwhile.
pub(super) fn copy(from: &Path, to: &Path, tables: Tables) -> Result<(), Error> {
    if !from.exists() {
        return Ok(());
    }
    fs::create_dir_all(to).map_err(|error| failed("create", to, error))?;
    for entry in fs::read_dir(from).map_err(|error| failed("read", from, error))? {
        let entry = entry.map_err(|error| failed("read", from, error))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().map_err(|error| failed("read", &source, error))?;
        if kind.is_dir() {
            copy(&source, &target, tables)?;
        } else if kind.is_file() && entry.file_name() != "LOCK" {
            copy_file(&source, &target, tables)?;
        }
    }
    Ok(())
}

fn copy_file(from: &Path, to: &Path, tables: Tables) -> Result<(), Error> {
    let is_table = from.extension().is_some_and(|extension| extension == "sst" || extension == "blob");
    if tables == Tables::Linked && is_table && fs::hard_link(from, to).is_ok() {
        return Ok(());
    }
    fs::copy(from, to).map(drop).map_err(|error| failed("copy", from, error))
}

/// What the disk said no to.
pub(super) fn failed(what: &str, path: &Path, error: io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("cannot {what}: path={}", path.display())).with_source(error)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::File::create(path).and_then(|mut file| file.write_all(text.as_bytes())).expect("written");
    }

    #[test]
    fn a_drill_works_beside_the_state_and_leaves_nothing_unless_told_to() {
        let disk = tempfile::tempdir().expect("a directory");
        let state = disk.path().join("not/yet/there/state");
        let scratch = Scratch::new(None, &state).expect("made");
        let root = scratch.root().to_owned();
        assert_eq!(root.parent(), fs::canonicalize(disk.path()).ok().as_deref());
        write(&scratch.place("trial").expect("a place").join("file"), "x");
        drop(scratch);
        assert!(!root.exists());
        let mut scratch = Scratch::new(None, &state).expect("made");
        let root = scratch.root().to_owned();
        scratch.keep();
        drop(scratch);
        assert!(root.exists());
        let error = Scratch::new(Some(disk.path()), &state).expect_err("it is not empty");
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }

    #[test]
    fn locks_are_not_copied_and_only_tables_are_linked() {
        let disk = tempfile::tempdir().expect("a directory");
        let (from, to) = (disk.path().join("from"), disk.path().join("to"));
        for name in ["LOCK", "CURRENT", "deep/1.sst"] {
            write(&from.join(name), name);
        }
        copy(&from, &to, Tables::Linked).expect("copied");
        assert!(!to.join("LOCK").exists());
        write(&to.join("CURRENT"), "other");
        write(&to.join("deep/1.sst"), "other");
        assert_eq!(fs::read_to_string(from.join("CURRENT")).expect("read"), "CURRENT");
        assert_eq!(fs::read_to_string(from.join("deep/1.sst")).expect("read"), "other", "was linked");
        let apart = disk.path().join("apart");
        copy(&from, &apart, Tables::Copied).expect("copied");
        write(&apart.join("deep/1.sst"), "mine");
        assert_eq!(fs::read_to_string(from.join("deep/1.sst")).expect("read"), "other");
        copy(&disk.path().join("absent"), &disk.path().join("none"), Tables::Copied).expect("nothing to do");
    }
}
