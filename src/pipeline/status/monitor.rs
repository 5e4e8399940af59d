//! The task's side of the status page: notes what only the passing of time shows, takes snapshots, and hands them over.
//!
//! Runs on the task's thread, between two blocks and a few times a second at most; nothing here is done per event, and
//! no lock is held while events are processed. Without a page to show it on, a snapshot is taken once a second, for the
//! watch.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use super::super::config::{PipelineConfig, SourceConfig};
use super::super::explain::{Standing, standing};
use super::super::outputs::{Counters, Outputs};
use super::super::report::{Restart, Uploads};
use super::super::strain::HeldUp;
use super::super::task::Reading;
use super::board::Board;
use super::lookout::Lookout;
use super::panes::{self, PanesRequest};
use super::snapshot::{
    CheckpointFigures, CheckpointStatus, HolderStatus, InputCounts, InputStatus, JumpStatus, Moment,
    OperatorKind, OperatorStatus, OutputStatus, PARTITIONS_MAX, PartitionState, PartitionStatus, Phase,
    QueueStatus, RunStatus, Snapshot, SourceStatus, StateStatus, WatermarkStatus,
};
use crate::checkpoint::Position;
use crate::clock::Clock;
use crate::event_time::{EventTime, Span, Watermark};
use crate::operator::{PartitionId, PartitionProgress, Strategy};
use crate::pipeline::assemble::duration;
use crate::pipeline::reader::BLOCKS_AHEAD;
use crate::state::StateStats;
use crate::store::{CheckpointReport, WindowStore};

