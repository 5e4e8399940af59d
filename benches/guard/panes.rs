//! The operator alone: events into panes, panes into results.

use std::time::Duration;

use floodmark::error::Error;
use floodmark::event::EventBatch;
use floodmark::event_time::Span;
use floodmark::operator::{Marks, WatermarkTracker, WindowOperator};

use crate::count::Count;
use crate::events::batches;
use crate::measure::{Outcome, Sample, floodmark_measured};
use crate::nowhere::Nowhere;
use crate::spec::{aggregated, tumbling};

/// Longer than any of the streams, so that nothing fires by itself.
const DAY: i64 = 86_400_000;
const DELAY: i64 = 5_000;

struct Panes {
    operator: WindowOperator,
    tracker: WatermarkTracker,
    marks: Marks,
    seen: Count,
}

impl Panes {
    fn new() -> Outcome<Self> {
        let mut tracker = WatermarkTracker::new(Span::from_millis(DELAY).unwrap_or(Span::ZERO), None);
        tracker.add_partition(Duration::ZERO);
        let operator = WindowOperator::new(0, aggregated(tumbling(DAY)?));
        Ok(Self { operator, tracker, marks: Marks::default(), seen: Count::default() })
    }

    fn take(&mut self, batches: &[EventBatch]) -> Result<(), Error> {
        for batch in batches {
            self.marks.observe(&mut self.tracker, std::slice::from_ref(&self.operator), batch);
            self.operator.process(batch, &self.marks, &mut Nowhere, &mut self.seen)?;
        }
        Ok(())
    }
}

fn process(size: u64, keys: u64) -> Outcome<Sample> {
    let (batches, mut panes) = (batches(size, keys), Panes::new()?);
    let (took, done) = floodmark_measured(|| panes.take(&batches));
    done?;
    Ok(Sample { took, count: size })
}

/// Nearly every event makes a pane.
pub(crate) fn new_panes(size: u64) -> Outcome<Sample> {
    process(size, size * 4)
}

/// Nearly every event finds its pane.
pub(crate) fn known_panes(size: u64) -> Outcome<Sample> {
    process(size, 10_000)
}

/// The panes of a window in key order, with their results.
pub(crate) fn fire(size: u64) -> Outcome<Sample> {
    let (batches, mut panes) = (batches(size, size * 4), Panes::new()?);
    panes.take(&batches)?;
    let end = panes.tracker.end();
    let (took, done) = floodmark_measured(|| panes.operator.advance(end, &mut Nowhere, &mut panes.seen));
    done?;
    if panes.seen.results == 0 {
        return Err("nothing fired".into());
    }
    Ok(Sample { took, count: panes.seen.results })
}
