//! Results of Apache Flink and Apache Spark on real streams (`tests/data/golden/SOURCE.md`), got again through the
//! command.
//!
//! Rows that one event or one batch caused may come in any order there; here they are compared as sets between two
//! steps of the watermark. Everything else, the late events included, has to come in the same order.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde_json::Value as Json;

use crate::support::{Site, flights_sample, repository, unpacked};

/// Rows of the flights sample; longer streams need the full data beside the repository.
const SAMPLE_ROWS: usize = 60_000;

struct Case {
    name: String,
    folder: PathBuf,
    facts: Json,
}

impl Case {
    fn text(&self, name: &str) -> &str {
        self.facts[name].as_str().unwrap_or_else(|| panic!("{}: no {name}", self.name))
    }

    fn rows(&self, file: &str) -> Vec<Json> {
        let text = unpacked(&self.folder.join(file));
        let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
    }

    fn input_rows(&self) -> usize {
        usize::try_from(self.facts["input_rows"].as_u64().unwrap()).unwrap()
    }

    /// The first rows of its stream; `None` where the stream is not at hand.
    fn input(&self) -> Option<Vec<u8>> {
        let path = match self.text("stream") {
            "flights" if self.input_rows() <= SAMPLE_ROWS => flights_sample(),
            "flights" => repository().join("../shared/data/flights.jsonl.zst"),
            stream => repository().join(format!("tests/data/streams/{stream}.jsonl.zst")),
        };
        if !path.exists() {
            println!("{}: skipped: the stream is not at hand: {}", self.name, path.display());
            return None;
        }
        let text = unpacked(&path);
        let lines: Vec<&[u8]> = text.split_inclusive(|&byte| byte == b'\n').take(self.input_rows()).collect();
        assert_eq!(lines.len(), self.input_rows(), "{}: the stream is shorter than the case says", self.name);
        Some(lines.concat())
    }

    /// Spark advances its watermark between batches of so many lines, and closes nothing at the end.
    fn batch_rows(&self) -> Option<u64> {
        self.facts["batch_rows"].as_u64()
    }

    fn pipeline(&self) -> String {
        let (value, input) = (self.text("value_field"), self.value_type());
        let aggregate = |name: &str, function: &str| {
            format!(
                "  {{ name = {name:?}, function = {function:?}, field = {value:?}, type = {input:?} }},\n"
            )
        };
        let aggregates: String = [("count_value", "count"), ("sum", "sum"), ("min", "min"), ("max", "max")]
            .map(|(name, function)| aggregate(name, function))
            .concat();
        let batches = self
            .batch_rows()
            .map(|rows| format!("advance = \"batch\"\nbatch_records = {rows}\nclose_at_end = false\n"));
        format!(
            r#"name = "golden"
[source]
path = "input.jsonl"
time = {{ field = "{time}", format = "rfc3339" }}
[watermark]
delay = "{delay}ms"
{batches}[state]
directory = "state"
[checkpoint]
interval = "50ms"
[[window]]
name = "results"
key = ["{key}"]
{windows}{emission}aggregates = [
  {{ name = "count", function = "count" }},
{aggregates}]
output = {{ path = "out/results", time_format = "epoch_ms", metadata = true }}
[late]
path = "out/late"
"#,
            time = self.text("ts_field"),
            key = self.text("key_field"),
            delay = self.facts["delay_ms"],
            batches = batches.unwrap_or_default(),
            windows = self.windows(),
            emission = self.emission(),
        )
    }

    fn windows(&self) -> String {
        let window = &self.facts["window"];
        // Days of a zone away from UTC are given as a tumbling window of 24 hours and the zone.
        if let Some(zone) = self.facts["tz"].as_str().filter(|zone| *zone != "UTC") {
            return format!("type = \"calendar\"\nunit = \"day\"\nzone = {zone:?}\n");
        }
        let lengths: &[(&str, &str)] = match window["type"].as_str() {
            Some("tumbling") => &[("size", "size_ms"), ("offset", "offset_ms")],
            Some("sliding") => &[("size", "size_ms"), ("slide", "slide_ms"), ("offset", "offset_ms")],
            Some("cumulate") => &[("size", "max_size_ms"), ("step", "step_ms")],
            Some("session") => &[("gap", "gap_ms")],
            other => panic!("{}: unknown window {other:?}", self.name),
        };
        let kind = window["type"].as_str().map(|kind| kind.replace("cumulate", "cumulative"));
        let lengths = lengths.iter().map(|(key, fact)| format!("{key} = \"{}ms\"\n", window[fact]));
        format!("type = {:?}\n", kind.unwrap_or_default()) + &lengths.collect::<String>()
    }

