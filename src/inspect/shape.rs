//! Opens the database of a checkpoint with nothing but its manifest: the definition there says how panes are laid
//! out.

use crate::aggregate::{Defined, STATE_VERSION, Value};
use crate::checkpoint::{CheckpointSummary, Manifest, OperatorState};
use crate::error::{Error, ErrorKind, Result};
use crate::event_time::{EventTime, Window};
use crate::inspect::status::Standing;
use crate::inspect::text::Aggregates;
use crate::operator::{EVENTS_VERSION, EventDefinition, OperatorSpec, RowBuffer, WindowOperator};
use crate::state::{FamilyId, FamilySpec, ReadOnlyState, Stored};
pub(super) use crate::store::evolution::stored_spec as definition;
use crate::store::{event_family, family};

/// A checkpoint's database with the shapes of its operators, by family index.
pub(super) struct OpenState {
    pub(super) state: ReadOnlyState,
    pub(super) shapes: Vec<Shape>,
    /// The operators that keep events, whose families come after those of the windows.
    pub(super) events: Vec<EventShape>,
}

/// How the rows of one operator that keeps events are read.
pub(super) struct EventShape {
    pub(super) name: String,
    definition: EventDefinition,
}

/// How the panes of one operator are read.
pub(super) struct Shape {
    operator: WindowOperator,
}

impl OpenState {
    /// Opens the database. Without a horizon set, expired panes that are still on disk are shown.
    pub(super) fn open(summary: &CheckpointSummary, manifest: &Manifest) -> Result<Self> {
        let windows = manifest.operators.iter().take_while(|state| event_definition(state).is_none()).count();
        let (windows, events) = manifest.operators.split_at(windows);
        let operators = windows.iter().enumerate();
        let shapes = operators.map(|(index, state)| Shape::new(index, state)).collect::<Result<Vec<_>>>()?;
        let events = events.iter().map(EventShape::new).collect::<Result<Vec<_>>>()?;
        let families = shapes.iter().map(|shape| family(shape.spec()));
        let families: Vec<FamilySpec> =
            families.chain(events.iter().map(|shape| event_family(&shape.name))).collect();
        let state = ReadOnlyState::open(&summary.database(), &families)?;
        let (found, expected) = (state.epoch(), manifest.epoch);
        if found != expected {
            let message = format!(
                "state database is not of its checkpoint: path={} epoch={found} manifest_epoch={expected}",
                summary.path.display()
            );
            return Err(Error::new(ErrorKind::Damaged, message).with_remedy("ask for another checkpoint"));
        }
        Ok(Self { state, shapes, events })
    }

    /// What the windows of the operator at `index` are judged by.
    pub(super) fn standing(&self, manifest: &Manifest, index: usize) -> Standing {
        Standing::of(manifest, &manifest.operators[index], self.shapes[index].spec())
    }

    /// Masks what every operator's horizon has passed.
    pub(super) fn set_horizons(&self, manifest: &Manifest) -> Result<()> {
        for (index, operator) in manifest.operators.iter().enumerate() {
            self.state.set_horizon(FamilyId(index), operator.horizon)?;
        }
        Ok(())
    }
}

fn refuse(state: &OperatorState, why: String) -> Error {
    let message = format!("state of a window cannot be read by this version: window={} {why}", state.name);
    Error::new(ErrorKind::Incompatible, message)
        .with_remedy("use the version of floodmark that wrote the checkpoint; `inspect show` names it")
}

impl EventShape {
    fn new(state: &OperatorState) -> Result<Self> {
        if state.state_version != EVENTS_VERSION {
            return Err(refuse(
                state,
                format!("state_version={} known={EVENTS_VERSION}", state.state_version),
            ));
        }
        match event_definition(state) {
            Some(definition) if event_family(&state.name).column_family() == state.family => {
                Ok(Self { name: state.name.clone(), definition })
            }
            _ => Err(refuse(state, format!("family={} definition={}", state.family, state.definition))),
        }
    }

    /// `join` or `dedup`.
    pub(super) fn noun(&self) -> &'static str {
        self.definition.noun()
    }

    /// Says what is wrong with a stored row.
    pub(super) fn check(&self, end: EventTime, key: &[u8], stored: Stored<'_>) -> Result<(), String> {
        match stored {
            Stored::Pane(payload) => {
                self.definition.check_row(end, key, payload).map_err(|error| error.to_string())
            }
            Stored::Damaged(_) => Err("stored event is marked as damaged".to_owned()),
        }
    }
}

/// The definition in a manifest of an operator that keeps events.
pub(super) fn event_definition(state: &OperatorState) -> Option<EventDefinition> {
    serde_json::from_str(&state.definition).ok()
}

