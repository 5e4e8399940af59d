//! Which watermark delay a stream needs: how late its events are, and what each delay would lose and hold.
//!
//! The tour: [`advise`] reads the input of a pipeline as a run would, several times; `measure` says how late events are,
//! `rehearsal` tries a delay on them with the pipeline's own windows, `search` says which delays are tried, `advice` is
//! what comes of it. [`advise_from_checkpoint`] estimates the same from what a checkpoint knows. Nothing is written and no
//! lock is taken, so it works beside a running pipeline.

mod advice;
mod input;
mod measure;
mod rehearsal;
mod search;
mod stored;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use advice::{
    Advice, AdvisedWindow, Candidate, Outcome, PartitionLateness, Recommendation, Sample, SourceDelay, Stored,
};
pub use stored::advise_from_checkpoint;

use super::config::{PipelineConfig, TimeDomain, WindowConfig};
use super::source::{FileSource, PartitionInfo, STDIN_NAME};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::event_time::Span;
use crate::operator::Distribution;
use input::{Input, Met, Pass};
use measure::{Meter, instant};
use rehearsal::{Delay, Rehearsal};
use search::{between, round_up, span, suggested};

/// Events of the input that are looked at unless more are asked for. Each takes up to 24 bytes.
pub const EVENTS: u64 = 10_000_000;
/// Bytes of memory that the panes of all delays tried at once may take unless more are allowed.
pub const MEMORY_BYTES: u64 = 1 << 30;
/// Share of the events that may be lost unless another is given.
pub const LOSS: f64 = 0.001;
/// Looks at the panes in one reading of the input, about.
const LOOKS: u64 = 2_000;
/// Readings of the input that close in on the smallest delay at most: see the test of the search.
const READINGS_MAX: usize = 12;

/// What is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct AdviseOptions {
    /// Share of the events that may be lost in any of the windows, from 0 to 1.
    pub loss: f64,
    /// Delays to show; where there are none, those that the quantiles of lateness suggest.
    pub delays: Vec<Span>,
    /// Name of the only windowed aggregation to look at; all of the pipeline without.
    pub window: Option<String>,
    /// Name of the only source whose delay is in question; all that have one without.
    pub source: Option<String>,
    /// Events that are looked at, at most.
    pub events_max: u64,
    /// Bytes of memory that the panes of all delays tried at once may take.
    pub memory_bytes_max: u64,
}

impl Default for AdviseOptions {
    fn default() -> Self {
        Self {
            loss: LOSS,
            delays: Vec::new(),
            window: None,
            source: None,
            events_max: EVENTS,
            memory_bytes_max: MEMORY_BYTES,
        }
    }
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Which reading of the input this is, counted from one.
    pub reading: usize,
    /// Events read in it.
    pub events: u64,
    /// All that there are to read, once they were counted.
    pub events_of: Option<u64>,
}

/// Reads the input of a pipeline and says how late its events are, and what each delay would lose and hold.
///
/// Lateness and losses are exact for that input. Open panes are those of the pipeline's own windows, all in memory, looked
/// at some two thousand times.
///
/// # Errors
/// `Invalid` for a loss that is no share, a window or source that the pipeline does not have, one without a watermark
/// delay, standard input, an input without events, and when more memory is needed than allowed; and what a run would be
/// refused for, such as missing input.
pub fn advise(
    config: &PipelineConfig,
    options: &AdviseOptions,
    clock: Arc<dyn Clock>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Advice> {
    check_loss(options.loss)?;
    if options.events_max == 0 {
        return Err(Error::new(ErrorKind::Invalid, "a sample of no events says nothing")
            .with_remedy("look at a million events, or leave --events out"));
    }
    let varied = varied_sources(config, options.source.as_deref())?;
    let advised = advised_windows(config, options.window.as_deref())?;
    refuse_standard_input(config)?;
    let input = Input::new(config, clock, options.events_max, options.memory_bytes_max);
    let mut study = Study { config, options, input, varied, advised, readings: 0, tried: BTreeMap::new() };
    let measured = study.measure(progress)?;
    study.conclude(&measured, progress)
}

fn check_loss(loss: f64) -> Result<()> {
    if (0.0..=1.0).contains(&loss) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Invalid, format!("this is not a share of the events: loss={loss}"))
        .with_remedy("give a share from 0 to 1, such as 0.001 for one event in a thousand"))
}

