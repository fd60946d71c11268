//! Chance that comes again with its seed.

/// See the module.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// Below `sides`.
    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % sides
    }
}
