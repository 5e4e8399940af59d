//! What the watermark of a checkpoint stands at: which partition holds it back, and what would move it.
//!
//! Pure, from a manifest alone. The rule by which sources are combined is not in it; it follows from where the
//! watermark is.

use serde::Serialize;

use crate::checkpoint::{Manifest, PartitionState};
use crate::event_time::{EventTime, Span, Watermark};
use crate::inspect::text::{as_optional_text, as_text};

/// Partitions named of a kind; of the others only the number is given.
const NAMED_MAX: usize = 20;

/// A partition that holds the watermark before the end of a window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HoldingPartition {
    /// Its name.
    pub partition: String,
    /// Its source; empty when an older version wrote the checkpoint.
    pub source: String,
    /// Its own watermark.
    #[serde(serialize_with = "as_text")]
    pub watermark: Watermark,
    /// Latest event time seen in it; absent when it never spoke.
    #[serde(serialize_with = "as_optional_text")]
    pub max_time: Option<EventTime>,
    /// How far its watermark stays behind that time: the delay of its source, where it has one.
    #[serde(serialize_with = "as_optional_text")]
    pub behind: Option<Span>,
    /// An event of this time or later in this partition lets it go; absent while it never spoke, when its delay is not
    /// known.
    #[serde(serialize_with = "as_optional_text")]
    pub needs_event_at: Option<EventTime>,
}

/// Why the watermark is not further.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Holding {
    /// Partitions that hold it back, the slowest first; each of them has to move.
    pub partitions: Vec<HoldingPartition>,
    /// Partitions beyond those that are named.
    pub partitions_left_out: u64,
    /// True when any one of them is enough: the fastest source decides, or none holds it back.
    pub any_is_enough: bool,
    /// Partitions that hold nothing back because they are silent.
    pub idle: Vec<String>,
    /// Partitions that hold nothing back because they were read to their end.
    pub finished: u64,
}

/// What holds the task's watermark before `end`.
pub(super) fn holding(manifest: &Manifest, end: EventTime) -> Holding {
    let counts = |partition: &&PartitionState| !partition.idle && !partition.finished;
    let mut holding = Holding {
        idle: manifest
            .partitions
            .iter()
            .filter(|partition| partition.idle && !partition.finished)
            .map(|partition| partition.name.clone())
            .take(NAMED_MAX)
            .collect(),
        finished: manifest.partitions.iter().filter(|partition| partition.finished).count() as u64,
        ..Holding::default()
    };
    if manifest.watermark.closed(end) {
        return holding;
    }
    let before = |partition: &&PartitionState| !own_watermark(partition).closed(end);
    let mut slow: Vec<&PartitionState> = manifest.partitions.iter().filter(counts).filter(before).collect();
    if slow.is_empty() || fastest_decides(manifest) {
        holding.any_is_enough = true;
        slow = manifest.partitions.iter().filter(|partition| !partition.finished).collect();
        // The latest is the nearest to moving it.
        slow.sort_by_key(|partition| std::cmp::Reverse(own_watermark(partition)));
    } else {
        slow.sort_by_key(|partition| own_watermark(partition));
    }
    holding.partitions_left_out = slow.len().saturating_sub(NAMED_MAX) as u64;
    holding.partitions = slow.into_iter().take(NAMED_MAX).map(|partition| named(partition, end)).collect();
    holding
}

fn named(partition: &PartitionState, end: EventTime) -> HoldingPartition {
    let behind = behind(partition);
    HoldingPartition {
        partition: partition.name.clone(),
        source: partition.source.clone(),
        watermark: partition.watermark,
        max_time: partition.max_time,
        behind,
        needs_event_at: behind.map(|behind| end.saturating_add(behind)),
    }
}

/// How far the watermark of a partition stays behind its latest event.
fn behind(partition: &PartitionState) -> Option<Span> {
    let (max, watermark) = (partition.max_time?, partition.watermark.instant()?);
    Span::from_millis(max.as_millis().checked_sub(watermark.as_millis())?)
}

/// A version that did not keep watermarks of partitions kept their times.
fn own_watermark(partition: &PartitionState) -> Watermark {
    match (partition.watermark, partition.max_time) {
        (Watermark::None, Some(time)) => Watermark::At(time),
        (watermark, _) => watermark,
    }
}

