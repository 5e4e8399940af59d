//! What the state should be, from the load, the windows, the watermark delay and the distribution of lateness alone.
//! Knows nothing of what was measured. docs/STATE_SIZE.md derives the formulas and states the assumptions.
//!
//! All times are in milliseconds. The age of an instant is how long it lies before the arrival clock.

use serde::Serialize;

use super::lateness::{Class, Lateness, Profile};
use super::shape::Shape;

/// Pieces that an integral over ages is cut into.
const STEPS: usize = 3_000;
/// Steps of one session gap in which chains of events are followed.
const CHAIN_STEPS: usize = 60;
/// Longer chains are taken to end here: 300 gaps.
const CHAIN_STEPS_MAX: usize = 300 * CHAIN_STEPS;
/// Chains that are rarer are not followed.
const CHAIN_NEGLIGIBLE: f64 = 1e-7;
/// What is rarer than this is left out of integrals without an end.
const NEGLIGIBLE: f64 = 1e-9;

/// The stream, as far as it matters.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Load {
    /// Events per millisecond.
    pub(super) rate: f64,
    /// Keys, all alike.
    pub(super) keys: f64,
    classes: Vec<Class>,
}

/// What a run should show in its steady state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Prediction {
    /// Open panes, on the mean over time.
    pub(super) open_panes_mean: f64,
    /// Open panes just before a window closes.
    pub(super) open_panes_peak: f64,
    /// Share of the events that are late.
    pub(super) late_share: f64,
    /// How far the newest event time lies behind the arrival clock, which adds to the delay.
    pub(super) lag_ms: f64,
}

impl Load {
    pub(super) fn new(rate: f64, keys: f64, profile: Profile) -> Self {
        Self { rate, keys, classes: profile.classes() }
    }

    fn key_rate(&self) -> f64 {
        self.rate / self.keys
    }

    /// Sum over the classes of keys, each weighted with its share.
    fn over_classes(&self, of: impl Fn(&Lateness) -> f64) -> f64 {
        self.classes.iter().map(|class| class.share * of(&class.lateness)).sum()
    }

    /// Mean age of the newest event that has arrived: nobody younger than x is here with the probability
    /// exp(−rate × integral of the arrived share up to x).
    fn lag_ms(&self) -> f64 {
        let nobody = |age: f64| (-self.rate * self.over_classes(|late| late.arrived_up_to(age))).exp();
        let mut end = self.rate.recip();
        while nobody(end) > NEGLIGIBLE {
            end *= 2.0;
        }
        integral(0.0, end, nobody)
    }
}

/// The prediction for windows of `shape` at a watermark delay.
pub(super) fn predict(shape: Shape, load: &Load, delay_ms: f64) -> Prediction {
    let lag_ms = load.lag_ms();
    let behind = delay_ms + lag_ms;
    let (open_panes_mean, open_panes_peak) = match shape {
        Shape::Aligned { piece_ms, kept_ms } => aligned_panes(load, piece_ms, kept_ms + behind),
        Shape::Session { gap_ms } => {
            let open = open_sessions(load, gap_ms, gap_ms + behind);
            (open, open)
        }
    };
    let late_share = match shape {
        Shape::Aligned { piece_ms, kept_ms } => load.over_classes(|late| {
            let up_to = |left: f64| late.later_than_up_to(behind + left);
            (up_to(kept_ms) - up_to(kept_ms - piece_ms)) / piece_ms
        }),
        Shape::Session { gap_ms } => {
            let chains = Chains::new(load.key_rate(), gap_ms);
            load.over_classes(|late| late_for_sessions(late, &chains, behind + gap_ms))
        }
    };
    Prediction { open_panes_mean, open_panes_peak, late_share, lag_ms }
}

/// Mean and peak of open panes where every piece is kept from its start until `kept` later.
fn aligned_panes(load: &Load, piece: f64, kept: f64) -> (f64, f64) {
    // Probability that a key has an event in the piece that started `age` ago.
    let taken = |age: f64| {
        load.over_classes(|late| {
            let arrived = late.arrived_up_to(age) - late.arrived_up_to(age - piece);
            -(-load.key_rate() * arrived).exp_m1()
        })
    };
    let mean = load.keys / piece * (integral(0.0, piece, taken) + integral(piece, kept, taken));
    // Just before the oldest piece goes, the ages are kept, kept - piece, and so on.
    let ages = std::iter::successors(Some(kept), |age| Some(age - piece)).take_while(|&age| age > 0.0);
    let peak = load.keys * ages.map(taken).sum::<f64>();
    (mean, peak.max(mean))
}

