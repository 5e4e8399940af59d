//! Operations of a case made into batches, checkpoints and deaths of a process, for either way into the engine.

use std::collections::BTreeMap;

use floodmark::event_time::Watermark;
use floodmark::operator::{EventBatch, KeyColumn, PartitionId, ValueColumn};

use super::seen::{Lengths, Seen, of_moment};
use crate::oracle::{Event, Num, Observed, Op, Profile, Row, Settings};

/// How a history is given to the engine. None of it may show in the results.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// Events in each batch, again and again; without any, one event each.
    pub(crate) batches: Vec<usize>,
    /// What happens after each operation, again and again.
    pub(crate) after: Vec<Step>,
    /// Rows of a long firing before it pauses, with a checkpoint and a restart; never without. Only for the store.
    pub(crate) step_rows: Option<usize>,
}

/// Something that happens to the engine and not to its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Nothing,
    /// Changed panes are written out and stay in memory. Only for an operator, like the next two.
    SpillDirty,
    /// The largest table moves out of memory.
    SpillLargest,
    /// All tables move out of memory.
    SpillAll,
    Checkpoint,
    /// The process dies and goes on from the last checkpoint.
    Kill,
    CheckpointAndKill,
}

impl Step {
    pub(crate) fn kills(self) -> bool {
        matches!(self, Self::Kill | Self::CheckpointAndKill)
    }
}

/// How far a partition was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reader {
    pub(crate) records: u64,
    pub(crate) finished: bool,
}

/// A way into the engine.
pub(super) trait Backend {
    /// Starts, or starts again from the last checkpoint.
    fn open(&mut self, readers: &[Reader]) -> Result<(), String>;
    /// Everything that no checkpoint holds is gone.
    fn die(&mut self);
    fn add_partition(&mut self, partition: usize, reader: Reader) -> Result<(), String>;
    fn process(&mut self, batch: &EventBatch, seen: &mut Seen) -> Result<(), String>;
    fn tick(&mut self, now_ms: i64, backlog: &BTreeMap<usize, u64>, seen: &mut Seen) -> Result<(), String>;
    fn finish_partition(&mut self, partition: usize, seen: &mut Seen) -> Result<(), String>;
    fn end_of_input(&mut self, seen: &mut Seen) -> Result<(), String>;
    fn end_batch(&mut self, seen: &mut Seen) -> Result<(), String>;
    fn checkpoint(&mut self, readers: &[Reader]) -> Result<(), String>;
    fn spill(&mut self, step: Step) -> Result<(), String>;
    fn watermark(&self) -> Watermark;
    /// The watermark that the batch profile speaks of.
    fn batch_watermark(&self) -> Watermark;
    /// The rows left, where they can be seen.
    fn state(&mut self) -> Result<Option<Vec<Row>>, String>;
}

/// True when the values of a history are real numbers.
pub(super) fn is_real(ops: &[Op]) -> bool {
    ops.iter().any(|op| matches!(op, Op::Event(Event { value: Some(Num::Float(_)), .. })))
}

/// Runs `ops` through `backend`.
///
/// # Errors
/// What went wrong, in words.
pub(super) fn run(
    backend: Box<dyn Backend>,
    settings: &Settings,
    ops: &[Op],
    plan: &Plan,
) -> Result<Observed, String> {
    let readers = vec![Reader::default(); settings.partitions];
    let mut run = Run {
        backend,
        profile: settings.profile,
        real: is_real(ops),
        ids: settings.dedupe,
        retractions: settings.retractions,
        plan,
        waiting: EventBatch::default(),
        batches_made: 0,
        seen: Seen::new(settings.profile),
        durable: (Lengths::default(), readers.clone()),
        readers,
        journal: Vec::new(),
        owed: false,
    };
    run.open()?;
    let mut watermarks = Vec::new();
    for (at, op) in ops.iter().enumerate() {
        run.apply(at, op)?;
        // Between batches the engine has not seen all events yet.
        if plan.batches.is_empty() && settings.profile == Profile::Record {
            watermarks.push(of_moment(settings.profile, run.backend.watermark()));
        }
    }
    run.finish(watermarks)
}

struct Run<'a> {
    backend: Box<dyn Backend>,
    profile: Profile,
    real: bool,
    // A second key column holds the ids.
    ids: bool,
    retractions: bool,
    plan: &'a Plan,
    waiting: EventBatch,
    batches_made: usize,
    seen: Seen,
    readers: Vec<Reader>,
    // What the last checkpoint holds, and what came after it.
    durable: (Lengths, Vec<Reader>),
    journal: Vec<(usize, &'a Op)>,
    // A checkpoint that waits for the end of the batch.
    owed: bool,
}

impl<'a> Run<'a> {
    fn open(&mut self) -> Result<(), String> {
        self.readers.clone_from(&self.durable.1);
        self.backend.open(&self.readers)?;
        for (partition, reader) in self.readers.iter().enumerate() {
            self.backend.add_partition(partition, *reader)?;
        }
        Ok(())
    }

