//! One run of the pipeline: a store and its outputs in files, from its start to its death.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use floodmark::checkpoint::{Position, Published, SourceIdentity, StagedOutput};
use floodmark::clock::SystemClock;
use floodmark::error::{Error, ErrorKind};
use floodmark::operator::{
    DedupSpec, Emit, EventBatch, KeyColumn, LateEvent, PartitionId, Rejection, ResultBlock, ValueColumn,
};
use floodmark::pipeline::sink::{
    AheadPolicy, ColumnType, Format, KeyField, KeyKind, LateSink, Opened, Publish, RecordSpec, RecordText,
    Restored, ResultSink, ResultSpec, Sink, SinkContext, TimeFormat,
};
use floodmark::repository::{Repository, Settings as Mirroring};
use floodmark::store::{AfterPublish, Barrier, CheckpointReport, ReadTo, WindowStore};

use super::draw::Pipeline;
use crate::drivers::{operator, span};
use crate::oracle::{Event, Num, Op};

/// The least memory that a store takes.
const MEMORY_BYTES: usize = 16 << 20;
const INPUT: SourceIdentity = SourceIdentity { head_bytes: 4, head_crc32: 7 };

/// Where a run has its things, and what it is to start from.
#[derive(Clone, Debug)]
pub(super) struct Start {
    pub(super) name: &'static str,
    pub(super) state: PathBuf,
    pub(super) outputs: PathBuf,
    pub(super) repository: Option<Arc<dyn Repository>>,
    pub(super) at: Option<u64>,
    pub(super) set_aside: bool,
    /// The newest epoch that outputs may know.
    pub(super) epochs_above: u64,
    /// What partition names begin with.
    pub(super) prefix: &'static str,
}

/// Why a run does not start.
pub(super) enum NoStart {
    /// It was refused, or the machine was in the way.
    Refused(Error),
    /// It started, and from something wrong.
    Wrong(String),
}

impl From<Error> for NoStart {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

type Publishers = Arc<Mutex<Vec<Box<dyn Publish>>>>;

/// Handles of an epoch that its process did not come to publish.
pub(super) type Withheld = Arc<Mutex<Vec<(Vec<StagedOutput>, Published)>>>;

/// A running process.
pub(super) struct Task {
    pub(super) store: WindowStore,
    outputs: Outputs,
    publishers: Publishers,
    pub(super) withheld: Withheld,
    /// Operations of the input that are done.
    pub(super) at: usize,
    /// Its state directory is its own still: another machine has taken over, and only outputs and repository know.
    pub(super) elsewhere: bool,
    prefix: &'static str,
}

struct Outputs {
    sinks: Vec<ResultSink>,
    late: LateSink,
    names: Vec<String>,
}

impl Emit for Outputs {
    type Error = Error;

    fn results(&mut self, operator: usize, block: &mut dyn ResultBlock) -> Result<(), Error> {
        self.sinks[operator].write(block)
    }

    fn late(&mut self, operator: usize, event: LateEvent<'_>) -> Result<(), Error> {
        self.late.write(&self.names[operator], "input", None, &event)
    }

