//! The functions by name, their parameters and the bounds of these.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::InputType;
use super::define::Erased;
use super::distinct::{ApproxDistinct, Distinct};
use super::hyperloglog::{PRECISION_MAX, PRECISION_MIN};
use super::ordered::{Collect, Extreme, Pick};
use super::quantile::Quantile;
use super::top::TopK;

/// Most values that a state may be told to hold on to. All of them are one value of the state database.
pub const LIMIT_MAX: u32 = 100_000;
/// Bits that choose a register of [`Function::ApproxDistinct`].
pub const PRECISIONS: std::ops::RangeInclusive<u8> = PRECISION_MIN..=PRECISION_MAX;

/// What an aggregate computes of the events of a pane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Function {
    /// Number of events; with an input, of events whose value is not null.
    Count,
    /// Sum of the values that are not null: exact for integers and decimals, to about 100 bits for floats.
    Sum,
    /// Smallest value. NaN is left out unless there is nothing else; −0.0 is smaller than +0.0. Text by its bytes.
    Min,
    /// Largest value, with the same rule for NaN and zeros.
    Max,
    /// Sum divided by the number of values that are not null; of decimals with four more digits, rounded half to even.
    Avg,
    /// Variance of a sample: squared distances from the mean divided by n − 1; null for fewer than two values.
    Variance,
    /// Variance of a population: squared distances from the mean divided by n.
    VariancePop,
    /// Standard deviation of a sample.
    Stddev,
    /// Standard deviation of a population.
    StddevPop,
    /// Value of the first event by event time, then partition and record.
    First,
    /// Value of the last event by the same order.
    Last,
    /// Exact number of different values.
    Distinct {
        /// Different values up to which it is exact.
        limit: u32,
        /// What it is when there are more.
        beyond: Beyond,
    },
    /// Estimated number of different values, by HyperLogLog.
    ApproxDistinct {
        /// Bits that choose a register: the standard error is 1.04 / √2^precision.
        precision: u8,
    },
    /// The value that a part of the values does not exceed, to 1 % of itself.
    Quantile {
        /// Which part.
        q: Fraction,
    },
    /// The most frequent values with their counts.
    TopK {
        /// How many.
        k: u32,
        /// Different values up to which they are counted; null when there are more.
        limit: u32,
    },
    /// The values as a list, ordered as `First` does.
    Collect {
        /// Values up to which all are kept.
        limit: u32,
        /// Which are kept when there are more.
        keep: Keep,
    },
    /// What [`super::AggregateSpec::defined`] says: an aggregate that a program brings along.
    Defined,
}

/// What an exact count of different values is when there are more than its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Beyond {
    /// Null: better no number than one of another kind.
    #[default]
    Null,
    /// An estimate with a standard error of 0.8 %.
    Estimate,
}

impl Beyond {
    /// Lowercase name, as in a pipeline file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Estimate => "estimate",
        }
    }
}

/// Which end of an order is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Keep {
    /// The beginning.
    #[default]
    First,
    /// The end.
    Last,
}

impl Keep {
    /// Lowercase name, as in a pipeline file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Last => "last",
        }
    }
}

/// A part of a whole in millionths, so that equal parts are equal numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Fraction(u32);

impl Fraction {
    const WHOLE: u32 = 1_000_000;
    /// One half.
    pub const HALF: Self = Self(Self::WHOLE / 2);

    /// A part of at most the whole.
    #[must_use]
    pub const fn from_millionths(millionths: u32) -> Option<Self> {
        if millionths <= Self::WHOLE { Some(Self(millionths)) } else { None }
    }

    /// The nearest part in millionths; `None` outside of 0 to 1, and for what has more than six digits.
    #[must_use]
    pub fn from_float(value: f64) -> Option<Self> {
        let millionths = (value * f64::from(Self::WHOLE)).round();
        let whole = (0.0..=f64::from(Self::WHOLE)).contains(&millionths);
        let exact = whole && (millionths / f64::from(Self::WHOLE) - value).abs() < 1e-12;
        exact.then_some(Self(millionths as u32))
    }

    /// This part of a number, rounded down.
    pub(super) fn of(self, number: u128) -> u128 {
        number.saturating_mul(u128::from(self.0)) / u128::from(Self::WHOLE)
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", f64::from(self.0) / f64::from(Self::WHOLE))
    }
}

impl TryFrom<u32> for Fraction {
    type Error = &'static str;

    fn try_from(millionths: u32) -> Result<Self, Self::Error> {
        Self::from_millionths(millionths).ok_or("a fraction is at most 1000000 millionths")
    }
}

impl From<Fraction> for u32 {
    fn from(fraction: Fraction) -> Self {
        fraction.0
    }
}

