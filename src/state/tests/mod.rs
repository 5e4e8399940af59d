//! Tests of the state database as its callers see it, and what they share.

mod eviction;
mod linking;
mod payloads;
mod plateau;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rocksdb::IteratorMode;
use tempfile::TempDir;

use super::engine::Setup;
use super::*;
use crate::codec::PaneKey;
use crate::event_time::{EventTime, Span, Watermark};

/// Payloads of eight bytes that add up; everything else is not understood.
pub(super) struct Sum;

impl PaneMerge for Sum {
    fn merge(&self, base: &mut Vec<u8>, operand: &[u8]) -> bool {
        let (Ok(left), Ok(right)) = (<[u8; 8]>::try_from(base.as_slice()), <[u8; 8]>::try_from(operand))
        else {
            // As bad as an implementation may be: half changed.
            base.push(0xee);
            return false;
        };
        let sum = u64::from_le_bytes(left).wrapping_add(u64::from_le_bytes(right));
        base.copy_from_slice(&sum.to_le_bytes());
        true
    }
}

pub(super) const FIRST: FamilyId = FamilyId(0);
pub(super) const SECOND: FamilyId = FamilyId(1);
/// Allowed lateness of the second family; the first has none.
pub(super) const LATENESS: i64 = 5;

pub(super) fn specs() -> Vec<FamilySpec> {
    let spec = |name: &str, lateness| FamilySpec {
        name: name.to_owned(),
        allowed_lateness: Span::from_millis(lateness).unwrap(),
        merge: Arc::new(Sum),
    };
    vec![spec("first", 0), spec("second", LATENESS)]
}

pub(super) fn at(millis: i64) -> EventTime {
    EventTime::from_millis(millis)
}

pub(super) fn horizon(millis: i64) -> Watermark {
    Watermark::At(at(millis))
}

pub(super) fn pane(end: i64, key: &[u8]) -> PaneKey<'_> {
    PaneKey { end: at(end), key }
}

/// A directory for one test, and a database in it.
pub(super) struct Bench {
    pub(super) home: TempDir,
    pub(super) db: StateDb,
}

impl Bench {
    pub(super) fn new() -> Self {
        Self::with_filter(true)
    }

    pub(super) fn with_filter(filter: bool) -> Self {
        let home = TempDir::new().unwrap();
        let (families, memory, options) = (specs(), StateMemory::new(16 << 20), StateOptions::default());
        let setup = Setup { families: &families, memory: &memory, options: &options, filter, env: None };
        let db = StateDb::create_as(&home.path().join("work"), setup).unwrap();
        Self { home, db }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Writes one run of puts, by end, then by key.
    pub(super) fn put(&self, path: WritePath, family: FamilyId, panes: &[(i64, &[u8], u64)]) {
        let payloads: Vec<_> = panes.iter().map(|(_, _, value)| value.to_le_bytes()).collect();
        let entries = panes.iter().zip(&payloads);
        let entries = entries.map(|((end, key, _), payload)| (pane(*end, key), Write::Put(payload)));
        self.db.write_by(path, family, entries).unwrap();
    }

    /// All live panes of a family.
    pub(super) fn live(&self, family: FamilyId) -> Vec<(i64, Vec<u8>, u64)> {
        rows(self.db.scan(family, ..).unwrap())
    }

    /// Rows that are in the files and buffers, expired ones and the sentinel included.
    pub(super) fn physical_rows(&self, family: FamilyId) -> usize {
        let engine = &self.db.engine;
        let handle = engine.handle(&engine.family(family).unwrap().column_family).unwrap();
        engine.db.iterator_cf(handle, IteratorMode::Start).inspect(|row| assert!(row.is_ok())).count()
    }
}

/// The panes of a scan; damaged ones have no place here.
pub(super) fn rows(mut scan: PaneScan<'_>) -> Vec<(i64, Vec<u8>, u64)> {
    let mut rows = Vec::new();
    while let Some((pane, stored)) = scan.next_pane().unwrap() {
        let Stored::Pane(payload) = stored else { panic!("damaged pane at {pane:?}") };
        rows.push((pane.end.as_millis(), pane.key.to_vec(), u64::from_le_bytes(payload.try_into().unwrap())));
    }
    rows
}

/// Copies a directory without sub-directories, as a restore does.
pub(super) fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}
