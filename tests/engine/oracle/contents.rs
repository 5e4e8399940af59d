//! The records of one pane and what is computed of them: all values are kept and looked at anew each time.

use super::{Key, Row};

/// A number as the input gives it. A column of integers stays exact; one real number makes the sum real.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Num {
    Int(i128),
    Float(f64),
}

impl Num {
    pub(crate) fn as_f64(self) -> f64 {
        match self {
            Self::Int(int) => int as f64,
            Self::Float(float) => float,
        }
    }

    fn is_nan(self) -> bool {
        matches!(self, Self::Float(float) if float.is_nan())
    }

    /// Order of numbers; −0 is before +0.
    fn before(self, other: Self) -> bool {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => a < b,
            (a, b) => a.as_f64().total_cmp(&b.as_f64()).is_lt(),
        }
    }
}

/// The values of the records of one pane, in order of arrival.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents(Vec<Option<Num>>);

impl Contents {
    pub(crate) fn push(&mut self, value: Option<Num>) {
        self.0.push(value);
    }

    pub(crate) fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn row(&self, key: &Key, (start, end): (i64, i64)) -> Row {
        let values: Vec<Num> = self.0.iter().copied().flatten().collect();
        Row {
            key: key.clone(),
            start,
            end,
            count: self.0.len() as u64,
            count_value: values.len() as u64,
            sum: sum(&values),
            min: best(&values, |a, b| a.before(b)),
            max: best(&values, |a, b| b.before(a)),
        }
    }
}

/// The least value by `better`; NaN only where there is nothing else.
fn best(values: &[Num], better: impl Fn(Num, Num) -> bool) -> Option<Num> {
    let numbers = values.iter().copied().filter(|value| !value.is_nan());
    let best = numbers.reduce(|best, value| if better(value, best) { value } else { best });
    best.or_else(|| values.first().copied())
}

fn sum(values: &[Num]) -> Option<Num> {
    let ints: Option<Vec<i128>> = values
        .iter()
        .map(|value| match value {
            Num::Int(int) => Some(*int),
            Num::Float(_) => None,
        })
        .collect();
    match ints {
        _ if values.is_empty() => None,
        Some(ints) => Some(Num::Int(ints.iter().sum())),
        None => Some(Num::Float(exact_sum(values.iter().map(|value| value.as_f64())))),
    }
}

/// The sum of real numbers with one rounding at the end (Shewchuk's partial sums: none of them overlap).
fn exact_sum(values: impl Iterator<Item = f64> + Clone) -> f64 {
    if values.clone().any(|value| !value.is_finite()) {
        return values.sum();
    }
    let mut partials: Vec<f64> = Vec::new();
    for mut value in values {
        let mut kept = Vec::new();
        for mut partial in partials {
            if value.abs() < partial.abs() {
                std::mem::swap(&mut value, &mut partial);
            }
            let high = value + partial;
            let low = partial - (high - value);
            if low != 0.0 {
                kept.push(low);
            }
            value = high;
        }
        kept.push(value);
        partials = kept;
    }
    partials.iter().sum()
}

#[test]
fn the_sum_of_reals_is_rounded_once() {
    assert_eq!(exact_sum([1e16, 1.0, -1e16].into_iter()), 1.0);
    assert_eq!(exact_sum([1e100, 1.0, -1e100, 1e-3].into_iter()), 1.001);
}
