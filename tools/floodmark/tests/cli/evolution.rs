//! A pipeline file that changes between two runs: `check` tells, `run` takes over or refuses, and a kill in between
//! changes nothing.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use serde_json::Value as Json;

use crate::support::{Ended, Running, Site, wait_until};

const OLD: &str = r#"name = "evolution"

[source]
path = "events*.jsonl"
partitions = "single"
time = { field = "at", format = "epoch_ms" }

[watermark]
delay = "0s"
close_at_end = false

[state]
directory = "state"
memory = "64MiB"

[[window]]
name = "minutes"
key = ["shop"]
type = "tumbling"
size = "1m"
aggregates = [
  { name = "rows", function = "count" },
  { name = "sum", function = "sum", field = "amount", type = "int" },
]
output = { path = "out/minutes" }
"#;

fn lines(from: i64, to: i64) -> String {
    let line = |at: i64| {
        let shop = ["ulm", "graz", "zug"][(at % 3) as usize];
        format!("{{\"at\":{},\"shop\":\"{shop}\",\"amount\":{at},\"price\":{at}}}\n", at * 1_000)
    };
    (from..to).map(line).collect()
}

/// A pipeline that has read 90 seconds: the second minute is open.
fn begun() -> Site {
    let site = Site::in_memory(OLD);
    site.write("events-1.jsonl", lines(0, 90));
    site.complete(&[]);
    site.write("events-2.jsonl", lines(90, 150));
    site
}

fn changed(site: &Site, changes: &[(&str, &str)]) {
    let mut text = OLD.to_owned();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    site.write("pipeline.toml", text);
}

fn check(site: &Site, arguments: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodmark"));
    command.arg("check").arg(site.path("pipeline.toml")).args(arguments);
    Ended::of(command.output().unwrap())
}

fn report(site: &Site, arguments: &[&str]) -> Json {
    let ended = check(site, &[arguments, &["--json"]].concat());
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {}", ended.stderr))
}

/// Every entry below a directory: path, time of change, and bytes of files.
fn everything(directory: &Path) -> Vec<(String, i64, i64, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(path) = open.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let bytes = if metadata.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
        if metadata.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        found.push((path.display().to_string(), metadata.mtime(), metadata.mtime_nsec(), bytes));
    }
    found.sort();
    found
}

const ADDED: (&str, &str) = (
    "  { name = \"rows\"",
    "  { name = \"most\", function = \"max\", field = \"amount\", type = \"int\" },\n  { name = \"rows\"",
);
/// Columns change with the aggregates, so the rows go to parts of their own.
const ASIDE: &[&str] = &["--set-aside-output"];

