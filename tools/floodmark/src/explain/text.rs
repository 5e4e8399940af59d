//! An explanation as people read it: a table with one line per event and, below it, what the event set off. Every fact
//! comes from the explanation; none is made here.

use floodmark::event_time::{EventTime, Span, Watermark, Window};
use floodmark::inspect::{Aggregates, Key};
use floodmark::operator::{Advance, PaneKind};
use floodmark::pipeline::explain::{
    Accepted, End, EventFrame, Explanation, FiringFrame, Frame, Head, Holder, OthersFrame, RecordFrame,
    TooLate, Waiting, What,
};

use crate::run::{counted, grouped};
use crate::table::{Table, printable};

/// Text of a record in a cell, in characters.
const RECORD_SHOWN: usize = 60;

/// The whole explanation.
pub(super) fn timeline(explanation: &Explanation) -> String {
    let times = Times::of(explanation);
    let mut text = head(&explanation.head, &times);
    text.push('\n');
    text.push_str(&table(explanation, &times));
    text.push('\n');
    text.push_str(&end(&explanation.head, &explanation.end, &times));
    text
}

/// Times without their day, when all are of one day.
struct Times {
    day: Option<String>,
}

impl Times {
    fn of(explanation: &Explanation) -> Self {
        let mut days = Days { first: None, one: true };
        for frame in &explanation.frames {
            days.watermark(frame.watermark_before);
            days.watermark(frame.watermark_after);
            days.of_what(&frame.what);
        }
        days.watermark(explanation.end.watermark);
        if let Some(waiting) = &explanation.end.waiting {
            days.window(waiting.window);
            let max = waiting.slowest.as_ref().and_then(|holder| holder.max_time);
            max.into_iter().for_each(|time| days.time(time));
        }
        Self { day: days.first.filter(|_| days.one) }
    }

    fn time(&self, time: EventTime) -> String {
        let text = time.to_string();
        match &self.day {
            Some(day) => text
                .strip_prefix(day.as_str())
                .map_or(text.clone(), |rest| rest.trim_start_matches('T').trim_end_matches('Z').to_owned()),
            None => text,
        }
    }

    fn watermark(&self, watermark: Watermark) -> String {
        watermark.instant().map_or_else(|| watermark.to_string(), |time| self.time(time))
    }

    fn window(&self, window: Window) -> String {
        if window == Window::ALL {
            return "all time".to_owned();
        }
        format!("[{}, {})", self.time(window.start), self.time(window.end))
    }

    fn moved(&self, frame: &Frame) -> String {
        let (before, after) = (frame.watermark_before, frame.watermark_after);
        if before == after {
            self.watermark(after)
        } else {
            format!("{} → {}", self.watermark(before), self.watermark(after))
        }
    }
}

/// Finds out whether all times are of one day.
struct Days {
    first: Option<String>,
    one: bool,
}

impl Days {
    fn time(&mut self, time: EventTime) {
        let text = time.to_string();
        let day = text.split_once('T').map(|(day, _)| day.to_owned());
        match (&self.first, day) {
            (None, Some(day)) => self.first = Some(day),
            (Some(first), Some(day)) if *first == day => {}
            _ => self.one = false,
        }
    }

    fn watermark(&mut self, watermark: Watermark) {
        // By batches it starts with 1970, which is no day of the input.
        watermark.instant().filter(|time| time.as_millis() != 0).into_iter().for_each(|time| self.time(time));
    }

    fn window(&mut self, window: Window) {
        if window != Window::ALL {
            self.time(window.start);
            // The end of the last window of a day is of the next one; that alone makes no second day.
            self.time(EventTime::from_millis(window.end.as_millis().saturating_sub(1)));
        }
    }

    fn of_what(&mut self, what: &What) {
        match what {
            What::Event(event) => {
                self.time(event.time);
                event.accepted.iter().for_each(|accepted| self.window(accepted.window));
                event.late.iter().for_each(|late| self.window(late.window));
            }
            What::Restored(pane) => self.window(pane.window),
            What::Firing(firing) => self.window(firing.window),
            What::Closed { window, .. } | What::Expired { window, .. } => self.window(*window),
            _ => {}
        }
    }
}

