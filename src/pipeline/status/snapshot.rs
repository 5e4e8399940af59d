//! How a run stands at one moment, as plain data: what the status page, REST and metrics are made of.
//!
//! Event times come as text and as milliseconds. What ends in `_ms` is a length of time in milliseconds, what ends in
//! `_at_ms` a moment of the wall clock, in milliseconds since 1970. There is nothing of single keys in it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::super::report::Uploads;
use crate::event_time::{EventTime, Watermark};

/// Partitions of which a snapshot tells each by itself: those that are being read come first.
pub const PARTITIONS_MAX: usize = 1_000;

/// A run at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Snapshot {
    /// When it was taken.
    pub taken_at_ms: i64,
    /// The run as a whole.
    pub run: RunStatus,
    /// The watermark of the task.
    pub watermark: WatermarkStatus,
    /// The sources, in the order of the pipeline file.
    pub sources: Vec<SourceStatus>,
    /// Their partitions, at most [`PARTITIONS_MAX`].
    pub partitions: Vec<PartitionStatus>,
    /// Partitions that are not listed.
    pub partitions_left_out: u64,
    /// Windowed aggregations, then joins, in the order of the pipeline file.
    pub operators: Vec<OperatorStatus>,
    /// What came in, and what became of it.
    pub input: InputStatus,
    /// Checkpoints.
    pub checkpoints: CheckpointStatus,
    /// State on disk and in memory.
    pub state: StateStatus,
    /// What waits between the threads of the run.
    pub queues: QueueStatus,
    /// Results on their way out.
    pub outputs: OutputStatus,
    /// The repository of checkpoints; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<Uploads>,
}

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// It opens its state, and restores it.
    Starting,
    /// It reads and processes.
    Running,
    /// It reads no more: it makes its last checkpoint and delivers its results.
    Finishing,
    /// It has come to the end of its input.
    Completed,
    /// It was told to stop, and did.
    Stopped,
    /// It has failed.
    Failed,
}

impl Phase {
    /// Stable lowercase name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Finishing => "finishing",
            Self::Completed => "completed",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }
}

/// A run as a whole.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunStatus {
    /// Name of the pipeline.
    pub pipeline: String,
    /// Version of Floodmark.
    pub version: &'static str,
    /// Where it is.
    pub phase: Phase,
    /// Why it failed, once it has.
    pub error: Option<String>,
    /// When it started.
    pub started_at_ms: i64,
    /// How long it has been going.
    pub elapsed_ms: u64,
    /// Epoch of the checkpoint that it started from; none for a fresh start.
    pub restored_epoch: Option<u64>,
}

/// A moment of event time, or none, or the end of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Moment {
    /// As text: RFC 3339 in UTC, `none`, or `end of input`.
    pub text: String,
    /// In milliseconds since 1970, where it is an instant.
    pub ms: Option<i64>,
}

impl From<Watermark> for Moment {
    fn from(watermark: Watermark) -> Self {
        Self { text: watermark.to_string(), ms: watermark.instant().map(EventTime::as_millis) }
    }
}

impl From<EventTime> for Moment {
    fn from(time: EventTime) -> Self {
        Self { text: time.to_string(), ms: Some(time.as_millis()) }
    }
}

/// The watermark of the task.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WatermarkStatus {
    /// The combined watermark, W.
    pub combined: Moment,
    /// True once the input has ended: nothing is open any more.
    pub ended: bool,
    /// True when any source has a rule that makes a watermark.
    pub expected: bool,
    /// When it moved last, or the run started.
    pub moved_at_ms: i64,
    /// How long ago that was.
    pub unmoved_ms: u64,
    /// Latest event time that was seen in any partition.
    pub max_time: Option<Moment>,
    /// How far W is behind it.
    pub event_lag_ms: Option<i64>,
    /// How far W is behind the wall clock.
    pub clock_lag_ms: Option<i64>,
    /// The partition that W stands at.
    pub holder: Option<HolderStatus>,
    /// Events that moved W further than events should, in this run.
    pub jumps: u64,
    /// The last of them.
    pub last_jump: Option<JumpStatus>,
}

/// The partition that the watermark stands at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HolderStatus {
    /// Its name.
    pub partition: String,
    /// Its source.
    pub source: String,
    /// Since when W is taken from it.
    pub since_at_ms: i64,
    /// How long ago that was.
    pub for_ms: u64,
    /// Its own watermark.
    pub watermark: Moment,
    /// Latest event time that was seen in it.
    pub max_time: Option<Moment>,
    /// How far its watermark stays behind its latest event.
    pub delay_ms: Option<i64>,
    /// True when it holds W back; else no partition counts any more, and it is the one that came furthest.
    pub holds_back: bool,
    /// When a record came from it last, in this run.
    pub last_record_at_ms: Option<i64>,
    /// The silence after which it would be idle and hold nothing back, where there is such a time-out for it.
    pub idle_timeout_ms: Option<u64>,
}

