//! The embeddable face: windows, watermark, state and checkpoints behind one type.
//!
//! A [`WindowStore`] is one task: it takes batches of events, hands out results, and makes checkpoints from which it
//! resumes exactly where it stopped. It reads no source and writes no sink; `pipeline` does that around it. It
//! starts one thread of its own, which writes to the state database and publishes checkpoints while the caller goes
//! on.

mod builder;
mod checkpointing;
mod collect;
mod events;
pub mod evolution;
mod firing;
mod late;
mod lateness;
mod mirroring;
mod panes;
mod restore;
mod steps;
mod takeover;
#[cfg(test)]
mod tests;
mod view;
mod writer;
mod zones;

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::checkpoint::{Position, SourceIdentity, StateDirectory};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::event_time::{EventTime, Span, Watermark};
use crate::operator::{
    Advance, BatchWatermark, Emit, EventBatch, JoinSpec, Jump, KeyColumn, LatenessSketch, Marks, OpenWindow,
    OperatorSpec, PartitionId, PartitionProgress, SourceId, SourceSpec, TimeDomain, ValueColumn,
    WatermarkTracker, WindowOperator,
};
use crate::state::{StateDb, StateStats};

pub(crate) use builder::Candidate;
pub use builder::WindowStoreBuilder;
pub(crate) use builder::{MEMORY_BYTES_MIN, VERIFY_EVERY, family};
pub use checkpointing::{AfterPublish, Barrier, CheckpointReport, ReadTo};
pub use collect::{Collected, CollectedEvent, CollectedJoin, CollectedLate, CollectedRow};
pub(crate) use events::event_family;
pub(crate) use panes::decode;
pub use restore::{Restored, RestoredPartition};
pub(crate) use restore::{check_shape, partitions_of, saved_watermarks};
pub use view::{EventsHeld, OpenPane};

use events::EventOperators;
use late::LateInOrder;
use mirroring::Mirroring;
use panes::StorePanes;
use steps::{Steps, Tee};
use writer::Writer;

/// A source partition as the store knows it.
#[derive(Clone, Debug)]
struct Partition {
    name: String,
    position: Position,
    identity: SourceIdentity,
    finished: bool,
    lateness: LatenessSketch,
}

/// What was said about event times already, so as not to repeat it for each event.
#[derive(Debug, Default)]
struct Warned {
    steps_back: bool,
    jump: Option<Span>,
    jumps: u64,
    last_jump: Option<Jump>,
}

/// Durable window state of one task.
///
/// ```
/// use floodmark::aggregate::{AggregateSpec, Function, InputType};
/// use floodmark::checkpoint::SourceIdentity;
/// use floodmark::event::{EventBatch, Number, ValueColumn};
/// use floodmark::event_time::{EventTime, Span, Tumbling};
/// use floodmark::operator::OperatorSpec;
/// use floodmark::store::{Barrier, Collected, ReadTo, WindowStore};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let minute = Tumbling::new(Span::from_millis(60_000).ok_or("negative")?, 0)?;
///     let total = AggregateSpec::over("total", Function::Sum, "amount", InputType::Int, 0);
///     let window = OperatorSpec::new("per_minute", minute, &["customer"], vec![total]);
/// # let directory = tempfile::tempdir()?;
/// # let state = directory.path().join("state");
///     let mut store = WindowStore::builder("orders").window(window).open(&state)?; // restores the newest checkpoint
///     let (partition, mut at) = store.partition("orders-0", SourceIdentity::default())?; // and says where to read on
///     let mut results = Collected::default();
///     for (millis, customer, amount) in [(1_000, "ada", 5), (2_000, "bob", 7), (61_000, "ada", 1)] {
///         let mut batch = EventBatch::with_columns(partition, 1, vec![ValueColumn::int()]);
///         batch.push_event(EventTime::from_millis(millis), &[customer.as_bytes()], &[Some(Number::Int(amount))]);
///         store.process(&batch, &mut results)?; // the third event closes the first minute
///         at.records += 1;
///     }
///     let read_to = vec![ReadTo { partition, position: at, finished: false }];
///     store.checkpoint(Barrier { read_to, ..Barrier::default() })?; // durable: state, watermark and position together
///     assert_eq!(results.rows.len(), 2);
///     Ok(())
/// }
/// ```
///
/// The README has a whole program with results, a checkpoint and a resume.
pub struct WindowStore {
    directory: StateDirectory,
    db: Arc<StateDb>,
    operators: Vec<WindowOperator>,
    // What some of them get from others.
    steps: Steps,
    // Joins and deduplication.
    events: EventOperators,
    tracker: WatermarkTracker,
    partitions: Vec<Partition>,
    // Of partitions without a sketch of their own, by source.
    source_lateness: Vec<LatenessSketch>,
    marks: Marks,
    // What operators that advance by batches will have reached at the end of the batch.
    batch_watermark: BatchWatermark,
    warned: Warned,
    clock: Arc<dyn Clock>,
    // Before the writer, which may be waiting for it when the store is dropped.
    mirroring: Option<Mirroring>,
    writer: Writer,
    restored: Option<Restored>,
    hot_bytes_max: usize,
    // What panes on their way to the state database may take beside it.
    moving_bytes_max: usize,
    retain: NonZeroU32,
    // Rows that are fired in one go, where a checkpoint may come in between.
    step_rows: Option<usize>,
    verify_every: u32,
    // Set by the first failure; the state in memory is then of no known event.
    failed: bool,
}