/// Which sources get the delays that are tried, by index.
fn varied_sources(config: &PipelineConfig, only: Option<&str>) -> Result<Vec<bool>> {
    if let Some(name) = only
        && !config.sources.iter().any(|source| source.name == name)
    {
        let names: Vec<&str> = config.sources.iter().map(|source| source.name.as_str()).collect();
        return Err(Error::new(ErrorKind::Invalid, format!("no such source: name={name:?}"))
            .with_remedy(format!("the pipeline has: {}", names.join(", "))));
    }
    let has_delay = |index: usize| config.sources[index].watermark.strategy.strategy().delay().is_some();
    let is_asked = |index: usize| only.is_none_or(|name| config.sources[index].name == name);
    let varied: Vec<bool> = (0..config.sources.len()).map(|at| is_asked(at) && has_delay(at)).collect();
    if varied.contains(&true) {
        return Ok(varied);
    }
    let message = match only {
        Some(name) => format!("event times do not move the watermark of this source: name={name}"),
        None => "event times move the watermark of no source of this pipeline".to_owned(),
    };
    Err(Error::new(ErrorKind::Invalid, message).with_remedy(
        "there is no delay to advise on without a watermark, or where events say it themselves; try it in a copy of the \
         pipeline file with `delay = \"0s\"` under [watermark]",
    ))
}

/// Which windows the advice is about, by index.
fn advised_windows(config: &PipelineConfig, only: Option<&str>) -> Result<Vec<bool>> {
    let is_fit = |window: &WindowConfig| window.time == TimeDomain::Event && window.input.is_none();
    if let Some(name) = only {
        let Some(window) = config.windows.iter().find(|window| window.name == name) else {
            let names: Vec<&str> = config.windows.iter().map(|window| window.name.as_str()).collect();
            return Err(Error::new(ErrorKind::Invalid, format!("no such window: name={name:?}"))
                .with_remedy(format!("the pipeline has: {}", names.join(", "))));
        };
        if !is_fit(window) {
            let message = format!("no delay makes events late for this window: name={name}");
            return Err(Error::new(ErrorKind::Invalid, message).with_remedy(
                "it follows the wall clock, or reads the results of another window: ask about that one, or leave \
                 --window out",
            ));
        }
    }
    let is_asked = |window: &WindowConfig| only.is_none_or(|name| window.name == name) && is_fit(window);
    let advised: Vec<bool> = config.windows.iter().map(is_asked).collect();
    if advised.contains(&true) {
        return Ok(advised);
    }
    Err(Error::new(ErrorKind::Invalid, "the pipeline has no window that follows event time").with_remedy(
        "advice is about windows over events: add a [[window]] with the length that you have in mind",
    ))
}

fn refuse_standard_input(config: &PipelineConfig) -> Result<()> {
    let Some(source) = config.sources.iter().find(|source| source.is_live()) else { return Ok(()) };
    let message =
        format!("the input is read several times, which standard input cannot be: source={}", source.name);
    Err(Error::new(ErrorKind::Invalid, message).with_remedy(format!(
        "save some of it to a file (`head -n 1000000 > sample.jsonl`) and name that in place of {STDIN_NAME:?}, or read \
         what a run has kept: --state DIRECTORY"
    )))
}

/// What was measured in the first reading.
struct Readout {
    met: Met,
    partitions: Vec<PartitionInfo>,
    meter: Meter,
    // Over the partitions whose delay is in question.
    lateness: Distribution,
}

struct Study<'a> {
    config: &'a PipelineConfig,
    options: &'a AdviseOptions,
    input: Input<'a>,
    varied: Vec<bool>,
    advised: Vec<bool>,
    readings: usize,
    // What came of each delay, and by how much an event lay behind the watermark at most.
    tried: BTreeMap<Delay, (Vec<Outcome>, i64)>,
}

