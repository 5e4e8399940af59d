//! One run: a stream through a window store with durable state, and what that held meanwhile. Time is that of arrival;
//! nothing waits for a clock.

use std::path::Path;
use std::time::Duration;

use floodmark::checkpoint::{Position, SourceIdentity};
use floodmark::clock::Clock;
use floodmark::error::{Error, ErrorKind};
use floodmark::event::{EventBatch, Number};
use floodmark::event_time::{EventTime, Span};
use floodmark::operator::{Emit, LateEvent, OperatorSpec, PartitionId, Rejection, ResultBlock};
use floodmark::store::{Barrier, ReadTo, WindowStore};
use serde::Serialize;

use super::super::workload;
use super::shape::Kind;
use super::stream::{Stream, StreamSpec};

/// Arrival time between two looks at the panes; also the length of a batch. The first comes after half of it, so that
/// looks lie evenly around the instants at which windows close.
const LOOK_MS: u64 = 20_000;
/// Arrival time between two checkpoints: no multiple of a window, so that they meet windows of every age.
pub(super) const CHECKPOINT_MS: u64 = 53 * 60_000;
/// The longest wait for compactions, of which an hour of real time would leave none behind.
const SETTLE: Duration = Duration::from_millis(250);
const SETTLE_LOOK: Duration = Duration::from_millis(1);
/// Values of events are below this.
const VALUES: u64 = 100;

/// What to run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup<'a> {
    pub(super) kind: Kind,
    pub(super) delay_ms: u64,
    pub(super) stream: StreamSpec,
    /// Arrival time after which the state is steady and counts.
    pub(super) warm_up_ms: u64,
    pub(super) memory_bytes: usize,
    /// A directory of this run alone.
    pub(super) dir: &'a Path,
}

/// What a run showed in its steady state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Measured {
    /// Events that arrived.
    pub(super) events: u64,
    /// Those of them that were late.
    pub(super) late: u64,
    pub(super) late_share: f64,
    pub(super) results: u64,
    pub(super) open_panes_mean: f64,
    pub(super) open_panes_peak: u64,
    /// Memory that panes take.
    pub(super) memory_bytes_mean: f64,
    pub(super) memory_bytes_peak: u64,
    /// Files of the live state database, after each checkpoint.
    pub(super) disk_bytes_mean: f64,
    pub(super) disk_bytes_peak: u64,
    /// Files of a checkpoint, whole.
    pub(super) checkpoint_bytes_mean: f64,
    pub(super) checkpoints: u64,
    pub(super) seconds: f64,
}

/// The state right after a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Sample {
    /// Arrival time since the start.
    pub(super) at_ms: u64,
    pub(super) open_panes: u64,
    pub(super) memory_bytes: u64,
    pub(super) disk_bytes: u64,
    pub(super) checkpoint_bytes: u64,
}

/// Counts what comes out.
#[derive(Debug, Default)]
struct Counted {
    results: u64,
    late: u64,
}

impl Emit for Counted {
    type Error = Error;

    fn results(&mut self, _operator: usize, block: &mut dyn ResultBlock) -> Result<(), Error> {
        while block.next_row().is_some() {
            self.results += 1;
        }
        Ok(())
    }

    fn late(&mut self, _operator: usize, _event: LateEvent<'_>) -> Result<(), Error> {
        self.late += 1;
        Ok(())
    }

    fn rejected(&mut self, _batch: &EventBatch, _index: usize, rejection: Rejection) -> Result<(), Error> {
        Err(Error::new(ErrorKind::Bug, format!("an event of the benchmark was rejected: {rejection:?}")))
    }
}

/// Mean and maximum of what is looked at again and again.
#[derive(Clone, Copy, Debug, Default)]
struct Gauge {
    sum: f64,
    looks: u64,
    peak: u64,
}

impl Gauge {
    fn look(&mut self, value: u64) {
        self.sum += value as f64;
        self.looks += 1;
        self.peak = self.peak.max(value);
    }

    fn mean(&self) -> f64 {
        self.sum / self.looks.max(1) as f64
    }
}

/// A run under way.
struct Run<'a> {
    setup: Setup<'a>,
    store: WindowStore,
    partition: PartitionId,
    read: u64,
    counted: Counted,
    // What had been counted when the state became steady.
    warm: Option<(u64, Counted)>,
    panes: Gauge,
    memory: Gauge,
    samples: Vec<Sample>,
}

/// Runs it, from nothing to the end of the stream.
///
/// # Errors
/// When the directory cannot be used, or the panes did not all stay in memory, where they are counted.
pub(super) fn measure(setup: Setup<'_>, clock: &dyn Clock) -> Result<(Measured, Vec<Sample>), Error> {
    let started = clock.monotonic();
    let mut run = Run::open(setup)?;
    let mut batch = run.batch();
    let (mut batch_end, mut checkpoint_at) = (LOOK_MS / 2, CHECKPOINT_MS);
    let mut value = 0;
    for event in Stream::new(setup.stream) {
        while event.arrival_ms >= batch_end {
            run.process(&mut batch, batch_end)?;
            if batch_end >= checkpoint_at {
                run.checkpoint(batch_end)?;
                checkpoint_at += CHECKPOINT_MS;
            }
            batch_end += LOOK_MS;
        }
        let key = format!("key-{:07}", event.key);
        value = (value + 37) % VALUES;
        let values = [Some(Number::Int(value as i64))];
        batch.push_event(EventTime::from_millis(event.time_ms), &[key.as_bytes()], &values);
    }
    run.process(&mut batch, batch_end)?;
    run.checkpoint(batch_end)?;
    let seconds = clock.monotonic().saturating_sub(started).as_secs_f64();
    Ok(run.finish(seconds))
}

