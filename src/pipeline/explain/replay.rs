//! Drives the parts of a run, event by event: the source cuts the same blocks, the watermark sees all events, the
//! operator only those that are to be explained.
//!
//! Leaving the other events out changes nothing for these: panes of different keys have nothing to do with each other
//! but the watermark, and a window is expired by the watermark alone.

use std::sync::Arc;

use super::ExplainOptions;
use super::effects::{Effects, Firings, NoPanes};
use super::frame::{End, EventFrame, Explanation, Head, RecordFrame, RejectedFrame, Waiting, What};
use super::head::head;
use super::place::place;
use super::record::{Input, Side, inputs_of, shown, sides_of, values_of};
use super::resumed::{restored, take_up};
use super::subject::{self, Subject};
use super::timeline::{Other, Timeline};
use super::waiting::standing;
use crate::checkpoint::{Manifest, look};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::event_time::{EventTime, Watermark};
use crate::inspect::Aggregates;
use crate::operator::{
    Advance, BatchWatermark, DedupOperator, EventBatch, Marks, Mode, OperatorSpec, PartitionId, SourceId,
    SourceSpec, Strategy, WatermarkTracker, WindowOperator,
};
use crate::pipeline::assemble::{self, duration};
use crate::pipeline::config::PipelineConfig;
use crate::pipeline::outputs::Counters;
use crate::pipeline::source::{Block, FileSource, ParsePlan, RejectReason};
use crate::pipeline::task::is_read_on;
use crate::pipeline::task::{refuse_own_files, resume as resume_positions};
use crate::store::{partitions_of, saved_watermarks};

/// A partition by its index in the source.
struct Reading {
    name: String,
    id: PartitionId,
}

/// How often the pipeline was started over its state, if more than once.
fn starts(config: &PipelineConfig) -> Option<u64> {
    // An explanation needs no state; what is wrong with it is for those to say who do.
    let local = look(&config.state.directory).ok().flatten()?;
    Some(local.generation).filter(|&starts| starts > 1)
}

/// A run that is only told.
pub(super) struct Replay<'a> {
    config: &'a PipelineConfig,
    head: Head,
    all: bool,
    clock: Arc<dyn Clock>,
    // All of the pipeline, since each has a say in which times are in range; `index` is the one that is explained.
    operators: Vec<WindowOperator>,
    index: usize,
    tracker: WatermarkTracker,
    dedups: Vec<DedupOperator>,
    marks: Marks,
    batch_watermark: BatchWatermark,
    batch_lines: u64,
    source: FileSource,
    readings: Vec<Reading>,
    // By index in the tracker.
    names: Vec<String>,
    follows: Vec<PartitionId>,
    inputs: Vec<Input>,
    // Of its results.
    columns: Vec<String>,
    subject: Subject,
    timeline: Timeline,
    single: EventBatch,
}

impl<'a> Replay<'a> {
    pub(super) fn open(
        config: &'a PipelineConfig,
        options: &ExplainOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let index = subject::choose_window(config, options.window.as_deref())?;
        let (plans, specs) = assemble::operators(config);
        let mut operators = assemble::window_operators(config, specs);
        let Some(spec) = operators.get(index).map(|operator| operator.spec().clone()) else {
            return Err(Error::new(ErrorKind::Bug, "a pipeline without a window was accepted"));
        };
        refuse_step(&spec)?;
        let mut subject = Subject::new(options, &spec)?;
        let sources: Vec<SourceSpec> = assemble::sources(config).collect();
        let dedups = dedups_of(&sources, options.from.is_some())?;
        let resumed = match options.from {
            None => None,
            Some(from) => Some(restored(config, from, &subject, &operators, index, &clock)?),
        };
        let manifest = resumed.as_ref().map(|resumed| resumed.manifest.clone());
        let mut tracker = WatermarkTracker::of(sources.clone(), config.watermark.policy)
            .advancing_when_idle(config.watermark.idle_advance.map(duration));
        if let Some(manifest) = &manifest {
            tracker.restore(saved_watermarks(manifest, &sources)?, clock.monotonic());
        }
        let mut timeline = Timeline::new(&spec, options.frames_max);
        let origin = resumed.as_ref().map(|resumed| resumed.origin.clone());
        match resumed {
            Some(resumed) => operators[index] = take_up(resumed, &mut subject, &mut timeline),
            None if spec.advance == Advance::Batch => {
                operators[index].restore(BatchWatermark::new(Watermark::None).next());
            }
            None => {}
        }
        let batch_lines =
            manifest.as_ref().map_or(0, |manifest| Counters::from_map(&manifest.counters).batch_lines);
        let saved = manifest.as_ref().map_or(Watermark::None, |manifest| manifest.batch_watermark);
        let inputs = inputs_of(&spec, &plans);
        let source = open_source(config, plans, manifest.as_ref(), batch_lines, &clock)?;
        let names = manifest.iter().flat_map(|manifest| &manifest.partitions);
        let names = names.map(|partition| partition.name.clone()).collect();
        let mut replay = Self {
            config,
            head: head(config, options, &spec, origin),
            all: options.all,
            clock,
            operators,
            index,
            tracker,
            dedups,
            marks: Marks::default(),
            batch_watermark: BatchWatermark::new(saved),
            batch_lines,
            source,
            readings: Vec::new(),
            names,
            follows: Vec::new(),
            inputs,
            columns: spec.aggregates.iter().map(|aggregate| aggregate.name.clone()).collect(),
            subject,
            timeline,
            single: EventBatch::default(),
        };
        replay.register();
        if options.from.is_none() && replay.readings.len() > 1 {
            replay.head.starts = starts(config);
        }
        Ok(replay)
    }

