//! The directory of corrected results: written under another name, synced, and renamed when it is whole.
//!
//! Cut before the rename, there is no new directory; what is left under the other name is told by the next run.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::applied::{self, Applied};
use super::{Change, Merging};
use crate::error::{Error, ErrorKind, Result};
use crate::pipeline::finished::row::Part;
use crate::pipeline::sink::{durable, part};

/// Bytes gathered before they are written.
const WRITE_BYTES: usize = 256 << 10;

/// Refuses a target that is there: nothing is ever changed in place.
pub(super) fn refuse_existing(to: &Path) -> Result<()> {
    let unfinished = unfinished(to)?;
    if to.symlink_metadata().is_ok() {
        let message = format!("the target exists: path={}", to.display());
        return Err(
            Error::new(ErrorKind::Invalid, message).with_remedy("name a directory that does not exist")
        );
    }
    if unfinished.symlink_metadata().is_ok() {
        let message =
            format!("an earlier run was interrupted, or another is at work: path={}", unfinished.display());
        return Err(Error::new(ErrorKind::Invalid, message).with_remedy("if none is, remove that directory"));
    }
    Ok(())
}

/// Where the directory is written until it is whole.
pub(super) fn unfinished(to: &Path) -> Result<PathBuf> {
    let name = to.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| {
        Error::new(ErrorKind::Invalid, format!("this is no name of a directory: path={}", to.display()))
            .with_remedy("name a directory that does not exist, in one that does")
    })?;
    Ok(to.with_file_name(format!(".{name}.reapply")))
}

/// Writes all parts, corrected, the new rows as a part of their own, and what was applied. Returns the number of rows and
/// what changed.
pub(super) fn write(
    to: &Path,
    results: &[Part],
    merging: &mut Merging<'_>,
    applied: &Applied,
) -> Result<(u64, Vec<Change>)> {
    let unfinished = unfinished(to)?;
    durable::create_directory(&unfinished)?;
    let (mut rows, mut changes) = (0, Vec::new());
    for (index, part) in results.iter().enumerate() {
        let mut file = Written::create(&unfinished.join(&part.name))?;
        part.rows(|number, line, row| {
            rows += 1;
            let corrected = merging.correct((index, number), &row);
            match corrected.map_err(|what| part.wrong(number, &what, "name the results of this window"))? {
                Some((row, change)) => {
                    changes.push((row.identity(), change));
                    file.append(&row.line())
                }
                None => file.append(line),
            }
        })?;
        file.finish()?;
    }
    let next = results.last().map_or(1, |part| part.epoch.saturating_add(1));
    let mut file: Option<Written> = None;
    for (row, change) in merging.added() {
        rows += 1;
        if file.is_none() {
            file = Some(Written::create(&unfinished.join(part(next, "jsonl")))?);
        }
        if let Some(file) = &mut file {
            file.append(&row.line())?;
        }
        changes.push((row.identity(), change));
    }
    file.map_or(Ok(()), Written::finish)?;
    let mut marker = Written::create(&unfinished.join(applied::FILE))?;
    marker.append(&applied.to_bytes()?)?;
    marker.finish()?;
    durable::sync_directory(&unfinished)?;
    durable::rename(&unfinished, to)?;
    durable::sync_directory(to.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new(".")))?;
    changes.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok((rows, changes.into_iter().map(|(_, change)| change).collect()))
}

/// A file on its way to the disk.
struct Written {
    file: File,
    path: PathBuf,
    waiting: Vec<u8>,
}

impl Written {
    fn create(path: &Path) -> Result<Self> {
        Ok(Self { file: durable::create(path)?, path: path.to_owned(), waiting: Vec::new() })
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.waiting.extend_from_slice(bytes);
        if self.waiting.len() >= WRITE_BYTES {
            durable::write(&mut self.file, &self.path, &self.waiting)?;
            self.waiting.clear();
        }
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        durable::write(&mut self.file, &self.path, &self.waiting)?;
        Ok(durable::sync_file(&self.file, &self.path)?)
    }
}
