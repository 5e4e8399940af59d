//! Rules of time zones that calendar windows follow: noted with every checkpoint, compared at every restore.
//!
//! The note is a fingerprint of the changes of the clocks from the watermark on, so that it is the same whenever the
//! rules are, whatever database of time zones they come from.

use std::collections::BTreeMap;

use crate::checkpoint::Manifest;
use crate::event_time::{Calendar, EventTime, Watermark, Windows};
use crate::operator::OperatorSpec;

/// Before the names of zones, among the counters of a manifest.
const PREFIX: &str = "tz.";

/// Fingerprints of the zones of calendar windows, by the names under which a manifest keeps them.
pub(super) fn fingerprints<'a>(
    windows: impl Iterator<Item = &'a OperatorSpec>,
    watermark: Watermark,
) -> BTreeMap<String, u64> {
    let Some(from) = reference(watermark) else { return BTreeMap::new() };
    let of = |calendar: &Calendar| {
        (format!("{PREFIX}{}", calendar.zone()), u64::from(calendar.rules_fingerprint(from)))
    };
    windows.filter_map(calendar_of).map(of).collect()
}

/// The zones whose rules are not what they were when the checkpoint was made.
pub(super) fn changed<'a>(
    manifest: &Manifest,
    windows: impl Iterator<Item = &'a OperatorSpec>,
) -> Vec<String> {
    let now = fingerprints(windows, manifest.watermark);
    let differs = |name: &String, now: u64| manifest.counters.get(name).is_some_and(|then| *then != now);
    let names = now.iter().filter(|(name, now)| differs(name, **now)).map(|(name, _)| name);
    names.map(|name| name.trim_start_matches(PREFIX).to_owned()).collect()
}

fn calendar_of(spec: &OperatorSpec) -> Option<&Calendar> {
    match &spec.windows {
        Windows::Calendar(calendar) => Some(calendar),
        _ => None,
    }
}

/// From where on the rules matter; with everything closed they do not.
fn reference(watermark: Watermark) -> Option<EventTime> {
    match watermark {
        Watermark::None => Some(EventTime::from_millis(0)),
        Watermark::At(time) => Some(time),
        Watermark::End => None,
    }
}
