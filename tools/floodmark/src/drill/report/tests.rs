//! Verdicts, figures and the looks of a report, over made-up trials.

use super::*;
use crate::drill::compare::{Difference, Shown};
use crate::drill::damage::WayBack;
use crate::drill::plan::{Moment, Point, Target, Way};

fn kill(recovery_ms: f64, checkpoint: Option<u64>) -> Kill {
    Kill {
        moment: Moment::Random { share: 0.5 },
        after_ms: 900.0,
        checkpoint,
        replayed: 1_200,
        recovery_ms: Some(recovery_ms),
        restoring_ms: Some(recovery_ms / 2.0),
    }
}

fn trial(number: u32, kills: Vec<Kill>) -> Trial {
    Trial { number, kills, missed: 0, failure: None, differences: Vec::new(), seconds: 1.0 }
}

fn damage(detected: bool) -> Damage {
    Damage {
        number: 1,
        target: Target::Table,
        way: Way::Flip,
        file: "state/checkpoints/chk-0000000003/db/000012.sst".to_owned(),
        how: "bit 3 of byte 77 of 1000 flipped".to_owned(),
        verify_found: Some(detected),
        exit_code: Some(if detected { 5 } else { 0 }),
        message: "it ran, with the right output".to_owned(),
        detected,
        went_back: Some(WayBack { epoch: 2, same_bytes: true, failure: None }),
    }
}

fn blank() -> Report {
    let output = |name: &str, left_out: Option<&str>| OutputReport {
        name: name.to_owned(),
        rows: 6_000,
        left_out: left_out.map(str::to_owned),
        ..OutputReport::default()
    };
    Report {
        verdict: Verdict::Inconclusive,
        summary: String::new(),
        pipeline: "flights".to_owned(),
        start_epoch: Some(4),
        seed: 7,
        command: "floodmark drill 'a<b>.toml' --seed 7".to_owned(),
        environment: Environment::here(),
        straight: Straight { events: 60_000, length_ms: 2_050.0, checkpoints: 12, rate: Some(30_000) },
        totals: Totals::default(),
        outputs: vec![
            output("results.hourly", None),
            output("results.fast", Some("it fires by the wall clock")),
        ],
        trials: Vec::new(),
        damages: Vec::new(),
        notes: vec!["a note".to_owned()],
        evidence: None,
        seconds: 61.0,
    }
}

fn judged(trials: Vec<Trial>, damages: Vec<Damage>) -> Report {
    let mut report = blank();
    report.judge(trials, damages, false);
    report
}

/// A trial in which a row was lost and another doubled.
fn bad_trial() -> Trial {
    let shown = vec![Shown { what: "lost", row: "{\"origin\":\"<JFK>\"}".to_owned() }];
    let difference =
        Difference { output: "results.hourly".to_owned(), lost: 1, doubled: 2, strange: 0, shown };
    let point = Moment::Point { point: Point::Complete, after: 0.3 };
    Trial { differences: vec![difference], ..trial(3, vec![Kill { moment: point, ..kill(90.0, Some(6)) }]) }
}

#[test]
fn a_manager_reads_the_verdict_in_one_paragraph() {
    let trials =
        vec![trial(1, vec![kill(41.0, Some(5))]), trial(2, vec![kill(39.0, None), kill(120.0, Some(7))])];
    let report = judged(trials, vec![damage(true)]);
    assert_eq!(
        report.summary,
        "PASS: 3 of 3 restores came back with the same bytes. Back at work after 41 ms (median), 120 ms at worst. \
         0 rows lost, 0 doubled. 1 of 1 damaged checkpoints were noticed."
    );
    let text = report.to_text();
    for line in [
        "  restores tried          3, 2 of a checkpoint and 1 from the start",
        "  without kills           60,000 events in 2.05 s, 12 checkpoints, held to 30,000 events/s",
        "  events replayed         3,600, at most 1,200 after one kill",
        "  the one before instead  1 of 1 came back the same",
        "note: a note",
    ] {
        assert!(text.lines().any(|found| found == line), "no line {line:?} in\n{text}");
    }
    assert!(text.contains("not compared: it fires by the wall clock"), "{text}");
}

#[test]
fn a_run_that_was_killed_before_it_was_back_at_work_took_no_time_that_could_be_told() {
    let away = Kill {
        recovery_ms: None,
        restoring_ms: None,
        moment: Moment::Random { share: 0.25 },
        ..kill(1.0, Some(5))
    };
    let text = judged(vec![trial(1, vec![away.clone(), kill(41.0, Some(5))])], vec![]).to_text();
    assert!(text.lines().all(|line| !line.ends_with(" 0 ms")), "{text}");
    let slowest = |text: &str| {
        let row = text.lines().find(|line| line.trim_start().starts_with("at a random moment"));
        row.and_then(|row| row.split_whitespace().last()).map(str::to_owned)
    };
    assert!(text.contains(" 41 ms\n"), "{text}");
    let text = judged(vec![trial(1, vec![away])], vec![]).to_text();
    assert_eq!(slowest(&text).as_deref(), Some("-"), "{text}");
}