    /// Makes the partitions of the source known to the watermark.
    fn register(&mut self) {
        for (index, info) in self.source.partitions().iter().enumerate() {
            let (name, source) = (info.resume.name.clone(), info.resume.source);
            let id = match self.names.iter().position(|known| *known == name) {
                Some(known) => {
                    let id = PartitionId(u32::try_from(known).unwrap_or(u32::MAX));
                    self.tracker.assign(id, source);
                    id
                }
                None => {
                    self.names.push(name.clone());
                    self.tracker.add_partition_of(source, self.clock.monotonic())
                }
            };
            if info.watermark.0 as usize != index {
                self.tracker.follow(id);
                self.follows.push(id);
            }
            if is_read_on(&self.source, index) {
                self.tracker.touch(id, self.clock.monotonic());
            }
            self.readings.push(Reading { name, id });
        }
    }

    /// Reads the input to its end.
    pub(super) fn run(mut self) -> Result<Explanation> {
        self.go_on_firing()?;
        let mut recycled = None;
        while let Some(mut block) = self.source.next_block(recycled.take())? {
            self.process(&mut block)?;
            recycled = Some(block);
        }
        self.end_last_batches()?;
        self.timeline.unfold();
        let counts = self.timeline.counts;
        self.subject.check_met(self.spec(), counts.events + counts.other_events)?;
        self.finish()
    }

    /// A checkpoint may have been made while a long jump of the watermark was being fired.
    fn go_on_firing(&mut self) -> Result<()> {
        let task = self.tracker.current();
        if !self.by_batch() && self.operators[self.index].watermark() < task {
            let firings = self.advance(task)?;
            self.timeline.pass(task, firings);
        }
        Ok(())
    }

    fn spec(&self) -> &OperatorSpec {
        self.operators[self.index].spec()
    }

    fn by_batch(&self) -> bool {
        self.spec().advance == Advance::Batch
    }

    /// The watermark that windows have reached when the task has reached `task`.
    fn reached(&self, task: Watermark) -> Watermark {
        if self.by_batch() { self.operators[self.index].watermark() } else { task }
    }

    fn process(&mut self, block: &mut Block) -> Result<()> {
        let unknown = || Error::new(ErrorKind::Bug, "a block of an unknown partition");
        let reading = self.readings.get(block.partition.0 as usize).ok_or_else(unknown)?;
        let name = reading.name.clone();
        let leader = self.readings.get(block.batch.partition.0 as usize).ok_or_else(unknown)?;
        block.batch.partition = leader.id;
        if !block.batch.is_empty() {
            self.tracker.set_wall_clock(self.clock.wall_millis());
            self.tracker.touch(block.batch.partition, self.clock.monotonic());
        }
        let mut marks = std::mem::take(&mut self.marks);
        marks.observe(&mut self.tracker, &self.operators, &block.batch);
        let mut repeated = Vec::new();
        for dedup in &mut self.dedups {
            dedup.find(&block.batch, &marks, &mut repeated);
            dedup.advance(marks.last());
        }
        marks.skip(&repeated);
        self.prepare_single(&block.batch);
        let mut sides = sides_of(block).into_iter().peekable();
        let mut rejected = marks.rejected().iter().peekable();
        for index in 0..=block.batch.len() {
            let line = block.batch.records.get(index).copied();
            while let Some(side) = sides.next_if(|side| line.is_none_or(|line| side.line < line)) {
                self.record(&name, block.batch.source, side, marks.before(index));
            }
            let Some(line) = line else { break };
            match rejected.next_if(|(at, _)| *at as usize == index) {
                Some((_, rejection)) => {
                    let text = block.batch.text_of(index).unwrap_or_default();
                    let why = Some((RejectReason::from(*rejection), rejection.to_string()));
                    self.record(&name, block.batch.source, Side { line, text, why }, marks.before(index));
                }
                None if repeated.contains(&(index as u32)) => {
                    self.repeated_event(&name, line, &block.batch, index, &marks)?;
                }
                None => self.event(&name, line, &block.batch, index, &marks)?,
            }
        }
        self.marks = marks;
        if block.end_of_partition {
            let ended = block.end_of_watermark.and_then(|of| self.readings.get(of.0 as usize));
            self.end_of_partition(ended.map(|reading| reading.id), name)?;
        }
        if self.by_batch() {
            self.batch_lines += block.lines;
            if block.end_of_batch {
                self.end_batch()?;
            }
        }
        Ok(())
    }

