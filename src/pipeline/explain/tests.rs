//! Frames for the pictures that people draw of watermarks, and the law above them all: what an explanation says was
//! emitted and dropped is what a run emits and drops, for every key.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;

use proptest::prelude::*;
use serde_json::Value as Json;
use tempfile::TempDir;

use super::*;
use crate::clock::ManualClock;
use crate::event_time::{Span, Watermark, Window};
use crate::pipeline::{RunOptions, RunSummary, Silent, StopFlag, run};

/// A pipeline over `*.jsonl` with one window, times and spans in seconds.
fn pipeline(watermark: &str, window: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        r#"name = "p"
source = {{ path = "*.jsonl", time = {{ field = "t", format = "epoch_s" }} }}
state = {{ directory = "state", memory = "64MiB" }}
[watermark]
{watermark}
[[window]]
name = "w"
key = ["k"]
{window}
aggregates = [{{ name = "rows", function = "count" }}, {{ name = "sum", function = "sum", field = "n", type = "int" }}]
output = {{ path = "out", metadata = true }}
"#
    );
    put(dir.path(), "p.toml", &text);
    dir
}

fn put(dir: &Path, name: &str, text: &str) {
    std::fs::File::create(dir.join(name)).unwrap().write_all(text.as_bytes()).unwrap();
}

fn append(dir: &Path, name: &str, text: &str) {
    let file = std::fs::File::options().append(true).create(true).open(dir.join(name));
    file.unwrap().write_all(text.as_bytes()).unwrap();
}

/// One line per event: key and time; the line's number is its value.
fn events(events: &[(&str, i64)]) -> String {
    let line = |(at, (key, time)): (usize, &(&str, i64))| {
        format!("{{\"t\":{time},\"k\":\"{key}\",\"n\":{}}}\n", at + 1)
    };
    events.iter().enumerate().map(line).collect()
}

fn config(dir: &TempDir) -> PipelineConfig {
    PipelineConfig::load(&dir.path().join("p.toml")).unwrap()
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(ManualClock::at(1_700_000_000_000))
}

fn of_key(key: &str) -> ExplainOptions {
    ExplainOptions { key: Some(Key(vec![key.as_bytes().to_vec()])), ..ExplainOptions::default() }
}

fn explained(dir: &TempDir, options: &ExplainOptions) -> Explanation {
    explain(&config(dir), options, clock()).unwrap()
}

fn refusal(dir: &TempDir, options: &ExplainOptions) -> (ErrorKind, String) {
    let error = explain(&config(dir), options, clock()).unwrap_err();
    (error.kind(), format!("{error} / {}", error.remedy().unwrap_or_default()))
}

fn seconds(watermark: Watermark) -> String {
    watermark.instant().map_or_else(|| watermark.to_string(), |time| (time.as_millis() / 1_000).to_string())
}

fn bounds(window: Window) -> String {
    format!("[{},{})", window.start.as_millis() / 1_000, window.end.as_millis() / 1_000)
}

/// A frame in a few words.
fn brief(frame: &Frame) -> String {
    let moved = format!("W {}>{}", seconds(frame.watermark_before), seconds(frame.watermark_after));
    match &frame.what {
        What::Event(event) => {
            let mut text = format!("{}:{} {moved}", event.partition.trim_end_matches(".jsonl"), event.line);
            for to in &event.accepted {
                text += if to.after_close { " late into " } else { " into " };
                text += &bounds(to.window);
                let joined: Vec<String> = to.joined.iter().map(|session| bounds(*session)).collect();
                text +=
                    &if joined.is_empty() { String::new() } else { format!(" joins {}", joined.join("+")) };
            }
            for late in &event.late {
                text += &format!(" late by {} for {}", late.by.unwrap_or(Span::MAX), bounds(late.window));
            }
            text + if event.dropped { " dropped" } else { "" } + if event.other { " other" } else { "" }
        }
        What::Others(others) => {
            let others = [others.events, others.rejected, others.filtered, others.duplicates];
            format!("{} others {moved}", others.iter().sum::<u64>())
        }
        What::Closed { window, expired } => {
            format!("closes {}{}", bounds(*window), if *expired { " for good" } else { "" })
        }
        What::Expired { window, .. } => format!("expires {}", bounds(*window)),
        What::Firing(firing) => format!(
            "fires {} {} {} {}",
            bounds(firing.window),
            firing.pane.name(),
            firing.pane_index,
            firing.values.0.iter().map(|(_, value)| value.to_string()).collect::<Vec<_>>().join("/")
        ),
        What::Rejected(rejected) => format!("line {} rejected: {}", rejected.record.line, rejected.reason),
        What::Filtered(record) => format!("line {} filtered", record.line),
        What::Duplicate(record) => format!("line {} duplicate", record.line),
        What::PartitionEnd { partition } => format!("{partition} ends {moved}"),
        What::BatchEnd { events_reach } => format!("batch ends {moved} events {}", seconds(*events_reach)),
        What::InputEnd => format!("input ends {moved}"),
        What::Restored(pane) => format!("restored {} {} events", bounds(pane.window), pane.events),
    }
}

