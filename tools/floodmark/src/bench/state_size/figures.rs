//! The two figures of the benchmark: state against watermark delay, and state over time.

use super::growth::{Growth, Halves};
use super::lateness::Profile;
use super::measure::Sample;
use super::report::{Case, Report, span};
use super::shape::Kind;
use crate::plot::{Axis, Figure, Marks, Panel, Series};
use crate::run::grouped;

/// Delays from which the axis is logarithmic.
const DELAY_UNIT_MS: f64 = 60_000.0;
/// Late shares that are drawn as if they were none: fewer than one event of a long run.
const SHARE_NONE: f64 = 1e-6;
const DAY_MS: f64 = 86_400_000.0;

/// What the model says at a delay that need not have been measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Modelled {
    pub(super) window: Kind,
    pub(super) profile: Profile,
    pub(super) delay_ms: u64,
    pub(super) open_panes: f64,
    pub(super) memory_bytes: f64,
    pub(super) disk_bytes: f64,
    pub(super) late_share: f64,
}

/// A figure over delays: its name, and how it is read off measurement and model.
struct Quantity {
    title: &'static str,
    label: &'static str,
    measured: fn(&Case) -> f64,
    modelled: fn(&Modelled) -> f64,
    name: fn(f64) -> String,
    // Lowest number of the axis, where it is not the lowest measured.
    floor: Option<f64>,
}

const QUANTITIES: [Quantity; 4] = [
    Quantity {
        title: "open panes",
        label: "open panes, mean",
        measured: |case| case.measured.open_panes_mean,
        modelled: |at| at.open_panes,
        name: |panes| grouped(panes.round() as u64),
        floor: None,
    },
    Quantity {
        title: "bytes in memory",
        label: "bytes of panes in memory, mean",
        measured: |case| case.measured.memory_bytes_mean,
        modelled: |at| at.memory_bytes,
        name: round_bytes,
        floor: None,
    },
    Quantity {
        title: "bytes on disk",
        label: "bytes of live state on disk, mean",
        measured: |case| case.measured.disk_bytes_mean,
        modelled: |at| at.disk_bytes,
        name: round_bytes,
        floor: None,
    },
    Quantity {
        title: "late events",
        label: "share of late events",
        measured: |case| case.measured.late_share,
        modelled: |at| at.late_share,
        name: |late| {
            if late <= SHARE_NONE { "none".to_owned() } else { format!("{} %", (late * 1e8).round() / 1e6) }
        },
        floor: Some(SHARE_NONE),
    },
];

/// State size and late share against the delay: a column for each kind of window, points over lines of the model.
pub(super) fn delays(report: &Report, modelled: &[Modelled]) -> Figure {
    let kinds: Vec<Kind> = present(Kind::ALL, |kind| report.cases.iter().any(|case| case.window == kind));
    let profiles = present(Profile::ALL, |profile| report.cases.iter().any(|case| case.profile == profile));
    let mut ticks: Vec<u64> = report.cases.iter().map(|case| case.delay_ms).collect();
    ticks.sort_unstable();
    ticks.dedup();
    let ticks: Vec<(f64, String)> = ticks.into_iter().map(|delay| (delay as f64, span(delay))).collect();
    let x = Axis::log_from_zero("watermark delay (logarithmic, and 0)", DELAY_UNIT_MS, ticks);
    let rows = QUANTITIES.iter().map(|quantity| {
        let y = quantity_axis(quantity, report);
        let panel = |&kind: &Kind| panel(quantity, kind, &profiles, report, modelled, (&x, &y));
        kinds.iter().map(panel).collect()
    });
    Figure {
        title: "State size against watermark delay".to_owned(),
        notes: vec![
            format!(
                "{} events of {} keys over {}, a checkpoint each {}; means over the last {}. Time is event time.",
                grouped(report.events),
                grouped(report.keys),
                span(report.span_ms),
                span(report.checkpoint_interval_ms),
                span(report.span_ms.saturating_sub(report.warm_up_ms))
            ),
            "The model knows the stream and the windows, not these measurements; bytes per pane are from runs over \
             another stream. A pane of a sliding window is a slice."
                .to_owned(),
        ],
        legend: profiles.iter().map(|profile| format!("lateness: {}", profile.name())).collect(),
        marks: vec![(Marks::Points, None, "measured".to_owned()), (Marks::Line, None, "model".to_owned())],
        rows: rows.collect(),
    }
}

/// Bytes of an axis: round numbers, without digits after the point that say nothing.
fn round_bytes(bytes: f64) -> String {
    match bytes {
        ..1e3 => format!("{bytes} B"),
        ..1e6 => format!("{} kB", bytes / 1e3),
        _ => format!("{} MB", bytes / 1e6),
    }
}

fn present<T: Copy, const N: usize>(all: [T; N], is_there: impl Fn(T) -> bool) -> Vec<T> {
    all.into_iter().filter(|&one| is_there(one)).collect()
}

