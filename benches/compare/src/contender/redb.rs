//! redb: read, add and write back for every event. A transaction lasts a second and is durable when it is committed.

use std::path::Path;

use redb::{Builder, Database, ReadableTable as _, TableDefinition, WriteTransaction};

use super::{MEMORY_BYTES, PaneStore};
use crate::Outcome;
use crate::results::{Pane, Results};
use crate::stream::Rows;

/// Start of the window and key; count, sum, min and max.
const PANES: TableDefinition<'_, (i64, &str), (u64, i64, i64, i64)> = TableDefinition::new("panes");

pub(super) struct Panes {
    db: Database,
    transaction: Option<WriteTransaction>,
}

impl Panes {
    pub(super) fn open(dir: &Path) -> Outcome<Self> {
        let db = Builder::new().set_cache_size(MEMORY_BYTES).create(dir.join("panes.redb"))?;
        let transaction = Some(db.begin_write()?);
        Ok(Self { db, transaction })
    }

    fn transaction(&mut self) -> Outcome<&WriteTransaction> {
        if self.transaction.is_none() {
            self.transaction = Some(self.db.begin_write()?);
        }
        self.transaction.as_ref().ok_or_else(|| "a transaction was just begun".into())
    }
}

impl PaneStore for Panes {
    fn add(&mut self, rows: Rows<'_>) -> Outcome<()> {
        let mut table = self.transaction()?.open_table(PANES)?;
        for (window, key, value) in rows.iter() {
            let mut pane = Pane::of(value);
            if let Some(stored) = table.get((window, key))? {
                let (count, sum, min, max) = stored.value();
                pane.merge(Pane { count, sum, min, max });
            }
            table.insert((window, key), (pane.count, pane.sum, pane.min, pane.max))?;
        }
        Ok(())
    }

    fn fire(&mut self, window: i64, results: &mut Results) -> Outcome<()> {
        let mut table = self.transaction()?.open_table(PANES)?;
        for pair in table.extract_from_if((window, "")..(window + 1, ""), |_, _| true)? {
            let (key, pane) = pair?;
            let (count, sum, min, max) = pane.value();
            results.take(window, key.value().1.as_bytes(), Pane { count, sum, min, max });
        }
        Ok(())
    }

    fn keep(&mut self) -> Outcome<bool> {
        if let Some(transaction) = self.transaction.take() {
            transaction.commit()?;
        }
        Ok(true)
    }
}
