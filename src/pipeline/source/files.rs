//! Which files a source consists of: patterns matched, names given, order fixed.
//!
//! Looks at names only; no file is opened here.

use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::pipeline::config::SourceConfig;

/// Name of standard input as a partition.
pub const STDIN_NAME: &str = "-";
/// More files than this in one source are refused: their positions are part of every checkpoint.
const FILES_MAX: usize = 100_000;

/// A file of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    /// The partition's name: the path, relative to the pipeline file where it is below its directory.
    pub(super) name: String,
    /// `None` for standard input.
    pub(super) path: Option<PathBuf>,
}

/// All files that the patterns match, in order of name.
pub(super) fn list(config: &SourceConfig) -> Result<Vec<Named>> {
    let mut files = Vec::new();
    for pattern in &config.patterns {
        if pattern.as_os_str() == STDIN_NAME {
            files.push(Named { name: STDIN_NAME.to_owned(), path: None });
            continue;
        }
        let before = files.len();
        for path in matches(config, pattern)? {
            files.push(Named { name: name_of(config, &path)?, path: Some(path) });
        }
        if files.len() == before {
            let message = format!("{}: no file matches: path={}", config.declared_at, pattern.display());
            let remedy = "check the path; relative paths start at the pipeline file's directory";
            return Err(Error::new(ErrorKind::Unavailable, message).with_remedy(remedy));
        }
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    files.dedup();
    if files.len() > FILES_MAX {
        let message = format!(
            "{}: too many files in one source: files={} files_max={FILES_MAX}",
            config.declared_at,
            files.len()
        );
        return Err(Error::new(ErrorKind::Invalid, message).with_remedy("join files, or split the pipeline"));
    }
    Ok(files)
}

/// The files that one pattern matches. A directory that is named as such is refused, one that a wildcard happens to
/// match is passed over.
fn matches(config: &SourceConfig, pattern: &Path) -> Result<Vec<PathBuf>> {
    if pattern.is_dir() {
        let message = format!("{}: this is a directory: path={}", config.declared_at, pattern.display());
        let remedy = format!("name the files in it, such as \"{}\"", pattern.join("*.jsonl").display());
        return Err(Error::new(ErrorKind::Invalid, message).with_remedy(remedy));
    }
    if pattern.is_file() {
        return Ok(vec![pattern.to_owned()]);
    }
    let text = pattern.to_str().unwrap_or_default();
    let paths = glob::glob(text).map_err(|error| {
        let message = format!("{}: not a pattern: path={text}", config.declared_at);
        Error::new(ErrorKind::Invalid, message).with_remedy("correct the pattern").with_source(error)
    })?;
    let mut found = Vec::new();
    for path in paths {
        let path = path.map_err(|error| {
            let message = format!("{}: cannot list: path={}", config.declared_at, error.path().display());
            let remedy = "make the directory readable for the user that runs the pipeline";
            Error::new(ErrorKind::Unavailable, message)
                .with_remedy(remedy)
                .with_source(std::io::Error::from(error))
        })?;
        if path.is_file() {
            found.push(path);
        } else if !path.is_dir() {
            return Err(not_a_file(config, &path));
        }
    }
    Ok(found)
}

/// What is neither a file nor a directory: opening a pipe, say, would wait for a writer that may never come.
fn not_a_file(config: &SourceConfig, path: &Path) -> Error {
    let (why, remedy) = match path.exists() {
        true => ("not a regular file", "move it away, or read a stream as standard input: path = \"-\""),
        false => ("a link that leads nowhere", "remove the link, or put its target back"),
    };
    let message = format!("{}: {why}: path={}", config.declared_at, path.display());
    Error::new(ErrorKind::Invalid, message).with_remedy(remedy)
}

fn name_of(config: &SourceConfig, path: &Path) -> Result<String> {
    let short = path.strip_prefix(&config.base).unwrap_or(path);
    short.to_str().map(str::to_owned).ok_or_else(|| {
        let message = format!("{}: a file name is not UTF-8: path={}", config.declared_at, path.display());
        Error::new(ErrorKind::Invalid, message).with_remedy("rename the file")
    })
}
