//! How late events arrive: lateness profiles as distributions, which the stream draws from and the model integrates.
//! Both ends are exact, so that neither is fitted to the other.

use clap::ValueEnum;
use serde::Serialize;

use crate::random::Random;

const SECOND: f64 = 1_000.0;
const MINUTE: f64 = 60.0 * SECOND;
const HOUR: f64 = 60.0 * MINUTE;

/// A kind of lateness that the benchmark knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Profile {
    /// Events arrive at their event time.
    None,
    /// Exponential with a mean of 30 s.
    Exponential,
    /// As exponential, but 5 % of the events come 5 min to 36 h late: ten times as late, ten times as rare.
    HeavyTail,
    /// One key in ten is a device that is offline for 8 h of each day and then sends everything at once.
    Offline,
}

/// Time that a device of [`Profile::Offline`] is away, and the period of its absences, in milliseconds.
pub(super) const OUTAGE_MS: u64 = 8 * 3_600_000;
pub(super) const OUTAGE_PERIOD_MS: u64 = 24 * 3_600_000;
/// Of so many keys one is such a device.
pub(super) const OFFLINE_ONE_IN: u64 = 10;

impl Profile {
    /// All of them, in the order of reports.
    pub(super) const ALL: [Self; 4] = [Self::None, Self::Exponential, Self::HeavyTail, Self::Offline];

    /// Stable name in reports and on the command line.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Exponential => "exponential",
            Self::HeavyTail => "heavy-tail",
            Self::Offline => "offline",
        }
    }

    /// The distribution, for each class of keys with its share of them.
    pub(super) fn classes(self) -> Vec<Class> {
        let all = |lateness| vec![Class { share: 1.0, lateness }];
        match self {
            Self::None => all(Lateness::of(vec![(1.0, Part::Zero)])),
            Self::Exponential => all(Lateness::of(vec![(1.0, SHORT)])),
            Self::HeavyTail => all(Lateness::of(vec![(0.95, SHORT), (0.05, LONG)])),
            Self::Offline => {
                let away = OUTAGE_MS as f64 / OUTAGE_PERIOD_MS as f64;
                let held = Part::Uniform { max: OUTAGE_MS as f64 };
                let devices = 1.0 / OFFLINE_ONE_IN as f64;
                vec![
                    Class { share: 1.0 - devices, lateness: Lateness::of(vec![(1.0, Part::Zero)]) },
                    Class {
                        share: devices,
                        lateness: Lateness::of(vec![(1.0 - away, Part::Zero), (away, held)]),
                    },
                ]
            }
        }
    }
}

const SHORT: Part = Part::Exponential { mean: 30.0 * SECOND };
const LONG: Part = Part::Pareto { min: 5.0 * MINUTE, max: 36.0 * HOUR };

/// Keys whose events are late in the same way.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Class {
    /// Share of the keys.
    pub(super) share: f64,
    pub(super) lateness: Lateness,
}

/// A mix of distributions of lateness, in milliseconds. The weights sum to one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lateness {
    parts: Vec<(f64, Part)>,
}

/// One distribution of lateness, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Part {
    /// Not late.
    Zero,
    /// Anything up to `max` alike.
    Uniform { max: f64 },
    /// Without memory: most are a little late, a few several times the mean.
    Exponential { mean: f64 },
    /// Heavy tail: between the ends, ten times the lateness is about ten times rarer.
    Pareto { min: f64, max: f64 },
}

impl Lateness {
    pub(super) const fn of(parts: Vec<(f64, Part)>) -> Self {
        Self { parts }
    }

    /// Share of the events that are later than `late`.
    pub(super) fn later_than(&self, late: f64) -> f64 {
        self.parts.iter().map(|(weight, part)| weight * part.later_than(late)).sum()
    }

    /// Share of the events that have arrived when they are `age` old.
    pub(super) fn arrived(&self, age: f64) -> f64 {
        if age < 0.0 { 0.0 } else { 1.0 - self.later_than(age) }
    }

    /// The integral of [`Lateness::later_than`] from 0 to `late`.
    pub(super) fn later_than_up_to(&self, late: f64) -> f64 {
        self.parts.iter().map(|(weight, part)| weight * part.later_than_up_to(late.max(0.0))).sum()
    }

    /// The integral of [`Lateness::arrived`] from 0 to `age`.
    pub(super) fn arrived_up_to(&self, age: f64) -> f64 {
        let age = age.max(0.0);
        age - self.later_than_up_to(age)
    }

