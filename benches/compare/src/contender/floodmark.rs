//! Floodmark's store as a program embeds it: record batches in, results out, a checkpoint a second beside the work.

use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use arrow_array::RecordBatch;
use floodmark::aggregate::{AggregateSpec, Function, InputType, Value};
use floodmark::checkpoint::{Position, SourceIdentity};
use floodmark::error::{Error, ErrorKind};
use floodmark::event::{EventBatch, PartitionId};
use floodmark::event_time::{Span, Tumbling};
use floodmark::operator::{Emit, LateEvent, OperatorSpec, Rejection, ResultBlock};
use floodmark::pipeline::config::TimeFormat;
use floodmark::pipeline::source::ParsePlan;
use floodmark::pipeline::source::columnar::ColumnarReader;
use floodmark::store::{Barrier, ReadTo, WindowStore};

use super::{DURABLE_EVERY, MEMORY_BYTES, Run, now};
use crate::Outcome;
use crate::results::{Pane, Results};
use crate::stream::{DELAY_MS, Stream, WINDOW_MS};

/// Batches that wait between the two threads.
const AHEAD: usize = 4;

impl Emit for Results {
    type Error = Error;

    fn results(&mut self, _: usize, block: &mut dyn ResultBlock) -> Result<(), Error> {
        let window = block.window().start.as_millis();
        while let Some(row) = block.next_row() {
            let pane = pane(row.values).ok_or_else(|| bug("a result is not count, sum, min and max"))?;
            // The only component of a key is the key as it is.
            self.take(window, row.key, pane);
        }
        Ok(())
    }

    fn late(&mut self, _: usize, _: LateEvent<'_>) -> Result<(), Error> {
        Err(bug("no event of this stream is late"))
    }

    fn rejected(&mut self, _: &EventBatch, _: usize, rejection: Rejection) -> Result<(), Error> {
        Err(bug(&format!("no event of this stream is to be rejected: {}", rejection.name())))
    }
}

fn bug(message: &str) -> Error {
    Error::new(ErrorKind::Bug, message)
}

fn pane(values: &[Value]) -> Option<Pane> {
    let &[Value::Int(count), Value::Int(sum), Value::Int(min), Value::Int(max)] = values else { return None };
    let word = |value: i128| i64::try_from(value).ok();
    Some(Pane { count: u64::try_from(count).ok()?, sum: word(sum)?, min: word(min)?, max: word(max)? })
}

fn span(millis: i64) -> Outcome<Span> {
    Span::from_millis(millis).ok_or_else(|| "a span is not negative".into())
}

fn reader(stream: &Stream) -> Outcome<ColumnarReader> {
    let plan = ParsePlan::new("ts", TimeFormat::Column).key(&["key"]).value("value", InputType::Int);
    let schema = stream.batches.first().ok_or("the stream is empty")?.schema();
    Ok(ColumnarReader::new(plan, &schema)?)
}

/// A store that is fed, with a checkpoint whenever one is due.
struct Fed {
    store: WindowStore,
    partition: PartitionId,
    results: Results,
    records: u64,
    started: Instant,
    last: Instant,
    kept: u64,
}

impl Fed {
    fn open(dir: &Path) -> Outcome<Self> {
        let over = |name: &str, function| AggregateSpec::over(name, function, "value", InputType::Int, 0);
        let aggregates = vec![
            AggregateSpec::count("count"),
            over("sum", Function::Sum),
            over("min", Function::Min),
            over("max", Function::Max),
        ];
        let minute = Tumbling::new(span(WINDOW_MS)?, 0)?;
        let mut store = WindowStore::builder("compare")
            .window(OperatorSpec::new("minute", minute, &["key"], aggregates))
            .delay(span(DELAY_MS)?)
            .memory_bytes(MEMORY_BYTES)
            .open(dir.join("state"))?;
        let (partition, _) = store.partition("batches", SourceIdentity::default())?;
        let (results, started) = (Results::default(), now());
        Ok(Self { store, partition, results, records: 0, started, last: started, kept: 0 })
    }

    fn barrier(&self, finished: bool) -> Barrier {
        let position = Position { records: self.records, bytes: 0 };
        let read_to = vec![ReadTo { partition: self.partition, position, finished }];
        Barrier { read_to, ..Barrier::default() }
    }

    fn take(&mut self, batch: &EventBatch) -> Outcome<()> {
        self.store.process(batch, &mut self.results)?;
        self.records += batch.len() as u64;
        if self.last.elapsed() >= DURABLE_EVERY && !self.store.checkpoint_in_flight() {
            self.store.begin_checkpoint(self.barrier(false))?;
            (self.last, self.kept) = (now(), self.kept + 1);
        }
        self.store.checkpoint_report(false)?;
        Ok(())
    }

    fn end(mut self) -> Outcome<Run> {
        self.store.end_of_input(&mut self.results)?;
        self.store.checkpoint(self.barrier(true))?;
        Ok(Run { took: self.started.elapsed(), kept: self.kept + 1, results: self.results })
    }
}

/// Reads and processes by turns.
pub(super) fn one_thread(stream: &Stream, dir: &Path) -> Outcome<Run> {
    let (mut reader, mut fed) = (reader(stream)?, Fed::open(dir)?);
    let mut batch = reader.batch(fed.partition);
    for rows in &stream.batches {
        batch.clear();
        read(&mut reader, rows, fed.records, &mut batch)?;
        fed.take(&batch)?;
    }
    fed.end()
}

/// Reads on a thread of its own.
pub(super) fn two_threads(stream: &Stream, dir: &Path) -> Outcome<Run> {
    let (mut reader, mut fed) = (reader(stream)?, Fed::open(dir)?);
    let partition = fed.partition;
    let (sender, filled) = sync_channel(AHEAD);
    let (spent, empty) = sync_channel::<EventBatch>(2 * AHEAD);
    std::thread::scope(|scope| {
        let reading = scope.spawn(move || -> Outcome<()> {
            let mut records = 0;
            for rows in &stream.batches {
                let mut batch = empty.try_recv().unwrap_or_else(|_| reader.batch(partition));
                batch.clear();
                read(&mut reader, rows, records, &mut batch)?;
                records += batch.len() as u64;
                sender.send(batch)?;
            }
            Ok(())
        });
        for batch in filled {
            fed.take(&batch)?;
            // Its memory is used again, unless there is plenty.
            let _ = spent.try_send(batch);
        }
        reading.join().map_err(|_| "the reading thread panicked")??;
        fed.end()
    })
}

fn read(reader: &mut ColumnarReader, rows: &RecordBatch, before: u64, batch: &mut EventBatch) -> Outcome<()> {
    let mut rejected = Vec::new();
    reader.read(rows, before + 1, batch, &mut rejected)?;
    if rejected.is_empty() { Ok(()) } else { Err("rows of the stream were rejected".into()) }
}
