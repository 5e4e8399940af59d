//! Deduplication within the watermark: of events with one id the first passes, and the id is remembered until the
//! watermark has passed that event by a span. Knows no disk; all live ids are in memory.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Entries, EntryError, EventBatch, Marks, SourceId};
use crate::event_time::{EventTime, Span, Watermark};

/// The only payload of a row: its format.
const FORMAT: u8 = 1;
/// About what an id takes beside its bytes: an entry of the map, one of the set, and the allocation they share.
const BYTES_PER_ID: usize = 120;

/// What makes an event of a source a repetition.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DedupSpec {
    /// Names of the fields that make up the id.
    pub by: Vec<String>,
    /// How long an id is remembered: until the watermark reaches the time of its first event plus this.
    pub within: Span,
    /// Index of the key column with the id; a matter of one run, not of the definition.
    #[serde(skip)]
    pub key_column: usize,
}

impl DedupSpec {
    /// Events with the same values of `by`, which a program puts into `key_column` of its batches, are one.
    #[must_use]
    pub fn new(by: &[&str], within: Span, key_column: usize) -> Self {
        Self { by: by.iter().map(|&field| field.to_owned()).collect(), within, key_column }
    }
}

impl fmt::Display for DedupSpec {
    /// In words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "first of each {} within {} of the watermark", self.by.join(", "), self.within)
    }
}

/// The ids of one source that may still be repeated.
#[derive(Debug)]
pub struct DedupOperator {
    source: SourceId,
    spec: DedupSpec,
    // When each id is forgotten; ids of the past may be left until the end of a batch.
    ids: HashMap<Arc<[u8]>, EventTime>,
    // The same, by that time.
    expiries: BTreeSet<(EventTime, Arc<[u8]>)>,
    // Those that the state database does not have yet.
    dirty: BTreeSet<(EventTime, Arc<[u8]>)>,
    watermark: Watermark,
    id_bytes: usize,
}

impl DedupOperator {
    /// Deduplication of `source`.
    #[must_use]
    pub fn new(source: SourceId, spec: DedupSpec) -> Self {
        Self {
            source,
            spec,
            ids: HashMap::new(),
            expiries: BTreeSet::new(),
            dirty: BTreeSet::new(),
            watermark: Watermark::None,
            id_bytes: 0,
        }
    }

    /// What it was asked to do.
    #[must_use]
    pub fn spec(&self) -> &DedupSpec {
        &self.spec
    }

    /// The source that it is about.
    #[must_use]
    pub fn source(&self) -> SourceId {
        self.source
    }

    /// How far the watermark has come here.
    #[must_use]
    pub fn watermark(&self) -> Watermark {
        self.watermark
    }

    /// Ids remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// True when no id is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Bytes of memory that it holds, about.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.id_bytes + self.ids.len() * BYTES_PER_ID
    }

    /// Appends the indexes of the events of `batch` that repeat an earlier one to `repeated`, in order, each judged by
    /// the watermark that it meets. What was left out of the batch before is passed over.
    ///
    /// An event so old that its id would be forgotten at once passes, and is not remembered.
    pub fn find(&mut self, batch: &EventBatch, marks: &Marks, repeated: &mut Vec<u32>) {
        if batch.source == self.source && !batch.is_empty() {
            let ids = &batch.keys[self.spec.key_column];
            let mut skipped = marks.skipped();
            for (index, &millis) in batch.times.iter().enumerate() {
                if let [next, rest @ ..] = skipped
                    && *next as usize == index
                {
                    skipped = rest;
                    continue;
                }
                let (id, before) = (ids.get(index), marks.before(index));
                let known = self.ids.get(id).copied();
                if known.is_some_and(|expiry| !before.closed(expiry)) {
                    repeated.push(index as u32);
                    continue;
                }
                let expiry = EventTime::from_millis(millis).saturating_add(self.spec.within);
                if !before.closed(expiry) {
                    self.remember(id, expiry, true);
                }
            }
        }
        self.advance(marks.last());
    }

    fn remember(&mut self, id: &[u8], expiry: EventTime, dirty: bool) {
        let id: Arc<[u8]> = match self.ids.remove_entry(id) {
            Some((id, expired)) => {
                let old = (expired, id);
                self.expiries.remove(&old);
                self.dirty.remove(&old);
                old.1
            }
            None => {
                self.id_bytes += id.len();
                id.into()
            }
        };
        if dirty {
            self.dirty.insert((expiry, Arc::clone(&id)));
        }
        self.expiries.insert((expiry, Arc::clone(&id)));
        self.ids.insert(id, expiry);
    }

    /// Lets the watermark reach `watermark`, and forgets what expired.
    pub fn advance(&mut self, watermark: Watermark) {
        self.watermark = self.watermark.max(watermark);
        while let Some((expiry, _)) = self.expiries.first()
            && self.watermark.closed(*expiry)
            && let Some(expired) = self.expiries.pop_first()
        {
            self.dirty.remove(&expired);
            self.ids.remove(&expired.1);
            self.id_bytes -= expired.1.len();
        }
    }

    /// Copies out what the state database does not have yet.
    pub fn spill_dirty(&mut self) -> Entries {
        let mut entries = Entries::default();
        for (expiry, id) in std::mem::take(&mut self.dirty) {
            entries.push(expiry, id.to_vec(), vec![FORMAT]);
        }
        entries
    }

    /// Starts to take up what a checkpoint holds, as of the watermark that it had come to here.
    pub fn restore(&mut self, watermark: Watermark) {
        self.watermark = watermark;
    }

    /// Takes up a row that a checkpoint holds. False when it has expired.
    ///
    /// # Errors
    /// [`EntryError`] when it is no such row.
    pub fn restore_row(&mut self, end: EventTime, key: &[u8], payload: &[u8]) -> Result<bool, EntryError> {
        check_row(payload)?;
        if self.watermark.closed(end) {
            return Ok(false);
        }
        self.remember(key, end, false);
        Ok(true)
    }
}

pub(super) fn check_row(payload: &[u8]) -> Result<(), EntryError> {
    match payload {
        [FORMAT] => Ok(()),
        _ => Err(EntryError("an id has another format")),
    }
}
