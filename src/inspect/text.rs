//! How reports write times, bytes and values for machines: as text that people read as well, losing nothing.

use std::fmt::Display;

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::aggregate::Value;

/// Serialises a value as its text.
pub(crate) fn as_text<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Serialises a value that may be absent as its text.
pub(crate) fn as_optional_text<T: Display, S: Serializer>(
    value: &Option<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_none(),
    }
}

/// Serialises a number as sixteen hexadecimal digits: it names something and is not counted with.
pub(super) fn as_hex<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{value:016x}"))
}

/// Serialises a checksum as eight hexadecimal digits.
pub(super) fn as_hex32<S: Serializer>(value: &u32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{value:08x}"))
}

/// The aggregates of one pane: name and value, in the order of the definition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Aggregates(pub Vec<(String, Value)>);

impl Serialize for Aggregates {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, &Json(value))?;
        }
        map.end()
    }
}

/// A value as JSON. Floats that JSON has no number for are strings, as in result files.
struct Json<'a>(&'a Value);

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Null => serializer.serialize_none(),
            Value::Int(value) => match i64::try_from(*value) {
                Ok(value) => serializer.serialize_i64(value),
                Err(_) => serializer.serialize_i128(*value),
            },
            Value::Float(value) if value.is_finite() => serializer.serialize_f64(*value),
            Value::Float(value) if value.is_nan() => serializer.serialize_str("NaN"),
            Value::Float(value) if *value > 0.0 => serializer.serialize_str("Infinity"),
            Value::Float(_) => serializer.serialize_str("-Infinity"),
            Value::Text(text) => serializer.serialize_str(text),
            // As text, since a reader of JSON numbers may round them.
            decimal @ Value::Decimal { .. } => serializer.collect_str(decimal),
            Value::List(values) => serializer.collect_seq(values.iter().map(Json)),
            Value::Record(fields) => {
                serializer.collect_map(fields.iter().map(|(name, value)| (name, Json(value))))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_every_digit_and_what_json_lacks_is_a_string() {
        let values = [
            ("null", Value::Null),
            ("int", Value::Int(-7)),
            ("wide", Value::Int(i128::from(i64::MAX) * 16)),
            ("float", Value::Float(0.1)),
            ("nan", Value::Float(f64::NAN)),
            ("low", Value::Float(f64::NEG_INFINITY)),
            ("price", Value::Decimal { unscaled: -1_050, scale: 2 }),
            ("top", Value::List(vec![Value::Record(vec![("value", Value::Null), ("count", Value::Int(2))])])),
        ];
        let aggregates = Aggregates(values.map(|(name, value)| (name.to_owned(), value)).to_vec());
        assert_eq!(
            serde_json::to_string(&aggregates).unwrap(),
            r#"{"null":null,"int":-7,"wide":147573952589676412912,"float":0.1,"nan":"NaN","low":"-Infinity","price":"-10.50","top":[{"value":null,"count":2}]}"#
        );
    }
}