impl std::fmt::Debug for WindowStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WindowStore")
            .field("directory", &self.directory.path())
            .field("watermark", &self.tracker.current())
            .field("partitions", &self.partitions)
            .finish_non_exhaustive()
    }
}

impl WindowStore {
    /// Starts to describe the store of the pipeline called `name`.
    #[must_use]
    pub fn builder(name: &str) -> WindowStoreBuilder {
        WindowStoreBuilder::new(name)
    }

    /// What the store took up when it was opened; `None` when it started empty.
    #[must_use]
    pub fn restored(&self) -> Option<&Restored> {
        self.restored.as_ref()
    }

    /// The windowed aggregations, in the order declared.
    pub fn operators(&self) -> impl ExactSizeIterator<Item = &OperatorSpec> + '_ {
        self.operators.iter().map(WindowOperator::spec)
    }

    /// The joins, in the order declared. Their indexes go on behind those of the windowed aggregations.
    pub fn joins(&self) -> impl ExactSizeIterator<Item = &JoinSpec> + '_ {
        self.events.joins().map(crate::operator::JoinOperator::spec)
    }

    /// The state directory.
    #[must_use]
    pub fn directory(&self) -> &StateDirectory {
        &self.directory
    }

    /// The index of the source partition called `name`, added if it is new, and where to resume reading it.
    ///
    /// # Errors
    /// [`ErrorKind::Incompatible`] when a partition of this name was restored with another identity: it is not the
    /// input that the checkpoint was made from.
    pub fn partition(&mut self, name: &str, identity: SourceIdentity) -> Result<(PartitionId, Position)> {
        self.partition_of(SourceId::default(), name, identity)
    }

    /// As [`WindowStore::partition`], which is about the first source, for any of those declared. Names of partitions
    /// are unique over all sources.
    ///
    /// # Errors
    /// As [`WindowStore::partition`], and [`ErrorKind::Invalid`] when there is no such source.
    pub fn partition_of(
        &mut self,
        source: SourceId,
        name: &str,
        identity: SourceIdentity,
    ) -> Result<(PartitionId, Position)> {
        self.check_usable()?;
        if usize::from(source.0) >= self.tracker.sources().len() {
            return Err(Error::new(ErrorKind::Invalid, format!("source is not known: source={}", source.0))
                .with_remedy("declare it with WindowStoreBuilder::source"));
        }
        if let Some(index) = self.partitions.iter().position(|partition| partition.name == name) {
            let known = &mut self.partitions[index];
            // Nothing was read of a partition at its beginning; whatever is there now is the input.
            if known.position == Position::default() {
                known.identity = identity;
            }
            if known.identity != identity {
                return Err(Error::new(
                    ErrorKind::Incompatible,
                    format!("source partition is not the one the checkpoint was made from: name={name}"),
                )
                .with_remedy("bring the original input back, or start with a new state directory"));
            }
            self.tracker.assign(PartitionId(index as u32), source);
            return Ok((PartitionId(index as u32), known.position));
        }
        let id = self.tracker.add_partition_of(source, self.clock.monotonic());
        let position = Position::default();
        let (name, lateness) = (name.to_owned(), LatenessSketch::default());
        self.partitions.push(Partition { name, position, identity, finished: false, lateness });
        Ok((id, position))
    }

    /// Notes how `partition` is recognised, where that is known only once it is read.
    pub fn recognise(&mut self, partition: PartitionId, identity: SourceIdentity) {
        if let Some(known) = self.partitions.get_mut(partition.0 as usize) {
            known.identity = identity;
        }
    }

    /// Lets the events of `partition` count under the watermark of another: batches then name that one, and only
    /// positions are kept of this.
    pub fn follow(&mut self, partition: PartitionId) {
        self.tracker.follow(partition);
    }

    /// Notes that more is to come under the watermark of a partition which itself was read to its end: of others that
    /// follow it. It holds the watermark back again.
    pub fn reopen(&mut self, partition: PartitionId) {
        self.tracker.touch(partition, self.clock.monotonic());
    }

    /// Processes a batch of one partition: late events and results go to `emit` before the call returns.
    ///
    /// # Errors
    /// What `emit` returned, [`ErrorKind::Damaged`] for a stored pane that cannot be understood,
    /// [`ErrorKind::Unavailable`] when the disk fails. After an error the store refuses work
    /// ([`ErrorKind::Poisoned`]): drop it and open it again, which restores the last checkpoint.
    pub fn process(&mut self, batch: &EventBatch, emit: &mut dyn Emit<Error = Error>) -> Result<()> {
        self.guarded(|store| {
            store.finish_firing(emit)?;
            store.process_whole(batch, emit)
        })
    }

    fn process_batch(&mut self, batch: &EventBatch, emit: &mut dyn Emit<Error = Error>) -> Result<()> {
        self.check_batch(batch)?;
        self.tracker.set_wall_clock(self.clock.wall_millis());
        self.tracker.touch(batch.partition, self.clock.monotonic());
        if let Some(known) = self.partitions.get_mut(batch.partition.0 as usize) {
            known.finished = false;
        }
        let latest = self.tracker.progress(batch.partition).and_then(|progress| progress.max_time);
        let (operators, events) = (&self.operators, &self.events);
        self.marks
            .observe_where(&mut self.tracker, batch, |time| reach(operators, events, batch.source, time));
        self.note_lateness(batch, latest);
        self.warn();
        for &(index, rejection) in self.marks.rejected() {
            emit.rejected(batch, index as usize, rejection)?;
        }
        self.events.drop_repeated(batch, &mut self.marks, emit)?;
        let now = EventTime::from_millis(self.clock.wall_millis());
        let mut panes = StorePanes { db: &self.db, writer: &mut self.writer };
        let mut ordered = LateInOrder::new(&mut *emit);
        for (index, operator) in self.operators.iter_mut().enumerate() {
            if self.steps.is_fed(index) {
                continue;
            }
            let mut tee = Tee { emit: &mut ordered, steps: &mut self.steps };
            if operator.spec().time == TimeDomain::Processing {
                operator.tick(now, &mut panes, &mut tee)?;
            }
            operator.process(batch, &self.marks, &mut panes, &mut tee)?;
        }
        self.events.process(batch, &self.marks, &mut ordered)?;
        ordered.finish(batch)?;
        self.feed(emit)?;
        self.make_room()
    }

    /// Hands results on to the operators that read them, each followed by its watermark.
    fn feed(&mut self, emit: &mut dyn Emit<Error = Error>) -> Result<()> {
        if self.steps.is_empty() {
            return Ok(());
        }
        let task = self.tracker.current();
        for index in 0..self.operators.len() {
            let Some(from) = self.steps.source_of(index) else { continue };
            let limit = self.operators[from].firing_limit();
            let operator = &mut self.operators[index];
            operator.set_limit(limit);
            let mut panes = StorePanes { db: &self.db, writer: &mut self.writer };
            for (batch, reached) in self.steps.take_for(index)? {
                let marks = Marks::steady(operator.watermark(), batch.len());
                let mut tee = Tee { emit: &mut *emit, steps: &mut self.steps };
                operator.process(&batch, &marks, &mut panes, &mut tee)?;
                operator.advance(reached, &mut panes, &mut tee)?;
            }
            let mut tee = Tee { emit: &mut *emit, steps: &mut self.steps };
            operator.advance(task, &mut panes, &mut tee)?;
        }
        self.steps.clear();
        Ok(())
    }

    /// Takes events into the windows of the operator at `index` alone, as of the watermark that it has come to. Neither
    /// watermarks nor positions move, and joins and deduplication see nothing of it.
    ///
    /// # Errors
    /// As [`WindowStore::process`].
    pub(crate) fn work_in(
        &mut self,
        index: usize,
        batch: &EventBatch,
        emit: &mut dyn Emit<Error = Error>,
    ) -> Result<()> {
        self.guarded(|store| {
            let Some(operator) = store.operators.get_mut(index) else {
                return Err(Error::new(ErrorKind::Bug, format!("there is no such operator: index={index}")));
            };
            let marks = Marks::steady(operator.watermark(), batch.len());
            let mut panes = StorePanes { db: &store.db, writer: &mut store.writer };
            operator.process(batch, &marks, &mut panes, emit)?;
            store.make_room()
        })
    }

    /// How far the watermark has come in each windowed aggregation, in the order declared.
    pub(crate) fn operator_watermarks(&self) -> impl Iterator<Item = Watermark> + '_ {
        self.operators.iter().map(WindowOperator::watermark)
    }

    /// Ends a batch, for operators that advance by batches ([`Advance::Batch`]): they emit what it changed and what
    /// the watermark, as it was when the batch began, has closed. What was processed since the last call is the
    /// batch; it may be nothing. Other operators take no notice.
    ///
    /// Make checkpoints of such operators between batches only.
    ///
    /// # Errors
    /// As [`WindowStore::process`].
    pub fn end_batch(&mut self, emit: &mut dyn Emit<Error = Error>) -> Result<()> {
        let reached = self.batch_watermark.end_batch(self.tracker.current());
        self.guarded(|store| {
            store.finish_firing(emit)?;
            let mut panes = StorePanes { db: &store.db, writer: &mut store.writer };
            for operator in &mut store.operators {
                if operator.spec().advance == Advance::Batch {
                    operator.end_batch(reached, &mut panes, emit)?;
                }
            }
            store.make_room()
        })
    }

    /// True when the end of a batch would move the watermark of an operator that advances by batches.
    #[must_use]
    pub fn batch_is_due(&self) -> bool {
        let mut by_batch = self.operators.iter().filter(|operator| operator.spec().advance == Advance::Batch);
        by_batch.any(|operator| operator.watermark() < self.batch_watermark.next())
    }

    /// The watermark that operators advancing by batches reach at the end of this one.
    #[must_use]
    pub fn batch_watermark(&self) -> Watermark {
        self.batch_watermark.next()
    }

    /// Says once what looks wrong in the event times of the last batch, and again when it gets worse.
    fn warn(&mut self) {
        if self.tracker.steps_back() > 0 && !self.warned.steps_back {
            self.warned.steps_back = true;
            tracing::warn!(
                "an event went back in time although its source is monotone: such events are late where their window \
                 has closed; give the source a delay if they are to count"
            );
        }
        let Some(jump) = self.tracker.take_jump() else { return };
        self.warned.jumps += 1;
        self.warned.last_jump = Some(jump);
        if self.warned.jump.is_none_or(|longest| jump.length() > longest) {
            self.warned.jump = Some(jump.length());
            let name = self.partitions.get(jump.partition.0 as usize).map_or("", |known| known.name.as_str());
            tracing::warn!(
                partition = name, from = %jump.from, to = %jump.to,
                "one event moved the watermark by {}: if its time is wrong, everything up to there is late now; bounds \
                 keep such times out", jump.length()
            );
        }
    }

    /// Refuses a batch whose columns do not fit, before any of it is counted.
    fn check_batch(&self, batch: &EventBatch) -> Result<()> {
        let wrong = |what: String| {
            Error::new(ErrorKind::Invalid, format!("batch does not fit the store: {what}"))
                .with_remedy("give every column of the batch one entry per event")
        };
        if batch.partition.0 as usize >= self.partitions.len() {
            return Err(wrong(format!("partition is not known: partition={}", batch.partition.0)));
        }
        let source = self.tracker.source_of(batch.partition).unwrap_or_default();
        if batch.source != source {
            let (given, known) = (batch.source.0, source.0);
            return Err(wrong(format!(
                "it says another source than its partition: source={given} is={known}"
            )));
        }
        if batch.punctuations.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
            return Err(wrong("punctuations are not in the order of their events".to_owned()));
        }
        let keys = batch.keys.iter().map(KeyColumn::len).collect();
        let values = batch.values.iter().map(ValueColumn::len).collect();
        self.check_columns(batch, source, keys, values).map_err(wrong)
    }

    /// Every column has one entry per event; one that no operator reads of this source may be empty.
    fn check_columns(
        &self,
        batch: &EventBatch,
        source: SourceId,
        keys: Vec<usize>,
        values: Vec<usize>,
    ) -> Result<(), String> {
        let rows = batch.len();
        for (kind, lengths) in [("key", &keys), ("value", &values)] {
            if let Some((index, entries)) =
                lengths.iter().enumerate().find(|(_, entries)| **entries != rows && **entries != 0)
            {
                return Err(format!("{kind} column {index}: entries={entries} events={rows}"));
            }
        }
        self.events.check_columns(batch, source, &keys)?;
        for operator in &self.operators {
            let spec = operator.spec();
            if spec.input.is_some() || !spec.reads(source) {
                continue;
            }
            let fits = |lengths: &[usize], column: usize| lengths.get(column) == Some(&rows) || rows == 0;
            if !fits(&keys, spec.key_column) {
                return Err(format!("operator reads a missing key column: operator={}", spec.name));
            }
            for input in spec.aggregates.iter().filter_map(|aggregate| aggregate.input.as_ref()) {
                let field = &input.field;
                if !fits(&values, input.column) {
                    return Err(format!("operator reads a missing value column: field={field}"));
                }
                if let Some(column) = batch.values.get(input.column)
                    && rows > 0
                    && !input.kind.fits(column)
                {
                    let kind = input.kind;
                    return Err(format!("value column is of another type: field={field} type={kind}"));
                }
            }
        }
        Ok(())
    }

    /// Lets processing time take effect: partitions that are silent for the idle time-out stop holding the
    /// watermark back, unless `has_backlog` says that records of theirs wait to be read, and with
    /// [`WindowStoreBuilder::idle_advance`] the watermark goes on in a silent stream. Call it now and then. May leave
    /// results to be fired, see [`WindowStore::is_firing`].
    ///
    /// # Errors
    /// As [`WindowStore::process`].
    pub fn tick(
        &mut self,
        has_backlog: impl Fn(PartitionId) -> bool,
        emit: &mut dyn Emit<Error = Error>,
    ) -> Result<()> {
        self.tracker.set_wall_clock(self.clock.wall_millis());
        let watermark = self.tracker.tick(self.clock.monotonic(), has_backlog);
        self.advance(watermark, emit)?;
        let now = EventTime::from_millis(self.clock.wall_millis());
        self.guarded(|store| {
            let mut panes = StorePanes { db: &store.db, writer: &mut store.writer };
            for operator in &mut store.operators {
                let mut tee = Tee { emit: &mut *emit, steps: &mut store.steps };
                operator.tick(now, &mut panes, &mut tee)?;
            }
            store.feed(emit)
        })
    }

    /// Notes that `partition` was read to its end; it no longer holds the watermark back. May leave results to be fired,
    /// see [`WindowStore::is_firing`].
    ///
    /// # Errors
    /// As [`WindowStore::process`].
    pub fn finish_partition(
        &mut self,
        partition: PartitionId,
        emit: &mut dyn Emit<Error = Error>,
    ) -> Result<()> {
        if let Some(known) = self.partitions.get_mut(partition.0 as usize) {
            known.finished = true;
        }
        self.fold_lateness(partition);
        let watermark = self.tracker.finish(partition);
        self.advance(watermark, emit)
    }

    /// Notes that the input has ended: closes every window. Events that come afterwards are late. May leave results to be
    /// fired, see [`WindowStore::is_firing`].
    ///
    /// # Errors
    /// As [`WindowStore::process`].
    pub fn end_of_input(&mut self, emit: &mut dyn Emit<Error = Error>) -> Result<()> {
        let watermark = self.tracker.end();
        self.advance(watermark, emit)
    }

    fn advance(&mut self, watermark: Watermark, emit: &mut dyn Emit<Error = Error>) -> Result<()> {
        self.guarded(|store| {
            let mut panes = StorePanes { db: &store.db, writer: &mut store.writer };
            for (index, operator) in store.operators.iter_mut().enumerate() {
                if store.steps.is_fed(index) {
                    continue;
                }
                let spec = operator.spec();
                let follows = spec.time == TimeDomain::Event && spec.advance == Advance::Event;
                if follows || watermark == Watermark::End {
                    let mut tee = Tee { emit: &mut *emit, steps: &mut store.steps };
                    operator.advance(watermark, &mut panes, &mut tee)?;
                }
            }
            store.feed(emit)?;
            store.events.advance(watermark, emit)
        })
    }

    /// Moves panes to the state database while the hot buffer is over its share of the memory budget, and waits where
    /// those on their way would together with it take more than both may.
    fn make_room(&mut self) -> Result<()> {
        loop {
            let needs = |operator: &WindowOperator| operator.memory_bytes() + operator.growth_bytes();
            let used: Vec<usize> = self.operators.iter().map(needs).collect();
            let hot = used.iter().sum::<usize>() + self.events.memory_bytes();
            if hot <= self.hot_bytes_max {
                let both = self.hot_bytes_max + self.moving_bytes_max;
                return self.writer.wait_for_room(both - hot);
            }
            let mut by_size: Vec<usize> = (0..used.len()).collect();
            by_size.sort_by_key(|&index| std::cmp::Reverse(used[index]));
            let spilled =
                by_size.into_iter().find_map(|index| Some((index, self.operators[index].spill_largest()?)));
            let Some((operator, spilled)) = spilled else { return Ok(()) };
            self.writer.write(operator, spilled)?;
        }
    }

    /// Runs `work` unless the store failed before, and remembers when it fails.
    fn guarded<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.check_usable()?;
        let result = work(self);
        self.failed |= result.is_err();
        result
    }

    fn check_usable(&self) -> Result<()> {
        if self.failed {
            return Err(Error::new(
                ErrorKind::Poisoned,
                "the store failed earlier and its memory cannot be trusted",
            )
            .with_remedy("drop the store and open it again: it restores the last checkpoint"));
        }
        Ok(())
    }

    /// The watermark of the task.
    #[must_use]
    pub fn watermark(&self) -> Watermark {
        self.tracker.current()
    }

    /// The sources in the order declared, each with its watermark.
    pub fn sources(&self) -> impl ExactSizeIterator<Item = (&SourceSpec, Watermark)> + '_ {
        self.tracker.sources()
    }

    /// Events that went back in time although their source is [`crate::operator::Strategy::Monotone`], since the
    /// store was opened.
    #[must_use]
    pub fn steps_back(&self) -> u64 {
        self.tracker.steps_back()
    }

    /// Name and progress of every partition, by index.
    pub fn partitions(&self) -> impl Iterator<Item = (&str, PartitionProgress)> + '_ {
        self.partitions.iter().map(|partition| partition.name.as_str()).zip(self.tracker.partitions())
    }

    /// The open windows of the operator at `index`, by end.
    pub fn open_windows(&self, index: usize) -> impl Iterator<Item = OpenWindow> + '_ {
        self.operators.get(index).into_iter().flat_map(WindowOperator::open_windows)
    }

    /// Panes in memory, over all operators, and events that joins and deduplication remember.
    #[must_use]
    pub fn resident_panes(&self) -> usize {
        self.operators.iter().map(WindowOperator::resident_panes).sum::<usize>() + self.events.held()
    }

    /// Bytes of memory that panes and remembered events take.
    #[must_use]
    pub fn hot_bytes(&self) -> usize {
        self.operators.iter().map(WindowOperator::memory_bytes).sum::<usize>() + self.events.memory_bytes()
    }

    /// Figures of the state database.
    ///
    /// # Errors
    /// When the database does not answer.
    pub fn state_stats(&self) -> Result<StateStats> {
        Ok(self.db.stats()?)
    }
}

/// True when all that read `source` can hold an event of this time.
fn reach(operators: &[WindowOperator], events: &EventOperators, source: SourceId, time: EventTime) -> bool {
    let mut reading = operators.iter().filter(|operator| {
        let spec = operator.spec();
        spec.input.is_none() && spec.reads(source)
    });
    reading.all(|operator| operator.reaches(time)) && events.reaches(source, time)
}
