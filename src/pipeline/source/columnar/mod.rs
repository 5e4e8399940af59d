//! Events out of Arrow record batches, column by column.
//!
//! What a row means is what it would mean as a line of JSON, and the module `row` beside this one alone says that: the
//! few rows of a batch that may be refused, and those that only it can judge, are written as JSON and go the way of a
//! line. All others, in runs as long as they get, are copied column by column by `plain`, which has found beforehand that
//! nothing is to be said about them. `shape` settles what a column may be taken for, `cells` brings Arrow's types to a
//! handful, `render` is how a row reads.
//!
//! ```
//! use std::sync::Arc;
//!
//! use arrow_array::{Int64Array, RecordBatch, StringArray, TimestampMillisecondArray};
//! use floodmark::aggregate::InputType;
//! use floodmark::event::{EventBatch, PartitionId};
//! use floodmark::pipeline::config::TimeFormat;
//! use floodmark::pipeline::source::ParsePlan;
//! use floodmark::pipeline::source::columnar::ColumnarReader;
//!
//! let times = TimestampMillisecondArray::from(vec![Some(1_000), None]);
//! let rows = RecordBatch::try_from_iter([
//!     ("at", Arc::new(times) as _),
//!     ("customer", Arc::new(StringArray::from(vec!["ada", "bob"])) as _),
//!     ("amount", Arc::new(Int64Array::from(vec![5, 7])) as _),
//! ])?;
//! let plan = ParsePlan::new("at", TimeFormat::Column).key(&["customer"]).value("amount", InputType::Int);
//! let mut reader = ColumnarReader::new(plan, &rows.schema())?;
//! let (mut batch, mut rejected) = (reader.batch(PartitionId(0)), Vec::new());
//! reader.read(&rows, 1, &mut batch, &mut rejected)?; // then: store.process(&batch, &mut results)
//! assert_eq!((batch.len(), batch.times[0], batch.keys[0].get(0)), (1, 1_000, &b"ada"[..]));
//! assert_eq!(rejected[0].reason.name(), "null_timestamp");
//! assert_eq!(rejected[0].text, br#"{"at":null,"customer":"bob","amount":7}"#);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cells;
mod filters;
#[cfg(any(test, feature = "fault-injection"))]
pub(crate) mod fuzzing;
mod plain;
mod render;
mod shape;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::Schema;

use self::cells::{Cells, Values};
use self::plain::Row;
use self::render::{Column, Rows};
use self::shape::{Misfit, Shape};
use super::partition::{MissingColumn, slots};
use super::plan::ParsePlan;
use super::reject::Rejected;
use super::row::{Outcome, RowReader};
use super::time::TimeReader;
use super::token::{Kind, Token};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{EventBatch, KeyColumn, PartitionId, ValueColumn};
use crate::pipeline::config::{EpochUnit, TimeConfig, TimeFormat};

/// Makes events of the rows of record batches that have one schema.
#[derive(Debug)]
pub struct ColumnarReader {
    rows: RowReader,
    // What is read of a batch, in the order of its columns.
    columns: Arc<Vec<Column>>,
    // Which of these the parts of the plan are.
    places: Places,
    types: Vec<(usize, arrow_schema::DataType)>,
    // Where the event time is, and what the watermark follows.
    times: Times,
    found: Vec<Row>,
    millis: Vec<i64>,
    text: Vec<u8>,
    shown: Vec<(u64, RecordBatch)>,
}

/// For each part of a plan which of the columns that are read it is.
#[derive(Clone, Debug)]
struct Places {
    filters: Vec<usize>,
    values: Vec<usize>,
    keys: Vec<Vec<usize>>,
}

/// Columns that hold times, each with the unit that its type says, where it does.
#[derive(Clone, Copy, Debug)]
struct Times {
    event: (usize, Option<EpochUnit>),
    punctuation: Option<(usize, Option<EpochUnit>)>,
}

impl ColumnarReader {
    /// A reader of batches of this schema. Columns that the plan does not name are passed over, and may be of any type.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when a column is missing, or when its type can never be what the plan takes it for.
    pub fn new(plan: ParsePlan, schema: &Schema) -> Result<Self> {
        Self::about(plan, schema, None)
    }

