//! Migrations of whole panes, which a program declares for what no rule covers.

use std::fmt;

use crate::checkpoint::OperatorState;
use crate::event_time::EventTime;

/// A stored pane on its way to another form.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct StoredPane<'a> {
    /// The operator as it is stored: its definition as JSON, the version of its state.
    pub operator: &'a OperatorState,
    /// End of its window, or slice.
    pub end: EventTime,
    /// Its key, as written by [`crate::codec::KeyWriter`].
    pub key: &'a [u8],
    /// Its payload, or a part of it to be merged with others, see `docs/FORMAT.md`.
    pub payload: &'a [u8],
}

/// Rewrites the panes of a window from one form of its aggregates to another. Windows, key and time must be the same.
///
/// Most changes need none: see `docs/EVOLUTION.md` for what is taken over by rule, and
/// [`crate::aggregate::Aggregate::migrate`] for a new version of an aggregate of your own.
pub trait PaneMigration: fmt::Debug + Send + Sync {
    /// True when it takes the panes of this stored operator. It must say no to the form that it leads to.
    fn accepts(&self, stored: &OperatorState) -> bool;

    /// The payload in the new form. A pane may be stored in parts, which are migrated each by itself and merged then.
    ///
    /// # Errors
    /// Why it cannot be; the state is then not opened, and stays as it is.
    fn migrate(&self, pane: StoredPane<'_>) -> Result<Vec<u8>, String>;
}
