//! Generated events as lines of text, broken ones included.

use super::{Defect, Event};

/// Text format of a generated stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextFormat {
    /// `{"ts":1700000000000,"key":"k000123","value":42}`
    Jsonl,
    /// `1700000000000,k000123,42` under the header `ts,key,value`.
    Csv,
}

impl TextFormat {
    /// What stands at the beginning of each file.
    #[must_use]
    pub const fn header(self) -> &'static str {
        match self {
            Self::Jsonl => "",
            Self::Csv => "ts,key,value\n",
        }
    }

    /// Usual extension of such a file.
    #[must_use]
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Jsonl => "jsonl",
            Self::Csv => "csv",
        }
    }
}

/// Appends the line of an event. `key_digits` comes from [`super::Generator::key_digits`].
#[inline]
pub fn append_event(out: &mut Vec<u8>, event: &Event, format: TextFormat, key_digits: usize) {
    if let Some(defect) = event.defect {
        return append_defect(out, event, defect, format, key_digits);
    }
    match format {
        TextFormat::Jsonl => {
            out.extend_from_slice(b"{\"ts\":");
            append_number(out, event.time.as_millis());
            out.extend_from_slice(b",\"key\":\"");
            append_key(out, event.key, key_digits);
            out.extend_from_slice(b"\",\"value\":");
            match event.value {
                Some(value) => append_number(out, value),
                None => out.extend_from_slice(b"null"),
            }
            out.extend_from_slice(b"}\n");
        }
        TextFormat::Csv => {
            append_number(out, event.time.as_millis());
            out.push(b',');
            append_key(out, event.key, key_digits);
            out.push(b',');
            if let Some(value) = event.value {
                append_number(out, value);
            }
            out.push(b'\n');
        }
    }
}

#[cold]
fn append_defect(out: &mut Vec<u8>, event: &Event, defect: Defect, format: TextFormat, key_digits: usize) {
    let time = event.time.as_millis();
    let mut key = Vec::new();
    append_key(&mut key, event.key, key_digits);
    let key = String::from_utf8_lossy(&key);
    let line = match (format, defect) {
        (TextFormat::Jsonl, Defect::Cut) => format!("{{\"ts\":{time},\"key\":\"{key}\",\"va\n"),
        (TextFormat::Jsonl, Defect::NullTime) => format!("{{\"ts\":null,\"key\":\"{key}\",\"value\":1}}\n"),
        (TextFormat::Jsonl, Defect::BadTime) => {
            format!("{{\"ts\":\"soon\",\"key\":\"{key}\",\"value\":1}}\n")
        }
        (TextFormat::Jsonl, Defect::TextValue) => {
            format!("{{\"ts\":{time},\"key\":\"{key}\",\"value\":\"1\"}}\n")
        }
        (TextFormat::Jsonl, Defect::NoKey) => format!("{{\"ts\":{time},\"value\":1}}\n"),
        (TextFormat::Csv, Defect::Cut) => format!("{time},{key}\n"),
        (TextFormat::Csv, Defect::NullTime) => format!(",{key},1\n"),
        (TextFormat::Csv, Defect::BadTime) => format!("soon,{key},1\n"),
        (TextFormat::Csv, Defect::TextValue) => format!("{time},{key},one\n"),
        (TextFormat::Csv, Defect::NoKey) => format!("{time},1\n"),
    };
    out.extend_from_slice(line.as_bytes());
}

#[inline]
fn append_number(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

#[inline]
fn append_key(out: &mut Vec<u8>, key: u64, digits: usize) {
    const ZEROS: &[u8; 20] = b"00000000000000000000";
    let mut buffer = itoa::Buffer::new();
    let number = buffer.format(key).as_bytes();
    out.push(b'k');
    out.extend_from_slice(&ZEROS[..digits.saturating_sub(number.len()).min(ZEROS.len())]);
    out.extend_from_slice(number);
}
