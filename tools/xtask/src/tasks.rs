//! The named tasks, each a short list of steps.
//!
//! Every task that builds goes through `doctor` first, and all of them use the dev profile where they can: RocksDB is
//! compiled once per profile, and that is what takes the time.

use std::fs;
use std::process::Command;

use crate::bench as benching;
use crate::compare as comparing;
use crate::deny;
use crate::doctor;
use crate::fuzz as fuzzing;
use crate::servers;
use crate::step::{Failure, Steps, root};

/// One set of features for tests and lints, so that they share one build.
const FEATURES: [&str; 2] = ["--features", "floodmark/fault-injection"];

const PIPELINE: &str = "examples/flights/pipeline.toml";
const STATE: &str = "demo-output/flights/state";

const SIMULATION: &str = "simulation::histories_of_crashes_faults_and_restores_show_what_the_model_shows";
/// Seconds of simulation in CI.
const SIMULATION_SECONDS: &str = "60";

/// `cargo xtask test`: every test of the workspace. Ends with cargo's own lines.
pub(crate) fn test(args: &[String]) -> Result<(), Failure> {
    run_tests(&mut prepare("dev")?, args)
}

/// `cargo xtask deep`: the same tests at full length.
pub(crate) fn deep(args: &[String]) -> Result<(), Failure> {
    let mut steps = prepare("dev")?;
    steps.set("FLOODMARK_DEEP", "1");
    run_tests(&mut steps, args).and_then(|()| fuzzing::smoke(&mut steps))
}

/// `cargo xtask simulate [--for 1h] [--seed N]`: histories made up by chance, for so long, or one of them with its trace.
pub(crate) fn simulate(args: &[String]) -> Result<(), Failure> {
    let (mut seconds, mut seed) = ("60".to_owned(), None);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match (arg.as_str(), args.next()) {
            ("--for", Some(length)) => seconds = seconds_of(length).ok_or(Failure::Usage)?.to_string(),
            ("--seed", Some(number)) if number.parse::<u64>().is_ok() => seed = Some(number.clone()),
            _ => return Err(Failure::Usage),
        }
    }
    let mut steps = prepare("dev")?;
    steps.set("FLOODMARK_SIM_SECONDS", &seconds);
    match seed {
        Some(seed) => steps.set("SEED", &seed),
        // Other histories every time; a failing one says its seed.
        None => steps.set("FLOODMARK_SIM_FROM", &unix_millis().to_string()),
    }
    let test = ["test", "--package", "floodmark", "--test", "engine", "--features", "fault-injection"];
    let which = ["--", "--nocapture", "--exact", SIMULATION];
    steps.cargo("simulation", &[test.as_slice(), &which].concat())
}

/// Seconds of `90`, `90s`, `10m` or `2h`.
fn seconds_of(text: &str) -> Option<u64> {
    let (digits, unit) = match text.find(|letter: char| !letter.is_ascii_digit()) {
        Some(place) => text.split_at(place),
        None => (text, "s"),
    };
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit).filter(|&seconds| seconds > 0)
}

#[expect(clippy::disallowed_methods, reason = "a number that is another one each time")]
fn unix_millis() -> u128 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(1, |since| since.as_millis())
}

/// `cargo xtask fixtures NAME`: keeps the format on disk of this build for the tests of all later ones.
pub(crate) fn fixtures(args: &[String]) -> Result<(), Failure> {
    let [name] = args else { return Err(Failure::Usage) };
    let mut steps = prepare("dev")?;
    steps.set("FLOODMARK_FIXTURE", name);
    let test = ["test", "--package", "floodmark-cli", "--test", "cli"];
    let which = ["--", "--ignored", "--exact", "formats::make_a_kept_format"];
    steps.cargo("fixtures", &[test.as_slice(), &FEATURES, &which].concat())
}

/// `cargo xtask fuzz`: looks for inputs that break what reads bytes of others.
pub(crate) fn fuzz(args: &[String]) -> Result<(), Failure> {
    fuzzing::run(prepare("dev")?, args)
}

/// `cargo xtask compare`: Floodmark and others over the same streams.
pub(crate) fn compare(args: &[String]) -> Result<(), Failure> {
    let target = comparing::target_dir(target_dir());
    comparing::run(&mut prepare("compare/release")?, &target.display().to_string(), args)
}

/// `cargo xtask bench`: figures per commit, and two commits next to each other.
pub(crate) fn bench(args: &[String]) -> Result<(), Failure> {
    benching::run(prepare("release")?, args)
}

