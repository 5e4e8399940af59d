//! Takes a snapshot: from what the task knows at this moment, and what the monitor has noted, to plain data.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::snapshot::{
    CheckpointStatus, HolderStatus, InputCounts, InputStatus, JumpStatus, Moment, OperatorKind,
    OperatorStatus, OutputStatus, PARTITIONS_MAX, PartitionState, PartitionStatus, QueueStatus, Snapshot,
    SourceStatus, StateStatus, WatermarkStatus,
};
use super::{Facts, Monitor, When, millis, of};
use crate::event_time::{EventTime, Span, Watermark};
use crate::operator::{PartitionProgress, SourceSpec, Strategy};
use crate::pipeline::config::SourceConfig;
use crate::pipeline::explain::{Standing, standing};
use crate::pipeline::outputs::Counters;
use crate::pipeline::reader::BLOCKS_AHEAD;
use crate::pipeline::report::Uploads;
use crate::pipeline::task::Reading;

/// Time over which rates are taken.
const RATE_OVER: Duration = Duration::from_secs(10);

impl Monitor {
    /// How the run stands now.
    pub(super) fn take(&mut self, facts: &Facts<'_>, now: When) -> Snapshot {
        let progress: Vec<PartitionProgress> = facts.store.tracker().partitions().collect();
        self.run.elapsed_ms = millis(now.monotonic.saturating_sub(self.started));
        self.note_partitions(facts, &progress, now);
        let standing = standing(facts.store.tracker(), self.config.watermark.policy, &self.names, |id| {
            self.followers.contains(&id)
        });
        let watermark = self.watermark(facts, &standing, &progress, now);
        let partitions = self.partitions(facts, &progress, watermark.holder.as_ref());
        let listed = partitions.len();
        Snapshot {
            taken_at_ms: now.wall_ms,
            run: self.run.clone(),
            watermark,
            sources: self.sources(facts),
            partitions,
            partitions_left_out: facts.readings.len().saturating_sub(listed) as u64,
            operators: self.operators(facts),
            input: self.input(facts, now),
            checkpoints: self.checkpoints(facts, now),
            state: self.state(facts),
            queues: QueueStatus {
                blocks_ahead: facts.blocks_ahead as u64,
                blocks_ahead_max: BLOCKS_AHEAD as u64,
                state_writes: facts.store.writes_waiting(),
            },
            outputs: self.output(facts, now),
            repository: facts.store.uploads().map(Uploads::from),
        }
    }

    fn note_partitions(&mut self, facts: &Facts<'_>, progress: &[PartitionProgress], now: When) {
        for (seen, reading) in self.seen.iter_mut().zip(facts.readings) {
            let watermark = of(progress, reading.id).watermark;
            if watermark != seen.watermark {
                (seen.watermark, seen.moved_at_ms) = (watermark, now.wall_ms);
            }
            if reading.position != seen.now {
                (seen.now, seen.last_record_at_ms) = (reading.position, Some(now.wall_ms));
            }
        }
    }

    fn watermark(
        &mut self,
        facts: &Facts<'_>,
        standing: &Standing,
        progress: &[PartitionProgress],
        now: When,
    ) -> WatermarkStatus {
        let current = facts.store.watermark();
        if self.moved.0 != current {
            self.moved = (current, now);
        }
        let max_time = progress.iter().filter_map(|partition| partition.max_time).max();
        let behind = |to: i64| current.instant().map(|at| to.saturating_sub(at.as_millis()));
        self.note_jumps(facts, now);
        WatermarkStatus {
            combined: current.into(),
            ended: current == Watermark::End,
            expected: facts.store.sources().any(|(spec, _)| spec.strategy != Strategy::None),
            moved_at_ms: self.moved.1.wall_ms,
            unmoved_ms: millis(now.monotonic.saturating_sub(self.moved.1.monotonic)),
            max_time: max_time.map(Moment::from),
            event_lag_ms: max_time.and_then(|max| behind(max.as_millis())),
            clock_lag_ms: behind(now.wall_ms),
            holder: self.holder(facts, standing, now),
            jumps: self.jumps,
            last_jump: self.last_jump.clone(),
        }
    }

