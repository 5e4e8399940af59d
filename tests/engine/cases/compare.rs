//! The first difference between what was expected and what was found, in words.

use std::fmt;

use crate::oracle::{Emitted, Num, Observed, Row};

/// Where two runs part.
#[derive(Debug, PartialEq)]
pub(crate) struct Difference {
    part: &'static str,
    expected: String,
    found: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n    expected {}\n    found    {}", self.part, self.expected, self.found)
    }
}

fn differ(part: &'static str, expected: impl fmt::Debug, found: impl fmt::Debug) -> Result<(), Difference> {
    Err(Difference { part, expected: format!("{expected:?}"), found: format!("{found:?}") })
}

/// Compares all parts of two runs. Rows that one operation caused may come in any order among those that were due
/// at the same time; on-time rows have to come by the end of their windows.
pub(crate) fn compare(expected: &Observed, found: &Observed) -> Result<(), Difference> {
    first_difference("emits", &settled(&expected.emits), &settled(&found.emits), same_emit)?;
    // Early firings that a watermark far ahead turns into on-time rows come by their own instants.
    let by_end = pairs_on_time(&expected.emits).all(|pair| !out_of_order(pair[0], pair[1]));
    if by_end && let Some(pair) = pairs_on_time(&found.emits).find(|pair| out_of_order(pair[0], pair[1])) {
        return differ("order of on-time rows", pair[1], pair[0]);
    }
    first_difference("late", &expected.late, &found.late, |a, b| a == b)?;
    first_difference("rejected", &expected.rejected, &found.rejected, |a, b| a == b)?;
    if let (Some(expected), Some(found)) = (&expected.state, &found.state) {
        first_difference("state", expected, found, same_row)?;
    }
    if let (Some(expected), Some(found)) = (&expected.table, &found.table) {
        first_difference("table", expected, found, same_row)?;
    }
    first_difference("watermarks", &expected.watermarks, &found.watermarks, |a, b| a == b)?;
    if expected.final_watermark != found.final_watermark {
        return differ("final watermark", expected.final_watermark, found.final_watermark);
    }
    Ok(())
}

/// Compares two runs of which at least one does not tell which operation caused which result.
pub(crate) fn compare_unplaced(expected: &Observed, found: &Observed) -> Result<(), Difference> {
    let unplaced = |observed: &Observed| {
        let mut observed = Observed { watermarks: Vec::new(), ..observed.clone() };
        observed.emits.iter_mut().for_each(|emit| emit.at = 0);
        observed.emits = settled(&observed.emits);
        observed
    };
    compare(&unplaced(expected), &unplaced(found))
}

/// The first place where two lists differ.
pub(crate) fn first_difference<T: fmt::Debug>(
    part: &'static str,
    expected: &[T],
    found: &[T],
    same: impl Fn(&T, &T) -> bool,
) -> Result<(), Difference> {
    for index in 0..expected.len().max(found.len()) {
        match (expected.get(index), found.get(index)) {
            (Some(expected), Some(found)) if same(expected, found) => {}
            (expected, found) => return differ(part, expected, found),
        }
    }
    Ok(())
}

/// Results with those of one operation sorted, as far as their order is left open.
fn settled(emits: &[Emitted]) -> Vec<Emitted> {
    let mut emits = emits.to_vec();
    emits.sort_by(|a, b| {
        let by = |emit: &Emitted| {
            let row = &emit.row;
            (emit.at, emit.watermark, row.end, row.start, row.key.clone(), emit.pane, row.count)
        };
        by(a).cmp(&by(b))
    });
    emits
}

/// On-time rows, each with the next one.
fn pairs_on_time(emits: &[Emitted]) -> impl Iterator<Item = [&Emitted; 2]> {
    let on_time = |emit: &&Emitted| emit.pane == Some(crate::oracle::Pane::OnTime);
    let rows = emits.iter().filter(on_time);
    rows.clone().zip(rows.skip(1)).map(|(first, second)| [first, second])
}

fn out_of_order(first: &Emitted, second: &Emitted) -> bool {
    let same_cause = first.at == second.at && first.watermark == second.watermark;
    same_cause && first.row.end > second.row.end
}

fn same_emit(expected: &Emitted, found: &Emitted) -> bool {
    let beside = |emit: &Emitted| (emit.at, emit.watermark, emit.pane);
    beside(expected) == beside(found) && same_row(&expected.row, &found.row)
}

fn same_row(expected: &Row, found: &Row) -> bool {
    let identity = |row: &Row| (row.key.clone(), row.start, row.end, row.count, row.count_value);
    let numbers = |row: &Row| [row.sum, row.min, row.max];
    identity(expected) == identity(found)
        && numbers(expected).into_iter().zip(numbers(found)).all(|(expected, found)| close(expected, found))
}

/// Integers are exact, reals within a part in a thousand million.
pub(super) fn close(expected: Option<Num>, found: Option<Num>) -> bool {
    match (expected, found) {
        (Some(Num::Int(expected)), Some(Num::Int(found))) => expected == found,
        (Some(expected), Some(found)) => {
            let (expected, found) = (expected.as_f64(), found.as_f64());
            expected == found
                || expected.is_nan() && found.is_nan()
                || (expected - found).abs() <= 1e-9 * expected.abs().max(1e-9)
        }
        (expected, found) => expected.is_none() && found.is_none(),
    }
}
