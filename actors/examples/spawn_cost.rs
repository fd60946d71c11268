//! What a contained start costs beside a plain one, and a timer of the host beside a task that sleeps.
//!
//! `cargo run --release -p pirn-actors --example spawn_cost`
//!
//! Every figure is the best of several rounds on one arbiter, whole life included: made, started, stopped, dropped.

// A measuring program asks the clock and the frameworks directly: that is what it measures.
#![allow(clippy::disallowed_methods)]

use std::cell::Cell;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use actix::{Actor, Context};
use pirn_actors::contain::start_contained;
use pirn_actors::host::{Host, HostConfig, HostRuntime, SimulatedHost};

const COUNT: u32 = 100_000;
const ROUNDS: u32 = 7;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = HostRuntime::start(HostConfig {
        arbiters: 1,
        ..HostConfig::default()
    })?;
    let plain = best(|| on_arbiter(&runtime, start_plain));
    let contained = best(|| on_arbiter(&runtime, start_with_host));
    let simulated = best(start_simulated);
    let sleeping = best(|| on_arbiter(&runtime, sleep_in_tasks));
    let timers = best(|| on_arbiter(&runtime, set_timers));
    println!("start, plain actix            {plain:>6} ns");
    println!("start, contained, arbiter     {contained:>6} ns");
    println!("start, contained, simulated   {simulated:>6} ns");
    println!("1 ms wait, tokio sleep a task {sleeping:>6} ns");
    println!("1 ms wait, host timer         {timers:>6} ns");
    runtime.stop(1_000);
    Ok(())
}

/// Nanoseconds for one of [`COUNT`], in the best of [`ROUNDS`].
fn best(mut round: impl FnMut() -> Duration) -> u128 {
    let fastest = (0..ROUNDS).map(|_| round()).min().unwrap_or_default();
    fastest.as_nanos() / u128::from(COUNT)
}

/// Runs `round` on the arbiter and waits until all that it started has ended.
fn on_arbiter(runtime: &HostRuntime, round: fn(&Host, &Rc<Remaining>)) -> Duration {
    let (done, wait) = mpsc::channel();
    let started = runtime.run_on(0, move |host| round(host, &Remaining::of_all(done)));
    started.ok().and_then(|()| wait.recv().ok()).unwrap_or(Duration::MAX)
}

fn start_plain(_: &Host, remaining: &Rc<Remaining>) {
    for _ in 0..COUNT {
        Worker::new(remaining).start();
    }
}

fn start_with_host(host: &Host, remaining: &Rc<Remaining>) {
    for _ in 0..COUNT {
        start_contained(host, Worker::new(remaining), |_| ());
    }
}

fn start_simulated() -> Duration {
    let simulated = SimulatedHost::new(None);
    let (done, wait) = mpsc::channel();
    start_with_host(&simulated.host(), &Remaining::of_all(done));
    simulated.run_until_idle();
    wait.recv().unwrap_or(Duration::MAX)
}

fn sleep_in_tasks(_: &Host, remaining: &Rc<Remaining>) {
    for _ in 0..COUNT {
        let worker = Worker::new(remaining);
        actix_rt::spawn(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            drop(worker);
        });
    }
}

fn set_timers(host: &Host, remaining: &Rc<Remaining>) {
    for _ in 0..COUNT {
        let worker = Worker::new(remaining);
        host.after(1, move || drop(worker)).detach();
    }
}

/// Tells the time since it was made, when nobody holds it any more.
struct Remaining {
    since: Instant,
    done: mpsc::Sender<Duration>,
}

impl Remaining {
    fn of_all(done: mpsc::Sender<Duration>) -> Rc<Self> {
        Rc::new(Self {
            since: Instant::now(),
            done,
        })
    }
}

impl Drop for Remaining {
    fn drop(&mut self) {
        self.done.send(self.since.elapsed()).unwrap_or(());
    }
}

/// An actor with a little state, that stops because nobody holds its address.
struct Worker {
    _remaining: Rc<Remaining>,
    _state: Cell<[u64; 8]>,
}

impl Worker {
    fn new(remaining: &Rc<Remaining>) -> Self {
        Self {
            _remaining: Rc::clone(remaining),
            _state: Cell::new([0; 8]),
        }
    }
}

impl Actor for Worker {
    type Context = Context<Self>;
}
