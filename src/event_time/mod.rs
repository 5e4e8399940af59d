//! The rules of event time: instants, spans, windows, the watermark, and the only two comparisons between them.
//!
//! Everything here is pure arithmetic on signed 64-bit milliseconds. It knows no clock, no key and no state.

mod calendar;
mod windows;

use std::fmt;

pub use calendar::{Calendar, CalendarUnit};
pub use jiff::civil::Weekday;
use serde::{Deserialize, Serialize};
pub use windows::{Cumulative, Sliding, Windows};

/// An instant of event time: milliseconds since the Unix epoch, negative before 1970.
///
/// Not `Default`: a record without a time has no time, and must never borrow one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EventTime(i64);

impl EventTime {
    /// The earliest instant that can be represented.
    pub const MIN: Self = Self(i64::MIN);
    /// The latest instant that can be represented.
    pub const MAX: Self = Self(i64::MAX);

    /// An instant from milliseconds since the Unix epoch.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// An instant from microseconds, rounded down: −1 µs is −1 ms, in the millisecond that holds it.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros.div_euclid(1_000))
    }

    /// An instant from nanoseconds, rounded down.
    #[must_use]
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos.div_euclid(1_000_000))
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// This instant moved later by `span`, staying at the end of time when it does not fit.
    #[must_use]
    pub const fn saturating_add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// This instant moved earlier by `span`, staying at the beginning of time when it does not fit.
    #[must_use]
    pub const fn saturating_sub(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl fmt::Display for EventTime {
    /// RFC 3339 in UTC where the calendar reaches (years −9999 to 9999), else the number of milliseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(timestamp) => write!(f, "{timestamp}"),
            Err(_) => write!(f, "{}ms", self.0),
        }
    }
}

/// A length of event time in milliseconds, never negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Span(i64);

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// The longest span; as an allowed lateness it means "never late".
    pub const MAX: Self = Self(i64::MAX);

    /// A span of so many milliseconds, or `None` for a negative number.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Option<Self> {
        if millis < 0 { None } else { Some(Self(millis)) }
    }

    /// Milliseconds in this span.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(i64, &str); 4] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
        let mut rest = self.0;
        if rest == 0 {
            return f.write_str("0s");
        }
        let mut gap = "";
        for (length, unit) in UNITS {
            if rest >= length {
                write!(f, "{gap}{}{unit}", rest / length)?;
                rest %= length;
                gap = " ";
            }
        }
        if rest > 0 {
            write!(f, "{gap}{rest}ms")?;
        }
        Ok(())
    }
}

/// The half-open interval `[start, end)` of event time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Window {
    /// First instant inside.
    pub start: EventTime,
    /// First instant after.
    pub end: EventTime,
}

impl Window {
    /// All of time: the one window of [`Windows::Global`].
    pub const ALL: Self = Self { start: EventTime::MIN, end: EventTime::MAX };
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.start, self.end)
    }
}

/// How far event time has come: no event earlier than this is expected any more.
///
/// Stored in the exclusive form, `max event time − delay` (Flink prints one millisecond less, Spark the same).
/// `Watermark::NONE` means nothing was seen yet, and `Watermark::END` that the input is complete; neither is a
/// point in time, so no arithmetic can produce them by accident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Watermark {
    /// Nothing seen yet: every window is open.
    None,
    /// No event earlier than this instant is expected.
    At(EventTime),
    /// The input has ended: every window is closed.
    End,
}

impl Watermark {
    /// The watermark that an event at `time` implies under a disorder bound of `delay`.
    #[must_use]
    pub const fn after(time: EventTime, delay: Span) -> Self {
        Self::At(time.saturating_sub(delay))
    }

    /// The instant, when it is one.
    #[must_use]
    pub const fn instant(self) -> Option<EventTime> {
        match self {
            Self::At(time) => Some(time),
            Self::None | Self::End => None,
        }
    }

