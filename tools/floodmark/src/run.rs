//! `floodmark run`: runs a pipeline and shows how it goes.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use floodmark::checkpoint::Environment;
use floodmark::checkpoint::savepoint::{CreateRequest, SavepointName, create};
use floodmark::clock::SystemClock;
use floodmark::error::{Error, ErrorKind};
use floodmark::pipeline::config::{PipelineConfig, StatusConfig, parse_address};
use floodmark::pipeline::{Progress, Restart, RunOptions, RunSummary, Watch, run_until_signalled};
use floodmark::store::CheckpointReport;

use crate::{CommandResult, console};

/// Time between two progress lines where nobody watches.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Arguments of `floodmark run`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  floodmark run pipeline.toml            run, or go on where the last run stopped
  floodmark run pipeline.toml --json     the summary as one JSON object on standard output
  floodmark run pipeline.toml --status   and a page at http://127.0.0.1:9470/ that shows how it goes
  zcat events.gz | floodmark run p.toml  with path = \"-\" in the file")]
pub(crate) struct Arguments {
    /// The pipeline file (TOML).
    pipeline: PathBuf,
    /// Stop at the first record that cannot be used, instead of setting it aside.
    #[arg(long)]
    strict: bool,
    /// Print the summary as JSON on standard output.
    #[arg(long)]
    json: bool,
    /// No progress, only warnings and errors.
    #[arg(long, short)]
    quiet: bool,
    /// Restore the checkpoint of this epoch instead of the newest.
    #[arg(long, value_name = "EPOCH")]
    at: Option<u64>,
    /// Move output that the restored checkpoint does not know aside instead of refusing: with --at, that of later
    /// epochs, which readers may see again; with new state, that of an older one.
    #[arg(long)]
    set_aside_output: bool,
    /// When the run ends, or is told to stop, keep its last checkpoint as a savepoint of this name.
    #[arg(long, value_name = "NAME")]
    savepoint_on_stop: Option<String>,
    /// Drop the state of windows, joins and aggregates that the pipeline file no longer has, instead of refusing to
    /// start. `floodmark check` says what would be lost.
    #[arg(long)]
    allow_dropped: bool,
    /// Go on without rows that the restored checkpoint had staged and that are gone with a lost machine, instead of
    /// refusing to start. The log says which, and the summary how many.
    #[arg(long)]
    accept_lost_output: bool,
    /// No more events per second than this, to watch a run.
    #[arg(long, value_name = "EVENTS")]
    rate: Option<std::num::NonZeroU32>,
    /// Show how the run stands over HTTP: a page, metrics for Prometheus, REST. A port alone is on this machine only;
    /// without ADDRESS it is 127.0.0.1:9470, or what [status] says.
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1)]
    status: Option<Option<String>>,
    /// Let the status page show single keys and their values.
    #[arg(long)]
    status_keys: bool,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    console::start_log(arguments.quiet);
    let mut config = PipelineConfig::load(&arguments.pipeline)?;
    config.status = status(arguments, config.status)?;
    let keep = arguments.savepoint_on_stop.as_deref().map(|name| Keep::new(name, &config)).transpose()?;
    let options = RunOptions {
        strict: arguments.strict,
        restore_at: arguments.at,
        set_aside_output: arguments.set_aside_output,
        allow_dropped: arguments.allow_dropped,
        accept_lost_output: arguments.accept_lost_output,
        rate: arguments.rate,
    };
    if arguments.json && config.prints_results() {
        let message = "--json prints on standard output, where an output of the pipeline (path = \"-\") prints its rows";
        return Err(Error::new(ErrorKind::Invalid, message)
            .with_remedy("leave --json out, or give that output a directory"));
    }
    let mut screen = Screen::new(arguments.quiet);
    let result = run_until_signalled(&config, options, SystemClock::shared(), &mut screen);
    screen.clear();
    let summary = result?;
    // The summary first: a savepoint that cannot be made takes nothing from the run.
    if arguments.json {
        let json = serde_json::to_string(&summary)
            .map_err(|error| Error::new(ErrorKind::Bug, "cannot write the summary").with_source(error))?;
        console::print(&format!("{json}\n"))?;
    } else if !arguments.quiet {
        match config.prints_results() {
            true => console::say(describe(&summary).trim_end()),
            false => console::print(&describe(&summary))?,
        }
    }
    if let Some(keep) = keep {
        keep.checkpoint(&summary, arguments.quiet)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Where to show how the run stands: what the command says goes before the file.
fn status(arguments: &Arguments, file: Option<StatusConfig>) -> Result<Option<StatusConfig>, Error> {
    let asked = match &arguments.status {
        None => file,
        Some(None) => Some(file.unwrap_or_default()),
        Some(Some(text)) => {
            let address = parse_address(text).ok_or_else(|| {
                Error::new(ErrorKind::Invalid, format!("this is no address to listen at: --status {text}"))
                    .with_remedy(
                        "write a port, such as 9470, or an address with a port, such as 127.0.0.1:9470",
                    )
            })?;
            Some(StatusConfig { address, ..file.unwrap_or_default() })
        }
    };
    if arguments.status_keys && asked.is_none() {
        return Err(Error::new(ErrorKind::Invalid, "--status-keys without a status page")
            .with_remedy("add --status, or a [status] table to the pipeline file"));
    }
    Ok(asked.map(|status| StatusConfig { keys: status.keys || arguments.status_keys, ..status }))
}

/// The savepoint to be made at the end.
struct Keep {
    name: SavepointName,
    state: PathBuf,
}

impl Keep {
    /// Refuses, before anything is run, a name that cannot be had.
    fn new(name: &str, config: &PipelineConfig) -> Result<Self, Error> {
        let (name, state) = (SavepointName::parse(name)?, config.state.directory.clone());
        let path = state.join("savepoints").join(name.as_str());
        if path.symlink_metadata().is_ok() {
            let message = format!("there is a savepoint of this name already: path={}", path.display());
            return Err(Error::new(ErrorKind::Invalid, message)
                .with_remedy("choose another name, or delete it with `floodmark savepoint delete`"));
        }
        Ok(Self { name, state })
    }

    fn checkpoint(self, summary: &RunSummary, quiet: bool) -> Result<(), Error> {
        if summary.checkpoints.last_epoch.or(summary.start.epoch).is_none() {
            let message = format!(
                "no savepoint was made: nothing was read, and nothing is stored: name={}",
                self.name.as_str()
            );
            return Err(Error::new(ErrorKind::Invalid, message)
                .with_remedy("nothing is lost: start again with the same input; there is a savepoint once something was read"));
        }
        let request = CreateRequest {
            name: self.name,
            from: self.state,
            at: summary.checkpoints.last_epoch,
            to: None,
            note: format!("taken when the run {}", summary.outcome),
            late_parts: Default::default(),
        };
        let made = create(&request, &Environment::new(SystemClock::shared()))?;
        if !quiet {
            console::say(&format!("savepoint {} of epoch {}", made.path.display(), made.record.epoch));
        }
        Ok(())
    }
}

/// Shows progress: one line that is redrawn on a terminal, a line now and then elsewhere.
struct Screen {
    quiet: bool,
    terminal: bool,
    drawn: bool,
    last_line: Duration,
}

impl Screen {
    fn new(quiet: bool) -> Self {
        Self { quiet, terminal: console::stderr_is_terminal(), drawn: false, last_line: Duration::ZERO }
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            console::redraw("");
        }
    }
}

