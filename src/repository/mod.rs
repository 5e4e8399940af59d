//! Repositories: checkpoints mirrored to another place, a shared directory or an object store, so that a lost machine
//! can be replaced.
//!
//! The tour: [`Location`] names a place and opens it as a [`Repository`], the small face that `local` and `object`
//! implement (`faulty` breaks it, for tests); `format` says what the objects are; [`prepare()`] decides what a start
//! does, [`Mirror`] claims the place and uploads one checkpoint, [`Uploader`] does that on a thread of its own;
//! [`fetch()`] brings a checkpoint back, [`plan_gc`] decides what may be deleted, [`list()`] tells what is there.
//!
//! It does not know what a checkpoint is good for. Protocol and cut points are in `docs/REPOSITORY.md`, the bytes in
//! `docs/FORMAT.md`.

mod contents;
mod error;
#[cfg(any(test, feature = "fault-injection"))]
mod faulty;
mod fetch;
mod format;
#[cfg(feature = "fault-injection")]
pub(crate) mod fuzzing;
mod gc;
mod local;
mod location;
mod look;
mod mirror;
#[cfg(feature = "object-store")]
mod object;
mod parallel;
mod retry;
mod start;
mod stock;
mod uploader;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

pub use contents::{RepositoryEntry, list};
pub use error::RepositoryError;
#[cfg(any(test, feature = "fault-injection"))]
pub use faulty::{Faults, FaultyRepository};
pub use fetch::{fetch, fetch_with};
pub use format::{ManifestKey, ObjectName, Owner, StoredCheckpoint, StoredFile, UploadId};
pub use gc::{GcFacts, GcObject, GcPlan, GcReason, ManifestFact, OwnerFact, WhyRetained, collect, plan_gc};
pub use local::LocalRepository;
pub use location::Location;
pub use look::{BroughtManifests, Fetched, bring_checkpoint, bring_manifests};
pub use mirror::{Claim, Mirror, Uploaded};
#[cfg(feature = "object-store")]
pub use object::ObjectRepository;
pub use retry::{Pause, Retry, StopSignal};
pub use start::{
    Claimed, LocalFacts, Prepared, Preview, Refusal, StartFacts, StartPlan, plan_start, prepare, preview,
};
pub use uploader::{UploadStats, Uploader};

/// What identifies one content of an object, for [`Repository::put_if`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The entity tag.
    pub etag: Option<String>,
    /// The version, where the store counts versions.
    pub version: Option<String>,
}

/// An object in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Its name below the repository's prefix.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// When it was written, by the clock of the store, in Unix milliseconds.
    pub modified_ms: i64,
}

/// What [`Repository::list`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The objects, by name.
    pub objects: Vec<ObjectInfo>,
    /// False when there are more than were asked for.
    pub complete: bool,
}

/// A place for objects with conditional writes. Names are relative, parts joined by `/`.
///
/// Calls block. They are tried once: who calls decides on retries ([`Retry`]). A call that fails with
/// [`RepositoryError::Unavailable`] may nevertheless have taken effect.
pub trait Repository: Send + Sync + fmt::Debug {
    /// The place, for messages; never holds credentials.
    fn place(&self) -> String;

    /// Creates an object that does not exist.
    ///
    /// # Errors
    /// [`RepositoryError::Exists`] when the name is taken, also by an earlier call whose reply was lost;
    /// [`RepositoryError::Unavailable`], [`RepositoryError::Refused`].
    fn put_new(&self, name: &str, bytes: &[u8]) -> Result<Tag, RepositoryError>;

    /// Replaces an object whose content is still the one of `current`.
    ///
    /// # Errors
    /// [`RepositoryError::Changed`] when it is another one; [`RepositoryError::Unavailable`],
    /// [`RepositoryError::Refused`].
    fn put_if(&self, name: &str, bytes: &[u8], current: &Tag) -> Result<Tag, RepositoryError>;

    /// Writes an object of `bytes` bytes from a stream, in parts when it is large. The name is one that is used for
    /// these bytes alone.
    ///
    /// # Errors
    /// [`RepositoryError::Unavailable`], [`RepositoryError::Refused`], [`RepositoryError::Local`] when the stream
    /// fails or ends early.
    fn put_file(&self, name: &str, stream: &mut dyn Read, bytes: u64) -> Result<(), RepositoryError>;

    /// Reads a small object whole.
    ///
    /// # Errors
    /// [`RepositoryError::NotFound`], [`RepositoryError::TooLarge`] beyond `bytes_max`,
    /// [`RepositoryError::Unavailable`], [`RepositoryError::Refused`].
    fn get(&self, name: &str, bytes_max: u64) -> Result<(Vec<u8>, Tag), RepositoryError>;

    /// Reads `bytes` bytes from offset `from`; fewer only when the object ends before, or when the reply was cut.
    ///
    /// # Errors
    /// [`RepositoryError::NotFound`], [`RepositoryError::Unavailable`], [`RepositoryError::Refused`].
    fn get_range(&self, name: &str, from: u64, bytes: u64) -> Result<Vec<u8>, RepositoryError>;

    /// The objects whose names start with the folder `prefix`, at most `objects_max`. It may lag behind writes.
    ///
    /// # Errors
    /// [`RepositoryError::Unavailable`], [`RepositoryError::Refused`].
    fn list(&self, prefix: &str, objects_max: usize) -> Result<Listing, RepositoryError>;

    /// Deletes an object; one that is not there is no error.
    ///
    /// # Errors
    /// [`RepositoryError::Unavailable`], [`RepositoryError::Refused`].
    fn delete(&self, name: &str) -> Result<(), RepositoryError>;
}

/// How a store uses a repository.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where checkpoints go.
    pub repository: Arc<dyn Repository>,
    /// True when the output of an epoch waits until the repository has the checkpoint.
    pub required: bool,
    /// How failing calls are tried again.
    pub retry: Retry,
    /// With `required`, how long a checkpoint may wait for a repository that fails before the run ends.
    pub patience: Duration,
}

impl Settings {
    /// The defaults: not required, six attempts per call, ten minutes of patience.
    #[must_use]
    pub fn new(repository: Arc<dyn Repository>) -> Self {
        Self { repository, required: false, retry: Retry::default(), patience: Duration::from_secs(600) }
    }

    /// Holds output back until the repository has its checkpoint.
    #[must_use]
    pub fn required(mut self, required: bool) -> Self {
        self.required = required;
        self
    }
}
