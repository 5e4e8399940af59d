//! Operators as lists of properties that people compare, and stored definitions read back.

use crate::aggregate::AggregateSpec;
use crate::checkpoint::OperatorState;
use crate::operator::{Accumulation, Advance, EventDefinition, Mode, OperatorSpec, TimeDomain};

use super::text::plain;

/// The definition in a manifest, with a column for each field.
///
/// Which columns the writer had is a matter of its run and not in the definition; that aggregates over one field share
/// a column is all that the layout depends on. `None` for a definition that no version of this shape writes.
pub(crate) fn stored_spec(state: &OperatorState) -> Option<OperatorSpec> {
    let mut definition: serde_json::Value = serde_json::from_str(&state.definition).ok()?;
    // Before there were other windows than tumbling ones, their kind was not said.
    if let Some(windows) = definition.get_mut("windows").filter(|windows| windows.get("size").is_some()) {
        *windows = serde_json::json!({ "tumbling": windows.take() });
    }
    let mut spec: OperatorSpec = serde_json::from_value(definition).ok()?;
    // Reading JSON goes past the checks of the constructors; they are made up for here.
    if !spec.windows.is_possible() || spec.allowed_lateness.as_millis() < 0 || spec.check().is_err() {
        return None;
    }
    number_columns(&mut spec.aggregates);
    Some(spec)
}

/// Gives each field and type a column of its own.
pub(super) fn number_columns(aggregates: &mut [AggregateSpec]) {
    let mut columns = Vec::new();
    for input in aggregates.iter_mut().filter_map(|aggregate| aggregate.input.as_mut()) {
        let field = (input.field.clone(), input.kind);
        input.column = columns.iter().position(|known| *known == field).unwrap_or(columns.len());
        if input.column == columns.len() {
            columns.push(field);
        }
    }
}

/// What an operator is called, and its properties.
pub(super) fn of_stored(state: &OperatorState) -> (&'static str, Vec<(String, String)>) {
    if let Ok(definition) = serde_json::from_str::<EventDefinition>(&state.definition) {
        return (definition.noun(), of_events(&definition));
    }
    match stored_spec(state) {
        Some(spec) => ("window", of_window(&spec)),
        None => ("window", vec![("definition".to_owned(), plain(&state.definition))]),
    }
}

/// The properties of a window, aggregates last.
pub(super) fn of_window(spec: &OperatorSpec) -> Vec<(String, String)> {
    let list = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let mut shape = vec![
        ("windows", spec.windows.to_string()),
        ("key", list(&spec.key)),
        ("allowed lateness", spec.allowed_lateness.to_string()),
        ("trigger", spec.trigger.to_string()),
        ("mode", mode(spec.mode).to_owned()),
    ];
    if spec.retractions {
        shape.push(("retractions", "yes".to_owned()));
    }
    if spec.accumulation == Accumulation::Discarding {
        shape.push(("accumulation", "discarding".to_owned()));
    }
    if spec.time == TimeDomain::Processing {
        shape.push(("time", "processing".to_owned()));
    }
    if spec.advance == Advance::Batch {
        shape.push(("advance", "batch".to_owned()));
    }
    if let Some(input) = &spec.input {
        shape.push(("input", input.clone()));
    }
    if let Some(sources) = &spec.sources {
        shape.push(("sources", list(sources)));
    }
    let fixed = shape.into_iter().map(|(what, text)| (what.to_owned(), plain(&text)));
    let aggregates = spec.aggregates.iter().map(|aggregate| {
        (plain(&format!("aggregate {}", aggregate.name)), plain(&aggregate_text(aggregate)))
    });
    fixed.chain(aggregates).collect()
}

/// An aggregate in words.
pub(super) fn aggregate_text(aggregate: &AggregateSpec) -> String {
    let function = match &aggregate.defined {
        Some(defined) => format!("{defined:?}"),
        None => aggregate.function.text().into_owned(),
    };
    match &aggregate.input {
        None => format!("{function} of events"),
        Some(input) => format!("{function} of {} ({})", input.field, input.kind),
    }
}

/// The name of a mode.
const fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Append => "append",
        Mode::Update => "update",
        Mode::Complete => "complete",
    }
}

/// The properties of a join or of deduplication.
pub(super) fn of_events(definition: &EventDefinition) -> Vec<(String, String)> {
    let list = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let shape = match definition {
        EventDefinition::Dedup(spec) => {
            vec![("by", list(&spec.by)), ("within", spec.within.to_string())]
        }
        EventDefinition::Join(spec) => {
            let fields = |input: &crate::operator::JoinInput| {
                let field = |field: &crate::operator::JoinField| {
                    format!("{} = {} ({})", field.name, field.field, field.kind)
                };
                let fields: Vec<String> = input.fields.iter().map(field).collect();
                format!("{}: {}", input.source, list(&fields))
            };
            vec![
                ("join", spec.to_string()),
                ("key", list(&spec.key)),
                ("left", fields(&spec.left)),
                ("right", fields(&spec.right)),
            ]
        }
    };
    shape.into_iter().map(|(what, text)| (what.to_owned(), plain(&text))).collect()
}
