//! As much of a repository as a reader needs, in a directory that looks like a state directory: manifests alone, or one
//! checkpoint whole. Claims nothing and writes nothing in the repository.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::Repository;
use super::error::RepositoryError;
use super::fetch::fetch_watched;
use super::format::{ManifestKey, StoredCheckpoint};
use super::mirror::load_records;
use super::retry::Retry;
use crate::checkpoint::{DiskFs, DurableFs, create_dir_durably};

/// How far a fetch has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fetched {
    /// Bytes that are here.
    pub bytes: u64,
    /// Bytes in all.
    pub bytes_total: u64,
}

/// What came of bringing a repository's manifests.
#[derive(Debug, Default)]
pub struct BroughtManifests {
    /// Epochs whose manifests are here now, oldest first.
    pub epochs: Vec<u64>,
    /// Records that cannot be read, with the reason.
    pub unreadable: Vec<(ManifestKey, String)>,
}

fn directory(into: &Path, epoch: u64) -> PathBuf {
    into.join("checkpoints").join(format!("chk-{epoch:010}"))
}

/// Writes the manifest of every checkpoint in `repository` to `into/checkpoints/chk-EPOCH/MANIFEST.fm`: enough for reports
/// that open no database. Of an epoch that several owners uploaded the latest counts.
///
/// # Errors
/// Errors of the store after all retries; [`RepositoryError::NoCheckpoint`] when it holds none,
/// [`RepositoryError::Local`] when `into` cannot be written.
pub fn bring_manifests(
    repository: &dyn Repository,
    retry: &Retry,
    into: &Path,
) -> Result<BroughtManifests, RepositoryError> {
    let mut brought = BroughtManifests::default();
    let mut latest: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for (key, record) in load_records(repository, retry)? {
        match record {
            Ok(stored) => {
                latest.insert(key.epoch, stored.manifest.clone());
            }
            Err(error) => brought.unreadable.push((key, error.to_string())),
        }
    }
    if latest.is_empty() && brought.unreadable.is_empty() {
        return Err(RepositoryError::NoCheckpoint {
            place: repository.place(),
            epoch: None,
            present: Vec::new(),
        });
    }
    for (epoch, manifest) in latest {
        let directory = directory(into, epoch);
        let local = |step| RepositoryError::local(step, &directory);
        create_dir_durably(&DiskFs, &directory).map_err(local("create a directory"))?;
        DiskFs.write_new(&directory.join("MANIFEST.fm"), &manifest).map_err(local("write a manifest"))?;
        brought.epochs.push(epoch);
    }
    Ok(brought)
}

/// Brings the checkpoint of `epoch`, or the newest, to `into/checkpoints/chk-EPOCH`, verified, and tells `watch` how far
/// it has come, from several threads. Returns its epoch.
///
/// # Errors
/// As [`super::fetch()`].
pub fn bring_checkpoint(
    repository: &dyn Repository,
    retry: &Retry,
    epoch: Option<u64>,
    into: &Path,
    watch: &(dyn Fn(Fetched) + Sync),
) -> Result<u64, RepositoryError> {
    let done = AtomicU64::new(0);
    let total = AtomicU64::new(0);
    let chosen = |key: ManifestKey, stored: &StoredCheckpoint| {
        total.store(stored.bytes(), Ordering::Relaxed);
        directory(into, key.epoch)
    };
    let moved = |bytes: u64| {
        let bytes = done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        watch(Fetched { bytes, bytes_total: total.load(Ordering::Relaxed) });
    };
    let verified = fetch_watched(repository, retry, epoch, &chosen, &moved)?;
    Ok(verified.manifest().epoch)
}
