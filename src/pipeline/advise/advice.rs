//! What comes of it, as plain data. How it looks to people is for the command. All lengths are in milliseconds.

use serde::Serialize;

use crate::event_time::EventTime;
use crate::inspect::{Origin, as_optional_text};
use crate::operator::Spread;

/// How late the events of a pipeline are, and what each watermark delay would lose and hold.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// Name of the pipeline.
    pub pipeline: String,
    /// The checkpoint that all of this is estimated from; `None` where it was counted on the input.
    pub checkpoint: Option<Stored>,
    /// What was looked at.
    pub sample: Sample,
    /// The sources, and which of their delays the advice is about.
    pub sources: Vec<SourceDelay>,
    /// How late events are, over all partitions: how far each lies behind the latest event time of its partition so far.
    pub lateness: Spread,
    /// The same of each partition.
    pub partitions: Vec<PartitionLateness>,
    /// The windows that the figures are about.
    pub windows: Vec<AdvisedWindow>,
    /// What each delay would do, by ascending delay.
    pub candidates: Vec<Candidate>,
    /// The share of events that may be lost, from 0 to 1.
    pub loss_budget: f64,
    /// The smallest round delay that keeps to the budget in every window; `None` when none does.
    pub recommendation: Option<Recommendation>,
    /// What a reader should know before acting on it.
    pub notes: Vec<String>,
}

impl Advice {
    /// The delay that is set now, where all sources in question have the same.
    #[must_use]
    pub fn current(&self) -> Option<&Candidate> {
        self.candidates.iter().find(|candidate| candidate.is_current)
    }

    /// What the recommended delay would do.
    #[must_use]
    pub fn recommended(&self) -> Option<&Candidate> {
        self.candidates.iter().find(|candidate| candidate.is_recommended)
    }
}

/// The checkpoint that advice is estimated from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stored {
    /// Which one.
    #[serde(flatten)]
    pub origin: Origin,
    /// By what share of itself any length may be wrong.
    pub relative_error: f64,
}

/// The input that was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// Events, those that repeat earlier ones included.
    pub events: u64,
    /// Records that could not become events.
    pub rejected: u64,
    /// Records that a filter passed over.
    pub filtered: u64,
    /// Earliest event time.
    #[serde(serialize_with = "as_optional_text")]
    pub first: Option<EventTime>,
    /// Latest event time.
    #[serde(serialize_with = "as_optional_text")]
    pub last: Option<EventTime>,
    /// The whole input was read; otherwise the first so many events of it.
    pub complete: bool,
}

/// A source, and how its watermark comes about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceDelay {
    /// Its name.
    pub source: String,
    /// Its delay as it is set; `None` when event times do not move its watermark.
    pub delay_ms: Option<i64>,
    /// The candidate delays are tried here; otherwise it keeps what it has.
    pub varied: bool,
}

/// How late the events of a partition are, and how far some are ahead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartitionLateness {
    /// Its name.
    pub partition: String,
    /// Its source.
    pub source: String,
    /// How far its events lie behind the latest event time of the partition so far.
    pub lateness: Spread,
    /// How far they lie ahead of the wall clock at the time of reading: their own clock is wrong, or ours.
    pub ahead_of_clock: Spread,
    /// How far they lie ahead of the other partitions: of the median of the latest event times of those of its source
    /// that have spoken and are not read to their end. `None` when there never was any.
    pub ahead_of_partitions: Option<Spread>,
    /// The furthest that one event went past all before it.
    pub step_max_ms: i64,
}

/// A windowed aggregation that the figures are about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AdvisedWindow {
    /// Its name.
    pub window: String,
    /// Its windows in words.
    pub windows: String,
    /// How long after its end a window still takes events.
    pub allowed_lateness_ms: i64,
}

/// One watermark delay, and what it would do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// The delay; `None` where each source keeps its own.
    pub delay_ms: Option<i64>,
    /// It is the one that is set now.
    pub is_current: bool,
    /// It is the one that is recommended.
    pub is_recommended: bool,
    /// By how much later results come than now; negative for earlier.
    pub extra_wait_ms: Option<i64>,
    /// Events more than the delay behind their partition, whether or not their windows have closed: the figure that
    /// needs no windows. `None` where each source keeps its own.
    pub behind: Option<u64>,
    /// What it would do in each window.
    pub outcomes: Vec<Outcome>,
}

/// What a delay would do in one windowed aggregation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// Name of the aggregation.
    pub window: String,
    /// Events that it reads.
    pub events: u64,
    /// Those of them that come too late for all their windows.
    pub lost: u64,
    /// Those that come too late for some of their windows, not for all.
    pub short: u64,
    /// Open panes, on the mean over arrivals.
    pub panes_mean: f64,
    /// Open panes at most.
    pub panes_peak: u64,
    /// Open panes at the end of the sample, before the end of the input closes them.
    pub panes_end: u64,
    /// Bytes of memory that panes take, on the mean over arrivals.
    pub memory_bytes_mean: f64,
    /// Bytes of memory that panes take at most.
    pub memory_bytes_peak: u64,
    /// Windows were forgotten within the sample. Otherwise it is shorter than windows and delay together, and panes and
    /// bytes would still have grown.
    pub settled: bool,
}

impl Outcome {
    /// The share of the events that is lost.
    #[must_use]
    pub fn lost_share(&self) -> f64 {
        if self.events == 0 { 0.0 } else { self.lost as f64 / self.events as f64 }
    }

    /// True when no more than the share `budget` is lost.
    #[must_use]
    pub fn keeps_to(&self, budget: f64) -> bool {
        self.lost as f64 <= budget * self.events as f64
    }
}

/// The delay to set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recommendation {
    /// The delay.
    pub delay_ms: i64,
    /// The same as the pipeline file takes it.
    pub delay: String,
    /// The window that needs it most.
    pub window: String,
    /// The share of its events that is lost.
    pub lost_share: f64,
    /// The delay that is set now keeps to the budget as well.
    pub current_is_enough: bool,
}