impl Watch for Screen {
    fn started(&mut self, restart: &Restart) {
        if self.quiet {
            return;
        }
        match restart.epoch {
            None => console::say("starting with empty state"),
            Some(epoch) => console::say(&format!(
                "resuming from checkpoint {epoch}, {} restored in {:.0} ms",
                counted(restart.panes, "pane", "panes"),
                restart.took_ms
            )),
        }
    }

    fn progress(&mut self, progress: &Progress) {
        if self.quiet {
            return;
        }
        if self.terminal {
            console::redraw(&progress_line(progress));
            self.drawn = true;
        } else if progress.elapsed.saturating_sub(self.last_line) >= LOG_INTERVAL {
            self.last_line = progress.elapsed;
            console::say(&progress_line(progress));
        }
    }

    fn checkpoint(&mut self, report: &CheckpointReport) {
        tracing::debug!(
            epoch = report.epoch,
            watermark = %report.watermark,
            panes = report.panes_written,
            new_bytes = report.new_bytes,
            pause_ms = report.pause.as_millis() as u64,
            spill_ms = report.spill.as_millis() as u64,
            link_ms = report.link.as_millis() as u64,
            publish_ms = report.publish.as_millis() as u64,
            upload_ms = report.upload.as_millis() as u64,
            output_ms = report.output.as_millis() as u64,
            "checkpoint"
        );
    }
}

