//! Windows that follow the calendar of a time zone: days of 23, 24 or 25 hours, weeks, months.

use std::fmt;

use jiff::civil::{Date, Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use serde::{Deserialize, Serialize};

use super::{EventTime, InvalidWindow, Window};

/// Changes of a zone's clocks that its fingerprint covers: those of about 32 years.
const RULES_COMPARED: usize = 64;

/// Length of calendar windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CalendarUnit {
    /// From the first instant of a date to the first instant of the next.
    Day,
    /// Seven dates from the first day of the week on.
    Week,
    /// A month of the Gregorian calendar.
    Month,
}

/// Days, weeks or months of a time zone.
///
/// A window runs from the first instant of its first date to the first instant of the date after its last, whatever
/// the clocks do in between. Borders follow the rules of the time zone database that this build carries, or the
/// system's where it has one.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "Definition", into = "Definition")]
pub struct Calendar {
    definition: Definition,
    zone: TimeZone,
}

/// What a calendar is made from, and how it is written in definitions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Definition {
    unit: CalendarUnit,
    zone: String,
    // 1 is Monday, 7 is Sunday.
    week_start: i8,
}

impl TryFrom<Definition> for Calendar {
    type Error = InvalidWindow;

    fn try_from(definition: Definition) -> Result<Self, InvalidWindow> {
        let zone = TimeZone::get(&definition.zone)
            .map_err(|_| InvalidWindow::UnknownZone { zone: definition.zone.clone() })?;
        Weekday::from_monday_one_offset(definition.week_start).map_err(|_| InvalidWindow::WeekStart)?;
        Ok(Self { definition, zone })
    }
}

impl From<Calendar> for Definition {
    fn from(calendar: Calendar) -> Self {
        calendar.definition
    }
}

impl PartialEq for Calendar {
    fn eq(&self, other: &Self) -> bool {
        self.definition == other.definition
    }
}

impl Eq for Calendar {}

impl std::hash::Hash for Calendar {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.definition.hash(state);
    }
}

impl fmt::Debug for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.definition.fmt(f)
    }
}

impl Calendar {
    /// Windows of one `unit` each in the IANA time zone called `zone`, weeks from `week_start` on.
    ///
    /// # Errors
    /// [`InvalidWindow::UnknownZone`] when there is no such zone.
    pub fn new(unit: CalendarUnit, zone: &str, week_start: Weekday) -> Result<Self, InvalidWindow> {
        let week_start = week_start.to_monday_one_offset();
        Definition { unit, zone: zone.to_owned(), week_start }.try_into()
    }

    /// Length of the windows.
    #[must_use]
    pub const fn unit(&self) -> CalendarUnit {
        self.definition.unit
    }

    /// Name of the time zone.
    #[must_use]
    pub fn zone(&self) -> &str {
        &self.definition.zone
    }

    /// The window that holds `time`, or `None` outside the years −9999 to 9999.
    #[must_use]
    pub fn window_of(&self, time: EventTime) -> Option<Window> {
        let date =
            Timestamp::from_millisecond(time.as_millis()).ok()?.to_zoned_datetime(self.zone.clone()).date();
        let first = self.first_date(date)?;
        let next = match self.definition.unit {
            CalendarUnit::Day => first.checked_add(1.day()),
            CalendarUnit::Week => first.checked_add(1.week()),
            CalendarUnit::Month => first.checked_add(1.month()),
        };
        let window = Window { start: self.first_instant(first)?, end: self.first_instant(next.ok()?)? };
        // A date that a zone skipped is no window; its neighbours meet.
        (window.start <= time && time < window.end).then_some(window)
    }

    /// A number that is the same as long as the clocks of the zone change at the same moments: a checksum of its offset
    /// at `from` and of the next 64 changes. For telling whether the rules are those of an earlier time.
    #[must_use]
    pub fn rules_fingerprint(&self, from: EventTime) -> u32 {
        let from = Timestamp::from_millisecond(from.as_millis()).unwrap_or(Timestamp::UNIX_EPOCH);
        let mut crc = crc32fast::Hasher::new();
        crc.update(&self.zone.to_offset(from).seconds().to_le_bytes());
        for change in self.zone.following(from).take(RULES_COMPARED) {
            crc.update(&change.timestamp().as_second().to_le_bytes());
            crc.update(&change.offset().seconds().to_le_bytes());
        }
        crc.finalize()
    }

    /// The window that ends at `end`, which must be one of this definition's ends.
    #[must_use]
    pub fn window_ending(&self, end: EventTime) -> Window {
        let inside = EventTime::from_millis(end.as_millis().saturating_sub(1));
        self.window_of(inside).unwrap_or(Window { start: inside, end })
    }

    fn first_date(&self, date: Date) -> Option<Date> {
        match self.definition.unit {
            CalendarUnit::Day => Some(date),
            CalendarUnit::Week => {
                let start = Weekday::from_monday_one_offset(self.definition.week_start).ok()?;
                let days = i64::from(start.until(date.weekday()));
                date.checked_sub(days.days()).ok()
            }
            CalendarUnit::Month => Some(date.first_of_month()),
        }
    }

