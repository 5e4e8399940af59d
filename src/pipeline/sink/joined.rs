//! The sink of a join's rows. It joins a row format with a staged writer and adds nothing to either.

use std::path::PathBuf;

use super::columns::ColumnType;
use super::contract::{Opened, Output, Restored, Sink, SinkContext, WriteJoined};
#[cfg(feature = "parquet")]
use super::parquet::ParquetWriter;
use super::publisher;
use super::results::{Format, open};
use super::row::{JoinedRows, KeyField, Shape, TimeFormat};
use super::writer::{PartWriter, Place};
use crate::checkpoint::StagedOutput;
use crate::error::Result;
use crate::operator::JoinedRow;

/// What a join's output looks like and where it goes.
#[derive(Clone, Debug)]
pub struct JoinSinkSpec {
    /// Name of the output, unique in the pipeline; recorded in handles.
    pub name: String,
    /// Directory of its parts.
    pub directory: PathBuf,
    /// Format of the parts.
    pub format: Format,
    /// Components of the key, in order; may be none.
    pub keys: Vec<KeyField>,
    /// Names of the columns with the fields of the left side.
    pub left: Vec<String>,
    /// Names of the columns with the fields of the right side.
    pub right: Vec<String>,
    /// Types of both, for formats that have some; as many as names.
    pub types: Vec<ColumnType>,
    /// How times are written, in text.
    pub times: TimeFormat,
}

impl JoinSinkSpec {
    /// What its rows look like; a start refuses parts of another look.
    pub(crate) fn look(&self) -> String {
        let Self { format, keys, left, right, types, times, .. } = self;
        let mut look = format!("joined {format:?} {keys:?} {left:?} {right:?} {times:?}");
        if *format == Format::Parquet {
            look.push_str(&format!(" {types:?}"));
        }
        look
    }

    fn place(&self) -> Place {
        Place {
            sink: self.name.clone(),
            directory: self.directory.clone(),
            extension: self.format.extension(),
            look: self.look(),
            preamble: Vec::new(),
        }
    }

    fn shape(&self) -> Shape {
        Shape {
            sink: self.name.clone(),
            keys: self.keys.clone(),
            aggregates: [self.left.as_slice(), &self.right].concat(),
            times: self.times,
            metadata: false,
            row_kinds: false,
        }
    }

    /// Rows of text.
    fn rows(&self) -> JoinedRows {
        JoinedRows::new(self.shape(), self.left.len(), self.format == Format::Csv)
    }
}

/// Writes rows of a join into files.
#[derive(Debug)]
pub struct JoinSink(Rendering);

#[cfg_attr(feature = "parquet", expect(clippy::large_enum_variant, reason = "an output has one"))]
#[derive(Debug)]
enum Rendering {
    Text {
        rows: JoinedRows,
        writer: PartWriter,
    },
    #[cfg(feature = "parquet")]
    Parquet(Box<ParquetWriter>),
}

impl JoinSink {
    /// Recovers the output's directory after a start and opens it for this run.
    ///
    /// # Errors
    /// As [`super::ResultSink::open`].
    pub fn open(spec: JoinSinkSpec, context: SinkContext, restored: Restored<'_>) -> Result<Opened<Self>> {
        let place = spec.place();
        match spec.format {
            Format::Jsonl | Format::Csv => {}
            #[cfg(feature = "parquet")]
            Format::Parquet => {
                let rows = super::columns::TypedRows::joined(spec.shape(), spec.types, spec.left.len());
                let Opened { sink, publisher, report } = open(place, context, None, restored)?;
                let writer = Box::new(ParquetWriter::new(rows, sink)?);
                return Ok(Opened { sink: Self(Rendering::Parquet(writer)), publisher, report });
            }
            #[cfg(not(feature = "parquet"))]
            Format::Parquet => return Err(super::error::left_out("parquet")),
        }
        let rows = spec.rows();
        let header = rows.header();
        let opened = open(place, context, header.as_deref(), restored)?;
        Ok(opened.map(|writer| Self(Rendering::Text { rows, writer })))
    }

    /// Rows of text, staged by `writer`.
    pub(super) fn of_text(rows: JoinedRows, writer: PartWriter) -> Self {
        Self(Rendering::Text { rows, writer })
    }

    /// Writes one row.
    ///
    /// # Errors
    /// When the disk is in the way; the sink then refuses work.
    pub fn write(&mut self, row: &JoinedRow<'_>) -> Result<()> {
        match &mut self.0 {
            Rendering::Text { rows, writer } => writer.row(|out| rows.append(row, out))?,
            #[cfg(feature = "parquet")]
            Rendering::Parquet(writer) => writer.write_joined(row)?,
        }
        Ok(())
    }
}

impl Output for JoinSinkSpec {
    type Sink = JoinSink;

    fn open(self, context: SinkContext, restored: Restored<'_>) -> Result<Opened<JoinSink>> {
        JoinSink::open(self, context, restored)
    }

    fn preflight(&self, context: SinkContext, restored: Restored<'_>) -> Result<Vec<String>> {
        let header = (self.format != Format::Parquet).then(|| self.rows().header()).flatten();
        Ok(publisher::preflight(&self.place(), context, header.as_deref(), restored)?)
    }
}

impl WriteJoined for JoinSink {
    fn write(&mut self, row: &JoinedRow<'_>) -> Result<()> {
        Self::write(self, row)
    }
}

impl Sink for JoinSink {
    fn name(&self) -> &str {
        match &self.0 {
            Rendering::Text { writer, .. } => writer.sink(),
            #[cfg(feature = "parquet")]
            Rendering::Parquet(writer) => writer.sink(),
        }
    }

    fn stage(&mut self, epoch: u64) -> Result<Option<StagedOutput>> {
        Ok(match &mut self.0 {
            Rendering::Text { writer, .. } => writer.stage_output(epoch)?,
            #[cfg(feature = "parquet")]
            Rendering::Parquet(writer) => writer.stage(epoch)?,
        })
    }
}
