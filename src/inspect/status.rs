//! Where a window stands against the watermark of its own checkpoint. Pure: from a definition and two watermarks.
//!
//! Two, because a long firing may be cut by a checkpoint: the task's watermark has passed windows then which their
//! operator has yet to fire.

use serde::Serialize;

use crate::checkpoint::{Manifest, OperatorState};
use crate::event_time::{EventTime, Span, Watermark, Window};
use crate::operator::{Advance, Mode, OperatorSpec, TimeDomain};

/// Where a window stands against the watermark of its checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WindowStatus {
    /// Takes events; the watermark has not reached its end.
    Open,
    /// The watermark has reached its end, and it is yet to fire: the checkpoint came in the middle of a long firing.
    Closing,
    /// Has fired; late events that are still allowed change it.
    AcceptsLate,
    /// Takes no more events; what is on disk waits for its removal and may be there in part.
    Expired,
}

impl WindowStatus {
    /// All of them, in the order of a window's life.
    pub const ALL: [Self; 4] = [Self::Open, Self::Closing, Self::AcceptsLate, Self::Expired];

    /// Lowercase name, as reports have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closing => "closing",
            Self::AcceptsLate => "accepts-late",
            Self::Expired => "expired",
        }
    }

    /// The status of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }
}

/// What the windows of one operator are judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    /// Windows that end by this are due.
    pub(super) reached: Watermark,
    /// Windows that end by this have fired.
    pub(super) fired: Watermark,
    pub(super) allowed_lateness: Span,
    /// Nothing closes and nothing is forgotten.
    pub(super) endless: bool,
}

impl Standing {
    /// That of an operator in its checkpoint.
    pub(super) fn of(manifest: &Manifest, state: &OperatorState, spec: &OperatorSpec) -> Self {
        // By batches and by the wall clock the task's watermark does not say what is due.
        let follows = spec.time == TimeDomain::Event && spec.advance == Advance::Event;
        let fired = state.watermark;
        Self {
            reached: if follows { fired.max(manifest.watermark) } else { fired },
            fired,
            allowed_lateness: spec.allowed_lateness,
            endless: spec.mode == Mode::Complete,
        }
    }

    /// Where a window that ends at `end` stands.
    pub(super) fn status(&self, end: EventTime) -> WindowStatus {
        if self.endless || !self.reached.closed(end) {
            WindowStatus::Open
        } else if !self.fired.closed(end) {
            WindowStatus::Closing
        } else if self.fired.expired(end, self.allowed_lateness) {
            WindowStatus::Expired
        } else {
            WindowStatus::AcceptsLate
        }
    }

    /// Where a stored piece stands: a slice as the last window that holds it.
    pub(super) fn status_of(&self, spec: &OperatorSpec, piece: Window) -> WindowStatus {
        self.status(last_end(spec, piece))
    }

    /// The watermark at which a window that ends at `end` expires; never for endless ones.
    pub(super) fn expires_at(&self, end: EventTime) -> Option<EventTime> {
        let millis = end.as_millis().checked_add(self.allowed_lateness.as_millis());
        millis.filter(|_| !self.endless && end != EventTime::MAX).map(EventTime::from_millis)
    }
}

/// End of the last window that holds a stored piece.
pub(super) fn last_end(spec: &OperatorSpec, piece: Window) -> EventTime {
    if spec.shares_slices() { spec.windows.last_holding(piece).end } else { piece.end }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> EventTime {
        EventTime::from_millis(millis)
    }

    fn standing(fired: i64, reached: i64, lateness: i64) -> Standing {
        Standing {
            reached: Watermark::At(at(reached)),
            fired: Watermark::At(at(fired)),
            allowed_lateness: Span::from_millis(lateness).unwrap(),
            endless: false,
        }
    }

    #[test]
    fn a_window_goes_from_open_over_closing_to_late_and_expired() {
        let standing = standing(100, 200, 50);
        let statuses = [250, 201, 200, 101, 100, 51, 50, 0].map(|end| standing.status(at(end)).name());
        assert_eq!(
            statuses,
            ["open", "open", "closing", "closing", "accepts-late", "accepts-late", "expired", "expired"]
        );
    }

    #[test]
    fn nothing_seen_leaves_all_open_and_the_end_of_input_none() {
        let all = |reached, fired| {
            let standing = Standing { reached, fired, ..standing(0, 0, 7) };
            [at(i64::MIN), at(0), at(i64::MAX)].map(|end| standing.status(end))
        };
        assert_eq!(all(Watermark::None, Watermark::None), [WindowStatus::Open; 3]);
        assert_eq!(all(Watermark::End, Watermark::End), [WindowStatus::Expired; 3]);
        assert_eq!(all(Watermark::End, Watermark::None), [WindowStatus::Closing; 3]);
    }

    #[test]
    fn complete_mode_forgets_nothing() {
        let standing = Standing { endless: true, ..standing(100, 100, 0) };
        assert_eq!(standing.status(at(0)), WindowStatus::Open);
        assert_eq!(standing.expires_at(at(0)), None);
    }

    #[test]
    fn names_are_read_back() {
        for status in WindowStatus::ALL {
            assert_eq!(WindowStatus::parse(status.name()), Some(status));
            assert_eq!(serde_json::to_value(status).unwrap(), status.name());
        }
        assert_eq!(WindowStatus::parse("late"), None);
    }
}
