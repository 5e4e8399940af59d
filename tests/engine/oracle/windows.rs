//! Which windows an instant belongs to, and which definitions of windows are refused.

use jiff::Timestamp;
use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;

use super::Refusal;

/// How instants are put into windows `[start, end)`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Windows {
    Tumbling {
        size: i64,
        offset: i64,
    },
    Sliding {
        size: i64,
        slide: i64,
        offset: i64,
    },
    Session {
        gap: i64,
    },
    Cumulate {
        max_size: i64,
        step: i64,
    },
    CalendarDay {
        zone: TimeZone,
    },
    CalendarWeek {
        zone: TimeZone,
        from_sunday: bool,
    },
    CalendarMonth {
        zone: TimeZone,
    },
    /// A zone that is not known.
    UnknownZone,
    /// One window for all time, closed by the end of input alone.
    Global,
}

impl Windows {
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let fine = match *self {
            Self::Tumbling { size, offset } => size > 0 && offset.unsigned_abs() < size.unsigned_abs(),
            Self::Sliding { size, slide, offset } => {
                size > 0 && slide > 0 && offset.unsigned_abs() < slide.unsigned_abs()
            }
            Self::Session { gap } => gap > 0,
            Self::Cumulate { max_size, step } => max_size > 0 && step > 0 && max_size % step == 0,
            Self::Global => true,
            Self::CalendarDay { .. } | Self::CalendarWeek { .. } | Self::CalendarMonth { .. } => true,
            Self::UnknownZone => false,
        };
        if fine { Ok(()) } else { Err(Refusal::InvalidWindow) }
    }

    pub(crate) fn is_session(&self) -> bool {
        matches!(self, Self::Session { .. })
    }

    /// The windows of `ts` by end, then start; `None` when one of them does not fit into 64 bits. A session is the
    /// interval of the one record.
    pub(crate) fn of(&self, ts: i64) -> Option<Vec<(i64, i64)>> {
        let wide = i128::from(ts);
        let windows: Vec<(i128, i128)> = match self {
            Self::Tumbling { size, offset } => {
                let start = last_start(ts, *size, *offset);
                vec![(start, start + i128::from(*size))]
            }
            Self::Sliding { size, slide, offset } => {
                let (size, slide_wide) = (i128::from(*size), i128::from(*slide));
                let mut windows = Vec::new();
                let mut start = last_start(ts, *slide, *offset);
                while start > wide - size {
                    windows.push((start, start + size));
                    start -= slide_wide;
                }
                windows.reverse();
                windows
            }
            Self::Session { gap } => vec![(wide, wide + i128::from(*gap))],
            Self::Cumulate { max_size, step } => {
                let start = last_start(ts, *max_size, 0);
                let ends = (1..=i128::from(max_size / step)).map(|k| start + k * i128::from(*step));
                ends.filter(|end| *end > wide).map(|end| (start, end)).collect()
            }
            Self::CalendarDay { .. } | Self::CalendarWeek { .. } | Self::CalendarMonth { .. } => {
                let (start, end) = self.dates(ts)?;
                vec![(start.into(), end.into())]
            }
            Self::Global => vec![(i64::MIN.into(), i64::MAX.into())],
            Self::UnknownZone => vec![],
        };
        windows
            .into_iter()
            .map(|(start, end)| Some((i64::try_from(start).ok()?, i64::try_from(end).ok()?)))
            .collect()
    }

    /// From the first instant of the first local date to the first instant of the date after the last one.
    fn dates(&self, ts: i64) -> Option<(i64, i64)> {
        let zone = match self {
            Self::CalendarDay { zone } | Self::CalendarWeek { zone, .. } | Self::CalendarMonth { zone } => {
                zone
            }
            _ => return None,
        };
        let mut first = self.begins_with(local(ts, zone)?)?;
        // Clocks put back over midnight give the date before once more, when its successor has begun already.
        loop {
            let next = self.begins_with_next(first)?;
            let (start, end) = (first_instant(first, zone)?, first_instant(next, zone)?);
            if ts < end {
                return Some((start, end));
            }
            first = next;
        }
    }

    /// The first date of the window that holds `date`.
    fn begins_with(&self, mut date: Date) -> Option<Date> {
        let starts = |date: Date| match self {
            Self::CalendarWeek { from_sunday: true, .. } => date.weekday() == Weekday::Sunday,
            Self::CalendarWeek { from_sunday: false, .. } => date.weekday() == Weekday::Monday,
            Self::CalendarMonth { .. } => date.day() == 1,
            _ => true,
        };
        while !starts(date) {
            date = date.yesterday().ok()?;
        }
        Some(date)
    }

    /// The first date of the window after the one that begins with `first`.
    fn begins_with_next(&self, first: Date) -> Option<Date> {
        let mut date = first.tomorrow().ok()?;
        while self.begins_with(date)? != date {
            date = date.tomorrow().ok()?;
        }
        Some(date)
    }
}

/// The last start at or before `ts` on the grid `offset + k * step`.
fn last_start(ts: i64, step: i64, offset: i64) -> i128 {
    let from_anchor = i128::from(ts) - i128::from(offset);
    i128::from(ts) - from_anchor.rem_euclid(step.into())
}

fn local(ts: i64, zone: &TimeZone) -> Option<Date> {
    Some(zone.to_datetime(Timestamp::from_millisecond(ts).ok()?).date())
}

/// The first instant at which the calendar of a zone shows `date` or a later one.
fn first_instant(date: Date, zone: &TimeZone) -> Option<i64> {
    // No zone is more than 26 hours away from another; clocks are put back by a day at most.
    let utc = TimeZone::UTC.to_timestamp(date.at(0, 0, 0, 0)).ok()?.as_millisecond();
    let (mut before, mut after) = (utc - 3 * DAY, utc + 3 * DAY);
    // Where it is shown for a while, then the date before, then again, the first time counts: look from each change of
    // the clocks on.
    let changes = zone.following(Timestamp::from_millisecond(before).ok()?);
    for change in changes.map(|change| change.timestamp().as_millisecond()).take_while(|&at| at < after) {
        if local(change - 1, zone)? >= date {
            after = change - 1;
            break;
        }
        before = change - 1;
    }
    while before + 1 < after {
        let middle = before + (after - before) / 2;
        if local(middle, zone)? >= date { after = middle } else { before = middle }
    }
    Some(after)
}

const DAY: i64 = 86_400_000;

#[test]
fn dates_begin_where_the_clocks_let_them() {
    let zone = |name| TimeZone::get(name).unwrap();
    let first = |year, month, day, name| {
        let instant = first_instant(Date::new(year, month, day).unwrap(), &zone(name)).unwrap();
        Timestamp::from_millisecond(instant).unwrap().to_string()
    };
    // Midnight is skipped: the clocks went from 24:00 to 1:00.
    assert_eq!(first(2018, 11, 4, "America/Sao_Paulo"), "2018-11-04T03:00:00Z");
    // From 23:30 to 0:30.
    assert_eq!(first(1919, 3, 31, "America/Toronto"), "1919-03-31T04:30:00Z");
    // A minute past midnight back to 23:01 of the day before; the date has begun by then.
    assert_eq!(first(2006, 10, 29, "America/St_Johns"), "2006-10-29T02:30:00Z");
    assert_eq!(first(2006, 10, 30, "America/St_Johns"), "2006-10-30T03:30:00Z");
    // A date that Samoa left out begins and ends with its successor.
    assert_eq!(first(2011, 12, 30, "Pacific/Apia"), first(2011, 12, 31, "Pacific/Apia"));
}
