//! The task: blocks in, results out, checkpoints in between, until the input ends or someone says stop.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::assemble::{self, duration};
use super::config::{PipelineConfig, SourceConfig, TimeDomain, WindowConfig};
use super::outputs::{self, Outputs};
use super::reader::{self, Next, Reader};
use super::report::{Progress, Restart, RunSummary, SummaryBuilder, Watch};
use super::sink::AheadPolicy;
use super::source::{
    Block, FileSource, PartitionResume, RejectReason, Rejected, RestOfBlock, STDIN_NAME, check_columns,
};
use super::status::{Facts, Monitor, Page, Phase};
use super::strain::Strain;
use crate::checkpoint::{Position, SourceIdentity};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::event::EventBatch;
use crate::event_time::Watermark;
use crate::operator::{Advance, Mode, PartitionId, SourceId};
use crate::repository::Location;
use crate::store::{Barrier, ReadTo, RestoredPartition, WindowStore, WindowStoreBuilder};

/// The longest wait for a block before checkpoints, idleness and the stop flag are looked at again.
const PATIENCE: Duration = Duration::from_millis(50);
/// Time between two reports of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// The outcome of a run that came to the end of its input.
const COMPLETED: &str = "completed";

/// Rows of a window that are fired in one go; a checkpoint can come after them.
const STEP_ROWS: usize = 16_384;

/// How a run differs from what the pipeline file says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunOptions {
    /// Stop at the first rejected record instead of setting it aside.
    pub strict: bool,
    /// Restore the checkpoint of this epoch instead of the newest.
    pub restore_at: Option<u64>,
    /// Move output of later epochs aside when an older checkpoint is restored, instead of refusing.
    pub set_aside_output: bool,
    /// Drop the state of windows, joins and aggregates that the pipeline file no longer has, instead of refusing it.
    pub allow_dropped: bool,
    /// Go on without rows that the restored checkpoint had staged and that are nowhere any more, instead of refusing.
    pub accept_lost_output: bool,
    /// No more events per second than this: to watch a run, or to spare what it shares the machine with.
    pub rate: Option<NonZeroU32>,
}

/// Tells a running task to stop: it drains, makes a last checkpoint and returns. Clones are one flag.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Asks the task to stop.
    pub fn stop(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// True once asked.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// A partition of the source, and where it stands in what was processed.
pub(super) struct Reading {
    pub(super) name: String,
    pub(super) source: SourceId,
    pub(super) id: PartitionId,
    /// The partition under whose watermark its events count; mostly itself.
    pub(super) leader: PartitionId,
    pub(super) position: Position,
    pub(super) finished: bool,
}

/// Runs a pipeline to the end of its input, or until `stop` is set.
///
/// Restores the newest checkpoint first. Whatever ends the run, what it has published is exactly what its last
/// checkpoint stands for.
///
/// # Errors
/// Whatever kept it from going on: wrong definition, missing input, damaged checkpoint, a second process, a full disk.
/// Everything up to the last checkpoint stays valid; run again to go on from there.
pub fn run(
    config: &PipelineConfig,
    options: RunOptions,
    stop: &StopFlag,
    clock: Arc<dyn Clock>,
    watch: &mut dyn Watch,
) -> Result<RunSummary> {
    let page = Page::open(config, &clock)?;
    let mut task = Task::open(config, options, clock, page, watch)?;
    let ended = task.drive(stop, watch);
    task.finish(ended, stop, watch)
}

struct Task<'a> {
    config: &'a PipelineConfig,
    clock: Arc<dyn Clock>,
    store: WindowStore,
    outputs: Outputs,
    reader: Reader,
    readings: Vec<Reading>,
    started: Duration,
    reading_since: Duration,
    rate: Option<NonZeroU32>,
    last_begin: Duration,
    last_progress: Duration,
    last_tick: Duration,
    bytes_since_begin: u64,
    // Something happened since the last barrier.
    changed: bool,
    // A block is half processed, or was when an error ended the run: there is no event boundary to stop at.
    mid_block: bool,
    warned_of_clocks: bool,
    warned_of_quotes: bool,
    warned_of_useless: bool,
    strain: Strain,
    monitor: Monitor,
    // Shows what the monitor publishes, until the run is over.
    page: Option<Page>,
    summary: SummaryBuilder,
}

