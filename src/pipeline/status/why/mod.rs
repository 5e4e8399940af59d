//! Why a window has not closed, in plain words: where the watermark is, who holds it there, what would close the window.
//!
//! Pure: from the pipeline file and a snapshot to an answer. `floodmark explain` tells the whole life of a window from
//! its input; this tells where it stands.

#[cfg(test)]
mod tests;

use serde::Serialize;

use super::panes::KeyPanes;
use super::snapshot::{HolderStatus, Moment, OperatorStatus, PartitionState, Snapshot};
use super::words::length;
use crate::error::{Error, ErrorKind, Result};
use crate::event_time::{EventTime, Span, Watermark, Window, Windows};
use crate::operator::{Advance, Mode, Policy, TimeDomain};
use crate::pipeline::config::{PipelineConfig, WatermarkStrategy, WindowConfig};

/// Partitions that are named as lagging, besides the one that holds the watermark back.
const LAGGING_MAX: usize = 5;

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Index of the windowed aggregation.
    pub operator: usize,
    /// Start of the window; the next one to close when there is none.
    pub start: Option<EventTime>,
    /// The open panes of the key, when one is asked for.
    pub panes: Option<&'a KeyPanes>,
    /// The wall clock, in milliseconds since 1970.
    pub now_ms: i64,
}

/// Where a window stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WindowState {
    /// The watermark has not come to its end.
    Open,
    /// It has, and the window is about to be fired.
    Due,
    /// It was fired.
    Closed,
    /// It closes at the end of the input only, whatever the watermark.
    Unbounded,
    /// No window is open, or none of the key.
    Nothing,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Why {
    /// The windowed aggregation.
    pub operator: String,
    /// Start of the window.
    pub start: Option<Moment>,
    /// Its end, which the watermark has to reach.
    pub end: Option<Moment>,
    /// Where it stands.
    pub state: WindowState,
    /// All of it in plain words.
    pub answer: String,
    /// How far the watermark has come in this aggregation.
    pub watermark: Moment,
    /// How far it is still to go.
    pub missing_ms: Option<i64>,
    /// The partition that the watermark stands at.
    pub holder: Option<HolderStatus>,
    /// Other partitions whose own watermark is before the end, so that they would hold it back next.
    pub lagging: Vec<String>,
    /// What would close the window: each of these alone, as far as the others that are named have done their part.
    pub would_close: Vec<String>,
    /// Until where a closed window takes late events, and emits again.
    pub takes_late_until: Option<Moment>,
}

/// Answers why a window has not closed.
///
/// # Errors
/// [`ErrorKind::Invalid`] when no window starts there, [`ErrorKind::Unavailable`] while the run is starting.
pub fn why(config: &PipelineConfig, snapshot: &Snapshot, asked: &Asked<'_>) -> Result<Why> {
    let (Some(window), Some(operator)) =
        (config.windows.get(asked.operator), snapshot.operators.get(asked.operator))
    else {
        return Err(Error::new(ErrorKind::Unavailable, "the run has not opened its windows yet")
            .with_remedy("ask again in a moment"));
    };
    let case = Case { config, snapshot, window, operator, panes: asked.panes, now_ms: asked.now_ms };
    if window.mode == Mode::Complete || window.windows == Windows::Global {
        return Ok(case.unbounded());
    }
    match case.bounds(asked)? {
        Some(bounds) => Ok(case.standing(bounds)),
        None => Ok(case.nothing(asked)),
    }
}

struct Case<'a> {
    config: &'a PipelineConfig,
    snapshot: &'a Snapshot,
    window: &'a WindowConfig,
    operator: &'a OperatorStatus,
    panes: Option<&'a KeyPanes>,
    now_ms: i64,
}

