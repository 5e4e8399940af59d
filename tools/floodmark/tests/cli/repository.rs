//! Checkpoints in a repository: machines that are lost, uploads that are cut, a second machine, a store that is away.

use std::path::Path;
use std::process::Command;

use floodmark::fault;
use floodmark::repository::{LocalRepository, Location, Repository, RepositoryError, Tag};
use rustix::process::Signal;
use serde_json::Value as Json;

use crate::s3::{S3, SECRET};
use crate::support::{Ended, Outputs, Running, Site, flights_sample, wait_until};

const LOCKED: i32 = 4;
const INCOMPATIBLE: i32 = 6;
const SIGKILL: i32 = 9;

/// Results all along, and many checkpoints.
const HOURLY: &str = r#"
[[window]]
name = "hourly"
key = ["origin"]
type = "tumbling"
size = "1h"
aggregates = [
  { name = "flights", function = "count" },
  { name = "delay_sum", function = "sum", field = "dep_delay", type = "int" },
]
output = { path = "out/hourly" }

[late]
path = "out/late"
"#;

/// No result before the end: no checkpoint has staged output, which another machine could not know.
const DECADE: &str = r#"
[[window]]
name = "decade"
key = ["origin"]
type = "tumbling"
size = "3650d"
aggregates = [{ name = "flights", function = "count" }]
output = { path = "out/decade" }
"#;

fn pipeline(checkpoint: &str, windows: &str) -> String {
    format!(
        r#"name = "mirrored"
[source]
path = {:?}
time = {{ field = "sched_dep", format = "rfc3339" }}
[watermark]
delay = "15m"
[state]
directory = "state"
memory = "64MiB"
[checkpoint]
interval = "20ms"
{checkpoint}
{windows}"#,
        flights_sample()
    )
}

fn mirrored(url: &str, required: bool, windows: &str) -> String {
    pipeline(&format!("repository = {url:?}\nrepository_required = {required}"), windows)
}

/// The outputs of a run without a repository and without an interruption.
fn straight() -> Outputs {
    let site = Site::in_memory(&pipeline("", HOURLY));
    site.complete(&["--quiet"]).1
}

fn run(site: &Site, s3: Option<&S3>, arguments: &[&str], fault: Option<&str>) -> Ended {
    let mut command = with(site.command(arguments), s3);
    if let Some(fault) = fault {
        command.env("FLOODMARK_FAULT", fault);
    }
    Ended::of(command.output().unwrap())
}

fn with(mut command: Command, s3: Option<&S3>) -> Command {
    command.envs(s3.into_iter().flat_map(S3::environment));
    command
}

/// `floodmark repository …`, which must succeed, as JSON.
fn repository(arguments: &[&str], s3: Option<&S3>) -> Json {
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodmark"));
    command.arg("repository").args(arguments).arg("--json");
    Ended::of(with(command, s3).output().unwrap()).summary()
}

fn lose_the_state(site: &Site) {
    std::fs::remove_dir_all(site.path("state")).unwrap();
}

/// Kills a run in the middle of an upload, perhaps loses the machine's state, and runs to the end.
fn killed_and_restored(site: &Site, s3: Option<&S3>, fault: &str, lost: bool, straight: &Outputs) {
    let killed = run(site, s3, &["--quiet", "--rate", "60000"], Some(fault));
    assert_eq!(killed.signal, Some(SIGKILL), "{fault} was not passed: {}", killed.stderr);
    if lost {
        lose_the_state(site);
    }
    let ended = run(site, s3, &["--quiet"], None);
    let said = ended.stderr.contains("restoring from the repository");
    let summary = ended.summary();
    assert_eq!(summary["outcome"], "completed", "{fault}");
    assert_eq!(said, lost && !summary["start"]["epoch"].is_null(), "{fault} lost={lost}: {}", ended.stderr);
    let context = format!("{fault} lost={lost} start={}", summary["start"]);
    site.outputs().assert_same_as(straight, &context);
    assert_eq!(summary["repository"]["last_epoch"], summary["checkpoints"]["last_epoch"], "{context}");
}

