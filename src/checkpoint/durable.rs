//! The door through which everything durable is written: create, write, sync, rename, remove, each its own step.
//!
//! [`DurableFs`] names the steps so that a test can cut the power between any two of them. It knows nothing of
//! checkpoints. Reading needs no door and goes through `std::fs`.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use crate::checkpoint::layout;

/// What a copy carried over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Bytes copied.
    pub bytes: u64,
    /// CRC32 of the bytes copied.
    pub crc32: u32,
}

/// The single steps of durable work. Nothing is on disk before the sync that says so.
pub trait DurableFs: Send + Sync + fmt::Debug {
    /// Creates one directory, whose parent exists.
    ///
    /// # Errors
    /// The system's; `AlreadyExists` when the path is taken.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Creates a file that does not exist and writes it, without syncing.
    ///
    /// # Errors
    /// The system's; `AlreadyExists` when the path is taken.
    fn write_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Copies a regular file to a path that does not exist, without syncing.
    ///
    /// # Errors
    /// The system's; `AlreadyExists` when the target is taken.
    fn copy_new(&self, from: &Path, to: &Path) -> io::Result<Copied>;

    /// Gives a file a second name.
    ///
    /// # Errors
    /// The system's; `CrossesDevices` when the two are on different filesystems.
    fn hard_link(&self, original: &Path, link: &Path) -> io::Result<()>;

    /// Renames a file or a directory. A directory never replaces one that is not empty.
    ///
    /// # Errors
    /// The system's.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Makes the contents of a file durable. After an error the contents must be given up, never synced again.
    ///
    /// # Errors
    /// The system's.
    fn sync_file(&self, path: &Path) -> io::Result<()>;

    /// Makes the entries of a directory durable.
    ///
    /// # Errors
    /// The system's.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Removes a file's name.
    ///
    /// # Errors
    /// The system's.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// The system's.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
}

/// The machine's own filesystem.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskFs;

impl DurableFs for DiskFs {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir(path)
    }

    fn write_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        File::create_new(path)?.write_all(bytes)
    }

    fn copy_new(&self, from: &Path, to: &Path) -> io::Result<Copied> {
        let mut from = layout::open_regular(from)?;
        let mut to = File::create_new(to)?;
        read_through(&mut from, |chunk| to.write_all(chunk))
    }

    fn hard_link(&self, original: &Path, link: &Path) -> io::Result<()> {
        std::fs::hard_link(original, link)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the one door; callers sync the parent as a step of its own"
    )]
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        layout::open_regular(path)?.sync_all()
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_dir(path)
    }
}

/// Reads to the end in pieces of 256 KiB, handing each to `sink`, and counts and checksums what was read.
pub(super) fn read_through(
    from: &mut impl Read,
    mut sink: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<Copied> {
    let mut buffer = vec![0; 256 << 10];
    let mut hasher = crc32fast::Hasher::new();
    let mut bytes = 0;
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => return Ok(Copied { bytes, crc32: hasher.finalize() }),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let chunk = buffer.get(..read).unwrap_or_default();
        hasher.update(chunk);
        sink(chunk)?;
        bytes += read as u64;
    }
}

/// Puts `bytes` at `path` so that any cut leaves the old file or the new one: write `temporary`, sync it, rename,
/// sync the directory. Both paths are in the same directory.
///
/// # Errors
/// The step that failed, by name, and the system's error. After a failed sync nothing may be retried.
pub fn publish_file(
    fs: &dyn DurableFs,
    path: &Path,
    temporary: &Path,
    bytes: &[u8],
) -> Result<(), (&'static str, io::Error)> {
    fs.write_new(temporary, bytes).map_err(|error| ("write", error))?;
    fs.sync_file(temporary).map_err(|error| ("sync", error))?;
    fs.rename(temporary, path).map_err(|error| ("rename", error))?;
    fs.sync_dir(parent(path)).map_err(|error| ("sync", error))
}

/// Creates a directory and its missing ancestors, each durable in its parent. An existing one is made durable too:
/// whoever created it may have been cut before the sync.
///
/// # Errors
/// The system's.
pub fn create_dir_durably(fs: &dyn DurableFs, path: &Path) -> io::Result<()> {
    let parent = parent(path);
    if !path.is_dir() {
        if !parent.is_dir() {
            create_dir_durably(fs, parent)?;
        }
        match fs.create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
            other => other?,
        }
        return fs.sync_dir(parent);
    }
    match fs.sync_dir(parent) {
        // A parent that may be passed through but not read was set up by somebody else, long ago.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        other => other,
    }
}

/// Removes a directory with everything in it, without following symlinks. Nothing is synced.
///
/// # Errors
/// The system's; the tree is then partly gone.
pub fn remove_tree(fs: &dyn DurableFs, path: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(fs, &entry.path())?;
        } else {
            fs.remove_file(&entry.path())?;
        }
    }
    fs.remove_dir(path)
}

/// The directory that holds `path`.
pub(super) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_tells_the_checksum_of_what_it_carried() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("a"), dir.path().join("b"));
        let bytes: Vec<u8> = (0..600_000_u32).map(|index| (index % 251) as u8).collect();
        DiskFs.write_new(&from, &bytes).unwrap();
        let copied = DiskFs.copy_new(&from, &to).unwrap();
        assert_eq!(copied, Copied { bytes: 600_000, crc32: crc32fast::hash(&bytes) });
        assert_eq!(std::fs::read(&to).unwrap(), bytes);
        assert_eq!(DiskFs.copy_new(&from, &to).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn a_directory_never_replaces_one_that_holds_something() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("new"), dir.path().join("old"));
        for path in [&from, &to] {
            DiskFs.create_dir(path).unwrap();
            DiskFs.write_new(&path.join("MANIFEST.fm"), b"x").unwrap();
        }
        assert!(DiskFs.rename(&from, &to).is_err());
    }

    #[test]
    fn removing_a_tree_leaves_what_its_symlinks_point_at() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        DiskFs.write_new(&outside.join("kept"), b"x").unwrap();
        let tree = dir.path().join("tree");
        create_dir_durably(&DiskFs, &tree.join("a/b")).unwrap();
        std::os::unix::fs::symlink(&outside, tree.join("a/link")).unwrap();
        remove_tree(&DiskFs, &tree).unwrap();
        assert!(!tree.exists() && outside.join("kept").exists());
    }
}