    /// True when a window ending at `end` is closed: `end <= W`.
    ///
    /// With [`Watermark::expired`] this is the only comparison between a window and a watermark in the project.
    #[must_use]
    pub fn closed(self, end: EventTime) -> bool {
        self.expired(end, Span::ZERO)
    }

    /// True when a window ending at `end` takes no more events: `end + allowed_lateness <= W`.
    ///
    /// A sum past the end of time is never reached, except by the end of the input.
    #[must_use]
    pub fn expired(self, end: EventTime, allowed_lateness: Span) -> bool {
        match self {
            Self::None => false,
            Self::End => true,
            Self::At(watermark) => {
                end.0.checked_add(allowed_lateness.0).is_some_and(|last| last <= watermark.0)
            }
        }
    }
}

impl fmt::Display for Watermark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::At(time) => time.fmt(f),
            Self::End => f.write_str("end of input"),
        }
    }
}

/// Why a window definition cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidWindow {
    /// The size is zero.
    #[error("window size must be longer than zero")]
    ZeroSize,
    /// The slide, or the step, is zero.
    #[error("window slide must be longer than zero")]
    ZeroSlide,
    /// The gap of sessions is zero.
    #[error("session gap must be longer than zero")]
    ZeroGap,
    /// The longest cumulative window is not made of whole steps.
    #[error("window size must be a multiple of the step: size_ms={size_ms} step_ms={step_ms}")]
    UnevenStep {
        /// Length of the longest window.
        size_ms: i64,
        /// The step.
        step_ms: i64,
    },
    /// The time zone database does not know the name.
    #[error("unknown time zone: zone={zone:?}")]
    UnknownZone {
        /// The name.
        zone: String,
    },
    /// A stored definition has no such day.
    #[error("a week starts with a day from 1 (Monday) to 7 (Sunday)")]
    WeekStart,
    /// The offset reaches a whole window or more.
    #[error("window offset must be shorter than the size: offset_ms={offset_ms} size_ms={size_ms}")]
    OffsetTooLong {
        /// The offset asked for.
        offset_ms: i64,
        /// The window's size.
        size_ms: i64,
    },
}

/// Windows of one size, end to end, aligned to the Unix epoch plus an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Tumbling {
    // Both in milliseconds; size > 0 and |offset| < size, checked in `new`.
    size: i64,
    offset: i64,
}

impl Tumbling {
    /// Windows of `size`, starting at `k × size + offset_ms`.
    ///
    /// # Errors
    /// [`InvalidWindow`] when the size is zero or the offset is as long as a window.
    pub fn new(size: Span, offset_ms: i64) -> Result<Self, InvalidWindow> {
        let size = size.as_millis();
        if size == 0 {
            return Err(InvalidWindow::ZeroSize);
        }
        if offset_ms.unsigned_abs() >= size.unsigned_abs() {
            return Err(InvalidWindow::OffsetTooLong { offset_ms, size_ms: size });
        }
        Ok(Self { size, offset: offset_ms })
    }

    /// Length of each window.
    #[must_use]
    pub const fn size(&self) -> Span {
        Span(self.size)
    }

    /// Milliseconds by which window starts are moved off the epoch grid.
    #[must_use]
    pub const fn offset_millis(&self) -> i64 {
        self.offset
    }

    /// The window that holds `time`, by floor division, or `None` when its bounds leave the 64-bit range.
    #[must_use]
    pub fn window_of(&self, time: EventTime) -> Option<Window> {
        let behind = time.0.checked_sub(self.offset)?.rem_euclid(self.size);
        let start = time.0.checked_sub(behind)?;
        let end = start.checked_add(self.size)?;
        Some(Window { start: EventTime(start), end: EventTime(end) })
    }

    /// The window that ends at `end`, which must be one of this definition's ends.
    #[must_use]
    pub fn window_ending(&self, end: EventTime) -> Window {
        Window { start: EventTime(end.0.saturating_sub(self.size)), end }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: i64) -> EventTime {
        EventTime::from_millis(millis)
    }

    fn span(millis: i64) -> Span {
        Span::from_millis(millis).unwrap()
    }

