//! Every kind of window, and the pieces into which overlapping windows are cut.
//!
//! A *piece* is the smallest stretch of time that windows share: of tumbling, calendar and global windows the window
//! itself, of sliding and cumulative ones a slice. Knows no key and no watermark.

use std::fmt;

use jiff::civil::Weekday;
use serde::{Deserialize, Serialize};

use super::{Calendar, CalendarUnit, EventTime, InvalidWindow, Span, Tumbling, Window};

/// Windows of one size that start every `slide`, aligned to the Unix epoch plus an offset.
///
/// With a slide longer than the size there is time between windows; events there belong to none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Sliding {
    // In milliseconds; size > 0, slide > 0 and |offset| < slide, checked in `new`.
    size: i64,
    slide: i64,
    offset: i64,
}

impl Sliding {
    /// Windows of `size`, starting at `k × slide + offset_ms`.
    ///
    /// # Errors
    /// [`InvalidWindow`] when size or slide is zero, or the offset is as long as the slide.
    pub fn new(size: Span, slide: Span, offset_ms: i64) -> Result<Self, InvalidWindow> {
        let (size, slide) = (size.as_millis(), slide.as_millis());
        if size == 0 {
            return Err(InvalidWindow::ZeroSize);
        }
        if slide == 0 {
            return Err(InvalidWindow::ZeroSlide);
        }
        if offset_ms.unsigned_abs() >= slide.unsigned_abs() {
            return Err(InvalidWindow::OffsetTooLong { offset_ms, size_ms: slide });
        }
        Ok(Self { size, slide, offset: offset_ms })
    }

    /// Length of each window.
    #[must_use]
    pub const fn size(&self) -> Span {
        Span(self.size)
    }

    /// Time between two starts.
    #[must_use]
    pub const fn slide(&self) -> Span {
        Span(self.slide)
    }

    /// True when windows overlap, so that they are made of slices.
    const fn overlaps(&self) -> bool {
        self.slide < self.size
    }

    /// Length of the first of the two slices between two starts; zero when the size is a multiple of the slide.
    const fn remainder(&self) -> i64 {
        self.size % self.slide
    }

    fn last_start(&self, time: EventTime) -> Option<i64> {
        let behind = time.0.checked_sub(self.offset)?.rem_euclid(self.slide);
        time.0.checked_sub(behind)
    }

    fn window_from(&self, start: i64) -> Option<Window> {
        Some(Window { start: EventTime(start), end: EventTime(start.checked_add(self.size)?) })
    }

    fn slice_of(&self, time: EventTime) -> Option<Window> {
        let cell = self.last_start(time)?;
        let cut = cell.checked_add(self.remainder())?;
        let next = cell.checked_add(self.slide)?;
        let (start, end) = if time.0 < cut { (cell, cut) } else { (cut, next) };
        Some(Window { start: EventTime(start), end: EventTime(end) })
    }

    fn slice_ending(&self, end: EventTime) -> Window {
        let behind = end.0.wrapping_sub(self.offset).rem_euclid(self.slide);
        let remainder = self.remainder();
        let length = if behind == remainder && remainder > 0 { remainder } else { self.slide - remainder };
        Window { start: EventTime(end.0.saturating_sub(length)), end }
    }

    /// The first window that holds `slice` and ends after `after`.
    fn next_holding(&self, slice: Window, after: EventTime) -> Option<Window> {
        let least = slice.end.0.max(after.0.checked_add(1)?);
        // Ends lie on the grid of the starts, moved by the size.
        let behind = least.checked_sub(self.offset)?.checked_sub(self.size)?.rem_euclid(self.slide);
        let end = if behind == 0 { least } else { least.checked_add(self.slide - behind)? };
        let start = end.checked_sub(self.size)?;
        (start <= slice.start.0).then_some(Window { start: EventTime(start), end: EventTime(end) })
    }
}

/// Windows that grow in steps from a common start: `[s, s+step)`, `[s, s+2·step)` … `[s, s+size)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cumulative {
    // In milliseconds; step > 0, size a multiple of step, |offset| < size, checked in `new`.
    size: i64,
    step: i64,
    offset: i64,
}

