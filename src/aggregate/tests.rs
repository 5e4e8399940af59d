//! The laws, tried on every aggregate with a state of variable size, over values of every type.

use proptest::prelude::*;

use super::distinct::{ApproxDistinct, Distinct};
use super::ordered::{Collect, Extreme, Pick};
use super::quantile::Quantile;
use super::top::TopK;
use super::*;
use crate::event::PartitionId;
use crate::event_time::EventTime;

/// A value that owns its text.
#[derive(Clone, Debug)]
enum Owned {
    Int(i64),
    Float(f64),
    Decimal(i64),
    Text(Vec<u8>),
}

impl Owned {
    fn datum(&self) -> Datum<'_> {
        match self {
            Self::Int(value) => Datum::Int(*value),
            Self::Float(value) => Datum::Float(*value),
            Self::Decimal(unscaled) => Datum::Decimal { unscaled: *unscaled, scale: 2 },
            Self::Text(text) => Datum::Text(text),
        }
    }
}

/// Events of one type of value, at times that often coincide.
fn events() -> impl Strategy<Value = Vec<(Owned, i64, u32, u64)>> {
    let int = prop_oneof![-5..5_i64, any::<i64>()].prop_map(Owned::Int).boxed();
    let special = [f64::NAN, 0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, 1e-310];
    let float = prop_oneof![prop::sample::select(special.to_vec()), -100.0..100.0_f64, any::<f64>()];
    let float = float.prop_map(Owned::Float).boxed();
    let decimal = (-500..500_i64).prop_map(Owned::Decimal).boxed();
    let text = prop::collection::vec(0x61..0x64_u8, 0..3).prop_map(Owned::Text).boxed();
    prop::sample::select(vec![int, float, decimal, text])
        .prop_flat_map(|value| prop::collection::vec((value, -3..3_i64, 0..2_u32, 0..3_u64), 0..24))
}

fn check(aggregate: &impl Aggregate, events: &[(Owned, i64, u32, u64)]) -> Result<(), TestCaseError> {
    let observations: Vec<Observation<'_>> = events
        .iter()
        .map(|(value, time, partition, record)| Observation {
            value: value.datum(),
            time: EventTime::from_millis(*time),
            partition: PartitionId(*partition),
            record: *record,
        })
        .collect();
    laws::check(aggregate, &observations)
        .map_err(|broken| TestCaseError::fail(format!("{}: {broken}", Aggregate::name(aggregate))))
}

proptest! {
    #[test]
    fn every_aggregate_keeps_the_laws(events in events()) {
        // Bounds small enough to be met now and then.
        for beyond in [Beyond::Null, Beyond::Estimate] {
            check(&Distinct { limit: 5, beyond }, &events)?;
        }
        check(&ApproxDistinct { precision: 6 }, &events)?;
        check(&TopK { k: 2, limit: 6 }, &events)?;
        check(&Quantile { quantile: Fraction::from_millionths(300_000).unwrap() }, &events)?;
        for keep in [Keep::First, Keep::Last] {
            check(&Pick { keep }, &events)?;
            check(&Collect { limit: 4, keep }, &events)?;
        }
        check(&Extreme { greatest: false }, &events)?;
        check(&Extreme { greatest: true }, &events)?;
    }

    #[test]
    fn stored_states_of_any_bytes_are_refused_or_usable(bytes in prop::collection::vec(any::<u8>(), 0..200), tag in 0_u8..4) {
        let mut tagged = bytes.clone();
        if let Some(first) = tagged.first_mut() {
            *first = tag;
        }
        fn try_one<A: Aggregate>(aggregate: &A, bytes: &[u8]) {
            if let Ok(mut state) = aggregate.decode(bytes) {
                aggregate.merge(&mut state, &aggregate.identity());
                let _ = (aggregate.finish(&state), aggregate.heap_bytes(&state));
            }
        }
        for bytes in [&bytes, &tagged] {
            try_one(&Distinct { limit: 50, beyond: Beyond::Estimate }, bytes);
            try_one(&ApproxDistinct { precision: 4 }, bytes);
            try_one(&TopK { k: 2, limit: 6 }, bytes);
            try_one(&Quantile { quantile: Fraction::HALF }, bytes);
            try_one(&Pick { keep: Keep::Last }, bytes);
            try_one(&Collect { limit: 4, keep: Keep::First }, bytes);
            try_one(&Extreme { greatest: true }, bytes);
        }
    }
}

