//! The one thread that changes the state database: takes spilled rows and checkpoints in order, and does them.
//!
//! Processing goes on meanwhile. Reads wait only until what was handed over before is written, not until a
//! checkpoint is published.

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::checkpointing::{CheckpointJob, CheckpointReport};
use crate::codec::PaneKey;
use crate::error::{Error, ErrorKind, Result};
use crate::operator::{Entries, SpillKind, Spilled};
use crate::state::{FamilyId, StateDb, Write};

/// Jobs that may wait. Each holds up to a window's worth of rows; more waiting jobs would only be more memory.
const JOBS_WAITING_MAX: usize = 2;
/// Rows encoded and written in one go.
const ROWS_AT_ONCE: usize = 1 << 18;
/// Bytes of encoded rows after which they are written, however few they are.
const BYTES_AT_ONCE: usize = 64 << 20;

enum Job {
    Write { operator: usize, spilled: Spilled, bytes: usize },
    Checkpoint(Box<CheckpointJob>, usize),
}

/// How far the thread has come.
#[derive(Default)]
struct Progress {
    written: u64,
    // Of rows handed over whose memory is not given back yet.
    bytes: usize,
    stopped: bool,
    failure: Option<Error>,
}

#[derive(Default)]
struct Shared {
    progress: Mutex<Progress>,
    moved: Condvar,
}

impl Shared {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        // Whoever holds this lock only counts, and leaves nothing half done.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A job is done, and so many bytes of rows are no longer held for it.
    fn note_written(&self, bytes: usize) {
        let mut progress = self.progress();
        progress.written += 1;
        progress.bytes = progress.bytes.saturating_sub(bytes);
        drop(progress);
        self.moved.notify_all();
    }
}

/// The caller's end of the thread.
pub(super) struct Writer {
    jobs: Option<SyncSender<Job>>,
    reports: Receiver<CheckpointReport>,
    shared: Arc<Shared>,
    handed_over: u64,
    in_flight: bool,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread.
    pub(super) fn start(db: Arc<StateDb>) -> Result<Self> {
        let (jobs, waiting) = sync_channel(JOBS_WAITING_MAX);
        let (done, reports) = sync_channel(1);
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("floodmark-writer".to_owned())
            .spawn(move || run(&db, &waiting, &done, &theirs))
            .map_err(|error| {
                Error::new(ErrorKind::Unavailable, "cannot start the writer thread").with_source(error)
            })?;
        let thread = Some(thread);
        Ok(Self { jobs: Some(jobs), reports, shared, handed_over: 0, in_flight: false, thread })
    }

    /// Hands over spilled rows of an operator.
    pub(super) fn write(&mut self, operator: usize, spilled: Spilled) -> Result<()> {
        if spilled.rows.is_empty() {
            return Ok(());
        }
        let bytes = spilled.bytes();
        self.shared.progress().bytes += bytes;
        self.hand_over(Job::Write { operator, spilled, bytes })
    }

