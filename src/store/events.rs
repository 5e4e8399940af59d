//! The operators of a store that keep single events instead of panes: joins, and deduplication of sources. Their
//! families come after those of the windows, in the order joins, sources.

use std::sync::Arc;

use super::builder::WindowStoreBuilder;
use crate::checkpoint::{Manifest, OperatorState};
use crate::error::{Error, ErrorKind, Result};
use crate::event_time::{EventTime, Span, Watermark};
use crate::operator::{
    DedupOperator, EVENTS_VERSION, Emit, Entries, EntryError, EventBatch, EventDefinition, JoinInput,
    JoinOperator, Marks, Side, SourceId,
};
use crate::state::{FamilyId, FamilySpec, PaneMerge, StateDb, Stored};

/// What the name of a source gets in front of it as the name of its deduplication.
const DEDUP: &str = "dedup-";

/// Joins and deduplication.
#[derive(Debug)]
pub(super) struct EventOperators {
    first: usize,
    joins: Vec<JoinOperator>,
    // With the name of each.
    dedups: Vec<(String, DedupOperator)>,
    repeated: Vec<u32>,
}

impl EventOperators {
    pub(super) fn new(builder: &WindowStoreBuilder) -> Self {
        let first = builder.windows.len();
        let joins = builder.joins.iter().enumerate();
        let dedups = builder.sources().iter().enumerate().filter_map(|(index, source)| {
            let operator = DedupOperator::new(SourceId(index as u16), source.dedup.clone()?);
            Some((dedup_name(&source.name), operator))
        });
        Self {
            first,
            joins: joins.map(|(index, spec)| JoinOperator::new(first + index, spec.clone())).collect(),
            dedups: dedups.collect(),
            repeated: Vec::new(),
        }
    }

