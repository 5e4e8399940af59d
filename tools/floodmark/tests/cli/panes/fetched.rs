//! The same reports on a repository, by its URL.

use std::path::Path;
use std::process::Command;

use serde_json::Value as Json;

use super::{KINDS, clicks, json_of, views};
use crate::s3::S3;
use crate::support::{Ended, Site};

/// A report on a URL, with whatever the environment of the command needs.
fn report(arguments: &[&str], url: &str, s3: Option<&S3>) -> Ended {
    let (name, options) = arguments.split_first().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodmark"));
    command.args(["inspect", name, url, "--json"]).args(options);
    command.envs(s3.into_iter().flat_map(S3::environment));
    Ended::of(command.output().unwrap())
}

/// What differs between a state and its mirror: where it is, and how old it was when it was looked at.
fn without_place(mut report: Json) -> Json {
    for place in ["/checkpoint", "/before", "/after", ""] {
        if let Some(object) = report.pointer_mut(place).and_then(Json::as_object_mut) {
            ["path", "age_ms"].iter().for_each(|name| drop(object.remove(*name)));
        }
    }
    report
}

fn mirrored(url: &str, s3: Option<&S3>) -> Site {
    let settings = format!("retain = 50\nrepository = {url:?}\nrepository_required = true");
    let site = Site::in_memory(&KINDS.replace("retain = 50", &settings));
    for minutes in [17, 30] {
        site.write("clicks.jsonl", clicks(minutes));
        site.write("views.jsonl", views(minutes));
        let mut command = site.command(&["--quiet"]);
        command.envs(s3.into_iter().flat_map(S3::environment));
        Ended::of(command.output().unwrap()).summary();
    }
    site
}

fn says_the_same(site: &Site, url: &str, s3: Option<&S3>) {
    let reports: [&[&str]; 9] = [
        &["show"],
        &["windows"],
        &["panes", "--limit", "1000"],
        &["why", "ann", "a", "2026-03-01T10:20:00Z"],
        &["stats"],
        &["diff"],
        &["leaks"],
        &["growth"],
        &["windows", "--key", "ann"],
    ];
    for arguments in reports {
        let ended = report(arguments, url, s3);
        assert_eq!(ended.code, Some(0), "{arguments:?}: {}", ended.stderr);
        let found: Json = serde_json::from_str(&ended.stdout).unwrap();
        let expected = json_of(arguments, &site.path("state"));
        assert_eq!(without_place(found), without_place(expected), "{arguments:?}");
    }
    for arguments in [&["verify", "--all"][..], &["fsck"], &["list"]] {
        let ended = report(arguments, url, s3);
        assert_eq!(ended.code, Some(0), "{arguments:?}: {} {}", ended.stdout, ended.stderr);
        assert!(
            ended.stdout.contains(url.trim_start_matches("file://")),
            "it names the repository: {}",
            ended.stdout
        );
    }
}

#[test]
fn a_shared_directory_says_what_the_state_says() {
    let shared = tempfile::tempdir().unwrap();
    let path = shared.path().join("mirror");
    let site = mirrored(path.to_str().unwrap(), None);
    says_the_same(&site, &format!("file://{}", path.display()), None);
}

#[test]
fn an_object_store_says_what_the_state_says() {
    let Some(s3) = S3::start() else { return };
    let url = s3.url("kinds");
    let site = mirrored(&url, Some(&s3));
    says_the_same(&site, &url, Some(&s3));
}

#[test]
fn a_repository_that_is_not_there_or_empty_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let missing = format!("file://{}/missing", dir.path().display());
    report(&["list"], &missing, None).assert_refused(2, &["no such directory"]);
    let empty = format!("file://{}", dir.path().display());
    let ended = report(&["panes"], &empty, None);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(Path::new(dir.path()).read_dir().unwrap().next().is_none(), "nothing is written there");
}
