//! Why a window is not closed: which partition the watermark stands at.
//!
//! Pure: from what the tracker says of sources and partitions to one answer.

use super::frame::Holder;
use crate::event_time::Watermark;
use crate::operator::{PartitionId, PartitionProgress, Policy, Strategy, WatermarkTracker};

/// A partition, as far as it has a say.
#[derive(Clone, Copy)]
struct Known<'a> {
    name: &'a str,
    source: usize,
    progress: PartitionProgress,
}

impl Known<'_> {
    fn counts(&self) -> bool {
        !self.progress.idle && !self.progress.finished
    }
}

/// What partitions have to do with where the watermark is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::pipeline) struct Standing {
    pub(in crate::pipeline) slowest: Option<Holder>,
    pub(in crate::pipeline) idle: Vec<String>,
    pub(in crate::pipeline) finished: u64,
}

/// Who holds the watermark back. `names` are those of the partitions by index, `follows` says which count under
/// another one.
pub(in crate::pipeline) fn standing(
    tracker: &WatermarkTracker,
    policy: Policy,
    names: &[String],
    follows: impl Fn(PartitionId) -> bool,
) -> Standing {
    let partitions = tracker.partitions().enumerate().filter_map(|(index, progress)| {
        let id = PartitionId(u32::try_from(index).unwrap_or(u32::MAX));
        let source = usize::from(tracker.source_of(id)?.0);
        (!follows(id)).then_some(Known { name: names.get(index)?, source, progress })
    });
    let partitions: Vec<Known<'_>> = partitions.collect();
    let named = |holds: fn(&Known<'_>) -> bool| partitions.iter().filter(move |known| holds(known));
    let slowest = deciding_source(tracker, policy, &partitions)
        .and_then(|(source, holds_back)| holder(tracker, &partitions, source, holds_back));
    Standing {
        slowest,
        idle: named(|known| known.progress.idle && !known.progress.finished)
            .map(|known| known.name.to_owned())
            .collect(),
        finished: named(|known| known.progress.finished).count() as u64,
    }
}

/// The source that the watermark of the task is taken from, and whether it holds it back.
fn deciding_source(
    tracker: &WatermarkTracker,
    policy: Policy,
    partitions: &[Known<'_>],
) -> Option<(usize, bool)> {
    let taking_part = || {
        let sources = tracker.sources().enumerate();
        sources.filter(|(_, (spec, _))| spec.strategy != Strategy::None)
    };
    let counting = |source: usize| partitions.iter().any(|known| known.source == source && known.counts());
    let holding = taking_part().filter(|(index, _)| counting(*index));
    let slowest = holding.min_by_key(|(_, (_, watermark))| *watermark).filter(|_| policy == Policy::Min);
    match slowest {
        Some((index, _)) => Some((index, true)),
        None => {
            let (index, _) = taking_part().max_by_key(|(_, (_, watermark))| *watermark)?;
            Some((index, counting(index)))
        }
    }
}

/// The partition that the watermark of `source` is taken from.
fn holder(
    tracker: &WatermarkTracker,
    partitions: &[Known<'_>],
    source: usize,
    holds_back: bool,
) -> Option<Holder> {
    let own = || partitions.iter().filter(|known| known.source == source);
    let at = |known: &&Known<'_>| known.progress.watermark;
    let known = if holds_back {
        own().filter(|known| known.counts()).min_by_key(at)?
    } else {
        own().filter(|known| known.progress.watermark != Watermark::None).max_by_key(at)?
    };
    let (spec, _) = tracker.sources().nth(source)?;
    Some(Holder {
        partition: known.name.to_owned(),
        source: spec.name.clone(),
        max_time: known.progress.max_time,
        delay: spec.strategy.delay(),
        watermark: known.progress.watermark,
        holds_back,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::event_time::{EventTime, Span};

    fn at(millis: i64) -> EventTime {
        EventTime::from_millis(millis)
    }

    #[test]
    fn the_watermark_stands_at_the_slowest_partition_that_still_counts() {
        let names = ["a", "b", "c", "d"].map(str::to_owned);
        let delay = Span::from_millis(5).unwrap();
        let mut tracker = WatermarkTracker::new(delay, Some(Duration::from_secs(1)));
        let ids = [0, 1, 2, 3].map(|_| tracker.add_partition(Duration::ZERO));
        let seen = |tracker: &WatermarkTracker| standing(tracker, Policy::Min, &names, |id| id == ids[3]);
        tracker.observe(ids[0], at(100));
        let holder = seen(&tracker).slowest.unwrap();
        assert_eq!((holder.partition.as_str(), holder.max_time, holder.holds_back), ("b", None, true));
        tracker.observe(ids[1], at(60));
        tracker.tick(Duration::from_secs(2), |id| id == ids[0] || id == ids[1]);
        let standing = seen(&tracker);
        let holder = standing.slowest.unwrap();
        assert_eq!((holder.partition.as_str(), holder.max_time), ("b", Some(at(60))));
        assert_eq!((holder.watermark, holder.delay), (tracker.current(), Some(delay)));
        assert_eq!(standing.idle, ["c"]);
        for id in ids {
            tracker.finish(id);
        }
        let standing = seen(&tracker);
        let holder = standing.slowest.unwrap();
        assert_eq!((holder.partition.as_str(), holder.holds_back, standing.finished), ("a", false, 3));
    }
}
