//! The `[[window]]` tables: keys, windows, aggregates, when results are emitted and where they go.
//!
//! Plain data; the operators that carry it out are built elsewhere.

use std::path::{Path, PathBuf};

use super::aggregate::{self, AggregateConfig};
use super::contradiction::Places;
use super::emission::{self, Emission};
use super::kind;
use super::output::{self, OutputFormat, OutputTarget, OutputTime};
use super::reader::{Item, Section};
use crate::error::Result;
use crate::event_time::{Span, Windows};
pub use crate::operator::{Accumulation, Advance, Mode, Repeat, TimeDomain, Trigger};
pub use crate::store::evolution::Renames;

/// Longest name of a window; it becomes part of the names of its column families.
const NAME_LENGTH_MAX: usize = 48;
/// Columns of a result row that are not the user's to name.
pub(super) const RESERVED: [&str; 6] =
    ["window_start", "window_end", "pane", "pane_index", "watermark", "row_kind"];

/// One windowed aggregation.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowConfig {
    /// Name, unique in the pipeline.
    pub name: String,
    /// Names that it and its parts have in older state.
    pub renames: Renames,
    /// Name of the window whose results it reads; `None` when it reads sources.
    pub input: Option<String>,
    /// Names of the sources it reads; `None` for all of them.
    pub sources: Option<Vec<String>>,
    /// Fields that form the key; none: one pane per window.
    pub key: Vec<KeyField>,
    /// The windows.
    pub windows: Windows,
    /// Which time places events in them.
    pub time: TimeDomain,
    /// How the watermark reaches them; the same for all windows of a pipeline.
    pub advance: Advance,
    /// How long after closing a window still takes events.
    pub allowed_lateness: Span,
    /// What a result row means to those that read it.
    pub mode: Mode,
    /// In update mode, whether a result first takes back the one that it replaces.
    pub retractions: bool,
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

/// Where results go, and how they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputConfig {
    /// Directory: of the files, or in which rows wait for what is not files.
    pub path: PathBuf,
    /// Where rows go.
    pub target: OutputTarget,
    /// Format of the rows in files.
    pub format: OutputFormat,
    /// How window bounds are written.
    pub time_format: OutputTime,
    /// Whether rows say pane, pane index and watermark.
    pub metadata: bool,
}

const KEYS: [&str; 22] = [
    "name",
    "was",
    "input",
    "source",
    "key",
    "type",
    "size",
    "slide",
    "step",
    "gap",
    "unit",
    "zone",
    "week_start",
    "offset",
    "time",
    "retractions",
    "allowed_lateness",
    "mode",
    "trigger",
    "accumulation",
    "aggregates",
    "output",
];

/// What the whole pipeline says of time, as windows need to know it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    /// How far out of order events may come; `None` without a watermark.
    pub(super) delay: Option<Span>,
    /// How the watermark advances.
    pub(super) advance: Advance,
    /// Whether the end of the input closes every window.
    pub(super) close_at_end: bool,
}

/// Reads and checks all tables.
pub(super) fn read_all(
    item: Item<'_>,
    base: &Path,
    timing: Timing,
    places: &mut Places<'_>,
) -> Result<Vec<WindowConfig>> {
    let empty = item.error("there is no window", "add at least one [[window]] table");
    let mut windows: Vec<WindowConfig> = Vec::new();
    for item in item.list()? {
        let mut section = item.section(&KEYS)?;
        let name = read_name(&mut section, windows.iter().map(|window| window.name.as_str()))?;
        let window = read_window(section, name, base, timing, places, &windows)?;
        windows.push(window);
    }
    if windows.is_empty() { Err(empty) } else { Ok(windows) }
}

/// The name of a window or join, which share their names.
pub(super) fn read_name<'n>(
    section: &mut Section<'_>,
    mut earlier: impl Iterator<Item = &'n str>,
) -> Result<String> {
    let item = section.require("name", "add `name = \"hourly\"`")?;
    let name = item.name()?;
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if name.len() > NAME_LENGTH_MAX || !name.bytes().all(plain) {
        let message = format!("\"{name}\" is not a window name");
        return Err(item.error(message, "use 1 to 48 of the characters a-z, 0-9 and _"));
    }
    if earlier.any(|known| known == name) {
        return Err(
            item.error(format!("there is a window \"{name}\" already"), "give each window its own name")
        );
    }
    Ok(name)
}

