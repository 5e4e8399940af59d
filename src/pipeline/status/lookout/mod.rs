//! The stall and skew watch: what is wrong with how time passes in a run, with its cause.
//!
//! Pure: from one snapshot after another to warnings, each raised once and cleared once. Time is what the snapshots say.

mod causes;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use super::super::config::WatchConfig;
use super::snapshot::{Phase, Snapshot};
use crate::event_time::Span;

/// Cleared warnings that are remembered.
const REMEMBERED_MAX: usize = 100;
/// Partitions that are warned of at a time in each direction: the farthest.
const SKEWED_MAX: usize = 10;
/// How long a jump stands as a warning, in milliseconds.
const JUMP_STANDS_MS: u64 = 600_000;
/// Fewer late events than this say nothing about a rate.
const LATE_MIN: u64 = 100;
/// Late events are compared at most so often, in milliseconds.
const LATE_SAMPLE_MS: u64 = 1_000;

/// What a warning is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WarningKind {
    /// The watermark has not moved for longer than `watch.stalled`.
    WatermarkStalled,
    /// The latest event of a partition is further behind the others than `watch.skew`.
    PartitionBehind,
    /// The latest event of a partition is further ahead of the others than `watch.skew`.
    PartitionAhead,
    /// One event moved the watermark by more than `watch.jump`.
    WatermarkJumped,
    /// More events are late than `watch.late_share`.
    LateEvents,
    /// Events have waited for a checkpoint for longer than `watch.checkpoint_age`.
    CheckpointOverdue,
}

impl WarningKind {
    /// Every kind.
    pub const ALL: [Self; 6] = [
        Self::WatermarkStalled,
        Self::PartitionBehind,
        Self::PartitionAhead,
        Self::WatermarkJumped,
        Self::LateEvents,
        Self::CheckpointOverdue,
    ];

    /// Stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::WatermarkStalled => "watermark_stalled",
            Self::PartitionBehind => "partition_behind",
            Self::PartitionAhead => "partition_ahead",
            Self::WatermarkJumped => "watermark_jumped",
            Self::LateEvents => "late_events",
            Self::CheckpointOverdue => "checkpoint_overdue",
        }
    }
}

/// Something that is wrong, or was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// Its number in this run, from 1.
    pub id: u64,
    /// What it is about.
    pub kind: WarningKind,
    /// The partition or the window that it is about, when it is about one.
    pub subject: Option<String>,
    /// What is wrong, in one sentence.
    pub message: String,
    /// Why, as far as it can be told.
    pub cause: String,
    /// What to do about it.
    pub remedy: String,
    /// When it was raised, in milliseconds since 1970.
    pub raised_at_ms: i64,
    /// When it was cleared, once it was.
    pub cleared_at_ms: Option<i64>,
}

/// Warnings of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Warnings {
    /// Those that stand.
    pub active: Vec<Warning>,
    /// Those that were cleared, the last one first; the oldest are forgotten.
    pub cleared: Vec<Warning>,
    /// How many were raised, by kind.
    pub raised: BTreeMap<WarningKind, u64>,
}

/// What a look has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::pipeline) struct Changes {
    pub(in crate::pipeline) raised: Vec<Warning>,
    pub(in crate::pipeline) cleared: Vec<Warning>,
}

/// A condition as it is now. `raises` is false where it is within its bound again, but so little that a warning that
/// stands stays.
#[derive(Clone, Debug)]
struct Condition {
    kind: WarningKind,
    subject: Option<String>,
    raises: bool,
    message: String,
    cause: String,
    remedy: String,
}

/// Looks at one snapshot after another.
#[derive(Debug)]
pub(in crate::pipeline) struct Lookout {
    bounds: WatchConfig,
    warnings: Warnings,
    next_id: u64,
    jumps_seen: u64,
    jump_until_ms: Option<u64>,
    late: VecDeque<LateSample>,
}

/// Totals at one moment of the run.
#[derive(Clone, Debug)]
struct LateSample {
    elapsed_ms: u64,
    events: u64,
    // By operator.
    late: Vec<u64>,
}

impl Lookout {
    pub(in crate::pipeline) fn new(bounds: WatchConfig) -> Self {
        Self {
            bounds,
            warnings: Warnings::default(),
            next_id: 1,
            jumps_seen: 0,
            jump_until_ms: None,
            late: VecDeque::new(),
        }
    }

    /// All warnings so far.
    pub(in crate::pipeline) fn warnings(&self) -> &Warnings {
        &self.warnings
    }

    /// Takes in how the run stands, and says what is new.
    pub(in crate::pipeline) fn look(&mut self, snapshot: &Snapshot) -> Changes {
        let conditions = match snapshot.run.phase {
            Phase::Running | Phase::Finishing => self.conditions(snapshot),
            // It has not begun, or is over.
            _ => Vec::new(),
        };
        let now = snapshot.taken_at_ms;
        let cleared = self.clear(&conditions, now);
        let raised = self.raise(conditions, now);
        Changes { raised, cleared }
    }

    fn conditions(&mut self, snapshot: &Snapshot) -> Vec<Condition> {
        let mut conditions = Vec::new();
        conditions.extend(self.stalled(snapshot));
        conditions.extend(self.skewed(snapshot));
        conditions.extend(self.jumped(snapshot));
        conditions.extend(self.too_late(snapshot));
        conditions.extend(self.unsaved(snapshot));
        conditions
    }

