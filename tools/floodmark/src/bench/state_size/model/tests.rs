//! The model against cases that can be worked out by hand, against a simulation of its own, and its laws.

use super::super::lateness::Part;
use super::*;

const HOUR: f64 = 3_600_000.0;
const TEN: Shape = Shape::Aligned { piece_ms: 600_000.0, kept_ms: 600_000.0 };
const SLICES: Shape = Shape::Aligned { piece_ms: 600_000.0, kept_ms: HOUR };
const SESSIONS: Shape = Shape::Session { gap_ms: 300_000.0 };

fn load(rate: f64, keys: f64, lateness: Lateness) -> Load {
    Load { rate, keys, classes: vec![Class { share: 1.0, lateness }] }
}

fn in_order(rate: f64, keys: f64) -> Load {
    load(rate, keys, Lateness::of(vec![(1.0, Part::Zero)]))
}

#[track_caller]
fn assert_near(value: f64, expected: f64, share: f64) {
    assert!((value - expected).abs() <= share * expected.abs(), "{value} is not about {expected}");
}

#[test]
fn the_lag_of_events_in_order_is_the_mean_time_between_two() {
    assert_near(in_order(0.01, 5.0).lag_ms(), 100.0, 1e-3);
}

#[test]
fn so_many_events_that_every_key_has_some_fill_every_window_that_is_open() {
    // One event per key and 6 s. At a delay of one hour seven windows are open at the end of each: six full ones that
    // wait and the newest. On the mean, the newest is there from its first event on, 6 s after its start.
    let load = in_order(100.0 / 6_000.0, 100.0);
    let predicted = predict(TEN, &load, HOUR);
    // At the very end the next one has begun, as the watermark is 60 ms behind.
    assert_near(predicted.open_panes_peak, 701.0, 1e-3);
    assert_near(predicted.open_panes_mean, 700.0 - 100.0 * 6.0 / 600.0, 1e-3);
}

#[test]
fn slices_are_kept_until_the_last_window_that_holds_them() {
    // Every slice of 10 min is kept for an hour, and one more hour of delay: twelve at the most.
    let load = in_order(100.0 / 6_000.0, 100.0);
    assert_near(predict(SLICES, &load, HOUR).open_panes_peak, 1_200.0, 1e-3);
    assert_near(predict(SLICES, &load, 0.0).open_panes_peak, 600.0, 2e-2);
}

#[test]
fn rare_keys_have_as_many_panes_as_events() {
    // A million keys: hardly any has two events in ten minutes. 70 minutes of an event a second, less the part of the
    // newest window that is still to come.
    let load = in_order(0.001, 1e6);
    assert_near(predict(TEN, &load, HOUR).open_panes_mean, 3_600.0 + 300.0, 2e-3);
    assert_near(predict(TEN, &load, HOUR).open_panes_peak, 4_200.0, 2e-3);
}

#[test]
fn sessions_of_rare_keys_are_single_events_and_those_of_busy_keys_one_each() {
    let rare = in_order(0.001, 1e6);
    assert_near(predict(SESSIONS, &rare, HOUR).open_panes_mean, 3_600.0 + 300.0, 2e-3);
    // Ten events to a gap: about one session in e^10 ends.
    let busy = in_order(10.0 / 30_000.0, 10.0);
    assert_near(predict(SESSIONS, &busy, HOUR).open_panes_mean, 10.0, 1e-2);
}

#[test]
fn lateness_up_to_a_bound_is_lost_where_the_window_is_gone_by_then() {
    // Uniform up to an hour, no delay. An event y before the end of its window is late beyond y; over the window of ten
    // minutes that is 1 - y/60 min, on the mean 1 - 5/60.
    let uniform = load(1.0, 1_000.0, Lateness::of(vec![(1.0, Part::Uniform { max: HOUR })]));
    assert_near(predict(TEN, &uniform, 0.0).late_share, 1.0 - 5.0 / 60.0, 3e-3);
    assert_near(predict(TEN, &uniform, HOUR / 2.0).late_share, 0.5 - 5.0 / 60.0, 3e-3);
    assert!(predict(TEN, &uniform, HOUR).late_share == 0.0);
    // A slice goes only when its last window does, 50 to 60 minutes after the event.
    assert_near(predict(SLICES, &uniform, 0.0).late_share, 5.0 / 60.0, 0.02);
}

#[test]
fn chains_reach_over_their_first_gap_as_worked_out_by_hand() {
    // Rare events: a chain passes z when its first event lies between z and the gap.
    let rare = Chains::new(0.01, 1.0);
    assert_near(rare.reach(0), 0.00995, 1e-3);
    assert_near(rare.reach(CHAIN_STEPS / 2), 0.005, 0.02);
    // Of events that come ten to a gap hardly any chain ends within the first.
    assert!(Chains::new(10.0, 1.0).reach(CHAIN_STEPS) > 0.999);
}

#[test]
fn chains_reach_as_far_as_drawn_ones() {
    let (rate, gap) = (0.8, 1.0);
    let chains = Chains::new(rate, gap);
    let mut random = crate::random::Random::new(5, 1);
    let drawn = 100_000;
    let mut lengths: Vec<f64> = Vec::new();
    for _ in 0..drawn {
        let mut at = 0.0;
        loop {
            let next = -random.unit().ln() / rate;
            if next > gap {
                break;
            }
            at += next;
        }
        lengths.push(at);
    }
    for steps in [0, 15, 60, 90, 150, 240] {
        let beyond = steps as f64 * chains.step;
        let counted = lengths.iter().filter(|&&length| length > beyond).count() as f64 / f64::from(drawn);
        assert!((chains.reach(steps) - counted).abs() < 0.01, "{steps}: {} {counted}", chains.reach(steps));
    }
}

#[test]
fn a_longer_delay_never_means_fewer_panes_or_more_late_events() {
    for profile in Profile::ALL {
        let load = Load::new(0.003, 1_000.0, profile);
        for shape in [TEN, SLICES, SESSIONS] {
            let delays = [0.0, 1e3, 6e4, 3e5, 1e6, HOUR, 3.0 * HOUR, 7.0 * HOUR, 12.0 * HOUR, 24.0 * HOUR];
            let predictions = delays.map(|delay| predict(shape, &load, delay));
            for pair in predictions.windows(2) {
                assert!(pair[0].open_panes_mean < pair[1].open_panes_mean, "{profile:?} {shape:?} {pair:?}");
                assert!(pair[0].open_panes_peak < pair[1].open_panes_peak, "{profile:?} {shape:?} {pair:?}");
                assert!(pair[0].late_share >= pair[1].late_share, "{profile:?} {shape:?} {pair:?}");
            }
            let shares = predictions.map(|predicted| predicted.late_share);
            assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)), "{profile:?} {shares:?}");
        }
    }
}

#[test]
fn bytes_lie_on_the_lines_through_three_measurements_and_beyond_the_last() {
    let cost = ByteCost { points: [(100.0, 5_000.0), (200.0, 6_000.0), (1_200.0, 46_000.0)] };
    for (panes, bytes) in
        [(100.0, 5_000.0), (150.0, 5_500.0), (200.0, 6_000.0), (700.0, 26_000.0), (2_200.0, 86_000.0)]
    {
        assert_near(cost.of(panes), bytes, 1e-9);
    }
    assert!(cost.of(0.0) >= 0.0);
}
