//! LaminarDB, embedded: record batches pushed into a source, a continuous query over it, results from a subscription.
//!
//! Its limits are raised to what the workload needs, where a limit would end the run: memory of its state, and of the
//! results that wait for the subscriber. Everything else is as it comes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray as _;
use arrow_array_58::cast::AsArray as _;
use arrow_array_58::types::{Int64Type, TimestampMicrosecondType};
use arrow_array_58::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use laminar_core::streaming::{StreamCheckpointConfig, StreamingError};
use laminar_db::subscription::{PortalFrame, SubscribeStart, SubscriptionPortal};
use laminar_db::{LaminarDB, UntypedSourceHandle};

use super::{DURABLE_EVERY, Run, now};
use crate::Outcome;
use crate::results::{Pane, Results};
use crate::stream::{DELAY_MS, Rows, Stream, WINDOW_MS};

/// No result for so long is the end, whether all came or not.
const PATIENCE: Duration = Duration::from_secs(20);
/// Memory for its state; the default of 256 MiB is not enough for a million keys.
const STATE_BYTES: usize = 8 << 30;

/// How long to wait when the source is full.
const FULL: Duration = Duration::from_micros(100);
const COLUMNS: &str = "results have other columns than the query says";

const SOURCE: &str = "CREATE SOURCE events (ts TIMESTAMP, key VARCHAR, value BIGINT, \
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)";
const QUERY: &str = "CREATE STREAM panes AS \
    SELECT TUMBLE(ts, INTERVAL '1' MINUTE) AS start, key, \
    COUNT(*) AS n, SUM(value) AS total, MIN(value) AS low, MAX(value) AS high \
    FROM events GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE), key \
    EMIT ON WINDOW CLOSE WITH ('retain_history' = '192 MB')";

/// With a directory it takes checkpoints, without one nothing survives.
pub(super) fn run(stream: &Stream, dir: Option<&Path>) -> Outcome<Run> {
    let batches = stream.batches.iter().map(columns).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(measure(stream, batches, dir))
}

/// The columns of a batch for the version of Arrow that LaminarDB has.
fn columns(batch: &arrow_array::RecordBatch) -> [ArrayRef; 3] {
    let rows = Rows::of(batch);
    let times = rows.times.iter().map(|time| time * 1_000);
    [
        Arc::new(TimestampMicrosecondArray::from_iter_values(times)) as _,
        Arc::new(StringArray::from_iter_values(batch.column(1).as_string::<i32>().iter().flatten())) as _,
        Arc::new(Int64Array::from(rows.values.to_vec())) as _,
    ]
}

async fn measure(stream: &Stream, batches: Vec<[ArrayRef; 3]>, dir: Option<&Path>) -> Outcome<Run> {
    let db = open(dir).await?;
    let source = db.source_untyped("events")?;
    let panes = db.open_subscription("panes", None, SubscribeStart::Tail).await?;
    let times = stream.batches.iter().flat_map(|batch| Rows::of(batch).times);
    let newest = times.max().ok_or("the stream is empty")?;
    // Past the end of the last window.
    let end = newest + WINDOW_MS + DELAY_MS;
    let started = now();
    let pushing = tokio::task::spawn_blocking(move || push(&source, batches, end));
    let mut received = Received::default();
    received.follow(panes, stream.events).await?;
    pushing.await??;
    if dir.is_some() {
        let last = db.checkpoint().await?;
        if !last.success {
            return Err(format!("the last checkpoint failed: {:?}", last.error).into());
        }
        received.kept += 1;
    }
    let took = started.elapsed();
    db.shutdown().await?;
    Ok(Run { took: took.saturating_sub(received.waited), kept: received.kept, results: received.results })
}

async fn open(dir: Option<&Path>) -> Outcome<Arc<LaminarDB>> {
    let mut builder = LaminarDB::builder().pipeline_max_managed_state_bytes(STATE_BYTES);
    if let Some(dir) = dir {
        let interval_ms = Some(u64::try_from(DURABLE_EVERY.as_millis())?);
        let checkpoint = StreamCheckpointConfig { interval_ms, ..StreamCheckpointConfig::default() };
        builder = builder.storage_dir(dir).checkpoint(checkpoint);
    }
    let db = builder.build().await?;
    db.execute(SOURCE).await?;
    db.execute(QUERY).await?;
    db.start().await?;
    Ok(db)
}

/// Pushes as fast as the source takes them.
fn push(source: &UntypedSourceHandle, batches: Vec<[ArrayRef; 3]>, end: i64) -> Outcome<()> {
    for columns in batches {
        let batch = RecordBatch::try_new(Arc::clone(source.schema()), columns.to_vec())?;
        loop {
            match source.push_arrow(batch.clone()) {
                Ok(()) => break,
                Err(StreamingError::ChannelFull) => std::thread::sleep(FULL),
                Err(error) => return Err(error.into()),
            }
        }
    }
    source.watermark(end);
    Ok(())
}

/// What came out so far.
#[derive(Default)]
struct Received {
    results: Results,
    kept: u64,
    /// Time in which nothing more came, at the end of a run that did not answer everything.
    waited: Duration,
}

impl Received {
    /// Takes results until they speak of all `events`, or until no more come.
    async fn follow(&mut self, mut panes: SubscriptionPortal, events: u64) -> Outcome<()> {
        let mut seen = 0;
        while seen < events {
            let Ok(frame) = tokio::time::timeout(PATIENCE, panes.next_frame()).await else {
                self.waited = PATIENCE;
                return Ok(());
            };
            match frame.ok_or("the subscription ended")? {
                PortalFrame::Batch { batch, .. } => seen += self.take(&batch)?,
                PortalFrame::Barrier { .. } => self.kept += 1,
                PortalFrame::Lagged(skipped) => return Err(format!("{skipped} results were dropped").into()),
                PortalFrame::Error { message } => return Err(message.into()),
            }
        }
        Ok(())
    }

    /// Takes a batch of results, and says of how many events they speak.
    fn take(&mut self, batch: &RecordBatch) -> Outcome<u64> {
        let starts = batch.column(0).as_primitive_opt::<TimestampMicrosecondType>().ok_or(COLUMNS)?;
        let keys = batch.column(1).as_string_opt::<i32>().ok_or(COLUMNS)?;
        let mut numbers = [starts.values().as_ref(); 4];
        for (at, values) in numbers.iter_mut().enumerate() {
            *values = batch.column(2 + at).as_primitive_opt::<Int64Type>().ok_or(COLUMNS)?.values();
        }
        let [counts, sums, mins, maxs] = numbers;
        let mut events = 0;
        for row in 0..batch.num_rows() {
            let count = u64::try_from(counts[row])?;
            let pane = Pane { count, sum: sums[row], min: mins[row], max: maxs[row] };
            self.results.take(starts.value(row) / 1_000, keys.value(row).as_bytes(), pane);
            events += count;
        }
        Ok(events)
    }
}
