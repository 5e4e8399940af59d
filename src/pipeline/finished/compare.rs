//! Two lanes of one aggregation side by side: where the fast one was right, where not, and by how much.
//!
//! Reads published rows only; knows neither pipeline file nor state.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Serialize;

use super::number::{Exact, float};
use super::row::{Identity, JsonText, Row, bound, parts};
use crate::error::{Error, ErrorKind, Result};
use crate::event_time::EventTime;

/// Panes that one lane may have; they are held in memory.
pub const PANES_MAX: usize = 10_000_000;

/// What two lanes have in common, and what not.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Comparison {
    /// Panes with the same values in both lanes.
    pub same: u64,
    /// Panes with different values.
    pub different: u64,
    /// Panes that the exact lane alone has.
    pub only_exact: u64,
    /// Panes that the fast lane alone has, in windows that the exact lane has passed.
    pub only_fast: u64,
    /// Panes of the fast lane in windows that end after all those of the exact lane.
    pub pending: u64,
    /// Windows that both lanes have.
    pub windows_in_common: u64,
    /// Aggregates that were compared, with the number of panes in which they differ.
    pub aggregates: BTreeMap<String, u64>,
    /// Columns that one lane alone has.
    pub not_compared: Vec<String>,
    /// What differs, by window and key, up to the number asked for.
    pub differences: Vec<Difference>,
    /// Differences beyond that number.
    pub left_out: u64,
}

impl Comparison {
    /// True when the lanes say the same of every pane that both have come to.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.different == 0 && self.only_exact == 0 && self.only_fast == 0
    }
}

/// A pane that the lanes do not agree about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Names and values of the key.
    pub key: Vec<(String, JsonText)>,
    /// Start of the window; none for that of all time.
    pub window_start: Option<String>,
    /// End of the window.
    pub window_end: Option<String>,
    /// The aggregates; all of them where a lane has no such pane.
    pub values: Vec<Compared>,
}

/// One aggregate in both lanes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Compared {
    /// Its name.
    pub aggregate: String,
    /// In the exact lane.
    pub exact: Option<JsonText>,
    /// In the fast lane.
    pub fast: Option<JsonText>,
    /// Fast less exact, where both are numbers.
    pub difference: Option<JsonText>,
}

/// One lane: the last row of each pane.
#[derive(Default)]
struct Lane {
    keys: Vec<String>,
    aggregates: Vec<String>,
    panes: BTreeMap<Identity, Vec<JsonText>>,
}

/// Compares the results in the directory `exact` with those in `fast`, and lists up to `listed_max` differences. Numbers
/// may differ by `tolerance`, as a part of the larger one.
///
/// Of several rows of one key and window the last one counts.
///
/// # Errors
/// `Unavailable` when a directory cannot be read; `Invalid` when it does not hold results in JSON lines, when the two are
/// not about the same keys or have no aggregate in common, or when there are more than [`PANES_MAX`] panes.
pub fn compare(exact: &Path, fast: &Path, tolerance: f64, listed_max: usize) -> Result<Comparison> {
    if !(0.0..1.0).contains(&tolerance) {
        let message = format!("this is no tolerance: tolerance={tolerance}");
        return Err(
            Error::new(ErrorKind::Invalid, message).with_remedy("give a part of the value, such as 1e-9")
        );
    }
    let (exact, fast) = (Lane::read(exact)?, Lane::read(fast)?);
    let both_have_rows = !exact.panes.is_empty() && !fast.panes.is_empty();
    if both_have_rows && exact.keys != fast.keys {
        let message = format!(
            "the lanes are not about the same keys: exact={} fast={}",
            exact.keys.join(","),
            fast.keys.join(",")
        );
        return Err(
            Error::new(ErrorKind::Invalid, message).with_remedy("compare windows with the same `key`")
        );
    }
    let names = if exact.panes.is_empty() { &fast.aggregates } else { &exact.aggregates };
    let other = if fast.panes.is_empty() { names } else { &fast.aggregates };
    let common: Vec<String> = names.iter().filter(|name| other.contains(name)).cloned().collect();
    if common.is_empty() && both_have_rows {
        return Err(Error::new(ErrorKind::Invalid, "the lanes have no aggregate in common")
            .with_remedy("give an aggregate the same name in both windows"));
    }
    let not_compared: BTreeSet<&String> =
        names.iter().chain(other).filter(|name| !common.contains(name)).collect();
    let mut comparison = Comparison {
        same: 0,
        different: 0,
        only_exact: 0,
        only_fast: 0,
        pending: 0,
        windows_in_common: windows_in_common(&exact, &fast),
        aggregates: common.iter().map(|name| (name.clone(), 0)).collect(),
        not_compared: not_compared.into_iter().cloned().collect(),
        differences: Vec::new(),
        left_out: 0,
    };
    Pair { exact: &exact, fast: &fast, common: &common, tolerance, listed_max }.run(&mut comparison);
    Ok(comparison)
}

