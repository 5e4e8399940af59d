//! Aggregates with states of variable size, the built-in ones and those that a program defines: one trait, and its
//! form without types that a layout calls.

use std::any::TypeId;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::sketches::{AnyState, Held, Sketches};
use super::{InputType, Touch, Value};
use crate::event::{Datum, EventBatch, PartitionId};
use crate::event_time::EventTime;

/// A value together with the place of its event. Nulls never get there.
///
/// Time, partition and record number order all events in the same way whatever the batches, spills and restarts were.
/// Programs that leave record numbers out have 0 there: break such ties by the value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation<'a> {
    /// The value.
    pub value: Datum<'a>,
    /// When it happened.
    pub time: EventTime,
    /// Where it came from.
    pub partition: PartitionId,
    /// Its record number there, or 0.
    pub record: u64,
}

/// Stored bytes that are no state of an aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StateError(pub &'static str);

/// An aggregate with a state of any size.
///
/// The state of a pane is split over buffers, spills and restarts, and put together again in any order; so `merge`
/// must be associative and commutative with `identity` as neutral element, and `update` must be the merge of one
/// event. [`super::laws::check`] tries these laws on examples: call it in a test of every aggregate you define.
///
/// ```
/// use floodmark::aggregate::{Aggregate, Datum, Observation, StateError, Value, laws};
///
/// /// The number of values below zero.
/// #[derive(Debug)]
/// struct Negatives;
///
/// impl Aggregate for Negatives {
///     type State = u64;
///     fn name(&self) -> String {
///         "negatives".to_owned()
///     }
///     fn version(&self) -> u32 {
///         1
///     }
///     fn identity(&self) -> u64 {
///         0
///     }
///     fn update(&self, state: &mut u64, event: &Observation<'_>) {
///         *state += u64::from(matches!(event.value, Datum::Int(value) if value < 0));
///     }
///     fn merge(&self, state: &mut u64, other: &u64) {
///         *state = state.saturating_add(*other);
///     }
///     fn finish(&self, state: &u64) -> Value {
///         Value::Int(i128::from(*state))
///     }
///     fn encode(&self, state: &u64, bytes: &mut Vec<u8>) {
///         bytes.extend_from_slice(&state.to_le_bytes());
///     }
///     fn decode(&self, bytes: &[u8]) -> Result<u64, StateError> {
///         let bytes = bytes.try_into().map_err(|_| StateError("not eight bytes"))?;
///         Ok(u64::from_le_bytes(bytes))
///     }
/// }
///
/// let values = [Datum::Int(-3), Datum::Int(4), Datum::Int(-1)];
/// laws::check(&Negatives, &laws::at_different_times(&values)).unwrap();
/// ```
pub trait Aggregate: fmt::Debug + Send + Sync + 'static {
    /// What is kept of the events of a pane.
    type State: Clone + fmt::Debug + Send + Sync + 'static;

    /// The name with all parameters that change what is kept or computed, such as `distinct(limit=100)`. State that
    /// was made under another name is refused.
    fn name(&self) -> String;

    /// Version of what [`Aggregate::encode`] writes. State of another version is refused unless
    /// [`Aggregate::migrate`] reads it.
    fn version(&self) -> u32;

    /// The name of the state alone. Aggregates over one field share one state per pane when this and the type of their
    /// states are equal, as two quantiles do.
    fn state_name(&self) -> String {
        self.name()
    }

    /// Whether it can work with values of this type. Asked before any input is read.
    fn accepts(&self, input: InputType) -> bool {
        let _ = input;
        true
    }

    /// The state without events.
    fn identity(&self) -> Self::State;

    /// Adds one event.
    fn update(&self, state: &mut Self::State, event: &Observation<'_>);

    /// Adds what `other` holds.
    fn merge(&self, state: &mut Self::State, other: &Self::State);

    /// The result.
    fn finish(&self, state: &Self::State) -> Value;

    /// Appends the stored form of `state`.
    fn encode(&self, state: &Self::State, bytes: &mut Vec<u8>);

    /// Reads a stored form. The bytes come from a disk: anything may be in them, and this must neither panic nor
    /// reserve memory by a length it read.
    ///
    /// # Errors
    /// [`StateError`] when they are not a state.
    fn decode(&self, bytes: &[u8]) -> Result<Self::State, StateError>;

    /// Reads a state that an earlier `version` of this aggregate wrote: the migration that makes a new version open old
    /// checkpoints. `None`, the default, refuses them.
    ///
    /// A pane may be stored in parts, each of which is migrated by itself and then merged; so migrating and merging
    /// must give the same in either order. `docs/EVOLUTION.md` has an example.
    fn migrate(&self, version: u32, bytes: &[u8]) -> Option<Result<Self::State, StateError>> {
        let _ = (version, bytes);
        None
    }

    /// Bytes that `state` takes beyond its own size, for the memory budget.
    fn heap_bytes(&self, state: &Self::State) -> usize {
        let _ = state;
        0
    }
}

