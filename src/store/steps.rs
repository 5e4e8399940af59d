//! Aggregations over the results of others: each step has a watermark of its own, which never overtakes its input.
//!
//! A result of `[s, e)` is an event at the last millisecond of its window. Results are handed on grouped by the
//! watermark that they were emitted at, and only then does the next step's watermark reach that; so no result comes
//! late, and none waits longer than the step before.

use crate::aggregate::{AggregateSpec, Function, InputType, Value};
use crate::codec::{KeyWriter, key_components};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{Datum, EventBatch, PartitionId, ValueColumn};
use crate::event_time::{EventTime, Watermark};
use crate::operator::{
    Advance, Emit, LateEvent, OperatorSpec, Rejection, ResultBlock, ResultRow, RowKind, TimeDomain,
};

/// Where the steps of a store get their events: nothing where they come from sources.
#[derive(Debug, Default)]
pub(super) struct Steps {
    steps: Vec<Option<Step>>,
    taken: Vec<Taken>,
}

/// How results of one operator become events of another.
#[derive(Debug)]
struct Step {
    from: usize,
    // Components of the results' key that make up the step's.
    key: Vec<usize>,
    components: usize,
    // For each column of the step the value of a result, and its type.
    columns: Vec<(usize, InputType)>,
}

/// A result on its way to the next step.
#[derive(Debug)]
struct Taken {
    operator: usize,
    watermark: Watermark,
    time: EventTime,
    key: Vec<u8>,
    values: Vec<Value>,
}

impl Steps {
    /// Resolves the names in `specs`, which get the columns of their own batches.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a step whose input is not an operator before it with such a key and such values, or
    /// one whose results are not final when they are emitted.
    pub(super) fn resolve(specs: &mut [OperatorSpec]) -> Result<Self> {
        let mut steps = Vec::with_capacity(specs.len());
        for index in 0..specs.len() {
            let (before, rest) = specs.split_at_mut(index);
            let spec = &mut rest[0];
            let step = spec.input.clone().map(|input| Step::resolve(before, &input, spec)).transpose();
            let step = step.map_err(|why| {
                Error::new(ErrorKind::Invalid, format!("window cannot be a step: name={} {why}", spec.name))
                    .with_remedy("let it read the final results of a window declared before it")
            })?;
            steps.push(step);
        }
        Ok(Self { steps, taken: Vec::new() })
    }

    /// True when `operator` is fed by another.
    pub(super) fn is_fed(&self, operator: usize) -> bool {
        self.source_of(operator).is_some()
    }

    /// The operator whose results `operator` is fed.
    pub(super) fn source_of(&self, operator: usize) -> Option<usize> {
        Some(self.steps.get(operator)?.as_ref()?.from)
    }

    /// True when no operator is fed by another.
    pub(super) fn is_empty(&self) -> bool {
        self.steps.iter().all(Option::is_none)
    }

    fn feeds(&self, operator: usize) -> bool {
        self.steps.iter().flatten().any(|step| step.from == operator)
    }

    /// What `operator` is to be fed: batches of events, each with the watermark that comes after it.
    pub(super) fn take_for(&mut self, operator: usize) -> Result<Vec<(EventBatch, Watermark)>> {
        let Some(Some(step)) = self.steps.get(operator) else { return Ok(Vec::new()) };
        let mut batches: Vec<(EventBatch, Watermark)> = Vec::new();
        for taken in self.taken.iter().filter(|taken| taken.operator == step.from) {
            if batches.last().is_none_or(|(_, watermark)| *watermark != taken.watermark) {
                batches.push((step.batch(), taken.watermark));
            }
            if let Some((batch, _)) = batches.last_mut() {
                step.push(taken, batch)?;
            }
        }
        Ok(batches)
    }

    /// Forgets what was taken, once every step has had it.
    pub(super) fn clear(&mut self) {
        self.taken.clear();
    }
}

impl Step {
    fn resolve(before: &[OperatorSpec], input: &str, spec: &mut OperatorSpec) -> Result<Self, String> {
        let from = before.iter().position(|known| known.name == input);
        let from = from.ok_or_else(|| format!("its input is no window declared before it: input={input}"))?;
        let source = &before[from];
        if !source.fires_once() || source.time != TimeDomain::Event {
            return Err(format!(
                "its input emits more than once per pane, or not by event time: input={input}"
            ));
        }
        if [source.advance, spec.advance].contains(&Advance::Batch) || spec.time != TimeDomain::Event {
            return Err("steps follow event time, event by event".to_owned());
        }
        if spec.sources.is_some() {
            return Err("it names an input and sources".to_owned());
        }
        let component = |field: &String| {
            let at = source.key.iter().position(|known| known == field);
            at.ok_or_else(|| format!("its input has no such key: input={input} field={field}"))
        };
        let key = spec.key.iter().map(component).collect::<Result<_, _>>()?;
        let mut columns: Vec<(usize, InputType)> = Vec::new();
        for aggregate in &mut spec.aggregates {
            let counts = aggregate.function == Function::Count;
            let Some(aggregate) = aggregate.input.as_mut() else { continue };
            let field = &aggregate.field;
            let at = source.aggregates.iter().position(|known| known.name == *field);
            let at = at.ok_or_else(|| format!("its input has no such value: input={input} field={field}"))?;
            let found = value_type(&source.aggregates[at]);
            if counts {
                // Only presence counts.
                aggregate.kind = found.unwrap_or(InputType::Int);
            } else if found != Some(aggregate.kind) {
                let found = found.map_or("neither a number nor text".to_owned(), |kind| kind.to_string());
                let kind = aggregate.kind;
                return Err(format!(
                    "a value of its input is of another type: field={field} type={kind} is={found}"
                ));
            }
            aggregate.column = columns.iter().position(|column| column.0 == at).unwrap_or(columns.len());
            if aggregate.column == columns.len() {
                columns.push((at, aggregate.kind));
            }
        }
        spec.key_column = 0;
        Ok(Self { from, key, components: source.key.len(), columns })
    }

