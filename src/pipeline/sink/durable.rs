//! The durable steps of an output, each with its path in the error: create, write, sync, rename, sync the directory.
//!
//! The only file of the sink that changes the disk. It knows no protocol; the callers note where they may be cut.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use super::error::SinkError;

/// Creates a file that must not exist.
pub(in crate::pipeline) fn create(path: &Path) -> Result<File, SinkError> {
    step("create", path)?;
    let options = OpenOptions::new().write(true).create_new(true).to_owned();
    options.open(path).map_err(SinkError::io("create output file", path))
}

/// Appends `bytes` to an open file.
pub(in crate::pipeline) fn write(file: &mut File, path: &Path, bytes: &[u8]) -> Result<(), SinkError> {
    step("write", path)?;
    file.write_all(bytes).map_err(SinkError::io("write output", path))
}

/// Forces the contents of an open file to the disk. After an error the file is lost: the kernel forgets what failed.
pub(in crate::pipeline) fn sync_file(file: &File, path: &Path) -> Result<(), SinkError> {
    step("sync", path)?;
    file.sync_all().map_err(SinkError::io("sync output file", path))
}

/// Forces the names in a directory to the disk.
pub(in crate::pipeline) fn sync_directory(path: &Path) -> Result<(), SinkError> {
    step("sync dir", path)?;
    let synced = File::open(path).and_then(|directory| directory.sync_all());
    synced.map_err(SinkError::io("sync directory", path))
}

/// Gives a synced file its new name. The names last once their directory is synced.
#[expect(
    clippy::disallowed_methods,
    reason = "the sink's one rename; callers sync the file before, the directory after"
)]
pub(in crate::pipeline) fn rename(from: &Path, to: &Path) -> Result<(), SinkError> {
    step("rename to", to)?;
    fs::rename(from, to).map_err(SinkError::io("rename output file", to))
}

/// Removes a file; it is fine when there is none.
pub(super) fn remove(path: &Path) -> Result<(), SinkError> {
    step("remove", path)?;
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(SinkError::io("remove output file", path)(error))
        }
        _ => Ok(()),
    }
}

/// Makes `path` hold `bytes`, or what it held before, through `scratch` in the same file system.
pub(super) fn replace(path: &Path, scratch: &Path, bytes: &[u8]) -> Result<(), SinkError> {
    remove(scratch)?;
    let mut file = create(scratch)?;
    write(&mut file, scratch, bytes)?;
    sync_file(&file, scratch)?;
    rename(scratch, path)?;
    path.parent().map_or(Ok(()), sync_directory)
}

/// Creates a directory and its missing parents, each made to last in its own parent.
pub(in crate::pipeline) fn create_directory(path: &Path) -> Result<(), SinkError> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    create_directory(parent)?;
    step("mkdir", path)?;
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists || !path.is_dir() => {
            Err(SinkError::io("create output directory", path)(error))
        }
        _ => sync_directory(parent),
    }
}

/// Passes a named fault point.
pub(super) fn fault(name: &'static str, path: &Path) -> Result<(), SinkError> {
    crate::fault::point(name).map_err(SinkError::io("go on", path))
}

#[cfg(not(test))]
#[inline(always)]
fn step(_name: &'static str, _path: &Path) -> Result<(), SinkError> {
    Ok(())
}

#[cfg(test)]
use script::step;

/// Lets a test see every step of its thread, and cut the run before any of them.
#[cfg(test)]
pub(super) mod script {
    use std::cell::RefCell;
    use std::io;
    use std::path::Path;

    use super::SinkError;

    #[derive(Default)]
    struct Script {
        taken: Vec<String>,
        left: Option<usize>,
    }

    thread_local! {
        static SCRIPT: RefCell<Script> = RefCell::default();
    }

    /// From here on, `steps` steps succeed and all later ones fail; `None` lets all pass.
    pub(in super::super) fn cut_after(steps: Option<usize>) {
        SCRIPT.with_borrow_mut(|script| script.left = steps);
    }

    /// The steps taken since the last call.
    pub(in super::super) fn taken() -> Vec<String> {
        SCRIPT.with_borrow_mut(|script| std::mem::take(&mut script.taken))
    }

    pub(super) fn step(name: &'static str, path: &Path) -> Result<(), SinkError> {
        SCRIPT.with_borrow_mut(|script| {
            if script.left == Some(0) {
                return Err(SinkError::io("go on", path)(io::Error::other("cut by the test")));
            }
            script.left = script.left.map(|left| left - 1);
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            script.taken.push(format!("{name} {file}"));
            Ok(())
        })
    }
}
