//! Fuzz targets of outputs: handles of staged files, the owner file, names of parts.

use super::StagedOutput;
use super::names::{StagingName, part, part_epoch};
use super::publisher::{OWNER_MAGIC, OWNER_VERSION, Owner};
use super::staged::{MAGIC, StagedFile, VERSION, place_of};
use crate::codec::{self, fuzzing};

/// The name that handles of the corpus have.
const SINK: &str = "results.hourly";

/// The handle of a staged file. A name in it may not leave the directory.
pub(crate) fn handle(body: &[u8]) {
    let output =
        |bytes: &[u8]| StagedOutput { sink: SINK.to_owned(), handle: bytes.to_vec(), rows: 1, bytes: 1 };
    let decode = |bytes: &[u8]| StagedFile::of(&output(bytes), SINK);
    let encode = |file: &StagedFile| file.to_output().map(|output| output.handle);
    let Some(file) = fuzzing::record((MAGIC, VERSION), body, decode, encode) else { return };
    assert!(StagingName::parse(&file.staged_name).is_some() && part_epoch(&file.final_name).is_some());
    assert!(!file.staged_name.contains('/') && !file.final_name.contains('/'), "a name leaves its directory");
    if let Ok(output) = file.to_output() {
        assert!(place_of(&output).is_ok_and(|place| place.epoch == file.epoch));
    }
}

pub(crate) fn owner(body: &[u8]) {
    let decode = |bytes: &[u8]| codec::decode(OWNER_MAGIC, OWNER_VERSION, bytes);
    let encode = |owner: &Owner| codec::encode(OWNER_MAGIC, OWNER_VERSION, owner);
    fuzzing::record((OWNER_MAGIC, OWNER_VERSION), body, decode, encode);
}

pub(crate) fn names(text: &str) {
    if let Some(name) = StagingName::parse(text) {
        assert_eq!(name.to_string(), text, "a staged file's name has two forms");
    }
    if let Some(epoch) = part_epoch(text) {
        let extension = text.split_once('.').map_or("", |(_, extension)| extension);
        assert_eq!(part(epoch, extension), text, "a part's name has two forms");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::fuzzing::{body, seed};

    #[test]
    fn real_records_keep_the_promises_that_are_asked_of_hostile_ones() {
        for extension in ["jsonl", "parquet"] {
            let file = StagedFile {
                sink: SINK.to_owned(),
                epoch: 12,
                staged_name: StagingName::new([0xab; 16], 3, Some(12), extension).to_string(),
                final_name: part(12, extension),
                rows: 3,
                bytes: 40,
                crc32: 9,
            };
            let bytes = file.to_output().unwrap().handle;
            assert!(StagedFile::of(&file.to_output().unwrap(), SINK).is_ok());
            handle(body(&bytes));
            seed("output_handle", &format!("real-{extension}"), body(&bytes));
        }
        for (name, abandoned) in [("real", Vec::new()), ("real-abandoned", vec![(3, 5), (7, 7)])] {
            let bytes = Owner::sample(SINK, abandoned);
            owner(body(&bytes));
            seed("output_owner", name, body(&bytes));
        }
    }
}
