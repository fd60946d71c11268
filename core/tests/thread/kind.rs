//! Kinds of inputs for random walks, and how they are drawn.

/// A kind of input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Start,
    Fits,
    Unfit,
    Failed,
    Stale,
    Limit,
    Cancel,
    Pause,
    Resume,
    Triggered,
    Assign,
}

pub(crate) const KINDS: [Kind; 11] = [
    Kind::Start,
    Kind::Fits,
    Kind::Unfit,
    Kind::Failed,
    Kind::Stale,
    Kind::Limit,
    Kind::Cancel,
    Kind::Pause,
    Kind::Resume,
    Kind::Triggered,
    Kind::Assign,
];

/// Relative weights of the kinds.
pub(crate) const WEIGHTS: [(Kind, u64); 11] = [
    (Kind::Fits, 80),
    (Kind::Resume, 6),
    (Kind::Triggered, 5),
    (Kind::Failed, 4),
    (Kind::Pause, 3),
    (Kind::Stale, 3),
    (Kind::Assign, 3),
    (Kind::Limit, 2),
    (Kind::Start, 1),
    (Kind::Unfit, 1),
    (Kind::Cancel, 0),
];

/// Random number generator.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// Returns a number in `0..below`.
    pub(crate) fn below(&mut self, below: usize) -> usize {
        // xorshift64*: a fixed algorithm, so that a seed gives an equal walk on every platform
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % below.max(1)
    }
}
