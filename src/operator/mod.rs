//! The pure part of the engine: (events, watermark) → effects. It knows no disk and no clock, and
//! no threads but the [`Workers`] it is given.
//!
//! [`WatermarkTracker`] turns the events of all partitions into one watermark; a [`WindowOperator`] assigns events
//! to windows, keeps the panes of open windows in memory, and fires them. Panes that were moved out of memory are
//! reached through [`Panes`], and everything that leaves goes through [`Emit`]. A [`JoinOperator`] keeps events instead,
//! and a [`DedupOperator`] tells which of them came before; both hand what they hold to the outside as [`Entries`].

mod batch;
mod buffer;
mod dedup;
mod effect;
mod entries;
mod fire;
mod join;
mod lateness;
mod marks;
mod spec;
mod step;
mod table;
mod watermark;
mod window;
mod workers;

pub use crate::event::{EventBatch, KeyColumn, PartitionId, SourceId, Validity, ValueColumn};
pub use batch::BatchWatermark;
pub use buffer::RowBuffer;
pub use dedup::{DedupOperator, DedupSpec};
pub use effect::{Emit, JoinedEvent, JoinedRow, LateEvent, PaneKind, Panes, ResultBlock, ResultRow, RowKind};
pub use entries::{EVENTS_VERSION, Entries, EntryError, EventDefinition};
#[cfg(feature = "fault-injection")]
pub(crate) use join::fuzz_row as fuzz_stored_event;
pub use join::{JoinField, JoinInput, JoinKind, JoinOperator, JoinSpec, Side};
pub use lateness::{Bucket, Distribution, LADDER_MS, LatenessSketch, Spread};
pub use marks::Marks;
pub use spec::{Accumulation, Advance, Mode, OperatorSpec, Repeat, TimeDomain, Trigger};
pub use table::key_hash;
pub use watermark::{
    Bounds, DEFAULT_SOURCE, Jump, Limits, PartitionProgress, Policy, Rejection, SavedWatermarks, SourceSpec,
    Strategy, WatermarkTracker,
};
pub use window::{Ends, HeldPane, OpenSummary, OpenWindow, SpillKind, Spilled, WindowOperator};
pub use workers::Workers;
