//! The laws that an output must keep, tried on any implementation. For tests of outputs, built in or not.
//!
//! It knows the contract, and of an output only what a [`Trial`] tells.

mod histories;
mod single;
#[cfg(test)]
mod tests;

use std::ops::Range;

use super::contract::{Delivery, Opened, Output, Publish, PublishPermit, Restored, Sink, SinkContext};
use crate::checkpoint::StagedOutput;
use crate::error::Result;

/// A fresh place for one trial: an empty directory, a table that does not exist yet.
///
/// Rows are numbers. What they look like, and where they are read back, is the trial's business.
pub trait Trial {
    /// The output that is tried.
    type Output: Output;

    /// The output on this place. Asked for anew for every run.
    fn output(&self) -> Self::Output;

    /// Writes one row per number, in this order.
    ///
    /// # Errors
    /// As the sink.
    fn write(&self, sink: &mut <Self::Output as Output>::Sink, numbers: Range<u32>) -> Result<()>;

    /// The numbers of all rows that a reader sees now, in the order in which the reader gets them. An output without
    /// order returns them sorted.
    ///
    /// # Errors
    /// When they cannot be read.
    fn visible(&self) -> Result<Vec<u32>>;
}

/// Tries every law of [`Output`]: one by one, and then in histories that are cut after each of their calls, restored,
/// cut once more, and finished, against a model that keeps its rows in a list.
///
/// `fresh` makes a place that no trial has used.
///
/// # Errors
/// Which law is broken, and what was seen.
pub fn check<T: Trial>(fresh: impl Fn() -> T) -> Result<(), String> {
    let fresh: &dyn Fn() -> T = &fresh;
    single::invisible_until_published(&fresh())?;
    single::idempotent(&fresh())?;
    single::durable(&fresh())?;
    single::forgotten(&fresh())?;
    single::permitted(&fresh())?;
    single::fenced(&fresh())?;
    single::ahead(&fresh())?;
    single::owned(&fresh())?;
    single::ordered(&fresh(), &fresh())?;
    single::checked(fresh)?;
    histories::cut_anywhere(fresh)
}

/// A permit of the trial's own.
struct Durable(u64);

impl PublishPermit for Durable {
    fn epoch(&self) -> u64 {
        self.0
    }
}

/// One run on a place. Dropped, it is a process that was killed between two calls.
struct Run<'t, T: Trial> {
    trial: &'t T,
    sink: <T::Output as Output>::Sink,
    publisher: Box<dyn Publish>,
}

/// The lineage of all trials but those of other owners.
const LINEAGE: [u8; 16] = [7; 16];

impl<'t, T: Trial> Run<'t, T> {
    fn open(trial: &'t T, generation: u64, restored: Restored<'_>) -> Result<Self> {
        let context = SinkContext { lineage: LINEAGE, generation };
        let Opened { sink, publisher, .. } = trial.output().open(context, restored)?;
        Ok(Self { trial, sink, publisher })
    }

    /// The first run on a place.
    fn first(law: &'static str, trial: &'t T) -> Result<Self, String> {
        must(law, "the first open", Self::open(trial, 1, Restored::NOTHING))
    }

    fn write(&mut self, law: &'static str, numbers: Range<u32>) -> Result<(), String> {
        must(law, "write", self.trial.write(&mut self.sink, numbers))
    }

    /// Stages rows that are there.
    fn stage(&mut self, law: &'static str, epoch: u64) -> Result<StagedOutput, String> {
        let staged = must(law, "stage", self.sink.stage(epoch))?;
        let staged =
            staged.ok_or_else(|| format!("{law}: stage had rows and gave no handle: epoch={epoch}"))?;
        if staged.sink != self.sink.name() || self.publisher.sink() != self.sink.name() {
            return Err(format!(
                "{law}: handle, sink and publisher have different names: handle={}",
                staged.sink
            ));
        }
        if staged.handle.len() > super::HANDLE_BYTES_MAX {
            return Err(format!("{law}: the handle is too large: bytes={}", staged.handle.len()));
        }
        Ok(staged)
    }

    fn publish(&mut self, law: &'static str, staged: &StagedOutput, permit: u64) -> Result<(), String> {
        match must(law, "publish", self.publisher.publish(staged, &Durable(permit)))? {
            Delivery::Done => Ok(()),
            Delivery::Later(reason) => Err(format!("{law}: the place was out of reach in a trial: {reason}")),
        }
    }
}

/// What has to work.
fn must<R>(law: &'static str, call: &str, result: Result<R>) -> Result<R, String> {
    result.map_err(|error| format!("{law}: {call} failed: {error:?}"))
}

/// What has to be refused.
fn must_not<R>(law: &'static str, what: &str, result: Result<R>) -> Result<(), String> {
    match result {
        Err(_) => Ok(()),
        Ok(_) => Err(format!("{law}: {what} was not refused")),
    }
}

/// What has to be visible now.
fn sees<T: Trial>(law: &'static str, trial: &T, when: &str, expected: Range<u32>) -> Result<(), String> {
    let found = must(law, "reading the rows back", trial.visible())?;
    if found.iter().copied().eq(expected.clone()) {
        return Ok(());
    }
    Err(format!("{law}: wrong rows are visible {when}: found={found:?} expected={expected:?}"))
}

fn restored(staged: &[StagedOutput], last_epoch: u64) -> Restored<'_> {
    Restored { staged, last_epoch, newest_epoch: last_epoch, ..Restored::NOTHING }
}
