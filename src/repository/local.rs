//! A directory as a repository: on another disk, or on a network filesystem that the next machine mounts as well.
//!
//! An object is a file; it is written beside, synced, and linked or renamed into place, so that it is there whole or
//! not at all. It relies on the filesystem for links, renames and flock.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use rustix::fs::{FlockOperation, flock};

use super::error::RepositoryError;
use super::format::RECORD_BYTES_MAX;
use super::{Listing, ObjectInfo, Repository, Tag};
use crate::checkpoint::{DiskFs, DurableFs, create_dir_durably};

/// Folder of objects being written. Listed like any other, so that left-overs are found.
pub(super) const UPLOADS: &str = "uploads";
/// Held while an object is replaced.
const LOCK: &str = "LOCK";

/// A repository in a directory.
#[derive(Debug)]
pub struct LocalRepository {
    root: PathBuf,
    writes: AtomicU64,
}

impl LocalRepository {
    /// The repository in `root`, which is created by the first write.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), writes: AtomicU64::new(0) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Writes and syncs a file that is not yet an object.
    fn write_beside(&self, stream: &mut dyn Read, bytes: Option<u64>) -> Result<PathBuf, RepositoryError> {
        let uploads = self.path(UPLOADS);
        make_dir(&uploads)?;
        let (mut file, path) = self.fresh(&uploads)?;
        let written = io::copy(stream, &mut file).and_then(|written| match bytes {
            Some(bytes) if bytes != written => {
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, "file has another length than it should"))
            }
            _ => file.sync_all(),
        });
        if let Err(error) = written {
            let _ = DiskFs.remove_file(&path);
            return Err(RepositoryError::local("write to the repository", &path)(error));
        }
        Ok(path)
    }

    fn fresh(&self, uploads: &Path) -> Result<(File, PathBuf), RepositoryError> {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let host: String = host.chars().filter(char::is_ascii_alphanumeric).take(32).collect();
        loop {
            let number = self.writes.fetch_add(1, Ordering::Relaxed);
            let path = uploads.join(format!("{host}-{}-{number}.part", std::process::id()));
            match File::create_new(&path) {
                Ok(file) => return Ok((file, path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(RepositoryError::local("write to the repository", &path)(error)),
            }
        }
    }

    fn read(&self, name: &str, bytes_max: u64) -> Result<Vec<u8>, RepositoryError> {
        let path = self.path(name);
        let file = File::open(&path).map_err(|error| not_found(name, &path, error))?;
        let mut bytes = Vec::new();
        let read = file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes);
        read.map_err(RepositoryError::local("read from the repository", &path))?;
        if bytes.len() as u64 > bytes_max {
            return Err(RepositoryError::TooLarge { name: name.to_owned(), bytes: bytes.len() as u64 });
        }
        Ok(bytes)
    }
}

impl Repository for LocalRepository {
    fn place(&self) -> String {
        self.root.display().to_string()
    }

