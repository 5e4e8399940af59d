//! Late records made into result rows: read as the pipeline file says, aggregated by the window's own definition.
//!
//! An operator in memory does the work; nothing is late for it, and it fires once, at the end.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::aggregate::RowMut;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::event_time::{EventTime, Span, Watermark, Window};
use crate::inspect::parse_base64;
use crate::operator::{
    Accumulation, Advance, Emit, EventBatch, LateEvent, Marks, Mode, OperatorSpec, Panes, Policy, Rejection,
    ResultBlock, RowBuffer, SourceId, SourceSpec, Strategy, TimeDomain, Trigger, WatermarkTracker,
    WindowOperator,
};
use crate::pipeline::assemble;
use crate::pipeline::config::{
    Compression, Format, PipelineConfig, SourceConfig, WatermarkStrategy, WindowConfig,
};
use crate::pipeline::finished::row::{
    Fields, Identity, JsonText, Part, Row, time as time_of, window as window_of,
};
use crate::pipeline::sink::ResultLines;
use crate::pipeline::source::{FileSource, ParsePlan, Rejected, STDIN_NAME};

/// Text that is parsed at once.
pub(super) const TEXT_BYTES: usize = 4 << 20;
pub(super) const REMEDY: &str =
    "name the late output of this pipeline, with the pipeline file that it was written by";

/// Reads the parts, and returns how many records are of the window and what they amount to.
pub(super) fn rows(
    config: &PipelineConfig,
    window: &WindowConfig,
    sources: &[&SourceConfig],
    parts: &[Part],
    clock: Arc<dyn Clock>,
) -> Result<(u64, BTreeMap<Identity, Row>)> {
    let [first, ..] = sources else {
        return Err(Error::new(ErrorKind::Bug, format!("a window reads no source: window={}", window.name)));
    };
    let mut readers: Vec<Reader> = sources.iter().map(|source| Reader::new(config, window, source)).collect();
    let mut groups = Groups::new(config, window, first)?;
    let mut records = 0;
    for (index, part) in parts.iter().enumerate() {
        part.lines(|number, line| {
            let late = Late::parse(line).map_err(|what| part.wrong(number, &what, REMEDY))?;
            if late.operator != window.name {
                return Ok(());
            }
            records += 1;
            let reader = match readers.as_mut_slice() {
                [only] => Some(only),
                several => several.iter_mut().find(|reader| has(&reader.source, &late.source)),
            };
            let unknown = || {
                part.wrong(number, &format!("no source has this partition: source={}", late.source), REMEDY)
            };
            let reader = reader.ok_or_else(unknown)?;
            let text =
                late.text(&reader.source.time.field).map_err(|what| part.wrong(number, &what, REMEDY))?;
            let group = groups.group_of(&late);
            reader.push(group, &text, (index, number));
            if reader.waiting >= TEXT_BYTES { reader.read(&mut groups, parts, &clock) } else { Ok(()) }
        })?;
    }
    for reader in &mut readers {
        reader.read(&mut groups, parts, &clock)?;
    }
    Ok((records, groups.finish()?))
}

/// A line of the late output.
pub(super) struct Late {
    pub(super) operator: String,
    /// Name of the source partition.
    pub(super) source: String,
    /// 1-based number of the record there, and where it starts.
    pub(super) record_number: Option<u64>,
    pub(super) byte_offset: Option<u64>,
    pub(super) event_time: Option<EventTime>,
    window: Window,
    record: JsonText,
}

impl Late {
    pub(super) fn parse(line: &[u8]) -> Result<Self, String> {
        let Fields(fields) =
            serde_json::from_slice(line).map_err(|error| format!("no JSON object: {error}"))?;
        let get = |name: &str| {
            let field = fields.iter().find(|(known, _)| known == name);
            field.map(|(_, value)| value).ok_or_else(|| format!("no `{name}`: not a line of a late output"))
        };
        let number = |name: &str| get(name).ok().and_then(|value| value.as_str().parse().ok());
        Ok(Self {
            operator: get("operator")?.to_string(),
            source: get("source")?.to_string(),
            record_number: number("record_number"),
            byte_offset: number("byte_offset"),
            event_time: get("event_time").ok().and_then(time_of),
            window: window_of(get("window_start")?, get("window_end")?)?,
            record: get("record")?.clone(),
        })
    }

