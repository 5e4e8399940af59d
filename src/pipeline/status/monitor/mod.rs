//! The task's side of the status page: notes what only the passing of time shows, takes snapshots, and hands them over.
//!
//! Runs on the task's thread, between two blocks and a few times a second at most; nothing here is done per event, and
//! no lock is held while events are processed. Without a page to show it on, a snapshot is taken once a second, for the
//! watch.

mod take;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use super::board::Board;
use super::lookout::Lookout;
use super::panes::{self, PanesRequest};
use super::snapshot::{
    CheckpointFigures, CheckpointStatus, JumpStatus, OutputStatus, Phase, RunStatus, Snapshot,
};
use crate::checkpoint::Position;
use crate::clock::Clock;
use crate::event_time::Watermark;
use crate::operator::{PartitionId, PartitionProgress};
use crate::pipeline::assemble::duration;
use crate::pipeline::config::PipelineConfig;
use crate::pipeline::outputs::{Counters, Outputs};
use crate::pipeline::report::Restart;
use crate::pipeline::strain::HeldUp;
use crate::pipeline::task::Reading;
use crate::state::StateStats;
use crate::store::{CheckpointReport, WindowStore};

/// Time between two snapshots, where somebody may look at them.
const SHOWN_INTERVAL: Duration = Duration::from_millis(250);
/// The same for the watch alone.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// Requests that are answered between two blocks.
const ANSWERS_MAX: usize = 2;

/// A moment by both clocks.
#[derive(Clone, Copy, Debug)]
struct When {
    monotonic: Duration,
    wall_ms: i64,
}

/// What the task knows at this moment.
pub(in crate::pipeline) struct Facts<'a> {
    pub(in crate::pipeline) store: &'a WindowStore,
    pub(in crate::pipeline) outputs: &'a Outputs,
    pub(in crate::pipeline) readings: &'a [Reading],
    pub(in crate::pipeline) blocks_ahead: usize,
    /// Something happened that the last barrier does not hold.
    pub(in crate::pipeline) changed: bool,
    pub(in crate::pipeline) held_up: HeldUp,
}

/// What was seen of a partition last.
#[derive(Clone, Copy, Debug)]
struct Seen {
    watermark: Watermark,
    moved_at_ms: i64,
    // Where it was when the run began, and now.
    first: Position,
    now: Position,
    last_record_at_ms: Option<i64>,
}

/// Follows a run.
pub(in crate::pipeline) struct Monitor {
    config: Arc<PipelineConfig>,
    clock: Arc<dyn Clock>,
    board: Option<Arc<Board>>,
    requests: Option<Receiver<PanesRequest>>,
    lookout: Lookout,
    run: RunStatus,
    started: Duration,
    last: Option<Duration>,
    // By index of the store.
    names: Vec<String>,
    followers: BTreeSet<PartitionId>,
    seen: Vec<Seen>,
    moved: (Watermark, When),
    holder: Option<(String, When)>,
    jumps: u64,
    last_jump: Option<JumpStatus>,
    rates: VecDeque<(Duration, u64, u64)>,
    state: StateStats,
    // What was counted before this run.
    before: Counters,
    rows_before: Vec<u64>,
    restored_age: Option<Duration>,
    checkpoints: CheckpointStatus,
    completed: Option<Duration>,
    in_flight: Option<Duration>,
    // Since when there has been something that no barrier holds, and since when something that the barrier under way does.
    unsaved: Option<Duration>,
    saving: Option<Duration>,
    output: OutputStatus,
    waiting: Option<Duration>,
}

impl Monitor {
    /// Starts with what was restored. `started` is when the run began, by the monotonic clock.
    pub(in crate::pipeline) fn new(
        config: &PipelineConfig,
        clock: &Arc<dyn Clock>,
        page: Option<(Arc<Board>, Receiver<PanesRequest>)>,
        restart: &Restart,
        started: Duration,
    ) -> Self {
        let now = When { monotonic: clock.monotonic(), wall_ms: clock.wall_millis() };
        let (board, requests) = page.unzip();
        let begun = i64::try_from(now.monotonic.saturating_sub(started).as_millis()).unwrap_or(0);
        let restored = |epoch| CheckpointFigures {
            epoch,
            completed_at_ms: now.wall_ms - i64::try_from(restart.age_ms.unwrap_or(0)).unwrap_or(0),
            restored: true,
            pause_ms: 0.0,
            duration_ms: 0.0,
            new_bytes: 0,
            shared_bytes: 0,
            files: 0,
            panes: 0,
        };
        Self {
            lookout: Lookout::new(config.watch),
            run: RunStatus {
                phase: Phase::Running,
                restored_epoch: restart.epoch,
                ..Snapshot::starting(&config.name, now.wall_ms - begun).run
            },
            config: Arc::new(config.clone()),
            clock: Arc::clone(clock),
            board,
            requests,
            started,
            last: None,
            names: Vec::new(),
            followers: BTreeSet::new(),
            seen: Vec::new(),
            moved: (Watermark::None, now),
            holder: None,
            jumps: 0,
            last_jump: None,
            rates: VecDeque::new(),
            state: StateStats::default(),
            before: Counters::default(),
            rows_before: Vec::new(),
            restored_age: restart.age_ms.map(Duration::from_millis),
            checkpoints: CheckpointStatus {
                interval_ms: millis(duration(config.checkpoint.interval)),
                last: restart.epoch.map(restored),
                ..CheckpointStatus::default()
            },
            completed: None,
            in_flight: None,
            unsaved: None,
            saving: None,
            output: OutputStatus::default(),
            waiting: None,
        }
    }

