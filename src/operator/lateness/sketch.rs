//! A histogram of lateness of bounded size, kept while events come in and stored in every checkpoint.
//!
//! Log-linear: a bucket for each millisecond up to 31, then 32 buckets of equal width for each doubling. Sketches of
//! different events are merged by adding bucket to bucket, which loses nothing.

use serde::{Deserialize, Serialize};

use super::Distribution;
use crate::event_time::EventTime;
use crate::operator::Rejection;

/// Buckets of a doubling, as a power of two.
const SUB_BITS: u32 = 5;
const SUB: usize = 1 << SUB_BITS;
/// Lengths of 2^42 ms, 139 years, and more count as just below.
const VALUE_BITS: u32 = 42;
/// Buckets at most; the first, of length zero, is never used.
const BUCKETS: usize = SUB * (VALUE_BITS - SUB_BITS + 1) as usize;

/// How late the events of a partition were: how far each lay behind the latest event time of the partition before it.
///
/// What is read from it is off by no more than [`LatenessSketch::RELATIVE_ERROR`]; up to 31 ms it is exact. It takes at most
/// 9.5 KiB of memory and 12 KiB in a checkpoint, however many events there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Stored", try_from = "Stored")]
pub struct LatenessSketch {
    events: u64,
    step_max_ms: i64,
    // Up to the last bucket that has any.
    buckets: Vec<u64>,
}

/// The form in a checkpoint: the buckets that have any, by ascending index.
#[derive(Clone, Serialize, Deserialize)]
struct Stored {
    events: u64,
    step_max_ms: i64,
    buckets: Vec<(u16, u64)>,
}

impl LatenessSketch {
    /// By what share of itself a length that is read from a sketch may be wrong, at most.
    pub const RELATIVE_ERROR: f64 = 1.0 / (2 * SUB) as f64;

    /// Takes in the times of a batch of the partition, whose latest event time was `latest` before it, without the events
    /// that were not believed. Only events that lie behind cost more than a comparison.
    pub fn observe(&mut self, latest: Option<EventTime>, times: &[i64], rejected: &[(u32, Rejection)]) {
        if rejected.is_empty() {
            return self.observe_all(latest, times);
        }
        let mut rejected = rejected.iter().peekable();
        let believed = times
            .iter()
            .enumerate()
            .filter(|(index, _)| rejected.next_if(|(at, _)| *at as usize == *index).is_none());
        let believed: Vec<i64> = believed.map(|(_, &time)| time).collect();
        self.observe_all(latest, &believed);
    }

    fn observe_all(&mut self, latest: Option<EventTime>, times: &[i64]) {
        let Some(&first) = times.first() else { return };
        let mut latest = latest.map_or(first, EventTime::as_millis);
        let mut step_max = self.step_max_ms;
        for &time in times {
            if time < latest {
                self.add(latest.saturating_sub(time));
            } else {
                step_max = step_max.max(time.saturating_sub(latest));
                latest = time;
            }
        }
        self.step_max_ms = step_max;
        self.events = self.events.saturating_add(times.len() as u64);
    }

    fn add(&mut self, behind_ms: i64) {
        let index = bucket_of(behind_ms.unsigned_abs());
        if self.buckets.len() <= index {
            self.buckets.resize(index + 1, 0);
        }
        self.buckets[index] = self.buckets[index].saturating_add(1);
    }

    /// Adds the events of another sketch.
    pub fn merge(&mut self, other: &Self) {
        self.events = self.events.saturating_add(other.events);
        self.step_max_ms = self.step_max_ms.max(other.step_max_ms);
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (own, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *own = own.saturating_add(*more);
        }
    }

    /// Events, those in order included.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// The furthest that one event went past all before it, in milliseconds. Exact.
    #[must_use]
    pub const fn step_max_ms(&self) -> i64 {
        self.step_max_ms
    }

    /// How many events are how late; each bucket stands for its middle.
    #[must_use]
    pub fn distribution(&self) -> Distribution {
        let counted = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        Distribution::of_counted(self.events, counted.map(|(index, &count)| (middle(index), count)))
    }
}

/// The bucket of a length.
fn bucket_of(millis: u64) -> usize {
    let millis = millis.min((1 << VALUE_BITS) - 1);
    if millis < SUB as u64 {
        return millis as usize;
    }
    let octave = millis.ilog2() - SUB_BITS;
    SUB * (octave as usize + 1) + (millis >> octave) as usize - SUB
}

/// The middle of a bucket, rounded down.
fn middle(index: usize) -> i64 {
    let Some(octave) = (index / SUB).checked_sub(1) else { return index as i64 };
    let low = ((SUB + index % SUB) as i64) << octave;
    low + ((1_i64 << octave) - 1) / 2
}

impl From<LatenessSketch> for Stored {
    fn from(sketch: LatenessSketch) -> Self {
        let counted = sketch.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        let buckets = counted.map(|(index, &count)| (index as u16, count)).collect();
        Self { events: sketch.events, step_max_ms: sketch.step_max_ms, buckets }
    }
}

