//! The lock of a state directory: one flock held for the life of the process, with a note on who holds it.
//!
//! It keeps honest processes apart. A deleted lock file is noticed here ([`DirectoryLock::still_ours`]); what a
//! process that lost the directory may no longer do is the writer's business.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::checkpoint::layout;

/// Who holds a lock, as far as the lock file tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// Process id.
    pub pid: Option<u32>,
    /// When it took the lock, in wall-clock milliseconds since the Unix epoch.
    pub since_ms: Option<i64>,
    /// Its machine's name.
    pub host: Option<String>,
}

impl Holder {
    pub(super) fn parse(text: &str) -> Self {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        Self {
            pid: field("pid").and_then(|pid| pid.parse().ok()),
            since_ms: field("since_ms").and_then(|since| since.parse().ok()),
            host: field("host").map(|host| host.chars().filter(|c| !c.is_control()).take(64).collect()),
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "pid={pid}")?,
            None => f.write_str("pid=unknown")?,
        }
        if let Some(since) = self.since_ms.and_then(|since| jiff::Timestamp::from_millisecond(since).ok()) {
            write!(f, " since={since}")?;
        }
        match &self.host {
            Some(host) => write!(f, " host={host}"),
            None => Ok(()),
        }
    }
}

/// Why the lock was not taken.
#[derive(Debug)]
pub(super) enum LockFailure {
    Held(Holder),
    Io(io::Error),
}

/// The lock, held until dropped.
#[derive(Debug)]
pub(super) struct DirectoryLock {
    file: File,
    path: PathBuf,
}

impl DirectoryLock {
    /// Takes the lock at `path` without waiting and writes down who has it.
    pub(super) fn acquire(path: &Path, now_ms: i64) -> Result<Self, LockFailure> {
        // A file that is deleted between our open and our flock leaves a lock on nothing: look again, a few times.
        for _ in 0..8 {
            let file = open(path).map_err(LockFailure::Io)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Err(LockFailure::Held(read_holder(file))),
                Err(errno) => return Err(LockFailure::Io(errno.into())),
            }
            let mut lock = Self { file, path: path.to_owned() };
            if lock.still_ours() {
                lock.sign(now_ms).map_err(LockFailure::Io)?;
                return Ok(lock);
            }
        }
        Err(LockFailure::Io(io::Error::other("the lock file disappears again and again")))
    }

    /// True while the path still names the file we locked.
    pub(super) fn still_ours(&self) -> bool {
        let id = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        match (self.file.metadata(), std::fs::symlink_metadata(&self.path)) {
            (Ok(ours), Ok(there)) => id(ours) == id(there),
            _ => false,
        }
    }

    fn sign(&mut self, now_ms: i64) -> io::Result<()> {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let note = format!("pid={}\nsince_ms={now_ms}\nhost={host}\n", std::process::id());
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(note.as_bytes())
    }
}

/// Who holds the lock at `path`, if anybody does. Creates nothing, and lets go at once.
pub(super) fn holder_of(path: &Path) -> io::Result<Option<Holder>> {
    let file = match layout::open_regular(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(None),
        Err(Errno::WOULDBLOCK) => Ok(Some(read_holder(file))),
        Err(errno) => Err(errno.into()),
    }
}

fn open(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).map_err(|_| io::Error::from(io::ErrorKind::Unsupported))?;
    File::options().read(true).write(true).create(true).truncate(false).custom_flags(flags).open(path)
}

fn read_holder(file: File) -> Holder {
    let mut text = Vec::new();
    // A note that cannot be read makes the message poorer, not the lock weaker.
    let _ = file.take(1024).read_to_end(&mut text);
    Holder::parse(&String::from_utf8_lossy(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_taker_is_told_who_holds_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("LOCK");
        let first = DirectoryLock::acquire(&path, 1_700_000_000_000).unwrap();
        let LockFailure::Held(holder) = DirectoryLock::acquire(&path, 0).unwrap_err() else {
            panic!("not held")
        };
        assert_eq!(holder.pid, Some(std::process::id()));
        assert!(holder.to_string().contains("since=2023-11-14T22:13:20Z host="), "{holder}");
        drop(first);
        DirectoryLock::acquire(&path, 0).unwrap();
    }

    #[test]
    fn a_deleted_lock_file_is_noticed_by_its_holder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("LOCK");
        let first = DirectoryLock::acquire(&path, 0).unwrap();
        assert!(first.still_ours());
        std::fs::remove_file(&path).unwrap();
        assert!(!first.still_ours());
        let second = DirectoryLock::acquire(&path, 0).unwrap();
        assert!(second.still_ours() && !first.still_ours());
    }

    #[test]
    fn a_note_of_garbage_is_no_obstacle() {
        let holder = Holder::parse("pid=-3\nsince_ms=99999999999999999999\nhost=a\u{1b}[31m\nrest");
        assert_eq!(holder, Holder { pid: None, since_ms: None, host: Some("a[31m".to_owned()) });
    }
}
