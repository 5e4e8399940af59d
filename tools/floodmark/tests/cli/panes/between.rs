//! What came between two checkpoints, and how the state grew.

use std::fs;

use serde_json::json;

use super::{at, copied, epochs, inspect, json_of, kinds, operator, text_of};

#[test]
fn a_diff_tells_windows_that_appeared_changed_and_went() {
    let site = kinds();
    let [first, second, last] = epochs(&site).map(|epoch| epoch.to_string());
    let state = site.path("state");
    let diff = json_of(&["diff", "--before", &first, "--after", &last], &state);
    assert_eq!(
        (&diff["watermark"]["before"], &diff["watermark"]["after"]),
        (&json!(at("10:06")), &json!(at("10:19")))
    );
    assert_eq!((&diff["watermark"]["by"], &diff["watermark"]["went_back"]), (&json!("13m"), &json!(false)));
    let clicks = &diff["partitions"][0];
    assert!(clicks["name"].as_str().unwrap().ends_with("clicks.jsonl"), "{clicks}");
    // Thirteen clicks of ann, two repeated ids, four of bob.
    let records = |name: &str| clicks[name].as_u64().unwrap();
    assert_eq!(records("records_after") - records("records_before"), 13 + 2 + 4);
    let minutes = operator(&diff, "minutes");
    let windows: Vec<(&str, &str, &str, &str)> = minutes["windows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|window| {
            let text = |name: &str| window[name].as_str().unwrap();
            (text("end"), text("change"), text("status_before"), text("status_after"))
        })
        .collect();
    let ends = ["10:05", "10:10", "10:15", "10:20", "10:25", "10:30"].map(at);
    assert_eq!(
        windows,
        [
            (ends[0].as_str(), "gone", "accepts-late", "expired"),
            (ends[1].as_str(), "gone", "open", "expired"),
            (ends[2].as_str(), "gone", "open", "expired"),
            (ends[3].as_str(), "changed", "open", "open"),
            (ends[4].as_str(), "appeared", "open", "open"),
            (ends[5].as_str(), "appeared", "open", "open"),
        ]
    );
    // [10:15, 10:20) had two of its five minutes, of one user.
    assert_eq!(
        (&minutes["windows"][3]["panes"]["events_before"], &minutes["windows"][3]["panes"]["events_after"]),
        (&json!(2), &json!(5))
    );
    // Without epochs: the newest against its parent.
    let newest = json_of(&["diff", "--window", "minutes"], &state);
    assert_eq!(newest["after"]["epoch"].to_string(), last);
    assert_eq!(newest["operators"].as_array().unwrap().len(), 1);
    let text = text_of(&["diff", "--before", &second, "--after", &last], &state);
    assert!(text.contains("appeared") && text.contains("counters that moved"), "{text}");
}

#[test]
fn nothing_comes_between_a_checkpoint_and_its_copy() {
    let site = kinds();
    let [.., last] = epochs(&site);
    let (state, copy) = (site.path("state"), site.path("copy"));
    copied(&state.join(format!("checkpoints/chk-{last:010}")), &copy);
    let report = json_of(&["diff", state.to_str().unwrap()], &copy);
    for operator in report["operators"].as_array().unwrap() {
        let panes = &operator["panes"];
        assert_eq!(
            (&panes["appeared"], &panes["changed"], &panes["gone"]),
            (&json!(0), &json!(0), &json!(0))
        );
        assert_eq!((&panes["same"], &panes["before"]), (&panes["after"], &panes["after"]));
    }
    assert_eq!(report["counters"], json!([]));
    assert_eq!((&report["files"]["new"], &report["files"]["gone"]), (&json!(0), &json!(0)));
}

#[test]
fn the_first_checkpoint_has_none_before_it() {
    let site = kinds();
    let oldest = site.epochs()[0].to_string();
    inspect(&["diff", "--after", &oldest], &site.path("state"))
        .assert_refused(2, &["is the first", "--before"]);
}

#[test]
fn growth_is_read_from_the_manifests_and_drawn() {
    let site = kinds();
    let state = site.path("state");
    fs::create_dir(site.path("plots")).unwrap();
    let plots = site.path("plots");
    let growth = json_of(&["growth", "--plot", plots.to_str().unwrap()], &state);
    let list = json_of(&["list"], &state);
    let (points, list) = (growth["points"].as_array().unwrap(), list.as_array().unwrap());
    assert_eq!(points.len(), list.len());
    for (point, listed) in points.iter().zip(list) {
        for name in ["epoch", "created_at", "watermark", "files", "bytes", "open_panes"] {
            assert_eq!(point[name], listed[name], "{name}");
        }
        let sum: u64 = point["operators"]
            .as_array()
            .unwrap()
            .iter()
            .map(|operator| operator["entries"].as_u64().unwrap())
            .sum();
        assert_eq!(point["entries"], sum);
    }
    let change = points.last().unwrap()["bytes"].as_i64().unwrap() - points[0]["bytes"].as_i64().unwrap();
    assert_eq!(growth["bytes_change"], change);
    let svg = fs::read_to_string(plots.join("growth.svg")).unwrap();
    assert!(svg.contains("State of kinds over its checkpoints") && svg.contains("visits"), "{svg}");
    assert!(fs::read(plots.join("growth.png")).unwrap().starts_with(b"\x89PNG"));
    inspect(&["growth", "--plot", "/nowhere/at/all"], &state).assert_refused(2, &["no such directory"]);
}
