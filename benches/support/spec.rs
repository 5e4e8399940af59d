//! The aggregation of all benches: count, sum, min and max of one value by one key.

use floodmark::aggregate::{AggregateSpec, Function, InputType};
use floodmark::event_time::{InvalidWindow, Span, Tumbling, Windows};
use floodmark::operator::OperatorSpec;

/// Tumbling windows of so many milliseconds.
pub(crate) fn tumbling(millis: i64) -> Result<Windows, InvalidWindow> {
    Ok(Tumbling::new(Span::from_millis(millis).unwrap_or(Span::ZERO), 0)?.into())
}

/// The aggregation over these windows.
pub(crate) fn aggregated(windows: Windows) -> OperatorSpec {
    let over = |name: &str, function| AggregateSpec::over(name, function, "value", InputType::Int, 0);
    let aggregates = vec![
        AggregateSpec::count("count"),
        over("sum", Function::Sum),
        over("min", Function::Min),
        over("max", Function::Max),
    ];
    OperatorSpec::new("bench", windows, &["key"], aggregates)
}