/// Why the input loop ended.
enum Ended {
    Input,
    Stopped,
}

impl<'a> Task<'a> {
    fn open(
        config: &'a PipelineConfig,
        options: RunOptions,
        clock: Arc<dyn Clock>,
        mut page: Option<Page>,
        watch: &mut dyn Watch,
    ) -> Result<Self> {
        let started = clock.monotonic();
        let (plans, operators) = assemble::operators(config);
        check_columns(&config.sources, &plans)?;
        let ahead = if options.set_aside_output { AheadPolicy::SetAside } else { AheadPolicy::Refuse };
        let pipeline = config.clone();
        let mut store = store_builder(config, operators, options, &clock)?
            .approve(move |candidate| outputs::approve(&pipeline, ahead, options, candidate))
            .open(&config.state.directory)?;
        let (outputs, recovered) = Outputs::open(config, &store, ahead, options)?;
        // A state that was moved may not know how far its lineage had come elsewhere, but its outputs do.
        let known = recovered.iter().map(|report| report.newest_epoch).max().unwrap_or(0);
        store.directory().number_from(known.saturating_add(1));
        let restored = store.restored().into_iter().flat_map(|restored| restored.partitions());
        let resume = resume(config, restored);
        let source = FileSource::open(&config.sources, plans, &resume, Arc::clone(&clock))?;
        let source = match &outputs.counters.block_rest {
            Some(block) => source.with_rest_of_block(block),
            None => source,
        };
        let source = match config.watermark.advance {
            Advance::Event => source,
            Advance::Batch => source.in_batches(config.watermark.batch_records, outputs.counters.batch_lines),
        };
        let source = source.leaving_unended_lines(!config.watermark.close_at_end);
        refuse_own_files(config, &source)?;
        let readings = register(&source, &mut store)?;
        let restart =
            Restart::new(&store, &recovered, clock.wall_millis(), clock.monotonic().saturating_sub(started));
        let nothing_left = readings.iter().all(|reading| reading.finished);
        if store.watermark() == Watermark::End && !nothing_left {
            tracing::warn!(
                "the checkpoint closed every window at the end of its input: new events are late; set \
                 watermark.close_at_end = false in pipelines whose input grows"
            );
        }
        warn_of_replay(config);
        if config.dead_letter.is_none() {
            tracing::info!("rejected records are counted but not kept; set dead_letter.path to keep them");
        }
        watch.started(&restart);
        let seat = page.as_mut().and_then(Page::seat);
        let mut monitor = Monitor::new(config, &clock, seat, &restart, started);
        monitor.begin(&store, &outputs, &readings);
        let reader = Reader::start(source)?;
        // The next start is not asked again for rows that were given up: the next checkpoint does not name them.
        let changed = restart.rows_given_up > 0;
        let summary = SummaryBuilder::new(config, restart, outputs.counters.clone());
        Ok(Self {
            config,
            store,
            outputs,
            reader,
            readings,
            started,
            reading_since: clock.monotonic(),
            rate: options.rate,
            last_begin: clock.monotonic(),
            last_progress: Duration::ZERO,
            last_tick: clock.monotonic(),
            bytes_since_begin: 0,
            changed,
            mid_block: false,
            warned_of_clocks: false,
            warned_of_quotes: false,
            warned_of_useless: false,
            strain: Strain::default(),
            monitor,
            page,
            summary,
            clock,
        })
    }

    /// Processes blocks until the input ends or a stop is asked for.
    fn drive(&mut self, stop: &StopFlag, watch: &mut dyn Watch) -> Result<Ended> {
        loop {
            // Also what a restored checkpoint left.
            self.fire_on(stop, watch)?;
            if stop.is_set() {
                return Ok(Ended::Stopped);
            }
            match self.reader.next(PATIENCE)? {
                Next::Block(block) => {
                    self.process(*block, stop, watch)?;
                    self.heed_the_clock()?;
                }
                Next::Waiting => self.let_time_pass()?,
                Next::End => return Ok(Ended::Input),
            }
            self.take_turn(watch)?;
            self.keep_rate(stop);
        }
    }

