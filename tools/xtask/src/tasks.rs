//! The named tasks, each a short list of steps.
//!
//! Every task that builds goes through `doctor` first, and all of them use the dev profile where they can: RocksDB is
//! compiled once per profile, and that is what takes the time.

use std::fs;
use std::process::Command;

use crate::deny;
use crate::doctor;
use crate::fuzz as fuzzing;
use crate::servers;
use crate::step::{Failure, Steps, root};

/// One set of features for tests and lints, so that they share one build.
const FEATURES: [&str; 2] = ["--features", "floodmark/fault-injection"];

const PIPELINE: &str = "examples/flights/pipeline.toml";
const STATE: &str = "demo-output/flights/state";

/// `cargo xtask test`: every test of the workspace. Ends with cargo's own lines.
pub(crate) fn test(args: &[String]) -> Result<(), Failure> {
    run_tests(&mut prepare("dev")?, args)
}

/// `cargo xtask deep`: the same tests at full length.
pub(crate) fn deep(args: &[String]) -> Result<(), Failure> {
    let mut steps = prepare("dev")?;
    steps.set("FLOODMARK_DEEP", "1");
    run_tests(&mut steps, args)
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
    let done = formatting(&mut steps)
        .and_then(|()| lints(&mut steps))
        .and_then(|()| documentation(&mut steps))
        .and_then(|()| run_tests(&mut steps, &[]))
        .and_then(|()| fuzzing::smoke(&mut steps))
        .and_then(|()| deny::steps(&mut steps));
    eprintln!("\n{}", steps.table());
    done
}

/// Checks the machine and says what the first build will take.
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