#[test]
fn a_check_says_what_a_run_does_and_touches_nothing() {
    let site = begun();
    let before = everything(&site.path("state"));
    let outputs = everything(&site.path("out"));
    assert_eq!(report(&site, &[])["verdict"], "same");
    changed(&site, &[ADDED]);
    let told = report(&site, &[]);
    assert_eq!((&told["verdict"], &told["state"]["verdict"]), (&"refused".into(), &"compatible".into()));
    assert!(told["outputs"][0]["detail"].as_str().unwrap().contains("the columns of this output"), "{told}");
    let shown = check(&site, ASIDE);
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    for words in
        ["goes on, with the changes below", "max of amount (int)", "starts empty", "by 1970-01-01T00:02:00Z"]
    {
        assert!(shown.stdout.contains(words), "{words}:\n{}", shown.stdout);
    }
    changed(&site, &[("size = \"1m\"", "size = \"2m\"")]);
    let refused = check(&site, &[]);
    assert_eq!(refused.code, Some(6));
    for words in ["would be refused", "stored", "asked", "* windows"] {
        assert!(refused.stdout.contains(words), "{words}:\n{}", refused.stdout);
    }
    site.run(&[]).assert_refused(6, &["stored", "asked", "floodmark check"]);
    // `run` has taken the lock and raised the generation; `check` before it had not.
    changed(&site, &[]);
    let state = site.path("state");
    for directory in [state.clone(), state.join("checkpoints")] {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o555)).unwrap();
    }
    let now = everything(&state);
    assert_eq!(
        check(&site, &["--from", site.path("state/checkpoints/chk-0000000001").to_str().unwrap()]).code,
        Some(0)
    );
    assert_eq!(check(&site, &["--state", state.to_str().unwrap()]).code, Some(0));
    assert_eq!(everything(&state), now);
    assert_eq!(everything(&site.path("out")), outputs);
    let of = |found: &[(String, i64, i64, Vec<u8>)]| {
        let checkpoints = found.iter().filter(|(path, ..)| path.contains("/chk-"));
        checkpoints.cloned().collect::<Vec<_>>()
    };
    assert_eq!(of(&before), of(&now));
    for directory in [state.clone(), state.join("checkpoints")] {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn a_check_before_anything_ran_looks_at_the_file_alone() {
    let site = Site::in_memory(OLD);
    site.write("events-1.jsonl", lines(0, 3));
    let told = report(&site, &[]);
    assert_eq!(
        (&told["verdict"], &told["state"], &told["checkpoint"]),
        (&"same".into(), &Json::Null, &Json::Null)
    );
    assert!(!site.path("state").exists() && !site.path("out").exists());
    fs::remove_file(site.path("events-1.jsonl")).unwrap();
    assert_eq!(check(&site, &[]).code, Some(6), "there is no input");
    let absent = check(&site, &["--state", site.path("nowhere").to_str().unwrap()]);
    assert_eq!(absent.code, Some(3), "{}", absent.stderr);
}

#[test]
fn a_check_works_beside_a_running_pipeline() {
    let site = Site::in_memory(
        &OLD.replace("memory = \"64MiB\"", "memory = \"64MiB\"\n[checkpoint]\ninterval = \"50ms\""),
    );
    for file in 0..9 {
        site.write(&format!("events-{file}.jsonl"), lines(file * 100, file * 100 + 100));
    }
    let running = Running::start(site.command(&["--rate", "100"]));
    wait_until("there is a checkpoint", || !site.epochs().is_empty());
    for _ in 0..3 {
        let told = report(&site, &[]);
        assert_eq!(told["state"]["verdict"], "same", "{told}");
    }
    assert_eq!(running.kill().signal, Some(9), "the run had not ended yet");
}

#[test]
fn inputs_are_told_next_to_what_was_read_of_them() {
    let site = begun();
    let told = report(&site, &[]);
    let of = |told: &Json| -> Vec<(String, String)> {
        let text = |value: &Json| value.as_str().unwrap().to_owned();
        told["inputs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|input| (text(&input["name"]), text(&input["status"])))
            .collect()
    };
    let pair = |name: &str, status: &str| (name.to_owned(), status.to_owned());
    assert_eq!(of(&told), [pair("events-1.jsonl", "finished"), pair("events-2.jsonl", "new")]);
    site.write("events-1.jsonl", lines(7, 99));
    let told = report(&site, &[]);
    assert_eq!(told["verdict"], "refused");
    assert_eq!(of(&told)[0], pair("events-1.jsonl", "replaced"));
    fs::remove_file(site.path("events-1.jsonl")).unwrap();
    let told = report(&site, &[]);
    assert_eq!(
        (&told["verdict"], of(&told)),
        (&"same".into(), vec![pair("events-2.jsonl", "new"), pair("events-1.jsonl", "gone")],)
    );
}

#[test]
fn an_added_aggregate_is_taken_over_once_however_often_the_run_is_killed_before_its_first_checkpoint() {
    let straight = begun();
    changed(&straight, &[ADDED]);
    let (_, expected) = straight.complete(ASIDE);
    let rows = expected.rows("minutes");
    let open: Vec<&Json> = rows.iter().filter(|row| row["window_end"] == "1970-01-01T00:02:00Z").collect();
    assert_eq!(open.len(), 3);
    for row in open {
        // Twenty rows of each shop, ten of them before the change.
        assert_eq!(row["rows"], 20, "{row}");
        assert!(row["most"].as_i64().unwrap() >= 117, "{row}");
    }
    let site = begun();
    changed(&site, &[ADDED]);
    let stored = everything(&site.path("state/checkpoints"));
    for fault in ["spill.before:kill", "checkpoint.manifest.before:kill", "checkpoint.publish.before:kill"] {
        let mut command = site.command(ASIDE);
        let ended = Ended::of(command.env("FLOODMARK_FAULT", fault).output().unwrap());
        assert_eq!(ended.signal, Some(9), "{fault}: {}", ended.stderr);
        let now = everything(&site.path("state/checkpoints"));
        let old = now.iter().filter(|(path, ..)| path.contains("/chk-0000000001/"));
        let before = stored.iter().filter(|(path, ..)| path.contains("/chk-0000000001/"));
        assert!(old.eq(before), "{fault}: the old checkpoint has changed");
    }
    let (_, found) = site.complete(ASIDE);
    found.assert_same_as(&expected, "killed before the first checkpoint");
}

#[test]
fn a_window_a_column_and_a_field_keep_their_state_under_new_names() {
    let site = begun();
    let (from, to) = (
        "name = \"sum\", function = \"sum\", field = \"amount\"",
        "name = \"total\", was = \"sum\", function = \"sum\", field = \"price\", field_was = \"amount\"",
    );
    let window = ("name = \"minutes\"", "name = \"per_minute\"\nwas = \"minutes\"");
    changed(&site, &[(from, to), window]);
    let told = check(&site, ASIDE);
    assert_eq!(told.code, Some(0), "{}", told.stdout);
    assert!(told.stdout.contains("reads `price`, which was `amount`"), "{}", told.stdout);
    let (summary, outputs) = site.complete(ASIDE);
    assert_eq!(summary["total"]["results"]["per_minute"], 6, "{summary}");
    let total: i64 = outputs.rows("minutes").iter().map(|row| row["total"].as_i64().unwrap()).sum();
    assert_eq!(total, (60..120).sum::<i64>(), "the second minute, of both names");
    // The declarations may stay.
    assert_eq!(report(&site, &[])["state"]["verdict"], "same");
    // A field that is not said to be the old one is another field.
    changed(&site, &[(from, "name = \"sum\", function = \"sum\", field = \"price\"")]);
    assert_eq!(check(&begun_with(&site), &[]).code, Some(6));
}

/// The same pipeline file over a fresh state.
fn begun_with(other: &Site) -> Site {
    let site = begun();
    site.write("pipeline.toml", fs::read(other.path("pipeline.toml")).unwrap());
    site
}

#[test]
fn what_is_not_asked_for_any_more_is_given_up_only_when_told_to() {
    let site = begun();
    changed(&site, &[("  { name = \"rows\", function = \"count\" },\n", "")]);
    site.run(&[]).assert_refused(6, &["aggregate rows", "--allow-dropped"]);
    assert_eq!(check(&site, ASIDE).code, Some(6));
    assert_eq!(check(&site, &["--set-aside-output", "--allow-dropped"]).code, Some(0));
    site.complete(&["--set-aside-output", "--allow-dropped"]);
    let site = begun();
    changed(&site, &[("name = \"minutes\"", "name = \"other\""), ("out/minutes", "out/other")]);
    site.run(&[]).assert_refused(6, &["not asked for any more"]);
    let (_, outputs) = site.complete(&["--allow-dropped"]);
    let found: Vec<Json> = outputs.rows("other").iter().map(|row| row["window_end"].clone()).collect();
    // The first minute had passed; of the second it has what came after.
    assert_eq!(found, vec![Json::from("1970-01-01T00:02:00Z"); 3]);
    assert!(outputs.rows("other").iter().all(|row| row["rows"] == 10));
}

/// Everything below a directory: names, sizes and bytes.
fn contents(site: &Site) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    fn walk(directory: &Path, into: &mut Vec<(std::path::PathBuf, Vec<u8>)>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => walk(&path, into),
                false => into.push((path.clone(), fs::read(&path).unwrap())),
            }
        }
    }
    let mut found = Vec::new();
    for name in ["state", "out"] {
        if site.path(name).is_dir() {
            walk(&site.path(name), &mut found);
        }
    }
    found.sort();
    found
}

