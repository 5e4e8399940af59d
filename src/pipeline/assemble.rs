//! From the pipeline file to the parts that carry it out: operators, and what each takes from the source's columns.

use std::num::NonZeroU32;
use std::time::Duration;

use super::config::{
    AggregateConfig, JoinConfig, Jumps, KeyField as KeyConfig, KeyType, OutputFormat, OutputTarget,
    OutputTime, PipelineConfig, SelectedField, TableConfig, TableWrite as TableWriteConfig, WindowConfig,
};
use super::sink::{
    ColumnType, ConsoleSpec, Format, JoinSinkSpec, KeyField, KeyKind, Opened, Output, Restored, ResultSpec,
    Secret, SinkContext, TableRows, TableSpec, TableWrite, TimeFormat, WriteJoined, WriteResults,
};
use super::source::{ParsePlan, ValueField, WindowColumns};
use crate::aggregate::{AggregateSpec, Input, InputType};
use crate::error::Result;
use crate::event_time::{Span, Windows};
use crate::operator::{
    DedupSpec, JoinField, JoinInput, JoinSpec, OperatorSpec, SourceId, SourceSpec, WindowOperator,
};
use crate::repository::Settings;
use crate::store::{WindowStore, WindowStoreBuilder};

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

/// The same as they work, outside of a store.
pub(super) fn window_operators(config: &PipelineConfig, specs: Vec<OperatorSpec>) -> Vec<WindowOperator> {
    let id = |index: usize| SourceId(u16::try_from(index).unwrap_or(u16::MAX));
    let operator = |(at, mut spec): (usize, OperatorSpec)| {
        spec.source_ids = spec.sources.as_ref().map(|names| {
            let sources = config.sources.iter().enumerate();
            sources.filter(|(_, source)| names.contains(&source.name)).map(|(index, _)| id(index)).collect()
        });
        WindowOperator::new(at, spec)
    };
    specs.into_iter().enumerate().map(operator).collect()
}

/// A store for the pipeline, described but not opened.
pub(super) fn store(config: &PipelineConfig, operators: Vec<OperatorSpec>) -> WindowStoreBuilder {
    let builder = WindowStore::builder(&config.name)
        .policy(config.watermark.policy)
        .idle_advance(config.watermark.idle_advance.map(duration))
        .memory_bytes(usize::try_from(config.state.memory_bytes).unwrap_or(usize::MAX))
        .workers(config.state.workers.unwrap_or(1))
        .verify_every(config.checkpoint.verify_every)
        .retain(NonZeroU32::new(config.checkpoint.retain).unwrap_or(NonZeroU32::MIN));
    let builder = sources(config).fold(builder, WindowStoreBuilder::source);
    let builder = joins(config).into_iter().fold(builder, WindowStoreBuilder::join);
    let renames = config.windows.iter().map(|window| (&window.name, &window.renames));
    let builder = renames.fold(builder, |builder, (name, renames)| builder.renames(name, renames.clone()));
    operators.into_iter().fold(builder, WindowStoreBuilder::window)
}

/// What the watermark has to know of each source. Bounds are not among it: the source itself keeps to them.
pub(super) fn sources(config: &PipelineConfig) -> impl Iterator<Item = SourceSpec> + '_ {
    let ids = ParsePlan::of_events(config).ids;
    config.sources.iter().zip(ids).map(|(source, id)| {
        let spec = SourceSpec::new(&source.name, source.watermark.strategy.strategy());
        let dedup = source.dedup.as_ref().zip(id).map(|(dedup, key_column)| DedupSpec {
            by: dedup.by.iter().map(|key| key.field.clone()).collect(),
            within: dedup.within,
            key_column,
        });
        SourceSpec {
            dedup,
            idle_timeout: source.watermark.idle_timeout.map(duration),
            jump_warning: match config.watch.jump {
                Jumps::Unusual => spec.jump_warning.filter(|_| source.time.bounds.bounds.is_open_above()),
                Jumps::Above(length) => Some(length),
                Jumps::Off => None,
            },
            ..spec
        }
    })
}

/// The joins of a pipeline.
pub(super) fn joins(config: &PipelineConfig) -> Vec<JoinSpec> {
    let columns = ParsePlan::of_events(config).joins;
    let input = |source: &String, fields: &[SelectedField], columns: &WindowColumns| {
        let field = |(selected, column): (&SelectedField, &Option<usize>)| JoinField {
            name: selected.name.clone(),
            field: selected.field.clone(),
            kind: selected.input,
            // Every selected field has a column.
            column: column.unwrap_or_default(),
        };
        JoinInput {
            source: source.clone(),
            fields: fields.iter().zip(&columns.values).map(field).collect(),
            source_id: SourceId::default(),
            key_column: columns.key,
        }
    };
    let join = |(join, [left, right]): (&JoinConfig, &[WindowColumns; 2])| JoinSpec {
        name: join.name.clone(),
        key: join.key.iter().map(|key| key.field.clone()).collect(),
        left: input(&join.left, &join.left_fields, left),
        right: input(&join.right, &join.right_fields, right),
        from_ms: join.from_ms,
        to_ms: join.to_ms,
        kind: join.kind,
    };
    config.joins.iter().zip(&columns).map(join).collect()
}

