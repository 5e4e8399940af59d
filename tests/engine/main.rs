//! The engine against answers that were found elsewhere: conformance cases, a naive model, and golden outputs of
//! other engines.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod conformance;
mod model;
mod store;
mod watermarks;
