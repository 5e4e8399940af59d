//! One file of a source: opened when its turn comes, read block by block, closed and continued at any block's end.
//!
//! Where blocks are cut depends on nothing but the position a block starts at and the text that follows it.

use std::io::{self, Read};
use std::path::PathBuf;

use super::block::{Block, BlockParser, Records};
use super::crew::{Crew, Whole};
use super::csv;
use super::input::{self, Input, Recognition, TextReader, identify_stream};
#[cfg(feature = "parquet")]
use super::parquet::{BLOCK_ROWS, RowFile};
use super::reject::{Refusal, RejectReason};
use super::row::RowReader;
use crate::checkpoint::Position;
use crate::checkpoint::SourceIdentity;
use crate::error::{Error, ErrorKind, Result};
use crate::event_time::EventTime;
use crate::pipeline::config::{Compression, closest};

/// Text of a block, unless a single record is longer.
pub const BLOCK_BYTES: usize = 256 << 10;
/// Longest record; a longer one is rejected and passed over.
pub const RECORD_BYTES_MAX: usize = 8 << 20;

/// A file and how far it was read.
#[derive(Debug)]
pub(super) struct Partition {
    /// Index of its source.
    pub(super) source: usize,
    pub(super) name: String,
    /// `None` for standard input.
    pub(super) path: Option<PathBuf>,
    pub(super) compression: Compression,
    pub(super) position: Position,
    pub(super) identity: Option<SourceIdentity>,
    pub(super) finished: bool,
    pub(super) max_time: Option<EventTime>,
    pub(super) records: Records,
    pub(super) reader: Option<Opened>,
    /// Reading goes on within a line that was counted already: the file ended there, and has grown since.
    pub(super) mid_line: bool,
    /// The file may be written to while it is read: a last line without its end stays unread.
    pub(super) leaves_unended: bool,
    /// Number of the block that was read last, for closing the file that waited longest.
    pub(super) last_used: u64,
}

/// A file that is open.
#[derive(Debug)]
pub(super) enum Opened {
    Text(TextReader),
    #[cfg(feature = "parquet")]
    Rows(Box<RowFile>),
}

/// Sizes, so that tests can cut finely.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) block_bytes: usize,
    pub(super) record_bytes: usize,
}

/// Where a block is to end, besides where its size says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// After so many lines.
    pub(super) lines_max: Option<u64>,
    /// Exactly there, instead of where an ordinary block does.
    pub(super) exact: Option<Exact>,
}

/// Where the rest of a block ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exact {
    /// After so many bytes, or rows.
    pub(super) length: usize,
    /// So does the partition, whatever is there now.
    pub(super) ends: bool,
}

/// Who parses a block.
pub(super) struct Parsers<'a> {
    pub(super) rows: &'a mut RowReader,
    /// Readers of the same plan, for those who help.
    pub(super) others: &'a mut Vec<RowReader>,
    pub(super) crew: Option<&'a mut Crew>,
}

impl Partition {
    /// Opens the file where reading goes on. It must have the columns of which `rows` are made, if it has columns.
    pub(super) fn open(&mut self, rows: &RowReader, stdin: Option<Box<dyn Read + Send>>) -> Result<()> {
        if self.reader.is_some() {
            return Ok(());
        }
        #[cfg(feature = "parquet")]
        if let (Records::Parquet, Some(path)) = (&self.records, &self.path) {
            let file = RowFile::open(path, rows.plan())?;
            if file.rows() < self.position.records {
                return Err(self.shorter());
            }
            self.reader = Some(Opened::Rows(Box::new(file)));
            return Ok(());
        }
        let (input, eager) = match (&self.path, stdin) {
            (Some(path), _) => (Input::open(path, self.compression), false),
            (None, Some(stdin)) => (self.open_stream(stdin)?, true),
            (None, None) => (Err(io::Error::other("standard input was taken already")), true),
        };
        let mut reader = TextReader::new(input.map_err(|error| self.unreadable(error))?, eager);
        self.read_header(&mut reader, &rows.fields)?;
        if self.position.bytes > 0 {
            match reader.move_to(self.position.bytes) {
                Ok(true) => {}
                Ok(false) => return Err(self.shorter()),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(self.shorter()),
                Err(error) => return Err(self.failed(error)),
            }
            if let (Some(path), Compression::None) = (&self.path, self.compression) {
                let starts = input::is_line_start(path, self.position.bytes);
                self.mid_line = !starts.map_err(|error| self.unreadable(error))?;
            }
        }
        self.reader = Some(Opened::Text(reader));
        Ok(())
    }

