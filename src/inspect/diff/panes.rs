//! The panes of one operator in two checkpoints, side by side.

use std::cmp::Ordering;

use serde::Serialize;

use super::moved::WatermarkMoved;
use super::{DiffOptions, OperatorDiff};
use crate::checkpoint::Manifest;
use crate::codec::PaneKey;
use crate::error::Result;
use crate::event_time::{EventTime, Window};
use crate::inspect::scan::{Counter, Watcher};
use crate::inspect::shape::{OpenState, Shape};
use crate::inspect::status::{Standing, WindowStatus};
use crate::inspect::text::as_text;
use crate::operator::RowBuffer;
use crate::state::{FamilyId, PaneScan, Stored};

/// Panes in two checkpoints; expired ones count as gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PaneCounts {
    /// In the earlier one.
    pub before: u64,
    /// In the later one.
    pub after: u64,
    /// In the later one alone.
    pub appeared: u64,
    /// In both, and not the same.
    pub changed: u64,
    /// In both, and the same.
    pub same: u64,
    /// In the earlier one alone.
    pub gone: u64,
    /// Events in panes of the earlier one.
    pub events_before: u64,
    /// Events in panes of the later one.
    pub events_after: u64,
}

/// A window in which something changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WindowDiff {
    /// First instant inside.
    #[serde(serialize_with = "as_text")]
    pub start: EventTime,
    /// First instant after.
    #[serde(serialize_with = "as_text")]
    pub end: EventTime,
    /// `appeared`, `changed` or `gone`.
    pub change: &'static str,
    /// Where it stands against the watermark of the earlier checkpoint.
    pub status_before: WindowStatus,
    /// Where it stands against that of the later one.
    pub status_after: WindowStatus,
    /// Its panes.
    pub panes: PaneCounts,
}

/// One operator in one checkpoint.
pub(super) struct Side<'a> {
    pub(super) open: &'a OpenState,
    pub(super) manifest: &'a Manifest,
    pub(super) index: usize,
}

/// One operator in both.
pub(super) struct Sides<'a> {
    pub(super) before: Side<'a>,
    pub(super) after: Side<'a>,
}

/// A pane of one side, copied out of its scan.
#[derive(Default)]
struct Head {
    end: Option<EventTime>,
    key: Vec<u8>,
    value: Vec<u8>,
    piece: Option<Window>,
    events: u64,
}

/// The live panes of one side, one after the other.
struct Stream<'a> {
    shape: &'a Shape,
    standing: Standing,
    scan: PaneScan<'a>,
    key: Option<&'a [u8]>,
    row: RowBuffer,
    head: Head,
}

impl<'a> Side<'a> {
    fn standing(&self) -> Standing {
        self.open.standing(self.manifest, self.index)
    }

    fn stream(&self, key: Option<&'a [u8]>) -> Result<Stream<'a>> {
        let shape = &self.open.shapes[self.index];
        Ok(Stream {
            shape,
            standing: self.standing(),
            scan: self.open.state.scan(FamilyId(self.index), ..)?,
            key,
            row: shape.row(),
            head: Head::default(),
        })
    }
}

impl Stream<'_> {
    /// Goes on to the next live pane.
    fn next(&mut self, counter: &mut Counter<'_>) -> Result<()> {
        while let Some((PaneKey { end, key }, stored)) = self.scan.next_pane()? {
            counter.count();
            if self.key.is_some_and(|asked| asked != key) {
                continue;
            }
            let events = self.shape.read(stored, &mut self.row).unwrap_or(0);
            let piece = self.shape.window(end, &self.row);
            if self.standing.status_of(self.shape.spec(), piece) == WindowStatus::Expired {
                continue;
            }
            let (Stored::Pane(value) | Stored::Damaged(value)) = stored;
            let head = &mut self.head;
            (head.end, head.piece, head.events) = (Some(end), Some(piece), events);
            head.key.clear();
            head.key.extend_from_slice(key);
            head.value.clear();
            head.value.extend_from_slice(value);
            return Ok(());
        }
        self.head.end = None;
        Ok(())
    }
}

impl Sides<'_> {
    pub(super) fn compare(&self, options: &DiffOptions, watcher: Watcher<'_>) -> Result<OperatorDiff> {
        let shape = &self.after.open.shapes[self.after.index];
        let (old, new) = (self.before.standing(), self.after.standing());
        let state = |side: &Side<'_>| side.manifest.operators[side.index].definition.clone();
        let mut windows = Windows::new(shape, old, new, options.limit);
        let key = options.key.as_ref().map(|key| key.to_stored());
        let mut left = self.before.stream(key.as_deref())?;
        let mut right = self.after.stream(key.as_deref())?;
        let mut counter = Counter::new(self.after.manifest, watcher);
        left.next(&mut counter)?;
        right.next(&mut counter)?;
        loop {
            match order(&left.head, &right.head) {
                None => break,
                Some(Ordering::Less) => {
                    windows.add(Some(&left.head), None);
                    left.next(&mut counter)?;
                }
                Some(Ordering::Greater) => {
                    windows.add(None, Some(&right.head));
                    right.next(&mut counter)?;
                }
                Some(Ordering::Equal) => {
                    windows.add(Some(&left.head), Some(&right.head));
                    left.next(&mut counter)?;
                    right.next(&mut counter)?;
                }
            }
        }
        windows.close();
        Ok(OperatorDiff {
            name: shape.spec().name.clone(),
            key: shape.spec().key.clone(),
            fired: WatermarkMoved::between(old.fired, new.fired),
            definition_changed: state(&self.before) != state(&self.after),
            panes: windows.totals,
            windows: windows.listed,
            windows_left_out: windows.left_out,
        })
    }
}

