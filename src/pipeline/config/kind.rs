//! The kind of windows: `type`, and the lengths and names that go with each.

use super::reader::{Item, Section};
use crate::error::{Error, Result};
use crate::event_time::{
    Calendar, CalendarUnit, Cumulative, InvalidWindow, Sliding, Span, Tumbling, Weekday, Windows,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Tumbling,
    Sliding,
    Cumulative,
    Session,
    Calendar,
    Global,
}

const KINDS: [(&str, Kind); 6] = [
    ("tumbling", Kind::Tumbling),
    ("sliding", Kind::Sliding),
    ("cumulative", Kind::Cumulative),
    ("session", Kind::Session),
    ("calendar", Kind::Calendar),
    ("global", Kind::Global),
];
/// Every key that some kind takes.
const LENGTHS: [&str; 8] = ["size", "slide", "step", "gap", "unit", "zone", "week_start", "offset"];

impl Kind {
    /// The keys that this kind takes.
    const fn takes(self) -> &'static [&'static str] {
        match self {
            Self::Tumbling => &["size", "offset"],
            Self::Sliding => &["size", "slide", "offset"],
            Self::Cumulative => &["size", "step", "offset"],
            Self::Session => &["gap"],
            Self::Calendar => &["unit", "zone", "week_start"],
            Self::Global => &[],
        }
    }
}

/// Takes the kind of windows and everything that defines it.
pub(super) fn read(section: &mut Section<'_>) -> Result<Windows> {
    let kind = section
        .require("type", "add `type`: tumbling, sliding, cumulative, session, calendar or global")?
        .choice(&KINDS)?;
    refuse_foreign(section, kind)?;
    match kind {
        Kind::Tumbling => read_tumbling(section),
        Kind::Sliding => read_sliding(section),
        Kind::Cumulative => read_cumulative(section),
        Kind::Session => {
            let gap = section.require("gap", "add the pause that ends a session, such as `gap = \"30m\"`")?;
            let span = gap.positive_span()?;
            Windows::session(span).map_err(|error| gap.error(error.to_string(), "choose a longer gap"))
        }
        Kind::Calendar => read_calendar(section),
        Kind::Global => Ok(Windows::Global),
    }
}

/// A length that goes with another kind is a slip, not something to pass over.
fn refuse_foreign(section: &mut Section<'_>, kind: Kind) -> Result<()> {
    let name = KINDS.iter().find(|(_, known)| *known == kind).map_or("", |(name, _)| name);
    for key in LENGTHS.iter().filter(|key| !kind.takes().contains(key)) {
        if let Some(item) = section.take(key) {
            let remedy = match kind.takes() {
                [] => "remove it".to_owned(),
                takes => {
                    format!("remove it, or choose another type: {name} windows take {}", takes.join(", "))
                }
            };
            return Err(item.error(format!("has no meaning for {name} windows"), remedy));
        }
    }
    Ok(())
}

fn read_tumbling(section: &mut Section<'_>) -> Result<Windows> {
    let size = section.require("size", "add the length of a window, such as `size = \"1h\"`")?;
    let (span, offset) = (size.positive_span()?, Offset::take(section)?);
    Tumbling::new(span, offset.millis).map(Windows::from).map_err(|error| offset.blame(&error, &size, "size"))
}

fn read_sliding(section: &mut Section<'_>) -> Result<Windows> {
    let size = section.require("size", "add the length of a window, such as `size = \"10m\"`")?;
    let slide = section.require("slide", "add the time between two starts, such as `slide = \"1m\"`")?;
    let (size_span, slide_span) = (size.positive_span()?, slide.positive_span()?);
    let offset = Offset::take(section)?;
    refuse_too_many(&slide, size_span, slide_span)?;
    Sliding::new(size_span, slide_span, offset.millis)
        .map(Windows::from)
        .map_err(|error| offset.blame(&error, &slide, "slide"))
}

