//! The sink of a join's rows. It joins a row format with a staged writer and adds nothing to either.

use std::path::PathBuf;

use super::results::open;
use super::row::{JoinedRows, KeyField, Shape, TimeFormat};
use super::staged::{SinkContext, StagedFile};
use super::writer::{PartWriter, Place};
use super::{Format, Opened, Restored, Sink};
use crate::error::Result;
use crate::operator::JoinedRow;

/// What a join's output looks like and where it goes.
#[derive(Clone, Debug)]
pub struct JoinSinkSpec {
    /// Name of the output, unique in the pipeline; recorded in handles.
    pub name: String,
    /// Directory of its parts.
    pub directory: PathBuf,
    /// Text format.
    pub format: Format,
    /// Components of the key, in order; may be none.
    pub keys: Vec<KeyField>,
    /// Names of the columns with the fields of the left side.
    pub left: Vec<String>,
    /// Names of the columns with the fields of the right side.
    pub right: Vec<String>,
    /// How times are written.
    pub times: TimeFormat,
}

impl JoinSinkSpec {
    /// What its rows look like; a start refuses parts of another look.
    pub(crate) fn look(&self) -> String {
        let Self { format, keys, left, right, times, .. } = self;
        format!("joined {format:?} {keys:?} {left:?} {right:?} {times:?}")
    }
}

/// Writes rows of a join as JSON lines or CSV.
#[derive(Debug)]
pub struct JoinSink {
    rows: JoinedRows,
    writer: PartWriter,
}

impl JoinSink {
    /// Recovers the output's directory after a start and opens it for this run.
    ///
    /// # Errors
    /// As [`super::ResultSink::open`].
    pub fn open(spec: JoinSinkSpec, context: SinkContext, restored: Restored<'_>) -> Result<Opened<Self>> {
        let look = spec.look();
        let JoinSinkSpec { name, directory, format, keys, left, right, times } = spec;
        let (left_fields, aggregates) = (left.len(), [left, right].concat());
        let shape = Shape { sink: name.clone(), keys, aggregates, times, metadata: false, row_kinds: false };
        let rows = JoinedRows::new(shape, left_fields, format == Format::Csv);
        let extension = if format == Format::Csv { "csv" } else { "jsonl" };
        let header = rows.header();
        let place = Place { sink: name, directory, extension, look };
        let opened = open(place, context, header.as_deref(), restored)?;
        Ok(opened.map(|writer| Self { rows, writer }))
    }

    /// Writes one row.
    ///
    /// # Errors
    /// When the disk is in the way; the sink then refuses work.
    pub fn write(&mut self, row: &JoinedRow<'_>) -> Result<()> {
        Ok(self.writer.row(|out| self.rows.append(row, out))?)
    }
}

impl Sink for JoinSink {
    fn name(&self) -> &str {
        self.writer.sink()
    }

    fn stage(&mut self, epoch: u64) -> Result<Option<StagedFile>> {
        Ok(self.writer.stage(epoch)?)
    }
}
