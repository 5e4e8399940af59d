//! Fuzz target of what the state database stores: keys, values, and the merge of arbitrary values.

use super::PaneMerge;
use super::key::{self, StateKey};
use super::merge::merge_values;
use super::value::{DAMAGED_BYTES_MAX, DamagedPane, Stored, damaged_inputs};

/// Puts one payload behind the other, and refuses what ends in an odd byte.
struct Append;

impl PaneMerge for Append {
    fn merge(&self, base: &mut Vec<u8>, operand: &[u8]) -> bool {
        base.extend_from_slice(operand);
        operand.last().is_none_or(|last| last % 2 == 0)
    }
}

/// A key and three values, each after its length in one byte.
pub(crate) fn entries(bytes: &[u8]) {
    let mut rest = bytes;
    let mut next = || {
        let Some((&length, after)) = rest.split_first() else { return rest };
        let (part, after) = after.split_at(usize::from(length).min(after.len()));
        rest = after;
        part
    };
    let key = next();
    if let Some(StateKey::Pane(pane)) = key::parse(key) {
        let mut buffer = Vec::new();
        assert_eq!(key::write_pane(&mut buffer, pane), key, "a pane's key is written as other bytes");
        assert_eq!(key::window_end(key), Some(pane.end));
        assert!(key >= key::first_of_end(pane.end).as_slice() && key < key::AFTER_PANES.as_slice());
    }
    let values = [next(), next(), rest];
    for value in values {
        value_of_any_kind(value);
    }
    let [base, operands @ ..] = values;
    let merged = merge_values(&Append, Some(base), operands.into_iter());
    if values.iter().any(|value| matches!(Stored::parse(value), Stored::Damaged(_))) {
        assert!(matches!(Stored::parse(&merged), Stored::Damaged(_)), "a damaged pane was healed");
    }
    value_of_any_kind(&merged);
}

/// A damaged value keeps its inputs, however often it is taken apart and put together.
fn value_of_any_kind(value: &[u8]) {
    let Stored::Damaged(damaged) = Stored::parse(value) else { return };
    let (inputs, left_out) = damaged_inputs(damaged);
    let mut again = DamagedPane::new();
    again.push(damaged);
    let again = again.finish();
    let (inputs_again, left_out_again) = damaged_inputs(&again);
    assert_eq!((&inputs_again, left_out_again), (&inputs, left_out), "inputs were lost or made up");
    assert!(again.len() <= DAMAGED_BYTES_MAX + 5, "a damaged pane grows");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::PaneKey;
    use crate::codec::fuzzing::seed;
    use crate::event_time::EventTime;
    use crate::state::value::payload_value;

    #[test]
    fn real_entries_keep_the_promises_that_are_asked_of_hostile_ones() {
        let mut damaged = DamagedPane::new();
        damaged.push(&payload_value(b"one".to_vec()));
        damaged.push(b"");
        let damaged = damaged.finish();
        let pane = PaneKey { end: EventTime::from_millis(1_700_000_000_000), key: b"key" };
        let mut buffer = Vec::new();
        let key = key::write_pane(&mut buffer, pane).to_vec();
        let panes = [payload_value(b"row".to_vec()), payload_value(b"ro2".to_vec()), Vec::new()];
        let (row, operand) = (&panes[0], &panes[1]);
        for (name, parts) in [
            ("real-panes", [&key, row, operand, operand]),
            ("real-damaged", [&key, row, &damaged, operand]),
            ("real-refused", [&key::SENTINEL.to_vec(), row, &payload_value(b"odd!".to_vec()), &damaged]),
        ] {
            let mut bytes = Vec::new();
            for part in &parts[..3] {
                bytes.push(u8::try_from(part.len()).unwrap());
                bytes.extend_from_slice(part);
            }
            bytes.extend_from_slice(parts[3]);
            entries(&bytes);
            seed("state_entries", name, &bytes);
        }
    }
}
