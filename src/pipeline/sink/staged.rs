//! The handle of a staged file, as it stands in a checkpoint's manifest. It knows names and sums, not the disk.

use serde::{Deserialize, Serialize};

use super::contract::{PublishPermit, Restored};
use super::error::SinkError;
use super::names::{self, StagingName};
use crate::checkpoint::StagedOutput;
use crate::codec;

pub(super) const MAGIC: [u8; 8] = *b"FLOODOUT";
pub(super) const VERSION: u32 = 1;

/// The output of one epoch, durable and not yet visible.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StagedFile {
    pub(super) sink: String,
    pub(super) epoch: u64,
    // Both are plain names that `names` understands; checked on decode.
    pub(super) staged_name: String,
    pub(super) final_name: String,
    pub(super) rows: u64,
    pub(super) bytes: u64,
    pub(super) crc32: u32,
}

/// Where staged rows of an output wait, for whoever only looks.
#[derive(Clone, Debug)]
pub(in crate::pipeline) struct StagedPlace {
    pub(in crate::pipeline) epoch: u64,
    pub(in crate::pipeline) staged_name: String,
    pub(in crate::pipeline) part_name: String,
}

/// Where what a manifest names waits.
///
/// # Errors
/// When the handle is damaged, or is that of an output of somebody else's.
pub(in crate::pipeline) fn place_of(staged: &StagedOutput) -> Result<StagedPlace, SinkError> {
    let StagedFile { epoch, staged_name, final_name: part_name, .. } = StagedFile::of(staged, &staged.sink)?;
    Ok(StagedPlace { epoch, staged_name, part_name })
}

/// The same rows as those of an output that is called `sink` now.
///
/// # Errors
/// As [`place_of`].
pub(in crate::pipeline) fn renamed_staged(
    staged: &StagedOutput,
    sink: &str,
) -> Result<StagedOutput, SinkError> {
    StagedFile { sink: sink.to_owned(), ..StagedFile::of(staged, &staged.sink)? }.to_output()
}

impl StagedFile {
    /// The form that manifests keep.
    pub(super) fn to_output(&self) -> Result<StagedOutput, SinkError> {
        let failed = |source| SinkError::Decode { what: format!("handle of {}", self.staged_name), source };
        let handle = codec::encode(MAGIC, VERSION, self).map_err(failed)?;
        Ok(StagedOutput { sink: self.sink.clone(), handle, rows: self.rows, bytes: self.bytes })
    }

    /// Reads what a manifest keeps of an output called `sink`.
    pub(super) fn of(staged: &StagedOutput, sink: &str) -> Result<Self, SinkError> {
        let failed = |source| SinkError::Decode { what: "staged output handle".to_owned(), source };
        let handle: Self = codec::decode(MAGIC, VERSION, &staged.handle).map_err(failed)?;
        handle.check_names()?;
        if handle.sink != sink || staged.sink != sink {
            let what = format!("staged output belongs to another sink: of={}", handle.sink);
            return Err(SinkError::Protocol { sink: sink.to_owned(), what });
        }
        Ok(handle)
    }

    /// All of an output called `sink` that a restored manifest names, in order of epoch.
    pub(super) fn due(restored: Restored<'_>, sink: &str) -> Result<Vec<Self>, SinkError> {
        let ours = restored.staged.iter().filter(|staged| staged.sink == sink);
        let mut due = ours.map(|staged| Self::of(staged, sink)).collect::<Result<Vec<_>, _>>()?;
        due.sort_by_key(|staged| staged.epoch);
        Ok(due)
    }

    /// Refuses to publish before the checkpoint is durable.
    pub(super) fn check_permit(&self, permit: &dyn PublishPermit) -> Result<(), SinkError> {
        if self.epoch <= permit.epoch() {
            return Ok(());
        }
        let what = format!(
            "staged output is published without its checkpoint: epoch={} permitted={}",
            self.epoch,
            permit.epoch()
        );
        Err(SinkError::Protocol { sink: self.sink.clone(), what })
    }

    fn check_names(&self) -> Result<(), SinkError> {
        let staged = StagingName::parse(&self.staged_name);
        let Some(staged) = staged.filter(|staged| staged.epoch == Some(self.epoch)) else {
            return Err(SinkError::Name { name: self.staged_name.clone() });
        };
        if self.final_name != names::part(self.epoch, &staged.extension) {
            return Err(SinkError::Name { name: self.final_name.clone() });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle() -> StagedFile {
        StagedFile {
            sink: "hourly".to_owned(),
            epoch: 12,
            staged_name: "abababab-3-12.jsonl".to_owned(),
            final_name: "part-0000000012.jsonl".to_owned(),
            rows: 3,
            bytes: 99,
            crc32: 7,
        }
    }

    #[test]
    fn a_handle_survives_the_manifest() {
        assert_eq!(StagedFile::of(&handle().to_output().unwrap(), "hourly").unwrap(), handle());
        assert!(StagedFile::of(&handle().to_output().unwrap(), "daily").is_err());
    }

    #[test]
    fn a_handle_that_leaves_the_directory_is_refused() {
        for name in ["../../etc/passwd", "abababab-3-13.jsonl", "abababab-3-open.jsonl"] {
            let hostile = StagedFile { staged_name: name.to_owned(), ..handle() };
            assert!(StagedFile::of(&hostile.to_output().unwrap(), "hourly").is_err(), "{name}");
        }
        for name in ["../part-0000000012.jsonl", "part-0000000013.jsonl", "part-0000000012.csv"] {
            let hostile = StagedFile { final_name: name.to_owned(), ..handle() };
            assert!(StagedFile::of(&hostile.to_output().unwrap(), "hourly").is_err(), "{name}");
        }
    }
}
