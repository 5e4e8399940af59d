//! The `[[join]]` tables: which two sources, on which key, how far apart in time, and where the pairs go.
//!
//! Plain data; the operators that carry it out are built elsewhere.

use std::path::{Path, PathBuf};

use super::aggregate::{InputType, read_type};
use super::contradiction::Places;
use super::output::{self, OutputFormat, OutputTarget, OutputTime};
use super::reader::{Item, Section};
use super::window::{KeyField, Timing, WindowConfig, read_key, read_name};
use crate::error::Result;
use crate::operator::{Advance, JoinKind};

const KEYS: [&str; 8] = ["name", "left", "right", "key", "within", "kind", "select", "output"];
/// Columns of a joined row that are not the user's to name.
const RESERVED: [&str; 2] = ["left_time", "right_time"];

/// One interval join: pairs with `left.time + from ≤ right.time ≤ left.time + to`.
#[derive(Clone, Debug, PartialEq)]
pub struct JoinConfig {
    /// Name, unique among the windows and joins of the pipeline.
    pub name: String,
    /// The source whose times the interval is counted from.
    pub left: String,
    /// The other source.
    pub right: String,
    /// Fields that both sides of a pair have in common.
    pub key: Vec<KeyField>,
    /// Least time from left to right, in milliseconds; negative where the right event may be earlier.
    pub from_ms: i64,
    /// Greatest time from left to right, in milliseconds.
    pub to_ms: i64,
    /// Whether events without partner come out.
    pub kind: JoinKind,
    /// Fields of the left side that go into the rows.
    pub left_fields: Vec<SelectedField>,
    /// Fields of the right side that go into the rows.
    pub right_fields: Vec<SelectedField>,
    /// Where the rows go.
    pub output: JoinOutput,
}

/// A field that goes into the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectedField {
    /// Name of its column.
    pub name: String,
    /// The input field.
    pub field: String,
    /// Its type.
    pub input: InputType,
}

/// Where the rows of a join go, and how they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinOutput {
    /// Directory: of the files, or in which rows wait for what is not files.
    pub path: PathBuf,
    /// Where rows go.
    pub target: OutputTarget,
    /// Format of the rows in files.
    pub format: OutputFormat,
    /// How times are written.
    pub time_format: OutputTime,
}

/// Reads and checks all tables.
pub(super) fn read_all(
    item: Item<'_>,
    base: &Path,
    timing: Timing,
    windows: &[WindowConfig],
    places: &mut Places<'_>,
) -> Result<Vec<JoinConfig>> {
    let empty = item.error("the list is empty", "add a [[join]] table, or remove it");
    let batch = item.error(
        "joins do not go with watermark.advance = \"batch\"",
        "use `advance = \"event\"`, or move the join to a pipeline of its own",
    );
    let mut joins: Vec<JoinConfig> = Vec::new();
    for item in item.list()? {
        if timing.advance == Advance::Batch {
            return Err(batch);
        }
        let mut section = item.section(&KEYS)?;
        let windows = windows.iter().map(|window| window.name.as_str());
        let earlier = windows.chain(joins.iter().map(|join| join.name.as_str()));
        let name = read_name(&mut section, earlier)?;
        joins.push(read(section, name, base, timing, places)?);
    }
    if joins.is_empty() { Err(empty) } else { Ok(joins) }
}

