//! Compiles the aggregates of an operator into a row of 64-bit words, and works on such rows.
//!
//! Accumulators of a fixed size come first, then one word for each state of variable size, which points into the slab
//! beside the rows, then extra words that mean nothing here.

use std::ops::Range;
use std::sync::Arc;

use super::define::{Erased, SketchPlace};
use super::finish::{Finish, Of, What};
use super::primitive::{Primitive, Slot};
use super::{AggregateSpec, Function, InputType, STATE_VERSION, Sketches, Value};
use crate::event::EventBatch;

/// One event that belongs to a pane: which row of the table, which event of the batch.
#[derive(Clone, Copy, Debug)]
pub struct Touch {
    /// Row of the pane in its table.
    pub row: u32,
    /// Index of the event in the batch.
    pub event: u32,
}

/// A state of variable size: what it is, and where its word and its column are.
#[derive(Clone, Debug)]
pub(super) struct Sketch {
    pub(super) place: SketchPlace,
    pub(super) code: Arc<dyn Erased>,
}

/// The row of words that an operator keeps per pane. Word 0 counts events.
#[derive(Clone, Debug)]
pub struct Layout {
    slots: Vec<Slot>,
    sketches: Vec<Sketch>,
    finish: Vec<Finish>,
    // Accumulators, then extra words.
    identity: Vec<u64>,
    words: usize,
    fingerprint: u64,
}

impl Layout {
    /// Lays out the words for `aggregates`, in their order.
    #[must_use]
    pub fn new(aggregates: &[AggregateSpec]) -> Self {
        Self::with_extra(aggregates, &[])
    }

    /// As [`Layout::new`], with extra words at the end of each row, which start as `extra`.
    #[must_use]
    pub fn with_extra(aggregates: &[AggregateSpec], extra: &[u64]) -> Self {
        let mut layout = Self {
            slots: Vec::new(),
            sketches: Vec::new(),
            finish: Vec::new(),
            identity: vec![0],
            words: 0,
            fingerprint: fingerprint(aggregates),
        };
        for aggregate in aggregates {
            let finish = layout.lay_out(aggregate);
            layout.finish.push(finish);
        }
        // Words of states stand together behind all others.
        let fixed = layout.identity.len();
        for (index, sketch) in layout.sketches.iter_mut().enumerate() {
            sketch.place.word = fixed + index;
        }
        layout.words = fixed + layout.sketches.len();
        layout.identity.resize(layout.words, 0);
        layout.identity.extend_from_slice(extra);
        layout
    }

    fn lay_out(&mut self, aggregate: &AggregateSpec) -> Finish {
        let Some(input) = &aggregate.input else { return Finish::Rows };
        let column = input.column;
        if let Some(code) = aggregate.code() {
            return Finish::Sketch { sketch: self.sketch(&code, column), code };
        }
        let lane = aggregate.lane;
        let present = self.slot(Primitive::Present, column, lane);
        let float = input.kind == InputType::Float;
        let mut word = |of_ints, of_floats| self.slot(if float { of_floats } else { of_ints }, column, lane);
        let what = match aggregate.function {
            Function::Min => What::Word(word(Primitive::MinInt, Primitive::MinFloat)),
            Function::Max => What::Word(word(Primitive::MaxInt, Primitive::MaxFloat)),
            Function::Sum => What::Sum(word(Primitive::SumInt, Primitive::SumFloat)),
            Function::Avg => What::Avg(word(Primitive::SumInt, Primitive::SumFloat)),
            Function::Variance | Function::VariancePop | Function::Stddev | Function::StddevPop => {
                What::Spread {
                    sum: word(Primitive::SumInt, Primitive::SumFloat),
                    squares: word(Primitive::SquaresInt, Primitive::SquaresFloat),
                    sample: matches!(aggregate.function, Function::Variance | Function::Stddev),
                    root: matches!(aggregate.function, Function::Stddev | Function::StddevPop),
                }
            }
            _ => return Finish::Present(present),
        };
        let of = match input.kind {
            InputType::Float => Of::Floats,
            InputType::Decimal(scale) => Of::Decimals(scale),
            InputType::Int | InputType::Text => Of::Ints,
        };
        Finish::Value { present, what, of }
    }

    /// The first word of the slot for `primitive` over `column`, laid out now unless it exists.
    fn slot(&mut self, primitive: Primitive, column: usize, lane: u32) -> usize {
        let same = |slot: &&Slot| slot.primitive == primitive && slot.column == column && slot.lane == lane;
        if let Some(slot) = self.slots.iter().find(same) {
            return slot.word;
        }
        let word = self.identity.len();
        self.slots.push(Slot { primitive, column, lane, word });
        self.identity.extend_from_slice(&primitive.identity()[..primitive.words()]);
        word
    }

