//! The panes of one key, with their aggregates. Looks into each window without reading it through.

use std::ops::Bound;
use std::path::Path;

use serde::Serialize;

use crate::codec::PaneKey;
use crate::error::Result;
use crate::event_time::EventTime;
use crate::inspect::choice::with_checkpoint;
use crate::inspect::key::Key;
use crate::inspect::scan::{fitting, next_end, no_such_key};
use crate::inspect::shape::OpenState;
use crate::inspect::status::{Standing, WindowStatus};
use crate::inspect::text::{Aggregates, as_text};
use crate::inspect::windows::{Origin, origin, selected};
use crate::state::FamilyId;

/// Panes listed for each operator; of the later ones only the number is given.
const PANES_LISTED_MAX: usize = 10_000;

/// One key in all windows of a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KeyReport {
    /// The checkpoint.
    pub checkpoint: Origin,
    /// The key that was asked for.
    pub key: Key,
    /// Its panes, by operator whose key has as many components.
    pub operators: Vec<OperatorPanes>,
}

/// The panes of one key in one operator.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperatorPanes {
    /// The operator's name.
    pub name: String,
    /// Names of its key fields.
    pub key: Vec<String>,
    /// The panes by end of their window.
    pub panes: Vec<KeyPane>,
    /// Panes that are not listed.
    pub panes_left_out: u64,
}

/// One pane.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KeyPane {
    /// First instant of its window.
    #[serde(serialize_with = "as_text")]
    pub start: EventTime,
    /// First instant after its window.
    #[serde(serialize_with = "as_text")]
    pub end: EventTime,
    /// Where its window stands.
    pub status: WindowStatus,
    /// Its events; absent when it cannot be read.
    pub events: Option<u64>,
    /// Its aggregates; none when it cannot be read.
    pub aggregates: Aggregates,
    /// Why it cannot be read.
    pub problem: Option<String>,
}

/// The panes of `key` in the checkpoint of epoch `at`, or in the newest one under `path`; of all operators whose key
/// has as many components, or of the one that is named `window`.
///
/// # Errors
/// [`crate::error::ErrorKind::Invalid`] when there is no such checkpoint or window, or none with such a key;
/// [`crate::error::ErrorKind::Damaged`] when files cannot be read back,
/// [`crate::error::ErrorKind::Incompatible`] when another version wrote them.
pub fn key_panes(
    path: &Path,
    at: Option<u64>,
    window: Option<&str>,
    key: &Key,
    now_ms: i64,
) -> Result<KeyReport> {
    with_checkpoint(path, at, |chosen| {
        let open = OpenState::open(&chosen.summary, &chosen.manifest)?;
        let selected = selected(&open, window)?;
        let operators = fitting(&open, &selected, |components| components == key.0.len())
            .ok_or_else(|| no_such_key(&open, &selected, key.0.len()))?
            .into_iter()
            .map(|index| look_up(&open, index, key, open.standing(&chosen.manifest, index)))
            .collect::<Result<_>>()?;
        Ok(KeyReport { checkpoint: origin(chosen, now_ms), key: key.clone(), operators })
    })
}

fn look_up(open: &OpenState, index: usize, key: &Key, standing: Standing) -> Result<OperatorPanes> {
    let (shape, family) = (&open.shapes[index], FamilyId(index));
    let (spec, stored_key) = (shape.spec(), key.to_stored());
    let mut row = shape.row();
    let mut found = OperatorPanes {
        name: spec.name.clone(),
        key: spec.key.clone(),
        panes: Vec::new(),
        panes_left_out: 0,
    };
    let mut after = Bound::Unbounded;
    while let Some(end) = next_end(open, family, after)? {
        after = Bound::Excluded(end);
        let Some(stored) = open.state.get(family, PaneKey { end, key: &stored_key })? else { continue };
        if found.panes.len() == PANES_LISTED_MAX {
            found.panes_left_out += 1;
            continue;
        }
        let read = shape.read(stored.get(), &mut row);
        let window = shape.window(end, &row);
        found.panes.push(KeyPane {
            start: window.start,
            end,
            status: standing.status_of(spec, window),
            events: read.as_ref().ok().copied(),
            aggregates: read.as_ref().map(|_| shape.aggregates(&row)).unwrap_or_default(),
            problem: read.err(),
        });
    }
    Ok(found)
}
