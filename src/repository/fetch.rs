//! Bringing a checkpoint back: an ordinary checkpoint directory, every file verified, the manifest last.
//!
//! Files that are there and whole are not fetched again, and begun ones are gone on with, so that a fetch that was cut
//! is repeated at little cost.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::Repository;
use super::error::RepositoryError;
use super::format::{ManifestKey, StoredCheckpoint, StoredFile};
use super::mirror::{list_keys, load_record};
use super::parallel;
use super::retry::Retry;
use crate::checkpoint::{DiskFs, DurableFs, VerifiedManifest, create_dir_durably, verify};

/// Bytes of one call; the memory of a fetch is this times the calls at once.
const RANGE_BYTES: u64 = 8 << 20;
/// Epochs named in a message.
const EPOCHS_SHOWN_MAX: usize = 20;

/// Brings the checkpoint of `epoch`, or the newest, from `repository` into the directory `into`, which becomes an
/// ordinary checkpoint directory. `into` does not exist, or is what an earlier fetch of the same checkpoint left.
///
/// # Errors
/// [`RepositoryError::NoCheckpoint`], [`RepositoryError::Damaged`] when an object is not as its record says,
/// [`RepositoryError::Newer`], [`RepositoryError::Local`]; errors of the store after all retries.
pub fn fetch(
    repository: &dyn Repository,
    epoch: Option<u64>,
    into: &Path,
) -> Result<VerifiedManifest, RepositoryError> {
    fetch_with(repository, &Retry::default(), epoch, into)
}

/// As [`fetch`], with retries of the caller's.
///
/// # Errors
/// As [`fetch`].
pub fn fetch_with(
    repository: &dyn Repository,
    retry: &Retry,
    epoch: Option<u64>,
    into: &Path,
) -> Result<VerifiedManifest, RepositoryError> {
    fetch_watched(repository, retry, epoch, &|_, _| into.to_owned(), &|_| ())
}

/// As [`fetch_with`], into a directory that `into` names once the checkpoint is known; `moved` is told bytes as they come.
pub(super) fn fetch_watched(
    repository: &dyn Repository,
    retry: &Retry,
    epoch: Option<u64>,
    into: &dyn Fn(ManifestKey, &StoredCheckpoint) -> PathBuf,
    moved: &(dyn Fn(u64) + Sync),
) -> Result<VerifiedManifest, RepositoryError> {
    let keys = list_keys(repository, retry)?;
    let chosen = keys.iter().rev().find(|key| epoch.is_none_or(|epoch| key.epoch == epoch));
    let Some(&key) = chosen else {
        let mut present: Vec<u64> = keys.iter().rev().map(|key| key.epoch).collect();
        present.dedup();
        present.truncate(EPOCHS_SHOWN_MAX);
        return Err(RepositoryError::NoCheckpoint { place: repository.place(), epoch, present });
    };
    let stored = load_record(repository, retry, key)?;
    let into = into(key, &stored);
    fetch_stored(repository, retry, &stored, &into, moved)
}

pub(super) fn fetch_key(
    repository: &dyn Repository,
    retry: &Retry,
    key: ManifestKey,
    into: &Path,
) -> Result<VerifiedManifest, RepositoryError> {
    let stored = load_record(repository, retry, key)?;
    fetch_stored(repository, retry, &stored, into, &|_| ())
}

fn fetch_stored(
    repository: &dyn Repository,
    retry: &Retry,
    stored: &StoredCheckpoint,
    into: &Path,
    moved: &(dyn Fn(u64) + Sync),
) -> Result<VerifiedManifest, RepositoryError> {
    let database = into.join("db");
    create_dir_durably(&DiskFs, &database)
        .map_err(RepositoryError::local("create a directory", &database))?;
    parallel::for_each(&stored.files, |file| {
        fetch_file(repository, retry, stored, file, &database)?;
        moved(file.bytes);
        Ok(())
    })?;
    DiskFs.sync_dir(&database).map_err(RepositoryError::local("sync a directory", &database))?;
    write_manifest(into, &stored.manifest)?;
    verify(into).into_verified().map_err(|report| RepositoryError::Damaged {
        name: into.display().to_string(),
        reason: report.problem_line(),
    })
}

fn write_manifest(into: &Path, bytes: &[u8]) -> Result<(), RepositoryError> {
    let path = into.join("MANIFEST.fm");
    let there = std::fs::read(&path);
    match there {
        Ok(there) if there == bytes => return Ok(()),
        // Cut while it was written, or another checkpoint: then its files would not verify either.
        Ok(_) => DiskFs.remove_file(&path).map_err(RepositoryError::local("replace the manifest", &path))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(RepositoryError::local("read the manifest", &path)(error)),
    }
    DiskFs
        .write_new(&path, bytes)
        .and_then(|()| DiskFs.sync_file(&path))
        .and_then(|()| DiskFs.sync_dir(into))
        .map_err(RepositoryError::local("write the manifest", &path))
}

/// Fetches what is missing of one file. A file that is complete and wrong is fetched once more from its start: what was
/// left there may be of another fetch.
fn fetch_file(
    repository: &dyn Repository,
    retry: &Retry,
    stored: &StoredCheckpoint,
    file: &StoredFile,
    database: &Path,
) -> Result<(), RepositoryError> {
    let path = database.join(&file.name);
    let object = stored.object(file).to_string();
    let mut found = 0;
    for fresh in [false, true] {
        let local = |step| RepositoryError::local(step, &path);
        let options = File::options().create(true).append(true).to_owned();
        let mut to = options.open(&path).map_err(local("create a file"))?;
        let length = to.metadata().map_err(local("look at a file"))?.len();
        if fresh || length > file.bytes {
            to.set_len(0).map_err(local("empty a file"))?;
        }
        append_missing(repository, retry, &object, file, &mut to, &path)?;
        to.sync_all().map_err(local("sync a file"))?;
        found = crc32_of(&path)?;
        if found == file.crc32 {
            return Ok(());
        }
    }
    let reason = format!("object fails its checksum: expected={:08x} found={found:08x}", file.crc32);
    Err(RepositoryError::Damaged { name: object, reason })
}

fn append_missing(
    repository: &dyn Repository,
    retry: &Retry,
    object: &str,
    file: &StoredFile,
    to: &mut File,
    path: &Path,
) -> Result<(), RepositoryError> {
    let mut at = to.metadata().map_err(RepositoryError::local("look at a file", path))?.len();
    while at < file.bytes {
        let wanted = RANGE_BYTES.min(file.bytes - at);
        let read = retry.run(|| {
            let read = repository.get_range(object, at, wanted)?;
            if read.len() as u64 == wanted {
                return Ok(read);
            }
            let reason = format!("the object or the reply ends early: at={at} bytes={}", read.len());
            Err(RepositoryError::Unavailable { step: "read", name: object.to_owned(), reason })
        })?;
        to.write_all(&read).map_err(RepositoryError::local("write a file", path))?;
        at += wanted;
    }
    Ok(())
}

fn crc32_of(path: &Path) -> Result<u32, RepositoryError> {
    let mut file = File::open(path).map_err(RepositoryError::local("read a file", path))?;
    let (mut hasher, mut buffer) = (crc32fast::Hasher::new(), vec![0; 256 << 10]);
    loop {
        match file.read(&mut buffer).map_err(RepositoryError::local("read a file", path))? {
            0 => return Ok(hasher.finalize()),
            read => hasher.update(buffer.get(..read).unwrap_or_default()),
        }
    }
}
