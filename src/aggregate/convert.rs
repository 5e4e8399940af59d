//! From the stored rows of one set of aggregates to those of another: which words and states are kept, which start
//! empty.
//!
//! Works on stored bytes and needs no code of what is kept as it is. Knows nothing of windows; which aggregates stand
//! for each other is decided above.

use std::sync::Arc;

use super::define::Erased;
use super::payload::{Parts, PayloadError};
use super::{AggregateSpec, Layout};

/// How the stored rows of one layout become those of another. Merging and converting give the same in either order, so
/// that a pane stored in parts may be converted part by part.
#[derive(Debug)]
pub struct Conversion {
    from: Layout,
    to: Arc<Layout>,
    // For each word of the new row, states' words left out: where it comes from; `None` starts empty.
    words: Vec<Option<usize>>,
    // For each state of the new row.
    states: Vec<Option<Taken>>,
}

/// Where a state comes from.
#[derive(Debug)]
struct Taken {
    from: usize,
    // Of another version than the code writes.
    migrate: Option<(Arc<dyn Erased>, u32)>,
}

/// One side of a conversion.
#[derive(Clone, Copy, Debug)]
pub struct Stage<'a> {
    /// The aggregates, each input with a column that stands for its field and type.
    pub aggregates: &'a [AggregateSpec],
    /// What the extra words start as.
    pub extra: &'a [u64],
}

impl Conversion {
    /// From rows of `from` to rows of `to`. `columns` says which old column a new one goes on with; `extra` for each new
    /// extra word which old one it takes over.
    #[must_use]
    pub fn new(from: Stage<'_>, to: Stage<'_>, columns: &[(usize, usize)], extra: &[Option<usize>]) -> Self {
        let old = Layout::with_extra(from.aggregates, from.extra);
        let new = Layout::with_extra(to.aggregates, to.extra);
        let old_column = |column: usize| columns.iter().find(|(new, _)| *new == column).map(|&(_, old)| old);
        let mut words = vec![None; new.stride()];
        // Word 0 counts events, whatever the aggregates are.
        words[0] = Some(0);
        for slot in new.slots() {
            let same = |old: &&super::primitive::Slot| {
                old.primitive == slot.primitive
                    && old.lane == slot.lane
                    && Some(old.column) == old_column(slot.column)
            };
            if let Some(known) = old.slots().iter().find(same) {
                for offset in 0..slot.primitive.words() {
                    words[slot.word + offset] = Some(known.word + offset);
                }
            }
        }
        for (index, source) in extra.iter().enumerate() {
            if let (Some(word), Some(source)) = (words.get_mut(new.words() + index), source) {
                *word = Some(old.words() + source);
            }
        }
        let states = new.sketches().iter().map(|sketch| {
            let at = old.sketches().iter().position(|old| {
                Some(old.place.column) == old_column(sketch.place.column)
                    && old.code.state_type() == sketch.code.state_type()
                    && old.code.state_name() == sketch.code.state_name()
            })?;
            let version = |aggregates: &[AggregateSpec], column: usize| {
                let of = |aggregate: &&AggregateSpec| {
                    let place = aggregate.input.as_ref().map(|input| input.column);
                    let code = aggregate.code();
                    place == Some(column)
                        && code.is_some_and(|code| code.state_name() == sketch.code.state_name())
                };
                let defined = aggregates.iter().find(of).and_then(|aggregate| aggregate.defined.as_ref());
                defined.map(super::Defined::version)
            };
            let stored = version(from.aggregates, old.sketches()[at].place.column);
            let asked = version(to.aggregates, sketch.place.column);
            let migrate =
                stored.filter(|_| stored != asked).map(|version| (Arc::clone(&sketch.code), version));
            Some(Taken { from: at, migrate })
        });
        let states = states.collect();
        Self { from: old, to: Arc::new(new), words, states }
    }

    /// True when every row stays as it is.
    #[must_use]
    pub fn is_identity(&self) -> bool {
        let states = self.to.sketch_words();
        let mut words = self.words.iter().enumerate();
        let same = |taken: (usize, &Option<Taken>)| {
            taken.1.as_ref().is_some_and(|of| of.from == taken.0 && of.migrate.is_none())
        };
        self.from.stride() == self.to.stride()
            && self.from.sketch_words() == states
            && words.all(|(index, source)| states.contains(&index) || *source == Some(index))
            && self.states.iter().enumerate().all(same)
    }

    /// The layout of the new rows.
    #[must_use]
    pub fn to(&self) -> &Arc<Layout> {
        &self.to
    }

