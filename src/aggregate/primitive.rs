//! Accumulators of a fixed number of words: their identity, how an event is added, how two are merged.

use super::Touch;
use super::number::{ExactFloat, float_max, float_min};
use super::wide::Wide;
use crate::event::{Validity, ValueColumn};

/// What one group of words holds. Aggregates over the same field share slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Primitive {
    /// Number of values that are not null.
    Present,
    SumInt,
    SumFloat,
    MinInt,
    MaxInt,
    MinFloat,
    MaxFloat,
    /// Sum of squares.
    SquaresInt,
    SquaresFloat,
}

impl Primitive {
    pub(super) const fn words(self) -> usize {
        match self {
            Self::SquaresInt => 3,
            Self::SumInt | Self::SumFloat | Self::SquaresFloat => 2,
            _ => 1,
        }
    }

    pub(super) const fn identity(self) -> [u64; 3] {
        match self {
            Self::MinInt => [i64::MAX as u64, 0, 0],
            Self::MaxInt => [i64::MIN as u64, 0, 0],
            Self::MinFloat | Self::MaxFloat => [f64::NAN.to_bits(), 0, 0],
            _ => [0, 0, 0],
        }
    }
}

/// A primitive over a column, and where its words are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) primitive: Primitive,
    pub(super) column: usize,
    /// Which of several slots of the same kind over the column.
    pub(super) lane: u32,
    pub(super) word: usize,
}

impl Slot {
    /// Adds the touched events. What kind of slot it is is decided once for all of them.
    pub(super) fn update(self, words: &mut [u64], stride: usize, touches: &[Touch], column: &ValueColumn) {
        if self.primitive == Primitive::Present {
            let validity = column.validity();
            for touch in touches {
                let present = &mut words[touch.row as usize * stride + self.word];
                *present = present.wrapping_add(u64::from(validity.is_present(touch.event as usize)));
            }
            return;
        }
        match column {
            ValueColumn::Int { values, validity } | ValueColumn::Decimal { values, validity, .. } => {
                self.each(words, stride, touches, values, validity, add_int);
            }
            ValueColumn::Float { values, validity } => {
                self.each(words, stride, touches, values, validity, add_float);
            }
            // Of texts words hold nothing but how many there are.
            ValueColumn::Text { .. } => {}
        }
    }

    #[inline(always)]
    fn each<T: Copy>(
        self,
        words: &mut [u64],
        stride: usize,
        touches: &[Touch],
        values: &[T],
        validity: &Validity,
        add: impl Fn(Primitive, &mut [u64], T),
    ) {
        for touch in touches {
            let event = touch.event as usize;
            if validity.is_present(event) {
                let at = touch.row as usize * stride + self.word;
                add(self.primitive, &mut words[at..], values[event]);
            }
        }
    }

    /// Puts words that were read into the form that updates leave them in: a damaged pane may have any.
    pub(super) fn normalise(self, row: &mut [u64]) {
        if let Primitive::SumFloat | Primitive::SquaresFloat = self.primitive {
            let sum = float_sum(row, self.word).normalised();
            row[self.word..self.word + 2].copy_from_slice(&sum.to_words());
        }
    }

    /// Merges the words of the row `other` into those of `row`.
    pub(super) fn merge(self, row: &mut [u64], other: &[u64]) {
        let word = self.word;
        match self.primitive {
            Primitive::Present => row[word] = row[word].saturating_add(other[word]),
            Primitive::SumInt => {
                let sum = int_sum(row, word).wrapping_add(int_sum(other, word));
                set_int_sum(row, word, sum);
            }
            Primitive::SumFloat | Primitive::SquaresFloat => {
                let sum = float_sum(row, word).merge(float_sum(other, word));
                row[word..word + 2].copy_from_slice(&sum.to_words());
            }
            Primitive::SquaresInt => {
                let sum = squares(row, word).plus(squares(other, word));
                row[word..word + 3].copy_from_slice(&sum.to_words());
            }
            Primitive::MinInt => row[word] = (row[word] as i64).min(other[word] as i64) as u64,
            Primitive::MaxInt => row[word] = (row[word] as i64).max(other[word] as i64) as u64,
            Primitive::MinFloat => row[word] = merge_float(row[word], other[word], float_min),
            Primitive::MaxFloat => row[word] = merge_float(row[word], other[word], float_max),
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
        Primitive::SquaresInt => {
            // Cannot overflow: 2^64 squares of 126 bits each.
            let square = u128::from(value.unsigned_abs()).pow(2);
            let sum = squares(words, 0).plus(Wide::from(square));
            words[..3].copy_from_slice(&sum.to_words());
        }
        // A float slot over a column of integers cannot be laid out: a field has one type.
        _ => {}
    }
}

#[inline(always)]
fn add_float(primitive: Primitive, words: &mut [u64], value: f64) {
    match primitive {
        Primitive::SumFloat => {
            let sum = float_sum(words, 0).plus(value);
            words[..2].copy_from_slice(&sum.to_words());
        }
        Primitive::SquaresFloat => {
            let sum = float_sum(words, 0).merge(ExactFloat::square(value));
            words[..2].copy_from_slice(&sum.to_words());
        }
        Primitive::MinFloat => words[0] = merge_float(words[0], value.to_bits(), float_min),
        Primitive::MaxFloat => words[0] = merge_float(words[0], value.to_bits(), float_max),
        _ => {}
    }
}

fn merge_float(a: u64, b: u64, choose: fn(f64, f64) -> f64) -> u64 {
    choose(f64::from_bits(a), f64::from_bits(b)).to_bits()
}

pub(super) fn int_sum(row: &[u64], word: usize) -> i128 {
    (u128::from(row[word]) | u128::from(row[word + 1]) << 64) as i128
}

fn set_int_sum(row: &mut [u64], word: usize, sum: i128) {
    row[word] = sum as u64;
    row[word + 1] = (sum >> 64) as u64;
}

pub(super) fn float_sum(row: &[u64], word: usize) -> ExactFloat {
    ExactFloat::from_words([row[word], row[word + 1]])
}

pub(super) fn squares(row: &[u64], word: usize) -> Wide {
    Wide::from_words([row[word], row[word + 1], row[word + 2]])
}
