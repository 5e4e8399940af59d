//! Parquet files as input: the same results as from their rows as lines of JSON, whatever happens on the way.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{
    ArrayRef, Decimal128Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::{Value as Json, json};

use crate::support::{Ended, Outputs, Random, Running, Site, wait_until};

const SIGKILL: i32 = 9;
/// Exit code for input or a definition that is wrong.
const INVALID: i32 = 2;
/// Exit code for input that is not what it was.
const INCOMPATIBLE: i32 = 6;

/// An event, or what is to be rejected as one.
#[derive(Clone)]
struct Event {
    /// Milliseconds.
    time: Option<i64>,
    key: Option<String>,
    shop: Option<i64>,
    value: Option<i64>,
    /// Cents.
    price: Option<i64>,
}

/// Events of two hours, out of order, some of them late, null or too large to be one.
fn events(count: i64) -> Vec<Event> {
    let event = |index: i64| {
        let hashed = index.wrapping_mul(2_654_435_761) % 1_000_003;
        let late = if index % 131 == 0 { 600_000 } else { hashed % 3_000 };
        Event {
            time: (index % 97 != 5).then_some(1_700_000_000_000 + index * 7_200_000 / count - late),
            key: (index % 89 != 7).then(|| format!("k\"{}", hashed % 50)),
            shop: (index % 83 != 9).then_some(hashed % 3),
            value: (index % 7 != 0).then_some(hashed - 500_000),
            price: (index % 11 != 0).then_some(hashed % 10_000),
        }
    };
    (0..count).map(event).collect()
}

/// A time as RFC 3339, as a row of Parquet is written down.
fn rfc3339(millis: i64) -> String {
    jiff::Timestamp::from_millisecond(millis).unwrap().to_string()
}

fn as_lines(events: &[Event]) -> String {
    let text = |value: Option<String>| value.unwrap_or_else(|| "null".to_owned());
    let line = |event: &Event| {
        format!(
            "{{\"ts\":{},\"key\":{},\"shop\":{},\"value\":{},\"price\":{}}}\n",
            text(event.time.map(|time| format!("\"{}\"", rfc3339(time)))),
            text(event.key.as_ref().map(|key| serde_json::to_string(key).unwrap())),
            text(event.shop.map(|shop| shop.to_string())),
            text(event.value.map(|value| value.to_string())),
            text(event.price.map(|price| format!("{}.{:02}", price / 100, price % 100))),
        )
    };
    events.iter().map(line).collect()
}

/// The events as a Parquet file, with a column that no pipeline reads.
fn as_parquet(events: &[Event], group_rows: usize) -> Vec<u8> {
    let micros = |event: &Event| event.time.map(|time| time * 1_000);
    let prices = events.iter().map(|event| event.price.map(i128::from)).collect::<Decimal128Array>();
    let columns: [(&str, ArrayRef); 6] = [
        ("unused", Arc::new(events.iter().map(|event| event.key.clone()).collect::<StringArray>())),
        (
            "ts",
            Arc::new(events.iter().map(micros).collect::<TimestampMicrosecondArray>().with_timezone("UTC")),
        ),
        ("key", Arc::new(events.iter().map(|event| event.key.clone()).collect::<StringArray>())),
        ("shop", Arc::new(events.iter().map(|event| event.shop).collect::<Int64Array>())),
        ("value", Arc::new(events.iter().map(|event| event.value).collect::<Int64Array>())),
        ("price", Arc::new(prices.with_precision_and_scale(9, 2).unwrap())),
    ];
    let columns = columns.into_iter().map(|(name, column)| (name, column, true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(group_rows))
        .set_write_page_header_statistics(true);
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties.build())).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

fn pipeline(path: &str, format: &str, more: &str) -> String {
    format!(
        r#"name = "rows"
[source]
path = "{path}"
time = {{ field = "ts"{format} }}
filter = [{{ field = "value", max = 490000 }}]
[watermark]
delay = "5s"
[state]
directory = "state"
[checkpoint]
{more}
[[window]]
name = "minutes"
key = ["key", {{ field = "shop", type = "int" }}]
type = "tumbling"
size = "1m"
aggregates = [
  {{ name = "events", function = "count" }},
  {{ name = "sum", function = "sum", field = "value", type = "int" }},
  {{ name = "spent", function = "sum", field = "price", type = "decimal(2)" }},
  {{ name = "first", function = "first", field = "ts", type = "string" }},
]
output = {{ path = "out/minutes" }}
[late]
path = "out/late"
[dead_letter]
path = "out/rejected"
"#
    )
}

const RFC3339: &str = ", format = \"rfc3339\"";
const NEVER: &str = "interval = \"1h\"";
const OFTEN: &str = "interval = \"5ms\"\nbytes = 2000\nretain = 1";

