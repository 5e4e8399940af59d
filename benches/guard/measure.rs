//! How a figure is taken.

use std::time::{Duration, Instant};

/// What can go wrong in a bench.
pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Runs of each figure.
const RUNS: usize = 5;
/// A single run, under a simulated processor that is fifty times as slow, does this part of the work.
pub(crate) const ONCE_PART: u64 = 8;

/// One figure.
pub(crate) struct Figure {
    /// By this it is found again in older results.
    pub(crate) name: &'static str,
    /// Of the median and the least.
    pub(crate) unit: &'static str,
    /// True when its instructions can be counted: no threads, no disk.
    pub(crate) counted: bool,
    /// How much there is to do.
    pub(crate) size: u64,
    /// Prepares, and does the work inside of [`floodmark_measured`].
    pub(crate) run: fn(u64) -> Outcome<Sample>,
}

/// One run of a figure.
pub(crate) struct Sample {
    /// Time of the work alone.
    pub(crate) took: Duration,
    /// What was worked on: keys, events, rows.
    pub(crate) count: u64,
}

/// What all runs of a figure showed, in its unit.
pub(crate) struct Measured {
    /// The middle one.
    pub(crate) median: f64,
    /// The quickest one, which other work on the machine disturbed least.
    pub(crate) least: f64,
    /// How many there were.
    pub(crate) runs: usize,
}

/// Does the work of a figure. Callgrind counts from its entry to its exit, by its name, so it is not inlined.
#[inline(never)]
pub(crate) fn floodmark_measured<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let started = Instant::now();
    let done = work();
    (started.elapsed(), done)
}

/// Takes a figure.
pub(crate) fn measure(figure: &Figure) -> Outcome<Measured> {
    let mut all = Vec::new();
    for _ in 0..RUNS {
        let sample = (figure.run)(figure.size)?;
        let nanos = sample.took.as_nanos() as f64 / sample.count.max(1) as f64;
        all.push(if figure.unit.starts_with("us") { nanos / 1e3 } else { nanos });
    }
    all.sort_by(f64::total_cmp);
    Ok(Measured { median: all[RUNS / 2], least: all[0], runs: RUNS })
}
