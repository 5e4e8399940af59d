//! Rows per second of the output path (encode, buffer, checksum, file) and lines per second of the generator.
//!
//! `cargo bench --bench output`. Targets: 3 M rows/s with four aggregates, 5 M generated lines/s, each on one thread.

use std::hint::black_box;

use floodmark::aggregate::Value;
use floodmark::clock::{Clock, SystemClock};
use floodmark::event_time::{EventTime, Watermark, Window};
use floodmark::operator::{PaneKind, ResultBlock, ResultRow};
use floodmark::pipeline::generate::{Generator, Spec, TextFormat, append_event};
use floodmark::pipeline::sink::{
    ColumnType, Format, KeyField, KeyKind, Opened, Restored, ResultSink, ResultSpec, Sink, SinkContext,
    TimeFormat,
};

const BLOCKS: usize = 200;
const ROWS: usize = 10_000;

/// One window of rows, handed out again and again.
struct Rows {
    keys: Vec<Vec<u8>>,
    values: Vec<[Value; 4]>,
    next: usize,
}

impl ResultBlock for Rows {
    fn window(&self) -> Window {
        Window {
            start: EventTime::from_millis(1_700_000_040_000),
            end: EventTime::from_millis(1_700_000_100_000),
        }
    }

    fn watermark(&self) -> Watermark {
        Watermark::At(EventTime::from_millis(1_700_000_100_500))
    }

    fn next_row(&mut self) -> Option<ResultRow<'_>> {
        let index = self.next;
        self.next += 1;
        let (key, values) = (self.keys.get(index)?, self.values.get(index)?);
        Some(ResultRow { key, pane_index: 0, kind: PaneKind::OnTime, values })
    }
}

fn rows(float: bool) -> Rows {
    let number = |n: i128| if float { Value::Float(n as f64 / 7.0) } else { Value::Int(n) };
    let values =
        (0..ROWS as i128).map(|n| [Value::Int(50 + n % 9), number(n * 37), number(n % 100), number(99)]);
    Rows {
        keys: (0..ROWS).map(|n| format!("k{n:06}").into_bytes()).collect(),
        values: values.collect(),
        next: 0,
    }
}

#[expect(clippy::print_stdout, reason = "a benchmark reports to the terminal")]
fn report(name: &str, count: usize, bytes: u64, clock: &dyn Clock, work: impl FnOnce()) {
    let before = clock.monotonic();
    work();
    let seconds = (clock.monotonic() - before).as_secs_f64();
    let (rate, throughput) = (count as f64 / seconds / 1e6, bytes as f64 / seconds / 1e6);
    println!("{name:<28} {rate:>7.2} M/s   {throughput:>7.0} MB/s");
}

fn write_results(name: &str, format: Format, float: bool, metadata: bool) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let names = ["count", "sum", "min", "max"];
    let spec = ResultSpec {
        name: "bench".to_owned(),
        directory: directory.path().to_owned(),
        format,
        keys: vec![KeyField { name: "key".to_owned(), kind: KeyKind::Text }],
        aggregates: names.map(str::to_owned).to_vec(),
        types: vec![if float { ColumnType::Float } else { ColumnType::Int }; 4],
        times: TimeFormat::Rfc3339,
        metadata,
        row_kinds: false,
    };
    let context = SinkContext { lineage: [1; 16], generation: 1 };
    let Opened { mut sink, .. } =
        ResultSink::open(spec, context, Restored::NOTHING).expect("an empty directory");
    let mut rows = rows(float);
    report(name, BLOCKS * ROWS, 0, &SystemClock::new(), || {
        for _ in 0..BLOCKS {
            rows.next = 0;
            sink.write(&mut rows).expect("a disk with space");
        }
    });
    sink.stage(1).expect("a disk with space");
}

fn generate(name: &str, spec: Spec, format: TextFormat) {
    let events = spec.events as usize;
    let generator = Generator::new(spec, 1).expect("a preset");
    let digits = generator.key_digits();
    let mut out = Vec::with_capacity(1 << 20);
    report(name, events, 47 * events as u64, &SystemClock::new(), || {
        for event in generator {
            append_event(&mut out, &event, format, digits);
            if out.len() > (1 << 20) - 256 {
                black_box(&out);
                out.clear();
            }
        }
    });
}

fn main() {
    write_results("jsonl, 4 integers", Format::Jsonl, false, false);
    write_results("jsonl, 4 integers, metadata", Format::Jsonl, false, true);
    write_results("jsonl, 1 integer 3 floats", Format::Jsonl, true, false);
    write_results("csv, 4 integers", Format::Csv, false, false);
    write_results("parquet, 4 integers", Format::Parquet, false, false);
    generate("generate s1 jsonl", Spec::s1(5_000_000), TextFormat::Jsonl);
    generate("generate s4 csv", Spec::s4(5_000_000), TextFormat::Csv);
}