    fn note_jumps(&mut self, facts: &Facts<'_>, now: When) {
        let (jumps, last) = facts.store.jumps();
        let Some((partition, jump)) = last.filter(|_| jumps != self.jumps) else { return };
        self.jumps = jumps;
        self.last_jump = Some(JumpStatus {
            partition: partition.to_owned(),
            from: jump.from.into(),
            to: jump.to.into(),
            length_ms: jump.length().as_millis(),
            seen_at_ms: now.wall_ms,
        });
    }

    fn holder(&mut self, facts: &Facts<'_>, standing: &Standing, now: When) -> Option<HolderStatus> {
        let Some(holder) = &standing.slowest else {
            self.holder = None;
            return None;
        };
        let since = match &self.holder {
            Some((name, since)) if *name == holder.partition => *since,
            _ => now,
        };
        self.holder = Some((holder.partition.clone(), since));
        let index = facts.readings.iter().position(|reading| reading.name == holder.partition);
        let source = self.config.sources.iter().find(|source| source.name == holder.source);
        Some(HolderStatus {
            partition: holder.partition.clone(),
            source: holder.source.clone(),
            since_at_ms: since.wall_ms,
            for_ms: millis(now.monotonic.saturating_sub(since.monotonic)),
            watermark: holder.watermark.into(),
            max_time: holder.max_time.map(Moment::from),
            delay_ms: holder.delay.map(Span::as_millis),
            holds_back: holder.holds_back,
            last_record_at_ms: index.and_then(|index| self.seen.get(index)?.last_record_at_ms),
            idle_timeout_ms: source.and_then(idle_timeout),
        })
    }

    fn sources(&self, facts: &Facts<'_>) -> Vec<SourceStatus> {
        let sources = self.config.sources.iter().zip(facts.store.sources()).enumerate();
        let status =
            |(index, (source, (spec, watermark))): (usize, (&SourceConfig, (&SourceSpec, Watermark)))| {
                let own = |reading: &&Reading| usize::from(reading.source.0) == index;
                SourceStatus {
                    name: source.name.clone(),
                    live: source.is_live(),
                    watermark: watermark.into(),
                    delay_ms: spec.strategy.delay().map(Span::as_millis),
                    idle_timeout_ms: idle_timeout(source),
                    partitions: facts.readings.iter().filter(own).count() as u64,
                }
            };
        sources.map(status).collect()
    }

    fn partitions(
        &self,
        facts: &Facts<'_>,
        progress: &[PartitionProgress],
        holder: Option<&HolderStatus>,
    ) -> Vec<PartitionStatus> {
        let counting = facts.readings.iter().filter(|reading| {
            let known = of(progress, reading.id);
            reading.leader == reading.id && !known.idle && !known.finished
        });
        let mut latest: Vec<EventTime> =
            counting.filter_map(|reading| of(progress, reading.id).max_time).collect();
        latest.sort_unstable();
        let (mut rest, finished): (Vec<usize>, Vec<usize>) =
            (0..facts.readings.len()).partition(|&index| !facts.readings[index].finished);
        if facts.readings.len() <= PARTITIONS_MAX {
            rest = (0..facts.readings.len()).collect();
        } else {
            rest.extend(finished);
        }
        let told = rest.into_iter().take(PARTITIONS_MAX);
        told.map(|index| self.partition(facts, index, progress, &latest, holder)).collect()
    }

    fn partition(
        &self,
        facts: &Facts<'_>,
        index: usize,
        progress: &[PartitionProgress],
        latest: &[EventTime],
        holder: Option<&HolderStatus>,
    ) -> PartitionStatus {
        let reading = &facts.readings[index];
        let known = of(progress, reading.id);
        let follows = (reading.leader != reading.id)
            .then(|| self.names.get(reading.leader.0 as usize).cloned().unwrap_or_default());
        let state = match known {
            _ if reading.finished => PartitionState::Finished,
            _ if follows.is_some() => PartitionState::Follows,
            known if known.finished => PartitionState::Finished,
            known if known.idle => PartitionState::Idle,
            known if known.max_time.is_none() => PartitionState::Silent,
            _ => PartitionState::Active,
        };
        let shed = facts.outputs.shed(&reading.name);
        let source = self.config.sources.get(usize::from(reading.source.0));
        let seen = self.seen.get(index);
        let first = seen.map_or(reading.position, |seen| seen.first);
        PartitionStatus {
            name: reading.name.clone(),
            source: source.map(|source| source.name.clone()).unwrap_or_default(),
            state,
            follows,
            holds_back: holder.is_some_and(|holder| holder.holds_back && holder.partition == reading.name),
            watermark: known.watermark.into(),
            watermark_moved_at_ms: seen.map_or(0, |seen| seen.moved_at_ms),
            max_time: known.max_time.map(Moment::from),
            lead_ms: known
                .max_time
                .filter(|_| state == PartitionState::Active)
                .and_then(|max| lead(latest, max)),
            records: reading.position.records,
            records_this_run: reading.position.records.saturating_sub(first.records),
            bytes: reading.position.bytes,
            bytes_this_run: reading.position.bytes.saturating_sub(first.bytes),
            last_record_at_ms: seen.and_then(|seen| seen.last_record_at_ms),
            read_to_end: reading.finished,
            late: shed.late,
            rejected: shed.rejected,
        }
    }

