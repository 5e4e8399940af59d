//! Advice from a checkpoint alone: its lateness sketches, and the windows and open panes that its manifest tells of. All
//! of it is estimated, by the model of docs/STATE_SIZE.md.

use std::path::Path;

use super::advice::{
    Advice, AdvisedWindow, Candidate, Outcome, PartitionLateness, Recommendation, Sample, SourceDelay, Stored,
};
use super::search::{between, round_up, span, suggested};
use super::{AdviseOptions, check_loss};
use crate::error::{Error, ErrorKind, Result};
use crate::event_time::{CalendarUnit, Span, Watermark, Windows};
use crate::inspect::{self, CheckpointDetails, LatenessReport, OperatorDetails};
use crate::operator::{Distribution, Mode, OperatorSpec, Spread, TimeDomain, WindowOperator};

/// Steps of the integral over the place of an event in its window.
const STEPS: i64 = 64;
/// Bytes of a key, which a manifest does not tell.
const KEY_BYTES: usize = 16;
const DAY_MS: i64 = 86_400_000;

/// Estimates from the checkpoint of epoch `at`, or the newest one under `path`, how late events were, and what each delay
/// would lose and hold. `now_ms` is the wall clock.
///
/// Lengths are those of a [`crate::operator::LatenessSketch`]. What is lost follows from them and the windows, as if
/// events fell evenly into windows and there were one partition; open panes grow from those of the checkpoint in
/// proportion to windows and delay together.
///
/// # Errors
/// `Invalid` for a loss that is no share, when there is no such checkpoint or window, or when it knows nothing of lateness
/// or of a watermark; and what keeps a checkpoint from being read.
pub fn advise_from_checkpoint(
    path: &Path,
    at: Option<u64>,
    options: &AdviseOptions,
    now_ms: i64,
) -> Result<Advice> {
    check_loss(options.loss)?;
    let lateness = inspect::lateness(path, at, now_ms)?;
    let details = inspect::show(path, Some(lateness.checkpoint.epoch), now_ms)?;
    if lateness.lateness.events == 0 {
        return Err(nothing_known(&lateness));
    }
    let Some(current_ms) = current_delay(&details, None) else {
        let message = "the checkpoint has no watermark that follows event times";
        return Err(Error::new(ErrorKind::Invalid, message).with_remedy(
            "there is no delay to advise on without one; give the pipeline file instead of --state",
        ));
    };
    let windows = windows(&details, options.window.as_deref(), current_ms)?;
    let estimate = Estimate { late: &lateness.distribution, windows, loss: options.loss };
    Ok(estimate.advice(&lateness, &details, current_ms, &options.delays))
}

fn nothing_known(report: &LatenessReport) -> Error {
    let message =
        format!("the checkpoint knows nothing of how late events are: epoch={}", report.checkpoint.epoch);
    Error::new(ErrorKind::Invalid, message).with_remedy(
        "an older version wrote it, or no event had come: let the pipeline run to its next checkpoint, or give the \
         pipeline file instead of --state to read its input",
    )
}

/// How far the watermarks of partitions stay behind, at most: of all, or of those of one source.
fn current_delay(details: &CheckpointDetails, source: Option<&str>) -> Option<i64> {
    let own = details.partitions.iter().filter(|one| source.is_none_or(|source| one.source == source));
    let delays = own.filter_map(|partition| match partition.watermark {
        Watermark::At(watermark) => {
            Some(partition.max_time?.as_millis().saturating_sub(watermark.as_millis()).max(0))
        }
        Watermark::None | Watermark::End => None,
    });
    delays.max()
}

/// A windowed aggregation of the checkpoint.
struct Known<'a> {
    spec: &'a OperatorSpec,
    panes: u64,
    // The watermark delay under which these panes were held.
    delay_ms: i64,
}

/// The windows over events, or the one that is asked for.
fn windows<'a>(details: &'a CheckpointDetails, only: Option<&str>, delay_ms: i64) -> Result<Vec<Known<'a>>> {
    let fit = |operator: &'a OperatorDetails| {
        let spec = operator.spec.as_ref()?;
        let is_fit = spec.time == TimeDomain::Event && spec.input.is_none();
        is_fit.then(|| Known { spec, panes: operator.open_panes.unwrap_or(0), delay_ms })
    };
    let all: Vec<Known<'a>> = details.operators.iter().filter_map(fit).collect();
    let names: Vec<&str> = all.iter().map(|known| known.spec.name.as_str()).collect();
    let names = names.join(", ");
    let asked: Vec<Known<'a>> =
        all.into_iter().filter(|known| only.is_none_or(|only| known.spec.name == only)).collect();
    if asked.is_empty() {
        let message = match only {
            Some(name) => format!("no such window over events: name={name:?}"),
            None => "the checkpoint has no window that follows event time".to_owned(),
        };
        return Err(Error::new(ErrorKind::Invalid, message).with_remedy(match names.as_str() {
            "" => "advice is about windows over events, which this pipeline does not have".to_owned(),
            names => format!("the checkpoint has: {names}"),
        }));
    }
    Ok(asked)
}

