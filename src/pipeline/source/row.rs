//! From the tokens of one record to one event: filters, time, keys, values, in this order.
//!
//! A record becomes an event in all columns or in none. Knows no file and no format.

use super::json::Order;
use super::number::{FixedPoint, Integer, fixed_point, float, integer};
use super::plan::{ParsePlan, ValueField};
use super::reject::{Refusal, RejectReason, shown};
use super::time::TimeReader;
use super::token::{Kind, Token};
use crate::codec::KeyWriter;
use crate::event::{DECIMAL_DIGITS_MAX, Datum};
use crate::event_time::EventTime;
use crate::operator::{EventBatch, KeyColumn, Limits, ValueColumn};
use crate::pipeline::config::{Bound, Filter, InputType, KeyField, KeyType, Scalar, TimeConfig};

/// Longest key, in bytes as stored.
pub const KEY_BYTES_MAX: usize = 64 << 10;
/// Longest text that an aggregate reads, in bytes.
pub const VALUE_BYTES_MAX: usize = 64 << 10;

/// What became of a record.
#[derive(Debug)]
pub(super) enum Outcome {
    /// An event was added to the batch.
    Event,
    /// A filter said no.
    Filtered,
    /// It cannot become an event.
    Refused(Refusal),
}

/// A plan with its fields resolved to slots of the token list.
#[derive(Clone, Debug)]
pub(super) struct RowReader {
    /// Names of the slots.
    pub(super) fields: Vec<String>,
    /// Where JSON lines have them.
    pub(super) order: Order,
    /// The current record's values, one per slot.
    pub(super) tokens: Vec<Token>,
    pub(super) time: TimeReader,
    /// The slot of the watermark field, and how it is read.
    punctuation: Option<(usize, TimeReader)>,
    pub(super) scratch: Vec<u8>,
    plan: ParsePlan,
    time_slot: usize,
    key_slots: Vec<Vec<usize>>,
    value_slots: Vec<usize>,
    filter_slots: Vec<usize>,
}

impl RowReader {
    pub(super) fn new(plan: ParsePlan) -> Self {
        let fields = plan.fields();
        // Every name the plan holds is in the list that was made from it.
        let slot = |field: &String| fields.iter().position(|known| known == field).unwrap_or(0);
        let punctuation = plan.punctuation.as_ref().map(|field| {
            let config = TimeConfig { field: field.clone(), ..plan.time.clone() };
            (slot(field), TimeReader::new(config))
        });
        let key_slots =
            plan.keys.iter().map(|key| key.iter().map(|part| slot(&part.field)).collect()).collect();
        let value_slots = plan.values.iter().map(|value| slot(&value.field)).collect();
        let filter_slots = plan.filters.iter().map(|filter| slot(&filter.field)).collect();
        let time_slot = slot(&plan.time.field);
        let tokens = vec![Token::ABSENT; fields.len()];
        let time = TimeReader::new(plan.time.clone()).within(plan.windows.clone());
        Self {
            order: Order::new(&fields),
            fields,
            tokens,
            time,
            punctuation,
            scratch: Vec::new(),
            plan,
            time_slot,
            key_slots,
            value_slots,
            filter_slots,
        }
    }

    /// As [`RowReader::new`], for records whose times have a type: they are read by these, from slots of their own behind
    /// those of the fields.
    #[cfg(feature = "arrow")]
    pub(super) fn with_times(plan: ParsePlan, time: TimeReader, punctuation: Option<TimeReader>) -> Self {
        let mut reader = Self::new(plan);
        reader.time_slot = reader.fields.len();
        reader.time = time.within(reader.plan.windows.clone());
        reader.punctuation = punctuation.map(|punctuation| (reader.time_slot + 1, punctuation));
        reader.tokens.resize(reader.fields.len() + 2, Token::ABSENT);
        reader
    }

    /// What is taken of each record.
    #[cfg(feature = "arrow")]
    pub(super) fn plan(&self) -> &ParsePlan {
        &self.plan
    }

    /// Takes the bounds for the records to come. A watermark may be as early as it likes.
    pub(super) fn set_limits(&mut self, limits: Limits) {
        self.time.set_limits(limits);
        if let Some((_, reader)) = &mut self.punctuation {
            reader.set_limits(limits.without_lower());
        }
    }

