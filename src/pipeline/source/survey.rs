//! The files of the sources as they are now, next to those that a checkpoint knows: new ones, missing ones, and ones that
//! look as if they had been renamed.
//!
//! Names and heads are looked at; no record is read, and nothing is decided.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::input::Recognition;
use super::{PartitionResume, Position, files, input};
use crate::error::{Error, ErrorKind, Result};
use crate::pipeline::config::SourceConfig;

/// What the files are to a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Files that it does not know; they are read from their beginning.
    pub added: Vec<String>,
    /// Partitions that were not read to their end and whose files are not there, each with how far they were read.
    pub missing: Vec<(String, Position)>,
    /// Partitions whose file is not there while exactly one new file begins with the same bytes: old name, new name.
    pub renamed: Vec<(String, String)>,
}

/// Looks at the files of the sources.
///
/// # Errors
/// `Unavailable` when a pattern matches nothing or a file cannot be read, `Invalid` for a pattern that cannot be.
pub fn survey(configs: &[SourceConfig], resume: &[PartitionResume]) -> Result<Survey> {
    let mut there = BTreeMap::new();
    for config in configs {
        let by = Recognition::of(config.format);
        there.extend(files::list(config)?.into_iter().map(|file| (file.name, (file.path, by))));
    }
    let known: BTreeSet<&str> = resume.iter().map(|known| known.name.as_str()).collect();
    let mut new: BTreeMap<String, _> = there.clone();
    new.retain(|name, _| !known.contains(name.as_str()));
    let mut survey = Survey::default();
    for known in resume.iter().filter(|known| !there.contains_key(&known.name)) {
        match same_head(known, &new)? {
            Some(name) => {
                new.remove(&name);
                survey.renamed.push((known.name.clone(), name));
            }
            None if known.finished => {}
            None => survey.missing.push((known.name.clone(), known.position)),
        }
    }
    survey.added = new.into_keys().collect();
    Ok(survey)
}

/// The one new file that begins as the partition did.
fn same_head(
    known: &PartitionResume,
    new: &BTreeMap<String, (Option<std::path::PathBuf>, Recognition)>,
) -> Result<Option<String>> {
    let Some(identity) = known.identity.filter(|identity| identity.head_bytes > 0) else { return Ok(None) };
    let mut found = None;
    for (name, (path, by)) in new {
        let Some(path) = path else { continue };
        let (_, same) =
            input::identify(path, Some(identity), *by).map_err(|error| unreadable(path, error))?;
        if same && found.replace(name.clone()).is_some() {
            // Two files begin alike: which of them it is, only a person can say.
            return Ok(None);
        }
    }
    Ok(found)
}

fn unreadable(path: &Path, error: std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("cannot open the input: path={}", path.display()))
        .with_remedy("make it readable for the user that runs the pipeline")
        .with_source(error)
}
