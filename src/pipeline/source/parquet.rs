//! One Parquet file: opened at its end, where it says what it holds; read row group by row group, the columns of the plan
//! alone; continued at any row.
//!
//! What a row means is no matter of this file, see [`super::columnar`]. Its numbers are hostile until they were held
//! against the length of the file; a decoder that panics over damaged pages is an error like any other.

use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use arrow_array::RecordBatch;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::file::reader::ChunkReader;

use super::block::Block;
use super::columnar::ColumnarReader;
use super::plan::ParsePlan;
use crate::error::{Error, ErrorKind, Result};
use crate::operator::Limits;

/// Rows of a block, unless they are wide.
pub const BLOCK_ROWS: usize = 8 << 10;
/// About as many bytes as a block's columns may take, by what the file says of the row group.
const BLOCK_COLUMN_BYTES: u64 = 8 << 20;
/// The four bytes that every file begins with.
const MAGIC_BYTES: u64 = 4;

/// Rows of a file, from any place on.
pub(super) struct RowFile<S: Source = File> {
    shown: String,
    source: S,
    metadata: ArrowReaderMetadata,
    mask: ProjectionMask,
    groups: Vec<Group>,
    length: u64,
    reader: ColumnarReader,
    // Rows of one group, and the number of the next one.
    open: Option<(ParquetRecordBatchReader, u64)>,
    // What was taken out of it and not used yet.
    waiting: Option<RecordBatch>,
}

/// Bytes that can be read in pieces, by several readers.
pub(super) trait Source: ChunkReader + Sized + 'static {
    /// Another handle of the same bytes.
    fn again(&self) -> io::Result<Self>;
}

impl Source for File {
    fn again(&self) -> io::Result<Self> {
        self.try_clone()
    }
}

/// A row group: the numbers of its rows, from 0, and the bytes of the file that are passed with it.
#[derive(Clone, Copy, Debug)]
struct Group {
    first: u64,
    end: u64,
    bytes_before: u64,
    bytes: u64,
    block_rows: usize,
}

impl<S: Source> std::fmt::Debug for RowFile<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowFile").field("path", &self.shown).field("groups", &self.groups).finish()
    }
}

impl RowFile {
    /// Opens the file at `path`, and refuses one whose columns cannot be what the plan takes them for.
    ///
    /// # Errors
    /// `Unavailable` when it cannot be read, `Invalid` when it is no Parquet file or lacks a column.
    pub(super) fn open(path: &Path, plan: &ParsePlan) -> Result<Self> {
        let shown = path.display().to_string();
        let file = File::open(path).map_err(|error| unreadable(&shown, error))?;
        let length = file.metadata().map_err(|error| unreadable(&shown, error))?.len();
        Self::of(file, length, shown, plan)
    }
}

impl<S: Source> RowFile<S> {
    /// As [`RowFile::open`], of bytes wherever they are.
    pub(super) fn of(source: S, length: u64, shown: String, plan: &ParsePlan) -> Result<Self> {
        let loaded = guarded(|| ArrowReaderMetadata::load(&source, ArrowReaderOptions::new()));
        let metadata = loaded.map_err(|problem| no_parquet(&shown, problem))?;
        let schema = metadata.schema();
        let wide = ColumnarReader::about(plan.clone(), schema, Some(&shown))?;
        let indexes: Vec<usize> = wide.indexes().collect();
        let narrow = schema.project(&indexes).map_err(|error| no_parquet(&shown, error.to_string()))?;
        let reader = ColumnarReader::about(plan.clone(), &narrow, Some(&shown))?;
        let mask = ProjectionMask::roots(metadata.parquet_schema(), indexes.iter().copied());
        let groups = groups(&metadata, &mask, length).map_err(|problem| no_parquet(&shown, problem))?;
        Ok(Self { shown, source, metadata, mask, groups, length, reader, open: None, waiting: None })
    }

    /// How many rows it has.
    pub(super) fn rows(&self) -> u64 {
        self.groups.last().map_or(0, |group| group.end)
    }

    /// The bytes of the file that are passed when so many rows were read: all of them at its end.
    pub(super) fn bytes_at(&self, rows: u64) -> u64 {
        let Some(group) = self.groups.iter().find(|group| rows < group.end) else { return self.length };
        let within = u128::from(group.bytes) * u128::from(rows.saturating_sub(group.first))
            / u128::from((group.end - group.first).max(1));
        let bytes = group.bytes_before + u64::try_from(within).unwrap_or(group.bytes);
        if rows == 0 { 0 } else { bytes }
    }

    /// Takes the bounds for the rows to come.
    pub(super) fn set_limits(&mut self, limits: Limits) {
        self.reader.set_limits(limits);
    }

    /// Reads rows from number `from` on, counted from 0, into `block`: so many at most, none of another row group, and no
    /// more than make a block. Returns how many it were; 0 at the end.
    pub(super) fn read(&mut self, from: u64, rows_max: usize, block: &mut Block) -> Result<usize> {
        let Some(group) = self.groups.iter().position(|group| from < group.end) else { return Ok(0) };
        let Group { end, block_rows, .. } = self.groups[group];
        let left = usize::try_from(end - from).unwrap_or(usize::MAX);
        let wanted = rows_max.min(block_rows).min(left);
        let mut taken = 0;
        while taken < wanted {
            let at = from + taken as u64;
            let rows = self.next_rows(group, at, wanted - taken)?;
            let filtered = |record| block.filtered_records.push((record, 0..0));
            self.reader.read_rows(&rows, at + 1, &mut block.batch, &mut block.rejected, filtered)?;
            taken += rows.num_rows();
        }
        Ok(taken)
    }

