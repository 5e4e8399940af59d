//! `floodmark inspect diff`: what came between two checkpoints.

use clap::Args;
use floodmark::error::Error;
use floodmark::event_time::Span;
use floodmark::inspect::{
    self, DiffOptions, DiffReport, OperatorDiff, PaneCounts, PartitionMoved, WatermarkMoved,
};

use super::place::{KeyArguments, Need, Place, Watching, locate};
use super::text::size;
use crate::console::print_report as print;
use crate::run::grouped;
use crate::table::{Table, printable};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    place: Place,
    /// Where the later checkpoint is, when it is not beside the earlier one.
    other: Option<String>,
    /// Epoch of the earlier checkpoint; without it the parent of the later one.
    #[arg(long, value_name = "EPOCH")]
    before: Option<u64>,
    /// Epoch of the later checkpoint; without it the newest.
    #[arg(long, value_name = "EPOCH")]
    after: Option<u64>,
    /// Only this window of the pipeline.
    #[arg(long, value_name = "NAME")]
    window: Option<String>,
    #[command(flatten)]
    key: KeyArguments,
    /// List at most so many windows of each operator; the totals are over all.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
}

pub(super) fn run(arguments: &Arguments, now_ms: i64) -> Result<(), Error> {
    let options = DiffOptions {
        before: arguments.before,
        after: arguments.after,
        window: arguments.window.clone(),
        key: arguments.key.asked()?,
        limit: arguments.limit,
    };
    let (before, after) = (arguments.before, arguments.after);
    let other = arguments.other.as_deref().map(|other| locate(other, Need::Checkpoint(after))).transpose()?;
    let need = if other.is_some() { Need::Checkpoint(before) } else { Need::Two(before, after) };
    let located = arguments.place.locate(need)?;
    let mut watching = Watching::new();
    let mut watch = |so_far| watching.scanned(so_far);
    let later = other.as_ref().map(|other| other.path.as_path());
    let mut report = inspect::diff(&located.path, later, &options, now_ms, &mut watch)?;
    drop(watching);
    located.name(&mut report.before.path);
    other.as_ref().unwrap_or(&located).name(&mut report.after.path);
    print(arguments.place.json, &report, text)
}

fn text(report: &DiffReport) -> String {
    let between =
        Span::from_millis(report.between_ms).map_or(String::new(), |span| format!(", {span} apart"));
    let mut text = format!(
        "checkpoints {} and {} of {}{between}\n",
        report.before.epoch,
        report.after.epoch,
        printable(&report.after.pipeline)
    );
    for (name, moved) in [("watermark", &report.watermark), ("horizon", &report.horizon)] {
        text.push_str(&format!("  {name:<10} {}\n", self::moved(moved)));
    }
    let files = &report.files;
    text.push_str(&format!(
        "  {:<10} kept {} ({}), new {} ({}), gone {} ({})\n",
        "files",
        grouped(files.kept),
        size(files.kept_bytes),
        grouped(files.new),
        size(files.new_bytes),
        grouped(files.gone),
        size(files.gone_bytes)
    ));
    text.push_str("\npartitions\n");
    text.push_str(&partitions(&report.partitions).render(2));
    for operator in &report.operators {
        text.push_str(&self::operator(operator));
    }
    for (what, names) in [("gone", &report.operators_gone), ("appeared", &report.operators_appeared)] {
        if !names.is_empty() {
            text.push_str(&format!("\nwindows {what} from the pipeline: {}\n", printable(&names.join(", "))));
        }
    }
    if !report.counters.is_empty() {
        text.push_str("\ncounters that moved\n");
        let mut table = Table::new(&["name", ">before", ">after", ">by"]);
        for counter in &report.counters {
            table.row(vec![
                counter.name.clone(),
                grouped(counter.before),
                grouped(counter.after),
                signed(counter.before, counter.after),
            ]);
        }
        text.push_str(&table.render(2));
    }
    text
}

fn moved(moved: &WatermarkMoved) -> String {
    let by = match (&moved.by, moved.went_back) {
        (_, true) => " (WENT BACK)".to_owned(),
        (Some(by), false) => format!(" ({by})"),
        (None, false) => String::new(),
    };
    if moved.before == moved.after {
        return format!("{}, unmoved", moved.after);
    }
    format!("{} -> {}{by}", moved.before, moved.after)
}

fn partitions(partitions: &[PartitionMoved]) -> Table {
    let mut table = Table::new(&["name", "", ">records", ">by", ">bytes by", "watermark", "moved by"]);
    for partition in partitions {
        let note = match (partition.appeared, partition.gone, partition.finished, partition.idle) {
            (true, ..) => "new",
            (_, true, ..) => "gone",
            (.., true, _) => "at its end",
            (.., true) => "idle",
            _ => "",
        };
        let by = partition.watermark.by.map_or("-".to_owned(), |by| by.to_string());
        table.row(vec![
            partition.name.clone(),
            note.to_owned(),
            grouped(partition.records_after),
            signed(partition.records_before, partition.records_after),
            signed(partition.bytes_before, partition.bytes_after),
            partition.watermark.after.to_string(),
            if partition.watermark.went_back { "WENT BACK".to_owned() } else { by },
        ]);
    }
    table
}

fn operator(operator: &OperatorDiff) -> String {
    let changed = if operator.definition_changed { ", another definition" } else { "" };
    let mut text = format!("\nwindow {}{changed}\n", printable(&operator.name));
    text.push_str(&format!("  fired to {}\n", moved(&operator.fired)));
    let panes = &operator.panes;
    text.push_str(&format!(
        "  panes {} -> {}: appeared {}, changed {}, the same {}, gone {}\n",
        grouped(panes.before),
        grouped(panes.after),
        grouped(panes.appeared),
        grouped(panes.changed),
        grouped(panes.same),
        grouped(panes.gone)
    ));
    if operator.windows.is_empty() && operator.windows_left_out == 0 {
        return text + "  nothing changed\n";
    }
    let mut table = Table::new(&[
        "start",
        "end",
        "change",
        "status",
        ">panes",
        ">appeared",
        ">changed",
        ">gone",
        ">events",
        ">by",
    ]);
    for window in &operator.windows {
        let (before, after) = (window.status_before.name(), window.status_after.name());
        let status = if before == after { after.to_owned() } else { format!("{before} -> {after}") };
        let PaneCounts { after, appeared, changed, gone, events_before, events_after, .. } = window.panes;
        table.row(vec![
            window.start.to_string(),
            window.end.to_string(),
            window.change.to_owned(),
            status,
            grouped(after),
            grouped(appeared),
            grouped(changed),
            grouped(gone),
            grouped(events_after),
            signed(events_before, events_after),
        ]);
    }
    text.push('\n');
    text.push_str(&table.render(2));
    if operator.windows_left_out > 0 {
        text.push_str(&format!("  and {} windows more (--limit)\n", grouped(operator.windows_left_out)));
    }
    text
}

/// By how much a number went up or down.
fn signed(before: u64, after: u64) -> String {
    match after.checked_sub(before) {
        Some(0) => "0".to_owned(),
        Some(more) => format!("+{}", grouped(more)),
        None => format!("-{}", grouped(before - after)),
    }
}
