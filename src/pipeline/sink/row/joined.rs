//! Rows of joins as JSON lines or CSV: key, both times, the fields of the left side, those of the right.

use super::csv::{append_cell, append_field};
use super::json::{append_value, label};
use super::text::{append_i64, append_json_bytes, append_json_time, append_time};
use super::{Component, Shape};
use crate::aggregate::Value;
use crate::operator::{JoinedEvent, JoinedRow};
use crate::pipeline::sink::error::SinkError;

/// The two columns of every row.
const TIMES: [&str; 2] = ["left_time", "right_time"];

/// Writes one line per row of a join.
#[derive(Debug)]
pub(in super::super) struct JoinedRows {
    // Its aggregates are the fields of both sides.
    shape: Shape,
    left_fields: usize,
    csv: bool,
    // What stands before each column in JSON.
    labels: Vec<Vec<u8>>,
    scratch: Vec<u8>,
}

impl JoinedRows {
    pub(in super::super) fn new(shape: Shape, left_fields: usize, csv: bool) -> Self {
        let mut rows = Self { shape, left_fields, csv, labels: Vec::new(), scratch: Vec::new() };
        rows.labels = rows.columns().enumerate().map(|(index, name)| label(index == 0, name)).collect();
        rows
    }

    fn columns(&self) -> impl Iterator<Item = &str> + '_ {
        let keys = self.shape.keys.iter().map(|key| key.name.as_str());
        keys.chain(TIMES).chain(self.shape.aggregates.iter().map(String::as_str))
    }

    /// The line that names the columns of CSV.
    pub(in super::super) fn header(&self) -> Option<Vec<u8>> {
        let mut header = Vec::new();
        for (index, name) in self.columns().enumerate() {
            if index > 0 {
                header.push(b',');
            }
            append_field(&mut header, name.as_bytes());
        }
        header.push(b'\n');
        self.csv.then_some(header)
    }

    /// Appends one line.
    pub(in super::super) fn append(
        &mut self,
        row: &JoinedRow<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), SinkError> {
        self.append_key(row.key, out)?;
        let keys = self.shape.keys.len();
        for (index, event) in [row.left, row.right].into_iter().enumerate() {
            self.separate(keys + index, out);
            match event {
                Some(event) if self.csv => append_time(out, event.time, self.shape.times),
                Some(event) => append_json_time(out, event.time, self.shape.times),
                None if self.csv => {}
                None => out.extend_from_slice(b"null"),
            }
        }
        let (left, right) = (self.left_fields, self.shape.aggregates.len() - self.left_fields);
        self.append_side(keys + TIMES.len(), left, row.left, out)?;
        self.append_side(keys + TIMES.len() + left, right, row.right, out)?;
        out.extend_from_slice(if self.csv { b"\n" } else { b"}\n" });
        Ok(())
    }

    fn append_key(&mut self, key: &[u8], out: &mut Vec<u8>) -> Result<(), SinkError> {
        let Self { shape, labels, csv, scratch, .. } = self;
        shape.components(key, scratch, |index, component| {
            match (&*csv, index) {
                (true, 0) => {}
                (true, _) => out.push(b','),
                (false, _) => out.extend_from_slice(&labels[index]),
            }
            match component {
                Component::Int(value) => append_i64(out, value),
                Component::Text(bytes) if *csv => append_field(out, bytes),
                Component::Text(bytes) => append_json_bytes(out, bytes),
            }
        })
    }

    /// Appends what stands before a column.
    fn separate(&self, column: usize, out: &mut Vec<u8>) {
        if !self.csv {
            out.extend_from_slice(&self.labels[column]);
        } else if column > 0 {
            out.push(b',');
        }
    }

    /// Appends the fields of a side from column `first` on; nulls for a side without event.
    fn append_side(
        &mut self,
        first: usize,
        fields: usize,
        event: Option<JoinedEvent<'_>>,
        out: &mut Vec<u8>,
    ) -> Result<(), SinkError> {
        let values = event.map(|event| event.values);
        if let Some(values) = values
            && values.len() != fields
        {
            let what = format!("joined event has {} values for {fields} fields", values.len());
            return Err(SinkError::Protocol { sink: self.shape.sink.clone(), what });
        }
        for field in 0..fields {
            self.separate(first + field, out);
            let value = values.map_or(&Value::Null, |values| &values[field]);
            match self.csv {
                true => append_cell(out, value, &mut self.scratch),
                false => append_value(out, value),
            }
        }
        Ok(())
    }
}
