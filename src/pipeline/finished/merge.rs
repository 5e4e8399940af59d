//! Which finished values can be merged, and how: a value of all events but the late ones, with one of these alone.
//!
//! Works on values as they are written. Whatever needs more than its result to be merged is refused by name.

use std::cmp::Ordering;

use super::number::{Exact, float};
use crate::aggregate::Value;
use crate::error::{Error, ErrorKind, Result};
use crate::pipeline::config::{AggregateConfig, Function, InputType, WindowConfig};
use crate::pipeline::sink::value_text;

/// How two values of one aggregate become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// Exact numbers are added.
    Add,
    /// Floats are added.
    AddFloats,
    /// The smaller one of exact numbers, floats or texts stays.
    Least(InputType),
    /// The larger one.
    Greatest(InputType),
}

impl Rule {
    /// The rules of all aggregates of a window.
    pub(super) fn all(window: &WindowConfig) -> Result<Vec<Self>> {
        window.aggregates.iter().map(|aggregate| Self::of(window, aggregate)).collect()
    }

    fn of(window: &WindowConfig, aggregate: &AggregateConfig) -> Result<Self> {
        match (aggregate.function, aggregate.input) {
            (Function::Count, _) => Ok(Self::Add),
            (Function::Sum, Some(InputType::Float)) => Ok(Self::AddFloats),
            (Function::Sum, _) => Ok(Self::Add),
            (Function::Min, Some(input)) => Ok(Self::Least(input)),
            (Function::Max, Some(input)) => Ok(Self::Greatest(input)),
            (function, _) => {
                let message = format!(
                    "a finished {} does not say what it was made of, so late events cannot be added to it: window={} \
                     aggregate={}",
                    function.name(),
                    window.name,
                    aggregate.name
                );
                Err(Error::new(ErrorKind::Invalid, message).with_remedy(
                    "reapply windows with count, sum, min and max only (an average is a sum and a count), or run the \
                     pipeline again over all input with a longer delay",
                ))
            }
        }
    }

    /// The value of all events, or what is wrong with one of the two.
    pub(super) fn merge(self, finished: &str, late: &str) -> Result<String, String> {
        if finished == "null" || late == "null" {
            return Ok(if finished == "null" { late } else { finished }.to_owned());
        }
        match self {
            Self::Add => {
                let sum = exact(finished)?.plus(exact(late)?).ok_or("the sum does not fit into 128 bits")?;
                Ok(sum.text())
            }
            Self::AddFloats => Ok(value_text(&Value::Float(real(finished)? + real(late)?))),
            Self::Least(input) => {
                Ok(if order(input, late, finished, false)? == Ordering::Less { late } else { finished }
                    .to_owned())
            }
            Self::Greatest(input) => {
                let greater = order(input, late, finished, true)? == Ordering::Greater;
                Ok(if greater { late } else { finished }.to_owned())
            }
        }
    }
}

fn exact(text: &str) -> Result<Exact, String> {
    Exact::parse(text).ok_or_else(|| format!("not an exact number: {text}"))
}

fn real(text: &str) -> Result<f64, String> {
    float(text).ok_or_else(|| format!("not a number: {text}"))
}

/// How `a` stands to `b`. NaN gives way to everything, whichever end is wanted.
fn order(input: InputType, a: &str, b: &str, greatest: bool) -> Result<Ordering, String> {
    match input {
        InputType::Text => {
            let read =
                |text: &str| serde_json::from_str::<String>(text).map_err(|_| format!("not a text: {text}"));
            Ok(read(a)?.cmp(&read(b)?))
        }
        InputType::Float => {
            let (a, b) = (real(a)?, real(b)?);
            let gives_way = if greatest { Ordering::Less } else { Ordering::Greater };
            Ok(match (a.is_nan(), b.is_nan()) {
                (false, false) => a.total_cmp(&b),
                (true, true) => Ordering::Equal,
                (true, false) => gives_way,
                (false, true) => gives_way.reverse(),
            })
        }
        InputType::Int | InputType::Decimal(_) => {
            let (a, b, _) = exact(a)?.aligned(exact(b)?).ok_or("a number does not fit into 128 bits")?;
            Ok(a.cmp(&b))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_decimals_keep_their_digits_and_nulls_give_way() {
        assert_eq!(Rule::Add.merge("0.70", "0.10").unwrap(), "0.80");
        assert_eq!(Rule::Add.merge("null", "0.10").unwrap(), "0.10");
        assert_eq!(Rule::Add.merge("3", "null").unwrap(), "3");
        assert_eq!(Rule::Add.merge("null", "null").unwrap(), "null");
        assert!(Rule::Add.merge("3", "\"4\"").is_err());
        assert_eq!(Rule::AddFloats.merge("0.5", "1e3").unwrap(), "1000.5");
        assert_eq!(Rule::AddFloats.merge("\"Infinity\"", "1.0").unwrap(), "\"Infinity\"");
    }

    #[test]
    fn extremes_compare_numbers_by_value_and_texts_by_their_bytes() {
        let least = Rule::Least(InputType::Decimal(2));
        assert_eq!(least.merge("-1.10", "-10.00").unwrap(), "-10.00");
        assert_eq!(Rule::Greatest(InputType::Int).merge("9", "10").unwrap(), "10");
        assert_eq!(Rule::Greatest(InputType::Text).merge("\"Z\"", "\"a\"").unwrap(), "\"a\"");
        for rule in [Rule::Least(InputType::Float), Rule::Greatest(InputType::Float)] {
            assert_eq!(rule.merge("\"NaN\"", "1.5").unwrap(), "1.5");
            assert_eq!(rule.merge("1.5", "\"NaN\"").unwrap(), "1.5");
        }
        assert_eq!(Rule::Least(InputType::Float).merge("0.0", "-0.0").unwrap(), "-0.0");
    }
}
