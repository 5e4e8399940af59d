//! The `[source]` table, or several of them as `[[source]]`: which files, in which format, which field is the time, which rows count.
//!
//! Knows no file: patterns are matched when the source is opened.

use std::path::{Path, PathBuf};

use jiff::tz::TimeZone;

use super::contradiction::Places;
use super::reader::{Item, Section};
use super::resolve;
use super::watermark::{BOUNDS_KEYS, BoundsSpec, Defaults, SourceWatermark, TimeBounds, WatermarkStrategy};
use super::window::{KeyField, read_key};
use crate::error::Result;
use crate::event_time::Span;
use crate::operator::DEFAULT_SOURCE;

/// What is read.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceConfig {
    /// Name, unique in the pipeline.
    pub name: String,
    /// Paths and glob patterns, resolved; `-` alone is standard input.
    pub patterns: Vec<PathBuf>,
    /// Directory of the pipeline file: partitions are named relative to it where they are below it.
    pub base: PathBuf,
    /// `file:line:column` of the `path` setting, for messages about files.
    pub declared_at: String,
    /// Format of the files.
    pub format: Format,
    /// Compression of all files; `None`: told by each file's extension.
    pub compression: Option<Compression>,
    /// Whether each file has a watermark of its own.
    pub partitioning: Partitioning,
    /// How CSV is written; present exactly for [`Format::Csv`].
    pub csv: Option<CsvConfig>,
    /// Where event time comes from.
    pub time: TimeConfig,
    /// Rows that fail any of these are skipped and counted.
    pub filters: Vec<Filter>,
    /// How event time advances in it.
    pub watermark: SourceWatermark,
    /// Whether records that repeat an earlier one are dropped.
    pub dedup: Option<DedupConfig>,
}

/// What makes a record a repetition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DedupConfig {
    /// Fields that make up the id.
    pub by: Vec<KeyField>,
    /// How long behind its first event the watermark has to be for an id to be forgotten.
    pub within: Span,
}

impl SourceConfig {
    /// True for a stream that has no end to look forward to: what it brings is new, so its times can be compared
    /// with the clock.
    #[must_use]
    pub fn is_live(&self) -> bool {
        is_live(&self.patterns)
    }

    /// How far behind the latest event its watermark stays; `None` when it has no watermark.
    #[must_use]
    pub fn delay(&self) -> Option<Span> {
        match &self.watermark.strategy {
            WatermarkStrategy::None => None,
            other => Some(other.strategy().delay().unwrap_or_default()),
        }
    }
}

fn is_live(patterns: &[PathBuf]) -> bool {
    patterns.iter().any(|pattern| pattern.as_os_str() == "-")
}

/// Format of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One JSON object per line.
    JsonLines,
    /// Comma-separated values (RFC 4180, any one-byte delimiter).
    Csv,
    /// Parquet: no text, its columns have types.
    Parquet,
}

/// Compression of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Plain bytes.
    None,
    /// Gzip, several members allowed.
    Gzip,
    /// Zstandard, several frames allowed.
    Zstd,
}

impl Compression {
    /// What a file's extension says.
    #[must_use]
    pub fn of_path(path: &Path) -> Self {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("gz" | "gzip") => Self::Gzip,
            Some("zst" | "zstd") => Self::Zstd,
            _ => Self::None,
        }
    }
}

/// Whether each file has a watermark of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partitioning {
    /// Each file has its own watermark; the minimum counts.
    File,
    /// All files one after the other, in order of name, under one watermark.
    Single,
}

/// How CSV is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvConfig {
    /// Byte between fields.
    pub delimiter: u8,
    /// Whether the first line of each file names the columns.
    pub header: bool,
    /// Names of the columns, when there is no header.
    pub columns: Vec<String>,
}

/// Where event time comes from, and which times are believed.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeConfig {
    /// Field that holds it.
    pub field: String,
    /// How it is written.
    pub format: TimeFormat,
    /// Which times are believed.
    pub bounds: TimeBounds,
}

/// How a timestamp is written.
#[derive(Clone, Debug, PartialEq)]
pub enum TimeFormat {
    /// RFC 3339 text with any offset.
    Rfc3339,
    /// A number counted from the Unix epoch.
    Epoch(EpochUnit),
    /// Text by a strftime pattern.
    Strftime {
        /// The pattern.
        pattern: String,
        /// Zone of times that carry no offset themselves.
        zone: Option<TimeZone>,
    },
    /// As the type of the column says: a timestamp of any unit, or a date. Text has no such type.
    Column,
}

