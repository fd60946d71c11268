//! Interruption of snippets by their time limit or by a stop flag.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::StopFlag;
use crate::deadline::{computed, now};

/// Reasons of an interruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interruption {
    TimeIsUp,
    Stopped,
}

/// The interrupt handler, which QuickJS polls while it runs a snippet.
#[derive(Debug)]
pub(crate) struct Interrupt {
    origin: Instant,
    until: AtomicU64,
    /// CPU time of the thread, in nanoseconds, at which half of the limit is used.
    half: AtomicU64,
    asked: AtomicU32,
    verdict: AtomicU8,
    stop: Mutex<Option<StopFlag>>,
}

const NEVER: u64 = u64::MAX;

/// Minimum number of polls before the time limit applies, unless the thread has used CPU time for half of the limit. The engine
/// polls about every ten thousand steps, which may be slow ones. This way a short snippet is not interrupted only because a busy
/// machine delays it.
const LEAST_ASKED: u32 = 20;

impl Interrupt {
    pub(crate) fn new() -> Self {
        Self {
            origin: now(),
            until: AtomicU64::new(NEVER),
            half: AtomicU64::new(NEVER),
            asked: AtomicU32::new(0),
            verdict: AtomicU8::new(0),
            stop: Mutex::new(None),
        }
    }

    /// Arms the interrupt: after at most `time`, or by `stop`.
    pub(crate) fn begin(&self, time: Duration, stop: Option<StopFlag>) {
        *self.stop.lock().unwrap_or_else(PoisonError::into_inner) = stop;
        self.verdict.store(0, Ordering::Relaxed);
        self.asked.store(0, Ordering::Relaxed);
        let time = nanos(time);
        let half = computed().map_or(NEVER, |computed| nanos(computed).saturating_add(time / 2));
        self.half.store(half, Ordering::Relaxed);
        let until = self.elapsed().saturating_add(time);
        self.until.store(until, Ordering::Relaxed);
    }

    /// Disarms the interrupt.
    pub(crate) fn end(&self) {
        self.until.store(NEVER, Ordering::Relaxed);
        *self.stop.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Polled by built-in functions after much work; one call counts as several steps. Returns whether to stop.
    pub(crate) fn must_stop_after_much(&self) -> bool {
        self.asked.fetch_add(LEAST_ASKED / 2, Ordering::Relaxed);
        self.must_stop()
    }

    /// Returns whether to stop now.
    pub(crate) fn must_stop(&self) -> bool {
        if self.interruption().is_some() {
            return true;
        }
        let until = self.until.load(Ordering::Relaxed);
        if until == NEVER {
            return false;
        }
        if self
            .stop
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .is_some_and(StopFlag::is_stopped)
        {
            self.verdict.store(2, Ordering::Relaxed);
            return true;
        }
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        if self.elapsed() >= until && (asked >= LEAST_ASKED || self.has_computed_half()) {
            self.verdict.store(1, Ordering::Relaxed);
            return true;
        }
        false
    }

    /// Returns the reason of an interruption since the interrupt was armed.
    pub(crate) fn interruption(&self) -> Option<Interruption> {
        match self.verdict.load(Ordering::Relaxed) {
            1 => Some(Interruption::TimeIsUp),
            2 => Some(Interruption::Stopped),
            _ => None,
        }
    }

    fn has_computed_half(&self) -> bool {
        computed().is_some_and(|computed| nanos(computed) >= self.half.load(Ordering::Relaxed))
    }

    fn elapsed(&self) -> u64 {
        nanos(now().saturating_duration_since(self.origin)).min(NEVER - 1)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(NEVER)
}
