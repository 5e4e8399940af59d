//! Any small history gives what the model gives, however it is cut into batches, whenever panes leave memory, and
//! wherever the process dies.

use std::fmt;

use jiff::tz::TimeZone;
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};

use crate::cases::{compare, compare_unplaced, deep};
use crate::drivers::{Plan, Step, through_operator, through_store};
use crate::oracle::{Event, Key, Mode, Num, Observed, Op, Oracle, Profile, Rule, Settings, Trigger, Windows};

/// Settings and what happens under them. Prints itself one operation a line.
#[derive(Clone)]
struct History {
    settings: Settings,
    ops: Vec<Op>,
    plan: Plan,
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}", self.settings)?;
        writeln!(f, "{:?}", self.plan)?;
        for (at, op) in self.ops.iter().enumerate() {
            match op {
                Op::Event(Event { ts, key, value, partition, .. }) => {
                    let key = key.as_ref().map(|key| String::from_utf8_lossy(key).into_owned());
                    writeln!(f, "  {at}: event ts={ts:?} key={key:?} value={value:?} partition={partition}")?;
                }
                other => writeln!(f, "  {at}: {other:?}")?,
            }
        }
        Ok(())
    }
}

/// An operation before it is known in which settings it happens.
#[derive(Clone, Debug)]
enum Draft {
    Event { jitter: i64, key: Option<Key>, value: Option<i64>, partition: usize, timeless: bool },
    Tick { millis: i64, backlog: bool },
    BatchEnd,
    PartitionAdded,
}

/// What the times of a history are multiplied by and counted from.
#[derive(Clone, Copy, Debug)]
struct Scale {
    unit: i64,
    base: i64,
    /// Units from one event to the next, on the average.
    drift: i64,
    real: bool,
}

fn offset(step: i64, share: f64) -> i64 {
    (step as f64 * share) as i64
}

fn tumbling() -> BoxedStrategy<Windows> {
    let windows = |(size, share)| Windows::Tumbling { size, offset: offset(size, share) };
    (1_i64..20, -0.99..0.99).prop_map(windows).boxed()
}

fn sliding() -> BoxedStrategy<Windows> {
    let windows = |(size, slide, share)| Windows::Sliding { size, slide, offset: offset(slide, share) };
    (1_i64..24, 1_i64..12, -0.99..0.99).prop_map(windows).boxed()
}

fn sessions() -> BoxedStrategy<Windows> {
    (1_i64..14).prop_map(|gap| Windows::Session { gap }).boxed()
}

fn cumulative() -> BoxedStrategy<Windows> {
    let windows = |(step, steps)| Windows::Cumulate { max_size: step * steps, step };
    (1_i64..8, 1_i64..6).prop_map(windows).boxed()
}

fn days() -> BoxedStrategy<Windows> {
    let zones = prop_oneof![Just("America/New_York"), Just("Asia/Kathmandu"), Just("Australia/Lord_Howe")];
    zones.prop_map(|zone| Windows::CalendarDay { zone: TimeZone::get(zone).unwrap() }).boxed()
}

fn weeks_and_months() -> BoxedStrategy<Windows> {
    let zones = prop_oneof![Just("America/St_Johns"), Just("Africa/Cairo"), Just("Europe/Berlin")];
    (zones, 0_u8..3)
        .prop_map(|(zone, kind)| {
            let zone = TimeZone::get(zone).unwrap();
            match kind {
                0 => Windows::CalendarWeek { zone, from_sunday: false },
                1 => Windows::CalendarWeek { zone, from_sunday: true },
                _ => Windows::CalendarMonth { zone },
            }
        })
        .boxed()
}

fn global() -> BoxedStrategy<Windows> {
    Just(Windows::Global).boxed()
}

fn any_windows() -> BoxedStrategy<Windows> {
    prop_oneof![3 => tumbling(), 4 => sliding(), 4 => sessions(), 2 => cumulative(), 1 => days(), 1 => global()].boxed()
}

fn plain_trigger() -> BoxedStrategy<Trigger> {
    prop_oneof![2 => Just(Trigger::EventTime), 1 => (1_u64..5).prop_map(Trigger::Count)].boxed()
}

fn early_trigger() -> BoxedStrategy<Trigger> {
    (1_i64..12).prop_map(Trigger::Early).boxed()
}

/// Intervals of event time, which calendars make longer.
fn multiples() -> impl Strategy<Value = i64> {
    1_i64..12
}

