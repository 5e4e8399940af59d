//! One block of a partition: text cut at record ends, and the events, rejects and counts that came of it.
//!
//! Knows records and lines, not where text comes from.

use std::ops::Range;

use super::csv::{self, Columns, Row};
use super::json;
use super::reject::{Refusal, RejectReason, Rejected};
use super::row::{Outcome, RowReader};
use crate::checkpoint::{Position, SourceIdentity};
use crate::operator::{EventBatch, PartitionId};

/// Events of one partition that were read in one piece, and what else was found among them.
#[derive(Debug, Default)]
pub struct Block {
    /// Index into [`super::FileSource::partitions`]. `batch.partition` is the one that has the watermark.
    pub partition: PartitionId,
    /// The events.
    pub batch: EventBatch,
    /// The records that cannot become events.
    pub rejected: Vec<Rejected>,
    /// The records that a filter passed over, by line and place in `batch.text`.
    pub filtered_records: Vec<(u64, Range<u32>)>,
    /// How its partition is recognised; of standard input that is known only once it is read.
    pub identity: Option<SourceIdentity>,
    /// Where reading goes on after this block.
    pub position: Position,
    /// The partition is read to its end.
    pub end_of_partition: bool,
    /// Bytes behind the last line end that stay unread, as the line may not have been written to its end.
    pub unended_bytes: u64,
    /// No further events come under this watermark.
    pub end_of_watermark: Option<PartitionId>,
    /// Lines that this block stands for.
    pub lines: u64,
    /// A batch ends with this block, where the source was asked to cut batches.
    pub end_of_batch: bool,
}

/// What is left of a block that a checkpoint was made in the middle of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestOfBlock {
    /// The name of its partition.
    pub partition: String,
    /// Bytes of text, or rows where they are no text.
    pub rest: u64,
    /// The partition ends with the block. That was seen when the block was read; looking again might find more.
    pub ends: bool,
}

impl Block {
    /// Where reading would go on if it had ended before event `next`; the block starts at `start`. `None` when there is
    /// no such event.
    pub(in crate::pipeline) fn place_before(&self, next: usize, start: Position) -> Option<Position> {
        let records = self.batch.records.get(next)?.saturating_sub(1);
        if let Some(span) = self.batch.spans.get(next) {
            return Some(Position { bytes: start.bytes + u64::from(span.start), records });
        }
        // Rows of a block share its part of the file evenly.
        let (rows, all) = (records.saturating_sub(start.records), self.lines.max(1));
        let bytes =
            u128::from(self.position.bytes.saturating_sub(start.bytes)) * u128::from(rows) / u128::from(all);
        Some(Position { bytes: start.bytes + u64::try_from(bytes).unwrap_or(u64::MAX), records })
    }

    /// What is left of the block behind a place in it: bytes of text, or rows.
    pub(in crate::pipeline) fn rest_behind(&self, place: Position) -> u64 {
        match self.batch.rows {
            None => self.position.bytes.saturating_sub(place.bytes),
            Some(_) => self.position.records.saturating_sub(place.records),
        }
    }

    pub(super) fn clear(&mut self) {
        self.batch.clear();
        self.rejected.clear();
        self.filtered_records.clear();
        self.end_of_partition = false;
        self.unended_bytes = 0;
        self.end_of_watermark = None;
        self.lines = 0;
        self.end_of_batch = false;
    }
}

/// How records are told apart.
#[derive(Clone, Debug)]
pub(super) enum Records {
    JsonLines,
    #[cfg(feature = "parquet")]
    Parquet,
    Csv {
        delimiter: u8,
        header: bool,
        columns: Columns,
    },
}

/// Parses the text of a block record by record.
pub(super) struct BlockParser<'a> {
    pub(super) rows: &'a mut RowReader,
    pub(super) text: &'a [u8],
    /// Where `text` starts.
    pub(super) start: Position,
    /// True when nothing follows the text.
    pub(super) complete: bool,
    pub(super) block: &'a mut Block,
    line: u64,
    /// Up to here lines are counted.
    counted: usize,
    /// Where in `text` the records begin.
    from: usize,
}

impl<'a> BlockParser<'a> {
    pub(super) fn new(
        rows: &'a mut RowReader,
        text: &'a [u8],
        start: Position,
        complete: bool,
        block: &'a mut Block,
    ) -> Self {
        Self { rows, text, start, complete, block, line: start.records + 1, counted: 0, from: 0 }
    }

    /// For the records from `from` on, the first of which stands on line `line`, of a text that starts at `start`.
    pub(super) fn of_piece(
        rows: &'a mut RowReader,
        text: &'a [u8],
        from: usize,
        (start, line): (Position, u64),
        complete: bool,
        block: &'a mut Block,
    ) -> Self {
        Self { rows, text, start, complete, block, line, counted: from, from }
    }

