//! The answer to "why" as sentences. Pure: every fact comes from the report, the manifest or the definition.

use crate::checkpoint::Manifest;
use crate::event_time::{EventTime, Span, Watermark};
use crate::inspect::holding::{Holding, HoldingPartition};
use crate::inspect::status::{Standing, WindowStatus};
use crate::inspect::why::{Presence, Why};
use crate::operator::{Advance, Mode, OperatorSpec, TimeDomain};

/// What sentences are made of.
pub(super) struct Facts<'a> {
    pub(super) manifest: &'a Manifest,
    pub(super) spec: &'a OperatorSpec,
    pub(super) standing: &'a Standing,
}

impl Facts<'_> {
    /// The answer in one sentence.
    pub(super) fn answer(&self, why: &Why) -> String {
        let (end, reached) = (why.end, self.standing.reached);
        let of_key = match why.presence {
            Presence::Present => "",
            Presence::NeverSeen => ", and no event of this key has come into it",
            Presence::Unknown => ", and the state has nothing of this key in it",
        };
        match why.status {
            WindowStatus::Open if self.standing.endless => {
                format!("it never closes: complete mode emits and keeps all panes{of_key}")
            }
            WindowStatus::Open if end == EventTime::MAX => {
                format!("it has no end: only the end of the input closes it{of_key}")
            }
            WindowStatus::Open => match reached {
                Watermark::None => format!("it has not closed: there is no watermark yet{of_key}"),
                _ => format!("it has not closed: it ends at {end} and the watermark is {reached}{of_key}"),
            },
            WindowStatus::Closing => format!(
                "it is closing: the watermark {reached} has passed its end {end}, and it is yet to fire{of_key}"
            ),
            WindowStatus::AcceptsLate => format!(
                "it has closed and fired: the watermark {reached} has passed its end {end}; it still takes late \
                 events{of_key}"
            ),
            WindowStatus::Expired => {
                format!(
                    "it has closed, fired and expired: the watermark is {reached}, it ended at {end}{of_key}"
                )
            }
        }
    }

    /// What the answer rests on.
    pub(super) fn because(&self, why: &Why) -> Vec<String> {
        let mut because = Vec::new();
        match why.status {
            WindowStatus::Open => self.open(why, &mut because),
            WindowStatus::Closing => because.push(format!(
                "a checkpoint came in the middle of a long firing: windows that end by {} have fired, the others follow \
                 in the order of their ends as soon as the pipeline runs",
                why.fired_to
            )),
            WindowStatus::AcceptsLate | WindowStatus::Expired => {}
        }
        if let Some(expires) = why.expires_at {
            because.push(self.expiry(why, expires));
        }
        because.push(self.presence(why));
        because
    }

    fn open(&self, why: &Why, because: &mut Vec<String>) {
        if self.spec.time == TimeDomain::Processing {
            because.push(
                "it follows the wall clock: it closes when the clock passes its end while it runs".to_owned(),
            );
        } else if self.spec.advance == Advance::Batch {
            because.push(format!(
                "the watermark reaches it one batch late: windows have reached {}, events have come to {}",
                why.fired_to, self.manifest.batch_watermark
            ));
        } else if let Some(holding) = &why.holding {
            because.extend(missing(why));
            because.extend(held(holding, why.end));
        }
    }

    fn expiry(&self, why: &Why, expires: EventTime) -> String {
        let lateness = match self.spec.allowed_lateness {
            Span::ZERO => "no lateness is allowed".to_owned(),
            lateness => format!("its end plus the allowed lateness of {lateness}"),
        };
        match why.status {
            WindowStatus::Expired => {
                format!("it took events until the watermark reached {expires} ({lateness})")
            }
            _ => format!("it takes events until the watermark reaches {expires} ({lateness})"),
        }
    }

    fn presence(&self, why: &Why) -> String {
        let slices = if self.spec.shares_slices() { " (slices, which windows share)" } else { "" };
        match why.presence {
            Presence::Present => {
                let events = why.panes.iter().filter_map(|pane| pane.events).fold(0, u64::saturating_add);
                let emitted = why.panes.iter().filter_map(|pane| pane.emissions).max();
                let emitted = emitted.map_or(String::new(), |times| format!(", emitted {times} times so far"));
                let kept = match why.status {
                    WindowStatus::Expired if self.spec.shares_slices() => {
                        ", kept for later windows that share them; others may be gone"
                    }
                    WindowStatus::Expired => ", still on disk until it is removed",
                    _ => "",
                };
                format!("the state has {events} events of this key in it{slices}{emitted}{kept}")
            }
            Presence::NeverSeen if self.spec.mode == Mode::Complete => {
                "the state has no pane of this key: no event of it has come".to_owned()
            }
            Presence::NeverSeen => format!(
                "the state has no pane of this key in it{}: no event of it was accepted before this checkpoint",
                if why.other_keys { ", and has panes of other keys" } else { "" }
            ),
            Presence::Unknown => "state of expired windows is removed, and windows that close in memory never reach the \
                                  disk: whether the key had events cannot be known from this checkpoint; the results can \
                                  tell, and `floodmark explain`"
                .to_owned(),
        }
    }
}

fn missing(why: &Why) -> Option<String> {
    why.missing.map(|missing| format!("the watermark has to go {missing} further"))
}

fn held(holding: &Holding, end: EventTime) -> Vec<String> {
    let mut said = Vec::new();
    match (holding.any_is_enough, holding.partitions.as_slice()) {
        (true, []) => said.push(
            "every partition was read to its end: the end of the input closes it, or input that is still to come".to_owned(),
        ),
        (true, _) => said.push(
            "no partition holds the watermark back: the next event that is late enough in any of them closes it".to_owned(),
        ),
        (false, [_]) => {}
        (false, several) => said.push(format!(
            "{} partitions hold the watermark back; all of them have to move",
            several.len() as u64 + holding.partitions_left_out
        )),
    }
    said.extend(holding.partitions.iter().map(|partition| one(partition, holding.any_is_enough, end)));
    if holding.partitions_left_out > 0 {
        said.push(format!("and {} partitions more", holding.partitions_left_out));
    }
    if !holding.idle.is_empty() {
        said.push(format!("idle, and holding nothing back: {}", holding.idle.join(", ")));
    }
    if holding.finished > 0 {
        said.push(format!("read to their end, and holding nothing back: {}", holding.finished));
    }
    said
}

fn one(held: &HoldingPartition, any: bool, end: EventTime) -> String {
    let source = if held.source.is_empty() { String::new() } else { format!(" of source {}", held.source) };
    let does = if any { "stands at" } else { "holds it back at" };
    let name = &held.partition;
    match (held.max_time, held.behind, held.needs_event_at) {
        (Some(max), Some(behind), Some(needs)) => format!(
            "partition {name}{source} {does} {}: its latest event is of {max}, less {behind}; an event of {needs} or later \
             lets the watermark reach {end}",
            held.watermark
        ),
        (Some(max), ..) => {
            format!("partition {name}{source} {does} {}: its latest event is of {max}", held.watermark)
        }
        (None, ..) => format!(
            "partition {name}{source} has not spoken yet, and holds the watermark back until it does, is idle for its \
             time-out, or is read to its end"
        ),
    }
}
