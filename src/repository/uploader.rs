//! The thread that uploads checkpoints beside processing: one at a time, always the newest that is complete.
//!
//! A checkpoint that waits or is being uploaded is pinned in the state directory. A failed upload is a warning and the
//! next checkpoint's business; only a takeover by another process ends the run.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::error::RepositoryError;
use super::mirror::{Mirror, Uploaded};
use super::retry::StopSignal;
use crate::checkpoint::{Pin, Published, StateDirectory};
use crate::clock::Clock;
use crate::error::Error;

/// Checkpoints whose parents are remembered: those since the last upload, and never more than this.
const PARENTS_MAX: usize = 1_000;
/// How often one who waits looks up.
const LOOK_UP: Duration = Duration::from_millis(200);

/// What the uploader has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UploadStats {
    /// Checkpoints uploaded.
    pub uploaded: u64,
    /// Checkpoints passed over for newer ones.
    pub skipped: u64,
    /// Uploads that failed after all retries.
    pub failed: u64,
    /// Bytes written.
    pub new_bytes: u64,
    /// Bytes that were there already.
    pub shared_bytes: u64,
    /// Epoch of the newest checkpoint in the repository.
    pub last_epoch: Option<u64>,
    /// What the last failure was, until an upload succeeds.
    pub problem: Option<String>,
}

#[derive(Debug)]
struct Job {
    published: Published,
    _pin: Pin,
}

#[derive(Debug, Default)]
struct State {
    waiting: Option<Job>,
    busy: bool,
    // Set once, by a takeover.
    fence: Option<Arc<RepositoryError>>,
    stopped: bool,
    stats: UploadStats,
    // Parents of the checkpoints since the last upload.
    parents: BTreeMap<u64, u64>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every change under this lock leaves the state whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, LOOK_UP).unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Uploads checkpoints until dropped. Clones are one uploader.
#[derive(Clone, Debug)]
pub struct Uploader {
    shared: Arc<Shared>,
    mirror: Arc<Mirror>,
    directory: StateDirectory,
    // The last one to go ends the thread.
    thread: Arc<Thread>,
}

#[derive(Debug)]
struct Thread {
    stop: Arc<StopSignal>,
    shared: Arc<Shared>,
    handle: Option<JoinHandle<()>>,
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.stop.stop();
        self.shared.state().stopped = true;
        self.shared.changed.notify_all();
        if let Some(handle) = self.handle.take() {
            // A panic there has been printed; there is nothing left to do about it here.
            let _ = handle.join();
        }
    }
}

impl Uploader {
    /// Starts the thread. `stop` is what the mirror's retries wait through: it ends them when the uploader goes.
    ///
    /// # Errors
    /// [`RepositoryError::Thread`].
    pub fn start(
        mirror: Mirror,
        directory: StateDirectory,
        stop: Arc<StopSignal>,
    ) -> Result<Self, RepositoryError> {
        let (shared, mirror) = (Arc::new(Shared::default()), Arc::new(mirror));
        let (theirs, uploading) = (Arc::clone(&shared), Arc::clone(&mirror));
        let handle = std::thread::Builder::new()
            .name("floodmark-uploader".to_owned())
            .spawn(move || run(&theirs, &uploading))
            .map_err(|_| RepositoryError::Thread)?;
        let thread = Arc::new(Thread { stop, shared: Arc::clone(&shared), handle: Some(handle) });
        Ok(Self { shared, mirror, directory, thread })
    }

    /// Hands over a checkpoint that is complete in the state directory, and returns at once. One that still waits is
    /// passed over.
    ///
    /// # Errors
    /// [`RepositoryError::Fenced`] when another process has taken over.
    pub fn offer(&self, published: &Published) -> Result<(), RepositoryError> {
        let pin = self.directory.pin(published.epoch());
        let mut state = self.shared.state();
        if let Some(fence) = &state.fence {
            return Err(again(fence));
        }
        if let Some(parent) = published.manifest().parent {
            state.parents.insert(published.epoch(), parent);
            while state.parents.len() > PARENTS_MAX {
                state.parents.pop_first();
            }
        }
        let job = Job { published: published.clone(), _pin: pin };
        if let Some(passed_over) = state.waiting.replace(job)
            && passed_over.published.epoch() != published.epoch()
        {
            state.stats.skipped += 1;
        }
        self.shared.changed.notify_all();
        Ok(())
    }

    /// As [`Uploader::offer`], and waits until the repository has the checkpoint: as long as `patience`, with failed
    /// uploads begun again.
    ///
    /// # Errors
    /// [`RepositoryError::Fenced`], and the last failure when patience ends.
    pub fn upload(
        &self,
        published: &Published,
        patience: Duration,
        clock: &dyn Clock,
    ) -> Result<(), RepositoryError> {
        let until = clock.monotonic() + patience;
        loop {
            let failed_before = self.stats().failed;
            self.offer(published)?;
            let mut state = self.shared.state();
            while state.stats.last_epoch.is_none_or(|epoch| epoch < published.epoch()) {
                if let Some(fence) = &state.fence {
                    return Err(again(fence));
                }
                if state.stopped {
                    return Err(RepositoryError::Stopped);
                }
                if state.stats.failed > failed_before && !state.busy && state.waiting.is_none() {
                    break;
                }
                state = self.shared.wait(state);
            }
            if state.stats.last_epoch.is_some_and(|epoch| epoch >= published.epoch()) {
                return Ok(());
            }
            if clock.monotonic() >= until {
                let reason = state.stats.problem.clone().unwrap_or_default();
                let name = format!("epoch {}", published.epoch());
                return Err(RepositoryError::Unavailable { step: "upload a checkpoint", name, reason });
            }
            drop(state);
            std::thread::sleep(LOOK_UP);
        }
    }

