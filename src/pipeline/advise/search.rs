//! Which delays are tried: round ones, first at the quantiles of lateness, then ever closer to the smallest that keeps to
//! the loss budget. Pure.

use crate::event_time::Span;
use crate::operator::Distribution;

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// Lengths up to the first are rounded to multiples of the second.
const ROUNDING: [(i64, i64); 8] = [
    (100, 1),
    (SECOND, 10),
    (10 * SECOND, 100),
    (MINUTE, SECOND),
    (10 * MINUTE, 5 * SECOND),
    (HOUR, MINUTE),
    (6 * HOUR, 5 * MINUTE),
    (DAY, 15 * MINUTE),
];
/// What is longer is rounded to this, or from ten days on to a quarter of a day.
const ROUNDING_DAYS: i64 = HOUR;
const ROUNDING_LONG: i64 = 6 * HOUR;

/// Delays tried in one reading of the input.
pub(super) const TRIED_AT_ONCE: usize = 8;

/// The next length, at or above, that people would write: at most a tenth longer, from a second on.
pub(super) fn round_up(millis: i64) -> i64 {
    let millis = millis.max(0);
    let (_, unit) = ROUNDING
        .into_iter()
        .find(|&(up_to, _)| millis <= up_to)
        .unwrap_or((i64::MAX, if millis <= 10 * DAY { ROUNDING_DAYS } else { ROUNDING_LONG }));
    match millis % unit {
        0 => millis,
        rest => millis.saturating_add(unit - rest),
    }
}

/// The delays that are tried first unless others are asked for: none, and those that the quantiles of lateness suggest.
pub(super) fn suggested(lateness: &Distribution) -> Vec<i64> {
    const PER_10_000: [u32; 6] = [5_000, 9_000, 9_500, 9_900, 9_990, 10_000];
    let quantiles = PER_10_000.map(|share| round_up(lateness.quantile(share)));
    let mut delays: Vec<i64> = [0].into_iter().chain(quantiles).collect();
    delays.sort_unstable();
    delays.dedup();
    delays
}

/// Round delays between one that loses too much and one that does not, to be tried next; none when nothing round lies
/// between.
pub(super) fn between(too_short: i64, long_enough: i64) -> Vec<i64> {
    let parts = TRIED_AT_ONCE as i64 + 1;
    let width = long_enough.saturating_sub(too_short);
    let inner = |part: i64| {
        let share = i128::from(width) * i128::from(part) / i128::from(parts);
        round_up(too_short.saturating_add(i64::try_from(share).unwrap_or(i64::MAX)))
    };
    let mut delays: Vec<i64> = (1..parts).map(inner).collect();
    // The next round one is a candidate however narrow the gap has become.
    delays.push(round_up(too_short.saturating_add(1)));
    delays.retain(|&delay| too_short < delay && delay < long_enough);
    delays.sort_unstable();
    delays.dedup();
    delays.truncate(TRIED_AT_ONCE);
    delays
}

/// A delay as a span.
pub(super) fn span(millis: i64) -> Span {
    Span::from_millis(millis).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_delays_are_hardly_longer_and_never_shorter() {
        for (millis, round) in [
            (-5, 0),
            (0, 0),
            (7, 7),
            (101, 110),
            (59_000, 59_000),
            (59_001, 60_000),
            (60_001, 65_000),
            (5_100_000, 5_100_000),
            (5_100_001, 5_400_000),
            (26 * HOUR + 1, 27 * HOUR),
            (11 * DAY + 1, 11 * DAY + 6 * HOUR),
        ] {
            assert_eq!(round_up(millis), round, "{millis}");
        }
        assert_eq!(round_up(i64::MAX), i64::MAX);
        for millis in (1_000..100_000_000).step_by(7_919) {
            let round = round_up(millis);
            assert!(round >= millis && round <= millis + millis / 10, "{millis}: {round}");
            assert_eq!(round_up(round), round, "{millis}");
        }
    }

    #[test]
    fn a_search_closes_in_until_nothing_round_is_left_between() {
        for least in [1, 3, 999, 61_000, 5_000_000, 100 * HOUR, 25 * DAY] {
            let (mut too_short, mut long_enough) = (0, 60 * DAY);
            let mut readings = 0;
            loop {
                let tried = between(too_short, long_enough);
                assert!(tried.len() <= TRIED_AT_ONCE);
                let Some(&last) = tried.last() else { break };
                assert!(tried[0] > too_short && last < long_enough);
                long_enough = tried.iter().copied().find(|&delay| delay >= least).unwrap_or(long_enough);
                too_short = tried.iter().copied().rfind(|&delay| delay < least).unwrap_or(too_short);
                readings += 1;
            }
            assert_eq!(long_enough, round_up(least));
            assert!(readings <= 12, "{least}: {readings}");
        }
    }

    #[test]
    fn what_is_tried_first_follows_the_quantiles() {
        let late = Distribution::of(1_000, (0..400).map(|at| at * 1_000).collect());
        assert_eq!(suggested(&late), [0, 300_000, 350_000, 390_000, 400_000].map(|ms| ms));
        assert_eq!(suggested(&Distribution::default()), [0]);
    }
}
