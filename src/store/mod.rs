//! The embeddable face: windows, watermark, state and checkpoints behind one type.
//!
//! A [`WindowStore`] is one task: it takes batches of events, hands out results, and makes checkpoints from which it
//! resumes exactly where it stopped. It reads no source and writes no sink; `pipeline` does that around it. It
//! starts one thread of its own, which writes to the state database and publishes checkpoints while the caller goes
//! on.

mod builder;
mod checkpointing;
mod collect;
mod panes;
mod restore;
mod writer;

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::checkpoint::{Position, SourceIdentity, StateDirectory};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::event_time::{EventTime, Watermark};
use crate::operator::{
    Advance, Emit, EventBatch, Marks, OpenWindow, OperatorSpec, PartitionId, PartitionProgress, TimeDomain,
    WatermarkTracker, WindowOperator,
};
use crate::state::{StateDb, StateStats};

pub use builder::WindowStoreBuilder;
pub(crate) use builder::family;
pub use checkpointing::{AfterPublish, Barrier, CheckpointReport, ReadTo};
pub use collect::{Collected, CollectedLate, CollectedRow};
pub use restore::{Restored, RestoredPartition};

use panes::StorePanes;
use writer::Writer;

/// A source partition as the store knows it.
#[derive(Clone, Debug)]
struct Partition {
    name: String,
    position: Position,
    identity: SourceIdentity,
    finished: bool,
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
    tracker: WatermarkTracker,
    partitions: Vec<Partition>,
    marks: Marks,
    // What operators that advance by batches will have reached at the end of the batch.
    batch_watermark: Watermark,
    clock: Arc<dyn Clock>,
    writer: Writer,
    restored: Option<Restored>,
    hot_bytes_max: usize,
    retain: NonZeroU32,
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
        self.check_usable()?;
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
            return Ok((PartitionId(index as u32), known.position));
        }
        let id = self.tracker.add_partition(self.clock.monotonic());
        let position = Position::default();
        self.partitions.push(Partition { name: name.to_owned(), position, identity, finished: false });
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

    /// Processes a batch of one partition: late events and results go to `emit` before the call returns.
    ///
    /// # Errors
    /// What `emit` returned, [`ErrorKind::Damaged`] for a stored pane that cannot be understood,
    /// [`ErrorKind::Unavailable`] when the disk fails. After an error the store refuses work
    /// ([`ErrorKind::Poisoned`]): drop it and open it again, which restores the last checkpoint.
    pub fn process(&mut self, batch: &EventBatch, emit: &mut dyn Emit<Error = Error>) -> Result<()> {
        self.guarded(|store| store.process_batch(batch, emit))
    }

    fn process_batch(&mut self, batch: &EventBatch, emit: &mut dyn Emit<Error = Error>) -> Result<()> {
        self.check_batch(batch)?;
        self.tracker.touch(batch.partition, self.clock.monotonic());
        self.marks.observe(&mut self.tracker, &self.operators, batch);
        for &index in self.marks.out_of_range() {
            emit.out_of_range(batch, index as usize)?;
        }
        let now = EventTime::from_millis(self.clock.wall_millis());
        let mut panes = StorePanes { db: &self.db, writer: &mut self.writer };
        for operator in &mut self.operators {
            if operator.spec().time == TimeDomain::Processing {
                operator.tick(now, &mut panes, emit)?;
            }
            operator.process(batch, &self.marks, &mut panes, emit)?;
        }
        self.make_room()
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
        let reached = std::mem::replace(&mut self.batch_watermark, spark_watermark(self.tracker.current()));
        self.guarded(|store| {
            let mut panes = StorePanes { db: &store.db, writer: &mut store.writer };
            for operator in &mut store.operators {
                if operator.spec().advance == Advance::Batch {
                    operator.end_batch(reached, &mut panes, emit)?;
                }
            }
            store.make_room()
        })
    }

    /// The watermark that operators advancing by batches reach at the end of this one.
    #[must_use]
    pub fn batch_watermark(&self) -> Watermark {
        self.batch_watermark
    }

    /// Refuses a batch whose columns do not fit, before any of it is counted.
    fn check_batch(&self, batch: &EventBatch) -> Result<()> {
        let rows = batch.len();
        let wrong = |what: String| {
            Error::new(ErrorKind::Invalid, format!("batch does not fit the store: {what}"))
                .with_remedy("give every column of the batch one entry per event")
        };
        if batch.partition.0 as usize >= self.partitions.len() {
            return Err(wrong(format!("partition is not known: partition={}", batch.partition.0)));
        }
        for (index, column) in batch.keys.iter().enumerate() {
            if column.len() != rows {
                return Err(wrong(format!("key column {index}: entries={} events={rows}", column.len())));
            }
        }
        for (index, column) in batch.values.iter().enumerate() {
            if column.len() != rows {
                return Err(wrong(format!("value column {index}: entries={} events={rows}", column.len())));
            }
        }
        for operator in &self.operators {
            let spec = operator.spec();
            if rows > 0 && spec.key_column >= batch.keys.len() {
                return Err(wrong(format!("operator reads a missing key column: operator={}", spec.name)));
            }
            if rows == 0 {
                continue;
            }
            for input in spec.aggregates.iter().filter_map(|aggregate| aggregate.input.as_ref()) {
                let field = &input.field;
                match batch.values.get(input.column) {
                    None => {
                        return Err(wrong(format!("operator reads a missing value column: field={field}")));
                    }
                    Some(column) if !input.kind.fits(column) => {
                        let kind = input.kind;
                        return Err(wrong(format!(
                            "value column is of another type: field={field} type={kind}"
                        )));
                    }
                    Some(_) => {}
                }
            }
        }
        Ok(())
    }

    /// Lets processing time take effect: partitions that are silent for the idle time-out stop holding the
    /// watermark back, unless `has_backlog` says that records of theirs wait to be read. Call it now and then.
    ///
    /// # Errors
    /// As [`WindowStore::process`].
    pub fn tick(
        &mut self,
        has_backlog: impl Fn(PartitionId) -> bool,
        emit: &mut dyn Emit<Error = Error>,
    ) -> Result<()> {
        let watermark = self.tracker.tick(self.clock.monotonic(), has_backlog);
        self.advance(watermark, emit)?;
        let now = EventTime::from_millis(self.clock.wall_millis());
        self.guarded(|store| {
            let mut panes = StorePanes { db: &store.db, writer: &mut store.writer };
            for operator in &mut store.operators {
                operator.tick(now, &mut panes, emit)?;
            }
            Ok(())
        })
    }

    /// Notes that `partition` was read to its end; it no longer holds the watermark back.
    ///
    /// # Errors
    /// As [`WindowStore::process`].
    pub fn finish_partition(
        &mut self,
        partition: PartitionId,
        emit: &mut dyn Emit<Error = Error>,
    ) -> Result<()> {
        let watermark = self.tracker.finish(partition);
        self.advance(watermark, emit)
    }

    /// Notes that the input has ended: closes every window. Events that come afterwards are late.
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
            for operator in &mut store.operators {
                let spec = operator.spec();
                let follows = spec.time == TimeDomain::Event && spec.advance == Advance::Event;
                if follows || watermark == Watermark::End {
                    operator.advance(watermark, &mut panes, emit)?;
                }
            }
            Ok(())
        })
    }

    /// Moves panes to the state database while the hot buffer is over its share of the memory budget.
    fn make_room(&mut self) -> Result<()> {
        loop {
            let used: Vec<usize> = self.operators.iter().map(WindowOperator::memory_bytes).collect();
            if used.iter().sum::<usize>() <= self.hot_bytes_max {
                return Ok(());
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

    /// Name, progress and watermark of every partition, by index.
    pub fn partitions(&self) -> impl Iterator<Item = (&str, PartitionProgress, Watermark)> + '_ {
        let names = self.partitions.iter().map(|partition| partition.name.as_str());
        let progress = self.tracker.partitions().zip(self.tracker.partition_watermarks());
        names.zip(progress).map(|(name, (progress, watermark))| (name, progress, watermark))
    }

    /// The open windows of the operator at `index`, by end.
    pub fn open_windows(&self, index: usize) -> impl Iterator<Item = OpenWindow> + '_ {
        self.operators.get(index).into_iter().flat_map(WindowOperator::open_windows)
    }

    /// Panes in memory, over all operators.
    #[must_use]
    pub fn resident_panes(&self) -> usize {
        self.operators.iter().map(WindowOperator::resident_panes).sum()
    }

    /// Bytes of memory that panes take.
    #[must_use]
    pub fn hot_bytes(&self) -> usize {
        self.operators.iter().map(WindowOperator::memory_bytes).sum()
    }

    /// Figures of the state database.
    ///
    /// # Errors
    /// When the database does not answer.
    pub fn state_stats(&self) -> Result<StateStats> {
        Ok(self.db.stats()?)
    }
}

/// The watermark as operators that advance by batches see it: it starts at 1970.
fn spark_watermark(watermark: Watermark) -> Watermark {
    watermark.max(Watermark::At(EventTime::from_millis(0)))
}
