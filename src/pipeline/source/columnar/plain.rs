//! Rows about which there is nothing to say: found by looking at whole columns, and copied in runs.
//!
//! To doubt a row is always right, it only takes longer; to take one for plain that would be refused is wrong.

use super::cells::{Cells, Texts, Values};
use super::{ColumnarReader, is_text};
use crate::codec::KeyWriter;
use crate::event::{Datum, KeyColumn, ValueColumn, has_decimal_digits};
use crate::pipeline::config::{EpochUnit, InputType, KeyField, KeyType, TimeFormat};
use crate::pipeline::source::row::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::pipeline::source::time::{TimeReader, to_millis};
use crate::pipeline::source::token::{Kind, Token};

/// What a look at its columns says of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Row {
    /// It is an event.
    Plain,
    /// A filter passes over it.
    Filtered,
    /// It has to be looked at by itself.
    Doubtful,
}

/// Longest key that is certain to fit: as JSON, by which it is measured, a byte takes six at most.
const PLAIN_KEY_BYTES: usize = KEY_BYTES_MAX / 6;
/// Longest part of a key that is certain to fit, with every byte escaped and its end marked, besides seven others.
const PLAIN_PART_BYTES: usize = KEY_BYTES_MAX / 16 - 2;
/// Parts of a key whose length need not be added up.
const PLAIN_PARTS: usize = 8;

fn doubt(found: &mut [Row], row: usize) {
    if found[row] == Row::Plain {
        found[row] = Row::Doubtful;
    }
}

fn doubt_nulls(found: &mut [Row], cells: &Cells<'_>) {
    for &row in &cells.nulls {
        doubt(found, row as usize);
    }
}

fn doubt_where<T: Copy>(found: &mut [Row], values: &[T], is_doubtful: impl Fn(T) -> bool) {
    // Nearly always none is, and that is found without a branch for each.
    if !values.iter().fold(false, |any, &value| any | is_doubtful(value)) {
        return;
    }
    for (row, &value) in values.iter().enumerate() {
        if is_doubtful(value) {
            doubt(found, row);
        }
    }
}

