//! A host on one thread with a virtual clock and a reproducible order.
//!
//! 1. Without a seed, ready tasks and timers run in FIFO order. With a seed, a random generator picks among them. A seed
//!    determines the order unless external work takes part.
//! 2. The clock advances only when nothing is ready: it jumps to the next timer.
//! 3. While external work is in flight the clock follows the real clock, so that timeouts of real requests fire. The thread
//!    blocks until a waker or timer wakes it. While a store is accessed the clock stops: the speed of a disk decides nothing.
//! 4. Deadlock: no task is ready, no timer is pending, no external work is in flight, and a task is waiting. It is reported as an
//!    error.
//!
//! actix needs no system here: an actor is a future, and its address a waker.
//!
//! Not here: the search for orders that fail (`explorer`).

mod clock;
mod external;
mod order;
pub(in crate::host) mod ready;
mod simulation;

use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use pirn_definition::Millis;

use self::ready::TaskState;
use self::simulation::{MAIN_SLOT, Simulation, Until};
use super::explorer::ChooserOptions;
use super::{Host, Port};
pub use order::{Choices as OrderChoices, Priorities, Random, Recorded, Replayed, Schedule};

/// The settings of a [`SimulatedHost`].
#[derive(Default)]
pub struct SimulatedConfig {
    /// Seed of the order. None: FIFO order.
    pub seed: Option<u64>,
    /// The value of [`Host::wall_clock`] at the start, in milliseconds since the Unix epoch.
    pub wall_clock_origin: Millis,
    /// Runtime for external work. None: a private thread, started on first use. Must not be the current-thread runtime that the
    /// caller blocks.
    pub external: Option<tokio::runtime::Handle>,
    /// Explores orders: a chooser decides when external results arrive. `seed` is then unused, all work runs on this thread with
    /// instant delays, and [`Host::random`] returns 0.
    pub choosing: Option<ChooserOptions>,
    /// Determines the order instead of `seed`.
    pub schedule: Option<Box<dyn Schedule>>,
}

/// Deadlock: no task is ready, no timer is pending, no external work is in flight, and at least one task is waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("deadlock: no timer and no external work is pending, and {waiting} tasks are waiting")]
pub struct Deadlock {
    /// Number of waiting tasks.
    pub waiting: usize,
}

/// A host for tests and for `--virtual-time`. Dropping it drops its tasks.
///
/// ```
/// # use pirn_actors::host::SimulatedHost;
/// let simulated = SimulatedHost::new(Some(7));
/// let host = simulated.host();
/// let hour = simulated.block_on(async move { host.sleep(3_600_000).await; host.now() });
/// assert_eq!(hour, Ok(3_600_000));
/// ```
pub struct SimulatedHost {
    simulation: Rc<Simulation>,
    host: Host,
}

impl SimulatedHost {
    /// A host at time 0 with this seed. None: FIFO order.
    pub fn new(seed: Option<u64>) -> Self {
        Self::with_config(SimulatedConfig {
            seed,
            ..SimulatedConfig::default()
        })
    }

    /// A host at time 0.
    pub fn with_config(config: SimulatedConfig) -> Self {
        let simulation = Rc::new(Simulation::new(config));
        let host = Host::new(Rc::clone(&simulation) as Rc<dyn Port>);
        Self { simulation, host }
    }

    /// Returns a handle for actors.
    pub fn host(&self) -> Host {
        self.host.clone()
    }

    /// Runs until `future` is ready. A panic in it propagates to the caller.
    ///
    /// # Errors
    /// The future can never be ready, because nothing is left that could wake a task. Also if called from inside a task.
    pub fn block_on<F: Future>(&self, future: F) -> Result<F::Output, Deadlock> {
        let simulation = &self.simulation;
        let mut future = pin!(future);
        // Numbered as a task, because the schedule and the fingerprint include the main future.
        let main = TaskState::new(MAIN_SLOT, simulation.next_number(), &simulation.shared);
        Arc::clone(&main).wake();
        let mut output = None;
        let waker = Waker::from(Arc::clone(&main));
        simulation.run(Until::Idle, || {
            if let Poll::Ready(ready) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                output = Some(ready);
            }
            output.is_some()
        });
        // A late wake must not queue a future that has left the stack.
        main.end();
        output.ok_or(Deadlock {
            waiting: self.waiting(),
        })
    }

    /// Runs until nothing is ready, no timer is pending and no external work is in flight. Returns the number of waiting tasks.
    pub fn run_until_idle(&self) -> usize {
        self.simulation.run(Until::Idle, || false);
        self.waiting()
    }

    /// Runs everything up to `time`, then sets the clock to it. Returns the number of waiting tasks.
    pub fn run_until(&self, time: Millis) -> usize {
        self.simulation.run(Until::Time(time), || false);
        // The last deadline may be earlier than `time`.
        self.simulation.shared.advance_to(time);
        self.waiting()
    }

    /// Runs what is ready or due, without advancing the clock or waiting for external work. Returns the number of waiting tasks.
    pub fn run_ready(&self) -> usize {
        self.simulation.run(Until::Quiet, || false);
        self.waiting()
    }

    /// Number of spawned tasks that have not ended.
    pub fn waiting(&self) -> usize {
        self.simulation.alive.get()
    }

    /// Hash of everything that ran so far, in order: equal for equal schedules.
    pub fn fingerprint(&self) -> u64 {
        self.simulation.fingerprint.get()
    }
}

impl Drop for SimulatedHost {
    fn drop(&mut self) {
        self.simulation.close();
    }
}

impl std::fmt::Debug for SimulatedHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimulatedHost")
            .field("now", &self.host.now())
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}