impl Known<'_> {
    /// How long a pane is kept after its start, before any delay; `None` for ever.
    fn kept_ms(&self) -> Option<i64> {
        let (_, longest) = reach(&self.spec.windows)?;
        Some(longest.saturating_add(self.spec.allowed_lateness.as_millis()))
    }

    /// The share of events that a delay loses: those later than the delay, the allowed lateness and what is left of the
    /// last of their windows, which lies evenly between two lengths.
    fn lost_share(&self, late: &Distribution, delay_ms: i64) -> f64 {
        let Some((shortest, longest)) = reach(&self.spec.windows) else { return 0.0 };
        if self.spec.mode == Mode::Complete || late.events() == 0 {
            return 0.0;
        }
        let before = delay_ms.saturating_add(self.spec.allowed_lateness.as_millis());
        let later = |left: i64| late.later_than(before.saturating_add(left).saturating_sub(1)) as f64;
        let place = |step: i64| shortest + (longest - shortest) * (2 * step + 1) / (2 * STEPS);
        let sum: f64 = (0..STEPS).map(|step| later(place(step))).sum();
        sum / STEPS as f64 / late.events() as f64
    }

    /// Open panes under a delay.
    fn panes(&self, delay_ms: i64) -> f64 {
        let Some(kept) = self.kept_ms() else { return self.panes as f64 };
        let (now, then) = (kept.saturating_add(self.delay_ms), kept.saturating_add(delay_ms));
        self.panes as f64 * then as f64 / now.max(1) as f64
    }

    fn outcome(&self, late: &Distribution, delay_ms: i64) -> Outcome {
        let panes = self.panes(delay_ms);
        let bytes = WindowOperator::new(0, self.spec.clone()).bytes_per_pane(KEY_BYTES);
        let events = late.events();
        Outcome {
            window: self.spec.name.clone(),
            events,
            lost: (self.lost_share(late, delay_ms) * events as f64).round() as u64,
            short: 0,
            panes_mean: panes,
            panes_peak: panes.ceil() as u64,
            panes_end: panes.round() as u64,
            memory_bytes_mean: panes * bytes as f64,
            memory_bytes_peak: (panes * bytes as f64).ceil() as u64,
            settled: true,
        }
    }
}

/// How long before the end of the last of its windows an event may come, at least and at most. `None` for all time.
fn reach(windows: &Windows) -> Option<(i64, i64)> {
    match windows {
        Windows::Tumbling(windows) => Some((0, windows.size().as_millis())),
        Windows::Sliding(windows) => {
            let (size, slide) = (windows.size().as_millis(), windows.slide().as_millis());
            Some((size.saturating_sub(slide).max(0), size))
        }
        Windows::Cumulative(windows) => Some((0, windows.size().as_millis())),
        Windows::Calendar(calendar) => Some((0, calendar_days(calendar.unit()) * DAY_MS)),
        Windows::Session { gap } => Some((gap.as_millis(), gap.as_millis())),
        Windows::Global => None,
    }
}

struct Estimate<'a> {
    late: &'a Distribution,
    windows: Vec<Known<'a>>,
    loss: f64,
}

