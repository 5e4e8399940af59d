//! The watermark of the record profile: one for each partition, and the least of those that are not idle.
//!
//! Values are inclusive: the last instant that is not expected any more.

use std::collections::BTreeMap;

struct Partition {
    watermark: Option<i64>,
    last_record_ms: i64,
    idle: bool,
    ended: bool,
}

/// The watermark of all partitions together.
pub(super) struct Watermarks {
    delay_ms: i64,
    idle_timeout_ms: Option<i64>,
    partitions: Vec<Partition>,
    now_ms: i64,
    current: Option<i64>,
}

impl Watermarks {
    pub(super) fn new(delay_ms: i64, idle_timeout_ms: Option<i64>, partitions: usize) -> Self {
        let mut watermarks =
            Self { delay_ms, idle_timeout_ms, partitions: Vec::new(), now_ms: 0, current: None };
        (0..partitions).for_each(|_| watermarks.add());
        watermarks
    }

    pub(super) fn current(&self) -> Option<i64> {
        self.current
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.now_ms
    }

    pub(super) fn add(&mut self) {
        let last_record_ms = self.now_ms;
        self.partitions.push(Partition { watermark: None, last_record_ms, idle: false, ended: false });
    }

    pub(super) fn observe(&mut self, partition: usize, ts: i64) {
        let inclusive = i128::from(ts) - i128::from(self.delay_ms) - 1;
        let inclusive = i64::try_from(inclusive).unwrap_or(i64::MIN);
        let of = &mut self.partitions[partition];
        of.watermark = of.watermark.max(Some(inclusive));
        (of.last_record_ms, of.idle) = (self.now_ms, false);
        self.combine();
    }

    pub(super) fn tick(&mut self, now_ms: i64, backlog: &BTreeMap<usize, u64>) {
        self.now_ms = now_ms;
        let Some(timeout) = self.idle_timeout_ms else { return };
        for (index, partition) in self.partitions.iter_mut().enumerate() {
            let waiting = backlog.get(&index).is_some_and(|unread| *unread > 0);
            if now_ms - partition.last_record_ms >= timeout && !waiting {
                partition.idle = true;
            }
        }
        self.combine();
    }

    /// A partition that was read to its end holds nothing back any more.
    pub(super) fn end_partition(&mut self, partition: usize) {
        self.partitions[partition].ended = true;
        self.combine();
    }

    pub(super) fn all_ended(&self) -> bool {
        self.partitions.iter().all(|partition| partition.ended)
    }

    pub(super) fn end(&mut self) {
        self.current = Some(i64::MAX);
    }

    fn combine(&mut self) {
        let all = || self.partitions.iter();
        let active = all().filter(|partition| !partition.idle && !partition.ended);
        // None is less than any: a partition never seen holds the minimum back.
        let least = active.map(|partition| partition.watermark).min();
        let combined = least.unwrap_or_else(|| all().filter_map(|partition| partition.watermark).max());
        self.current = self.current.max(combined);
    }
}
