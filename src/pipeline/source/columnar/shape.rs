//! What a column holds, and whether that can be what a plan takes from it: settled once for a schema, before any row.

use arrow_schema::{DataType, TimeUnit};

use crate::event::DECIMAL_DIGITS_MAX;
use crate::pipeline::config::{EpochUnit, Filter, InputType, KeyType, Scalar, TimeFormat};

/// What the values of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Integers of any width.
    Int,
    /// Floats of any width.
    Float,
    /// Decimals with this many digits behind the point.
    Decimal(u8),
    /// Booleans.
    Bool,
    /// Text.
    Text,
    /// Points in time, counted from the epoch in this unit. What has no zone is taken as UTC.
    Time(EpochUnit),
    /// Nothing but nulls.
    Nothing,
}

/// Why a column cannot be what it is wanted for, and what to do about it.
pub(super) struct Misfit {
    pub(super) problem: String,
    pub(super) remedy: String,
}

impl Misfit {
    fn new(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { problem: problem.into(), remedy: remedy.into() }
    }
}

impl Shape {
    /// The shape of a column of this type.
    pub(super) fn of(kind: &DataType) -> Result<Self, Misfit> {
        Ok(match kind {
            DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => Self::Int,
            DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => Self::Int,
            DataType::Float32 | DataType::Float64 => Self::Float,
            DataType::Decimal32(_, scale)
            | DataType::Decimal64(_, scale)
            | DataType::Decimal128(_, scale) => {
                let scale = u8::try_from(*scale);
                let misfit = || Misfit::new(format!("is {kind}: its scale is negative"), "cast it to int");
                Self::Decimal(scale.map_err(|_| misfit())?)
            }
            DataType::Boolean => Self::Bool,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Self::Text,
            DataType::Timestamp(unit, _) => Self::Time(unit_of(*unit)),
            // Days are brought to milliseconds.
            DataType::Date32 | DataType::Date64 => Self::Time(EpochUnit::Millis),
            DataType::Null => Self::Nothing,
            DataType::Dictionary(_, values) if !matches!(**values, DataType::Dictionary(_, _)) => {
                return Self::of(values);
            }
            other => {
                let remedy = "cast it to a number, a decimal of up to 38 digits, a boolean, text, a timestamp or a date";
                return Err(Misfit::new(format!("is {other}, which no event is made of"), remedy));
            }
        })
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Int => "integers",
            Self::Float => "floats",
            Self::Decimal(_) => "decimals",
            Self::Bool => "booleans",
            Self::Text => "text",
            Self::Time(_) => "timestamps or dates",
            Self::Nothing => "only nulls",
        }
    }

    fn wrong(self, what: &str, remedy: impl Into<String>) -> Misfit {
        Misfit::new(format!("holds {} where {what}", self.name()), remedy)
    }

    /// How the event times of such a column are read, when `declared` is how they are said to be written.
    pub(super) fn time_format(self, declared: &TimeFormat) -> Result<TimeFormat, Misfit> {
        match (self, declared) {
            (Self::Time(unit), TimeFormat::Column) => Ok(TimeFormat::Epoch(unit)),
            (Self::Time(_), _) => Err(self.wrong(
                "the time has a declared format",
                "remove `format`: the type of the column says how its times are to be read",
            )),
            (Self::Int | Self::Nothing, TimeFormat::Epoch(_)) => Ok(declared.clone()),
            (Self::Decimal(_), TimeFormat::Epoch(EpochUnit::Seconds)) => Ok(declared.clone()),
            (Self::Text | Self::Nothing, TimeFormat::Rfc3339 | TimeFormat::Strftime { .. }) => {
                Ok(declared.clone())
            }
            (Self::Int, TimeFormat::Column) => Err(self.wrong(
                "a time is to be read",
                "say what they count: `format = \"epoch_s\"`, \"epoch_ms\", \"epoch_us\" or \"epoch_ns\"",
            )),
            (Self::Text, TimeFormat::Column) => Err(self.wrong(
                "a time is to be read",
                "say how it is written: `format = \"rfc3339\"`, or \"strftime\" with a pattern",
            )),
            (Self::Int | Self::Decimal(_), _) => {
                Err(self.wrong("a time is to be read", "say what they count, such as `format = \"epoch_s\"`"))
            }
            (Self::Text, TimeFormat::Epoch(_)) => {
                Err(self.wrong("the time is a number", "cast the column, or say how the text is written"))
            }
            (Self::Float | Self::Bool | Self::Nothing, _) => {
                Err(self.wrong("a time is to be read", "cast the column to a timestamp"))
            }
        }
    }

    /// Refuses what could never be a part of a key.
    pub(super) fn check_key(self, wanted: KeyType) -> Result<(), Misfit> {
        match (self, wanted) {
            (_, KeyType::Text) | (Self::Int | Self::Nothing, KeyType::Int) => Ok(()),
            (_, KeyType::Int) => {
                Err(self.wrong("the key is an int", "leave out `type`: it is then taken as text"))
            }
        }
    }

    /// Refuses what could never be a value of the type that is declared.
    pub(super) fn check_value(self, wanted: Option<InputType>) -> Result<(), Misfit> {
        let fits = match wanted {
            None | Some(InputType::Text) => true,
            Some(InputType::Int) => matches!(self, Self::Int | Self::Nothing),
            Some(InputType::Float) => {
                matches!(self, Self::Int | Self::Float | Self::Decimal(_) | Self::Nothing)
            }
            Some(InputType::Decimal(_)) => !matches!(self, Self::Bool | Self::Time(_)),
        };
        let Some(wanted) = wanted.filter(|_| !fits) else { return Ok(()) };
        let remedy = match self {
            Self::Float => "declare `type = \"float\"`".to_owned(),
            Self::Decimal(scale) => {
                format!("declare `type = \"decimal({})\"`", scale.min(DECIMAL_DIGITS_MAX))
            }
            _ => "declare `type = \"string\"`, or cast the column".to_owned(),
        };
        Err(self.wrong(&format!("type {wanted} is declared"), remedy))
    }

    /// Refuses a condition that such values could never be held against.
    pub(super) fn check_filter(self, filter: &Filter) -> Result<(), Misfit> {
        let compares = filter.min.is_some() || filter.max.is_some();
        let number = matches!(self, Self::Int | Self::Float | Self::Decimal(_) | Self::Nothing);
        let meant = match &filter.equals {
            _ if compares && !number => "the filter compares numbers",
            Some(Scalar::Number(_)) if !number => "the filter wants a number",
            Some(Scalar::Bool(_)) if !matches!(self, Self::Bool | Self::Nothing) => {
                "the filter wants a boolean"
            }
            Some(Scalar::Text(_)) if !matches!(self, Self::Text | Self::Nothing) => "the filter wants text",
            _ => return Ok(()),
        };
        Err(self.wrong(meant, "no row would pass: compare with a value of the column's type"))
    }
}

const fn unit_of(unit: TimeUnit) -> EpochUnit {
    match unit {
        TimeUnit::Second => EpochUnit::Seconds,
        TimeUnit::Millisecond => EpochUnit::Millis,
        TimeUnit::Microsecond => EpochUnit::Micros,
        TimeUnit::Nanosecond => EpochUnit::Nanos,
    }
}
