//! How long results took, and the figures that stand for all of them.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Longest time that is told apart, in microseconds: an hour. What took longer counts as this.
const MICROS_MAX: u64 = 3_600_000_000;
/// Digits that are kept of each time.
const DIGITS: u8 = 3;

/// Times of results, one for each row.
#[derive(Debug)]
pub(super) struct Latencies {
    micros: Histogram<u64>,
    firings: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        let micros = Histogram::new_with_bounds(1, MICROS_MAX, DIGITS);
        Self { micros: micros.expect("the bounds are constants that a histogram takes"), firings: 0 }
    }
}

impl Latencies {
    /// Notes that `rows` of one firing took so long.
    pub(super) fn note(&mut self, took: Duration, rows: u64) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.micros.saturating_record_n(micros.max(1), rows);
        self.firings += 1;
    }

    /// The figures; `None` when nothing was noted.
    pub(super) fn figures(&self) -> Option<Figures> {
        if self.micros.is_empty() {
            return None;
        }
        let at = |quantile| self.micros.value_at_quantile(quantile);
        Some(Figures {
            rows: self.micros.len(),
            firings: self.firings,
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: self.micros.max(),
        })
    }
}

/// The figures of a series, in microseconds; a quantile is that of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Figures {
    pub(super) rows: u64,
    pub(super) firings: u64,
    pub(super) p50_us: u64,
    pub(super) p99_us: u64,
    pub(super) p999_us: u64,
    pub(super) max_us: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_counts_and_not_each_firing() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.figures(), None);
        latencies.note(Duration::from_micros(100), 989);
        latencies.note(Duration::from_millis(2), 10);
        latencies.note(Duration::from_secs(2), 1);
        let figures = latencies.figures().expect("three firings");
        assert_eq!((figures.rows, figures.firings, figures.p50_us), (1_000, 3, 100));
        // Three digits are kept.
        assert!(figures.p99_us.abs_diff(2_000) <= 2, "{figures:?}");
        assert!(figures.max_us.abs_diff(2_000_000) <= 2_000, "{figures:?}");
    }

    #[test]
    fn a_time_beyond_an_hour_counts_as_one() {
        let mut latencies = Latencies::default();
        latencies.note(Duration::from_secs(86_400), 5);
        let figures = latencies.figures().expect("one firing");
        assert!((3_600_000_000..3_604_000_000).contains(&figures.max_us), "{figures:?}");
    }
}
