//! How the value of one aggregate is read out of a row.

use std::sync::Arc;

use super::Value;
use super::define::Erased;
use super::primitive::{float_sum, int_sum};

/// Where an aggregate's value is, and what it is. Without a value that is not null it is null.
#[derive(Clone, Debug)]
pub(super) enum Finish {
    Rows,
    Present(usize),
    Int {
        word: usize,
        present: usize,
    },
    Sum {
        word: usize,
        present: usize,
    },
    Float {
        word: usize,
        present: usize,
    },
    FloatSum {
        word: usize,
        present: usize,
    },
    AvgInt {
        word: usize,
        present: usize,
    },
    AvgFloat {
        word: usize,
        present: usize,
    },
    /// Of a state; `sketch` is its index in the layout.
    Sketch {
        sketch: usize,
        code: Arc<dyn Erased>,
    },
}

impl Finish {
    /// The value in the words of a row; null for that of a state, which is not in them.
    pub(super) fn value(&self, row: &[u64]) -> Value {
        match *self {
            Self::Rows => Value::Int(i128::from(row[0])),
            Self::Present(present) => Value::Int(i128::from(row[present])),
            Self::Int { present, .. }
            | Self::Sum { present, .. }
            | Self::Float { present, .. }
            | Self::FloatSum { present, .. }
            | Self::AvgInt { present, .. }
            | Self::AvgFloat { present, .. }
                if row[present] == 0 =>
            {
                Value::Null
            }
            Self::Int { word, .. } => Value::Int(i128::from(row[word] as i64)),
            Self::Sum { word, .. } => Value::Int(int_sum(row, word)),
            Self::Float { word, .. } => Value::Float(f64::from_bits(row[word])),
            Self::FloatSum { word, .. } => Value::Float(float_sum(row, word).value()),
            Self::AvgInt { word, present } => Value::Float(int_average(int_sum(row, word), row[present])),
            Self::AvgFloat { word, present } => {
                Value::Float(float_sum(row, word).value() / row[present] as f64)
            }
            Self::Sketch { .. } => Value::Null,
        }
    }
}

/// The average with the whole part taken exactly, so that large sums do not lose their low digits first.
fn int_average(sum: i128, count: u64) -> f64 {
    let count = i128::from(count);
    let (whole, rest) = (sum.div_euclid(count), sum.rem_euclid(count));
    whole as f64 + rest as f64 / count as f64
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
}
