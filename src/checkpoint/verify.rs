//! Reading a checkpoint with suspicion: every file there, of its size and checksum, and nothing else.
//!
//! Works offline and read-only on a checkpoint anywhere, also one that was copied. The only maker of
//! [`VerifiedManifest`]. It does not open the database inside.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use crate::checkpoint::durable::{Copied, read_through};
use crate::checkpoint::layout;
use crate::checkpoint::lineage::LineageId;
use crate::checkpoint::manifest::{FileEntry, Manifest, ManifestError};
use crate::checkpoint::savepoint::SavepointRecord;

/// More problems than this are counted, not listed: a hostile directory may hold a million entries.
const PROBLEMS_MAX: usize = 100;

/// Something about a checkpoint that is not as its manifest says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// The manifest itself cannot be believed.
    Manifest {
        /// What is wrong with it.
        reason: String,
    },
    /// The manifest was written by a later version.
    Newer {
        /// Its format version.
        found: u32,
        /// The newest this build reads.
        known: u32,
    },
    /// A file is not there.
    Missing {
        /// Its name.
        name: String,
    },
    /// A file has another length.
    Size {
        /// Its name.
        name: String,
        /// Bytes by the manifest.
        expected: u64,
        /// Bytes found.
        found: u64,
    },
    /// A file has other contents.
    Checksum {
        /// Its name.
        name: String,
        /// CRC32 by the manifest.
        expected: u32,
        /// CRC32 found.
        found: u32,
    },
    /// A file that the manifest does not name.
    Extra {
        /// Its name.
        name: String,
    },
    /// A symlink, directory or special file where a regular file or a directory belongs.
    Irregular {
        /// Its name.
        name: String,
    },
    /// A file could not be read; whether it is damaged is not known.
    Unreadable {
        /// Its name.
        name: String,
        /// The system's reason.
        reason: String,
    },
    /// The directory carries the name of another checkpoint.
    WrongName {
        /// The directory's name.
        directory: String,
        /// The epoch in the manifest.
        epoch: u64,
    },
    /// The checkpoint belongs to another history.
    OtherLineage {
        /// The lineage in the manifest.
        found: LineageId,
        /// Ours.
        ours: LineageId,
    },
    /// The record that makes it a savepoint is of another checkpoint, or cannot be read.
    Savepoint {
        /// What is wrong with it.
        reason: String,
    },
    /// So many more problems.
    More {
        /// How many.
        count: u64,
    },
}

impl Problem {
    /// True when it only says that something could not be read now.
    #[must_use]
    pub const fn is_passing(&self) -> bool {
        matches!(self, Self::Unreadable { .. })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manifest { reason } => f.write_str(reason),
            Self::Newer { found, known } => {
                write!(f, "manifest was written by a newer version: format={found} known={known}")
            }
            Self::Missing { name } => write!(f, "file is missing: name={name}"),
            Self::Size { name, expected, found } => {
                write!(f, "file has the wrong size: name={name} expected={expected} found={found}")
            }
            Self::Checksum { name, expected, found } => {
                write!(f, "file fails its checksum: name={name} expected={expected:08x} found={found:08x}")
            }
            Self::Extra { name } => write!(f, "file is not in the manifest: name={name:?}"),
            Self::Irregular { name } => write!(f, "not a regular file or directory: name={name:?}"),
            Self::Unreadable { name, reason } => {
                write!(f, "file cannot be read: name={name} reason={reason}")
            }
            Self::WrongName { directory, epoch } => {
                write!(f, "directory is named after another checkpoint: directory={directory} epoch={epoch}")
            }
            Self::OtherLineage { found, ours } => {
                write!(f, "checkpoint belongs to another state directory: lineage={found} ours={ours}")
            }
            Self::Savepoint { reason } => write!(f, "savepoint record is not believed: {reason}"),
            Self::More { count } => write!(f, "and more problems: count={count}"),
        }
    }
}

