//! How a result looks as a line of text. It knows fields and values, not files.

mod copy;
mod csv;
mod joined;
mod json;
mod text;

use super::error::SinkError;
use crate::codec;
use crate::event_time::{Watermark, Window};
use crate::operator::{ResultRow, RowKind};

pub(super) use copy::CopyRows;
pub(super) use csv::CsvRows;
pub(super) use joined::JoinedRows;
pub(super) use json::JsonRows;
pub(in crate::pipeline) use json::append_value;
pub use text::TimeFormat;
pub(in crate::pipeline) use text::append_json_bytes;
pub(super) use text::{append_json_text, append_json_time, append_json_watermark, append_u64};

/// How a component of a key is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyKind {
    /// As text.
    #[default]
    Text,
    /// As a number; its bytes are its decimal digits, which the source has checked.
    Int,
}

/// A component of the key, as it appears in results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyField {
    /// Name of the field.
    pub name: String,
    /// How it is written.
    pub kind: KeyKind,
}

/// Which fields a result has, in order: key, window, aggregates, metadata.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) sink: String,
    pub(super) keys: Vec<KeyField>,
    pub(super) aggregates: Vec<String>,
    pub(super) times: TimeFormat,
    pub(super) metadata: bool,
    pub(super) row_kinds: bool,
}

/// What a row of a block does to earlier ones.
pub(super) fn row_kind(takes_back: Option<RowKind>, row: &ResultRow<'_>) -> RowKind {
    takes_back.unwrap_or(if row.pane_index == 0 { RowKind::Insert } else { RowKind::UpdateAfter })
}

impl Shape {
    /// Hands the key's components to `each`, one after the other, without allocating.
    #[inline]
    pub(super) fn components(
        &self,
        key: &[u8],
        scratch: &mut Vec<u8>,
        mut each: impl FnMut(usize, Component<'_>),
    ) -> Result<(), SinkError> {
        let Some(last) = self.keys.len().checked_sub(1) else { return Ok(()) };
        let mut rest = key;
        for (index, field) in self.keys.iter().enumerate() {
            let bytes = if index == last {
                rest
            } else {
                scratch.clear();
                rest = codec::split_component(rest, scratch).ok_or_else(|| self.bad_key(key))?;
                scratch.as_slice()
            };
            each(index, field.read(bytes).ok_or_else(|| self.bad_key(key))?);
        }
        Ok(())
    }

    /// Checks a key that is to be taken apart in one go.
    pub(super) fn check_key(&self, key: &[u8], scratch: &mut Vec<u8>) -> Result<(), SinkError> {
        self.components(key, scratch, |_, _| {})
    }

    pub(super) fn check(&self, row: &ResultRow<'_>) -> Result<(), SinkError> {
        if row.values.len() == self.aggregates.len() {
            return Ok(());
        }
        let what = format!("result has {} values for {} aggregates", row.values.len(), self.aggregates.len());
        Err(SinkError::Protocol { sink: self.sink.clone(), what })
    }

    #[cold]
    fn bad_key(&self, key: &[u8]) -> SinkError {
        SinkError::Key { sink: self.sink.clone(), key: key.escape_ascii().to_string() }
    }
}

/// One component of a key, read back from its bytes.
pub(super) enum Component<'a> {
    Text(&'a [u8]),
    Int(i64),
}

impl KeyField {
    #[inline]
    fn read<'a>(&self, bytes: &'a [u8]) -> Option<Component<'a>> {
        match self.kind {
            KeyKind::Text => Some(Component::Text(bytes)),
            KeyKind::Int => std::str::from_utf8(bytes).ok()?.parse().ok().map(Component::Int),
        }
    }
}

/// Turns results into lines of one format.
#[derive(Debug)]
pub(super) enum Rows {
    Json(JsonRows),
    Csv(CsvRows),
}

impl Rows {
    /// Prepares what all rows of a block share.
    pub(super) fn begin(&mut self, window: Window, watermark: Watermark, takes_back: Option<RowKind>) {
        match self {
            Self::Json(rows) => rows.begin(window, watermark, takes_back),
            Self::Csv(rows) => rows.begin(window, watermark, takes_back),
        }
    }

    /// Appends one line.
    #[inline]
    pub(super) fn append(&mut self, row: &ResultRow<'_>, out: &mut Vec<u8>) -> Result<(), SinkError> {
        match self {
            Self::Json(rows) => rows.append(row, out),
            Self::Csv(rows) => rows.append(row, out),
        }
    }
}

#[cfg(test)]
mod tests;
