//! Real engines under load from many host threads: concurrent starts, cancels, pauses, events and subscribers, all of
//! them counted.
//!
//! The invariants, in every order:
//! 1. Every admitted run ends exactly once and settles; no wait is endless.
//! 2. A run without a host action ends with the status that its workflow defines.
//! 3. A subscriber with a large buffer receives every event, without gaps; one with a small buffer receives each event or
//!    a count that includes it.
//! 4. After shutdown no run, task, call or thread is left.
//! 5. Memory returns to its level after the warm-up rounds.

mod host;
mod ledger;
mod plan;
mod process;
mod round;
mod workload;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use ledger::{Ledger, Violation};
pub use process::resident_kib;

/// The amount of work, and its time.
#[derive(Clone, Debug)]
pub struct Config {
    /// Seed of every plan. It does not determine the scheduling of threads.
    pub seed: u64,
    /// Number of runs in a round.
    pub runs: u64,
    /// Number of rounds; each builds new engines.
    pub rounds: u64,
    /// Time after which no new round starts.
    pub time: Duration,
    /// Number of concurrent engines.
    pub engines: usize,
    /// Number of host threads that start runs, and of those that wait for runs.
    pub hosts: usize,
    /// Time after which a run counts as lost.
    pub patience: Duration,
}

/// Executes rounds until the time is up, `stop` is set or an invariant is violated. Returns the counters.
#[allow(clippy::disallowed_methods)] // real engines live by the real clock
pub fn run(config: &Config, stop: &AtomicBool, mut each: impl FnMut(u64, &Ledger)) -> Ledger {
    let began = Instant::now();
    let mut books = Ledger::default();
    let mut settled_kib = None;
    for number in 0..config.rounds {
        if stop.load(Ordering::Relaxed) || began.elapsed() >= config.time || !books.violations.is_empty() {
            break;
        }
        round::run(config, number, stop, &mut books);
        books.elapsed = began.elapsed();
        books.resident_kib = process::resident_kib();
        if number == WARM_UP {
            settled_kib = books.resident_kib;
        }
        if let (Some(before), Some(now)) = (settled_kib, books.resident_kib)
            && now > before + KEPT_KIB
        {
            books.violate(format!(
                "memory grew from {before} KiB after round {WARM_UP} to {now} KiB after round {number}"
            ));
        }
        each(number, &books);
    }
    books.first_kib = settled_kib;
    books
}

/// Rounds until the allocator has reached its steady state.
const WARM_UP: u64 = 3;
/// Growth of memory allowed after the warm-up: fragmentation, and free memory that the allocator retains for each thread.
const KEPT_KIB: u64 = 64 * 1024;
