//! The engine against answers that were found elsewhere: conformance cases and golden outputs of other engines.

mod conformance;
