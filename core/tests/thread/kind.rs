//! The inputs a walk feeds, and how it draws them.

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

/// The weight of each in the draw, beside the others.
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

/// A small generator.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// From 0 up to, not including, `below`.
    pub(crate) fn below(&mut self, below: usize) -> usize {
        // xorshift64*: a walk must be the same everywhere
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % below.max(1)
    }
}
