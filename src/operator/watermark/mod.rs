//! The watermark of a task: one per partition, joined per source, combined over the sources, never backwards.
//!
//! Pure: the clocks come in as numbers. `source` says how a watermark comes about, `bounds` which times are believed.

mod bounds;
mod source;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use bounds::{Bounds, Limits, Rejection};
pub use source::{DEFAULT_SOURCE, Policy, SourceSpec, Strategy};

use super::{PartitionId, SourceId};
use crate::event_time::{EventTime, Span, Watermark};

/// What the watermark knows of one partition. Saved in every checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionProgress {
    /// Latest event time seen, late events included; `None` before the first event.
    pub max_time: Option<EventTime>,
    /// Its own watermark; never moves back.
    pub watermark: Watermark,
    /// Silent for longer than the idle time-out while nothing was waiting to be read.
    pub idle: bool,
    /// Read to its end; it holds the watermark back no more.
    pub finished: bool,
}

impl Default for PartitionProgress {
    fn default() -> Self {
        Self { max_time: None, watermark: Watermark::None, idle: false, finished: false }
    }
}

/// Everything that a checkpoint keeps of a tracker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedWatermarks {
    /// The watermark of the task.
    pub task: Watermark,
    /// Those of the sources, by index; missing ones count as new.
    pub sources: Vec<Watermark>,
    /// The partitions, by index, each with its source.
    pub partitions: Vec<(SourceId, PartitionProgress)>,
}

/// One event that moved the watermark further than events should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jump {
    /// Where the event came from.
    pub partition: PartitionId,
    /// The watermark before it.
    pub from: EventTime,
    /// The watermark after it.
    pub to: EventTime,
}

