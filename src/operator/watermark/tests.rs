//! The tracker case by case, and against a naive model.

use proptest::prelude::*;
use proptest::strategy::Strategy as _;

use super::{Strategy, *};

const SECOND: Duration = Duration::from_secs(1);

fn tracker(partitions: usize, delay: i64) -> WatermarkTracker {
    let mut tracker = WatermarkTracker::new(Span::from_millis(delay).unwrap(), Some(SECOND));
    for _ in 0..partitions {
        tracker.add_partition(Duration::ZERO);
    }
    tracker
}

fn at(millis: i64) -> Watermark {
    Watermark::At(EventTime::from_millis(millis))
}

fn see(tracker: &mut WatermarkTracker, partition: u32, time: i64) -> Watermark {
    tracker.observe(PartitionId(partition), EventTime::from_millis(time))
}

#[test]
fn the_slowest_partition_holds_the_watermark_until_it_catches_up() {
    let mut tracker = tracker(2, 0);
    assert_eq!(see(&mut tracker, 1, 1_000), Watermark::None);
    assert_eq!(see(&mut tracker, 0, 0), at(0));
    assert_eq!(see(&mut tracker, 1, 2_000), at(0));
    assert_eq!(see(&mut tracker, 0, 100), at(100));
    assert_eq!(see(&mut tracker, 0, 50), at(100));
}

#[test]
fn all_idle_gives_the_maximum_whatever_the_order() {
    for first in [0, 1] {
        let mut tracker = tracker(2, 0);
        see(&mut tracker, 0, 6);
        see(&mut tracker, 1, 5);
        tracker.touch(PartitionId(first), SECOND / 2);
        tracker.tick(SECOND, |_| false);
        assert_eq!(tracker.tick(SECOND * 2, |_| false), at(6), "first {first}");
    }
}

#[test]
fn no_partition_and_no_record_mean_no_watermark() {
    let mut tracker = tracker(2, 0);
    assert_eq!(tracker.tick(SECOND * 5, |_| false), Watermark::None);
    assert_eq!(see(&mut tracker, 0, 3), Watermark::None.max(tracker.current()));
}

#[test]
fn a_partition_with_unread_records_is_not_idle() {
    let mut tracker = tracker(2, 0);
    tracker.touch(PartitionId(0), SECOND * 5);
    see(&mut tracker, 0, 100);
    assert_eq!(tracker.tick(SECOND * 5, |partition| partition == PartitionId(1)), Watermark::None);
    assert_eq!(tracker.tick(SECOND * 5, |_| false), at(100));
}

#[test]
fn a_returning_or_added_partition_does_not_move_the_watermark_back() {
    let mut tracker = tracker(1, 0);
    assert_eq!(see(&mut tracker, 0, 16), at(16));
    let newcomer = tracker.add_partition(SECOND);
    assert_eq!(tracker.observe(newcomer, EventTime::from_millis(5)), at(16));
    assert_eq!(see(&mut tracker, 0, 30), at(16));
    assert_eq!(tracker.observe(newcomer, EventTime::from_millis(17)), at(17));
}

#[test]
fn a_finished_partition_holds_nothing_back() {
    let mut tracker = tracker(2, 0);
    see(&mut tracker, 0, 5);
    see(&mut tracker, 1, 50);
    assert_eq!(tracker.finish(PartitionId(0)), at(50));
}

proptest! {
    #[test]
    fn the_watermark_never_moves_back_and_equals_the_minimum(
        steps in prop::collection::vec((0_u32..3, -50_i64..50), 1..60),
    ) {
        let mut tracker = tracker(3, 7);
        let mut maxima = [None::<i64>; 3];
        let mut previous = Watermark::None;
        for (partition, time) in steps {
            let current = see(&mut tracker, partition, time);
            let max = &mut maxima[partition as usize];
            *max = Some(max.map_or(time, |max| max.max(time)));
            let expected = maxima.iter().copied().min().flatten().map_or(Watermark::None, |m| at(m - 7));
            prop_assert!(current >= previous);
            prop_assert_eq!(current, expected);
            previous = current;
        }
    }
}

