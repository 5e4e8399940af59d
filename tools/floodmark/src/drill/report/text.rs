//! The report for people at a terminal: the verdict in one paragraph, the figures as a table, and what went wrong in detail.

use std::collections::BTreeMap;

use super::{Report, Totals, Verdict};
use crate::run::grouped;
use crate::table::{Table, printable};

/// Failed trials and damages that are told in detail; the JSON report has them all.
const TOLD_MAX: usize = 5;

/// The verdict in one paragraph.
pub(super) fn paragraph(report: &Report) -> String {
    let totals = &report.totals;
    let verdict = match report.verdict {
        Verdict::Pass => "PASS",
        Verdict::Fail => "FAIL",
        Verdict::Inconclusive => "NOTHING PROVED",
    };
    let time = match (totals.recovery_ms_median, totals.recovery_ms_max) {
        (Some(median), Some(worst)) => {
            format!(" Back at work after {} (median), {} at worst.", length(median), length(worst))
        }
        _ => String::new(),
    };
    let damage = match totals.damaged {
        0 => " No checkpoint was damaged.".to_owned(),
        damaged => format!(" {} of {damaged} damaged checkpoints were noticed.", totals.detected),
    };
    format!(
        "{verdict}: {} of {} restores came back with the same bytes.{time} {} lost, {} doubled.{damage}",
        totals.restores_good,
        totals.restores,
        rows(totals.rows_lost),
        totals.rows_doubled
    )
}

/// The whole report.
pub(super) fn report(report: &Report) -> String {
    let mut text = format!("{}\n\n", report.summary);
    text += &figures(report).render(2);
    text += &format!("\n{}", kills(report).render(2));
    let outputs = outputs(report);
    text += &format!("\n{}", outputs.render(2));
    for failure in failures(report) {
        text += &format!("\n{}\n", printable_lines(&failure));
    }
    text.push('\n');
    for note in &report.notes {
        text += &format!("note: {}\n", printable(note));
    }
    if let Some(evidence) = &report.evidence {
        text += &format!("everything is left in {}\n", evidence.display());
    }
    text += &format!("to do the same again: {}\n", printable(&report.command));
    text
}

/// The figures that the verdict rests on, as pairs of name and value.
pub(super) fn rows_of(report: &Report) -> Vec<(&'static str, String)> {
    let totals = &report.totals;
    let start = report.start_epoch.map_or("empty state".to_owned(), |epoch| format!("checkpoint {epoch}"));
    let straight = &report.straight;
    let mut rows = vec![
        ("pipeline", format!("{}, from {start}", report.pipeline)),
        (
            "without kills",
            format!(
                "{} events in {}, {} checkpoints{}",
                grouped(straight.events),
                length(straight.length_ms),
                straight.checkpoints,
                straight.rate.map_or(String::new(), |rate| {
                    format!(", held to {} events/s", grouped(u64::from(rate)))
                })
            ),
        ),
        ("restores tried", restores(totals)),
        ("came back the same", format!("{} of {}", totals.restores_good, totals.restores)),
        (
            "time to recover",
            match (totals.recovery_ms_median, totals.recovery_ms_max) {
                (Some(median), Some(worst)) => format!("median {}, worst {}", length(median), length(worst)),
                _ => "not known".to_owned(),
            },
        ),
        (
            "events replayed",
            format!("{}, at most {} after one kill", grouped(totals.replayed), grouped(totals.replayed_max)),
        ),
        ("rows lost", grouped(totals.rows_lost)),
        ("rows doubled", grouped(totals.rows_doubled)),
    ];
    if totals.rows_strange > 0 {
        rows.push(("rows of other content", grouped(totals.rows_strange)));
    }
    rows.push(("damaged checkpoints", damaged(totals)));
    if totals.went_back > 0 {
        let back = format!("{} of {} came back the same", totals.went_back_good, totals.went_back);
        rows.push(("the one before instead", back));
    }
    rows
}

fn restores(totals: &Totals) -> String {
    let mut text = format!(
        "{}, {} of a checkpoint and {} from the start",
        totals.restores,
        totals.from_checkpoint,
        totals.restores - totals.from_checkpoint
    );
    if totals.missed > 0 {
        text += &format!("; {} kills came after the end", totals.missed);
    }
    text
}

