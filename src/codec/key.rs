//! Keys whose byte order is the order they stand for: composite user keys, and panes by window end then key.

use crate::event_time::EventTime;

/// Ends every component of a composite key but the last; smaller than any escaped byte pair.
const TERMINATOR: [u8; 2] = [0x00, 0x00];
/// Stands for a zero byte inside a component that is not the last.
const ESCAPED_ZERO: [u8; 2] = [0x00, 0xff];

/// Eight bytes that sort as signed time does: big-endian with the sign bit flipped.
#[must_use]
pub const fn order_preserving_time(time: EventTime) -> [u8; 8] {
    ((time.as_millis() as u64) ^ (1 << 63)).to_be_bytes()
}

/// Undoes [`order_preserving_time`].
#[must_use]
pub const fn time_from_ordered(bytes: [u8; 8]) -> EventTime {
    EventTime::from_millis((u64::from_be_bytes(bytes) ^ (1 << 63)) as i64)
}

/// Writes the components of a user key one after the other.
///
/// The bytes of a single component are the component itself. Of several, all but the last are escaped and
/// terminated, so that tuples sort component by component and no two tuples share their bytes.
#[derive(Debug)]
pub struct KeyWriter<'a> {
    bytes: &'a mut Vec<u8>,
    left: usize,
}

impl<'a> KeyWriter<'a> {
    /// Appends a key of `components` components to `bytes`.
    pub fn new(bytes: &'a mut Vec<u8>, components: usize) -> Self {
        Self { bytes, left: components }
    }

    /// Appends the next component.
    pub fn push(&mut self, component: &[u8]) {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.bytes.extend_from_slice(component);
            return;
        }
        for &byte in component {
            if byte == 0 {
                self.bytes.extend_from_slice(&ESCAPED_ZERO);
            } else {
                self.bytes.push(byte);
            }
        }
        self.bytes.extend_from_slice(&TERMINATOR);
    }
}

/// Splits a user key into its `components`, or `None` when the bytes are not such a key.
#[must_use]
pub fn key_components(key: &[u8], components: usize) -> Option<Vec<Vec<u8>>> {
    let mut parts = Vec::with_capacity(components.min(16));
    let mut rest = key;
    for _ in 1..components {
        let mut part = Vec::new();
        rest = split_component(rest, &mut part)?;
        parts.push(part);
    }
    parts.push(rest.to_vec());
    Some(parts)
}

/// Appends the first component of `key` to `part` and returns the bytes after it, or `None` when it has no end.
///
/// For all components but the last, which is what is left in the end. For readers of many keys, who reuse `part`.
#[must_use]
pub fn split_component<'a>(key: &'a [u8], part: &mut Vec<u8>) -> Option<&'a [u8]> {
    let mut rest = key;
    loop {
        let zero = memchr::memchr(0, rest)?;
        let (plain, marked) = rest.split_at_checked(zero)?;
        part.extend_from_slice(plain);
        let (mark, after) = marked.split_first_chunk::<2>()?;
        rest = after;
        match *mark {
            TERMINATOR => return Some(rest),
            ESCAPED_ZERO => part.push(0),
            _ => return None,
        }
    }
}

/// The key of an aligned pane: window end in eight order-preserving bytes, then the user key as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaneKey<'a> {
    /// End of the pane's window.
    pub end: EventTime,
    /// User key, as written by [`KeyWriter`].
    pub key: &'a [u8],
}

impl<'a> PaneKey<'a> {
    /// Reads a pane key, or `None` when there are fewer than eight bytes.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (end, key) = bytes.split_first_chunk::<8>()?;
        Some(Self { end: time_from_ordered(*end), key })
    }
}

/// A reusable buffer for the bytes of one pane key after another.
#[derive(Debug, Default)]
pub struct PaneKeyBuf {
    bytes: Vec<u8>,
}

impl PaneKeyBuf {
    /// The bytes of a pane key, valid until the next call.
    pub fn write(&mut self, pane: PaneKey<'_>) -> &[u8] {
        self.bytes.clear();
        self.bytes.extend_from_slice(&order_preserving_time(pane.end));
        self.bytes.extend_from_slice(pane.key);
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encode(parts: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = KeyWriter::new(&mut bytes, parts.len());
        for part in parts {
            writer.push(part);
        }
        bytes
    }

    fn nasty_bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop_oneof![Just(0_u8), Just(0xff), Just(1), Just(b'a'), any::<u8>()], 0..6)
    }

    proptest! {
        #[test]
        fn composite_keys_round_trip_and_sort_as_tuples(
            a in prop::collection::vec(nasty_bytes(), 3),
            b in prop::collection::vec(nasty_bytes(), 3),
        ) {
            let (left, right) = (encode(&a), encode(&b));
            prop_assert_eq!(key_components(&left, 3).unwrap(), a.clone());
            prop_assert_eq!(left.cmp(&right), a.cmp(&b));
        }

        #[test]
        fn pane_keys_round_trip_and_sort_by_end_then_key(
            a in (any::<i64>(), nasty_bytes()),
            b in (any::<i64>(), nasty_bytes()),
        ) {
            let bytes = |(end, key): &(i64, Vec<u8>)| {
                PaneKeyBuf::default().write(PaneKey { end: EventTime::from_millis(*end), key }).to_vec()
            };
            let (left, right) = (bytes(&a), bytes(&b));
            let parsed = PaneKey::parse(&left).unwrap();
            prop_assert_eq!((parsed.end.as_millis(), parsed.key.to_vec()), a.clone());
            prop_assert_eq!(left.cmp(&right), a.cmp(&b));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in nasty_bytes(), components in 1_usize..4) {
            let _ = key_components(&bytes, components);
            let _ = PaneKey::parse(&bytes);
        }
    }
}
