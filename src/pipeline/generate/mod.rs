//! Seeded streams of events with known disorder, for benchmarks and tests. The same seed gives the same bytes on
//! every platform: randomness, powers and number formatting are our own or exact.
//!
//! It knows neither files nor clocks; callers pull events and append their text to buffers.

mod choice;
mod random;
mod text;

use crate::error::{Error, ErrorKind, Result};
use crate::event_time::EventTime;

use choice::{Choice, Share};
use random::Random;

pub use text::{TextFormat, append_event};

/// More keys would not fit the tables that skewed choice needs (16 bytes per key).
const KEYS_MAX: u64 = 1 << 26;
/// More partitions than any test has had a use for.
const PARTITIONS_MAX: u32 = 4_096;

/// A share of the events, and by how much they arrive after their event time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lateness {
    /// Relative weight; the weights of a mix need not sum to one.
    pub share: f64,
    /// Shortest delay, in milliseconds.
    pub min_ms: u32,
    /// Longest delay, in milliseconds.
    pub max_ms: u32,
}

/// How often each key comes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Skew {
    /// All alike.
    Uniform,
    /// Key number k comes with weight `(k + 1)^-exponent`.
    Zipf {
        /// 0 is uniform, 1 the classic law, more is steeper.
        exponent: f64,
    },
}

/// A time during which a partition brings no events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// The partition.
    pub partition: u32,
    /// Start, in milliseconds of arrival after the stream's start.
    pub from_ms: u64,
    /// First millisecond after it.
    pub until_ms: u64,
}

/// What a stream looks like.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Number of events.
    pub events: u64,
    /// Number of distinct keys.
    pub keys: u64,
    /// How often each key comes.
    pub skew: Skew,
    /// Arrivals per second of event time.
    pub rate: u64,
    /// Event time of an undelayed first event.
    pub start: EventTime,
    /// How late events arrive; without entries they are in order.
    pub lateness: Vec<Lateness>,
    /// Number of partitions; events choose one at random.
    pub partitions: u32,
    /// When partitions are silent. While all are, arrival time jumps to the first that speaks again.
    pub silences: Vec<Silence>,
    /// Smallest value.
    pub value_min: i64,
    /// Largest value.
    pub value_max: i64,
    /// Share of events whose value is null, 0 to 1.
    pub null_share: f64,
    /// Share of records that are malformed, 0 to 1; the kinds of [`Defect`] take turns.
    pub malformed_share: f64,
}

impl Spec {
    /// Shape S1: 10,000 keys for windows of one minute, 5 M events in ten minutes, at most 5 s out of order.
    #[must_use]
    pub fn s1(events: u64) -> Self {
        Self {
            events,
            keys: 10_000,
            skew: Skew::Uniform,
            rate: 8_333,
            start: EventTime::from_millis(1_700_000_000_000),
            lateness: vec![Lateness { share: 1.0, min_ms: 0, max_ms: 5_000 }],
            partitions: 1,
            silences: Vec::new(),
            value_min: 0,
            value_max: 99,
            null_share: 0.0,
            malformed_share: 0.0,
        }
    }

    /// Shape S4: as [`Spec::s1`] with 1,000,000 keys, so that most panes see one event.
    #[must_use]
    pub fn s4(events: u64) -> Self {
        Self { keys: 1_000_000, ..Self::s1(events) }
    }

    /// The longest delay of the mix: a watermark delay of this much makes no event late.
    #[must_use]
    pub fn disorder_ms(&self) -> u32 {
        self.lateness.iter().map(|lateness| lateness.max_ms).max().unwrap_or(0)
    }

    fn check(&self) -> Result<()> {
        let bounds = [
            (self.keys >= 1 && self.keys <= KEYS_MAX, "keys must be 1 to 67108864"),
            (self.rate >= 1, "rate must be at least 1"),
            (self.partitions >= 1 && self.partitions <= PARTITIONS_MAX, "partitions must be 1 to 4096"),
            (self.value_min <= self.value_max, "value_min must not be above value_max"),
            ((0.0..=1.0).contains(&self.null_share), "null share must be 0 to 1"),
            ((0.0..=1.0).contains(&self.malformed_share), "malformed share must be 0 to 1"),
            (
                self.lateness.iter().all(|entry| entry.min_ms <= entry.max_ms),
                "min_ms must not be above max_ms",
            ),
            (
                self.lateness.iter().all(|entry| entry.share > 0.0 && entry.share.is_finite()),
                "shares of lateness must be above zero",
            ),
            (
                self.silences.iter().all(|gap| gap.partition < self.partitions),
                "silence of an unknown partition",
            ),
            (
                !matches!(self.skew, Skew::Zipf { exponent } if !(0.0..=10.0).contains(&exponent)),
                "zipf exponent must be 0 to 10",
            ),
        ];
        match bounds.iter().find(|(holds, _)| !holds) {
            None => Ok(()),
            Some((_, rule)) => {
                Err(Error::new(ErrorKind::Invalid, format!("stream cannot be generated: {rule}"))
                    .with_remedy("change the option that is named"))
            }
        }
    }
}

