//! Exported panes as lines: JSON objects, and CSV as RFC 4180 has it.

use std::io::{self, Write};

use super::rows::moment;
use crate::aggregate::Value;
use crate::event_time::EventTime;
use crate::pipeline::sink::{Cells, Column, append_json_bytes, append_json_text, append_json_value};

/// JSON lines.
#[derive(Debug)]
pub(super) struct JsonRows {
    names: Vec<String>,
    line: Vec<u8>,
    column: usize,
}

impl JsonRows {
    pub(super) fn new(columns: &[Column]) -> Self {
        let names = columns.iter().map(|column| column.name.clone()).collect();
        Self { names, line: Vec::new(), column: 0 }
    }

    fn name(&mut self) {
        self.line.push(if self.column == 0 { b'{' } else { b',' });
        if let Some(name) = self.names.get(self.column) {
            append_json_text(&mut self.line, name);
        }
        self.line.push(b':');
        self.column += 1;
    }

    fn value(&mut self, value: &Value) {
        self.name();
        append_json_value(&mut self.line, value);
    }

    pub(super) fn end_row(&mut self, out: &mut impl Write) -> io::Result<()> {
        self.line.extend_from_slice(b"}\n");
        let written = out.write_all(&self.line);
        self.line.clear();
        self.column = 0;
        written
    }
}

impl Cells for JsonRows {
    fn null(&mut self) {
        self.value(&Value::Null);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.name();
        append_json_bytes(&mut self.line, bytes);
    }

    fn int(&mut self, value: i64) {
        self.value(&Value::Int(i128::from(value)));
    }

    fn whole(&mut self, unscaled: i128, scale: u8) {
        self.value(&whole(unscaled, scale));
    }

    fn float(&mut self, value: f64) {
        self.value(&Value::Float(value));
    }

    fn time(&mut self, time: EventTime) {
        self.name();
        append_json_text(&mut self.line, &moment(time));
    }

    fn json(&mut self, value: &Value) {
        self.value(value);
    }
}

fn whole(unscaled: i128, scale: u8) -> Value {
    if scale == 0 { Value::Int(unscaled) } else { Value::Decimal { unscaled, scale } }
}

/// CSV with a header. Null is an empty cell, the empty text a quoted one.
#[derive(Debug)]
pub(super) struct CsvRows {
    line: Vec<u8>,
    cells: usize,
}

impl CsvRows {
    pub(super) const fn new() -> Self {
        Self { line: Vec::new(), cells: 0 }
    }

    pub(super) fn header(&self, columns: &[Column], out: &mut impl Write) -> io::Result<()> {
        let mut header = Self::new();
        columns.iter().for_each(|column| header.bytes(column.name.as_bytes()));
        header.end_row(out)
    }

    fn cell(&mut self, bytes: &[u8]) {
        if self.cells > 0 {
            self.line.push(b',');
        }
        self.cells += 1;
        self.line.extend_from_slice(bytes);
    }

    fn quoted(&mut self, bytes: &[u8]) {
        let quotes = |byte: &u8| matches!(byte, b',' | b'"' | b'\r' | b'\n');
        if !bytes.is_empty() && !bytes.iter().any(quotes) {
            return self.cell(bytes);
        }
        self.cell(b"\"");
        for &byte in bytes {
            if byte == b'"' {
                self.line.push(b'"');
            }
            self.line.push(byte);
        }
        self.line.push(b'"');
    }

    pub(super) fn end_row(&mut self, out: &mut impl Write) -> io::Result<()> {
        self.line.push(b'\n');
        let written = out.write_all(&self.line);
        self.line.clear();
        self.cells = 0;
        written
    }
}

impl Cells for CsvRows {
    fn null(&mut self) {
        self.cell(b"");
    }

    fn bytes(&mut self, bytes: &[u8]) {
        if std::str::from_utf8(bytes).is_ok() {
            return self.quoted(bytes);
        }
        // What is no text is kept as JSON has it, so that nothing is lost.
        let mut text = Vec::new();
        append_json_bytes(&mut text, bytes);
        self.quoted(&text);
    }

    fn int(&mut self, value: i64) {
        self.cell(value.to_string().as_bytes());
    }

    fn whole(&mut self, unscaled: i128, scale: u8) {
        self.cell(whole(unscaled, scale).to_string().as_bytes());
    }

    fn float(&mut self, value: f64) {
        let text = match (value.is_nan(), value.is_infinite()) {
            (true, _) => "NaN".to_owned(),
            (_, true) => if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned(),
            _ => Value::Float(value).to_string(),
        };
        self.cell(text.as_bytes());
    }

    fn time(&mut self, time: EventTime) {
        self.quoted(moment(time).as_bytes());
    }

    fn json(&mut self, value: &Value) {
        let mut text = Vec::new();
        append_json_value(&mut text, value);
        self.quoted(&text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::sink::ColumnType;

    fn fill(cells: &mut impl Cells) {
        cells.bytes(b"a,\"b\"\n");
        cells.bytes(b"");
        cells.null();
        cells.int(-7);
        cells.whole(-1_050, 2);
        cells.float(0.5);
        cells.float(f64::INFINITY);
        cells.time(EventTime::from_millis(0));
        cells.json(&Value::List(vec![Value::Int(1), Value::Null]));
        cells.bytes(&[0xff]);
    }

    #[test]
    fn csv_cells_are_quoted_where_they_must_be_and_null_is_not_the_empty_text() {
        let (mut rows, mut out) = (CsvRows::new(), Vec::new());
        fill(&mut rows);
        rows.end_row(&mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "\"a,\"\"b\"\"\n\",\"\",,-7,-10.50,0.5,Infinity,1970-01-01T00:00:00Z,\"[1,null]\",\"{\"\"base64\"\":\"\"/w==\"\"}\"\n"
        );
    }

    #[test]
    fn json_lines_are_objects_with_the_names_of_the_columns() {
        let column =
            |name: usize| Column { name: format!("c{name}"), kind: ColumnType::Text, nullable: true };
        let columns: Vec<Column> = (0..10).map(column).collect();
        let (mut rows, mut out) = (JsonRows::new(&columns), Vec::new());
        for _ in 0..2 {
            fill(&mut rows);
            rows.end_row(&mut out).unwrap();
        }
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0], lines[1]);
        assert_eq!(lines[0]["c0"], "a,\"b\"\n");
        assert_eq!(lines[0]["c2"], serde_json::Value::Null);
        assert_eq!((&lines[0]["c3"], &lines[0]["c8"]), (&(-7).into(), &serde_json::json!([1, null])));
        assert_eq!(lines[0]["c9"]["base64"], "/w==");
    }
}
