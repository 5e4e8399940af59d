//! fjall: read, add and write back for every event. Its journal is handed to the system and synced once a second
//! rather than at every write, and the keys of a fired window go as one batch, as it has no removal of ranges.

use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::{MEMORY_BYTES, PaneStore, take_pair, write_key};
use crate::Outcome;
use crate::results::{Pane, Results};
use crate::stream::Rows;

pub(super) struct Panes {
    db: Database,
    panes: Keyspace,
}

impl Panes {
    pub(super) fn open(dir: &Path) -> Outcome<Self> {
        let cache = (MEMORY_BYTES / 2) as u64;
        let db = Database::builder(dir.join("db")).cache_size(cache).manual_journal_persist(true).open()?;
        let buffer = (MEMORY_BYTES / 8) as u64;
        let options =
            || KeyspaceCreateOptions::default().max_memtable_size(buffer).manual_journal_persist(true);
        let panes = db.keyspace("panes", options)?;
        Ok(Self { db, panes })
    }
}

impl PaneStore for Panes {
    fn add(&mut self, rows: Rows<'_>) -> Outcome<()> {
        let mut bytes = Vec::new();
        for (window, key, value) in rows.iter() {
            write_key(&mut bytes, window, key);
            let mut pane = Pane::of(value);
            if let Some(stored) = self.panes.get(&bytes)? {
                pane.merge(Pane::from_bytes(&stored).ok_or("a stored pane is not as long as a pane")?);
            }
            self.panes.insert(bytes.as_slice(), pane.to_bytes())?;
        }
        Ok(())
    }

    fn fire(&mut self, window: i64, results: &mut Results) -> Outcome<()> {
        let mut gone = self.db.batch();
        for pair in self.panes.prefix(window.to_be_bytes()) {
            let (key, pane) = pair.into_inner()?;
            take_pair(window, &key, &pane, results)?;
            gone.remove(&self.panes, key);
        }
        Ok(gone.commit()?)
    }

    fn keep(&mut self) -> Outcome<bool> {
        self.db.persist(PersistMode::SyncAll)?;
        Ok(true)
    }
}
