//! What was measured, as plain data, as a table for people and as JSON for machines; and how it stands to the targets.

use std::time::Duration;

use serde::Serialize;

use crate::Outcome;
use crate::contender::{Contender, Run};
use crate::results::Results;
use crate::stream::Shape;

/// How a contender fared over one stream.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    contender: Contender,
    runs: Vec<(Duration, u64)>,
    wrong: Option<String>,
}

impl Measured {
    pub(crate) const fn new(contender: Contender) -> Self {
        Self { contender, runs: Vec::new(), wrong: None }
    }

    /// Who it is.
    pub(crate) const fn contender(&self) -> Contender {
        self.contender
    }

    /// True when another round would tell nothing, or take too long.
    pub(crate) fn is_done(&self, at_most: Duration) -> bool {
        self.wrong.is_some() || self.runs.iter().map(|(took, _)| *took).sum::<Duration>() >= at_most
    }

    /// It ran to the end.
    pub(crate) fn ran(&mut self, run: &Run, right: &Results) {
        self.runs.push((run.took, run.kept));
        self.wrong = run.results.differ_from(right).map(|difference| format!("wrong results: {difference}"));
    }

    /// It did not.
    pub(crate) fn failed(&mut self, error: &str) {
        self.wrong = Some(format!("failed: {error}"));
    }

    /// The run with the median time; `None` when there is none that counts.
    fn median(&self) -> Option<(Duration, u64)> {
        let mut runs = self.runs.clone();
        runs.sort();
        runs.get(runs.len() / 2).copied().filter(|_| self.wrong.is_none())
    }
}

/// A line of the table.
#[derive(Clone, Debug, Serialize)]
struct Line {
    contender: String,
    name: &'static str,
    input: &'static str,
    durable: &'static str,
    /// Why its time does not count.
    wrong: Option<String>,
    rounds: usize,
    seconds: Option<f64>,
    events_per_second: Option<f64>,
    /// How often state was made durable in the run that counts.
    kept: Option<u64>,
    /// Speed as a multiple of the faster of RocksDB's two get/put runs.
    of_get_put: Option<f64>,
    /// Speed as a multiple of the hash map's.
    of_hash_map: Option<f64>,
}

/// A target, and what was reached.
#[derive(Clone, Debug, Serialize)]
struct Target {
    what: &'static str,
    wanted: f64,
    /// The best of Floodmark's runs of this kind.
    reached: f64,
    met: bool,
}

/// All contenders over one stream.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ShapeReport {
    shape: &'static str,
    results: u64,
    contenders: Vec<Line>,
    targets: Vec<Target>,
}

const GET_PUT: [&str; 2] = ["rocksdb", "rocksdb-checkpoints"];
const FROM_ARROW: [&str; 2] = ["floodmark", "floodmark-two-threads"];
const FROM_TEXT: [&str; 1] = ["floodmark-text"];

impl ShapeReport {
    pub(crate) fn new(shape: Shape, results: u64, events: u64, measured: Vec<Measured>) -> Self {
        let mut contenders: Vec<Line> = measured.iter().map(|one| line(one, events)).collect();
        let (get_put, map) = (fastest(&contenders, &GET_PUT), fastest(&contenders, &["hash-map"]));
        for line in &mut contenders {
            let of = |base: Option<f64>| Some(line.events_per_second? / base?);
            (line.of_get_put, line.of_hash_map) = (of(get_put), of(map));
        }
        let targets = targets(shape, &contenders);
        Self { shape: shape.name(), results, contenders, targets }
    }
}

fn line(measured: &Measured, events: u64) -> Line {
    let (facts, median) = (measured.contender.facts(), measured.median());
    let seconds = median.map(|(took, _)| took.as_secs_f64());
    Line {
        contender: measured.contender.id(),
        name: facts.name,
        input: facts.input,
        durable: facts.durable,
        wrong: measured.wrong.clone(),
        rounds: measured.runs.len(),
        seconds,
        events_per_second: seconds.map(|seconds| events as f64 / seconds.max(1e-9)),
        kept: median.map(|(_, kept)| kept),
        of_get_put: None,
        of_hash_map: None,
    }
}

/// Events per second of the fastest of these that counts.
fn fastest(lines: &[Line], ids: &[&str]) -> Option<f64> {
    let of_these = lines.iter().filter(|line| ids.contains(&line.contender.as_str()));
    of_these.filter_map(|line| line.events_per_second).reduce(f64::max)
}

/// What the project holds itself to; only what both sides were run for.
fn targets(shape: Shape, lines: &[Line]) -> Vec<Target> {
    let times_get_put = match shape {
        Shape::S1 => 15.0,
        Shape::S4 => 8.0,
    };
    let held = [
        ("from Arrow, times RocksDB get/put", &FROM_ARROW[..], &GET_PUT[..], times_get_put),
        ("from JSON lines, times RocksDB get/put", &FROM_TEXT, &GET_PUT, times_get_put),
    ];
    let target = |(what, ours, theirs, wanted): (&'static str, &[&str], &[&str], f64)| {
        let reached = fastest(lines, ours)? / fastest(lines, theirs)?;
        Some(Target { what, wanted, reached, met: reached >= wanted })
    };
    held.into_iter().filter_map(target).collect()
}

/// Everything that one call measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    /// Events of each stream.
    pub(crate) events: u64,
    /// One for each shape.
    pub(crate) shapes: Vec<ShapeReport>,
}

const HEAD: [&str; 9] =
    ["shape", "contender", "from", "durable", "kept", "rounds", "events/s", "of get/put", "of hash map"];
/// Columns of words; the others are numbers, to the right.
const WORDS: usize = 4;

