//! Lengths of time and how many events have each: quantiles, tails, histograms.

use serde::Serialize;

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// Upper ends of the bars of a histogram, in milliseconds: lengths that people have words for.
pub const LADDER_MS: [i64; 28] = [
    1,
    10,
    100,
    500,
    SECOND,
    2 * SECOND,
    5 * SECOND,
    10 * SECOND,
    20 * SECOND,
    30 * SECOND,
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    20 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    4 * HOUR,
    8 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    4 * DAY,
    7 * DAY,
    14 * DAY,
    30 * DAY,
    90 * DAY,
];

/// How many events have which length, in milliseconds. Events without one count as zero.
///
/// Adding up distributions of different partitions gives that of all their events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    events: u64,
    // Ascending, each above zero, with the number of events up to and including it.
    values: Vec<(i64, u64)>,
}

impl Distribution {
    /// The lengths above zero of some of `events` events.
    #[must_use]
    pub fn of(events: u64, mut lengths: Vec<i64>) -> Self {
        lengths.retain(|&length| length > 0);
        lengths.sort_unstable();
        Self::of_counted(events, lengths.into_iter().map(|length| (length, 1)))
    }

    /// As [`Distribution::of`], of ascending lengths that each stand for a number of events.
    #[must_use]
    pub fn of_counted(events: u64, lengths: impl IntoIterator<Item = (i64, u64)>) -> Self {
        let mut values: Vec<(i64, u64)> = Vec::new();
        for (length, count) in lengths {
            let before = values.last().map_or(0, |&(_, total)| total);
            match values.last_mut() {
                Some((last, total)) if *last == length => *total += count,
                _ => values.push((length, before + count)),
            }
        }
        Self { events: events.max(values.last().map_or(0, |&(_, total)| total)), values }
    }

    /// All of these together.
    #[must_use]
    pub fn sum<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Self {
        let (mut events, mut counted) = (0, Vec::new());
        for part in parts {
            events += part.events;
            counted.extend(part.counted());
        }
        counted.sort_unstable();
        Self::of_counted(events, counted)
    }

    /// Each length above zero, ascending, with the number of events that have it.
    pub fn counted(&self) -> impl Iterator<Item = (i64, u64)> + '_ {
        let before = std::iter::once(0).chain(self.values.iter().map(|&(_, total)| total));
        self.values.iter().zip(before).map(|(&(length, total), before)| (length, total - before))
    }

    /// Events.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// Those of them with a length above zero.
    #[must_use]
    pub fn above_zero(&self) -> u64 {
        self.later_than(0)
    }

    /// Events with a length of more than `millis`.
    #[must_use]
    pub fn later_than(&self, millis: i64) -> u64 {
        let all = self.values.last().map_or(0, |&(_, total)| total);
        let up_to = self.values.partition_point(|&(length, _)| length <= millis);
        all - up_to.checked_sub(1).map_or(0, |index| self.values[index].1)
    }

    /// The least length that `per_10_000` of 10,000 events do not exceed (nearest rank), in milliseconds; zero without
    /// events.
    #[must_use]
    pub fn quantile(&self, per_10_000: u32) -> i64 {
        let rank = (u128::from(self.events) * u128::from(per_10_000)).div_ceil(10_000);
        let rank = u64::try_from(rank).unwrap_or(u64::MAX).max(1);
        let at_zero = self.events - self.above_zero();
        let Some(rank) = rank.checked_sub(at_zero).filter(|&rank| rank > 0) else { return 0 };
        let index = self.values.partition_point(|&(_, total)| total < rank);
        self.values.get(index).or(self.values.last()).map_or(0, |&(length, _)| length)
    }

    /// The greatest length, in milliseconds; zero when there is none above.
    #[must_use]
    pub fn max(&self) -> i64 {
        self.values.last().map_or(0, |&(length, _)| length)
    }

    /// The quantiles that people ask for, and a histogram.
    #[must_use]
    pub fn spread(&self) -> Spread {
        Spread {
            events: self.events,
            above_zero: self.above_zero(),
            p50_ms: self.quantile(5_000),
            p95_ms: self.quantile(9_500),
            p99_ms: self.quantile(9_900),
            p999_ms: self.quantile(9_990),
            max_ms: self.max(),
            histogram: self.histogram(),
        }
    }

    /// The events above zero by the steps of [`LADDER_MS`], from the first step that has any to the last.
    fn histogram(&self) -> Vec<Bucket> {
        let starts = std::iter::once(0).chain(LADDER_MS);
        let ends = LADDER_MS.into_iter().map(Some).chain([None]);
        let bucket = |(over_ms, up_to_ms): (i64, Option<i64>)| Bucket {
            over_ms,
            up_to_ms,
            events: self.later_than(over_ms) - up_to_ms.map_or(0, |end| self.later_than(end)),
        };
        let buckets: Vec<Bucket> = starts.zip(ends).map(bucket).collect();
        let first = buckets.iter().position(|bucket| bucket.events > 0);
        let last = buckets.iter().rposition(|bucket| bucket.events > 0);
        first.zip(last).map_or(Vec::new(), |(first, last)| buckets[first..=last].to_vec())
    }
}

