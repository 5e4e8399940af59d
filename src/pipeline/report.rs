//! What a run tells while it goes on, and what it sums up at the end. Plain data; how it looks is up to the command.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::config::PipelineConfig;
use super::outputs::Counters;
use super::sink::RecoverReport;
use crate::event_time::Watermark;
use crate::repository::UploadStats;
use crate::store::{CheckpointReport, WindowStore};

/// Follows a run. Calls come on the task's thread: be quick.
pub trait Watch {
    /// The state is open and the outputs are in place; reading starts.
    fn started(&mut self, _restart: &Restart) {}
    /// A block of input was processed, or a step of a long firing; `events` are those of the whole lineage so far. Comes
    /// many times a second.
    fn processed(&mut self, _events: u64) {}
    /// Twice a second, more or less.
    fn progress(&mut self, _progress: &Progress) {}
    /// A checkpoint is durable and its output published.
    fn checkpoint(&mut self, _report: &CheckpointReport) {}
    /// The run is over.
    fn finished(&mut self, _summary: &RunSummary) {}
}

/// Follows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Watch for Silent {}

/// From what a run started.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Restart {
    /// Epoch of the restored checkpoint; `None` for a fresh start.
    pub epoch: Option<u64>,
    /// How old it was, by the wall clock.
    pub age_ms: Option<u64>,
    /// Panes brought back into memory.
    pub panes: u64,
    /// Epochs that were passed over because an older one was asked for.
    pub passed_over: Vec<u64>,
    /// Parts of output that a crash had kept from being published, and now are.
    pub parts_published: u64,
    /// Parts of output that were moved aside.
    pub parts_set_aside: u64,
    /// Rows that the checkpoint had staged and that are gone, where the run was told to go on without them.
    pub rows_given_up: u64,
    /// Time from the start to the first read.
    pub took_ms: f64,
}

impl Restart {
    pub(super) fn new(store: &WindowStore, recovered: &[RecoverReport], now_ms: i64, took: Duration) -> Self {
        let restored = store.restored();
        let manifest = restored.map(|restored| restored.manifest());
        let sum = |count: fn(&RecoverReport) -> usize| recovered.iter().map(count).sum::<usize>() as u64;
        Self {
            epoch: manifest.map(|manifest| manifest.epoch),
            age_ms: manifest
                .map(|manifest| now_ms.saturating_sub(manifest.created_at_ms).max(0).unsigned_abs()),
            panes: restored.map_or(0, |restored| restored.panes_loaded as u64),
            passed_over: restored.map(|restored| restored.newer.clone()).unwrap_or_default(),
            parts_published: sum(|report| report.published.len()),
            parts_set_aside: sum(|report| report.set_aside.len()),
            rows_given_up: recovered.iter().map(|report| report.rows_given_up).sum(),
            took_ms: millis(took),
        }
    }
}

/// How a run stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Events of the whole lineage.
    pub events: u64,
    /// Events of this run.
    pub events_this_run: u64,
    /// Result rows.
    pub results: u64,
    /// Late events.
    pub late: u64,
    /// Rejected records.
    pub rejected: u64,
    /// The watermark.
    pub watermark: Watermark,
    /// Panes in memory.
    pub open_panes: u64,
    /// Epoch of the newest checkpoint.
    pub last_epoch: Option<u64>,
    /// Time since it was finished, when this run made it.
    pub checkpoint_age: Option<Duration>,
    /// Time since the start.
    pub elapsed: Duration,
}

/// What a run did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunSummary {
    /// Name of the pipeline.
    pub pipeline: String,
    /// `completed` at the end of the input, `stopped` when asked to.
    pub outcome: &'static str,
    /// From what it started.
    pub start: Restart,
    /// Events of this run.
    pub events: u64,
    /// Seconds that it took.
    pub seconds: f64,
    /// Events per second of this run.
    pub events_per_second: f64,
    /// Decompressed input bytes of this run.
    pub input_bytes: u64,
    /// Totals of the whole lineage.
    pub total: Totals,
    /// The watermark in the end.
    pub watermark: String,
    /// The watermark of each source.
    pub source_watermarks: BTreeMap<String, String>,
    /// Events of this run that went back in time in a source said to be monotone.
    pub steps_back: u64,
    /// Panes left in memory.
    pub open_panes: u64,
    /// Last lines without a line end that were left for later.
    pub unended: Unended,
    /// Checkpoints of this run.
    pub checkpoints: Checkpoints,
    /// What of them got into the repository; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<Uploads>,
}

/// Last lines that were left for later, since they may not have been written to their end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Unended {
    /// Files that end so.
    pub files: u64,
    /// Bytes of these lines.
    pub bytes: u64,
}