/// An event that moved the watermark further than events should.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JumpStatus {
    /// Where it came from.
    pub partition: String,
    /// W before it.
    pub from: Moment,
    /// W after it.
    pub to: Moment,
    /// How far that is.
    pub length_ms: i64,
    /// When it was noticed.
    pub seen_at_ms: i64,
}

/// A source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceStatus {
    /// Its name.
    pub name: String,
    /// True when it reads standard input, whose events come as they happen.
    pub live: bool,
    /// Its watermark.
    pub watermark: Moment,
    /// How far its watermark stays behind the latest event; none where events do not move it.
    pub delay_ms: Option<i64>,
    /// The silence after which a partition of it is idle.
    pub idle_timeout_ms: Option<u64>,
    /// Its partitions.
    pub partitions: u64,
}

/// Where a partition stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PartitionState {
    /// No event came from it so far: it holds the watermark back.
    Silent,
    /// It has spoken, and counts.
    Active,
    /// Silent for longer than its idle time-out: it holds nothing back.
    Idle,
    /// Read to its end.
    Finished,
    /// Its events count under another partition's watermark.
    Follows,
}

impl PartitionState {
    /// Stable lowercase name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::Active => "active",
            Self::Idle => "idle",
            Self::Finished => "finished",
            Self::Follows => "follows",
        }
    }
}

/// A partition of a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartitionStatus {
    /// Its name: the path of a file, or `-` for standard input.
    pub name: String,
    /// Its source.
    pub source: String,
    /// Where it stands.
    pub state: PartitionState,
    /// The partition whose watermark its events count under, when it is another one.
    pub follows: Option<String>,
    /// True when it is the one that W stands at and that holds it back.
    pub holds_back: bool,
    /// Its own watermark.
    pub watermark: Moment,
    /// When that moved last, or the run started.
    pub watermark_moved_at_ms: i64,
    /// Latest event time that was seen in it.
    pub max_time: Option<Moment>,
    /// How far its latest event is ahead of the median of the other partitions that count; negative when it is behind.
    pub lead_ms: Option<i64>,
    /// Records read of it, over all runs.
    pub records: u64,
    /// Of these, those of this run.
    pub records_this_run: u64,
    /// Decompressed bytes read of it, over all runs: the offset where it is read on.
    pub bytes: u64,
    /// Of these, those of this run.
    pub bytes_this_run: u64,
    /// When a record came from it last, in this run.
    pub last_record_at_ms: Option<i64>,
    /// True when it was read to its end.
    pub read_to_end: bool,
    /// Late events of this run, once for each window that they were late for.
    pub late: u64,
    /// Records of this run that were rejected.
    pub rejected: u64,
}

/// The kind of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OperatorKind {
    /// A windowed aggregation.
    Window,
    /// A join.
    Join,
}

/// A windowed aggregation, or a join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OperatorStatus {
    /// Its name.
    pub name: String,
    /// Which of the two.
    pub kind: OperatorKind,
    /// Its windows in words, or what is joined.
    pub windows: String,
    /// Names of its key fields.
    pub key_fields: Vec<String>,
    /// The window whose results it reads, when it reads no source.
    pub input: Option<String>,
    /// How far the watermark has come in it.
    pub watermark: Moment,
    /// Open windows, or slices that windows share; sessions. Of a join none.
    pub open_windows: u64,
    /// Panes in memory; of a join, events that wait.
    pub open_panes: u64,
    /// Of the open windows, those that are due and were not fired yet, while it is firing step by step.
    pub due_windows: u64,
    /// True while it is firing step by step.
    pub firing: bool,
    /// The end of the first window that is still to close. Of sessions, the first instant at which one may be due.
    pub next_end: Option<Moment>,
    /// Times that panes of a window were emitted together, in this run.
    pub fired: u64,
    /// Rows emitted, over all runs.
    pub rows: u64,
    /// Of these, those of this run.
    pub rows_this_run: u64,
    /// Events that were late for all its windows, over all runs; they are dropped, or kept in the late output.
    pub late: u64,
    /// Of these, those of this run.
    pub late_this_run: u64,
    /// The latest that one was behind the expiry of its last window, in this run.
    pub late_by_ms_max: Option<i64>,
    /// Bytes of memory.
    pub memory_bytes: u64,
}

/// What came in, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InputCounts {
    /// Records that became events.
    pub events: u64,
    /// Decompressed bytes.
    pub bytes: u64,
    /// Records that filters passed over.
    pub filtered: u64,
    /// Records that could not become events, by reason.
    pub rejected: BTreeMap<String, u64>,
    /// Events that were dropped as repetitions, by source.
    pub duplicates: BTreeMap<String, u64>,
}