    /// The original text of the record.
    pub(super) fn text(&self, time_field: &str) -> Result<Vec<u8>, String> {
        let json = self.record.as_str();
        if json == "null" {
            return Err("the text of the record was not kept".to_owned());
        }
        if let Ok(text) = serde_json::from_str::<String>(json) {
            return Ok(text.into_bytes());
        }
        match serde_json::from_str(json) {
            Ok(Fields(fields)) => match fields.as_slice() {
                [(name, value)] if name == "base64" && time_field != "base64" => {
                    parse_base64(&value.to_string()).ok_or_else(|| "the record is no base64".to_owned())
                }
                _ => Ok(json.as_bytes().to_vec()),
            },
            Err(error) => Err(format!("the record is neither an object nor text: {error}")),
        }
    }
}

/// One source's records, waiting to be parsed together.
struct Reader {
    source: SourceConfig,
    plans: Vec<ParsePlan>,
    texts: BTreeMap<Option<Window>, Waiting>,
    waiting: usize,
}

/// Text of records, and where each of them stood: the index of its part, and its line.
#[derive(Default)]
struct Waiting {
    text: Vec<u8>,
    places: Vec<(usize, u64)>,
}

impl Reader {
    fn new(config: &PipelineConfig, window: &WindowConfig, source: &SourceConfig) -> Self {
        let (plans, _) = assemble::operators(&alone(config, window, source));
        Self { source: source.clone(), plans, texts: BTreeMap::new(), waiting: 0 }
    }

    fn push(&mut self, group: Option<Window>, text: &[u8], place: (usize, u64)) {
        let waiting = self.texts.entry(group).or_default();
        waiting.text.extend_from_slice(text);
        waiting.text.push(b'\n');
        waiting.places.push(place);
        self.waiting += text.len() + 1;
    }

    /// Parses what waits, and hands it to the groups.
    fn read(&mut self, groups: &mut Groups<'_>, parts: &[Part], clock: &Arc<dyn Clock>) -> Result<()> {
        self.waiting = 0;
        for (group, Waiting { text, places }) in std::mem::take(&mut self.texts) {
            let (config, plans) = (only_stdin(&self.source), self.plans.clone());
            let stdin = Box::new(Cursor::new(text));
            let mut source = FileSource::open_with_stdin(&[config], plans, &[], Arc::clone(clock), stdin)?;
            while let Some(block) = source.next_block(None)? {
                if let Some(rejected) = block.rejected.first() {
                    return Err(unusable(rejected, &places, parts));
                }
                groups.process(group, &block.batch)?;
            }
        }
        Ok(())
    }
}

/// True when a file of this name is one of the source's.
pub(super) fn has(source: &SourceConfig, partition: &str) -> bool {
    let path = source.base.join(partition);
    source.patterns.iter().any(|pattern| {
        let glob = pattern.to_str().and_then(|text| glob::Pattern::new(text).ok());
        pattern == Path::new(partition)
            || *pattern == path
            || glob.is_some_and(|glob| glob.matches_path(&path))
    })
}

/// The error of a record that was an event once and is none now, at its line of the late output.
pub(super) fn unusable(rejected: &Rejected, places: &[(usize, u64)], parts: &[Part]) -> Error {
    let what = format!("the record cannot be used: {} detail={}", rejected.reason.name(), rejected.detail);
    let index = usize::try_from(rejected.record.saturating_sub(1)).unwrap_or(usize::MAX);
    let place = places.get(index).and_then(|&(part, line)| Some((parts.get(part)?, line)));
    match place {
        Some((part, line)) => part.wrong(line, &what, REMEDY),
        None => Error::new(ErrorKind::Invalid, what).with_remedy(REMEDY),
    }
}

/// The source as a stream of text, without a watermark.
pub(super) fn only_stdin(source: &SourceConfig) -> SourceConfig {
    let mut source = source.clone();
    source.patterns = vec![PathBuf::from(STDIN_NAME)];
    source.compression = Some(Compression::None);
    if source.format == Format::Parquet {
        // Its rows were written down as JSON.
        source.format = Format::JsonLines;
    }
    source.watermark.strategy = WatermarkStrategy::None;
    source
}

/// A pipeline of this window and this source alone.
fn alone(config: &PipelineConfig, window: &WindowConfig, source: &SourceConfig) -> PipelineConfig {
    let mut alone = config.clone();
    alone.sources = vec![only_stdin(source)];
    alone.windows = vec![WindowConfig { sources: None, ..window.clone() }];
    alone
}

/// Operators in memory. By batches a late line is about one window of its event only, so each window has an operator;
/// else a late event was late for all its windows, and one does for all.
struct Groups<'a> {
    window: &'a WindowConfig,
    spec: OperatorSpec,
    by_window: bool,
    memory_bytes: u64,
    operators: BTreeMap<Option<Window>, Group>,
}

