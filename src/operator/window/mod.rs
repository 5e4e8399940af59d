//! The windowed aggregation itself: assigns, accumulates, fires and forgets.

mod spill;

use std::collections::BTreeMap;
use std::ops::Bound;

pub use spill::{SpillKind, Spilled};

use super::fire::{Firing, History};
use super::table::{PaneTable, hash_keys};
use super::{
    Accumulation, Emit, EventBatch, LateEvent, Marks, Mode, OperatorSpec, Panes, RowBuffer, Trigger,
};
use crate::aggregate::{Layout, Touch};
use crate::event_time::{EventTime, Span, Watermark, Window};

/// Rows read from the state database and emitted in one go.
const SCAN_ROWS: usize = 8_192;
/// Events whose places in the table are looked up ahead.
const WARMED_EVENTS: usize = 64;
/// An emptied table is kept for the next window up to this many bytes.
const SPARE_BYTES_MAX: usize = 256 << 20;

/// What an operator tells about one of its open windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenWindow {
    /// Its bounds.
    pub window: Window,
    /// Panes in memory.
    pub resident: usize,
    /// True while no pane is only in the state database.
    pub complete: bool,
}

/// A windowed aggregation over aligned windows.
///
/// Panes of open windows live in one table per window. As long as a window's table is complete its rows are whole
/// panes; once panes were moved to the state database, the rows of an operator that fires once are what came
/// since, and nothing is read until the window fires.
#[derive(Debug)]
pub struct WindowOperator {
    index: usize,
    spec: OperatorSpec,
    layout: Layout,
    // Identity row: that of the layout, and the history words of a pane that may fire more than once.
    identity: Box<[u64]>,
    fires_once: bool,
    tables: Vec<Option<PaneTable>>,
    vacant: Vec<usize>,
    by_end: BTreeMap<EventTime, usize>,
    // Every window up to this end is closed, every later one is not.
    closed_to: EventTime,
    // Early firings that are due: (instant, window end) → rows of that window's table.
    boundaries: BTreeMap<(EventTime, EventTime), Vec<u32>>,
    // The watermark at which something has to be done next. Derived, see `next_action`.
    due: EventTime,
    // Table of the last event; most events fall into the same window as the one before.
    recent: Option<(Window, usize)>,
    spare: Option<PaneTable>,
    hashes: Vec<u64>,
    touched: Vec<usize>,
}

impl WindowOperator {
    /// The operator at `index` of its pipeline.
    #[must_use]
    pub fn new(index: usize, spec: OperatorSpec) -> Self {
        let layout = Layout::new(&spec.aggregates);
        let fires_once = spec.fires_once();
        let mut identity = layout.identity().to_vec();
        if !fires_once {
            identity.extend_from_slice(&History::NEW);
        }
        Self {
            index,
            spec,
            layout,
            identity: identity.into(),
            fires_once,
            tables: Vec::new(),
            vacant: Vec::new(),
            by_end: BTreeMap::new(),
            closed_to: EventTime::MIN,
            boundaries: BTreeMap::new(),
            due: EventTime::MAX,
            recent: None,
            spare: None,
            hashes: Vec::new(),
            touched: Vec::new(),
        }
    }

    /// Its place in the pipeline.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// About how many bytes of memory a pane with a key of `key_bytes` takes.
    #[must_use]
    pub fn bytes_per_pane(&self, key_bytes: usize) -> usize {
        PaneTable::bytes_per_row(self.stride(), key_bytes)
    }

    /// What it was asked to do.
    #[must_use]
    pub fn spec(&self) -> &OperatorSpec {
        &self.spec
    }

    /// The accumulators of its panes.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Words in a stored row: those of the layout, and two more for a pane that may fire more than once.
    #[must_use]
    pub fn stride(&self) -> usize {
        self.identity.len()
    }

    /// True when `time` lies in a window with representable bounds.
    #[inline]
    #[must_use]
    pub fn reaches(&self, time: EventTime) -> bool {
        self.recent.is_some_and(|(window, _)| window.start <= time && time < window.end)
            || self.spec.windows.window_of(time).is_some()
    }