impl Cumulative {
    /// Windows up to `size` long, in steps of `step`, starting at `k × size + offset_ms`.
    ///
    /// # Errors
    /// [`InvalidWindow`] when size or step is zero, the size is no multiple of the step, or the offset is as long as
    /// the size.
    pub fn new(size: Span, step: Span, offset_ms: i64) -> Result<Self, InvalidWindow> {
        let (size, step) = (size.as_millis(), step.as_millis());
        if size == 0 {
            return Err(InvalidWindow::ZeroSize);
        }
        if step == 0 {
            return Err(InvalidWindow::ZeroSlide);
        }
        if size % step != 0 {
            return Err(InvalidWindow::UnevenStep { size_ms: size, step_ms: step });
        }
        if offset_ms.unsigned_abs() >= size.unsigned_abs() {
            return Err(InvalidWindow::OffsetTooLong { offset_ms, size_ms: size });
        }
        Ok(Self { size, step, offset: offset_ms })
    }

    /// Length of the longest window.
    #[must_use]
    pub const fn size(&self) -> Span {
        Span(self.size)
    }

    /// By how much each window is longer than the one before.
    #[must_use]
    pub const fn step(&self) -> Span {
        Span(self.step)
    }

    fn start_of(&self, time: EventTime) -> Option<i64> {
        let behind = time.0.checked_sub(self.offset)?.rem_euclid(self.size);
        time.0.checked_sub(behind)
    }

    fn slice_of(&self, time: EventTime) -> Option<Window> {
        let start = self.start_of(time)?;
        let begin = time.0.checked_sub((time.0 - start).rem_euclid(self.step))?;
        // The longest window must be representable as well.
        start.checked_add(self.size)?;
        Some(Window { start: EventTime(begin), end: EventTime(begin.checked_add(self.step)?) })
    }

    fn next_holding(&self, slice: Window, after: EventTime) -> Option<Window> {
        let start = self.start_of(slice.start)?;
        let least = slice.end.0.max(after.0.checked_add(1)?);
        let behind = least.checked_sub(start)?.rem_euclid(self.step);
        let end = if behind == 0 { least } else { least.checked_add(self.step - behind)? };
        (end <= start.checked_add(self.size)?)
            .then_some(Window { start: EventTime(start), end: EventTime(end) })
    }
}

/// The windows of an aggregation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Windows {
    /// One size, end to end.
    Tumbling(Tumbling),
    /// One size, overlapping or with time between them.
    Sliding(Sliding),
    /// Growing in steps from a common start.
    Cumulative(Cumulative),
    /// Days, weeks or months of a time zone.
    Calendar(Calendar),
    /// Activity of a key without a pause as long as the gap.
    Session {
        /// The pause that ends a session; longer than zero.
        gap: Span,
    },
    /// One window for all time: see [`Window::ALL`].
    Global,
}

impl From<Tumbling> for Windows {
    fn from(windows: Tumbling) -> Self {
        Self::Tumbling(windows)
    }
}

impl From<Sliding> for Windows {
    fn from(windows: Sliding) -> Self {
        // Without overlap and without time between them they are tumbling windows, and cheaper as such.
        if windows.size == windows.slide {
            return Tumbling::new(windows.size(), windows.offset)
                .map_or(Self::Sliding(windows), Self::Tumbling);
        }
        Self::Sliding(windows)
    }
}

impl From<Cumulative> for Windows {
    fn from(windows: Cumulative) -> Self {
        Self::Cumulative(windows)
    }
}

impl From<Calendar> for Windows {
    fn from(windows: Calendar) -> Self {
        Self::Calendar(windows)
    }
}

impl Windows {
    /// Sessions that a pause of `gap` ends.
    ///
    /// # Errors
    /// [`InvalidWindow`] when the gap is zero.
    pub fn session(gap: Span) -> Result<Self, InvalidWindow> {
        if gap == Span::ZERO { Err(InvalidWindow::ZeroGap) } else { Ok(Self::Session { gap }) }
    }

    /// Days from midnight to midnight in the time zone called `zone`.
    ///
    /// # Errors
    /// [`InvalidWindow`] when there is no such zone.
    pub fn days(zone: &str) -> Result<Self, InvalidWindow> {
        Calendar::new(CalendarUnit::Day, zone, Weekday::Monday).map(Self::Calendar)
    }

    /// Length of the longest window, where the definition fixes it.
    #[must_use]
    pub const fn last_length(&self) -> Option<Span> {
        match self {
            Self::Tumbling(windows) => Some(windows.size()),
            Self::Sliding(windows) => Some(windows.size()),
            Self::Cumulative(windows) => Some(windows.size()),
            Self::Calendar(_) | Self::Session { .. } | Self::Global => None,
        }
    }

