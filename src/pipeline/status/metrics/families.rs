//! The metrics themselves: name, help and value of each.

use super::super::lookout::{WarningKind, Warnings};
use super::super::snapshot::{Moment, OperatorStatus, PartitionState, PartitionStatus, Phase, Snapshot};
use super::Kind::{Counter, Gauge};
use super::{Exposition, Kind, PARTITIONS_MAX};

pub(super) fn write(page: &mut Exposition<'_>, snapshot: &Snapshot, warnings: &Warnings, now_ms: i64) {
    let since_taken = now_ms.saturating_sub(snapshot.taken_at_ms).max(0);
    run(page, snapshot, since_taken);
    watermark(page, snapshot, since_taken);
    sources(page, snapshot);
    partitions(page, snapshot);
    input(page, snapshot);
    operators(page, snapshot);
    checkpoints(page, snapshot, since_taken);
    state(page, snapshot);
    outputs(page, snapshot, since_taken);
    repository(page, snapshot);
    watch(page, warnings);
}

fn run(page: &mut Exposition<'_>, snapshot: &Snapshot, since_taken: i64) {
    let run = &snapshot.run;
    let name = "floodmark_build_info";
    page.family(Gauge, name, "Always 1; the label tells the version of Floodmark.");
    page.sample(Gauge, name, &[("version", run.version)], 1.0);
    let phases =
        [Phase::Starting, Phase::Running, Phase::Finishing, Phase::Completed, Phase::Stopped, Phase::Failed];
    let phases = phases.iter().map(|phase| (phase.name(), flag(*phase == run.phase)));
    page.many(Gauge, "floodmark_run_phase", "1 for the phase that the run is in, else 0.", "phase", phases);
    page.one(
        Gauge,
        "floodmark_run_start_timestamp_seconds",
        "When the run started, since 1970.",
        seconds(run.started_at_ms),
    );
    page.one(
        Gauge,
        "floodmark_snapshot_age_seconds",
        "Time since the task last showed how it stands; it does so four times a second.",
        seconds(since_taken),
    );
}

fn watermark(page: &mut Exposition<'_>, snapshot: &Snapshot, since_taken: i64) {
    let watermark = &snapshot.watermark;
    page.one(
        Gauge,
        "floodmark_watermark_timestamp_seconds",
        "The combined watermark, since 1970; absent before the first and after the end of the input.",
        moment(&watermark.combined),
    );
    page.one(
        Gauge,
        "floodmark_watermark_ended",
        "1 once the input has ended and everything is closed, else 0.",
        flag(watermark.ended),
    );
    let clock_lag = watermark.clock_lag_ms.map(|lag| seconds(lag.saturating_add(since_taken)));
    page.one(
        Gauge,
        "floodmark_watermark_lag_seconds",
        "How far the watermark is behind the wall clock.",
        clock_lag,
    );
    page.one(
        Gauge,
        "floodmark_watermark_event_lag_seconds",
        "How far the watermark is behind the latest event time seen.",
        watermark.event_lag_ms.map(seconds),
    );
    page.one(
        Gauge,
        "floodmark_watermark_unmoved_seconds",
        "How long the watermark has not moved; 0 once it has ended.",
        if watermark.ended { 0.0 } else { grown(watermark.unmoved_ms, since_taken) },
    );
    page.one(
        Counter,
        "floodmark_watermark_jumps",
        "Events that moved the watermark further than events should.",
        count(watermark.jumps),
    );
    page.one(
        Gauge,
        "floodmark_event_time_max_timestamp_seconds",
        "The latest event time seen in any partition, since 1970.",
        watermark.max_time.as_ref().and_then(moment),
    );
}

fn sources(page: &mut Exposition<'_>, snapshot: &Snapshot) {
    let marks = snapshot.sources.iter();
    page.many(
        Gauge,
        "floodmark_source_watermark_timestamp_seconds",
        "The watermark of a source, since 1970.",
        "source",
        marks.filter_map(|source| Some((source.name.as_str(), moment(&source.watermark)?))),
    );
}

/// A figure of each partition.
type OfPartition = fn(&PartitionStatus) -> Option<f64>;

