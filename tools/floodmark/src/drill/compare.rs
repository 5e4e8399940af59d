//! Outputs of two runs side by side: first byte by byte, and where these differ row by row, as collections in which a row
//! may come several times. Knows files and lines, not what is in them.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use floodmark::error::Error;
use serde::Serialize;

use super::scratch::failed;

/// Differing rows that are shown.
const SHOWN_MAX: usize = 3;
/// The part that holds the header of CSV.
const CSV_HEADER: &str = "part-0000000000.csv";
/// Bytes of a row that are shown.
const SHOWN_BYTES_MAX: usize = 400;

/// How one output of an interrupted run differs from the one of the uninterrupted run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Difference {
    /// The output.
    pub(super) output: String,
    /// Rows that are missing.
    pub(super) lost: u64,
    /// Rows that came more often than they should.
    pub(super) doubled: u64,
    /// Rows that the uninterrupted run does not have at all.
    pub(super) strange: u64,
    /// The first of these.
    pub(super) shown: Vec<Shown>,
}

/// A row that is missing, too often there, or strange.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Shown {
    /// `lost`, `doubled` or `strange`.
    pub(super) what: &'static str,
    pub(super) row: String,
}

impl Difference {
    /// True when every row is there as often as it should be, in another order.
    pub(super) fn is_order_alone(&self) -> bool {
        (self.lost, self.doubled, self.strange) == (0, 0, 0)
    }
}

/// The parts of an output, in the order in which they are read. None where nothing was written.
fn parts(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| failed("read", directory, error))?,
    };
    let mut parts = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| failed("read", directory, error))?;
        if entry.file_name().to_string_lossy().starts_with("part-") {
            parts.push(entry.path());
        }
    }
    parts.sort();
    Ok(parts)
}

/// All parts of an output, one after the other.
fn open(directory: &Path) -> Result<Box<dyn BufRead>, Error> {
    let mut all: Box<dyn Read> = Box::new(io::empty());
    for part in parts(directory)? {
        let file = File::open(&part).map_err(|error| failed("read", &part, error))?;
        all = Box::new(all.chain(file));
    }
    Ok(Box::new(BufReader::with_capacity(1 << 16, all)))
}

/// Rows of an output, without the header of CSV, which is a part of its own.
///
/// # Errors
/// `Unavailable` when it cannot be read.
pub(super) fn rows(directory: &Path) -> Result<u64, Error> {
    let has_header = directory.join(CSV_HEADER).is_file();
    let mut rows = 0_u64;
    each_row(directory, |_| rows += 1)?;
    Ok(if has_header { rows.saturating_sub(1) } else { rows })
}

/// Compares the output called `output` in the directory `found` with the one in `expected`. None when they are the same.
///
/// # Errors
/// `Unavailable` when one cannot be read.
pub(super) fn compare(output: &str, expected: &Path, found: &Path) -> Result<Option<Difference>, Error> {
    if same_bytes(expected, found)? {
        return Ok(None);
    }
    let mut counts: HashMap<u64, Count> = HashMap::new();
    each_row(expected, |row| counts.entry(hash(row)).or_default().expected += 1)?;
    each_row(found, |row| counts.entry(hash(row)).or_default().found += 1)?;
    let mut difference = Difference { output: output.to_owned(), ..Difference::default() };
    for count in counts.values() {
        difference.lost += count.lost();
        difference.doubled += count.doubled();
        difference.strange += count.strange();
    }
    let shown = &mut difference.shown;
    show(expected, &mut counts, shown, |count| (count.lost() > 0).then_some("lost"))?;
    show(found, &mut counts, shown, |count| match (count.doubled(), count.strange()) {
        (0, 0) => None,
        (0, _) => Some("strange"),
        _ => Some("doubled"),
    })?;
    Ok(Some(difference))
}

/// How often a row comes.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    expected: u64,
    found: u64,
}

impl Count {
    fn lost(&self) -> u64 {
        self.expected.saturating_sub(self.found)
    }

    fn doubled(&self) -> u64 {
        if self.expected == 0 { 0 } else { self.found.saturating_sub(self.expected) }
    }

    fn strange(&self) -> u64 {
        if self.expected == 0 { self.found } else { 0 }
    }
}

