//! Bytes and back.

use std::hint::black_box;

use floodmark::codec::{KeyWriter, PaneKey, PaneKeyBuf, decode, encode, key_components};
use floodmark::event_time::EventTime;

use crate::measure::{Outcome, Sample, floodmark_measured};

const MAGIC: [u8; 8] = *b"FLOODBEN";

/// Pane keys of two components, written, read and taken apart.
pub(crate) fn pane_keys(size: u64) -> Outcome<Sample> {
    let parts: Vec<String> = (0..1_024).map(|key| format!("k{key:06}")).collect();
    let (took, read) = floodmark_measured(|| -> Outcome<u64> {
        let (mut key, mut pane) = (Vec::new(), PaneKeyBuf::default());
        for index in 0..size {
            key.clear();
            let mut writer = KeyWriter::new(&mut key, 2);
            writer.push(parts[index as usize % parts.len()].as_bytes());
            writer.push(b"eu");
            let bytes = pane.write(PaneKey { end: EventTime::from_millis(index as i64), key: &key });
            let read = PaneKey::parse(bytes).ok_or("a key was not read")?;
            black_box(key_components(read.key, 2).ok_or("a key was not taken apart")?);
        }
        Ok(size)
    });
    Ok(Sample { took, count: read? })
}

/// Records in an envelope, with its length and checksum.
pub(crate) fn records(size: u64) -> Outcome<Sample> {
    let records: Vec<(u64, String)> =
        (0..size).map(|number| (number, format!("part-{number:010}"))).collect();
    let (took, same) = floodmark_measured(|| -> Outcome<bool> {
        let bytes = encode(MAGIC, 1, black_box(&records))?;
        let read: Vec<(u64, String)> = decode(MAGIC, 1, &bytes)?;
        Ok(read.len() == records.len())
    });
    if !same? {
        return Err("what was read is not what was written".into());
    }
    Ok(Sample { took, count: size })
}
