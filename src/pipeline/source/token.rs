//! The value of one field of one record, as a place in the text: what both formats hand to the columns.
//!
//! Nothing is copied or converted before it is known that the field is needed.

/// A value of a record; `start..end` is its text within the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) start: u32,
    pub(super) end: u32,
}

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The record has no such field.
    Absent,
    /// JSON null.
    Null,
    /// JSON true or false.
    Bool,
    /// A JSON number, by its literal text.
    Number,
    /// A JSON string without escapes, between its quotes.
    Text,
    /// A JSON string with escapes.
    EscapedText,
    /// A JSON object or array.
    Compound,
    /// A CSV field: text or number as the column asks.
    Cell,
    /// A CSV field with doubled quotes inside.
    QuotedCell,
}

impl Token {
    /// The token of a field that is not there.
    pub(super) const ABSENT: Self = Self { kind: Kind::Absent, start: 0, end: 0 };

    /// A token of `kind` at `start..end`. Blocks stay far below 4 GiB.
    pub(super) fn new(kind: Kind, start: usize, end: usize) -> Self {
        let place = |offset| u32::try_from(offset).unwrap_or(u32::MAX);
        Self { kind, start: place(start), end: place(end) }
    }

    /// Its text as it stands.
    pub(super) fn raw(self, text: &[u8]) -> &[u8] {
        text.get(self.start as usize..self.end as usize).unwrap_or(&[])
    }

    /// Its text with escapes undone, in `scratch` where that is needed. `None` for an escape that stands for no
    /// character (half a surrogate pair).
    pub(super) fn unescaped<'a>(self, text: &'a [u8], scratch: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        let raw = self.raw(text);
        match self.kind {
            Kind::EscapedText => {
                scratch.clear();
                unescape_json(raw, scratch)?;
                Some(scratch)
            }
            Kind::QuotedCell => {
                scratch.clear();
                let mut rest = raw;
                while let Some(quote) = memchr::memchr(b'"', rest) {
                    scratch.extend_from_slice(&rest[..=quote]);
                    rest = rest.get(quote + 2..).unwrap_or(&[]);
                }
                scratch.extend_from_slice(rest);
                Some(scratch)
            }
            _ => Some(raw),
        }
    }
}

/// Undoes the escapes of a JSON string whose grammar was checked.
pub(super) fn unescape_json(mut raw: &[u8], out: &mut Vec<u8>) -> Option<()> {
    while let Some(backslash) = memchr::memchr(b'\\', raw) {
        out.extend_from_slice(&raw[..backslash]);
        let escape = *raw.get(backslash + 1)?;
        raw = raw.get(backslash + 2..)?;
        let byte = match escape {
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let (character, rest) = unescape_unicode(raw)?;
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                raw = rest;
                continue;
            }
            itself => itself,
        };
        out.push(byte);
    }
    out.extend_from_slice(raw);
    Some(())
}

/// The character of a `\u` escape (its digits and what follows), with the second half of a pair.
fn unescape_unicode(raw: &[u8]) -> Option<(char, &[u8])> {
    let (first, rest) = hex4(raw)?;
    if !(0xd800..0xdc00).contains(&first) {
        return Some((char::from_u32(first)?, rest));
    }
    let (second, rest) = hex4(rest.strip_prefix(b"\\u")?)?;
    let low = second.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
    Some((char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + low)?, rest))
}

fn hex4(raw: &[u8]) -> Option<(u32, &[u8])> {
    let (digits, rest) = raw.split_at_checked(4)?;
    let mut value = 0;
    for &digit in digits {
        value = value << 4 | char::from(digit).to_digit(16)?;
    }
    Some((value, rest))
}
