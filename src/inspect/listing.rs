//! Every pane of a checkpoint with its status, as far as it is asked for, up to a limit; and totals over all.

use std::path::Path;

use serde::Serialize;

use crate::error::Result;
use crate::event_time::EventTime;
use crate::inspect::choice::with_checkpoint;
use crate::inspect::key::Key;
use crate::inspect::scan::{Counter, PaneFilter, Seen, Watcher, each_pane};
use crate::inspect::shape::{OpenState, Shape};
use crate::inspect::status::{Standing, WindowStatus, last_end};
use crate::inspect::text::{Aggregates, as_optional_text, as_text};
use crate::inspect::windows::{Origin, origin};

/// The panes of a checkpoint that were asked for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PanesReport {
    /// The checkpoint.
    pub checkpoint: Origin,
    /// The panes, by operator.
    pub operators: Vec<OperatorListing>,
}

/// The panes of one operator that were asked for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperatorListing {
    /// The operator's name.
    pub name: String,
    /// Its windows, in words.
    pub windows: String,
    /// Names of its key fields.
    pub key: Vec<String>,
    /// True when windows share slices: then each pane is one slice of one key.
    pub slices: bool,
    /// All panes that were asked for, listed or not.
    pub totals: StatusTotals,
    /// The panes, by end of their window, then by key, up to the limit.
    pub panes: Vec<ListedPane>,
    /// Panes beyond the limit.
    pub panes_left_out: u64,
}

/// Panes by status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StatusTotals {
    /// Of open windows.
    pub open: PaneTotals,
    /// Of windows that are due and yet to fire.
    pub closing: PaneTotals,
    /// Of windows that have fired and still take late events.
    pub accepts_late: PaneTotals,
    /// Of expired windows that are still on disk.
    pub expired: PaneTotals,
}

impl StatusTotals {
    /// Those of one status.
    #[must_use]
    pub const fn of(&self, status: WindowStatus) -> PaneTotals {
        match status {
            WindowStatus::Open => self.open,
            WindowStatus::Closing => self.closing,
            WindowStatus::AcceptsLate => self.accepts_late,
            WindowStatus::Expired => self.expired,
        }
    }

    pub(super) fn add(&mut self, seen: &Seen<'_>) {
        let totals = match seen.status {
            WindowStatus::Open => &mut self.open,
            WindowStatus::Closing => &mut self.closing,
            WindowStatus::AcceptsLate => &mut self.accepts_late,
            WindowStatus::Expired => &mut self.expired,
        };
        totals.add(seen);
    }
}

/// Sums over panes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PaneTotals {
    /// Panes.
    pub panes: u64,
    /// Events in them.
    pub events: u64,
    /// Bytes of their keys and values, before compression.
    pub bytes: u64,
    /// Panes that cannot be read.
    pub damaged: u64,
}

impl PaneTotals {
    pub(super) fn add(&mut self, seen: &Seen<'_>) {
        self.panes += 1;
        self.bytes = self.bytes.saturating_add(seen.bytes);
        match seen.events {
            Ok(events) => self.events = self.events.saturating_add(events),
            Err(_) => self.damaged += 1,
        }
    }
}

/// One pane.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListedPane {
    /// Its key.
    pub key: Key,
    /// First instant of its window, or slice.
    #[serde(serialize_with = "as_text")]
    pub start: EventTime,
    /// First instant after it.
    #[serde(serialize_with = "as_text")]
    pub end: EventTime,
    /// Where its window stands; a slice as the last window that holds it.
    pub status: WindowStatus,
    /// The watermark at which the last window that holds it closes; absent where none does.
    #[serde(serialize_with = "as_optional_text")]
    pub closes_at: Option<EventTime>,
    /// The watermark at which its state may go; absent where it never may.
    #[serde(serialize_with = "as_optional_text")]
    pub expires_at: Option<EventTime>,
    /// Its events, or with `discarding` those since it fired last; absent when it cannot be read.
    pub events: Option<u64>,
    /// How often it was emitted; absent where panes fire once and are gone.
    pub emissions: Option<u32>,
    /// Bytes of key and value, before compression.
    pub bytes: u64,
    /// Its aggregates; none when it cannot be read.
    pub aggregates: Aggregates,
    /// Why it cannot be read.
    pub problem: Option<String>,
}

/// The panes that `filter` asks for in the checkpoint of epoch `at`, or in the newest one under `path`, at most `limit`
/// of each operator; expired ones that are still on disk are among them.
///
/// # Errors
/// [`crate::error::ErrorKind::Invalid`] when there is no such checkpoint, window or key,
/// [`crate::error::ErrorKind::Damaged`] when files cannot be read back,
/// [`crate::error::ErrorKind::Incompatible`] when another version wrote them.
pub fn panes(
    path: &Path,
    at: Option<u64>,
    filter: &PaneFilter,
    limit: usize,
    now_ms: i64,
    watcher: Watcher<'_>,
) -> Result<PanesReport> {
    with_checkpoint(path, at, |chosen| {
        let open = OpenState::open(&chosen.summary, &chosen.manifest)?;
        let mut counter = Counter::new(&chosen.manifest, &mut *watcher);
        let mut operators = Vec::new();
        for index in filter.operators(&open)? {
            let (shape, standing) = (&open.shapes[index], open.standing(&chosen.manifest, index));
            let mut listing = listing_of(shape);
            each_pane(&open, &chosen.manifest, index, filter, &mut counter, &mut |seen| {
                listing.totals.add(seen);
                if listing.panes.len() < limit {
                    listing.panes.push(listed(shape, &standing, seen));
                } else {
                    listing.panes_left_out += 1;
                }
                Ok(())
            })?;
            operators.push(listing);
        }
        Ok(PanesReport { checkpoint: origin(chosen, now_ms), operators })
    })
}

fn listing_of(shape: &Shape) -> OperatorListing {
    let spec = shape.spec();
    OperatorListing {
        name: spec.name.clone(),
        windows: spec.windows.to_string(),
        key: spec.key.clone(),
        slices: spec.shares_slices(),
        totals: StatusTotals::default(),
        panes: Vec::new(),
        panes_left_out: 0,
    }
}

/// A pane as it is listed.
pub(super) fn listed(shape: &Shape, standing: &Standing, seen: &Seen<'_>) -> ListedPane {
    let spec = shape.spec();
    let closes = last_end(spec, seen.piece);
    let readable = seen.events.is_ok();
    ListedPane {
        key: Key::from_stored(seen.key, spec.key.len()),
        start: seen.piece.start,
        end: seen.piece.end,
        status: seen.status,
        closes_at: Some(closes).filter(|end| !standing.endless && *end != EventTime::MAX),
        expires_at: standing.expires_at(closes),
        events: seen.events.as_ref().ok().copied(),
        emissions: if readable { shape.emissions(seen.row) } else { None },
        bytes: seen.bytes,
        aggregates: if readable { shape.aggregates(seen.row) } else { Aggregates::default() },
        problem: seen.events.as_ref().err().cloned(),
    }
}
