//! The public store, in a directory of its own.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use floodmark::checkpoint::{Position, SourceIdentity};
use floodmark::clock::ManualClock;
use floodmark::error::Error;
use floodmark::event_time::{EventTime, Watermark};
use floodmark::operator::{Bounds, DedupSpec, EventBatch, OperatorSpec, PartitionId};
use floodmark::store::{Barrier, ReadTo, WindowStore};
use tempfile::TempDir;

use super::runner::{Backend as Face, Reader, Step, is_real};
use super::seen::Seen;
use super::spec::{operator, span};
use crate::oracle::{Op, Row, Settings};

const MEMORY_BYTES: usize = 16 << 20;
const INPUT: SourceIdentity = SourceIdentity { head_bytes: 4, head_crc32: 7 };

pub(super) struct Backend {
    settings: Settings,
    spec: OperatorSpec,
    directory: TempDir,
    clock: Arc<ManualClock>,
    now_ms: i64,
    store: Option<WindowStore>,
    // Rows of a firing before it pauses, and the process dies and goes on; never without.
    step_rows: Option<usize>,
    // Each process has another number of workers.
    processes: usize,
    // The last checkpoint that was asked for, and whether there were others after it.
    asked_for: Option<u64>,
    others: bool,
}

impl Backend {
    /// # Errors
    /// Why the settings are refused.
    pub(super) fn new(settings: &Settings, ops: &[Op], step_rows: Option<usize>) -> Result<Self, String> {
        Ok(Self {
            spec: operator(settings, is_real(ops))?,
            settings: settings.clone(),
            // Many stores are opened here, and none of them has to outlive the machine.
            directory: tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap(),
            clock: Arc::new(ManualClock::at(0)),
            now_ms: 0,
            store: None,
            step_rows,
            processes: 0,
            asked_for: None,
            others: false,
        })
    }

    /// Goes on firing, in a new process after each step.
    fn fire_on(&mut self, seen: &mut Seen) -> Result<(), String> {
        while self.store().is_firing() {
            words(self.store().checkpoint(Barrier::default()))?;
            self.others = true;
            self.store = None;
            self.store = Some(self.builder(None)?);
            words(self.store().fire_some(seen))?;
        }
        Ok(())
    }

    fn builder(&mut self, at: Option<u64>) -> Result<WindowStore, String> {
        self.processes += 1;
        let idle = self.settings.idle_timeout_ms.map(|millis| Duration::from_millis(millis as u64));
        let builder = WindowStore::builder("case").window(self.spec.clone()).idle_timeout(idle);
        let builder = builder.delay(span(self.settings.delay_ms)?).memory_bytes(MEMORY_BYTES);
        let builder = builder.workers(1 + self.processes % 8);
        let bounds = self.settings.bounds;
        let builder = builder.bounds(Bounds {
            min: bounds.min_ms.map(EventTime::from_millis),
            max_ahead: bounds.max_ahead_ms.map(span).transpose()?,
            ..Bounds::default()
        });
        let builder = match self.settings.dedupe {
            true => builder.dedup(DedupSpec::new(&["id"], span(self.settings.delay_ms)?, 1)),
            false => builder,
        };
        let builder = match self.step_rows {
            Some(rows) => builder.firing_step_rows(rows).retain(NonZeroU32::MAX).restore_at(at),
            None => builder,
        };
        words(builder.clock(self.clock.clone()).open(self.directory.path().join("state")))
    }

    fn store(&mut self) -> &mut WindowStore {
        self.store.as_mut().expect("a process runs between two operations")
    }
}

impl Face for Backend {
    fn open(&mut self, _: &[Reader]) -> Result<(), String> {
        if std::mem::take(&mut self.others) && self.asked_for.is_none() {
            // Only what was asked for is known outside.
            std::fs::remove_dir_all(self.directory.path().join("state")).unwrap();
        }
        self.store = Some(self.builder(self.asked_for)?);
        Ok(())
    }

    fn die(&mut self) {
        self.store = None;
    }

    /// The store has to know where the reader of the partition stopped.
    fn add_partition(&mut self, partition: usize, reader: Reader) -> Result<(), String> {
        let (id, position) = words(self.store().partition(&format!("p{partition}"), INPUT))?;
        if (id, position.records) != (PartitionId(partition as u32), reader.records) {
            return Err(format!("position: expected {reader:?}, found {id:?} {position:?}"));
        }
        Ok(())
    }

    fn process(&mut self, batch: &EventBatch, seen: &mut Seen) -> Result<(), String> {
        if self.step_rows.is_none() {
            return words(self.store().process(batch, seen));
        }
        let mut next = 0;
        while next < batch.len() {
            next = words(self.store().process_some(batch, next, seen))?;
            self.fire_on(seen)?;
        }
        Ok(())
    }

    fn tick(&mut self, now_ms: i64, backlog: &BTreeMap<usize, u64>, seen: &mut Seen) -> Result<(), String> {
        let span = now_ms.saturating_sub(self.now_ms).max(0);
        self.clock.advance(Duration::from_millis(span as u64));
        self.now_ms += span;
        let unread = |partition: PartitionId| backlog.get(&(partition.0 as usize)).is_some_and(|n| *n > 0);
        words(self.store().tick(unread, seen))?;
        self.fire_on(seen)
    }

    fn finish_partition(&mut self, partition: usize, seen: &mut Seen) -> Result<(), String> {
        words(self.store().finish_partition(PartitionId(partition as u32), seen))?;
        self.fire_on(seen)
    }

    fn end_of_input(&mut self, seen: &mut Seen) -> Result<(), String> {
        words(self.store().end_of_input(seen))?;
        self.fire_on(seen)
    }

    fn end_batch(&mut self, seen: &mut Seen) -> Result<(), String> {
        words(self.store().end_batch(seen))
    }

    fn checkpoint(&mut self, readers: &[Reader]) -> Result<(), String> {
        let read_to = readers.iter().enumerate().map(|(partition, reader)| ReadTo {
            partition: PartitionId(partition as u32),
            position: Position { bytes: 0, records: reader.records },
            finished: reader.finished,
        });
        let barrier = Barrier { read_to: read_to.collect(), ..Barrier::default() };
        self.asked_for = Some(words(self.store().checkpoint(barrier))?.epoch);
        self.others = false;
        Ok(())
    }

    /// What leaves memory is the store's own matter.
    fn spill(&mut self, _: Step) -> Result<(), String> {
        Ok(())
    }

    fn watermark(&self) -> Watermark {
        self.store.as_ref().expect("a process runs between two operations").watermark()
    }

    fn batch_watermark(&self) -> Watermark {
        self.store.as_ref().expect("a process runs between two operations").batch_watermark()
    }

    fn state(&mut self) -> Result<Option<Vec<Row>>, String> {
        Ok(None)
    }
}

fn words<T>(result: Result<T, Error>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}
