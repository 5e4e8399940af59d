//! The envelope of every record on disk: magic, version, length, CRC32, then a bincode body.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Length of the envelope before the body: 8 magic, 4 version, 8 body length, 4 CRC32 of magic, version, length and body.
const HEADER: usize = 24;

/// No record is larger; a longer length is damage, not data.
const BODY_MAX: usize = 256 << 20;

fn config() -> impl bincode::config::Config {
    // Fixed-width little-endian integers: a damaged length cannot hide in a variable-length prefix.
    bincode::config::standard().with_fixed_int_encoding().with_limit::<BODY_MAX>()
}

/// Why bytes are not the record they should be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Shorter than an envelope, or than its own length says, or longer.
    #[error("record has the wrong length: bytes={bytes} expected={expected}")]
    Length {
        /// Bytes at hand.
        bytes: usize,
        /// Bytes that the envelope promises.
        expected: u64,
    },
    /// Another kind of file.
    #[error("record does not start with its magic")]
    Magic,
    /// Written by a version this build does not know.
    #[error("record has format version {found}, this build reads up to {known}")]
    Version {
        /// Version in the record.
        found: u32,
        /// Newest version this build reads.
        known: u32,
    },
    /// Bytes changed since they were written.
    #[error("record fails its checksum: stored={stored:08x} computed={computed:08x}")]
    Checksum {
        /// CRC32 in the envelope.
        stored: u32,
        /// CRC32 of the bytes at hand.
        computed: u32,
    },
    /// The checksum holds but the body is not a value of the expected shape.
    #[error("record body cannot be decoded: {0}")]
    Body(String),
}

fn checksum(head: &[u8], body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(body);
    hasher.finalize()
}

/// Wraps `value` in an envelope under `magic` and `version`.
///
/// # Errors
/// [`DecodeError::Body`] when the value cannot be serialised, or is larger than a record may be (256 MiB).
pub fn encode<T: Serialize>(magic: [u8; 8], version: u32, value: &T) -> Result<Vec<u8>, DecodeError> {
    let body = bincode::serde::encode_to_vec(value, config())
        .map_err(|error| DecodeError::Body(error.to_string()))?;
    if body.len() > BODY_MAX {
        return Err(DecodeError::Body(format!("record is too large: bytes={}", body.len())));
    }
    Ok(seal(magic, version, &body))
}

/// The envelope around a body, whatever it holds.
pub(super) fn seal(magic: [u8; 8], version: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    bytes.extend_from_slice(&magic);
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
    let crc = checksum(&bytes, body);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// Opens an envelope written by [`encode`] under `magic`, at exactly `version`.
///
/// # Errors
/// Any [`DecodeError`]; the checksum and the length are checked before a byte of the body is decoded.
pub fn decode<T: DeserializeOwned>(magic: [u8; 8], version: u32, bytes: &[u8]) -> Result<T, DecodeError> {
    let short = || DecodeError::Length { bytes: bytes.len(), expected: HEADER as u64 };
    let (head, rest) = bytes.split_at_checked(HEADER - 4).ok_or_else(short)?;
    let (stored, body) = rest.split_first_chunk::<4>().ok_or_else(short)?;
    let (found_magic, numbers) = head.split_first_chunk::<8>().ok_or_else(short)?;
    let (found_version, length) = numbers.split_first_chunk::<4>().ok_or_else(short)?;
    let length = length.first_chunk::<8>().ok_or_else(short)?;
    if *found_magic != magic {
        return Err(DecodeError::Magic);
    }
    let length = u64::from_le_bytes(*length);
    if length != body.len() as u64 || body.len() > BODY_MAX {
        let expected = length.saturating_add(HEADER as u64);
        return Err(DecodeError::Length { bytes: bytes.len(), expected });
    }
    let (stored, computed) = (u32::from_le_bytes(*stored), checksum(head, body));
    if stored != computed {
        return Err(DecodeError::Checksum { stored, computed });
    }
    let found = u32::from_le_bytes(*found_version);
    if found != version {
        return Err(DecodeError::Version { found, known: version });
    }
    let (value, read) = bincode::serde::decode_from_slice(body, config())
        .map_err(|error| DecodeError::Body(error.to_string()))?;
    if read != body.len() {
        return Err(DecodeError::Body(format!("{} bytes are left over", body.len() - read)));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAGIC: [u8; 8] = *b"FLOODTST";

    type Nested = (i64, Vec<u8>, Option<String>, Vec<(u32, bool)>);

    #[test]
    fn the_layout_is_pinned_by_golden_bytes() {
        let bytes = encode(MAGIC, 7, &(3_u16, "ab".to_owned(), Some(-1_i64))).unwrap();
        let mut expected = b"FLOODTST".to_vec();
        expected.extend([7, 0, 0, 0]);
        expected.extend([21, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend(&bytes[20..24]);
        expected.extend([3, 0]);
        expected.extend([2, 0, 0, 0, 0, 0, 0, 0, b'a', b'b']);
        expected.extend([1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(bytes, expected);
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = encode(MAGIC, 1, &vec!["window".to_owned(); 3]).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode::<Vec<String>>(MAGIC, 1, &damaged).is_err(), "bit {bit} went unnoticed");
        }
    }

    #[test]
    fn a_length_bomb_inside_a_valid_envelope_is_an_error() {
        let bytes = encode(MAGIC, 1, &u64::MAX).unwrap();
        assert!(decode::<Vec<u64>>(MAGIC, 1, &bytes).is_err());
        assert!(decode::<String>(MAGIC, 1, &bytes).is_err());
    }

    proptest! {
        #[test]
        fn decode_undoes_encode(value in any::<Nested>()) {
            let bytes = encode(MAGIC, 3, &value).unwrap();
            let back: Nested = decode(MAGIC, 3, &bytes).unwrap();
            prop_assert_eq!(back, value);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode::<Vec<(String, u64)>>(MAGIC, 1, &bytes);
        }
    }
}
