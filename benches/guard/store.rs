//! A store with durable state: what a checkpoint costs, and a start from one.

use std::path::Path;

use floodmark::checkpoint::SourceIdentity;
use floodmark::event::{EventBatch, Number, ValueColumn};
use floodmark::event_time::EventTime;
use floodmark::store::{Barrier, WindowStore};

use crate::count::Count;
use crate::measure::{Outcome, Sample, floodmark_measured};
use crate::spec::{aggregated, tumbling};

const DAY: i64 = 86_400_000;

fn open(state: &Path) -> Outcome<WindowStore> {
    Ok(WindowStore::builder("guard").window(aggregated(tumbling(DAY)?)).open(state)?)
}

/// A store with so many panes, none of them in a checkpoint.
fn filled(state: &Path, size: u64) -> Outcome<WindowStore> {
    let mut store = open(state)?;
    let (partition, _) = store.partition("guard", SourceIdentity::default())?;
    let mut batch = EventBatch::with_columns(partition, 1, vec![ValueColumn::int()]);
    for key in 0..size {
        let name = format!("k{key:08}");
        batch.push_event(EventTime::from_millis(0), &[name.as_bytes()], &[Some(Number::Int(key as i64))]);
    }
    store.process(&batch, &mut Count::default())?;
    Ok(store)
}

/// A checkpoint of panes that are all new, until it is durable.
pub(crate) fn checkpoint(size: u64) -> Outcome<Sample> {
    let dir = tempfile::tempdir()?;
    let mut store = filled(&dir.path().join("state"), size)?;
    let (took, report) = floodmark_measured(|| store.checkpoint(Barrier::default()));
    Ok(Sample { took, count: report?.panes_written as u64 })
}

/// A start from that checkpoint, until events can come.
pub(crate) fn restore(size: u64) -> Outcome<Sample> {
    let dir = tempfile::tempdir()?;
    let state = dir.path().join("state");
    filled(&state, size)?.checkpoint(Barrier::default())?;
    let (took, store) = floodmark_measured(|| open(&state));
    if store?.resident_panes() as u64 != size {
        return Err("the panes were not all restored".into());
    }
    Ok(Sample { took, count: size })
}
