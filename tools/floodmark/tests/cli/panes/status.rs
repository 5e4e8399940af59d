//! Where panes stand, which are listed, what they are made of.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use super::{at, cut_in_a_firing, epochs, inspect, json_of, kinds, operator, text_of};

/// End of the window, key and status of each listed pane.
fn rows(report: &Json, name: &str) -> Vec<(String, Vec<String>, String)> {
    let text = |value: &Json| value.as_str().unwrap().to_owned();
    let panes = operator(report, name)["panes"].as_array().unwrap();
    let row = |pane: &Json| {
        let key = pane["key"].as_array().unwrap().iter().map(text).collect();
        (text(&pane["end"]), key, text(&pane["status"]))
    };
    panes.iter().map(row).collect()
}

#[test]
fn every_pane_stands_where_the_watermark_of_its_checkpoint_puts_it() {
    let site = kinds();
    let report = json_of(&["panes"], &site.path("state"));
    assert_eq!(report["checkpoint"]["watermark"], at("10:19"));
    let statuses: BTreeMap<String, String> =
        rows(&report, "minutes").into_iter().map(|(end, _, status)| (end, status)).collect();
    // W 10:19, four minutes of lateness: 10:15 expired at this very watermark.
    for (end, status) in [("10:20", "open"), ("10:25", "open"), ("10:30", "open")] {
        assert_eq!(statuses.get(&at(end)).map(String::as_str), Some(status), "{statuses:?}");
    }
    for (end, status) in &statuses {
        let expected = if *end >= at("10:20") { "open" } else { "expired" };
        assert_eq!(status, expected, "{end}");
    }
    // A slice stands as the last window that holds it: [10:10, 10:15) is in [10:10, 10:20), which is open.
    for (end, _, status) in rows(&report, "moving") {
        assert_eq!(status, if end >= at("10:15") { "open" } else { "expired" }, "{end}");
    }
    // ann never stops; bob's first visit ended at 10:12, his second goes on.
    let visits = rows(&report, "visits");
    let of = |user: &str| -> Vec<(&str, &str)> {
        let own = visits.iter().filter(|(_, key, _)| key[0] == user);
        own.map(|(end, _, status)| (end.as_str(), status.as_str())).collect()
    };
    assert_eq!(of("ann"), [(at("10:32").as_str(), "open")]);
    assert_eq!(of("bob").last(), Some(&(at("10:32").as_str(), "open")));
    // Complete mode forgets nothing: no window of it ever expires.
    let ever = operator(&report, "ever");
    assert_eq!(ever["totals"]["open"]["panes"], 6, "{ever}");
    assert_eq!(ever["panes"][0]["expires_at"], Json::Null);
}

#[test]
fn a_window_that_fired_and_takes_late_events_says_so() {
    let site = kinds();
    // W 10:06 is between the end 10:05 and its expiry at 10:09.
    let epoch = epochs(&site)[0].to_string();
    let report = json_of(
        &["panes", "--at", &epoch, "--window", "minutes", "--status", "accepts-late"],
        &site.path("state"),
    );
    let minutes = operator(&report, "minutes");
    assert_eq!(minutes["totals"]["open"]["panes"], 0, "only what was asked for counts");
    let panes = minutes["panes"].as_array().unwrap();
    assert_eq!(panes.len(), 4, "two users, two pages: {panes:?}");
    for pane in panes {
        assert_eq!((&pane["end"], &pane["expires_at"]), (&json!(at("10:05")), &json!(at("10:09"))));
        assert_eq!(pane["emissions"], 1, "it was emitted once: {pane}");
    }
}

