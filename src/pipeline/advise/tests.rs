//! Figures worked out by hand, and the law above them all: what is said of a delay is what a run with it does, for every
//! kind of window.

use std::io::Write as _;
use std::path::Path;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::clock::ManualClock;
use crate::pipeline::config::WatermarkStrategy;
use crate::pipeline::{RunOptions, RunSummary, Silent, StopFlag, run};

/// A pipeline over `*.jsonl`, times and spans in seconds.
fn pipeline(watermark: &str, window: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        r#"name = "p"
source = {{ path = "*.jsonl", time = {{ field = "t", format = "epoch_s" }} }}
state = {{ directory = "state", memory = "64MiB" }}
[watermark]
close_at_end = false
{watermark}
[[window]]
name = "w"
key = ["k"]
{window}
aggregates = [{{ name = "rows", function = "count" }}]
output = {{ path = "out" }}
"#
    );
    put(dir.path(), "p.toml", &text);
    dir
}

fn put(dir: &Path, name: &str, text: &str) {
    std::fs::File::create(dir.join(name)).unwrap().write_all(text.as_bytes()).unwrap();
}

fn events(events: &[(&str, i64)]) -> String {
    events.iter().map(|(key, time)| format!("{{\"t\":{time},\"k\":\"{key}\"}}\n")).collect()
}

fn config(dir: &TempDir) -> PipelineConfig {
    PipelineConfig::load(&dir.path().join("p.toml")).unwrap()
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(ManualClock::at(1_700_000_000_000))
}

fn seconds(seconds: &[i64]) -> Vec<Span> {
    seconds.iter().map(|&seconds| span(seconds * 1_000)).collect()
}

fn advised(dir: &TempDir, options: &AdviseOptions) -> Advice {
    advise(&config(dir), options, clock(), &mut |_| {}).unwrap()
}

fn refusal(dir: &TempDir, options: &AdviseOptions) -> String {
    let error = advise(&config(dir), options, clock(), &mut |_| {}).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    format!("{error} / {}", error.remedy().unwrap_or_default())
}

/// What a run with this delay does.
fn run_with(dir: &TempDir, delay: Span) -> RunSummary {
    let mut config = config(dir);
    let place = tempfile::tempdir().unwrap();
    config.state.directory = place.path().join("state");
    for window in &mut config.windows {
        window.output.path = place.path().join("out");
    }
    for source in &mut config.sources {
        source.watermark.strategy = WatermarkStrategy::Bounded(delay);
    }
    run(&config, RunOptions::default(), &StopFlag::default(), clock(), &mut Silent).unwrap()
}

fn outcome(advice: &Advice, delay: Span) -> &Outcome {
    let found = advice.candidates.iter().find(|one| one.delay_ms == Some(delay.as_millis()));
    &found.unwrap().outcomes[0]
}

const TENS: &str = "type = \"tumbling\"\nsize = \"10s\"";

#[test]
fn lateness_is_the_way_back_to_the_latest_event_of_the_partition() {
    let dir = pipeline("delay = \"5s\"", TENS);
    put(dir.path(), "a.jsonl", &events(&[("x", 100), ("x", 90), ("x", 112), ("x", 110), ("x", 112)]));
    let advice = advised(&dir, &AdviseOptions::default());
    let late = &advice.lateness;
    assert_eq!((late.events, late.above_zero, late.p50_ms, late.max_ms), (5, 2, 0, 10_000));
    let [partition] = advice.partitions.as_slice() else { panic!("one file is one partition") };
    assert_eq!((partition.lateness.clone(), partition.step_max_ms), (late.clone(), 12_000));
    assert_eq!(partition.ahead_of_partitions, None, "there is no other");
    assert_eq!(partition.ahead_of_clock.above_zero, 0);
    assert!(advice.sample.complete && advice.notes.iter().all(|note| !note.contains("future")));
}

