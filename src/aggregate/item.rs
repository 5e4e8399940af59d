//! Values that a state holds on to, and their order.

use std::cmp::Ordering;

use super::bytes::{Reader, put_bytes, put_signed, put_varint};
use super::{Observation, StateError, Value};
use crate::event::{DECIMAL_DIGITS_MAX, Datum};

/// A value, owned. Ordered by number, text by its bytes; NaN is the largest float.
#[derive(Clone, Debug)]
pub(super) enum Item {
    Int(i64),
    Float(f64),
    Decimal { unscaled: i64, scale: u8 },
    Text(Box<[u8]>),
}

impl Item {
    /// The value as it is.
    pub(super) fn of(value: Datum<'_>) -> Self {
        match value {
            Datum::Int(value) => Self::Int(value),
            Datum::Float(value) => Self::Float(value),
            Datum::Decimal { unscaled, scale } => Self::Decimal { unscaled, scale },
            Datum::Text(text) => Self::Text(text.into()),
        }
    }

    /// The value where equal ones are to be the same: zero has no sign, and all NaN are one.
    pub(super) fn counted(value: Datum<'_>) -> Self {
        match value {
            Datum::Float(value) if value.is_nan() => Self::Float(f64::NAN),
            Datum::Float(value) => Self::Float(value + 0.0),
            value => Self::of(value),
        }
    }

    pub(super) fn value(&self) -> Value {
        match self {
            Self::Int(value) => Value::Int(i128::from(*value)),
            Self::Float(value) => Value::Float(*value),
            Self::Decimal { unscaled, scale } => {
                Value::Decimal { unscaled: i128::from(*unscaled), scale: *scale }
            }
            Self::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
        }
    }

    /// A number that is the same for equal values, spread over 64 bits.
    pub(super) fn hash(value: Datum<'_>) -> u64 {
        let hash = xxhash_rust::xxh3::xxh3_64;
        match value {
            Datum::Int(value) | Datum::Decimal { unscaled: value, .. } => hash(&value.to_le_bytes()),
            Datum::Float(value) if value.is_nan() => hash(&f64::NAN.to_le_bytes()),
            Datum::Float(value) => hash(&(value + 0.0).to_le_bytes()),
            Datum::Text(text) => hash(text),
        }
    }

    pub(super) fn datum(&self) -> Datum<'_> {
        match self {
            Self::Int(value) => Datum::Int(*value),
            Self::Float(value) => Datum::Float(*value),
            Self::Decimal { unscaled, scale } => Datum::Decimal { unscaled: *unscaled, scale: *scale },
            Self::Text(text) => Datum::Text(text),
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        if let Self::Text(text) = self { text.len() } else { 0 }
    }

    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Int(value) => {
                bytes.push(0);
                put_signed(bytes, *value);
            }
            Self::Float(value) => {
                bytes.push(1);
                bytes.extend_from_slice(&value.to_le_bytes());
            }
            Self::Decimal { unscaled, scale } => {
                bytes.extend_from_slice(&[2, *scale]);
                put_signed(bytes, *unscaled);
            }
            Self::Text(text) => {
                bytes.push(3);
                put_bytes(bytes, text);
            }
        }
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, StateError> {
        Ok(match reader.byte()? {
            0 => Self::Int(reader.signed()?),
            1 => Self::Float(f64::from_le_bytes(reader.array()?)),
            2 => {
                let scale = reader.byte()?;
                if scale > DECIMAL_DIGITS_MAX {
                    return Err(StateError("a decimal has too many digits"));
                }
                Self::Decimal { scale, unscaled: reader.signed()? }
            }
            3 => Self::Text(reader.bytes()?.into()),
            _ => return Err(StateError("a value is of no known type")),
        })
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Int(_) => 0,
            Self::Float(_) => 1,
            Self::Decimal { scale, .. } => 2 + scale,
            Self::Text(_) => u8::MAX,
        }
    }
}

impl Ord for Item {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => a.cmp(b),
            (Self::Float(a), Self::Float(b)) => a.total_cmp(b),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (Self::Decimal { unscaled: a, scale }, Self::Decimal { unscaled: b, scale: other })
                if scale == other =>
            {
                a.cmp(b)
            }
            // A field has one type; this order is for damaged states.
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Item {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Item {}

/// A value with the place of its event, in the order of time, partition and record, and last of the value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment {
    time: i64,
    partition: u32,
    record: u64,
    pub(super) item: Item,
}

impl Moment {
    pub(super) fn of(event: &Observation<'_>) -> Self {
        Self {
            time: event.time.as_millis(),
            partition: event.partition.0,
            record: event.record,
            item: Item::of(event.value),
        }
    }

    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        put_signed(bytes, self.time);
        put_varint(bytes, u64::from(self.partition));
        put_varint(bytes, self.record);
        self.item.encode(bytes);
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, StateError> {
        let time = reader.signed()?;
        let partition = reader.varint()?;
        let partition = u32::try_from(partition).map_err(|_| StateError("a partition has too many bits"))?;
        Ok(Self { time, partition, record: reader.varint()?, item: Item::decode(reader)? })
    }
}
