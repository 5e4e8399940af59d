//! The same input, run straight and run with kills, faults and signals, gives the same bytes.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use floodmark::fault;
use rustix::process::Signal;

use crate::support::{Ended, Outputs, Random, Running, Site, flights_sample, unpacked};

const SIGKILL: i32 = 9;
/// Exit code when the machine is in the way.
const UNAVAILABLE: i32 = 3;
/// From so many rounds on it is no accident if hardly one of them restored a checkpoint.
const ROUNDS_TELLING: u32 = 12;

/// Few panes: three airports, one hour open at a time.
const BY_ORIGIN: &str = r#"
[[window]]
name = "hourly"
key = ["origin"]
type = "tumbling"
size = "1h"
aggregates = [
  { name = "flights", function = "count" },
  { name = "delay_sum", function = "sum", field = "dep_delay", type = "int" },
  { name = "delay_min", function = "min", field = "dep_delay", type = "int" },
  { name = "delay_max", function = "max", field = "dep_delay", type = "int" },
  { name = "delay_avg", function = "avg", field = "dep_delay", type = "int" },
]
output = { path = "out/hourly" }
"#;

/// Many panes, three operators, firings that are revised: everything that a checkpoint has to carry.
const BY_ROUTE: &str = r#"
[[window]]
name = "routes"
key = ["carrier", "dest"]
type = "tumbling"
size = "6h"
allowed_lateness = "2h"
aggregates = [
  { name = "flights", function = "count" },
  { name = "delay_sum", function = "sum", field = "dep_delay", type = "int" },
  { name = "delay_avg", function = "avg", field = "dep_delay", type = "int" },
]
output = { path = "out/routes", format = "csv" }

[[window]]
name = "aircraft"
key = ["tailnum"]
type = "tumbling"
size = "3d"
mode = "update"
aggregates = [
  { name = "flights", function = "count" },
  { name = "farthest", function = "max", field = "distance", type = "int" },
]
output = { path = "out/aircraft" }

[[window]]
name = "legs"
key = ["tailnum"]
type = "tumbling"
size = "3d"
trigger = { count = 3 }
accumulation = "discarding"
aggregates = [{ name = "distance", function = "sum", field = "distance", type = "int" }]
output = { path = "out/legs" }
"#;

/// A pipeline that makes checkpoints as often as it can.
fn pipeline(source: &str, checkpoint: &str, windows: &str) -> String {
    format!(
        r#"name = "crash"

[source]
{source}
time = {{ field = "sched_dep", format = "rfc3339", min = "2013-01-01T00:00:00Z", max = "2016-01-01T00:00:00Z" }}

[watermark]
delay = "15m"

[state]
directory = "state"
memory = "64MiB"

[checkpoint]
{checkpoint}
{windows}
[late]
path = "out/late"

[dead_letter]
path = "out/rejected"
"#
    )
}

const OFTEN: &str = "interval = \"5ms\"\nbytes = \"64KiB\"\nretain = 1";
const NEVER: &str = "interval = \"1h\"";

fn sample() -> String {
    format!("path = {:?}", flights_sample())
}

/// The sample, and the same flights again two years later, which makes the run longer. With a broken line here and
/// there, so that the dead-letter output takes part too.
fn two_years_with_rubbish() -> Vec<u8> {
    let year = String::from_utf8(unpacked(&flights_sample())).unwrap();
    let later = year.replace(":\"2013-", ":\"2015-");
    let text = [year, later].concat().into_bytes();
    let mut with = Vec::with_capacity(text.len() + (64 << 10));
    for (index, line) in text.split_inclusive(|&byte| byte == b'\n').enumerate() {
        if index % 97 == 41 {
            with.extend_from_slice(format!("{{\"sched_dep\":\"no time {index}\n").as_bytes());
        }
        with.extend_from_slice(line);
    }
    with
}

/// Kills runs of `site` at random moments, each time again until one completes, round after round.
fn kill_at_random(site: &Site, straight: &Outputs, straight_time: Duration, kills: u32, random: &mut Random) {
    let (mut killed, mut rounds, mut resumed, mut epochs) = (0, 0, 0, 0);
    while killed < kills {
        site.reset();
        let mut in_a_row = 0;
        let ended = loop {
            let running = Running::start(site.command(&["--quiet"]));
            // Later and later in one round, so that a machine that starts processes slowly gets done.
            std::thread::sleep(random.time_below(straight_time * (4 + in_a_row) / 5));
            let ended = running.kill();
            if ended.signal != Some(SIGKILL) {
                break ended;
            }
            in_a_row += 1;
        };
        let summary = ended.summary();
        site.outputs().assert_same_as(straight, &format!("after {in_a_row} kills"));
        killed += in_a_row;
        rounds += 1;
        resumed += u32::from(!summary["start"]["epoch"].is_null());
        epochs += summary["checkpoints"]["last_epoch"].as_u64().unwrap();
    }
    println!(
        "{killed} kills, {rounds} rounds, {resumed} ended on a restored checkpoint, {epochs} checkpoints"
    );
    if rounds >= ROUNDS_TELLING {
        let rarely = "kills come before the first checkpoint";
        assert!(resumed * 3 >= rounds, "{rarely}: {resumed} of {rounds} rounds resumed");
    }
}

