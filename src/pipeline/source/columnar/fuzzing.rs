//! The fuzz target of columns, which is a property test as well: whatever stands in them, in whatever types, what is read
//! of a batch is what is read of its rows as lines of JSON, one by one.

use std::fmt::Write as _;
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, Decimal64Array, Decimal128Array, DictionaryArray, Float32Array,
    Float64Array, Int8Array, Int32Array, Int64Array, LargeStringArray, RecordBatch, StringArray,
    StringViewArray, TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray,
    TimestampSecondArray, UInt64Array,
};

use super::ColumnarReader;
use crate::event::{EventBatch, PartitionId};
use crate::pipeline::config::{Bound, EpochUnit, Filter, InputType, KeyField, KeyType, Scalar, TimeFormat};
use crate::pipeline::source::ParsePlan;
use crate::pipeline::source::json::{self, Order};
use crate::pipeline::source::row::{Outcome, RowReader};

/// Decisions and values, out of the input; zeros when it is used up.
struct Dice<'a>(&'a [u8]);

impl Dice<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        byte
    }

    fn below(&mut self, choices: usize) -> usize {
        usize::from(self.byte()) % choices
    }

    /// Small ones, large ones, and those at the ends of ranges.
    fn int(&mut self) -> i64 {
        let small = i64::from(self.byte());
        match self.below(8) {
            0 => i64::MAX - small,
            1 => i64::MIN + small,
            2 => -small,
            3 => 1_700_000_000 + small,
            4 => 1_700_000_000_000 + small * 977,
            5 => 1_700_000_000_000_000_000 + small,
            6 => 10_i64.pow(18) - 128 + small,
            _ => small,
        }
    }

    fn float(&mut self) -> f64 {
        match self.below(8) {
            0 => f64::NAN,
            1 => f64::INFINITY,
            2 => self.int() as f64,
            3 => f64::from_bits(self.int() as u64),
            _ => self.int() as f64 / 100.0,
        }
    }

    fn text(&mut self) -> String {
        const TEXTS: [&str; 12] = [
            "",
            "a",
            "key",
            "q\"\\\n\u{1}",
            "é😀",
            "true",
            "12",
            "1.50",
            "2023-11-14T22:13:20.5Z",
            "2023-11-14T22:13:20+01:00",
            "soon",
            "a\0b",
        ];
        match self.below(64) {
            0 => "x".repeat((64 << 10) - 2 + self.below(4)),
            1 => "y".repeat((4 << 10) - 4 + self.below(8)),
            _ => TEXTS[self.below(TEXTS.len())].to_owned(),
        }
    }

    fn maybe<T>(&mut self, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.below(6) > 0).then(|| value(self))
    }

    fn column<T, A: FromIterator<Option<T>>>(&mut self, rows: usize, value: impl Fn(&mut Self) -> T) -> A {
        let nulls = self.below(2) == 0;
        (0..rows).map(|_| if nulls { self.maybe(&value) } else { Some(value(self)) }).collect()
    }

    fn ints(&mut self, rows: usize) -> ArrayRef {
        match self.below(4) {
            0 => Arc::new(self.column::<_, Int8Array>(rows, |dice| dice.byte() as i8)),
            1 => Arc::new(self.column::<_, Int32Array>(rows, |dice| dice.int() as i32)),
            2 => Arc::new(self.column::<_, UInt64Array>(rows, |dice| dice.int() as u64)),
            _ => Arc::new(self.column::<_, Int64Array>(rows, Self::int)),
        }
    }

    fn floats(&mut self, rows: usize) -> ArrayRef {
        match self.below(2) {
            0 => Arc::new(self.column::<_, Float32Array>(rows, |dice| dice.float() as f32)),
            _ => Arc::new(self.column::<_, Float64Array>(rows, Self::float)),
        }
    }

    fn decimals(&mut self, rows: usize) -> ArrayRef {
        let scale = [0, 2, 4, 18][self.below(4)];
        match self.below(2) {
            0 => {
                let column: Decimal64Array = self.column(rows, Self::int);
                Arc::new(column.with_data_type(arrow_schema::DataType::Decimal64(18, scale)))
            }
            _ => {
                let wide = |dice: &mut Self| i128::from(dice.int()) * [1, 100, 1 << 40][dice.below(3)];
                let column: Decimal128Array = self.column(rows, wide);
                Arc::new(column.with_data_type(arrow_schema::DataType::Decimal128(38, scale)))
            }
        }
    }

    fn texts(&mut self, rows: usize) -> ArrayRef {
        let texts: Vec<Option<String>> = self.column(rows, Self::text);
        match self.below(4) {
            0 => Arc::new(texts.into_iter().collect::<LargeStringArray>()),
            1 => Arc::new(texts.into_iter().collect::<StringViewArray>()),
            2 => {
                let texts = texts.iter().map(Option::as_deref);
                Arc::new(texts.collect::<DictionaryArray<Int32Type>>())
            }
            _ => Arc::new(texts.into_iter().collect::<StringArray>()),
        }
    }

    fn times(&mut self, rows: usize) -> ArrayRef {
        match self.below(5) {
            0 => Arc::new(self.column::<_, TimestampSecondArray>(rows, Self::int)),
            1 => Arc::new(self.column::<_, TimestampMillisecondArray>(rows, Self::int)),
            2 => Arc::new(self.column::<_, TimestampMicrosecondArray>(rows, Self::int)),
            3 => Arc::new(self.column::<_, TimestampNanosecondArray>(rows, Self::int)),
            _ => Arc::new(self.column::<_, Date32Array>(rows, |dice| dice.int() as i32)),
        }
    }

    fn any(&mut self, rows: usize) -> ArrayRef {
        match self.below(6) {
            0 => self.ints(rows),
            1 => self.floats(rows),
            2 => self.decimals(rows),
            3 => self.times(rows),
            4 => Arc::new(self.column::<_, BooleanArray>(rows, |dice| dice.byte() > 127)),
            _ => self.texts(rows),
        }
    }

    fn number(&mut self, rows: usize) -> ArrayRef {
        match self.below(3) {
            0 => self.ints(rows),
            1 => self.floats(rows),
            _ => self.decimals(rows),
        }
    }

    fn time(&mut self, rows: usize) -> (ArrayRef, TimeFormat) {
        match self.below(3) {
            0 => (self.ints(rows), TimeFormat::Epoch(EpochUnit::ALL[self.below(4)])),
            1 => (self.texts(rows), TimeFormat::Rfc3339),
            _ => (self.times(rows), TimeFormat::Column),
        }
    }

    fn filter(&mut self, rows: usize) -> (ArrayRef, Filter) {
        let condition = Filter { field: "q".to_owned(), not_null: true, min: None, max: None, equals: None };
        match self.below(5) {
            0 => (self.any(rows), condition),
            1 => (self.number(rows), Filter { min: Some(Bound::Int(self.int())), ..condition }),
            2 => (self.number(rows), Filter { max: Some(Bound::Float(100.5)), ..condition }),
            3 => {
                let equals = Some(Scalar::Text(self.text()));
                (self.texts(rows), Filter { equals, ..condition })
            }
            _ => {
                let equals = Some(Scalar::Number(Bound::Int(i64::from(self.byte()))));
                (self.number(rows), Filter { equals, ..condition })
            }
        }
    }
}

