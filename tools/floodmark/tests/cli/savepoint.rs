//! Savepoints from outside: a pipeline goes on from one elsewhere, or forks from it, and what comes out is what would have
//! come out.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use floodmark::fault;
use rustix::process::Signal;
use serde_json::Value as Json;

use crate::support::{Ended, Outputs, Running, Site, flights_sample, unpacked, wait_until};

const SIGKILL: i32 = 9;
const OFTEN: &str = "interval = \"1h\"\nbytes = \"128KiB\"";
const SAMPLE: &str = "flights-*.jsonl";

/// Panes of several operators, with rows that are revised. `out` is where its outputs go.
fn pipeline(name: &str, source: &str, state: &str, checkpoint: &str, out: &str) -> String {
    format!(
        r#"name = "{name}"
[source]
path = "{source}"
format = "jsonl"
time = {{ field = "sched_dep", format = "rfc3339" }}
[watermark]
delay = "15m"
[state]
directory = "{state}"
[checkpoint]
{checkpoint}
[[window]]
name = "hourly"
key = ["origin"]
type = "tumbling"
size = "1h"
allowed_lateness = "1h"
aggregates = [
  {{ name = "flights", function = "count" }},
  {{ name = "delay_sum", function = "sum", field = "dep_delay", type = "int" }},
]
output = {{ path = "{out}/hourly" }}
[[window]]
name = "aircraft"
key = ["tailnum"]
type = "tumbling"
size = "3d"
mode = "update"
aggregates = [{{ name = "farthest", function = "max", field = "distance", type = "int" }}]
output = {{ path = "{out}/aircraft", format = "csv" }}
[late]
path = "{out}/late"
"#
    )
}

/// A site with the sample in two files, which share its days.
fn site(checkpoint: &str) -> Site {
    let site = Site::in_memory(&pipeline("flights", SAMPLE, "state", checkpoint, "out"));
    let text = unpacked(&flights_sample());
    let lines: Vec<&[u8]> = text.split_inclusive(|&byte| byte == b'\n').collect();
    for (file, parity) in [("flights-a.jsonl", 0), ("flights-b.jsonl", 1)] {
        let own = lines.iter().enumerate().filter(|(index, _)| index % 2 == parity).map(|(_, line)| *line);
        site.write(file, own.collect::<Vec<_>>().concat());
    }
    site
}

