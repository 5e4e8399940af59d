//! What a store takes from Arrow record batches, with real checkpoints on a real disk, next to a hash map in memory over
//! the same batches: `cargo bench --bench columnar [-- EVENTS]`.
//!
//! S1 is one minute tumbling over 10,000 keys, S4 over a million; count, sum, min and max. All figures are of one run,
//! and what counts is their ratio. `read` is the way from a batch to columns alone, `process` what the store does with
//! columns that are there already, `store` both with checkpoints every second; `two threads` has them side by side, `2 workers` shares the store's work.

#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "a bench reads the clock and prints")]

#[path = "support/count.rs"]
mod count;
#[path = "support/median.rs"]
mod median;
#[path = "support/random.rs"]
mod random;
#[path = "support/spec.rs"]
mod spec;

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMillisecondType};
use arrow_array::{Int64Array, RecordBatch, StringArray, TimestampMillisecondArray};
use floodmark::aggregate::InputType;
use floodmark::checkpoint::SourceIdentity;
use floodmark::event::{EventBatch, PartitionId};
use floodmark::event_time::Span;
use floodmark::pipeline::config::TimeFormat;
use floodmark::pipeline::source::ParsePlan;
use floodmark::pipeline::source::columnar::ColumnarReader;
use floodmark::store::{Barrier, ReadTo, WindowStore};

use count::Count;
use median::median;
use random::Random;
use spec::{aggregated, tumbling};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const EVENTS: usize = 5_000_000;
const ROWS: usize = 8_192;
const ROUNDS: usize = 3;
/// Events of one second of event time.
const PER_SECOND: usize = 10_000;
const CHECKPOINTS: Duration = Duration::from_secs(1);

/// Rows a little out of order, keys spread evenly.
fn batches(events: usize, keys: u64) -> Outcome<Vec<RecordBatch>> {
    let mut random = Random::new();
    let mut batches = Vec::new();
    for first in (0..events).step_by(ROWS) {
        let rows = first..(first + ROWS).min(events);
        let time = |event: usize| 1_700_000_000_000 + (event * 1_000 / PER_SECOND) as i64;
        let times: Vec<i64> = rows.clone().map(|event| time(event) - random.below(2_000) as i64).collect();
        let names: Vec<String> = rows.clone().map(|_| format!("k{:06}", random.below(keys))).collect();
        let values: Vec<i64> = rows.map(|_| random.below(1_000) as i64).collect();
        batches.push(RecordBatch::try_from_iter([
            ("ts", Arc::new(TimestampMillisecondArray::from(times)) as _),
            ("key", Arc::new(StringArray::from(names)) as _),
            ("value", Arc::new(Int64Array::from(values)) as _),
        ])?);
    }
    Ok(batches)
}

fn reader(batches: &[RecordBatch]) -> Outcome<ColumnarReader> {
    let plan = ParsePlan::new("ts", TimeFormat::Column).key(&["key"]).value("value", InputType::Int);
    let schema = batches.first().ok_or("no batches")?.schema();
    Ok(ColumnarReader::new(plan, &schema)?)
}

fn store(directory: &std::path::Path, workers: usize) -> Outcome<(WindowStore, PartitionId)> {
    let mut store = WindowStore::builder("bench")
        .window(aggregated(tumbling(60_000)?))
        .delay(Span::from_millis(5_000).ok_or("negative")?)
        .workers(workers)
        .open(directory.join("state"))?;
    let (partition, _) = store.partition("batches", SourceIdentity::default())?;
    Ok((store, partition))
}

fn barrier(partition: PartitionId, records: u64, finished: bool) -> Barrier {
    let position = floodmark::checkpoint::Position { records, bytes: 0 };
    Barrier { read_to: vec![ReadTo { partition, position, finished }], ..Barrier::default() }
}

/// A store that is fed, with a checkpoint whenever one is due.
struct Fed {
    store: WindowStore,
    partition: PartitionId,
    seen: Count,
    records: u64,
    last: Instant,
    checkpoints: u64,
}

impl Fed {
    fn open(directory: &std::path::Path, workers: usize) -> Outcome<Self> {
        let (store, partition) = store(directory, workers)?;
        let (seen, last) = (Count::default(), Instant::now());
        Ok(Self { store, partition, seen, records: 0, last, checkpoints: 0 })
    }

    fn take(&mut self, batch: &EventBatch) -> Outcome<()> {
        self.store.process(batch, &mut self.seen)?;
        self.records += batch.len() as u64;
        if self.last.elapsed() >= CHECKPOINTS && !self.store.checkpoint_in_flight() {
            self.store.begin_checkpoint(barrier(self.partition, self.records, false))?;
            (self.last, self.checkpoints) = (Instant::now(), self.checkpoints + 1);
        }
        self.store.checkpoint_report(false)?;
        Ok(())
    }

    fn end(mut self) -> Outcome<(u64, u64)> {
        self.store.end_of_input(&mut self.seen)?;
        self.store.checkpoint(barrier(self.partition, self.records, true))?;
        Ok((self.seen.results, self.checkpoints + 1))
    }
}

