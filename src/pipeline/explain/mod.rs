//! The life of one window or one key, told event by event: what met which watermark, where it went, what fired.
//!
//! The tour: [`explain`] reads the input of a pipeline as a run would, through the same source, watermark and operator,
//! but keeps only the panes that are asked for; `subject` says which these are, `replay` drives, `place` says where an
//! event goes, `timeline` makes frames of it, `waiting` says what a window waits for. Nothing is written, no lock is
//! taken, and of state only published checkpoints are read, so it works beside a running pipeline.

mod effects;
mod frame;
mod head;
mod place;
mod record;
mod replay;
mod resumed;
mod subject;
#[cfg(test)]
mod tests;
mod timeline;
mod waiting;

use std::sync::Arc;

pub(super) use effects::NoPanes;
pub use frame::{
    Accepted, Counts, End, EventFrame, Explanation, FiringFrame, Frame, Head, Holder, OthersFrame, Part,
    RecordFrame, RejectedFrame, RestoredFrame, SourceRule, TooLate, Waiting, What,
};

use super::config::PipelineConfig;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::event_time::EventTime;
use crate::inspect::Key;
use replay::Replay;
pub(super) use waiting::{Standing, standing};

/// Frames kept unless more are asked for.
pub const FRAMES: usize = 200;

/// What is to be explained, and from where on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainOptions {
    /// Name of the windowed aggregation; the first of the pipeline when there is none.
    pub window: Option<String>,
    /// The key. Without it, and without `start`, the first one that is seen.
    pub key: Option<Key>,
    /// Start of the only window to explain: for the key, or for all keys.
    pub start: Option<EventTime>,
    /// Frames kept; what comes after them is only counted.
    pub frames_max: usize,
    /// Show each other event that moves the watermark too, and all records that are no events.
    pub all: bool,
    /// Start from a checkpoint instead of the beginning of the input.
    pub from: Option<FromCheckpoint>,
}

impl Default for ExplainOptions {
    fn default() -> Self {
        Self { window: None, key: None, start: None, frames_max: FRAMES, all: false, from: None }
    }
}

/// Which checkpoint of the pipeline's state directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FromCheckpoint {
    /// The newest.
    Latest,
    /// That of this epoch.
    Epoch(u64),
}

/// Tells the life of a window or a key of a pipeline, over its whole input.
///
/// Firings by the wall clock, and partitions that fall silent, are not told: they depend on when a run took place.
///
/// # Errors
/// `Invalid` for a window, key or start that the pipeline does not have, or a window that follows the wall clock; and
/// what a run would be refused for: missing or replaced input, a definition that is not that of the checkpoint, a
/// damaged checkpoint.
pub fn explain(
    config: &PipelineConfig,
    options: &ExplainOptions,
    clock: Arc<dyn Clock>,
) -> Result<Explanation> {
    Replay::open(config, options, clock)?.run()
}

/// An instant as people write it: RFC 3339, or milliseconds since 1970.
///
/// # Errors
/// `Invalid` for anything else.
pub fn parse_instant(text: &str) -> Result<EventTime> {
    if let Ok(millis) = text.parse() {
        return Ok(EventTime::from_millis(millis));
    }
    let parsed: Result<jiff::Timestamp, _> = text.parse();
    parsed.map(|instant| EventTime::from_millis(instant.as_millisecond())).map_err(|error| {
        Error::new(ErrorKind::Invalid, format!("this is not a time: {text:?}"))
            .with_remedy("write it as 2026-03-01T10:00:00Z, or as milliseconds since 1970")
            .with_source(error)
    })
}
