//! Turning rows into results: what kind of emission it is, and the bookkeeping a firing leaves in a row.

use super::table::PaneTable;
use super::{Accumulation, PaneKind, ResultBlock, ResultRow, RowBuffer, RowKind};
use crate::aggregate::{Layout, RowMut, RowRef, Value};
use crate::event_time::{EventTime, Watermark, Window};

/// Words after the accumulators of a pane that may fire more than once.
pub(super) const HISTORY_WORDS: usize = 2;
/// Rows brought into the cache at once before they are emitted; they fit its first level.
const WARMED_ROWS: usize = 64;
/// No early boundary is pending.
const NO_BOUNDARY: u64 = i64::MAX as u64;

/// What a pane remembers of its firings; kept in the last two words of its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct History {
    pub(super) pane_index: u32,
    pub(super) since_fire: u32,
    pub(super) fired_on_time: bool,
    pub(super) next_boundary: Option<EventTime>,
}

impl History {
    pub(super) const NEW: [u64; HISTORY_WORDS] = [0, NO_BOUNDARY];

    pub(super) fn of(row: &[u64]) -> Self {
        let [.., counts, boundary] = row else { return Self::of(&Self::NEW) };
        Self {
            pane_index: *counts as u32,
            since_fire: (*counts >> 32) as u32 & 0x7fff_ffff,
            fired_on_time: counts >> 63 == 1,
            next_boundary: (*boundary != NO_BOUNDARY).then(|| EventTime::from_millis(*boundary as i64)),
        }
    }

    pub(super) fn store(self, row: &mut [u64]) {
        let [.., counts, boundary] = row else { return };
        let since_fire = u64::from(self.since_fire & 0x7fff_ffff);
        *counts = u64::from(self.pane_index) | since_fire << 32 | u64::from(self.fired_on_time) << 63;
        *boundary = self.next_boundary.map_or(NO_BOUNDARY, |time| time.as_millis() as u64);
    }

    pub(super) fn kind(self, window: Window, watermark: Watermark) -> PaneKind {
        if !watermark.closed(window.end) {
            PaneKind::Early
        } else if self.fired_on_time {
            PaneKind::Late
        } else {
            PaneKind::OnTime
        }
    }
}

/// Everything about a firing that is the same for all its rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Firing<'a> {
    pub(super) layout: &'a Layout,
    pub(super) fires_once: bool,
    pub(super) accumulation: Accumulation,
    pub(super) window: Window,
    pub(super) watermark: Watermark,
    /// Set when an earlier result is taken back instead.
    pub(super) takes_back: Option<RowKind>,
}

impl Firing<'_> {
    fn result<'r>(&self, key: &'r [u8], row: RowRef<'_>, values: &'r mut Vec<Value>) -> ResultRow<'r> {
        values.clear();
        row.finish(values);
        if self.fires_once {
            return ResultRow { key, pane_index: 0, kind: PaneKind::OnTime, values };
        }
        let history = History::of(row.words());
        ResultRow {
            key,
            pane_index: history.pane_index.saturating_sub(u32::from(self.takes_back.is_some())),
            kind: history.kind(self.window, self.watermark),
            values,
        }
    }

    /// Notes in `row` that it has just been emitted.
    pub(super) fn settle(&self, mut row: RowMut<'_>) {
        if self.fires_once {
            return;
        }
        let mut history = History::of(row.as_ref().words());
        history.pane_index = history.pane_index.saturating_add(1);
        history.since_fire = 0;
        history.fired_on_time |= self.watermark.closed(self.window.end);
        history.store(row.extra_mut());
        if self.accumulation == Accumulation::Discarding {
            row.reset();
        }
    }

    pub(super) fn table<'t>(&'t self, table: &'t PaneTable, rows: &'t [u32]) -> TableBlock<'t> {
        TableBlock {
            firing: *self,
            table,
            rows,
            next: 0,
            values: Vec::with_capacity(self.layout.aggregates()),
        }
    }

    pub(super) fn buffer<'t>(&'t self, rows: &'t RowBuffer) -> BufferBlock<'t> {
        BufferBlock { firing: *self, rows, next: 0, values: Vec::with_capacity(self.layout.aggregates()) }
    }
}

/// Results straight from the rows of a table.
#[derive(Debug)]
pub(super) struct TableBlock<'t> {
    firing: Firing<'t>,
    table: &'t PaneTable,
    rows: &'t [u32],
    next: usize,
    values: Vec<Value>,
}

impl ResultBlock for TableBlock<'_> {
    fn window(&self) -> Window {
        self.firing.window
    }

    fn watermark(&self) -> Watermark {
        self.firing.watermark
    }

    fn takes_back(&self) -> Option<RowKind> {
        self.firing.takes_back
    }

    fn next_row(&mut self) -> Option<ResultRow<'_>> {
        let row = *self.rows.get(self.next)?;
        if self.next.is_multiple_of(WARMED_ROWS) {
            self.table.warm_rows(&self.rows[self.next..self.rows.len().min(self.next + WARMED_ROWS)]);
        }
        self.next += 1;
        Some(self.firing.result(self.table.key(row), self.table.row(row), &mut self.values))
    }
}

/// Results from rows that were put together for the occasion.
#[derive(Debug)]
pub(super) struct BufferBlock<'t> {
    firing: Firing<'t>,
    rows: &'t RowBuffer,
    next: usize,
    values: Vec<Value>,
}

impl ResultBlock for BufferBlock<'_> {
    fn window(&self) -> Window {
        self.firing.window
    }

    fn watermark(&self) -> Watermark {
        self.firing.watermark
    }

    fn takes_back(&self) -> Option<RowKind> {
        self.firing.takes_back
    }

    fn next_row(&mut self) -> Option<ResultRow<'_>> {
        let index = self.next;
        if index >= self.rows.len() {
            return None;
        }
        self.next += 1;
        Some(self.firing.result(self.rows.key(index), self.rows.row(index), &mut self.values))
    }
}
