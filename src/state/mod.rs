//! The state database: open panes of every window operator, in one RocksDB, evicted behind the horizon.
//!
//! The only module that names `rocksdb`. It stores and merges payloads without knowing what is in them, and it
//! knows no manifest, no clock and no source: what is durable, and when the horizon may move, is decided above.
//!
//! The tour: [`FamilySpec`] says which families there are and how their payloads merge; [`StateDb`] is the working
//! database of a task ([`StateDb::write_sorted`], [`StateDb::scan`], [`StateDb::evict`],
//! [`StateDb::link_checkpoint`]); [`ReadOnlyState`] opens a published checkpoint without touching it;
//! [`StateMemory`] is the memory that all databases of a process share. The layout of keys and values is in
//! `docs/FORMAT.md`, section "State database".
//!
//! Three things keep expired panes away, each without need of the others: reads mask them, eviction drops whole
//! files and writes one range delete, and the compaction filter removes what is left when files are rewritten.

mod db;
mod engine;
mod error;
mod evict;
mod family;
mod filter;
#[cfg(feature = "fault-injection")]
pub(crate) mod fuzzing;
mod horizon;
mod key;
mod link;
mod memory;
mod merge;
mod options;
mod readonly;
mod reshape;
mod scan;
mod selftest;
mod stats;
mod value;
mod write;

#[cfg(test)]
mod probes;
#[cfg(test)]
mod tests;

pub use db::StateDb;
pub use error::StateError;
pub use evict::EvictStats;
pub use family::{FamilyId, FamilySpec, PaneMerge};
pub use key::{pane_key, window_end};
pub use link::{FileRange, Linked, LinkedFile};
pub use memory::{MemoryUse, StateMemory};
pub use options::StateOptions;
pub use readonly::{FamilyVerified, ReadOnlyState};
pub use scan::PaneScan;
pub use selftest::self_test;
pub use stats::{FilterCounts, StateStats};
pub use value::{OwnedStored, Stored, damaged_inputs};
pub use write::{Write, WritePath, WriteStats};
