//! The pure part of the engine: (events, watermark) → effects. It knows no disk, no clock and no thread.

mod batch;
mod effect;

pub use batch::{EventBatch, KeyColumn, PartitionId, Validity, ValueColumn};
pub use effect::{Emit, LateEvent, PaneKind, ResultBlock, ResultRow};
