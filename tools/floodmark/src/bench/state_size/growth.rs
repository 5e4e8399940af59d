//! Does the state stay as large as it is? A longer stream at one delay, whose keys are all replaced day by day, and a
//! verdict over its two halves: what is kept of windows or keys that are gone would show in the second.

use floodmark::error::{Error, ErrorKind};
use serde::Serialize;

use super::lateness::Profile;
use super::measure::Sample;
use super::shape::Kind;

/// Growth of the second half over the first up to which the state counts as steady. Files come and go with compactions;
/// state that is never freed more than doubles it.
pub(super) const TOLERANCE: f64 = 0.10;

/// Means of one figure over the halves of the steady time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Halves {
    pub(super) first: f64,
    pub(super) second: f64,
    /// The second over the first, less one.
    pub(super) growth: f64,
    pub(super) grew: bool,
}

/// A long run at one delay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Growth {
    pub(super) window: Kind,
    pub(super) profile: Profile,
    pub(super) delay_ms: u64,
    pub(super) events: u64,
    /// Arrival time from which on the state is steady.
    pub(super) warm_up_ms: u64,
    pub(super) open_panes: Halves,
    pub(super) memory_bytes: Halves,
    pub(super) disk_bytes: Halves,
    pub(super) checkpoint_bytes: Halves,
    /// What the model says of open panes.
    pub(super) open_panes_model: f64,
    pub(super) plateau: bool,
    pub(super) seconds: f64,
    pub(super) samples: Vec<Sample>,
}

/// What is known of a long run before it is judged.
#[derive(Clone, Debug)]
pub(super) struct LongRun {
    pub(super) window: Kind,
    pub(super) profile: Profile,
    pub(super) delay_ms: u64,
    pub(super) events: u64,
    pub(super) warm_up_ms: u64,
    pub(super) open_panes_model: f64,
    pub(super) seconds: f64,
    pub(super) samples: Vec<Sample>,
}

impl Growth {
    /// Judges it.
    ///
    /// # Errors
    /// When there are not two samples after the warm-up.
    pub(super) fn judge(run: LongRun) -> Result<Self, Error> {
        let steady: Vec<&Sample> =
            run.samples.iter().filter(|sample| sample.at_ms > run.warm_up_ms).collect();
        let of = |figure: fn(&Sample) -> u64| {
            halves(&steady.iter().map(|sample| figure(sample) as f64).collect::<Vec<f64>>())
                .ok_or_else(|| Error::new(ErrorKind::Bug, "the long run has nothing to compare"))
        };
        let (open_panes, memory_bytes) = (of(|at| at.open_panes)?, of(|at| at.memory_bytes)?);
        let (disk_bytes, checkpoint_bytes) = (of(|at| at.disk_bytes)?, of(|at| at.checkpoint_bytes)?);
        let figures = [open_panes, memory_bytes, disk_bytes, checkpoint_bytes];
        Ok(Self {
            window: run.window,
            profile: run.profile,
            delay_ms: run.delay_ms,
            events: run.events,
            warm_up_ms: run.warm_up_ms,
            open_panes,
            memory_bytes,
            disk_bytes,
            checkpoint_bytes,
            open_panes_model: run.open_panes_model,
            plateau: figures.iter().all(|halves| !halves.grew),
            seconds: run.seconds,
            samples: run.samples,
        })
    }

    /// The figures that grew, by name.
    pub(super) fn grown(&self) -> Vec<String> {
        let named = [
            ("open panes", self.open_panes),
            ("memory", self.memory_bytes),
            ("disk", self.disk_bytes),
            ("checkpoints", self.checkpoint_bytes),
        ];
        let grown = named.iter().filter(|(_, halves)| halves.grew);
        grown.map(|(name, halves)| format!("{name} {:+.0} %", halves.growth * 100.0)).collect()
    }
}

fn halves(values: &[f64]) -> Option<Halves> {
    let (first, second) = values.split_at(values.len() / 2);
    let mean = |half: &[f64]| (!half.is_empty()).then(|| half.iter().sum::<f64>() / half.len() as f64);
    let (first, second) = (mean(first)?, mean(second)?);
    let growth = second / first.max(1.0) - 1.0;
    Some(Halves { first, second, growth, grew: growth > TOLERANCE })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    fn run(disk: impl Fn(u64) -> u64) -> Result<Growth, Error> {
        let sample = |hour: u64| Sample {
            at_ms: hour * HOUR,
            open_panes: 5_000 + hour % 3,
            memory_bytes: 900_000,
            disk_bytes: disk(hour),
            checkpoint_bytes: 200_000,
        };
        Growth::judge(LongRun {
            window: Kind::Tumbling,
            profile: Profile::HeavyTail,
            delay_ms: 0,
            events: 1,
            warm_up_ms: 24 * HOUR,
            open_panes_model: 5_000.0,
            seconds: 1.0,
            samples: (1..=168).map(sample).collect(),
        })
    }

    #[test]
    fn files_that_come_and_go_are_a_plateau_and_files_that_stay_are_not() {
        let steady = run(|hour| 1_000_000 + hour % 4 * 300_000).expect("judged");
        assert!(steady.plateau && steady.grown().is_empty(), "{:?}", steady.disk_bytes);
        let leaking = run(|hour| hour * 10_000).expect("judged");
        assert!(!leaking.plateau && leaking.disk_bytes.grew && !leaking.open_panes.grew);
        assert_eq!(leaking.grown(), ["disk +119 %"]);
        let creeping = run(|hour| 1_000_000 + hour * 2_000).expect("judged");
        assert!(!creeping.plateau, "{:?}", creeping.disk_bytes);
    }

    #[test]
    fn what_grows_while_the_state_fills_up_is_not_held_against_it() {
        let filling = run(|hour| hour.min(24) * 50_000).expect("judged");
        assert!(filling.plateau && filling.disk_bytes.growth == 0.0);
    }

    #[test]
    fn a_run_without_steady_time_is_an_error() {
        let mut short = run(|_| 1).expect("judged");
        short.samples.truncate(25);
        let run = LongRun {
            window: short.window,
            profile: short.profile,
            delay_ms: 0,
            events: 1,
            warm_up_ms: 24 * HOUR,
            open_panes_model: 1.0,
            seconds: 1.0,
            samples: short.samples,
        };
        assert!(Growth::judge(run).is_err());
    }
}