impl Shape {
    /// The shape that a manifest describes, if this version reads it.
    fn new(index: usize, state: &OperatorState) -> Result<Self> {
        let refuse = |why: String| refuse(state, why);
        if state.state_version != STATE_VERSION {
            return Err(refuse(format!("state_version={} known={STATE_VERSION}", state.state_version)));
        }
        let spec = definition(state).ok_or_else(|| refuse(format!("definition={}", state.definition)))?;
        if spec.name != state.name || family(&spec).column_family() != state.family {
            return Err(refuse(format!("family={} definition={}", state.family, state.definition)));
        }
        let unknown = |defined: &&Defined| !defined.is_known();
        if let Some(defined) = spec.aggregates.iter().filter_map(|a| a.defined.as_ref()).find(unknown) {
            return Err(refuse(format!("aggregate={defined:?} (defined by the program that wrote it)")));
        }
        if let Some(problem) = spec.aggregates.iter().find_map(|aggregate| aggregate.check().err()) {
            return Err(refuse(format!("definition={} {problem}", state.definition)));
        }
        let mut operator = WindowOperator::new(index, spec);
        operator.forget(state.horizon);
        let fingerprint = operator.layout().fingerprint();
        if fingerprint != state.fingerprint {
            return Err(refuse(format!("fingerprint={fingerprint:016x} stored={:016x}", state.fingerprint)));
        }
        Ok(Self { operator })
    }

    /// The definition.
    pub(super) fn spec(&self) -> &OperatorSpec {
        self.operator.spec()
    }

    /// Room for one stored row.
    pub(super) fn row(&self) -> RowBuffer {
        RowBuffer::new(self.operator.layout())
    }

    /// Reads a stored pane into `row` and returns its events, or says why it cannot be read.
    pub(super) fn read(&self, stored: Stored<'_>, row: &mut RowBuffer) -> Result<u64, String> {
        row.clear();
        match stored {
            Stored::Pane(payload) => row.push_payload(&[], payload).map_err(|error| error.to_string())?,
            Stored::Damaged(_) => return Err("pane is damaged, its parts could not be merged".to_owned()),
        }
        Ok(row.row(0).events())
    }

    /// The window, or the slice that windows share, of a row that was read.
    pub(super) fn window(&self, end: EventTime, row: &RowBuffer) -> Window {
        let words = if row.is_empty() { &[][..] } else { row.row(0).words() };
        self.operator.stored_window(end, words)
    }

    /// How often a row that was read was emitted; `None` where panes fire once.
    pub(super) fn emissions(&self, row: &RowBuffer) -> Option<u32> {
        self.operator.stored_emissions(row.row(0).words())
    }

    /// When a row that was read fires early next, by event time; `None` where it does not.
    pub(super) fn next_boundary(&self, row: &RowBuffer) -> Option<EventTime> {
        if row.is_empty() { None } else { self.operator.stored_boundary(row.row(0).words()) }
    }

    /// The aggregates of a row that was read.
    pub(super) fn aggregates(&self, row: &RowBuffer) -> Aggregates {
        let mut values: Vec<Value> = Vec::new();
        row.row(0).finish(&mut values);
        let names = self.spec().aggregates.iter().map(|aggregate| aggregate.name.clone());
        Aggregates(names.zip(values).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregate::{AggregateSpec, Function, InputType};
    use crate::event_time::{Span, Tumbling, Watermark};

    fn stored(spec: &OperatorSpec) -> OperatorState {
        let operator = WindowOperator::new(0, spec.clone());
        OperatorState {
            name: spec.name.clone(),
            family: family(spec).column_family(),
            definition: serde_json::to_string(spec).unwrap(),
            fingerprint: operator.layout().fingerprint(),
            state_version: STATE_VERSION,
            allowed_lateness: spec.allowed_lateness,
            watermark: Watermark::None,
            horizon: Watermark::None,
            open_panes: None,
        }
    }

    fn spec() -> OperatorSpec {
        let hour = Tumbling::new(Span::from_millis(3_600_000).unwrap(), 0).unwrap();
        let over = |name, function, field, column| {
            AggregateSpec::over(name, function, field, InputType::Int, column)
        };
        let aggregates = vec![
            over("a_min", Function::Min, "a", 7),
            over("b_min", Function::Min, "b", 3),
            over("a_avg", Function::Avg, "a", 7),
            over("a_sum", Function::Sum, "a", 7),
        ];
        OperatorSpec::new("hourly", hour, &["k"], aggregates)
    }

    #[test]
    fn the_layout_comes_back_without_the_columns_of_the_run() {
        let written = WindowOperator::new(0, spec());
        let shape = Shape::new(0, &stored(&spec())).unwrap();
        assert_eq!(shape.operator.layout().stride(), written.layout().stride());
        // Two fields of one function do not share words, two functions of one field do.
        assert_eq!(shape.operator.layout().identity(), written.layout().identity());
    }

    #[test]
    fn a_definition_that_no_version_writes_is_refused_and_never_panics() {
        let good = stored(&spec());
        let refused = |change: &dyn Fn(&mut OperatorState)| {
            let mut state = good.clone();
            change(&mut state);
            assert_ne!(state, good, "nothing was changed");
            Shape::new(0, &state).err().map(|error| error.kind())
        };
        let incompatible = Some(ErrorKind::Incompatible);
        let replace = |state: &mut OperatorState, from: &str, to: &str| {
            state.definition = state.definition.replace(from, to);
        };
        assert_eq!(refused(&|state| replace(state, "3600000", "0")), incompatible);
        assert_eq!(refused(&|state| replace(state, "3600000", "-5")), incompatible);
        assert_eq!(refused(&|state| replace(state, "a_min", "a_low")), incompatible);
        assert_eq!(refused(&|state| replace(state, "hourly", "daily")), incompatible);
        assert_eq!(refused(&|state| state.definition.clear()), incompatible);
        assert_eq!(refused(&|state| state.state_version += 1), incompatible);
        assert_eq!(refused(&|state| state.fingerprint ^= 1), incompatible);
    }
}
