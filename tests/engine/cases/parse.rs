//! The case format as JSON: settings, operations and expectations.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use serde_json::Value as Json;

use crate::oracle::{
    Bounds, Emitted, Event, Key, Late, Mode, Num, Observed, Op, Pane, Profile, Row, Settings, Trigger,
    Windows,
};

/// Settings and operations of a case.
pub(super) fn run(case: &Json) -> (Settings, Vec<Op>) {
    let json = &case["settings"];
    let mut labels = match json["partitions"].as_array() {
        Some(labels) => labels.clone(),
        None => vec![Json::Null],
    };
    let mut settings = Settings::new(windows(&json["window"]));
    settings.profile = if case["profile"] == "batch" { Profile::Batch } else { Profile::Record };
    settings.delay_ms = millis(&json["delay_ms"]);
    settings.allowed_lateness_ms = millis(&json["allowed_lateness_ms"]);
    settings.mode = match json["mode"].as_str() {
        Some("update") => Mode::Update,
        Some("complete") => Mode::Complete,
        _ => Mode::Append,
    };
    settings.trigger = trigger(&json["trigger"]);
    settings.discarding = json["accumulation"] == "discarding";
    settings.partitions = labels.len();
    settings.idle_timeout_ms = json["idle_timeout_ms"].as_i64();
    let bounds = &json["bounds"];
    settings.bounds =
        Bounds { min_ms: bounds["min_ms"].as_i64(), max_ahead_ms: bounds["max_ahead_ms"].as_i64() };
    settings.dedupe = json["dedupe"].is_object();
    let micros = json["time_format"] == "epoch_us";
    let ops = case["input"].as_array().unwrap();
    let ops = ops.iter().map(|op| operation(op, micros, &mut labels)).collect();
    (settings, ops)
}

fn millis(json: &Json) -> i64 {
    json.as_i64().unwrap_or(0)
}

pub(super) fn windows(json: &Json) -> Windows {
    let field = |name: &str| millis(&json[name]);
    match json["type"].as_str().unwrap() {
        "tumbling" => Windows::Tumbling { size: field("size_ms"), offset: field("offset_ms") },
        "sliding" => {
            Windows::Sliding { size: field("size_ms"), slide: field("slide_ms"), offset: field("offset_ms") }
        }
        "session" => Windows::Session { gap: field("gap_ms") },
        "cumulate" => Windows::Cumulate { max_size: field("max_size_ms"), step: field("step_ms") },
        "calendar_day" => match TimeZone::get(json["tz"].as_str().unwrap()) {
            Ok(zone) => Windows::CalendarDay { zone },
            Err(_) => Windows::UnknownZone,
        },
        "global" => Windows::Global,
        other => panic!("unknown window {other}"),
    }
}

fn trigger(json: &Json) -> Trigger {
    match json["type"].as_str() {
        Some("count") => Trigger::Count(json["n"].as_u64().unwrap()),
        Some("early_event_time") => Trigger::Early(millis(&json["interval_ms"])),
        _ => Trigger::EventTime,
    }
}

fn operation(json: &Json, micros: bool, labels: &mut Vec<Json>) -> Op {
    let partition = |labels: &[Json]| {
        let label = &json["partition"];
        labels.iter().position(|known| known == label).unwrap_or_else(|| panic!("no partition {label}"))
    };
    match json["op"].as_str().unwrap() {
        "event" => {
            let partition = if json["partition"].is_null() { 0 } else { partition(labels) };
            let ts = match micros {
                true => json["time"].as_i64().map(|micros| micros.div_euclid(1000)),
                false => json["ts"].as_i64(),
            };
            let id = json["id"].as_str().map(str::to_owned);
            Op::Event(Event { ts, key: event_key(json), value: number(&json["value"]), partition, id })
        }
        "batch_end" => Op::BatchEnd,
        "tick" => {
            let unread = json["backlog"].as_object().into_iter().flatten();
            let index = |label: &String| {
                let number = label.parse::<u64>().ok();
                let matches = |known: &Json| known == label || number.is_some() && known.as_u64() == number;
                labels.iter().position(matches).unwrap()
            };
            let backlog: BTreeMap<usize, u64> =
                unread.map(|(label, unread)| (index(label), unread.as_u64().unwrap())).collect();
            Op::Tick { now_ms: json["now_ms"].as_i64().unwrap(), backlog }
        }
        "end_of_input" => Op::EndOfInput,
        "end_of_partition" => Op::EndOfPartition(partition(labels)),
        "partition_added" => {
            labels.push(json["partition"].clone());
            Op::PartitionAdded(labels.len() - 1)
        }
        "checkpoint" => Op::Checkpoint,
        // Where no fault point can be reached, the process dies there all the same.
        "kill" | "fault" => Op::Kill,
        "force_compaction" => Op::ForceCompaction,
        other => panic!("unknown operation {other}"),
    }
}