fn survives_kills(test: &str, site: &Site, kills: u32) {
    let mut random = Random::seeded(test);
    let (summary, straight) = site.complete(&["--quiet"]);
    site.reset();
    // Once more, warm: it tells how long a run takes, and that two straight runs agree.
    let started = Instant::now();
    let (_, again) = site.complete(&["--quiet"]);
    let straight_time = started.elapsed();
    again.assert_same_as(&straight, "a second straight run");
    println!("{test}: straight run {straight_time:?}, {} checkpoints", summary["checkpoints"]["count"]);
    assert!(straight.bytes("late") > 0, "the input has no late events");
    kill_at_random(site, &straight, straight_time, kills * depth(), &mut random);
}

/// `cargo xtask deep` kills ten times as often.
fn depth() -> u32 {
    if std::env::var_os("FLOODMARK_DEEP").is_some() { 10 } else { 1 }
}

#[test]
fn flights_by_airport_survive_kills_at_any_moment() {
    let site = Site::in_memory(&pipeline(&sample(), OFTEN, BY_ORIGIN));
    survives_kills("flights_by_airport_survive_kills_at_any_moment", &site, 60);
}

#[test]
fn flights_by_airport_survive_kills_on_a_disk() {
    let site = Site::new(&pipeline(&sample(), OFTEN, BY_ORIGIN));
    survives_kills("flights_by_airport_survive_kills_on_a_disk", &site, 10);
}

#[test]
fn flights_by_route_and_aircraft_survive_kills_at_any_moment() {
    let site =
        Site::in_memory(&pipeline("path = \"flights-*.jsonl\"\npartitions = \"single\"", OFTEN, BY_ROUTE));
    // In several files: a kill may come between the end of one and the beginning of the next.
    let text = two_years_with_rubbish();
    let lines: Vec<&[u8]> = text.split_inclusive(|&byte| byte == b'\n').collect();
    for (index, lines) in lines.chunks(3_000).enumerate() {
        site.write(&format!("flights-{index:03}.jsonl"), lines.concat());
    }
    survives_kills("flights_by_route_and_aircraft_survive_kills_at_any_moment", &site, 60);
    assert!(site.outputs().bytes("rejected") > 0, "the input has no broken lines");
}

#[test]
fn any_number_of_workers_gives_the_same_bytes_also_when_it_changes_at_a_restart() {
    let with = |workers: usize| {
        let windows = [BY_ORIGIN, BY_ROUTE].concat();
        let text = pipeline(&sample(), OFTEN, &windows);
        text.replace("memory = \"64MiB\"", &format!("memory = \"64MiB\"\nworkers = {workers}"))
    };
    let site = Site::in_memory(&with(1));
    let (_, straight) = site.complete(&["--quiet"]);
    for workers in 2..=8 {
        site.reset();
        site.write("pipeline.toml", with(workers));
        let ended = site.run_with_fault("checkpoint.publish.after:kill:2");
        assert_eq!(ended.signal, Some(SIGKILL), "{}", ended.stderr);
        site.write("pipeline.toml", with(9 - workers));
        let (summary, outputs) = site.complete(&["--quiet"]);
        assert!(!summary["start"]["epoch"].is_null());
        outputs.assert_same_as(&straight, &format!("{workers} workers, then {}", 9 - workers));
    }
}

#[test]
fn a_fault_at_every_point_leaves_nothing_lost_and_nothing_doubled() {
    let site = Site::in_memory(&pipeline(&sample(), OFTEN, BY_ORIGIN));
    let (_, straight) = site.complete(&["--quiet"]);
    for point in fault::POINTS {
        for (action, nth) in [("kill", 1), ("kill", 3), ("error", 1), ("error", 3)] {
            let fault = format!("{point}:{action}:{nth}");
            site.reset();
            let ended = site.run_with_fault(&fault);
            assert_hit(&ended, &fault, action);
            let (_, outputs) = site.complete(&["--quiet"]);
            outputs.assert_same_as(&straight, &fault);
        }
    }
}