impl Report {
    /// True when every contender ran and gave the right results.
    pub(crate) fn all_right(&self) -> bool {
        self.lines().all(|(_, line)| line.wrong.is_none())
    }

    fn lines(&self) -> impl Iterator<Item = (&'static str, &Line)> {
        self.shapes.iter().flat_map(|shape| shape.contenders.iter().map(|line| (shape.shape, line)))
    }

    /// One JSON object and a line break.
    pub(crate) fn to_json(&self) -> Outcome<String> {
        Ok(serde_json::to_string(self)? + "\n")
    }

    /// A table, what was wrong, and the targets.
    pub(crate) fn to_table(&self) -> String {
        let mut rows = vec![HEAD.map(str::to_owned)];
        rows.extend(self.lines().map(|(shape, line)| cells(shape, line)));
        let mut text = table(&rows);
        for (shape, line) in self.lines() {
            if let Some(wrong) = &line.wrong {
                text += &format!("{shape} {}: {wrong}\n", line.contender);
            }
        }
        for shape in &self.shapes {
            for target in &shape.targets {
                let met = if target.met { "met" } else { "NOT MET" };
                let Target { what, wanted, reached, .. } = target;
                text += &format!("{} {what}: {reached:.1}, target {wanted:.0}: {met}\n", shape.shape);
            }
        }
        text
    }
}

fn cells(shape: &str, line: &Line) -> [String; 9] {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let speed = match &line.wrong {
        Some(_) => "WRONG".to_owned(),
        None => or_dash(line.events_per_second.map(|rate| grouped(rate as u64))),
    };
    [
        shape.to_owned(),
        line.name.to_owned(),
        line.input.to_owned(),
        line.durable.to_owned(),
        or_dash(line.kept.map(|kept| kept.to_string())),
        line.rounds.to_string(),
        speed,
        or_dash(line.of_get_put.map(|ratio| format!("{ratio:.2}x"))),
        or_dash(line.of_hash_map.map(|ratio| format!("{ratio:.3}x"))),
    ]
}

fn table(rows: &[[String; 9]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: [usize; 9] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match column {
            0..WORDS => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// 1234567 as 1,234,567.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Pane;

    fn results(rows: u64) -> Results {
        let mut results = Results::default();
        (0..rows).for_each(|row| results.take(0, &row.to_be_bytes(), Pane::of(1)));
        results
    }

    fn ran(contender: Contender, seconds: &[u64], rows: u64) -> Measured {
        let mut measured = Measured::new(contender);
        for &seconds in seconds {
            let run = Run { took: Duration::from_secs(seconds), kept: seconds, results: results(rows) };
            measured.ran(&run, &results(3));
        }
        measured
    }

    fn report(measured: Vec<Measured>) -> Report {
        let shape = ShapeReport::new(Shape::S1, 3, 600, measured);
        Report { events: 600, shapes: vec![shape] }
    }

    #[test]
    fn the_median_round_counts_and_ratios_are_to_the_faster_baseline() {
        let report = report(vec![
            ran(Contender::HashMap, &[1, 2, 30], 3),
            ran(Contender::Rocksdb, &[60], 3),
            ran(Contender::RocksdbCheckpoints, &[40], 3),
            ran(Contender::Floodmark, &[2, 2, 2], 3),
        ]);
        assert!(report.all_right());
        let [map, _, _, floodmark] = report.shapes[0].contenders.as_slice() else { panic!("four lines") };
        assert_eq!((map.seconds, map.events_per_second, map.kept), (Some(2.0), Some(300.0), Some(2)));
        assert_eq!((floodmark.of_get_put, floodmark.of_hash_map), (Some(20.0), Some(1.0)));
        let [target] = report.shapes[0].targets.as_slice() else { panic!("one target has both sides") };
        assert!(target.met && target.reached == 20.0 && target.wanted == 15.0);
    }

    #[test]
    fn wrong_results_have_no_time_and_no_ratio() {
        let report = report(vec![ran(Contender::HashMap, &[1], 3), ran(Contender::Rocksdb, &[1], 2)]);
        assert!(!report.all_right());
        let wrong = &report.shapes[0].contenders[1];
        assert_eq!((wrong.seconds, wrong.of_hash_map), (None, None));
        let table = report.to_table();
        assert!(table.contains("WRONG") && table.contains("2 results instead of 3"), "{table}");
        let json: serde_json::Value = serde_json::from_str(&report.to_json().expect("json")).expect("json");
        assert_eq!(json["shapes"][0]["contenders"][1]["contender"], "rocksdb");
        assert!(
            json["shapes"][0]["contenders"][1]["wrong"].as_str().is_some_and(|why| why.contains("wrong"))
        );
    }

    #[test]
    fn a_slow_contender_stops_after_its_time_and_a_wrong_one_at_once() {
        let limit = Duration::from_secs(10);
        assert!(!ran(Contender::Sqlite, &[4, 5], 3).is_done(limit));
        assert!(ran(Contender::Sqlite, &[4, 6], 3).is_done(limit));
        assert!(ran(Contender::Sqlite, &[1], 2).is_done(limit));
        let mut failed = Measured::new(Contender::Sqlite);
        failed.failed("disk full");
        assert!(failed.is_done(limit));
    }

    #[test]
    fn columns_of_the_table_are_aligned() {
        let table =
            report(vec![ran(Contender::HashMap, &[1], 3), ran(Contender::Sqlite, &[1], 3)]).to_table();
        let lines: Vec<&str> = table.lines().collect();
        let ends = |line: &str, word: &str| line.find(word).map(|at| at + word.len());
        assert_eq!(ends(lines[0], "events/s"), ends(lines[1], " 600"));
        assert_eq!(lines[1].find("Arrow"), lines[2].find("Arrow"));
        assert_eq!(grouped(1_234_567), "1,234,567");
    }
}
