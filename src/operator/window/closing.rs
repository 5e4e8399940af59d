//! What time does to aligned windows: the watermark closes, fires and expires them, the wall clock emits what waits.

use std::ops::Bound;
use std::sync::Arc;

use super::aligned::AlignedOperator;
use super::cursor::Cursor;
use super::{instant_after, last_instant};
use crate::aggregate::{Layout, RowRef};
use crate::event_time::{EventTime, Span, Watermark, Window};
use crate::operator::fire::{Firing, History};
use crate::operator::table::{PaneTable, key_hash};
use crate::operator::{Accumulation, Emit, Mode, Panes, Repeat, RowBuffer, RowKind, TimeDomain, Trigger};

/// Rows read from the state database and emitted in one go.
const SCAN_ROWS: usize = 8_192;
/// Rows read at once for one of many slices.
const SCAN_ROWS_MIN: usize = 256;
/// An emptied table is kept for the next window up to this many bytes.
const SPARE_BYTES_MAX: usize = 256 << 20;

/// Which panes of a window are emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// All.
    All,
    /// Those that took events since they fired.
    Changed,
}

/// Something that a watermark makes due.
enum Action {
    Close(Window),
    Boundary(EventTime, EventTime),
    Expire,
}

impl AlignedOperator {
    /// Lets the watermark reach `watermark`: fires what is due, in the order of event time, and forgets what
    /// expired. Pauses at an instant of event time after [`super::WindowOperator::set_step_rows`] rows.
    pub(super) fn advance<E>(
        &mut self,
        watermark: Watermark,
        panes: &mut dyn Panes<Error = E>,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        let target = self.step.aim(watermark);
        if target <= self.watermark {
            return Ok(());
        }
        if self.spec.mode == Mode::Complete {
            self.watermark = target;
            return if target == Watermark::End { self.emit_everything(target, panes, emit) } else { Ok(()) };
        }
        while let Some((when, action)) = self.next_action(target) {
            if let Some(reached) = self.step.pause_before(when) {
                // All that was due up to here is done, and nothing that comes after it.
                self.reach(reached);
                return Ok(());
            }
            match action {
                Action::Close(window) => {
                    self.closed_to = window.end;
                    self.close(window, target, panes, emit)?;
                }
                Action::Boundary(instant, end) => self.fire_boundary(instant, end, target, emit)?,
                Action::Expire => self.forget_first(target, panes, emit)?,
            }
        }
        self.reach(self.step.done());
        Ok(())
    }

    /// Nothing is due any more up to `watermark`.
    fn reach(&mut self, watermark: Watermark) {
        self.watermark = self.watermark.max(watermark);
        self.note_passed(self.watermark);
        self.due = self.next_due();
    }

    /// True when a watermark makes several instants due, with more rows than fit into one step, after `events` that are
    /// still to come in.
    pub(super) fn surges(&self, watermark: Watermark, events: usize) -> bool {
        if events > self.step.rows_max() {
            // They may all open windows of their own.
            return true;
        }
        if !watermark.closed(self.due) || self.spec.mode == Mode::Complete {
            return false;
        }
        let (mut instants, mut rows) = (usize::from(events > 0), events);
        for (&end, &table) in &self.by_end {
            if !watermark.closed(end) {
                break;
            }
            let Some(open) = &self.tables[table] else { continue };
            let windows = self.unclosed_windows(open.window, watermark);
            instants += windows;
            // How many panes of the window are in the state database is not known here.
            let panes = if open.complete { open.len() } else { self.step.rows_max() };
            rows = rows.saturating_add(panes.saturating_mul(windows));
            if instants > 1 && rows > self.step.rows_max() {
                return true;
            }
        }
        false
    }

    /// How many windows that hold a piece `watermark` closes; no more than three are counted.
    fn unclosed_windows(&self, piece: Window, watermark: Watermark) -> usize {
        if !self.sliced {
            return usize::from(piece.end > self.closed_to);
        }
        let windows = &self.spec.windows;
        let first = windows.next_holding(piece, self.closed_to);
        let holding = std::iter::successors(first, |window| windows.next_holding(piece, window.end));
        holding.take(3).take_while(|window| watermark.closed(window.end)).count()
    }

    /// Every window that ends up to `watermark` has been closed, also those that nobody opened.
    pub(super) fn note_passed(&mut self, watermark: Watermark) {
        if let Some(instant) = watermark.instant() {
            self.closed_to = self.closed_to.max(instant);
        }
    }