fn windows_in_common(exact: &Lane, fast: &Lane) -> u64 {
    let windows = |lane: &Lane| -> BTreeSet<(EventTime, EventTime)> {
        lane.panes.keys().map(|pane| (pane.end, pane.start)).collect()
    };
    windows(exact).intersection(&windows(fast)).count() as u64
}

impl Lane {
    fn read(directory: &Path) -> Result<Self> {
        let mut lane = Self::default();
        for part in parts(directory)? {
            part.rows(|number, _, row| {
                let (keys, aggregates) = columns(&row);
                if lane.aggregates.is_empty() {
                    (lane.keys, lane.aggregates) = (keys, aggregates);
                } else if lane.keys != keys || lane.aggregates != aggregates {
                    let remedy = "compare outputs whose rows all have the same columns";
                    return Err(part.wrong(number, "the columns are not those of the rows before", remedy));
                }
                if lane.panes.len() == PANES_MAX {
                    let message = format!(
                        "too many panes to compare: path={} panes_max={PANES_MAX}",
                        directory.display()
                    );
                    return Err(Error::new(ErrorKind::Invalid, message)
                        .with_remedy("compare directories that hold some of the parts"));
                }
                if row.takes_back() {
                    lane.panes.remove(&row.identity());
                } else {
                    let values = row.values().map(|(_, value)| value.clone()).collect();
                    lane.panes.insert(row.identity(), values);
                }
                Ok(())
            })?;
        }
        Ok(lane)
    }

    fn value(&self, values: &[JsonText], name: &str) -> Option<JsonText> {
        let index = self.aggregates.iter().position(|known| known == name)?;
        values.get(index).cloned()
    }
}

fn columns(row: &Row) -> (Vec<String>, Vec<String>) {
    let keys = row.key().map(|(name, _)| name.to_owned()).collect();
    (keys, row.values().map(|(name, _)| name.to_owned()).collect())
}

/// Two lanes at work.
struct Pair<'a> {
    exact: &'a Lane,
    fast: &'a Lane,
    common: &'a [String],
    tolerance: f64,
    listed_max: usize,
}

impl Pair<'_> {
    fn run(&self, into: &mut Comparison) {
        let newest = self.exact.panes.keys().next_back().map(|pane| pane.end);
        let panes: BTreeSet<&Identity> = self.exact.panes.keys().chain(self.fast.panes.keys()).collect();
        for pane in panes {
            let (exact, fast) = (self.exact.panes.get(pane), self.fast.panes.get(pane));
            let values = self.compare_values(exact, fast);
            match (exact, fast) {
                (None, _) if newest.is_none_or(|newest| pane.end > newest) => {
                    into.pending += 1;
                    continue;
                }
                (None, _) => into.only_fast += 1,
                (_, None) => into.only_exact += 1,
                _ if values.is_empty() => {
                    into.same += 1;
                    continue;
                }
                _ => into.different += 1,
            }
            for value in &values {
                *into.aggregates.entry(value.aggregate.clone()).or_default() += 1;
            }
            if into.differences.len() < self.listed_max {
                into.differences.push(self.difference(pane, values));
            } else {
                into.left_out += 1;
            }
        }
    }

    fn difference(&self, pane: &Identity, values: Vec<Compared>) -> Difference {
        let keys = if self.exact.panes.is_empty() { &self.fast.keys } else { &self.exact.keys };
        Difference {
            key: keys.iter().cloned().zip(pane.key.iter().cloned()).collect(),
            window_start: bound(pane.start),
            window_end: bound(pane.end),
            values,
        }
    }

    /// The aggregates that differ.
    fn compare_values(&self, exact: Option<&Vec<JsonText>>, fast: Option<&Vec<JsonText>>) -> Vec<Compared> {
        let compared = self.common.iter().map(|name| {
            let exact = exact.and_then(|values| self.exact.value(values, name));
            let fast = fast.and_then(|values| self.fast.value(values, name));
            let difference =
                exact.as_ref().zip(fast.as_ref()).and_then(|(exact, fast)| difference(exact, fast));
            Compared { aggregate: name.clone(), exact, fast, difference }
        });
        compared.filter(|compared| !self.same(compared)).collect()
    }

    fn same(&self, compared: &Compared) -> bool {
        let (Some(exact), Some(fast)) = (&compared.exact, &compared.fast) else { return false };
        if exact == fast {
            return true;
        }
        let floats = float(exact.as_str()).zip(float(fast.as_str()));
        let near = floats.is_some_and(|(exact, fast)| {
            self.tolerance > 0.0 && (exact - fast).abs() <= self.tolerance * exact.abs().max(fast.abs())
        });
        let equal = match Exact::parse(exact.as_str()).zip(Exact::parse(fast.as_str())) {
            Some((exact, fast)) => exact.minus(fast).is_some_and(|difference| difference.unscaled == 0),
            None => floats.is_some_and(|(exact, fast)| exact == fast),
        };
        near || equal
    }
}

