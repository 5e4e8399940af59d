//! The panes of one window in memory: an open-addressing table from user key to a row of words.
//!
//! Keys up to 20 bytes sit in their slot, so finding a pane usually costs one cache line and its row another. The
//! table knows nothing of what the words mean, and nothing of disks.

use std::sync::Arc;

use super::{EventBatch, KeyColumn};
use crate::aggregate::{Layout, RowMut, RowRef, Sketches, Touch};
use crate::event_time::Window;

/// Keys up to this many bytes are stored inside their slot.
const INLINE: usize = 20;
/// Slots of the smallest table.
const SLOTS_MIN: usize = 16;
/// Marks a slot without a row.
const EMPTY: u32 = u32::MAX;

/// 32 bytes: half a cache line, and never on two.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Slot {
    row: u32,
    hash: u32,
    len: u32,
    // The key itself, or its offset in `long_keys` in the first eight bytes.
    bytes: [u8; INLINE],
}

const VACANT: Slot = Slot { row: EMPTY, hash: 0, len: 0, bytes: [0; INLINE] };

/// Hash of a user key. The same bytes have the same hash in every build and on every platform (XXH3, 64 bits).
#[must_use]
pub fn key_hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

/// The panes of one window.
#[derive(Clone, Debug)]
pub(super) struct PaneTable {
    pub(super) window: Window,
    /// True while every pane of the window is in this table, none only in the state database. Rows are then whole
    /// panes; else they may be what was added since a spill.
    pub(super) complete: bool,
    /// True once the on-time firing happened (matters only with allowed lateness or other triggers).
    pub(super) closed: bool,
    slots: Vec<Slot>,
    // Slot of each row, in order of first appearance.
    slot_of_row: Vec<u32>,
    long_keys: Vec<u8>,
    layout: Arc<Layout>,
    stride: usize,
    words: Vec<u64>,
    // States that the words point to.
    sketches: Sketches,
    dirty: Vec<bool>,
    dirty_rows: usize,
    /// Events of the current batch that were not added to their rows yet.
    pub(super) touches: Vec<Touch>,
}

impl PaneTable {
    pub(super) fn new(window: Window, layout: &Arc<Layout>, complete: bool) -> Self {
        Self {
            window,
            complete,
            closed: false,
            slots: vec![VACANT; SLOTS_MIN],
            slot_of_row: Vec::new(),
            long_keys: Vec::new(),
            layout: Arc::clone(layout),
            stride: layout.stride(),
            words: Vec::new(),
            sketches: Sketches::default(),
            dirty: Vec::new(),
            dirty_rows: 0,
            touches: Vec::new(),
        }
    }

    /// This table, emptied, for another window: its memory has the right size already.
    pub(super) fn reused_for(mut self, window: Window, complete: bool) -> Self {
        self.window = window;
        self.complete = complete;
        self.closed = false;
        self.slots.fill(VACANT);
        self.slot_of_row.clear();
        self.long_keys.clear();
        self.words.clear();
        self.sketches.clear();
        self.dirty.clear();
        self.dirty_rows = 0;
        self.touches.clear();
        self
    }

    /// Number of panes.
    pub(super) fn len(&self) -> usize {
        self.slot_of_row.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slot_of_row.is_empty()
    }

    /// About how many bytes a row of `stride` words takes without its states, with the room that its table keeps free.
    pub(super) fn bytes_per_row(stride: usize, key_bytes: usize) -> usize {
        let long_key = if key_bytes > INLINE { key_bytes } else { 0 };
        // Between two and four slots per row; vectors are on average three quarters full.
        size_of::<Slot>() * 3 + (stride * 8 + 5 + long_key) * 4 / 3
    }

