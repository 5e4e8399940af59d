//! Decisions as pure functions from facts to plans: what to sweep, what to restore, what to keep and what to retire.
//!
//! Nothing here touches a disk; plans print and compare.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::num::NonZeroU32;

use crate::checkpoint::layout::EntryName;

/// Names among `entries` of the directory of checkpoints that a cut attempt or retirement left over.
pub(super) fn plan_sweep<'a>(entries: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    entries.filter(|name| EntryName::parse(name) == EntryName::LeftOver).collect()
}

/// What a restore starts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RestorePlan {
    /// There never was a checkpoint: start empty.
    Empty,
    /// Verify this one, and refuse if it does not hold.
    Verify {
        epoch: u64,
        /// Newer ones that are passed over, by explicit choice.
        newer: Vec<u64>,
    },
    /// The newest that was ever seen is gone.
    NewestMissing { present: Option<u64> },
    /// The one asked for is not there.
    NoSuch,
}

/// Chooses the checkpoint to restore. `seen` is the newest epoch of any earlier start, 0 for none.
///
/// Never falls back by itself: an older one is taken only when `at` names it.
pub(super) fn plan_restore(present: &BTreeSet<u64>, seen: u64, at: Option<u64>) -> RestorePlan {
    let newest = present.last().copied();
    match (at, newest) {
        (Some(epoch), _) if present.contains(&epoch) => {
            let newer = present.iter().copied().filter(|&other| other > epoch).collect();
            RestorePlan::Verify { epoch, newer }
        }
        (Some(_), _) => RestorePlan::NoSuch,
        (None, newest) if newest.unwrap_or(0) < seen => RestorePlan::NewestMissing { present: newest },
        (None, Some(epoch)) => RestorePlan::Verify { epoch, newer: Vec::new() },
        (None, None) => RestorePlan::Empty,
    }
}

/// In which order to look for an alternative to a damaged checkpoint: its own ancestor first, then the newest.
pub(super) fn alternatives(present: &BTreeSet<u64>, damaged: u64, parent: Option<u64>) -> Vec<u64> {
    let parent = parent.filter(|parent| present.contains(parent));
    let older = present.range(..damaged).rev().copied().filter(|&epoch| Some(epoch) != parent);
    parent.into_iter().chain(older).collect()
}

/// How many checkpoints to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keep {
    /// The newest so many of the current history.
    pub last: NonZeroU32,
    /// These as well, for good.
    pub pinned: BTreeSet<u64>,
}

/// What retention needs to know about one checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetentionFact {
    /// The parent its manifest names; `None` also when the manifest cannot be read.
    pub parent: Option<u64>,
    /// False when its manifest cannot be read.
    pub readable: bool,
    /// Its files: name, size, CRC32, where one triple is one file however often it is linked.
    pub files: BTreeSet<(String, u64, u32)>,
}

/// Why a checkpoint stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhyKept {
    /// Among the newest of the current history.
    Recent,
    /// Named by [`Keep::pinned`].
    Pinned,
    /// Restored from, or the parent of what is being written.
    InUse,
    /// Not older than the oldest recent one: passed over by an explicit restore, or damaged.
    NotOlder,
    /// Fewer recent ones exist than are to be kept.
    TooFew,
}

/// A checkpoint that stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its epoch.
    pub epoch: u64,
    /// The reason.
    pub why: WhyKept,
}

/// A checkpoint that goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retired {
    /// Its epoch.
    pub epoch: u64,
    /// Bytes that only retired checkpoints hold, counted at the oldest of them.
    pub freed_bytes: u64,
}

/// Which checkpoints stay and which go; printed by a dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetentionPlan {
    /// These stay, oldest first.
    pub keep: Vec<Kept>,
    /// These go, oldest first.
    pub retire: Vec<Retired>,
}

impl fmt::Display for RetentionPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Kept { epoch, why } in &self.keep {
            let why = match why {
                WhyKept::Recent => "recent",
                WhyKept::Pinned => "pinned",
                WhyKept::InUse => "in use",
                WhyKept::NotOlder => "newer than the oldest recent one",
                WhyKept::TooFew => "fewer checkpoints than are to be kept",
            };
            writeln!(f, "keep   {epoch:>10}  {why}")?;
        }
        for Retired { epoch, freed_bytes } in &self.retire {
            writeln!(f, "retire {epoch:>10}  frees {freed_bytes} bytes")?;
        }
        Ok(())
    }
}

