//! Conditions held against whole columns, where no row can be refused by them.

use super::cells::{Cells, Values};
use super::plain::Row;
use crate::pipeline::config::{Bound, Filter, Scalar};
use crate::pipeline::source::row::compare;

/// Marks the rows that a filter passes over, and those that it cannot tell. Filters are looked at in their order: what
/// an earlier one has left in doubt stays that.
pub(super) fn look(filter: &Filter, cells: &Cells<'_>, found: &mut [Row]) {
    let mut nulls = cells.nulls.iter().map(|&row| row as usize).peekable();
    for (row, found) in found.iter_mut().enumerate() {
        let is_null = nulls.next_if_eq(&row).is_some();
        if *found != Row::Plain {
            continue;
        }
        // A null meets no condition.
        *found = match if is_null { Some(false) } else { passes(filter, &cells.values, row) } {
            Some(true) => Row::Plain,
            Some(false) => Row::Filtered,
            None => Row::Doubtful,
        };
    }
}

/// Whether a value that is not null meets the condition; `None` where that takes a closer look.
fn passes(filter: &Filter, values: &Values<'_>, row: usize) -> Option<bool> {
    if filter.min.is_some() || filter.max.is_some() {
        let number = number(values, row)?;
        let below = filter.min.is_some_and(|min| compare(number, min).is_lt());
        let above = filter.max.is_some_and(|max| compare(number, max).is_gt());
        if below || above {
            return Some(false);
        }
    }
    match (&filter.equals, values) {
        (None, _) => Some(true),
        (Some(Scalar::Text(wanted)), Values::Texts(texts)) => Some(texts.get(row) == wanted),
        (Some(Scalar::Bool(wanted)), Values::Bools(values)) => Some(values[row] == *wanted),
        (Some(Scalar::Number(wanted)), _) => Some(compare(number(values, row)?, *wanted).is_eq()),
        _ => None,
    }
}

fn number(values: &Values<'_>, row: usize) -> Option<Bound> {
    match values {
        Values::Ints { values, unsigned } => {
            Some(values[row]).filter(|value| !unsigned || *value >= 0).map(Bound::Int)
        }
        // One that is written as an integer is compared as such, so the short text of a whole float has a point.
        Values::Floats(values) => Some(values[row]).filter(|value| value.is_finite()).map(Bound::Float),
        _ => None,
    }
}
