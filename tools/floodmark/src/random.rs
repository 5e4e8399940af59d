//! Random numbers of our own, so that a seed names the same plan and the same stream on every platform.

/// Random numbers of one seed and one purpose (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Numbers for one purpose: another `stream`, other numbers.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut random = Self(seed ^ stream.wrapping_mul(0xa076_1d64_78bd_642f));
        random.next();
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// A number below `bound`; 0 when that is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A share of `from` to `to`.
    pub(crate) fn share(&mut self, from: f64, to: f64) -> f64 {
        from + (to - from) * (self.below(1 << 20) as f64 / (1 << 20) as f64)
    }

    /// A number from 0 to 1, without the ends: one of 2^53.
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }
}

/// A number that looks random, always the same for the same `number`.
pub(crate) const fn mixed(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_names_its_numbers_and_units_leave_out_both_ends() {
        let drawn = |seed, stream| {
            let mut random = Random::new(seed, stream);
            [random.next(), random.next()]
        };
        assert_eq!(drawn(7, 1), drawn(7, 1));
        assert!(drawn(7, 1) != drawn(7, 2) && drawn(7, 1) != drawn(8, 1));
        let mut random = Random::new(1, 1);
        let units: Vec<f64> = (0..10_000).map(|_| random.unit()).collect();
        assert!(units.iter().all(|&unit| unit > 0.0 && unit < 1.0));
        assert!((units.iter().sum::<f64>() / 10_000.0 - 0.5).abs() < 0.02);
    }
}
