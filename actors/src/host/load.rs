//! How busy each arbiter is: where the next run goes, and whether anything is still alive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// How many runs sit on each arbiter.
#[derive(Clone, Debug)]
pub(super) struct Loads {
    seated: Arc<[AtomicUsize]>,
}

impl Loads {
    /// As many empty arbiters.
    pub(super) fn new(arbiters: usize) -> Self {
        Self {
            seated: (0..arbiters).map(|_| AtomicUsize::new(0)).collect(),
        }
    }

    /// A seat on an arbiter with the fewest; the first of several. Two callers at once may both choose it: the
    /// figures even out with the next.
    pub(super) fn seat(&self) -> Seat {
        let arbiter = (0..self.seated.len())
            .min_by_key(|&arbiter| self.seated[arbiter].load(Ordering::Relaxed))
            .unwrap_or(0);
        self.seated[arbiter].fetch_add(1, Ordering::Relaxed);
        Seat {
            loads: self.clone(),
            arbiter,
        }
    }

    /// How many seats of `arbiter` are taken.
    pub(super) fn of(&self, arbiter: usize) -> usize {
        self.seated
            .get(arbiter)
            .map_or(0, |seated| seated.load(Ordering::Relaxed))
    }
}

/// A place on one arbiter; held while a run lives there, so that the next run goes where there is less to do.
#[derive(Debug)]
pub struct Seat {
    loads: Loads,
    arbiter: usize,
}

impl Seat {
    /// The arbiter's index, for [`super::HostRuntime::run_on`].
    pub fn arbiter(&self) -> usize {
        self.arbiter
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.loads.seated[self.arbiter].fetch_sub(1, Ordering::Relaxed);
    }
}

/// Rings when somebody watches and a count has come to zero.
#[derive(Debug, Default)]
pub(super) struct Bell {
    is_watched: AtomicBool,
    rung: Notify,
}

impl Bell {
    /// Waits until all `counts` are zero or the grace is over, by tokio's clock; who asked reads them next.
    #[allow(clippy::disallowed_methods)] // what ends a host is no actor
    pub(super) async fn quiet_within(&self, grace: Duration, counts: &[Arc<Count>]) {
        if !grace.is_zero() {
            // In time or not: the counts tell.
            let _: Result<(), _> = tokio::time::timeout(grace, self.all_quiet(counts)).await;
        }
    }

    /// Never ends if they never are.
    async fn all_quiet(&self, counts: &[Arc<Count>]) {
        self.is_watched.store(true, Ordering::SeqCst);
        loop {
            // Two looks: what moved from a count not yet read to one read already is seen by the second.
            if (0..2).all(|_| counts.iter().all(|count| count.alive() == 0)) {
                return;
            }
            self.rung.notified().await;
        }
    }
}

/// How many of one kind are alive. One an arbiter, so that arbiters share no cache line on the way of a spawn.
#[derive(Debug)]
pub(super) struct Count {
    alive: AtomicUsize,
    bell: Arc<Bell>,
}

impl Count {
    /// None alive.
    pub(super) fn new(bell: &Arc<Bell>) -> Arc<Self> {
        Arc::new(Self {
            alive: AtomicUsize::new(0),
            bell: Arc::clone(bell),
        })
    }

    /// One more, until [`Count::leave`].
    pub(super) fn enter(&self) {
        self.alive.fetch_add(1, Ordering::SeqCst);
    }

    /// One less.
    pub(super) fn leave(&self) {
        if self.alive.fetch_sub(1, Ordering::SeqCst) == 1 && self.bell.is_watched.load(Ordering::SeqCst) {
            self.bell.rung.notify_one();
        }
    }

    /// How many are alive.
    pub(super) fn alive(&self) -> usize {
        self.alive.load(Ordering::SeqCst)
    }

    /// One more, until the guard is dropped.
    pub(super) fn guard(self: &Arc<Self>) -> Counted {
        self.enter();
        Counted(Arc::clone(self))
    }
}

/// One that is counted as alive.
#[derive(Debug)]
pub(super) struct Counted(Arc<Count>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seat_is_on_the_least_loaded_arbiter_and_is_given_back() {
        let loads = Loads::new(3);
        let seats: Vec<Seat> = (0..6).map(|_| loads.seat()).collect();
        let order: Vec<usize> = seats.iter().map(Seat::arbiter).collect();
        assert_eq!(order, [0, 1, 2, 0, 1, 2]);
        drop(seats.into_iter().filter(|seat| seat.arbiter() == 1).collect::<Vec<_>>());
        assert_eq!(loads.seat().arbiter(), 0, "everything was given back");
        assert_eq!(loads.of(1), 0);
    }

    #[test]
    fn a_seat_given_back_is_the_next_one_taken() {
        let loads = Loads::new(2);
        let first = loads.seat();
        let _second = loads.seat();
        drop(first);
        assert_eq!(loads.seat().arbiter(), 0);
    }
}
