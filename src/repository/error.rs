//! What can go wrong with a repository, in this module's own words; converts into the public error with the way out.

use std::io;
use std::path::{Path, PathBuf};

use super::format::OWNER;
use crate::checkpoint::{CheckpointError, LineageId};
use crate::error::{Error, ErrorKind};

/// Why a repository could not be used. Reasons of stores are text, with credentials blanked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepositoryError {
    /// There is no such object.
    #[error("object is not in the repository: name={name}")]
    NotFound {
        /// Its name.
        name: String,
    },
    /// The name is taken.
    #[error("object exists already: name={name}")]
    Exists {
        /// Its name.
        name: String,
    },
    /// The object is not what it was when it was read.
    #[error("object was changed by somebody else: name={name}")]
    Changed {
        /// Its name.
        name: String,
    },
    /// A call failed that may work when tried again, and may have taken effect.
    #[error("repository does not answer as it should: step={step} name={name} reason={reason}")]
    Unavailable {
        /// What was being done.
        step: &'static str,
        /// The object.
        name: String,
        /// What the store said.
        reason: String,
    },
    /// A call that will not work when tried again: credentials, permissions, configuration.
    #[error("repository refuses: step={step} name={name} reason={reason}")]
    Refused {
        /// What was being done.
        step: &'static str,
        /// The object.
        name: String,
        /// What the store said.
        reason: String,
    },
    /// The object is larger than any of its kind.
    #[error("object is too large: name={name} bytes={bytes}")]
    TooLarge {
        /// Its name.
        name: String,
        /// Its size.
        bytes: u64,
    },
    /// The object's bytes are not those that were written.
    #[error("object is damaged: name={name} reason={reason}")]
    Damaged {
        /// Its name.
        name: String,
        /// What does not fit.
        reason: String,
    },
    /// The object was written by a later version.
    #[error("object was written by a newer version: name={name} format={found} known={known}")]
    Newer {
        /// Its name.
        name: String,
        /// Its format version.
        found: u32,
        /// The newest this build reads.
        known: u32,
    },
    /// A name is taken by other bytes: two writers used one generation.
    #[error("a checkpoint of the same epoch and generation is there with other contents: name={name}")]
    Conflict {
        /// The object.
        name: String,
    },
    /// This machine is in the way.
    #[error("could not {step}: path={}", path.display())]
    Local {
        /// What was being done.
        step: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The local checkpoint is in the way.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// Somebody else claimed the repository.
    #[error("repository was taken over: place={place} our_generation={ours} holder=[{holder}]")]
    Fenced {
        /// The repository.
        place: String,
        /// The generation of this process.
        ours: u64,
        /// Who has it now.
        holder: String,
    },
    /// The repository holds the checkpoints of another pipeline.
    #[error("repository belongs to another pipeline: place={place} pipeline={found:?} asked={asked:?}")]
    OtherPipeline {
        /// The repository.
        place: String,
        /// Whose it is.
        found: String,
        /// Who asked.
        asked: String,
    },
    /// The repository holds another history than the local state.
    #[error(
        "repository holds another history than the local state: place={place} lineage={found} local={ours}"
    )]
    OtherLineage {
        /// The repository.
        place: String,
        /// Lineage in the repository.
        found: LineageId,
        /// Lineage of the local state.
        ours: LineageId,
    },
    /// The repository is ahead of the local state.
    #[error(
        "repository is ahead of the local state: place={place} repository_epoch={epoch} \
         repository_generation={generation} local_epoch={local_epoch} local_generation={local_generation} path={}",
        path.display()
    )]
    LocalBehind {
        /// The repository.
        place: String,
        /// Newest epoch there.
        epoch: u64,
        /// Generation that uploaded it.
        generation: u64,
        /// Newest epoch here.
        local_epoch: u64,
        /// Generation here.
        local_generation: u64,
        /// The state directory.
        path: PathBuf,
    },
    /// Another state directory of this history took the repository over.
    #[error(
        "another machine took the repository over since this state was last used: place={place} \
         repository_generation={generation} local_epoch={local_epoch} local_generation={local_generation} path={}",
        path.display()
    )]
    Overtaken {
        /// The repository.
        place: String,
        /// Generation of its owner.
        generation: u64,
        /// Newest epoch here.
        local_epoch: u64,
        /// Generation here.
        local_generation: u64,
        /// The state directory.
        path: PathBuf,
    },
    /// Checkpoints came to the repository between the look at it and the claim.
    #[error("another process uploaded a checkpoint while this one started: place={place} epoch={epoch}")]
    Moved {
        /// The repository.
        place: String,
        /// The epoch that came.
        epoch: u64,
    },
    /// There is no such checkpoint.
    #[error("no such checkpoint in the repository: place={place}{} present={present:?}", asked(*epoch))]
    NoCheckpoint {
        /// The repository.
        place: String,
        /// The epoch asked for.
        epoch: Option<u64>,
        /// Epochs that are there, newest first (at most 20).
        present: Vec<u64>,
    },
    /// The place cannot be understood.
    #[error("this is not a place for checkpoints: {text:?}: {reason}")]
    Location {
        /// What was given, without credentials.
        text: String,
        /// What is wrong.
        reason: String,
    },
    /// The caller stopped waiting.
    #[error("stopped while waiting for the repository")]
    Stopped,
    /// A thread could not be started, or came to its end.
    #[error("the uploader thread has stopped")]
    Thread,
}

