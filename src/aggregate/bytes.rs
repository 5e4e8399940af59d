//! Numbers and byte strings in stored states. Reading takes the bytes as hostile: nothing panics, nothing is reserved
//! by a length that was read.

use super::StateError;

/// Appends a number, seven bits a byte, lowest first.
pub(super) fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Appends a number of either sign, small ones in few bytes.
pub(super) fn put_signed(bytes: &mut Vec<u8>, value: i64) {
    put_varint(bytes, (value << 1 ^ value >> 63) as u64);
}

/// Appends bytes with their length.
pub(super) fn put_bytes(bytes: &mut Vec<u8>, value: &[u8]) {
    put_varint(bytes, value.len() as u64);
    bytes.extend_from_slice(value);
}

const SHORT: StateError = StateError("the state ends too early");

/// What is left to be read.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn byte(&mut self) -> Result<u8, StateError> {
        let (&byte, rest) = self.0.split_first().ok_or(SHORT)?;
        self.0 = rest;
        Ok(byte)
    }

    pub(super) fn varint(&mut self) -> Result<u64, StateError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(StateError("a number has more than 64 bits"))
    }

    pub(super) fn signed(&mut self) -> Result<i64, StateError> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], StateError> {
        let (array, rest) = self.0.split_first_chunk::<N>().ok_or(SHORT)?;
        self.0 = rest;
        Ok(*array)
    }

    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], StateError> {
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(SHORT)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], StateError> {
        let length = self.varint()?;
        self.take(usize::try_from(length).unwrap_or(usize::MAX))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Refuses bytes that are left over.
    pub(super) fn end(&self) -> Result<(), StateError> {
        if self.is_empty() { Ok(()) } else { Err(StateError("bytes are left over")) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_and_bytes_are_read_back(a in any::<u64>(), b in any::<i64>(), c in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, a);
            put_signed(&mut bytes, b);
            put_bytes(&mut bytes, &c);
            let mut reader = Reader(&bytes);
            prop_assert_eq!(reader.varint(), Ok(a));
            prop_assert_eq!(reader.signed(), Ok(b));
            prop_assert_eq!(reader.bytes(), Ok(&c[..]));
            prop_assert_eq!(reader.end(), Ok(()));
        }
    }

    #[test]
    fn a_length_beyond_the_end_is_refused() {
        assert!(Reader(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]).bytes().is_err());
        assert!(Reader(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).varint().is_err());
        assert!(Reader(&[0x80]).varint().is_err());
    }
}
