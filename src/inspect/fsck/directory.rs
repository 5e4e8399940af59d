//! What lies around the checkpoints of a state directory.

use std::path::Path;

use super::Finding;
use crate::checkpoint::{self, CheckpointError, look as look_at_state};

/// Everything that does not belong into the state directory at `path`, or does not fit its checkpoints. Nothing, for a
/// checkpoint by itself.
pub(super) fn look(path: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    let checkpoints = path.join("checkpoints");
    if !checkpoints.is_dir() {
        return findings;
    }
    left_overs(&checkpoints, &mut findings);
    match look_at_state(path) {
        Ok(Some(local)) => {
            let newest = checkpoint::list(path).ok().and_then(|mut summaries| summaries.pop());
            let Some(Ok(manifest)) = newest.map(|summary| summary.manifest) else { return findings };
            if manifest.lineage != local.lineage {
                findings.push(Finding::problem(
                    "one-history",
                    format!("the newest checkpoint is of another state directory: epoch={}", manifest.epoch),
                    "move it away: it was copied here; `floodmark restore` makes a state directory of a checkpoint",
                ));
            } else if manifest.generation > local.generation {
                let (found, known) = (manifest.generation, local.generation);
                findings.push(Finding::problem(
                    "one-writer",
                    format!("the newest checkpoint is of an open that LINEAGE does not know: generation={found} known={known}"),
                    "bring LINEAGE.fm back from where the directory was copied from, or restore into a new one with \
                     `floodmark restore`",
                ));
            }
        }
        Ok(None) => findings.push(Finding::warning(
            "lineage-there",
            "there is no LINEAGE.fm beside the checkpoints".to_owned(),
            "a start refuses this directory; make a new one of the newest checkpoint with `floodmark restore`",
        )),
        Err(error) => findings.push(unreadable(&error)),
    }
    findings
}

fn unreadable(error: &CheckpointError) -> Finding {
    Finding::problem(
        "lineage-there",
        error.to_string(),
        "make a new state directory of the newest sound checkpoint with `floodmark restore`",
    )
}

/// Directories of checkpoints that were cut, which the next start sweeps.
fn left_overs(checkpoints: &Path, findings: &mut Vec<Finding>) {
    let Ok(entries) = std::fs::read_dir(checkpoints) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let cut = name.ends_with(".tmp") || name.ends_with(".retired");
        let is_checkpoint =
            name.strip_prefix("chk-").is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
        if cut {
            findings.push(Finding::warning(
                "nothing-left-over",
                format!("a checkpoint was cut, or is being written or deleted: name={name}"),
                "nothing to do: the next start sweeps it, unless a pipeline is running and finishes it",
            ));
        } else if !is_checkpoint {
            findings.push(Finding::warning(
                "nothing-left-over",
                format!("something is among the checkpoints that does not belong there: name={name:?}"),
                "move it away",
            ));
        }
    }
}
