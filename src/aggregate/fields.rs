//! The values of one event as bytes, for operators that keep events as they came. Bytes are taken as hostile.

use super::bytes::Reader;
use super::item::Item;
use super::{StateError, Value};
use crate::event::Datum;

/// Stands before a value that is there.
const PRESENT: u8 = 1;
/// Stands for null.
const NULL: u8 = 0;

/// Appends the values of an event, in the order of its fields.
pub(crate) fn encode_fields<'a>(values: impl Iterator<Item = Option<Datum<'a>>>, bytes: &mut Vec<u8>) {
    for value in values {
        match value {
            None => bytes.push(NULL),
            Some(value) => {
                bytes.push(PRESENT);
                Item::of(value).encode(bytes);
            }
        }
    }
}

/// Reads `count` values that [`encode_fields`] wrote.
pub(crate) fn decode_fields(bytes: &[u8], count: usize) -> Result<Vec<Value>, StateError> {
    let mut reader = Reader(bytes);
    let mut values = Vec::new();
    for _ in 0..count {
        values.push(match reader.byte()? {
            NULL => Value::Null,
            PRESENT => Item::decode(&mut reader)?.value(),
            _ => return Err(StateError("a field is neither null nor there")),
        });
    }
    reader.end()?;
    Ok(values)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_come_back_as_they_were() {
        let fields = [
            Some(Datum::Int(-7)),
            None,
            Some(Datum::Float(0.5)),
            Some(Datum::Decimal { unscaled: -150, scale: 2 }),
            Some(Datum::Text(b"a\0b")),
        ];
        let mut bytes = Vec::new();
        encode_fields(fields.into_iter(), &mut bytes);
        let expected = vec![
            Value::Int(-7),
            Value::Null,
            Value::Float(0.5),
            Value::Decimal { unscaled: -150, scale: 2 },
            Value::Text("a\0b".to_owned()),
        ];
        assert_eq!(decode_fields(&bytes, 5), Ok(expected));
        for length in 0..bytes.len() {
            assert!(decode_fields(&bytes[..length], 5).is_err(), "cut to {length}");
        }
        assert!(decode_fields(&bytes, 4).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..40), count in 0_usize..6) {
            let _ = decode_fields(&bytes, count);
        }
    }
}
