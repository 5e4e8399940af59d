//! The stream of a run: events of evenly spread arrivals over uniform keys, late as their profile says. The same
//! specification gives the same events on every platform.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::lateness::{Class, OFFLINE_ONE_IN, OUTAGE_MS, OUTAGE_PERIOD_MS, Profile};
use crate::random::{Random, mixed};

/// Arrival time 0, in milliseconds since the epoch: the start of a day.
pub(super) const START_MS: i64 = 1_699_920_000_000;

/// What a stream looks like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StreamSpec {
    pub(super) profile: Profile,
    pub(super) events: u64,
    /// Length of the stream in arrival time.
    pub(super) span_ms: u64,
    /// Keys that come at any one time.
    pub(super) keys: u64,
    /// After so long every key has been replaced by a new one; never when 0.
    pub(super) key_life_ms: u64,
    pub(super) seed: u64,
}

/// An event on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Arrival {
    /// When it arrives, in milliseconds after the start.
    pub(super) arrival_ms: u64,
    /// Its place among those that were sent; breaks ties.
    sent: u64,
    /// Its event time, in milliseconds since the epoch.
    pub(super) time_ms: i64,
    /// Number of its key.
    pub(super) key: u64,
}

/// Draws the events of a [`StreamSpec`] in order of arrival. What an offline device holds back at the end never comes.
#[derive(Debug)]
pub(super) struct Stream {
    spec: StreamSpec,
    // The one class of all keys, where devices do not go offline.
    class: Option<Class>,
    random: Random,
    sent: u64,
    next: Option<Arrival>,
    // Bounded by what arrives during one outage.
    held: BinaryHeap<Reverse<Arrival>>,
}

impl Stream {
    pub(super) fn new(spec: StreamSpec) -> Self {
        let class = if spec.profile == Profile::Offline { None } else { spec.profile.classes().pop() };
        Self { spec, class, random: Random::new(spec.seed, 1), sent: 0, next: None, held: BinaryHeap::new() }
    }

    /// The next event in the order of sending, which is that of arrival unless its device is offline.
    fn send(&mut self) -> Option<Arrival> {
        let spec = &self.spec;
        if self.sent >= spec.events {
            return None;
        }
        let now = u128::from(self.sent) * u128::from(spec.span_ms) / u128::from(spec.events);
        let now = u64::try_from(now).unwrap_or(u64::MAX);
        let replaced = u128::from(now) * u128::from(spec.keys) / u128::from(spec.key_life_ms.max(1));
        let oldest = if spec.key_life_ms == 0 { 0 } else { u64::try_from(replaced).unwrap_or(u64::MAX) };
        let key = oldest + self.random.below(spec.keys);
        let late_ms = self.class.as_ref().map_or(0.0, |class| class.lateness.draw(&mut self.random));
        let arrival_ms = if self.class.is_none() { back_online(key, now) } else { now };
        let time_ms = START_MS.saturating_add_unsigned(now).saturating_sub(late_ms as i64);
        self.sent += 1;
        Some(Arrival { arrival_ms, sent: self.sent, time_ms, key })
    }
}

impl Iterator for Stream {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        loop {
            let sent = self.next.take().or_else(|| self.send())?;
            if self.class.is_some() {
                return Some(sent);
            }
            let now =
                u128::from(sent.sent - 1) * u128::from(self.spec.span_ms) / u128::from(self.spec.events);
            if self.held.peek().is_some_and(|held| u128::from(held.0.arrival_ms) <= now) {
                self.next = Some(sent);
                return self.held.pop().map(|held| held.0);
            }
            if u128::from(sent.arrival_ms) <= now {
                return Some(sent);
            }
            self.held.push(Reverse(sent));
        }
    }
}

/// When an event that a device sends at `now` gets through: at once, or at the end of its outage. Each device has its
/// outage at a time of day of its own.
fn back_online(key: u64, now: u64) -> u64 {
    if !key.is_multiple_of(OFFLINE_ONE_IN) {
        return now;
    }
    let into = (now + mixed(key + 1) % OUTAGE_PERIOD_MS) % OUTAGE_PERIOD_MS;
    now + OUTAGE_MS.saturating_sub(into)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    fn spec(profile: Profile) -> StreamSpec {
        StreamSpec { profile, events: 40_000, span_ms: 50 * HOUR, keys: 100, key_life_ms: 0, seed: 1 }
    }

    fn late_ms(event: &Arrival) -> i64 {
        START_MS + event.arrival_ms as i64 - event.time_ms
    }

    #[test]
    fn events_arrive_in_order_and_are_as_late_as_their_profile() {
        for profile in Profile::ALL {
            let events: Vec<Arrival> = Stream::new(spec(profile)).collect();
            assert!(events.windows(2).all(|pair| pair[0].arrival_ms <= pair[1].arrival_ms), "{profile:?}");
            assert!(events.iter().all(|event| late_ms(event) >= 0 && event.key < 100), "{profile:?}");
            let steady: Vec<&Arrival> = events.iter().filter(|event| event.arrival_ms >= 26 * HOUR).collect();
            for minutes in [1, 10, 60, 240] {
                let limit = f64::from(minutes) * 60_000.0;
                let late = steady.iter().filter(|event| late_ms(event) as f64 > limit).count();
                let counted = late as f64 / steady.len() as f64;
                let classes = profile.classes();
                let said: f64 =
                    classes.iter().map(|class| class.share * class.lateness.later_than(limit)).sum();
                assert!((counted - said).abs() < 0.01, "{profile:?} {minutes} min: {counted} {said}");
            }
        }
    }

    #[test]
    fn a_device_that_was_away_sends_everything_at_once_in_its_order() {
        let events: Vec<Arrival> = Stream::new(spec(Profile::Offline)).collect();
        let of_device: Vec<&Arrival> = events.iter().filter(|event| event.key == 10).collect();
        let burst: Vec<&&Arrival> = of_device.iter().filter(|event| late_ms(event) > 0).collect();
        let arrivals: std::collections::BTreeSet<u64> = burst.iter().map(|event| event.arrival_ms).collect();
        assert!((2..=3).contains(&arrivals.len()), "an outage a day: {arrivals:?}");
        assert!(burst.len() > 100, "{}", burst.len());
        assert!(of_device.windows(2).all(|pair| pair[0].time_ms <= pair[1].time_ms));
        assert!(burst.iter().all(|event| late_ms(event) <= OUTAGE_MS as i64));
    }

    #[test]
    fn keys_that_live_a_day_are_all_new_a_day_later() {
        let spec = StreamSpec { key_life_ms: 24 * HOUR, ..spec(Profile::HeavyTail) };
        let keys = |from: u64| -> std::collections::BTreeSet<u64> {
            let at = |event: &Arrival| (from..from + HOUR).contains(&(event.arrival_ms / HOUR * HOUR));
            Stream::new(spec).filter(at).map(|event| event.key).collect()
        };
        let (first, second) = (keys(0), keys(25 * HOUR));
        assert!(first.len() > 90 && second.len() > 90);
        assert!(first.is_disjoint(&second));
    }
}