/// Time between two snapshots, where somebody may look at them.
const SHOWN_INTERVAL: Duration = Duration::from_millis(250);
/// The same for the watch alone.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// Time over which rates are taken.
const RATE_OVER: Duration = Duration::from_secs(10);
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

    fn take(&mut self, facts: &Facts<'_>, now: When) -> Snapshot {
        let progress: Vec<PartitionProgress> = facts.store.tracker().partitions().collect();
        self.run.elapsed_ms = millis(now.monotonic.saturating_sub(self.started));
        self.note_partitions(facts, &progress, now);
        let standing = standing(facts.store.tracker(), self.config.watermark.policy, &self.names, |id| {
            self.followers.contains(&id)
        });
        let watermark = self.watermark(facts, &standing, &progress, now);
        let partitions = self.partitions(facts, &progress, watermark.holder.as_ref());
        let listed = partitions.len();
        Snapshot {
            taken_at_ms: now.wall_ms,
            run: self.run.clone(),
            watermark,
            sources: self.sources(facts),
            partitions,
            partitions_left_out: facts.readings.len().saturating_sub(listed) as u64,
            operators: self.operators(facts),
            input: self.input(facts, now),
            checkpoints: self.checkpoints(facts, now),
            state: self.state(facts),
            queues: QueueStatus {
                blocks_ahead: facts.blocks_ahead as u64,
                blocks_ahead_max: BLOCKS_AHEAD as u64,
                state_writes: facts.store.writes_waiting(),
            },
            outputs: self.output(facts, now),
            repository: facts.store.uploads().map(Uploads::from),
        }
    }

    fn note_partitions(&mut self, facts: &Facts<'_>, progress: &[PartitionProgress], now: When) {
        for (seen, reading) in self.seen.iter_mut().zip(facts.readings) {
            let watermark = of(progress, reading.id).watermark;
            if watermark != seen.watermark {
                (seen.watermark, seen.moved_at_ms) = (watermark, now.wall_ms);
            }
            if reading.position != seen.now {
                (seen.now, seen.last_record_at_ms) = (reading.position, Some(now.wall_ms));
            }
        }
    }

    fn watermark(
        &mut self,
        facts: &Facts<'_>,
        standing: &Standing,
        progress: &[PartitionProgress],
        now: When,
    ) -> WatermarkStatus {
        let current = facts.store.watermark();
        if self.moved.0 != current {
            self.moved = (current, now);
        }
        let max_time = progress.iter().filter_map(|partition| partition.max_time).max();
        let behind = |to: i64| current.instant().map(|at| to.saturating_sub(at.as_millis()));
        self.note_jumps(facts, now);
        WatermarkStatus {
            combined: current.into(),
            ended: current == Watermark::End,
            expected: facts.store.sources().any(|(spec, _)| spec.strategy != Strategy::None),
            moved_at_ms: self.moved.1.wall_ms,
            unmoved_ms: millis(now.monotonic.saturating_sub(self.moved.1.monotonic)),
            max_time: max_time.map(Moment::from),
            event_lag_ms: max_time.and_then(|max| behind(max.as_millis())),
            clock_lag_ms: behind(now.wall_ms),
            holder: self.holder(facts, standing, now),
            jumps: self.jumps,
            last_jump: self.last_jump.clone(),
        }
    }

    fn note_jumps(&mut self, facts: &Facts<'_>, now: When) {
        let (jumps, last) = facts.store.jumps();
        let Some((partition, jump)) = last.filter(|_| jumps != self.jumps) else { return };
        self.jumps = jumps;
        self.last_jump = Some(JumpStatus {
            partition: partition.to_owned(),
            from: jump.from.into(),
            to: jump.to.into(),
            length_ms: jump.length().as_millis(),
            seen_at_ms: now.wall_ms,
        });
    }

    fn holder(&mut self, facts: &Facts<'_>, standing: &Standing, now: When) -> Option<HolderStatus> {
        let Some(holder) = &standing.slowest else {
            self.holder = None;
            return None;
        };
        let since = match &self.holder {
            Some((name, since)) if *name == holder.partition => *since,
            _ => now,
        };
        self.holder = Some((holder.partition.clone(), since));
        let index = facts.readings.iter().position(|reading| reading.name == holder.partition);
        let source = self.config.sources.iter().find(|source| source.name == holder.source);
        Some(HolderStatus {
            partition: holder.partition.clone(),
            source: holder.source.clone(),
            since_at_ms: since.wall_ms,
            for_ms: millis(now.monotonic.saturating_sub(since.monotonic)),
            watermark: holder.watermark.into(),
            max_time: holder.max_time.map(Moment::from),
            delay_ms: holder.delay.map(Span::as_millis),
            holds_back: holder.holds_back,
            last_record_at_ms: index.and_then(|index| self.seen.get(index)?.last_record_at_ms),
            idle_timeout_ms: source.and_then(idle_timeout),
        })
    }

    fn sources(&self, facts: &Facts<'_>) -> Vec<SourceStatus> {
        let sources = self.config.sources.iter().zip(facts.store.sources()).enumerate();
        let status = |(index, (source, (spec, watermark))): (usize, (&SourceConfig, (_, Watermark)))| {
            let spec: &crate::operator::SourceSpec = spec;
            let own = |reading: &&Reading| usize::from(reading.source.0) == index;
            SourceStatus {
                name: source.name.clone(),
                live: source.is_live(),
                watermark: watermark.into(),
                delay_ms: spec.strategy.delay().map(Span::as_millis),
                idle_timeout_ms: idle_timeout(source),
                partitions: facts.readings.iter().filter(own).count() as u64,
            }
        };
        sources.map(status).collect()
    }

    fn partitions(
        &self,
        facts: &Facts<'_>,
        progress: &[PartitionProgress],
        holder: Option<&HolderStatus>,
    ) -> Vec<PartitionStatus> {
        let counting = facts.readings.iter().filter(|reading| {
            let known = of(progress, reading.id);
            reading.leader == reading.id && !known.idle && !known.finished
        });
        let mut latest: Vec<EventTime> =
            counting.filter_map(|reading| of(progress, reading.id).max_time).collect();
        latest.sort_unstable();
        let (mut rest, finished): (Vec<usize>, Vec<usize>) =
            (0..facts.readings.len()).partition(|&index| !facts.readings[index].finished);
        if facts.readings.len() <= PARTITIONS_MAX {
            rest = (0..facts.readings.len()).collect();
        } else {
            rest.extend(finished);
        }
        let told = rest.into_iter().take(PARTITIONS_MAX);
        told.map(|index| self.partition(facts, index, progress, &latest, holder)).collect()
    }

    fn partition(
        &self,
        facts: &Facts<'_>,
        index: usize,
        progress: &[PartitionProgress],
        latest: &[EventTime],
        holder: Option<&HolderStatus>,
    ) -> PartitionStatus {
        let reading = &facts.readings[index];
        let known = of(progress, reading.id);
        let follows = (reading.leader != reading.id)
            .then(|| self.names.get(reading.leader.0 as usize).cloned().unwrap_or_default());
        let state = match known {
            _ if reading.finished => PartitionState::Finished,
            _ if follows.is_some() => PartitionState::Follows,
            known if known.finished => PartitionState::Finished,
            known if known.idle => PartitionState::Idle,
            known if known.max_time.is_none() => PartitionState::Silent,
            _ => PartitionState::Active,
        };
        let shed = facts.outputs.shed(&reading.name);
        let source = self.config.sources.get(usize::from(reading.source.0));
        let seen = self.seen.get(index);
        let first = seen.map_or(reading.position, |seen| seen.first);
        PartitionStatus {
            name: reading.name.clone(),
            source: source.map(|source| source.name.clone()).unwrap_or_default(),
            state,
            follows,
            holds_back: holder.is_some_and(|holder| holder.holds_back && holder.partition == reading.name),
            watermark: known.watermark.into(),
            watermark_moved_at_ms: seen.map_or(0, |seen| seen.moved_at_ms),
            max_time: known.max_time.map(Moment::from),
            lead_ms: known
                .max_time
                .filter(|_| state == PartitionState::Active)
                .and_then(|max| lead(latest, max)),
            records: reading.position.records,
            records_this_run: reading.position.records.saturating_sub(first.records),
            bytes: reading.position.bytes,
            bytes_this_run: reading.position.bytes.saturating_sub(first.bytes),
            last_record_at_ms: seen.and_then(|seen| seen.last_record_at_ms),
            read_to_end: reading.finished,
            late: shed.late,
            rejected: shed.rejected,
        }
    }

    /// The windowed aggregations, then the joins.
    fn operators(&self, facts: &Facts<'_>) -> Vec<OperatorStatus> {
        let (store, config) = (facts.store, &self.config);
        let windows = config.windows.iter().enumerate().zip(store.operator_watermarks());
        let windows = windows.filter_map(|((index, window), watermark)| {
            let open = store.open_summary(index)?;
            Some(OperatorStatus {
                kind: OperatorKind::Window,
                windows: window.windows.to_string(),
                key_fields: window.key.iter().map(|key| key.field.clone()).collect(),
                input: window.input.clone(),
                watermark: watermark.into(),
                open_windows: open.windows as u64,
                open_panes: open.panes as u64,
                due_windows: open.due as u64,
                firing: store.is_operator_firing(index),
                next_end: open.next_end.map(Moment::from),
                memory_bytes: store.operator_bytes(index) as u64,
                ..self.emitted(facts, index, &window.name)
            })
        });
        let joins = config.joins.iter().zip(store.joins_held()).zip(config.windows.len()..);
        let joins = joins.map(|((join, held), index)| OperatorStatus {
            kind: OperatorKind::Join,
            windows: format!("{} with {}", join.left, join.right),
            key_fields: join.key.iter().map(|key| key.field.clone()).collect(),
            watermark: held.watermark.into(),
            open_panes: held.events as u64,
            memory_bytes: held.memory_bytes as u64,
            ..self.emitted(facts, index, &join.name)
        });
        windows.chain(joins).collect()
    }

    /// What of an operator is counted; the rest is that of one which holds nothing.
    fn emitted(&self, facts: &Facts<'_>, index: usize, name: &str) -> OperatorStatus {
        let emitted = facts.outputs.emitted(index);
        let rows = facts.outputs.rows_of(index);
        let late = facts.outputs.counters.late.get(name).copied().unwrap_or(0);
        OperatorStatus {
            name: name.to_owned(),
            kind: OperatorKind::Window,
            windows: String::new(),
            key_fields: Vec::new(),
            input: None,
            watermark: Moment::default(),
            open_windows: 0,
            open_panes: 0,
            due_windows: 0,
            firing: false,
            next_end: None,
            fired: emitted.firings,
            rows,
            rows_this_run: rows.saturating_sub(self.rows_before.get(index).copied().unwrap_or(0)),
            late,
            late_this_run: late.saturating_sub(self.before.late.get(name).copied().unwrap_or(0)),
            late_by_ms_max: emitted.late_by_ms_max,
            memory_bytes: 0,
        }
    }

    fn input(&mut self, facts: &Facts<'_>, now: When) -> InputStatus {
        let counters = &facts.outputs.counters;
        self.rates.push_back((now.monotonic, counters.events, counters.input_bytes));
        while self.rates.get(1).is_some_and(|(at, ..)| now.monotonic.saturating_sub(*at) >= RATE_OVER) {
            self.rates.pop_front();
        }
        let per_second = |count: u64, before: u64, since: Duration| match since.as_secs_f64() {
            seconds if seconds > 0.0 => count.saturating_sub(before) as f64 / seconds,
            _ => 0.0,
        };
        let (since, events, bytes) = self.rates.front().copied().unwrap_or_default();
        let since = now.monotonic.saturating_sub(since);
        InputStatus {
            total: counts(counters, &Counters::default()),
            this_run: counts(counters, &self.before),
            events_per_second: per_second(counters.events, events, since),
            bytes_per_second: per_second(counters.input_bytes, bytes, since),
            late_is_kept: self.config.late.is_some(),
            rejected_is_kept: self.config.dead_letter.is_some(),
        }
    }

    fn checkpoints(&mut self, facts: &Facts<'_>, now: When) -> CheckpointStatus {
        let since = |at: Duration| now.monotonic.saturating_sub(at);
        self.unsaved = self.unsaved.or(Some(now.monotonic)).filter(|_| facts.changed);
        let restored = self.restored_age.map(|age| age + since(self.started));
        CheckpointStatus {
            age_ms: self.completed.map(since).or(restored).map(millis),
            unsaved_ms: self.saving.or(self.unsaved).map_or(0, |at| millis(since(at))),
            in_flight_ms: self.in_flight.map(|at| millis(since(at))),
            ..self.checkpoints.clone()
        }
    }

    fn state(&self, facts: &Facts<'_>) -> StateStatus {
        let stats = &self.state;
        StateStatus {
            disk_bytes: stats.live_file_bytes,
            disk_total_bytes: stats.total_file_bytes,
            entries_estimate: stats.entries_estimate,
            resident_panes: facts.store.resident_panes() as u64,
            hot_bytes: facts.store.hot_bytes() as u64,
            cache_bytes: stats.memory.cache_bytes,
            write_buffer_bytes: stats.memory.write_buffer_bytes,
            pinned_bytes: stats.memory.pinned_bytes,
            budget_bytes: self.config.state.memory_bytes,
            level0_files_max: stats.level0_files_max,
            compaction_pending_bytes: stats.compaction_pending_bytes,
            write_stopped: stats.write_stopped,
            delayed_write_rate: stats.delayed_write_rate,
            write_stalls: facts.held_up.times,
            write_stalled_ms: millis(facts.held_up.total),
        }
    }

    fn output(&mut self, facts: &Facts<'_>, now: When) -> OutputStatus {
        let (waiting_epochs, waiting_rows) = facts.outputs.waiting();
        self.waiting = self.waiting.or(Some(now.monotonic)).filter(|_| waiting_epochs > 0);
        OutputStatus {
            waiting_epochs,
            waiting_rows,
            waiting_ms: self.waiting.map(|at| millis(now.monotonic.saturating_sub(at))),
            ..self.output.clone()
        }
    }
}

