//! Bad records, bad files, bad disks: what is said, which exit code, and that mending and running again loses nothing.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value as Json, json};

use crate::support::{Ended, Running, Site, flights_sample, wait_until};

/// Sums of `v` per minute and key, over the lines of `path`.
fn pipeline(path: &str) -> String {
    format!(
        r#"name = "bad-input"

[source]
path = "{path}"
time = {{ field = "t", format = "rfc3339", min = "2020-01-01T00:00:00Z", max = "2030-01-01T00:00:00Z" }}

[watermark]
delay = "10s"

[state]
directory = "state"

[[window]]
name = "minutes"
key = ["k"]
type = "tumbling"
size = "1m"
aggregates = [
  {{ name = "rows", function = "count" }},
  {{ name = "sum", function = "sum", field = "v", type = "int" }},
]
output = {{ path = "out/minutes" }}

[late]
path = "out/late"

[dead_letter]
path = "out/rejected"
"#
    )
}

/// One good record per second.
fn good(second: usize) -> String {
    format!(
        "{{\"t\":\"2025-03-01T10:{:02}:{:02}Z\",\"k\":\"{}\",\"v\":{second}}}\n",
        second / 60 % 60,
        second % 60,
        ["a", "b", "c"][second % 3]
    )
}

fn good_lines(lines: usize) -> Vec<String> {
    (0..lines).map(good).collect()
}

