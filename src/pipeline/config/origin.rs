//! Places in a pipeline file, and errors that name them: `flights.toml:12:8: what is wrong`, and the remedy.
//!
//! Knows text and byte ranges, nothing of what a pipeline file contains.

use std::ops::Range;

use crate::error::{Error, ErrorKind};

/// The text of a pipeline file and the name it is shown under.
#[derive(Debug)]
pub(super) struct Origin<'a> {
    /// Name shown in messages, as the user wrote the path.
    pub(super) name: &'a str,
    /// The whole text; byte ranges point into it.
    pub(super) text: &'a str,
}

impl Origin<'_> {
    /// `name:line:column` of a byte offset, counted from one, columns in characters.
    pub(super) fn place(&self, offset: usize) -> String {
        let before = self.text.get(..offset.min(self.text.len())).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1;
        format!("{}:{line}:{column}", self.name)
    }

    /// An error about the text at `span`.
    pub(super) fn error(
        &self,
        span: &Range<usize>,
        message: impl AsRef<str>,
        remedy: impl Into<String>,
    ) -> Error {
        let message = format!("{}: {}", self.place(span.start), message.as_ref());
        Error::new(ErrorKind::Invalid, message).with_remedy(remedy)
    }

    /// An error about the file's TOML syntax.
    pub(super) fn syntax(&self, error: &toml::de::Error) -> Error {
        let span = error.span().unwrap_or(0..0);
        let message = error.message().replace('\n', "; ");
        self.error(&span, format!("this is not valid TOML: {message}"), "correct the syntax at this place")
    }
}

/// The candidate that `word` most likely meant, when one is close enough to be worth naming.
pub(crate) fn closest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (edits(&word.to_lowercase(), &candidate.to_lowercase()), candidate))
        .filter(|&(edits, _)| edits <= allowed)
        .min_by_key(|&(edits, _)| edits)
        .map(|(_, candidate)| candidate)
}

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
fn edits(a: &str, b: &str) -> usize {
    // Names longer than this are not typed by hand; the table stays small.
    const LONGEST: usize = 64;
    let a: Vec<char> = a.chars().take(LONGEST).collect();
    let b: Vec<char> = b.chars().take(LONGEST).collect();
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            if i == 0 || j == 0 {
                rows[i][j] = i + j;
                continue;
            }
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_lines_and_characters_from_one() {
        let origin = Origin { name: "a.toml", text: "x = 1\n# é\nyé = 2\n" };
        assert_eq!(origin.place(0), "a.toml:1:1");
        let equals = origin.text.rfind('=').unwrap();
        assert_eq!(origin.place(equals), "a.toml:3:4");
        assert_eq!(origin.place(10_000), "a.toml:4:1");
    }

    #[test]
    fn near_names_are_suggested_and_far_ones_are_not() {
        assert_eq!(closest("dealy", ["delay", "idle_timeout"]), Some("delay"));
        assert_eq!(closest("Delay", ["delay"]), Some("delay"));
        assert_eq!(closest("interval", ["retain", "bytes"]), None);
        assert_eq!(closest("kez", ["key"]), Some("key"));
    }
}
