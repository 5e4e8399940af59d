//! From files to files: the pipeline file, sources, and what joins them to the store.

pub mod config;
pub mod source;