/// Decides what stays: the newest `keep.last` checkpoints along the parents of the newest readable one, everything
/// not older than the oldest of these, what is pinned, and what is in use.
///
/// While that history is shorter than `keep.last` (young, or broken by damage) nothing goes.
#[must_use]
pub fn plan_retention(
    facts: &BTreeMap<u64, RetentionFact>,
    keep: &Keep,
    in_use: Option<u64>,
) -> RetentionPlan {
    let recent = recent_history(facts, keep.last);
    let complete = recent.len() as u64 >= u64::from(keep.last.get());
    let oldest_recent = recent.first().copied().unwrap_or(0);
    let why = |epoch: u64| match epoch {
        epoch if recent.contains(&epoch) => Some(WhyKept::Recent),
        epoch if keep.pinned.contains(&epoch) => Some(WhyKept::Pinned),
        epoch if in_use == Some(epoch) => Some(WhyKept::InUse),
        _ if !complete => Some(WhyKept::TooFew),
        epoch if epoch > oldest_recent => Some(WhyKept::NotOlder),
        _ => None,
    };
    let kept: Vec<Kept> =
        facts.keys().filter_map(|&epoch| why(epoch).map(|why| Kept { epoch, why })).collect();
    let mut counted: BTreeSet<&(String, u64, u32)> =
        kept.iter().filter_map(|kept| facts.get(&kept.epoch)).flat_map(|fact| &fact.files).collect();
    let retire = facts
        .iter()
        .filter(|(epoch, _)| why(**epoch).is_none())
        .map(|(&epoch, fact)| {
            let freed = fact.files.iter().filter(|file| counted.insert(file));
            Retired { epoch, freed_bytes: freed.fold(0, |sum: u64, file| sum.saturating_add(file.1)) }
        })
        .collect();
    RetentionPlan { keep: kept, retire }
}