    /// Appends the new form of the stored row `payload` to `bytes`.
    ///
    /// # Errors
    /// [`PayloadError`] when `payload` is no row of the old layout, or a state of it cannot be migrated.
    pub fn convert(&self, payload: &[u8], bytes: &mut Vec<u8>) -> Result<(), PayloadError> {
        let old = Parts::read(&self.from, payload)?;
        let mut words = self.to.identity().to_vec();
        for (word, source) in words.iter_mut().zip(&self.words) {
            if let Some(source) = *source {
                *word = old.word(source);
            }
        }
        let mut states = Vec::with_capacity(self.states.len());
        for taken in &self.states {
            let Some(Taken { from, migrate }) = taken else {
                states.push(None);
                continue;
            };
            let stored = old.state(*from);
            states.push(match (stored, migrate) {
                (None, _) => None,
                (Some(stored), None) => Some(stored.to_vec()),
                (Some(stored), Some((code, version))) => Some(migrated(&**code, *version, stored)?),
            });
        }
        super::payload::write_parts(&self.to, &words, &states, bytes);
        Ok(())
    }
}

fn migrated(code: &dyn Erased, version: u32, stored: &[u8]) -> Result<Vec<u8>, PayloadError> {
    let none = super::StateError("no migration of this version is declared");
    let migrated = code.migrate(version, stored).unwrap_or(Err(none));
    migrated.map_err(|error| PayloadError::State { aggregate: code.state_name(), error })
}

/// Which lane a new aggregate takes over `column`, given what is stored: one that holds all it needs, else one that
/// holds nothing of the column, else `fresh`. The flag says whether what it needs is there.
#[must_use]
pub(crate) fn lane_for(
    stored: &[AggregateSpec],
    aggregate: &AggregateSpec,
    old_column: Option<usize>,
    fresh: u32,
) -> (u32, bool) {
    let Some(old_column) = old_column.filter(|_| aggregate.code().is_none()) else {
        return (0, aggregate.input.is_none());
    };
    let kept = Layout::new(stored);
    let mut own = aggregate.clone();
    own.lane = 0;
    let needed: Vec<_> =
        Layout::new(std::slice::from_ref(&own)).slots().iter().map(|slot| slot.primitive).collect();
    let of_column: Vec<_> = kept.slots().iter().filter(|slot| slot.column == old_column).collect();
    let mut lanes: Vec<u32> = of_column.iter().map(|slot| slot.lane).collect();
    lanes.sort_unstable();
    lanes.dedup();
    let has =
        |lane: u32, primitive| of_column.iter().any(|slot| slot.lane == lane && slot.primitive == primitive);
    let complete = lanes.iter().copied().find(|&lane| needed.iter().all(|&primitive| has(lane, primitive)));
    match complete {
        Some(lane) => (lane, true),
        None if lanes.first() != Some(&0) => (0, false),
        None => (fresh, false),
    }
}

