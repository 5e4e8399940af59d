//! Batches of events a little out of order, keys spread evenly.

use floodmark::event::{EventBatch, Number, PartitionId, ValueColumn};
use floodmark::event_time::EventTime;

use crate::random::Random;

const BATCH: u64 = 8_192;
/// Events of one second of event time.
const PER_SECOND: u64 = 10_000;

/// The batches of a stream.
pub(crate) fn batches(events: u64, keys: u64) -> Vec<EventBatch> {
    let mut random = Random::new();
    let mut batches = Vec::new();
    for first in (0..events).step_by(BATCH as usize) {
        let mut batch = EventBatch::with_columns(PartitionId(0), 1, vec![ValueColumn::int()]);
        for event in first..(first + BATCH).min(events) {
            let disorder = random.below(2_000) as i64;
            let time = 1_700_000_000_000 + (event * 1_000 / PER_SECOND) as i64 - disorder;
            let key = format!("k{:06}", random.below(keys));
            let value = Number::Int(random.below(1_000) as i64);
            batch.push_event(EventTime::from_millis(time), &[key.as_bytes()], &[Some(value)]);
        }
        batches.push(batch);
    }
    batches
}
