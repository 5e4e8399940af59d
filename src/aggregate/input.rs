//! The fields that aggregates read, and the types of these.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::event::{DECIMAL_DIGITS_MAX, ValueColumn};

/// Type of an input field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum InputType {
    /// Exact 64-bit integers.
    Int,
    /// Double-precision floats.
    Float,
    /// Exact decimals with this many digits behind the point, at most 18 digits in all.
    Decimal(u8),
    /// Text.
    Text,
}

const DECIMALS: [&str; DECIMAL_DIGITS_MAX as usize + 1] = [
    "decimal(0)",
    "decimal(1)",
    "decimal(2)",
    "decimal(3)",
    "decimal(4)",
    "decimal(5)",
    "decimal(6)",
    "decimal(7)",
    "decimal(8)",
    "decimal(9)",
    "decimal(10)",
    "decimal(11)",
    "decimal(12)",
    "decimal(13)",
    "decimal(14)",
    "decimal(15)",
    "decimal(16)",
    "decimal(17)",
    "decimal(18)",
];

impl InputType {
    /// Lowercase name, as in a pipeline file: `int`, `float`, `decimal(2)` or `string`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Int => "int",
            Self::Float => "float",
            // A scale beyond the last is refused before anything is done with it.
            Self::Decimal(scale) => DECIMALS.get(usize::from(scale)).copied().unwrap_or("decimal"),
            Self::Text => "string",
        }
    }

    /// The type of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "int" => Some(Self::Int),
            "float" => Some(Self::Float),
            "string" => Some(Self::Text),
            _ => {
                let scale = DECIMALS.iter().position(|known| *known == name)?;
                u8::try_from(scale).ok().map(Self::Decimal)
            }
        }
    }

    /// True for what can be added up.
    #[must_use]
    pub const fn is_number(self) -> bool {
        !matches!(self, Self::Text)
    }

    /// An empty column for values of this type.
    #[must_use]
    pub fn column(self) -> ValueColumn {
        match self {
            Self::Int => ValueColumn::int(),
            Self::Float => ValueColumn::float(),
            Self::Decimal(scale) => ValueColumn::decimal(scale),
            Self::Text => ValueColumn::text(),
        }
    }

    /// True when `column` holds values of this type.
    #[must_use]
    pub fn fits(self, column: &ValueColumn) -> bool {
        match (self, column) {
            (Self::Int, ValueColumn::Int { .. })
            | (Self::Float, ValueColumn::Float { .. })
            | (Self::Text, ValueColumn::Text { .. }) => true,
            (Self::Decimal(scale), ValueColumn::Decimal { scale: found, .. }) => scale == *found,
            _ => false,
        }
    }
}

impl From<InputType> for &'static str {
    fn from(input: InputType) -> Self {
        input.name()
    }
}

impl TryFrom<String> for InputType {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        Self::from_name(&name).ok_or_else(|| format!("no type of a field: {name:?}"))
    }
}

impl fmt::Display for InputType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The field that an aggregate reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Input {
    /// Name of the field, for people and for the fingerprint.
    pub field: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: InputType,
    /// Index of its column in an [`crate::event::EventBatch`]; a matter of one run, not of the definition.
    #[serde(skip)]
    pub column: usize,
}
