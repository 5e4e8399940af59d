//! Where the task leaves its newest snapshot, and where the server finds it.
//!
//! A lock is held for as long as it takes to replace or to copy a pointer, and for a sample of the history, never while
//! something is computed or sent.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::history::{History, HistoryReport, Resolution};
use super::lookout::Warnings;
use super::snapshot::{CheckpointFigures, Snapshot};

/// What there is to see of a run.
#[derive(Debug)]
pub struct Board {
    latest: Mutex<Latest>,
    history: Mutex<History>,
}

#[derive(Clone, Debug)]
struct Latest {
    snapshot: Arc<Snapshot>,
    warnings: Arc<Warnings>,
}

impl Board {
    /// A board that shows a run which is starting.
    #[must_use]
    pub fn new(starting: Snapshot) -> Self {
        let latest = Latest { snapshot: Arc::new(starting), warnings: Arc::default() };
        Self { latest: Mutex::new(latest), history: Mutex::default() }
    }

    /// The newest snapshot.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&lock(&self.latest).snapshot)
    }

    /// The warnings so far.
    #[must_use]
    pub fn warnings(&self) -> Arc<Warnings> {
        Arc::clone(&lock(&self.latest).warnings)
    }

    /// The past of the run.
    #[must_use]
    pub fn history(&self, resolution: Resolution) -> HistoryReport {
        // A shallow copy: what is made of it takes too long for a lock that the task waits for.
        let history = lock(&self.history).clone();
        history.report(resolution)
    }

    pub(super) fn publish(&self, snapshot: Snapshot, warnings: &Warnings) {
        lock(&self.history).note(&snapshot);
        let (snapshot, known) = (Arc::new(snapshot), self.warnings());
        let warnings = if *known == *warnings { known } else { Arc::new(warnings.clone()) };
        let before = std::mem::replace(&mut *lock(&self.latest), Latest { snapshot, warnings });
        drop(before);
    }

    pub(super) fn note_checkpoint(&self, figures: &CheckpointFigures) {
        lock(&self.history).note_checkpoint(figures);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these locks is replaced as a whole, or extended by a whole sample.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
