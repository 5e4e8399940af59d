//! What can go wrong between us and a server, and what passes by itself. No message holds the address's password.

use std::io;

use postgres::error::SqlState;

use crate::error::{Error, ErrorKind};
use crate::pipeline::sink::error::SinkError;

/// Why a table could not do its work.
#[derive(Debug, thiserror::Error)]
pub(super) enum TableError {
    /// The address cannot be understood.
    #[error("the address of the database cannot be read: cause={0}")]
    Address(String),
    /// The server said no, or nothing.
    #[error("cannot {doing}: cause={}", cause(.source))]
    Server { doing: &'static str, source: Box<postgres::Error> },
    /// A later run of this lineage has been here.
    #[error("a newer run owns this table: table={table} generation={ours} owner={newer}")]
    Fenced { table: String, ours: u64, newer: u64 },
    /// The marker is of another lineage.
    #[error("the table holds the rows of another state: table={table}")]
    Foreign { table: String },
    /// More was published than the restored checkpoint knows.
    #[error(
        "the table is ahead of the restored checkpoint: table={table} published_epoch={published} checkpoint_epoch={last_epoch}"
    )]
    Ahead { table: String, published: u64, last_epoch: u64 },
    /// Somebody has removed the marker while we were running.
    #[error("the row of this table in floodmark_epochs is gone or was changed: table={table}")]
    Marker { table: String },
    /// Columns, key or kind of the table do not fit.
    #[error("{0}")]
    Shape(String),
    /// A staged file is of other columns than those that the pipeline has now.
    #[error("results were staged for other columns than the output has now: sink={sink} epoch={epoch}")]
    Preamble { sink: String, epoch: u64 },
    /// The outbox.
    #[error(transparent)]
    Sink(#[from] SinkError),
}

/// Names what was being done when the server failed.
pub(super) fn refused(doing: &'static str) -> impl FnOnce(postgres::Error) -> TableError {
    move |source| TableError::Server { doing, source: Box::new(source) }
}

/// What the server said, or what the connection said.
fn cause(error: &postgres::Error) -> String {
    if let Some(said) = error.as_db_error() {
        return format!("{} ({})", said.message(), said.code().code());
    }
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

impl TableError {
    /// An error of the stream of rows, with the server's own inside.
    pub(super) fn from_copy(error: io::Error) -> Self {
        match error.downcast::<postgres::Error>() {
            Ok(source) => refused("copy rows")(source),
            Err(error) => Self::Sink(SinkError::io("copy rows", "connection to PostgreSQL")(error)),
        }
    }

    /// True when the same may work later without anybody changing anything but the server's or the network's health.
    pub(super) fn may_pass(&self) -> bool {
        let Self::Server { source, .. } = self else { return false };
        // Without a word of the server it is the connection. Classes: connection, resources, operator intervention.
        source.code().is_none_or(|code| {
            let class = code.code().get(..2).unwrap_or_default();
            let passing = [
                SqlState::T_R_SERIALIZATION_FAILURE,
                SqlState::T_R_DEADLOCK_DETECTED,
                SqlState::LOCK_NOT_AVAILABLE,
                SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
                SqlState::READ_ONLY_SQL_TRANSACTION,
            ];
            ["08", "53", "57", "58"].contains(&class) || passing.contains(code)
        })
    }

    const fn kind(&self) -> ErrorKind {
        match self {
            Self::Address(_) => ErrorKind::Invalid,
            Self::Server { .. } => ErrorKind::Unavailable,
            Self::Fenced { .. } => ErrorKind::Locked,
            Self::Foreign { .. }
            | Self::Ahead { .. }
            | Self::Marker { .. }
            | Self::Shape(_)
            | Self::Preamble { .. }
            | Self::Sink(_) => ErrorKind::Incompatible,
        }
    }

    fn remedy(&self) -> String {
        match self {
            Self::Address(_) => {
                "write it as postgresql://user:password@host:port/database, without sslmode=require"
                    .to_owned()
            }
            Self::Server { .. } if self.may_pass() => {
                "start the server or mend the connection, and run again: nothing is lost or doubled"
                    .to_owned()
            }
            Self::Server { .. } => {
                "mend what the server refuses, and run again: nothing is lost or doubled".to_owned()
            }
            Self::Fenced { .. } => "stop this process: the newer run continues the work".to_owned(),
            Self::Foreign { table } => format!(
                "name another table; or, if the other state is given up, remove its rows and its row in \
                 floodmark_epochs (target = '{table}')"
            ),
            Self::Ahead { table, last_epoch, .. } => format!(
                "restore the newest checkpoint; or name another table; or remove the rows of the later epochs by hand, \
                 then UPDATE floodmark_epochs SET epoch = {last_epoch} WHERE target = '{table}'"
            ),
            Self::Marker { .. } => "run again: it looks at the table anew".to_owned(),
            Self::Shape(_) => {
                "change the table, or name another one, which is created as it should be".to_owned()
            }
            Self::Preamble { .. } => {
                "put the columns back, run once so that they are delivered, and change them then".to_owned()
            }
            Self::Sink(_) => String::new(),
        }
    }
}

impl From<TableError> for Error {
    fn from(error: TableError) -> Self {
        let (kind, message, remedy) = (error.kind(), error.to_string(), error.remedy());
        match error {
            TableError::Sink(error) => error.into(),
            TableError::Server { source, .. } => {
                // Its own text may quote a row.
                let cause = cause(&source);
                Self::new(kind, message).with_remedy(remedy).with_source(cause)
            }
            _ => Self::new(kind, message).with_remedy(remedy),
        }
    }
}
