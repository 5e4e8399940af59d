//! The `[[window]]` tables: keys, windows, aggregates, when results are emitted and where they go.
//!
//! Plain data; the operators that carry it out are built elsewhere.

use std::path::{Path, PathBuf};

use super::contradiction::Places;
use super::reader::{Item, Section};
use super::resolve;
pub use crate::aggregate::{Function, InputType};
use crate::error::Result;
use crate::event_time::{InvalidWindow, Span, Tumbling};
pub use crate::operator::{Accumulation, Mode, Trigger};

/// Longest name of a window; it becomes part of the names of its column families.
const NAME_LENGTH_MAX: usize = 48;
/// Columns of a result row that are not the user's to name.
const RESERVED: [&str; 5] = ["window_start", "window_end", "pane", "pane_index", "watermark"];

/// One windowed aggregation.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowConfig {
    /// Name, unique in the pipeline.
    pub name: String,
    /// Names of the sources it reads; `None` for all of them.
    pub sources: Option<Vec<String>>,
    /// Fields that form the key; none: one pane per window.
    pub key: Vec<KeyField>,
    /// The windows.
    pub windows: Tumbling,
    /// How long after closing a window still takes events.
    pub allowed_lateness: Span,
    /// What a result row means to those that read it.
    pub mode: Mode,
    /// When results are emitted.
    pub trigger: Trigger,
    /// What is kept of a pane after it was emitted.
    pub accumulation: Accumulation,
    /// What is computed, at least one.
    pub aggregates: Vec<AggregateConfig>,
    /// Where results go.
    pub output: OutputConfig,
}

/// One field of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyField {
    /// The input field.
    pub field: String,
    /// What its values are.
    pub key_type: KeyType,
}

/// What the values of a key field are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyType {
    /// Text as it is; numbers and booleans by their literal text.
    Text,
    /// 64-bit integers only, written in decimal.
    Int,
}

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

/// Where results go, and how they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputConfig {
    /// Directory.
    pub path: PathBuf,
    /// Format of the rows.
    pub format: OutputFormat,
    /// How window bounds are written.
    pub time_format: OutputTime,
    /// Whether rows say pane, pane index and watermark.
    pub metadata: bool,
}

/// Format of result rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// One JSON object per line.
    JsonLines,
    /// Comma-separated values.
    Csv,
}

/// How window bounds are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputTime {
    /// RFC 3339 in UTC.
    Rfc3339,
    /// Milliseconds since the Unix epoch.
    EpochMillis,
}

/// A pane counts the events since it fired in 31 bits.
const COUNT_MAX: u32 = i32::MAX as u32;
const KEYS: [&str; 12] = [
    "name",
    "source",
    "key",
    "type",
    "size",
    "offset",
    "allowed_lateness",
    "mode",
    "trigger",
    "accumulation",
    "aggregates",
    "output",
];

/// Reads and checks all tables.
pub(super) fn read_all(
    item: Item<'_>,
    base: &Path,
    delay: Option<Span>,
    places: &mut Places<'_>,
) -> Result<Vec<WindowConfig>> {
    let empty = item.error("there is no window", "Add at least one [[window]] table.");
    let mut windows: Vec<WindowConfig> = Vec::new();
    for item in item.list()? {
        let mut section = item.section(&KEYS)?;
        let name = read_name(&mut section, &windows)?;
        windows.push(read_window(section, name, base, delay, places)?);
    }
    if windows.is_empty() { Err(empty) } else { Ok(windows) }
}

fn read_name(section: &mut Section<'_>, earlier: &[WindowConfig]) -> Result<String> {
    let item = section.require("name", "Add `name = \"hourly\"`.")?;
    let name = item.name()?;
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if name.len() > NAME_LENGTH_MAX || !name.bytes().all(plain) {
        let message = format!("\"{name}\" is not a window name");
        return Err(item.error(message, "Use 1 to 48 of the characters a-z, 0-9 and _."));
    }
    if earlier.iter().any(|window| window.name == name) {
        return Err(
            item.error(format!("there is a window \"{name}\" already"), "Give each window its own name.")
        );
    }
    Ok(name)
}

fn read_window(
    mut section: Section<'_>,
    name: String,
    base: &Path,
    delay: Option<Span>,
    places: &mut Places<'_>,
) -> Result<WindowConfig> {
    let sources = section.take("source").map(|item| read_sources(item, places)).transpose()?;
    let key = section.take("key").map_or(Ok(Vec::new()), read_key)?;
    let windows = read_tumbling(&mut section)?;
    let emission = read_emission(&mut section, delay)?;
    let aggregates =
        section.require("aggregates", "Add `aggregates = [{ name = \"rows\", function = \"count\" }]`.")?;
    let aggregates = read_aggregates(aggregates, &key, places)?;
    let output = section.require("output", "Add `output = { path = \"out/hourly\" }`.")?;
    let revised = emission.trigger != Trigger::Watermark || emission.allowed_lateness != Span::ZERO;
    let metadata = revised || emission.mode != Mode::Append;
    let output = read_output(output, &name, base, metadata, places)?;
    let columns = if output.metadata { &RESERVED[..] } else { &RESERVED[..2] };
    if let Some(field) = key.iter().find(|field| columns.contains(&field.field.as_str())) {
        let message =
            format!("the key field `{}` would have the name of a column that every row has", field.field);
        return Err(section.error(message, "Rename the field in the input, or leave the metadata out."));
    }
    let Emission { allowed_lateness, mode, trigger, accumulation } = emission;
    Ok(WindowConfig {
        name,
        sources,
        key,
        windows,
        allowed_lateness,
        mode,
        trigger,
        accumulation,
        aggregates,
        output,
    })
}

