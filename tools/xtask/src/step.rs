//! Runs one program after the other and keeps the time.
//!
//! Knows processes and clocks; what is run, and why, is `tasks`' matter.

use std::fmt;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Why a task ended early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line makes no sense.
    Usage,
    /// The machine lacks something; what to do has been printed.
    Incomplete,
    /// A step did not succeed: its name and how it ended.
    Step(String, String),
    /// So many figures of a comparison are worse than they may be; which ones has been printed.
    Worse(usize),
}

impl Failure {
    /// Exit code: 1 a step failed, 2 wrong usage, 3 the machine lacks something, 4 a figure is worse than it may be.
    pub(crate) const fn code(&self) -> u8 {
        match self {
            Self::Step(..) => 1,
            Self::Usage => 2,
            Self::Incomplete => 3,
            Self::Worse(_) => 4,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage => f.write_str("unknown command"),
            Self::Incomplete => f.write_str("this machine lacks what is named above; nothing was built"),
            Self::Step(name, how) => write!(f, "{name}: {how}"),
            Self::Worse(figures) => write!(f, "figures that are worse by more than their bound: {figures}"),
        }
    }
}

/// The steps of one task, with their times.
pub(crate) struct Steps {
    env: Vec<(&'static str, String)>,
    done: Vec<(String, Duration, Outcome)>,
}

#[derive(Clone, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    Skipped(String),
}