    /// True when the numbers in it are those of a constructor; reading JSON goes past these.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        let span = |millis: i64| Span::from_millis(millis).unwrap_or(Span::ZERO);
        match self {
            Self::Tumbling(windows) => Tumbling::new(span(windows.size), windows.offset).is_ok(),
            Self::Sliding(windows) => {
                Sliding::new(span(windows.size), span(windows.slide), windows.offset).is_ok()
            }
            Self::Cumulative(windows) => {
                Cumulative::new(span(windows.size), span(windows.step), windows.offset).is_ok()
            }
            Self::Session { gap } => gap.as_millis() > 0,
            Self::Calendar(_) | Self::Global => true,
        }
    }

    /// The gap, of sessions.
    #[must_use]
    pub const fn session_gap(&self) -> Option<Span> {
        match self {
            Self::Session { gap } => Some(*gap),
            _ => None,
        }
    }

    /// True when windows are made of slices that they share.
    #[must_use]
    pub const fn overlap(&self) -> bool {
        match self {
            Self::Sliding(windows) => windows.overlaps(),
            Self::Cumulative(windows) => windows.step < windows.size,
            Self::Tumbling(_) | Self::Calendar(_) | Self::Session { .. } | Self::Global => false,
        }
    }

    /// True when an event at `time` can be held: every window that it belongs to has bounds in the 64-bit range.
    #[must_use]
    pub fn reaches(&self, time: EventTime) -> bool {
        match self {
            Self::Tumbling(windows) => windows.window_of(time).is_some(),
            Self::Sliding(windows) => {
                let first =
                    time.0.checked_sub(windows.size).and_then(|time| windows.last_start(EventTime(time)));
                let last = windows.last_start(time).and_then(|start| windows.window_from(start));
                first.is_some() && last.is_some()
            }
            Self::Cumulative(windows) => windows.slice_of(time).is_some(),
            Self::Calendar(windows) => windows.window_of(time).is_some(),
            Self::Session { gap } => time.0.checked_add(gap.0).is_some(),
            Self::Global => true,
        }
    }

    /// The window that an event at `time` belongs to alone, or the slice of the windows that it belongs to. `None`
    /// between windows, beyond the 64-bit range, and for sessions, which depend on the key.
    #[inline]
    #[must_use]
    pub fn piece_of(&self, time: EventTime) -> Option<Window> {
        match self {
            Self::Tumbling(windows) => windows.window_of(time),
            Self::Sliding(windows) if windows.overlaps() => windows.slice_of(time),
            Self::Sliding(windows) => {
                let window = windows.window_from(windows.last_start(time)?)?;
                (time < window.end).then_some(window)
            }
            Self::Cumulative(windows) => windows.slice_of(time),
            Self::Calendar(windows) => windows.window_of(time),
            Self::Session { .. } => None,
            Self::Global => Some(Window::ALL),
        }
    }

    /// The piece that ends at `end`, which must be one of this definition's.
    #[must_use]
    pub fn piece_ending(&self, end: EventTime) -> Window {
        match self {
            Self::Tumbling(windows) => windows.window_ending(end),
            Self::Sliding(windows) if windows.overlaps() => windows.slice_ending(end),
            Self::Sliding(windows) => Window { start: EventTime(end.0.saturating_sub(windows.size)), end },
            Self::Cumulative(windows) => Window { start: EventTime(end.0.saturating_sub(windows.step)), end },
            Self::Calendar(windows) => windows.window_ending(end),
            Self::Session { .. } => Window { start: end, end },
            Self::Global => Window::ALL,
        }
    }

    /// The first window that holds `piece` and ends after `after`.
    #[must_use]
    pub fn next_holding(&self, piece: Window, after: EventTime) -> Option<Window> {
        match self {
            Self::Sliding(windows) if windows.overlaps() => windows.next_holding(piece, after),
            Self::Cumulative(windows) => windows.next_holding(piece, after),
            _ => (piece.end > after).then_some(piece),
        }
    }

    /// The last window that holds `piece`.
    #[must_use]
    pub fn last_holding(&self, piece: Window) -> Window {
        let last = match self {
            Self::Sliding(windows) if windows.overlaps() => {
                windows.last_start(piece.start).and_then(|start| windows.window_from(start))
            }
            Self::Cumulative(windows) => windows.start_of(piece.start).and_then(|start| {
                let end = start.checked_add(windows.size)?;
                Some(Window { start: EventTime(start), end: EventTime(end) })
            }),
            _ => None,
        };
        last.unwrap_or(piece)
    }

    /// The windows that hold an event at `time`, by ascending end; none for sessions, which depend on the key.
    pub fn windows_of(&self, time: EventTime) -> impl Iterator<Item = Window> + '_ {
        let piece = self.piece_of(time);
        let first = piece.and_then(|piece| self.next_holding(piece, EventTime::MIN));
        std::iter::successors(first, move |window| {
            piece.and_then(|piece| self.next_holding(piece, window.end))
        })
    }

    /// The window that ends at `end`, which must be one of this definition's.
    #[must_use]
    pub fn window_ending(&self, end: EventTime) -> Window {
        match self {
            Self::Sliding(windows) => Window { start: EventTime(end.0.saturating_sub(windows.size)), end },
            Self::Cumulative(windows) => {
                let inside = EventTime(end.0.saturating_sub(1));
                Window { start: EventTime(windows.start_of(inside).unwrap_or(inside.0)), end }
            }
            _ => self.piece_ending(end),
        }
    }

    /// True when a piece ends at `end`; sessions may end at any time.
    #[must_use]
    pub fn ends_at(&self, end: EventTime) -> bool {
        match self {
            Self::Session { .. } => true,
            Self::Global => end == EventTime::MAX,
            Self::Sliding(windows) if !windows.overlaps() => {
                let start = end.0.checked_sub(windows.size).map(EventTime);
                start.is_some_and(|start| windows.last_start(start) == Some(start.0))
            }
            _ => {
                let last = end.0.checked_sub(1).map(EventTime);
                let held = |last: EventTime| self.windows_of(last).any(|window| window.end == end);
                last.is_some_and(|last| {
                    self.piece_of(last).is_some_and(|piece| piece.end == end) || held(last)
                })
            }
        }
    }

    /// For how long after its end a piece may still be needed by a window that holds it, at most.
    #[must_use]
    pub fn needed_after_end(&self) -> Span {
        match self {
            Self::Sliding(windows) if windows.overlaps() => {
                let remainder = windows.remainder();
                Span(windows.size - if remainder == 0 { windows.slide } else { remainder })
            }
            Self::Cumulative(windows) => Span(windows.size - windows.step),
            _ => Span::ZERO,
        }
    }
}

