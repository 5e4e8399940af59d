//! Arrow record batches into a store, with a checkpoint, and on from there: `cargo run --example arrow`.
//!
//! Orders by the minute and customer. The batches stand for whatever yields them: a query, a Flight stream, another
//! library. Their rows are numbered, and the position of the checkpoint says with which number to go on.

#![expect(clippy::print_stdout, reason = "an example prints")]

use std::path::Path;
use std::sync::Arc;

use arrow_array::{Decimal128Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use floodmark::aggregate::{AggregateSpec, Function, InputType};
use floodmark::checkpoint::SourceIdentity;
use floodmark::event_time::{Span, Tumbling};
use floodmark::operator::OperatorSpec;
use floodmark::pipeline::config::TimeFormat;
use floodmark::pipeline::source::ParsePlan;
use floodmark::pipeline::source::columnar::ColumnarReader;
use floodmark::store::{Barrier, Collected, ReadTo, WindowStore};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Four orders, one of them without a time.
fn orders() -> Outcome<RecordBatch> {
    let times = [Some(1_000_000), Some(2_000_000), None, Some(61_000_000)];
    let cents = Decimal128Array::from(vec![1_250, 700, 1, 100]).with_precision_and_scale(9, 2)?;
    Ok(RecordBatch::try_from_iter_with_nullable([
        ("at", Arc::new(TimestampMicrosecondArray::from_iter(times).with_timezone("UTC")) as _, true),
        ("customer", Arc::new(StringArray::from(vec!["ada", "bob", "ada", "ada"])) as _, true),
        ("amount", Arc::new(cents) as _, true),
    ])?)
}

fn open(state: &Path) -> Outcome<WindowStore> {
    let minute = Tumbling::new(Span::from_millis(60_000).ok_or("negative")?, 0)?;
    // The last number is the index of the value column, in the order of the plan below.
    let total = AggregateSpec::over("total", Function::Sum, "amount", InputType::Decimal(2), 0);
    let window = OperatorSpec::new("per_minute", minute, &["customer"], vec![total]);
    Ok(WindowStore::builder("orders").window(window).open(state)?)
}

/// Feeds the store what it has not seen of the batches; returns its results, and the rows that are no events.
fn run(state: &Path, batches: &[RecordBatch]) -> Outcome<Vec<String>> {
    let mut store = open(state)?;
    let (partition, mut at) = store.partition("orders-0", SourceIdentity::default())?;
    let plan = ParsePlan::new("at", TimeFormat::Column) // the unit is that of the column
        .key(&["customer"])
        .value("amount", InputType::Decimal(2));
    let mut reader = ColumnarReader::new(plan, &batches.first().ok_or("no batches")?.schema())?;
    let (mut events, mut results, mut rejected) = (reader.batch(partition), Collected::default(), Vec::new());
    let mut first = 1; // record numbers count from 1
    for batch in batches {
        let rows = batch.num_rows() as u64;
        let seen = (at.records + 1).saturating_sub(first).min(rows);
        let rest = batch.slice(usize::try_from(seen)?, usize::try_from(rows - seen)?);
        events.clear(); // and its memory is used again
        reader.read(&rest, first + seen, &mut events, &mut rejected)?;
        store.process(&events, &mut results)?;
        first += rows;
        at.records = at.records.max(first - 1);
    }
    let read_to = vec![ReadTo { partition, position: at, finished: false }];
    store.checkpoint(Barrier { read_to, ..Barrier::default() })?;

    let row = |row: &floodmark::store::CollectedRow| {
        let values: Vec<String> = row.values.iter().map(ToString::to_string).collect();
        format!("{} {} {}", row.window.start, String::from_utf8_lossy(&row.key), values.join(" "))
    };
    let refused = rejected.iter().map(|rejected| {
        format!("row {}: {}: {}", rejected.record, rejected.reason, String::from_utf8_lossy(&rejected.text))
    });
    Ok(results.rows.iter().map(row).chain(refused).collect())
}

fn main() -> Outcome<()> {
    let directory = tempfile::tempdir()?;
    let state = directory.path().join("state");
    let batches = [orders()?];
    let found = run(&state, &batches)?;
    found.iter().for_each(|line| println!("{line}"));
    assert_eq!(
        found,
        [
            "1970-01-01T00:00:00Z ada 12.50",
            "1970-01-01T00:00:00Z bob 7.00",
            "row 3: null_timestamp: {\"at\":null,\"customer\":\"ada\",\"amount\":0.01}",
        ]
    );
    assert!(run(&state, &batches)?.is_empty()); // the checkpoint knows that all of it was read
    Ok(())
}
