//! Wrong clocks on standard input, and several sources under one watermark, as a user of the command meets them.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value as Json, json};

use crate::support::{Ended, Outputs, Site, repository};

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
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
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