fn read(
    mut section: Section<'_>,
    name: String,
    base: &Path,
    timing: Timing,
    places: &mut Places<'_>,
) -> Result<JoinConfig> {
    if timing.delay.is_none() {
        return Err(section.error(
            "a join needs a watermark: without one every event would have to be kept for good",
            "add a [watermark] table with `delay = \"15m\"` (how far out of order events may come)",
        ));
    }
    let left = section.require("left", "add `left = \"orders\"`, the name of a source")?;
    let left = places.source(&left)?;
    let right_item = section.require("right", "add `right = \"payments\"`, the name of a source")?;
    let right = places.source(&right_item)?;
    if left == right {
        let message = "left and right are one source: every event would be its own partner";
        return Err(right_item.error(message, "name two sources"));
    }
    let key = section.take("key").map_or(Ok(Vec::new()), read_key)?;
    let (from_ms, to_ms) = read_within(&mut section)?;
    let kinds = [JoinKind::Inner, JoinKind::Left, JoinKind::Right, JoinKind::Full];
    let kinds = kinds.map(|kind| (kind.name(), kind));
    let kind = section.take("kind").map_or(Ok(JoinKind::Inner), |item| item.choice(&kinds))?;
    if let Some(field) = key.iter().find(|field| RESERVED.contains(&field.field.as_str())) {
        let message =
            format!("the key field `{}` would have the name of a column that every row has", field.field);
        return Err(section.error(message, "rename the field in the input"));
    }
    let mut columns: Vec<String> = key.iter().map(|field| field.field.clone()).collect();
    columns.extend(RESERVED.map(str::to_owned));
    let (mut left_fields, mut right_fields) = (Vec::new(), Vec::new());
    if let Some(item) = section.take("select") {
        let mut sides = item.section(&["left", "right"])?;
        for (side, fields) in [("left", &mut left_fields), ("right", &mut right_fields)] {
            if let Some(item) = sides.take(side) {
                *fields = read_fields(item, &mut columns, places)?;
            }
        }
    }
    let output = section.require("output", "add `output = { path = \"out/pairs\" }`")?;
    let output = read_output(output, &name, base, places)?;
    output::check_columns(&section, &output.target, columns.iter().map(String::as_str))?;
    Ok(JoinConfig { name, left, right, key, from_ms, to_ms, kind, left_fields, right_fields, output })
}

fn read_within(section: &mut Section<'_>) -> Result<(i64, i64)> {
    let remedy = "add `within = { from = \"-5m\", to = \"10m\" }`: how much later than the left event the right one may be";
    let mut within = section.require("within", remedy)?.section(&["from", "to"])?;
    let from = within.require("from", "add `from`, such as \"-5m\" or \"0s\"")?;
    let to = within.require("to", "add `to`, such as \"10m\" or \"0s\"")?;
    let (from_ms, to_ms) = (from.millis()?, to.millis()?);
    if from_ms > to_ms {
        return Err(to.error("is less than `from`, so nothing would be paired", "swap the two"));
    }
    Ok((from_ms, to_ms))
}

/// Reads the fields of a side; `columns` are the names that are taken.
fn read_fields(
    item: Item<'_>,
    columns: &mut Vec<String>,
    places: &mut Places<'_>,
) -> Result<Vec<SelectedField>> {
    let mut fields = Vec::new();
    for item in item.list()? {
        let mut section = item.section(&["field", "type", "name"])?;
        let field_item =
            section.require("field", "name the field, such as { field = \"amount\", type = \"int\" }")?;
        let field = field_item.name()?;
        let type_item =
            section.require("type", "add `type`: \"int\", \"float\", \"decimal(2)\" or \"string\"")?;
        let input = read_type(&type_item)?;
        places.add_field_type(&type_item, &field, input)?;
        let name_item = section.take("name");
        let name = name_item.as_ref().map_or(Ok(field.clone()), Item::name)?;
        if columns.contains(&name) {
            let message = format!("there is a column \"{name}\" already");
            return Err(name_item.as_ref().unwrap_or(&field_item).error(message, "give it another `name`"));
        }
        columns.push(name.clone());
        fields.push(SelectedField { name, field, input });
    }
    Ok(fields)
}

fn read_output(item: Item<'_>, join: &str, base: &Path, places: &mut Places<'_>) -> Result<JoinOutput> {
    let mut section = item.section(&output::KEYS)?;
    let common =
        output::read(&mut section, &format!("join \"{join}\""), &format!("joined.{join}"), base, places)?;
    if let Some(item) = section.take("metadata") {
        return Err(item.error("has no meaning here: joined rows have none", "remove it"));
    }
    if let Some(item) = &common.upsert {
        let message = "a pair has no key of its own, and so nothing that it could replace";
        return Err(item.error(message, "use `write = \"append\"`"));
    }
    let output::Common { path, target, format, time_format, .. } = common;
    Ok(JoinOutput { path, target, format, time_format })
}
