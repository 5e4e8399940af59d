//! Fuzz targets of stored panes: reading, merging and finishing arbitrary payloads of every aggregate, and the fields of
//! stored events.

use std::sync::OnceLock;

use super::{
    AggregateSpec, Beyond, Fraction, Function, InputType, Keep, Layout, RowMut, RowRef, Sketches, Touch,
    Value, decode_fields,
};
use crate::event::{Datum, EventBatch, ValueColumn};

/// States of at most a few KiB of stored bytes take no more memory than this.
const STATE_BYTES_MAX: usize = 4 << 20;

/// Rows of words alone, of states of numbers, of states of texts, and of everything at once.
fn layout(choice: u8) -> Layout {
    let over = |function, kind| AggregateSpec::over("a", function, "f", kind, kind_column(kind));
    let numbers = [Function::Sum, Function::Min, Function::Avg, Function::Stddev, Function::Max];
    let states = [
        Function::Distinct { limit: 4, beyond: Beyond::Estimate },
        Function::Distinct { limit: 3, beyond: Beyond::Null },
        Function::ApproxDistinct { precision: 6 },
        Function::TopK { k: 2, limit: 5 },
        Function::Collect { limit: 3, keep: Keep::Last },
        Function::First,
        Function::Last,
    ];
    let quantile = Function::Quantile { q: Fraction::HALF };
    let extra: &[u64] = if choice.is_multiple_of(2) { &[] } else { &[7, 0] };
    let kinds = [InputType::Int, InputType::Float, InputType::Decimal(2), InputType::Text];
    let kind = kinds[usize::from(choice / 2) % 4];
    let aggregates: Vec<AggregateSpec> = match choice / 8 % 4 {
        0 => numbers.map(|function| over(function, kind)).to_vec(),
        1 => states.map(|function| over(function, kind)).to_vec(),
        2 => vec![over(quantile, kind), over(Function::Min, kind), AggregateSpec::count("n")],
        // One state by itself: the shortest way to each decoder.
        _ => vec![over(states[usize::from(choice / 32) % states.len()], kind)],
    };
    let aggregates: Vec<AggregateSpec> = aggregates.into_iter().filter(|spec| spec.check().is_ok()).collect();
    Layout::with_extra(&aggregates, extra)
}

const fn kind_column(kind: InputType) -> usize {
    match kind {
        InputType::Int => 0,
        InputType::Float => 1,
        InputType::Decimal(_) => 2,
        InputType::Text => 3,
    }
}

/// Events with a value of each type, which run from `from`.
fn events(from: i64, count: usize) -> EventBatch {
    let columns =
        vec![ValueColumn::int(), ValueColumn::float(), ValueColumn::decimal(2), ValueColumn::text()];
    let mut batch = EventBatch { values: columns, ..EventBatch::default() };
    for value in (from..).take(count) {
        batch.times.push(1_000 * value);
        batch.records.push(value.unsigned_abs());
        let text = "t".repeat(value.unsigned_abs() as usize % 4);
        let data = [
            Datum::Int(value),
            Datum::Float(value as f64 / 4.0),
            Datum::Decimal { unscaled: value, scale: 2 },
            Datum::Text(text.as_bytes()),
        ];
        for (column, datum) in batch.values.iter_mut().zip(data) {
            assert!(column.push(datum), "a column takes its type");
        }
    }
    batch
}

/// A row with its own slab.
struct Pane<'a> {
    layout: &'a Layout,
    words: Vec<u64>,
    sketches: Sketches,
}

impl<'a> Pane<'a> {
    fn new(layout: &'a Layout) -> Self {
        Self { layout, words: layout.identity().to_vec(), sketches: Sketches::default() }
    }

    /// The pane of stored bytes, which is written the same way ever after.
    fn read(layout: &'a Layout, bytes: &[u8]) -> Option<Self> {
        let mut pane = Self::new(layout);
        if pane.row_mut().read_payload(bytes).is_err() {
            assert_eq!(pane.words, layout.identity(), "a refused payload changed the row");
            return None;
        }
        let written = pane.written();
        let mut again = Self::new(layout);
        assert_eq!(again.row_mut().read_payload(&written), Ok(()), "a written payload is refused");
        assert_eq!(again.written(), written, "a payload changes when it is read and written");
        assert!(again.same(&pane), "a payload means something else once it was written");
        assert!(pane.sketches.bytes() < STATE_BYTES_MAX, "a payload of {} bytes is a bomb", bytes.len());
        Some(pane)
    }