    #[test]
    fn negative_times_fall_into_the_window_that_holds_them() {
        let tens = Tumbling::new(span(10), 0).unwrap();
        assert_eq!(tens.window_of(at(-17)).unwrap(), Window { start: at(-20), end: at(-10) });
        assert_eq!(tens.window_of(at(-10)).unwrap(), Window { start: at(-10), end: at(0) });
        let shifted = Tumbling::new(span(10), 2).unwrap();
        assert_eq!(shifted.window_of(at(-9)).unwrap(), Window { start: at(-18), end: at(-8) });
        assert_eq!(shifted.window_of(at(-8)).unwrap(), Window { start: at(-8), end: at(2) });
    }

    #[test]
    fn sub_millisecond_digits_are_floored() {
        assert_eq!(EventTime::from_micros(1_000_999), at(1_000));
        assert_eq!(EventTime::from_micros(-1), at(-1));
        assert_eq!(EventTime::from_nanos(-1), at(-1));
    }

    #[test]
    fn a_window_past_the_end_of_time_does_not_exist() {
        let tens = Tumbling::new(span(10), 0).unwrap();
        assert_eq!(tens.window_of(at(i64::MAX - 3)), None);
        assert_eq!(tens.window_of(at(i64::MIN)), None);
    }

    #[test]
    fn closing_takes_the_end_itself_and_not_the_millisecond_before() {
        assert!(!Watermark::At(at(9)).closed(at(10)));
        assert!(Watermark::At(at(10)).closed(at(10)));
        assert!(!Watermark::None.closed(at(i64::MIN)));
        assert!(Watermark::End.expired(at(i64::MAX), Span::MAX));
    }

    #[test]
    fn lateness_past_the_end_of_time_is_never_late() {
        assert!(!Watermark::At(EventTime::MAX).expired(at(10), Span::MAX));
        assert!(Watermark::At(at(15)).expired(at(10), span(5)));
        assert!(!Watermark::At(at(14)).expired(at(10), span(5)));
    }

    #[test]
    fn impossible_windows_are_refused() {
        assert_eq!(Tumbling::new(Span::ZERO, 0), Err(InvalidWindow::ZeroSize));
        assert!(Tumbling::new(span(10), 10).is_err());
        assert!(Tumbling::new(span(10), -10).is_err());
        assert!(Tumbling::new(span(10), -9).is_ok());
        assert!(Tumbling::new(span(10), i64::MIN).is_err());
        assert_eq!(Span::from_millis(-1), None);
    }

    #[test]
    fn spans_print_in_the_largest_units() {
        assert_eq!(span(5_400_000).to_string(), "1h 30m");
        assert_eq!(span(86_400_001).to_string(), "1d 1ms");
        assert_eq!(Span::ZERO.to_string(), "0s");
    }

    proptest! {
        #[test]
        fn every_time_is_inside_its_aligned_window(
            time in any::<i64>(),
            size in 1_i64..1_000_000_000,
            offset_share in -0.999_f64..0.999,
        ) {
            let offset = (size as f64 * offset_share) as i64;
            let windows = Tumbling::new(span(size), offset).unwrap();
            if let Some(window) = windows.window_of(at(time)) {
                prop_assert!(window.start.as_millis() <= time && time < window.end.as_millis());
                let start = i128::from(window.start.as_millis()) - i128::from(offset);
                prop_assert_eq!(start.rem_euclid(i128::from(size)), 0);
                prop_assert_eq!(windows.window_ending(window.end), window);
            }
        }

        #[test]
        fn watermarks_order_like_the_windows_they_close(a in any::<i64>(), b in any::<i64>(), end in any::<i64>()) {
            let (low, high) = (a.min(b), a.max(b));
            if Watermark::At(at(low)).closed(at(end)) {
                prop_assert!(Watermark::At(at(high)).closed(at(end)));
            }
            prop_assert!(Watermark::None < Watermark::At(at(low)) && Watermark::At(at(high)) < Watermark::End);
        }
    }
}