/// Types of columns, and what stands in them.
pub(crate) fn columns(bytes: &[u8]) {
    let mut dice = Dice(bytes);
    let rows = dice.below(24);
    let (time, format) = dice.time(rows);
    let mut plan = ParsePlan::new("t", format.clone())
        .key(&["k"])
        .typed_key(vec![
            KeyField { field: "k".to_owned(), key_type: KeyType::Text },
            KeyField { field: "n".to_owned(), key_type: KeyType::Int },
        ])
        .value("i", InputType::Int)
        .value("f", InputType::Float)
        .value("d", InputType::Decimal(2))
        .value("s", InputType::Text);
    let decimal = match dice.below(3) {
        0 => dice.texts(rows),
        _ => dice.number(rows),
    };
    let mut fields = vec![
        ("s", dice.any(rows)),
        ("t", time),
        ("k", dice.any(rows)),
        ("n", dice.ints(rows)),
        ("i", dice.ints(rows)),
        ("f", dice.number(rows)),
        ("d", decimal),
    ];
    if dice.below(3) == 0 {
        let (column, filter) = dice.filter(rows);
        fields.push(("q", column));
        plan = plan.filter(filter);
    }
    let Ok(batch) = RecordBatch::try_from_iter_with_nullable(
        fields.into_iter().map(|(name, column)| (name, column, true)),
    ) else {
        panic!("columns of one length are no batch");
    };
    let cut = dice.below(rows.max(1));
    compare(&batch, &plan, cut);
}

