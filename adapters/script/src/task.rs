//! One job of a script thread, its result, and the means to stop it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pirn_actors::ports::Texts;
use pirn_core::thread::Outcome;

use crate::{CodeJob, Logs, ScriptSettings, StopFlag};

/// The kinds of work of a thread.
pub(super) enum Task {
    Code(Box<CodeJob>),
    Texts(Texts),
    /// Drops the scripts that were removed from the cache.
    #[cfg(feature = "javascript")]
    DropReleased,
}

/// The result of a task.
pub(super) struct TaskResult {
    pub(super) outcome: Outcome,
    pub(super) logs: Logs,
}

/// Stops the work of a thread from another thread.
#[derive(Default)]
pub(super) struct CancelHandle {
    stop: Mutex<Option<StopFlag>>,
    process: Mutex<Option<std::process::Child>>,
    was_killed: AtomicBool,
}

impl Task {
    pub(super) fn limit(&self, settings: &ScriptSettings) -> Duration {
        match self {
            Self::Code(job) => job.limits.time,
            Self::Texts(_) => settings.expressions.time,
            #[cfg(feature = "javascript")]
            Self::DropReleased => settings.code.time,
        }
    }
}

impl CancelHandle {
    /// Prepares for the next job.
    pub(super) fn begin(&self, task: &Task) {
        *locked(&self.stop) = match task {
            Task::Code(job) => Some(job.stop.clone()),
            Task::Texts(_) => None,
            #[cfg(feature = "javascript")]
            Task::DropReleased => None,
        };
    }

    /// Requests the stop of the current job.
    pub(super) fn stop(&self) {
        if let Some(stop) = &*locked(&self.stop) {
            stop.stop();
        }
        self.kill();
    }

    /// Kills the worker process, if there is one.
    pub(super) fn kill(&self) {
        if let Some(process) = &mut *locked(&self.process) {
            // The process may have exited already.
            let _: std::io::Result<()> = process.kill();
            self.was_killed.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether the process was killed since the last call of [`CancelHandle::was_killed`].
    #[cfg(feature = "javascript")]
    pub(super) fn is_killed(&self) -> bool {
        self.was_killed.load(Ordering::Relaxed)
    }

    /// Takes the worker process out, so that it is not killed for the job.
    #[cfg(feature = "javascript")]
    pub(super) fn take_process(&self) -> Option<std::process::Child> {
        locked(&self.process).take()
    }

    /// Returns whether the process was killed since the last call. Its job may have been answered at that moment, and the next job
    /// needs a new process.
    pub(super) fn was_killed(&self) -> bool {
        self.was_killed.swap(false, Ordering::Relaxed)
    }

    /// Sets the worker process of the thread. Kills and reaps the previous one, and returns its exit status.
    #[cfg(feature = "javascript")]
    pub(super) fn set_process(&self, process: Option<std::process::Child>) -> Option<std::process::ExitStatus> {
        let mut before = std::mem::replace(&mut *locked(&self.process), process)?;
        let _: std::io::Result<()> = before.kill();
        before.wait().ok()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
