//! Reading the files of a checkpoint again while its directory is in use: hard links share what goes bad.
//!
//! Tells which other checkpoints have the same file; what to do about it is for people to decide.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::checkpoint::directory::StateDirectory;
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::layout;
use crate::checkpoint::verify::{Problem, VerifyReport, check_file};
use crate::checkpoint::writer::Published;

impl StateDirectory {
    /// Reads every file of a checkpoint of this directory again. Returns how many bytes these are.
    ///
    /// What the kernel has in memory is read from there: damage on the disk alone is noticed once it has left.
    ///
    /// # Errors
    /// [`CheckpointError::Rotten`] for a file that is not as it was written, with all checkpoints that have it.
    pub fn reread(&self, published: &Published) -> Result<u64, CheckpointError> {
        let database = published.path().join(layout::DATABASE);
        let mut report = VerifyReport::of(published.path());
        for file in &published.manifest().files {
            check_file(&database, file, &mut report);
            if let Some(problem) = report.problems.first() {
                return Err(CheckpointError::Rotten {
                    path: database.join(&file.name),
                    problem: problem.to_string(),
                    lasting: !Problem::is_passing(problem),
                    shared_by: self.having(&database.join(&file.name)),
                });
            }
        }
        Ok(report.bytes_verified)
    }

    /// Checkpoints and savepoints of this directory that have this very file, by name.
    fn having(&self, file: &Path) -> Vec<String> {
        let inode = |path: PathBuf| {
            std::fs::symlink_metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
        };
        let (Some(ours), Some(name)) = (inode(file.to_owned()), file.file_name()) else { return Vec::new() };
        let layout = &self.shared.layout;
        let mut having = Vec::new();
        for parent in [layout.checkpoints(), layout.savepoints()] {
            // What cannot be listed cannot be named; the damage is told all the same.
            let Ok(entries) = layout::entries(&parent) else { continue };
            for (entry, _) in entries.flatten() {
                if inode(parent.join(&entry).join(layout::DATABASE).join(name)) == Some(ours) {
                    having.push(entry);
                }
            }
        }
        having.sort();
        having
    }
}
