//! Results as CSV (RFC 4180, comma, line feed). A null is empty and an empty string is `""`, so both read back; lists
//! and records are the text of their JSON.

use super::json::append_value;
use super::text::{append_float, append_i64, append_int, append_time, append_u64};
use super::{Component, Shape};
use crate::aggregate::{Value, decimal_text};
use crate::event_time::{Watermark, Window};
use crate::operator::{ResultRow, RowKind};
use crate::pipeline::sink::error::SinkError;

/// Writes one line of comma-separated values per result.
#[derive(Debug)]
pub(in super::super) struct CsvRows {
    shape: Shape,
    // The window's two fields, and the watermark with its comma, of the block at hand.
    window: Vec<u8>,
    watermark: Vec<u8>,
    scratch: Vec<u8>,
    takes_back: Option<RowKind>,
}

impl CsvRows {
    pub(in super::super) fn new(shape: Shape) -> Self {
        let (window, watermark, scratch) = Default::default();
        Self { shape, window, watermark, scratch, takes_back: None }
    }

    /// The line that names the columns.
    pub(in super::super) fn header(&self) -> Vec<u8> {
        let keys = self.shape.keys.iter().map(|key| key.name.as_str());
        let aggregates = self.shape.aggregates.iter().map(String::as_str);
        let metadata = ["pane", "pane_index", "watermark"].into_iter().filter(|_| self.shape.metadata);
        let kind = ["row_kind"].into_iter().filter(|_| self.shape.row_kinds);
        let names = keys.chain(["window_start", "window_end"]).chain(aggregates).chain(metadata).chain(kind);
        let mut header = Vec::new();
        for (index, name) in names.enumerate() {
            if index > 0 {
                header.push(b',');
            }
            append_field(&mut header, name.as_bytes());
        }
        header.push(b'\n');
        header
    }

    pub(super) fn begin(&mut self, window: Window, watermark: Watermark, takes_back: Option<RowKind>) {
        self.takes_back = takes_back;
        let times = self.shape.times;
        self.window.clear();
        // All of time has no bounds.
        if window != Window::ALL {
            append_time(&mut self.window, window.start, times);
        }
        self.window.push(b',');
        if window != Window::ALL {
            append_time(&mut self.window, window.end, times);
        }
        self.watermark.clear();
        if let Some(time) = watermark.instant() {
            append_time(&mut self.watermark, time, times);
        }
    }

    #[inline]
    pub(super) fn append(&mut self, row: &ResultRow<'_>, out: &mut Vec<u8>) -> Result<(), SinkError> {
        self.shape.check(row)?;
        self.shape.components(row.key, &mut self.scratch, |_, component| {
            match component {
                Component::Text(bytes) => append_field(out, bytes),
                Component::Int(value) => append_i64(out, value),
            }
            out.push(b',');
        })?;
        out.extend_from_slice(&self.window);
        for value in row.values {
            out.push(b',');
            append_cell(out, value, &mut self.scratch);
        }
        if self.shape.metadata {
            out.push(b',');
            out.extend_from_slice(row.kind.name().as_bytes());
            out.push(b',');
            append_u64(out, u64::from(row.pane_index));
            out.push(b',');
            out.extend_from_slice(&self.watermark);
        }
        if self.shape.row_kinds {
            out.push(b',');
            out.extend_from_slice(super::row_kind(self.takes_back, row).name().as_bytes());
        }
        out.push(b'\n');
        Ok(())
    }
}

/// Appends a value; `scratch` is for lists and records.
#[inline]
pub(super) fn append_cell(out: &mut Vec<u8>, value: &Value, scratch: &mut Vec<u8>) {
    match value {
        Value::Null => {}
        Value::Int(value) => append_int(out, *value),
        Value::Float(value) => {
            append_float(out, *value);
        }
        Value::Text(value) => append_field(out, value.as_bytes()),
        Value::Decimal { unscaled, scale } => {
            out.extend_from_slice(decimal_text(*unscaled, *scale).as_bytes());
        }
        Value::List(_) | Value::Record(_) => {
            scratch.clear();
            append_value(scratch, value);
            append_field(out, scratch);
        }
    }
}

/// Appends text as it is, bytes that are not UTF-8 included, in quotes where a reader would misunderstand it.
#[inline]
pub(super) fn append_field(out: &mut Vec<u8>, bytes: &[u8]) {
    let plain = !bytes.is_empty() && !bytes.iter().any(|byte| matches!(byte, b',' | b'"' | b'\n' | b'\r'));
    if plain {
        return out.extend_from_slice(bytes);
    }
    out.push(b'"');
    for &byte in bytes {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    }
    out.push(b'"');
}