fn partitions(page: &mut Exposition<'_>, snapshot: &Snapshot) {
    let states = [
        PartitionState::Silent,
        PartitionState::Active,
        PartitionState::Idle,
        PartitionState::Finished,
        PartitionState::Follows,
    ];
    let in_state = |state| snapshot.partitions.iter().filter(|partition| partition.state == state).count();
    let counts = states.iter().map(|state| (state.name(), count(in_state(*state) as u64)));
    page.many(Gauge, "floodmark_partitions", "Partitions by what they do.", "state", counts);
    let left_out = snapshot.partitions.len().saturating_sub(PARTITIONS_MAX) as u64;
    page.one(
        Gauge,
        "floodmark_partitions_left_out",
        "Partitions without metrics of their own, as there are too many.",
        count(left_out + snapshot.partitions_left_out),
    );
    let figures: [(Kind, &str, &str, OfPartition); 9] = [
        (
            Gauge,
            "floodmark_partition_watermark_timestamp_seconds",
            "The watermark of a partition, since 1970.",
            |partition| moment(&partition.watermark),
        ),
        (
            Gauge,
            "floodmark_partition_event_time_max_timestamp_seconds",
            "The latest event time seen in a partition, since 1970.",
            |partition| partition.max_time.as_ref().and_then(moment),
        ),
        (
            Gauge,
            "floodmark_partition_lead_seconds",
            "How far the latest event of a partition is ahead of the median of the others; negative when behind.",
            |partition| partition.lead_ms.map(seconds),
        ),
        (
            Gauge,
            "floodmark_partition_holds_watermark",
            "1 for the partition that holds the watermark back, else 0.",
            |partition| Some(flag(partition.holds_back)),
        ),
        (
            Gauge,
            "floodmark_partition_idle",
            "1 for a partition that is idle and holds nothing back, else 0.",
            |partition| Some(flag(partition.state == PartitionState::Idle)),
        ),
        (Counter, "floodmark_partition_records", "Records read of a partition.", |partition| {
            Some(count(partition.records_this_run))
        }),
        (Counter, "floodmark_partition_read_bytes", "Decompressed bytes read of a partition.", |partition| {
            Some(count(partition.bytes_this_run))
        }),
        (
            Counter,
            "floodmark_partition_late_events",
            "Late events of a partition, once for each window that they were late for.",
            |partition| Some(count(partition.late)),
        ),
        (
            Counter,
            "floodmark_partition_rejected_records",
            "Records of a partition that could not become events.",
            |partition| Some(count(partition.rejected)),
        ),
    ];
    for (kind, name, help, figure) in figures {
        page.family(kind, name, help);
        for partition in snapshot.partitions.iter().take(PARTITIONS_MAX) {
            let labels = [("source", partition.source.as_str()), ("partition", partition.name.as_str())];
            if let Some(value) = figure(partition) {
                page.sample(kind, name, &labels, value);
            }
        }
    }
}

fn input(page: &mut Exposition<'_>, snapshot: &Snapshot) {
    let counts = &snapshot.input.this_run;
    page.one(Counter, "floodmark_input_events", "Records that became events.", count(counts.events));
    page.one(Counter, "floodmark_input_bytes", "Decompressed bytes read.", count(counts.bytes));
    page.one(
        Counter,
        "floodmark_input_filtered_records",
        "Records that filters passed over.",
        count(counts.filtered),
    );
    page.many(
        Counter,
        "floodmark_rejected_records",
        "Records that could not become events, by reason; they go to the dead-letter output where there is one.",
        "reason",
        counts.rejected.iter().map(|(reason, rejected)| (reason.as_str(), count(*rejected))),
    );
    page.many(
        Counter,
        "floodmark_duplicate_events",
        "Events that were dropped as repetitions, by source.",
        "source",
        counts.duplicates.iter().map(|(source, dropped)| (source.as_str(), count(*dropped))),
    );
}

/// A figure of each window or join.
type OfOperator = fn(&OperatorStatus) -> Option<f64>;

fn operators(page: &mut Exposition<'_>, snapshot: &Snapshot) {
    let figures: [(Kind, &str, &str, OfOperator); 11] = [
        (
            Gauge,
            "floodmark_operator_watermark_timestamp_seconds",
            "How far the watermark has come in a window or join, since 1970.",
            |operator| moment(&operator.watermark),
        ),
        (
            Gauge,
            "floodmark_operator_open_windows",
            "Open windows, or slices that windows share; sessions.",
            |operator| Some(count(operator.open_windows)),
        ),
        (
            Gauge,
            "floodmark_operator_open_panes",
            "Panes in memory; of a join, events that wait.",
            |operator| Some(count(operator.open_panes)),
        ),
        (
            Gauge,
            "floodmark_operator_due_windows",
            "Windows that are due and were not fired yet.",
            |operator| Some(count(operator.due_windows)),
        ),
        (Gauge, "floodmark_operator_firing", "1 while windows are fired step by step, else 0.", |operator| {
            Some(flag(operator.firing))
        }),
        (
            Gauge,
            "floodmark_operator_next_end_timestamp_seconds",
            "The end of the first window that is still to close, since 1970.",
            |operator| operator.next_end.as_ref().and_then(moment),
        ),
        (Gauge, "floodmark_operator_memory_bytes", "Memory of a window or join.", |operator| {
            Some(count(operator.memory_bytes))
        }),
        (
            Counter,
            "floodmark_operator_firings",
            "Times that panes of a window were emitted together.",
            |operator| Some(count(operator.fired)),
        ),
        (Counter, "floodmark_operator_rows", "Rows emitted.", |operator| Some(count(operator.rows_this_run))),
        (
            Counter,
            "floodmark_operator_late_events",
            "Events that were late for all windows of the operator; they go to the late output where there is one.",
            |operator| Some(count(operator.late_this_run)),
        ),
        (
            Gauge,
            "floodmark_operator_late_by_max_seconds",
            "The latest that an event was in this run, behind the expiry of its last window.",
            |operator| operator.late_by_ms_max.map(seconds),
        ),
    ];
    for (kind, name, help, figure) in figures {
        let values = snapshot.operators.iter();
        let values = values.filter_map(|operator| Some((operator.name.as_str(), figure(operator)?)));
        page.many(kind, name, help, "operator", values);
    }
}