    /// Its open windows, by end.
    pub fn open_windows(&self) -> impl Iterator<Item = OpenWindow> + '_ {
        self.by_end.values().filter_map(|&table| self.tables[table].as_ref()).map(|table| OpenWindow {
            window: table.window,
            resident: table.len(),
            complete: table.complete,
        })
    }

    /// Panes in memory.
    #[must_use]
    pub fn resident_panes(&self) -> usize {
        self.tables.iter().flatten().map(PaneTable::len).sum()
    }

    /// Bytes of memory that it holds.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let spare = self.spare.as_ref().map_or(0, PaneTable::bytes);
        self.tables.iter().flatten().map(PaneTable::bytes).sum::<usize>() + spare
    }

    /// Processes a batch, event by event in arrival order, each against the watermark it meets.
    ///
    /// # Errors
    /// The first error of `panes` or `emit`. The operator must not be used after it.
    pub fn process<E>(
        &mut self,
        batch: &EventBatch,
        marks: &Marks,
        panes: &mut dyn Panes<Error = E>,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        if !self.spec.reads(batch.source) {
            return self.pass_over(batch, marks, panes, emit);
        }
        let keys = &batch.keys[self.spec.key_column];
        let mut hashes = std::mem::take(&mut self.hashes);
        hash_keys(keys, &mut hashes);
        let mut skipped = marks.skipped();
        for (index, &hash) in hashes.iter().enumerate() {
            if let [next, rest @ ..] = skipped
                && *next as usize == index
            {
                skipped = rest;
                continue;
            }
            if index % WARMED_EVENTS == 0 {
                self.warm(&hashes[index..hashes.len().min(index + WARMED_EVENTS)]);
            }
            let time = EventTime::from_millis(batch.times[index]);
            let before = marks.before(index);
            if let Some(table) = self.table_for(time, before) {
                let (row, new) = self.open_table(table).find_or_insert(keys.get(index), hash);
                self.touch(table, row, index);
                if !self.fires_once {
                    self.after_event(table, row, new, batch, index, before, panes, emit)?;
                }
            } else {
                self.report_late(batch, index, before, emit)?;
            }
            let after = marks.after(index);
            if after > before && after.closed(self.due) {
                self.settle(batch);
                self.advance(after, panes, emit)?;
            }
        }
        self.settle(batch);
        self.hashes = hashes;
        Ok(())
    }

    /// Takes the watermark of a batch and none of its events.
    fn pass_over<E>(
        &mut self,
        batch: &EventBatch,
        marks: &Marks,
        panes: &mut dyn Panes<Error = E>,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        for index in 0..batch.len() {
            let after = marks.after(index);
            if after > marks.before(index) && after.closed(self.due) {
                self.advance(after, panes, emit)?;
            }
        }
        Ok(())
    }

    /// Looks ahead: most of the next events fall into the window of the last.
    #[inline]
    fn warm(&self, hashes: &[u64]) {
        if let Some((_, table)) = self.recent
            && let Some(open) = &self.tables[table]
        {
            open.warm(hashes);
        }
    }

    /// The table of the window that holds `time`, opened if need be; `None` when the window has expired.
    #[inline]
    fn table_for(&mut self, time: EventTime, watermark: Watermark) -> Option<usize> {
        if let Some((window, table)) = self.recent
            && window.start <= time
            && time < window.end
        {
            // A table exists exactly until its window expires.
            return Some(table);
        }
        let window = self.spec.windows.window_of(time)?;
        let table = match self.by_end.get(&window.end) {
            Some(&table) => table,
            None if watermark.expired(window.end, self.spec.allowed_lateness) => return None,
            None => {
                let table = self.open(window, true);
                self.note_closed(table, watermark);
                table
            }
        };
        self.recent = Some((window, table));
        Some(table)
    }

    #[inline]
    fn open_table(&mut self, table: usize) -> &mut PaneTable {
        self.tables[table].as_mut().expect("indexes in by_end and recent are of open tables")
    }

    fn open(&mut self, window: Window, complete: bool) -> usize {
        let table = match self.spare.take() {
            Some(spare) => spare.reused_for(window, complete),
            None => PaneTable::new(window, &self.identity, complete),
        };
        let at = self.vacant.pop().unwrap_or_else(|| {
            self.tables.push(None);
            self.tables.len() - 1
        });
        self.tables[at] = Some(table);
        self.by_end.insert(window.end, at);
        at
    }

    #[inline]
    fn touch(&mut self, table: usize, row: u32, index: usize) {
        let open = self.open_table(table);
        open.mark_dirty(row);
        let first = open.touches.is_empty();
        open.touches.push(Touch { row, event: index as u32 });
        if first {
            self.touched.push(table);
        }
    }

    /// Adds the touched events to their rows.
    fn settle(&mut self, batch: &EventBatch) {
        for at in self.touched.drain(..) {
            if let Some(table) = &mut self.tables[at] {
                let (words, touches) = table.words_and_touches();
                self.layout.update(words, self.identity.len(), touches, batch);
                table.touches.clear();
            }
        }
    }

    fn report_late<E>(
        &self,
        batch: &EventBatch,
        index: usize,
        watermark: Watermark,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        let time = EventTime::from_millis(batch.times[index]);
        let Some(window) = self.spec.windows.window_of(time) else { return Ok(()) };
        let limit = window.end.saturating_add(self.spec.allowed_lateness);
        let late_by_ms =
            watermark.instant().map_or(i64::MAX, |now| now.as_millis().saturating_sub(limit.as_millis()));
        emit.late(self.index, LateEvent { batch, index, window, watermark, late_by_ms })
    }

    /// What one accepted event sets off in an operator whose panes may fire more than once.
    #[expect(clippy::too_many_arguments, reason = "the event with its place, and the two ways out")]
    fn after_event<E>(
        &mut self,
        table: usize,
        row: u32,
        new: bool,
        batch: &EventBatch,
        index: usize,
        watermark: Watermark,
        panes: &mut dyn Panes<Error = E>,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        if new {
            self.read_through(table, row, panes)?;
        }
        let (window, closed) = {
            let open = self.open_table(table);
            (open.window, open.closed)
        };
        let mut history = History::of(self.open_table(table).row(row));
        history.since_fire = history.since_fire.saturating_add(1);
        let fires = match (self.spec.mode, self.spec.trigger) {
            (Mode::Update, _) => true,
            (Mode::Append, Trigger::Count(n)) => history.since_fire >= n,
            (Mode::Append, Trigger::Watermark) => closed,
            (Mode::Append, Trigger::Early(interval)) => {
                if !closed && history.next_boundary.is_none() && history.pane_index == 0 {
                    let time = EventTime::from_millis(batch.times[index]);
                    history.next_boundary = self.plan_boundary(table, row, next_multiple(time, interval));
                }
                closed
            }
        };
        history.store(self.open_table(table).row_mut(row));
        if fires {
            self.settle(batch);
            self.fire_rows(table, &[row], window, watermark, emit)?;
        }
        Ok(())
    }

    /// Fetches the pane of a row that is new in memory, when it may be in the state database.
    fn read_through<E>(&mut self, table: usize, row: u32, panes: &mut dyn Panes<Error = E>) -> Result<(), E> {
        let index = self.index;
        let open = self.open_table(table);
        if open.complete {
            return Ok(());
        }
        let (end, key) = (open.window.end, open.key(row).to_vec());
        panes.load(index, end, &key, open.row_mut(row))?;
        Ok(())
    }

    /// Registers an early firing at `instant`, unless the window's own end comes first.
    fn plan_boundary(&mut self, table: usize, row: u32, instant: Option<EventTime>) -> Option<EventTime> {
        let end = self.open_table(table).window.end;
        let instant = instant.filter(|instant| last_instant(end) > *instant)?;
        self.boundaries.entry((instant, end)).or_default().push(row);
        self.due = self.due.min(instant_after(instant));
        Some(instant)
    }

    /// Lets the watermark reach `watermark`: fires what is due, in the order of event time, and forgets what
    /// expired.
    ///
    /// # Errors
    /// The first error of `panes` or `emit`. The operator must not be used after it.
    pub fn advance<E>(
        &mut self,
        watermark: Watermark,
        panes: &mut dyn Panes<Error = E>,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        while let Some(action) = self.next_action(watermark) {
            match action {
                Action::Close(end, table) => {
                    self.closed_to = end;
                    self.close(table, watermark, panes, emit)?;
                    // A long jump of the watermark gives memory back window by window.
                    self.forget_expired(watermark);
                }
                Action::Boundary(instant, end) => self.fire_boundary(instant, end, watermark, emit)?,
            }
        }
        self.forget_expired(watermark);
        self.due = self.next_due();
        Ok(())
    }

    /// The earliest thing that `watermark` makes due. At one instant a closing comes before an early firing.
    fn next_action(&self, watermark: Watermark) -> Option<Action> {
        let close = self.first_unclosed().filter(|&(end, _)| watermark.closed(end));
        let boundary = self.boundaries.keys().next().copied();
        let boundary = boundary.filter(|(instant, _)| watermark.closed(instant_after(*instant)));
        match (close, boundary) {
            (Some((close, _)), Some((instant, end))) if instant < last_instant(close) => {
                Some(Action::Boundary(instant, end))
            }
            (Some((end, table)), _) => Some(Action::Close(end, table)),
            (None, Some((instant, end))) => Some(Action::Boundary(instant, end)),
            (None, None) => None,
        }
    }

    fn first_unclosed(&self) -> Option<(EventTime, usize)> {
        let later = (Bound::Excluded(self.closed_to), Bound::Unbounded);
        self.by_end.range(later).next().map(|(&end, &table)| (end, table))
    }

    /// The earliest watermark at which `advance` has something to do.
    fn next_due(&self) -> EventTime {
        let lateness = self.spec.allowed_lateness;
        let close = self.first_unclosed().map(|(end, _)| end);
        let first = self.by_end.keys().next().filter(|&&end| end <= self.closed_to);
        let expiry = first.map(|end| end.saturating_add(lateness));
        let boundary = self.boundaries.keys().next().map(|(instant, _)| instant_after(*instant));
        close.into_iter().chain(expiry).chain(boundary).min().unwrap_or(EventTime::MAX)
    }

    /// Tells a table just opened whether its window is closed already, and plans what is due for it.
    fn note_closed(&mut self, table: usize, watermark: Watermark) {
        let lateness = self.spec.allowed_lateness;
        let open = self.open_table(table);
        let end = open.window.end;
        open.closed = watermark.closed(end);
        if open.closed {
            self.closed_to = self.closed_to.max(end);
            self.due = self.due.min(end.saturating_add(lateness));
        } else {
            self.due = self.due.min(end);
        }
    }

    /// The watermark has reached the end of a window.
    fn close<E>(
        &mut self,
        table: usize,
        watermark: Watermark,
        panes: &mut dyn Panes<Error = E>,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        let fires = self.spec.mode == Mode::Append && !matches!(self.spec.trigger, Trigger::Count(_));
        let open = self.open_table(table);
        open.closed = true;
        let (window, complete) = (open.window, open.complete);
        if !fires {
            return Ok(());
        }
        if complete {
            let rows = self.open_table(table).sorted_rows();
            return self.fire_rows(table, &rows, window, watermark, emit);
        }
        self.fire_from_both(table, window, watermark, panes, emit)
    }

    fn fire_boundary<E>(
        &mut self,
        instant: EventTime,
        end: EventTime,
        watermark: Watermark,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        let Some(rows) = self.boundaries.remove(&(instant, end)) else { return Ok(()) };
        let Some(&table) = self.by_end.get(&end) else { return Ok(()) };
        let Trigger::Early(interval) = self.spec.trigger else { return Ok(()) };
        let window = self.open_table(table).window;
        let rows = self.open_table(table).sort_by_key(rows.into_iter());
        self.fire_rows(table, &rows, window, watermark, emit)?;
        for row in rows {
            let next = instant.as_millis().checked_add(interval.as_millis()).map(EventTime::from_millis);
            let next = self.plan_boundary(table, row, next);
            let mut history = History::of(self.open_table(table).row(row));
            history.next_boundary = next;
            history.store(self.open_table(table).row_mut(row));
        }
        Ok(())
    }

    fn firing(&self, window: Window, watermark: Watermark) -> Firing<'_> {
        Firing {
            layout: &self.layout,
            fires_once: self.fires_once,
            accumulation: self.spec.accumulation,
            window,
            watermark,
        }
    }

    /// Emits rows of a table, given in key order, leaving out those without events since they were cleared.
    fn fire_rows<E>(
        &mut self,
        table: usize,
        rows: &[u32],
        window: Window,
        watermark: Watermark,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        let mut open = self.tables[table].take().expect("a firing table is open");
        let firing = self.firing(window, watermark);
        let filled: Vec<u32>;
        let mut rows = rows;
        if self.spec.accumulation == Accumulation::Discarding {
            filled = rows.iter().copied().filter(|&row| self.layout.rows(open.row(row)) > 0).collect();
            rows = &filled;
        }
        let emitted =
            if rows.is_empty() { Ok(()) } else { emit.results(self.index, &mut firing.table(&open, rows)) };
        if !self.fires_once {
            for &row in rows {
                firing.settle(open.row_mut(row));
            }
        }
        self.tables[table] = Some(open);
        emitted
    }

    /// Emits all panes of a window of which some are only in the state database, chunk by chunk in key order.
    fn fire_from_both<E>(
        &mut self,
        table: usize,
        window: Window,
        watermark: Watermark,
        panes: &mut dyn Panes<Error = E>,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        let mut open = self.tables[table].take().expect("a firing table is open");
        let resident = open.sorted_rows();
        let mut resident = resident.into_iter().peekable();
        let mut stored = RowBuffer::new(self.stride());
        let mut after: Option<Vec<u8>> = None;
        loop {
            stored.clear();
            panes.scan(self.index, window.end, after.as_deref(), SCAN_ROWS, &mut stored)?;
            let more = stored.len() == SCAN_ROWS;
            let last_key = stored.len().checked_sub(1).map(|last| stored.key(last).to_vec());
            let mut chunk = Chunk::new(self.stride());
            for index in 0..stored.len() {
                let key = stored.key(index);
                while let Some(row) = resident.next_if(|&row| open.key(row) < key) {
                    chunk.push(Some(row), open.key(row), open.row(row));
                }
                let twin = resident.next_if(|&row| open.key(row) == key);
                match twin {
                    Some(row) if !self.fires_once => chunk.push(Some(row), key, open.row(row)),
                    Some(row) => {
                        let mut merged = stored.row(index).to_vec();
                        self.layout.merge(&mut merged, open.row(row));
                        chunk.push(Some(row), key, &merged);
                    }
                    None => chunk.push(None, key, stored.row(index)),
                }
            }
            if !more {
                for row in resident.by_ref() {
                    chunk.push(Some(row), open.key(row), open.row(row));
                }
            }
            self.emit_chunk(chunk, &mut open, watermark, panes, emit)?;
            if !more {
                break;
            }
            after = last_key;
        }
        self.tables[table] = Some(open);
        Ok(())
    }

    /// Emits a chunk, and writes back what the firing changed in panes that may fire again.
    fn emit_chunk<E>(
        &self,
        mut chunk: Chunk,
        open: &mut PaneTable,
        watermark: Watermark,
        panes: &mut dyn Panes<Error = E>,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        let firing = self.firing(open.window, watermark);
        if self.spec.accumulation == Accumulation::Discarding {
            chunk.keep_filled(&self.layout);
        }
        if chunk.rows.is_empty() {
            return Ok(());
        }
        emit.results(self.index, &mut firing.buffer(&chunk.rows))?;
        if self.fires_once {
            return Ok(());
        }
        let mut changed = RowBuffer::new(self.stride());
        for (index, resident) in chunk.resident.iter().enumerate() {
            match resident {
                Some(row) => firing.settle(open.row_mut(*row)),
                None => {
                    firing.settle(chunk.rows.row_mut(index));
                    changed.push(chunk.rows.key(index), chunk.rows.row(index));
                }
            }
        }
        if changed.is_empty() { Ok(()) } else { panes.put(self.index, open.window.end, changed) }
    }

    fn forget_expired(&mut self, watermark: Watermark) {
        let lateness = self.spec.allowed_lateness;
        while let Some((&end, &table)) = self.by_end.first_key_value() {
            if end > self.closed_to || !watermark.expired(end, lateness) {
                break;
            }
            self.by_end.pop_first();
            self.vacant.push(table);
            self.recent = None;
            if !self.boundaries.is_empty() {
                self.boundaries.retain(|(_, window_end), _| *window_end != end);
            }
            if let Some(old) = self.tables[table].take()
                && self.spare.as_ref().is_none_or(|spare| spare.bytes() < old.bytes())
                && old.bytes() <= SPARE_BYTES_MAX
            {
                self.spare = Some(old);
            }
        }
    }
}

