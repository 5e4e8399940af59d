//! Threads that share the work on one batch: each has the panes of some of the keys.
//!
//! Which worker a key belongs to depends on its hash and on nothing else, and each takes its events in the order of
//! arrival. So what comes out is the same for any number of workers.

use std::fmt;

use rayon_core::{ThreadPool, ThreadPoolBuilder};

/// A fixed number of threads, the calling one included.
pub struct Workers {
    // The others.
    pool: Option<ThreadPool>,
    count: usize,
}

impl Workers {
    /// No more of them; rows are numbered in 32 bits, which they share.
    pub const MAX: usize = 16;

    /// The calling thread alone.
    #[must_use]
    pub const fn one() -> Self {
        Self { pool: None, count: 1 }
    }

    /// So many threads, at least one and at most [`Workers::MAX`].
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn start(count: usize) -> std::io::Result<Self> {
        let count = count.clamp(1, Self::MAX);
        if count == 1 {
            return Ok(Self::one());
        }
        let pool = ThreadPoolBuilder::new()
            .num_threads(count - 1)
            .thread_name(|index| format!("floodmark-worker-{}", index + 1))
            .build()
            .map_err(std::io::Error::other)?;
        Ok(Self { pool: Some(pool), count })
    }

    /// How many there are.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Does `work` on each of `parts`, side by side, and returns when all is done.
    pub(crate) fn each<T: Send>(&self, parts: &mut [T], work: impl Fn(&mut T) + Sync) {
        let (Some(pool), [first, others @ ..]) = (&self.pool, &mut *parts) else {
            return parts.iter_mut().for_each(work);
        };
        let work = &work;
        pool.in_place_scope(|scope| {
            for part in others {
                scope.spawn(move |_| work(part));
            }
            work(first);
        });
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Workers").field(&self.count).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_is_worked_on_once_by_any_number_of_workers() {
        for count in [0, 1, 2, 3, 8, 99] {
            let workers = Workers::start(count).unwrap();
            assert_eq!(workers.count(), count.clamp(1, Workers::MAX));
            for parts in [0, 1, 2, 50] {
                let mut parts = vec![0; parts];
                workers.each(&mut parts, |part| *part += 1);
                assert!(parts.iter().all(|&part| part == 1));
            }
        }
    }
}
