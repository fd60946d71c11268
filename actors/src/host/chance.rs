//! A small random generator, implemented here so that a seed produces one order forever, independent of library versions.

use std::cell::Cell;

/// `SplitMix64`: one word of state, and any seed is suitable. Not cryptographically secure.
#[derive(Debug)]
pub struct Chance {
    state: Cell<u64>,
}

impl Chance {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self { state: Cell::new(seed) }
    }

    /// Returns the next number.
    pub fn next(&self) -> u64 {
        let state = self.state.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.state.set(state);
        mix(state)
    }

    /// Returns the next number, reduced to below `bound`; 0 if `bound` is 0.
    pub fn below(&self, bound: usize) -> usize {
        // The bias of the 128-bit product is too small to affect schedules.
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}

/// Mixes every bit of `word` into the whole result.
pub(super) fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// Derives a seed from `seed` and a name; equal in every process.
pub fn named_seed(seed: u64, name: &str) -> u64 {
    // FNV-1a, followed by the mixer because FNV distributes high bits poorly.
    let hash = name.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    });
    mix(mix(seed) ^ hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_published_sequence() {
        // The reference sequence of SplitMix64 for the seed 1234567.
        let chance = Chance::new(1_234_567);
        let drawn: Vec<u64> = (0..3).map(|_| chance.next()).collect();
        assert_eq!(
            drawn,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    #[test]
    fn a_bounded_draw_returns_every_number_below_the_bound() {
        let chance = Chance::new(7);
        let mut seen = [0_u32; 5];
        for _ in 0..1_000 {
            seen[chance.below(5)] += 1;
        }
        assert!(seen.iter().all(|&count| count > 100), "{seen:?}");
        assert_eq!(chance.below(1), 0);
        assert_eq!(chance.below(0), 0);
    }
}