/// The repository of checkpoints that the pipeline file names.
pub(super) fn repository(config: &PipelineConfig) -> Result<Option<Settings>> {
    let Some(repository) = &config.checkpoint.repository else { return Ok(None) };
    let opened = repository.location.open()?;
    Ok(Some(Settings::new(opened).required(repository.required)))
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
        AggregateSpec {
            name: aggregate.name.clone(),
            function: aggregate.function,
            input,
            defined: None,
            lane: 0,
        }
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

/// Recovers and opens the output of a window.
pub(super) fn open_results(
    window: &WindowConfig,
    context: SinkContext,
    restored: Restored<'_>,
) -> Result<Opened<Box<dyn WriteResults>>> {
    let opened = match &window.output.target {
        OutputTarget::Files => results(window).open(context, restored)?.map(boxed),
        OutputTarget::Console => ConsoleSpec(results(window)).open(context, restored)?,
        OutputTarget::Postgres(table) => result_table(window, table)?.open(context, restored)?.map(boxed),
    };
    Ok(opened)
}

/// Recovers and opens the output of a join.
pub(super) fn open_joined(
    join: &JoinConfig,
    context: SinkContext,
    restored: Restored<'_>,
) -> Result<Opened<Box<dyn WriteJoined>>> {
    let opened = match &join.output.target {
        OutputTarget::Files => {
            joined(join).open(context, restored)?.map(|sink| Box::new(sink) as Box<dyn WriteJoined>)
        }
        OutputTarget::Console => ConsoleSpec(joined(join)).open(context, restored)?,
        OutputTarget::Postgres(table) => {
            let opened = joined_table(join, table)?.open(context, restored)?;
            opened.map(|sink| Box::new(sink) as Box<dyn WriteJoined>)
        }
    };
    Ok(opened)
}

fn boxed(sink: impl WriteResults + 'static) -> Box<dyn WriteResults> {
    Box::new(sink)
}

/// Where and how the results of a window are written, where they are files or printed.
pub(super) fn results(window: &WindowConfig) -> ResultSpec {
    ResultSpec {
        name: format!("results.{}", window.name),
        directory: window.output.path.clone(),
        format: format(window.output.format),
        keys: keys(&window.key),
        aggregates: window.aggregates.iter().map(|aggregate| aggregate.name.clone()).collect(),
        types: window.aggregates.iter().map(column_type).collect(),
        times: times(window.output.time_format),
        metadata: window.output.metadata,
        row_kinds: window.retractions,
    }
}

fn result_table(window: &WindowConfig, table: &TableConfig) -> Result<TableSpec> {
    let ResultSpec { name, directory, keys, aggregates, types, metadata, row_kinds, .. } = results(window);
    let unbounded = window.windows == Windows::Global;
    let rows =
        TableRows::Results { aggregates, metadata, row_kinds, unbounded, primary_key: primary_key(window) };
    Ok(TableSpec {
        name,
        outbox: directory,
        url: Secret::from_env(&table.url_env)?,
        table: table.table.clone(),
        write: match table.write {
            TableWriteConfig::Append => TableWrite::Append,
            TableWriteConfig::Upsert => TableWrite::Upsert,
        },
        keys,
        rows,
        types,
    })
}

/// What tells the row of one pane from all others. The end is needed where windows may share a start.
fn primary_key(window: &WindowConfig) -> Vec<String> {
    let bounds: &[&str] = match window.windows {
        Windows::Global => &[],
        Windows::Session { .. } | Windows::Cumulative(_) => &["window_start", "window_end"],
        _ => &["window_start"],
    };
    let key = window.key.iter().map(|key| key.field.clone());
    key.chain(bounds.iter().map(|&name| name.to_owned())).collect()
}

fn joined_table(join: &JoinConfig, table: &TableConfig) -> Result<TableSpec> {
    let JoinSinkSpec { name, directory, keys, left, right, types, .. } = joined(join);
    Ok(TableSpec {
        name,
        outbox: directory,
        url: Secret::from_env(&table.url_env)?,
        table: table.table.clone(),
        write: TableWrite::Append,
        keys,
        rows: TableRows::Joined { left, right },
        types,
    })
}

/// The type of an aggregate's column.
fn column_type(aggregate: &AggregateConfig) -> ColumnType {
    ColumnType::of_function(aggregate.function, aggregate.input)
}

/// Where and how the rows of a join are written, where they are files or printed.
pub(super) fn joined(join: &JoinConfig) -> JoinSinkSpec {
    let names = |fields: &[SelectedField]| fields.iter().map(|selected| selected.name.clone()).collect();
    let fields = join.left_fields.iter().chain(&join.right_fields);
    JoinSinkSpec {
        name: format!("joined.{}", join.name),
        directory: join.output.path.clone(),
        format: format(join.output.format),
        keys: keys(&join.key),
        left: names(&join.left_fields),
        right: names(&join.right_fields),
        types: fields.map(|selected| ColumnType::of_input(selected.input)).collect(),
        times: times(join.output.time_format),
    }
}

fn keys(key: &[KeyConfig]) -> Vec<KeyField> {
    let field = |key: &KeyConfig| KeyField {
        name: key.field.clone(),
        kind: match key.key_type {
            KeyType::Text => KeyKind::Text,
            KeyType::Int => KeyKind::Int,
        },
    };
    key.iter().map(field).collect()
}

fn format(format: OutputFormat) -> Format {
    match format {
        OutputFormat::JsonLines => Format::Jsonl,
        OutputFormat::Csv => Format::Csv,
        OutputFormat::Parquet => Format::Parquet,
    }
}

fn times(format: OutputTime) -> TimeFormat {
    match format {
        OutputTime::Rfc3339 => TimeFormat::Rfc3339,
        OutputTime::EpochMillis => TimeFormat::EpochMillis,
    }
}