fn checkpoints(page: &mut Exposition<'_>, snapshot: &Snapshot, since_taken: i64) {
    let checkpoints = &snapshot.checkpoints;
    let last = checkpoints.last.as_ref();
    let made = last.filter(|last| !last.restored);
    page.one(Counter, "floodmark_checkpoints", "Complete checkpoints.", count(checkpoints.count));
    page.one(
        Counter,
        "floodmark_checkpoint_failures",
        "Checkpoints that failed; the run ends with the first.",
        count(checkpoints.failures),
    );
    page.one(
        Gauge,
        "floodmark_checkpoint_epoch",
        "Number of the newest one.",
        last.map(|last| count(last.epoch)),
    );
    page.one(
        Gauge,
        "floodmark_checkpoint_age_seconds",
        "Age of the newest checkpoint. It grows while nothing comes in, too: see floodmark_checkpoint_unsaved_seconds.",
        checkpoints.age_ms.map(|age| grown(age, since_taken)),
    );
    page.one(
        Gauge,
        "floodmark_checkpoint_unsaved_seconds",
        "For how long there have been events that no complete checkpoint holds; 0 when it holds all.",
        match checkpoints.unsaved_ms {
            0 => 0.0,
            unsaved => grown(unsaved, since_taken),
        },
    );
    page.one(
        Gauge,
        "floodmark_checkpoint_interval_seconds",
        "How often checkpoints are to come.",
        millis(checkpoints.interval_ms),
    );
    page.one(
        Gauge,
        "floodmark_checkpoint_in_flight_seconds",
        "How long a checkpoint has been under way; absent while none is.",
        checkpoints.in_flight_ms.map(|since| grown(since, since_taken)),
    );
    page.one(
        Gauge,
        "floodmark_checkpoint_last_duration_seconds",
        "Time that the newest one took beside processing, from the barrier to the published output.",
        made.map(|last| last.duration_ms / 1_000.0),
    );
    page.one(
        Gauge,
        "floodmark_checkpoint_last_pause_seconds",
        "Time that processing stood still for the newest one.",
        made.map(|last| last.pause_ms / 1_000.0),
    );
    page.one(
        Gauge,
        "floodmark_checkpoint_last_new_bytes",
        "Bytes of files that are new in the newest one.",
        made.map(|last| count(last.new_bytes)),
    );
    page.one(
        Counter,
        "floodmark_checkpoint_duration_seconds",
        "Time that checkpoints took beside processing.",
        checkpoints.duration_ms / 1_000.0,
    );
    page.one(
        Counter,
        "floodmark_checkpoint_pause_seconds",
        "Time that processing stood still for checkpoints.",
        checkpoints.pause_ms / 1_000.0,
    );
    page.one(
        Counter,
        "floodmark_checkpoint_new_bytes",
        "Bytes written for checkpoints.",
        count(checkpoints.new_bytes),
    );
}

