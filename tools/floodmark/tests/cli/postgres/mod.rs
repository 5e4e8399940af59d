//! Tables of a real server: the same rows as in files, each once, whatever is killed, and whoever else is at them.

mod laws;
mod server;

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value as Json;

use self::server::Server;
use crate::examples::Examples;
use crate::support::{Ended, Random, Running, Site, ever_slower, flights_sample, wait_until};

const SIGKILL: i32 = 9;
const ENV: &str = "FLOODMARK_TEST_DATABASE";

/// Each window twice, into a table and into files.
fn pipeline(interval: &str) -> String {
    let twice = |name: &str, table: &str, rest: &str| {
        format!(
            "[[window]]\nname = \"{name}\"\n{rest}\n[window.output]\nkind = \"postgres\"\nurl_env = \"{ENV}\"\n{table}\n\n\
             [[window]]\nname = \"{name}_files\"\n{rest}\noutput = {{ path = \"out/{name}\" }}\n\n"
        )
    };
    let hourly = twice(
        "hourly",
        "table = \"hourly\"\nwrite = \"append\"",
        "key = [\"origin\"]\ntype = \"tumbling\"\nsize = \"1h\"\nallowed_lateness = \"1h\"\naggregates = [\n  \
         { name = \"flights\", function = \"count\" },\n  \
         { name = \"delay_sum\", function = \"sum\", field = \"dep_delay\", type = \"int\" },\n  \
         { name = \"delay_max\", function = \"max\", field = \"dep_delay\", type = \"int\" },\n  \
         { name = \"delay_avg\", function = \"avg\", field = \"dep_delay\", type = \"int\" },\n]",
    );
    let aircraft = twice(
        "aircraft",
        "table = \"public.aircraft\"\nwrite = \"upsert\"\nmetadata = false",
        "key = [\"tailnum\"]\ntype = \"tumbling\"\nsize = \"3d\"\nmode = \"update\"\naggregates = [\n  \
         { name = \"flights\", function = \"count\" },\n  \
         { name = \"farthest\", function = \"max\", field = \"distance\", type = \"int\" },\n]",
    );
    let visits = twice(
        "visits",
        "table = \"visits\"\nwrite = \"upsert\"\nmetadata = false",
        "key = [\"tailnum\"]\ntype = \"session\"\ngap = \"8h\"\nmode = \"update\"\nretractions = true\naggregates = [\n  \
         { name = \"flights\", function = \"count\" },\n]",
    );
    format!(
        "name = \"tables\"\n[source]\npath = {:?}\n\
         time = {{ field = \"sched_dep\", format = \"rfc3339\", min = \"2013-01-01T00:00:00Z\", max = \"2016-01-01T00:00:00Z\" }}\n\
         [watermark]\ndelay = \"15m\"\n[state]\ndirectory = \"state\"\nmemory = \"64MiB\"\n[checkpoint]\n{interval}\n\n\
         {hourly}{aircraft}{visits}",
        flights_sample()
    )
}

const OFTEN: &str = "interval = \"20ms\"\nbytes = \"256KiB\"\nretain = 2";

struct Tables {
    server: Server,
    site: Site,
}

impl Tables {
    fn new(interval: &str) -> Option<Self> {
        Some(Self { server: Server::start()?, site: Site::in_memory(&pipeline(interval)) })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.site.command(arguments);
        command.env(ENV, self.server.url());
        command
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        Ended::of(self.command(arguments).output().unwrap())
    }

    fn reset(&self) {
        self.site.reset();
        self.server.reset();
    }

    /// The tables hold what the files of the same run say.
    fn assert_same_as_files(&self, context: &str) {
        let outputs = self.site.outputs();
        let bounds = "to_char(window_start AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"') AS window_start, \
                      to_char(window_end AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"') AS window_end";
        let columns = [
            "origin",
            "window_start",
            "window_end",
            "flights",
            "delay_sum",
            "delay_max",
            "delay_avg",
            "pane",
            "pane_index",
        ];
        let query = format!(
            "SELECT origin, {bounds}, flights, delay_sum, delay_max, delay_avg, pane, pane_index FROM hourly"
        );
        let expected = outputs.rows("hourly").iter().map(|row| cells(row, &columns)).collect();
        assert_same(expected, self.server.rows(&query), &format!("{context}: hourly"));

