//! Late events worked into finished results: what may be merged, what was applied before, and the new directory.
//!
//! `late` makes rows of late records, `applied` remembers which parts a result set holds, `write` makes the directory.
//! `savepoint` works late events into the windows of a savepoint that are still to fire, where `judge` lets it.

mod applied;
mod judge;
mod late;
mod savepoint;
mod write;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use super::merge::Rule;
use super::row::{Identity, JsonText, Part, Row, bound, parts};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::pipeline::config::{
    Accumulation, Mode, OutputFormat, OutputTarget, PipelineConfig, SourceConfig, TimeDomain, Trigger,
    WindowConfig, closest,
};
use applied::Applied;

pub use judge::WhyNot;
pub use savepoint::{NotApplied, ReappliedSavepoint, ReapplySavepoint, reapply_savepoint};

/// Changes that a report lists one by one.
const CHANGES_LISTED: usize = 1_000;

/// What is to be applied to what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reapply {
    /// Name of the window.
    pub window: String,
    /// Directory of the late output.
    pub late: PathBuf,
    /// Directory of the window's results, or of an earlier reapplication.
    pub results: PathBuf,
    /// Directory that the corrected results go to; it must not exist.
    pub to: PathBuf,
}

/// What was applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Reapplied {
    /// Name of the window.
    pub window: String,
    /// Late parts that were applied now.
    pub parts_applied: Vec<String>,
    /// Late parts that the results held already.
    pub parts_passed_over: Vec<String>,
    /// Late records of the window in the parts applied.
    pub late_records: u64,
    /// Rows that were corrected.
    pub corrected: u64,
    /// Rows that were added.
    pub added: u64,
    /// Rows in the new directory.
    pub rows: u64,
    /// The first 1,000 changes, in the order of windows and keys.
    pub changes: Vec<Change>,
    /// Changes beyond these.
    pub left_out: u64,
}

/// A row that was corrected or added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Names and values of the key.
    pub key: Vec<(String, JsonText)>,
    /// Start of the window; none for that of all time.
    pub window_start: Option<String>,
    /// End of the window.
    pub window_end: Option<String>,
    /// The aggregates that changed: name, value before (none in a new row), value after.
    pub values: Vec<(String, Option<JsonText>, JsonText)>,
}

/// Works the late events of a window into its finished results, into a new directory.
///
/// # Errors
/// `Invalid` for a window whose results cannot be merged, a late record that cannot be read, rows of another window, a
/// target that exists, or when everything was applied before; `Unavailable` when a directory cannot be read or written.
pub fn reapply(config: &PipelineConfig, request: &Reapply, clock: Arc<dyn Clock>) -> Result<Reapplied> {
    let window = window_of(config, &request.window)?;
    let sources = sources_of(config, window);
    refuse_settings(window, &sources)?;
    let rules = Rule::all(window)?;
    write::refuse_existing(&request.to)?;
    let results = parts(&request.results)?;
    let mut applied = Applied::read(&request.results, &window.name)?;
    let (fresh, passed_over) = applied.split(parts(&request.late)?)?;
    if fresh.is_empty() {
        return Err(nothing_to_apply(&request.late, &passed_over));
    }
    let (late_records, late_rows) = late::rows(config, window, &sources, &fresh, clock)?;
    let mut merging = Merging::new(window, &rules, late_rows);
    merging.find(&results)?;
    let (rows, changes) = write::write(&request.to, &results, &mut merging, &applied)?;
    let (listed, all) = (changes.iter().take(CHANGES_LISTED).cloned().collect(), changes.len());
    Ok(Reapplied {
        window: window.name.clone(),
        parts_applied: fresh.into_iter().map(|part| part.name).collect(),
        parts_passed_over: passed_over,
        late_records,
        corrected: merging.places.len() as u64,
        added: (all - merging.places.len()) as u64,
        rows,
        changes: listed,
        left_out: all.saturating_sub(CHANGES_LISTED) as u64,
    })
}

fn nothing_to_apply(late: &Path, passed_over: &[String]) -> Error {
    let message = match passed_over {
        [] => format!("the late output has no parts: path={}", late.display()),
        parts => format!(
            "every part of the late output was applied to these results before: path={} parts={}",
            late.display(),
            parts.len()
        ),
    };
    Error::new(ErrorKind::Invalid, message).with_remedy(
        "there is nothing to do; when new late parts have come, run it again on the last corrected output",
    )
}

fn window_of<'a>(config: &'a PipelineConfig, name: &str) -> Result<&'a WindowConfig> {
    let known = || config.windows.iter().map(|window| window.name.as_str());
    config.windows.iter().find(|window| window.name == name).ok_or_else(|| {
        let remedy = match closest(name, known()) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("name one of the windows: {}", known().collect::<Vec<_>>().join(", ")),
        };
        Error::new(ErrorKind::Invalid, format!("there is no such window in the pipeline file: window={name}"))
            .with_remedy(remedy)
    })
}

fn sources_of<'a>(config: &'a PipelineConfig, window: &WindowConfig) -> Vec<&'a SourceConfig> {
    let read =
        |source: &&SourceConfig| window.sources.as_ref().is_none_or(|names| names.contains(&source.name));
    config.sources.iter().filter(read).collect()
}

