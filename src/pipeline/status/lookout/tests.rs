use super::super::snapshot::JumpStatus;
use super::super::tests::{moment, running};
use super::*;
use crate::pipeline::config::Jumps;

fn span(seconds: i64) -> Span {
    Span::from_millis(seconds * 1_000).unwrap()
}

fn lookout() -> Lookout {
    Lookout::new(WatchConfig {
        stalled: Some(span(60)),
        skew: Some(span(100)),
        jump: Jumps::Unusual,
        late_share: Some(0.1),
        late_over: span(10),
        checkpoint_age: Some(span(30)),
    })
}

/// A snapshot `seconds` after the start of the run.
fn after(seconds: u64) -> Snapshot {
    let mut snapshot = running();
    snapshot.taken_at_ms = i64::try_from(seconds).unwrap() * 1_000;
    snapshot.run.elapsed_ms = seconds * 1_000;
    snapshot
}

/// Kinds that are raised and cleared by a look.
fn kinds(lookout: &mut Lookout, snapshot: &Snapshot) -> (Vec<&'static str>, Vec<&'static str>) {
    let names = |warnings: &[Warning]| warnings.iter().map(|warning| warning.kind.name()).collect();
    let Changes { raised, cleared } = lookout.look(snapshot);
    (names(&raised), names(&cleared))
}

#[test]
fn a_watermark_that_stands_is_raised_once_with_its_holder_and_cleared_once_when_it_moves() {
    let mut lookout = lookout();
    let standing = |seconds: u64| {
        let mut snapshot = after(seconds);
        snapshot.watermark.unmoved_ms = seconds * 1_000;
        snapshot
    };
    assert_eq!(kinds(&mut lookout, &standing(59)), (vec![], vec![]));
    assert_eq!(kinds(&mut lookout, &standing(60)), (vec!["watermark_stalled"], vec![]));
    assert_eq!(kinds(&mut lookout, &standing(61)), (vec![], vec![]), "it was raised already");
    let warning = lookout.warnings().active[0].clone();
    assert!(warning.message.contains("1970-01-01T00:00:59Z for 1 min"), "{}", warning.message);
    assert!(warning.cause.contains("partition b of source source holds it back"), "{}", warning.cause);
    assert_eq!((warning.id, warning.raised_at_ms, warning.cleared_at_ms), (1, 60_000, None));
    assert_eq!(kinds(&mut lookout, &after(62)), (vec![], vec!["watermark_stalled"]));
    assert_eq!(kinds(&mut lookout, &after(63)), (vec![], vec![]));
    assert_eq!(lookout.warnings().cleared[0].cleared_at_ms, Some(62_000));
    assert_eq!(
        kinds(&mut lookout, &standing(130)),
        (vec!["watermark_stalled"], vec![]),
        "the next one is another"
    );
    assert_eq!(lookout.warnings().raised[&WarningKind::WatermarkStalled], 2);
}

#[test]
fn a_watermark_that_is_none_by_rule_or_has_ended_does_not_stall() {
    let (mut ended, mut none) = (after(99), after(99));
    (ended.watermark.unmoved_ms, none.watermark.unmoved_ms) = (99_000, 99_000);
    ended.watermark.ended = true;
    none.watermark.expected = false;
    assert_eq!(kinds(&mut lookout(), &ended), (vec![], vec![]));
    assert_eq!(kinds(&mut lookout(), &none), (vec![], vec![]));
}

#[test]
fn the_cause_of_a_stall_tells_a_silent_partition_from_one_whose_times_stand_still() {
    let mut snapshot = after(100);
    snapshot.watermark.unmoved_ms = 100_000;
    let cause = |snapshot: &Snapshot| lookout().look(snapshot).raised[0].cause.clone();
    assert!(cause(&snapshot).contains("its last record came 1 min 40 s ago"), "{}", cause(&snapshot));
    let holder = snapshot.watermark.holder.as_mut().unwrap();
    holder.last_record_at_ms = Some(99_900);
    assert!(cause(&snapshot).contains("records come, but none is later than"), "{}", cause(&snapshot));
    snapshot.watermark.holder.as_mut().unwrap().max_time = None;
    assert!(cause(&snapshot).contains("has not spoken yet"), "{}", cause(&snapshot));
    snapshot.watermark.holder = None;
    assert!(cause(&snapshot).contains("no partition counts any more"), "{}", cause(&snapshot));
}

#[test]
fn skew_is_raised_above_its_bound_and_cleared_well_below_it() {
    let mut lookout = lookout();
    let leading = |lead: i64| {
        let mut snapshot = after(1);
        snapshot.partitions[0].lead_ms = Some(lead * 1_000);
        snapshot.partitions[1].lead_ms = Some(-lead * 1_000);
        snapshot
    };
    assert_eq!(kinds(&mut lookout, &leading(100)), (vec![], vec![]));
    assert_eq!(kinds(&mut lookout, &leading(101)), (vec!["partition_ahead", "partition_behind"], vec![]));
    assert_eq!(lookout.warnings().active[0].subject.as_deref(), Some("a"));
    assert_eq!(kinds(&mut lookout, &leading(80)), (vec![], vec![]), "so near to the bound it would flap");
    let cleared = vec!["partition_ahead", "partition_behind"];
    assert_eq!(kinds(&mut lookout, &leading(75)), (vec![], cleared));
}

