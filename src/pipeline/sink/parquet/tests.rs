//! What was written is read back by the reader of the crate: types, nulls, order, and groups of bounded size.

use std::fs::{self, File};
use std::path::Path;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, RowAccessor};
use tempfile::TempDir;

use super::super::tests::{Durable, numbers, run, spec};
use super::super::{
    Format, JoinSink, JoinSinkSpec, KeyField, KeyKind, Opened, Restored, ResultSink, ResultSpec, Sink,
    TimeFormat,
};
use super::*;
use crate::aggregate::Value;
use crate::codec::KeyWriter;
use crate::event_time::{EventTime, Watermark, Window};
use crate::operator::{JoinedEvent, PaneKind, ResultRow};

fn parts(directory: &Path) -> Vec<SerializedFileReader<File>> {
    let mut paths: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.file_name().unwrap().to_str().unwrap().starts_with("part-"));
    paths.sort();
    let open = |path| SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    paths.into_iter().map(open).collect()
}

/// The value of the last column of every row of every part, which is a number.
pub(in super::super) fn numbers_in(directory: &Path) -> Vec<u32> {
    let mut numbers = Vec::new();
    for part in parts(directory) {
        for row in part.get_row_iter(None).unwrap() {
            let row = row.unwrap();
            numbers.push(u32::try_from(row.get_long(row.len() - 1).unwrap()).unwrap());
        }
    }
    numbers
}

/// One row of every type.
struct One<'a>(Option<(&'a [u8], Vec<Value>)>, Vec<Value>);

impl ResultBlock for One<'_> {
    fn window(&self) -> Window {
        Window { start: EventTime::from_millis(-1), end: EventTime::from_millis(1_357_034_400_000) }
    }

    fn watermark(&self) -> Watermark {
        Watermark::End
    }

    fn next_row(&mut self) -> Option<ResultRow<'_>> {
        let (key, values) = self.0.take()?;
        self.1 = values;
        Some(ResultRow { key, pane_index: 3, kind: PaneKind::Late, values: &self.1 })
    }
}

fn key(components: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = KeyWriter::new(&mut bytes, components.len());
    components.iter().for_each(|component| writer.push(component));
    bytes
}

fn all_types(directory: &Path) -> ResultSpec {
    let types = [
        ColumnType::Int,
        ColumnType::Whole,
        ColumnType::Decimal(2),
        ColumnType::Float,
        ColumnType::Text,
        ColumnType::Json,
    ];
    ResultSpec {
        keys: vec![
            KeyField { name: "shop".to_owned(), kind: KeyKind::Text },
            KeyField { name: "order".to_owned(), kind: KeyKind::Int },
        ],
        aggregates: ["n", "sum", "paid", "mean", "last", "all"].map(str::to_owned).to_vec(),
        types: types.to_vec(),
        metadata: true,
        row_kinds: true,
        ..spec(directory, Format::Parquet)
    }
}

#[test]
fn every_type_and_every_null_is_read_back() {
    let root = TempDir::new().unwrap();
    let opened = ResultSink::open(all_types(root.path()), run(1), Restored::NOTHING).unwrap();
    let Opened { mut sink, mut publisher, .. } = opened;
    let keys = [key(&[b"a\tb", b"-7"]), key(&[&[0xff], b"8"])];
    let list = Value::List(vec![Value::Text("x\"y".to_owned()), Value::Null]);
    let values = vec![
        Value::Int(i128::from(i64::MIN)),
        Value::Int(-(1 << 70)),
        Value::Decimal { unscaled: -50, scale: 2 },
        Value::Float(f64::NAN),
        Value::Text("grüße".to_owned()),
        list,
    ];
    sink.write(&mut One(Some((&keys[0], values)), Vec::new())).unwrap();
    sink.write(&mut One(Some((&keys[1], vec![Value::Null; 6])), Vec::new())).unwrap();
    publisher.publish(&sink.stage(1).unwrap().unwrap(), &Durable(1)).unwrap();
    let parts = parts(root.path());
    let rows: Vec<_> = parts[0].get_row_iter(None).unwrap().map(Result::unwrap).collect();
    let text = |row: usize| -> Vec<String> {
        rows[row].get_column_iter().map(|(name, field)| format!("{name}={field}")).collect()
    };
    let first = text(0);
    assert_eq!(first[0], "shop=\"a\tb\"");
    assert_eq!(first[1], "order=-7");
    assert!(matches!(rows[0].get_column_iter().nth(2).unwrap().1, Field::TimestampMillis(-1)), "{first:?}");
    assert_eq!(first[4], "n=-9223372036854775808");
    assert_eq!(first[5], "sum=-1180591620717411303424.");
    assert_eq!(first[6], "paid=-0.50");
    assert_eq!(first[8], "last=\"grüße\"");
    assert_eq!(first[9], "all=\"[\"x\\\"y\",null]\"");
    assert_eq!(first[10..12], ["pane=\"late\"", "pane_index=3"]);
    assert_eq!(first[12..], ["watermark=null", "row_kind=\"+U\""]);
    let second = text(1);
    assert_eq!(second[0], "shop=\"{\"base64\":\"/w==\"}\"");
    assert!(second[4..10].iter().all(|cell| cell.ends_with("=null")), "{second:?}");
}

