//! The sink of an operator's results. It joins a row format with a staged writer and adds nothing to either.

use std::path::PathBuf;

use super::columns::ColumnType;
use super::contract::{Opened, Output, Restored, Sink, SinkContext, WriteResults};
use super::error::SinkError;
#[cfg(feature = "parquet")]
use super::parquet::ParquetWriter;
use super::publisher;
use super::row::{CsvRows, JsonRows, KeyField, Rows, Shape, TimeFormat};
use super::writer::{PartWriter, Place};
use crate::checkpoint::StagedOutput;
use crate::error::Result;
use crate::operator::ResultBlock;

/// Format of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// One JSON object per line.
    #[default]
    Jsonl,
    /// Comma-separated values; the header is a part of its own, `part-0000000000.csv`.
    Csv,
    /// Parquet, with types; needs the feature `parquet`.
    Parquet,
}

impl Format {
    /// The extension of its parts.
    pub(in crate::pipeline) const fn extension(self) -> &'static str {
        match self {
            Self::Jsonl => "jsonl",
            Self::Csv => "csv",
            Self::Parquet => "parquet",
        }
    }
}

/// What an operator's output looks like and where it goes.
#[derive(Clone, Debug)]
pub struct ResultSpec {
    /// Name of the output, unique in the pipeline; recorded in handles.
    pub name: String,
    /// Directory of its parts.
    pub directory: PathBuf,
    /// Format of the parts.
    pub format: Format,
    /// Components of the key, in order; may be none.
    pub keys: Vec<KeyField>,
    /// Names of the aggregates, in the order of the row's values.
    pub aggregates: Vec<String>,
    /// Their types, for formats that have some; as many as names.
    pub types: Vec<ColumnType>,
    /// How times are written, in text.
    pub times: TimeFormat,
    /// Adds `pane`, `pane_index` and `watermark` to each row.
    pub metadata: bool,
    /// Whether rows say what they do to earlier ones.
    pub row_kinds: bool,
}

impl ResultSpec {
    /// What its rows look like; a start refuses parts of another look.
    pub(crate) fn look(&self) -> String {
        let Self { format, keys, aggregates, types, times, metadata, .. } = self;
        let mut look = format!("{format:?} {keys:?} {aggregates:?} {times:?} metadata={metadata}");
        if self.row_kinds {
            look.push_str(" row_kinds");
        }
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
            aggregates: self.aggregates.clone(),
            times: self.times,
            metadata: self.metadata,
            row_kinds: self.row_kinds,
        }
    }
}

/// Writes results into files.
#[derive(Debug)]
pub struct ResultSink(Rendering);

#[cfg_attr(feature = "parquet", expect(clippy::large_enum_variant, reason = "an output has one"))]
#[derive(Debug)]
enum Rendering {
    Text {
        rows: Rows,
        writer: PartWriter,
    },
    #[cfg(feature = "parquet")]
    Parquet(Box<ParquetWriter>),
}

impl ResultSink {
    /// Recovers the output's directory after a start and opens it for this run.
    ///
    /// # Errors
    /// When the disk is in the way, another process or another state owns the directory, or the output is ahead of
    /// the restored checkpoint.
    pub fn open(spec: ResultSpec, context: SinkContext, restored: Restored<'_>) -> Result<Opened<Self>> {
        let (place, shape) = (spec.place(), spec.shape());
        let (rows, header) = match spec.format {
            Format::Jsonl => (Rows::Json(JsonRows::new(shape)), None),
            Format::Csv => {
                let rows = CsvRows::new(shape);
                let header = rows.header();
                (Rows::Csv(rows), Some(header))
            }
            #[cfg(feature = "parquet")]
            Format::Parquet => {
                let rows = super::columns::TypedRows::results(shape, spec.types, true);
                let opened = open(place, context, None, restored)?;
                let writer = |writer| ParquetWriter::new(rows, writer).map(Box::new);
                let Opened { sink, publisher, report } = opened;
                return Ok(Opened { sink: Self(Rendering::Parquet(writer(sink)?)), publisher, report });
            }
            #[cfg(not(feature = "parquet"))]
            Format::Parquet => return Err(super::error::left_out("parquet")),
        };
        let opened = open(place, context, header.as_deref(), restored)?;
        Ok(opened.map(|writer| Self(Rendering::Text { rows, writer })))
    }

    /// Rows of any text, staged by `writer`.
    pub(super) fn of_text(rows: Rows, writer: PartWriter) -> Self {
        Self(Rendering::Text { rows, writer })
    }

    /// Writes all rows of a block.
    ///
    /// # Errors
    /// When the disk is in the way; the sink then refuses work.
    pub fn write(&mut self, block: &mut dyn ResultBlock) -> Result<()> {
        match &mut self.0 {
            Rendering::Text { rows, writer } => {
                rows.begin(block.window(), block.watermark(), block.takes_back());
                while let Some(row) = block.next_row() {
                    writer.row(|out| rows.append(&row, out))?;
                }
            }
            #[cfg(feature = "parquet")]
            Rendering::Parquet(writer) => writer.write(block)?,
        }
        Ok(())
    }
}

impl Output for ResultSpec {
    type Sink = ResultSink;

    fn open(self, context: SinkContext, restored: Restored<'_>) -> Result<Opened<ResultSink>> {
        ResultSink::open(self, context, restored)
    }

    fn preflight(&self, context: SinkContext, restored: Restored<'_>) -> Result<Vec<String>> {
        let header = (self.format == Format::Csv).then(|| CsvRows::new(self.shape()).header());
        Ok(publisher::preflight(&self.place(), context, header.as_deref(), restored)?)
    }
}

impl WriteResults for ResultSink {
    fn write(&mut self, block: &mut dyn ResultBlock) -> Result<()> {
        Self::write(self, block)
    }
}

impl Sink for ResultSink {
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

/// Recovers a directory and opens its two halves.
pub(super) fn open(
    place: Place,
    context: SinkContext,
    header: Option<&[u8]>,
    restored: Restored<'_>,
) -> Result<Opened<PartWriter>, SinkError> {
    let (publisher, report) = publisher::recover(&place, context, header, restored)?;
    let sink = PartWriter::new(place, context, restored.last_epoch);
    Ok(Opened { sink, publisher: Box::new(publisher), report })
}
