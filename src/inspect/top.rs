//! The keys with the most events, or bytes, counted in bounded memory.
//!
//! Exact up to [`KEYS_MAX`] distinct keys. Beyond, the smaller half is forgotten again and again, and the report says
//! by how much a count may be too low because of that.

use std::collections::HashMap;

/// Distinct keys that are counted at a time, about 100 MiB of them.
const KEYS_MAX: usize = 1 << 20;

/// Events, panes and bytes of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) events: u64,
    pub(super) panes: u64,
    pub(super) bytes: u64,
}

/// Counts events by key.
#[derive(Debug)]
pub(super) struct TopCounter {
    counts: HashMap<Box<[u8]>, Count>,
    measure: fn(&Count) -> u64,
    keys_max: usize,
    missed_max: u64,
}

/// A key with its count.
pub(super) type Counted = (Box<[u8]>, Count);

impl TopCounter {
    /// The most events count.
    pub(super) fn new() -> Self {
        Self::with_bound(KEYS_MAX)
    }

    /// The most bytes count.
    pub(super) fn by_bytes() -> Self {
        Self { measure: |count| count.bytes, ..Self::new() }
    }

    fn with_bound(keys_max: usize) -> Self {
        Self { counts: HashMap::new(), measure: |count| count.events, keys_max, missed_max: 0 }
    }

    /// Adds a pane.
    pub(super) fn add(&mut self, key: &[u8], events: u64) {
        self.add_bytes(key, events, 0);
    }

    /// Adds a pane of so many bytes.
    pub(super) fn add_bytes(&mut self, key: &[u8], events: u64, bytes: u64) {
        if let Some(count) = self.counts.get_mut(key) {
            count.events = count.events.saturating_add(events);
            count.bytes = count.bytes.saturating_add(bytes);
            count.panes += 1;
            return;
        }
        if self.counts.len() >= self.keys_max {
            self.forget_half();
        }
        self.counts.insert(key.into(), Count { events, panes: 1, bytes });
    }

    /// Forgets the keys with the least. What a forgotten key had is what a count may lack later.
    fn forget_half(&mut self) {
        let measure = self.measure;
        let mut measures: Vec<u64> = self.counts.values().map(measure).collect();
        let middle = measures.len() / 2;
        let (_, &mut bound, _) = measures.select_nth_unstable(middle);
        self.counts.retain(|_, count| measure(count) > bound);
        self.missed_max = self.missed_max.saturating_add(bound);
    }

    /// The `top` keys by what counts, then by their bytes; and by how much that may be too low, zero when exact.
    pub(super) fn finish(self, top: usize) -> (Vec<Counted>, u64) {
        let measure = self.measure;
        let mut counts: Vec<_> = self.counts.into_iter().collect();
        counts.sort_unstable_by(|(left_key, left), (right_key, right)| {
            measure(right).cmp(&measure(left)).then_with(|| left_key.cmp(right_key))
        });
        counts.truncate(top);
        (counts, self.missed_max)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn counts_are_exact_or_too_low_by_no_more_than_said(
            panes in prop::collection::vec((0_u8..20, 0_u64..50), 0..200),
            keys_max in 1_usize..25,
        ) {
            let mut counter = TopCounter::with_bound(keys_max);
            let mut exact: HashMap<u8, u64> = HashMap::new();
            for &(key, events) in &panes {
                counter.add(&[key], events);
                *exact.entry(key).or_default() += events;
                prop_assert!(counter.counts.len() <= keys_max);
            }
            let distinct = exact.len();
            let (top, missed_max) = counter.finish(usize::MAX);
            prop_assert!(missed_max == 0 || distinct > keys_max);
            let counted: HashMap<u8, u64> = top.iter().map(|(key, count)| (key[0], count.events)).collect();
            for (key, events) in exact {
                let found = counted.get(&key).copied().unwrap_or(0);
                prop_assert!(found <= events && events - found <= missed_max);
            }
            prop_assert!(top.is_sorted_by(|left, right| left.1.events >= right.1.events));
        }
    }
}