    /// Lets the wall clock reach `now`: windows that follow it close, and changes that wait for it are emitted.
    pub(super) fn tick<E>(
        &mut self,
        now: EventTime,
        panes: &mut dyn Panes<Error = E>,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        self.now = self.now.max(now);
        if self.spec.time == TimeDomain::Processing {
            self.advance(Watermark::At(self.now), panes, emit)?;
        }
        let (early, late) = (self.spec.trigger.early(), self.spec.trigger.late());
        for (at, repeat) in [early, late].into_iter().enumerate() {
            let Repeat::Interval(interval) = repeat else { continue };
            let due = self.intervals[at].is_some_and(|due| self.now >= due);
            if due || self.intervals[at].is_none() {
                self.intervals[at] = super::next_multiple(self.now, interval);
            }
            if !due {
                continue;
            }
            match self.spec.mode {
                Mode::Complete if at == 0 => self.emit_everything(self.watermark, panes, emit)?,
                Mode::Complete => {}
                Mode::Update if at == 0 => self.emit_changed(self.watermark, |_| true, emit)?,
                Mode::Update => {}
                Mode::Append => {
                    let watermark = self.watermark;
                    self.emit_changed(watermark, |end| watermark.closed(end) == (at == 1), emit)?;
                }
            }
        }
        Ok(())
    }

    /// Ends a batch: emits what it changed, then lets the watermark reach `watermark`.
    pub(super) fn end_batch<E>(
        &mut self,
        watermark: Watermark,
        panes: &mut dyn Panes<Error = E>,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        match self.spec.mode {
            Mode::Append => {}
            Mode::Update => self.emit_changed(watermark, |_| true, emit)?,
            Mode::Complete => self.emit_everything(watermark, panes, emit)?,
        }
        self.advance(watermark, panes, emit)
    }

    /// Emits the panes that changed, of windows whose end passes `of`.
    fn emit_changed<E>(
        &mut self,
        watermark: Watermark,
        of: impl Fn(EventTime) -> bool,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        let ends: Vec<EventTime> = self.changed.keys().copied().filter(|&end| of(end)).collect();
        for end in ends {
            self.emit_changed_of(end, watermark, emit)?;
        }
        Ok(())
    }

    fn emit_changed_of<E>(
        &mut self,
        end: EventTime,
        watermark: Watermark,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        let Some(rows) = self.changed.remove(&end) else { return Ok(()) };
        let Some(&table) = self.by_end.get(&end) else { return Ok(()) };
        let open = self.open_table(table);
        let window = open.window;
        let waiting = rows.into_iter().filter(|&row| History::of(open.words(row)).since_fire > 0);
        let rows = open.sort_by_key(waiting);
        self.fire_rows(table, &rows, window, watermark, emit)
    }

    /// Emits all panes of all windows.
    fn emit_everything<E>(
        &mut self,
        watermark: Watermark,
        panes: &mut dyn Panes<Error = E>,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        let tables: Vec<usize> = self.by_end.values().copied().collect();
        for table in tables {
            let window = self.open_table(table).window;
            self.fire_window(&[table], window, watermark, Which::All, panes, emit)?;
        }
        Ok(())
    }

    /// The earliest thing that `watermark` makes due, and when. At one instant a closing comes before an early firing,
    /// and what expires goes last.
    fn next_action(&self, watermark: Watermark) -> Option<(EventTime, Action)> {
        let close = self.first_unclosed().filter(|window| watermark.closed(window.end));
        let close = close.map(|window| (window.end, Action::Close(window)));
        let boundary = self.boundaries.keys().next().copied();
        let boundary = boundary.filter(|(instant, _)| watermark.closed(instant_after(*instant)));
        let boundary =
            boundary.map(|(instant, end)| (instant_after(instant), Action::Boundary(instant, end)));
        let lateness = self.spec.allowed_lateness;
        let expiry = self
            .first_piece()
            .filter(|(_, last)| last.end <= self.closed_to && watermark.expired(last.end, lateness));
        let expiry = expiry.map(|(_, last)| (last.end.saturating_add(lateness), Action::Expire));
        // Of equals the first.
        close.into_iter().chain(boundary).chain(expiry).min_by_key(|(when, _)| *when)
    }

