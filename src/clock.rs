//! Time of the outside world, handed in through constructors so that a test can own it.
//!
//! The only file that reads the machine's clocks. Event time never comes from here.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// Reads of wall time (for display and sanity bounds) and of monotonic time (for intervals).
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Wall-clock milliseconds since the Unix epoch. May jump; never use it for intervals.
    fn wall_millis(&self) -> i64;
    /// Time since some fixed moment; never goes back.
    fn monotonic(&self) -> Duration;
}

/// The machine's own clocks.
#[derive(Debug)]
pub struct SystemClock {
    origin: std::time::Instant,
}

impl SystemClock {
    /// The machine's clocks, counting monotonic time from now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the one door to the machine's clocks")]
    pub fn new() -> Self {
        Self { origin: std::time::Instant::now() }
    }

    /// As [`SystemClock::new`], shared.
    #[must_use]
    pub fn shared() -> Arc<dyn Clock> {
        Arc::new(Self::new())
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one door to the machine's clocks")]
    fn wall_millis(&self) -> i64 {
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since_epoch.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn monotonic(&self) -> Duration {
        self.origin.elapsed()
    }
}

/// A clock that moves only when told to.
#[derive(Debug, Default)]
pub struct ManualClock {
    wall_millis: AtomicI64,
    monotonic_millis: AtomicU64,
}

impl ManualClock {
    /// A clock standing at the given wall time, with monotonic time zero.
    #[must_use]
    pub fn at(wall_millis: i64) -> Self {
        Self { wall_millis: AtomicI64::new(wall_millis), monotonic_millis: AtomicU64::new(0) }
    }

    /// Lets both clocks run on by `span`.
    pub fn advance(&self, span: Duration) {
        let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        self.monotonic_millis.fetch_add(millis, Ordering::SeqCst);
        self.wall_millis.fetch_add(i64::try_from(millis).unwrap_or(i64::MAX), Ordering::SeqCst);
    }

    /// Sets the wall clock alone, as an operator or a time server would.
    pub fn set_wall(&self, wall_millis: i64) {
        self.wall_millis.store(wall_millis, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn wall_millis(&self) -> i64 {
        self.wall_millis.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.monotonic_millis.load(Ordering::SeqCst))
    }
}
