//! A checkpoint on its way to another place, next to the input that is there: which partitions were added, which are
//! missing or renamed, and what is done about it when somebody says so.

use std::path::Path;

use serde::Serialize;

use super::config::PipelineConfig;
use super::source::{Survey, survey};
use super::task::resume;
use crate::checkpoint::savepoint::{PartitionChanges, peek};
use crate::error::{Error, ErrorKind, Result};
use crate::store::partitions_of;

/// What may be done about partitions that are not where they were. By default nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionChoice {
    /// Give up those whose files are missing.
    pub allow_missing: bool,
    /// Take new files that begin with the same bytes for renamed ones.
    pub accept_renamed: bool,
}

/// How the input differs from what a checkpoint knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PartitionsPlan {
    /// The checkpoint that was looked at.
    pub epoch: u64,
    /// Files to be read from their beginning.
    pub added: Vec<String>,
    /// Partitions that are given up.
    pub dropped: Vec<DroppedPartition>,
    /// Partitions that go on under another name: old, new.
    pub renamed: Vec<(String, String)>,
}

/// A partition that is given up. What was read of it stays counted; what it held beyond is not known, and lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DroppedPartition {
    /// Its name.
    pub name: String,
    /// Decompressed bytes that were read of it.
    pub read_bytes: u64,
    /// Records that were read of it.
    pub read_records: u64,
}

impl PartitionsPlan {
    /// The changes for a restore.
    #[must_use]
    pub fn changes(&self) -> PartitionChanges {
        PartitionChanges {
            drop: self.dropped.iter().map(|dropped| dropped.name.clone()).collect(),
            rename: self.renamed.iter().cloned().collect(),
        }
    }
}

/// Compares the input of a pipeline with the checkpoint in `from` (its newest, or that of epoch `at`).
///
/// # Errors
/// [`ErrorKind::Incompatible`] when partitions are missing or seem renamed and `choice` does not say what to do about
/// it; otherwise as for reading the files and the checkpoint.
pub fn plan_partitions(
    config: &PipelineConfig,
    from: &Path,
    at: Option<u64>,
    choice: PartitionChoice,
) -> Result<PartitionsPlan> {
    let manifest = peek(from, at)?;
    let found = survey(&config.sources, &resume(config, partitions_of(&manifest)))?;
    refuse_renamed(&found, choice)?;
    refuse_missing(&found, choice)?;
    let dropped = found.missing.into_iter().map(|(name, position)| DroppedPartition {
        name,
        read_bytes: position.bytes,
        read_records: position.records,
    });
    let epoch = manifest.epoch;
    Ok(PartitionsPlan { epoch, added: found.added, dropped: dropped.collect(), renamed: found.renamed })
}

fn refuse_renamed(found: &Survey, choice: PartitionChoice) -> Result<()> {
    let Some((old, new)) = found.renamed.first().filter(|_| !choice.accept_renamed) else { return Ok(()) };
    let message = format!(
        "input files have other names than when they were read: files={} was={old} is={new}",
        found.renamed.len()
    );
    Err(Error::new(ErrorKind::Incompatible, message).with_remedy(
        "give them their old names back; or, if they are the same files, say so with --accept-renamed-partitions",
    ))
}

fn refuse_missing(found: &Survey, choice: PartitionChoice) -> Result<()> {
    let Some((name, position)) = found.missing.first().filter(|_| !choice.allow_missing) else {
        return Ok(());
    };
    let message = format!(
        "input files are gone before they were read to their end: files={} name={name} read_bytes={} read_records={}",
        found.missing.len(),
        position.bytes,
        position.records
    );
    Err(Error::new(ErrorKind::Incompatible, message).with_remedy(
        "bring them back; or give them up with --allow-missing-partitions: what was read stays counted, what they held \
         beyond is lost, and how much that is nobody can tell",
    ))
}