    fn emission(&self) -> String {
        if self.batch_rows().is_some() {
            return format!("mode = {:?}\n", self.text("mode"));
        }
        let (trigger, accumulation) = match self.text("trigger").split_once(':') {
            Some(("count", count)) => (format!("{{ count = {count} }}"), "accumulating"),
            Some(("cont", millis)) => (format!("{{ early = \"{millis}ms\" }}"), "accumulating"),
            None if self.text("trigger") == "default" => ("\"watermark\"".to_owned(), "accumulating"),
            None if self.text("trigger") == "purge" => ("\"watermark\"".to_owned(), "discarding"),
            _ => panic!("{}: unknown trigger {}", self.name, self.text("trigger")),
        };
        let lateness = &self.facts["allowed_lateness_ms"];
        format!("allowed_lateness = \"{lateness}ms\"\ntrigger = {trigger}\naccumulation = {accumulation:?}\n")
    }

    /// Magnitudes are the only values with a fraction.
    fn value_type(&self) -> &'static str {
        if self.text("value_field") == "mag" { "float" } else { "int" }
    }
}

/// The cases of the repository, and those beside it where there are any.
fn cases() -> Vec<Case> {
    let mut cases = BTreeMap::new();
    for root in ["../shared/cases", "tests/data/golden"] {
        let entries = fs::read_dir(repository().join(root)).into_iter().flatten();
        for folder in
            entries.map(|entry| entry.unwrap().path()).filter(|path| path.join("case.json").exists())
        {
            let facts = serde_json::from_slice(&fs::read(folder.join("case.json")).unwrap()).unwrap();
            let name = folder.file_name().unwrap().to_string_lossy().into_owned();
            cases.insert(name.clone(), Case { name, folder, facts });
        }
    }
    cases.into_values().collect()
}

/// A result row as both engines can say it; the sum apart, since it may be a float.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    identity: String,
    numbers: Vec<Option<f64>>,
}

/// Rows between two steps of the watermark, which is exclusive here; `None` is the end of the input.
type Steps = Vec<(Option<i64>, Vec<Row>)>;

fn steps(rows: impl Iterator<Item = (Option<i64>, Row)>) -> Steps {
    let mut steps: Steps = Vec::new();
    for (watermark, row) in rows {
        match steps.last_mut() {
            Some((last, rows)) if *last == watermark => rows.push(row),
            _ => steps.push((watermark, vec![row])),
        }
    }
    for (_, rows) in &mut steps {
        // Two firings of one pane in one step: the earlier counts less, or each counts for itself.
        rows.sort_by(|a, b| a.identity.cmp(&b.identity).then(a.numbers.partial_cmp(&b.numbers).unwrap()));
    }
    steps
}

fn row(json: &Json, key: &str) -> Row {
    let identity = format!("{} {}..{}", json[key], json["window_start"], json["window_end"]);
    let numbers = ["count", "count_value", "sum", "min", "max"];
    Row { identity, numbers: numbers.map(|name| json[name].as_f64()).to_vec() }
}

fn close(expected: Option<f64>, found: Option<f64>) -> bool {
    match (expected, found) {
        (Some(expected), Some(found)) => (expected - found).abs() <= 1e-9 * expected.abs().max(1e-9),
        (expected, found) => expected == found,
    }
}

fn same(expected: &Row, found: &Row) -> bool {
    expected.identity == found.identity
        && expected.numbers.iter().zip(&found.numbers).all(|(expected, found)| close(*expected, *found))
}

fn compare_results(case: &Case, found: &[Json]) -> Result<usize, String> {
    let expected = case.rows("expected.jsonl.zst");
    // Flink counts the watermark inclusively; Spark starts at the epoch.
    let (less, start) = if case.batch_rows().is_some() { (0, Some(0)) } else { (1, None) };
    let expected =
        steps(expected.iter().map(|json| (json["wm"].as_i64().map(|wm| wm + less), row(json, "key"))));
    let key = case.text("key_field");
    let found = steps(found.iter().map(|json| (json["watermark"].as_i64().or(start), row(json, key))));
    let order: Vec<i64> = found.iter().filter_map(|(watermark, _)| *watermark).collect();
    if !order.is_sorted() {
        return Err("the watermark goes back".to_owned());
    }
    for ((wanted_at, wanted), (at, rows)) in expected.iter().zip(&found) {
        let equal = wanted.len() == rows.len() && wanted.iter().zip(rows).all(|(a, b)| same(a, b));
        if wanted_at != at || !equal {
            return Err(format!("expected at {wanted_at:?}: {wanted:?}\n  found at {at:?}: {rows:?}"));
        }
    }
    match expected.len() == found.len() {
        true => Ok(expected.iter().map(|(_, rows)| rows.len()).sum()),
        false => Err(format!("expected steps of the watermark: {}, found: {}", expected.len(), found.len())),
    }
}

