//! A user key taken apart into its components, for showing and for asking.
//!
//! A component that is text is written as text; any other as `{"base64": "…"}`, as in result files.

use std::fmt;

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use crate::codec::{KeyWriter, key_components};

/// A user key: one component per key field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(pub Vec<Vec<u8>>);

impl Key {
    /// Takes stored bytes apart. Bytes that are no key of so many components are one component by themselves.
    #[must_use]
    pub fn from_stored(bytes: &[u8], components: usize) -> Self {
        Self(key_components(bytes, components).unwrap_or_else(|| vec![bytes.to_vec()]))
    }

    /// The bytes under which panes of this key are stored.
    #[must_use]
    pub fn to_stored(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = KeyWriter::new(&mut bytes, self.0.len());
        for component in &self.0 {
            writer.push(component);
        }
        bytes
    }
}

impl fmt::Display for Key {
    /// Components with commas between them; bytes that would upset a terminal are escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, component) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            match std::str::from_utf8(component) {
                Ok(text) => write!(f, "{}", text.escape_debug())?,
                Err(_) => write!(f, "base64:{}", base64(component))?,
            }
        }
        Ok(())
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.0.len()))?;
        for component in &self.0 {
            list.serialize_element(&Component(component))?;
        }
        list.end()
    }
}

struct Component<'a>(&'a [u8]);

impl Serialize for Component<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("base64", &base64(self.0))?;
                map.end()
            }
        }
    }
}

/// The standard alphabet of RFC 4648.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word =
            (0..3).fold(0, |word, index| word << 8 | u32::from(chunk.get(index).copied().unwrap_or(0)));
        for place in 0..4 {
            let digit = ALPHABET[((word >> (18 - 6 * place)) & 63) as usize];
            text.push(if place > chunk.len() { '=' } else { char::from(digit) });
        }
    }
    text
}

/// Reads standard base64, padded or not; `None` for anything else.
#[must_use]
pub fn parse_base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    if text.len() - digits.len() > 2 || digits.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    let (mut word, mut bits) = (0_u32, 0);
    for digit in digits.bytes() {
        let value = ALPHABET.iter().position(|&known| known == digit)?;
        word = (word << 6 | u32::try_from(value).ok()?) & 0xffff;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((word >> bits) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn base64_round_trips_padded_or_not(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let text = base64(&bytes);
            prop_assert_eq!(parse_base64(&text), Some(bytes.clone()));
            prop_assert_eq!(parse_base64(text.trim_end_matches('=')), Some(bytes));
        }

        #[test]
        fn keys_are_stored_as_their_components(
            components in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..5), 1..4),
        ) {
            let key = Key(components);
            prop_assert_eq!(Key::from_stored(&key.to_stored(), key.0.len()), key);
        }
    }

    #[test]
    fn base64_is_the_standard_one() {
        assert_eq!(base64(b"foobar"), "Zm9vYmFy");
        assert_eq!(base64(b"foob"), "Zm9vYg==");
        assert_eq!(parse_base64("Zm9v?"), None);
        assert_eq!(parse_base64("Z"), None);
        assert_eq!(parse_base64("===="), None);
    }

    #[test]
    fn what_is_not_text_is_told_apart_and_control_characters_are_escaped() {
        let key = Key(vec![b"a\x1b[31m".to_vec(), vec![0xff, 0xfe, 0]]);
        assert_eq!(key.to_string(), "a\\u{1b}[31m, base64://4A");
        assert_eq!(serde_json::to_string(&key).unwrap(), r#"["a\u001b[31m",{"base64":"//4A"}]"#);
    }
}
