//! The reports of `floodmark inspect` as people read them. Every fact comes from the report; none is made here.

use floodmark::aggregate::AggregateSpec;
use floodmark::event_time::{Span, Watermark};
use floodmark::inspect::{
    Aggregates, CheckpointDetails, KeyReport, ListedCheckpoint, OperatorDetails, OperatorEvents,
    OperatorPanes, OperatorWindows, Origin, VerifiedCheckpoint, WindowTotals, WindowsReport,
};
use floodmark::operator::{Accumulation, Advance, EventDefinition, Mode, OperatorSpec, TimeDomain};

use crate::amount::length;
use crate::run::{counted, grouped};
use crate::table::{Table, printable};

/// Stands for what is not known.
const UNKNOWN: &str = "-";

pub(super) fn list(checkpoints: &[ListedCheckpoint]) -> String {
    if checkpoints.is_empty() {
        return "no checkpoint yet\n".to_owned();
    }
    let mut table = Table::new(&[
        ">epoch",
        "created",
        ">age",
        "watermark",
        ">open panes",
        ">files",
        ">size",
        ">new",
        ">generation",
        "manifest",
    ]);
    for checkpoint in checkpoints {
        let manifest = match &checkpoint.problem {
            None => "ok".to_owned(),
            Some(problem) => format!("NOT SOUND: {problem}"),
        };
        table.row(vec![
            known(checkpoint.epoch, |epoch| epoch.to_string()),
            known(checkpoint.created_at, |time| time.to_string()),
            known(checkpoint.age_ms, age),
            known(checkpoint.watermark, |watermark| watermark.to_string()),
            known(checkpoint.open_panes, grouped),
            known(checkpoint.files, grouped),
            known(checkpoint.bytes, size),
            known(checkpoint.new_bytes, size),
            known(checkpoint.generation, |generation| generation.to_string()),
            manifest,
        ]);
    }
    table.render(0)
}

pub(super) fn show(details: &CheckpointDetails) -> String {
    let parent = details.parent.map_or("none, it is the first".to_owned(), |epoch| epoch.to_string());
    let mut text = format!("checkpoint {} of {}\n", details.epoch, printable(&details.pipeline));
    let mut fact = |name: &str, value: &str| text.push_str(&format!("  {name:<10} {}\n", printable(value)));
    fact("path", &details.path.display().to_string());
    fact(
        "created",
        &format!("{}, {} ago, by floodmark {}", details.created_at, age(details.age_ms), details.created_by),
    );
    fact("parent", &parent);
    fact("lineage", &format!("{}, generation {}", details.lineage, details.generation));
    fact("watermark", &watermark(details.watermark));
    fact("horizon", &format!("{}; state of windows expired under it may be gone", details.horizon));
    fact(
        "database",
        &format!(
            "{} in {}",
            size(details.database_bytes),
            counted(details.files.len() as u64, "file", "files")
        ),
    );
    if details.sources.len() > 1 {
        text.push_str("\nsources\n");
        let mut table = Table::new(&["name", "watermark"]);
        for source in &details.sources {
            table.row(vec![source.name.clone(), source.watermark.to_string()]);
        }
        text.push_str(&table.render(2));
    }
    text.push_str("\npartitions\n");
    text.push_str(&partitions(details));
    text.push_str("\nwindows\n");
    for operator in &details.operators {
        text.push_str(&self::operator(operator));
    }
    text.push_str("\nfiles\n");
    text.push_str(&files(details));
    text.push_str("\noutput published with it\n");
    text.push_str(&staged(details));
    text.push_str("\ncounters\n");
    text.push_str(&counters(details));
    text
}

fn partitions(details: &CheckpointDetails) -> String {
    let headings =
        ["name", ">bytes", ">records", "read", "latest event time", "watermark", ">late", ">lateness P99"];
    let mut table = Table::new(&headings);
    for partition in &details.partitions {
        let read = match (partition.finished, partition.idle) {
            (true, _) => "to the end",
            (false, true) => "idle",
            (false, false) => "in part",
        };
        table.row(vec![
            partition.name.clone(),
            grouped(partition.bytes),
            grouped(partition.records),
            read.to_owned(),
            known(partition.max_time, |time| time.to_string()),
            partition.watermark.to_string(),
            grouped(partition.late),
            length(partition.lateness_p99_ms),
        ]);
    }
    table.render(2)
}

