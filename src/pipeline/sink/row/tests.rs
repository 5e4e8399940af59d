//! Golden rows of both formats, and the property that JSON reads back as what was written.

use proptest::prelude::*;

use super::*;
use crate::aggregate::Value;
use crate::codec::KeyWriter;
use crate::event_time::EventTime;
use crate::operator::{JoinedEvent, JoinedRow, PaneKind};

const TEN: i64 = 1_357_034_400_000;

fn shape(keys: &[(&str, KeyKind)], aggregates: &[&str], metadata: bool) -> Shape {
    Shape {
        sink: "hourly".to_owned(),
        keys: keys.iter().map(|&(name, kind)| KeyField { name: name.to_owned(), kind }).collect(),
        aggregates: aggregates.iter().map(|&name| name.to_owned()).collect(),
        times: TimeFormat::Rfc3339,
        metadata,
        row_kinds: false,
    }
}

fn key(components: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = KeyWriter::new(&mut bytes, components.len());
    components.iter().for_each(|component| writer.push(component));
    bytes
}

fn line(mut rows: Rows, key: &[u8], values: &[Value], watermark: Watermark) -> String {
    let window = Window { start: EventTime::from_millis(TEN), end: EventTime::from_millis(TEN + 3_600_000) };
    rows.begin(window, watermark, None);
    let mut out = Vec::new();
    rows.append(&ResultRow { key, pane_index: 2, kind: PaneKind::Late, values }, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn json(shape: Shape, key: &[u8], values: &[Value], watermark: Watermark) -> String {
    line(Rows::Json(JsonRows::new(shape)), key, values, watermark)
}

fn csv(shape: Shape, key: &[u8], values: &[Value], watermark: Watermark) -> String {
    line(Rows::Csv(CsvRows::new(shape)), key, values, watermark)
}

fn joined(csv: bool, left: Option<JoinedEvent<'_>>, right: Option<JoinedEvent<'_>>) -> String {
    let keys = [("shop", KeyKind::Text), ("order", KeyKind::Int)];
    let mut rows = JoinedRows::new(shape(&keys, &["total", "state", "paid"], false), 2, csv);
    let mut out = rows.header().unwrap_or_default();
    let key = key(&[b"a,b", b"7"]);
    rows.append(&JoinedRow { key: &key, left, right, watermark: Watermark::None }, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_joined_row_has_key_times_and_the_fields_of_both_sides() {
    let time = EventTime::from_millis(TEN);
    let (left, right) = ([Value::Int(5), Value::Text("new".to_owned())], [Value::Null]);
    let (left, right) = (JoinedEvent { time, values: &left }, JoinedEvent { time, values: &right });
    assert_eq!(
        joined(false, Some(left), Some(right)),
        "{\"shop\":\"a,b\",\"order\":7,\"left_time\":\"2013-01-01T10:00:00Z\",\"right_time\":\"2013-01-01T10:00:00Z\",\
         \"total\":5,\"state\":\"new\",\"paid\":null}\n"
    );
    assert_eq!(
        joined(false, None, Some(right)),
        "{\"shop\":\"a,b\",\"order\":7,\"left_time\":null,\"right_time\":\"2013-01-01T10:00:00Z\",\
         \"total\":null,\"state\":null,\"paid\":null}\n"
    );
    assert_eq!(
        joined(true, Some(left), None),
        "shop,order,left_time,right_time,total,state,paid\n\"a,b\",7,2013-01-01T10:00:00Z,,5,new,\n"
    );
}

#[test]
fn a_json_row_has_key_window_and_aggregates_in_order() {
    let shape = shape(&[("origin", KeyKind::Text)], &["flights", "delay_sum"], false);
    assert_eq!(
        json(shape, b"EWR", &[Value::Int(2), Value::Int(-2)], Watermark::End),
        "{\"origin\":\"EWR\",\"window_start\":\"2013-01-01T10:00:00Z\",\"window_end\":\"2013-01-01T11:00:00Z\",\
         \"flights\":2,\"delay_sum\":-2}\n"
    );
}

#[test]
fn a_json_row_tells_pane_and_watermark_when_asked() {
    let shape = Shape { times: TimeFormat::EpochMillis, ..shape(&[], &["n"], true) };
    let at = Watermark::At(EventTime::from_millis(-5));
    assert_eq!(
        json(shape.clone(), b"", &[Value::Null], at),
        "{\"window_start\":1357034400000,\"window_end\":1357038000000,\"n\":null,\
         \"pane\":\"late\",\"pane_index\":2,\"watermark\":-5}\n"
    );
    assert!(json(shape, b"", &[Value::Null], Watermark::End).ends_with("\"watermark\":null}\n"));
}

#[test]
fn values_that_json_lacks_are_strings_and_numbers_are_exact() {
    let shape = shape(&[("k\"", KeyKind::Int), ("b", KeyKind::Text)], &["a", "b", "c", "d", "e", "f"], false);
    let values = [
        Value::Int(i128::MAX),
        Value::Float(-0.0),
        Value::Float(f64::NAN),
        Value::Float(f64::NEG_INFINITY),
        Value::Float(0.1),
        Value::Text("a\u{0}\n\"\\é\u{2028}".to_owned()),
    ];
    let row = json(shape, &key(&[b"-7", b"\xff\0"]), &values, Watermark::End);
    assert!(row.starts_with("{\"k\\\"\":-7,\"b\":{\"base64\":\"/wA=\"},\"window_start\""), "{row}");
    let tail = "\"a\":170141183460469231731687303715884105727,\"b\":-0.0,\"c\":\"NaN\",\"d\":\"-Infinity\",\
                \"e\":0.1,\"f\":\"a\\u0000\\n\\\"\\\\é\u{2028}\"}\n";
    assert!(row.ends_with(tail), "{row}");
}

#[test]
fn csv_keeps_null_and_empty_text_apart_and_quotes_what_needs_it() {
    let shape = shape(&[("a,b", KeyKind::Text), ("c", KeyKind::Text)], &["x", "y", "z"], true);
    let header = String::from_utf8(CsvRows::new(shape.clone()).header()).unwrap();
    assert_eq!(header, "\"a,b\",c,window_start,window_end,x,y,z,pane,pane_index,watermark\n");
    let values = [Value::Null, Value::Float(f64::INFINITY), Value::Text("say \"hi\"\r\n".to_owned())];
    assert_eq!(
        csv(shape, &key(&[b"", b"q,r"]), &values, Watermark::End),
        "\"\",\"q,r\",2013-01-01T10:00:00Z,2013-01-01T11:00:00Z,,Infinity,\"say \"\"hi\"\"\r\n\",late,2,\n"
    );
}

#[test]
fn decimals_keep_their_scale_and_lists_are_json_in_both_formats() {
    let top = Value::Record(vec![("value", Value::Text("a,\"b\"".to_owned())), ("count", Value::Int(2))]);
    let values = [
        Value::Decimal { unscaled: -1_050, scale: 2 },
        Value::List(vec![top, Value::Float(f64::NAN), Value::Null]),
    ];
    let shape = shape(&[], &["d", "l"], false);
    let row = json(shape.clone(), b"", &values, Watermark::End);
    let tail = r#""d":-10.50,"l":[{"value":"a,\"b\"","count":2},"NaN",null]}"#;
    assert!(row.trim_end().ends_with(tail), "{row}");
    let row = csv(shape, b"", &values, Watermark::End);
    let tail = r#",-10.50,"[{""value"":""a,\""b\"""",""count"":2},""NaN"",null]""#;
    assert!(row.trim_end().ends_with(tail), "{row}");
}

#[test]
fn a_key_or_row_of_another_shape_is_an_error_and_leaves_the_row_out() {
    let mut rows = Rows::Json(JsonRows::new(shape(&[("a", KeyKind::Int)], &["n"], false)));
    let mut append = |key: &[u8], values: &[Value]| {
        rows.append(&ResultRow { key, pane_index: 0, kind: PaneKind::OnTime, values }, &mut Vec::new())
    };
    assert!(append(b"seven", &[Value::Null]).is_err());
    assert!(append(b"7", &[]).is_err());
    assert!(append(b"7", &[Value::Null]).is_ok());
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(|value| Value::Int(value.into())),
        any::<f64>().prop_map(Value::Float),
        any::<u64>().prop_map(|bits| Value::Float(f64::from_bits(bits))),
        any::<String>().prop_map(Value::Text),
    ]
}

proptest! {
    #[test]
    fn json_reads_back_as_what_was_written(
        first in any::<String>(),
        second in prop_oneof![any::<i64>(), Just(i64::MIN)],
        third in any::<String>(),
        values in prop::collection::vec(any_value(), 3),
        name in any::<String>(),
    ) {
        let keys = [("first", KeyKind::Text), ("second", KeyKind::Int), ("third", KeyKind::Text)];
        let name = format!("x{name}");
        let key = key(&[first.as_bytes(), second.to_string().as_bytes(), third.as_bytes()]);
        let row = json(shape(&keys, &["a", "b", &name], true), &key, &values, Watermark::End);
        prop_assert!(row.ends_with('\n') && row.trim_end_matches('\n').lines().count() <= 1);
        let back: serde_json::Value = serde_json::from_str(&row).unwrap();
        prop_assert_eq!(back["first"].as_str(), Some(&*first));
        prop_assert_eq!(back["second"].as_i64(), Some(second));
        prop_assert_eq!(back["third"].as_str(), Some(&*third));
        for (name, value) in ["a", "b", &name].iter().zip(&values) {
            let found = &back[*name];
            match value {
                Value::Null => prop_assert!(found.is_null()),
                Value::Int(value) => prop_assert_eq!(i128::from(found.as_i64().unwrap()), *value),
                Value::Float(value) if value.is_nan() => prop_assert_eq!(found.as_str(), Some("NaN")),
                Value::Float(value) if value.is_infinite() => prop_assert!(found.is_string()),
                // serde_json's own float parser may miss the last bit, the standard library's does not.
                Value::Float(value) => {
                    let text = row.split(&format!("{}:", serde_json::to_string(name).unwrap())).nth(1).unwrap();
                    let text = text.split([',', '}']).next().unwrap();
                    prop_assert_eq!(text.parse::<f64>().unwrap().to_bits(), value.to_bits());
                    prop_assert!(found.is_f64());
                }
                Value::Text(value) => prop_assert_eq!(found.as_str(), Some(&**value)),
                value => prop_assert!(false, "not made here: {value:?}"),
            }
        }
    }

    #[test]
    fn csv_reads_back_as_what_was_written(
        key in prop::collection::vec(any::<u8>(), 0..9),
        values in prop::collection::vec(any_value(), 2),
    ) {
        let shape = shape(&[("k", KeyKind::Text)], &["a", "b"], false);
        let mut rows = CsvRows::new(shape);
        rows.begin(Window { start: EventTime::from_millis(0), end: EventTime::from_millis(10) }, Watermark::End, None);
        let mut text = rows.header();
        let row = ResultRow { key: &key, pane_index: 0, kind: PaneKind::OnTime, values: &values };
        rows.append(&row, &mut text).unwrap();
        let mut reader = ::csv::Reader::from_reader(&*text);
        let records: Vec<_> = reader.byte_records().collect::<Result<_, _>>().unwrap();
        prop_assert_eq!(records.len(), 1);
        prop_assert_eq!(&records[0][0], &*key);
        for (field, value) in records[0].iter().skip(3).zip(&values) {
            match value {
                Value::Text(value) => prop_assert_eq!(field, value.as_bytes()),
                Value::Int(value) => prop_assert!(field == value.to_string().as_bytes()),
                Value::Null => prop_assert!(field.is_empty()),
                Value::Float(value) => {
                    let read: f64 = std::str::from_utf8(field).unwrap().parse().unwrap();
                    prop_assert!(read.to_bits() == value.to_bits() || (read.is_nan() && value.is_nan()));
                }
                value => prop_assert!(false, "not made here: {value:?}"),
            }
        }
    }
}
