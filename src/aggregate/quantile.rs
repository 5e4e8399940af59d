//! Quantiles by DDSketch (Masson, Rim, Lee 2019): values are counted in buckets whose bounds grow by a fixed factor,
//! so that an answer is off by at most 1 % of itself.
//!
//! Buckets are never joined: merging adds counts, and the result does not depend on any order. Doubles reach over at
//! most 70,000 buckets on each side of zero; values of one kind take some hundred.

use std::collections::BTreeMap;

use super::bytes::{Reader, put_signed, put_varint};
use super::{Aggregate, Fraction, InputType, Observation, StateError, Value};
use crate::event::Datum;

/// The relative error.
const ACCURACY: f64 = 0.01;
/// Smaller values count as zero: the buckets end there.
const SMALLEST: f64 = 1e-300;
/// About what a node of a sorted map takes per bucket.
const BUCKET_BYTES: usize = 24;

/// How many values were below, at and above zero, in buckets of growing width.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Buckets {
    negative: BTreeMap<i32, u64>,
    zero: u64,
    positive: BTreeMap<i32, u64>,
    below: u64,
    above: u64,
}

fn growth() -> f64 {
    (1.0 + ACCURACY) / (1.0 - ACCURACY)
}

/// The bucket of a finite positive value.
fn bucket(value: f64) -> i32 {
    // Within ±70,000 for every double.
    (value.ln() / growth().ln()).ceil() as i32
}

/// The value in the middle of a bucket, no further than the accuracy from each value in it.
fn middle(bucket: i32) -> f64 {
    let growth = growth();
    // The power of the largest bucket is beyond the largest double, its middle is not always.
    (growth.powf(f64::from(bucket) - 1.0) * (2.0 * growth / (growth + 1.0))).min(f64::MAX)
}

impl Buckets {
    fn insert(&mut self, value: f64) {
        let count = if value.is_nan() {
            return;
        } else if value == f64::INFINITY {
            &mut self.above
        } else if value == f64::NEG_INFINITY {
            &mut self.below
        } else if value.abs() < SMALLEST {
            &mut self.zero
        } else if value > 0.0 {
            self.positive.entry(bucket(value)).or_default()
        } else {
            self.negative.entry(bucket(-value)).or_default()
        };
        *count = count.saturating_add(1);
    }

    fn merge(&mut self, other: &Self) {
        for (own, theirs) in [(&mut self.negative, &other.negative), (&mut self.positive, &other.positive)] {
            for (&bucket, &count) in theirs {
                let own = own.entry(bucket).or_default();
                *own = own.saturating_add(count);
            }
        }
        self.zero = self.zero.saturating_add(other.zero);
        self.below = self.below.saturating_add(other.below);
        self.above = self.above.saturating_add(other.above);
    }

    /// Counts with their values, from the lowest.
    fn ascending(&self) -> impl Iterator<Item = (u64, f64)> + '_ {
        let negative = self.negative.iter().rev().map(|(&bucket, &count)| (count, -middle(bucket)));
        let positive = self.positive.iter().map(|(&bucket, &count)| (count, middle(bucket)));
        [(self.below, f64::NEG_INFINITY)]
            .into_iter()
            .chain(negative)
            .chain([(self.zero, 0.0)])
            .chain(positive)
            .chain([(self.above, f64::INFINITY)])
    }

    /// The value of rank ⌊q (n − 1)⌋, counted from 0; `None` without values.
    fn quantile(&self, quantile: Fraction) -> Option<f64> {
        let total: u128 = self.ascending().map(|(count, _)| u128::from(count)).sum();
        let rank = quantile.of(total.checked_sub(1)?);
        let mut passed = 0;
        self.ascending().find_map(|(count, value)| {
            passed += u128::from(count);
            (passed > rank).then_some(value)
        })
    }
}

/// The value that a given part of the values does not exceed.
#[derive(Debug)]
pub(super) struct Quantile {
    pub(super) quantile: Fraction,
}