#[test]
fn the_fastest_source_decides_under_max_and_the_slowest_under_min() {
    for (policy, expected) in
        [(Policy::Min, [Watermark::None, at(10), at(10)]), (Policy::Max, [at(100), at(100), at(200)])]
    {
        let mut tracker = two_sources(policy);
        let seen = [see(&mut tracker, 0, 100), see(&mut tracker, 1, 10), see(&mut tracker, 0, 200)];
        assert_eq!(seen, expected, "{policy:?}");
        let of_sources: Vec<Watermark> = tracker.sources().map(|(_, watermark)| watermark).collect();
        assert_eq!(of_sources, [at(200), at(10)]);
    }
}

#[test]
fn a_source_without_partitions_holds_back_and_one_without_a_strategy_does_not() {
    let specs = |second| vec![spec("a", Strategy::Monotone), spec("b", second)];
    for (second, expected) in [(Strategy::Monotone, Watermark::None), (Strategy::None, at(7))] {
        let mut tracker = WatermarkTracker::of(specs(second), Policy::Min);
        tracker.add_partition(Duration::ZERO);
        assert_eq!(see(&mut tracker, 0, 7), expected, "{second:?}");
    }
}

#[test]
fn an_idle_or_finished_source_holds_nothing_back() {
    let mut tracker = two_sources(Policy::Min);
    see(&mut tracker, 0, 100);
    see(&mut tracker, 1, 10);
    assert_eq!(tracker.finish(PartitionId(1)), at(100));
    tracker.touch(PartitionId(1), SECOND);
    assert_eq!(see(&mut tracker, 1, 20), at(100));
    assert_eq!(see(&mut tracker, 0, 300), at(100));
    assert_eq!(see(&mut tracker, 1, 250), at(250));
}

#[test]
fn only_punctuations_move_a_punctuated_source() {
    let mut tracker = WatermarkTracker::of(vec![spec("p", Strategy::Punctuated)], Policy::Min);
    let partition = tracker.add_partition(Duration::ZERO);
    assert_eq!(see(&mut tracker, 0, 1_000), Watermark::None);
    assert_eq!(tracker.punctuate(partition, EventTime::from_millis(40)), at(40));
    assert_eq!(tracker.punctuate(partition, EventTime::from_millis(30)), at(40));
    let mut bounded = self::tracker(1, 0);
    assert_eq!(bounded.punctuate(PartitionId(0), EventTime::from_millis(40)), Watermark::None);
}

#[test]
fn an_event_that_goes_back_in_a_monotone_source_is_counted() {
    let mut tracker = two_sources(Policy::Min);
    for time in [5, 5, 4, 6, 5] {
        see(&mut tracker, 0, time);
    }
    assert_eq!(tracker.steps_back(), 2);
    let mut bounded = self::tracker(1, 10);
    for time in [5, 4] {
        see(&mut bounded, 0, time);
    }
    assert_eq!(bounded.steps_back(), 0);
}

#[test]
fn a_silent_stream_goes_on_with_the_clock_and_no_further_than_it() {
    let mut tracker = tracker(2, 100).advancing_when_idle(Some(SECOND * 3));
    tracker.sources[0].spec.idle_timeout = None;
    see(&mut tracker, 0, 10_000);
    assert_eq!(tracker.tick(SECOND * 60, |_| false), Watermark::None, "no clock, no advance");
    tracker.set_wall_clock(14_000);
    assert_eq!(tracker.tick(SECOND * 2, |_| false), Watermark::None, "not silent for long enough");
    assert_eq!(
        tracker.tick(SECOND * 3, |partition| partition.0 == 1),
        Watermark::None,
        "records are waiting"
    );
    assert_eq!(tracker.tick(SECOND * 3, |_| false), at(12_900));
    assert_eq!(tracker.tick(SECOND * 9, |_| false), at(13_900), "never past the clock less the delay");
    tracker.set_wall_clock(11_000);
    assert_eq!(
        tracker.tick(SECOND * 10, |_| false),
        at(13_900),
        "a clock that steps back moves nothing back"
    );
    tracker.touch(PartitionId(1), SECOND * 11);
    tracker.set_wall_clock(100_000);
    assert_eq!(tracker.tick(SECOND * 13, |_| false), at(13_900), "it spoke two seconds ago");
    assert_eq!(tracker.tick(SECOND * 14, |_| false), at(13_900));
    assert_eq!(tracker.tick(SECOND * 16, |_| false), at(14_900));
}

