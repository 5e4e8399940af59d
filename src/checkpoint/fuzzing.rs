//! Fuzz targets of the records and names of a state directory. Bodies come without their envelope, whose checksum no
//! fuzzer would meet.

use super::layout::{EntryName, checkpoint_name, is_plain_name};
use super::lineage::{self, Lineage};
use super::lock::Holder;
use super::manifest::{self, Manifest};
use super::savepoint::SavepointName;
use super::savepoint::record::{self, Origin, SavepointRecord};
use crate::codec::fuzzing;

/// The first byte chooses the version, the rest is the body.
pub(crate) fn manifest(bytes: &[u8]) {
    let Some((&version, body)) = bytes.split_first() else { return };
    let version = match u32::from(version) {
        old @ 1..manifest::VERSION => old,
        _ => manifest::VERSION,
    };
    let decoded = fuzzing::record((manifest::MAGIC, version), body, Manifest::decode, Manifest::encode);
    let Some(manifest) = decoded else { return };
    let _ = manifest.database_bytes();
    for file in &manifest.files {
        assert!(is_plain_name(&file.name) && !file.name.contains(['/', '\\']), "a name leaves its directory");
        assert_eq!(manifest.file(&file.name), Some(file), "a file is not found by its name");
    }
}

pub(crate) fn lineage(body: &[u8]) {
    fuzzing::record((lineage::MAGIC, lineage::VERSION), body, Lineage::decode, Lineage::encode);
}

pub(crate) fn savepoint(body: &[u8]) {
    let kind = (record::SAVEPOINT_MAGIC, record::SAVEPOINT_VERSION);
    fuzzing::record(kind, body, SavepointRecord::decode, SavepointRecord::encode);
}

pub(crate) fn origin(body: &[u8]) {
    fuzzing::record((record::ORIGIN_MAGIC, record::ORIGIN_VERSION), body, Origin::decode, Origin::encode);
}

/// Names of checkpoints, files and savepoints, and the note in a lock.
pub(crate) fn names(text: &str) {
    if let EntryName::Complete(epoch) = EntryName::parse(text) {
        assert_eq!(checkpoint_name(epoch), text, "a checkpoint's name has two forms");
    }
    if let Ok(name) = SavepointName::parse(text) {
        assert_eq!(name.as_str(), text);
        assert!(is_plain_name(text), "a savepoint's name leaves its directory");
        assert_eq!(EntryName::parse(text), EntryName::Unknown, "a savepoint's name is that of a checkpoint");
    }
    let holder = Holder::parse(text);
    assert!(!holder.to_string().chars().any(char::is_control), "a lock's note reaches the terminal");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::LineageId;
    use crate::checkpoint::savepoint::{LatePart, OriginKind};
    use crate::codec::fuzzing::{body, seed};

    fn tried(target: fn(&[u8]), name: &str, record: &[u8]) {
        target(record);
        seed(name, "real", record);
        seed(name, "cut", &record[..record.len() / 2]);
    }

    #[test]
    fn real_records_keep_the_promises_that_are_asked_of_hostile_ones() {
        let sample = manifest::tests::sample();
        let encoded = sample.encode().unwrap();
        tried(manifest, "manifest", &[&[3][..], body(&encoded)].concat());
        let id = LineageId([7; 16]);
        let pipeline = "flights".to_owned();
        let lineage_file = Lineage { id, pipeline: pipeline.clone(), generation: 3, newest_epoch_seen: 12 };
        tried(lineage, "lineage", body(&lineage_file.encode().unwrap()));
        let record = SavepointRecord {
            name: "before-upgrade".to_owned(),
            note: "why".to_owned(),
            pipeline: pipeline.clone(),
            lineage: id,
            generation: 3,
            epoch: 12,
            manifest_bytes: encoded.len() as u64,
            manifest_crc32: 9,
            created_by: "0.1.0".to_owned(),
            created_at_ms: 1_700_000_000_000,
            late_parts: [1, 2].map(|bytes| LatePart { bytes, crc32: 5 }).into(),
        };
        tried(savepoint, "savepoint", body(&record.encode().unwrap()));
        let made = Origin {
            kind: OriginKind::Forked,
            pipeline,
            lineage: id,
            generation: 3,
            epoch: 12,
            savepoint: "before-upgrade".to_owned(),
            restored_at_ms: 1_700_000_000_000,
            dropped_partitions: vec!["a.jsonl".to_owned()],
            renamed_partitions: vec![("b".to_owned(), "c".to_owned())],
        };
        tried(origin, "origin", body(&made.encode().unwrap()));
    }
}
