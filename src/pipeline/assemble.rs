//! From the pipeline file to the parts that carry it out: operators, and what each takes from the source's columns.

use std::time::Duration;

use super::config::{KeyType, OutputFormat, OutputTime, PipelineConfig, WindowConfig};
use super::sink::{Format, KeyField, KeyKind, ResultSpec, TimeFormat};
use super::source::{ParsePlan, ValueField, WindowColumns};
use crate::aggregate::{AggregateSpec, Input, InputType};
use crate::event_time::Span;
use crate::operator::{OperatorSpec, SourceSpec};

/// The operators of a pipeline, and what each source has to parse for them.
pub(super) fn operators(config: &PipelineConfig) -> (Vec<ParsePlan>, Vec<OperatorSpec>) {
    let (plans, columns) = ParsePlan::of(config);
    let values = plans.first().map(|plan| plan.values.as_slice()).unwrap_or_default();
    let operators = config
        .windows
        .iter()
        .zip(&columns)
        .map(|(window, columns)| operator(window, columns, values))
        .collect();
    (plans, operators)
}

/// What the watermark has to know of each source. Bounds are not among it: the source itself keeps to them.
pub(super) fn sources(config: &PipelineConfig) -> impl Iterator<Item = SourceSpec> + '_ {
    config.sources.iter().map(|source| {
        let spec = SourceSpec::new(&source.name, source.watermark.strategy.strategy());
        SourceSpec {
            idle_timeout: source.watermark.idle_timeout.map(duration),
            jump_warning: spec.jump_warning.filter(|_| source.time.bounds.bounds.is_open_above()),
            ..spec
        }
    })
}

/// A span as a length of processing time.
pub(super) fn duration(span: Span) -> Duration {
    Duration::from_millis(span.as_millis().unsigned_abs())
}

fn operator(window: &WindowConfig, columns: &WindowColumns, values: &[ValueField]) -> OperatorSpec {
    let aggregates = window.aggregates.iter().zip(&columns.values).map(|(aggregate, &column)| {
        let input = aggregate.field.as_ref().zip(column).map(|(field, column)| Input {
            field: field.clone(),
            // A field of which only the presence counts is a column of ones.
            kind: match &window.input {
                Some(_) => aggregate.input,
                None => values.get(column).and_then(|value| value.input),
            }
            .unwrap_or(InputType::Int),
            column,
        });
        AggregateSpec { name: aggregate.name.clone(), function: aggregate.function, input, defined: None }
    });
    OperatorSpec {
        name: window.name.clone(),
        windows: window.windows.clone(),
        allowed_lateness: window.allowed_lateness,
        mode: window.mode,
        retractions: window.retractions,
        time: window.time,
        advance: window.advance,
        trigger: window.trigger,
        accumulation: window.accumulation,
        aggregates: aggregates.collect(),
        key: window.key.iter().map(|key| key.field.clone()).collect(),
        input: window.input.clone(),
        sources: window.sources.clone(),
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
        row_kinds: window.retractions,
    }
}