    /// What has its turn between blocks, and between the steps of a long firing.
    fn take_turn(&mut self, watch: &mut dyn Watch) -> Result<()> {
        watch.processed(self.outputs.counters.events);
        self.collect_report(false, watch)?;
        self.look_at_writes()?;
        if self.checkpoint_is_due() {
            self.begin_checkpoint()?;
        }
        self.report_progress(watch);
        self.monitored(Monitor::turn);
        Ok(())
    }

    /// Lets the monitor see how the run stands.
    fn monitored(&mut self, look: impl FnOnce(&mut Monitor, &Facts<'_>)) {
        let facts = Facts {
            store: &self.store,
            outputs: &self.outputs,
            readings: &self.readings,
            blocks_ahead: self.reader.blocks_ahead(),
            changed: self.changed,
            held_up: self.strain.held_up(),
        };
        look(&mut self.monitor, &facts);
    }

    /// Says when writes to the state have stood still for a while.
    fn look_at_writes(&mut self) -> Result<()> {
        let now = self.clock.monotonic();
        if !self.strain.is_due(now) {
            return Ok(());
        }
        let stats = self.store.state_stats()?;
        if let Some(said) = self.strain.look(now, &stats) {
            tracing::warn!("{said}");
        }
        self.monitor.state_looked_at(stats);
        Ok(())
    }

    /// Fires what a long jump of the watermark has made due, step by step, with checkpoints where they are due.
    fn fire_on(&mut self, stop: &StopFlag, watch: &mut dyn Watch) -> Result<()> {
        while self.store.is_firing() && !stop.is_set() {
            self.store.fire_some(&mut self.outputs)?;
            self.changed = true;
            self.take_turn(watch)?;
        }
        Ok(())
    }

    /// Waits until the events so far are due at the rate asked for. A piece of a block is the unit; a stop is heeded at
    /// once.
    fn keep_rate(&self, stop: &StopFlag) {
        let Some(rate) = self.rate else { return };
        let events = self.outputs.counters.events.saturating_sub(self.summary.events_before());
        let due = self.reading_since + Duration::from_secs_f64(events as f64 / f64::from(rate.get()));
        while !stop.is_set() {
            let wait = due.saturating_sub(self.clock.monotonic());
            if wait.is_zero() {
                return;
            }
            std::thread::sleep(wait.min(PATIENCE));
        }
    }

    /// Silent partitions may fall idle. A file that was not read to its end has records waiting, however long its turn
    /// takes; only standard input can have nothing.
    fn let_time_pass(&mut self) -> Result<()> {
        let readings = &self.readings;
        let has_backlog = |id: PartitionId| {
            readings.iter().any(|reading| reading.id == id && !reading.finished && reading.name != STDIN_NAME)
        };
        let before = (self.store.watermark(), self.outputs.rows());
        self.store.tick(has_backlog, &mut self.outputs)?;
        // What this has closed or emitted is output like any other.
        self.changed |= (self.store.watermark(), self.outputs.rows()) != before;
        self.last_tick = self.clock.monotonic();
        Ok(())
    }

    /// With input that never pauses, what follows the wall clock has its turn between blocks. Nothing falls idle
    /// here: whose records wait to be read is not known.
    fn heed_the_clock(&mut self) -> Result<()> {
        let now = self.clock.monotonic();
        if now.saturating_sub(self.last_tick) < PATIENCE {
            return Ok(());
        }
        self.last_tick = now;
        // `process` has noted a change already.
        self.store.tick(|_| true, &mut self.outputs)
    }

    /// Processes a block. Where an event makes very much due that is fired step by step, and with a rate the block is
    /// taken in pieces; a stop in between leaves the rest of the block unread.
    fn process(&mut self, mut block: Block, stop: &StopFlag, watch: &mut dyn Watch) -> Result<()> {
        let index = block.partition.0 as usize;
        let leader = self.readings.get(block.batch.partition.0 as usize).map(|reading| reading.id);
        let (Some(leader), Some(reading)) = (leader, self.readings.get(index)) else {
            return Err(Error::new(ErrorKind::Bug, format!("block of an unknown partition: index={index}")));
        };
        self.outputs.now_reading(&reading.name, reading.position);
        let (id, start) = (reading.id, reading.position);
        self.mid_block = true;
        self.changed = true;
        block.batch.partition = leader;
        if let Some(identity) = block.identity {
            self.store.recognise(id, identity);
        }
        self.warn_of_clocks(&block);
        self.warn_of_quotes(&block);
        self.warn_of_useless(&block);
        self.outputs.expect_rejected(std::mem::take(&mut block.rejected));
        let mut next = 0;
        while next < block.batch.len() {
            next = self.process_piece(&block.batch, next)?;
            // Also behind a checkpoint that came between two pieces.
            self.changed = true;
            let is_piece = next < block.batch.len();
            if self.store.is_firing() || is_piece {
                self.stand_between(&block, next, start)?;
                self.fire_on(stop, watch)?;
                if is_piece {
                    self.pause_between(stop, watch)?;
                }
                if stop.is_set() {
                    return Ok(());
                }
                self.mid_block = true;
            }
        }
        self.outputs.reject_before(None)?;
        self.account(&block, None, start);
        self.tell_unended(&block);
        // Files that are read as one hold the watermark back until the last of them was read.
        let ended = block.end_of_watermark.and_then(|of| self.readings.get(of.0 as usize));
        if let Some(ended) = ended.map(|reading| reading.id) {
            self.store.finish_partition(ended, &mut self.outputs)?;
        }
        if self.config.watermark.advance == Advance::Batch {
            self.outputs.counters.batch_lines += block.lines;
            if block.end_of_batch {
                self.end_batch()?;
            }
        }
        if let Some(reading) = self.readings.get_mut(index) {
            reading.finished = block.end_of_partition;
        }
        self.mid_block = false;
        self.reader.recycle(block);
        Ok(())
    }

    /// Processes events of a batch, from `from` on: to its end, to the first that makes very much due, or as many as the
    /// rate lets come between two looks at the clock. Returns the place behind them.
    fn process_piece(&mut self, batch: &EventBatch, from: usize) -> Result<usize> {
        let until = from.saturating_add(self.piece_events()).min(batch.len());
        let piece = (until < batch.len()).then(|| batch.part(from..until));
        let (batch, at) = piece.as_ref().map_or((batch, from), |piece| (piece, 0));
        // An event is counted before it may turn out to be rejected by a bound.
        self.outputs.counters.events += (batch.len() - at) as u64;
        let reached = self.store.process_some(batch, at, &mut self.outputs)?;
        self.outputs.counters.events -= (batch.len() - reached) as u64;
        Ok(from + (reached - at))
    }

    /// Events that are taken in one piece: all of a block, unless they are to come at a rate. A block of 256 KiB may
    /// hold what is due in many seconds, in which no checkpoint would be made. Where blocks are cut is no matter of the
    /// rate: in which order files are read depends on it. With batches the place in the middle of one is none to go on at.
    fn piece_events(&self) -> usize {
        match self.rate {
            Some(rate) if self.config.watermark.advance == Advance::Event => {
                let pieces_per_second = 1_000 / PATIENCE.as_millis().max(1) as u64;
                usize::try_from(u64::from(rate.get()).div_ceil(pieces_per_second)).unwrap_or(usize::MAX)
            }
            _ => usize::MAX,
        }
    }

    /// What comes between two pieces of a block.
    fn pause_between(&mut self, stop: &StopFlag, watch: &mut dyn Watch) -> Result<()> {
        self.changed = true;
        self.heed_the_clock()?;
        self.fire_on(stop, watch)?;
        self.take_turn(watch)?;
        self.keep_rate(stop);
        Ok(())
    }

    /// Makes the place before event `next` of a block, which started at `start`, one that a checkpoint can stand for.
    fn stand_between(&mut self, block: &Block, next: usize, start: Position) -> Result<()> {
        let place = block.place_before(next, start);
        self.outputs.reject_before(place.and(block.batch.records.get(next).copied()))?;
        self.account(block, place, start);
        // That the partition ends is told once the block is done.
        let ends = block.end_of_partition;
        let reached = place.unwrap_or(block.position);
        self.outputs.counters.block_rest = (place.is_some() || ends).then(|| RestOfBlock {
            partition: self.readings[block.partition.0 as usize].name.clone(),
            rest: block.rest_behind(reached),
            ends,
        });
        self.mid_block = false;
        Ok(())
    }

    /// Counts what a block, which started at `start`, says up to `place`, or all of it, and notes that it was read.
    fn account(&mut self, block: &Block, place: Option<Position>, start: Position) {
        let Some(reading) = self.readings.get_mut(block.partition.0 as usize) else { return };
        let (before, reached) = (reading.position, place.unwrap_or(block.position));
        reading.position = reached;
        let counters = &mut self.outputs.counters;
        counters.block_rest = None;
        let from = if before == start { 0 } else { before.records };
        let passed = |line: u64| line > from && place.is_none_or(|place| line <= place.records);
        let filtered = block.filtered_records.iter().filter(|(line, _)| passed(*line));
        counters.filtered += filtered.count() as u64;
        let bytes = reached.bytes.saturating_sub(before.bytes);
        counters.input_bytes += bytes;
        self.bytes_since_begin += bytes;
    }

    /// Says that the beginning of a line was left for later. A file is read to its end once in a run.
    fn tell_unended(&mut self, block: &Block) {
        let bytes = block.unended_bytes;
        if bytes == 0 {
            return;
        }
        self.summary.unended(bytes);
        let name = self.readings.get(block.partition.0 as usize).map(|reading| reading.name.as_str());
        tracing::warn!(
            file = name.unwrap_or_default(),
            offset = block.position.bytes,
            "{bytes} bytes without a line end are left for later: with watermark.close_at_end = false a file may still be \
             written to"
        );
    }

    fn end_batch(&mut self) -> Result<()> {
        self.outputs.counters.batch_lines = 0;
        self.changed = true;
        self.store.end_batch(&mut self.outputs)
    }

    /// The input is at its end: so is the batch, and one batch more, of nothing, follows for a watermark that has
    /// moved since. Where everything is emitted each time that would only repeat it.
    fn end_last_batches(&mut self) -> Result<()> {
        if self.config.watermark.advance == Advance::Event {
            return Ok(());
        }
        if self.outputs.counters.batch_lines > 0 {
            self.end_batch()?;
        }
        let repeats = self.config.windows.iter().all(|window| window.mode == Mode::Complete);
        if !repeats && self.store.batch_is_due() {
            self.end_batch()?;
        }
        Ok(())
    }

    /// Says once that events are set aside by a bound that nobody asked for.
    fn warn_of_clocks(&mut self, block: &Block) {
        let source = usize::from(block.batch.source.0);
        let guarded = self.config.sources.get(source).filter(|known| known.time.bounds.max_ahead_by_default);
        let by_clock = |rejected: &&Rejected| rejected.reason == RejectReason::TimestampAheadOfClock;
        if let (Some(source), Some(rejected), false) =
            (guarded, block.rejected.iter().find(by_clock), self.warned_of_clocks)
        {
            self.warned_of_clocks = true;
            tracing::warn!(
                source = %source.name, line = rejected.record, detail = %rejected.detail,
                "events ahead of the clock are set aside, not counted in any window: live sources are guarded against \
                 wrong clocks; set max_ahead in [watermark.bounds] to another length, or to \"off\""
            );
        }
    }

    /// Says once that a record that cannot be used takes more than a line: of CSV, the lines up to the next quote.
    fn warn_of_quotes(&mut self, block: &Block) {
        let Some(rejected) = block.rejected.iter().find(|rejected| rejected.lines > 1) else { return };
        if std::mem::replace(&mut self.warned_of_quotes, true) {
            return;
        }
        let reading = self.readings.get(block.partition.0 as usize);
        tracing::warn!(
            file = reading.map(|reading| reading.name.as_str()).unwrap_or_default(),
            line = rejected.record,
            lines = rejected.lines,
            detail = %rejected.detail,
            "a broken record takes several lines with it, up to the next quote; they are counted as one rejected record: \
             mend the quote, or look for more of them in the dead-letter output"
        );
    }

    /// Says once that nothing of a block can be used: more likely the pipeline file is wrong than each of its records.
    fn warn_of_useless(&mut self, block: &Block) {
        let all = block.batch.is_empty() && block.filtered_records.is_empty();
        let (true, Some(rejected)) = (all, block.rejected.first()) else { return };
        if std::mem::replace(&mut self.warned_of_useless, true) {
            return;
        }
        let reading = self.readings.get(block.partition.0 as usize);
        tracing::warn!(
            file = reading.map(|reading| reading.name.as_str()).unwrap_or_default(),
            line = rejected.record,
            records = block.rejected.len(),
            reason = rejected.reason.name(),
            detail = %rejected.detail,
            "not one record of this part of the input can be used; they are rejected. Compare the fields and formats that \
             the pipeline file names under [source] with the input"
        );
    }

    fn checkpoint_is_due(&self) -> bool {
        let checkpoint = &self.config.checkpoint;
        let since = self.clock.monotonic().saturating_sub(self.last_begin);
        let by_time = since >= duration(checkpoint.interval);
        let by_bytes = checkpoint.input_bytes.is_some_and(|bytes| self.bytes_since_begin >= bytes);
        self.changed && (by_time || by_bytes) && !self.store.checkpoint_in_flight()
    }

    fn begin_checkpoint(&mut self) -> Result<u64> {
        let started = self.clock.monotonic();
        let staged = self.outputs.stage(self.store.next_epoch())?;
        let read_to = self.readings.iter().map(|reading| ReadTo {
            partition: reading.id,
            position: reading.position,
            finished: reading.finished,
        });
        let barrier = Barrier {
            read_to: read_to.collect(),
            staged: staged.clone(),
            counters: self.outputs.counters.to_map(),
            after_publish: Some(self.outputs.publication(staged)),
        };
        let epoch = self.noting_failure(|store| store.begin_checkpoint(barrier))?;
        self.last_begin = self.clock.monotonic();
        let pause = self.last_begin.saturating_sub(started);
        self.summary.paused(pause);
        self.monitor.checkpoint_begun(pause);
        self.bytes_since_begin = 0;
        self.changed = false;
        Ok(epoch)
    }

    /// Counts a checkpoint that fails.
    fn noting_failure<T>(&mut self, work: impl FnOnce(&mut WindowStore) -> Result<T>) -> Result<T> {
        let result = work(&mut self.store);
        if result.is_err() {
            self.monitor.checkpoint_failed();
        }
        result
    }

    fn collect_report(&mut self, wait: bool, watch: &mut dyn Watch) -> Result<()> {
        if let Some(report) = self.noting_failure(|store| store.checkpoint_report(wait))? {
            watch.checkpoint(&report);
            let took = self.summary.checkpoint(&report, self.clock.monotonic());
            self.monitor.checkpoint_done(&report, took);
            for said in self.strain.checkpoint(&report, took, duration(self.config.checkpoint.interval)) {
                tracing::warn!("{said}");
            }
        }
        Ok(())
    }

    /// Closes what is to be closed, makes the last checkpoint, and sums up. After an error of the source, what was
    /// read before it is still made durable.
    fn finish(mut self, ended: Result<Ended>, stop: &StopFlag, watch: &mut dyn Watch) -> Result<RunSummary> {
        self.enter(Phase::Finishing, None);
        match self.wind_up(ended, stop, watch) {
            Ok(outcome) => {
                let phase = if outcome == COMPLETED { Phase::Completed } else { Phase::Stopped };
                self.enter(phase, None);
                let elapsed = self.clock.monotonic().saturating_sub(self.started);
                let summary = self.summary.finish(outcome, &self.outputs.counters, &self.store, elapsed);
                watch.finished(&summary);
                // What the last snapshot says was to be seen until here.
                drop(self.page);
                Ok(summary)
            }
            Err(error) => {
                self.enter(Phase::Failed, Some(error.to_string()));
                Err(error)
            }
        }
    }

    fn enter(&mut self, phase: Phase, error: Option<String>) {
        self.monitor.enter(phase, error);
        self.monitored(Monitor::show);
    }

    /// All of the end but its summary. Returns the outcome.
    fn wind_up(
        &mut self,
        mut ended: Result<Ended>,
        stop: &StopFlag,
        watch: &mut dyn Watch,
    ) -> Result<&'static str> {
        if matches!(ended, Ok(Ended::Input)) {
            self.close(stop, watch)?;
            if self.store.is_firing() {
                // The next run, which finds nothing more to read, fires the rest.
                ended = Ok(Ended::Stopped);
            }
        }
        // A store or sink that failed refuses this as well; the first error is the one to tell. What came of half a
        // block must not be kept: all of it is read again.
        if ended.is_err()
            && !self.mid_block
            && let Err(error) = self.last_checkpoint(watch)
        {
            tracing::debug!(%error, "no last checkpoint after an error");
        }
        let outcome = match ended? {
            Ended::Input => COMPLETED,
            Ended::Stopped => "stopped",
        };
        self.last_checkpoint(watch)?;
        self.outputs.deliver_rest(outcome == COMPLETED)?;
        self.store.finish_uploads()?;
        Ok(outcome)
    }

