//! What a drill does, decided from its seed alone: which kills, at which moments, and which bytes are damaged. Pure; it
//! knows no process and no disk, so that the same seed gives the same plan everywhere.

use std::fmt;

use serde::Serialize;

use crate::random::Random;

/// Every so many trials kill more than once.
const TRIALS_PER_SERIES: u32 = 4;
/// The most kills in one trial.
const KILLS_IN_A_ROW_MAX: u32 = 3;

/// Something that a run does now and then, as it can be seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Point {
    /// Output of an epoch is staged: durable, not yet visible.
    Staged,
    /// A checkpoint is being written.
    Writing,
    /// A checkpoint has got its name.
    Complete,
    /// Output becomes visible.
    Visible,
    /// An old checkpoint is being removed.
    Retiring,
    /// The state is being restored.
    Restoring,
}

impl Point {
    /// Those at which a run is killed for the first time, in the order in which the first trials take them.
    const FIRST: [Self; 5] = [Self::Writing, Self::Complete, Self::Staged, Self::Visible, Self::Retiring];
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Staged => "as output was staged",
            Self::Writing => "while a checkpoint was written",
            Self::Complete => "as a checkpoint was complete",
            Self::Visible => "as output became visible",
            Self::Retiring => "as an old checkpoint was removed",
            Self::Restoring => "while the state was restored",
        })
    }
}

/// When to kill. Shares are of the time that an uninterrupted run takes, and count from the start of the process.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "when", rename_all = "snake_case")]
pub(super) enum Moment {
    /// After this share.
    Random {
        /// The share.
        share: f64,
    },
    /// The first time, after this share, that something is seen.
    Point {
        /// What.
        point: Point,
        /// The share.
        after: f64,
    },
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random { .. } => f.write_str("at a random moment"),
            Self::Point { point, .. } => point.fmt(f),
        }
    }
}

/// A run from the start to the end of its input, killed on its way.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TrialPlan {
    /// Counted from 1.
    pub(super) number: u32,
    /// When; at least one.
    pub(super) kills: Vec<Moment>,
}

/// The plan of one trial, with no more than `kills_left` kills.
pub(super) fn trial(seed: u64, number: u32, kills_left: u32) -> TrialPlan {
    let mut random = Random::new(seed, u64::from(number));
    let first = if number % 2 == 1 {
        Moment::Random { share: random.share(0.03, 0.97) }
    } else {
        let turn = (u64::from(number / 2) + seed) as usize % Point::FIRST.len();
        Moment::Point { point: Point::FIRST[turn], after: random.share(0.05, 0.8) }
    };
    let mut kills = vec![first];
    if number.is_multiple_of(TRIALS_PER_SERIES) {
        let more = 1 + random.below(u64::from(KILLS_IN_A_ROW_MAX - 1)) as u32;
        kills.extend((0..more).map(|_| next_in_a_row(&mut random)));
    }
    kills.truncate(kills_left.max(1) as usize);
    TrialPlan { number, kills }
}

/// A kill that comes soon after the restart that the one before made necessary.
fn next_in_a_row(random: &mut Random) -> Moment {
    match random.below(3) {
        0 => Moment::Point { point: Point::Restoring, after: 0.0 },
        1 => Moment::Point { point: Point::Writing, after: 0.0 },
        _ => Moment::Random { share: random.share(0.01, 0.3) },
    }
}

/// What of a stored checkpoint is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Target {
    /// The checkpoint's own manifest.
    Manifest,
    /// A table of the database, which holds the windows.
    Table,
    /// Which of the database's manifests counts.
    Current,
    /// The database's list of its tables.
    DatabaseManifest,
    /// The database's settings.
    Options,
    /// Any other file of the checkpoint.
    Other,
    /// Whose state it is.
    Lineage,
    /// Output that the checkpoint has still to make visible.
    Staged,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Manifest => "manifest of the checkpoint",
            Self::Table => "table of the database",
            Self::Current => "CURRENT of the database",
            Self::DatabaseManifest => "MANIFEST of the database",
            Self::Options => "OPTIONS of the database",
            Self::Other => "other file of the checkpoint",
            Self::Lineage => "LINEAGE of the state directory",
            Self::Staged => "staged output",
        })
    }
}

