//! The laws that an aggregate must keep, tried on examples. For tests of aggregates, built in or not.

use super::{Aggregate, Datum, Observation, Value};
use crate::event::PartitionId;
use crate::event_time::EventTime;

/// Bytes of other states that a decoder is given, beside damaged copies of real ones.
const NO_STATES: [&[u8]; 4] = [&[], &[0], &[0xff; 9], &[0x80; 40]];

/// Values as observations of one partition, a second apart, in this order.
#[must_use]
pub fn at_different_times<'a>(values: &[Datum<'a>]) -> Vec<Observation<'a>> {
    let at = |(index, &value): (usize, &Datum<'a>)| Observation {
        value,
        time: EventTime::from_millis(index as i64 * 1_000),
        partition: PartitionId(0),
        record: index as u64 + 1,
    };
    values.iter().enumerate().map(at).collect()
}

/// Tries the laws of [`Aggregate`] on these observations:
///
/// - merging with the identity, on either side, changes nothing;
/// - merging is commutative and associative;
/// - the observations may be cut anywhere, and taken in reverse: the merged parts give the result of the whole;
/// - what was stored and read back gives the same result, alone and merged;
/// - bytes that are no state are refused or read, but do not panic.
///
/// Results are compared, and floats in them by `1e-12` relative, since rounding is not associative.
///
/// # Errors
/// Which law is broken, with both results.
pub fn check<A: Aggregate>(aggregate: &A, events: &[Observation<'_>]) -> Result<(), String> {
    let whole = state_of(aggregate, events);
    let expected = aggregate.finish(&whole);
    let same = |law: &str, state: &A::State| compare(law, &aggregate.finish(state), &expected);
    same("merging the identity into a state", &merged(aggregate, &whole, &aggregate.identity()))?;
    same("merging a state into the identity", &merged(aggregate, &aggregate.identity(), &whole))?;
    let backwards: Vec<_> = events.iter().rev().copied().collect();
    same("the order of events", &state_of(aggregate, &backwards))?;
    for cut in cuts(events.len()) {
        let (left, right) = (state_of(aggregate, &events[..cut]), state_of(aggregate, &events[cut..]));
        same("a split", &merged(aggregate, &left, &right))?;
        same("commutativity", &merged(aggregate, &right, &left))?;
        same("storing parts", &merged(aggregate, &stored(aggregate, &left)?, &stored(aggregate, &right)?))?;
        for second in cuts(cut) {
            let first = state_of(aggregate, &events[..second]);
            let middle = state_of(aggregate, &events[second..cut]);
            let one = merged(aggregate, &merged(aggregate, &first, &middle), &right);
            same("associativity", &one)?;
            let other = merged(aggregate, &first, &merged(aggregate, &middle, &right));
            same("associativity", &other)?;
        }
    }
    same("storing", &stored(aggregate, &whole)?)?;
    damage(aggregate, &whole);
    Ok(())
}

/// True when two results are equal, floats in them up to rounding, NaN being equal to NaN.
#[must_use]
pub fn same_value(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Float(left), Value::Float(right)) => {
            left == right
                || (left.is_nan() && right.is_nan())
                || (left - right).abs() <= 1e-12 * left.abs().max(right.abs())
        }
        (Value::List(left), Value::List(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same_value(left, right))
        }
        (Value::Record(left), Value::Record(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|(left, right)| left.0 == right.0 && same_value(&left.1, &right.1))
        }
        _ => left == right,
    }
}

fn compare(law: &str, found: &Value, expected: &Value) -> Result<(), String> {
    if same_value(found, expected) {
        return Ok(());
    }
    Err(format!("{law} changes the result: found={found:?} expected={expected:?}"))
}

fn state_of<A: Aggregate>(aggregate: &A, events: &[Observation<'_>]) -> A::State {
    let mut state = aggregate.identity();
    events.iter().for_each(|event| aggregate.update(&mut state, event));
    state
}

fn merged<A: Aggregate>(aggregate: &A, left: &A::State, right: &A::State) -> A::State {
    let mut state = left.clone();
    aggregate.merge(&mut state, right);
    state
}

fn stored<A: Aggregate>(aggregate: &A, state: &A::State) -> Result<A::State, String> {
    let mut bytes = Vec::new();
    aggregate.encode(state, &mut bytes);
    aggregate.decode(&bytes).map_err(|error| format!("a stored state is not read back: {error}"))
}

/// Gives the decoder damaged bytes. Whatever it makes of them must be a state that can be worked with.
fn damage<A: Aggregate>(aggregate: &A, state: &A::State) {
    let mut bytes = Vec::new();
    aggregate.encode(state, &mut bytes);
    let use_it = |bytes: &[u8]| {
        if let Ok(state) = aggregate.decode(bytes) {
            let twice = merged(aggregate, &state, &state);
            let _ = aggregate.finish(&twice);
        }
    };
    NO_STATES.into_iter().for_each(use_it);
    for at in cuts(bytes.len()) {
        use_it(&bytes[..at]);
        let mut flipped = bytes.clone();
        if let Some(byte) = flipped.get_mut(at) {
            *byte ^= 0x81;
        }
        use_it(&flipped);
    }
}

/// Up to 17 places to cut a list of `length`, both ends included.
fn cuts(length: usize) -> impl Iterator<Item = usize> {
    let step = (length / 15).max(1);
    (0..length).step_by(step).chain([length])
}

#[cfg(test)]
mod tests {
    use super::super::StateError;
    use super::*;

    /// Breaks one law: the last merge wins.
    #[derive(Debug)]
    struct Forgetful;

    impl Aggregate for Forgetful {
        type State = i64;

        fn name(&self) -> String {
            "forgetful".to_owned()
        }

        fn version(&self) -> u32 {
            1
        }

        fn identity(&self) -> i64 {
            0
        }

        fn update(&self, state: &mut i64, event: &Observation<'_>) {
            if let Datum::Int(value) = event.value {
                *state = value;
            }
        }

        fn merge(&self, state: &mut i64, other: &i64) {
            if *other != 0 {
                *state = *other;
            }
        }

        fn finish(&self, state: &i64) -> Value {
            Value::Int(i128::from(*state))
        }

        fn encode(&self, state: &i64, bytes: &mut Vec<u8>) {
            bytes.extend_from_slice(&state.to_le_bytes());
        }

        fn decode(&self, bytes: &[u8]) -> Result<i64, StateError> {
            bytes.try_into().map(i64::from_le_bytes).map_err(|_| StateError("not eight bytes"))
        }
    }

    #[test]
    fn an_aggregate_that_depends_on_order_is_found() {
        let events = at_different_times(&[Datum::Int(1), Datum::Int(2)]);
        let broken = check(&Forgetful, &events).unwrap_err();
        assert!(broken.contains("order of events changes the result"), "{broken}");
    }
}
