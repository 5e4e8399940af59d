use std::sync::Arc;

use arrow_array::types::Int16Type;
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, DictionaryArray, Float64Array,
    Int32Array, Int64Array, NullArray, RecordBatch, StringArray, TimestampMicrosecondArray,
    TimestampMillisecondArray, TimestampSecondArray, UInt64Array,
};
use proptest::prelude::*;

use super::*;
use crate::event::Datum;
use crate::pipeline::config::{Filter, InputType, KeyField, KeyType, Scalar};

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let columns = columns.into_iter().map(|(name, column)| (name, column, true));
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn read(plan: ParsePlan, rows: &RecordBatch) -> (EventBatch, Vec<Rejected>, u64) {
    let mut reader = ColumnarReader::new(plan, &rows.schema()).unwrap();
    let (mut into, mut rejected) = (reader.batch(PartitionId(0)), Vec::new());
    let filtered = reader.read(rows, 1, &mut into, &mut rejected).unwrap();
    (into, rejected, filtered)
}

fn refused(plan: ParsePlan, rows: &RecordBatch) -> String {
    let error = ColumnarReader::new(plan, &rows.schema()).unwrap_err();
    format!("{error} ({})", error.remedy().unwrap_or_default())
}

#[test]
fn every_unit_of_time_comes_to_milliseconds_rounded_down() {
    let plan = || ParsePlan::new("t", TimeFormat::Column);
    let columns: [(ArrayRef, i64); 5] = [
        (Arc::new(TimestampSecondArray::from(vec![-2])), -2_000),
        (Arc::new(TimestampMillisecondArray::from(vec![1_500]).with_timezone("+02:00")), 1_500),
        (Arc::new(TimestampMicrosecondArray::from(vec![-1])), -1),
        (Arc::new(Date32Array::from(vec![-1])), -86_400_000),
        (
            Arc::new(DictionaryArray::<Int16Type>::new(
                vec![1_i16].into(),
                Arc::new(TimestampSecondArray::from(vec![9, 7])),
            )),
            7_000,
        ),
    ];
    for (column, millis) in columns {
        let (events, rejected, _) = read(plan(), &batch(vec![("t", column)]));
        assert_eq!((events.times, rejected), (vec![millis], vec![]));
    }
    let plan = ParsePlan::new("t", TimeFormat::Epoch(EpochUnit::Seconds));
    let seconds = Decimal128Array::from(vec![Some(-1_500_500_i128)]).with_precision_and_scale(20, 6).unwrap();
    let (events, ..) = read(plan, &batch(vec![("t", Arc::new(seconds))]));
    assert_eq!(events.times, [-1_501]);
}

#[test]
fn a_row_that_is_refused_is_shown_as_json_and_its_neighbours_count() {
    let rows = batch(vec![
        ("v", Arc::new(UInt64Array::from(vec![Some(1), Some(u64::MAX), None, Some(4), Some(5)]))),
        ("t", Arc::new(TimestampSecondArray::from(vec![Some(1), Some(2), Some(3), None, Some(i64::MAX)]))),
        ("other", Arc::new(BinaryArray::from_vec(vec![b"x"; 5]))),
        ("k", Arc::new(StringArray::from(vec!["a", "b", "c", "d\"", "e"]))),
    ]);
    let plan = ParsePlan::new("t", TimeFormat::Column).key(&["k"]).value("v", InputType::Int);
    let (events, rejected, _) = read(plan, &rows);
    assert_eq!((events.times.as_slice(), events.records.as_slice()), (&[1_000, 3_000][..], &[1, 3][..]));
    assert_eq!(
        (events.keys[0].get(1), events.values[0].get(0), events.values[0].get(1)),
        (&b"c"[..], Some(Datum::Int(1)), None)
    );
    let said: Vec<String> = rejected
        .iter()
        .map(|rejected| {
            let text = String::from_utf8_lossy(&rejected.text);
            format!(
                "{} {} {:?} {} {text}",
                rejected.record, rejected.reason, rejected.byte_offset, rejected.detail
            )
        })
        .collect();
    assert_eq!(
        said,
        [
            "2 integer_out_of_range None `18446744073709551615` does not fit into 64 bits \
             {\"v\":18446744073709551615,\"t\":\"1970-01-01T00:00:02Z\",\"k\":\"b\"}",
            "4 null_timestamp None the time is null {\"v\":4,\"t\":null,\"k\":\"d\\\"\"}",
            "5 timestamp_out_of_bounds None `9223372036854775807` is beyond what event time can hold \
             {\"v\":5,\"t\":9223372036854775807,\"k\":\"e\"}",
        ]
    );
    let text = events.text_of(1).unwrap();
    assert_eq!(String::from_utf8_lossy(&text), "{\"v\":null,\"t\":\"1970-01-01T00:00:03Z\",\"k\":\"c\"}");
}

