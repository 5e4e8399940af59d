//! The report as one HTML file: no script, nothing from elsewhere, light or dark as the reader has it.

use std::fmt::Write as _;

use super::plot::{Dot, dots};
use super::text::{failures, length, rows_of};
use super::{Report, Verdict};
use crate::drill::plan::Moment;
use crate::plot::escape;
use crate::run::grouped;

/// Kills that are listed; the JSON report has them all.
const LISTED_MAX: usize = 1_000;

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1d2129; --paper: #ffffff; --soft: #6b7280; --line: #d9dde3; --good: #1a7f4b;
  --bad: #c0272d; --open: #a86400; --random: #2f6fde; --point: #8a3ffc; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --paper: #15181d; --soft: #9aa3af; --line: #343a43;
  --good: #4cc38a; --bad: #ff6b6b; --open: #f0b429; --random: #74a4ff; --point: #c39bff; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.verdict { border-left: 6px solid; padding: .6rem 1rem; font-size: 1.1rem; }
.pass { border-color: var(--good); } .fail { border-color: var(--bad); } .inconclusive { border-color: var(--open); }
table { border-collapse: collapse; display: block; overflow-x: auto; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .2rem .9rem .2rem 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--soft); font-weight: 600; } td.n, th.n { text-align: right; }
pre, code { font-family: ui-monospace, monospace; font-size: .85rem; } pre { overflow-x: auto; padding: .6rem;
  border: 1px solid var(--line); }
svg { width: 100%; height: auto; } svg text { font: 11px system-ui, sans-serif; fill: var(--soft); }
.grid { stroke: var(--line); } .median { stroke: var(--soft); stroke-dasharray: 5 4; }
circle.random { fill: var(--random); } circle.point { fill: var(--point); } circle.bad { fill: var(--bad); }
.key::before { content: '\\25CF  '; } .key.random { color: var(--random); } .key.point { color: var(--point); }
.key.bad { color: var(--bad); } .soft { color: var(--soft); }
";

/// The whole page.
pub(super) fn page(report: &Report) -> String {
    let class = match report.verdict {
        Verdict::Pass => "pass",
        Verdict::Fail => "fail",
        Verdict::Inconclusive => "inconclusive",
    };
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>Recovery drill of {name}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>Recovery drill of {name}</h1>\n<p class=\"verdict {class}\">{}</p>\n",
        escape(&report.summary),
        name = escape(&report.pipeline),
    );
    page += &section("Figures", &figures(report));
    page += &section("Time to recover, by kill", &recovery(report));
    page += &section("Events processed again, by kill", &replayed(report));
    let failures = failures(report);
    if !failures.is_empty() {
        let texts = failures.iter().map(|text| format!("<pre>{}</pre>\n", escape(text)));
        page += &section("What went wrong", &texts.collect::<String>());
    }
    page += &section("Kills", &kills(report));
    page += &section("Damaged checkpoints", &damages(report));
    page += &section("Outputs", &outputs(report));
    page += &section("How it was done", &setting(report));
    page + "</body>\n</html>\n"
}

fn section(title: &str, body: &str) -> String {
    format!("<section>\n<h2>{}</h2>\n{body}</section>\n", escape(title))
}

/// A table whose headings that start with `>` are columns of numbers.
fn table(headings: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let class = |column: usize| {
        if headings.get(column).is_some_and(|heading| heading.starts_with('>')) { " class=\"n\"" } else { "" }
    };
    let mut text = "<table>\n<thead><tr>".to_owned();
    for (column, heading) in headings.iter().enumerate() {
        // Writing to a string does not fail.
        let _ = write!(text, "<th{}>{}</th>", class(column), escape(heading.trim_start_matches('>')));
    }
    text += "</tr></thead>\n<tbody>\n";
    for row in rows {
        text += "<tr>";
        for (column, cell) in row.iter().enumerate() {
            let _ = write!(text, "<td{}>{}</td>", class(column), escape(cell));
        }
        text += "</tr>\n";
    }
    text + "</tbody>\n</table>\n"
}

fn figures(report: &Report) -> String {
    table(&["what", "result"], rows_of(report).into_iter().map(|(name, value)| vec![name.to_owned(), value]))
}