    /// Bytes held, counted by capacity.
    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
            + self.slot_of_row.capacity() * 4
            + self.long_keys.capacity()
            + self.words.capacity() * 8
            + self.sketches.bytes()
            + self.dirty.capacity()
            + self.touches.capacity() * size_of::<Touch>()
    }

    /// Brings the slots where `hashes` are looked for into the cache. Without a branch between them the reads overlap,
    /// while look-ups, which branch on what they find, wait for each.
    #[inline]
    pub(super) fn warm(&self, hashes: &[u64]) {
        let mask = self.slots.len() - 1;
        let read = hashes.iter().fold(0, |read, &hash| read ^ self.slots[hash as usize & mask].row);
        std::hint::black_box(read);
    }

    /// Brings keys and words of `rows`, which in key order lie all over memory, into the cache.
    pub(super) fn warm_rows(&self, rows: &[u32]) {
        let places = rows.iter().map(|&row| self.slot_of_row[row as usize] as usize);
        let slots = places.fold(0, |read, at| read ^ self.slots[at].row);
        // A row may lie on two cache lines.
        let last = self.stride.saturating_sub(1);
        let words = rows.iter().map(|&row| row as usize * self.stride);
        let words = words.fold(0, |read, at| read ^ self.words[at] ^ self.words[at + last]);
        std::hint::black_box((slots, words));
    }

    /// The row of `key`, made from the identity if need be. The flag tells whether it is new.
    #[inline]
    pub(super) fn find_or_insert(&mut self, key: &[u8], hash: u64) -> (u32, bool) {
        let at = self.probe(key, hash);
        let row = self.slots[at].row;
        if row != EMPTY {
            return (row, false);
        }
        (self.insert_at(at, key, hash), true)
    }

    /// The row of `key`, if it has one.
    pub(super) fn find(&self, key: &[u8]) -> Option<u32> {
        let row = self.slots[self.probe(key, key_hash(key))].row;
        (row != EMPTY).then_some(row)
    }

    /// Index of the slot that holds `key`, or of the vacant slot where it belongs.
    #[inline]
    fn probe(&self, key: &[u8], hash: u64) -> usize {
        let mask = self.slots.len() - 1;
        // The stored 32 bits are the upper half; the lower half picks the slot.
        let tag = (hash >> 32) as u32;
        let mut at = hash as usize & mask;
        loop {
            let slot = &self.slots[at];
            if slot.row == EMPTY || (slot.hash == tag && self.key_in(slot) == key) {
                return at;
            }
            at = (at + 1) & mask;
        }
    }

    #[inline]
    fn key_in<'a>(&'a self, slot: &'a Slot) -> &'a [u8] {
        let len = slot.len as usize;
        if len <= INLINE {
            return &slot.bytes[..len];
        }
        let offset = slot.bytes.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes)) as usize;
        &self.long_keys[offset..offset + len]
    }

    #[cold]
    fn insert_at(&mut self, at: usize, key: &[u8], hash: u64) -> u32 {
        // Rows are numbered in 32 bits: at 8 bytes and more per word that is far beyond any memory budget.
        let row = self.slot_of_row.len() as u32;
        let mut slot = Slot { row, hash: (hash >> 32) as u32, len: key.len() as u32, bytes: [0; INLINE] };
        if key.len() <= INLINE {
            slot.bytes[..key.len()].copy_from_slice(key);
        } else {
            slot.bytes[..8].copy_from_slice(&(self.long_keys.len() as u64).to_le_bytes());
            self.long_keys.extend_from_slice(key);
        }
        self.slots[at] = slot;
        self.slot_of_row.push(at as u32);
        self.words.extend_from_slice(self.layout.identity());
        self.dirty.push(false);
        if self.slot_of_row.len() * 2 > self.slots.len() {
            self.grow();
        }
        row
    }

    /// Doubles the slots. Rows stay where they are.
    fn grow(&mut self) {
        let slots = vec![VACANT; self.slots.len() * 2];
        let old = std::mem::replace(&mut self.slots, slots);
        let mask = self.slots.len() - 1;
        for row in 0..self.slot_of_row.len() {
            let slot = old[self.slot_of_row[row] as usize];
            let key = self.key_in(&slot);
            let mut at = key_hash(key) as usize & mask;
            while self.slots[at].row != EMPTY {
                at = (at + 1) & mask;
            }
            self.slots[at] = slot;
            self.slot_of_row[row] = at as u32;
        }
    }

    /// The key of `row`.
    pub(super) fn key(&self, row: u32) -> &[u8] {
        self.key_in(&self.slots[self.slot_of_row[row as usize] as usize])
    }

    /// The row at index `row`.
    pub(super) fn row(&self, row: u32) -> RowRef<'_> {
        RowRef::new(&self.layout, self.words(row), &self.sketches)
    }

    /// The words of `row`, the extra ones included.
    pub(super) fn words(&self, row: u32) -> &[u64] {
        let at = row as usize * self.stride;
        &self.words[at..at + self.stride]
    }

    /// The row at index `row`, to be changed; it counts as dirty.
    pub(super) fn row_mut(&mut self, row: u32) -> RowMut<'_> {
        self.mark_dirty(row);
        let at = row as usize * self.stride;
        RowMut::new(&self.layout, &mut self.words[at..at + self.stride], &mut self.sketches)
    }

    /// The words of `row`, to be changed; the row counts as dirty.
    pub(super) fn words_mut(&mut self, row: u32) -> &mut [u64] {
        self.mark_dirty(row);
        let at = row as usize * self.stride;
        &mut self.words[at..at + self.stride]
    }

    /// Adds the touched events of `batch` to their rows.
    pub(super) fn settle(&mut self, batch: &EventBatch) {
        self.layout.update(&mut self.words, &mut self.sketches, &self.touches, batch);
        self.touches.clear();
    }

    /// Notes that `row` differs from what the state database holds.
    #[inline]
    pub(super) fn mark_dirty(&mut self, row: u32) {
        let dirty = &mut self.dirty[row as usize];
        if !*dirty {
            *dirty = true;
            self.dirty_rows += 1;
        }
    }

    /// Takes the dirty rows, in no order, and counts every row as clean.
    pub(super) fn take_dirty(&mut self) -> Vec<u32> {
        let mut rows = Vec::with_capacity(self.dirty_rows);
        for (row, dirty) in self.dirty.iter_mut().enumerate() {
            if std::mem::take(dirty) {
                rows.push(row as u32);
            }
        }
        self.dirty_rows = 0;
        rows
    }

    /// Forgets that a row loaded from the state database was changed by loading it.
    pub(super) fn mark_clean(&mut self, row: u32) {
        if std::mem::take(&mut self.dirty[row as usize]) {
            self.dirty_rows -= 1;
        }
    }

    /// Sorts rows by key bytes.
    pub(super) fn sort_by_key(&self, rows: impl Iterator<Item = u32>) -> Vec<u32> {
        let mut order: Vec<(u64, u32)> = rows.map(|row| (key_prefix(self.key(row)), row)).collect();
        order.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| self.key(a.1).cmp(self.key(b.1))));
        order.into_iter().map(|(_, row)| row).collect()
    }

    /// All rows in key order.
    pub(super) fn sorted_rows(&self) -> Vec<u32> {
        self.sort_by_key(0..self.len() as u32)
    }
}

