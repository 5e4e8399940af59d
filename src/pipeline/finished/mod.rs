//! What is done with results that are finished: two lanes compared, late events worked in. The tour of the folder.
//!
//! `row` reads published rows back and keeps their values as they were written; `number` calculates with these without
//! rounding; `compare` and `reapply` are the two commands. None of it opens state or touches a directory in place.

mod compare;
mod merge;
mod number;
mod reapply;
mod row;

pub use compare::{Compared, Comparison, Difference, PANES_MAX, compare};
pub use reapply::{Change, Reapplied, Reapply, reapply};
pub use row::JsonText;
