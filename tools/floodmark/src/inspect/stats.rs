//! `floodmark inspect stats`: what the state is made of.

use clap::Args;
use floodmark::error::Error;
use floodmark::inspect::{
    self, OperatorStats, PaneStats, SessionStats, StatsOptions, StatsReport, Timer, WindowStatus,
};

use super::place::{FilterArguments, Need, One, Watching};
use super::text::{known, origin, size};
use crate::console::print_report as print;
use crate::run::grouped;
use crate::table::{Table, printable};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    one: One,
    #[command(flatten)]
    filter: FilterArguments,
    /// Name so many windows, panes, beginnings of keys and instants, each.
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Characters of the first key field that make a beginning.
    #[arg(long, value_name = "N", default_value_t = 2)]
    prefix_chars: usize,
}

pub(super) fn run(arguments: &Arguments, now_ms: i64) -> Result<(), Error> {
    let One { place, at } = &arguments.one;
    let options = StatsOptions { top: arguments.top, prefix_chars: arguments.prefix_chars };
    let filter = arguments.filter.filter()?;
    let located = place.locate(Need::Checkpoint(*at))?;
    let mut watching = Watching::new();
    let mut watch = |so_far| watching.scanned(so_far);
    let mut report = inspect::stats(&located.path, *at, &filter, options, now_ms, &mut watch)?;
    drop(watching);
    located.name(&mut report.checkpoint.path);
    print(place.json, &report, text)
}

fn text(report: &StatsReport) -> String {
    let mut text = origin(&report.checkpoint);
    report.operators.iter().for_each(|operator| text.push_str(&self::operator(operator)));
    text
}

fn operator(operator: &OperatorStats) -> String {
    let mut text = format!(
        "\nwindow {}, {}, {} in its files\n",
        printable(&operator.name),
        operator.windows,
        size(operator.file_bytes)
    );
    let mut table = Table::new(&["status", ">panes", ">events", ">bytes", ">bytes per pane"]);
    for status in WindowStatus::ALL {
        let totals = operator.totals.of(status);
        if totals.panes > 0 {
            table.row(vec![
                status.name().to_owned(),
                grouped(totals.panes),
                grouped(totals.events),
                size(totals.bytes),
                grouped(totals.bytes / totals.panes),
            ]);
        }
    }
    text.push_str(&table.render(2));
    text.push_str(&windows(operator));
    text.push_str(&prefixes(operator));
    text.push_str(&panes("largest panes", &operator.largest_panes));
    text.push_str(&operator.sessions.as_ref().map_or(String::new(), sessions));
    text + &timers(operator)
}

fn windows(operator: &OperatorStats) -> String {
    if operator.largest_windows.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["start", "end", "status", ">panes", ">events", ">bytes"]);
    for window in &operator.largest_windows {
        table.row(vec![
            window.start.to_string(),
            window.end.to_string(),
            window.status.name().to_owned(),
            grouped(window.panes.panes),
            grouped(window.panes.events),
            size(window.panes.bytes),
        ]);
    }
    format!("\n  largest windows\n{}", table.render(4))
}

fn prefixes(operator: &OperatorStats) -> String {
    if operator.prefixes.is_empty() || operator.key.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["beginning", ">panes", ">events", ">bytes"]);
    for prefix in &operator.prefixes {
        table.row(vec![
            prefix.prefix.to_string(),
            grouped(prefix.panes),
            grouped(prefix.events),
            size(prefix.bytes),
        ]);
    }
    let field = operator.key.first().map_or("key", String::as_str);
    let note = match operator.prefix_bytes_missed_max {
        0 => String::new(),
        missed => format!("    too many beginnings to count all: one may lack up to {}\n", size(missed)),
    };
    format!(
        "\n  keys by the first {} characters of {}, panes that have not expired\n{}{note}",
        operator.prefix_chars,
        printable(field),
        table.render(4)
    )
}

fn panes(title: &str, panes: &[PaneStats]) -> String {
    if panes.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["key", "start", "end", "status", ">events", ">bytes"]);
    for pane in panes {
        table.row(vec![
            pane.key.to_string(),
            pane.start.to_string(),
            pane.end.to_string(),
            pane.status.name().to_owned(),
            known(pane.events, grouped),
            grouped(pane.bytes),
        ]);
    }
    format!("\n  {title}\n{}", table.render(4))
}

fn sessions(sessions: &SessionStats) -> String {
    let mean = sessions.length_mean.map_or(String::new(), |mean| format!(", {mean} long in the mean"));
    let first = sessions.start_min.map_or(String::new(), |start| format!(", the first from {start}"));
    let head = format!(
        "\n  sessions that have not expired: {} of gap {}{mean}{first}\n",
        grouped(sessions.sessions),
        sessions.gap
    );
    head + &panes("longest sessions", &sessions.longest)
}

fn timers(operator: &OperatorStats) -> String {
    let timers = &operator.timers;
    let kinds = [
        ("close", timers.closings, &timers.next_closings),
        ("expire", timers.expiries, &timers.next_expiries),
        ("fire early", timers.early_firings, &timers.next_early_firings),
    ];
    let mut text = String::new();
    for (what, panes, next) in kinds {
        if panes > 0 {
            let soonest: Vec<String> = next.iter().take(3).map(timer).collect();
            text.push_str(&format!(
                "    {what:<10}  {} panes; next {}\n",
                grouped(panes),
                soonest.join(", ")
            ));
        }
    }
    if text.is_empty() { text } else { format!("\n  due when the watermark gets there\n{text}") }
}

fn timer(timer: &Timer) -> String {
    format!("{} ({})", timer.at, grouped(timer.panes))
}
