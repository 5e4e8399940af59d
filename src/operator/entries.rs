//! What operators that keep single events hand to the state database, and what they find there.

use serde::{Deserialize, Serialize};

use super::{DedupSpec, JoinSpec};
use crate::event_time::EventTime;

/// Version of the encoding of stored events.
pub const EVENTS_VERSION: u32 = 1;

/// Rows on their way to the state database, each put as a whole under the watermark at which it is needed no more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    rows: Vec<(EventTime, Vec<u8>, Vec<u8>)>,
}

impl Entries {
    /// Appends a row that expires when the watermark reaches `end`. Rows are appended in ascending order of end and
    /// key.
    pub fn push(&mut self, end: EventTime, key: Vec<u8>, payload: Vec<u8>) {
        self.rows.push((end, key, payload));
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True without rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows by end and key: end, key, payload.
    pub fn iter(&self) -> impl Iterator<Item = (EventTime, &[u8], &[u8])> + '_ {
        self.rows.iter().map(|(end, key, payload)| (*end, key.as_slice(), payload.as_slice()))
    }

    /// Puts the rows into the order of the state database.
    pub(super) fn sort(&mut self) {
        self.rows.sort_unstable();
    }
}

/// Why a stored row is not one of its operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stored event cannot be read: {0}")]
pub struct EntryError(pub &'static str);

/// What an operator that keeps single events was asked to do, as it stands in a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventDefinition {
    /// An interval join.
    Join(JoinSpec),
    /// Deduplication of a source.
    Dedup(DedupSpec),
}

impl EventDefinition {
    /// Names of the key fields of its rows.
    #[must_use]
    pub fn key(&self) -> &[String] {
        match self {
            Self::Join(spec) => &spec.key,
            Self::Dedup(spec) => &spec.by,
        }
    }

    /// `join` or `dedup`.
    #[must_use]
    pub const fn noun(&self) -> &'static str {
        match self {
            Self::Join(_) => "join",
            Self::Dedup(_) => "dedup",
        }
    }

    /// Checks that a stored row is one that this definition could have written.
    ///
    /// # Errors
    /// [`EntryError`], with what is wrong.
    pub fn check_row(&self, end: EventTime, key: &[u8], payload: &[u8]) -> Result<(), EntryError> {
        match self {
            Self::Join(spec) => super::join::check_row(spec, end, key, payload),
            Self::Dedup(_) => super::dedup::check_row(payload),
        }
    }
}
