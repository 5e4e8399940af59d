//! Exactly-once output: rows are staged per epoch, and become visible once their checkpoint is durable.
//!
//! A tour. [`Output`], [`Sink`] and [`Publish`] are the contract, whose laws stand there and are tried by [`laws`];
//! sinks of one's own keep to it and go with [`crate::store::WindowStore`]. Ours: directories of files (`results`,
//! `joined`, `records` for what found no window; text, and Parquet in `parquet`), tables of PostgreSQL (`postgres`),
//! and standard output (`console`). All of them stage files: `writer` moves bytes through `durable`, and hands out a
//! `staged` handle, which goes into the checkpoint's manifest. `publisher` turns staged files into parts of a
//! directory; `outbox` keeps those that go elsewhere; `delivery` publishes on the checkpoint's thread and carries what
//! has to wait. `ground` asks whether a directory could be used at all. `row` and `columns` know how rows look; neither knows windows, state or checkpoints. `docs/OUTPUT.md`
//! has the rules.

mod columns;
mod console;
mod contract;
mod delivery;
pub(super) mod durable;
mod error;
#[cfg(feature = "fault-injection")]
pub(crate) mod fuzzing;
mod ground;
mod joined;
pub mod laws;
mod lines;
mod names;
mod outbox;
#[cfg(feature = "parquet")]
mod parquet;
#[cfg(feature = "postgres")]
mod postgres;
mod publisher;
mod records;
mod results;
mod row;
mod staged;
mod table;
#[cfg(test)]
mod tests;
mod writer;

#[cfg(feature = "parquet")]
pub(super) use self::parquet::PlainParquet;
pub use columns::ColumnType;
pub(super) use columns::{Cells, Column, walk_values};
pub(super) use console::ConsoleSpec;
pub use contract::{
    AheadPolicy, Delivery, HANDLE_BYTES_MAX, Opened, Output, Publish, PublishPermit, RecoverReport, Restored,
    Sink, SinkContext, WriteJoined, WriteResults,
};
pub(super) use delivery::{Deliveries, DeliveryFigures};
pub(super) use ground::{refuse_held, refuse_unusable};
pub use joined::{JoinSink, JoinSinkSpec};
pub(super) use lines::{ResultLines, append_json_text, value_text};
pub(super) use names::{STAGING, part, part_epoch};
pub(super) use publisher::newest_published_in;
pub(crate) use publisher::peek;
pub use records::{DeadLetter, DeadLetterSink, LateSink, RecordSpec, RecordText};
pub use results::{Format, ResultSink, ResultSpec};
pub use row::{KeyField, KeyKind, TimeFormat};
pub(super) use row::{append_json_bytes, append_value as append_json_value};
pub(super) use staged::{place_of, renamed_staged};
pub use table::{Secret, TableRows, TableSink, TableSpec, TableWrite};

pub use crate::checkpoint::StagedOutput;
