//! Actors without dedicated threads: they run as one task of the thread that starts them, in its `LocalSet`, local runtime or
//! actix arbiter.
//!
//! 1. tokio panics if a thread cannot spawn local tasks, and offers no other test. The panic is caught once, at the start.
//! 2. The driver is the only task. Hosts spawn, wake and set timers through it, at any point of the thread's execution.
//! 3. Waiting for the end of the driver has a timeout, because its thread may have stopped polling.
//! 4. A thread never waits for its own driver.

// This file spawns the one task on the embedding program's executor.
#![allow(clippy::disallowed_methods)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;

use super::arbiter::{Driver, Job, LocalGuard, Shared};
use super::thread_tag::ThreadTag;

/// Why actors cannot run on a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotLocalContext {
    /// The thread has no tokio runtime.
    #[error("this thread is in no tokio runtime")]
    Runtime,
    /// The thread's runtime has no timers: it was built without `enable_time`.
    #[error("this thread's tokio runtime has no timers (`enable_time`)")]
    Timers,
    /// The thread cannot spawn local tasks: it runs no `LocalSet`, local runtime or actix arbiter.
    #[error("this thread runs no local tasks: it is in no tokio LocalSet or local runtime, and no actix arbiter")]
    LocalTasks,
}

/// Spawns the driver as a task of the calling thread.
pub(super) fn start(tag: ThreadTag, shared: Shared, jobs: UnboundedReceiver<Job>) -> Result<(), NotLocalContext> {
    let clock = tokio::runtime::Handle::try_current().map_err(|_| NotLocalContext::Runtime)?;
    let sleep = catch_unwind(|| Box::pin(tokio::time::sleep(Duration::ZERO))).map_err(|_| NotLocalContext::Timers)?;
    let guard = LocalGuard::new(tag, Arc::clone(&shared.pool));
    let driver = Driver::new(shared, jobs, clock, sleep).guarded_by(guard);
    tag.enter(driver.host().clone());
    // If the spawn panics, the driver is dropped and its guard cleans up.
    let spawned = catch_unwind(AssertUnwindSafe(|| tokio::task::spawn_local(driver.run())));
    spawned.map(drop).map_err(|_| NotLocalContext::LocalTasks)
}