/// What was counted since `before`.
fn counts(now: &Counters, before: &Counters) -> InputCounts {
    let since = |now: &BTreeMap<String, u64>, before: &BTreeMap<String, u64>| {
        let grown = |(name, count): (&String, &u64)| {
            (name.clone(), count.saturating_sub(before.get(name).copied().unwrap_or(0)))
        };
        now.iter().map(grown).collect()
    };
    InputCounts {
        events: now.events.saturating_sub(before.events),
        bytes: now.input_bytes.saturating_sub(before.input_bytes),
        filtered: now.filtered.saturating_sub(before.filtered),
        rejected: since(&now.rejected, &before.rejected),
        duplicates: since(&now.duplicates, &before.duplicates),
    }
}

/// How far `own` is ahead of the median of the others; `latest` holds all, sorted.
fn lead(latest: &[EventTime], own: EventTime) -> Option<i64> {
    let others = latest.len().checked_sub(1).filter(|others| *others > 0)?;
    let middle = (others - 1) / 2;
    let skip = usize::from(latest.partition_point(|time| *time < own) <= middle);
    let median = latest.get(middle + skip)?;
    Some(own.as_millis().saturating_sub(median.as_millis()))
}

/// Only standard input can be silent.
fn idle_timeout(source: &SourceConfig) -> Option<u64> {
    let timeout = source.watermark.idle_timeout.filter(|_| source.is_live())?;
    Some(timeout.as_millis().unsigned_abs())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lead_of_a_partition_is_over_the_median_of_the_others() {
        let latest = [10, 20, 30, 100].map(EventTime::from_millis);
        let leads = latest.map(|own| lead(&latest, own));
        assert_eq!(leads, [Some(-20), Some(-10), Some(10), Some(80)]);
        assert_eq!(lead(&latest[..2], latest[0]), Some(-10));
        assert_eq!(lead(&latest[..1], latest[0]), None, "there is no other");
    }
}
