//! The engine behind the same face as a case wants it: through the public store, and through an operator alone.

mod seen;
mod spec;
mod store;

pub(crate) use store::{Plan, StoreEngine};
