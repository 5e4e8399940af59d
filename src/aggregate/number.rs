//! Arithmetic that does not depend on the order of events.

/// A running float sum kept as an unevaluated pair of doubles, about 106 bits wide.
///
/// Adding in another order, or merging partial sums, changes the pair only far below the last bit of the result,
/// so `1e16 + 1 − 1e16` is 1 in every order. Once a value or the sum is not finite, the sum is what plain
/// addition says: infinite or NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExactFloat {
    high: f64,
    low: f64,
}

impl ExactFloat {
    /// The empty sum.
    pub const ZERO: Self = Self { high: 0.0, low: 0.0 };

    /// A sum from its two words, as [`ExactFloat::to_words`] gave them.
    #[must_use]
    pub const fn from_words(words: [u64; 2]) -> Self {
        Self { high: f64::from_bits(words[0]), low: f64::from_bits(words[1]) }
    }

    /// The two words that are stored.
    #[must_use]
    pub const fn to_words(self) -> [u64; 2] {
        [self.high.to_bits(), self.low.to_bits()]
    }

    /// The same sum in words as additions leave them, whatever they were: then it goes on in the same way, merged with
    /// others before or not.
    pub(super) fn normalised(self) -> Self {
        let (high, low) = two_sum(self.high, self.low);
        Self::renormalised(high + 0.0, low)
    }

    /// The square of a value, exact unless it is beyond the range of doubles.
    #[must_use]
    pub fn square(value: f64) -> Self {
        let high = value * value;
        if !high.is_finite() {
            return Self { high, low: 0.0 };
        }
        Self { high, low: value.mul_add(value, -high) }
    }

    /// This sum and one more value.
    #[must_use]
    pub fn plus(self, value: f64) -> Self {
        let (sum, error) = two_sum(self.high, value);
        Self::renormalised(sum, self.low + error)
    }

    /// Two sums as one.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        let (sum, error) = two_sum(self.high, other.high);
        let (low, low_error) = two_sum(self.low, other.low);
        let first = Self::renormalised(sum, error + low);
        Self::renormalised(first.high, first.low + low_error)
    }

    /// The nearest double.
    #[must_use]
    pub fn value(self) -> f64 {
        if self.high.is_nan() { f64::NAN } else { self.high + self.low }
    }

    /// This sum times itself.
    pub(super) fn squared(self) -> Self {
        let square = Self::square(self.high);
        Self::renormalised(square.high, square.low + 2.0 * self.high * self.low)
    }

    /// This sum divided by a number.
    pub(super) fn divided_by(self, divisor: f64) -> Self {
        let high = self.high / divisor;
        if !high.is_finite() {
            return Self { high, low: 0.0 };
        }
        // What is left of the dividend is exact: one multiplication with one rounding.
        let rest = high.mul_add(-divisor, self.high) + self.low;
        Self::renormalised(high, rest / divisor)
    }

    /// The sum with the other sign.
    pub(super) fn negated(self) -> Self {
        Self { high: -self.high, low: -self.low }
    }

    fn renormalised(high: f64, low: f64) -> Self {
        if !high.is_finite() {
            // The error term of an infinite sum is meaningless; keep what plain addition says.
            let high = if high.is_nan() { f64::NAN } else { high };
            return Self { high, low: 0.0 };
        }
        let sum = high + low;
        if !sum.is_finite() {
            return Self { high: sum, low: 0.0 };
        }
        Self { high: sum, low: low - (sum - high) }
    }
}

fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let b_part = sum - a;
    let error = (a - (sum - b_part)) + (b - b_part);
    (sum, error)
}

/// The smaller float under the project's rule: NaN only when both are, −0.0 before +0.0.
pub(super) fn float_min(a: f64, b: f64) -> f64 {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => f64::NAN,
        (true, false) => b,
        (false, true) => a,
        (false, false) => {
            if b.total_cmp(&a).is_lt() {
                b
            } else {
                a
            }
        }
    }
}

/// The larger float under the same rule.
pub(super) fn float_max(a: f64, b: f64) -> f64 {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => f64::NAN,
        (true, false) => b,
        (false, true) => a,
        (false, false) => {
            if b.total_cmp(&a).is_gt() {
                b
            } else {
                a
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sum(values: &[f64]) -> f64 {
        values.iter().fold(ExactFloat::ZERO, |sum, &value| sum.plus(value)).value()
    }

    #[test]
    fn cancellation_is_exact_in_every_order() {
        let orders: [[f64; 3]; 6] = [
            [1e16, 1.0, -1e16],
            [1e16, -1e16, 1.0],
            [1.0, 1e16, -1e16],
            [1.0, -1e16, 1e16],
            [-1e16, 1.0, 1e16],
            [-1e16, 1e16, 1.0],
        ];
        for order in orders {
            assert_eq!(sum(&order), 1.0, "{order:?}");
            let split = sum_of(&order[..1]).merge(sum_of(&order[1..]));
            assert_eq!(split.value(), 1.0, "{order:?}");
        }
    }

    fn sum_of(values: &[f64]) -> ExactFloat {
        values.iter().fold(ExactFloat::ZERO, |sum, &value| sum.plus(value))
    }

    #[test]
    fn infinities_and_nan_are_what_addition_says() {
        assert_eq!(sum(&[1.0, f64::INFINITY, 2.0]), f64::INFINITY);
        assert!(sum(&[f64::INFINITY, f64::NEG_INFINITY]).is_nan());
        assert!(sum(&[f64::NAN, 1.0]).is_nan());
        assert_eq!(sum(&[f64::MAX, f64::MAX]), f64::INFINITY);
    }

    #[test]
    fn words_that_no_addition_leaves_are_put_right() {
        let sum = |high, low| ExactFloat { high, low };
        assert_eq!(sum(0.0, 2e45).normalised(), sum(2e45, 0.0));
        assert_eq!(sum(1.0, 1e-30).normalised(), sum(1.0, 1e-30));
        assert_eq!(sum(f64::MAX, f64::MAX).normalised(), sum(f64::INFINITY, 0.0));
        assert!(sum(-0.0, -0.0).normalised().value().is_sign_positive());
        assert!(sum(1.0, f64::NAN).normalised().value().is_nan());
    }

    #[test]
    fn nan_and_zeros_follow_the_stated_rule_in_both_orders() {
        assert_eq!(float_min(f64::NAN, 2.0), 2.0);
        assert_eq!(float_min(2.0, f64::NAN), 2.0);
        assert!(float_max(f64::NAN, f64::NAN).is_nan());
        assert!(float_min(0.0, -0.0).is_sign_negative() && float_min(-0.0, 0.0).is_sign_negative());
        assert!(float_max(0.0, -0.0).is_sign_positive() && float_max(-0.0, 0.0).is_sign_positive());
    }

    proptest! {
        #[test]
        fn float_sums_do_not_depend_on_how_they_are_split(
            values in prop::collection::vec(-1e12_f64..1e12, 0..40),
            cut in 0_usize..40,
        ) {
            let cut = cut.min(values.len());
            let split = sum_of(&values[..cut]).merge(sum_of(&values[cut..])).value();
            let mut backwards = values.clone();
            backwards.reverse();
            prop_assert_eq!(split, sum(&values));
            prop_assert_eq!(sum(&backwards), sum(&values));
        }
    }
}