fn recovery(report: &Report) -> String {
    let plotted: Vec<Dot> = report
        .kills()
        .filter_map(|(number, good, kill)| {
            let value = kill.recovery_ms?;
            let title = format!("trial {number}, killed {}: {}", kill.moment, length(value));
            Some(Dot { value, title, class: class(good, kill.moment) })
        })
        .collect();
    let plot = dots("time to recover by kill", "ms", &plotted, report.totals.recovery_ms_median);
    format!(
        "<p class=\"soft\">From the start of the process to its first new event; the dashed line is the median. \
         <span class=\"key random\">random moment</span> &nbsp; <span class=\"key point\">chosen point</span> &nbsp; \
         <span class=\"key bad\">trial failed</span></p>\n{plot}"
    )
}

fn replayed(report: &Report) -> String {
    let plotted: Vec<Dot> = report
        .kills()
        .map(|(number, good, kill)| {
            let title = format!("trial {number}, killed {}: {} events", kill.moment, grouped(kill.replayed));
            Dot { value: kill.replayed as f64, title, class: class(good, kill.moment) }
        })
        .collect();
    dots("events processed again by kill", "events", &plotted, None)
}

const fn class(good: bool, moment: Moment) -> &'static str {
    match (good, moment) {
        (false, _) => "bad",
        (true, Moment::Random { .. }) => "random",
        (true, Moment::Point { .. }) => "point",
    }
}

fn kills(report: &Report) -> String {
    let rows = report.kills().take(LISTED_MAX).map(|(number, good, kill)| {
        vec![
            number.to_string(),
            kill.moment.to_string(),
            length(kill.after_ms),
            kill.checkpoint.map_or("none".to_owned(), |epoch| epoch.to_string()),
            grouped(kill.replayed),
            kill.recovery_ms.map_or("killed before".to_owned(), length),
            if good { "the same" } else { "FAILED" }.to_owned(),
        ]
    });
    let headings =
        [">trial", "killed", ">after", ">checkpoint", ">events replayed", ">recovered in", "result"];
    let more = (report.totals.restores as usize).saturating_sub(LISTED_MAX);
    let more =
        if more == 0 { String::new() } else { format!("<p>And {more} more, in the JSON report.</p>\n") };
    table(&headings, rows) + &more
}

fn damages(report: &Report) -> String {
    let rows = report.damages.iter().map(|damage| {
        vec![
            damage.target.to_string(),
            damage.how.clone(),
            damage.file.clone(),
            if damage.detected { "noticed" } else { "NOT NOTICED" }.to_owned(),
            match &damage.went_back {
                None => "-".to_owned(),
                Some(back) if back.same_bytes => format!("checkpoint {}: the same", back.epoch),
                Some(back) => format!("checkpoint {}: FAILED", back.epoch),
            },
        ]
    });
    table(&["what", "how", "file", "start", "the one before"], rows)
}

fn outputs(report: &Report) -> String {
    let rows = report.outputs.iter().map(|output| {
        let remark =
            output.left_out.as_ref().map_or(String::new(), |reason| format!("not compared: {reason}"));
        vec![
            output.name.clone(),
            grouped(output.rows),
            grouped(output.lost),
            grouped(output.doubled),
            grouped(output.strange),
            remark,
        ]
    });
    table(&["output", ">rows", ">lost", ">doubled", ">other content", "remark"], rows)
}

fn setting(report: &Report) -> String {
    let environment = &report.environment;
    let build = if environment.debug_build { ", a debug build: slower than a release" } else { "" };
    let mut text = format!(
        "<p>floodmark {} on {} {}, {} cores{build}. Seed {}. The drill took {}.</p>\n<p>To do the same again:</p>\n\
         <pre>{}</pre>\n",
        escape(environment.version),
        escape(environment.system),
        escape(environment.processor),
        environment.cores,
        report.seed,
        length(report.seconds * 1_000.0),
        escape(&report.command)
    );
    for note in &report.notes {
        let _ = writeln!(text, "<p>{}</p>", escape(note));
    }
    if let Some(evidence) = &report.evidence {
        let _ = writeln!(
            text,
            "<p>Everything is left in <code>{}</code>.</p>",
            escape(&evidence.display().to_string())
        );
    }
    text + "<p class=\"soft\">A drill kills processes and damages files. It does not cut the power, and says nothing of \
            disks that lie about syncs, nor of what is behind an output that is not a file.</p>\n"
}
