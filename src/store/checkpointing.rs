//! Making a checkpoint: what the barrier takes along, and the steps that run beside processing.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::WindowStore;
use super::mirroring::Outbox;
use super::restore::operator_state;
use super::writer::{write_entries, write_rows};
use super::zones;
use crate::checkpoint::{
    CheckpointError, FileFacts, Keep, ManifestDraft, OperatorState, PartitionState, Position, Published,
    ROTTEN, SourceState, StagedOutput, StateDirectory,
};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::event_time::Watermark;
use crate::fault;
use crate::operator::{
    Entries, LatenessSketch, PartitionId, PartitionProgress, SourceId, SourceSpec, Spilled,
};
use crate::state::{EvictStats, FamilyId, LinkedFile, StateDb};

/// Called once the checkpoint is durable, with the permit to publish its staged output. When it fails, the
/// checkpoint stands, and its output is published when the store is opened again.
pub type AfterPublish = Box<dyn FnOnce(&Published) -> Result<()> + Send>;

/// How far a source partition was read at a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadTo {
    /// Which partition.
    pub partition: PartitionId,
    /// Where it is to be read on.
    pub position: Position,
    /// True when it was read to its end.
    pub finished: bool,
}

/// What a checkpoint takes along from outside the store. Taken between two batches, when everything that came from
/// the events before `read_to` has been staged.
#[derive(Default)]
pub struct Barrier {
    /// How far partitions were read. Those that are not named stay where they were.
    pub read_to: Vec<ReadTo>,
    /// Output staged since the last checkpoint.
    pub staged: Vec<StagedOutput>,
    /// Running totals to keep.
    pub counters: BTreeMap<String, u64>,
    /// What to do with the permit.
    pub after_publish: Option<AfterPublish>,
}

impl std::fmt::Debug for Barrier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Barrier")
            .field("read_to", &self.read_to)
            .field("staged", &self.staged)
            .finish_non_exhaustive()
    }
}

/// What a finished checkpoint was.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CheckpointReport {
    /// Its number.
    pub epoch: u64,
    /// The watermark that it holds; also the eviction horizon from now on.
    pub watermark: Watermark,
    /// Panes written since the one before.
    pub panes_written: usize,
    /// Files in it.
    pub files: usize,
    /// Bytes of files that are new in it.
    pub new_bytes: u64,
    /// Bytes of files that it shares with the one before.
    pub shared_bytes: u64,
    /// False when no hard links were made, so that files were copied. A table that was rewritten meanwhile looks the same.
    pub hard_linked: bool,
    /// Bytes that were read again to see that they are still sound; see [`super::WindowStoreBuilder::verify_every`].
    pub reread_bytes: u64,
    /// How long processing stood still.
    pub pause: Duration,
    /// Writing panes, beside processing.
    pub spill: Duration,
    /// Flushing and linking, beside processing.
    pub link: Duration,
    /// Checksums, manifest, syncs and the rename, beside processing.
    pub publish: Duration,
    /// Waiting for the repository, where it is required, beside processing.
    pub upload: Duration,
    /// Publishing output, beside processing.
    pub output: Duration,
    /// Reading its files again, beside processing.
    pub reread: Duration,
    /// What was evicted after it.
    pub evicted: EvictStats,
    /// Older checkpoints that were deleted after it.
    pub retired: usize,
}

#[cfg(test)]
impl CheckpointReport {
    /// One in which nothing happened.
    pub(crate) fn example(hard_linked: bool) -> Self {
        Self {
            epoch: 1,
            watermark: Watermark::None,
            panes_written: 0,
            files: 0,
            new_bytes: 0,
            shared_bytes: 0,
            hard_linked,
            reread_bytes: 0,
            pause: Duration::ZERO,
            spill: Duration::ZERO,
            link: Duration::ZERO,
            publish: Duration::ZERO,
            upload: Duration::ZERO,
            output: Duration::ZERO,
            reread: Duration::ZERO,
            evicted: EvictStats::default(),
            retired: 0,
        }
    }
}

/// A checkpoint on its way to the writer thread.
pub(super) struct CheckpointJob {
    directory: StateDirectory,
    epoch: u64,
    spilled: Vec<(usize, Vec<Spilled>)>,
    entries: Vec<(usize, Entries)>,
    sources: Vec<SourceState>,
    partitions: Vec<PartitionState>,
    operators: Vec<OperatorState>,
    watermark: Watermark,
    retain: NonZeroU32,
    staged: Vec<StagedOutput>,
    counters: BTreeMap<String, u64>,
    after_publish: Option<AfterPublish>,
    outbox: Option<Outbox>,
    verify_every: u32,
    pause: Duration,
    batch_watermark: Watermark,
    clock: Arc<dyn Clock>,
}

