//! Event time from a field, in the declared format and no other, and the bounds within which it is believed.
//!
//! Formats are never guessed. Whatever is finer than a millisecond is rounded down. A leap second (`:60`) counts as
//! the last second of its minute. Local times that a zone skips are moved forward by the gap, those it repeats are
//! taken the first time round.

use jiff::tz::TimeZone;

use super::number::{Integer, integer};
use super::reject::{Refusal, RejectReason, shown};
use super::rfc3339;
use super::token::{Kind, Token};
use crate::event_time::{EventTime, Windows};
use crate::operator::Limits;
use crate::pipeline::config::{EpochUnit, TimeConfig, TimeFormat};

/// Years that a time without configured bounds is compared with when another unit is suggested: 1990 to 2100.
const PLAUSIBLE_MS: std::ops::Range<i64> = 631_152_000_000..4_102_444_800_000;

/// Only times further than this from the epoch, in milliseconds, can have a window that reaches past the end of time.
const FAR_OUT: u64 = u64::MAX / 8;

/// Reads event times.
#[derive(Clone, Debug)]
pub(super) struct TimeReader {
    config: TimeConfig,
    /// Times believed in this block.
    limits: Limits,
    /// Windows that a time must fit into.
    windows: Vec<Windows>,
    /// The unit is what a column says of itself, so no other one is suggested.
    unit_is_certain: bool,
}

impl TimeReader {
    pub(super) fn new(config: TimeConfig) -> Self {
        Self { config, limits: Limits::NONE, windows: Vec::new(), unit_is_certain: false }
    }

    /// Refuses times for which one of `windows` would reach past the end of time. Such a time moves nothing, neither
    /// the watermark nor the order in which files are read.
    pub(super) fn within(self, windows: Vec<Windows>) -> Self {
        Self { windows, ..self }
    }

    /// The bounds for the records to come.
    pub(super) const fn limits(&self) -> Limits {
        self.limits
    }

    /// Reads numbers of this unit, which the type of their column says.
    #[cfg(feature = "arrow")]
    pub(super) fn of_column(config: TimeConfig, unit: EpochUnit) -> Self {
        let config = TimeConfig { format: TimeFormat::Epoch(unit), ..config };
        Self { unit_is_certain: true, ..Self::new(config) }
    }

    /// How times are written.
    #[cfg(feature = "arrow")]
    pub(super) fn format(&self) -> &TimeFormat {
        &self.config.format
    }

    /// True when every time from `earliest` to `latest` is certain to be an event's.
    #[cfg(feature = "arrow")]
    pub(super) fn believes_all(&self, earliest: i64, latest: i64) -> bool {
        let (from, to) = self.limits.range();
        let near = |millis: i64| millis.unsigned_abs() <= FAR_OUT || self.windows.is_empty();
        near(earliest) && near(latest) && from.as_millis() <= earliest && latest <= to.as_millis()
    }

    /// Takes the bounds for the records to come.
    pub(super) fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// The time that `token` stands for, where there is one: an absent or empty one is none.
    pub(super) fn read_optional(
        &self,
        text: &[u8],
        token: Token,
        scratch: &mut Vec<u8>,
    ) -> Result<Option<i64>, Refusal> {
        match self.read(text, token, scratch) {
            Ok(millis) => Ok(Some(millis)),
            Err(refusal) => match refusal.reason {
                RejectReason::MissingTimestamp | RejectReason::NullTimestamp => Ok(None),
                _ => Err(refusal),
            },
        }
    }

    /// The event time that `token` stands for, in milliseconds.
    pub(super) fn read(&self, text: &[u8], token: Token, scratch: &mut Vec<u8>) -> Result<i64, Refusal> {
        let millis = match token.kind {
            Kind::Absent => {
                return Err(self.refuse(RejectReason::MissingTimestamp, "the record has no such field"));
            }
            Kind::Null => return Err(self.refuse(RejectReason::NullTimestamp, "the time is null")),
            Kind::Cell | Kind::QuotedCell if token.start == token.end => {
                return Err(self.refuse(RejectReason::NullTimestamp, "the time is empty"));
            }
            Kind::Bool | Kind::Compound => {
                return Err(self.unparsable(token.raw(text), "is neither text nor a number"));
            }
            Kind::Number => self.number(token.raw(text))?,
            Kind::Text | Kind::EscapedText => self.text(token, text, scratch)?,
            Kind::Cell | Kind::QuotedCell => match self.config.format {
                TimeFormat::Epoch(_) => self.number(token.raw(text))?,
                _ => self.text(token, text, scratch)?,
            },
        };
        self.check(millis, token.raw(text))
    }

