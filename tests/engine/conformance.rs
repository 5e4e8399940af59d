//! Every record-profile tumbling case of the conformance set, through the operator alone.
//!
//! `tests/data/conformance/README.md` is the exact statement of the rules. Each case is a list of operations with
//! the emissions, late events, rejections and remaining state that they must lead to.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use floodmark::aggregate::{AggregateSpec, Function, InputType, Value};
use floodmark::event_time::{EventTime, Span, Tumbling, Watermark};
use floodmark::operator::{
    Accumulation, Emit, EventBatch, KeyColumn, LateEvent, Marks, Mode, OperatorSpec, Panes, PartitionId,
    Rejection, ResultBlock, RowBuffer, SpillKind, Spilled, Trigger, ValueColumn, WatermarkTracker,
    WindowOperator,
};
use serde_json::{Value as Json, json};

fn cases() -> Vec<(PathBuf, Json)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/conformance");
    let mut cases: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| {
            let case: Json = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            (path, case)
        })
        .filter(|(_, case)| case["profile"] == "record" && case["settings"]["window"]["type"] == "tumbling")
        .collect();
    cases.sort_by(|a, b| a.0.cmp(&b.0));
    cases
}

fn millis(value: &Json) -> i64 {
    value.as_i64().unwrap_or(0)
}

fn span(value: &Json) -> Span {
    Span::from_millis(millis(value)).expect("spans of the cases are not negative")
}

/// The operator that a case asks for, or `None` when its settings must be refused.
fn operator(settings: &Json) -> Option<WindowOperator> {
    let window = &settings["window"];
    let size = Span::from_millis(millis(&window["size_ms"]))?;
    let windows = Tumbling::new(size, millis(&window["offset_ms"])).ok()?;
    let over =
        |name: &str, function, column| AggregateSpec::over(name, function, "value", InputType::Int, column);
    let aggregates = vec![
        AggregateSpec::count("count"),
        over("count_value", Function::Count, 0),
        over("sum", Function::Sum, 0),
        over("min", Function::Min, 0),
        over("max", Function::Max, 0),
    ];
    let mut spec = OperatorSpec::new("case", windows, &["key"], aggregates);
    spec.allowed_lateness = span(&settings["allowed_lateness_ms"]);
    spec.mode = if settings["mode"] == "update" { Mode::Update } else { Mode::Append };
    let trigger = &settings["trigger"];
    spec.trigger = match trigger["type"].as_str() {
        Some("count") => Trigger::Count(u32::try_from(millis(&trigger["n"])).unwrap()),
        Some("early_event_time") => Trigger::Early(span(&trigger["interval_ms"])),
        _ => Trigger::Watermark,
    };
    if settings["accumulation"] == "discarding" {
        spec.accumulation = Accumulation::Discarding;
    }
    Some(WindowOperator::new(0, spec))
}

/// Keeps evicted panes in a sorted map, as the state database would.
#[derive(Default)]
struct ModelPanes(std::collections::BTreeMap<(EventTime, Vec<u8>), Vec<u64>>);

impl Panes for ModelPanes {
    type Error = String;

    fn load(&mut self, _: usize, end: EventTime, key: &[u8], words: &mut [u64]) -> Result<bool, String> {
        let Some(found) = self.0.get(&(end, key.to_vec())) else { return Ok(false) };
        words.copy_from_slice(found);
        Ok(true)
    }

    fn scan(
        &mut self,
        _: usize,
        end: EventTime,
        after: Option<&[u8]>,
        limit: usize,
        rows: &mut RowBuffer,
    ) -> Result<(), String> {
        let of_window = self.0.iter().filter(|((window, _), _)| *window == end);
        let from_key = of_window.filter(|((_, key), _)| after.is_none_or(|after| key.as_slice() > after));
        from_key.take(limit).for_each(|((_, key), words)| rows.push(key, words));
        Ok(())
    }

    fn put(&mut self, _: usize, end: EventTime, rows: RowBuffer) -> Result<(), String> {
        for row in 0..rows.len() {
            self.0.insert((end, rows.key(row).to_vec()), rows.row(row).to_vec());
        }
        Ok(())
    }
}

impl ModelPanes {
    fn take_in(&mut self, operator: &WindowOperator, spilled: Spilled) {
        for row in 0..spilled.rows.len() {
            let pane = (spilled.end, spilled.rows.key(row).to_vec());
            let words = spilled.rows.row(row);
            match spilled.kind {
                SpillKind::Put => {
                    self.0.insert(pane, words.to_vec());
                }
                SpillKind::Merge => {
                    let identity = operator.layout().identity().to_vec();
                    operator.layout().merge(self.0.entry(pane).or_insert(identity), words);
                }
            }
        }
    }
}