        // The last row of each key stands.
        let mut last = BTreeMap::new();
        for row in outputs.rows("aircraft") {
            last.insert(cells(&row, &["tailnum", "window_start"]), row);
        }
        let columns = ["tailnum", "window_start", "window_end", "flights", "farthest"];
        let expected = last.values().map(|row| cells(row, &columns)).collect();
        let query = format!("SELECT tailnum, {bounds}, flights, farthest FROM aircraft");
        assert_same(expected, self.server.rows(&query), &format!("{context}: aircraft"));

        // Rows are taken back by what the changelog says.
        let mut standing = BTreeMap::new();
        for row in outputs.rows("visits") {
            let key = cells(&row, &["tailnum", "window_start", "window_end"]);
            match row["row_kind"].as_str().unwrap() {
                "-U" | "-D" => standing.remove(&key),
                _ => standing.insert(key, row),
            };
        }
        let columns = ["tailnum", "window_start", "window_end", "flights"];
        let expected = standing.values().map(|row| cells(row, &columns)).collect();
        let query = format!("SELECT tailnum, {bounds}, flights FROM visits");
        assert_same(expected, self.server.rows(&query), &format!("{context}: visits"));
    }
}

fn cells(row: &Json, columns: &[&str]) -> Vec<String> {
    let cell = |name: &&str| match &row[*name] {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    };
    columns.iter().map(cell).collect()
}

/// Both as multisets: a table has no order. Numbers by value, to the digits that the JSON reader of the test keeps.
fn assert_same(expected: Vec<Vec<String>>, found: Vec<Vec<String>>, context: &str) {
    let sorted = |rows: Vec<Vec<String>>| {
        let cell = |text: String| text.parse::<f64>().map_or(text, |number| format!("{number:.12e}"));
        let mut rows: Vec<Vec<String>> =
            rows.into_iter().map(|row| row.into_iter().map(cell).collect()).collect();
        rows.sort();
        rows
    };
    let (expected, found) = (sorted(expected), sorted(found));
    if let Some((wanted, other)) = expected.iter().zip(&found).find(|(wanted, other)| wanted != other) {
        panic!("{context}: the table has {other:?}, the files have {wanted:?}");
    }
    assert_eq!(found.len(), expected.len(), "{context}: rows of the table and of the files");
    assert!(!expected.is_empty(), "{context}: nothing to compare");
}

#[test]
fn tables_hold_the_same_rows_as_files_with_their_types() {
    let Some(tables) = Tables::new(OFTEN) else { return };
    let summary = tables.run(&["--quiet"]).summary();
    assert!(summary["checkpoints"]["count"].as_u64().unwrap() >= 3, "{summary}");
    tables.assert_same_as_files("a straight run");
    let types = tables.server.rows(
        "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'hourly' \
         ORDER BY ordinal_position",
    );
    let types: Vec<String> = types.iter().map(|row| row.join(" ")).collect();
    assert_eq!(
        types,
        [
            "origin text",
            "window_start timestamp with time zone",
            "window_end timestamp with time zone",
            "flights bigint",
            "delay_sum numeric",
            "delay_max bigint",
            "delay_avg double precision",
            "pane text",
            "pane_index bigint",
            "watermark timestamp with time zone"
        ]
    );
    let before = tables.server.rows("SELECT target, sink, epoch FROM floodmark_epochs ORDER BY target");
    let sinks: Vec<&str> = before.iter().map(|row| row[1].as_str()).collect();
    assert_eq!(sinks, ["results.aircraft", "results.hourly", "results.visits"]);
    // Once more: there is nothing to do.
    tables.run(&["--quiet"]).summary();
    tables.assert_same_as_files("a second run");
    assert_eq!(
        tables.server.rows("SELECT target, sink, epoch FROM floodmark_epochs ORDER BY target"),
        before
    );
    let waiting = std::fs::read_dir(tables.site.path("state/outbox/results.hourly/.staging")).unwrap();
    let waiting: Vec<_> = waiting.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(waiting, ["LOCK"], "what was delivered is removed");
}

