//! HyperLogLog: how many different hashes there were, from the longest run of zeros in each of 2^p groups of them.
//!
//! While hashes are few they are kept whole, and the count is exact. The estimate is Ertl's improved one ("New
//! cardinality estimation algorithms for HyperLogLog sketches", 2017), which needs none of the bias tables of
//! HyperLogLog++ and holds over the whole range. What a sketch holds depends on the set of hashes only, not on the
//! order or the parts that they came in.

use super::StateError;
use super::bytes::Reader;

/// Least and greatest number of bits that choose a register. The standard error is 1.04 / √2^p.
pub(super) const PRECISION_MIN: u8 = 4;
pub(super) const PRECISION_MAX: u8 = 18;
/// Hashes kept whole at most, however many registers there are: inserting moves those behind.
const HASHES_MAX: usize = 4_096;

const HASHES: u8 = 0;
const REGISTERS: u8 = 1;

/// A set of hashes, or what is kept of a large one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HyperLogLog {
    precision: u8,
    kept: Kept,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kept {
    /// Sorted, at most `hashes_max`.
    Hashes(Vec<u64>),
    /// For each group one more than the number of leading zeros after its number, 0 for none.
    Registers(Box<[u8]>),
}

impl HyperLogLog {
    /// An empty sketch of 2^`precision` registers; the precision is brought between 4 and 18.
    pub(super) fn new(precision: u8) -> Self {
        Self { precision: precision.clamp(PRECISION_MIN, PRECISION_MAX), kept: Kept::Hashes(Vec::new()) }
    }

    /// Eight bytes a hash against one a register: beyond this registers are smaller.
    fn hashes_max(&self) -> usize {
        HASHES_MAX.min((1 << self.precision) / 8)
    }

    /// Adds a hash, all of whose bits must be evenly spread.
    pub(super) fn insert(&mut self, hash: u64) {
        let hashes_max = self.hashes_max();
        match &mut self.kept {
            Kept::Registers(registers) => raise(registers, self.precision, hash),
            Kept::Hashes(hashes) => {
                let Err(at) = hashes.binary_search(&hash) else { return };
                hashes.insert(at, hash);
                if hashes.len() > hashes_max {
                    self.condense();
                }
            }
        }
    }

    fn condense(&mut self) {
        if let Kept::Hashes(hashes) = &self.kept {
            let mut registers = vec![0; 1 << self.precision].into_boxed_slice();
            hashes.iter().for_each(|&hash| raise(&mut registers, self.precision, hash));
            self.kept = Kept::Registers(registers);
        }
    }

    /// Adds what another sketch of the same precision holds; one of another precision is left out.
    pub(super) fn merge(&mut self, other: &Self) {
        if self.precision != other.precision {
            return;
        }
        match &other.kept {
            Kept::Hashes(hashes) => hashes.iter().for_each(|&hash| self.insert(hash)),
            Kept::Registers(theirs) => {
                self.condense();
                if let Kept::Registers(registers) = &mut self.kept {
                    registers.iter_mut().zip(theirs).for_each(|(own, their)| *own = (*own).max(*their));
                }
            }
        }
    }

    /// About how many different hashes were added; exact while they are few.
    pub(super) fn estimate(&self) -> u64 {
        match &self.kept {
            Kept::Hashes(hashes) => hashes.len() as u64,
            Kept::Registers(registers) => estimate(registers, self.precision).round() as u64,
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        match &self.kept {
            Kept::Hashes(hashes) => hashes.capacity() * 8,
            Kept::Registers(registers) => registers.len(),
        }
    }

    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(self.precision);
        match &self.kept {
            Kept::Hashes(hashes) => {
                bytes.push(HASHES);
                hashes.iter().for_each(|hash| bytes.extend_from_slice(&hash.to_le_bytes()));
            }
            Kept::Registers(registers) => {
                bytes.push(REGISTERS);
                bytes.extend_from_slice(registers);
            }
        }
    }