    /// As [`ColumnarReader::new`], with the name of the file that errors are to name.
    pub(super) fn about(plan: ParsePlan, schema: &Schema, file: Option<&str>) -> Result<Self> {
        let fields = plan.fields();
        let names: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
        let found = slots(&names, &fields).map_err(|missing| missing_column(missing, file))?;
        let mut columns = Vec::new();
        let mut types = Vec::new();
        for (index, slot) in found.into_iter().enumerate() {
            let Some(slot) = slot else { continue };
            let kind = schema.field(index).data_type();
            let shape = Shape::of(kind).map_err(|misfit| misfit.about(&names[index], file))?;
            columns.push(Column::new(index, &names[index], shape, slot));
            types.push((index, kind.clone()));
        }
        // Every slot has its column, or `slots` had said so.
        let place = |slot| columns.iter().position(|column| column.slot == slot).unwrap_or(0);
        let of = |field: &String| place(fields.iter().position(|known| known == field).unwrap_or(0));
        let places = Places {
            filters: plan.filters.iter().map(|filter| of(&filter.field)).collect(),
            values: plan.values.iter().map(|value| of(&value.field)).collect(),
            keys: plan.keys.iter().map(|key| key.iter().map(|part| of(&part.field)).collect()).collect(),
        };
        check(&plan, file, |field| columns[of(field)].shape)?;
        let time = |field: &String| -> Result<_> {
            let place = of(field);
            let shape = columns[place].shape;
            let format = shape.time_format(&plan.time.format).map_err(|misfit| misfit.about(field, file))?;
            let config = TimeConfig { field: field.clone(), format, ..plan.time.clone() };
            Ok(match (shape, &config.format) {
                (Shape::Time(unit), _) => ((place, Some(unit)), TimeReader::of_column(config, unit)),
                _ => ((place, None), TimeReader::new(config)),
            })
        };
        let (event, event_reader) = time(&plan.time.field)?;
        let punctuation = plan.punctuation.as_ref().map(time).transpose()?;
        let (punctuation, punctuation_reader) = punctuation.unzip();
        Ok(Self {
            rows: RowReader::with_times(plan, event_reader, punctuation_reader),
            columns: Arc::new(columns),
            places,
            types,
            times: Times { event, punctuation },
            found: Vec::new(),
            millis: Vec::new(),
            text: Vec::new(),
            shown: Vec::new(),
        })
    }

    /// An empty batch with the columns of the plan.
    #[must_use]
    pub fn batch(&self, partition: PartitionId) -> EventBatch {
        let mut batch = EventBatch { partition, ..EventBatch::default() };
        self.rows.prepare(&mut batch);
        batch
    }

    /// Appends the rows of `from` to `into`, which is a [`ColumnarReader::batch`], or one that was cleared; those that
    /// cannot become events go to `rejected`. `first` is the record number of the first row; rows that are appended to
    /// one batch have ascending numbers. Returns how many rows a filter has passed over.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when the batch is not of the schema that the reader was made for.
    pub fn read(
        &mut self,
        from: &RecordBatch,
        first: u64,
        into: &mut EventBatch,
        rejected: &mut Vec<Rejected>,
    ) -> Result<u64> {
        let mut filtered = 0;
        self.read_rows(from, first, into, rejected, |_| filtered += 1)?;
        Ok(filtered)
    }

    /// Takes the bounds for the rows to come.
    #[cfg(feature = "parquet")]
    pub(super) fn set_limits(&mut self, limits: crate::operator::Limits) {
        self.rows.set_limits(limits);
    }

