//! Whether a late record may be worked into a savepoint: the rules that keep it from counting twice. Pure.

use std::fmt;

use serde::Serialize;

use super::late::Late;
use crate::checkpoint::PartitionState;
use crate::event_time::{EventTime, Watermark};
use crate::operator::OperatorSpec;

/// Why a late record is not worked into a savepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WhyNot {
    /// It was late for something that is no window over sources: a join, a window over windows, or a window of another
    /// pipeline.
    OtherOperator,
    /// All its windows have expired in the savepoint: their results are out.
    Expired,
    /// One of its windows has fired in the savepoint and only waits for late events: the corrected row would have to be
    /// emitted, which a savepoint cannot do.
    Fired,
    /// The savepoint has read it while its windows were open: it is in there.
    AlreadyCounted,
    /// The savepoint has not read it yet, and it will be read.
    WillBeRead,
    /// It was late for a session window. When it is read again it may find the session that it has opened or prolonged
    /// itself, and would be taken a second time.
    Session,
}

impl WhyNot {
    /// Stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OtherOperator => "other_operator",
            Self::Expired => "expired",
            Self::Fired => "fired",
            Self::AlreadyCounted => "already_counted",
            Self::WillBeRead => "will_be_read",
            Self::Session => "session",
        }
    }
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the savepoint has to do with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// It was read.
    Done,
    /// It was not read yet.
    Ahead,
}

/// Whether the partition that a late record came from was read beyond it.
pub(super) fn reading(partition: &PartitionState, late: &Late) -> Result<Reading, String> {
    let position = partition.position;
    let read = match (late.byte_offset, late.record_number) {
        (Some(offset), _) => offset < position.bytes,
        (None, Some(number)) => number <= position.records,
        (None, None) => return Err("neither `byte_offset` nor `record_number`".to_owned()),
    };
    // A partition at its end may grow: whether the rest of it is read, only the user can say.
    Ok(if read { Reading::Done } else { Reading::Ahead })
}

/// Why an event is not to be worked into a window whose watermark stands at `watermark`; `None` when it is.
///
/// A record that was read while one of its windows was open is in there: the watermark never moves back, so an event
/// that found its windows expired finds them expired now. And one that is read again later finds them expired again,
/// whatever is in them; with sessions it does not depend on the watermark alone.
pub(super) fn judge(
    spec: &OperatorSpec,
    watermark: Watermark,
    time: EventTime,
    reading: Reading,
    late_again: bool,
) -> Option<WhyNot> {
    if spec.windows.session_gap().is_some() {
        return Some(WhyNot::Session);
    }
    let ends: Vec<EventTime> = spec.windows.windows_of(time).map(|window| window.end).collect();
    let expired = |end: &EventTime| watermark.expired(*end, spec.allowed_lateness);
    if ends.iter().all(expired) {
        return Some(WhyNot::Expired);
    }
    if reading == Reading::Done {
        return Some(WhyNot::AlreadyCounted);
    }
    if ends.iter().any(|end| watermark.closed(*end) && !expired(end)) {
        return Some(WhyNot::Fired);
    }
    (!late_again).then_some(WhyNot::WillBeRead)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregate::{AggregateSpec, Function};
    use crate::event_time::{Span, Tumbling, Windows};

    fn window(lateness_ms: i64) -> OperatorSpec {
        let minute = Tumbling::new(Span::from_millis(60_000).unwrap(), 0).unwrap();
        let count = AggregateSpec {
            name: "n".to_owned(),
            function: Function::Count,
            input: None,
            defined: None,
            lane: 0,
        };
        let allowed_lateness = Span::from_millis(lateness_ms).unwrap();
        OperatorSpec { allowed_lateness, ..OperatorSpec::new("w", minute, &["k"], vec![count]) }
    }

    #[test]
    fn an_event_goes_into_windows_that_are_to_fire_and_only_when_nothing_else_counts_it() {
        let watermark = Watermark::At(EventTime::from_millis(120_000));
        let judged = |lateness, millis, reading, again| {
            judge(&window(lateness), watermark, EventTime::from_millis(millis), reading, again)
        };
        assert_eq!(judged(0, 130_000, Reading::Ahead, true), None);
        assert_eq!(judged(0, 130_000, Reading::Ahead, false), Some(WhyNot::WillBeRead));
        assert_eq!(judged(0, 130_000, Reading::Done, true), Some(WhyNot::AlreadyCounted));
        assert_eq!(judged(0, 60_000, Reading::Ahead, true), Some(WhyNot::Expired));
        assert_eq!(judged(0, 60_000, Reading::Done, true), Some(WhyNot::Expired));
        assert_eq!(judged(90_000, 60_000, Reading::Ahead, true), Some(WhyNot::Fired));
        assert_eq!(judged(90_000, 60_000, Reading::Done, true), Some(WhyNot::AlreadyCounted));
        let session = Windows::session(Span::from_millis(60_000).unwrap()).unwrap();
        let session = OperatorSpec { windows: session, ..window(0) };
        let time = EventTime::from_millis(130_000);
        assert_eq!(judge(&session, watermark, time, Reading::Ahead, true), Some(WhyNot::Session));
        assert_eq!(judged(90_000, 120_000, Reading::Ahead, true), None);
    }
}
