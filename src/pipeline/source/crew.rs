//! Parses a block in pieces, on several threads: a piece ends with a line, and what a block says does not depend on
//! where its pieces end, nor on who parsed them.

use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::block::{Block, BlockParser, Records};
use super::row::RowReader;
use crate::checkpoint::Position;
use crate::error::{Error, ErrorKind, Result};

/// Text of a piece, about.
const PIECE_BYTES: usize = 64 << 10;

/// Threads that help the one that reads.
#[derive(Debug)]
pub(super) struct Crew {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    piece_bytes: usize,
    // Emptied blocks of pieces, for their memory.
    spare: Vec<Block>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
    done: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Piece>,
    done: Vec<Piece>,
    closed: bool,
}

/// A part of a block's text, and what it came to.
#[derive(Debug)]
struct Piece {
    number: usize,
    // Given back, and with it the claim to the text, when the piece is parsed.
    text: Option<Arc<Vec<u8>>>,
    range: Range<usize>,
    start: Position,
    line: u64,
    complete: bool,
    records: Records,
    rows: RowReader,
    block: Block,
    broken: bool,
}

/// The text of a block, and what is known of it.
pub(super) struct Whole<'a> {
    pub(super) text: &'a mut Vec<u8>,
    /// How much of it belongs to the block.
    pub(super) cut: usize,
    /// Where it starts in the input.
    pub(super) start: Position,
    /// True when nothing follows.
    pub(super) complete: bool,
    pub(super) records: &'a Records,
}

impl Crew {
    /// Starts `helpers` threads.
    pub(super) fn start(helpers: usize) -> Result<Self> {
        Self::with_pieces(helpers, PIECE_BYTES)
    }

    /// As [`Crew::start`], with pieces of this size.
    pub(super) fn with_pieces(helpers: usize, piece_bytes: usize) -> Result<Self> {
        let mut crew = Self { shared: Arc::default(), threads: Vec::new(), piece_bytes, spare: Vec::new() };
        for _ in 0..helpers {
            let shared = Arc::clone(&crew.shared);
            let spawned =
                std::thread::Builder::new().name("floodmark-parser".to_owned()).spawn(move || shared.help());
            crew.threads.push(spawned.map_err(|error| {
                Error::new(ErrorKind::Unavailable, "cannot start a parsing thread").with_source(error)
            })?);
        }
        Ok(crew)
    }

    /// Parses all whole records, as [`BlockParser::parse`] does; `others` are readers of the same plan as `rows`, made as
    /// needed. Returns how many bytes they take.
    pub(super) fn parse(
        &mut self,
        whole: Whole<'_>,
        rows: &mut RowReader,
        others: &mut Vec<RowReader>,
        block: &mut Block,
    ) -> Result<usize> {
        let Whole { text, cut, start, complete, records } = whole;
        let ends = self.ends(&text[..cut], start, complete, records);
        let [first, .., last] = ends[..] else {
            return Ok(BlockParser::new(rows, &text[..cut], start, complete, block).parse(records));
        };
        let shared = Arc::new(std::mem::take(text));
        let mut line = start.records + 1 + lines(&shared[..first]);
        let mut pieces = VecDeque::with_capacity(ends.len());
        for (number, range) in ends.windows(2).map(|pair| pair[0]..pair[1]).enumerate() {
            let mut rows_of = others.pop().unwrap_or_else(|| rows.clone());
            rows_of.take_limits(rows);
            let mut piece = self.spare.pop().unwrap_or_default();
            piece.clear();
            rows_of.prepare(&mut piece.batch);
            let next = line + lines(&shared[range.clone()]);
            pieces.push_back(Piece {
                number,
                text: Some(Arc::clone(&shared)),
                complete: complete && range.end == last,
                range,
                start,
                line,
                records: records.clone(),
                rows: rows_of,
                block: piece,
                broken: false,
            });
            line = next;
        }
        let count = pieces.len();
        self.shared.lock().waiting = pieces;
        self.shared.work.notify_all();
        let mut consumed = BlockParser::new(rows, &shared[..first], start, false, block).parse(records);
        self.shared.work_off();
        for mut piece in self.shared.all(count) {
            if piece.broken {
                return Err(Error::new(ErrorKind::Bug, "a parsing thread came to grief"));
            }
            consumed = piece.range.end;
            append(block, &mut piece.block);
            others.push(piece.rows);
            self.spare.push(piece.block);
        }
        *text = Arc::unwrap_or_clone(shared);
        Ok(consumed)
    }

    /// Where pieces end; none when the text is to be parsed in one piece.
    fn ends(&self, text: &[u8], start: Position, complete: bool, records: &Records) -> Vec<usize> {
        let end = if complete { text.len() } else { memchr::memrchr(b'\n', text).map_or(0, |last| last + 1) };
        // The first block has the header and a mark of byte order; a quote may hide the end of a line.
        let splits = match records {
            Records::JsonLines => true,
            #[cfg(feature = "parquet")]
            Records::Parquet => false,
            Records::Csv { .. } => memchr::memchr(b'"', &text[..end]).is_none(),
        };
        let mut ends = Vec::new();
        if start.bytes == 0 || !splits || end < 2 * self.piece_bytes {
            return ends;
        }
        let mut at = self.piece_bytes;
        while at < end {
            let next = memchr::memchr(b'\n', &text[at..end]).map_or(end, |length| at + length + 1);
            ends.push(next);
            at = next + self.piece_bytes;
        }
        if ends.last().is_some_and(|&last| last < end) {
            ends.push(end);
        }
        ends
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // It catches what goes wrong in a piece.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Pieces are moved in and out whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a helper does until the crew is no longer needed.
    fn help(&self) {
        let mut state = self.lock();
        loop {
            if state.closed {
                return;
            }
            state = match state.waiting.pop_front() {
                Some(piece) => {
                    drop(state);
                    let parsed = piece.parse();
                    let mut state = self.lock();
                    state.done.push(parsed);
                    self.done.notify_one();
                    state
                }
                None => self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Parses pieces as long as one waits.
    fn work_off(&self) {
        loop {
            let Some(piece) = self.lock().waiting.pop_front() else { return };
            let parsed = piece.parse();
            self.lock().done.push(parsed);
        }
    }

    /// All pieces in their order, once they are parsed.
    fn all(&self, count: usize) -> Vec<Piece> {
        let mut state = self.lock();
        while state.done.len() < count {
            state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let mut pieces = std::mem::take(&mut state.done);
        pieces.sort_unstable_by_key(|piece| piece.number);
        pieces
    }
}

impl Piece {
    fn parse(mut self) -> Self {
        let Some(text) = self.text.take() else { return self };
        let Self { range, start, line, complete, records, rows, block, .. } = &mut self;
        let (range, start, line) = (range.clone(), *start, *line);
        let parsed = catch_unwind(AssertUnwindSafe(|| {
            BlockParser::of_piece(rows, &text[..range.end], range.start, (start, line), *complete, block)
                .parse_piece(records)
        }));
        // A piece ends with a line, or with the text.
        self.broken = !matches!(parsed, Ok(consumed) if consumed == range.end);
        self
    }
}

/// The number of line ends.
fn lines(text: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', text).count() as u64
}

/// Moves what a piece says behind what a block says.
fn append(block: &mut Block, piece: &mut Block) {
    block.batch.append_all(&piece.batch);
    block.rejected.append(&mut piece.rejected);
    block.filtered_records.append(&mut piece.filtered_records);
}