fn composite_trigger() -> BoxedStrategy<Trigger> {
    let early = prop_oneof![
        Just(Rule::Never),
        Just(Rule::Each),
        (1_u64..5).prop_map(Rule::Count),
        multiples().prop_map(Rule::EventTime),
    ];
    let late = prop_oneof![Just(Rule::Never), Just(Rule::Each), (1_u64..5).prop_map(Rule::Count)];
    (early, late).prop_map(|(early, late)| Trigger::Composite { early, late }).boxed()
}

/// Rules of which one at least goes by processing time.
fn clock_trigger() -> BoxedStrategy<Trigger> {
    let clock = || (20_i64..600).prop_map(Rule::Clock);
    let both = (clock(), clock()).prop_map(|(early, late)| Trigger::Composite { early, late });
    let same =
        (20_i64..600).prop_map(Rule::Clock).prop_map(|rule| Trigger::Composite { early: rule, late: rule });
    let one = (composite_trigger(), clock(), any::<bool>()).prop_map(|(other, clock, first)| match other {
        Trigger::Composite { late, .. } if first => Trigger::Composite { early: clock, late },
        Trigger::Composite { early, .. } => Trigger::Composite { early, late: clock },
        other => other,
    });
    prop_oneof![1 => both, 1 => same, 3 => one].boxed()
}

/// Each row takes back the one before it.
fn retracting(windows: BoxedStrategy<Windows>) -> BoxedStrategy<Settings> {
    let settings = record_settings(windows, Just(Trigger::EventTime).boxed());
    let retracts =
        |settings| Settings { mode: Mode::Update, discarding: false, retractions: true, ..settings };
    settings.prop_map(retracts).boxed()
}

fn record_settings(
    windows: BoxedStrategy<Windows>,
    trigger: BoxedStrategy<Trigger>,
) -> BoxedStrategy<Settings> {
    let lateness = prop_oneof![Just(0_i64), 1_i64..25];
    let idle = prop_oneof![3 => Just(None), 1 => (1_i64..5).prop_map(|n| Some(n * 100))];
    (windows, 0_i64..15, lateness, trigger, any::<bool>(), 0_u8..5, 1_usize..4, idle)
        .prop_map(
            |(
                windows,
                delay_ms,
                allowed_lateness_ms,
                trigger,
                discarding,
                update,
                partitions,
                idle_timeout_ms,
            )| {
                let mut settings = Settings::new(windows);
                (settings.delay_ms, settings.allowed_lateness_ms) = (delay_ms, allowed_lateness_ms);
                (settings.trigger, settings.discarding) = (trigger, discarding);
                (settings.partitions, settings.idle_timeout_ms) = (partitions, idle_timeout_ms);
                if update == 0 {
                    settings.mode = Mode::Update;
                    settings.discarding = false;
                    if !matches!(settings.trigger, Trigger::Composite { early: Rule::Clock(_), .. }) {
                        settings.trigger = Trigger::EventTime;
                    }
                }
                // All time has no time after it, and too many multiples of anything.
                if settings.windows == Windows::Global {
                    settings.allowed_lateness_ms = 0;
                    match &mut settings.trigger {
                        Trigger::Early(_) => settings.trigger = Trigger::EventTime,
                        Trigger::Composite { early: early @ Rule::EventTime(_), .. } => *early = Rule::Each,
                        _ => {}
                    }
                }
                settings
            },
        )
        .boxed()
}

fn batch_settings() -> BoxedStrategy<Settings> {
    let mode = prop_oneof![Just(Mode::Append), Just(Mode::Update), Just(Mode::Complete)];
    let settings = |(windows, delay_ms, mode): (Windows, i64, Mode)| {
        let mode = if windows.is_session() && mode == Mode::Update { Mode::Append } else { mode };
        Settings { profile: Profile::Batch, delay_ms, mode, ..Settings::new(windows) }
    };
    (any_windows(), 0_i64..15, mode).prop_map(settings).boxed()
}

fn key() -> impl Strategy<Value = Option<Key>> {
    prop_oneof![
        12 => (b'a'..b'd').prop_map(|letter| Some(vec![letter])),
        1 => Just(Some(vec![])),
        1 => Just(Some(vec![0xff, 0])),
        1 => Just(Some(b"a-key-that-does-not-fit-into-its-slot".to_vec())),
        1 => Just(None),
    ]
}