    /// The windowed aggregations, then the joins.
    fn operators(&self, facts: &Facts<'_>) -> Vec<OperatorStatus> {
        let (store, config) = (facts.store, &self.config);
        let windows = config.windows.iter().enumerate().zip(store.operator_watermarks());
        let windows = windows.filter_map(|((index, window), watermark)| {
            let open = store.open_summary(index)?;
            Some(OperatorStatus {
                kind: OperatorKind::Window,
                windows: window.windows.to_string(),
                key_fields: window.key.iter().map(|key| key.field.clone()).collect(),
                input: window.input.clone(),
                watermark: watermark.into(),
                open_windows: open.windows as u64,
                open_panes: open.panes as u64,
                due_windows: open.due as u64,
                firing: store.is_operator_firing(index),
                next_end: open.next_end.map(Moment::from),
                memory_bytes: store.operator_bytes(index) as u64,
                ..self.emitted(facts, index, &window.name)
            })
        });
        let joins = config.joins.iter().zip(store.joins_held()).zip(config.windows.len()..);
        let joins = joins.map(|((join, held), index)| OperatorStatus {
            kind: OperatorKind::Join,
            windows: format!("{} with {}", join.left, join.right),
            key_fields: join.key.iter().map(|key| key.field.clone()).collect(),
            watermark: held.watermark.into(),
            open_panes: held.events as u64,
            memory_bytes: held.memory_bytes as u64,
            ..self.emitted(facts, index, &join.name)
        });
        windows.chain(joins).collect()
    }

    /// What of an operator is counted; the rest is that of one which holds nothing.
    fn emitted(&self, facts: &Facts<'_>, index: usize, name: &str) -> OperatorStatus {
        let emitted = facts.outputs.emitted(index);
        let rows = facts.outputs.rows_of(index);
        let late = facts.outputs.counters.late.get(name).copied().unwrap_or(0);
        OperatorStatus {
            name: name.to_owned(),
            kind: OperatorKind::Window,
            windows: String::new(),
            key_fields: Vec::new(),
            input: None,
            watermark: Moment::default(),
            open_windows: 0,
            open_panes: 0,
            due_windows: 0,
            firing: false,
            next_end: None,
            fired: emitted.firings,
            rows,
            rows_this_run: rows.saturating_sub(self.rows_before.get(index).copied().unwrap_or(0)),
            late,
            late_this_run: late.saturating_sub(self.before.late.get(name).copied().unwrap_or(0)),
            late_by_ms_max: emitted.late_by_ms_max,
            memory_bytes: 0,
        }
    }

    fn input(&mut self, facts: &Facts<'_>, now: When) -> InputStatus {
        let counters = &facts.outputs.counters;
        self.rates.push_back((now.monotonic, counters.events, counters.input_bytes));
        while self.rates.get(1).is_some_and(|(at, ..)| now.monotonic.saturating_sub(*at) >= RATE_OVER) {
            self.rates.pop_front();
        }
        let per_second = |count: u64, before: u64, since: Duration| match since.as_secs_f64() {
            seconds if seconds > 0.0 => count.saturating_sub(before) as f64 / seconds,
            _ => 0.0,
        };
        let (since, events, bytes) = self.rates.front().copied().unwrap_or_default();
        let since = now.monotonic.saturating_sub(since);
        InputStatus {
            total: counts(counters, &Counters::default()),
            this_run: counts(counters, &self.before),
            events_per_second: per_second(counters.events, events, since),
            bytes_per_second: per_second(counters.input_bytes, bytes, since),
            late_is_kept: self.config.late.is_some(),
            rejected_is_kept: self.config.dead_letter.is_some(),
        }
    }

