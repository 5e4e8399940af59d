//! Checkpoints: complete, self-contained copies of a task's state, one directory each, published by one rename.
//!
//! The tour: [`StateDirectory`] (`directory`) owns the place on disk and its lock, [`FoundDirectory`] looks at it before; `writer` makes a checkpoint;
//! `plan` decides, as pure functions, what to restore and what to retire; `restore` and `retention` carry that out;
//! [`verify()`] and [`list()`] read any checkpoint without the lock, and [`savepoint`] keeps one for good. `durable` is the only door for writes.
//!
//! It does not know what is inside `db/` (the state layer writes it) nor what a staged output handle means. The
//! protocol and its cut points are in `docs/CHECKPOINTS.md`, the bytes in `docs/FORMAT.md`.

mod adopt;
mod directory;
mod durable;
mod error;
mod found;
#[cfg(feature = "fault-injection")]
pub(crate) mod fuzzing;
mod layout;
mod lineage;
mod listing;
mod lock;
mod manifest;
mod plan;
#[cfg(test)]
mod power_cut;
mod reread;
mod restore;
mod retention;
pub mod savepoint;
mod verify;
mod writer;

#[cfg(test)]
mod tests;

pub use adopt::{Adoption, LocalState, holder, look, preflight};
pub use directory::{Environment, StateDirectory};
pub use durable::{Copied, DiskFs, DurableFs, create_dir_durably, publish_file, remove_tree};
pub use error::CheckpointError;
pub(crate) use error::ROTTEN;
pub use found::FoundDirectory;
pub(crate) use layout::is_plain_name;
pub use lineage::LineageId;
pub use listing::{CheckpointSummary, list};
pub use lock::Holder;
pub use manifest::{
    FileEntry, Manifest, ManifestError, OperatorState, PartitionState, Position, SourceIdentity, SourceState,
    StagedOutput,
};
pub use plan::{Keep, Kept, RetentionFact, RetentionPlan, Retired, WhyKept, plan_retention};
pub use restore::{DamagedCheckpoint, RestoreChoice};
pub use retention::Pin;
pub use verify::{Problem, VerifiedManifest, VerifyReport, verify};
pub use writer::{CheckpointWriter, FileFacts, ManifestDraft, Published};