/// One axis for all kinds of windows, so that they can be compared across.
fn quantity_axis(quantity: &Quantity, report: &Report) -> Axis {
    let values = || report.cases.iter().map(quantity.measured).filter(|&value| value > 0.0);
    let lowest = quantity.floor.unwrap_or_else(|| values().fold(f64::INFINITY, f64::min));
    Axis::log(quantity.label, lowest, values().fold(0.0, f64::max), quantity.name)
}

fn panel(
    quantity: &Quantity,
    kind: Kind,
    profiles: &[Profile],
    report: &Report,
    modelled: &[Modelled],
    (x, y): (&Axis, &Axis),
) -> Panel {
    let mut series = Vec::new();
    for (index, &profile) in profiles.iter().enumerate() {
        let cases = report.cases.iter().filter(|case| case.window == kind && case.profile == profile);
        let points = cases.map(|case| (case.delay_ms as f64, (quantity.measured)(case))).collect();
        series.push(Series { index, marks: Marks::Points, points });
        let modelled = modelled.iter().filter(|at| at.window == kind && at.profile == profile);
        let points = modelled.map(|at| (at.delay_ms as f64, (quantity.modelled)(at))).collect();
        series.push(Series { index, marks: Marks::Line, points });
    }
    Panel { title: format!("{}: {}", kind.title(), quantity.title), x: x.clone(), y: y.clone(), series }
}

/// A figure over time: how it is read off a run.
struct OverTime {
    name: &'static str,
    figure: fn(&Sample) -> u64,
    halves: fn(&Growth) -> Halves,
    axis_name: fn(f64) -> String,
}

/// State over time at a fixed delay.
pub(super) fn growth(runs: &[Growth]) -> Figure {
    const FIGURES: [OverTime; 3] = [
        OverTime {
            name: "open panes",
            figure: |at| at.open_panes,
            halves: |run| run.open_panes,
            axis_name: |panes| grouped(panes.round() as u64),
        },
        OverTime {
            name: "bytes in memory",
            figure: |at| at.memory_bytes,
            halves: |run| run.memory_bytes,
            axis_name: round_bytes,
        },
        OverTime {
            name: "bytes on disk",
            figure: |at| at.disk_bytes,
            halves: |run| run.disk_bytes,
            axis_name: round_bytes,
        },
    ];
    let rows = FIGURES.map(|over_time| {
        let samples = || runs.iter().flat_map(|run| &run.samples);
        let highest = samples().map(|at| (over_time.figure)(at) as f64).fold(0.0, f64::max);
        let panel = |run: &Growth| Panel {
            title: format!("{}: {}", run.window.title(), over_time.name),
            x: days(run),
            y: Axis::linear(over_time.name, highest, over_time.axis_name),
            series: growth_series(run, &over_time),
        };
        runs.iter().map(panel).collect()
    });
    let what = runs.first().map_or(String::new(), |run| {
        format!(
            "Delay {}, lateness {}, all keys replaced by new ones each day.",
            span(run.delay_ms),
            run.profile.name()
        )
    });
    Figure {
        title: "State over time at one watermark delay".to_owned(),
        notes: vec![what],
        legend: vec!["after each checkpoint".to_owned()],
        marks: vec![
            (Marks::Line, Some(1), "model, mean".to_owned()),
            (Marks::Dashes, Some(3), "medians of the two halves that are compared".to_owned()),
        ],
        rows: rows.to_vec(),
    }
}

fn days(run: &Growth) -> Axis {
    let end = run.samples.last().map_or(DAY_MS, |last| last.at_ms as f64);
    // A last look after midnight does not need another day.
    Axis::linear("days of arrival time", (end / DAY_MS).round().max(1.0), crate::plot::number)
}

fn growth_series(run: &Growth, over_time: &OverTime) -> Vec<Series> {
    let day = |at_ms: u64| at_ms as f64 / DAY_MS;
    let points: Vec<(f64, f64)> =
        run.samples.iter().map(|at| (day(at.at_ms), (over_time.figure)(at) as f64)).collect();
    let (warm, end) = (day(run.warm_up_ms), points.last().map_or(0.0, |last| last.0));
    let middle = f64::midpoint(warm, end);
    let halves = (over_time.halves)(run);
    let line = |from, to, value| vec![(from, value), (to, value)];
    let mut series = vec![Series { index: 0, marks: Marks::Points, points }];
    if over_time.name == "open panes" {
        series.push(Series { index: 1, marks: Marks::Line, points: line(warm, end, run.open_panes_model) });
    }
    for points in [line(warm, middle, halves.first), line(middle, end, halves.second)] {
        series.push(Series { index: 3, marks: Marks::Dashes, points });
    }
    series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_an_axis_are_short() {
        let named = [0.0, 100.0, 20_000.0, 1e6, 2.5e6].map(round_bytes);
        assert_eq!(named[..], ["0 B", "100 B", "20 kB", "1 MB", "2.5 MB"]);
        let late = QUANTITIES[3].name;
        assert_eq!([1e-6, 1e-5, 0.001, 0.1].map(late)[..], ["none", "0.001 %", "0.1 %", "10 %"]);
    }
}
