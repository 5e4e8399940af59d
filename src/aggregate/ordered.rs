//! Aggregates that look at when events happened: the first, the last, and lists of them. Also the least and the
//! greatest text.
//!
//! "First" is by event time, then partition, then record number, and last by the value; so it does not matter when an
//! event arrived in memory.

use std::collections::VecDeque;

use super::bytes::Reader;
use super::item::{Item, Moment};
use super::{Aggregate, InputType, Keep, Observation, StateError, Value};
use crate::event::Datum;

/// The value of the first or the last event.
#[derive(Debug)]
pub(super) struct Pick {
    pub(super) keep: Keep,
}

impl Pick {
    fn offer(&self, state: &mut Option<Moment>, moment: Moment) {
        let better = state.as_ref().is_none_or(|held| match self.keep {
            Keep::First => moment < *held,
            Keep::Last => moment > *held,
        });
        if better {
            *state = Some(moment);
        }
    }
}

impl Aggregate for Pick {
    type State = Option<Moment>;

    fn name(&self) -> String {
        self.keep.name().to_owned()
    }

    fn version(&self) -> u32 {
        1
    }

    fn identity(&self) -> Option<Moment> {
        None
    }

    fn update(&self, state: &mut Option<Moment>, event: &Observation<'_>) {
        self.offer(state, Moment::of(event));
    }

    fn merge(&self, state: &mut Option<Moment>, other: &Option<Moment>) {
        if let Some(moment) = other {
            self.offer(state, moment.clone());
        }
    }

    fn finish(&self, state: &Option<Moment>) -> Value {
        state.as_ref().map_or(Value::Null, |moment| moment.item.value())
    }

    fn encode(&self, state: &Option<Moment>, bytes: &mut Vec<u8>) {
        if let Some(moment) = state {
            moment.encode(bytes);
        }
    }

    fn decode(&self, bytes: &[u8]) -> Result<Option<Moment>, StateError> {
        let mut reader = Reader(bytes);
        if reader.is_empty() {
            return Ok(None);
        }
        let moment = Moment::decode(&mut reader)?;
        reader.end()?;
        Ok(Some(moment))
    }

    fn heap_bytes(&self, state: &Option<Moment>) -> usize {
        state.as_ref().map_or(0, |moment| moment.item.heap_bytes())
    }
}

/// All values in order, up to `limit` of them; beyond it the first or the last ones.
#[derive(Debug)]
pub(super) struct Collect {
    pub(super) limit: u32,
    pub(super) keep: Keep,
}

/// Moments in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Moments {
    moments: VecDeque<Moment>,
    text_bytes: usize,
}

impl Collect {
    fn insert(&self, state: &mut Moments, moment: Moment) {
        // Events come mostly in order.
        let at = match state.moments.back() {
            Some(last) if *last > moment => state.moments.partition_point(|held| *held <= moment),
            _ => state.moments.len(),
        };
        let full = state.moments.len() >= self.limit as usize;
        let outside = match self.keep {
            Keep::First => at == state.moments.len(),
            Keep::Last => at == 0,
        };
        if full && outside {
            return;
        }
        state.text_bytes += moment.item.heap_bytes();
        state.moments.insert(at, moment);
        if full {
            let dropped = match self.keep {
                Keep::First => state.moments.pop_back(),
                Keep::Last => state.moments.pop_front(),
            };
            state.text_bytes -= dropped.map_or(0, |moment| moment.item.heap_bytes());
        }
    }
}

impl Aggregate for Collect {
    type State = Moments;

    fn name(&self) -> String {
        format!("collect(limit={},keep={})", self.limit, self.keep.name())
    }

    fn version(&self) -> u32 {
        1
    }

    fn identity(&self) -> Moments {
        Moments::default()
    }

    fn update(&self, state: &mut Moments, event: &Observation<'_>) {
        self.insert(state, Moment::of(event));
    }

    fn merge(&self, state: &mut Moments, other: &Moments) {
        other.moments.iter().for_each(|moment| self.insert(state, moment.clone()));
    }

    fn finish(&self, state: &Moments) -> Value {
        Value::List(state.moments.iter().map(|moment| moment.item.value()).collect())
    }

    fn encode(&self, state: &Moments, bytes: &mut Vec<u8>) {
        state.moments.iter().for_each(|moment| moment.encode(bytes));
    }

    fn decode(&self, bytes: &[u8]) -> Result<Moments, StateError> {
        let mut reader = Reader(bytes);
        let mut state = Moments::default();
        while !reader.is_empty() {
            if state.moments.len() >= self.limit as usize {
                return Err(StateError("more values than the limit"));
            }
            self.insert(&mut state, Moment::decode(&mut reader)?);
        }
        Ok(state)
    }

    fn heap_bytes(&self, state: &Moments) -> usize {
        state.moments.capacity() * size_of::<Moment>() + state.text_bytes
    }
}

/// The least or the greatest text, by its bytes.
#[derive(Debug)]
pub(super) struct Extreme {
    pub(super) greatest: bool,
}

impl Extreme {
    fn offer(&self, state: &mut Option<Box<[u8]>>, text: &[u8]) {
        let better =
            state.as_deref().is_none_or(|held| if self.greatest { text > held } else { text < held });
        if better {
            *state = Some(text.into());
        }
    }
}

impl Aggregate for Extreme {
    type State = Option<Box<[u8]>>;

    fn name(&self) -> String {
        if self.greatest { "max" } else { "min" }.to_owned()
    }

    fn version(&self) -> u32 {
        1
    }

    fn accepts(&self, input: InputType) -> bool {
        input == InputType::Text
    }

    fn identity(&self) -> Option<Box<[u8]>> {
        None
    }

    fn update(&self, state: &mut Option<Box<[u8]>>, event: &Observation<'_>) {
        if let Datum::Text(text) = event.value {
            self.offer(state, text);
        }
    }

    fn merge(&self, state: &mut Option<Box<[u8]>>, other: &Option<Box<[u8]>>) {
        if let Some(text) = other {
            self.offer(state, text);
        }
    }

    fn finish(&self, state: &Option<Box<[u8]>>) -> Value {
        state.as_ref().map_or(Value::Null, |text| Item::Text(text.clone()).value())
    }

    fn encode(&self, state: &Option<Box<[u8]>>, bytes: &mut Vec<u8>) {
        if let Some(text) = state {
            bytes.push(1);
            bytes.extend_from_slice(text);
        }
    }

    fn decode(&self, bytes: &[u8]) -> Result<Option<Box<[u8]>>, StateError> {
        match bytes.split_first() {
            None => Ok(None),
            Some((1, text)) => Ok(Some(text.into())),
            Some(_) => Err(StateError("the text is of no known kind")),
        }
    }

    fn heap_bytes(&self, state: &Option<Box<[u8]>>) -> usize {
        state.as_ref().map_or(0, |text| text.len())
    }
}
