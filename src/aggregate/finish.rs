//! How the value of one aggregate is read out of a row.

use std::sync::Arc;

use super::Value;
use super::define::Erased;
use super::number::ExactFloat;
use super::primitive::{float_sum, int_sum, squares};
use super::wide::squared_distances;

/// Digits that the average of decimals has beyond theirs.
pub(crate) const AVG_DIGITS: u8 = 4;

/// Where an aggregate's value is, and what it is.
#[derive(Clone, Debug)]
pub(super) enum Finish {
    /// Events.
    Rows,
    /// Values that are not null.
    Present(usize),
    /// Null without values, else this.
    Value { present: usize, what: What, of: Of },
    /// Of a state; `sketch` is its index in the layout.
    Sketch { sketch: usize, code: Arc<dyn Erased> },
}

/// What is computed, and the first of the words that hold it.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    Word(usize),
    Sum(usize),
    Avg(usize),
    Spread { sum: usize, squares: usize, sample: bool, root: bool },
}

/// What the values are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Of {
    Ints,
    Floats,
    Decimals(u8),
}

impl Finish {
    /// The value in the words of a row; null for that of a state, which is not in them.
    pub(super) fn value(&self, row: &[u64]) -> Value {
        match *self {
            Self::Rows => Value::Int(i128::from(row[0])),
            Self::Present(present) => Value::Int(i128::from(row[present])),
            Self::Value { present, .. } if row[present] == 0 => Value::Null,
            Self::Value { present, what, of } => what.value(of, row, row[present]),
            Self::Sketch { .. } => Value::Null,
        }
    }
}

impl What {
    fn value(self, of: Of, row: &[u64], count: u64) -> Value {
        match (self, of) {
            (Self::Word(word), Of::Floats) => Value::Float(f64::from_bits(row[word])),
            (Self::Word(word), of) => whole(i128::from(row[word] as i64), of),
            (Self::Sum(word), Of::Floats) => Value::Float(float_sum(row, word).value()),
            (Self::Sum(word), of) => whole(int_sum(row, word), of),
            (Self::Avg(word), Of::Floats) => Value::Float(float_sum(row, word).value() / count as f64),
            (Self::Avg(word), Of::Ints) => Value::Float(int_average(int_sum(row, word), count)),
            (Self::Avg(word), Of::Decimals(scale)) => decimal_average(int_sum(row, word), count, scale),
            (Self::Spread { sample: true, .. }, _) if count < 2 => Value::Null,
            (Self::Spread { sum, squares: words, sample, root }, of) => {
                let distances = match of {
                    Of::Floats => float_distances(count, float_sum(row, sum), float_sum(row, words)),
                    Of::Ints => squared_distances(count, int_sum(row, sum), squares(row, words)),
                    Of::Decimals(scale) => {
                        let distances = squared_distances(count, int_sum(row, sum), squares(row, words));
                        distances / 10_f64.powi(2 * i32::from(scale))
                    }
                };
                let variance = distances / (count - u64::from(sample)) as f64;
                Value::Float(if root { variance.sqrt() } else { variance })
            }
        }
    }
}

fn whole(value: i128, of: Of) -> Value {
    match of {
        Of::Decimals(scale) => Value::Decimal { unscaled: value, scale },
        Of::Ints | Of::Floats => Value::Int(value),
    }
}

/// The double nearest to the exact quotient.
fn int_average(sum: i128, count: u64) -> f64 {
    const EXACT: u128 = 1 << 53;
    let (digits, divisor) = (sum.unsigned_abs(), u128::from(count.max(1)));
    let size = if digits <= EXACT && divisor <= EXACT {
        digits as f64 / divisor as f64
    } else {
        // Enough bits of the quotient for a double, and one more that says whether anything is left: then turning it
        // into a double rounds as the quotient itself would be rounded.
        let bits = |number: u128| u128::BITS - number.leading_zeros();
        let shift = (56 + bits(divisor)).saturating_sub(bits(digits));
        let (shifted, power) = (digits << shift, 2_f64.powi(-(shift as i32) - 1));
        let rest = u128::from(shifted % divisor != 0);
        ((shifted / divisor) << 1 | rest) as f64 * power
    };
    if sum < 0 { -size } else { size }
}

/// The average with more digits than the values, the last rounded half to even. Of events it cannot overflow: the whole
/// part is one of 64 bits, the rest smaller than the count. That of a damaged pane stops at the greatest number.
fn decimal_average(sum: i128, count: u64, scale: u8) -> Value {
    let count = i128::from(count);
    let more = 10_i128.pow(u32::from(AVG_DIGITS));
    let (whole, rest) = (sum.div_euclid(count), sum.rem_euclid(count) * more);
    let (digits, rest) = (whole.saturating_mul(more).saturating_add(rest / count), rest % count);
    let up = match (rest * 2).cmp(&count) {
        std::cmp::Ordering::Less => false,
        std::cmp::Ordering::Equal => digits % 2 != 0,
        std::cmp::Ordering::Greater => true,
    };
    Value::Decimal { unscaled: digits.saturating_add(i128::from(up)), scale: scale + AVG_DIGITS }
}

/// The sum of squared distances from the mean, from sums that are wide enough for what cancels. Rounding may leave it
/// just below zero.
fn float_distances(count: u64, sum: ExactFloat, squares: ExactFloat) -> f64 {
    let distances = squares.merge(sum.squared().divided_by(count as f64).negated()).value();
    if distances < 0.0 { 0.0 } else { distances }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_of_large_sums_keep_their_digits() {
        assert_eq!(int_average(i128::from(i64::MAX) * 3, 3), i64::MAX as f64);
        assert_eq!(int_average(-7, 2), -3.5);
        assert_eq!(int_average(1, 4), 0.25);
    }

    #[test]
    fn averages_of_decimals_are_rounded_half_to_even() {
        let average = |sum, count| match decimal_average(sum, count, 0) {
            Value::Decimal { unscaled, scale: 4 } => unscaled,
            other => panic!("{other:?}"),
        };
        assert_eq!(average(1, 3), 3_333);
        assert_eq!(average(2, 3), 6_667);
        // 0.00005 and 0.00015
        assert_eq!((average(1, 20_000), average(3, 20_000)), (0, 2));
        assert_eq!((average(-1, 20_000), average(-3, 20_000)), (0, -2));
        assert_eq!(average(-1, 3), -3_333);
        assert_eq!(
            average(i128::from(i64::MIN) * i128::from(u64::MAX), u64::MAX),
            i128::from(i64::MIN) * 10_000
        );
        assert_eq!((average(i128::MIN, 1), average(i128::MAX, 1)), (i128::MIN, i128::MAX));
    }

    #[test]
    fn the_spread_of_floats_far_from_zero_is_exact() {
        let values = [1e9 + 1.0, 1e9 + 2.0, 1e9 + 3.0, 1e9 + 4.0];
        let sum = values.iter().fold(ExactFloat::ZERO, |sum, &value| sum.plus(value));
        let squares =
            values.iter().fold(ExactFloat::ZERO, |sum, &value| sum.merge(ExactFloat::square(value)));
        assert_eq!(float_distances(4, sum, squares), 5.0);
    }
}