/// Records that cannot be used, with the reason and the field that is to be named.
const BAD: &[(&str, &str, Option<&str>)] = &[
    (r#"{"t":"2025-03-01T10:00:00Z","k":"a","v":1"#, "broken_record", None),
    ("not json at all", "broken_record", None),
    (r#"["2025-03-01T10:00:00Z","a",1]"#, "broken_record", None),
    (r#"{"t":null,"k":"a","v":1}"#, "null_timestamp", Some("t")),
    (r#"{"k":"a","v":1}"#, "missing_timestamp", Some("t")),
    (r#"{"t":"yesterday","k":"a","v":1}"#, "unparsable_timestamp", Some("t")),
    (r#"{"t":"2025-02-29T10:00:00Z","k":"a","v":1}"#, "unparsable_timestamp", Some("t")),
    (r#"{"t":1740823200,"k":"a","v":1}"#, "unparsable_timestamp", Some("t")),
    (r#"{"t":"1999-12-31T23:59:59Z","k":"a","v":1}"#, "timestamp_before_min", Some("t")),
    (r#"{"t":"2030-01-01T00:00:00.001Z","k":"a","v":1}"#, "timestamp_after_max", Some("t")),
    (r#"{"t":"2025-03-01T10:00:00Z","v":1}"#, "missing_key", Some("k")),
    (r#"{"t":"2025-03-01T10:00:00Z","k":null,"v":1}"#, "null_key", Some("k")),
    (r#"{"t":"2025-03-01T10:00:00Z","k":"a","v":"12"}"#, "number_as_string", Some("v")),
    (r#"{"t":"2025-03-01T10:00:00Z","k":"a","v":1.5}"#, "not_an_integer", Some("v")),
    (r#"{"t":"2025-03-01T10:00:00Z","k":"a","v":9223372036854775808}"#, "integer_out_of_range", Some("v")),
    (r#"{"t":"2025-03-01T10:00:00Z","k":"a","v":true}"#, "wrong_type", Some("v")),
];

#[test]
fn bad_records_are_set_aside_with_file_line_and_reason_and_the_rest_counts() {
    let good = good_lines(300);
    let site = Site::new(&pipeline("events.jsonl"));
    site.write("events.jsonl", good.concat());
    let (_, straight) = site.complete(&[]);
    site.reset();

    // A bad record after every tenth good one, and a last line that breaks off.
    let mut text = String::new();
    let mut expected = Vec::new();
    let mut line = 0;
    for (index, record) in good.iter().enumerate() {
        text.push_str(record);
        line += 1;
        if index % 10 == 9
            && let Some((bad, reason, field)) = BAD.get(index / 10)
        {
            expected.push((line + 1, *reason, *field, text.len(), *bad));
            text.push_str(bad);
            text.push('\n');
            line += 1;
        }
    }
    let cut = r#"{"t":"2025-03-01T10:04:59Z","k":"a","#;
    expected.push((line + 1, "broken_record", None, text.len(), cut));
    text.push_str(cut);
    assert_eq!(expected.len(), BAD.len() + 1);
    site.write("events.jsonl", text);

    let (summary, outputs) = site.complete(&[]);
    let rejected = outputs.rows("rejected");
    assert_eq!(rejected.len(), expected.len());
    let mut counts = serde_json::Map::new();
    for (row, (line, reason, field, offset, text)) in rejected.iter().zip(&expected) {
        let record = serde_json::from_str(text).unwrap_or_else(|_| json!(text));
        let told = json!({
            "source": "events.jsonl", "record_number": line, "byte_offset": offset, "reason": reason,
            "field": field, "detail": row["detail"], "record": record,
        });
        assert_eq!(*row, told);
        assert!(row["detail"].as_str().is_some_and(|detail| detail.len() > 10), "no detail: {row}");
        let count = counts.entry(*reason).or_insert(json!(0));
        *count = json!(count.as_u64().unwrap() + 1);
    }
    assert_eq!(summary["total"]["rejected"], Json::Object(counts));
    assert_eq!(summary["total"]["events"], good.len());
    assert_eq!(outputs.rows("minutes"), straight.rows("minutes"));
}

#[test]
fn strict_stops_at_the_first_bad_record_and_a_rerun_after_mending_loses_nothing() {
    // Long enough for several blocks: the bad record comes when others have been processed.
    let mut lines = good_lines(30_000);
    let site = Site::new(&pipeline("events.jsonl"));
    site.write("events.jsonl", lines.concat());
    let (_, straight) = site.complete(&[]);
    for bad_line in [3, 20_000, 30_000] {
        site.reset();
        let mended = std::mem::replace(&mut lines[bad_line - 1], "{\"t\":null}\n".to_owned());
        site.write("events.jsonl", lines.concat());
        let ended = site.run(&["--strict"]);
        ended.assert_refused(2, &[&format!("events.jsonl:{bad_line}: "), "null_timestamp", "field=t"]);
        assert!(site.outputs().rows("rejected").is_empty(), "strict sets nothing aside");
        lines[bad_line - 1] = mended;
        site.write("events.jsonl", lines.concat());
        if bad_line == 3 {
            // The beginning of the file, by which it is known again, was mended: nothing had been read of it.
            assert!(site.epochs().is_empty(), "a checkpoint of nothing: {:?}", site.epochs());
        }
        let (_, outputs) = site.complete(&["--strict"]);
        outputs.assert_same_as(&straight, &format!("mended at line {bad_line}"));
    }
}

#[test]
fn a_missing_file_is_named_and_found_again_later() {
    let site = Site::new(&pipeline("data/events-*.jsonl"));
    let refused = site.run(&[]);
    refused.assert_refused(3, &["pipeline.toml:4:8", "no file matches", "data/events-*.jsonl"]);
    fs::create_dir(site.path("data")).unwrap();
    site.write("data/events-1.jsonl", good_lines(100).concat());
    let (summary, _) = site.complete(&[]);
    assert_eq!(summary["total"]["events"], 100);
}

#[test]
fn a_missing_pipeline_file_is_named() {
    let site = Site::new(&pipeline("events.jsonl"));
    fs::remove_file(site.path("pipeline.toml")).unwrap();
    site.run(&[]).assert_refused(3, &["pipeline.toml"]);
}

#[test]
fn an_unreadable_directory_is_named_with_the_way_on() {
    let site = Site::new(&pipeline("data/*.jsonl"));
    fs::create_dir(site.path("data")).unwrap();
    site.write("data/events.jsonl", good_lines(100).concat());
    let allow = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    allow(&site.path("."), 0o777);
    allow(&site.path("data"), 0o000);
    let mut command = site.command(&[]);
    // Nothing is unreadable to root: run as nobody then.
    let root = rustix::process::geteuid().is_root();
    let output = match root {
        true => command.uid(65_534).gid(65_534).output(),
        false => command.output(),
    };
    allow(&site.path("data"), 0o755);
    match output {
        Ok(output) => {
            Ended::of(output).assert_refused(3, &["cannot list", "data", "make the directory readable"]);
            site.reset();
            let (summary, _) = site.complete(&[]);
            assert_eq!(summary["total"]["events"], 100);
        }
        Err(error) => println!("skipped: the command cannot be run as another user: {error}"),
    }
}

#[test]
fn a_second_process_on_the_same_state_is_told_who_has_it() {
    let site = Site::new(&pipeline("-").replace("path = \"-\"", "path = \"-\"\nformat = \"jsonl\""));
    let mut command = site.command(&[]);
    command.stdin(Stdio::piped());
    let mut first = Running::start(command);
    let pid = format!("pid={}", first.child().id());
    let lock = site.path("state/LOCK");
    wait_until("the first process has the lock", || {
        fs::read_to_string(&lock).is_ok_and(|text| text.contains(&pid)) && site.path("out/late").exists()
    });
    site.run(&[]).assert_refused(4, &["in use by another process", &pid, "stop that process"]);
    first.child().stdin.take().unwrap().write_all(good_lines(100).concat().as_bytes()).unwrap();
    let summary = first.wait().summary();
    assert_eq!((&summary["outcome"], &summary["total"]["events"]), (&json!("completed"), &json!(100)));
}

/// `floodmark` with these arguments, in the directory of the site.
fn floodmark(site: &Site, arguments: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodmark"));
    command
        .args(arguments)
        .current_dir(site.path(""))
        .env_remove("FLOODMARK_FAULT")
        .env_remove("FLOODMARK_LOG");
    Ended::of(command.stdin(Stdio::null()).output().unwrap())
}

#[test]
fn a_quote_that_takes_lines_with_it_is_told_with_their_number() {
    let site = Site::new(&pipeline("events.csv"));
    let row = |second: usize| format!("2025-03-01T10:00:{second:02}Z,a,{second}\n");
    let rows: String = (0..20).map(row).collect();
    // Up to the next quote: lines 12 to 17.
    let rows = rows.replace("10Z,a", "10Z,\"a").replace("15Z,a", "15Z,\"a");
    site.write("events.csv", format!("t,k,v\n{rows}"));
    let ended = site.run(&[]);
    let summary = ended.summary();
    assert_eq!(
        (&summary["total"]["events"], &summary["total"]["rejected"]),
        (&json!(14), &json!({"broken_record": 1}))
    );
    for words in ["takes several lines", "line=12", "lines=6"] {
        assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
    }
    let rejected = site.outputs().rows("rejected");
    assert!(rejected[0]["detail"].as_str().unwrap().ends_with("; the record has 6 lines"), "{rejected:?}");
}

/// A block of input holds 4,096 of these lines, ten seconds at the rate.
#[test]
fn at_a_low_rate_checkpoints_come_and_a_stop_is_heeded_in_the_middle_of_a_block() {
    let interval = "[checkpoint]\ninterval = \"100ms\"\n\n[[window]]";
    let site = Site::in_memory(&pipeline("events.jsonl").replace("[[window]]", interval));
    site.write("events.jsonl", good_lines(3_600).concat());
    let (_, straight) = site.complete(&[]);
    site.reset();
    let mut running = Running::start(site.command(&["--rate", "400"]));
    wait_until("there are checkpoints", || site.epochs().last().is_some_and(|epoch| *epoch >= 3));
    running.signal(Signal::TERM);
    let summary = running.wait().summary();
    let events = summary["total"]["events"].as_u64().unwrap();
    assert_eq!(summary["outcome"], "stopped", "{summary}");
    assert!(events > 0 && events < 3_600, "{summary}");
    let (summary, outputs) = site.complete(&[]);
    assert_eq!((&summary["events"], &summary["total"]["events"]), (&json!(3_600 - events), &json!(3_600)));
    outputs.assert_same_as(&straight, "stopped in the middle of a block");
}

#[test]
fn a_pipeline_file_that_fits_no_record_is_warned_of() {
    let site = Site::new(&pipeline("events.jsonl").replace("field = \"t\"", "field = \"time\""));
    site.write("events.jsonl", good_lines(5_000).concat());
    let ended = site.run(&["--quiet"]);
    let warning = "not one record of this part of the input can be used";
    assert_eq!(ended.stderr.matches(warning).count(), 1, "{}", ended.stderr);
    for words in ["events.jsonl", "line=1", "missing_timestamp", "[source]"] {
        assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
    }
    assert_eq!(ended.summary()["total"]["rejected"]["missing_timestamp"], 5_000);
    site.reset();
    site.write("pipeline.toml", pipeline("events.jsonl"));
    assert!(!site.run(&["--quiet"]).stderr.contains(warning));
}

#[test]
fn slips_on_the_command_line_are_told_apart_from_empty_places() {
    let site = Site::new(&pipeline("events.jsonl"));
    site.write("file", "x");
    floodmark(&site, &["repository", "list", "nope"]).assert_refused(2, &["no such directory", "nope"]);
    fs::create_dir(site.path("mirror")).unwrap();
    assert_eq!(floodmark(&site, &["repository", "list", "mirror"]).code, Some(0));
    let fetch = ["repository", "fetch", "mirror", "--into", "file"];
    floodmark(&site, &fetch).assert_refused(2, &["this is a file", "--into"]);
    let fetch = floodmark(&site, &["repository", "fetch", "mirror", "--into", "new", "--at", "99"]);
    assert!(fetch.stderr.contains("epoch=99 present=[]"), "{}", fetch.stderr);
    let restore = ["restore", "--state", "new", "--move", "--from"];
    let of_repository = floodmark(&site, &[&restore[..], &["mirror"]].concat());
    of_repository.assert_refused(2, &["neither a state directory", "floodmark repository fetch"]);
    let renamed = floodmark(&site, &[&restore[..], &["mirror", "--name", "other"]].concat());
    assert_eq!(renamed.code, Some(2), "{}", renamed.stderr);
    assert!(renamed.stderr.contains("--name"), "{}", renamed.stderr);
    assert_eq!(floodmark(&site, &["bench", "-n", "0"]).code, Some(2));
}

/// A site whose pipeline ran twice, over one file and then over another one: two checkpoints.
fn with_two_checkpoints() -> (Site, crate::support::Outputs) {
    let site = Site::new(
        &pipeline("events-*.jsonl").replace("delay = \"10s\"", "delay = \"10s\"\nclose_at_end = false"),
    );
    site.write("events-1.jsonl", good_lines(200).concat());
    site.complete(&[]);
    site.write("events-2.jsonl", (200..2_400).map(good).collect::<String>());
    let (_, straight) = site.complete(&[]);
    assert_eq!(site.epochs(), [1, 2]);
    (site, straight)
}

fn database_file(site: &Site, epoch: u64) -> PathBuf {
    let files = fs::read_dir(site.path(&format!("state/checkpoints/chk-{epoch:010}/db"))).unwrap();
    let mut files: Vec<PathBuf> = files.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "sst"));
    files.sort();
    files.pop().expect("a checkpoint with panes has a table")
}

#[test]
fn a_damaged_newest_checkpoint_is_named_and_an_older_one_is_an_explicit_choice() {
    let (site, straight) = with_two_checkpoints();
    let file = database_file(&site, 2);
    let whole = fs::read(&file).unwrap();
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    fs::write(&file, &damaged).unwrap();
    let name = file.file_name().unwrap().to_str().unwrap();
    let refused = site.run(&[]);
    refused.assert_refused(5, &["checkpoint is damaged", "epoch=2", name, "--at 1"]);
    site.outputs().assert_same_as(&straight, "a refused start changes nothing");

    // Putting the file back is the first way on.
    fs::write(&file, &whole).unwrap();
    site.complete(&[]).1.assert_same_as(&straight, "the file put back");

    // The older checkpoint is the other; output that is ahead of it has to be given up by name.
    fs::write(&file, &damaged).unwrap();
    site.run(&["--at", "1"]).assert_refused(6, &["--set-aside-output"]);
    let (summary, outputs) = site.complete(&["--at", "1", "--set-aside-output"]);
    assert_eq!(summary["start"]["epoch"], 1);
    assert!(summary["start"]["parts_set_aside"].as_u64() > Some(0), "{summary}");
    outputs.assert_same_as(&straight, "replayed from the older checkpoint");
    site.complete(&[]).1.assert_same_as(&straight, "and again");
}

#[test]
fn a_damaged_checkpoint_with_no_other_is_named() {
    let site = Site::new(
        &pipeline("events.jsonl").replace("delay = \"10s\"", "delay = \"10s\"\nclose_at_end = false"),
    );
    site.write("events.jsonl", good_lines(100).concat());
    let (_, straight) = site.complete(&[]);
    let file = database_file(&site, 1);
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() - 1]).unwrap();
    let name = file.file_name().unwrap().to_str().unwrap();
    site.run(&[]).assert_refused(5, &["epoch=1", name, "no older checkpoint"]);
    fs::write(&file, &whole).unwrap();
    site.complete(&[]).1.assert_same_as(&straight, "the file put back");
}

#[test]
fn a_changed_pipeline_is_refused_with_both_shapes() {
    let (site, straight) = with_two_checkpoints();
    let pipeline = fs::read_to_string(site.path("pipeline.toml")).unwrap();
    for (from, to, words) in [
        ("size = \"1m\"", "size = \"2m\"", ["stored", "asked", "1m", "2m"]),
        ("function = \"sum\"", "function = \"max\"", ["stored", "asked", "sum of", "max of"]),
        ("name = \"minutes\"", "name = \"other\"", ["new: ", "not asked for any more", "minutes", "other"]),
        ("name = \"bad-input\"", "name = \"another\"", ["another pipeline", "bad-input", "another", "state"]),
    ] {
        site.write("pipeline.toml", pipeline.replacen(from, to, 1));
        site.run(&[]).assert_refused(6, &words);
    }
    site.write("pipeline.toml", pipeline);
    site.complete(&[]).1.assert_same_as(&straight, "the definition put back");
}

#[test]
fn a_short_file_that_grows_is_read_on_again_and_again() {
    let keep_open =
        pipeline("events.jsonl").replace("delay = \"10s\"", "delay = \"10s\"\nclose_at_end = false");
    let lines = good_lines(300);
    let site = Site::new(&keep_open);
    site.write("events.jsonl", lines.concat());
    let (_, straight) = site.complete(&[]);
    site.reset();
    for length in [1, 100, 101, 300] {
        site.write("events.jsonl", lines[..length].concat());
        let (summary, _) = site.complete(&[]);
        assert_eq!(summary["total"]["events"], length);
    }
    site.outputs().assert_same_as(&straight, "a file that grew");
}

#[test]
fn a_file_that_was_empty_at_first_is_read_and_known_again() {
    let text = pipeline("events-*.jsonl\"\npartitions = \"single");
    let site = Site::new(&text.replace("delay = \"10s\"", "delay = \"10s\"\nclose_at_end = false"));
    let second: String = (300..400).map(good).collect();
    site.write("events-1.jsonl", good_lines(300).concat());
    site.write("events-2.jsonl", &second);
    let (_, straight) = site.complete(&[]);
    site.reset();
    // This leaves a checkpoint with nothing read of the second.
    site.write("events-2.jsonl", "");
    site.complete(&[]);
    site.write("events-2.jsonl", second);
    for _ in 0..2 {
        site.complete(&[]).1.assert_same_as(&straight, "the second file was empty at first");
    }
}

#[test]
fn output_of_state_that_is_gone_is_set_aside_only_when_told_to() {
    let (site, straight) = with_two_checkpoints();
    fs::remove_dir_all(site.path("state")).unwrap();
    site.run(&[]).assert_refused(6, &["out/minutes", "--set-aside-output"]);
    site.outputs().assert_same_as(&straight, "a refused start changes nothing");
    let (summary, outputs) = site.complete(&["--set-aside-output"]);
    assert!(summary["start"]["parts_set_aside"].as_u64() > Some(0), "{summary}");
    outputs.assert_same_as(&straight, "started over");
}

#[test]
fn a_file_under_another_name_is_refused_and_not_counted_twice() {
    let site = Site::new(&pipeline("in/*.jsonl"));
    site.write("in/a.jsonl", good_lines(30).concat());
    let (_, straight) = site.complete(&[]);
    fs::rename(site.path("in/a.jsonl"), site.path("in/b.jsonl")).unwrap();
    site.run(&[]).assert_refused(6, &["was=in/a.jsonl is=in/b.jsonl", "remedy"]);
    fs::rename(site.path("in/b.jsonl"), site.path("in/a.jsonl")).unwrap();
    let (_, again) = site.complete(&[]);
    again.assert_same_as(&straight, "after the old name was given back");
}

#[test]
fn a_pipe_and_the_pipelines_own_output_are_no_input() {
    let site = Site::new(&pipeline("**/*.jsonl"));
    site.write("in/a.jsonl", good_lines(30).concat());
    site.complete(&[]);
    site.run(&[])
        .assert_refused(2, &["the input includes the pipeline's own files", "part-0000000001.jsonl"]);

    let site = Site::new(&pipeline("in/*.jsonl"));
    site.write("in/a.jsonl", good_lines(3).concat());
    let pipe = site.path("in/pipe.jsonl");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.is_ok_and(|status| status.success()), "mkfifo works");
    site.run(&[]).assert_refused(2, &["not a regular file", "pipe.jsonl"]);
}

#[test]
fn an_input_that_is_another_one_is_refused() {
    let (site, straight) = with_two_checkpoints();
    let whole = fs::read(site.path("events-2.jsonl")).unwrap();
    site.write("events-2.jsonl", &whole[..whole.len() * 3 / 4]);
    site.run(&[]).assert_refused(6, &["events-2.jsonl", "shorter"]);
    let mut other = whole.clone();
    other[5] ^= 1;
    site.write("events-2.jsonl", other);
    site.run(&[]).assert_refused(6, &["events-2.jsonl", "not the one that was read before"]);
    site.write("events-2.jsonl", whole);
    site.complete(&[]).1.assert_same_as(&straight, "the input put back");
}

#[test]
fn a_wrong_pipeline_file_is_refused_with_line_reason_and_remedy() {
    let right = pipeline("events.jsonl");
    let line_of = |text: &str, needle: &str| text.lines().position(|line| line.contains(needle)).unwrap() + 1;
    for (from, to, needle, words) in [
        ("delay = ", "dealy = ", "dealy", ["dealy", "delay"]),
        ("[dead_letter]", "[dead_leter]", "dead_leter", ["dead_leter", "dead_letter"]),
        ("size = \"1m\"", "size = \"soon\"", "soon", ["size", "soon"]),
        ("[watermark]\ndelay = \"10s\"\n", "", "[[window]]", ["append needs a watermark", "delay"]),
    ] {
        let text = right.replacen(from, to, 1);
        let site = Site::new(&text);
        site.write("events.jsonl", good_lines(10).concat());
        let place = format!("pipeline.toml:{}:", line_of(&text, needle));
        site.run(&[]).assert_refused(2, &[&place, words[0], words[1]]);
        assert!(!site.path("state").exists() && !site.path("out").exists(), "a refused run left something");
    }
}

/// A small filesystem of its own; unmounted when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path, bytes: usize) -> Result<Self, String> {
        fs::create_dir(at).unwrap();
        let size = format!("size={bytes}");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(at).output();
        match mount {
            Ok(output) if output.status.success() => Ok(Self(at.to_owned())),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_stops_the_run_and_a_rerun_with_space_gives_the_straight_output() {
    let flights = |out: &str| {
        format!(
            r#"name = "full-disk"
[source]
path = {sample:?}
time = {{ field = "sched_dep", format = "rfc3339" }}
[watermark]
delay = "15m"
[state]
directory = "{out}/state"
memory = "64MiB"
[checkpoint]
interval = "20ms"
retain = 1
[[window]]
name = "routes"
key = ["carrier", "dest"]
type = "tumbling"
size = "1h"
aggregates = [{{ name = "flights", function = "count" }}]
output = {{ path = "{out}/out/routes" }}
[late]
path = "{out}/out/late"
"#,
            sample = flights_sample()
        )
    };
    let site = Site::new(&flights("."));
    let (_, straight) = site.complete(&["--quiet"]);
    let needed = straight.bytes("routes") + straight.bytes("late");
    let disk = match SmallDisk::mount(&site.path("disk"), needed + (24 << 20)) {
        Ok(disk) => disk,
        Err(reason) => return println!("skipped: no small disk can be mounted here: {}", reason.trim()),
    };
    site.write("pipeline.toml", flights("disk"));
    // Full at three different places: at the very start, early, and late.
    for (spare, what) in [(64 << 10, "the start"), (2 << 20, "early"), (needed * 3 / 4, "late")] {
        let ballast = needed + (24 << 20) - spare;
        site.write("disk/ballast", vec![0; ballast]);
        let full = site.run(&["--quiet"]);
        full.assert_refused(3, &["disk/", "No space left on device", "space"]);
        fs::remove_file(site.path("disk/ballast")).unwrap();
        let rerun = site.run(&["--quiet"]).summary();
        assert_eq!(rerun["outcome"], "completed", "{rerun}");
        site.outputs_in("disk/out")
            .assert_same_as(&straight, &format!("after a disk that was full at {what}"));
        for name in ["disk/state", "disk/out"] {
            fs::remove_dir_all(site.path(name)).unwrap();
        }
    }
    drop(disk);
}

#[test]
fn compressed_input_that_breaks_off_is_processed_so_far_and_resumed_when_whole() {
    let site = Site::new(&pipeline("events.jsonl.zst"));
    let text = good_lines(40_000).concat();
    let packed = zstd::encode_all(text.as_bytes(), 1).unwrap();
    site.write("events.jsonl.zst", &packed);
    let (_, straight) = site.complete(&[]);
    site.reset();
    site.write("events.jsonl.zst", &packed[..packed.len() * 2 / 3]);
    site.run(&[]).assert_refused(2, &["cut short or damaged", "events.jsonl.zst", "line="]);
    site.write("events.jsonl.zst", &packed);
    site.complete(&[]).1.assert_same_as(&straight, "the whole file put in place");
}