    /// Gives the batch of one event the columns of a block.
    fn prepare_single(&mut self, batch: &EventBatch) {
        self.single = batch.empty_like();
    }

    /// A record that is no event.
    fn record(&mut self, partition: &str, source: SourceId, side: Side<'_>, task: Watermark) {
        let watermark = self.reached(task);
        let is_rejected = side.why.is_some();
        let counts = &mut self.timeline.counts;
        *(if is_rejected { &mut counts.rejected } else { &mut counts.filtered }) += 1;
        let concerns = self.spec().reads(source) && self.subject.is_named_in(&side.text);
        if concerns {
            self.subject.meet();
        }
        if !concerns && !self.all {
            let other = if is_rejected { Other::Rejected } else { Other::Filtered };
            return self.timeline.fold(other, watermark, watermark);
        }
        let record =
            RecordFrame { partition: partition.to_owned(), line: side.line, text: shown(&side.text) };
        let what = match side.why {
            Some((reason, detail)) => {
                What::Rejected(RejectedFrame { record, reason: reason.name().to_owned(), detail })
            }
            None => What::Filtered(record),
        };
        self.timeline.push(what, watermark, watermark);
    }

    /// An event that came before: no window sees it, but it moves the watermark.
    fn repeated_event(
        &mut self,
        partition: &str,
        line: u64,
        batch: &EventBatch,
        index: usize,
        marks: &Marks,
    ) -> Result<()> {
        let time = EventTime::from_millis(batch.times[index]);
        let spec = self.operators[self.index].spec();
        let key = spec.reads(batch.source).then(|| batch.keys[spec.key_column].get(index));
        let (before, after) = (self.reached(marks.before(index)), self.reached(marks.after(index)));
        let moved = marks.after(index) > marks.before(index);
        let concerns = key.is_some_and(|key| self.subject.concerns(&spec.windows, key, time));
        let firings = match moved && !self.by_batch() {
            true => self.advance(marks.after(index))?,
            false => Firings::default(),
        };
        self.timeline.counts.duplicates += 1;
        if self.all || concerns || !firings.is_empty() {
            let text = shown(&batch.text_of(index).unwrap_or_default());
            let record = RecordFrame { partition: partition.to_owned(), line, text };
            self.timeline.push(What::Duplicate(record), before, after);
        } else {
            self.timeline.fold(Other::Duplicate, before, after);
        }
        self.timeline.pass(after, firings);
        Ok(())
    }

    fn event(
        &mut self,
        partition: &str,
        line: u64,
        batch: &EventBatch,
        index: usize,
        marks: &Marks,
    ) -> Result<()> {
        let time = EventTime::from_millis(batch.times[index]);
        let spec = self.operators[self.index].spec();
        let key = spec.reads(batch.source).then(|| batch.keys[spec.key_column].get(index));
        let own = key.is_some_and(|key| self.subject.concerns(&spec.windows, key, time));
        let moved = (marks.before(index), marks.after(index));
        let frame = EventFrame {
            partition: String::new(),
            line,
            time,
            key: None,
            values: Aggregates::default(),
            other: !own,
            accepted: Vec::new(),
            late: Vec::new(),
            dropped: false,
            events_reach: self.by_batch().then_some(moved.1),
        };
        let complete = |frame: EventFrame, subject: &Subject, inputs: &[Input]| EventFrame {
            partition: partition.to_owned(),
            key: key.map(|key| subject.shown_key(key)),
            values: if key.is_some() { values_of(batch, index, inputs) } else { Aggregates::default() },
            ..frame
        };
        if own {
            let frame = complete(frame, &self.subject, &self.inputs);
            self.own_event(frame, batch, index, marks)
        } else {
            self.other_event(moved, |subject, inputs| complete(frame, subject, inputs))
        }
    }