fn event_key(json: &Json) -> Option<Key> {
    match json["key_b64"].as_str() {
        Some(text) => Some(base64(text)),
        None => json["key"].as_str().map(|key| key.as_bytes().to_vec()),
    }
}

/// A key of an expected row: text, or `{"b64": …}` for bytes that are none.
pub(super) fn row_key(json: &Json) -> Key {
    match json["b64"].as_str() {
        Some(text) => base64(text),
        None => json.as_str().unwrap_or_else(|| panic!("no key: {json}")).as_bytes().to_vec(),
    }
}

fn base64(text: &str) -> Key {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = text.bytes().filter(|byte| *byte != b'=');
    let (mut bits, mut held, mut bytes) = (0_u32, 0, Vec::new());
    for digit in digits {
        bits = bits << 6 | ALPHABET.iter().position(|known| *known == digit).unwrap() as u32;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    bytes
}

pub(super) fn number(json: &Json) -> Option<Num> {
    match json {
        Json::Null => None,
        Json::String(text) => Some(Num::Float(text.parse().unwrap())),
        Json::Number(number) => Some(match (number.as_i64(), number.as_u64()) {
            (Some(int), _) => Num::Int(int.into()),
            (None, Some(int)) => Num::Int(int.into()),
            (None, None) => Num::Float(number.as_f64().unwrap()),
        }),
        other => panic!("not a number: {other}"),
    }
}

/// What a case expects.
pub(super) fn observed(json: &Json) -> Observed {
    let list = |name: &str| json[name].as_array().unwrap().iter();
    Observed {
        emits: list("emits").map(|emit| emitted(emit, at(emit))).collect(),
        late: list("late").map(|line| late(line, at(line))).collect(),
        rejected: list("rejected").map(|line| (at(line), reason(line["reason"].as_str().unwrap()))).collect(),
        state: Some(list("state").map(row).collect()),
        final_watermark: json["final_watermark"].as_i64(),
        table: None,
        watermarks: Vec::new(),
    }
}

fn at(json: &Json) -> usize {
    usize::try_from(json["at"].as_u64().unwrap()).unwrap()
}

/// The reason as a text that lasts.
pub(super) fn reason(text: &str) -> &'static str {
    const REASONS: [&str; 5] = [
        "null_timestamp",
        "null_key",
        "timestamp_out_of_range",
        "timestamp_too_old",
        "timestamp_too_far_ahead",
    ];
    REASONS.into_iter().find(|known| *known == text).unwrap_or_else(|| panic!("unknown reason {text}"))
}

/// A result that the operation `at` caused; golden rows have no pane, and call the watermark `wm`.
pub(super) fn emitted(json: &Json, at: usize) -> Emitted {
    let watermark = json["watermark"].as_i64().or(json["wm"].as_i64());
    let pane = [Pane::Early, Pane::OnTime, Pane::Late];
    let pane = pane.into_iter().find(|pane| json["pane"] == pane.name());
    Emitted { at, watermark, row: row(json), pane }
}

pub(super) fn late(json: &Json, at: usize) -> Late {
    let window = json["window_start"].as_i64().zip(json["window_end"].as_i64());
    Late { at, ts: json["ts"].as_i64().unwrap(), key: row_key(&json["key"]), window }
}

fn row(json: &Json) -> Row {
    Row {
        key: row_key(&json["key"]),
        start: json["window_start"].as_i64().unwrap(),
        end: json["window_end"].as_i64().unwrap(),
        count: json["count"].as_u64().unwrap(),
        count_value: json["count_value"].as_u64().unwrap(),
        sum: number(&json["sum"]),
        min: number(&json["min"]),
        max: number(&json["max"]),
    }
}
