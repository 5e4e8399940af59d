//! The `floodmark` command: argument parsing, and one module per subcommand. Everything it does goes through the
//! library's public face.

mod advise;
mod amount;
mod bench;
mod check;
mod compare;
mod console;
mod drill;
mod explain;
mod generate;
mod inspect;
mod plot;
mod progress;
mod random;
mod reapply;
mod repository;
mod restore;
mod run;
mod savepoint;
mod table;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use floodmark::error::{Error, ErrorKind};

/// Durable window state and exactly-once checkpoints for event-time pipelines.
#[derive(Debug, Parser)]
#[command(name = "floodmark", version, propagate_version = true, after_help = EXIT_CODES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "Exit codes:
  0    done
  1    failed: a defect, please report it
  2    the command line, the pipeline file or a record (with --strict) is wrong
  3    the machine is in the way: a missing file, a permission, a full disk
  4    another process has the state directory, or a newer one its outputs or repository
  5    stored bytes are damaged, or staged output is gone
  6    state and definition do not fit; check: a run would be refused
  7    the two results differ (compare), recovery failed (drill), state grows (bench state-size),
       too much is lost (advise)
  130  stopped at once by a second signal";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a pipeline until its input ends; resumes from the newest checkpoint.
    Run(run::Arguments),
    /// Tell whether this pipeline file can open its state, and what would change. Writes nothing.
    Check(check::Arguments),
    /// Look into checkpoints: which there are, what they hold, whether they are whole. Writes nothing.
    Inspect(inspect::Arguments),
    /// Tell the life of a window or a key: which events it took, what was late and why, when it fired. Writes nothing.
    Explain(explain::Arguments),
    /// Tell how late events are, what each watermark delay would lose and hold, and which one to set. Writes nothing.
    Advise(advise::Arguments),
    /// Compare a fast lane by arrival time with the exact one, or any two results of one aggregation.
    Compare(compare::Arguments),
    /// Work late events into finished results or into a savepoint, into a new directory.
    Reapply(reapply::Arguments),
    /// Keep a checkpoint under a name, for good: make, list and delete savepoints.
    Savepoint(savepoint::Arguments),
    /// Make a new state directory of a savepoint or a checkpoint: the same pipeline elsewhere, or a fork of it.
    Restore(restore::Arguments),
    /// Look into a repository of checkpoints, bring one back, collect what nobody needs.
    Repository(repository::Arguments),
    /// Rehearse the emergency: kill a copy of a pipeline again and again, restore it, compare, and give a verdict.
    Drill(drill::Arguments),
    /// A run of the drill; only the drill starts it.
    #[command(hide = true)]
    DrillRun(drill::RunArguments),
    /// Write a seeded stream of events: for tests, demonstrations and benchmarks.
    Generate(generate::Arguments),
    /// Measure this machine: the whole pipeline next to an in-memory reference.
    Bench(bench::Arguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    floodmark::open_files::raise_limit();
    let result = match arguments.command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Advise(arguments) => advise::run(&arguments),
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Reapply(arguments) => reapply::run(&arguments),
        Command::Savepoint(arguments) => savepoint::run(&arguments),
        Command::Restore(arguments) => restore::run(&arguments),
        Command::Repository(arguments) => repository::run(&arguments),
        Command::Drill(arguments) => drill::run(&arguments),
        Command::DrillRun(arguments) => drill::run_child(&arguments),
        Command::Generate(arguments) => generate::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            console::print_error(&error);
            ExitCode::from(exit_code(error.kind()))
        }
    }
}

/// The exit code of an error. Documented in the help; never changed.
fn exit_code(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Invalid => 2,
        // A store refuses work after the disk failed under it.
        ErrorKind::Unavailable | ErrorKind::Poisoned => 3,
        ErrorKind::Locked => 4,
        ErrorKind::Damaged => 5,
        ErrorKind::Incompatible => 6,
        _ => 1,
    }
}

/// What a subcommand ends with.
type CommandResult = Result<ExitCode, Error>;

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Columns of a terminal, and of help that goes into a pipe.
    const COLUMNS: usize = 100;

    fn check(command: &clap::Command, path: &str) {
        let path = format!("{path} {}", command.get_name());
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        // Running text is wrapped; examples and tables begin with spaces and would lose their columns.
        for line in help.lines().filter(|line| line.starts_with("  ")) {
            assert!(line.chars().count() <= COLUMNS, "{path}: {line}");
        }
        let is_hidden = command.is_hide_set() || command.get_name() == "help";
        assert!(
            is_hidden || command.has_subcommands() || help.contains("Examples:"),
            "{path} shows no example"
        );
        command.get_subcommands().for_each(|below| check(below, &path));
    }

    #[test]
    fn every_command_shows_examples_that_keep_their_columns() {
        check(&Arguments::command(), "");
    }
}
