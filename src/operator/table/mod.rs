//! The panes of one window in memory, divided by key among the workers.

mod shard;
mod sorting;

use std::sync::Arc;

use self::shard::Shard;
use super::workers::Workers;
use super::{EventBatch, KeyColumn};
use crate::aggregate::{Layout, RowMut, RowRef};
use crate::event_time::Window;

/// With fewer events one thread is done sooner than several are woken.
const SHARED_EVENTS_MIN: usize = 256;
/// A smaller table is in the cache, where one thread is as fast as the rest of the way; its core is better used for that.
const SHARED_BYTES_MIN: usize = 4 << 20;

/// Hash of a user key. The same bytes have the same hash in every build and on every platform (XXH3, 64 bits).
#[must_use]
pub fn key_hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

/// The shard, of so many, that a key belongs to. The lower half of the hash picks the slot there.
#[inline]
const fn shard_of(hash: u64, shards: usize) -> usize {
    (((hash >> 32) * shards as u64) >> 32) as usize
}

/// The panes of one window. A row's number says its shard in the upper bits.
#[derive(Clone, Debug)]
pub(super) struct PaneTable {
    pub(super) window: Window,
    /// True while every pane of the window is in this table, none only in the state database. Rows are then whole
    /// panes; else they may be what was added since a spill.
    pub(super) complete: bool,
    /// True once the on-time firing happened (matters only with allowed lateness or other triggers).
    pub(super) closed: bool,
    shards: Box<[Shard]>,
    // Bits of a row's number within its shard.
    row_bits: u32,
    layout: Arc<Layout>,
    // Events of the current batch whose rows were not looked for yet.
    aside: Vec<u32>,
    touched: bool,
}

impl PaneTable {
    /// For so many workers.
    pub(super) fn new(window: Window, layout: &Arc<Layout>, complete: bool, workers: usize) -> Self {
        let shards = workers.clamp(1, Workers::MAX);
        Self {
            window,
            complete,
            closed: false,
            shards: (0..shards).map(|_| Shard::new()).collect(),
            row_bits: u32::BITS - shards.next_power_of_two().trailing_zeros(),
            layout: Arc::clone(layout),
            aside: Vec::new(),
            touched: false,
        }
    }

    /// This table, emptied, for another window: its memory has the right size already.
    pub(super) fn reused_for(mut self, window: Window, complete: bool) -> Self {
        self.window = window;
        self.complete = complete;
        self.closed = false;
        self.shards.iter_mut().for_each(Shard::clear);
        self.aside.clear();
        self.touched = false;
        self
    }