/// What [`verify`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyReport {
    /// The checkpoint's directory.
    pub path: PathBuf,
    /// Its manifest, when that can be read.
    pub manifest: Option<Arc<Manifest>>,
    /// Files of the manifest that were read and match.
    pub files_verified: u64,
    /// Bytes of these files.
    pub bytes_verified: u64,
    /// What does not fit; empty for a sound checkpoint. At most 100, then [`Problem::More`].
    pub problems: Vec<Problem>,
    /// Remarks that are no problems.
    pub notes: Vec<String>,
}

impl VerifyReport {
    /// A report about `dir` that has nothing in it yet.
    pub(super) fn of(dir: &Path) -> Self {
        Self {
            path: dir.to_owned(),
            manifest: None,
            files_verified: 0,
            bytes_verified: 0,
            problems: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// True when every file verifies and nothing else is there.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.manifest.is_some() && self.problems.is_empty()
    }

    /// The problems as one line.
    #[must_use]
    pub fn problem_line(&self) -> String {
        self.problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    /// The proof that every file verified.
    ///
    /// # Errors
    /// The report itself, when there are problems.
    pub fn into_verified(self) -> Result<VerifiedManifest, Box<Self>> {
        match (&self.manifest, self.problems.is_empty()) {
            (Some(manifest), true) => {
                Ok(VerifiedManifest { manifest: Arc::clone(manifest), path: self.path })
            }
            _ => Err(Box::new(self)),
        }
    }

    pub(super) fn problem(&mut self, problem: Problem) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        } else if let Some(Problem::More { count }) = self.problems.last_mut() {
            *count += 1;
        } else {
            self.problems.push(Problem::More { count: 1 });
        }
    }

    fn unreadable(&mut self, name: &str, error: &io::Error) {
        let name = name.to_owned();
        self.problem(match error.kind() {
            io::ErrorKind::NotFound => Problem::Missing { name },
            io::ErrorKind::InvalidData => Problem::Irregular { name },
            // O_NOFOLLOW answers ELOOP to a symlink, and opening a socket or a dead device ENXIO.
            _ if matches!(Errno::from_io_error(error), Some(Errno::LOOP | Errno::NXIO)) => {
                Problem::Irregular { name }
            }
            _ => Problem::Unreadable { name, reason: error.to_string() },
        });
    }
}

/// A manifest of which every file was read and found to be as it says; made by verification alone.
#[derive(Clone, Debug)]
pub struct VerifiedManifest {
    manifest: Arc<Manifest>,
    path: PathBuf,
}

impl VerifiedManifest {
    /// The manifest.
    #[must_use]
    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    /// The checkpoint's directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The checkpoint's database, to be opened read-only.
    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.path.join(layout::DATABASE)
    }
}

/// Verifies the checkpoint in `dir`: reads every file it names and looks for anything it does not.
///
/// Nothing is written and no lock is taken. Problems are in the report; there is no error.
#[must_use]
pub fn verify(dir: &Path) -> VerifyReport {
    let mut report = VerifyReport::of(dir);
    check_root(dir, &mut report);
    match Manifest::load(dir) {
        Ok(manifest) => {
            let manifest = Arc::new(manifest);
            let is_savepoint = check_savepoint(dir, &manifest, &mut report);
            check_name(dir, &manifest, is_savepoint, &mut report);
            check_files(dir, &manifest, &mut report);
            report.manifest = Some(manifest);
        }
        Err(ManifestError::Unreadable(error)) => report.unreadable(layout::MANIFEST, &error),
        Err(ManifestError::Decode(crate::codec::DecodeError::Version { found, known })) => {
            report.problem(Problem::Newer { found, known });
        }
        Err(error) => report.problem(Problem::Manifest { reason: error.to_string() }),
    }
    report
}

/// The directory holds the manifest and the database, and nothing else.
fn check_root(dir: &Path, report: &mut VerifyReport) {
    let entries = match layout::entries(dir) {
        Ok(entries) => entries,
        Err(error) => return report.unreadable(".", &error),
    };
    for entry in entries {
        match entry {
            Ok((name, kind)) => match name.as_str() {
                layout::MANIFEST | layout::SAVEPOINT if kind.is_file() => {}
                layout::DATABASE if kind.is_dir() => {}
                layout::MANIFEST | layout::SAVEPOINT | layout::DATABASE => {
                    report.problem(Problem::Irregular { name });
                }
                _ => report.problem(Problem::Extra { name }),
            },
            Err(error) => return report.unreadable(".", &error),
        }
    }
}

