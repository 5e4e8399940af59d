//! How late and how far ahead the events of each partition are, exactly: every length above zero is kept, eight bytes
//! each. Knows no windows.

use crate::event_time::EventTime;
use crate::operator::{Distribution, Rejection};
use crate::pipeline::source::PartitionInfo;

/// What was seen of one partition.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    pub(super) events: u64,
    latest: Option<i64>,
    finished: bool,
    behind: Vec<i64>,
    ahead_of_clock: Vec<i64>,
    // Events while other partitions had spoken, and how far they were ahead of these.
    beside_others: u64,
    ahead_of_others: Vec<i64>,
    pub(super) step_max_ms: i64,
}

impl Measured {
    /// How far events lie behind the latest of the partition.
    pub(super) fn lateness(&self) -> Distribution {
        Distribution::of(self.events, self.behind.clone())
    }

    /// How far events lie ahead of the wall clock.
    pub(super) fn ahead_of_clock(&self) -> Distribution {
        Distribution::of(self.events, self.ahead_of_clock.clone())
    }

    /// How far events lie ahead of the other partitions, where there ever were any.
    pub(super) fn ahead_of_others(&self) -> Option<Distribution> {
        (self.beside_others > 0).then(|| Distribution::of(self.beside_others, self.ahead_of_others.clone()))
    }
}

/// Measures block by block, in the order of a run.
#[derive(Debug)]
pub(super) struct Meter {
    // By index in the source. Files that are read as one are measured as their first.
    partitions: Vec<Measured>,
    sources: Vec<u16>,
    pub(super) first: Option<i64>,
    pub(super) last: Option<i64>,
}

impl Meter {
    pub(super) fn new(infos: &[PartitionInfo]) -> Self {
        Self {
            partitions: vec![Measured::default(); infos.len()],
            sources: infos.iter().map(|info| info.resume.source.0).collect(),
            first: None,
            last: None,
        }
    }

    pub(super) fn partitions(&self) -> &[Measured] {
        &self.partitions
    }

    /// Takes in the times of some events of `partition`, without those that were not believed.
    pub(super) fn observe(
        &mut self,
        partition: usize,
        times: &[i64],
        rejected: &[(u32, Rejection)],
        wall: i64,
    ) {
        let others = self.median_of_others(partition);
        let Some(own) = self.partitions.get_mut(partition) else { return };
        let mut rejected = rejected.iter().peekable();
        for (index, &time) in times.iter().enumerate() {
            if rejected.next_if(|(at, _)| *at as usize == index).is_some() {
                continue;
            }
            own.events += 1;
            let latest = own.latest.unwrap_or(time);
            if time < latest {
                own.behind.push(latest.saturating_sub(time));
            } else {
                own.step_max_ms = own.step_max_ms.max(time.saturating_sub(latest));
                own.latest = Some(time);
            }
            if time > wall {
                own.ahead_of_clock.push(time.saturating_sub(wall));
            }
            if let Some(others) = others {
                own.beside_others += 1;
                if time > others {
                    own.ahead_of_others.push(time.saturating_sub(others));
                }
            }
            self.first = Some(self.first.map_or(time, |first| first.min(time)));
            self.last = Some(self.last.map_or(time, |last| last.max(time)));
        }
    }

    /// Notes that a partition was read to its end.
    pub(super) fn finish(&mut self, partition: usize) {
        if let Some(partition) = self.partitions.get_mut(partition) {
            partition.finished = true;
        }
    }

    /// The median of the latest event times of the others, as the bound against them has it: of two in the middle, the
    /// later.
    fn median_of_others(&self, own: usize) -> Option<i64> {
        let source = self.sources.get(own)?;
        let others = self
            .partitions
            .iter()
            .zip(&self.sources)
            .enumerate()
            .filter(|(index, (other, of))| *index != own && *of == source && !other.finished);
        let mut latest: Vec<i64> = others.filter_map(|(_, (other, _))| other.latest).collect();
        latest.sort_unstable();
        latest.get(latest.len() / 2).copied()
    }
}

/// An instant of the sample.
pub(super) fn instant(millis: Option<i64>) -> Option<EventTime> {
    millis.map(EventTime::from_millis)
}