impl RepositoryError {
    /// True when the same call may work a moment later.
    #[must_use]
    pub const fn is_passing(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// True when another process owns the repository.
    #[must_use]
    pub const fn is_fence(&self) -> bool {
        matches!(self, Self::Fenced { .. } | Self::Conflict { .. })
    }

    pub(super) fn local(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Local { step, path: path.to_owned(), source }
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Self::Fenced { .. } | Self::Conflict { .. } | Self::Moved { .. } | Self::Changed { .. } => {
                ErrorKind::Locked
            }
            Self::OtherPipeline { .. }
            | Self::OtherLineage { .. }
            | Self::LocalBehind { .. }
            | Self::Overtaken { .. }
            | Self::Newer { .. } => ErrorKind::Incompatible,
            Self::Damaged { .. } | Self::TooLarge { .. } | Self::NotFound { .. } => ErrorKind::Damaged,
            Self::NoCheckpoint { .. } | Self::Location { .. } => ErrorKind::Invalid,
            Self::Unavailable { .. } | Self::Refused { .. } | Self::Local { .. } | Self::Stopped => {
                ErrorKind::Unavailable
            }
            Self::Exists { .. } | Self::Thread | Self::Checkpoint(_) => ErrorKind::Bug,
        }
    }

    fn remedy(&self) -> Option<&'static str> {
        Some(match self {
            Self::Fenced { .. } | Self::Conflict { .. } => {
                "let this process end: the holder named above owns the checkpoints now; start again only if that one \
                 is gone"
            }
            Self::Moved { .. } | Self::Changed { .. } => {
                "make sure that only one process runs this pipeline, and start again"
            }
            Self::OtherPipeline { .. } => "give each pipeline a prefix of its own in `checkpoint.repository`",
            Self::OtherLineage { .. } => {
                "to go on from the repository, move the local state directory away; to keep the local state, give it \
                 an empty prefix in `checkpoint.repository`"
            }
            Self::LocalBehind { .. } => {
                "to go on from the repository, which is newer, move the local state directory away and start again; to \
                 go on from the local state, whose results since then are lost to the repository, name its checkpoint \
                 with --at, as after any start with --at until a new checkpoint follows, or give it an empty prefix in \
                 `checkpoint.repository`"
            }
            Self::Overtaken { .. } => {
                "if the other machine has processed anything, go on with its state, or move this state directory away and \
                 start again, which restores from the repository; if it has not, name the checkpoint of this state with \
                 --at"
            }
            Self::Newer { .. } => "use that version or a later one",
            Self::Damaged { name, .. } if name == OWNER => {
                "make sure that no other process runs this pipeline, delete that object, and start again: the start \
                 writes it anew"
            }
            Self::Damaged { .. } | Self::TooLarge { .. } | Self::NotFound { .. } => {
                "restore an older checkpoint explicitly with --at, or put the object back; `floodmark repository list` \
                 shows what is there"
            }
            Self::NoCheckpoint { present, .. } if present.is_empty() => {
                "check the prefix: nothing was uploaded there; `floodmark repository list` shows what is"
            }
            Self::NoCheckpoint { .. } => "ask for one of the epochs that are present",
            Self::Location { .. } => {
                "give a directory, or a URL such as s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or \
                 file:///directory; credentials come from the environment"
            }
            Self::Unavailable { .. } => {
                "check the network and the service, then start again; nothing was lost: local checkpoints are complete"
            }
            Self::Refused { .. } => {
                "check bucket, region and credentials (AWS_*, GOOGLE_*, AZURE_* in the environment), and that they may \
                 read, write, list and delete below the prefix"
            }
            Self::Local { .. } => "check free space and permissions, and start again",
            Self::Exists { .. } | Self::Thread | Self::Stopped | Self::Checkpoint(_) => return None,
        })
    }
}

/// The epoch that was asked for, where one was.
fn asked(epoch: Option<u64>) -> String {
    epoch.map(|epoch| format!(" epoch={epoch}")).unwrap_or_default()
}

impl From<RepositoryError> for Error {
    fn from(error: RepositoryError) -> Self {
        if let RepositoryError::Checkpoint(error) = error {
            return error.into();
        }
        let public = Self::new(error.kind(), error.to_string());
        let public = match error.remedy() {
            Some(remedy) => public.with_remedy(remedy),
            None => public,
        };
        public.with_source(error)
    }
}
