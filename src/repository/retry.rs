//! Trying again: so many attempts, with pauses that grow and are spread out by chance, and an end when told to stop.
//!
//! Time and randomness come in from outside. It does not know what is tried.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::error::RepositoryError;

/// Waits between two attempts.
pub trait Pause: Send + Sync + fmt::Debug {
    /// Waits for `length`; false when there is to be no further attempt.
    fn pause(&self, length: Duration) -> bool;

    /// True once there is to be no further attempt.
    fn is_stopped(&self) -> bool;
}

/// Waits by the machine's clock, and ends every wait when it is told to.
#[derive(Debug, Default)]
pub struct StopSignal {
    stopped: Mutex<bool>,
    told: Condvar,
}

impl StopSignal {
    /// Ends all waits, now and later.
    pub fn stop(&self) {
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.told.notify_all();
    }
}

impl Pause for StopSignal {
    fn pause(&self, length: Duration) -> bool {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.told.wait_timeout_while(stopped, length, |stopped| !*stopped);
        !*waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn is_stopped(&self) -> bool {
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often a failing call is tried again, and with what pauses.
#[derive(Clone, Debug)]
pub struct Retry {
    /// Attempts in all.
    pub attempts: NonZeroU32,
    /// The first pause is at most this long; each later one at most twice the one before.
    pub first: Duration,
    /// No pause is longer.
    pub longest: Duration,
    /// Who waits.
    pub pause: Arc<dyn Pause>,
    random: Arc<AtomicU64>,
}

impl Default for Retry {
    /// Six attempts, with pauses of up to 0.1, 0.2, 0.4, 0.8 and 1.6 seconds.
    fn default() -> Self {
        Self {
            attempts: NonZeroU32::MIN.saturating_add(5),
            first: Duration::from_millis(100),
            longest: Duration::from_secs(10),
            pause: Arc::new(StopSignal::default()),
            random: Arc::new(AtomicU64::new(u64::from(std::process::id()))),
        }
    }
}

impl Retry {
    /// Draws the lengths of pauses from this seed.
    #[must_use]
    pub fn seeded(mut self, seed: u64) -> Self {
        self.random = Arc::new(AtomicU64::new(seed));
        self
    }

    /// Waits through `pause`.
    #[must_use]
    pub fn pausing(mut self, pause: Arc<dyn Pause>) -> Self {
        self.pause = pause;
        self
    }

    /// Calls `work` until it succeeds, fails for good, or has failed too often; the last error is returned.
    ///
    /// # Errors
    /// What `work` returned, or [`RepositoryError::Stopped`].
    pub fn run<T>(&self, mut work: impl FnMut() -> Result<T, RepositoryError>) -> Result<T, RepositoryError> {
        let mut failed = 0;
        loop {
            if self.pause.is_stopped() {
                return Err(RepositoryError::Stopped);
            }
            match work() {
                Err(error) if error.is_passing() => {
                    failed += 1;
                    if failed >= self.attempts.get() {
                        return Err(error);
                    }
                    tracing::debug!(%error, failed, "trying again");
                    if !self.pause.pause(self.backoff(failed)) {
                        return Err(RepositoryError::Stopped);
                    }
                }
                outcome => return outcome,
            }
        }
    }

    /// Between half and the whole of the longest pause after so many failures.
    fn backoff(&self, failed: u32) -> Duration {
        let doubled = self.first.saturating_mul(1_u32.checked_shl(failed - 1).unwrap_or(u32::MAX));
        let longest = doubled.min(self.longest);
        let share = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        longest.mul_f64(0.5 + share / 2.0)
    }

    /// SplitMix64.
    fn next(&self) -> u64 {
        let state = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Waits for nobody and remembers how long it should have.
    #[derive(Debug, Default)]
    pub(crate) struct Recorded(pub(crate) Mutex<Vec<Duration>>);

    impl Pause for Recorded {
        fn pause(&self, length: Duration) -> bool {
            self.0.lock().unwrap().push(length);
            true
        }

        fn is_stopped(&self) -> bool {
            false
        }
    }

    fn passing() -> RepositoryError {
        RepositoryError::Unavailable { step: "read", name: "x".to_owned(), reason: "503".to_owned() }
    }

    #[test]
    fn pauses_double_up_to_a_bound_and_are_spread_by_the_seed() {
        let pauses = |seed| {
            let recorded = Arc::new(Recorded::default());
            let mut retry = Retry::default().seeded(seed).pausing(Arc::clone(&recorded) as _);
            retry.longest = Duration::from_millis(400);
            let result: Result<(), _> = retry.run(|| Err(passing()));
            assert!(matches!(result, Err(RepositoryError::Unavailable { .. })));
            recorded.0.lock().unwrap().clone()
        };
        let (one, again, other) = (pauses(7), pauses(7), pauses(8));
        assert!(one == again && one != other, "{one:?} {other:?}");
        for (pause, longest) in one.iter().zip([100, 200, 400, 400, 400]) {
            let longest = Duration::from_millis(longest);
            assert!(*pause >= longest / 2 && *pause <= longest, "{pause:?} {longest:?}");
        }
        assert_eq!(one.len(), 5);
    }

    #[test]
    fn what_will_not_work_later_is_not_tried_again() {
        let mut calls = 0;
        let result: Result<(), _> = Retry::default().run(|| {
            calls += 1;
            Err(RepositoryError::Exists { name: "x".to_owned() })
        });
        assert!(matches!(result, Err(RepositoryError::Exists { .. })) && calls == 1);
    }

    #[test]
    fn a_stop_ends_a_wait() {
        let signal = Arc::new(StopSignal::default());
        signal.stop();
        let retry = Retry::default().pausing(signal);
        assert!(matches!(retry.run(|| Err::<(), _>(passing())), Err(RepositoryError::Stopped)));
    }
}