    fn first_unclosed(&self) -> Option<Window> {
        if self.sliced {
            // The first window to close that holds a slice does not come earlier for a later slice.
            let mut pieces = self.by_end.values().filter_map(|&table| self.tables[table].as_ref());
            return pieces.find_map(|open| self.spec.windows.next_holding(open.window, self.closed_to));
        }
        let later = (Bound::Excluded(self.closed_to), Bound::Unbounded);
        let (_, &table) = self.by_end.range(later).next()?;
        self.tables[table].as_ref().map(|open| open.window)
    }

    /// The first piece with the last window that holds it.
    fn first_piece(&self) -> Option<(EventTime, Window)> {
        let (&end, &table) = self.by_end.first_key_value()?;
        let piece = self.tables[table].as_ref()?.window;
        Some((end, if self.sliced { self.spec.windows.last_holding(piece) } else { piece }))
    }

    /// The earliest watermark at which `advance` has something to do.
    fn next_due(&self) -> EventTime {
        let lateness = self.spec.allowed_lateness;
        let close = self.first_unclosed().map(|window| window.end);
        let first = self.first_piece().filter(|(_, last)| last.end <= self.closed_to);
        let expiry = first.map(|(_, last)| last.end.saturating_add(lateness));
        let boundary = self.boundaries.keys().next().map(|(instant, _)| instant_after(*instant));
        close.into_iter().chain(expiry).chain(boundary).min().unwrap_or(EventTime::MAX)
    }

    /// Tells a table just opened whether its window is closed already, and plans what is due for it.
    pub(super) fn note_closed(&mut self, table: usize, watermark: Watermark) {
        let lateness = self.spec.allowed_lateness;
        self.note_passed(watermark);
        let open = self.open_table(table);
        let piece = open.window;
        open.closed = watermark.closed(piece.end);
        let closed = open.closed;
        let due = if self.sliced {
            self.spec.windows.next_holding(piece, self.closed_to).map_or(piece.end, |window| window.end)
        } else if closed {
            piece.end.saturating_add(lateness)
        } else {
            piece.end
        };
        if closed && !self.sliced {
            self.closed_to = self.closed_to.max(piece.end);
        }
        self.due = self.due.min(due);
    }

    /// The watermark has reached the end of a window.
    fn close<E>(
        &mut self,
        window: Window,
        watermark: Watermark,
        panes: &mut dyn Panes<Error = E>,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        if self.sliced {
            let pieces = self.by_end.range((Bound::Excluded(window.start), Bound::Included(window.end)));
            let tables: Vec<usize> = pieces.map(|(_, &table)| table).collect();
            return self.fire_window(&tables, window, watermark, Which::All, panes, emit);
        }
        let Some(&table) = self.by_end.get(&window.end) else { return Ok(()) };
        self.open_table(table).closed = true;
        match self.spec.mode {
            Mode::Append if self.spec.trigger.on_time() => {
                self.changed.remove(&window.end);
                self.fire_window(&[table], window, watermark, Which::All, panes, emit)
            }
            Mode::Update => self.emit_changed_of(window.end, watermark, emit),
            Mode::Append | Mode::Complete => Ok(()),
        }
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
        let Repeat::EventTime(interval) = self.spec.trigger.early() else { return Ok(()) };
        let window = self.open_table(table).window;
        let rows = self.open_table(table).sort_by_key(rows.into_iter());
        self.fire_rows(table, &rows, window, watermark, emit)?;
        for row in rows {
            let next = instant.as_millis().checked_add(interval.as_millis()).map(EventTime::from_millis);
            self.plan_boundary(table, row, next);
            let mut history = History::of(self.open_table(table).words(row));
            history.next_boundary = next;
            history.store(self.open_table(table).words_mut(row));
        }
        Ok(())
    }

    /// Registers an early firing at `instant`, unless the window's own end comes first.
    pub(super) fn plan_boundary(&mut self, table: usize, row: u32, instant: Option<EventTime>) {
        let end = self.open_table(table).window.end;
        let Some(instant) = instant.filter(|instant| last_instant(end) > *instant) else { return };
        self.boundaries.entry((instant, end)).or_default().push(row);
        self.due = self.due.min(instant_after(instant));
    }