    fn refuse(&self, reason: RejectReason, detail: impl Into<String>) -> Refusal {
        Refusal::field(reason, &self.config.field, detail)
    }

    fn unparsable(&self, text: &[u8], problem: impl std::fmt::Display) -> Refusal {
        self.refuse(RejectReason::UnparsableTimestamp, format!("`{}` {problem}", shown(text)))
    }

    fn text(&self, token: Token, text: &[u8], scratch: &mut Vec<u8>) -> Result<i64, Refusal> {
        let Some(text) = token.unescaped(text, scratch) else {
            return Err(self.unparsable(token.raw(text), "holds half a surrogate pair"));
        };
        match &self.config.format {
            // A row that was no text is written as one with such times.
            TimeFormat::Rfc3339 | TimeFormat::Column => match rfc3339::millis(text) {
                Some(millis) => Ok(millis),
                None => by_library(text)
                    .map_err(|error| self.unparsable(text, format!("is not RFC 3339: {error}"))),
            },
            TimeFormat::Strftime { pattern, zone } => by_pattern(text, pattern, zone.as_ref())
                .map_err(|error| self.unparsable(text, format!("does not follow `{pattern}`: {error}"))),
            TimeFormat::Epoch(unit) => {
                let detail = format!("`{}` is text where {} is a number", shown(text), unit.name());
                let number = integer(text) != Integer::NotANumber;
                let reason =
                    if number { RejectReason::NumberAsString } else { RejectReason::UnparsableTimestamp };
                Err(self.refuse(reason, detail))
            }
        }
    }

    fn number(&self, text: &[u8]) -> Result<i64, Refusal> {
        let TimeFormat::Epoch(unit) = self.config.format else {
            return Err(
                self.unparsable(text, "is a number where text is declared; numbers are epoch_s … epoch_ns")
            );
        };
        let millis = match (integer(text), unit) {
            (Integer::Exact(value), _) => to_millis(value, unit),
            (Integer::TooLarge, _) => None,
            (Integer::Fraction, EpochUnit::Seconds) => match decimal_millis(text) {
                Some(millis) => Some(millis),
                None => return Err(self.unparsable(text, "is not written in plain digits")),
            },
            (Integer::Fraction, _) => {
                return Err(self.unparsable(text, format!("has a fraction where {} is whole", unit.name())));
            }
            (Integer::NotANumber, _) => return Err(self.unparsable(text, "is not a number")),
        };
        millis.ok_or_else(|| {
            let detail = format!("`{}` is beyond what event time can hold", shown(text));
            self.refuse(RejectReason::TimestampOutOfBounds, detail + &self.other_unit(text))
        })
    }

    fn check(&self, millis: i64, text: &[u8]) -> Result<i64, Refusal> {
        let time = EventTime::from_millis(millis);
        // Only far out can a window's bounds leave the range; nearer times need not be tried.
        let far_out = millis.unsigned_abs() > FAR_OUT;
        if far_out && self.windows.iter().any(|windows| !windows.reaches(time)) {
            let detail = format!("no window can hold {millis} ms");
            return Err(self.refuse(RejectReason::TimestampOutOfRange, detail + &self.other_unit(text)));
        }
        match self.limits.check(time) {
            None => Ok(millis),
            Some(rejection) => {
                Err(self.refuse(rejection.into(), format!("{time} {rejection}") + &self.other_unit(text)))
            }
        }
    }

    /// A hint, when the number would be believed in another unit.
    fn other_unit(&self, text: &[u8]) -> String {
        let (TimeFormat::Epoch(declared), Integer::Exact(value)) = (&self.config.format, integer(text))
        else {
            return String::new();
        };
        if self.unit_is_certain {
            return String::new();
        }
        let (from, to) = self.limits.range();
        let low = if from == EventTime::MIN { PLAUSIBLE_MS.start } else { from.as_millis() };
        let high = if to == EventTime::MAX { PLAUSIBLE_MS.end } else { to.as_millis() };
        let fits = |unit: &EpochUnit| {
            unit != declared && to_millis(value, *unit).is_some_and(|millis| (low..=high).contains(&millis))
        };
        match EpochUnit::ALL.iter().find(|unit| fits(unit)) {
            Some(unit) => format!("; it would fit as {}, is `format` right?", unit.name()),
            None => String::new(),
        }
    }
}