fn operator(operator: &OperatorDetails) -> String {
    let lines = match (&operator.spec, &operator.events) {
        (Some(spec), _) => definition(spec),
        (None, Some(events)) => events_definition(events),
        (None, None) => vec![format!("not understood by this version: {}", operator.definition)],
    };
    let panes = operator.open_panes.map_or("not counted".to_owned(), grouped);
    let mut text = format!("  {}\n", printable(&operator.name));
    for line in lines {
        text.push_str(&format!("    {}\n", printable(&line)));
    }
    text.push_str(&format!(
        "    open panes {panes}, state version {}, fingerprint {:016x}\n",
        operator.state_version, operator.fingerprint
    ));
    text
}

fn events_definition(definition: &EventDefinition) -> Vec<String> {
    match definition {
        EventDefinition::Join(spec) => {
            let by =
                if spec.key.is_empty() { "no key".to_owned() } else { format!("by {}", spec.key.join(", ")) };
            vec![format!("{spec}, {by}")]
        }
        EventDefinition::Dedup(spec) => vec![spec.to_string()],
    }
}

fn definition(spec: &OperatorSpec) -> Vec<String> {
    let key = if spec.key.is_empty() { "no key".to_owned() } else { format!("by {}", spec.key.join(", ")) };
    let emission = match (spec.mode, spec.trigger) {
        (Mode::Append, trigger) => format!("append {trigger}"),
        (Mode::Update, _) if spec.gathers_changes() => "update with what changed".to_owned(),
        (Mode::Update, _) => "update after each event".to_owned(),
        (Mode::Complete, _) => "complete".to_owned(),
    };
    let by = match (spec.time, spec.advance) {
        (TimeDomain::Processing, _) => ", by processing time",
        (TimeDomain::Event, Advance::Batch) => ", by batches",
        (TimeDomain::Event, Advance::Event) => "",
    };
    let accumulation = match spec.accumulation {
        Accumulation::Accumulating => "",
        Accumulation::Discarding => ", discarding",
    };
    vec![
        format!("{}{by}, {key}", spec.windows),
        format!("{emission}{accumulation}, allowed lateness {}", spec.allowed_lateness),
        spec.aggregates.iter().map(aggregate).collect::<Vec<_>>().join(", "),
    ]
}

fn aggregate(aggregate: &AggregateSpec) -> String {
    let input = aggregate
        .input
        .as_ref()
        .map_or(String::new(), |input| format!("{} {}", input.field, input.kind.name()));
    format!("{} = {}({input})", aggregate.name, aggregate.function.name())
}

fn files(details: &CheckpointDetails) -> String {
    let mut table =
        Table::new(&["name", ">bytes", "family", ">entries", "first window end", "last window end", "crc32"]);
    for file in &details.files {
        table.row(vec![
            file.name.clone(),
            grouped(file.bytes),
            file.family.clone().unwrap_or(UNKNOWN.to_owned()),
            if file.family.is_some() { grouped(file.entries) } else { UNKNOWN.to_owned() },
            known(file.end_min, |end| end.to_string()),
            known(file.end_max, |end| end.to_string()),
            format!("{:08x}", file.crc32),
        ]);
    }
    table.render(2)
}

fn staged(details: &CheckpointDetails) -> String {
    if details.staged.is_empty() {
        return "  none\n".to_owned();
    }
    let mut table = Table::new(&["output", ">rows", ">bytes"]);
    for staged in &details.staged {
        table.row(vec![staged.sink.clone(), grouped(staged.rows), grouped(staged.bytes)]);
    }
    table.render(2)
}

fn counters(details: &CheckpointDetails) -> String {
    let mut table = Table::new(&["name", ">count"]);
    for (name, count) in &details.counters {
        table.row(vec![name.clone(), grouped(*count)]);
    }
    table.render(2)
}