/// Unit of a number counted from the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochUnit {
    /// Seconds, with an exact decimal fraction if there is one.
    Seconds,
    /// Milliseconds.
    Millis,
    /// Microseconds.
    Micros,
    /// Nanoseconds.
    Nanos,
}

impl EpochUnit {
    /// All units, coarse to fine.
    pub const ALL: [Self; 4] = [Self::Seconds, Self::Millis, Self::Micros, Self::Nanos];

    /// Name in the pipeline file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Seconds => "epoch_s",
            Self::Millis => "epoch_ms",
            Self::Micros => "epoch_us",
            Self::Nanos => "epoch_ns",
        }
    }
}

/// A condition on one field. All parts that are given must hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    /// The field.
    pub field: String,
    /// Must be present and not null. The other conditions imply it.
    pub not_null: bool,
    /// Smallest number that passes.
    pub min: Option<Bound>,
    /// Largest number that passes.
    pub max: Option<Bound>,
    /// The only value that passes.
    pub equals: Option<Scalar>,
}

/// A number that others are compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// An integer; compared exactly with integers.
    Int(i64),
    /// A finite float.
    Float(f64),
}

/// A value that others are compared with.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar {
    /// Text.
    Text(String),
    /// A number.
    Number(Bound),
    /// True or false.
    Bool(bool),
}

const KEYS: [&str; 10] =
    ["name", "path", "format", "compression", "partitions", "csv", "time", "filter", "watermark", "dedup"];
/// Longest name of a source.
const NAME_LENGTH_MAX: usize = 48;

/// Reads and checks the table, or the list of them.
pub(super) fn read_all(
    item: Item<'_>,
    base: &Path,
    defaults: &Defaults<'_>,
    places: &mut Places<'_>,
) -> Result<Vec<SourceConfig>> {
    if item.is_table() {
        return Ok(vec![read(item, base, defaults, places, true)?]);
    }
    let items = read_list(item)?;
    let alone = items.len() == 1;
    items.into_iter().map(|item| read(item, base, defaults, places, alone)).collect()
}

fn read_name(section: &mut Section<'_>, alone: bool, places: &mut Places<'_>) -> Result<String> {
    let item = match section.take("name") {
        Some(item) => item,
        None if alone => {
            places.add_source(None, DEFAULT_SOURCE)?;
            return Ok(DEFAULT_SOURCE.to_owned());
        }
        None => {
            return Err(
                section.error("`name` is missing", "name each of several sources: `name = \"orders\"`")
            );
        }
    };
    let name = item.name()?;
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-';
    if name.len() > NAME_LENGTH_MAX || !name.bytes().all(plain) {
        let message = format!("\"{name}\" is not a source name");
        return Err(item.error(message, "use 1 to 48 of the characters a-z, 0-9, _ and -"));
    }
    places.add_source(Some(&item), &name)?;
    Ok(name)
}

fn read(
    item: Item<'_>,
    base: &Path,
    defaults: &Defaults<'_>,
    places: &mut Places<'_>,
    alone: bool,
) -> Result<SourceConfig> {
    let mut section = item.section(&KEYS)?;
    let name = read_name(&mut section, alone, places)?;
    let path =
        section.require("path", "add `path = \"data/*.jsonl\"`, or `path = \"-\"` for standard input")?;
    let declared_at = path.place();
    let patterns = read_patterns(path, base)?;
    let format = read_format(&mut section, &patterns)?;
    if format == Format::Parquet && is_live(&patterns) {
        return Err(section.error(
            "source: Parquet cannot be read from standard input: what its files hold is listed at their end",
            "name files, such as `path = \"data/*.parquet\"`",
        ));
    }
    let compression = read_compression(&mut section, format)?;
    let partitioning = section.take("partitions").map_or(Ok(Partitioning::File), |item| {
        item.choice(&[("file", Partitioning::File), ("single", Partitioning::Single)])
    })?;
    let csv = read_csv(&mut section, format)?;
    let time = section.require("time", "add `time = { field = \"ts\", format = \"rfc3339\" }`")?;
    let time = read_time(time, defaults, format, is_live(&patterns))?;
    let filters = section.take("filter").map_or(Ok(Vec::new()), read_filters)?;
    let watermark = defaults.of_source(section.take("watermark"))?;
    let dedup = section.take("dedup").map(|item| read_dedup(item, &watermark)).transpose()?;
    let base = base.to_owned();
    Ok(SourceConfig {
        name,
        patterns,
        base,
        declared_at,
        format,
        compression,
        partitioning,
        csv,
        time,
        filters,
        watermark,
        dedup,
    })
}

