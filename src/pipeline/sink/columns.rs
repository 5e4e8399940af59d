//! Rows with types: which columns an output has, and a walk over the cells of a row in their order.
//!
//! For formats that have types of their own, Parquet and tables. It knows nothing of either.

use super::error::SinkError;
use super::row::{Component, KeyKind, Shape, row_kind};
use crate::aggregate::{AVG_DIGITS, AggregateSpec, Function, InputType, Value};
use crate::event_time::{EventTime, Watermark, Window};
use crate::operator::{JoinedRow, ResultRow, RowKind};

/// What the values of a column are. Any of them may be null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// Text.
    Text,
    /// Integers of 64 bits.
    Int,
    /// Integers of up to 38 digits: sums of 64-bit ones.
    Whole,
    /// Decimals of up to 38 digits, this many of them behind the point.
    Decimal(u8),
    /// Double-precision floats.
    Float,
    /// Moments, to the millisecond.
    Time,
    /// Lists and records, as the text of their JSON.
    Json,
}

impl ColumnType {
    /// That of values of a field.
    #[must_use]
    pub const fn of_input(input: InputType) -> Self {
        match input {
            InputType::Int => Self::Int,
            InputType::Float => Self::Float,
            InputType::Decimal(scale) => Self::Decimal(scale),
            InputType::Text => Self::Text,
        }
    }

    /// That of what an aggregate computes.
    #[must_use]
    pub fn of_aggregate(aggregate: &AggregateSpec) -> Self {
        Self::of_function(aggregate.function, aggregate.input.as_ref().map(|input| input.kind))
    }

    /// That of what a function computes of values of a type; without one, of what has none.
    #[must_use]
    pub fn of_function(function: Function, input: Option<InputType>) -> Self {
        let input = input.map_or(Self::Int, Self::of_input);
        match function {
            Function::Count | Function::Distinct { .. } | Function::ApproxDistinct { .. } => Self::Int,
            Function::Sum if input == Self::Int => Self::Whole,
            Function::Sum | Function::Min | Function::Max | Function::First | Function::Last => input,
            Function::Avg => match input {
                Self::Decimal(scale) => Self::Decimal(scale.saturating_add(AVG_DIGITS)),
                _ => Self::Float,
            },
            Function::Variance
            | Function::VariancePop
            | Function::Stddev
            | Function::StddevPop
            | Function::Quantile { .. } => Self::Float,
            Function::TopK { .. } | Function::Collect { .. } | Function::Defined => Self::Json,
        }
    }
}

/// One column of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::pipeline) struct Column {
    pub(in crate::pipeline) name: String,
    pub(in crate::pipeline) kind: ColumnType,
    /// Whether it may be null.
    pub(in crate::pipeline) nullable: bool,
}

/// Takes the cells of rows one after the other, in the order of the columns.
pub(in crate::pipeline) trait Cells {
    fn null(&mut self);
    fn bytes(&mut self, bytes: &[u8]);
    fn int(&mut self, value: i64);
    fn whole(&mut self, unscaled: i128, scale: u8);
    fn float(&mut self, value: f64);
    fn time(&mut self, time: EventTime);
    fn json(&mut self, value: &Value);
}

/// Results or joined rows, cell by cell.
#[derive(Debug)]
pub(super) struct TypedRows {
    shape: Shape,
    types: Vec<ColumnType>,
    columns: Vec<Column>,
    window: Window,
    watermark: Watermark,
    takes_back: Option<RowKind>,
    left_fields: usize,
    scratch: Vec<u8>,
}

impl TypedRows {
    /// Rows of results: key, window, aggregates, metadata. The bounds are null where `unbounded`.
    pub(super) fn results(shape: Shape, types: Vec<ColumnType>, unbounded: bool) -> Self {
        let mut columns = key_columns(&shape);
        columns.extend(["window_start", "window_end"].map(|name| column(name, ColumnType::Time, unbounded)));
        columns.extend(shape.aggregates.iter().zip(&types).map(|(name, &kind)| column(name, kind, true)));
        if shape.metadata {
            columns.push(column("pane", ColumnType::Text, false));
            columns.push(column("pane_index", ColumnType::Int, false));
            columns.push(column("watermark", ColumnType::Time, true));
        }
        if shape.row_kinds {
            columns.push(column("row_kind", ColumnType::Text, false));
        }
        Self::new(shape, types, columns, 0)
    }

    /// Rows of a join: key, both times, the fields of both sides.
    pub(super) fn joined(shape: Shape, types: Vec<ColumnType>, left_fields: usize) -> Self {
        let mut columns = key_columns(&shape);
        columns.extend(["left_time", "right_time"].map(|name| column(name, ColumnType::Time, true)));
        columns.extend(shape.aggregates.iter().zip(&types).map(|(name, &kind)| column(name, kind, true)));
        Self::new(shape, types, columns, left_fields)
    }

    fn new(shape: Shape, types: Vec<ColumnType>, columns: Vec<Column>, left_fields: usize) -> Self {
        let (window, watermark) = (Window::ALL, Watermark::None);
        Self { shape, types, columns, window, watermark, takes_back: None, left_fields, scratch: Vec::new() }
    }

    /// The columns, in order.
    pub(super) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Prepares what all rows of a block share.
    pub(super) fn begin(&mut self, window: Window, watermark: Watermark, takes_back: Option<RowKind>) {
        (self.window, self.watermark, self.takes_back) = (window, watermark, takes_back);
    }

