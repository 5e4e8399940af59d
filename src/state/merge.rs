//! The merge operator: total, so that one bad value never stops the writes of all others.
//!
//! RocksDB latches the failure of a merge and refuses every later write, with no way back from Rust. So this
//! operator never fails: what cannot be merged is kept, input by input, as a damaged pane. It runs on several
//! background threads at once and never panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rocksdb::{MergeOperands, Options};

use super::family::PaneMerge;
use super::value::{DamagedPane, Stored, payload_value};

/// Written into every file of a family; RocksDB refuses another operator.
const NAME: &str = "floodmark.pane.1";

/// Installs the operator.
pub(super) fn install(options: &mut Options, merge: Arc<dyn PaneMerge>) {
    let operator = move |_key: &[u8], existing: Option<&[u8]>, operands: &MergeOperands| {
        Some(merge_values(&*merge, existing, operands.iter()))
    };
    // The same function serves both merges: a run of operands is itself an operand.
    options.set_merge_operator_associative(NAME, operator);
}

enum Merged {
    Pane(Vec<u8>),
    Damaged(DamagedPane),
}

/// Merges stored values from the oldest to the newest into one stored value.
pub(super) fn merge_values<'a>(
    merge: &dyn PaneMerge,
    existing: Option<&'a [u8]>,
    operands: impl Iterator<Item = &'a [u8]>,
) -> Vec<u8> {
    let mut merged: Option<Merged> = None;
    for value in existing.into_iter().chain(operands) {
        merged = Some(match merged {
            None => first(value),
            Some(before) => append(merge, before, value),
        });
    }
    match merged {
        Some(Merged::Pane(payload)) => payload_value(payload),
        Some(Merged::Damaged(damaged)) => damaged.finish(),
        None => DamagedPane::new().finish(),
    }
}

fn first(value: &[u8]) -> Merged {
    match Stored::parse(value) {
        Stored::Pane(payload) => Merged::Pane(payload.to_vec()),
        Stored::Damaged(_) => {
            let mut damaged = DamagedPane::new();
            damaged.push(value);
            Merged::Damaged(damaged)
        }
    }
}

fn append(merge: &dyn PaneMerge, before: Merged, value: &[u8]) -> Merged {
    match before {
        Merged::Pane(payload) => {
            if let Stored::Pane(operand) = Stored::parse(value)
                && let Some(together) = try_merge(merge, &payload, operand)
            {
                return Merged::Pane(together);
            }
            let mut damaged = DamagedPane::new();
            damaged.push(&payload_value(payload));
            damaged.push(value);
            Merged::Damaged(damaged)
        }
        Merged::Damaged(mut damaged) => {
            damaged.push(value);
            Merged::Damaged(damaged)
        }
    }
}

/// Merges a copy, so that a refusal or a panic half-way leaves the inputs whole. Merges are the exception; their
/// copies are too.
fn try_merge(merge: &dyn PaneMerge, base: &[u8], operand: &[u8]) -> Option<Vec<u8>> {
    let mut together = Vec::with_capacity(base.len() + operand.len());
    together.extend_from_slice(base);
    // A panic must not cross into RocksDB: it would end the process from a background thread.
    let understood = catch_unwind(AssertUnwindSafe(|| merge.merge(&mut together, operand))).unwrap_or(false);
    understood.then_some(together)
}
