//! One thread, a virtual clock, and an order that a seed names.
//!
//! 1. Without a seed, what is ready runs first come, first served. With a seed a random generator picks among all
//!    that is ready: tasks and due timers. One seed, one order, as long as no external work takes part.
//! 2. The clock moves only when nothing is ready: then it jumps to the next timer.
//! 3. While external work is in flight the clock does not jump: it goes with the real one, so a timeout of a real
//!    request still fires; the thread rests until a waker or a timer calls.
//! 4. Nothing ready, no timer, nothing external, and still somebody waits: that is a deadlock, and said so.
//!
//! actix needs no system here: an actor is a future, its address a waker.

mod clock;
mod external;
mod order;
mod ready;
mod simulation;

use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use pirn_core::Millis;

pub(in crate::host) use self::ready::{Ready, TaskState};
use self::simulation::{MAIN_SLOT, Simulation, Until};
use super::explorer::Choosing;
use super::{Host, Port};
pub use order::{Choices as OrderChoices, Priorities, Random, Recorded, Replayed, Schedule};

/// The settings of a [`SimulatedHost`].
#[derive(Default)]
pub struct SimulatedConfig {
    /// Names the order; none: first come, first served.
    pub seed: Option<u64>,
    /// The value of [`Host::wall_clock`] at the start, in milliseconds since the Unix epoch.
    pub wall_clock_origin: Millis,
    /// Runtime for external work. None: a thread of our own, started when the first comes. Not the current-thread
    /// runtime that the caller blocks.
    pub external: Option<tokio::runtime::Handle>,
    /// If given, what waits for the world outside the actors happens when it is chosen; `seed` then decides nothing,
    /// work of every kind runs here, its delays pass at once, and [`Host::random`] says 0.
    pub choosing: Option<Choosing>,
    /// If given, orders what is ready in the place of `seed`.
    pub schedule: Option<Box<dyn Schedule>>,
}

/// Nothing can happen any more, but somebody still waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlock {
    /// Number of spawned tasks that wait.
    pub waiting: usize,
}

impl std::fmt::Display for Deadlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "nothing can happen any more: no timer and no outside work is left, and {} tasks wait",
            self.waiting
        )
    }
}

impl std::error::Error for Deadlock {}

/// A host for tests and for `--virtual-time`. Dropping it drops every task on it.
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
    /// A host at time 0 whose order `seed` names; none: first come, first served.
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

    /// The host, for actors.
    pub fn host(&self) -> Host {
        self.host.clone()
    }

    /// Runs until `future` is ready. A panic in it goes through to the caller.
    ///
    /// # Errors
    /// It can never be ready: nothing is left that could wake anybody. Also when called from inside a task.
    pub fn block_on<F: Future>(&self, future: F) -> Result<F::Output, Deadlock> {
        let simulation = &self.simulation;
        let mut future = pin!(future);
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
        main.end();
        output.ok_or(Deadlock {
            waiting: self.waiting(),
        })
    }

    /// Runs until nothing is ready, no timer is set and no external work is in flight. Returns how many tasks wait.
    pub fn run_until_idle(&self) -> usize {
        self.simulation.run(Until::Idle, || false);
        self.waiting()
    }

    /// Runs what happens up to `time`, then sets the clock to it. Returns how many tasks wait.
    pub fn run_until(&self, time: Millis) -> usize {
        self.simulation.run(Until::Time(time), || false);
        self.simulation.shared.advance_to(time);
        self.waiting()
    }

    /// Runs what is ready or due, without moving the clock or waiting for external work. Returns how many tasks wait.
    pub fn run_ready(&self) -> usize {
        self.simulation.run(Until::Quiet, || false);
        self.waiting()
    }

    /// Number of spawned tasks that have not ended.
    pub fn waiting(&self) -> usize {
        self.simulation.alive.get()
    }

    /// A number that stands for everything that ran so far, in order: equal for equal schedules.
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