    /// The columns of a batch that are read, by index.
    #[cfg(feature = "parquet")]
    pub(super) fn indexes(&self) -> impl Iterator<Item = usize> + '_ {
        self.columns.iter().map(|column| column.index)
    }

    pub(super) fn read_rows(
        &mut self,
        from: &RecordBatch,
        first: u64,
        into: &mut EventBatch,
        rejected: &mut Vec<Rejected>,
        mut filtered: impl FnMut(u64),
    ) -> Result<()> {
        self.check_types(from)?;
        self.show(from, first, into);
        let columns = Arc::clone(&self.columns);
        let arrays = columns.iter().map(|column| from.column(column.index).as_ref());
        let cells: Vec<Cells<'_>> = arrays.map(Cells::of).collect();
        self.look(&cells, from.num_rows());
        let mut row = 0;
        while row < from.num_rows() {
            let what = self.found[row];
            let record = first + row as u64;
            match what {
                Row::Plain => {
                    let same = self.found[row..].iter().take_while(|found| **found == Row::Plain).count();
                    self.append(&cells, row, row + same, into);
                    into.records.extend(record..record + same as u64);
                    row += same;
                    continue;
                }
                Row::Filtered => filtered(record),
                Row::Doubtful => match self.judge(&cells, row, into) {
                    (Outcome::Event, _) => into.records.push(record),
                    (Outcome::Filtered, _) => filtered(record),
                    (Outcome::Refused(refusal), length) => {
                        rejected.push(refusal.at(record, None, &self.text[..length]));
                    }
                },
            }
            row += 1;
        }
        check_size(into)
    }

    fn check_types(&self, from: &RecordBatch) -> Result<()> {
        let schema = from.schema_ref();
        let is_other = |(index, kind): &&(usize, arrow_schema::DataType)| {
            schema.fields().get(*index).is_none_or(|field| field.data_type() != kind)
        };
        match self.types.iter().find(is_other) {
            None => Ok(()),
            Some((index, kind)) => {
                let message = format!(
                    "a record batch has another schema than the reader was made for: column={index} type={kind}"
                );
                Err(Error::new(ErrorKind::Invalid, message).with_remedy("make a reader for each schema"))
            }
        }
    }

    /// Lets late and rejected events be shown as the rows they came from.
    fn show(&mut self, from: &RecordBatch, first: u64, into: &mut EventBatch) {
        if into.rows.is_none() {
            self.shown.clear();
        }
        self.shown.push((first, from.clone()));
        into.rows = Some(Arc::new(Rows { columns: Arc::clone(&self.columns), batches: self.shown.clone() }));
    }

    /// Lets one row go the way of a line of JSON; also how long the row is in the text.
    fn judge(&mut self, cells: &[Cells<'_>], row: usize, into: &mut EventBatch) -> (Outcome, usize) {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        let slots = self.rows.fields.len();
        let mut tokens = std::mem::take(&mut self.rows.tokens);
        render::append_row(&mut text, &self.columns, row, |place| &cells[place], &mut tokens);
        let length = text.len();
        let times = [Some(self.times.event), self.times.punctuation];
        for (slot, (place, unit)) in times.into_iter().enumerate().filter_map(|(at, time)| Some((at, time?)))
        {
            tokens[slots + slot] = match (&cells[place].values, unit) {
                (Values::Times(values), Some(_)) if !cells[place].is_null(row) => {
                    let start = text.len();
                    text.extend_from_slice(itoa::Buffer::new().format(values[row]).as_bytes());
                    Token::new(Kind::Number, start, text.len())
                }
                _ => tokens[self.columns[place].slot],
            };
        }
        self.rows.tokens = tokens;
        let outcome = self.rows.push(&text, into);
        self.text = text;
        (outcome, length)
    }
}

impl Misfit {
    fn about(self, field: &str, file: Option<&str>) -> Error {
        let file = file.map(|file| format!(": file={file}")).unwrap_or_default();
        let message = format!("column `{field}` {}{file}", self.problem);
        Error::new(ErrorKind::Invalid, message).with_remedy(self.remedy)
    }
}

fn missing_column(missing: MissingColumn, file: Option<&str>) -> Error {
    missing.about(file.unwrap_or("the record batches"))
}

/// Refuses what a batch has no room for.
fn check_size(batch: &EventBatch) -> Result<()> {
    let texts = batch.values.iter().filter_map(|column| match column {
        ValueColumn::Text { values, .. } => Some(values),
        _ => None,
    });
    let is_full = |column: &KeyColumn| u32::try_from(column.bytes()).is_err();
    if u32::try_from(batch.len()).is_ok() && !batch.keys.iter().chain(texts).any(is_full) {
        return Ok(());
    }
    let message =
        format!("a batch of events is too large: events={} text_bytes_max={}", batch.len(), u32::MAX);
    Err(Error::new(ErrorKind::Invalid, message)
        .with_remedy("read slices of some thousand rows, each into a batch"))
}

/// Refuses columns that can never be what the plan takes them for.
fn check(plan: &ParsePlan, file: Option<&str>, shape: impl Fn(&String) -> Shape) -> Result<()> {
    let keys = plan.keys.iter().zip(&plan.reads_key).filter(|(_, read)| **read);
    for part in keys.flat_map(|(key, _)| key) {
        let checked = shape(&part.field).check_key(part.key_type);
        checked.map_err(|misfit| misfit.about(&part.field, file))?;
    }
    for (value, _) in plan.values.iter().zip(&plan.reads_value).filter(|(_, read)| **read) {
        let checked = shape(&value.field).check_value(value.input);
        checked.map_err(|misfit| misfit.about(&value.field, file))?;
    }
    for filter in &plan.filters {
        let checked = shape(&filter.field).check_filter(filter);
        checked.map_err(|misfit| misfit.about(&filter.field, file))?;
    }
    Ok(())
}

/// How the times of a source are read where rows have types.
pub(super) fn is_text(format: &TimeFormat) -> bool {
    matches!(format, TimeFormat::Rfc3339 | TimeFormat::Strftime { .. })
}
