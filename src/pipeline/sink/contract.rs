//! The contract between checkpoints and outputs: what an output must do, in which order, and what it may rely on.
//!
//! Types and laws only; [`super::laws`] tries the laws on any implementation.

use std::fmt::Debug;

use crate::checkpoint::StagedOutput;
use crate::error::{Error, Result};
use crate::operator::{JoinedRow, ResultBlock};

/// No handle is larger: all of them stand in every manifest until they are published.
pub const HANDLE_BYTES_MAX: usize = 64 * 1024;

/// Which run writes an output: the checkpoint lineage, and its generation, which grows with each opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkContext {
    /// Identity of the state directory's line of checkpoints.
    pub lineage: [u8; 16],
    /// Number of this run within the lineage.
    pub generation: u64,
}

/// A place for rows, before it is opened: a directory, a table.
///
/// An output is exactly once when it keeps these laws, each of which [`super::laws::check`] tries:
///
/// 1. *Invisible*: no row is visible before its handle is published, staged or not.
/// 2. *Published*: publishing a handle makes the rows of its epoch visible, all of them, each once, in order.
/// 3. *Idempotent*: publishing a handle again changes nothing, in this run or a later one.
/// 4. *Durable*: once `stage` has returned, the rows survive the process; `open` publishes every restored handle of
///    its sink, in order of epoch, before it returns, and so before any new row.
/// 5. *Forgotten*: rows that were not staged, and rows staged under a handle that was not restored, are never visible.
/// 6. *Permitted*: without a permit for its epoch or a later one nothing becomes visible.
/// 7. *Fenced*: after a run of a higher generation has opened the output, an older one publishes nothing more and
///    cannot open it. (Refusing the newer one while the older lives is as good.)
/// 8. *Ahead*: an output that has published an epoch after the restored one refuses to open.
/// 9. *Owned*: an output with rows of another lineage refuses to open.
/// 10. *Ordered*: epochs are staged once each, ascending; an epoch without rows has no handle.
/// 11. *Checked*: a handle whose bytes were damaged is refused, without a panic, and nothing becomes visible.
pub trait Output {
    /// The half that takes rows.
    type Sink: Sink;

    /// Recovers the output after a start, takes hold of it for this run, and publishes what the restored checkpoint
    /// had staged.
    ///
    /// # Errors
    /// When the place is out of reach, belongs to someone else, has another form, or is ahead of the restored
    /// checkpoint.
    fn open(self, context: SinkContext, restored: Restored<'_>) -> Result<Opened<Self::Sink>>;

    /// Whether [`Output::open`] would take the output, by what is there now: the parts that it would move aside, or why
    /// it would refuse. Nothing is changed and nothing is locked. An output that cannot tell says nothing.
    ///
    /// # Errors
    /// As [`Output::open`].
    fn preflight(&self, context: SinkContext, restored: Restored<'_>) -> Result<Vec<String>> {
        let _ = (context, restored);
        Ok(Vec::new())
    }
}

/// The writing half of an output, as a checkpoint sees it. It lives on the pipeline's thread.
pub trait Sink: Send + Debug {
    /// The output's name, as it stands in its handles; unique in a pipeline.
    fn name(&self) -> &str;

    /// Makes every row written so far durable but not yet visible, as the output of `epoch`; rows written afterwards
    /// belong to the next epoch. `None` when there are no rows.
    ///
    /// When the checkpoint fails after this, carry the handle on into the next manifest: each part keeps its epoch.
    /// The handle has at most [`HANDLE_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// When the disk is in the way. The sink then refuses work: restart from the last checkpoint, which forgets
    /// what was staged.
    fn stage(&mut self, epoch: u64) -> Result<Option<StagedOutput>>;
}

/// A sink of a window's results.
pub trait WriteResults: Sink {
    /// Writes all rows of a block.
    ///
    /// # Errors
    /// When the disk is in the way; the sink then refuses work.
    fn write(&mut self, block: &mut dyn ResultBlock) -> Result<()>;
}

/// A sink of a join's rows.
pub trait WriteJoined: Sink {
    /// Writes one row.
    ///
    /// # Errors
    /// When the disk is in the way; the sink then refuses work.
    fn write(&mut self, row: &JoinedRow<'_>) -> Result<()>;
}

/// The publishing half of an output. It lives on the thread that makes checkpoints.
pub trait Publish: Send + Debug {
    /// Name of the output.
    fn sink(&self) -> &str;

