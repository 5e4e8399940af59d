//! The advice as text for a terminal.

use floodmark::inspect::Origin;
use floodmark::operator::{Bucket, Spread};
use floodmark::pipeline::advise::{Advice, Candidate, Outcome, PartitionLateness};

use crate::amount::{bytes, length, share};
use crate::run::{counted, grouped};
use crate::table::{Table, printable};

/// Cells of the longest bar.
const BAR_CELLS: usize = 40;
/// Eighths of a cell, from none to seven.
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
/// Heights of a histogram that fits into a line.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Partitions listed: those with the latest events. `--json` has all.
const PARTITIONS_SHOWN: usize = 20;

/// The whole report.
pub(super) fn report(advice: &Advice) -> String {
    let mut text = head(advice);
    text.push_str(&histogram(advice));
    text.push_str(&partitions(advice));
    text.push_str(&ahead(advice));
    for (index, window) in advice.windows.iter().enumerate() {
        let allowed = match window.allowed_lateness_ms {
            0 => String::new(),
            millis => format!(", {} allowed lateness", length(millis)),
        };
        text.push_str(&format!("\nwindow `{}`: {}{allowed}\n", window.window, window.windows));
        text.push_str(&candidates(advice, index));
    }
    text.push('\n');
    text.push_str(&recommendation(advice));
    for note in &advice.notes {
        text.push_str(&format!("note: {}\n", printable(note)));
    }
    text
}

fn head(advice: &Advice) -> String {
    let sample = &advice.sample;
    let mut table = Table::new(&["", ""]);
    let mut row = |name: &str, value: String| table.row(vec![name.to_owned(), value]);
    let asides = [(sample.rejected, "rejected"), (sample.filtered, "filtered out")];
    let asides: Vec<String> = asides
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{} {what}", grouped(*count)))
        .collect();
    let asides = if asides.is_empty() { String::new() } else { format!(" ({})", asides.join(", ")) };
    if let Some(stored) = &advice.checkpoint {
        let Origin { path, epoch, age_ms, .. } = &stored.origin;
        let age = length(i64::try_from(*age_ms).unwrap_or(i64::MAX));
        row("checkpoint", format!("epoch {epoch}, {age} old, {}", path.display()));
    }
    row("sample", format!("{}{asides}", counted(sample.events, "event", "events")));
    if let (Some(first), Some(last)) = (sample.first, sample.last) {
        row("event times", format!("{first} to {last}"));
    }
    let delay = |delay: Option<i64>| match delay {
        Some(0) => "no delay".to_owned(),
        Some(millis) => format!("delay {}", length(millis)),
        None => "no watermark from event times".to_owned(),
    };
    for source in &advice.sources {
        let keeps = if source.varied { "" } else { ", stays as it is" };
        row("source", format!("{}: {}{keeps}", source.source, delay(source.delay_ms)));
    }
    let late = &advice.lateness;
    row(
        "late",
        format!(
            "{} of {} come behind an earlier event of their partition ({})",
            grouped(late.above_zero),
            counted(late.events, "event", "events"),
            share(of(late.above_zero, late.events))
        ),
    );
    let quantiles = [
        ("P50", late.p50_ms),
        ("P95", late.p95_ms),
        ("P99", late.p99_ms),
        ("P99.9", late.p999_ms),
        ("max", late.max_ms),
    ];
    let quantiles = quantiles.map(|(name, millis)| format!("{name} {}", length(millis)));
    row("lateness", quantiles.join("   "));
    let step = advice.partitions.iter().max_by_key(|partition| partition.step_max_ms);
    if let Some(step) = step.filter(|step| step.step_max_ms > 0) {
        let length = length(step.step_max_ms);
        row("longest step", format!("{length} from all events before to one, in {}", step.partition));
    }
    // The headings are empty.
    let rendered = table.render(0);
    let rows = rendered.split_once('\n').map_or("", |(_, rows)| rows);
    format!("{}: which watermark delay\n\n{rows}", advice.pipeline)
}

/// The lateness of all events as bars.
fn histogram(advice: &Advice) -> String {
    let late = &advice.lateness;
    let mut bars = vec![("in order".to_owned(), late.events - late.above_zero)];
    bars.extend(late.histogram.iter().map(|bucket| (bucket_name(bucket), bucket.events)));
    let highest = bars.iter().map(|(_, events)| *events).max().unwrap_or(0);
    let mut table = Table::new(&["how late", ">events", ">share", ""]);
    for (name, events) in bars {
        table.row(vec![name, grouped(events), share(of(events, late.events)), bar(events, highest)]);
    }
    format!("\n{}", table.render(0))
}

