//! `cargo xtask`: the named commands of this project.
//!
//! Depends on nothing outside the standard library, so that it builds and explains itself where RocksDB cannot be built
//! yet. It knows how to start other programs, and nothing about Floodmark itself.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command talks to people on the terminal")]

mod bench;
mod compare;
mod deny;
mod doctor;
mod fuzz;
mod native;
mod platform;
mod servers;
mod step;
mod tasks;

use std::process::ExitCode;

use step::Failure;

const USAGE: &str = "\
usage: cargo xtask <command>

  demo     build Floodmark, run it on the sample of real flights, look into its state
  test     run every test
  check    formatting, lints, documentation; what a change must pass before it is handed over
  deep     the long tests: more kills, more seeds, more cut points
  simulate [--for 1h] [--seed N]   histories made up by chance for so long (60 s), or one of them with all that happens
  doctor   say what this machine lacks, and install it where that is possible
  servers  find or install the servers that tests start (an S3 server), outside of the repository
  deny     dependencies: advisories, licences, bans, sources
  fixtures NAME   keep this build's format on disk in tests/data/formats/NAME, once per release that changes it
  fuzz [TARGET…] [--for SECONDS] [--seed N]   search for inputs that break a decoder, 60 s each unless told otherwise
  fuzz TARGET FILE   one input again
  compare [OPTION…]   the same work on Floodmark and on what else a Rust program would use; --help has the options
  compare --check     formatting, lints and tests of that comparison, which is a workspace of its own
  bench [--file FILE]   figures of the regression guard, a JSON line each per commit in target/bench/figures.jsonl
  bench --compare A B [--again] [--bound 1.25] [--counted-bound 1.02]   two commits by these figures, which are taken
           where they are missing; exit code 4 when one is worse by more than its bound
  ci       everything that CI runs, with a table of times

demo, test, check, deep and ci run the doctor first. What follows `test` or `deep` goes to cargo test:
  cargo xtask test layers";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let command = args.next().unwrap_or_default();
    let rest: Vec<String> = args.collect();
    let done = match command.as_str() {
        "test" => tasks::test(&rest),
        "deep" => tasks::deep(&rest),
        "simulate" => tasks::simulate(&rest),
        "fixtures" => tasks::fixtures(&rest),
        "fuzz" => tasks::fuzz(&rest),
        "compare" => tasks::compare(&rest),
        "bench" => tasks::bench(&rest),
        _ if !rest.is_empty() && command != "help" => Err(Failure::Usage),
        "demo" => tasks::demo(),
        "check" => tasks::check(),
        "doctor" => doctor::run(),
        "servers" => servers::run(),
        "deny" => deny::run(),
        "ci" => tasks::ci(),
        "help" | "--help" | "-h" => {
            println!("{USAGE}");
            Ok(())
        }
        _ => Err(Failure::Usage),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            match &failure {
                Failure::Usage => eprintln!("{USAGE}"),
                failure => eprintln!("xtask: {failure}"),
            }
            ExitCode::from(failure.code())
        }
    }
}