impl Steps {
    /// A fresh list; every step gets these environment variables.
    pub(crate) fn new(env: Vec<(&'static str, String)>) -> Self {
        Self { env, done: Vec::new() }
    }

    /// Sets a variable for the steps to come.
    pub(crate) fn set(&mut self, name: &'static str, value: &str) {
        self.env.push((name, value.to_owned()));
    }

    /// Runs cargo with these arguments as a named step.
    pub(crate) fn cargo(&mut self, name: &str, args: &[&str]) -> Result<(), Failure> {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let mut command = Command::new(cargo);
        command.args(args);
        self.run(name, &format!("cargo {}", args.join(" ")), command)
    }

    /// Runs a command as a named step, in the repository's root, with the terminal as its own.
    pub(crate) fn run(&mut self, name: &str, shown: &str, command: Command) -> Result<(), Failure> {
        self.timed(name, shown, command, Command::status)
    }

    /// As [`Steps::run`], and returns what it wrote on standard output.
    pub(crate) fn capture(&mut self, name: &str, shown: &str, command: Command) -> Result<String, Failure> {
        let mut text = String::new();
        self.timed(name, shown, command, |command| {
            let done = command.stderr(Stdio::inherit()).output()?;
            text = String::from_utf8_lossy(&done.stdout).into_owned();
            Ok(done.status)
        })?;
        Ok(text)
    }

    /// As [`Steps::run`], but every line of its standard error goes to `line` instead of to the terminal.
    pub(crate) fn run_read(
        &mut self,
        name: &str,
        shown: &str,
        command: Command,
        line: impl FnMut(&str),
    ) -> Result<(), Failure> {
        self.timed(name, shown, command, |command| read(command, line))
    }

    fn timed(
        &mut self,
        name: &str,
        shown: &str,
        mut command: Command,
        run: impl FnOnce(&mut Command) -> io::Result<ExitStatus>,
    ) -> Result<(), Failure> {
        eprintln!("==> {name}: {shown}");
        let started = now();
        let envs = self.env.iter().map(|(name, value)| (name, value));
        let ended = run(command.current_dir(root()).envs(envs));
        let took = started.elapsed();
        let failed = match ended {
            Ok(status) if status.success() => None,
            Ok(status) => Some(status.to_string()),
            Err(error) => Some(format!("cannot be started: {error}")),
        };
        let outcome = if failed.is_none() { Outcome::Passed } else { Outcome::Failed };
        self.done.push((name.to_owned(), took, outcome));
        match failed {
            None => {
                eprintln!("<== {name}: done in {}", Time(took));
                Ok(())
            }
            Some(how) => {
                eprintln!("<== {name}: failed after {}", Time(took));
                Err(Failure::Step(name.to_owned(), how))
            }
        }
    }

    /// Records a step that could not be done here, loudly.
    pub(crate) fn skip(&mut self, name: &str, because: &str) {
        eprintln!("<== {name}: SKIPPED, because {because}");
        self.done.push((name.to_owned(), Duration::ZERO, Outcome::Skipped(because.to_owned())));
    }

    /// Every step so far, as a table.
    pub(crate) fn table(&self) -> String {
        let width = self.done.iter().map(|(name, ..)| name.len()).max().unwrap_or(0).max(5);
        let total = self.done.iter().map(|(_, took, _)| *took).sum();
        let mut table = String::new();
        for (name, took, outcome) in &self.done {
            let outcome = match outcome {
                Outcome::Passed => "ok".to_owned(),
                Outcome::Failed => "FAILED".to_owned(),
                Outcome::Skipped(because) => format!("SKIPPED, because {because}"),
            };
            table += &format!("  {name:width$}  {:>8}  {outcome}\n", Time(*took).to_string());
        }
        table + &format!("  {:width$}  {:>8}", "total", Time(total).to_string())
    }
}

fn read(command: &mut Command, mut line: impl FnMut(&str)) -> io::Result<ExitStatus> {
    let mut child = command.stderr(Stdio::piped()).spawn()?;
    if let Some(errors) = child.stderr.take() {
        for bytes in BufReader::new(errors).split(b'\n') {
            line(&String::from_utf8_lossy(&bytes?));
        }
    }
    child.wait()
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let here = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
    PathBuf::from(here).join("../..")
}

#[expect(clippy::disallowed_methods, reason = "the time shown to people is the one of this machine")]
fn now() -> Instant {
    Instant::now()
}

/// A duration as people read it.
struct Time(Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs() {
            0..60 => write!(f, "{:.1} s", self.0.as_secs_f64()),
            seconds => write!(f, "{} m {:02} s", seconds / 60, seconds % 60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_failing_step_ends_the_task_and_stands_in_the_table() {
        let mut steps = Steps::new(Vec::new());
        assert!(steps.run("good", "true", shell("true")).is_ok());
        let failure = steps.run("bad", "exit 7", shell("exit 7")).expect_err("exit code 7 is a failure");
        assert_eq!(failure.code(), 1);
        assert!(failure.to_string().contains('7'), "{failure}");
        let table = steps.table();
        assert!(table.lines().any(|line| line.contains("good") && line.ends_with("ok")), "{table}");
        assert!(table.lines().any(|line| line.contains("bad") && line.ends_with("FAILED")), "{table}");
    }

    #[test]
    fn a_skipped_step_says_why() {
        let mut steps = Steps::new(Vec::new());
        steps.skip("advisories", "the database cannot be reached");
        assert!(steps.table().contains("SKIPPED, because the database cannot be reached"));
    }

    #[test]
    fn steps_see_the_variables_that_were_set() {
        let mut steps = Steps::new(vec![("FIRST", "1".to_owned())]);
        steps.set("SECOND", "2");
        assert!(steps.run("env", "test", shell("test \"$FIRST$SECOND\" = 12")).is_ok());
    }

    #[test]
    fn the_lines_of_a_step_are_read() {
        let (mut steps, mut lines) = (Steps::new(Vec::new()), Vec::new());
        let script = "echo one >&2; echo two; printf three >&2; exit 3";
        let ended = steps.run_read("read", script, shell(script), |line| lines.push(line.to_owned()));
        assert_eq!(ended.expect_err("exit code 3 is a failure").code(), 1);
        assert_eq!(lines, ["one", "three"]);
    }

    #[test]
    fn what_a_step_prints_is_returned() {
        let mut steps = Steps::new(Vec::new());
        assert_eq!(
            steps.capture("say", "echo", shell("echo one; echo two >&2")).ok().as_deref(),
            Some("one\n")
        );
        assert!(steps.capture("fail", "echo", shell("echo one; exit 1")).is_err());
    }

    #[test]
    fn times_are_readable() {
        assert_eq!(Time(Duration::from_millis(1_540)).to_string(), "1.5 s");
        assert_eq!(Time(Duration::from_secs(245)).to_string(), "4 m 05 s");
    }
}