#[derive(Default)]
struct Seen {
    at: usize,
    emits: Vec<Json>,
    late: Vec<Json>,
    rejected: Vec<Json>,
}

/// A watermark as the cases print it: the last instant that it has passed, null at the end of input.
fn inclusive(watermark: Watermark) -> Json {
    match watermark {
        Watermark::None => json!(i64::MIN),
        Watermark::End => Json::Null,
        Watermark::At(time) => json!(time.as_millis() - 1),
    }
}

fn number(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Int(int) => serde_json::from_str(&int.to_string()).unwrap(),
        other => panic!("unexpected value {other:?}"),
    }
}

impl Emit for Seen {
    type Error = String;

    fn results(&mut self, _: usize, block: &mut dyn ResultBlock) -> Result<(), String> {
        let (window, watermark) = (block.window(), block.watermark());
        while let Some(row) = block.next_row() {
            self.emits.push(json!({
                "at": self.at,
                "watermark": inclusive(watermark),
                "key": std::str::from_utf8(row.key).unwrap(),
                "window_start": window.start.as_millis(),
                "window_end": window.end.as_millis(),
                "count": number(&row.values[0]),
                "count_value": number(&row.values[1]),
                "sum": number(&row.values[2]),
                "min": number(&row.values[3]),
                "max": number(&row.values[4]),
                "pane": row.kind.name(),
            }));
        }
        Ok(())
    }

    fn late(&mut self, _: usize, event: LateEvent<'_>) -> Result<(), String> {
        assert!(event.late_by_ms >= 0, "a late event is late by a negative time");
        let key = std::str::from_utf8(event.batch.keys[0].get(event.index)).unwrap();
        self.late.push(json!({"at": self.at, "ts": event.time().as_millis(), "key": key}));
        Ok(())
    }

    fn rejected(&mut self, _: &EventBatch, _: usize, rejection: Rejection) -> Result<(), String> {
        self.rejected.push(json!({"at": self.at, "reason": rejection.name()}));
        Ok(())
    }
}

/// When panes are moved out of memory during a case; none of it may show in the results.
#[derive(Clone, Copy, Debug)]
enum Spill {
    Never,
    DirtyAfterEachEvent,
    EverythingAfterEachEvent,
}

struct Run {
    operator: WindowOperator,
    tracker: WatermarkTracker,
    panes: ModelPanes,
    seen: Seen,
    now: Duration,
    partitions: Vec<Json>,
}

impl Run {
    fn new(settings: &Json, operator: WindowOperator) -> Self {
        let idle = settings["idle_timeout_ms"].as_u64().map(Duration::from_millis);
        let mut tracker = WatermarkTracker::new(span(&settings["delay_ms"]), idle);
        let partitions = settings["partitions"].as_array().cloned().unwrap_or_else(|| vec![json!(0)]);
        for _ in &partitions {
            tracker.add_partition(Duration::ZERO);
        }
        let (panes, seen) = (ModelPanes::default(), Seen::default());
        Self { operator, tracker, panes, seen, now: Duration::ZERO, partitions }
    }

    fn apply(&mut self, at: usize, operation: &Json) {
        self.seen.at = at;
        match operation["op"].as_str() {
            Some("event") => self.event(operation),
            Some("tick") => {
                self.now = Duration::from_millis(operation["now_ms"].as_u64().unwrap());
                let watermark = self.tracker.tick(self.now, |_| false);
                self.operator.advance(watermark, &mut self.panes, &mut self.seen).unwrap();
            }
            Some("end_of_input") => {
                let watermark = self.tracker.end();
                self.operator.advance(watermark, &mut self.panes, &mut self.seen).unwrap();
            }
            other => panic!("unknown operation {other:?}"),
        }
    }