    fn open_stream(&mut self, stdin: Box<dyn Read + Send>) -> Result<io::Result<Input>> {
        let known = self.identity.filter(|_| self.position.bytes > 0);
        let (stream, identity, same) =
            identify_stream(stdin, known).map_err(|error| self.unreadable(error))?;
        if !same {
            return Err(self.replaced());
        }
        self.identity = Some(identity);
        Ok(Input::decode(stream, self.compression))
    }

    /// Learns the columns from the first line, which stays in front of the reader.
    fn read_header(&mut self, reader: &mut TextReader, fields: &[String]) -> Result<()> {
        let Records::Csv { delimiter, header: true, columns } = &mut self.records else { return Ok(()) };
        let mut text = Vec::new();
        while !text.contains(&b'\n') && text.len() < BLOCK_BYTES && reader.failure.is_none() {
            let before = text.len();
            reader.fill(&mut text, BLOCK_BYTES);
            if text.len() == before {
                break;
            }
        }
        // Half of a header says nothing about the other half.
        let judged = !self.leaves_unended || text.contains(&b'\n');
        if !text.is_empty() && judged {
            let line = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text);
            let names = csv::cells(line, *delimiter).map(|(names, _)| names).unwrap_or_default();
            columns.slots = slots(&names, fields).map_err(|problem| problem.about(&self.name))?;
        }
        reader.give_back(&text);
        Ok(())
    }

    /// Reads the next block into `block`, which was cleared and whose batch has its columns.
    pub(super) fn next_block(
        &mut self,
        parsers: Parsers<'_>,
        block: &mut Block,
        limits: Limits,
        wanted: Wanted,
    ) -> Result<()> {
        match self.reader.take() {
            Some(Opened::Text(reader)) => self.next_text(reader, parsers, block, limits, wanted),
            #[cfg(feature = "parquet")]
            Some(Opened::Rows(file)) => self.next_rows(file, parsers.rows, block, wanted),
            None => Err(Error::new(ErrorKind::Bug, format!("partition is not open: name={}", self.name))),
        }
    }

    #[cfg(feature = "parquet")]
    fn next_rows(
        &mut self,
        mut file: Box<RowFile>,
        rows: &RowReader,
        block: &mut Block,
        wanted: Wanted,
    ) -> Result<()> {
        file.set_limits(rows.limits());
        let lines_max = wanted.lines_max.map(|lines| usize::try_from(lines).unwrap_or(usize::MAX));
        let rows_max =
            wanted.exact.map(|exact| exact.length).into_iter().chain(lines_max).fold(BLOCK_ROWS, usize::min);
        let before = self.position.records;
        let read = file.read(before, rows_max, block);
        let read = read.inspect_err(|_| block.clear())? as u64;
        let records = before + read;
        self.position = Position { bytes: file.bytes_at(records), records };
        block.end_of_partition = records >= file.rows();
        self.end_block(block, read);
        self.reader = (!self.finished).then_some(Opened::Rows(file));
        Ok(())
    }

    fn next_text(
        &mut self,
        mut reader: TextReader,
        parsers: Parsers<'_>,
        block: &mut Block,
        limits: Limits,
        wanted: Wanted,
    ) -> Result<()> {
        let mid_line = std::mem::take(&mut self.mid_line);
        if mid_line {
            self.position.records = self.position.records.saturating_sub(1);
        }
        let mut text = std::mem::take(&mut block.batch.text);
        let Wanted { mut lines_max, mut exact } = wanted;
        let Parsers { rows, others, mut crew } = parsers;
        let mut target = exact.map_or(limits.block_bytes, |exact| exact.length);
        let before = self.position;
        loop {
            reader.fill(&mut text, target);
            // A batch ends with the first record that reaches its last line.
            let cut = lines_max.map_or(text.len(), |lines| end_of_lines(&text, lines));
            let cut = exact.map_or(cut, |exact| cut.min(exact.length));
            let told = exact.is_some_and(|exact| exact.ends && exact.length == text.len());
            let at_end = (told || reader.is_complete()) && cut == text.len();
            let complete = at_end && !self.leaves_unended;
            let start = self.position;
            let consumed = match &mut crew {
                Some(crew) => {
                    let whole = Whole { text: &mut text, cut, start, complete, records: &self.records };
                    crew.parse(whole, rows, others, block)?
                }
                None => BlockParser::new(rows, &text[..cut], start, complete, block).parse(&self.records),
            };
            if consumed == 0 && cut < text.len() {
                lines_max = lines_max.map(|lines| lines.saturating_add(1));
                exact = None;
                continue;
            }
            let rest = text.len() - consumed;
            // However the file grows, a record that is too long already stays that.
            let ends = complete || at_end && rest < limits.record_bytes;
            if consumed > 0 || ends {
                reader.give_back(&text[consumed..]);
                text.truncate(consumed);
                self.advance(&text, complete);
                block.end_of_partition = ends;
                block.unended_bytes = if ends && !complete { rest as u64 } else { 0 };
                break;
            }
            if let Some(error) = reader.failure.take() {
                let kind = error.kind();
                let message = error.to_string();
                reader.failure = Some(io::Error::new(kind, message.clone()));
                reader.give_back(&text);
                self.reader = Some(Opened::Text(reader));
                return Err(self.failed(io::Error::new(kind, message)));
            }
            if text.len() >= limits.record_bytes {
                self.pass_over(&mut reader, &mut text, block, limits)?;
                break;
            }
            if text.len() >= target {
                target = target.saturating_mul(2).min(limits.record_bytes);
            }
        }
        block.batch.text = text;
        let lines = self.position.records.saturating_sub(before.records);
        if mid_line && self.position == before {
            // The rest of that line is still not there.
            self.position.records += 1;
            self.mid_line = true;
        }
        self.end_block(block, lines);
        self.reader = if self.finished { None } else { Some(Opened::Text(reader)) };
        Ok(())
    }

    /// Notes where a block of so many lines ends, and how far its events have come.
    fn end_block(&mut self, block: &mut Block, lines: u64) {
        block.lines = lines;
        block.position = self.position;
        self.finished = block.end_of_partition;
        let latest = block.batch.times.iter().copied().max().map(EventTime::from_millis);
        self.max_time = self.max_time.max(latest);
    }

    /// Moves the position behind `text`.
    fn advance(&mut self, text: &[u8], complete: bool) {
        let lines = memchr::memchr_iter(b'\n', text).count() as u64;
        let unended = u64::from(complete && text.last().is_some_and(|&byte| byte != b'\n'));
        self.position.bytes += text.len() as u64;
        self.position.records += lines + unended;
    }

    /// Rejects a record that is too long. Of a CSV row that spans lines only the first one is given up: most likely
    /// a quote was never closed, and the lines after it are rows of their own.
    fn pass_over(
        &mut self,
        reader: &mut TextReader,
        text: &mut Vec<u8>,
        block: &mut Block,
        limits: Limits,
    ) -> Result<()> {
        let start = self.position;
        let line = memchr::memchr(b'\n', text).unwrap_or(text.len());
        let (reason, detail) = if line < text.len() {
            (
                RejectReason::BrokenRecord,
                format!("a quote is not closed: record_bytes_max={}", limits.record_bytes),
            )
        } else {
            (
                RejectReason::RecordTooLarge,
                format!("the record is too long: record_bytes_max={}", limits.record_bytes),
            )
        };
        let refusal = Refusal::record(reason, detail);
        block.rejected.push(refusal.at(start.records + 1, Some(start.bytes), &text[..line]));
        let mut passed = 0;
        let mut complete = false;
        loop {
            if let Some(length) = memchr::memchr(b'\n', text) {
                reader.give_back(&text[length + 1..]);
                passed += length as u64 + 1;
                break;
            }
            passed += text.len() as u64;
            text.clear();
            if let Some(error) = reader.failure.take() {
                return Err(self.failed(error));
            }
            complete = reader.is_complete();
            if complete {
                break;
            }
            reader.fill(text, limits.block_bytes);
        }
        text.clear();
        self.position = Position { bytes: start.bytes + passed, records: start.records + 1 };
        block.end_of_partition = complete;
        Ok(())
    }

    /// True for a file that may be written to after it was read.
    pub(super) fn may_grow(&self) -> bool {
        self.compression == Compression::None && self.recognition() == Recognition::Head
    }

    /// By what its file is recognised.
    pub(super) const fn recognition(&self) -> Recognition {
        match self.records {
            #[cfg(feature = "parquet")]
            Records::Parquet => Recognition::Whole,
            Records::JsonLines | Records::Csv { .. } => Recognition::Head,
        }
    }

    pub(super) fn unreadable(&self, error: io::Error) -> Error {
        let message = format!("cannot open the input: path={}", self.shown());
        Error::new(ErrorKind::Unavailable, message)
            .with_remedy("make it readable for the user that runs the pipeline")
            .with_source(error)
    }

    fn failed(&self, error: io::Error) -> Error {
        let (path, bytes, line) = (self.shown(), self.position.bytes, self.position.records + 1);
        if self.compression == Compression::None {
            let message = format!("cannot read on: path={path} offset={bytes} line={line}");
            let remedy =
                "see to the disk or mount, then run again: reading goes on where the last checkpoint stands";
            return Error::new(ErrorKind::Unavailable, message).with_remedy(remedy).with_source(error);
        }
        let message = format!(
            "the compressed input is cut short or damaged; what came before was read: path={path} \
             decompressed_offset={bytes} line={line}"
        );
        let remedy = "replace it by the whole file, which must begin with the same bytes, and run again: reading goes \
                      on at this place; or take what can be saved into a new file, and read that from the start";
        Error::new(ErrorKind::Invalid, message).with_remedy(remedy).with_source(error)
    }

    pub(super) fn shorter(&self) -> Error {
        let (path, bytes) = (self.shown(), self.position.bytes);
        let message =
            format!("the input is shorter than what was read of it: path={path} read_bytes={bytes}");
        Error::new(ErrorKind::Incompatible, message).with_remedy(self.choices())
    }

    pub(super) fn replaced(&self) -> Error {
        let message = format!("the input is not the one that was read before: path={}", self.shown());
        Error::new(ErrorKind::Incompatible, message).with_remedy(self.choices())
    }

    const fn choices(&self) -> &'static str {
        if self.path.is_some() { CHOICES } else { CHOICES_OF_STREAM }
    }

    fn shown(&self) -> String {
        self.path.as_ref().map_or_else(|| "standard input".to_owned(), |path| path.display().to_string())
    }
}

