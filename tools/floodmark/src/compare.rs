//! `floodmark compare`: two lanes of one aggregation side by side, as a table or as JSON.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use floodmark::error::{Error, ErrorKind};
use floodmark::pipeline::finished::{Comparison, Difference, JsonText, compare};

use crate::table::{Table, printable, window};
use crate::{CommandResult, console};

/// Exit code when the lanes differ.
pub(crate) const DIFFERENT: u8 = 7;

/// Arguments of `floodmark compare`.
#[derive(Debug, Args)]
#[command(
    after_help = "The fast lane is for live input: of a replayed file it says only how fast it was read.

Examples:
  floodmark compare --exact out/exact --fast out/fast
  floodmark compare --exact out/exact --fast out/fast --json | jq '.differences[].key'
  floodmark compare --exact before/hourly --fast after/hourly    any two results of one aggregation

Results are read from JSON lines."
)]
pub(crate) struct Arguments {
    /// Directory of the results by event time.
    #[arg(long, value_name = "DIR")]
    exact: PathBuf,
    /// Directory of the results by arrival time.
    #[arg(long, value_name = "DIR")]
    fast: PathBuf,
    /// Numbers may differ by this part of themselves, for sums of floats.
    #[arg(long, value_name = "PART", default_value_t = 0.0)]
    tolerance: f64,
    /// List no more differences than this.
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    limit: usize,
    /// Print the report as one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let found = compare(&arguments.exact, &arguments.fast, arguments.tolerance, arguments.limit)?;
    if arguments.json {
        let text = serde_json::to_string(&found)
            .map_err(|error| Error::new(ErrorKind::Bug, "cannot write the report").with_source(error))?;
        console::print(&format!("{text}\n"))?;
    } else {
        console::print(&describe(&found))?;
    }
    Ok(if found.agrees() { ExitCode::SUCCESS } else { ExitCode::from(DIFFERENT) })
}

fn describe(found: &Comparison) -> String {
    let mut text = String::new();
    if !found.differences.is_empty() {
        let mut table = Table::new(&["window", "key", "aggregate", ">exact", ">fast", ">difference"]);
        found.differences.iter().for_each(|difference| add(&mut table, difference));
        text.push_str(&table.render(0));
        text.push('\n');
    }
    if found.left_out > 0 {
        text.push_str(&format!("{} more panes differ (--limit)\n", found.left_out));
    }
    text.push_str(&format!(
        "same {}, different {}, only exact {}, only fast {}, pending {}\n",
        found.same, found.different, found.only_exact, found.only_fast, found.pending
    ));
    if !found.not_compared.is_empty() {
        text.push_str(&format!(
            "not compared, in one lane only: {}\n",
            printable(&found.not_compared.join(", "))
        ));
    }
    if found.windows_in_common == 0 {
        text.push_str(
            "no window is in both lanes: was the input replayed? the fast lane has a meaning for live input only\n",
        );
    }
    text
}

fn add(table: &mut Table, difference: &Difference) {
    let key: Vec<String> = difference.key.iter().map(|(_, value)| value.to_string()).collect();
    let shown = |value: &Option<JsonText>| value.as_ref().map_or("-".to_owned(), JsonText::to_string);
    for value in &difference.values {
        table.row(vec![
            window(&difference.window_start, &difference.window_end),
            key.join(" "),
            value.aggregate.clone(),
            shown(&value.exact),
            shown(&value.fast),
            shown(&value.difference),
        ]);
    }
}
