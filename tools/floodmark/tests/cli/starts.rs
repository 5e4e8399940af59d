//! Starts that are refused: they say so before anything is touched, `check` says the same, and what they name as the way
//! out is one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::support::{Ended, Running, Site, wait_until};

const DAMAGED: i32 = 5;
const INCOMPATIBLE: i32 = 6;
const LOCKED: i32 = 4;
const SIGKILL: i32 = 9;

/// Machines that share an input that grows and a repository. One checkpoint a run.
struct Machines {
    site: Site,
    rows: std::cell::Cell<u64>,
}

impl Machines {
    fn new() -> Self {
        let machines = Self { site: Site::in_memory(""), rows: std::cell::Cell::new(0) };
        machines.define("a", "out", "10s");
        machines.grow(1_000);
        machines
    }

    /// The pipeline file of a machine with a state directory of its own.
    fn define(&self, name: &str, out: &str, size: &str) {
        let text = format!(
            r#"name = "shared"
source = {{ path = "in.jsonl", time = {{ field = "t", format = "epoch_ms" }} }}
watermark = {{ delay = "5s", close_at_end = false }}
state = {{ directory = "{name}", memory = "64MiB" }}
checkpoint = {{ interval = "1h", repository = "mirror" }}
dead_letter = {{ path = "{out}/dead" }}
[[window]]
name = "w"
key = ["k"]
type = "tumbling"
size = "{size}"
aggregates = [{{ name = "n", function = "count" }}]
output = {{ path = "{out}/w" }}
"#
        );
        self.site.write(&format!("{name}.toml"), text);
    }

    /// Further rows, every hundredth of which is none.
    fn grow(&self, rows: u64) {
        let mut text = fs::read_to_string(self.site.path("in.jsonl")).unwrap_or_default();
        for row in self.rows.get()..self.rows.get() + rows {
            match row % 100 {
                99 => text.push_str("{\"t\":\"x\"}\n"),
                _ => writeln!(text, "{{\"t\":{},\"k\":\"k{}\"}}", 1_700_000_000_000 + row * 500, row % 3)
                    .unwrap(),
            }
        }
        self.rows.set(self.rows.get() + rows);
        self.site.write("in.jsonl", text);
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_floodmark"));
        command.args(words).current_dir(self.site.path(""));
        command.env_remove("FLOODMARK_FAULT").env_remove("FLOODMARK_LOG");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn floodmark(&self, words: &[&str]) -> Ended {
        Ended::of(self.command(words).output().unwrap())
    }

    fn run(&self, words: &[&str], fault: &str) -> Ended {
        let mut command = self.command(&[&["run", "--quiet"], words].concat());
        if !fault.is_empty() {
            command.env("FLOODMARK_FAULT", fault);
        }
        Ended::of(command.output().unwrap())
    }

    fn succeed(&self, words: &[&str], fault: &str) {
        let ended = self.run(words, fault);
        assert_eq!(ended.code, Some(0), "{words:?}: {}", ended.stderr);
    }

    /// Everything below the machines' directory.
    fn tree(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        fn walk(directory: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                let is_directory = path.symlink_metadata().unwrap().is_dir();
                found.insert(
                    path.clone(),
                    if is_directory { Vec::new() } else { fs::read(&path).unwrap_or_default() },
                );
                if is_directory {
                    walk(&path, found);
                }
            }
        }
        let mut found = BTreeMap::new();
        walk(&self.site.path(""), &mut found);
        found
    }

    /// Runs what must be refused with `code`, which changes nothing; `check` says as much.
    fn refused(&self, words: &[&str], code: i32, said: &[&str]) {
        let before = self.tree();
        let check = self.floodmark(&[&["check"], words].concat());
        assert_eq!(check.code, Some(INCOMPATIBLE), "check {words:?}: {}{}", check.stdout, check.stderr);
        self.run(words, "").assert_refused(code, said);
        let after = self.tree();
        let changed = before.keys().chain(after.keys()).filter(|path| before.get(*path) != after.get(*path));
        assert_eq!(changed.collect::<Vec<_>>(), Vec::<&PathBuf>::new(), "changed by run {words:?}");
    }

