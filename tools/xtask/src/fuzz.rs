//! `cargo xtask fuzz`: the fuzz targets under libFuzzer, with coverage, on stable Rust.
//!
//! Knows how the runner is built and called (`tools/fuzz`, `tools/sancov.sh`); the targets are the folders of the corpus.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::step::{Failure, Steps, root};

/// Seconds for each target unless told otherwise.
const SECONDS: &str = "60";
/// Seconds for each target in CI.
const SMOKE_SECONDS: &str = "2";
/// Longest input. What no input of this length finds is left to the tests of bounds.
const INPUT_BYTES_MAX: u32 = 4_096;
/// An input that takes more memory is a finding: each is a few KiB.
const MEMORY_MIB_MAX: u32 = 512;
/// So is one that takes longer.
const INPUT_SECONDS_MAX: u32 = 10;

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    /// These targets, so many seconds each; with a seed that runs are repeated by.
    Run { targets: Vec<String>, seconds: String, seed: Option<String> },
    /// One input again.
    Replay { target: String, file: PathBuf },
}

/// What a run of libFuzzer said of itself.
#[derive(Debug, Default, PartialEq, Eq)]
struct Report {
    /// Places of the library that are counted.
    counters: u64,
    /// Those that an input came by.
    covered: u64,
    /// Inputs tried.
    runs: u64,
    /// Inputs kept, as each found a new way.
    kept: u64,
}

impl Report {
    /// Takes a line in; true when people want to see it.
    fn take(&mut self, line: &str) -> bool {
        let number = |text: &str| text.split_whitespace().next().and_then(|word| word.parse().ok());
        if let Some(rest) = line.strip_prefix("INFO: Loaded ") {
            if let Some((_, rest)) = rest.split_once('(').filter(|_| rest.contains("counters")) {
                self.counters = number(rest).unwrap_or(self.counters);
            }
            return false;
        }
        if let Some((_, rest)) = line.split_once(" cov: ").filter(|_| line.starts_with('#')) {
            self.covered = number(rest).unwrap_or(self.covered);
            return ["INITED", "pulse", "RELOAD"].iter().any(|event| line.contains(event));
        }
        if let Some(rest) = line.strip_prefix("stat::") {
            match rest.split_once(':') {
                Some(("number_of_executed_units", count)) => self.runs = number(count).unwrap_or_default(),
                Some(("new_units_added", count)) => self.kept = number(count).unwrap_or_default(),
                _ => {}
            }
            return false;
        }
        // A dictionary that nobody asked for, and what this build does without.
        !(line.is_empty()
            || line.starts_with('"')
            || line.starts_with("#####")
            || line.starts_with("\tNEW_FUNC")
            || line.starts_with("WARNING: Failed to find function"))
    }
}

/// `cargo xtask fuzz [TARGET…] [--for SECONDS] [--seed N]` and `cargo xtask fuzz TARGET FILE`.
pub(crate) fn run(mut steps: Steps, args: &[String]) -> Result<(), Failure> {
    match parse(args, &targets()).ok_or(Failure::Usage)? {
        Wanted::Run { targets, seconds, seed } => {
            let seed = seed.map(|seed| format!("-seed={seed}"));
            let done = all(&mut steps, &targets, &seconds, seed.as_deref());
            eprintln!("\n{}", steps.table());
            done
        }
        Wanted::Replay { target, file } => {
            let file = std::path::absolute(&file).unwrap_or(file);
            let command = fuzzer(&target, &[file.display().to_string()]);
            steps.run(&target, &format!("fuzz target {target} on {}", file.display()), command)
        }
    }
}

/// Every target for a moment, from its corpus: for CI.
pub(crate) fn smoke(steps: &mut Steps) -> Result<(), Failure> {
    all(steps, &targets(), SMOKE_SECONDS, None)
}

fn all(steps: &mut Steps, targets: &[String], seconds: &str, seed: Option<&str>) -> Result<(), Failure> {
    steps.run("fuzz, build", "the library with counters, and libFuzzer", cargo(&["--no-run"]))?;
    targets.iter().try_for_each(|target| one(steps, target, seconds, seed))
}

fn parse(args: &[String], known: &[String]) -> Option<Wanted> {
    let (mut targets, mut seconds, mut seed) = (Vec::new(), SECONDS.to_owned(), None);
    let number = |text: Option<&String>| text.filter(|text| text.parse::<u32>().is_ok()).cloned();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--for" => {
                let text = args.next().map(|text| text.strip_suffix('s').unwrap_or(text).to_owned());
                seconds = number(text.as_ref())?;
            }
            "--seed" => seed = Some(number(args.next())?),
            target if known.iter().any(|known| known == target) => targets.push(target.to_owned()),
            file if targets.len() == 1 && args.len() == 0 && !file.starts_with('-') => {
                return Some(Wanted::Replay { target: targets.remove(0), file: PathBuf::from(file) });
            }
            _ => return None,
        }
    }
    if targets.is_empty() {
        targets = known.to_vec();
    }
    Some(Wanted::Run { targets, seconds, seed })
}

/// The names of all targets: each has a corpus, which a test sees to.
fn targets() -> Vec<String> {
    let folders =
        fs::read_dir(corpus()).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir());
    let mut targets: Vec<String> =
        folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    targets.sort();
    targets
}

fn corpus() -> PathBuf {
    absolute("tests/data/fuzz")
}

