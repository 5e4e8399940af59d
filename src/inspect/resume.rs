//! The panes that a task would go on with, out of a published checkpoint, for one operator: those of a key, or those
//! of a stretch of time. Read into an operator that works in memory; nothing is written anywhere.

use std::ops::Bound;
use std::path::Path;

use crate::checkpoint::Manifest;
use crate::codec::PaneKey;
use crate::error::{Error, ErrorKind, Result};
use crate::event_time::EventTime;
use crate::inspect::choice::with_checkpoint;
use crate::inspect::shape::OpenState;
use crate::inspect::windows::{Origin, origin};
use crate::operator::{RowBuffer, WindowOperator};
use crate::state::FamilyId;
use crate::store::decode;

/// Which panes are wanted.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// Of this key only.
    pub(crate) key: Option<Vec<u8>>,
    /// Without a key: of the first one that has a live pane.
    pub(crate) first_key: bool,
    /// Of windows, or slices, that end after the first instant and by the second; `None` for all.
    pub(crate) ends: Option<(EventTime, EventTime)>,
}

/// An operator as it was at a checkpoint, as far as it was wanted.
pub(crate) struct Resumed {
    /// The checkpoint.
    pub(crate) origin: Origin,
    /// All it says of itself.
    pub(crate) manifest: Manifest,
    /// The operator, with the panes in it.
    pub(crate) operator: WindowOperator,
    /// The key that was wanted or found.
    pub(crate) key: Option<Vec<u8>>,
    /// The same panes by end of their window, or slice.
    pub(crate) panes: Vec<(EventTime, RowBuffer)>,
}

/// Reads the checkpoint of epoch `at`, or the newest one. `prepare` makes the operator, as of the watermark of the
/// checkpoint, and refuses one that does not fit.
///
/// # Errors
/// Those of `prepare`; [`ErrorKind::Invalid`] when there is no such checkpoint, [`ErrorKind::Damaged`] when files
/// cannot be read back, [`ErrorKind::Incompatible`] when another version wrote them.
pub(crate) fn resume(
    path: &Path,
    at: Option<u64>,
    now_ms: i64,
    wanted: &Wanted,
    prepare: impl Fn(&Manifest) -> Result<WindowOperator>,
) -> Result<Resumed> {
    with_checkpoint(path, at, |chosen| {
        let mut operator = prepare(&chosen.manifest)?;
        let open = OpenState::open(&chosen.summary, &chosen.manifest)?;
        open.set_horizons(&chosen.manifest)?;
        let name = &operator.spec().name;
        let index = open.shapes.iter().position(|shape| shape.spec().name == *name);
        let family = FamilyId(index.ok_or_else(|| {
            Error::new(ErrorKind::Incompatible, format!("the checkpoint has no such window: window={name}"))
                .with_remedy("name the state directory of this pipeline")
        })?);
        let key = match &wanted.key {
            None if wanted.first_key => first_key(&open, family, &operator)?,
            known => known.clone(),
        };
        let panes = match &key {
            None if wanted.first_key => Vec::new(),
            Some(key) => panes_of_key(&open, family, &operator, key, wanted.ends)?,
            None => panes_of_all(&open, family, &operator, wanted.ends)?,
        };
        for (end, rows) in &panes {
            operator.restore_window(*end, Some(rows));
        }
        let manifest = chosen.manifest.clone();
        Ok(Resumed { origin: origin(chosen, now_ms), manifest, operator, key, panes })
    })
}

/// The ends that are wanted, as bounds of a scan.
fn bounds(ends: Option<(EventTime, EventTime)>) -> (Bound<EventTime>, Bound<EventTime>) {
    match ends {
        Some((after, to)) => (Bound::Excluded(after), Bound::Included(to)),
        None => (Bound::Unbounded, Bound::Unbounded),
    }
}

fn first_key(open: &OpenState, family: FamilyId, operator: &WindowOperator) -> Result<Option<Vec<u8>>> {
    let mut scan = open.state.scan(family, ..)?;
    while let Some((pane, _)) = scan.next_pane()? {
        if !operator.is_expired(pane.end) {
            return Ok(Some(pane.key.to_vec()));
        }
    }
    Ok(None)
}

/// Looks into each window without reading it through.
fn panes_of_key(
    open: &OpenState,
    family: FamilyId,
    operator: &WindowOperator,
    key: &[u8],
    ends: Option<(EventTime, EventTime)>,
) -> Result<Vec<(EventTime, RowBuffer)>> {
    let mut found = Vec::new();
    let (mut after, to) = bounds(ends);
    loop {
        let next = open.state.scan(family, (after, to))?.next_pane()?.map(|(pane, _)| pane.end);
        let Some(end) = next else { return Ok(found) };
        after = Bound::Excluded(end);
        if operator.is_expired(end) {
            continue;
        }
        if let Some(stored) = open.state.get(family, PaneKey { end, key })? {
            let mut rows = RowBuffer::new(operator.layout());
            decode(stored.get(), end, key, |payload| rows.push_payload(key, payload))?;
            found.push((end, rows));
        }
    }
}

fn panes_of_all(
    open: &OpenState,
    family: FamilyId,
    operator: &WindowOperator,
    ends: Option<(EventTime, EventTime)>,
) -> Result<Vec<(EventTime, RowBuffer)>> {
    let mut found: Vec<(EventTime, RowBuffer)> = Vec::new();
    let mut scan = open.state.scan(family, bounds(ends))?;
    while let Some((pane, stored)) = scan.next_pane()? {
        if operator.is_expired(pane.end) {
            continue;
        }
        if found.last().is_none_or(|(end, _)| *end != pane.end) {
            found.push((pane.end, RowBuffer::new(operator.layout())));
        }
        if let Some((_, rows)) = found.last_mut() {
            decode(stored, pane.end, pane.key, |payload| rows.push_payload(pane.key, payload))?;
        }
    }
    Ok(found)
}