#[test]
fn an_event_is_lost_when_its_windows_have_expired_and_not_when_it_is_merely_behind() {
    let dir = pipeline("delay = \"5s\"", TENS);
    // 104 is behind any watermark at no delay, and its window is open; 99 comes when [90, 100) has expired up to W = 105.
    put(dir.path(), "a.jsonl", &events(&[("x", 95), ("x", 105), ("x", 104), ("x", 99), ("x", 98)]));
    let options = AdviseOptions { delays: seconds(&[0, 5, 6]), loss: 0.0, ..AdviseOptions::default() };
    let advice = advised(&dir, &options);
    let found = advice
        .candidates
        .iter()
        .map(|one| (one.delay_ms.unwrap(), one.outcomes[0].lost, one.behind.unwrap()));
    // The watermark 100 of a delay of 5 s takes the window that ends there, that of any longer one does not.
    assert_eq!(found.collect::<Vec<_>>(), [(0, 2, 3), (5_000, 2, 2), (5_100, 0, 2), (6_000, 0, 1)]);
    let advised = advice.recommendation.as_ref().unwrap();
    assert_eq!((advised.delay_ms, advised.delay.as_str(), advised.lost_share), (5_100, "5s 100ms", 0.0));
    assert!(!advised.current_is_enough);
    assert_eq!(advice.current().unwrap().delay_ms, Some(5_000));
    assert_eq!(advice.recommended().unwrap().extra_wait_ms, Some(100));
}

#[test]
fn of_overlapping_windows_an_event_may_miss_some() {
    let dir = pipeline("delay = \"0s\"", "type = \"sliding\"\nsize = \"20s\"\nslide = \"10s\"");
    put(dir.path(), "a.jsonl", &events(&[("x", 95), ("x", 105), ("x", 99), ("x", 111), ("x", 91)]));
    let outcomes = &advised(&dir, &AdviseOptions::default()).current().unwrap().outcomes[0].clone();
    // 99 has missed [80, 100) and is in [90, 110); 91 has missed both.
    assert_eq!((outcomes.events, outcomes.lost, outcomes.short), (5, 1, 1));
}

#[test]
fn allowed_lateness_saves_events_and_keeps_panes() {
    let rows = events(&[("x", 95), ("x", 105), ("x", 99), ("y", 131), ("y", 150)]);
    let plain = pipeline("delay = \"0s\"", TENS);
    let allowing = pipeline("delay = \"0s\"", &format!("{TENS}\nallowed_lateness = \"10s\""));
    for (dir, lost, panes_peak) in [(&plain, 1, 1), (&allowing, 0, 2)] {
        put(dir.path(), "a.jsonl", &rows);
        let advice = advised(dir, &AdviseOptions::default());
        let now = &advice.current().unwrap().outcomes[0];
        assert_eq!((now.lost, now.panes_end, now.panes_peak), (lost, 1, panes_peak));
    }
}

#[test]
fn what_is_ahead_is_told_apart_from_what_is_late() {
    let dir = pipeline("delay = \"5s\"", TENS);
    // The clock stands at 1,700,000,000 s.
    put(dir.path(), "a.jsonl", &events(&[("x", 1_699_999_990), ("x", 1_700_000_003)]));
    put(dir.path(), "b.jsonl", &events(&[("x", 1_699_999_995), ("x", 1_699_999_980)]));
    put(dir.path(), "c.jsonl", "");
    let advice = advised(&dir, &AdviseOptions::default());
    let [a, b, c] = advice.partitions.as_slice() else { panic!("three files") };
    assert_eq!((a.ahead_of_clock.above_zero, a.ahead_of_clock.max_ms), (1, 3_000));
    assert_eq!((b.ahead_of_clock.above_zero, b.lateness.max_ms), (0, 15_000));
    assert_eq!(a.step_max_ms, 13_000);
    assert_eq!(c.lateness.events, 0);
    let notes = advice.notes.join("\n");
    assert!(
        notes.contains("event times lie in the future") && notes.contains("no event came from"),
        "{notes}"
    );
}

