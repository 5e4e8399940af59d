//! Events on their way in: a block of one partition, column by column, in arrival order. Knows no window and no
//! aggregate; operators and accumulators read its columns.

use std::borrow::Cow;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

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

    /// The bytes of all keys together.
    #[cfg(feature = "arrow")]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes that it holds, counted by capacity.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * 4
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

    /// Appends all keys of another column.
    pub(crate) fn append_all(&mut self, from: &Self) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&from.bytes);
        self.ends
            .extend(from.ends.iter().map(|&end| u32::try_from(start + end as usize).unwrap_or(u32::MAX)));
    }

    /// Appends keys that stand back to back in `bytes`; `ends` says where each of them ends there.
    pub fn extend(&mut self, bytes: &[u8], ends: impl Iterator<Item = usize>) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        // As in `finish_key`.
        self.ends.extend(ends.map(|end| u32::try_from(start + end).unwrap_or(u32::MAX)));
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

    /// Appends what is known of the `rows` rows of another column behind the first `index` of this one.
    fn append_all(&mut self, index: usize, from: &Self, rows: usize) {
        if from.present.is_empty() && self.present.is_empty() {
            return;
        }
        self.present.resize(index, true);
        self.present.extend_from_slice(&from.present);
        self.present.resize(index + rows, true);
    }

    #[cfg(feature = "arrow")]
    fn mark_absent(&mut self, index: usize) {
        if self.present.len() <= index {
            self.present.resize(index + 1, true);
        }
        self.present[index] = false;
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

/// One value of one event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Datum<'a> {
    /// An integer.
    Int(i64),
    /// A float; may be NaN or infinite when a program pushed such a one.
    Float(f64),
    /// A decimal: `unscaled` divided by ten to the power of `scale`.
    Decimal {
        /// The digits, at most [`DECIMAL_DIGITS_MAX`].
        unscaled: i64,
        /// How many of them stand behind the point.
        scale: u8,
    },
    /// Text, as bytes that need not be UTF-8.
    Text(&'a [u8]),
}

/// Digits that a decimal may have, those behind the point included.
pub const DECIMAL_DIGITS_MAX: u8 = 18;

/// The values of one input field of a batch. An absent value is null; its slot holds zero, or an empty text.
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
    /// Exact decimals of one scale.
    Decimal {
        /// Digits behind the point, the same for all values.
        scale: u8,
        /// One value per event, times ten to the power of the scale.
        values: Vec<i64>,
        /// Which are not null.
        validity: Validity,
    },
    /// Text.
    Text {
        /// One text per event.
        values: KeyColumn,
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

    /// An empty column of decimals with `scale` digits behind the point.
    #[must_use]
    pub fn decimal(scale: u8) -> Self {
        Self::Decimal { scale, values: Vec::new(), validity: Validity::default() }
    }

    /// An empty column of text.
    #[must_use]
    pub fn text() -> Self {
        Self::Text { values: KeyColumn::default(), validity: Validity::default() }
    }

    /// Which values are not null.
    #[must_use]
    pub fn validity(&self) -> &Validity {
        match self {
            Self::Int { validity, .. }
            | Self::Float { validity, .. }
            | Self::Decimal { validity, .. }
            | Self::Text { validity, .. } => validity,
        }
    }

    fn validity_mut(&mut self) -> &mut Validity {
        match self {
            Self::Int { validity, .. }
            | Self::Float { validity, .. }
            | Self::Decimal { validity, .. }
            | Self::Text { validity, .. } => validity,
        }
    }

    /// Number of values, nulls included.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Int { values, .. } | Self::Decimal { values, .. } => values.len(),
            Self::Float { values, .. } => values.len(),
            Self::Text { values, .. } => values.len(),
        }
    }

    /// True without values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value at `index`; `None` when it is null or there is none.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Datum<'_>> {
        if index >= self.len() || !self.validity().is_present(index) {
            return None;
        }
        Some(match self {
            Self::Int { values, .. } => Datum::Int(values[index]),
            Self::Float { values, .. } => Datum::Float(values[index]),
            Self::Decimal { scale, values, .. } => Datum::Decimal { unscaled: values[index], scale: *scale },
            Self::Text { values, .. } => Datum::Text(values.get(index)),
        })
    }

    /// Appends a null.
    pub fn push_null(&mut self) {
        let index = self.len();
        self.validity_mut().push(index, false);
        match self {
            Self::Int { values, .. } | Self::Decimal { values, .. } => values.push(0),
            Self::Float { values, .. } => values.push(0.0),
            Self::Text { values, .. } => values.push(&[]),
        }
    }

    /// Makes the value at `index` null; there has to be one.
    #[cfg(feature = "arrow")]
    pub(crate) fn make_null(&mut self, index: usize) {
        match self {
            Self::Int { values, .. } | Self::Decimal { values, .. } => values[index] = 0,
            Self::Float { values, .. } => values[index] = 0.0,
            // Of texts none is changed once it is there.
            Self::Text { .. } => return,
        }
        self.validity_mut().mark_absent(index);
    }

    /// Appends a value: one of the column's type, or an integer where it has an equal there (in a column of floats,
    /// the nearest float). Returns false, and appends nothing, when it does not fit.
    pub fn push(&mut self, value: Datum<'_>) -> bool {
        let index = self.len();
        match (&mut *self, value) {
            (Self::Int { values, .. }, Datum::Int(value)) => values.push(value),
            (Self::Float { values, .. }, Datum::Int(value)) => values.push(value as f64),
            (Self::Float { values, .. }, Datum::Float(value)) => values.push(value),
            (Self::Decimal { scale, values, .. }, Datum::Int(value)) => match scaled(value, *scale) {
                Some(unscaled) => values.push(unscaled),
                None => return false,
            },
            (Self::Decimal { scale, values, .. }, Datum::Decimal { unscaled, scale: given })
                if *scale == given && has_decimal_digits(unscaled) =>
            {
                values.push(unscaled);
            }
            (Self::Text { values, .. }, Datum::Text(text)) => values.push(text),
            _ => return false,
        }
        self.validity_mut().push(index, true);
        true
    }

    /// Appends an integer, as [`ValueColumn::push`] does; where it does not fit, a null.
    pub fn push_int(&mut self, value: i64) {
        if !self.push(Datum::Int(value)) {
            self.push_null();
        }
    }

    /// Appends a float. Returns false, and appends a null, when this is not a column of floats.
    pub fn push_float(&mut self, value: f64) -> bool {
        let fits = self.push(Datum::Float(value));
        if !fits {
            self.push_null();
        }
        fits
    }

    /// A column of the same type without values.
    #[must_use]
    pub fn empty_like(&self) -> Self {
        match self {
            Self::Int { .. } => Self::int(),
            Self::Float { .. } => Self::float(),
            Self::Decimal { scale, .. } => Self::decimal(*scale),
            Self::Text { .. } => Self::text(),
        }
    }

    /// Appends the value at `index` of a column of the same type; of one without values nothing.
    fn append(&mut self, from: &Self, index: usize) {
        match from.get(index) {
            // Of one type, so it fits.
            Some(value) => drop(self.push(value)),
            None if from.is_empty() => {}
            None => self.push_null(),
        }
    }

    /// Appends all values of a column of the same type; of another type, as many nulls.
    fn append_all(&mut self, from: &Self) {
        let (before, rows) = (self.len(), from.len());
        match (&mut *self, from) {
            (Self::Int { values, .. }, Self::Int { values: more, .. }) => values.extend_from_slice(more),
            (Self::Float { values, .. }, Self::Float { values: more, .. }) => values.extend_from_slice(more),
            (Self::Decimal { values, scale, .. }, Self::Decimal { values: more, scale: other, .. })
                if scale == other =>
            {
                values.extend_from_slice(more);
            }
            (Self::Text { values, .. }, Self::Text { values: more, .. }) => values.append_all(more),
            _ => {
                (0..rows).for_each(|_| self.push_null());
                return;
            }
        }
        self.validity_mut().append_all(before, from.validity(), rows);
    }

    /// Drops every value from `len` on.
    pub fn truncate(&mut self, len: usize) {
        match self {
            Self::Int { values, .. } | Self::Decimal { values, .. } => values.truncate(len),
            Self::Float { values, .. } => values.truncate(len),
            Self::Text { values, .. } => values.truncate(len),
        }
        self.validity_mut().present.truncate(len);
    }

    /// Forgets all values and keeps the memory.
    pub fn clear(&mut self) {
        match self {
            Self::Int { values, .. } | Self::Decimal { values, .. } => values.clear(),
            Self::Float { values, .. } => values.clear(),
            Self::Text { values, .. } => values.clear(),
        }
        self.validity_mut().clear();
    }
}

