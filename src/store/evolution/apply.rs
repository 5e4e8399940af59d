//! Carrying a plan out: families come and go, and panes are rewritten in the fresh working database, before it is opened
//! for work. Nothing else is touched; a restart before the next checkpoint does it all again.

use std::path::Path;
use std::sync::Arc;

use super::migration::StoredPane;
use super::{Origin, Plan, Rewrite, shape, window};
use crate::aggregate::{Layout, PayloadError};
use crate::checkpoint::{Manifest, OperatorState};
use crate::codec::PaneKey;
use crate::error::{Error, ErrorKind, Result};
use crate::event_time::{EventTime, Watermark};
use crate::operator::{OperatorSpec, RowBuffer};
use crate::state::{FamilyId, FamilySpec, PaneMerge, StateDb, StateMemory, Stored, Write};

/// Panes rewritten in one go: memory is bounded by this, and by the bytes below.
const PANES_AT_ONCE: usize = 1 << 16;
/// Bytes of keys and payloads after which they are written, however few they are.
const BYTES_AT_ONCE: usize = 32 << 20;
/// First byte of a payload that is a list of parts. It lives in the working database only, while panes are rewritten.
const PARTS: u8 = 0xf0;

/// Gives the database of a checkpoint in `work` the families that are asked for, which `families` lists, windows first.
///
/// # Errors
/// [`ErrorKind::Damaged`] when a pane cannot be read, [`ErrorKind::Incompatible`] when a declared migration fails,
/// [`ErrorKind::Unavailable`] when the disk does.
pub(in crate::store) fn reshape(
    work: &Path,
    manifest: &Manifest,
    plan: &Plan,
    windows: &[OperatorSpec],
    families: &[FamilySpec],
    memory: &StateMemory,
) -> Result<()> {
    let mut db = StateDb::open(work, &stored_families(manifest, plan, families), memory)?;
    let mut gone: Vec<FamilyId> = plan.gone.iter().map(|&index| FamilyId(index)).collect();
    for (index, (origin, family)) in plan.origins.iter().zip(families).enumerate() {
        match origin {
            Origin::Same(_) => {}
            Origin::New => {
                db.create_family(family)?;
            }
            Origin::Taken { rewrite: None, renamed: false, .. } => {}
            Origin::Taken { from, rewrite, renamed } => {
                let source = FamilyId(*from);
                let target = if *renamed { db.create_family(family)? } else { source };
                if *renamed {
                    gone.push(source);
                }
                let Some(spec) = windows.get(index) else { continue };
                let state = &manifest.operators[*from];
                let horizon = horizon_of(manifest, origin, spec);
                let rewriting = Rewriting {
                    state,
                    rewrite: rewrite.as_ref(),
                    layout: Arc::new(spec.layout()),
                    keeps: &|end| !horizon.expired(end, family.allowed_lateness),
                };
                let panes = rewriting.run(&db, source, target)?;
                tracing::info!(window = %spec.name, panes, "state taken over");
            }
        }
    }
    Ok(db.close_without(&gone)?)
}

/// The eviction horizon that a window starts with.
pub(in crate::store) fn horizon_of(manifest: &Manifest, origin: &Origin, spec: &OperatorSpec) -> Watermark {
    match origin {
        Origin::New => super::start_of(manifest, spec),
        Origin::Same(from) => manifest.operators[*from].horizon,
        Origin::Taken { from, .. } => {
            let state = &manifest.operators[*from];
            match shape::stored_spec(state) {
                // What had expired by the checkpoint is not rewritten: it must not be seen any more.
                Some(old) => window::horizon(state, &old, spec).max(state.horizon),
                None => state.horizon,
            }
        }
    }
}

/// The families as they are stored, in the order of the manifest.
fn stored_families(manifest: &Manifest, plan: &Plan, families: &[FamilySpec]) -> Vec<FamilySpec> {
    let family = |(index, state): (usize, &OperatorState)| {
        let kept = plan.origins.iter().zip(families).find_map(|(origin, family)| match origin {
            Origin::Same(from) | Origin::Taken { from, rewrite: None, renamed: false } if *from == index => {
                Some(family.clone())
            }
            _ => None,
        });
        kept.unwrap_or_else(|| FamilySpec {
            name: state.name.clone(),
            allowed_lateness: crate::event_time::Span::MAX,
            merge: Arc::new(KeepParts),
        })
    };
    manifest.operators.iter().enumerate().map(family).collect()
}

/// One family on its way.
struct Rewriting<'a> {
    state: &'a OperatorState,
    // `None`: payloads stay, only the family is another.
    rewrite: Option<&'a Rewrite>,
    layout: Arc<Layout>,
    // Panes that have not expired.
    keeps: &'a dyn Fn(EventTime) -> bool,
}

/// Rewritten panes, about to be written.
#[derive(Default)]
struct Chunk {
    // End, and where key and payload end in the bytes.
    panes: Vec<(EventTime, usize, usize)>,
    bytes: Vec<u8>,
}

impl Chunk {
    fn push(&mut self, end: EventTime, key: &[u8], payload: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(payload);
        self.panes.push((end, key_end, self.bytes.len()));
    }

    fn is_full(&self) -> bool {
        self.panes.len() >= PANES_AT_ONCE || self.bytes.len() >= BYTES_AT_ONCE
    }

