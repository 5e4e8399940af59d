//! Events on their way in: a block of one partition, column by column, in arrival order. Knows no window and no
//! aggregate; operators and accumulators read its columns.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::event_time::EventTime;

/// Index of a source partition within its task (a file, a Kafka partition).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId(pub u32);

/// The user keys of a batch, back to back.
#[derive(Clone, Debug, Default)]
pub struct KeyColumn {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl KeyColumn {
    /// Number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True without keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The key at `index`.
    ///
    /// # Panics
    /// When `index` is not below [`KeyColumn::len`].
    #[must_use]
    pub fn get(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        &self.bytes[start..self.ends[index] as usize]
    }

    /// Appends a key.
    pub fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.finish_key();
    }

    /// The buffer behind the next key: append its bytes, then call [`KeyColumn::finish_key`], or
    /// [`KeyColumn::abandon_key`] to drop them.
    pub fn open_key(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Ends the key whose bytes were appended to [`KeyColumn::open_key`].
    pub fn finish_key(&mut self) {
        // A batch is a few MiB of text; its keys stay far below 4 GiB.
        self.ends.push(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX));
    }

    /// Drops bytes of an unfinished key.
    pub fn abandon_key(&mut self) {
        self.bytes.truncate(self.ends.last().map_or(0, |&end| end as usize));
    }

    /// Drops every key from `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.ends.truncate(len);
        self.abandon_key();
    }

    /// Forgets all keys and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

/// Which values of a column are present; empty while all are.
#[derive(Clone, Debug, Default)]
pub struct Validity {
    // One entry per row from the first absent value on; before it everything is present.
    present: Vec<bool>,
}

impl Validity {
    /// Records the presence of the value at `index`, which is one past the last.
    pub fn push(&mut self, index: usize, present: bool) {
        if present && self.present.is_empty() {
            return;
        }
        self.present.resize(index, true);
        self.present.push(present);
    }

    /// True when the value at `index` is present.
    #[must_use]
    pub fn is_present(&self, index: usize) -> bool {
        self.present.get(index).copied().unwrap_or(true)
    }

    /// True when nothing is absent.
    #[must_use]
    pub fn all_present(&self) -> bool {
        self.present.is_empty()
    }

    /// Forgets all rows.
    pub fn clear(&mut self) {
        self.present.clear();
    }
}

/// The values of one input field of a batch. An absent value is null; its slot holds zero.
#[derive(Clone, Debug)]
pub enum ValueColumn {
    /// Exact 64-bit integers.
    Int {
        /// One value per event.
        values: Vec<i64>,
        /// Which are not null.
        validity: Validity,
    },
    /// Double-precision floats.
    Float {
        /// One value per event.
        values: Vec<f64>,
        /// Which are not null.
        validity: Validity,
    },
}

impl ValueColumn {
    /// An empty column of integers.
    #[must_use]
    pub fn int() -> Self {
        Self::Int { values: Vec::new(), validity: Validity::default() }
    }

    /// An empty column of floats.
    #[must_use]
    pub fn float() -> Self {
        Self::Float { values: Vec::new(), validity: Validity::default() }
    }

    /// Number of values, nulls included.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Int { values, .. } => values.len(),
            Self::Float { values, .. } => values.len(),
        }
    }

    /// True without values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends a null.
    pub fn push_null(&mut self) {
        match self {
            Self::Int { values, validity } => {
                validity.push(values.len(), false);
                values.push(0);
            }
            Self::Float { values, validity } => {
                validity.push(values.len(), false);
                values.push(0.0);
            }
        }
    }

    /// Appends an integer; in a column of floats, the nearest float.
    pub fn push_int(&mut self, value: i64) {
        match self {
            Self::Int { values, validity } => {
                validity.push(values.len(), true);
                values.push(value);
            }
            Self::Float { values, validity } => {
                validity.push(values.len(), true);
                values.push(value as f64);
            }
        }
    }

    /// Appends a float. Returns false, and appends a null, when this is a column of integers.
    pub fn push_float(&mut self, value: f64) -> bool {
        match self {
            Self::Int { .. } => {
                self.push_null();
                false
            }
            Self::Float { values, validity } => {
                validity.push(values.len(), true);
                values.push(value);
                true
            }
        }
    }

    /// Drops every value from `len` on.
    pub fn truncate(&mut self, len: usize) {
        match self {
            Self::Int { values, validity } => {
                values.truncate(len);
                validity.present.truncate(len);
            }
            Self::Float { values, validity } => {
                values.truncate(len);
                validity.present.truncate(len);
            }
        }
    }

    /// Forgets all values and keeps the memory.
    pub fn clear(&mut self) {
        match self {
            Self::Int { values, validity } => {
                values.clear();
                validity.clear();
            }
            Self::Float { values, validity } => {
                values.clear();
                validity.clear();
            }
        }
    }
}

