//! What was measured, as plain data, as a table for people and as JSON for machines.

use floodmark::error::{Error, ErrorKind};
use serde::Serialize;

use crate::run::grouped;

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Measured {
    pub(super) events: u64,
    pub(super) results: u64,
    pub(super) seconds: f64,
    pub(super) checkpoints: Option<u64>,
    pub(super) pause_ms_max: Option<f64>,
    pub(super) peak_rss_bytes: Option<u64>,
    /// Panes left in memory.
    pub(super) resident_panes: Option<u64>,
}

impl Measured {
    pub(super) fn rate(&self) -> f64 {
        self.events as f64 / self.seconds.max(1e-9)
    }
}

/// The run with the median time; of the whole series, the longest pause and the highest memory.
pub(super) fn median(mut runs: Vec<Measured>) -> Result<Measured, Error> {
    let pause = runs.iter().filter_map(|run| run.pause_ms_max).reduce(f64::max);
    let peak = runs.iter().filter_map(|run| run.peak_rss_bytes).max();
    runs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let middle = runs.len() / 2;
    let run = runs.into_iter().nth(middle);
    run.map(|run| Measured { pause_ms_max: pause, peak_rss_bytes: peak, ..run })
        .ok_or_else(|| Error::new(ErrorKind::Bug, "nothing was measured"))
}

/// Reference and pipeline over one stream.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct ShapeReport {
    shape: &'static str,
    reference: Measured,
    reference_events_per_second: f64,
    pipeline: Measured,
    pipeline_events_per_second: f64,
    /// Speed of the pipeline as a share of the reference's.
    ratio: f64,
    /// Memory that the budget rule allows: 1.25 times the budget and 100 MB.
    rss_allowed_bytes: u64,
    /// `None` where the system does not tell how much was used.
    rss_within_rule: Option<bool>,
}

impl ShapeReport {
    pub(super) fn new(
        shape: &'static str,
        budget_bytes: u64,
        reference: Measured,
        pipeline: Measured,
    ) -> Self {
        let rss_allowed_bytes = rss_allowed(budget_bytes);
        Self {
            shape,
            reference_events_per_second: reference.rate(),
            pipeline_events_per_second: pipeline.rate(),
            ratio: pipeline.rate() / reference.rate(),
            rss_allowed_bytes,
            rss_within_rule: pipeline.peak_rss_bytes.map(|peak| peak <= rss_allowed_bytes),
            reference,
            pipeline,
        }
    }
}

/// Memory that the budget rule allows: 1.25 times the budget and 100 MB.
pub(super) const fn rss_allowed(budget_bytes: u64) -> u64 {
    budget_bytes / 4 * 5 + 100_000_000
}

/// Everything that one call measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Report {
    pub(super) events: u64,
    pub(super) repetitions: u32,
    pub(super) memory_budget_bytes: u64,
    pub(super) shapes: Vec<ShapeReport>,
}

const HEAD: [&str; 9] =
    ["shape", "what", "events", "seconds", "events/s", "ratio", "checkpoints", "longest pause", "peak RSS"];

impl Report {
    pub(super) fn to_json(&self) -> Result<String, Error> {
        serde_json::to_string(self)
            .map(|json| json + "\n")
            .map_err(|error| Error::new(ErrorKind::Bug, "cannot write the report").with_source(error))
    }

    pub(super) fn to_table(&self) -> String {
        let mut rows = vec![HEAD.map(str::to_owned)];
        for shape in &self.shapes {
            rows.push(row(shape.shape, "reference", &shape.reference, 1.0));
            rows.push(row(shape.shape, "pipeline", &shape.pipeline, shape.ratio));
        }
        let widths: Vec<usize> = (0..HEAD.len())
            .map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0))
            .collect();
        let mut table = String::new();
        for row in &rows {
            let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match column {
                0 | 1 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
            table += cells.collect::<Vec<_>>().join("  ").trim_end();
            table.push('\n');
        }
        for shape in &self.shapes {
            table += &rule(shape, self.memory_budget_bytes);
        }
        table
    }
}

fn row(shape: &str, what: &str, run: &Measured, ratio: f64) -> [String; 9] {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    [
        shape.to_owned(),
        what.to_owned(),
        grouped(run.events),
        format!("{:.2}", run.seconds),
        grouped(run.rate() as u64),
        format!("{ratio:.2}"),
        or_dash(run.checkpoints.map(grouped)),
        or_dash(run.pause_ms_max.map(|pause| format!("{pause:.0} ms"))),
        or_dash(run.peak_rss_bytes.map(megabytes)),
    ]
}

/// The budget rule in words.
fn rule(shape: &ShapeReport, budget_bytes: u64) -> String {
    let verdict = match shape.rss_within_rule {
        Some(true) => "kept",
        Some(false) => "BROKEN",
        None => "not known here",
    };
    format!(
        "memory rule of {}: {verdict} (1.25 x budget of {} + 100 MB = {})\n",
        shape.shape,
        megabytes(budget_bytes),
        megabytes(shape.rss_allowed_bytes)
    )
}

pub(super) fn megabytes(bytes: u64) -> String {
    format!("{} MB", grouped(bytes / 1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(seconds: f64, pause: f64, peak: u64) -> Measured {
        Measured {
            events: 1_000_000,
            results: 10,
            seconds,
            checkpoints: Some(2),
            pause_ms_max: Some(pause),
            peak_rss_bytes: Some(peak),
            resident_panes: None,
        }
    }

    #[test]
    fn the_median_run_carries_the_worst_pause_and_peak() {
        let runs = vec![run(3.0, 1.0, 5), run(1.0, 9.0, 7), run(2.0, 2.0, 6)];
        assert_eq!(median(runs).expect("three runs"), run(2.0, 9.0, 7));
        assert!(median(Vec::new()).is_err());
    }

    #[test]
    fn the_table_lines_up_and_tells_whether_the_rule_was_kept() {
        let light = Measured { seconds: 0.5, ..run(0.5, 0.0, 0) };
        let light = Measured { checkpoints: None, pause_ms_max: None, peak_rss_bytes: None, ..light };
        let shape = |peak| ShapeReport::new("s1", 512 << 20, light.clone(), run(2.0, 3.0, peak));
        let report = Report {
            events: 1_000_000,
            repetitions: 1,
            memory_budget_bytes: 512 << 20,
            shapes: vec![shape(771_088_640), shape(771_088_641)],
        };
        let table = report.to_table();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(
            lines[..3],
            [
                "shape  what          events  seconds   events/s  ratio  checkpoints  longest pause  peak RSS",
                "s1     reference  1,000,000     0.50  2,000,000   1.00            -              -         -",
                "s1     pipeline   1,000,000     2.00    500,000   0.25            2           3 ms    771 MB",
            ]
        );
        assert!(lines[5].starts_with("memory rule of s1: kept"), "{table}");
        assert!(lines[6].starts_with("memory rule of s1: BROKEN"), "{table}");
        assert!(report.to_json().expect("JSON").contains("\"rss_within_rule\":false"));
    }
}
