//! The report of a drill: what was tried and what came of it as plain data, and the verdict over it. How it looks is up to
//! `text` and `html`.

mod html;
mod plot;
mod progress;
mod text;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use floodmark::error::{Error, ErrorKind};
use serde::Serialize;

use super::damage::Damage;
use super::reference::Measured;
use super::scratch::failed;
use super::trial::{Kill, Trial, millis};

/// What a drill comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// Everything came back, and every damage was noticed.
    Pass,
    /// Something did not.
    Fail,
    /// Nothing went wrong, but nothing was proved either.
    Inconclusive,
}

/// The machine and the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Environment {
    pub(super) version: &'static str,
    pub(super) system: &'static str,
    pub(super) processor: &'static str,
    pub(super) cores: usize,
    /// A build for testing: slower than what is released.
    pub(super) debug_build: bool,
}

impl Environment {
    /// Of this process.
    pub(super) fn here() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            system: std::env::consts::OS,
            processor: std::env::consts::ARCH,
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            debug_build: cfg!(debug_assertions),
        }
    }
}

/// The run without kills.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Straight {
    pub(super) events: u64,
    pub(super) length_ms: f64,
    pub(super) checkpoints: u64,
    /// Events per second that runs were held to.
    pub(super) rate: Option<u32>,
}

/// An output, over all trials.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct OutputReport {
    pub(super) name: String,
    /// Rows of the run without kills.
    pub(super) rows: u64,
    /// Why it is not compared.
    pub(super) left_out: Option<String>,
    pub(super) lost: u64,
    pub(super) doubled: u64,
    pub(super) strange: u64,
}

/// The figures that a verdict rests on.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Totals {
    /// Runs that were killed once or several times and brought to their end.
    pub(super) trials: u64,
    pub(super) trials_good: u64,
    /// Kills; each made a restore necessary.
    pub(super) restores: u64,
    /// Restores whose trial ended with the same bytes.
    pub(super) restores_good: u64,
    /// Restores that found a checkpoint.
    pub(super) from_checkpoint: u64,
    /// Kills that came after the end of the run.
    pub(super) missed: u64,
    pub(super) recovery_ms_median: Option<f64>,
    pub(super) recovery_ms_max: Option<f64>,
    pub(super) replayed: u64,
    pub(super) replayed_max: u64,
    pub(super) rows_lost: u64,
    pub(super) rows_doubled: u64,
    pub(super) rows_strange: u64,
    pub(super) damaged: u64,
    pub(super) detected: u64,
    /// Restores of the checkpoint before the damaged one.
    pub(super) went_back: u64,
    pub(super) went_back_good: u64,
}

/// Everything that a drill found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Report {
    pub(super) verdict: Verdict,
    /// The verdict in one paragraph.
    pub(super) summary: String,
    pub(super) pipeline: String,
    /// The checkpoint that runs started from; null for empty state.
    pub(super) start_epoch: Option<u64>,
    pub(super) seed: u64,
    /// Does the same again.
    pub(super) command: String,
    pub(super) environment: Environment,
    pub(super) straight: Straight,
    pub(super) totals: Totals,
    pub(super) outputs: Vec<OutputReport>,
    pub(super) trials: Vec<Trial>,
    pub(super) damages: Vec<Damage>,
    pub(super) notes: Vec<String>,
    /// Where everything is left.
    pub(super) evidence: Option<PathBuf>,
    pub(super) seconds: f64,
}

impl Report {
    /// A report on nothing yet.
    pub(super) fn new(
        pipeline: &str,
        seed: u64,
        command: String,
        environment: Environment,
        measured: &Measured,
    ) -> Self {
        let reference = &measured.reference;
        Self {
            verdict: Verdict::Inconclusive,
            summary: String::new(),
            pipeline: pipeline.to_owned(),
            start_epoch: measured.base.stored.as_ref().map(|stored| stored.epoch),
            seed,
            command,
            environment,
            straight: Straight {
                events: reference.events,
                length_ms: millis(reference.length),
                checkpoints: reference.checkpoints,
                rate: reference.rate.map(std::num::NonZeroU32::get),
            },
            totals: Totals::default(),
            outputs: measured.outputs.clone(),
            trials: Vec::new(),
            damages: Vec::new(),
            notes: measured.notes.clone(),
            evidence: None,
            seconds: 0.0,
        }
    }

