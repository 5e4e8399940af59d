//! Compiles the aggregates of an operator into a row of 64-bit words, and works on such rows.

use super::number::{ExactFloat, float_max, float_min};
use super::{AggregateSpec, Function, InputType, STATE_VERSION, Value};
use crate::event::{EventBatch, ValueColumn};

/// One event that belongs to a pane: which row of the table, which event of the batch.
#[derive(Clone, Copy, Debug)]
pub struct Touch {
    /// Row of the pane in its table.
    pub row: u32,
    /// Index of the event in the batch.
    pub event: u32,
}

/// What one group of words holds. Aggregates over the same field share slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Primitive {
    Present,
    SumInt,
    SumFloat,
    MinInt,
    MaxInt,
    MinFloat,
    MaxFloat,
}

impl Primitive {
    const fn words(self) -> usize {
        match self {
            Self::SumInt | Self::SumFloat => 2,
            _ => 1,
        }
    }

    const fn identity(self) -> [u64; 2] {
        match self {
            Self::Present | Self::SumInt | Self::SumFloat => [0, 0],
            Self::MinInt => [i64::MAX as u64, 0],
            Self::MaxInt => [i64::MIN as u64, 0],
            Self::MinFloat | Self::MaxFloat => [f64::NAN.to_bits(), 0],
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    primitive: Primitive,
    column: usize,
    word: usize,
}

/// How one aggregate's value is read out of a row.
#[derive(Clone, Copy, Debug)]
enum Finish {
    Rows,
    Present(usize),
    Int { word: usize, present: usize },
    Sum { word: usize, present: usize },
    Float { word: usize, present: usize },
    FloatSum { word: usize, present: usize },
    AvgInt { word: usize, present: usize },
    AvgFloat { word: usize, present: usize },
}

/// The row of words that an operator keeps per pane. Word 0 counts events.
#[derive(Clone, Debug)]
pub struct Layout {
    slots: Vec<Slot>,
    finish: Vec<Finish>,
    identity: Vec<u64>,
    fingerprint: u64,
}

impl Layout {
    /// Lays out the words for `aggregates`, in their order.
    #[must_use]
    pub fn new(aggregates: &[AggregateSpec]) -> Self {
        let mut layout = Self { slots: Vec::new(), finish: Vec::new(), identity: vec![0], fingerprint: 0 };
        for aggregate in aggregates {
            let finish = layout.lay_out(aggregate);
            layout.finish.push(finish);
        }
        layout.fingerprint = fingerprint(aggregates);
        layout
    }

    fn lay_out(&mut self, aggregate: &AggregateSpec) -> Finish {
        let Some(input) = &aggregate.input else { return Finish::Rows };
        let present = self.slot(Primitive::Present, input.column);
        let mut int = |primitive, column| Finish::Int { word: self.slot(primitive, column), present };
        match (aggregate.function, input.kind) {
            (Function::Count, _) => Finish::Present(present),
            (Function::Min, InputType::Int) => int(Primitive::MinInt, input.column),
            (Function::Max, InputType::Int) => int(Primitive::MaxInt, input.column),
            (Function::Min, InputType::Float) => {
                Finish::Float { word: self.slot(Primitive::MinFloat, input.column), present }
            }
            (Function::Max, InputType::Float) => {
                Finish::Float { word: self.slot(Primitive::MaxFloat, input.column), present }
            }
            (Function::Sum, InputType::Int) => {
                Finish::Sum { word: self.slot(Primitive::SumInt, input.column), present }
            }
            (Function::Sum, InputType::Float) => {
                Finish::FloatSum { word: self.slot(Primitive::SumFloat, input.column), present }
            }
            (Function::Avg, InputType::Int) => {
                Finish::AvgInt { word: self.slot(Primitive::SumInt, input.column), present }
            }
            (Function::Avg, InputType::Float) => {
                Finish::AvgFloat { word: self.slot(Primitive::SumFloat, input.column), present }
            }
        }
    }

    /// The first word of the slot for `primitive` over `column`, laid out now unless it exists.
    fn slot(&mut self, primitive: Primitive, column: usize) -> usize {
        let known = self.slots.iter().find(|slot| slot.primitive == primitive && slot.column == column);
        if let Some(slot) = known {
            return slot.word;
        }
        let word = self.identity.len();
        self.slots.push(Slot { primitive, column, word });
        self.identity.extend_from_slice(&primitive.identity()[..primitive.words()]);
        word
    }

    /// Words in a row.
    #[must_use]
    pub fn words(&self) -> usize {
        self.identity.len()
    }

    /// The row of a pane without events.
    #[must_use]
    pub fn identity(&self) -> &[u64] {
        &self.identity
    }

    /// Number of aggregates, and so of values.
    #[must_use]
    pub fn aggregates(&self) -> usize {
        self.finish.len()
    }

    /// A number that differs when the shape or the meaning of a row differs: it covers, in order, each
    /// aggregate's name, function, field and type, and the state version.
    #[must_use]
    pub const fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Events counted in a row.
    #[must_use]
    pub fn rows(&self, row: &[u64]) -> u64 {
        row.first().copied().unwrap_or(0)
    }

    /// Adds the touched events of `batch` to the rows in `words`, which are `stride` words apart.
    ///
    /// Works slot by slot over all events, so that the kind of aggregate is decided once per batch.
    pub fn update(&self, words: &mut [u64], stride: usize, touches: &[Touch], batch: &EventBatch) {
        for touch in touches {
            if let Some(rows) = words.get_mut(touch.row as usize * stride) {
                *rows += 1;
            }
        }
        for slot in &self.slots {
            if let Some(column) = batch.values.get(slot.column) {
                update_slot(*slot, words, stride, touches, column);
            }
        }
    }

    /// Merges the row `other` into `row`.
    pub fn merge(&self, row: &mut [u64], other: &[u64]) {
        row[0] = row[0].saturating_add(other[0]);
        for slot in &self.slots {
            let word = slot.word;
            match slot.primitive {
                Primitive::Present => row[word] = row[word].saturating_add(other[word]),
                Primitive::SumInt => {
                    let sum = int_sum(row, word).wrapping_add(int_sum(other, word));
                    set_int_sum(row, word, sum);
                }
                Primitive::SumFloat => {
                    let sum = float_sum(row, word).merge(float_sum(other, word));
                    row[word..word + 2].copy_from_slice(&sum.to_words());
                }
                Primitive::MinInt => row[word] = (row[word] as i64).min(other[word] as i64) as u64,
                Primitive::MaxInt => row[word] = (row[word] as i64).max(other[word] as i64) as u64,
                Primitive::MinFloat => row[word] = merge_float(row[word], other[word], float_min),
                Primitive::MaxFloat => row[word] = merge_float(row[word], other[word], float_max),
            }
        }
    }

    /// Appends the value of each aggregate of `row` to `values`.
    pub fn finish(&self, row: &[u64], values: &mut Vec<Value>) {
        values.extend(self.finish.iter().map(|finish| finish_value(*finish, row)));
    }
}

fn update_slot(slot: Slot, words: &mut [u64], stride: usize, touches: &[Touch], column: &ValueColumn) {
    match (slot.primitive, column) {
        (Primitive::Present, ValueColumn::Int { validity, .. } | ValueColumn::Float { validity, .. }) => {
            for touch in touches {
                words[touch.row as usize * stride + slot.word] +=
                    u64::from(validity.is_present(touch.event as usize));
            }
        }
        (primitive, ValueColumn::Int { values, validity }) => {
            for touch in touches {
                let event = touch.event as usize;
                if validity.is_present(event) {
                    let at = touch.row as usize * stride + slot.word;
                    add_int(primitive, &mut words[at..], values[event]);
                }
            }
        }
        (primitive, ValueColumn::Float { values, validity }) => {
            for touch in touches {
                let event = touch.event as usize;
                if validity.is_present(event) {
                    let at = touch.row as usize * stride + slot.word;
                    add_float(primitive, &mut words[at..], values[event]);
                }
            }
        }
    }
}

#[inline(always)]
fn add_int(primitive: Primitive, words: &mut [u64], value: i64) {
    match primitive {
        Primitive::SumInt => {
            // Cannot overflow: 2^64 events of 63 bits each.
            let sum = int_sum(words, 0).wrapping_add(i128::from(value));
            set_int_sum(words, 0, sum);
        }
        Primitive::MinInt => words[0] = (words[0] as i64).min(value) as u64,
        Primitive::MaxInt => words[0] = (words[0] as i64).max(value) as u64,
        // A float slot over a column of integers cannot be laid out: a field has one type.
        Primitive::Present | Primitive::SumFloat | Primitive::MinFloat | Primitive::MaxFloat => {}
    }
}

#[inline(always)]
fn add_float(primitive: Primitive, words: &mut [u64], value: f64) {
    match primitive {
        Primitive::SumFloat => {
            let sum = float_sum(words, 0).plus(value);
            words[..2].copy_from_slice(&sum.to_words());
        }
        Primitive::MinFloat => words[0] = merge_float(words[0], value.to_bits(), float_min),
        Primitive::MaxFloat => words[0] = merge_float(words[0], value.to_bits(), float_max),
        Primitive::Present | Primitive::SumInt | Primitive::MinInt | Primitive::MaxInt => {}
    }
}

fn merge_float(a: u64, b: u64, choose: fn(f64, f64) -> f64) -> u64 {
    choose(f64::from_bits(a), f64::from_bits(b)).to_bits()
}

fn int_sum(row: &[u64], word: usize) -> i128 {
    (u128::from(row[word]) | u128::from(row[word + 1]) << 64) as i128
}

fn set_int_sum(row: &mut [u64], word: usize, sum: i128) {
    row[word] = sum as u64;
    row[word + 1] = (sum >> 64) as u64;
}

fn float_sum(row: &[u64], word: usize) -> ExactFloat {
    ExactFloat::from_words([row[word], row[word + 1]])
}

fn finish_value(finish: Finish, row: &[u64]) -> Value {
    let (word, present) = match finish {
        Finish::Rows => return Value::Int(i128::from(row[0])),
        Finish::Present(present) => return Value::Int(i128::from(row[present])),
        Finish::Int { word, present }
        | Finish::Sum { word, present }
        | Finish::Float { word, present }
        | Finish::FloatSum { word, present }
        | Finish::AvgInt { word, present }
        | Finish::AvgFloat { word, present } => (word, row[present]),
    };
    if present == 0 {
        return Value::Null;
    }
    match finish {
        Finish::Rows | Finish::Present(_) => Value::Null,
        Finish::Int { .. } => Value::Int(i128::from(row[word] as i64)),
        Finish::Sum { .. } => Value::Int(int_sum(row, word)),
        Finish::Float { .. } => Value::Float(f64::from_bits(row[word])),
        Finish::FloatSum { .. } => Value::Float(float_sum(row, word).value()),
        Finish::AvgInt { .. } => Value::Float(int_average(int_sum(row, word), present)),
        Finish::AvgFloat { .. } => Value::Float(float_sum(row, word).value() / present as f64),
    }
}

/// The average with the whole part taken exactly, so that large sums do not lose their low digits first.
fn int_average(sum: i128, count: u64) -> f64 {
    let count = i128::from(count);
    let (whole, rest) = (sum.div_euclid(count), sum.rem_euclid(count));
    whole as f64 + rest as f64 / count as f64
}

fn fingerprint(aggregates: &[AggregateSpec]) -> u64 {
    let mut text = format!("state {STATE_VERSION}");
    for aggregate in aggregates {
        let input = aggregate.input.as_ref().map(|input| (input.field.as_str(), input.kind.name()));
        text.push_str(&format!("\n{:?} {} {input:?}", aggregate.name, aggregate.function.name()));
    }
    xxhash_rust::xxh3::xxh3_64(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn everything() -> Vec<AggregateSpec> {
        let functions = [Function::Count, Function::Sum, Function::Min, Function::Max, Function::Avg];
        let over = |kind: InputType, column| {
            functions.map(|f| {
                AggregateSpec::over(&format!("{}_{}", f.name(), kind.name()), f, kind.name(), kind, column)
            })
        };
        [AggregateSpec::count("rows")]
            .into_iter()
            .chain(over(InputType::Int, 0))
            .chain(over(InputType::Float, 1))
            .collect()
    }

    type Event = (Option<i64>, Option<f64>);

    fn row_of(layout: &Layout, events: &[Event]) -> Vec<u64> {
        let mut batch =
            EventBatch { values: vec![ValueColumn::int(), ValueColumn::float()], ..EventBatch::default() };
        for &(int, float) in events {
            match int {
                Some(value) => batch.values[0].push_int(value),
                None => batch.values[0].push_null(),
            }
            match float {
                Some(value) => assert!(batch.values[1].push_float(value)),
                None => batch.values[1].push_null(),
            }
        }
        let touches: Vec<Touch> =
            (0..events.len()).map(|event| Touch { row: 0, event: event as u32 }).collect();
        let mut row = layout.identity().to_vec();
        let stride = row.len();
        layout.update(&mut row, stride, &touches, &batch);
        row
    }

    fn values(layout: &Layout, row: &[u64]) -> Vec<Value> {
        let mut values = Vec::new();
        layout.finish(row, &mut values);
        values
    }

    /// NaN equals NaN here: the question is whether two ways lead to the same result.
    fn same(a: &[Value], b: &[Value]) -> bool {
        format!("{a:?}") == format!("{b:?}")
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let special = prop_oneof![
            Just(f64::NAN),
            Just(0.0),
            Just(-0.0),
            Just(f64::INFINITY),
            Just(1e16),
            Just(-1e16),
            -1e3..1e3_f64
        ];
        let int = prop_oneof![Just(i64::MAX), Just(i64::MIN), any::<i64>(), -5..5_i64];
        prop::collection::vec((prop::option::of(int), prop::option::of(special)), 0..12)
    }

    proptest! {
        #[test]
        fn merging_any_split_in_any_order_is_the_whole(
            (events, cut) in events().prop_flat_map(|e| { let n = e.len(); (Just(e), 0..=n) })
        ) {
            let layout = Layout::new(&everything());
            let whole = row_of(&layout, &events);
            let (left, right) = (row_of(&layout, &events[..cut]), row_of(&layout, &events[cut..]));
            let mut forward = left.clone();
            layout.merge(&mut forward, &right);
            let mut backward = right;
            layout.merge(&mut backward, &left);
            let mut with_identity = layout.identity().to_vec();
            layout.merge(&mut with_identity, &forward);
            let expected = values(&layout, &whole);
            for row in [&forward, &backward, &with_identity] {
                let found = values(&layout, row);
                prop_assert!(same(&found, &expected), "{found:?} != {expected:?}");
            }
        }

        #[test]
        fn integer_sums_are_exact(ints in prop::collection::vec(any::<i64>(), 1..50)) {
            let layout = Layout::new(&[AggregateSpec::over("s", Function::Sum, "v", InputType::Int, 0)]);
            let events: Vec<Event> = ints.iter().map(|&int| (Some(int), None)).collect();
            let expected: i128 = ints.iter().map(|&int| i128::from(int)).sum();
            prop_assert_eq!(values(&layout, &row_of(&layout, &events)), vec![Value::Int(expected)]);
        }
    }

    #[test]
    fn nulls_count_as_events_and_nothing_else() {
        let layout = Layout::new(&everything());
        let found = values(&layout, &row_of(&layout, &[(None, None), (Some(4), None)]));
        let int = |value| Value::Int(value);
        assert_eq!(found[..6], [int(2), int(1), int(4), int(4), int(4), Value::Float(4.0)]);
        assert_eq!(found[6..], [int(0), Value::Null, Value::Null, Value::Null, Value::Null]);
    }

    #[test]
    fn aggregates_over_one_field_share_their_words() {
        let avg = AggregateSpec::over("a", Function::Avg, "v", InputType::Int, 0);
        let sum = AggregateSpec::over("s", Function::Sum, "v", InputType::Int, 0);
        assert_eq!(Layout::new(std::slice::from_ref(&avg)).words(), Layout::new(&[avg, sum]).words());
    }

    #[test]
    fn swapping_names_functions_or_order_changes_the_fingerprint() {
        let min = |name: &str| AggregateSpec::over(name, Function::Min, "v", InputType::Int, 0);
        let max = |name: &str| AggregateSpec::over(name, Function::Max, "v", InputType::Int, 0);
        let print = |specs: &[AggregateSpec]| Layout::new(specs).fingerprint();
        let base = print(&[min("a"), max("b")]);
        assert_ne!(base, print(&[max("a"), min("b")]));
        assert_ne!(base, print(&[max("b"), min("a")]));
        assert_ne!(base, print(&[min("a")]));
        assert_eq!(base, print(&[min("a"), max("b")]));
    }

    #[test]
    fn averages_of_large_sums_keep_their_digits() {
        assert_eq!(int_average(i128::from(i64::MAX) * 3, 3), i64::MAX as f64);
        assert_eq!(int_average(-7, 2), -3.5);
        assert_eq!(int_average(1, 4), 0.25);
    }
}
