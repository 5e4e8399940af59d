//! `floodmark drill`: passes where recovery holds, fails where a row is lost, and touches nothing that is the user's.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use rustix::process::Signal;
use serde_json::Value as Json;

use crate::support::{Ended, Running, Site, flights_sample, wait_until};

/// Exit codes.
const DAMAGED: i32 = 5;
const FAILED: i32 = 7;
const INTERRUPTED: i32 = 130;

/// Flights by the hour, with checkpoints as often as they can be had.
fn pipeline(source: &str) -> String {
    format!(
        r#"name = "drilled"

[source]
{source}
time = {{ field = "sched_dep", format = "rfc3339", min = "2013-01-01T00:00:00Z", max = "2014-02-01T00:00:00Z" }}

[watermark]
delay = "15m"

[state]
directory = "state"
memory = "64MiB"

[checkpoint]
interval = "5ms"
bytes = "64KiB"

[[window]]
name = "hourly"
key = ["origin"]
type = "tumbling"
size = "1h"
allowed_lateness = "30m"
aggregates = [
  {{ name = "flights", function = "count" }},
  {{ name = "delay_avg", function = "avg", field = "dep_delay", type = "int" }},
]
output = {{ path = "out/hourly" }}

[[window]]
name = "aircraft"
key = ["tailnum"]
type = "session"
gap = "6h"
aggregates = [{{ name = "legs", function = "count" }}]
output = {{ path = "out/aircraft", format = "csv" }}

[late]
path = "out/late"

[dead_letter]
path = "out/rejected"
"#
    )
}

fn flights() -> Site {
    Site::in_memory(&pipeline(&format!("path = {:?}", flights_sample())))
}

/// `floodmark drill` with these arguments, not started yet.
fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodmark"));
    command.arg("drill").args(arguments).env_remove("FLOODMARK_FAULT").env_remove("FLOODMARK_LOG");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn drill(site: &Site, arguments: &[&str]) -> Ended {
    let file = site.path("pipeline.toml");
    let mut all = vec![file.to_str().unwrap()];
    all.extend_from_slice(arguments);
    Ended::of(command(&all).output().unwrap())
}

fn report(ended: &Ended) -> Json {
    serde_json::from_str(&ended.stdout)
        .unwrap_or_else(|error| panic!("{error}: code={:?} stderr:\n{}", ended.code, ended.stderr))
}

/// Every file below a directory with its bytes and its age.
fn everything(directory: &Path) -> BTreeMap<PathBuf, (Vec<u8>, SystemTime)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let metadata = entry.metadata().unwrap();
        if metadata.is_dir() {
            found.insert(entry.path(), (Vec::new(), metadata.modified().unwrap()));
            found.extend(everything(&entry.path()));
        } else {
            found.insert(entry.path(), (fs::read(entry.path()).unwrap(), metadata.modified().unwrap()));
        }
    }
    found
}