    /// Waits until spilled rows that are not written yet take no more than `bytes_max`.
    pub(super) fn wait_for_room(&mut self, bytes_max: usize) -> Result<()> {
        let mut progress = self.shared.progress();
        while progress.bytes > bytes_max && !progress.stopped {
            progress = self.shared.moved.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
        let has_room = progress.bytes <= bytes_max;
        drop(progress);
        if has_room { Ok(()) } else { Err(self.failure()) }
    }

    /// Hands over a checkpoint. At most one is under way.
    pub(super) fn checkpoint(&mut self, job: CheckpointJob) -> Result<()> {
        debug_assert!(!self.in_flight);
        let bytes = job.bytes();
        self.shared.progress().bytes += bytes;
        self.hand_over(Job::Checkpoint(Box::new(job), bytes))?;
        self.in_flight = true;
        Ok(())
    }

    fn hand_over(&mut self, job: Job) -> Result<()> {
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        if !sent {
            return Err(self.failure());
        }
        self.handed_over += 1;
        Ok(())
    }

    /// Waits until all rows handed over so far can be read from the database.
    pub(super) fn wait_until_written(&mut self) -> Result<()> {
        let mut progress = self.shared.progress();
        while progress.written < self.handed_over && !progress.stopped {
            progress = self.shared.moved.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
        let complete = progress.written >= self.handed_over;
        drop(progress);
        if complete { Ok(()) } else { Err(self.failure()) }
    }

    /// Jobs handed over whose rows cannot be read from the database yet.
    pub(super) fn waiting(&self) -> u64 {
        self.handed_over.saturating_sub(self.shared.progress().written)
    }

    /// True while a checkpoint is under way.
    pub(super) fn in_flight(&self) -> bool {
        self.in_flight
    }

    /// The report of a finished checkpoint, if there is one; with `wait`, waits for the one under way.
    pub(super) fn report(&mut self, wait: bool) -> Result<Option<CheckpointReport>> {
        if !self.in_flight {
            return Ok(None);
        }
        let received = if wait {
            self.reports.recv().map_err(|_| TryRecvError::Disconnected)
        } else {
            self.reports.try_recv()
        };
        match received {
            Ok(report) => {
                self.in_flight = false;
                Ok(Some(report))
            }
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(self.failure()),
        }
    }

    /// Why the thread has stopped. The cause is handed out once.
    fn failure(&self) -> Error {
        self.shared.progress().failure.take().unwrap_or_else(|| {
            Error::new(ErrorKind::Poisoned, "the writer thread has stopped")
                .with_remedy("drop the store and open it again: it restores the last checkpoint")
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic there was reported through `failure`; there is nothing left to do about it here.
            let _ = thread.join();
        }
    }
}

fn run(db: &StateDb, jobs: &Receiver<Job>, done: &SyncSender<CheckpointReport>, shared: &Shared) {
    /// Marks the thread as stopped however it ends.
    struct Stop<'a>(&'a Shared);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.progress().stopped = true;
            self.0.moved.notify_all();
        }
    }
    let _stop = Stop(shared);
    for job in jobs {
        let result = match job {
            Job::Write { operator, spilled, bytes } => {
                let written = write_rows(db, operator, std::slice::from_ref(&spilled));
                drop(spilled);
                written.map(|_| shared.note_written(bytes))
            }
            Job::Checkpoint(job, bytes) => job.run(db, || shared.note_written(bytes)).map(|report| {
                // Nobody waits for the report when the store is being dropped.
                let _ = done.send(report);
            }),
        };
        if let Err(error) = result {
            shared.progress().failure = Some(error);
            return;
        }
    }
}

/// Writes rows of one operator. Returns how many. Spilled runs of one kind come in ascending order of end; a run of
/// another kind starts anew.
pub(super) fn write_rows(db: &StateDb, operator: usize, spilled: &[Spilled]) -> Result<usize> {
    let mut chunk = Chunk::default();
    let mut written = 0;
    let mut kind = None;
    for window in spilled {
        // What is deleted may be put again right after.
        if kind
            .replace(window.kind)
            .is_some_and(|before| (before == SpillKind::Delete) != (window.kind == SpillKind::Delete))
        {
            written += chunk.write(db, operator)?;
        }
        for row in window.sorted() {
            chunk.push(window, row as usize);
            if chunk.rows.len() == ROWS_AT_ONCE || chunk.payloads.len() >= BYTES_AT_ONCE {
                written += chunk.write(db, operator)?;
            }
        }
    }
    Ok(written + chunk.write(db, operator)?)
}

/// Writes rows of an operator that keeps events. Returns how many.
pub(super) fn write_entries(db: &StateDb, operator: usize, entries: &Entries) -> Result<usize> {
    if !entries.is_empty() {
        let rows = entries.iter().map(|(end, key, payload)| (PaneKey { end, key }, Write::Put(payload)));
        db.write_sorted(FamilyId(operator), rows, entries.len())?;
    }
    Ok(entries.len())
}

/// Rows with their payloads encoded, about to be written.
#[derive(Default)]
struct Chunk<'a> {
    // Window, row, and where its payload ends.
    rows: Vec<(&'a Spilled, usize, usize)>,
    payloads: Vec<u8>,
}

impl<'a> Chunk<'a> {
    fn push(&mut self, window: &'a Spilled, row: usize) {
        if window.kind != SpillKind::Delete {
            window.rows.row(row).write_payload(&mut self.payloads);
        }
        self.rows.push((window, row, self.payloads.len()));
    }

    fn write(&mut self, db: &StateDb, operator: usize) -> Result<usize> {
        let count = self.rows.len();
        if count == 0 {
            return Ok(0);
        }
        let mut start = 0;
        let entries = self.rows.iter().map(|&(window, row, end)| {
            let payload = &self.payloads[std::mem::replace(&mut start, end)..end];
            let pane = PaneKey { end: window.end(row), key: window.rows.key(row) };
            let write = match window.kind {
                SpillKind::Put => Write::Put(payload),
                SpillKind::Merge => Write::Merge(payload),
                SpillKind::Delete => Write::Delete,
            };
            (pane, write)
        });
        db.write_sorted(FamilyId(operator), entries, count)?;
        self.rows.clear();
        self.payloads.clear();
        Ok(count)
    }
}
