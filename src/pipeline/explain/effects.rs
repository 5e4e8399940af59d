//! What the operator does with one event, kept until its frame is written. Panes outside of memory there are none: all
//! that is explained is in memory.

use super::frame::{FiringFrame, TooLate};
use super::subject::Subject;
use crate::aggregate::RowMut;
use crate::error::{Error, Result};
use crate::event_time::{EventTime, Span};
use crate::inspect::Aggregates;
use crate::operator::{Emit, EventBatch, LateEvent, Panes, Rejection, ResultBlock, RowBuffer};

/// The results of one step: no more of them than there is room for frames.
#[derive(Debug, Default)]
pub(super) struct Firings {
    pub(super) kept: Vec<FiringFrame>,
    pub(super) left_out: u64,
}

impl Firings {
    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.left_out == 0
    }
}

/// Collects what comes of one step.
pub(super) struct Effects<'a> {
    subject: &'a Subject,
    columns: &'a [String],
    room: usize,
    pub(super) firings: Firings,
    pub(super) late: Vec<TooLate>,
}

impl<'a> Effects<'a> {
    /// `columns` are the names of the aggregates; no more results than `room` are kept.
    pub(super) fn new(subject: &'a Subject, columns: &'a [String], room: usize) -> Self {
        Self { subject, columns, room, firings: Firings::default(), late: Vec::new() }
    }
}

impl Emit for Effects<'_> {
    type Error = Error;

    fn results(&mut self, _operator: usize, block: &mut dyn ResultBlock) -> Result<()> {
        let (window, takes_back) = (block.window(), block.takes_back().is_some());
        if !self.subject.holds(window) {
            return Ok(());
        }
        while let Some(row) = block.next_row() {
            if self.firings.kept.len() >= self.room {
                self.firings.left_out += 1;
                continue;
            }
            let values = self.columns.iter().cloned().zip(row.values.iter().cloned());
            self.firings.kept.push(FiringFrame {
                window,
                key: self.subject.shown_key(row.key),
                pane: row.kind,
                pane_index: row.pane_index,
                takes_back,
                values: Aggregates(values.collect()),
            });
        }
        Ok(())
    }

    fn late(&mut self, _operator: usize, event: LateEvent<'_>) -> Result<()> {
        let by = event.watermark.instant().and_then(|_| Span::from_millis(event.late_by_ms));
        let limit = match (event.watermark.instant(), by) {
            (Some(now), Some(by)) => now.saturating_sub(by),
            _ => event.window.end,
        };
        self.late.push(TooLate { window: event.window, limit, by });
        Ok(())
    }

    fn rejected(&mut self, _batch: &EventBatch, _index: usize, _rejection: Rejection) -> Result<()> {
        // The marks say so already.
        Ok(())
    }
}

/// Nothing outside of memory.
pub(in crate::pipeline) struct NoPanes;

impl Panes for NoPanes {
    type Error = Error;

    fn load(&mut self, _operator: usize, _end: EventTime, _key: &[u8], _row: RowMut<'_>) -> Result<bool> {
        Ok(false)
    }

    fn scan(
        &mut self,
        _operator: usize,
        _end: EventTime,
        _after: Option<&[u8]>,
        _limit: usize,
        _rows: &mut RowBuffer,
    ) -> Result<()> {
        Ok(())
    }

    fn put(&mut self, _operator: usize, _end: EventTime, _rows: RowBuffer) -> Result<()> {
        Ok(())
    }
}