/// A late event: its line, time and key, and with Spark the window that it was too late for.
type LateLine = (u64, i64, String, Option<(i64, i64)>);

fn compare_late(case: &Case, found: &[Json]) -> Result<usize, String> {
    // Engines without a late output only say how many there were.
    if !case.folder.join("late.jsonl.zst").exists() {
        return Ok(found.len());
    }
    let (key, by_window) = (case.text("key_field"), case.batch_rows().is_some());
    let time = |json: &Json| {
        let time: jiff::Timestamp = json.as_str().unwrap().parse().unwrap();
        time.as_millisecond()
    };
    let event = |json: &Json| -> LateLine {
        let key = match &json["record"][key] {
            Json::String(text) => text.clone(),
            other => other.to_string(),
        };
        let window = by_window.then(|| (time(&json["window_start"]), time(&json["window_end"])));
        (json["record_number"].as_u64().unwrap(), time(&json["event_time"]), key, window)
    };
    let wanted = |json: &Json| -> LateLine {
        let key = json["key"].as_str().unwrap().to_owned();
        let window = json["window_start"].as_i64().zip(json["window_end"].as_i64());
        (json["seq"].as_u64().unwrap() + 1, json["ts"].as_i64().unwrap(), key, window)
    };
    let expected: Vec<LateLine> = case.rows("late.jsonl.zst").iter().map(wanted).collect();
    let found: Vec<LateLine> = found.iter().map(event).collect();
    if let Some((expected, found)) = expected.iter().zip(&found).find(|(expected, found)| expected != found) {
        return Err(format!("expected late: {expected:?}, found: {found:?}"));
    }
    match expected.len() == found.len() {
        true => Ok(expected.len()),
        false => Err(format!("expected late events: {}, found: {}", expected.len(), found.len())),
    }
}

fn check(case: &Case, input: &[u8]) -> Result<String, String> {
    let site = Site::in_memory(&case.pipeline());
    site.write("input.jsonl", input);
    let (summary, outputs) = site.complete(&["--quiet"]);
    if summary["total"]["rejected"] != serde_json::json!({}) {
        return Err(format!("records were rejected: {}", summary["total"]["rejected"]));
    }
    let results = compare_results(case, &outputs.rows("results"))?;
    let late = compare_late(case, &outputs.rows("late"))?;
    let facts = |name: &str| case.facts[name].as_u64().unwrap() as usize;
    if (results, late) != (facts("emitted_rows"), facts("late_rows")) {
        return Err(format!("the case's own numbers differ: results={results} late={late}"));
    }
    Ok(format!("{results} results, {late} late"))
}

#[test]
fn every_case_gives_what_flink_or_spark_gave() {
    let mut outcomes = BTreeMap::new();
    for case in cases() {
        let Some(input) = case.input() else { continue };
        outcomes.insert(case.name.clone(), check(&case, &input));
    }
    assert!(outcomes.len() >= 28, "cases are missing: {:?}", outcomes.keys());
    for (name, outcome) in &outcomes {
        match outcome {
            Ok(what) => println!("{name}: {what}"),
            Err(problem) => println!("{name}: FAILED\n  {problem}"),
        }
    }
    let failed: Vec<&String> =
        outcomes.iter().filter(|(_, outcome)| outcome.is_err()).map(|(name, _)| name).collect();
    assert!(failed.is_empty(), "these cases differ: {failed:?}");
}

#[test]
fn the_comparison_sees_a_row_that_differs() {
    let one = Row { identity: "a 0..1".to_owned(), numbers: vec![Some(1.0), None, Some(0.1 + 0.2)] };
    let rounded = Row { numbers: vec![Some(1.0), None, Some(0.3)], ..one.clone() };
    let other = Row { numbers: vec![Some(1.0), Some(0.0), Some(0.3)], ..one.clone() };
    assert!(same(&one, &rounded));
    assert!(!same(&one, &other));
    assert!(!same(&one, &Row { identity: "a 1..2".to_owned(), ..one.clone() }));
}