fn read_cumulative(section: &mut Section<'_>) -> Result<Windows> {
    let size = section.require("size", "add the length of the longest window, such as `size = \"1d\"`")?;
    let step = section.require("step", "add by how much windows grow, such as `step = \"1h\"`")?;
    let (size_span, step_span) = (size.positive_span()?, step.positive_span()?);
    let offset = Offset::take(section)?;
    refuse_too_many(&step, size_span, step_span)?;
    Cumulative::new(size_span, step_span, offset.millis).map(Windows::from).map_err(|error| match error {
        InvalidWindow::UnevenStep { .. } => step.error(
            format!("the size, {size_span}, is not a multiple of the step, {step_span}"),
            "choose a step that divides the size",
        ),
        error => offset.blame(&error, &size, "size"),
    })
}

/// Windows that one event may belong to. More are a slip in the units, and would cost as much at each firing.
const OVERLAP_MAX: i64 = 100_000;

fn refuse_too_many(item: &Item<'_>, size: Span, step: Span) -> Result<()> {
    let overlap = size.as_millis() / step.as_millis().max(1);
    if overlap <= OVERLAP_MAX {
        return Ok(());
    }
    let message = format!("each event would belong to {overlap} windows; at most {OVERLAP_MAX} are possible");
    Err(item.error(message, "choose a longer step, or check the units"))
}

fn read_calendar(section: &mut Section<'_>) -> Result<Windows> {
    const UNITS: [(&str, CalendarUnit); 3] =
        [("day", CalendarUnit::Day), ("week", CalendarUnit::Week), ("month", CalendarUnit::Month)];
    const DAYS: [(&str, Weekday); 7] = [
        ("monday", Weekday::Monday),
        ("tuesday", Weekday::Tuesday),
        ("wednesday", Weekday::Wednesday),
        ("thursday", Weekday::Thursday),
        ("friday", Weekday::Friday),
        ("saturday", Weekday::Saturday),
        ("sunday", Weekday::Sunday),
    ];
    let unit = section.require("unit", "add `unit = \"day\"`: day, week or month")?.choice(&UNITS)?;
    let zone = section.require("zone", "add the time zone, such as `zone = \"Europe/Berlin\"` or \"UTC\"")?;
    let week_start = section.take("week_start");
    if let (Some(item), false) = (&week_start, unit == CalendarUnit::Week) {
        return Err(item.error("has a meaning for weeks only", "remove it, or use `unit = \"week\"`"));
    }
    let week_start = week_start.map_or(Ok(Weekday::Monday), |item| item.choice(&DAYS))?;
    let name = zone.name()?;
    Calendar::new(unit, &name, week_start).map(Windows::from).map_err(|_| {
        let message = format!("there is no time zone \"{name}\"");
        zone.error(message, "use a name of the IANA database, such as \"America/New_York\" or \"UTC\"")
    })
}

/// By how much window starts are moved, and where that was said.
struct Offset<'a> {
    item: Option<Item<'a>>,
    millis: i64,
}

impl<'a> Offset<'a> {
    fn take(section: &mut Section<'a>) -> Result<Self> {
        let item = section.take("offset");
        let millis = item.as_ref().map_or(Ok(0), Item::millis)?;
        Ok(Self { item, millis })
    }

    /// The error at the place that caused it: the offset, or else the length that it is compared with.
    fn blame(&self, error: &InvalidWindow, length: &Item<'_>, what: &str) -> Error {
        match (error, &self.item) {
            (InvalidWindow::OffsetTooLong { size_ms, .. }, Some(item)) => {
                let span = Span::from_millis(*size_ms).unwrap_or(Span::ZERO);
                let reaches = if what == "size" { "a whole window" } else { "the next window" };
                item.error(
                    format!("the offset reaches {reaches}: the {what} is {span}"),
                    format!("choose an offset between -{what} and {what}, both excluded"),
                )
            }
            _ => length.error(error.to_string(), format!("choose another {what}")),
        }
    }
}
