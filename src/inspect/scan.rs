//! Going through the panes of a checkpoint, one after the other: by operator, window, key, key prefix and status.
//!
//! Holds one pane at a time, however many there are, and says now and then how far it has come. Panes of a key or of a
//! key prefix are looked up window by window, without reading the others.

use std::ops::Bound;

use crate::checkpoint::Manifest;
use crate::codec::{KeyWriter, PaneKey};
use crate::error::{Error, ErrorKind, Result};
use crate::event_time::{EventTime, Window};
use crate::inspect::key::Key;
use crate::inspect::shape::{OpenState, Shape};
use crate::inspect::status::{Standing, WindowStatus};
use crate::inspect::windows::selected;
use crate::operator::RowBuffer;
use crate::state::{FamilyId, Stored};

/// Rows between two calls of a watcher.
const ROWS_PER_CALL: u64 = 1 << 16;
/// Bytes of a stored key before the user key: a tag and the end of the window.
const KEY_BYTES: u64 = 9;

/// How far a scan has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Rows read.
    pub rows: u64,
    /// About how many there are, by the manifest; what is deleted and not yet gone from the files is counted in.
    pub rows_about: u64,
}

/// Is told now and then how far a scan has come.
pub type Watcher<'a> = &'a mut dyn FnMut(Scanned);

/// Which panes are asked for. The default is all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PaneFilter {
    /// Of the operator of this name only.
    pub window: Option<String>,
    /// Of this key only.
    pub key: Option<Key>,
    /// Of keys that begin so: all components but the last as they are, of the last one the beginning.
    pub key_prefix: Option<Key>,
    /// Of windows that end after this.
    pub from: Option<EventTime>,
    /// Of windows that start before this.
    pub to: Option<EventTime>,
    /// Of windows that stand so; empty for all.
    pub statuses: Vec<WindowStatus>,
}

/// A pane as a scan meets it.
pub(super) struct Seen<'a> {
    pub(super) key: &'a [u8],
    /// The window, or the slice that windows share.
    pub(super) piece: Window,
    pub(super) status: WindowStatus,
    /// Bytes of key and value, as they are stored before compression.
    pub(super) bytes: u64,
    /// Its events, or why it cannot be read.
    pub(super) events: std::result::Result<u64, String>,
    /// The pane, when it can be read.
    pub(super) row: &'a RowBuffer,
}

/// The keys that a scan looks at, as they are stored.
enum Keys {
    All,
    One(Vec<u8>),
    Beginning(Vec<u8>),
}

/// Counts rows and tells a watcher.
pub(super) struct Counter<'a> {
    scanned: Scanned,
    watcher: Watcher<'a>,
}

impl<'a> Counter<'a> {
    /// For a scan over the rows of a whole checkpoint.
    pub(super) fn new(manifest: &Manifest, watcher: Watcher<'a>) -> Self {
        let rows_about = manifest.files.iter().filter(|file| file.family.is_some()).map(|file| file.entries);
        let rows_about = rows_about.fold(0, u64::saturating_add);
        Self { scanned: Scanned { rows: 0, rows_about }, watcher }
    }

    pub(super) fn count(&mut self) {
        self.scanned.rows += 1;
        if self.scanned.rows.is_multiple_of(ROWS_PER_CALL) {
            (self.watcher)(self.scanned);
        }
    }
}

impl PaneFilter {
    /// Indexes of the operators that can hold such panes.
    pub(super) fn operators(&self, open: &OpenState) -> Result<Vec<usize>> {
        let selected = selected(open, self.window.as_deref())?;
        let (asked, at_least) = match (&self.key, &self.key_prefix) {
            (Some(key), _) => (key.0.len(), false),
            (None, Some(prefix)) => (prefix.0.len(), true),
            (None, None) => return Ok(selected),
        };
        fitting(open, &selected, |components| components == asked || (at_least && components > asked))
            .ok_or_else(|| no_such_key(open, &selected, asked))
    }

