//! The same windows on Floodmark and on what else a Rust program would pick or write: `cargo xtask compare`.
//!
//! Tumbling windows of a minute with count, sum, min and max per key, over one seeded stream. Every contender has to
//! come to the results of the hash map; one that does not is reported as wrong, whatever its time. All figures of a
//! table are of one run, and what counts are their ratios. docs/COMPARISON.md has what was measured and how fair it is.

mod contender;
mod report;
mod results;
mod stream;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum as _};

use contender::{Contender, Run};
use report::{Measured, Report, ShapeReport};
use stream::{Shape, Stream};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A contender failed, or gave other results.
const EXIT_DIFFERENT: u8 = 1;
/// Nothing could be compared.
const EXIT_FAILED: u8 = 3;

/// The same windows on Floodmark and on what else a Rust program would use.
#[derive(Debug, Parser)]
#[command(
    name = "compare",
    after_help = "Exit codes: 0 all contenders gave the same results, 1 one of them failed or gave others, 2 wrong usage, 3 nothing
could be compared. The hash map runs in any case, as what it answers is the measure."
)]
struct Arguments {
    /// Shapes to run; both when left out.
    #[arg(long, value_enum)]
    shape: Vec<Shape>,
    /// Contenders to run; all when left out.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Contender>,
    /// Events of each stream.
    #[arg(long, short = 'n', default_value_t = 5_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    events: u64,
    /// How often each contender runs; the median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// A contender that has run for so many seconds over a shape runs no further rounds of it.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Where state, text and output go, in directories that are removed; the system's temporary directory when left out.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
    /// Nothing but the report.
    #[arg(long, short)]
    quiet: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match compare(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(EXIT_DIFFERENT),
        Err(error) => {
            say(&format!("compare: {error}"));
            ExitCode::from(EXIT_FAILED)
        }
    }
}

fn compare(arguments: &Arguments) -> Outcome<bool> {
    if cfg!(debug_assertions) && !arguments.quiet {
        say("this is a debug build: build with --release for figures that mean something");
    }
    let given =
        |given: &[Shape]| if given.is_empty() { Shape::value_variants().to_vec() } else { given.to_vec() };
    let shapes = given(&arguments.shape).into_iter().map(|shape| measure(shape, arguments));
    let report = Report { events: arguments.events, shapes: shapes.collect::<Outcome<_>>()? };
    print(&if arguments.json { report.to_json()? } else { report.to_table() })?;
    Ok(report.all_right())
}

/// All contenders over one stream, by turns, so that a machine that slows down slows all of them.
fn measure(shape: Shape, arguments: &Arguments) -> Outcome<ShapeReport> {
    let tell = |text: &str| {
        if !arguments.quiet {
            say(&format!("{}: {text}", shape.name()))
        }
    };
    tell(&format!("drawing {} events", arguments.events));
    let stream = Stream::new(shape, arguments.events)?;
    let right = in_directory(Contender::HashMap, &stream, arguments.dir.as_deref())?.results;
    let mut measured: Vec<Measured> = chosen(&arguments.only).into_iter().map(Measured::new).collect();
    for round in 1..=arguments.rounds {
        for one in &mut measured {
            if one.is_done(Duration::from_secs(arguments.seconds)) {
                continue;
            }
            tell(&format!("{}, round {round} of {}", one.contender().id(), arguments.rounds));
            match in_directory(one.contender(), &stream, arguments.dir.as_deref()) {
                Ok(run) => one.ran(&run, &right),
                Err(error) => one.failed(&error.to_string()),
            }
        }
    }
    Ok(ShapeReport::new(shape, right.rows(), arguments.events, measured))
}

fn chosen(only: &[Contender]) -> Vec<Contender> {
    let wanted = |one: &Contender| only.is_empty() || *one == Contender::HashMap || only.contains(one);
    Contender::value_variants().iter().copied().filter(wanted).collect()
}

/// Runs a contender with a directory of its own, which is gone afterwards.
fn in_directory(contender: Contender, stream: &Stream, parent: Option<&Path>) -> Outcome<Run> {
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix("floodmark-compare-");
    let made = match parent {
        Some(parent) => builder.tempdir_in(parent),
        None => builder.tempdir(),
    };
    let dir = made.map_err(|error| format!("cannot create a directory: {error}; give another with --dir"))?;
    contender.run(stream, dir.path())
}

#[expect(clippy::print_stderr, reason = "progress and errors, for people")]
fn say(text: &str) {
    eprintln!("{text}");
}

fn print(text: &str) -> Outcome<()> {
    use std::io::Write as _;
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}
