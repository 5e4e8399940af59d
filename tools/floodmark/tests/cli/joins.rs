//! Joins and deduplication as a user of the command meets them: the example, a kill at every fault point, inspection.

use std::fs;
use std::process::Command;

use floodmark::fault;
use serde_json::{Value as Json, json};

use crate::support::{Random, Site, repository};

#[test]
fn orders_find_their_payments_and_what_is_alone_comes_out_once() {
    let example = repository().join("examples/join");
    let text = fs::read_to_string(example.join("pipeline.toml")).unwrap();
    let text =
        text.replace("../../demo-output/join/state", "state").replace("../../demo-output/join/", "out/");
    let site = Site::new(&text);
    for name in ["orders.jsonl", "payments.csv"] {
        site.write(name, fs::read(example.join(name)).unwrap());
    }
    let (summary, outputs) = site.complete(&[]);
    assert_eq!(summary["total"]["duplicates"], json!({"orders": 1}));
    assert_eq!(summary["total"]["late"], json!({}));
    let mut pairs: Vec<(String, Json, Json)> = outputs
        .rows("paid")
        .into_iter()
        .map(|row| {
            (row["order"].as_str().unwrap().to_owned(), row["shop"].clone(), row["paid_cents"].clone())
        })
        .collect();
    pairs.sort_by_key(|(order, _, cents)| (order.clone(), cents.as_i64()));
    let row = |order: &str, shop: Json, cents: Json| (order.to_owned(), shop, cents);
    let expected = [
        row("1", json!("north"), json!(1990)),
        row("2", json!("south"), json!(500)),
        row("3", json!("north"), json!(5000)),
        row("3", json!("north"), json!(7000)),
        row("4", json!("west"), Json::Null),
        row("5", json!("south"), json!(6410)),
        row("6", json!("west"), Json::Null),
        row("7", json!("north"), json!(1100)),
        row("9", Json::Null, json!(100)),
    ];
    assert_eq!(pairs, expected);
    let orders: i64 = outputs.rows("ordered").iter().map(|row| row["orders"].as_i64().unwrap()).sum();
    assert_eq!(orders, 7);
    let (again, unchanged) = site.complete(&[]);
    assert_eq!((again["events"].as_u64(), &again["total"]), (Some(0), &summary["total"]));
    unchanged.assert_same_as(&outputs, "a second run has nothing to do");
}

const BUSY: &str = r#"name = "busy"
[[source]]
name = "orders"
path = "orders.jsonl"
time = { field = "t", format = "epoch_ms" }
dedup = { by = ["n"], within = "20s" }
[[source]]
name = "payments"
path = "payments.csv"
time = { field = "at", format = "epoch_ms" }
[watermark]
delay = "2s"
[state]
directory = "state"
[checkpoint]
interval = "1h"
bytes = "100KB"
[[join]]
name = "paid"
left = "orders"
right = "payments"
key = ["k"]
within = { from = "-1s", to = "4s" }
kind = "full"
select = { left = [{ field = "n", type = "int" }], right = [{ field = "amount", type = "decimal(2)" }] }
output = { path = "out/paid", format = "csv", time_format = "epoch_ms" }
[[join]]
name = "both"
left = "payments"
right = "orders"
key = ["k"]
within = { from = "0s", to = "500ms" }
output = { path = "out/both" }
[[window]]
name = "orders"
source = "orders"
type = "tumbling"
size = "10s"
aggregates = [{ name = "rows", function = "count" }]
output = { path = "out/orders" }
[late]
path = "out/late"
"#;

/// Orders, some of them twice and some far too late, and payments.
fn busy() -> Site {
    let site = Site::in_memory(BUSY);
    let mut random = Random::seeded("joins");
    let mut orders = String::new();
    for n in 0..6_000_i64 {
        let late = if random.next().is_multiple_of(200) { 60_000 } else { 0 };
        let time = n * 50 - (random.next() % 3_000) as i64 - late;
        let line =
            format!("{{\"t\":{time},\"n\":{n},\"k\":\"k{}\",\"padding\":\"{}\"}}\n", n % 97, "x".repeat(40));
        orders.push_str(&line);
        if random.next().is_multiple_of(10) {
            orders.push_str(&line);
        }
    }
    site.write("orders.jsonl", orders);
    let line = |n: i64| {
        let time = n * 50 - (random.next() % 2_500) as i64;
        format!("{time},k{},{}.{:02},{}\n", random.next() % 120, n % 50, n % 100, "x".repeat(40))
    };
    let rows: String = (0..6_000).map(line).collect();
    site.write("payments.csv", format!("at,k,amount,padding\n{rows}"));
    site
}

fn inspect(site: &Site, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodmark"));
    let output = command.arg("inspect").args(arguments).arg(site.path("state")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn joins_go_on_after_a_kill_as_if_nothing_had_been_and_can_be_looked_at() {
    let site = busy();
    let (summary, straight) = site.complete(&[]);
    let total = &summary["total"];
    assert!(total["duplicates"]["orders"].as_u64().unwrap() > 300, "{total}");
    assert!(total["late"]["paid"].as_u64().unwrap() > 0, "{total}");
    assert!(straight.bytes("paid") > 0 && straight.bytes("both") > 0 && straight.bytes("late") > 0);
    for point in fault::POINTS {
        site.reset();
        // The first checkpoint is looked into: a later one may be the last, which holds nothing live.
        let pass = if *point == "evict.after" { 1 } else { 2 };
        let ended = site.run_with_fault(&format!("{point}:kill:{pass}"));
        assert!(ended.signal.is_some(), "{point} is not passed {pass} times: {}", ended.stderr);
        if *point == "evict.after" {
            look_into(&site);
        }
        let (again, outputs) = site.complete(&[]);
        assert_eq!(again["total"], *total, "{point}");
        outputs.assert_same_as(&straight, point);
    }
}

/// A checkpoint with live events of joins and live ids shows them.
fn look_into(site: &Site) {
    inspect(site, &["list"]);
    let shown = inspect(site, &["show"]);
    assert!(shown.contains("full join of orders with payments from -1s to 4s after it, by k"), "{shown}");
    assert!(shown.contains("first of each n within 20s of the watermark"), "{shown}");
    let verified = inspect(site, &["verify", "--all"]);
    assert!(verified.contains("paid") && verified.contains("dedup-orders"), "{verified}");
    let windows: Json = serde_json::from_str(&inspect(site, &["windows", "--json"])).unwrap();
    let events = windows["events"].as_array().unwrap();
    let names: Vec<&str> = events.iter().map(|held| held["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["paid", "both", "dedup-orders"]);
    assert!(events.iter().all(|held| held["live"].as_u64().unwrap() > 0), "{windows}");
    assert!(inspect(site, &["windows"]).contains("join paid"));
}
