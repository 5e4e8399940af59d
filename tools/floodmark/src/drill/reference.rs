//! The uninterrupted runs: what comes out without kills, how long that takes, and which outputs can be compared at all.

use std::num::NonZeroU32;
use std::time::Duration;

use floodmark::error::{Error, ErrorKind};

use super::base::Base;
use super::compare::rows;
use super::process::{Ended, How, Runner};
use super::redirect::{self, Output};
use super::report::OutputReport;
use super::scratch::{self, Scratch};
use super::trial::Reference;

/// What was found out without any kill.
pub(super) struct Measured {
    pub(super) reference: Reference,
    /// Where runs start; not where it was said when nothing was left to read from there.
    pub(super) base: Base,
    pub(super) outputs: Vec<OutputReport>,
    /// Remarks for the report.
    pub(super) notes: Vec<String>,
}

/// Runs twice: as fast as it goes, and so that it takes about `run_time`. Both have to say the same.
///
/// # Errors
/// As the pipeline itself, when it does not run without kills either; `Invalid` when there is nothing to read.
pub(super) fn measure(
    runner: &Runner,
    base: Base,
    outputs: &[Output],
    run_time: Duration,
    scratch: &Scratch,
) -> Result<Measured, Error> {
    let mut notes = Vec::new();
    let (mut base, mut events) = (base, 0);
    let mut seconds = 0.0;
    for _ in 0..2 {
        let finished = straight(runner, &base, scratch, "fast", None)?.finished;
        (events, seconds) = finished.map_or((0, 0.0), |finished| (finished.events, finished.seconds));
        let Some(stored) = base.stored.as_ref().filter(|_| events == 0) else { break };
        notes.push(format!(
            "checkpoint {} was restored once; it had read all input, so the kills start from the beginning, with \
             empty state",
            stored.epoch
        ));
        base = Base::empty(scratch.place("empty")?);
    }
    if events == 0 {
        return Err(Error::new(
            ErrorKind::Invalid,
            "the input holds no events: there is nothing to interrupt",
        )
        .with_remedy("check the path of the source, or drill with --generate"));
    }
    let rate = rate(events, seconds, run_time);
    let steady = straight(runner, &base, scratch, "reference", rate)?;
    let root = scratch.root().join("reference");
    let mut reference = Reference {
        root,
        length: steady.wall,
        rate,
        events,
        checkpoints: steady.finished.map_or(0, |finished| finished.checkpoints),
        outputs: outputs.iter().map(|output| output.name.clone()).collect(),
    };
    let unstable = reference.differences(&scratch.root().join("fast"))?;
    let mut reports = Vec::new();
    for output in outputs {
        let differs = unstable.iter().any(|difference| difference.output == output.name);
        let left_out = match output.varies {
            Some(reason) => Some(reason),
            None if differs => Some("two runs without kills differ already"),
            None => None,
        };
        let directory = redirect::outputs(&reference.root).join(&output.name);
        reports.push(OutputReport {
            name: output.name.clone(),
            rows: rows(&directory)?,
            left_out: left_out.map(str::to_owned),
            ..OutputReport::default()
        });
    }
    reference.outputs =
        reports.iter().filter(|output| output.left_out.is_none()).map(|output| output.name.clone()).collect();
    scratch::remove(&scratch.root().join("fast"))?;
    Ok(Measured { reference, base, outputs: reports, notes })
}

/// A run without kills, which must come to the end of its input.
fn straight(
    runner: &Runner,
    base: &Base,
    scratch: &Scratch,
    place: &str,
    rate: Option<NonZeroU32>,
) -> Result<Ended, Error> {
    let root = scratch.place(place)?;
    base.lay_out(&root)?;
    let ended = runner.run(&root, How { rate, at: None })?;
    match ended.failure() {
        None => Ok(ended),
        Some(failure) => {
            let kind = match ended.code {
                Some(2) => ErrorKind::Invalid,
                Some(3) => ErrorKind::Unavailable,
                Some(4) => ErrorKind::Locked,
                Some(5) => ErrorKind::Damaged,
                Some(6) => ErrorKind::Incompatible,
                _ => ErrorKind::Bug,
            };
            Err(Error::new(kind, format!("the pipeline does not run without kills either: {failure}"))
                .with_remedy("mend that first; `floodmark run` says the same"))
        }
    }
}

/// The rate that makes a run of `events`, which took `seconds`, take `run_time`. None where it takes as long anyway.
fn rate(events: u64, seconds: f64, run_time: Duration) -> Option<NonZeroU32> {
    if seconds >= run_time.as_secs_f64() {
        return None;
    }
    NonZeroU32::new((events as f64 / run_time.as_secs_f64()).clamp(1.0, f64::from(u32::MAX)) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_too_fast_is_slowed_down() {
        let rate = |events, seconds| rate(events, seconds, Duration::from_secs(2)).map(NonZeroU32::get);
        assert_eq!(rate(60_000, 0.3), Some(30_000));
        assert_eq!(rate(1, 0.0), Some(1));
        assert_eq!(rate(60_000, 2.0), None);
        assert_eq!(rate(u64::MAX, 0.1), Some(u32::MAX));
    }
}
