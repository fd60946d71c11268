//! Real engines under load from many host threads: starts, cancels, pauses, events and subscribers at once, and the
//! books kept of all of it.
//!
//! The invariants, whatever the order:
//! 1. Every run that was admitted ends, exactly once, and settles; nobody waits for ever.
//! 2. A run nobody meddled with ends as its workflow says.
//! 3. A subscriber with room hears every event, without gap; one without room hears or misses each of them.
//! 4. After shutdown no run, task, call or thread is left.
//! 5. Memory comes back to where it was once an engine had its first rounds.

mod host;
mod ledger;
mod plan;
mod process;
mod round;
mod workload;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use ledger::{Ledger, Violation};

/// The amount of work, and its time.
#[derive(Clone, Debug)]
pub struct Config {
    /// Decides every plan; the order in which threads get their turn is the machine's.
    pub seed: u64,
    /// Runs of one round.
    pub runs: u64,
    /// Rounds; each has engines of its own.
    pub rounds: u64,
    /// No new round after this long.
    pub time: Duration,
    /// Engines at once.
    pub engines: usize,
    /// Host threads that start runs, and as many that wait for them.
    pub hosts: usize,
    /// A run that takes longer than this has got lost.
    pub patience: Duration,
}

/// Rounds until the time is up, `stop` says so, or something is violated; what was counted.
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

/// Rounds until the allocator has what it keeps.
const WARM_UP: u64 = 3;
/// Memory that may stay beyond that: fragments, and what the allocator holds back for its threads.
const KEPT_KIB: u64 = 64 * 1024;