fn compare(batch: &RecordBatch, plan: &ParsePlan, cut: usize) {
    let Ok(mut reader) = ColumnarReader::new(plan.clone(), &batch.schema()) else {
        panic!("columns of fitting types are refused");
    };
    let (mut into, mut rejected) = (reader.batch(PartitionId(0)), Vec::new());
    let mut found = Vec::new();
    let mut filtered = Vec::new();
    for (from, to) in [(0, cut), (cut, batch.num_rows())] {
        let part = batch.slice(from, to - from);
        let first = from as u64 + 1;
        let read = reader.read_rows(&part, first, &mut into, &mut rejected, |record| filtered.push(record));
        assert!(read.is_ok(), "a part of a batch is refused");
    }
    for index in 0..into.len() {
        found.push((into.records[index], event(&into, index)));
    }
    found.extend(filtered.into_iter().map(|record| (record, "filtered".to_owned())));
    for rejected in &rejected {
        found.push((rejected.record, format!("{} {:?}", rejected.reason, rejected.field)));
        let text = into.row_text(rejected.record).unwrap_or_default();
        assert!(text.starts_with(&rejected.text) && !rejected.text.is_empty(), "a row is shown as another");
    }
    found.sort();
    let lines: Vec<Vec<u8>> =
        (1..=batch.num_rows() as u64).map(|record| into.row_text(record).unwrap_or_default()).collect();
    for ((record, found), line) in found.iter().zip(&lines) {
        let Some(expected) = by_line(line, plan) else { continue };
        assert_eq!(*found, expected, "row {record}: {}", String::from_utf8_lossy(line));
    }
    assert_eq!(found.len(), lines.len(), "rows went missing");
}

fn event(batch: &EventBatch, index: usize) -> String {
    let mut text = format!("{}", batch.times[index]);
    for key in &batch.keys {
        let _ = write!(text, " {:?}", String::from_utf8_lossy(key.get(index)));
    }
    for value in &batch.values {
        let _ = write!(text, " {:?}", value.get(index));
    }
    text
}

/// What a line is; `None` where JSON cannot say what the row says: numbers that are none, times beyond the calendar.
fn by_line(line: &[u8], plan: &ParsePlan) -> Option<String> {
    let text = String::from_utf8_lossy(line);
    if ["\"NaN\"", "\"inf\"", "\"-inf\""].iter().any(|word| text.contains(word)) {
        return None;
    }
    let mut rows = RowReader::new(plan.clone());
    let mut batch = EventBatch::default();
    rows.prepare(&mut batch);
    let mut order = Order::new(&rows.fields);
    let (tokens, scratch) = (&mut rows.tokens, &mut rows.scratch);
    let scanned = json::scan(line, 0, line.len(), &rows.fields, &mut order, tokens, scratch);
    assert!(scanned.is_ok(), "a row is written as no JSON: {text}");
    if plan.time.format == TimeFormat::Column
        && text.split("\"t\":").nth(1)?.starts_with(|c: char| c != '"' && c != 'n')
    {
        return None;
    }
    Some(match rows.push(line, &mut batch) {
        Outcome::Event => event(&batch, 0),
        Outcome::Filtered => "filtered".to_owned(),
        Outcome::Refused(refusal) => format!("{} {:?}", refusal.reason, refusal.field),
    })
}