fn read_window(
    mut section: Section<'_>,
    name: String,
    base: &Path,
    timing: Timing,
    places: &mut Places<'_>,
    earlier: &[WindowConfig],
) -> Result<WindowConfig> {
    let input = section.take("input").map(|item| read_input(&item, earlier)).transpose()?;
    let sources = section.take("source").map(|item| read_sources(item, places)).transpose()?;
    let was = section.take("was").map(|item| item.name()).transpose()?;
    let mut renames = Renames { was, ..Renames::default() };
    let key = section.take("key").map_or(Ok(Vec::new()), |item| read_renamed_key(item, &mut renames))?;
    let windows = kind::read(&mut section)?;
    let emission = emission::read(&mut section, &windows, timing)?;
    let aggregates =
        section.require("aggregates", "add `aggregates = [{ name = \"rows\", function = \"count\" }]`")?;
    let aggregates = aggregate::read_all(aggregates, &key, &mut renames, places)?;
    let output = section.require("output", "add `output = { path = \"out/hourly\" }`")?;
    let revised = emission.trigger != Trigger::Watermark || emission.allowed_lateness != Span::ZERO;
    let metadata = revised || emission.mode == Mode::Update;
    let upserted = Upserted { key: &key, windows: &windows, emission: &emission };
    let output = read_output(output, &name, base, metadata, &upserted, places)?;
    let own = key.iter().map(|field| field.field.as_str());
    output::check_columns(
        &section,
        &output.target,
        own.chain(aggregates.iter().map(|aggregate| aggregate.name.as_str())),
    )?;
    let columns = if output.metadata { &RESERVED[..] } else { &RESERVED[..2] };
    if let Some(field) = key.iter().find(|field| columns.contains(&field.field.as_str())) {
        let message =
            format!("the key field `{}` would have the name of a column that every row has", field.field);
        return Err(section.error(message, "rename the field in the input, or leave the metadata out"));
    }
    let Emission { time, allowed_lateness, mode, retractions, trigger, accumulation } = emission;
    let window = WindowConfig {
        name,
        renames,
        input,
        sources,
        key,
        windows,
        time,
        advance: timing.advance,
        allowed_lateness,
        mode,
        retractions,
        trigger,
        accumulation,
        aggregates,
        output,
    };
    check_input(&section, &window, earlier)?;
    Ok(window)
}

/// The name of a window before, whose results are final when they are emitted.
fn read_input(item: &Item<'_>, earlier: &[WindowConfig]) -> Result<String> {
    let name = item.name()?;
    let Some(window) = earlier.iter().find(|window| window.name == name) else {
        let names: Vec<&str> = earlier.iter().map(|window| window.name.as_str()).collect();
        let remedy = match names.as_slice() {
            [] => {
                "declare the window whose results are read before this one; to read a source, write `source`"
                    .to_owned()
            }
            names => format!("name a window declared before this one; known here: {}", names.join(", ")),
        };
        return Err(item.error(format!("there is no window \"{name}\" before this one"), remedy));
    };
    let once = window.mode == Mode::Append
        && window.trigger == Trigger::Watermark
        && window.allowed_lateness == Span::ZERO
        && window.time == TimeDomain::Event;
    if !once || window.advance == Advance::Batch {
        let message = format!("window \"{name}\" emits more than once per pane, or not by event time");
        let remedy =
            "let it append when the watermark closes it, without allowed lateness, triggers and batches";
        return Err(item.error(message, remedy));
    }
    Ok(name)
}

/// What a step reads must be in the results of its input.
fn check_input(section: &Section<'_>, window: &WindowConfig, earlier: &[WindowConfig]) -> Result<()> {
    let known = earlier.iter().find(|known| window.input.as_ref() == Some(&known.name));
    let Some(input) = known else { return Ok(()) };
    for field in &window.key {
        if !input.key.contains(field) {
            let message = format!("window \"{}\" has no such key field: `{}`", input.name, field.field);
            return Err(section.error(message, "use fields of its key, with the same types"));
        }
    }
    for field in window.aggregates.iter().filter_map(|aggregate| aggregate.field.as_ref()) {
        if input.aggregates.iter().all(|aggregate| aggregate.name != *field) {
            let message = format!("window \"{}\" has no such result: `{field}`", input.name);
            return Err(section.error(message, "name one of its aggregates as the field"));
        }
    }
    Ok(())
}