/// Which of two heads comes first; `None` when both are at their end.
fn order(left: &Head, right: &Head) -> Option<Ordering> {
    match (left.end, right.end) {
        (None, None) => None,
        (Some(_), None) => Some(Ordering::Less),
        (None, Some(_)) => Some(Ordering::Greater),
        (Some(a), Some(b)) => Some((a, &left.key).cmp(&(b, &right.key))),
    }
}

/// Windows as the two streams meet them.
struct Windows<'a> {
    shape: &'a Shape,
    before: Standing,
    after: Standing,
    current: Option<(Window, PaneCounts)>,
    totals: PaneCounts,
    listed: Vec<WindowDiff>,
    left_out: u64,
    limit: usize,
}

impl<'a> Windows<'a> {
    fn new(shape: &'a Shape, before: Standing, after: Standing, limit: usize) -> Self {
        Self {
            shape,
            before,
            after,
            current: None,
            totals: PaneCounts::default(),
            listed: Vec::new(),
            left_out: 0,
            limit,
        }
    }

    fn add(&mut self, old: Option<&Head>, new: Option<&Head>) {
        let Some(piece) = new.or(old).and_then(|head| head.piece) else { return };
        if self.current.as_ref().is_none_or(|(window, _)| *window != piece) {
            self.close();
        }
        let (_, counts) = self.current.get_or_insert_with(|| (piece, PaneCounts::default()));
        for counts in [counts, &mut self.totals] {
            counts.add(old, new);
        }
    }

    fn close(&mut self) {
        let Some((window, panes)) = self.current.take() else { return };
        if panes.appeared + panes.changed + panes.gone == 0 {
            return;
        }
        if self.listed.len() >= self.limit {
            self.left_out += 1;
            return;
        }
        let change = match (panes.before, panes.after) {
            (0, _) => "appeared",
            (_, 0) => "gone",
            _ => "changed",
        };
        let spec = self.shape.spec();
        self.listed.push(WindowDiff {
            start: window.start,
            end: window.end,
            change,
            status_before: self.before.status_of(spec, window),
            status_after: self.after.status_of(spec, window),
            panes,
        });
    }
}

impl PaneCounts {
    fn add(&mut self, old: Option<&Head>, new: Option<&Head>) {
        if let Some(old) = old {
            self.before += 1;
            self.events_before = self.events_before.saturating_add(old.events);
        }
        if let Some(new) = new {
            self.after += 1;
            self.events_after = self.events_after.saturating_add(new.events);
        }
        match (old, new) {
            (Some(old), Some(new)) if old.value == new.value => self.same += 1,
            (Some(_), Some(_)) => self.changed += 1,
            (Some(_), None) => self.gone += 1,
            (None, Some(_)) => self.appeared += 1,
            (None, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(end: i64, key: &str, value: &str, events: u64) -> Head {
        Head {
            end: Some(EventTime::from_millis(end)),
            key: key.into(),
            value: value.into(),
            piece: None,
            events,
        }
    }

    #[test]
    fn panes_are_met_by_end_then_key_and_an_ended_stream_comes_last() {
        let (a, b) = (head(1, "z", "", 0), head(2, "a", "", 0));
        assert_eq!(order(&a, &b), Some(Ordering::Less));
        assert_eq!(order(&b, &a), Some(Ordering::Greater));
        assert_eq!(order(&a, &head(1, "z", "other", 9)), Some(Ordering::Equal));
        assert_eq!(order(&Head::default(), &b), Some(Ordering::Greater));
        assert_eq!(order(&Head::default(), &Head::default()), None);
    }

    #[test]
    fn counts_tell_what_appeared_changed_stayed_and_went() {
        let mut counts = PaneCounts::default();
        counts.add(Some(&head(1, "a", "x", 2)), Some(&head(1, "a", "x", 2)));
        counts.add(Some(&head(1, "b", "x", 2)), Some(&head(1, "b", "y", 5)));
        counts.add(Some(&head(1, "c", "x", 1)), None);
        counts.add(None, Some(&head(1, "d", "x", 7)));
        let expected = PaneCounts {
            before: 3,
            after: 3,
            appeared: 1,
            changed: 1,
            same: 1,
            gone: 1,
            events_before: 5,
            events_after: 14,
        };
        assert_eq!(counts, expected);
    }
}