/// `cargo xtask check`: formatting, lints, documentation.
pub(crate) fn check() -> Result<(), Failure> {
    let mut steps = prepare("dev")?;
    formatting(&mut steps)?;
    lints(&mut steps)?;
    documentation(&mut steps)?;
    eprintln!("{}", steps.table());
    Ok(())
}

/// `cargo xtask demo`: real flights, aggregated durably, and a look at what is on disk.
pub(crate) fn demo() -> Result<(), Failure> {
    let mut steps = prepare("release")?;
    steps.cargo("build", &["build", "--release", "--package", "floodmark-cli"])?;
    let program = target_dir().join("release").join("floodmark");
    let floodmark = |args: &[&str]| {
        let mut command = Command::new(&program);
        command.args(args);
        command
    };
    // Slow enough to be watched, and to be killed half-way.
    let run = ["run", PIPELINE, "--rate", "12000"];
    steps.run("run", &format!("floodmark {}", run.join(" ")), floodmark(&run))?;
    steps.run(
        "inspect",
        &format!("floodmark inspect list {STATE}"),
        floodmark(&["inspect", "list", STATE]),
    )?;
    let shown = program.strip_prefix(root()).unwrap_or(&program).display();
    println!(
        "
The results are in demo-output/flights/hourly, the flights that came too late in demo-output/flights/late.
Try next:
  rm -r demo-output && cargo xtask demo    start over, and kill it half-way: Ctrl-C, or kill -9
  cargo xtask demo                         goes on from the last checkpoint; the output is the same
  {shown} run {PIPELINE}    the same at full speed
  {shown} inspect --help    what else can be seen of the state"
    );
    Ok(())
}

/// `cargo xtask ci`: everything, with a table of times at the end, also when a step fails.
pub(crate) fn ci() -> Result<(), Failure> {
    let mut steps = prepare("dev")?;
    // Incremental artefacts cost time and disk, and a fresh clone never uses them again.
    steps.set("CARGO_INCREMENTAL", "0");
    steps.set("FLOODMARK_SIM_SECONDS", SIMULATION_SECONDS);
    let done = formatting(&mut steps)
        .and_then(|()| lints(&mut steps))
        .and_then(|()| documentation(&mut steps))
        .and_then(|()| run_tests(&mut steps, &[]))
        .and_then(|()| fuzzing::smoke(&mut steps))
        .and_then(|()| deny::steps(&mut steps));
    eprintln!("\n{}", steps.table());
    done
}

/// Checks the machine and says what the first build will take. A profile of another workspace is named by its folder.
fn prepare(profile: &str) -> Result<Steps, Failure> {
    let native = doctor::ready()?;
    let built = target_dir().join(if profile == "dev" { "debug" } else { profile }).join("build");
    let has_rocksdb = fs::read_dir(built).is_ok_and(|entries| {
        entries
            .filter_map(Result::ok)
            .any(|entry| entry.file_name().to_string_lossy().starts_with("librocksdb-sys-"))
    });
    if !has_rocksdb {
        eprintln!(
            "The first build ({profile} profile) compiles RocksDB: 5 to 20 minutes on 2 cores. Later builds do not."
        );
    }
    Ok(Steps::new(native.env))
}

fn formatting(steps: &mut Steps) -> Result<(), Failure> {
    steps.cargo("format", &["fmt", "--all", "--", "--check"])
}

/// Twice, since what the feature adds hides what only the default build sees; the second run shares the dependencies.
fn lints(steps: &mut Steps) -> Result<(), Failure> {
    let clippy = ["clippy", "--workspace", "--all-targets"];
    let deny = ["--", "-D", "warnings"];
    steps.cargo("lints", &[clippy.as_slice(), &FEATURES, &deny].concat())?;
    steps.cargo("lints, as released", &[clippy.as_slice(), &deny].concat())
}

fn documentation(steps: &mut Steps) -> Result<(), Failure> {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
    let args = [&["doc", "--workspace", "--lib", "--no-deps"], FEATURES.as_slice()].concat();
    command.args(&args).env("RUSTDOCFLAGS", "-D warnings");
    steps.run("documentation", &format!("cargo {}", args.join(" ")), command)
}

fn run_tests(steps: &mut Steps, args: &[String]) -> Result<(), Failure> {
    servers::prepare(steps);
    doctor::server();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    steps.cargo("tests", &[&["test", "--workspace"], FEATURES.as_slice(), &args].concat())
}

fn target_dir() -> std::path::PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_read_with_and_without_a_unit() {
        let lengths = ["90", "90s", "10m", "2h", "0", "h", "", "5d", "-1"].map(seconds_of);
        assert_eq!(lengths, [Some(90), Some(90), Some(600), Some(7_200), None, None, None, None, None]);
    }
}
