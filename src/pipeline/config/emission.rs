//! When results leave a window, and what they mean: mode, trigger, accumulation, allowed lateness.

use super::reader::{Item, Section};
use super::window::Timing;
use crate::error::Result;
use crate::event_time::{Span, Windows};
use crate::operator::{Accumulation, Advance, Mode, Repeat, TimeDomain, Trigger};

/// A pane counts the events since it fired in 31 bits.
const COUNT_MAX: u32 = i32::MAX as u32;
const ADD_WATERMARK: &str =
    "add a [watermark] table with `delay = \"15m\"` (how far out of order events may come)";

/// What a window table says of its results.
pub(super) struct Emission {
    pub(super) time: TimeDomain,
    pub(super) allowed_lateness: Span,
    pub(super) mode: Mode,
    pub(super) retractions: bool,
    pub(super) trigger: Trigger,
    pub(super) accumulation: Accumulation,
}

/// Takes everything about results out of a window table, and refuses what cannot work together.
pub(super) fn read(section: &mut Section<'_>, windows: &Windows, timing: Timing) -> Result<Emission> {
    let domains = [("event", TimeDomain::Event), ("processing", TimeDomain::Processing)];
    let time = section.take("time").map_or(Ok(TimeDomain::Event), |item| item.choice(&domains))?;
    let modes = [("append", Mode::Append), ("update", Mode::Update), ("complete", Mode::Complete)];
    let mode_item = section.take("mode");
    let mode = mode_item.as_ref().map_or(Ok(Mode::Append), |item| item.choice(&modes))?;
    let trigger_item = section.take("trigger");
    let trigger = trigger_item.as_ref().map_or(Ok(Trigger::Watermark), read_trigger)?;
    let refuse = |section: &Section<'_>, item: Option<&Item<'_>>, message: &str, remedy: &str| match item {
        Some(item) => item.error(message, remedy),
        None => section.error(message, remedy),
    };
    let by_event_time = time == TimeDomain::Event;
    if mode == Mode::Append && by_event_time && timing.delay.is_none() && trigger.on_time() {
        let message = "append needs a watermark: without one no window ever closes, so no row could be final";
        return Err(refuse(section, mode_item.as_ref(), message, ADD_WATERMARK));
    }
    if mode == Mode::Append
        && *windows == Windows::Global
        && trigger == Trigger::Watermark
        && !timing.close_at_end
    {
        let message =
            "the global window never closes, and this input has no end to close it: nothing would be emitted";
        let remedy =
            "add a trigger, such as { count = 100 } or { interval = \"10s\" }, or use `mode = \"update\"`";
        return Err(refuse(section, trigger_item.as_ref(), message, remedy));
    }
    if mode == Mode::Update && trigger != Trigger::Watermark && !matches!(trigger, Trigger::Interval(_)) {
        let message = "update emits after every event; of triggers only an interval has an effect";
        return Err(refuse(
            section,
            trigger_item.as_ref(),
            message,
            "remove the trigger, or use `mode = \"append\"`",
        ));
    }
    if mode == Mode::Complete && trigger != Trigger::Watermark && !matches!(trigger, Trigger::Interval(_)) {
        let message =
            "complete emits everything at intervals, after batches or at the end; this trigger has no effect";
        return Err(refuse(
            section,
            trigger_item.as_ref(),
            message,
            "use { interval = \"10s\" }, or remove it",
        ));
    }
    if let (Some(item), Repeat::EventTime(span)) = (&trigger_item, trigger.early()) {
        refuse_endless(item, windows, span)?;
    }
    let lateness_item = section.take("allowed_lateness");
    let allowed_lateness = lateness_item.as_ref().map_or(Ok(Span::ZERO), Item::span)?;
    if let Some(item) = lateness_item.as_ref().filter(|_| allowed_lateness != Span::ZERO) {
        if timing.delay.is_none() {
            return Err(item.error("has no meaning without a watermark", ADD_WATERMARK));
        }
        if mode == Mode::Complete || !by_event_time || *windows == Windows::Global {
            return Err(item.error("has no meaning here: nothing is ever late", "remove it"));
        }
        if timing.advance == Advance::Batch {
            let remedy = "remove it and choose a longer watermark.delay, or use `advance = \"event\"`";
            return Err(item.error("does not go with watermark.advance = \"batch\"", remedy));
        }
    }
    if timing.advance == Advance::Batch {
        if !by_event_time {
            let message = "windows by processing time do not go with watermark.advance = \"batch\"";
            return Err(section.error(message, "use `advance = \"event\"`"));
        }
        if let Some(item) = trigger_item.as_ref().filter(|_| trigger != Trigger::Watermark) {
            let message = "does not go with watermark.advance = \"batch\": panes fire at the end of a batch";
            return Err(item.error(message, "remove the trigger, or use `advance = \"event\"`"));
        }
    }
    let retractions_item = section.take("retractions");
    let retractions = retractions_item.as_ref().map_or(Ok(false), Item::boolean)?;
    if let Some(item) = retractions_item.as_ref().filter(|_| retractions) {
        if mode != Mode::Update {
            return Err(item.error("only update takes results back", "use `mode = \"update\"`, or remove it"));
        }
        if trigger != Trigger::Watermark || timing.advance == Advance::Batch {
            let message = "results are taken back only where update emits after each event";
            return Err(item.error(message, "remove it, or remove the interval or the batches"));
        }
    }
    let accumulation = read_accumulation(section, mode)?;
    Ok(Emission { time, allowed_lateness, mode, retractions, trigger, accumulation })
}