    fn rejected(&mut self, _: &EventBatch, index: usize, rejection: Rejection) -> Result<(), Error> {
        Err(Error::new(ErrorKind::Bug, format!("event {index} is rejected: {rejection}")))
    }
}

/// Partitions that there are after `done`.
pub(super) fn partitions_after(pipeline: &Pipeline, done: &[Op]) -> usize {
    let added = done.iter().filter(|op| matches!(op, Op::PartitionAdded(_))).count();
    pipeline.windows[0].partitions + added
}

fn records_after(done: &[Op], partition: usize) -> u64 {
    let of = |op: &&Op| matches!(op, Op::Event(event) if event.partition == partition);
    done.iter().filter(of).count() as u64
}

impl Task {
    /// Starts a run from what is there.
    pub(super) fn start(pipeline: &Pipeline, input: &[Op], start: &Start) -> Result<Self, NoStart> {
        let mut store = open_store(pipeline, start)?;
        let restored = store.restored().map(|restored| restored.manifest().clone());
        let staged = restored.as_ref().map(|manifest| manifest.staged.clone()).unwrap_or_default();
        let counter = |name: &str| restored.as_ref().map_or(0, |manifest| manifest.counters[name]);
        let from = Restored {
            staged: &staged,
            last_epoch: restored.as_ref().map_or(0, |manifest| manifest.epoch),
            newest_epoch: store.next_epoch() - 1,
            ahead: if start.set_aside { AheadPolicy::SetAside } else { AheadPolicy::Refuse },
        };
        let at = counter("at") as usize;
        let directory = store.directory();
        let context = SinkContext { lineage: directory.lineage().0, generation: directory.generation() };
        let names: Vec<String> = (0..pipeline.windows.len()).map(|index| format!("w{index}")).collect();
        let (mut sinks, mut publishers) = (Vec::new(), Vec::new());
        for name in &names {
            let Opened { sink, publisher, .. } =
                ResultSink::open(results(name, &start.outputs), context, from)?;
            sinks.push(sink);
            publishers.push(publisher);
        }
        let late = RecordSpec {
            name: "late".to_owned(),
            directory: start.outputs.join("late"),
            text: RecordText::Plain,
        };
        let Opened { sink: late, publisher, .. } = LateSink::open(late, context, from)?;
        publishers.push(publisher);
        for partition in 0..partitions_after(pipeline, &input[..at]) {
            let (id, position) = store.partition(&format!("{}{partition}", start.prefix), INPUT)?;
            let expected = records_after(&input[..at], partition);
            if (id.0 as usize, position.records) != (partition, expected) {
                let found = position.records;
                return Err(NoStart::Wrong(format!(
                    "partition {partition} is {id:?} and read to record {found}; expected {expected}"
                )));
            }
        }
        let outputs = Outputs { sinks, late, names };
        let publishers = Arc::new(Mutex::new(publishers));
        Ok(Self {
            store,
            outputs,
            publishers,
            withheld: Withheld::default(),
            at,
            elsewhere: false,
            prefix: start.prefix,
        })
    }

    /// Goes on by up to `most` events, or by one other operation.
    pub(super) fn advance(&mut self, input: &[Op], most: usize, in_steps: bool) -> Result<(), Error> {
        let Self { store, outputs, at, .. } = self;
        match &input[*at] {
            Op::Event(first) => {
                let of = |op: &&Op| matches!(op, Op::Event(event) if event.partition == first.partition);
                let events = input[*at..].iter().take(most).take_while(of).count();
                let batch = batch(&input[*at..*at + events], *at);
                if in_steps {
                    *at += store.process_some(&batch, 0, outputs)?;
                } else {
                    store.process(&batch, outputs)?;
                    *at += events;
                }
                return Ok(());
            }
            _ if store.is_firing() => return store.fire_some(outputs),
            Op::PartitionAdded(partition) => {
                store.partition(&format!("{}{partition}", self.prefix), INPUT)?;
            }
            Op::EndOfPartition(partition) => {
                store.finish_partition(PartitionId(*partition as u32), outputs)?;
                let ended = input[..=*at].iter().filter(|op| matches!(op, Op::EndOfPartition(_))).count();
                if ended == store.partitions().count() {
                    // What the last partition held back is one move of the watermark, the end of time another.
                    while store.is_firing() {
                        store.fire_some(outputs)?;
                    }
                    store.end_of_input(outputs)?;
                }
            }
            Op::EndOfInput => store.end_of_input(outputs)?,
            other => panic!("histories have no {other:?}"),
        }
        *at += 1;
        Ok(())
    }

    pub(super) fn fire(&mut self) -> Result<(), Error> {
        self.store.fire_some(&mut self.outputs)
    }

    /// Begins a checkpoint. With `withhold` its output is not published: the process hangs before that.
    pub(super) fn begin(&mut self, pipeline: &Pipeline, input: &[Op], withhold: bool) -> Result<u64, Error> {
        let epoch = self.store.next_epoch();
        let mut staged = Vec::new();
        for sink in &mut self.outputs.sinks {
            staged.extend(sink.stage(epoch)?);
        }
        staged.extend(self.outputs.late.stage(epoch)?);
        let done = &input[..self.at];
        let read_to = (0..partitions_after(pipeline, done)).map(|partition| ReadTo {
            partition: PartitionId(partition as u32),
            position: Position { bytes: 0, records: records_after(done, partition) },
            finished: done.contains(&Op::EndOfPartition(partition)),
        });
        let counters = BTreeMap::from([
            ("at".to_owned(), self.at as u64),
            ("firing".to_owned(), u64::from(self.store.is_firing())),
        ]);
        let barrier = Barrier {
            read_to: read_to.collect(),
            staged: staged.clone(),
            counters,
            after_publish: Some(self.publication(staged, withhold)),
        };
        self.store.begin_checkpoint(barrier)
    }