#[test]
fn the_bound_against_other_partitions_is_measured_by_its_own_rule() {
    let infos: Vec<PartitionInfo> = (0..4).map(info).collect();
    let mut meter = Meter::new(&infos);
    for (partition, time) in [(0, 100), (1, 200), (2, 300)] {
        meter.observe(partition, &[time], &[], i64::MAX);
    }
    // Of 100, 200 and 300 the one in the middle; 300 was read first when only 100 and 200 were there: the later of two.
    meter.observe(3, &[250, 190], &[], i64::MAX);
    meter.finish(2);
    meter.observe(3, &[170], &[], i64::MAX);
    let beside = meter.partitions()[3].ahead_of_others().unwrap();
    assert_eq!((beside.events(), beside.above_zero(), beside.max()), (3, 1, 50));
    assert_eq!(meter.partitions()[2].ahead_of_others().unwrap().max(), 100);
    assert_eq!(meter.partitions()[0].ahead_of_others(), None);
}

fn info(index: u32) -> PartitionInfo {
    PartitionInfo {
        resume: crate::pipeline::source::PartitionResume {
            name: index.to_string(),
            source: crate::operator::SourceId(0),
            position: crate::checkpoint::Position::default(),
            identity: None,
            finished: false,
            max_time: None,
        },
        watermark: crate::operator::PartitionId(index),
        has_grown: false,
    }
}

#[test]
fn what_cannot_be_advised_on_is_refused_with_a_remedy() {
    let dir = pipeline("delay = \"5s\"", TENS);
    put(dir.path(), "a.jsonl", "");
    let options = AdviseOptions::default();
    assert!(refusal(&dir, &options).contains("no event in the input: rejected=0 filtered=0 / name files"));
    put(dir.path(), "a.jsonl", "{\"t\":\"soon\",\"k\":\"x\"}\n");
    assert!(refusal(&dir, &options).contains("rejected=1 filtered=0 / compare the fields"));
    put(dir.path(), "a.jsonl", &events(&[("x", 1), ("x", 2)]));
    let window = AdviseOptions { window: Some("v".to_owned()), ..options.clone() };
    assert!(refusal(&dir, &window).contains("no such window: name=\"v\" / the pipeline has: w"));
    let source = AdviseOptions { source: Some("s".to_owned()), ..options.clone() };
    assert!(refusal(&dir, &source).contains("no such source"));
    for loss in [-0.1, 1.1, f64::NAN] {
        assert!(refusal(&dir, &AdviseOptions { loss, ..options.clone() }).contains("not a share"));
    }
    let little = AdviseOptions { memory_bytes_max: 1, ..options.clone() };
    assert!(refusal(&dir, &little).contains("more memory than they may"));
    assert!(refusal(&dir, &AdviseOptions { events_max: 0, ..options.clone() }).contains("says nothing"));
    let no_watermark = pipeline("strategy = \"none\"", &format!("{TENS}\nmode = \"update\""));
    put(no_watermark.path(), "a.jsonl", &events(&[("x", 1)]));
    assert!(refusal(&no_watermark, &options).contains("move the watermark of no source"));
}

#[test]
fn a_sample_may_be_the_beginning_of_the_input() {
    let dir = pipeline("delay = \"5s\"", TENS);
    put(dir.path(), "a.jsonl", &events(&[("x", 100), ("x", 90), ("x", 130), ("x", 10)]));
    let advice = advised(&dir, &AdviseOptions { events_max: 3, ..AdviseOptions::default() });
    assert_eq!((advice.sample.events, advice.sample.complete, advice.lateness.max_ms), (3, false, 10_000));
    assert!(advice.notes.iter().any(|note| note.contains("only the first 3 events")));
}