/// The newest readable checkpoint and its readable ancestors, at most `last` of them.
fn recent_history(facts: &BTreeMap<u64, RetentionFact>, last: NonZeroU32) -> BTreeSet<u64> {
    let mut recent = BTreeSet::new();
    let mut next = facts.iter().rev().find(|(_, fact)| fact.readable).map(|(&epoch, _)| epoch);
    while let Some((epoch, fact)) = next.and_then(|epoch| Some((epoch, facts.get(&epoch)?))) {
        if !fact.readable || recent.len() as u64 >= u64::from(last.get()) {
            break;
        }
        recent.insert(epoch);
        // A parent is always older (checked when a manifest is read), so this ends.
        next = fact.parent.filter(|&parent| parent < epoch);
    }
    recent
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fact(parent: Option<u64>, files: &[&str]) -> RetentionFact {
        let files = files.iter().map(|name| ((*name).to_owned(), 100, 1)).collect();
        RetentionFact { parent, readable: true, files }
    }

    fn keep(last: u32) -> Keep {
        Keep { last: NonZeroU32::new(last).unwrap(), pinned: BTreeSet::new() }
    }

    fn retired(plan: &RetentionPlan) -> Vec<u64> {
        plan.retire.iter().map(|retired| retired.epoch).collect()
    }

    #[test]
    fn restore_takes_the_newest_and_never_an_older_one_by_itself() {
        let present = BTreeSet::from([3, 5]);
        assert_eq!(plan_restore(&present, 5, None), RestorePlan::Verify { epoch: 5, newer: vec![] });
        assert_eq!(plan_restore(&present, 5, Some(3)), RestorePlan::Verify { epoch: 3, newer: vec![5] });
        assert_eq!(plan_restore(&present, 5, Some(4)), RestorePlan::NoSuch);
        assert_eq!(plan_restore(&present, 6, None), RestorePlan::NewestMissing { present: Some(5) });
        assert_eq!(plan_restore(&BTreeSet::new(), 6, None), RestorePlan::NewestMissing { present: None });
        assert_eq!(plan_restore(&BTreeSet::new(), 0, None), RestorePlan::Empty);
    }

    #[test]
    fn the_parent_of_a_damaged_checkpoint_is_offered_before_a_branch_that_was_left() {
        let present = BTreeSet::from([4, 5, 6, 7, 8]);
        assert_eq!(alternatives(&present, 8, Some(5)), [5, 7, 6, 4]);
        assert_eq!(alternatives(&present, 8, Some(2)), [7, 6, 5, 4]);
        assert_eq!(alternatives(&present, 8, None), [7, 6, 5, 4]);
    }

    #[test]
    fn a_file_still_shared_by_a_kept_checkpoint_is_not_counted_as_freed() {
        let facts = BTreeMap::from([
            (1, fact(None, &["a", "b"])),
            (2, fact(Some(1), &["b", "c"])),
            (3, fact(Some(2), &["c", "d"])),
        ]);
        let plan = plan_retention(&facts, &keep(1), None);
        assert_eq!(plan.keep, [Kept { epoch: 3, why: WhyKept::Recent }]);
        let freed = [Retired { epoch: 1, freed_bytes: 200 }, Retired { epoch: 2, freed_bytes: 0 }];
        assert_eq!(plan.retire, freed);
        assert!(plan.to_string().contains("retire          1  frees 200 bytes"), "{plan}");
    }

    #[test]
    fn a_branch_that_was_left_goes_only_when_the_new_history_is_long_enough() {
        // 6 and 7 were passed over by a restore of 5; 8 went on from there.
        let mut facts: BTreeMap<u64, RetentionFact> =
            [(4, None), (5, Some(4)), (6, Some(5)), (7, Some(6)), (8, Some(5))]
                .map(|(epoch, parent)| (epoch, fact(parent, &[])))
                .into();
        assert_eq!(retired(&plan_retention(&facts, &keep(2), None)), [4]);
        facts.insert(9, fact(Some(8), &[]));
        assert_eq!(retired(&plan_retention(&facts, &keep(2), None)), [4, 5, 6, 7]);
    }

    #[test]
    fn nothing_goes_while_damage_breaks_the_history() {
        let mut facts: BTreeMap<u64, RetentionFact> =
            [(5, None), (6, Some(5)), (7, Some(6)), (8, Some(7))].map(|(e, p)| (e, fact(p, &[]))).into();
        facts.insert(7, RetentionFact::default());
        assert_eq!(retired(&plan_retention(&facts, &keep(2), None)), [] as [u64; 0]);
        facts.insert(9, fact(Some(8), &[]));
        assert_eq!(retired(&plan_retention(&facts, &keep(2), None)), [5, 6, 7]);
    }

    proptest! {
        #[test]
        fn retention_keeps_what_it_promises_over_random_histories(
            steps in prop::collection::vec((0_u64..5, any::<bool>(), 0_u8..10), 1..20),
            last in 1_u32..5,
            pinned in prop::collection::btree_set(1_u64..20, 0..3),
        ) {
            // Each step goes on from the newest or from one a few back; one in ten manifests is unreadable.
            let mut facts = BTreeMap::new();
            for (index, &(back, shares, luck)) in steps.iter().enumerate() {
                let epoch = index as u64 + 1;
                let parent = epoch.checked_sub(1 + back).filter(|&parent| parent > 0);
                let mut entry = fact(parent, &[&format!("f{epoch}")]);
                if shares {
                    entry.files.insert((format!("f{}", epoch / 2), 100, 1));
                }
                facts.insert(epoch, if luck == 0 { RetentionFact::default() } else { entry });
            }
            let keep = Keep { last: NonZeroU32::new(last).unwrap(), pinned };
            let in_use = Some(1);
            let plan = plan_retention(&facts, &keep, in_use);
            let gone: BTreeSet<u64> = retired(&plan).into_iter().collect();
            let kept: BTreeSet<u64> = plan.keep.iter().map(|kept| kept.epoch).collect();
            prop_assert!(gone.is_disjoint(&kept));
            prop_assert_eq!(gone.len() + kept.len(), facts.len());
            prop_assert!(!gone.contains(&1) && gone.is_disjoint(&keep.pinned));
            let newest = facts.iter().rev().find(|(_, fact)| fact.readable).map(|(&epoch, _)| epoch);
            prop_assert!(newest.is_none_or(|newest| kept.contains(&newest)));
            let readable = |set: &BTreeSet<u64>| set.iter().filter(|&epoch| facts[epoch].readable).count();
            let all = facts.keys().copied().collect();
            prop_assert!(readable(&kept) >= readable(&all).min(last as usize));
            // Freed bytes are exactly those of files that no kept checkpoint has.
            let held: BTreeSet<_> = kept.iter().flat_map(|epoch| &facts[epoch].files).collect();
            let lost: BTreeSet<_> = gone.iter().flat_map(|epoch| &facts[epoch].files).collect();
            let freed: u64 = plan.retire.iter().map(|retired| retired.freed_bytes).sum();
            prop_assert_eq!(freed, 100 * lost.difference(&held).count() as u64);
            // A second look at what is left retires nothing more.
            let left = facts.into_iter().filter(|(epoch, _)| kept.contains(epoch)).collect();
            prop_assert_eq!(retired(&plan_retention(&left, &keep, in_use)), [] as [u64; 0]);
        }
    }
}
