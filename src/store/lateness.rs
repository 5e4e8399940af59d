//! How late the events of each partition were, as every checkpoint keeps it. See [`LatenessSketch`].

use super::WindowStore;
use crate::checkpoint::Manifest;
use crate::event::EventBatch;
use crate::event_time::EventTime;
use crate::operator::{LatenessSketch, PartitionId, SourceSpec};

/// Partitions up to which each keeps its sketch when it was read to its end. With more, those of finished ones are added
/// up by source, so that a directory of thousands of files does not make large manifests.
const SKETCHES_MAX: usize = 256;

impl WindowStore {
    /// Takes in a batch whose marks have been worked out, and before which `latest` was the latest event time of its
    /// partition.
    pub(super) fn note_lateness(&mut self, batch: &EventBatch, latest: Option<EventTime>) {
        if let Some(known) = self.partitions.get_mut(batch.partition.0 as usize) {
            known.lateness.observe(latest, &batch.times, self.marks.rejected());
        }
    }

    /// Adds the sketch of a partition that has ended to that of its source, where there are too many of them.
    pub(super) fn fold_lateness(&mut self, partition: PartitionId) {
        if self.partitions.len() <= SKETCHES_MAX {
            return;
        }
        let source = self.tracker.source_of(partition).unwrap_or_default();
        let whole = self.source_lateness.get_mut(usize::from(source.0));
        if let (Some(known), Some(whole)) = (self.partitions.get_mut(partition.0 as usize), whole) {
            whole.merge(&std::mem::take(&mut known.lateness));
        }
    }
}

/// What a manifest says of whole sources, in the order in which they are declared now.
pub(super) fn of_sources(manifest: Option<&Manifest>, sources: &[SourceSpec]) -> Vec<LatenessSketch> {
    let known = manifest.map_or(&[][..], |manifest| manifest.sources.as_slice());
    // An only source may change its name: there is no other that it could be mistaken for.
    let only = known.len() == 1 && sources.len() == 1;
    let of = |source: &SourceSpec| known.iter().find(|known| only || known.name == source.name);
    sources.iter().map(|source| of(source).map(|known| known.lateness.clone()).unwrap_or_default()).collect()
}
