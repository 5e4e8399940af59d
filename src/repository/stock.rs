//! Whether the objects that stored checkpoints name are there: somebody may have deleted some, or a rule of the store.
//!
//! Names and sizes alone, from one listing; bytes are checked when a checkpoint is fetched.

use std::collections::{BTreeMap, HashMap};

use super::Repository;
use super::error::RepositoryError;
use super::format::{DATA, ManifestKey};
use super::mirror::Records;
use super::retry::Retry;

/// Objects that are listed at most; in a repository with more nothing is said to be missing.
const OBJECTS_MAX: usize = 200_000;

/// What is missing of a stored checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    /// How many objects, of those that its record names.
    pub(super) objects: u64,
    /// The first of them.
    pub(super) first: String,
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "objects are missing: objects={} first={}", self.objects, self.first)
    }
}

/// The stored checkpoints that cannot be fetched, since objects are gone or have another size. Listed twice: a listing
/// may lag behind.
pub(super) fn missing(
    repository: &dyn Repository,
    retry: &Retry,
    records: &Records,
) -> Result<BTreeMap<ManifestKey, Missing>, RepositoryError> {
    if records.values().all(Result::is_err) {
        return Ok(BTreeMap::new());
    }
    let mut sizes = HashMap::new();
    for _ in 0..2 {
        let listing = retry.run(|| repository.list(DATA, OBJECTS_MAX))?;
        if !listing.complete {
            return Ok(BTreeMap::new());
        }
        sizes.extend(listing.objects.into_iter().map(|object| (object.name, object.bytes)));
    }
    let mut missing = BTreeMap::new();
    for (&key, record) in records {
        let Ok(stored) = record else { continue };
        let named = stored.files.iter().map(|file| (stored.object(file).to_string(), file.bytes));
        let mut gone = named.filter(|(name, bytes)| sizes.get(name) != Some(bytes)).map(|(name, _)| name);
        if let Some(first) = gone.next() {
            missing.insert(key, Missing { objects: 1 + gone.count() as u64, first });
        }
    }
    Ok(missing)
}
