//! The state database alone: runs of panes merged, and expired ones let go.

use std::path::Path;
use std::sync::Arc;

use floodmark::codec::PaneKey;
use floodmark::event_time::{EventTime, Span, Watermark};
use floodmark::state::{FamilyId, FamilySpec, PaneMerge, StateDb, StateError, StateMemory, Write};

use crate::measure::{Outcome, Sample, floodmark_measured};

const FAMILY: FamilyId = FamilyId(0);
const MEMORY_BYTES: usize = 64 << 20;
/// Runs that are merged with the first.
const MERGES: u64 = 2;
/// Windows that panes are spread over where some expire.
const WINDOWS: u64 = 64;
const MINUTE: i64 = 60_000;

/// Numbers that add up.
struct Sum;

impl PaneMerge for Sum {
    fn merge(&self, base: &mut Vec<u8>, operand: &[u8]) -> bool {
        let (Ok(left), Ok(right)) = (<[u8; 8]>::try_from(base.as_slice()), <[u8; 8]>::try_from(operand))
        else {
            return false;
        };
        let sum = u64::from_le_bytes(left).wrapping_add(u64::from_le_bytes(right));
        base.copy_from_slice(&sum.to_le_bytes());
        true
    }
}

fn create(dir: &Path) -> Result<StateDb, StateError> {
    let family = FamilySpec { name: "bench".to_owned(), allowed_lateness: Span::ZERO, merge: Arc::new(Sum) };
    StateDb::create(&dir.join("db"), &[family], &StateMemory::new(MEMORY_BYTES))
}

/// Keys in order; each window has as many.
fn keys(size: u64) -> Vec<String> {
    (0..size).map(|key| format!("k{key:08}")).collect()
}

fn write(db: &StateDb, windows: u64, keys: &[String], merge: bool) -> Result<(), StateError> {
    let one = 1_u64.to_le_bytes();
    let each = keys.len() / windows as usize;
    let panes = (0..windows).flat_map(|window| {
        let end = EventTime::from_millis((window as i64 + 1) * MINUTE);
        keys[window as usize * each..][..each].iter().map(move |key| PaneKey { end, key: key.as_bytes() })
    });
    let entry = |pane| (pane, if merge { Write::Merge(&one[..]) } else { Write::Put(&one[..]) });
    db.write_sorted(FAMILY, panes.map(entry), keys.len())?;
    Ok(())
}

/// Runs of parts on top of whole panes, written, and read as one by a scan.
pub(crate) fn merge(size: u64) -> Outcome<Sample> {
    let dir = tempfile::tempdir()?;
    let (db, keys) = (create(dir.path())?, keys(size));
    write(&db, 1, &keys, false)?;
    let (took, read) = floodmark_measured(|| -> Result<u64, StateError> {
        for _ in 0..MERGES {
            write(&db, 1, &keys, true)?;
        }
        let (mut scan, mut read) = (db.scan(FAMILY, ..)?, 0);
        while scan.next_pane()?.is_some() {
            read += 1;
        }
        Ok(read)
    });
    if read? != size {
        return Err("a scan did not find every pane once".into());
    }
    Ok(Sample { took, count: size })
}

/// Half of the windows let go at once.
pub(crate) fn evict(size: u64) -> Outcome<Sample> {
    let dir = tempfile::tempdir()?;
    let (db, keys) = (create(dir.path())?, keys(size));
    write(&db, WINDOWS, &keys, false)?;
    db.compact()?;
    db.set_horizon(Watermark::At(EventTime::from_millis(MINUTE * WINDOWS as i64 / 2)));
    let (took, evicted) = floodmark_measured(|| db.evict());
    if evicted?.range_deletes == 0 {
        return Err("nothing was evicted".into());
    }
    Ok(Sample { took, count: 1 })
}
