//! The most frequent values, counted exactly.
//!
//! Sketches of frequent values that fit into less memory give other answers for other orders of the same events; a
//! result here must not. So all values are counted up to a bound, and beyond it there is no result.

use std::collections::BTreeMap;

use super::bytes::{Reader, put_varint};
use super::item::Item;
use super::{Aggregate, Observation, StateError, Value};

/// About what a node of a sorted map takes per value beyond the value itself.
const NODE_BYTES: usize = 24;

/// The `k` most frequent values while there are at most `limit` different ones.
#[derive(Debug)]
pub(super) struct TopK {
    pub(super) k: u32,
    pub(super) limit: u32,
}

/// How often each value was there; `None` once there were too many different ones.
#[derive(Clone, Debug)]
pub(super) struct Counts {
    counts: Option<BTreeMap<Item, u64>>,
    text_bytes: usize,
}

impl TopK {
    fn add(&self, state: &mut Counts, item: Item, count: u64) {
        let Some(counts) = &mut state.counts else { return };
        if let Some(known) = counts.get_mut(&item) {
            *known = known.saturating_add(count);
        } else if counts.len() >= self.limit as usize {
            *state = Counts { counts: None, text_bytes: 0 };
        } else {
            state.text_bytes += item.heap_bytes();
            counts.insert(item, count);
        }
    }
}

impl Aggregate for TopK {
    type State = Counts;

    fn name(&self) -> String {
        format!("top_k(k={},limit={})", self.k, self.limit)
    }

    fn version(&self) -> u32 {
        1
    }

    fn state_name(&self) -> String {
        format!("counts(limit={})", self.limit)
    }

    fn identity(&self) -> Counts {
        Counts { counts: Some(BTreeMap::new()), text_bytes: 0 }
    }

    fn update(&self, state: &mut Counts, event: &Observation<'_>) {
        if state.counts.is_some() {
            self.add(state, Item::counted(event.value), 1);
        }
    }

    fn merge(&self, state: &mut Counts, other: &Counts) {
        match &other.counts {
            Some(counts) => counts.iter().for_each(|(item, &count)| self.add(state, item.clone(), count)),
            None => *state = other.clone(),
        }
    }

    /// By count, the highest first, then by value, the lowest first.
    fn finish(&self, state: &Counts) -> Value {
        let Some(counts) = &state.counts else { return Value::Null };
        let mut order: Vec<(&Item, u64)> = counts.iter().map(|(item, &count)| (item, count)).collect();
        // The map is in the order of values, and the sort keeps it among equal counts.
        order.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        order.truncate(self.k as usize);
        let record = |(item, count): (&Item, u64)| {
            Value::Record(vec![("value", item.value()), ("count", Value::Int(i128::from(count)))])
        };
        Value::List(order.into_iter().map(record).collect())
    }

    fn encode(&self, state: &Counts, bytes: &mut Vec<u8>) {
        let Some(counts) = &state.counts else { return bytes.push(0) };
        bytes.push(1);
        for (item, &count) in counts {
            item.encode(bytes);
            put_varint(bytes, count);
        }
    }

    fn decode(&self, bytes: &[u8]) -> Result<Counts, StateError> {
        let mut reader = Reader(bytes);
        let mut state = self.identity();
        match reader.byte()? {
            0 => state.counts = None,
            1 => {
                while !reader.is_empty() {
                    let item = Item::decode(&mut reader)?;
                    self.add(&mut state, item, reader.varint()?);
                }
                if state.counts.is_none() {
                    return Err(StateError("more values than the limit"));
                }
            }
            _ => return Err(StateError("the counts are of no known kind")),
        }
        reader.end()?;
        Ok(state)
    }

    fn heap_bytes(&self, state: &Counts) -> usize {
        let values = state.counts.as_ref().map_or(0, BTreeMap::len);
        values * (size_of::<Item>() + NODE_BYTES) + state.text_bytes
    }
}