/// The first eight bytes of a key as a number that sorts like them.
fn key_prefix(key: &[u8]) -> u64 {
    if let Some(bytes) = key.first_chunk::<8>() {
        return u64::from_be_bytes(*bytes);
    }
    let mut bytes = [0; 8];
    bytes[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(bytes)
}

/// Hashes all keys of a column into `hashes`.
pub(super) fn hash_keys(keys: &KeyColumn, hashes: &mut Vec<u64>) {
    hashes.clear();
    hashes.extend((0..keys.len()).map(|index| key_hash(keys.get(index))));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::event_time::EventTime;

    fn table() -> PaneTable {
        let window = Window { start: EventTime::from_millis(0), end: EventTime::from_millis(10) };
        PaneTable::new(window, &Arc::new(Layout::with_extra(&[], &[7])), true)
    }

    #[test]
    fn the_hash_has_the_vectors_of_xxh3() {
        assert_eq!(key_hash(b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(key_hash(b"a"), 0xe6c6_32b6_1e96_4e1f);
        assert_eq!(key_hash(b"abc"), 0x78af_5f94_892f_3950);
    }

    #[test]
    fn a_slot_is_half_a_cache_line() {
        assert_eq!((size_of::<Slot>(), align_of::<Slot>()), (32, 32));
    }

    proptest! {
        #[test]
        fn it_behaves_like_a_sorted_map(
            keys in prop::collection::vec(
                prop_oneof![
                    prop::collection::vec(any::<u8>(), 0..4),
                    prop::collection::vec(Just(b'x'), 18..24),
                    prop::collection::vec(any::<u8>(), 0..64),
                ],
                0..200,
            ),
        ) {
            let mut table = table();
            let mut model = BTreeMap::new();
            for key in &keys {
                let (row, new) = table.find_or_insert(key, key_hash(key));
                prop_assert_eq!(new, !model.contains_key(key));
                table.words_mut(row)[0] += 1;
                *model.entry(key.clone()).or_insert(0_u64) += 1;
            }
            prop_assert_eq!(table.len(), model.len());
            let found: Vec<(Vec<u8>, u64)> =
                table.sorted_rows().into_iter().map(|row| (table.key(row).to_vec(), table.row(row).events())).collect();
            prop_assert_eq!(found, model.into_iter().collect::<Vec<_>>());
            prop_assert_eq!(table.take_dirty().len(), table.len());
            prop_assert_eq!(table.take_dirty().len(), 0);
            for key in &keys {
                prop_assert!(!table.find_or_insert(key, key_hash(key)).1);
            }
        }
    }
}