    /// An event that goes through the operator.
    fn own_event(
        &mut self,
        mut frame: EventFrame,
        batch: &EventBatch,
        index: usize,
        marks: &Marks,
    ) -> Result<()> {
        let before = self.reached(marks.before(index));
        let placing = place(&self.operators[self.index], frame.time, before);
        self.single.clear();
        self.single.append_events(batch, index..index + 1);
        let mut effects = Effects::new(&self.subject, &self.columns, self.timeline.room());
        let operator = &mut self.operators[self.index];
        operator.process(&self.single, &marks.single(index), &mut NoPanes, &mut effects)?;
        let Effects { firings, late, .. } = effects;
        let after = self.reached(marks.after(index));
        let spec = self.operators[self.index].spec();
        frame.dropped = placing.accepted.is_empty() && !late.is_empty();
        debug_assert!(
            spec.advance == Advance::Batch || frame.dropped != late.is_empty(),
            "the operator drops what is said to be too late for all windows"
        );
        frame.accepted = placing.accepted.into_iter().filter(|to| self.subject.holds(to.window)).collect();
        // Between windows only the operator knows.
        frame.late = if placing.late.is_empty() { late } else { placing.late };
        frame
            .late
            .retain(|late| self.subject.holds(late.window) || spec.windows.piece_of(frame.time).is_none());
        let counts = &mut self.timeline.counts;
        counts.events += 1;
        counts.accepted += u64::from(!frame.accepted.is_empty());
        counts.dropped += u64::from(frame.dropped);
        for to in &frame.accepted {
            self.timeline.follow(to.window, &to.joined, before);
        }
        self.timeline.push(What::Event(frame), before, after);
        self.timeline.pass(after, firings);
        Ok(())
    }

    /// An event of which only the watermark counts. It is shown by itself when it changes something.
    fn other_event(
        &mut self,
        (before, after): (Watermark, Watermark),
        frame: impl FnOnce(&Subject, &[Input]) -> EventFrame,
    ) -> Result<()> {
        self.timeline.counts.other_events += 1;
        let reached_before = self.reached(before);
        let moved = after > before;
        let firings = if moved && !self.by_batch() { self.advance(after)? } else { Firings::default() };
        let reached = self.reached(after);
        if firings.is_empty() && !self.timeline.is_due(reached) && !(self.all && moved) {
            self.timeline.fold(Other::Event, reached_before, reached);
            return Ok(());
        }
        let frame = frame(&self.subject, &self.inputs);
        self.timeline.push(What::Event(frame), reached_before, reached);
        self.timeline.pass(reached, firings);
        Ok(())
    }

    /// Lets the operator reach `watermark`.
    fn advance(&mut self, watermark: Watermark) -> Result<Firings> {
        let mut effects = Effects::new(&self.subject, &self.columns, self.timeline.room());
        self.operators[self.index].advance(watermark, &mut NoPanes, &mut effects)?;
        Ok(effects.firings)
    }

    /// `ended` is what no longer holds the watermark back.
    fn end_of_partition(&mut self, ended: Option<PartitionId>, partition: String) -> Result<()> {
        let before = self.tracker.current();
        let after = ended.map_or(before, |id| self.tracker.finish(id));
        let reached_before = self.reached(before);
        let firings = if self.by_batch() { Firings::default() } else { self.advance(after)? };
        if after > before || self.all {
            self.timeline.push(What::PartitionEnd { partition }, reached_before, self.reached(after));
        }
        self.timeline.pass(self.reached(after), firings);
        Ok(())
    }

    fn end_batch(&mut self) -> Result<()> {
        self.batch_lines = 0;
        let events_reach = self.tracker.current();
        let reached = self.batch_watermark.end_batch(events_reach);
        let operator = &mut self.operators[self.index];
        let before = operator.watermark();
        let mut effects = Effects::new(&self.subject, &self.columns, self.timeline.room());
        operator.end_batch(reached, &mut NoPanes, &mut effects)?;
        let (firings, after) = (effects.firings, operator.watermark());
        if after > before || !firings.is_empty() || self.all {
            self.timeline.push(What::BatchEnd { events_reach }, before, after);
        }
        self.timeline.pass(after, firings);
        Ok(())
    }

