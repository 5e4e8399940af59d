//! What a run meets at its limits: lines that are not whole yet, few open files, checkpoints that take too long.

use std::process::Command;

use serde_json::json;

use crate::support::{Ended, Site};

/// Sums of `v` per minute and key over CSV files.
fn pipeline(path: &str, close_at_end: bool, interval: &str) -> String {
    format!(
        r#"name = "limits"
[source]
path = "{path}"
time = {{ field = "t", format = "epoch_s" }}
[watermark]
delay = "0s"
close_at_end = {close_at_end}
[state]
directory = "state"
memory = "32MiB"
[checkpoint]
interval = "{interval}"
[[window]]
name = "minutes"
key = ["k"]
type = "tumbling"
size = "1m"
aggregates = [{{ name = "sum", function = "sum", field = "v", type = "int" }}]
output = {{ path = "out/minutes" }}
"#
    )
}

#[test]
fn half_a_line_of_a_file_that_grows_waits_until_it_is_whole() {
    let site = Site::new(&pipeline("in.csv", false, "10s"));
    // The number is 123, and was caught half-written.
    site.write("in.csv", "t,k,v\n1,a,1\n2,a,12");
    let first = site.run(&["--quiet"]);
    let said = "6 bytes without a line end are left for later";
    assert_eq!(first.stderr.matches(said).count(), 1, "{}", first.stderr);
    assert!(first.stderr.contains("in.csv"), "{}", first.stderr);
    let summary = first.summary();
    assert_eq!((&summary["events"], &summary["unended"]), (&json!(1), &json!({"files": 1, "bytes": 6})));
    site.write("in.csv", "t,k,v\n1,a,1\n2,a,123\n60,a,7\n");
    let (summary, outputs) = site.complete(&["--quiet"]);
    assert_eq!((&summary["events"], &summary["unended"]["files"]), (&json!(2), &json!(0)));
    assert_eq!(outputs.rows("minutes")[0]["sum"], json!(124));

    // Input that is whole ends where it ends.
    site.reset();
    site.write("pipeline.toml", pipeline("in.csv", true, "10s"));
    site.write("in.csv", "t,k,v\n1,a,1\n2,a,12");
    let ended = site.run(&["--quiet"]);
    assert!(!ended.stderr.contains("line end"), "{}", ended.stderr);
    assert_eq!(ended.summary()["events"], json!(2));
    assert_eq!(site.outputs().rows("minutes")[0]["sum"], json!(13));
}

/// Runs under a limit of open files, soft and hard.
fn run_with_open_files(site: &Site, limits: &str) -> Ended {
    let run = site.command(&["--quiet"]);
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{limits}; exec \"$0\" \"$@\"")]).arg(run.get_program()).args(run.get_args());
    Ended::of(shell.env_remove("FLOODMARK_FAULT").env_remove("FLOODMARK_LOG").output().unwrap())
}

#[test]
fn few_open_files_are_enough_and_the_limit_is_named_where_they_are_not() {
    let site = Site::in_memory(&pipeline("in/*.csv", true, "20ms"));
    for file in 0..100 {
        let rows: String = (0..200).map(|row| format!("{},k{},1\n", row * 30 + file, row % 7)).collect();
        site.write(&format!("in/{file:03}.csv"), format!("t,k,v\n{rows}"));
    }
    let (_, straight) = site.complete(&["--quiet"]);
    site.reset();
    let few = run_with_open_files(&site, "ulimit -n 64").summary();
    assert_eq!(few["events"], json!(20_000));
    site.outputs().assert_same_as(&straight, "with 64 open files");
    site.reset();
    // A soft limit that could be higher is raised.
    let raised = run_with_open_files(&site, "ulimit -Sn 12").summary();
    assert_eq!(raised["events"], json!(20_000));
    site.reset();
    run_with_open_files(&site, "ulimit -n 12").assert_refused(3, &["hard limit 12", "ulimit -n 4096"]);
}

#[test]
fn a_checkpoint_interval_that_is_not_kept_is_told_once() {
    let site = Site::new(&pipeline("in.csv", true, "1ms"));
    let rows: String = (0..200_000).map(|row| format!("{row},k{},1\n", row % 1_000)).collect();
    site.write("in.csv", format!("t,k,v\n{rows}"));
    let ended = site.run(&["--quiet"]);
    let said = "takes longer than checkpoint.interval";
    assert_eq!(ended.stderr.matches(said).count(), 1, "{}", ended.stderr);
    assert!(ended.summary()["checkpoints"]["count"].as_u64().unwrap() > 1);
}
