//! What is past its expiry and still on disk; and what does not hold.

use std::fs;

use floodmark::checkpoint::Manifest;
use floodmark::event_time::{EventTime, Watermark};
use serde_json::{Value as Json, json};

use super::{copied, cut_in_a_firing, epochs, inspect, json_of, kinds, operator, text_of};
use crate::support::Site;

#[test]
fn what_expired_in_the_epoch_is_still_on_disk_and_told_by_file() {
    let site = kinds();
    let state = site.path("state");
    let leaks = json_of(&["leaks"], &state);
    let minutes = operator(&leaks, "minutes");
    let reasons: Vec<&str> = minutes["reasons"]
        .as_array()
        .unwrap()
        .iter()
        .map(|total| total["reason"].as_str().unwrap())
        .collect();
    assert!(reasons.contains(&"this-epoch"), "{minutes}");
    assert!(!reasons.contains(&"horizon-behind"), "output was delivered: {minutes}");
    // As many as `panes` finds on disk, and those that eviction has deleted besides.
    let panes = json_of(&["panes", "--status", "expired", "--window", "minutes"], &state);
    let expired = &operator(&panes, "minutes")["totals"]["expired"]["panes"];
    let of = |name: &str| -> u64 {
        let own = minutes["reasons"].as_array().unwrap().iter().filter(|total| total["reason"] == name);
        own.map(|total| total["rows"].as_u64().unwrap()).sum()
    };
    assert!(of("this-epoch") > 0 && of("this-epoch") <= expired.as_u64().unwrap(), "{minutes} {expired}");
    let files = leaks["files"].as_array().unwrap();
    let counted: u64 =
        files.iter().map(|file| file["rows"].as_u64().unwrap() + file["rows_maybe"].as_u64().unwrap()).sum();
    assert_eq!(leaks["rows"], counted, "every row is in a file: {leaks}");
    let reclaimable: u64 = files.iter().map(|file| file["reclaimable_bytes"].as_u64().unwrap()).sum();
    assert_eq!(leaks["reclaimable_bytes"], reclaimable);
    assert!(reclaimable > 0 && reclaimable <= leaks["database_bytes"].as_u64().unwrap());
    // A window that nothing expires in leaves nothing.
    assert!(leaks["operators"].as_array().unwrap().iter().all(|operator| operator["name"] != "ever"));
    assert!(text_of(&["leaks"], &state).contains("this-epoch"));
}

#[test]
fn a_horizon_that_does_not_follow_is_told_from_what_is_on_its_way() {
    let site = kinds();
    let [_, before, last] = epochs(&site);
    let path = site.path(&format!("state/checkpoints/chk-{last:010}"));
    let parent = Manifest::load(&site.path(&format!("state/checkpoints/chk-{before:010}"))).unwrap();
    let mut manifest = Manifest::load(&path).unwrap();
    assert_eq!(manifest.parent, Some(before), "the checkpoints follow each other");
    // As if both were of one run, and the output of the checkpoint before had never been delivered.
    manifest.generation = parent.generation;
    manifest.operators.iter_mut().for_each(|operator| operator.horizon = Watermark::None);
    manifest.horizon = Watermark::None;
    fs::write(path.join("MANIFEST.fm"), manifest.encode().unwrap()).unwrap();
    let leaks = json_of(&["leaks"], &site.path("state"));
    let minutes = operator(&leaks, "minutes");
    let behind =
        minutes["reasons"].as_array().unwrap().iter().find(|total| total["reason"] == "horizon-behind");
    assert!(behind.is_some_and(|total| total["rows"].as_u64() > Some(0)), "{minutes}");
    assert!(behind.unwrap()["words"].as_str().unwrap().contains("was not delivered"), "{minutes}");
}

fn fsck(site: &Site, arguments: &[&str]) -> (Option<i32>, Json) {
    let ended = inspect(&[&["fsck"], arguments].concat(), &site.path("state"));
    let report = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}", ended.stderr));
    (ended.code, report)
}

#[test]
fn states_of_every_kind_hold_what_they_should() {
    for site in [kinds(), cut_in_a_firing()] {
        let (code, report) = fsck(&site, &["--all"]);
        assert_eq!((code, &report["sound"]), (Some(0), &json!(true)), "{report}");
        assert_eq!(report["checkpoints"].as_array().unwrap().len(), site.epochs().len());
        let findings = report["checkpoints"].as_array().unwrap().iter().map(|checked| &checked["findings"]);
        assert!(findings.clone().all(|findings| *findings == json!([])), "{report}");
    }
}

