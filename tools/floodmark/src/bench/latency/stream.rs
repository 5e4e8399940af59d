//! The stream of a run: one lap made beforehand, repeated with its times moved on, and sent when it is due.
//!
//! The schedule is fixed before the run and knows nothing of how the other side gets on: a run that falls behind shows
//! the waiting in its latencies, rather than being asked for less.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

use floodmark::clock::Clock;
use floodmark::error::Error;
use floodmark::event::{EventBatch, Number, PartitionId};
use floodmark::event_time::EventTime;
use floodmark::pipeline::generate::{Generator, Spec};

use super::super::workload;

/// Windows of every run.
pub(super) const WINDOW_MS: i64 = 60_000;
/// Watermark delay: the disorder of the stream.
pub(super) const DELAY_MS: i64 = 5_000;
/// Windows in a lap.
const LAP_WINDOWS: u64 = 4;
/// A batch holds what is due in this time, within bounds: what comes first of it waits for the rest.
const BATCH_TIME: Duration = Duration::from_millis(1);
const BATCH_EVENTS_MIN: u64 = 16;
const BATCH_EVENTS_MAX: u64 = 8_192;

/// A lap of the stream, in batches.
pub(super) struct Lap {
    batches: Vec<EventBatch>,
    span_ms: i64,
    first_end: i64,
}

impl Lap {
    /// S1 with so many keys and about so many events a window, cut into batches of what is due in a millisecond at
    /// `events_per_second`.
    pub(super) fn new(
        keys: u64,
        events_per_window: u64,
        events_per_second: f64,
        seed: u64,
    ) -> Result<Self, Error> {
        let window_s = WINDOW_MS as u64 / 1_000;
        let rate = events_per_window.div_ceil(window_s);
        let events = rate * window_s * LAP_WINDOWS;
        let spec = Spec { keys, rate, ..Spec::s1(events) };
        let start = spec.start.as_millis();
        let wanted = (events_per_second * BATCH_TIME.as_secs_f64()) as u64;
        let at_once = wanted.clamp(BATCH_EVENTS_MIN, BATCH_EVENTS_MAX) as usize;
        let mut batches = Vec::new();
        let mut batch = workload::batch(PartitionId(0));
        let mut key = String::new();
        let generator = Generator::new(spec, seed)?;
        let digits = generator.key_digits();
        for event in generator {
            key.clear();
            // Writing to a string does not fail.
            let _ = std::fmt::Write::write_fmt(&mut key, format_args!("k{:0digits$}", event.key));
            let value = Number::Int(event.value.unwrap_or(0));
            batch.push_event(event.time, &[key.as_bytes()], &[Some(value)]);
            if batch.len() == at_once {
                batches.push(std::mem::replace(&mut batch, workload::batch(PartitionId(0))));
            }
        }
        if !batch.is_empty() {
            batches.push(batch);
        }
        let first_end = ((start - DELAY_MS).div_euclid(WINDOW_MS) + 1) * WINDOW_MS;
        Ok(Self { batches, span_ms: WINDOW_MS * LAP_WINDOWS as i64, first_end })
    }
}

/// A window that an event of a batch closes, and when that event was due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Closing {
    pub(super) end: EventTime,
    pub(super) due: Duration,
}

/// A batch whose last event is due.
pub(super) struct Paced {
    pub(super) batch: EventBatch,
    /// When its last event was due.
    pub(super) due: Duration,
    pub(super) closings: Vec<Closing>,
}

/// When events are due.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    /// So many per second, whatever happens.
    Events(f64),
    /// Whenever there is room for them: what a run can take at most.
    Full,
}

/// When and how long a stream runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    pub(super) start: Duration,
    pub(super) length: Duration,
    pub(super) pace: Pace,
}

/// The windows that events close as the stream goes on.
struct Closings {
    next_end: i64,
}

impl Closings {
    /// Those that the events at `times` close, each with the index of the event that does it.
    fn of(&mut self, times: &[i64]) -> Vec<(i64, usize)> {
        let mut closed = Vec::new();
        for (index, &time) in times.iter().enumerate() {
            // A window is closed as soon as the watermark has come to its end.
            while time - DELAY_MS >= self.next_end {
                closed.push((self.next_end, index));
                self.next_end += WINDOW_MS;
            }
        }
        closed
    }
}

/// Sends laps by the schedule until its end, or until nobody listens any more. Batches come back through `spent`, in
/// the order in which they went, and are a lap later then.
pub(super) fn send(
    lap: Lap,
    schedule: Schedule,
    clock: &dyn Clock,
    out: &SyncSender<Paced>,
    spent: &Receiver<EventBatch>,
) {
    let mut closings = Closings { next_end: lap.first_end };
    let mut waiting = VecDeque::from(lap.batches);
    let mut sent = 0_u64;
    loop {
        while let Ok(mut batch) = spent.try_recv() {
            batch.times.iter_mut().for_each(|time| *time += lap.span_ms);
            waiting.push_back(batch);
        }
        let Some(batch) = waiting.pop_front() else {
            // All of a short lap is under way.
            let Ok(mut batch) = spent.recv() else { return };
            batch.times.iter_mut().for_each(|time| *time += lap.span_ms);
            waiting.push_back(batch);
            continue;
        };
        let due = |index: usize| match schedule.pace {
            Pace::Events(rate) => {
                schedule.start + Duration::from_secs_f64((sent + index as u64) as f64 / rate)
            }
            Pace::Full => clock.monotonic().max(schedule.start),
        };
        let closed = closings.of(&batch.times).into_iter();
        let closed = closed.map(|(end, index)| Closing { end: EventTime::from_millis(end), due: due(index) });
        let closings = closed.collect();
        let last = due(batch.len() - 1);
        if last >= schedule.start + schedule.length {
            return;
        }
        wait_until(last, clock);
        sent += batch.len() as u64;
        if out.send(Paced { batch, closings, due: last }).is_err() {
            return;
        }
    }
}

fn wait_until(due: Duration, clock: &dyn Clock) {
    loop {
        let left = due.saturating_sub(clock.monotonic());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_closed_by_the_first_event_that_brings_the_watermark_to_its_end() {
        let mut closings = Closings { next_end: WINDOW_MS };
        assert_eq!(closings.of(&[50_000, 64_999, 65_000, 64_000]), [(60_000, 2)]);
        assert_eq!(closings.of(&[65_000, 66_000]), []);
        assert_eq!(closings.of(&[70_000, 185_000, 186_000]), [(120_000, 1), (180_000, 1)]);
    }

    #[test]
    fn a_lap_is_as_long_as_its_windows_so_that_the_next_one_goes_on_where_it_ends() {
        let lap = Lap::new(10, 6_000, 1_000_000.0, 1).expect("a lap");
        let events: usize = lap.batches.iter().map(EventBatch::len).sum();
        assert_eq!((events, lap.span_ms), (24_000, 240_000));
        assert!(lap.batches.iter().all(|batch| batch.len() <= 1_000));
        let newest = lap.batches.iter().flat_map(|batch| &batch.times).max().expect("events");
        let first = lap.first_end - WINDOW_MS;
        assert!((first..first + WINDOW_MS + lap.span_ms).contains(newest));
    }
}
