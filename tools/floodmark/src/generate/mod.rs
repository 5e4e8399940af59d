//! `floodmark generate`: a seeded stream of events as text, to standard output or to one file per partition.

mod stream;
mod values;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use floodmark::error::{Error, ErrorKind};
use floodmark::event_time::EventTime;
use floodmark::pipeline::generate::{Lateness, Silence, Skew, Spec, TextFormat};

use crate::{CommandResult, console};

pub(crate) use stream::{PLACE, write_files};

/// Arguments of `floodmark generate`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  floodmark generate --shape s1 --events 5000000 -o s1.jsonl
  floodmark generate --keys 500 --skew zipf:1.1 --lateness 95%:0-5s --lateness 5%:30-60s | head
  floodmark generate --partitions 3 --silence 2:1m-5m -o 'part-{}.csv' --format csv

The same options and the same seed give the same bytes on every machine.")]
pub(crate) struct Arguments {
    /// Start from a preset; options given beside it win. s1: 10,000 keys, s4: 1,000,000 keys, both 8,333 events/s
    /// of event time, up to 5 s out of order.
    #[arg(long, value_enum, default_value_t = Shape::S1)]
    shape: Shape,
    /// Number of events.
    #[arg(long, short = 'n', default_value_t = 1_000_000)]
    events: u64,
    /// Number of distinct keys.
    #[arg(long)]
    keys: Option<u64>,
    /// Events per second of event time.
    #[arg(long)]
    rate: Option<u64>,
    /// How late events arrive: SHARE:FROM-TO, such as 95%:0-5s. Give it several times for a mix.
    #[arg(long, value_name = "MIX", value_parser = values::lateness)]
    lateness: Vec<Lateness>,
    /// How often each key comes: uniform, or zipf:EXPONENT.
    #[arg(long, value_parser = values::skew)]
    skew: Option<Skew>,
    /// Number of partitions; each gets a file of its own.
    #[arg(long, default_value_t = 1)]
    partitions: u32,
    /// When a partition is silent, counted from the start: PARTITION:FROM-TO, such as 2:1m-5m. May be repeated.
    #[arg(long, value_name = "GAP", value_parser = values::silence)]
    silence: Vec<Silence>,
    /// Event time at which the stream starts, in milliseconds since the Unix epoch.
    #[arg(long, value_name = "MILLIS", allow_negative_numbers = true)]
    start: Option<i64>,
    /// Smallest value.
    #[arg(long, value_name = "INTEGER", allow_negative_numbers = true)]
    value_min: Option<i64>,
    /// Largest value.
    #[arg(long, value_name = "INTEGER", allow_negative_numbers = true)]
    value_max: Option<i64>,
    /// Share of events whose value is null, such as 1%.
    #[arg(long, value_name = "SHARE", value_parser = values::share, default_value = "0")]
    nulls: f64,
    /// Share of records that are broken in one of five ways, such as 0.1%.
    #[arg(long, value_name = "SHARE", value_parser = values::share, default_value = "0")]
    broken: f64,
    /// Names the stream: another seed, another stream.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How events are written.
    #[arg(long, value_enum, default_value_t = Format::Jsonl)]
    format: Format,
    /// The file to write; with several partitions `{}` in the name stands for the partition. Standard output when
    /// left out.
    #[arg(long, short)]
    output: Option<PathBuf>,
    /// Replace files that exist.
    #[arg(long)]
    force: bool,
    /// No progress.
    #[arg(long, short)]
    quiet: bool,
}

/// A stream that benchmarks are run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shape {
    /// 10,000 keys.
    S1,
    /// 1,000,000 keys.
    S4,
}

impl Shape {
    /// What its stream looks like.
    pub(crate) fn spec(self, events: u64) -> Spec {
        match self {
            Self::S1 => Spec::s1(events),
            Self::S4 => Spec::s4(events),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Jsonl,
    Csv,
}

impl Arguments {
    fn spec(&self) -> Spec {
        let preset = self.shape.spec(self.events);
        Spec {
            keys: self.keys.unwrap_or(preset.keys),
            skew: self.skew.unwrap_or(preset.skew),
            rate: self.rate.unwrap_or(preset.rate),
            start: self.start.map_or(preset.start, EventTime::from_millis),
            lateness: if self.lateness.is_empty() { preset.lateness } else { self.lateness.clone() },
            partitions: self.partitions,
            silences: self.silence.clone(),
            value_min: self.value_min.unwrap_or(preset.value_min),
            value_max: self.value_max.unwrap_or(preset.value_max),
            null_share: self.nulls,
            malformed_share: self.broken,
            ..preset
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let format = match arguments.format {
        Format::Jsonl => TextFormat::Jsonl,
        Format::Csv => TextFormat::Csv,
    };
    let (spec, seed) = (arguments.spec(), arguments.seed);
    let mut progress = stream::Progress::new(arguments.events, arguments.quiet);
    let Some(output) = &arguments.output else {
        if spec.partitions > 1 {
            return Err(one_file_each("several partitions do not fit one standard output"));
        }
        stream::write_stdout(spec, seed, format, &mut progress)?;
        return Ok(ExitCode::SUCCESS);
    };
    if spec.partitions > 1 && !names_partitions(output) {
        return Err(one_file_each("several partitions do not fit one file"));
    }
    let written = write_files(spec, seed, format, output, arguments.force, &mut progress)?;
    if !arguments.quiet {
        console::say(&written);
    }
    Ok(ExitCode::SUCCESS)
}

fn names_partitions(output: &Path) -> bool {
    output.to_str().is_some_and(|name| name.contains(PLACE))
}

fn one_file_each(message: &str) -> Error {
    Error::new(ErrorKind::Invalid, message)
        .with_remedy("give --output with {} where the partition's number goes")
}

pub(crate) use stream::Progress;
pub(crate) use values::duration;

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn spec(line: &[&str]) -> Spec {
        Line::try_parse_from(std::iter::once(&"generate").chain(line)).expect("a right line").arguments.spec()
    }

    #[test]
    fn a_preset_is_taken_whole_and_options_win_over_it() {
        assert_eq!(spec(&["--shape", "s4", "-n", "7"]), Spec::s4(7));
        let changed = spec(&["--keys", "5", "--lateness", "95%:0-5s", "--lateness", "5%:30-60s", "-n", "7"]);
        let mix = vec![
            Lateness { share: 0.95, min_ms: 0, max_ms: 5_000 },
            Lateness { share: 0.05, min_ms: 30_000, max_ms: 60_000 },
        ];
        assert_eq!(changed, Spec { keys: 5, lateness: mix, ..Spec::s1(7) });
    }
}
