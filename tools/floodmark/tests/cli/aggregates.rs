//! Every kind of aggregate over real earthquakes, through the command, against values that are computed here.

use std::collections::{BTreeMap, BTreeSet};

use rustix::process::Signal;
use serde_json::Value as Json;

use crate::support::{Site, repository, unpacked};

const PIPELINE: &str = r#"name = "quakes"

[source]
path = "quakes.jsonl"
time = { field = "time", format = "rfc3339" }

[watermark]
delay = "60d"

[state]
directory = "state"

[checkpoint]
bytes = 200000

[[window]]
name = "daily"
key = ["net"]
type = "tumbling"
size = "1d"
aggregates = [
  { name = "quakes", function = "count" },
  { name = "mag_sum", function = "sum", field = "mag", type = "decimal(2)" },
  { name = "mag_avg", function = "avg", field = "mag", type = "decimal(2)" },
  { name = "mag_max", function = "max", field = "mag", type = "decimal(2)" },
  { name = "mag_first", function = "first", field = "mag", type = "decimal(2)" },
  { name = "mag_last", function = "last", field = "mag", type = "decimal(2)" },
  { name = "mags", function = "collect", field = "mag", type = "decimal(2)", limit = 5 },
  { name = "depth_var", function = "variance", field = "depth", type = "decimal(3)" },
  { name = "depth_median", function = "median", field = "depth", type = "decimal(3)" },
  { name = "depth_p90", function = "quantile", field = "depth", type = "decimal(3)", q = 0.9 },
  { name = "types", function = "distinct", field = "magType", type = "string" },
  { name = "places", function = "distinct", field = "place", type = "string", limit = 20 },
  { name = "ids", function = "approx_distinct", field = "id", type = "string" },
  { name = "top", function = "top_k", field = "magType", type = "string", k = 2 },
  { name = "place_min", function = "min", field = "place", type = "string" },
  { name = "nst_stddev", function = "stddev_pop", field = "nst", type = "int" },
]
output = { path = "out/daily" }

[late]
path = "out/late"

[dead_letter]
path = "out/rejected"
"#;

struct Quake {
    time: String,
    record: usize,
    /// Hundredths.
    mag: i128,
    depth: f64,
    kind: String,
    place: String,
    nst: Option<f64>,
}

fn text(row: &Json, field: &str) -> String {
    row[field].as_str().unwrap().to_owned()
}

/// The quakes by day and network.
fn quakes(lines: &[u8]) -> BTreeMap<(String, String), Vec<Quake>> {
    let mut panes: BTreeMap<_, Vec<Quake>> = BTreeMap::new();
    let lines = lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    for (record, line) in lines.enumerate() {
        let row: Json = serde_json::from_slice(line).unwrap();
        let time = text(&row, "time");
        let quake = Quake {
            record,
            mag: (row["mag"].as_f64().unwrap() * 100.0).round() as i128,
            depth: row["depth"].as_f64().unwrap(),
            kind: text(&row, "magType"),
            place: text(&row, "place"),
            nst: row["nst"].as_f64(),
            time: time.clone(),
        };
        let day = time.split('T').next().unwrap().to_owned();
        panes.entry((format!("{day}T00:00:00Z"), text(&row, "net"))).or_default().push(quake);
    }
    panes
}