/// True when a state of variable size that `aggregate` needs is among what is stored.
#[must_use]
pub(crate) fn shares_state(stored: &[AggregateSpec], aggregate: &AggregateSpec, old_column: usize) -> bool {
    let Some(code) = aggregate.code() else { return false };
    Layout::new(stored).sketches().iter().any(|old| {
        old.place.column == old_column
            && old.code.state_type() == code.state_type()
            && old.code.state_name() == code.state_name()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregate::{Beyond, Function, InputType, RowMut, Sketches, Touch, Value};
    use crate::event::{EventBatch, Number, PartitionId, ValueColumn};
    use crate::event_time::EventTime;

    fn over(name: &str, function: Function) -> AggregateSpec {
        AggregateSpec::over(name, function, "x", InputType::Int, 0)
    }

    /// A stored row of these values.
    fn stored(aggregates: &[AggregateSpec], values: &[i64]) -> Vec<u8> {
        let layout = Layout::new(aggregates);
        let mut batch = EventBatch::with_columns(PartitionId(0), 1, vec![ValueColumn::int()]);
        for (at, &value) in values.iter().enumerate() {
            batch.push_event(EventTime::from_millis(at as i64), &[b"k"], &[Some(Number::Int(value))]);
        }
        let (mut words, mut sketches) = (layout.identity().to_vec(), Sketches::default());
        let touches: Vec<Touch> = (0..values.len() as u32).map(|event| Touch { row: 0, event }).collect();
        layout.update(&mut words, &mut sketches, &touches, &batch);
        let mut bytes = Vec::new();
        RowMut::new(&layout, &mut words, &mut sketches).as_ref().write_payload(&mut bytes);
        bytes
    }

    /// The values of the merge of stored rows.
    fn finished(layout: &Layout, payloads: &[&[u8]]) -> Vec<Value> {
        let (mut words, mut sketches) = (layout.identity().to_vec(), Sketches::default());
        let mut row = RowMut::new(layout, &mut words, &mut sketches);
        for payload in payloads {
            let (mut theirs, mut their_sketches) = (layout.identity().to_vec(), Sketches::default());
            let mut other = RowMut::new(layout, &mut theirs, &mut their_sketches);
            other.read_payload(payload).unwrap();
            row.merge(other.as_ref());
        }
        let mut values = Vec::new();
        row.as_ref().finish(&mut values);
        values
    }

    fn evolved(old: &[AggregateSpec], new: &mut [AggregateSpec], payload: &[u8]) -> (Arc<Layout>, Vec<u8>) {
        let known: Vec<String> = old.iter().map(|aggregate| aggregate.name.clone()).collect();
        let fresh = 1 + old.iter().map(|aggregate| aggregate.lane).max().unwrap_or(0);
        for aggregate in new.iter_mut().filter(|aggregate| !known.contains(&aggregate.name)) {
            aggregate.lane = lane_for(old, aggregate, Some(0), fresh).0;
        }
        let stage = |aggregates| Stage { aggregates, extra: &[] };
        let conversion = Conversion::new(stage(old), stage(new), &[(0, 0)], &[]);
        let mut bytes = Vec::new();
        conversion.convert(payload, &mut bytes).unwrap();
        (Arc::clone(conversion.to()), bytes)
    }

    #[test]
    fn what_is_added_starts_empty_though_its_field_is_counted_already() {
        let old = [over("sum", Function::Sum)];
        let payload = stored(&old, &[5, 7]);
        let mut new =
            [over("min", Function::Min), over("sum", Function::Sum), over("spread", Function::Stddev)];
        let (layout, converted) = evolved(&old, &mut new, &payload);
        // Without a lane of its own min would be the greatest integer, and the deviation one of half the values.
        assert_eq!(finished(&layout, &[&converted]), [Value::Null, Value::Int(12), Value::Null]);
        let later = stored(&new, &[20, 22]);
        let expected = [Value::Int(20), Value::Int(54), Value::Float(2_f64.sqrt())];
        assert_eq!(finished(&layout, &[&converted, &later]), expected);
    }

    #[test]
    fn what_is_told_from_what_is_kept_is_complete_at_once() {
        let old = [
            over("avg", Function::Avg),
            over("q9", Function::Quantile { q: crate::aggregate::Fraction::HALF }),
        ];
        let payload = stored(&old, &[5, 7]);
        let mut new = [
            AggregateSpec::count("rows"),
            over("present", Function::Count),
            over("sum", Function::Sum),
            over("median", Function::Quantile { q: crate::aggregate::Fraction::HALF }),
        ];
        let (layout, converted) = evolved(&old, &mut new, &payload);
        let values = finished(&layout, &[&converted]);
        assert_eq!(values[..3], [Value::Int(2), Value::Int(2), Value::Int(12)]);
        assert_ne!(values[3], Value::Null);
    }

    #[test]
    fn an_aggregate_that_goes_takes_nothing_of_the_others_along() {
        let old = [over("first", Function::First), over("max", Function::Max), over("last", Function::Last)];
        let payload = stored(&old, &[5, 9, 7]);
        let mut new = [over("last", Function::Last), over("max", Function::Max)];
        let (layout, converted) = evolved(&old, &mut new, &payload);
        assert_eq!(finished(&layout, &[&converted]), [Value::Int(7), Value::Int(9)]);
    }

    #[test]
    fn parts_may_be_converted_before_they_are_merged() {
        let old = [
            over("sum", Function::Sum),
            over("distinct", Function::Distinct { limit: 9, beyond: Beyond::Null }),
        ];
        let (left, right) = (stored(&old, &[1, 2]), stored(&old, &[2, 3]));
        let mut new = [old[1].clone(), over("max", Function::Max), old[0].clone()];
        let (layout, left) = evolved(&old, &mut new, &left);
        let (_, right) = evolved(&old, &mut new, &right);
        assert_eq!(finished(&layout, &[&left, &right]), [Value::Int(3), Value::Null, Value::Int(8)]);
    }

    #[test]
    fn a_row_that_is_cut_is_refused() {
        let old = [over("last", Function::Last)];
        let payload = stored(&old, &[1]);
        let stage = Stage { aggregates: &old, extra: &[] };
        let conversion = Conversion::new(stage, stage, &[(0, 0)], &[]);
        for length in 0..payload.len() {
            assert!(conversion.convert(&payload[..length], &mut Vec::new()).is_err(), "cut to {length}");
        }
        let mut same = Vec::new();
        conversion.convert(&payload, &mut same).unwrap();
        assert_eq!(same, payload);
    }
}
