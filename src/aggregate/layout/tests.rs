//! Laws of rows: splits, orders, identity, storing.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::aggregate::{Aggregate, Datum, Observation, RowMut, RowRef, StateError, laws};
use crate::event::ValueColumn;

fn everything() -> Vec<AggregateSpec> {
    let functions = [Function::Count, Function::Sum, Function::Min, Function::Max, Function::Avg];
    let over = |kind: InputType, column| {
        functions.map(|f| {
            AggregateSpec::over(&format!("{}_{}", f.name(), kind.name()), f, kind.name(), kind, column)
        })
    };
    [AggregateSpec::count("rows")]
        .into_iter()
        .chain(over(InputType::Int, 0))
        .chain(over(InputType::Float, 1))
        .collect()
}

type Event = (Option<i64>, Option<f64>);

/// A row with a slab of its own.
#[derive(Clone, Debug)]
struct Row {
    words: Vec<u64>,
    sketches: Sketches,
}

impl Row {
    fn identity(layout: &Layout) -> Self {
        Self { words: layout.identity().to_vec(), sketches: Sketches::default() }
    }

    fn get<'a>(&'a self, layout: &'a Layout) -> RowRef<'a> {
        RowRef::new(layout, &self.words, &self.sketches)
    }

    fn get_mut<'a>(&'a mut self, layout: &'a Layout) -> RowMut<'a> {
        RowMut::new(layout, &mut self.words, &mut self.sketches)
    }
}

fn row_of(layout: &Layout, events: &[Event]) -> Row {
    let mut batch =
        EventBatch { values: vec![ValueColumn::int(), ValueColumn::float()], ..EventBatch::default() };
    for &(int, float) in events {
        match int {
            Some(value) => batch.values[0].push_int(value),
            None => batch.values[0].push_null(),
        }
        match float {
            Some(value) => assert!(batch.values[1].push_float(value)),
            None => batch.values[1].push_null(),
        }
    }
    let touches: Vec<Touch> = (0..events.len()).map(|event| Touch { row: 0, event: event as u32 }).collect();
    let mut row = Row::identity(layout);
    layout.update(&mut row.words, &mut row.sketches, &touches, &batch);
    row
}

fn merged(layout: &Layout, left: &Row, right: &Row) -> Row {
    let mut row = left.clone();
    row.get_mut(layout).merge(right.get(layout));
    row
}

fn values(layout: &Layout, row: &Row) -> Vec<Value> {
    let mut values = Vec::new();
    row.get(layout).finish(&mut values);
    values
}

fn payload(layout: &Layout, row: &Row) -> Vec<u8> {
    let mut bytes = Vec::new();
    row.get(layout).write_payload(&mut bytes);
    bytes
}

/// The number of different values; exact and without bound.
#[derive(Debug)]
struct Different;

impl Aggregate for Different {
    type State = BTreeSet<i64>;

    fn name(&self) -> String {
        "different".to_owned()
    }

    fn version(&self) -> u32 {
        1
    }

    fn identity(&self) -> BTreeSet<i64> {
        BTreeSet::new()
    }

    fn update(&self, state: &mut BTreeSet<i64>, event: &Observation<'_>) {
        if let Datum::Int(value) = event.value {
            state.insert(value);
        }
    }

    fn merge(&self, state: &mut BTreeSet<i64>, other: &BTreeSet<i64>) {
        state.extend(other);
    }

    fn finish(&self, state: &BTreeSet<i64>) -> Value {
        Value::Int(state.len() as i128)
    }

    fn encode(&self, state: &BTreeSet<i64>, bytes: &mut Vec<u8>) {
        state.iter().for_each(|value| bytes.extend_from_slice(&value.to_le_bytes()));
    }

    fn decode(&self, bytes: &[u8]) -> Result<BTreeSet<i64>, StateError> {
        let (chunks, []) = bytes.as_chunks::<8>() else { return Err(StateError("not whole numbers")) };
        Ok(chunks.iter().map(|chunk| i64::from_le_bytes(*chunk)).collect())
    }

