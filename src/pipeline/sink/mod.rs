//! Exactly-once file output: rows are staged per epoch, and become visible once their checkpoint is durable.
//!
//! A tour. An output is a directory; each epoch that has rows adds one part, and the parts read in order of name are
//! all results in order. [`ResultSink`], [`JoinSink`], [`LateSink`] and [`DeadLetterSink`] write rows on the pipeline's thread and
//! hand out a [`StagedFile`] per epoch, which goes into the checkpoint's manifest. A [`Publisher`] (`publisher`) on
//! the checkpoint's thread turns staged files into parts. Opening a sink recovers its directory first, so that no row
//! can be written before the restored checkpoint's output is in place. `writer` and `publisher` move bytes through
//! `durable`; `row` knows how rows look; neither knows windows, state or checkpoints. `docs/OUTPUT.md` has the rules.

pub(super) mod durable;
mod error;
mod joined;
mod lines;
mod names;
mod publisher;
mod records;
mod results;
mod row;
mod staged;
#[cfg(test)]
mod tests;
mod writer;

use crate::error::Result;

pub use joined::{JoinSink, JoinSinkSpec};
pub(super) use lines::{ResultLines, append_json_text, value_text};
pub(super) use names::{part, part_epoch};
pub(super) use publisher::newest_published_in;
pub(crate) use publisher::peek;
pub use publisher::{AheadPolicy, Publisher, RecoverReport, Restored};
pub(crate) use records::records_look;
pub use records::{DeadLetter, DeadLetterSink, LateSink, RecordSpec, RecordText};
pub use results::{Format, ResultSink, ResultSpec};
pub use row::{KeyField, KeyKind, TimeFormat};
pub use staged::{SinkContext, StagedFile};

/// The writing half of an output, as a checkpoint sees it.
pub trait Sink: Send {
    /// The output's name, as it stands in its handles.
    fn name(&self) -> &str;

    /// Makes every row written so far durable but not yet visible, as the output of `epoch`; rows written afterwards
    /// belong to the next epoch. `None` when there are no rows.
    ///
    /// When the checkpoint fails after this, carry the handle on into the next manifest: each part keeps its epoch.
    ///
    /// # Errors
    /// When the disk is in the way. The sink then refuses work: restart from the last checkpoint, which sweeps
    /// what was staged.
    fn stage(&mut self, epoch: u64) -> Result<Option<StagedFile>>;
}

/// Proof that a checkpoint is durable, without which nothing is published.
///
/// Implemented by the checkpoint layer for a published checkpoint and for a verified, restored one.
pub trait PublishPermit {
    /// The epoch of the durable checkpoint; it permits handles of this epoch and earlier ones.
    fn epoch(&self) -> u64;
}

/// An output after recovery: the half that writes, the half that publishes, and what recovery found.
#[derive(Debug)]
pub struct Opened<S> {
    /// Takes rows and stages them; stays on the pipeline's thread.
    pub sink: S,
    /// Publishes staged files; may live on another thread.
    pub publisher: Publisher,
    /// What was published, swept and set aside.
    pub report: RecoverReport,
}

impl<S> Opened<S> {
    /// The same output with its writing half turned into another type.
    fn map<T>(self, into: impl FnOnce(S) -> T) -> Opened<T> {
        Opened { sink: into(self.sink), publisher: self.publisher, report: self.report }
    }
}