struct Group {
    operator: WindowOperator,
    tracker: WatermarkTracker,
    marks: Marks,
    lines: Lines,
}

impl<'a> Groups<'a> {
    fn new(config: &PipelineConfig, window: &'a WindowConfig, source: &SourceConfig) -> Result<Self> {
        let (_, mut operators) = assemble::operators(&alone(config, window, source));
        let spec = operators.pop().ok_or_else(|| Error::new(ErrorKind::Bug, "a window has no operator"))?;
        // What is late for the pipeline is on time here.
        let spec = OperatorSpec {
            allowed_lateness: Span::ZERO,
            mode: Mode::Append,
            trigger: Trigger::Watermark,
            accumulation: Accumulation::Accumulating,
            time: TimeDomain::Event,
            advance: Advance::Event,
            ..spec
        };
        let by_window = window.advance == Advance::Batch && window.windows.overlap();
        let memory_bytes = config.state.memory_bytes;
        Ok(Self { window, spec, by_window, memory_bytes, operators: BTreeMap::new() })
    }

    fn group_of(&self, late: &Late) -> Option<Window> {
        self.by_window.then_some(late.window)
    }

    fn process(&mut self, only: Option<Window>, batch: &EventBatch) -> Result<()> {
        let group = self.operators.entry(only).or_insert_with(|| Group {
            operator: WindowOperator::new(0, self.spec.clone()),
            tracker: tracker(),
            marks: Marks::default(),
            lines: Lines { only, lines: ResultLines::new(assemble::results(self.window)) },
        });
        group.marks.observe(&mut group.tracker, std::slice::from_ref(&group.operator), batch);
        group.operator.process(batch, &group.marks, &mut NoPanes, &mut group.lines)?;
        let bytes: usize = self.operators.values().map(|group| group.operator.memory_bytes()).sum();
        if bytes as u64 > self.memory_bytes {
            let message = format!(
                "the late events take more memory than the pipeline may use: bytes={bytes} memory_bytes={}",
                self.memory_bytes
            );
            return Err(Error::new(ErrorKind::Invalid, message)
                .with_remedy("raise `memory` in [state], or apply some of the late parts at a time"));
        }
        Ok(())
    }

    /// What all late events amount to.
    fn finish(self) -> Result<BTreeMap<Identity, Row>> {
        let mut rows = BTreeMap::new();
        for mut group in self.operators.into_values() {
            group.operator.advance(Watermark::End, &mut NoPanes, &mut group.lines)?;
            let text = group.lines.lines.text;
            for line in text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
                let row = Row::parse(line).map_err(|what| Error::new(ErrorKind::Bug, what))?;
                rows.insert(row.identity(), row);
            }
        }
        Ok(rows)
    }
}

/// A watermark that never comes.
fn tracker() -> WatermarkTracker {
    let mut tracker = WatermarkTracker::of(vec![SourceSpec::new("late", Strategy::None)], Policy::Min);
    tracker.add_partition_of(SourceId(0), Duration::ZERO);
    tracker
}

/// Takes the results: all of them, or those of one window.
struct Lines {
    only: Option<Window>,
    lines: ResultLines,
}

impl Emit for Lines {
    type Error = Error;

    fn results(&mut self, _: usize, block: &mut dyn ResultBlock) -> Result<()> {
        if self.only.is_some_and(|only| only != block.window()) {
            return Ok(());
        }
        self.lines.write(block)
    }

    fn late(&mut self, _: usize, _: LateEvent<'_>) -> Result<()> {
        Err(Error::new(ErrorKind::Bug, "an event was late without a watermark"))
    }

    fn rejected(&mut self, _: &EventBatch, _: usize, rejection: Rejection) -> Result<()> {
        Err(Error::new(ErrorKind::Bug, format!("a late record was rejected: reason={}", rejection.name())))
    }
}

/// Everything is in memory.
struct NoPanes;

impl Panes for NoPanes {
    type Error = Error;

    fn load(&mut self, _: usize, _: EventTime, _: &[u8], _: RowMut<'_>) -> Result<bool> {
        Ok(false)
    }

    fn scan(&mut self, _: usize, _: EventTime, _: Option<&[u8]>, _: usize, _: &mut RowBuffer) -> Result<()> {
        Ok(())
    }

    fn put(&mut self, _: usize, _: EventTime, _: RowBuffer) -> Result<()> {
        Err(Error::new(ErrorKind::Bug, "a pane left memory that has nowhere to go"))
    }
}
