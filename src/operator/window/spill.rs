//! Panes on their way out of memory and back: spilling for a checkpoint or for room, restoring at a start.

use std::sync::Arc;

use super::aligned::AlignedOperator;
use crate::event_time::{EventTime, Watermark};
use crate::operator::fire::History;
use crate::operator::table::{PaneTable, key_hash};
use crate::operator::{Mode, Repeat, RowBuffer};

/// How spilled rows go into the state database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpillKind {
    /// Rows are whole panes and replace what is there.
    Put,
    /// Rows are what was added since the last spill and are merged with what is there.
    Merge,
    /// Rows are keys without words; what is there goes.
    Delete,
}

/// The windows that spilled rows belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ends {
    /// One window, by its end.
    One(EventTime),
    /// The end of each row's own window.
    Each(Vec<EventTime>),
}

/// Rows on their way to the state database.
#[derive(Clone, Debug)]
pub struct Spilled {
    /// Ends of their windows.
    pub ends: Ends,
    /// Put, merge or delete.
    pub kind: SpillKind,
    /// The rows, in no order.
    pub rows: RowBuffer,
}

impl Spilled {
    /// End of the window of row `index`.
    ///
    /// # Panics
    /// When `index` is not below the number of rows.
    #[must_use]
    pub fn end(&self, index: usize) -> EventTime {
        match &self.ends {
            Ends::One(end) => *end,
            Ends::Each(ends) => ends[index],
        }
    }

    /// Bytes that the rows hold on their way.
    pub(crate) fn bytes(&self) -> usize {
        let ends = match &self.ends {
            Ends::One(_) => 0,
            Ends::Each(ends) => ends.capacity() * size_of::<EventTime>(),
        };
        self.rows.bytes() + ends
    }

    /// Indexes of the rows in the order of the state database: by end, then key.
    #[must_use]
    pub fn sorted(&self) -> Vec<u32> {
        match &self.ends {
            Ends::One(_) => self.rows.sorted(),
            Ends::Each(ends) => {
                let mut order: Vec<u32> = (0..self.rows.len() as u32).collect();
                let place = |&row: &u32| (ends[row as usize], self.rows.key(row as usize));
                order.sort_unstable_by(|a, b| place(a).cmp(&place(b)));
                order
            }
        }
    }
}

impl AlignedOperator {
    /// Copies out everything that the state database does not have yet, for a checkpoint.
    ///
    /// Whole panes stay in memory and count as clean; parts of panes leave memory, since they must not be merged
    /// twice. Call between batches only.
    pub(super) fn spill_dirty(&mut self) -> Vec<Spilled> {
        let tables: Vec<usize> = self.by_end.values().copied().collect();
        tables.into_iter().filter_map(|table| self.spill_table(table, false)).collect()
    }

    /// Moves the table with the most memory out, to make room. `None` when nothing can be moved.
    ///
    /// Panes that wait for early firings stay: their boundaries are known in memory only.
    pub(super) fn spill_largest(&mut self) -> Option<Spilled> {
        self.spare = None;
        self.scratch = None;
        if self.needs_resident_panes() {
            return None;
        }
        let tables = self.by_end.values().copied();
        let filled = tables.filter(|&table| self.tables[table].as_ref().is_some_and(|open| !open.is_empty()));
        let largest = filled.max_by_key(|&table| self.tables[table].as_ref().map_or(0, PaneTable::bytes))?;
        let window = self.open_table(largest).window;
        let spilled = self.spill_table(largest, true);
        let rows = || RowBuffer::new(&self.layout);
        let empty = || Spilled { ends: Ends::One(window.end), kind: SpillKind::Put, rows: rows() };
        Some(spilled.unwrap_or_else(empty))
    }

    fn spill_table(&mut self, table: usize, leave: bool) -> Option<Spilled> {
        let (fires_once, layout) = (self.fires_once, Arc::clone(&self.layout));
        let workers = self.workers.count();
        let open = self.open_table(table);
        let parts = fires_once && !open.complete;
        let rows = open.take_dirty();
        let mut spilled = RowBuffer::new(&layout);
        spilled.reserve_exact(rows.len());
        for row in rows {
            spilled.push(open.key(row), open.row(row));
        }
        if parts || leave {
            let closed = open.closed;
            let mut emptied = PaneTable::new(open.window, &layout, false, workers);
            emptied.closed = closed;
            *open = emptied;
        }
        let kind = if parts { SpillKind::Merge } else { SpillKind::Put };
        let end = open.window.end;
        (!spilled.is_empty()).then_some(Spilled { ends: Ends::One(end), kind, rows: spilled })
    }

    /// Starts to take up what a checkpoint holds, as of the watermark that it had come to here.
    pub(super) fn restore(&mut self, watermark: Watermark) {
        self.watermark = watermark;
        self.note_passed(watermark);
    }

    /// Takes up a piece that a checkpoint holds, before the first batch. With `rows` these are all its panes and it
    /// is complete; without, its panes stay in the state database.
    pub(super) fn restore_window(&mut self, end: EventTime, rows: Option<&RowBuffer>) {
        let windows = &self.spec.windows;
        let piece = if self.sliced { windows.piece_ending(end) } else { windows.window_ending(end) };
        let table = self.open(piece, rows.is_some());
        self.note_closed(table, self.watermark);
        let Some(rows) = rows else { return };
        for index in 0..rows.len() {
            let key = rows.key(index);
            let open = self.open_table(table);
            let (row, _) = open.find_or_insert(key, key_hash(key));
            open.row_mut(row).assign(rows.row(index));
            open.mark_clean(row);
            if self.needs_resident_panes() {
                let history = History::of(rows.row(index).words());
                self.plan_boundary(table, row, history.next_boundary);
                if history.since_fire > 0 && self.spec.gathers_changes() {
                    self.changed.entry(end).or_default().push(row);
                }
            }
        }
    }

    /// True when panes must be in memory because what waits for a firing is known there only.
    pub(super) fn needs_resident_panes(&self) -> bool {
        let early =
            self.spec.mode == Mode::Append && matches!(self.spec.trigger.early(), Repeat::EventTime(_));
        early || self.spec.gathers_changes()
    }

    /// True when nothing needs the piece ending at `end` any more, as of the watermark here.
    pub(super) fn is_expired(&self, end: EventTime) -> bool {
        let piece_or_window = if self.sliced {
            self.spec.windows.last_holding(self.spec.windows.piece_ending(end)).end
        } else {
            end
        };
        self.expired(piece_or_window, self.watermark)
    }
}