fn read_dedup(item: Item<'_>, watermark: &SourceWatermark) -> Result<DedupConfig> {
    if watermark.strategy == WatermarkStrategy::None {
        return Err(item.error(
            "needs a watermark: without one every id would have to be remembered for good",
            "add a [watermark] table with `delay = \"15m\"` (how far out of order events may come)",
        ));
    }
    let mut section = item.section(&["by", "within"])?;
    let by = section.require("by", "name the fields that tell records apart: `by = [\"id\"]`")?;
    let empty = by.error("the list is empty", "name at least one field, such as `by = [\"id\"]`");
    let by = read_key(by)?;
    if by.is_empty() {
        return Err(empty);
    }
    let within = match section.take("within") {
        Some(item) => item.positive_span()?,
        None => {
            watermark.strategy.strategy().delay().filter(|delay| *delay > Span::ZERO).ok_or_else(|| {
                let message =
                    "how long to remember an id does not follow from the watermark, which has no delay";
                section.error(message, "add for example `within = \"10m\"`")
            })?
        }
    };
    Ok(DedupConfig { by, within })
}

fn read_patterns(item: Item<'_>, base: &Path) -> Result<Vec<PathBuf>> {
    let items = if item.is_text() { vec![item] } else { read_list(item)? };
    let alone = items.len() == 1;
    let mut patterns = Vec::with_capacity(items.len());
    for item in &items {
        let text = item.name()?;
        if text == "-" && !alone {
            return Err(item.error("standard input cannot be mixed with files", "read one or the other"));
        }
        if let Err(error) = glob::Pattern::new(&text) {
            let remedy = "put wildcard characters that are meant literally into brackets, such as [[]";
            return Err(item.error(format!("\"{text}\" is not a pattern: {}", error.msg), remedy));
        }
        let pattern = if text == "-" { PathBuf::from("-") } else { resolve(base, &text) };
        if patterns.contains(&pattern) {
            return Err(item.error(format!("\"{text}\" is listed twice"), "remove one of the two"));
        }
        patterns.push(pattern);
    }
    Ok(patterns)
}

