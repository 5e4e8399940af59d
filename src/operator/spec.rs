//! What a windowed aggregation is asked to do.

use serde::{Deserialize, Serialize};

use super::SourceId;
use crate::aggregate::AggregateSpec;
use crate::event_time::{Span, Tumbling};

/// When results of a window are emitted, in relation to its changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// When the trigger fires.
    #[default]
    Append,
    /// After each accepted event, the new state of its pane; nothing more at closing.
    Update,
}

/// What makes a pane fire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trigger {
    /// The watermark reaches the window's end; afterwards each late event that is still allowed.
    #[default]
    Watermark,
    /// Every n-th event of the pane, and nothing else: an unfinished count is not emitted at closing.
    Count(u32),
    /// As `Watermark`, and also when the watermark passes each multiple of the span after the pane's first event.
    Early(Span),
}

/// What a pane holds after it fired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accumulation {
    /// All its events: each emission replaces the one before.
    #[default]
    Accumulating,
    /// Only what comes next: emissions add up.
    Discarding,
}

/// One windowed aggregation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorSpec {
    /// Unique name.
    pub name: String,
    /// Which windows.
    pub windows: Tumbling,
    /// How long after its end a window still takes events.
    pub allowed_lateness: Span,
    /// Emission mode.
    pub mode: Mode,
    /// Trigger; ignored in update mode.
    pub trigger: Trigger,
    /// Whether firing clears a pane.
    pub accumulation: Accumulation,
    /// What is computed.
    pub aggregates: Vec<AggregateSpec>,
    /// Names of the key fields, in order; empty for one pane per window.
    pub key: Vec<String>,
    /// Names of the sources it reads; `None` for all. The watermark is that of all sources either way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sources: Option<Vec<String>>,
    /// The same sources by index, filled in by the store; a matter of one run, not of the definition.
    #[serde(skip)]
    pub source_ids: Option<Vec<SourceId>>,
    /// Index of the key column in the batches; a matter of one run, not of the definition.
    #[serde(skip)]
    pub key_column: usize,
}

impl OperatorSpec {
    /// The common case: fires once, when the watermark closes the window.
    #[must_use]
    pub fn new(name: &str, windows: Tumbling, key: &[&str], aggregates: Vec<AggregateSpec>) -> Self {
        Self {
            name: name.to_owned(),
            windows,
            allowed_lateness: Span::ZERO,
            mode: Mode::Append,
            trigger: Trigger::Watermark,
            accumulation: Accumulation::Accumulating,
            aggregates,
            key: key.iter().map(|&field| field.to_owned()).collect(),
            sources: None,
            source_ids: None,
            key_column: 0,
        }
    }

    /// True when it takes the events of `source`.
    #[inline]
    #[must_use]
    pub fn reads(&self, source: SourceId) -> bool {
        self.source_ids.as_ref().is_none_or(|sources| sources.contains(&source))
    }

    /// True when each pane fires exactly once and is gone with its window, so that a pane may be kept in parts.
    #[must_use]
    pub fn fires_once(&self) -> bool {
        self.mode == Mode::Append && self.trigger == Trigger::Watermark && self.allowed_lateness == Span::ZERO
    }
}