/// Refuses windows of which no single row stands for a whole pane, and inputs that a late output does not hold whole.
fn refuse_settings(window: &WindowConfig, sources: &[&SourceConfig]) -> Result<()> {
    let by_header = |source: &&&SourceConfig| source.csv.as_ref().is_some_and(|csv| csv.header);
    let reason = if window.windows.session_gap().is_some() {
        "a late event changes the bounds of a session, and may join two"
    } else if window.time == TimeDomain::Processing {
        "windows by arrival time have no late events"
    } else if window.mode == Mode::Complete {
        "in complete mode nothing is late"
    } else if window.retractions {
        "results that take others back would have to be taken back as well"
    } else if window.accumulation == Accumulation::Discarding {
        "rows add up, and none holds the whole pane: results of the late events alone are one more row"
    } else if matches!(window.trigger, Trigger::Count(_)) {
        "rows by count do not hold the events of an unfinished count"
    } else if window.output.target != OutputTarget::Files || window.output.format != OutputFormat::JsonLines {
        "results are read as JSON lines, and these are not"
    } else if sources.iter().any(|source| by_header(&source)) {
        "late records of CSV files do not say which columns their header named"
    } else {
        return Ok(());
    };
    let message = format!("late events cannot be reapplied to this window: {reason}: window={}", window.name);
    Err(Error::new(ErrorKind::Invalid, message)
        .with_remedy("run the pipeline again over all input with a longer delay or allowed lateness"))
}

/// Late rows on their way into the finished ones.
struct Merging<'a> {
    window: &'a WindowConfig,
    rules: &'a [Rule],
    late: BTreeMap<Identity, Row>,
    /// The last row of each pane that has late events: part and line.
    places: BTreeMap<Identity, (usize, u64)>,
}

impl<'a> Merging<'a> {
    fn new(window: &'a WindowConfig, rules: &'a [Rule], late: BTreeMap<Identity, Row>) -> Self {
        Self { window, rules, late, places: BTreeMap::new() }
    }

    /// Finds the rows to be corrected, and refuses rows that are not those of the window.
    fn find(&mut self, results: &[Part]) -> Result<()> {
        for (index, part) in results.iter().enumerate() {
            part.rows(|number, _, row| {
                let names = self.window.aggregates.iter().map(|aggregate| aggregate.name.as_str());
                let keys = self.window.key.iter().map(|key| key.field.as_str());
                if !row.key().map(|(name, _)| name).eq(keys) || !row.values().map(|(name, _)| name).eq(names)
                {
                    let what = format!("the columns are not those of window {}", self.window.name);
                    return Err(part.wrong(
                        number,
                        &what,
                        "name the results of the window that --window names",
                    ));
                }
                let identity = row.identity();
                if self.late.contains_key(&identity) {
                    self.places.insert(identity, (index, number));
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// The row with the late events in it, or `None` when it is not the last of a pane that has any.
    fn correct(&self, place: (usize, u64), row: &Row) -> Result<Option<(Row, Change)>, String> {
        let identity = row.identity();
        let Some(late) = self.late.get(&identity).filter(|_| self.places.get(&identity) == Some(&place))
        else {
            return Ok(None);
        };
        let mut corrected = row.clone();
        let mut change = change_of(row);
        for (aggregate, rule) in self.window.aggregates.iter().zip(self.rules) {
            let name = aggregate.name.as_str();
            let (Some(before), Some(added)) = (row.get(name), late.get(name)) else { continue };
            let merged =
                rule.merge(before.as_str(), added.as_str()).map_err(|what| format!("{name}: {what}"))?;
            if merged != before.as_str() {
                change.values.push((name.to_owned(), Some(before.clone()), JsonText(merged.clone())));
            }
            corrected.set(name, &merged);
        }
        mark_late(&mut corrected, true);
        Ok(Some((corrected, change)))
    }

    /// The rows of panes that had none.
    fn added(&self) -> impl Iterator<Item = (Row, Change)> + '_ {
        let new = self.late.iter().filter(|(identity, _)| !self.places.contains_key(identity));
        new.map(|(_, row)| {
            let mut row = row.clone();
            mark_late(&mut row, false);
            let mut change = change_of(&row);
            change.values =
                row.values().map(|(name, value)| (name.to_owned(), None, value.clone())).collect();
            (row, change)
        })
    }
}

fn change_of(row: &Row) -> Change {
    Change {
        key: row.key().map(|(name, value)| (name.to_owned(), value.clone())).collect(),
        window_start: bound(row.window.start),
        window_end: bound(row.window.end),
        values: Vec::new(),
    }
}

/// Says of a row, where rows say such things, that it is a late one, and for a corrected one that it is another one.
fn mark_late(row: &mut Row, corrected: bool) {
    row.set("pane", "\"late\"");
    row.set("watermark", "null");
    let index = row.get("pane_index").and_then(|index| index.as_str().parse::<u64>().ok());
    if let (Some(index), true) = (index, corrected) {
        row.set("pane_index", &index.saturating_add(1).to_string());
    }
}
