//! From the pipeline file to the parts that carry it out: operators, and what each takes from the source's columns.

use super::config::{KeyType, OutputFormat, OutputTime, PipelineConfig, WindowConfig};
use super::sink::{Format, KeyField, KeyKind, ResultSpec, TimeFormat};
use super::source::{ParsePlan, WindowColumns};
use crate::aggregate::{AggregateSpec, Input, InputType};
use crate::operator::OperatorSpec;

/// The operators of a pipeline, and what the source has to parse for them.
pub(super) fn operators(config: &PipelineConfig) -> (ParsePlan, Vec<OperatorSpec>) {
    let (plan, columns) = ParsePlan::of(config);
    let operators = config
        .windows
        .iter()
        .zip(&columns)
        .map(|(window, columns)| operator(window, columns, &plan))
        .collect();
    (plan, operators)
}

fn operator(window: &WindowConfig, columns: &WindowColumns, plan: &ParsePlan) -> OperatorSpec {
    let aggregates = window.aggregates.iter().zip(&columns.values).map(|(aggregate, &column)| {
        let input = aggregate.field.as_ref().zip(column).map(|(field, column)| Input {
            field: field.clone(),
            // A field of which only the presence counts is a column of ones.
            kind: plan.values.get(column).and_then(|value| value.input).unwrap_or(InputType::Int),
            column,
        });
        AggregateSpec { name: aggregate.name.clone(), function: aggregate.function, input }
    });
    OperatorSpec {
        name: window.name.clone(),
        windows: window.windows,
        allowed_lateness: window.allowed_lateness,
        mode: window.mode,
        trigger: window.trigger,
        accumulation: window.accumulation,
        aggregates: aggregates.collect(),
        key: window.key.iter().map(|key| key.field.clone()).collect(),
        sources: None,
        source_ids: None,
        key_column: columns.key,
    }
}

/// Where and how the results of a window are written.
pub(super) fn results(window: &WindowConfig) -> ResultSpec {
    let keys = window.key.iter().map(|key| KeyField {
        name: key.field.clone(),
        kind: match key.key_type {
            KeyType::Text => KeyKind::Text,
            KeyType::Int => KeyKind::Int,
        },
    });
    ResultSpec {
        name: format!("results.{}", window.name),
        directory: window.output.path.clone(),
        format: match window.output.format {
            OutputFormat::JsonLines => Format::Jsonl,
            OutputFormat::Csv => Format::Csv,
        },
        keys: keys.collect(),
        aggregates: window.aggregates.iter().map(|aggregate| aggregate.name.clone()).collect(),
        times: match window.output.time_format {
            OutputTime::Rfc3339 => TimeFormat::Rfc3339,
            OutputTime::EpochMillis => TimeFormat::EpochMillis,
        },
        metadata: window.output.metadata,
    }
}
