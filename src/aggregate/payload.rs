//! The stored form of an accumulator row: one format byte, then its words in little-endian order.

/// Format of the payload; a reader refuses any other.
const FORMAT: u8 = 1;

/// Why stored bytes are not an accumulator row of the expected shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// Written in a format that this build does not know.
    #[error("pane has payload format {0}, this build reads format {FORMAT}")]
    Format(u8),
    /// Another number of words.
    #[error("pane has the wrong length: bytes={bytes} expected={expected}")]
    Length {
        /// Bytes found.
        bytes: usize,
        /// Bytes that the layout has.
        expected: usize,
    },
}

/// Appends the payload of `words` to `bytes`.
pub fn write_payload(words: &[u64], bytes: &mut Vec<u8>) {
    bytes.push(FORMAT);
    for word in words {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
}

/// Reads a payload into `words`, all of them.
///
/// # Errors
/// [`PayloadError`] when format or length differ; `words` is then untouched.
pub fn read_payload(bytes: &[u8], words: &mut [u64]) -> Result<(), PayloadError> {
    let wrong_length = PayloadError::Length { bytes: bytes.len(), expected: 1 + words.len() * 8 };
    let Some((&format, body)) = bytes.split_first() else { return Err(wrong_length) };
    if format != FORMAT {
        return Err(PayloadError::Format(format));
    }
    let (chunks, rest) = body.as_chunks::<8>();
    if chunks.len() != words.len() || !rest.is_empty() {
        return Err(wrong_length);
    }
    for (word, chunk) in words.iter_mut().zip(chunks) {
        *word = u64::from_le_bytes(*chunk);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn payloads_round_trip(words in prop::collection::vec(any::<u64>(), 0..9)) {
            let mut bytes = Vec::new();
            write_payload(&words, &mut bytes);
            let mut back = vec![0; words.len()];
            prop_assert_eq!(read_payload(&bytes, &mut back), Ok(()));
            prop_assert_eq!(back, words);
        }

        #[test]
        fn other_bytes_are_refused_and_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let mut words = [7_u64; 4];
            match read_payload(&bytes, &mut words) {
                Ok(()) => prop_assert!(bytes.len() == 33 && bytes[0] == FORMAT),
                Err(_) => prop_assert_eq!(words, [7; 4]),
            }
        }
    }
}