    /// Draws a lateness.
    pub(super) fn draw(&self, random: &mut Random) -> f64 {
        let mut left = random.unit();
        for (weight, part) in &self.parts {
            if left < *weight {
                return part.draw(random);
            }
            left -= weight;
        }
        self.parts.last().map_or(0.0, |(_, part)| part.draw(random))
    }
}

impl Part {
    /// Share of the events that are later than `late`, which is not negative.
    fn later_than(self, late: f64) -> f64 {
        match self {
            Self::Zero => 0.0,
            Self::Uniform { max } => (1.0 - late / max).max(0.0),
            Self::Exponential { mean } => (-late / mean).exp(),
            Self::Pareto { min, .. } if late < min => 1.0,
            Self::Pareto { min, max } => {
                ((late.recip() - max.recip()) / (min.recip() - max.recip())).max(0.0)
            }
        }
    }

    fn later_than_up_to(self, late: f64) -> f64 {
        match self {
            Self::Zero => 0.0,
            Self::Uniform { max } => {
                let late = late.min(max);
                late - late * late / (2.0 * max)
            }
            Self::Exponential { mean } => mean * -(-late / mean).exp_m1(),
            Self::Pareto { min, .. } if late < min => late,
            Self::Pareto { min, max } => {
                let late = late.min(max);
                min + ((late / min).ln() - (late - min) / max) / (min.recip() - max.recip())
            }
        }
    }

    /// Uses nothing but comparisons and the four operations, which are the same on every platform.
    fn draw(self, random: &mut Random) -> f64 {
        match self {
            Self::Zero => 0.0,
            Self::Uniform { max } => max * random.unit(),
            Self::Exponential { mean } => mean * unit_exponential(random),
            Self::Pareto { min, max } => (max.recip() + random.unit() * (min.recip() - max.recip())).recip(),
        }
    }
}

/// An exponential number of mean one by von Neumann's comparisons (1951), without a logarithm.
fn unit_exponential(random: &mut Random) -> f64 {
    let mut whole = 0.0;
    loop {
        let first = random.unit();
        let (mut last, mut falling) = (first, 1_u32);
        loop {
            let next = random.unit();
            if next >= last {
                break;
            }
            last = next;
            falling += 1;
        }
        if falling % 2 == 1 {
            return whole + first;
        }
        whole += 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWN: usize = 200_000;

    fn parts() -> [Lateness; 5] {
        let one = |part| Lateness::of(vec![(1.0, part)]);
        [
            one(Part::Zero),
            one(Part::Uniform { max: 7.0 }),
            one(Part::Exponential { mean: 3.0 }),
            one(Part::Pareto { min: 2.0, max: 500.0 }),
            Lateness::of(vec![(0.25, Part::Zero), (0.75, Part::Uniform { max: 4.0 })]),
        ]
    }

    #[test]
    fn what_is_drawn_is_as_late_as_the_distribution_says() {
        for lateness in parts() {
            let mut random = Random::new(3, 1);
            let drawn: Vec<f64> = (0..DRAWN).map(|_| lateness.draw(&mut random)).collect();
            for late in [0.0, 0.5, 2.0, 3.5, 6.0, 20.0, 499.0] {
                let counted = drawn.iter().filter(|&&drawn| drawn > late).count() as f64 / DRAWN as f64;
                let said = lateness.later_than(late);
                assert!((counted - said).abs() < 0.005, "{lateness:?} {late}: drawn {counted}, said {said}");
            }
        }
    }

    #[test]
    fn integrals_are_the_sums_of_what_they_integrate() {
        for lateness in parts() {
            let step = 0.001;
            let (mut later, mut arrived) = (0.0, 0.0);
            for index in 0..20_000 {
                let middle = (f64::from(index) + 0.5) * step;
                later += lateness.later_than(middle) * step;
                arrived += lateness.arrived(middle) * step;
                if index == 1_499 {
                    assert!((lateness.later_than_up_to(1.5) - later).abs() < 1e-3, "{lateness:?}");
                }
            }
            assert!((lateness.later_than_up_to(20.0) - later).abs() < 1e-3, "{lateness:?}");
            assert!((lateness.arrived_up_to(20.0) - arrived).abs() < 1e-3, "{lateness:?}");
        }
    }

    #[test]
    fn classes_of_keys_and_weights_of_parts_are_whole() {
        for profile in Profile::ALL {
            let classes = profile.classes();
            assert!((classes.iter().map(|class| class.share).sum::<f64>() - 1.0).abs() < 1e-12);
            for class in classes {
                let whole: f64 = class.lateness.parts.iter().map(|(weight, _)| weight).sum();
                assert!((whole - 1.0).abs() < 1e-12, "{profile:?}");
            }
            assert_eq!(profile.to_possible_value().expect("named").get_name(), profile.name());
        }
    }
}