pub(super) fn windows(report: &WindowsReport) -> String {
    let mut text = origin(&report.checkpoint);
    for operator in &report.operators {
        text.push_str(&operator_windows(operator));
    }
    for held in &report.events {
        text.push_str(&operator_events(held));
    }
    text
}

fn operator_events(held: &OperatorEvents) -> String {
    let what = if held.kind == "join" { "events" } else { "ids" };
    let mut text =
        format!("\n{} {}\n  live     {} {what}", held.kind, printable(&held.name), grouped(held.live));
    if let (Some(first), Some(last)) = (held.live_until_min, held.live_until_max) {
        text.push_str(&format!(", until the watermark is {first} to {last}"));
    }
    text.push('\n');
    for (name, count) in [("expired", held.expired), ("DAMAGED", held.damaged)] {
        if count > 0 {
            text.push_str(&format!("  {name:<8} {} {what}\n", grouped(count)));
        }
    }
    text
}

fn operator_windows(operator: &OperatorWindows) -> String {
    let mut text = format!("\nwindow {}\n", printable(&operator.name));
    for (name, totals) in [
        ("open", operator.open),
        ("closing", operator.closing),
        ("accepts-late", operator.accepts_late),
        ("expired", operator.expired),
    ] {
        if totals.windows > 0 {
            text.push_str(&format!("  {name:<12}  {}\n", sums(totals)));
        }
    }
    if operator.windows.is_empty() {
        return text + "  no panes\n";
    }
    let mut table = Table::new(&["start", "end", ">panes", ">events", "status"]);
    for window in &operator.windows {
        let damaged = match window.damaged {
            0 => String::new(),
            panes => format!(", {} panes DAMAGED", grouped(panes)),
        };
        table.row(vec![
            window.start.to_string(),
            window.end.to_string(),
            grouped(window.panes),
            grouped(window.events),
            format!("{}{damaged}", window.status.name()),
        ]);
    }
    text.push('\n');
    text.push_str(&table.render(2));
    if operator.windows_left_out > 0 {
        text.push_str(&format!("  and {} windows more\n", grouped(operator.windows_left_out)));
    }
    text + &top_keys(operator)
}

fn top_keys(operator: &OperatorWindows) -> String {
    if operator.top_keys.is_empty() {
        return String::new();
    }
    let key = if operator.key.is_empty() { "key".to_owned() } else { operator.key.join(", ") };
    let mut table = Table::new(&[&key, ">events", ">panes"]);
    for top in &operator.top_keys {
        table.row(vec![top.key.to_string(), grouped(top.events), grouped(top.panes)]);
    }
    let note = match operator.top_events_missed_max {
        0 => String::new(),
        missed => {
            format!("  too many keys to count all: a count may lack up to {} events\n", grouped(missed))
        }
    };
    format!("\n{}{note}", table.render(2))
}

fn sums(totals: WindowTotals) -> String {
    let damaged = match totals.damaged {
        0 => String::new(),
        panes => format!(", {} panes DAMAGED", grouped(panes)),
    };
    let (windows, panes, events) = (grouped(totals.windows), grouped(totals.panes), grouped(totals.events));
    format!("windows {windows}, panes {panes}, events {events}{damaged}")
}

pub(super) fn key_panes(report: &KeyReport) -> String {
    let mut text = origin(&report.checkpoint);
    for operator in &report.operators {
        text.push_str(&operator_panes(report, operator));
    }
    text
}

