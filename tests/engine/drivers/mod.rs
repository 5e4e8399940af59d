//! The engine behind the face that a case wants: through the public store, and through an operator alone.

mod operator;
mod runner;
mod seen;
mod spec;
mod store;

use runner::run;
pub(crate) use runner::{Plan, Step};
#[cfg(feature = "fault-injection")]
pub(crate) use spec::{operator, span};

use crate::oracle::{Observed, Op, Settings};

/// Runs `ops` through the public store.
///
/// # Errors
/// Why the settings are refused, or what went wrong.
pub(crate) fn through_store(settings: &Settings, ops: &[Op], plan: &Plan) -> Result<Observed, String> {
    run(Box::new(store::Backend::new(settings, ops, plan.step_rows)?), settings, ops, plan)
}

/// Runs `ops` through an operator whose evicted panes are kept in memory.
///
/// # Errors
/// Why the settings are refused, or what went wrong.
pub(crate) fn through_operator(settings: &Settings, ops: &[Op], plan: &Plan) -> Result<Observed, String> {
    run(Box::new(operator::Backend::new(settings, ops)?), settings, ops, plan)
}
