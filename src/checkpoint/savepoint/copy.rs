//! Laying a checkpoint's files out elsewhere, in a hidden directory that is renamed once it is whole and durable.
//!
//! A cut leaves the hidden directory or the finished one. Whoever makes it holds a flock on it, so that another process
//! knows a left-over from work under way.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::checkpoint::directory::remove_any;
use crate::checkpoint::durable::{Copied, DurableFs, parent};
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::layout;
use crate::checkpoint::manifest::{FileEntry, Manifest};
use crate::checkpoint::restore::{cannot_link, is_immutable};
use crate::checkpoint::writer::pass;

/// What such a directory may hold; one with anything else in it is somebody else's.
const OURS: [&str; 6] =
    [layout::MANIFEST, layout::SAVEPOINT, layout::DATABASE, layout::ORIGIN, "LINEAGE", "checkpoints"];

/// A directory on its way. Dropped before [`Attempt::reveal`], it leaves nothing.
pub(super) struct Attempt<'a> {
    fs: &'a dyn DurableFs,
    dir: PathBuf,
    target: PathBuf,
    _lock: File,
    revealed: bool,
}

impl<'a> Attempt<'a> {
    /// Begins to make the directory `target`, whose parent exists, and which may be an empty directory itself.
    pub(super) fn begin(fs: &'a dyn DurableFs, target: &Path) -> Result<Self, CheckpointError> {
        refuse_existing(target)?;
        let dir = hidden(target)?;
        let fresh = match fs.create_dir(&dir) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(CheckpointError::io("begin in a hidden directory", &dir)(error)),
        };
        let Some(lock) = lock(&dir).map_err(CheckpointError::io("lock a hidden directory", &dir))? else {
            return Err(CheckpointError::Refused {
                what: "another process is making this at the moment".to_owned(),
                path: target.to_owned(),
                remedy: "wait for it, or choose another name".to_owned(),
            });
        };
        if !fresh {
            sweep_left_over(fs, &dir)?;
        }
        let attempt = Self { fs, dir, target: target.to_owned(), _lock: lock, revealed: false };
        // Another process may have finished between the first look and the lock.
        refuse_existing(target)?;
        Ok(attempt)
    }

    /// Where to write.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Copies the manifest of the checkpoint in `source`, byte for byte.
    pub(super) fn copy_manifest(&self, source: &Path) -> Result<Copied, CheckpointError> {
        let (from, to) = (source.join(layout::MANIFEST), self.dir.join(layout::MANIFEST));
        let copied = self.fs.copy_new(&from, &to).map_err(CheckpointError::io("copy the manifest", &from))?;
        self.fs.sync_file(&to).map_err(CheckpointError::sync("sync the manifest", &to))?;
        Ok(copied)
    }

    /// Gives the directory its name, durably. Everything in it was synced, but for its own entries.
    pub(super) fn reveal(mut self, before: &'static str, after: &'static str) -> Result<(), CheckpointError> {
        self.fs.sync_dir(&self.dir).map_err(CheckpointError::sync("sync a new directory", &self.dir))?;
        pass(before, &self.target)?;
        match self.fs.rename(&self.dir, &self.target) {
            Err(error) if taken(&error) => return Err(exists(&self.target)),
            other => other.map_err(CheckpointError::io("give a directory its name", &self.target))?,
        }
        self.revealed = true;
        let parent = parent(&self.target);
        self.fs.sync_dir(parent).map_err(CheckpointError::sync("sync the name of a directory", parent))?;
        pass(after, &self.target)
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.revealed {
            return;
        }
        match remove_any(self.fs, &self.dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %self.dir.display(), %error, "left for the next attempt to sweep");
            }
            _ => {}
        }
    }
}

fn taken(error: &io::Error) -> bool {
    let by_entries = Errno::from_io_error(error) == Some(Errno::NOTEMPTY);
    by_entries || matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory)
}

fn exists(target: &Path) -> CheckpointError {
    CheckpointError::Refused {
        what: "there is something under this name already".to_owned(),
        path: target.to_owned(),
        remedy: "choose another name, or remove what is there".to_owned(),
    }
}

/// An empty directory may be there: the rename takes its place.
fn refuse_existing(target: &Path) -> Result<(), CheckpointError> {
    match std::fs::symlink_metadata(target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(CheckpointError::io("look at the target", target)(error)),
        Ok(metadata) if metadata.is_dir() => {
            let mut entries =
                layout::entries(target).map_err(CheckpointError::io("look into the target", target))?;
            if entries.next().is_none() { Ok(()) } else { Err(exists(target)) }
        }
        Ok(_) => Err(exists(target)),
    }
}

