//! SQLite: an upsert for every event, in a table without row ids. A transaction lasts a second; its log is synced when
//! it is committed.

use std::path::Path;

use rusqlite::{Connection, params};

use super::{MEMORY_BYTES, PaneStore};
use crate::Outcome;
use crate::results::{Pane, Results};
use crate::stream::Rows;

const TABLE: &str = "CREATE TABLE panes (
    start INTEGER NOT NULL, key TEXT NOT NULL,
    count INTEGER NOT NULL, sum INTEGER NOT NULL, min INTEGER NOT NULL, max INTEGER NOT NULL,
    PRIMARY KEY (start, key)
) WITHOUT ROWID";

const UPSERT: &str = "INSERT INTO panes VALUES (?1, ?2, 1, ?3, ?3, ?3)
    ON CONFLICT (start, key) DO UPDATE SET
    count = count + 1, sum = sum + ?3, min = min(min, ?3), max = max(max, ?3)";

pub(super) struct Panes {
    db: Connection,
}

impl Panes {
    pub(super) fn open(dir: &Path) -> Outcome<Self> {
        let db = Connection::open(dir.join("panes.sqlite"))?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        db.pragma_update(None, "synchronous", "FULL")?;
        // A negative number is KiB.
        db.pragma_update(None, "cache_size", -((MEMORY_BYTES >> 10) as i64))?;
        db.execute_batch(TABLE)?;
        db.execute_batch("BEGIN")?;
        Ok(Self { db })
    }
}

impl PaneStore for Panes {
    fn add(&mut self, rows: Rows<'_>) -> Outcome<()> {
        let mut upsert = self.db.prepare(UPSERT)?;
        for (window, key, value) in rows.iter() {
            upsert.execute(params![window, key, value])?;
        }
        Ok(())
    }

    fn fire(&mut self, window: i64, results: &mut Results) -> Outcome<()> {
        let mut select = self.db.prepare("SELECT key, count, sum, min, max FROM panes WHERE start = ?1")?;
        let mut rows = select.query([window])?;
        while let Some(row) = rows.next()? {
            let count: i64 = row.get(1)?;
            let (sum, min, max) = (row.get(2)?, row.get(3)?, row.get(4)?);
            let pane = Pane { count: u64::try_from(count)?, sum, min, max };
            results.take(window, row.get_ref(0)?.as_bytes()?, pane);
        }
        self.db.execute("DELETE FROM panes WHERE start = ?1", [window])?;
        Ok(())
    }

    fn keep(&mut self) -> Outcome<bool> {
        self.db.execute_batch("COMMIT; BEGIN")?;
        Ok(true)
    }
}