/// A run is slowed down at one point and killed at another, and the next one is killed at a third before it gets far:
/// each point in each place. The quick suite takes every point with a few partners, `cargo xtask deep` with all.
#[test]
fn faults_in_pairs_leave_nothing_lost_and_nothing_doubled() {
    let site = Site::in_memory(&pipeline(&sample(), OFTEN, BY_ORIGIN));
    let (_, straight) = site.complete(&["--quiet"]);
    let mut random = Random::seeded("faults_in_pairs_leave_nothing_lost_and_nothing_doubled");
    let points = fault::POINTS;
    let partners = if depth() > 1 { points.len() } else { 2 };
    for (at, first) in points.iter().enumerate() {
        let turn = random.next() as usize;
        for partner in 0..partners {
            let second = points[(at + turn + partner * 7) % points.len()];
            let slowed = points[(at + turn + partner) % points.len()];
            let action = ["kill", "error"][partner % 2];
            let faults = format!("{slowed}:delay:1,{first}:{action}:2");
            site.reset();
            let ended = site.run_with_fault(&faults);
            assert_hit(&ended, &faults, action);
            let again = format!("{second}:kill:1");
            // Where the first run came to its end all but for a publication, nothing may be left to pass.
            let ended = site.run_with_fault(&again);
            assert!(ended.signal == Some(SIGKILL) || ended.code == Some(0), "{again}: {}", ended.stderr);
            let (_, outputs) = site.complete(&["--quiet"]);
            outputs.assert_same_as(&straight, &format!("{faults}, then {again}"));
        }
    }
}

#[test]
fn a_delay_at_every_point_changes_nothing() {
    let site = Site::in_memory(&pipeline(&sample(), OFTEN, BY_ORIGIN));
    let (_, straight) = site.complete(&["--quiet"]);
    let all: Vec<String> = fault::POINTS.iter().map(|point| format!("{point}:delay:2")).collect();
    site.reset();
    let ended = site.run_with_fault(&all.join(","));
    assert_eq!(ended.summary()["outcome"], "completed");
    site.outputs().assert_same_as(&straight, "every point was slow once");
}

fn assert_hit(ended: &Ended, fault: &str, action: &str) {
    let Ended { code, signal, stderr, .. } = ended;
    match action {
        "kill" => {
            assert_eq!(*signal, Some(SIGKILL), "{fault} was not passed: code={code:?} stderr:\n{stderr}")
        }
        _ => {
            assert_eq!(*code, Some(UNAVAILABLE), "{fault}: signal={signal:?} {stderr}");
            assert!(stderr.contains("injected fault"), "{fault}: the cause is not told:\n{stderr}");
        }
    }
}

/// A run that has read all of `text` from standard input and waits for more.
fn start_and_feed(site: &Site, text: &[u8], fault: Option<&str>) -> Running {
    let mut command = site.command(&[]);
    command.stdin(Stdio::piped()).env("FLOODMARK_LOG", "info");
    if let Some(fault) = fault {
        command.env("FLOODMARK_FAULT", fault);
    }
    let mut running = Running::start(command);
    match running.child().stdin.as_mut().unwrap().write_all(text) {
        // It has ended before it read all; the caller sees how.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        other => other.unwrap(),
    }
    running
}

/// Feeds all of `text` and waits for the end.
fn feed_to_the_end(site: &Site, text: &[u8]) -> Ended {
    let mut running = start_and_feed(site, text, None);
    drop(running.child().stdin.take());
    running.wait()
}

fn from_standard_input(checkpoint: &str) -> Site {
    Site::in_memory(&pipeline("path = \"-\"\nformat = \"jsonl\"", checkpoint, BY_ORIGIN))
}

#[test]
fn a_terminated_run_makes_a_last_checkpoint_and_is_resumed() {
    let text = unpacked(&flights_sample());
    let site = from_standard_input(NEVER);
    assert_eq!(feed_to_the_end(&site, &text).summary()["outcome"], "completed");
    let straight = site.outputs();
    site.reset();
    for (share, signal) in [(3, Signal::TERM), (2, Signal::INT)] {
        let before = site.epochs().last().copied();
        let mut running = start_and_feed(&site, &text[..text.len() / share], None);
        // Kept open: the run must not wait for the next line, nor take this for the end.
        let stdin = running.child().stdin.take();
        running.signal(signal);
        let summary = running.wait().summary();
        drop(stdin);
        assert_eq!(summary["outcome"], "stopped", "{summary}");
        assert!(site.epochs().last().copied() > before, "no last checkpoint: {summary}");
        assert!(site.outputs().bytes("hourly") > 0, "nothing was published");
    }
    let summary = feed_to_the_end(&site, &text).summary();
    assert_eq!(
        (&summary["start"]["epoch"], &summary["outcome"]),
        (&2.into(), &"completed".into()),
        "{summary}"
    );
    site.outputs().assert_same_as(&straight, "after two stops");
}

