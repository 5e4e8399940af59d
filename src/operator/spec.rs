//! What a windowed aggregation is asked to do.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::SourceId;
use super::fire::History;
use crate::aggregate::{AggregateSpec, Layout};
use crate::event_time::{Span, Windows};

/// When results of a window are emitted, in relation to its changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// When the trigger fires.
    #[default]
    Append,
    /// Each pane that changed, in its new state: after each accepted event, or, when the trigger says so or the
    /// watermark advances by batches, once for all changes since. Nothing more at closing.
    Update,
    /// All panes there ever were, at each firing: at the end of each batch, at each interval of the trigger, and at
    /// the end of the input. Nothing is late and nothing is forgotten.
    Complete,
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
    /// As `Watermark`, and also at each multiple of the span by the wall clock, what changed since; late events wait
    /// for the next multiple.
    Interval(Span),
    /// As `Watermark`, with firings of their own before and after the window closes.
    Composite {
        /// Before the watermark reaches the window's end.
        early: Repeat,
        /// After it. What waits when the window expires is emitted then.
        late: Repeat,
    },
}

/// What makes a pane fire again and again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Repeat {
    /// Nothing.
    Never,
    /// Each event.
    #[default]
    Each,
    /// Every n-th event.
    Count(u32),
    /// The watermark passes a multiple of the span. Only before the window closes.
    EventTime(Span),
    /// The wall clock passes a multiple of the span.
    Interval(Span),
}

impl fmt::Display for Repeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.write_str("never"),
            Self::Each => f.write_str("each event"),
            Self::Count(events) => write!(f, "every {events} events"),
            Self::EventTime(span) => write!(f, "every {span} of event time"),
            Self::Interval(span) => write!(f, "every {span} by the clock"),
        }
    }
}

impl fmt::Display for Trigger {
    /// In words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Watermark => f.write_str("when the watermark passes the end"),
            Self::Count(events) => write!(f, "every {events} events of a pane"),
            Self::Early(span) => write!(f, "at the end, and early every {span}"),
            Self::Interval(span) => write!(f, "at the end, and every {span} by the clock"),
            Self::Composite { early, late } => write!(f, "at the end, early {early}, late {late}"),
        }
    }
}

impl Trigger {
    /// What fires before the window closes.
    #[must_use]
    pub const fn early(self) -> Repeat {
        match self {
            Self::Watermark => Repeat::Never,
            Self::Count(events) => Repeat::Count(events),
            Self::Early(span) => Repeat::EventTime(span),
            Self::Interval(span) => Repeat::Interval(span),
            Self::Composite { early, .. } => early,
        }
    }

    /// What fires after it.
    #[must_use]
    pub const fn late(self) -> Repeat {
        match self {
            Self::Watermark | Self::Early(_) => Repeat::Each,
            Self::Count(events) => Repeat::Count(events),
            Self::Interval(span) => Repeat::Interval(span),
            Self::Composite { late, .. } => late,
        }
    }

    /// True when closing itself fires.
    #[must_use]
    pub const fn on_time(self) -> bool {
        !matches!(self, Self::Count(_))
    }
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

/// Which time places an event in its windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeDomain {
    /// The event's own time; windows close with the watermark.
    #[default]
    Event,
    /// The wall clock when it was processed; windows close with that clock. Nothing is late. What is processed again
    /// after a restart may fall into other windows.
    Processing,
}

/// How the watermark reaches an operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Advance {
    /// After each event, so that it makes no difference how the input was cut into batches.
    #[default]
    Event,
    /// Between batches, one batch behind: what Spark does. Windows that end by 1970 count as closed from the start,
    /// and events are tested against each of their windows.
    Batch,
}

