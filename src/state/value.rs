//! Values of the state database: a tag byte, then a pane's payload, or the inputs of a merge that did not work.
//!
//! Knows nothing of what a payload means. Bytes are taken as hostile: nothing here panics or allocates by a length
//! that was read.

/// Tag of a payload, the same for whole panes and for operands.
const PANE: u8 = 0x01;
/// Tag of a damaged pane: `u32` inputs left out, then each input as `u32` length and bytes, little-endian.
const DAMAGED: u8 = 0x02;

/// A damaged pane keeps its inputs up to this many bytes in all; of the rest only the number is kept.
pub(super) const DAMAGED_BYTES_MAX: usize = 64 << 10;

/// What is stored for a pane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored<'a> {
    /// The payload, as it was written or merged.
    Pane(&'a [u8]),
    /// Bytes that are no payload; [`damaged_inputs`] takes them apart.
    Damaged(&'a [u8]),
}

impl<'a> Stored<'a> {
    /// Reads a value. Every sequence of bytes is one.
    pub(super) fn parse(bytes: &'a [u8]) -> Self {
        match bytes.split_first() {
            Some((&PANE, payload)) => Self::Pane(payload),
            _ => Self::Damaged(bytes),
        }
    }
}

/// What is stored for a pane, with its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedStored {
    bytes: Vec<u8>,
}

impl OwnedStored {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    /// The stored pane.
    #[must_use]
    pub fn get(&self) -> Stored<'_> {
        Stored::parse(&self.bytes)
    }
}

/// Replaces the content of `buffer` by the value of a payload.
pub(super) fn write_payload<'b>(buffer: &'b mut Vec<u8>, payload: &[u8]) -> &'b [u8] {
    buffer.clear();
    buffer.push(PANE);
    buffer.extend_from_slice(payload);
    buffer
}

/// The value of a payload that is already a vector.
pub(super) fn payload_value(mut payload: Vec<u8>) -> Vec<u8> {
    payload.insert(0, PANE);
    payload
}

/// The inputs of a merge that did not work, oldest first, and the number of those for which there was no room.
///
/// Each input is a stored value, tag byte included. Bytes that are not such a record are one input by themselves.
#[must_use]
pub fn damaged_inputs(damaged: &[u8]) -> (Vec<&[u8]>, u32) {
    read_damaged(damaged).unwrap_or_else(|| (vec![damaged], 0))
}

fn read_damaged(bytes: &[u8]) -> Option<(Vec<&[u8]>, u32)> {
    let (&tag, rest) = bytes.split_first()?;
    let (left_out, mut rest) = rest.split_first_chunk::<4>()?;
    if tag != DAMAGED {
        return None;
    }
    let mut inputs = Vec::new();
    while !rest.is_empty() {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let (input, after) = after.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
        inputs.push(input);
        rest = after;
    }
    Some((inputs, u32::from_le_bytes(*left_out)))
}

/// A damaged pane in the making.
#[derive(Debug)]
pub(super) struct DamagedPane {
    left_out: u32,
    inputs: Vec<u8>,
}

impl DamagedPane {
    pub(super) const fn new() -> Self {
        Self { left_out: 0, inputs: Vec::new() }
    }

    /// Adds a stored value; of a damaged one, its inputs.
    pub(super) fn push(&mut self, value: &[u8]) {
        match read_damaged(value) {
            Some((inputs, left_out)) => {
                inputs.into_iter().for_each(|input| self.push_input(input));
                self.left_out = self.left_out.saturating_add(left_out);
            }
            None => self.push_input(value),
        }
    }

    fn push_input(&mut self, input: &[u8]) {
        let bytes = self.inputs.len().saturating_add(4).saturating_add(input.len());
        match u32::try_from(input.len()) {
            Ok(length) if bytes <= DAMAGED_BYTES_MAX => {
                self.inputs.extend_from_slice(&length.to_le_bytes());
                self.inputs.extend_from_slice(input);
            }
            _ => self.left_out = self.left_out.saturating_add(1),
        }
    }

    /// The value to store.
    pub(super) fn finish(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(5 + self.inputs.len());
        bytes.push(DAMAGED);
        bytes.extend_from_slice(&self.left_out.to_le_bytes());
        bytes.extend_from_slice(&self.inputs);
        bytes
    }
}