/// Records with the names of their files, and the places that only text has, taken out.
fn records(outputs: &Outputs, output: &str) -> Vec<Json> {
    let mut rows = outputs.rows(output);
    for row in &mut rows {
        row["source"] = json!("rows");
        row["byte_offset"] = Json::Null;
    }
    rows
}

#[test]
fn rows_of_parquet_give_what_they_give_as_lines_of_json_rejects_and_late_events_too() {
    let events = events(20_000);
    let text = Site::in_memory(&pipeline("rows.jsonl", RFC3339, NEVER));
    text.write("rows.jsonl", as_lines(&events));
    let rows = Site::in_memory(&pipeline("rows.parquet", "", NEVER));
    rows.write("rows.parquet", as_parquet(&events, 3_000));
    let ((said, lines), (told, columns)) = (text.complete(&[]), rows.complete(&[]));
    assert_eq!(lines.lines("minutes"), columns.lines("minutes"));
    for output in ["late", "rejected"] {
        assert!(!columns.rows(output).is_empty());
        assert_eq!(records(&lines, output), records(&columns, output));
        assert!(columns.rows(output).iter().all(|row| row["byte_offset"].is_null()));
    }
    for count in ["events", "late", "rejected", "filtered"] {
        assert_eq!(said[count], told[count], "{count}");
    }
    assert_eq!(told["input_bytes"], fs::metadata(rows.path("rows.parquet")).unwrap().len());
}

#[test]
fn a_run_over_parquet_that_is_killed_at_any_row_gives_the_bytes_of_a_straight_one() {
    let mut random = Random::seeded("killed over parquet");
    let site = Site::in_memory(&pipeline("rows-*.parquet", "", OFTEN));
    let events = events(120_000);
    for (index, part) in events.chunks(events.len() / 3 + 1).enumerate() {
        site.write(&format!("rows-{index}.parquet"), as_parquet(part, 9_000 + index * 5_000));
    }
    let (_, straight) = site.complete(&[]);
    let (mut killed, mut resumed, mut rounds) = (0, 0, 0);
    while killed < 12 {
        site.reset();
        rounds += 1;
        assert!(rounds < 200, "hardly a run is caught alive");
        loop {
            // At a rate checkpoints come in the middle of blocks.
            let running = Running::start(site.command(&["--quiet", "--rate", "400000"]));
            std::thread::sleep(random.time_below(Duration::from_millis(250)));
            let ended = running.kill();
            if ended.signal != Some(SIGKILL) {
                assert_eq!(ended.code, Some(0), "{}", ended.stderr);
                break;
            }
            killed += 1;
            resumed += u32::from(!site.epochs().is_empty());
        }
        site.outputs().assert_same_as(&straight, "killed and started again");
    }
    assert!(resumed > 0, "no run went on from a checkpoint");
}

#[test]
fn a_stop_in_the_middle_of_a_block_goes_on_at_its_row() {
    let site = Site::in_memory(&pipeline("rows.parquet", "", NEVER));
    site.write("rows.parquet", as_parquet(&events(60_000), 100_000));
    let (_, straight) = site.complete(&[]);
    site.reset();
    let mut positions = Vec::new();
    for _ in 0..3 {
        let mut running = Running::start(site.command(&["--quiet", "--rate", "20000"]));
        wait_until("the state is there", || site.path("state").exists());
        std::thread::sleep(Duration::from_millis(300));
        running.signal(rustix::process::Signal::TERM);
        let ended = running.wait();
        assert_eq!(ended.summary()["outcome"], "stopped");
        positions.push(records_read(&site));
    }
    assert!(positions.iter().any(|records| records % 8_192 != 0), "{positions:?}");
    site.complete(&[]);
    site.outputs().assert_same_as(&straight, "stopped three times");
}

/// Rows that the newest checkpoint says were read.
fn records_read(site: &Site) -> u64 {
    let checked = command(site, "check", &["--json"], "pipeline.toml");
    let at = checked.stdout.find(" records, ").unwrap_or_else(|| panic!("no position: {}", checked.stdout));
    let digits = checked.stdout[..at].rsplit(|c: char| !c.is_ascii_digit()).next().unwrap();
    digits.parse().unwrap()
}

fn command(site: &Site, name: &str, arguments: &[&str], on: &str) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodmark"));
    command.arg(name).arg(site.path(on)).args(arguments);
    Ended::of(command.output().unwrap())
}