/// Where the first `lines` lines of `text` end; the end of the text when it has fewer.
fn end_of_lines(text: &[u8], lines: u64) -> usize {
    let before = usize::try_from(lines.saturating_sub(1)).unwrap_or(usize::MAX);
    memchr::memchr_iter(b'\n', text).nth(before).map_or(text.len(), |at| at + 1)
}

/// What can be done when an input is not what it was.
pub(super) const CHOICES: &str = "put the original input back; or give the new one another name, so that it is read as \
                                  a new file; or start over with another state directory";

/// The same for standard input, which has one name and no place to go back to.
pub(super) const CHOICES_OF_STREAM: &str = "pipe the same stream again from its first byte: what was read of it is skipped \
                                            (`tail -c +1 -f FILE` begins there); or start over with another state \
                                            directory and other output directories";

/// A header that does not name what is needed.
#[derive(Debug)]
pub(super) struct MissingColumn {
    message: String,
    remedy: String,
}

impl MissingColumn {
    pub(super) fn about(self, file: &str) -> Error {
        let message = format!("{}: file={file}", self.message);
        Error::new(ErrorKind::Invalid, message).with_remedy(self.remedy)
    }
}

/// Which of `fields` each of the columns holds. Every field must have its column, and only one.
pub(super) fn slots(names: &[String], fields: &[String]) -> Result<Vec<Option<usize>>, MissingColumn> {
    for field in fields {
        match names.iter().filter(|name| *name == field).count() {
            1 => {}
            0 => {
                let message = format!("there is no column `{field}`");
                let remedy = match closest(field, names.iter().map(String::as_str)) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => {
                        format!("the columns are: {}; check `delimiter` and `header` too", names.join(", "))
                    }
                };
                return Err(MissingColumn { message, remedy });
            }
            _ => {
                let message = format!("there are several columns `{field}`");
                return Err(MissingColumn { message, remedy: "give each column its own name".to_owned() });
            }
        }
    }
    Ok(names.iter().map(|name| fields.iter().position(|field| field == name)).collect())
}
