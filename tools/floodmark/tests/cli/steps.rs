//! A window over the results of another, through the command.

use serde_json::json;

use crate::support::Site;

const PIPELINE: &str = r#"name = "steps"
[source]
path = "input.jsonl"
time = { field = "t", format = "epoch_ms" }
[watermark]
delay = "0s"
[state]
directory = "state"
[[window]]
name = "first"
key = ["user", "page"]
type = "tumbling"
size = "5ms"
aggregates = [{ name = "views", function = "count" }]
output = { path = "out/first", time_format = "epoch_ms" }
[[window]]
name = "second"
input = "first"
key = ["page"]
type = "tumbling"
size = "10ms"
aggregates = [
  { name = "users", function = "count" },
  { name = "views", function = "sum", field = "views", type = "int" },
]
output = { path = "out/second", time_format = "epoch_ms" }
"#;

#[test]
fn a_second_window_adds_up_the_results_of_the_first() {
    let site = Site::in_memory(PIPELINE);
    let event =
        |time: i64, user: &str, page: &str| format!("{}\n", json!({"t": time, "user": user, "page": page}));
    let events =
        [(1, "u1", "p"), (2, "u1", "p"), (3, "u2", "p"), (7, "u1", "q"), (8, "u1", "p"), (30, "u1", "p")];
    let input: String = events.iter().map(|(time, user, page)| event(*time, user, page)).collect();
    site.write("input.jsonl", input.as_bytes());
    let (summary, outputs) = site.complete(&["--quiet"]);
    let row = |page: &str, start: i64, users: i64, views: i64| json!({"page": page, "window_start": start, "window_end": start + 10, "users": users, "views": views});
    assert_eq!(outputs.rows("second"), [row("p", 0, 3, 4), row("q", 0, 1, 1), row("p", 30, 1, 1)]);
    assert_eq!(summary["total"]["results"], json!({"first": 5, "second": 3}));
}

#[test]
fn a_step_without_its_input_is_refused_with_its_place() {
    let site = Site::in_memory(&PIPELINE.replace("input = \"first\"", "input = \"frist\""));
    site.write("input.jsonl", b"");
    site.run(&["--quiet"]).assert_refused(2, &["pipeline.toml:18:", "no window \"frist\"", "first"]);
}