    fn clear(&mut self, conditions: &[Condition], now_ms: i64) -> Vec<Warning> {
        let holds = |warning: &Warning| {
            let same = |condition: &Condition| {
                condition.kind == warning.kind && condition.subject == warning.subject
            };
            conditions.iter().any(same)
        };
        let active = std::mem::take(&mut self.warnings.active);
        let (stay, mut go): (Vec<Warning>, Vec<Warning>) = active.into_iter().partition(holds);
        self.warnings.active = stay;
        for warning in &mut go {
            warning.cleared_at_ms = Some(now_ms);
            self.warnings.cleared.insert(0, warning.clone());
        }
        self.warnings.cleared.truncate(REMEMBERED_MAX);
        go
    }

    fn raise(&mut self, conditions: Vec<Condition>, now_ms: i64) -> Vec<Warning> {
        let mut raised = Vec::new();
        for Condition { kind, subject, raises, message, cause, remedy } in conditions {
            let stands =
                self.warnings.active.iter().any(|known| known.kind == kind && known.subject == subject);
            if !raises || stands {
                continue;
            }
            let warning = Warning {
                id: self.next_id,
                kind,
                subject,
                message,
                cause,
                remedy,
                raised_at_ms: now_ms,
                cleared_at_ms: None,
            };
            self.next_id += 1;
            *self.warnings.raised.entry(kind).or_default() += 1;
            self.warnings.active.push(warning.clone());
            raised.push(warning);
        }
        raised
    }

    fn stalled(&self, snapshot: &Snapshot) -> Option<Condition> {
        let bound = millis(self.bounds.stalled?);
        let watermark = &snapshot.watermark;
        let is_due = watermark.expected && !watermark.ended && watermark.unmoved_ms >= bound;
        is_due.then(|| causes::stalled(snapshot))
    }

    fn skewed(&self, snapshot: &Snapshot) -> Vec<Condition> {
        let Some(bound) = self.bounds.skew.map(Span::as_millis) else { return Vec::new() };
        let keeps = bound - bound / 4;
        let mut leads: Vec<_> = snapshot
            .partitions
            .iter()
            .filter_map(|partition| Some((partition, partition.lead_ms?)))
            .filter(|(_, lead)| lead.saturating_abs() > keeps)
            .collect();
        leads.sort_by_key(|(_, lead)| std::cmp::Reverse(lead.saturating_abs()));
        let (ahead, behind): (Vec<_>, Vec<_>) = leads.into_iter().partition(|(_, lead)| *lead > 0);
        let farthest = ahead.into_iter().take(SKEWED_MAX).chain(behind.into_iter().take(SKEWED_MAX));
        farthest
            .map(|(partition, lead)| causes::skewed(partition, lead, lead.saturating_abs() > bound))
            .collect()
    }

    /// A jump is over at once; it stands for a while, so that somebody sees it.
    fn jumped(&mut self, snapshot: &Snapshot) -> Option<Condition> {
        let elapsed = snapshot.run.elapsed_ms;
        if snapshot.watermark.jumps > self.jumps_seen {
            self.jumps_seen = snapshot.watermark.jumps;
            self.jump_until_ms = Some(elapsed.saturating_add(JUMP_STANDS_MS));
        }
        self.jump_until_ms.filter(|until| elapsed < *until)?;
        snapshot.watermark.last_jump.as_ref().map(causes::jumped)
    }

    fn too_late(&mut self, snapshot: &Snapshot) -> Vec<Condition> {
        let Some(bound) = self.bounds.late_share else { return Vec::new() };
        let now = LateSample {
            elapsed_ms: snapshot.run.elapsed_ms,
            events: snapshot.input.total.events,
            late: snapshot.operators.iter().map(|operator| operator.late).collect(),
        };
        let over = millis(self.bounds.late_over);
        // One sample of at least that age stays, to compare with.
        while self.late.get(1).is_some_and(|next| now.elapsed_ms.saturating_sub(next.elapsed_ms) >= over) {
            self.late.pop_front();
        }
        let sampled = self.late.back().map(|last| now.elapsed_ms.saturating_sub(last.elapsed_ms));
        if sampled.is_none_or(|since| since >= LATE_SAMPLE_MS.min(over)) {
            self.late.push_back(now.clone());
        }
        let Some(base) = self.late.front() else { return Vec::new() };
        let events = now.events.saturating_sub(base.events);
        let operators = snapshot.operators.iter().zip(&now.late).zip(&base.late);
        let judged = operators.filter_map(|((operator, &late), &before)| {
            let late = late.saturating_sub(before);
            let share = late as f64 / events.max(1) as f64;
            let keeps = late > 0 && share > bound * 0.75;
            keeps.then(|| {
                let over_ms = now.elapsed_ms.saturating_sub(base.elapsed_ms);
                let raises = late >= LATE_MIN && share > bound;
                causes::late(snapshot, operator, causes::Late { late, events, over_ms }, raises)
            })
        });
        judged.collect()
    }

    fn unsaved(&self, snapshot: &Snapshot) -> Option<Condition> {
        let bound = millis(self.bounds.checkpoint_age?);
        (snapshot.checkpoints.unsaved_ms >= bound).then(|| causes::unsaved(snapshot))
    }
}

fn millis(span: Span) -> u64 {
    span.as_millis().unsigned_abs()
}