/// Where a layout keeps the states of an aggregate.
#[derive(Clone, Copy, Debug)]
pub(super) struct SketchPlace {
    pub(super) word: usize,
    pub(super) column: usize,
}

/// [`Aggregate`] without its types. The kind of state is found once per batch, not once per event.
pub(super) trait Erased: fmt::Debug + Send + Sync {
    fn state_name(&self) -> String;
    fn state_type(&self) -> TypeId;
    fn accepts(&self, input: InputType) -> bool;
    fn update(
        &self,
        place: SketchPlace,
        words: &mut [u64],
        stride: usize,
        sketches: &mut Sketches,
        touches: &[Touch],
        batch: &EventBatch,
    );
    /// Adds `other` to the state behind `word`, which stands for a state that there is.
    fn merge(&self, word: u64, sketches: &mut Sketches, other: &dyn AnyState);
    /// The result of a state, or of none.
    fn finish(&self, state: Option<&dyn AnyState>) -> Value;
    fn encode(&self, state: &dyn AnyState, bytes: &mut Vec<u8>);
    fn decode(&self, bytes: &[u8]) -> Result<Held, StateError>;
    /// The stored form of a state that an earlier version stored; `None` when there is no way from there.
    fn migrate(&self, version: u32, bytes: &[u8]) -> Option<Result<Vec<u8>, StateError>>;
}

const OWN_TYPE: &str = "a place of a layout holds states of its own aggregate only";

fn own<A: Aggregate>(state: &dyn AnyState) -> &A::State {
    state.as_any().downcast_ref().expect(OWN_TYPE)
}

fn bytes_of<A: Aggregate>(aggregate: &A, state: &A::State) -> usize {
    size_of::<A::State>() + aggregate.heap_bytes(state)
}

impl<A: Aggregate> Erased for A {
    fn state_name(&self) -> String {
        Aggregate::state_name(self)
    }

    fn state_type(&self) -> TypeId {
        TypeId::of::<A::State>()
    }

    fn accepts(&self, input: InputType) -> bool {
        Aggregate::accepts(self, input)
    }

    fn update(
        &self,
        place: SketchPlace,
        words: &mut [u64],
        stride: usize,
        sketches: &mut Sketches,
        touches: &[Touch],
        batch: &EventBatch,
    ) {
        let Some(column) = batch.values.get(place.column) else { return };
        for touch in touches {
            let event = touch.event as usize;
            let Some(value) = column.get(event) else { continue };
            let observation = Observation {
                value,
                time: EventTime::from_millis(batch.times.get(event).copied().unwrap_or_default()),
                partition: batch.partition,
                record: batch.records.get(event).copied().unwrap_or_default(),
            };
            let word = &mut words[touch.row as usize * stride + place.word];
            if *word == 0 {
                *word = sketches.insert(Held { state: Box::new(self.identity()), bytes: 0 });
            }
            sketches.change(*word, |state| {
                let state: &mut A::State = state.downcast_mut().expect(OWN_TYPE);
                Aggregate::update(self, state, &observation);
                bytes_of(self, state)
            });
        }
    }

    fn merge(&self, word: u64, sketches: &mut Sketches, other: &dyn AnyState) {
        sketches.change(word, |state| {
            let state: &mut A::State = state.downcast_mut().expect(OWN_TYPE);
            Aggregate::merge(self, state, own::<A>(other));
            bytes_of(self, state)
        });
    }

    fn finish(&self, state: Option<&dyn AnyState>) -> Value {
        match state {
            Some(state) => Aggregate::finish(self, own::<A>(state)),
            None => Aggregate::finish(self, &self.identity()),
        }
    }