    /// Takes the bounds that another reader of the same plan has.
    pub(super) fn take_limits(&mut self, from: &Self) {
        self.set_limits(from.time.limits());
    }

    /// The bounds that were taken last.
    #[cfg(feature = "parquet")]
    pub(super) fn limits(&self) -> Limits {
        self.time.limits()
    }

    /// Gives a batch the columns of the plan.
    pub(super) fn prepare(&self, batch: &mut EventBatch) {
        batch.clear();
        batch.keys.resize_with(self.plan.keys.len(), KeyColumn::default);
        // A field of which only the presence counts is a column of ones.
        let kind = |value: &ValueField| value.input.unwrap_or(InputType::Int);
        let fits = |(value, known): (&ValueField, &ValueColumn)| kind(value).fits(known);
        if batch.values.len() != self.plan.values.len()
            || !self.plan.values.iter().zip(&batch.values).all(fits)
        {
            batch.values = self.plan.values.iter().map(|value| kind(value).column()).collect();
        }
    }

    /// Adds the current record to the columns of `batch`, except its record number and place.
    pub(super) fn push(&mut self, text: &[u8], batch: &mut EventBatch) -> Outcome {
        for (filter, &slot) in self.plan.filters.iter().zip(&self.filter_slots) {
            match passes(filter, self.tokens[slot], text, &mut self.scratch) {
                Ok(true) => {}
                Ok(false) => return Outcome::Filtered,
                Err(refusal) => return Outcome::Refused(refusal),
            }
        }
        let events = batch.times.len();
        match self.try_push(text, batch) {
            Ok((time, punctuation)) => {
                batch.times.push(time);
                if let Some(millis) = punctuation {
                    // Blocks stay far below 4 Gi events.
                    let index = u32::try_from(events).unwrap_or(u32::MAX);
                    batch.punctuations.push((index, EventTime::from_millis(millis)));
                }
                Outcome::Event
            }
            Err(refusal) => {
                batch.values.iter_mut().for_each(|column| column.truncate(events));
                batch.keys.iter_mut().for_each(|column| column.truncate(events));
                Outcome::Refused(refusal)
            }
        }
    }

    /// The event time, and what the event says of the times to come.
    fn try_push(&mut self, text: &[u8], batch: &mut EventBatch) -> Result<(i64, Option<i64>), Refusal> {
        let time = self.time.read(text, self.tokens[self.time_slot], &mut self.scratch)?;
        let punctuation = match &self.punctuation {
            Some((slot, reader)) => reader.read_optional(text, self.tokens[*slot], &mut self.scratch)?,
            None => None,
        };
        let values = self.plan.values.iter().zip(&self.plan.reads_value);
        for ((value, read), (&slot, column)) in values.zip(self.value_slots.iter().zip(&mut batch.values)) {
            if !read {
                continue;
            }
            push_value(&value.field, value.input, self.tokens[slot], text, column, &mut self.scratch)?;
        }
        let keys = self.plan.keys.iter().zip(&self.plan.reads_key);
        for (((key, read), slots), column) in keys.zip(&self.key_slots).zip(&mut batch.keys) {
            if !read {
                continue;
            }
            let parts = key.iter().zip(slots.iter().map(|&slot| self.tokens[slot]));
            push_key(parts, key.len(), text, column, &mut self.scratch)?;
        }
        Ok((time, punctuation))
    }
}