    pub(super) fn joins(&self) -> impl ExactSizeIterator<Item = &JoinOperator> + '_ {
        self.joins.iter()
    }

    pub(super) fn families(&self) -> Vec<FamilySpec> {
        let joins = self.joins.iter().map(|join| join.spec().name.as_str());
        joins.chain(self.dedups.iter().map(|(name, _)| name.as_str())).map(event_family).collect()
    }

    /// What a checkpoint says of them.
    pub(super) fn states(&self) -> Vec<OperatorState> {
        let joins = self.joins.iter().map(|join| {
            let definition = EventDefinition::Join(join.spec().clone());
            event_state(&join.spec().name, &definition, join.watermark(), join.len())
        });
        let dedups = self.dedups.iter().map(|(name, dedup)| {
            let definition = EventDefinition::Dedup(dedup.spec().clone());
            event_state(name, &definition, dedup.watermark(), dedup.len())
        });
        joins.chain(dedups).collect()
    }

    /// Events and ids in memory.
    pub(super) fn held(&self) -> usize {
        let joins = self.joins.iter().map(JoinOperator::len).sum::<usize>();
        joins + self.dedups.iter().map(|(_, dedup)| dedup.len()).sum::<usize>()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let joins = self.joins.iter().map(JoinOperator::memory_bytes).sum::<usize>();
        joins + self.dedups.iter().map(|(_, dedup)| dedup.memory_bytes()).sum::<usize>()
    }

    /// True when the joins of `source` can hold an event of this time.
    pub(super) fn reaches(&self, source: SourceId, time: EventTime) -> bool {
        self.joins.iter().all(|join| match join.spec().side_of(source) {
            Some(side) => join.spec().expiry(side, time).is_some(),
            None => true,
        })
    }

    /// What of a batch's columns they read and is not there.
    pub(super) fn check_columns(
        &self,
        batch: &EventBatch,
        source: SourceId,
        keys: &[usize],
    ) -> Result<(), String> {
        let rows = batch.len();
        let missing_key = |column: usize| rows > 0 && keys.get(column) != Some(&rows);
        for join in &self.joins {
            let Some(side) = join.spec().side_of(source) else { continue };
            let JoinInput { fields, key_column, .. } = join.spec().input(side);
            if missing_key(*key_column) {
                return Err(format!("join reads a missing key column: join={}", join.spec().name));
            }
            for field in fields {
                let (name, kind) = (&field.field, field.kind);
                match batch.values.get(field.column) {
                    _ if rows == 0 => {}
                    Some(column) if column.len() == rows && kind.fits(column) => {}
                    Some(column) if column.len() == rows => {
                        return Err(format!("value column is of another type: field={name} type={kind}"));
                    }
                    _ => return Err(format!("join reads a missing value column: field={name}")),
                }
            }
        }
        let mut dedups = self.dedups.iter().filter(|(_, dedup)| dedup.source() == source);
        match dedups.find(|(_, dedup)| missing_key(dedup.spec().key_column)) {
            Some((_, dedup)) => {
                let by = dedup.spec().by.join(", ");
                Err(format!("deduplication reads a missing key column: by={by}"))
            }
            None => Ok(()),
        }
    }

    /// Leaves the repetitions in a batch out of `marks`.
    pub(super) fn drop_repeated(
        &mut self,
        batch: &EventBatch,
        marks: &mut Marks,
        emit: &mut dyn Emit<Error = Error>,
    ) -> Result<()> {
        if self.dedups.is_empty() {
            return Ok(());
        }
        self.repeated.clear();
        for (_, dedup) in &mut self.dedups {
            dedup.find(batch, marks, &mut self.repeated);
        }
        if self.repeated.is_empty() {
            return Ok(());
        }
        marks.skip(&self.repeated);
        emit.duplicates(batch.source, batch, &self.repeated)
    }

    pub(super) fn process(
        &mut self,
        batch: &EventBatch,
        marks: &Marks,
        emit: &mut dyn Emit<Error = Error>,
    ) -> Result<()> {
        self.joins.iter_mut().try_for_each(|join| join.process(batch, marks, emit))
    }

    pub(super) fn advance(&mut self, watermark: Watermark, emit: &mut dyn Emit<Error = Error>) -> Result<()> {
        self.dedups.iter_mut().for_each(|(_, dedup)| dedup.advance(watermark));
        self.joins.iter_mut().try_for_each(|join| join.advance(watermark, emit))
    }

    /// True while a join has not come to `reached` yet.
    pub(super) fn is_firing(&self, reached: Watermark) -> bool {
        self.joins.iter().any(|join| join.watermark() < reached)
    }

    /// Tells the joins how much to let go in one step.
    pub(super) fn set_step_rows(&mut self, rows: Option<usize>) {
        for join in &mut self.joins {
            join.set_step_rows(rows.map_or(usize::MAX, |rows| rows.max(1)));
        }
    }

    pub(super) fn set_pauses(&mut self, pauses: bool) {
        self.joins.iter_mut().for_each(|join| join.set_pauses(pauses));
    }

    /// The watermark, up to `bound`, from which more is due in a join than fits into one step.
    pub(super) fn surges_at(&self, bound: Watermark) -> Option<EventTime> {
        self.joins.iter().filter_map(|join| join.surges_at(bound)).min()
    }

    /// Copies out what the state database does not have yet, by family.
    pub(super) fn spill_dirty(&mut self) -> Vec<(usize, Entries)> {
        let joins = self.joins.iter_mut().map(JoinOperator::spill_dirty);
        let dedups = self.dedups.iter_mut().map(|(_, dedup)| dedup.spill_dirty());
        (self.first..).zip(joins.chain(dedups)).collect()
    }

    /// Takes up what a checkpoint holds, whose shape was checked. Returns the number of events and ids.
    pub(super) fn restore(&mut self, db: &StateDb, manifest: &Manifest) -> Result<usize> {
        let mut loaded = 0;
        let watermark = |name: &str| {
            let state = manifest.operators.iter().find(|state| state.name == name);
            // A new one knows nothing of what has passed.
            state.map_or(manifest.watermark, |state| state.watermark)
        };
        for (join, family) in self.joins.iter_mut().zip(self.first..) {
            join.restore(watermark(&join.spec().name));
            loaded += load(db, family, |end, key, payload| join.restore_row(end, key, payload))?;
        }
        let families = self.first + self.joins.len()..;
        for ((name, dedup), family) in self.dedups.iter_mut().zip(families) {
            dedup.restore(watermark(name));
            loaded += load(db, family, |end, key, payload| dedup.restore_row(end, key, payload))?;
        }
        Ok(loaded)
    }
}

