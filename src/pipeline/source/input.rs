//! The bytes of one file: opened, recognised, decompressed, and continued where a checkpoint left off.
//!
//! Knows nothing of records. Compressed input cannot be entered in the middle: it is read again and skipped.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use crate::checkpoint::SourceIdentity;
use crate::pipeline::config::{Compression, Format};

/// A file is recognised by so many of its first bytes.
const HEAD_BYTES_MAX: u32 = 64 << 10;
/// Buffer in front of a decoder.
const RAW_BUFFER_BYTES: usize = 64 << 10;

/// By what a file is recognised when reading goes on: the checksum of the first up to 64 KiB of its raw bytes, as
/// many as there were when it was first opened.
fn identity_of(head: &[u8]) -> SourceIdentity {
    SourceIdentity {
        head_bytes: u32::try_from(head.len()).unwrap_or(u32::MAX),
        head_crc32: crc32fast::hash(head),
    }
}

/// By what the files of a source are recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recognition {
    /// By how they begin, so that they may grow.
    Head,
    /// By how they begin and end and how long they are: those of Parquet are written once.
    Whole,
}

impl Recognition {
    pub(super) const fn of(format: Format) -> Self {
        match format {
            Format::JsonLines | Format::Csv => Self::Head,
            Format::Parquet => Self::Whole,
        }
    }
}

/// Reads the identity of the file at `path`, and whether it still is as `known` says.
pub(super) fn identify(
    path: &Path,
    known: Option<SourceIdentity>,
    by: Recognition,
) -> io::Result<(SourceIdentity, bool)> {
    match by {
        Recognition::Head => identify_by_head(path, known),
        Recognition::Whole => {
            let identity = identity_of_whole(&mut File::open(path)?)?;
            Ok((identity, known.is_none_or(|known| known == identity)))
        }
    }
}

/// The checksum goes on over as many of the last bytes, and over the length.
fn identity_of_whole(file: &mut File) -> io::Result<SourceIdentity> {
    let length = file.metadata()?.len();
    let mut bytes = Vec::new();
    file.take(HEAD_BYTES_MAX.into()).read_to_end(&mut bytes)?;
    let head_bytes = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    file.seek(SeekFrom::Start(length.saturating_sub(HEAD_BYTES_MAX.into())))?;
    file.take(HEAD_BYTES_MAX.into()).read_to_end(&mut bytes)?;
    bytes.extend_from_slice(&length.to_le_bytes());
    Ok(SourceIdentity { head_bytes, head_crc32: crc32fast::hash(&bytes) })
}

fn identify_by_head(path: &Path, known: Option<SourceIdentity>) -> io::Result<(SourceIdentity, bool)> {
    let mut head = Vec::new();
    File::open(path)?.take(HEAD_BYTES_MAX.into()).read_to_end(&mut head)?;
    Ok((identity_of(&head), known.is_none_or(|known| begins_as(&head, known))))
}

fn begins_as(head: &[u8], known: SourceIdentity) -> bool {
    head.get(..known.head_bytes as usize).is_some_and(|head| identity_of(head) == known)
}

/// True when a line starts at `bytes` of the plain file at `path`, that is, when a line end comes before.
pub(super) fn is_line_start(path: &Path, bytes: u64) -> io::Result<bool> {
    let Some(before) = bytes.checked_sub(1) else { return Ok(true) };
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(before))?;
    let mut byte = [0];
    file.read_exact(&mut byte)?;
    Ok(byte == *b"\n")
}

/// Reads the head of a stream and gives it back in front of the rest. What the first read brings is the head of a
/// stream seen for the first time, so that a live one is not waited for.
pub(super) fn identify_stream(
    mut stream: Box<dyn Read + Send>,
    known: Option<SourceIdentity>,
) -> io::Result<(Box<dyn Read + Send>, SourceIdentity, bool)> {
    let mut head = Vec::new();
    match known {
        Some(known) => {
            (&mut stream).take(known.head_bytes.min(HEAD_BYTES_MAX).into()).read_to_end(&mut head)?;
        }
        None => {
            head.resize(HEAD_BYTES_MAX as usize, 0);
            let length = read_once(&mut stream, &mut head)?;
            head.truncate(length);
        }
    }
    let identity = identity_of(&head);
    let same = known.is_none_or(|known| identity == known);
    Ok((Box::new(io::Cursor::new(head).chain(stream)), identity, same))
}