    fn firing(&self, window: Window, watermark: Watermark) -> Firing<'_> {
        Firing {
            layout: &self.layout,
            fires_once: self.fires_once,
            accumulation: self.spec.accumulation,
            window,
            watermark,
            takes_back: None,
        }
    }

    /// Takes back the last result of a pane, whose row holds what it was computed from.
    pub(super) fn take_back<E>(
        &self,
        table: usize,
        row: u32,
        window: Window,
        watermark: Watermark,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        let Some(open) = &self.tables[table] else { return Ok(()) };
        let firing = Firing { takes_back: Some(RowKind::UpdateBefore), ..self.firing(window, watermark) };
        emit.results(self.index, &mut firing.table(open, &[row]))
    }

    /// Emits rows of a table, given in key order, leaving out those without events since they were cleared.
    pub(super) fn fire_rows<E>(
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
            filled = rows.iter().copied().filter(|&row| open.row(row).events() > 0).collect();
            rows = &filled;
        }
        let emitted =
            if rows.is_empty() { Ok(()) } else { emit.results(self.index, &mut firing.table(&open, rows)) };
        let count = rows.len();
        if !self.fires_once {
            for &row in rows {
                firing.settle(open.row_mut(row));
            }
        }
        self.tables[table] = Some(open);
        self.step.count(count);
        emitted
    }

    /// Emits panes of a window that is made of the pieces in `tables`, in key order.
    fn fire_window<E>(
        &mut self,
        tables: &[usize],
        window: Window,
        watermark: Watermark,
        which: Which,
        panes: &mut dyn Panes<Error = E>,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        let complete = tables.iter().all(|&table| self.open_table(table).complete);
        match tables {
            [] => Ok(()),
            &[table] if complete => {
                let workers = Arc::clone(&self.workers);
                let open = self.open_table(table);
                let rows = match which {
                    Which::All => open.sorted_rows(&workers),
                    Which::Changed => open
                        .sort_by_key(open.rows().filter(|&row| History::of(open.words(row)).since_fire > 0)),
                };
                self.fire_rows(table, &rows, window, watermark, emit)
            }
            _ if complete => self.fire_slices(tables, window, watermark, emit),
            _ => self.fire_from_both(tables, window, watermark, which, panes, emit),
        }
    }

    /// Emits a window whose slices are all in memory.
    fn fire_slices<E>(
        &mut self,
        tables: &[usize],
        window: Window,
        watermark: Watermark,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        let mut whole = match self.scratch.take() {
            Some(scratch) => scratch.reused_for(window, true),
            None => PaneTable::new(window, &self.layout, true, self.workers.count()),
        };
        for slice in tables.iter().filter_map(|&table| self.tables[table].as_ref()) {
            for row in slice.rows() {
                let key = slice.key(row);
                let (into, _) = whole.find_or_insert(key, key_hash(key));
                whole.row_mut(into).merge(slice.row(row));
            }
        }
        let rows = whole.sorted_rows(&self.workers);
        let firing = self.firing(window, watermark);
        let emitted = match rows.is_empty() {
            true => Ok(()),
            false => emit.results(self.index, &mut firing.table(&whole, &rows)),
        };
        self.step.count(rows.len());
        if whole.bytes() <= SPARE_BYTES_MAX {
            self.scratch = Some(whole);
        }
        emitted
    }

    /// Emits panes of a window of which some are only in the state database, chunk by chunk in key order.
    fn fire_from_both<E>(
        &mut self,
        tables: &[usize],
        window: Window,
        watermark: Watermark,
        which: Which,
        panes: &mut dyn Panes<Error = E>,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        let limit = (SCAN_ROWS / tables.len().max(1)).max(SCAN_ROWS_MIN);
        let (layout, workers) = (Arc::clone(&self.layout), Arc::clone(&self.workers));
        let mut cursors: Vec<Cursor> = tables
            .iter()
            .map(|&table| Cursor::new(table, self.open_table(table), &layout, limit, &workers))
            .collect();
        let mut key = Vec::new();
        let mut chunk = Chunk::new(&layout);
        while self.next_key(&mut cursors, &mut key, panes)? {
            let resident = self.put_together(&mut cursors, &key, &mut chunk.rows);
            if which == Which::All || History::of(chunk.rows.row(chunk.rows.len() - 1).words()).since_fire > 0
            {
                chunk.resident.push(resident);
            } else {
                chunk.rows.pop();
            }
            if chunk.rows.len() >= SCAN_ROWS {
                let full = std::mem::replace(&mut chunk, Chunk::new(&layout));
                self.emit_chunk(full, tables, window, watermark, panes, emit)?;
            }
        }
        self.emit_chunk(chunk, tables, window, watermark, panes, emit)
    }

    /// The smallest key that no cursor has passed. False at the end.
    fn next_key<E>(
        &self,
        cursors: &mut [Cursor],
        key: &mut Vec<u8>,
        panes: &mut dyn Panes<Error = E>,
    ) -> Result<bool, E> {
        let mut found = false;
        for cursor in cursors {
            cursor.refill(self.index, panes)?;
            let Some(open) = &self.tables[cursor.table] else { continue };
            if let Some(head) = cursor.head(open)
                && (!found || head < key.as_slice())
            {
                found = true;
                key.clear();
                key.extend_from_slice(head);
            }
        }
        Ok(found)
    }

    /// Appends the pane of `key` to `rows`, from all places where the cursors find parts of it. Returns its row in
    /// memory, if it has one.
    fn put_together(&self, cursors: &mut [Cursor], key: &[u8], rows: &mut RowBuffer) -> Option<u32> {
        rows.push_identity(key);
        let at = rows.len() - 1;
        let mut resident = None;
        for cursor in cursors {
            let Some(open) = &self.tables[cursor.table] else { continue };
            if let Some(stored) = cursor.take_stored(key) {
                if self.fires_once { rows.row_mut(at).merge(stored) } else { rows.row_mut(at).assign(stored) }
            }
            if let Some(row) = cursor.take_resident(key, open) {
                // A pane that may fire more than once was read before it changed: the row is all of it.
                if self.fires_once {
                    rows.row_mut(at).merge(open.row(row))
                } else {
                    rows.row_mut(at).assign(open.row(row))
                }
                resident = Some(row);
            }
        }
        resident
    }

    /// Emits a chunk, and writes back what the firing changed in panes that may fire again.
    fn emit_chunk<E>(
        &mut self,
        mut chunk: Chunk,
        tables: &[usize],
        window: Window,
        watermark: Watermark,
        panes: &mut dyn Panes<Error = E>,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        if self.spec.accumulation == Accumulation::Discarding {
            chunk.keep_filled();
        }
        if chunk.rows.is_empty() {
            return Ok(());
        }
        emit.results(self.index, &mut self.firing(window, watermark).buffer(&chunk.rows))?;
        self.step.count(chunk.rows.len());
        let &[table] = tables else { return Ok(()) };
        if self.fires_once {
            return Ok(());
        }
        let mut open = self.tables[table].take().expect("a firing table is open");
        let firing = self.firing(window, watermark);
        let mut changed = RowBuffer::new(&self.layout);
        for (index, resident) in chunk.resident.iter().enumerate() {
            match resident {
                Some(row) => firing.settle(open.row_mut(*row)),
                None => {
                    firing.settle(chunk.rows.row_mut(index));
                    changed.push(chunk.rows.key(index), chunk.rows.row(index));
                }
            }
        }
        self.tables[table] = Some(open);
        if changed.is_empty() { Ok(()) } else { panes.put(self.index, window.end, changed) }
    }

    /// True when accepted events may wait to be emitted until their window expires.
    fn emits_at_expiry(&self) -> bool {
        let waits = match self.spec.mode {
            Mode::Append => {
                !matches!(self.spec.trigger, Trigger::Count(_)) && self.spec.trigger.late() != Repeat::Each
            }
            Mode::Update => self.spec.gathers_changes(),
            Mode::Complete => false,
        };
        waits && self.spec.allowed_lateness > Span::ZERO
    }

    /// Forgets the first piece, whose last window has expired.
    fn forget_first<E>(
        &mut self,
        watermark: Watermark,
        panes: &mut dyn Panes<Error = E>,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        let Some((end, last)) = self.first_piece() else { return Ok(()) };
        let Some(&table) = self.by_end.get(&end) else { return Ok(()) };
        if self.emits_at_expiry() {
            self.fire_window(&[table], last, watermark, Which::Changed, panes, emit)?;
        }
        self.changed.remove(&end);
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
        Ok(())
    }
}

/// Rows about to be emitted together, each with the table row it stands for, if any.
struct Chunk {
    rows: RowBuffer,
    resident: Vec<Option<u32>>,
}

impl Chunk {
    fn new(layout: &Arc<Layout>) -> Self {
        Self { rows: RowBuffer::new(layout), resident: Vec::new() }
    }

    fn push(&mut self, resident: Option<u32>, key: &[u8], row: RowRef<'_>) {
        self.rows.push(key, row);
        self.resident.push(resident);
    }

    fn keep_filled(&mut self) {
        let mut filled = Self::new(self.rows.layout());
        for (index, &resident) in self.resident.iter().enumerate() {
            if self.rows.row(index).events() > 0 {
                filled.push(resident, self.rows.key(index), self.rows.row(index));
            }
        }
        *self = filled;
    }
}