fn bucket_name(bucket: &Bucket) -> String {
    match bucket.up_to_ms {
        Some(end) => format!("up to {}", length(end)),
        None => format!("over {}", length(bucket.over_ms)),
    }
}

/// A bar of so many events, the highest of which is as long as bars get. Something is never drawn as nothing.
fn bar(events: u64, highest: u64) -> String {
    let eighths = (of(events, highest) * (BAR_CELLS * 8) as f64).round() as usize;
    let eighths = if events > 0 { eighths.max(1) } else { 0 };
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

/// A histogram in a line: the bars of `spread` in the places that they have in `all`.
fn small_histogram(spread: &Spread, all: &Spread) -> String {
    let events = |over_ms: i64| {
        spread.histogram.iter().find(|bucket| bucket.over_ms == over_ms).map_or(0, |bucket| bucket.events)
    };
    let highest = spread.histogram.iter().map(|bucket| bucket.events).max().unwrap_or(0);
    let height = |events: u64| match events {
        0 => ' ',
        _ => HEIGHTS[((of(events, highest) * 8.0).ceil() as usize).clamp(1, 8) - 1],
    };
    all.histogram.iter().map(|bucket| height(events(bucket.over_ms))).collect()
}

/// The partitions with the latest events first. One alone is what was said of all.
fn partitions(advice: &Advice) -> String {
    if advice.partitions.len() < 2 {
        return String::new();
    }
    let mut shown: Vec<&PartitionLateness> = advice.partitions.iter().collect();
    shown.sort_by_key(|partition| std::cmp::Reverse((partition.lateness.p99_ms, partition.lateness.max_ms)));
    let left_out = shown.len().saturating_sub(PARTITIONS_SHOWN);
    shown.truncate(PARTITIONS_SHOWN);
    let headings =
        ["partition", "source", ">events", ">late", ">P50", ">P95", ">P99", ">P99.9", ">max", "histogram"];
    let mut table = Table::new(&headings);
    for partition in shown {
        let late = &partition.lateness;
        let mut cells = vec![partition.partition.clone(), partition.source.clone()];
        cells.push(grouped(late.events));
        cells.push(share(of(late.above_zero, late.events)));
        cells.extend([late.p50_ms, late.p95_ms, late.p99_ms, late.p999_ms, late.max_ms].map(length));
        cells.push(format!("|{}|", small_histogram(late, &advice.lateness)));
        table.row(cells);
    }
    let more = match left_out {
        0 => String::new(),
        count => {
            format!("and {} less late; --json has all\n", counted(count as u64, "partition", "partitions"))
        }
    };
    format!("\n{}{more}", table.render(0))
}

/// What lies ahead: negative lateness, of which clocks are the usual cause. Nothing where nothing does.
fn ahead(advice: &Advice) -> String {
    let furthest = |partition: &PartitionLateness| {
        let beside = partition.ahead_of_partitions.as_ref().map_or(0, |ahead| ahead.max_ms);
        (partition.ahead_of_clock.max_ms, beside)
    };
    let mut shown: Vec<&PartitionLateness> = advice.partitions.iter().collect();
    shown.sort_by_key(|partition| std::cmp::Reverse(furthest(partition)));
    let mut table = Table::new(&["ahead", "of", ">events", ">P50", ">P99", ">max"]);
    let mut rows = 0;
    for partition in shown {
        let clock = Some(("the clock", &partition.ahead_of_clock));
        let beside = partition.ahead_of_partitions.as_ref().map(|ahead| ("other partitions", ahead));
        for (of_what, spread) in clock.into_iter().chain(beside).filter(|(_, spread)| spread.above_zero > 0) {
            let lengths = [spread.p50_ms, spread.p99_ms, spread.max_ms].map(length);
            let mut cells = vec![partition.partition.clone(), of_what.to_owned(), grouped(spread.above_zero)];
            cells.extend(lengths);
            if rows < PARTITIONS_SHOWN {
                table.row(cells);
            }
            rows += 1;
        }
    }
    let more = match rows.saturating_sub(PARTITIONS_SHOWN) {
        0 => String::new(),
        more => format!("and {} less far ahead; --json has all\n", counted(more as u64, "row", "rows")),
    };
    if rows == 0 { String::new() } else { format!("\n{}{more}", table.render(0)) }
}

/// What each delay does in the window at `index`.
fn candidates(advice: &Advice, index: usize) -> String {
    let shortens =
        advice.candidates.iter().filter_map(|one| one.outcomes.get(index)).any(|one| one.short > 0);
    let mut headings = vec![">delay", "", ">lost", ">share"];
    if shortens {
        headings.push(">in part");
    }
    headings.extend([">behind", ">results", ">open panes", ">peak", ">memory", ">peak"]);
    let mut table = Table::new(&headings);
    for candidate in &advice.candidates {
        if let Some(outcome) = candidate.outcomes.get(index) {
            table.row(row(candidate, outcome, advice, shortens));
        }
    }
    table.render(0)
}

fn row(candidate: &Candidate, outcome: &Outcome, advice: &Advice, shortens: bool) -> Vec<String> {
    let delay = candidate.delay_ms.map_or("as set".to_owned(), |millis| match millis {
        0 => "0".to_owned(),
        millis => length(millis),
    });
    let marks = match (candidate.is_current, candidate.is_recommended) {
        (true, true) => "now, advised",
        (true, false) => "now",
        (false, true) => "advised",
        (false, false) => "",
    };
    // A lower bound says so.
    let least = if outcome.settled { "" } else { "≥ " };
    let mut cells = vec![delay, marks.to_owned(), grouped(outcome.lost), share(outcome.lost_share())];
    if shortens {
        cells.push(grouped(outcome.short));
    }
    let behind = candidate.behind.map_or("-".to_owned(), |events| share(of(events, advice.lateness.events)));
    cells.extend([behind, results(candidate.extra_wait_ms)]);
    cells.push(format!("{least}{}", grouped(outcome.panes_mean.round() as u64)));
    cells.push(grouped(outcome.panes_peak));
    cells.push(format!("{least}{}", bytes(outcome.memory_bytes_mean)));
    cells.push(bytes(outcome.memory_bytes_peak as f64));
    cells
}

/// When results come, compared with now.
fn results(extra_wait_ms: Option<i64>) -> String {
    match extra_wait_ms {
        None => "-".to_owned(),
        Some(0) => "as now".to_owned(),
        Some(later) if later > 0 => format!("{} later", length(later)),
        Some(sooner) => format!("{} sooner", length(sooner.saturating_neg())),
    }
}

fn recommendation(advice: &Advice) -> String {
    let budget = share(advice.loss_budget);
    let Some(advised) = &advice.recommendation else {
        return format!("advice: no delay loses at most {budget} of the events\n");
    };
    let lost = share(advised.lost_share);
    let now = match (advice.current(), advised.current_is_enough) {
        (Some(current), _) if current.is_recommended => ", which is the one set now".to_owned(),
        (Some(_), true) => ", shorter than now, and enough".to_owned(),
        (_, true) => "; what is set now is enough, too".to_owned(),
        (_, false) => "; what is set now loses more than that".to_owned(),
    };
    format!(
        "advice: delay = \"{}\" loses {lost} in window `{}`, at most {budget} as asked{now}\n",
        advised.delay, advised.window
    )
}

fn of(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_share_and_something_is_never_nothing() {
        assert_eq!(bar(0, 100), "");
        assert_eq!(bar(100, 100).chars().count(), BAR_CELLS);
        assert_eq!(bar(50, 100).chars().count(), BAR_CELLS / 2);
        assert_eq!(bar(1, 1_000_000), "▏");
        assert_eq!(bar(0, 0), "");
    }

    #[test]
    fn a_histogram_in_a_line_keeps_the_places_of_the_whole() {
        let spread = |events: &[(i64, i64, u64)]| Spread {
            events: 100,
            above_zero: 10,
            p50_ms: 0,
            p95_ms: 0,
            p99_ms: 0,
            p999_ms: 0,
            max_ms: 0,
            histogram: events
                .iter()
                .map(|&(over_ms, end, events)| Bucket { over_ms, up_to_ms: Some(end), events })
                .collect(),
        };
        let all = spread(&[(0, 1, 8), (1, 10, 4), (10, 100, 8)]);
        assert_eq!(small_histogram(&all, &all), "█▄█");
        assert_eq!(small_histogram(&spread(&[(1, 10, 3)]), &all), " █ ");
    }

    #[test]
    fn results_are_later_or_sooner_than_now() {
        assert_eq!(
            [None, Some(0), Some(60_000), Some(-1_000)].map(results)[..],
            ["-", "as now", "1m later", "1s sooner"]
        );
    }
}