#[test]
fn silence_goes_on_after_a_restart_from_where_it_was() {
    let mut tracker = tracker(1, 0).advancing_when_idle(Some(SECOND));
    tracker.set_wall_clock(1_000_000);
    see(&mut tracker, 0, 10_000);
    assert_eq!(tracker.tick(SECOND * 5, |_| false), at(15_000));
    let mut restored = self::tracker(0, 0).advancing_when_idle(Some(SECOND));
    restored.restore(tracker.saved(), Duration::ZERO);
    restored.set_wall_clock(1_000_000);
    assert_eq!(restored.current(), at(15_000));
    assert_eq!(restored.tick(SECOND * 2, |_| false), at(17_000));
}

#[test]
fn what_one_event_moved_too_far_is_told_once() {
    let mut tracker = tracker(1, 0);
    see(&mut tracker, 0, 0);
    see(&mut tracker, 0, 86_400_000);
    assert_eq!(tracker.take_jump(), None, "a day is not too far");
    see(&mut tracker, 0, 3 * 86_400_000);
    assert_eq!(tracker.take_jump().map(|jump| jump.length().to_string()), Some("2d".to_owned()));
    assert_eq!(tracker.take_jump(), None);
}

#[test]
fn another_delay_after_a_restart_moves_nothing_back_and_nothing_before_the_first_event() {
    let mut old = tracker(2, 10);
    see(&mut old, 0, 100);
    see(&mut old, 1, 200);
    for delay in [0, 50] {
        let mut new = tracker(0, delay);
        new.restore(old.saved(), Duration::ZERO);
        assert_eq!(new.current(), at(90), "delay {delay}");
        assert_eq!(see(&mut new, 0, 101), at(90.max(101 - delay)));
    }
}

#[test]
fn a_checkpoint_that_says_nothing_of_sources_holds_nothing_back() {
    let mut old = tracker(2, 0);
    see(&mut old, 0, 100);
    see(&mut old, 1, 200);
    let mut partitions = old.saved().partitions;
    partitions.iter_mut().for_each(|(_, progress)| progress.watermark = Watermark::None);
    let mut new = tracker(0, 0);
    new.restore(SavedWatermarks { task: old.current(), sources: Vec::new(), partitions }, Duration::ZERO);
    assert_eq!(see(&mut new, 0, 150), at(150));
    assert_eq!(see(&mut new, 0, 300), at(200));
}

#[test]
fn a_partition_that_goes_to_another_source_holds_the_old_one_back_no_more() {
    let mut tracker = two_sources(Policy::Max);
    let third = tracker.add_partition_of(SourceId(0), Duration::ZERO);
    see(&mut tracker, 0, 10);
    tracker.observe(third, EventTime::from_millis(50));
    tracker.assign(PartitionId(0), SourceId(1));
    assert_eq!(tracker.observe(third, EventTime::from_millis(60)), at(60));
}

fn spec(name: &str, strategy: Strategy) -> SourceSpec {
    SourceSpec::new(name, strategy)
}

/// Partition 0 of source 0 and partition 1 of source 1, both monotone.
fn two_sources(policy: Policy) -> WatermarkTracker {
    let specs = vec![spec("a", Strategy::Monotone), spec("b", Strategy::Monotone)];
    let mut tracker = WatermarkTracker::of(specs, policy);
    tracker.add_partition_of(SourceId(0), Duration::ZERO);
    tracker.add_partition_of(SourceId(1), Duration::ZERO);
    tracker
}

/// What may happen to a tracker.
#[derive(Clone, Debug)]
enum Step {
    Event(usize, i64),
    Punctuation(usize, i64),
    Tick(u64, [bool; PARTITIONS]),
    Finish(usize),
    Restart,
}

const PARTITIONS: usize = 4;
/// The source of each partition.
const SOURCES: [u16; PARTITIONS] = [0, 0, 1, 2];