/// What came in, and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct InputStatus {
    /// All of the lineage.
    pub total: InputCounts,
    /// All of this run.
    pub this_run: InputCounts,
    /// Events per second over the last ten seconds.
    pub events_per_second: f64,
    /// Decompressed bytes per second over the last ten seconds.
    pub bytes_per_second: f64,
    /// True when late events are kept in an output.
    pub late_is_kept: bool,
    /// True when rejected records are kept in an output.
    pub rejected_is_kept: bool,
}

/// Checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CheckpointStatus {
    /// How often they are to come.
    pub interval_ms: u64,
    /// Complete ones of this run.
    pub count: u64,
    /// Failed ones of this run; the run ends with the first.
    pub failures: u64,
    /// The newest one.
    pub last: Option<CheckpointFigures>,
    /// How old the newest is.
    pub age_ms: Option<u64>,
    /// For how long there have been events that no complete checkpoint holds; 0 when it holds all.
    pub unsaved_ms: u64,
    /// How long one has been under way.
    pub in_flight_ms: Option<u64>,
    /// Bytes written for those of this run.
    pub new_bytes: u64,
    /// How long processing stood still for those of this run.
    pub pause_ms: f64,
    /// How long those of this run took beside processing, from the barrier to the published output.
    pub duration_ms: f64,
}

/// A complete checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckpointFigures {
    /// Its number.
    pub epoch: u64,
    /// When it was complete.
    pub completed_at_ms: i64,
    /// True when this run started from it; its other figures are then not known.
    pub restored: bool,
    /// How long processing stood still.
    pub pause_ms: f64,
    /// How long it took beside processing.
    pub duration_ms: f64,
    /// Bytes of files that are new in it.
    pub new_bytes: u64,
    /// Bytes of files that it shares with the one before.
    pub shared_bytes: u64,
    /// Files in it.
    pub files: u64,
    /// Panes written for it.
    pub panes: u64,
}

/// State on disk and in memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StateStatus {
    /// Bytes of the files of the working state in use.
    pub disk_bytes: u64,
    /// Bytes of all its files, those included that wait to be deleted.
    pub disk_total_bytes: u64,
    /// Entries in the state database, as it estimates.
    pub entries_estimate: u64,
    /// Panes in memory, and events that joins and deduplication remember.
    pub resident_panes: u64,
    /// Bytes of memory that these take.
    pub hot_bytes: u64,
    /// Bytes of memory of the block cache, write buffers included.
    pub cache_bytes: u64,
    /// Of these, those of write buffers.
    pub write_buffer_bytes: u64,
    /// Of the cache, those that cannot be thrown out at the moment.
    pub pinned_bytes: u64,
    /// The memory that the pipeline file allows.
    pub budget_bytes: u64,
    /// Most files in level 0 of any column family.
    pub level0_files_max: u64,
    /// Bytes that compactions are behind.
    pub compaction_pending_bytes: u64,
    /// True while writes are stopped.
    pub write_stopped: bool,
    /// Bytes per second that writes are slowed down to; 0 when they are not.
    pub delayed_write_rate: u64,
    /// Times that writes were stopped or slowed down, in this run.
    pub write_stalls: u64,
    /// How long they were, in this run.
    pub write_stalled_ms: u64,
}

/// What waits between the threads of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QueueStatus {
    /// Blocks of input that are read and wait to be processed.
    pub blocks_ahead: u64,
    /// As many as there is room for; the reader waits with one more.
    pub blocks_ahead_max: u64,
    /// Jobs that wait for the thread that writes state, the one it is at included.
    pub state_writes: u64,
}

/// Results on their way out.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OutputStatus {
    /// Epochs whose results wait to be delivered, of the sink where it is most.
    pub waiting_epochs: u64,
    /// Rows that wait to be delivered, over all outputs.
    pub waiting_rows: u64,
    /// How long something has been waiting.
    pub waiting_ms: Option<u64>,
    /// Of the newest checkpoint: time from its barrier until its results were published.
    pub delay_ms: Option<f64>,
    /// Of that, the time that publishing took.
    pub publish_ms: Option<f64>,
}

impl Snapshot {
    /// A run that has not opened its state yet.
    #[must_use]
    pub fn starting(pipeline: &str, wall_millis: i64) -> Self {
        Self {
            taken_at_ms: wall_millis,
            run: RunStatus {
                pipeline: pipeline.to_owned(),
                version: env!("CARGO_PKG_VERSION"),
                phase: Phase::Starting,
                error: None,
                started_at_ms: wall_millis,
                elapsed_ms: 0,
                restored_epoch: None,
            },
            watermark: WatermarkStatus {
                combined: Watermark::None.into(),
                moved_at_ms: wall_millis,
                ..WatermarkStatus::default()
            },
            sources: Vec::new(),
            partitions: Vec::new(),
            partitions_left_out: 0,
            operators: Vec::new(),
            input: InputStatus::default(),
            checkpoints: CheckpointStatus::default(),
            state: StateStatus::default(),
            queues: QueueStatus::default(),
            outputs: OutputStatus::default(),
            repository: None,
        }
    }
}
