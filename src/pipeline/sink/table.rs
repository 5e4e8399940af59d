//! Tables as outputs: which table, which columns, and the half that stages rows for it.
//!
//! It knows no SQL and no server; those are in `postgres`, which can be left out of a build.

use std::fmt;
use std::path::PathBuf;

use super::columns::{ColumnType, TypedRows};
use super::contract::{Opened, Output, Restored, Sink, SinkContext, WriteJoined, WriteResults};
use super::row::{CopyRows, KeyField, Shape, TimeFormat};
use super::writer::{PartWriter, Place};
use crate::checkpoint::StagedOutput;
use crate::error::{Error, ErrorKind, Result};
use crate::operator::{JoinedRow, ResultBlock};

/// Text that is never shown: an address with a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// A secret that is at hand.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The value of an environment variable.
    ///
    /// # Errors
    /// `Invalid` when it is not set, empty or not UTF-8; its value is not in the message.
    pub fn from_env(name: &str) -> Result<Self> {
        match std::env::var(name) {
            Ok(text) if !text.is_empty() => Ok(Self(text)),
            _ => Err(Error::new(
                ErrorKind::Invalid,
                format!("the environment variable with the address of the database is not set: name={name}"),
            )
            .with_remedy(format!(
                "set it, for example: export {name}=\"postgresql://user:password@host/database\""
            ))),
        }
    }

    /// The text itself.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(dead_code, reason = "only outputs that a build has read it")
    )]
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// What rows do to a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableWrite {
    /// Each adds one.
    Append,
    /// Each replaces the one with the same key, or with `-U` and `-D` removes it.
    Upsert,
}

/// Which rows a table takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableRows {
    /// Results of a window.
    Results {
        /// Names of the aggregates, in the order of the row's values.
        aggregates: Vec<String>,
        /// Adds `pane`, `pane_index` and `watermark` to each row.
        metadata: bool,
        /// Whether rows say what they do to earlier ones.
        row_kinds: bool,
        /// Whether windows have no bounds.
        unbounded: bool,
        /// Columns of the primary key, for [`TableWrite::Upsert`].
        primary_key: Vec<String>,
    },
    /// Rows of a join, which are appended.
    Joined {
        /// Names of the columns with the fields of the left side.
        left: Vec<String>,
        /// Names of the columns with the fields of the right side.
        right: Vec<String>,
    },
}

/// A table of PostgreSQL as an output. Needs the feature `postgres`.
#[derive(Clone, Debug)]
pub struct TableSpec {
    /// Name of the output, unique in the pipeline; recorded in handles.
    pub name: String,
    /// Directory in which rows wait for their checkpoint, and for the server.
    pub outbox: PathBuf,
    /// Address of the server, as `postgresql://…` or `host=… dbname=…`.
    pub url: Secret,
    /// The table, as `name` or `schema.name`. It is created when it is missing.
    pub table: String,
    /// What rows do to it.
    pub write: TableWrite,
    /// Components of the key, in order; may be none.
    pub keys: Vec<KeyField>,
    /// The rest of the columns.
    pub rows: TableRows,
    /// Types of aggregates, or of the fields of both sides.
    pub types: Vec<ColumnType>,
}

/// Writes rows for a table.
#[derive(Debug)]
pub struct TableSink {
    rows: CopyRows,
    writer: PartWriter,
}

impl Output for TableSpec {
    type Sink = TableSink;

    fn open(self, context: SinkContext, restored: Restored<'_>) -> Result<Opened<TableSink>> {
        let (rows, primary_key) = self.typed_rows();
        let columns = rows.columns().to_vec();
        // Files of other columns are refused when they are published.
        let preamble = columns.iter().map(|column| format!("{}:{:?}", column.name, column.kind));
        let mut preamble = preamble.collect::<Vec<_>>().join(",").replace('\n', " ").into_bytes();
        preamble.push(b'\n');
        let place = Place {
            sink: self.name.clone(),
            directory: self.outbox.clone(),
            extension: "copy",
            look: String::new(),
            preamble,
        };
        #[cfg(feature = "postgres")]
        {
            let wanted = super::postgres::Wanted {
                url: self.url,
                table: self.table,
                write: self.write,
                columns,
                primary_key,
            };
            let (publisher, report) = super::postgres::recover(&place, wanted, context, restored)?;
            let writer = PartWriter::new(place, context, restored.last_epoch);
            let sink = TableSink { rows: CopyRows::new(rows), writer };
            Ok(Opened { sink, publisher: Box::new(publisher), report })
        }
        #[cfg(not(feature = "postgres"))]
        {
            let _ = (context, restored, place, primary_key, columns, rows);
            Err(super::error::left_out("postgres"))
        }
    }
}

impl TableSpec {
    fn typed_rows(&self) -> (TypedRows, Vec<String>) {
        let shape = |aggregates: Vec<String>, metadata, row_kinds| Shape {
            sink: self.name.clone(),
            keys: self.keys.clone(),
            aggregates,
            times: TimeFormat::Rfc3339,
            metadata,
            row_kinds,
        };
        match &self.rows {
            TableRows::Results { aggregates, metadata, row_kinds, unbounded, primary_key } => {
                let shape = shape(aggregates.clone(), *metadata, *row_kinds);
                (TypedRows::results(shape, self.types.clone(), *unbounded), primary_key.clone())
            }
            TableRows::Joined { left, right } => {
                let shape = shape([left.as_slice(), right].concat(), false, false);
                (TypedRows::joined(shape, self.types.clone(), left.len()), Vec::new())
            }
        }
    }
}

impl Sink for TableSink {
    fn name(&self) -> &str {
        self.writer.sink()
    }

    fn stage(&mut self, epoch: u64) -> Result<Option<StagedOutput>> {
        Ok(self.writer.stage_output(epoch)?)
    }
}

impl WriteResults for TableSink {
    fn write(&mut self, block: &mut dyn ResultBlock) -> Result<()> {
        self.rows.begin(block.window(), block.watermark(), block.takes_back());
        while let Some(row) = block.next_row() {
            self.writer.row(|out| self.rows.append(&row, out))?;
        }
        Ok(())
    }
}

impl WriteJoined for TableSink {
    fn write(&mut self, row: &JoinedRow<'_>) -> Result<()> {
        Ok(self.writer.row(|out| self.rows.append_joined(row, out))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown() {
        let secret = Secret::new("postgresql://user:hunter2@host/db");
        assert_eq!(format!("{secret:?}"), "(secret)");
    }

    #[test]
    fn a_variable_that_is_not_set_is_named() {
        let error = Secret::from_env("FLOODMARK_NO_SUCH_VARIABLE").unwrap_err();
        assert!(error.to_string().contains("FLOODMARK_NO_SUCH_VARIABLE"), "{error}");
    }
}
