//! Names and places inside a state directory, and how a file in it is opened: plain names, regular files only.
//!
//! It does not know what the files mean. The layout is written down in `docs/FORMAT.md`.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Name of the manifest inside a checkpoint directory.
pub(super) const MANIFEST: &str = "MANIFEST.fm";
/// Name of the file that makes a checkpoint directory a savepoint.
pub(super) const SAVEPOINT: &str = "SAVEPOINT.fm";
/// Name of the file in a state directory that says which checkpoint it was made of.
pub(super) const ORIGIN: &str = "ORIGIN";
/// Name of the database inside a checkpoint directory.
pub(super) const DATABASE: &str = "db";

/// The paths of one state directory.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) root: PathBuf,
}

impl Layout {
    pub(super) fn lock(&self) -> PathBuf {
        self.root.join("LOCK")
    }

    pub(super) fn lineage(&self) -> PathBuf {
        self.root.join("LINEAGE")
    }

    pub(super) fn work(&self) -> PathBuf {
        self.root.join("work")
    }

    pub(super) fn work_of(&self, generation: u64) -> PathBuf {
        self.work().join(generation.to_string())
    }

    pub(super) fn checkpoints(&self) -> PathBuf {
        self.root.join("checkpoints")
    }

    pub(super) fn savepoints(&self) -> PathBuf {
        self.root.join("savepoints")
    }

    pub(super) fn checkpoint(&self, epoch: u64) -> PathBuf {
        self.checkpoints().join(checkpoint_name(epoch))
    }

    pub(super) fn retired(&self, epoch: u64) -> PathBuf {
        self.checkpoints().join(format!("{}.retired", checkpoint_name(epoch)))
    }

    /// A name for writing that no other attempt of any process ever uses.
    pub(super) fn attempt(&self, epoch: u64, generation: u64, attempt: u64) -> PathBuf {
        self.checkpoints().join(format!("{}.{generation}-{attempt}.tmp", checkpoint_name(epoch)))
    }
}

/// Directory name of the checkpoint of `epoch`.
pub(super) fn checkpoint_name(epoch: u64) -> String {
    format!("chk-{epoch:010}")
}

/// What an entry of the directory of checkpoints is, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryName {
    /// A complete checkpoint.
    Complete(u64),
    /// Left over by an attempt or a retirement that was cut: to be swept.
    LeftOver,
    /// Not ours.
    Unknown,
}

impl EntryName {
    pub(super) fn parse(name: &str) -> Self {
        let (stem, rest) = name.split_once('.').map_or((name, None), |(stem, rest)| (stem, Some(rest)));
        let Some(epoch) = epoch_of(stem) else { return Self::Unknown };
        match rest {
            None => Self::Complete(epoch),
            Some("retired") => Self::LeftOver,
            Some(rest) if rest.strip_suffix(".tmp").is_some_and(is_attempt) => Self::LeftOver,
            Some(_) => Self::Unknown,
        }
    }
}

fn is_attempt(text: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once('-').is_some_and(|(generation, attempt)| digits(generation) && digits(attempt))
}

/// The epoch in a checkpoint's name; only the exact form that [`checkpoint_name`] writes.
pub(super) fn epoch_of(name: &str) -> Option<u64> {
    let epoch = name.strip_prefix("chk-")?.parse().ok()?;
    (checkpoint_name(epoch) == name).then_some(epoch)
}

/// True for names that cannot leave their directory: `[0-9A-Za-z_.-]`, at most 255 of them, not all dots.
pub(crate) fn is_plain_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    (1..=255).contains(&name.len()) && name.bytes().all(plain) && !name.bytes().all(|byte| byte == b'.')
}

/// Opens a regular file for reading; a symlink is not followed and a FIFO is not waited for.
///
/// # Errors
/// The system's, or `InvalidData` when the path is something else than a regular file.
pub(super) fn open_regular(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).map_err(|_| io::Error::from(io::ErrorKind::Unsupported))?;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a regular file"));
    }
    Ok(file)
}

/// Names in a directory with what they are; a name that is not UTF-8 is given lossily and is never plain.
pub(super) fn entries(
    dir: &Path,
) -> io::Result<impl Iterator<Item = io::Result<(String, std::fs::FileType)>>> {
    Ok(std::fs::read_dir(dir)?.map(|entry| {
        let entry = entry?;
        Ok((entry.file_name().to_string_lossy().into_owned(), entry.file_type()?))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoint_names_are_read_back_in_exactly_one_form() {
        for epoch in [0, 1, 42, 9_999_999_999, 10_000_000_000, u64::MAX] {
            assert_eq!(EntryName::parse(&checkpoint_name(epoch)), EntryName::Complete(epoch));
        }
        for name in
            ["chk-1", "chk-+000000001", "chk-00000000001", "chk-", "chk-000000000x", "xchk-0000000001"]
        {
            assert_eq!(EntryName::parse(name), EntryName::Unknown, "{name}");
        }
    }

    #[test]
    fn only_our_own_left_overs_are_swept() {
        let layout = Layout { root: PathBuf::from("s") };
        for path in [layout.attempt(7, 3, 0), layout.retired(7)] {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            assert_eq!(EntryName::parse(&name), EntryName::LeftOver, "{name}");
        }
        for name in
            ["chk-0000000007.tmp", "chk-0000000007.old", "notes.tmp", "chk-0000000007.a-b.tmp", "x.retired"]
        {
            assert_eq!(EntryName::parse(name), EntryName::Unknown, "{name}");
        }
    }

    #[test]
    fn names_that_could_leave_the_directory_are_not_plain() {
        let long = "a".repeat(256);
        let escapes =
            ["", ".", "..", "...", "../x", "/etc/passwd", "a/b", "a\\b", "a\0", "C:x", "ä", " ", &long];
        for name in escapes {
            assert!(!is_plain_name(name), "{name:?}");
        }
        for name in ["000123.sst", "CURRENT", "MANIFEST-000005", "OPTIONS-000007"] {
            assert!(is_plain_name(name), "{name}");
        }
    }
}