fn head(head: &Head, times: &Times) -> String {
    let mut lines = vec![format!("window {} of pipeline {}: {}", head.window, head.pipeline, head.windows)];
    if !head.other_windows.is_empty() {
        lines.push(format!(
            "  the first of the pipeline; others with --window: {}",
            head.other_windows.join(", ")
        ));
    }
    let mut row = |name: &str, value: String| lines.push(format!("  {name:<10} {}", printable(&value)));
    row("fires", head.fires.clone());
    if head.fires_by_clock {
        row("", "what fires by the wall clock is not told: it depends on when a run took place".to_owned());
    }
    if head.allowed_lateness > Span::ZERO {
        row("lateness", format!("{} allowed after the end", head.allowed_lateness));
    }
    for source in &head.sources {
        row("watermark", format!("of {}: {}", source.name, source.watermark));
    }
    if head.advance == Advance::Batch {
        row("", "windows reach it one batch behind".to_owned());
    }
    row("key", key_line(head));
    if let Some(start) = head.start {
        row("start", start.to_string());
    }
    if let Some(checkpoint) = &head.checkpoint {
        row("from", format!("checkpoint {}, watermark {}", checkpoint.epoch, checkpoint.watermark));
    }
    if let Some(starts) = head.starts {
        row(
            "note",
            format!(
                "the pipeline was started {starts} times over its state; this is the order of a single run. Where files came or \
                 grew in between, see --from-checkpoint"
            ),
        );
    }
    if let Some(day) = &times.day {
        row("day", format!("{day}, all times in UTC"));
    }
    lines.join("\n") + "\n"
}

fn key_line(head: &Head) -> String {
    match &head.key {
        _ if head.key_fields.is_empty() => "none: one pane per window".to_owned(),
        Some(key) => {
            let chosen = if head.key_chosen { " (the first that came; another with --key)" } else { "" };
            format!("{} = {key}{chosen}", head.key_fields.join(", "))
        }
        None if head.start.is_some() => format!("all of {}", head.key_fields.join(", ")),
        None => format!("{}: no event came", head.key_fields.join(", ")),
    }
}

fn table(explanation: &Explanation, times: &Times) -> String {
    let many_keys = explanation.head.key.is_none() && !explanation.head.key_fields.is_empty();
    let shows_keys = many_keys
        || explanation.frames.iter().any(|frame| matches!(&frame.what, What::Event(event) if event.other));
    let headings = ["record", "event time", "key", "values", "watermark", "what happens"];
    let keep = |column: usize| column != 2 || shows_keys;
    let pick = |cells: Vec<String>| -> Vec<String> {
        cells.into_iter().enumerate().filter(|(column, _)| keep(*column)).map(|(_, cell)| cell).collect()
    };
    let kept: Vec<&str> =
        headings.iter().enumerate().filter(|(at, _)| keep(*at)).map(|(_, name)| *name).collect();
    let mut table = Table::new(&kept);
    for frame in &explanation.frames {
        for cells in rows(frame, many_keys, times) {
            table.row(pick(cells));
        }
    }
    let mut text = table.render(0);
    if explanation.end.frames_left_out > 0 {
        let left_out = grouped(explanation.end.frames_left_out);
        text.push_str(&format!("… {left_out} frames more; see them with --limit\n"));
    }
    text
}