    /// The first instant of a date, which is not midnight where the clocks jump over it.
    fn first_instant(&self, date: Date) -> Option<EventTime> {
        let zoned = self.zone.to_zoned_datetime(date.to_datetime(Time::midnight())).ok()?;
        Some(EventTime::from_millis(zoned.timestamp().as_millisecond()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: i64 = 3_600_000;

    fn at(text: &str) -> EventTime {
        EventTime::from_millis(text.parse::<Timestamp>().unwrap().as_millisecond())
    }

    fn calendar(unit: CalendarUnit, zone: &str) -> Calendar {
        Calendar::new(unit, zone, Weekday::Monday).unwrap()
    }

    fn hours(zone: &str, time: &str) -> i64 {
        let window = calendar(CalendarUnit::Day, zone).window_of(at(time)).unwrap();
        (window.end.as_millis() - window.start.as_millis()) / HOUR
    }

    #[test]
    fn days_have_23_24_or_25_hours() {
        assert_eq!(hours("America/Los_Angeles", "2021-03-14T12:00:00Z"), 23);
        assert_eq!(hours("America/Los_Angeles", "2021-11-07T12:00:00Z"), 25);
        assert_eq!(hours("America/Los_Angeles", "2021-06-01T12:00:00Z"), 24);
        assert_eq!(hours("UTC", "1945-03-19T12:00:00Z"), 24);
    }

    #[test]
    fn a_date_without_midnight_starts_with_its_first_instant() {
        let days = calendar(CalendarUnit::Day, "America/Sao_Paulo");
        let window = days.window_of(at("2018-11-04T12:00:00Z")).unwrap();
        assert_eq!(window, Window { start: at("2018-11-04T03:00:00Z"), end: at("2018-11-05T02:00:00Z") });
    }

    #[test]
    fn a_skipped_date_leaves_no_gap() {
        let days = calendar(CalendarUnit::Day, "Pacific/Apia");
        let last = days.window_of(at("2011-12-30T09:59:59.999Z")).unwrap();
        let next = days.window_of(at("2011-12-30T10:00:00Z")).unwrap();
        assert_eq!(last.end, next.start);
    }

    #[test]
    fn weeks_start_where_asked_and_months_with_their_first() {
        let sunday = Calendar::new(CalendarUnit::Week, "Europe/Berlin", Weekday::Sunday).unwrap();
        let week = sunday.window_of(at("2024-03-28T12:00:00Z")).unwrap();
        assert_eq!(week, Window { start: at("2024-03-23T23:00:00Z"), end: at("2024-03-30T23:00:00Z") });
        let monday =
            calendar(CalendarUnit::Week, "Europe/Berlin").window_of(at("2024-03-28T12:00:00Z")).unwrap();
        assert_eq!(monday, Window { start: at("2024-03-24T23:00:00Z"), end: at("2024-03-31T22:00:00Z") });
        let month =
            calendar(CalendarUnit::Month, "Asia/Tokyo").window_of(at("2024-02-29T16:00:00Z")).unwrap();
        assert_eq!(month, Window { start: at("2024-02-29T15:00:00Z"), end: at("2024-03-31T15:00:00Z") });
    }

    #[test]
    fn definitions_survive_json_and_name_unknown_zones() {
        let days = calendar(CalendarUnit::Day, "Asia/Kathmandu");
        let json = serde_json::to_string(&days).unwrap();
        assert_eq!(serde_json::from_str::<Calendar>(&json).unwrap(), days);
        assert!(serde_json::from_str::<Calendar>(&json.replace("Kathmandu", "Nowhere")).is_err());
    }

    #[test]
    fn the_fingerprint_of_rules_follows_the_clocks_from_the_moment_asked_for() {
        let print = |zone: &str, time: &str| calendar(CalendarUnit::Day, zone).rules_fingerprint(at(time));
        // The same clocks since 1980 under two names, and other clocks before.
        assert_eq!(
            print("Europe/Berlin", "2024-01-01T00:00:00Z"),
            print("Europe/Vienna", "2024-01-01T00:00:00Z")
        );
        assert_ne!(
            print("Europe/Berlin", "1945-01-01T00:00:00Z"),
            print("Europe/Vienna", "1945-01-01T00:00:00Z")
        );
        assert_ne!(
            print("Europe/Berlin", "2024-01-01T00:00:00Z"),
            print("Europe/Berlin", "2024-05-01T00:00:00Z")
        );
        assert_ne!(print("Asia/Tokyo", "2024-01-01T00:00:00Z"), print("UTC", "2024-01-01T00:00:00Z"));
    }

    proptest! {
        #[test]
        fn windows_meet_and_hold_their_events(
            millis in -4_000_000_000_000_i64..8_000_000_000_000,
            zone in prop::sample::select(vec!["UTC", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo"]),
            unit in prop::sample::select(vec![CalendarUnit::Day, CalendarUnit::Week, CalendarUnit::Month]),
        ) {
            let calendar = calendar(unit, zone);
            let time = EventTime::from_millis(millis);
            let window = calendar.window_of(time).unwrap();
            prop_assert!(window.start <= time && time < window.end);
            prop_assert_eq!(calendar.window_ending(window.end), window);
            prop_assert_eq!(calendar.window_of(window.end).unwrap().start, window.end);
        }
    }
}
