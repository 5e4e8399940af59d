//! Tables for people: columns padded to their widest cell, numbers to the right. Knows nothing of what is in them.

use std::fmt::Write as _;

/// How the cells of a column stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// A table under construction.
#[derive(Debug)]
pub(crate) struct Table {
    aligns: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column headings. A heading that starts with `>` makes a column of numbers.
    pub(crate) fn new(headings: &[&str]) -> Self {
        let align = |heading: &&str| if heading.starts_with('>') { Align::Right } else { Align::Left };
        let names = headings.iter().map(|heading| heading.trim_start_matches('>').to_owned()).collect();
        Self { aligns: headings.iter().map(align).collect(), rows: vec![names] }
    }

    /// Adds a row; cells beyond the headings are dropped.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.into_iter().take(self.aligns.len()).map(|cell| printable(&cell)).collect());
    }

    /// The table as lines, each with `indent` spaces before it.
    pub(crate) fn render(&self, indent: usize) -> String {
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.aligns.len()).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = " ".repeat(indent);
            for (column, cell) in row.iter().enumerate() {
                let gap = if column == 0 { "" } else { "  " };
                let width = widths[column];
                // Writing to a string does not fail.
                let _ = match self.aligns[column] {
                    Align::Left => write!(line, "{gap}{cell:<width$}"),
                    Align::Right => write!(line, "{gap}{cell:>width$}"),
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Text with control characters escaped: what a stored file says must not move the cursor of whoever reads it.
pub(crate) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// The bounds of a window; all time has none.
pub(crate) fn window(start: &Option<String>, end: &Option<String>) -> String {
    match (start, end) {
        (Some(start), Some(end)) => format!("{start}..{end}"),
        _ => "all time".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_to_the_right_and_control_characters_are_escaped() {
        let mut table = Table::new(&["name", ">rows", "note"]);
        table.row(vec!["a\x1b[2J".to_owned(), "7".to_owned(), String::new()]);
        table.row(vec!["hourly".to_owned(), "1,024".to_owned(), "x".to_owned()]);
        assert_eq!(
            table.render(2),
            "  name         rows  note\n  a\\u{1b}[2J      7\n  hourly      1,024  x\n"
        );
    }
}