fn draft() -> impl Strategy<Value = Draft> {
    let jitter = prop_oneof![3 => -6_i64..7, 2 => -40_i64..41];
    let value = prop_oneof![9 => (-9_i64..10).prop_map(Some), 1 => Just(None)];
    let event =
        (jitter, key(), value, 0_usize..4, 0_u8..30).prop_map(|(jitter, key, value, partition, timeless)| {
            Draft::Event { jitter, key, value, partition, timeless: timeless == 1 }
        });
    prop_oneof![
        16 => event,
        2 => (1_i64..400, 0_u8..4).prop_map(|(millis, backlog)| Draft::Tick { millis, backlog: backlog == 1 }),
        3 => Just(Draft::BatchEnd),
        1 => Just(Draft::PartitionAdded),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Nothing),
        2 => Just(Step::SpillDirty),
        2 => Just(Step::SpillLargest),
        2 => Just(Step::SpillAll),
        3 => Just(Step::Checkpoint),
        2 => Just(Step::Kill),
        2 => Just(Step::CheckpointAndKill),
    ]
}

/// How a history ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Open,
    Input,
    Partitions,
}

fn scale(settings: &mut Settings, drift: i64, real: bool) -> Scale {
    // Days need hours, weeks and months need days, and changes of the clocks nearby.
    let (unit, base) = match &settings.windows {
        Windows::CalendarDay { .. } => (3 * 3_600_000, 1_615_700_000_000),
        Windows::CalendarWeek { .. } => (11 * 3_600_000, 1_161_500_000_000),
        Windows::CalendarMonth { .. } => (61 * 3_600_000, 1_161_500_000_000),
        _ => return Scale { unit: 1, base: if drift == 0 { 0 } else { -20 }, drift, real },
    };
    settings.delay_ms *= unit;
    settings.allowed_lateness_ms *= unit;
    match &mut settings.trigger {
        Trigger::Early(interval) | Trigger::Composite { early: Rule::EventTime(interval), .. } => {
            *interval *= unit
        }
        _ => {}
    }
    Scale { unit, base, drift, real }
}

fn ops(settings: &Settings, drafts: &[Draft], scale: Scale, end: End) -> Vec<Op> {
    let (mut now_ms, mut partitions) = (0, settings.partitions);
    let mut ops: Vec<Op> = Vec::new();
    for (index, draft) in drafts.iter().enumerate() {
        ops.push(match draft.clone() {
            Draft::Event { jitter, key, value, partition, timeless } => {
                let ts = scale.base + scale.unit * (index as i64 * scale.drift + jitter);
                let number = |int: i64| match scale.real {
                    true => Num::Float(int as f64 / 4.0),
                    false => Num::Int(int.into()),
                };
                Op::Event(Event {
                    ts: (!timeless).then_some(ts),
                    key,
                    value: value.map(number),
                    partition: partition % partitions,
                    id: None,
                })
            }
            Draft::Tick { millis, backlog }
                if settings.idle_timeout_ms.is_some() || settings.trigger.has_clock() =>
            {
                now_ms += millis;
                Op::Tick { now_ms, backlog: backlog.then_some((0, 1)).into_iter().collect() }
            }
            Draft::PartitionAdded if settings.profile == Profile::Record => {
                partitions += 1;
                Op::PartitionAdded(partitions - 1)
            }
            Draft::Tick { .. } | Draft::PartitionAdded | Draft::BatchEnd => Op::BatchEnd,
        });
    }
    match end {
        _ if settings.profile == Profile::Batch => ops.push(Op::BatchEnd),
        End::Open => {}
        End::Input => ops.push(Op::EndOfInput),
        End::Partitions => ops.extend((0..partitions).map(Op::EndOfPartition)),
    }
    ops
}

fn history(settings: BoxedStrategy<Settings>) -> impl Strategy<Value = History> {
    let end = prop_oneof![2 => Just(End::Input), 1 => Just(End::Open), 1 => Just(End::Partitions)];
    let drafts = prop::collection::vec(draft(), 1..40);
    let batches = prop_oneof![Just(vec![]), prop::collection::vec(1_usize..9, 1..4)];
    let steps = prop::collection::vec(step(), 0..6);
    let step_rows = prop_oneof![2 => Just(None), 1 => (1_usize..4).prop_map(Some)];
    (settings, drafts, 0_i64..4, 0_u8..4, end, batches, (steps, step_rows)).prop_map(
        |(mut settings, drafts, drift, real, end, batches, (mut after, mut step_rows))| {
            let scale = scale(&mut settings, drift, real == 1);
            // Idle time-outs and intervals begin anew in a new process, which says nothing about how long the old one
            // waited.
            if settings.idle_timeout_ms.is_some() || settings.trigger.has_clock() {
                after.retain(|step| !step.kills());
                step_rows = None;
            }
            let ops = ops(&settings, &drafts, scale, end);
            History { settings, ops, plan: Plan { batches, after, step_rows } }
        },
    )
}

