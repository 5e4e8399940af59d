//! How a running pipeline stands: the snapshot that its task publishes, the watch over it, and the server that shows both.
//!
//! The tour: `monitor` sits in the task and makes a [`Snapshot`] a few times a second; `lookout` looks at each and raises
//! warnings; `board` is where the newest one lies; `history` keeps samples. `server` answers from the board alone, so
//! that nobody who looks slows the task down; only the panes of single keys are asked of the task, which answers between
//! two blocks (`panes`). `metrics`, `why` and `page` are pure: from a snapshot to text.

mod board;
mod history;
mod lookout;
pub mod metrics;
mod monitor;
pub mod page;
mod panes;
#[cfg(feature = "status")]
mod server;
mod snapshot;
#[cfg(test)]
mod tests;
pub mod why;
mod words;

use std::sync::Arc;
use std::sync::mpsc::Receiver;

pub use board::Board;
pub use history::{HistoryReport, OperatorHistory, PartitionHistory, Resolution};
pub use lookout::{Warning, WarningKind, Warnings};
pub(super) use monitor::{Facts, Monitor};
pub use panes::{KeyPanes, PaneStatus, PanesRequest};
pub use snapshot::{
    CheckpointFigures, CheckpointStatus, HolderStatus, InputCounts, InputStatus, JumpStatus, Moment,
    OperatorKind, OperatorStatus, OutputStatus, PARTITIONS_MAX, PartitionState, PartitionStatus, Phase,
    QueueStatus, RunStatus, Snapshot, SourceStatus, StateStatus, WatermarkStatus,
};

use super::config::PipelineConfig;
use crate::clock::Clock;
use crate::error::Result;

/// Questions to the task that may wait. With more the server says that it is busy.
#[cfg(feature = "status")]
const QUESTIONS_MAX: usize = 8;

/// The status page of a run, for as long as this lives.
#[cfg_attr(not(feature = "status"), expect(dead_code, reason = "this build has no server to open one"))]
pub(super) struct Page {
    board: Arc<Board>,
    // Until the task has taken it.
    requests: Option<Receiver<PanesRequest>>,
    #[cfg(feature = "status")]
    _server: server::Server,
}

impl Page {
    /// Starts to listen, where the pipeline file or the command asks for it: before anything that takes long, so that it
    /// can be seen.
    ///
    /// # Errors
    /// [`crate::error::ErrorKind::Unavailable`] when the address is taken, or is not one of this machine.
    #[cfg(feature = "status")]
    pub(super) fn open(config: &PipelineConfig, clock: &Arc<dyn Clock>) -> Result<Option<Self>> {
        let Some(status) = config.status else { return Ok(None) };
        let starting = Snapshot::starting(&config.name, clock.wall_millis());
        let board = Arc::new(Board::new(starting));
        let (questions, requests) = std::sync::mpsc::sync_channel(QUESTIONS_MAX);
        let shown = server::Shown {
            board: Arc::clone(&board),
            config: Arc::new(config.clone()),
            clock: Arc::clone(clock),
            questions,
            keys: status.keys,
        };
        let server = server::Server::start(status.address, shown)?;
        tracing::info!("status page at http://{}/", server.address());
        if !status.address.ip().is_loopback() {
            tracing::warn!(
                address = %server.address(),
                "the status page can be read by whoever reaches this address; it asks for no password"
            );
        }
        Ok(Some(Self { board, requests: Some(requests), _server: server }))
    }

    /// Refuses: this build has no server.
    #[cfg(not(feature = "status"))]
    pub(super) fn open(config: &PipelineConfig, _: &Arc<dyn Clock>) -> Result<Option<Self>> {
        match config.status {
            None => Ok(None),
            Some(_) => Err(crate::error::Error::new(
                crate::error::ErrorKind::Invalid,
                "this build has no status page: it was made without the feature `status`",
            )
            .with_remedy("take [status] or --status out, or build with the default features")),
        }
    }

    /// What the task needs of it; once.
    pub(super) fn seat(&mut self) -> Option<(Arc<Board>, Receiver<PanesRequest>)> {
        Some((Arc::clone(&self.board), self.requests.take()?))
    }
}