impl ColumnarReader {
    /// Looks at all columns of a batch: afterwards every row has its verdict, and every plain one its event time.
    pub(super) fn look(&mut self, cells: &[Cells<'_>], rows: usize) {
        let (mut found, mut millis) = (std::mem::take(&mut self.found), std::mem::take(&mut self.millis));
        found.clear();
        found.resize(rows, Row::Plain);
        let plan = self.rows.plan();
        for (filter, &place) in plan.filters.iter().zip(&self.places.filters) {
            super::filters::look(filter, &cells[place], &mut found);
        }
        let (place, _) = self.times.event;
        look_at_times(&self.rows.time, &cells[place], &mut found, &mut millis);
        if let Some((place, _)) = self.times.punctuation {
            let cells = &cells[place];
            (0..rows).filter(|&row| !cells.is_null(row)).for_each(|row| doubt(&mut found, row));
        }
        let values = plan.values.iter().zip(&self.places.values).zip(&plan.reads_value);
        for ((value, &place), _) in values.filter(|(_, read)| **read) {
            look_at_values(value.input, &cells[place], &mut found);
        }
        let keys = plan.keys.iter().zip(&self.places.keys).zip(&plan.reads_key);
        for ((key, places), _) in keys.filter(|(_, read)| **read) {
            for (part, &place) in key.iter().zip(places) {
                look_at_key(part, key.len(), &cells[place], &mut found);
            }
        }
        (self.found, self.millis) = (found, millis);
    }

    /// Appends plain rows to the columns of a batch, except their record numbers.
    pub(super) fn append(
        &self,
        cells: &[Cells<'_>],
        from: usize,
        to: usize,
        into: &mut crate::event::EventBatch,
    ) {
        into.times.extend_from_slice(&self.millis[from..to]);
        let plan = self.rows.plan();
        let values = plan.values.iter().zip(&self.places.values).zip(&mut into.values);
        for (((value, &place), column), _) in values.zip(&plan.reads_value).filter(|(_, read)| **read) {
            append_values(value.input, &cells[place], from, to, column);
        }
        let keys = self.places.keys.iter().zip(&mut into.keys).zip(&plan.reads_key);
        for ((places, column), _) in keys.filter(|(_, read)| **read) {
            match places.as_slice() {
                [place] => append_keys(&cells[*place], from, to, column),
                places => append_composite(cells, places, from, to, column),
            }
        }
    }
}

/// Fills in the event times of rows that have one; doubts the others.
fn look_at_times(reader: &TimeReader, cells: &Cells<'_>, found: &mut [Row], millis: &mut Vec<i64>) {
    millis.clear();
    doubt_nulls(found, cells);
    match (&cells.values, reader.format()) {
        (Values::Ints { values, unsigned }, TimeFormat::Epoch(unit)) => {
            if *unsigned {
                doubt_where(found, values, |value| value < 0);
            }
            bring_to_millis(values, *unit, found, millis);
        }
        (Values::Times(values), TimeFormat::Epoch(unit)) => bring_to_millis(values, *unit, found, millis),
        (Values::Texts(texts), format) if is_text(format) => {
            return read_texts(reader, texts, found, millis);
        }
        // Decimals of seconds, and columns without values.
        _ => {
            millis.resize(found.len(), 0);
            (0..found.len()).for_each(|row| doubt(found, row));
            return;
        }
    }
    // What stands under nulls counts as well: it can only lead to more doubt.
    let (least, most) =
        millis.iter().fold((i64::MAX, i64::MIN), |(least, most), &time| (least.min(time), most.max(time)));
    if least <= most && !reader.believes_all(least, most) {
        doubt_where(found, millis, |time| !reader.believes_all(time, time));
    }
}

fn bring_to_millis(values: &[i64], unit: EpochUnit, found: &mut [Row], millis: &mut Vec<i64>) {
    match unit {
        EpochUnit::Millis => millis.extend_from_slice(values),
        // These divisors are constants, and nothing overflows.
        EpochUnit::Micros => millis.extend(values.iter().map(|value| value.div_euclid(1_000))),
        EpochUnit::Nanos => millis.extend(values.iter().map(|value| value.div_euclid(1_000_000))),
        EpochUnit::Seconds => {
            doubt_where(found, values, |value| to_millis(value, unit).is_none());
            millis.extend(values.iter().map(|value| value.wrapping_mul(1_000)));
        }
    }
}

fn read_texts(reader: &TimeReader, texts: &Texts<'_>, found: &mut [Row], millis: &mut Vec<i64>) {
    let mut scratch = Vec::new();
    millis.resize(found.len(), 0);
    for row in 0..found.len() {
        if found[row] != Row::Plain {
            continue;
        }
        let text = texts.get(row).as_bytes();
        match reader.read(text, Token::new(Kind::Text, 0, text.len()), &mut scratch) {
            Ok(time) => millis[row] = time,
            Err(_) => doubt(found, row),
        }
    }
}

fn look_at_values(input: Option<InputType>, cells: &Cells<'_>, found: &mut [Row]) {
    match (&cells.values, input) {
        // Only whether they are there counts.
        (_, None) | (Values::Nothing, _) => {}
        (Values::Ints { values, unsigned }, Some(InputType::Int)) => {
            if *unsigned {
                doubt_where(found, values, |value| value < 0);
            }
        }
        (Values::Ints { values, unsigned }, Some(InputType::Float)) => {
            if *unsigned {
                doubt_where(found, values, |value| value < 0);
            }
        }
        (Values::Ints { values, unsigned }, Some(InputType::Decimal(scale))) => {
            doubt_where(found, values, |value| {
                (*unsigned && value < 0) || rescaled(i128::from(value), 0, scale).is_none()
            });
        }
        (Values::Floats(values), Some(InputType::Float)) => {
            doubt_where(found, values, |value: f64| !value.is_finite());
        }
        (Values::Decimals { values, scale }, Some(InputType::Decimal(wanted))) => {
            doubt_where(found, values, |value| rescaled(value, *scale, wanted).is_none());
        }
        (Values::Texts(texts), Some(InputType::Text)) => {
            doubt_long(texts, VALUE_BYTES_MAX, cells, found);
        }
        // A decimal as a float, a float as a decimal, whatever is no text as text: by what is written.
        (_, Some(_)) => {
            let is_doubtful = |row: &usize| !cells.is_null(*row);
            (0..found.len()).filter(is_doubtful).for_each(|row| doubt(found, row));
        }
    }
}

/// A decimal of another scale, where it has the same value there.
fn rescaled(unscaled: i128, from: u8, to: u8) -> Option<i64> {
    let power = |digits: u8| 10_i128.checked_pow(u32::from(digits));
    let value = if from <= to {
        unscaled.checked_mul(power(to - from)?)?
    } else {
        let divisor = power(from - to)?;
        (unscaled % divisor == 0).then_some(unscaled / divisor)?
    };
    i64::try_from(value).ok().filter(|value| has_decimal_digits(*value))
}

fn doubt_long(texts: &Texts<'_>, bytes_max: usize, cells: &Cells<'_>, found: &mut [Row]) {
    // Nothing in a column can be longer than all of it.
    let all = match texts {
        Texts::Small(array) => array.value_data().len(),
        Texts::Large(array) => array.value_data().len(),
        Texts::View(_) | Texts::Dictionary(..) => usize::MAX,
    };
    if all <= bytes_max {
        return;
    }
    for row in 0..found.len() {
        if texts.get(row).len() > bytes_max && !cells.is_null(row) {
            doubt(found, row);
        }
    }
}

fn look_at_key(part: &KeyField, parts: usize, cells: &Cells<'_>, found: &mut [Row]) {
    doubt_nulls(found, cells);
    match (&cells.values, part.key_type) {
        (Values::Ints { values, unsigned }, _) if parts <= PLAIN_PARTS => {
            if *unsigned {
                doubt_where(found, values, |value| value < 0);
            }
        }
        (Values::Texts(texts), KeyType::Text) if parts == 1 => {
            doubt_long(texts, PLAIN_KEY_BYTES, cells, found);
        }
        (Values::Texts(texts), KeyType::Text) if parts <= PLAIN_PARTS => {
            doubt_long(texts, PLAIN_PART_BYTES, cells, found);
        }
        (Values::Bools(_), KeyType::Text) if parts <= PLAIN_PARTS => {}
        _ => (0..found.len()).for_each(|row| doubt(found, row)),
    }
}

fn append_values(
    input: Option<InputType>,
    cells: &Cells<'_>,
    from: usize,
    to: usize,
    column: &mut ValueColumn,
) {
    let before = column.len();
    match (&mut *column, &cells.values) {
        (ValueColumn::Int { values, .. }, _) if input.is_none() => values.resize(before + to - from, 1),
        (ValueColumn::Int { values, .. }, Values::Ints { values: given, .. }) => {
            values.extend_from_slice(&given[from..to]);
        }
        (ValueColumn::Float { values, .. }, Values::Ints { values: given, .. }) => {
            values.extend(given[from..to].iter().map(|&value| value as f64));
        }
        (ValueColumn::Float { values, .. }, Values::Floats(given)) => {
            values.extend_from_slice(&given[from..to]);
        }
        (ValueColumn::Decimal { scale, values, .. }, Values::Ints { values: given, .. }) => {
            let value = |&value| rescaled(i128::from(value), 0, *scale).unwrap_or(0);
            values.extend(given[from..to].iter().map(value));
        }
        (ValueColumn::Decimal { scale, values, .. }, Values::Decimals { values: given, scale: own }) => {
            values.extend(given[from..to].iter().map(|&value| rescaled(value, *own, *scale).unwrap_or(0)));
        }
        (ValueColumn::Text { values, .. }, Values::Texts(texts)) if cells.nulls.is_empty() => {
            append_texts(texts, from, to, values);
        }
        (ValueColumn::Text { .. }, Values::Texts(texts)) => {
            for row in from..to {
                let fits = !cells.is_null(row) && column.push(Datum::Text(texts.get(row).as_bytes()));
                if !fits {
                    column.push_null();
                }
            }
            return;
        }
        // What is no plain value of the column is null, or the row had been doubted.
        _ => return (from..to).for_each(|_| column.push_null()),
    }
    for row in cells.nulls_in(from, to) {
        column.make_null(before + row - from);
    }
}

fn append_texts(texts: &Texts<'_>, from: usize, to: usize, column: &mut KeyColumn) {
    match texts {
        Texts::Small(array) => {
            let offsets = &array.value_offsets()[from..=to];
            let (start, end) = (offsets[0] as usize, offsets[to - from] as usize);
            let ends = offsets[1..].iter().map(|&end| end as usize - start);
            column.extend(&array.value_data()[start..end], ends);
        }
        Texts::Large(array) => {
            let offsets = &array.value_offsets()[from..=to];
            let (start, end) = (offsets[0] as usize, offsets[to - from] as usize);
            let ends = offsets[1..].iter().map(|&end| end as usize - start);
            column.extend(&array.value_data()[start..end], ends);
        }
        Texts::View(_) | Texts::Dictionary(..) => {
            (from..to).for_each(|row| column.push(texts.get(row).as_bytes()));
        }
    }
}

fn append_keys(cells: &Cells<'_>, from: usize, to: usize, column: &mut KeyColumn) {
    match &cells.values {
        Values::Texts(texts) => append_texts(texts, from, to, column),
        _ => {
            for row in from..to {
                with_key(cells, row, |key| column.push(key));
            }
        }
    }
}

fn append_composite(cells: &[Cells<'_>], places: &[usize], from: usize, to: usize, column: &mut KeyColumn) {
    for row in from..to {
        let mut writer = KeyWriter::new(column.open_key(), places.len());
        for &place in places {
            with_key(&cells[place], row, |key| writer.push(key));
        }
        column.finish_key();
    }
}

/// Hands out the bytes of a part of a key.
#[inline]
fn with_key(cells: &Cells<'_>, row: usize, take: impl FnOnce(&[u8])) {
    match &cells.values {
        Values::Texts(texts) => take(texts.get(row).as_bytes()),
        Values::Ints { values, .. } => take(itoa::Buffer::new().format(values[row]).as_bytes()),
        Values::Bools(values) => take(if values[row] { b"true" } else { b"false" }),
        // Rows with other keys were doubted.
        _ => take(&[]),
    }
}
