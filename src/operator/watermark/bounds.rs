//! Which event times are believed: absolute bounds, and bounds against the clock and against the other partitions.
//!
//! Pure. One wrong timestamp must not close every window: an event beyond a bound is rejected before it can move a
//! watermark.

use std::fmt;

use crate::event_time::{EventTime, Span};

/// Bounds within which an event time is believed. Without any, every time is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Earliest time believed.
    pub min: Option<EventTime>,
    /// Latest time believed.
    pub max: Option<EventTime>,
    /// How far ahead of the wall clock a time is believed. What the clock says is a matter of when the event is
    /// read: one that is read again after a restart is judged anew, by the clock of then.
    pub max_ahead: Option<Span>,
    /// How far ahead of the other partitions of the source a time is believed: of the median of their latest event
    /// times, of those that have spoken and are not read to their end. Without any such partition there is no bound.
    pub max_ahead_of_partitions: Option<Span>,
}

impl Bounds {
    /// True when no time can be too late.
    #[must_use]
    pub const fn is_open_above(&self) -> bool {
        self.max.is_none() && self.max_ahead.is_none() && self.max_ahead_of_partitions.is_none()
    }

    /// The bounds as they stand for events of one partition, by the wall clock and by what the others have reached.
    /// Both stay the same throughout a batch.
    #[must_use]
    pub fn limits(&self, wall_millis: Option<i64>, others: impl Iterator<Item = EventTime>) -> Limits {
        let mut limits = Limits { from: self.min.unwrap_or(EventTime::MIN), ..Limits::NONE };
        if let Some(max) = self.max {
            limits.lower_to(max, Rejection::AfterMax { max });
        }
        if let (Some(max_ahead), Some(wall)) = (self.max_ahead, wall_millis) {
            let clock = EventTime::from_millis(wall);
            limits.lower_to(clock.saturating_add(max_ahead), Rejection::AheadOfClock { clock, max_ahead });
        }
        if let Some(max_ahead) = self.max_ahead_of_partitions
            && let Some(median) = median(others)
        {
            let rejection = Rejection::AheadOfPartitions { median, max_ahead };
            limits.lower_to(median.saturating_add(max_ahead), rejection);
        }
        limits
    }
}

/// The middle one; of an even number the later of the two in the middle.
fn median(times: impl Iterator<Item = EventTime>) -> Option<EventTime> {
    let mut times: Vec<EventTime> = times.collect();
    if times.is_empty() {
        return None;
    }
    let middle = times.len() / 2;
    Some(*times.select_nth_unstable(middle).1)
}

/// [`Bounds`] at one moment for one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    from: EventTime,
    to: EventTime,
    // Why a time after `to` is rejected.
    above: Rejection,
}

impl Limits {
    /// Every time is believed.
    pub const NONE: Self =
        Self { from: EventTime::MIN, to: EventTime::MAX, above: Rejection::AfterMax { max: EventTime::MAX } };

    fn lower_to(&mut self, to: EventTime, above: Rejection) {
        if to < self.to {
            (self.to, self.above) = (to, above);
        }
    }

    /// The same, however early a time is.
    #[must_use]
    pub fn without_lower(self) -> Self {
        Self { from: EventTime::MIN, ..self }
    }

    /// The times that are believed, both ends included.
    #[must_use]
    pub const fn range(&self) -> (EventTime, EventTime) {
        (self.from, self.to)
    }

    /// Why `time` is not believed; `None` when it is.
    #[inline]
    #[must_use]
    pub fn check(&self, time: EventTime) -> Option<Rejection> {
        if time > self.to {
            return Some(self.above);
        }
        (time < self.from).then_some(Rejection::BeforeMin { min: self.from })
    }
}

/// Why an event was left out: it moved no watermark and is in no window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rejection {
    /// A window that would hold it reaches past the end of representable time.
    OutOfRange,
    /// Its time is before the earliest that is believed.
    BeforeMin {
        /// The bound.
        min: EventTime,
    },
    /// Its time is after the latest that is believed.
    AfterMax {
        /// The bound.
        max: EventTime,
    },
    /// Its time is too far ahead of the wall clock.
    AheadOfClock {
        /// The wall clock when it was judged.
        clock: EventTime,
        /// How far ahead is believed.
        max_ahead: Span,
    },
    /// Its time is too far ahead of the other partitions of its source.
    AheadOfPartitions {
        /// The median of what the others have reached.
        median: EventTime,
        /// How far ahead is believed.
        max_ahead: Span,
    },
}

impl Rejection {
    /// Stable lowercase name, the reason in dead letters and counters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OutOfRange => "timestamp_out_of_range",
            Self::BeforeMin { .. } => "timestamp_before_min",
            Self::AfterMax { .. } => "timestamp_after_max",
            Self::AheadOfClock { .. } => "timestamp_ahead_of_clock",
            Self::AheadOfPartitions { .. } => "timestamp_ahead_of_partitions",
        }
    }
}

impl fmt::Display for Rejection {
    /// What is wrong with the time, to be put after it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange => f.write_str("is in no window that can be represented"),
            Self::BeforeMin { min } => write!(f, "is before min={min}"),
            Self::AfterMax { max } => write!(f, "is after max={max}"),
            Self::AheadOfClock { clock, max_ahead } => {
                write!(f, "is more than max_ahead={max_ahead} ahead of the clock={clock}")
            }
            Self::AheadOfPartitions { median, max_ahead } => write!(
                f,
                "is more than max_ahead_of_partitions={max_ahead} ahead of the median of the others={median}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> EventTime {
        EventTime::from_millis(millis)
    }

    #[test]
    fn the_tightest_bound_names_the_reason() {
        let bounds = Bounds {
            min: Some(at(0)),
            max: Some(at(1_000)),
            max_ahead: Span::from_millis(100),
            max_ahead_of_partitions: Span::from_millis(10),
        };
        let names = |wall, others: &[i64]| {
            let limits = bounds.limits(wall, others.iter().copied().map(at));
            let names = [-1, 0, 1_001].map(|time| limits.check(at(time)).map(Rejection::name));
            (names, limits.range().1.as_millis())
        };
        let low = Some("timestamp_before_min");
        assert_eq!(names(None, &[]), ([low, None, Some("timestamp_after_max")], 1_000));
        assert_eq!(names(Some(500), &[]), ([low, None, Some("timestamp_ahead_of_clock")], 600));
        assert_eq!(names(Some(500), &[900, 7, 5]), ([low, None, Some("timestamp_ahead_of_partitions")], 17));
    }

    #[test]
    fn of_two_in_the_middle_the_later_one_bounds() {
        let bounds = Bounds { max_ahead_of_partitions: Some(Span::ZERO), ..Bounds::default() };
        assert_eq!(bounds.limits(None, [at(10), at(1)].into_iter()).range().1, at(10));
        assert_eq!(bounds.limits(None, std::iter::empty()), Limits::NONE);
    }
}
