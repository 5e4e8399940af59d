//! `aggregates` of a window: which function over which field of which type, with its parameters, each checked where it
//! stands.

use super::contradiction::Places;
use super::reader::{Item, Section};
use super::window::{KeyField, RESERVED, Renames};
pub use crate::aggregate::{Beyond, Fraction, Function, InputType, Keep};
use crate::aggregate::{LIMIT_MAX, PRECISIONS};
use crate::error::Result;
use crate::event::DECIMAL_DIGITS_MAX;

/// Different values that are told apart unless the file says otherwise.
const LIMIT: u32 = 10_000;
/// Values that are listed unless the file says otherwise.
const COLLECT_LIMIT: u32 = 1_000;
/// Frequent values that are listed unless the file says otherwise.
const TOP: u32 = 10;
/// Precision of an estimated number of values unless the file says otherwise: 0.8 % standard error.
const PRECISION: u8 = 14;

const KEYS: [&str; 12] = [
    "name",
    "was",
    "field_was",
    "function",
    "field",
    "type",
    "limit",
    "beyond",
    "precision",
    "q",
    "k",
    "keep",
];
/// Those of the keys that only some functions know.
const PARAMETERS: [&str; 6] = ["limit", "beyond", "precision", "q", "k", "keep"];

/// One aggregate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AggregateConfig {
    /// Name of its column in the results.
    pub name: String,
    /// What is computed.
    pub function: Function,
    /// The field it reads; only `count` can do without.
    pub field: Option<String>,
    /// Type of that field; only `count` can do without, it then counts values of any type.
    pub input: Option<InputType>,
}

/// Reads and checks the list.
pub(super) fn read_all(
    item: Item<'_>,
    key: &[KeyField],
    renames: &mut Renames,
    places: &mut Places<'_>,
) -> Result<Vec<AggregateConfig>> {
    let empty = item.error("there is no aggregate", "add at least { name = \"rows\", function = \"count\" }");
    let mut aggregates: Vec<AggregateConfig> = Vec::new();
    for item in item.list()? {
        let mut section = item.section(&KEYS)?;
        let named = section.require("name", "name the column of the result, such as `name = \"rows\"`")?;
        let name = named.name()?;
        let taken = if RESERVED.contains(&name.as_str()) {
            Some("a column that every result row has")
        } else if key.iter().any(|field| field.field == name) {
            Some("a field of the key")
        } else if aggregates.iter().any(|aggregate| aggregate.name == name) {
            Some("an aggregate before")
        } else {
            None
        };
        if let Some(owner) = taken {
            return Err(named.error(format!("\"{name}\" is taken by {owner}"), "choose another name"));
        }
        let was = section.take("was").map(|item| item.name()).transpose()?;
        renames.aggregates.extend(was.map(|was| (name.clone(), was)));
        let field_was = section.take("field_was");
        let aggregate = read(section, name, places)?;
        match (&aggregate.field, field_was) {
            (Some(field), Some(was)) => {
                let old = was.name()?;
                let known = renames.fields.insert(field.clone(), old.clone());
                if let Some(other) = known.filter(|known| *known != old) {
                    let message = format!("`{field}` was `{other}`, as another place of this window says");
                    return Err(was.error(message, "give the field one old name"));
                }
            }
            (None, Some(was)) => return Err(was.error("there is no field here", "remove it")),
            _ => {}
        }
        aggregates.push(aggregate);
    }
    if aggregates.is_empty() { Err(empty) } else { Ok(aggregates) }
}

fn read(mut section: Section<'_>, name: String, places: &mut Places<'_>) -> Result<AggregateConfig> {
    let function = read_function(&mut section)?;
    let field_item = section.take("field");
    let type_item = section.take("type");
    let field = field_item.as_ref().map(Item::name).transpose()?;
    let input = type_item.as_ref().map(read_type).transpose()?;
    match (function, &field, input) {
        (Function::Count, None, Some(_)) => {
            let item = type_item.as_ref().map(|item| {
                item.error(
                    "count without a field counts rows, which have no type",
                    "remove it, or add `field`",
                )
            });
            return Err(item.unwrap_or_else(|| section.error("count of rows has no type", "remove `type`")));
        }
        (Function::Count, _, _) => {}
        (_, None, _) => {
            let message = format!("{} of \"{name}\" needs a field", function.name());
            return Err(section.error(message, "add `field = \"…\"`"));
        }
        (_, Some(field), None) => {
            let message = format!("{} of `{field}` needs the field's type", function.name());
            let types = match function.accepts(InputType::Text) {
                true => "add `type`: \"int\", \"float\", \"decimal(2)\" or \"string\"",
                false => "add `type`: \"int\", \"float\" or \"decimal(2)\"",
            };
            return Err(section.error(message, types));
        }
        (_, Some(field), Some(input)) if !function.accepts(input) => {
            let message = format!("{} of `{field}` needs numbers, and its type is {input}", function.name());
            let remedy = "give the type of its numbers (\"int\", \"float\", \"decimal(2)\"), or use a function that \
                          takes text: count, min, max, first, last, distinct, approx_distinct, top_k, collect";
            let item = type_item.as_ref().map(|item| item.error(&message, remedy));
            return Err(item.unwrap_or_else(|| section.error(&message, remedy)));
        }
        _ => {}
    }
    if let (Some(item), Some(field), Some(input)) = (&type_item, &field, input) {
        places.add_field_type(item, field, input)?;
    }
    Ok(AggregateConfig { name, function, field, input })
}