/// # Errors
/// The first difference between the model and the engine.
fn check(
    history: &History,
    way: fn(&Settings, &[Op], &Plan) -> Result<Observed, String>,
) -> Result<(), TestCaseError> {
    let History { settings, ops, plan } = history;
    let expected = Oracle::run(settings, ops).expect("histories have settings that work");
    let mut found = way(settings, ops, plan).map_err(TestCaseError::fail)?;
    let difference = if plan.batches.is_empty() {
        if found.watermarks.is_empty() {
            found.watermarks.clone_from(&expected.watermarks);
        }
        compare(&expected, &found)
    } else {
        compare_unplaced(&expected, &found)
    };
    difference.map_err(|difference| TestCaseError::fail(difference.to_string()))
}

fn config(cases: u32, deep_cases: u32) -> ProptestConfig {
    let seed = std::env::var("FLOODMARK_SEED").ok().map_or(20_261_130, |seed| seed.parse().unwrap());
    ProptestConfig {
        cases: if deep() { deep_cases } else { cases },
        rng_seed: RngSeed::Fixed(seed),
        max_shrink_iters: 20_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config(2_000, 100_000))]

    #[test]
    fn tumbling_windows_agree_with_the_model(history in history(record_settings(tumbling(), plain_trigger()))) {
        check(&history, through_operator)?;
    }

    #[test]
    fn sliding_windows_agree_with_the_model(history in history(record_settings(sliding(), plain_trigger()))) {
        check(&history, through_operator)?;
    }

    #[test]
    fn sessions_agree_with_the_model(history in history(record_settings(sessions(), plain_trigger()))) {
        check(&history, through_operator)?;
    }

    #[test]
    fn cumulative_windows_agree_with_the_model(history in history(record_settings(cumulative(), plain_trigger()))) {
        check(&history, through_operator)?;
    }

    #[test]
    fn days_agree_with_the_model(history in history(record_settings(days(), plain_trigger()))) {
        check(&history, through_operator)?;
    }

    #[test]
    fn weeks_and_months_agree_with_the_model(
        history in history(record_settings(weeks_and_months(), plain_trigger())),
    ) {
        check(&history, through_operator)?;
    }

    #[test]
    fn one_window_for_all_time_agrees_with_the_model(history in history(record_settings(global(), plain_trigger()))) {
        check(&history, through_operator)?;
    }

    #[test]
    fn early_firings_agree_with_the_model(history in history(record_settings(any_windows(), early_trigger()))) {
        check(&history, through_operator)?;
    }

    #[test]
    fn rules_before_and_after_closing_agree_with_the_model(
        history in history(record_settings(any_windows(), composite_trigger())),
    ) {
        check(&history, through_operator)?;
    }

    #[test]
    fn firings_by_the_clock_agree_with_the_model(
        history in history(record_settings(any_windows(), clock_trigger())),
    ) {
        check(&history, through_operator)?;
    }

    #[test]
    fn retractions_agree_with_the_model(history in history(retracting(any_windows()))) {
        check(&history, through_operator)?;
    }

    #[test]
    fn batches_agree_with_the_model(history in history(batch_settings())) {
        check(&history, through_operator)?;
    }
}

proptest! {
    #![proptest_config(config(24, 1_000))]

    #[test]
    fn the_store_agrees_with_the_model(history in history(record_settings(any_windows(), plain_trigger()))) {
        check(&history, through_store)?;
    }

    #[test]
    fn the_store_agrees_with_the_model_on_triggers(
        history in history(record_settings(any_windows(), prop_oneof![composite_trigger(), clock_trigger()].boxed())),
    ) {
        check(&history, through_store)?;
    }

    #[test]
    fn the_store_agrees_with_the_model_on_retractions(history in history(retracting(any_windows()))) {
        check(&history, through_store)?;
    }

    #[test]
    fn the_store_agrees_with_the_model_on_batches(history in history(batch_settings())) {
        check(&history, through_store)?;
    }
}

/// The comparison itself: a model of other settings is told apart within a few histories.
#[test]
fn a_wrong_engine_is_found_out() {
    let mut runner = TestRunner::new(config(200, 200));
    let settings = record_settings(tumbling(), plain_trigger());
    let wrong = |settings: &Settings, ops: &[Op], _: &Plan| {
        let lateness = settings.allowed_lateness_ms + 1;
        let other = Settings { allowed_lateness_ms: lateness, ..settings.clone() };
        Oracle::run(&other, ops).map_err(|refusal| refusal.name().to_owned())
    };
    assert!(runner.run(&history(settings), |history| check(&history, wrong)).is_err());
}