fn command(site: &Site, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodmark"));
    command.args(arguments).current_dir(site.path("."));
    command.env_remove("FLOODMARK_FAULT").env_remove("FLOODMARK_LOG");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The command with `--json`, in the directory of the site.
fn floodmark(site: &Site, arguments: &[&str]) -> Ended {
    Ended::of(command(site, arguments).arg("--json").output().unwrap())
}

fn verify(site: &Site, path: &str) -> Json {
    let verified = floodmark(site, &["inspect", "verify", path]).summary();
    assert_eq!(verified[0]["sound"], true, "{verified}");
    verified[0].clone()
}

/// Kills a run at its `nth` pass of a fault point.
fn killed(site: &Site, point: &str, nth: u64) {
    assert_eq!(site.run_with_fault(&format!("{point}:kill:{nth}")).signal, Some(SIGKILL));
}

/// Points the pipeline at another state directory, the outputs stay.
fn moved_pipeline(site: &Site, file: &str, state: &str) {
    site.write(file, pipeline("flights", SAMPLE, state, OFTEN, "out"));
}

#[test]
fn a_killed_pipeline_goes_on_elsewhere_from_its_savepoint_and_its_output_is_that_of_one_run() {
    let site = site(OFTEN);
    let (_, straight) = site.complete(&["--quiet"]);
    // Killed with output staged and not published, in the midst of a checkpoint, and with output published.
    for (point, nth) in [("sink.publish.before", 3), ("checkpoint.manifest.before", 3), ("retain.after", 2)] {
        site.reset();
        killed(&site, point, nth);
        let made = floodmark(
            &site,
            &["savepoint", "create", "pipeline.toml", "--name", "last", "--to", "backup/last"],
        );
        assert_eq!(made.summary()["name"], "last");
        verify(&site, "backup/last");
        // The machine is gone.
        fs::remove_dir_all(site.path("state")).unwrap();
        let done =
            floodmark(&site, &["restore", "--from", "backup/last", "--state", "state-2", "--move"]).summary();
        assert_eq!(
            (&done["origin"]["kind"], &done["origin"]["savepoint"]),
            (&"moved".into(), &"last".into())
        );
        moved_pipeline(&site, "moved.toml", "state-2");
        let ran = floodmark(&site, &["run", "moved.toml"]).summary();
        assert_eq!((&ran["outcome"], &ran["start"]["epoch"]), (&"completed".into(), &done["epoch"]), "{ran}");
        site.outputs().assert_same_as(&straight, point);
        for left in ["backup", "state-2"] {
            fs::remove_dir_all(site.path(left)).unwrap();
        }
    }
}

#[test]
fn a_move_to_an_older_savepoint_sets_later_output_aside_and_fences_the_original_out() {
    let site = site(OFTEN);
    let (_, straight) = site.complete(&["--quiet"]);
    site.reset();
    killed(&site, "retain.after", 2);
    floodmark(&site, &["savepoint", "create", "pipeline.toml", "--name", "older", "--note", "a reason"])
        .summary();
    killed(&site, "retain.after", 2);
    let before = site.epochs();
    let listed = floodmark(&site, &["savepoint", "list", "pipeline.toml"]).summary();
    let row = &listed["savepoints"][0];
    assert_eq!(
        (&row["name"], &row["note"], &row["epoch"]),
        (&"older".into(), &"a reason".into(), &2.into()),
        "{row}"
    );
    floodmark(&site, &["restore", "--from", "state/savepoints/older", "--state", "state-2", "--move"])
        .summary();
    moved_pipeline(&site, "moved.toml", "state-2");
    floodmark(&site, &["run", "moved.toml"]).assert_refused(6, &["ahead of the restored checkpoint"]);
    // Cut before its first checkpoint, and started again.
    let mut run = command(&site, &["run", "moved.toml", "--set-aside-output"]);
    let ended = Ended::of(run.env("FLOODMARK_FAULT", "checkpoint.link.before:kill:1").output().unwrap());
    assert_eq!(ended.signal, Some(SIGKILL));
    let mut run = command(&site, &["run", "moved.toml"]);
    let ended = Ended::of(run.env("FLOODMARK_FAULT", "retain.after:kill:1").output().unwrap());
    assert_eq!(ended.signal, Some(SIGKILL), "{}", ended.stderr);
    let ran = floodmark(&site, &["run", "moved.toml"]).summary();
    assert!(ran["start"]["epoch"].as_u64() > before.last().copied(), "epochs are never used again: {ran}");
    site.outputs().assert_same_as(&straight, "moved to an older savepoint");
    site.run(&[]).assert_refused(4, &["a newer run owns this output"]);
    site.outputs().assert_same_as(&straight, "the original changes nothing");
}

/// Concatenated parts of an output from epochs after `epoch`.
fn after(site: &Site, out: &str, output: &str, epoch: u64) -> Vec<u8> {
    let dir = site.path(out).join(output);
    let mut names: Vec<String> = fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| {
            name.strip_prefix("part-").is_some_and(|rest| rest[..10].parse::<u64>().unwrap() > epoch)
        })
        .collect();
    names.sort();
    names.iter().flat_map(|name| fs::read(dir.join(name)).unwrap()).collect()
}