    /// As [`BlockParser::parse`], for records that begin neither a file nor in the middle of a line. Returns where in the
    /// text they end.
    pub(super) fn parse_piece(&mut self, records: &Records) -> usize {
        match records {
            Records::JsonLines => self.parse_lines(self.from),
            // It is no text.
            #[cfg(feature = "parquet")]
            Records::Parquet => self.from,
            Records::Csv { delimiter, columns, .. } => self.parse_rows(self.from, *delimiter, columns),
        }
    }

    /// Parses all whole records; returns how many bytes they take.
    pub(super) fn parse(&mut self, records: &Records) -> usize {
        let bom = if self.start.bytes == 0 && self.text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        match records {
            Records::JsonLines => self.parse_lines(bom),
            // It is no text.
            #[cfg(feature = "parquet")]
            Records::Parquet => 0,
            Records::Csv { delimiter, header, columns } => {
                let header = *header && self.start.bytes == 0;
                let from = match csv::cells(&self.text[bom..], *delimiter) {
                    _ if !header => bom,
                    Some((_, length)) if self.complete || self.text[..bom + length].ends_with(b"\n") => {
                        bom + length
                    }
                    _ => return 0,
                };
                self.parse_rows(from, *delimiter, columns)
            }
        }
    }

    fn parse_lines(&mut self, from: usize) -> usize {
        let end = if self.complete {
            self.text.len()
        } else {
            memchr::memrchr(b'\n', self.text).map_or(0, |last| last + 1)
        };
        let from = from.min(end);
        let valid = std::str::from_utf8(&self.text[from..end]).is_ok();
        let mut at = from;
        while at < end {
            let stop = memchr::memchr(b'\n', &self.text[at..end]).map_or(end, |length| at + length);
            let line = &self.text[at..stop];
            let line_end = if line.ends_with(b"\r") { stop - 1 } else { stop };
            if !self.text[at..line_end].trim_ascii().is_empty() {
                self.json_record(at, line_end, valid);
            }
            self.line += 1;
            at = stop + 1;
        }
        end
    }

    fn json_record(&mut self, at: usize, end: usize, valid: bool) {
        if !valid && let Err(refusal) = check_utf8(&self.text[at..end]) {
            return self.reject(refusal, at, end);
        }
        let rows = &mut *self.rows;
        let (tokens, scratch) = (&mut rows.tokens, &mut rows.scratch);
        match json::scan(self.text, at, end, &rows.fields, &mut rows.order, tokens, scratch) {
            Ok(()) => self.push(at, end),
            Err(refusal) => self.reject(refusal, at, end),
        }
    }

    fn parse_rows(&mut self, from: usize, delimiter: u8, columns: &Columns) -> usize {
        let mut at = from;
        loop {
            match &self.text[at..] {
                [] => return at,
                [b'\n', ..] => at += 1,
                [b'\r', b'\n', ..] => at += 2,
                [b'\r'] if self.complete => return at + 1,
                _ => match csv::scan_row(
                    self.text,
                    at,
                    self.complete,
                    delimiter,
                    columns,
                    &mut self.rows.tokens,
                ) {
                    Row::Incomplete => return at,
                    Row::Whole { end, next } => {
                        self.count_lines(at);
                        match check_utf8(&self.text[at..end]) {
                            Ok(()) => self.push(at, end),
                            Err(refusal) => self.reject(refusal, at, end),
                        }
                        at = next;
                    }
                    Row::Broken { refusal, end, next } => {
                        self.count_lines(at);
                        self.reject(refusal, at, end);
                        at = next;
                    }
                },
            }
        }
    }

    /// Brings the line number to the record at `at`.
    fn count_lines(&mut self, at: usize) {
        self.line += memchr::memchr_iter(b'\n', &self.text[self.counted..at]).count() as u64;
        self.counted = at;
    }

    fn push(&mut self, at: usize, end: usize) {
        // Blocks stay far below 4 GiB.
        let place = |offset| u32::try_from(offset).unwrap_or(u32::MAX);
        match self.rows.push(self.text, &mut self.block.batch) {
            Outcome::Event => {
                self.block.batch.records.push(self.line);
                self.block.batch.spans.push(place(at)..place(end));
            }
            Outcome::Filtered => {
                self.block.filtered_records.push((self.line, place(at)..place(end)));
            }
            Outcome::Refused(refusal) => self.reject(refusal, at, end),
        }
    }

    fn reject(&mut self, refusal: Refusal, at: usize, end: usize) {
        let offset = Some(self.start.bytes + at as u64);
        self.block.rejected.push(refusal.at(self.line, offset, &self.text[at..end]));
    }
}

fn check_utf8(record: &[u8]) -> Result<(), Refusal> {
    std::str::from_utf8(record).map(|_| ()).map_err(|error| {
        let detail = format!("not UTF-8 text: byte={}", error.valid_up_to() + 1);
        Refusal::record(RejectReason::BrokenRecord, detail)
    })
}
