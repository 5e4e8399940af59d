//! Which windows a checkpoint holds, and which keys have the most events in them. One scan, in bounded memory.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::{Error, ErrorKind, Result};
use crate::event_time::{EventTime, Watermark, Window};
use crate::inspect::choice::{Chosen, with_checkpoint};
use crate::inspect::key::Key;
use crate::inspect::list::age_ms;
use crate::inspect::shape::{EventShape, OpenState, Shape};
use crate::inspect::status::{Standing, WindowStatus};
use crate::inspect::text::{as_optional_text, as_text};
use crate::inspect::top::TopCounter;
use crate::state::FamilyId;

/// Live windows listed for each operator; of the later ones only the number is given.
const WINDOWS_LISTED_MAX: usize = 10_000;
/// Expired windows listed for each operator, the latest ones.
const EXPIRED_LISTED_MAX: usize = 100;

/// Which checkpoint a report is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Origin {
    /// Its directory.
    pub path: PathBuf,
    /// Name of the pipeline.
    pub pipeline: String,
    /// Its epoch.
    pub epoch: u64,
    /// Milliseconds since it was written; zero when the clocks disagree.
    pub age_ms: u64,
    /// Its watermark, against which windows are judged.
    #[serde(serialize_with = "as_text")]
    pub watermark: Watermark,
    /// State of windows expired under it may be gone.
    #[serde(serialize_with = "as_text")]
    pub horizon: Watermark,
}

/// The windows of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WindowsReport {
    /// The checkpoint.
    pub checkpoint: Origin,
    /// Windows by operator.
    pub operators: Vec<OperatorWindows>,
    /// What joins and deduplication hold.
    pub events: Vec<OperatorEvents>,
}

/// What one join, or the deduplication of one source, holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OperatorEvents {
    /// Its name.
    pub name: String,
    /// `join` or `dedup`.
    pub kind: &'static str,
    /// Events, or ids, that still count.
    pub live: u64,
    /// Those that the watermark has passed and that are still on disk.
    pub expired: u64,
    /// Those that cannot be read.
    pub damaged: u64,
    /// When the first live one is forgotten.
    #[serde(serialize_with = "as_optional_text")]
    pub live_until_min: Option<EventTime>,
    /// When the last one is forgotten.
    #[serde(serialize_with = "as_optional_text")]
    pub live_until_max: Option<EventTime>,
}

/// The windows of one operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OperatorWindows {
    /// Its name.
    pub name: String,
    /// Names of its key fields.
    pub key: Vec<String>,
    /// All open windows.
    pub open: WindowTotals,
    /// All windows that are due and yet to fire.
    pub closing: WindowTotals,
    /// All windows that have fired and still take late events.
    pub accepts_late: WindowTotals,
    /// All expired windows that are still on disk.
    pub expired: WindowTotals,
    /// The windows by end, at most the 100 latest expired ones and the first 10,000 others.
    pub windows: Vec<WindowRow>,
    /// Windows that are not listed.
    pub windows_left_out: u64,
    /// Keys with the most events over windows that have not expired.
    pub top_keys: Vec<TopKey>,
    /// By how much an event count in `top_keys` may be too low; zero unless there are more than a million keys.
    pub top_events_missed_max: u64,
}

/// Sums over windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WindowTotals {
    /// Windows.
    pub windows: u64,
    /// Panes.
    pub panes: u64,
    /// Events in these panes.
    pub events: u64,
    /// Panes that cannot be read.
    pub damaged: u64,
}

/// One window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WindowRow {
    /// First instant inside.
    #[serde(serialize_with = "as_text")]
    pub start: EventTime,
    /// First instant after.
    #[serde(serialize_with = "as_text")]
    pub end: EventTime,
    /// Where it stands.
    pub status: WindowStatus,
    /// Its panes.
    pub panes: u64,
    /// Events in these panes.
    pub events: u64,
    /// Panes that cannot be read.
    pub damaged: u64,
}

/// A key with many events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TopKey {
    /// The key.
    pub key: Key,
    /// Its events.
    pub events: u64,
    /// Its panes.
    pub panes: u64,
}

/// The windows in the checkpoint of epoch `at`, or in the newest one under `path`, with the `top` keys of each
/// operator; of all operators or of the one that is named `window`.
///
/// # Errors
/// [`ErrorKind::Invalid`] when there is no such checkpoint or window, [`ErrorKind::Damaged`] when files cannot be read
/// back, [`ErrorKind::Incompatible`] when another version wrote them.
pub fn windows(
    path: &Path,
    at: Option<u64>,
    window: Option<&str>,
    top: usize,
    now_ms: i64,
) -> Result<WindowsReport> {
    with_checkpoint(path, at, |chosen| {
        let open = OpenState::open(&chosen.summary, &chosen.manifest)?;
        let named = |shape: &&EventShape| window.is_none_or(|name| shape.name == name);
        let events = (open.shapes.len()..).zip(&open.events).filter(|(_, shape)| named(shape));
        let events = events
            .map(|(index, shape)| {
                scan_events(&open, index, shape, chosen.manifest.operators[index].watermark)
            })
            .collect::<Result<Vec<_>>>()?;
        let windows = match window {
            Some(_) if !events.is_empty() => Vec::new(),
            _ => selected(&open, window)?,
        };
        let operators = windows
            .into_iter()
            .map(|index| scan(&open, index, open.standing(&chosen.manifest, index), top))
            .collect::<Result<_>>()?;
        Ok(WindowsReport { checkpoint: origin(chosen, now_ms), operators, events })
    })
}

