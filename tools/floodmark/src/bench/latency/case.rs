//! One case: a paced stream through a window store with durable state and an exactly-once output, and how long its
//! results took.
//!
//! The time of a result begins when the event that closes its window was due, not when it was taken in, so that waiting
//! in a queue counts. It ends twice: when the row has been fired and staged, which is when a program that embeds the
//! store, or standard output, has it; and when readers of the output directory see it, after the next checkpoint.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use floodmark::checkpoint::{Position, SourceIdentity};
use floodmark::clock::Clock;
use floodmark::error::{Error, ErrorKind};
use floodmark::event::{EventBatch, PartitionId};
use floodmark::event_time::{Span, Tumbling, Watermark, Window};
use floodmark::operator::{Emit, LateEvent, OperatorSpec, Rejection, ResultBlock, ResultRow, RowKind};
use floodmark::pipeline::sink::{
    ColumnType, Delivery, Format, KeyField, KeyKind, Opened, Publish, Restored, ResultSink, ResultSpec, Sink,
    SinkContext, StagedOutput, TimeFormat,
};
use floodmark::store::{AfterPublish, Barrier, ReadTo, WindowStore};

use super::super::workload;
use super::latencies::Latencies;
use super::stream::{self, Closing, DELAY_MS, Lap, Pace, Paced, Schedule, WINDOW_MS};

/// Batches that may wait for the store. The generator stands still behind them, its schedule does not.
const WAITING_MAX: usize = 64;
/// Time from the start of the threads to the first event.
const LEAD: Duration = Duration::from_millis(50);

/// What to run.
pub(super) struct Setup<'a> {
    pub(super) lap: Lap,
    pub(super) pace: Pace,
    /// Time before results count, and for how long they do.
    pub(super) warm_up: Duration,
    pub(super) length: Duration,
    /// Time between two checkpoints; without one there are none, and nothing is published.
    pub(super) interval: Option<Duration>,
    pub(super) memory_bytes: usize,
    /// A directory of this case alone.
    pub(super) dir: &'a Path,
}

/// What it showed.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) events_per_second: f64,
    /// How far behind its schedule the run was at its end.
    pub(super) behind: Duration,
    pub(super) checkpoints: u64,
    pub(super) pause_max: Duration,
    /// Until fired, while no checkpoint was being made.
    pub(super) fired: Latencies,
    /// The same while one was.
    pub(super) fired_beside: Latencies,
    /// Until published.
    pub(super) published: Latencies,
}

/// Runs it from nothing. `tell` is called now and then with the time since the start.
///
/// # Errors
/// When the directory cannot be used.
pub(super) fn run(
    setup: Setup<'_>,
    clock: &Arc<dyn Clock>,
    tell: &mut dyn FnMut(Duration),
) -> Result<Outcome, Error> {
    let mut case = Case::open(&setup, clock)?;
    let (paced, due) = sync_channel(WAITING_MAX);
    let (spent, empty) = sync_channel(WAITING_MAX * 2);
    let schedule =
        Schedule { start: clock.monotonic() + LEAD, length: setup.warm_up + setup.length, pace: setup.pace };
    let lap = setup.lap;
    std::thread::scope(|scope| {
        let sending = std::thread::Builder::new().name("floodmark-bench-stream".to_owned());
        let sent = sending.spawn_scoped(scope, move || {
            stream::send(lap, schedule, clock.as_ref(), &paced, &empty);
        });
        sent.map_err(|error| Error::new(ErrorKind::Unavailable, "cannot start a thread").with_source(error))?;
        case.take_all(schedule.start, due, spent, tell)
    })?;
    case.finish(schedule)
}

/// Rows that wait for the checkpoint that publishes them.
#[derive(Clone, Copy, Debug)]
struct Staged {
    due: Duration,
    rows: u64,
}

struct Case<'a> {
    clock: &'a Arc<dyn Clock>,
    store: WindowStore,
    partition: PartitionId,
    results: Results<'a>,
    publisher: Arc<Mutex<Box<dyn Publish>>>,
    published: Arc<Mutex<Latencies>>,
    interval: Option<Duration>,
    warm_at: Duration,
    events: u64,
    last_due: Duration,
    last_checkpoint: Duration,
    checkpoints: u64,
    pause_max: Duration,
}

