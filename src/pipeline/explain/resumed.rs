//! Starting from a checkpoint: the panes of what is explained, as the operator and the timeline take them up.

use std::sync::Arc;

use super::FromCheckpoint;
use super::frame::{RestoredFrame, What};
use super::subject::{self, Subject};
use super::timeline::Timeline;
use crate::checkpoint::OperatorState;
use crate::clock::Clock;
use crate::error::Result;
use crate::event_time::{EventTime, Watermark, Window};
use crate::inspect::{Aggregates, Resumed, Wanted, resume};
use crate::operator::{OperatorSpec, WindowOperator};
use crate::pipeline::config::PipelineConfig;
use crate::store::check_shape;

/// What the checkpoint holds of the subject.
pub(super) fn restored(
    config: &PipelineConfig,
    from: FromCheckpoint,
    subject: &Subject,
    operators: &[WindowOperator],
    index: usize,
    clock: &Arc<dyn Clock>,
) -> Result<Resumed> {
    let at = match from {
        FromCheckpoint::Latest => None,
        FromCheckpoint::Epoch(epoch) => Some(epoch),
    };
    let spec = operators[index].spec();
    let wanted = Wanted {
        key: subject.key.clone(),
        first_key: subject.takes_first(),
        ends: subject.start.and_then(|start| subject::stored_ends(spec, start)),
    };
    resume(&config.state.directory, at, clock.wall_millis(), &wanted, |manifest| {
        // Joins and deduplication are not looked at: they are what they were.
        let is_window = |state: &OperatorState| operators.iter().any(|known| known.spec().name == state.name);
        let others: Vec<OperatorState> =
            manifest.operators.iter().filter(|state| !is_window(state)).cloned().collect();
        let mut specs: Vec<OperatorSpec> = operators.iter().map(|known| known.spec().clone()).collect();
        check_shape(manifest, &mut specs, &others)?;
        let mut operator = WindowOperator::new(index, specs.swap_remove(index));
        if let Some(state) = manifest.operators.iter().find(|state| state.name == spec.name) {
            operator.restore(state.watermark);
            operator.forget(state.horizon);
        }
        Ok(operator)
    })
}

/// Shows what a checkpoint holds and follows its windows.
pub(super) fn take_up(resumed: Resumed, subject: &mut Subject, timeline: &mut Timeline) -> WindowOperator {
    let Resumed { operator, key, panes, .. } = resumed;
    if let (true, Some(key)) = (subject.takes_first(), &key) {
        subject.choose(key);
    }
    let (spec, watermark) = (operator.spec(), operator.watermark());
    for (end, rows) in &panes {
        subject.meet();
        for index in 0..rows.len() {
            let row = rows.row(index);
            let window = operator.stored_window(*end, row.words());
            let mut values = Vec::new();
            row.finish(&mut values);
            let names = spec.aggregates.iter().map(|aggregate| aggregate.name.clone());
            let frame = RestoredFrame {
                window,
                slice: spec.shares_slices(),
                key: subject.shown_key(rows.key(index)),
                events: row.events(),
                values: Aggregates(names.zip(values).collect()),
            };
            timeline.push(What::Restored(frame), watermark, watermark);
            for window in windows_of_stored(spec, window, watermark) {
                if subject.holds(window) {
                    timeline.follow(window, &[], watermark);
                }
            }
        }
    }
    operator
}

/// The windows that a stored pane, or slice, is still needed for.
fn windows_of_stored(spec: &OperatorSpec, stored: Window, watermark: Watermark) -> Vec<Window> {
    if !spec.shares_slices() {
        return vec![stored];
    }
    let first = spec.windows.next_holding(stored, EventTime::MIN);
    let windows = std::iter::successors(first, |window| spec.windows.next_holding(stored, window.end));
    windows.filter(|window| !watermark.closed(window.end)).collect()
}
