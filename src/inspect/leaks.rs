//! What is past its expiry and still on disk: which panes, in which files, how many bytes that is, and why.
//!
//! Expired state is deleted in steps, each of which waits for something (docs/CHECKPOINTS.md), so some of it is in every
//! checkpoint. The reason tells what is on its way from what is stuck.

use std::path::Path;

use serde::Serialize;

use crate::checkpoint::{self, Manifest, OperatorState};
use crate::codec::PaneKey;
use crate::error::Result;
use crate::event_time::{EventTime, Watermark};
use crate::inspect::choice::{Chosen, with_checkpoint};
use crate::inspect::scan::{Counter, Watcher};
use crate::inspect::shape::OpenState;
use crate::inspect::status::WindowStatus;
use crate::inspect::text::{as_optional_text, as_text};
use crate::inspect::windows::{Origin, origin};
use crate::state::{FamilyId, LinkedFile, Stored, pane_key};

/// Why expired rows are still on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeakReason {
    /// They expired in the epoch of this checkpoint: deleted once it is durable and its output delivered.
    ThisEpoch,
    /// They had expired in the checkpoint before, and the eviction horizon has not followed.
    HorizonBehind,
    /// They are deleted; their bytes go when their file is compacted or dropped.
    AwaitsCompaction,
}

impl LeakReason {
    const ALL: [Self; 3] = [Self::ThisEpoch, Self::HorizonBehind, Self::AwaitsCompaction];

    /// Lowercase name, as reports have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ThisEpoch => "this-epoch",
            Self::HorizonBehind => "horizon-behind",
            Self::AwaitsCompaction => "awaits-compaction",
        }
    }

    /// The reason in a sentence, with what to do where something is to be done.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::ThisEpoch => {
                "expired in the epoch of this checkpoint, or before the start of its run; deleted once it is durable and its output is delivered"
            }
            Self::HorizonBehind => {
                "had expired in the checkpoint before, and the horizon has not followed: its output was not delivered when \
                 this one was made; look at the outputs when later checkpoints show the same"
            }
            Self::AwaitsCompaction => {
                "deleted; the bytes go when their file is compacted or dropped, which new state brings about"
            }
        }
    }
}

/// What is past its expiry in a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LeakReport {
    /// The checkpoint.
    pub checkpoint: Origin,
    /// The checkpoint before, by whose watermark it is told what the horizon should have reached; absent when it is
    /// gone, and then nothing counts as `horizon-behind`.
    pub compared_with: Option<u64>,
    /// Expired rows.
    pub rows: u64,
    /// Bytes of their keys and values, before compression.
    pub row_bytes: u64,
    /// Bytes on disk that would be free without them: whole files, and an estimate by share of entries of the others.
    pub reclaimable_bytes: u64,
    /// Bytes of all files of the database.
    pub database_bytes: u64,
    /// By operator and reason; operators without expired rows are left out.
    pub operators: Vec<OperatorLeaks>,
    /// The files that hold them.
    pub files: Vec<FileLeaks>,
}

/// Expired rows of one operator.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperatorLeaks {
    /// Its name.
    pub name: String,
    /// Its eviction horizon.
    #[serde(serialize_with = "as_text")]
    pub horizon: Watermark,
    /// Its expired rows by reason.
    pub reasons: Vec<LeakTotals>,
}

/// Expired rows that have one reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LeakTotals {
    /// The reason.
    pub reason: LeakReason,
    /// The reason in a sentence.
    pub words: &'static str,
    /// Rows.
    pub rows: u64,
    /// Bytes of their keys and values, before compression.
    pub bytes: u64,
    /// First end of a window among them.
    #[serde(serialize_with = "as_optional_text")]
    pub end_min: Option<EventTime>,
    /// Last end of a window among them.
    #[serde(serialize_with = "as_optional_text")]
    pub end_max: Option<EventTime>,
}

/// Expired rows in one file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FileLeaks {
    /// The file.
    pub name: String,
    /// Its operator.
    pub operator: String,
    /// Its level; 0 is the newest.
    pub level: u32,
    /// Its size.
    pub bytes: u64,
    /// Its entries, deletions included.
    pub entries: u64,
    /// Expired rows that no other file can hold, by their keys.
    pub rows: u64,
    /// Expired rows that older files could hold as well; they are counted in the newest.
    pub rows_maybe: u64,
    /// Nothing in it is alive: it can go as a whole.
    pub whole: bool,
    /// Bytes that would be free without them.
    pub reclaimable_bytes: u64,
    /// True when that is an estimate by the share of entries.
    pub estimated: bool,
}