    /// Reads a sketch of `precision` that takes all the bytes left.
    pub(super) fn decode(reader: &mut Reader<'_>, precision: u8) -> Result<Self, StateError> {
        let mut sketch = Self::new(precision);
        if reader.byte()? != sketch.precision {
            return Err(StateError("the sketch has another precision"));
        }
        let kind = reader.byte()?;
        let body = reader.take(reader.0.len())?;
        sketch.kept = match kind {
            HASHES => {
                let (chunks, []) = body.as_chunks::<8>() else {
                    return Err(StateError("a hash is cut off"));
                };
                let hashes: Vec<u64> = chunks.iter().map(|chunk| u64::from_le_bytes(*chunk)).collect();
                if hashes.len() > sketch.hashes_max() || !hashes.is_sorted_by(|a, b| a < b) {
                    return Err(StateError("the hashes are too many or not in order"));
                }
                Kept::Hashes(hashes)
            }
            REGISTERS if body.len() == 1 << sketch.precision => {
                if body.iter().any(|&register| register > rank_max(sketch.precision)) {
                    return Err(StateError("a register is too high"));
                }
                Kept::Registers(body.into())
            }
            _ => return Err(StateError("the sketch is of no known kind")),
        };
        Ok(sketch)
    }
}

fn rank_max(precision: u8) -> u8 {
    64 - precision + 1
}

fn raise(registers: &mut [u8], precision: u8, hash: u64) {
    let group = (hash >> (64 - precision)) as usize;
    let rank = ((hash << precision).leading_zeros() as u8 + 1).min(rank_max(precision));
    if let Some(register) = registers.get_mut(group) {
        *register = (*register).max(rank);
    }
}

/// Ertl's estimator, over the numbers of registers of each height.
fn estimate(registers: &[u8], precision: u8) -> f64 {
    let mut heights = [0_u32; 66];
    registers.iter().for_each(|&register| heights[usize::from(register).min(65)] += 1);
    let m = registers.len() as f64;
    let highest = usize::from(rank_max(precision));
    let mut z = m * tau(1.0 - f64::from(heights[highest]) / m);
    for &registers in heights[1..highest].iter().rev() {
        z = 0.5 * (z + f64::from(registers));
    }
    z += m * sigma(f64::from(heights[0]) / m);
    m * m / (2.0 * std::f64::consts::LN_2 * z)
}

fn sigma(mut x: f64) -> f64 {
    if x >= 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z <= before {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x).powi(2) * y;
        if z >= before {
            return z / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sketch(precision: u8, numbers: std::ops::Range<u64>) -> HyperLogLog {
        let mut sketch = HyperLogLog::new(precision);
        numbers.for_each(|number| sketch.insert(xxhash_rust::xxh3::xxh3_64(&number.to_le_bytes())));
        sketch
    }

    #[test]
    fn estimates_are_within_four_standard_errors_at_every_size() {
        for precision in [8, 12, 14, 18] {
            let error = 1.04 / f64::from(1_u32 << precision).sqrt();
            for size in [1_u64, 30, 100, 1_000, 10_000, 100_000, 400_000] {
                let found = sketch(precision, 0..size).estimate() as f64;
                let off = (found - size as f64).abs() / size as f64;
                assert!(off <= 4.0 * error, "precision={precision} size={size} found={found}");
            }
        }
    }

    #[test]
    fn the_mean_error_over_many_sets_is_the_stated_one() {
        let (sets, size, precision) = (60, 20_000, 12);
        let squares: f64 = (0..sets)
            .map(|set| {
                let found = sketch(precision, set * size..(set + 1) * size).estimate() as f64;
                (found / size as f64 - 1.0).powi(2)
            })
            .sum();
        let standard_error = (squares / sets as f64).sqrt();
        let stated = 1.04 / f64::from(1_u32 << precision).sqrt();
        assert!((0.6 * stated..1.4 * stated).contains(&standard_error), "{standard_error} against {stated}");
    }

    #[test]
    fn few_are_counted_exactly_and_repetition_changes_nothing() {
        assert_eq!(sketch(14, 0..2_048).estimate(), 2_048);
        let (mut once, twice) = (sketch(10, 0..5_000), sketch(10, 0..5_000));
        once.merge(&twice);
        assert_eq!(once, twice);
    }

    #[test]
    fn parts_are_the_whole_across_the_change_of_kind() {
        for sizes in [(10, 20), (100, 300), (1_000, 1_010), (5_000, 9_000)] {
            let whole = sketch(10, 0..sizes.1);
            let (left, right) = (sketch(10, 0..sizes.0), sketch(10, sizes.0 / 2..sizes.1));
            let (mut forward, mut backward) = (left.clone(), right.clone());
            forward.merge(&right);
            backward.merge(&left);
            assert_eq!(forward, whole, "{sizes:?}");
            assert_eq!(backward, whole, "{sizes:?}");
        }
    }
}