    fn heap_bytes(&self, state: &BTreeSet<i64>) -> usize {
        state.len() * 12
    }
}

fn with_state() -> Layout {
    let mut aggregates = everything();
    aggregates.insert(1, AggregateSpec::defined("different", Different, "int", InputType::Int, 0));
    Layout::with_extra(&aggregates, &[7, 8])
}

/// NaN equals NaN here: the question is whether two ways lead to the same result.
fn same(a: &[Value], b: &[Value]) -> bool {
    format!("{a:?}") == format!("{b:?}")
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let special = prop_oneof![
        Just(f64::NAN),
        Just(0.0),
        Just(-0.0),
        Just(f64::INFINITY),
        Just(1e16),
        Just(-1e16),
        -1e3..1e3_f64
    ];
    let int = prop_oneof![Just(i64::MAX), Just(i64::MIN), any::<i64>(), -5..5_i64];
    prop::collection::vec((prop::option::of(int), prop::option::of(special)), 0..12)
}

proptest! {
    #[test]
    fn merging_any_split_in_any_order_is_the_whole(
        (events, cut) in events().prop_flat_map(|e| { let n = e.len(); (Just(e), 0..=n) })
    ) {
        for layout in [Layout::new(&everything()), with_state()] {
            let whole = row_of(&layout, &events);
            let (left, right) = (row_of(&layout, &events[..cut]), row_of(&layout, &events[cut..]));
            let forward = merged(&layout, &left, &right);
            let backward = merged(&layout, &right, &left);
            let with_identity = merged(&layout, &Row::identity(&layout), &forward);
            let mut read_back = Row::identity(&layout);
            read_back.get_mut(&layout).read_payload(&payload(&layout, &whole)).unwrap();
            let mut assigned = right.clone();
            assigned.get_mut(&layout).assign(whole.get(&layout));
            let expected = values(&layout, &whole);
            for row in [&forward, &backward, &with_identity, &read_back, &assigned] {
                let found = values(&layout, row);
                prop_assert!(same(&found, &expected), "{found:?} != {expected:?}");
                prop_assert!(row.sketches.len() <= 1);
            }
        }
    }

    #[test]
    fn integer_sums_are_exact(ints in prop::collection::vec(any::<i64>(), 1..50)) {
        let layout = Layout::new(&[AggregateSpec::over("s", Function::Sum, "v", InputType::Int, 0)]);
        let events: Vec<Event> = ints.iter().map(|&int| (Some(int), None)).collect();
        let expected: i128 = ints.iter().map(|&int| i128::from(int)).sum();
        prop_assert_eq!(values(&layout, &row_of(&layout, &events)), vec![Value::Int(expected)]);
    }

    #[test]
    fn other_bytes_are_refused_and_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..400), format in 0_u8..4, at in 0_usize..400
    ) {
        for layout in [Layout::new(&everything()), with_state()] {
            let good = payload(&layout, &row_of(&layout, &[(Some(3), None), (Some(4), Some(1.5))]));
            let mut flipped = good.clone();
            let place = at % good.len();
            flipped[place] ^= format + 1;
            let mut other = bytes.clone();
            if let Some(first) = other.first_mut() {
                *first = format;
            }
            for bytes in [other, flipped, good[..place].to_vec()] {
                let mut row = row_of(&layout, &[(Some(9), None)]);
                let before = values(&layout, &row);
                match row.get_mut(&layout).read_payload(&bytes) {
                    Ok(()) => prop_assert_eq!(payload(&layout, &row).len(), bytes.len()),
                    Err(_) => prop_assert!(same(&values(&layout, &row), &before)),
                }
            }
        }
    }
}