    fn encode(&self, state: &dyn AnyState, bytes: &mut Vec<u8>) {
        Aggregate::encode(self, own::<A>(state), bytes);
    }

    fn decode(&self, bytes: &[u8]) -> Result<Held, StateError> {
        let state = Aggregate::decode(self, bytes)?;
        let bytes = bytes_of(self, &state);
        Ok(Held { state: Box::new(state), bytes })
    }

    fn migrate(&self, version: u32, bytes: &[u8]) -> Option<Result<Vec<u8>, StateError>> {
        let state = Aggregate::migrate(self, version, bytes)?;
        Some(state.map(|state| {
            let mut bytes = Vec::new();
            Aggregate::encode(self, &state, &mut bytes);
            bytes
        }))
    }
}

/// An aggregate that a program brings along. As part of a stored definition it is its name and version.
#[derive(Clone, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct Defined {
    name: String,
    version: u32,
    // None where a stored definition was read by a program that does not have the code.
    code: Option<Arc<dyn Erased>>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    name: String,
    version: u32,
}

impl Defined {
    /// Wraps an aggregate.
    #[must_use]
    pub fn new(aggregate: impl Aggregate) -> Self {
        let (name, version) = (Aggregate::name(&aggregate), Aggregate::version(&aggregate));
        Self { name, version, code: Some(Arc::new(aggregate)) }
    }

    /// Its name, with its parameters.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Version of its states.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// True when this program can compute it, and not only name it.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.code.is_some()
    }

    /// Whether it works with values of this type.
    #[must_use]
    pub fn accepts(&self, input: InputType) -> bool {
        self.code.as_ref().is_some_and(|code| code.accepts(input))
    }

    /// Whether states of `version` can be taken up: they are its own, or a migration of them is declared.
    ///
    /// A migration is asked with a state of no bytes, which it may well refuse; what counts is that it answers.
    #[must_use]
    pub fn reads_version(&self, version: u32) -> bool {
        let migrates = |code: &Arc<dyn Erased>| code.migrate(version, &[]).is_some();
        version == self.version || self.code.as_ref().is_some_and(migrates)
    }

    /// The same name and version, with the code of `other` or with none that computes: enough to lay out what was
    /// stored.
    pub(crate) fn laid_out_by(&self, other: Option<&Self>) -> Self {
        let code = other.and_then(|other| other.code.clone());
        let unknown = || Arc::new(Unknown { name: self.name.clone() }) as Arc<dyn Erased>;
        Self { code: Some(code.unwrap_or_else(unknown)), ..self.clone() }
    }

    pub(super) fn code(&self) -> Option<&Arc<dyn Erased>> {
        self.code.as_ref()
    }
}

/// Stands for an aggregate whose code is not there: its states are bytes to be passed over.
#[derive(Debug)]
struct Unknown {
    name: String,
}

impl Aggregate for Unknown {
    type State = Vec<u8>;

    fn name(&self) -> String {
        self.name.clone()
    }

    fn version(&self) -> u32 {
        0
    }

    fn identity(&self) -> Vec<u8> {
        Vec::new()
    }

    fn update(&self, _: &mut Vec<u8>, _: &Observation<'_>) {}

    fn merge(&self, _: &mut Vec<u8>, _: &Vec<u8>) {}

    fn finish(&self, _: &Vec<u8>) -> Value {
        Value::Null
    }

    fn encode(&self, state: &Vec<u8>, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(state);
    }

    fn decode(&self, bytes: &[u8]) -> Result<Vec<u8>, StateError> {
        Ok(bytes.to_vec())
    }
}

impl From<Stored> for Defined {
    fn from(stored: Stored) -> Self {
        Self { name: stored.name, version: stored.version, code: None }
    }
}

impl From<Defined> for Stored {
    fn from(defined: Defined) -> Self {
        Self { name: defined.name, version: defined.version }
    }
}

impl fmt::Debug for Defined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} version {}", self.name, self.version)
    }
}

impl PartialEq for Defined {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, self.version) == (&other.name, other.version)
    }
}

impl Eq for Defined {}

impl Hash for Defined {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.name, self.version).hash(state);
    }
}