    /// The published parts of an output, one after the other.
    fn published(&self, out: &str, output: &str) -> String {
        let directory = self.site.path(out).join(output);
        let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let is_part = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("part-");
        let mut parts: Vec<_> = names.filter(is_part).collect();
        parts.sort();
        let text: String = parts.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
        // Rejected records name their file.
        text.replace(self.site.path("").to_str().unwrap(), "")
    }
}

#[test]
fn a_start_that_is_refused_does_not_let_the_next_one_pass() {
    let machines = Machines::new();
    machines.succeed(&["a.toml"], "");
    machines.grow(1_000);
    machines.define("b", "outb", "10s");
    // Another machine takes over, and what it does nobody else knows.
    let killed = machines.run(&["b.toml", "--accept-lost-output"], "checkpoint.link.before:kill:1");
    assert_eq!(killed.signal, Some(SIGKILL), "{}", killed.stderr);
    machines.refused(&["a.toml"], INCOMPATIBLE, &["mirror"]);
    // Told to go on all the same, with a file that does not fit.
    machines.define("a", "out", "20s");
    machines.refused(&["a.toml", "--at", "1"], INCOMPATIBLE, &["another definition"]);
    machines.define("a", "out", "10s");
    machines.refused(&["a.toml"], INCOMPATIBLE, &["mirror"]);
    machines.succeed(&["a.toml", "--at", "1"], "");
    machines.succeed(&["a.toml"], "");
}

#[test]
fn an_output_that_is_in_use_is_seen_before_the_repository_is_taken_over() {
    let machines = Machines::new();
    machines.succeed(&["a.toml"], "");
    machines.grow(4_000);
    machines.define("b", "out", "10s");
    let owner = || fs::read(machines.site.path("mirror/OWNER")).unwrap();
    // The last output that a start takes hold of.
    let dead = || fs::read(machines.site.path("out/dead/.staging/OWNER")).unwrap();
    let before = dead();
    let mut first = Running::start(machines.command(&["run", "a.toml", "--quiet", "--rate", "200"]));
    wait_until("the first has its outputs", || dead() != before);
    let ours = machines.floodmark(&["check", "a.toml"]);
    assert_eq!(ours.code, Some(0), "its own pipeline may be running: {}{}", ours.stdout, ours.stderr);
    let claimed = owner();
    let check = machines.floodmark(&["check", "b.toml"]);
    assert_eq!(check.code, Some(INCOMPATIBLE), "{}{}", check.stdout, check.stderr);
    machines.run(&["b.toml"], "").assert_refused(LOCKED, &["in use by another process"]);
    assert_eq!(owner(), claimed, "nothing was claimed");
    assert!(!machines.site.path("b").exists(), "nothing was fetched");
    first.signal(Signal::TERM);
    let ended = first.wait();
    assert_eq!(ended.code, Some(0), "the first was not stopped: {}", ended.stderr);
}

/// What is done to an output: its directory, and one beside it.
type Harm = fn(&Path, &Path);

