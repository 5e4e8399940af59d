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
    Count(u64),
    Early(i64),
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
