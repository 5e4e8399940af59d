//! Figures, and the file that keeps them: one JSON object a line, one line a figure, appended and never rewritten.
//!
//! Reads what itself and the guard write: flat objects of numbers and of strings without escapes.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;

use crate::step::Failure;

/// One figure of one run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) unit: String,
    pub(crate) median: f64,
    /// The run that other work on the machine disturbed least: what is compared.
    pub(crate) least: f64,
    pub(crate) runs: u64,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) hash: String,
    /// With changes that were not committed.
    pub(crate) dirty: bool,
}

impl Commit {
    /// True for this very commit.
    pub(crate) fn is(&self, hash: &str) -> bool {
        !self.dirty && self.hash == hash
    }

    pub(crate) fn shown(&self) -> String {
        format!("{}{}", short(&self.hash), if self.dirty { " with changes" } else { "" })
    }
}

/// The beginning of a hash, as people know commits.
pub(crate) fn short(hash: &str) -> &str {
    hash.get(..10).unwrap_or(hash)
}

impl Figure {
    /// A figure as the guard prints it.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        Some(Self {
            name: field(line, "name")?.to_owned(),
            unit: field(line, "unit")?.to_owned(),
            median: field(line, "median")?.parse().ok()?,
            least: field(line, "least")?.parse().ok()?,
            runs: field(line, "runs")?.parse().ok()?,
        })
    }

    fn line(&self, commit: &Commit) -> String {
        let Self { name, unit, median, least, runs } = self;
        let Commit { hash, dirty } = commit;
        format!(
            "{{\"commit\":\"{hash}\",\"dirty\":{dirty},\"name\":\"{name}\",\"unit\":\"{unit}\",\"median\":{median:.3},\
             \"least\":{least:.3},\"runs\":{runs}}}\n"
        )
    }
}

/// The text of a field of a flat object: of a string without its quotes.
pub(super) fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, value) = line.split_once(&format!("\"{name}\":"))?;
    match value.strip_prefix('"') {
        Some(text) => text.split_once('"').map(|(text, _)| text).filter(|text| !text.contains('\\')),
        None => value.split([',', '}']).next().map(str::trim),
    }
}

/// The best of every figure, in order of first appearance.
pub(crate) fn best<'a>(figures: impl Iterator<Item = &'a Figure>) -> Vec<Figure> {
    let mut best: Vec<Figure> = Vec::new();
    for figure in figures {
        match best.iter_mut().find(|known| known.name == figure.name && known.unit == figure.unit) {
            Some(known) if known.least <= figure.least => {}
            Some(known) => known.clone_from(figure),
            None => best.push(figure.clone()),
        }
    }
    best
}

/// Adds figures of a commit to the file, which is made if need be.
pub(crate) fn append(file: &Path, commit: &Commit, figures: &[Figure]) -> Result<(), Failure> {
    let text: String = figures.iter().map(|figure| figure.line(commit)).collect();
    let made = file.parent().map_or(Ok(()), fs::create_dir_all);
    made.and_then(|()| OpenOptions::new().create(true).append(true).open(file))
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| failure(file, "cannot be written", &error))
}

/// Everything in the file; nothing when there is none yet.
pub(crate) fn read(file: &Path) -> Result<Vec<(Commit, Figure)>, Failure> {
    let text = match fs::read_to_string(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(|error| failure(file, "cannot be read", &error))?,
    };
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(index, line)| {
            parse(line).ok_or_else(|| failure(file, &format!("line {} is no figure", index + 1), &line))
        })
        .collect()
}

fn parse(line: &str) -> Option<(Commit, Figure)> {
    let commit = Commit { hash: field(line, "commit")?.to_owned(), dirty: field(line, "dirty")? == "true" };
    Some((commit, Figure::parse(line)?))
}

fn failure(file: &Path, what: &str, why: &dyn std::fmt::Display) -> Failure {
    Failure::Step("figures".to_owned(), format!("{} {what}: {why}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(name: &str, least: f64) -> Figure {
        Figure { name: name.to_owned(), unit: "ns/row".to_owned(), median: 9.5, least, runs: 5 }
    }

    #[test]
    fn what_was_appended_is_read_again_and_the_best_of_it_counts() {
        let file = std::env::temp_dir().join(format!("floodmark-figures-{}/f.jsonl", std::process::id()));
        assert_eq!(read(&file).expect("no file yet"), []);
        let commit = Commit { hash: "abc".to_owned(), dirty: false };
        let changed = Commit { dirty: true, ..commit.clone() };
        append(&file, &commit, &[figure("fire, all", 7.25), figure("merge", 3.0)]).expect("appended");
        append(&file, &commit, &[figure("fire, all", 6.5)]).expect("appended");
        append(&file, &changed, &[figure("fire, all", 1.0)]).expect("appended");
        let known = read(&file).expect("figures");
        assert_eq!((known.len(), &known[0]), (4, &(commit, figure("fire, all", 7.25))));
        let of = best(known.iter().filter(|(commit, _)| commit.is("abc")).map(|(_, figure)| figure));
        assert_eq!(of, [figure("fire, all", 6.5), figure("merge", 3.0)]);
        let mut broken = OpenOptions::new().append(true).open(&file).expect("there");
        broken.write_all(b"{\"commit\":\"abc\"}\n").expect("written");
        assert!(read(&file).expect_err("no figure").to_string().contains("line 5"));
        fs::remove_dir_all(file.parent().expect("a directory")).expect("removed");
    }

    #[test]
    fn lines_of_the_guard_are_read() {
        let line = r#"{"name":"evict","unit":"us/call","median":12.500,"least":11.000,"runs":5}"#;
        let figure = Figure::parse(line).expect("a figure");
        assert_eq!((figure.name.as_str(), figure.unit.as_str(), figure.least), ("evict", "us/call", 11.0));
        assert_eq!(Figure::parse("figure  unit  median"), None);
        assert_eq!(field(r#"{"executable":"/a\\b"}"#, "executable"), None);
    }
}
