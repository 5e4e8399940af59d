//! The rules of event time written down a second time, as plainly as they can be: every event is looked at with the
//! watermark it meets, panes are a sorted map, and nothing is cached, buffered or stored.

use std::collections::BTreeMap;

/// One event: time, key, value.
pub(crate) type Event = (i64, Vec<u8>, i64);

/// One result: window end, key, count, sum, how often the pane had fired before.
pub(crate) type Row = (i64, Vec<u8>, i64, i128, u32);

/// Tumbling windows of `size`, watermark = latest time − `delay`, refiring within `lateness`.
pub(crate) struct Model {
    pub(crate) size: i64,
    pub(crate) delay: i64,
    pub(crate) lateness: i64,
    max_time: Option<i64>,
    panes: BTreeMap<(i64, Vec<u8>), (i64, i128, u32)>,
    pub(crate) results: Vec<Row>,
    pub(crate) late: Vec<i64>,
}

impl Model {
    pub(crate) fn new(size: i64, delay: i64, lateness: i64) -> Self {
        let (panes, results, late) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { size, delay, lateness, max_time: None, panes, results, late }
    }

    fn watermark(&self) -> i64 {
        self.max_time.map_or(i64::MIN, |max| max - self.delay)
    }

    pub(crate) fn event(&mut self, (time, key, value): &Event) {
        let watermark = self.watermark();
        let end = time.div_euclid(self.size) * self.size + self.size;
        if end + self.lateness <= watermark {
            self.late.push(*time);
        } else {
            let pane = self.panes.entry((end, key.clone())).or_default();
            pane.0 += 1;
            pane.1 += i128::from(*value);
            if end <= watermark {
                self.fire(end, key);
            }
        }
        self.max_time = Some(self.max_time.map_or(*time, |max| max.max(*time)));
        let after = self.watermark();
        if after > watermark {
            self.close(watermark, after);
        }
    }

    /// The watermark moves from `before` to `after`.
    fn close(&mut self, before: i64, after: i64) {
        let (from, to) = ((before.saturating_add(1), Vec::new()), (after.saturating_add(1), Vec::new()));
        let due: Vec<(i64, Vec<u8>)> = self.panes.range(from..to).map(|(pane, _)| pane.clone()).collect();
        for (end, key) in due {
            self.fire(end, &key);
        }
        while let Some(pane) = self.panes.first_entry() {
            if pane.key().0 + self.lateness > after {
                break;
            }
            pane.remove();
        }
    }

    fn fire(&mut self, end: i64, key: &[u8]) {
        let pane = self.panes.get_mut(&(end, key.to_vec())).expect("a firing pane exists");
        self.results.push((end, key.to_vec(), pane.0, pane.1, pane.2));
        pane.2 += 1;
    }

    pub(crate) fn end(&mut self) {
        let before = self.watermark();
        self.close(before, i64::MAX / 2);
    }
}
