//! The records of a block one by one: an event as a batch of its own, its values to show, and those that are no events.
//!
//! Knows no window and no watermark.

use std::borrow::Cow;

use crate::aggregate::Value;
use crate::event::Datum;
use crate::inspect::Aggregates;
use crate::operator::{EventBatch, OperatorSpec};
use crate::pipeline::source::{Block, ParsePlan, RejectReason};

/// Bytes of a record's text that are shown.
const TEXT_SHOWN: usize = 200;

/// A value that the aggregates read.
pub(super) struct Input {
    field: String,
    column: usize,
    // Only whether it is there counts.
    presence: bool,
}

/// The values that aggregates read, each once.
pub(super) fn inputs_of(spec: &OperatorSpec, plans: &[ParsePlan]) -> Vec<Input> {
    let values = plans.first().map(|plan| plan.values.as_slice()).unwrap_or_default();
    let mut inputs: Vec<Input> = Vec::new();
    for input in spec.aggregates.iter().filter_map(|aggregate| aggregate.input.as_ref()) {
        if inputs.iter().all(|known| known.column != input.column) {
            let presence = values.get(input.column).is_some_and(|value| value.input.is_none());
            inputs.push(Input { field: input.field.clone(), column: input.column, presence });
        }
    }
    inputs
}

/// What aggregates read of the event at `index`.
pub(super) fn values_of(batch: &EventBatch, index: usize, inputs: &[Input]) -> Aggregates {
    let value = |input: &Input| match batch.values.get(input.column).and_then(|column| column.get(index)) {
        None => Value::Null,
        Some(_) if input.presence => Value::Text("present".to_owned()),
        Some(Datum::Int(value)) => Value::Int(i128::from(value)),
        Some(Datum::Float(value)) => Value::Float(value),
        Some(Datum::Decimal { unscaled, scale }) => Value::Decimal { unscaled: i128::from(unscaled), scale },
        Some(Datum::Text(text)) => Value::Text(shown(text)),
    };
    Aggregates(inputs.iter().map(|input| (input.field.clone(), value(input))).collect())
}

/// A record that is no event: rejected for a reason, or passed over by a filter.
pub(super) struct Side<'b> {
    pub(super) line: u64,
    pub(super) text: Cow<'b, [u8]>,
    pub(super) why: Option<(RejectReason, String)>,
}

/// The records of a block that are no events, by line.
pub(super) fn sides_of(block: &Block) -> Vec<Side<'_>> {
    let rejected = block.rejected.iter().map(|rejected| {
        let detail = match &rejected.field {
            Some(field) => format!("{field}: {}", rejected.detail),
            None => rejected.detail.clone(),
        };
        let text = Cow::Borrowed(rejected.text.as_slice());
        Side { line: rejected.record, text, why: Some((rejected.reason, detail)) }
    });
    let filtered = block.filtered_records.iter().map(|(line, place)| {
        let text = match block.batch.row_text(*line) {
            Some(row) => Cow::Owned(row),
            None => Cow::Borrowed(
                block.batch.text.get(place.start as usize..place.end as usize).unwrap_or_default(),
            ),
        };
        Side { line: *line, text, why: None }
    });
    let mut sides: Vec<Side<'_>> = rejected.chain(filtered).collect();
    sides.sort_by_key(|side| side.line);
    sides
}

/// The beginning of a text.
pub(super) fn shown(text: &[u8]) -> String {
    let cut = &text[..text.len().min(TEXT_SHOWN)];
    let more = if cut.len() < text.len() { "…" } else { "" };
    format!("{}{more}", String::from_utf8_lossy(cut))
}