fn decimal(unscaled: i128, scale: usize) -> String {
    let digits = format!("{:0>width$}", unscaled.abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    format!("{}{whole}.{fraction}", if unscaled < 0 { "-" } else { "" })
}

/// Half to even, by trying both neighbours.
fn rounded_average(sum: i128, count: i128) -> i128 {
    let low = (sum * 10_000).div_euclid(count);
    let twice = 2 * (sum * 10_000 - low * count);
    if twice > count || (twice == count && low % 2 != 0) { low + 1 } else { low }
}

fn near(found: &Json, expected: f64, relative: f64) -> bool {
    found.as_f64().is_some_and(|found| (found - expected).abs() <= expected.abs() * relative + 1e-12)
}

fn variance(values: &[f64], less: f64) -> Option<f64> {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let distances: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (n > less).then(|| distances / (n - less))
}

fn check(line: &str, row: &Json, quakes: &mut [Quake]) {
    let n = quakes.len();
    quakes.sort_by(|a, b| (&a.time, a.record).cmp(&(&b.time, b.record)));
    let told = |name: &str| {
        // Decimals are compared as they are written.
        let rest = line.split(&format!("\"{name}\":")).nth(1).unwrap();
        let end =
            if rest.starts_with('[') { rest.find(']').unwrap() + 1 } else { rest.find([',', '}']).unwrap() };
        rest[..end].to_owned()
    };
    let mags: Vec<i128> = quakes.iter().map(|quake| quake.mag).collect();
    let sum: i128 = mags.iter().sum();
    assert_eq!(row["quakes"], n, "{line}");
    assert_eq!(told("mag_sum"), decimal(sum, 2));
    assert_eq!(told("mag_avg"), decimal(rounded_average(sum, n as i128), 6));
    assert_eq!(told("mag_max"), decimal(*mags.iter().max().unwrap(), 2));
    assert_eq!(told("mag_first"), decimal(mags[0], 2));
    assert_eq!(told("mag_last"), decimal(mags[n - 1], 2));
    let list: Vec<String> = mags.iter().take(5).map(|&mag| decimal(mag, 2)).collect();
    assert_eq!(told("mags"), format!("[{}]", list.join(",")));

    let mut depths: Vec<f64> = quakes.iter().map(|quake| quake.depth).collect();
    match variance(&depths, 1.0) {
        Some(expected) => assert!(near(&row["depth_var"], expected, 1e-9), "{line} {expected}"),
        None => assert!(row["depth_var"].is_null(), "{line}"),
    }
    depths.sort_by(f64::total_cmp);
    for (name, rank) in [("depth_median", (n - 1) / 2), ("depth_p90", (n - 1) * 9 / 10)] {
        assert!(near(&row[name], depths[rank], 0.0101), "{name} {line} {}", depths[rank]);
    }

    let distinct = |field: fn(&Quake) -> &String| quakes.iter().map(field).collect::<BTreeSet<_>>();
    assert_eq!(row["types"], distinct(|quake| &quake.kind).len(), "{line}");
    let places = distinct(|quake| &quake.place);
    match places.len() {
        count if count <= 20 => assert_eq!(row["places"], count, "{line}"),
        _ => assert!(row["places"].is_null(), "{line}"),
    }
    assert_eq!(row["place_min"], **places.first().unwrap(), "{line}");
    // Identifiers are unique, and so few are counted exactly.
    assert_eq!(row["ids"], n, "{line}");
    let mut counts: BTreeMap<&str, i64> = BTreeMap::new();
    quakes.iter().for_each(|quake| *counts.entry(&quake.kind).or_default() += 1);
    let mut top: Vec<_> = counts.into_iter().map(|(kind, count)| (-count, kind)).collect();
    top.sort_unstable();
    let top: Vec<Json> =
        top.iter().take(2).map(|(count, kind)| serde_json::json!({"value": kind, "count": -count})).collect();
    assert_eq!(row["top"], Json::Array(top), "{line}");

    let nst: Vec<f64> = quakes.iter().filter_map(|quake| quake.nst).collect();
    match variance(&nst, 0.0) {
        Some(expected) => assert!(near(&row["nst_stddev"], expected.sqrt(), 1e-9), "{line} {expected}"),
        None => assert!(row["nst_stddev"].is_null(), "{line}"),
    }
}

#[test]
fn every_kind_of_aggregate_has_the_values_that_are_computed_by_hand() {
    let site = Site::new(PIPELINE);
    let lines = unpacked(&repository().join("tests/data/streams/quakes.jsonl.zst"));
    site.write("quakes.jsonl", &lines);
    let (_, outputs) = site.complete(&[]);
    assert!(outputs.rows("late").is_empty() && outputs.rows("rejected").is_empty());
    let mut expected = quakes(&lines);
    let rows = outputs.lines("daily");
    assert_eq!(rows.len(), expected.len());
    for line in rows {
        let row: Json = serde_json::from_str(&line).unwrap();
        let pane = (text(&row, "window_start"), text(&row, "net"));
        let mut quakes = expected.remove(&pane).unwrap_or_else(|| panic!("no such pane: {line}"));
        check(&line, &row, &mut quakes);
    }
    assert!(expected.is_empty());
}

#[test]
fn states_of_every_kind_survive_a_kill_at_a_checkpoint() {
    let site = Site::in_memory(PIPELINE);
    let lines = unpacked(&repository().join("tests/data/streams/quakes.jsonl.zst"));
    site.write("quakes.jsonl", &lines);
    let (_, straight) = site.complete(&[]);
    site.reset();
    // Killed after its first checkpoint, it goes on from there: no window has closed, all state comes from it.
    let killed = site.run_with_fault("evict.after:kill:1");
    assert_eq!(killed.signal, Some(Signal::KILL.as_raw()), "{}", killed.stderr);
    assert_eq!(site.epochs(), [1]);
    assert!(site.outputs().rows("daily").is_empty());
    let (_, resumed) = site.complete(&[]);
    resumed.assert_same_as(&straight, "after a kill");
}

#[test]
fn a_sum_over_text_is_refused_before_any_input_is_read() {
    let wrong =
        PIPELINE.replace("function = \"min\", field = \"place\"", "function = \"sum\", field = \"place\"");
    assert_ne!(wrong, PIPELINE);
    let site = Site::new(&wrong);
    let ended = site.run(&[]);
    assert_ne!(ended.code, Some(0));
    for word in ["pipeline.toml:36:", "sum of `place` needs numbers, and its type is string", "remedy: "] {
        assert!(ended.stderr.contains(word), "standard error does not say {word:?}:\n{}", ended.stderr);
    }
    assert!(!site.path("state").exists());
}