/// One name, or a list of them.
fn read_sources(item: Item<'_>, places: &Places<'_>) -> Result<Vec<String>> {
    if item.is_text() {
        return Ok(vec![places.source(&item)?]);
    }
    let empty = item.error("the list is empty", "name at least one source, or remove `source` to read all");
    let mut names = Vec::new();
    for item in item.list()? {
        let name = places.source(&item)?;
        if names.contains(&name) {
            return Err(item.error(format!("source \"{name}\" is named twice"), "remove one of the two"));
        }
        names.push(name);
    }
    if names.is_empty() { Err(empty) } else { Ok(names) }
}

/// The fields of a key.
pub(super) fn read_key(item: Item<'_>) -> Result<Vec<KeyField>> {
    read_fields(item, &["field", "type"], &mut Renames::default())
}

/// The fields of a key, each with the name that it has in older state where that is another.
fn read_renamed_key(item: Item<'_>, renames: &mut Renames) -> Result<Vec<KeyField>> {
    read_fields(item, &["field", "type", "was"], renames)
}

fn read_fields(item: Item<'_>, keys: &[&str], renames: &mut Renames) -> Result<Vec<KeyField>> {
    let mut key: Vec<KeyField> = Vec::new();
    for item in item.list()? {
        let (field, again) = if item.is_text() {
            let field = item.name()?;
            let again = item.error(format!("field `{field}` is in the key already"), "remove one of the two");
            (KeyField { field, key_type: KeyType::Text }, again)
        } else {
            let mut section = item.section(keys)?;
            let was = section.take("was").map(|item| item.name()).transpose()?;
            let named =
                section.require("field", "name the field, such as { field = \"status\", type = \"int\" }")?;
            let field = named.name()?;
            renames.fields.extend(was.map(|was| (field.clone(), was)));
            let key_type = section.take("type").map_or(Ok(KeyType::Text), |item| {
                item.choice(&[("string", KeyType::Text), ("int", KeyType::Int)])
            })?;
            let again =
                named.error(format!("field `{field}` is in the key already"), "remove one of the two");
            (KeyField { field, key_type }, again)
        };
        if key.iter().any(|earlier| earlier.field == field.field) {
            return Err(again);
        }
        key.push(field);
    }
    Ok(key)
}

fn read_output(
    item: Item<'_>,
    window: &str,
    base: &Path,
    metadata: bool,
    upserted: &Upserted<'_>,
    places: &mut Places<'_>,
) -> Result<OutputConfig> {
    let mut section = item.section(&output::KEYS)?;
    let what = format!("window \"{window}\"");
    let common = output::read(&mut section, &what, &format!("results.{window}"), base, places)?;
    let metadata = section.take("metadata").map_or(Ok(metadata), |item| item.boolean())?;
    if let Some(item) = &common.upsert {
        upserted.check(item)?;
    }
    let output::Common { path, target, format, time_format, .. } = common;
    Ok(OutputConfig { path, target, format, time_format, metadata })
}

/// What has to hold where the rows of a table replace one another.
struct Upserted<'a> {
    key: &'a [KeyField],
    windows: &'a Windows,
    emission: &'a Emission,
}

impl Upserted<'_> {
    fn check(&self, item: &Item<'_>) -> Result<()> {
        let Emission { mode, retractions, trigger, accumulation, allowed_lateness, .. } = self.emission;
        if *self.windows == Windows::Global && self.key.is_empty() {
            let message = "the global window without a key has nothing to tell its row by";
            return Err(item.error(message, "add a key, or use `write = \"append\"`"));
        }
        if *accumulation == Accumulation::Discarding {
            let message = "discarding rows are increments, and the next one would replace the last";
            return Err(item.error(message, "use `write = \"append\"`"));
        }
        let once = *trigger == Trigger::Watermark && *mode == Mode::Append && *allowed_lateness == Span::ZERO;
        if matches!(self.windows, Windows::Session { .. }) && !once && !retractions {
            let message =
                "a session that grows has other bounds, and its row of before would stay in the table";
            let remedy = "use `mode = \"update\"` with `retractions = true`, or `write = \"append\"`";
            return Err(item.error(message, remedy));
        }
        Ok(())
    }
}
