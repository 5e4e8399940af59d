//! Fuzz targets of what comes from a repository: its records, and the names of its objects.

use std::path::Path;

use super::Location;
use super::format::{ManifestKey, OWNER_MAGIC, ObjectName, Owner, RECORD_MAGIC, StoredCheckpoint, VERSION};
use crate::checkpoint::is_plain_name;
use crate::codec::fuzzing;

pub(crate) fn owner(body: &[u8]) {
    if let Some(owner) = fuzzing::record((OWNER_MAGIC, VERSION), body, Owner::decode, Owner::encode) {
        assert!(!owner.to_string().chars().any(char::is_control), "a host name reaches the terminal");
    }
}

/// Epoch and generation of the object's name, then the body of the record.
pub(crate) fn record(bytes: &[u8]) {
    let Some((epoch, rest)) = bytes.split_first_chunk::<8>() else { return };
    let Some((generation, body)) = rest.split_first_chunk::<8>() else { return };
    let key = ManifestKey { epoch: u64::from_le_bytes(*epoch), generation: u64::from_le_bytes(*generation) };
    let decode = |bytes: &[u8]| StoredCheckpoint::decode(key, bytes).map(|(stored, _)| stored);
    let decoded = fuzzing::record((RECORD_MAGIC, VERSION), body, decode, StoredCheckpoint::encode);
    let Some(stored) = decoded else { return };
    let _ = (stored.bytes(), stored.new_bytes());
    for file in &stored.files {
        assert!(is_plain_name(&file.name), "a name leaves its directory");
        let object = stored.object(file);
        assert_eq!(ObjectName::parse(&object.to_string()), Some(object), "an object's name is not read back");
    }
}

pub(crate) fn names(text: &str) {
    if let Some(key) = ManifestKey::parse(text) {
        assert_eq!(key.object_name(), text, "a record's name has two forms");
    }
    if let Some(object) = ObjectName::parse(text) {
        assert_eq!(object.to_string(), text, "an object's name has two forms");
        assert!(is_plain_name(&object.name), "an object's name leaves its directory");
    }
    let Ok(location) = Location::parse(text, Path::new("/base")) else { return };
    if let Location::Store { prefix, .. } = &location {
        assert!(!prefix.split('/').any(|part| part == ".."), "a prefix leaves its place");
        let shown = location.to_string();
        assert_eq!(Location::parse(&shown, Path::new("/base")).ok(), Some(location), "shown as {shown}");
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::{StoredFile, UploadId};
    use super::*;
    use crate::checkpoint::{FileEntry, LineageId, Manifest};
    use crate::codec::fuzzing::{body, seed};
    use crate::event_time::Watermark;

    #[test]
    fn real_records_keep_the_promises_that_are_asked_of_hostile_ones() {
        let (lineage, pipeline) = (LineageId([7; 16]), "flights".to_owned());
        let owned = Owner {
            pipeline: pipeline.clone(),
            lineage,
            generation: 3,
            session: [9; 16],
            host: "one".to_owned(),
            pid: 12,
            since_ms: 1_700_000_000_000,
            base: Some(4),
        };
        let bytes = owned.encode().unwrap();
        owner(body(&bytes));
        seed("repository", "real-owner", &[&[0][..], body(&bytes)].concat());
        let manifest = Manifest {
            pipeline: pipeline.clone(),
            lineage,
            generation: 3,
            epoch: 12,
            parent: Some(11),
            created_by: "0.1.0".to_owned(),
            created_at_ms: 0,
            sources: Vec::new(),
            partitions: Vec::new(),
            watermark: Watermark::None,
            batch_watermark: Watermark::None,
            horizon: Watermark::None,
            operators: Vec::new(),
            files: vec![FileEntry {
                name: "CURRENT".to_owned(),
                bytes: 16,
                crc32: 5,
                family: None,
                smallest_key: Vec::new(),
                largest_key: Vec::new(),
                entries: 0,
            }],
            staged: Vec::new(),
            counters: Default::default(),
        };
        let upload = UploadId { generation: 3, epoch: 12, attempt: 0 };
        let stored = StoredCheckpoint {
            pipeline,
            lineage,
            epoch: 12,
            generation: 3,
            base: None,
            uploaded_at_ms: 0,
            manifest: manifest.encode().unwrap(),
            files: vec![StoredFile { name: "CURRENT".to_owned(), bytes: 16, crc32: 5, upload }],
        };
        let bytes = stored.encode().unwrap();
        assert!(StoredCheckpoint::decode(stored.key(), &bytes).is_ok());
        let keyed = [&12_u64.to_le_bytes()[..], &3_u64.to_le_bytes(), body(&bytes)].concat();
        record(&keyed);
        seed("repository", "real-checkpoint", &[&[1][..], &keyed].concat());
    }
}