/// Fast less exact, to the last digit where both have one.
fn difference(exact: &JsonText, fast: &JsonText) -> Option<JsonText> {
    let (exact, fast) = (exact.as_str(), fast.as_str());
    let precise = Exact::parse(fast).zip(Exact::parse(exact)).and_then(|(fast, exact)| fast.minus(exact));
    if let Some(precise) = precise {
        return Some(JsonText(precise.text()));
    }
    let difference = float(fast)? - float(exact)?;
    difference.is_finite().then(|| JsonText(difference.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::{DiskFs, DurableFs};

    fn lane(rows: &[(&str, i64, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let line = |(key, start, sum): &(&str, i64, &str)| {
            let end = start + 60_000;
            format!("{{\"key\":\"{key}\",\"window_start\":{start},\"window_end\":{end},\"sum\":{sum}}}\n")
        };
        let text: String = rows.iter().map(line).collect();
        DiskFs.write_new(&directory.path().join("part-0000000001.jsonl"), text.as_bytes()).unwrap();
        directory
    }

    fn compared(exact: &[(&str, i64, &str)], fast: &[(&str, i64, &str)], tolerance: f64) -> Comparison {
        compare(lane(exact).path(), lane(fast).path(), tolerance, 10).unwrap()
    }

    #[test]
    fn panes_are_told_apart_into_same_different_missing_and_pending() {
        let exact = [("a", 0, "5"), ("b", 0, "7.10"), ("c", 0, "1")];
        let fast = [("a", 0, "5.0"), ("b", 0, "7.05"), ("d", 0, "2"), ("a", 60_000, "9")];
        let found = compared(&exact, &fast, 0.0);
        assert_eq!(
            (found.same, found.different, found.only_exact, found.only_fast, found.pending),
            (1, 1, 1, 1, 1)
        );
        assert!(!found.agrees());
        assert_eq!(found.windows_in_common, 1);
        assert_eq!(found.aggregates, BTreeMap::from([("sum".to_owned(), 3)]));
        assert_eq!(found.differences[0].values[0].difference, Some(JsonText("-0.05".to_owned())));
    }

    #[test]
    fn the_last_row_of_a_pane_counts() {
        let found = compared(&[("a", 0, "5"), ("a", 0, "6")], &[("a", 0, "6")], 0.0);
        assert!(found.agrees() && found.same == 1);
    }

    #[test]
    fn floats_differ_unless_a_tolerance_is_given_and_long_integers_are_never_rounded() {
        let (exact, fast) = ([("a", 0, "0.3")], [("a", 0, "0.30000000000000004")]);
        assert!(!compared(&exact, &fast, 0.0).agrees());
        assert!(compared(&exact, &fast, 1e-9).agrees());
        let (exact, fast) = ([("a", 0, "9007199254740993")], [("a", 0, "9007199254740992")]);
        assert!(!compared(&exact, &fast, 0.0).agrees());
    }

    #[test]
    fn a_row_that_was_taken_back_is_gone_and_all_time_has_no_bounds() {
        let directory = tempfile::tempdir().unwrap();
        let text = [("+I", 1), ("-U", 1), ("+U", 2), ("-D", 2)].map(|(kind, sum)| {
            format!("{{\"key\":\"a\",\"window_start\":0,\"window_end\":5,\"sum\":{sum},\"row_kind\":\"{kind}\"}}\n")
        });
        let global =
            "{\"key\":\"a\",\"window_start\":null,\"window_end\":null,\"sum\":3,\"row_kind\":\"+I\"}\n";
        let path = directory.path().join("part-0000000001.jsonl");
        DiskFs.write_new(&path, (text.concat() + global).as_bytes()).unwrap();
        let found = compare(directory.path(), lane(&[("a", 0, "2")]).path(), 0.0, 10).unwrap();
        assert_eq!((found.only_exact, found.only_fast, found.not_compared.len()), (1, 1, 0));
        assert_eq!(found.differences[1].window_start, None);
    }

    #[test]
    fn lanes_of_different_keys_are_refused() {
        let other = tempfile::tempdir().unwrap();
        let line = b"{\"shop\":\"a\",\"window_start\":0,\"window_end\":60000,\"sum\":1}\n";
        DiskFs.write_new(&other.path().join("part-0000000001.jsonl"), line).unwrap();
        let error = compare(lane(&[("a", 0, "1")]).path(), other.path(), 0.0, 10).unwrap_err();
        assert!(error.to_string().contains("exact=key fast=shop"), "{error}");
    }
}
