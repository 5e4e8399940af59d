//! One delay tried on the events of the input: the pipeline's own watermark, deduplication and windows, in memory, with
//! nothing written. What it counts is what a run with that delay would count, by the same code.

use super::advice::Outcome;
use crate::error::{Error, Result};
use crate::event_time::{EventTime, Span, Watermark};
use crate::operator::{
    Advance, BatchWatermark, DedupOperator, Emit, EventBatch, LateEvent, Marks, Mode, OperatorSpec,
    PartitionId, Rejection, ResultBlock, SourceId, SourceSpec, Strategy, TimeDomain, WatermarkTracker,
    WindowOperator,
};
use crate::pipeline::assemble::{self, duration};
use crate::pipeline::config::PipelineConfig;
use crate::pipeline::explain::NoPanes;
use crate::pipeline::source::PartitionInfo;

/// Which delay the sources get that are in question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Delay {
    /// Each what it has.
    AsSet,
    /// This one.
    Of(Span),
}

/// A run that only counts.
pub(super) struct Rehearsal {
    delay: Delay,
    tracker: WatermarkTracker,
    // All of the pipeline, since each has a say in which times are in range.
    operators: Vec<WindowOperator>,
    // Of those that the advice is about.
    counts: Vec<Option<Count>>,
    dedups: Vec<DedupOperator>,
    marks: Marks,
    repeated: Vec<u32>,
    batch_watermark: BatchWatermark,
    // By how much an event lay behind the watermark at most.
    behind_max_ms: i64,
}

/// What is counted of one operator.
#[derive(Debug, Default)]
struct Count {
    events: u64,
    lost: u64,
    short: u64,
    // When the first pane there was is forgotten.
    settles_at: Option<EventTime>,
    all: Looks,
    settled: Looks,
}

/// Looks at the panes.
#[derive(Debug, Default)]
struct Looks {
    looks: u64,
    panes: u128,
    bytes: u128,
    panes_peak: u64,
    bytes_peak: u64,
}

impl Looks {
    fn add(&mut self, panes: u64, bytes: u64) {
        self.looks += 1;
        self.panes += u128::from(panes);
        self.bytes += u128::from(bytes);
        self.panes_peak = self.panes_peak.max(panes);
        self.bytes_peak = self.bytes_peak.max(bytes);
    }

    fn mean(&self, sum: u128) -> f64 {
        if self.looks == 0 { 0.0 } else { sum as f64 / self.looks as f64 }
    }
}

impl Rehearsal {
    /// A rehearsal with `delay` in the sources that `varied` names by index, of the windows that `advised` names so.
    pub(super) fn new(
        config: &PipelineConfig,
        (varied, advised): (&[bool], &[bool]),
        delay: Delay,
        partitions: &[PartitionInfo],
    ) -> Self {
        let sources: Vec<SourceSpec> = assemble::sources(config)
            .zip(varied)
            .map(|(source, &varied)| match delay {
                Delay::Of(delay) if varied => SourceSpec { strategy: Strategy::Bounded(delay), ..source },
                _ => source,
            })
            .collect();
        let dedups = sources.iter().enumerate().filter_map(|(at, source)| {
            Some(DedupOperator::new(SourceId(u16::try_from(at).ok()?), source.dedup.clone()?))
        });
        let dedups = dedups.collect();
        let mut tracker = WatermarkTracker::of(sources, config.watermark.policy)
            .advancing_when_idle(config.watermark.idle_advance.map(duration));
        for (index, info) in partitions.iter().enumerate() {
            let id = tracker.add_partition_of(info.resume.source, std::time::Duration::ZERO);
            if info.watermark.0 as usize != index {
                tracker.follow(id);
            }
        }
        let mut operators = assemble::window_operators(config, assemble::operators(config).1);
        let batch_watermark = BatchWatermark::new(Watermark::None);
        for operator in &mut operators {
            if operator.spec().advance == Advance::Batch {
                operator.restore(batch_watermark.next());
            }
        }
        Self {
            delay,
            tracker,
            operators,
            counts: advised.iter().map(|&advised| advised.then(Count::default)).collect(),
            dedups,
            marks: Marks::default(),
            repeated: Vec::new(),
            batch_watermark,
            behind_max_ms: 0,
        }
    }

    pub(super) const fn delay(&self) -> Delay {
        self.delay
    }

    /// By how much an event lay behind the watermark at most.
    pub(super) const fn behind_max_ms(&self) -> i64 {
        self.behind_max_ms
    }

    /// The events of the last piece that were not believed, by index, ascending.
    pub(super) fn rejected(&self) -> &[(u32, Rejection)] {
        self.marks.rejected()
    }