impl<'a> Case<'a> {
    fn open(setup: &Setup<'_>, clock: &'a Arc<dyn Clock>) -> Result<Self, Error> {
        let span = |millis| Span::from_millis(millis).unwrap_or_default();
        let window = Tumbling::new(span(WINDOW_MS), 0).map_err(|error| {
            Error::new(ErrorKind::Bug, "a window of the benchmark cannot be").with_source(error)
        })?;
        let mut store = WindowStore::builder("latency")
            .window(OperatorSpec::new("minute", window, &["key"], workload::aggregates()))
            .delay(span(DELAY_MS))
            .memory_bytes(setup.memory_bytes)
            .clock(Arc::clone(clock))
            .open(setup.dir.join("state"))?;
        let (partition, _) = store.partition("stream", SourceIdentity::default())?;
        let directory = store.directory();
        let context = SinkContext { lineage: directory.lineage().0, generation: directory.generation() };
        let Opened { sink, publisher, .. } =
            ResultSink::open(output(&setup.dir.join("out")), context, Restored::NOTHING)?;
        let results = Results {
            clock,
            sink,
            closings: BTreeMap::new(),
            counting: false,
            beside: false,
            staged: Vec::new(),
            fired: Latencies::default(),
            fired_beside: Latencies::default(),
        };
        Ok(Self {
            clock,
            store,
            partition,
            results,
            publisher: Arc::new(Mutex::new(publisher)),
            published: Arc::new(Mutex::new(Latencies::default())),
            interval: setup.interval,
            warm_at: setup.warm_up,
            events: 0,
            last_due: Duration::ZERO,
            last_checkpoint: clock.monotonic(),
            checkpoints: 0,
            pause_max: Duration::ZERO,
        })
    }

    /// Ends with the stream. Both channels are dropped with it, also after an error: the other side waits for one of them.
    fn take_all(
        &mut self,
        start: Duration,
        due: Receiver<Paced>,
        spent: SyncSender<EventBatch>,
        tell: &mut dyn FnMut(Duration),
    ) -> Result<(), Error> {
        for mut paced in due {
            let elapsed = self.clock.monotonic().saturating_sub(start);
            tell(elapsed);
            // Without checkpoints there is no beginning of an interval to wait for.
            self.results.counting |= self.interval.is_none() && elapsed >= self.warm_at;
            paced.batch.partition = self.partition;
            self.take(&paced)?;
            if self.interval.is_some_and(|interval| self.clock.monotonic() - self.last_checkpoint >= interval)
                && !self.store.checkpoint_in_flight()
            {
                self.begin_checkpoint()?;
                self.results.counting |= elapsed >= self.warm_at;
            }
            // The generator may have ended, and needs it no more.
            let _ = spent.try_send(paced.batch);
        }
        Ok(())
    }

    fn take(&mut self, paced: &Paced) -> Result<(), Error> {
        self.collect_report(false)?;
        self.results.beside = self.store.checkpoint_in_flight();
        self.results.expect(&paced.closings);
        self.store.process(&paced.batch, &mut self.results)?;
        self.events += paced.batch.len() as u64;
        self.last_due = paced.due;
        Ok(())
    }

    fn collect_report(&mut self, wait: bool) -> Result<(), Error> {
        if let Some(report) = self.store.checkpoint_report(wait)? {
            self.pause_max = self.pause_max.max(report.pause);
            self.checkpoints += 1;
        }
        Ok(())
    }

    fn begin_checkpoint(&mut self) -> Result<(), Error> {
        self.last_checkpoint = self.clock.monotonic();
        let staged: Vec<StagedOutput> =
            self.results.sink.stage(self.store.next_epoch())?.into_iter().collect();
        let position = Position { records: self.events, bytes: 0 };
        let read_to = vec![ReadTo { partition: self.partition, position, finished: false }];
        let after_publish = Some(self.publication(staged.clone()));
        self.store.begin_checkpoint(Barrier { read_to, staged, after_publish, ..Barrier::default() })?;
        // What lets go of the input until here is the stage as well, so the pause includes it.
        self.pause_max = self.pause_max.max(self.clock.monotonic() - self.last_checkpoint);
        Ok(())
    }