/// What is past its expiry and still on disk in the checkpoint of epoch `at`, or in the newest one under `path`.
///
/// # Errors
/// [`crate::error::ErrorKind::Invalid`] when there is no such checkpoint, [`crate::error::ErrorKind::Damaged`] when
/// files cannot be read back, [`crate::error::ErrorKind::Incompatible`] when another version wrote them.
pub fn leaks(path: &Path, at: Option<u64>, now_ms: i64, watcher: Watcher<'_>) -> Result<LeakReport> {
    with_checkpoint(path, at, |chosen| {
        let open = OpenState::open(&chosen.summary, &chosen.manifest)?;
        let parent = parent_of(path, chosen);
        let tables = open.state.table_files()?;
        let mut counter = Counter::new(&chosen.manifest, &mut *watcher);
        let mut report = LeakReport {
            checkpoint: origin(chosen, now_ms),
            compared_with: parent.as_ref().map(|parent| parent.epoch),
            rows: 0,
            row_bytes: 0,
            reclaimable_bytes: 0,
            database_bytes: chosen.manifest.database_bytes(),
            operators: Vec::new(),
            files: Vec::new(),
        };
        for (index, state) in chosen.manifest.operators.iter().enumerate() {
            let before = parent
                .as_ref()
                .and_then(|parent| parent.operators.iter().find(|operator| operator.name == state.name));
            let operator = Operator { open: &open, manifest: &chosen.manifest, index, state, before };
            operator.look(&tables, &mut counter, &mut report)?;
        }
        report.reclaimable_bytes = report.files.iter().map(|file| file.reclaimable_bytes).sum();
        Ok(report)
    })
}

/// The checkpoint before, when it is beside this one, of the same history, and of the same run: a start begins with the
/// horizon of its checkpoint, and moves it with the next one.
fn parent_of(path: &Path, chosen: &Chosen) -> Option<Manifest> {
    let beside = chosen.summary.path.parent().filter(|_| path == chosen.summary.path).unwrap_or(path);
    let parent = chosen.manifest.parent?;
    let summaries = checkpoint::list(beside).ok()?;
    let found = summaries.into_iter().find(|summary| summary.epoch == Some(parent))?.manifest.ok()?;
    let own = (chosen.manifest.lineage, chosen.manifest.generation);
    ((found.lineage, found.generation) == own).then_some(found)
}

struct Operator<'a> {
    open: &'a OpenState,
    manifest: &'a Manifest,
    index: usize,
    state: &'a OperatorState,
    before: Option<&'a OperatorState>,
}

