//! Actors without a thread of their own: they are one task of the thread that starts them, of its `LocalSet`, its local
//! runtime or its actix arbiter.
//!
//! 1. tokio says whether there is such a thing by a panic alone. It is asked once, at the start, and contained.
//! 2. The driver is the only task: hosts spawn, wake and set timers by it, wherever the thread stands at that moment.
//! 3. Whoever waits for the end of the driver waits for bounded time: nobody knows whether its thread still turns.
//! 4. A thread never waits for its own driver.

// This file starts the one task on the embedding program's executor.
#![allow(clippy::disallowed_methods)]

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;

use super::StopReport;
use super::arbiter::{Job, Shared, driver};
use super::load::{Bell, Count};
use super::own_thread::Here;
use super::pool::WorkPool;

/// Why actors can not live on a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoHome {
    /// The thread runs no tokio runtime.
    Runtime,
    /// The thread's runtime has no timers: it was built without `enable_time`.
    Timers,
    /// The thread runs no local tasks: neither in a `LocalSet` nor in a local runtime nor on an actix arbiter.
    LocalTasks,
}

impl std::fmt::Display for NoHome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Runtime => "this thread is in no tokio runtime",
            Self::Timers => "this thread's tokio runtime has no timers (`enable_time`)",
            Self::LocalTasks => {
                "this thread runs no local tasks: it is in no tokio LocalSet or local runtime, and no actix arbiter"
            }
        })
    }
}

impl std::error::Error for NoHome {}

/// The runtime whose timers the thread has; asked for before anything is started.
pub(super) fn clock() -> Result<tokio::runtime::Handle, NoHome> {
    tokio::runtime::Handle::try_current().map_err(|_| NoHome::Runtime)
}

/// Starts the driver as a task of the calling thread.
pub(super) fn start(here: Here, shared: Shared, jobs: UnboundedReceiver<Job>) -> Result<(), NoHome> {
    let sleep = catch_unwind(|| Box::pin(tokio::time::sleep(Duration::ZERO))).map_err(|_| NoHome::Timers)?;
    let home = Home {
        here,
        pool: Some(Arc::clone(&shared.pool)),
    };
    let driver = driver(shared, jobs, sleep).at(home);
    here.move_in(driver.host().clone());
    // Refused, it is dropped, and its home with it.
    let spawned = catch_unwind(AssertUnwindSafe(|| tokio::task::spawn_local(driver)));
    spawned.map(drop).map_err(|_| NoHome::LocalTasks)
}

/// A driver's place on a thread that is not its own.
pub(super) struct Home {
    here: Here,
    /// The work's threads, where nobody waits for their end.
    pool: Option<Arc<WorkPool>>,
}

impl Drop for Home {
    fn drop(&mut self) {
        self.here.move_out();
        if let Some(pool) = self.pool.take() {
            // The thread is not to be held up.
            pool.close(Duration::ZERO);
        }
    }
}

/// Has a driver end.
pub(super) struct End {
    pub(super) grace: Duration,
    /// Rings when something is no longer alive.
    pub(super) bell: Arc<Bell>,
    /// Who waits for the end; it sees to the work's threads too.
    pub(super) report: Option<Sender<StopReport>>,
}

impl End {
    /// Ready when all is quiet or the grace over, on the clock of the thread's runtime.
    pub(super) fn over(&self, counts: [Arc<Count>; 2]) -> impl Future<Output = ()> + use<> {
        let (grace, bell) = (self.grace, Arc::clone(&self.bell));
        async move { bell.quiet_within(grace, &counts).await }
    }

    /// Says what was left; all of it has been dropped.
    pub(super) fn tell(self, tasks_left: usize, work_left: usize, home: Option<Home>) {
        let Some(report) = self.report else { return };
        if let Some(mut home) = home {
            home.pool = None;
        }
        // Who waited may have waited long enough.
        report
            .send(StopReport {
                tasks_left,
                work_left,
                arbiters_stuck: 0,
            })
            .unwrap_or(());
    }
}