#[test]
fn another_stream_on_standard_input_is_not_taken_for_the_one_that_was_read() {
    let text = unpacked(&flights_sample());
    let site = from_standard_input(NEVER);
    let mut running = start_and_feed(&site, &text[..text.len() / 2], None);
    let stdin = running.child().stdin.take();
    running.signal(Signal::TERM);
    assert_eq!(running.wait().summary()["outcome"], "stopped");
    drop(stdin);
    let published = site.outputs();
    let mut other = text.clone();
    other[20] ^= 1;
    let words = [
        "standard input",
        "not the one that was read before",
        "pipe the same stream again from its first byte",
    ];
    feed_to_the_end(&site, &other).assert_refused(6, &words);
    feed_to_the_end(&site, &text[..1_000]).assert_refused(6, &["standard input"]);
    site.outputs().assert_same_as(&published, "refused streams change nothing");
    assert_eq!(feed_to_the_end(&site, &text).summary()["outcome"], "completed");
}

#[test]
fn a_second_signal_ends_the_run_at_once_and_loses_nothing() {
    let text = unpacked(&flights_sample());
    let site = from_standard_input(NEVER);
    assert_eq!(feed_to_the_end(&site, &text).summary()["outcome"], "completed");
    let straight = site.outputs();
    let mut impatient = 0;
    for _ in 0..10 {
        site.reset();
        // The last checkpoint takes 200 ms, which leaves time to become impatient in.
        let fault = "checkpoint.manifest.before:delay:1";
        let ended = terminate_twice(start_and_feed(&site, &text[..text.len() / 2], Some(fault)));
        assert!(matches!(ended, Some(0 | 130)), "{ended:?}");
        assert_eq!(feed_to_the_end(&site, &text).summary()["outcome"], "completed");
        site.outputs().assert_same_as(&straight, "after two signals");
        impatient += usize::from(ended == Some(130));
        if impatient == 2 {
            return;
        }
    }
    panic!("the second signal did not end the run at once");
}

/// Signals once, and again as soon as the first has been taken notice of. Returns the exit code.
fn terminate_twice(mut running: Running) -> Option<i32> {
    let stderr = BufReader::new(running.child().stderr.take().unwrap());
    running.signal(Signal::TERM);
    let mut lines = stderr.lines().map(Result::unwrap);
    lines
        .find(|line| line.contains("stopping after a last checkpoint"))
        .expect("the signal is taken notice of");
    running.signal(Signal::TERM);
    lines.for_each(drop);
    running.wait().code
}

/// A pause of the input over which sixty windows of five thousand keys stay open, between other records of all kinds.
fn a_long_pause() -> Vec<u8> {
    let mut text = String::new();
    let mut record = |minute: u32, key: u32| {
        let time = format!("2013-01-01T{:02}:{:02}:00Z", minute / 60, minute % 60);
        text.push_str(&format!("{{\"sched_dep\":\"{time}\",\"key\":\"k{key}\",\"kept\":{}}}\n", key % 3));
        if key.is_multiple_of(997) {
            text.push_str(&format!("{{\"sched_dep\":\"no time {minute} {key}\n"));
        }
    };
    (0..7_500).for_each(|key| (0..60).for_each(|minute| record(minute, key)));
    // A while in which no pane changes, so that no large checkpoint is on its way when the firing begins.
    (0..200_000).for_each(|_| record(59, 3));
    // Late for most of them, and then time goes on.
    record(1_200, 1);
    (0..2_000).for_each(|key| record(20 + key % 3, key));
    (0..2_000).for_each(|key| record(1_201 + key % 3, key));
    text.into_bytes()
}

