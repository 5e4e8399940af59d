//! The pure part of the engine: (events, watermark) → effects. It knows no disk, no clock and no thread.
//!
//! [`WatermarkTracker`] turns the events of all partitions into one watermark; a [`WindowOperator`] assigns events
//! to windows, keeps the panes of open windows in memory, and fires them. Panes that were moved out of memory are
//! reached through [`Panes`], and everything that leaves goes through [`Emit`].

mod batch;
mod buffer;
mod effect;
mod fire;
mod marks;
mod spec;
mod table;
mod watermark;
mod window;

pub use crate::event::{EventBatch, KeyColumn, PartitionId, SourceId, Validity, ValueColumn};
pub use batch::BatchWatermark;
pub use buffer::RowBuffer;
pub use effect::{Emit, LateEvent, PaneKind, Panes, ResultBlock, ResultRow, RowKind};
pub use marks::Marks;
pub use spec::{Accumulation, Advance, Mode, OperatorSpec, Repeat, TimeDomain, Trigger};
pub use table::key_hash;
pub use watermark::{
    Bounds, DEFAULT_SOURCE, Jump, Limits, PartitionProgress, Policy, Rejection, SavedWatermarks, SourceSpec,
    Strategy, WatermarkTracker,
};
pub use window::{Ends, OpenWindow, SpillKind, Spilled, WindowOperator};