/// One read that is repeated only when a signal came in between.
pub(super) fn read_once(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match input.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

/// Decompressed bytes of one file.
pub(super) enum Input {
    /// A plain file, which can be entered anywhere.
    Plain(File),
    /// Anything else.
    Stream(Box<dyn Read + Send>),
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "Plain",
            Self::Stream(_) => "Stream",
        })
    }
}

impl Input {
    /// Opens a file at its beginning.
    pub(super) fn open(path: &Path, compression: Compression) -> io::Result<Self> {
        let file = File::open(path)?;
        match compression {
            Compression::None => Ok(Self::Plain(file)),
            _ => Self::decode(file, compression),
        }
    }

    /// Decodes a stream.
    pub(super) fn decode(raw: impl Read + Send + 'static, compression: Compression) -> io::Result<Self> {
        let raw = BufReader::with_capacity(RAW_BUFFER_BYTES, raw);
        Ok(Self::Stream(match compression {
            Compression::None => Box::new(raw),
            Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(raw)),
            Compression::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(raw)?),
        }))
    }

    /// Moves to `bytes` from the beginning, of which `taken` were read already. False when the input is shorter.
    pub(super) fn move_to(&mut self, bytes: u64, taken: u64) -> io::Result<bool> {
        match self {
            Self::Plain(file) => {
                if file.metadata()?.len() < bytes {
                    return Ok(false);
                }
                file.seek(SeekFrom::Start(bytes))?;
                Ok(true)
            }
            Self::Stream(stream) => {
                let missing = bytes.saturating_sub(taken);
                Ok(io::copy(&mut stream.take(missing), &mut io::sink())? == missing)
            }
        }
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.read(buffer),
            Self::Stream(stream) => stream.read(buffer),
        }
    }
}

/// A reader that hands out text up to an exact length and takes back what was not used.
#[derive(Debug)]
pub(super) struct TextReader {
    input: Input,
    /// Text given back, which comes before the input's.
    returned: Vec<u8>,
    ended: bool,
    /// What stopped the input for good.
    pub(super) failure: Option<io::Error>,
    /// Take what is there instead of waiting for a full block.
    pub(super) eager: bool,
}

impl TextReader {
    pub(super) fn new(input: Input, eager: bool) -> Self {
        Self { input, returned: Vec::new(), ended: false, failure: None, eager }
    }

    /// Appends to `text` until it has `target` bytes, or the input has no more. Errors are kept in `failure`, behind
    /// the text that came before them.
    pub(super) fn fill(&mut self, text: &mut Vec<u8>, target: usize) {
        let given = self.returned.len().min(target.saturating_sub(text.len()));
        text.extend(self.returned.drain(..given));
        let wanted = target.saturating_sub(text.len());
        if wanted == 0
            || self.ended
            || self.failure.is_some()
            || (self.eager && given > 0 && text.contains(&b'\n'))
        {
            return;
        }
        let length = text.len();
        let outcome = if self.eager {
            text.resize(length + wanted, 0);
            let outcome = read_once(&mut self.input, &mut text[length..]);
            text.truncate(length + outcome.as_ref().map_or(0, |read| *read));
            outcome.map(|read| self.ended = read == 0)
        } else {
            let outcome = (&mut self.input).take(wanted as u64).read_to_end(text);
            outcome.map(|read| self.ended = read < wanted)
        };
        self.failure = outcome.err();
    }

    /// Puts `text` back in front.
    pub(super) fn give_back(&mut self, text: &[u8]) {
        self.returned.splice(0..0, text.iter().copied());
    }

    /// True when all text was handed out.
    pub(super) fn is_complete(&self) -> bool {
        self.ended && self.returned.is_empty()
    }

    /// Moves to `bytes` from the beginning; all text read so far was given back. False when the input is shorter.
    pub(super) fn move_to(&mut self, bytes: u64) -> io::Result<bool> {
        let taken = self.returned.len() as u64;
        if bytes < taken && matches!(self.input, Input::Stream(_)) {
            self.returned.drain(..usize::try_from(bytes).unwrap_or(usize::MAX).min(self.returned.len()));
            return Ok(true);
        }
        self.returned.clear();
        if self.ended && matches!(self.input, Input::Stream(_)) {
            return Ok(bytes == taken);
        }
        self.ended = false;
        self.input.move_to(bytes, taken)
    }
}
