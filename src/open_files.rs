//! The limit of open files: raised as far as it goes, divided among those who keep files open, named when it is met.
//!
//! Knows the process's limit, not what the files are.

use std::error::Error as _;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::Error;

/// Raises the soft limit to the hard one, which every process may. Commands do it first; a program that embeds the
/// library decides for itself.
pub fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some() && current != maximum {
        // Kernels may know a lower bound than they say; then the limit stays what it was.
        if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
            tracing::debug!(%error, "the limit of open files stays what it is");
        }
    }
}

/// How many files the process may have open; `None` without a limit.
#[must_use]
pub fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// The share of somebody who would like `most` files open, and gets no more than one `part`th of the limit. Never
/// less than one.
pub(crate) fn share(most: u32, part: u64) -> u32 {
    share_of(limit(), most, part)
}

fn share_of(limit: Option<u64>, most: u32, part: u64) -> u32 {
    let share = limit.map_or(u64::MAX, |limit| limit / part.max(1));
    u32::try_from(share).unwrap_or(u32::MAX).min(most).max(1)
}

/// What to do about `error` when it came of the limit; `None` for any other.
#[must_use]
pub fn remedy(error: &Error) -> Option<String> {
    let mut cause = error.source();
    let mut met = says(&error.to_string());
    while let Some(error) = cause.filter(|_| !met) {
        let io = error.downcast_ref::<std::io::Error>();
        met = io.and_then(std::io::Error::raw_os_error) == Some(Errno::MFILE.raw_os_error())
            || says(&error.to_string());
        cause = error.source();
    }
    if !met {
        return None;
    }
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let shown = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
    Some(format!(
        "allow more open files: this process may have {} (hard limit {}); raise it with `ulimit -n 4096` in the shell \
         that starts it, or LimitNOFILE= in its systemd unit",
        shown(current),
        shown(maximum)
    ))
}

/// RocksDB hands the system's words on without its number.
fn says(message: &str) -> bool {
    message.contains("Too many open files")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_share_is_part_of_the_limit_and_no_more_than_was_asked_for() {
        assert_eq!(share_of(None, 512, 2), 512);
        assert_eq!(share_of(Some(1 << 20), 512, 2), 512);
        assert_eq!(share_of(Some(256), 512, 2), 128);
        assert_eq!(share_of(Some(3), 512, 8), 1);
    }

    #[test]
    fn the_limit_is_named_for_its_errors_only() {
        let plain = Error::new(ErrorKind::Unavailable, "cannot open the input");
        assert_eq!(remedy(&plain), None);
        let other = Error::new(ErrorKind::Unavailable, "x").with_source(std::io::Error::other("y"));
        assert_eq!(remedy(&other), None);
        let number = std::io::Error::from_raw_os_error(Errno::MFILE.raw_os_error());
        let words = Error::new(ErrorKind::Unavailable, "IO error: While open a file: Too many open files");
        for error in [plain.with_source(number), words] {
            let remedy = remedy(&error).unwrap();
            assert!(remedy.contains("ulimit -n") && remedy.contains("hard limit"), "{remedy}");
        }
    }
}
