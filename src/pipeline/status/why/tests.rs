use std::path::Path;

use super::super::panes::PaneStatus;
use super::super::tests::{moment, running};
use super::*;
use crate::inspect::{Aggregates, Key};

/// One window over files; `window` is put into its table.
fn config(window: &str, watermark: &str) -> PipelineConfig {
    let text = format!(
        "name = \"visits\"\nsource = {{ path = \"*.jsonl\", time = {{ field = \"t\", format = \"epoch_ms\" }} }}\n\
         watermark = {{ delay = \"1s\"{watermark} }}\nstate = {{ directory = \"s\" }}\n[[window]]\nname = \
         \"per_minute\"\nkey = [\"page\"]\naggregates = [{{ name = \"n\", function = \"count\" }}]\noutput = {{ path = \
         \"out\" }}\n{window}\n"
    );
    PipelineConfig::from_str(&text, Path::new("p.toml")).unwrap()
}

fn minutes() -> PipelineConfig {
    config("type = \"tumbling\"\nsize = \"1m\"", "")
}

fn ask(config: &PipelineConfig, snapshot: &Snapshot, start: Option<i64>) -> Why {
    let start = start.map(EventTime::from_millis);
    why(config, snapshot, &Asked { operator: 0, start, panes: None, now_ms: 0 }).unwrap()
}

fn panes(bounds: &[(i64, i64)]) -> KeyPanes {
    let pane = |&(start, end): &(i64, i64)| PaneStatus {
        start: moment(start),
        end: moment(end),
        closed: false,
        events: 1,
        aggregates: Aggregates::default(),
        partial: false,
    };
    KeyPanes {
        operator: "per_minute".to_owned(),
        key: Key(vec![b"a".to_vec()]),
        watermark: moment(0),
        panes: bounds.iter().map(pane).collect(),
        truncated: false,
    }
}

#[test]
fn an_open_window_names_who_holds_the_watermark_and_every_way_to_close_it() {
    let answer = ask(&minutes(), &running(), Some(0));
    assert_eq!((answer.state, answer.missing_ms), (WindowState::Open, Some(1_000)));
    assert!(answer.answer.contains("Partition b of source source holds it back"), "{}", answer.answer);
    let ways = [
        "an event of 1970-01-01T00:01:01Z or later in partition b",
        "the end of partition b",
        "the end of the input, which closes every window",
    ];
    assert_eq!(answer.would_close, ways);
    assert!(answer.lagging.is_empty(), "a is beyond the end");
    assert_eq!(ask(&minutes(), &running(), Some(60_000)).lagging, ["a"]);
}

#[test]
fn what_would_close_a_window_follows_the_rules_of_the_pipeline() {
    let mut snapshot = running();
    let open = config("type = \"tumbling\"\nsize = \"1m\"", ", close_at_end = false, idle_advance = \"30s\"");
    let holder = snapshot.watermark.holder.as_mut().unwrap();
    (holder.idle_timeout_ms, holder.max_time) = (Some(5_000), None);
    let answer = ask(&open, &snapshot, None);
    assert!(answer.answer.contains("it has not spoken yet"), "{}", answer.answer);
    let ways = [
        "an event of 1970-01-01T00:01:01Z or later in partition b",
        "silence of partition b for 5 s, which makes it idle",
        "silence of everything for 30 s, after which the watermark goes on with the clock",
    ];
    assert_eq!(answer.would_close, ways);
}

#[test]
fn closed_due_and_unbounded_windows_are_told_apart() {
    let mut snapshot = running();
    snapshot.operators[0].watermark = moment(120_000);
    assert_eq!(ask(&minutes(), &snapshot, Some(0)).state, WindowState::Closed);
    let lenient = config("type = \"tumbling\"\nsize = \"1m\"\nallowed_lateness = \"2m\"", "");
    let until = ask(&lenient, &snapshot, Some(0)).takes_late_until;
    assert_eq!(until, Some(moment(180_000)));
    snapshot.operators[0].watermark = moment(0);
    snapshot.watermark.combined = moment(60_000);
    let due = ask(&minutes(), &snapshot, Some(0));
    assert_eq!(due.state, WindowState::Due);
    assert!(due.answer.contains("fired step by step"), "{}", due.answer);
    let global = ask(&config("type = \"global\"\ntrigger = { count = 3 }", ""), &snapshot, None);
    assert_eq!(global.state, WindowState::Unbounded);
    snapshot.operators[0].next_end = None;
    assert_eq!(ask(&minutes(), &snapshot, None).state, WindowState::Nothing);
}

#[test]
fn a_window_that_is_none_is_refused_with_the_one_that_holds_the_instant() {
    let asked = Asked { operator: 0, start: Some(EventTime::from_millis(61_000)), panes: None, now_ms: 0 };
    let error = why(&minutes(), &running(), &asked).unwrap_err();
    assert!(error.remedy().unwrap().contains("1970-01-01T00:01:00Z"), "{error:?}");
    let asked = Asked { operator: 1, ..asked };
    assert_eq!(why(&minutes(), &running(), &asked).unwrap_err().kind(), ErrorKind::Unavailable);
}

#[test]
fn sessions_are_those_of_a_key() {
    let (config, snapshot) = (config("type = \"session\"\ngap = \"30s\"", ""), running());
    let own = panes(&[(10_000, 50_000), (70_000, 110_000)]);
    let of = |start: Option<i64>| {
        let start = start.map(EventTime::from_millis);
        why(&config, &snapshot, &Asked { operator: 0, start, panes: Some(&own), now_ms: 0 }).unwrap()
    };
    assert_eq!(of(None).end, Some(moment(110_000)), "the first that has not closed");
    assert_eq!((of(Some(10_000)).state, of(Some(9)).state), (WindowState::Closed, WindowState::Nothing));
    let start = Some(EventTime::from_millis(10_000));
    let asked = Asked { operator: 0, start, panes: None, now_ms: 0 };
    let said = why(&config, &snapshot, &asked).unwrap_err();
    assert!(said.remedy().unwrap().contains("with a key"), "{said:?}");
}

#[test]
fn slices_of_a_key_stand_for_the_windows_that_hold_them() {
    let (config, snapshot) = (config("type = \"sliding\"\nsize = \"2m\"\nslide = \"1m\"", ""), running());
    let own = panes(&[(60_000, 120_000)]);
    let answer = why(&config, &snapshot, &Asked { operator: 0, start: None, panes: Some(&own), now_ms: 0 });
    let answer = answer.unwrap();
    assert_eq!((answer.start, answer.end), (Some(moment(0)), Some(moment(120_000))));
}