#[test]
fn tables_survive_kills_at_any_moment() {
    let Some(tables) = Tables::new(OFTEN) else { return };
    let mut random = Random::seeded("tables_survive_kills_at_any_moment");
    let started = Instant::now();
    tables.run(&["--quiet"]).summary();
    let straight_time = started.elapsed();
    let straight = tables.site.outputs();
    let deep = std::env::var_os("FLOODMARK_DEEP").is_some();
    let (mut killed, mut rounds) = (0, 0);
    while killed < if deep { 200 } else { 15 } {
        tables.reset();
        let mut in_a_row = 0;
        loop {
            let running = Running::start(tables.command(&["--quiet"]));
            std::thread::sleep(random.time_below(straight_time * (4 + in_a_row) / 5));
            let ended = running.kill();
            if ended.signal != Some(SIGKILL) {
                ended.summary();
                break;
            }
            in_a_row += 1;
        }
        let context = format!("after {in_a_row} kills");
        tables.site.outputs().assert_same_as(&straight, &context);
        tables.assert_same_as_files(&context);
        killed += in_a_row;
        rounds += 1;
    }
    println!("{killed} kills in {rounds} rounds, straight run {straight_time:?}");
}

#[test]
fn a_fault_at_every_step_of_a_table_leaves_nothing_lost_and_nothing_doubled() {
    let Some(tables) = Tables::new(OFTEN) else { return };
    let points = [
        "sink.stage.before",
        "sink.stage.after",
        "sink.publish.before",
        "sink.publish.after",
        "checkpoint.publish.after",
    ];
    for point in points.into_iter().chain(floodmark::fault::TABLE_POINTS.iter().copied()) {
        for (action, nth) in [("kill", 1), ("kill", 4), ("error", 2)] {
            let fault = format!("{point}:{action}:{nth}");
            tables.reset();
            let run = |arguments: &[&str]| {
                Ended::of(tables.command(arguments).env("FLOODMARK_FAULT", &fault).output().unwrap())
            };
            let ended = ever_slower(run, || tables.reset());
            match action {
                "kill" => assert_eq!(ended.signal, Some(SIGKILL), "{fault} was not passed: {}", ended.stderr),
                _ => {
                    assert_eq!(ended.code, Some(3), "{fault}: {}", ended.stderr);
                    assert!(ended.stderr.contains("injected fault"), "{fault}: {}", ended.stderr);
                }
            }
            tables.run(&["--quiet"]).summary();
            tables.assert_same_as_files(&fault);
        }
    }
}

#[test]
fn processing_goes_on_while_the_server_is_away() {
    let Some(mut tables) = Tables::new("interval = \"50ms\"\nretain = 2") else { return };
    let running = Running::start(tables.command(&["--rate", "15000"]));
    let published = |server: &Server| {
        let rows = server.client().query("SELECT 1 FROM floodmark_epochs WHERE epoch > 2", &[]);
        rows.is_ok_and(|rows| !rows.is_empty())
    };
    wait_until("the first epochs are in", || published(&tables.server));
    tables.server.down();
    let before = tables.site.epochs().last().copied();
    wait_until("checkpoints go on", || tables.site.epochs().last().copied() > before.map(|epoch| epoch + 3));
    tables.server.up();
    let ended = running.wait();
    assert!(ended.stderr.contains("results wait to be delivered"), "{}", ended.stderr);
    assert_eq!(ended.summary()["outcome"], "completed");
    tables.assert_same_as_files("after the server was away");
}

#[test]
fn a_run_that_is_stopped_while_the_server_is_away_delivers_when_it_is_run_again() {
    let Some(mut tables) = Tables::new("interval = \"50ms\"\nretain = 2") else { return };
    let mut running = Running::start(tables.command(&["--rate", "15000"]));
    wait_until("the first checkpoints", || tables.site.epochs().last() >= Some(&3));
    tables.server.down();
    let before = tables.site.epochs().last().copied();
    wait_until("checkpoints go on", || tables.site.epochs().last().copied() > before.map(|epoch| epoch + 2));
    let told = Instant::now();
    running.signal(Signal::TERM);
    let ended = running.wait();
    assert_eq!(ended.summary()["outcome"], "stopped");
    assert!(told.elapsed() < Duration::from_secs(10), "it waited for the server: {:?}", told.elapsed());
    tables.server.up();
    assert_eq!(tables.run(&["--quiet"]).summary()["outcome"], "completed");
    tables.assert_same_as_files("after a stop without a server");
}