/// Adds rows of `directory` that are to be shown, each once, while there is room.
fn show(
    directory: &Path,
    counts: &mut HashMap<u64, Count>,
    shown: &mut Vec<Shown>,
    what: impl Fn(&Count) -> Option<&'static str>,
) -> Result<(), Error> {
    each_row(directory, |row| {
        if shown.len() < SHOWN_MAX
            && let Some(count) = counts.get_mut(&hash(row))
            && let Some(what) = what(count)
        {
            *count = Count::default();
            let row = &row[..row.len().min(SHOWN_BYTES_MAX)];
            shown.push(Shown { what, row: String::from_utf8_lossy(row).trim_end().to_owned() });
        }
    })
}

fn hash(row: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    row.hash(&mut hasher);
    hasher.finish()
}

fn each_row(directory: &Path, mut row: impl FnMut(&[u8])) -> Result<(), Error> {
    let mut reader = open(directory)?;
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).map_err(|error| failed("read", directory, error))? > 0 {
        row(&line);
        line.clear();
    }
    Ok(())
}

fn same_bytes(left: &Path, right: &Path) -> Result<bool, Error> {
    let (mut a, mut b) = (open(left)?, open(right)?);
    loop {
        let block_a = a.fill_buf().map_err(|error| failed("read", left, error))?;
        let block_b = b.fill_buf().map_err(|error| failed("read", right, error))?;
        let length = block_a.len().min(block_b.len());
        if length == 0 {
            return Ok(block_a.len() == block_b.len());
        }
        if block_a[..length] != block_b[..length] {
            return Ok(false);
        }
        a.consume(length);
        b.consume(length);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// An output of these parts.
    fn output(parts: &[&str]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        for (number, text) in parts.iter().enumerate() {
            let path = directory.path().join(format!("part-{number:010}.jsonl"));
            File::create(path).and_then(|mut file| file.write_all(text.as_bytes())).expect("written");
        }
        std::fs::create_dir(directory.path().join(".staging")).expect("made");
        directory
    }

    fn differ(expected: &[&str], found: &[&str]) -> Option<Difference> {
        compare("hourly", output(expected).path(), output(found).path()).expect("compared")
    }

    #[test]
    fn where_parts_are_cut_makes_no_difference() {
        assert_eq!(differ(&["a\nb\n", "c\n"], &["a\n", "b\nc\n"]), None);
        assert_eq!(differ(&["", "a\n"], &["a\n", ""]), None);
        assert_eq!(differ(&[], &[]), None);
        assert_eq!(compare("hourly", output(&[]).path(), Path::new("/nowhere")).expect("compared"), None);
        assert_eq!(rows(output(&["a\nb\n", "c\n"]).path()).expect("counted"), 3);
    }

    #[test]
    fn the_header_of_csv_is_no_row() {
        let directory = output(&[]);
        for (name, text) in [(CSV_HEADER, "key,rows\n"), ("part-0000000002.csv", "a,1\nb,2\n")] {
            let file = File::create(directory.path().join(name));
            file.and_then(|mut file| file.write_all(text.as_bytes())).expect("written");
        }
        assert_eq!(rows(directory.path()).expect("counted"), 2);
    }

    #[test]
    fn lost_doubled_and_strange_rows_are_told_apart() {
        let found = differ(&["a\nb\nb\nc\nd\n"], &["a\na\nb\n", "d\nx\n"]).expect("they differ");
        assert_eq!((found.lost, found.doubled, found.strange), (2, 1, 1));
        let shown: Vec<_> = found.shown.iter().map(|shown| (shown.what, shown.row.as_str())).collect();
        assert_eq!(shown, [("lost", "b"), ("lost", "c"), ("doubled", "a")]);
        assert!(!found.is_order_alone());
        // A row that rightly comes twice is not doubled.
        assert_eq!(differ(&["a\na\n"], &["a\n", "a\n"]), None);
        assert_eq!(differ(&["a\n"], &[]).expect("they differ").lost, 1);
    }

    #[test]
    fn another_order_is_a_difference_of_its_own() {
        let found = differ(&["a\nb\n"], &["b\na\n"]).expect("they differ");
        assert!(found.is_order_alone() && found.shown.is_empty(), "{found:?}");
    }
}