fn told(explanation: &Explanation) -> Vec<String> {
    explanation.frames.iter().map(brief).collect()
}

#[test]
fn an_event_that_came_before_is_a_duplicate_and_no_rejected_record() {
    let dir = pipeline("delay = \"10s\"", "type = \"tumbling\"\nsize = \"60s\"");
    let file = std::fs::read_to_string(dir.path().join("p.toml")).unwrap();
    let dedup = "dedup = { by = [\"n\"] }, time = {";
    put(dir.path(), "p.toml", &file.replace("time = {", dedup));
    let line = |key: &str, time: i64, id: i64| format!("{{\"t\":{time},\"k\":\"{key}\",\"n\":{id}}}\n");
    put(
        dir.path(),
        "f.jsonl",
        &[line("a", 5, 1), line("a", 6, 1), line("b", 7, 2), line("b", 8, 2)].concat(),
    );
    let explanation = explained(&dir, &of_key("a"));
    assert_eq!(
        told(&explanation)[..3],
        ["f:1 W none>-5 into [0,60)", "line 2 duplicate", "2 others W -4>-2"],
        "{:?}",
        told(&explanation)
    );
    let counts = explanation.end.counts;
    assert_eq!((counts.events, counts.other_events, counts.rejected, counts.duplicates), (1, 1, 0, 2));
}

#[test]
fn a_late_event_fires_its_window_again_while_that_is_allowed_and_is_dropped_afterwards() {
    let dir = pipeline("delay = \"10s\"", "type = \"tumbling\"\nsize = \"60s\"\nallowed_lateness = \"30s\"");
    let input = [("a", 5), ("a", 40), ("b", 72), ("a", 58), ("b", 75), ("a", 105), ("a", 59), ("a", 125)];
    put(dir.path(), "f.jsonl", &events(&input));
    let explanation = explained(&dir, &of_key("a"));
    assert_eq!(
        told(&explanation),
        [
            "f:1 W none>-5 into [0,60)",
            "f:2 W -5>30 into [0,60)",
            "f:3 W 30>62 other",
            "closes [0,60)",
            "fires [0,60) on_time 0 2/3",
            "f:4 W 62>62 late into [0,60)",
            "fires [0,60) late 1 3/7",
            "1 others W 62>65",
            "f:6 W 65>95 into [60,120)",
            "expires [0,60)",
            "f:7 W 95>95 late by 5s for [0,60) dropped",
            "f:8 W 95>115 into [120,180)",
            "input ends W 115>end of input",
            "closes [60,120)",
            "fires [60,120) on_time 0 1/6",
            "closes [120,180)",
            "fires [120,180) on_time 0 1/8",
            "expires [60,120)",
            "expires [120,180)",
        ]
    );
    let counts = explanation.end.counts;
    assert_eq!((counts.events, counts.accepted, counts.dropped, counts.other_events), (6, 5, 1, 2));
    let waiting = explanation.end.waiting.unwrap();
    assert_eq!((bounds(waiting.window), waiting.more), ("[60,120)".to_owned(), 1));
    assert_eq!((waiting.needs, waiting.watermark), (waiting.window.end, explanation.end.watermark));
    let latest = waiting.slowest.unwrap();
    assert_eq!((latest.partition.as_str(), latest.holds_back), ("f.jsonl", false));
}

#[test]
fn an_event_may_be_late_for_some_of_its_sliding_windows() {
    let dir = pipeline("delay = \"0s\"", "type = \"sliding\"\nsize = \"60s\"\nslide = \"30s\"");
    put(dir.path(), "f.jsonl", &events(&[("a", 10), ("a", 62), ("a", 50)]));
    assert_eq!(
        told(&explained(&dir, &of_key("a")))[..7],
        [
            "f:1 W none>10 into [-30,30) into [0,60)",
            "f:2 W 10>62 into [30,90) into [60,120)",
            "closes [-30,30) for good",
            "fires [-30,30) on_time 0 1/1",
            "closes [0,60) for good",
            "fires [0,60) on_time 0 1/1",
            "f:3 W 62>62 into [30,90) late by 2s for [0,60)",
        ]
    );
}