/// One windowed aggregation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorSpec {
    /// Unique name.
    pub name: String,
    /// Which windows.
    pub windows: Windows,
    /// How long after its end a window still takes events.
    pub allowed_lateness: Span,
    /// Emission mode.
    pub mode: Mode,
    /// In update mode, whether an emission first takes back the one that it replaces.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retractions: bool,
    /// Trigger.
    pub trigger: Trigger,
    /// Whether firing clears a pane.
    pub accumulation: Accumulation,
    /// Which time counts.
    #[serde(default)]
    pub time: TimeDomain,
    /// How the watermark advances.
    #[serde(default)]
    pub advance: Advance,
    /// What is computed.
    pub aggregates: Vec<AggregateSpec>,
    /// Names of the key fields, in order; empty for one pane per window.
    pub key: Vec<String>,
    /// The operator whose results are its events; `None` for events of sources. A result is an event at the last
    /// millisecond of its window; it must come from an operator declared before, whose panes fire once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
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
    pub fn new(
        name: &str,
        windows: impl Into<Windows>,
        key: &[&str],
        aggregates: Vec<AggregateSpec>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            windows: windows.into(),
            allowed_lateness: Span::ZERO,
            mode: Mode::Append,
            retractions: false,
            trigger: Trigger::Watermark,
            accumulation: Accumulation::Accumulating,
            time: TimeDomain::Event,
            advance: Advance::Event,
            aggregates,
            key: key.iter().map(|&field| field.to_owned()).collect(),
            input: None,
            sources: None,
            source_ids: None,
            key_column: 0,
        }
    }

    /// Refuses what cannot work together.
    ///
    /// # Errors
    /// What is wrong, as a sentence without a subject, for people.
    pub fn check(&self) -> Result<(), &'static str> {
        let batch = self.advance == Advance::Batch;
        let update = self.mode == Mode::Update;
        let interval = matches!(self.trigger.early(), Repeat::Interval(_));
        let counts = [self.trigger.early(), self.trigger.late()];
        if counts.contains(&Repeat::Count(0)) {
            return Err("a count of zero never fires");
        }
        if matches!(self.trigger.late(), Repeat::EventTime(_)) {
            return Err("late firings cannot follow event time, which has passed the window");
        }
        if self.windows == Windows::Global && matches!(self.trigger.early(), Repeat::EventTime(_)) {
            return Err("a window without an end has no end to its early firings");
        }
        if self.windows == Windows::Global && self.allowed_lateness != Span::ZERO {
            return Err("a window without an end has no late events to allow");
        }
        if batch && (self.trigger != Trigger::Watermark || self.allowed_lateness != Span::ZERO) {
            return Err(
                "by batches there are no triggers and no allowed lateness: panes fire at the end of a batch",
            );
        }
        if self.time == TimeDomain::Processing && (batch || self.allowed_lateness != Span::ZERO) {
            return Err("by the wall clock nothing is late, and no batches count");
        }
        if update && !interval && self.trigger != Trigger::Watermark {
            return Err("update emits after every event; only an interval changes that");
        }
        if self.mode != Mode::Append && self.accumulation == Accumulation::Discarding {
            return Err(
                "discarding rows are increments, and these modes replace the earlier row by the later: events would be \
                 lost to the reader",
            );
        }
        if self.mode == Mode::Complete
            && (self.allowed_lateness != Span::ZERO || !(interval || self.trigger == Trigger::Watermark))
        {
            return Err(
                "complete forgets nothing and nothing is late; of triggers only an interval has an effect",
            );
        }
        if self.retractions && (!update || self.gathers_changes()) {
            return Err("only update mode takes results back, and only where it emits after each event");
        }
        Ok(())
    }

    /// The rows of its panes: accumulators, the start of a session, and what a pane that may fire more than once
    /// remembers of its firings.
    #[must_use]
    pub fn layout(&self) -> Layout {
        Layout::with_extra(&self.aggregates, &self.extra_words())
    }

    /// What the words of its rows behind the accumulators start as.
    pub(crate) fn extra_words(&self) -> Vec<u64> {
        let mut extra = Vec::new();
        if self.windows.session_gap().is_some() {
            extra.push(0);
        }
        if !self.fires_once() {
            extra.extend_from_slice(&History::NEW);
        }
        extra
    }

    /// True when it takes the events of `source`.
    #[inline]
    #[must_use]
    pub fn reads(&self, source: SourceId) -> bool {
        self.input.is_some() || self.source_ids.as_ref().is_none_or(|sources| sources.contains(&source))
    }

    /// True when each pane fires exactly once and is gone with its window, so that a pane may be kept in parts.
    #[must_use]
    pub fn fires_once(&self) -> bool {
        self.mode == Mode::Append && self.trigger == Trigger::Watermark && self.allowed_lateness == Span::ZERO
    }

    /// True when windows share slices instead of each holding its own panes. Panes that may fire more than once are
    /// kept by window: each remembers its firings.
    #[must_use]
    pub fn shares_slices(&self) -> bool {
        self.windows.overlap() && self.fires_once()
    }

    /// True when panes that changed wait to be emitted together.
    #[must_use]
    pub fn gathers_changes(&self) -> bool {
        let waits = |repeat| matches!(repeat, Repeat::Interval(_));
        match self.mode {
            Mode::Append => waits(self.trigger.early()) || waits(self.trigger.late()),
            Mode::Update => self.advance == Advance::Batch || waits(self.trigger.early()),
            Mode::Complete => false,
        }
    }

    /// How long after the end of a stored pane it may still be needed, at most.
    #[must_use]
    pub fn retention(&self) -> Span {
        if self.mode == Mode::Complete {
            return Span::MAX;
        }
        let shared = if self.shares_slices() { self.windows.needed_after_end() } else { Span::ZERO };
        let millis = shared.as_millis().saturating_add(self.allowed_lateness.as_millis());
        Span::from_millis(millis).unwrap_or(Span::MAX)
    }
}