fn push_key<'a>(
    parts: impl Iterator<Item = (&'a KeyField, Token)>,
    components: usize,
    text: &[u8],
    column: &mut KeyColumn,
    scratch: &mut Vec<u8>,
) -> Result<(), Refusal> {
    let bytes = column.open_key();
    let start = bytes.len();
    let mut writer = KeyWriter::new(bytes, components);
    for (part, token) in parts {
        let refuse = |reason, detail: String| Err(Refusal::field(reason, &part.field, detail));
        let raw = token.raw(text);
        if raw.len() > KEY_BYTES_MAX {
            return refuse(RejectReason::KeyTooLong, too_long(raw.len()));
        }
        match (token.kind, part.key_type) {
            (Kind::Absent, _) => {
                return refuse(RejectReason::MissingKey, "the record has no such field".to_owned());
            }
            (Kind::Null, _) => return refuse(RejectReason::NullKey, "the key is null".to_owned()),
            (Kind::Compound, _) => {
                return refuse(RejectReason::WrongType, format!("`{}` cannot be a key", shown(raw)));
            }
            (Kind::Cell, KeyType::Int) if raw.is_empty() => {
                return refuse(RejectReason::NullKey, "the key is empty".to_owned());
            }
            (kind, KeyType::Int) => {
                let value = whole(&part.field, kind, raw)?;
                writer.push(itoa::Buffer::new().format(value).as_bytes());
            }
            (Kind::EscapedText | Kind::QuotedCell, KeyType::Text) => match token.unescaped(text, scratch) {
                Some(key) => writer.push(key),
                None => {
                    let detail = format!("`{}` holds half a surrogate pair", shown(raw));
                    return refuse(RejectReason::BrokenRecord, detail);
                }
            },
            (_, KeyType::Text) => writer.push(raw),
        }
    }
    let length = column.open_key().len() - start;
    if length > KEY_BYTES_MAX {
        return Err(Refusal::record(RejectReason::KeyTooLong, too_long(length)));
    }
    column.finish_key();
    Ok(())
}

fn too_long(length: usize) -> String {
    format!("the key is too long: bytes={length} bytes_max={KEY_BYTES_MAX}")
}

fn push_value(
    field: &str,
    input: Option<InputType>,
    token: Token,
    text: &[u8],
    column: &mut ValueColumn,
    scratch: &mut Vec<u8>,
) -> Result<(), Refusal> {
    let raw = token.raw(text);
    match (token.kind, input) {
        (Kind::Absent | Kind::Null, _) => column.push_null(),
        (Kind::Cell, _) if raw.is_empty() => column.push_null(),
        (_, None) => column.push_int(1),
        (kind, Some(InputType::Int)) => column.push_int(whole(field, kind, raw)?),
        (kind, Some(InputType::Float)) => {
            column.push_float(decimal(field, kind, raw)?);
        }
        (kind, Some(InputType::Decimal(scale))) => {
            let unscaled = exact_decimal(field, kind, raw, scale)?;
            column.push(Datum::Decimal { unscaled, scale });
        }
        (_, Some(InputType::Text)) => push_text(field, token, text, column, scratch)?,
    }
    Ok(())
}

/// Adds a text: of a string its characters, of a number or a boolean the literal.
fn push_text(
    field: &str,
    token: Token,
    text: &[u8],
    column: &mut ValueColumn,
    scratch: &mut Vec<u8>,
) -> Result<(), Refusal> {
    let raw = token.raw(text);
    if token.kind == Kind::Compound {
        let detail = format!("`{}` is not a text", shown(raw));
        return Err(Refusal::field(RejectReason::WrongType, field, detail));
    }
    let Some(value) = token.unescaped(text, scratch) else {
        let detail = format!("`{}` holds half a surrogate pair", shown(raw));
        return Err(Refusal::field(RejectReason::BrokenRecord, field, detail));
    };
    if value.len() > VALUE_BYTES_MAX {
        let detail = format!("the text is too long: bytes={} bytes_max={VALUE_BYTES_MAX}", value.len());
        return Err(Refusal::field(RejectReason::ValueTooLong, field, detail));
    }
    column.push(Datum::Text(value));
    Ok(())
}

/// The decimal that a value stands for, times ten to the power of `scale`. It may be written as text.
fn exact_decimal(field: &str, kind: Kind, raw: &[u8], scale: u8) -> Result<i64, Refusal> {
    if !matches!(kind, Kind::Number | Kind::Cell | Kind::Text) {
        return Err(not_a_number(field, kind, raw));
    }
    let (reason, problem) = match fixed_point(raw, scale) {
        FixedPoint::Exact(value) => return Ok(value),
        FixedPoint::TooLarge => {
            (RejectReason::DecimalOutOfRange, format!("has more than {DECIMAL_DIGITS_MAX} digits"))
        }
        FixedPoint::TooFine => {
            (RejectReason::DecimalTooFine, format!("has more than {scale} digits behind the point"))
        }
        FixedPoint::NotANumber => {
            let detail = format!("`{}` is not a number", shown(raw));
            return Err(Refusal::field(RejectReason::WrongType, field, detail));
        }
    };
    Err(Refusal::field(reason, field, format!("`{}` {problem}", shown(raw))))
}