/// A distribution in a few numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Spread {
    /// Events.
    pub events: u64,
    /// Those of them with a length above zero.
    pub above_zero: u64,
    /// Half of all events, those at zero included, have at most this length, in milliseconds.
    pub p50_ms: i64,
    /// Of 100 events 95 have at most this length.
    pub p95_ms: i64,
    /// Of 100 events 99 have at most this length.
    pub p99_ms: i64,
    /// Of 1,000 events 999 have at most this length.
    pub p999_ms: i64,
    /// The greatest length.
    pub max_ms: i64,
    /// Events above zero, by length.
    pub histogram: Vec<Bucket>,
}

/// A bar of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bucket {
    /// Lengths above this, in milliseconds.
    pub over_ms: i64,
    /// And up to this one; `None` for all above.
    pub up_to_ms: Option<i64>,
    /// Events.
    pub events: u64,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantiles_are_taken_over_all_events_those_in_order_included() {
        let late = Distribution::of(10, vec![30, 10, 20, 10, 0, -5]);
        assert_eq!((late.events(), late.above_zero(), late.max()), (10, 4, 30));
        assert_eq!(
            [5_000, 6_000, 6_001, 8_000, 8_001, 9_000, 10_000].map(|q| late.quantile(q)),
            [0, 0, 10, 10, 20, 20, 30]
        );
        assert_eq!([0, 9, 10, 19, 20, 29, 30].map(|x| late.later_than(x)), [4, 4, 2, 2, 1, 1, 0]);
    }

    #[test]
    fn nothing_has_no_quantile_and_no_bars() {
        let none = Distribution::default();
        assert_eq!((none.quantile(9_990), none.max(), none.spread().histogram), (0, 0, Vec::new()));
        let in_order = Distribution::of(3, Vec::new()).spread();
        assert_eq!((in_order.events, in_order.above_zero, in_order.max_ms), (3, 0, 0));
    }

    #[test]
    fn bars_reach_from_the_first_event_to_the_last_and_include_their_upper_end() {
        let late = Distribution::of(9, vec![1_000, 1_001, 30_000, 200 * DAY]);
        let bars = late.spread().histogram;
        assert_eq!((bars[0].over_ms, bars[0].up_to_ms, bars[0].events), (500, Some(1_000), 1));
        assert_eq!((bars[1].up_to_ms, bars[1].events), (Some(2_000), 1));
        let last = bars[bars.len() - 1];
        assert_eq!((last.over_ms, last.up_to_ms, last.events), (90 * DAY, None, 1));
        assert_eq!(bars.iter().map(|bar| bar.events).sum::<u64>(), late.above_zero());
    }

    proptest! {
        #[test]
        fn a_sum_is_the_distribution_of_all_events_together(
            parts in prop::collection::vec((0_u64..20, prop::collection::vec(1_i64..50, 0..20)), 0..5),
        ) {
            let of = |(more, lengths): &(u64, Vec<i64>)| {
                Distribution::of(lengths.len() as u64 + more, lengths.clone())
            };
            let apart: Vec<Distribution> = parts.iter().map(of).collect();
            let all: Vec<i64> = parts.iter().flat_map(|(_, lengths)| lengths.clone()).collect();
            let events = all.len() as u64 + parts.iter().map(|(more, _)| more).sum::<u64>();
            prop_assert_eq!(Distribution::sum(&apart), Distribution::of(events, all));
        }

        #[test]
        fn no_more_events_lie_above_a_quantile_than_it_says(
            lengths in prop::collection::vec(1_i64..1_000, 0..60), more in 0_u64..60, share in 1_u32..=10_000,
        ) {
            let late = Distribution::of(lengths.len() as u64 + more, lengths);
            let at = late.quantile(share);
            let above = u128::from(late.later_than(at)) * 10_000;
            prop_assert!(above <= u128::from(late.events()) * u128::from(10_000 - share));
            if at > 0 {
                let before = u128::from(late.later_than(at - 1)) * 10_000;
                prop_assert!(before > u128::from(late.events()) * u128::from(10_000 - share));
            }
        }
    }
}