fn read_list(item: Item<'_>) -> Result<Vec<Item<'_>>> {
    let empty = item.error("the list is empty", "list at least one path or pattern");
    let items = item.list()?;
    if items.is_empty() { Err(empty) } else { Ok(items) }
}

fn read_compression(section: &mut Section<'_>, format: Format) -> Result<Option<Compression>> {
    match section.take("compression") {
        // Whatever their names end with.
        None if format == Format::Parquet => Ok(Some(Compression::None)),
        None => Ok(None),
        Some(item) if format == Format::Parquet => {
            Err(item.error("has no effect on Parquet, whose columns are compressed inside", "remove it"))
        }
        Some(item) => {
            let choices =
                [("none", Compression::None), ("gzip", Compression::Gzip), ("zstd", Compression::Zstd)];
            item.choice(&choices).map(Some)
        }
    }
}

fn read_format(section: &mut Section<'_>, patterns: &[PathBuf]) -> Result<Format> {
    if let Some(item) = section.take("format") {
        return item.choice(&[
            ("jsonl", Format::JsonLines),
            ("csv", Format::Csv),
            ("parquet", Format::Parquet),
        ]);
    }
    let told: Vec<Option<Format>> = patterns.iter().map(|pattern| format_of_path(pattern)).collect();
    match told.first().copied().flatten() {
        Some(format) if told.iter().all(|other| *other == Some(format)) => Ok(format),
        _ => Err(section.error(
            "source: the extension of `path` does not tell the format",
            "add `format = \"jsonl\"`, `format = \"csv\"` or `format = \"parquet\"` to [source]",
        )),
    }
}

fn format_of_path(path: &Path) -> Option<Format> {
    let stem = PathBuf::from(path.file_stem()?);
    let named = if Compression::of_path(path) == Compression::None { path } else { stem.as_path() };
    match named.extension()?.to_str()? {
        "jsonl" | "ndjson" | "json" => Some(Format::JsonLines),
        "csv" => Some(Format::Csv),
        "parquet" => Some(Format::Parquet),
        _ => None,
    }
}

fn read_csv(section: &mut Section<'_>, format: Format) -> Result<Option<CsvConfig>> {
    let item = section.take("csv");
    if format != Format::Csv {
        return match item {
            Some(item) => {
                Err(item.error("is about CSV and has no effect here", "remove it, or set `format = \"csv\"`"))
            }
            None => Ok(None),
        };
    }
    let mut csv = CsvConfig { delimiter: b',', header: true, columns: Vec::new() };
    let Some(item) = item else { return Ok(Some(csv)) };
    let mut section = item.section(&["delimiter", "header", "columns"])?;
    if let Some(item) = section.take("delimiter") {
        csv.delimiter = read_delimiter(&item)?;
    }
    if let Some(item) = section.take("header") {
        csv.header = item.boolean()?;
    }
    match section.take("columns") {
        Some(item) if csv.header => {
            let remedy = "remove it, or set `header = false` if the files have no header line";
            Err(item.error("columns are named by the header line", remedy))
        }
        Some(item) => {
            csv.columns = read_columns(item)?;
            Ok(Some(csv))
        }
        None if !csv.header => Err(section.error(
            "source.csv: without a header the columns have no names",
            "add `columns = [\"a\", \"b\"]`",
        )),
        None => Ok(Some(csv)),
    }
}

fn read_delimiter(item: &Item<'_>) -> Result<u8> {
    match item.text()?.as_bytes() {
        [byte] if byte.is_ascii() && !matches!(byte, b'"' | b'\n' | b'\r') => Ok(*byte),
        _ => Err(item.error(
            "the delimiter must be one ASCII character, no quote and no line end",
            "write for example `delimiter = \";\"` or `delimiter = \"\\t\"`",
        )),
    }
}

fn read_columns(item: Item<'_>) -> Result<Vec<String>> {
    let mut columns = Vec::new();
    let empty = item.error("the list is empty", "name the columns in their order");
    for item in item.list()? {
        let name = item.name()?;
        if columns.contains(&name) {
            return Err(
                item.error(format!("column \"{name}\" is named twice"), "give each column its own name")
            );
        }
        columns.push(name);
    }
    if columns.is_empty() { Err(empty) } else { Ok(columns) }
}

fn read_time(item: Item<'_>, defaults: &Defaults<'_>, source: Format, live: bool) -> Result<TimeConfig> {
    let keys = [&["field", "format", "pattern", "zone"][..], &BOUNDS_KEYS].concat();
    let mut section = item.section(&keys)?;
    let field = section.require("field", "name the field that holds the event time")?.name()?;
    let format = read_time_format(&mut section, source)?;
    let own = BoundsSpec::read(&mut section)?;
    let bounds = defaults.bounds_of(own, &section, live)?;
    Ok(TimeConfig { field, format, bounds })
}

#[derive(Clone, Copy, PartialEq)]
enum TimeWord {
    Rfc3339,
    Epoch(EpochUnit),
    Strftime,
}

fn read_time_format(section: &mut Section<'_>, source: Format) -> Result<TimeFormat> {
    let remedy =
        "add `format`: rfc3339, epoch_s, epoch_ms, epoch_us, epoch_ns or strftime; it is never guessed";
    let mut words = vec![("rfc3339", TimeWord::Rfc3339), ("strftime", TimeWord::Strftime)];
    words.extend(EpochUnit::ALL.map(|unit| (unit.name(), TimeWord::Epoch(unit))));
    let word = match section.take("format") {
        Some(item) => Some(item.choice(&words)?),
        None if source == Format::Parquet => None,
        None => Some(section.require("format", remedy)?.choice(&words)?),
    };
    let (pattern, zone) = (section.take("pattern"), section.take("zone"));
    if let (true, Some(item)) = (word != Some(TimeWord::Strftime), pattern.as_ref().or(zone.as_ref())) {
        return Err(
            item.error("belongs to `format = \"strftime\"`", "remove it, or set `format = \"strftime\"`")
        );
    }
    match word {
        None => Ok(TimeFormat::Column),
        Some(TimeWord::Rfc3339) => Ok(TimeFormat::Rfc3339),
        Some(TimeWord::Epoch(unit)) => Ok(TimeFormat::Epoch(unit)),
        Some(TimeWord::Strftime) => {
            let Some(pattern) = pattern else {
                let remedy = "add `pattern = \"%Y-%m-%d %H:%M:%S\"`";
                return Err(section.error("source.time: strftime needs a pattern", remedy));
            };
            read_strftime(section, &pattern, zone)
        }
    }
}

/// A pattern is tried on one time: it must write it and read it back to the second.
fn read_strftime(section: &Section<'_>, pattern: &Item<'_>, zone: Option<Item<'_>>) -> Result<TimeFormat> {
    let text = pattern.name()?;
    let unusable = |reason: String| {
        let remedy =
            "use the directives of strftime, such as \"%Y-%m-%d %H:%M:%S\" or \"%d/%b/%Y:%H:%M:%S %z\"";
        pattern.error(format!("\"{text}\" cannot be used: {reason}"), remedy)
    };
    // Half of the times of a day would be read as the other half.
    if text.contains("%I") && !text.contains("%p") && !text.contains("%P") {
        return Err(unusable("%I has no meaning without %p".to_owned()));
    }
    // A time whose parts all differ, so that parts that are mixed up or missing show.
    let sample = TimeZone::UTC.to_zoned_datetime(jiff::civil::date(2013, 11, 28).at(22, 47, 39, 0));
    let sample = sample.map_err(|error| unusable(error.to_string()))?;
    let written = jiff::fmt::strtime::format(&text, &sample).map_err(|error| unusable(error.to_string()))?;
    let parsed = jiff::fmt::strtime::parse(&text, &written).map_err(|error| unusable(error.to_string()))?;
    let carries_offset = parsed.to_timestamp().is_ok();
    if !carries_offset {
        parsed.to_datetime().map_err(|error| unusable(error.to_string()))?;
    }
    let zone = match (zone, carries_offset) {
        (Some(item), true) => {
            return Err(item.error("the pattern already reads an offset", "remove `zone`"));
        }
        (None, false) => {
            let remedy = "add `zone = \"America/New_York\"` (or \"UTC\"), or %z to the pattern";
            return Err(section
                .error("source.time: times by this pattern carry no offset, so a zone is needed", remedy));
        }
        (Some(item), false) => Some(read_zone(&item)?),
        (None, true) => None,
    };
    Ok(TimeFormat::Strftime { pattern: text, zone })
}

fn read_zone(item: &Item<'_>) -> Result<TimeZone> {
    let name = item.name()?;
    TimeZone::get(&name).map_err(|error| {
        let remedy = "use an IANA name such as \"America/New_York\" or \"UTC\"";
        item.error(format!("time zone \"{name}\" is not known: {error}"), remedy)
    })
}

fn read_filters(item: Item<'_>) -> Result<Vec<Filter>> {
    item.list()?.into_iter().map(read_filter).collect()
}

fn read_filter(item: Item<'_>) -> Result<Filter> {
    let mut section = item.section(&["field", "not_null", "min", "max", "equals"])?;
    let field = section.require("field", "name the field to look at")?.name()?;
    let not_null = section.take("not_null").map_or(Ok(false), |item| item.boolean())?;
    let min = section.take("min").map(|item| read_bound(&item)).transpose()?;
    let max_item = section.take("max");
    let max = max_item.as_ref().map(read_bound).transpose()?;
    let equals_item = section.take("equals");
    let equals = equals_item.as_ref().map(read_scalar).transpose()?;
    if let (Some(min), Some(max), Some(item)) = (min, max, &max_item)
        && min.as_float() > max.as_float()
    {
        return Err(item.error("max is below min, so no row would pass", "swap the two"));
    }
    if let (Some(item), true) = (&equals_item, min.is_some() || max.is_some()) {
        return Err(item.error("does not go together with min or max", "use `equals`, or a range"));
    }
    if !not_null && min.is_none() && max.is_none() && equals.is_none() {
        let remedy = "add `not_null = true`, `min`, `max` or `equals`";
        return Err(section.error(format!("the filter on `{field}` has no condition"), remedy));
    }
    Ok(Filter { field, not_null, min, max, equals })
}

impl Bound {
    /// The nearest float.
    #[must_use]
    pub const fn as_float(self) -> f64 {
        match self {
            Self::Int(value) => value as f64,
            Self::Float(value) => value,
        }
    }
}

fn read_bound(item: &Item<'_>) -> Result<Bound> {
    let bound = item.as_integer().map(Bound::Int).or_else(|| item.as_float().map(Bound::Float));
    bound.ok_or_else(|| item.error("must be a finite number", "write a number without quotes"))
}

fn read_scalar(item: &Item<'_>) -> Result<Scalar> {
    if item.is_text() {
        return Ok(Scalar::Text(item.text()?.to_owned()));
    }
    match item.as_boolean() {
        Some(value) => Ok(Scalar::Bool(value)),
        None => read_bound(item).map(Scalar::Number),
    }
}
