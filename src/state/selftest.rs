//! Proof at every open that the compaction filter, configured as it is, removes expired panes and keeps live ones.
//!
//! A filter that is attached but does nothing looks exactly like one that works, until the disk is full. The test
//! runs in a scratch database in memory, with the very options of the real families.

use std::path::Path;
use std::sync::atomic::Ordering;

use rocksdb::{BottommostLevelCompaction, CompactOptions, Env, FlushOptions, IteratorMode};

use super::StateOptions;
use super::engine::{Access, Engine, Family, Setup};
use super::error::StateError;
use super::family::FamilySpec;
use super::key::{SENTINEL, write_pane};
use super::memory::StateMemory;
use super::options;
use crate::codec::PaneKey;
use crate::event_time::{EventTime, Watermark};

/// Shows that panes of each family leave a compaction when, and only when, they are expired.
///
/// Run by every open; here for tools that check an installation.
///
/// # Errors
/// [`StateError::SelfTest`] with the family and what was seen.
pub fn self_test(families: &[FamilySpec], memory: &StateMemory) -> Result<(), StateError> {
    let options = StateOptions::default();
    self_test_with(Setup { families, memory, options: &options, filter: true, env: None })
}

pub(super) fn self_test_with(setup: Setup<'_>) -> Result<(), StateError> {
    let env = Env::mem_env().map_err(StateError::engine("make a scratch database"))?;
    for spec in setup.families {
        let one = Setup { families: std::slice::from_ref(spec), env: Some(&env), ..setup };
        // In memory: this path is on no disk.
        let dir = Path::new("/").join(spec.column_family());
        let engine = one.open(&dir, Access::Create)?;
        if let Some(family) = engine.families.first() {
            test_family(&engine, family)?;
        }
    }
    Ok(())
}

fn test_family(engine: &Engine, family: &Family) -> Result<(), StateError> {
    let what = || StateError::engine("run the self-test of the compaction filter");
    let lateness = family.allowed_lateness.as_millis();
    let (expired, live) = (EventTime::from_millis(0), EventTime::from_millis(1));
    let handle = engine.handle(&family.column_family)?;
    let mut buffer = Vec::new();
    let mut keys = Vec::new();
    for end in [expired, live] {
        keys.push(write_pane(&mut buffer, PaneKey { end, key: b"self-test" }).to_vec());
    }
    keys.push(SENTINEL.to_vec());
    for key in &keys {
        engine.db.put_cf_opt(handle, key, [0], &options::write()).map_err(what())?;
    }
    engine.db.flush_cfs_opt(&[handle], &FlushOptions::default()).map_err(what())?;
    family.horizon.raise(Watermark::At(EventTime::from_millis(lateness)));
    let mut compaction = CompactOptions::default();
    compaction.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
    engine.db.compact_range_cf_opt(handle, None::<&[u8]>, None::<&[u8]>, &compaction);
    engine.check_background()?;

    let mut left = Vec::new();
    for row in engine.db.iterator_cf(handle, IteratorMode::Start) {
        left.push(row.map_err(what())?.0.to_vec());
    }
    let removed = family.counters.removed.load(Ordering::Relaxed);
    if left != keys[1..] || removed != 1 {
        let why = format!("rows_written=3 rows_left={} removed={removed} expected_left=2", left.len());
        return Err(StateError::SelfTest { family: family.column_family.clone(), why });
    }
    Ok(())
}
