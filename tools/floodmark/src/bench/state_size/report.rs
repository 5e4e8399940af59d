//! What was measured and what the model says, as plain data, as a table for people, as CSV and as JSON.

use std::fmt::Write as _;

use floodmark::event_time::Span;
use serde::Serialize;

use super::growth::{Growth, Halves};
use super::lateness::Profile;
use super::measure::Measured;
use super::model::{ByteCost, Prediction};
use super::shape::Kind;
use crate::amount::{bytes, share};
use crate::run::grouped;
use crate::table::Table;

/// What the model says of bytes, by the cost of a pane in runs of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct PredictedBytes {
    pub(super) memory_bytes_mean: f64,
    pub(super) disk_bytes_mean: f64,
    pub(super) checkpoint_bytes_mean: f64,
}

/// One combination.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Case {
    pub(super) window: Kind,
    pub(super) profile: Profile,
    pub(super) delay_ms: u64,
    pub(super) measured: Measured,
    pub(super) model: Prediction,
    pub(super) model_bytes: PredictedBytes,
}

/// Bytes per pane of a kind of window, from runs over another stream.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Costs {
    pub(super) window: Kind,
    pub(super) memory: ByteCost,
    pub(super) disk: ByteCost,
    pub(super) checkpoint: ByteCost,
}

impl Costs {
    pub(super) fn of(&self, panes: f64) -> PredictedBytes {
        PredictedBytes {
            memory_bytes_mean: self.memory.of(panes),
            disk_bytes_mean: self.disk.of(panes),
            checkpoint_bytes_mean: self.checkpoint.of(panes),
        }
    }
}

/// Everything that one call found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Report {
    /// Events of each stream, over all its time.
    pub(super) events: u64,
    pub(super) keys: u64,
    pub(super) seed: u64,
    pub(super) span_ms: u64,
    pub(super) warm_up_ms: u64,
    pub(super) checkpoint_interval_ms: u64,
    pub(super) costs: Vec<Costs>,
    pub(super) cases: Vec<Case>,
    pub(super) growth: Vec<Growth>,
    /// False when the state of a long run grew; null without long runs.
    pub(super) plateau: Option<bool>,
    pub(super) debug_build: bool,
    pub(super) seconds: f64,
}

const CASES_HEAD: &str = "window,profile,delay_ms,events,late,late_share,late_share_model,results,open_panes_mean,\
open_panes_mean_model,open_panes_peak,open_panes_peak_model,memory_bytes_mean,memory_bytes_mean_model,memory_bytes_peak,\
disk_bytes_mean,disk_bytes_mean_model,disk_bytes_peak,checkpoint_bytes_mean,checkpoint_bytes_mean_model,checkpoints,seconds";

const GROWTH_HEAD: &str =
    "window,profile,delay_ms,at_ms,open_panes,open_panes_model,memory_bytes,disk_bytes,checkpoint_bytes";