/// What is wrong, and how it is brought about.
type Damage<'a> = (&'a str, &'a dyn Fn(&Site));

#[test]
fn check_refuses_what_a_run_refuses_of_state_and_outputs_as_they_are_found() {
    let copy = |site: &Site, from: &str, to: &str| {
        let copied = Command::new("cp").arg("-a").args([site.path(from), site.path(to)]).status().unwrap();
        assert!(copied.success());
    };
    let damages: [Damage<'_>; 8] = [
        ("the state is gone, its output is not", &|site| fs::remove_dir_all(site.path("state")).unwrap()),
        ("the lineage is gone", &|site| fs::remove_file(site.path("state/LINEAGE")).unwrap()),
        ("the lineage is cut", &|site| site.write("state/LINEAGE", "FLOOD")),
        ("the state is a file", &|site| {
            fs::remove_dir_all(site.path("state")).unwrap();
            site.write("state", "what");
        }),
        ("the state is somebody else's directory", &|site| {
            fs::remove_dir_all(site.path("state")).unwrap();
            fs::remove_dir_all(site.path("out")).unwrap();
            site.write("state/notes.txt", "mine");
        }),
        ("a part is ahead", &|site| site.write("out/minutes/part-0000000500.jsonl", "{}\n")),
        ("a checkpoint has another's name", &|site| {
            let newest =
                fs::read_dir(site.path("state/checkpoints")).unwrap().map(|entry| entry.unwrap().path());
            let newest = newest.max().unwrap();
            let name = format!("state/checkpoints/{}", newest.file_name().unwrap().to_str().unwrap());
            copy(site, &name, "state/checkpoints/chk-0000000099");
        }),
        ("the output is gone", &|site| {
            // Its last rows were staged, and were not published yet.
            fs::remove_dir_all(site.path("out")).unwrap();
        }),
    ];
    for (what, damage) in damages {
        let site = begun();
        if what == "the output is gone" {
            let mut command = site.command(&["--quiet"]);
            command.env("FLOODMARK_FAULT", "sink.publish.before:kill:1");
            assert!(Ended::of(command.output().unwrap()).signal.is_some(), "{what}");
        }
        damage(&site);
        let before = contents(&site);
        let checked = report(&site, &[]);
        assert_eq!(checked["verdict"], "refused", "{what}: {checked}");
        assert_eq!(contents(&site), before, "{what}: check changes nothing");
        let run = site.run(&["--quiet"]);
        assert!(run.code.is_some_and(|code| code != 0), "{what}: {}", run.stderr);
    }
}

