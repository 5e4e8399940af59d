//! Late events worked into a savepoint: the windows that were still to fire come out as if nothing had been late.

use std::fs;
use std::process::Command;

use serde_json::{Value as Json, json};

use crate::reapply::{assert_same, panes, pipeline, quakes};
use crate::support::{Ended, Site};

fn floodmark(site: &Site, arguments: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodmark"));
    Ended::of(command.args(arguments).arg("--json").current_dir(site.path(".")).output().unwrap())
}

fn reapply(site: &Site, savepoint: &str, to: &str, more: &[&str]) -> Ended {
    let arguments = ["reapply", "pipeline.toml", "--late", "out/late", "--savepoint", savepoint, "--to", to];
    floodmark(site, &[&arguments[..], more].concat())
}

fn keeping_all(pipeline: &str) -> String {
    pipeline.replace("bytes = 100000", "bytes = 100000\nretain = 1000")
}

/// What a checkpoint says besides its panes and files.
fn standing(site: &Site, path: &str) -> Json {
    let mut shown = floodmark(site, &["inspect", "show", path]).summary();
    let fields = shown.as_object_mut().unwrap();
    for other in
        ["path", "files", "operators", "generation", "parent", "created_at", "age_ms", "database_bytes"]
    {
        fields.remove(other);
    }
    shown
}

/// Restores a savepoint as a fork and runs it to its end. Returns its rows.
fn forked(site: &Site, savepoint: &str, text: &str) -> Vec<Json> {
    floodmark(site, &["restore", "--from", savepoint, "--state", "fork", "--as-fork"]).summary();
    let text = text.replace("\"out/", "\"out-fork/").replace("directory = \"state\"", "directory = \"fork\"");
    site.write("fork.toml", text);
    assert_eq!(floodmark(site, &["run", "fork.toml"]).summary()["outcome"], "completed");
    site.outputs_in("out-fork").rows("daily")
}