/// The lines of a frame: record, time, key, values, watermark, what happens.
fn rows(frame: &Frame, many_keys: bool, times: &Times) -> Vec<Vec<String>> {
    let moved = times.moved(frame);
    let line = |record: String, watermark: String, what: String| {
        vec![record, String::new(), String::new(), String::new(), watermark, what]
    };
    let below = |what: String| vec![line(String::new(), String::new(), format!("  {what}"))];
    match &frame.what {
        What::Event(event) => event_rows(event, moved, times),
        What::Rejected(rejected) => {
            let what = format!("rejected: {}: {}", rejected.reason, rejected.detail);
            vec![line(place(&rejected.record), moved, what), text_row(&rejected.record)]
        }
        What::Filtered(record) => {
            vec![line(place(record), moved, "passed over by a filter".to_owned()), text_row(record)]
        }
        What::Duplicate(record) => {
            let what = "duplicate: an event of the same id came before it and is still remembered";
            vec![line(place(record), moved, what.to_owned()), text_row(record)]
        }
        What::Others(others) => vec![line("…".to_owned(), moved, others_line(others))],
        What::PartitionEnd { partition } => {
            vec![line(partition.clone(), moved, "ends, and holds the watermark back no more".to_owned())]
        }
        What::BatchEnd { events_reach } => {
            let reached = times.watermark(*events_reach);
            vec![line(
                "batch ends".to_owned(),
                moved,
                format!("windows reach the watermark; the events have come to {reached}"),
            )]
        }
        What::InputEnd => vec![line("input ends".to_owned(), moved, "closes every window".to_owned())],
        What::Restored(pane) => {
            let kind = if pane.slice { "holds of the slice" } else { "holds of" };
            let of = if many_keys { format!(" {}", pane.key) } else { String::new() };
            let (window, values) = (times.window(pane.window), values(&pane.values));
            let events = counted(pane.events, "event", "events");
            vec![line("checkpoint".to_owned(), moved, format!("{kind} {window}{of}: {events}, {values}"))]
        }
        What::Closed { window, expired } => {
            let rest = if *expired { "; takes no more events" } else { "" };
            below(format!("closes {}{rest}", times.window(*window)))
        }
        What::Firing(firing) => below(firing_line(firing, many_keys, times)),
        What::Expired { window, limit } => {
            let (window, limit) = (times.window(*window), times.time(*limit));
            below(format!("expires {window}: the watermark has reached {limit}"))
        }
        _ => below("something that this version does not show".to_owned()),
    }
}

fn place(record: &RecordFrame) -> String {
    format!("{}:{}", record.partition, record.line)
}

/// What a record that is no event says.
fn text_row(record: &RecordFrame) -> Vec<String> {
    let cut: String = record.text.chars().take(RECORD_SHOWN).collect();
    let more = if cut.len() < record.text.len() { "…" } else { "" };
    let mut cells = vec![String::new(); 5];
    cells.push(format!("  {cut}{more}"));
    cells
}

fn event_rows(event: &EventFrame, moved: String, times: &Times) -> Vec<Vec<String>> {
    let mut said: Vec<String> =
        event.accepted.iter().map(|accepted| accepted_line(accepted, times)).collect();
    match event.late.as_slice() {
        [only] if event.dropped => said.push(format!("dropped, {}", late_line(only, times))),
        several => {
            if event.dropped {
                said.push("dropped, late for all its windows".to_owned());
            }
            said.extend(several.iter().map(|late| late_line(late, times)));
        }
    }
    if said.is_empty() {
        said.push(if event.other {
            "another key or window".to_owned()
        } else {
            "belongs to no window".to_owned()
        });
    }
    let mut said = said.into_iter();
    let first = vec![
        format!("{}:{}", event.partition, event.line),
        times.time(event.time),
        event.key.as_ref().map(Key::to_string).unwrap_or_default(),
        if event.other { String::new() } else { values(&event.values) },
        moved,
        said.next().unwrap_or_default(),
    ];
    let more = said.map(|what| {
        let mut cells = vec![String::new(); 5];
        cells.push(what);
        cells
    });
    std::iter::once(first).chain(more).collect()
}

fn accepted_line(accepted: &Accepted, times: &Times) -> String {
    let Accepted { window, after_close, joined } = accepted;
    let into = times.window(*window);
    let late = if *after_close { "late, and still accepted" } else { "accepted" };
    let sessions = |windows: &[Window]| {
        windows.iter().map(|window| times.window(*window)).collect::<Vec<_>>().join(" and ")
    };
    match joined.as_slice() {
        [] => format!("{late}: {into}"),
        [same] if same == window => format!("{late}: {into}"),
        [one] => format!("{late}: {into}, which extends {}", times.window(*one)),
        several => format!("{late}: {into}, which joins {}", sessions(several)),
    }
}

fn late_line(late: &TooLate, times: &Times) -> String {
    let (window, limit) = (times.window(late.window), times.time(late.limit));
    let by = match late.by {
        Some(by) => format!("late by {by}"),
        None => "late".to_owned(),
    };
    format!("{by}: {window} took events while the watermark was before {limit}")
}

