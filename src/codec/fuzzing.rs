//! What fuzz targets assert of keys and of records in envelopes. It knows no record.

use std::fmt::Debug;

use super::envelope::seal;
use super::{KeyWriter, PaneKey, PaneKeyBuf, key_components};

/// Decodes `body` as it is, and in an envelope whose checksum holds: a fuzzer does not find the way past a CRC. What is
/// a record must read back as it is written.
pub(crate) fn record<T: PartialEq + Debug, E: Debug>(
    (magic, version): ([u8; 8], u32),
    body: &[u8],
    decode: impl Fn(&[u8]) -> Result<T, E>,
    encode: impl Fn(&T) -> Result<Vec<u8>, E>,
) -> Option<T> {
    assert!(body.len() < 24 || body[..8] == magic || decode(body).is_err(), "a record without its magic");
    let value = decode(&seal(magic, version, body)).ok()?;
    let written = encode(&value).map(|bytes| decode(&bytes));
    assert!(
        matches!(&written, Ok(Ok(back)) if *back == value),
        "a record does not read back as it is written: {value:?} {written:?}"
    );
    Some(value)
}

/// Keys of panes, and keys of several components: two of them, cut where the first byte says.
pub(crate) fn keys(bytes: &[u8]) {
    let Some((&cut, rest)) = bytes.split_first() else { return };
    let (left, right) = rest.split_at(usize::from(cut).min(rest.len()));
    if let (Some(a), Some(b)) = (PaneKey::parse(left), PaneKey::parse(right)) {
        assert_eq!(PaneKeyBuf::default().write(a), left, "a pane key is written as other bytes");
        assert_eq!((a.end, a.key).cmp(&(b.end, b.key)), left.cmp(right), "pane keys are out of order");
    }
    for components in 1..4 {
        let (a, b) = (key_components(left, components), key_components(right, components));
        if let Some(parts) = &a {
            let mut written = Vec::new();
            let mut writer = KeyWriter::new(&mut written, components);
            parts.iter().for_each(|part| writer.push(part));
            assert_eq!(written, left, "a key is written as other bytes: {parts:?}");
        }
        if let (Some(a), Some(b)) = (a, b) {
            assert_eq!(a.cmp(&b), left.cmp(right), "keys are out of order: {a:?} {b:?}");
        }
    }
}

/// Keeps a real encoding for the corpus, where `FLOODMARK_FUZZ_SEEDS` names its folder.
#[cfg(test)]
pub(crate) fn seed(target: &str, name: &str, bytes: &[u8]) {
    let Some(folder) = std::env::var_os("FLOODMARK_FUZZ_SEEDS") else { return };
    let folder = std::path::Path::new(&folder).join(target);
    std::fs::create_dir_all(&folder).unwrap();
    std::io::Write::write_all(&mut std::fs::File::create(folder.join(name)).unwrap(), bytes).unwrap();
}

/// The body of a record.
#[cfg(test)]
pub(crate) fn body(record: &[u8]) -> &[u8] {
    &record[24..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_time::EventTime;

    #[test]
    fn real_keys_keep_the_promises_that_are_asked_of_hostile_ones() {
        let pane = |end, key| {
            PaneKeyBuf::default().write(PaneKey { end: EventTime::from_millis(end), key }).to_vec()
        };
        let mut composite = Vec::new();
        let mut writer = KeyWriter::new(&mut composite, 3);
        [b"a\0".as_slice(), b"", b"c"].into_iter().for_each(|part| writer.push(part));
        for (name, left, right) in [
            ("real-panes", pane(-5, b"key"), pane(1_700_000_000_000, b"")),
            ("real-composite", composite.clone(), [composite.as_slice(), b"d"].concat()),
        ] {
            let bytes = [&[u8::try_from(left.len()).unwrap()][..], &left, &right].concat();
            keys(&bytes);
            seed("keys", name, &bytes);
        }
    }
}
