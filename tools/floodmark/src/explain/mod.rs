//! `floodmark explain`: the life of a window or a key, as a table or as JSON lines.

mod text;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use floodmark::clock::SystemClock;
use floodmark::error::{Error, ErrorKind};
use floodmark::inspect::Key;
use floodmark::pipeline::config::PipelineConfig;
use floodmark::pipeline::explain::{self, ExplainOptions, Explanation, FromCheckpoint};

use crate::{CommandResult, console};

/// Arguments of `floodmark explain`.
#[derive(Debug, Args)]
#[command(
    after_help = "Reads the input of the pipeline as a run would and tells what became of each event, without running \
anything: nothing is written, no lock is taken, and a pipeline may be running beside it. Reads the input to its end.

Examples:
  floodmark explain pipeline.toml                          the first key that comes
  floodmark explain pipeline.toml --window hourly --key JFK
  floodmark explain pipeline.toml --key JFK --start 2026-03-01T10:00:00Z   one window of it
  floodmark explain pipeline.toml --start 2026-03-01T10:00:00Z             all keys of one window
  floodmark explain pipeline.toml --key JFK --from-checkpoint latest       only what came since
  floodmark explain pipeline.toml --json | jq 'select(.dropped)'           what came too late"
)]
pub(crate) struct Arguments {
    /// The pipeline file (TOML).
    pipeline: PathBuf,
    /// The window of the pipeline; without it, the first.
    #[arg(long, value_name = "NAME")]
    window: Option<String>,
    /// The key; repeat it for each field of a composite key. Without it and --start, the first that comes.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    key: Vec<String>,
    /// Only the window that starts then (RFC 3339, or milliseconds since 1970); without --key, all its keys.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    start: Option<String>,
    /// How many frames to show; what comes after them is counted.
    #[arg(long, value_name = "FRAMES", default_value_t = explain::FRAMES)]
    limit: usize,
    /// Show each other event that moves the watermark, and all rejected and filtered records.
    #[arg(long)]
    all: bool,
    /// Start from this checkpoint of the state directory, or the `latest`, instead of the beginning.
    #[arg(long, value_name = "EPOCH")]
    from_checkpoint: Option<String>,
    /// One JSON object per line: the head, the frames, the end.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    console::start_log(true);
    let key = match arguments.key.as_slice() {
        [] => None,
        components => Some(Key(components.iter().map(|component| component.clone().into_bytes()).collect())),
    };
    let options = ExplainOptions {
        window: arguments.window.clone(),
        key,
        start: arguments.start.as_deref().map(explain::parse_instant).transpose()?,
        frames_max: arguments.limit,
        all: arguments.all,
        from: arguments.from_checkpoint.as_deref().map(checkpoint).transpose()?,
    };
    let config = PipelineConfig::load(&arguments.pipeline)?;
    let explanation = explain::explain(&config, &options, SystemClock::shared())?;
    let text = if arguments.json { json_lines(&explanation)? } else { text::timeline(&explanation) };
    console::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn checkpoint(text: &str) -> Result<FromCheckpoint, Error> {
    match (text, text.parse()) {
        ("latest", _) => Ok(FromCheckpoint::Latest),
        (_, Ok(epoch)) => Ok(FromCheckpoint::Epoch(epoch)),
        _ => {
            let message = format!("this is not a checkpoint: --from-checkpoint={text:?}");
            Err(Error::new(ErrorKind::Invalid, message).with_remedy(
                "give `latest` or an epoch; `floodmark inspect list` shows those that are there",
            ))
        }
    }
}

fn json_lines(explanation: &Explanation) -> Result<String, Error> {
    let mut text = String::new();
    for part in explanation.parts() {
        let line = serde_json::to_string(&part)
            .map_err(|error| Error::new(ErrorKind::Bug, "cannot write a frame").with_source(error))?;
        text.push_str(&line);
        text.push('\n');
    }
    Ok(text)
}