/// Early firings of one window. More are a slip in the units: a pane fires once for each multiple that is passed.
const EARLY_FIRINGS_MAX: i64 = 1_000_000;

/// Each multiple of the span inside a window fires, so there must be an end to them.
fn refuse_endless(item: &Item<'_>, windows: &Windows, span: Span) -> Result<()> {
    if *windows == Windows::Global {
        let message = "the global window has no end, and so early firings by event time have none";
        return Err(item.error(message, "use { count = 100 } or { interval = \"10s\" }"));
    }
    let length = windows.last_length().map_or(0, Span::as_millis);
    let firings = length / span.as_millis().max(1);
    if firings <= EARLY_FIRINGS_MAX {
        return Ok(());
    }
    let message = format!(
        "a pane would fire {firings} times before its window ends; at most {EARLY_FIRINGS_MAX} are possible"
    );
    Err(item.error(message, "choose a longer span, or check the units"))
}

fn read_accumulation(section: &mut Section<'_>, mode: Mode) -> Result<Accumulation> {
    let choices = [("accumulating", Accumulation::Accumulating), ("discarding", Accumulation::Discarding)];
    let item = section.take("accumulation");
    let accumulation = item.as_ref().map_or(Ok(Accumulation::Accumulating), |item| item.choice(&choices))?;
    if let (Some(item), Accumulation::Discarding, Mode::Update | Mode::Complete) = (&item, accumulation, mode)
    {
        let message = "discarding rows are increments, and this mode replaces the earlier row by the later: events \
                       would be lost to the reader";
        return Err(item.error(message, "use `accumulation = \"accumulating\"`, or `mode = \"append\"`"));
    }
    Ok(accumulation)
}

fn read_trigger(item: &Item<'_>) -> Result<Trigger> {
    if item.is_text() {
        return item.choice(&[("watermark", Trigger::Watermark)]);
    }
    let mut section = item.to_section(&["count", "early", "late", "interval"])?;
    let (count, early, late, interval) =
        (section.take("count"), section.take("early"), section.take("late"), section.take("interval"));
    match (count, interval, early, late) {
        (Some(count), None, None, None) => Ok(Trigger::Count(read_count(&count)?)),
        (None, Some(interval), None, None) => interval.positive_span().map(Trigger::Interval),
        (None, None, Some(early), None) if early.is_text() => early.positive_span().map(Trigger::Early),
        (None, None, early, late) if early.is_some() || late.is_some() => {
            let early = early.map_or(Ok(Repeat::Never), |item| read_repeat(&item, true))?;
            let late = late.map_or(Ok(Repeat::Each), |item| read_repeat(&item, false))?;
            Ok(Trigger::Composite { early, late })
        }
        (None, None, None, None) => Err(section.error(
            "the trigger is empty",
            "write { count = 5 }, { early = \"10m\" }, { interval = \"10s\" } or \"watermark\"",
        )),
        _ => Err(section.error(
            "count and interval go alone",
            "keep one of them, or write { early = { count = 5 }, late = { interval = \"10s\" } }",
        )),
    }
}

fn read_count(item: &Item<'_>) -> Result<u32> {
    match item.count()? {
        events if events > COUNT_MAX => {
            Err(item.error(format!("is larger than {COUNT_MAX}"), "choose a smaller count"))
        }
        events => Ok(events),
    }
}

fn read_repeat(item: &Item<'_>, early: bool) -> Result<Repeat> {
    let words = [("each", Repeat::Each), ("never", Repeat::Never)];
    if item.is_text() {
        if early && let Ok(span) = item.positive_span() {
            return Ok(Repeat::EventTime(span));
        }
        return item.choice(&words);
    }
    let mut section = item.to_section(&["count", "event_time", "interval"])?;
    match (section.take("count"), section.take("event_time"), section.take("interval")) {
        (Some(count), None, None) => read_count(&count).map(Repeat::Count),
        (None, Some(span), None) if early => span.positive_span().map(Repeat::EventTime),
        (None, Some(span), None) => Err(span.error(
            "late firings cannot follow event time, which has passed the window",
            "use { interval = \"10s\" }, { count = 5 } or \"each\"",
        )),
        (None, None, Some(span)) => span.positive_span().map(Repeat::Interval),
        _ => Err(section.error(
            "one of count, event_time and interval is needed",
            "write for example { count = 5 } or { interval = \"10s\" }",
        )),
    }
}
