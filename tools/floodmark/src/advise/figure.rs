//! The advice as a figure: how late events are, and what delays lose and hold.

use floodmark::operator::Spread;
use floodmark::pipeline::advise::{Advice, Candidate, Outcome};

use crate::amount::{bytes, length, share};
use crate::plot::{Axis, Figure, Marks, Panel, Series};
use crate::run::grouped;

/// Windows that get a colour of their own.
const WINDOWS_DRAWN: usize = 6;
/// Lengths that an axis of time names.
const NAMED_MS: [i64; 16] = [
    1,
    10,
    100,
    1_000,
    5_000,
    15_000,
    60_000,
    300_000,
    900_000,
    3_600_000,
    6 * 3_600_000,
    86_400_000,
    4 * 86_400_000,
    14 * 86_400_000,
    60 * 86_400_000,
    365 * 86_400_000,
];

/// The figure: one row, with lateness, losses, panes and bytes.
pub(super) fn figure(advice: &Advice) -> Figure {
    let x = delay_axis(advice);
    let panels = vec![
        vec![lateness(advice, &x), losses(advice, &x)],
        vec![
            amounts(
                advice,
                &x,
                "open panes",
                |one| (one.panes_mean, one.panes_peak),
                |panes| grouped(panes.round() as u64),
            ),
            amounts(
                advice,
                &x,
                "bytes of panes in memory",
                |one| (one.memory_bytes_mean, one.memory_bytes_peak),
                bytes,
            ),
        ],
    ];
    let mut notes = vec![format!(
        "{} events, {} of them late. Lines: mean, and share of events later than that; dashes: peak.",
        grouped(advice.sample.events),
        share(advice.lateness.above_zero as f64 / advice.lateness.events.max(1) as f64)
    )];
    if let Some(advised) = &advice.recommendation {
        notes.push(format!(
            "Advised: {}, which loses {} of the events where {} may be lost.",
            advised.delay,
            share(advised.lost_share),
            share(advice.loss_budget)
        ));
    }
    Figure {
        title: format!("{}: what a watermark delay loses and holds", advice.pipeline),
        notes,
        legend: advice.windows.iter().take(WINDOWS_DRAWN).map(|window| window.window.clone()).collect(),
        marks: vec![
            (Marks::Points, None, "tried".to_owned()),
            (Marks::Dashes, Some(ADVISED), "advised delay".to_owned()),
        ],
        rows: panels,
    }
}

/// The colour of the advised delay, and of lateness: the last one, which windows hardly get to.
const ADVISED: usize = 3;
const LATENESS: usize = 5;

/// One axis for all panels: logarithmic from the least length that anything has.
fn delay_axis(advice: &Advice) -> Axis {
    let delays = || advice.candidates.iter().filter_map(|candidate| candidate.delay_ms);
    let highest = delays().max().unwrap_or(0).max(advice.lateness.max_ms).max(1);
    let lowest = delays().filter(|&delay| delay > 0).min().unwrap_or(highest);
    let least = advice.lateness.histogram.first().map_or(lowest, |bucket| bucket.over_ms.max(1));
    let unit = lowest.min(least).max(1);
    let mut ticks = vec![(0.0, "0".to_owned())];
    let named = NAMED_MS.into_iter().filter(|&named| named >= unit && named <= highest);
    ticks.extend(named.map(|named| (named as f64, length(named))));
    ticks.push((highest as f64, length(highest)));
    Axis::log_from_zero("watermark delay, or lateness (logarithmic, and 0)", unit as f64, ticks)
}

/// The smallest share that an axis shows: a tenth of one event.
fn share_floor(events: u64) -> f64 {
    0.1 / events.max(1) as f64
}

/// Shares of events that are later than so much.
fn lateness(advice: &Advice, x: &Axis) -> Panel {
    let floor = share_floor(advice.lateness.events);
    let y = Axis::log("share of events that are later", floor, 1.0, share_name(floor));
    let mut series =
        vec![Series { index: LATENESS, marks: Marks::Line, points: tail(&advice.lateness, floor) }];
    series.extend(advised_line(advice, (floor, 1.0)));
    Panel { title: "Lateness of events".to_owned(), x: x.clone(), y, series }
}

/// The tail at the ends of the bars.
fn tail(spread: &Spread, floor: f64) -> Vec<(f64, f64)> {
    let all = spread.events.max(1) as f64;
    let mut left = spread.above_zero;
    let mut points = vec![(0.0, (left as f64 / all).max(floor))];
    for bucket in &spread.histogram {
        left -= bucket.events;
        let end = bucket.up_to_ms.unwrap_or(spread.max_ms).min(spread.max_ms);
        points.push((end as f64, (left as f64 / all).max(floor)));
    }
    points
}

fn share_name(floor: f64) -> impl Fn(f64) -> String {
    move |value| if value <= floor { "none".to_owned() } else { format!("{} %", (value * 1e8).round() / 1e6) }
}

/// Shares of events that each delay loses.
fn losses(advice: &Advice, x: &Axis) -> Panel {
    let events = advice.candidates.iter().flat_map(|one| &one.outcomes).map(|one| one.events).max();
    let floor = share_floor(events.unwrap_or(1));
    let y = Axis::log("share of events lost", floor, 1.0, share_name(floor));
    let mut series = series_of(
        advice,
        &[
            (Marks::Line, &|one| one.lost_share().max(floor)),
            (Marks::Points, &|one| one.lost_share().max(floor)),
        ],
    );
    series.extend(advised_line(advice, (floor, 1.0)));
    Panel { title: "Events lost".to_owned(), x: x.clone(), y, series }
}

/// What each delay holds: mean and peak.
fn amounts(
    advice: &Advice,
    x: &Axis,
    label: &str,
    amount: impl Fn(&Outcome) -> (f64, u64),
    name: impl Fn(f64) -> String,
) -> Panel {
    let outcomes = || advice.candidates.iter().flat_map(|candidate| &candidate.outcomes);
    let highest = outcomes().map(|one| amount(one).1 as f64).fold(1.0, f64::max);
    let lowest = outcomes().map(|one| amount(one).0).filter(|&mean| mean > 0.0).fold(highest, f64::min);
    let y = Axis::log(label, lowest, highest, name);
    let mut series = series_of(
        advice,
        &[
            (Marks::Line, &|one| amount(one).0),
            (Marks::Points, &|one| amount(one).0),
            (Marks::Dashes, &|one| amount(one).1 as f64),
        ],
    );
    series.extend(advised_line(advice, (lowest, highest)));
    Panel { title: label.to_owned(), x: x.clone(), y, series }
}

/// How a number is read off an outcome.
type Read<'a> = &'a dyn Fn(&Outcome) -> f64;

/// A series for each window and each way to read it.
fn series_of(advice: &Advice, ways: &[(Marks, Read<'_>)]) -> Vec<Series> {
    let mut series = Vec::new();
    for index in 0..advice.windows.len().min(WINDOWS_DRAWN) {
        for &(marks, read) in ways {
            let point = |candidate: &Candidate| {
                Some((candidate.delay_ms? as f64, read(candidate.outcomes.get(index)?)))
            };
            series.push(Series {
                index,
                marks,
                points: advice.candidates.iter().filter_map(point).collect(),
            });
        }
    }
    series
}

/// The advised delay as an upright line.
fn advised_line(advice: &Advice, (low, high): (f64, f64)) -> Option<Series> {
    let at = advice.recommendation.as_ref()?.delay_ms as f64;
    Some(Series { index: ADVISED, marks: Marks::Dashes, points: vec![(at, low), (at, high)] })
}