/// Changes the newest manifest of a sound state, and returns the rules that are broken then.
fn broken_by(site: &Site, change: impl FnOnce(&mut Manifest)) -> Vec<String> {
    let newest = site.epochs().last().copied().unwrap();
    let path = site.path(&format!("state/checkpoints/chk-{newest:010}/MANIFEST.fm"));
    let bytes = fs::read(&path).unwrap();
    let mut manifest = Manifest::decode(&bytes).unwrap();
    change(&mut manifest);
    fs::write(&path, manifest.encode().unwrap()).unwrap();
    let (code, report) = fsck(site, &[]);
    fs::write(&path, bytes).unwrap();
    assert_eq!(code, Some(5), "{report}");
    assert!(report["advice"].is_string(), "{report}");
    let own = report["checkpoints"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|checked| checked["findings"].as_array().unwrap());
    let all = own.chain(report["findings"].as_array().unwrap());
    let mut rules: Vec<String> = all
        .inspect(|finding| assert!(finding["advice"].as_str().unwrap().len() > 10, "{finding}"))
        .map(|finding| finding["rule"].as_str().unwrap().to_owned())
        .collect();
    rules.sort();
    rules.dedup();
    rules
}

#[test]
fn each_rule_is_broken_by_what_breaks_it() {
    let site = kinds();
    let early = Watermark::At(EventTime::from_millis(0));
    let late = Watermark::At(EventTime::from_millis(9_999_999_999_999));
    assert_eq!(
        broken_by(&site, |manifest| manifest.watermark = early),
        ["never-backwards", "operator-behind-task"]
    );
    assert_eq!(
        broken_by(&site, |manifest| manifest.operators[0].horizon = late),
        ["horizon-behind-watermark"]
    );
    assert_eq!(broken_by(&site, |manifest| manifest.partitions[0].position.records = 1), ["never-backwards"]);
    assert_eq!(
        broken_by(&site, |manifest| manifest.partitions[0].max_time = None),
        ["never-backwards", "watermark-from-events"]
    );
    assert_eq!(broken_by(&site, |manifest| manifest.generation = 0), ["one-writer"]);
    assert_eq!(broken_by(&site, |manifest| manifest.generation += 9), ["one-writer"]);
    assert_eq!(
        broken_by(&site, |manifest| manifest.partitions[0].source = "nobody".to_owned()),
        ["partition-of-source"]
    );
    let open = |manifest: &mut Manifest| manifest.operators[0].open_panes = Some(1);
    assert_eq!(broken_by(&site, open), ["panes-as-counted"]);
    let table = |manifest: &mut Manifest| {
        let file = manifest.files.iter_mut().find(|file| file.family.is_some()).unwrap();
        file.largest_key.push(0xff);
    };
    assert_eq!(broken_by(&site, table), ["tables-of-manifest"]);
}

#[test]
fn damage_and_things_left_over_come_with_what_to_do() {
    let site = kinds();
    let [.., before, last] = epochs(&site);
    let checkpoints = site.path("state/checkpoints");
    fs::create_dir(checkpoints.join(format!("chk-{:010}.1-1.tmp", last + 1))).unwrap();
    fs::write(checkpoints.join("notes.txt"), "mine").unwrap();
    let (code, report) = fsck(&site, &[]);
    assert_eq!(
        (code, report["findings"].as_array().unwrap().len()),
        (Some(0), 2),
        "warnings alone: {report}"
    );
    let newest = checkpoints.join(format!("chk-{last:010}"));
    let kept = site.path("kept");
    copied(&newest, &kept);
    let table = fs::read_dir(newest.join("db")).unwrap().map(|entry| entry.unwrap().path());
    let table = table.into_iter().find(|path| path.extension().is_some_and(|kind| kind == "sst")).unwrap();
    fs::remove_file(&table).unwrap();
    let (code, report) = fsck(&site, &["--all"]);
    assert_eq!((code, &report["newest_sound"]), (Some(5), &json!(before)), "{report}");
    assert!(report["advice"].as_str().unwrap().contains(&format!("--at {before}")), "{report}");
    let last = report["checkpoints"].as_array().unwrap().last().unwrap();
    let problem = &last["verified"]["problems"][0];
    assert!(problem["advice"].as_str().unwrap().contains("bring the file back"), "{problem}");
}