#[test]
fn a_fork_yields_what_the_original_yields_from_the_savepoint_on_and_never_writes_beside_it() {
    let site = site(OFTEN);
    // Output of the epoch is staged, and the original publishes it.
    killed(&site, "sink.publish.before", 3);
    let done = floodmark(
        &site,
        &["restore", "--from", "state", "--state", "fork", "--as-fork", "--name", "what-if"],
    );
    let done = done.summary();
    let epoch = done["epoch"].as_u64().unwrap();
    assert!(done["rows_left_to_original"].as_u64().unwrap() > 0 && done["staged_rows"] == 0, "{done}");
    site.write("beside.toml", pipeline("what-if", SAMPLE, "fork", OFTEN, "out"));
    floodmark(&site, &["run", "beside.toml"]).assert_refused(6, &["belongs to another state", "out/"]);
    site.write("misnamed.toml", pipeline("flights", SAMPLE, "fork", OFTEN, "out-fork"));
    floodmark(&site, &["run", "misnamed.toml"]).assert_refused(6, &["belongs to another pipeline"]);
    // Other checkpoints, so other parts.
    let rarely = "interval = \"1h\"\nbytes = \"3MiB\"";
    site.write("fork.toml", pipeline("what-if", SAMPLE, "fork", rarely, "out-fork"));
    let ran = floodmark(&site, &["run", "fork.toml"]).summary();
    assert_eq!((&ran["outcome"], &ran["start"]["epoch"]), (&"completed".into(), &epoch.into()), "{ran}");
    let (original, _) = site.complete(&["--quiet"]);
    assert_eq!(ran["total"], original["total"]);
    for output in ["hourly", "aircraft"] {
        let (theirs, own) = (after(&site, "out", output, epoch), after(&site, "out-fork", output, 0));
        assert!(!theirs.is_empty() && theirs == own, "{output}: {} and {} bytes", theirs.len(), own.len());
    }
    let listed = floodmark(&site, &["savepoint", "list", "fork.toml"]).summary();
    assert_eq!(
        (&listed["origin"]["kind"], &listed["origin"]["pipeline"]),
        (&"forked".into(), &"flights".into())
    );
}

#[test]
fn savepoints_are_taken_while_a_pipeline_runs_and_keeps_one_checkpoint() {
    let site = site("interval = \"5ms\"\nbytes = \"64KiB\"\nretain = 1");
    let mut running = Running::start(site.command(&["--rate", "40000"]));
    wait_until("there is a checkpoint", || !site.epochs().is_empty());
    let mut names = Vec::new();
    while running.child().try_wait().unwrap().is_none() && names.len() < 6 {
        let name = format!("s{}", names.len());
        let made = floodmark(&site, &["savepoint", "create", "--state", "state", "--name", &name]);
        assert_eq!(made.code, Some(0), "{}", made.stderr);
        names.push(name);
        floodmark(&site, &["restore", "--from", "state", "--state", "m", "--move"])
            .assert_refused(4, &["a process runs on the original", "stop the original", "make a fork"]);
    }
    assert_eq!(running.wait().summary()["outcome"], "completed");
    assert!(!names.is_empty());
    assert_eq!(site.epochs().len(), 1);
    for name in &names {
        let path = format!("state/savepoints/{name}");
        assert!(verify(&site, &path)["epoch"].as_u64() < site.epochs().last().copied());
        let shown = floodmark(&site, &["inspect", "show", &path]).summary();
        assert!(shown["epoch"].is_u64(), "{shown}");
    }
    floodmark(&site, &["savepoint", "delete", "pipeline.toml", "--name", "s0"]).summary();
    floodmark(&site, &["savepoint", "delete", "pipeline.toml", "--name", "s0"])
        .assert_refused(2, &["no savepoint of this name"]);
}