#[test]
fn an_event_between_two_sessions_joins_them() {
    let dir = pipeline("delay = \"100s\"", "type = \"session\"\ngap = \"20s\"");
    put(dir.path(), "f.jsonl", &events(&[("a", 0), ("a", 30), ("b", 10), ("a", 15), ("a", 200)]));
    assert_eq!(
        told(&explained(&dir, &of_key("a"))),
        [
            "f:1 W none>-100 into [0,20)",
            "f:2 W -100>-70 into [30,50)",
            "1 others W -70>-70",
            "f:4 W -70>-70 into [0,50) joins [0,20)+[30,50)",
            "f:5 W -70>100 into [200,220)",
            "closes [0,50) for good",
            "fires [0,50) on_time 0 3/7",
            "input ends W 100>end of input",
            "closes [200,220) for good",
            "fires [200,220) on_time 0 1/5",
        ]
    );
}

#[test]
fn the_slower_of_two_partitions_holds_the_watermark_until_it_ends() {
    let dir = pipeline("delay = \"0s\"\nclose_at_end = false", "type = \"tumbling\"\nsize = \"10s\"");
    put(dir.path(), "fast.jsonl", &events(&[("a", 1), ("a", 25)]));
    put(dir.path(), "slow.jsonl", &events(&[("b", 3), ("a", 5)]));
    let explanation = explained(&dir, &of_key("a"));
    assert_eq!(
        told(&explanation),
        [
            "fast:1 W none>none into [0,10)",
            "fast:2 W none>none into [20,30)",
            "1 others W none>3",
            "slow:2 W 3>5 into [0,10)",
            "slow.jsonl ends W 5>25",
            "closes [0,10) for good",
            "fires [0,10) on_time 0 2/3",
        ]
    );
}

#[test]
fn records_that_are_no_events_are_told_when_they_name_the_key() {
    let dir = pipeline("delay = \"0s\"", "type = \"tumbling\"\nsize = \"10s\"");
    let text = std::fs::read_to_string(dir.path().join("p.toml")).unwrap();
    let text = text.replace("\"epoch_s\" } }", "\"epoch_s\" }, filter = [{ field = \"n\", min = 0 }] }");
    put(dir.path(), "p.toml", &text);
    let lines = "{\"t\":1,\"k\":\"a\",\"n\":1}\n{\"t\":null,\"k\":\"a\",\"n\":2}\n{\"t\":2,\"k\":\"b\"\n\
                 {\"t\":3,\"k\":\"a\",\"n\":-4}\n{\"t\":null,\"k\":\"ab\",\"n\":5}\n{\"t\":6,\"k\":\"b\",\"n\":-6}\n";
    put(dir.path(), "f.jsonl", lines);
    let explanation = explained(&dir, &of_key("a"));
    assert_eq!(
        told(&explanation)[..6],
        [
            "f:1 W none>1 into [0,10)",
            "line 2 rejected: null_timestamp",
            "1 others W 1>1",
            "line 4 filtered",
            "2 others W 1>1",
            "input ends W 1>end of input",
        ]
    );
    let all = told(&explained(&dir, &ExplainOptions { all: true, ..of_key("a") }));
    assert_eq!(all[1..6].iter().filter(|frame| frame.starts_with("line")).count(), 5, "{all:?}");
}

#[test]
fn what_the_pipeline_does_not_have_is_refused_with_what_it_has() {
    let dir = pipeline("delay = \"0s\"", "type = \"tumbling\"\nsize = \"60s\"");
    put(dir.path(), "f.jsonl", &events(&[("anna", 1), ("bob", 2)]));
    let refused = |options: &ExplainOptions, parts: &[&str]| {
        let (kind, text) = refusal(&dir, options);
        assert_eq!(kind, ErrorKind::Invalid, "{text}");
        parts.iter().for_each(|part| assert!(text.contains(part), "{part}: {text}"));
    };
    let window = |name: &str| ExplainOptions { window: Some(name.to_owned()), ..ExplainOptions::default() };
    refused(&window("v"), &["no such window", "did you mean \"w\""]);
    refused(&of_key("ann"), &["no event has this key", "events=2", "did you mean anna"]);
    refused(&of_key("zebra"), &["no event has this key", "anna; bob"]);
    let two = Key(vec![b"anna".to_vec(), b"x".to_vec()]);
    refused(&ExplainOptions { key: Some(two), ..of_key("") }, &["fields=1 given=2", "in this order: k"]);
    let start = ExplainOptions { start: Some(EventTime::from_millis(1_000)), ..ExplainOptions::default() };
    refused(&start, &["no window starts then", "1970-01-01T00:00:00Z"]);
    let newest = ExplainOptions { from: Some(FromCheckpoint::Latest), ..of_key("anna") };
    assert_eq!(refusal(&dir, &newest).0, ErrorKind::Unavailable);
    assert!(!dir.path().join("state").exists(), "nothing is written");

    let clocked = pipeline("delay = \"0s\"", "type = \"tumbling\"\nsize = \"60s\"\ntime = \"processing\"");
    put(clocked.path(), "f.jsonl", &events(&[("anna", 1)]));
    assert!(refusal(&clocked, &ExplainOptions::default()).1.contains("follows the wall clock"));
    let sessions = pipeline("delay = \"0s\"", "type = \"session\"\ngap = \"60s\"");
    assert!(refusal(&sessions, &start).1.contains("--key instead of --start"));
}