impl<'a> Run<'a> {
    fn open(setup: Setup<'a>) -> Result<Self, Error> {
        let windows = setup.kind.windows().map_err(|error| {
            Error::new(ErrorKind::Bug, "a window of the benchmark cannot be").with_source(error)
        })?;
        let delay = i64::try_from(setup.delay_ms).ok().and_then(Span::from_millis).unwrap_or(Span::MAX);
        let mut store = WindowStore::builder("state-size")
            .window(OperatorSpec::new(setup.kind.name(), windows, &["key"], workload::aggregates()))
            .delay(delay)
            .memory_bytes(setup.memory_bytes)
            .retain(std::num::NonZeroU32::MIN)
            .open(setup.dir)?;
        let (partition, _) = store.partition("stream", SourceIdentity::default())?;
        Ok(Self {
            setup,
            store,
            partition,
            read: 0,
            counted: Counted::default(),
            warm: None,
            panes: Gauge::default(),
            memory: Gauge::default(),
            samples: Vec::new(),
        })
    }

    fn batch(&self) -> EventBatch {
        workload::batch(self.partition)
    }

    fn is_warm(&self, at_ms: u64) -> bool {
        at_ms > self.setup.warm_up_ms
    }

    /// Processes what arrived before `until_ms`, and looks at the state.
    fn process(&mut self, batch: &mut EventBatch, until_ms: u64) -> Result<(), Error> {
        if self.warm.is_none() && self.is_warm(until_ms) {
            self.warm = Some((self.read, std::mem::take(&mut self.counted)));
        }
        self.store.process(batch, &mut self.counted)?;
        self.read += batch.len() as u64;
        *batch = self.batch();
        if self.is_warm(until_ms) {
            self.panes.look(self.store.resident_panes() as u64);
            self.memory.look(self.store.hot_bytes() as u64);
        }
        Ok(())
    }

    fn checkpoint(&mut self, at_ms: u64) -> Result<(), Error> {
        if let Some(spilled) = self.store.open_windows(0).find(|open| !open.complete) {
            let message =
                format!("not all panes fit into memory, where they are counted: window={}", spilled.window);
            return Err(Error::new(ErrorKind::Invalid, message)
                .with_remedy("give more with --memory, or fewer --events or --keys"));
        }
        let position = Position { records: self.read, bytes: 0 };
        let read_to = vec![ReadTo { partition: self.partition, position, finished: false }];
        let report = self.store.checkpoint(Barrier { read_to, ..Barrier::default() })?;
        self.samples.push(Sample {
            at_ms,
            open_panes: self.store.resident_panes() as u64,
            memory_bytes: self.store.hot_bytes() as u64,
            disk_bytes: self.settled_bytes()?,
            checkpoint_bytes: report.new_bytes + report.shared_bytes,
        });
        Ok(())
    }

    /// Bytes of the live files once compactions have caught up, as they would have by the clock that events go by.
    fn settled_bytes(&self) -> Result<u64, Error> {
        let mut waited = Duration::ZERO;
        loop {
            let stats = self.store.state_stats()?;
            let settled = stats.compactions_running == 0 && stats.compaction_pending_bytes == 0;
            if settled || waited >= SETTLE {
                return Ok(stats.live_file_bytes);
            }
            std::thread::sleep(SETTLE_LOOK);
            waited += SETTLE_LOOK;
        }
    }

    fn finish(self, seconds: f64) -> (Measured, Vec<Sample>) {
        let (read_before, _) = self.warm.unwrap_or_default();
        let events = self.read - read_before;
        let (mut disk, mut checkpoint) = (Gauge::default(), Gauge::default());
        for sample in self.samples.iter().filter(|sample| sample.at_ms > self.setup.warm_up_ms) {
            disk.look(sample.disk_bytes);
            checkpoint.look(sample.checkpoint_bytes);
        }
        let measured = Measured {
            events,
            late: self.counted.late,
            late_share: self.counted.late as f64 / events.max(1) as f64,
            results: self.counted.results,
            open_panes_mean: self.panes.mean(),
            open_panes_peak: self.panes.peak,
            memory_bytes_mean: self.memory.mean(),
            memory_bytes_peak: self.memory.peak,
            disk_bytes_mean: disk.mean(),
            disk_bytes_peak: disk.peak,
            checkpoint_bytes_mean: checkpoint.mean(),
            checkpoints: self.samples.len() as u64,
            seconds,
        };
        (measured, self.samples)
    }
}
