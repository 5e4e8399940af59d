//! Why a window of a key has closed or has not, in plain words: from one checkpoint, with nothing but its manifest and
//! the panes in it.

use std::path::Path;

use serde::Serialize;

use crate::codec::PaneKey;
use crate::error::{Error, ErrorKind, Result};
use crate::event_time::{EventTime, Span, Watermark, Window};
use crate::inspect::choice::{Chosen, with_checkpoint};
use crate::inspect::holding::{Holding, holding};
use crate::inspect::key::Key;
use crate::inspect::listing::{ListedPane, listed};
use crate::inspect::scan::{Counter, PaneFilter, each_pane};
use crate::inspect::shape::{OpenState, Shape};
use crate::inspect::status::{Standing, WindowStatus};
use crate::inspect::text::{as_optional_text, as_text};
use crate::inspect::windows::{Origin, origin};
use crate::inspect::words;
use crate::operator::{Advance, TimeDomain};
use crate::state::FamilyId;

/// Windows named in a message.
const NAMED_MAX: usize = 8;

/// Which window of which key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WhyOptions {
    /// Name of the windowed aggregation; the first whose key has as many components when there is none.
    pub window: Option<String>,
    /// The key; of an aggregation without one, empty.
    pub key: Key,
    /// The start of the window, or an instant in it where that is in one only.
    pub start: EventTime,
    /// The end of the window, where windows overlap and the start does not say which is meant.
    pub end: Option<EventTime>,
}

/// What the state says of one window of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Presence {
    /// The state has its pane.
    Present,
    /// The window takes events, and no event of the key has come into it.
    NeverSeen,
    /// The window has fired or expired and its state may be gone: whether the key had events cannot be known.
    Unknown,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Why {
    /// The checkpoint.
    pub checkpoint: Origin,
    /// The windowed aggregation.
    pub window: String,
    /// Its windows, in words.
    pub windows: String,
    /// Names of its key fields.
    pub key_fields: Vec<String>,
    /// The key.
    pub key: Key,
    /// First instant of the window.
    #[serde(serialize_with = "as_text")]
    pub start: EventTime,
    /// First instant after it.
    #[serde(serialize_with = "as_text")]
    pub end: EventTime,
    /// Where it stands.
    pub status: WindowStatus,
    /// Whether the state has the key's pane.
    pub presence: Presence,
    /// The answer as one sentence.
    pub answer: String,
    /// What it rests on, a sentence each.
    pub because: Vec<String>,
    /// The watermark of the task.
    #[serde(serialize_with = "as_text")]
    pub watermark: Watermark,
    /// How far the operator has fired.
    #[serde(serialize_with = "as_text")]
    pub fired_to: Watermark,
    /// How far the watermark is from closing it; absent when it has, or when there is no watermark yet.
    #[serde(serialize_with = "as_optional_text")]
    pub missing: Option<Span>,
    /// The watermark at which it takes no more events; absent where it always does.
    #[serde(serialize_with = "as_optional_text")]
    pub expires_at: Option<EventTime>,
    /// What holds the watermark back; absent once it has passed the end.
    pub holding: Option<Holding>,
    /// The panes of the key in it: one, or the slices it is made of.
    pub panes: Vec<ListedPane>,
    /// True when the state has a pane of any key in it.
    pub other_keys: bool,
}

/// Tells why a window of a key has closed, or has not, in the checkpoint of epoch `at`, or in the newest one under
/// `path`.
///
/// # Errors
/// [`ErrorKind::Invalid`] when there is no such checkpoint, window or key, or the time is that of several windows;
/// [`ErrorKind::Damaged`] when files cannot be read back, [`ErrorKind::Incompatible`] when another version wrote them.
pub fn why(path: &Path, at: Option<u64>, options: &WhyOptions, now_ms: i64) -> Result<Why> {
    with_checkpoint(path, at, |chosen| {
        let open = OpenState::open(&chosen.summary, &chosen.manifest)?;
        let key = if options.key.0.is_empty() { Key(vec![Vec::new()]) } else { options.key.clone() };
        let filter = PaneFilter { window: options.window.clone(), key: Some(key), ..PaneFilter::default() };
        let candidates = filter.operators(&open)?;
        let index = candidates.first().copied().unwrap_or(0);
        Asked { chosen, open: &open, index, filter }.answer(options, now_ms)
    })
}

struct Asked<'a> {
    chosen: &'a Chosen,
    open: &'a OpenState,
    index: usize,
    filter: PaneFilter,
}

