//! Results as JSON lines. Names are escaped once per sink, window and watermark once per block.

use super::text::{
    append_float, append_int, append_json_bytes, append_json_text, append_json_time, append_json_watermark,
    append_u64,
};
use super::{Component, Shape, TimeFormat, text};
use crate::aggregate::{Value, decimal_text};
use crate::event_time::{EventTime, Watermark, Window};
use crate::operator::{ResultRow, RowKind};
use crate::pipeline::sink::error::SinkError;

/// Writes `{"key":…,"window_start":…,"window_end":…,"aggregate":…}` per result.
#[derive(Debug)]
pub(in super::super) struct JsonRows {
    shape: Shape,
    // `{"name":` for the first field of a row and `,"name":` for the others.
    key_labels: Vec<Vec<u8>>,
    aggregate_labels: Vec<Vec<u8>>,
    // The window's two fields, and the watermark with the end of the line, of the block at hand.
    window: Vec<u8>,
    tail: Vec<u8>,
    scratch: Vec<u8>,
    takes_back: Option<RowKind>,
}

impl JsonRows {
    pub(in super::super) fn new(shape: Shape) -> Self {
        let key_labels =
            shape.keys.iter().enumerate().map(|(index, key)| label(index == 0, &key.name)).collect();
        let aggregate_labels = shape.aggregates.iter().map(|name| label(false, name)).collect();
        let (window, tail, scratch) = Default::default();
        Self { shape, key_labels, aggregate_labels, window, tail, scratch, takes_back: None }
    }

    pub(super) fn begin(&mut self, window: Window, watermark: Watermark, takes_back: Option<RowKind>) {
        self.takes_back = takes_back;
        let times = self.shape.times;
        self.window.clear();
        self.window.extend(label(self.shape.keys.is_empty(), "window_start"));
        append_bound(&mut self.window, window, window.start, times);
        self.window.extend(label(false, "window_end"));
        append_bound(&mut self.window, window, window.end, times);
        self.tail.clear();
        if self.shape.metadata {
            self.tail.extend(label(false, "watermark"));
            append_json_watermark(&mut self.tail, watermark, times);
        }
        self.tail.extend_from_slice(b"}\n");
    }

    #[inline]
    pub(super) fn append(&mut self, row: &ResultRow<'_>, out: &mut Vec<u8>) -> Result<(), SinkError> {
        self.shape.check(row)?;
        self.shape.components(row.key, &mut self.scratch, |index, component| {
            out.extend_from_slice(&self.key_labels[index]);
            match component {
                Component::Text(bytes) => append_json_bytes(out, bytes),
                Component::Int(value) => text::append_i64(out, value),
            }
        })?;
        out.extend_from_slice(&self.window);
        for (label, value) in self.aggregate_labels.iter().zip(row.values) {
            out.extend_from_slice(label);
            append_value(out, value);
        }
        if self.shape.metadata {
            out.extend_from_slice(b",\"pane\":\"");
            out.extend_from_slice(row.kind.name().as_bytes());
            out.extend_from_slice(b"\",\"pane_index\":");
            append_u64(out, u64::from(row.pane_index));
        }
        if self.shape.row_kinds {
            out.extend_from_slice(b",\"row_kind\":\"");
            out.extend_from_slice(super::row_kind(self.takes_back, row).name().as_bytes());
            out.push(b'"');
        }
        out.extend_from_slice(&self.tail);
        Ok(())
    }
}

/// A bound of a window; null for those of all time.
fn append_bound(out: &mut Vec<u8>, window: Window, bound: EventTime, times: TimeFormat) {
    if window == Window::ALL {
        return out.extend_from_slice(b"null");
    }
    append_json_time(out, bound, times);
}

pub(super) fn label(first: bool, name: &str) -> Vec<u8> {
    let mut label = vec![if first { b'{' } else { b',' }];
    append_json_text(&mut label, name);
    label.push(b':');
    label
}

/// Appends a value as JSON.
#[inline]
pub(in crate::pipeline) fn append_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Int(value) => append_int(out, *value),
        Value::Float(value) if value.is_finite() => {
            append_float(out, *value);
        }
        // JSON has no such numbers; a string keeps them apart from null.
        Value::Float(value) => {
            out.push(b'"');
            append_float(out, *value);
            out.push(b'"');
        }
        Value::Text(value) => append_json_text(out, value),
        Value::Decimal { unscaled, scale } => {
            out.extend_from_slice(decimal_text(*unscaled, *scale).as_bytes())
        }
        Value::List(values) => append_list(out, values),
        Value::Record(fields) => append_record(out, fields),
    }
}

fn append_list(out: &mut Vec<u8>, values: &[Value]) {
    out.push(b'[');
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        append_value(out, value);
    }
    out.push(b']');
}

fn append_record(out: &mut Vec<u8>, fields: &[(&'static str, Value)]) {
    out.push(b'{');
    for (index, (name, value)) in fields.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        append_json_text(out, name);
        out.push(b':');
        append_value(out, value);
    }
    out.push(b'}');
}
