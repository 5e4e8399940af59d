//! `floodmark inspect panes`: every pane with its status, as far as it is asked for.

use clap::Args;
use floodmark::error::Error;
use floodmark::inspect::{self, ListedPane, OperatorListing, PanesReport, WindowStatus};

use super::place::{FilterArguments, Need, One, Watching};
use super::text::{known, origin, size};
use crate::console::print_report as print;
use crate::run::grouped;
use crate::table::{Table, printable};

#[derive(Debug, Args)]
pub(super) struct Panes {
    #[command(flatten)]
    one: One,
    #[command(flatten)]
    filter: FilterArguments,
    /// List at most so many panes of each window; the totals are over all.
    #[arg(long, value_name = "N", default_value_t = 200)]
    limit: usize,
}

pub(super) fn run(arguments: &Panes, now_ms: i64) -> Result<(), Error> {
    let One { place, at } = &arguments.one;
    let filter = arguments.filter.filter()?;
    let located = place.locate(Need::Checkpoint(*at))?;
    let mut watching = Watching::new();
    let mut watch = |so_far| watching.scanned(so_far);
    let mut report = inspect::panes(&located.path, *at, &filter, arguments.limit, now_ms, &mut watch)?;
    drop(watching);
    located.name(&mut report.checkpoint.path);
    print(place.json, &report, text)
}

fn text(report: &PanesReport) -> String {
    let mut text = origin(&report.checkpoint);
    for operator in &report.operators {
        text.push_str(&listing(operator));
    }
    text
}

fn listing(operator: &OperatorListing) -> String {
    let of = if operator.slices { ", in slices that windows share" } else { "" };
    let mut text = format!("\nwindow {}, {}{of}\n", printable(&operator.name), operator.windows);
    for status in WindowStatus::ALL {
        let totals = operator.totals.of(status);
        if totals.panes > 0 {
            let damaged = match totals.damaged {
                0 => String::new(),
                panes => format!(", {} DAMAGED", grouped(panes)),
            };
            text.push_str(&format!(
                "  {:<12}  panes {}, events {}, {}{damaged}\n",
                status.name(),
                grouped(totals.panes),
                grouped(totals.events),
                size(totals.bytes)
            ));
        }
    }
    if operator.panes.is_empty() && operator.panes_left_out == 0 {
        return text + "  no such panes\n";
    }
    text.push('\n');
    text.push_str(&table(operator).render(2));
    if operator.panes_left_out > 0 {
        let more = grouped(operator.panes_left_out);
        text.push_str(&format!("  and {more} panes more (--limit)\n"));
    }
    text
}

fn table(operator: &OperatorListing) -> Table {
    let key = if operator.key.is_empty() { "key".to_owned() } else { operator.key.join(", ") };
    let names = operator.panes.iter().find(|pane| pane.problem.is_none());
    let names: Vec<String> = names
        .map_or(Vec::new(), |pane| pane.aggregates.0.iter().map(|(name, _)| format!(">{name}")).collect());
    let emits = operator.panes.iter().any(|pane| pane.emissions.is_some());
    let mut headings = vec![key.as_str(), "start", "end", "status", "closes at", "expires at", ">events"];
    headings.extend(emits.then_some(">emitted"));
    headings.push(">bytes");
    headings.extend(names.iter().map(String::as_str));
    let mut table = Table::new(&headings);
    operator.panes.iter().for_each(|pane| table.row(row(pane, emits)));
    table
}

fn row(pane: &ListedPane, emits: bool) -> Vec<String> {
    let time = |time| known(time, |time: floodmark::event_time::EventTime| time.to_string());
    let mut cells = vec![
        pane.key.to_string(),
        pane.start.to_string(),
        pane.end.to_string(),
        pane.status.name().to_owned(),
        time(pane.closes_at),
        time(pane.expires_at),
        known(pane.events, grouped),
    ];
    cells.extend(emits.then(|| known(pane.emissions, |times| times.to_string())));
    cells.push(grouped(pane.bytes));
    match &pane.problem {
        Some(problem) => cells.push(format!("DAMAGED: {problem}")),
        None => cells.extend(pane.aggregates.0.iter().map(|(_, value)| value.to_string())),
    }
    cells
}