/// A savepoint says of which manifest it is. Returns whether this is one.
fn check_savepoint(dir: &Path, manifest: &Manifest, report: &mut VerifyReport) -> bool {
    let reason = match SavepointRecord::load(dir) {
        Ok(None) => return false,
        Err(error) => error.to_string(),
        Ok(Some(record)) => match checksum(&dir.join(layout::MANIFEST)) {
            Ok(read) if (read.bytes, read.crc32) == (record.manifest_bytes, record.manifest_crc32) => {
                report.notes.push(format!("savepoint {:?} of epoch {}", record.name, manifest.epoch));
                return true;
            }
            Ok(read) => format!(
                "it is of another manifest: expected={:08x} found={:08x}",
                record.manifest_crc32, read.crc32
            ),
            Err(error) => error.to_string(),
        },
    };
    report.problem(Problem::Savepoint { reason });
    true
}

fn check_name(dir: &Path, manifest: &Manifest, is_savepoint: bool, report: &mut VerifyReport) {
    let directory = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match layout::epoch_of(&directory) {
        Some(epoch) if epoch == manifest.epoch => {}
        Some(_) => report.problem(Problem::WrongName { directory, epoch: manifest.epoch }),
        None if is_savepoint => {}
        None => report.notes.push(format!(
            "copied under another name: directory={directory:?} original={}",
            layout::checkpoint_name(manifest.epoch)
        )),
    }
}

fn check_files(dir: &Path, manifest: &Manifest, report: &mut VerifyReport) {
    let database = dir.join(layout::DATABASE);
    // A symlink in the place of the database was reported with the root; nothing is read through it.
    if !std::fs::symlink_metadata(&database).is_ok_and(|metadata| metadata.is_dir()) {
        return report.problem(Problem::Missing { name: layout::DATABASE.to_owned() });
    }
    let expected: BTreeSet<&str> = manifest.files.iter().map(|file| file.name.as_str()).collect();
    let mut irregular = BTreeSet::new();
    let entries = match layout::entries(&database) {
        Ok(entries) => entries,
        Err(error) => return report.unreadable(layout::DATABASE, &error),
    };
    for entry in entries {
        match entry {
            Ok((name, kind)) if !kind.is_file() => {
                if expected.contains(name.as_str()) {
                    irregular.insert(name.clone());
                }
                report.problem(Problem::Irregular { name });
            }
            Ok((name, _)) if !expected.contains(name.as_str()) => report.problem(Problem::Extra { name }),
            Ok(_) => {}
            Err(error) => return report.unreadable(layout::DATABASE, &error),
        }
    }
    for file in manifest.files.iter().filter(|file| !irregular.contains(&file.name)) {
        check_file(&database, file, report);
    }
}

/// Adds to `report` what is wrong with one file, or that nothing is.
pub(super) fn check_file(database: &Path, file: &FileEntry, report: &mut VerifyReport) {
    let name = file.name.clone();
    // The size first: it costs nothing, and a file of the wrong size need not be read.
    match std::fs::symlink_metadata(database.join(&name)) {
        Ok(found) if found.len() != file.bytes => {
            return report.problem(Problem::Size { name, expected: file.bytes, found: found.len() });
        }
        Ok(_) => {}
        Err(error) => return report.unreadable(&name, &error),
    }
    match checksum(&database.join(&name)) {
        Ok(found) if found.bytes != file.bytes => {
            report.problem(Problem::Size { name, expected: file.bytes, found: found.bytes });
        }
        Ok(found) if found.crc32 != file.crc32 => {
            report.problem(Problem::Checksum { name, expected: file.crc32, found: found.crc32 });
        }
        Ok(found) => {
            report.files_verified += 1;
            report.bytes_verified += found.bytes;
        }
        Err(error) => report.unreadable(&name, &error),
    }
}

/// Size and CRC32 of a regular file, read through to its end.
pub(super) fn checksum(path: &Path) -> io::Result<Copied> {
    read_through(&mut layout::open_regular(path)?, |_| Ok(()))
}
