//! Aggregation over aligned windows: every kind but sessions.
//!
//! Panes of open windows live in one table per *piece* of time: a window, or, where overlapping windows fire once
//! each, a slice that they share. This file places events and accumulates; `closing` fires and forgets, `spill` moves
//! panes out of memory and back.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::OpenWindow;
use crate::aggregate::Layout;
use crate::event_time::{EventTime, Watermark, Window};
use crate::operator::fire::History;
use crate::operator::step::FiringStep;
use crate::operator::table::{PaneTable, hash_keys};
use crate::operator::workers::Workers;
use crate::operator::{
    Advance, Emit, EventBatch, LateEvent, Marks, Mode, OperatorSpec, Panes, Repeat, TimeDomain,
};

/// Events whose places in the table are looked up ahead.
const WARMED_EVENTS: usize = 64;

/// A windowed aggregation over aligned windows.
///
/// As long as a piece's table is complete its rows are whole panes; once panes were moved to the state database, the
/// rows of an operator that fires once are what came since, and nothing is read until the window fires.
#[derive(Debug)]
pub(super) struct AlignedOperator {
    pub(super) index: usize,
    pub(super) spec: OperatorSpec,
    // With the history words of a pane that may fire more than once.
    pub(super) layout: Arc<Layout>,
    pub(super) fires_once: bool,
    // Windows overlap and each holds its own panes.
    replicates: bool,
    // Windows overlap and share the panes of their slices.
    pub(super) sliced: bool,
    pub(super) tables: Vec<Option<PaneTable>>,
    pub(super) vacant: Vec<usize>,
    pub(super) by_end: BTreeMap<EventTime, usize>,
    // How far the watermark has come here.
    pub(super) watermark: Watermark,
    pub(super) step: FiringStep,
    // What has expired under this is gone, also where the watermark alone would not say so.
    pub(super) forgotten: Watermark,
    // Every window up to this end is closed, every later one is not.
    pub(super) closed_to: EventTime,
    // Early firings that are due: (instant, window end) → rows of that window's table.
    pub(super) boundaries: BTreeMap<(EventTime, EventTime), Vec<u32>>,
    // Panes that changed and wait to be emitted together: window end → rows of its table.
    pub(super) changed: BTreeMap<EventTime, Vec<u32>>,
    gathers: bool,
    // The watermark at which something has to be done next. Derived, see `next_action`.
    pub(super) due: EventTime,
    // The wall clock, for windows that follow it and for triggers.
    pub(super) now: EventTime,
    // When changes that wait for the wall clock are emitted next: of open windows, of closed ones.
    pub(super) intervals: [Option<EventTime>; 2],
    // Table of the last event; most events fall into the same piece as the one before.
    pub(super) recent: Option<(Window, usize)>,
    pub(super) spare: Option<PaneTable>,
    // Where the slices of a window are put together.
    pub(super) scratch: Option<PaneTable>,
    pub(super) workers: Arc<Workers>,
    // Events of this batch are put aside and then shared among the workers.
    shared: bool,
    hashes: Vec<u64>,
    touched: Vec<usize>,
}

impl AlignedOperator {
    pub(super) fn new(index: usize, spec: OperatorSpec) -> Self {
        let layout = Arc::new(spec.layout());
        let fires_once = spec.fires_once();
        let sliced = spec.shares_slices();
        Self {
            index,
            layout,
            fires_once,
            replicates: spec.windows.overlap() && !sliced,
            sliced,
            gathers: spec.gathers_changes(),
            spec,
            tables: Vec::new(),
            vacant: Vec::new(),
            by_end: BTreeMap::new(),
            watermark: Watermark::None,
            step: FiringStep::default(),
            forgotten: Watermark::None,
            closed_to: EventTime::MIN,
            boundaries: BTreeMap::new(),
            changed: BTreeMap::new(),
            due: EventTime::MAX,
            now: EventTime::MIN,
            intervals: [None; 2],
            recent: None,
            spare: None,
            scratch: None,
            workers: Arc::new(Workers::one()),
            shared: false,
            hashes: Vec::new(),
            touched: Vec::new(),
        }
    }