/// Checkpoints of a run that were mirrored to the repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Uploads {
    /// Uploaded.
    pub uploaded: u64,
    /// Passed over for newer ones.
    pub skipped: u64,
    /// Not uploaded, after all retries.
    pub failed: u64,
    /// Bytes written.
    pub new_bytes: u64,
    /// Bytes that were there already.
    pub shared_bytes: u64,
    /// Epoch of the newest checkpoint that is there, as far as this run knows.
    pub last_epoch: Option<u64>,
    /// Why the newest checkpoint is not there, when it is not.
    pub problem: Option<String>,
}

impl From<UploadStats> for Uploads {
    fn from(stats: UploadStats) -> Self {
        let UploadStats { uploaded, skipped, failed, new_bytes, shared_bytes, last_epoch, problem } = stats;
        Self { uploaded, skipped, failed, new_bytes, shared_bytes, last_epoch, problem }
    }
}

/// Totals over all runs of a lineage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Events.
    pub events: u64,
    /// Result rows by window.
    pub results: BTreeMap<String, u64>,
    /// Late events by window or join.
    pub late: BTreeMap<String, u64>,
    /// Events dropped as repetitions by source.
    pub duplicates: BTreeMap<String, u64>,
    /// Rejected records by reason.
    pub rejected: BTreeMap<String, u64>,
    /// Records that filters passed over.
    pub filtered: u64,
}

/// Checkpoints of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Checkpoints {
    /// How many.
    pub count: u64,
    /// Epoch of the newest.
    pub last_epoch: Option<u64>,
    /// Longest time that processing stood still for one.
    pub pause_ms_max: f64,
    /// Sum of these times.
    pub pause_ms_total: f64,
    /// Longest time from the barrier to the published output, beside processing.
    pub duration_ms_max: f64,
    /// Bytes written for them.
    pub new_bytes: u64,
    /// Panes written for them.
    pub panes_written: u64,
}

pub(super) struct SummaryBuilder {
    pipeline: String,
    start: Restart,
    before: Counters,
    checkpoints: Checkpoints,
    unended: Unended,
    last_finished: Option<Duration>,
}

impl SummaryBuilder {
    pub(super) fn new(config: &PipelineConfig, start: Restart, before: Counters) -> Self {
        let checkpoints = Checkpoints { last_epoch: start.epoch, ..Checkpoints::default() };
        let (pipeline, unended) = (config.name.clone(), Unended::default());
        Self { pipeline, start, before, checkpoints, unended, last_finished: None }
    }

    pub(super) fn paused(&mut self, pause: Duration) {
        let pause = millis(pause);
        self.checkpoints.pause_ms_max = self.checkpoints.pause_ms_max.max(pause);
        self.checkpoints.pause_ms_total += pause;
    }

    pub(super) fn unended(&mut self, bytes: u64) {
        self.unended.files += 1;
        self.unended.bytes += bytes;
    }

    /// Returns how long it took beside processing.
    pub(super) fn checkpoint(&mut self, report: &CheckpointReport, now: Duration) -> Duration {
        let checkpoints = &mut self.checkpoints;
        checkpoints.count += 1;
        checkpoints.last_epoch = Some(report.epoch);
        let took =
            report.spill + report.link + report.publish + report.upload + report.output + report.reread;
        checkpoints.duration_ms_max = checkpoints.duration_ms_max.max(millis(took));
        checkpoints.new_bytes += report.new_bytes;
        checkpoints.panes_written += report.panes_written as u64;
        self.last_finished = Some(now);
        took
    }

    pub(super) fn events_before(&self) -> u64 {
        self.before.events
    }

    pub(super) fn last_epoch(&self) -> Option<u64> {
        self.checkpoints.last_epoch
    }

    pub(super) fn checkpoint_age(&self, now: Duration) -> Option<Duration> {
        self.last_finished.map(|finished| now.saturating_sub(finished))
    }

    pub(super) fn finish(
        self,
        outcome: &'static str,
        counters: &Counters,
        store: &WindowStore,
        elapsed: Duration,
    ) -> RunSummary {
        let events = counters.events.saturating_sub(self.before.events);
        let seconds = elapsed.as_secs_f64();
        RunSummary {
            pipeline: self.pipeline,
            outcome,
            start: self.start,
            events,
            seconds,
            events_per_second: if seconds > 0.0 { events as f64 / seconds } else { 0.0 },
            input_bytes: counters.input_bytes.saturating_sub(self.before.input_bytes),
            total: Totals {
                events: counters.events,
                results: counters.results.clone(),
                late: counters.late.clone(),
                duplicates: counters.duplicates.clone(),
                rejected: counters.rejected.clone(),
                filtered: counters.filtered,
            },
            watermark: store.watermark().to_string(),
            source_watermarks: store
                .sources()
                .map(|(spec, watermark)| (spec.name.clone(), watermark.to_string()))
                .collect(),
            steps_back: store.steps_back(),
            open_panes: store.resident_panes() as u64,
            unended: self.unended,
            checkpoints: self.checkpoints,
            repository: store.uploads().map(Uploads::from),
        }
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}