#[test]
fn a_zombie_is_refused_and_changes_nothing() {
    let Some(tables) = Tables::new("interval = \"50ms\"\nretain = 2") else { return };
    let zombie = Running::start(tables.command(&["--rate", "10000"]));
    wait_until("the first checkpoints", || tables.site.epochs().last() >= Some(&3));
    // What a newer run does when it opens, from a copy of the state on another machine.
    let mut client = tables.server.client();
    let take_over = "UPDATE floodmark_epochs SET generation = generation + 1, run = gen_random_uuid()";
    client.batch_execute(take_over).unwrap();
    let count = || tables.server.rows("SELECT count(*) FROM hourly");
    let after = count();
    zombie.wait().assert_refused(4, &["a newer run owns this table", "stop this process"]);
    assert_eq!(count(), after);
    // The next one is a generation higher, as a restart is, and goes on from the checkpoint: nothing is lost.
    client.batch_execute("UPDATE floodmark_epochs SET generation = generation - 1").unwrap();
    tables.run(&["--quiet"]).summary();
    tables.assert_same_as_files("after a zombie");
    // State that is new, with a table that is not: another lineage.
    tables.site.reset();
    tables.run(&["--quiet"]).assert_refused(6, &["the table holds the rows of another state"]);
}

#[test]
fn a_table_that_does_not_fit_is_shown_and_left_alone() {
    let Some(tables) = Tables::new(OFTEN) else { return };
    tables
        .server
        .client()
        .batch_execute("CREATE TABLE hourly (origin text, flights integer, note text NOT NULL)")
        .unwrap();
    let ended = tables.run(&["--quiet"]);
    ended.assert_refused(
        6,
        &["table hourly does not fit", "<- differs", "integer", "(missing)", "text NOT NULL"],
    );
    tables
        .server
        .client()
        .batch_execute(
            "DROP TABLE hourly; CREATE TABLE aircraft (tailnum text NOT NULL, \
        window_start timestamptz, window_end timestamptz, flights bigint, farthest bigint)",
        )
        .unwrap();
    tables.run(&["--quiet"]).assert_refused(6, &["no primary key or unique index", "tailnum,window_start"]);
}

#[test]
fn an_address_is_named_by_its_variable_and_never_shown() {
    let site = Site::in_memory(&pipeline(OFTEN));
    site.run(&["--quiet"]).assert_refused(2, &["environment variable", ENV]);
    for (url, why) in [
        ("postgresql://user:hunter2@host:no-port/db", "port"),
        ("postgresql://user:hunter2@host/db?sslmode=require", "TLS"),
        ("user=u password=hunter2 dbname=d", "no host"),
    ] {
        let mut command = site.command(&[]);
        command.env(ENV, url).env("FLOODMARK_LOG", "trace");
        let ended = Ended::of(command.output().unwrap());
        ended.assert_refused(2, &["the address of the database cannot be read", why]);
        assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
    }
}

#[test]
fn the_example_fills_its_tables() {
    let Some(server) = Server::start() else { return };
    let examples = Examples::new();
    let pipeline = examples.path("examples/postgres/pipeline.toml");
    let summary = examples.run_in(&pipeline, &[("DATABASE_URL", server.url().as_str())]).summary();
    assert_eq!(summary["outcome"], "completed", "{summary}");
    let count = |table: &str| server.rows(&format!("SELECT count(*) FROM {table}"))[0][0].clone();
    assert_eq!(count("hourly_visits"), summary["total"]["results"]["hourly"].to_string());
    let days: usize = count("daily_visitors").parse().unwrap();
    assert!(
        days > 0 && days <= usize::try_from(summary["total"]["results"]["daily"].as_u64().unwrap()).unwrap()
    );
}