impl Aggregate for Quantile {
    type State = Buckets;

    fn name(&self) -> String {
        format!("quantile(q={})", self.quantile)
    }

    fn version(&self) -> u32 {
        1
    }

    fn state_name(&self) -> String {
        format!("ddsketch(accuracy={ACCURACY})")
    }

    fn accepts(&self, input: InputType) -> bool {
        input.is_number()
    }

    fn identity(&self) -> Buckets {
        Buckets::default()
    }

    fn update(&self, state: &mut Buckets, event: &Observation<'_>) {
        match event.value {
            Datum::Int(value) => state.insert(value as f64),
            Datum::Float(value) => state.insert(value),
            Datum::Decimal { unscaled, scale } => {
                state.insert(unscaled as f64 / 10_f64.powi(i32::from(scale)));
            }
            Datum::Text(_) => {}
        }
    }

    fn merge(&self, state: &mut Buckets, other: &Buckets) {
        state.merge(other);
    }

    fn finish(&self, state: &Buckets) -> Value {
        state.quantile(self.quantile).map_or(Value::Null, Value::Float)
    }

    fn encode(&self, state: &Buckets, bytes: &mut Vec<u8>) {
        for count in [state.below, state.zero, state.above] {
            put_varint(bytes, count);
        }
        put_varint(bytes, state.negative.len() as u64);
        for (&bucket, &count) in state.negative.iter().chain(&state.positive) {
            put_signed(bytes, i64::from(bucket));
            put_varint(bytes, count);
        }
    }

    fn decode(&self, bytes: &[u8]) -> Result<Buckets, StateError> {
        let mut reader = Reader(bytes);
        let (below, zero, above) = (reader.varint()?, reader.varint()?, reader.varint()?);
        let mut state = Buckets { below, zero, above, ..Buckets::default() };
        let mut negative = reader.varint()?;
        while !reader.is_empty() {
            let bucket = reader.signed()?;
            let bucket = i32::try_from(bucket).map_err(|_| StateError("a bucket is out of range"))?;
            let buckets = if negative > 0 { &mut state.negative } else { &mut state.positive };
            negative = negative.saturating_sub(1);
            if buckets.insert(bucket, reader.varint()?).is_some() {
                return Err(StateError("a bucket is there twice"));
            }
        }
        if negative > 0 { Err(StateError("buckets are missing")) } else { Ok(state) }
    }

    fn heap_bytes(&self, state: &Buckets) -> usize {
        (state.negative.len() + state.positive.len()) * BUCKET_BYTES
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_answer_is_off_by_at_most_one_hundredth_of_the_value_of_its_rank(
            mut values in prop::collection::vec(
                prop_oneof![-1e3..1e3_f64, Just(0.0), -1e300..1e300_f64, 1e-9..1e-3_f64], 1..200
            ),
            millionths in 0_u32..=1_000_000,
        ) {
            let quantile = Fraction::from_millionths(millionths).unwrap();
            let mut buckets = Buckets::default();
            values.iter().for_each(|&value| buckets.insert(value));
            values.sort_by(f64::total_cmp);
            let exact = values[quantile.of(values.len() as u128 - 1) as usize];
            let found = buckets.quantile(quantile).unwrap();
            prop_assert!((found - exact).abs() <= exact.abs() * (ACCURACY + 1e-9), "{} for {}", found, exact);
        }
    }

    #[test]
    fn the_ends_of_the_doubles_have_buckets() {
        for value in [f64::MAX, f64::MIN_POSITIVE, SMALLEST, 1.0] {
            let mut buckets = Buckets::default();
            buckets.insert(-value);
            buckets.insert(f64::NAN);
            let found = buckets.quantile(Fraction::from_millionths(0).unwrap()).unwrap();
            let expected = if value < SMALLEST { 0.0 } else { value };
            assert!((-found - expected).abs() <= expected * 0.0101, "{found} for {value}");
            assert!(bucket(value).abs() < 70_000);
        }
    }
}
