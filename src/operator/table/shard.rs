//! The panes of some of the keys of a window: an open-addressing table from user key to a row of words.
//!
//! Keys up to 20 bytes sit in their slot, so finding a pane usually costs one cache line and its row another. A shard
//! knows nothing of what the words mean, and nothing of disks.

use super::key_hash;
use crate::aggregate::{Layout, Sketches, Touch};
use crate::operator::{EventBatch, KeyColumn};

/// Keys up to this many bytes are stored inside their slot.
const INLINE: usize = 20;
/// Slots of the smallest table.
const SLOTS_MIN: usize = 16;
/// Marks a slot without a row.
const EMPTY: u32 = u32::MAX;
/// Events whose places are looked up ahead, and that are then added to their rows while these are in the cache.
const EVENTS_AT_ONCE: usize = 64;

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

/// Slots from which on their doubling is worth foreseeing.
const FORESEEN_MIN: usize = 1 << 14;

const VACANT: Slot = Slot { row: EMPTY, hash: 0, len: 0, bytes: [0; INLINE] };

/// Rows and their keys. Rows are numbered from 0 in the order of first appearance.
#[derive(Clone, Debug)]
pub(super) struct Shard {
    slots: Vec<Slot>,
    slot_of_row: Vec<u32>,
    long_keys: Vec<u8>,
    pub(super) words: Vec<u64>,
    // States that the words point to.
    pub(super) sketches: Sketches,
    dirty: Vec<bool>,
    dirty_rows: usize,
    // Events of the current batch that were not added to their rows yet.
    touches: Vec<Touch>,
}

impl Shard {
    pub(super) fn new() -> Self {
        Self {
            slots: vec![VACANT; SLOTS_MIN],
            slot_of_row: Vec::new(),
            long_keys: Vec::new(),
            words: Vec::new(),
            sketches: Sketches::default(),
            dirty: Vec::new(),
            dirty_rows: 0,
            touches: Vec::new(),
        }
    }