/// The rules written down once more, everything worked out anew from all that happened.
struct Naive {
    strategies: [Strategy; 3],
    policy: Policy,
    idle: Option<u64>,
    advance: Option<u64>,
    delivered: [Vec<i64>; PARTITIONS],
    marks: [i64; PARTITIONS],
    last: [u64; PARTITIONS],
    out: [bool; PARTITIONS],
    finished: [bool; PARTITIONS],
    sources: [i64; 3],
    task: i64,
    floor: i64,
    now: u64,
}

/// No watermark.
const NOTHING: i64 = i64::MIN;

impl Naive {
    fn step(&mut self, step: &Step) {
        match *step {
            Step::Event(partition, time) => {
                self.spoke(partition);
                self.delivered[partition].push(time);
                if let Some(delay) = self.strategies[usize::from(SOURCES[partition])].delay() {
                    let latest = self.delivered[partition].iter().max().unwrap();
                    self.marks[partition] = self.marks[partition].max(latest - delay.as_millis());
                }
            }
            Step::Punctuation(partition, time) => {
                self.spoke(partition);
                if self.strategies[usize::from(SOURCES[partition])] == Strategy::Punctuated {
                    self.marks[partition] = self.marks[partition].max(time);
                }
            }
            Step::Finish(partition) => self.finished[partition] = true,
            Step::Tick(later, backlog) => {
                self.now += later;
                for (partition, waits) in backlog.iter().enumerate() {
                    let silent = self.idle.is_some_and(|timeout| self.now - self.last[partition] >= timeout);
                    self.out[partition] |= silent && !waits && !self.finished[partition];
                }
                self.go_on(backlog);
            }
            Step::Restart => {
                self.last = [self.now; PARTITIONS];
                self.floor = self.task;
            }
        }
        self.combine();
    }

    fn spoke(&mut self, partition: usize) {
        self.last[partition] = self.now;
        self.out[partition] = false;
        self.finished[partition] = false;
    }

    fn go_on(&mut self, backlog: [bool; PARTITIONS]) {
        let open: Vec<usize> = (0..PARTITIONS).filter(|&partition| !self.finished[partition]).collect();
        let (Some(after), Some(last)) =
            (self.advance, open.iter().map(|&partition| self.last[partition]).max())
        else {
            return;
        };
        if self.now - last < after || open.iter().any(|&partition| backlog[partition]) {
            return;
        }
        let delay = |source: usize| self.strategies[source].delay().unwrap_or_default().as_millis();
        let mut from: Vec<(i64, i64)> =
            (0..PARTITIONS).map(|p| (self.marks[p], delay(usize::from(SOURCES[p])))).collect();
        from.push((self.floor, (0..3).map(delay).max().unwrap()));
        for (mark, delay) in from.into_iter().filter(|(mark, _)| *mark != NOTHING) {
            let moved = (mark + (self.now - last) as i64).min(WALL_ZERO + self.now as i64 - delay);
            self.task = self.task.max(moved);
        }
    }

    fn combine(&mut self) {
        let counts = |partition: &usize| !self.out[*partition] && !self.finished[*partition];
        let mut joined = Vec::new();
        for source in 0..3 {
            let own = || (0..PARTITIONS).filter(|&partition| usize::from(SOURCES[partition]) == source);
            let least = own().filter(counts).map(|partition| self.marks[partition]).min();
            let most = own().map(|partition| self.marks[partition]).max().unwrap();
            joined.push((least.unwrap_or(most), least.is_some()));
        }
        for (watermark, (joined, _)) in self.sources.iter_mut().zip(&joined) {
            *watermark = (*watermark).max(*joined);
        }
        let part = || (0..3).filter(|&source| self.strategies[source] != Strategy::None);
        let most = part().map(|source| self.sources[source]).max().unwrap_or(NOTHING);
        let least = part().filter(|&source| joined[source].1).map(|source| self.sources[source]).min();
        self.task = self.task.max(if self.policy == Policy::Max { most } else { least.unwrap_or(most) });
    }
}

/// The wall clock when time starts.
const WALL_ZERO: i64 = 20;

