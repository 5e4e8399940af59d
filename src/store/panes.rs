//! Panes that were moved out of memory, read back from the state database.

use std::ops::Bound;

use super::writer::Writer;
use crate::aggregate::{PayloadError, RowMut};
use crate::codec::PaneKey;
use crate::error::{Error, ErrorKind, Result};
use crate::event_time::EventTime;
use crate::operator::{Ends, Panes, RowBuffer, SpillKind, Spilled};
use crate::state::{FamilyId, StateDb, Stored};

/// The state database as operators see it, with everything they handed to the writer before.
pub(super) struct StorePanes<'a> {
    pub(super) db: &'a StateDb,
    pub(super) writer: &'a mut Writer,
}

impl Panes for StorePanes<'_> {
    type Error = Error;

    fn load(&mut self, operator: usize, end: EventTime, key: &[u8], mut row: RowMut<'_>) -> Result<bool> {
        self.writer.wait_until_written()?;
        let Some(stored) = self.db.get(FamilyId(operator), PaneKey { end, key })? else { return Ok(false) };
        decode(stored.get(), end, key, |payload| row.read_payload(payload))?;
        Ok(true)
    }

    fn scan(
        &mut self,
        operator: usize,
        end: EventTime,
        after: Option<&[u8]>,
        limit: usize,
        rows: &mut RowBuffer,
    ) -> Result<()> {
        self.writer.wait_until_written()?;
        let family = FamilyId(operator);
        let mut scan = match after {
            Some(key) => self.db.scan_after(family, PaneKey { end, key }, Bound::Included(end))?,
            None => self.db.scan(family, end..=end)?,
        };
        for _ in 0..limit {
            let Some((pane, stored)) = scan.next_pane()? else { break };
            decode(stored, pane.end, pane.key, |payload| rows.push_payload(pane.key, payload))?;
        }
        Ok(())
    }

    fn put(&mut self, operator: usize, end: EventTime, rows: RowBuffer) -> Result<()> {
        self.writer.write(operator, Spilled { ends: Ends::One(end), kind: SpillKind::Put, rows })
    }
}

/// Hands the payload of a stored pane to `read`, or says which pane is damaged.
pub(crate) fn decode(
    stored: Stored<'_>,
    end: EventTime,
    key: &[u8],
    read: impl FnOnce(&[u8]) -> std::result::Result<(), PayloadError>,
) -> Result<()> {
    let damaged = |why: String| {
        let key = String::from_utf8_lossy(key);
        Error::new(
            ErrorKind::Damaged,
            format!("stored pane cannot be read: {why} key={key:?} window_end={end}"),
        )
        .with_remedy("run `floodmark inspect verify` on the checkpoints and restore one that holds")
    };
    match stored {
        Stored::Pane(payload) => read(payload).map_err(|error| damaged(error.to_string())),
        Stored::Damaged(_) => Err(damaged("its parts could not be merged".to_owned())),
    }
}
