//! Parquet files: rows gather in columns, column by column they become a row group, row group by row group a part.
//!
//! It knows columns and cells, and hands finished bytes to the staged writer, which knows epochs and files.

mod cells;
mod plain;
#[cfg(test)]
pub(super) mod tests;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as PhysicalType};
use parquet::errors::ParquetError;
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{Type, TypePtr};

use self::cells::Gathered;
pub(in crate::pipeline) use self::plain::PlainParquet;
use super::columns::{Column, ColumnType, TypedRows};
use super::error::SinkError;
use super::writer::PartWriter;
use crate::checkpoint::StagedOutput;
use crate::operator::{JoinedRow, ResultBlock};

/// Rows of a group at most; what is not yet a group is in memory.
const GROUP_ROWS: usize = 1 << 16;
/// Bytes of a group's cells at most, plus one row.
const GROUP_BYTES: usize = 16 << 20;
/// Digits of every decimal column, and the bytes that hold them.
const DECIMAL_DIGITS: i32 = 38;
const DECIMAL_BYTES: i32 = 16;

/// Writes rows as Parquet, one file per epoch.
pub(super) struct ParquetWriter {
    rows: TypedRows,
    schema: TypePtr,
    properties: WriterPropertiesPtr,
    gathered: Gathered,
    // Begun by the first row group of an epoch.
    file: Option<SerializedFileWriter<Tray>>,
    tray: Tray,
    writer: PartWriter,
}

impl std::fmt::Debug for ParquetWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ParquetWriter").field("rows", &self.rows).field("writer", &self.writer).finish()
    }
}

impl ParquetWriter {
    pub(super) fn new(rows: TypedRows, writer: PartWriter) -> Result<Self, SinkError> {
        let schema = schema(rows.columns()).map_err(|error| failed(writer.sink(), &error))?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by("floodmark".to_owned());
        Ok(Self {
            gathered: Gathered::new(rows.columns()),
            rows,
            schema: Arc::new(schema),
            properties: Arc::new(properties.build()),
            file: None,
            tray: Tray::default(),
            writer,
        })
    }

    pub(super) fn sink(&self) -> &str {
        self.writer.sink()
    }

    /// Writes all rows of a block.
    pub(super) fn write(&mut self, block: &mut dyn ResultBlock) -> Result<(), SinkError> {
        self.writer.check()?;
        self.rows.begin(block.window(), block.watermark(), block.takes_back());
        while let Some(row) = block.next_row() {
            self.rows.walk(&row, &mut self.gathered.next_row())?;
            self.spill()?;
        }
        Ok(())
    }

    /// Writes one row of a join.
    pub(super) fn write_joined(&mut self, row: &JoinedRow<'_>) -> Result<(), SinkError> {
        self.writer.check()?;
        self.rows.walk_joined(row, &mut self.gathered.next_row())?;
        self.spill()
    }

    /// Completes the file of this epoch and stages it; see [`super::Sink::stage`].
    pub(super) fn stage(&mut self, epoch: u64) -> Result<Option<StagedOutput>, SinkError> {
        self.writer.check()?;
        self.write_group()?;
        if let Some(file) = self.file.take() {
            let closed = file.close();
            self.guard(closed)?;
            self.writer.append(0, &self.tray.take())?;
        }
        self.writer.stage_output(epoch)
    }

    fn spill(&mut self) -> Result<(), SinkError> {
        let full = self.gathered.rows() >= GROUP_ROWS || self.gathered.bytes() >= GROUP_BYTES;
        if full { self.write_group() } else { Ok(()) }
    }

    /// Turns what has gathered into a row group of the file.
    fn write_group(&mut self) -> Result<(), SinkError> {
        let rows = self.gathered.rows() as u64;
        if rows == 0 {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let (schema, properties) = (Arc::clone(&self.schema), Arc::clone(&self.properties));
                let begun = SerializedFileWriter::new(self.tray.clone(), schema, properties);
                let begun = begun.map_err(|error| {
                    self.writer.poison();
                    failed(self.writer.sink(), &error)
                })?;
                self.file.insert(begun)
            }
        };
        let written = self.gathered.write(file).and_then(|()| file.flush().map_err(ParquetError::from));
        self.guard(written)?;
        self.writer.append(rows, &self.tray.take())
    }

    /// After an error nobody can say what the file holds.
    fn guard<T>(&mut self, result: Result<T, ParquetError>) -> Result<T, SinkError> {
        result.map_err(|error| {
            self.writer.poison();
            failed(self.writer.sink(), &error)
        })
    }
}

fn failed(sink: &str, error: &ParquetError) -> SinkError {
    SinkError::Protocol { sink: sink.to_owned(), what: format!("rows cannot be written as Parquet: {error}") }
}

/// Bytes of the file on their way to the disk. The file keeps one end, we the other.
#[derive(Clone, Debug, Default)]
struct Tray(Arc<Mutex<Vec<u8>>>);

impl Tray {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl io::Write for Tray {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn schema(columns: &[Column]) -> Result<Type, ParquetError> {
    let fields = columns.iter().map(|column| field(column).map(Arc::new)).collect::<Result<_, _>>()?;
    Type::group_type_builder("row").with_fields(fields).build()
}

fn field(column: &Column) -> Result<Type, ParquetError> {
    let (physical, logical) = match column.kind {
        ColumnType::Text | ColumnType::Json => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
        ColumnType::Int => (PhysicalType::INT64, None),
        ColumnType::Float => (PhysicalType::DOUBLE, None),
        ColumnType::Time => (PhysicalType::INT64, Some(LogicalType::timestamp(true, TimeUnit::MILLIS))),
        ColumnType::Whole | ColumnType::Decimal(_) => (PhysicalType::FIXED_LEN_BYTE_ARRAY, None),
    };
    let repetition = if column.nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    let builder = Type::primitive_type_builder(&column.name, physical).with_repetition(repetition);
    let scale = match column.kind {
        ColumnType::Whole => 0,
        ColumnType::Decimal(scale) => i32::from(scale),
        _ => return builder.with_logical_type(logical).build(),
    };
    builder
        .with_length(DECIMAL_BYTES)
        .with_logical_type(Some(LogicalType::decimal(scale, DECIMAL_DIGITS)))
        .with_precision(DECIMAL_DIGITS)
        .with_scale(scale)
        .build()
}