#[test]
fn filters_narrow_by_key_prefix_time_and_limit() {
    let site = kinds();
    let keys = |arguments: &[&str]| -> Vec<Vec<String>> {
        let report = json_of(
            &[&["panes", "--window", "minutes", "--status", "open"], arguments].concat(),
            &site.path("state"),
        );
        rows(&report, "minutes").into_iter().map(|(_, key, _)| key).collect()
    };
    let all = keys(&[]);
    assert!(all.iter().any(|key| key[0] == "bob") && all.len() > 6, "{all:?}");
    let of = |user: &str| all.iter().filter(|key| key[0] == user).count();
    assert_eq!(keys(&["--key-prefix", "a"]).len(), of("ann"));
    assert_eq!(keys(&["--key-prefix", "ann", "--key-prefix", "b"]), vec![vec!["ann", "b"]; 3]);
    assert_eq!(keys(&["--key", "bob", "--key", "a"]), vec![vec!["bob", "a"]; 1]);
    assert_eq!(keys(&["--key-prefix", "x"]), Vec::<Vec<String>>::new());
    let one = json_of(
        &["panes", "--window", "minutes", "--from", &at("10:25"), "--to", &at("10:30")],
        &site.path("state"),
    );
    assert!(rows(&one, "minutes").iter().all(|(end, ..)| *end == at("10:30")));
    let few =
        json_of(&["panes", "--window", "minutes", "--status", "open", "--limit", "2"], &site.path("state"));
    let few = operator(&few, "minutes");
    assert_eq!(few["panes"].as_array().unwrap().len(), 2);
    assert_eq!(few["panes_left_out"], all.len() - 2);
    assert_eq!(few["totals"]["open"]["panes"], all.len());
}

#[test]
fn what_cannot_be_asked_for_is_refused_with_a_way_on() {
    let site = kinds();
    let state = site.path("state");
    inspect(&["panes", "--window", "hours"], &state)
        .assert_refused(2, &["no such window", "minutes, moving"]);
    inspect(&["panes", "--key", "a", "--key", "b", "--key", "c"], &state)
        .assert_refused(2, &["components=3", "minutes (user, page)"]);
    inspect(&["panes", "--from", "10", "--to", "5"], &state).assert_refused(2, &["no window is between"]);
    let ended = inspect(&["panes", "--status", "late"], &state);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("open, closing, accepts-late, expired"), "{}", ended.stderr);
}

#[test]
fn windows_that_are_due_and_yet_to_fire_are_closing_and_not_open() {
    let site = cut_in_a_firing();
    let report = json_of(&["panes", "--limit", "1000000"], &site.path("state"));
    let totals = &operator(&report, "minutes")["totals"];
    assert!(totals["closing"]["panes"].as_u64().unwrap() > 0, "{totals}");
    // Nothing but the event that ended the pause is open.
    assert_eq!(totals["open"]["panes"], 1, "{totals}");
    let windows = json_of(&["windows"], &site.path("state"));
    let closing = &windows["operators"][0]["closing"];
    assert_eq!(closing["panes"], totals["closing"]["panes"]);
    assert!(text_of(&["windows"], &site.path("state")).contains("closing"));
    // What has fired and what is yet to fire are all there was.
    let fired = 60 - closing["windows"].as_u64().unwrap();
    assert!(fired > 0 && fired < 60, "{closing}");
}

#[test]
fn statistics_add_up_to_the_panes() {
    let site = kinds();
    let state = site.path("state");
    let panes = json_of(&["panes", "--limit", "100000"], &state);
    let stats = json_of(&["stats", "--top", "3", "--prefix-chars", "1"], &state);
    for name in ["minutes", "moving", "visits", "ever"] {
        let (listed, stats) = (operator(&panes, name), operator(&stats, name));
        assert_eq!(listed["totals"], stats["totals"], "{name}");
        let live: u64 = ["open", "closing", "accepts_late"]
            .map(|status| stats["totals"][status]["panes"].as_u64().unwrap())
            .iter()
            .sum();
        let by_prefix: u64 = stats["prefixes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|prefix| prefix["panes"].as_u64().unwrap())
            .sum();
        assert_eq!(by_prefix, live, "{name}: two users are two beginnings");
        let largest = &stats["largest_panes"][0]["bytes"];
        let bytes = listed["panes"].as_array().unwrap().iter().map(|pane| pane["bytes"].as_u64().unwrap());
        assert_eq!(largest.as_u64(), bytes.max(), "{name}");
    }
    let visits = operator(&stats, "visits");
    assert_eq!(visits["sessions"]["sessions"], 2);
    assert_eq!(visits["sessions"]["longest"][0]["key"], json!(["ann"]));
    assert_eq!(visits["timers"]["next_closings"], json!([{"at": at("10:32"), "panes": 2}]));
    let minutes = operator(&stats, "minutes");
    assert_eq!(minutes["timers"]["next_closings"][0]["at"], at("10:20"));
    assert_eq!(minutes["timers"]["next_expiries"][0]["at"], at("10:24"));
    let text = text_of(&["stats"], &state);
    assert!(
        text.contains("longest sessions") && text.contains("due when the watermark gets there"),
        "{text}"
    );
}