fn firing_line(firing: &FiringFrame, many_keys: bool, times: &Times) -> String {
    let verb = if firing.takes_back { "takes back" } else { "fires" };
    let pane = match firing.pane {
        PaneKind::Early => "early",
        PaneKind::OnTime => "on time",
        PaneKind::Late => "late",
    };
    let of = if many_keys { format!(" of {}", firing.key) } else { String::new() };
    let index =
        if firing.pane_index > 0 { format!(", emission {}", firing.pane_index + 1) } else { String::new() };
    format!("{verb}  {}{of} {pane}{index}: {}", times.window(firing.window), values(&firing.values))
}

fn others_line(others: &OthersFrame) -> String {
    let kinds = [
        (others.events, "other event", "other events"),
        (others.rejected, "rejected record", "rejected records"),
        (others.filtered, "filtered record", "filtered records"),
        (others.duplicates, "duplicate", "duplicates"),
    ];
    let parts = kinds.iter().filter(|(count, ..)| *count > 0);
    parts.map(|(count, one, many)| counted(*count, one, many)).collect::<Vec<_>>().join(", ")
}

fn values(values: &Aggregates) -> String {
    values.0.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

fn end(head: &Head, end: &End, times: &Times) -> String {
    let counts = &end.counts;
    let mut parts = vec![format!(
        "{}: {} accepted, {} dropped as late",
        counted(counts.events, "event", "events"),
        grouped(counts.accepted),
        grouped(counts.dropped)
    )];
    let others = OthersFrame {
        events: counts.other_events,
        rejected: counts.rejected,
        filtered: counts.filtered,
        duplicates: counts.duplicates,
    };
    parts.push(counted(counts.closed, "window closed", "windows closed"));
    parts.push(counted(counts.firings, "result", "results"));
    if others != OthersFrame::default() {
        parts.push(others_line(&others));
    }
    let mut lines = vec![parts.join("; ")];
    match &end.waiting {
        Some(waiting) => lines.push(waiting_line(waiting, end.closed_by_end, times)),
        None if head.fires.ends_with("nothing closes") => {
            lines.push("in complete mode no window closes: each has its place in every output".to_owned());
        }
        None => lines.push(format!("no window is open; W is {}", times.watermark(end.watermark))),
    }
    printable_lines(&lines)
}

fn printable_lines(lines: &[String]) -> String {
    lines.iter().map(|line| printable(line) + "\n").collect()
}

/// Why the first open window is not closed.
fn waiting_line(waiting: &Waiting, closed_by_end: bool, times: &Times) -> String {
    let more = match waiting.more {
        0 => String::new(),
        1 => " (and 1 more)".to_owned(),
        more => format!(" (and {} more)", grouped(more)),
    };
    let state = if closed_by_end { "only closed by the end of the input" } else { "not closed yet" };
    let mut line = format!("{state}: {}{more} ", times.window(waiting.window));
    if waiting.never {
        line.push_str("is closed by nothing else");
        return line;
    }
    let (needs, now) = (times.time(waiting.needs), times.watermark(waiting.watermark));
    line.push_str(&format!("needs W >= {needs} (its end), W is {now}"));
    if let Some(reach) = waiting.events_reach {
        line.push_str(&format!(
            ", one batch behind the events, which have come to {}",
            times.watermark(reach)
        ));
    }
    if let Some(holder) = &waiting.slowest {
        line.push_str(&format!(": {}", holder_text(holder, times)));
    }
    if !waiting.idle.is_empty() {
        line.push_str(&format!("; idle: {}", waiting.idle.join(", ")));
    }
    if waiting.finished > 0 {
        line.push_str(&format!("; read to their end: {}", grouped(waiting.finished)));
    }
    line
}

fn holder_text(holder: &Holder, times: &Times) -> String {
    let name = &holder.partition;
    let role = match holder.holds_back {
        true => "the slowest partition is",
        false => "nothing holds it back, the latest partition is",
    };
    let max = match holder.max_time {
        Some(time) => format!("max {}", times.time(time)),
        None => "nothing came of it yet".to_owned(),
    };
    match holder.delay {
        Some(delay) => format!("{role} {name} ({max}, delay {delay})"),
        None => {
            format!("{role} {name} ({max}, watermark by punctuation {})", times.watermark(holder.watermark))
        }
    }
}
