//! What `floodmark inspect` says of panes, on states that real runs left: every kind of window, joins, duplicates, lateness,
//! and a firing that was cut in the middle.

mod between;
mod exported;
mod fetched;
mod remains;
mod status;
mod why;

use std::fs;
use std::path::Path;
use std::process::Command;

use floodmark::checkpoint::Manifest;
use serde_json::{Value as Json, json};

use crate::support::{Ended, Site};

const SIGKILL: i32 = 9;
const MINUTE: i64 = 60_000;
/// Milliseconds of 2026-03-01T10:00:00Z.
const START: i64 = 1_772_359_200_000;

/// One source of clicks with ids, one of views; no end of input closes anything. Newest event 10:29, W 10:19.
const KINDS: &str = r#"name = "kinds"
[[source]]
name = "clicks"
path = "clicks.jsonl"
time = { field = "t", format = "epoch_ms" }
dedup = { by = ["id"], within = "10m" }
[[source]]
name = "views"
path = "views.jsonl"
time = { field = "t", format = "epoch_ms" }
[watermark]
delay = "10m"
close_at_end = false
[state]
directory = "state"
[checkpoint]
interval = "1h"
bytes = "4KB"
retain = 50
[[window]]
name = "minutes"
source = "clicks"
key = ["user", "page"]
type = "tumbling"
size = "5m"
allowed_lateness = "4m"
aggregates = [
  { name = "n", function = "count" },
  { name = "spent", function = "sum", field = "cents", type = "int" },
  { name = "mean", function = "avg", field = "cents", type = "int" },
  { name = "pages", function = "top_k", field = "page", type = "string", k = 2 },
]
output = { path = "out/minutes" }
[[window]]
name = "moving"
source = "clicks"
key = ["user"]
type = "sliding"
size = "10m"
slide = "5m"
aggregates = [{ name = "n", function = "count" }]
output = { path = "out/moving" }
[[window]]
name = "visits"
source = "clicks"
key = ["user"]
type = "session"
gap = "3m"
aggregates = [{ name = "n", function = "count" }]
output = { path = "out/visits" }
[[window]]
name = "ever"
source = "views"
key = ["user"]
type = "tumbling"
size = "5m"
mode = "complete"
aggregates = [{ name = "n", function = "count" }]
output = { path = "out/ever" }
[[join]]
name = "both"
left = "clicks"
right = "views"
key = ["user"]
within = { from = "-1m", to = "1m" }
select = { left = [{ field = "page", type = "string" }], right = [{ field = "where", type = "string" }] }
output = { path = "out/both" }
"#;

/// The first minutes of half an hour: `ann` clicks every minute, `bob` for the first ten and the last four, a repeated id
/// now and then.
fn clicks(minutes: i64) -> String {
    let mut lines = String::new();
    for minute in 0..minutes {
        let mut click = |user: &str, id: String, cents: i64| {
            let page = if minute % 2 == 0 { "a" } else { "b" };
            let line =
                json!({"t": START + minute * MINUTE, "user": user, "page": page, "cents": cents, "id": id});
            lines.push_str(&format!("{line}\n"));
        };
        click("ann", format!("a{minute}"), minute);
        if minute % 7 == 3 {
            click("ann", format!("a{minute}"), 1_000);
        }
        if !(10..26).contains(&minute) {
            click("bob", format!("b{minute}"), 10);
        }
    }
    lines
}

fn views(minutes: i64) -> String {
    let view = |minute: i64| json!({"t": START + minute * MINUTE, "user": "ann", "where": "home"});
    (0..minutes).map(|minute| format!("{}\n", view(minute))).collect()
}

/// A state with all of it. Its input grew twice: the watermarks of its checkpoints are 10:06, 10:13 and 10:19.
fn kinds() -> Site {
    let site = Site::in_memory(KINDS);
    for minutes in [17, 24, 30] {
        site.write("clicks.jsonl", clicks(minutes));
        site.write("views.jsonl", views(minutes));
        site.complete(&["--quiet"]);
    }
    site
}

/// The epochs of the three checkpoints with these watermarks.
fn epochs(site: &Site) -> [u64; 3] {
    let list = json_of(&["list"], &site.path("state"));
    ["10:06", "10:13", "10:19"].map(|watermark| {
        let mut rows = list.as_array().unwrap().iter();
        let found = rows.find(|row| row["watermark"] == at(watermark));
        found.unwrap_or_else(|| panic!("no checkpoint of W {watermark}: {list}"))["epoch"].as_u64().unwrap()
    })
}

