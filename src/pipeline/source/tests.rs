//! Sources as a whole: formats, compressions, cuts, order, resumption, bad input.

use std::io::Write;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::aggregate::decimal_text;
use crate::clock::ManualClock;
use crate::event::Datum;
use crate::event_time::Span;
use crate::operator::{KeyColumn, ValueColumn};
use crate::pipeline::config::{InputType, PipelineConfig};

/// A pipeline over `path` with extra lines for `[source]`.
fn config(directory: &Path, path: &str, extra: &str) -> PipelineConfig {
    let text = format!(
        r#"name = "t"
[source]
path = {path}
{extra}
[watermark]
delay = "0s"
[state]
directory = "state"
[[window]]
name = "w"
key = ["k"]
type = "tumbling"
size = "1s"
mode = "append"
aggregates = [
  {{ name = "rows", function = "count" }},
  {{ name = "sum", function = "sum", field = "v", type = "int" }},
  {{ name = "mean", function = "avg", field = "f", type = "float" }},
  {{ name = "present", function = "count", field = "p" }},
]
output = {{ path = "out" }}
"#
    );
    PipelineConfig::from_str(&text, &directory.join("t.toml")).unwrap()
}

const MILLIS: &str = "time = { field = \"ts\", format = \"epoch_ms\" }";

fn open_at(config: &PipelineConfig, resume: &[PartitionResume], limits: Limits) -> Result<FileSource> {
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    let mut source = FileSource::open(&config.sources, ParsePlan::of(config).0, resume, clock)?;
    source.limits = limits;
    Ok(source)
}

fn open(config: &PipelineConfig) -> Result<FileSource> {
    open_at(config, &[], Limits { block_bytes: BLOCK_BYTES, record_bytes: RECORD_BYTES_MAX })
}

/// Everything a run saw, in order, as text.
fn read_all(source: &mut FileSource) -> Result<Vec<String>> {
    let (mut seen, mut spare) = (Vec::new(), None);
    while let Some(block) = source.next_block(spare.take())? {
        describe(source, &block, &mut seen);
        spare = Some(block);
    }
    Ok(seen)
}

fn describe(source: &FileSource, block: &Block, seen: &mut Vec<String>) {
    let name = &source.partitions()[block.partition.0 as usize].resume.name;
    let mut records = Vec::new();
    let batch = &block.batch;
    for index in 0..batch.len() {
        let key = String::from_utf8_lossy(batch.keys[0].get(index)).into_owned();
        let values: Vec<String> = batch.values.iter().map(|column| shown(column, index)).collect();
        let text = batch.text_of(index).unwrap();
        let text = String::from_utf8_lossy(&text);
        let event = format!("{} {key:?} {} <{text}>", batch.times[index], values.join(","));
        records.push((batch.records[index], event));
    }
    for rejected in &block.rejected {
        let field = rejected.field.as_deref().unwrap_or("-");
        let text = String::from_utf8_lossy(&rejected.text);
        let offset = rejected.byte_offset.unwrap();
        records.push((rejected.record, format!("{} {field} @{offset} <{text}>", rejected.reason)));
    }
    records.sort();
    seen.extend(records.into_iter().map(|(record, text)| format!("{name}:{record} {text}")));
}

fn shown(column: &ValueColumn, index: usize) -> String {
    match column.get(index) {
        Some(Datum::Int(value)) => value.to_string(),
        Some(Datum::Float(value)) => format!("{value:?}"),
        Some(Datum::Decimal { unscaled, scale }) => decimal_text(i128::from(unscaled), scale),
        Some(Datum::Text(text)) => format!("{:?}", String::from_utf8_lossy(text)),
        None => "null".to_owned(),
    }
}

#[test]
fn decimals_and_texts_are_taken_exactly_or_refused() {
    let directory = tempfile::tempdir().unwrap();
    let rows = [
        r#"{"ts":1,"k":"a","d":19.90,"s":"x"}"#,
        r#"{"ts":2,"k":"a","d":"-0.05","s":"\u00e9\n"}"#,
        r#"{"ts":3,"k":"a","d":null,"s":7.50}"#,
        r#"{"ts":4,"k":"a","d":1e2,"s":""}"#,
        r#"{"ts":5,"k":"a","d":0.001,"s":"x"}"#,
        r#"{"ts":6,"k":"a","d":12345678901234567,"s":"x"}"#,
        r#"{"ts":7,"k":"a","d":"1,5","s":"x"}"#,
        r#"{"ts":8,"k":"a","d":true,"s":"x"}"#,
        r#"{"ts":9,"k":"a","d":1,"s":{"x":1}}"#,
        r#"{"ts":10,"k":"a","d":1,"s":"\ud800"}"#,
    ];
    put(directory.path(), "a.jsonl", (rows.join("\n") + "\n").as_bytes());
    let typed = config(directory.path(), "\"a.jsonl\"", MILLIS);
    let mut plan = ParsePlan::of(&typed).0.remove(0);
    let field = |field: &str, input| ValueField { field: field.to_owned(), input: Some(input) };
    plan.values = vec![field("d", InputType::Decimal(2)), field("s", InputType::Text)];
    plan.reads_value = vec![true, true];
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    let mut source = FileSource::open(&typed.sources, vec![plan], &[], clock).unwrap();
    let seen = read_all(&mut source).unwrap();
    let head = |line: &String| line.split(" <").next().unwrap().split(" @").next().unwrap().to_owned();
    let found: Vec<String> = seen.iter().map(head).collect();
    assert_eq!(
        found,
        [
            "a.jsonl:1 1 \"a\" 19.90,\"x\"",
            "a.jsonl:2 2 \"a\" -0.05,\"é\\n\"",
            "a.jsonl:3 3 \"a\" null,\"7.50\"",
            "a.jsonl:4 4 \"a\" 100.00,\"\"",
            "a.jsonl:5 decimal_too_fine d",
            "a.jsonl:6 decimal_out_of_range d",
            "a.jsonl:7 wrong_type d",
            "a.jsonl:8 wrong_type d",
            "a.jsonl:9 wrong_type s",
            "a.jsonl:10 broken_record s",
        ]
    );
}

fn put(directory: &Path, name: &str, bytes: &[u8]) {
    std::fs::File::create(directory.join(name)).unwrap().write_all(bytes).unwrap();
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn lines(count: i64, from: i64) -> String {
    (0..count).map(|i| format!("{{\"ts\":{},\"k\":\"k{}\",\"v\":{i}}}\n", from + i * 10, i % 3)).collect()
}

fn read_text(text: &[u8], name: &str, extra: &str) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    put(directory.path(), name, text);
    let config = config(directory.path(), &format!("{name:?}"), extra);
    read_all(&mut open(&config).unwrap()).unwrap()
}

