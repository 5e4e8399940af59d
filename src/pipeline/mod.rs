//! Sources, sinks and the tasks between them. The only layer that knows files of input and output.

pub mod generate;
pub mod sink;