/// How a record is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// The record ends in the middle.
    Cut,
    /// The time is null (in CSV: empty).
    NullTime,
    /// The time is not one.
    BadTime,
    /// The value is text.
    TextValue,
    /// There is no key (in CSV: a column is missing).
    NoKey,
}

const DEFECTS: [Defect; 5] =
    [Defect::Cut, Defect::NullTime, Defect::BadTime, Defect::TextValue, Defect::NoKey];

/// One event of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Partition it arrives in.
    pub partition: u32,
    /// Its event time.
    pub time: EventTime,
    /// Number of its key.
    pub key: u64,
    /// Its value, null when absent.
    pub value: Option<i64>,
    /// How its record is broken, if it is.
    pub defect: Option<Defect>,
}

/// Draws the events of a [`Spec`], in order of arrival.
#[derive(Debug)]
pub struct Generator {
    spec: Spec,
    random: Random,
    keys: Option<Choice>,
    lateness: Choice,
    null: Share,
    malformed: Share,
    // Events drawn, milliseconds jumped because all partitions were silent, defects so far.
    drawn: u64,
    jumped_ms: u64,
    defects: usize,
}

impl Generator {
    /// The stream that `spec` and `seed` name.
    ///
    /// # Errors
    /// When the specification contradicts itself, or asks for too much.
    pub fn new(spec: Spec, seed: u64) -> Result<Self> {
        spec.check()?;
        let keys = match spec.skew {
            Skew::Uniform => None,
            Skew::Zipf { exponent } => Some(Choice::zipf(spec.keys, exponent)),
        };
        Ok(Self {
            random: Random::new(seed),
            keys,
            lateness: Choice::new(spec.lateness.iter().map(|entry| entry.share).collect()),
            null: Share::new(spec.null_share),
            malformed: Share::new(spec.malformed_share),
            spec,
            drawn: 0,
            jumped_ms: 0,
            defects: 0,
        })
    }

    /// Digits of a key's number in its name, at least six.
    #[must_use]
    pub fn key_digits(&self) -> usize {
        (self.spec.keys - 1).checked_ilog10().map_or(1, |log| log as usize + 1).max(6)
    }

    /// Milliseconds from the start to the arrival at hand; exact integer arithmetic, so it never drifts.
    fn arrival_ms(&self) -> u64 {
        let millis = u128::from(self.drawn) * 1_000 / u128::from(self.spec.rate);
        u64::try_from(millis).unwrap_or(u64::MAX).saturating_add(self.jumped_ms)
    }

    fn is_silent(&self, partition: u32, arrival_ms: u64) -> bool {
        let covers =
            |gap: &&Silence| gap.partition == partition && (gap.from_ms..gap.until_ms).contains(&arrival_ms);
        self.spec.silences.iter().find(covers).is_some()
    }

    /// The partition drawn, or the next one that speaks; jumps ahead while all are silent.
    fn partition(&mut self) -> u32 {
        let partitions = self.spec.partitions;
        if partitions == 1 && self.spec.silences.is_empty() {
            return 0;
        }
        let drawn = self.random.below(u64::from(partitions)) as u32;
        loop {
            let arrival_ms = self.arrival_ms();
            let mut turn = (drawn..partitions).chain(0..drawn);
            if let Some(speaking) = turn.find(|&partition| !self.is_silent(partition, arrival_ms)) {
                return speaking;
            }
            // All are silent, so there is a gap around this moment; every turn of the loop ends one for good.
            let ends = self.spec.silences.iter().map(|gap| gap.until_ms).filter(|&end| end > arrival_ms);
            self.jumped_ms += ends.min().map_or(1, |end| end - arrival_ms);
        }
    }

    fn delay_ms(&mut self) -> i64 {
        if self.spec.lateness.is_empty() {
            return 0;
        }
        let entry = self.spec.lateness[self.lateness.draw(&mut self.random)];
        i64::from(entry.min_ms) + self.random.below(u64::from(entry.max_ms - entry.min_ms) + 1) as i64
    }
}

impl Iterator for Generator {
    type Item = Event;

    #[inline]
    fn next(&mut self) -> Option<Event> {
        if self.drawn >= self.spec.events {
            return None;
        }
        let partition = self.partition();
        let arrival = i64::try_from(self.arrival_ms()).unwrap_or(i64::MAX);
        let time = self.spec.start.as_millis().saturating_add(arrival).saturating_sub(self.delay_ms());
        let key = match &self.keys {
            None => self.random.below(self.spec.keys),
            Some(choice) => choice.draw(&mut self.random) as u64,
        };
        let value = if self.null.hits(&mut self.random) {
            None
        } else {
            Some(self.random.between(self.spec.value_min, self.spec.value_max))
        };
        let mut defect = None;
        if self.malformed.hits(&mut self.random) {
            defect = Some(DEFECTS[self.defects % DEFECTS.len()]);
            self.defects += 1;
        }
        self.drawn += 1;
        Some(Event { partition, time: EventTime::from_millis(time), key, value, defect })
    }
}

#[cfg(test)]
mod tests;
