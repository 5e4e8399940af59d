//! A case through the public store: batches, checkpoints, and processes that die.

use std::sync::Arc;
use std::time::Duration;

use floodmark::checkpoint::{Position, SourceIdentity};
use floodmark::clock::ManualClock;
use floodmark::operator::{EventBatch, KeyColumn, OperatorSpec, PartitionId, ValueColumn};
use floodmark::store::{Barrier, ReadTo, WindowStore};
use tempfile::TempDir;

use super::seen::{Seen, of_moment};
use super::spec::{operator, span};
use crate::cases::Engine;
use crate::oracle::{Event, Num, Observed, Op, Profile, Settings};

const MEMORY_BYTES: usize = 16 << 20;
const INPUT: SourceIdentity = SourceIdentity { head_bytes: 4, head_crc32: 7 };

/// How a history is given to the store. None of it may show in the results.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// Events in each batch, again and again; without any, one event each.
    pub(crate) batches: Vec<usize>,
    /// What happens after an operation, again and again: a checkpoint, the death of the process.
    pub(crate) after: Vec<(bool, bool)>,
}

/// One partition as its reader knows it.
#[derive(Clone, Copy, Default)]
struct Reader {
    records: u64,
    finished: bool,
}

/// What a checkpoint made durable.
#[derive(Clone, Default)]
struct Durable {
    seen: [usize; 3],
    readers: Vec<Reader>,
}

/// A store in a directory of its own, and its input.
pub(crate) struct StoreEngine {
    settings: Settings,
    spec: OperatorSpec,
    float: bool,
    plan: Plan,
    directory: TempDir,
    clock: Arc<ManualClock>,
    now_ms: i64,
    store: Option<WindowStore>,
    readers: Vec<Reader>,
    waiting: EventBatch,
    batches_made: usize,
    seen: Seen,
    durable: Durable,
    // Operations since the last checkpoint.
    journal: Vec<(usize, Op)>,
    watermarks: Vec<Option<i64>>,
}

impl StoreEngine {
    /// # Errors
    /// Why the store refuses the settings.
    pub(crate) fn new(settings: &Settings, ops: &[Op], plan: Plan) -> Result<Self, String> {
        let is_float = |op: &Op| matches!(op, Op::Event(Event { value: Some(Num::Float(_)), .. }));
        let float = ops.iter().any(is_float);
        let mut engine = Self {
            spec: operator(settings, float)?,
            settings: settings.clone(),
            float,
            plan,
            directory: tempfile::tempdir().unwrap(),
            clock: Arc::new(ManualClock::at(0)),
            now_ms: 0,
            store: None,
            readers: vec![Reader::default(); settings.partitions],
            waiting: EventBatch::default(),
            batches_made: 0,
            seen: Seen::new(settings.profile),
            durable: Durable { seen: [0; 3], readers: vec![Reader::default(); settings.partitions] },
            journal: Vec::new(),
            watermarks: Vec::new(),
        };
        engine.open()?;
        Ok(engine)
    }

    fn open(&mut self) -> Result<(), String> {
        let idle = self.settings.idle_timeout_ms.map(|millis| Duration::from_millis(millis as u64));
        let builder = WindowStore::builder("case").window(self.spec.clone()).idle_timeout(idle);
        let builder = builder.delay(span(self.settings.delay_ms)?).memory_bytes(MEMORY_BYTES);
        let store = builder.clock(self.clock.clone()).open(self.directory.path().join("state"));
        self.store = Some(store.map_err(|error| error.to_string())?);
        self.readers.clone_from(&self.durable.readers);
        (0..self.readers.len()).try_for_each(|partition| self.add_partition(partition))
    }

    fn store(&mut self) -> &mut WindowStore {
        self.store.as_mut().expect("a store is open between two operations")
    }