    /// Hands the cells of a result to `cells`.
    pub(super) fn walk(&mut self, row: &ResultRow<'_>, cells: &mut impl Cells) -> Result<(), SinkError> {
        self.shape.check(row)?;
        self.check_values(row.values)?;
        self.key(row.key, cells)?;
        for bound in [self.window.start, self.window.end] {
            match self.window == Window::ALL {
                true => cells.null(),
                false => cells.time(bound),
            }
        }
        row.values.iter().zip(&self.types).for_each(|(value, &kind)| cell(cells, value, kind));
        if self.shape.metadata {
            cells.bytes(row.kind.name().as_bytes());
            cells.int(i64::from(row.pane_index));
            moment(cells, self.watermark.instant());
        }
        if self.shape.row_kinds {
            cells.bytes(row_kind(self.takes_back, row).name().as_bytes());
        }
        Ok(())
    }

    /// Hands the cells of a joined row to `cells`.
    pub(super) fn walk_joined(
        &mut self,
        row: &JoinedRow<'_>,
        cells: &mut impl Cells,
    ) -> Result<(), SinkError> {
        let (left, right) = self.types.split_at(self.left_fields);
        for (event, types) in [(row.left, left), (row.right, right)] {
            if let Some(event) = event {
                check(&self.shape.sink, event.values, types)?;
            }
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        walk_key(&self.shape, row.key, &mut scratch, cells)?;
        for event in [row.left, row.right] {
            moment(cells, event.map(|event| event.time));
        }
        for (event, types) in [(row.left, left), (row.right, right)] {
            for (index, &kind) in types.iter().enumerate() {
                cell(cells, event.map_or(&Value::Null, |event| &event.values[index]), kind);
            }
        }
        self.scratch = scratch;
        Ok(())
    }

    fn key(&mut self, key: &[u8], cells: &mut impl Cells) -> Result<(), SinkError> {
        walk_key(&self.shape, key, &mut self.scratch, cells)
    }

    /// No cell is handed out before all are known to fit.
    fn check_values(&self, values: &[Value]) -> Result<(), SinkError> {
        check(&self.shape.sink, values, &self.types)
    }
}

fn walk_key(
    shape: &Shape,
    key: &[u8],
    scratch: &mut Vec<u8>,
    cells: &mut impl Cells,
) -> Result<(), SinkError> {
    shape.check_key(key, scratch)?;
    shape.components(key, scratch, |_, component| match component {
        Component::Text(bytes) => cells.bytes(bytes),
        Component::Int(value) => cells.int(value),
    })
}

fn moment(cells: &mut impl Cells, time: Option<EventTime>) {
    match time {
        Some(time) => cells.time(time),
        None => cells.null(),
    }
}

fn key_columns(shape: &Shape) -> Vec<Column> {
    let kind = |kind: KeyKind| match kind {
        KeyKind::Text => ColumnType::Text,
        KeyKind::Int => ColumnType::Int,
    };
    shape.keys.iter().map(|key| column(&key.name, kind(key.kind), false)).collect()
}

fn column(name: &str, kind: ColumnType, nullable: bool) -> Column {
    Column { name: name.to_owned(), kind, nullable }
}

/// Checks values and hands them to `cells`, as the columns of a row that begins elsewhere.
pub(in crate::pipeline) fn walk_values(
    what: &str,
    values: &[Value],
    types: &[ColumnType],
    cells: &mut impl Cells,
) -> Result<(), SinkError> {
    check(what, values, types)?;
    values.iter().zip(types).for_each(|(value, &kind)| cell(cells, value, kind));
    Ok(())
}

/// Most digits of a decimal column.
const DIGITS_MAX: u128 = 10_u128.pow(38) - 1;

fn check(sink: &str, values: &[Value], types: &[ColumnType]) -> Result<(), SinkError> {
    let fits = |(value, &kind): (&Value, &ColumnType)| match (value, kind) {
        (Value::Null, _) | (_, ColumnType::Json) => true,
        (Value::Int(value), ColumnType::Int) => i64::try_from(*value).is_ok(),
        (Value::Int(value), ColumnType::Whole) => value.unsigned_abs() <= DIGITS_MAX,
        (Value::Decimal { unscaled, scale }, ColumnType::Decimal(of)) => {
            *scale == of && unscaled.unsigned_abs() <= DIGITS_MAX
        }
        (Value::Float(_), ColumnType::Float) | (Value::Text(_), ColumnType::Text) => true,
        _ => false,
    };
    match values.iter().zip(types).find(|pair| !fits(*pair)) {
        None if values.len() == types.len() => Ok(()),
        None => {
            let what = format!("row has {} values for {} columns", values.len(), types.len());
            Err(SinkError::Protocol { sink: sink.to_owned(), what })
        }
        Some((value, kind)) => {
            let what = format!("value does not fit its column: value={value} column={kind:?}");
            Err(SinkError::Protocol { sink: sink.to_owned(), what })
        }
    }
}

fn cell(cells: &mut impl Cells, value: &Value, kind: ColumnType) {
    match value {
        Value::Null => cells.null(),
        value if kind == ColumnType::Json => cells.json(value),
        Value::Int(value) if kind == ColumnType::Whole => cells.whole(*value, 0),
        // Checked before any cell was handed out.
        Value::Int(value) => cells.int(i64::try_from(*value).unwrap_or_default()),
        Value::Float(value) => cells.float(*value),
        Value::Text(text) => cells.bytes(text.as_bytes()),
        Value::Decimal { unscaled, scale } => cells.whole(*unscaled, *scale),
        Value::List(_) | Value::Record(_) => cells.json(value),
    }
}
