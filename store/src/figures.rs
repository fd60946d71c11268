//! Write counters of a store, readable from any thread.

use std::sync::atomic::{AtomicU64, Ordering};

/// Upper bounds of the histogram of batch sizes. The last is the largest batch of any store.
pub const BATCH_BOUNDS: [u64; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

/// Counters since the store was opened. A write is a commit, a removal, or a change of metadata. Refused commands
/// are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreFigures {
    /// Number of writes that became durable.
    pub writes: u64,
    /// Number of batches by size, not cumulative: `batches[i]` counts batches of up to `BATCH_BOUNDS[i]` writes and more than
    /// `BATCH_BOUNDS[i - 1]`. Each batch is made durable by one sync.
    pub batches: [u64; BATCH_BOUNDS.len()],
}

/// Counters of a store. They are updated separately: a reader may see one of the two updates of a batch.
#[derive(Debug, Default)]
pub struct StoreMeter {
    writes: AtomicU64,
    batches: [AtomicU64; BATCH_BOUNDS.len()],
}

impl StoreMeter {
    /// Counts a batch of durable writes. An empty batch is not counted: it needs no sync.
    pub fn durable(&self, writes: u64) {
        if writes > 0 {
            // Relaxed, because the counters order nothing and are only read for display.
            self.writes.fetch_add(writes, Ordering::Relaxed);
            self.batches[place(writes)].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the counters.
    pub fn figures(&self) -> StoreFigures {
        StoreFigures {
            writes: self.writes.load(Ordering::Relaxed),
            batches: std::array::from_fn(|place| self.batches[place].load(Ordering::Relaxed)),
        }
    }
}

/// Returns the histogram index of a batch size.
fn place(writes: u64) -> usize {
    let below = BATCH_BOUNDS.iter().take_while(|bound| **bound < writes).count();
    // No batch is larger than the last bound. The minimum only keeps the index in range.
    below.min(BATCH_BOUNDS.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_counts_in_the_first_bucket_whose_bound_it_does_not_exceed() {
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
