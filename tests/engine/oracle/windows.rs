//! Which windows an instant belongs to, and which definitions of windows are refused.

use jiff::Timestamp;
use jiff::civil::Date;
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
            Self::CalendarDay { .. } | Self::Global => true,
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
            Self::CalendarDay { zone } => {
                let (start, end) = day(ts, zone)?;
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
}

/// The last start at or before `ts` on the grid `offset + k * step`.
fn last_start(ts: i64, step: i64, offset: i64) -> i128 {
    let from_anchor = i128::from(ts) - i128::from(offset);
    i128::from(ts) - from_anchor.rem_euclid(step.into())
}

/// From the first instant of the local date to the first instant of the next date.
fn day(ts: i64, zone: &TimeZone) -> Option<(i64, i64)> {
    let date = zone.to_datetime(Timestamp::from_millisecond(ts).ok()?).date();
    let next = date.tomorrow().ok()?;
    Some((first_instant(date, zone)?, first_instant(next, zone)?))
}

fn first_instant(date: Date, zone: &TimeZone) -> Option<i64> {
    Some(zone.to_timestamp(date.at(0, 0, 0, 0)).ok()?.as_millisecond())
}
