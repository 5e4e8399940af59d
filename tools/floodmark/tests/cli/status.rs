//! The status page of a run, asked over HTTP while it goes on: snapshots, metrics, warnings, and why a window is open.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value as Json, json};

use crate::support::{Running, Site, repository, wait_until};

/// A key that nothing but the panes may show.
const KEY: &str = "very-private";

/// Counts per page and minute of standard input, and what may be said of it.
fn live(tables: &str) -> String {
    format!(
        r#"name = "live"
source = {{ path = "-", format = "jsonl", time = {{ field = "t", format = "epoch_ms" }} }}
state = {{ directory = "state" }}
checkpoint = {{ interval = "100ms" }}
watermark = {{ delay = "10s" }}
dead_letter = {{ path = "out/rejected" }}
{tables}
[[window]]
name = "minutes"
key = ["page"]
type = "tumbling"
size = "1m"
aggregates = [{{ name = "rows", function = "count" }}]
output = {{ path = "out/minutes" }}
"#
    )
}

/// A run with a status page, and what it says.
struct Watched {
    site: Site,
    running: Running,
    input: Option<ChildStdin>,
    address: String,
    log: Arc<Mutex<String>>,
    reader: std::thread::JoinHandle<()>,
}

impl Watched {
    fn start(pipeline: &str, arguments: &[&str]) -> Self {
        let site = Site::new(pipeline);
        let mut command = site.command(&[["--status", "0"].as_slice(), arguments].concat());
        command.stdin(Stdio::piped());
        let mut running = Running::start(command);
        let input = running.child().stdin.take();
        let stderr = running.child().stderr.take().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&log);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines() {
                let mut kept = kept.lock().unwrap();
                kept.push_str(&line.unwrap());
                kept.push('\n');
            }
        });
        let mut address = None;
        wait_until("the status page is there", || {
            let log = log.lock().unwrap();
            let at = log.split("status page at http://").nth(1);
            address = at.and_then(|rest| rest.split('/').next()).map(str::to_owned);
            address.is_some()
        });
        Self { site, running, input, address: address.unwrap(), log, reader }
    }

    fn event(&mut self, page: &str, time: i64) {
        self.line(&format!("{{\"page\":\"{page}\",\"t\":{time}}}"));
    }

    fn line(&mut self, line: &str) {
        self.input.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn ask(&self, path: &str) -> Answer {
        ask(&self.address, "GET", path, &[])
    }

    fn json(&self, path: &str) -> Json {
        let answer = self.ask(path);
        assert_eq!(answer.code, 200, "{path}: {}", answer.body);
        serde_json::from_str(&answer.body).unwrap()
    }

    /// The status, once it `holds`.
    fn status_when(&self, what: &str, holds: impl Fn(&Json) -> bool) -> Json {
        let mut status = Json::Null;
        wait_until(what, || {
            status = self.json("/api/v1/status");
            holds(&status)
        });
        status
    }

    /// Ends the input, and returns the summary and the log.
    fn finish(mut self) -> (Json, String) {
        drop(self.input.take());
        let mut ended = self.running.wait();
        self.reader.join().unwrap();
        ended.stderr = self.log.lock().unwrap().clone();
        drop(self.site);
        (ended.summary(), ended.stderr)
    }
}

struct Answer {
    code: u16,
    headers: String,
    body: String,
}

