//! What a run is asked to do, and which combinations are refused.

use super::Windows;

/// When the watermark moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// After each record.
    Record,
    /// At each end of a batch.
    Batch,
}

/// What is emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Append,
    Update,
    Complete,
}

/// What makes a pane fire in append mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    EventTime,
    /// Nothing but this; closing itself emits nothing.
    Count(u64),
    Early(i64),
    /// Closing, with rules of their own before and after it.
    Composite {
        early: Rule,
        late: Rule,
    },
}

/// What makes a pane fire again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    Never,
    Each,
    Count(u64),
    /// The watermark reaches a multiple of so many milliseconds.
    EventTime(i64),
    /// So does processing time, for panes that took records since they fired.
    Clock(i64),
}

impl Trigger {
    /// The rule before the window closes.
    pub(super) const fn early(self) -> Rule {
        match self {
            Self::EventTime => Rule::Never,
            Self::Count(n) => Rule::Count(n),
            Self::Early(interval) => Rule::EventTime(interval),
            Self::Composite { early, .. } => early,
        }
    }

    /// The rule after it.
    pub(super) const fn late(self) -> Rule {
        match self {
            Self::EventTime | Self::Early(_) => Rule::Each,
            Self::Count(n) => Rule::Count(n),
            Self::Composite { late, .. } => late,
        }
    }

    /// True when processing time makes anything fire.
    pub(crate) const fn has_clock(self) -> bool {
        matches!(self.early(), Rule::Clock(_)) || matches!(self.late(), Rule::Clock(_))
    }
}

/// Why settings are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    InvalidWindow,
    UnsupportedMode,
}

impl Refusal {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::InvalidWindow => "invalid_window",
            Self::UnsupportedMode => "unsupported_mode",
        }
    }
}

/// Times that are believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) min_ms: Option<i64>,
    /// How far a record may be ahead of processing time.
    pub(crate) max_ahead_ms: Option<i64>,
}

/// The settings of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    pub(crate) profile: Profile,
    pub(crate) windows: Windows,
    pub(crate) delay_ms: i64,
    pub(crate) allowed_lateness_ms: i64,
    pub(crate) mode: Mode,
    pub(crate) trigger: Trigger,
    pub(crate) discarding: bool,
    /// In update mode, each row first takes back the one that it replaces.
    pub(crate) retractions: bool,
    pub(crate) partitions: usize,
    pub(crate) idle_timeout_ms: Option<i64>,
    pub(crate) bounds: Bounds,
    /// Records of an id already seen are dropped, as long as the watermark allows the id to come again.
    pub(crate) dedupe: bool,
}

impl Settings {
    pub(crate) fn new(windows: Windows) -> Self {
        Self {
            profile: Profile::Record,
            windows,
            delay_ms: 0,
            allowed_lateness_ms: 0,
            mode: Mode::Append,
            trigger: Trigger::EventTime,
            discarding: false,
            retractions: false,
            partitions: 1,
            idle_timeout_ms: None,
            bounds: Bounds::default(),
            dedupe: false,
        }
    }

    /// # Errors
    /// The first thing that cannot work.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        self.windows.check()?;
        let unsupported = match (self.profile, self.mode) {
            (Profile::Record, Mode::Complete) => true,
            (Profile::Batch, Mode::Update) => self.windows.is_session(),
            _ => false,
        };
        if unsupported { Err(Refusal::UnsupportedMode) } else { Ok(()) }
    }
}