impl TryFrom<Stored> for LatenessSketch {
    type Error = &'static str;

    /// Bytes from a disk are not believed: buckets have to be in order, in range, filled, and no more than the events.
    fn try_from(stored: Stored) -> Result<Self, Self::Error> {
        if stored.buckets.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
            return Err("a lateness sketch lists its buckets out of order");
        }
        let (mut buckets, mut late) = (Vec::new(), 0_u64);
        for (index, count) in stored.buckets {
            let index = usize::from(index);
            if index == 0 || index >= BUCKETS || count == 0 {
                return Err("a lateness sketch has a bucket that there is not");
            }
            late = late.checked_add(count).ok_or("a lateness sketch counts too far")?;
            buckets.resize(index + 1, 0);
            buckets[index] = count;
        }
        if late > stored.events || stored.step_max_ms < 0 {
            return Err("a lateness sketch contradicts itself");
        }
        Ok(Self { events: stored.events, step_max_ms: stored.step_max_ms, buckets })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec;

    fn of(times: &[i64]) -> LatenessSketch {
        let mut sketch = LatenessSketch::default();
        sketch.observe(None, times, &[]);
        sketch
    }

    #[test]
    fn short_lengths_are_exact_and_long_ones_stay_in_range() {
        let sketch = of(&[100, 99, 69, 130, 120]);
        let counted: Vec<(i64, u64)> = sketch.distribution().counted().collect();
        assert_eq!((counted, sketch.events(), sketch.step_max_ms()), (vec![(1, 1), (10, 1), (31, 1)], 5, 30));
        let far = of(&[i64::MAX, i64::MIN]);
        assert_eq!(far.distribution().above_zero(), 1);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert!(u16::try_from(BUCKETS).is_ok());
    }

    #[test]
    fn buckets_lie_end_to_end() {
        for index in 1..BUCKETS - 1 {
            assert!(middle(index) < middle(index + 1), "{index}");
            assert_eq!(bucket_of(middle(index).unsigned_abs()), index);
        }
    }

    #[test]
    fn what_was_not_believed_is_left_out() {
        let rejection = Rejection::OutOfRange;
        let mut sketch = LatenessSketch::default();
        sketch.observe(Some(EventTime::from_millis(50)), &[900, 60, 40], &[(0, rejection)]);
        assert_eq!((sketch.events(), sketch.step_max_ms(), sketch.distribution().max()), (2, 10, 20));
    }

    fn stored(
        events: u64,
        step_max_ms: i64,
        buckets: Vec<(u16, u64)>,
    ) -> Result<LatenessSketch, &'static str> {
        Stored { events, step_max_ms, buckets }.try_into()
    }

    #[test]
    fn a_stored_sketch_that_contradicts_itself_is_refused() {
        assert!(stored(3, 0, vec![(1, 1), (5, 2)]).is_ok());
        for (events, step, buckets) in [
            (2, 0, vec![(1, 1), (5, 2)]),
            (9, 0, vec![(5, 1), (1, 1)]),
            (9, 0, vec![(5, 1), (5, 1)]),
            (9, 0, vec![(0, 1)]),
            (9, 0, vec![(BUCKETS as u16, 1)]),
            (9, 0, vec![(4, 0)]),
            (u64::MAX, 0, vec![(4, u64::MAX), (5, 1)]),
            (9, -1, Vec::new()),
        ] {
            assert!(stored(events, step, buckets.clone()).is_err(), "{events} {step} {buckets:?}");
        }
    }

    proptest! {
        #[test]
        fn a_length_is_off_by_no_more_than_promised(millis in 1_i64..(1 << 42)) {
            let read = middle(bucket_of(millis.unsigned_abs()));
            let error = (read - millis).abs() as f64 / millis as f64;
            prop_assert!(error <= LatenessSketch::RELATIVE_ERROR, "{millis} is read as {read}");
        }

        #[test]
        fn it_does_not_matter_where_batches_are_cut_or_whether_it_was_stored_between(
            times in prop::collection::vec(-2_000_i64..2_000_000, 1..80), cut in 0_usize..80,
        ) {
            let whole = of(&times);
            let cut = cut.min(times.len());
            let mut first = of(&times[..cut]);
            let bytes = codec::encode(*b"FLOODTST", 1, &first).unwrap();
            let mut back: LatenessSketch = codec::decode(*b"FLOODTST", 1, &bytes).unwrap();
            prop_assert_eq!(&back, &first);
            let latest = times[..cut].iter().max().map(|&latest| EventTime::from_millis(latest));
            back.observe(latest, &times[cut..], &[]);
            prop_assert_eq!(&back, &whole);
            // Merged, two partitions count each for itself.
            let second = of(&times[cut..]);
            first.merge(&second);
            prop_assert_eq!(first.events(), whole.events());
            let sum = Distribution::sum(&[of(&times[..cut]).distribution(), second.distribution()]);
            prop_assert_eq!(first.distribution(), sum);
        }
    }
}
