//! What was measured, as plain data, as a table for people and as JSON for machines.

use serde::Serialize;

use super::latencies::Figures;
use crate::run::grouped;
use crate::table::Table;

/// How far a result had come when its time ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Until {
    /// Fired and staged: a program that embeds the store has it, as has standard output.
    Fired,
    /// Visible in the output directory, after the checkpoint that it belongs to.
    Published,
}

/// One series of results of a case.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Series {
    pub(super) until: Until,
    /// Whether a checkpoint was being made when the results fired; absent for published ones.
    pub(super) beside_checkpoint: Option<bool>,
    #[serde(flatten)]
    pub(super) figures: Figures,
}

/// A load with or without checkpoints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct CaseReport {
    pub(super) load_percent: u32,
    /// Events per second that came by the schedule.
    pub(super) offered_events_per_second: f64,
    /// Events per second that were taken in.
    pub(super) events_per_second: f64,
    /// False when the run fell behind: its times then grow with its length.
    pub(super) kept_up: bool,
    /// How far behind its schedule the run was at its end.
    pub(super) behind_ms: f64,
    pub(super) checkpoint_interval_ms: Option<u64>,
    pub(super) checkpoints: u64,
    /// Longest time for which a checkpoint held processing up.
    pub(super) pause_ms_max: f64,
    pub(super) series: Vec<Series>,
}

/// Everything that one call measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Report {
    pub(super) keys: u64,
    pub(super) events_per_window: u64,
    pub(super) seed: u64,
    pub(super) seconds: f64,
    pub(super) memory_budget_bytes: u64,
    /// Events per second at full speed, with the shortest checkpoint interval and the same output.
    pub(super) capacity_events_per_second: f64,
    /// False when it was given.
    pub(super) capacity_measured: bool,
    pub(super) cases: Vec<CaseReport>,
    pub(super) debug_build: bool,
}

impl Report {
    /// The table, below what it is about.
    pub(super) fn to_table(&self) -> String {
        let how = if self.capacity_measured { "measured" } else { "as given" };
        let mut text = format!(
            "{} keys, {} events a window, capacity {} events/s ({how}); times from when the closing event was due, by row\n",
            grouped(self.keys),
            grouped(self.events_per_window),
            grouped(self.capacity_events_per_second as u64),
        );
        let mut table = Table::new(&[
            ">load",
            ">events/s",
            "checkpoints",
            ">longest pause",
            "until",
            "while",
            ">firings",
            ">rows",
            ">p50",
            ">p99",
            ">p99.9",
            ">max",
        ]);
        for case in &self.cases {
            for series in &case.series {
                table.row(row(case, series));
            }
        }
        text += &table.render(0);
        for case in self.cases.iter().filter(|case| !case.kept_up) {
            text += &format!(
                "NOT KEPT UP at {} % with {}: {:.0} ms behind at the end; such times grow with --seconds\n",
                case.load_percent,
                checkpoints(case),
                case.behind_ms
            );
        }
        text
    }
}

fn row(case: &CaseReport, series: &Series) -> Vec<String> {
    let Figures { rows, firings, p50_us, p99_us, p999_us, max_us } = series.figures;
    let pause = match case.checkpoint_interval_ms {
        Some(_) => time(case.pause_ms_max * 1e3),
        None => "-".to_owned(),
    };
    let beside = match series.beside_checkpoint {
        Some(true) => "a checkpoint is made",
        Some(false) if case.checkpoint_interval_ms.is_some() => "none is made",
        _ => "-",
    };
    let until = match series.until {
        Until::Fired => "fired",
        Until::Published => "published",
    };
    vec![
        format!("{} %", case.load_percent),
        grouped(case.events_per_second as u64),
        checkpoints(case),
        pause,
        until.to_owned(),
        beside.to_owned(),
        grouped(firings),
        grouped(rows),
        time(p50_us as f64),
        time(p99_us as f64),
        time(p999_us as f64),
        time(max_us as f64),
    ]
}

fn checkpoints(case: &CaseReport) -> String {
    match case.checkpoint_interval_ms {
        None => "none".to_owned(),
        Some(millis) => format!("{}, every {}", grouped(case.checkpoints), time(millis as f64 * 1e3)),
    }
}

/// Microseconds as people read them.
fn time(micros: f64) -> String {
    match micros {
        ..1e3 => format!("{micros:.0} us"),
        ..1e5 => format!("{:.1} ms", micros / 1e3),
        ..1e6 => format!("{:.0} ms", micros / 1e3),
        _ => format!("{:.2} s", micros / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(kept_up: bool) -> CaseReport {
        let figures = Figures {
            rows: 10_000,
            firings: 1,
            p50_us: 850,
            p99_us: 12_300,
            p999_us: 99_999,
            max_us: 1_234_567,
        };
        let series = |until, beside_checkpoint| Series { until, beside_checkpoint, figures };
        CaseReport {
            load_percent: 80,
            offered_events_per_second: 4e6,
            events_per_second: 4e6,
            kept_up,
            behind_ms: 2_000.0,
            checkpoint_interval_ms: Some(1_000),
            checkpoints: 30,
            pause_ms_max: 1.5,
            series: vec![series(Until::Fired, Some(true)), series(Until::Published, None)],
        }
    }

    #[test]
    fn the_table_says_what_was_waited_for_and_which_runs_did_not_keep_up() {
        let report = Report {
            keys: 10_000,
            events_per_window: 500_000,
            seed: 1,
            seconds: 30.0,
            memory_budget_bytes: 512 << 20,
            capacity_events_per_second: 5e6,
            capacity_measured: true,
            cases: vec![case(true), case(false)],
            debug_build: false,
        };
        let table = report.to_table();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 7, "{table}");
        assert!(lines[0].contains("capacity 5,000,000 events/s (measured)"), "{table}");
        let cells: Vec<&str> = lines[2].split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        assert_eq!(
            cells,
            [
                "80 %",
                "4,000,000",
                "30, every 1.00 s",
                "1.5 ms",
                "fired",
                "a checkpoint is made",
                "1",
                "10,000",
                "850 us",
                "12.3 ms",
                "100.0 ms",
                "1.23 s"
            ]
        );
        assert!(lines[3].contains("published"), "{table}");
        assert!(lines[6].starts_with("NOT KEPT UP at 80 % with 30, every 1.00 s: 2000 ms behind"), "{table}");
    }
}
