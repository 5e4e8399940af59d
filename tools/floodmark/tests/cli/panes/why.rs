//! Why a window has closed, or has not.

use floodmark::event_time::EventTime;
use serde_json::{Value as Json, json};

use super::{START, at, cut_in_a_firing, inspect, json_of, kinds, text_of};
use crate::support::Site;

fn why(site: &Site, arguments: &[&str]) -> Json {
    json_of(&[&["why"], arguments].concat(), &site.path("state"))
}

#[test]
fn an_open_window_names_the_partition_that_holds_it_and_the_event_that_would_close_it() {
    let site = kinds();
    let found = why(&site, &["ann", "a", &at("10:20")]);
    assert_eq!((&found["status"], &found["presence"]), (&json!("open"), &json!("present")));
    assert_eq!((&found["watermark"], &found["missing"]), (&json!(at("10:19")), &json!("6m")));
    assert_eq!(found["expires_at"], at("10:29"));
    // Both files were read to their ends: nothing holds W back, input that is still to come closes it.
    let holding = &found["holding"];
    assert_eq!((&holding["any_is_enough"], &holding["finished"]), (&json!(true), &json!(2)));
    assert!(
        found["answer"].as_str().unwrap().starts_with("it has not closed: it ends at 2026-03-01T10:25:00Z")
    );
    let text = text_of(&["why", "ann", "a", &at("10:20")], &site.path("state"));
    assert!(text.contains("every partition was read to its end"), "{text}");
}

#[test]
fn a_partition_that_is_read_in_part_holds_the_window_back() {
    let site = cut_in_a_firing();
    let start = START + 1_000 * 60_000;
    let found = why(&site, &["k0000", &start.to_string()]);
    assert_eq!((&found["status"], &found["presence"]), (&json!("open"), &json!("present")), "{found}");
    let partitions = found["holding"]["partitions"].as_array().unwrap();
    assert_eq!(partitions.len(), 1, "{found}");
    let held = &partitions[0];
    assert!(held["partition"].as_str().unwrap().ends_with("pause.jsonl"), "{held}");
    // Its own latest event and the delay of three hours; the window ends a minute after its start.
    assert_eq!((&held["behind"], &held["max_time"]), (&json!("3h"), &found["start"]));
    let needs = EventTime::from_millis(start + 60_000 + 3 * 3_600_000);
    assert_eq!(held["needs_event_at"], needs.to_string());
    assert_eq!(found["missing"], "3h 1m");
}

#[test]
fn what_the_state_does_not_hold_is_told_apart() {
    let site = kinds();
    let presence = |arguments: &[&str]| {
        let found = why(&site, arguments);
        (found["status"].as_str().unwrap().to_owned(), found["presence"].as_str().unwrap().to_owned())
    };
    let told = |status: &str, presence: &str| (status.to_owned(), presence.to_owned());
    // Nobody of this name has clicked, in a window that takes events.
    assert_eq!(presence(&["eve", "a", &at("10:20")]), told("open", "never-seen"));
    // Long expired: its state may be gone, so nobody knows.
    assert_eq!(presence(&["eve", "a", &at("09:00")]), told("expired", "unknown"));
    // Far ahead.
    assert_eq!(presence(&["ann", "a", &at("23:00")]), told("open", "never-seen"));
    let found = why(&site, &["eve", "a", &at("10:20")]);
    assert_eq!(found["other_keys"], true);
    assert!(found["because"].to_string().contains("has panes of other keys"), "{found}");
    let gone = why(&site, &["ann", "a", &at("09:00")]);
    assert!(gone["because"].to_string().contains("cannot be known"), "{gone}");
}

#[test]
fn overlapping_windows_are_told_apart_by_both_bounds_and_sessions_by_any_instant() {
    let site = kinds();
    let state = site.path("state");
    let window = ["--window", "moving"];
    let inside = inspect(&[&["why", "ann", &at("10:17")][..], &window].concat(), &state);
    inside.assert_refused(2, &["several windows", &format!("{}..{}", at("10:10"), at("10:20"))]);
    let both = format!("{}..{}", at("10:10"), at("10:20"));
    let found = why(&site, &[&["ann", both.as_str()][..], &window].concat());
    assert_eq!(
        (&found["status"], found["panes"].as_array().unwrap().len()),
        (&json!("open"), 2),
        "two slices: {found}"
    );
    let visit = why(&site, &["bob", &at("10:28"), "--window", "visits"]);
    assert_eq!((&visit["start"], &visit["end"]), (&json!(at("10:26")), &json!(at("10:32"))));
    assert_eq!(visit["presence"], "present");
    let none = why(&site, &["bob", &at("10:20"), "--window", "visits"]);
    assert_eq!((&none["status"], &none["presence"]), (&json!("open"), &json!("never-seen")));
    inspect(&["why", "ann", "soon"], &state).assert_refused(2, &["this is not a time"]);
    let ever = why(&site, &["ann", &at("10:00"), "--window", "ever"]);
    assert!(ever["answer"].as_str().unwrap().contains("never closes"), "{ever}");
}

#[test]
fn a_window_that_is_yet_to_fire_is_closing() {
    let site = cut_in_a_firing();
    let last = (START + 59 * 60_000).to_string();
    let found = why(&site, &["k0001", &last]);
    assert_eq!((&found["status"], &found["presence"]), (&json!("closing"), &json!("present")), "{found}");
    assert!(found["because"].to_string().contains("middle of a long firing"), "{found}");
    let first = why(&site, &["k0001", &START.to_string()]);
    assert_eq!(first["status"], "expired", "{first}");
}

#[test]
fn a_pipeline_file_stands_for_its_state() {
    let site = kinds();
    let by_file = json_of(&["why", "ann", "a", &at("10:20")], &site.path("pipeline.toml"));
    let by_path = json_of(&["why", "ann", "a", &at("10:20")], &site.path("state"));
    assert_eq!(by_file["because"], by_path["because"]);
    assert_eq!(by_file["checkpoint"]["epoch"], by_path["checkpoint"]["epoch"]);
}
