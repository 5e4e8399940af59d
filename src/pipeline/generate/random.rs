//! Our own random numbers: xoshiro256++ seeded by SplitMix64, so that no library upgrade changes a stream.

/// Expands one seed into well-mixed words (Steele, Lea, Flood 2014).
#[derive(Debug)]
pub(super) struct SplitMix64(pub(super) u64);

impl SplitMix64 {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// xoshiro256++ 1.0 (Blackman, Vigna 2019).
#[derive(Debug)]
pub(super) struct Random {
    state: [u64; 4],
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        let mut mixer = SplitMix64(seed);
        Self { state: [mixer.next(), mixer.next(), mixer.next(), mixer.next()] }
    }

    #[inline]
    pub(super) fn next(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// A number below `bound`, which is not zero. Its bias is below 2^-64 times the bound.
    #[inline]
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number of the closed range, which is not empty.
    #[inline]
    pub(super) fn between(&mut self, min: i64, max: i64) -> i64 {
        match (max.wrapping_sub(min) as u64).checked_add(1) {
            Some(count) => min.wrapping_add(self.below(count) as i64),
            None => self.next() as i64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_published_algorithms() {
        let mut mixer = SplitMix64(1_234_567);
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!([(); 5].map(|()| mixer.next()), expected);
        let mut random = Random { state: [1, 2, 3, 4] };
        let expected = [
            41_943_041,
            58_720_359,
            3_588_806_011_781_223,
            3_591_011_842_654_386,
            9_228_616_714_210_784_205,
            9_973_669_472_204_895_162,
        ];
        assert_eq!([(); 6].map(|()| random.next()), expected);
    }

    #[test]
    fn ranges_include_both_ends() {
        let mut random = Random::new(1);
        let drawn: Vec<_> = (0..200).map(|_| random.between(-2, 1)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&-2), Some(&1)));
        random.between(i64::MIN, i64::MAX);
        assert_eq!(random.between(5, 5), 5);
    }
}
