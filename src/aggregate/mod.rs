//! Accumulators: what is kept of the events of one pane, and the laws by which parts are merged.

mod value;

pub use value::Value;