#[test]
fn frames_beyond_the_limit_are_counted_and_the_end_is_told_all_the_same() {
    let dir = pipeline("delay = \"0s\"", "type = \"tumbling\"\nsize = \"10s\"");
    let input: Vec<(&str, i64)> = (0..100).map(|second| ("a", second)).collect();
    put(dir.path(), "f.jsonl", &events(&input));
    let whole = explained(&dir, &ExplainOptions::default());
    assert!(whole.head.key_chosen && whole.end.frames_left_out == 0);
    let cut = explained(&dir, &ExplainOptions { frames_max: 7, ..ExplainOptions::default() });
    assert_eq!(cut.frames, whole.frames[..7]);
    assert_eq!(cut.end.frames_left_out as usize, whole.frames.len() - 7);
    assert_eq!((cut.end.counts, cut.end.waiting), (whole.end.counts, whole.end.waiting));
}

#[test]
fn instants_are_rfc_3339_or_milliseconds() {
    assert_eq!(parse_instant("-5").unwrap(), EventTime::from_millis(-5));
    assert_eq!(parse_instant("1970-01-01T02:00:01+02:00").unwrap(), EventTime::from_millis(1_000));
    assert!(parse_instant("10:00").unwrap_err().remedy().is_some());
}

/// Window definitions of every kind, and every way to emit.
const KINDS: [(&str, &str); 14] = [
    ("", "type = \"tumbling\"\nsize = \"10s\""),
    ("", "type = \"tumbling\"\nsize = \"10s\"\nallowed_lateness = \"8s\""),
    ("", "type = \"tumbling\"\nsize = \"20s\"\nallowed_lateness = \"8s\"\ntrigger = { early = \"6s\" }"),
    ("", "type = \"tumbling\"\nsize = \"20s\"\ntrigger = { count = 2 }"),
    ("", "type = \"tumbling\"\nsize = \"10s\"\nallowed_lateness = \"8s\"\naccumulation = \"discarding\""),
    ("", "type = \"tumbling\"\nsize = \"10s\"\nmode = \"update\"\nallowed_lateness = \"3s\""),
    ("", "type = \"sliding\"\nsize = \"15s\"\nslide = \"10s\""),
    ("", "type = \"sliding\"\nsize = \"15s\"\nslide = \"5s\"\nallowed_lateness = \"4s\""),
    ("", "type = \"session\"\ngap = \"4s\""),
    ("", "type = \"session\"\ngap = \"4s\"\nallowed_lateness = \"6s\""),
    ("batch", "type = \"tumbling\"\nsize = \"10s\""),
    ("batch", "type = \"sliding\"\nsize = \"15s\"\nslide = \"5s\""),
    ("batch", "type = \"session\"\ngap = \"4s\"\nmode = \"update\""),
    ("batch", "type = \"tumbling\"\nsize = \"10s\"\nmode = \"complete\""),
];

fn of_kind((advance, window): (&str, &str)) -> TempDir {
    let watermark = match advance {
        "batch" => "delay = \"3s\"\nclose_at_end = false\nadvance = \"batch\"\nbatch_records = 3",
        _ => "delay = \"3s\"\nclose_at_end = false",
    };
    pipeline(watermark, window)
}

fn run_once(dir: &TempDir) -> RunSummary {
    run(&config(dir), RunOptions::default(), &StopFlag::default(), clock(), &mut Silent).unwrap()
}