enum Action {
    Close(EventTime, usize),
    Boundary(EventTime, EventTime),
}

/// Rows about to be emitted together, each with the table row it stands for, if any.
struct Chunk {
    rows: RowBuffer,
    resident: Vec<Option<u32>>,
}

impl Chunk {
    fn new(stride: usize) -> Self {
        Self { rows: RowBuffer::new(stride), resident: Vec::new() }
    }

    fn push(&mut self, resident: Option<u32>, key: &[u8], row: &[u64]) {
        self.rows.push(key, row);
        self.resident.push(resident);
    }

    fn keep_filled(&mut self, layout: &Layout) {
        let mut filled = Self::new(self.rows.stride());
        for (index, &resident) in self.resident.iter().enumerate() {
            if layout.rows(self.rows.row(index)) > 0 {
                filled.rows.push(self.rows.key(index), self.rows.row(index));
                filled.resident.push(resident);
            }
        }
        *self = filled;
    }
}

/// The last instant inside a window ending at `end`.
fn last_instant(end: EventTime) -> EventTime {
    EventTime::from_millis(end.as_millis().saturating_sub(1))
}

/// The watermark that has passed `instant`.
fn instant_after(instant: EventTime) -> EventTime {
    EventTime::from_millis(instant.as_millis().saturating_add(1))
}

/// The first multiple of `interval` after `time`.
fn next_multiple(time: EventTime, interval: Span) -> Option<EventTime> {
    let (time, interval) = (time.as_millis(), interval.as_millis().max(1));
    time.checked_sub(time.rem_euclid(interval))?.checked_add(interval).map(EventTime::from_millis)
}