/// One name, or a list of them.
fn read_sources(item: Item<'_>, places: &Places<'_>) -> Result<Vec<String>> {
    if item.is_text() {
        return Ok(vec![places.source(&item)?]);
    }
    let empty = item.error("the list is empty", "Name at least one source, or remove `source` to read all.");
    let names: Vec<String> = item.list()?.iter().map(|item| places.source(item)).collect::<Result<_>>()?;
    if names.is_empty() { Err(empty) } else { Ok(names) }
}

fn read_key(item: Item<'_>) -> Result<Vec<KeyField>> {
    let mut key: Vec<KeyField> = Vec::new();
    for item in item.list()? {
        let (field, again) = if item.is_text() {
            let field = item.name()?;
            let again =
                item.error(format!("field `{field}` is in the key already"), "Remove one of the two.");
            (KeyField { field, key_type: KeyType::Text }, again)
        } else {
            let mut section = item.section(&["field", "type"])?;
            let named = section
                .require("field", "Name the field, such as { field = \"status\", type = \"int\" }.")?;
            let field = named.name()?;
            let key_type = section.take("type").map_or(Ok(KeyType::Text), |item| {
                item.choice(&[("string", KeyType::Text), ("int", KeyType::Int)])
            })?;
            let again =
                named.error(format!("field `{field}` is in the key already"), "Remove one of the two.");
            (KeyField { field, key_type }, again)
        };
        if key.iter().any(|earlier| earlier.field == field.field) {
            return Err(again);
        }
        key.push(field);
    }
    Ok(key)
}

fn read_tumbling(section: &mut Section<'_>) -> Result<Tumbling> {
    section.require("type", "Add `type = \"tumbling\"`.")?.choice(&[("tumbling", ())])?;
    let size_item = section.require("size", "Add the length of a window, such as `size = \"1h\"`.")?;
    let size = size_item.positive_span()?;
    let offset_item = section.take("offset");
    let offset = offset_item.as_ref().map_or(Ok(0), Item::millis)?;
    Tumbling::new(size, offset).map_err(|error| match (&error, &offset_item) {
        (InvalidWindow::OffsetTooLong { .. }, Some(item)) => {
            let message = format!("the offset reaches a whole window: the size is {size}");
            item.error(message, "Choose an offset between -size and size, both excluded.")
        }
        _ => size_item.error(error.to_string(), "Choose a longer size."),
    })
}

struct Emission {
    allowed_lateness: Span,
    mode: Mode,
    trigger: Trigger,
    accumulation: Accumulation,
}

fn read_emission(section: &mut Section<'_>, delay: Option<Span>) -> Result<Emission> {
    const ADD_WATERMARK: &str =
        "Add a [watermark] table with `delay = \"15m\"` (how far out of order events may come).";
    let mode_item = section.take("mode");
    let choices = [("append", Mode::Append), ("update", Mode::Update)];
    let mode = mode_item.as_ref().map_or(Ok(Mode::Append), |item| item.choice(&choices))?;
    let refuse = |section: &Section<'_>, message: &str, remedy: String| match &mode_item {
        Some(item) => item.error(message, remedy),
        None => section.error(message, remedy),
    };
    if (mode, delay) == (Mode::Append, None) {
        let message = "append needs a watermark: without one no window ever closes, so no row could be final";
        return Err(refuse(section, message, ADD_WATERMARK.to_owned()));
    }
    let trigger_item = section.take("trigger");
    let trigger = trigger_item.map_or(Ok(Trigger::Watermark), read_trigger)?;
    if mode == Mode::Update && trigger != Trigger::Watermark {
        let message = "update emits after every event; a trigger has no effect";
        return Err(refuse(section, message, "Remove the trigger, or use `mode = \"append\"`.".to_owned()));
    }
    let lateness_item = section.take("allowed_lateness");
    let allowed_lateness = lateness_item.as_ref().map_or(Ok(Span::ZERO), Item::span)?;
    if let (Some(item), None) = (&lateness_item, delay) {
        return Err(item.error("has no meaning without a watermark", ADD_WATERMARK));
    }
    let accumulation_item = section.take("accumulation");
    let accumulation = accumulation_item.as_ref().map_or(Ok(Accumulation::Accumulating), |item| {
        item.choice(&[("accumulating", Accumulation::Accumulating), ("discarding", Accumulation::Discarding)])
    })?;
    if let (Some(item), Accumulation::Discarding, Mode::Update) = (&accumulation_item, accumulation, mode) {
        let message = "discarding rows are increments, and update replaces the earlier row by the later: events would \
                       be lost to the reader";
        return Err(item.error(message, "Use `accumulation = \"accumulating\"`, or `mode = \"append\"`."));
    }
    Ok(Emission { allowed_lateness, mode, trigger, accumulation })
}