#[test]
fn windows_of_a_savepoint_come_out_as_if_their_late_events_had_come_in_time() {
    let windows = [
        "type = \"tumbling\"\nsize = \"1d\"",
        "type = \"calendar\"\nunit = \"week\"\nzone = \"America/Los_Angeles\"",
        "type = \"sliding\"\nsize = \"2d\"\nslide = \"12h\"",
    ];
    for window in windows {
        let (_, expected) = quakes(&pipeline("90d", window)).complete(&["--quiet"]);
        let text = keeping_all(&pipeline("1h", window));
        let site = quakes(&text);
        let (summary, outputs) = site.complete(&["--quiet"]);
        let late = summary["total"]["late"]["daily"].as_u64().unwrap();
        assert!(late > 1_000, "{window}: {summary}");
        let epoch = (site.epochs().len() / 3).max(1).to_string();
        floodmark(&site, &["savepoint", "create", "pipeline.toml", "--name", "old", "--at", &epoch])
            .summary();
        let old = "state/savepoints/old";

        reapply(&site, old, "new", &[]).assert_refused(2, &["will_be_read=", "--late-again"]);
        assert!(!site.path("new").exists() && !site.path(".new.reapply").exists());
        let done = reapply(&site, old, "new", &["--late-again"]).summary();
        let applied = done["applied"]["daily"].as_u64().unwrap();
        let left: u64 = done["not_applied"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
        assert!(applied > 100 && done["not_applied"]["expired"].as_u64().unwrap() > 0, "{window}: {done}");
        assert_eq!(applied + left, late, "{window}: every late record is told of: {done}");
        assert_eq!(standing(&site, "new"), standing(&site, old), "neither watermark nor positions move");
        assert_eq!(floodmark(&site, &["inspect", "verify", "new"]).summary()[0]["sound"], true);
        reapply(&site, "new", "newer", &["--late-again"])
            .assert_refused(2, &["applied to these results before"]);

        let shown = floodmark(&site, &["inspect", "show", old]).summary();
        let watermark = shown["operators"][0]["watermark"].as_str().unwrap_or_default().to_owned();
        let watermark =
            if watermark.is_empty() { shown["watermark"].as_str().unwrap().to_owned() } else { watermark };
        let rows = forked(&site, "new", &text);
        assert_eq!(site.outputs(), outputs, "{window}: the original is as it was");
        if !window.contains("tumbling") && !window.contains("calendar") {
            // An event that is in time for one of its windows misses the others without being late: no late output has
            // it.
            assert!(!rows.is_empty());
            continue;
        }
        let (found, mut expected) = (panes(rows), panes(expected.rows("daily")));
        expected.retain(|_, row| row["window_end"].as_str().unwrap() > watermark.as_str());
        assert!(expected.len() > 20, "{window}: {}", expected.len());
        assert_same(&found, &expected);
    }
}

#[test]
fn a_record_that_the_savepoint_has_read_or_that_needs_an_emission_is_left_out_by_name() {
    let window = "type = \"tumbling\"\nsize = \"1d\"\nallowed_lateness = \"2d\"";
    let text = keeping_all(&pipeline("1h", window));
    let site = quakes(&text);
    site.complete(&["--quiet"]);
    let half = (site.epochs().len() / 2).max(1).to_string();
    let shown = floodmark(&site, &["inspect", "show", "state", "--at", &half]).summary();
    let partition = &shown["partitions"][0];
    let (read, watermark) =
        (partition["bytes"].as_u64().unwrap(), shown["watermark"].as_str().unwrap().to_owned());
    // Lines of a late output as another run may have written them.
    fs::remove_dir_all(site.path("out/late")).unwrap();
    let line = |operator: &str, offset: u64, time: &str| {
        let record = json!({"time": time, "net": "zz", "mag": 1.5, "depth": 1.0, "nst": 3, "place": "x"});
        json!({"operator": operator, "source": "quakes.jsonl", "record_number": 1, "byte_offset": offset,
            "event_time": time, "window_start": time, "window_end": time, "record": record})
        .to_string()
    };
    let instant: jiff::Timestamp = watermark.parse().unwrap();
    let days = |days: i64| (instant + jiff::SignedDuration::from_hours(24 * days)).to_string();
    let lines = [
        line("daily", 1, &days(2)),
        line("daily", 1, &days(-9)),
        line("daily", read, &days(2)),
        line("daily", read, &days(-1)),
        line("daily", read, &days(-9)),
        line("weekly", read, &days(2)),
    ];
    site.write("out/late/part-0000000001.jsonl", lines.join("\n") + "\n");
    let from = format!("state/checkpoints/chk-{:010}", half.parse::<u64>().unwrap());
    let done = reapply(&site, &from, "new", &["--late-again"]).summary();
    assert_eq!(done["applied"], json!({"daily": 1}), "{done}");
    let reasons = json!({"other_operator": 1, "expired": 2, "fired": 1, "already_counted": 1});
    assert_eq!(done["not_applied"], reasons, "{done}");
    let listed: Vec<_> =
        done["listed"].as_array().unwrap().iter().map(|row| row["line"].as_u64().unwrap()).collect();
    assert_eq!(listed, [1, 2, 4, 5, 6]);
    // In the pane, and once.
    let panes = floodmark(&site, &["inspect", "windows", "new", "--key", "zz"]).summary();
    assert!(panes.to_string().contains("\"quakes\":1"), "{panes}");
}

#[test]
fn sessions_and_windows_that_emit_with_their_events_take_nothing_into_a_savepoint() {
    let session = "type = \"session\"\ngap = \"6h\"";
    let update = "type = \"tumbling\"\nsize = \"1d\"\nmode = \"update\"";
    for (window, words) in [(session, "session="), (update, "this window emits with its events")] {
        let site = quakes(&keeping_all(&pipeline("1h", window)));
        site.complete(&["--quiet"]);
        reapply(&site, "state/checkpoints/chk-0000000001", "new", &["--late-again"])
            .assert_refused(2, &[words]);
        assert!(!site.path("new").exists() && !site.path(".new.reapply").exists());
    }
}
