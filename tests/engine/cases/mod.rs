//! Cases with known answers: read from files, given to anything that can be driven, compared with what it shows.

mod compare;
mod golden;
mod parse;
mod scenario;

pub(crate) use compare::{Difference, compare, compare_unplaced, first_difference};
pub(crate) use golden::{Golden, goldens};
pub(crate) use scenario::{Scenario, scenarios};

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use crate::oracle::{Observed, Op, Settings};

/// A folder of the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// True when the long versions of tests are wanted.
pub(crate) fn deep() -> bool {
    std::env::var_os("FLOODMARK_DEEP").is_some()
}

/// One conformance case.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) settings: Settings,
    pub(crate) ops: Vec<Op>,
    /// The name of the refusal where settings must be refused.
    pub(crate) expect: Result<Observed, String>,
}

/// Every case of the conformance set, by name.
pub(crate) fn conformance() -> Vec<Case> {
    let case = |(name, json): (String, Json)| {
        let (settings, ops) = parse::run(&json);
        let expect = match json["expect"]["error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(parse::observed(&json["expect"])),
        };
        let title = json["title"].as_str().unwrap().to_owned();
        Case { name, title, settings, ops, expect }
    };
    json_files(&repository("tests/data/conformance")).into_iter().map(case).collect()
}

/// The JSON files of a folder with their names, in order.
fn json_files(folder: &Path) -> Vec<(String, Json)> {
    let entries =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("cannot read {}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let read = |path: &PathBuf| {
        let json = serde_json::from_slice(&fs::read(path).unwrap())
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (path.file_stem().unwrap().to_string_lossy().into_owned(), json)
    };
    files.iter().map(read).collect()
}

/// Panics with every failure unless there is none.
pub(crate) fn report(what: &str, total: usize, failures: &[String]) {
    assert!(failures.is_empty(), "{} of {total} {what} fail\n{}", failures.len(), failures.join("\n"));
}
