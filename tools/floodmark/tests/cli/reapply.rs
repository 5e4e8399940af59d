//! Late events worked into finished results: as if they had never been late.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use serde_json::{Value as Json, json};

use crate::support::{Ended, Site, repository, unpacked};

pub(crate) fn pipeline(delay: &str, window: &str) -> String {
    format!(
        r#"name = "reapply"
[source]
path = "quakes.jsonl"
time = {{ field = "time", format = "rfc3339" }}
[watermark]
delay = "{delay}"
[state]
directory = "state"
[checkpoint]
bytes = 100000
[[window]]
name = "daily"
key = ["net"]
{window}
aggregates = [
  {{ name = "quakes", function = "count" }},
  {{ name = "with_nst", function = "count", field = "nst" }},
  {{ name = "mag_sum", function = "sum", field = "mag", type = "decimal(2)" }},
  {{ name = "depth_sum", function = "sum", field = "depth", type = "float" }},
  {{ name = "nst_max", function = "max", field = "nst", type = "int" }},
  {{ name = "mag_min", function = "min", field = "mag", type = "decimal(2)" }},
  {{ name = "place_max", function = "max", field = "place", type = "string" }},
]
output = {{ path = "out/daily" }}
[late]
path = "out/late"
"#
    )
}

pub(crate) fn quakes(pipeline: &str) -> Site {
    let site = Site::in_memory(pipeline);
    site.write("quakes.jsonl", unpacked(&repository().join("tests/data/streams/quakes.jsonl.zst")));
    site
}

fn reapply(site: &Site, results: &str, to: &str) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodmark"));
    command.arg("reapply").arg(site.path("pipeline.toml")).args(["--window", "daily", "--json"]);
    for (option, path) in [("--late", "out/late"), ("--results", results), ("--to", to)] {
        command.arg(option).arg(site.path(path));
    }
    Ended::of(command.output().unwrap())
}

/// The last row of each pane, without what tells how it came about.
pub(crate) fn panes(rows: Vec<Json>) -> BTreeMap<String, Json> {
    let mut panes = BTreeMap::new();
    for mut row in rows {
        let fields = row.as_object_mut().unwrap();
        ["pane", "pane_index", "watermark"].iter().for_each(|name| drop(fields.remove(*name)));
        let pane = format!("{} {} {}", row["net"], row["window_start"], row["window_end"]);
        panes.insert(pane, row);
    }
    panes
}

pub(crate) fn assert_same(found: &BTreeMap<String, Json>, expected: &BTreeMap<String, Json>) {
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (pane, expected) in expected {
        let mut found = found[pane].clone();
        let (a, b) = (found["depth_sum"].as_f64().unwrap(), expected["depth_sum"].as_f64().unwrap());
        assert!((a - b).abs() <= 1e-12 * b.abs(), "{pane}: {a} {b}");
        found["depth_sum"] = expected["depth_sum"].clone();
        assert_eq!(&found, expected);
    }
}

/// Every kind of window that takes it: late results, corrected, are those of a run in which nothing was late.
#[test]
fn corrected_results_are_those_of_a_run_without_late_events() {
    let windows = [
        "type = \"tumbling\"\nsize = \"1d\"",
        "type = \"tumbling\"\nsize = \"6h\"\nallowed_lateness = \"1d\"",
        "type = \"tumbling\"\nsize = \"1d\"\nmode = \"update\"",
        "type = \"calendar\"\nunit = \"week\"\nzone = \"America/Los_Angeles\"",
    ];
    for window in windows {
        let unhurried = quakes(&pipeline("90d", window));
        let (_, expected) = unhurried.complete(&["--quiet"]);
        assert!(expected.rows("late").is_empty());
        let site = quakes(&pipeline("1h", window));
        let (summary, outputs) = site.complete(&["--quiet"]);
        assert!(summary["total"]["late"]["daily"].as_u64().unwrap() > 1_000, "{window}: {summary}");
        let done = reapply(&site, "out/daily", "corrected").summary();
        let rows = corrected(&site, "corrected");
        assert_same(&panes(rows.clone()), &panes(expected.rows("daily")));
        assert_eq!(done["rows"].as_u64().unwrap() as usize, rows.len());
        assert_eq!(done["late_records"], summary["total"]["late"]["daily"]);
        assert_eq!(site.outputs(), outputs, "{window}: nothing is changed in place");
    }
}