    /// The store has to know where the reader of the partition stopped.
    fn add_partition(&mut self, partition: usize) -> Result<(), String> {
        let (id, position) = words(self.store().partition(&format!("p{partition}"), INPUT))?;
        assert_eq!(id, PartitionId(partition as u32));
        let expected = self.readers[partition].records;
        if position.records != expected {
            return Err(format!("position: expected {expected}, found {}", position.records));
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), String> {
        let batch = std::mem::take(&mut self.waiting);
        if batch.is_empty() {
            return Ok(());
        }
        self.batches_made += 1;
        let store = self.store.as_mut().expect("a store is open between two operations");
        words(store.process(&batch, &mut self.seen))
    }

    fn event(&mut self, at: usize, event: &Event) -> Result<(), String> {
        self.readers[event.partition].records += 1;
        // A source sets these aside before they become events.
        let (ts, key) = match (event.ts, &event.key) {
            (None, _) => return self.set_aside(at, "null_timestamp"),
            (_, None) => return self.set_aside(at, "null_key"),
            (Some(ts), Some(key)) => (ts, key),
        };
        let partition = PartitionId(event.partition as u32);
        if self.waiting.partition != partition {
            self.flush()?;
        }
        if self.waiting.is_empty() {
            let values = vec![if self.float { ValueColumn::float() } else { ValueColumn::int() }];
            let keys = vec![KeyColumn::default()];
            self.waiting = EventBatch { partition, keys, values, ..EventBatch::default() };
        }
        self.waiting.times.push(ts);
        self.waiting.keys[0].push(key);
        self.waiting.records.push(at as u64);
        let values = &mut self.waiting.values[0];
        match event.value {
            None => values.push_null(),
            Some(Num::Int(int)) => values.push_int(i64::try_from(int).unwrap()),
            Some(Num::Float(float)) => assert!(values.push_float(float)),
        }
        let batches = &self.plan.batches;
        let length = if batches.is_empty() { 1 } else { batches[self.batches_made % batches.len()] };
        if self.waiting.len() >= length { self.flush() } else { Ok(()) }
    }

    fn set_aside(&mut self, at: usize, reason: &'static str) -> Result<(), String> {
        self.seen.rejected.push((at, reason));
        Ok(())
    }

    /// Applies an operation that is not about the process.
    fn advance(&mut self, at: usize, op: &Op) -> Result<(), String> {
        if !matches!(op, Op::Event(_)) {
            self.flush()?;
        }
        self.seen.at = at;
        let store = self.store.as_mut().expect("a store is open between two operations");
        match op {
            Op::Event(event) => self.event(at, event),
            Op::Tick { now_ms, backlog } => {
                let span = now_ms.saturating_sub(self.now_ms).max(0);
                self.clock.advance(Duration::from_millis(span as u64));
                self.now_ms += span;
                let unread =
                    |partition: PartitionId| backlog.get(&(partition.0 as usize)).is_some_and(|n| *n > 0);
                words(store.tick(unread, &mut self.seen))
            }
            Op::EndOfInput => words(store.end_of_input(&mut self.seen)),
            Op::EndOfPartition(partition) => {
                self.readers[*partition].finished = true;
                words(store.finish_partition(PartitionId(*partition as u32), &mut self.seen))?;
                // The end of all partitions is the end of the input; whoever reads them knows.
                match self.readers.iter().all(|reader| reader.finished) {
                    true => words(self.store.as_mut().unwrap().end_of_input(&mut self.seen)),
                    false => Ok(()),
                }
            }
            Op::PartitionAdded(partition) => {
                self.readers.push(Reader::default());
                self.add_partition(*partition)
            }
            Op::BatchEnd => self.end_batch(),
            Op::Checkpoint | Op::Kill | Op::ForceCompaction => Ok(()),
        }
    }

    fn end_batch(&mut self) -> Result<(), String> {
        match self.settings.profile {
            Profile::Record => Ok(()),
            Profile::Batch => Err("not known yet".to_owned()),
        }
    }

    fn checkpoint(&mut self) -> Result<(), String> {
        self.flush()?;
        let read_to = self.readers.iter().enumerate().map(|(partition, reader)| ReadTo {
            partition: PartitionId(partition as u32),
            position: Position { bytes: 0, records: reader.records },
            finished: reader.finished,
        });
        let barrier = Barrier { read_to: read_to.collect(), ..Barrier::default() };
        words(self.store().checkpoint(barrier))?;
        self.durable = Durable { seen: self.seen.lengths(), readers: self.readers.clone() };
        self.journal.clear();
        Ok(())
    }

    /// The process dies with everything that no checkpoint holds, and the input is read again.
    fn kill(&mut self) -> Result<(), String> {
        self.store = None;
        self.waiting = EventBatch::default();
        self.seen.truncate(self.durable.seen);
        self.open()?;
        for (at, op) in self.journal.clone() {
            self.advance(at, &op)?;
        }
        Ok(())
    }
}

impl Engine for StoreEngine {
    fn apply(&mut self, at: usize, op: &Op) -> Result<(), String> {
        self.journal.push((at, op.clone()));
        let after = &self.plan.after;
        let (checkpoint, kill) = if after.is_empty() { (false, false) } else { after[at % after.len()] };
        self.advance(at, op)?;
        if checkpoint || *op == Op::Checkpoint {
            self.checkpoint()?;
        }
        if kill || *op == Op::Kill {
            self.kill()?;
        }
        // Between batches, the store has not seen all events yet.
        if self.plan.batches.is_empty() {
            let watermark = self.store().watermark();
            self.watermarks.push(of_moment(self.settings.profile, watermark));
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Observed, String> {
        self.flush()?;
        let watermark = self.store().watermark();
        let final_watermark = of_moment(self.settings.profile, watermark);
        let Seen { emits, late, mut rejected, .. } = self.seen;
        rejected.sort_unstable();
        Ok(Observed { emits, late, rejected, state: None, final_watermark, watermarks: self.watermarks })
    }
}

fn words<T>(result: Result<T, floodmark::error::Error>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}
