//! Read-only reports on stored state, as plain data: what checkpoints there are, what one says, which panes it
//! holds, and whether it is whole.
//!
//! Takes no lock and writes nothing, so it works beside a running task and on a checkpoint that was copied anywhere.
//! It reads published checkpoints only, never a working directory, and needs no pipeline file: the manifest says how
//! the panes are laid out. How a report looks to people is for the command.
//!
//! The tour: [`list()`], [`show()`], [`windows()`], [`key_panes()`], [`panes()`], [`why()`], [`stats()`], [`leaks()`],
//! [`diff()`], [`growth()`], [`lateness()`], [`verify()`] and [`fsck()`] each make one report, and [`stream()`] hands panes on one by one;
//! `choice` finds the checkpoint that is asked for, `shape` opens its database, `scan` goes through its panes, `status` and
//! `holding` judge windows and the watermark, `key`, `text` and `words` say how all of it is written.

mod choice;
mod diff;
mod fsck;
mod growth;
mod holding;
mod key;
mod lateness;
mod leaks;
mod list;
mod listing;
mod panes;
mod resume;
mod scan;
mod shape;
mod show;
mod stats;
mod status;
mod stream;
mod text;
mod top;
mod verify;
mod why;
mod windows;
mod words;

pub(crate) use choice::manifest_of;
pub use diff::{
    CounterMoved, DiffOptions, DiffReport, FilesMoved, OperatorDiff, PaneCounts, PartitionMoved,
    WatermarkMoved, WindowDiff, diff,
};
pub use fsck::{CheckedCheckpoint, Finding, FsckReport, Severity, fsck};
pub use growth::{GrowthPoint, GrowthReport, OperatorGrowth, growth};
pub use holding::{Holding, HoldingPartition};
pub use key::{Key, parse_base64};
pub use lateness::{LatenessReport, SourceLateness, StoredLateness, lateness};
pub use leaks::{FileLeaks, LeakReason, LeakReport, LeakTotals, OperatorLeaks, leaks};
pub use list::{ListedCheckpoint, list};
pub use listing::{ListedPane, OperatorListing, PaneTotals, PanesReport, StatusTotals, panes};
pub use panes::{KeyPane, KeyReport, OperatorPanes, key_panes};
pub(crate) use resume::{Resumed, Wanted, resume};
pub use scan::{PaneFilter, Scanned, Watcher};
pub use show::{
    CheckpointDetails, FileDetails, OperatorDetails, PartitionDetails, SourceDetails, StagedDetails, show,
};
pub use stats::{
    OperatorStats, PaneStats, PrefixStats, SessionStats, StatsOptions, StatsReport, Timer, Timers,
    WindowStats, stats,
};
pub use status::WindowStatus;
pub use stream::{PaneVisitor, StreamedOperator, stream};
pub use text::Aggregates;
pub(crate) use text::{as_optional_text, as_text};
pub use verify::{Found, OperatorRows, VerifiedCheckpoint, Which, verify};
pub use why::{Presence, Why, WhyOptions, why};
pub use windows::{
    OperatorEvents, OperatorWindows, Origin, TopKey, WindowRow, WindowTotals, WindowsReport, windows,
};