#[test]
fn a_drill_on_real_state_passes_and_leaves_everything_as_it_was() {
    let site = flights();
    site.run_with_fault("checkpoint.publish.after:kill:2");
    let newest = site.epochs().last().copied().unwrap();
    let before = [everything(&site.path("state")), everything(&site.path("out"))];
    let html = tempfile::tempdir().unwrap();
    let page = html.path().join("drill.html");
    let ended = drill(
        &site,
        &[
            "--kills",
            "6",
            "--damages",
            "10",
            "--seed",
            "11",
            "--run-time",
            "600ms",
            "--json",
            "--html",
            page.to_str().unwrap(),
        ],
    );
    let found = report(&ended);
    assert_eq!(ended.code, Some(0), "{found}\n{}", ended.stderr);
    let totals = &found["totals"];
    assert_eq!((&found["verdict"], &found["start_epoch"]), (&"pass".into(), &newest.into()));
    let kills = totals["restores"].as_u64().unwrap();
    assert_eq!(kills + totals["missed"].as_u64().unwrap(), 6, "{totals}");
    assert_eq!(totals["restores"], totals["from_checkpoint"], "each had the checkpoint at least: {totals}");
    assert!(totals["recovery_ms_median"].as_f64().unwrap() > 0.0, "{totals}");
    assert!(totals["replayed"].as_u64().unwrap() > 0, "no kill came between two checkpoints: {totals}");
    assert_eq!((&totals["rows_lost"], &totals["rows_doubled"]), (&0.into(), &0.into()));
    assert_eq!((&totals["damaged"], &totals["detected"]), (&10.into(), &10.into()), "{}", found["damages"]);
    assert!(totals["went_back"].as_u64().unwrap() > 0, "{}", found["damages"]);
    assert_eq!(totals["went_back"], totals["went_back_good"], "{}", found["damages"]);
    let rows: u64 =
        found["outputs"].as_array().unwrap().iter().map(|output| output["rows"].as_u64().unwrap()).sum();
    assert!(rows > 1_000, "{}", found["outputs"]);
    let trials = found["trials"].as_array().unwrap();
    let all = trials.iter().flat_map(|trial| trial["kills"].as_array().unwrap());
    let recovered = all.filter(|kill| !kill["recovery_ms"].is_null()).count() as u64;
    let dots = fs::read_to_string(page).unwrap().matches("<circle").count() as u64;
    assert_eq!(
        dots,
        kills + recovered,
        "a dot in both plots, but for those killed again before they had recovered"
    );
    assert_eq!([everything(&site.path("state")), everything(&site.path("out"))], before);
    nothing_is_left(&site);
    // And the pipeline itself goes on as if nothing had been.
    let (_, outputs) = site.complete(&["--quiet"]);
    site.reset();
    outputs.assert_same_as(&site.complete(&["--quiet"]).1, "after a drill");
}

fn nothing_is_left(site: &Site) {
    let mut names: Vec<String> = fs::read_dir(site.path("."))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.retain(|name| name.starts_with(".floodmark-drill"));
    assert!(names.is_empty(), "left: {names:?}");
}

/// Writes a program that does not look at a damaged checkpoint, and that removes the last row of the first part and
/// repeats the first one when it starts a trial again. Another process writes it: this one must not have it open when it
/// is started.
fn write_faulty_program(path: &Path) {
    let script = r#"#!/bin/sh
scratch=
before=
for word in "$@"; do
  [ "$before" = --scratch ] && scratch=$word
  before=$word
done
rows=$scratch/out/results.hourly
case $scratch in
*/damage-*) exit 0 ;;
*/trial-*)
  if [ ! -e "$scratch/spoiled" ] && [ "$(ls "$rows" 2>/dev/null | grep -c part-)" -gt 1 ]; then
    first=$(ls "$rows"/part-* | sed -n 1p)
    sed -n 1p "$first" > "$scratch/spoiled"
    sed -i '$d' "$first"
    cat "$scratch/spoiled" >> "$first"
  fi ;;
esac
exec "$REAL_FLOODMARK" "$@"
"#;
    let status = Command::new("/bin/sh")
        .args(["-c", "printf %s \"$SCRIPT\" > \"$TARGET\" && chmod +x \"$TARGET\""])
        .env("SCRIPT", script)
        .env("TARGET", path)
        .status()
        .unwrap();
    assert!(status.success());
    assert!(fs::metadata(path).unwrap().permissions().mode() & 0o100 != 0);
}