impl Asked<'_> {
    fn answer(&self, options: &WhyOptions, now_ms: i64) -> Result<Why> {
        let (manifest, shape) = (&self.chosen.manifest, &self.open.shapes[self.index]);
        let standing = self.open.standing(manifest, self.index);
        let spec = shape.spec();
        let (window, panes) = match spec.windows.session_gap() {
            Some(gap) => self.session(options, gap, &standing)?,
            None => {
                let window = pick(shape, options)?;
                (window, self.panes_of(window, &standing)?)
            }
        };
        let status = standing.status(window.end);
        let presence = match (panes.is_empty(), status) {
            (false, _) => Presence::Present,
            (true, WindowStatus::Open) => Presence::NeverSeen,
            // Every pane that may still change is in each checkpoint.
            (true, WindowStatus::Closing | WindowStatus::AcceptsLate) => Presence::NeverSeen,
            (true, WindowStatus::Expired) => Presence::Unknown,
        };
        let closed = standing.endless || standing.reached.closed(window.end);
        let holds = !closed && spec.time == TimeDomain::Event && spec.advance == Advance::Event;
        let mut why = Why {
            checkpoint: origin(self.chosen, now_ms),
            window: spec.name.clone(),
            windows: spec.windows.to_string(),
            key_fields: spec.key.clone(),
            key: options.key.clone(),
            start: window.start,
            end: window.end,
            status,
            presence,
            answer: String::new(),
            because: Vec::new(),
            watermark: manifest.watermark,
            fired_to: standing.fired,
            missing: missing(standing.reached, window.end).filter(|_| !closed),
            expires_at: standing.expires_at(window.end),
            holding: holds.then(|| holding(manifest, window.end)),
            panes,
            other_keys: self.other_keys(window)?,
        };
        let facts = words::Facts { manifest, spec, standing: &standing };
        (why.answer, why.because) = (facts.answer(&why), facts.because(&why));
        Ok(why)
    }

    /// The panes of the key that the window is made of.
    fn panes_of(&self, window: Window, standing: &Standing) -> Result<Vec<ListedPane>> {
        let sliced = self.open.shapes[self.index].spec().shares_slices();
        let mut filter = self.filter.clone();
        (filter.from, filter.to) = (Some(window.start), Some(window.end));
        let mut panes = self.listed(&filter, standing)?;
        panes.retain(|pane| {
            let inside = pane.start >= window.start && pane.end <= window.end;
            if sliced { inside } else { (pane.start, pane.end) == (window.start, window.end) }
        });
        Ok(panes)
    }

    fn listed(&self, filter: &PaneFilter, standing: &Standing) -> Result<Vec<ListedPane>> {
        let shape = &self.open.shapes[self.index];
        let mut panes = Vec::new();
        let mut ignore = |_| {};
        let mut counter = Counter::new(&self.chosen.manifest, &mut ignore);
        each_pane(self.open, &self.chosen.manifest, self.index, filter, &mut counter, &mut |seen| {
            panes.push(listed(shape, standing, seen));
            Ok(())
        })?;
        Ok(panes)
    }

    /// The session of the key at an instant: the one that holds it, or what an event there would open.
    fn session(
        &self,
        options: &WhyOptions,
        gap: Span,
        standing: &Standing,
    ) -> Result<(Window, Vec<ListedPane>)> {
        let mut filter = self.filter.clone();
        filter.to = options.start.as_millis().checked_add(1).map(EventTime::from_millis);
        // A session whose bytes cannot be read has no start; it ends after the instant all the same.
        filter.from = Some(options.start);
        let panes = self.listed(&filter, standing)?;
        let window = match panes.first() {
            Some(pane) => Window { start: pane.start, end: pane.end },
            None => Window { start: options.start, end: options.start.saturating_add(gap) },
        };
        Ok((window, panes))
    }

    /// Whether any key has a pane in the window.
    fn other_keys(&self, window: Window) -> Result<bool> {
        let shape = &self.open.shapes[self.index];
        let spec = shape.spec();
        if spec.windows.session_gap().is_some() {
            return Ok(false);
        }
        let family = FamilyId(self.index);
        if !spec.shares_slices() {
            let mut scan = self.open.state.scan(family, window.end..=window.end)?;
            return Ok(scan.next_pane()?.is_some());
        }
        let after = std::ops::Bound::Excluded(window.start);
        let mut scan = self.open.state.scan(family, (after, std::ops::Bound::Included(window.end)))?;
        Ok(scan.next_pane()?.is_some_and(|(PaneKey { end, .. }, _)| end > window.start))
    }
}

/// How far a watermark is from an instant.
fn missing(watermark: Watermark, end: EventTime) -> Option<Span> {
    Span::from_millis(end.as_millis().checked_sub(watermark.instant()?.as_millis())?)
}

/// The window that is meant.
fn pick(shape: &Shape, options: &WhyOptions) -> Result<Window> {
    let spec = shape.spec();
    let holding: Vec<Window> = spec.windows.windows_of(options.start).collect();
    let starting = || holding.iter().filter(|window| window.start == options.start);
    let fits = |window: &&Window| options.end.is_none_or(|end| window.end == end);
    let chosen: Vec<&Window> = match starting().filter(fits).count() {
        0 => holding.iter().filter(fits).collect(),
        _ => starting().filter(fits).collect(),
    };
    match chosen.as_slice() {
        [window] => Ok(**window),
        [] => Err(not_a_window(shape, options, &holding)),
        several => {
            let named: Vec<String> = several.iter().take(NAMED_MAX).map(|window| bounds(window)).collect();
            let message = format!(
                "several windows of {} hold this time: time={} windows={}",
                spec.name,
                options.start,
                several.len()
            );
            let remedy = format!("give start and end as START..END: {}", named.join(", "));
            Err(Error::new(ErrorKind::Invalid, message).with_remedy(remedy))
        }
    }
}

fn not_a_window(shape: &Shape, options: &WhyOptions, holding: &[Window]) -> Error {
    let spec = shape.spec();
    let end = options.end.map_or(String::new(), |end| format!(" end={end}"));
    let message =
        format!("{} has no such window: start={}{end} windows={}", spec.name, options.start, spec.windows);
    let near: Vec<String> = holding.iter().take(NAMED_MAX).map(bounds).collect();
    let remedy = match near.is_empty() {
        true => "give a time that a window holds; events between windows belong to none".to_owned(),
        false => format!("these windows hold the start: {}", near.join(", ")),
    };
    Error::new(ErrorKind::Invalid, message).with_remedy(remedy)
}

fn bounds(window: &Window) -> String {
    format!("{}..{}", window.start, window.end)
}
