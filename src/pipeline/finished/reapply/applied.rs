//! Which late parts a result set holds already, so that none is counted twice. A part is known by its bytes, not by its
//! name: copies and renamed ones are the same part.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::checkpoint::savepoint::LatePart;
use crate::error::{Error, ErrorKind, Result};
use crate::pipeline::finished::row::Part;

/// Name of the file in a directory of corrected results.
pub(super) const FILE: &str = "APPLIED";
/// A file of this name that is larger was not written here.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// What `APPLIED` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Applied {
    version: u32,
    window: String,
    late: BTreeSet<LatePart>,
}

const VERSION: u32 = 1;

impl Applied {
    /// What the directory says of itself; nothing where it is the output of a pipeline.
    pub(super) fn read(results: &Path, window: &str) -> Result<Self> {
        let path = results.join(FILE);
        if !path.exists() {
            return Ok(Self { version: VERSION, window: window.to_owned(), late: BTreeSet::new() });
        }
        let unreadable = |what: String| {
            Error::new(
                ErrorKind::Damaged,
                format!("cannot tell which late parts these results hold: {what}: path={}", path.display()),
            )
            .with_remedy("start again from the results that the pipeline has published")
        };
        let length = std::fs::metadata(&path).map_err(|error| unreadable(error.to_string()))?.len();
        if length > FILE_BYTES_MAX {
            return Err(unreadable(format!("bytes={length}")));
        }
        let bytes = std::fs::read(&path).map_err(|error| unreadable(error.to_string()))?;
        let applied: Self = serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))?;
        if applied.version != VERSION {
            return Err(unreadable(format!("version={} known={VERSION}", applied.version)));
        }
        if applied.window != window {
            let message = format!(
                "these are the corrected results of another window: path={} theirs={} window={window}",
                results.display(),
                applied.window
            );
            return Err(
                Error::new(ErrorKind::Invalid, message).with_remedy("name the results of this window")
            );
        }
        Ok(applied)
    }

    /// What a savepoint says of itself.
    pub(super) fn of_savepoint(late: BTreeSet<LatePart>) -> Self {
        Self { version: VERSION, window: String::new(), late }
    }

    /// The parts that are held.
    pub(super) fn into_parts(self) -> BTreeSet<LatePart> {
        self.late
    }

    /// Takes up parts that are new to these results, and names those that are not.
    pub(super) fn split(&mut self, parts: Vec<Part>) -> Result<(Vec<Part>, Vec<String>)> {
        let (mut fresh, mut passed_over) = (Vec::new(), Vec::new());
        for part in parts {
            let mut hasher = crc32fast::Hasher::new();
            let mut bytes = 0;
            part.lines(|_, line| {
                hasher.update(line);
                bytes += line.len() as u64;
                Ok(())
            })?;
            if self.late.insert(LatePart { bytes, crc32: hasher.finalize() }) {
                fresh.push(part);
            } else {
                passed_over.push(part.name);
            }
        }
        Ok((fresh, passed_over))
    }

    /// The bytes of the file.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec(self).map_err(|error| {
            Error::new(ErrorKind::Bug, "cannot write which late parts were applied").with_source(error)
        })?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}