    /// Makes staged rows visible. Doing it again is fine and does nothing.
    ///
    /// Publish the handles of a manifest in order of epoch, after that manifest is durable. One that has to wait is
    /// carried into the next manifest, and the later ones of its sink wait behind it.
    ///
    /// # Errors
    /// When what was staged is damaged or missing, when a newer run owns the output, when the permit is of an earlier
    /// epoch, or when the place refuses for good.
    fn publish(&mut self, staged: &StagedOutput, permit: &dyn PublishPermit) -> Result<Delivery>;
}

/// What became of a handle that was to be published.
#[derive(Debug)]
pub enum Delivery {
    /// Its rows are visible.
    Done,
    /// The place is out of reach for now, for this reason. Nothing is lost: publish it later.
    Later(Error),
}

/// Proof that a checkpoint is durable, without which nothing is published.
///
/// Implemented by the checkpoint layer for a published checkpoint and for a verified, restored one.
pub trait PublishPermit {
    /// The epoch of the durable checkpoint; it permits handles of this epoch and earlier ones.
    fn epoch(&self) -> u64;
}

/// What to do with parts that the restored checkpoint does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AheadPolicy {
    /// Refuse, and say which.
    #[default]
    Refuse,
    /// Move them to a hidden folder of the output directory. Readers that took them will see those results again.
    /// An output that cannot move its rows refuses all the same.
    SetAside,
}

/// What the restored checkpoint says about the outputs; [`Restored::NOTHING`] for a new state.
#[derive(Clone, Copy, Debug)]
pub struct Restored<'a> {
    /// Everything staged that its manifest names; that of other sinks is passed over.
    pub staged: &'a [StagedOutput],
    /// Its epoch, 0 when there is no checkpoint yet.
    pub last_epoch: u64,
    /// The newest epoch that any checkpoint of the lineage had, also of those that the restore passed over.
    pub newest_epoch: u64,
    /// What happens to parts of later epochs.
    pub ahead: AheadPolicy,
}

impl Restored<'_> {
    /// A start without a checkpoint.
    pub const NOTHING: Self =
        Self { staged: &[], last_epoch: 0, newest_epoch: 0, ahead: AheadPolicy::Refuse };
}

/// What recovery did, by name of file, or by epoch where there are no files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoverReport {
    /// Parts that the crash had kept from being published, and now are.
    pub published: Vec<String>,
    /// Staged files of failed epochs that were removed; their rows will be written again.
    pub swept: Vec<String>,
    /// Parts moved to the hidden folder.
    pub set_aside: Vec<String>,
    /// Rows that the checkpoint had staged and that are gone, where the run was told to go on without them.
    pub rows_given_up: u64,
    /// Staging files of other lineages, left alone.
    pub foreign: Vec<String>,
    /// The newest epoch of this lineage that the output has known, set aside or not.
    pub newest_epoch: u64,
}

/// An output after recovery: the half that writes, the half that publishes, and what recovery found.
#[derive(Debug)]
pub struct Opened<S> {
    /// Takes rows and stages them; stays on the pipeline's thread.
    pub sink: S,
    /// Publishes what was staged; may live on another thread.
    pub publisher: Box<dyn Publish>,
    /// What was published, swept and set aside.
    pub report: RecoverReport,
}

impl<S> Opened<S> {
    /// The same output with its writing half turned into another type.
    pub fn map<T>(self, into: impl FnOnce(S) -> T) -> Opened<T> {
        Opened { sink: into(self.sink), publisher: self.publisher, report: self.report }
    }
}

impl<S: Sink + ?Sized> Sink for Box<S> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn stage(&mut self, epoch: u64) -> Result<Option<StagedOutput>> {
        (**self).stage(epoch)
    }
}