/// Milliseconds of a whole number of units, rounded down; `None` when they do not fit.
pub(super) fn to_millis(value: i64, unit: EpochUnit) -> Option<i64> {
    match unit {
        EpochUnit::Seconds => value.checked_mul(1_000),
        EpochUnit::Millis => Some(value),
        EpochUnit::Micros => Some(EventTime::from_micros(value).as_millis()),
        EpochUnit::Nanos => Some(EventTime::from_nanos(value).as_millis()),
    }
}

/// Milliseconds of decimal seconds such as `1700000000.123`, exact and rounded down. No exponents.
fn decimal_millis(text: &[u8]) -> Option<i64> {
    let point = memchr::memchr(b'.', text)?;
    let (whole, fraction) = (&text[..point], &text[point + 1..]);
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let Integer::Exact(seconds) = integer(whole) else { return None };
    let place = |index: usize| fraction.get(index).map_or(0, |digit| i64::from(digit - b'0'));
    let millis = place(0) * 100 + place(1) * 10 + place(2);
    let finer = fraction.iter().skip(3).any(|&digit| digit != b'0');
    let whole_millis = seconds.checked_mul(1_000)?;
    if whole.first() == Some(&b'-') {
        whole_millis.checked_sub(millis + i64::from(finer))
    } else {
        whole_millis.checked_add(millis)
    }
}

fn by_library(text: &[u8]) -> Result<i64, String> {
    let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
    let timestamp: jiff::Timestamp = text.parse().map_err(|error: jiff::Error| error.to_string())?;
    floor_millis(timestamp)
}

fn by_pattern(text: &[u8], pattern: &str, zone: Option<&TimeZone>) -> Result<i64, String> {
    let parsed = jiff::fmt::strtime::parse(pattern, text).map_err(|error| error.to_string())?;
    let timestamp = match zone {
        None => parsed.to_timestamp(),
        Some(zone) => parsed.to_datetime().and_then(|local| zone.to_ambiguous_timestamp(local).compatible()),
    };
    floor_millis(timestamp.map_err(|error| error.to_string())?)
}