#[test]
fn one_row_one_unnoticed_damage_or_one_run_that_stays_away_is_a_failure() {
    let good = || trial(1, vec![kill(41.0, Some(5))]);
    assert_eq!(judged(vec![good()], vec![damage(true)]).verdict, Verdict::Pass);
    assert_eq!(judged(vec![good()], vec![damage(false)]).verdict, Verdict::Fail);
    let away = Trial { failure: Some("exit code 1".to_owned()), ..good() };
    assert_eq!(judged(vec![good(), away], vec![]).verdict, Verdict::Fail);
    let mut wrong_way_back = damage(true);
    wrong_way_back.went_back = Some(WayBack { epoch: 2, same_bytes: false, failure: None });
    assert_eq!(judged(vec![good()], vec![wrong_way_back]).verdict, Verdict::Fail);
    let report = judged(vec![good(), bad_trial()], vec![damage(false)]);
    assert_eq!(report.verdict, Verdict::Fail);
    assert_eq!((report.totals.rows_lost, report.totals.rows_doubled, report.totals.restores_good), (1, 2, 1));
    let text = report.to_text();
    for words in [
        "FAIL: 1 of 2 restores",
        "1 row lost, 2 doubled",
        "0 of 1 damaged checkpoints",
        "trial 3 failed, killed as a checkpoint was complete",
        "    lost: {\"origin\":\"<JFK>\"}",
        "it was not noticed: it ran, with the right output",
    ] {
        assert!(text.contains(words), "no {words:?} in\n{text}");
    }
}

#[test]
fn a_drill_that_restored_nothing_or_compared_nothing_proves_nothing() {
    let from_the_start = judged(vec![trial(1, vec![kill(41.0, None)])], vec![damage(true)]);
    assert_eq!(from_the_start.verdict, Verdict::Inconclusive);
    let text = from_the_start.to_text();
    assert!(text.starts_with("NOTHING PROVED") && text.contains("note: 0 of 1 kills came after"), "{text}");
    let nothing = judged(vec![Trial { missed: 1, ..trial(1, vec![]) }], vec![]);
    assert_eq!(nothing.verdict, Verdict::Inconclusive, "every kill came too late");
    let mut report = blank();
    report.outputs[0].left_out = Some("two runs without kills differ already".to_owned());
    report.judge(vec![trial(1, vec![kill(41.0, Some(5))])], vec![], false);
    assert_eq!(report.verdict, Verdict::Inconclusive);
    let mut report = blank();
    report.judge(vec![bad_trial()], vec![], true);
    assert_eq!(report.verdict, Verdict::Inconclusive, "the input changed: kills may not be the reason");
}

#[test]
fn the_middle_of_two_is_their_mean() {
    assert_eq!(median(&[]), None);
    assert_eq!(median(&[3.0]), Some(3.0));
    assert_eq!(median(&[1.0, 3.0]), Some(2.0));
    assert_eq!(median(&[1.0, 2.0, 9.0]), Some(2.0));
}

#[test]
fn the_page_has_a_dot_for_each_kill_needs_nothing_from_elsewhere_and_means_what_it_quotes() {
    let trials = vec![trial(1, vec![kill(41.0, Some(5)), kill(39.0, None)]), bad_trial()];
    let page = html::page(&judged(trials, vec![damage(true)]));
    assert_eq!(page.matches("<circle").count(), 6, "two plots of three kills");
    assert_eq!(page.matches("<circle class=\"bad\"").count(), 2);
    for outside in ["http", "src=", "href=", "url(", "@import", "<script", "<JFK>", "a<b>"] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(
        page.contains("&lt;JFK&gt;")
            && page.contains("a&lt;b&gt;.toml")
            && page.contains("prefers-color-scheme: dark")
    );
    assert_balanced(&page);
}

/// Every element that is opened is closed, in order; those that have no end are left out.
fn assert_balanced(page: &str) {
    let mut open = Vec::new();
    for tag in page.split('<').skip(1).filter_map(|rest| rest.split('>').next()) {
        let name = tag.split([' ', '\n']).next().unwrap_or_default();
        match name.strip_prefix('/') {
            Some(closed) => assert_eq!(open.pop(), Some(closed), "{tag}"),
            None if tag.ends_with('/') || matches!(name, "!DOCTYPE" | "meta") => {}
            None => open.push(name),
        }
    }
    assert!(open.is_empty(), "not closed: {open:?}");
}

#[test]
fn machines_read_all_of_it() {
    let report = judged(vec![bad_trial()], vec![damage(true)]);
    let json: serde_json::Value = serde_json::from_str(&report.to_json().expect("written")).expect("JSON");
    assert_eq!(json["verdict"], "fail");
    assert_eq!(json["totals"]["rows_lost"], 1);
    assert_eq!(json["trials"][0]["kills"][0]["when"], "point");
    assert_eq!(json["trials"][0]["kills"][0]["point"], "complete");
    assert_eq!(json["trials"][0]["differences"][0]["shown"][0]["what"], "lost");
    assert_eq!(json["damages"][0]["way"], "flip");
}