/// Sixty windows of so many keys that a pause of the input leaves open; then time goes on.
fn a_pause(keys: u32) -> String {
    let mut text = String::new();
    for minute in 0..60 {
        for key in 0..keys {
            let time = START + minute * MINUTE + i64::from(key % 50);
            text.push_str(&format!("{{\"t\":{time},\"key\":\"k{key:04}\"}}\n"));
        }
    }
    // A while in which next to nothing changes, so that no large checkpoint is on its way when the firing begins.
    for _ in 0..50_000 {
        text.push_str(&format!("{{\"t\":{},\"key\":\"k0000\"}}\n", START + 59 * MINUTE));
    }
    text.push_str(&format!("{{\"t\":{},\"key\":\"k0000\"}}\n", START + 1_000 * MINUTE));
    for _ in 0..50_000 {
        text.push_str(&format!("{{\"t\":{},\"key\":\"k0000\"}}\n", START + 1_000 * MINUTE));
    }
    text
}

const LONG: &str = r#"name = "long"
[source]
path = "pause.jsonl"
time = { field = "t", format = "epoch_ms" }
[watermark]
delay = "3h"
close_at_end = false
[state]
directory = "state"
[checkpoint]
interval = "1ms"
bytes = "16KiB"
retain = 2
[[window]]
name = "minutes"
key = ["key"]
type = "tumbling"
size = "1m"
aggregates = [{ name = "n", function = "count" }]
output = { path = "out/minutes" }
"#;

/// A state whose newest checkpoint came in the middle of a long firing.
fn cut_in_a_firing() -> Site {
    let site = Site::in_memory(LONG);
    site.write("pause.jsonl", a_pause(2_000));
    for nth in 1.. {
        site.reset();
        let ended = site.run_with_fault(&format!("checkpoint.publish.after:kill:{nth}"));
        assert_eq!(
            ended.signal,
            Some(SIGKILL),
            "no checkpoint came in the middle of the firing: {}",
            ended.stderr
        );
        let newest = site.epochs().last().copied().unwrap();
        let manifest = Manifest::load(&site.path(&format!("state/checkpoints/chk-{newest:010}"))).unwrap();
        let fired = manifest.operators[0].watermark;
        if fired < manifest.watermark && fired.instant().is_some_and(|to| to.as_millis() > START) {
            return site;
        }
    }
    unreachable!("the loop ends in one of two ways")
}

/// `floodmark inspect REPORT PATH OPTIONS --json`, however it ends.
fn inspect(arguments: &[&str], path: &Path) -> Ended {
    Ended::of(command(arguments, path).arg("--json").output().unwrap())
}

fn command(arguments: &[&str], path: &Path) -> Command {
    let (report, options) = arguments.split_first().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodmark"));
    command.args(["inspect", report]).arg(path).args(options);
    command
}

fn json_of(arguments: &[&str], path: &Path) -> Json {
    let ended = inspect(arguments, path);
    assert_eq!(ended.code, Some(0), "{arguments:?}: {}", ended.stderr);
    serde_json::from_str(&ended.stdout).unwrap()
}

/// The same report for people.
fn text_of(arguments: &[&str], path: &Path) -> String {
    let ended = Ended::of(command(arguments, path).output().unwrap());
    assert_eq!(ended.code, Some(0), "{arguments:?}: {}", ended.stderr);
    ended.stdout
}

/// The operator of that name in a report.
fn operator<'a>(report: &'a Json, name: &str) -> &'a Json {
    let operators = report["operators"].as_array().unwrap();
    operators
        .iter()
        .find(|operator| operator["name"] == name)
        .unwrap_or_else(|| panic!("no {name}: {report}"))
}

/// `10:05` as a report has it.
fn at(time: &str) -> String {
    format!("2026-03-01T{time}:00Z")
}

fn copied(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, name) = (entry.as_ref().unwrap().path(), entry.unwrap().file_name());
        if path.is_dir() {
            copied(&path, &to.join(name));
        } else {
            fs::copy(&path, to.join(name)).unwrap();
        }
    }
}
