//! `bench latency` and `bench beyond-memory`, small: the shape of their reports, and the laws that hold whatever the
//! machine.

use std::process::{Command, Stdio};

use serde_json::Value as Json;

use crate::support::Ended;

fn bench(which: &str, arguments: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodmark"));
    command.args(["bench", which]).args(arguments).env_remove("FLOODMARK_FAULT").stdin(Stdio::null());
    Ended::of(command.output().unwrap())
}

#[track_caller]
fn report(ended: &Ended) -> Json {
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    serde_json::from_str(&ended.stdout).unwrap()
}

fn micros(series: &Json, quantile: &str) -> u64 {
    series[quantile].as_u64().unwrap_or_else(|| panic!("{quantile} of {series}"))
}

/// 50,000 events a second of 100 keys; a window closes every 120 ms.
const SMALL: [&str; 12] = [
    "--loads",
    "50",
    "--capacity",
    "100000",
    "--keys",
    "100",
    "--events-per-window",
    "6000",
    "--memory",
    "64",
    "--seconds",
    "3",
];

#[test]
fn a_published_result_has_waited_for_its_checkpoint_and_a_fired_one_has_not() {
    let report =
        report(&bench("latency", &[&SMALL[..], &["--intervals", "500ms", "--json", "--quiet"]].concat()));
    assert_eq!((&report["capacity_measured"], &report["keys"]), (&Json::from(false), &Json::from(100)));
    let [without, with] = report["cases"].as_array().unwrap().as_slice() else { panic!("{report}") };
    let series = |case: &Json| case["series"].as_array().unwrap().clone();
    for case in [without, with] {
        assert_eq!(case["offered_events_per_second"], 50_000.0, "{case}");
        for series in series(case) {
            let [p50, p99, p999, max] =
                ["p50_us", "p99_us", "p999_us", "max_us"].map(|name| micros(&series, name));
            assert!(p50 <= p99 && p99 <= p999 && p999 <= max && p50 > 0, "{series}");
            // Each window has all of the keys.
            assert_eq!(micros(&series, "rows"), 100 * micros(&series, "firings"), "{series}");
        }
    }
    assert_eq!((&without["checkpoint_interval_ms"], &without["checkpoints"]), (&Json::Null, &Json::from(0)));
    let only = series(without);
    assert_eq!((only.len(), &only[0]["until"]), (1, &Json::from("fired")));
    assert!(micros(&only[0], "firings") >= 10, "{only:?}");

    assert!(with["checkpoints"].as_u64().unwrap() >= 3, "{with}");
    let with = series(with);
    let published = with.iter().find(|series| series["until"] == "published").unwrap();
    let fired = with.iter().find(|series| series["until"] == "fired").unwrap();
    // The oldest row of an interval has waited for nearly all of it.
    assert!(micros(published, "max_us") >= 300_000, "{published}");
    assert!(micros(published, "p50_us") > micros(fired, "p50_us"), "{published} {fired}");
}

#[test]
fn a_run_that_cannot_keep_up_shows_the_waiting_in_its_times() {
    // Every event makes a pane and a row: no machine takes that many.
    let load =
        ["--loads", "100", "--capacity", "12000000", "--keys", "100000", "--events-per-window", "100000"];
    let rest = ["--seconds", "1", "--intervals", "200ms", "--memory", "64", "--quiet"];
    let ended = bench("latency", &[&load[..], &rest, &["--json"]].concat());
    let report = report(&ended);
    let case = &report["cases"][0];
    let behind = case["behind_ms"].as_f64().unwrap();
    assert_eq!(case["kept_up"], false, "{case}");
    let longest = micros(&case["series"][0], "max_us") as f64 / 1e3;
    assert!(behind > 250.0 && longest > behind / 2.0, "{case}");
}

#[test]
fn wrong_loads_and_intervals_are_refused_and_a_case_without_a_closing_says_what_to_do() {
    for wrong in [["--loads", "0"], ["--loads", "101"], ["--intervals", "soon"], ["--capacity", "0"]] {
        let ended = bench("latency", &wrong);
        assert_eq!(ended.code, Some(2), "{wrong:?}: {}", ended.stderr);
    }
    let slow = ["--loads", "50", "--capacity", "100", "--seconds", "1", "--quiet", "--intervals"];
    for (interval, remedy) in [("500ms", "fewer --events-per-window"), ("501ms", "shorter --intervals")] {
        let ended = bench("latency", &[&slow[..], &[interval]].concat());
        assert!(ended.code != Some(0) && ended.stderr.contains(remedy), "{}", ended.stderr);
    }
}

#[test]
fn state_beyond_memory_is_fired_whole_and_memory_is_kept_to() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    // Large enough for the budget to count beside what any process takes.
    let few = ["--memory", "64", "--times", "4", "--events-per-key", "1", "--dir", path, "--json", "--quiet"];
    let report = report(&bench("beyond-memory", &few));
    let (within, beyond) = (&report["within"], &report["beyond"]);
    assert_eq!(
        (&report["rss_within_rule"], &report["state_large_enough"]),
        (&Json::from(true), &Json::from(true))
    );
    assert!(beyond["state_of_budget"].as_f64().unwrap() >= 4.0, "{beyond}");
    assert!(within["state_of_budget"].as_f64().unwrap() <= 0.25, "{within}");
    assert_eq!(within["taking"]["events"], beyond["taking"]["events"]);
    // Within the budget all panes are in memory in the end, beyond it few are.
    assert_eq!(within["taking"]["resident_panes"], within["panes"], "{within}");
    assert!(beyond["taking"]["resident_panes"].as_u64() < beyond["panes"].as_u64(), "{beyond}");
    assert!(report["ratio"].as_f64().unwrap() > 0.0, "{report}");
    // State and output are gone, the text is kept for the next time.
    let left: Vec<String> = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(left.len() == 2 && left.iter().all(|name| name.ends_with(".jsonl")), "{left:?}");
}