fn damaged(totals: &Totals) -> String {
    match totals.damaged {
        0 => "none tried".to_owned(),
        damaged => format!("{damaged}, noticed {}", totals.detected),
    }
}

fn figures(report: &Report) -> Table {
    let mut table = Table::new(&["what", "result"]);
    for (name, value) in rows_of(report) {
        table.row(vec![name.to_owned(), value]);
    }
    table
}

/// Kills by moment.
fn kills(report: &Report) -> Table {
    let mut moments: BTreeMap<String, (u64, u64, u64, Option<f64>)> = BTreeMap::new();
    for (_, good, kill) in report.kills() {
        let (count, same, replayed, worst) = moments.entry(kill.moment.to_string()).or_default();
        *count += 1;
        *same += u64::from(good);
        *replayed += kill.replayed;
        // The run after it may have been killed before it was back at work.
        *worst = worst.iter().copied().chain(kill.recovery_ms).reduce(f64::max);
    }
    let mut table = Table::new(&["killed", ">times", ">the same", ">replayed", ">slowest"]);
    for (moment, (count, same, replayed, worst)) in moments {
        let worst = worst.map_or("-".to_owned(), length);
        table.row(vec![moment, grouped(count), grouped(same), grouped(replayed), worst]);
    }
    table
}

fn outputs(report: &Report) -> Table {
    let mut table = Table::new(&["output", ">rows", ">lost", ">doubled", "remark"]);
    for output in &report.outputs {
        let (lost, doubled, remark) = match &output.left_out {
            Some(reason) => ("-".to_owned(), "-".to_owned(), format!("not compared: {reason}")),
            None => (grouped(output.lost), grouped(output.doubled), String::new()),
        };
        table.row(vec![output.name.clone(), grouped(output.rows), lost, doubled, remark]);
    }
    table
}

/// What went wrong, one text each.
pub(super) fn failures(report: &Report) -> Vec<String> {
    let mut failures = Vec::new();
    for trial in report.trials.iter().filter(|trial| !trial.is_good()) {
        let kills: Vec<String> = trial.kills.iter().map(|kill| kill.moment.to_string()).collect();
        let mut text = format!("trial {} failed, killed {}", trial.number, kills.join(", then "));
        if let Some(failure) = &trial.failure {
            text += &format!("\n  a run did not come back: {failure}");
        }
        for difference in &trial.differences {
            let what = match difference.is_order_alone() {
                true => "the same rows in another order".to_owned(),
                false => format!(
                    "{} lost, {} doubled, {} of other content",
                    rows(difference.lost),
                    difference.doubled,
                    difference.strange
                ),
            };
            text += &format!("\n  {}: {what}", difference.output);
            for shown in &difference.shown {
                text += &format!("\n    {}: {}", shown.what, shown.row);
            }
        }
        failures.push(text);
    }
    for damage in report.damages.iter().filter(|damage| !damage.is_good()) {
        let mut text =
            format!("damage {} failed: {} {}, {}", damage.number, damage.target, damage.way, damage.file);
        text += &format!("\n  {}", damage.how);
        if !damage.detected {
            text += &format!("\n  it was not noticed: {}", damage.message);
        }
        if let Some(back) = damage.went_back.as_ref().filter(|back| !back.same_bytes) {
            let why = back.failure.as_deref().unwrap_or("other bytes came out");
            text += &format!("\n  going back to checkpoint {} did not help: {why}", back.epoch);
        }
        failures.push(text);
    }
    let more = failures.len().saturating_sub(TOLD_MAX);
    failures.truncate(TOLD_MAX);
    if more > 0 {
        failures.push(format!("and {more} more"));
    }
    failures
}

fn printable_lines(text: &str) -> String {
    text.lines().map(printable).collect::<Vec<_>>().join("\n")
}

fn rows(count: u64) -> String {
    if count == 1 { "1 row".to_owned() } else { format!("{} rows", grouped(count)) }
}

/// Milliseconds as people say them.
pub(super) fn length(millis: f64) -> String {
    if millis < 1_000.0 { format!("{millis:.0} ms") } else { format!("{:.2} s", millis / 1_000.0) }
}
