//! What can go wrong in the state database, in its own words, and what that means to the caller.
//!
//! Knows nothing of checkpoints: "restore" is advice, not something done here.

use std::io;
use std::path::PathBuf;

use crate::error::{Error, ErrorKind};

/// What to do about a full disk.
const FREE_SPACE: &str =
    "free space on the volume of the state directory and run again; the last complete checkpoint is intact";

/// Why the state database could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The directory for a new database holds something.
    #[error("directory for new state is not empty: dir={}", dir.display())]
    NotEmpty {
        /// The directory.
        dir: PathBuf,
    },
    /// There is no database in the directory.
    #[error("no state database here: dir={}", dir.display())]
    Missing {
        /// The directory.
        dir: PathBuf,
    },
    /// The database holds other families than the operators need.
    #[error("state families do not match the operators: dir={} absent={absent:?} unexpected={unexpected:?}", dir.display())]
    Families {
        /// The directory.
        dir: PathBuf,
        /// Families that the operators need and the database lacks.
        absent: Vec<String>,
        /// Families of the database that no operator owns.
        unexpected: Vec<String>,
    },
    /// The families do not all hold the state of one epoch.
    #[error("state is torn, its families hold different epochs: dir={} epochs={epochs:?}", dir.display())]
    Torn {
        /// The directory.
        dir: PathBuf,
        /// Each family with the epoch it holds, if any.
        epochs: Vec<(String, Option<u64>)>,
    },
    /// The database lists table files that are not there.
    #[error("state lacks table files: dir={} absent={absent:?}", dir.display())]
    Files {
        /// The directory.
        dir: PathBuf,
        /// Their names.
        absent: Vec<String>,
    },
    /// A family name is empty, used twice, or has characters outside `[0-9A-Za-z_-]`.
    #[error("family name cannot be used: name={name:?}")]
    FamilyName {
        /// The name.
        name: String,
    },
    /// Entries did not come in strictly ascending order.
    #[error("entries are not in strictly ascending order: family={family} entry={entry}")]
    Order {
        /// The family.
        family: String,
        /// Index of the first entry out of order.
        entry: usize,
    },
    /// The database was opened with fewer families.
    #[error("no such family: index={index} families={families}")]
    NoFamily {
        /// Index asked for.
        index: usize,
        /// How many there are.
        families: usize,
    },
    /// A thread panicked while it changed the state.
    #[error("state was left half changed by a thread that panicked")]
    HalfChanged,
    /// RocksDB noted failures in the background.
    #[error("state database failed in the background: failures={failures}")]
    Background {
        /// Its count of them.
        failures: u64,
    },
    /// The compaction filter does not do what eviction relies on.
    #[error("self-test of the compaction filter failed: family={family} {why}")]
    SelfTest {
        /// The family whose configuration was tested.
        family: String,
        /// What was seen.
        why: String,
    },
    /// A file or directory could not be used.
    #[error("cannot {what}: path={}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which path.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// RocksDB refused.
    #[error("cannot {what}")]
    Engine {
        /// What was tried.
        what: &'static str,
        /// RocksDB's answer.
        source: rocksdb::Error,
    },
}

impl StateError {
    /// Puts what was tried before an answer of RocksDB.
    pub(super) fn engine(what: &'static str) -> impl FnOnce(rocksdb::Error) -> Self {
        move |source| Self::Engine { what, source }
    }

    /// Puts what was tried, and where, before an answer of the system.
    pub(super) fn io(what: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Self::NotEmpty { .. } | Self::FamilyName { .. } => ErrorKind::Invalid,
            Self::Missing { .. } | Self::Torn { .. } | Self::Files { .. } => ErrorKind::Damaged,
            Self::Families { .. } => ErrorKind::Incompatible,
            Self::Background { .. } | Self::HalfChanged => ErrorKind::Poisoned,
            Self::Order { .. } | Self::NoFamily { .. } | Self::SelfTest { .. } => ErrorKind::Bug,
            Self::Io { .. } => ErrorKind::Unavailable,
            Self::Engine { source, .. } => match source.kind() {
                rocksdb::ErrorKind::Corruption | rocksdb::ErrorKind::NotFound => ErrorKind::Damaged,
                rocksdb::ErrorKind::InvalidArgument | rocksdb::ErrorKind::NotSupported => ErrorKind::Bug,
                _ => ErrorKind::Unavailable,
            },
        }
    }

    fn remedy(&self) -> Option<&'static str> {
        Some(match self {
            Self::NotEmpty { .. } => "name a directory that does not exist yet",
            Self::Missing { .. } | Self::Torn { .. } | Self::Files { .. } => "restore another checkpoint",
            Self::Families { .. } => "use the pipeline that wrote this state, or start a new state directory",
            Self::FamilyName { .. } => "name operators with letters, digits, '_' and '-', each name once",
            Self::Background { .. } => {
                "look for a full disk or a failing one, then restart: the last checkpoint is restored"
            }
            Self::HalfChanged => "restart: the last checkpoint is restored",
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FREE_SPACE,
                io::ErrorKind::PermissionDenied => "give the process access to the path",
                _ => return None,
            },
            // RocksDB hands on the system's answer as text only.
            Self::Engine { source, .. } if is_full(source.as_ref()) => FREE_SPACE,
            _ => return None,
        })
    }
}

impl From<StateError> for Error {
    fn from(error: StateError) -> Self {
        let public = Self::new(error.kind(), error.to_string());
        let public = match error.remedy() {
            Some(remedy) => public.with_remedy(remedy),
            None => public,
        };
        match error {
            StateError::Io { source, .. } => public.with_source(source),
            StateError::Engine { source, .. } => public.with_source(source),
            _ => public,
        }
    }
}

/// RocksDB hands the system's words on without its number: a full disk, or a quota that is used up.
fn is_full(message: &str) -> bool {
    ["No space left on device", "Disk quota exceeded"].iter().any(|full| message.contains(full))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_that_is_used_up_is_a_full_disk() {
        for errno in [rustix::io::Errno::DQUOT, rustix::io::Errno::NOSPC] {
            let words = std::io::Error::from(errno).to_string();
            assert!(is_full(&format!("IO error: {words}: While appending to file: 000007.sst")), "{words}");
        }
        assert!(!is_full("IO error: Permission denied"));
    }
}