impl Function {
    /// Lowercase name, as in a pipeline file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Sum => "sum",
            Self::Min => "min",
            Self::Max => "max",
            Self::Avg => "avg",
            Self::Variance => "variance",
            Self::VariancePop => "variance_pop",
            Self::Stddev => "stddev",
            Self::StddevPop => "stddev_pop",
            Self::First => "first",
            Self::Last => "last",
            Self::Distinct { .. } => "distinct",
            Self::ApproxDistinct { .. } => "approx_distinct",
            Self::Quantile { .. } => "quantile",
            Self::TopK { .. } => "top_k",
            Self::Collect { .. } => "collect",
            Self::Defined => "defined",
        }
    }

    /// The name with all parameters.
    #[must_use]
    pub fn text(self) -> Cow<'static, str> {
        let text = match self {
            Self::Distinct { limit, beyond } => format!("distinct(limit={limit},beyond={})", beyond.name()),
            Self::ApproxDistinct { precision } => format!("approx_distinct(precision={precision})"),
            Self::Quantile { q } => format!("quantile(q={q})"),
            Self::TopK { k, limit } => format!("top_k(k={k},limit={limit})"),
            Self::Collect { limit, keep } => format!("collect(limit={limit},keep={})", keep.name()),
            plain => return plain.name().into(),
        };
        text.into()
    }

    /// True when it works with values of this type.
    #[must_use]
    pub const fn accepts(self, input: InputType) -> bool {
        match self {
            Self::Sum
            | Self::Avg
            | Self::Variance
            | Self::VariancePop
            | Self::Stddev
            | Self::StddevPop
            | Self::Quantile { .. } => input.is_number(),
            _ => true,
        }
    }

    /// What is wrong with its parameters.
    pub(super) fn problem(self) -> Option<String> {
        let limited = |limit: u32| {
            let wrong = limit == 0 || limit > LIMIT_MAX;
            wrong.then(|| format!("limit must be from 1 to {LIMIT_MAX}: limit={limit}"))
        };
        match self {
            Self::Distinct { limit, .. } | Self::Collect { limit, .. } => limited(limit),
            Self::TopK { k, limit } if k == 0 || k > limit => {
                Some(format!("k must be from 1 to the limit: k={k} limit={limit}"))
            }
            Self::TopK { limit, .. } => limited(limit),
            Self::ApproxDistinct { precision } if !PRECISIONS.contains(&precision) => Some(format!(
                "precision must be from {PRECISION_MIN} to {PRECISION_MAX}: precision={precision}"
            )),
            _ => None,
        }
    }

    /// What computes it over values of this type, when its state is of variable size.
    pub(super) fn code(self, input: InputType) -> Option<Arc<dyn Erased>> {
        Some(match self {
            Self::Min if input == InputType::Text => Arc::new(Extreme { greatest: false }),
            Self::Max if input == InputType::Text => Arc::new(Extreme { greatest: true }),
            Self::First => Arc::new(Pick { keep: Keep::First }),
            Self::Last => Arc::new(Pick { keep: Keep::Last }),
            Self::Distinct { limit, beyond } => Arc::new(Distinct { limit, beyond }),
            Self::ApproxDistinct { precision } => Arc::new(ApproxDistinct { precision }),
            Self::Quantile { q } => Arc::new(Quantile { quantile: q }),
            Self::TopK { k, limit } => Arc::new(TopK { k, limit }),
            Self::Collect { limit, keep } => Arc::new(Collect { limit, keep }),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_read_where_they_are_exact() {
        assert_eq!(Fraction::from_float(0.95), Fraction::from_millionths(950_000));
        assert_eq!(Fraction::from_float(0.999_999).map(|q| q.to_string()), Some("0.999999".to_owned()));
        for wrong in [-0.1, 1.000_001, 0.123_456_7, f64::NAN, f64::INFINITY] {
            assert_eq!(Fraction::from_float(wrong), None, "{wrong}");
        }
        assert_eq!(Fraction::HALF.of(7), 3);
    }

    #[test]
    fn functions_are_stored_by_name_with_their_parameters() {
        let stored = |function: Function| serde_json::to_string(&function).unwrap();
        assert_eq!(stored(Function::Avg), r#""avg""#);
        let distinct = Function::Distinct { limit: 5, beyond: Beyond::Estimate };
        assert_eq!(stored(distinct), r#"{"distinct":{"limit":5,"beyond":"estimate"}}"#);
        let quantile = Function::Quantile { q: Fraction::HALF };
        assert_eq!(stored(quantile), r#"{"quantile":{"q":500000}}"#);
        assert_eq!(serde_json::from_str::<Function>(&stored(quantile)).unwrap(), quantile);
        assert!(serde_json::from_str::<Function>(r#"{"quantile":{"q":1000001}}"#).is_err());
    }
}
