//! What can go wrong at an output, in its own words, and how each case looks from outside.

use std::io;
use std::path::PathBuf;

use crate::codec::DecodeError;
use crate::error::{Error, ErrorKind};

/// Why an output could not do its work.
#[derive(Debug, thiserror::Error)]
pub(in crate::pipeline) enum SinkError {
    /// The file system said no.
    #[error("cannot {doing}: path={} cause={source}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    /// An earlier error left the writer at an unknown place.
    #[error("output failed earlier and takes no more rows: sink={sink}")]
    Poisoned { sink: String },
    /// A thread of ours is gone and did not say why.
    #[error("the thread that writes output has ended without a word")]
    Thread,
    /// Another process holds the directory.
    #[error("output directory is in use by another process: path={}", path.display())]
    Locked { path: PathBuf },
    /// A later run of this lineage has been here.
    #[error("a newer run owns this output: path={} generation={ours} newer={newer}", path.display())]
    Fenced { path: PathBuf, ours: u64, newer: u64 },
    /// Parts of another lineage are in the directory.
    #[error("output directory belongs to another state, which has published in it: path={} parts={parts}", path.display())]
    Foreign { path: PathBuf, parts: usize },
    /// More was published than the restored checkpoint knows.
    #[error("output is ahead of the restored checkpoint: path={} published_epoch={published} checkpoint_epoch={last_epoch}", path.display())]
    Ahead { path: PathBuf, published: u64, last_epoch: u64 },
    /// The restored checkpoint is one whose parts were set aside by an earlier restore of an older one.
    #[error("the output of this checkpoint was set aside by an earlier restore: path={} checkpoint_epoch={last_epoch} set_aside_epochs={first}..={last}", path.display())]
    Abandoned { path: PathBuf, last_epoch: u64, first: u64, last: u64 },
    /// A part exists under the name and has other bytes.
    #[error("a different part is already published under this name: path={}", path.display())]
    Conflict { path: PathBuf },
    /// Something that is no file has the name of a part, or of a file that is staged.
    #[error("something that is no file stands in the place of a file of this output: path={}", path.display())]
    NoFile { path: PathBuf },
    /// Parts of this output have another format or other columns.
    #[error("the format or the columns of this output have changed: path={}", path.display())]
    Look { path: PathBuf },
    /// A staged file is not what the manifest says.
    #[error(
        "staged output is damaged: path={} bytes={bytes} expected_bytes={expected_bytes} crc32={crc32:08x} expected_crc32={expected_crc32:08x}",
        path.display()
    )]
    Damaged { path: PathBuf, bytes: u64, expected_bytes: u64, crc32: u32, expected_crc32: u32 },
    /// Neither the staged file nor the part exists.
    #[error("staged output is missing: path={} epoch={epoch}", path.display())]
    Missing { path: PathBuf, epoch: u64 },
    /// Bytes of a handle or of the owner file cannot be read.
    #[error("{what} cannot be read: {source}")]
    Decode { what: String, source: DecodeError },
    /// A handle's names are not ones that this module writes.
    #[error("staged output handle has a name that this version never writes: name={name:?}")]
    Name { name: String },
    /// A key in the state does not have the declared components.
    #[error("result key does not fit its definition: sink={sink} key={key}")]
    Key { sink: String, key: String },
    /// The caller broke the protocol.
    #[error("{what}: sink={sink}")]
    Protocol { sink: String, what: String },
}

impl SinkError {
    /// Names what was being done to `path` when an I/O error came.
    pub(super) fn io(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { doing, path, source }
    }

