//! Windows by arrival time on standard input, and the two lanes compared.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use serde_json::{Value as Json, json};

use crate::support::{Ended, Running, Site, wait_until};

const PIPELINE: &str = r#"name = "lanes"
[source]
path = "-"
format = "jsonl"
time = { field = "at", format = "epoch_ms" }
[watermark]
delay = "400ms"
[state]
directory = "state"
[checkpoint]
interval = "20ms"
[[window]]
name = "fast"
key = ["shop"]
type = "tumbling"
size = "1s"
time = "processing"
aggregates = [{ name = "sales", function = "count" }, { name = "sum", function = "sum", field = "v", type = "int" }]
output = { path = "out/fast" }
[[window]]
name = "exact"
key = ["shop"]
type = "tumbling"
size = "1s"
aggregates = [{ name = "sales", function = "count" }, { name = "sum", function = "sum", field = "v", type = "int" }]
output = { path = "out/exact" }
"#;

fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

fn compare(site: &Site, more: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodmark"));
    command.arg("compare").args(more);
    command.args(["--exact".as_ref(), site.path("out/exact").as_os_str()]);
    command.args(["--fast".as_ref(), site.path("out/fast").as_os_str()]);
    Ended::of(command.output().unwrap())
}

fn total(rows: &[Json], column: &str) -> i64 {
    rows.iter().map(|row| row[column].as_i64().unwrap()).sum()
}

#[test]
fn windows_by_arrival_close_with_the_clock_while_the_input_is_silent_and_at_its_end() {
    let site = Site::in_memory(PIPELINE);
    let mut command = site.command(&["--quiet"]);
    command.stdin(Stdio::piped());
    let mut running = Running::start(command);
    let mut stdin = running.child().stdin.take().unwrap();
    let mut send = |at: i64, value: i64| {
        writeln!(stdin, "{}", json!({"at": at, "shop": "a", "v": value})).unwrap();
    };
    let started = now();
    send(started, 1);
    // Nothing follows: the clock alone closes the window, and a checkpoint makes it visible.
    wait_until("the fast lane has a result", || total(&site.outputs().rows("fast"), "sales") == 1);
    assert!(site.outputs().rows("exact").is_empty(), "the exact lane waits for the watermark");
    // One that arrives in a later second than it happened in.
    send(started, 2);
    send(now(), 4);
    drop(stdin);
    let summary = running.wait().summary();
    assert_eq!(summary["outcome"], "completed");
    assert_eq!(summary["total"]["late"], json!({}));
    let outputs = site.outputs();
    for lane in ["fast", "exact"] {
        assert_eq!(
            (total(&outputs.rows(lane), "sales"), total(&outputs.rows(lane), "sum")),
            (3, 7),
            "{lane}"
        );
    }
    let first = &outputs.rows("exact")[0];
    assert_eq!((&first["sales"], &first["sum"]), (&json!(2), &json!(3)));

    let ended = compare(&site, &["--json"]);
    assert_eq!(ended.code, Some(7), "{}", ended.stderr);
    let report: Json = serde_json::from_str(&ended.stdout).unwrap();
    assert!(report["different"].as_u64().unwrap() + report["only_exact"].as_u64().unwrap() >= 1, "{report}");
}

#[test]
fn triggers_by_the_clock_fire_while_input_keeps_coming() {
    let pipeline = PIPELINE
        .replace("name = \"exact\"", "name = \"exact\"\ntrigger = { interval = \"100ms\" }")
        .replace("delay = \"400ms\"", "delay = \"1h\"");
    let site = Site::in_memory(&pipeline);
    let mut command = site.command(&["--quiet"]);
    command.stdin(Stdio::piped());
    let mut running = Running::start(command);
    let mut stdin = running.child().stdin.take().unwrap();
    // Faster than the patience of the reader: it never waits.
    let writer = std::thread::spawn(move || {
        while writeln!(stdin, "{}", json!({"at": now(), "shop": "a", "v": 1})).is_ok() {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    wait_until("an early result is out", || {
        site.outputs().rows("exact").iter().any(|row| row["pane"] == "early")
    });
    running.kill();
    writer.join().unwrap();
}

/// Results as a pipeline has published them.
fn published(site: &Site, lane: &str, rows: &[(&str, i64, i64, &str)]) {
    let line = |(shop, start, sales, sum): &(&str, i64, i64, &str)| {
        let end = start + 1_000;
        format!(
            "{{\"shop\":\"{shop}\",\"window_start\":{start},\"window_end\":{end},\"sales\":{sales},\"sum\":{sum}}}\n"
        )
    };
    site.write(&format!("out/{lane}/part-0000000001.jsonl"), rows.iter().map(line).collect::<String>());
}

#[test]
fn a_comparison_names_each_pane_that_differs_and_by_how_much() {
    let site = Site::new(PIPELINE);
    published(&site, "exact", &[("a", 0, 3, "10.50"), ("b", 0, 1, "2.00"), ("c", 0, 1, "1.00")]);
    published(&site, "fast", &[("a", 0, 2, "10.25"), ("b", 0, 1, "2.00"), ("a", 1_000, 1, "0.25")]);
    let ended = compare(&site, &[]);
    assert_eq!(ended.code, Some(7), "{}", ended.stderr);
    for words in ["10.50  10.25       -0.25", "same 1, different 1, only exact 1, only fast 0, pending 1"] {
        assert!(ended.stdout.contains(words), "{words:?} is missing:\n{}", ended.stdout);
    }
    let report: Json = serde_json::from_str(&compare(&site, &["--json", "--limit", "1"]).stdout).unwrap();
    assert_eq!((&report["left_out"], &report["aggregates"]["sales"]), (&json!(1), &json!(2)));
    assert_eq!(report["differences"][0]["key"], json!([["shop", "a"]]));

    published(&site, "fast", &[("a", 0, 3, "10.50"), ("b", 0, 1, "2.00"), ("c", 0, 1, "1.00")]);
    assert_eq!(compare(&site, &[]).code, Some(0));
}

#[test]
fn replayed_input_is_warned_of_and_has_no_window_in_common() {
    let site = Site::new(&PIPELINE.replace("path = \"-\"\nformat = \"jsonl\"", "path = \"sales.jsonl\""));
    site.write("sales.jsonl", "{\"at\":1000,\"shop\":\"a\",\"v\":1}\n");
    let ended = site.run(&[]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("these are read from files"), "{}", ended.stderr);
    let compared = compare(&site, &[]);
    assert!(compared.stdout.contains("was the input replayed?"), "{}", compared.stdout);
}

#[test]
fn a_directory_without_results_is_refused() {
    let site = Site::new(PIPELINE);
    compare(&site, &[]).assert_refused(3, &["cannot list the output", "out/exact"]);
    site.write("out/exact/part-0000000001.jsonl", "{\"operator\":\"x\"}\n");
    site.write("out/fast/part-0000000001.jsonl", "");
    compare(&site, &[]).assert_refused(2, &["part-0000000001.jsonl:1", "not a result"]);
}