fn floor_millis(timestamp: jiff::Timestamp) -> Result<i64, String> {
    i64::try_from(timestamp.as_nanosecond().div_euclid(1_000_000)).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_time::Span;
    use crate::operator::Bounds;
    use crate::pipeline::config::TimeBounds;

    fn reader(format: TimeFormat) -> TimeReader {
        TimeReader::new(TimeConfig { field: "ts".to_owned(), format, bounds: TimeBounds::default() })
    }

    fn read(reader: &TimeReader, kind: Kind, text: &str) -> Result<i64, Refusal> {
        reader.read(text.as_bytes(), Token::new(kind, 0, text.len()), &mut Vec::new())
    }

    fn reason(found: Result<i64, Refusal>) -> RejectReason {
        found.unwrap_err().reason
    }

    #[test]
    fn numbers_are_floored_to_milliseconds() {
        let cases = [
            (EpochUnit::Seconds, "1700000000", 1_700_000_000_000),
            (EpochUnit::Seconds, "1700000000.123", 1_700_000_000_123),
            (EpochUnit::Seconds, "1700000000.1239999999999", 1_700_000_000_123),
            (EpochUnit::Seconds, "-0.0005", -1),
            (EpochUnit::Seconds, "-1.5", -1_500),
            (EpochUnit::Millis, "-782188372531", -782_188_372_531),
            (EpochUnit::Micros, "1000500", 1_000),
            (EpochUnit::Micros, "1000999", 1_000),
            (EpochUnit::Micros, "-1", -1),
            (EpochUnit::Nanos, "-1", -1),
            (EpochUnit::Nanos, "1999999", 1),
        ];
        for (unit, text, expected) in cases {
            for kind in [Kind::Number, Kind::Cell] {
                assert_eq!(read(&reader(TimeFormat::Epoch(unit)), kind, text), Ok(expected), "{text}");
            }
        }
    }

    #[test]
    fn what_is_not_in_the_declared_format_is_refused_by_name() {
        let millis = reader(TimeFormat::Epoch(EpochUnit::Millis));
        assert_eq!(reason(read(&millis, Kind::Text, "1700000000000")), RejectReason::NumberAsString);
        assert_eq!(
            reason(read(&millis, Kind::Text, "2013-01-01T00:00:00Z")),
            RejectReason::UnparsableTimestamp
        );
        assert_eq!(reason(read(&millis, Kind::Number, "1.5")), RejectReason::UnparsableTimestamp);
        assert_eq!(
            reason(read(&millis, Kind::Number, "92233720368547758070")),
            RejectReason::TimestampOutOfBounds
        );
        assert_eq!(reason(read(&millis, Kind::Null, "null")), RejectReason::NullTimestamp);
        assert_eq!(reason(read(&millis, Kind::Cell, "")), RejectReason::NullTimestamp);
        assert_eq!(reason(read(&millis, Kind::Absent, "")), RejectReason::MissingTimestamp);
        assert_eq!(reason(read(&millis, Kind::Bool, "true")), RejectReason::UnparsableTimestamp);
        let seconds = reader(TimeFormat::Epoch(EpochUnit::Seconds));
        assert_eq!(
            reason(read(&seconds, Kind::Number, "9223372036854775807")),
            RejectReason::TimestampOutOfBounds
        );
        assert_eq!(reason(read(&seconds, Kind::Number, "1.7e9")), RejectReason::UnparsableTimestamp);
        let text = reader(TimeFormat::Rfc3339);
        assert_eq!(reason(read(&text, Kind::Number, "1700000000000")), RejectReason::UnparsableTimestamp);
        assert_eq!(reason(read(&text, Kind::Text, "2013-01-01T00:00:00")), RejectReason::UnparsableTimestamp);
    }

    #[test]
    fn text_may_have_any_offset_and_a_leap_second() {
        let text = reader(TimeFormat::Rfc3339);
        assert_eq!(read(&text, Kind::Text, "1970-01-01T05:30:00.25+05:30"), Ok(250));
        assert_eq!(read(&text, Kind::Text, "1970-01-01 00:00:01z"), Ok(1_000));
        assert_eq!(
            read(&text, Kind::Text, "2016-12-31T23:59:60Z"),
            read(&text, Kind::Text, "2016-12-31T23:59:59Z")
        );
        assert_eq!(read(&text, Kind::EscapedText, "1970-01-01T00:00:01\\u005a"), Ok(1_000));
        assert_eq!(read(&text, Kind::Text, "0001-01-01T00:00:00Z"), Ok(-62_135_596_800_000));
    }

    #[test]
    fn a_zone_decides_skipped_and_repeated_local_times() {
        let zone = Some(TimeZone::get("America/New_York").unwrap());
        let pattern = "%Y-%m-%d %H:%M:%S".to_owned();
        let local = reader(TimeFormat::Strftime { pattern, zone });
        let utc = |text: &str| text.parse::<jiff::Timestamp>().unwrap().as_millisecond();
        assert_eq!(read(&local, Kind::Text, "2013-03-10 02:30:00"), Ok(utc("2013-03-10T07:30:00Z")));
        assert_eq!(read(&local, Kind::Text, "2013-11-03 01:30:00"), Ok(utc("2013-11-03T05:30:00Z")));
        assert_eq!(reason(read(&local, Kind::Text, "10/03/2013")), RejectReason::UnparsableTimestamp);
    }

    #[test]
    fn times_out_of_bounds_are_refused_and_the_right_unit_is_suggested() {
        let min = Some(EventTime::from_millis(946_684_800_000));
        let bounds = Bounds { min, max_ahead: Span::from_millis(3_600_000), ..Bounds::default() };
        let mut bounded = reader(TimeFormat::Epoch(EpochUnit::Millis));
        bounded.set_limits(bounds.limits(Some(1_789_300_800_000), std::iter::empty()));
        assert_eq!(read(&bounded, Kind::Number, "1789304400000"), Ok(1_789_304_400_000));
        let ahead = read(&bounded, Kind::Number, "1789387140000").unwrap_err();
        assert_eq!(ahead.reason, RejectReason::TimestampAheadOfClock);
        assert!(!ahead.detail.contains("would fit"), "{}", ahead.detail);
        let seconds = read(&bounded, Kind::Number, "1700000000").unwrap_err();
        assert_eq!(seconds.reason, RejectReason::TimestampBeforeMin);
        assert!(seconds.detail.contains("would fit as epoch_s"), "{}", seconds.detail);
        let micros = read(&bounded, Kind::Number, "1700000000000000").unwrap_err();
        assert!(micros.detail.contains("would fit as epoch_us"), "{}", micros.detail);
    }
}
