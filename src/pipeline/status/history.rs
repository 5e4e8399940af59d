//! How a run stood in the past: two rings of samples, one fine and short, one coarse and long, by column for plots.
//!
//! Both are bounded, whatever the run: samples by their number, partitions by [`PARTITIONS_MAX`].

use std::collections::VecDeque;
use std::sync::Arc;

use serde::Serialize;

use super::snapshot::{CheckpointFigures, Snapshot};

/// Partitions whose watermarks are sampled: the first ones of the snapshot.
const PARTITIONS_MAX: usize = 64;
/// Checkpoints remembered.
const CHECKPOINTS_MAX: usize = 1_000;
/// Time between two samples and how many there are: ten minutes, and two days.
const FINE: (i64, usize) = (1_000, 600);
const COARSE: (i64, usize) = (60_000, 2_880);

/// Which of the two rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resolution {
    /// A sample a second, for ten minutes.
    #[default]
    Seconds,
    /// A sample a minute, for two days.
    Minutes,
}

/// Samples of a run, by column: the entry at one index of each list is of the same moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HistoryReport {
    /// Time between two samples, in milliseconds.
    pub resolution_ms: i64,
    /// Most samples kept.
    pub samples_max: usize,
    /// When the samples were taken, in milliseconds since 1970.
    pub at_ms: Vec<i64>,
    /// The watermark in milliseconds since 1970; none before the first and after the end of the input.
    pub watermark_ms: Vec<Option<i64>>,
    /// Latest event time seen.
    pub max_time_ms: Vec<Option<i64>>,
    /// Events of the lineage.
    pub events: Vec<u64>,
    /// Decompressed bytes of input of the lineage.
    pub input_bytes: Vec<u64>,
    /// Rejected records of the lineage.
    pub rejected: Vec<u64>,
    /// Bytes of state on disk.
    pub disk_bytes: Vec<u64>,
    /// Bytes of panes and remembered events in memory.
    pub hot_bytes: Vec<u64>,
    /// Age of the newest checkpoint in milliseconds.
    pub checkpoint_age_ms: Vec<Option<u64>>,
    /// By partition.
    pub partitions: Vec<PartitionHistory>,
    /// By window or join.
    pub operators: Vec<OperatorHistory>,
    /// Checkpoints of the run, the oldest first.
    pub checkpoints: Vec<CheckpointFigures>,
}

/// Samples of a partition.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PartitionHistory {
    /// Its name.
    pub name: String,
    /// Its watermark in milliseconds since 1970.
    pub watermark_ms: Vec<Option<i64>>,
}

/// Samples of a window or join.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OperatorHistory {
    /// Its name.
    pub name: String,
    /// Open windows.
    pub open_windows: Vec<u64>,
    /// Panes in memory.
    pub open_panes: Vec<u64>,
    /// Times that panes of a window were emitted together, in this run.
    pub fired: Vec<u64>,
    /// Rows of the lineage.
    pub rows: Vec<u64>,
    /// Late events of the lineage.
    pub late: Vec<u64>,
}

#[derive(Debug)]
struct Sample {
    at_ms: i64,
    watermark_ms: Option<i64>,
    max_time_ms: Option<i64>,
    events: u64,
    input_bytes: u64,
    rejected: u64,
    disk_bytes: u64,
    hot_bytes: u64,
    checkpoint_age_ms: Option<u64>,
    // By index of the names.
    partitions: Box<[Option<i64>]>,
    operators: Box<[OperatorSample]>,
}

#[derive(Clone, Copy, Debug)]
struct OperatorSample {
    open_windows: u64,
    open_panes: u64,
    fired: u64,
    rows: u64,
    late: u64,
}

#[derive(Clone, Debug)]
struct Ring {
    resolution_ms: i64,
    samples_max: usize,
    samples: VecDeque<Arc<Sample>>,
}

impl Ring {
    fn new((resolution_ms, samples_max): (i64, usize)) -> Self {
        Self { resolution_ms, samples_max, samples: VecDeque::new() }
    }

    fn is_due(&self, at_ms: i64) -> bool {
        // A clock that was set back starts anew, rather than not at all.
        self.samples
            .back()
            .is_none_or(|last| at_ms < last.at_ms || at_ms.saturating_sub(last.at_ms) >= self.resolution_ms)
    }

    fn push(&mut self, sample: Arc<Sample>) {
        if self.samples.len() == self.samples_max {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }
}

/// The past of a run. A clone shares the samples.
#[derive(Clone, Debug)]
pub(super) struct History {
    fine: Ring,
    coarse: Ring,
    partitions: Vec<String>,
    operators: Vec<String>,
    checkpoints: VecDeque<CheckpointFigures>,
}

impl Default for History {
    fn default() -> Self {
        Self {
            fine: Ring::new(FINE),
            coarse: Ring::new(COARSE),
            partitions: Vec::new(),
            operators: Vec::new(),
            checkpoints: VecDeque::new(),
        }
    }
}

impl History {
    /// Takes a sample where one is due.
    pub(super) fn note(&mut self, snapshot: &Snapshot) {
        let due = [&self.fine, &self.coarse].map(|ring| ring.is_due(snapshot.taken_at_ms));
        if due == [false, false] || snapshot.operators.is_empty() {
            return;
        }
        let sample = Arc::new(self.sample(snapshot));
        if due[1] {
            self.coarse.push(Arc::clone(&sample));
        }
        if due[0] {
            self.fine.push(sample);
        }
    }