    /// The index of the state of `code` over `column`, added now unless an aggregate before has the same.
    fn sketch(&mut self, code: &Arc<dyn Erased>, column: usize) -> usize {
        let same = |sketch: &Sketch| {
            sketch.place.column == column
                && sketch.code.state_type() == code.state_type()
                && sketch.code.state_name() == code.state_name()
        };
        self.sketches.iter().position(same).unwrap_or_else(|| {
            self.sketches.push(Sketch { place: SketchPlace { word: 0, column }, code: Arc::clone(code) });
            self.sketches.len() - 1
        })
    }

    /// Words of the accumulators.
    #[must_use]
    pub fn words(&self) -> usize {
        self.words
    }

    /// Words in a row, the extra ones included.
    #[must_use]
    pub fn stride(&self) -> usize {
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

    /// True when rows have states of variable size.
    #[must_use]
    pub fn has_states(&self) -> bool {
        !self.sketches.is_empty()
    }

    /// A number that differs when the shape or the meaning of a row differs: it covers, in order, each
    /// aggregate's name, function with its parameters, field and type, and lane, and the state version.
    #[must_use]
    pub const fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    pub(super) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    pub(super) fn sketches(&self) -> &[Sketch] {
        &self.sketches
    }

    /// Which words point to states.
    pub(super) fn sketch_words(&self) -> Range<usize> {
        self.words - self.sketches.len()..self.words
    }

    /// Adds the touched events of `batch` to the rows in `words`, whose states are in `sketches`.
    ///
    /// Works slot by slot over all events, so that the kind of aggregate is decided once per batch.
    pub fn update(&self, words: &mut [u64], sketches: &mut Sketches, touches: &[Touch], batch: &EventBatch) {
        let stride = self.stride();
        for touch in touches {
            if let Some(rows) = words.get_mut(touch.row as usize * stride) {
                *rows = rows.wrapping_add(1);
            }
        }
        for slot in &self.slots {
            if let Some(column) = batch.values.get(slot.column) {
                slot.update(words, stride, touches, column);
            }
        }
        for sketch in &self.sketches {
            sketch.code.update(sketch.place, words, stride, sketches, touches, batch);
        }
    }

    /// Merges the accumulators of `other`, with its own slab, into `row`.
    pub(super) fn merge(&self, row: &mut [u64], sketches: &mut Sketches, other: &[u64], others: &Sketches) {
        row[0] = row[0].saturating_add(other[0]);
        for slot in &self.slots {
            slot.merge(row, other);
        }
        for sketch in &self.sketches {
            let word = sketch.place.word;
            let Some(theirs) = others.get(other[word]) else { continue };
            if row[word] == 0 {
                row[word] = sketches.insert(theirs.clone());
            } else {
                sketch.code.merge(row[word], sketches, &*theirs.state);
            }
        }
    }

    /// Gives `row`, whose words are a copy from another slab, states of its own.
    pub(super) fn copy_states(&self, row: &mut [u64], sketches: &mut Sketches, others: &Sketches) {
        for word in &mut row[self.sketch_words()] {
            *word = others.get(*word).cloned().map_or(0, |held| sketches.insert(held));
        }
    }

    /// Appends the value of each aggregate of `row` to `values`.
    pub(super) fn finish(&self, row: &[u64], sketches: &Sketches, values: &mut Vec<Value>) {
        values.extend(self.finish.iter().map(|finish| match finish {
            Finish::Sketch { sketch, code } => {
                let held = self.sketches.get(*sketch).and_then(|sketch| sketches.get(row[sketch.place.word]));
                code.finish(held.map(|held| &*held.state))
            }
            finish => finish.value(row),
        }));
    }
}

fn fingerprint(aggregates: &[AggregateSpec]) -> u64 {
    let mut text = format!("state {STATE_VERSION}");
    for aggregate in aggregates {
        let input = aggregate.input.as_ref().map(|input| (input.field.as_str(), input.kind.name()));
        text.push_str(&format!("\n{:?} {} {input:?}", aggregate.name, aggregate.function_text()));
        if aggregate.lane != 0 {
            text.push_str(&format!(" lane {}", aggregate.lane));
        }
    }
    xxhash_rust::xxh3::xxh3_64(text.as_bytes())
}

#[cfg(test)]
mod tests;
