//! What readers of the outputs must find, by the model, and what they do find.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;

use serde_json::Value as Json;

use super::draw::Pipeline;
use crate::oracle::{Num, Observed, Op, Oracle, Windows};

/// A row as it stands in a part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    key: String,
    window: (Option<i64>, Option<i64>),
    counts: (i64, i64),
    values: [Option<i64>; 3],
    pane: String,
    watermark: Option<i64>,
}

/// Whose rows these are: of a key and a window.
type Pane = (String, (Option<i64>, Option<i64>));

/// What the model says of a history.
pub(super) struct Judge {
    windows: Vec<(Observed, bool)>,
}

impl Judge {
    pub(super) fn new(pipeline: &Pipeline, input: &[Op]) -> Self {
        let observe = |settings: &crate::oracle::Settings| {
            let seen = Oracle::run(settings, input).expect("histories have settings that work");
            (seen, settings.windows == Windows::Global)
        };
        Self { windows: pipeline.windows.iter().map(observe).collect() }
    }

    /// The watermark when everything before `at` has been processed; inclusive.
    pub(super) fn watermark(&self, at: usize) -> Option<i64> {
        at.checked_sub(1).and_then(|last| self.windows[0].0.watermarks[last])
    }

    /// Compares all outputs in `outputs` with what the input in `range` gives. What comes of operations from `whole` on
    /// may be missing at the end of each pane: a firing was under way.
    ///
    /// # Errors
    /// The first difference.
    pub(super) fn check(&self, outputs: &Path, range: &Range<usize>, whole: usize) -> Result<(), String> {
        for (index, (seen, global)) in self.windows.iter().enumerate() {
            let emits = seen.emits.iter().filter(|emit| range.contains(&emit.at));
            let due = emits.clone().filter(|emit| emit.at < whole).count();
            let expected: Vec<Row> = emits.map(|emit| row_of(emit, *global)).collect();
            let found: Vec<Row> = lines(&outputs.join(format!("w{index}")))?.iter().map(row).collect();
            same_rows(&expected, &found, due)
                .map_err(|why| format!("window {index}, input {range:?}: {why}"))?;
        }
        self.check_late(outputs, range)
    }

    fn check_late(&self, outputs: &Path, range: &Range<usize>) -> Result<(), String> {
        let of_window = |(index, (seen, _)): (usize, &(Observed, bool))| {
            let late = seen.late.iter().filter(|late| range.contains(&late.at));
            late.map(move |late| (format!("w{index}"), late.at as u64)).collect::<Vec<_>>()
        };
        let mut expected: Vec<(String, u64)> = self.windows.iter().enumerate().flat_map(of_window).collect();
        let found = |line: &Json| {
            let operator = line["operator"].as_str().unwrap_or("none").to_owned();
            (operator, line["record_number"].as_u64().unwrap_or(u64::MAX))
        };
        let mut found: Vec<(String, u64)> = lines(&outputs.join("late"))?.iter().map(found).collect();
        expected.sort();
        found.sort();
        match first_difference(&expected, &found) {
            None => Ok(()),
            Some(difference) => Err(format!("late events, input {range:?}: {difference}")),
        }
    }
}

/// `expected` in the order of emission; of these the first `due` have to be there.
fn same_rows(expected: &[Row], found: &[Row], due: usize) -> Result<(), String> {
    let (due, mut expected, found_by_pane) = (by_pane(&expected[..due]), by_pane(expected), by_pane(found));
    for (pane, rows) in &found_by_pane {
        let wanted = expected.entry(pane.clone()).or_default();
        wanted.truncate(due.get(pane).map_or(0, Vec::len).max(rows.len()));
        if let Some(difference) = first_difference(wanted, rows) {
            return Err(difference);
        }
    }
    let missing = due.iter().find(|(pane, _)| !found_by_pane.contains_key(*pane));
    if let Some((_, rows)) = missing {
        return Err(format!("lost {:?}", short(&rows[0])));
    }
    let marks: Vec<i64> = found.iter().filter_map(|row| row.watermark).collect();
    match marks.windows(2).find(|pair| pair[0] > pair[1]) {
        Some(pair) => Err(format!("the watermark of results goes back from {} to {}", pair[0], pair[1])),
        None => Ok(()),
    }
}

fn by_pane(rows: &[Row]) -> BTreeMap<Pane, Vec<Row>> {
    let mut panes: BTreeMap<Pane, Vec<Row>> = BTreeMap::new();
    for row in rows {
        panes.entry((row.key.clone(), row.window)).or_default().push(row.clone());
    }
    panes
}