    const fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { .. } => ErrorKind::Unavailable,
            Self::Poisoned { .. } => ErrorKind::Poisoned,
            Self::Thread => ErrorKind::Bug,
            Self::Locked { .. } | Self::Fenced { .. } => ErrorKind::Locked,
            Self::Foreign { .. }
            | Self::Abandoned { .. }
            | Self::Ahead { .. }
            | Self::Conflict { .. }
            | Self::NoFile { .. }
            | Self::Look { .. } => ErrorKind::Incompatible,
            Self::Damaged { .. } | Self::Missing { .. } | Self::Decode { .. } | Self::Name { .. } => {
                ErrorKind::Damaged
            }
            Self::Key { .. } | Self::Protocol { .. } => ErrorKind::Bug,
        }
    }

    fn remedy(&self) -> Option<String> {
        let remedy = match self {
            Self::Io { source, .. } => return Some(io_remedy(source)),
            Self::Poisoned { .. } | Self::Thread => {
                "run again: it restores the last checkpoint, and nothing is lost or doubled"
            }
            Self::Locked { .. } => {
                "stop the other process, or give this pipeline an output directory of its own; deleting files does \
                 not help"
            }
            Self::Fenced { .. } => "stop this process: the newer run continues the work",
            Self::Foreign { .. } => {
                "choose an empty output directory, or take this one over with --set-aside-output (parts that are still \
                 there are moved to a hidden folder of it, not deleted; readers who took others away will see their \
                 results again)"
            }
            Self::Ahead { .. } => {
                "restore the newest checkpoint; or let this run set the later parts aside with --set-aside-output \
                 (they are moved to a hidden folder of the output directory), which means that readers who took them will see those results \
                 again; or choose an empty output directory"
            }
            Self::Abandoned { first, .. } => {
                return Some(format!(
                    "go on with the restore that set it aside: run with --at and an epoch below {first}, and \
                     --set-aside-output, until its first checkpoint is made"
                ));
            }
            Self::Conflict { .. } => {
                "compare the part with the file under .staging; if another pipeline writes here, give one of them a \
                 directory of its own; else move the part away and run again"
            }
            Self::NoFile { .. } => "move it away and run again",
            Self::Look { .. } => {
                "choose an empty output directory for the new form, or move the old parts away"
            }
            Self::Missing { .. } => {
                "bring the output directory back and run again; with rows in a table, an earlier checkpoint (--at EPOCH) \
                 whose rows it has writes the later ones again; where they are lost, --accept-lost-output goes on \
                 without them"
            }
            Self::Damaged { .. } => {
                "put the file back from a copy; or restore an earlier checkpoint with --at EPOCH --set-aside-output: \
                 its replay writes these results again, and parts that the other outputs published since are moved aside"
            }
            Self::Decode { .. } | Self::Name { .. } => {
                "restore another checkpoint; if the owner file of an output is named, remove that file and run again"
            }
            Self::Key { .. } | Self::Protocol { .. } => "please report it",
        };
        Some(remedy.to_owned())
    }
}

fn io_remedy(source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free some space and run again: it restores the last checkpoint, and nothing is lost or doubled"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "allow writing to the output directory, or choose another one, and run again"
        }
        io::ErrorKind::NotADirectory => "choose an output path that is a directory or does not exist yet",
        _ => "mend the cause and run again: it restores the last checkpoint, and nothing is lost or doubled",
    }
    .to_owned()
}

impl From<SinkError> for Error {
    fn from(error: SinkError) -> Self {
        let (kind, message, remedy) = (error.kind(), error.to_string(), error.remedy());
        let public = Self::new(kind, message);
        let public = match remedy {
            Some(remedy) => public.with_remedy(remedy),
            None => public,
        };
        match error {
            SinkError::Io { source, .. } => public.with_source(source),
            SinkError::Decode { source, .. } => public.with_source(source),
            _ => public,
        }
    }
}

/// The error of a build that was made without an output's feature.
#[cfg(not(all(feature = "parquet", feature = "postgres")))]
pub(super) fn left_out(feature: &'static str) -> Error {
    let message = format!("this build cannot write such an output: feature={feature}");
    Error::new(ErrorKind::Invalid, message).with_remedy("build it with that feature, which is on by default")
}