    /// Number of panes.
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(Shard::len).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.len() == 0)
    }

    /// About how many bytes a row of `stride` words takes without its states, with the room that its table keeps free.
    pub(super) fn bytes_per_row(stride: usize, key_bytes: usize) -> usize {
        Shard::bytes_per_row(stride, key_bytes)
    }

    /// Bytes held, counted by capacity.
    pub(super) fn bytes(&self) -> usize {
        self.shards.iter().map(Shard::bytes).sum::<usize>() + self.aside.capacity() * 4
    }

    /// Bytes that it is about to take before the next few rows.
    pub(super) fn growth_bytes(&self) -> usize {
        self.shards.iter().map(Shard::growth_bytes).sum()
    }

    /// All rows, in no order.
    pub(super) fn rows(&self) -> impl Iterator<Item = u32> + '_ {
        let shards = self.shards.iter().enumerate();
        shards.flat_map(move |(at, shard)| (0..shard.len() as u32).map(move |row| self.encode(at, row)))
    }

    #[inline]
    const fn encode(&self, shard: usize, row: u32) -> u32 {
        ((shard as u64) << self.row_bits) as u32 | row
    }

    #[inline]
    const fn decode(&self, row: u32) -> (usize, usize) {
        let row = row as u64;
        ((row >> self.row_bits) as usize, (row & ((1 << self.row_bits) - 1)) as usize)
    }

    /// Brings the slots where `hashes` are looked for into the cache.
    #[inline]
    pub(super) fn warm(&self, hashes: &[u64]) {
        let shards = self.shards.len();
        let peek = |read, &hash: &u64| read ^ self.shards[shard_of(hash, shards)].peek(hash);
        std::hint::black_box(hashes.iter().fold(0, peek));
    }

    /// Brings keys and words of `rows`, which in key order lie all over memory, into the cache.
    pub(super) fn warm_rows(&self, rows: &[u32]) {
        let stride = self.layout.stride();
        let peek = |read: (u32, u64), &row: &u32| {
            let (shard, row) = self.decode(row);
            let (slot, words) = self.shards[shard].peek_row(row, stride);
            (read.0 ^ slot, read.1 ^ words)
        };
        std::hint::black_box(rows.iter().fold((0, 0), peek));
    }

    /// The row of `key`, made from the identity if need be. The flag tells whether it is new.
    #[inline]
    pub(super) fn find_or_insert(&mut self, key: &[u8], hash: u64) -> (u32, bool) {
        let shard = shard_of(hash, self.shards.len());
        let (row, new) = self.shards[shard].find_or_insert(key, hash, &self.layout);
        (self.encode(shard, row), new)
    }

    /// The row of `key`, if it has one.
    pub(super) fn find(&self, key: &[u8]) -> Option<u32> {
        let hash = key_hash(key);
        let shard = shard_of(hash, self.shards.len());
        self.shards[shard].find(key, hash).map(|row| self.encode(shard, row))
    }

    /// The key of `row`.
    pub(super) fn key(&self, row: u32) -> &[u8] {
        let (shard, row) = self.decode(row);
        self.shards[shard].key(row)
    }

    /// The row at index `row`.
    pub(super) fn row(&self, row: u32) -> RowRef<'_> {
        let (shard, _) = self.decode(row);
        RowRef::new(&self.layout, self.words(row), &self.shards[shard].sketches)
    }

    /// The words of `row`, the extra ones included.
    pub(super) fn words(&self, row: u32) -> &[u64] {
        let (shard, row) = self.decode(row);
        let stride = self.layout.stride();
        &self.shards[shard].words[row * stride..(row + 1) * stride]
    }

    /// The row at index `row`, to be changed; it counts as dirty.
    pub(super) fn row_mut(&mut self, row: u32) -> RowMut<'_> {
        self.mark_dirty(row);
        let (shard, row) = self.decode(row);
        let (shard, stride) = (&mut self.shards[shard], self.layout.stride());
        RowMut::new(&self.layout, &mut shard.words[row * stride..(row + 1) * stride], &mut shard.sketches)
    }

    /// The words of `row`, to be changed; the row counts as dirty.
    pub(super) fn words_mut(&mut self, row: u32) -> &mut [u64] {
        self.mark_dirty(row);
        let (shard, row) = self.decode(row);
        let stride = self.layout.stride();
        &mut self.shards[shard].words[row * stride..(row + 1) * stride]
    }

    /// Puts an event aside, whose row is looked for when the table is settled. False when others were before it.
    #[inline]
    pub(super) fn put_aside(&mut self, event: u32) -> bool {
        self.aside.push(event);
        !std::mem::replace(&mut self.touched, true)
    }

    /// Notes that an event of the current batch is to be added to `row`. False when others were before it.
    #[inline]
    pub(super) fn touch(&mut self, row: u32, event: u32) -> bool {
        let (shard, row) = self.decode(row);
        self.shards[shard].touch(row as u32, event);
        !std::mem::replace(&mut self.touched, true)
    }

    /// Adds the events of `batch` that were put aside, or touched, to their rows. `keys` are those of its events, with
    /// their hashes.
    pub(super) fn settle(&mut self, batch: &EventBatch, keys: (&KeyColumn, &[u64]), workers: &Workers) {
        self.touched = false;
        let large = self.bytes() >= SHARED_BYTES_MIN;
        let layout = &*self.layout;
        if self.aside.is_empty() {
            return self.shards.iter_mut().for_each(|shard| shard.settle(batch, layout));
        }
        let (events, count) = (&self.aside, self.shards.len());
        let mut shards: Vec<(usize, &mut Shard)> = self.shards.iter_mut().enumerate().collect();
        let take = |(at, shard): &mut (usize, &mut Shard)| {
            let at = *at;
            shard.take(events, |hash| shard_of(hash, count) == at, keys, batch, layout);
        };
        if large && events.len() >= SHARED_EVENTS_MIN {
            workers.each(&mut shards, take);
        } else {
            shards.iter_mut().for_each(take);
        }
        self.aside.clear();
    }

    /// Notes that `row` differs from what the state database holds.
    #[inline]
    pub(super) fn mark_dirty(&mut self, row: u32) {
        let (shard, row) = self.decode(row);
        self.shards[shard].mark_dirty(row);
    }

    /// Takes the dirty rows, in no order, and counts every row as clean.
    pub(super) fn take_dirty(&mut self) -> Vec<u32> {
        let mut rows = Vec::with_capacity(self.shards.iter().map(Shard::dirty_rows).sum());
        let row_bits = self.row_bits;
        for (at, shard) in self.shards.iter_mut().enumerate() {
            shard.take_dirty(|row| rows.push(((at as u64) << row_bits) as u32 | row));
        }
        rows
    }

    /// Forgets that a row loaded from the state database was changed by loading it.
    pub(super) fn mark_clean(&mut self, row: u32) {
        let (shard, row) = self.decode(row);
        self.shards[shard].mark_clean(row);
    }
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

    fn table(workers: usize) -> PaneTable {
        let window = Window { start: EventTime::from_millis(0), end: EventTime::from_millis(10) };
        PaneTable::new(window, &Arc::new(Layout::with_extra(&[], &[7])), true, workers)
    }

    #[test]
    fn the_hash_has_the_vectors_of_xxh3() {
        assert_eq!(key_hash(b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(key_hash(b"a"), 0xe6c6_32b6_1e96_4e1f);
        assert_eq!(key_hash(b"abc"), 0x78af_5f94_892f_3950);
    }

    proptest! {
        #[test]
        fn it_behaves_like_a_sorted_map(
            keys in prop::collection::vec(
                prop_oneof![
                    prop::collection::vec(any::<u8>(), 0..4),
                    prop::collection::vec(Just(b'x'), 18..24),
                    prop::collection::vec(any::<u8>(), 0..64),
                    prop::collection::vec(0..2_u8, 8..13),
                ],
                0..200,
            ),
            workers in 1_usize..=9,
        ) {
            let mut table = table(workers);
            let mut model = BTreeMap::new();
            for key in &keys {
                let (row, new) = table.find_or_insert(key, key_hash(key));
                prop_assert_eq!(new, !model.contains_key(key));
                prop_assert_eq!(table.key(row), key);
                table.words_mut(row)[0] += 1;
                *model.entry(key.clone()).or_insert(0_u64) += 1;
            }
            prop_assert_eq!(table.len(), model.len());
            let rows = table.sorted_rows(&Workers::one());
            prop_assert_eq!(&rows, &table.sorted_rows(&Workers::start(3).unwrap()));
            prop_assert_eq!(&rows, &table.sort_by_key(table.rows()));
            let found: Vec<(Vec<u8>, u64)> =
                rows.into_iter().map(|row| (table.key(row).to_vec(), table.row(row).events())).collect();
            prop_assert_eq!(found, model.into_iter().collect::<Vec<_>>());
            prop_assert_eq!(table.take_dirty().len(), table.len());
            prop_assert_eq!(table.take_dirty().len(), 0);
            for key in &keys {
                prop_assert!(!table.find_or_insert(key, key_hash(key)).1);
            }
        }
    }
}