#[test]
fn b70_a_kill_in_the_middle_of_a_long_firing_is_gone_on_from() {
    let windows = r#"
[[window]]
name = "minutes"
key = ["key"]
type = "tumbling"
size = "1m"
aggregates = [{ name = "n", function = "count" }]
output = { path = "out/minutes", metadata = true }
"#;
    let source = "path = \"pause.jsonl\"\nfilter = [{ field = \"kept\", min = 1 }]";
    let text = pipeline(source, OFTEN, windows).replace("delay = \"15m\"", "delay = \"3h\"");
    let site = Site::in_memory(&text);
    site.write("pause.jsonl", a_long_pause());
    let (summary, straight) = site.complete(&["--quiet"]);
    assert!(straight.bytes("late") > 0 && straight.bytes("rejected") > 0, "{summary}");
    assert_eq!(straight.rows("minutes").len(), 60 * 5_000 + 1 + 1_333, "{summary}");
    let mut in_the_middle = 0;
    for nth in 1.. {
        site.reset();
        let ended = site.run_with_fault_at(&format!("checkpoint.publish.after:kill:{nth}"), &[]);
        if ended.signal != Some(SIGKILL) {
            break;
        }
        let newest = site.epochs().last().copied().unwrap();
        let checkpoint = site.path(&format!("state/checkpoints/chk-{newest:010}"));
        let verified = floodmark::checkpoint::verify(&checkpoint).into_verified().unwrap();
        let manifest = verified.manifest();
        in_the_middle += usize::from(manifest.operators[0].watermark < manifest.watermark);
        let (_, outputs) = site.complete(&["--quiet"]);
        outputs.assert_same_as(&straight, &format!("killed in checkpoint {newest}"));
    }
    assert!(in_the_middle > 0, "no checkpoint came in the middle of the firing");
}

/// Ten windows of 4,000 keys, all open when the input ends: more than is fired in one step.
fn all_open_at_the_end() -> Vec<u8> {
    let at = |index: u64| 1_700_000_040_000 + (index / 4_000) * 60_000;
    let line = |index: u64| format!("{{\"ts\":{},\"key\":\"k{}\"}}\n", at(index), index % 4_000);
    (0..40_000).map(line).collect::<String>().into_bytes()
}

const ALL_OPEN: &str = r#"
[[window]]
name = "minutes"
key = ["key"]
type = "tumbling"
size = "1m"
aggregates = [{ name = "n", function = "count" }]
output = { path = "out/minutes" }
"#;

fn with_all_open(checkpoint: &str) -> Site {
    let text = pipeline("path = \"all.jsonl\"", checkpoint, ALL_OPEN);
    let text = text.replace("delay = \"15m\"", "delay = \"3h\"").replace(
        "time = { field = \"sched_dep\", format = \"rfc3339\", min = \"2013-01-01T00:00:00Z\", max = \"2016-01-01T00:00:00Z\" }",
        "time = { field = \"ts\", format = \"epoch_ms\" }",
    );
    let site = Site::in_memory(&text);
    site.write("all.jsonl", all_open_at_the_end());
    site
}

#[test]
fn all_that_is_open_at_the_end_of_the_input_is_fired_however_much_it_is() {
    let site = with_all_open(NEVER);
    let (summary, straight) = site.complete(&["--quiet"]);
    assert_eq!(straight.rows("minutes").len(), 40_000, "{summary}");
    assert_eq!(summary["open_panes"], 0, "{summary}");
    // Killed in each of its checkpoints, also those that come in the middle of the last firing.
    let site = with_all_open(OFTEN);
    for nth in 1.. {
        site.reset();
        let ended = site.run_with_fault_at(&format!("checkpoint.publish.after:kill:{nth}"), &[]);
        if ended.signal != Some(SIGKILL) {
            assert!(nth > 2, "hardly a checkpoint was made");
            break;
        }
        let (_, outputs) = site.complete(&["--quiet"]);
        outputs.assert_same_as(&straight, &format!("killed in its checkpoint {nth}"));
    }
}

#[test]
fn what_comes_behind_a_checkpoint_in_the_middle_of_the_last_block_is_kept_at_a_rate_too() {
    let text = pipeline(&sample(), "interval = \"100ms\"", BY_ORIGIN);
    let text = text.replace("delay = \"15m\"", "delay = \"15m\"\nclose_at_end = false");
    let site = Site::in_memory(&text);
    let (_, straight) = site.complete(&["--quiet"]);
    let again = Site::in_memory(&text);
    let (summary, outputs) = again.complete(&["--quiet", "--rate", "30000"]);
    assert!(summary["checkpoints"]["count"].as_u64().unwrap() > 1, "{summary}");
    outputs.assert_same_as(&straight, "at a rate");
}

#[test]
fn state_and_staged_output_of_a_killed_run_are_swept() {
    let site = Site::in_memory(&pipeline(&sample(), OFTEN, BY_ORIGIN));
    assert_eq!(site.run_with_fault("checkpoint.publish.before:kill:3").signal, Some(SIGKILL));
    site.complete(&["--quiet"]);
    let left = |dir: &str| -> Vec<String> {
        let entries = fs::read_dir(site.path(dir)).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(left("out/hourly/.staging"), ["LOCK", "OWNER"]);
    assert_eq!(left("state/checkpoints").len(), 1);
}