impl Study<'_> {
    fn rehearsal(&self, delay: Delay, advised: &[bool], source: &FileSource) -> Rehearsal {
        Rehearsal::new(self.config, (&self.varied, advised), delay, source.partitions())
    }

    /// The first reading: how late events are.
    fn measure(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<Readout> {
        let source = self.input.open()?;
        let partitions = source.partitions().to_vec();
        let none = vec![false; self.advised.len()];
        let mut rehearsals = [self.rehearsal(Delay::AsSet, &none, &source)];
        let mut meter = Meter::new(&partitions);
        self.readings += 1;
        let pass = Pass {
            rehearsals: &mut rehearsals,
            meter: Some(&mut meter),
            look_events: u64::MAX,
            progress: &mut |events| progress(Progress { reading: 1, events, events_of: None }),
        };
        let met = self.input.read(source, pass)?;
        if meter.partitions().iter().all(|partition| partition.events == 0) {
            return Err(no_events(&met));
        }
        let in_question = partitions.iter().zip(meter.partitions());
        let in_question = in_question.filter(|(info, _)| self.is_varied(info));
        let lateness: Vec<Distribution> = in_question.map(|(_, measured)| measured.lateness()).collect();
        let lateness = Distribution::sum(&lateness);
        Ok(Readout { met, partitions, meter, lateness })
    }

    fn is_varied(&self, info: &PartitionInfo) -> bool {
        self.varied.get(usize::from(info.resume.source.0)).copied().unwrap_or(false)
    }

    /// Tries delays that were not tried yet, some at a time.
    fn try_out(
        &mut self,
        delays: impl IntoIterator<Item = Delay>,
        events: u64,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<()> {
        let mut delays: Vec<Delay> =
            delays.into_iter().filter(|delay| !self.tried.contains_key(delay)).collect();
        delays.sort_unstable();
        delays.dedup();
        for some in delays.chunks(search::TRIED_AT_ONCE) {
            let source = self.input.open()?;
            let rehearse = |&delay: &Delay| self.rehearsal(delay, &self.advised, &source);
            let mut rehearsals: Vec<Rehearsal> = some.iter().map(rehearse).collect();
            self.readings += 1;
            let reading = self.readings;
            let pass = Pass {
                rehearsals: &mut rehearsals,
                meter: None,
                look_events: (events / LOOKS).max(1),
                progress: &mut |read| progress(Progress { reading, events: read, events_of: Some(events) }),
            };
            self.input.read(source, pass)?;
            let tried = rehearsals.iter();
            self.tried.extend(tried.map(|run| (run.delay(), (run.outcomes(), run.behind_max_ms()))));
        }
        Ok(())
    }

    /// Tries delays until it is known which is the smallest that keeps to the budget.
    fn conclude(mut self, readout: &Readout, progress: &mut dyn FnMut(Progress)) -> Result<Advice> {
        let events = readout.met.events;
        let mut shown: Vec<Delay> = match self.options.delays.as_slice() {
            [] => suggested(&readout.lateness).into_iter().map(of).collect(),
            delays => delays.iter().map(|&delay| Delay::Of(delay)).collect(),
        };
        let current = self.current();
        shown.push(current);
        self.try_out(shown.iter().copied().chain([of(0)]), events, progress)?;
        self.reach_budget(events, progress)?;
        for _ in 0..READINGS_MAX {
            let Some(long_enough) = self.long_enough() else { break };
            let next = self.too_short(long_enough).map_or(Vec::new(), |short| between(short, long_enough));
            if next.is_empty() {
                break;
            }
            self.try_out(next.into_iter().map(of), events, progress)?;
        }
        Ok(self.advice(readout, shown, current))
    }

    /// The delay as it is set now.
    fn current(&self) -> Delay {
        let varied = self.config.sources.iter().zip(&self.varied).filter(|(_, varied)| **varied);
        let mut delays = varied.filter_map(|(source, _)| source.watermark.strategy.strategy().delay());
        let first = delays.next().unwrap_or_default();
        if delays.all(|delay| delay == first) { Delay::Of(first) } else { Delay::AsSet }
    }

    /// Makes sure that a delay is among those tried at which no event lies behind the watermark, unless a shorter one
    /// does already.
    fn reach_budget(&mut self, events: u64, progress: &mut dyn FnMut(Progress)) -> Result<()> {
        let behind_max_ms = self.tried.get(&of(0)).map_or(0, |(_, behind_max_ms)| *behind_max_ms);
        if self.long_enough().is_none() {
            self.try_out([of(round_up(behind_max_ms))], events, progress)?;
        }
        Ok(())
    }

    /// The delays that were tried, ascending, and whether each keeps to the budget.
    fn verdicts(&self) -> impl DoubleEndedIterator<Item = (i64, bool)> + '_ {
        let keeps = |outcomes: &[Outcome]| outcomes.iter().all(|one| one.keeps_to(self.options.loss));
        self.tried.iter().filter_map(move |(delay, (outcomes, _))| match delay {
            Delay::Of(delay) => Some((delay.as_millis(), keeps(outcomes))),
            Delay::AsSet => None,
        })
    }

    fn long_enough(&self) -> Option<i64> {
        let too_short = self.verdicts().rfind(|(_, keeps)| !keeps).map_or(-1, |(delay, _)| delay);
        self.verdicts().find(|&(delay, keeps)| keeps && delay > too_short).map(|(delay, _)| delay)
    }

    fn too_short(&self, long_enough: i64) -> Option<i64> {
        self.verdicts().rfind(|&(delay, keeps)| !keeps && delay < long_enough).map(|(delay, _)| delay)
    }

    fn advice(self, readout: &Readout, mut shown: Vec<Delay>, current: Delay) -> Advice {
        let recommended = self.long_enough();
        shown.extend(recommended.map(of));
        shown.sort_unstable();
        shown.dedup();
        let current_ms = match current {
            Delay::Of(delay) => Some(delay.as_millis()),
            Delay::AsSet => None,
        };
        let candidates = shown.iter().map(|&delay| self.candidate(delay, current, recommended, readout));
        let candidates: Vec<Candidate> = candidates.collect();
        let recommendation = recommended.and_then(|delay_ms| self.recommendation(delay_ms, current));
        let notes = self.notes(readout, &candidates, recommended);
        debug_assert!(current_ms.is_none_or(|ms| candidates.iter().any(|one| one.delay_ms == Some(ms))));
        Advice {
            pipeline: self.config.name.clone(),
            checkpoint: None,
            sample: Sample {
                events: readout.met.events,
                rejected: readout.met.rejected,
                filtered: readout.met.filtered,
                first: instant(readout.meter.first),
                last: instant(readout.meter.last),
                complete: readout.met.complete,
            },
            sources: self.sources(),
            lateness: readout.lateness.spread(),
            partitions: self.partitions(readout),
            windows: self.windows(),
            candidates,
            loss_budget: self.options.loss,
            recommendation,
            notes,
        }
    }

    fn candidate(
        &self,
        delay: Delay,
        current: Delay,
        recommended: Option<i64>,
        readout: &Readout,
    ) -> Candidate {
        let millis = |delay: Delay| match delay {
            Delay::Of(delay) => Some(delay.as_millis()),
            Delay::AsSet => None,
        };
        let delay_ms = millis(delay);
        Candidate {
            delay_ms,
            is_current: delay == current,
            is_recommended: delay_ms.is_some() && delay_ms == recommended,
            extra_wait_ms: delay_ms.zip(millis(current)).map(|(delay, now)| delay - now),
            behind: delay_ms.map(|delay| readout.lateness.later_than(delay)),
            outcomes: self.tried.get(&delay).map(|(outcomes, _)| outcomes.clone()).unwrap_or_default(),
        }
    }

    fn recommendation(&self, delay_ms: i64, current: Delay) -> Option<Recommendation> {
        let outcomes = &self.tried.get(&of(delay_ms))?.0;
        // The window that loses the most just below is the one that decides; at zero there is nothing below.
        let below = self.too_short(delay_ms).and_then(|short| self.tried.get(&of(short)));
        let judged = below.map_or(outcomes, |(outcomes, _)| outcomes);
        let worst = judged.iter().max_by(|a, b| a.lost_share().total_cmp(&b.lost_share()))?;
        let own = outcomes.iter().find(|outcome| outcome.window == worst.window)?;
        let current = self.tried.get(&current);
        Some(Recommendation {
            delay_ms,
            delay: span(delay_ms).to_string(),
            window: own.window.clone(),
            lost_share: own.lost_share(),
            current_is_enough: current
                .is_some_and(|(outcomes, _)| outcomes.iter().all(|one| one.keeps_to(self.options.loss))),
        })
    }

    fn sources(&self) -> Vec<SourceDelay> {
        let sources = self.config.sources.iter().zip(&self.varied);
        let source = sources.map(|(source, &varied)| SourceDelay {
            source: source.name.clone(),
            delay_ms: source.watermark.strategy.strategy().delay().map(Span::as_millis),
            varied,
        });
        source.collect()
    }

    fn windows(&self) -> Vec<AdvisedWindow> {
        let advised = self.config.windows.iter().zip(&self.advised).filter(|(_, advised)| **advised);
        let window = advised.map(|(window, _)| AdvisedWindow {
            window: window.name.clone(),
            windows: window.windows.to_string(),
            allowed_lateness_ms: window.allowed_lateness.as_millis(),
        });
        window.collect()
    }

    fn partitions(&self, readout: &Readout) -> Vec<PartitionLateness> {
        let measured = readout.partitions.iter().zip(readout.meter.partitions()).enumerate();
        let own = measured.filter(|(index, (info, _))| info.watermark.0 as usize == *index);
        let partition = own.map(|(_, (info, measured))| PartitionLateness {
            partition: info.resume.name.clone(),
            source: self.source_name(info),
            lateness: measured.lateness().spread(),
            ahead_of_clock: measured.ahead_of_clock().spread(),
            ahead_of_partitions: measured.ahead_of_others().map(|ahead| ahead.spread()),
            step_max_ms: measured.step_max_ms,
        });
        partition.collect()
    }

    fn source_name(&self, info: &PartitionInfo) -> String {
        let source = self.config.sources.get(usize::from(info.resume.source.0));
        source.map(|source| source.name.clone()).unwrap_or_default()
    }

    /// What a reader should know before acting on the figures.
    fn notes(&self, readout: &Readout, candidates: &[Candidate], recommended: Option<i64>) -> Vec<String> {
        let mut notes = Vec::new();
        if !readout.met.complete {
            notes.push(format!(
                "only the first {} events were looked at; --events looks at more",
                readout.met.events
            ));
        }
        let silent = self.partitions(readout);
        let silent: Vec<&str> = silent
            .iter()
            .filter(|partition| partition.lateness.events == 0)
            .map(|partition| partition.partition.as_str())
            .collect();
        if let [first, rest @ ..] = silent.as_slice() {
            let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
            notes.push(format!(
                "no event came from {first}{more}: nothing is known of its lateness, and in a stream a silent partition \
                 holds the watermark back until its idle_timeout"
            ));
        }
        let unsettled = |candidate: &&Candidate| candidate.outcomes.iter().any(|one| !one.settled);
        let growing: Vec<i64> =
            candidates.iter().filter(unsettled).filter_map(|candidate| candidate.delay_ms).collect();
        if let Some(&shortest) = growing.first() {
            notes.push(format!(
                "from a delay of {} on the sample is shorter than windows and delay together: panes and bytes are a lower \
                 bound there",
                span(shortest)
            ));
        }
        if recommended.is_none() {
            notes.push(
                "no delay keeps to the budget: another source, whose delay is not in question, is ahead of the late \
                 events"
                    .to_owned(),
            );
        }
        let ahead = readout.meter.partitions().iter().any(|one| one.ahead_of_clock().above_zero() > 0);
        if ahead {
            notes.push(
                "some event times lie in the future: a clock is wrong, and such events make others late; bounds keep \
                 them out (max_ahead under [watermark.bounds])"
                    .to_owned(),
            );
        }
        if !self.config.joins.is_empty() {
            notes.push("joins are not rehearsed: what a delay costs them is not in these figures".to_owned());
        }
        notes
    }
}

fn of(millis: i64) -> Delay {
    Delay::Of(span(millis))
}

fn no_events(met: &Met) -> Error {
    let message =
        format!("there is no event in the input: rejected={} filtered={}", met.rejected, met.filtered);
    let remedy = match (met.rejected, met.filtered) {
        (0, 0) => "name files that have records",
        (0, _) => "the filters of the source pass over every record: look at them",
        _ => {
            "compare the fields and formats under [source] with the input; `floodmark explain` shows each rejection"
        }
    };
    Error::new(ErrorKind::Invalid, message).with_remedy(remedy)
}
