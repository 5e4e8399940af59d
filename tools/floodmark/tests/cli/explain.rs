//! `floodmark explain` as its users meet it. The example in docs/EXPLAIN.md is run as it stands there.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::{Value as Json, json};

use crate::support::{Ended, Site, repository};

/// The fenced blocks of docs/EXPLAIN.md: the pipeline, its input, and what is printed.
fn documented() -> [String; 3] {
    let text = fs::read_to_string(repository().join("docs/EXPLAIN.md")).unwrap();
    ["toml", "json", "text"].map(|kind| {
        let (_, rest) = text.split_once(&format!("\n```{kind}\n")).unwrap();
        rest.split_once("```").unwrap().0.to_owned()
    })
}

fn site() -> Site {
    let [pipeline, input, _] = documented();
    let site = Site::in_memory(&pipeline);
    site.write("visits.jsonl", input);
    site
}

fn explain(site: &Site, arguments: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodmark"));
    command.arg("explain").arg(site.path("pipeline.toml")).args(arguments);
    command.env_remove("FLOODMARK_FAULT").env_remove("FLOODMARK_LOG").stdin(Stdio::null());
    Ended::of(command.output().unwrap())
}

fn frames(site: &Site, arguments: &[&str]) -> Vec<Json> {
    let ended = explain(site, &[arguments, &["--json"]].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_timeline_in_the_documentation_is_what_is_printed() {
    let [_, _, expected] = documented();
    let site = site();
    let ended = explain(&site, &["--key", "ann"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert_eq!(ended.stdout, expected, "docs/EXPLAIN.md is to show this:\n{}", ended.stdout);
    assert!(!site.path("state").exists() && !site.path("out").exists(), "explain writes nothing");
}

#[test]
fn json_lines_say_the_same() {
    let frames = frames(&site(), &["--key", "ann"]);
    let (head, end) = (&frames[0], &frames[frames.len() - 1]);
    assert_eq!(
        (&head["frame"], &head["key"], &head["window"]),
        (&json!("head"), &json!(["ann"]), &json!("minutes"))
    );
    let dropped: Vec<&Json> = frames.iter().filter(|frame| frame["dropped"] == json!(true)).collect();
    let window = json!({"start": "2026-03-01T10:00:00Z", "end": "2026-03-01T10:01:00Z"});
    assert_eq!(dropped.len(), 1);
    assert_eq!(
        (&dropped[0]["line"], &dropped[0]["late"]),
        (&json!(10), &json!([{"window": window, "limit": "2026-03-01T10:01:30Z", "by": "5s"}]))
    );
    assert_eq!(
        end["counts"],
        json!({"events": 6, "accepted": 5, "dropped": 1, "duplicates": 0, "other_events": 3, "rejected": 1,
               "filtered": 1, "firings": 2, "closed": 1})
    );
    assert_eq!(
        (&end["frame"], &end["waiting"]["needs"], &end["waiting"]["watermark"]),
        (&json!("end"), &json!("2026-03-01T10:02:00Z"), &json!("2026-03-01T10:01:55Z"))
    );
}

#[test]
fn from_a_checkpoint_only_what_came_since_is_told() {
    let site = site();
    let [_, input, _] = documented();
    let lines: Vec<&str> = input.lines().collect();
    site.write("visits.jsonl", lines[..4].join("\n") + "\n");
    site.complete(&[]);
    site.write("visits.jsonl", &input);
    let whole = frames(&site, &["--key", "ann"]);
    let before: Vec<u64> = site.epochs();
    let since = frames(&site, &["--key", "ann", "--from-checkpoint", "latest"]);
    assert_eq!(site.epochs(), before);
    assert_eq!(since[0]["checkpoint"]["epoch"].as_u64(), before.last().copied());
    assert_eq!(
        (&since[1]["frame"], &since[1]["values"]),
        (&json!("restored"), &json!({"visits": 2, "sum": 3}))
    );
    let fifth = whole.iter().position(|frame| frame["line"] == json!(5)).unwrap();
    assert_eq!(since[2..since.len() - 1], whole[fifth..whole.len() - 1]);
    let missing = explain(&site, &["--key", "ann", "--from-checkpoint", "99"]);
    missing.assert_refused(2, &["no checkpoint of this epoch"]);
}

#[test]
fn that_files_may_have_come_between_runs_is_noted() {
    let [pipeline, input, _] = documented();
    let site = Site::in_memory(&pipeline.replace("visits.jsonl", "visits*.jsonl"));
    let lines: Vec<&str> = input.lines().collect();
    site.write("visits-1.jsonl", lines[..4].join("\n") + "\n");
    site.complete(&[]);
    site.write("visits-2.jsonl", lines[4..].join("\n") + "\n");
    let note = "started 2 times over its state";
    assert!(
        !explain(&site, &["--key", "ann"]).stdout.contains("over its state"),
        "one run is told as it was"
    );
    site.complete(&[]);
    let told = explain(&site, &["--key", "ann"]);
    assert!(told.stdout.contains(note) && told.stdout.contains("--from-checkpoint"), "{}", told.stdout);
    assert_eq!(frames(&site, &["--key", "ann"])[0]["starts"], json!(2));
    let since = explain(&site, &["--key", "ann", "--from-checkpoint", "1"]);
    assert!(since.code == Some(0) && !since.stdout.contains("over its state"), "{}", since.stdout);
}

#[test]
fn what_is_not_there_is_refused_with_a_remedy() {
    let site = site();
    explain(&site, &["--key", "anne"]).assert_refused(2, &["no event has this key", "did you mean ann"]);
    explain(&site, &["--window", "minute"])
        .assert_refused(2, &["no such window", "did you mean \"minutes\""]);
    explain(&site, &["--start", "ten"]).assert_refused(2, &["this is not a time", "2026-03-01T10:00:00Z"]);
    explain(&site, &["--from-checkpoint", "newest"])
        .assert_refused(2, &["this is not a checkpoint", "latest"]);
    explain(&site, &["--key", "ann", "--from-checkpoint", "latest"])
        .assert_refused(3, &["no such directory"]);
}
