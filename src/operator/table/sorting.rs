//! Rows in the order of their keys.

use super::{PaneTable, Shard};
use crate::operator::workers::Workers;

/// Rows of one shard, each under a number that sorts as its key does, as far as eight bytes go.
type Order = Vec<u128>;

impl PaneTable {
    /// Sorts rows by key bytes.
    pub(in crate::operator) fn sort_by_key(&self, rows: impl Iterator<Item = u32>) -> Vec<u32> {
        let rows: Vec<u32> = rows.collect();
        let skip = self.common_prefix(rows.iter().map(|&row| self.key(row)));
        let mut order: Order = rows.iter().map(|&row| ordered(self.key(row), skip, row)).collect();
        self.sort(&mut order);
        order.into_iter().map(row_of).collect()
    }

    /// All rows in key order.
    pub(in crate::operator) fn sorted_rows(&self, workers: &Workers) -> Vec<u32> {
        let mut prefixes: Vec<(&Shard, usize)> = self.shards.iter().map(|shard| (shard, 0)).collect();
        workers.each(&mut prefixes, |(shard, prefix)| {
            *prefix = self.common_prefix(shard.keys().map(|(_, key)| key));
        });
        let skip = prefixes.iter().map(|(_, prefix)| *prefix).min().unwrap_or_default();
        let shards = self.shards.iter().enumerate();
        let mut orders: Vec<(usize, &Shard, Order)> =
            shards.map(|(at, shard)| (at, shard, Vec::with_capacity(shard.len()))).collect();
        workers.each(&mut orders, |(at, shard, order)| {
            order.extend(shard.keys().map(|(row, key)| ordered(key, skip, self.encode(*at, row))));
            self.sort(order);
        });
        let mut orders: Vec<Order> = orders.into_iter().map(|(_, _, order)| order).collect();
        while orders.len() > 1 {
            // Pairs of neighbours become one.
            let mut pairs: Vec<(Order, Order)> = Vec::with_capacity(orders.len().div_ceil(2));
            let mut rest = orders.into_iter();
            while let Some(first) = rest.next() {
                pairs.push((first, rest.next().unwrap_or_default()));
            }
            workers.each(&mut pairs, |(first, second)| {
                if !second.is_empty() {
                    *first = self.merge(first, second);
                }
            });
            orders = pairs.into_iter().map(|(merged, _)| merged).collect();
        }
        orders.pop().unwrap_or_default().into_iter().map(row_of).collect()
    }

    /// How many bytes the given keys have in common with the first key of the table, all of them.
    fn common_prefix<'a>(&self, mut keys: impl Iterator<Item = &'a [u8]>) -> usize {
        let Some(filled) = self.shards.iter().find(|shard| shard.len() > 0) else { return 0 };
        let reference = filled.key(0);
        let mut common = reference.len();
        for key in &mut keys {
            if !key.starts_with(&reference[..common]) {
                common = reference.iter().zip(key).take_while(|(ours, theirs)| ours == theirs).count();
                if common == 0 {
                    break;
                }
            }
        }
        common
    }

    fn sort(&self, order: &mut [u128]) {
        order.sort_unstable();
        // Whole keys are looked at only where eight bytes do not tell.
        for equal in order.chunk_by_mut(|a, b| prefix_of(*a) == prefix_of(*b)) {
            if equal.len() > 1 {
                equal.sort_unstable_by(|a, b| self.key(row_of(*a)).cmp(self.key(row_of(*b))));
            }
        }
    }

    fn merge(&self, first: &[u128], second: &[u128]) -> Order {
        let mut merged = Vec::with_capacity(first.len() + second.len());
        let (mut a, mut b) = (first.iter().copied().peekable(), second.iter().copied().peekable());
        while let (Some(&x), Some(&y)) = (a.peek(), b.peek()) {
            let by_prefix = prefix_of(x).cmp(&prefix_of(y));
            let before = by_prefix.then_with(|| self.key(row_of(x)).cmp(self.key(row_of(y))));
            let smaller = if before.is_lt() { &mut a } else { &mut b };
            merged.extend(smaller.next());
        }
        merged.extend(a);
        merged.extend(b);
        merged
    }
}

/// The eight bytes of a key behind the first `skip`, as a number that sorts like them, over the row.
fn ordered(key: &[u8], skip: usize, row: u32) -> u128 {
    let rest = key.get(skip..).unwrap_or_default();
    let prefix = match rest.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(bytes)
        }
    };
    u128::from(prefix) << 64 | u128::from(row)
}

const fn prefix_of(ordered: u128) -> u64 {
    (ordered >> 64) as u64
}

const fn row_of(ordered: u128) -> u32 {
    ordered as u32
}