#[test]
fn a_big_epoch_is_cut_into_groups_and_keeps_its_order() {
    let root = TempDir::new().unwrap();
    let opened = ResultSink::open(spec(root.path(), Format::Parquet), run(1), Restored::NOTHING).unwrap();
    let Opened { mut sink, mut publisher, .. } = opened;
    let rows = GROUP_ROWS as u32 * 2 + 5;
    sink.write(&mut numbers(0..rows)).unwrap();
    let staged = sink.stage(1).unwrap().unwrap();
    assert_eq!(staged.rows, u64::from(rows));
    publisher.publish(&staged, &Durable(1)).unwrap();
    let parts = parts(root.path());
    assert_eq!(parts[0].metadata().num_row_groups(), 3);
    assert!(numbers_in(root.path()).into_iter().eq(0..rows));
}

#[test]
fn a_changed_type_is_refused() {
    let root = TempDir::new().unwrap();
    let opened = ResultSink::open(all_types(root.path()), run(1), Restored::NOTHING).unwrap();
    let Opened { mut sink, mut publisher, .. } = opened;
    let row = key(&[b"a", b"1"]);
    sink.write(&mut One(Some((&row, vec![Value::Null; 6])), Vec::new())).unwrap();
    let staged = [sink.stage(1).unwrap().unwrap()];
    publisher.publish(&staged[0], &Durable(1)).unwrap();
    drop((sink, publisher));
    let restored = Restored { staged: &staged, last_epoch: 1, newest_epoch: 1, ..Restored::NOTHING };
    let mut changed = all_types(root.path());
    changed.types[2] = ColumnType::Decimal(3);
    let error = ResultSink::open(changed, run(2), restored).unwrap_err();
    assert!(error.to_string().contains("the format or the columns"), "{error}");
    ResultSink::open(all_types(root.path()), run(2), restored).unwrap();
}

#[test]
fn a_side_of_a_joined_row_without_event_is_null() {
    let root = TempDir::new().unwrap();
    let spec = JoinSinkSpec {
        name: "pairs".to_owned(),
        directory: root.path().to_owned(),
        format: Format::Parquet,
        keys: vec![KeyField { name: "order".to_owned(), kind: KeyKind::Int }],
        left: vec!["total".to_owned()],
        right: vec!["paid".to_owned()],
        types: vec![ColumnType::Int, ColumnType::Decimal(1)],
        times: TimeFormat::Rfc3339,
    };
    let Opened { mut sink, mut publisher, .. } = JoinSink::open(spec, run(1), Restored::NOTHING).unwrap();
    let values = [Value::Decimal { unscaled: 15, scale: 1 }];
    let right = Some(JoinedEvent { time: EventTime::from_millis(5), values: &values });
    let row = JoinedRow { key: b"9", left: None, right, watermark: Watermark::None };
    sink.write(&row).unwrap();
    publisher.publish(&sink.stage(1).unwrap().unwrap(), &Durable(1)).unwrap();
    let row = parts(root.path())[0].get_row_iter(None).unwrap().next().unwrap().unwrap();
    let text: Vec<_> = row.get_column_iter().map(|(name, field)| format!("{name}={field}")).collect();
    assert_eq!(text.len(), 5);
    assert_eq!(
        [&text[0], &text[1], &text[3], &text[4]],
        ["order=9", "left_time=null", "total=null", "paid=1.5"]
    );
}