/// Hands every row of a family to `take`, and counts those that it keeps.
fn load(
    db: &StateDb,
    family: usize,
    mut take: impl FnMut(EventTime, &[u8], &[u8]) -> Result<bool, EntryError>,
) -> Result<usize> {
    let mut loaded = 0;
    let mut scan = db.scan(FamilyId(family), ..)?;
    while let Some((row, stored)) = scan.next_pane()? {
        let taken = match stored {
            Stored::Pane(payload) => take(row.end, row.key, payload),
            Stored::Damaged(_) => Err(EntryError("it is marked as damaged")),
        };
        let taken = taken.map_err(|error| {
            Error::new(
                ErrorKind::Damaged,
                format!("{error} key={:?} end={}", row.key.escape_ascii(), row.end),
            )
            .with_remedy("run `floodmark inspect verify` on the checkpoints and restore one that holds")
        })?;
        loaded += usize::from(taken);
    }
    Ok(loaded)
}

fn event_state(name: &str, definition: &EventDefinition, watermark: Watermark, held: usize) -> OperatorState {
    OperatorState {
        name: name.to_owned(),
        family: event_family(name).column_family(),
        // A struct of names, numbers and lists always serialises.
        definition: serde_json::to_string(definition).unwrap_or_default(),
        // The definition has all that the encoding depends on.
        fingerprint: 0,
        state_version: EVENTS_VERSION,
        allowed_lateness: Span::ZERO,
        watermark,
        // Set by the writer, which knows how far the database is.
        horizon: Watermark::None,
        open_panes: Some(held as u64),
    }
}

/// The column family of an operator that keeps events.
pub(crate) fn event_family(name: &str) -> FamilySpec {
    FamilySpec { name: name.to_owned(), allowed_lateness: Span::ZERO, merge: Arc::new(Whole) }
}

/// The name of the deduplication of a source.
pub(super) fn dedup_name(source: &str) -> String {
    format!("{DEDUP}{source}")
}

/// Rows that are put as wholes and never merged.
struct Whole;

impl PaneMerge for Whole {
    fn merge(&self, _: &mut Vec<u8>, _: &[u8]) -> bool {
        false
    }
}

impl WindowStoreBuilder {
    /// Checks joins and deduplication, and finds the sources of the joins.
    pub(super) fn resolve_events(&mut self) -> Result<()> {
        let invalid =
            |message: String, remedy: &str| Err(Error::new(ErrorKind::Invalid, message).with_remedy(remedy));
        let names: Vec<String> = self.sources().iter().map(|source| source.name.clone()).collect();
        let mut taken: Vec<String> = self.windows.iter().map(|spec| spec.name.clone()).collect();
        for join in &mut self.joins {
            if let Err(why) = join.check() {
                let message = format!("join cannot be: name={} {why}", join.name);
                return invalid(message, "change its definition");
            }
            if taken.contains(&join.name) {
                let message = format!("two operators have one name: name={}", join.name);
                return invalid(message, "name each differently");
            }
            taken.push(join.name.clone());
            for side in [Side::Left, Side::Right] {
                let name = join.input(side).source.clone();
                let Some(index) = names.iter().position(|known| *known == name) else {
                    let message =
                        format!("join reads a source that is not declared: name={} source={name}", join.name);
                    return invalid(message, "declare it with WindowStoreBuilder::source");
                };
                match side {
                    Side::Left => join.left.source_id = SourceId(index as u16),
                    Side::Right => join.right.source_id = SourceId(index as u16),
                }
            }
        }
        for source in self.sources() {
            let Some(dedup) = &source.dedup else { continue };
            let name = &source.name;
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
            if !name.bytes().all(plain) {
                let message = format!("the name of a deduplicated source is part of a file's: source={name}");
                return invalid(message, "use only letters, digits, - and _ in it");
            }
            if taken.contains(&dedup_name(name)) {
                let message = format!("two operators have one name: name={}", dedup_name(name));
                return invalid(message, "rename the window or join");
            }
            if dedup.by.is_empty() || dedup.within == Span::ZERO {
                let message =
                    format!("deduplication needs fields and a span to remember them for: source={name}");
                return invalid(message, "name at least one field, and a span longer than zero");
            }
        }
        Ok(())
    }
}
