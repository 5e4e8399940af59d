//! `floodmark advise`: how late events are, what each watermark delay would lose and hold, and which one to set.

mod figure;
mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use floodmark::clock::SystemClock;
use floodmark::error::{Error, ErrorKind};
use floodmark::event_time::Span;
use floodmark::pipeline::advise::{self, Advice, AdviseOptions, advise_from_checkpoint};
use floodmark::pipeline::config::PipelineConfig;

use crate::generate::duration;
use crate::progress::Progress;
use crate::run::grouped;
use crate::{CommandResult, console};

/// Exit code for losses beyond the budget.
const TOO_MUCH_LOST: u8 = 7;

/// Arguments of `floodmark advise`.
#[derive(Debug, Args)]
#[command(
    after_help = "Reads the input of the pipeline several times, from its beginning and as a run would, and tries delays \
on it with the pipeline's own windows: what it says of losses is exact for that input. Nothing is written, no lock is \
taken, and a pipeline may be running beside it.

Examples:
  floodmark advise pipeline.toml                          at most 1 event in 1,000 may be lost
  floodmark advise pipeline.toml --loss 0.01%
  floodmark advise pipeline.toml --delays 0,1m,15m,1h     what these would lose and hold
  floodmark advise pipeline.toml --out plots              the same as advise.svg and advise.png
  floodmark advise pipeline.toml --check                  exit code 7 when the delay now loses more
  floodmark advise --state state/ --epoch 12              estimated from a checkpoint, without input
  floodmark advise pipeline.toml --json | jq .recommendation.delay

Exit code 7 when no delay keeps to the budget. docs/ADVISE.md defines every figure."
)]
pub(crate) struct Arguments {
    /// The pipeline file (TOML).
    #[arg(required_unless_present = "state")]
    pipeline: Option<PathBuf>,
    /// Estimate from a checkpoint instead: a state directory, or one checkpoint. No input is read.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["pipeline", "source", "events", "memory"])]
    state: Option<PathBuf>,
    /// The checkpoint of this epoch instead of the newest.
    #[arg(long, value_name = "EPOCH", requires = "state")]
    epoch: Option<u64>,
    /// The share of events that may be lost in any window: 0.1%, or 0.001.
    #[arg(long, value_name = "SHARE", value_parser = loss, default_value = "0.1%")]
    loss: f64,
    /// The delays to show, comma-separated; without it, those that the lateness of the events suggests.
    #[arg(long, value_name = "DELAYS", value_delimiter = ',', value_parser = delay)]
    delays: Vec<Duration>,
    /// Only this window of the pipeline.
    #[arg(long, value_name = "NAME")]
    window: Option<String>,
    /// Only the delay of this source; the others keep theirs.
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Look at so many events at most, the first ones of the input.
    #[arg(long, short = 'n', value_name = "EVENTS", default_value_t = advise::EVENTS, value_parser = clap::value_parser!(u64).range(1..))]
    events: u64,
    /// Memory for the panes of all delays that are tried at once (8), in MiB.
    #[arg(long, value_name = "MIB", default_value_t = advise::MEMORY_BYTES >> 20, value_parser = clap::value_parser!(u64).range(1..=1_048_576))]
    memory: u64,
    /// Writes the plot, advise.svg and advise.png, into this directory.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Exit code 7 when the delay that is set now loses more than the budget.
    #[arg(long)]
    check: bool,
    /// Print the same facts as JSON.
    #[arg(long)]
    json: bool,
    /// Nothing but the report.
    #[arg(long, short)]
    quiet: bool,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    console::start_log(true);
    let advice = advice(arguments)?;
    if let Some(dir) = &arguments.out {
        plot(&advice, dir)?;
    }
    console::print_report(arguments.json, &advice, text::report)?;
    Ok(verdict(&advice, arguments.check))
}

fn advice(arguments: &Arguments) -> Result<Advice, Error> {
    let options = AdviseOptions {
        loss: arguments.loss,
        delays: arguments.delays.iter().map(|&delay| span(delay)).collect(),
        window: arguments.window.clone(),
        source: arguments.source.clone(),
        events_max: arguments.events,
        memory_bytes_max: arguments.memory << 20,
    };
    let clock = SystemClock::shared();
    let path = match (&arguments.state, &arguments.pipeline) {
        (Some(state), _) => {
            return advise_from_checkpoint(state, arguments.epoch, &options, clock.wall_millis());
        }
        (None, Some(path)) => path,
        (None, None) => {
            return Err(Error::new(ErrorKind::Bug, "neither a pipeline file nor a state directory"));
        }
    };
    let config = PipelineConfig::load(path)?;
    let mut progress = Progress::new(arguments.quiet, Arc::clone(&clock));
    let advice = advise::advise(&config, &options, clock, &mut |at| {
        let of = at.events_of.map_or(String::new(), |all| format!(" of {}", grouped(all)));
        progress.line(&format!("reading {}: {}{of} events", at.reading, grouped(at.events)));
    });
    progress.clear();
    advice
}

/// Whether the budget can be kept, and with `check` whether it is kept now.
fn verdict(advice: &Advice, check: bool) -> ExitCode {
    let kept = match &advice.recommendation {
        Some(recommendation) => !check || recommendation.current_is_enough,
        None => false,
    };
    if kept { ExitCode::SUCCESS } else { ExitCode::from(TOO_MUCH_LOST) }
}

fn plot(advice: &Advice, dir: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(dir).map_err(|error| {
        Error::new(ErrorKind::Unavailable, format!("cannot create a directory: path={}", dir.display()))
            .with_remedy("give a directory that can be written with --out")
            .with_source(error)
    })?;
    figure::figure(advice).write(dir, "advise")
}

fn span(delay: Duration) -> Span {
    i64::try_from(delay.as_millis()).ok().and_then(Span::from_millis).unwrap_or(Span::MAX)
}

fn delay(text: &str) -> Result<Duration, String> {
    // Durations elsewhere are longer than zero.
    let unit = text.strip_prefix('0').filter(|unit| unit.is_empty() || duration(&format!("1{unit}")).is_ok());
    let parsed = if unit.is_some() { Ok(Duration::ZERO) } else { duration(text) };
    parsed.map_err(|_| format!("`{text}` is not a delay; write 0, 30s, 10m or 24h"))
}

/// A share of the events, as percent or as a number from 0 to 1.
fn loss(text: &str) -> Result<f64, String> {
    let share = match text.trim().strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map(|percent| percent / 100.0),
        None => text.trim().parse(),
    };
    let is_share = |share: &f64| (0.0..=1.0).contains(share);
    share
        .ok()
        .filter(is_share)
        .ok_or_else(|| format!("`{text}` is not a share of the events; write 0.1%, or 0.001 for the same"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_a_percentage_or_a_share() {
        for (text, share) in [("0.1%", 0.001), ("0.001", 0.001), ("5 %", 0.05), ("0", 0.0), ("100%", 1.0)] {
            assert!((loss(text).unwrap() - share).abs() < 1e-15, "{text}");
        }
        for wrong in ["", "%", "5", "-1%", "101%", "NaN", "few"] {
            assert!(loss(wrong).unwrap_err().contains("write 0.1%"), "{wrong}");
        }
    }

    #[test]
    fn no_delay_at_all_is_a_delay() {
        assert_eq!((delay("0"), delay("15m")), (Ok(Duration::ZERO), Ok(Duration::from_secs(900))));
        assert!(delay("soon").unwrap_err().contains("write 0, 30s"));
    }
}
