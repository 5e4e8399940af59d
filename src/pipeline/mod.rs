//! From files to files: the pipeline file, sources, sinks, and the task that joins them to the store. The only layer
//! that knows files of input and output.

pub mod config;
pub mod generate;
pub mod sink;
pub mod source;