/// True when the task's watermark is that of its fastest source while a slower one still counts.
fn fastest_decides(manifest: &Manifest) -> bool {
    let counting = |name: &str| {
        let mut own = manifest.partitions.iter().filter(|partition| partition.source == name);
        own.any(|partition| !partition.idle && !partition.finished)
    };
    let marks = || manifest.sources.iter().map(|source| source.watermark);
    let slowest =
        manifest.sources.iter().filter(|source| counting(&source.name)).map(|source| source.watermark);
    match (slowest.min(), marks().max()) {
        (Some(slowest), Some(fastest)) => slowest < fastest && manifest.watermark == fastest,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::checkpoint::{LineageId, Position, SourceIdentity, SourceState};
    use crate::operator::LatenessSketch;

    fn at(millis: i64) -> Watermark {
        Watermark::At(EventTime::from_millis(millis))
    }

    fn partition(name: &str, source: &str, max: i64, delay: i64) -> PartitionState {
        PartitionState {
            name: name.to_owned(),
            source: source.to_owned(),
            position: Position::default(),
            identity: SourceIdentity::default(),
            finished: false,
            max_time: Some(EventTime::from_millis(max)),
            watermark: at(max - delay),
            idle: false,
            lateness: LatenessSketch::default(),
        }
    }

    fn manifest(watermark: Watermark, partitions: Vec<PartitionState>) -> Manifest {
        let mut sources: Vec<SourceState> = Vec::new();
        for name in ["a", "b"] {
            let own = partitions.iter().filter(|partition| partition.source == name);
            if let Some(watermark) = own.map(|partition| partition.watermark).min() {
                sources.push(SourceState {
                    name: name.to_owned(),
                    watermark,
                    lateness: LatenessSketch::default(),
                });
            }
        }
        Manifest {
            pipeline: "p".to_owned(),
            lineage: LineageId([0; 16]),
            generation: 1,
            epoch: 1,
            parent: None,
            created_by: String::new(),
            created_at_ms: 0,
            sources,
            partitions,
            watermark,
            batch_watermark: Watermark::None,
            horizon: Watermark::None,
            operators: Vec::new(),
            files: Vec::new(),
            staged: Vec::new(),
            counters: BTreeMap::new(),
        }
    }

    fn names(holding: &Holding) -> Vec<&str> {
        holding.partitions.iter().map(|partition| partition.partition.as_str()).collect()
    }

    #[test]
    fn every_partition_before_the_end_holds_and_says_what_it_needs() {
        let partitions =
            vec![partition("x", "a", 100, 10), partition("y", "a", 60, 10), partition("z", "a", 300, 10)];
        let holding = holding(&manifest(at(50), partitions), EventTime::from_millis(150));
        assert_eq!((names(&holding), holding.any_is_enough), (vec!["y", "x"], false));
        assert_eq!(holding.partitions[0].needs_event_at, Some(EventTime::from_millis(160)));
    }

    #[test]
    fn idle_and_finished_partitions_hold_nothing() {
        let mut partitions =
            vec![partition("x", "a", 100, 0), partition("y", "a", 10, 0), partition("z", "a", 5, 0)];
        partitions[1].idle = true;
        partitions[2].finished = true;
        let holding = holding(&manifest(at(100), partitions), EventTime::from_millis(150));
        assert_eq!(names(&holding), ["x"]);
        assert_eq!((holding.idle.as_slice(), holding.finished), (&["y".to_owned()][..], 1));
    }

    #[test]
    fn a_partition_that_never_spoke_holds_without_a_time() {
        let mut silent = partition("y", "a", 0, 0);
        (silent.max_time, silent.watermark) = (None, Watermark::None);
        let partitions = vec![partition("x", "a", 500, 0), silent];
        let holding = holding(&manifest(Watermark::None, partitions), EventTime::from_millis(150));
        assert_eq!((names(&holding), holding.partitions[0].needs_event_at), (vec!["y"], None));
    }

    #[test]
    fn where_the_fastest_source_decides_any_partition_is_enough() {
        let partitions = vec![partition("x", "a", 100, 0), partition("y", "b", 20, 0)];
        let fast = holding(&manifest(at(100), partitions.clone()), EventTime::from_millis(150));
        assert_eq!((names(&fast), fast.any_is_enough), (vec!["x", "y"], true));
        let slow = holding(&manifest(at(20), partitions), EventTime::from_millis(50));
        assert_eq!((names(&slow), slow.any_is_enough), (vec!["y"], false));
    }
}
