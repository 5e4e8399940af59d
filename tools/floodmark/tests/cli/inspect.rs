//! `floodmark inspect` on a pipeline that stopped half-way, on copies, beside a running one, and on damage.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::time::{Duration, Instant};

use floodmark::aggregate::{AggregateSpec, Layout};
use floodmark::checkpoint::Manifest;
use floodmark::event_time::EventTime;
use floodmark::operator::OperatorSpec;
use serde_json::Value as Json;
use tempfile::TempDir;

const PIPELINE: &str = r#"
name = "trips"
[source]
path = "-"
format = "jsonl"
time = { field = "t", format = "rfc3339" }
[watermark]
delay = "2h"
[state]
directory = "state"
[checkpoint]
interval = "1h"
bytes = "64KiB"
[[window]]
name = "hourly"
key = ["origin"]
type = "tumbling"
size = "1h"
aggregates = [
  { name = "n", function = "count" },
  { name = "delays", function = "sum", field = "delay", type = "int" },
  { name = "longest", function = "max", field = "delay", type = "int" },
  { name = "weight", function = "max", field = "weight", type = "int" },
]
output = { path = "out/hourly", format = "jsonl" }
[[window]]
name = "pairs"
key = ["origin", "dest"]
type = "tumbling"
size = "6h"
allowed_lateness = "9h"
aggregates = [{ name = "n", function = "count" }]
output = { path = "out/pairs", format = "jsonl" }
"#;

const HOUR: i64 = 3_600_000;
/// Milliseconds of 2013-01-01T00:00:00Z.
const START: i64 = 1_356_998_400_000;
/// Events in each chunk of input: more than `checkpoint.bytes`.
const CHUNK: usize = 1_500;

/// The event of that number: a fixed function of it.
struct Event {
    time: i64,
    origin: &'static str,
    dest: &'static str,
    delay: i64,
    weight: i64,
}

fn event(number: usize) -> Event {
    Event {
        time: START + number as i64 * 20_000,
        origin: ["AX", "BX", "BX", "CX"][number % 4],
        dest: ["D", "E", "F"][number % 3],
        delay: (number as i64 * 7) % 61 - 5,
        weight: (number as i64 * 11) % 1_009,
    }
}

/// A pipeline that reads standard input, which stays open.
struct Running {
    dir: TempDir,
    child: Child,
    stdin: ChildStdin,
    written: usize,
}