#[test]
fn rows_without_states_are_stored_in_format_1_and_others_in_format_2() {
    let rows = Layout::new(&[AggregateSpec::count("rows")]);
    assert_eq!(payload(&rows, &row_of(&rows, &[(None, None)])), [&[1][..], &1_u64.to_le_bytes()].concat());
    let different = Layout::new(&[AggregateSpec::defined("d", Different, "v", InputType::Int, 0)]);
    let found = payload(&different, &row_of(&different, &[(Some(6), None)]));
    let words = [1_u64, 9, 6].map(u64::to_le_bytes).concat();
    assert_eq!(found, [&[2][..], &words].concat());
    let none = payload(&different, &row_of(&different, &[(None, None)]));
    assert_eq!(none, [&[2][..], &[1_u64, 0].map(u64::to_le_bytes).concat()].concat());
}

#[test]
fn resetting_a_row_drops_its_states_and_keeps_its_extra_words() {
    let layout = with_state();
    let mut row = row_of(&layout, &[(Some(1), Some(2.0))]);
    row.get_mut(&layout).extra_mut()[1] = 99;
    assert_eq!(row.sketches.len(), 1);
    row.get_mut(&layout).reset();
    assert_eq!(row.sketches.len(), 0);
    assert!(same(&values(&layout, &row), &values(&layout, &Row::identity(&layout))));
    assert_eq!(row.words[layout.words()..], [7, 99]);
}

#[test]
fn aggregates_with_the_same_state_share_it() {
    let twice = ["a", "b"].map(|name| AggregateSpec::defined(name, Different, "v", InputType::Int, 0));
    let layout = Layout::new(&twice);
    let row = row_of(&layout, &[(Some(1), None), (Some(2), None)]);
    assert_eq!((layout.words(), row.sketches.len()), (2, 1));
    assert_eq!(values(&layout, &row), [Value::Int(2), Value::Int(2)]);
}

#[test]
fn nulls_count_as_events_and_nothing_else() {
    let layout = Layout::new(&everything());
    let found = values(&layout, &row_of(&layout, &[(None, None), (Some(4), None)]));
    let int = |value| Value::Int(value);
    assert_eq!(found[..6], [int(2), int(1), int(4), int(4), int(4), Value::Float(4.0)]);
    assert_eq!(found[6..], [int(0), Value::Null, Value::Null, Value::Null, Value::Null]);
}

#[test]
fn aggregates_over_one_field_share_their_words() {
    let avg = AggregateSpec::over("a", Function::Avg, "v", InputType::Int, 0);
    let sum = AggregateSpec::over("s", Function::Sum, "v", InputType::Int, 0);
    assert_eq!(Layout::new(std::slice::from_ref(&avg)).words(), Layout::new(&[avg, sum]).words());
}

#[test]
fn swapping_names_functions_or_order_changes_the_fingerprint() {
    let min = |name: &str| AggregateSpec::over(name, Function::Min, "v", InputType::Int, 0);
    let max = |name: &str| AggregateSpec::over(name, Function::Max, "v", InputType::Int, 0);
    let print = |specs: &[AggregateSpec]| Layout::new(specs).fingerprint();
    let base = print(&[min("a"), max("b")]);
    assert_ne!(base, print(&[max("a"), min("b")]));
    assert_ne!(base, print(&[max("b"), min("a")]));
    assert_ne!(base, print(&[min("a")]));
    assert_eq!(base, print(&[min("a"), max("b")]));
}

/// Values of one column, as they come out of a layout.
fn of_column(
    mut column: ValueColumn,
    values: &[Datum<'_>],
    kind: InputType,
    functions: &[Function],
) -> Vec<Value> {
    let specs: Vec<AggregateSpec> =
        functions.iter().map(|&function| AggregateSpec::over("a", function, "v", kind, 0)).collect();
    let layout = Layout::new(&specs);
    assert!(values.iter().all(|&value| column.push(value)));
    let touches: Vec<Touch> = (0..values.len()).map(|event| Touch { row: 0, event: event as u32 }).collect();
    let times = (0..values.len() as i64).collect();
    let batch = EventBatch { times, values: vec![column], ..EventBatch::default() };
    let mut row = Row::identity(&layout);
    layout.update(&mut row.words, &mut row.sketches, &touches, &batch);
    self::values(&layout, &row)
}

const SPREAD: [Function; 4] =
    [Function::Variance, Function::VariancePop, Function::Stddev, Function::StddevPop];

#[test]
fn decimals_are_summed_compared_and_averaged_with_their_scale() {
    let prices = [1_050, -25, 1_000].map(|unscaled| Datum::Decimal { unscaled, scale: 2 });
    let functions =
        [Function::Sum, Function::Min, Function::Max, Function::Avg, Function::First, Function::Count];
    let found = of_column(ValueColumn::decimal(2), &prices, InputType::Decimal(2), &functions);
    let shown: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["20.25", "-0.25", "10.50", "6.750000", "10.50", "3"]);
}

