//! Actors without a thread of their own: they are one task of the thread that starts them, of its `LocalSet`, its local
//! runtime or its actix arbiter.
//!
//! 1. tokio says whether there is such a thing by a panic alone. It is asked once, at the start, and contained.
//! 2. The driver is the only task: hosts spawn, wake and set timers by it, wherever the thread stands at that moment.
//! 3. Whoever waits for the end of the driver waits for bounded time: nobody knows whether its thread still turns.
//! 4. A thread never waits for its own driver.

// This file starts the one task on the embedding program's executor.
#![allow(clippy::disallowed_methods)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;

use super::arbiter::{Driver, Job, Shared};
use super::thread_tag::ThreadTag;
use super::work::WorkPool;

/// A reason why actors can not live on a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotLocalContext {
    /// The thread runs no tokio runtime.
    Runtime,
    /// The thread's runtime has no timers: it was built without `enable_time`.
    Timers,
    /// The thread runs no local tasks: neither in a `LocalSet` nor in a local runtime nor on an actix arbiter.
    LocalTasks,
}

impl std::fmt::Display for NotLocalContext {
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

impl std::error::Error for NotLocalContext {}

/// Starts the driver as a task of the calling thread.
pub(super) fn start(tag: ThreadTag, shared: Shared, jobs: UnboundedReceiver<Job>) -> Result<(), NotLocalContext> {
    let clock = tokio::runtime::Handle::try_current().map_err(|_| NotLocalContext::Runtime)?;
    let sleep = catch_unwind(|| Box::pin(tokio::time::sleep(Duration::ZERO))).map_err(|_| NotLocalContext::Timers)?;
    let guard = LocalGuard {
        tag,
        pool: Some(Arc::clone(&shared.pool)),
    };
    let driver = Driver::new(shared, jobs, clock, sleep).guarded_by(guard);
    tag.enter(driver.host().clone());
    // Refused, it is dropped, and its guard with it.
    let spawned = catch_unwind(AssertUnwindSafe(|| tokio::task::spawn_local(driver.run())));
    spawned.map(drop).map_err(|_| NotLocalContext::LocalTasks)
}

/// Ends what a driver has on a thread that is not its own.
pub(super) struct LocalGuard {
    tag: ThreadTag,
    /// The threads for work, where nobody waits for their end.
    pool: Option<Arc<WorkPool>>,
}

impl LocalGuard {
    /// Somebody else ends the threads for work.
    pub(super) fn leave_work(mut self) {
        self.pool = None;
    }
}

impl Drop for LocalGuard {
    fn drop(&mut self) {
        self.tag.leave();
        if let Some(pool) = self.pool.take() {
            // The thread is not to be held up.
            pool.close(Duration::ZERO);
        }
    }
}