    /// Takes in the partitions, which are the same for the whole run, and where they start.
    pub(in crate::pipeline) fn begin(
        &mut self,
        store: &WindowStore,
        outputs: &Outputs,
        readings: &[Reading],
    ) {
        let now = self.now();
        self.names = store.partitions().map(|(name, _)| name.to_owned()).collect();
        let follows = |reading: &&Reading| reading.leader != reading.id;
        self.followers = readings.iter().filter(follows).map(|reading| reading.id).collect();
        let progress: Vec<PartitionProgress> = store.tracker().partitions().collect();
        let seen = readings.iter().map(|reading| Seen {
            watermark: of(&progress, reading.id).watermark,
            moved_at_ms: now.wall_ms,
            first: reading.position,
            now: reading.position,
            last_record_at_ms: None,
        });
        self.seen = seen.collect();
        self.moved = (store.watermark(), now);
        self.before = outputs.counters.clone();
        let operators = self.config.windows.len() + self.config.joins.len();
        self.rows_before = (0..operators).map(|operator| outputs.rows_of(operator)).collect();
    }

    fn now(&self) -> When {
        When { monotonic: self.clock.monotonic(), wall_ms: self.clock.wall_millis() }
    }

    /// Answers what was asked since, and shows how the run stands when it is time to.
    pub(in crate::pipeline) fn turn(&mut self, facts: &Facts<'_>) {
        self.answer(facts.store);
        let interval = if self.board.is_some() { SHOWN_INTERVAL } else { WATCH_INTERVAL };
        let now = self.clock.monotonic();
        if self.last.is_none_or(|last| now.saturating_sub(last) >= interval) {
            self.show(facts);
        }
    }

    fn answer(&self, store: &WindowStore) {
        let Some(requests) = &self.requests else { return };
        for request in requests.try_iter().take(ANSWERS_MAX) {
            panes::answer(store, request);
        }
    }

    /// Shows how the run stands, and says what the watch finds.
    pub(in crate::pipeline) fn show(&mut self, facts: &Facts<'_>) {
        let now = self.now();
        self.last = Some(now.monotonic);
        let snapshot = self.take(facts, now);
        self.publish(snapshot);
    }

    fn publish(&mut self, snapshot: Snapshot) {
        let changes = self.lookout.look(&snapshot);
        for warning in &changes.raised {
            tracing::warn!(
                kind = warning.kind.name(), cause = %warning.cause, remedy = %warning.remedy, "{}", warning.message
            );
        }
        for warning in &changes.cleared {
            tracing::info!(kind = warning.kind.name(), "no longer so: {}", warning.message);
        }
        if let Some(board) = &self.board {
            board.publish(snapshot, self.lookout.warnings());
        }
    }

    /// The run has come to another phase.
    pub(in crate::pipeline) fn enter(&mut self, phase: Phase, error: Option<String>) {
        (self.run.phase, self.run.error) = (phase, error);
        self.last = None;
    }

    /// The figures of the state database, looked at.
    pub(in crate::pipeline) fn state_looked_at(&mut self, stats: StateStats) {
        self.state = stats;
    }

    /// A barrier: from now on a checkpoint is under way, for which processing stood still for `pause`.
    pub(in crate::pipeline) fn checkpoint_begun(&mut self, pause: Duration) {
        let now = self.clock.monotonic();
        self.in_flight = Some(now);
        self.saving = self.unsaved.take().or(Some(now));
        self.checkpoints.pause_ms += fractional(pause);
    }

    /// A checkpoint is complete, which took `took` beside processing.
    pub(in crate::pipeline) fn checkpoint_done(&mut self, report: &CheckpointReport, took: Duration) {
        let now = self.now();
        let since = self.in_flight.take().map(|begun| now.monotonic.saturating_sub(begun));
        (self.completed, self.saving) = (Some(now.monotonic), None);
        self.output.delay_ms = since.map(fractional);
        self.output.publish_ms = Some(fractional(report.output));
        let checkpoints = &mut self.checkpoints;
        checkpoints.count += 1;
        checkpoints.new_bytes += report.new_bytes;
        checkpoints.duration_ms += fractional(took);
        let figures = CheckpointFigures {
            epoch: report.epoch,
            completed_at_ms: now.wall_ms,
            restored: false,
            pause_ms: fractional(report.pause),
            duration_ms: fractional(took),
            new_bytes: report.new_bytes,
            shared_bytes: report.shared_bytes,
            files: report.files as u64,
            panes: report.panes_written as u64,
        };
        if let Some(board) = &self.board {
            board.note_checkpoint(&figures);
        }
        checkpoints.last = Some(figures);
    }

    /// A checkpoint could not be made.
    pub(in crate::pipeline) fn checkpoint_failed(&mut self) {
        self.checkpoints.failures += 1;
    }
}

fn of(progress: &[PartitionProgress], id: PartitionId) -> PartitionProgress {
    progress.get(id.0 as usize).copied().unwrap_or_default()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn fractional(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}
