//! The engine against answers that were found elsewhere: conformance cases, a naive model, and golden outputs of
//! other engines.

mod conformance;
mod model;
mod store;
