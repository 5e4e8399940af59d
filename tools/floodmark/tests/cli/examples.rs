//! Every pipeline under `examples/`, run as it stands.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value as Json;
use tempfile::TempDir;

use crate::support::{Ended, repository};

/// A copy of the examples and of the streams they read, so that what they write goes elsewhere.
pub(crate) struct Examples(TempDir);

impl Examples {
    pub(crate) fn new() -> Self {
        let copy = Self(tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap());
        for folder in ["examples", "tests/data/streams"] {
            copy_all(&repository().join(folder), &copy.0.path().join(folder));
        }
        copy
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs a pipeline; one that reads standard input is given the visits.
    fn run(&self, pipeline: &Path) -> Ended {
        self.run_in(pipeline, &[])
    }

    /// As `run`, with variables in the environment.
    pub(crate) fn run_in(&self, pipeline: &Path, environment: &[(&str, &str)]) -> Ended {
        let live = fs::read_to_string(pipeline).unwrap().contains("path = \"-\"");
        let mut command = Command::new(env!("CARGO_BIN_EXE_floodmark"));
        command.arg("run").arg(pipeline).args(["--json", "--quiet"]).env_remove("FLOODMARK_LOG");
        command.envs(environment.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        if live {
            stdin.write_all(&fs::read(self.path("examples/windows/visits.jsonl")).unwrap()).unwrap();
        }
        drop(stdin);
        Ended::of(child.wait_with_output().unwrap())
    }

    fn rows(&self, output: &str) -> Vec<Json> {
        let mut parts: Vec<PathBuf> = fs::read_dir(self.path(&format!("demo-output/windows/{output}")))
            .unwrap_or_else(|error| panic!("{output}: {error}"))
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some())
            .collect();
        parts.sort();
        let text: String = parts.iter().map(|part| fs::read_to_string(part).unwrap()).collect();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_all(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

fn pipelines(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(pipelines(&path));
        } else if path.extension().is_some_and(|extension| extension == "toml") {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn every_example_runs_to_its_end_and_every_window_has_results() {
    let examples = Examples::new();
    let pipelines = pipelines(&examples.path("examples"));
    assert!(pipelines.len() >= 12, "{pipelines:?}");
    for pipeline in pipelines {
        let text = fs::read_to_string(&pipeline).unwrap();
        if text.contains("kind = \"postgres\"") {
            // Needs a server: `postgres::the_example_fills_its_tables`.
            continue;
        }
        let summary = examples.run(&pipeline).summary();
        assert_eq!(summary["outcome"], "completed", "{}", pipeline.display());
        let windows = text.matches("[[window]]").count() + text.matches("[[join]]").count();
        let results = summary["total"]["results"].as_object().unwrap();
        let filled = results.values().filter(|rows| rows.as_u64() > Some(0)).count();
        assert_eq!(filled, windows, "{}: {results:?}", pipeline.display());
    }
}

fn sum(rows: &[Json], column: &str) -> i64 {
    rows.iter().map(|row| row[column].as_i64().unwrap()).sum()
}

fn hours(row: &Json) -> i64 {
    let time = |name: &str| row[name].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_second();
    (time("window_end") - time("window_start")) / 3_600
}

#[test]
fn examples_of_windows_show_what_they_are_about() {
    let examples = Examples::new();
    let run = |name: &str| {
        let pipeline = examples.path(&format!("examples/windows/{name}.toml"));
        let summary = examples.run(&pipeline).summary();
        summary["total"]["late"].as_object().unwrap().values().filter_map(Json::as_i64).sum::<i64>()
    };
    let events =
        fs::read_to_string(examples.path("examples/windows/visits.jsonl")).unwrap().lines().count() as i64;

    let late = run("tumbling");
    assert_eq!(late, 1, "one visit comes hours after");
    let hourly = examples.rows("tumbling/hourly");
    assert!(hourly.iter().all(|row| row["window_start"].as_str().unwrap().ends_with(":15:00Z")));
    assert!(hourly.iter().any(|row| row["pane"] == "late"), "an hour is corrected");

    run("sliding");
    let sliding = examples.rows("sliding/last_hour");
    // An event that is late for some of its windows counts in the others.
    assert!((5 * events..=6 * events).contains(&sum(&sliding, "visits")), "{}", sum(&sliding, "visits"));

    run("cumulative");
    let lengths: Vec<i64> = examples.rows("cumulative/day_so_far").iter().map(hours).collect();
    assert!([6, 12, 18, 24].iter().all(|length| lengths.contains(length)), "{lengths:?}");

    run("session");
    let sessions = examples.rows("session/sessions");
    assert!(sessions.iter().any(|row| row["entry"] != row["exit"] && row["visits"].as_i64() > Some(2)));

    run("calendar");
    let days = examples.rows("calendar/days");
    assert!(days.iter().any(|row| row["window_start"] == "2026-03-28T23:00:00Z" && hours(row) == 23));

    run("global");
    let fifths = examples.rows("global/every_fifth");
    assert!(fifths.len() > 3 && fifths.iter().all(|row| row["visits"] == 5));

    run("triggers");
    let previewed = examples.rows("triggers/previewed");
    assert!(["early", "on_time"].iter().all(|pane| previewed.iter().any(|row| row["pane"] == *pane)));

    run("batches");
    assert!(examples.rows("batches/table").len() > examples.rows("batches/hourly").len());
}