    fn batch(&self) -> EventBatch {
        let column = |&(_, kind): &(usize, InputType)| kind.column();
        let columns: Vec<ValueColumn> = self.columns.iter().map(column).collect();
        EventBatch::with_columns(PartitionId(0), 1, columns)
    }

    fn push(&self, taken: &Taken, batch: &mut EventBatch) -> Result<()> {
        let damaged = || Error::new(ErrorKind::Bug, "a result has another key than its window");
        let parts = key_components(&taken.key, self.components.max(1)).ok_or_else(damaged)?;
        let mut key = Vec::new();
        let mut writer = KeyWriter::new(&mut key, self.key.len());
        for &component in &self.key {
            writer.push(parts.get(component).ok_or_else(damaged)?);
        }
        let values = self.columns.iter().map(|&(at, _)| match taken.values.get(at) {
            Some(value) => datum(value, &taken.key),
            None => Err(damaged()),
        });
        let values = values.collect::<Result<Vec<_>>>()?;
        batch.push_event(taken.time, &[&key], &values);
        Ok(())
    }
}

/// The type of an aggregate's value, where another aggregate can read it.
pub(crate) fn value_type(aggregate: &AggregateSpec) -> Option<InputType> {
    let kind = aggregate.input.as_ref().map(|input| input.kind);
    match aggregate.function {
        Function::Count => Some(InputType::Int),
        Function::Sum | Function::Min | Function::Max | Function::First | Function::Last => kind,
        Function::Avg if !matches!(kind, Some(InputType::Decimal(_))) => Some(InputType::Float),
        _ => None,
    }
}

fn datum<'v>(value: &'v Value, key: &[u8]) -> Result<Option<Datum<'v>>> {
    let too_large = |digits: &dyn std::fmt::Display| {
        let key = String::from_utf8_lossy(key);
        Error::new(
            ErrorKind::Invalid,
            format!("a result is too large for the next window: value={digits} key={key:?}"),
        )
        .with_remedy("let the first window compute smaller values, or read this one as float there")
    };
    Ok(Some(match value {
        Value::Null => return Ok(None),
        Value::Int(int) => Datum::Int(i64::try_from(*int).map_err(|_| too_large(int))?),
        Value::Float(float) => Datum::Float(*float),
        Value::Decimal { unscaled, scale } => {
            let fits =
                i64::try_from(*unscaled).ok().filter(|&unscaled| crate::event::has_decimal_digits(unscaled));
            Datum::Decimal { unscaled: fits.ok_or_else(|| too_large(value))?, scale: *scale }
        }
        Value::Text(text) => Datum::Text(text.as_bytes()),
        Value::List(_) | Value::Record(_) => {
            return Err(Error::new(ErrorKind::Bug, "a list is no input of an aggregate"));
        }
    }))
}

/// Hands everything on, and keeps a copy of the results that another step reads.
pub(super) struct Tee<'a> {
    pub(super) emit: &'a mut dyn Emit<Error = Error>,
    pub(super) steps: &'a mut Steps,
}

impl Emit for Tee<'_> {
    type Error = Error;

    fn results(&mut self, operator: usize, block: &mut dyn ResultBlock) -> Result<()> {
        if !self.steps.feeds(operator) {
            return self.emit.results(operator, block);
        }
        let mut copied = Copied { block, operator, taken: &mut self.steps.taken };
        self.emit.results(operator, &mut copied)
    }

    fn late(&mut self, operator: usize, event: LateEvent<'_>) -> Result<()> {
        self.emit.late(operator, event)
    }

    fn rejected(&mut self, batch: &EventBatch, index: usize, rejection: Rejection) -> Result<()> {
        self.emit.rejected(batch, index, rejection)
    }
}

struct Copied<'a> {
    block: &'a mut dyn ResultBlock,
    operator: usize,
    taken: &'a mut Vec<Taken>,
}

impl ResultBlock for Copied<'_> {
    fn window(&self) -> crate::event_time::Window {
        self.block.window()
    }

    fn watermark(&self) -> Watermark {
        self.block.watermark()
    }

    fn takes_back(&self) -> Option<RowKind> {
        self.block.takes_back()
    }

    fn next_row(&mut self) -> Option<ResultRow<'_>> {
        let (window, watermark) = (self.block.window(), self.block.watermark());
        let row = self.block.next_row()?;
        self.taken.push(Taken {
            operator: self.operator,
            watermark,
            time: EventTime::from_millis(window.end.as_millis().saturating_sub(1)),
            key: row.key.to_vec(),
            values: row.values.to_vec(),
        });
        Some(row)
    }
}