impl Operator<'_> {
    fn look(&self, tables: &[LinkedFile], counter: &mut Counter<'_>, report: &mut LeakReport) -> Result<()> {
        let mut files: Vec<File<'_>> = tables.iter().filter_map(|table| self.file(table)).collect();
        // The newest first: higher levels hold older versions, and of level 0 lower numbers do.
        files.sort_by(|a, b| (a.level, &b.table.name).cmp(&(b.level, &a.table.name)));
        let mut totals = LeakReason::ALL.map(|reason| LeakTotals {
            reason,
            words: reason.words(),
            rows: 0,
            bytes: 0,
            end_min: None,
            end_max: None,
        });
        let mut key = Vec::new();
        let mut rows = self.open.state.scan_remains(FamilyId(self.index))?;
        while let Some((pane, stored)) = rows.next_pane()? {
            counter.count();
            if !self.is_expired(pane.end) {
                continue;
            }
            let value = match stored {
                Stored::Pane(bytes) | Stored::Damaged(bytes) => bytes.len() as u64 + 1,
            };
            let bytes = pane_key(&mut key, pane).len() as u64 + value;
            let total = &mut totals[self.reason(pane) as usize];
            total.rows += 1;
            total.bytes += bytes;
            total.end_min = Some(total.end_min.map_or(pane.end, |end| end.min(pane.end)));
            total.end_max = Some(total.end_max.map_or(pane.end, |end| end.max(pane.end)));
            count_in(&mut files, &key);
        }
        for total in &totals {
            report.rows += total.rows;
            report.row_bytes += total.bytes;
        }
        let reasons: Vec<LeakTotals> = totals.into_iter().filter(|total| total.rows > 0).collect();
        if !reasons.is_empty() {
            let (name, horizon) = (self.state.name.clone(), self.state.horizon);
            report.operators.push(OperatorLeaks { name, horizon, reasons });
        }
        let held = files.into_iter().filter(|file| file.rows + file.rows_maybe > 0);
        report.files.extend(held.map(|file| self.file_leaks(&file)));
        Ok(())
    }

    fn file<'t>(&self, table: &'t LinkedFile) -> Option<File<'t>> {
        let range = table.range.as_ref().filter(|range| range.column_family == self.state.family)?;
        Some(File {
            table,
            level: range.level,
            smallest: &range.smallest,
            largest: &range.largest,
            entries: range.entries,
            end_max: range.end_max,
            rows: 0,
            rows_maybe: 0,
        })
    }

    fn file_leaks(&self, file: &File<'_>) -> FileLeaks {
        let rows = file.rows + file.rows_maybe;
        let whole = file.end_max.is_some_and(|end| self.is_expired(end));
        let share = rows as f64 / file.entries.max(rows).max(1) as f64;
        FileLeaks {
            name: file.table.name.clone(),
            operator: self.state.name.clone(),
            level: file.level,
            bytes: file.table.bytes,
            entries: file.entries,
            rows: file.rows,
            rows_maybe: file.rows_maybe,
            whole,
            reclaimable_bytes: if whole {
                file.table.bytes
            } else {
                (file.table.bytes as f64 * share) as u64
            },
            estimated: !whole,
        }
    }

    /// True when nothing needs a stored row of this end any more.
    fn is_expired(&self, end: EventTime) -> bool {
        match self.open.shapes.get(self.index) {
            Some(shape) => {
                let spec = shape.spec();
                let standing = self.open.standing(self.manifest, self.index);
                let piece = spec.windows.piece_ending(end);
                let last = if spec.shares_slices() { spec.windows.last_holding(piece).end } else { end };
                standing.status(last) == WindowStatus::Expired
            }
            None => self.state.watermark.closed(end),
        }
    }

    fn reason(&self, pane: PaneKey<'_>) -> LeakReason {
        let retention = match self.open.shapes.get(self.index) {
            Some(shape) => shape.spec().retention(),
            None => crate::event_time::Span::ZERO,
        };
        if self.state.horizon.expired(pane.end, retention) {
            LeakReason::AwaitsCompaction
        } else if self.before.is_some_and(|before| before.watermark.expired(pane.end, retention)) {
            LeakReason::HorizonBehind
        } else {
            LeakReason::ThisEpoch
        }
    }
}

/// A table file while its rows are counted.
struct File<'a> {
    table: &'a LinkedFile,
    level: u32,
    smallest: &'a [u8],
    largest: &'a [u8],
    entries: u64,
    end_max: Option<EventTime>,
    rows: u64,
    rows_maybe: u64,
}

/// Counts a row in the newest file that can hold its key.
fn count_in(files: &mut [File<'_>], key: &[u8]) {
    let mut holding =
        files.iter().enumerate().filter(|(_, file)| file.smallest <= key && key <= file.largest);
    let Some(first) = holding.next().map(|(at, _)| at) else { return };
    let alone = holding.next().is_none();
    let file = &mut files[first];
    if alone {
        file.rows += 1;
    } else {
        file.rows_maybe += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_counts_in_the_newest_file_that_can_hold_it() {
        let table = |name: &str| LinkedFile::named(name);
        let tables = [table("000009.sst"), table("000005.sst")];
        let file = |table, smallest, largest| File {
            table,
            level: 0,
            smallest,
            largest,
            entries: 10,
            end_max: None,
            rows: 0,
            rows_maybe: 0,
        };
        let mut files = [file(&tables[0], b"b", b"d"), file(&tables[1], b"a", b"c")];
        for key in [b"a", b"b", b"d", b"e"] {
            count_in(&mut files, key);
        }
        let counts = files.map(|file| (file.rows, file.rows_maybe));
        assert_eq!(counts, [(1, 1), (1, 0)]);
    }
}
