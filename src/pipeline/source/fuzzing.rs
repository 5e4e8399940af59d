//! Fuzz targets of sources: records of each format, whichever way their text is cut into blocks; times and numbers.

use std::io::Cursor;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use serde::de::IgnoredAny;

use super::json::{self, Order};
use super::number::{FixedPoint, Integer, fixed_point, float, integer};
use super::partition::Limits;
use super::time::TimeReader;
use super::token::{Kind, Token};
use super::{BLOCK_BYTES, Block, FileSource, ParsePlan, RECORD_BYTES_MAX, RejectReason, rfc3339};
use crate::aggregate::decimal_text;
use crate::clock::ManualClock;
use crate::event::Datum;
use crate::pipeline::config::{EpochUnit, PipelineConfig, TimeConfig, TimeFormat};

/// Settings of the source besides its columns.
const JSON: [&str; 2] = [
    r#"format = "jsonl""#,
    r#"format = "jsonl"
filter = [{ field = "p", not_null = true }, { field = "v", min = -5, max = 1e3 }]"#,
];
const CSV: [&str; 5] = [
    r#"format = "csv""#,
    r#"format = "csv"
csv = { delimiter = "\t" }"#,
    r#"format = "csv"
csv = { delimiter = ";", header = false, columns = ["ts", "k", "v", "f", "d", "s", "p", "more"] }"#,
    r#"format = "csv"
csv = { header = false, columns = ["ts", "k", "v", "f", "d", "s", "p"] }"#,
    r#"format = "csv"
csv = { delimiter = "|", header = false, columns = ["p", "s", "d", "f", "v", "k", "ts"] }
filter = [{ field = "s", equals = "x" }]"#,
];