#[test]
fn decimals_are_exact_in_every_scale_and_floats_are_not_guessed() {
    let plan = ParsePlan::new("t", TimeFormat::Column)
        .value("d", InputType::Decimal(2))
        .value("f", InputType::Float);
    let decimals = vec![Some(12_300_i128), Some(-5), Some(i128::from(i64::MAX) * 1_000), None, Some(100)];
    let floats = vec![Some(0.1), Some(1.0), Some(2.0), None, Some(f64::NAN)];
    let rows = batch(vec![
        ("t", Arc::new(TimestampSecondArray::from(vec![1; 5]))),
        ("d", Arc::new(Decimal128Array::from(decimals).with_precision_and_scale(38, 3).unwrap())),
        ("f", Arc::new(Float64Array::from(floats))),
    ]);
    let (events, rejected, _) = read(plan, &rows);
    let decimal = |unscaled| Some(Datum::Decimal { unscaled, scale: 2 });
    assert_eq!(events.records, [1, 4]);
    assert_eq!((events.values[0].get(0), events.values[0].get(1)), (decimal(1_230), None));
    assert_eq!((events.values[1].get(0), events.values[1].get(1)), (Some(Datum::Float(0.1)), None));
    let reasons: Vec<&str> = rejected.iter().map(|rejected| rejected.reason.name()).collect();
    assert_eq!(reasons, ["decimal_too_fine", "decimal_out_of_range", "wrong_type"]);
    assert!(rejected[2].text.ends_with(b"\"f\":\"NaN\"}"), "{}", String::from_utf8_lossy(&rejected[2].text));
}

#[test]
fn a_filter_goes_before_everything_else_and_rows_that_it_takes_are_told() {
    let equals = Some(Scalar::Text("eu".to_owned()));
    let filter = Filter { field: "region".to_owned(), not_null: false, min: None, max: None, equals };
    let plan = ParsePlan::new("t", TimeFormat::Column).key(&["region"]).filter(filter);
    let regions = vec![Some("eu"), Some("us"), None, Some("eu")];
    let rows = batch(vec![
        ("t", Arc::new(TimestampSecondArray::from(vec![Some(1), None, None, None]))),
        ("region", Arc::new(regions.into_iter().collect::<DictionaryArray<Int16Type>>())),
    ]);
    let (events, rejected, filtered) = read(plan, &rows);
    assert_eq!((events.records, filtered, rejected.len(), rejected[0].record), (vec![1], 2, 1, 4));
}

#[test]
fn columns_that_can_never_be_what_is_wanted_are_refused_before_any_row() {
    let rows = batch(vec![
        ("t", Arc::new(TimestampSecondArray::from(vec![1]))),
        ("i", Arc::new(Int32Array::from(vec![1]))),
        ("f", Arc::new(Float64Array::from(vec![1.0]))),
        ("s", Arc::new(StringArray::from(vec!["x"]))),
        ("b", Arc::new(BooleanArray::from(vec![true]))),
        ("x", Arc::new(BinaryArray::from_vec(vec![b"x"]))),
        ("z", Arc::new(NullArray::new(1))),
    ]);
    let plan = || ParsePlan::new("t", TimeFormat::Column);
    let int = |field: &str| vec![KeyField { field: field.to_owned(), key_type: KeyType::Int }];
    let cases = [
        (
            ParsePlan::new("i", TimeFormat::Column),
            "column `i` holds integers where a time is to be read (say what they count: `format = \"epoch_s\"`",
        ),
        (
            ParsePlan::new("s", TimeFormat::Column),
            "column `s` holds text where a time is to be read (say how it is written",
        ),
        (
            ParsePlan::new("t", TimeFormat::Rfc3339),
            "column `t` holds timestamps or dates where the time has a declared format (remove `format`",
        ),
        (
            ParsePlan::new("s", TimeFormat::Epoch(EpochUnit::Millis)),
            "column `s` holds text where the time is a number",
        ),
        (
            ParsePlan::new("f", TimeFormat::Epoch(EpochUnit::Seconds)),
            "column `f` holds floats where a time is to be read",
        ),
        (
            plan().value("f", InputType::Int),
            "column `f` holds floats where type int is declared (declare `type = \"float\"`)",
        ),
        (plan().value("s", InputType::Float), "column `s` holds text where type float is declared"),
        (
            plan().value("b", InputType::Decimal(2)),
            "column `b` holds booleans where type decimal(2) is declared",
        ),
        (plan().value("x", InputType::Text), "column `x` is Binary, which no event is made of"),
        (plan().typed_key(int("s")), "column `s` holds text where the key is an int"),
        (plan().key(&["regoin"]), "there is no column `regoin`"),
    ];
    for (plan, message) in cases {
        let said = refused(plan, &rows);
        assert!(said.contains(message), "{said}");
    }
    let (events, ..) = read(plan().value("z", InputType::Int).value("i", InputType::Text), &rows);
    assert_eq!((events.values[0].get(0), events.values[1].get(0)), (None, Some(Datum::Text(b"1"))));
}

#[test]
fn batches_of_another_schema_are_refused() {
    let rows = batch(vec![("t", Arc::new(TimestampSecondArray::from(vec![1])))]);
    let mut reader = ColumnarReader::new(ParsePlan::new("t", TimeFormat::Column), &rows.schema()).unwrap();
    let other = batch(vec![("t", Arc::new(Int64Array::from(vec![1])))]);
    let mut into = reader.batch(PartitionId(0));
    let error = reader.read(&other, 1, &mut into, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("another schema"), "{error}");
    assert!(into.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]
    #[test]
    fn what_is_read_of_columns_is_what_is_read_of_their_rows_as_lines(bytes in prop::collection::vec(any::<u8>(), 0..900)) {
        fuzzing::columns(&bytes);
    }
}
