//! Read-only reports on stored state, as plain data: what checkpoints there are, what one says, which panes it
//! holds, and whether it is whole.
//!
//! Takes no lock and writes nothing, so it works beside a running task and on a checkpoint that was copied anywhere.
//! It reads published checkpoints only, never a working directory, and needs no pipeline file: the manifest says how
//! the panes are laid out. How a report looks to people is for the command.
//!
//! The tour: [`list()`], [`show()`], [`windows()`], [`key_panes()`], [`lateness()`] and [`verify()`] each make one report; `choice`
//! finds the checkpoint that is asked for, `shape` opens its database, `key` and `text` say how keys, values and
//! times are written.

mod choice;
mod key;
mod lateness;
mod list;
mod panes;
mod resume;
mod shape;
mod show;
mod text;
mod top;
mod verify;
mod windows;

pub(crate) use choice::manifest_of;
pub use key::{Key, parse_base64};
pub use lateness::{LatenessReport, SourceLateness, StoredLateness, lateness};
pub use list::{ListedCheckpoint, list};
pub use panes::{KeyPane, KeyReport, OperatorPanes, key_panes};
pub(crate) use resume::{Resumed, Wanted, resume};
pub use show::{
    CheckpointDetails, FileDetails, OperatorDetails, PartitionDetails, SourceDetails, StagedDetails, show,
};
pub use text::Aggregates;
pub(crate) use text::{as_optional_text, as_text};
pub use verify::{Found, OperatorRows, VerifiedCheckpoint, Which, verify};
pub use windows::{
    OperatorEvents, OperatorWindows, Origin, TopKey, WindowRow, WindowStatus, WindowTotals, WindowsReport,
    windows,
};