fn absolute(path: &str) -> PathBuf {
    root().canonicalize().unwrap_or_else(|_| root()).join(path)
}

/// Runs a target from its corpus. What finds new ways is kept under `target/fuzz` for the next run.
fn one(steps: &mut Steps, target: &str, seconds: &str, seed: Option<&str>) -> Result<(), Failure> {
    let grown = absolute("target/fuzz").join(target);
    let crashes = absolute("target/fuzz/crashes");
    let made = fs::create_dir_all(&grown).and_then(|()| fs::create_dir_all(&crashes));
    made.map_err(|error| Failure::Step(target.to_owned(), format!("cannot create target/fuzz: {error}")))?;
    let mut args = vec![
        format!("-max_total_time={seconds}"),
        format!("-max_len={INPUT_BYTES_MAX}"),
        format!("-rss_limit_mb={MEMORY_MIB_MAX}"),
        format!("-timeout={INPUT_SECONDS_MAX}"),
        format!("-artifact_prefix={}", crashes.join(format!("{target}-")).display()),
        "-print_final_stats=1".to_owned(),
    ];
    args.extend(seed.map(str::to_owned));
    // The first folder takes what is new.
    args.extend([grown, corpus().join(target)].map(|folder| folder.display().to_string()));
    let (name, mut report) = (format!("fuzz {target}"), Report::default());
    let shown = format!("fuzz target {target} for {seconds} s");
    let done = steps.run_read(&name, &shown, fuzzer(target, &args), |line| {
        if report.take(line) {
            eprintln!("{line}");
        }
    });
    let Report { counters, covered, runs, kept } = report;
    eprintln!("    inputs tried: {runs}, kept as new: {kept}; places covered: {covered} of {counters}");
    if done.is_ok() && covered == 0 {
        let blind = "nothing is counted, so the search is blind: did tools/sancov.sh compile the library?";
        return Err(Failure::Step(name, blind.to_owned()));
    }
    done
}

/// The runner, built with coverage, with these options of libFuzzer.
fn fuzzer(target: &str, args: &[String]) -> Command {
    let mut command = cargo(&["--"]);
    command.args(args).env("FLOODMARK_FUZZ_TARGET", target);
    command
}

/// Cargo that builds the runner, and starts it unless these arguments say otherwise.
fn cargo(args: &[&str]) -> Command {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    // As a test, and of the whole workspace, so that the dependencies are the ones that the tests have built.
    command.args(["test", "--quiet", "--workspace", "--bin", "fuzz", "--features"]);
    command.arg("floodmark/fault-injection,floodmark-fuzz/libfuzzer").args(args);
    command.env("RUSTC_WORKSPACE_WRAPPER", absolute("tools/sancov.sh")).env("CARGO_INCREMENTAL", "0");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &[&str]) -> Option<Wanted> {
        let owned = |args: &[&str]| args.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>();
        parse(&owned(args), &owned(&["csv", "keys"]))
    }

    #[test]
    fn a_run_is_summed_up_and_only_what_matters_is_shown() {
        let mut report = Report::default();
        let shown: Vec<&str> = [
            "WARNING: Failed to find function \"__sanitizer_print_stack_trace\".",
            "INFO: Loaded 1 modules   (39433 inline 8-bit counters): 39433 [0x55, 0x56), ",
            "INFO: Loaded 1 PC tables (39433 PCs): 39433 [0x55,0x56), ",
            "#5\tINITED cov: 1311 ft: 1788 corp: 4/214b exec/s: 0 rss: 37Mb",
            "#7\tNEW    cov: 1313 ft: 1821 corp: 5/275b lim: 76 exec/s: 0 rss: 37Mb L: 61/76 MS: 1 ChangeBit-",
            "\tNEW_FUNC[1/1]: 0x562f2c70b151",
            "thread '<unnamed>' panicked at src/pipeline/source/fuzzing.rs:94:5:",
            "###### Recommended dictionary. ######",
            "\"CURRENT\" # Uses: 3",
            "stat::number_of_executed_units: 332",
            "stat::new_units_added:          78",
        ]
        .into_iter()
        .filter(|line| report.take(line))
        .collect();
        assert_eq!(report, Report { counters: 39_433, covered: 1_313, runs: 332, kept: 78 });
        assert!(
            matches!(shown[..], [inited, panicked] if inited.contains("INITED") && panicked.contains("panicked"))
        );
    }

    #[test]
    fn targets_times_and_files_are_told_apart() {
        let run = |targets: &[&str], seconds: &str, seed: Option<&str>| {
            Some(Wanted::Run {
                targets: targets.iter().map(|&target| target.to_owned()).collect(),
                seconds: seconds.to_owned(),
                seed: seed.map(str::to_owned),
            })
        };
        assert_eq!(parsed(&[]), run(&["csv", "keys"], "60", None));
        assert_eq!(parsed(&["keys", "--for", "3600s", "--seed", "7"]), run(&["keys"], "3600", Some("7")));
        let replay = Wanted::Replay { target: "csv".to_owned(), file: PathBuf::from("crash-1") };
        assert_eq!(parsed(&["csv", "crash-1"]), Some(replay));
        for wrong in [&["tsv"][..], &["--for", "soon"], &["--for"], &["csv", "a", "b"], &["csv", "--fro"]] {
            assert_eq!(parsed(wrong), None, "{wrong:?}");
        }
    }
}
