//! The frames as they come about: records of no concern folded together, windows followed from opening to expiry, and
//! no more frames kept than were asked for.
//!
//! Knows windows and watermarks, no source and no operator.

use std::collections::BTreeMap;

use super::effects::Firings;
use super::frame::{Counts, Frame, OthersFrame, What};
use crate::event_time::{EventTime, Span, Watermark, Window};
use crate::operator::{Mode, OperatorSpec, PaneKind};

/// The frames so far.
#[derive(Debug)]
pub(super) struct Timeline {
    limit: usize,
    pub(super) frames: Vec<Frame>,
    pub(super) left_out: u64,
    pub(super) counts: Counts,
    fold: Option<(OthersFrame, Watermark, Watermark)>,
    // Windows that were seen and have not expired, by (end, start), and whether they are closed. As many as the
    // operator has open.
    windows: BTreeMap<(EventTime, EventTime), bool>,
    allowed_lateness: Span,
    // In complete mode closing a window changes nothing.
    closes: bool,
}

/// A record that is folded with others.
#[derive(Clone, Copy, Debug)]
pub(super) enum Other {
    Event,
    Rejected,
    Filtered,
    Duplicate,
}

impl Timeline {
    pub(super) fn new(spec: &OperatorSpec, limit: usize) -> Self {
        Self {
            limit,
            frames: Vec::new(),
            left_out: 0,
            counts: Counts::default(),
            fold: None,
            windows: BTreeMap::new(),
            allowed_lateness: spec.allowed_lateness,
            closes: spec.mode != Mode::Complete,
        }
    }

    /// How many more frames are kept.
    pub(super) fn room(&self) -> usize {
        self.limit.saturating_sub(self.frames.len())
    }

    /// Adds what happened while the watermark went from `before` to `after`.
    pub(super) fn push(&mut self, what: What, before: Watermark, after: Watermark) {
        self.unfold();
        self.keep(Frame { what, watermark_before: before, watermark_after: after });
    }

    fn keep(&mut self, frame: Frame) {
        if self.frames.len() < self.limit {
            self.frames.push(frame);
        } else {
            self.left_out += 1;
        }
    }

    /// Adds a record of no concern.
    pub(super) fn fold(&mut self, other: Other, before: Watermark, after: Watermark) {
        let (counts, _, reached) = self.fold.get_or_insert((OthersFrame::default(), before, after));
        match other {
            Other::Event => counts.events += 1,
            Other::Rejected => counts.rejected += 1,
            Other::Filtered => counts.filtered += 1,
            Other::Duplicate => counts.duplicates += 1,
        }
        *reached = after;
    }

    /// Ends a row of records of no concern.
    pub(super) fn unfold(&mut self) {
        if let Some((others, before, after)) = self.fold.take() {
            let what = What::Others(others);
            self.keep(Frame { what, watermark_before: before, watermark_after: after });
        }
    }

    /// Follows a window; `joined` are sessions that it takes the place of.
    pub(super) fn follow(&mut self, window: Window, joined: &[Window], watermark: Watermark) {
        for gone in joined.iter().filter(|gone| **gone != window) {
            self.windows.remove(&(gone.end, gone.start));
        }
        self.windows.entry((window.end, window.start)).or_insert_with(|| watermark.closed(window.end));
    }

    /// True when `watermark` closes or expires a window that is followed.
    pub(super) fn is_due(&self, watermark: Watermark) -> bool {
        let mut reached = self.windows.iter().take_while(|((end, _), _)| watermark.closed(*end));
        let expired = |end| watermark.expired(end, self.allowed_lateness);
        self.closes && reached.any(|((end, _), closed)| !closed || expired(*end))
    }

    /// Adds results that were emitted, and the windows that `watermark` has closed and expired. A window is closed
    /// before it fires on time, and expires after its last result.
    pub(super) fn pass(&mut self, watermark: Watermark, firings: Firings) {
        self.left_out += firings.left_out;
        self.counts.firings += firings.left_out;
        for firing in firings.kept {
            if firing.pane != PaneKind::Early {
                self.close(firing.window, watermark);
            }
            self.counts.firings += 1;
            self.push(What::Firing(firing), watermark, watermark);
        }
        if !self.is_due(watermark) {
            return;
        }
        let reached: Vec<Window> = self
            .windows
            .keys()
            .take_while(|(end, _)| watermark.closed(*end))
            .map(|&(end, start)| Window { start, end })
            .collect();
        reached.iter().for_each(|&window| self.close(window, watermark));
        for window in reached {
            if !watermark.expired(window.end, self.allowed_lateness) {
                continue;
            }
            self.windows.remove(&(window.end, window.start));
            if self.allowed_lateness > Span::ZERO {
                let limit = window.end.saturating_add(self.allowed_lateness);
                self.push(What::Expired { window, limit }, watermark, watermark);
            }
        }
    }

    fn close(&mut self, window: Window, watermark: Watermark) {
        match self.windows.get_mut(&(window.end, window.start)) {
            Some(closed) if !*closed && self.closes => *closed = true,
            _ => return,
        }
        self.counts.closed += 1;
        let expired = self.allowed_lateness == Span::ZERO;
        self.push(What::Closed { window, expired }, watermark, watermark);
    }

    /// The first window to end that is not closed, and how many more there are.
    pub(super) fn first_open(&self) -> Option<(Window, u64)> {
        let mut open = self.windows.iter().filter(|(_, closed)| !**closed);
        let (&(end, start), _) = open.next()?;
        Some((Window { start, end }, open.count() as u64))
    }
}