/// One request, one answer.
fn ask(address: &str, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut connection = TcpStream::connect(address).unwrap();
    let host = if headers.iter().any(|(name, _)| *name == "Host") { "" } else { "Host: localhost\r\n" };
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let request = format!("{method} {path} HTTP/1.1\r\n{host}{headers}Connection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    connection.read_to_string(&mut text).unwrap();
    let (headers, body) = text.split_once("\r\n\r\n").unwrap();
    let code = headers.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { code, headers: headers.to_lowercase(), body: body.to_owned() }
}

/// The value of a metric without further labels.
fn metric(text: &str, name: &str) -> Option<f64> {
    let start = format!("{name}{{pipeline=\"live\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&start)?.parse().ok())
}

#[test]
fn a_run_shows_how_it_stands_and_why_a_window_is_open() {
    let mut run = Watched::start(&live(""), &[]);
    run.event(KEY, 5_000);
    run.event(KEY, 75_000);
    run.line("no json");
    // Late: its minute has closed.
    run.event(KEY, 6_000);
    let status = run.status_when("the late event was seen", |status| status["operators"][0]["late"] == 1);
    assert_eq!(status["run"]["phase"], "running");
    assert_eq!(status["watermark"]["combined"], json!({"text": "1970-01-01T00:01:05Z", "ms": 65_000}));
    assert_eq!(status["watermark"]["event_lag_ms"], 10_000);
    assert_eq!(status["watermark"]["holder"]["partition"], "-");
    assert_eq!(status["watermark"]["holder"]["holds_back"], true);
    let partition = &status["partitions"][0];
    assert_eq!((&partition["state"], &partition["records"]), (&json!("active"), &json!(4)));
    assert_eq!((&partition["late"], &partition["rejected"]), (&json!(1), &json!(1)));
    let operator = &status["operators"][0];
    assert_eq!(
        (&operator["open_panes"], &operator["rows"], &operator["fired"]),
        (&json!(1), &json!(1), &json!(1))
    );
    assert_eq!(operator["next_end"]["ms"], 120_000);
    assert_eq!(status["input"]["total"]["events"], 3);
    assert_eq!(status["input"]["total"]["rejected"], json!({"broken_record": 1}));
    run.status_when("a checkpoint holds everything", |status| {
        status["checkpoints"]["count"].as_u64() > Some(0) && status["checkpoints"]["unsaved_ms"] == 0
    });

    let why = run.json("/api/v1/why?operator=minutes&window=1970-01-01T00:01:00Z");
    assert_eq!((&why["state"], &why["missing_ms"]), (&json!("open"), &json!(55_000)), "{why}");
    let answer = why["answer"].as_str().unwrap();
    assert!(answer.contains("55 s short of its end. Partition - of source source holds it back"), "{answer}");
    assert!(answer.contains("an event of 1970-01-01T00:02:10Z or later in partition -"), "{answer}");
    assert_eq!(run.json("/api/v1/why?window=0")["state"], "closed");
    assert_eq!(run.json("/api/v1/why")["end"]["ms"], 120_000, "the next one to close");
    let refused = run.ask("/api/v1/why?window=61000");
    assert_eq!(refused.code, 400);
    assert!(refused.body.contains("the window that starts at 1970-01-01T00:01:00Z"), "{}", refused.body);

    let history = run.json("/api/v1/history");
    assert!(!history["at_ms"].as_array().unwrap().is_empty(), "{history}");
    assert_eq!(history["partitions"][0]["name"], "-");
    assert!(!history["checkpoints"].as_array().unwrap().is_empty(), "{history}");
    assert_eq!(run.ask("/healthz").code, 200);
    let (summary, _) = run.finish();
    assert_eq!(summary["total"]["results"], json!({"minutes": 2}));
}

#[test]
fn metrics_come_in_both_formats_and_count_what_the_run_did() {
    let mut run = Watched::start(&live(""), &[]);
    run.event(KEY, 5_000);
    run.event(KEY, 75_000);
    run.status_when("both were read", |status| status["input"]["total"]["events"] == 2);
    let text = run.ask("/metrics");
    assert!(text.headers.contains("content-type: text/plain; version=0.0.4"), "{}", text.headers);
    assert_eq!(metric(&text.body, "floodmark_input_events_total"), Some(2.0));
    assert_eq!(metric(&text.body, "floodmark_watermark_timestamp_seconds"), Some(65.0));
    assert_eq!(metric(&text.body, "floodmark_watermark_event_lag_seconds"), Some(10.0));
    let accept = [("Accept", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")];
    let open = ask(&run.address, "GET", "/metrics", &accept);
    assert!(
        open.headers.contains("content-type: application/openmetrics-text; version=1.0.0"),
        "{}",
        open.headers
    );
    assert!(open.body.ends_with("# EOF\n"));
    run.finish();
}

#[test]
fn nothing_shows_a_key_unless_it_is_asked_for() {
    let mut run = Watched::start(&live(""), &[]);
    run.event(KEY, 5_000);
    run.event(KEY, 75_000);
    run.status_when("both were read", |status| status["input"]["total"]["events"] == 2);
    let paths = ["/", "/metrics", "/api/v1/status", "/api/v1/history", "/api/v1/warnings", "/api/v1/why"];
    for path in paths {
        let answer = run.ask(path);
        assert_eq!(answer.code, 200, "{path}");
        assert!(!answer.body.contains(KEY), "{path} shows a key: {}", answer.body);
    }
    for path in ["/api/v1/panes?key=very-private", "/api/v1/why?key=very-private"] {
        let refused = run.ask(path);
        assert_eq!(refused.code, 403, "{path}: {}", refused.body);
        assert!(refused.body.contains("--status-keys"), "{}", refused.body);
    }
    run.finish();
}

#[test]
fn the_panes_of_a_key_are_those_of_the_running_task() {
    let mut run = Watched::start(&live(""), &["--status-keys"]);
    run.event(KEY, 5_000);
    run.event(KEY, 75_000);
    run.event(KEY, 76_000);
    run.event("other", 77_000);
    run.status_when("all were read", |status| status["input"]["total"]["events"] == 4);
    let panes = run.json("/api/v1/panes?operator=minutes&key=very-private");
    assert_eq!(panes["key"], json!([KEY]));
    assert_eq!(panes["panes"].as_array().unwrap().len(), 1, "the first minute has closed: {panes}");
    let pane = &panes["panes"][0];
    assert_eq!((&pane["start"]["ms"], &pane["events"]), (&json!(60_000), &json!(2)));
    assert_eq!(pane["aggregates"], json!({"rows": 2}));
    assert_eq!(run.json("/api/v1/panes?key=nobody")["panes"], json!([]));
    let why = run.json("/api/v1/why?key=nobody&window=60000");
    assert!(why["answer"].as_str().unwrap().contains("No event of this key is in it"), "{why}");
    assert_eq!(run.ask("/api/v1/panes").code, 400);
    assert_eq!(run.ask("/api/v1/panes?operator=hours&key=a").code, 404);
    run.finish();
}

#[test]
fn a_stall_is_told_once_in_log_metrics_and_rest_and_taken_back_once() {
    let mut run = Watched::start(&live("watch = { stalled = \"300ms\" }"), &[]);
    run.event(KEY, 5_000);
    let mut active = Json::Null;
    wait_until("the stall is raised", || {
        active = run.json("/api/v1/warnings")["active"].clone();
        active != json!([])
    });
    assert_eq!(active[0]["kind"], "watermark_stalled");
    assert!(
        active[0]["cause"].as_str().unwrap().contains("partition - of source source holds it back"),
        "{active}"
    );
    let raised = "floodmark_warnings_active{pipeline=\"live\",kind=\"watermark_stalled\"} 1\n";
    assert!(run.ask("/metrics").body.contains(raised));
    run.event(KEY, 6_000);
    wait_until("it is taken back", || {
        let warnings = run.json("/api/v1/warnings");
        // On a busy machine the next stall may have begun.
        warnings["cleared"].as_array().is_some_and(|cleared| !cleared.is_empty())
    });
    let stalls = run.json("/api/v1/warnings")["raised"]["watermark_stalled"].as_u64().unwrap();
    let (_, log) = run.finish();
    let lines =
        log.lines().filter(|line| line.contains("the watermark has stood at") && line.contains("WARN"));
    let lines = lines.count() as u64;
    assert!(lines >= stalls && lines <= stalls + 1, "raised={stalls} in the log={lines}:\n{log}");
    assert!(log.contains("no longer so: the watermark has stood at"), "{log}");
}

#[test]
fn a_page_that_is_not_there_and_a_way_that_is_not_meant_are_refused_with_a_remedy() {
    let run = Watched::start(&live(""), &[]);
    let unknown = run.ask("/api/v2/status");
    assert_eq!(unknown.code, 404);
    assert!(unknown.body.contains("/api/v1/status"), "{}", unknown.body);
    assert_eq!(ask(&run.address, "POST", "/api/v1/status", &[]).code, 405, "it is read-only");
    let elsewhere = ask(&run.address, "GET", "/api/v1/status", &[("Host", "attacker.example")]);
    assert_eq!(elsewhere.code, 403, "{}", elsewhere.body);
    assert_eq!(run.ask("/api/v1/history?resolution=years").code, 400);
    assert_eq!(run.ask("/api/v1/history?resolutoin=seconds").code, 400);
    run.finish();
}

#[test]
fn a_taken_port_is_refused_before_anything_is_opened() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let site = Site::new(&live(""));
    site.run(&["--status", &address])
        .assert_refused(3, &["the address of the status page is taken", &address]);
    assert!(!site.path("state").exists());
    site.run(&["--status", "nowhere"]).assert_refused(2, &["no address to listen at"]);
    site.run(&["--status-keys"]).assert_refused(2, &["--status-keys without a status page"]);
}

#[test]
fn without_being_asked_a_run_listens_nowhere() {
    let ended = Site::new(&live("")).run(&[]);
    ended.summary();
    assert!(!ended.stderr.contains("status page"), "{}", ended.stderr);
}

/// promtool of Prometheus; `cargo xtask servers` installs it on Debian, and sets the variable.
fn promtool() -> Option<Command> {
    let program = std::env::var_os("FLOODMARK_PROMTOOL");
    let named = program.is_some();
    let program = program.unwrap_or_else(|| "promtool".into());
    match Command::new(&program).arg("--version").output() {
        Ok(output) if output.status.success() => Some(Command::new(program)),
        other => {
            assert!(!named, "FLOODMARK_PROMTOOL={} does not work: {other:?}", program.display());
            println!("SKIPPED, because there is no promtool: metrics and alert rules were not checked by it");
            None
        }
    }
}

/// Runs promtool in the directory of the rules, and expects that it finds nothing.
fn assert_sound(mut promtool: Command, arguments: &[&str], input: &str) {
    let directory = repository().join("docs/ops/prometheus");
    let mut child = promtool
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "promtool {arguments:?}:\n{said}");
}

#[test]
fn promtool_has_nothing_to_say_about_the_metrics_of_a_run() {
    let Some(promtool) = promtool() else { return };
    let mut run = Watched::start(&live(""), &[]);
    run.event(KEY, 5_000);
    run.event("a\\\"b", 75_000);
    run.line("no json");
    run.status_when("all was read", |status| status["partitions"][0]["records"] == 3);
    assert_sound(promtool, &["check", "metrics"], &run.ask("/metrics").body);
    run.finish();
}

#[test]
fn promtool_finds_the_alert_rules_sound_and_each_fires_when_it_should() {
    let Some(check) = promtool() else { return };
    assert_sound(check, &["check", "rules", "alerts.yml"], "");
    assert_sound(promtool().unwrap(), &["test", "rules", "alerts_test.yml"], "");
}

#[test]
fn promtool_understands_every_query_of_the_dashboard() {
    let Some(promtool) = promtool() else { return };
    let mut rules = "groups:\n  - name: dashboard\n    rules:\n".to_owned();
    for (index, query) in dashboard_queries().iter().enumerate() {
        let query = query.replace("$__rate_interval", "1m").replace("$pipeline", ".*");
        rules.push_str(&format!("      - record: query:{index}\n        expr: {}\n", json!(query)));
    }
    let site = Site::new("");
    site.write("queries.yml", rules);
    assert_sound(promtool, &["check", "rules", site.path("queries.yml").to_str().unwrap()], "");
}

/// The queries of all panels; each panel has one at least.
fn dashboard_queries() -> Vec<String> {
    let dashboard: Json =
        serde_json::from_str(&read(&repository().join("docs/ops/grafana/floodmark.json"))).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids: Vec<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), panels.len(), "panels share an id");
    let charts = panels.iter().filter(|panel| panel["type"] != "row");
    let targets = charts.flat_map(|panel| {
        let targets = panel["targets"].as_array().filter(|targets| !targets.is_empty());
        targets.unwrap_or_else(|| panic!("a panel without a query: {}", panel["title"]))
    });
    targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect()
}

/// Names of metrics in text, as Prometheus stores them.
fn metrics_named_in(text: &str) -> Vec<String> {
    let word = |character: char| !(character.is_ascii_alphanumeric() || character == '_');
    text.split(word).filter(|word| word.starts_with("floodmark_")).map(str::to_owned).collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn rules_and_dashboard_name_only_metrics_that_there_are() {
    let known = metrics_named_in(&read(&repository().join("docs/METRICS.md")));
    let queries = dashboard_queries().join("\n");
    let rules = read(&repository().join("docs/ops/prometheus/alerts.yml"));
    for name in metrics_named_in(&queries).into_iter().chain(metrics_named_in(&rules)) {
        assert!(known.contains(&name), "{name} is no metric");
    }
}