impl WindowStore {
    /// The number of the next checkpoint; output staged for it carries it.
    #[must_use]
    pub fn next_epoch(&self) -> u64 {
        self.directory.next_epoch()
    }

    /// True while a checkpoint is under way.
    #[must_use]
    pub fn checkpoint_in_flight(&self) -> bool {
        self.writer.in_flight()
    }

    /// Starts a checkpoint and returns its number. Processing may go on at once; at most one is under way.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] while one is under way, [`ErrorKind::Locked`] when another process has taken over,
    /// [`ErrorKind::Unavailable`] when the disk failed before.
    pub fn begin_checkpoint(&mut self, barrier: Barrier) -> Result<u64> {
        if self.writer.in_flight() {
            return Err(Error::new(ErrorKind::Invalid, "a checkpoint is under way")
                .with_remedy("wait for it with WindowStore::checkpoint_report"));
        }
        self.guarded(|store| store.hand_over_checkpoint(barrier))
    }

    fn hand_over_checkpoint(&mut self, barrier: Barrier) -> Result<u64> {
        let started = self.clock.monotonic();
        let epoch = self.next_epoch();
        for read in barrier.read_to {
            if let Some(known) = self.partitions.get_mut(read.partition.0 as usize) {
                known.position = read.position;
                known.finished = read.finished;
            }
        }
        let windows = self.operators.iter().map(operator_state);
        let operators = windows.chain(self.events.states()).collect();
        let spilled = self.operators.iter_mut().map(|operator| operator.spill_dirty()).enumerate().collect();
        let mut counters = barrier.counters;
        let specs = self.operators.iter().map(|operator| operator.spec());
        counters.extend(zones::fingerprints(specs, self.watermark()));
        let job = CheckpointJob {
            directory: self.directory.clone(),
            epoch,
            spilled,
            entries: self.events.spill_dirty(),
            sources: self.source_states(),
            partitions: self.partition_states(),
            operators,
            watermark: self.watermark(),
            batch_watermark: self.batch_watermark.next(),
            retain: self.retain,
            staged: barrier.staged,
            counters,
            after_publish: barrier.after_publish,
            outbox: self.mirroring.as_ref().map(|mirroring| mirroring.0.clone()),
            verify_every: self.verify_every,
            pause: self.clock.monotonic().saturating_sub(started),
            clock: Arc::clone(&self.clock),
        };
        self.writer.checkpoint(job)?;
        Ok(epoch)
    }

    fn source_states(&self) -> Vec<SourceState> {
        let state = |((spec, watermark), lateness): ((&SourceSpec, Watermark), &LatenessSketch)| {
            SourceState { name: spec.name.clone(), watermark, lateness: lateness.clone() }
        };
        self.tracker.sources().zip(&self.source_lateness).map(state).collect()
    }

    fn partition_states(&self) -> Vec<PartitionState> {
        let names: Vec<&str> = self.tracker.sources().map(|(spec, _)| spec.name.as_str()).collect();
        let state = |(partition, (source, progress)): (&super::Partition, (SourceId, PartitionProgress))| {
            PartitionState {
                name: partition.name.clone(),
                source: names.get(usize::from(source.0)).copied().unwrap_or_default().to_owned(),
                position: partition.position,
                identity: partition.identity,
                finished: partition.finished,
                max_time: progress.max_time,
                watermark: progress.watermark,
                idle: progress.idle,
                lateness: partition.lateness.clone(),
            }
        };
        self.partitions.iter().zip(self.tracker.saved().partitions).map(state).collect()
    }

    /// The report of a checkpoint that has finished, if there is one; with `wait`, waits for the one under way.
    ///
    /// # Errors
    /// Why the checkpoint failed, or [`ErrorKind::Locked`] when another process has taken the repository over; the
    /// store refuses work from then on.
    pub fn checkpoint_report(&mut self, wait: bool) -> Result<Option<CheckpointReport>> {
        self.guarded(|store| {
            store.check_repository()?;
            store.writer.report(wait)
        })
    }

    /// Makes a checkpoint and waits until it is durable and its output published.
    ///
    /// # Errors
    /// As [`WindowStore::begin_checkpoint`] and [`WindowStore::checkpoint_report`].
    pub fn checkpoint(&mut self, barrier: Barrier) -> Result<CheckpointReport> {
        while self.checkpoint_report(true)?.is_some() {}
        self.begin_checkpoint(barrier)?;
        let report = self.checkpoint_report(true)?;
        report.ok_or_else(|| Error::new(ErrorKind::Bug, "a checkpoint ended without a report"))
    }
}

impl CheckpointJob {
    /// Bytes of the rows that it has to write.
    pub(super) fn bytes(&self) -> usize {
        self.spilled.iter().flat_map(|(_, spilled)| spilled).map(Spilled::bytes).sum()
    }

