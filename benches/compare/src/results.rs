//! What a contender answers, and whether it is what the others answer.
//!
//! Every contender hands each result to [`Results::take`], so that all pay the same for reading it. Kept of it are a
//! count and a sum of hashes per window: rows that are missing, doubled or different in any field show, their order
//! does not.

use std::collections::BTreeMap;

/// Count, sum, min and max of a key in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pane {
    /// Number of events.
    pub(crate) count: u64,
    /// Sum of their values.
    pub(crate) sum: i64,
    /// The smallest.
    pub(crate) min: i64,
    /// The largest.
    pub(crate) max: i64,
}

/// Bytes of an encoded pane.
pub(crate) const PANE_BYTES: usize = 32;

impl Pane {
    /// The pane of one event.
    #[inline]
    pub(crate) const fn of(value: i64) -> Self {
        Self { count: 1, sum: value, min: value, max: value }
    }

    /// Takes another pane of the same key and window in.
    #[inline]
    pub(crate) fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Its fields one after the other, little endian.
    #[inline]
    pub(crate) fn to_bytes(self) -> [u8; PANE_BYTES] {
        let mut bytes = [0; PANE_BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip([self.count as i64, self.sum, self.min, self.max])
        {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Back from [`Pane::to_bytes`]; `None` for anything else.
    #[inline]
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; PANE_BYTES] = bytes.try_into().ok()?;
        let (words, _) = bytes.as_chunks::<8>();
        let word = |at: usize| i64::from_le_bytes(words[at]);
        Some(Self { count: word(0) as u64, sum: word(1), min: word(2), max: word(3) })
    }
}

/// Rows of a window: how many, and two sums of hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Digest {
    rows: u64,
    sums: [u64; 2],
}

/// Everything that one run answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Results {
    windows: BTreeMap<i64, Digest>,
}

impl Results {
    /// Takes one result: start of the window, key, pane.
    #[inline]
    pub(crate) fn take(&mut self, window: i64, key: &[u8], pane: Pane) {
        let hash = hash(window, key, pane);
        let digest = self.windows.entry(window).or_default();
        digest.rows += 1;
        digest.sums[0] = digest.sums[0].wrapping_add(hash as u64);
        digest.sums[1] = digest.sums[1].wrapping_add((hash >> 64) as u64);
    }

    /// Number of results.
    pub(crate) fn rows(&self) -> u64 {
        self.windows.values().map(|digest| digest.rows).sum()
    }

    /// The first difference to the right answer; `None` when there is none.
    pub(crate) fn differ_from(&self, right: &Self) -> Option<String> {
        let starts = self.windows.keys().chain(right.windows.keys());
        let window = starts.filter(|start| self.windows.get(start) != right.windows.get(start)).min()?;
        let rows = |results: &Self| results.windows.get(window).map_or(0, |digest| digest.rows);
        Some(match (rows(self), rows(right)) {
            (given, expected) if given == expected => {
                format!("other values in the window that starts at {window}")
            }
            (given, expected) => {
                format!("{given} results instead of {expected} in the window that starts at {window}")
            }
        })
    }
}

/// Two independent halves of 64 bits.
#[inline]
fn hash(window: i64, key: &[u8], pane: Pane) -> u128 {
    let mut state = [0x9e37_79b9_7f4a_7c15_u64, 0xd6e8_feb8_6659_fd93];
    let mut word = |word: u64| {
        state[0] = fold(state[0] ^ word, 0xa076_1d64_78bd_642f);
        state[1] = fold(state[1] ^ word, 0xe703_7ed1_a0b4_28db);
    };
    word(window as u64);
    let (words, rest) = key.as_chunks::<8>();
    words.iter().for_each(|bytes| word(u64::from_le_bytes(*bytes)));
    let rest = rest.iter().fold(rest.len() as u64, |sum, &byte| sum << 8 | u64::from(byte));
    [rest, pane.count, pane.sum as u64, pane.min as u64, pane.max as u64].into_iter().for_each(&mut word);
    u128::from(state[1]) << 64 | u128::from(state[0])
}

#[inline]
const fn fold(word: u64, factor: u64) -> u64 {
    let product = (word as u128) * (factor as u128);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const PANE: Pane = Pane { count: 3, sum: -5, min: -9, max: 4 };

    fn results(rows: &[(i64, &[u8], Pane)]) -> Results {
        let mut results = Results::default();
        rows.iter().for_each(|&(window, key, pane)| results.take(window, key, pane));
        results
    }

    #[test]
    fn the_order_of_results_does_not_matter() {
        let rows: [(i64, &[u8], Pane); 3] = [(0, b"a", PANE), (0, b"b", Pane::of(1)), (60_000, b"a", PANE)];
        let turned: Vec<_> = rows.iter().rev().copied().collect();
        assert_eq!(results(&rows).differ_from(&results(&turned)), None);
        assert_eq!(results(&rows).rows(), 3);
    }

    #[test]
    fn every_field_of_a_result_counts() {
        let right = results(&[(0, b"k0000001", PANE)]);
        let wrong = [
            (60_000, &b"k0000001"[..], PANE),
            (0, b"k0000002", PANE),
            (0, b"k000000", PANE),
            (0, b"k0000001", Pane { count: 4, ..PANE }),
            (0, b"k0000001", Pane { sum: 5, ..PANE }),
            (0, b"k0000001", Pane { min: -8, ..PANE }),
            (0, b"k0000001", Pane { max: 5, ..PANE }),
        ];
        for row in wrong {
            assert!(results(&[row]).differ_from(&right).is_some(), "{row:?}");
        }
    }

    #[test]
    fn missing_and_doubled_results_are_told_with_their_window() {
        let right = results(&[(0, b"a", PANE), (60_000, b"a", PANE)]);
        let missing = results(&[(0, b"a", PANE)]);
        let doubled = results(&[(0, b"a", PANE), (0, b"a", PANE), (60_000, b"a", PANE)]);
        let said = missing.differ_from(&right).expect("a difference");
        assert_eq!(said, "0 results instead of 1 in the window that starts at 60000");
        let said = doubled.differ_from(&right).expect("a difference");
        assert_eq!(said, "2 results instead of 1 in the window that starts at 0");
    }

    #[test]
    fn panes_merge_and_survive_their_bytes() {
        let mut pane = Pane::of(7);
        pane.merge(PANE);
        assert_eq!(pane, Pane { count: 4, sum: 2, min: -9, max: 7 });
        assert_eq!(Pane::from_bytes(&pane.to_bytes()), Some(pane));
        assert_eq!(Pane::from_bytes(&[0; 31]), None);
    }
}