    fn publication(&self, staged: Vec<StagedOutput>, withhold: bool) -> AfterPublish {
        let (publishers, withheld) = (Arc::clone(&self.publishers), Arc::clone(&self.withheld));
        Box::new(move |permit| {
            if withhold {
                withheld.lock().unwrap().push((staged, permit.clone()));
                return Ok(());
            }
            publish(&publishers, &staged, permit)
        })
    }

    /// Publishes what was withheld, and says how many handles that were.
    pub(super) fn publish_withheld(&self) -> Result<usize, Error> {
        let withheld = std::mem::take(&mut *self.withheld.lock().unwrap());
        withheld.iter().try_for_each(|(staged, permit)| publish(&self.publishers, staged, permit))?;
        Ok(withheld.iter().map(|(staged, _)| staged.len()).sum())
    }

    pub(super) fn report(&mut self) -> Result<Option<CheckpointReport>, Error> {
        self.store.checkpoint_report(true)
    }

    pub(super) fn checkpoint(&mut self, pipeline: &Pipeline, input: &[Op]) -> Result<u64, Error> {
        self.report()?;
        let epoch = self.begin(pipeline, input, false)?;
        self.report()?;
        Ok(epoch)
    }
}

fn publish(publishers: &Publishers, staged: &[StagedOutput], permit: &Published) -> Result<(), Error> {
    let mut publishers = publishers.lock().unwrap();
    for handle in staged {
        let publisher = publishers.iter_mut().find(|publisher| publisher.sink() == handle.sink);
        publisher.expect("each handle is of one of the sinks").publish(handle, permit)?;
    }
    Ok(())
}

fn open_store(pipeline: &Pipeline, start: &Start) -> Result<WindowStore, Error> {
    let settings = &pipeline.windows[0];
    let delay = span(settings.delay_ms).unwrap();
    let workers = 1 + pipeline.step_rows.unwrap_or_default() % 3;
    let mut builder =
        WindowStore::builder(start.name).delay(delay).memory_bytes(MEMORY_BYTES).workers(workers);
    for (index, settings) in pipeline.windows.iter().enumerate() {
        let mut spec = operator(settings, false).unwrap();
        spec.name = format!("w{index}");
        builder = builder.window(spec);
    }
    if settings.dedupe {
        builder = builder.dedup(DedupSpec::new(&["id"], delay, 1));
    }
    if let Some(rows) = pipeline.step_rows {
        builder = builder.firing_step_rows(rows);
    }
    let mirroring = start.repository.clone().map(|repository| {
        let mut settings = Mirroring::new(repository).required(pipeline.mirrored == Some(true));
        settings.retry.first = Duration::from_micros(100);
        settings.retry.longest = Duration::from_millis(1);
        settings.patience = Duration::from_millis(200);
        settings
    });
    let builder = builder.retain(pipeline.keep).restore_at(start.at).repository(mirroring);
    builder.epochs_above(start.epochs_above).clock(SystemClock::shared()).open(&start.state)
}

fn results(name: &str, outputs: &Path) -> ResultSpec {
    let aggregates = ["count", "count_value", "sum", "min", "max"];
    ResultSpec {
        name: name.to_owned(),
        directory: outputs.join(name),
        format: Format::Jsonl,
        keys: vec![KeyField { name: "key".to_owned(), kind: KeyKind::Text }],
        aggregates: aggregates.map(str::to_owned).to_vec(),
        types: vec![ColumnType::Int; aggregates.len()],
        times: TimeFormat::EpochMillis,
        metadata: true,
        row_kinds: false,
    }
}

fn batch(ops: &[Op], first: usize) -> EventBatch {
    let mut batch = EventBatch::default();
    for (index, op) in ops.iter().enumerate() {
        let Op::Event(Event { ts: Some(ts), key: Some(key), value, partition, id }) = op else {
            panic!("events of histories are whole: {op:?}")
        };
        if index == 0 {
            batch.partition = PartitionId(*partition as u32);
            batch.keys = vec![KeyColumn::default(); 1 + usize::from(id.is_some())];
            batch.values = vec![ValueColumn::int()];
        }
        batch.times.push(*ts);
        batch.keys[0].push(key);
        if let Some(id) = id {
            batch.keys[1].push(id.as_bytes());
        }
        batch.records.push((first + index) as u64);
        match value {
            Some(Num::Int(int)) => batch.values[0].push_int(*int as i64),
            _ => batch.values[0].push_null(),
        }
    }
    batch
}