/// Runs the pipeline as its file says.
fn run_as_set(dir: &TempDir) -> RunSummary {
    run(&config(dir), RunOptions::default(), &StopFlag::default(), clock(), &mut Silent).unwrap()
}

#[test]
fn a_checkpoint_knows_how_late_the_events_of_all_runs_were() {
    let dir = pipeline("delay = \"5s\"", TENS);
    let rows: Vec<(&str, i64)> = (0..400).map(|at| ("x", 1_000 + at - (at * at) % 97)).collect();
    put(dir.path(), "a.jsonl", &events(&rows[..150]));
    run_as_set(&dir);
    put(dir.path(), "a.jsonl", &events(&rows));
    put(dir.path(), "b.jsonl", &events(&[("x", 5), ("x", 2)]));
    run_as_set(&dir);
    let state = dir.path().join("state");
    let stored = crate::inspect::lateness(&state, None, 0).unwrap();
    let exact = advised(&dir, &AdviseOptions::default()).lateness;
    assert_eq!((stored.lateness.events, stored.lateness.above_zero), (402, exact.above_zero));
    let quantiles = |of: &crate::operator::Spread| [of.p50_ms, of.p95_ms, of.p99_ms, of.p999_ms, of.max_ms];
    for (found, exact) in quantiles(&stored.lateness).into_iter().zip(quantiles(&exact)) {
        let error = (found - exact).abs() as f64;
        assert!(error <= exact as f64 * stored.relative_error, "{found} is not {exact}");
    }
    let names: Vec<&str> = stored.partitions.iter().map(|one| one.partition.as_str()).collect();
    assert!(names[0].ends_with("a.jsonl") && names[1].ends_with("b.jsonl"), "{names:?}");
    assert_eq!((stored.partitions[1].lateness.max_ms, stored.partitions[1].lateness.events), (2_975, 2));

    let advice = advise_from_checkpoint(&state, None, &AdviseOptions::default(), 0).unwrap();
    assert_eq!(advice.checkpoint.as_ref().map(|stored| stored.origin.epoch), Some(stored.checkpoint.epoch));
    assert_eq!(advice.current().and_then(|one| one.delay_ms), Some(5_000));
    assert_eq!(advice.lateness, stored.lateness);
    let advised = advice.recommendation.unwrap();
    assert!(advised.lost_share <= LOSS && !advised.current_is_enough, "{advised:?}");
}

#[test]
fn a_checkpoint_that_knows_nothing_is_refused_with_a_remedy() {
    let dir = pipeline("delay = \"5s\"", TENS);
    put(dir.path(), "a.jsonl", &events(&[("x", 100)]));
    run_as_set(&dir);
    let refused = |options: &AdviseOptions, at| {
        let error = advise_from_checkpoint(&dir.path().join("state"), at, options, 0).unwrap_err();
        format!("{error} / {}", error.remedy().unwrap_or_default())
    };
    let options = AdviseOptions::default();
    assert!(refused(&options, Some(77)).contains("no checkpoint of this epoch"));
    let window = AdviseOptions { window: Some("v".to_owned()), ..options.clone() };
    assert!(
        refused(&window, None).contains("no such window over events: name=\"v\" / the checkpoint has: w")
    );
    assert!(refused(&AdviseOptions { loss: 2.0, ..options }, None).contains("not a share"));
}

#[test]
fn of_very_many_files_the_sketches_are_added_up_by_source() {
    let dir = pipeline("delay = \"5s\"", TENS);
    for file in 0..300 {
        put(dir.path(), &format!("{file:03}.jsonl"), &events(&[("x", 20), ("x", 10 + file % 10)]));
    }
    run_as_set(&dir);
    let stored = crate::inspect::lateness(&dir.path().join("state"), None, 0).unwrap();
    let apart: u64 = stored.partitions.iter().map(|one| one.lateness.events).sum();
    let [source] = stored.sources.as_slice() else { panic!("one source: {:?}", stored.sources) };
    assert_eq!((stored.lateness.events, stored.lateness.above_zero), (600, 300));
    assert_eq!((apart + source.lateness.events, apart < 600, source.step_max_ms), (600, true, 0));
    // The next run adds to what is there.
    put(dir.path(), "300.jsonl", &events(&[("x", 20)]));
    run_as_set(&dir);
    let stored = crate::inspect::lateness(&dir.path().join("state"), None, 0).unwrap();
    assert_eq!((stored.lateness.events, stored.lateness.above_zero), (601, 300));
}