#[test]
fn a_stop_keeps_the_last_checkpoint_as_a_savepoint() {
    let text = unpacked(&flights_sample());
    let site = Site::in_memory(&pipeline("flights", "-", "state", "interval = \"1h\"", "out"));
    let mut run = site.command(&["--savepoint-on-stop", "stopped"]);
    let mut running = Running::start({
        run.stdin(Stdio::piped());
        run
    });
    running.child().stdin.as_mut().unwrap().write_all(&text[..text.len() / 2]).unwrap();
    let stdin = running.child().stdin.take();
    running.signal(Signal::TERM);
    let ended = running.wait();
    drop(stdin);
    let summary = ended.summary();
    assert_eq!(summary["outcome"], "stopped", "{summary}");
    assert!(ended.stderr.contains("savepoints/stopped"), "{}", ended.stderr);
    assert_eq!(verify(&site, "state/savepoints/stopped")["epoch"], summary["checkpoints"]["last_epoch"]);
    site.run(&["--savepoint-on-stop", "stopped"]).assert_refused(2, &["a savepoint of this name already"]);
    site.run(&["--savepoint-on-stop", "../x"]).assert_refused(2, &["no name of a savepoint"]);
}

#[test]
fn what_cannot_be_a_savepoint_or_a_restore_is_refused_and_leaves_nothing() {
    let site = site("interval = \"1h\"");
    let create = |name: &str| floodmark(&site, &["savepoint", "create", "--state", "state", "--name", name]);
    site.complete(&["--quiet"]);
    for name in ["../x", "a/b", "", "..", "chk-0000000001", "a.b"] {
        create(name).assert_refused(2, &["no name of a savepoint"]);
    }
    assert!(!site.path("x").exists() && !site.path("state/savepoints").exists());
    create("a").summary();
    create("a").assert_refused(2, &["under this name already"]);
    // Move or fork has to be said.
    let ended = floodmark(&site, &["restore", "--from", "state", "--state", "n"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("--move") && ended.stderr.contains("--as-fork"), "{}", ended.stderr);
    floodmark(&site, &["restore", "--from", "state", "--state", "out", "--move"])
        .assert_refused(2, &["under this name already"]);
    floodmark(&site, &["restore", "--from", "state", "--at", "9", "--state", "n", "--move"])
        .assert_refused(2, &["no such checkpoint"]);
    let table = fs::read_dir(site.path("state/savepoints/a/db")).unwrap().map(|entry| entry.unwrap().path());
    let current = table.into_iter().find(|path| path.ends_with("CURRENT")).unwrap();
    fs::write(&current, "x").unwrap();
    floodmark(&site, &["restore", "--from", "state/savepoints/a", "--state", "n", "--move"])
        .assert_refused(5, &["checkpoint is damaged", "CURRENT"]);
    assert!(!site.path("n").exists() && !site.path(".n.tmp").exists());
}

#[test]
fn a_fault_at_every_point_of_savepoint_and_restore_leaves_it_whole_or_not_there() {
    let site = site(OFTEN);
    killed(&site, "retain.after", 3);
    let create = ["savepoint", "create", "--state", "state", "--name", "a"];
    let delete = ["savepoint", "delete", "--state", "state", "--name", "a"];
    let restore = ["restore", "--from", "state", "--state", "new", "--move"];
    let points = fault::SAVEPOINT_POINTS.iter();
    for point in points {
        for action in ["kill", "error"] {
            let (arguments, path): (&[&str], &str) = match point {
                point if point.starts_with("savepoint.delete") => (&delete, "state/savepoints/a"),
                point if point.starts_with("savepoint") => (&create, "state/savepoints/a"),
                _ => (&restore, "new"),
            };
            if arguments == delete {
                floodmark(&site, &create).summary();
            }
            let mut armed = command(&site, arguments);
            let ended =
                Ended::of(armed.env("FLOODMARK_FAULT", format!("{point}:{action}")).output().unwrap());
            match action {
                "kill" => assert_eq!(ended.signal, Some(SIGKILL), "{point} was not passed: {}", ended.stderr),
                _ => assert_eq!(ended.code, Some(3), "{point}: {}", ended.stderr),
            }
            let target = site.path(path);
            let checkpoint = if path == "new" { "new" } else { "state/savepoints/a" };
            if target.exists() {
                verify(&site, checkpoint);
                fs::remove_dir_all(&target).unwrap();
            }
            if arguments != delete {
                floodmark(&site, arguments).summary();
                verify(&site, checkpoint);
                fs::remove_dir_all(&target).unwrap();
            }
            let left = |dir: &Path| {
                fs::read_dir(dir).unwrap().any(|entry| {
                    let name = entry.unwrap().file_name().into_string().unwrap();
                    name.starts_with('.') && name.ends_with(".tmp")
                })
            };
            assert!(!left(&site.path("state/savepoints")) && !left(&site.path(".")), "{point} {action}");
        }
    }
    // A start sweeps what a cut deletion left.
    site.complete(&["--quiet"]);
    assert_eq!(fs::read_dir(site.path("state/savepoints")).unwrap().count(), 0);
}

#[test]
fn partitions_may_be_renamed_added_or_given_up_when_that_is_said() {
    let site = site(OFTEN);
    let (_, straight) = site.complete(&["--quiet"]);
    site.reset();
    killed(&site, "retain.after", 3);
    let restore = |more: &[&str]| {
        let arguments =
            ["restore", "--from", "state", "--state", "new", "--move", "--pipeline", "pipeline.toml"];
        floodmark(&site, &[&arguments[..], more].concat())
    };
    moved_pipeline(&site, "moved.toml", "new");
    let (b, c) = (site.path("flights-b.jsonl"), site.path("flights-c.jsonl"));
    fs::rename(&b, &c).unwrap();
    restore(&[])
        .assert_refused(6, &["was=flights-b.jsonl is=flights-c.jsonl", "--accept-renamed-partitions"]);
    let saved = site.path("saved");
    copy_tree(&site.path("out"), &saved);
    let done = restore(&["--accept-renamed-partitions"]).summary();
    assert_eq!(
        done["partitions"]["renamed"],
        serde_json::json!([["flights-b.jsonl", "flights-c.jsonl"]]),
        "{done}"
    );
    assert_eq!(floodmark(&site, &["run", "moved.toml"]).summary()["outcome"], "completed");
    let found = site.outputs();
    for output in ["hourly", "aircraft"] {
        assert!(found.lines(output) == straight.lines(output), "{output}: a partition has another name");
    }
    // The late output says where a record was read.
    let named = |lines: Vec<String>| lines.concat().replace("flights-c.jsonl", "flights-b.jsonl");
    assert!(named(found.lines("late")) == named(straight.lines("late")));

    fs::remove_dir_all(site.path("new")).unwrap();
    fs::remove_dir_all(site.path("out")).unwrap();
    fs::rename(&saved, site.path("out")).unwrap();
    fs::remove_file(&c).unwrap();
    restore(&[])
        .assert_refused(6, &["gone before they were read", "name=flights-b.jsonl", "nobody can tell"]);
    site.write("flights-d.jsonl", "");
    let done = restore(&["--allow-missing-partitions"]).summary();
    let plan = &done["partitions"];
    assert_eq!(
        (&plan["dropped"][0]["name"], &plan["added"][0]),
        (&"flights-b.jsonl".into(), &"flights-d.jsonl".into())
    );
    let read = plan["dropped"][0]["read_records"].as_u64().unwrap();
    let ran = floodmark(&site, &["run", "moved.toml"]).summary();
    let whole = fs::read_to_string(site.path("flights-a.jsonl")).unwrap().lines().count() as u64;
    assert_eq!(ran["total"]["events"].as_u64(), Some(whole + read), "{ran}");
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Outputs are compared as a whole everywhere above.
#[test]
fn outputs_that_differ_are_noticed_by_these_tests() {
    let site = site("interval = \"1h\"");
    let (_, straight): (Json, Outputs) = site.complete(&["--quiet"]);
    assert!(straight.bytes("hourly") > 100_000 && straight.bytes("aircraft") > 100_000);
}
