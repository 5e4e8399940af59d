//! A repository that goes wrong by a seed: late, twice, refused, done without saying so, cut short, listed too early.
//!
//! For tests. What it does to a call depends on the seed and on how many calls came before.

use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::error::RepositoryError;
use super::{Listing, Repository, Tag};

/// How often what goes wrong, in calls of a thousand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The store answers 503 and does nothing.
    pub refused: u64,
    /// The call takes effect, and the answer is lost.
    pub reply_lost: u64,
    /// A write takes effect twice; the answer is the second one's.
    pub twice: u64,
    /// A read ends early.
    pub cut_short: u64,
    /// A listing leaves out the newest objects.
    pub stale: u64,
    /// The call takes a millisecond longer.
    pub late: u64,
    /// From this call on everything is refused.
    pub dead_after: Option<u64>,
}

impl Faults {
    /// Everything, each now and then.
    pub const SOME: Self = Self {
        refused: 60,
        reply_lost: 60,
        twice: 60,
        cut_short: 60,
        stale: 100,
        late: 20,
        dead_after: None,
    };
}

/// A repository behind a bad network.
#[derive(Debug)]
pub struct FaultyRepository {
    inner: Arc<dyn Repository>,
    faults: Mutex<Faults>,
    random: AtomicU64,
    calls: AtomicU64,
}

impl FaultyRepository {
    /// `inner`, with `faults` drawn from `seed`.
    #[must_use]
    pub fn new(inner: Arc<dyn Repository>, faults: Faults, seed: u64) -> Self {
        Self { inner, faults: Mutex::new(faults), random: AtomicU64::new(seed), calls: AtomicU64::new(0) }
    }

    /// Other faults from now on.
    pub fn set_faults(&self, faults: Faults) {
        *self.faults.lock().unwrap_or_else(PoisonError::into_inner) = faults;
    }

    /// Calls so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    fn faults(&self) -> Faults {
        *self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn draw(&self) -> u64 {
        let state = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn hits(&self, share: u64) -> bool {
        self.draw() % 1_000 < share
    }

    fn around<T>(
        &self,
        step: &'static str,
        name: &str,
        writes: bool,
        call: impl Fn() -> Result<T, RepositoryError>,
    ) -> Result<T, RepositoryError> {
        let faults = self.faults();
        let number = self.calls.fetch_add(1, Ordering::SeqCst);
        let unavailable = |reason: &str| RepositoryError::Unavailable {
            step,
            name: name.to_owned(),
            reason: reason.to_owned(),
        };
        if self.hits(faults.late) {
            std::thread::sleep(Duration::from_millis(1));
        }
        if faults.dead_after.is_some_and(|last| number >= last) || self.hits(faults.refused) {
            return Err(unavailable("503 slow down"));
        }
        if writes && self.hits(faults.twice) {
            let _ = call();
        }
        let answer = call();
        if answer.is_ok() && self.hits(faults.reply_lost) {
            return Err(unavailable("connection reset"));
        }
        answer
    }
}

impl Repository for FaultyRepository {
    fn place(&self) -> String {
        self.inner.place()
    }

    fn put_new(&self, name: &str, bytes: &[u8]) -> Result<Tag, RepositoryError> {
        self.around("write", name, true, || self.inner.put_new(name, bytes))
    }

    fn put_if(&self, name: &str, bytes: &[u8], current: &Tag) -> Result<Tag, RepositoryError> {
        self.around("write", name, true, || self.inner.put_if(name, bytes, current))
    }

    fn put_file(&self, name: &str, stream: &mut dyn Read, bytes: u64) -> Result<(), RepositoryError> {
        let mut contents = Vec::new();
        let read = stream.read_to_end(&mut contents);
        read.map_err(RepositoryError::local("read a file", std::path::Path::new(name)))?;
        self.around("write", name, true, || self.inner.put_file(name, &mut contents.as_slice(), bytes))
    }

    fn get(&self, name: &str, bytes_max: u64) -> Result<(Vec<u8>, Tag), RepositoryError> {
        let (mut bytes, tag) = self.around("read", name, false, || self.inner.get(name, bytes_max))?;
        if self.hits(self.faults().cut_short) {
            bytes.truncate(bytes.len() / 2);
        }
        Ok((bytes, tag))
    }

    fn get_range(&self, name: &str, from: u64, bytes: u64) -> Result<Vec<u8>, RepositoryError> {
        let mut read = self.around("read", name, false, || self.inner.get_range(name, from, bytes))?;
        if self.hits(self.faults().cut_short) {
            read.truncate(read.len() / 2);
        }
        Ok(read)
    }

    fn list(&self, prefix: &str, objects_max: usize) -> Result<Listing, RepositoryError> {
        let mut listing = self.around("list", prefix, false, || self.inner.list(prefix, objects_max))?;
        if self.hits(self.faults().stale) {
            listing.objects.pop();
        }
        Ok(listing)
    }

    fn delete(&self, name: &str) -> Result<(), RepositoryError> {
        self.around("delete", name, true, || self.inner.delete(name))
    }
}