#[test]
fn each_kind_of_bad_record_is_rejected_by_name_and_the_rest_is_read() {
    let cases: &[(&str, &str)] = &[
        (r#"{"ts":5,"k":"a","v":1,"f":0.5,"p":"x"}"#, "5 \"a\" 1,0.5,1"),
        (r#"{"ts":5,"k":"a""#, "broken_record -"),
        (r#"[1]"#, "broken_record -"),
        (r#"{"ts":null,"k":"a","v":100}"#, "null_timestamp ts"),
        (r#"{"k":"a"}"#, "missing_timestamp ts"),
        (r#"{"ts":"yesterday","k":"a"}"#, "unparsable_timestamp ts"),
        (r#"{"ts":"5","k":"a"}"#, "number_as_string ts"),
        (r#"{"ts":5,"v":1}"#, "missing_key k"),
        (r#"{"ts":5,"k":null}"#, "null_key k"),
        (r#"{"ts":5,"k":{}}"#, "wrong_type k"),
        (r#"{"ts":5,"k":"\ud800"}"#, "broken_record k"),
        (r#"{"ts":5,"k":"","v":null}"#, "5 \"\" null,null,null"),
        (r#"{"ts":5,"k":1.50}"#, "5 \"1.50\" null,null,null"),
        (r#"{"ts":5,"k":true,"p":false}"#, "5 \"true\" null,null,1"),
        (r#"{"ts":5,"k":"q\"\u00e9"}"#, "5 \"q\\\"é\" null,null,null"),
        (r#"{"ts":5,"k":"a","v":"12"}"#, "number_as_string v"),
        (r#"{"ts":5,"k":"a","v":"twelve"}"#, "wrong_type v"),
        (r#"{"ts":5,"k":"a","v":3.0}"#, "not_an_integer v"),
        (r#"{"ts":5,"k":"a","v":9223372036854775808}"#, "integer_out_of_range v"),
        (r#"{"ts":5,"k":"a","v":-9223372036854775808}"#, "5 \"a\" -9223372036854775808,null,null"),
        (r#"{"ts":5,"k":"a","f":1e999}"#, "float_out_of_range f"),
        (r#"{"ts":5,"k":"a","f":7}"#, "5 \"a\" null,7.0,null"),
        (r#"{"ts":5,"k":"a","f":NaN}"#, "broken_record -"),
        (r#"{"ts":5,"k":"a","f":"1.5"}"#, "number_as_string f"),
        ("", ""),
        (r#"{"ts":7,"k":"z"}"#, "7 \"z\" null,null,null"),
    ];
    let text: String = cases.iter().map(|(line, _)| format!("{line}\n")).collect();
    let mut offset = 0;
    let mut expected = Vec::new();
    for (index, (line, outcome)) in cases.iter().enumerate() {
        if !line.is_empty() {
            let rejected = outcome.starts_with(|first: char| first.is_ascii_lowercase());
            let at = if rejected { format!(" @{offset}") } else { String::new() };
            expected.push(format!("in.jsonl:{} {outcome}{at} <{line}>", index + 1));
        }
        offset += line.len() + 1;
    }
    assert_eq!(read_text(text.as_bytes(), "in.jsonl", MILLIS), expected);
}

#[test]
fn csv_cells_follow_the_same_rules() {
    let text = "\u{feff}k,ts,\"v\",f,p\r\na,5,1,0.5,x\r\n\r\n\"b\nb\",6,,,\r\nc,7,NA,,\r\n,8,1,,\r\nd,,1,,\r\ne,9,1\r\nf,10,2.5,,\r\n";
    let found = read_text(text.as_bytes(), "in.csv", MILLIS);
    let expected = [
        "in.csv:2 5 \"a\" 1,0.5,1 <a,5,1,0.5,x>",
        "in.csv:4 6 \"b\\nb\" null,null,null <\"b\nb\",6,,,>",
        "in.csv:6 wrong_type v @44 <c,7,NA,,>",
        "in.csv:7 8 \"\" 1,null,null <,8,1,,>",
        "in.csv:8 null_timestamp ts @62 <d,,1,,>",
        "in.csv:9 broken_record - @70 <e,9,1>",
        "in.csv:10 not_an_integer v @77 <f,10,2.5,,>",
    ];
    assert_eq!(found, expected);
}

#[test]
fn line_ends_bom_blank_and_last_lines_do_not_matter() {
    let text = b"\xef\xbb\xbf{\"ts\":1,\"k\":\"a\"}\r\n\n  \r\n{\"ts\":2,\"k\":\"b\"}";
    let found = read_text(text, "in.jsonl", MILLIS);
    let expected = [
        "in.jsonl:1 1 \"a\" null,null,null <{\"ts\":1,\"k\":\"a\"}>",
        "in.jsonl:4 2 \"b\" null,null,null <{\"ts\":2,\"k\":\"b\"}>",
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_last_line_without_an_end_counts_as_a_line() {
    let directory = tempfile::tempdir().unwrap();
    let text = "{\"ts\":1,\"k\":\"a\"}\n{\"ts\":2,\"k\":\"b\"}";
    put(directory.path(), "in.jsonl", text.as_bytes());
    let config = config(directory.path(), "\"in.jsonl\"", MILLIS);
    let mut source = open(&config).unwrap();
    let block = source.next_block(None).unwrap().unwrap();
    assert!(block.end_of_partition);
    assert_eq!(block.position, Position { bytes: text.len() as u64, records: 2 });
    assert_eq!(source.partitions()[0].resume.position, block.position);
}

#[test]
fn text_that_is_not_utf8_is_rejected_line_by_line() {
    let found = read_text(b"{\"ts\":1,\"k\":\"\xff\"}\n{\"ts\":2,\"k\":\"b\"}\n", "in.jsonl", MILLIS);
    assert!(found[0].starts_with("in.jsonl:1 broken_record - @0"), "{found:?}");
    assert!(found[1].starts_with("in.jsonl:2 2 \"b\""), "{found:?}");
}

#[test]
fn filtered_rows_are_counted_and_neither_events_nor_rejects() {
    let directory = tempfile::tempdir().unwrap();
    let text = "{\"ts\":1,\"k\":\"a\",\"v\":5}\n{\"ts\":2,\"k\":\"a\",\"v\":null}\n{\"ts\":3,\"k\":\"a\"}\n\
                {\"ts\":4,\"k\":\"b\",\"v\":5}\n{\"ts\":5,\"k\":\"a\",\"v\":11}\n{\"ts\":null,\"k\":\"a\",\"v\":11}\n\
                {\"ts\":6,\"k\":\"a\",\"v\":\"5\"}\n";
    put(directory.path(), "in.jsonl", text.as_bytes());
    let filters = format!(
        "{MILLIS}\nfilter = [{{ field = \"v\", min = -1, max = 10.5 }}, {{ field = \"k\", equals = \"a\" }}]"
    );
    let config = config(directory.path(), "\"in.jsonl\"", &filters);
    let block = open(&config).unwrap().next_block(None).unwrap().unwrap();
    assert_eq!(block.batch.times, [1]);
    assert_eq!(block.filtered_records.len(), 5);
    assert_eq!(block.rejected.len(), 1);
    assert_eq!(block.rejected[0].reason, RejectReason::NumberAsString);
}

#[test]
fn compressed_files_of_several_members_read_like_plain_ones() {
    let directory = tempfile::tempdir().unwrap();
    let (a, b) = (lines(2_000, 0), lines(2_000, 50_000));
    put(directory.path(), "x.jsonl", format!("{a}{b}").as_bytes());
    put(directory.path(), "x.jsonl.gz", &[gzip(a.as_bytes()), gzip(b.as_bytes())].concat());
    let zstd = |text: &str| zstd::encode_all(text.as_bytes(), 1).unwrap();
    put(directory.path(), "x.jsonl.zst", &[zstd(&a), zstd(&b)].concat());
    let read = |name: &str| {
        let config = config(directory.path(), &format!("{name:?}"), MILLIS);
        let seen = read_all(&mut open(&config).unwrap()).unwrap();
        seen.into_iter().map(|line| line.split_once(':').unwrap().1.to_owned()).collect::<Vec<_>>()
    };
    let plain = read("x.jsonl");
    assert_eq!(plain.len(), 4_000);
    assert_eq!(read("x.jsonl.gz"), plain);
    assert_eq!(read("x.jsonl.zst"), plain);
}

#[test]
fn a_compressed_file_cut_short_gives_what_it_has_and_then_an_error_with_the_place() {
    let text = lines(20_000, 0);
    let whole = [
        ("x.jsonl.gz", gzip(text.as_bytes())),
        ("x.jsonl.zst", zstd::encode_all(text.as_bytes(), 1).unwrap()),
    ];
    for (name, bytes) in whole {
        let directory = tempfile::tempdir().unwrap();
        put(directory.path(), name, &bytes[..bytes.len() * 3 / 4]);
        let config = config(directory.path(), &format!("{name:?}"), MILLIS);
        let mut source = open(&config).unwrap();
        let mut events = 0;
        let error = loop {
            match source.next_block(None) {
                Ok(block) => events += block.expect("an error comes before the end").batch.len(),
                Err(error) => break error,
            }
        };
        assert!(events > 5_000 && events < 20_000, "{name}: {events}");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("decompressed_offset="), "{error}");
        assert_eq!(source.next_block(None).unwrap_err().to_string(), error.to_string());
        // Once the file is whole, reading goes on without a gap.
        put(directory.path(), name, &bytes);
        let resume: Vec<_> = source.partitions().iter().map(|info| info.resume.clone()).collect();
        let limits = Limits { block_bytes: BLOCK_BYTES, record_bytes: RECORD_BYTES_MAX };
        let mut resumed = open_at(&config, &resume, limits).unwrap();
        assert_eq!(events + read_all(&mut resumed).unwrap().len(), 20_000);
    }
}

#[test]
fn a_record_beyond_the_limit_is_rejected_and_passed_over() {
    let directory = tempfile::tempdir().unwrap();
    let long = format!("{{\"ts\":2,\"k\":\"{}\"}}", "x".repeat(500));
    let text = format!("{{\"ts\":1,\"k\":\"a\"}}\n{long}\n{{\"ts\":3,\"k\":\"b\"}}\n{long}");
    put(directory.path(), "in.jsonl", text.as_bytes());
    let config = config(directory.path(), "\"in.jsonl\"", MILLIS);
    let mut source = open_at(&config, &[], Limits { block_bytes: 32, record_bytes: 256 }).unwrap();
    let seen = read_all(&mut source).unwrap();
    assert_eq!(seen.len(), 4);
    assert!(seen[1].starts_with("in.jsonl:2 record_too_large - @17"), "{}", seen[1]);
    assert!(seen[2].starts_with("in.jsonl:3 3 \"b\""), "{}", seen[2]);
    assert!(seen[3].starts_with("in.jsonl:4 record_too_large"), "{}", seen[3]);
    let end = &source.partitions()[0].resume;
    assert_eq!((end.position.bytes, end.position.records), (text.len() as u64, 4));
}

#[test]
fn a_record_that_takes_several_lines_with_it_says_how_many() {
    let directory = tempfile::tempdir().unwrap();
    let text = "ts,k,v,f,p\n1,\"k,1,,\n2,k,1,,\n3,k,1,,\n4,\"k,1,,\n5,k,1,,\n";
    put(directory.path(), "in.csv", text.as_bytes());
    let config = config(directory.path(), "\"in.csv\"", MILLIS);
    let mut source = open_at(&config, &[], Limits { block_bytes: 1_024, record_bytes: 1_024 }).unwrap();
    let block = source.next_block(None).unwrap().unwrap();
    let [rejected] = &block.rejected[..] else { panic!("{:?}", block.rejected) };
    assert_eq!((rejected.record, rejected.lines, block.batch.len()), (2, 4, 1));
    assert!(rejected.detail.ends_with("; the record has 4 lines"), "{}", rejected.detail);
}

#[test]
fn a_quote_that_is_never_closed_costs_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let rows: String = (0..50).map(|i| format!("{i},k,1,,\n")).collect();
    put(directory.path(), "in.csv", format!("ts,k,v,f,p\n1,\"k,1,,\n{rows}").as_bytes());
    let config = config(directory.path(), "\"in.csv\"", MILLIS);
    let mut source = open_at(&config, &[], Limits { block_bytes: 32, record_bytes: 256 }).unwrap();
    let seen = read_all(&mut source).unwrap();
    assert!(seen[0].starts_with("in.csv:2 broken_record - @11 <1,\"k,1,,>"), "{}", seen[0]);
    assert_eq!(seen.len(), 51);
    assert!(seen[50].starts_with("in.csv:52 49 \"k\""), "{}", seen[50]);
}

#[test]
fn a_key_beyond_the_limit_is_rejected() {
    let text = format!(
        "{{\"ts\":1,\"k\":\"{}\"}}\n{{\"ts\":1,\"k\":\"{}\"}}\n",
        "x".repeat(65_537),
        "y".repeat(65_536)
    );
    let seen = read_text(text.as_bytes(), "in.jsonl", MILLIS);
    assert!(seen[0].starts_with("in.jsonl:1 key_too_long k"), "{}", &seen[0][..80]);
    assert!(seen[1].starts_with("in.jsonl:2 1 \"yyy"), "{}", &seen[1][..80]);
}

#[test]
fn files_are_read_in_the_order_of_their_events() {
    let directory = tempfile::tempdir().unwrap();
    put(directory.path(), "f1.jsonl", b"{\"ts\":100,\"k\":\"a\"}\n{\"ts\":105,\"k\":\"a\"}\n");
    put(
        directory.path(),
        "f2.jsonl",
        b"{\"ts\":1,\"k\":\"a\"}\n{\"ts\":2,\"k\":\"a\"}\n{\"ts\":103,\"k\":\"a\"}\n",
    );
    let config = config(directory.path(), "\"*.jsonl\"", MILLIS);
    let mut source = open_at(&config, &[], Limits { block_bytes: 20, record_bytes: 256 }).unwrap();
    let seen = read_all(&mut source).unwrap();
    let order: Vec<&str> = seen.iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(order, ["f1.jsonl:1", "f2.jsonl:1", "f2.jsonl:2", "f2.jsonl:3", "f1.jsonl:2"]);
}

#[test]
fn single_reads_file_after_file_under_one_watermark() {
    let directory = tempfile::tempdir().unwrap();
    put(directory.path(), "b.jsonl", lines(5, 0).as_bytes());
    put(directory.path(), "a.jsonl", lines(5, 1_000).as_bytes());
    let config = config(directory.path(), "\"*.jsonl\"", &format!("{MILLIS}\npartitions = \"single\""));
    let mut source = open_at(&config, &[], Limits { block_bytes: 64, record_bytes: 256 }).unwrap();
    let mut ends = Vec::new();
    while let Some(block) = source.next_block(None).unwrap() {
        assert_eq!(block.batch.partition, PartitionId(0));
        if block.end_of_partition {
            ends.push((block.partition, block.end_of_watermark));
        }
    }
    assert_eq!(ends, [(PartitionId(0), None), (PartitionId(1), Some(PartitionId(0)))]);
}

/// Reads to the end, and for each block what a checkpoint after it would remember and what came before it.
fn checkpoints(source: &mut FileSource) -> (Vec<String>, Vec<(usize, Vec<PartitionResume>)>) {
    let (mut seen, mut points) = (Vec::new(), Vec::new());
    while let Some(block) = source.next_block(None).unwrap() {
        describe(source, &block, &mut seen);
        points.push((seen.len(), source.partitions().iter().map(|info| info.resume.clone()).collect()));
    }
    (seen, points)
}

#[test]
fn resuming_after_any_block_reads_on_as_if_nothing_had_happened() {
    let directory = tempfile::tempdir().unwrap();
    put(directory.path(), "a.jsonl", lines(40, 0).as_bytes());
    put(directory.path(), "b.jsonl.gz", &gzip(lines(40, 105).as_bytes()));
    put(directory.path(), "c.jsonl.zst", &zstd::encode_all(lines(40, 37).as_bytes(), 1).unwrap());
    put(directory.path(), "d.jsonl", b"");
    let config = config(directory.path(), "\"*.jsonl*\"", &format!("{MILLIS}\nformat = \"jsonl\""));
    let limits = Limits { block_bytes: 100, record_bytes: 1_000 };
    let (straight, points) = checkpoints(&mut open_at(&config, &[], limits).unwrap());
    assert_eq!(straight.len(), 120);
    assert!(points.len() > 40);
    for (seen, resume) in points {
        let rest = read_all(&mut open_at(&config, &resume, limits).unwrap()).unwrap();
        assert_eq!(rest, straight[seen..]);
    }
}

#[test]
fn the_rest_of_a_block_comes_first_and_the_order_of_the_files_is_what_it_was() {
    let directory = tempfile::tempdir().unwrap();
    for (name, from, step) in [("a.jsonl", 0, 40), ("b.jsonl", 500, 15), ("c.jsonl", 20, 70)] {
        let record = |at: i64| format!("{{\"ts\":{},\"k\":\"x\",\"v\":{at}}}\n", from + at * step);
        put(directory.path(), name, (0..60).map(record).collect::<String>().as_bytes());
    }
    let config = config(directory.path(), "\"*.jsonl\"", MILLIS);
    let limits = Limits { block_bytes: 300, record_bytes: RECORD_BYTES_MAX };
    let straight = read_all(&mut open_at(&config, &[], limits).unwrap()).unwrap();
    let mut otherwise = 0;
    for cut in 0..straight.len() / 20 {
        let mut source = open_at(&config, &[], limits).unwrap();
        let mut seen = Vec::new();
        let (mut resume, block) = loop {
            let resume: Vec<_> = source.partitions().iter().map(|info| info.resume.clone()).collect();
            let block = source.next_block(None).unwrap().unwrap();
            if seen.len() / 7 >= cut {
                break (resume, block);
            }
            describe(&source, &block, &mut seen);
        };
        // A checkpoint is made behind the second event of the block.
        let known = &mut resume[block.partition.0 as usize];
        let (name, start) = (known.name.clone(), known.position.bytes);
        known.position = Position {
            bytes: start + u64::from(block.batch.spans[2].start),
            records: block.batch.records[2] - 1,
        };
        known.max_time = Some(EventTime::from_millis(block.batch.times[1]));
        let rest = block.position.bytes - known.position.bytes;
        let mut whole = Vec::new();
        describe(&source, &block, &mut whole);
        seen.extend(whole.into_iter().take(2));
        let go_on = |rest: Option<u64>| {
            let source = open_at(&config, &resume, limits).unwrap();
            let ends = block.end_of_partition;
            let rest = rest.map(|rest| RestOfBlock { partition: name.clone(), rest, ends });
            let mut source = match rest {
                Some(rest) => source.with_rest_of_block(&rest),
                None => source,
            };
            [seen.clone(), read_all(&mut source).unwrap()].concat()
        };
        assert_eq!(go_on(Some(rest)), straight, "cut in the block at {}", seen.len());
        otherwise += usize::from(go_on(None) != straight);
    }
    assert!(otherwise > 0, "the order would be the same without the rest");
}

#[test]
fn the_rest_of_a_last_block_ends_its_file_as_all_of_it_did() {
    // A last line that is left for later is looked for again by every run, so that files end once more.
    for (end, grows) in [("\n", false), ("\n", true), ("", false)] {
        let directory = tempfile::tempdir().unwrap();
        for (name, from) in [("a.jsonl", 0), ("b.jsonl", 500)] {
            let text = lines(40, from);
            put(directory.path(), name, format!("{}{end}", text.trim_end()).as_bytes());
        }
        let config = config(directory.path(), "\"*.jsonl\"", MILLIS);
        let limits = Limits { block_bytes: 300, record_bytes: RECORD_BYTES_MAX };
        let open = |resume: &[PartitionResume]| {
            open_at(&config, resume, limits).unwrap().leaving_unended_lines(grows)
        };
        let told = |source: &mut FileSource, block: &Block, seen: &mut Vec<String>| {
            describe(source, block, seen);
            seen.extend(block.end_of_partition.then(|| format!("end of {:?}", block.partition)));
            seen.extend(block.end_of_watermark.map(|of| format!("end of the watermark of {of:?}")));
        };
        let mut straight = Vec::new();
        let mut source = open(&[]);
        while let Some(block) = source.next_block(None).unwrap() {
            told(&mut source, &block, &mut straight);
        }
        let (mut source, mut seen, mut last_blocks) = (open(&[]), Vec::new(), 0);
        loop {
            let mut resume: Vec<_> = source.partitions().iter().map(|info| info.resume.clone()).collect();
            let Some(block) = source.next_block(None).unwrap() else { break };
            let events = block.batch.len();
            // In front of the last event of a block that ends its file, and behind it.
            for done in events.saturating_sub(1)..=events {
                if !block.end_of_partition {
                    break;
                }
                last_blocks += 1;
                let known = &mut resume[block.partition.0 as usize];
                let place = block.place_before(done, Position::default());
                let start = block.position.bytes - block.batch.text.len() as u64;
                known.position =
                    place.map_or(block.position, |place| Position { bytes: start + place.bytes, ..place });
                known.max_time = block.batch.times[..done]
                    .iter()
                    .max()
                    .copied()
                    .map(EventTime::from_millis)
                    .max(known.max_time);
                let rest = RestOfBlock {
                    partition: known.name.clone(),
                    rest: block.position.bytes - known.position.bytes,
                    ends: true,
                };
                let mut found = seen.clone();
                let mut whole = Vec::new();
                describe(&source, &block, &mut whole);
                found.extend(whole.into_iter().take(done));
                let mut resumed = open(&resume).with_rest_of_block(&rest);
                while let Some(block) = resumed.next_block(None).unwrap() {
                    told(&mut resumed, &block, &mut found);
                }
                let differs = found.iter().zip(&straight).find(|(found, straight)| found != straight);
                assert!(found == straight, "end={end:?} grows={grows} done={done}: {differs:?}");
            }
            told(&mut source, &block, &mut seen);
        }
        assert_eq!(last_blocks, 4);
    }
}

#[test]
fn csv_resumes_behind_its_header() {
    let directory = tempfile::tempdir().unwrap();
    let rows: String = (0..30).map(|i| format!("{i},\"k\n{i}\",{i},,\r\n")).collect();
    let text = format!("ts,k,v,f,p\r\n{rows}");
    put(directory.path(), "a.csv", text.as_bytes());
    put(directory.path(), "b.csv.gz", &gzip(text.as_bytes()));
    let config = config(directory.path(), "[\"*.csv\", \"*.csv.gz\"]", MILLIS);
    let limits = Limits { block_bytes: 50, record_bytes: 1_000 };
    let (straight, points) = checkpoints(&mut open_at(&config, &[], limits).unwrap());
    assert_eq!(straight.len(), 60);
    for (seen, resume) in points {
        let rest = read_all(&mut open_at(&config, &resume, limits).unwrap()).unwrap();
        assert_eq!(rest, straight[seen..]);
    }
}

#[test]
fn standard_input_is_skipped_to_where_it_was_left_and_recognised() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path(), "\"-\"", &format!("{MILLIS}\nformat = \"jsonl\""));
    let text = lines(30, 0);
    let open = |text: &str, resume: &[PartitionResume]| {
        let stream = std::io::Cursor::new(text.to_owned().into_bytes());
        let clock = Arc::new(ManualClock::at(0));
        let plan = ParsePlan::of(&config).0;
        let source = FileSource::open_with_stdin(&config.sources, plan, resume, clock, Box::new(stream));
        source.map(|mut source| {
            source.limits = Limits { block_bytes: 100, record_bytes: 1_000 };
            source
        })
    };
    let (straight, points) = checkpoints(&mut open(&text, &[]).unwrap());
    assert_eq!(straight.len(), 30);
    for (seen, resume) in &points {
        assert_eq!(read_all(&mut open(&text, resume).unwrap()).unwrap(), straight[*seen..]);
    }
    let (_, resume) = &points[0];
    let error = open(&lines(30, 7), resume).unwrap().next_block(None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    let error = open(&text[..10], resume).unwrap().next_block(None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
}

#[test]
fn replaced_shortened_and_missing_files_are_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let text = lines(40, 0);
    put(directory.path(), "a.jsonl", text.as_bytes());
    put(directory.path(), "b.jsonl", lines(1, 0).as_bytes());
    let config = config(directory.path(), "\"*.jsonl\"", MILLIS);
    let limits = Limits { block_bytes: 100, record_bytes: 1_000 };
    let (_, points) = checkpoints(&mut open_at(&config, &[], limits).unwrap());
    let resume = &points[8].1;
    let refused = |resume: &[PartitionResume]| open_at(&config, resume, limits).unwrap_err();

    put(directory.path(), "a.jsonl", lines(40, 1).as_bytes());
    let error = refused(resume);
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert!(error.to_string().contains("not the one that was read before"), "{error}");
    assert!(error.remedy().is_some());

    // A file whose head is the same and that lost its end.
    let mut short = points.last().unwrap().1.clone();
    short[0].identity =
        Some(SourceIdentity { head_bytes: 4, head_crc32: crc32fast::hash(&text.as_bytes()[..4]) });
    put(directory.path(), "a.jsonl", &text.as_bytes()[..200]);
    let error = refused(&short);
    assert!(error.to_string().contains("shorter than what was read"), "{error}");

    std::fs::remove_file(directory.path().join("a.jsonl")).unwrap();
    let error = refused(resume);
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("gone before it was read"), "{error}");
    // A file that was finished may go; its entry stays, so that it is not read again when it comes back.
    let finished = open_at(&config, &points.last().unwrap().1, limits).unwrap();
    assert_eq!(finished.partitions().len(), 2);
    assert!(finished.partitions()[0].resume.finished);
}

#[test]
fn new_files_and_grown_files_are_read_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    put(directory.path(), "m.jsonl", lines(3, 0).as_bytes());
    let config = config(directory.path(), "\"*.jsonl\"", MILLIS);
    let limits = Limits { block_bytes: 100, record_bytes: 1_000 };
    let (_, points) = checkpoints(&mut open_at(&config, &[], limits).unwrap());
    let resume = &points.last().unwrap().1;
    assert!(read_all(&mut open_at(&config, resume, limits).unwrap()).unwrap().is_empty());
    put(directory.path(), "a.jsonl", lines(1, 0).as_bytes());
    put(directory.path(), "m.jsonl", lines(4, 0).as_bytes());
    let mut source = open_at(&config, resume, limits).unwrap();
    assert!(source.partitions()[1].has_grown);
    let seen = read_all(&mut source).unwrap();
    assert_eq!(seen.len(), 2);
    assert!(seen[0].starts_with("a.jsonl:1 ") && seen[1].starts_with("m.jsonl:4 30 "), "{seen:?}");
}

#[test]
fn what_cannot_be_a_source_is_refused_with_place_and_remedy() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("sub")).unwrap();
    put(directory.path(), "in.csv", b"ts,key,v,f,p\n");
    put(directory.path(), "bad.jsonl.zst", b"not zstd");
    let refused = |path: &str, extra: &str| {
        let config = config(directory.path(), path, &format!("{MILLIS}\n{extra}"));
        open(&config).and_then(|mut source| read_all(&mut source)).unwrap_err()
    };
    let error = refused("\"none*.jsonl\"", "");
    assert!(error.to_string().contains("t.toml:3:8: no file matches"), "{error}");
    let error = refused("\"sub\"", "format = \"jsonl\"");
    assert!(error.to_string().contains("this is a directory"), "{error}");
    assert!(error.remedy().unwrap().contains("sub/*.jsonl"));
    let error = refused("\"in.csv\"", "");
    assert!(error.to_string().contains("no column `k`: file=in.csv"), "{error}");
    assert!(error.remedy().is_some());
    let error = refused("\"bad.jsonl.zst\"", "");
    assert!(error.to_string().contains("cut short or damaged"), "{error}");
}

#[test]
fn more_files_than_may_be_open_are_read_all_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let files = i64::from(OPEN_FILES_MAX) + 20;
    for file in 0..files {
        put(directory.path(), &format!("{file:03}.jsonl"), lines(20, file).as_bytes());
    }
    let config = config(directory.path(), "\"*.jsonl\"", MILLIS);
    let mut source = open_at(&config, &[], Limits { block_bytes: 100, record_bytes: 1_000 }).unwrap();
    let mut events = 0;
    while let Some(block) = source.next_block(None).unwrap() {
        events += block.batch.len();
        let open = source.partitions.iter().filter(|partition| partition.reader.is_some()).count();
        assert!(open <= OPEN_FILES_MAX as usize);
    }
    assert_eq!(events as i64, files * 20);
}

#[test]
fn windows_share_columns_and_a_count_shares_the_typed_one() {
    let directory = tempfile::tempdir().unwrap();
    let (plan, windows) = ParsePlan::of(&config(directory.path(), "\"a.jsonl\"", MILLIS));
    assert_eq!(plan[0].values.len(), 3);
    assert_eq!(plan[0].values[2], ValueField { field: "p".to_owned(), input: None });
    assert_eq!(windows, [WindowColumns { key: 0, values: vec![None, Some(0), Some(1), Some(2)] }]);
}

#[test]
fn lines_are_counted_on_where_a_file_without_a_last_line_end_grows() {
    let directory = tempfile::tempdir().unwrap();
    for (added, expected) in [("\n{\"ts\":3,\"k\":\"b\"}\nrubbish\n", [3, 4]), (" \n\nrubbish\n", [4, 4])] {
        let text = "{\"ts\":1,\"k\":\"a\"}\n{\"ts\":2,\"k\":\"a\"}";
        put(directory.path(), "in.jsonl", text.as_bytes());
        let config = config(directory.path(), "\"in.jsonl\"", MILLIS);
        let mut source = open(&config).unwrap();
        source.next_block(None).unwrap();
        let resume: Vec<_> = source.partitions().iter().map(|info| info.resume.clone()).collect();
        assert_eq!(resume[0].position.records, 2);
        put(directory.path(), "in.jsonl", format!("{text}{added}").as_bytes());
        let limits = Limits { block_bytes: BLOCK_BYTES, record_bytes: RECORD_BYTES_MAX };
        let block = open_at(&config, &resume, limits).unwrap().next_block(None).unwrap().unwrap();
        let first = block.batch.records.first().copied().unwrap_or(block.rejected[0].record);
        assert_eq!([first, block.rejected[0].record], expected);
        assert_eq!(block.position.records, 4);
    }
}

/// What a run over a file that may be written to meanwhile sees, where it leaves off, and what it leaves.
fn read_growing(config: &PipelineConfig, resume: &[PartitionResume]) -> (Vec<String>, PartitionResume, u64) {
    let limits = Limits { block_bytes: 16, record_bytes: 1_000 };
    let mut source = open_at(config, resume, limits).unwrap().leaving_unended_lines(true);
    let (mut seen, mut unended) = (Vec::new(), 0);
    while let Some(block) = source.next_block(None).unwrap() {
        describe(&source, &block, &mut seen);
        assert!(block.unended_bytes == 0 || block.end_of_partition);
        unended += block.unended_bytes;
    }
    (seen, source.partitions()[0].resume.clone(), unended)
}

#[test]
fn a_file_that_grows_gives_the_same_records_wherever_it_was_cut_off() {
    let directory = tempfile::tempdir().unwrap();
    let json = "{\"ts\":1,\"k\":\"a\",\"v\":1}\n\nrubbish\r\n{\"ts\":2,\"k\":\"a\",\"v\":123}\n";
    let csv = "ts,k,v,f,p\r\n1,a,1,,\r\n2,\"b\n\"\"c\",12,,\n3,d,123,,\n";
    for (name, text) in [("in.jsonl", json), ("in.csv", csv)] {
        let config = config(directory.path(), &format!("{name:?}"), MILLIS);
        put(directory.path(), name, text.as_bytes());
        let (whole, end, unended) = read_growing(&config, &[]);
        assert_eq!((end.position.bytes, unended), (text.len() as u64, 0));
        assert_eq!(whole, read_all(&mut open(&config).unwrap()).unwrap());
        for cut in 0..text.len() {
            put(directory.path(), name, &text.as_bytes()[..cut]);
            let (mut seen, resume, unended) = read_growing(&config, &[]);
            assert_eq!(resume.position.bytes + unended, cut as u64, "{name} cut={cut}");
            assert!(seen.iter().all(|line| whole.contains(line)), "{name} cut={cut}: {seen:?}");
            // Again, without anything that is new.
            let again = read_growing(&config, std::slice::from_ref(&resume));
            assert_eq!((again.0.len(), &again.1), (0, &resume), "{name} cut={cut}");
            put(directory.path(), name, text.as_bytes());
            let (rest, end_again, unended) = read_growing(&config, &[resume]);
            seen.extend(rest);
            assert_eq!((&seen, end_again.position, unended), (&whole, end.position, 0), "{name} cut={cut}");
        }
    }
}

#[test]
fn a_position_within_a_line_that_counted_is_gone_on_from_where_input_grows() {
    let directory = tempfile::tempdir().unwrap();
    let text = "{\"ts\":1,\"k\":\"a\"}\n{\"ts\":2,\"k\":\"a\"}";
    put(directory.path(), "in.jsonl", text.as_bytes());
    let config = config(directory.path(), "\"in.jsonl\"", MILLIS);
    let mut source = open(&config).unwrap();
    assert_eq!(read_all(&mut source).unwrap().len(), 2);
    let before = source.partitions()[0].resume.clone();
    put(directory.path(), "in.jsonl", format!("{text} ").as_bytes());
    let (seen, resume, unended) = read_growing(&config, std::slice::from_ref(&before));
    assert_eq!((seen.len(), unended, resume.position), (0, 1, before.position));
    put(directory.path(), "in.jsonl", format!("{text} \n{{\"ts\":3,\"k\":\"b\"}}\n").as_bytes());
    let (seen, resume, _) = read_growing(&config, &[resume]);
    assert!(seen.len() == 1 && seen[0].starts_with("in.jsonl:3 3 "), "{seen:?}");
    assert_eq!(resume.position.records, 3);
}

/// A pipeline over two sources, JSON lines and CSV, with a window over each and one over the first only.
fn two_sources(directory: &Path, first: &str, second: &str) -> PipelineConfig {
    let text = format!(
        r#"name = "t"
state = {{ directory = "state" }}
watermark = {{ delay = "0s" }}
[[source]]
name = "first"
path = "a*.jsonl"
time = {{ field = "ts", format = "epoch_ms" }}
{first}
[[source]]
name = "second"
path = "b*.csv"
time = {{ field = "at", format = "epoch_s" }}
{second}
[[window]]
name = "all"
type = "tumbling"
size = "1s"
aggregates = [{{ name = "rows", function = "count" }}]
output = {{ path = "out/all" }}
[[window]]
name = "some"
source = "first"
key = ["k"]
type = "tumbling"
size = "1s"
aggregates = [{{ name = "sum", function = "sum", field = "v", type = "int" }}]
output = {{ path = "out/some" }}
"#
    );
    PipelineConfig::from_str(&text, &directory.join("t.toml")).unwrap()
}

/// Source, name and times of each block.
fn blocks(source: &mut FileSource) -> Vec<(u16, String, Vec<i64>)> {
    let mut seen = Vec::new();
    while let Some(block) = source.next_block(None).unwrap() {
        let name = source.partitions()[block.partition.0 as usize].resume.name.clone();
        seen.push((block.batch.source.0, name, block.batch.times.clone()));
    }
    seen
}

const FINE: Limits = Limits { block_bytes: 20, record_bytes: 256 };

#[test]
fn files_of_all_sources_are_read_in_the_order_of_their_events_also_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    put(directory.path(), "a.jsonl", lines(6, 0).replace(":0,", ":3000,").as_bytes());
    put(directory.path(), "b1.csv", b"at,x\n1,x\n4,x\n6,x\n");
    put(directory.path(), "b2.csv", b"at,x\n2,x\n3,x\n5,x\n");
    let config = two_sources(directory.path(), "", "");
    let straight = blocks(&mut open_at(&config, &[], FINE).unwrap());
    let sources: std::collections::BTreeSet<u16> = straight.iter().map(|block| block.0).collect();
    assert_eq!(sources.len(), 2);
    for stop in 1..straight.len() {
        let mut source = open_at(&config, &[], FINE).unwrap();
        for _ in 0..stop {
            source.next_block(None).unwrap();
        }
        let resume: Vec<_> = source.partitions().iter().map(|info| info.resume.clone()).collect();
        let rest = blocks(&mut open_at(&config, &resume, FINE).unwrap());
        assert_eq!(rest, straight[stop..], "stopped after {stop} blocks");
    }
}

#[test]
fn a_source_needs_only_the_fields_of_windows_that_read_it() {
    let directory = tempfile::tempdir().unwrap();
    put(directory.path(), "a.jsonl", lines(2, 0).as_bytes());
    put(directory.path(), "b.csv", b"at\n1\n");
    let config = two_sources(directory.path(), "", "");
    let mut source = open(&config).unwrap();
    let mut lengths = Vec::new();
    while let Some(block) = source.next_block(None).unwrap() {
        assert!(block.rejected.is_empty());
        let keys: Vec<usize> = block.batch.keys.iter().map(KeyColumn::len).collect();
        lengths.push((keys, block.batch.values[0].len()));
    }
    assert_eq!(lengths, [(vec![2, 2], 2), (vec![1, 0], 0)]);
}

#[test]
fn a_file_of_two_sources_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    put(directory.path(), "a.jsonl", lines(2, 0).as_bytes());
    put(directory.path(), "b.csv", b"at\n1\n");
    let mut config = two_sources(directory.path(), "", "");
    config.sources[1].patterns = config.sources[0].patterns.clone();
    let error = open(&config).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("sources \"first\" and \"second\" both read a.jsonl"), "{error}");
}

#[test]
fn a_field_may_hold_the_watermark_and_is_bounded_from_above_only() {
    let directory = tempfile::tempdir().unwrap();
    let text = "{\"ts\":5,\"k\":\"a\",\"w\":1}\n{\"ts\":6,\"k\":\"a\"}\n{\"ts\":7,\"k\":\"a\",\"w\":null}\n\
                {\"ts\":8,\"k\":\"a\",\"w\":7}\n{\"ts\":9,\"k\":\"a\",\"w\":\"x\"}\n{\"ts\":9,\"k\":\"a\",\"w\":100000}\n";
    put(directory.path(), "a.jsonl", text.as_bytes());
    put(directory.path(), "b.csv", b"at\n1\n");
    let watermark = "watermark = { strategy = \"punctuated\", field = \"w\" }";
    let mut config = two_sources(directory.path(), watermark, "");
    config.sources[0].time.bounds.bounds.min = Some(EventTime::from_millis(5));
    config.sources[0].time.bounds.bounds.max = Some(EventTime::from_millis(50));
    let block = open(&config).unwrap().next_block(None).unwrap().unwrap();
    assert_eq!(block.batch.times, [5, 6, 7, 8]);
    let said = [(0, EventTime::from_millis(1)), (3, EventTime::from_millis(7))];
    assert_eq!(block.batch.punctuations, said);
    let reasons: Vec<_> = block
        .rejected
        .iter()
        .map(|rejected| (rejected.record, rejected.reason, rejected.field.as_deref()))
        .collect();
    let expected =
        [(5, RejectReason::UnparsableTimestamp, Some("w")), (6, RejectReason::TimestampAfterMax, Some("w"))];
    assert_eq!(reasons, expected);
}

#[test]
fn a_file_that_is_far_ahead_of_the_others_loses_those_events_and_not_its_turn() {
    let directory = tempfile::tempdir().unwrap();
    for (name, from) in [("a1.jsonl", 0), ("a2.jsonl", 10), ("a3.jsonl", 20)] {
        put(directory.path(), name, lines(10, from).as_bytes());
    }
    put(directory.path(), "a4.jsonl", format!("{}{}", lines(1, 30), lines(5, 9_000_000)).as_bytes());
    put(directory.path(), "b.csv", b"at\n1\n");
    let mut config = two_sources(directory.path(), "", "");
    config.sources[0].time.bounds.bounds.max_ahead_of_partitions = Some(Span::from_millis(1_000).unwrap());
    let mut source = open_at(&config, &[], Limits { block_bytes: 40, record_bytes: 256 }).unwrap();
    let (mut events, mut rejected) = (0, Vec::new());
    while let Some(block) = source.next_block(None).unwrap() {
        events += block.batch.len();
        rejected.extend(block.rejected.iter().map(|rejected| rejected.reason));
    }
    assert_eq!(events, 32);
    assert_eq!(rejected, [RejectReason::TimestampAheadOfPartitions; 5]);
}

/// Lines that are right, broken or odd, with some line ends.
fn arbitrary_lines() -> impl Strategy<Value = Vec<u8>> {
    let good = (0_i64..1_000, "[a-c]", any::<i16>())
        .prop_map(|(ts, k, v)| format!("{{\"ts\":{ts},\"k\":\"{k}\",\"v\":{v}}}").into_bytes());
    let line = prop_oneof![
        6 => good,
        1 => prop::collection::vec(any::<u8>(), 0..40),
        1 => Just(b"{\"ts\":1,\"k\":\"\\u00e9\"}".to_vec()),
        1 => Just(b"1,\"x\"\"\ny\",,,".to_vec()),
        1 => Just(Vec::new()),
    ];
    let end = prop::sample::select(vec![&b"\n"[..], b"\r\n", b"\n\n"]);
    prop::collection::vec((line, end), 0..25)
        .prop_map(|lines| lines.into_iter().flat_map(|(line, end)| [line, end.to_vec()].concat()).collect())
}

/// All blocks, with all that they say.
fn told(source: &mut FileSource) -> Vec<String> {
    let (mut told, mut spare) = (Vec::new(), None);
    while let Some(block) = source.next_block(spare.take()).unwrap() {
        told.push(format!("{block:?}"));
        spare = Some(block);
    }
    told
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn blocks_say_the_same_whoever_parses_their_pieces(
        texts in prop::collection::vec(arbitrary_lines(), 1..6), quotes in any::<bool>(), block_bytes in 100_usize..2_000,
        piece_bytes in 1_usize..200, helpers in 0_usize..4, csv in any::<bool>(), grows in any::<bool>(),
        unended in prop::option::of(0_usize..600),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let mut text = texts.concat();
        if !quotes {
            text.retain(|&byte| byte != b'"');
        }
        // A last line without an end, which may be longer than a piece.
        let padding = "x".repeat(unended.unwrap_or_default());
        match unended {
            Some(_) if csv => text.extend_from_slice(format!("5,k,7,,{padding}").as_bytes()),
            Some(_) => {
                text.extend_from_slice(format!("{{\"ts\":5,\"k\":\"k\",\"v\":7,\"more\":\"{padding}\"}}").as_bytes());
            }
            None => {}
        }
        let name = if csv { "in.csv" } else { "in.jsonl" };
        let header = if csv { "csv = { header = false, columns = [\"ts\", \"k\", \"v\", \"f\", \"p\"] }" } else { "" };
        put(directory.path(), name, &text);
        let config = config(directory.path(), &format!("{name:?}"), &format!("{MILLIS}\n{header}"));
        let limits = Limits { block_bytes, record_bytes: RECORD_BYTES_MAX };
        let open = || open_at(&config, &[], limits).unwrap().leaving_unended_lines(grows);
        let mut shared = open();
        shared.crew = Some(Crew::with_pieces(helpers, piece_bytes).unwrap());
        prop_assert_eq!(told(&mut shared), told(&mut open()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]
    #[test]
    fn any_cut_into_blocks_gives_the_same_records(text in arbitrary_lines(), cut in 1_usize..200, csv in any::<bool>()) {
        let directory = tempfile::tempdir().unwrap();
        let name = if csv { "in.csv" } else { "in.jsonl" };
        let header = if csv { "csv = { header = false, columns = [\"ts\", \"k\", \"v\", \"f\", \"p\"] }" } else { "" };
        put(directory.path(), name, &text);
        let config = config(directory.path(), &format!("{name:?}"), &format!("{MILLIS}\n{header}"));
        let whole = read_all(&mut open(&config).unwrap()).unwrap();
        let limits = Limits { block_bytes: cut, record_bytes: RECORD_BYTES_MAX };
        let (cut, points) = checkpoints(&mut open_at(&config, &[], limits).unwrap());
        prop_assert_eq!(&cut, &whole);
        if let Some((seen, resume)) = points.get(points.len() / 2) {
            let rest = read_all(&mut open_at(&config, resume, limits).unwrap()).unwrap();
            prop_assert_eq!(rest, &whole[*seen..]);
        }
    }
}