    fn write(&mut self, db: &StateDb, family: FamilyId) -> Result<u64> {
        let count = self.panes.len();
        if count == 0 {
            return Ok(0);
        }
        let mut start = 0;
        let entries = self.panes.iter().map(|&(end, key_end, payload_end)| {
            let key = &self.bytes[std::mem::replace(&mut start, payload_end)..key_end];
            (PaneKey { end, key }, Write::Put(&self.bytes[key_end..payload_end]))
        });
        db.write_sorted(family, entries, count)?;
        self.panes.clear();
        self.bytes.clear();
        Ok(count as u64)
    }
}

impl Rewriting<'_> {
    /// Rewrites every live pane, which replaces all its parts. Returns how many.
    fn run(&self, db: &StateDb, from: FamilyId, to: FamilyId) -> Result<u64> {
        // The scan sees the family as it was when it began.
        let mut scan = db.scan(from, ..)?;
        let mut chunk = Chunk::default();
        let mut written = 0;
        while let Some((pane, stored)) = scan.next_pane()? {
            if !(self.keeps)(pane.end) {
                continue;
            }
            let Stored::Pane(payload) = stored else {
                return Err(self.damaged(pane, "its parts could not be merged"));
            };
            chunk.push(pane.end, pane.key, &self.rewritten(pane, payload)?);
            if chunk.is_full() {
                written += chunk.write(db, to)?;
            }
        }
        Ok(written + chunk.write(db, to)?)
    }

    fn rewritten(&self, pane: PaneKey<'_>, payload: &[u8]) -> Result<Vec<u8>> {
        let mut row = RowBuffer::new(&self.layout);
        for part in parts(payload).ok_or_else(|| self.damaged(pane, "its parts cannot be told apart"))? {
            let part = self.part(pane, part)?;
            let pushed = row.push_payload(&[], &part);
            pushed.map_err(|error| self.damaged(pane, &error.to_string()))?;
            if row.len() == 2 {
                let mut other = RowBuffer::new(&self.layout);
                other.push(&[], row.row(1));
                row.pop();
                row.row_mut(0).merge(other.row(0));
            }
        }
        let mut bytes = Vec::new();
        if row.is_empty() {
            row.push_identity(&[]);
        }
        row.row(0).write_payload(&mut bytes);
        Ok(bytes)
    }

    fn part(&self, pane: PaneKey<'_>, payload: &[u8]) -> Result<Vec<u8>> {
        match self.rewrite {
            None => Ok(payload.to_vec()),
            Some(Rewrite::Convert(conversion)) => {
                let mut bytes = Vec::new();
                let converted: Result<(), PayloadError> = conversion.convert(payload, &mut bytes);
                converted.map_err(|error| self.damaged(pane, &error.to_string()))?;
                Ok(bytes)
            }
            Some(Rewrite::Migrate(migration)) => {
                let PaneKey { end, key } = pane;
                let migrated = migration.migrate(StoredPane { operator: self.state, end, key, payload });
                migrated.map_err(|why| {
                    let message = format!("declared migration failed: {why} {}", self.place(pane));
                    Error::new(ErrorKind::Incompatible, message)
                        .with_remedy("mend the migration; the stored state is as it was")
                })
            }
        }
    }

    fn place(&self, pane: PaneKey<'_>) -> String {
        format!(
            "window={} key={:?} window_end={}",
            self.state.name,
            pane.key.escape_ascii().to_string(),
            pane.end
        )
    }

    fn damaged(&self, pane: PaneKey<'_>, why: &str) -> Error {
        let message = format!("stored pane cannot be taken over: {why} {}", self.place(pane));
        Error::new(ErrorKind::Damaged, message)
            .with_remedy("run `floodmark inspect verify` on the checkpoints and restore one that holds")
    }
}

/// Keeps the parts of a pane beside each other, until each is in the new form.
struct KeepParts;

impl PaneMerge for KeepParts {
    fn merge(&self, base: &mut Vec<u8>, operand: &[u8]) -> bool {
        let Ok(length) = u32::try_from(operand.len()) else { return false };
        if base.first() != Some(&PARTS) {
            let Ok(length) = u32::try_from(base.len()) else { return false };
            let mut list = vec![PARTS];
            list.extend_from_slice(&length.to_le_bytes());
            list.append(base);
            *base = list;
        }
        if operand.first() == Some(&PARTS) {
            base.extend_from_slice(&operand[1..]);
        } else {
            base.extend_from_slice(&length.to_le_bytes());
            base.extend_from_slice(operand);
        }
        true
    }
}

/// The parts of a payload.
fn parts(payload: &[u8]) -> Option<Vec<&[u8]>> {
    let Some((&PARTS, mut rest)) = payload.split_first() else { return Some(vec![payload]) };
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let (part, after) = after.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
        parts.push(part);
        rest = after;
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back_in_order_however_they_were_merged() {
        let merged = |base: &[u8], operand: &[u8]| {
            let mut base = base.to_vec();
            assert!(KeepParts.merge(&mut base, operand));
            base
        };
        let (a, b, c) = (b"\x01aa".as_slice(), b"\x01".as_slice(), b"\x02cc".as_slice());
        let left = merged(&merged(a, b), c);
        let right = merged(a, &merged(b, c));
        assert_eq!(parts(&left).unwrap(), [a, b, c]);
        assert_eq!(parts(&right).unwrap(), [a, b, c]);
        assert_eq!(parts(a).unwrap(), [a]);
        for length in 2..left.len() {
            assert!(parts(&left[..length]).is_none_or(|parts| parts.len() < 3), "cut to {length}");
        }
    }
}