    pub(super) fn clear(&mut self) {
        self.slots.fill(VACANT);
        self.slot_of_row.clear();
        self.long_keys.clear();
        self.words.clear();
        self.sketches.clear();
        self.dirty.clear();
        self.dirty_rows = 0;
        self.touches.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.slot_of_row.len()
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

    /// Bytes that it is about to take for its slots: they double at once, and the old ones go only when the new ones are
    /// filled.
    pub(super) fn growth_bytes(&self) -> usize {
        let near =
            self.slots.len() >= FORESEEN_MIN && self.len() * 2 + self.slots.len() / 8 > self.slots.len();
        if near { self.slots.len() * 2 * size_of::<Slot>() } else { 0 }
    }

    /// Reads the slot where `hash` is looked for. Without a branch between them such reads overlap, while look-ups,
    /// which branch on what they find, wait for each.
    #[inline]
    pub(super) fn peek(&self, hash: u64) -> u32 {
        self.slots[hash as usize & (self.slots.len() - 1)].row
    }

    /// Reads key and words of a row, for the same reason.
    #[inline]
    pub(super) fn peek_row(&self, row: usize, stride: usize) -> (u32, u64) {
        let slot = self.slots[self.slot_of_row[row] as usize].row;
        // A row may lie on two cache lines.
        let words = row * stride;
        (slot, self.words[words] ^ self.words[words + stride.saturating_sub(1)])
    }

    /// The row of `key`, made from the identity if need be. The flag tells whether it is new.
    #[inline]
    pub(super) fn find_or_insert(&mut self, key: &[u8], hash: u64, layout: &Layout) -> (u32, bool) {
        let at = self.probe(key, hash);
        let row = self.slots[at].row;
        if row != EMPTY {
            return (row, false);
        }
        (self.insert_at(at, key, hash, layout), true)
    }

    /// The row of `key`, if it has one.
    pub(super) fn find(&self, key: &[u8], hash: u64) -> Option<u32> {
        let row = self.slots[self.probe(key, hash)].row;
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
    fn insert_at(&mut self, at: usize, key: &[u8], hash: u64, layout: &Layout) -> u32 {
        // How many bits a row has is said in `super`: at 8 bytes and more per word that is beyond any memory budget.
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
        self.words.extend_from_slice(layout.identity());
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
        for slot in old.iter().filter(|slot| slot.row != EMPTY) {
            let mut at = key_hash(self.key_in(slot)) as usize & mask;
            while self.slots[at].row != EMPTY {
                at = (at + 1) & mask;
            }
            self.slots[at] = *slot;
            self.slot_of_row[slot.row as usize] = at as u32;
        }
    }

    pub(super) fn key(&self, row: usize) -> &[u8] {
        self.key_in(&self.slots[self.slot_of_row[row] as usize])
    }

    /// All rows with their keys, in the order in which they lie in memory, unless most of that is empty.
    pub(super) fn keys(&self) -> impl Iterator<Item = (u32, &[u8])> + '_ {
        let sparse = self.len() * 8 < self.slots.len();
        let by_row = sparse.then(|| (0..self.len()).map(|row| (row as u32, self.key(row))));
        let filled = || self.slots.iter().filter(|slot| slot.row != EMPTY);
        let by_slot = (!sparse).then(|| filled().map(|slot| (slot.row, self.key_in(slot))));
        by_row.into_iter().flatten().chain(by_slot.into_iter().flatten())
    }

    #[inline]
    pub(super) fn touch(&mut self, row: u32, event: u32) {
        self.mark_dirty(row as usize);
        self.touches.push(Touch { row, event });
    }

    /// Adds the touched events of `batch` to their rows.
    pub(super) fn settle(&mut self, batch: &EventBatch, layout: &Layout) {
        for touches in self.touches.chunks(EVENTS_AT_ONCE * 4) {
            layout.update(&mut self.words, &mut self.sketches, touches, batch);
        }
        self.touches.clear();
    }

    /// Finds or makes the rows of those of `events` that are `mine` by their hash, and adds them.
    pub(super) fn take(
        &mut self,
        events: &[u32],
        mine: impl Fn(u64) -> bool,
        (keys, hashes): (&KeyColumn, &[u64]),
        batch: &EventBatch,
        layout: &Layout,
    ) {
        let mut mine = events.iter().copied().filter(|&event| mine(hashes[event as usize]));
        let mut next = [0; EVENTS_AT_ONCE];
        loop {
            let mut count = 0;
            for (place, event) in next.iter_mut().zip(&mut mine) {
                *place = event;
                count += 1;
            }
            if count == 0 {
                return;
            }
            let next = &next[..count];
            let read = next.iter().fold(0, |read, &event| read ^ self.peek(hashes[event as usize]));
            std::hint::black_box(read);
            for &event in next {
                let index = event as usize;
                let (row, _) = self.find_or_insert(keys.get(index), hashes[index], layout);
                self.touch(row, event);
            }
            self.settle(batch, layout);
        }
    }

    /// Notes that a row differs from what the state database holds.
    #[inline]
    pub(super) fn mark_dirty(&mut self, row: usize) {
        let dirty = &mut self.dirty[row];
        if !*dirty {
            *dirty = true;
            self.dirty_rows += 1;
        }
    }

    pub(super) fn mark_clean(&mut self, row: usize) {
        if std::mem::take(&mut self.dirty[row]) {
            self.dirty_rows -= 1;
        }
    }

    pub(super) fn dirty_rows(&self) -> usize {
        self.dirty_rows
    }

    /// Hands out the dirty rows and counts every row as clean.
    pub(super) fn take_dirty(&mut self, mut each: impl FnMut(u32)) {
        for (row, dirty) in self.dirty.iter_mut().enumerate() {
            if std::mem::take(dirty) {
                each(row as u32);
            }
        }
        self.dirty_rows = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_half_a_cache_line() {
        assert_eq!((size_of::<Slot>(), align_of::<Slot>()), (32, 32));
    }
}
