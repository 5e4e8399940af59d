//! What two manifests say apart: watermarks, offsets, totals and files. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::checkpoint::{Manifest, PartitionState};
use crate::event_time::{EventTime, Span, Watermark};
use crate::inspect::text::{as_optional_text, as_text};

/// A watermark in two checkpoints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WatermarkMoved {
    /// In the earlier one.
    #[serde(serialize_with = "as_text")]
    pub before: Watermark,
    /// In the later one.
    #[serde(serialize_with = "as_text")]
    pub after: Watermark,
    /// How far it went on; absent where one of the two is no instant, or it went back.
    #[serde(serialize_with = "as_optional_text")]
    pub by: Option<Span>,
    /// True when the later one is before the earlier one, which never happens in one history.
    pub went_back: bool,
}

impl WatermarkMoved {
    pub(super) fn between(before: Watermark, after: Watermark) -> Self {
        let by = match (before, after) {
            (Watermark::At(from), Watermark::At(to)) => {
                to.as_millis().checked_sub(from.as_millis()).and_then(Span::from_millis)
            }
            _ => None,
        };
        Self { before, after, by, went_back: after < before }
    }
}

/// A partition in two checkpoints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartitionMoved {
    /// Its name.
    pub name: String,
    /// Its source; empty when an older version wrote it.
    pub source: String,
    /// It is in the later one alone.
    pub appeared: bool,
    /// It is in the earlier one alone.
    pub gone: bool,
    /// Records before the next one, in the earlier one.
    pub records_before: u64,
    /// Records before the next one, in the later one.
    pub records_after: u64,
    /// Decompressed bytes before the next record, in the earlier one.
    pub bytes_before: u64,
    /// Decompressed bytes before the next record, in the later one.
    pub bytes_after: u64,
    /// Its watermark.
    pub watermark: WatermarkMoved,
    /// Latest event time in the earlier one.
    #[serde(serialize_with = "as_optional_text")]
    pub max_time_before: Option<EventTime>,
    /// Latest event time in the later one.
    #[serde(serialize_with = "as_optional_text")]
    pub max_time_after: Option<EventTime>,
    /// Read to its end in the later one.
    pub finished: bool,
    /// Idle in the later one.
    pub idle: bool,
}

/// A running total in two checkpoints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CounterMoved {
    /// Its name.
    pub name: String,
    /// In the earlier one.
    pub before: u64,
    /// In the later one.
    pub after: u64,
}

/// The files of two databases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FilesMoved {
    /// Files that both hold.
    pub kept: u64,
    /// Bytes of these.
    pub kept_bytes: u64,
    /// Files of the later one alone.
    pub new: u64,
    /// Bytes of these.
    pub new_bytes: u64,
    /// Files of the earlier one alone.
    pub gone: u64,
    /// Bytes of these.
    pub gone_bytes: u64,
}

pub(super) fn partitions(before: &Manifest, after: &Manifest) -> Vec<PartitionMoved> {
    let by_name = |manifest: &Manifest| -> BTreeMap<String, PartitionState> {
        manifest.partitions.iter().map(|partition| (partition.name.clone(), partition.clone())).collect()
    };
    let (old, new) = (by_name(before), by_name(after));
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    names.into_iter().filter_map(|name| partition(name, old.get(name), new.get(name))).collect()
}

fn partition(
    name: &str,
    old: Option<&PartitionState>,
    new: Option<&PartitionState>,
) -> Option<PartitionMoved> {
    let known = new.or(old)?;
    let position =
        |state: Option<&PartitionState>| state.map_or_else(Default::default, |state| state.position);
    let watermark = |state: Option<&PartitionState>| state.map_or(Watermark::None, |state| state.watermark);
    Some(PartitionMoved {
        name: name.to_owned(),
        source: known.source.clone(),
        appeared: old.is_none(),
        gone: new.is_none(),
        records_before: position(old).records,
        records_after: position(new).records,
        bytes_before: position(old).bytes,
        bytes_after: position(new).bytes,
        watermark: WatermarkMoved::between(watermark(old), watermark(new)),
        max_time_before: old.and_then(|state| state.max_time),
        max_time_after: new.and_then(|state| state.max_time),
        finished: new.is_some_and(|state| state.finished),
        idle: new.is_some_and(|state| state.idle),
    })
}

pub(super) fn counters(before: &Manifest, after: &Manifest) -> Vec<CounterMoved> {
    let names: BTreeSet<&String> = before.counters.keys().chain(after.counters.keys()).collect();
    let of = |manifest: &Manifest, name: &str| manifest.counters.get(name).copied().unwrap_or(0);
    let moved = names.into_iter().map(|name| CounterMoved {
        name: name.clone(),
        before: of(before, name),
        after: of(after, name),
    });
    moved.filter(|counter| counter.before != counter.after).collect()
}

pub(super) fn files(before: &Manifest, after: &Manifest) -> FilesMoved {
    let same = |manifest: &Manifest, name: &str, bytes: u64, crc32: u32| {
        manifest.file(name).is_some_and(|file| (file.bytes, file.crc32) == (bytes, crc32))
    };
    let mut moved = FilesMoved::default();
    for file in &after.files {
        let (count, bytes) = match same(before, &file.name, file.bytes, file.crc32) {
            true => (&mut moved.kept, &mut moved.kept_bytes),
            false => (&mut moved.new, &mut moved.new_bytes),
        };
        *count += 1;
        *bytes += file.bytes;
    }
    for file in before.files.iter().filter(|file| !same(after, &file.name, file.bytes, file.crc32)) {
        moved.gone += 1;
        moved.gone_bytes += file.bytes;
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watermark_that_goes_back_is_told() {
        let at = |millis| Watermark::At(EventTime::from_millis(millis));
        let moved = WatermarkMoved::between(at(5), at(12));
        assert_eq!((moved.by, moved.went_back), (Span::from_millis(7), false));
        let back = WatermarkMoved::between(at(12), at(5));
        assert_eq!((back.by, back.went_back), (None, true));
        assert!(!WatermarkMoved::between(Watermark::None, at(5)).went_back);
        assert!(WatermarkMoved::between(Watermark::End, at(5)).went_back);
    }
}