#[test]
fn a_kill_at_every_step_of_an_upload_loses_nothing_not_even_with_the_machine() {
    let straight = straight();
    for point in fault::UPLOAD_POINTS {
        for nth in [1, 20] {
            for lost in [false, true] {
                // Records are few, files are many.
                let nth = if point.contains("manifest") { nth.min(3) } else { nth };
                let site = Site::in_memory(&mirrored("mirror", true, HOURLY));
                killed_and_restored(&site, None, &format!("{point}:kill:{nth}"), lost, &straight);
            }
        }
    }
}

#[test]
fn a_lost_machine_is_replaced_from_s3_and_the_output_has_not_a_byte_more_or_less() {
    let Some(s3) = S3::start() else { return };
    let straight = straight();
    for (index, (fault, lost)) in [
        ("upload.file.before:kill:15", false),
        ("upload.file.before:kill:15", true),
        ("upload.manifest.before:kill:2", true),
        ("upload.manifest.after:kill:2", true),
        ("sink.publish.before:kill:3", true),
    ]
    .into_iter()
    .enumerate()
    {
        let site = Site::in_memory(&mirrored(&s3.url(&format!("lost-{index}")), true, HOURLY));
        killed_and_restored(&site, Some(&s3), fault, lost, &straight);
    }
}

#[test]
fn the_content_of_a_repository_can_be_listed_fetched_and_collected() {
    let Some(s3) = S3::start() else { return };
    let url = s3.url("listed/below");
    let site = Site::in_memory(&mirrored(&url, false, HOURLY));
    let ended = run(&site, Some(&s3), &["--quiet", "--rate", "60000"], None);
    let summary = ended.summary();
    let last = summary["checkpoints"]["last_epoch"].as_u64().unwrap();
    assert_eq!(summary["repository"]["last_epoch"], last, "{summary}");
    let listed = repository(&["list", &url], Some(&s3));
    let listed = listed.as_array().unwrap();
    let newest = listed.last().unwrap();
    assert_eq!(newest["epoch"], last);
    assert!(
        newest["new_bytes"].as_u64() <= newest["bytes"].as_u64() && newest["problem"].is_null(),
        "{newest}"
    );
    let into = site.path("fetched/chk");
    let fetched = repository(&["fetch", &url, "--into", into.to_str().unwrap()], Some(&s3));
    assert_eq!(fetched["epoch"], last);
    let verify =
        Command::new(env!("CARGO_BIN_EXE_floodmark")).args(["inspect", "verify"]).arg(&into).output();
    assert_eq!(Ended::of(verify.unwrap()).code, Some(0));
    let dry = repository(&["gc", &url, "--keep", "1", "--dry-run"], Some(&s3));
    assert_eq!(repository(&["list", &url], Some(&s3)).as_array().unwrap().len(), listed.len());
    let done = repository(&["gc", &url, "--keep", "1"], Some(&s3));
    assert_eq!(dry["delete"], done["delete"]);
    assert_eq!(repository(&["list", &url], Some(&s3)).as_array().unwrap().len(), 1);
    // What is left is whole.
    let into = site.path("fetched/again");
    repository(&["fetch", &url, "--into", into.to_str().unwrap()], Some(&s3));
}

#[test]
fn a_real_store_keeps_the_contract_of_repositories() {
    let Some(s3) = S3::start() else { return };
    // In a process of its own, which has the server's address and credentials in its environment.
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args(["--exact", "repository::the_contract_in_a_child", "--ignored"])
        .env("URL", s3.url("a b/contract"));
    let ended = Ended::of(with(child, Some(&s3)).output().unwrap());
    assert!(ended.code == Some(0) && ended.stdout.contains("1 passed"), "{}{}", ended.stdout, ended.stderr);
}

