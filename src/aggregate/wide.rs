//! Unsigned integers of 192 bits, for sums of squares of 64-bit integers, and what a variance takes from them.

/// An integer of 192 bits; arithmetic is modulo 2^192, lowest word first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wide([u64; 3]);

impl From<u128> for Wide {
    fn from(value: u128) -> Self {
        Self([value as u64, (value >> 64) as u64, 0])
    }
}

impl Wide {
    pub(super) const fn from_words(words: [u64; 3]) -> Self {
        Self(words)
    }

    pub(super) const fn to_words(self) -> [u64; 3] {
        self.0
    }

    pub(super) fn plus(self, other: Self) -> Self {
        let mut sum = [0; 3];
        let mut carry = false;
        for (at, word) in sum.iter_mut().enumerate() {
            let (partial, first) = self.0[at].overflowing_add(other.0[at]);
            let (whole, second) = partial.overflowing_add(u64::from(carry));
            *word = whole;
            carry = first | second;
        }
        Self(sum)
    }

    fn negated(self) -> Self {
        Self(self.0.map(|word| !word)).plus(Self([1, 0, 0]))
    }

    fn product(a: u128, b: u64) -> Self {
        let low = (a & u128::from(u64::MAX)) * u128::from(b);
        let high = (a >> 64) * u128::from(b) + (low >> 64);
        Self([low as u64, high as u64, (high >> 64) as u64])
    }

    fn as_u128(self) -> Option<u128> {
        let [low, high, 0] = self.0 else { return None };
        Some(u128::from(low) | u128::from(high) << 64)
    }

    fn to_float(self) -> f64 {
        const WORD: f64 = 18_446_744_073_709_551_616.0;
        let [low, middle, high] = self.0.map(|word| word as f64);
        (high * WORD + middle) * WORD + low
    }
}

/// The sum of squared distances from the mean of `count` integers, given their sum and the sum of their squares.
///
/// Taken around the whole part of the mean, where all of it is an exact integer, so that nothing cancels.
pub(super) fn squared_distances(count: u64, sum: i128, squares: Wide) -> f64 {
    let n = i128::from(count);
    // The mean of 64-bit integers is one; the rest is less than the count. A damaged pane may say otherwise: then the
    // result means nothing, as everything here is modulo 2^192.
    let (mean, rest) = (sum.div_euclid(n), sum.rem_euclid(n) as u64);
    let magnitude = mean.unsigned_abs() as u64;
    // Σ(x − m)² = Σx² − 2mΣx + nm², each term below 2^192. Mean and sum are of one sign.
    let cross = Wide::product(sum.unsigned_abs(), magnitude);
    let around = squares.plus(cross.plus(cross).negated());
    let around = around.plus(Wide::product(u128::from(magnitude).pow(2), count));
    // Σ(x − mean)² = Σ(x − m)² − rest²/n.
    let correction = u128::from(rest).pow(2);
    match around.as_u128().and_then(|around| around.checked_mul(u128::from(count))) {
        Some(scaled) => scaled.saturating_sub(correction) as f64 / count as f64,
        None => around.to_float() - correction as f64 / count as f64,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn distances(values: &[i64]) -> f64 {
        let sum = values.iter().map(|&value| i128::from(value)).sum();
        let square = |&value: &i64| Wide::from(u128::from(value.unsigned_abs()).pow(2));
        let squares = values.iter().map(square).fold(Wide::default(), Wide::plus);
        squared_distances(values.len() as u64, sum, squares)
    }

    #[test]
    fn large_values_close_together_keep_their_variance() {
        assert_eq!(distances(&[i64::MAX, i64::MAX - 1, i64::MAX - 2]), 2.0);
        assert_eq!(distances(&[i64::MIN, i64::MIN + 2]), 2.0);
        assert_eq!(distances(&[i64::MIN, i64::MAX]), (2_f64.powi(64) - 1.0).powi(2) / 2.0);
        assert_eq!(distances(&[7; 5]), 0.0);
        assert_eq!(distances(&[i64::MIN; 4]), 0.0);
    }

    #[test]
    fn sums_that_no_events_have_are_told_from_without_overflow() {
        for (count, sum) in [(1, i128::MIN), (1, i128::MAX), (3, -1 << 65), (u64::MAX, i128::MIN)] {
            assert!(!squared_distances(count, sum, Wide::from_words([u64::MAX; 3])).is_nan());
        }
    }

    proptest! {
        #[test]
        fn the_distances_are_those_of_the_definition(values in prop::collection::vec(-1_000_000_i64..1_000_000, 1..30)) {
            let n = values.len() as i128;
            let sum: i128 = values.iter().map(|&value| i128::from(value)).sum();
            // Times n², to stay among integers.
            let exact: i128 = values.iter().map(|&value| (i128::from(value) * n - sum).pow(2)).sum();
            let expected = exact as f64 / (n * n) as f64;
            let found = distances(&values);
            prop_assert!((found - expected).abs() <= expected * 1e-14, "{} {}", found, expected);
        }

        #[test]
        fn any_integers_are_within_rounding_of_floats(values in prop::collection::vec(any::<i64>(), 2..30)) {
            let mean = values.iter().map(|&value| value as f64).sum::<f64>() / values.len() as f64;
            let expected: f64 = values.iter().map(|&value| (value as f64 - mean).powi(2)).sum();
            prop_assert!((distances(&values) - expected).abs() <= expected * 1e-9);
        }
    }
}
