//! A snapshot as metrics: the text format of Prometheus, or OpenMetrics, as whoever asks prefers.
//!
//! Pure. `docs/METRICS.md` lists every name; a test compares. Counters are of this run, so that they begin at zero with
//! the process: what a restart reads again must not count twice. No key of any window is in them.

mod families;
#[cfg(test)]
mod tests;

use std::fmt::Write;

use super::lookout::Warnings;
use super::snapshot::Snapshot;

/// Partitions with metrics of their own: the first ones of the snapshot.
pub const PARTITIONS_MAX: usize = 200;

/// How metrics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The text format of Prometheus, version 0.0.4.
    Prometheus,
    /// OpenMetrics, version 1.0.0.
    OpenMetrics,
}

impl Format {
    /// The format that an `Accept` header prefers; that of Prometheus where it says nothing of either.
    #[must_use]
    pub fn accepted(accept: &str) -> Self {
        let (mut open, mut text) = (0.0, 0.0);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default();
            let quality = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f64>().ok()).unwrap_or(1.0);
            match kind {
                "application/openmetrics-text" => open = quality.max(open),
                "text/plain" => text = quality.max(text),
                _ => {}
            }
        }
        if open > 0.0 && open >= text { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// The value of `Content-Type`.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// All metrics of a run. `now_ms` is the wall clock: ages go on while the task shows nothing new.
#[must_use]
pub fn text(snapshot: &Snapshot, warnings: &Warnings, now_ms: i64, format: Format) -> String {
    let mut page =
        Exposition { text: String::with_capacity(16 << 10), format, pipeline: &snapshot.run.pipeline };
    families::write(&mut page, snapshot, warnings, now_ms);
    if format == Format::OpenMetrics {
        page.text.push_str("# EOF\n");
    }
    page.text
}

/// Whether a figure may go down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// May.
    Gauge,
    /// Never, as long as the process lives; its samples end in `_total`.
    Counter,
}

/// Metrics as they are written.
struct Exposition<'a> {
    text: String,
    format: Format,
    // A label of every sample: several pipelines may be scraped by one server.
    pipeline: &'a str,
}

/// Labels of a sample, besides the pipeline.
type Labels<'l> = &'l [(&'l str, &'l str)];

impl Exposition<'_> {
    /// A metric with one sample, or none where there is no value.
    fn one(&mut self, kind: Kind, name: &str, help: &str, value: impl Into<Option<f64>>) {
        self.family(kind, name, help);
        if let Some(value) = value.into() {
            self.sample(kind, name, &[], value);
        }
    }

    /// A metric with a sample for each of `values`.
    fn many<'v>(
        &mut self,
        kind: Kind,
        name: &str,
        help: &str,
        label: &str,
        values: impl Iterator<Item = (&'v str, f64)>,
    ) {
        self.family(kind, name, help);
        for (value, figure) in values {
            self.sample(kind, name, &[(label, value)], figure);
        }
    }

    /// What stands before the samples of a metric, whose name is without `_total`.
    fn family(&mut self, kind: Kind, name: &str, help: &str) {
        let (kind_name, suffix) = match (kind, self.format) {
            (Kind::Gauge, _) => ("gauge", ""),
            // OpenMetrics names the family without the suffix of its samples.
            (Kind::Counter, Format::OpenMetrics) => ("counter", ""),
            (Kind::Counter, Format::Prometheus) => ("counter", "_total"),
        };
        self.line(format_args!("# HELP {name}{suffix} {help}"));
        self.line(format_args!("# TYPE {name}{suffix} {kind_name}"));
        if let (Format::OpenMetrics, Some(unit)) = (self.format, unit(name)) {
            self.line(format_args!("# UNIT {name} {unit}"));
        }
    }

    fn sample(&mut self, kind: Kind, name: &str, labels: Labels<'_>, value: f64) {
        let suffix = if kind == Kind::Counter { "_total" } else { "" };
        let mut told = format!("pipeline=\"{}\"", escaped(self.pipeline));
        for (label, text) in labels {
            told.push_str(&format!(",{label}=\"{}\"", escaped(text)));
        }
        self.line(format_args!("{name}{suffix}{{{told}}} {}", number(value)));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Text in memory takes whatever is written to it.
        let _ = writeln!(self.text, "{line}");
    }
}

/// The unit that a name ends with.
fn unit(name: &str) -> Option<&'static str> {
    ["seconds", "bytes"].into_iter().find(|unit| name.ends_with(&format!("_{unit}")))
}

/// A label's value with backslashes, quotes and line ends escaped.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn number(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned()
    } else {
        value.to_string()
    }
}
