//! From files to files: the pipeline file, sources, sinks, and the task that joins them to the store. The only layer
//! that knows files of input and output.

pub mod advise;
mod assemble;
pub mod check;
pub mod config;
pub mod explain;
pub mod export;
pub mod finished;
#[cfg(feature = "fault-injection")]
pub(crate) mod fuzzing;
pub mod generate;
mod outputs;
mod partitions;
mod places;
mod reader;
mod report;
mod signals;
pub mod sink;
pub mod source;
pub mod status;
mod strain;
mod task;

pub use outputs::Counters;
pub use partitions::{DroppedPartition, PartitionChoice, PartitionsPlan, plan_partitions};
pub use report::{Checkpoints, Progress, Restart, RunSummary, Silent, Totals, Unended, Uploads, Watch};
pub use signals::{Signals, run_until_signalled, stop_on_signals};
pub use task::{RunOptions, StopFlag, run};