impl Jump {
    /// How far it went.
    #[must_use]
    pub const fn length(&self) -> Span {
        let millis = self.to.as_millis().saturating_sub(self.from.as_millis());
        match Span::from_millis(millis) {
            Some(span) => span,
            None => Span::ZERO,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Partition {
    progress: PartitionProgress,
    source: SourceId,
    // Of its source, to be at hand for each event.
    strategy: Strategy,
    jump_max: Span,
    last_record: Duration,
    // Its events count under another partition's watermark.
    follows: bool,
}

impl Partition {
    const fn counts(&self) -> bool {
        !self.progress.idle && !self.progress.finished && !self.follows
    }
}

#[derive(Clone, Debug)]
struct Source {
    spec: SourceSpec,
    // Monotone.
    watermark: Watermark,
}

/// Derives the watermark of a task from the events of its partitions.
///
/// A partition's watermark comes from its events by the [`Strategy`] of its source. A source's is the minimum over
/// its partitions that are neither idle nor finished; one that never spoke counts as nothing seen, and so holds it
/// back. When none of them counts, it is the maximum over all. The task's combines the sources by the [`Policy`];
/// with [`Policy::Min`] a source of which no partition counts holds nothing back, and when that is all of them the
/// maximum counts. Whatever happens, none of these ever moves back.
#[derive(Clone, Debug)]
pub struct WatermarkTracker {
    sources: Vec<Source>,
    policy: Policy,
    idle_advance: Option<Duration>,
    partitions: Vec<Partition>,
    // Monotone: assigned in `raise` only.
    current: Watermark,
    // Where a checkpoint left off: what silence adds to.
    restored: Watermark,
    wall_millis: Option<i64>,
    // Partitions have changed their place since the sources were joined.
    stale: bool,
    steps_back: u64,
    jump: Option<Jump>,
}

impl WatermarkTracker {
    /// A tracker of one source without partitions, for events that are at most `delay` out of order. [`Span::MAX`]
    /// means that there is no bound, and so no watermark until the input ends.
    #[must_use]
    pub fn new(delay: Span, idle_timeout: Option<Duration>) -> Self {
        let source = SourceSpec::new(DEFAULT_SOURCE, Strategy::delayed(delay));
        Self::of(vec![SourceSpec { idle_timeout, ..source }], Policy::Min)
    }

    /// A tracker of several sources without partitions.
    #[must_use]
    pub fn of(sources: Vec<SourceSpec>, policy: Policy) -> Self {
        let sources = sources.into_iter().map(|spec| Source { spec, watermark: Watermark::None });
        Self {
            sources: sources.collect(),
            policy,
            idle_advance: None,
            partitions: Vec::new(),
            current: Watermark::None,
            restored: Watermark::None,
            wall_millis: None,
            stale: false,
            steps_back: 0,
            jump: None,
        }
    }

    /// Lets the watermark go on with the clock once every partition has been silent for so long, see
    /// [`WatermarkTracker::tick`].
    #[must_use]
    pub fn advancing_when_idle(self, after: Option<Duration>) -> Self {
        Self { idle_advance: after, ..self }
    }

    /// Takes up where a checkpoint stopped. Must come before the first event.
    ///
    /// Idle time-outs count from `now`: how long the process was down says nothing about its partitions.
    pub fn restore(&mut self, saved: SavedWatermarks, now: Duration) {
        for (source, watermark) in self.sources.iter_mut().zip(saved.sources) {
            source.watermark = watermark;
        }
        for (source, progress) in saved.partitions {
            let id = self.add_partition_of(source, now);
            let Some(partition) = self.partitions.get_mut(id.0 as usize) else { continue };
            partition.progress = progress;
            if let (Watermark::None, Some(time), Some(delay)) =
                (progress.watermark, progress.max_time, partition.strategy.delay())
            {
                // Written by a version that kept the time alone.
                partition.progress.watermark = Watermark::after(time, delay);
            }
        }
        // What a checkpoint does not say of a source follows from its partitions.
        self.rejoin();
        self.restored = saved.task;
        self.raise(saved.task);
    }

    /// Brings the sources to where their partitions stand. The watermark of the task waits for the next event.
    fn rejoin(&mut self) {
        for (index, source) in self.sources.iter_mut().enumerate() {
            let own = self.partitions.iter().filter(|partition| usize::from(partition.source.0) == index);
            source.watermark = source.watermark.max(joined(own));
        }
    }

    /// Adds a partition of the first source that has not spoken yet and returns its index. `now` starts its idle
    /// time-out.
    pub fn add_partition(&mut self, now: Duration) -> PartitionId {
        self.add_partition_of(SourceId::default(), now)
    }

    /// As [`WatermarkTracker::add_partition`], for any source.
    pub fn add_partition_of(&mut self, source: SourceId, now: Duration) -> PartitionId {
        let id = PartitionId(u32::try_from(self.partitions.len()).unwrap_or(u32::MAX));
        self.partitions.push(Partition {
            progress: PartitionProgress::default(),
            source,
            strategy: Strategy::None,
            jump_max: Span::MAX,
            last_record: now,
            follows: false,
        });
        self.place(id, source);
        id
    }

    /// Says that `partition` belongs to `source`, whatever a checkpoint said.
    pub fn assign(&mut self, partition: PartitionId, source: SourceId) {
        if self.source_of(partition) != Some(source) {
            self.place(partition, source);
            self.stale = true;
        }
    }

    fn place(&mut self, partition: PartitionId, source: SourceId) {
        let Some(spec) = self.sources.get(usize::from(source.0)).map(|source| &source.spec) else { return };
        if let Some(partition) = self.partitions.get_mut(partition.0 as usize) {
            partition.source = source;
            partition.strategy = spec.strategy;
            partition.jump_max = spec.jump_warning.unwrap_or(Span::MAX);
        }
    }

    /// Takes the wall clock for what comes next: bounds against the clock, and the limit of moving on in silence.
    /// Without it neither applies.
    pub fn set_wall_clock(&mut self, wall_millis: i64) {
        self.wall_millis = Some(wall_millis);
    }

    /// The watermark of the task.
    #[must_use]
    pub const fn current(&self) -> Watermark {
        self.current
    }

    /// The sources, by index, each with its watermark.
    pub fn sources(&self) -> impl ExactSizeIterator<Item = (&SourceSpec, Watermark)> + '_ {
        self.sources.iter().map(|source| (&source.spec, source.watermark))
    }

    /// The source that `partition` belongs to, when there is such a partition.
    #[must_use]
    pub fn source_of(&self, partition: PartitionId) -> Option<SourceId> {
        self.partitions.get(partition.0 as usize).map(|partition| partition.source)
    }

    /// Progress of every partition, by index.
    pub fn partitions(&self) -> impl ExactSizeIterator<Item = PartitionProgress> + '_ {
        self.partitions.iter().map(|partition| partition.progress)
    }

    /// Progress of one partition, when there is such a partition.
    #[must_use]
    pub fn progress(&self, partition: PartitionId) -> Option<PartitionProgress> {
        self.partitions.get(partition.0 as usize).map(|partition| partition.progress)
    }

    /// What a checkpoint has to keep.
    #[must_use]
    pub fn saved(&self) -> SavedWatermarks {
        SavedWatermarks {
            task: self.current,
            sources: self.sources.iter().map(|source| source.watermark).collect(),
            partitions: self
                .partitions
                .iter()
                .map(|partition| (partition.source, partition.progress))
                .collect(),
        }
    }

    /// Events that went back in a partition whose source says that none does.
    #[must_use]
    pub const fn steps_back(&self) -> u64 {
        self.steps_back
    }

    /// The longest jump since this was asked last.
    pub fn take_jump(&mut self) -> Option<Jump> {
        self.jump.take()
    }

    /// Takes `partition` out of account: its events are given to [`WatermarkTracker::observe`] under another one.
    pub fn follow(&mut self, partition: PartitionId) {
        if let Some(partition) = self.partitions.get_mut(partition.0 as usize) {
            partition.follows = true;
            self.stale = true;
        }
    }

    /// Notes that `partition` delivered records at `now`: it is neither idle nor finished.
    pub fn touch(&mut self, partition: PartitionId, now: Duration) {
        if let Some(partition) = self.partitions.get_mut(partition.0 as usize) {
            partition.last_record = now;
            partition.progress.idle = false;
            partition.progress.finished = false;
        }
    }

    /// The bounds of `partition` as they stand.
    #[must_use]
    pub fn limits(&self, partition: PartitionId) -> Limits {
        let own = partition.0 as usize;
        let Some(source) = self.source_of(partition) else { return Limits::NONE };
        let Some(known) = self.sources.get(usize::from(source.0)) else { return Limits::NONE };
        let others = self.partitions.iter().enumerate().filter(|(index, other)| {
            *index != own && other.source == source && !other.follows && !other.progress.finished
        });
        let reached = others.filter_map(|(_, other)| other.progress.max_time);
        known.spec.bounds.limits(self.wall_millis, reached)
    }

    /// Takes in the time of one event, late or not, and returns the watermark after it.
    #[inline]
    pub fn observe(&mut self, partition: PartitionId, time: EventTime) -> Watermark {
        let Some(entry) = self.partitions.get_mut(partition.0 as usize) else { return self.current };
        if let Some(max) = entry.progress.max_time
            && max >= time
        {
            self.steps_back += u64::from(max > time && entry.strategy == Strategy::Monotone);
            return self.current;
        }
        entry.progress.max_time = Some(time);
        match entry.strategy.delay() {
            Some(delay) => self.lift(partition, Watermark::after(time, delay)),
            None => self.current,
        }
    }

    /// Takes in what an event says of itself: no event earlier than `time` is expected in its partition. Moves
    /// nothing unless the source is [`Strategy::Punctuated`]. Returns the watermark after it.
    pub fn punctuate(&mut self, partition: PartitionId, time: EventTime) -> Watermark {
        match self.partitions.get(partition.0 as usize) {
            Some(entry) if entry.strategy == Strategy::Punctuated => {
                self.lift(partition, Watermark::At(time))
            }
            _ => self.current,
        }
    }

    /// Moves a partition's watermark up to `watermark`, and with it whatever it held back.
    #[inline]
    fn lift(&mut self, id: PartitionId, watermark: Watermark) -> Watermark {
        let alone = self.partitions.len() == 1 && self.sources.len() == 1;
        let Some(entry) = self.partitions.get_mut(id.0 as usize) else { return self.current };
        let before = entry.progress.watermark;
        if watermark <= before {
            return self.current;
        }
        entry.progress.watermark = watermark;
        let (index, jump_max) = (usize::from(entry.source.0), entry.jump_max);
        let Some(source) = self.sources.get_mut(index) else { return self.current };
        let from = self.current;
        if alone {
            source.watermark = source.watermark.max(watermark);
            let joined = source.watermark;
            self.raise(joined);
        } else if std::mem::take(&mut self.stale) {
            self.recompute(None);
        } else if before <= source.watermark {
            // Only a partition at or behind the minimum can have held the minimum back.
            self.recompute(Some(index));
        }
        if let (Watermark::At(from), Watermark::At(to)) = (from, self.current) {
            let jump = Jump { partition: id, from, to };
            if jump.length() > jump_max && self.jump.is_none_or(|longest| jump.length() > longest.length()) {
                self.jump = Some(jump);
            }
        }
        self.current
    }

    /// Lets processing time reach `now`, and returns the watermark after it.
    ///
    /// Partitions silent for the idle time-out of their source fall idle, unless `has_backlog` says that records of
    /// theirs are waiting to be read. With [`WatermarkTracker::advancing_when_idle`], once *every* partition that is
    /// not read to its end has been silent for that long without backlog, the watermark is the latest of any
    /// partition plus the time since the last record, but no later than the wall clock less the delay.
    pub fn tick(&mut self, now: Duration, has_backlog: impl Fn(PartitionId) -> bool) -> Watermark {
        let mut changed = false;
        for (index, partition) in self.partitions.iter_mut().enumerate() {
            let source = self.sources.get(usize::from(partition.source.0));
            let Some(timeout) = source.and_then(|source| source.spec.idle_timeout) else { continue };
            let silent = now.saturating_sub(partition.last_record) >= timeout;
            if silent && partition.counts() && !has_backlog(PartitionId(index as u32)) {
                partition.progress.idle = true;
                changed = true;
            }
        }
        if changed {
            self.recompute(None);
        }
        if let Some(silence) = self.silence(now, has_backlog) {
            let moved_on = self.moved_on_by(silence);
            self.raise(moved_on);
        }
        self.current
    }

    /// How long nothing has come from anywhere, once that is long enough to go by the clock.
    fn silence(&self, now: Duration, has_backlog: impl Fn(PartitionId) -> bool) -> Option<Span> {
        let after = self.idle_advance?;
        let open = self.partitions.iter().enumerate().filter(|(_, partition)| !partition.progress.finished);
        let silent = now.saturating_sub(open.clone().map(|(_, partition)| partition.last_record).max()?);
        let mut open = open.map(|(index, _)| PartitionId(index as u32));
        if silent < after || open.any(has_backlog) {
            return None;
        }
        Span::from_millis(i64::try_from(silent.as_millis()).unwrap_or(i64::MAX))
    }

    /// The watermark after `silence`: the latest of any source that has one, moved on, and bounded by the clock.
    fn moved_on_by(&self, silence: Span) -> Watermark {
        let Some(wall) = self.wall_millis.map(EventTime::from_millis) else { return Watermark::None };
        let move_on = |from: Watermark, delay: Span| match from {
            Watermark::At(time) => {
                Watermark::At(time.saturating_add(silence).min(wall.saturating_sub(delay)))
            }
            other => other,
        };
        let delay = |strategy: Strategy| strategy.delay().unwrap_or_default();
        let partitions = self
            .partitions
            .iter()
            .map(|partition| move_on(partition.progress.watermark, delay(partition.strategy)));
        let longest = self.sources.iter().map(|source| delay(source.spec.strategy)).max().unwrap_or_default();
        partitions.chain([move_on(self.restored, longest)]).max().unwrap_or(Watermark::None)
    }

    /// Notes that `partition` was read to its end. Returns the watermark after it.
    pub fn finish(&mut self, partition: PartitionId) -> Watermark {
        if let Some(partition) = self.partitions.get_mut(partition.0 as usize) {
            partition.progress.finished = true;
            self.recompute(None);
        }
        self.current
    }

    /// Notes that the whole input has ended: every window is closed from now on.
    pub fn end(&mut self) -> Watermark {
        self.raise(Watermark::End);
        self.current
    }

    /// Joins the partitions of one source, or of all, and then the sources.
    fn recompute(&mut self, only: Option<usize>) {
        for (index, source) in self.sources.iter_mut().enumerate() {
            if only.is_none_or(|only| only == index) {
                let own = self.partitions.iter().filter(|partition| usize::from(partition.source.0) == index);
                source.watermark = source.watermark.max(joined(own));
            }
        }
        let combined = self.combined();
        self.raise(combined);
    }

    fn combined(&self) -> Watermark {
        let taking_part = || {
            let sources = self.sources.iter().enumerate();
            sources.filter(|(_, source)| source.spec.strategy != Strategy::None)
        };
        let latest = || taking_part().map(|(_, source)| source.watermark).max().unwrap_or(Watermark::None);
        match self.policy {
            Policy::Max => latest(),
            Policy::Min => {
                let holding = taking_part().filter(|(index, _)| self.holds_back(*index));
                holding.map(|(_, source)| source.watermark).min().unwrap_or_else(latest)
            }
        }
    }

    /// True for a source of which more may come: also one that no partition is known of yet.
    fn holds_back(&self, index: usize) -> bool {
        let mut own = self.partitions.iter().filter(|partition| usize::from(partition.source.0) == index);
        let mut any = false;
        own.any(|partition| {
            any = true;
            partition.counts()
        }) || !any
    }

    fn raise(&mut self, watermark: Watermark) {
        self.current = self.current.max(watermark);
    }
}

/// The minimum over partitions that count; when none does, the maximum over all that have a watermark of their own.
fn joined<'a>(partitions: impl Iterator<Item = &'a Partition> + Clone) -> Watermark {
    let counting = partitions.clone().filter(|partition| partition.counts());
    match counting.map(|partition| partition.progress.watermark).min() {
        Some(minimum) => minimum,
        None => {
            let own = partitions.filter(|partition| !partition.follows);
            own.map(|partition| partition.progress.watermark).max().unwrap_or(Watermark::None)
        }
    }
}
