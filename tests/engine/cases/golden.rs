//! What other engines gave on real streams: `tests/data/golden/SOURCE.md`.
//!
//! The cases of the repository are joined by those beside it, where there are any.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::{fs, iter};

use serde_json::Value as Json;

use super::{parse, repository};
use crate::oracle::{Emitted, Event, Late, Mode, Op, Profile, Settings, Trigger, Windows};

/// Rows of the flights that the repository carries; longer runs need the whole stream beside it.
const SAMPLE_ROWS: usize = 60_000;

/// One run of another engine.
pub(crate) struct Golden {
    pub(crate) name: String,
    pub(crate) settings: Settings,
    pub(crate) emits: Vec<Emitted>,
    /// Not known for engines without a late output.
    pub(crate) late: Option<Vec<Late>>,
    pub(crate) state_rows: Option<usize>,
    pub(crate) final_watermark: Option<i64>,
    stream: PathBuf,
    facts: Json,
}

/// Every golden case whose stream is at hand.
pub(crate) fn goldens() -> Vec<Golden> {
    let mut folders = BTreeMap::new();
    for root in ["../shared/cases", "tests/data/golden"] {
        let entries = fs::read_dir(repository(root)).into_iter().flatten();
        let paths = entries.map(|entry| entry.unwrap().path()).filter(|path| path.join("case.json").exists());
        folders.extend(paths.map(|path| (path.file_name().unwrap().to_owned(), path)));
    }
    folders.values().filter_map(|folder| read(folder)).collect()
}

fn read(folder: &Path) -> Option<Golden> {
    let facts: Json = serde_json::from_slice(&fs::read(folder.join("case.json")).unwrap()).unwrap();
    let stream = format!("{}.jsonl.zst", facts["stream"].as_str().unwrap());
    let input_rows = facts["input_rows"].as_u64().unwrap() as usize;
    let places = [
        ("../shared/data", usize::MAX),
        ("tests/data/streams", usize::MAX),
        ("examples/flights", SAMPLE_ROWS),
    ];
    let enough = places.iter().filter(|(_, rows)| *rows >= input_rows);
    let stream = enough.map(|(place, _)| repository(place).join(&stream)).find(|path| path.exists())?;
    let settings = settings(&facts);
    let batch_rows = facts["batch_rows"].as_u64().map(|rows| rows as usize);
    let at = |line: &Json| match (batch_rows, line["seq"].as_u64(), line["batch"].as_u64()) {
        // The operation that ends the batch: each one before it has its records and its own end.
        (Some(rows), _, Some(batch)) => (input_rows.min((batch as usize + 1) * rows)) + batch as usize,
        // A late record: as many ends of batches are before it as batches are full.
        (Some(rows), Some(seq), _) => seq as usize + seq as usize / rows,
        (_, seq, _) => seq.map_or(input_rows, |seq| seq as usize),
    };
    let emits = lines(&folder.join("expected.jsonl.zst"));
    let late = folder.join("late.jsonl.zst");
    let late = late.exists().then(|| lines(&late).iter().map(|line| parse::late(line, at(line))).collect());
    Some(Golden {
        name: folder.file_name().unwrap().to_string_lossy().into_owned(),
        settings,
        emits: emits.iter().map(|line| parse::emitted(line, at(line))).collect(),
        late,
        state_rows: facts["remaining_state_rows"].as_u64().map(|rows| rows as usize),
        final_watermark: facts["final_watermark"].as_i64(),
        stream,
        facts,
    })
}

fn settings(facts: &Json) -> Settings {
    let zone = facts["tz"].as_str().filter(|zone| *zone != "UTC");
    let windows = match zone {
        // Days of a zone away from UTC are given as a tumbling window of 24 hours and the zone.
        Some(zone) => parse::windows(&serde_json::json!({"type": "calendar_day", "tz": zone})),
        None => parse::windows(&facts["window"]),
    };
    assert!(windows != Windows::UnknownZone);
    let mut settings = Settings::new(windows);
    settings.delay_ms = facts["delay_ms"].as_i64().unwrap();
    settings.allowed_lateness_ms = facts["allowed_lateness_ms"].as_i64().unwrap_or(0);
    if facts["engine"] == "spark" {
        settings.profile = Profile::Batch;
    }
    settings.mode = match facts["mode"].as_str() {
        Some("update") => Mode::Update,
        Some("complete") => Mode::Complete,
        _ => Mode::Append,
    };
    match facts["trigger"].as_str().unwrap_or("default").split_once(':') {
        Some(("count", n)) => settings.trigger = Trigger::Count(n.parse().unwrap()),
        Some(("cont", interval)) => settings.trigger = Trigger::Early(interval.parse().unwrap()),
        Some((other, _)) => panic!("unknown trigger {other}"),
        None => settings.discarding = facts["trigger"] == "purge",
    }
    settings
}

impl Golden {
    /// How many records of its stream the case reads.
    pub(crate) fn input_rows(&self) -> usize {
        self.facts["input_rows"].as_u64().unwrap() as usize
    }

    /// The operations of the run. `streams` keeps what was read, by path.
    pub(crate) fn ops(&self, streams: &mut BTreeMap<PathBuf, Rc<Vec<Json>>>) -> Vec<Op> {
        let stream = streams.entry(self.stream.clone());
        let stream = Rc::clone(stream.or_insert_with(|| Rc::new(lines(&self.stream))));
        let rows = self.input_rows();
        assert!(stream.len() >= rows, "{}: the stream is too short", self.name);
        let events = stream[..rows].iter().map(|line| Op::Event(self.event(line)));
        let Some(batch_rows) = self.facts["batch_rows"].as_u64() else {
            return events.chain(iter::once(Op::EndOfInput)).collect();
        };
        let mut ops = Vec::new();
        for (index, event) in events.enumerate() {
            if index > 0 && index % batch_rows as usize == 0 {
                ops.push(Op::BatchEnd);
            }
            ops.push(event);
        }
        ops.push(Op::BatchEnd);
        // An empty batch follows if the watermark moved in the last one.
        let full = rows.div_ceil(batch_rows as usize) as u64;
        let batches = self.facts["batches"].as_u64().unwrap();
        ops.extend((full..batches).map(|_| Op::BatchEnd));
        ops
    }

    fn event(&self, line: &Json) -> Event {
        let field = |name: &str| &line[self.facts[name].as_str().unwrap()];
        let time: jiff::Timestamp = field("ts_field").as_str().unwrap().parse().unwrap();
        let key = match field("key_field") {
            Json::Null => String::new(),
            Json::String(text) => text.clone(),
            other => other.to_string(),
        };
        let value = parse::number(field("value_field"));
        Event { ts: Some(time.as_millisecond()), key: Some(key.into_bytes()), value, partition: 0, id: None }
    }
}

fn lines(path: &Path) -> Vec<Json> {
    let text = crate::unpacked(path);
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}