#[test]
fn columns_of_other_types_are_refused_before_anything_is_read() {
    let site = Site::in_memory(&pipeline("rows.parquet", RFC3339, NEVER));
    site.write("rows.parquet", as_parquet(&events(10), 10));
    let words = ["column `ts` holds timestamps or dates", "rows.parquet", "remove `format`"];
    site.run(&[]).assert_refused(INVALID, &words);
    assert!(site.outputs().rows("minutes").is_empty());
    let wrong = pipeline("rows.parquet", "", NEVER).replace("type = \"decimal(2)\"", "type = \"int\"");
    site.write("pipeline.toml", wrong);
    site.run(&[]).assert_refused(INVALID, &["column `price` holds decimals", "decimal(2)"]);
    let checked = command(&site, "check", &["--json"], "pipeline.toml");
    assert!(checked.stdout.contains("column `price` holds decimals"), "{}", checked.stdout);
    site.write("pipeline.toml", pipeline("rows.parquet", "", NEVER).replace("\"shop\"", "\"shopp\""));
    site.run(&[]).assert_refused(INVALID, &["there is no column `shopp`", "did you mean `shop`?"]);
}

#[test]
fn a_damaged_file_is_read_up_to_the_damage_and_goes_on_once_it_is_whole() {
    let site = Site::in_memory(&pipeline("rows.parquet", "", NEVER));
    let whole = as_parquet(&events(30_000), 10_000);
    site.write("rows.parquet", &whole);
    let (_, straight) = site.complete(&[]);
    site.reset();
    // Its beginning, its end and its length stay.
    let mut damaged = whole.clone();
    let page = first_page_of_second_group(&site);
    damaged[page..page + 100].fill(0xff);
    site.write("rows.parquet", &damaged);
    let words = [
        "the Parquet file cannot be read on",
        "row_group=1",
        "replace it by the whole file",
        "run again: reading goes on at this row",
    ];
    site.run(&[]).assert_refused(INVALID, &words);
    site.write("rows.parquet", &whole);
    site.complete(&[]);
    site.outputs().assert_same_as(&straight, "the file was put back");
    site.reset();
    site.write("rows.parquet", &whole[..whole.len() - 100]);
    site.run(&[]).assert_refused(INVALID, &["this is no whole Parquet file", "rows.parquet"]);
}

/// Where the first page of the keys of the second row group begins.
fn first_page_of_second_group(site: &Site) -> usize {
    let file = fs::File::open(site.path("rows.parquet")).unwrap();
    let reader = SerializedFileReader::new(file).unwrap();
    let column = reader.metadata().row_group(1).column(2);
    let page = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
    usize::try_from(page).unwrap()
}

#[test]
fn a_file_that_was_written_anew_is_not_the_one_that_was_read() {
    let site = Site::in_memory(&pipeline("rows.parquet", "", NEVER));
    site.write("rows.parquet", as_parquet(&events(5_000), 5_000));
    site.complete(&[]);
    site.write("rows.parquet", as_parquet(&events(5_001), 5_000));
    site.run(&[])
        .assert_refused(INCOMPATIBLE, &["the input is not the one that was read before", "rows.parquet"]);
}

#[test]
fn explain_check_and_reapply_know_rows() {
    let site = Site::in_memory(
        // Of the first of something late events cannot be part any more.
        &pipeline("rows.parquet", "", NEVER).replace("function = \"first\"", "function = \"max\""),
    );
    let events = events(5_000);
    site.write("rows.parquet", as_parquet(&events, 5_000));
    let (_, outputs) = site.complete(&[]);
    let checked = command(&site, "check", &["--json"], "pipeline.toml");
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    assert!(checked.stdout.contains("5000 records"), "{}", checked.stdout);

    let late = outputs.rows("late");
    let record = &late[0]["record"];
    let (key, shop) = (record["key"].as_str().unwrap(), record["shop"].to_string());
    let arguments = ["--window", "minutes", "--key", key, "--key", &shop, "--json"];
    let explained = command(&site, "explain", &arguments, "pipeline.toml");
    assert_eq!(explained.code, Some(0), "{}", explained.stderr);
    let number = format!("\"line\":{}", late[0]["record_number"]);
    assert!(explained.stdout.contains(&number), "{number}: {}", explained.stdout);

    let mut reapply = Command::new(env!("CARGO_BIN_EXE_floodmark"));
    reapply.arg("reapply").arg(site.path("pipeline.toml")).args(["--window", "minutes", "--json"]);
    for (option, path) in [("--late", "out/late"), ("--results", "out/minutes"), ("--to", "merged")] {
        reapply.arg(option).arg(site.path(path));
    }
    let reapplied = Ended::of(reapply.output().unwrap());
    assert_eq!(reapplied.code, Some(0), "{}", reapplied.stderr);
    let parts = fs::read_dir(site.path("merged")).unwrap();
    let counted: u64 = parts
        .filter(|part| part.as_ref().unwrap().file_name().to_str().unwrap().starts_with("part-"))
        .flat_map(|part| {
            fs::read_to_string(part.unwrap().path()).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
        })
        .map(|line| serde_json::from_str::<Json>(&line).unwrap()["events"].as_u64().unwrap())
        .sum();
    let on_time: u64 = outputs.rows("minutes").iter().map(|row| row["events"].as_u64().unwrap()).sum();
    assert_eq!(counted, on_time + late.len() as u64);
}
