//! The words of warnings: what is wrong, why, and what to do about it.

use super::super::snapshot::{HolderStatus, JumpStatus, OperatorStatus, PartitionStatus, Snapshot};
use super::super::words::length;
use super::{Condition, WarningKind};

/// The watermark does not move.
pub(super) fn stalled(snapshot: &Snapshot) -> Condition {
    let watermark = &snapshot.watermark;
    let (cause, remedy) = match &watermark.holder {
        Some(holder) if holder.holds_back => held_back(holder, snapshot.taken_at_ms),
        _ => (
            "no partition counts any more: each is idle or was read to its end".to_owned(),
            "set watermark.idle_advance if windows are to close while nothing comes".to_owned(),
        ),
    };
    Condition {
        kind: WarningKind::WatermarkStalled,
        subject: None,
        raises: true,
        message: format!(
            "the watermark has stood at {} for {}: no window closes",
            watermark.combined.text,
            length(watermark.unmoved_ms)
        ),
        cause,
        remedy,
    }
}

fn held_back(holder: &HolderStatus, now_ms: i64) -> (String, String) {
    let HolderStatus { partition, source, .. } = holder;
    let silence = |at: i64| length(now_ms.saturating_sub(at).max(0).unsigned_abs());
    let cause = match (&holder.max_time, holder.last_record_at_ms) {
        (None, _) => format!("partition {partition} of source {source} has not spoken yet"),
        (Some(max), Some(at)) if now_ms.saturating_sub(at) < 1_000 => format!(
            "partition {partition} of source {source} holds it back: records come, but none is later than {}",
            max.text
        ),
        (Some(max), Some(at)) => format!(
            "partition {partition} of source {source} holds it back: its last record came {} ago, its latest event is of {}",
            silence(at),
            max.text
        ),
        (Some(max), None) => format!(
            "partition {partition} of source {source} holds it back: nothing has come from it in this run, its latest \
             event is of {}",
            max.text
        ),
    };
    let remedy = match holder.idle_timeout_ms {
        Some(timeout) => format!(
            "look why nothing later comes from it; after {} of silence it will be idle and hold nothing back",
            length(timeout)
        ),
        None => "look why nothing later comes from it; with watermark.idle_timeout a silent partition of standard input \
                 would stop holding the watermark back"
            .to_owned(),
    };
    (cause, remedy)
}

/// A partition is far from the others.
pub(super) fn skewed(partition: &PartitionStatus, lead_ms: i64, raises: bool) -> Condition {
    let far = length(lead_ms.unsigned_abs());
    let latest = partition.max_time.as_ref().map_or("none", |max| max.text.as_str());
    let (kind, message, cause, remedy) = if lead_ms > 0 {
        (
            WarningKind::PartitionAhead,
            format!("partition {} is {far} ahead of the others", partition.name),
            format!("its latest event is of {latest}: the others are slow, or its clock is wrong"),
            "compare its times with its clock; bounds (max_ahead, max_ahead_of_partitions) keep wrong times out",
        )
    } else {
        (
            WarningKind::PartitionBehind,
            format!("partition {} is {far} behind the others", partition.name),
            format!(
                "its latest event is of {latest}: it is slow or has a backlog, and its windows stay open for it"
            ),
            "look why it is slow; the state of all windows in between stays in memory until it has caught up",
        )
    };
    Condition {
        kind,
        subject: Some(partition.name.clone()),
        raises,
        message,
        cause,
        remedy: remedy.to_owned(),
    }
}

/// One event moved the watermark far.
pub(super) fn jumped(jump: &JumpStatus) -> Condition {
    Condition {
        kind: WarningKind::WatermarkJumped,
        subject: None,
        raises: true,
        message: format!("one event moved the watermark by {}", length(jump.length_ms.unsigned_abs())),
        cause: format!(
            "an event of partition {} moved it from {} to {}: if its time is wrong, everything up to there is late now",
            jump.partition, jump.from.text, jump.to.text
        ),
        remedy: "look for that event; bounds (max, max_ahead) keep such times out".to_owned(),
    }
}

/// Late events among all, over a time.
#[derive(Clone, Copy)]
pub(super) struct Late {
    pub(super) late: u64,
    pub(super) events: u64,
    pub(super) over_ms: u64,
}

/// Many events are late.
pub(super) fn late(snapshot: &Snapshot, operator: &OperatorStatus, counts: Late, raises: bool) -> Condition {
    let Late { late, events, over_ms } = counts;
    let most = snapshot.partitions.iter().filter(|partition| partition.late > 0);
    let most = most.max_by_key(|partition| partition.late);
    let cause = match most {
        Some(partition) => format!("most late events of this run came from partition {}", partition.name),
        None => "they came from partitions that are not listed".to_owned(),
    };
    let fate = match snapshot.input.late_is_kept {
        true => "kept in the late output",
        false => "dropped",
    };
    Condition {
        kind: WarningKind::LateEvents,
        subject: Some(operator.name.clone()),
        raises,
        message: format!(
            "{late} of {events} events in {} were late for {} and are {fate}",
            length(over_ms),
            operator.name
        ),
        cause,
        remedy: "give watermark.delay or allowed_lateness more, or look whether that partition is delayed"
            .to_owned(),
    }
}

/// There is no checkpoint of what was processed long ago.
pub(super) fn unsaved(snapshot: &Snapshot) -> Condition {
    let checkpoints = &snapshot.checkpoints;
    let last = checkpoints
        .last
        .as_ref()
        .map_or("there is none yet".to_owned(), |last| format!("the newest is epoch {}", last.epoch));
    let cause = match checkpoints.in_flight_ms {
        Some(since) => format!("one has been under way for {}; {last}", length(since)),
        None => format!("none could begin; {last}"),
    };
    Condition {
        kind: WarningKind::CheckpointOverdue,
        subject: None,
        raises: true,
        message: format!(
            "events have waited for a checkpoint for {}: after a crash all since then is read again",
            length(checkpoints.unsaved_ms)
        ),
        cause,
        remedy: "look at the disk, the outputs and the repository: a checkpoint waits for all of them"
            .to_owned(),
    }
}
