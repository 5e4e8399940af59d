//! What each kind of window costs per event, in the operator alone: no parsing, no disk, results only counted.
//!
//! Sliding windows share slices; next to them stands the same aggregation kept by window, which is what an operator
//! without slices does. All figures are of one run, and what counts is their ratio to tumbling windows.

#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "a bench reads the clock and prints")]

use std::time::{Duration, Instant};

use floodmark::aggregate::{AggregateSpec, Function, InputType, RowMut};
use floodmark::event::{EventBatch, Number, PartitionId, ValueColumn};
use floodmark::event_time::{EventTime, Sliding, Span, Tumbling, Windows};
use floodmark::operator::{
    Emit, LateEvent, Marks, OperatorSpec, Panes, Rejection, Repeat, ResultBlock, RowBuffer, Trigger,
    WatermarkTracker, WindowOperator,
};

const EVENTS: u64 = 4_000_000;
const BATCH: u64 = 8_192;
const ROUNDS: usize = 3;
/// Events of one second of event time.
const PER_SECOND: u64 = 10_000;

/// Counts results.
#[derive(Default)]
struct Count {
    results: u64,
    late: u64,
}

impl Emit for Count {
    type Error = String;

    fn results(&mut self, _: usize, block: &mut dyn ResultBlock) -> Result<(), String> {
        while block.next_row().is_some() {
            self.results += 1;
        }
        Ok(())
    }

    fn late(&mut self, _: usize, _: LateEvent<'_>) -> Result<(), String> {
        self.late += 1;
        Ok(())
    }

    fn rejected(&mut self, _: &EventBatch, _: usize, rejection: Rejection) -> Result<(), String> {
        Err(format!("no event of this stream is to be rejected: {}", rejection.name()))
    }
}

/// Everything stays in memory here.
struct Nowhere;

impl Panes for Nowhere {
    type Error = String;

    fn load(&mut self, _: usize, _: EventTime, _: &[u8], _: RowMut<'_>) -> Result<bool, String> {
        Ok(false)
    }

    fn scan(
        &mut self,
        _: usize,
        _: EventTime,
        _: Option<&[u8]>,
        _: usize,
        _: &mut RowBuffer,
    ) -> Result<(), String> {
        Ok(())
    }

    fn put(&mut self, _: usize, _: EventTime, _: RowBuffer) -> Result<(), String> {
        Ok(())
    }
}

fn span(millis: i64) -> Span {
    Span::from_millis(millis).unwrap_or(Span::ZERO)
}

/// Events a little out of order, keys spread evenly.
fn batches(keys: u64) -> Vec<EventBatch> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut batches = Vec::new();
    for first in (0..EVENTS).step_by(BATCH as usize) {
        let mut batch = EventBatch::with_columns(PartitionId(0), 1, vec![ValueColumn::int()]);
        for event in first..(first + BATCH).min(EVENTS) {
            let disorder = (random() % 2_000) as i64;
            let time = 1_700_000_000_000 + (event * 1_000 / PER_SECOND) as i64 - disorder;
            let key = format!("k{:06}", random() % keys);
            let value = Number::Int((random() % 1_000) as i64);
            batch.push_event(EventTime::from_millis(time), &[key.as_bytes()], &[Some(value)]);
        }
        batches.push(batch);
    }
    batches
}

fn spec(windows: Windows) -> OperatorSpec {
    let over = |name: &str, function| AggregateSpec::over(name, function, "value", InputType::Int, 0);
    let aggregates = vec![
        AggregateSpec::count("count"),
        over("sum", Function::Sum),
        over("min", Function::Min),
        over("max", Function::Max),
    ];
    OperatorSpec::new("bench", windows, &["key"], aggregates)
}

fn run(spec: &OperatorSpec, batches: &[EventBatch]) -> Result<(Duration, Count), String> {
    let mut operator = WindowOperator::new(0, spec.clone());
    let mut tracker = WatermarkTracker::new(span(5_000), None);
    tracker.add_partition(Duration::ZERO);
    let (mut marks, mut seen) = (Marks::default(), Count::default());
    let started = Instant::now();
    for batch in batches {
        marks.observe(&mut tracker, std::slice::from_ref(&operator), batch);
        operator.process(batch, &marks, &mut Nowhere, &mut seen)?;
    }
    operator.advance(tracker.end(), &mut Nowhere, &mut seen)?;
    Ok((started.elapsed(), seen))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tumbling = spec(Tumbling::new(span(60_000), 0)?.into());
    let sliding = spec(Sliding::new(span(600_000), span(60_000), 0)?.into());
    // A late firing of its own kind makes panes that may fire again, and these are kept by window.
    let mut by_window = sliding.clone();
    by_window.trigger = Trigger::Composite { early: Repeat::Never, late: Repeat::Each };
    let sessions = spec(Windows::session(span(30_000))?);
    let (few, many) = (batches(10_000), batches(50_000));
    let shapes = [
        ("tumbling 1m, 10k keys", &tumbling, &few),
        ("sliding 10m/1m by slices, 10k keys", &sliding, &few),
        ("sliding 10m/1m by window, 10k keys", &by_window, &few),
        ("tumbling 1m, 50k keys", &tumbling, &many),
        ("session 30s, 50k keys", &sessions, &many),
    ];
    println!("{:36} {:>12} {:>10} {:>10} {:>8}", "windows", "events/s", "ns/event", "results", "cost");
    let mut base = None;
    for (name, spec, batches) in shapes {
        let mut runs = Vec::new();
        for _ in 0..ROUNDS {
            runs.push(run(spec, batches)?);
        }
        runs.sort_by_key(|(took, _)| *took);
        let (took, seen) = &runs[ROUNDS / 2];
        let nanos = took.as_nanos() as f64 / EVENTS as f64;
        let cost = nanos / *base.get_or_insert(nanos);
        let rate = 1e9 / nanos;
        println!("{name:36} {rate:>12.0} {nanos:>10.1} {:>10} {cost:>7.2}x", seen.results);
    }
    Ok(())
}
