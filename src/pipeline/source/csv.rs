//! Rows of comma-separated values (RFC 4180): quoted fields may hold delimiters, quotes (doubled) and line ends.
//!
//! A quote inside an unquoted field is an ordinary character. Lines end with LF or CRLF. A damaged row is left at
//! its line end, so that the rows after it are read.

use super::reject::{Refusal, RejectReason, shown};
use super::token::{Kind, Token};

/// What was found at the start of a row.
#[derive(Debug)]
pub(super) enum Row {
    /// A row: where its text ends (without the line end), and where the next row starts.
    Whole { end: usize, next: usize },
    /// Something that is not a row, with the same two places.
    Broken { refusal: Refusal, end: usize, next: usize },
    /// The text stops before the row does.
    Incomplete,
}

/// The columns of a file: how many there are, and which of them are needed.
#[derive(Clone, Debug, Default)]
pub(super) struct Columns {
    /// For each column, the slot of the field it holds.
    pub(super) slots: Vec<Option<usize>>,
}

/// Reads the row at `start`. `complete` says that no text follows, so that a last row needs no line end.
pub(super) fn scan_row(
    text: &[u8],
    start: usize,
    complete: bool,
    delimiter: u8,
    columns: &Columns,
    tokens: &mut [Token],
) -> Row {
    tokens.fill(Token::ABSENT);
    let (mut at, mut column) = (start, 0);
    loop {
        let cell = match scan_cell(text, at, delimiter) {
            Cell::Whole(cell) => cell,
            Cell::Unclosed if !complete => return Row::Incomplete,
            Cell::Unclosed => {
                let detail = format!("the quote that opens column {} is never closed", column + 1);
                return broken_at_line_end(text, start, start, complete, detail);
            }
            Cell::Misquoted(place) => {
                // Never of the rows after it: how many of them are here depends on where the block was cut.
                let line = memchr::memchr(b'\n', &text[place..]).map_or(text.len(), |length| place + length);
                let found = shown(&text[place..line.min(place + 12)]);
                let detail =
                    format!("column {} goes on after its closing quote: found `{found}`", column + 1);
                return broken_at_line_end(text, start, place, complete, detail);
            }
        };
        if let Some(Some(slot)) = columns.slots.get(column) {
            tokens[*slot] = cell.token;
        }
        column += 1;
        match text.get(cell.stop) {
            Some(&byte) if byte == delimiter => at = cell.stop + 1,
            Some(_) => return checked(text, cell.stop, cell.stop + 1, start, column, columns),
            None if complete => return checked(text, cell.stop, cell.stop, start, column, columns),
            None => return Row::Incomplete,
        }
    }
}

struct WholeCell {
    token: Token,
    /// Index of the delimiter, the line feed, or the end of the text.
    stop: usize,
}

enum Cell {
    Whole(WholeCell),
    Unclosed,
    Misquoted(usize),
}

fn scan_cell(text: &[u8], at: usize, delimiter: u8) -> Cell {
    if text.get(at) == Some(&b'"') {
        return scan_quoted(text, at + 1, delimiter);
    }
    let stop = memchr::memchr2(delimiter, b'\n', &text[at..]).map_or(text.len(), |length| at + length);
    // A carriage return belongs to the line end, also to that of a last line cut short.
    let ends_line = text.get(stop) != Some(&delimiter);
    let end = if ends_line && text[at..stop].ends_with(b"\r") { stop - 1 } else { stop };
    Cell::Whole(WholeCell { token: Token::new(Kind::Cell, at, end), stop })
}

fn scan_quoted(text: &[u8], start: usize, delimiter: u8) -> Cell {
    let (mut at, mut kind) = (start, Kind::Cell);
    loop {
        let Some(length) = memchr::memchr(b'"', &text[at..]) else { return Cell::Unclosed };
        let quote = at + length;
        if text.get(quote + 1) == Some(&b'"') {
            (at, kind) = (quote + 2, Kind::QuotedCell);
            continue;
        }
        let token = Token::new(kind, start, quote);
        let after = &text[quote + 1..];
        let stop = match after {
            [] => quote + 1,
            [byte, ..] if *byte == delimiter || *byte == b'\n' => quote + 1,
            [b'\r'] | [b'\r', b'\n', ..] => quote + 2,
            _ => return Cell::Misquoted(quote + 1),
        };
        return Cell::Whole(WholeCell { token, stop });
    }
}

/// A row that ended at `stop`, if it has as many columns as it should.
fn checked(text: &[u8], stop: usize, next: usize, start: usize, found: usize, columns: &Columns) -> Row {
    let end = if text[start..stop].ends_with(b"\r") { stop - 1 } else { stop };
    let wanted = columns.slots.len();
    if found == wanted {
        return Row::Whole { end, next };
    }
    let detail = format!("the row has {found} columns where {wanted} are expected");
    Row::Broken { refusal: Refusal::record(RejectReason::BrokenRecord, detail), end, next }
}

