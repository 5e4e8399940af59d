//! What the engine emits, written down as the cases say it.

use std::collections::BTreeMap;

use floodmark::aggregate::Value;
use floodmark::error::Error;
use floodmark::event_time::Watermark;
use floodmark::operator::{Emit, EventBatch, LateEvent, PaneKind, Rejection, ResultBlock};

use crate::oracle::{Emitted, Key, Late, Num, Pane, Profile, Row};

/// How much was seen of each kind.
pub(super) type Lengths = [usize; 4];

/// Receives everything and notes the operation that is being applied. The record numbers of batches are those of
/// operations.
pub(super) struct Seen {
    pub(super) at: usize,
    pub(super) profile: Profile,
    pub(super) emits: Vec<Emitted>,
    pub(super) late: Vec<Late>,
    pub(super) rejected: Vec<(usize, &'static str)>,
    /// With retractions: what was taken back of the results, by how many there were before.
    pub(super) taken_back: Vec<(usize, Row)>,
}

impl Seen {
    pub(super) fn new(profile: Profile) -> Self {
        Self {
            at: 0,
            profile,
            emits: Vec::new(),
            late: Vec::new(),
            rejected: Vec::new(),
            taken_back: Vec::new(),
        }
    }

    /// How much was seen so far.
    pub(super) fn lengths(&self) -> Lengths {
        [self.emits.len(), self.late.len(), self.rejected.len(), self.taken_back.len()]
    }

    /// Forgets what was seen after `lengths`.
    pub(super) fn truncate(&mut self, [emits, late, rejected, taken_back]: Lengths) {
        self.emits.truncate(emits);
        self.late.truncate(late);
        self.rejected.truncate(rejected);
        self.taken_back.truncate(taken_back);
    }

    /// What a reader holds who applied every row in its order.
    ///
    /// # Errors
    /// A row was taken back that the reader did not hold, or given twice.
    pub(super) fn table(&self) -> Result<Vec<Row>, String> {
        let mut table: BTreeMap<(i64, i64, Key), Row> = BTreeMap::new();
        let place = |row: &Row| (row.end, row.start, row.key.clone());
        let mut taken_back = self.taken_back.iter().peekable();
        for at in 0..=self.emits.len() {
            while let Some((_, row)) = taken_back.next_if(|(before, _)| *before == at) {
                match table.remove(&place(row)) {
                    Some(held) if held == *row => {}
                    held => return Err(format!("took back {row:?}, where there was {held:?}")),
                }
            }
            let Some(Emitted { row, .. }) = self.emits.get(at) else { break };
            if let Some(held) = table.insert(place(row), row.clone()) {
                return Err(format!("{row:?} in the place of {held:?}, which was not taken back"));
            }
        }
        Ok(table.into_values().collect())
    }

    /// A watermark at emission: inclusive in the record profile, exclusive in the other.
    fn at_emission(&self, watermark: Watermark) -> Option<i64> {
        match (self.profile, watermark) {
            (_, Watermark::End) => None,
            (Profile::Record, Watermark::None) => Some(i64::MIN),
            (Profile::Batch, Watermark::None) => Some(0),
            (Profile::Record, Watermark::At(time)) => Some(time.as_millis() - 1),
            (Profile::Batch, Watermark::At(time)) => Some(time.as_millis()),
        }
    }
}

/// A watermark as the cases say it of a moment.
pub(super) fn of_moment(profile: Profile, watermark: Watermark) -> Option<i64> {
    match watermark {
        Watermark::None => None,
        Watermark::End => Some(i64::MAX),
        Watermark::At(time) if profile == Profile::Record => Some(time.as_millis() - 1),
        Watermark::At(time) => Some(time.as_millis()),
    }
}

/// The row of a pane with the aggregates of [`super::spec::aggregates`].
pub(super) fn row(key: &[u8], start: i64, end: i64, values: &[Value]) -> Row {
    let count = |value: &Value| match value {
        Value::Int(count) => u64::try_from(*count).unwrap(),
        other => panic!("not a count: {other:?}"),
    };
    Row {
        key: key.to_vec(),
        start,
        end,
        count: count(&values[0]),
        count_value: count(&values[1]),
        sum: number(&values[2]),
        min: number(&values[3]),
        max: number(&values[4]),
    }
}

fn number(value: &Value) -> Option<Num> {
    match value {
        Value::Null => None,
        Value::Int(int) => Some(Num::Int(*int)),
        Value::Float(float) => Some(Num::Float(*float)),
        other => panic!("not a number: {other:?}"),
    }
}

impl Emit for Seen {
    type Error = Error;

    fn results(&mut self, _: usize, block: &mut dyn ResultBlock) -> Result<(), Error> {
        let (window, watermark) = (block.window(), self.at_emission(block.watermark()));
        let takes_back = block.takes_back().is_some();
        while let Some(found) = block.next_row() {
            let row = row(found.key, window.start.as_millis(), window.end.as_millis(), found.values);
            if takes_back {
                self.taken_back.push((self.emits.len(), row));
                continue;
            }
            let pane = match found.kind {
                PaneKind::Early => Pane::Early,
                PaneKind::OnTime => Pane::OnTime,
                PaneKind::Late => Pane::Late,
            };
            let pane = (self.profile == Profile::Record).then_some(pane);
            self.emits.push(Emitted { at: self.at, watermark, row, pane });
        }
        Ok(())
    }

    fn late(&mut self, _: usize, event: LateEvent<'_>) -> Result<(), Error> {
        assert!(event.late_by_ms >= 0, "a late event is late by a negative time");
        let (start, end) = (event.window.start.as_millis(), event.window.end.as_millis());
        self.late.push(Late {
            at: event.batch.records[event.index] as usize,
            ts: event.time().as_millis(),
            key: event.batch.keys[0].get(event.index).to_vec(),
            window: (self.profile == Profile::Batch).then_some((start, end)),
        });
        Ok(())
    }

    fn rejected(&mut self, batch: &EventBatch, index: usize, rejection: Rejection) -> Result<(), Error> {
        // Cases have names of their own for these.
        let name = match rejection {
            Rejection::BeforeMin { .. } => "timestamp_too_old",
            Rejection::AheadOfClock { .. } => "timestamp_too_far_ahead",
            other => other.name(),
        };
        self.rejected.push((batch.records[index] as usize, name));
        Ok(())
    }
}