/// An integer as a decimal of `scale`, if it has room there.
fn scaled(value: i64, scale: u8) -> Option<i64> {
    let unscaled = 10_i64.checked_pow(u32::from(scale))?.checked_mul(value)?;
    has_decimal_digits(unscaled).then_some(unscaled)
}

/// True when a decimal has no more than [`DECIMAL_DIGITS_MAX`] digits.
#[must_use]
pub fn has_decimal_digits(unscaled: i64) -> bool {
    unscaled.unsigned_abs() < 10_u64.pow(u32::from(DECIMAL_DIGITS_MAX))
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
    /// The rows that the events were taken from, where these are no text: what a late or rejected one is shown as.
    pub rows: Option<Arc<dyn RowText>>,
}

/// Rows that can be written as text when one of them has to be shown, which for most never happens.
pub trait RowText: Debug + Send + Sync {
    /// Appends the row with this record number (see [`EventBatch::records`]), as a JSON object on one line. Returns false
    /// for a row that is not among these.
    fn append(&self, record: u64, out: &mut Vec<u8>) -> bool;
}

/// A number for [`EventBatch::push_event`], which also takes a [`Datum`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// For a column of integers, or rounded for one of floats.
    Int(i64),
    /// For a column of floats.
    Float(f64),
}

impl From<Number> for Datum<'_> {
    fn from(number: Number) -> Self {
        match number {
            Number::Int(value) => Self::Int(value),
            Number::Float(value) => Self::Float(value),
        }
    }
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
    /// value of another type than its column, leads to.
    pub fn push_event<'a, V>(&mut self, time: EventTime, keys: &[&[u8]], values: &[Option<V>])
    where
        V: Copy + Into<Datum<'a>>,
    {
        self.times.push(time.as_millis());
        for (column, key) in self.keys.iter_mut().zip(keys) {
            column.push(key);
        }
        for (column, value) in self.values.iter_mut().zip(values) {
            match value {
                None => column.push_null(),
                // What does not fit leaves the column short, which the store refuses.
                Some(value) => {
                    let _ = column.push((*value).into());
                }
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

    /// The original text of the event at `index`, when the batch was parsed from text; its row as JSON, when it has
    /// [`EventBatch::rows`].
    #[must_use]
    pub fn text_of(&self, index: usize) -> Option<Cow<'_, [u8]>> {
        match self.spans.get(index) {
            Some(span) => self.text.get(span.start as usize..span.end as usize).map(Cow::Borrowed),
            None => self.row_text(*self.records.get(index)?).map(Cow::Owned),
        }
    }

    /// The row of this record number as JSON, when the batch has [`EventBatch::rows`].
    #[must_use]
    pub fn row_text(&self, record: u64) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        self.rows.as_ref()?.append(record, &mut text).then_some(text)
    }

    /// Columns of the same kinds, without events.
    #[must_use]
    pub fn empty_like(&self) -> Self {
        Self {
            partition: self.partition,
            source: self.source,
            keys: vec![KeyColumn::default(); self.keys.len()],
            values: self.values.iter().map(ValueColumn::empty_like).collect(),
            ..Self::default()
        }
    }

    /// Appends the events `range` of a batch with columns of the same kinds, without their text.
    pub fn append_events(&mut self, from: &Self, range: Range<usize>) {
        let first = self.len();
        for index in range.clone() {
            self.times.push(from.times[index]);
            self.records.extend(from.records.get(index));
            for (column, from) in self.keys.iter_mut().zip(&from.keys) {
                if !from.is_empty() {
                    column.push(from.get(index));
                }
            }
            for (column, from) in self.values.iter_mut().zip(&from.values) {
                column.append(from, index);
            }
        }
        let told = from.punctuations.iter().filter(|(at, _)| range.contains(&(*at as usize)));
        let moved = |&(at, time): &(u32, EventTime)| ((at as usize - range.start + first) as u32, time);
        self.punctuations.extend(told.map(moved));
    }

    /// Appends all events of a batch with columns of the same kinds, and where their text stands, which is that of this
    /// batch.
    pub(crate) fn append_all(&mut self, from: &Self) {
        let first = self.len();
        self.times.extend_from_slice(&from.times);
        self.records.extend_from_slice(&from.records);
        self.spans.extend_from_slice(&from.spans);
        self.keys.iter_mut().zip(&from.keys).for_each(|(column, from)| column.append_all(from));
        self.values.iter_mut().zip(&from.values).for_each(|(column, from)| column.append_all(from));
        let moved = |&(at, time): &(u32, EventTime)| ((at as usize + first) as u32, time);
        self.punctuations.extend(from.punctuations.iter().map(moved));
    }

    /// The events `range` as a batch of their own, with all of the text, so that places in it are what they were.
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> Self {
        let mut part = self.empty_like();
        part.append_events(self, range.clone());
        part.text.clone_from(&self.text);
        part.rows.clone_from(&self.rows);
        part.spans.extend_from_slice(self.spans.get(range).unwrap_or_default());
        part
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
        self.rows = None;
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
    fn a_column_takes_what_it_can_hold_and_nothing_else() {
        let mut decimals = ValueColumn::decimal(2);
        assert!(decimals.push(Datum::Decimal { unscaled: 1_050, scale: 2 }) && decimals.push(Datum::Int(-3)));
        assert!(
            !decimals.push(Datum::Decimal { unscaled: 1_050, scale: 3 }) && !decimals.push(Datum::Float(1.0))
        );
        assert!(!decimals.push(Datum::Int(10_i64.pow(16))));
        decimals.push_null();
        let found: Vec<_> = (0..4).map(|index| decimals.get(index)).collect();
        let decimal = |unscaled| Some(Datum::Decimal { unscaled, scale: 2 });
        assert_eq!(found, [decimal(1_050), decimal(-300), None, None]);
        let mut texts = ValueColumn::text();
        texts.push_null();
        assert!(texts.push(Datum::Text(b"")) && !texts.push(Datum::Int(1)));
        assert_eq!((texts.get(0), texts.get(1), texts.len()), (None, Some(Datum::Text(b"")), 2));
        texts.truncate(1);
        assert_eq!(texts.len(), 1);
    }

    #[test]
    fn a_batch_put_together_from_pieces_of_another_is_that_one() {
        let columns = vec![ValueColumn::int(), ValueColumn::text(), ValueColumn::float()];
        let mut whole = EventBatch::with_columns(PartitionId(3), 2, columns);
        whole.values.pop();
        for at in 0..7_i64 {
            let key = format!("k{at}");
            let number = (at != 2).then_some(Datum::Int(at));
            let text = (at < 5).then_some(Datum::Text(key.as_bytes()));
            whole.push_event(EventTime::from_millis(at * 10), &[key.as_bytes(), b""], &[number, text]);
            whole.records.push(at as u64 + 1);
            let start = whole.text.len() as u32;
            whole.text.extend_from_slice(key.as_bytes());
            whole.spans.push(start..whole.text.len() as u32);
        }
        whole.punctuations = vec![(1, EventTime::from_millis(5)), (6, EventTime::from_millis(9))];
        whole.values.push(ValueColumn::float());
        let mut joined = whole.empty_like();
        let mut appended = whole.empty_like();
        for range in [0..3, 3..3, 3..7] {
            appended.append_all(&whole.part(range.clone()));
            joined.append_events(&whole, range.clone());
            assert_eq!(
                whole.part(range.clone()).text_of(0),
                whole.text_of(range.start).filter(|_| !range.is_empty())
            );
        }
        appended.text.clone_from(&whole.text);
        assert_eq!(format!("{appended:?}"), format!("{whole:?}"));
        (joined.text, joined.spans) = (whole.text.clone(), whole.spans.clone());
        assert_eq!(format!("{joined:?}"), format!("{whole:?}"));
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