fn broken_at_line_end(text: &[u8], start: usize, from: usize, complete: bool, detail: String) -> Row {
    let (stop, next) = match memchr::memchr(b'\n', &text[from..]) {
        Some(length) => (from + length, from + length + 1),
        None if complete => (text.len(), text.len()),
        None => return Row::Incomplete,
    };
    let end = if text[start..stop].ends_with(b"\r") { stop - 1 } else { stop };
    Row::Broken { refusal: Refusal::record(RejectReason::BrokenRecord, detail), end, next }
}

/// All cells of the row at the start of `text`, as text: for header lines. `None` when it is no whole row.
pub(super) fn cells(text: &[u8], delimiter: u8) -> Option<(Vec<String>, usize)> {
    let (mut at, mut cells, mut scratch) = (0, Vec::new(), Vec::new());
    loop {
        let Cell::Whole(cell) = scan_cell(text, at, delimiter) else { return None };
        let bytes = cell.token.unescaped(text, &mut scratch)?;
        cells.push(String::from_utf8(bytes.to_vec()).ok()?);
        match text.get(cell.stop) {
            Some(&byte) if byte == delimiter => at = cell.stop + 1,
            Some(_) => return Some((cells, cell.stop + 1)),
            None => return Some((cells, cell.stop)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rows(text: &str, columns: usize) -> Vec<Result<Vec<String>, String>> {
        let columns = Columns { slots: (0..columns).map(Some).collect() };
        let mut tokens = vec![Token::ABSENT; columns.slots.len()];
        let (mut at, mut out, mut scratch) = (0, Vec::new(), Vec::new());
        while at < text.len() {
            match scan_row(text.as_bytes(), at, true, b',', &columns, &mut tokens) {
                Row::Whole { next, .. } => {
                    let cell =
                        |token: &Token| token.unescaped(text.as_bytes(), &mut scratch).unwrap().to_vec();
                    out.push(Ok(tokens
                        .iter()
                        .map(cell)
                        .map(|cell| String::from_utf8(cell).unwrap())
                        .collect()));
                    at = next;
                }
                Row::Broken { refusal, next, .. } => {
                    out.push(Err(refusal.detail));
                    at = next;
                }
                Row::Incomplete => panic!("incomplete at {at}"),
            }
        }
        out
    }

    fn row(cells: &[&str]) -> Result<Vec<String>, String> {
        Ok(cells.iter().map(|&cell| cell.to_owned()).collect())
    }

    #[test]
    fn quotes_hold_delimiters_line_ends_and_quotes() {
        let text = "a,\"b,\r\n\"\"c\"\"\"\r\n\"\",x\"y\n1,2";
        assert_eq!(rows(text, 2), [row(&["a", "b,\r\n\"c\""]), row(&["", "x\"y"]), row(&["1", "2"])]);
    }

    #[test]
    fn damaged_rows_leave_the_following_ones_alone() {
        let found = rows("a\n1,\"2\"x,\"\n3,4\n5,6,7\n8,\"9\n10,11\n", 2);
        assert_eq!(found[0], Err("the row has 1 columns where 2 are expected".to_owned()));
        assert!(found[1].as_ref().unwrap_err().contains("goes on after its closing quote"));
        assert_eq!(found[2], row(&["3", "4"]));
        assert_eq!(found[3], Err("the row has 3 columns where 2 are expected".to_owned()));
        assert_eq!(found[4], Err("the quote that opens column 2 is never closed".to_owned()));
        assert_eq!(found[5], row(&["10", "11"]));
    }

    #[test]
    fn a_row_cut_anywhere_is_incomplete() {
        let text = b"a,\"b\"\"\n\",c\r\n";
        let columns = Columns { slots: vec![None, None, None] };
        for cut in 0..text.len() {
            let row = scan_row(&text[..cut], 0, false, b',', &columns, &mut []);
            assert!(matches!(row, Row::Incomplete), "cut at {cut}: {row:?}");
        }
        assert!(matches!(
            scan_row(text, 0, false, b',', &columns, &mut []),
            Row::Whole { end: 10, next: 12 }
        ));
    }

    proptest! {
        #[test]
        fn rows_written_by_the_csv_crate_are_read_back(
            table in prop::collection::vec(prop::collection::vec("[a-z\",\n\r é]{0,6}", 3), 1..8)
        ) {
            let mut writer = csv::WriterBuilder::new().from_writer(Vec::new());
            for cells in &table {
                writer.write_record(cells).unwrap();
            }
            let text = String::from_utf8(writer.into_inner().unwrap()).unwrap();
            let expected: Vec<_> = table.into_iter().map(Ok).collect();
            prop_assert_eq!(rows(&text, 3), expected);
        }

        #[test]
        fn arbitrary_text_is_passed_over_to_its_end(text in "[a,\"\n\r]{0,40}") {
            let _ = rows(&text, 2);
        }
    }
}