fn state(page: &mut Exposition<'_>, snapshot: &Snapshot) {
    let state = &snapshot.state;
    page.one(
        Gauge,
        "floodmark_state_disk_bytes",
        "Bytes of the files of the working state in use.",
        count(state.disk_bytes),
    );
    page.one(
        Gauge,
        "floodmark_state_disk_held_bytes",
        "Bytes of all files of the working state, those included that wait to be deleted.",
        count(state.disk_total_bytes),
    );
    page.one(
        Gauge,
        "floodmark_state_panes",
        "Panes in memory, and events that joins and deduplication remember.",
        count(state.resident_panes),
    );
    let blocks = state.cache_bytes.saturating_sub(state.write_buffer_bytes);
    let kinds = [
        ("panes", count(state.hot_bytes)),
        ("block_cache", count(blocks)),
        ("write_buffers", count(state.write_buffer_bytes)),
    ];
    page.many(Gauge, "floodmark_memory_bytes", "Memory in use by kind.", "kind", kinds.into_iter());
    page.one(
        Gauge,
        "floodmark_memory_budget_bytes",
        "Memory that the pipeline file allows.",
        count(state.budget_bytes),
    );
    page.one(
        Gauge,
        "floodmark_state_level0_files",
        "Most files in level 0 of the state database; writes slow down at 20 and stop at 36.",
        count(state.level0_files_max),
    );
    page.one(
        Gauge,
        "floodmark_state_compaction_pending_bytes",
        "Bytes that compactions are behind.",
        count(state.compaction_pending_bytes),
    );
    page.one(
        Gauge,
        "floodmark_state_write_stalled",
        "1 while writes to the state database are stopped or slowed down, else 0.",
        flag(state.write_stopped || state.delayed_write_rate > 0),
    );
    page.one(
        Counter,
        "floodmark_state_write_stalls",
        "Times that writes were stopped or slowed down.",
        count(state.write_stalls),
    );
    page.one(
        Counter,
        "floodmark_state_write_stalled_seconds",
        "Time that writes were stopped or slowed down, counted at the end of each.",
        millis(state.write_stalled_ms),
    );
    let queues = &snapshot.queues;
    let lengths =
        [("blocks_ahead", count(queues.blocks_ahead)), ("state_writes", count(queues.state_writes))];
    page.many(
        Gauge,
        "floodmark_queue_length",
        "What waits: blocks of input for the task, jobs for the thread that writes state.",
        "queue",
        lengths.into_iter(),
    );
}

fn outputs(page: &mut Exposition<'_>, snapshot: &Snapshot, since_taken: i64) {
    let outputs = &snapshot.outputs;
    page.one(
        Gauge,
        "floodmark_output_waiting_epochs",
        "Epochs whose results wait to be delivered, of the output where it is most.",
        count(outputs.waiting_epochs),
    );
    page.one(
        Gauge,
        "floodmark_output_waiting_rows",
        "Rows that wait to be delivered, over all outputs.",
        count(outputs.waiting_rows),
    );
    page.one(
        Gauge,
        "floodmark_output_waiting_seconds",
        "How long something has been waiting to be delivered; 0 while nothing is.",
        outputs.waiting_ms.map_or(0.0, |waiting| grown(waiting, since_taken)),
    );
    page.one(
        Gauge,
        "floodmark_output_delay_seconds",
        "Of the newest checkpoint: time from its barrier until its results were published.",
        outputs.delay_ms.map(|delay| delay / 1_000.0),
    );
    page.one(
        Gauge,
        "floodmark_output_publish_seconds",
        "Of the newest checkpoint: time that publishing its results took.",
        outputs.publish_ms.map(|publish| publish / 1_000.0),
    );
}

fn repository(page: &mut Exposition<'_>, snapshot: &Snapshot) {
    let Some(repository) = &snapshot.repository else { return };
    page.one(
        Counter,
        "floodmark_repository_uploads",
        "Checkpoints that were uploaded to the repository.",
        count(repository.uploaded),
    );
    page.one(
        Counter,
        "floodmark_repository_upload_failures",
        "Checkpoints that could not be uploaded, after all retries.",
        count(repository.failed),
    );
    page.one(
        Counter,
        "floodmark_repository_new_bytes",
        "Bytes written to the repository.",
        count(repository.new_bytes),
    );
    page.one(
        Gauge,
        "floodmark_repository_epoch",
        "Number of the newest checkpoint in the repository.",
        repository.last_epoch.map(count),
    );
}

fn watch(page: &mut Exposition<'_>, warnings: &Warnings) {
    let active = |kind| warnings.active.iter().filter(|warning| warning.kind == kind).count();
    let active = WarningKind::ALL.iter().map(|kind| (kind.name(), count(active(*kind) as u64)));
    page.many(
        Gauge,
        "floodmark_warnings_active",
        "Warnings of the watch that stand, by kind.",
        "kind",
        active,
    );
    let raised = |kind| count(warnings.raised.get(kind).copied().unwrap_or(0));
    let raised = WarningKind::ALL.iter().map(|kind| (kind.name(), raised(kind)));
    page.many(
        Counter,
        "floodmark_warnings_raised",
        "Warnings that the watch has raised, by kind.",
        "kind",
        raised,
    );
}

fn flag(set: bool) -> f64 {
    f64::from(u8::from(set))
}

fn count(count: u64) -> f64 {
    count as f64
}

fn seconds(ms: i64) -> f64 {
    ms as f64 / 1_000.0
}

fn millis(ms: u64) -> f64 {
    ms as f64 / 1_000.0
}

/// A length of time that has gone on since it was looked at.
fn grown(ms: u64, since_taken: i64) -> f64 {
    millis(ms.saturating_add(since_taken.unsigned_abs()))
}

fn moment(moment: &Moment) -> Option<f64> {
    moment.ms.map(seconds)
}
