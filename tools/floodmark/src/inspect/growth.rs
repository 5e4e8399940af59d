//! `floodmark inspect growth`: how the state has grown over the checkpoints that are still there, as a table and a plot.

use std::path::PathBuf;

use clap::Args;
use floodmark::error::{Error, ErrorKind};
use floodmark::inspect::{self, GrowthPoint, GrowthReport};

use super::place::{Need, Place};
use super::text::{known, size};
use crate::console::{self, print_report as print};
use crate::plot::{Axis, Figure, Marks, Panel, Series, number};
use crate::run::{counted, grouped};
use crate::table::{Table, printable};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    place: Place,
    /// Draw it as DIR/growth.svg and DIR/growth.png.
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Error> {
    let report = inspect::growth(&arguments.place.locate(Need::Manifests)?.path)?;
    if let Some(dir) = &arguments.plot {
        if !dir.is_dir() {
            let message = format!("there is no such directory: path={}", dir.display());
            return Err(
                Error::new(ErrorKind::Invalid, message).with_remedy("make it, or name another with --plot")
            );
        }
        figure(&report).write(dir, "growth")?;
        console::say(&format!("drawn: {}", dir.join("growth.svg").display()));
    }
    print(arguments.place.json, &report, text)
}

fn text(report: &GrowthReport) -> String {
    let checkpoints = counted(report.points.len() as u64, "checkpoint", "checkpoints");
    let mut text = format!("state of {} over {checkpoints}\n\n", printable(&report.pipeline));
    let mut table =
        Table::new(&[">epoch", "created", "watermark", ">files", ">size", ">new", ">entries", ">open panes"]);
    for point in &report.points {
        table.row(vec![
            point.epoch.to_string(),
            point.created_at.to_string(),
            point.watermark.to_string(),
            grouped(point.files),
            size(point.bytes),
            known(point.new_bytes, size),
            grouped(point.entries),
            known(point.open_panes, grouped),
        ]);
    }
    text.push_str(&table.render(2));
    if report.left_out > 0 {
        let left_out = counted(report.left_out, "checkpoint has a manifest", "checkpoints have manifests");
        text.push_str(&format!("  {left_out} that cannot be read\n"));
    }
    let rate = report.bytes_per_hour.map_or(String::new(), |rate| {
        let sign = if rate < 0.0 { "-" } else { "+" };
        format!(", {sign}{} an hour", size(rate.abs() as u64))
    });
    let sign = if report.bytes_change < 0 { "-" } else { "+" };
    text.push_str(&format!(
        "\nfrom the first to the last: {sign}{}{rate}\n",
        size(report.bytes_change.unsigned_abs())
    ));
    text
}

/// A figure of one checkpoint: of all of it, or of one operator.
type Quantity = fn(&GrowthPoint, Option<&str>) -> Option<u64>;

/// Bytes, entries and open panes by epoch; by operator where there are several.
fn figure(report: &GrowthReport) -> Figure {
    let names: Vec<String> = report
        .points
        .last()
        .map_or(Vec::new(), |point| point.operators.iter().map(|operator| operator.name.clone()).collect());
    let by_operator = names.len() > 1;
    let mut legend = vec!["all".to_owned()];
    legend.extend(names.iter().filter(|_| by_operator).cloned());
    let quantities: [(&str, Quantity); 3] =
        [("MiB on disk", bytes), ("entries", entries), ("open panes", open_panes)];
    let panels = quantities.map(|(label, value)| {
        let scale = if label == "MiB on disk" { 1_048_576.0 } else { 1.0 };
        let line = |index: usize, name: Option<&str>| {
            let points = report.points.iter().filter_map(|point| {
                value(point, name).map(|value| (point.epoch as f64, value as f64 / scale))
            });
            let points: Vec<(f64, f64)> = points.collect();
            [Marks::Line, Marks::Points].map(|marks| Series { index, marks, points: points.clone() })
        };
        let mut series = line(0, None).to_vec();
        for (index, name) in names.iter().enumerate().filter(|_| by_operator) {
            series.extend(line(index + 1, Some(name)));
        }
        let highest =
            series.iter().flat_map(|series| &series.points).map(|point| point.1).fold(0.0, f64::max);
        let last = report.points.last().map_or(1, |point| point.epoch).max(1);
        Panel {
            title: label.to_owned(),
            x: Axis::linear("epoch", last as f64, number),
            y: Axis::linear(label, highest, number),
            series,
        }
    });
    Figure {
        title: format!("State of {} over its checkpoints", report.pipeline),
        notes: vec![format!("Checkpoints that are still there: {}.", report.points.len())],
        legend,
        marks: vec![(Marks::Points, None, "a checkpoint".to_owned())],
        rows: vec![panels.to_vec()],
    }
}

fn bytes(point: &GrowthPoint, name: Option<&str>) -> Option<u64> {
    match name {
        None => Some(point.bytes),
        Some(name) => {
            point.operators.iter().find(|operator| operator.name == name).map(|operator| operator.bytes)
        }
    }
}

fn entries(point: &GrowthPoint, name: Option<&str>) -> Option<u64> {
    match name {
        None => Some(point.entries),
        Some(name) => {
            point.operators.iter().find(|operator| operator.name == name).map(|operator| operator.entries)
        }
    }
}

fn open_panes(point: &GrowthPoint, name: Option<&str>) -> Option<u64> {
    match name {
        None => point.open_panes,
        Some(name) => point.operators.iter().find(|operator| operator.name == name)?.open_panes,
    }
}