/// A source in the order declared: the partitions whose times follow one rule. A store that declares none has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SourceId(pub u16);

/// A block of events from one partition, in arrival order, column by column.
///
/// All columns have the same length. `keys` has one column for each distinct key definition of the pipeline and
/// `values` one for each input field that an aggregate reads; operators refer to both by index.
#[derive(Clone, Debug, Default)]
pub struct EventBatch {
    /// Partition that all events come from.
    pub partition: PartitionId,
    /// The source of that partition. Operators that read other sources pass over the batch.
    pub source: SourceId,
    /// Event times in milliseconds since the epoch.
    pub times: Vec<i64>,
    /// What some events say of the time to come, for a source with [`crate::operator::Strategy::Punctuated`]: the index
    /// of the event, ascending, and the time before which none is expected after it.
    pub punctuations: Vec<(u32, EventTime)>,
    /// User keys, one column per key definition. One that no operator reads of this source may be empty.
    pub keys: Vec<KeyColumn>,
    /// Input values, one column per field. One that no operator reads of this source may be empty.
    pub values: Vec<ValueColumn>,
    /// 1-based record number of each event within its partition (for text, the line it starts on).
    pub records: Vec<u64>,
    /// The text that the events were read from; empty for embedders that push columns.
    pub text: Vec<u8>,
    /// Where in `text` each event stands; empty when `text` is.
    pub spans: Vec<Range<u32>>,
}

/// One value of one event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// For a column of integers, or rounded for one of floats.
    Int(i64),
    /// For a column of floats.
    Float(f64),
}

impl EventBatch {
    /// An empty batch of `partition` with so many key columns and these value columns.
    #[must_use]
    pub fn with_columns(partition: PartitionId, keys: usize, values: Vec<ValueColumn>) -> Self {
        Self { partition, keys: vec![KeyColumn::default(); keys], values, ..Self::default() }
    }

    /// Appends an event: one key per key column, one value per value column, `None` for null.
    ///
    /// The store refuses a batch whose columns differ in length, which is what a wrong number of keys or values, or a
    /// float for a column of integers, leads to.
    pub fn push_event(&mut self, time: EventTime, keys: &[&[u8]], values: &[Option<Number>]) {
        self.times.push(time.as_millis());
        for (column, key) in self.keys.iter_mut().zip(keys) {
            column.push(key);
        }
        for (column, value) in self.values.iter_mut().zip(values) {
            match (value, column) {
                (None, column) => column.push_null(),
                (Some(Number::Int(value)), column) => column.push_int(*value),
                (Some(Number::Float(value)), column @ ValueColumn::Float { .. }) => {
                    column.push_float(*value);
                }
                (Some(Number::Float(_)), ValueColumn::Int { .. }) => {}
            }
        }
    }

    /// Number of events.
    #[must_use]
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// True without events.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// The original text of the event at `index`, when the batch was parsed from text.
    #[must_use]
    pub fn text_of(&self, index: usize) -> Option<&[u8]> {
        let span = self.spans.get(index)?;
        self.text.get(span.start as usize..span.end as usize)
    }

    /// Forgets all events and keeps columns and memory.
    pub fn clear(&mut self) {
        self.times.clear();
        self.punctuations.clear();
        self.keys.iter_mut().for_each(KeyColumn::clear);
        self.values.iter_mut().for_each(ValueColumn::clear);
        self.records.clear();
        self.text.clear();
        self.spans.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validity_starts_with_the_first_null() {
        let mut column = ValueColumn::int();
        column.push_int(4);
        column.push_null();
        column.push_int(6);
        let ValueColumn::Int { values, validity } = &column else { unreachable!() };
        assert_eq!(values, &[4, 0, 6]);
        assert_eq!((0..3).map(|i| validity.is_present(i)).collect::<Vec<_>>(), [true, false, true]);
    }

    #[test]
    fn an_abandoned_key_leaves_no_bytes() {
        let mut keys = KeyColumn::default();
        keys.push(b"a");
        keys.open_key().extend_from_slice(b"half");
        keys.abandon_key();
        keys.push(b"");
        keys.push(b"b");
        assert_eq!(
            (0..3).map(|i| keys.get(i).to_vec()).collect::<Vec<_>>(),
            [b"a".to_vec(), vec![], b"b".to_vec()]
        );
    }
}
