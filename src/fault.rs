//! Named fault points in every durable step, compiled out unless the `fault-injection` feature is on.
//!
//! A test arms points through `FLOODMARK_FAULT=name:action[:nth],…` in a child process, or one through [`arm`] in its
//! own. Actions: `kill` (SIGKILL to itself), `error` (the step fails), `delay` (200 ms).

#[cfg(not(feature = "fault-injection"))]
use std::io;

/// Every fault point of a run, so that a test can walk them all. A test checks that each is passed by a checkpoint.
pub const POINTS: &[&str] = &[
    "spill.before",
    "spill.after",
    "sink.stage.before",
    "sink.stage.after",
    "checkpoint.link.before",
    "checkpoint.link.after",
    "checkpoint.manifest.before",
    "checkpoint.manifest.after",
    "checkpoint.publish.before",
    "checkpoint.publish.after",
    "sink.publish.before",
    "sink.publish.after",
    "evict.before",
    "evict.after",
    "retain.before",
    "retain.after",
];

/// Fault points that only savepoints pass, and the restores of them.
pub const SAVEPOINT_POINTS: &[&str] = &[
    "savepoint.link.before",
    "savepoint.link.after",
    "savepoint.publish.before",
    "savepoint.publish.after",
    "savepoint.delete.before",
    "savepoint.delete.after",
    "restore.link.before",
    "restore.link.after",
    "restore.publish.before",
    "restore.publish.after",
];

/// Fault points of an upload to a repository, passed only where one is set.
pub const UPLOAD_POINTS: &[&str] =
    &["upload.file.before", "upload.file.after", "upload.manifest.before", "upload.manifest.after"];

/// Fault points that only outputs to a table pass.
pub const TABLE_POINTS: &[&str] = &["sink.publish.copied"];

/// Passes the fault point `name`: nothing in a release, the armed action in a test build.
///
/// # Errors
/// The injected error, when a test armed one here.
#[cfg(not(feature = "fault-injection"))]
#[inline(always)]
pub fn point(_name: &'static str) -> io::Result<()> {
    Ok(())
}

#[cfg(feature = "fault-injection")]
pub use armed::{arm, disarm, passed, point};

#[cfg(feature = "fault-injection")]
mod armed {
    use std::collections::BTreeMap;
    use std::io;
    use std::sync::{Mutex, OnceLock, PoisonError};

    #[derive(Debug, Default)]
    struct Faults {
        armed: Vec<(String, String, u64)>,
        passed: BTreeMap<&'static str, u64>,
    }

    fn faults() -> &'static Mutex<Faults> {
        static FAULTS: OnceLock<Mutex<Faults>> = OnceLock::new();
        FAULTS.get_or_init(|| {
            let mut faults = Faults::default();
            let orders = std::env::var("FLOODMARK_FAULT").unwrap_or_default();
            for order in orders.split(',').filter(|order| !order.is_empty()) {
                let mut parts = order.split(':');
                let name = parts.next().unwrap_or_default().to_owned();
                let action = parts.next().unwrap_or("kill").to_owned();
                let nth = parts.next().and_then(|nth| nth.parse().ok()).unwrap_or(1);
                faults.armed.push((name, action, nth));
            }
            Mutex::new(faults)
        })
    }

    /// Arms one point of this process: the `nth` time it is passed, `action` happens.
    pub fn arm(name: &str, action: &str, nth: u64) {
        let mut faults = faults().lock().unwrap_or_else(PoisonError::into_inner);
        faults.armed = vec![(name.to_owned(), action.to_owned(), nth)];
        faults.passed.clear();
    }

    /// Disarms whatever is armed.
    pub fn disarm() {
        faults().lock().unwrap_or_else(PoisonError::into_inner).armed.clear();
    }

    /// How often each point was passed since the start, or since the last [`arm`].
    pub fn passed() -> BTreeMap<&'static str, u64> {
        faults().lock().unwrap_or_else(PoisonError::into_inner).passed.clone()
    }

    /// Passes the fault point `name`.
    ///
    /// # Errors
    /// The injected error, when one is armed here.
    pub fn point(name: &'static str) -> io::Result<()> {
        let action = {
            let mut faults = faults().lock().unwrap_or_else(PoisonError::into_inner);
            let count = faults.passed.entry(name).or_default();
            *count += 1;
            let count = *count;
            match faults.armed.iter().find(|(armed, _, nth)| armed == name && *nth == count) {
                Some((_, action, _)) => action.clone(),
                None => return Ok(()),
            }
        };
        match action.as_str() {
            "error" => Err(io::Error::other(format!("injected fault at {name}"))),
            "delay" => {
                std::thread::sleep(std::time::Duration::from_millis(200));
                Ok(())
            }
            _ => {
                let _ =
                    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
                std::process::abort()
            }
        }
    }
}