    /// As a run does at the end of the input.
    fn end_last_batches(&mut self) -> Result<()> {
        if !self.by_batch() {
            return Ok(());
        }
        if self.batch_lines > 0 {
            self.end_batch()?;
        }
        let repeats = self.config.windows.iter().all(|window| window.mode == Mode::Complete);
        if !repeats && self.operators[self.index].watermark() < self.batch_watermark.next() {
            self.end_batch()?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Explanation> {
        let waiting = self.waiting();
        let task = self.tracker.current();
        let watermark = self.reached(task);
        let closed_by_end = self.config.watermark.close_at_end && task != Watermark::End;
        if closed_by_end {
            let end = self.tracker.end();
            let firings = self.advance(end)?;
            self.timeline.push(What::InputEnd, watermark, end);
            self.timeline.pass(end, firings);
        }
        let (subject, timeline) = (self.subject, self.timeline);
        let mut head = self.head;
        let keyless = head.key_fields.is_empty();
        head.key = subject.key.as_ref().filter(|_| !keyless).map(|key| subject.shown_key(key));
        head.key_chosen = subject.key_chosen;
        let end = End {
            watermark,
            closed_by_end,
            counts: timeline.counts,
            frames_left_out: timeline.left_out,
            waiting,
        };
        Ok(Explanation { head, frames: timeline.frames, end })
    }

    /// Why the first open window is not closed.
    fn waiting(&self) -> Option<Waiting> {
        if self.spec().mode == Mode::Complete {
            return None;
        }
        let (window, more) = self.timeline.first_open()?;
        let task = self.tracker.current();
        let standing = standing(&self.tracker, self.config.watermark.policy, &self.names, |id| {
            self.follows.contains(&id)
        });
        let without = |(spec, _): (&SourceSpec, Watermark)| spec.strategy == Strategy::None;
        Some(Waiting {
            window,
            more,
            needs: window.end,
            watermark: self.reached(task),
            never: window.end == EventTime::MAX || self.tracker.sources().all(without),
            events_reach: self.by_batch().then_some(task),
            slowest: standing.slowest,
            idle: standing.idle,
            finished: standing.finished,
        })
    }
}

/// Windows over results of others have no events of their own to tell of.
fn refuse_step(spec: &OperatorSpec) -> Result<()> {
    let Some(input) = &spec.input else { return Ok(()) };
    let message = format!("window reads the results of another: window={} input={input}", spec.name);
    Err(Error::new(ErrorKind::Invalid, message).with_remedy(format!("explain its input: --window {input}")))
}

/// The memory of ids, which starts empty: what a checkpoint remembers is not read back.
fn dedups_of(sources: &[SourceSpec], from_checkpoint: bool) -> Result<Vec<DedupOperator>> {
    let id = |index: usize| SourceId(u16::try_from(index).unwrap_or(u16::MAX));
    let dedups = sources.iter().enumerate();
    let dedups: Vec<DedupOperator> =
        dedups.filter_map(|(at, source)| Some(DedupOperator::new(id(at), source.dedup.clone()?))).collect();
    if from_checkpoint && !dedups.is_empty() {
        let message = "a source drops repetitions, and ids seen before the checkpoint are not known here";
        return Err(Error::new(ErrorKind::Invalid, message)
            .with_remedy("leave --from-checkpoint out: the input is then followed from its beginning"));
    }
    Ok(dedups)
}

fn open_source(
    config: &PipelineConfig,
    plans: Vec<ParsePlan>,
    manifest: Option<&Manifest>,
    batch_lines: u64,
    clock: &Arc<dyn Clock>,
) -> Result<FileSource> {
    let positions = resume_positions(config, manifest.into_iter().flat_map(partitions_of));
    let source = FileSource::open(&config.sources, plans, &positions, Arc::clone(clock))?;
    let counters = manifest.map(|manifest| Counters::from_map(&manifest.counters)).unwrap_or_default();
    let source = match counters.block_rest {
        Some(block) => source.with_rest_of_block(&block),
        None => source,
    };
    let source = match config.watermark.advance {
        Advance::Event => source,
        Advance::Batch => source.in_batches(config.watermark.batch_records, batch_lines),
    };
    let source = source.leaving_unended_lines(!config.watermark.close_at_end);
    refuse_own_files(config, &source)?;
    Ok(source)
}
