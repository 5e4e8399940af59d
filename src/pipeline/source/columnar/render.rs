//! A row as text: the JSON object that it would be as a line, and where in it the value of each field stands.
//!
//! Times are RFC 3339 in UTC, decimals have all digits of their scale, floats are as short as reads back the same.
//! What JSON has no number for (NaN, infinities) is text.

use std::sync::Arc;

use arrow_array::RecordBatch;

use super::cells::{Cells, Values};
use super::shape::Shape;
use crate::aggregate::decimal_text;
use crate::event::RowText;
use crate::pipeline::config::EpochUnit;
use crate::pipeline::source::token::{Kind, Token};

/// A column that is part of the text of a row.
#[derive(Clone, Debug)]
pub(super) struct Column {
    /// Its index in the batch.
    pub(super) index: usize,
    /// Its name, as JSON has it, with the colon.
    pub(super) label: Vec<u8>,
    pub(super) shape: Shape,
    /// The slot of its field.
    pub(super) slot: usize,
}

impl Column {
    pub(super) fn new(index: usize, name: &str, shape: Shape, slot: usize) -> Self {
        let mut label = Vec::new();
        append_text(&mut label, name);
        label.push(b':');
        Self { index, label, shape, slot }
    }
}

/// Appends a row as JSON, and says where the values are.
pub(super) fn append_row<'a>(
    out: &mut Vec<u8>,
    columns: &[Column],
    row: usize,
    cells: impl Fn(usize) -> &'a Cells<'a>,
    tokens: &mut [Token],
) {
    out.push(b'{');
    for (place, column) in columns.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        out.extend_from_slice(&column.label);
        tokens[column.slot] = append_cell(out, column.shape, cells(place), row);
    }
    out.push(b'}');
}

/// Appends a value as JSON; where it stands, without quotes.
fn append_cell(out: &mut Vec<u8>, shape: Shape, cells: &Cells<'_>, row: usize) -> Token {
    let start = out.len();
    if cells.is_null(row) {
        out.extend_from_slice(b"null");
        return Token::new(Kind::Null, start, out.len());
    }
    match (&cells.values, shape) {
        (Values::Ints { values, unsigned: true }, _) => {
            out.extend_from_slice(itoa::Buffer::new().format(values[row] as u64).as_bytes());
        }
        (Values::Ints { values, .. }, _) => {
            out.extend_from_slice(itoa::Buffer::new().format(values[row]).as_bytes());
        }
        (Values::Floats(values), _) if values[row].is_finite() => {
            out.extend_from_slice(zmij::Buffer::new().format_finite(values[row]).as_bytes());
        }
        (Values::Floats(values), _) => {
            let text = values[row].to_string();
            append_text(out, &text);
            // A number that is none, rather than text.
            return Token::new(Kind::Number, start + 1, out.len() - 1);
        }
        (Values::Decimals { values, scale }, _) => {
            out.extend_from_slice(decimal_text(values[row], *scale).as_bytes());
        }
        (Values::Bools(values), _) => {
            out.extend_from_slice(if values[row] { b"true" } else { b"false" });
            return Token::new(Kind::Bool, start, out.len());
        }
        (Values::Texts(texts), _) => {
            let text = texts.get(row);
            append_text(out, text);
            let plain = out.len() == start + text.len() + 2;
            let kind = if plain { Kind::Text } else { Kind::EscapedText };
            return Token::new(kind, start + 1, out.len() - 1);
        }
        (Values::Times(values), Shape::Time(unit)) => match rfc3339(values[row], unit) {
            Some(text) => {
                append_text(out, &text);
                return Token::new(Kind::Text, start + 1, out.len() - 1);
            }
            // No calendar reaches that far.
            None => out.extend_from_slice(itoa::Buffer::new().format(values[row]).as_bytes()),
        },
        (Values::Times(_) | Values::Nothing, _) => {
            out.extend_from_slice(b"null");
            return Token::new(Kind::Null, start, out.len());
        }
    }
    Token::new(Kind::Number, start, out.len())
}

fn rfc3339(value: i64, unit: EpochUnit) -> Option<String> {
    let nanos = match unit {
        EpochUnit::Seconds => 1_000_000_000,
        EpochUnit::Millis => 1_000_000,
        EpochUnit::Micros => 1_000,
        EpochUnit::Nanos => 1,
    };
    let time = jiff::Timestamp::from_nanosecond(i128::from(value) * nanos).ok()?;
    let text = time.to_string();
    // Years beyond four digits have a sign, and RFC 3339 has none.
    text.as_bytes().first().is_some_and(u8::is_ascii_digit).then_some(text)
}

fn append_text(out: &mut Vec<u8>, text: &str) {
    // Writing text to memory does not fail.
    let _ = serde_json::to_writer(out, text);
}

/// Rows that events came from: batches, each with the number of its first row.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    pub(super) columns: Arc<Vec<Column>>,
    pub(super) batches: Vec<(u64, RecordBatch)>,
}

impl RowText for Rows {
    fn append(&self, record: u64, out: &mut Vec<u8>) -> bool {
        let of = |(first, batch): &&(u64, RecordBatch)| {
            record >= *first && record - first < batch.num_rows() as u64
        };
        let Some((first, batch)) = self.batches.iter().find(of) else { return false };
        let Ok(row) = usize::try_from(record - first) else { return false };
        // One row of each column is all that is looked at.
        let arrays: Vec<_> =
            self.columns.iter().map(|column| batch.column(column.index).slice(row, 1)).collect();
        let cells: Vec<Cells<'_>> = arrays.iter().map(|array| Cells::of(array.as_ref())).collect();
        let slots = self.columns.iter().map(|column| column.slot + 1).max().unwrap_or(0);
        append_row(out, &self.columns, 0, |place| &cells[place], &mut vec![Token::ABSENT; slots]);
        true
    }
}