/// Times as text, for every second setting.
const TIMES: [&str; 2] = [r#"format = "epoch_ms""#, r#"format = "rfc3339", max_ahead = "5m""#];

/// Columns of every type, read from standard input.
fn pipeline(settings: &str, time: &str) -> Option<PipelineConfig> {
    let text = format!(
        r#"name = "fuzz"
[source]
path = "-"
time = {{ field = "ts", {time} }}
{settings}
[watermark]
delay = "0s"
[state]
directory = "state"
[[window]]
name = "w"
key = ["k", {{ field = "v", type = "int" }}]
type = "tumbling"
size = "1s"
mode = "append"
aggregates = [
  {{ name = "total", function = "sum", field = "v", type = "int" }},
  {{ name = "f", function = "avg", field = "f", type = "float" }},
  {{ name = "d", function = "sum", field = "d", type = "decimal(2)" }},
  {{ name = "s", function = "first", field = "s", type = "string" }},
  {{ name = "p", function = "count", field = "p" }},
]
output = {{ path = "out" }}
"#
    );
    PipelineConfig::from_str(&text, Path::new("fuzz.toml")).ok()
}

fn pipelines(settings: &[&str]) -> Vec<PipelineConfig> {
    let all = settings.iter().flat_map(|settings| TIMES.map(|time| pipeline(settings, time)));
    let made: Vec<PipelineConfig> = all.flatten().collect();
    assert_eq!(made.len(), settings.len() * TIMES.len(), "a pipeline of the fuzz target is refused");
    made
}

/// JSON lines: a byte that chooses the settings, one for the size of blocks, and the text.
pub(crate) fn json_lines(bytes: &[u8]) {
    static PIPELINES: OnceLock<Vec<PipelineConfig>> = OnceLock::new();
    records(PIPELINES.get_or_init(|| pipelines(&JSON)), bytes);
    if let Some(Ok(text)) = bytes.get(2..).map(std::str::from_utf8) {
        lines(text);
    }
}

/// Lines are accepted as `serde_json` does it, and what is found in one does not depend on those before it.
fn lines(text: &str) {
    let fields = ["ts", "k", "\""].map(str::to_owned);
    let mut known = Order::new(&fields);
    for line in text.split('\n') {
        let scan = |order: &mut Order| {
            let mut tokens = vec![Token::ABSENT; fields.len()];
            let scanned =
                json::scan(line.as_bytes(), 0, line.len(), &fields, order, &mut tokens, &mut Vec::new());
            let found = |token: &Token| (token.kind, token.raw(line.as_bytes()).to_vec());
            scanned.map(|()| tokens.iter().map(found).collect::<Vec<_>>()).map_err(|refusal| refusal.detail)
        };
        let found = scan(&mut Order::new(&fields));
        assert_eq!(scan(&mut known), found, "what is found depends on the lines before: {line}");
        let theirs = serde_json::from_str::<IgnoredAny>(line).is_ok()
            && line.trim_start_matches([' ', '\t', '\r']).starts_with('{');
        // They take any nesting where they ignore what it holds.
        let too_deep = matches!(&found, Err(detail) if detail.contains("less nesting"));
        assert!(too_deep || found.is_ok() == theirs, "{line:?} is accepted by one of two: {found:?}");
    }
}

/// CSV, the same way.
pub(crate) fn csv(bytes: &[u8]) {
    static PIPELINES: OnceLock<Vec<PipelineConfig>> = OnceLock::new();
    records(PIPELINES.get_or_init(|| pipelines(&CSV)), bytes);
}

fn records(pipelines: &[PipelineConfig], bytes: &[u8]) {
    let Some(([choice, size], text)) = bytes.split_first_chunk::<2>() else { return };
    let config = &pipelines[usize::from(*choice) % pipelines.len()];
    let whole = read(config, text, BLOCK_BYTES);
    let cut = read(config, text, usize::from(*size).max(1));
    assert_eq!(whole, cut, "what is read depends on how the text is cut: block_bytes={size}");
}

/// Every record in order, as text; or the refusal of the whole.
fn read(config: &PipelineConfig, text: &[u8], block_bytes: usize) -> Result<Vec<String>, String> {
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    let stdin = Box::new(Cursor::new(text.to_vec()));
    let opened = FileSource::open_with_stdin(&config.sources, ParsePlan::of(config).0, &[], clock, stdin);
    let mut source = opened.map_err(|error| error.to_string())?;
    source.limits = Limits { block_bytes, record_bytes: RECORD_BYTES_MAX };
    let (mut seen, mut spare, mut blocks) = (Vec::new(), None, 0);
    while let Some(block) = source.next_block(spare.take()).map_err(|error| error.to_string())? {
        describe(&block, text.len(), &mut seen);
        blocks += 1;
        assert!(blocks <= text.len() + 2, "reading does not come to an end");
        spare = Some(block);
    }
    let position = source.partitions().first().map(|partition| partition.resume.position.bytes);
    assert_eq!(position, Some(text.len() as u64), "the text is not read to its end");
    Ok(seen)
}

fn describe(block: &Block, text_bytes: usize, seen: &mut Vec<String>) {
    let batch = &block.batch;
    let mut records = Vec::new();
    for column in &batch.values {
        assert_eq!(column.len(), batch.len(), "a column has another length than its batch");
    }
    for index in 0..batch.len() {
        let values: Vec<_> = batch.values.iter().map(|column| shown(column.get(index))).collect();
        let event = format!("{} {:?} {values:?}", batch.times[index], batch.keys[0].get(index));
        records.push((batch.records[index], format!("{event} {:?}", batch.text_of(index))));
    }
    for rejected in &block.rejected {
        assert!(rejected.byte_offset.is_some_and(|offset| offset <= text_bytes as u64));
        let what = format!("{} {:?} @{:?}", rejected.reason, rejected.field, rejected.byte_offset);
        records.push((rejected.record, format!("{what} {} {:?}", rejected.detail, rejected.text)));
    }
    for (record, _) in &block.filtered_records {
        records.push((*record, "filtered".to_owned()));
    }
    records.sort();
    seen.extend(records.into_iter().map(|(record, text)| format!("{record} {text}")));
}

fn shown(value: Option<Datum<'_>>) -> String {
    match value {
        Some(Datum::Decimal { unscaled, scale }) => decimal_text(i128::from(unscaled), scale),
        other => format!("{other:?}"),
    }
}

/// Times in every format, and times after a pattern: the pattern, a line feed, the time.
pub(crate) fn times(bytes: &[u8]) {
    if let Some(fast) = rfc3339::millis(bytes) {
        let text = std::str::from_utf8(bytes).unwrap_or_default();
        let library = text.parse::<jiff::Timestamp>().ok();
        let library = library.and_then(|time| i64::try_from(time.as_nanosecond().div_euclid(1_000_000)).ok());
        assert_eq!(Some(fast), library, "the fast path reads another time than the library: {text}");
    }
    let units = EpochUnit::ALL.into_iter().map(TimeFormat::Epoch);
    for format in units.chain([TimeFormat::Rfc3339]) {
        time_of(format, bytes);
    }
    let Some(at) = memchr::memchr(b'\n', bytes) else { return };
    let Ok(pattern) = std::str::from_utf8(&bytes[..at]) else { return };
    for zone in [None, jiff::tz::TimeZone::get("America/New_York").ok()] {
        time_of(TimeFormat::Strftime { pattern: pattern.to_owned(), zone }, &bytes[at + 1..]);
    }
}

fn time_of(format: TimeFormat, text: &[u8]) {
    let config = TimeConfig { field: "ts".to_owned(), format, bounds: Default::default() };
    let reader = TimeReader::new(config);
    for kind in [Kind::Number, Kind::Text, Kind::Cell, Kind::Null] {
        let token = Token::new(kind, 0, text.len());
        let read = reader.read(text, token, &mut Vec::new());
        if let Err(refusal) = read {
            assert!(refusal.field.is_some() && !refusal.detail.is_empty());
            assert!(kind != Kind::Null || refusal.reason == RejectReason::NullTimestamp);
        }
    }
}

/// Integers, decimals and floats; the first byte is the scale of the decimal.
pub(crate) fn numbers(bytes: &[u8]) {
    let Some((&scale, text)) = bytes.split_first() else { return };
    let scale = scale % 19;
    let wide = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i128>().ok());
    match (integer(text), wide) {
        (Integer::Exact(value), wide) => assert_eq!(wide, Some(i128::from(value))),
        (Integer::TooLarge, Some(wide)) => assert!(i64::try_from(wide).is_err()),
        (Integer::Fraction | Integer::NotANumber, Some(wide)) => panic!("{wide} is an integer"),
        _ => {}
    }
    if let Some(value) = float(text) {
        assert!(!value.is_nan());
    }
    if let FixedPoint::Exact(value) = fixed_point(text, scale) {
        let written = decimal_text(i128::from(value), scale);
        assert_eq!(fixed_point(written.as_bytes(), scale), FixedPoint::Exact(value), "{written}");
        let near = float(text).zip(float(written.as_bytes()));
        assert!(
            near.is_some_and(|(left, right)| left == right),
            "a decimal is read as another number: {written} {near:?}"
        );
    }
}