/// How it is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Way {
    /// One bit is turned over.
    Flip,
    /// The end is cut off.
    Truncate,
    /// The file is removed.
    Remove,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flip => "a bit flipped",
            Self::Truncate => "cut short",
            Self::Remove => "removed",
        })
    }
}

/// One damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DamagePlan {
    /// Counted from 1.
    pub(super) number: u32,
    pub(super) target: Target,
    pub(super) way: Way,
    /// Chooses the file among several of a kind.
    pub(super) which: u64,
    /// Chooses the place in the file.
    pub(super) place: u64,
}

/// `count` damages over what there is to damage. Each pair comes once before any comes again, and each target before any
/// comes again.
pub(super) fn damages(seed: u64, count: u32, present: &[(Target, &[Way])]) -> Vec<DamagePlan> {
    let mut random = Random::new(seed, u64::MAX);
    let mut rounds: Vec<Vec<(Target, Way)>> = vec![Vec::new(); 3];
    for (target, ways) in present {
        let turn = random.below(ways.len() as u64) as usize;
        for (round, pairs) in rounds.iter_mut().enumerate().take(ways.len()) {
            pairs.push((*target, ways[(turn + round) % ways.len()]));
        }
    }
    let order: Vec<(Target, Way)> = rounds.into_iter().flatten().collect();
    let pairs = order.iter().cycle().take(if order.is_empty() { 0 } else { count as usize });
    pairs
        .zip(1..)
        .map(|(&(target, way), number)| DamagePlan {
            number,
            target,
            way,
            which: random.next(),
            place: random.next(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAYS: &[Way] = &[Way::Flip, Way::Truncate, Way::Remove];

    #[test]
    fn the_same_seed_gives_the_same_plan_and_another_seed_another() {
        let plan = |seed| (1..=40).map(|number| trial(seed, number, 9)).collect::<Vec<_>>();
        assert_eq!(plan(7), plan(7));
        assert_ne!(plan(7), plan(8));
        let damage = |seed| damages(seed, 30, &[(Target::Table, WAYS), (Target::Staged, &[Way::Flip])]);
        assert_eq!(damage(7), damage(7));
        assert_ne!(damage(7), damage(8));
    }

    #[test]
    fn a_plan_of_twenty_kills_at_random_at_every_point_and_in_a_row() {
        for seed in 0..50 {
            let plan: Vec<TrialPlan> = (1..=20).map(|number| trial(seed, number, 9)).collect();
            for point in Point::FIRST {
                let there = plan.iter().flat_map(|trial| &trial.kills).any(
                    |kill| matches!(kill, Moment::Point { point: found, after } if *found == point && *after < 0.81),
                );
                assert!(there, "seed {seed}: {point:?} is left out");
            }
            let random = plan.iter().filter(|trial| matches!(trial.kills[0], Moment::Random { .. })).count();
            let series = plan.iter().filter(|trial| trial.kills.len() > 1).count();
            assert_eq!((random, series), (10, 5), "seed {seed}");
            assert!(plan.iter().all(|trial| trial.kills.len() <= KILLS_IN_A_ROW_MAX as usize));
        }
    }

    #[test]
    fn a_trial_kills_once_at_least_and_never_more_than_is_left() {
        for number in 1..=40 {
            assert_eq!(trial(3, number, 1).kills.len(), 1);
            assert!(trial(3, number, 2).kills.len() <= 2);
        }
    }

    #[test]
    fn every_target_is_damaged_before_any_is_damaged_again() {
        let present: &[(Target, &[Way])] =
            &[(Target::Manifest, WAYS), (Target::Table, WAYS), (Target::Staged, &[Way::Flip, Way::Truncate])];
        for seed in 0..20 {
            let plan = damages(seed, 8, present);
            let mut first: Vec<Target> = plan[..3].iter().map(|damage| damage.target).collect();
            first.sort();
            assert_eq!(first, [Target::Manifest, Target::Table, Target::Staged]);
            let mut pairs: Vec<(Target, Way)> =
                plan.iter().map(|damage| (damage.target, damage.way)).collect();
            pairs.sort();
            pairs.dedup();
            assert_eq!(pairs.len(), 8, "a pair comes twice before all came: seed {seed}");
            assert!(!pairs.contains(&(Target::Staged, Way::Remove)));
        }
        assert!(damages(1, 5, &[]).is_empty());
    }
}