    /// Fails once another process has taken the repository over.
    ///
    /// # Errors
    /// [`RepositoryError::Fenced`].
    pub fn check(&self) -> Result<(), RepositoryError> {
        match &self.shared.state().fence {
            Some(fence) => Err(again(fence)),
            None => Ok(()),
        }
    }

    /// Waits until nothing waits to be uploaded, for the end of a run.
    ///
    /// # Errors
    /// [`RepositoryError::Fenced`].
    pub fn drain(&self) -> Result<UploadStats, RepositoryError> {
        let mut state = self.shared.state();
        while (state.busy || state.waiting.is_some()) && !state.stopped && state.fence.is_none() {
            state = self.shared.wait(state);
        }
        match &state.fence {
            Some(fence) => Err(again(fence)),
            None => Ok(state.stats.clone()),
        }
    }

    /// Notes that the repository has the checkpoint of `epoch` from an earlier run.
    pub fn note_held(&self, epoch: u64) {
        self.shared.state().stats.last_epoch = Some(epoch);
    }

    /// Ends waiting and uploading, for a store that is being dropped; the thread itself ends with the last clone.
    pub fn stop(&self) {
        self.thread.stop.stop();
        self.shared.state().stopped = true;
        self.shared.changed.notify_all();
    }

    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> UploadStats {
        self.shared.state().stats.clone()
    }

    /// The repository.
    #[must_use]
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }
}

/// The takeover, told once more.
fn again(fence: &RepositoryError) -> RepositoryError {
    match fence {
        RepositoryError::Fenced { place, ours, holder } => {
            RepositoryError::Fenced { place: place.clone(), ours: *ours, holder: holder.clone() }
        }
        RepositoryError::Conflict { name } => RepositoryError::Conflict { name: name.clone() },
        _ => RepositoryError::Thread,
    }
}

fn run(shared: &Shared, mirror: &Mirror) {
    /// However the thread ends, nobody waits for it.
    struct Stop<'a>(&'a Shared);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.state().stopped = true;
            self.0.changed.notify_all();
        }
    }
    let _stop = Stop(shared);
    while let Some((job, parents)) = next(shared) {
        let published = &job.published;
        let outcome = mirror.upload(published.path(), published.manifest(), &parents);
        if note(shared, mirror, published.epoch(), outcome) {
            return;
        }
    }
}

/// Waits for a job; `None` at the end. With it, the ancestors of the checkpoint, nearest first.
fn next(shared: &Shared) -> Option<(Job, Vec<u64>)> {
    let mut state = shared.state();
    loop {
        if state.stopped {
            return None;
        }
        if let Some(job) = state.waiting.take() {
            state.busy = true;
            let mut parents = Vec::new();
            let mut of = job.published.manifest().parent;
            while let Some(parent) = of {
                parents.push(parent);
                of = state.parents.get(&parent).copied().filter(|older| *older < parent);
            }
            return Some((job, parents));
        }
        state = shared.wait(state);
    }
}

fn warn_of_failure(mirror: &Mirror, epoch: u64, failed: u64, problem: &str, error: &Error) {
    tracing::warn!(
        epoch, place = %mirror.place(), %problem, remedy = error.remedy().unwrap_or_default(), failed,
        "a checkpoint did not get into the repository: a lost machine would lose what came since the last one that did, \
         but for output that waits for its upload (`repository_required`); processing goes on, and it is tried again"
    );
}

/// Records how an upload ended; true when it is the last one.
fn note(shared: &Shared, mirror: &Mirror, epoch: u64, outcome: Result<Uploaded, RepositoryError>) -> bool {
    let mut state = shared.state();
    state.busy = false;
    let last = match outcome {
        Ok(uploaded) => {
            state.stats.uploaded += 1;
            state.stats.new_bytes += uploaded.new_bytes;
            state.stats.shared_bytes += uploaded.shared_bytes;
            state.stats.last_epoch = Some(epoch);
            state.stats.problem = None;
            // Its own parent is needed no more: it is an ancestor that the repository has.
            state.parents = state.parents.split_off(&epoch);
            tracing::debug!(
                epoch,
                new_bytes = uploaded.new_bytes,
                shared_bytes = uploaded.shared_bytes,
                retired = uploaded.retired,
                "checkpoint uploaded"
            );
            false
        }
        Err(RepositoryError::Stopped) => true,
        Err(error) if error.is_fence() => {
            tracing::error!(%error, "another process has taken the repository over; this one stops");
            state.fence = Some(Arc::new(error));
            true
        }
        Err(error) => {
            state.stats.failed += 1;
            let cause = std::error::Error::source(&error).map_or(String::new(), |cause| format!(": {cause}"));
            let problem = format!("{error}{cause}");
            // The same trouble over and over is told when it has doubled.
            let told =
                state.stats.problem.as_ref() == Some(&problem) && !state.stats.failed.is_power_of_two();
            if !told {
                warn_of_failure(mirror, epoch, state.stats.failed, &problem, &Error::from(error));
            }
            state.stats.problem = Some(problem);
            false
        }
    };
    drop(state);
    shared.changed.notify_all();
    last
}