fn read_trigger(item: Item<'_>) -> Result<Trigger> {
    if item.is_text() {
        return item.choice(&[("watermark", Trigger::Watermark)]);
    }
    let mut section = item.section(&["count", "early"])?;
    match (section.take("count"), section.take("early")) {
        (Some(count), None) => match count.count()? {
            events if events > COUNT_MAX => {
                Err(count.error(format!("is larger than {COUNT_MAX}"), "Choose a smaller count."))
            }
            events => Ok(Trigger::Count(events)),
        },
        (None, Some(early)) => early.positive_span().map(Trigger::Early),
        (Some(_), Some(early)) => Err(early.error("goes alone, without count", "Keep one of the two.")),
        (None, None) => Err(section
            .error("the trigger is empty", "Write { count = 5 }, { early = \"10m\" } or \"watermark\".")),
    }
}

fn read_aggregates(
    item: Item<'_>,
    key: &[KeyField],
    places: &mut Places<'_>,
) -> Result<Vec<AggregateConfig>> {
    let empty =
        item.error("there is no aggregate", "Add at least { name = \"rows\", function = \"count\" }.");
    let mut aggregates: Vec<AggregateConfig> = Vec::new();
    for item in item.list()? {
        let mut section = item.section(&["name", "function", "field", "type"])?;
        let named = section.require("name", "Name the column of the result, such as `name = \"rows\"`.")?;
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
            return Err(named.error(format!("\"{name}\" is taken by {owner}"), "Choose another name."));
        }
        aggregates.push(read_aggregate(section, name, places)?);
    }
    if aggregates.is_empty() { Err(empty) } else { Ok(aggregates) }
}

fn read_aggregate(
    mut section: Section<'_>,
    name: String,
    places: &mut Places<'_>,
) -> Result<AggregateConfig> {
    let functions = [Function::Count, Function::Sum, Function::Min, Function::Max, Function::Avg];
    let choices = functions.map(|function| (function.name(), function));
    let function =
        section.require("function", "Add `function`: count, sum, min, max or avg.")?.choice(&choices)?;
    let field_item = section.take("field");
    let type_item = section.take("type");
    let field = field_item.as_ref().map(Item::name).transpose()?;
    let types = [InputType::Int, InputType::Float].map(|input| (input.name(), input));
    let input = type_item.as_ref().map(|item| item.choice(&types)).transpose()?;
    match (function, &field, input) {
        (Function::Count, None, Some(_)) => {
            let item = type_item.as_ref().map(|item| {
                item.error(
                    "count without a field counts rows, which have no type",
                    "Remove it, or add `field`.",
                )
            });
            return Err(item.unwrap_or_else(|| section.error("count of rows has no type", "Remove `type`.")));
        }
        (Function::Count, _, _) => {}
        (_, None, _) => {
            let message = format!("{} of \"{name}\" needs a field", function.name());
            return Err(section.error(message, "Add `field = \"…\"`."));
        }
        (_, Some(field), None) => {
            let message = format!("{} of `{field}` needs the field's type", function.name());
            return Err(section.error(message, "Add `type = \"int\"` or `type = \"float\"`."));
        }
        _ => {}
    }
    if let (Some(item), Some(field), Some(input)) = (&type_item, &field, input) {
        places.add_field_type(item, field, input)?;
    }
    Ok(AggregateConfig { name, function, field, input })
}

fn read_output(
    item: Item<'_>,
    window: &str,
    base: &Path,
    metadata: bool,
    places: &mut Places<'_>,
) -> Result<OutputConfig> {
    let mut section = item.section(&["path", "format", "time_format", "metadata"])?;
    let path_item = section.require("path", "Add `path = \"out/hourly\"`, a directory.")?;
    let path = resolve(base, &path_item.name()?);
    places.add_directory(&path_item, &format!("the output of window \"{window}\""), &path);
    let format = section.take("format").map_or(Ok(OutputFormat::JsonLines), |item| {
        item.choice(&[("jsonl", OutputFormat::JsonLines), ("csv", OutputFormat::Csv)])
    })?;
    let time_format = section.take("time_format").map_or(Ok(OutputTime::Rfc3339), |item| {
        item.choice(&[("rfc3339", OutputTime::Rfc3339), ("epoch_ms", OutputTime::EpochMillis)])
    })?;
    let metadata = section.take("metadata").map_or(Ok(metadata), |item| item.boolean())?;
    Ok(OutputConfig { path, format, time_format, metadata })
}