    /// Does it, on the writer thread. `written` is called as soon as all rows can be read from the database.
    ///
    /// The order is the protocol (`docs/CHECKPOINTS.md`): rows, links, manifest, rename, output, and only then the
    /// horizon. A cut after any step leaves the checkpoint before, or this one, complete.
    pub(super) fn run(mut self, db: &StateDb, written: impl FnOnce()) -> Result<CheckpointReport> {
        let clock = Arc::clone(&self.clock);
        let mut lap = clock.monotonic();
        let mut split = || {
            let now = clock.monotonic();
            now.saturating_sub(std::mem::replace(&mut lap, now))
        };
        pass("spill.before")?;
        let mut panes_written = 0;
        // Each is let go as soon as it is written: together they may be as large as the hot buffer.
        for (operator, spilled) in std::mem::take(&mut self.spilled) {
            panes_written += write_rows(db, operator, &spilled)?;
        }
        for (operator, entries) in std::mem::take(&mut self.entries) {
            panes_written += write_entries(db, operator, &entries)?;
        }
        written();
        pass("spill.after")?;
        let spill = split();
        let writer = self.directory.begin(self.epoch)?;
        let linked = db.link_checkpoint(&writer.db_target(), self.epoch)?;
        let (link, hard_linked) = (split(), linked.hard_linked);
        let draft = ManifestDraft {
            sources: self.sources,
            partitions: self.partitions,
            watermark: self.watermark,
            batch_watermark: self.batch_watermark,
            horizon: db.horizon(),
            operators: operators_with_horizons(db, &self.operators)?,
            files: linked.files.into_iter().map(file_facts).collect(),
            staged: self.staged,
            counters: self.counters,
        };
        let files = draft.files.len();
        let published = writer.publish(draft)?;
        let publish = split();
        if let Some(outbox) = &self.outbox {
            outbox.send(&published, self.clock.as_ref())?;
        }
        let upload = split();
        if let Some(after_publish) = self.after_publish {
            self.directory.check_owner()?;
            after_publish(&published)?;
        }
        let output = split();
        // Only now: the checkpoint that holds this watermark is durable, and what it closed is delivered.
        pass("evict.before")?;
        for (index, operator) in self.operators.iter().enumerate() {
            db.set_family_horizon(FamilyId(index), operator.watermark)?;
        }
        let evicted = db.evict()?;
        pass("evict.after")?;
        let plan = self.directory.retention_plan(&Keep { last: self.retain, pinned: Default::default() })?;
        let retired = plan.retire.len();
        self.directory.retire(&plan)?;
        split();
        let due = self.verify_every != 0 && self.epoch.is_multiple_of(u64::from(self.verify_every));
        let reread_bytes = if due { reread(&self.directory, &published, self.outbox.is_some())? } else { 0 };
        let reread = split();
        Ok(CheckpointReport {
            epoch: self.epoch,
            watermark: self.watermark,
            panes_written,
            files,
            new_bytes: published.new_bytes(),
            shared_bytes: published.shared_bytes(),
            hard_linked,
            reread_bytes,
            pause: self.pause,
            spill,
            link,
            publish,
            upload,
            output,
            reread,
            evicted,
            retired,
        })
    }
}

/// Reads all files of a checkpoint again: it shares them with those before, and what went bad in one has gone bad in all.
fn reread(directory: &StateDirectory, published: &Published, mirrored: bool) -> Result<u64> {
    directory.reread(published).map_err(|error| match &error {
        CheckpointError::Rotten { lasting: true, .. } if mirrored => Error::from(error).with_remedy(format!(
            "{ROTTEN}, or fetch the checkpoint from its repository with `floodmark repository fetch`, and run again"
        )),
        _ => Error::from(error),
    })
}

/// The operators with the horizons that their families had while the files of the checkpoint were made.
fn operators_with_horizons(db: &StateDb, operators: &[OperatorState]) -> Result<Vec<OperatorState>> {
    let with_horizon = |(index, operator): (usize, &OperatorState)| {
        Ok(OperatorState { horizon: db.family_horizon(FamilyId(index))?, ..operator.clone() })
    };
    operators.iter().enumerate().map(with_horizon).collect()
}

fn file_facts(file: LinkedFile) -> FileFacts {
    let LinkedFile { name, range, .. } = file;
    match range {
        Some(range) => FileFacts {
            name,
            family: Some(range.column_family),
            smallest_key: range.smallest,
            largest_key: range.largest,
            entries: range.entries,
        },
        None => FileFacts { name, ..FileFacts::default() },
    }
}

fn pass(point: &'static str) -> Result<()> {
    fault::point(point).map_err(|error| {
        Error::new(ErrorKind::Unavailable, format!("checkpoint step failed: step={point}")).with_source(error)
    })
}
