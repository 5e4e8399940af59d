//! A few calls at once, on threads that end with them: latency of a far store is waited for side by side.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::error::RepositoryError;

/// Calls at once. Each holds at most one part of a file in memory.
pub(super) const CALLS_MAX: usize = 4;

/// Does `work` for every item, at most [`CALLS_MAX`] at once; results in the order of the items. After the first error
/// no further item is begun.
pub(super) fn for_each<I: Sync, T: Send>(
    items: &[I],
    work: impl Fn(&I) -> Result<T, RepositoryError> + Sync,
) -> Result<Vec<T>, RepositoryError> {
    let workers = CALLS_MAX.min(items.len());
    if workers <= 1 {
        return items.iter().map(work).collect();
    }
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let done = Mutex::new(Vec::with_capacity(items.len()));
    let error = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            let worker = || {
                while !failed.load(Ordering::Acquire) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else { return };
                    match work(item) {
                        Ok(result) => {
                            done.lock().unwrap_or_else(PoisonError::into_inner).push((index, result));
                        }
                        Err(found) => {
                            failed.store(true, Ordering::Release);
                            error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(found);
                        }
                    }
                }
            };
            let started =
                std::thread::Builder::new().name("floodmark-transfer".to_owned()).spawn_scoped(scope, worker);
            if started.is_err() {
                failed.store(true, Ordering::Release);
                *error.lock().unwrap_or_else(PoisonError::into_inner) = Some(RepositoryError::Thread);
            }
        }
    });
    if let Some(error) = error.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let items: Vec<u32> = (0..100).collect();
        assert_eq!(
            for_each(&items, |item| Ok(item * 2)).unwrap(),
            items.iter().map(|i| i * 2).collect::<Vec<_>>()
        );
    }

    #[test]
    fn an_error_ends_the_work() {
        let items: Vec<u32> = (0..1_000).collect();
        let begun = AtomicUsize::new(0);
        let result: Result<Vec<()>, _> = for_each(&items, |_| {
            begun.fetch_add(1, Ordering::Relaxed);
            Err(RepositoryError::Stopped)
        });
        assert!(matches!(result, Err(RepositoryError::Stopped)));
        assert!(begun.into_inner() <= CALLS_MAX);
    }
}
