//! The cells of one column of a batch, by a handful of kinds: whatever Arrow type they come in, what follows knows
//! 64-bit integers, floats, 128-bit decimals, booleans and text. Values that are of that width already are borrowed.

use std::borrow::Cow;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrowPrimitiveType, LargeStringArray, StringArray, StringViewArray};
use arrow_schema::{DataType, TimeUnit};

const DAY_MS: i64 = 86_400_000;

/// Cells, and which of them are null, ascending.
pub(super) struct Cells<'a> {
    pub(super) values: Values<'a>,
    pub(super) nulls: Vec<u32>,
}

/// The values of a column. Those of nulls mean nothing.
pub(super) enum Values<'a> {
    /// Integers. Of an unsigned column a negative one is beyond 63 bits.
    Ints { values: Cow<'a, [i64]>, unsigned: bool },
    /// Floats.
    Floats(Cow<'a, [f64]>),
    /// Decimals, times ten to the power of the scale.
    Decimals { values: Cow<'a, [i128]>, scale: u8 },
    /// Booleans.
    Bools(Vec<bool>),
    /// Text.
    Texts(Texts<'a>),
    /// Times since the epoch, in the unit of the column; of dates, milliseconds.
    Times(Cow<'a, [i64]>),
    /// All are null.
    Nothing,
}

/// Text as Arrow keeps it.
pub(super) enum Texts<'a> {
    Small(&'a StringArray),
    Large(&'a LargeStringArray),
    View(&'a StringViewArray),
    /// Each row is the number of one of these.
    Dictionary(Box<Texts<'a>>, Vec<usize>),
}

impl Texts<'_> {
    #[inline]
    pub(super) fn get(&self, row: usize) -> &str {
        match self {
            Self::Small(array) => array.value(row),
            Self::Large(array) => array.value(row),
            Self::View(array) => array.value(row),
            Self::Dictionary(values, keys) => values.get(keys[row]),
        }
    }
}

impl<'a> Cells<'a> {
    /// The cells of a column whose type has a [`super::shape::Shape`].
    pub(super) fn of(array: &'a dyn Array) -> Self {
        let mut nulls = Vec::new();
        if let Some(logical) = array.logical_nulls().filter(|nulls| nulls.null_count() > 0) {
            nulls.extend((0..array.len()).filter(|&row| logical.is_null(row)).map(|row| row as u32));
        }
        let all = nulls.len() == array.len();
        Self { values: if all { Values::Nothing } else { Values::of(array) }, nulls }
    }

    /// The nulls among the rows from `from` to `to`.
    pub(super) fn nulls_in(&self, from: usize, to: usize) -> impl Iterator<Item = usize> + '_ {
        let start = self.nulls.partition_point(|&row| (row as usize) < from);
        let rest = &self.nulls[start..];
        rest.iter().map(|&row| row as usize).take_while(move |&row| row < to)
    }

    /// True when the cell is null.
    pub(super) fn is_null(&self, row: usize) -> bool {
        !self.nulls.is_empty() && self.nulls.binary_search(&(row as u32)).is_ok()
    }
}

fn native<T: ArrowPrimitiveType>(array: &dyn Array) -> &[T::Native] {
    array.as_primitive::<T>().values()
}

fn widened<T: ArrowPrimitiveType>(array: &dyn Array) -> Values<'_>
where
    T::Native: Into<i64>,
{
    let values = native::<T>(array).iter().map(|&value| value.into()).collect();
    Values::Ints { values: Cow::Owned(values), unsigned: false }
}

fn decimals<T: ArrowPrimitiveType>(array: &dyn Array, scale: i8) -> Values<'_>
where
    T::Native: Into<i128>,
{
    let values = native::<T>(array).iter().map(|&value| value.into()).collect();
    Values::Decimals { values: Cow::Owned(values), scale: scale.unsigned_abs() }
}

impl<'a> Values<'a> {
    fn of(array: &'a dyn Array) -> Self {
        let ints = |values| Self::Ints { values, unsigned: false };
        match array.data_type() {
            DataType::Int64 => ints(Cow::Borrowed(native::<Int64Type>(array))),
            DataType::Int32 => widened::<Int32Type>(array),
            DataType::Int16 => widened::<Int16Type>(array),
            DataType::Int8 => widened::<Int8Type>(array),
            DataType::UInt32 => widened::<UInt32Type>(array),
            DataType::UInt16 => widened::<UInt16Type>(array),
            DataType::UInt8 => widened::<UInt8Type>(array),
            DataType::UInt64 => {
                let values = native::<UInt64Type>(array).iter().map(|&value| value as i64).collect();
                Self::Ints { values: Cow::Owned(values), unsigned: true }
            }
            DataType::Float64 => Self::Floats(Cow::Borrowed(native::<Float64Type>(array))),
            DataType::Float32 => {
                let values = native::<Float32Type>(array).iter().map(|&value| f64::from(value)).collect();
                Self::Floats(Cow::Owned(values))
            }
            DataType::Decimal32(_, scale) => decimals::<Decimal32Type>(array, *scale),
            DataType::Decimal64(_, scale) => decimals::<Decimal64Type>(array, *scale),
            DataType::Decimal128(_, scale) => {
                let values = Cow::Borrowed(native::<Decimal128Type>(array));
                Self::Decimals { values, scale: scale.unsigned_abs() }
            }
            DataType::Boolean => {
                let array = array.as_boolean();
                Self::Bools((0..array.len()).map(|row| array.value(row)).collect())
            }
            DataType::Utf8 => Self::Texts(Texts::Small(array.as_string::<i32>())),
            DataType::LargeUtf8 => Self::Texts(Texts::Large(array.as_string::<i64>())),
            DataType::Utf8View => Self::Texts(Texts::View(array.as_string_view())),
            DataType::Timestamp(unit, _) => Self::Times(Cow::Borrowed(match unit {
                TimeUnit::Second => native::<TimestampSecondType>(array),
                TimeUnit::Millisecond => native::<TimestampMillisecondType>(array),
                TimeUnit::Microsecond => native::<TimestampMicrosecondType>(array),
                TimeUnit::Nanosecond => native::<TimestampNanosecondType>(array),
            })),
            DataType::Date32 => {
                let days = native::<Date32Type>(array).iter();
                Self::Times(Cow::Owned(days.map(|&days| i64::from(days) * DAY_MS).collect()))
            }
            DataType::Date64 => Self::Times(Cow::Borrowed(native::<Date64Type>(array))),
            DataType::Dictionary(_, _) => {
                let dictionary = array.as_any_dictionary();
                Self::of(dictionary.values()).by_number(dictionary.normalized_keys())
            }
            _ => Self::Nothing,
        }
    }

    /// The values with these numbers.
    fn by_number(self, keys: Vec<usize>) -> Self {
        fn gather<T: Copy>(values: &[T], keys: &[usize]) -> Vec<T> {
            keys.iter().map(|&key| values[key]).collect()
        }
        match self {
            Self::Ints { values, unsigned } => {
                Self::Ints { values: Cow::Owned(gather(&values, &keys)), unsigned }
            }
            Self::Floats(values) => Self::Floats(Cow::Owned(gather(&values, &keys))),
            Self::Decimals { values, scale } => {
                Self::Decimals { values: Cow::Owned(gather(&values, &keys)), scale }
            }
            Self::Bools(values) => Self::Bools(gather(&values, &keys)),
            Self::Texts(values) => Self::Texts(Texts::Dictionary(Box::new(values), keys)),
            Self::Times(values) => Self::Times(Cow::Owned(gather(&values, &keys))),
            Self::Nothing => Self::Nothing,
        }
    }
}
