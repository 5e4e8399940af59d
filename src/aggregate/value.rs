//! Finished values, as they leave an aggregate.

use std::fmt;

/// A finished value of one aggregate of one pane.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// No value: the aggregate saw only nulls.
    Null,
    /// An exact integer; wide enough for any sum of 64-bit integers.
    Int(i128),
    /// A double-precision float; may be NaN or infinite when the input was.
    Float(f64),
    /// An exact decimal: `unscaled` divided by ten to the power of `scale`.
    Decimal {
        /// All its digits.
        unscaled: i128,
        /// How many of them stand behind the point.
        scale: u8,
    },
    /// Text.
    Text(String),
    /// Several values in order.
    List(Vec<Value>),
    /// Named values in order.
    Record(Vec<(&'static str, Value)>),
}

/// As in JSON, except that text at the top stands without quotes and NaN and the infinities by their names.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value}"),
            Self::Decimal { unscaled, scale } => f.write_str(&decimal_text(*unscaled, *scale)),
            Self::Text(text) => f.write_str(text),
            Self::List(values) => {
                f.write_str("[")?;
                for (index, value) in values.iter().enumerate() {
                    f.write_str(if index == 0 { "" } else { "," })?;
                    inner(value, f)?;
                }
                f.write_str("]")
            }
            Self::Record(fields) => {
                f.write_str("{")?;
                for (index, (name, value)) in fields.iter().enumerate() {
                    write!(f, "{}{name:?}:", if index == 0 { "" } else { "," })?;
                    inner(value, f)?;
                }
                f.write_str("}")
            }
        }
    }
}

fn inner(value: &Value, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match value {
        Value::Text(text) => write!(f, "{text:?}"),
        value => write!(f, "{value}"),
    }
}

/// A decimal with all digits of its scale, such as `-0.50`.
#[must_use]
pub fn decimal_text(unscaled: i128, scale: u8) -> String {
    let sign = if unscaled < 0 { "-" } else { "" };
    let scale = usize::from(scale);
    let digits = format!("{:0>width$}", unscaled.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    if scale == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_show_every_digit_of_their_scale() {
        assert_eq!(decimal_text(-50, 2), "-0.50");
        assert_eq!(decimal_text(5, 0), "5");
        assert_eq!(decimal_text(0, 3), "0.000");
        assert_eq!(decimal_text(123_456, 4), "12.3456");
        assert_eq!(decimal_text(i128::MIN, 2), "-1701411834604692317316873037158841057.28");
    }

    #[test]
    fn lists_are_shown_like_json() {
        let record = Value::Record(vec![("value", Value::Text("a\"b".to_owned())), ("count", Value::Int(2))]);
        let list = Value::List(vec![record, Value::Null, Value::Decimal { unscaled: 15, scale: 1 }]);
        assert_eq!(list.to_string(), r#"[{"value":"a\"b","count":2},null,1.5]"#);
    }
}
