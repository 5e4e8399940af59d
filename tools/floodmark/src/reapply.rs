//! `floodmark reapply`: works late events into finished results, and says what has changed.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use floodmark::clock::SystemClock;
use floodmark::error::{Error, ErrorKind};
use floodmark::pipeline::config::PipelineConfig;
use floodmark::pipeline::finished::{Change, Reapplied, Reapply, reapply};

use crate::table::{Table, window};
use crate::{CommandResult, console};

/// Changes that are shown to people; all of those that the report lists are in `--json`.
const SHOWN_MAX: usize = 50;

/// Arguments of `floodmark reapply`.
#[derive(Debug, Args)]
#[command(
    after_help = "Writes the whole corrected result set into a new directory and changes nothing in place. It remembers \
which late parts it holds, so that none is counted twice.

Examples:
  floodmark reapply pipeline.toml --window hourly --late out/late --results out/hourly --to out/hourly-2
  floodmark reapply pipeline.toml --window hourly --late out/late --results out/hourly-2 --to out/hourly-3
                                                     later, with the late parts that have come since"
)]
pub(crate) struct Arguments {
    /// The pipeline file that late output and results were written by.
    pipeline: PathBuf,
    /// Name of the window.
    #[arg(long, value_name = "NAME")]
    window: String,
    /// Directory of the late output.
    #[arg(long, value_name = "DIR")]
    late: PathBuf,
    /// Directory of the finished results of the window.
    #[arg(long, value_name = "DIR")]
    results: PathBuf,
    /// Directory for the corrected results; must not exist.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Print what was done as one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let config = PipelineConfig::load(&arguments.pipeline)?;
    let request = Reapply {
        window: arguments.window.clone(),
        late: arguments.late.clone(),
        results: arguments.results.clone(),
        to: arguments.to.clone(),
    };
    let done = reapply(&config, &request, SystemClock::shared())?;
    if arguments.json {
        let text = serde_json::to_string(&done)
            .map_err(|error| Error::new(ErrorKind::Bug, "cannot write the report").with_source(error))?;
        console::print(&format!("{text}\n"))?;
    } else {
        console::print(&describe(&done))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn describe(done: &Reapplied) -> String {
    let mut table = Table::new(&["window", "key", "aggregate", ">before", ">after"]);
    done.changes.iter().take(SHOWN_MAX).for_each(|change| add(&mut table, change));
    let unseen = done.changes.len().saturating_sub(SHOWN_MAX) as u64 + done.left_out;
    let mut text = format!("{}\n", table.render(0));
    if unseen > 0 {
        text.push_str(&format!("{unseen} more rows changed\n"));
    }
    text.push_str(&format!(
        "{} late records of {} parts applied: {} rows corrected, {} added, {} in all; {} parts passed over, applied \
         before\n",
        done.late_records,
        done.parts_applied.len(),
        done.corrected,
        done.added,
        done.rows,
        done.parts_passed_over.len()
    ));
    text
}

fn add(table: &mut Table, change: &Change) {
    let key: Vec<String> = change.key.iter().map(|(_, value)| value.to_string()).collect();
    for (aggregate, before, after) in &change.values {
        table.row(vec![
            window(&change.window_start, &change.window_end),
            key.join(" "),
            aggregate.clone(),
            before.as_ref().map_or("-".to_owned(), ToString::to_string),
            after.to_string(),
        ]);
    }
}
