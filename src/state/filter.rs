//! The compaction filter: the last broom of eviction, which removes expired panes when files are rewritten.
//!
//! Correctness and the bound on space never depend on it: it sees puts only (never operands, nor the result of a
//! merge in the compaction that made it), and only in files that are compacted. It removes a pane only when
//! [`Watermark::expired`] says so, and keeps and counts every key it does not know. It never panics.
//!
//! RocksDB enters one factory from several threads at once although the crate hands out `&mut`, hence everything
//! shared here is atomic, and `install` takes nothing that is not `Sync`.

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rocksdb::compaction_filter::CompactionFilter;
use rocksdb::compaction_filter_factory::{CompactionFilterContext, CompactionFilterFactory};
use rocksdb::{CompactionDecision, Options};

use super::horizon::Horizon;
use super::key::{StateKey, parse};
use crate::event_time::{Span, Watermark};

/// What the filters of one family did since it was opened.
#[derive(Debug, Default)]
pub(super) struct FilterCounters {
    pub(super) seen: AtomicU64,
    pub(super) removed: AtomicU64,
    pub(super) unknown_kept: AtomicU64,
}

/// One family's factory: its horizon, its lateness, its counters.
#[derive(Clone, Debug)]
pub(super) struct PaneFilterFactory {
    horizon: Arc<Horizon>,
    allowed_lateness: Span,
    counters: Arc<FilterCounters>,
}

impl PaneFilterFactory {
    pub(super) const fn new(
        horizon: Arc<Horizon>,
        allowed_lateness: Span,
        counters: Arc<FilterCounters>,
    ) -> Self {
        Self { horizon, allowed_lateness, counters }
    }

    /// A filter for one compaction, under the horizon of this moment.
    fn filter(&self) -> PaneFilter {
        PaneFilter {
            horizon: self.horizon.get(),
            allowed_lateness: self.allowed_lateness,
            counters: Arc::clone(&self.counters),
            seen: 0,
            removed: 0,
            unknown_kept: 0,
        }
    }
}

/// Installs the filter in a family's options.
pub(super) fn install(options: &mut Options, factory: PaneFilterFactory) {
    fn entered_by_many_threads<T: Send + Sync>(value: T) -> T {
        value
    }
    options.set_compaction_filter_factory(entered_by_many_threads(factory));
}

impl CompactionFilterFactory for PaneFilterFactory {
    type Filter = PaneFilter;

    // Several threads may be in here at once: it only loads.
    fn create(&mut self, _context: CompactionFilterContext) -> PaneFilter {
        self.filter()
    }

    fn name(&self) -> &CStr {
        c"floodmark.expiry.factory.1"
    }
}

/// The filter of one compaction, used by one thread.
#[derive(Debug)]
pub(super) struct PaneFilter {
    horizon: Watermark,
    allowed_lateness: Span,
    counters: Arc<FilterCounters>,
    seen: u64,
    removed: u64,
    unknown_kept: u64,
}

impl PaneFilter {
    fn removes(&mut self, key: &[u8]) -> bool {
        self.seen = self.seen.saturating_add(1);
        match parse(key) {
            Some(StateKey::Pane(pane)) if self.horizon.expired(pane.end, self.allowed_lateness) => {
                self.removed = self.removed.saturating_add(1);
                true
            }
            Some(StateKey::Pane(_) | StateKey::Sentinel) => false,
            None => {
                self.unknown_kept = self.unknown_kept.saturating_add(1);
                false
            }
        }
    }
}

impl CompactionFilter for PaneFilter {
    fn filter(&mut self, _level: u32, key: &[u8], _value: &[u8]) -> CompactionDecision {
        if self.removes(key) { CompactionDecision::Remove } else { CompactionDecision::Keep }
    }

    fn name(&self) -> &CStr {
        c"floodmark.expiry.1"
    }
}

impl Drop for PaneFilter {
    /// Adds up once per compaction, not once per row.
    fn drop(&mut self) {
        self.counters.seen.fetch_add(self.seen, Ordering::Relaxed);
        self.counters.removed.fetch_add(self.removed, Ordering::Relaxed);
        self.counters.unknown_kept.fetch_add(self.unknown_kept, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::PaneKey;
    use crate::event_time::EventTime;
    use crate::state::key::write_pane;

    fn factory(horizon: Watermark) -> PaneFilterFactory {
        let shared = Arc::new(Horizon::new());
        shared.raise(horizon);
        PaneFilterFactory::new(shared, Span::from_millis(3).unwrap(), Arc::default())
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(2), Just(0xff), any::<u8>()], 0..14)
    }

    proptest! {
        #[test]
        fn only_expired_pane_keys_are_removed_whatever_the_bytes(bytes in bytes(), horizon in any::<i64>()) {
            let horizon = Watermark::At(EventTime::from_millis(horizon));
            let factory = factory(horizon);
            let mut filter = factory.filter();
            let removed = filter.removes(&bytes);
            drop(filter);
            let unknown = factory.counters.unknown_kept.load(Ordering::Relaxed);
            match parse(&bytes) {
                Some(StateKey::Pane(pane)) => {
                    prop_assert_eq!(removed, horizon.expired(pane.end, Span::from_millis(3).unwrap()));
                    prop_assert_eq!(unknown, 0);
                }
                Some(StateKey::Sentinel) => prop_assert!(!removed && unknown == 0),
                None => prop_assert!(!removed && unknown == 1),
            }
        }
    }

    #[test]
    fn a_filter_keeps_the_horizon_it_was_made_with() {
        let factory = factory(Watermark::At(EventTime::from_millis(10)));
        let mut old = factory.filter();
        factory.horizon.raise(Watermark::At(EventTime::from_millis(100)));
        let mut new = factory.filter();
        let mut buffer = Vec::new();
        let key = write_pane(&mut buffer, PaneKey { end: EventTime::from_millis(50), key: b"k" });
        assert!(!old.removes(key));
        assert!(new.removes(key));
    }
}
