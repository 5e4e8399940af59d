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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::aggregate::InputType;
    use crate::event::{EventBatch, Number, ValueColumn};
    use crate::event_time::{Span, Watermark};
    use crate::operator::{Emit, LateEvent, Marks, Policy, Rejection, ResultBlock};
    use crate::operator::{
        JoinInput, JoinOperator, PartitionId, SourceId, SourceSpec, Strategy, WatermarkTracker,
    };

    /// Takes everything and keeps nothing.
    struct Nobody;

    impl Emit for Nobody {
        type Error = ();

        fn results(&mut self, _: usize, _: &mut dyn ResultBlock) -> Result<(), ()> {
            Ok(())
        }

        fn late(&mut self, _: usize, _: LateEvent<'_>) -> Result<(), ()> {
            Ok(())
        }

        fn rejected(&mut self, _: &EventBatch, _: usize, _: Rejection) -> Result<(), ()> {
            Ok(())
        }
    }

    fn spec() -> JoinSpec {
        let left = JoinInput::new("l").field("n", "n", InputType::Int, 0);
        let right = JoinInput { source_id: SourceId(1), ..JoinInput::new("r") };
        JoinSpec::new("j", &["k"], left, right, (-5, 10))
    }

    /// What a join stores of one event.
    fn stored() -> (EventTime, Vec<u8>, Vec<u8>) {
        let mut join = JoinOperator::new(0, spec());
        let source = SourceSpec::new("l", Strategy::Monotone);
        let mut tracker = WatermarkTracker::of(vec![source], Policy::Min);
        tracker.add_partition_of(SourceId(0), std::time::Duration::ZERO);
        let mut batch = EventBatch::with_columns(PartitionId(0), 1, vec![ValueColumn::int()]);
        batch.push_event(EventTime::from_millis(100), &[b"key"], &[Some(Number::Int(7))]);
        let mut marks = Marks::default();
        marks.observe_where(&mut tracker, &batch, |_| true);
        join.process(&batch, &marks, &mut Nobody).unwrap();
        let entries = join.spill_dirty();
        let row = entries.iter().map(|(end, key, payload)| (end, key.to_vec(), payload.to_vec())).next();
        row.unwrap()
    }

    #[test]
    fn a_stored_event_is_taken_up_again_and_one_that_was_changed_is_refused() {
        let (end, key, payload) = stored();
        assert_eq!(end, EventTime::from_millis(111));
        let mut join = JoinOperator::new(0, spec());
        join.restore(Watermark::At(EventTime::from_millis(110)));
        assert_eq!(join.restore_row(end, &key, &payload), Ok(true));
        assert_eq!(join.len(), 1);
        join.restore(Watermark::At(end));
        assert_eq!(join.restore_row(end, &key, &payload), Ok(false), "the watermark has passed it");
        let definition = EventDefinition::Join(spec());
        for length in 0..payload.len() {
            assert!(definition.check_row(end, &key, &payload[..length]).is_err(), "cut to {length}");
        }
        assert!(definition.check_row(EventTime::from_millis(112), &key, &payload).is_err());
        assert!(definition.check_row(end, &key[..16], &payload).is_err());
        let mut other_side = key;
        let side = other_side.len() - 17;
        other_side[side] = 1;
        assert!(definition.check_row(end, &other_side, &payload).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_rows_never_panic(
            end in any::<i64>(),
            key in prop::collection::vec(any::<u8>(), 0..30),
            payload in prop::collection::vec(0_u8..4, 0..20),
        ) {
            let end = EventTime::from_millis(end);
            let dedup = DedupSpec::new(&["id"], Span::ZERO, 0);
            for definition in [EventDefinition::Join(spec()), EventDefinition::Dedup(dedup)] {
                let _ = definition.check_row(end, &key, &payload);
            }
        }
    }
}
