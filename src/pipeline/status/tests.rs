//! Snapshots for the tests of what is made of them.

use super::snapshot::{
    HolderStatus, InputCounts, Moment, OperatorKind, OperatorStatus, PartitionState, PartitionStatus, Phase,
    Snapshot, WatermarkStatus,
};
use crate::event_time::EventTime;

/// A moment of event time.
pub(super) fn moment(ms: i64) -> Moment {
    EventTime::from_millis(ms).into()
}

/// A partition that counts.
pub(super) fn partition(name: &str, max_ms: i64) -> PartitionStatus {
    PartitionStatus {
        name: name.to_owned(),
        source: "source".to_owned(),
        state: PartitionState::Active,
        follows: None,
        holds_back: false,
        watermark: moment(max_ms - 1_000),
        watermark_moved_at_ms: 0,
        max_time: Some(moment(max_ms)),
        lead_ms: Some(0),
        records: 10,
        records_this_run: 4,
        bytes: 1_000,
        bytes_this_run: 400,
        last_record_at_ms: Some(0),
        read_to_end: false,
        late: 0,
        rejected: 0,
    }
}

/// A windowed aggregation of one minute.
pub(super) fn operator(name: &str) -> OperatorStatus {
    OperatorStatus {
        name: name.to_owned(),
        kind: OperatorKind::Window,
        windows: "tumbling, 1m".to_owned(),
        key_fields: vec!["page".to_owned()],
        input: None,
        watermark: moment(59_000),
        open_windows: 2,
        open_panes: 7,
        due_windows: 0,
        firing: false,
        next_end: Some(moment(60_000)),
        fired: 3,
        rows: 21,
        rows_this_run: 9,
        late: 0,
        late_this_run: 0,
        late_by_ms_max: None,
        memory_bytes: 4_096,
    }
}

/// A run of one window over two files, `a` and `b`, of which `b` holds the watermark back at 59 s. The clock stands at 0.
pub(super) fn running() -> Snapshot {
    let mut snapshot = Snapshot::starting("visits", 0);
    snapshot.run.phase = Phase::Running;
    let (ahead, mut behind) = (partition("a", 90_000), partition("b", 60_000));
    behind.holds_back = true;
    snapshot.watermark = WatermarkStatus {
        combined: moment(59_000),
        expected: true,
        max_time: Some(moment(90_000)),
        event_lag_ms: Some(31_000),
        holder: Some(HolderStatus {
            partition: "b".to_owned(),
            source: "source".to_owned(),
            since_at_ms: 0,
            for_ms: 0,
            watermark: moment(59_000),
            max_time: Some(moment(60_000)),
            delay_ms: Some(1_000),
            holds_back: true,
            last_record_at_ms: Some(0),
            idle_timeout_ms: None,
        }),
        ..WatermarkStatus::default()
    };
    snapshot.partitions = vec![ahead, behind];
    snapshot.operators = vec![operator("per_minute")];
    snapshot.input.total = InputCounts { events: 20, ..InputCounts::default() };
    snapshot
}