#[test]
fn a_program_that_loses_a_row_doubles_another_and_overlooks_damage_fails_and_the_evidence_stays() {
    let site = flights();
    let program = site.path("faulty");
    write_faulty_program(&program);
    let evidence = site.path("evidence");
    let file = site.path("pipeline.toml");
    let mut command = command(&[
        file.to_str().unwrap(),
        "--kills",
        "4",
        "--damages",
        "2",
        "--seed",
        "12",
        "--run-time",
        "1s",
        "--program",
        program.to_str().unwrap(),
        "--keep",
        evidence.to_str().unwrap(),
        "--json",
    ]);
    command.env("REAL_FLOODMARK", env!("CARGO_BIN_EXE_floodmark"));
    let ended = Ended::of(command.output().unwrap());
    let found = report(&ended);
    assert_eq!((ended.code, &found["verdict"]), (Some(FAILED), &"fail".into()), "{found}\n{}", ended.stderr);
    let mut outputs = found["outputs"].as_array().unwrap().iter();
    let hourly = outputs.find(|output| output["name"] == "results.hourly").unwrap();
    let spoiled = hourly["lost"].as_u64().unwrap();
    assert!((1..=4).contains(&spoiled), "once in each trial that was started again: {found}");
    assert_eq!((&hourly["doubled"], &hourly["strange"]), (&spoiled.into(), &0.into()));
    let totals = &found["totals"];
    assert_eq!((&totals["rows_lost"], &totals["rows_doubled"]), (&spoiled.into(), &spoiled.into()));
    assert_eq!(
        totals["trials"].as_u64(),
        Some(totals["trials_good"].as_u64().unwrap() + spoiled),
        "{totals}"
    );
    assert_eq!((&found["totals"]["damaged"], &found["totals"]["detected"]), (&2.into(), &0.into()));
    assert!(evidence.join("damage-002/state").is_dir());
    let differs = |trial: &&Json| !trial["differences"].as_array().unwrap().is_empty();
    let trial = found["trials"].as_array().unwrap().iter().find(differs).unwrap();
    let shown = trial["differences"][0]["shown"].as_array().unwrap();
    let shown: Vec<&str> = shown.iter().map(|shown| shown["what"].as_str().unwrap()).collect();
    assert_eq!(shown, ["lost", "doubled"]);
    let place = format!("trial-{:03}/out/results.hourly", trial["number"].as_u64().unwrap());
    assert!(evidence.join(place).is_dir() && evidence.join("reference").is_dir());
}