    /// Counts, and gives the verdict. `input_changed`: runs without kills do not agree any more.
    pub(super) fn judge(&mut self, trials: Vec<Trial>, damages: Vec<Damage>, input_changed: bool) {
        for difference in trials.iter().flat_map(|trial| &trial.differences) {
            if let Some(output) = self.outputs.iter_mut().find(|output| output.name == difference.output) {
                output.lost += difference.lost;
                output.doubled += difference.doubled;
                output.strange += difference.strange;
            }
        }
        self.totals = totals(&trials, &damages, &self.outputs);
        let compared = self.outputs.iter().any(|output| output.left_out.is_none());
        let bad =
            trials.iter().any(|trial| !trial.is_good()) || damages.iter().any(|damage| !damage.is_good());
        self.verdict = match () {
            () if input_changed => Verdict::Inconclusive,
            () if bad => Verdict::Fail,
            () if !compared || self.totals.from_checkpoint == 0 => Verdict::Inconclusive,
            () => Verdict::Pass,
        };
        if input_changed {
            self.notes
                .push("two runs without kills do not agree: the input changed during the drill".to_owned());
        }
        if !compared {
            self.notes.push("no output can be compared".to_owned());
        }
        let Totals { from_checkpoint, restores, .. } = self.totals;
        if from_checkpoint * 2 < restores || restores == 0 {
            self.notes.push(format!(
                "{from_checkpoint} of {restores} kills came after a checkpoint, which shows little: give runs more time \
                 with --run-time, or, where the input is short, drill with --generate"
            ));
        }
        (self.trials, self.damages) = (trials, damages);
        self.summary = text::paragraph(self);
    }

    /// All of it as a line of JSON.
    ///
    /// # Errors
    /// `Bug` when that cannot be done.
    pub(super) fn to_json(&self) -> Result<String, Error> {
        serde_json::to_string(self)
            .map(|json| json + "\n")
            .map_err(|error| Error::new(ErrorKind::Bug, "cannot write the report").with_source(error))
    }

    /// For people, at a terminal.
    pub(super) fn to_text(&self) -> String {
        text::report(self)
    }

    /// For people, in a browser.
    ///
    /// # Errors
    /// `Unavailable` when the file cannot be written.
    pub(super) fn write_html(&self, path: &Path) -> Result<(), Error> {
        File::create(path)
            .and_then(|mut file| file.write_all(html::page(self).as_bytes()))
            .map_err(|error| failed("write the report", path, error))
    }

    /// Every kill with the number of its trial and whether that was good.
    fn kills(&self) -> impl Iterator<Item = (u32, bool, &Kill)> {
        self.trials
            .iter()
            .flat_map(|trial| trial.kills.iter().map(move |kill| (trial.number, trial.is_good(), kill)))
    }
}

fn totals(trials: &[Trial], damages: &[Damage], outputs: &[OutputReport]) -> Totals {
    let kills = || trials.iter().flat_map(|trial| &trial.kills);
    let mut recoveries: Vec<f64> = kills().filter_map(|kill| kill.recovery_ms).collect();
    recoveries.sort_by(f64::total_cmp);
    let count = |holds: bool| u64::from(holds);
    let good = trials.iter().filter(|trial| trial.is_good());
    let backs = || damages.iter().filter_map(|damage| damage.went_back.as_ref());
    Totals {
        trials: trials.len() as u64,
        trials_good: good.clone().count() as u64,
        restores: kills().count() as u64,
        restores_good: good.map(|trial| trial.kills.len() as u64).sum(),
        from_checkpoint: kills().map(|kill| count(kill.checkpoint.is_some())).sum(),
        missed: trials.iter().map(|trial| u64::from(trial.missed)).sum(),
        recovery_ms_median: median(&recoveries),
        recovery_ms_max: recoveries.last().copied(),
        replayed: kills().map(|kill| kill.replayed).sum(),
        replayed_max: kills().map(|kill| kill.replayed).max().unwrap_or(0),
        rows_lost: outputs.iter().map(|output| output.lost).sum(),
        rows_doubled: outputs.iter().map(|output| output.doubled).sum(),
        rows_strange: outputs.iter().map(|output| output.strange).sum(),
        damaged: damages.len() as u64,
        detected: damages.iter().map(|damage| count(damage.detected)).sum(),
        went_back: backs().count() as u64,
        went_back_good: backs().map(|back| count(back.same_bytes)).sum(),
    }
}

/// The middle of sorted numbers, of two the mean.
fn median(sorted: &[f64]) -> Option<f64> {
    let (low, high) = (sorted.get(sorted.len().checked_sub(1)? / 2)?, sorted.get(sorted.len() / 2)?);
    Some(f64::midpoint(*low, *high))
}

#[cfg(test)]
mod tests;
