//! The sink of an operator's results. It joins a row format with a staged writer and adds nothing to either.

use std::path::PathBuf;

use super::error::SinkError;
use super::publisher::{self, Restored};
use super::row::{CsvRows, JsonRows, KeyField, Rows, Shape, TimeFormat};
use super::staged::{SinkContext, StagedFile};
use super::writer::{PartWriter, Place};
use super::{Opened, Sink};
use crate::error::Result;
use crate::operator::ResultBlock;

/// Text format of results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// One JSON object per line.
    #[default]
    Jsonl,
    /// Comma-separated values; the header is a part of its own, `part-0000000000.csv`.
    Csv,
}

/// What an operator's output looks like and where it goes.
#[derive(Clone, Debug)]
pub struct ResultSpec {
    /// Name of the output, unique in the pipeline; recorded in handles.
    pub name: String,
    /// Directory of its parts.
    pub directory: PathBuf,
    /// Text format.
    pub format: Format,
    /// Components of the key, in order; may be none.
    pub keys: Vec<KeyField>,
    /// Names of the aggregates, in the order of the row's values.
    pub aggregates: Vec<String>,
    /// How times are written.
    pub times: TimeFormat,
    /// Adds `pane`, `pane_index` and `watermark` to each row.
    pub metadata: bool,
    /// Whether rows say what they do to earlier ones.
    pub row_kinds: bool,
}

impl ResultSpec {
    /// What its rows look like; a start refuses parts of another look.
    pub(crate) fn look(&self) -> String {
        let Self { format, keys, aggregates, times, metadata, .. } = self;
        let mut look = format!("{format:?} {keys:?} {aggregates:?} {times:?} metadata={metadata}");
        if self.row_kinds {
            look.push_str(" row_kinds");
        }
        look
    }
}

/// Writes results as JSON lines or CSV.
#[derive(Debug)]
pub struct ResultSink {
    rows: Rows,
    writer: PartWriter,
}

impl ResultSink {
    /// Recovers the output's directory after a start and opens it for this run.
    ///
    /// # Errors
    /// When the disk is in the way, another process or another state owns the directory, or the output is ahead of
    /// the restored checkpoint.
    pub fn open(spec: ResultSpec, context: SinkContext, restored: Restored<'_>) -> Result<Opened<Self>> {
        let look = spec.look();
        let ResultSpec { name, directory, format, keys, aggregates, times, metadata, row_kinds } = spec;
        let shape = Shape { sink: name.clone(), keys, aggregates, times, metadata, row_kinds };
        let (rows, header, extension) = match format {
            Format::Jsonl => (Rows::Json(JsonRows::new(shape)), None, "jsonl"),
            Format::Csv => {
                let rows = CsvRows::new(shape);
                let header = rows.header();
                (Rows::Csv(rows), Some(header), "csv")
            }
        };
        let place = Place { sink: name, directory, extension, look };
        let opened = open(place, context, header.as_deref(), restored)?;
        Ok(opened.map(|writer| Self { rows, writer }))
    }

    /// Writes all rows of a block.
    ///
    /// # Errors
    /// When the disk is in the way; the sink then refuses work.
    pub fn write(&mut self, block: &mut dyn ResultBlock) -> Result<()> {
        self.rows.begin(block.window(), block.watermark(), block.takes_back());
        while let Some(row) = block.next_row() {
            self.writer.row(|out| self.rows.append(&row, out))?;
        }
        Ok(())
    }
}

impl Sink for ResultSink {
    fn name(&self) -> &str {
        self.writer.sink()
    }

    fn stage(&mut self, epoch: u64) -> Result<Option<StagedFile>> {
        Ok(self.writer.stage(epoch)?)
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
    Ok(Opened { sink: PartWriter::new(place, context, restored.last_epoch), publisher, report })
}