impl Estimate<'_> {
    fn outcomes(&self, delay_ms: i64) -> Vec<Outcome> {
        self.windows.iter().map(|known| known.outcome(self.late, delay_ms)).collect()
    }

    fn keeps(&self, delay_ms: i64) -> bool {
        self.windows.iter().all(|known| known.lost_share(self.late, delay_ms) <= self.loss)
    }

    /// The smallest round delay that keeps to the budget. None is needed that is longer than every event is late.
    fn advised(&self) -> i64 {
        if self.keeps(0) {
            return 0;
        }
        let (mut too_short, mut long_enough) = (0, round_up(self.late.max().saturating_add(1)));
        loop {
            let tried = between(too_short, long_enough);
            if tried.is_empty() {
                return long_enough;
            }
            for delay in tried {
                if self.keeps(delay) {
                    long_enough = delay;
                    break;
                }
                too_short = delay;
            }
        }
    }

    fn advice(
        &self,
        report: &LatenessReport,
        details: &CheckpointDetails,
        current_ms: i64,
        delays: &[Span],
    ) -> Advice {
        let advised = self.advised();
        let mut shown: Vec<i64> = match delays {
            [] => suggested(self.late),
            delays => delays.iter().map(|delay| delay.as_millis()).collect(),
        };
        shown.extend([current_ms, advised]);
        shown.sort_unstable();
        shown.dedup();
        let candidate = |&delay_ms: &i64| Candidate {
            delay_ms: Some(delay_ms),
            is_current: delay_ms == current_ms,
            is_recommended: delay_ms == advised,
            extra_wait_ms: Some(delay_ms - current_ms),
            behind: Some(self.late.later_than(delay_ms)),
            outcomes: self.outcomes(delay_ms),
        };
        Advice {
            pipeline: report.checkpoint.pipeline.clone(),
            checkpoint: Some(Stored {
                origin: report.checkpoint.clone(),
                relative_error: report.relative_error,
            }),
            sample: Sample { events: report.lateness.events, complete: true, ..Sample::default() },
            sources: sources(details),
            lateness: report.lateness.clone(),
            partitions: partitions(report),
            windows: self.windows.iter().map(|known| advised_window(known.spec)).collect(),
            candidates: shown.iter().map(candidate).collect(),
            loss_budget: self.loss,
            recommendation: self.recommendation(advised, current_ms),
            notes: self.notes(report),
        }
    }

    fn recommendation(&self, delay_ms: i64, current_ms: i64) -> Option<Recommendation> {
        // The window that loses the most just below is the one that decides.
        let below = |known: &Known<'_>| known.lost_share(self.late, delay_ms.saturating_sub(1).max(0));
        let worst = self.windows.iter().max_by(|a, b| below(a).total_cmp(&below(b)))?;
        Some(Recommendation {
            delay_ms,
            delay: span(delay_ms).to_string(),
            window: worst.spec.name.clone(),
            lost_share: worst.lost_share(self.late, delay_ms),
            current_is_enough: self.keeps(current_ms),
        })
    }

    fn notes(&self, report: &LatenessReport) -> Vec<String> {
        let mut notes = vec![format!(
            "from a checkpoint: lengths are off by up to {:.1} %, losses and panes are estimates; the pipeline file in place \
             of --state counts them on its input",
            report.relative_error * 100.0
        )];
        let silent: Vec<&str> = report
            .partitions
            .iter()
            .filter(|partition| partition.lateness.events == 0 && !partition.finished)
            .map(|partition| partition.partition.as_str())
            .collect();
        if let [first, rest @ ..] = silent.as_slice() {
            let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
            notes.push(format!(
                "no event came from {first}{more}: nothing is known of its lateness, and a silent partition holds the \
                 watermark back until its idle_timeout"
            ));
        }
        if self.windows.iter().any(|known| known.panes == 0) {
            notes.push(
                "the checkpoint has no open panes of a window, or could not count them: how many a delay takes is not known"
                    .to_owned(),
            );
        }
        if self.windows.iter().any(|known| known.spec.windows.session_gap().is_some()) {
            notes.push(
                "events that others of their key tie to a live session are not lost: what sessions lose is at most this"
                    .to_owned(),
            );
        }
        notes
    }
}

/// Days of a calendar window, at most.
const fn calendar_days(unit: CalendarUnit) -> i64 {
    match unit {
        CalendarUnit::Day => 1,
        CalendarUnit::Week => 7,
        CalendarUnit::Month => 31,
    }
}

fn sources(details: &CheckpointDetails) -> Vec<SourceDelay> {
    let source = |source: &inspect::SourceDetails| {
        let delay_ms = current_delay(details, Some(&source.name));
        SourceDelay { source: source.name.clone(), delay_ms, varied: delay_ms.is_some() }
    };
    details.sources.iter().map(source).collect()
}

fn advised_window(spec: &OperatorSpec) -> AdvisedWindow {
    AdvisedWindow {
        window: spec.name.clone(),
        windows: spec.windows.to_string(),
        allowed_lateness_ms: spec.allowed_lateness.as_millis(),
    }
}

fn partitions(report: &LatenessReport) -> Vec<PartitionLateness> {
    // Of what is ahead a manifest knows the latest event alone.
    let latest =
        |ahead_ms: i64, events: u64| -> Spread { Distribution::of(events.min(1), vec![ahead_ms]).spread() };
    let partition = |known: &inspect::StoredLateness| PartitionLateness {
        partition: known.partition.clone(),
        source: known.source.clone(),
        lateness: known.lateness.clone(),
        ahead_of_clock: latest(known.ahead_of_clock_ms, known.lateness.events),
        ahead_of_partitions: known.ahead_of_partitions_ms.map(|ahead| latest(ahead, known.lateness.events)),
        step_max_ms: known.step_max_ms,
    };
    report.partitions.iter().map(partition).collect()
}
