//! What can go wrong with a state directory and its checkpoints, in this module's own words.
//!
//! Converts into the public error with the way out; it knows nothing of who asked.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::checkpoint::lock::Holder;
use crate::codec::DecodeError;
use crate::error::{Error, ErrorKind};

/// Why a state directory or a checkpoint could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// Another process holds the directory.
    #[error("state directory is in use by another process: path={} {holder}", path.display())]
    Locked {
        /// The state directory.
        path: PathBuf,
        /// What the lock file says about its owner.
        holder: Holder,
    },
    /// Another process opened the directory while it was looked at.
    #[error("state directory was opened by another process in this moment: path={}", path.display())]
    Changed {
        /// The state directory.
        path: PathBuf,
    },
    /// Another process runs on the original of what is to be moved.
    #[error("a process runs on the original, whose history a move takes over: path={} {holder}", path.display())]
    OriginalInUse {
        /// The state directory of the original.
        path: PathBuf,
        /// What the lock file says about its owner.
        holder: Holder,
    },
    /// Somebody else opened the directory since we did.
    #[error("lineage was taken over: path={} our_generation={ours} reason={reason}", path.display())]
    Fenced {
        /// The state directory.
        path: PathBuf,
        /// The generation this process opened.
        ours: u64,
        /// What showed it.
        reason: String,
    },
    /// The directory holds the state of another pipeline.
    #[error("state directory belongs to another pipeline: path={} pipeline={found:?} asked={asked:?}", path.display())]
    OtherPipeline {
        /// The state directory.
        path: PathBuf,
        /// The pipeline whose state it is.
        found: String,
        /// The pipeline that was to open it.
        asked: String,
    },
    /// The directory is not empty and not a state directory.
    #[error("directory is not a state directory and not empty: path={} first_entry={entry:?}", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Something found in it.
        entry: String,
    },
    /// Written by a later version.
    #[error("{what} was written by a newer version: path={} format={found} known={known}", path.display())]
    Newer {
        /// What kind of file.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Format version found.
        found: u32,
        /// Newest format version this build reads.
        known: u32,
    },
    /// The lineage file cannot be decoded.
    #[error("lineage file is damaged: path={}", path.display())]
    LineageDamaged {
        /// The lineage file.
        path: PathBuf,
        /// What the decoder found.
        #[source]
        source: DecodeError,
    },
    /// There are checkpoints, but no lineage file.
    #[error("lineage file is missing beside existing checkpoints: path={}", path.display())]
    LineageLost {
        /// The lineage file.
        path: PathBuf,
    },
    /// The checkpoint to restore does not verify.
    #[error("checkpoint is damaged: epoch={epoch} path={} problems=[{problems}]", path.display())]
    Damaged {
        /// Its epoch.
        epoch: u64,
        /// Its directory.
        path: PathBuf,
        /// What does not fit.
        problems: String,
        /// An older checkpoint that verifies.
        alternative: Option<u64>,
        /// False when files could merely not be read (permissions, I/O errors).
        lasting: bool,
    },
    /// A file of a checkpoint is not any more what it was when it was written.
    #[error(
        "a file of the newest checkpoint went bad after it was written: path={} problem=[{problem}] shared_by=[{}]",
        path.display(), shared_by.join(", ")
    )]
    Rotten {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        problem: String,
        /// False when it could merely not be read.
        lasting: bool,
        /// Checkpoints and savepoints that share it.
        shared_by: Vec<String>,
    },
    /// A checkpoint that existed at an earlier start is gone.
    #[error("newest checkpoint is missing: path={} epoch_seen={seen} newest_present={present:?}", path.display())]
    NewestMissing {
        /// The directory of checkpoints.
        path: PathBuf,
        /// The epoch an earlier start saw.
        seen: u64,
        /// The newest epoch there now.
        present: Option<u64>,
    },
    /// No checkpoint of the epoch asked for.
    #[error("no such checkpoint: epoch={epoch} path={} present={present:?}", path.display())]
    NoSuchCheckpoint {
        /// The epoch asked for.
        epoch: u64,
        /// Where it was looked for.
        path: PathBuf,
        /// The epochs that are there, newest first (at most 20).
        present: Vec<u64>,
    },
    /// The path holds no checkpoint at all.
    #[error("neither a state directory nor a checkpoint: path={}", path.display())]
    NoCheckpoints {
        /// The path.
        path: PathBuf,
    },
    /// An epoch at or below one that exists.
    #[error("epoch is taken: epoch={epoch} next={next}")]
    EpochTaken {
        /// The epoch asked for.
        epoch: u64,
        /// The lowest epoch that is free.
        next: u64,
    },
    /// A savepoint or a restore that cannot be made as asked.
    #[error("{what} path={}", path.display())]
    Refused {
        /// What is wrong with it.
        what: String,
        /// The place that it is about.
        path: PathBuf,
        /// What to do.
        remedy: String,
    },
    /// A checkpoint is already being written.
    #[error("a checkpoint is already being written: epoch={epoch}")]
    InFlight {
        /// The epoch that was to begin.
        epoch: u64,
    },
    /// The draft and the files on disk do not agree, or the manifest cannot be made.
    #[error("checkpoint draft does not fit its files: epoch={epoch} reason={reason}")]
    Draft {
        /// The epoch.
        epoch: u64,
        /// What does not fit.
        reason: String,
    },
    /// A sync failed; nothing this process wrote since can be trusted to be on disk.
    #[error("could not make data durable: step={step} path={}", path.display())]
    Sync {
        /// What was being done.
        step: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// An earlier sync failed.
    #[error("an earlier sync failed, the directory must be reopened: path={}", path.display())]
    Poisoned {
        /// The state directory.
        path: PathBuf,
    },
    /// The machine is in the way.
    #[error("could not {step}: path={}", path.display())]
    Io {
        /// What was being done.
        step: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

impl CheckpointError {
    pub(super) fn io(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { step, path: path.to_owned(), source }
    }

    pub(super) fn sync(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Sync { step, path: path.to_owned(), source }
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Self::Locked { .. } | Self::Changed { .. } | Self::OriginalInUse { .. } | Self::Fenced { .. } => {
                ErrorKind::Locked
            }
            Self::OtherPipeline { .. } | Self::Newer { .. } => ErrorKind::Incompatible,
            Self::Foreign { .. }
            | Self::NoSuchCheckpoint { .. }
            | Self::NoCheckpoints { .. }
            | Self::Refused { .. } => ErrorKind::Invalid,
            Self::Damaged { lasting: false, .. } | Self::Rotten { lasting: false, .. } | Self::Io { .. } => {
                ErrorKind::Unavailable
            }
            Self::LineageDamaged { .. }
            | Self::LineageLost { .. }
            | Self::Damaged { .. }
            | Self::Rotten { .. }
            | Self::NewestMissing { .. } => ErrorKind::Damaged,
            Self::EpochTaken { .. } | Self::InFlight { .. } | Self::Draft { .. } => ErrorKind::Bug,
            Self::Sync { .. } | Self::Poisoned { .. } => ErrorKind::Poisoned,
        }
    }

    fn remedy(&self) -> Option<String> {
        let remedy = match self {
            Self::Locked { .. } => {
                "stop that process, or give this one its own state directory; deleting files \
                does not release the lock and would let two writers in"
                    .to_owned()
            }
            Self::Changed { .. } => "start again once that process has ended".to_owned(),
            Self::OriginalInUse { .. } => {
                "stop the original, then move: the moved pipeline goes on in its place; or make a fork, beside which \
                 it may go on"
                    .to_owned()
            }
            Self::Fenced { .. } => {
                "let this process end: another one owns the state now, and nothing of this \
                epoch was published"
                    .to_owned()
            }
            Self::OtherPipeline { found, .. } => format!(
                "give this pipeline its own state directory, or keep the name {found:?} if it is the same pipeline"
            ),
            Self::Foreign { .. } => "choose an empty or a new directory for the state".to_owned(),
            Self::Newer { .. } => "open it with that version or a later one".to_owned(),
            Self::LineageDamaged { .. } | Self::LineageLost { .. } => {
                "put the file LINEAGE back from a copy of the state directory; without one, move the directory aside and \
                 take its newest checkpoint up with `floodmark restore PIPELINE --from ASIDE/checkpoints/chk-N --move`"
                    .to_owned()
            }
            Self::Damaged { lasting: false, .. } => {
                "make the files readable (permissions, disk errors in the system log) and start again"
                    .to_owned()
            }
            Self::Damaged { alternative, .. } => damaged_remedy(*alternative),
            Self::Rotten { .. } => format!("{ROTTEN}, and run again"),
            Self::NewestMissing { present, .. } => missing_remedy(*present),
            Self::NoSuchCheckpoint { present, .. } if present.is_empty() => {
                "start without asking for a checkpoint: there is none yet".to_owned()
            }
            Self::NoSuchCheckpoint { .. } => "ask for one of the epochs that are present".to_owned(),
            Self::NoCheckpoints { .. } => {
                "name a state directory, its directory `checkpoints`, or one checkpoint; one of a repository is brought \
                 here by `floodmark repository fetch`"
                    .to_owned()
            }
            Self::Sync { .. } | Self::Poisoned { .. } => {
                "check the disk, then start again: the last complete checkpoint is restored".to_owned()
            }
            Self::Refused { remedy, .. } => remedy.clone(),
            Self::Io { source, .. } => io_remedy(source)?.to_owned(),
            Self::EpochTaken { .. } | Self::InFlight { .. } | Self::Draft { .. } => return None,
        };
        Some(remedy)
    }
}

/// What to do about a file that went bad. Every checkpoint that shares it is lost with it.
pub(crate) const ROTTEN: &str = "check the disk; put the file back from a copy of the state directory or from a \
    savepoint elsewhere";

/// What falling back means for outputs; said wherever an older checkpoint is offered.
const AHEAD: &str = "outputs published after that checkpoint are then ahead of the state, and replayed input \
    produces those results again";

fn damaged_remedy(alternative: Option<u64>) -> String {
    match alternative {
        Some(epoch) => format!(
            "put the damaged files back from a copy, or restore the older checkpoint explicitly with --at {epoch}; {AHEAD}"
        ),
        None => {
            "put the damaged files back from a copy; no older checkpoint verifies, so otherwise start a new \
            state directory and replay the input"
                .to_owned()
        }
    }
}

fn missing_remedy(present: Option<u64>) -> String {
    match present {
        Some(epoch) => format!(
            "put the missing checkpoint back, or restore an older one explicitly, such as --at {epoch}; {AHEAD}"
        ),
        None => {
            "put the missing checkpoints back, or start a new state directory and replay the input".to_owned()
        }
    }
}

fn io_remedy(source: &io::Error) -> Option<&'static str> {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Some("free space on the volume of the state directory; the last complete checkpoint is intact")
        }
        io::ErrorKind::NotFound => Some("check the path: there is nothing"),
        io::ErrorKind::PermissionDenied => Some("give the process access to the path"),
        io::ErrorKind::ReadOnlyFilesystem => Some("mount the volume of the state directory writable"),
        _ if Errno::from_io_error(source) == Some(Errno::MFILE) => {
            Some("raise the limit of open files (ulimit -n)")
        }
        _ => None,
    }
}

impl From<CheckpointError> for Error {
    fn from(error: CheckpointError) -> Self {
        let (kind, remedy) = (error.kind(), error.remedy());
        let public = Self::new(kind, error.to_string());
        let public = match remedy {
            Some(remedy) => public.with_remedy(remedy),
            None => public,
        };
        public.with_source(error)
    }
}
