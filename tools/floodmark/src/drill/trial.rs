//! One trial: a run from the start to the end of its input, killed on its way and started again, and what came out.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use floodmark::error::Error;
use serde::Serialize;

use super::base::{Base, newest};
use super::child::{events_processed, forget_events};
use super::compare::{Difference, compare};
use super::moment::Ambush;
use super::plan::{Moment, TrialPlan};
use super::process::{Ended, How, Runner};
use super::redirect;

/// What came out without any kill.
#[derive(Clone, Debug)]
pub(super) struct Reference {
    /// Where it ran.
    pub(super) root: PathBuf,
    /// Time from the start of the process to its end.
    pub(super) length: Duration,
    /// The rate that it was held to.
    pub(super) rate: Option<NonZeroU32>,
    /// Events that it processed.
    pub(super) events: u64,
    /// Checkpoints that it made.
    pub(super) checkpoints: u64,
    /// The outputs that are compared.
    pub(super) outputs: Vec<String>,
}

/// A kill and the restart that it made necessary.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Kill {
    #[serde(flatten)]
    pub(super) moment: Moment,
    /// Milliseconds after the start of the killed process.
    pub(super) after_ms: f64,
    /// The checkpoint that was there to go on from; null for none.
    pub(super) checkpoint: Option<u64>,
    /// Events that the killed run had processed since that checkpoint, and the next run processes again.
    pub(super) replayed: u64,
    /// From the start of the next process to its first new event; null when it was killed before.
    pub(super) recovery_ms: Option<f64>,
    /// Of these, by its own account, restoring.
    pub(super) restoring_ms: Option<f64>,
}

/// What became of a trial.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Trial {
    pub(super) number: u32,
    pub(super) kills: Vec<Kill>,
    /// Kills that were planned, and came too late because the run was over.
    pub(super) missed: u32,
    /// Why a run did not come back.
    pub(super) failure: Option<String>,
    /// Outputs that differ from those without kills.
    pub(super) differences: Vec<Difference>,
    pub(super) seconds: f64,
}

impl Trial {
    /// True when it came back with the same bytes.
    pub(super) fn is_good(&self) -> bool {
        self.failure.is_none() && self.differences.is_empty()
    }
}

impl Reference {
    /// How the outputs of a run in `root` differ.
    ///
    /// # Errors
    /// `Unavailable` when an output cannot be read.
    pub(super) fn differences(&self, root: &Path) -> Result<Vec<Difference>, Error> {
        let (expected, found) = (redirect::outputs(&self.root), redirect::outputs(root));
        let mut differences = Vec::new();
        for output in &self.outputs {
            differences.extend(compare(output, &expected.join(output), &found.join(output))?);
        }
        Ok(differences)
    }
}

/// Carries out a plan in `root`, which is empty.
///
/// # Errors
/// `Unavailable` when the machine is in the way of the drill itself. That a run does not come back is no error here.
pub(super) fn carry_out(
    plan: &TrialPlan,
    runner: &Runner,
    base: &Base,
    reference: &Reference,
    root: &Path,
) -> Result<Trial, Error> {
    let started = runner.clock.monotonic();
    base.lay_out(root)?;
    let mut trial = Trial {
        number: plan.number,
        kills: Vec::new(),
        missed: 0,
        failure: None,
        differences: Vec::new(),
        seconds: 0.0,
    };
    trial.failure = run_and_kill(plan, runner, reference, root, &mut trial)?;
    if trial.failure.is_none() {
        trial.differences = reference.differences(root)?;
    }
    trial.seconds = runner.clock.monotonic().saturating_sub(started).as_secs_f64();
    Ok(trial)
}

/// Returns why a run did not come back, when one did not.
fn run_and_kill(
    plan: &TrialPlan,
    runner: &Runner,
    reference: &Reference,
    root: &Path,
    trial: &mut Trial,
) -> Result<Option<String>, Error> {
    for (index, &moment) in plan.kills.iter().enumerate() {
        forget_events(root)?;
        let ambush = Ambush::new(root, moment, reference.length);
        let mut running = runner.start(root, How { rate: reference.rate, at: None })?;
        let came = ambush.wait(&mut running)?;
        let ended = running.kill()?;
        if let Some(failure) = note_recovery(trial, &ended) {
            return Ok(Some(failure));
        }
        // It may have ended between the look and the kill.
        if !came || ended.code.is_some() {
            trial.missed = (plan.kills.len() - index) as u32;
            return Ok(ended.failure());
        }
        let stored = newest(&redirect::state(root))?;
        let before = stored.as_ref().map_or(0, |stored| stored.events);
        trial.kills.push(Kill {
            moment,
            after_ms: millis(ended.wall),
            checkpoint: stored.map(|stored| stored.epoch),
            replayed: events_processed(root).unwrap_or(0).saturating_sub(before),
            recovery_ms: None,
            restoring_ms: None,
        });
    }
    let ended = runner.run(root, How::default())?;
    Ok(note_recovery(trial, &ended).or_else(|| ended.failure()))
}

/// The run that ended was the restart after the last kill so far. Returns what is wrong with that.
fn note_recovery(trial: &mut Trial, ended: &Ended) -> Option<String> {
    let kill = trial.kills.last_mut()?;
    kill.recovery_ms = ended.recovery.map(millis);
    kill.restoring_ms = ended.restoring_ms;
    let restored = ended.restored?;
    let told = |epoch: Option<u64>| epoch.map_or("none".to_owned(), |epoch| epoch.to_string());
    let wrong =
        || format!("it restored checkpoint {}, the newest was {}", told(restored), told(kill.checkpoint));
    (restored != kill.checkpoint).then(wrong)
}

pub(super) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(restored: Option<Option<u64>>) -> Ended {
        let recovery = restored.map(|_| Duration::from_millis(40));
        Ended {
            code: Some(0),
            restored,
            recovery,
            restoring_ms: None,
            finished: None,
            wall: Duration::from_secs(1),
            stderr: String::new(),
        }
    }

    fn killed_at(checkpoint: Option<u64>) -> Trial {
        let kill = Kill {
            moment: Moment::Random { share: 0.5 },
            after_ms: 500.0,
            checkpoint,
            replayed: 7,
            recovery_ms: None,
            restoring_ms: None,
        };
        Trial {
            number: 1,
            kills: vec![kill],
            missed: 0,
            failure: None,
            differences: Vec::new(),
            seconds: 0.0,
        }
    }

    #[test]
    fn a_restart_has_to_restore_the_newest_checkpoint_and_no_other() {
        for newest in [None, Some(4)] {
            let mut trial = killed_at(newest);
            assert_eq!(note_recovery(&mut trial, &ended(Some(newest))), None);
            assert_eq!(trial.kills[0].recovery_ms, Some(40.0));
        }
        let wrong = note_recovery(&mut killed_at(Some(4)), &ended(Some(Some(3))));
        assert!(wrong.is_some_and(|wrong| wrong.contains("restored checkpoint 3, the newest was 4")));
        assert!(note_recovery(&mut killed_at(Some(4)), &ended(Some(None))).is_some());
        // Killed before it had restored anything.
        assert_eq!(note_recovery(&mut killed_at(Some(4)), &ended(None)), None);
    }
}