fn first_difference<T: std::fmt::Debug + PartialEq>(expected: &[T], found: &[T]) -> Option<String> {
    let mut places = 0..expected.len().max(found.len());
    let place = places.find(|&index| expected.get(index) != found.get(index))?;
    let shown = |item: Option<&T>| item.map_or("nothing".to_owned(), |item| short(item));
    Some(format!(
        "number {place}: expected {}, found {} ({} and {} in all)",
        shown(expected.get(place)),
        shown(found.get(place)),
        expected.len(),
        found.len()
    ))
}

fn short(item: &impl std::fmt::Debug) -> String {
    let text = format!("{item:?}");
    text.chars().take(300).collect()
}

fn row_of(emit: &crate::oracle::Emitted, global: bool) -> Row {
    let number = |number: Option<Num>| match number {
        Some(Num::Int(int)) => Some(int as i64),
        Some(Num::Float(float)) => panic!("histories have integers: {float}"),
        None => None,
    };
    let row = &emit.row;
    let bound = |bound: i64| (!global).then_some(bound);
    Row {
        key: String::from_utf8_lossy(&row.key).into_owned(),
        window: (bound(row.start), bound(row.end)),
        counts: (row.count as i64, row.count_value as i64),
        values: [row.sum, row.min, row.max].map(number),
        pane: emit.pane.map_or("none", crate::oracle::Pane::name).to_owned(),
        // None before the first event and after the last; in between exclusive, as the engine counts.
        watermark: emit.watermark.filter(|inclusive| *inclusive != i64::MIN).map(|inclusive| inclusive + 1),
    }
}

fn row(line: &Json) -> Row {
    let number = |name: &str| line[name].as_i64();
    let count = |name: &str| number(name).unwrap_or(-1);
    Row {
        key: line["key"].as_str().unwrap_or("not a text").to_owned(),
        window: (number("window_start"), number("window_end")),
        counts: (count("count"), count("count_value")),
        values: [number("sum"), number("min"), number("max")],
        pane: line["pane"].as_str().unwrap_or("none").to_owned(),
        watermark: number("watermark"),
    }
}

/// All lines of an output, as `cat part-*` prints them.
fn lines(output: &Path) -> Result<Vec<Json>, String> {
    let Ok(entries) = fs::read_dir(output) else { return Ok(Vec::new()) };
    let mut parts: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    parts.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("part-")));
    parts.sort();
    let mut lines = Vec::new();
    for part in parts {
        let text = fs::read_to_string(&part).map_err(|error| format!("{}: {error}", part.display()))?;
        for line in text.lines() {
            let json = serde_json::from_str(line);
            lines.push(json.map_err(|error| format!("{}: {error}: {line:.200}", part.display()))?);
        }
    }
    Ok(lines)
}

#[test]
fn a_lost_a_doubled_and_a_changed_row_are_told_apart_from_the_right_ones() {
    let row = |key: &str, count: i64, watermark: i64| Row {
        key: key.to_owned(),
        window: (Some(0), Some(10)),
        counts: (count, count),
        values: [None; 3],
        pane: "on_time".to_owned(),
        watermark: Some(watermark),
    };
    let right = [row("a", 1, 10), row("b", 1, 10), row("a", 2, 12)];
    let other = |indexes: &[usize]| indexes.iter().map(|&index| right[index].clone()).collect::<Vec<_>>();
    assert_eq!(same_rows(&right, &other(&[1, 0, 2]), 3), Ok(()));
    assert!(same_rows(&right, &other(&[0, 1]), 3).is_err(), "lost in a pane");
    assert!(same_rows(&right, &other(&[0, 2]), 3).is_err(), "a lost pane");
    assert_eq!(same_rows(&right, &other(&[0]), 0), Ok(()));
    assert_eq!(same_rows(&right, &other(&[1, 0]), 2), Ok(()));
    assert!(same_rows(&right, &other(&[0]), 2).is_err(), "lost before the firing");
    assert!(same_rows(&right, &other(&[0, 1, 2, 1]), 0).is_err(), "doubled");
    assert!(same_rows(&right, &[row("a", 1, 10), row("b", 3, 10), row("a", 2, 12)], 0).is_err(), "changed");
    assert!(same_rows(&right, &other(&[0, 2, 1]), 3).is_err(), "the watermark goes back");
}
