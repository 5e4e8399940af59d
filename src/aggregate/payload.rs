//! The stored form of an accumulator row (`docs/FORMAT.md`): a format byte, then its words in little-endian order;
//! in format 2 a word of a state is its length, and the states follow. Bytes are taken as hostile.

use super::Layout;
use super::define::StateError;
use super::sketches::{Held, Sketches};

/// Rows of words alone.
const WORDS: u8 = 1;
/// Rows with states of variable size.
const STATES: u8 = 2;

/// Why stored bytes are not an accumulator row of the expected shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// Written in a format that this build does not know, or that the layout does not have.
    #[error("pane has payload format {found}, expected format {expected}")]
    Format {
        /// Format found.
        found: u8,
        /// Format that the layout has.
        expected: u8,
    },
    /// Another number of words, or states of another length than their words say.
    #[error("pane has the wrong length: bytes={bytes} expected={expected}")]
    Length {
        /// Bytes found.
        bytes: usize,
        /// Bytes that the layout and the words before ask for, at least.
        expected: usize,
    },
    /// A state that its aggregate does not understand.
    #[error("pane has a state that cannot be read: aggregate={aggregate} {error}")]
    State {
        /// Name of the state.
        aggregate: String,
        /// What is wrong with it.
        error: StateError,
    },
}

pub(super) fn write(layout: &Layout, words: &[u64], sketches: &Sketches, bytes: &mut Vec<u8>) {
    let places = layout.sketches();
    bytes.push(if places.is_empty() { WORDS } else { STATES });
    let start = bytes.len();
    for word in words {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    for sketch in places {
        let word = sketch.place.word;
        let length = match sketches.get(words[word]) {
            None => 0,
            Some(held) => {
                let before = bytes.len();
                sketch.code.encode(&*held.state, bytes);
                (bytes.len() - before) as u64 + 1
            }
        };
        let at = start + word * 8;
        bytes[at..at + 8].copy_from_slice(&length.to_le_bytes());
    }
}

/// A stored row taken apart, its states as the bytes they are.
pub(super) struct Parts<'a> {
    words: &'a [[u8; 8]],
    states: Vec<Option<&'a [u8]>>,
}

impl<'a> Parts<'a> {
    /// Takes a row of `layout` apart.
    pub(super) fn read(layout: &Layout, bytes: &'a [u8]) -> Result<Self, PayloadError> {
        let places = layout.sketches();
        let short = |expected: usize| PayloadError::Length { bytes: bytes.len(), expected };
        let length = layout.stride() * 8;
        let Some((&found, body)) = bytes.split_first() else { return Err(short(1 + length)) };
        let expected = if places.is_empty() { WORDS } else { STATES };
        if found != expected {
            return Err(PayloadError::Format { found, expected });
        }
        let Some((body, mut rest)) = body.split_at_checked(length) else { return Err(short(1 + length)) };
        let (words, _) = body.as_chunks::<8>();
        let mut states = Vec::with_capacity(places.len());
        for sketch in places {
            let length = u64::from_le_bytes(words[sketch.place.word]).checked_sub(1);
            let Some(length) = length.map(|length| usize::try_from(length).unwrap_or(usize::MAX)) else {
                states.push(None);
                continue;
            };
            let wanted = (bytes.len() - rest.len()).saturating_add(length);
            let (state, after) = rest.split_at_checked(length).ok_or_else(|| short(wanted))?;
            states.push(Some(state));
            rest = after;
        }
        if rest.is_empty() { Ok(Self { words, states }) } else { Err(short(bytes.len() - rest.len())) }
    }

    /// A word; 0 beyond the row.
    pub(super) fn word(&self, index: usize) -> u64 {
        self.words.get(index).map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// A state, when the row has it.
    pub(super) fn state(&self, index: usize) -> Option<&'a [u8]> {
        self.states.get(index).copied().flatten()
    }
}

/// Appends a row of words and of states in their stored form.
pub(super) fn write_parts(layout: &Layout, words: &[u64], states: &[Option<Vec<u8>>], bytes: &mut Vec<u8>) {
    let places = layout.sketches();
    bytes.push(if places.is_empty() { WORDS } else { STATES });
    let start = bytes.len();
    for word in words {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    for (sketch, state) in places.iter().zip(states) {
        let length = state.as_ref().map_or(0, |state| state.len() as u64 + 1);
        let at = start + sketch.place.word * 8;
        bytes[at..at + 8].copy_from_slice(&length.to_le_bytes());
    }
    for state in states.iter().flatten() {
        bytes.extend_from_slice(state);
    }
}

pub(super) fn read(
    layout: &Layout,
    bytes: &[u8],
    words: &mut [u64],
    sketches: &mut Sketches,
) -> Result<(), PayloadError> {
    let places = layout.sketches();
    let short = |expected: usize| PayloadError::Length { bytes: bytes.len(), expected };
    let fixed = 1 + words.len() * 8;
    let Some((&found, body)) = bytes.split_first() else { return Err(short(fixed)) };
    let expected = if places.is_empty() { WORDS } else { STATES };
    if found != expected {
        return Err(PayloadError::Format { found, expected });
    }
    let Some((body, mut rest)) = body.split_at_checked(words.len() * 8) else { return Err(short(fixed)) };
    if places.is_empty() && !rest.is_empty() {
        return Err(short(fixed));
    }
    let (chunks, _) = body.as_chunks::<8>();
    // All states first: a row is replaced as a whole or not at all.
    let mut states: Vec<Option<Held>> = Vec::new();
    for sketch in places {
        let Some(length) = u64::from_le_bytes(chunks[sketch.place.word]).checked_sub(1) else {
            states.push(None);
            continue;
        };
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let wanted = (bytes.len() - rest.len()).saturating_add(length);
        let (state, after) = rest.split_at_checked(length).ok_or_else(|| short(wanted))?;
        let held = sketch.code.decode(state);
        states.push(Some(
            held.map_err(|error| PayloadError::State { aggregate: sketch.code.state_name(), error })?,
        ));
        rest = after;
    }
    if !rest.is_empty() {
        return Err(short(bytes.len() - rest.len()));
    }
    for word in layout.sketch_words() {
        sketches.release(words[word]);
    }
    for (word, chunk) in words.iter_mut().zip(chunks) {
        *word = u64::from_le_bytes(*chunk);
    }
    for slot in layout.slots() {
        slot.normalise(words);
    }
    for (sketch, held) in places.iter().zip(states) {
        words[sketch.place.word] = held.map_or(0, |held| sketches.insert(held));
    }
    Ok(())
}