fn stored<A: Aggregate>(aggregate: &A, values: &[Datum<'_>]) -> Vec<u8> {
    let mut state = aggregate.identity();
    laws::at_different_times(values).iter().for_each(|event| aggregate.update(&mut state, event));
    let mut bytes = Vec::new();
    aggregate.encode(&state, &mut bytes);
    bytes
}

#[test]
fn states_are_stored_as_the_format_says() {
    let first = Pick { keep: Keep::First };
    let last = Pick { keep: Keep::Last };
    assert!(stored(&first, &[]).is_empty());
    assert_eq!(stored(&first, &[Datum::Int(5)]), [0, 0, 1, 0, 10]);
    assert_eq!(stored(&last, &[Datum::Int(5), Datum::Int(-1)]), [0xd0, 0x0f, 0, 2, 0, 1]);
    assert_eq!(stored(&first, &[Datum::Decimal { unscaled: -25, scale: 2 }]), [0, 0, 1, 2, 2, 0x31]);
    assert_eq!(stored(&first, &[Datum::Float(1.5)]), [0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f]);
    let distinct = Distinct { limit: 2, beyond: Beyond::Null };
    assert_eq!(stored(&distinct, &[Datum::Int(5), Datum::Int(-1)]), [0, 2, 0, 1, 0, 10]);
    assert_eq!(stored(&distinct, &[1, 2, 3].map(Datum::Int)), [2]);
    let top = TopK { k: 1, limit: 9 };
    assert_eq!(stored(&top, &[Datum::Text(b"a"), Datum::Text(b"a")]), [1, 3, 1, b'a', 2]);
    let quantile = Quantile { quantile: Fraction::HALF };
    assert_eq!(stored(&quantile, &[1.0, -1.0, 0.0].map(Datum::Float)), [0, 1, 0, 1, 0, 1, 0, 1]);
    let sketch = stored(&ApproxDistinct { precision: 4 }, &[Datum::Text(b"abc")]);
    assert_eq!(sketch, [4, 0, 0x50, 0x39, 0x2f, 0x89, 0x94, 0x5f, 0xaf, 0x78]);
    assert_eq!(stored(&Extreme { greatest: true }, &[Datum::Text(b"x")]), [1, b'x']);
    assert_eq!(
        stored(&Collect { limit: 2, keep: Keep::First }, &[7, 8, 9].map(Datum::Int)),
        [0, 0, 1, 0, 14, 0xd0, 0x0f, 0, 2, 0, 16]
    );
}

fn finished<A: Aggregate>(aggregate: &A, values: &[Datum<'_>]) -> Value {
    let mut state = aggregate.identity();
    laws::at_different_times(values).iter().for_each(|event| aggregate.update(&mut state, event));
    aggregate.finish(&state)
}

#[test]
fn a_count_of_different_values_beyond_its_limit_is_null_or_an_estimate() {
    let values: Vec<Datum<'_>> = (0..40).map(|value| Datum::Int(value % 20)).collect();
    let distinct = |limit, beyond| finished(&Distinct { limit, beyond }, &values);
    assert_eq!(distinct(20, Beyond::Null), Value::Int(20));
    assert_eq!(distinct(19, Beyond::Null), Value::Null);
    assert_eq!(distinct(19, Beyond::Estimate), Value::Int(20));
    let zeros = [Datum::Float(0.0), Datum::Float(-0.0), Datum::Float(f64::NAN), Datum::Float(-f64::NAN)];
    assert_eq!(finished(&Distinct { limit: 9, beyond: Beyond::Null }, &zeros), Value::Int(2));
}

#[test]
fn the_most_frequent_values_come_first_and_ties_by_value() {
    let values = [b"b", b"a", b"c", b"c", b"b", b"a", b"b"].map(|text: &[u8; 1]| Datum::Text(text));
    let Value::List(top) = finished(&TopK { k: 2, limit: 3 }, &values) else { panic!("no list") };
    let shown: Vec<String> = top.iter().map(ToString::to_string).collect();
    assert_eq!(shown, [r#"{"value":"b","count":3}"#, r#"{"value":"a","count":2}"#]);
    assert_eq!(finished(&TopK { k: 2, limit: 2 }, &values), Value::Null);
}

#[test]
fn lists_are_in_the_order_of_time_and_keep_one_end() {
    let values = [3, 1, 2].map(Datum::Int);
    let mut events = laws::at_different_times(&values);
    events.reverse();
    let list = |limit, keep| {
        let collect = Collect { limit, keep };
        let mut state = collect.identity();
        events.iter().for_each(|event| Aggregate::update(&collect, &mut state, event));
        Aggregate::finish(&collect, &state).to_string()
    };
    assert_eq!(list(3, Keep::First), "[3,1,2]");
    assert_eq!(list(2, Keep::First), "[3,1]");
    assert_eq!(list(2, Keep::Last), "[1,2]");
}

#[test]
fn specs_that_cannot_be_computed_say_why() {
    let over = |function, kind| AggregateSpec::over("a", function, "f", kind, 0).check();
    assert_eq!(over(Function::Sum, InputType::Decimal(2)), Ok(()));
    for (function, kind, why) in [
        (Function::Sum, InputType::Text, "sum does not work with values of type string"),
        (Function::Stddev, InputType::Text, "stddev does not work"),
        (Function::Sum, InputType::Decimal(19), "at most 18 digits"),
        (Function::Defined, InputType::Int, "missing"),
        (Function::Collect { limit: 0, keep: Keep::First }, InputType::Int, "from 1 to 100000"),
        (Function::TopK { k: 11, limit: 10 }, InputType::Int, "k=11 limit=10"),
        (Function::ApproxDistinct { precision: 19 }, InputType::Int, "from 4 to 18"),
    ] {
        let found = over(function, kind).unwrap_err();
        assert!(found.contains(why), "{found}");
    }
    let sum =
        AggregateSpec { input: None, ..AggregateSpec::over("a", Function::Sum, "f", InputType::Int, 0) };
    assert!(sum.check().unwrap_err().contains("needs a field"));
}