pub(super) fn origin(chosen: &Chosen, now_ms: i64) -> Origin {
    let manifest = &chosen.manifest;
    Origin {
        path: chosen.summary.path.clone(),
        pipeline: manifest.pipeline.clone(),
        epoch: manifest.epoch,
        age_ms: age_ms(manifest, now_ms),
        watermark: manifest.watermark,
        horizon: manifest.horizon,
    }
}

/// Indexes of the operators that are asked for.
pub(super) fn selected(open: &OpenState, window: Option<&str>) -> Result<Vec<usize>> {
    let Some(name) = window else { return Ok((0..open.shapes.len()).collect()) };
    let names: Vec<&str> = open.shapes.iter().map(|shape| shape.spec().name.as_str()).collect();
    match names.iter().position(|known| *known == name) {
        Some(index) => Ok(vec![index]),
        None => Err(Error::new(ErrorKind::Invalid, format!("no such window: window={name:?}"))
            .with_remedy(format!("name one of the windows that are there: {}", names.join(", ")))),
    }
}

fn scan(open: &OpenState, index: usize, standing: Standing, top: usize) -> Result<OperatorWindows> {
    let shape = &open.shapes[index];
    let mut tally = Tally::new(shape, standing);
    let mut row = shape.row();
    let mut scan = open.state.scan(FamilyId(index), ..)?;
    while let Some((pane, stored)) = scan.next_pane()? {
        let events = shape.read(stored, &mut row).ok();
        tally.add(shape.window(pane.end, &row), pane.key, events);
    }
    Ok(tally.finish(top))
}

fn scan_events(
    open: &OpenState,
    index: usize,
    shape: &EventShape,
    watermark: Watermark,
) -> Result<OperatorEvents> {
    let mut held = OperatorEvents {
        name: shape.name.clone(),
        kind: shape.noun(),
        live: 0,
        expired: 0,
        damaged: 0,
        live_until_min: None,
        live_until_max: None,
    };
    let mut scan = open.state.scan(FamilyId(index), ..)?;
    while let Some((row, stored)) = scan.next_pane()? {
        held.damaged += u64::from(shape.check(row.end, row.key, stored).is_err());
        if watermark.closed(row.end) {
            held.expired += 1;
        } else {
            held.live += 1;
            held.live_until_min.get_or_insert(row.end);
            held.live_until_max = Some(row.end);
        }
    }
    Ok(held)
}

/// Windows as a scan meets them: by end, each as a whole.
struct Tally<'a> {
    shape: &'a Shape,
    standing: Standing,
    current: Option<WindowRow>,
    expired: VecDeque<WindowRow>,
    live: Vec<WindowRow>,
    totals: [WindowTotals; 4],
    top: TopCounter,
}

impl<'a> Tally<'a> {
    fn new(shape: &'a Shape, standing: Standing) -> Self {
        Self {
            shape,
            standing,
            current: None,
            expired: VecDeque::new(),
            live: Vec::new(),
            totals: [WindowTotals::default(); 4],
            top: TopCounter::new(),
        }
    }

    /// Adds a pane; `events` is absent for one that cannot be read.
    fn add(&mut self, of: Window, key: &[u8], events: Option<u64>) {
        if self.current.as_ref().is_none_or(|window| (window.start, window.end) != (of.start, of.end)) {
            self.close_current();
        }
        let (shape, standing) = (self.shape, self.standing);
        let window = self.current.get_or_insert_with(|| WindowRow {
            start: of.start,
            end: of.end,
            status: standing.status_of(shape.spec(), of),
            panes: 0,
            events: 0,
            damaged: 0,
        });
        window.panes += 1;
        match events {
            Some(events) => window.events = window.events.saturating_add(events),
            None => window.damaged += 1,
        }
        if window.status != WindowStatus::Expired {
            self.top.add(key, events.unwrap_or(0));
        }
    }

    fn close_current(&mut self) {
        let Some(window) = self.current.take() else { return };
        let totals = &mut self.totals[window.status as usize];
        totals.windows += 1;
        totals.panes += window.panes;
        totals.events = totals.events.saturating_add(window.events);
        totals.damaged += window.damaged;
        if window.status == WindowStatus::Expired {
            self.expired.push_back(window);
            if self.expired.len() > EXPIRED_LISTED_MAX {
                self.expired.pop_front();
            }
        } else if self.live.len() < WINDOWS_LISTED_MAX {
            self.live.push(window);
        }
    }

    fn finish(mut self, top: usize) -> OperatorWindows {
        self.close_current();
        let spec = self.shape.spec();
        let total = |status: WindowStatus| self.totals[status as usize];
        let all: u64 = self.totals.iter().map(|totals| totals.windows).sum();
        let listed = (self.expired.len() + self.live.len()) as u64;
        let (top_keys, top_events_missed_max) = self.top.finish(top);
        OperatorWindows {
            name: spec.name.clone(),
            key: spec.key.clone(),
            open: total(WindowStatus::Open),
            closing: total(WindowStatus::Closing),
            accepts_late: total(WindowStatus::AcceptsLate),
            expired: total(WindowStatus::Expired),
            windows: self.expired.into_iter().chain(self.live).collect(),
            windows_left_out: all.saturating_sub(listed),
            top_keys: top_keys
                .into_iter()
                .map(|(key, count)| TopKey {
                    key: Key::from_stored(&key, spec.key.len()),
                    events: count.events,
                    panes: count.panes,
                })
                .collect(),
            top_events_missed_max,
        }
    }
}
