//! The middle of several runs.

use std::error::Error;
use std::time::{Duration, Instant};

/// Runs it so often; the time of the median run, and what that one found.
pub(crate) fn median<T>(
    rounds: usize,
    mut run: impl FnMut() -> Result<T, Box<dyn Error + Send + Sync>>,
) -> Result<(Duration, T), Box<dyn Error + Send + Sync>> {
    let mut runs = Vec::new();
    for _ in 0..rounds {
        let started = Instant::now();
        let found = run()?;
        runs.push((started.elapsed(), found));
    }
    runs.sort_by_key(|(took, _)| *took);
    Ok(runs.swap_remove(rounds / 2))
}
