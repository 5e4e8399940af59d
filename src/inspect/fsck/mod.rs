//! Everything that can be proven of a state directory: each file, block, row and reference, what must hold between them,
//! and between one checkpoint and the next. Each finding comes with what to do about it.
//!
//! `manifest` and `history` are pure rules over manifests, `rows` reads the database once more with the rules of windows in
//! hand, `directory` looks at what lies around the checkpoints. [`super::verify()`] is the part of it that reads files.

mod directory;
mod history;
mod manifest;
mod rows;

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::checkpoint::CheckpointSummary;
use crate::error::Result;
use crate::inspect::choice::summaries;
use crate::inspect::scan::{Scanned, Watcher};
use crate::inspect::verify::{VerifiedCheckpoint, Which, verify};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// State cannot be trusted as it is.
    Problem,
    /// Nothing is lost; somebody should look.
    Warning,
}

/// Something that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// Which rule it breaks, a short name that never changes.
    pub rule: &'static str,
    /// What was found.
    pub what: String,
    /// What to do.
    pub advice: String,
}

impl Finding {
    fn problem(rule: &'static str, what: String, advice: impl Into<String>) -> Self {
        Self { severity: Severity::Problem, rule, what, advice: advice.into() }
    }

    fn warning(rule: &'static str, what: String, advice: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, rule, what, advice: advice.into() }
    }
}

/// What was found in one checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckedCheckpoint {
    /// What `verify` says of it.
    pub verified: VerifiedCheckpoint,
    /// What it breaks; without what `verify` found already.
    pub findings: Vec<Finding>,
    /// True without any problem; warnings are none.
    pub sound: bool,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FsckReport {
    /// What was looked at.
    pub path: PathBuf,
    /// The checkpoints, oldest first.
    pub checkpoints: Vec<CheckedCheckpoint>,
    /// What was found between checkpoints and around them.
    pub findings: Vec<Finding>,
    /// Epoch of the newest sound checkpoint.
    pub newest_sound: Option<u64>,
    /// True without any problem.
    pub sound: bool,
    /// What to do first, when something is wrong.
    pub advice: Option<String>,
}

/// Checks all checkpoints under `path`, or those of `which`, with everything around them.
///
/// # Errors
/// As [`verify`]: damage is in the report and no error.
pub fn fsck(path: &Path, which: Which, watcher: Watcher<'_>) -> Result<FsckReport> {
    let mut done = Scanned::default();
    let verified = verify(path, which)?;
    let summaries = summaries(path)?;
    let mut checkpoints = Vec::new();
    for verified in verified {
        let summary = summaries.iter().find(|summary| summary.path == verified.path);
        let findings = match summary {
            Some(summary) => check(summary, &verified, &mut done, &mut *watcher),
            // Retired since; it was sound or it was not, but it is no longer there.
            None => Vec::new(),
        };
        let sound = verified.sound && findings.iter().all(|finding| finding.severity != Severity::Problem);
        checkpoints.push(CheckedCheckpoint { verified, findings, sound });
    }
    let mut findings = directory::look(path);
    findings.extend(history::check(&summaries));
    let newest_sound =
        checkpoints.iter().rev().find(|checked| checked.sound).and_then(|checked| checked.verified.epoch);
    let sound = checkpoints.iter().all(|checked| checked.sound)
        && findings.iter().all(|finding| finding.severity != Severity::Problem);
    let newest_is_sound = checkpoints.last().is_none_or(|checked| checked.sound);
    Ok(FsckReport {
        path: path.to_owned(),
        advice: if sound { None } else { Some(advice(newest_is_sound, newest_sound)) },
        checkpoints,
        findings,
        newest_sound,
        sound,
    })
}

/// Rules beyond those of `verify`. The database is opened only when its files are sound.
fn check(
    summary: &CheckpointSummary,
    verified: &VerifiedCheckpoint,
    done: &mut Scanned,
    watcher: Watcher<'_>,
) -> Vec<Finding> {
    let Ok(manifest) = &summary.manifest else { return Vec::new() };
    let mut findings = manifest::check(manifest);
    if verified.sound {
        findings.extend(rows::check(summary, manifest, done, watcher));
    }
    findings
}

fn advice(newest_is_sound: bool, newest_sound: Option<u64>) -> String {
    match (newest_is_sound, newest_sound) {
        (true, _) => "a start is not held up, it takes the newest checkpoint, which is sound; mend or retire the others"
            .to_owned(),
        (false, Some(epoch)) => format!(
            "bring the newest checkpoint back from its repository or a copy (`floodmark repository fetch`), or go on from \
             the newest that is sound with `floodmark run PIPELINE --at {epoch}`; read what that means for the outputs in \
             docs/CHECKPOINTS.md first"
        ),
        (false, None) => "no checkpoint here is sound: bring one back from a repository, a savepoint or a copy before \
                          anything is started"
            .to_owned(),
    }
}