    fn put_new(&self, name: &str, bytes: &[u8]) -> Result<Tag, RepositoryError> {
        let path = self.path(name);
        make_dir(parent(&path))?;
        let beside = self.write_beside(&mut &*bytes, None)?;
        let linked = DiskFs.hard_link(&beside, &path);
        let _ = DiskFs.remove_file(&beside);
        match linked {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(RepositoryError::Exists { name: name.to_owned() });
            }
            Err(error) => return Err(RepositoryError::local("write to the repository", &path)(error)),
        }
        sync_dir(parent(&path))?;
        Ok(tag(bytes))
    }

    fn put_if(&self, name: &str, bytes: &[u8], current: &Tag) -> Result<Tag, RepositoryError> {
        let lock_path = self.path(LOCK);
        make_dir(&self.root)?;
        let options = File::options().write(true).create(true).truncate(false).to_owned();
        let lock =
            options.open(&lock_path).map_err(RepositoryError::local("lock the repository", &lock_path))?;
        flock(&lock, FlockOperation::LockExclusive)
            .map_err(|errno| RepositoryError::local("lock the repository", &lock_path)(errno.into()))?;
        let found = self.read(name, RECORD_BYTES_MAX).map_err(|error| match error {
            RepositoryError::NotFound { name } => RepositoryError::Changed { name },
            error => error,
        })?;
        if tag(&found) != *current {
            return Err(RepositoryError::Changed { name: name.to_owned() });
        }
        let path = self.path(name);
        let beside = self.write_beside(&mut &*bytes, None)?;
        DiskFs.rename(&beside, &path).map_err(RepositoryError::local("write to the repository", &path))?;
        sync_dir(parent(&path))?;
        Ok(tag(bytes))
    }

    fn put_file(&self, name: &str, stream: &mut dyn Read, bytes: u64) -> Result<(), RepositoryError> {
        let path = self.path(name);
        make_dir(parent(&path))?;
        let beside = self.write_beside(stream, Some(bytes))?;
        DiskFs.rename(&beside, &path).map_err(RepositoryError::local("write to the repository", &path))?;
        sync_dir(parent(&path))
    }

    fn get(&self, name: &str, bytes_max: u64) -> Result<(Vec<u8>, Tag), RepositoryError> {
        let bytes = self.read(name, bytes_max)?;
        let tag = tag(&bytes);
        Ok((bytes, tag))
    }

    fn get_range(&self, name: &str, from: u64, bytes: u64) -> Result<Vec<u8>, RepositoryError> {
        let path = self.path(name);
        let mut file = File::open(&path).map_err(|error| not_found(name, &path, error))?;
        let mut read = Vec::new();
        file.seek(SeekFrom::Start(from))
            .and_then(|_| file.take(bytes).read_to_end(&mut read))
            .map_err(RepositoryError::local("read from the repository", &path))?;
        Ok(read)
    }

    fn list(&self, prefix: &str, objects_max: usize) -> Result<Listing, RepositoryError> {
        let mut listing = Listing { objects: Vec::new(), complete: true };
        walk(&self.path(prefix), prefix, objects_max, &mut listing)?;
        listing.objects.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(listing)
    }

    fn delete(&self, name: &str) -> Result<(), RepositoryError> {
        let path = self.path(name);
        match DiskFs.remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(RepositoryError::local("delete from the repository", &path)(error)),
            Ok(()) => {
                // The folder of an upload goes with its last file; one that is not empty stays.
                if parent(&path) != self.root {
                    let _ = DiskFs.remove_dir(parent(&path));
                }
                Ok(())
            }
        }
    }
}

fn walk(dir: &Path, prefix: &str, objects_max: usize, listing: &mut Listing) -> Result<(), RepositoryError> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(RepositoryError::local("list the repository", dir))?,
    };
    for entry in entries {
        let entry = entry.map_err(RepositoryError::local("list the repository", dir))?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let name = format!("{prefix}/{name}");
        let kind = entry.file_type().map_err(RepositoryError::local("list the repository", dir))?;
        if kind.is_dir() {
            walk(&entry.path(), &name, objects_max, listing)?;
        } else if kind.is_file() {
            if listing.objects.len() >= objects_max {
                listing.complete = false;
                return Ok(());
            }
            // One that vanishes meanwhile is not there.
            let Ok(metadata) = entry.metadata() else { continue };
            let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
            let modified_ms =
                modified.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
            listing.objects.push(ObjectInfo { name, bytes: metadata.len(), modified_ms });
        }
    }
    Ok(())
}

fn not_found(name: &str, path: &Path, error: io::Error) -> RepositoryError {
    match error.kind() {
        io::ErrorKind::NotFound => RepositoryError::NotFound { name: name.to_owned() },
        _ => RepositoryError::local("read from the repository", path)(error),
    }
}

fn make_dir(path: &Path) -> Result<(), RepositoryError> {
    if path.is_dir() {
        return Ok(());
    }
    create_dir_durably(&DiskFs, path)
        .map_err(RepositoryError::local("create a folder of the repository", path))
}

fn sync_dir(path: &Path) -> Result<(), RepositoryError> {
    DiskFs.sync_dir(path).map_err(RepositoryError::local("sync the repository", path))
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

fn tag(bytes: &[u8]) -> Tag {
    Tag { etag: Some(format!("{:016x}", xxhash_rust::xxh3::xxh3_64(bytes))), version: None }
}
