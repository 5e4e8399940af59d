//! Every pane of a checkpoint handed on, one after the other, to whoever keeps or writes them.

use std::path::Path;

use crate::error::{Error, Result};
use crate::inspect::choice::{believed, choose, retired};
use crate::inspect::listing::{ListedPane, listed};
use crate::inspect::scan::{Counter, PaneFilter, Watcher, each_pane};
use crate::inspect::shape::OpenState;
use crate::inspect::windows::{Origin, origin};
use crate::operator::OperatorSpec;

/// The windowed aggregation whose panes come next.
#[derive(Debug)]
pub struct StreamedOperator<'a> {
    /// Its definition.
    pub spec: &'a OperatorSpec,
    /// True when windows share slices: then each pane is one slice of one key.
    pub slices: bool,
}

/// Takes panes one after the other.
pub trait PaneVisitor {
    /// The panes of this operator come next.
    ///
    /// # Errors
    /// Whatever ends the stream.
    fn operator(&mut self, operator: &StreamedOperator<'_>) -> Result<()>;

    /// A pane.
    ///
    /// # Errors
    /// Whatever ends the stream.
    fn pane(&mut self, pane: ListedPane) -> Result<()>;
}

/// Hands every pane that `filter` asks for, of the checkpoint of epoch `at` or the newest one under `path`, to `visitor`:
/// by operator, then by end of their window, then by key. One pane is in memory at a time.
///
/// # Errors
/// The first of the visitor; [`crate::error::ErrorKind::Invalid`] when there is no such checkpoint, window or key,
/// [`crate::error::ErrorKind::Unavailable`] when the checkpoint is retired meanwhile,
/// [`crate::error::ErrorKind::Damaged`] when files cannot be read back,
/// [`crate::error::ErrorKind::Incompatible`] when another version wrote them.
pub fn stream(
    path: &Path,
    at: Option<u64>,
    filter: &PaneFilter,
    now_ms: i64,
    watcher: Watcher<'_>,
    visitor: &mut dyn PaneVisitor,
) -> Result<Origin> {
    let chosen = believed(choose(path, at)?)?;
    let mut read = || -> Result<Origin> {
        let (open, manifest) = (OpenState::open(&chosen.summary, &chosen.manifest)?, &chosen.manifest);
        let mut counter = Counter::new(manifest, &mut *watcher);
        for index in filter.operators(&open)? {
            let (shape, standing) = (&open.shapes[index], open.standing(manifest, index));
            let spec = shape.spec();
            visitor.operator(&StreamedOperator { spec, slices: spec.shares_slices() })?;
            each_pane(&open, manifest, index, filter, &mut counter, &mut |seen| {
                visitor.pane(listed(shape, &standing, seen))
            })?;
        }
        Ok(origin(&chosen, now_ms))
    };
    // What was handed on cannot be taken back, so that another checkpoint is no way out.
    read().map_err(|error: Error| if chosen.summary.is_there() { error } else { retired(path) })
}