    pub(super) fn note_checkpoint(&mut self, figures: &CheckpointFigures) {
        if self.checkpoints.len() == CHECKPOINTS_MAX {
            self.checkpoints.pop_front();
        }
        self.checkpoints.push_back(figures.clone());
    }

    fn sample(&mut self, snapshot: &Snapshot) -> Sample {
        for partition in snapshot.partitions.iter().take(PARTITIONS_MAX) {
            if self.partitions.len() < PARTITIONS_MAX && !self.partitions.contains(&partition.name) {
                self.partitions.push(partition.name.clone());
            }
        }
        self.operators = snapshot.operators.iter().map(|operator| operator.name.clone()).collect();
        let watermark = |name: &String| {
            let partition = snapshot.partitions.iter().find(|partition| partition.name == *name)?;
            partition.watermark.ms
        };
        let operators = snapshot.operators.iter().map(|operator| OperatorSample {
            open_windows: operator.open_windows,
            open_panes: operator.open_panes,
            fired: operator.fired,
            rows: operator.rows,
            late: operator.late,
        });
        Sample {
            at_ms: snapshot.taken_at_ms,
            watermark_ms: snapshot.watermark.combined.ms,
            max_time_ms: snapshot.watermark.max_time.as_ref().and_then(|max| max.ms),
            events: snapshot.input.total.events,
            input_bytes: snapshot.input.total.bytes,
            rejected: snapshot.input.total.rejected.values().sum(),
            disk_bytes: snapshot.state.disk_bytes,
            hot_bytes: snapshot.state.hot_bytes,
            checkpoint_age_ms: snapshot.checkpoints.age_ms,
            partitions: self.partitions.iter().map(watermark).collect(),
            operators: operators.collect(),
        }
    }

    /// Everything of one ring.
    pub(super) fn report(&self, resolution: Resolution) -> HistoryReport {
        let ring = match resolution {
            Resolution::Seconds => &self.fine,
            Resolution::Minutes => &self.coarse,
        };
        let samples = &ring.samples;
        let partition = |(index, name): (usize, &String)| PartitionHistory {
            name: name.clone(),
            watermark_ms: column(samples, |sample| sample.partitions.get(index).copied().flatten()),
        };
        let operator = |(index, name): (usize, &String)| {
            let of = |figure: fn(&OperatorSample) -> u64| {
                column(samples, |sample| sample.operators.get(index).map_or(0, figure))
            };
            OperatorHistory {
                name: name.clone(),
                open_windows: of(|sample| sample.open_windows),
                open_panes: of(|sample| sample.open_panes),
                fired: of(|sample| sample.fired),
                rows: of(|sample| sample.rows),
                late: of(|sample| sample.late),
            }
        };
        HistoryReport {
            resolution_ms: ring.resolution_ms,
            samples_max: ring.samples_max,
            at_ms: column(samples, |sample| sample.at_ms),
            watermark_ms: column(samples, |sample| sample.watermark_ms),
            max_time_ms: column(samples, |sample| sample.max_time_ms),
            events: column(samples, |sample| sample.events),
            input_bytes: column(samples, |sample| sample.input_bytes),
            rejected: column(samples, |sample| sample.rejected),
            disk_bytes: column(samples, |sample| sample.disk_bytes),
            hot_bytes: column(samples, |sample| sample.hot_bytes),
            checkpoint_age_ms: column(samples, |sample| sample.checkpoint_age_ms),
            partitions: self.partitions.iter().enumerate().map(partition).collect(),
            operators: self.operators.iter().enumerate().map(operator).collect(),
            checkpoints: self.checkpoints.iter().cloned().collect(),
        }
    }
}

fn column<T>(samples: &VecDeque<Arc<Sample>>, of: impl Fn(&Sample) -> T) -> Vec<T> {
    samples.iter().map(|sample| of(sample)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::running;
    use super::*;

    #[test]
    fn samples_come_once_a_second_and_once_a_minute_and_are_bounded() {
        let mut history = History::default();
        for quarter in 0..4 * 700 {
            let mut snapshot = running();
            snapshot.taken_at_ms = quarter * 250;
            snapshot.input.total.events = quarter as u64;
            history.note(&snapshot);
        }
        let fine = history.report(Resolution::Seconds);
        assert_eq!(
            (fine.at_ms.len(), fine.at_ms.first(), fine.at_ms.last()),
            (600, Some(&100_000), Some(&699_000))
        );
        assert_eq!(fine.events.last(), Some(&2_796));
        let coarse = history.report(Resolution::Minutes);
        assert_eq!(coarse.at_ms, (0..12).map(|minute| minute * 60_000).collect::<Vec<_>>());
    }

    #[test]
    fn columns_have_one_entry_for_each_sample_also_of_partitions() {
        let mut history = History::default();
        let mut snapshot = running();
        history.note(&snapshot);
        snapshot.taken_at_ms += 1_000;
        snapshot.partitions[0].watermark.ms = Some(7);
        history.note(&snapshot);
        let report = history.report(Resolution::Seconds);
        assert_eq!(report.partitions[0].watermark_ms, [running().partitions[0].watermark.ms, Some(7)]);
        assert_eq!(report.operators[0].open_panes.len(), 2);
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_end_the_history() {
        let mut history = History::default();
        let mut snapshot = running();
        history.note(&snapshot);
        snapshot.taken_at_ms -= 3_600_000;
        history.note(&snapshot);
        assert_eq!(history.report(Resolution::Seconds).at_ms.len(), 2);
    }
}
