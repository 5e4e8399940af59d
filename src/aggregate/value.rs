//! Finished values, as they leave an aggregate.

/// A finished value of one aggregate of one pane.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// No value: the aggregate saw only nulls.
    Null,
    /// An exact integer; wide enough for any sum of 64-bit integers.
    Int(i128),
    /// A double-precision float; may be NaN or infinite when the input was.
    Float(f64),
    /// Text.
    Text(String),
}
