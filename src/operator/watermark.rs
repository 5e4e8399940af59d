//! The watermark of a task: one per partition, the minimum over those that count, never backwards.

use std::time::Duration;

use super::PartitionId;
use crate::event_time::{EventTime, Span, Watermark};

/// What the watermark knows of one partition. Saved in every checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionProgress {
    /// Latest event time seen, late events included; `None` before the first event.
    pub max_time: Option<EventTime>,
    /// Silent for longer than the idle time-out while nothing was waiting to be read.
    pub idle: bool,
    /// Read to its end; it holds the watermark back no more.
    pub finished: bool,
}

#[derive(Clone, Copy, Debug)]
struct Partition {
    progress: PartitionProgress,
    last_record: Duration,
    // Its events count under another partition's watermark.
    follows: bool,
}

impl Partition {
    const fn counts(&self) -> bool {
        !self.progress.idle && !self.progress.finished && !self.follows
    }

    fn watermark(&self, delay: Span) -> Watermark {
        if delay == Span::MAX {
            return Watermark::None;
        }
        self.progress.max_time.map_or(Watermark::None, |time| Watermark::after(time, delay))
    }
}

/// Derives the watermark of a task from the events of its partitions.
///
/// Each partition's watermark is its latest event time less the delay. The task's is the minimum over partitions
/// that are neither idle nor finished; one that never spoke counts as nothing seen, and so holds it back. When no
/// partition counts, it is the maximum over all. Whatever happens, it never moves back.
#[derive(Clone, Debug)]
pub struct WatermarkTracker {
    delay: Span,
    idle_timeout: Option<Duration>,
    partitions: Vec<Partition>,
    // Monotone: assigned in `raise` only.
    current: Watermark,
}

impl WatermarkTracker {
    /// A tracker without partitions, for events that are at most `delay` out of order. [`Span::MAX`] means that
    /// there is no bound, and so no watermark until the input ends.
    #[must_use]
    pub const fn new(delay: Span, idle_timeout: Option<Duration>) -> Self {
        Self { delay, idle_timeout, partitions: Vec::new(), current: Watermark::None }
    }

    /// Takes up where a checkpoint stopped. Must come before the first event.
    ///
    /// Idle time-outs count from `now`: how long the process was down says nothing about its partitions.
    pub fn restore(
        &mut self,
        watermark: Watermark,
        partitions: impl IntoIterator<Item = PartitionProgress>,
        now: Duration,
    ) {
        self.partitions = partitions
            .into_iter()
            .map(|progress| Partition { progress, last_record: now, follows: false })
            .collect();
        self.raise(watermark);
    }

    /// Adds a partition that has not spoken yet and returns its index. `now` starts its idle time-out.
    pub fn add_partition(&mut self, now: Duration) -> PartitionId {
        let id = PartitionId(u32::try_from(self.partitions.len()).unwrap_or(u32::MAX));
        self.partitions.push(Partition {
            progress: PartitionProgress::default(),
            last_record: now,
            follows: false,
        });
        id
    }

    /// The watermark of the task.
    #[must_use]
    pub const fn current(&self) -> Watermark {
        self.current
    }

    /// The disorder bound.
    #[must_use]
    pub const fn delay(&self) -> Span {
        self.delay
    }