    pub(super) fn bytes_per_pane(&self, key_bytes: usize) -> usize {
        PaneTable::bytes_per_row(self.layout.stride(), key_bytes)
    }

    #[inline]
    pub(super) fn reaches(&self, time: EventTime) -> bool {
        self.spec.time == TimeDomain::Processing
            || self
                .recent
                .is_some_and(|(piece, _)| piece.start <= time && time < piece.end && !self.replicates)
            || self.spec.windows.reaches(time)
    }

    pub(super) fn open_windows(&self) -> impl Iterator<Item = OpenWindow> + '_ {
        self.by_end.values().filter_map(|&table| self.tables[table].as_ref()).map(|table| OpenWindow {
            window: table.window,
            resident: table.len(),
            complete: table.complete,
        })
    }

    pub(super) fn resident_panes(&self) -> usize {
        self.tables.iter().flatten().map(PaneTable::len).sum()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let idle = self.spare.iter().chain(&self.scratch);
        self.tables.iter().flatten().chain(idle).map(PaneTable::bytes).sum()
    }

    /// Bytes that its tables are about to take.
    pub(super) fn growth_bytes(&self) -> usize {
        self.tables.iter().flatten().map(PaneTable::growth_bytes).sum()
    }

    /// The time by which an event is placed.
    #[inline]
    fn time_of(&self, batch: &EventBatch, index: usize) -> EventTime {
        match self.spec.time {
            TimeDomain::Event => EventTime::from_millis(batch.times[index]),
            TimeDomain::Processing => self.now,
        }
    }

    /// True when the watermark moves with each event.
    fn follows_events(&self) -> bool {
        self.spec.time == TimeDomain::Event && self.spec.advance == Advance::Event
    }

    /// Processes a batch, event by event in arrival order, each against the watermark it meets.
    pub(super) fn process<E>(
        &mut self,
        batch: &EventBatch,
        marks: &Marks,
        panes: &mut dyn Panes<Error = E>,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        let follows_events = self.follows_events();
        if !self.spec.reads(batch.source) {
            return if follows_events { self.pass_over(batch, marks, panes, emit) } else { Ok(()) };
        }
        let keys = &batch.keys[self.spec.key_column];
        hash_keys(keys, &mut self.hashes);
        self.shared = self.workers.count() > 1 && self.fires_once && !self.replicates;
        let mut skipped = marks.skipped();
        for index in 0..self.hashes.len() {
            if let [next, rest @ ..] = skipped
                && *next as usize == index
            {
                skipped = rest;
                self.follow(batch, marks, index, panes, emit)?;
                continue;
            }
            if index % WARMED_EVENTS == 0 && !self.shared {
                self.warm(&self.hashes[index..self.hashes.len().min(index + WARMED_EVENTS)]);
            }
            let time = self.time_of(batch, index);
            let before = if follows_events { marks.before(index) } else { self.watermark };
            let event = Event { batch, index, key: keys.get(index), hash: self.hashes[index], time, before };
            if self.replicates {
                self.place_in_each(event, panes, emit)?;
            } else {
                self.place(event, panes, emit)?;
            }
            self.follow(batch, marks, index, panes, emit)?;
        }
        self.settle(batch);
        if follows_events {
            self.note_watermark(marks.last());
        }
        Ok(())
    }

    /// Lets the watermark reach what event `index` has moved it to, whether or not the event counts here.
    #[inline]
    fn follow<E>(
        &mut self,
        batch: &EventBatch,
        marks: &Marks,
        index: usize,
        panes: &mut dyn Panes<Error = E>,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        let after = marks.after(index);
        if self.follows_events() && after > marks.before(index) && after.closed(self.due) {
            self.settle(batch);
            self.advance(after, panes, emit)?;
        }
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
        self.note_watermark(marks.last());
        Ok(())
    }

    /// The watermark after a batch, unless what it makes due waits for the next step.
    fn note_watermark(&mut self, last: Watermark) {
        if self.step.target() <= self.watermark {
            self.watermark = self.watermark.max(last);
        }
    }

    /// Adds an event to its only window, or to the slice that all its windows share.
    #[inline]
    fn place<E>(
        &mut self,
        event: Event<'_>,
        panes: &mut dyn Panes<Error = E>,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        if self.spec.advance == Advance::Batch && self.sliced {
            self.report_each_late(event, emit)?;
        }
        let Some(table) = self.table_for(event.time, event.before) else {
            return self.report_late(event, emit);
        };
        if self.shared {
            if self.open_table(table).put_aside(event.index as u32) {
                self.touched.push(table);
            }
            return Ok(());
        }
        let (row, new) = self.open_table(table).find_or_insert(event.key, event.hash);
        self.touch(table, row, event.index);
        if self.fires_once { Ok(()) } else { self.after_event(table, row, new, event, panes, emit) }
    }

    /// Adds an event to each of its windows that has not expired.
    fn place_in_each<E>(
        &mut self,
        event: Event<'_>,
        panes: &mut dyn Panes<Error = E>,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        let windows: Vec<Window> = self.spec.windows.windows_of(event.time).collect();
        let mut accepted = false;
        for window in windows {
            let Some(table) = self.table_of_window(window, event.before) else {
                if self.spec.advance == Advance::Batch {
                    self.emit_late(event, window, emit)?;
                }
                continue;
            };
            accepted = true;
            let (row, new) = self.open_table(table).find_or_insert(event.key, event.hash);
            self.touch(table, row, event.index);
            self.after_event(table, row, new, event, panes, emit)?;
        }
        if accepted || self.spec.advance == Advance::Batch { Ok(()) } else { self.report_late(event, emit) }
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

    /// The table of the piece that holds `time`, opened if need be; `None` when there is no such piece or the last
    /// window that holds it has expired.
    #[inline]
    fn table_for(&mut self, time: EventTime, watermark: Watermark) -> Option<usize> {
        if let Some((piece, table)) = self.recent
            && piece.start <= time
            && time < piece.end
        {
            // A table exists exactly until its piece is needed no more.
            return Some(table);
        }
        let piece = self.spec.windows.piece_of(time)?;
        self.table_of_piece(piece, self.spec.windows.last_holding(piece), watermark)
    }

    fn table_of_window(&mut self, window: Window, watermark: Watermark) -> Option<usize> {
        self.table_of_piece(window, window, watermark)
    }

    fn table_of_piece(&mut self, piece: Window, last: Window, watermark: Watermark) -> Option<usize> {
        let table = match self.by_end.get(&piece.end) {
            Some(&table) => table,
            None if self.expired(last.end, watermark) => return None,
            None => {
                let table = self.open(piece, true);
                self.note_closed(table, watermark);
                table
            }
        };
        self.recent = Some((piece, table));
        Some(table)
    }

    /// True when a window ending at `end` takes no more events.
    pub(super) fn expired(&self, end: EventTime, watermark: Watermark) -> bool {
        let expired = |by: Watermark| by.expired(end, self.spec.allowed_lateness);
        self.spec.mode != Mode::Complete && (expired(watermark) || expired(self.forgotten))
    }

    #[inline]
    pub(super) fn open_table(&mut self, table: usize) -> &mut PaneTable {
        self.tables[table].as_mut().expect("indexes in by_end and recent are of open tables")
    }

    pub(super) fn open(&mut self, piece: Window, complete: bool) -> usize {
        let table = match self.spare.take() {
            Some(spare) => spare.reused_for(piece, complete),
            None => PaneTable::new(piece, &self.layout, complete, self.workers.count()),
        };
        let at = self.vacant.pop().unwrap_or_else(|| {
            self.tables.push(None);
            self.tables.len() - 1
        });
        self.tables[at] = Some(table);
        self.by_end.insert(piece.end, at);
        at
    }

    #[inline]
    fn touch(&mut self, table: usize, row: u32, index: usize) {
        if self.open_table(table).touch(row, index as u32) {
            self.touched.push(table);
        }
    }

    /// Adds the events placed to their rows.
    pub(super) fn settle(&mut self, batch: &EventBatch) {
        for at in self.touched.drain(..) {
            if let Some(table) = &mut self.tables[at] {
                let keys = &batch.keys[self.spec.key_column];
                table.settle(batch, (keys, &self.hashes), &self.workers);
            }
        }
    }

    /// Reports an event that no window takes. Between windows it is late only when it is behind.
    #[cold]
    fn report_late<E>(&self, event: Event<'_>, emit: &mut dyn Emit<Error = E>) -> Result<(), E> {
        let last = self.spec.windows.piece_of(event.time).map(|piece| self.spec.windows.last_holding(piece));
        if let Some(window) = last {
            return self.emit_late(event, window, emit);
        }
        if self.spec.advance == Advance::Batch {
            return Ok(());
        }
        let moment = Window {
            start: event.time,
            end: EventTime::from_millis(event.time.as_millis().saturating_add(1)),
        };
        if self.expired(moment.end, event.before) { self.emit_late(event, moment, emit) } else { Ok(()) }
    }

    /// Reports, one by one, the windows of an event that are closed while others may not be.
    fn report_each_late<E>(&self, event: Event<'_>, emit: &mut dyn Emit<Error = E>) -> Result<(), E> {
        let Some(piece) = self.spec.windows.piece_of(event.time) else { return Ok(()) };
        let last = self.spec.windows.last_holding(piece);
        for window in self.spec.windows.windows_of(event.time) {
            // Of an event that is late for all its windows the last is reported with the event.
            if self.expired(window.end, event.before) && window != last {
                self.emit_late(event, window, emit)?;
            }
        }
        Ok(())
    }

    fn emit_late<E>(
        &self,
        event: Event<'_>,
        window: Window,
        emit: &mut dyn Emit<Error = E>,
    ) -> Result<(), E> {
        let limit = window.end.saturating_add(self.spec.allowed_lateness);
        let behind = |now: EventTime| now.as_millis().saturating_sub(limit.as_millis()).max(0);
        let late_by_ms = event.before.instant().map_or(i64::MAX, behind);
        let Event { batch, index, before, .. } = event;
        emit.late(self.index, LateEvent { batch, index, window, watermark: before, late_by_ms })
    }

    /// What one accepted event sets off in an operator whose panes may fire more than once.
    fn after_event<E>(
        &mut self,
        table: usize,
        row: u32,
        new: bool,
        event: Event<'_>,
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
        let mut history = History::of(self.open_table(table).words(row));
        history.since_fire = history.since_fire.saturating_add(1);
        let first_change = history.since_fire == 1;
        let repeat = if closed { self.spec.trigger.late() } else { self.spec.trigger.early() };
        let fires = match (self.spec.mode, repeat) {
            (Mode::Complete, _) => false,
            (Mode::Update, _) if self.gathers => false,
            (Mode::Update, _) | (Mode::Append, Repeat::Each) => true,
            (Mode::Append, Repeat::Count(n)) => history.since_fire >= n,
            (Mode::Append, Repeat::EventTime(interval)) => {
                // Counted from the first event, even when the first multiple after it is past the window.
                if history.next_boundary.is_none() {
                    history.next_boundary = super::next_multiple(event.time, interval);
                    self.plan_boundary(table, row, history.next_boundary);
                }
                false
            }
            (Mode::Append, Repeat::Never | Repeat::Interval(_)) => false,
        };
        history.store(self.open_table(table).words_mut(row));
        if fires {
            if self.spec.retractions && history.pane_index > 0 {
                // The event is not part of the row yet.
                self.take_back(table, row, window, event.before, emit)?;
            }
            self.settle(event.batch);
            return self.fire_rows(table, &[row], window, event.before, emit);
        }
        // What another rule fires does not wait for the clock.
        let waits = self.spec.mode != Mode::Append || matches!(repeat, Repeat::Interval(_));
        if self.gathers && waits && first_change {
            self.changed.entry(window.end).or_default().push(row);
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
}

/// One event on its way into its windows.
#[derive(Clone, Copy)]
struct Event<'a> {
    batch: &'a EventBatch,
    index: usize,
    key: &'a [u8],
    hash: u64,
    time: EventTime,
    // The watermark that it meets.
    before: Watermark,
}
