//! Replays of stored runs, and explorations: a limited number at a time, on blocking threads.
//!
//! A replay takes time proportional to the run's steps, and rebuilds all of the run's values in memory.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::http::problem::{Problem, ProblemCode};
use crate::limits::Limits;

/// Limits concurrent replays, or concurrent explorations.
#[derive(Clone)]
pub(crate) struct Replays {
    places: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    limit: usize,
    /// Code and subject of the refusal when too many requests wait.
    refusal: (ProblemCode, &'static str),
}

impl Replays {
    pub(crate) fn new(limits: &Limits) -> Self {
        let refusal = (ProblemCode::TooManyReplays, "a stored run to be replayed");
        Self::of((limits.replays, limits.replays_waiting), refusal)
    }

    /// Creates the limits of explorations, which take longer: they must not delay the replays that a page needs.
    pub(crate) fn explorations(limits: &Limits) -> Self {
        let refusal = (ProblemCode::TooManyExplorations, "the orders of a workflow");
        Self::of((limits.explorations, limits.explorations_waiting), refusal)
    }

    fn of((at_once, waiting): (usize, usize), refusal: (ProblemCode, &'static str)) -> Self {
        let at_once = at_once.clamp(1, Semaphore::MAX_PERMITS / 2);
        let waiting = waiting.min(Semaphore::MAX_PERMITS / 2);
        Self {
            places: Arc::new(Semaphore::new(at_once)),
            waiting: Arc::new(Semaphore::new(at_once + waiting)),
            limit: waiting,
            refusal,
        }
    }

    /// Runs `work`, which may replay a run, under the limit. Fails if too many requests wait already.
    pub(crate) async fn run<T, F>(&self, work: impl FnOnce() -> F + Send + 'static) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: Future<Output = T>,
    {
        let runtime = Handle::current();
        self.run_blocking(move || runtime.block_on(work())).await
    }

    /// Like [`Self::run`], for work without async calls.
    pub(crate) async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let Ok(_waits) = self.waiting.try_acquire() else {
            let (code, subject) = self.refusal;
            let detail = format!("{} requests wait for {subject}", self.limit);
            return Err(Problem::new(code, detail).retry_after(1));
        };
        let place = Arc::clone(&self.places).acquire_owned().await;
        let done = tokio::task::spawn_blocking(move || {
            // The permit belongs to the replay: it continues, and counts, even if the request was dropped.
            let _place = place;
            work()
        });
        done.await
            .map_err(|error| Problem::new(ProblemCode::Internal, format!("a replay failed: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn running_and_waiting_replays_stay_within_their_limits() {
        let limits = Limits {
            replays: 2,
            replays_waiting: 3,
            ..Limits::default()
        };
        let replays = Replays::new(&limits);
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let open = Arc::new(Semaphore::new(0));
        let all: Vec<_> = (0..5)
            .map(|_| {
                let (running, most, open) = (Arc::clone(&running), Arc::clone(&most), Arc::clone(&open));
                let replays = replays.clone();
                tokio::spawn(async move {
                    let work = move || async move {
                        most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        let _opened = open.acquire().await.expect("never closed");
                        running.fetch_sub(1, Ordering::SeqCst);
                    };
                    replays.run(work).await
                })
            })
            .collect();
        while running.load(Ordering::SeqCst) < 2 {
            tokio::task::yield_now().await;
        }
        while replays.waiting.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let refused = replays.run(async || ()).await;
        assert_eq!(refused.map_err(|problem| problem.code()), Err("TOO_MANY_REPLAYS"));
        // Enough permits for all of them, because blocking threads start in any order: one permit per awaited task could go to another.
        open.add_permits(5);
        for one in all {
            one.await.expect("a task").expect("a replay");
        }
        assert_eq!(most.load(Ordering::SeqCst), 2);
    }
}
