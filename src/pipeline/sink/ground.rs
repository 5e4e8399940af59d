//! Whether an output directory could be used at all, before anything is touched: that it is there or can be made, and
//! that no other process holds it. It changes nothing, and knows nothing of what is in it.

use std::fs::{self, File};
use std::io;
use std::path::{Component, Path};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::error::SinkError;
use super::names::{LOCK, STAGING};
use super::publisher::{LOCK_ATTEMPTS, LOCK_PAUSE};

/// As long as the name of a file in it may become: a prefix, two numbers and an extension.
const LONGEST_NAME: &str = "01234567-01234567890123456789-01234567890123456789.parquet";

/// Refuses a directory that can neither be used nor made.
///
/// # Errors
/// [`SinkError::Io`] with what making it would meet.
pub(in crate::pipeline) fn refuse_unusable(directory: &Path) -> Result<(), SinkError> {
    let staging = directory.join(STAGING);
    if let Err(error) = fs::symlink_metadata(staging.join(LONGEST_NAME))
        && Errno::from_io_error(&error) == Some(Errno::NAMETOOLONG)
    {
        return Err(SinkError::io("create output directory", directory)(error));
    }
    for place in staging.ancestors() {
        let place = if place.as_os_str().is_empty() { Path::new(".") } else { place };
        let failed = SinkError::io("create output directory", place);
        match fs::metadata(place) {
            Ok(found) if found.is_dir() => return refuse_long_names(place, &staging),
            Ok(_) => return Err(failed(Errno::NOTDIR.into())),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            Err(error) if fs::symlink_metadata(place).is_ok() => {
                let nowhere = format!("a link that leads nowhere ({error})");
                return Err(failed(io::Error::new(io::ErrorKind::NotADirectory, nowhere)));
            }
            // To be made, in what is above it.
            Err(_) => {}
        }
    }
    Ok(())
}

/// The parts of `wanted` below `base`, which are not there yet, have names that the file system of `base` takes.
fn refuse_long_names(base: &Path, wanted: &Path) -> Result<(), SinkError> {
    let below = wanted.strip_prefix(base).unwrap_or(wanted);
    for name in below.components().filter(|part| matches!(part, Component::Normal(_))) {
        match fs::symlink_metadata(base.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(SinkError::io("create output directory", wanted.parent().unwrap_or(wanted))(
                    error,
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Refuses a directory that another process holds, after the moment that one which is just ending needs.
///
/// # Errors
/// [`SinkError::Locked`]; [`SinkError::Io`].
pub(in crate::pipeline) fn refuse_held(directory: &Path) -> Result<(), SinkError> {
    for attempt in 0..=LOCK_ATTEMPTS {
        if !is_held(directory)? {
            return Ok(());
        }
        if attempt < LOCK_ATTEMPTS {
            std::thread::sleep(LOCK_PAUSE);
        }
    }
    Err(SinkError::Locked { path: directory.to_owned() })
}

/// True while another process holds the directory.
fn is_held(directory: &Path) -> Result<bool, SinkError> {
    let path = directory.join(STAGING).join(LOCK);
    let file = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        opened => opened.map_err(SinkError::io("open lock file", &path))?,
    };
    // Shared, so that two who only look do not see each other; let go at once.
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(false),
        Err(Errno::WOULDBLOCK) => Ok(true),
        Err(errno) => Err(SinkError::io("look at the lock of an output directory", path)(errno.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_made_is_refused_and_nothing_is_made() {
        let dir = tempfile::tempdir().unwrap();
        refuse_unusable(&dir.path().join("to/be/made")).unwrap();
        refuse_unusable(dir.path()).unwrap();
        File::create(dir.path().join("file")).unwrap();
        std::os::unix::fs::symlink("nowhere", dir.path().join("link")).unwrap();
        let long = "x".repeat(300);
        let deep = format!("a/{}", "b/".repeat(2_100));
        for name in ["file", "file/below", "link", "link/below", &long, &format!("a/{long}/b"), &deep] {
            refuse_unusable(&dir.path().join(name)).unwrap_err();
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_directory_that_is_held_is_refused_until_it_is_let_go() {
        let dir = tempfile::tempdir().unwrap();
        refuse_held(dir.path()).unwrap();
        let staging = dir.path().join(STAGING);
        fs::create_dir(&staging).unwrap();
        let held = super::super::publisher::lock(&staging).unwrap();
        assert!(matches!(refuse_held(dir.path()), Err(SinkError::Locked { .. })));
        drop(held);
        refuse_held(dir.path()).unwrap();
    }
}
