//! Settings of a case as a definition of the engine.

use floodmark::aggregate::{AggregateSpec, Function, InputType};
use floodmark::event_time::{Span, Tumbling};
use floodmark::operator::{Accumulation, Mode as EngineMode, OperatorSpec, Trigger as EngineTrigger};

use crate::oracle::{Mode, Settings, Trigger, Windows};

pub(super) fn span(millis: i64) -> Result<Span, String> {
    Span::from_millis(millis).ok_or_else(|| format!("negative span: {millis}"))
}

/// Count, count of values, sum, min and max.
pub(super) fn aggregates(float: bool) -> Vec<AggregateSpec> {
    let input = if float { InputType::Float } else { InputType::Int };
    let over = |name: &str, function| AggregateSpec::over(name, function, "value", input, 0);
    vec![
        AggregateSpec::count("count"),
        over("count_value", Function::Count),
        over("sum", Function::Sum),
        over("min", Function::Min),
        over("max", Function::Max),
    ]
}

/// # Errors
/// Why the engine refuses the settings.
pub(super) fn operator(settings: &Settings, float: bool) -> Result<OperatorSpec, String> {
    let windows = match settings.windows {
        Windows::Tumbling { size, offset } => {
            Tumbling::new(span(size)?, offset).map_err(|error| error.to_string())?
        }
        _ => return Err("not known yet".to_owned()),
    };
    let mut spec = OperatorSpec::new("case", windows, &["key"], aggregates(float));
    spec.allowed_lateness = span(settings.allowed_lateness_ms)?;
    spec.mode = match settings.mode {
        Mode::Append => EngineMode::Append,
        Mode::Update => EngineMode::Update,
        Mode::Complete => return Err("not known yet".to_owned()),
    };
    spec.trigger = match settings.trigger {
        Trigger::EventTime => EngineTrigger::Watermark,
        Trigger::Count(n) => EngineTrigger::Count(u32::try_from(n).unwrap()),
        Trigger::Early(interval) => EngineTrigger::Early(span(interval)?),
    };
    if settings.discarding {
        spec.accumulation = Accumulation::Discarding;
    }
    Ok(spec)
}
