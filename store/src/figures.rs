//! Figures of what a store has written: counted where it becomes durable, read from any thread.

use std::sync::atomic::{AtomicU64, Ordering};

/// Upper bounds of the classes of batches: the last is the most writes that any store makes durable together.
pub const BATCH_BOUNDS: [u64; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

/// The writes of a store since it was opened. A write is a commit, a removal, or a change of what the engine keeps of itself;
/// one that was refused is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreFigures {
    /// Number of writes that became durable.
    pub writes: u64,
    /// Number of batches, each made durable by one sync, by the writes in it: each up to the bound of [`BATCH_BOUNDS`] in its
    /// place, and above the one before it.
    pub batches: [u64; BATCH_BOUNDS.len()],
}

/// Counters of a store's writes. Each is right for itself: who reads them while a batch is counted may see a part of it.
#[derive(Debug, Default)]
pub struct StoreMeter {
    writes: AtomicU64,
    batches: [AtomicU64; BATCH_BOUNDS.len()],
}

impl StoreMeter {
    /// A batch of so many writes is durable. One without any needs no sync.
    pub fn durable(&self, writes: u64) {
        if writes > 0 {
            self.writes.fetch_add(writes, Ordering::Relaxed);
            self.batches[place(writes)].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The counts so far.
    pub fn figures(&self) -> StoreFigures {
        StoreFigures {
            writes: self.writes.load(Ordering::Relaxed),
            batches: std::array::from_fn(|place| self.batches[place].load(Ordering::Relaxed)),
        }
    }
}

/// The place of a batch of so many writes.
fn place(writes: u64) -> usize {
    let below = BATCH_BOUNDS.iter().take_while(|bound| **bound < writes).count();
    below.min(BATCH_BOUNDS.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_stands_at_the_first_bound_that_it_does_not_exceed() {
        for (writes, at) in [
            (1, 0),
            (2, 1),
            (3, 2),
            (4, 2),
            (5, 3),
            (513, 10),
            (1024, 10),
            (5_000, 10),
        ] {
            assert_eq!(place(writes), at, "{writes}");
        }
        let meter = StoreMeter::default();
        for writes in [0, 1, 3, 4] {
            meter.durable(writes);
        }
        let figures = meter.figures();
        assert_eq!((figures.writes, &figures.batches[..3]), (8, &[1, 0, 2][..]));
    }
}