#[test]
fn a_load_of_its_own_is_drilled_without_a_pipeline() {
    let keep = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let place = keep.path().join("drill");
    let ended = Ended::of(
        command(&[
            "--generate",
            "200000",
            "--kills",
            "4",
            "--damages",
            "2",
            "--seed",
            "12",
            "--run-time",
            "800ms",
            "--keep",
            place.to_str().unwrap(),
            "--quiet",
        ])
        .output()
        .unwrap(),
    );
    assert_eq!(ended.code, Some(0), "{}\n{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.starts_with("PASS: "), "{}", ended.stdout);
    assert!(ended.stdout.contains("2 of 2 damaged checkpoints were noticed."), "{}", ended.stdout);
    assert!(
        ended.stdout.contains("floodmark drill --generate 200000 --seed 12 --kills 4"),
        "{}",
        ended.stdout
    );
    assert!(ended.stderr.is_empty(), "{}", ended.stderr);
    assert!(place.join("reference/out/results.sliding").is_dir(), "it was to be kept");
}

#[test]
fn state_that_has_read_everything_is_restored_once_and_the_input_is_drilled_from_its_start() {
    let site = flights();
    site.complete(&["--quiet"]);
    let before = everything(&site.path("state"));
    let ended =
        drill(&site, &["--kills", "3", "--damages", "0", "--seed", "12", "--run-time", "700ms", "--json"]);
    let found = report(&ended);
    assert_eq!((ended.code, &found["start_epoch"]), (Some(0), &Json::Null), "{found}\n{}", ended.stderr);
    assert!(found["notes"][0].as_str().unwrap().contains("it had read all input"), "{}", found["notes"]);
    assert_eq!(everything(&site.path("state")), before);
}

#[test]
fn what_goes_to_a_table_or_to_parquet_is_drilled_as_files_of_text() {
    let outputs = pipeline(&format!("path = {:?}", flights_sample()))
        .replace(
            "output = { path = \"out/hourly\" }",
            "output = { kind = \"postgres\", url_env = \"NO_SUCH_SERVER\", table = \"hourly\", write = \"append\" }",
        )
        .replace("format = \"csv\"", "format = \"parquet\"");
    let site = Site::in_memory(&outputs);
    let ended =
        drill(&site, &["--kills", "1", "--damages", "1", "--seed", "6", "--run-time", "500ms", "--json"]);
    let found = report(&ended);
    assert_eq!((ended.code, &found["verdict"]), (Some(0), &"pass".into()), "{found}\n{}", ended.stderr);
    let note = found["notes"][0].as_str().unwrap();
    assert!(note.contains("results.hourly, results.aircraft"), "{note}");
    assert!(found["outputs"][1]["rows"].as_u64().unwrap() > 0, "{}", found["outputs"]);
}

#[test]
fn damage_in_the_newest_checkpoint_is_told_before_any_kill() {
    let site = flights();
    site.run_with_fault("checkpoint.publish.after:kill:2");
    let newest = site.epochs().last().copied().unwrap();
    let current = site.path(&format!("state/checkpoints/chk-{newest:010}/db/CURRENT"));
    let mut bytes = fs::read(&current).unwrap();
    bytes[0] ^= 1;
    fs::write(&current, bytes).unwrap();
    let ended = drill(&site, &["--kills", "1"]);
    ended.assert_refused(DAMAGED, &["the newest checkpoint is damaged", "CURRENT", "--at"]);
    nothing_is_left(&site);
}

#[test]
fn what_cannot_be_drilled_is_refused_with_the_reason() {
    let site = Site::in_memory(&pipeline("path = \"-\"\nformat = \"jsonl\""));
    drill(&site, &[]).assert_refused(2, &["pipeline.toml:", "standard input", "--generate"]);
    let nothing = Ended::of(command(&[]).output().unwrap());
    nothing.assert_refused(2, &["nothing to drill", "name a pipeline file", "--generate 500000"]);
    let site = flights();
    drill(&site, &["--html", "/nowhere/at/all.html"]).assert_refused(2, &["/nowhere/at/all.html"]);
    site.write("full/file", "x");
    let full = site.path("full");
    drill(&site, &["--keep", full.to_str().unwrap()]).assert_refused(2, &["not empty", "--keep"]);
    site.write("none.jsonl", "");
    site.write("pipeline.toml", pipeline("path = \"none.jsonl\""));
    drill(&site, &[]).assert_refused(2, &["no events"]);
    site.write("pipeline.toml", pipeline("path = \"absent.jsonl\""));
    drill(&site, &[]).assert_refused(3, &["does not run without kills either", "absent.jsonl"]);
    nothing_is_left(&site);
}

#[test]
fn an_interrupted_drill_stops_its_runs_and_says_where_nothing_is_left() {
    let site = flights();
    let file = site.path("pipeline.toml");
    let mut running = Running::start(command(&[file.to_str().unwrap(), "--run-time", "30s"]));
    let place = || {
        let mut names = fs::read_dir(site.path(".")).unwrap().map(|entry| entry.unwrap().path());
        names.find(|path| path.to_string_lossy().contains(".floodmark-drill-"))
    };
    wait_until("a slow run is on its way", || {
        place().is_some_and(|place| place.join("reference/state/checkpoints").is_dir())
    });
    let place = place().unwrap();
    running.signal(Signal::INT);
    let ended = running.wait();
    assert_eq!(ended.code, Some(INTERRUPTED), "{}", ended.stderr);
    assert!(ended.stderr.contains("interrupted: nothing is left in"), "{}", ended.stderr);
    assert!(!place.exists() && !site.path("state").exists() && !site.path("out").exists());
}