    /// Bytes of memory that its panes take.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.operators.iter().map(|operator| operator.memory_bytes() as u64).sum()
    }

    /// Takes in some events, and looks at the panes after them.
    pub(super) fn take(&mut self, events: &EventBatch) -> Result<()> {
        self.tracker.touch(events.partition, std::time::Duration::ZERO);
        self.marks.observe(&mut self.tracker, &self.operators, events);
        self.note_behind(events);
        self.repeated.clear();
        for dedup in &mut self.dedups {
            dedup.find(events, &self.marks, &mut self.repeated);
            dedup.advance(self.marks.last());
        }
        self.marks.skip(&self.repeated);
        for (operator, count) in self.operators.iter_mut().zip(&mut self.counts) {
            let Some(count) = count else { continue };
            if operator.spec().reads(events.source) {
                count.arrivals(operator, events, &self.marks);
            }
            operator.process(events, &self.marks, &mut NoPanes, count)?;
            count.look(operator);
        }
        Ok(())
    }

    fn note_behind(&mut self, events: &EventBatch) {
        for (index, &time) in events.times.iter().enumerate() {
            if let Some(watermark) = self.marks.before(index).instant() {
                self.behind_max_ms = self.behind_max_ms.max(watermark.as_millis().saturating_sub(time));
            }
        }
    }

    /// No more comes under the watermark of this partition.
    pub(super) fn finish_partition(&mut self, partition: PartitionId) -> Result<()> {
        let watermark = self.tracker.finish(partition);
        for (operator, count) in self.operators.iter_mut().zip(&mut self.counts) {
            let spec = operator.spec();
            if let Some(count) = count
                && spec.time == TimeDomain::Event
                && spec.advance == Advance::Event
            {
                operator.advance(watermark, &mut NoPanes, count)?;
            }
        }
        Ok(())
    }

    /// A batch ends, where the watermark advances by batches.
    pub(super) fn end_batch(&mut self) -> Result<()> {
        let reached = self.batch_watermark.end_batch(self.tracker.current());
        for (operator, count) in self.operators.iter_mut().zip(&mut self.counts) {
            if let Some(count) = count
                && operator.spec().advance == Advance::Batch
            {
                operator.end_batch(reached, &mut NoPanes, count)?;
            }
        }
        Ok(())
    }

    /// True when one more batch, of nothing, would move the watermark of an operator.
    pub(super) fn batch_is_due(&self) -> bool {
        let next = self.batch_watermark.next();
        self.operators.iter().any(|operator| operator.watermark() < next)
    }

    /// What came of it in each window.
    pub(super) fn outcomes(&self) -> Vec<Outcome> {
        let counted = self.operators.iter().zip(&self.counts);
        counted.filter_map(|(operator, count)| Some(count.as_ref()?.outcome(operator))).collect()
    }
}

impl Count {
    /// Counts the events that an operator reads, and those that come too late for some of their windows.
    fn arrivals(&mut self, operator: &WindowOperator, events: &EventBatch, marks: &Marks) {
        let spec = operator.spec();
        let by_event = spec.advance == Advance::Event;
        let mut skipped = marks.skipped().iter().peekable();
        for (index, &time) in events.times.iter().enumerate() {
            if skipped.next_if(|&&at| at as usize == index).is_some() {
                continue;
            }
            let time = EventTime::from_millis(time);
            self.events += 1;
            if self.settles_at.is_none() {
                self.settles_at = forgotten_at(spec, time);
            }
            if spec.windows.overlap() && spec.mode != Mode::Complete {
                let before = if by_event { marks.before(index) } else { operator.watermark() };
                self.short += u64::from(is_short(spec, time, before));
            }
        }
    }

    fn look(&mut self, operator: &WindowOperator) {
        let (panes, bytes) = (operator.resident_panes() as u64, operator.memory_bytes() as u64);
        self.all.add(panes, bytes);
        if self.settles_at.is_some_and(|end| operator.watermark().closed(end)) {
            self.settled.add(panes, bytes);
        }
    }

    fn outcome(&self, operator: &WindowOperator) -> Outcome {
        let settled = self.settled.looks > 0;
        let mean_of = if settled { &self.settled } else { &self.all };
        Outcome {
            window: operator.spec().name.clone(),
            events: self.events,
            lost: self.lost,
            short: self.short,
            panes_mean: mean_of.mean(mean_of.panes),
            panes_peak: self.all.panes_peak,
            panes_end: operator.resident_panes() as u64,
            memory_bytes_mean: mean_of.mean(mean_of.bytes),
            memory_bytes_peak: self.all.bytes_peak,
            settled,
        }
    }
}

/// The watermark at which nothing needs an event at `time` any more, as far as its time alone says.
fn forgotten_at(spec: &OperatorSpec, time: EventTime) -> Option<EventTime> {
    let end = match spec.windows.session_gap() {
        Some(gap) => time.saturating_add(gap),
        None => spec.windows.last_holding(spec.windows.piece_of(time)?).end,
    };
    (end < EventTime::MAX).then(|| end.saturating_add(spec.allowed_lateness))
}

/// True when an event at `time` comes too late for some of its windows and not for all.
fn is_short(spec: &OperatorSpec, time: EventTime, before: Watermark) -> bool {
    let mut windows = spec.windows.windows_of(time);
    let is_expired = |end: EventTime| before.expired(end, spec.allowed_lateness);
    windows.next().is_some_and(|first| is_expired(first.end)) && !windows.all(|window| is_expired(window.end))
}

impl Emit for Count {
    type Error = Error;

    fn results(&mut self, _operator: usize, _block: &mut dyn ResultBlock) -> Result<()> {
        Ok(())
    }

    fn late(&mut self, _operator: usize, _event: LateEvent<'_>) -> Result<()> {
        self.lost += 1;
        Ok(())
    }

    fn rejected(&mut self, _batch: &EventBatch, _index: usize, _rejection: Rejection) -> Result<()> {
        // The marks say so already.
        Ok(())
    }
}
