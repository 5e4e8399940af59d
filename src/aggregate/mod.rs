//! Accumulators: what is kept of the events of one pane, and the laws by which parts are merged.
//!
//! An operator's aggregates compile into one [`Layout`]: a row of 64-bit words per pane. Merging two rows is
//! commutative and associative with the identity row as neutral element, so it does not matter how a pane's events
//! were spread over buffers, spills and restarts. Knows nothing of windows, keys or disks.

mod bytes;
mod convert;
mod define;
mod distinct;
mod fields;
mod finish;
mod function;
#[cfg(feature = "fault-injection")]
pub(crate) mod fuzzing;
mod hyperloglog;
mod input;
mod item;
pub mod laws;
mod layout;
mod number;
mod ordered;
mod payload;
mod primitive;
mod quantile;
mod row;
mod sketches;
mod top;
mod value;
mod wide;

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::event::DECIMAL_DIGITS_MAX;
pub use crate::event::Datum;
pub use convert::{Conversion, Stage};
pub(crate) use convert::{lane_for, shares_state};
use define::Erased;
pub use define::{Aggregate, Defined, Observation, StateError};
pub(crate) use fields::{decode_fields, encode_fields};
pub(crate) use finish::AVG_DIGITS;
pub use function::{Beyond, Fraction, Function, Keep, LIMIT_MAX, PRECISIONS};
pub use input::{Input, InputType};
pub use layout::{Layout, Touch};
pub use number::ExactFloat;
pub use payload::PayloadError;
pub use row::{RowMut, RowRef};
pub use sketches::Sketches;
pub use value::{Value, decimal_text};

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
    /// Which of several sets of accumulators over its field it uses. 0 for all that an operator began with; what is
    /// added to panes that were open already, and cannot be told from what they hold, gets a set of its own, so that
    /// it starts empty. Set when stored state is taken up; leave it 0.
    #[serde(default, skip_serializing_if = "is_first_lane")]
    pub lane: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
fn is_first_lane(lane: &u32) -> bool {
    *lane == 0
}

impl AggregateSpec {
    /// Counts events.
    #[must_use]
    pub fn count(name: &str) -> Self {
        Self { name: name.to_owned(), function: Function::Count, input: None, defined: None, lane: 0 }
    }

    /// Computes `function` over the batch column at index `column`, which holds the values of `field`.
    #[must_use]
    pub fn over(name: &str, function: Function, field: &str, kind: InputType, column: usize) -> Self {
        let input = Input { field: field.to_owned(), kind, column };
        Self { name: name.to_owned(), function, input: Some(input), defined: None, lane: 0 }
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
        match (self.function, &self.input) {
            (Function::Defined, _) => self.defined.as_ref().and_then(Defined::code).cloned(),
            (function, Some(input)) => function.code(input.kind),
            (_, None) => None,
        }
    }

    /// Says what is wrong with it, before any event is read.
    ///
    /// # Errors
    /// Why it cannot be computed: a parameter out of its bounds, a function of numbers over text, a field that is
    /// missing.
    pub fn check(&self) -> Result<(), String> {
        if let Some(problem) = self.function.problem() {
            return Err(problem);
        }
        let Some(input) = &self.input else {
            let needs_field = self.function != Function::Count;
            return if needs_field { Err(format!("{} needs a field", self.function.name())) } else { Ok(()) };
        };
        if let InputType::Decimal(scale) = input.kind
            && scale > DECIMAL_DIGITS_MAX
        {
            return Err(format!("a decimal has at most {DECIMAL_DIGITS_MAX} digits: scale={scale}"));
        }
        let accepts = match (&self.function, &self.defined) {
            (Function::Defined, None) => return Err("the aggregate to be computed is missing".to_owned()),
            (Function::Defined, Some(defined)) if !defined.is_known() => {
                return Err(format!("this program does not have the aggregate {defined:?}"));
            }
            (Function::Defined, Some(defined)) => defined.accepts(input.kind),
            (function, _) => function.accepts(input.kind),
        };
        if accepts {
            return Ok(());
        }
        Err(format!("{} does not work with values of type {}", self.function_text(), input.kind))
    }

    /// The function with its parameters, for the fingerprint.
    fn function_text(&self) -> Cow<'static, str> {
        match &self.defined {
            Some(defined) => format!("{} version {}", defined.name(), defined.version()).into(),
            None => self.function.text(),
        }
    }
}

/// Version of the accumulator layouts of this build; part of every fingerprint.
pub const STATE_VERSION: u32 = 1;

#[cfg(test)]
mod tests;
