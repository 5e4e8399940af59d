//! Does the state stay as large as it is? A longer stream at one delay, whose keys are all replaced day by day, and a
//! verdict over its two halves: what is kept of windows or keys that are gone would show in the second.

use floodmark::error::{Error, ErrorKind};
use serde::Serialize;

use super::lateness::Profile;
use super::measure::Sample;
use super::shape::Kind;

/// Growth of the second half over the first up to which panes and files count as steady. Files come and go with
/// compactions; state that is never freed nearly doubles.
const ALLOWED: f64 = 0.10;
/// The same for memory: a table that is rarely full to its brim may take its next size at any time.
const ALLOWED_MEMORY: f64 = 0.25;
/// Bytes of memory that may come on top: sessions forget keys that have none any more only once there are thousands.
const SLACK_MEMORY: f64 = 512.0 * 1024.0;

/// Medians of one figure over the halves of the steady time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Halves {
    pub(super) first: f64,
    pub(super) second: f64,
    /// The second over the first, less one.
    pub(super) growth: f64,
    /// How much of that still counts as steady; null for a figure that is not judged.
    pub(super) allowed: Option<f64>,
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
        let of = |figure: fn(&Sample) -> u64, allowed: Option<Allowed>| {
            halves(&steady.iter().map(|sample| figure(sample) as f64).collect::<Vec<f64>>(), allowed)
                .ok_or_else(|| Error::new(ErrorKind::Bug, "the long run has nothing to compare"))
        };
        let open_panes = of(|at| at.open_panes, Some(Allowed { share: ALLOWED, bytes: 0.0 }))?;
        let memory_bytes =
            of(|at| at.memory_bytes, Some(Allowed { share: ALLOWED_MEMORY, bytes: SLACK_MEMORY }))?;
        let disk_bytes = of(|at| at.disk_bytes, Some(Allowed { share: ALLOWED, bytes: 0.0 }))?;
        // Holds RocksDB's own list of changes, which grows with every checkpoint until it is written anew.
        let checkpoint_bytes = of(|at| at.checkpoint_bytes, None)?;
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
            plateau: [open_panes, memory_bytes, disk_bytes].iter().all(|halves| !halves.grew),
            seconds: run.seconds,
            samples: run.samples,
        })
    }

    /// The figures that grew, by name.
    pub(super) fn grown(&self) -> Vec<String> {
        let named =
            [("open panes", self.open_panes), ("memory", self.memory_bytes), ("disk", self.disk_bytes)];
        let grown = named.iter().filter(|(_, halves)| halves.grew);
        grown
            .map(|(name, halves)| {
                let allowed = halves.allowed.unwrap_or_default() * 100.0;
                format!("{name} {:+.0} %, where {allowed:.0} % is allowed", halves.growth * 100.0)
            })
            .collect()
    }
}

/// Growth that counts as steady: a share of the first half, or so many bytes where these are more.
#[derive(Clone, Copy, Debug)]
struct Allowed {
    share: f64,
    bytes: f64,
}

fn halves(values: &[f64], allowed: Option<Allowed>) -> Option<Halves> {
    let (first, second) = values.split_at(values.len() / 2);
    let median = |half: &[f64]| {
        let mut sorted = half.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied()
    };
    let (first, second) = (median(first)?, median(second)?);
    let growth = second / first.max(1.0) - 1.0;
    let allowed = allowed.map(|allowed| allowed.share.max(allowed.bytes / first.max(1.0)));
    let grew = allowed.is_some_and(|allowed| growth > allowed);
    Some(Halves { first, second, growth, allowed, grew })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    fn run(disk: impl Fn(u64) -> u64) -> Result<Growth, Error> {
        judged(disk, |_| 900_000)
    }

    fn judged(disk: impl Fn(u64) -> u64, memory: impl Fn(u64) -> u64) -> Result<Growth, Error> {
        let sample = |hour: u64| Sample {
            at_ms: hour * HOUR,
            open_panes: 5_000 + hour % 3,
            memory_bytes: memory(hour),
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
        assert_eq!(leaking.grown(), ["disk +118 %, where 10 % is allowed"]);
        let creeping = run(|hour| 1_000_000 + hour * 2_000).expect("judged");
        assert!(!creeping.plateau, "{:?}", creeping.disk_bytes);
    }

    #[test]
    fn what_grows_while_the_state_fills_up_is_not_held_against_it() {
        let filling = run(|hour| hour.min(24) * 50_000).expect("judged");
        assert!(filling.plateau && filling.disk_bytes.growth == 0.0);
    }

    #[test]
    fn memory_may_take_one_more_size_of_a_table_and_no_more() {
        let of = |memory: fn(u64) -> u64| judged(|_| 1_000, memory).expect("judged").plateau;
        assert!(of(|hour| if hour < 100 { 40_000 } else { 80_000 }), "few bytes");
        assert!(of(|hour| if hour < 100 { 9_000_000 } else { 11_000_000 }), "a small share");
        assert!(!of(|hour| 200_000 * hour), "neither");
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