/// Every function, with the parameters that it has unless the file says otherwise.
const FUNCTIONS: [Function; 16] = [
    Function::Count,
    Function::Sum,
    Function::Min,
    Function::Max,
    Function::Avg,
    Function::Variance,
    Function::VariancePop,
    Function::Stddev,
    Function::StddevPop,
    Function::First,
    Function::Last,
    Function::Distinct { limit: LIMIT, beyond: Beyond::Null },
    Function::ApproxDistinct { precision: PRECISION },
    MEDIAN,
    Function::TopK { k: TOP, limit: LIMIT },
    Function::Collect { limit: COLLECT_LIMIT, keep: Keep::First },
];
/// `median` is a quantile by another name.
const MEDIAN: Function = Function::Quantile { q: Fraction::HALF };

/// The function with its parameters. Those of other functions are refused, not passed over.
fn read_function(section: &mut Section<'_>) -> Result<Function> {
    let item = section.require(
        "function",
        "add `function`: count, sum, min, max, avg, variance, stddev, first, last, median, …",
    )?;
    let mut choices = FUNCTIONS.map(|function| (function.name(), function)).to_vec();
    choices.push(("median", MEDIAN));
    let usual = item.choice(&choices)?;
    let mut parameters = PARAMETERS.map(|key| section.take(key));
    let function = match (usual, item.text()?) {
        (Function::Quantile { .. }, "median") => usual,
        _ => with_parameters(&item, usual, &mut parameters)?,
    };
    match parameters.into_iter().flatten().next() {
        Some(left) => Err(left.error(format!("has no meaning for {}", item.text()?), "remove it")),
        None => Ok(function),
    }
}

/// Takes what the function knows out of `parameters`, which are in the order of [`PARAMETERS`].
fn with_parameters<'a>(
    item: &Item<'a>,
    usual: Function,
    parameters: &mut [Option<Item<'a>>; PARAMETERS.len()],
) -> Result<Function> {
    let [limit, beyond, precision, q, k, keep] = parameters;
    Ok(match usual {
        Function::Distinct { limit: bound, beyond: policy } => Function::Distinct {
            limit: limit.take().map_or(Ok(bound), read_limit)?,
            beyond: beyond.take().map_or(Ok(policy), |item| {
                item.choice(&[("null", Beyond::Null), ("estimate", Beyond::Estimate)])
            })?,
        },
        Function::ApproxDistinct { precision: bits } => {
            Function::ApproxDistinct { precision: precision.take().map_or(Ok(bits), read_precision)? }
        }
        Function::Quantile { .. } => {
            let missing = || item.error("quantile needs `q`", "add for example `q = 0.95`");
            Function::Quantile { q: q.take().ok_or_else(missing).and_then(read_fraction)? }
        }
        Function::TopK { k: most, limit: bound } => {
            let limit = limit.take().map_or(Ok(bound), read_limit)?;
            Function::TopK { k: k.take().map_or(Ok(most.min(limit)), |item| read_k(&item, limit))?, limit }
        }
        Function::Collect { limit: bound, keep: end } => Function::Collect {
            limit: limit.take().map_or(Ok(bound), read_limit)?,
            keep: keep
                .take()
                .map_or(Ok(end), |item| item.choice(&[("first", Keep::First), ("last", Keep::Last)]))?,
        },
        plain => plain,
    })
}

fn read_k(item: &Item<'_>, limit: u32) -> Result<u32> {
    let k = item.count()?;
    if k > limit {
        let message = format!("is more than the {limit} different values that are counted");
        return Err(item.error(message, "choose a smaller `k`, or a larger `limit`"));
    }
    Ok(k)
}

fn read_limit(item: Item<'_>) -> Result<u32> {
    let limit = item.count()?;
    if limit > LIMIT_MAX {
        return Err(item.error(format!("is larger than {LIMIT_MAX}"), "choose a smaller limit"));
    }
    Ok(limit)
}

fn read_precision(item: Item<'_>) -> Result<u8> {
    let bits = item.count()?;
    u8::try_from(bits).ok().filter(|bits| PRECISIONS.contains(bits)).ok_or_else(|| {
        let message = format!("must be from {} to {}", PRECISIONS.start(), PRECISIONS.end());
        item.error(message, "write for example `precision = 14`: a standard error of 0.8 %")
    })
}

fn read_fraction(item: Item<'_>) -> Result<Fraction> {
    let number = item.as_float().or_else(|| item.as_integer().map(|whole| whole as f64));
    number.and_then(Fraction::from_float).ok_or_else(|| {
        let message = "must be a number from 0 to 1 with at most six digits behind the point";
        item.error(message, "write for example `q = 0.95`")
    })
}

pub(super) fn read_type(item: &Item<'_>) -> Result<InputType> {
    let word = item.text()?;
    if let Some(input) = InputType::from_name(word) {
        return Ok(input);
    }
    if word == "decimal" || word.starts_with("decimal(") {
        let message = format!("\"{word}\" does not say how many digits stand behind the point");
        let remedy = format!("write \"decimal(2)\"; from 0 to {DECIMAL_DIGITS_MAX} digits");
        return Err(item.error(message, remedy));
    }
    let known = [InputType::Int, InputType::Float, InputType::Decimal(2), InputType::Text];
    item.choice(&known.map(|input| (input.name(), input)))
}