    fn apply(&mut self, at: usize, op: &'a Op) -> Result<(), String> {
        self.journal.push((at, op));
        self.advance(at, op)?;
        let after = &self.plan.after;
        let planned = if after.is_empty() { Step::Nothing } else { after[at % after.len()] };
        let asked = match op {
            Op::Checkpoint => Step::Checkpoint,
            Op::Kill => Step::Kill,
            _ => Step::Nothing,
        };
        self.step(asked)?;
        self.step(planned)?;
        match std::mem::take(&mut self.owed) {
            true if *op == Op::BatchEnd => self.checkpoint(),
            owed => {
                self.owed = owed;
                Ok(())
            }
        }
    }

    fn step(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Nothing => Ok(()),
            // Where batches count, checkpoints are made between them.
            Step::Checkpoint if self.profile == Profile::Batch => {
                self.owed = true;
                Ok(())
            }
            Step::Checkpoint => self.checkpoint(),
            Step::Kill => self.kill(),
            Step::CheckpointAndKill => self.step(Step::Checkpoint).and_then(|()| self.kill()),
            Step::SpillDirty | Step::SpillLargest | Step::SpillAll => {
                self.flush()?;
                self.backend.spill(step)
            }
        }
    }

    /// Applies an operation that is not about the process.
    fn advance(&mut self, at: usize, op: &Op) -> Result<(), String> {
        if !matches!(op, Op::Event(_)) {
            self.flush()?;
        }
        self.seen.at = at;
        match op {
            Op::Event(event) => self.event(at, event),
            Op::Tick { now_ms, backlog } => self.backend.tick(*now_ms, backlog, &mut self.seen),
            Op::EndOfInput => self.backend.end_of_input(&mut self.seen),
            Op::EndOfPartition(partition) => {
                self.readers[*partition].finished = true;
                self.backend.finish_partition(*partition, &mut self.seen)?;
                // The end of all partitions is the end of the input, as whoever reads them knows.
                let all = self.readers.iter().all(|reader| reader.finished);
                if all { self.backend.end_of_input(&mut self.seen) } else { Ok(()) }
            }
            Op::PartitionAdded(partition) => {
                self.readers.push(Reader::default());
                self.backend.add_partition(*partition, Reader::default())
            }
            Op::BatchEnd if self.profile == Profile::Batch => self.backend.end_batch(&mut self.seen),
            Op::BatchEnd | Op::Checkpoint | Op::Kill | Op::ForceCompaction => Ok(()),
        }
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
            let values = vec![if self.real { ValueColumn::float() } else { ValueColumn::int() }];
            let keys = vec![KeyColumn::default(); 1 + usize::from(self.ids)];
            self.waiting = EventBatch { partition, keys, values, ..EventBatch::default() };
        }
        self.waiting.times.push(ts);
        self.waiting.keys[0].push(key);
        if self.ids {
            // A record without id repeats none.
            let own = || format!("record {at}");
            self.waiting.keys[1].push(event.id.clone().unwrap_or_else(own).as_bytes());
        }
        self.waiting.records.push(at as u64);
        let values = &mut self.waiting.values[0];
        match event.value {
            None => values.push_null(),
            Some(Num::Int(int)) => values.push_int(i64::try_from(int).unwrap()),
            Some(Num::Float(real)) => assert!(values.push_float(real)),
        }
        let batches = &self.plan.batches;
        let length = if batches.is_empty() { 1 } else { batches[self.batches_made % batches.len()] };
        if self.waiting.len() >= length { self.flush() } else { Ok(()) }
    }

    fn set_aside(&mut self, at: usize, reason: &'static str) -> Result<(), String> {
        self.seen.rejected.push((at, reason));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), String> {
        let batch = std::mem::take(&mut self.waiting);
        if batch.is_empty() {
            return Ok(());
        }
        self.batches_made += 1;
        self.backend.process(&batch, &mut self.seen)
    }

    fn checkpoint(&mut self) -> Result<(), String> {
        self.flush()?;
        self.backend.checkpoint(&self.readers)?;
        self.durable = (self.seen.lengths(), self.readers.clone());
        self.journal.clear();
        Ok(())
    }

    /// The process dies with everything that no checkpoint holds, and the input is read again.
    fn kill(&mut self) -> Result<(), String> {
        self.backend.die();
        self.waiting = EventBatch::default();
        self.seen.truncate(self.durable.0);
        self.open()?;
        for (at, op) in self.journal.clone() {
            self.advance(at, op)?;
        }
        Ok(())
    }

    fn finish(mut self, watermarks: Vec<Option<i64>>) -> Result<Observed, String> {
        self.flush()?;
        let watermark = match (self.profile, self.backend.watermark()) {
            (Profile::Record, watermark) | (Profile::Batch, watermark @ Watermark::None) => watermark,
            (Profile::Batch, _) => self.backend.batch_watermark(),
        };
        let state = self.backend.state()?;
        let table = self.retractions.then(|| self.seen.table()).transpose()?;
        let Seen { emits, late, mut rejected, .. } = self.seen;
        rejected.sort_unstable();
        let final_watermark = of_moment(self.profile, watermark);
        Ok(Observed { emits, late, rejected, state, final_watermark, table, watermarks })
    }
}
