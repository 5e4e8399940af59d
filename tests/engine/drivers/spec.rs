//! Settings of a case as a definition of the engine.

use floodmark::aggregate::{AggregateSpec, Function, InputType};
use floodmark::event_time::{
    Calendar, CalendarUnit, Cumulative, InvalidWindow, Sliding, Span, Tumbling, Windows as EngineWindows,
};
use floodmark::operator::{
    Accumulation, Advance, Mode as EngineMode, OperatorSpec, Repeat, Trigger as EngineTrigger,
};

use jiff::civil::Weekday;

use crate::oracle::{Mode, Profile, Rule, Settings, Trigger, Windows};

pub(crate) fn span(millis: i64) -> Result<Span, String> {
    Span::from_millis(millis).ok_or_else(|| format!("negative span: {millis}"))
}

/// Count, count of values, sum, min and max.
fn aggregates(real: bool) -> Vec<AggregateSpec> {
    let input = if real { InputType::Float } else { InputType::Int };
    let over = |name: &str, function| AggregateSpec::over(name, function, "value", input, 0);
    vec![
        AggregateSpec::count("count"),
        over("count_value", Function::Count),
        over("sum", Function::Sum),
        over("min", Function::Min),
        over("max", Function::Max),
    ]
}

fn windows(windows: &Windows) -> Result<EngineWindows, String> {
    let invalid = |error: InvalidWindow| error.to_string();
    match windows {
        Windows::Tumbling { size, offset } => {
            Tumbling::new(span(*size)?, *offset).map(Into::into).map_err(invalid)
        }
        Windows::Sliding { size, slide, offset } => {
            Sliding::new(span(*size)?, span(*slide)?, *offset).map(Into::into).map_err(invalid)
        }
        Windows::Cumulate { max_size, step } => {
            Cumulative::new(span(*max_size)?, span(*step)?, 0).map(Into::into).map_err(invalid)
        }
        Windows::Session { gap } => EngineWindows::session(span(*gap)?).map_err(invalid),
        Windows::CalendarDay { zone } => {
            EngineWindows::days(zone.iana_name().unwrap_or("UTC")).map_err(invalid)
        }
        Windows::CalendarWeek { zone, from_sunday } => {
            let start = if *from_sunday { Weekday::Sunday } else { Weekday::Monday };
            let name = zone.iana_name().unwrap_or("UTC");
            Calendar::new(CalendarUnit::Week, name, start).map(Into::into).map_err(invalid)
        }
        Windows::CalendarMonth { zone } => {
            let name = zone.iana_name().unwrap_or("UTC");
            Calendar::new(CalendarUnit::Month, name, Weekday::Monday).map(Into::into).map_err(invalid)
        }
        Windows::UnknownZone => EngineWindows::days("Mars/Olympus").map_err(invalid),
        Windows::Global => Ok(EngineWindows::Global),
    }
}

fn repeat(rule: Rule) -> Result<Repeat, String> {
    Ok(match rule {
        Rule::Never => Repeat::Never,
        Rule::Each => Repeat::Each,
        Rule::Count(n) => Repeat::Count(u32::try_from(n).unwrap()),
        Rule::EventTime(interval) => Repeat::EventTime(span(interval)?),
        Rule::Clock(interval) => Repeat::Interval(span(interval)?),
    })
}

/// # Errors
/// Why the engine refuses the settings.
pub(crate) fn operator(settings: &Settings, real: bool) -> Result<OperatorSpec, String> {
    let mut spec = OperatorSpec::new("case", windows(&settings.windows)?, &["key"], aggregates(real));
    spec.allowed_lateness = span(settings.allowed_lateness_ms)?;
    spec.mode = match settings.mode {
        Mode::Append => EngineMode::Append,
        Mode::Update => EngineMode::Update,
        Mode::Complete => EngineMode::Complete,
    };
    spec.trigger = match settings.trigger {
        Trigger::EventTime => EngineTrigger::Watermark,
        Trigger::Count(n) => EngineTrigger::Count(u32::try_from(n).unwrap()),
        Trigger::Early(interval) => EngineTrigger::Early(span(interval)?),
        // The same thing in fewer words.
        Trigger::Composite { early: Rule::Clock(early), late: Rule::Clock(late) } if early == late => {
            EngineTrigger::Interval(span(early)?)
        }
        Trigger::Composite { early, late } => {
            EngineTrigger::Composite { early: repeat(early)?, late: repeat(late)? }
        }
    };
    spec.retractions = settings.retractions;
    if settings.discarding {
        spec.accumulation = Accumulation::Discarding;
    }
    if settings.profile == Profile::Batch {
        spec.advance = Advance::Batch;
    }
    Ok(spec)
}