    fn checkpoints(&mut self, facts: &Facts<'_>, now: When) -> CheckpointStatus {
        let since = |at: Duration| now.monotonic.saturating_sub(at);
        self.unsaved = self.unsaved.or(Some(now.monotonic)).filter(|_| facts.changed);
        let restored = self.restored_age.map(|age| age + since(self.started));
        CheckpointStatus {
            age_ms: self.completed.map(since).or(restored).map(millis),
            unsaved_ms: self.saving.or(self.unsaved).map_or(0, |at| millis(since(at))),
            in_flight_ms: self.in_flight.map(|at| millis(since(at))),
            ..self.checkpoints.clone()
        }
    }

    fn state(&self, facts: &Facts<'_>) -> StateStatus {
        let stats = &self.state;
        StateStatus {
            disk_bytes: stats.live_file_bytes,
            disk_total_bytes: stats.total_file_bytes,
            entries_estimate: stats.entries_estimate,
            resident_panes: facts.store.resident_panes() as u64,
            hot_bytes: facts.store.hot_bytes() as u64,
            cache_bytes: stats.memory.cache_bytes,
            write_buffer_bytes: stats.memory.write_buffer_bytes,
            pinned_bytes: stats.memory.pinned_bytes,
            budget_bytes: self.config.state.memory_bytes,
            level0_files_max: stats.level0_files_max,
            compaction_pending_bytes: stats.compaction_pending_bytes,
            write_stopped: stats.write_stopped,
            delayed_write_rate: stats.delayed_write_rate,
            write_stalls: facts.held_up.times,
            write_stalled_ms: millis(facts.held_up.total),
        }
    }

    fn output(&mut self, facts: &Facts<'_>, now: When) -> OutputStatus {
        let (waiting_epochs, waiting_rows) = facts.outputs.waiting();
        self.waiting = self.waiting.or(Some(now.monotonic)).filter(|_| waiting_epochs > 0);
        OutputStatus {
            waiting_epochs,
            waiting_rows,
            waiting_ms: self.waiting.map(|at| millis(now.monotonic.saturating_sub(at))),
            ..self.output.clone()
        }
    }
}

/// What was counted since `before`.
fn counts(now: &Counters, before: &Counters) -> InputCounts {
    let since = |now: &BTreeMap<String, u64>, before: &BTreeMap<String, u64>| {
        let grown = |(name, count): (&String, &u64)| {
            (name.clone(), count.saturating_sub(before.get(name).copied().unwrap_or(0)))
        };
        now.iter().map(grown).collect()
    };
    InputCounts {
        events: now.events.saturating_sub(before.events),
        bytes: now.input_bytes.saturating_sub(before.input_bytes),
        filtered: now.filtered.saturating_sub(before.filtered),
        rejected: since(&now.rejected, &before.rejected),
        duplicates: since(&now.duplicates, &before.duplicates),
    }
}

/// How far `own` is ahead of the median of the others; `latest` holds all, sorted.
fn lead(latest: &[EventTime], own: EventTime) -> Option<i64> {
    let others = latest.len().checked_sub(1).filter(|others| *others > 0)?;
    let middle = (others - 1) / 2;
    let skip = usize::from(latest.partition_point(|time| *time < own) <= middle);
    let median = latest.get(middle + skip)?;
    Some(own.as_millis().saturating_sub(median.as_millis()))
}

/// Only standard input can be silent.
fn idle_timeout(source: &SourceConfig) -> Option<u64> {
    let timeout = source.watermark.idle_timeout.filter(|_| source.is_live())?;
    Some(timeout.as_millis().unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lead_of_a_partition_is_over_the_median_of_the_others() {
        let latest = [10, 20, 30, 100].map(EventTime::from_millis);
        let leads = latest.map(|own| lead(&latest, own));
        assert_eq!(leads, [Some(-20), Some(-10), Some(10), Some(80)]);
        assert_eq!(lead(&latest[..2], latest[0]), Some(-10));
        assert_eq!(lead(&latest[..1], latest[0]), None, "there is no other");
    }
}
