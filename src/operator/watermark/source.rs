//! How the watermark of one source comes about, and how those of several become one. Plain data.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Bounds;
use crate::event_time::Span;
use crate::operator::DedupSpec;

/// Name of the source of a store that declares none.
pub const DEFAULT_SOURCE: &str = "source";

/// What event times say about those still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// Events come at most so far behind the latest one: the watermark is the latest event time less the delay.
    Bounded(Span),
    /// Events of a partition come in order; one that goes back is counted, and is late where it has to be.
    Monotone,
    /// Some events say so themselves, see [`crate::event::EventBatch::punctuations`]; the others move nothing.
    Punctuated,
    /// Nothing: no watermark before the input ends. Beside sources that have one, it takes no part.
    None,
}

impl Strategy {
    /// The strategy that a delay stands for; [`Span::MAX`] means that there is no bound.
    #[must_use]
    pub fn delayed(delay: Span) -> Self {
        if delay == Span::MAX { Self::None } else { Self::Bounded(delay) }
    }

    /// How far the watermark stays behind the latest event; `None` when event times do not move it.
    #[must_use]
    pub const fn delay(self) -> Option<Span> {
        match self {
            Self::Bounded(delay) => Some(delay),
            Self::Monotone => Some(Span::ZERO),
            Self::Punctuated | Self::None => None,
        }
    }
}

/// How the watermarks of several sources become that of the task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// The slowest source decides: nothing is late because another source was ahead.
    #[default]
    Min,
    /// The fastest source decides: events of slower ones may be late.
    Max,
}

/// A source: a set of partitions whose event times are of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSpec {
    /// Unique name.
    pub name: String,
    /// What its event times say.
    pub strategy: Strategy,
    /// After so much silence a partition without backlog no longer holds the watermark back.
    pub idle_timeout: Option<Duration>,
    /// Which event times are believed.
    pub bounds: Bounds,
    /// A single event that moves the watermark by more than this is remarked on; `None` for never.
    pub jump_warning: Option<Span>,
    /// Whether events that repeat an earlier one are dropped.
    pub dedup: Option<DedupSpec>,
}

impl SourceSpec {
    /// A source that believes every time, without idle time-out.
    #[must_use]
    pub fn new(name: &str, strategy: Strategy) -> Self {
        let jump_warning = Some(jump_warning(strategy));
        let bounds = Bounds::default();
        Self { name: name.to_owned(), strategy, idle_timeout: None, bounds, jump_warning, dedup: None }
    }
}

/// More than this in one step looks like a wrong clock: a hundred delays, and at least a day.
fn jump_warning(strategy: Strategy) -> Span {
    const DAY_MS: i64 = 86_400_000;
    let delay = strategy.delay().unwrap_or_default();
    Span::from_millis(delay.as_millis().saturating_mul(100).max(DAY_MS)).unwrap_or(Span::MAX)
}