    /// The input is at its end. Fires all that this makes due, unless a stop is asked for.
    fn close(&mut self, stop: &StopFlag, watch: &mut dyn Watch) -> Result<()> {
        self.end_last_batches()?;
        if self.config.watermark.close_at_end && self.store.watermark() != Watermark::End {
            self.store.end_of_input(&mut self.outputs)?;
            self.changed = true;
        }
        self.fire_on(stop, watch)
    }

    fn last_checkpoint(&mut self, watch: &mut dyn Watch) -> Result<()> {
        self.collect_report(true, watch)?;
        if self.changed {
            self.begin_checkpoint()?;
            self.collect_report(true, watch)?;
        }
        Ok(())
    }

    fn report_progress(&mut self, watch: &mut dyn Watch) {
        let now = self.clock.monotonic();
        if now.saturating_sub(self.last_progress) < PROGRESS_INTERVAL {
            return;
        }
        self.last_progress = now;
        let events = self.outputs.counters.events;
        watch.progress(&Progress {
            events,
            events_this_run: events.saturating_sub(self.summary.events_before()),
            results: self.outputs.rows(),
            late: self.outputs.counters.late_total(),
            rejected: self.outputs.counters.rejected_total(),
            watermark: self.store.watermark(),
            open_panes: self.store.resident_panes() as u64,
            last_epoch: self.summary.last_epoch(),
            checkpoint_age: self.summary.checkpoint_age(now),
            elapsed: now.saturating_sub(self.started),
        });
    }
}

