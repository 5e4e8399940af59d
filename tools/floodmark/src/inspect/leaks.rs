//! `floodmark inspect leaks`: what is past its expiry and still on disk, and why.

use floodmark::error::Error;
use floodmark::inspect::{self, LeakReport};

use super::place::{Need, One, Watching};
use super::text::{known, origin, size};
use crate::console::print_report as print;
use crate::run::grouped;
use crate::table::{Table, printable};

pub(super) fn run(arguments: &One, now_ms: i64) -> Result<(), Error> {
    let One { place, at } = arguments;
    let located = place.locate(Need::Checkpoint(*at))?;
    let mut watching = Watching::new();
    let mut watch = |so_far| watching.scanned(so_far);
    let mut report = inspect::leaks(&located.path, *at, now_ms, &mut watch)?;
    drop(watching);
    located.name(&mut report.checkpoint.path);
    print(place.json, &report, text)
}

fn text(report: &LeakReport) -> String {
    let mut text = origin(&report.checkpoint);
    if report.rows == 0 {
        return text + "\nnothing on disk is past its expiry\n";
    }
    let database = size(report.database_bytes);
    text.push_str(&format!(
        "\nexpired and still on disk: {} rows of {}; about {} of {database} on disk would be free without them\n",
        grouped(report.rows),
        size(report.row_bytes),
        size(report.reclaimable_bytes),
    ));
    text.push('\n');
    text.push_str(&reasons(report).render(2));
    text.push('\n');
    text.push_str(&files(report).render(2));
    text.push('\n');
    let mut explained: Vec<(&str, &str)> = report
        .operators
        .iter()
        .flat_map(|operator| &operator.reasons)
        .map(|total| (total.reason.name(), total.words))
        .collect();
    explained.sort_unstable();
    explained.dedup();
    for (name, words) in explained {
        text.push_str(&format!("  {name:<17}  {words}\n"));
    }
    if report.compared_with.is_none() {
        text.push_str(
            "  the checkpoint before is not here, or of an earlier run: what should have been deleted by now cannot be told from the rest\n",
        );
    }
    text
}

fn reasons(report: &LeakReport) -> Table {
    let mut table =
        Table::new(&["operator", "reason", ">rows", ">bytes", "first end", "last end", "horizon"]);
    for operator in &report.operators {
        for total in &operator.reasons {
            table.row(vec![
                operator.name.clone(),
                total.reason.name().to_owned(),
                grouped(total.rows),
                size(total.bytes),
                known(total.end_min, |end| end.to_string()),
                known(total.end_max, |end| end.to_string()),
                operator.horizon.to_string(),
            ]);
        }
    }
    table
}

fn files(report: &LeakReport) -> Table {
    let mut table = Table::new(&[
        "file",
        "operator",
        ">level",
        ">size",
        ">entries",
        ">expired",
        ">perhaps",
        ">reclaimable",
        "how",
    ]);
    for file in &report.files {
        let how = if file.whole { "the whole file" } else { "by share of entries" };
        table.row(vec![
            printable(&file.name),
            file.operator.clone(),
            file.level.to_string(),
            size(file.bytes),
            grouped(file.entries),
            grouped(file.rows),
            grouped(file.rows_maybe),
            size(file.reclaimable_bytes),
            how.to_owned(),
        ]);
    }
    table
}
