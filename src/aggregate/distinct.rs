//! How many different values there were: exactly up to a bound, or estimated.

use std::collections::BTreeSet;

use super::bytes::{Reader, put_varint};
use super::hyperloglog::HyperLogLog;
use super::item::Item;
use super::{Aggregate, Beyond, Observation, StateError, Value};

/// Precision of the sketch that takes over beyond the bound of an exact count: 0.8 % standard error.
const PRECISION_BEYOND: u8 = 14;
/// About what a node of a sorted set takes per value beyond the value itself.
const NODE_BYTES: usize = 12;

/// Exact up to `limit` different values; what it is beyond depends on how many there are and not on their order.
#[derive(Debug)]
pub(super) struct Distinct {
    pub(super) limit: u32,
    pub(super) beyond: Beyond,
}

/// The values, or what is left of too many.
#[derive(Clone, Debug)]
pub(super) enum Values {
    Exact { values: BTreeSet<Item>, text_bytes: usize },
    Estimate(HyperLogLog),
    Unknown,
}

const EXACT: u8 = 0;
const ESTIMATE: u8 = 1;
const UNKNOWN: u8 = 2;

impl Distinct {
    fn insert(&self, state: &mut Values, item: Item) {
        match state {
            Values::Exact { values, text_bytes } => {
                let bytes = item.heap_bytes();
                if values.insert(item) {
                    *text_bytes += bytes;
                    if values.len() > self.limit as usize {
                        *state = self.beyond(values);
                    }
                }
            }
            Values::Estimate(sketch) => sketch.insert(Item::hash(item.datum())),
            Values::Unknown => {}
        }
    }

    fn beyond(&self, values: &BTreeSet<Item>) -> Values {
        match self.beyond {
            Beyond::Null => Values::Unknown,
            Beyond::Estimate => {
                let mut sketch = HyperLogLog::new(PRECISION_BEYOND);
                values.iter().for_each(|item| sketch.insert(Item::hash(item.datum())));
                Values::Estimate(sketch)
            }
        }
    }
}

impl Aggregate for Distinct {
    type State = Values;

    fn name(&self) -> String {
        format!("distinct(limit={},beyond={})", self.limit, self.beyond.name())
    }

    fn version(&self) -> u32 {
        1
    }

    fn identity(&self) -> Values {
        Values::Exact { values: BTreeSet::new(), text_bytes: 0 }
    }

    fn update(&self, state: &mut Values, event: &Observation<'_>) {
        match state {
            Values::Exact { .. } => self.insert(state, Item::counted(event.value)),
            Values::Estimate(sketch) => sketch.insert(Item::hash(event.value)),
            Values::Unknown => {}
        }
    }

    fn merge(&self, state: &mut Values, other: &Values) {
        match other {
            Values::Exact { values, .. } => values.iter().for_each(|item| self.insert(state, item.clone())),
            Values::Estimate(theirs) => {
                if let Values::Exact { values, .. } = state {
                    *state = self.beyond(values);
                }
                if let Values::Estimate(sketch) = state {
                    sketch.merge(theirs);
                }
            }
            Values::Unknown => *state = Values::Unknown,
        }
    }

    fn finish(&self, state: &Values) -> Value {
        match state {
            Values::Exact { values, .. } => Value::Int(values.len() as i128),
            Values::Estimate(sketch) => Value::Int(i128::from(sketch.estimate())),
            Values::Unknown => Value::Null,
        }
    }

    fn encode(&self, state: &Values, bytes: &mut Vec<u8>) {
        match state {
            Values::Exact { values, .. } => {
                bytes.push(EXACT);
                put_varint(bytes, values.len() as u64);
                values.iter().for_each(|item| item.encode(bytes));
            }
            Values::Estimate(sketch) => {
                bytes.push(ESTIMATE);
                sketch.encode(bytes);
            }
            Values::Unknown => bytes.push(UNKNOWN),
        }
    }

    fn decode(&self, bytes: &[u8]) -> Result<Values, StateError> {
        let mut reader = Reader(bytes);
        let state = match reader.byte()? {
            EXACT => {
                let count = reader.varint()?;
                if count > u64::from(self.limit) {
                    return Err(StateError("more values than the limit"));
                }
                let mut state = self.identity();
                for _ in 0..count {
                    self.insert(&mut state, Item::decode(&mut reader)?);
                }
                state
            }
            ESTIMATE if self.beyond == Beyond::Estimate => {
                Values::Estimate(HyperLogLog::decode(&mut reader, PRECISION_BEYOND)?)
            }
            UNKNOWN if self.beyond == Beyond::Null => Values::Unknown,
            _ => return Err(StateError("the values are of no known kind")),
        };
        reader.end()?;
        Ok(state)
    }

    fn heap_bytes(&self, state: &Values) -> usize {
        match state {
            Values::Exact { values, text_bytes } => {
                values.len() * (size_of::<Item>() + NODE_BYTES) + text_bytes
            }
            Values::Estimate(sketch) => sketch.heap_bytes(),
            Values::Unknown => 0,
        }
    }
}

/// An estimate with a standard error of 1.04 / √2^precision, exact while there are few.
#[derive(Debug)]
pub(super) struct ApproxDistinct {
    pub(super) precision: u8,
}

impl Aggregate for ApproxDistinct {
    type State = HyperLogLog;

    fn name(&self) -> String {
        format!("approx_distinct(precision={})", self.precision)
    }

    fn version(&self) -> u32 {
        1
    }

    fn identity(&self) -> HyperLogLog {
        HyperLogLog::new(self.precision)
    }

    fn update(&self, state: &mut HyperLogLog, event: &Observation<'_>) {
        state.insert(Item::hash(event.value));
    }

    fn merge(&self, state: &mut HyperLogLog, other: &HyperLogLog) {
        state.merge(other);
    }

    fn finish(&self, state: &HyperLogLog) -> Value {
        Value::Int(i128::from(state.estimate()))
    }

    fn encode(&self, state: &HyperLogLog, bytes: &mut Vec<u8>) {
        state.encode(bytes);
    }

    fn decode(&self, bytes: &[u8]) -> Result<HyperLogLog, StateError> {
        HyperLogLog::decode(&mut Reader(bytes), self.precision)
    }

    fn heap_bytes(&self, state: &HyperLogLog) -> usize {
        state.heap_bytes()
    }
}