#[test]
#[ignore = "run by a_real_store_keeps_the_contract_of_repositories"]
fn the_contract_in_a_child() {
    let url = std::env::var("URL").unwrap();
    contract(Location::parse(&url, Path::new("")).unwrap().open().unwrap().as_ref());
}

#[test]
fn a_directory_keeps_the_contract_of_repositories() {
    let dir = tempfile::tempdir().unwrap();
    contract(&LocalRepository::new(dir.path()));
}

/// What every repository has to do, also with an object that takes several parts.
fn contract(repository: &dyn Repository) {
    let exists = |outcome: Result<Tag, _>| matches!(outcome, Err(RepositoryError::Exists { .. }));
    let changed = |outcome: Result<Tag, _>| matches!(outcome, Err(RepositoryError::Changed { .. }));
    let missing = |outcome| matches!(outcome, Err(RepositoryError::NotFound { .. }));

    assert!(missing(repository.get("OWNER", 100).map(|_| ())));
    assert!(missing(repository.get_range("data/x", 0, 10).map(|_| ())));
    assert!(repository.list("data", 10).unwrap().objects.is_empty());
    repository.delete("data/x").unwrap();

    let first = repository.put_new("OWNER", b"one").unwrap();
    assert!(exists(repository.put_new("OWNER", b"two")));
    let (bytes, tag) = repository.get("OWNER", 100).unwrap();
    assert_eq!((bytes.as_slice(), &tag), (b"one".as_slice(), &first));
    assert!(matches!(repository.get("OWNER", 2), Err(RepositoryError::TooLarge { .. })));
    let second = repository.put_if("OWNER", b"two", &first).unwrap();
    assert!(changed(repository.put_if("OWNER", b"three", &first)));
    repository.put_if("OWNER", b"three", &second).unwrap();
    assert_eq!(repository.get("OWNER", 100).unwrap().0, b"three");
    assert!(changed(repository.put_if("NOBODY", b"x", &first)));

    // Three parts, the last one short, and one byte that is no multiple of anything.
    let large: Vec<u8> =
        (0..(17 << 20) + 1_u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    repository.put_file("data/a/large", &mut large.as_slice(), large.len() as u64).unwrap();
    repository.put_file("data/a/small", &mut b"small".as_slice(), 5).unwrap();
    repository.put_file("data/b/empty", &mut b"".as_slice(), 0).unwrap();
    let mut back = Vec::new();
    while back.len() < large.len() {
        let part = repository.get_range("data/a/large", back.len() as u64, 5 << 20).unwrap();
        assert!(!part.is_empty());
        back.extend(part);
    }
    assert!(back == large, "the large object came back as another");
    // A stream that ends early is no object.
    assert!(repository.put_file("data/a/cut", &mut large.as_slice(), large.len() as u64 + 1).is_err());

    let listing = repository.list("data", 10).unwrap();
    let listed: Vec<(&str, u64)> = listing.objects.iter().map(|it| (it.name.as_str(), it.bytes)).collect();
    assert_eq!(listed, [("data/a/large", large.len() as u64), ("data/a/small", 5), ("data/b/empty", 0)]);
    assert!(listing.complete && listing.objects.iter().all(|it| it.modified_ms > 1_700_000_000_000));
    let some = repository.list("data", 2).unwrap();
    assert!(some.objects.len() == 2 && !some.complete);
    repository.delete("data/a/large").unwrap();
    repository.delete("data/a/large").unwrap();
    assert_eq!(repository.list("data/a", 10).unwrap().objects.len(), 1);
}

#[test]
fn a_second_machine_takes_over_and_the_first_one_stops_and_says_to_whom() {
    let Some(s3) = S3::start() else { return };
    let url = s3.url("fought-over");
    let (one, two) =
        (Site::in_memory(&mirrored(&url, true, DECADE)), Site::in_memory(&mirrored(&url, true, DECADE)));
    let first = Running::start(with(one.command(&["--quiet", "--rate", "3000"]), Some(&s3)));
    wait_until("the first machine has uploaded", || {
        repository(&["list", &url], Some(&s3)).as_array().is_some_and(|listed| !listed.is_empty())
    });
    let second = Running::start(with(two.command(&["--quiet"]), Some(&s3)));
    let fenced = first.wait();
    fenced.assert_refused(LOCKED, &["repository was taken over", "holder=[host=", "pid="]);
    let ended = second.wait();
    assert!(ended.stderr.contains("restoring from the repository"), "{}", ended.stderr);
    assert_eq!(ended.summary()["outcome"], "completed");
    let straight = Site::in_memory(&pipeline("", DECADE)).complete(&["--quiet"]).1;
    two.outputs().assert_same_as(&straight, "after the takeover");
    // Nothing of the first became visible, and it does not come back by itself.
    assert_eq!(one.outputs().bytes("decade"), 0);
    let back = run(&one, Some(&s3), &["--quiet"], None);
    back.assert_refused(
        INCOMPATIBLE,
        &["repository is ahead of the local state", "move the local state directory away"],
    );
}

#[test]
fn a_start_that_could_not_go_on_leaves_the_repository_to_the_one_that_does() {
    let one = Site::in_memory(&mirrored("mirror", true, DECADE));
    let url = one.path("mirror").to_str().unwrap().to_owned();
    let first = Running::start(one.command(&["--quiet", "--rate", "4000"]));
    wait_until("the first machine has uploaded", || {
        one.path("mirror").exists()
            && repository(&["list", &url], None).as_array().is_some_and(|listed| !listed.is_empty())
    });
    let other = Site::in_memory(&mirrored(&url, true, &DECADE.replace("3650d", "365d")));
    other.run(&["--quiet"]).assert_refused(INCOMPATIBLE, &["365"]);
    let in_the_way = Site::in_memory(&mirrored(&url, true, DECADE));
    in_the_way.write("out/decade", "a file");
    let refused = in_the_way.run(&["--quiet"]);
    assert!(refused.stderr.contains("out/decade"), "{}", refused.stderr);
    let ended = first.wait();
    assert_eq!(ended.summary()["outcome"], "completed", "it was not stopped");
}

#[test]
fn a_store_that_is_away_is_warned_of_and_processing_goes_on() {
    let Some(mut s3) = S3::start() else { return };
    let url = s3.url("away");
    let site = Site::in_memory(&mirrored(&url, false, HOURLY));
    let mut running = Running::start(with(site.command(&["--rate", "15000"]), Some(&s3)));
    wait_until("a checkpoint is there", || {
        repository(&["list", &url], Some(&s3)).as_array().is_some_and(|listed| !listed.is_empty())
    });
    assert!(running.child().try_wait().unwrap().is_none(), "it was too quick to lose its store");
    s3.stop();
    let ended = running.wait();
    assert!(ended.stderr.contains("did not get into the repository"), "{}", ended.stderr);
    for text in [&ended.stderr, &ended.stdout] {
        assert!(!text.contains(SECRET), "a credential is printed:\n{text}");
    }
    let summary = ended.summary();
    assert!(summary["repository"]["failed"].as_u64().unwrap() > 0, "{summary}");
    site.outputs().assert_same_as(&straight(), "without its store");
    // Where the store decides what is visible, a start without it is refused.
    let refused = run(&site, Some(&s3), &["--quiet"], None);
    refused.assert_refused(3, &["repository does not answer"]);
    assert!(!refused.stderr.contains(SECRET), "{}", refused.stderr);
}

#[test]
fn a_stopped_run_has_its_last_checkpoint_in_the_repository() {
    let site = Site::in_memory(&mirrored("mirror", false, HOURLY));
    let mut running = Running::start(site.command(&["--quiet", "--rate", "10000"]));
    wait_until("a checkpoint is there", || !site.epochs().is_empty());
    running.signal(Signal::TERM);
    let summary = running.wait().summary();
    assert_eq!(summary["outcome"], "stopped");
    assert_eq!(summary["repository"]["last_epoch"], summary["checkpoints"]["last_epoch"], "{summary}");
    lose_the_state(&site);
    let (_, outputs) = site.complete(&["--quiet"]);
    outputs.assert_same_as(&straight(), "after the state was lost");
}

#[test]
fn an_older_repository_than_the_output_is_refused_unless_told_to_set_aside() {
    let site = Site::in_memory(&mirrored("mirror", false, HOURLY));
    site.complete(&["--quiet", "--rate", "60000"]);
    // As if the last uploads had not been made.
    let mirror = site.path("mirror");
    let listed = repository(&["list", mirror.to_str().unwrap()], None);
    let newest = listed.as_array().unwrap().last().unwrap().clone();
    let record = format!(
        "manifests/chk-{:010}.{:010}",
        newest["epoch"].as_u64().unwrap(),
        newest["generation"].as_u64().unwrap()
    );
    std::fs::remove_file(mirror.join(record)).unwrap();
    lose_the_state(&site);
    site.run(&["--quiet"]).assert_refused(INCOMPATIBLE, &["output is ahead"]);
    assert!(!site.path("state").exists(), "asked before anything is fetched");
    site.complete(&["--quiet", "--set-aside-output"]);
    // And again: what was set aside stays so, and the numbers do not meet.
    let (_, outputs) = site.complete(&["--quiet"]);
    outputs.assert_same_as(&straight(), "set aside and written again");
}

#[test]
fn check_tells_what_a_start_would_bring_from_the_repository() {
    let check = |site: &Site| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_floodmark"));
        command.arg("check").arg(site.path("pipeline.toml")).arg("--json");
        let ended = Ended::of(command.output().unwrap());
        let report: Json = serde_json::from_str(&ended.stdout).unwrap();
        report
    };
    let site = Site::in_memory(&mirrored("mirror", true, HOURLY));
    site.complete(&["--quiet", "--rate", "60000"]);
    assert_eq!(check(&site)["verdict"], "same");
    lose_the_state(&site);
    let report = check(&site);
    assert_eq!(report["verdict"], "compatible", "{report}");
    let checkpoint = report["checkpoint"].as_str().unwrap().to_owned();
    assert!(checkpoint.contains("mirror/manifests/chk-"), "{report}");
    assert!(!site.path("state").exists(), "nothing is fetched");
    let (summary, _) = site.complete(&["--quiet"]);
    let epoch = summary["start"]["epoch"].as_u64().unwrap();
    assert!(checkpoint.contains(&format!("chk-{epoch:010}")), "{checkpoint} {epoch}");
}

#[test]
fn a_csv_header_alone_is_no_output_of_another_state() {
    let csv = HOURLY.replace("\"out/hourly\"", "\"out/hourly\", format = \"csv\"");
    let site = Site::in_memory(&mirrored("mirror", true, &csv));
    let killed = run(&site, None, &["--quiet"], Some("upload.file.before:kill:1"));
    assert_eq!(killed.signal, Some(SIGKILL), "{}", killed.stderr);
    assert!(site.path("out/hourly/part-0000000000.csv").exists());
    lose_the_state(&site);
    site.complete(&["--quiet"]);
}

#[test]
fn a_repository_in_the_pipeline_file_is_checked_where_it_stands() {
    let cases = [
        ("repository_required = true", "without `repository`"),
        ("repository = \"s3://me:secret-word@bucket/x\"", "credentials"),
        ("repository = \"ftp://host/x\"", "not known"),
        ("repository = \"state/mirror\"", "shares its directory"),
    ];
    for (line, word) in cases {
        let site = Site::in_memory(&pipeline(line, HOURLY));
        let refused = site.run(&["--quiet"]);
        refused.assert_refused(2, &["pipeline.toml:12:", word]);
        assert!(!refused.stderr.contains("secret-word"), "{}", refused.stderr);
    }
}