impl Case<'_> {
    /// The window that is asked for; `None` when nothing is open there.
    fn bounds(&self, asked: &Asked<'_>) -> Result<Option<Window>> {
        match asked.start {
            _ if asked.panes.is_some() && (self.is_session() || asked.start.is_none()) => {
                Ok(self.of_key(asked.start))
            }
            Some(_) if self.is_session() => Err(Error::new(
                ErrorKind::Invalid,
                "each key has sessions of its own: a start alone names none",
            )
            .with_remedy("ask with a key as well, or without a start for the first session that may close")),
            Some(start) => self.starting_at(start).map(Some),
            None => Ok(self.operator.next_end.as_ref().and_then(|end| end.ms).map(|end| {
                let end = EventTime::from_millis(end);
                match self.is_session() {
                    true => Window { start: end, end },
                    false => self.window.windows.window_ending(end),
                }
            })),
        }
    }

    /// The window of the key that starts there, or the first of its windows that has not closed.
    fn of_key(&self, start: Option<EventTime>) -> Option<Window> {
        let reached = watermark_of(&self.operator.watermark);
        let wanted = |window: &Window| match start {
            Some(start) => window.start == start,
            None => !reached.closed(window.end),
        };
        let pieces = self.pieces();
        match self.is_session() {
            true => pieces.into_iter().find(wanted),
            false => {
                pieces.into_iter().find_map(|piece| self.window.windows.windows_of(piece.start).find(wanted))
            }
        }
    }

    /// The open panes of the key, by their windows or slices.
    fn pieces(&self) -> Vec<Window> {
        let instant = |moment: &Moment| moment.ms.map(EventTime::from_millis);
        let panes = self.panes.into_iter().flat_map(|panes| &panes.panes);
        panes
            .filter_map(|pane| Some(Window { start: instant(&pane.start)?, end: instant(&pane.end)? }))
            .collect()
    }

    /// That the key has nothing in an open window is worth a word.
    fn of_nobody(&self, bounds: Window) -> &'static str {
        let within = |piece: &Window| bounds.start <= piece.start && piece.end <= bounds.end;
        match self.panes.is_some() && !self.pieces().iter().any(within) {
            true => " No event of this key is in it.",
            false => "",
        }
    }

    fn is_session(&self) -> bool {
        self.window.windows.session_gap().is_some()
    }

    fn starting_at(&self, start: EventTime) -> Result<Window> {
        let holding: Vec<Window> = self.window.windows.windows_of(start).collect();
        if let Some(&found) = holding.iter().find(|window| window.start == start) {
            return Ok(found);
        }
        let message =
            format!("no window of {} starts at {start}: it has {}", self.window.name, self.window.windows);
        let error = Error::new(ErrorKind::Invalid, message);
        Err(match holding.first() {
            Some(near) => {
                error.with_remedy(format!("that instant lies in the window that starts at {}", near.start))
            }
            None => error.with_remedy("ask for the start of a window"),
        })
    }

    /// An answer without a window.
    fn plain(&self, state: WindowState, answer: String) -> Why {
        Why {
            operator: self.window.name.clone(),
            start: None,
            end: None,
            state,
            answer,
            watermark: self.operator.watermark.clone(),
            missing_ms: None,
            holder: None,
            lagging: Vec::new(),
            would_close: Vec::new(),
            takes_late_until: None,
        }
    }

    fn unbounded(&self) -> Why {
        let what = match self.window.mode {
            Mode::Complete => "in complete mode every pane stays",
            _ => "a global window has no end",
        };
        let end = self.end_of_input();
        let would_close: Vec<String> = end.into_iter().collect();
        let answer =
            format!("{}: {what}, whatever the watermark. {}", self.window.name, closing(&would_close));
        Why { would_close, ..self.plain(WindowState::Unbounded, answer) }
    }

    fn nothing(&self, asked: &Asked<'_>) -> Why {
        let of = if asked.panes.is_some() { " of this key" } else { "" };
        let answer = format!(
            "{}: no window{of} is open that has not closed; the watermark is {}.",
            self.window.name, self.operator.watermark.text
        );
        self.plain(WindowState::Nothing, answer)
    }

    fn standing(&self, bounds: Window) -> Why {
        let end = bounds.end;
        let reached = watermark_of(&self.operator.watermark);
        let state = if reached.closed(end) {
            WindowState::Closed
        } else if self.window.time == TimeDomain::Event
            && watermark_of(&self.snapshot.watermark.combined).closed(end)
        {
            WindowState::Due
        } else {
            WindowState::Open
        };
        let is_point = bounds.start == end;
        let subject = match is_point {
            true => format!("The first session of {} that may close, at {end} or later,", self.window.name),
            false => format!("The window {} to {end} of {}", bounds.start, self.window.name),
        };
        let answer = Why {
            start: (!is_point).then(|| bounds.start.into()),
            end: Some(end.into()),
            state,
            ..self.plain(state, String::new())
        };
        match state {
            WindowState::Closed => self.closed(answer, &subject, end, reached),
            WindowState::Due => self.due(answer, &subject),
            _ if self.window.time == TimeDomain::Processing => self.open_by_clock(answer, &subject, end),
            _ => {
                let open = self.open(answer, &subject, end);
                Why { answer: format!("{}{}", open.answer, self.of_nobody(bounds)), ..open }
            }
        }
    }

    fn closed(&self, answer: Why, subject: &str, end: EventTime, reached: Watermark) -> Why {
        let late = self.window.allowed_lateness;
        let takes_late = late > Span::ZERO && !reached.expired(end, late);
        let until = takes_late.then(|| Moment::from(end.saturating_add(late)));
        let still = match &until {
            Some(until) => format!(" It takes late events until the watermark is {}.", until.text),
            None => String::new(),
        };
        let told = format!("{subject} has closed: the watermark is {}.{still}", self.operator.watermark.text);
        Why { answer: told, takes_late_until: until, ..answer }
    }

    fn due(&self, answer: Why, subject: &str) -> Why {
        let waits = if self.window.advance == Advance::Batch {
            "it is fired at the end of the batch that is being read".to_owned()
        } else if let Some(input) = &self.window.input {
            format!("it waits for the results of {input}, which fires first")
        } else {
            "windows are being fired step by step, and its turn is still to come".to_owned()
        };
        let told = format!(
            "{subject} is due: the watermark is {}, and {waits}.",
            self.snapshot.watermark.combined.text
        );
        Why { answer: told, ..answer }
    }

    fn open_by_clock(&self, answer: Why, subject: &str, end: EventTime) -> Why {
        let missing = end.as_millis().saturating_sub(self.now_ms).max(0);
        let would_close = vec![format!("the clock, in {}", length(missing.unsigned_abs()))];
        let told = format!("{subject} follows the clock, not the watermark. {}", closing(&would_close));
        Why { answer: told, missing_ms: Some(missing), would_close, ..answer }
    }

    fn open(&self, answer: Why, subject: &str, end: EventTime) -> Why {
        let watermark = &self.snapshot.watermark;
        let missing_ms = watermark.combined.ms.map(|ms| end.as_millis().saturating_sub(ms));
        let gap = match missing_ms {
            Some(missing) => format!(
                "the watermark is {}, {} short of its end",
                watermark.combined.text,
                length(missing.unsigned_abs())
            ),
            None => "there is no watermark yet".to_owned(),
        };
        let held = watermark.holder.as_ref().map_or_else(|| self.unheld(), |holder| self.held(holder));
        let lagging = self.lagging(end);
        let also = match lagging.as_slice() {
            [] => String::new(),
            names => format!(" Behind the end are also {}.", names.join(", ")),
        };
        let would_close = self.would_close(end);
        let told = format!("{subject} has not closed: {gap}. {held}{also} {}", closing(&would_close));
        Why { answer: told, missing_ms, holder: watermark.holder.clone(), lagging, would_close, ..answer }
    }

    fn unheld(&self) -> String {
        match self.snapshot.watermark.expected {
            true => "No partition has spoken yet.".to_owned(),
            false => "No source has a rule that makes a watermark.".to_owned(),
        }
    }

    fn held(&self, holder: &HolderStatus) -> String {
        let HolderStatus { partition, source, .. } = holder;
        let since = length(holder.for_ms);
        let what = match &holder.max_time {
            None => "has not spoken yet".to_owned(),
            Some(max) => {
                let delay = holder.delay_ms.filter(|delay| *delay > 0);
                let less = delay.map_or(String::new(), |delay| {
                    format!(", and the watermark stays {} behind", length(delay.unsigned_abs()))
                });
                format!("has its latest event at {}{less}", max.text)
            }
        };
        let verb =
            if holder.holds_back { "holds it back" } else { "came furthest before all fell silent or ended" };
        format!("Partition {partition} of source {source} {verb}, for {since} now: it {what}.")
    }

    /// Other partitions that would hold the watermark back next.
    fn lagging(&self, end: EventTime) -> Vec<String> {
        if self.config.watermark.policy == Policy::Max {
            return Vec::new();
        }
        let counts = |state| matches!(state, PartitionState::Active | PartitionState::Silent);
        let behind = self.snapshot.partitions.iter().filter(|partition| {
            counts(partition.state)
                && !partition.holds_back
                && partition.watermark.ms.is_none_or(|ms| ms < end.as_millis())
        });
        behind.take(LAGGING_MAX).map(|partition| partition.name.clone()).collect()
    }

    fn would_close(&self, end: EventTime) -> Vec<String> {
        let mut ways = Vec::new();
        if let Some(holder) = &self.snapshot.watermark.holder {
            ways.extend(self.event_that_closes(holder, end));
            let name = &holder.partition;
            if holder.holds_back && holder.idle_timeout_ms.is_none() {
                ways.push(format!("the end of partition {name}"));
            }
            if let (true, Some(timeout)) = (holder.holds_back, holder.idle_timeout_ms) {
                ways.push(format!(
                    "silence of partition {name} for {}, which makes it idle",
                    length(timeout)
                ));
            }
        }
        if let Some(after) = self.config.watermark.idle_advance {
            let after = length(after.as_millis().unsigned_abs());
            ways.push(format!(
                "silence of everything for {after}, after which the watermark goes on with the clock"
            ));
        }
        ways.extend(self.end_of_input());
        ways
    }

    /// The event in the partition that holds the watermark back which would move it far enough.
    fn event_that_closes(&self, holder: &HolderStatus, end: EventTime) -> Option<String> {
        let source = self.config.sources.iter().find(|source| source.name == holder.source)?;
        let name = &holder.partition;
        match &source.watermark.strategy {
            WatermarkStrategy::None => None,
            WatermarkStrategy::Punctuated { field } => {
                Some(format!("an event of partition {name} whose {field} is {end} or later"))
            }
            WatermarkStrategy::Bounded(_) | WatermarkStrategy::Monotone => {
                let delay = Span::from_millis(holder.delay_ms.unwrap_or(0)).unwrap_or_default();
                Some(format!("an event of {} or later in partition {name}", end.saturating_add(delay)))
            }
        }
    }

    fn end_of_input(&self) -> Option<String> {
        self.config
            .watermark
            .close_at_end
            .then(|| "the end of the input, which closes every window".to_owned())
    }
}

/// What would close it, as a sentence.
fn closing(ways: &[String]) -> String {
    match ways {
        [] => "Nothing that is set up would close it.".to_owned(),
        ways => format!("It would be closed by: {}.", ways.join("; or ")),
    }
}

/// The watermark that a moment was made of.
fn watermark_of(moment: &Moment) -> Watermark {
    match moment.ms {
        Some(ms) => Watermark::At(EventTime::from_millis(ms)),
        None if *moment == Moment::from(Watermark::End) => Watermark::End,
        None => Watermark::None,
    }
}