    fn row(&self) -> RowRef<'_> {
        RowRef::new(self.layout, &self.words, &self.sketches)
    }

    fn row_mut(&mut self) -> RowMut<'_> {
        RowMut::new(self.layout, &mut self.words, &mut self.sketches)
    }

    fn written(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.row().write_payload(&mut bytes);
        bytes
    }

    fn values(&self) -> Vec<Value> {
        let mut values = Vec::new();
        self.row().finish(&mut values);
        values
    }

    fn same(&self, other: &Self) -> bool {
        let (left, right) = (self.values(), other.values());
        left.len() == right.len()
            && left.iter().zip(&right).all(|(left, right)| super::laws::same_value(left, right))
    }

    fn update(&mut self, batch: &EventBatch) {
        let touches: Vec<Touch> =
            (0..batch.times.len()).map(|event| Touch { row: 0, event: event as u32 }).collect();
        self.layout.update(&mut self.words, &mut self.sketches, &touches, batch);
    }

    fn merged(&self, other: &Self) -> Self {
        let mut merged = Self::new(self.layout);
        merged.row_mut().assign(self.row());
        merged.row_mut().merge(other.row());
        merged
    }
}

/// A byte that chooses the aggregates, two for the length of the first payload, and two payloads.
pub(crate) fn payloads(bytes: &[u8]) {
    let Some(([choice, low, high], rest)) = bytes.split_first_chunk::<3>() else { return };
    let layout = layout(*choice);
    let cut = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
    let (base, operand) = rest.split_at(cut);
    let (base, operand) = (Pane::read(&layout, base), Pane::read(&layout, operand));
    let identity = Pane::new(&layout);
    static MORE: OnceLock<EventBatch> = OnceLock::new();
    let more = MORE.get_or_init(|| events(-1, 4));
    for pane in base.iter().chain(&operand) {
        let mut merged = pane.merged(&identity);
        assert!(merged.same(pane), "the identity changes a pane");
        merged.update(more);
        assert!(Pane::read(&layout, &merged.written()).is_some(), "a pane with more events is not read back");
    }
    if let (Some(base), Some(operand)) = (base, operand) {
        let (one, other) = (base.merged(&operand), operand.merged(&base));
        assert!(one.same(&other), "merging is not commutative: {:?} {:?}", one.values(), other.values());
        let written = one.written();
        assert!(Pane::read(&layout, &written).is_some(), "a merged pane is not read back");
    }
}

/// The fields of a stored event: how many, then their bytes.
pub(crate) fn fields(bytes: &[u8]) {
    let Some((&count, bytes)) = bytes.split_first() else { return };
    if let Ok(values) = decode_fields(bytes, usize::from(count)) {
        assert_eq!(values.len(), usize::from(count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a pane stores of `count` events, whose values run from `from`.
    fn payload(layout: &Layout, from: i64, count: usize) -> Vec<u8> {
        let mut pane = Pane::new(layout);
        pane.update(&events(from, count));
        pane.written()
    }

    fn pair(choice: u8) -> Vec<u8> {
        let layout = layout(choice);
        let (one, other) = (payload(&layout, -2, 3), payload(&layout, 0, 5));
        let length = u16::try_from(one.len()).unwrap().to_le_bytes();
        [&[choice][..], &length, &one, &other].concat()
    }

    #[test]
    fn real_panes_of_every_aggregate_keep_the_promises_that_are_asked_of_hostile_ones() {
        for choice in 0..=u8::MAX {
            payloads(&pair(choice));
        }
        for choice in [0, 3, 4, 8, 11, 12, 14, 16, 18, 26, 58, 90, 122, 154] {
            crate::codec::fuzzing::seed("payloads", &format!("real-{choice}"), &pair(choice));
        }
    }
}