fn operator_panes(report: &KeyReport, operator: &OperatorPanes) -> String {
    let heading = format!(
        "\nwindow {}, {} = {}\n",
        operator.name,
        operator.key.join(", "),
        printable(&report.key.to_string())
    );
    if operator.panes.is_empty() {
        return heading + "  no panes of this key\n";
    }
    let names = operator.panes.iter().find(|pane| pane.problem.is_none());
    let names: Vec<String> = names
        .map_or(Vec::new(), |pane| pane.aggregates.0.iter().map(|(name, _)| format!(">{name}")).collect());
    let headings = ["start", "end", "status", ">events"].into_iter().chain(names.iter().map(String::as_str));
    let mut table = Table::new(&headings.collect::<Vec<_>>());
    for pane in &operator.panes {
        let mut cells = vec![pane.start.to_string(), pane.end.to_string(), pane.status.name().to_owned()];
        match &pane.problem {
            None => {
                cells.push(known(pane.events, grouped));
                cells.extend(values(&pane.aggregates));
            }
            Some(problem) => cells.push(format!("DAMAGED: {problem}")),
        }
        table.row(cells);
    }
    let more = match operator.panes_left_out {
        0 => String::new(),
        panes => format!("  and {} panes more\n", grouped(panes)),
    };
    heading + &table.render(2) + &more
}

fn values(aggregates: &Aggregates) -> impl Iterator<Item = String> + '_ {
    aggregates.0.iter().map(|(_, value)| value.to_string())
}

pub(super) fn verify(checkpoints: &[VerifiedCheckpoint]) -> String {
    let mut text: String = checkpoints.iter().map(verify_one).collect();
    if checkpoints.iter().any(|checkpoint| !checkpoint.sound) {
        text.push_str(
            "  remedy: restore a checkpoint that is sound with `floodmark run PIPELINE --at EPOCH`, or copy \
this one back from where it was kept; `floodmark inspect fsck` says more\n",
        );
    }
    text
}

/// One checkpoint with what was found in it.
pub(super) fn verify_one(checkpoint: &VerifiedCheckpoint) -> String {
    let mut text = format!(
        "checkpoint {}: {}\n  path {}\n  files  {} as the manifest says, {}\n",
        known(checkpoint.epoch, |epoch| epoch.to_string()),
        if checkpoint.sound { "sound" } else { "DAMAGED" },
        printable(&checkpoint.path.display().to_string()),
        grouped(checkpoint.files_verified),
        size(checkpoint.bytes_verified),
    );
    for rows in &checkpoint.operators {
        text.push_str(&format!(
            "  rows   {}: {} panes read back with {} events, {} damaged, {} expired\n",
            printable(&rows.name),
            grouped(rows.panes),
            grouped(rows.events),
            grouped(rows.damaged),
            grouped(rows.expired),
        ));
    }
    for found in &checkpoint.problems {
        let advice = printable(&found.advice);
        text.push_str(&format!("  problem: {}\n    remedy: {advice}\n", printable(&found.problem)));
    }
    for note in &checkpoint.notes {
        text.push_str(&format!("  note: {}\n", printable(note)));
    }
    text
}

pub(super) fn origin(checkpoint: &Origin) -> String {
    format!(
        "checkpoint {} of {}, {} ago, watermark {}\n",
        checkpoint.epoch,
        printable(&checkpoint.pipeline),
        age(checkpoint.age_ms),
        watermark(checkpoint.watermark)
    )
}

fn watermark(watermark: Watermark) -> String {
    match watermark {
        Watermark::None => "none yet".to_owned(),
        other => other.to_string(),
    }
}

pub(super) fn known<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> String {
    value.map_or(UNKNOWN.to_owned(), text)
}

/// A length of time without more detail than helps: whole seconds from one second on.
pub(super) fn age(millis: u64) -> String {
    let millis = i64::try_from(millis).unwrap_or(i64::MAX);
    let whole = if millis >= 1_000 { millis - millis % 1_000 } else { millis };
    Span::from_millis(whole).unwrap_or(Span::ZERO).to_string()
}

/// Bytes in the largest unit that leaves at least one.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut name = "B";
    for unit in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        name = unit;
    }
    if name == "B" { format!("{bytes} B") } else { format!("{value:.1} {name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_ages_are_short() {
        assert_eq!([0, 1023, 1024, 1_572_864].map(size), ["0 B", "1023 B", "1.0 KiB", "1.5 MiB"]);
        assert_eq!([12, 61_999, 3_600_000].map(age), ["12ms", "1m 1s", "1h"]);
    }
}
