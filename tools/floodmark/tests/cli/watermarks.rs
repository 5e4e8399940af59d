//! Wrong clocks on standard input, and several sources under one watermark, as a user of the command meets them.

use std::fs;
use std::io::Write;
use std::process::Stdio;
use std::time::{SystemTime, UNIX_EPOCH};

use floodmark::fault;
use serde_json::{Value as Json, json};

use crate::support::{Ended, Outputs, Random, Running, Site, repository, wait_until};

/// Counts per minute of what comes by standard input; `bounds` goes into the `[watermark]` table.
fn live(bounds: &str) -> String {
    format!(
        r#"name = "live"
source = {{ path = "-", format = "jsonl", time = {{ field = "t", format = "epoch_ms" }} }}
state = {{ directory = "state" }}
late = {{ path = "out/late" }}
dead_letter = {{ path = "out/rejected" }}
[watermark]
delay = "1m"
{bounds}
[[window]]
name = "minutes"
type = "tumbling"
size = "1m"
aggregates = [{{ name = "rows", function = "count" }}]
output = {{ path = "out/minutes" }}
"#
    )
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

fn run_live(bounds: &str, times: &[i64]) -> (Json, Outputs, String) {
    let site = Site::new(&live(bounds));
    let lines: String = times.iter().map(|time| format!("{{\"t\":{time}}}\n")).collect();
    site.write("input", lines);
    let mut command = site.command(&[]);
    let ended = Ended::of(command.stdin(fs::File::open(site.path("input")).unwrap()).output().unwrap());
    (ended.summary(), site.outputs(), ended.stderr)
}

#[test]
fn one_clock_a_day_ahead_on_standard_input_is_set_aside_unless_the_guard_is_off() {
    let now = now_ms();
    let mut times = vec![now - 600_000, now + 86_400_000];
    times.extend((0..10).map(|minute| now - 540_000 + minute * 60_000));
    let (summary, outputs, said) = run_live("", &times);
    assert_eq!(summary["total"]["rejected"], json!({"timestamp_ahead_of_clock": 1}));
    assert_eq!(summary["total"]["late"], json!({}));
    assert_eq!(outputs.rows("minutes").len(), 11);
    let set_aside = outputs.rows("rejected");
    assert_eq!((&set_aside[0]["record_number"], &set_aside[0]["field"]), (&json!(2), &json!("t")));
    assert!(said.contains("live sources are guarded against wrong clocks"), "{said}");

    let (summary, outputs, said) = run_live("bounds = { max_ahead = \"off\" }", &times);
    assert_eq!(summary["total"]["rejected"], json!({}));
    assert_eq!(summary["total"]["late"], json!({"minutes": 10}));
    assert_eq!(outputs.rows("minutes").len(), 2);
    assert!(said.contains("one event moved the watermark by 1d"), "{said}");
}

#[test]
fn a_window_closes_and_is_published_while_standard_input_says_nothing_more() {
    let text = live("idle_advance = \"100ms\"").replace("delay = \"1m\"", "delay = \"0s\"");
    let site = Site::new(&format!("{text}[checkpoint]\ninterval = \"100ms\"\n"));
    let mut command = site.command(&[]);
    command.stdin(Stdio::piped());
    let mut running = Running::start(command);
    let mut input = running.child().stdin.take().unwrap();
    // In the last second of a minute that is over: the clock has only to catch up with what is left of it.
    let time = (now_ms() / 60_000 - 1) * 60_000 - 300;
    input.write_all(format!("{{\"t\":{time}}}\n").as_bytes()).unwrap();
    wait_until("the window is closed by silence", || site.outputs().rows("minutes").len() == 1);
    drop(input);
    assert_eq!(running.wait().summary()["total"]["results"], json!({"minutes": 1}));
}

/// Three files of two sources, each of several blocks, with disorder and lateness.
fn busy_sources() -> Site {
    let site = Site::in_memory(
        r#"name = "busy"
state = { directory = "state", memory = "64MiB" }
checkpoint = { interval = "5ms", bytes = "64KiB", retain = 1 }
watermark = { delay = "2s", policy = "min", bounds = { max_ahead_of_partitions = "10m" } }
late = { path = "out/late" }
dead_letter = { path = "out/rejected" }
[[source]]
name = "clicks"
path = "clicks-*.jsonl"
time = { field = "t", format = "epoch_ms" }
[[source]]
name = "views"
path = "views.csv"
time = { field = "at", format = "epoch_ms" }
watermark = { strategy = "punctuated", field = "w" }
[[window]]
name = "all"
key = ["page"]
type = "tumbling"
size = "1m"
aggregates = [{ name = "rows", function = "count" }]
output = { path = "out/all" }
[[window]]
name = "clicks"
source = "clicks"
key = ["page"]
type = "tumbling"
size = "10s"
allowed_lateness = "5s"
aggregates = [{ name = "sum", function = "sum", field = "n", type = "int" }]
output = { path = "out/clicks" }
"#,
    );
    let mut random = Random::seeded("busy_sources");
    for file in 0..2 {
        let line = |index: i64| {
            let time = index * 50 + file * 700 - (random.next() % 4_000) as i64;
            let time = if [5_000, 6_500].contains(&index) { time + 86_400_000 } else { time };
            format!(
                "{{\"t\":{time},\"page\":\"p{}\",\"n\":{index},\"padding\":\"{}\"}}\n",
                index % 7,
                "x".repeat(20)
            )
        };
        site.write(&format!("clicks-{file}.jsonl"), (0..10_000).map(line).collect::<String>());
    }
    let line = |index: i64| {
        let said = if index % 10 == 9 { (index * 50 - 3_000).to_string() } else { String::new() };
        format!("{},p{},{said},{}\n", index * 50 - (random.next() % 3_500) as i64, index % 5, "x".repeat(20))
    };
    let rows: String = (0..10_000).map(line).collect();
    site.write("views.csv", format!("at,page,w,padding\n{rows}"));
    site
}

#[test]
fn several_sources_go_on_after_a_kill_as_if_nothing_had_been() {
    let site = busy_sources();
    let (summary, straight) = site.complete(&[]);
    assert_eq!(summary["total"]["rejected"], json!({"timestamp_ahead_of_partitions": 4}));
    assert!(straight.bytes("late") > 0 && straight.bytes("all") > 0 && straight.bytes("clicks") > 0);
    for point in fault::POINTS {
        site.reset();
        let ended = site.run_with_fault(&format!("{point}:kill:2"));
        assert!(ended.signal.is_some(), "{point} is not passed twice: {}", ended.stderr);
        let (again, outputs) = site.complete(&[]);
        assert_eq!(again["total"], summary["total"], "{point}");
        assert_eq!(again["source_watermarks"], summary["source_watermarks"], "{point}");
        outputs.assert_same_as(&straight, point);
    }
}

/// The example in a directory of its own, under another policy.
fn two_sources(policy: &str) -> (Json, Outputs) {
    let example = repository().join("examples/two_sources");
    let text = fs::read_to_string(example.join("pipeline.toml")).unwrap();
    let text = text
        .replace("../../demo-output/two_sources/state", "state")
        .replace("../../demo-output/two_sources/", "out/")
        .replace("policy = \"min\"", &format!("policy = \"{policy}\""));
    let site = Site::new(&text);
    for name in ["orders.jsonl", "payments.csv"] {
        site.write(name, fs::read(example.join(name)).unwrap());
    }
    let (first, outputs) = site.complete(&[]);
    let (again, unchanged) = site.complete(&[]);
    assert_eq!((again["events"].as_u64(), &again["total"]), (Some(0), &first["total"]));
    unchanged.assert_same_as(&outputs, "a second run has nothing to do");
    (first, outputs)
}

fn sum(rows: &[Json], column: &str) -> i64 {
    rows.iter().map(|row| row[column].as_i64().unwrap()).sum()
}

#[test]
fn two_sources_close_windows_by_the_slower_one_or_the_faster_one() {
    let (summary, outputs) = two_sources("min");
    assert_eq!(summary["total"]["late"], json!({}));
    assert_eq!(summary["total"]["rejected"], json!({"timestamp_after_max": 1}));
    assert_eq!(sum(&outputs.rows("activity"), "records"), 48);
    assert_eq!(sum(&outputs.rows("revenue"), "cents"), (0..24).map(|i| 1_000 + i * 7).sum::<i64>());
    assert_eq!(summary["source_watermarks"]["orders"], "2026-03-01T10:05:35Z");

    let (summary, outputs) = two_sources("max");
    let late = &summary["total"]["late"];
    let of_activity = late["activity"].as_i64().unwrap();
    assert_eq!(late["revenue"], late["activity"], "only payments are late");
    assert!((1..24).contains(&of_activity), "{late}");
    assert_eq!(sum(&outputs.rows("activity"), "records"), 48 - of_activity);
}