#[test]
fn rows_that_went_down_with_a_machine_can_be_given_up_by_name_and_number() {
    let site = begun();
    let mut command = site.command(&["--quiet"]);
    command.env("FLOODMARK_FAULT", "sink.publish.before:kill:1");
    assert!(Ended::of(command.output().unwrap()).signal.is_some());
    fs::remove_dir_all(site.path("out")).unwrap();
    site.run(&["--quiet"]).assert_refused(5, &["staged output is missing", "--accept-lost-output"]);
    let told = report(&site, &["--accept-lost-output"]);
    assert_eq!(told["verdict"], "compatible", "{told}");
    let ended = site.run(&["--quiet", "--accept-lost-output"]);
    let lost = ended.summary()["start"]["rows_given_up"].as_u64().unwrap();
    assert!(lost > 0 && ended.stderr.contains("the run goes on without them"), "{}", ended.stderr);
    assert!(told.to_string().contains(&format!("rows={lost}")), "{told}");
    // And from then on all is as ever.
    site.write("events-3.jsonl", lines(150, 300));
    let (summary, _) = site.complete(&[]);
    assert_eq!(summary["start"]["rows_given_up"], 0);
}

#[test]
fn a_run_that_one_output_refuses_has_not_touched_the_others() {
    let site = begun();
    let two = format!("{}{}", OLD, OLD[OLD.find("[[window]]").unwrap()..].replace("minutes", "others"));
    site.write("pipeline.toml", &two);
    site.write("events-3.jsonl", lines(150, 300));
    site.complete(&[]);
    // The second window's output changes its looks; the first is as it was.
    let at = two.rfind("output = {").unwrap();
    let csv = two[at..].replace("\"out/others\"", "\"out/others\", format = \"csv\"");
    site.write("pipeline.toml", format!("{}{csv}", &two[..at]));
    let owner = fs::read(site.path("out/minutes/.staging/OWNER")).unwrap();
    site.run(&["--quiet"]).assert_refused(6, &["out/others"]);
    assert_eq!(fs::read(site.path("out/minutes/.staging/OWNER")).unwrap(), owner);
}
