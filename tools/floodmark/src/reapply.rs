//! `floodmark reapply`: works late events into finished results or into a savepoint, and says what has changed.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use floodmark::clock::SystemClock;
use floodmark::pipeline::config::PipelineConfig;
use floodmark::pipeline::finished::{
    Change, Reapplied, ReappliedSavepoint, Reapply, ReapplySavepoint, reapply, reapply_savepoint,
};

use crate::run::counted;
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
  floodmark reapply p.toml --window hourly --late out/late --results out/hourly --to out/hourly-2
  floodmark reapply p.toml --window hourly --late out/late --results out/hourly-2 --to out/hourly-3
                           later, with the late parts that have come since
  floodmark reapply p.toml --late out/late --savepoint state/savepoints/monday --to monday-2
                           into the windows of a savepoint that are still to fire"
)]
pub(crate) struct Arguments {
    /// The pipeline file that late output and results were written by.
    pipeline: PathBuf,
    /// Name of the window.
    #[arg(long, value_name = "NAME", required_unless_present = "savepoint", conflicts_with = "savepoint")]
    window: Option<String>,
    /// Directory of the late output.
    #[arg(long, value_name = "DIR")]
    late: PathBuf,
    /// Directory of the finished results of the window.
    #[arg(long, value_name = "DIR", required_unless_present = "savepoint", conflicts_with = "savepoint")]
    results: Option<PathBuf>,
    /// Savepoint to work the late events of all windows into, where they are still to fire.
    #[arg(long, value_name = "DIR")]
    savepoint: Option<PathBuf>,
    /// Also apply records that the savepoint has not read yet: they will be late again when they are read (same
    /// pipeline file, same input), or are not there to be read. Where they would count after all, they count twice.
    #[arg(long, requires = "savepoint")]
    late_again: bool,
    /// Directory for the corrected results, or of the new savepoint; must not exist.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Print what was done as one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let config = PipelineConfig::load(&arguments.pipeline)?;
    if let Some(savepoint) = &arguments.savepoint {
        return into_savepoint(arguments, &config, savepoint);
    }
    let request = Reapply {
        // Without a savepoint both are required.
        window: arguments.window.clone().unwrap_or_default(),
        late: arguments.late.clone(),
        results: arguments.results.clone().unwrap_or_default(),
        to: arguments.to.clone(),
    };
    let done = reapply(&config, &request, SystemClock::shared())?;
    console::print_report(arguments.json, &done, describe)?;
    Ok(ExitCode::SUCCESS)
}

fn into_savepoint(arguments: &Arguments, config: &PipelineConfig, savepoint: &Path) -> CommandResult {
    console::start_log(true);
    let request = ReapplySavepoint {
        late: arguments.late.clone(),
        savepoint: savepoint.to_owned(),
        to: arguments.to.clone(),
        late_again: arguments.late_again,
    };
    let done = reapply_savepoint(config, &request, SystemClock::shared())?;
    console::print_report(arguments.json, &done, describe_savepoint)?;
    Ok(ExitCode::SUCCESS)
}

fn describe_savepoint(done: &ReappliedSavepoint) -> String {
    let mut table = Table::new(&["window or reason", ">events", "what"]);
    for (window, events) in &done.applied {
        table.row(vec![window.clone(), events.to_string(), "worked in".to_owned()]);
    }
    for (reason, records) in &done.not_applied {
        table.row(vec![reason.to_string(), records.to_string(), "not worked in".to_owned()]);
    }
    format!(
        "{}\nsavepoint {} of epoch {}: {} worked in, {} passed over, worked in before\n",
        table.render(0),
        done.savepoint.display(),
        done.epoch,
        parts(done.parts_applied.len()),
        done.parts_passed_over.len()
    )
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
        "{} of {} applied: {} corrected, {} added, {} in all; {} passed over, applied before\n",
        counted(done.late_records, "late record", "late records"),
        parts(done.parts_applied.len()),
        counted(done.corrected, "row", "rows"),
        done.added,
        done.rows,
        parts(done.parts_passed_over.len())
    ));
    text
}

fn parts(count: usize) -> String {
    counted(count as u64, "part", "parts")
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
