//! `floodmark advise` as its users meet it, and against real runs of the samples in the repository.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value as Json, json};

use crate::formats::{BEGUN, formats, unpack};
use crate::support::{Ended, Site, flights_sample, repository};

/// A pipeline over one stream, counting per key.
struct Stream {
    input: PathBuf,
    key: &'static str,
    time: &'static str,
    window: &'static str,
}

impl Stream {
    fn pipeline(&self, delay: &str) -> String {
        let Self { input, key, time, window } = self;
        format!(
            r#"name = "sample"
[source]
path = "{}"
time = {{ field = "{time}", format = "rfc3339" }}
[watermark]
delay = "{delay}"
close_at_end = false
[state]
directory = "state"
[checkpoint]
interval = "1h"
bytes = 262144
retain = 1000
[[window]]
name = "w"
key = ["{key}"]
{window}
aggregates = [{{ name = "n", function = "count" }}]
output = {{ path = "out/results" }}
[late]
path = "out/late"
"#,
            input.display()
        )
    }
}

fn streams() -> [(&'static str, Stream); 4] {
    let stream = |name: &str| repository().join("tests/data/streams").join(name);
    let of = |input, key, time, window| Stream { input, key, time, window };
    let tumbling = "type = \"tumbling\"\nsize = \"1h\"";
    let sliding = "type = \"sliding\"\nsize = \"1d\"\nslide = \"6h\"";
    let lenient = "type = \"tumbling\"\nsize = \"6h\"\nallowed_lateness = \"3d\"";
    let session = "type = \"session\"\ngap = \"10s\"";
    [
        ("flights", of(flights_sample(), "origin", "sched_dep", tumbling)),
        ("quakes, sliding", of(stream("quakes.jsonl.zst"), "net", "time", sliding)),
        ("quakes, lenient", of(stream("quakes.jsonl.zst"), "net", "time", lenient)),
        ("weblog", of(stream("weblog.jsonl.zst"), "clientip", "@timestamp", session)),
    ]
}

fn command(words: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodmark"));
    command.args(words).env_remove("FLOODMARK_FAULT").env_remove("FLOODMARK_LOG").stdin(Stdio::null());
    Ended::of(command.output().unwrap())
}

fn advise(site: &Site, arguments: &[&str]) -> Ended {
    command(&[&["advise", site.path("pipeline.toml").to_str().unwrap()], arguments].concat())
}

fn advise_from_state(site: &Site, arguments: &[&str]) -> Ended {
    command(&[&["advise", "--state", site.path("state").to_str().unwrap()], arguments].concat())
}

fn advice(site: &Site, arguments: &[&str]) -> Json {
    let ended = advise(site, &[arguments, &["--json", "--quiet"]].concat());
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{}", ended.stdout);
    serde_json::from_str(&ended.stdout).unwrap()
}

/// Open panes of each checkpoint of a run.
fn panes_at_checkpoints(site: &Site) -> Vec<f64> {
    let list = command(&["inspect", "list", "--json", site.path("state").to_str().unwrap()]);
    let list: Json = serde_json::from_str(&list.stdout).unwrap();
    list.as_array().unwrap().iter().filter_map(|one| one["open_panes"].as_f64()).collect()
}

fn milliseconds(delay: &Json) -> String {
    format!("{}ms", delay.as_i64().unwrap())
}

#[test]
fn runs_with_each_delay_lose_exactly_what_was_said_and_hold_as_many_panes() {
    for (name, stream) in streams() {
        let site = Site::in_memory(&stream.pipeline("1m"));
        let advice = advice(&site, &["--loss", "1%"]);
        assert!(!site.path("state").exists() && !site.path("out").exists(), "{name}: advise writes nothing");
        let candidates = advice["candidates"].as_array().unwrap();
        assert!(candidates.len() >= 6, "{name}: {candidates:?}");
        for candidate in candidates {
            let (delay, said) = (milliseconds(&candidate["delay_ms"]), &candidate["outcomes"][0]);
            site.reset();
            site.write("pipeline.toml", stream.pipeline(&delay));
            let (summary, outputs) = site.complete(&[]);
            let late = summary["total"]["late"].get("w").cloned().unwrap_or(json!(0));
            assert_eq!(said["lost"], late, "{name}, {delay}");
            assert_eq!(outputs.lines("late").len() as u64, said["lost"].as_u64().unwrap(), "{name}, {delay}");
            assert_eq!(said["panes_end"], summary["open_panes"], "{name}, {delay}");
            assert_eq!(said["events"], summary["total"]["events"], "{name}, {delay}");
            let peak = panes_at_checkpoints(&site).into_iter().fold(0.0, f64::max);
            // Checkpoints and looks meet panes at different moments: docs/ADVISE.md says 10 % and three panes.
            let bound = said["panes_peak"].as_f64().unwrap() * 1.1 + 3.0;
            assert!(peak <= bound, "{name}, {delay}: {peak} panes in a run, {said}");
            println!(
                "{name}, {delay}: lost {late}, panes at the end {}, peak {} ({peak} at a checkpoint)",
                said["panes_end"], said["panes_peak"]
            );
        }
    }
}

#[test]
fn the_advice_keeps_to_the_budget_and_costs_little_more_than_it_must() {
    for (name, stream) in streams() {
        let site = Site::in_memory(&stream.pipeline("1m"));
        let mut last = i64::MAX;
        for (budget, share) in [("0", 0.0), ("0.1%", 0.001), ("1%", 0.01), ("10%", 0.1)] {
            let advice = advice(&site, &["--loss", budget]);
            let advised = &advice["recommendation"];
            let delay = advised["delay_ms"].as_i64().unwrap();
            assert!(advised["lost_share"].as_f64().unwrap() <= share, "{name}, {budget}: {advised}");
            assert!(delay <= last, "{name}: more may be lost in {budget} and the delay is longer");
            last = delay;
            let shorter = format!("{}ms", delay - delay / 10 - 1);
            if delay > 1_000 {
                let below = self::advice(&site, &["--loss", budget, "--delays", &shorter]);
                let below = &below["candidates"].as_array().unwrap()[0]["outcomes"][0];
                let lost = below["lost"].as_f64().unwrap() / below["events"].as_f64().unwrap();
                assert!(lost > share, "{name}, {budget}: a tenth less than {delay} ms would do: {below}");
            }
        }
    }
}

#[test]
fn lateness_is_what_the_notes_of_the_streams_say() {
    let [flights, quakes, _, weblog] = streams();
    // P50, P95, P99 and max as they were worked out with the streams, in seconds, for all of each; flights are a cut.
    let seconds = |stream: &Stream| {
        let advice = advice(&Site::in_memory(&stream.pipeline("1m")), &[]);
        let late = &advice["lateness"];
        ["p50_ms", "p95_ms", "p99_ms", "max_ms"].map(|name| late[name].as_i64().unwrap() / 1_000)
    };
    let near = |found: [i64; 4], expected: [i64; 4]| {
        let close = |(found, expected): (i64, i64)| (found - expected).abs() <= 1 + expected / 50;
        assert!(found.into_iter().zip(expected).all(close), "{found:?} is not {expected:?}");
    };
    near(seconds(&quakes.1), [85_721, 969_384, 1_251_514, 2_413_921]);
    near(seconds(&weblog.1), [28, 56, 58, 59]);
    let [p50, p95, p99, max] = seconds(&flights.1);
    assert!(p50 <= p95 && p95 <= p99 && p99 <= max && max <= 78_000);
}

#[test]
fn what_is_estimated_from_a_checkpoint_is_near_what_is_counted() {
    // What is set when the checkpoint is made; the estimate is for every other delay.
    for ((name, stream), delay) in streams().into_iter().zip(["3h", "9d", "9d", "27s"]) {
        let site = Site::in_memory(&stream.pipeline(delay));
        site.complete(&[]);
        let ended = advise_from_state(&site, &["--loss", "1%", "--json"]);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{name}");
        let estimate: Json = serde_json::from_str(&ended.stdout).unwrap();
        let candidates = estimate["candidates"].as_array().unwrap();
        let delays: Vec<String> = candidates.iter().map(|one| milliseconds(&one["delay_ms"])).collect();
        let counted = advice(&site, &["--loss", "1%", "--delays", &delays.join(",")]);
        for key in ["events", "above_zero"] {
            assert_eq!(estimate["lateness"][key], counted["lateness"][key], "{name}: {key}");
        }
        for key in ["p50_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms"] {
            let [found, exact] = [&estimate, &counted].map(|one| one["lateness"][key].as_f64().unwrap());
            assert!((found - exact).abs() <= exact / 64.0, "{name}, {key}: {found} is not {exact}");
        }
        for candidate in candidates {
            let of = |one: &Json| -> [f64; 3] {
                let outcome = &one["outcomes"][0];
                let number = |key: &str| outcome[key].as_f64().unwrap();
                [number("lost") / number("events"), number("panes_mean"), number("panes_end")]
            };
            let exact = counted["candidates"].as_array().unwrap().iter();
            let exact = exact.clone().find(|one| one["delay_ms"] == candidate["delay_ms"]).unwrap();
            let ([lost, panes, _], [lost_exact, mean, end]) = (of(candidate), of(exact));
            println!(
                "{name}, {}: lost {lost:.4} ({lost_exact:.4}), panes {panes:.0} (mean {mean:.0}, end {end})",
                candidate["delay_ms"]
            );
            let bound = if name == "weblog" { 0.40 } else { 0.06 };
            assert!((lost - lost_exact).abs() <= bound, "{name}: {candidate} {exact}");
        }
    }
}

#[test]
fn a_checkpoint_of_an_older_version_knows_nothing_and_says_so() {
    let site = Site::in_memory("");
    unpack(&formats().join("0.1.0-manifest-2").join(BEGUN), &site);
    advise_from_state(&site, &[])
        .assert_refused(2, &["knows nothing of how late events are", "next checkpoint"]);
    advise_from_state(&site, &["--epoch", "9999"]).assert_refused(2, &["no checkpoint of this epoch"]);
}

#[test]
fn inspect_shows_late_events_shortly() {
    let site = two_files();
    site.complete(&[]);
    let shown = command(&["inspect", "show", "--json", site.path("state").to_str().unwrap()]).stdout;
    let shown: Json = serde_json::from_str(&shown).unwrap();
    let late: Vec<(&Json, &Json)> = shown["partitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (&one["late"], &one["lateness_p99_ms"]))
        .collect();
    let within = |found: &Json| (7_875..=8_125).contains(&found.as_i64().unwrap());
    assert!(*late[0].0 == json!(1) && within(late[0].1) && *late[1].0 == json!(0), "{late:?}");
    let text = command(&["inspect", "show", site.path("state").to_str().unwrap()]).stdout;
    assert!(text.contains("lateness P99"), "{text}");
}

/// Two files, one of them with a clock that is ahead.
fn two_files() -> Site {
    let stream = Stream {
        input: PathBuf::from("*.jsonl"),
        key: "k",
        time: "t",
        window: "type = \"tumbling\"\nsize = \"10s\"",
    };
    let site = Site::in_memory(&stream.pipeline("5s"));
    let line = |second: u32| format!("{{\"t\":\"2026-03-01T10:00:{second:02}Z\",\"k\":\"x\"}}\n");
    site.write("a.jsonl", [0, 10, 2, 21, 30].map(line).concat());
    site.write("b.jsonl", [1, 9, 40].map(line).concat() + "not a record\n");
    site
}

#[test]
fn the_text_says_how_late_events_are_and_what_to_set() {
    let site = two_files();
    let ended = advise(&site, &["--loss", "20%", "--delays", "0,5s,8s", "--quiet"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{}", ended.stdout);
    for line in [
        "sample: which watermark delay",
        "sample        8 events (1 rejected)",
        "event times   2026-03-01T10:00:00Z to 2026-03-01T10:00:40Z",
        "late          1 of 8 events come behind an earlier event of their partition (12.50 %)",
        "lateness      P50 0s   P95 8s   P99 8s   P99.9 8s   max 8s",
        "in order",
        "up to 10s",
        "window `w`: tumbling 10s",
        "advice: delay = \"0s\" loses",
    ] {
        assert!(ended.stdout.contains(line), "no line {line:?} in:\n{}", ended.stdout);
    }
    for line in ended.stdout.lines() {
        assert!(line.chars().count() <= 150 && line == line.trim_end(), "{line:?}");
    }
}

#[test]
fn json_has_every_partition_and_what_is_ahead() {
    let advice = advice(&two_files(), &["--loss", "20%"]);
    let partitions = advice["partitions"].as_array().unwrap();
    let by_name: BTreeMap<&str, &Json> =
        partitions.iter().map(|one| (one["partition"].as_str().unwrap(), one)).collect();
    assert_eq!(by_name.len(), 2);
    let longest = partitions.iter().map(|one| one["step_max_ms"].as_i64().unwrap()).max();
    assert_eq!(longest, Some(31_000));
    assert_eq!(advice["sample"]["rejected"], json!(1));
    assert_eq!(advice["lateness"]["histogram"], json!([{"over_ms": 5_000, "up_to_ms": 10_000, "events": 1}]));
}

#[test]
fn the_plot_is_written_as_svg_and_png() {
    let site = two_files();
    let out = site.path("plots");
    let ended = advise(&site, &["--loss", "20%", "--out", out.to_str().unwrap()]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let svg = std::fs::read_to_string(out.join("advise.svg")).unwrap();
    for word in
        ["Lateness of events", "Events lost", "open panes", "bytes of panes in memory", "advised delay"]
    {
        assert!(svg.contains(word), "{word}");
    }
    assert!(std::fs::read(out.join("advise.png")).unwrap().starts_with(b"\x89PNG"));
}

#[test]
fn a_check_fails_when_what_is_set_loses_too_much() {
    let [(_, flights), ..] = streams();
    let site = Site::in_memory(&flights.pipeline("15m"));
    for (arguments, code) in [
        (&["--loss", "1%"][..], 0),
        (&["--loss", "1%", "--check"][..], 7),
        (&["--loss", "50%", "--check"][..], 0),
    ] {
        assert_eq!(advise(&site, arguments).code, Some(code), "{arguments:?}");
    }
}

#[test]
fn what_cannot_be_advised_on_is_refused_with_a_remedy() {
    let site = two_files();
    advise(&site, &["--window", "v"]).assert_refused(2, &["no such window", "the pipeline has: w"]);
    let wrong = advise(&site, &["--loss", "5"]);
    assert!(wrong.code == Some(2) && wrong.stderr.contains("write 0.1%"), "{}", wrong.stderr);
    let stream = Stream {
        input: PathBuf::from("-"),
        key: "k",
        time: "t",
        window: "type = \"tumbling\"\nsize = \"10s\"",
    };
    let piped = stream.pipeline("5s").replace("[source]\n", "[source]\nformat = \"jsonl\"\n");
    site.write("pipeline.toml", piped);
    advise(&site, &[]).assert_refused(2, &["standard input cannot", "head -n 1000000"]);
    site.write("pipeline.toml", Stream { input: PathBuf::from("none*.jsonl"), ..stream }.pipeline("5s"));
    let missing = advise(&site, &[]);
    assert!(missing.code == Some(3) && missing.stderr.contains("none*.jsonl"), "{}", missing.stderr);
}