fn progress_line(progress: &Progress) -> String {
    let seconds = progress.elapsed.as_secs_f64().max(0.001);
    let checkpoint = match (progress.last_epoch, progress.checkpoint_age) {
        (Some(epoch), Some(age)) => format!("checkpoint {epoch}, {} s ago", age.as_secs()),
        (Some(epoch), None) => format!("checkpoint {epoch}"),
        _ => "no checkpoint yet".to_owned(),
    };
    format!(
        "{} events  {}/s  watermark {}  {} open panes  {} results  {} late  {} rejected  {checkpoint}",
        grouped(progress.events),
        grouped((progress.events_this_run as f64 / seconds) as u64),
        progress.watermark,
        grouped(progress.open_panes),
        grouped(progress.results),
        grouped(progress.late),
        grouped(progress.rejected),
    )
}

fn events(count: u64) -> String {
    counted(count, "event", "events")
}

/// The summary for people.
fn describe(summary: &RunSummary) -> String {
    let mut lines = vec![format!(
        "{} {}: {} in {:.2} s ({} events/s)",
        summary.pipeline,
        summary.outcome,
        counted(summary.events, "event", "events"),
        summary.seconds,
        grouped(summary.events_per_second as u64)
    )];
    let mut row = |name: &str, value: String| lines.push(format!("  {name:<12} {value}"));
    row("watermark", summary.watermark.clone());
    if summary.steps_back > 0 {
        row("steps back", format!("{} of this run that went back in time", events(summary.steps_back)));
    }
    row("events", format!("{} in total", grouped(summary.total.events)));
    if summary.start.epoch.is_some() {
        row("", "and in total, with all runs before this one:".to_owned());
    }
    for (window, rows) in &summary.total.results {
        row("results", format!("{} of {window}", counted(*rows, "row", "rows")));
    }
    for (window, late) in &summary.total.late {
        row("late", format!("{} for {window}", events(*late)));
    }
    for (source, repeated) in &summary.total.duplicates {
        row("duplicates", format!("{} of {source}", events(*repeated)));
    }
    for (reason, rejected) in &summary.total.rejected {
        row("rejected", format!("{}: {reason}", counted(*rejected, "record", "records")));
    }
    if summary.total.filtered > 0 {
        row("filtered", counted(summary.total.filtered, "record", "records"));
    }
    if summary.unended.files > 0 {
        let bytes = counted(summary.unended.bytes, "byte", "bytes");
        let files = counted(summary.unended.files, "file", "files");
        row("left", format!("{bytes} of last lines without a line end, in {files}"));
    }
    row("open panes", grouped(summary.open_panes));
    let checkpoints = &summary.checkpoints;
    let last = checkpoints.last_epoch.map_or("none".to_owned(), |epoch| epoch.to_string());
    row("checkpoints", format!("{} in this run, newest {last}", checkpoints.count));
    if let Some(uploads) = &summary.repository {
        let last = uploads.last_epoch.map_or("none".to_owned(), |epoch| epoch.to_string());
        let failed = match uploads.failed {
            0 => String::new(),
            failed => format!(", {failed} FAILED"),
        };
        let bytes = grouped(uploads.new_bytes);
        row(
            "repository",
            format!("{} uploaded in this run{failed}, newest {last}, {bytes} bytes", uploads.uploaded),
        );
    }
    lines.join("\n") + "\n"
}

/// How many there are of something: `1 event`, `1,234 events`.
pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(count), if count == 1 { one } else { many })
}

/// A number with its digits in groups of three.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_one() {
        assert_eq!([0, 1, 1_000].map(events), ["0 events", "1 event", "1,000 events"]);
    }

    #[test]
    fn digits_are_grouped_by_three() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
