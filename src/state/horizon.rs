//! The eviction horizon, shared by readers, eviction and compaction filters, and the first end it leaves alive.
//!
//! Knows no key and no database. The horizon never moves back.

use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};

use crate::event_time::{EventTime, Span, Watermark};

const NONE: u8 = 0;
const AT: u8 = 1;
const END: u8 = 2;

/// A watermark that many threads read and one moves forward, without a lock.
#[derive(Debug)]
pub(super) struct Horizon {
    // Read first and written last, so that `AT` is never seen before its instant. Both only grow.
    kind: AtomicU8,
    millis: AtomicI64,
}

impl Horizon {
    pub(super) const fn new() -> Self {
        Self { kind: AtomicU8::new(NONE), millis: AtomicI64::new(i64::MIN) }
    }

    /// Moves the horizon to `to`, unless it is there or further already.
    pub(super) fn raise(&self, to: Watermark) {
        match to {
            Watermark::None => {}
            Watermark::At(time) => {
                self.millis.fetch_max(time.as_millis(), Ordering::AcqRel);
                self.kind.fetch_max(AT, Ordering::AcqRel);
            }
            Watermark::End => {
                self.kind.fetch_max(END, Ordering::AcqRel);
            }
        }
    }

    pub(super) fn get(&self) -> Watermark {
        match self.kind.load(Ordering::Acquire) {
            NONE => Watermark::None,
            AT => Watermark::At(EventTime::from_millis(self.millis.load(Ordering::Acquire))),
            _ => Watermark::End,
        }
    }
}

/// Which ends are not expired: those from an instant on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Live {
    /// Every end.
    All,
    /// Ends at or after this instant.
    From(EventTime),
    /// No end at all.
    Nothing,
}

impl Live {
    /// The ends that [`Watermark::expired`] spares. A property below holds the two together.
    pub(super) fn under(horizon: Watermark, allowed_lateness: Span) -> Self {
        let watermark = match horizon {
            Watermark::None => return Self::All,
            Watermark::At(time) => time,
            Watermark::End => return Self::Nothing,
        };
        match watermark.as_millis().checked_sub(allowed_lateness.as_millis()) {
            None => Self::All,
            Some(last_expired) => match last_expired.checked_add(1) {
                None => Self::Nothing,
                Some(first) => Self::From(EventTime::from_millis(first)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn edgy() -> impl Strategy<Value = i64> {
        prop_oneof![any::<i64>(), -3_i64..3, (i64::MAX - 3)..=i64::MAX, i64::MIN..(i64::MIN + 3)]
    }

    proptest! {
        #[test]
        fn live_ends_are_exactly_those_that_are_not_expired(
            watermark in edgy(), lateness in edgy(), end in edgy(), kind in 0_u8..10,
        ) {
            let horizon = match kind {
                0 => Watermark::None,
                1 => Watermark::End,
                _ => Watermark::At(EventTime::from_millis(watermark)),
            };
            let lateness = Span::from_millis(lateness.saturating_abs()).unwrap();
            let end = EventTime::from_millis(end);
            let live = match Live::under(horizon, lateness) {
                Live::All => true,
                Live::From(first) => end >= first,
                Live::Nothing => false,
            };
            prop_assert_eq!(live, !horizon.expired(end, lateness));
        }
    }

    #[test]
    fn the_horizon_never_moves_back() {
        let at = |millis| Watermark::At(EventTime::from_millis(millis));
        let horizon = Horizon::new();
        assert_eq!(horizon.get(), Watermark::None);
        horizon.raise(at(-5));
        assert_eq!(horizon.get(), at(-5));
        horizon.raise(at(-7));
        horizon.raise(Watermark::None);
        assert_eq!(horizon.get(), at(-5));
        horizon.raise(Watermark::End);
        horizon.raise(at(9));
        assert_eq!(horizon.get(), Watermark::End);
    }
}