impl Report {
    /// One line for each combination.
    pub(super) fn cases_csv(&self) -> String {
        let mut text = format!("{CASES_HEAD}\n");
        for case in &self.cases {
            let (measured, model, bytes) = (&case.measured, &case.model, &case.model_bytes);
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{},{},{},{},{},{:.8},{:.8},{},{:.1},{:.1},{},{:.1},{:.0},{:.0},{},{:.0},{:.0},{},{:.0},{:.0},{},{:.3}",
                case.window.name(),
                case.profile.name(),
                case.delay_ms,
                measured.events,
                measured.late,
                measured.late_share,
                model.late_share,
                measured.results,
                measured.open_panes_mean,
                model.open_panes_mean,
                measured.open_panes_peak,
                model.open_panes_peak,
                measured.memory_bytes_mean,
                bytes.memory_bytes_mean,
                measured.memory_bytes_peak,
                measured.disk_bytes_mean,
                bytes.disk_bytes_mean,
                measured.disk_bytes_peak,
                measured.checkpoint_bytes_mean,
                bytes.checkpoint_bytes_mean,
                measured.checkpoints,
                measured.seconds,
            );
        }
        text
    }

    /// One line for each sample of the long runs.
    pub(super) fn growth_csv(&self) -> String {
        let mut text = format!("{GROWTH_HEAD}\n");
        for growth in &self.growth {
            for sample in &growth.samples {
                let _ = writeln!(
                    text,
                    "{},{},{},{},{},{:.1},{},{},{}",
                    growth.window.name(),
                    growth.profile.name(),
                    growth.delay_ms,
                    sample.at_ms,
                    sample.open_panes,
                    growth.open_panes_model,
                    sample.memory_bytes,
                    sample.disk_bytes,
                    sample.checkpoint_bytes,
                );
            }
        }
        text
    }

    /// Tables for people.
    pub(super) fn to_text(&self) -> String {
        let mut text = format!(
            "{} events of {} keys over {} of arrival time; figures are of the last {}. In (): the model.\n",
            grouped(self.events),
            grouped(self.keys),
            span(self.span_ms),
            span(self.span_ms.saturating_sub(self.warm_up_ms)),
        );
        if !self.cases.is_empty() {
            text += &self.cases_table();
        }
        for growth in &self.growth {
            text += &growth_text(growth);
        }
        text
    }

    fn cases_table(&self) -> String {
        let mut table = Table::new(&[
            "window",
            "lateness",
            ">delay",
            ">open panes",
            ">(model)",
            ">peak",
            ">(model)",
            ">memory",
            ">(model)",
            ">disk",
            ">(model)",
            ">checkpoint",
            ">late",
            ">(model)",
        ]);
        for case in &self.cases {
            let (measured, model, modelled) = (&case.measured, &case.model, &case.model_bytes);
            let panes = |panes: f64| grouped(panes.round() as u64);
            table.row(vec![
                case.window.name().to_owned(),
                case.profile.name().to_owned(),
                span(case.delay_ms),
                panes(measured.open_panes_mean),
                format!("({})", panes(model.open_panes_mean)),
                grouped(measured.open_panes_peak),
                format!("({})", panes(model.open_panes_peak)),
                bytes(measured.memory_bytes_mean),
                format!("({})", bytes(modelled.memory_bytes_mean)),
                bytes(measured.disk_bytes_mean),
                format!("({})", bytes(modelled.disk_bytes_mean)),
                bytes(measured.checkpoint_bytes_mean),
                share(measured.late_share),
                format!("({})", share(model.late_share)),
            ]);
        }
        table.render(0)
    }
}

fn growth_text(growth: &Growth) -> String {
    let days = growth.samples.last().map_or(0, |last| last.at_ms) as f64 / 86_400_000.0;
    let verdict = if growth.plateau {
        "PLATEAU: the second half is as large as the first".to_owned()
    } else {
        format!("STATE GROWS: {}", growth.grown().join("; "))
    };
    let halves = |name: &str, halves: Halves, number: fn(f64) -> String| {
        let (first, second) = (number(halves.first), number(halves.second));
        format!("{name} {first} -> {second} ({:+.1} %)", halves.growth * 100.0)
    };
    format!(
        "\n{} windows over {days:.0} days, delay {}, lateness {}, all keys new each day\n  {verdict}\n  {}, {}\n  {}\n  {}, \
         RocksDB's list of files included: not judged\n",
        growth.window.name(),
        span(growth.delay_ms),
        growth.profile.name(),
        halves("open panes", growth.open_panes, |panes| grouped(panes.round() as u64)),
        halves("memory", growth.memory_bytes, bytes),
        halves("disk", growth.disk_bytes, bytes),
        halves("checkpoint", growth.checkpoint_bytes, bytes),
    )
}

/// A length of time in words.
pub(super) fn span(millis: u64) -> String {
    let hours = millis / 3_600_000;
    match i64::try_from(millis).ok().and_then(Span::from_millis) {
        // One unit where one is enough: `24h`, as it is typed.
        Some(_) if millis.is_multiple_of(3_600_000) && hours > 0 => format!("{hours}h"),
        Some(span) if millis > 0 => span.to_string(),
        _ => "0".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_written_as_they_are_typed() {
        assert_eq!(
            ["0", "1m", "1h", "24h", "1h 30m"],
            [0, 60_000, 3_600_000, 86_400_000, 5_400_000].map(span)[..]
        );
    }
}