    /// Progress of every partition, by index.
    pub fn partitions(&self) -> impl ExactSizeIterator<Item = PartitionProgress> + '_ {
        self.partitions.iter().map(|partition| partition.progress)
    }

    /// The watermark of each partition alone, by index.
    pub fn partition_watermarks(&self) -> impl ExactSizeIterator<Item = Watermark> + '_ {
        self.partitions.iter().map(|partition| partition.watermark(self.delay))
    }

    /// Takes `partition` out of account: its events are given to [`WatermarkTracker::observe`] under another one.
    pub fn follow(&mut self, partition: PartitionId) {
        if let Some(partition) = self.partitions.get_mut(partition.0 as usize) {
            partition.follows = true;
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

    /// Takes in the time of one event, late or not, and returns the watermark after it.
    #[inline]
    pub fn observe(&mut self, partition: PartitionId, time: EventTime) -> Watermark {
        let alone = self.partitions.len() == 1;
        let Some(entry) = self.partitions.get_mut(partition.0 as usize) else { return self.current };
        if entry.progress.max_time.is_some_and(|max| max >= time) {
            return self.current;
        }
        let before = entry.watermark(self.delay);
        entry.progress.max_time = Some(time);
        let after = entry.watermark(self.delay);
        if alone {
            self.raise(after);
        } else if before <= self.current {
            // Only a partition at or behind the minimum can have held the minimum back.
            self.recompute();
        }
        self.current
    }

    /// Lets processing time reach `now`: partitions silent for the idle time-out fall idle, unless `has_backlog`
    /// says that records of theirs are waiting to be read. Returns the watermark after it.
    pub fn tick(&mut self, now: Duration, has_backlog: impl Fn(PartitionId) -> bool) -> Watermark {
        let Some(timeout) = self.idle_timeout else { return self.current };
        let mut changed = false;
        for (index, partition) in self.partitions.iter_mut().enumerate() {
            let silent = now.saturating_sub(partition.last_record) >= timeout;
            if silent && partition.counts() && !has_backlog(PartitionId(index as u32)) {
                partition.progress.idle = true;
                changed = true;
            }
        }
        if changed {
            self.recompute();
        }
        self.current
    }

    /// Notes that `partition` was read to its end. Returns the watermark after it.
    pub fn finish(&mut self, partition: PartitionId) -> Watermark {
        if let Some(partition) = self.partitions.get_mut(partition.0 as usize) {
            partition.progress.finished = true;
            self.recompute();
        }
        self.current
    }

    /// Notes that the whole input has ended: every window is closed from now on.
    pub fn end(&mut self) -> Watermark {
        self.raise(Watermark::End);
        self.current
    }

    fn recompute(&mut self) {
        let delay = self.delay;
        let counting = self.partitions.iter().filter(|partition| partition.counts());
        let combined = match counting.map(|partition| partition.watermark(delay)).min() {
            Some(minimum) => minimum,
            None => {
                let own = self.partitions.iter().filter(|partition| !partition.follows);
                let all = own.map(|partition| partition.watermark(delay));
                all.max().unwrap_or(Watermark::None)
            }
        };
        self.raise(combined);
    }

    fn raise(&mut self, watermark: Watermark) {
        self.current = self.current.max(watermark);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn tracker(partitions: usize, delay: i64) -> WatermarkTracker {
        let mut tracker = WatermarkTracker::new(Span::from_millis(delay).unwrap(), Some(SECOND));
        for _ in 0..partitions {
            tracker.add_partition(Duration::ZERO);
        }
        tracker
    }

    fn at(millis: i64) -> Watermark {
        Watermark::At(EventTime::from_millis(millis))
    }

    fn see(tracker: &mut WatermarkTracker, partition: u32, time: i64) -> Watermark {
        tracker.observe(PartitionId(partition), EventTime::from_millis(time))
    }

    #[test]
    fn the_slowest_partition_holds_the_watermark_until_it_catches_up() {
        let mut tracker = tracker(2, 0);
        assert_eq!(see(&mut tracker, 1, 1_000), Watermark::None);
        assert_eq!(see(&mut tracker, 0, 0), at(0));
        assert_eq!(see(&mut tracker, 1, 2_000), at(0));
        assert_eq!(see(&mut tracker, 0, 100), at(100));
        assert_eq!(see(&mut tracker, 0, 50), at(100));
    }

    #[test]
    fn all_idle_gives_the_maximum_whatever_the_order() {
        for first in [0, 1] {
            let mut tracker = tracker(2, 0);
            see(&mut tracker, 0, 6);
            see(&mut tracker, 1, 5);
            tracker.touch(PartitionId(first), SECOND / 2);
            tracker.tick(SECOND, |_| false);
            assert_eq!(tracker.tick(SECOND * 2, |_| false), at(6), "first {first}");
        }
    }

    #[test]
    fn no_partition_and_no_record_mean_no_watermark() {
        let mut tracker = tracker(2, 0);
        assert_eq!(tracker.tick(SECOND * 5, |_| false), Watermark::None);
        assert_eq!(see(&mut tracker, 0, 3), Watermark::None.max(tracker.current()));
    }

    #[test]
    fn a_partition_with_unread_records_is_not_idle() {
        let mut tracker = tracker(2, 0);
        tracker.touch(PartitionId(0), SECOND * 5);
        see(&mut tracker, 0, 100);
        assert_eq!(tracker.tick(SECOND * 5, |partition| partition == PartitionId(1)), Watermark::None);
        assert_eq!(tracker.tick(SECOND * 5, |_| false), at(100));
    }

    #[test]
    fn a_returning_or_added_partition_does_not_move_the_watermark_back() {
        let mut tracker = tracker(1, 0);
        assert_eq!(see(&mut tracker, 0, 16), at(16));
        let newcomer = tracker.add_partition(SECOND);
        assert_eq!(tracker.observe(newcomer, EventTime::from_millis(5)), at(16));
        assert_eq!(see(&mut tracker, 0, 30), at(16));
        assert_eq!(tracker.observe(newcomer, EventTime::from_millis(17)), at(17));
    }

    #[test]
    fn a_finished_partition_holds_nothing_back() {
        let mut tracker = tracker(2, 0);
        see(&mut tracker, 0, 5);
        see(&mut tracker, 1, 50);
        assert_eq!(tracker.finish(PartitionId(0)), at(50));
    }

    proptest! {
        #[test]
        fn the_watermark_never_moves_back_and_equals_the_minimum(
            steps in prop::collection::vec((0_u32..3, -50_i64..50), 1..60),
        ) {
            let mut tracker = tracker(3, 7);
            let mut maxima = [None::<i64>; 3];
            let mut previous = Watermark::None;
            for (partition, time) in steps {
                let current = see(&mut tracker, partition, time);
                let max = &mut maxima[partition as usize];
                *max = Some(max.map_or(time, |max| max.max(time)));
                let expected = maxima.iter().copied().min().flatten().map_or(Watermark::None, |m| at(m - 7));
                prop_assert!(current >= previous);
                prop_assert_eq!(current, expected);
                previous = current;
            }
        }
    }
}