/// The name under which `target` is made.
fn hidden(target: &Path) -> Result<PathBuf, CheckpointError> {
    match target.file_name().and_then(|name| name.to_str()) {
        Some(name) => Ok(target.with_file_name(format!(".{name}.tmp"))),
        None => Err(CheckpointError::Refused {
            what: "this is no name of a directory".to_owned(),
            path: target.to_owned(),
            remedy: "name a directory that does not exist, in one that does".to_owned(),
        }),
    }
}

/// Locks a directory; `None` when another process has it, or has just finished with it.
pub(super) fn lock(dir: &Path) -> io::Result<Option<File>> {
    let file = match File::open(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    }
    // Whoever had it may have renamed it since: then this is a lock on the finished one.
    let id = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    let same = std::fs::symlink_metadata(dir)
        .is_ok_and(|there| there.is_dir() && file.metadata().is_ok_and(|ours| id(ours) == id(there)));
    Ok(same.then_some(file))
}

/// Empties what a cut attempt left. One that holds anything else than we write is left alone.
fn sweep_left_over(fs: &dyn DurableFs, dir: &Path) -> Result<(), CheckpointError> {
    let list = || layout::entries(dir)?.collect::<io::Result<Vec<_>>>();
    let entries = list().map_err(CheckpointError::io("list a left-over", dir))?;
    if let Some((name, _)) = entries.iter().find(|(name, _)| !OURS.contains(&name.as_str())) {
        return Err(CheckpointError::Refused {
            what: format!("a directory of another use is in the way: first_entry={name:?}"),
            path: dir.to_owned(),
            remedy: "move it away, or choose another name".to_owned(),
        });
    }
    for (name, _) in &entries {
        let path = dir.join(name);
        remove_any(fs, &path).map_err(CheckpointError::io("sweep a left-over", &path))?;
    }
    Ok(())
}

/// How the files came there.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Laid {
    pub(super) linked_bytes: u64,
    pub(super) copied_bytes: u64,
}

/// Puts the database of the checkpoint in `source` into the directory `target`: tables as hard links where the
/// filesystem can, everything else copied and synced. What is linked was synced when its checkpoint was made.
pub(super) fn lay_out(
    fs: &dyn DurableFs,
    source: &Path,
    manifest: &Manifest,
    target: &Path,
) -> Result<Laid, CheckpointError> {
    let (from, to) = (source.join(layout::DATABASE), target.join(layout::DATABASE));
    fs.create_dir(&to).map_err(CheckpointError::io("create a directory", &to))?;
    let mut laid = Laid::default();
    for file in &manifest.files {
        let (from, to) = (from.join(&file.name), to.join(&file.name));
        if is_immutable(&file.name) && link(fs, &from, &to)? {
            laid.linked_bytes = laid.linked_bytes.saturating_add(file.bytes);
        } else {
            copy(fs, (source, manifest.epoch), file, &from, &to)?;
            laid.copied_bytes = laid.copied_bytes.saturating_add(file.bytes);
        }
    }
    fs.sync_dir(&to).map_err(CheckpointError::sync("sync the linked files", &to))?;
    Ok(laid)
}

fn link(fs: &dyn DurableFs, from: &Path, to: &Path) -> Result<bool, CheckpointError> {
    match fs.hard_link(from, to) {
        Ok(()) => Ok(true),
        Err(error) if cannot_link(&error) => Ok(false),
        Err(error) => Err(CheckpointError::io("link a file of the checkpoint", from)(error)),
    }
}

fn copy(
    fs: &dyn DurableFs,
    (source, epoch): (&Path, u64),
    file: &FileEntry,
    from: &Path,
    to: &Path,
) -> Result<(), CheckpointError> {
    let copied = fs.copy_new(from, to).map_err(CheckpointError::io("copy a file of the checkpoint", from))?;
    if (copied.bytes, copied.crc32) != (file.bytes, file.crc32) {
        return Err(CheckpointError::Damaged {
            epoch,
            path: source.to_owned(),
            problems: format!("file is not as the manifest says: name={}", file.name),
            alternative: None,
            lasting: true,
        });
    }
    fs.sync_file(to).map_err(CheckpointError::sync("sync a copied file", to))
}

/// Writes a new file and makes its contents durable.
pub(super) fn write_synced(fs: &dyn DurableFs, path: &Path, bytes: &[u8]) -> Result<(), CheckpointError> {
    fs.write_new(path, bytes).map_err(CheckpointError::io("write a new file", path))?;
    fs.sync_file(path).map_err(CheckpointError::sync("sync a new file", path))
}
