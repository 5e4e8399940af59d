//! The events that a join holds: by side, key and time for their partners, by expiry for the watermark; and the form in
//! which they are stored (`docs/FORMAT.md`).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::Side;
use crate::codec::{order_preserving_time, time_from_ordered};
use crate::event_time::{EventTime, Watermark};
use crate::operator::{Entries, EntryError};

/// Format of a stored event.
const FORMAT: u8 = 1;
/// Bytes of a stored key behind the user key: side, time, arrival.
const SUFFIX: usize = 17;
/// About what an event takes beside its fields: entries in two ordered maps and an allocation.
const BYTES_PER_EVENT: usize = 150;
/// About what a key takes beside its bytes.
const BYTES_PER_KEY: usize = 120;

/// Where an event stands. In the order of expiry; events that expire together in the order of their times, and those
/// of one time in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) expiry: EventTime,
    pub(super) time: EventTime,
    /// Counts the events of both sides.
    pub(super) arrival: u64,
}

/// An event without its place.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) fields: Box<[u8]>,
    /// Has come out with a partner; noted only where that makes a difference.
    pub(super) matched: bool,
}

/// An event that the watermark has passed.
pub(super) struct Expired {
    pub(super) side: Side,
    pub(super) key: Arc<[u8]>,
    pub(super) place: Place,
    pub(super) held: Held,
}

type ByTime = BTreeMap<(EventTime, u64), (EventTime, Held)>;

/// The live events of both sides.
#[derive(Debug, Default)]
pub(super) struct HeldEvents {
    sides: [HashMap<Arc<[u8]>, ByTime>; 2],
    expiries: BTreeMap<Place, (Side, Arc<[u8]>)>,
    // Those that the state database does not have as they are.
    dirty: BTreeSet<Place>,
    bytes: usize,
}

impl HeldEvents {
    pub(super) fn len(&self) -> usize {
        self.expiries.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The events of one key and side from time `first` to `last`, by time and arrival.
    pub(super) fn between(
        &self,
        side: Side,
        key: &[u8],
        first: EventTime,
        last: EventTime,
    ) -> impl Iterator<Item = (Place, &Held)> + '_ {
        let events = self.sides[side as usize].get(key);
        events.into_iter().flat_map(move |events| {
            events
                .range((first, 0)..=(last, u64::MAX))
                .map(|(&(time, arrival), (expiry, held))| (Place { expiry: *expiry, time, arrival }, held))
        })
    }

    pub(super) fn insert(&mut self, side: Side, key: &[u8], place: Place, held: Held, dirty: bool) {
        let by_key = &mut self.sides[side as usize];
        self.bytes += BYTES_PER_EVENT + held.fields.len();
        let key = match by_key.get_key_value(key) {
            Some((known, _)) => Arc::clone(known),
            None => {
                self.bytes += BYTES_PER_KEY + key.len();
                Arc::from(key)
            }
        };
        by_key.entry(Arc::clone(&key)).or_default().insert((place.time, place.arrival), (place.expiry, held));
        self.expiries.insert(place, (side, key));
        if dirty {
            self.dirty.insert(place);
        }
    }

    /// Notes that the events at `places` have found a partner.
    pub(super) fn mark_matched(&mut self, places: &[Place]) {
        for place in places {
            let Some((side, key)) = self.expiries.get(place) else { continue };
            let events = self.sides[*side as usize].get_mut(key);
            let event = events.and_then(|events| events.get_mut(&(place.time, place.arrival)));
            if let Some((_, held)) = event
                && !held.matched
            {
                held.matched = true;
                self.dirty.insert(*place);
            }
        }
    }

    /// When the first event expires.
    pub(super) fn first_expiry(&self) -> Option<EventTime> {
        self.expiries.first_key_value().map(|(place, _)| place.expiry)
    }

    /// The first instant, after another one, by which more than `count` events expire; `None` when `bound` does not
    /// reach it.
    pub(super) fn more_than(&self, count: usize, bound: Watermark) -> Option<EventTime> {
        let first = self.first_expiry()?;
        let due = self.expiries.keys().map(|place| place.expiry).take_while(|expiry| bound.closed(*expiry));
        due.skip(count).find(|expiry| *expiry > first)
    }

    /// Takes out the event that expires first.
    pub(super) fn pop_first(&mut self) -> Option<Expired> {
        let (place, (side, key)) = self.expiries.pop_first()?;
        self.dirty.remove(&place);
        let by_key = &mut self.sides[side as usize];
        let events = by_key.get_mut(&key)?;
        let (_, held) = events.remove(&(place.time, place.arrival))?;
        self.bytes -= BYTES_PER_EVENT + held.fields.len();
        if events.is_empty() {
            by_key.remove(&key);
            self.bytes -= BYTES_PER_KEY + key.len();
        }
        Some(Expired { side, key, place, held })
    }

    pub(super) fn spill_dirty(&mut self) -> Entries {
        let mut entries = Entries::default();
        for place in std::mem::take(&mut self.dirty) {
            let Some((side, key)) = self.expiries.get(&place) else { continue };
            let events = self.sides[*side as usize].get(key);
            let event = events.and_then(|events| events.get(&(place.time, place.arrival)));
            if let Some((_, held)) = event {
                let (key, payload) = write(*side, key, place, held);
                entries.push(place.expiry, key, payload);
            }
        }
        entries.sort();
        entries
    }
}

/// A stored event, as its bytes say.
pub(super) struct Row<'a> {
    pub(super) key: &'a [u8],
    pub(super) side: Side,
    pub(super) time: EventTime,
    pub(super) arrival: u64,
    pub(super) matched: bool,
    pub(super) fields: &'a [u8],
}

pub(super) fn write(side: Side, key: &[u8], place: Place, held: &Held) -> (Vec<u8>, Vec<u8>) {
    let mut stored = Vec::with_capacity(key.len() + SUFFIX);
    stored.extend_from_slice(key);
    stored.push(side as u8);
    stored.extend_from_slice(&order_preserving_time(place.time));
    stored.extend_from_slice(&place.arrival.to_be_bytes());
    let mut payload = Vec::with_capacity(held.fields.len() + 2);
    payload.extend_from_slice(&[FORMAT, u8::from(held.matched)]);
    payload.extend_from_slice(&held.fields);
    (stored, payload)
}

/// Reads what [`write`] wrote.
pub(super) fn read<'a>(key: &'a [u8], payload: &'a [u8]) -> Result<Row<'a>, EntryError> {
    const SHORT: EntryError = EntryError("the key of an event is too short");
    let (rest, arrival) = key.split_last_chunk::<8>().ok_or(SHORT)?;
    let (rest, time) = rest.split_last_chunk::<8>().ok_or(SHORT)?;
    let (&side, key) = rest.split_last().ok_or(SHORT)?;
    let side = match side {
        0 => Side::Left,
        1 => Side::Right,
        _ => return Err(EntryError("an event is of neither side")),
    };
    let (matched, fields) = match payload {
        [FORMAT, matched @ (0 | 1), fields @ ..] => (*matched == 1, fields),
        _ => return Err(EntryError("an event has another format")),
    };
    let (time, arrival) = (time_from_ordered(*time), u64::from_be_bytes(*arrival));
    Ok(Row { key, side, time, arrival, matched, fields })
}
