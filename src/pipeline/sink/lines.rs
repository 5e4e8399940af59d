//! Rows as text without a file: for those that join them with rows that were published.
//!
//! Knows no directory and no epoch.

use super::results::ResultSpec;
use super::row::{self, JsonRows, Rows, Shape};
use crate::aggregate::Value;
use crate::error::Result;
use crate::operator::ResultBlock;

/// Collects results as JSON lines, as the output of this description would hold them.
#[derive(Debug)]
pub(in crate::pipeline) struct ResultLines {
    rows: Rows,
    /// The lines.
    pub(in crate::pipeline) text: Vec<u8>,
}

impl ResultLines {
    pub(in crate::pipeline) fn new(spec: ResultSpec) -> Self {
        let ResultSpec { name: sink, keys, aggregates, times, metadata, row_kinds, .. } = spec;
        let shape = Shape { sink, keys, aggregates, times, metadata, row_kinds };
        Self { rows: Rows::Json(JsonRows::new(shape)), text: Vec::new() }
    }

    /// Appends all rows of a block.
    pub(in crate::pipeline) fn write(&mut self, block: &mut dyn ResultBlock) -> Result<()> {
        self.rows.begin(block.window(), block.watermark(), block.takes_back());
        while let Some(row) = block.next_row() {
            self.rows.append(&row, &mut self.text)?;
        }
        Ok(())
    }
}

/// A value as it stands in a row.
pub(in crate::pipeline) fn value_text(value: &Value) -> String {
    let mut text = Vec::new();
    row::append_value(&mut text, value);
    String::from_utf8_lossy(&text).into_owned()
}

/// Appends text as a JSON string.
pub(in crate::pipeline) fn append_json_text(out: &mut Vec<u8>, text: &str) {
    row::append_json_text(out, text);
}
