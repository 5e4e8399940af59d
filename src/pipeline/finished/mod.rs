//! What is done with results that are finished: two lanes compared, late events worked in. The tour of the folder.
//!
//! `row` reads published rows back and keeps their values as they were written; `number` calculates with these without
//! rounding; `compare` and `reapply` are the two commands. None of it touches a directory in place; state is opened
//! in a scratch directory alone.

mod compare;
mod merge;
mod number;
mod reapply;
mod row;

pub use compare::{Compared, Comparison, Difference, PANES_MAX, compare};
pub use reapply::{
    Change, NotApplied, Reapplied, ReappliedSavepoint, Reapply, ReapplySavepoint, WhyNot, reapply,
    reapply_savepoint,
};
pub use row::JsonText;
