//! Eviction: whole files first, then one range delete per family, up to the horizon.
//!
//! It frees space and nothing else: reads mask expired panes from the moment the horizon moves.

use rocksdb::FlushOptions;

use super::db::{StateDb, Writer};
use super::engine::Family;
use super::error::StateError;
use super::horizon::Live;
use super::key::{BEFORE_PANES, first_live};
use super::options;

/// Range deletes are flushed out of the write buffer after so many, so that no scan meets more of them there.
const RANGE_DELETES_UNFLUSHED_MAX: u32 = 16;
/// Longer than the key of a pane usually is after its end; see `last_key_for_file_drops`.
const KEY_TAIL: [u8; 64] = [0xff; 64];

/// What [`StateDb::evict`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EvictStats {
    /// Range deletes written: one for each family whose bound moved.
    pub range_deletes: u64,
    /// Files dropped as a whole, about: a compaction at the same time is counted in.
    pub files_dropped: u64,
    /// Bytes of these files.
    pub bytes_dropped: u64,
    /// True when write buffers were flushed to keep range deletes few.
    pub flushed: bool,
}

impl StateDb {
    /// Frees the space of panes that expired under the horizon. Does nothing where the horizon has not moved.
    ///
    /// # Errors
    /// [`StateError::Engine`] when RocksDB cannot write, [`StateError::Background`] when it failed before.
    pub fn evict(&self) -> Result<EvictStats, StateError> {
        let mut writer = self.writer()?;
        self.engine.check_background()?;
        let mut stats = EvictStats::default();
        for index in 0..self.engine.families.len() {
            self.evict_family(&mut writer, index, &mut stats)?;
        }
        writer.range_deletes += stats.range_deletes;
        if writer.range_deletes_unflushed >= RANGE_DELETES_UNFLUSHED_MAX {
            self.flush(&mut writer)?;
            stats.flushed = true;
        }
        Ok(stats)
    }

    fn evict_family(
        &self,
        writer: &mut Writer,
        index: usize,
        stats: &mut EvictStats,
    ) -> Result<(), StateError> {
        let (Some(family), Some(evicted_to)) =
            (self.engine.families.get(index), writer.evicted_to.get_mut(index))
        else {
            return Ok(());
        };
        let live = Live::under(family.horizon.get(), family.allowed_lateness);
        let bound = first_live(live);
        if live == Live::All || evicted_to.as_ref() == Some(&bound) {
            return Ok(());
        }
        self.drop_files(family, &bound, stats)?;
        let handle = self.engine.handle(&family.column_family)?;
        // From the beginning each time: it covers what file drops, of newer versions first, may have uncovered.
        let deleted =
            self.engine.db.delete_range_cf_opt(handle, BEFORE_PANES.as_slice(), &bound, &options::write());
        deleted.map_err(StateError::engine("delete expired panes"))?;
        *evicted_to = Some(bound);
        writer.range_deletes_unflushed = writer.range_deletes_unflushed.saturating_add(1);
        stats.range_deletes += 1;
        Ok(())
    }

    fn drop_files(&self, family: &Family, bound: &[u8], stats: &mut EvictStats) -> Result<(), StateError> {
        let db = &self.engine.db;
        let handle = self.engine.handle(&family.column_family)?;
        let before = db.get_column_family_metadata_cf(handle);
        let dropped =
            db.delete_file_in_range_cf(handle, BEFORE_PANES.to_vec(), last_key_for_file_drops(bound));
        dropped.map_err(StateError::engine("drop files of expired panes"))?;
        let after = db.get_column_family_metadata_cf(handle);
        stats.files_dropped += before.file_count.saturating_sub(after.file_count) as u64;
        stats.bytes_dropped += before.size.saturating_sub(after.size);
        Ok(())
    }

    /// Flushes all families together.
    pub(super) fn flush(&self, writer: &mut Writer) -> Result<(), StateError> {
        let handles = self.engine.handles()?;
        let handles: Vec<_> = handles.iter().map(|(_, handle)| *handle).collect();
        let mut flush = FlushOptions::default();
        flush.set_wait(true);
        let flushed = self.engine.db.flush_cfs_opt(&handles, &flush);
        flushed.map_err(StateError::engine("flush the state database"))?;
        writer.range_deletes_unflushed = 0;
        Ok(())
    }
}

/// The last key for dropping files below `bound`, which is the first key that must stay.
///
/// RocksDB takes it as inclusive, and `bound` itself may be a live pane: the one with the empty key. So this takes
/// the end before, with a tail that nearly every key sorts below. A file beyond it is left to the range delete.
fn last_key_for_file_drops(bound: &[u8]) -> Vec<u8> {
    let mut last = bound.to_vec();
    // Subtracts one from the bytes as from one big number; `bound` starts with a byte above zero.
    for byte in last.iter_mut().rev() {
        let borrow = *byte == 0;
        *byte = byte.wrapping_sub(1);
        if !borrow {
            break;
        }
    }
    last.extend_from_slice(&KEY_TAIL);
    last
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::PaneKey;
    use crate::event_time::EventTime;
    use crate::state::key::{first_of_end, write_pane};

    proptest! {
        #[test]
        fn the_last_key_for_file_drops_lies_between_the_expired_and_the_live(
            end in (i64::MIN + 1)..=i64::MAX, key in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let last = last_key_for_file_drops(&first_of_end(EventTime::from_millis(end)));
            let mut buffer = Vec::new();
            let expired = PaneKey { end: EventTime::from_millis(end - 1), key: &key };
            prop_assert!(write_pane(&mut buffer, expired) <= last.as_slice());
            let live = PaneKey { end: EventTime::from_millis(end), key: b"" };
            prop_assert!(write_pane(&mut buffer, live) > last.as_slice());
        }
    }
}
