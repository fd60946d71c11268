//! The control thread of a runtime with arbiters: what lives there, and how it ends.

// This file starts the threads and runtimes that the rest of the crate must not start.
#![allow(clippy::disallowed_methods)]

use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use actix_rt::{Arbiter, System};
use tokio::sync::oneshot;

use super::StopReport;
use super::arbiter::{self, Shared};
use super::load::{Bell, Count};
use super::own_thread::{CARRIES_ACTORS, THREAD_OF};
use super::pool::WorkPool;
use super::runtime::ArbiterDoor;

thread_local! {
    /// Dropped when the arbiter's thread ends, after all its tasks.
    static GONE: RefCell<Option<Sender<()>>> = const { RefCell::new(None) };
}

/// What the control thread holds.
pub(super) struct Control {
    system: actix_rt::SystemRunner,
    arbiters: Vec<(Arbiter, Receiver<()>, Arc<Count>)>,
    pool: Arc<WorkPool>,
    bell: Arc<Bell>,
    patience: Duration,
}

impl Control {
    /// Starts `count` arbiters; every thread of theirs is marked as of the runtime `id`.
    pub(super) fn start(
        id: u64,
        count: usize,
        patience: Duration,
        pool: Arc<WorkPool>,
        bell: Arc<Bell>,
    ) -> io::Result<(Self, Vec<ArbiterDoor>)> {
        let runtime = one_thread_runtime()?;
        let clock = runtime.handle().clone();
        let mut control = Self {
            system: System::with_tokio_rt(move || runtime),
            arbiters: Vec::with_capacity(count),
            pool,
            bell,
            patience,
        };
        let origin = tokio::time::Instant::now();
        let mut doors = Vec::with_capacity(count);
        for index in 0..count {
            let arbiter = match Arbiter::try_with_tokio_rt(one_thread_runtime) {
                Ok(arbiter) => arbiter,
                Err(error) => {
                    control.end_arbiters();
                    return Err(error);
                }
            };
            let tasks = Count::new(&control.bell);
            let shared = Shared {
                origin,
                pool: Arc::clone(&control.pool),
                clock: clock.clone(),
                tasks: Arc::clone(&tasks),
                seed: RandomState::new().hash_one(index),
            };
            let (jobs, inbox) = tokio::sync::mpsc::unbounded_channel();
            let (alive, gone) = mpsc::channel();
            arbiter.spawn_fn(move || {
                THREAD_OF.set(Some(id));
                CARRIES_ACTORS.set(true);
                GONE.set(Some(alive));
                arbiter::start(shared, inbox);
            });
            control.arbiters.push((arbiter, gone, Arc::clone(&tasks)));
            doors.push(ArbiterDoor { jobs, tasks });
        }
        Ok((control, doors))
    }

    /// Drives the system, and the clock for work, until it is told to stop and has stopped.
    pub(super) fn run(mut self, stopped: oneshot::Receiver<Duration>) -> StopReport {
        let counts: Vec<Arc<Count>> = self
            .arbiters
            .iter()
            .map(|(_, _, tasks)| tasks)
            .chain([self.pool.in_flight()])
            .map(Arc::clone)
            .collect();
        self.system.block_on(async {
            // A sender that was dropped wants the same, at once.
            let grace = stopped.await.unwrap_or_default();
            self.bell.quiet_within(grace, &counts).await;
        });
        let tasks_left = self.arbiters.iter().map(|(_, _, tasks)| tasks.alive()).sum();
        let work_left = self.pool.in_flight().alive();
        let arbiters_stuck = self.end_arbiters();
        self.pool.close(self.patience);
        StopReport {
            tasks_left,
            work_left,
            arbiters_stuck,
        }
    }

    /// Ends the arbiters' threads; says how many did not come back.
    fn end_arbiters(&mut self) -> usize {
        for (arbiter, _, _) in &self.arbiters {
            arbiter.stop();
        }
        let until = Instant::now() + self.patience;
        let mut stuck = 0;
        for (arbiter, gone, _) in self.arbiters.drain(..) {
            match gone.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(()) | Err(RecvTimeoutError::Disconnected) => {
                    if arbiter.join().is_err() {
                        tracing::error!("an arbiter's thread panicked");
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    tracing::error!("an arbiter's thread is stuck and is left behind");
                    stuck += 1;
                }
            }
        }
        stuck
    }
}

fn one_thread_runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}
