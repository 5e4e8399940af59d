//! What a repository holds, as plain data for people and tools. Reads records, and lists objects.

use serde::Serialize;

use super::Repository;
use super::error::RepositoryError;
use super::format::StoredCheckpoint;
use super::mirror::load_records;
use super::retry::Retry;
use super::stock;
use crate::checkpoint::Manifest;
use crate::event_time::EventTime;

/// One stored checkpoint. What only a record can tell is absent when it cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RepositoryEntry {
    /// Its epoch.
    pub epoch: u64,
    /// The owner that uploaded it.
    pub generation: u64,
    /// When the checkpoint was written, by the clock there.
    pub created_at: Option<String>,
    /// When its upload began, by the clock there.
    pub uploaded_at: Option<String>,
    /// Its watermark.
    pub watermark: Option<String>,
    /// Files of its database.
    pub files: Option<u64>,
    /// Bytes of these files.
    pub bytes: Option<u64>,
    /// Bytes that came with its own upload; the others it shares with earlier ones.
    pub new_bytes: Option<u64>,
    /// Why its record cannot be read, or what it names and is not there.
    pub problem: Option<String>,
}

/// The checkpoints in `repository`, oldest first.
///
/// # Errors
/// Errors of the store. A record that cannot be read is a line of the list and no error.
pub fn list(repository: &dyn Repository, retry: &Retry) -> Result<Vec<RepositoryEntry>, RepositoryError> {
    let records = load_records(repository, retry)?;
    let missing = stock::missing(repository, retry, &records)?;
    let entry = |(key, record): (&super::ManifestKey, _)| {
        let record: &Result<std::sync::Arc<StoredCheckpoint>, std::sync::Arc<RepositoryError>> = record;
        let stored = record.as_ref().ok();
        let manifest = stored.and_then(|stored| Manifest::decode(&stored.manifest).ok());
        let time = |ms| EventTime::from_millis(ms).to_string();
        RepositoryEntry {
            epoch: key.epoch,
            generation: key.generation,
            created_at: manifest.as_ref().map(|manifest| time(manifest.created_at_ms)),
            uploaded_at: stored.map(|stored| time(stored.uploaded_at_ms)),
            watermark: manifest.as_ref().map(|manifest| manifest.watermark.to_string()),
            files: stored.map(|stored| stored.files.len() as u64),
            bytes: stored.map(|stored| stored.bytes()),
            new_bytes: stored.map(|stored| stored.new_bytes()),
            problem: match record {
                Ok(_) => missing.get(key).map(ToString::to_string),
                Err(error) => Some(error.to_string()),
            },
        }
    };
    Ok(records.iter().map(entry).collect())
}
