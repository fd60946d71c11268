//! Threads that run CODE.

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use super::{CodeJob, CodeOutcome};

/// Runs CODE on threads of its own, as many as there are cores.
///
/// Every accepted job is answered exactly once, also after [`ScriptPool::shutdown`] began; a callback that panics
/// takes no thread with it. Dropping the pool shuts it down.
pub struct ScriptPool {
    jobs: Option<Sender<Work>>,
    workers: Vec<JoinHandle<()>>,
}

struct Work {
    job: CodeJob,
    done: Box<dyn FnOnce(CodeOutcome) + Send>,
}

/// The pool takes no more jobs, or its queue is full: the job comes back.
#[derive(Debug)]
pub struct PoolClosed {
    /// The job that was not taken.
    pub job: Box<CodeJob>,
    /// Whether it can be tried again: the queue was full.
    pub is_full: bool,
}

impl ScriptPool {
    /// A pool with a thread for each core and a queue of `queue` jobs.
    ///
    /// # Errors
    /// Where the operating system gives no thread.
    pub fn new(queue: usize) -> std::io::Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self::with_threads(cores, queue)
    }

    /// A pool with `threads` threads (at least one).
    ///
    /// # Errors
    /// As [`ScriptPool::new`].
    pub fn with_threads(threads: usize, queue: usize) -> std::io::Result<Self> {
        let (jobs, waiting) = bounded::<Work>(queue);
        let workers = (0..threads.max(1))
            .map(|index| {
                let waiting = waiting.clone();
                std::thread::Builder::new()
                    .name(format!("pirn-script-{index}"))
                    .spawn(move || work(&waiting))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            jobs: Some(jobs),
            workers,
        })
    }

    /// Queues a job; `done` is called on the pool's thread with what came of it. Never blocks.
    ///
    /// # Errors
    /// The job, where the queue is full or the pool is shut down.
    pub fn submit(&self, job: CodeJob, done: impl FnOnce(CodeOutcome) + Send + 'static) -> Result<(), PoolClosed> {
        let work = Work {
            job,
            done: Box::new(done),
        };
        let Some(jobs) = &self.jobs else {
            return Err(PoolClosed {
                job: Box::new(work.job),
                is_full: false,
            });
        };
        jobs.try_send(work).map_err(|error| {
            let is_full = matches!(error, TrySendError::Full(_));
            PoolClosed {
                job: Box::new(error.into_inner().job),
                is_full,
            }
        })
    }

    /// Takes no more jobs, finishes those it has, and joins its threads. Stop the jobs first to have it done soon.
    pub fn shutdown(&mut self) {
        self.jobs = None;
        for worker in self.workers.drain(..) {
            // A callback may hold the last handle to the pool: a thread can not wait for its own end.
            if worker.thread().id() != std::thread::current().id() {
                // A worker catches what its jobs do; there is nothing to say about how it ended.
                drop(worker.join());
            }
        }
    }
}

impl Drop for ScriptPool {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl std::fmt::Debug for ScriptPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScriptPool")
            .field("threads", &self.workers.len())
            .finish_non_exhaustive()
    }
}

fn work(waiting: &Receiver<Work>) {
    for Work { job, done } in waiting {
        let outcome = job.run_inline();
        if catch_unwind(AssertUnwindSafe(|| done(outcome))).is_err() {
            tracing::error!("the callback of a script panicked");
        }
    }
}