fn steps() -> impl proptest::strategy::Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..PARTITIONS, -60_i64..60).prop_map(|(partition, time)| Step::Event(partition, time)),
        2 => (0..PARTITIONS, -60_i64..60).prop_map(|(partition, time)| Step::Punctuation(partition, time)),
        3 => (0_u64..15, prop::array::uniform4(prop::bool::weighted(0.2)))
            .prop_map(|(later, backlog)| Step::Tick(later, backlog)),
        1 => (0..PARTITIONS).prop_map(Step::Finish),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..60)
}

fn strategies() -> impl proptest::strategy::Strategy<Value = [Strategy; 3]> {
    prop::array::uniform3(prop_oneof![
        3 => (0_i64..20).prop_map(|delay| Strategy::Bounded(Span::from_millis(delay).unwrap())),
        1 => Just(Strategy::Monotone),
        1 => Just(Strategy::Punctuated),
        1 => Just(Strategy::None),
    ])
}

/// A tracker as a process starts it: from nothing, or from what was saved.
fn start(
    strategies: [Strategy; 3],
    policy: Policy,
    idle: Option<u64>,
    advance: Option<u64>,
    saved: Option<(SavedWatermarks, Duration)>,
) -> WatermarkTracker {
    let spec = |(index, strategy): (usize, Strategy)| SourceSpec {
        idle_timeout: idle.map(Duration::from_millis),
        ..SourceSpec::new(&index.to_string(), strategy)
    };
    let specs = strategies.into_iter().enumerate().map(spec).collect();
    let mut tracker =
        WatermarkTracker::of(specs, policy).advancing_when_idle(advance.map(Duration::from_millis));
    match saved {
        Some((saved, now)) => tracker.restore(saved, now),
        None => {
            for source in SOURCES {
                tracker.add_partition_of(SourceId(source), Duration::ZERO);
            }
        }
    }
    tracker
}

fn as_mark(watermark: Watermark) -> i64 {
    watermark.instant().map_or(NOTHING, EventTime::as_millis)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_tracker_agrees_with_the_naive_model(
        strategies in strategies(),
        max in any::<bool>(),
        idle in prop::option::of(1_u64..20),
        advance in prop::option::of(1_u64..30),
        steps in steps(),
    ) {
        let policy = if max { Policy::Max } else { Policy::Min };
        let mut tracker = start(strategies, policy, idle, advance, None);
        let mut naive = Naive {
            strategies, policy, idle, advance,
            delivered: Default::default(), marks: [NOTHING; PARTITIONS], last: [0; PARTITIONS],
            out: [false; PARTITIONS], finished: [false; PARTITIONS], sources: [NOTHING; 3],
            task: NOTHING, floor: NOTHING, now: 0,
        };
        let mut previous = tracker.saved();
        for step in &steps {
            naive.step(step);
            let now = Duration::from_millis(naive.now);
            tracker.set_wall_clock(WALL_ZERO + naive.now as i64);
            match *step {
                Step::Event(partition, time) => {
                    tracker.touch(PartitionId(partition as u32), now);
                    see(&mut tracker, partition as u32, time);
                }
                Step::Punctuation(partition, time) => {
                    tracker.touch(PartitionId(partition as u32), now);
                    tracker.punctuate(PartitionId(partition as u32), EventTime::from_millis(time));
                }
                Step::Tick(_, backlog) => {
                    tracker.tick(now, |partition| backlog[partition.0 as usize]);
                }
                Step::Finish(partition) => {
                    tracker.finish(PartitionId(partition as u32));
                }
                Step::Restart => {
                    tracker = start(strategies, policy, idle, advance, Some((tracker.saved(), now)));
                }
            }
            let saved = tracker.saved();
            prop_assert_eq!(as_mark(saved.task), naive.task, "{:?}", step);
            let marks: Vec<i64> = saved.partitions.iter().map(|(_, known)| as_mark(known.watermark)).collect();
            prop_assert_eq!(&marks[..], &naive.marks[..], "{:?}", step);
            prop_assert!(saved.task >= previous.task);
            prop_assert!(saved.sources.iter().zip(&previous.sources).all(|(new, old)| new >= old));
            previous = saved;
        }
    }
}