    fn event(&mut self, event: &Json) {
        let Some(time) = event["ts"].as_i64() else {
            self.seen.rejected.push(json!({"at": self.seen.at, "reason": "null_timestamp"}));
            return;
        };
        let partition = self.partitions.iter().position(|known| *known == event["partition"]).unwrap_or(0);
        let partition = PartitionId(partition as u32);
        let mut keys = KeyColumn::default();
        keys.push(event["key"].as_str().unwrap().as_bytes());
        let mut values = ValueColumn::int();
        match event["value"].as_i64() {
            Some(value) => values.push_int(value),
            None => values.push_null(),
        }
        let batch = EventBatch {
            partition,
            times: vec![time],
            keys: vec![keys],
            values: vec![values],
            ..EventBatch::default()
        };
        self.tracker.touch(partition, self.now);
        let mut marks = Marks::default();
        marks.observe(&mut self.tracker, std::slice::from_ref(&self.operator), &batch);
        for &(index, rejection) in marks.rejected() {
            Emit::rejected(&mut self.seen, &batch, index as usize, rejection).unwrap();
        }
        self.operator.process(&batch, &marks, &mut self.panes, &mut self.seen).unwrap();
    }

    fn spill(&mut self, spill: Spill) {
        match spill {
            Spill::Never => {}
            Spill::DirtyAfterEachEvent => {
                for spilled in self.operator.spill_dirty() {
                    self.panes.take_in(&self.operator, spilled);
                }
            }
            Spill::EverythingAfterEachEvent => {
                while let Some(spilled) = self.operator.spill_largest() {
                    self.panes.take_in(&self.operator, spilled);
                }
            }
        }
    }

    /// Panes left, wherever they are: spilled first, then read as the state database would show them.
    fn state(mut self) -> Vec<Json> {
        for spilled in self.operator.spill_dirty() {
            self.panes.take_in(&self.operator, spilled);
        }
        let watermark = self.tracker.current();
        let spec = self.operator.spec().clone();
        let mut rows = Vec::new();
        for ((end, key), words) in &self.panes.0 {
            if watermark.expired(*end, spec.allowed_lateness) {
                continue;
            }
            let mut values = Vec::new();
            self.operator.layout().finish(&words[..self.operator.layout().words()], &mut values);
            rows.push(json!({
                "key": std::str::from_utf8(key).unwrap(),
                "window_start": spec.windows.window_ending(*end).start.as_millis(),
                "window_end": end.as_millis(),
                "count": number(&values[0]),
                "count_value": number(&values[1]),
                "sum": number(&values[2]),
                "min": number(&values[3]),
                "max": number(&values[4]),
            }));
        }
        rows
    }
}

fn check(case: &Json, spill: Spill) -> Result<(), String> {
    let settings = &case["settings"];
    let expected = &case["expect"];
    let Some(operator) = operator(settings) else {
        return if expected["error"] == "invalid_window" {
            Ok(())
        } else {
            Err("settings were refused".to_owned())
        };
    };
    if expected["error"].is_string() {
        return Err("settings were accepted".to_owned());
    }
    let mut run = Run::new(settings, operator);
    for (at, operation) in case["input"].as_array().unwrap().iter().enumerate() {
        run.apply(at, operation);
        run.spill(spill);
    }
    let final_watermark = match run.tracker.current() {
        Watermark::None => Json::Null,
        Watermark::End => json!(i64::MAX),
        at => inclusive(at),
    };
    let seen = std::mem::take(&mut run.seen);
    let found = json!({
        "emits": seen.emits,
        "late": seen.late,
        "rejected": seen.rejected,
        "state": run.state(),
        "final_watermark": final_watermark,
    });
    for part in ["emits", "late", "rejected", "state", "final_watermark"] {
        if found[part] != expected[part] {
            return Err(format!("{part}\n    found    {}\n    expected {}", found[part], expected[part]));
        }
    }
    Ok(())
}

fn check_all(spill: Spill) {
    let cases = cases();
    assert!(cases.len() >= 50, "only {} cases found", cases.len());
    let failures: Vec<String> = cases
        .iter()
        .filter_map(|(path, case)| {
            let name = path.file_stem()?.to_string_lossy().into_owned();
            check(case, spill).err().map(|error| format!("{name} ({}): {error}", case["title"]))
        })
        .collect();
    assert!(failures.is_empty(), "{} of {} cases fail\n{}", failures.len(), cases.len(), failures.join("\n"));
}

#[test]
fn every_record_profile_tumbling_case_gives_the_known_answer() {
    check_all(Spill::Never);
}

#[test]
fn writing_dirty_panes_out_after_each_event_changes_nothing() {
    check_all(Spill::DirtyAfterEachEvent);
}

#[test]
fn moving_every_pane_out_of_memory_after_each_event_changes_nothing() {
    check_all(Spill::EverythingAfterEachEvent);
}