impl Running {
    /// Started, fed and checkpointed so many times.
    fn with_checkpoints(count: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("pipeline.toml"), PIPELINE).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_floodmark"))
            .args(["run", "--quiet"])
            .arg(dir.path().join("pipeline.toml"))
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let mut running = Self { dir, child, stdin, written: 0 };
        for epoch in 1..=count {
            running.feed();
            running.wait_for(epoch);
        }
        running
    }

    fn feed(&mut self) {
        let mut text = String::new();
        for number in self.written..self.written + CHUNK {
            let Event { time, origin, dest, delay, weight } = event(number);
            let time = EventTime::from_millis(time);
            text.push_str(&format!(
                "{{\"t\":\"{time}\",\"origin\":\"{origin}\",\"dest\":\"{dest}\",\"delay\":{delay},\"weight\":{weight}}}\n"
            ));
        }
        assert!(text.len() > 64 << 10, "a chunk must bring a checkpoint: bytes={}", text.len());
        self.stdin.write_all(text.as_bytes()).unwrap();
        self.stdin.flush().unwrap();
        self.written += CHUNK;
    }

    fn wait_for(&mut self, epoch: u64) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.checkpoint(epoch).join("MANIFEST.fm").exists() {
            assert!(Instant::now() < deadline, "no checkpoint {epoch}");
            assert_eq!(self.child.try_wait().unwrap(), None, "the pipeline ended");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    fn checkpoint(&self, epoch: u64) -> PathBuf {
        self.state().join(format!("checkpoints/chk-{epoch:010}"))
    }

    /// A copy of the newest checkpoint, elsewhere and under another name.
    fn copy(&self, epoch: u64) -> PathBuf {
        let copy = self.dir.path().join("backup");
        fs::create_dir_all(copy.join("db")).unwrap();
        for (name, bytes) in contents(&self.checkpoint(epoch)) {
            fs::write(copy.join(name), bytes).unwrap();
        }
        copy
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn inspect(arguments: &[&str], path: &Path) -> Output {
    let (report, options) = arguments.split_first().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodmark"));
    command.args(["inspect", report]).arg(path).args(options).output().unwrap()
}

fn text(arguments: &[&str], path: &Path) -> String {
    let output = inspect(arguments, path);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &[&str], path: &Path) -> Json {
    serde_json::from_str(&text(&[arguments, &["--json"]].concat(), path)).unwrap()
}

fn problems(path: &Path) -> (Option<i32>, String) {
    let output = inspect(&["verify"], path);
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

/// Every file below a directory with its bytes.
fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut pending = vec![dir.to_owned()];
    while let Some(next) = pending.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pending.push(path);
            } else {
                let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
                found.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    found
}

fn without(mut report: Json, fields: &[&str]) -> Json {
    for place in ["/checkpoint", ""] {
        if let Some(object) = report.pointer_mut(place).and_then(Json::as_object_mut) {
            fields.iter().for_each(|field| drop(object.remove(*field)));
        }
    }
    report
}

#[test]
fn a_running_pipeline_is_inspected_without_a_trace() {
    let mut running = Running::with_checkpoints(3);
    let checkpoints = running.state().join("checkpoints");
    let before = contents(&checkpoints);
    let reports: [&[&str]; 6] = [
        &["list"],
        &["show"],
        &["windows"],
        &["windows", "--key", "AX"],
        &["windows", "--window", "pairs", "--key", "AX", "--key", "D"],
        &["verify", "--all"],
    ];
    for path in [running.state(), checkpoints.clone(), running.checkpoint(3)] {
        for report in reports {
            text(report, &path);
            json(report, &path);
            assert_eq!(contents(&checkpoints), before, "{report:?} {}", path.display());
        }
    }
    assert_eq!(running.child.try_wait().unwrap(), None, "the pipeline was disturbed");
    running.feed();
    running.wait_for(4);
}

#[test]
fn a_killed_pipeline_leaves_a_list_of_its_checkpoints() {
    let mut running = Running::with_checkpoints(3);
    running.child.kill().unwrap();
    let list = json(&["list"], &running.state());
    let list = list.as_array().unwrap();
    let column = |name: &str| list.iter().map(|row| row[name].as_u64()).collect::<Vec<_>>();
    assert_eq!(column("epoch"), [Some(1), Some(2), Some(3)]);
    assert_eq!(column("parent"), [None, Some(1), Some(2)]);
    assert_eq!(column("bytes")[0], column("new_bytes")[0]);
    for row in list {
        let database = PathBuf::from(row["path"].as_str().unwrap()).join("db");
        let files = contents(&database);
        assert_eq!(row["files"].as_u64().unwrap() as usize, files.len());
        assert_eq!(row["bytes"].as_u64().unwrap() as usize, files.values().map(Vec::len).sum::<usize>());
        assert_eq!(row["problem"], Json::Null);
    }
    let second: Vec<u64> = ["new_bytes", "bytes"].map(|name| column(name)[1].unwrap()).to_vec();
    assert!(0 < second[0] && second[0] < second[1], "the second is incremental: {second:?}");
    let shown = json(&["show", "--at", "2"], &running.state());
    assert_eq!(shown["epoch"], 2);
    assert_eq!(shown["watermark"], list[1]["watermark"]);
    assert_eq!(shown["partitions"][0]["records"], 2 * CHUNK);
    assert_eq!(shown["operators"][0]["definition"]["key"][0], "origin");
    assert!(text(&["show", "--at", "2"], &running.state()).contains("delays = sum(delay int)"));
}

/// What the events before `records` come to, by window end, for windows that `origin` has events in.
fn expected_panes(origin: &str, records: usize) -> BTreeMap<i64, (i64, i64, i64, i64)> {
    let mut panes = BTreeMap::new();
    for event in (0..records).map(event).filter(|event| event.origin == origin) {
        let pane =
            panes.entry(event.time.div_euclid(HOUR) * HOUR + HOUR).or_insert((0, 0, i64::MIN, i64::MIN));
        *pane = (pane.0 + 1, pane.1 + event.delay, pane.2.max(event.delay), pane.3.max(event.weight));
    }
    panes
}

#[test]
fn the_panes_of_a_key_are_what_its_events_come_to() {
    let running = Running::with_checkpoints(3);
    for epoch in ["1", "2", "3"] {
        let report = json(&["windows", "--at", epoch, "--window", "hourly", "--key", "BX"], &running.state());
        let records = CHUNK * epoch.parse::<usize>().unwrap();
        let watermark = event(records - 1).time - 2 * HOUR;
        let open: BTreeMap<String, _> = expected_panes("BX", records)
            .into_iter()
            .filter(|(end, _)| *end > watermark)
            .map(|(end, pane)| (EventTime::from_millis(end).to_string(), pane))
            .collect();
        let found: BTreeMap<String, _> = report["operators"][0]["panes"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|pane| pane["status"] == "open")
            .map(|pane| {
                let value = |name: &str| pane["aggregates"][name].as_i64().unwrap();
                assert_eq!(pane["events"], pane["aggregates"]["n"]);
                let pane_values = (value("n"), value("delays"), value("longest"), value("weight"));
                (pane["end"].as_str().unwrap().to_owned(), pane_values)
            })
            .collect();
        assert!(open.len() >= 2, "{open:?}");
        assert_eq!(found, open, "checkpoint {epoch}");
    }
    let base64 = json(&["windows", "--key-base64", "Qlg="], &running.state());
    let plain = json(&["windows", "--key", "BX"], &running.state());
    assert_eq!(base64["operators"], plain["operators"]);
}

#[test]
fn windows_are_judged_by_the_watermark_of_their_own_checkpoint() {
    let running = Running::with_checkpoints(2);
    let report = json(&["windows", "--top", "1"], &running.state());
    let records = 2 * CHUNK;
    let watermark = event(records - 1).time - 2 * HOUR;
    assert_eq!(report["checkpoint"]["watermark"], EventTime::from_millis(watermark).to_string());
    let open_events =
        (0..records).filter(|number| event(*number).time.div_euclid(HOUR) * HOUR + HOUR > watermark);
    let hourly = &report["operators"][0];
    assert_eq!(hourly["open"]["events"], open_events.count());
    assert_eq!(hourly["top_keys"][0]["key"], serde_json::json!(["BX"]));
    assert_eq!(hourly["top_keys"].as_array().unwrap().len(), 1);
    // Six hours long, nine hours of lateness, and the watermark at 14:39:40: two are closed and still take events.
    let statuses: Vec<_> = report["operators"][1]["windows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|window| &window["status"])
        .collect();
    assert_eq!(statuses, ["accepts-late", "accepts-late", "open"]);
    assert_eq!(report["operators"][1]["accepts_late"]["events"], 12 * 180);
    assert_eq!(report["operators"][1]["closing"]["windows"], 0);
}

#[test]
fn a_copy_under_another_name_tells_the_same() {
    let running = Running::with_checkpoints(2);
    let copy = running.copy(2);
    for report in [&["show"][..], &["windows"], &["windows", "--key", "AX", "--key", "D"]] {
        let own = ["path", "age_ms"];
        let original = without(json(report, &running.state()), &own);
        assert_eq!(without(json(report, &copy), &own), original, "{report:?}");
    }
    let (code, said) = problems(&copy);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("copied under another name"), "{said}");
}

#[test]
fn a_flipped_byte_is_found_with_the_name_of_its_file() {
    let running = Running::with_checkpoints(2);
    let copy = running.copy(2);
    let files = contents(&copy);
    assert!(files.len() > 8, "{:?}", files.keys());
    for (name, bytes) in files.iter().filter(|(_, bytes)| !bytes.is_empty()) {
        let mut damaged = bytes.clone();
        damaged[bytes.len() / 2] ^= 0x10;
        fs::write(copy.join(name), damaged).unwrap();
        let (code, said) = problems(&copy);
        assert_eq!(code, Some(5), "{name}: {said}");
        let plain = name.strip_prefix("db/").unwrap_or("manifest");
        assert!(said.contains(&format!("problem: {plain}")) || said.contains(plain), "{name}: {said}");
        fs::write(copy.join(name), bytes).unwrap();
    }
    assert_eq!(problems(&copy).0, Some(0));
}

#[test]
fn a_manifest_that_is_damaged_is_a_line_of_the_list_and_no_report() {
    let running = Running::with_checkpoints(2);
    fs::write(running.checkpoint(2).join("MANIFEST.fm"), b"FLOODCHK").unwrap();
    let list = json(&["list"], &running.state());
    assert_eq!(list[0]["problem"], Json::Null);
    assert!(list[1]["problem"].is_string() && list[1]["epoch"] == 2, "{list}");
    let shown = inspect(&["show"], &running.state());
    assert_eq!(shown.status.code(), Some(5));
    assert!(String::from_utf8_lossy(&shown.stderr).contains("--at"), "the remedy names the way on");
    assert_eq!(inspect(&["verify", "--all"], &running.state()).status.code(), Some(5));
    assert_eq!(inspect(&["verify", "--at", "1"], &running.state()).status.code(), Some(0));
}

#[test]
fn rows_that_do_not_fit_their_definition_are_found_behind_sound_files() {
    let running = Running::with_checkpoints(1);
    let copy = running.copy(1);
    let mut manifest = Manifest::load(&copy).unwrap();
    let operator = &mut manifest.operators[0];
    let mut spec: OperatorSpec = serde_json::from_str(&operator.definition).unwrap();
    spec.aggregates = vec![AggregateSpec::count("n")];
    operator.definition = serde_json::to_string(&spec).unwrap();
    operator.fingerprint = Layout::new(&spec.aggregates).fingerprint();
    fs::write(copy.join("MANIFEST.fm"), manifest.encode().unwrap()).unwrap();
    let (code, said) = problems(&copy);
    assert_eq!(code, Some(5), "{said}");
    assert!(said.contains("wrong length") && said.contains("window=hourly key=\"AX\""), "{said}");
    let report = json(&["windows"], &copy);
    assert_eq!(report["operators"][0]["windows"][0]["damaged"], 3);
    assert_eq!(report["operators"][1]["windows"][0]["damaged"], 0);
}

#[test]
fn a_path_without_checkpoints_is_refused_with_a_way_on() {
    let dir = tempfile::tempdir().unwrap();
    let foreign = dir.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("notes.txt"), "not a checkpoint").unwrap();
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let fresh = dir.path().join("fresh");
    fs::create_dir_all(fresh.join("checkpoints")).unwrap();
    for report in ["list", "show", "windows", "verify"] {
        let cases = [
            (dir.path().join("missing"), 3, "no such directory"),
            (foreign.join("notes.txt"), 2, "not a directory"),
            (foreign.clone(), 2, "neither a state directory nor a checkpoint"),
            (empty.clone(), 2, "neither a state directory nor a checkpoint"),
            (fresh.clone(), if report == "list" { 0 } else { 2 }, "no checkpoint"),
        ];
        for (path, code, words) in cases {
            let output = inspect(&[report], &path);
            let said = format!(
                "{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
            assert_eq!(output.status.code(), Some(code), "{report} {}: {said}", path.display());
            assert!(said.contains(words) && (code == 0 || said.contains("remedy: ")), "{report}: {said}");
        }
    }
}

#[test]
fn the_working_database_of_a_running_pipeline_is_no_checkpoint() {
    let mut running = Running::with_checkpoints(1);
    let mut work = fs::read_dir(running.state().join("work")).unwrap().map(|entry| entry.unwrap().path());
    let database = work.find(|path| path.join("CURRENT").exists()).expect("a working database");
    for report in ["list", "show", "windows", "verify"] {
        let output = inspect(&[report], &database);
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(2), "{report}: {said}");
        assert!(said.contains("neither a state directory nor a checkpoint"), "{report}: {said}");
    }
    assert_eq!(running.child.try_wait().unwrap(), None, "the pipeline was disturbed");
    running.feed();
    running.wait_for(2);
}
