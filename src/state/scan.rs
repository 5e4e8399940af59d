//! Scans over panes, ordered by window end, then by key.
//!
//! Both bounds of the iterator are always set: the lower one never below the first live end, so that a scan does
//! not walk over tombstones of evicted panes. A scan relies on no snapshot; it masks by the horizon row by row.

use std::ops::{Bound, RangeBounds};

use rocksdb::{DBRawIterator, ReadOptions};

use super::engine::Engine;
use super::error::StateError;
use super::family::FamilyId;
use super::horizon::{Horizon, Live};
use super::key::{AFTER_PANES, BEFORE_PANES, StateKey, first_live, first_of_end, parse, write_pane};
use super::value::Stored;
use crate::codec::PaneKey;
use crate::event_time::{EventTime, Span};

/// A scan in progress. Keep it short-lived: it holds files and blocks.
pub struct PaneScan<'a> {
    rows: DBRawIterator<'a>,
    // None: nothing is masked.
    horizon: Option<&'a Horizon>,
    allowed_lateness: Span,
    started: bool,
}

impl std::fmt::Debug for PaneScan<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PaneScan").field("started", &self.started).finish_non_exhaustive()
    }
}

impl PaneScan<'_> {
    /// The next live pane, or `None` after the last.
    ///
    /// # Errors
    /// [`StateError::Engine`] when a file cannot be read or fails its checksum; the scan is over then.
    pub fn next_pane(&mut self) -> Result<Option<(PaneKey<'_>, Stored<'_>)>, StateError> {
        loop {
            if self.started {
                self.rows.next();
            } else {
                self.rows.seek_to_first();
                self.started = true;
            }
            if !self.rows.valid() {
                self.rows.status().map_err(StateError::engine("scan panes"))?;
                return Ok(None);
            }
            if self.is_live() {
                break;
            }
        }
        Ok(self.rows.item().and_then(|(key, value)| match parse(key)? {
            StateKey::Pane(pane) => Some((pane, Stored::parse(value))),
            StateKey::Sentinel => None,
        }))
    }

    fn is_live(&self) -> bool {
        match self.rows.key().and_then(parse) {
            Some(StateKey::Pane(pane)) => {
                self.horizon.is_none_or(|horizon| !horizon.get().expired(pane.end, self.allowed_lateness))
            }
            // Not a pane; the read-only face counts such keys.
            Some(StateKey::Sentinel) | None => false,
        }
    }
}

/// Where a scan starts and ends.
pub(super) struct Reach {
    /// First key, inclusive.
    from: Vec<u8>,
    /// Last key, exclusive.
    to: Vec<u8>,
}

impl Reach {
    /// All panes whose window end lies in a range.
    pub(super) fn ends(ends: impl RangeBounds<EventTime>) -> Self {
        let from = match ends.start_bound() {
            Bound::Unbounded => BEFORE_PANES.to_vec(),
            Bound::Included(&end) => first_of_end(end),
            Bound::Excluded(&end) => first_after(end),
        };
        Self { from, to: upper(ends.end_bound()) }
    }

    /// Panes after `pane`, in key order, up to a bound on the end.
    pub(super) fn after(pane: PaneKey<'_>, to: Bound<EventTime>) -> Self {
        let mut from = Vec::with_capacity(10 + pane.key.len());
        write_pane(&mut from, pane);
        // The immediate successor in byte order.
        from.push(0);
        Self { from, to: upper(to.as_ref()) }
    }
}

fn upper(bound: Bound<&EventTime>) -> Vec<u8> {
    match bound {
        Bound::Unbounded => AFTER_PANES.to_vec(),
        Bound::Included(&end) => first_after(end),
        Bound::Excluded(&end) => first_of_end(end),
    }
}

/// Before every pane that ends after `end`.
fn first_after(end: EventTime) -> Vec<u8> {
    match end.as_millis().checked_add(1) {
        Some(next) => first_of_end(EventTime::from_millis(next)),
        None => AFTER_PANES.to_vec(),
    }
}

impl Engine {
    pub(super) fn scan(&self, id: FamilyId, reach: Reach) -> Result<PaneScan<'_>, StateError> {
        let family = self.family(id)?;
        let live = first_live(Live::under(family.horizon.get(), family.allowed_lateness));
        let from = reach.from.max(live);
        // RocksDB wants the bounds in order; an empty range is one.
        let to = reach.to.max(from.clone());
        let rows = self.db.raw_iterator_cf_opt(self.handle(&family.column_family)?, bounded(from, to));
        Ok(PaneScan {
            rows,
            horizon: Some(&family.horizon),
            allowed_lateness: family.allowed_lateness,
            started: false,
        })
    }

    /// All that is in the files, deleted ranges included.
    #[expect(
        deprecated,
        reason = "only a reader of what range deletes have left asks for it; nothing else tells that"
    )]
    pub(super) fn scan_remains(&self, id: FamilyId) -> Result<PaneScan<'_>, StateError> {
        let family = self.family(id)?;
        let mut options = bounded(BEFORE_PANES.to_vec(), AFTER_PANES.to_vec());
        options.set_ignore_range_deletions(true);
        let rows = self.db.raw_iterator_cf_opt(self.handle(&family.column_family)?, options);
        let allowed_lateness = family.allowed_lateness;
        Ok(PaneScan { rows, horizon: None, allowed_lateness, started: false })
    }
}

fn bounded(from: Vec<u8>, to: Vec<u8>) -> ReadOptions {
    let mut options = ReadOptions::default();
    options.set_iterate_lower_bound(from);
    options.set_iterate_upper_bound(to);
    options.set_verify_checksums(true);
    options.set_total_order_seek(true);
    // A firing scan reads each pane for the last time; it should not push out what is read again.
    options.fill_cache(false);
    options
}