#[test]
fn staged_rows_that_cannot_be_published_are_seen_before_any_output_or_the_repository_is_touched() {
    let straight = Machines::new();
    straight.grow(1_000);
    straight.succeed(&["a.toml"], "");
    let cases: [(i32, &str, Harm); 4] = [
        (DAMAGED, "staged output is damaged", |staged, _| fs::write(staged, "cut").unwrap()),
        (DAMAGED, "staged output is damaged", |staged, _| {
            let mut bytes = fs::read(staged).unwrap();
            bytes[3] ^= 1;
            fs::write(staged, bytes).unwrap();
        }),
        (INCOMPATIBLE, "no file", |_, part| fs::create_dir(part).unwrap()),
        (INCOMPATIBLE, "a different part", |_, part| fs::write(part, "somebody else's").unwrap()),
    ];
    for (code, said, damage) in cases {
        let machines = Machines::new();
        machines.succeed(&["a.toml"], "");
        machines.grow(1_000);
        let killed = machines.run(&["a.toml"], "sink.publish.before:kill:1");
        assert_eq!(killed.signal, Some(SIGKILL), "{}", killed.stderr);
        // The last output: all others could be published.
        let dead = machines.site.path("out/dead");
        let staging = fs::read_dir(dead.join(".staging")).unwrap().map(|entry| entry.unwrap().path());
        let staged = staging.filter(|path| path.extension().is_some_and(|it| it == "jsonl")).max().unwrap();
        damage(&staged, &dead.join("part-0000000002.jsonl"));
        machines.refused(&["a.toml"], code, &[said, "out/dead"]);
        match code {
            DAMAGED => {
                machines.run(&["a.toml"], "").assert_refused(code, &["--at EPOCH --set-aside-output"]);
                machines.succeed(&["a.toml", "--at", "1", "--set-aside-output"], "");
            }
            _ => {
                let part = dead.join("part-0000000002.jsonl");
                let moved = machines.site.path("moved away");
                fs::rename(part, moved).unwrap();
                machines.succeed(&["a.toml"], "");
            }
        }
        for output in ["w", "dead"] {
            assert_eq!(
                machines.published("out", output),
                straight.published("out", output),
                "{said} {output}"
            );
        }
    }
}

#[test]
fn an_output_path_that_cannot_be_made_is_seen_before_anything_is_touched() {
    let machines = Machines::new();
    machines.succeed(&["a.toml"], "");
    let long = format!("out{}", "x".repeat(300));
    machines.define("a", &long, "10s");
    machines.refused(&["a.toml", "--accept-lost-output"], 3, &["too long"]);
    machines.define("a", "dangling", "10s");
    std::os::unix::fs::symlink("nowhere", machines.site.path("dangling")).unwrap();
    machines.refused(&["a.toml", "--accept-lost-output"], 3, &["a link that leads nowhere"]);
}

#[test]
fn check_says_what_a_run_does_where_only_the_state_was_lost() {
    let machines = Machines::new();
    // Starts with nothing new raise the generation of the outputs' owner, and upload nothing.
    for _ in 0..3 {
        machines.succeed(&["a.toml"], "");
    }
    fs::remove_dir_all(machines.site.path("a")).unwrap();
    let check = machines.floodmark(&["check", "a.toml"]);
    assert_eq!(check.code, Some(0), "{}{}", check.stdout, check.stderr);
    machines.succeed(&["a.toml"], "");
}

#[test]
fn a_moved_copy_is_the_only_one_to_go_on_even_when_nothing_was_ever_uploaded() {
    let machines = Machines::new();
    let fails =
        "upload.manifest.before:error:1,upload.manifest.before:error:2,upload.manifest.before:error:3";
    machines.succeed(&["a.toml"], fails);
    machines.define("b", "outb", "10s");
    let moved = machines.floodmark(&["restore", "--from", "a", "--state", "b", "--move"]);
    assert_eq!(moved.code, Some(0), "{}", moved.stderr);
    machines.grow(1_000);
    machines.succeed(&["b.toml", "--accept-lost-output"], fails);
    machines.refused(&["a.toml"], INCOMPATIBLE, &["mirror"]);
    machines.succeed(&["b.toml"], "");
}

#[test]
fn savepoints_of_a_directory_that_is_not_there_and_a_bench_without_memory_are_refused() {
    let machines = Machines::new();
    machines
        .floodmark(&["savepoint", "list", "--state", "nope"])
        .assert_refused(2, &["no state directory", "nope"]);
    let none = machines.floodmark(&["savepoint", "list", "a.toml"]);
    assert_eq!(none.code, Some(0), "{}", none.stderr);
    let bench = machines.floodmark(&["bench", "--memory", "0"]);
    assert_eq!(bench.code, Some(2), "{}", bench.stderr);
    assert!(bench.stderr.contains("--memory"), "{}", bench.stderr);
}
