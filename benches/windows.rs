//! What each kind of window costs per event, in the operator alone: no parsing, no disk, results only counted.
//!
//! Sliding windows share slices; next to them stands the same aggregation kept by window, which is what an operator
//! without slices does. All figures are of one run, and what counts is their ratio to tumbling windows.

#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "a bench reads the clock and prints")]

#[path = "support/count.rs"]
mod count;
#[path = "support/events.rs"]
mod events;
#[path = "support/median.rs"]
mod median;
#[path = "support/nowhere.rs"]
mod nowhere;
#[path = "support/random.rs"]
mod random;
#[path = "support/spec.rs"]
mod spec;

use std::time::Duration;

use floodmark::error::Error;
use floodmark::event::EventBatch;
use floodmark::event_time::{Sliding, Span, Windows};
use floodmark::operator::{Marks, OperatorSpec, Repeat, Trigger, WatermarkTracker, WindowOperator};

use count::Count;
use events::batches;
use median::median;
use nowhere::Nowhere;
use spec::{aggregated, tumbling};

const EVENTS: u64 = 4_000_000;
const ROUNDS: usize = 3;

fn span(millis: i64) -> Span {
    Span::from_millis(millis).unwrap_or(Span::ZERO)
}

/// The results of one run.
fn run(spec: &OperatorSpec, batches: &[EventBatch]) -> Result<u64, Error> {
    let mut operator = WindowOperator::new(0, spec.clone());
    let mut tracker = WatermarkTracker::new(span(5_000), None);
    tracker.add_partition(Duration::ZERO);
    let (mut marks, mut seen) = (Marks::default(), Count::default());
    for batch in batches {
        marks.observe(&mut tracker, std::slice::from_ref(&operator), batch);
        operator.process(batch, &marks, &mut Nowhere, &mut seen)?;
    }
    operator.advance(tracker.end(), &mut Nowhere, &mut seen)?;
    Ok(seen.results)
}

fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let tumbling = aggregated(tumbling(60_000)?);
    let sliding = aggregated(Sliding::new(span(600_000), span(60_000), 0)?.into());
    // A late firing of its own kind makes panes that may fire again, and these are kept by window.
    let mut by_window = sliding.clone();
    by_window.trigger = Trigger::Composite { early: Repeat::Never, late: Repeat::Each };
    let sessions = aggregated(Windows::session(span(30_000))?);
    let (few, many) = (batches(EVENTS, 10_000), batches(EVENTS, 50_000));
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
        let (took, results) = median(ROUNDS, || Ok(run(spec, batches)?))?;
        let nanos = took.as_nanos() as f64 / EVENTS as f64;
        let cost = nanos / *base.get_or_insert(nanos);
        let rate = 1e9 / nanos;
        println!("{name:36} {rate:>12.0} {nanos:>10.1} {results:>10} {cost:>7.2}x");
    }
    Ok(())
}
