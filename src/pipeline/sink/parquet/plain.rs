//! A Parquet file by itself, outside of epochs and outputs: bytes come out as row groups fill.

use std::sync::Arc;

use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;

use super::cells::{Gathered, NextRow};
use super::{GROUP_BYTES, GROUP_ROWS, Tray, schema};
use crate::error::{Error, ErrorKind, Result};
use crate::pipeline::sink::columns::Column;

/// Rows on their way into a Parquet file.
pub(in crate::pipeline) struct PlainParquet {
    gathered: Gathered,
    file: SerializedFileWriter<Tray>,
    tray: Tray,
}

impl PlainParquet {
    /// A file of these columns.
    pub(in crate::pipeline) fn new(columns: &[Column]) -> Result<Self> {
        let tray = Tray::default();
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by("floodmark".to_owned());
        let schema = schema(columns).map_err(failed)?;
        let file = SerializedFileWriter::new(tray.clone(), Arc::new(schema), Arc::new(properties.build()));
        Ok(Self { gathered: Gathered::new(columns), file: file.map_err(failed)?, tray })
    }

    /// Takes the cells of one more row.
    pub(in crate::pipeline) fn next_row(&mut self) -> NextRow<'_> {
        self.gathered.next_row()
    }

    /// Bytes of the file that are complete; none while a row group is filling.
    pub(in crate::pipeline) fn full_groups(&mut self) -> Result<Vec<u8>> {
        if self.gathered.rows() < GROUP_ROWS && self.gathered.bytes() < GROUP_BYTES {
            return Ok(Vec::new());
        }
        self.write_group()?;
        Ok(self.tray.take())
    }

    fn write_group(&mut self) -> Result<()> {
        if self.gathered.rows() == 0 {
            return Ok(());
        }
        let written = self.gathered.write(&mut self.file);
        written.and_then(|()| self.file.flush().map_err(ParquetError::from)).map_err(failed)
    }

    /// The rest of the file.
    pub(in crate::pipeline) fn finish(mut self) -> Result<Vec<u8>> {
        self.write_group()?;
        self.file.close().map_err(failed)?;
        Ok(self.tray.take())
    }
}

fn failed(error: ParquetError) -> Error {
    Error::new(ErrorKind::Bug, "rows cannot be written as Parquet").with_source(error)
}
