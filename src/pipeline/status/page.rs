//! The page at `/`, made anew for each look: what a snapshot says, for people.

use std::fmt::Write;

use super::lookout::Warnings;
use super::snapshot::{Moment, Snapshot};
use super::words::length;

/// The page.
#[must_use]
pub fn html(snapshot: &Snapshot, warnings: &Warnings) -> String {
    let name = escaped(&snapshot.run.pipeline);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"5\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{name} · Floodmark</title>\
         <style>:root{{color-scheme:light dark}}body{{font:16px system-ui,sans-serif;margin:2rem}}\
         td,th{{text-align:left;padding:.2rem 1rem .2rem 0}}</style></head><body><main>\n<h1>{name}</h1>\n"
    );
    let watermark = &snapshot.watermark;
    let lag = watermark.event_lag_ms.map_or(String::new(), |lag| {
        format!(", {} behind the latest event", length(lag.max(0).unsigned_abs()))
    });
    paragraph(
        &mut page,
        &format!("{}; watermark {}{lag}", snapshot.run.phase.name(), watermark.combined.text),
    );
    for warning in &warnings.active {
        paragraph(
            &mut page,
            &format!("Warning: {}. {}. {}.", warning.message, warning.cause, warning.remedy),
        );
    }
    let rows = snapshot.partitions.iter().map(|partition| {
        let latest = partition.max_time.as_ref().map_or("none", |max| &max.text).to_owned();
        let holds = if partition.holds_back { "holds the watermark" } else { "" };
        [
            partition.name.clone(),
            partition.state.name().to_owned(),
            partition.watermark.text.clone(),
            latest,
            holds.to_owned(),
        ]
    });
    table(&mut page, "Partitions", ["name", "state", "watermark", "latest event", ""], rows);
    let rows = snapshot.operators.iter().map(|operator| {
        [
            operator.name.clone(),
            operator.windows.clone(),
            format!("{} open, {} panes", operator.open_windows, operator.open_panes),
            operator.next_end.as_ref().map_or("none", |end: &Moment| &end.text).to_owned(),
            format!("{} rows, {} late", operator.rows, operator.late),
        ]
    });
    table(&mut page, "Windows", ["name", "windows", "state", "next to close", "so far"], rows);
    page.push_str(
        "<p>As data: <a href=\"/api/v1/status\">status</a>, <a href=\"/api/v1/history\">history</a>, \
         <a href=\"/api/v1/warnings\">warnings</a>, <a href=\"/api/v1/why\">why is the next window open</a>, \
         <a href=\"/metrics\">metrics</a></p>\n</main></body></html>\n",
    );
    page
}

fn paragraph(page: &mut String, text: &str) {
    // Text in memory takes whatever is written to it.
    let _ = writeln!(page, "<p>{}</p>", escaped(text));
}

fn table<const N: usize>(
    page: &mut String,
    title: &str,
    head: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) {
    let cells = |tag: &str, cells: &[String]| -> String {
        cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell))).collect()
    };
    let head = head.map(str::to_owned);
    let _ = writeln!(page, "<h2>{}</h2>\n<table><tr>{}</tr>", escaped(title), cells("th", &head));
    for row in rows {
        let _ = writeln!(page, "<tr>{}</tr>", cells("td", &row));
    }
    page.push_str("</table>\n");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