/// Count, sum, min and max of each key.
type Panes = HashMap<Box<str>, (u64, i64, i64, i64)>;

fn by_map(batches: &[RecordBatch]) -> Outcome<u64> {
    let mut windows: HashMap<i64, Panes> = HashMap::new();
    for batch in batches {
        let times = batch.column(0).as_primitive::<TimestampMillisecondType>().values();
        let keys = batch.column(1).as_string::<i32>();
        let values = batch.column(2).as_primitive::<Int64Type>().values();
        for (row, time) in times.iter().enumerate() {
            let window = windows.entry(time.div_euclid(60_000)).or_default();
            let (key, value) = (keys.value(row), values[row]);
            match window.get_mut(key) {
                Some((count, sum, min, max)) => {
                    (*count, *sum) = (*count + 1, *sum + value);
                    (*min, *max) = ((*min).min(value), (*max).max(value));
                }
                None => {
                    window.insert(key.into(), (1, value, value, value));
                }
            }
        }
    }
    Ok(windows.values().map(|window| window.len() as u64).sum())
}

fn by_reader(batches: &[RecordBatch]) -> Outcome<u64> {
    let mut reader = reader(batches)?;
    let (mut batch, mut events) = (reader.batch(PartitionId(0)), 0);
    for rows in batches {
        batch.clear();
        reader.read(rows, events + 1, &mut batch, &mut Vec::new())?;
        events += batch.len() as u64;
    }
    Ok(events)
}

fn by_store(batches: &[RecordBatch], directory: &std::path::Path, workers: usize) -> Outcome<(u64, u64)> {
    let (mut fed, mut reader) = (Fed::open(directory, workers)?, reader(batches)?);
    let mut batch = reader.batch(fed.partition);
    for rows in batches {
        batch.clear();
        reader.read(rows, fed.records + 1, &mut batch, &mut Vec::new())?;
        fed.take(&batch)?;
    }
    fed.end()
}

fn by_process(events: &[EventBatch], directory: &std::path::Path, workers: usize) -> Outcome<(u64, u64)> {
    let mut fed = Fed::open(directory, workers)?;
    for batch in events {
        fed.take(batch)?;
    }
    fed.end()
}

fn by_two_threads(batches: &[RecordBatch], directory: &std::path::Path) -> Outcome<(u64, u64)> {
    let (mut fed, mut reader) = (Fed::open(directory, 1)?, reader(batches)?);
    let partition = fed.partition;
    let (sender, filled) = sync_channel(4);
    let (spent, empty) = sync_channel::<EventBatch>(8);
    std::thread::scope(|scope| {
        let reading = scope.spawn(move || -> Outcome<()> {
            let mut records = 0;
            for rows in batches {
                let mut batch = empty.try_recv().unwrap_or_else(|_| reader.batch(partition));
                batch.clear();
                reader.read(rows, records + 1, &mut batch, &mut Vec::new())?;
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

fn main() -> Outcome<()> {
    let given = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let events = given.map(|given| given.parse()).transpose()?.unwrap_or(EVENTS);
    println!(
        "{:32} {:>12} {:>10} {:>10} {:>8}",
        "from record batches", "events/s", "ns/event", "results", "of map"
    );
    for (name, keys) in [("S1, 10k keys", 10_000), ("S4, 1M keys", 1_000_000)] {
        let batches = batches(events, keys)?;
        let mut reader = reader(&batches)?;
        let columns = batches.iter().map(|rows| -> Outcome<EventBatch> {
            let mut batch = reader.batch(PartitionId(0));
            reader.read(rows, 1, &mut batch, &mut Vec::new())?;
            Ok(batch)
        });
        let columns = columns.collect::<Outcome<Vec<EventBatch>>>()?;
        let directory = || tempfile::tempdir();
        let map = median(ROUNDS, || by_map(&batches))?;
        let shapes = [
            ("hash map", map),
            ("read", median(ROUNDS, || by_reader(&batches))?),
            ("process", median(ROUNDS, || Ok(by_process(&columns, directory()?.path(), 1)?.0))?),
            ("process, 2 workers", median(ROUNDS, || Ok(by_process(&columns, directory()?.path(), 2)?.0))?),
            ("store", median(ROUNDS, || Ok(by_store(&batches, directory()?.path(), 1)?.0))?),
            ("store, 2 workers", median(ROUNDS, || Ok(by_store(&batches, directory()?.path(), 2)?.0))?),
            ("two threads", median(ROUNDS, || Ok(by_two_threads(&batches, directory()?.path())?.0))?),
        ];
        for (shape, (took, found)) in shapes {
            let nanos = took.as_nanos() as f64 / events as f64;
            let ratio = map.0.as_secs_f64() / took.as_secs_f64();
            println!(
                "{:32} {:>12.0} {nanos:>10.1} {found:>10} {ratio:>7.2}x",
                format!("{name}: {shape}"),
                1e9 / nanos
            );
        }
    }
    Ok(())
}
