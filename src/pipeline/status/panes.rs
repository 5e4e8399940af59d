//! What is open of one key, asked by the server and answered by the task between two blocks.

use serde::Serialize;
use tokio::sync::oneshot;

use crate::aggregate::Value;
use crate::error::Result;
use crate::inspect::{Aggregates, Key};
use crate::operator::OperatorSpec;
use crate::store::{OpenPane, WindowStore};

use super::snapshot::Moment;

/// Panes of a key that are told.
pub(super) const PANES_MAX: usize = 1_000;

/// A question to the task. Who asked may have gone when the answer comes.
#[derive(Debug)]
pub struct PanesRequest {
    operator: usize,
    key: Key,
    reply: oneshot::Sender<Result<KeyPanes>>,
}

impl PanesRequest {
    /// Asks for the open panes of `key` in the windowed aggregation at index `operator`.
    #[must_use]
    pub fn new(operator: usize, key: Key) -> (Self, oneshot::Receiver<Result<KeyPanes>>) {
        let (reply, answer) = oneshot::channel();
        (Self { operator, key, reply }, answer)
    }
}

/// The open panes of one key.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KeyPanes {
    /// The operator.
    pub operator: String,
    /// The key.
    pub key: Key,
    /// How far the watermark has come in the operator.
    pub watermark: Moment,
    /// The panes, by end of their windows.
    pub panes: Vec<PaneStatus>,
    /// True when there are more than are told.
    pub truncated: bool,
}

/// An open pane.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PaneStatus {
    /// First instant of its window, or of the slice that windows share.
    pub start: Moment,
    /// First instant after it.
    pub end: Moment,
    /// True when the watermark has passed the end: it was fired, and takes late events still.
    pub closed: bool,
    /// Events counted in it.
    pub events: u64,
    /// Its aggregates.
    pub aggregates: Aggregates,
    /// True when a part of it is on its way to the state database, and missing here.
    pub partial: bool,
}

/// Answers a request. A key of another shape has no panes.
pub(super) fn answer(store: &WindowStore, request: PanesRequest) {
    let PanesRequest { operator, key, reply } = request;
    // Nobody waits any more where the server has given up.
    let _ = reply.send(look_up(store, operator, key));
}

fn look_up(store: &WindowStore, index: usize, key: Key) -> Result<KeyPanes> {
    let watermark = store.operator_watermarks().nth(index).unwrap_or(crate::event_time::Watermark::None);
    let mut open = store.panes_of(index, &key.to_stored(), PANES_MAX + 1)?;
    let truncated = open.len() > PANES_MAX;
    open.truncate(PANES_MAX);
    let spec = store.operators().nth(index);
    let told = open.into_iter().map(|pane| {
        let OpenPane { window, events, values, partial } = pane;
        PaneStatus {
            start: window.start.into(),
            end: window.end.into(),
            closed: watermark.closed(window.end),
            events,
            aggregates: named(spec, values),
            partial,
        }
    });
    Ok(KeyPanes {
        operator: spec.map(|spec| spec.name.clone()).unwrap_or_default(),
        key,
        watermark: watermark.into(),
        panes: told.collect(),
        truncated,
    })
}

fn named(spec: Option<&OperatorSpec>, values: Vec<Value>) -> Aggregates {
    let names = spec.map(|spec| spec.aggregates.iter().map(|aggregate| aggregate.name.clone()));
    Aggregates(names.into_iter().flatten().zip(values).collect())
}