/// The integer that a value stands for.
fn whole(field: &str, kind: Kind, raw: &[u8]) -> Result<i64, Refusal> {
    if !matches!(kind, Kind::Number | Kind::Cell) {
        return Err(not_a_number(field, kind, raw));
    }
    let (reason, problem) = match integer(raw) {
        Integer::Exact(value) => return Ok(value),
        Integer::TooLarge => (RejectReason::IntegerOutOfRange, "does not fit into 64 bits"),
        Integer::Fraction => (RejectReason::NotAnInteger, "is not written as an integer"),
        Integer::NotANumber => return Err(not_a_number(field, kind, raw)),
    };
    Err(Refusal::field(reason, field, format!("`{}` {problem}", shown(raw))))
}

/// The float that a value stands for.
fn decimal(field: &str, kind: Kind, raw: &[u8]) -> Result<f64, Refusal> {
    if !matches!(kind, Kind::Number | Kind::Cell) {
        return Err(not_a_number(field, kind, raw));
    }
    match float(raw) {
        Some(value) if value.is_finite() => Ok(value),
        Some(_) => {
            let detail = format!("`{}` is beyond double precision", shown(raw));
            Err(Refusal::field(RejectReason::FloatOutOfRange, field, detail))
        }
        None => Err(not_a_number(field, kind, raw)),
    }
}

fn not_a_number(field: &str, kind: Kind, raw: &[u8]) -> Refusal {
    let text = matches!(kind, Kind::Text | Kind::EscapedText);
    if text && float(raw).is_some() {
        let detail = format!("\"{}\" is a number written as text", shown(raw));
        return Refusal::field(RejectReason::NumberAsString, field, detail);
    }
    Refusal::field(RejectReason::WrongType, field, format!("`{}` is not a number", shown(raw)))
}

fn passes(filter: &Filter, token: Token, text: &[u8], scratch: &mut Vec<u8>) -> Result<bool, Refusal> {
    let raw = token.raw(text);
    let null =
        matches!(token.kind, Kind::Absent | Kind::Null) || (token.kind == Kind::Cell && raw.is_empty());
    if null {
        // An empty CSV field is also the empty text.
        let empty_wanted = matches!(&filter.equals, Some(Scalar::Text(wanted)) if wanted.is_empty());
        return Ok(!filter.not_null && empty_wanted && token.kind == Kind::Cell);
    }
    if filter.min.is_some() || filter.max.is_some() {
        let number = number_of(&filter.field, token.kind, raw)?;
        let below = filter.min.is_some_and(|min| compare(number, min).is_lt());
        let above = filter.max.is_some_and(|max| compare(number, max).is_gt());
        if below || above {
            return Ok(false);
        }
    }
    match &filter.equals {
        None => Ok(true),
        Some(Scalar::Text(wanted)) => match token.kind {
            Kind::Text | Kind::EscapedText | Kind::Cell | Kind::QuotedCell => {
                Ok(token.unescaped(text, scratch) == Some(wanted.as_bytes()))
            }
            _ => Ok(false),
        },
        Some(Scalar::Number(wanted)) => {
            Ok(number_of(&filter.field, token.kind, raw).is_ok_and(|number| compare(number, *wanted).is_eq()))
        }
        Some(Scalar::Bool(wanted)) => {
            let word: &[u8] = if *wanted { b"true" } else { b"false" };
            Ok(matches!(token.kind, Kind::Bool | Kind::Cell) && raw == word)
        }
    }
}

fn number_of(field: &str, kind: Kind, raw: &[u8]) -> Result<Bound, Refusal> {
    match integer(raw) {
        Integer::Exact(value) if matches!(kind, Kind::Number | Kind::Cell) => Ok(Bound::Int(value)),
        _ => decimal(field, kind, raw).map(Bound::Float),
    }
}

/// Integers are compared exactly, others by their nearest floats. Both sides are finite.
pub(super) fn compare(left: Bound, right: Bound) -> std::cmp::Ordering {
    match (left, right) {
        (Bound::Int(left), Bound::Int(right)) => left.cmp(&right),
        _ => left.as_float().partial_cmp(&right.as_float()).unwrap_or(std::cmp::Ordering::Less),
    }
}