pub(super) fn store_builder(
    config: &PipelineConfig,
    operators: Vec<crate::operator::OperatorSpec>,
    options: RunOptions,
    clock: &Arc<dyn Clock>,
) -> Result<WindowStoreBuilder> {
    Ok(assemble::store(config, operators)
        .restore_at(options.restore_at)
        .workers(config.state.workers.unwrap_or_else(reader::cores))
        .firing_step_rows(STEP_ROWS)
        .allow_dropped(options.allow_dropped)
        .repository(assemble::repository(config)?)
        .epochs_above(if options.set_aside_output { outputs::newest_published(config) } else { 0 })
        .clock(Arc::clone(clock)))
}

/// Windows by the wall clock say something of a live stream only: the events of a file all arrive in one moment.
fn warn_of_replay(config: &PipelineConfig) {
    let by_clock = config.windows.iter().find(|window| window.time == TimeDomain::Processing);
    let reads = |window: &WindowConfig, source: &SourceConfig| {
        window.sources.as_ref().is_none_or(|names| names.contains(&source.name))
    };
    let Some(window) = by_clock else { return };
    if let Some(source) = config.sources.iter().find(|source| reads(window, source) && !source.is_live()) {
        tracing::warn!(
            window = %window.name, source = %source.name,
            "this window counts events when they are read, and these are read from files: its results say how fast they \
             were read, not when they happened"
        );
    }
}