    /// What the checkpoint does once it is durable: it publishes the rows, and notes how long they took.
    fn publication(&mut self, staged: Vec<StagedOutput>) -> AfterPublish {
        let rows = std::mem::take(&mut self.results.staged);
        let (publisher, published) = (Arc::clone(&self.publisher), Arc::clone(&self.published));
        let clock = Arc::clone(self.clock);
        Box::new(move |permit| {
            for handle in &staged {
                if let Delivery::Later(reason) = lock(&publisher).publish(handle, permit)? {
                    return Err(reason);
                }
            }
            let now = clock.monotonic();
            let mut published = lock(&published);
            rows.iter().for_each(|rows| published.note(now.saturating_sub(rows.due), rows.rows));
            Ok(())
        })
    }

    fn finish(mut self, schedule: Schedule) -> Result<Outcome, Error> {
        let ended = self.clock.monotonic();
        if self.store.checkpoint_in_flight() {
            self.collect_report(true)?;
        }
        let published = std::mem::take(&mut *lock(&self.published));
        Ok(Outcome {
            events_per_second: self.events as f64 / ended.saturating_sub(schedule.start).as_secs_f64(),
            behind: ended.saturating_sub(self.last_due),
            checkpoints: self.checkpoints,
            pause_max: self.pause_max,
            fired: self.results.fired,
            fired_beside: self.results.fired_beside,
            published,
        })
    }
}

/// Every change under these locks is whole.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The output as a pipeline file would have it.
fn output(directory: &Path) -> ResultSpec {
    ResultSpec {
        name: "minute".to_owned(),
        directory: directory.to_owned(),
        format: Format::Jsonl,
        keys: vec![KeyField { name: "key".to_owned(), kind: KeyKind::Text }],
        aggregates: ["count", "sum", "min", "max"].map(str::to_owned).to_vec(),
        types: vec![ColumnType::Int; 4],
        times: TimeFormat::Rfc3339,
        metadata: false,
        row_kinds: false,
    }
}

/// Stages what comes out, and notes how long it took.
struct Results<'a> {
    clock: &'a Arc<dyn Clock>,
    sink: ResultSink,
    // When the event that closes a window was due, by the window's end; windows that fired are gone.
    closings: BTreeMap<i64, Duration>,
    // Set once the run is warm.
    counting: bool,
    // True while a checkpoint is being made.
    beside: bool,
    staged: Vec<Staged>,
    fired: Latencies,
    fired_beside: Latencies,
}

impl Results<'_> {
    fn expect(&mut self, closings: &[Closing]) {
        self.closings.extend(closings.iter().map(|closing| (closing.end.as_millis(), closing.due)));
    }
}

impl Emit for Results<'_> {
    type Error = Error;

    fn results(&mut self, _operator: usize, block: &mut dyn ResultBlock) -> Result<(), Error> {
        let end = block.window().end.as_millis();
        let mut counted = Counted { block, rows: 0 };
        self.sink.write(&mut counted)?;
        let rows = counted.rows;
        let Some(&due) = self.closings.get(&end) else {
            let message = format!("a window fired that no event had closed: end={end}");
            return Err(Error::new(ErrorKind::Bug, message));
        };
        self.closings = self.closings.split_off(&end);
        if self.counting {
            let latencies = if self.beside { &mut self.fired_beside } else { &mut self.fired };
            latencies.note(self.clock.monotonic().saturating_sub(due), rows);
            self.staged.push(Staged { due, rows });
        }
        Ok(())
    }

    fn late(&mut self, _operator: usize, _event: LateEvent<'_>) -> Result<(), Error> {
        Err(Error::new(ErrorKind::Bug, "an event of the benchmark was late"))
    }

    fn rejected(&mut self, _batch: &EventBatch, _index: usize, rejection: Rejection) -> Result<(), Error> {
        Err(Error::new(ErrorKind::Bug, format!("an event of the benchmark was rejected: {rejection:?}")))
    }
}

/// A block whose rows are counted on their way.
struct Counted<'a> {
    block: &'a mut dyn ResultBlock,
    rows: u64,
}

impl ResultBlock for Counted<'_> {
    fn window(&self) -> Window {
        self.block.window()
    }

    fn watermark(&self) -> Watermark {
        self.block.watermark()
    }

    fn takes_back(&self) -> Option<RowKind> {
        self.block.takes_back()
    }

    fn next_row(&mut self) -> Option<ResultRow<'_>> {
        let row = self.block.next_row();
        self.rows += u64::from(row.is_some());
        row
    }
}
