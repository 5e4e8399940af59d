//! `bench state-size` over few events: the shape of its tables and plots, the laws that hold whatever the machine, and how
//! near the model comes.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value as Json;

use crate::support::Ended;

fn bench(arguments: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodmark"));
    command.args(["bench", "state-size"]).args(arguments).env_remove("FLOODMARK_FAULT").stdin(Stdio::null());
    Ended::of(command.output().unwrap())
}

/// The lines of a CSV file, each by the names of its columns.
fn rows(text: &str) -> Vec<BTreeMap<String, String>> {
    let mut lines = text.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<String>>());
    let head = lines.next().unwrap();
    lines
        .map(|cells| {
            assert_eq!(cells.len(), head.len(), "{cells:?}");
            head.iter().cloned().zip(cells).collect()
        })
        .collect()
}

fn number(row: &BTreeMap<String, String>, column: &str) -> f64 {
    row[column].parse().unwrap_or_else(|_| panic!("{column} of {row:?}"))
}

#[track_caller]
fn assert_within(measured: f64, model: f64, share: f64, row: &BTreeMap<String, String>) {
    assert!(
        (measured - model).abs() <= share * model,
        "{measured} is not within {share} of {model}: {row:?}"
    );
}

#[test]
fn open_panes_grow_with_the_delay_late_events_become_fewer_and_the_model_says_how_many() {
    let out = tempfile::tempdir().unwrap();
    let dir = out.path().to_str().unwrap();
    let few = ["-n", "20000", "--keys", "50", "--delays", "24h,0,1h", "--profiles", "none,heavy-tail"];
    let ended = bench(&[&few[..], &["--only", "delays", "--out", dir, "--json", "--quiet"]].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let rows = rows(&fs::read_to_string(out.path().join("state-size.csv")).unwrap());
    let report: Json = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((rows.len(), report["cases"].as_array().unwrap().len()), (18, 18));
    assert_eq!(report["plateau"], Json::Null);

    for (delays, cases) in rows.chunks(3).zip(report["cases"].as_array().unwrap().chunks(3)) {
        assert_eq!(
            delays.iter().map(|row| row["delay_ms"].as_str()).collect::<Vec<_>>(),
            ["0", "3600000", "86400000"]
        );
        for pair in delays.windows(2) {
            for growing in ["open_panes_mean", "open_panes_peak", "memory_bytes_mean", "disk_bytes_mean"] {
                assert!(number(&pair[0], growing) < number(&pair[1], growing), "{growing}: {pair:?}");
            }
        }
        for (row, case) in delays.iter().zip(cases) {
            // Fifty keys are few: at no delay there are 25 panes, and one key more or less shows.
            assert_within(number(row, "open_panes_mean"), number(row, "open_panes_mean_model"), 0.08, row);
            assert_eq!(case["measured"]["late"].to_string(), row["late"], "CSV and JSON say the same");
            // A day of 400 events an hour, from the look on that lies around its beginning.
            assert!((9_600.0..=9_602.0).contains(&number(row, "events")), "{row:?}");
        }
        let late = |index: usize| number(&delays[index], "late_share");
        if delays[0]["profile"] == "none" {
            assert_eq!([late(0), late(1), late(2)], [0.0; 3]);
        } else {
            assert!(late(0) > late(1) && late(1) > late(2), "{delays:?}");
            assert_within(late(0), number(&delays[0], "late_share_model"), 0.2, &delays[0]);
        }
    }
    // At the longest delay the bytes of a pane, measured over another stream, say how large the state is.
    for row in rows.iter().filter(|row| row["delay_ms"] == "86400000") {
        assert_within(number(row, "memory_bytes_mean"), number(row, "memory_bytes_mean_model"), 0.35, row);
        assert_within(number(row, "disk_bytes_mean"), number(row, "disk_bytes_mean_model"), 0.35, row);
    }
    let svg = fs::read_to_string(out.path().join("state-size.svg")).unwrap();
    // Four figures for each kind of window; a point for each combination in each, and the legend's.
    assert_eq!((svg.matches("rotate(-90").count(), svg.matches("<circle").count()), (12, 4 * 18 + 3));
    let png = fs::read(out.path().join("state-size.png")).unwrap();
    assert!(png.starts_with(b"\x89PNG\r\n") && png.len() > 50_000, "{}", png.len());
    assert!(!out.path().join("growth.csv").exists());
}

#[test]
fn state_stays_as_large_as_it_is_while_windows_and_keys_come_and_go() {
    let out = tempfile::tempdir().unwrap();
    let few = ["-n", "10000", "--keys", "50", "--only", "growth", "--growth-delay", "1h"];
    let ended = bench(&[&few[..], &["--quiet", "--out", out.path().to_str().unwrap()]].concat());
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(ended.stdout.matches("PLATEAU").count(), 3, "{}", ended.stdout);
    let rows = rows(&fs::read_to_string(out.path().join("growth.csv")).unwrap());
    assert_eq!(rows.len(), 3 * 218, "a checkpoint each 53 minutes of eight days, and one at the end");
    for row in rows.iter().filter(|row| number(row, "at_ms") > 2.0 * 86_400_000.0) {
        assert_within(number(row, "open_panes"), number(row, "open_panes_model"), 0.35, row);
    }
    assert!(out.path().join("growth.svg").exists() && out.path().join("growth.png").exists());
}

#[test]
fn the_same_seed_gives_the_same_panes_and_another_one_others() {
    let panes = |seed: &str| {
        let few = [
            "-n",
            "5000",
            "--keys",
            "20",
            "--delays",
            "10m",
            "--profiles",
            "offline",
            "--windows",
            "session",
        ];
        let ended = bench(&[&few[..], &["--only", "delays", "--json", "--quiet", "--seed", seed]].concat());
        let report: Json = serde_json::from_str(&ended.stdout).unwrap();
        let measured = &report["cases"][0]["measured"];
        ["late", "results", "open_panes_mean", "open_panes_peak"].map(|name| measured[name].to_string())
    };
    let first = panes("3");
    assert_eq!(panes("3"), first);
    assert_ne!(panes("4"), first);
}

#[test]
fn what_cannot_be_measured_is_refused_with_what_to_write_instead() {
    for (wrong, hints) in [
        (&["--delays", "0,25h"][..], ["longer than the streams allow", "24h or less"]),
        (&["--delays", "soon"], ["`soon` is not a delay", "write 0, 30s"]),
        (&["--profiles", "never"], ["never", "heavy-tail"]),
        (&["--windows", "global"], ["global", "session"]),
        (&["-n", "10"], ["10", "1000"]),
        (&["--keys", "0"], ["0", "1..="]),
    ] {
        let ended = bench(wrong);
        assert_eq!(ended.code, Some(2), "{wrong:?}: {}", ended.stderr);
        assert!(hints.iter().all(|hint| ended.stderr.contains(hint)), "{wrong:?}: {}", ended.stderr);
    }
    let site = tempfile::tempdir().unwrap();
    let file = site.path().join("file");
    fs::write(&file, "x").unwrap();
    let ended = bench(&["--out", file.to_str().unwrap()]);
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("remedy: give a directory that can be written with --out"),
        "{}",
        ended.stderr
    );
    // About 240,000 panes, in 16 MiB.
    let large = ["-n", "500000", "--keys", "20000", "--delays", "24h", "--memory", "16", "--only", "delays"];
    let ended = bench(&[&large[..], &["--windows", "tumbling", "--profiles", "none"]].concat());
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("remedy: give more with --memory"), "{}", ended.stderr);
}

#[test]
fn the_benchmark_of_speed_is_still_what_bench_alone_means() {
    let site = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodmark"));
    command.args([
        "bench",
        "--shape",
        "s1",
        "-n",
        "2000",
        "--repetitions",
        "1",
        "--json",
        "--quiet",
        "--dir",
    ]);
    let ended = Ended::of(command.arg(site.path()).stdin(Stdio::null()).output().unwrap());
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let report: Json = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["shapes"][0]["pipeline"]["events"], 2_000);
}
