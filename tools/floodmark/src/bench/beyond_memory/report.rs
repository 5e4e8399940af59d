//! What was measured, as plain data, as a table for people and as JSON for machines.

use serde::Serialize;

use super::super::report::{Measured, megabytes, rss_allowed};
use crate::run::grouped;
use crate::table::Table;

/// The least share of the speed within the budget that is wanted beyond it.
const RATIO_WANTED: f64 = 0.4;

/// One pipeline: taking its input in, then closing what is open.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct RunReport {
    state: &'static str,
    panes: u64,
    /// What the panes would take, were all of them in memory.
    state_bytes: u64,
    state_of_budget: f64,
    /// Files of the checkpoint after all was taken in, compressed as they are.
    disk_bytes: u64,
    disk_of_budget: f64,
    taking: Measured,
    events_per_second: f64,
    closing: Measured,
    results_per_second: f64,
    peak_rss_bytes: Option<u64>,
}

impl RunReport {
    pub(super) fn new(
        state: &'static str,
        budget_bytes: u64,
        pane_bytes: f64,
        disk_bytes: u64,
        taking: Measured,
        closing: Measured,
    ) -> Self {
        let state_bytes = (closing.results as f64 * pane_bytes) as u64;
        Self {
            state,
            panes: closing.results,
            state_bytes,
            state_of_budget: state_bytes as f64 / budget_bytes as f64,
            disk_bytes,
            disk_of_budget: disk_bytes as f64 / budget_bytes as f64,
            events_per_second: taking.rate(),
            results_per_second: closing.results as f64 / closing.seconds.max(1e-9),
            peak_rss_bytes: taking.peak_rss_bytes.max(closing.peak_rss_bytes),
            taking,
            closing,
        }
    }
}

/// Everything that one call measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Report {
    memory_budget_bytes: u64,
    times_wanted: u32,
    pane_bytes: f64,
    within: RunReport,
    beyond: RunReport,
    /// Speed of taking in beyond the budget, as a share of that within it.
    ratio: f64,
    ratio_wanted: f64,
    /// Speed of firing, likewise.
    closing_ratio: f64,
    rss_allowed_bytes: u64,
    /// `None` where the system does not tell how much was used.
    rss_within_rule: Option<bool>,
    state_large_enough: bool,
    debug_build: bool,
}

impl Report {
    pub(super) fn new(
        memory_budget_bytes: u64,
        times_wanted: u32,
        pane_bytes: f64,
        within: RunReport,
        beyond: RunReport,
    ) -> Self {
        let rss_allowed_bytes = rss_allowed(memory_budget_bytes);
        let kept = |run: &RunReport| run.peak_rss_bytes.map(|peak| peak <= rss_allowed_bytes);
        Self {
            memory_budget_bytes,
            times_wanted,
            pane_bytes,
            ratio: beyond.events_per_second / within.events_per_second,
            ratio_wanted: RATIO_WANTED,
            closing_ratio: beyond.results_per_second / within.results_per_second,
            rss_allowed_bytes,
            rss_within_rule: kept(&within).zip(kept(&beyond)).map(|(within, beyond)| within && beyond),
            state_large_enough: beyond.state_of_budget >= f64::from(times_wanted),
            within,
            beyond,
            debug_build: cfg!(debug_assertions),
        }
    }

    /// True unless memory was not kept to, or the state was too small to say so.
    pub(super) fn holds(&self) -> bool {
        self.rss_within_rule != Some(false) && self.state_large_enough
    }

    pub(super) fn to_table(&self) -> String {
        let mut table = Table::new(&[
            "state",
            ">panes",
            ">in memory",
            ">of budget",
            ">on disk",
            ">of budget",
            ">events",
            ">seconds",
            ">events/s",
            ">ratio",
            ">checkpoints",
            ">longest pause",
            ">peak RSS",
            ">fired/s",
            ">ratio",
            ">peak RSS",
        ]);
        table.row(row(&self.within, 1.0, 1.0));
        table.row(row(&self.beyond, self.ratio, self.closing_ratio));
        let verdict = match self.rss_within_rule {
            Some(true) => "kept",
            Some(false) => "BROKEN",
            None => "not known here",
        };
        let large = if self.state_large_enough { "" } else { "THE STATE WAS SMALLER THAN ASKED FOR\n" };
        let met = if self.ratio >= RATIO_WANTED { "met" } else { "MISSED" };
        format!(
            "{}memory rule: {verdict} (1.25 x budget of {} + 100 MB = {})\nspeed beyond the budget: {:.2} of that within \
             it, wanted {RATIO_WANTED:.2}: {met}\n{large}",
            table.render(0),
            megabytes(self.memory_budget_bytes),
            megabytes(self.rss_allowed_bytes),
            self.ratio,
        )
    }
}

fn row(run: &RunReport, ratio: f64, closing_ratio: f64) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let rss = |measured: &Measured| or_dash(measured.peak_rss_bytes.map(megabytes));
    vec![
        run.state.to_owned(),
        grouped(run.panes),
        megabytes(run.state_bytes),
        format!("{:.2}", run.state_of_budget),
        megabytes(run.disk_bytes),
        format!("{:.2}", run.disk_of_budget),
        grouped(run.taking.events),
        format!("{:.1}", run.taking.seconds),
        grouped(run.events_per_second as u64),
        format!("{ratio:.2}"),
        or_dash(run.taking.checkpoints.map(grouped)),
        or_dash(run.taking.pause_ms_max.map(|pause| format!("{pause:.0} ms"))),
        rss(&run.taking),
        grouped(run.results_per_second as u64),
        format!("{closing_ratio:.2}"),
        rss(&run.closing),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn run(state: &'static str, panes: u64, seconds: f64, peak_rss_bytes: u64) -> RunReport {
        let taking = Measured {
            events: 1_000_000,
            seconds,
            checkpoints: Some(2),
            pause_ms_max: Some(3.0),
            peak_rss_bytes: Some(peak_rss_bytes),
            ..Measured::default()
        };
        let closing = Measured { results: panes, seconds: 1.0, ..taking.clone() };
        RunReport::new(state, 16 * MIB, 100.0, 5_000_000, taking, closing)
    }

    fn report(panes: u64, seconds: f64, peak_rss_bytes: u64) -> Report {
        let within = run("within", 10_000, 1.0, 50_000_000);
        Report::new(16 * MIB, 8, 100.0, within, run("beyond", panes, seconds, peak_rss_bytes))
    }

    #[test]
    fn the_report_holds_while_memory_is_kept_to_and_the_state_is_large() {
        let allowed = rss_allowed(16 * MIB);
        let good = report(1_400_000, 2.5, allowed);
        assert!(good.holds());
        let table = good.to_table();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 5, "{table}");
        assert!(lines[2].contains("400,000   0.40") && lines[2].contains("8.34"), "{table}");
        assert!(lines[3].starts_with("memory rule: kept") && lines[4].ends_with("met"), "{table}");
        assert!(!report(1_400_000, 2.5, allowed + 1).holds());
        let small = report(1_000_000, 2.6, allowed);
        assert!(!small.holds());
        let table = small.to_table();
        assert!(table.contains("wanted 0.40: MISSED\nTHE STATE WAS SMALLER"), "{table}");
    }
}