fn some_windows() -> impl Strategy<Value = String> {
    let kinds = prop_oneof![
        (1_i64..30).prop_map(|size| format!("type = \"tumbling\"\nsize = \"{size}s\"")),
        (2_i64..8, 1_i64..8).prop_map(|(times, slide)| {
            format!("type = \"sliding\"\nsize = \"{}s\"\nslide = \"{slide}s\"", times * slide)
        }),
        (1_i64..12).prop_map(|gap| format!("type = \"session\"\ngap = \"{gap}s\"")),
    ];
    (kinds, prop_oneof![Just(0_i64), 1_i64..20])
        .prop_map(|(kind, late)| format!("{kind}\nallowed_lateness = \"{late}s\""))
}

fn some_events() -> impl Strategy<Value = Vec<(String, i64)>> {
    // Time goes on by a second an event or so, and some come late.
    let event = (0_u8..4, 0_i64..3, prop_oneof![3 => Just(0_i64), 2 => 0_i64..60]);
    prop::collection::vec(event, 5..120).prop_map(|drawn| {
        let mut now = 1_000;
        let event = |(key, step, late): (u8, i64, i64)| {
            now += step;
            (format!("k{key}"), now - late)
        };
        drawn.into_iter().map(event).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_is_said_of_a_delay_is_what_a_run_with_it_does(
        window in some_windows(),
        files in prop::collection::vec(some_events(), 1..3),
        delays in prop::collection::vec(0_i64..60, 1..4),
        batches in any::<bool>(),
        loss in prop_oneof![Just(0.0), 0.0_f64..0.3],
    ) {
        let advance = if batches { "advance = \"batch\"\nbatch_records = 7" } else { "" };
        // By batches there is no allowed lateness.
        let plain = window.split("\nallowed_lateness").next().unwrap_or_default();
        let dir = pipeline(&format!("delay = \"5s\"\n{advance}"), if batches { plain } else { &window });
        for (index, rows) in files.iter().enumerate() {
            let rows: Vec<(&str, i64)> = rows.iter().map(|(key, time)| (key.as_str(), *time)).collect();
            put(dir.path(), &format!("{index}.jsonl"), &events(&rows));
        }
        let options = AdviseOptions { delays: seconds(&delays), loss, ..AdviseOptions::default() };
        let advice = advised(&dir, &options);
        let recommended = advice.recommendation.as_ref().map(|advised| span(advised.delay_ms));
        for delay in seconds(&delays).into_iter().chain(recommended) {
            let (said, summary) = (outcome(&advice, delay), run_with(&dir, delay));
            let late = summary.total.late.get("w").copied().unwrap_or(0);
            prop_assert_eq!((said.lost, said.panes_end), (late, summary.open_panes), "delay {}", delay);
        }
        // The next shorter round delay loses too much.
        let advised = advice.recommendation.unwrap();
        prop_assert!(advised.lost_share <= loss);
        if advised.delay_ms > 0 {
            let shorter = (0..advised.delay_ms).rev().find(|&ms| round_up(ms) == ms).unwrap();
            let shorter = AdviseOptions { delays: vec![span(shorter)], ..options };
            let below = advise(&config(&dir), &shorter, clock(), &mut |_| {}).unwrap();
            prop_assert!(!outcome(&below, shorter.delays[0]).keeps_to(loss));
        }
    }
}
