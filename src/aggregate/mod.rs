//! Accumulators: what is kept of the events of one pane, and the laws by which parts are merged.
//!
//! An operator's aggregates compile into one [`Layout`]: a row of 64-bit words per pane. Merging two rows is
//! commutative and associative with the identity row as neutral element, so it does not matter how a pane's events
//! were spread over buffers, spills and restarts. Knows nothing of windows, keys or disks.

mod define;
mod finish;
pub mod laws;
mod layout;
mod number;
mod payload;
mod primitive;
mod row;
mod sketches;
mod value;
mod wide;

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use define::Erased;
pub use define::{Aggregate, Datum, Defined, Observation, StateError};
pub use layout::{Layout, Touch};
pub use number::ExactFloat;
pub use payload::PayloadError;
pub use row::{RowMut, RowRef};
pub use sketches::Sketches;
pub use value::Value;

/// What an aggregate computes of the events of a pane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Function {
    /// Number of events; with an input, of events whose value is not null.
    Count,
    /// Sum of the values that are not null: exact for integers, to about 100 bits for floats.
    Sum,
    /// Smallest value. NaN is left out unless there is nothing else; −0.0 is smaller than +0.0.
    Min,
    /// Largest value, with the same rule for NaN and zeros.
    Max,
    /// Sum divided by the number of values that are not null.
    Avg,
    /// What [`AggregateSpec::defined`] says: an aggregate that a program brings along.
    Defined,
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
            Self::Defined => "defined",
        }
    }
}

/// Type of an input field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InputType {
    /// Exact 64-bit integers.
    Int,
    /// Double-precision floats.
    Float,
}

impl InputType {
    /// Lowercase name, as in a pipeline file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Int => "int",
            Self::Float => "float",
        }
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

/// One named aggregate of an operator.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AggregateSpec {
    /// Name of the result column.
    pub name: String,
    /// What it computes.
    pub function: Function,
    /// What it reads; `None` only for a count of events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Input>,
    /// The code, for [`Function::Defined`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defined: Option<Defined>,
}

impl AggregateSpec {
    /// Counts events.
    #[must_use]
    pub fn count(name: &str) -> Self {
        Self { name: name.to_owned(), function: Function::Count, input: None, defined: None }
    }

    /// Computes `function` over the batch column at index `column`, which holds the values of `field`.
    #[must_use]
    pub fn over(name: &str, function: Function, field: &str, kind: InputType, column: usize) -> Self {
        let input = Input { field: field.to_owned(), kind, column };
        Self { name: name.to_owned(), function, input: Some(input), defined: None }
    }

    /// Computes an aggregate that the program brings along, over the batch column at index `column`.
    #[must_use]
    pub fn defined(
        name: &str,
        aggregate: impl Aggregate,
        field: &str,
        kind: InputType,
        column: usize,
    ) -> Self {
        let defined = Some(Defined::new(aggregate));
        Self { defined, ..Self::over(name, Function::Defined, field, kind, column) }
    }

    /// What computes it when its state is of variable size.
    fn code(&self) -> Option<Arc<dyn Erased>> {
        self.defined.as_ref().and_then(Defined::code).cloned()
    }

    /// The function with its parameters, for the fingerprint.
    fn function_text(&self) -> Cow<'static, str> {
        match &self.defined {
            Some(defined) => format!("{} version {}", defined.name(), defined.version()).into(),
            None => self.function.name().into(),
        }
    }
}

/// Version of the accumulator layouts of this build; part of every fingerprint.
pub const STATE_VERSION: u32 = 1;