    fn keys(&self, shape: &Shape) -> Keys {
        match (&self.key, &self.key_prefix) {
            (Some(key), _) => Keys::One(key.to_stored()),
            (None, Some(prefix)) => Keys::Beginning(stored_prefix(prefix, shape.spec().key.len().max(1))),
            (None, None) => Keys::All,
        }
    }

    fn wants(&self, piece: Window, status: WindowStatus) -> bool {
        self.from.is_none_or(|from| piece.end > from)
            && self.to.is_none_or(|to| piece.start < to)
            && (self.statuses.is_empty() || self.statuses.contains(&status))
    }
}

/// The operators whose key has a number of components that `fits`; `None` when there is none. A key of none has one
/// empty component.
pub(super) fn fitting(
    open: &OpenState,
    selected: &[usize],
    fits: impl Fn(usize) -> bool,
) -> Option<Vec<usize>> {
    let components = |index: &usize| open.shapes[*index].spec().key.len().max(1);
    let fitting: Vec<usize> = selected.iter().copied().filter(|index| fits(components(index))).collect();
    (!fitting.is_empty()).then_some(fitting)
}

/// The error for a key that no operator has.
pub(super) fn no_such_key(open: &OpenState, selected: &[usize], components: usize) -> Error {
    let keys = selected.iter().map(|&index| {
        let spec = open.shapes[index].spec();
        format!("{} ({})", spec.name, spec.key.join(", "))
    });
    let message = format!("no window has a key of so many components: components={components}");
    Error::new(ErrorKind::Invalid, message).with_remedy(format!(
        "give one component for each key field, in order; the windows and their key fields: {}",
        keys.collect::<Vec<_>>().join("; ")
    ))
}

/// What the stored bytes of keys of so many components begin with.
fn stored_prefix(prefix: &Key, components: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = KeyWriter::new(&mut bytes, components);
    let (last, whole) = prefix.0.split_last().map_or((&[][..], &[][..]), |(last, whole)| (last, whole));
    whole.iter().for_each(|component| writer.push(component));
    if prefix.0.len() == components {
        bytes.extend_from_slice(last);
        return bytes;
    }
    writer.push(last);
    // A component that is not the last of its key has an end; the prefix has none.
    bytes.truncate(bytes.len() - 2);
    bytes
}

/// Hands every pane of the operator at `index` that `filter` asks for to `visit`, by end of its window, then by key.
pub(super) fn each_pane(
    open: &OpenState,
    manifest: &Manifest,
    index: usize,
    filter: &PaneFilter,
    counter: &mut Counter<'_>,
    visit: &mut dyn FnMut(&Seen<'_>) -> Result<()>,
) -> Result<()> {
    let shape = &open.shapes[index];
    let mut scan = Scan {
        open,
        family: FamilyId(index),
        shape,
        standing: open.standing(manifest, index),
        filter,
        row: shape.row(),
        counter,
        visit,
    };
    let from = filter.from.map_or(Bound::Unbounded, Bound::Excluded);
    match filter.keys(shape) {
        Keys::All => scan.all(from),
        Keys::One(key) => scan.one(from, &key),
        Keys::Beginning(prefix) => scan.beginning(from, &prefix),
    }
}

struct Scan<'a, 'w> {
    open: &'a OpenState,
    family: FamilyId,
    shape: &'a Shape,
    standing: Standing,
    filter: &'a PaneFilter,
    row: RowBuffer,
    counter: &'a mut Counter<'w>,
    visit: &'a mut dyn FnMut(&Seen<'_>) -> Result<()>,
}

impl Scan<'_, '_> {
    fn all(&mut self, from: Bound<EventTime>) -> Result<()> {
        let mut rows = self.open.state.scan(self.family, (from, Bound::Unbounded))?;
        while let Some((pane, stored)) = rows.next_pane()? {
            if !self.meet(pane, stored)? {
                break;
            }
        }
        Ok(())
    }