/// Open sessions: events within `kept` of now that no later event of their key has joined yet.
fn open_sessions(load: &Load, gap: f64, kept: f64) -> f64 {
    let rate = load.key_rate();
    let last_of_session = |age: f64| {
        load.over_classes(|late| {
            let followers = late.arrived_up_to(age) - late.arrived_up_to(age - gap);
            late.arrived(age) * (-rate * followers).exp()
        })
    };
    load.rate * (integral(0.0, gap, last_of_session) + integral(gap, kept, last_of_session))
}

/// Share of the events whose own session has expired, `left` after their time, and that no chain of events ties to one
/// that has not.
fn late_for_sessions(late: &Lateness, chains: &Chains, left: f64) -> f64 {
    // By parts: the integral of the density times (1 - reach) is that of the tail times the slope of reach.
    let mut share = late.later_than(left);
    let mut before = chains.reach(0);
    share *= 1.0 - before;
    for step in 1..chains.reach.len() {
        let reach = chains.reach(step);
        share += late.later_than(left + (step as f64 - 0.5) * chains.step) * (before - reach);
        before = reach;
    }
    share + late.later_than(left + chains.reach.len() as f64 * chains.step) * before
}

/// How far events of a key reach when each follows the one before within the gap.
struct Chains {
    step: f64,
    // Probability that a chain has an event beyond so many steps.
    reach: Vec<f64>,
}

impl Chains {
    /// Follows chains of Poisson events until hardly any goes on.
    fn new(rate: f64, gap: f64) -> Self {
        let step = gap / CHAIN_STEPS as f64;
        // Probability that nothing comes in so many steps, up to a gap.
        let empty: Vec<f64> = (0..=CHAIN_STEPS).map(|steps| (-rate * step * steps as f64).exp()).collect();
        let (some, none) = (1.0 - empty[1], empty[CHAIN_STEPS]);
        // Probability that the chain has an event in step k; it starts with one in step 0.
        let mut events = vec![1.0];
        let mut reach = vec![1.0 - none];
        while reach.last().is_some_and(|&last| last > CHAIN_NEGLIGIBLE) && reach.len() < CHAIN_STEPS_MAX {
            let recent = || events.iter().rev().take(CHAIN_STEPS).zip(&empty);
            // The last event before lies 1, 2, ... steps back, with nothing in between.
            let here = some * recent().map(|(event, between)| event * between).sum::<f64>();
            events.push(here);
            // Nothing comes between the last event so far and here, but something does within its gap.
            let last = events.iter().rev().zip(&empty);
            reach.push(last.map(|(event, between)| event * (between - none)).sum());
        }
        Self { step, reach }
    }

    fn reach(&self, step: usize) -> f64 {
        self.reach.get(step).copied().unwrap_or(0.0)
    }
}

/// The integral of `function` by the middles of equal pieces.
fn integral(from: f64, to: f64, function: impl Fn(f64) -> f64) -> f64 {
    let width = (to - from) / STEPS as f64;
    (0..STEPS).map(|step| function(from + (step as f64 + 0.5) * width)).sum::<f64>() * width
}

/// Bytes by panes, as runs of their own showed them: straight lines through these measurements, the last one going on.
/// See docs/STATE_SIZE.md.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct ByteCost {
    /// (panes, bytes), by panes.
    pub(super) points: [(f64, f64); 3],
}

impl ByteCost {
    /// Bytes of so many panes.
    pub(super) fn of(self, panes: f64) -> f64 {
        let [low, middle, high] = self.points;
        let (from, to) = if panes < middle.0 { (low, middle) } else { (middle, high) };
        let per_pane = (to.1 - from.1) / (to.0 - from.0).max(1.0);
        (from.1 + per_pane * (panes - from.0)).max(0.0)
    }
}

#[cfg(test)]
mod tests;
