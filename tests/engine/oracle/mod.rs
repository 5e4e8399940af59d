//! The rules of event time written down a second time, as plainly as they can be: every pane keeps its records,
//! nothing is cached, spilled, merged or stored, and nothing of the engine is used.
//!
//! Written from `tests/data/conformance/README.md` alone. It answers for both profiles; what it says is held
//! against cases and golden results of other engines before the engine is held against it.

mod batch;
mod contents;
mod record;
mod settings;
mod watermark;
mod windows;

pub(crate) use contents::{Contents, Num};
pub(crate) use settings::{Bounds, Mode, Profile, Refusal, Rule, Settings, Trigger};
pub(crate) use windows::Windows;

use std::collections::BTreeMap;

use batch::Batches;
use record::Records;

/// A user key: bytes, compared as bytes.
pub(crate) type Key = Vec<u8>;

/// One record as it arrives.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    pub(crate) ts: Option<i64>,
    pub(crate) key: Option<Key>,
    pub(crate) value: Option<Num>,
    pub(crate) partition: usize,
    pub(crate) id: Option<String>,
}

/// What happens to a pipeline, in order of arrival.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Op {
    Event(Event),
    BatchEnd,
    /// Processing time moves; `backlog` is the number of unread records by partition.
    Tick {
        now_ms: i64,
        backlog: BTreeMap<usize, u64>,
    },
    EndOfInput,
    EndOfPartition(usize),
    PartitionAdded(usize),
    Checkpoint,
    /// The process dies and goes on from its last checkpoint; a fault named before it says where it died.
    Kill,
    ForceCompaction,
}

/// When a result was emitted in relation to the closing of its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pane {
    Early,
    OnTime,
    Late,
}

impl Pane {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Early => "early",
            Self::OnTime => "on_time",
            Self::Late => "late",
        }
    }
}

/// The content of one window of one key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) key: Key,
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) count: u64,
    pub(crate) count_value: u64,
    pub(crate) sum: Option<Num>,
    pub(crate) min: Option<Num>,
    pub(crate) max: Option<Num>,
}

/// A result: a row, the operation that caused it, and the watermark at emission (`None` after the end of input).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Emitted {
    pub(crate) at: usize,
    pub(crate) watermark: Option<i64>,
    pub(crate) row: Row,
    pub(crate) pane: Option<Pane>,
}

/// A record that came too late; in the batch profile one line for each of its windows that was closed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Late {
    pub(crate) at: usize,
    pub(crate) ts: i64,
    pub(crate) key: Key,
    pub(crate) window: Option<(i64, i64)>,
}

/// Everything that can be seen of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Observed {
    pub(crate) emits: Vec<Emitted>,
    pub(crate) late: Vec<Late>,
    pub(crate) rejected: Vec<(usize, &'static str)>,
    /// Rows left; `None` where they cannot be seen.
    pub(crate) state: Option<Vec<Row>>,
    pub(crate) final_watermark: Option<i64>,
    /// With retractions: what a reader holds who has applied every row to a table.
    pub(crate) table: Option<Vec<Row>>,
    /// The watermark after each operation.
    pub(crate) watermarks: Vec<Option<i64>>,
}

impl Observed {
    fn reject(&mut self, at: usize, reason: &'static str) {
        self.rejected.push((at, reason));
    }
}

/// The model of one run.
pub(crate) struct Oracle {
    inner: Inner,
    seen: Observed,
    retractions: bool,
    at: usize,
}

enum Inner {
    Records(Records),
    Batches(Batches),
}

impl Oracle {
    /// # Errors
    /// The name of what is wrong with `settings`.
    pub(crate) fn new(settings: &Settings) -> Result<Self, Refusal> {
        settings.check()?;
        let inner = match settings.profile {
            Profile::Record => Inner::Records(Records::new(settings)),
            Profile::Batch => Inner::Batches(Batches::new(settings)),
        };
        Ok(Self { inner, seen: Observed::default(), retractions: settings.retractions, at: 0 })
    }

    /// Everything that a run of `ops` shows.
    pub(crate) fn run(settings: &Settings, ops: &[Op]) -> Result<Observed, Refusal> {
        let mut oracle = Self::new(settings)?;
        ops.iter().for_each(|op| oracle.apply(op));
        Ok(oracle.finish())
    }

    pub(crate) fn apply(&mut self, op: &Op) {
        let watermark = match &mut self.inner {
            Inner::Records(records) => {
                records.apply(self.at, op, &mut self.seen);
                records.watermark()
            }
            Inner::Batches(batches) => {
                batches.apply(self.at, op, &mut self.seen);
                batches.watermark()
            }
        };
        self.seen.watermarks.push(watermark);
        self.at += 1;
    }

    pub(crate) fn finish(mut self) -> Observed {
        (self.seen.state, self.seen.final_watermark) = match &self.inner {
            Inner::Records(records) => (Some(records.state()), records.watermark()),
            Inner::Batches(batches) => (Some(batches.state()), batches.watermark()),
        };
        if let (Inner::Records(records), true) = (&self.inner, self.retractions) {
            self.seen.table = Some(records.table());
        }
        self.seen
    }
}