fn corrected(site: &Site, directory: &str) -> Vec<Json> {
    let mut names: Vec<_> =
        fs::read_dir(site.path(directory)).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    names.sort();
    let text: String = names.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// By Spark's rule each line of the late output is about one window of the event.
#[test]
fn late_lines_by_batches_are_applied_to_their_own_window_only() {
    let window = "type = \"sliding\"\nsize = \"2d\"\nslide = \"1d\"";
    let batches = |delay: &str| {
        pipeline(delay, window).replace("[state]", "advance = \"batch\"\nbatch_records = 300\n[state]")
    };
    let (_, expected) = quakes(&batches("90d")).complete(&["--quiet"]);
    let site = quakes(&batches("6h"));
    let (summary, _) = site.complete(&["--quiet"]);
    assert!(summary["total"]["late"]["daily"].as_u64().unwrap() > 1_000, "{summary}");
    reapply(&site, "out/daily", "corrected").summary();
    assert_same(&panes(corrected(&site, "corrected")), &panes(expected.rows("daily")));
}

#[test]
fn a_late_part_is_never_applied_twice_and_new_ones_are() {
    let site = quakes(&pipeline("1h", "type = \"tumbling\"\nsize = \"1d\""));
    // Without haste, so that checkpoints are taken, and with them parts made, on a busy machine too.
    site.complete(&["--quiet", "--rate", "5000"]);
    let mut parts: Vec<_> = fs::read_dir(site.path("out/late"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some())
        .collect();
    parts.sort();
    assert!(parts.len() > 2, "{parts:?}");
    let all = reapply(&site, "out/daily", "at_once").summary();
    assert_eq!(all["parts_applied"].as_array().unwrap().len(), parts.len());

    // The last part comes later.
    let last = parts.pop().unwrap();
    let aside = site.path("aside");
    fs::rename(&last, &aside).unwrap();
    reapply(&site, "out/daily", "first").summary();
    reapply(&site, "first", "again").assert_refused(2, &["applied to these results before"]);
    assert!(!site.path("again").exists());
    // Under another name it is still the same part.
    fs::copy(&parts[0], site.path("out/late/part-0000009998.jsonl")).unwrap();
    fs::rename(&aside, site.path("out/late/part-0000009999.jsonl")).unwrap();
    let second = reapply(&site, "first", "second").summary();
    assert_eq!(second["parts_applied"], json!(["part-0000009999.jsonl"]));
    assert_same(&panes(corrected(&site, "second")), &panes(corrected(&site, "at_once")));
}

#[test]
fn a_target_that_exists_or_was_left_half_written_is_refused() {
    let site = quakes(&pipeline("1h", "type = \"tumbling\"\nsize = \"1d\""));
    site.complete(&["--quiet"]);
    reapply(&site, "out/daily", "out/daily").assert_refused(2, &["the target exists"]);
    fs::create_dir(site.path(".new.reapply")).unwrap();
    reapply(&site, "out/daily", "new").assert_refused(2, &["an earlier run was interrupted", ".new.reapply"]);
    // Rows of something else.
    reapply(&site, "out/late", "other")
        .assert_refused(2, &["part-", "the columns are not those of window daily"]);
    assert!(!site.path("other").exists());
}

#[test]
fn what_cannot_be_merged_is_refused_by_name_before_anything_is_read() {
    let tumbling = pipeline("1h", "type = \"tumbling\"\nsize = \"1d\"");
    let session = pipeline("1h", "type = \"session\"\ngap = \"1h\"");
    let discarding = tumbling.replace("aggregates =", "accumulation = \"discarding\"\naggregates =");
    let count = tumbling.replace("aggregates =", "trigger = { count = 5 }\naggregates =");
    let average = tumbling
        .replace("{ name = \"mag_min\", function = \"min\"", "{ name = \"mag_avg\", function = \"avg\"");
    let csv = tumbling.replace("path = \"out/daily\"", "path = \"out/daily\", format = \"csv\"");
    let header = tumbling.replace("path = \"quakes.jsonl\"", "path = \"quakes.csv\"");
    for (text, words) in [
        (session, "bounds of a session"),
        (discarding, "rows add up"),
        (count, "unfinished count"),
        (average, "a finished avg does not say what it was made of"),
        (csv, "JSON lines"),
        (header, "their header named"),
        (tumbling.replace("\"daily\"", "\"dayly\""), "no such window in the pipeline file: window=daily"),
    ] {
        // None of the directories exists.
        reapply(&Site::new(&text), "out/daily", "new").assert_refused(2, &[words]);
    }
}

/// Late records of several sources, one of them CSV without a header, go to the source that their file belongs to.
#[test]
fn late_records_are_read_as_their_source_is() {
    let pipeline = r#"name = "two"
[[source]]
name = "orders"
path = "orders-*.jsonl"
time = { field = "at", format = "epoch_ms" }
[[source]]
name = "payments"
path = "payments.csv"
csv = { header = false, columns = ["at", "shop", "cents"] }
time = { field = "at", format = "epoch_ms" }
[watermark]
delay = "0s"
policy = "max"
[state]
directory = "state"
[[window]]
name = "daily"
key = ["shop"]
type = "tumbling"
size = "1s"
aggregates = [{ name = "cents", function = "sum", field = "cents", type = "int" }]
output = { path = "out/daily", metadata = true }
[late]
path = "out/late"
"#;
    let site = Site::new(pipeline);
    site.write("orders-1.jsonl", "{\"at\":10,\"shop\":\"a,b\",\"cents\":1}\n{\"at\":5000,\"shop\":\"c\",\"cents\":2}\n{\"at\":20,\"shop\":\"a,b\",\"cents\":4}\n");
    site.write("payments.csv", "6000,c,8\n30,\"a,b\",16\n40,\"d\"\"e\",32\n");
    let (summary, _) = site.complete(&["--quiet"]);
    assert_eq!(summary["total"]["late"]["daily"], 3, "{summary}");
    let done = reapply(&site, "out/daily", "new").summary();
    assert_eq!((&done["corrected"], &done["added"]), (&json!(1), &json!(1)), "{done}");
    assert_eq!(
        done["changes"][0]["values"],
        json!([["cents", 1, 21]]),
        "orders and payments of the shop are in its row: {done}"
    );
    let rows = corrected(&site, "new");
    let shop = |name: &str| rows.iter().find(|row| row["shop"] == name).unwrap().clone();
    let row = shop("a,b");
    assert_eq!((&row["cents"], &row["pane"], &row["pane_index"]), (&json!(21), &json!("late"), &json!(1)));
    assert_eq!((&shop("d\"e")["cents"], &shop("d\"e")["pane_index"]), (&json!(32), &json!(0)));
}

#[test]
fn a_late_line_that_cannot_be_read_is_named_and_nothing_is_written() {
    let site = quakes(&pipeline("1h", "type = \"tumbling\"\nsize = \"1d\""));
    site.complete(&["--quiet"]);
    let bad = "{\"operator\":\"daily\",\"source\":\"quakes.jsonl\",\"window_start\":0,\"window_end\":1,\
               \"record\":{\"time\":\"soon\",\"net\":\"x\"}}\n";
    site.write("out/late/part-0000009999.jsonl", bad);
    let words = ["part-0000009999.jsonl:1", "the record cannot be used: unparsable_timestamp"];
    reapply(&site, "out/daily", "new").assert_refused(2, &words);
    assert!(!site.path("new").exists() && !site.path(".new.reapply").exists());
}
