//! The batch profile: the watermark moves between batches, and records are tested against the one before that.

use std::collections::{BTreeMap, BTreeSet};

use super::{Contents, Emitted, Event, Key, Late, Mode, Observed, Op, Row, Settings};

/// Panes by end, then start, then key: the order in which they are shown.
type PaneId = (i64, i64, Key);

pub(super) struct Batches {
    settings: Settings,
    /// Exclusive; 0 before any record.
    watermark: i64,
    /// The watermark of the batch before, against which records are tested.
    late_limit: i64,
    max_ts: Option<i64>,
    panes: BTreeMap<PaneId, Contents>,
    waiting: Vec<(usize, Event)>,
}

impl Batches {
    pub(super) fn new(settings: &Settings) -> Self {
        let (panes, waiting) = (BTreeMap::new(), Vec::new());
        Self { settings: settings.clone(), watermark: 0, late_limit: 0, max_ts: None, panes, waiting }
    }

    pub(super) fn watermark(&self) -> Option<i64> {
        self.max_ts.map(|_| self.watermark)
    }

    pub(super) fn state(&self) -> Vec<Row> {
        self.panes.iter().map(row).collect()
    }

    pub(super) fn apply(&mut self, at: usize, op: &Op, seen: &mut Observed) {
        match op {
            Op::Event(event) => self.waiting.push((at, event.clone())),
            Op::BatchEnd => self.batch(at, seen),
            _ => {}
        }
    }

    fn batch(&mut self, at: usize, seen: &mut Observed) {
        let mut changed = BTreeSet::new();
        let mut max_ts = self.max_ts;
        for (at, event) in std::mem::take(&mut self.waiting) {
            max_ts = max_ts.max(self.event(at, &event, &mut changed, seen));
        }
        let closed = |(end, _, _): &PaneId| *end <= self.watermark;
        let shown: Vec<Row> = match self.settings.mode {
            Mode::Append => self.panes.iter().filter(|(id, _)| closed(id)).map(row).collect(),
            Mode::Update => self.panes.iter().filter(|(id, _)| changed.contains(*id)).map(row).collect(),
            Mode::Complete => self.state(),
        };
        let watermark = Some(self.watermark);
        seen.emits.extend(shown.into_iter().map(|row| Emitted { at, watermark, row, pane: None }));
        if self.settings.mode != Mode::Complete {
            let watermark = self.watermark;
            self.panes.retain(|(end, _, _), _| *end > watermark);
        }
        self.late_limit = self.watermark;
        self.max_ts = max_ts;
        if let Some(max) = max_ts {
            self.watermark = self.watermark.max(max.saturating_sub(self.settings.delay_ms));
        }
    }

    /// Adds one record to its windows; its time, if it counts for the watermark.
    fn event(
        &mut self,
        at: usize,
        event: &Event,
        changed: &mut BTreeSet<PaneId>,
        seen: &mut Observed,
    ) -> Option<i64> {
        let (Some(ts), Some(key)) = (event.ts, &event.key) else {
            seen.reject(at, if event.ts.is_none() { "null_timestamp" } else { "null_key" });
            return None;
        };
        let Some(windows) = self.settings.windows.of(ts) else {
            seen.reject(at, "timestamp_out_of_range");
            return None;
        };
        for (start, end) in windows {
            if end <= self.late_limit && self.settings.mode != Mode::Complete {
                seen.late.push(Late { at, ts, key: key.clone(), window: Some((start, end)) });
                continue;
            }
            let id = (end, start, key.clone());
            let id = if self.settings.windows.is_session() { self.join(id) } else { id };
            self.panes.entry(id.clone()).or_default().push(event.value);
            changed.insert(id);
        }
        Some(ts)
    }

    /// Joins the sessions that `id` overlaps or touches; the pane of the result is in the map, if there was any.
    fn join(&mut self, id: PaneId) -> PaneId {
        let (mut end, mut start, key) = id;
        let touches = |other: &&PaneId| other.2 == key && other.1 <= end && other.0 >= start;
        let touched: Vec<PaneId> = self.panes.keys().filter(touches).cloned().collect();
        let mut contents = Contents::default();
        for other in touched {
            (start, end) = (start.min(other.1), end.max(other.0));
            contents.append(self.panes.remove(&other).unwrap());
        }
        let joined = (end, start, key);
        self.panes.insert(joined.clone(), contents);
        joined
    }
}

fn row(((end, start, key), contents): (&PaneId, &Contents)) -> Row {
    contents.row(key, (*start, *end))
}