/// Refuses a pattern that matches what the pipeline itself writes: each run would read the last one's results.
pub(super) fn refuse_own_files(config: &PipelineConfig, source: &FileSource) -> Result<()> {
    let outputs = config.windows.iter().map(|window| &window.output.path);
    let outputs = outputs.chain(config.joins.iter().map(|join| &join.output.path));
    let side = config.late.iter().chain(&config.dead_letter);
    let repository = match config.checkpoint.repository.as_ref().map(|repository| &repository.location) {
        Some(Location::Directory(path)) => Some(path),
        _ => None,
    };
    let own = outputs.chain(side).chain([&config.state.directory]).chain(repository);
    let own: Vec<PathBuf> = own.filter_map(|path| path.canonicalize().ok()).collect();
    for (id, path) in source.paths() {
        let Ok(resolved) = path.canonicalize() else { continue };
        if let Some(directory) = own.iter().find(|directory| resolved.starts_with(directory)) {
            let message = format!(
                "{}: the input includes the pipeline's own files: path={} directory={}",
                config.sources.get(usize::from(id.0)).map_or("", |source| &source.declared_at),
                path.display(),
                directory.display()
            );
            return Err(Error::new(ErrorKind::Invalid, message)
                .with_remedy("make the pattern narrower, or write to a directory that it does not reach"));
        }
    }
    Ok(())
}