/// What a run has emitted, by key, in order: window, pane and values as JSON.
fn emitted(dir: &TempDir) -> BTreeMap<String, Vec<String>> {
    let mut parts: Vec<_> = match std::fs::read_dir(dir.path().join("out")) {
        Ok(entries) => entries.map(|entry| entry.unwrap().path()).collect(),
        Err(_) => Vec::new(),
    };
    parts.retain(|path| path.file_name().unwrap().to_str().unwrap().starts_with("part-"));
    parts.sort();
    let mut rows = BTreeMap::<String, Vec<String>>::new();
    for part in parts {
        for line in std::fs::read_to_string(part).unwrap().lines() {
            let row: Json = serde_json::from_str(line).unwrap();
            let facts = ["window_start", "window_end", "pane", "pane_index", "rows", "sum"];
            let text = facts.map(|fact| row[fact].to_string()).join(" ");
            rows.entry(row["k"].as_str().unwrap().to_owned()).or_default().push(text);
        }
    }
    rows
}

/// The same of an explanation.
fn said_to_be_emitted(explanation: &Explanation) -> Vec<String> {
    let frames = explanation.frames.iter().map(|frame| serde_json::to_value(frame).unwrap());
    let firings = frames.filter(|frame| frame["frame"] == "firing");
    let text = |frame: Json| {
        let (window, values) = (&frame["window"], &frame["values"]);
        [
            &window["start"],
            &window["end"],
            &frame["pane"],
            &frame["pane_index"],
            &values["rows"],
            &values["sum"],
        ]
        .map(Json::to_string)
        .join(" ")
    };
    firings.map(text).collect()
}

fn check_against_run(
    dir: &TempDir,
    keys: &BTreeSet<String>,
    from: Option<FromCheckpoint>,
    before: &Run,
) -> Run {
    let explained: BTreeMap<&String, Explanation> = keys
        .iter()
        .map(|key| (key, explained(dir, &ExplainOptions { from, frames_max: 100_000, ..of_key(key) })))
        .collect();
    let summary = run_once(dir);
    let run = Run { rows: emitted(dir), late: summary.total.late.values().sum() };
    for (key, explanation) in &explained {
        let all = run.rows.get(*key).cloned().unwrap_or_default();
        let known = before.rows.get(*key).map_or(0, Vec::len);
        assert_eq!(said_to_be_emitted(explanation), all[known..], "key {key}: {:#?}", told(explanation));
    }
    if config(dir).watermark.advance == crate::operator::Advance::Event {
        let dropped: u64 = explained.values().map(|explanation| explanation.end.counts.dropped).sum();
        assert_eq!(dropped, run.late - before.late);
    }
    run
}

#[derive(Default)]
struct Run {
    rows: BTreeMap<String, Vec<String>>,
    late: u64,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3, ..ProptestConfig::default() })]
    #[test]
    fn what_is_said_of_each_key_is_what_a_run_does(
        first in prop::collection::vec((0..3_usize, 0..16_i64, 0..2_usize), 1..40),
        second in prop::collection::vec((0..3_usize, 0..16_i64, 0..2_usize), 1..40),
    ) {
        let lines = |events: &[(usize, i64, usize)], from: i64, file: usize| -> String {
            let line = |(at, (key, jitter, _)): (usize, &(usize, i64, usize))| {
                let time = from + at as i64 * 2 + jitter - 8;
                format!("{{\"t\":{time},\"k\":\"{}\",\"n\":{at}}}\n", ["a", "b", "c"][*key])
            };
            events.iter().enumerate().filter(|(_, event)| event.2 == file).map(line).collect()
        };
        let keys = |events: &[(usize, i64, usize)]| -> BTreeSet<String> {
            events.iter().map(|(key, ..)| ["a", "b", "c"][*key].to_owned()).collect()
        };
        for kind in KINDS {
            let dir = of_kind(kind);
            for file in 0..2 {
                append(dir.path(), &format!("{file}.jsonl"), &lines(&first, 0, file));
            }
            let run = check_against_run(&dir, &keys(&first), None, &Run::default());
            if kind.1.contains("update") {
                // By batches, what ends by 1970 is late from the start; here those are sessions of 4 s.
                let time = |(at, (_, jitter, _)): (usize, &(usize, i64, usize))| at as i64 * 2 + jitter - 8;
                let counts = first.iter().enumerate().map(time).any(|time| kind.0 != "batch" || time + 4 > 0);
                prop_assert_eq!(!run.rows.is_empty(), counts, "each event that counts is emitted");
            }
            for file in 0..2 {
                append(dir.path(), &format!("{file}.jsonl"), &lines(&second, first.len() as i64 * 2, file));
            }
            let newest = Some(FromCheckpoint::Latest);
            let both: BTreeSet<String> = keys(&second);
            check_against_run(&dir, &both, newest, &run);
        }
    }
}