    /// The rows at `at`, at least one and `rows_max` at most.
    fn next_rows(&mut self, group: usize, at: u64, rows_max: usize) -> Result<RecordBatch> {
        let taken = match self.take_rows(group, at) {
            Ok(Some(rows)) if rows.num_rows() > 0 => rows,
            Ok(_) => return Err(self.damaged(group, at, "it has fewer rows than it says".to_owned())),
            Err(problem) => return Err(self.damaged(group, at, problem)),
        };
        let rows = taken.num_rows().min(rows_max);
        if rows < taken.num_rows() {
            self.waiting = Some(taken.slice(rows, taken.num_rows() - rows));
        }
        if let Some((_, next)) = &mut self.open {
            *next = at + rows as u64;
        }
        Ok(taken.slice(0, rows))
    }

    fn take_rows(&mut self, group: usize, at: u64) -> Result<Option<RecordBatch>, String> {
        let is_there = self.open.as_ref().is_some_and(|(_, next)| *next == at);
        let Group { first, block_rows, .. } = self.groups[group];
        if !is_there || at == first {
            // Afterwards nothing is open if this fails.
            (self.open, self.waiting) = (None, None);
            let source = self.source.again().map_err(|error| error.to_string())?;
            let skipped = usize::try_from(at - first).map_err(|error| error.to_string())?;
            let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(source, self.metadata.clone())
                .with_projection(self.mask.clone())
                .with_row_groups(vec![group])
                .with_offset(skipped)
                .with_batch_size(block_rows);
            self.open = Some((guarded(|| builder.build())?, at));
        }
        if let Some(rows) = self.waiting.take() {
            return Ok(Some(rows));
        }
        let Some((reader, _)) = &mut self.open else { return Ok(None) };
        let read = guarded(|| reader.next().transpose());
        if read.is_err() {
            self.open = None;
        }
        read
    }

    fn damaged(&self, group: usize, row: u64, problem: String) -> Error {
        let message = format!(
            "the Parquet file cannot be read on; what came before was read: path={} row_group={group} row={} \
             problem={problem}",
            self.shown,
            row + 1
        );
        let remedy = "replace it by the whole file, and start over with another state directory and other output directories: \
                      this state knows the file by its first and last 64 KiB. If it was whole when this state first read \
                      it, or is damaged elsewhere, run again: reading goes on at this row";
        Error::new(ErrorKind::Invalid, message).with_remedy(remedy)
    }
}

/// The row groups of a file, as far as what it says of them can be.
fn groups(metadata: &ArrowReaderMetadata, mask: &ProjectionMask, length: u64) -> Result<Vec<Group>, String> {
    let (mut groups, mut first, mut bytes_before) = (Vec::new(), 0_u64, MAGIC_BYTES);
    for (index, group) in metadata.metadata().row_groups().iter().enumerate() {
        let wrong = |what: &str| format!("{what}: row_group={index}");
        let rows = u64::try_from(group.num_rows()).map_err(|_| wrong("its number of rows is negative"))?;
        let end = first.checked_add(rows).ok_or_else(|| wrong("it says that it has too many rows"))?;
        let size = |bytes: i64| u64::try_from(bytes).map_err(|_| wrong("its size is negative"));
        let bytes = size(group.compressed_size())?.min(length.saturating_sub(bytes_before));
        let mut columns = 0_u64;
        for (_, column) in group.columns().iter().enumerate().filter(|(at, _)| mask.leaf_included(*at)) {
            columns = columns.saturating_add(size(column.uncompressed_size())?);
        }
        let row_bytes = (columns / rows.max(1)).max(1);
        let block_rows = usize::try_from(BLOCK_COLUMN_BYTES / row_bytes).unwrap_or(BLOCK_ROWS);
        groups.push(Group { first, end, bytes_before, bytes, block_rows: block_rows.clamp(64, BLOCK_ROWS) });
        (first, bytes_before) = (end, bytes_before.saturating_add(bytes));
    }
    Ok(groups)
}

/// What comes of decoding: damaged bytes may also make the decoder panic, which is no worse.
fn guarded<T, E: std::fmt::Display>(decode: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(decode)) {
        Ok(decoded) => decoded.map_err(|error| error.to_string()),
        Err(_) => Err("the decoder gave up on it".to_owned()),
    }
}

fn unreadable(path: &str, error: io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("cannot open the input: path={path}"))
        .with_remedy("make it readable for the user that runs the pipeline")
        .with_source(error)
}

fn no_parquet(path: &str, problem: String) -> Error {
    let message = format!("this is no whole Parquet file: path={path} problem={problem}");
    Error::new(ErrorKind::Invalid, message).with_remedy(
        "a Parquet file is read once it is complete, since what it holds is listed at its end: write it under another name \
         and rename it, or correct `path` or `format`",
    )
}

#[cfg(test)]
mod tests;