/// An offset as it is shown after a length; nothing without one.
fn offset(f: &mut fmt::Formatter<'_>, millis: i64) -> fmt::Result {
    match Span::from_millis(millis.saturating_abs()).unwrap_or(Span::MAX) {
        Span::ZERO => Ok(()),
        span if millis < 0 => write!(f, " with offset -{span}"),
        span => write!(f, " with offset {span}"),
    }
}

impl fmt::Display for Windows {
    /// In words, such as `sliding 10m every 1m`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tumbling(windows) => {
                write!(f, "tumbling {}", windows.size())?;
                offset(f, windows.offset)
            }
            Self::Sliding(windows) => {
                write!(f, "sliding {} every {}", windows.size(), windows.slide())?;
                offset(f, windows.offset)
            }
            Self::Cumulative(windows) => {
                write!(f, "cumulative up to {} by {}", windows.size(), windows.step())?;
                offset(f, windows.offset)
            }
            Self::Calendar(windows) => {
                let unit = match windows.unit() {
                    CalendarUnit::Day => "day",
                    CalendarUnit::Week => "week",
                    CalendarUnit::Month => "month",
                };
                write!(f, "calendar {unit} in {}", windows.zone())
            }
            Self::Session { gap } => write!(f, "session with gap {gap}"),
            Self::Global => f.write_str("global"),
        }
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

    fn bounds(windows: &Windows, time: i64) -> Vec<(i64, i64)> {
        windows
            .windows_of(at(time))
            .map(|window| (window.start.as_millis(), window.end.as_millis()))
            .collect()
    }

    fn sliding(size: i64, slide: i64, offset: i64) -> Windows {
        Sliding::new(span(size), span(slide), offset).unwrap().into()
    }

    #[test]
    fn sliding_windows_hold_exactly_the_events_between_their_bounds() {
        assert_eq!(bounds(&sliding(12, 5, 0), 21), [(10, 22), (15, 27), (20, 32)]);
        assert_eq!(bounds(&sliding(10, 5, 0), -1), [(-10, 0), (-5, 5)]);
        assert_eq!(bounds(&sliding(3, 10, 0), 5), []);
        assert_eq!(bounds(&sliding(3, 10, 0), 12), [(10, 13)]);
        let far = sliding(1_600, 700, 0);
        assert_eq!(
            bounds(&far, 1_709_315_512_577),
            [(1_709_315_511_400, 1_709_315_513_000), (1_709_315_512_100, 1_709_315_513_700)]
        );
    }

    #[test]
    fn cumulative_windows_share_their_start() {
        let windows: Windows = Cumulative::new(span(60), span(20), 0).unwrap().into();
        assert_eq!(bounds(&windows, 25), [(0, 40), (0, 60)]);
        assert_eq!(bounds(&windows, 59), [(0, 60)]);
        assert_eq!(bounds(&windows, -1), [(-60, 0)]);
    }

    #[test]
    fn impossible_windows_are_refused() {
        assert!(Sliding::new(span(10), Span::ZERO, 0).is_err());
        assert!(Sliding::new(Span::ZERO, span(10), 0).is_err());
        assert!(Sliding::new(span(10), span(5), 5).is_err());
        assert!(Cumulative::new(span(60), span(25), 0).is_err());
        assert!(Cumulative::new(span(60), Span::ZERO, 0).is_err());
        assert!(Windows::session(Span::ZERO).is_err());
        assert!(Windows::days("Mars/Olympus").is_err());
    }

    #[test]
    fn a_window_past_the_end_of_time_is_not_reached() {
        let windows = sliding(10, 5, 0);
        assert!(!windows.reaches(at(i64::MAX - 3)) && !windows.reaches(at(i64::MIN + 3)));
        assert!(windows.reaches(at(i64::MAX - 30)));
        assert!(!Windows::session(span(10)).unwrap().reaches(at(i64::MAX - 3)));
        assert!(Windows::Global.reaches(at(i64::MAX)));
    }

    fn overlapping() -> impl Strategy<Value = Windows> {
        prop_oneof![
            (1_i64..200, 1_i64..100, -0.99_f64..0.99).prop_map(|(size, slide, share)| sliding(
                size,
                slide,
                (slide as f64 * share) as i64
            )),
            (1_i64..20, 1_i64..12, -0.99_f64..0.99).prop_map(|(step, steps, share)| {
                let size = step * steps;
                Cumulative::new(span(size), span(step), (size as f64 * share) as i64).unwrap().into()
            }),
        ]
    }

    proptest! {
        #[test]
        fn windows_are_unions_of_whole_pieces(windows in overlapping(), time in -1_000_i64..1_000) {
            let held: Vec<Window> = windows.windows_of(at(time)).collect();
            let Some(piece) = windows.piece_of(at(time)) else {
                prop_assert!(held.is_empty());
                return Ok(());
            };
            prop_assert!(piece.start <= at(time) && at(time) < piece.end);
            prop_assert_eq!(windows.piece_ending(piece.end), piece);
            prop_assert!(!held.is_empty());
            prop_assert_eq!(held.last().copied(), Some(windows.last_holding(piece)));
            let needed = windows.needed_after_end().as_millis();
            for window in &held {
                prop_assert!(window.start <= piece.start && piece.end <= window.end);
                prop_assert_eq!(windows.window_ending(window.end), *window);
                prop_assert!(window.end.as_millis() - piece.end.as_millis() <= needed);
            }
            prop_assert!(held.windows(2).all(|pair| pair[0].end < pair[1].end));
        }

        #[test]
        fn sliding_windows_are_those_whose_bounds_hold_the_event(
            size in 1_i64..100, slide in 1_i64..100, time in -300_i64..300,
        ) {
            let expected: Vec<(i64, i64)> = (-100..100)
                .map(|k| (k * slide, k * slide + size))
                .filter(|&(start, end)| start <= time && time < end)
                .collect();
            // The grid above reaches far enough for long slides only.
            prop_assume!(slide >= 5);
            prop_assert_eq!(bounds(&sliding(size, slide, 0), time), expected);
        }
    }
}
