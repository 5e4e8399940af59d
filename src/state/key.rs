//! Keys of the state database: one leading byte that says what follows, then the pane key of `codec`.
//!
//! Knows bytes only. The reserved key sorts after every pane: in a file with open panes it lies beside the newest
//! ends, so it never keeps a file of old panes from being dropped as a whole.

use crate::codec::{PaneKey, order_preserving_time};
use crate::event_time::EventTime;

use super::horizon::Live;

/// First byte of a pane's key; by itself, the key before all panes.
const PANE: u8 = 0x01;
/// First byte of every other key; by itself, the key after all panes.
const RESERVED: u8 = 0x02;
/// Where each family keeps the epoch it belongs to.
pub(super) const SENTINEL: [u8; 6] = [RESERVED, b'e', b'p', b'o', b'c', b'h'];
/// Before every pane, in key order.
pub(super) const BEFORE_PANES: [u8; 1] = [PANE];
/// After every pane, in key order.
pub(super) const AFTER_PANES: [u8; 1] = [RESERVED];

/// What a key of a window family stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StateKey<'a> {
    Pane(PaneKey<'a>),
    Sentinel,
}

/// Reads a key; `None` is a shape this version does not know.
pub(super) fn parse(bytes: &[u8]) -> Option<StateKey<'_>> {
    if bytes == SENTINEL {
        return Some(StateKey::Sentinel);
    }
    match bytes.split_first()? {
        (&PANE, rest) => PaneKey::parse(rest).map(StateKey::Pane),
        _ => None,
    }
}

/// End of the window of the pane that a raw key stands for, as manifests keep the bounds of table files; `None` for
/// a key that is no pane's.
#[must_use]
pub fn window_end(key: &[u8]) -> Option<EventTime> {
    match parse(key) {
        Some(StateKey::Pane(pane)) => Some(pane.end),
        _ => None,
    }
}

/// Replaces the content of `buffer` by the raw key of a pane, as manifests keep the bounds of table files.
pub fn pane_key<'b>(buffer: &'b mut Vec<u8>, pane: PaneKey<'_>) -> &'b [u8] {
    write_pane(buffer, pane)
}

/// Replaces the content of `buffer` by the key of a pane.
pub(super) fn write_pane<'b>(buffer: &'b mut Vec<u8>, pane: PaneKey<'_>) -> &'b [u8] {
    buffer.clear();
    buffer.push(PANE);
    buffer.extend_from_slice(&order_preserving_time(pane.end));
    buffer.extend_from_slice(pane.key);
    buffer
}

/// Before every pane that ends at or after `end`, and after all others.
pub(super) fn first_of_end(end: EventTime) -> Vec<u8> {
    let mut bytes = vec![PANE];
    bytes.extend_from_slice(&order_preserving_time(end));
    bytes
}

/// Before every live pane, and after all expired ones.
pub(super) fn first_live(live: Live) -> Vec<u8> {
    match live {
        Live::All => BEFORE_PANES.to_vec(),
        Live::From(end) => first_of_end(end),
        Live::Nothing => AFTER_PANES.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(2), Just(0xff), any::<u8>()], 0..12)
    }

    proptest! {
        #[test]
        fn pane_keys_round_trip_and_lie_between_their_bounds(end in any::<i64>(), key in bytes()) {
            let pane = PaneKey { end: EventTime::from_millis(end), key: &key };
            let mut buffer = Vec::new();
            let written = write_pane(&mut buffer, pane).to_vec();
            prop_assert_eq!(parse(&written), Some(StateKey::Pane(pane)));
            prop_assert!(written.as_slice() > BEFORE_PANES.as_slice());
            prop_assert!(written.as_slice() < AFTER_PANES.as_slice());
            prop_assert!(written.as_slice() < SENTINEL.as_slice());
            prop_assert!(written >= first_of_end(pane.end));
            if let Some(next) = end.checked_add(1) {
                prop_assert!(written < first_of_end(EventTime::from_millis(next)));
            }
        }

        #[test]
        fn arbitrary_keys_never_panic_and_never_parse_as_something_else(bytes in bytes()) {
            if let Some(StateKey::Pane(pane)) = parse(&bytes) {
                let mut buffer = Vec::new();
                prop_assert_eq!(write_pane(&mut buffer, pane), bytes.as_slice());
            }
        }
    }
}