#[test]
fn the_spread_of_integers_decimals_and_floats_is_the_same() {
    let expected =
        [Value::Float(2.5), Value::Float(2.0), Value::Float(2.5_f64.sqrt()), Value::Float(2_f64.sqrt())];
    let ints = [1, 2, 3, 4, 5].map(Datum::Int);
    assert_eq!(of_column(ValueColumn::int(), &ints, InputType::Int, &SPREAD), expected);
    let floats = [5.0, 4.0, 3.0, 2.0, 1.0].map(Datum::Float);
    assert_eq!(of_column(ValueColumn::float(), &floats, InputType::Float, &SPREAD), expected);
    let decimals = [100, 300, 200, 500, 400].map(|unscaled| Datum::Decimal { unscaled, scale: 2 });
    assert_eq!(of_column(ValueColumn::decimal(2), &decimals, InputType::Decimal(2), &SPREAD), expected);
    let one = of_column(ValueColumn::int(), &[Datum::Int(7)], InputType::Int, &SPREAD);
    assert_eq!(one, [Value::Null, Value::Float(0.0), Value::Null, Value::Float(0.0)]);
    let none = of_column(ValueColumn::int(), &[], InputType::Int, &SPREAD);
    assert!(none.iter().all(|value| *value == Value::Null));
}

#[test]
fn texts_have_a_least_and_a_greatest_and_are_counted() {
    let texts = [b"pear", b"fig\0", b"plum"].map(|text: &[u8; 4]| Datum::Text(text));
    let functions = [Function::Min, Function::Max, Function::Count, Function::Last];
    let found = of_column(ValueColumn::text(), &texts, InputType::Text, &functions);
    let text = |text: &str| Value::Text(text.to_owned());
    assert_eq!(found, [text("fig\0"), text("plum"), Value::Int(3), text("plum")]);
}

proptest! {
    #[test]
    fn the_spread_of_floats_does_not_depend_on_splits_beyond_rounding(
        floats in prop::collection::vec(1e6..1.000_001e6_f64, 2..30), cut in 0_usize..30,
    ) {
        let specs = SPREAD.map(|function| AggregateSpec::over("a", function, "f", InputType::Float, 1));
        let layout = Layout::new(&specs);
        let events: Vec<Event> = floats.iter().map(|&float| (None, Some(float))).collect();
        let cut = cut.min(events.len());
        let whole = values(&layout, &row_of(&layout, &events));
        let (left, right) = (row_of(&layout, &events[..cut]), row_of(&layout, &events[cut..]));
        for row in [merged(&layout, &left, &right), merged(&layout, &right, &left)] {
            for (found, expected) in values(&layout, &row).iter().zip(&whole) {
                prop_assert!(laws::same_value(found, expected), "{found:?} {expected:?}");
            }
        }
        // Against the definition, with the mean taken off first.
        let n = floats.len() as f64;
        let mean = floats.iter().map(|float| float - 1e6).sum::<f64>() / n;
        let variance = floats.iter().map(|float| (float - 1e6 - mean).powi(2)).sum::<f64>() / (n - 1.0);
        let Value::Float(found) = whole[0] else { panic!("{whole:?}") };
        prop_assert!((found - variance).abs() <= variance * 1e-9 + 1e-18, "{found} {variance}");
    }
}