/// Where the source is to go on, as the restored checkpoint says.
pub(super) fn resume(
    config: &PipelineConfig,
    partitions: impl Iterator<Item = RestoredPartition>,
) -> Vec<PartitionResume> {
    let index_of = |name: &str| config.sources.iter().position(|source| source.name == name).unwrap_or(0);
    let resume = partitions.map(|partition| PartitionResume {
        source: SourceId(u16::try_from(index_of(&partition.source)).unwrap_or(u16::MAX)),
        name: partition.name,
        position: partition.position,
        identity: (partition.identity != SourceIdentity::default()).then_some(partition.identity),
        finished: partition.finished,
        max_time: partition.max_time,
    });
    resume.collect()
}

/// Makes every partition of the source known to the store.
fn register(source: &FileSource, store: &mut WindowStore) -> Result<Vec<Reading>> {
    let mut readings = Vec::new();
    for (index, info) in source.partitions().iter().enumerate() {
        let resume = &info.resume;
        let identity = resume.identity.unwrap_or_default();
        let (id, _) = store.partition_of(resume.source, &resume.name, identity)?;
        if info.watermark.0 as usize != index {
            store.follow(id);
        }
        if is_read_on(source, index) {
            store.reopen(id);
        }
        let (position, finished) = (resume.position, resume.finished);
        // Once all have their numbers; that of a leader may be higher.
        let (name, source, leader) = (resume.name.clone(), resume.source, info.watermark);
        readings.push(Reading { name, source, id, leader, position, finished });
    }
    let ids: Vec<PartitionId> = readings.iter().map(|reading| reading.id).collect();
    for reading in &mut readings {
        reading.leader = ids.get(reading.leader.0 as usize).copied().unwrap_or(reading.id);
    }
    Ok(readings)
}

/// True for a file that was read to its end and whose watermark is that of others which were not: it is the first of
/// those that are read as one.
pub(super) fn is_read_on(source: &FileSource, index: usize) -> bool {
    let infos = source.partitions();
    let Some(info) = infos.get(index).filter(|info| info.resume.finished) else { return false };
    let own = info.watermark.0 as usize == index;
    own && infos.iter().any(|other| other.watermark == info.watermark && !other.resume.finished)
}
