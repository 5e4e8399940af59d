//! Weighted choice in constant time (Vose's alias method), and the weights of Zipf's law from exact arithmetic.
//!
//! The platform's `powf` and `ln` may differ in the last bit, and with it a whole stream; the four basic operations
//! do not, so powers are computed from them.

use super::random::Random;

/// One of two answers per slot: the slot itself below its limit, else the other.
#[derive(Clone, Copy, Debug)]
struct Slot {
    limit: u64,
    other: u32,
}

/// A choice among weighted answers.
#[derive(Debug)]
pub(super) struct Choice {
    slots: Vec<Slot>,
}

impl Choice {
    /// A choice of `index` with weight `weights[index]`; all are above zero.
    pub(super) fn new(weights: Vec<f64>) -> Self {
        let total: f64 = weights.iter().sum();
        let count = weights.len() as f64;
        let mut shares: Vec<f64> = weights.into_iter().map(|weight| weight / total * count).collect();
        let mut slots: Vec<Slot> =
            (0..shares.len()).map(|own| Slot { limit: u64::MAX, other: own as u32 }).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..shares.len()).partition(|&index| shares[index] < 1.0);
        while let (Some(&giver), Some(taker)) = (large.last(), small.pop()) {
            slots[taker] = Slot { limit: fraction(shares[taker]), other: giver as u32 };
            shares[giver] -= 1.0 - shares[taker];
            if shares[giver] < 1.0 {
                large.pop();
                small.push(giver);
            }
        }
        Self { slots }
    }

    /// A choice among `count` ranks by Zipf's law.
    pub(super) fn zipf(count: u64, exponent: f64) -> Self {
        Self::new((1..=count).map(|rank| power(rank as f64, -exponent)).collect())
    }

    #[inline]
    pub(super) fn draw(&self, random: &mut Random) -> usize {
        let index = random.below(self.slots.len() as u64) as usize;
        let slot = self.slots[index];
        if random.next() < slot.limit || slot.limit == u64::MAX { index } else { slot.other as usize }
    }
}

/// A yes or no of a given probability, which draws nothing when the answer is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    limit: u64,
}

impl Share {
    pub(super) fn new(share: f64) -> Self {
        Self { limit: fraction(share) }
    }

    #[inline]
    pub(super) fn hits(self, random: &mut Random) -> bool {
        match self.limit {
            0 => false,
            u64::MAX => true,
            limit => random.next() < limit,
        }
    }
}

/// A share of the 64-bit range; the product is exact but for the last bits, on every platform alike.
fn fraction(share: f64) -> u64 {
    (share * 18_446_744_073_709_551_616.0) as u64
}

/// `base^exponent` for a base of at least one.
fn power(base: f64, exponent: f64) -> f64 {
    exponential(exponent * logarithm(base))
}

/// Natural logarithm: the power of two apart, then the series of 2·artanh((m−1)/(m+1)) for m in [1, 2).
fn logarithm(value: f64) -> f64 {
    let bits = value.to_bits();
    let twos = ((bits >> 52) & 0x7ff) as f64 - 1_023.0;
    let mantissa = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) | 0x3ff0_0000_0000_0000);
    let ratio = (mantissa - 1.0) / (mantissa + 1.0);
    let square = ratio * ratio;
    // The ratio is at most 1/3: twenty terms leave less than 10^-20.
    let series = (0..20).rev().fold(0.0, |sum, term| sum * square + 1.0 / f64::from(2 * term + 1));
    twos * std::f64::consts::LN_2 + 2.0 * ratio * series
}

/// e^x: halved until small, then the series, then squared back.
fn exponential(value: f64) -> f64 {
    const HALVINGS: i32 = 10;
    let small = value / f64::from(1 << HALVINGS);
    let series = (1..=12).rev().fold(1.0, |sum, term| 1.0 + sum * small / f64::from(term));
    (0..HALVINGS).fold(series, |power, _| power * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_agree_with_the_platform_closely() {
        for rank in [1.0, 2.0, 3.0, 10.0, 999.0, 1e6, 67_108_864.0] {
            for exponent in [0.0, -0.5, -0.99, -1.0, -1.7, -3.0] {
                let expected = f64::powf(rank, exponent);
                assert!((power(rank, exponent) / expected - 1.0).abs() < 1e-11, "{rank}^{exponent}");
            }
        }
    }

    #[test]
    fn choices_come_as_often_as_they_weigh() {
        let choice = Choice::new(vec![0.5, 0.3, 0.15, 0.05]);
        let (mut random, mut counts) = (Random::new(9), [0_u32; 4]);
        (0..100_000).for_each(|_| counts[choice.draw(&mut random)] += 1);
        for (count, expected) in counts.into_iter().zip([50_000, 30_000, 15_000, 5_000_u32]) {
            assert!(count.abs_diff(expected) < 600, "{counts:?}");
        }
    }
}