    fn one(&mut self, from: Bound<EventTime>, key: &[u8]) -> Result<()> {
        let mut after = from;
        while let Some(end) = next_end(self.open, self.family, after)? {
            after = Bound::Excluded(end);
            let pane = PaneKey { end, key };
            let Some(stored) = self.open.state.get(self.family, pane)? else { continue };
            if !self.meet(pane, stored.get())? {
                break;
            }
        }
        Ok(())
    }

    fn beginning(&mut self, from: Bound<EventTime>, prefix: &[u8]) -> Result<()> {
        let mut after = from;
        while let Some(end) = next_end(self.open, self.family, after)? {
            after = Bound::Excluded(end);
            let first = PaneKey { end, key: prefix };
            if let Some(stored) = self.open.state.get(self.family, first)?
                && !self.meet(first, stored.get())?
            {
                break;
            }
            let mut rows = self.open.state.scan_after(self.family, first, Bound::Included(end))?;
            while let Some((pane, stored)) = rows.next_pane()? {
                if !pane.key.starts_with(prefix) {
                    break;
                }
                self.meet(pane, stored)?;
            }
        }
        Ok(())
    }

    /// Looks at one pane. False when no later one can be asked for.
    fn meet(&mut self, pane: PaneKey<'_>, stored: Stored<'_>) -> Result<bool> {
        self.counter.count();
        let events = self.shape.read(stored, &mut self.row);
        let piece = self.shape.window(pane.end, &self.row);
        let status = self.standing.status_of(self.shape.spec(), piece);
        if !self.filter.wants(piece, status) {
            let sessions = self.shape.spec().windows.session_gap().is_some();
            return Ok(sessions || self.filter.to.is_none_or(|to| piece.start < to));
        }
        let value = match stored {
            Stored::Pane(bytes) | Stored::Damaged(bytes) => bytes.len() as u64 + 1,
        };
        let bytes = KEY_BYTES + pane.key.len() as u64 + value;
        (self.visit)(&Seen { key: pane.key, piece, status, bytes, events, row: &self.row })?;
        Ok(true)
    }
}

/// End of the first window with panes beyond `after`.
pub(super) fn next_end(
    open: &OpenState,
    family: FamilyId,
    after: Bound<EventTime>,
) -> Result<Option<EventTime>> {
    let mut scan = open.state.scan(family, (after, Bound::Unbounded))?;
    Ok(scan.next_pane()?.map(|(pane, _)| pane.end))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn component() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop_oneof![Just(0_u8), Just(0xff), Just(b'a'), Just(b'b')], 0..4)
    }

    proptest! {
        #[test]
        fn stored_keys_begin_as_the_prefix_exactly_when_their_components_do(
            key in prop::collection::vec(component(), 1..4),
            prefix in prop::collection::vec(component(), 1..4),
        ) {
            prop_assume!(prefix.len() <= key.len());
            let (last, whole) = prefix.split_last().unwrap();
            let begins = key.starts_with(whole) && key[whole.len()].starts_with(last);
            let stored = Key(key.clone()).to_stored();
            let found = stored.starts_with(&stored_prefix(&Key(prefix.clone()), key.len()));
            prop_assert_eq!(found, begins, "key {:?} prefix {:?}", key, prefix);
        }
    }

    #[test]
    fn a_filter_asks_for_windows_that_overlap_a_stretch_of_time() {
        let at = EventTime::from_millis;
        let filter = PaneFilter { from: Some(at(10)), to: Some(at(20)), ..PaneFilter::default() };
        let wants = |start, end| filter.wants(Window { start: at(start), end: at(end) }, WindowStatus::Open);
        assert!(!wants(0, 10) && wants(0, 11) && wants(19, 30) && !wants(20, 30) && wants(0, 100));
        let late = PaneFilter { statuses: vec![WindowStatus::AcceptsLate], ..PaneFilter::default() };
        let window = Window { start: at(0), end: at(1) };
        assert!(late.wants(window, WindowStatus::AcceptsLate) && !late.wants(window, WindowStatus::Open));
    }
}