#[test]
fn a_jump_stands_for_a_while_and_the_next_one_lets_it_stand_longer() {
    let mut lookout = lookout();
    let jumped = |seconds: u64, jumps: u64| {
        let mut snapshot = after(seconds);
        snapshot.watermark.jumps = jumps;
        snapshot.watermark.last_jump = Some(JumpStatus {
            partition: "a".to_owned(),
            from: moment(0),
            to: moment(86_400_000),
            length_ms: 86_400_000,
            seen_at_ms: 0,
        });
        snapshot
    };
    assert_eq!(kinds(&mut lookout, &jumped(10, 1)), (vec!["watermark_jumped"], vec![]));
    assert!(lookout.warnings().active[0].cause.contains("partition a"));
    assert_eq!(kinds(&mut lookout, &jumped(600, 2)), (vec![], vec![]));
    assert_eq!(kinds(&mut lookout, &jumped(1_199, 2)), (vec![], vec![]));
    assert_eq!(kinds(&mut lookout, &jumped(1_200, 2)), (vec![], vec!["watermark_jumped"]));
}

#[test]
fn late_events_are_judged_by_their_share_over_the_time_set() {
    let mut lookout = lookout();
    let counted = |seconds: u64, events: u64, late: u64| {
        let mut snapshot = after(seconds);
        snapshot.input.total.events = events;
        (snapshot.operators[0].late, snapshot.partitions[1].late) = (late, late);
        snapshot
    };
    // A thousand late ones of a run before do not count.
    assert_eq!(kinds(&mut lookout, &counted(0, 10_000, 1_000)), (vec![], vec![]));
    assert_eq!(kinds(&mut lookout, &counted(5, 11_000, 1_100)), (vec![], vec![]), "a tenth is the bound");
    assert_eq!(kinds(&mut lookout, &counted(6, 11_100, 1_200)), (vec!["late_events"], vec![]));
    let warning = &lookout.warnings().active[0];
    assert!(warning.message.contains("200 of 1100 events in 6 s were late for per_minute and are dropped"));
    assert!(warning.cause.contains("partition b"), "{}", warning.cause);
    // They have gone from the ten seconds by then.
    assert_eq!(kinds(&mut lookout, &counted(16, 20_000, 1_200)), (vec![], vec!["late_events"]));
}

#[test]
fn a_few_late_events_at_the_start_are_no_rate() {
    let mut lookout = lookout();
    let mut snapshot = after(0);
    lookout.look(&snapshot);
    (snapshot.operators[0].late, snapshot.run.elapsed_ms) = (99, 1_000);
    assert_eq!(kinds(&mut lookout, &snapshot), (vec![], vec![]));
}

#[test]
fn a_checkpoint_that_does_not_come_is_overdue_only_while_something_waits_for_it() {
    let mut lookout = lookout();
    let mut snapshot = after(100);
    snapshot.checkpoints.age_ms = Some(100_000);
    assert_eq!(kinds(&mut lookout, &snapshot), (vec![], vec![]), "nothing came in");
    (snapshot.checkpoints.unsaved_ms, snapshot.checkpoints.in_flight_ms) = (30_000, Some(29_000));
    assert_eq!(kinds(&mut lookout, &snapshot), (vec!["checkpoint_overdue"], vec![]));
    assert!(lookout.warnings().active[0].cause.contains("under way for 29 s"));
    snapshot.checkpoints.unsaved_ms = 0;
    assert_eq!(kinds(&mut lookout, &snapshot), (vec![], vec!["checkpoint_overdue"]));
}

#[test]
fn everything_is_cleared_when_the_run_is_over_and_nothing_is_said_before_it_began() {
    let mut lookout = lookout();
    let mut snapshot = after(100);
    (snapshot.watermark.unmoved_ms, snapshot.run.phase) = (100_000, Phase::Starting);
    assert_eq!(kinds(&mut lookout, &snapshot), (vec![], vec![]));
    snapshot.run.phase = Phase::Running;
    assert_eq!(kinds(&mut lookout, &snapshot), (vec!["watermark_stalled"], vec![]));
    snapshot.run.phase = Phase::Completed;
    assert_eq!(kinds(&mut lookout, &snapshot), (vec![], vec!["watermark_stalled"]));
}

#[test]
fn what_is_off_is_not_warned_of() {
    let mut lookout = Lookout::new(WatchConfig {
        stalled: None,
        skew: None,
        jump: Jumps::Off,
        late_share: None,
        late_over: span(10),
        checkpoint_age: None,
    });
    let mut snapshot = after(1_000);
    (snapshot.watermark.unmoved_ms, snapshot.checkpoints.unsaved_ms) = (999_000, 999_000);
    (snapshot.partitions[0].lead_ms, snapshot.operators[0].late) = (Some(99_999_999), 5_000);
    assert_eq!(kinds(&mut lookout, &snapshot), (vec![], vec![]));
}
