//! Which windows an event goes to, and which it is too late for: the operator's own rule, asked before it acts.
//!
//! Pure. Of sessions it needs the open ones of the event's key, and takes all that the operator holds for these.

use super::frame::{Accepted, TooLate};
use crate::event_time::{EventTime, Span, Watermark, Window};
use crate::operator::{Advance, Mode, WindowOperator};

/// Where an event goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Placing {
    pub(super) accepted: Vec<Accepted>,
    pub(super) late: Vec<TooLate>,
}

/// Where an event at `time` goes that meets `watermark`.
pub(super) fn place(operator: &WindowOperator, time: EventTime, watermark: Watermark) -> Placing {
    match operator.spec().windows.session_gap() {
        Some(gap) => in_session(operator, time, gap, watermark),
        None => in_aligned(operator, time, watermark),
    }
}

fn in_aligned(operator: &WindowOperator, time: EventTime, watermark: Watermark) -> Placing {
    let mut placing = Placing::default();
    for window in operator.spec().windows.windows_of(time) {
        if is_expired(operator, window, watermark) {
            placing.late.push(too_late(operator, window, watermark));
        } else {
            let after_close = watermark.closed(window.end);
            placing.accepted.push(Accepted { window, after_close, joined: Vec::new() });
        }
    }
    placing
}

fn in_session(operator: &WindowOperator, time: EventTime, gap: Span, watermark: Watermark) -> Placing {
    let own = Window { start: time, end: time.saturating_add(gap) };
    let late = || Placing { accepted: Vec::new(), late: vec![too_late(operator, own, watermark)] };
    let expired = is_expired(operator, own, watermark);
    // By batches the event's own interval is tested; else the one that it becomes part of.
    if operator.spec().advance == Advance::Batch && expired {
        return late();
    }
    let open = operator.open_windows().into_iter().map(|open| open.window);
    let joined: Vec<Window> =
        open.filter(|session| session.start <= own.end && own.start <= session.end).collect();
    if joined.is_empty() && expired {
        return late();
    }
    let window = joined.iter().fold(own, |whole, session| Window {
        start: whole.start.min(session.start),
        end: whole.end.max(session.end),
    });
    let after_close = watermark.closed(window.end);
    Placing { accepted: vec![Accepted { window, after_close, joined }], late: Vec::new() }
}

fn is_expired(operator: &WindowOperator, window: Window, watermark: Watermark) -> bool {
    let spec = operator.spec();
    spec.mode != Mode::Complete && watermark.expired(window.end, spec.allowed_lateness)
}

fn too_late(operator: &WindowOperator, window: Window, watermark: Watermark) -> TooLate {
    let limit = window.end.saturating_add(operator.spec().allowed_lateness);
    let past = |now: EventTime| Span::from_millis(now.as_millis().saturating_sub(limit.as_millis()));
    TooLate { window, limit, by: watermark.instant().and_then(past) }
}
