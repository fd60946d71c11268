//! One job of a script thread, and its interpreter.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pirn_actors::ports::{Texts, Want};
use pirn_core::error::{RunError, RunErrorCode};
use pirn_core::graph::{Evaluator, Unevaluated};
use pirn_core::thread::{Outcome, ThreadScope, evaluate};
use serde_json::Value;

#[cfg(feature = "javascript")]
use super::worker::{SharedWorker, Worker};
use super::{CodeJob, CodeOutcome, JsEvaluator, Logs, ScriptSettings, StopFlag};

/// The kinds of work of a thread.
pub(super) enum Task {
    Code(Box<CodeJob>),
    Texts(Texts),
}

/// The result of a task.
pub(super) struct Done {
    pub(super) outcome: Outcome,
    pub(super) logs: Logs,
}

/// Stops the work of a thread from another thread.
#[derive(Default)]
pub(super) struct Reins {
    stop: Mutex<Option<StopFlag>>,
    process: Mutex<Option<std::process::Child>>,
    was_killed: AtomicBool,
}

/// Executes jobs on a script thread, in this process or through a worker process.
pub(super) struct Interpreter {
    settings: ScriptSettings,
    evaluator: JsEvaluator,
    #[cfg(feature = "javascript")]
    worker: Option<SharedWorker>,
}

impl Task {
    pub(super) fn limit(&self, settings: &ScriptSettings) -> Duration {
        match self {
            Self::Code(job) => job.limits.time,
            Self::Texts(_) => settings.expressions.time,
        }
    }
}

impl Reins {
    /// Prepares for the next job.
    pub(super) fn begin(&self, task: &Task) {
        *locked(&self.stop) = match task {
            Task::Code(job) => Some(job.stop.clone()),
            Task::Texts(_) => None,
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

    /// Returns whether the process was killed since the last call. Its job may have been answered at that moment, and the next job
    /// needs a new process.
    pub(super) fn was_killed(&self) -> bool {
        self.was_killed.swap(false, Ordering::Relaxed)
    }

    /// Sets the worker process of the thread. Kills and reaps the previous one, and returns its exit status.
    #[cfg(feature = "javascript")]
    pub(super) fn hold(&self, process: Option<std::process::Child>) -> Option<std::process::ExitStatus> {
        let mut before = std::mem::replace(&mut *locked(&self.process), process)?;
        let _: std::io::Result<()> = before.kill();
        before.wait().ok()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Interpreter {
    #[cfg(feature = "javascript")]
    pub(super) fn new(settings: &ScriptSettings, reins: &Arc<Reins>) -> Self {
        use super::ScriptLevel;

        let worker = match &settings.level {
            ScriptLevel::Thread => None,
            ScriptLevel::Process(program) => Some(Worker::shared(program, settings, reins)),
        };
        let evaluator = match &worker {
            None => JsEvaluator::new(settings.expressions),
            Some(worker) => JsEvaluator::through(settings.expressions, Box::new(worker.clone())),
        };
        Self {
            settings: settings.clone(),
            evaluator,
            worker,
        }
    }

    #[cfg(not(feature = "javascript"))]
    pub(super) fn new(settings: &ScriptSettings, _: &Arc<Reins>) -> Self {
        Self {
            settings: settings.clone(),
            evaluator: JsEvaluator::new(settings.expressions),
        }
    }

    pub(super) fn run(&mut self, task: Task) -> Done {
        match task {
            Task::Code(job) => {
                #[cfg(feature = "javascript")]
                let CodeOutcome { result, logs } = match &self.worker {
                    Some(worker) => worker.code(&job),
                    None => job.run_inline(),
                };
                #[cfg(not(feature = "javascript"))]
                let CodeOutcome { result, logs } = job.run_inline();
                let outcome = match result {
                    Ok(value) => Outcome::Value(Arc::new(value)),
                    Err(fault) => Outcome::Failed(fault.into()),
                };
                Done { outcome, logs }
            }
            Task::Texts(texts) => Done {
                outcome: self.texts(texts),
                logs: Logs::default(),
            },
        }
    }

    fn texts(&mut self, texts: Texts) -> Outcome {
        self.evaluator.begin(self.settings.expressions.time);
        let evaluator = &mut self.evaluator;
        match texts {
            Texts::OfNode {
                graph,
                node,
                what,
                thread,
                globals,
            } => {
                let scope = ThreadScope::of_snapshot(&graph, &thread, &globals);
                evaluate(&graph, node, what, &scope, evaluator).unwrap_or_else(unevaluated)
            }
            Texts::OfEvent { source, want, scope } => {
                let value = match want {
                    Want::Value => evaluator.value_of(&source, &*scope),
                    Want::Truth => evaluator
                        .truth_of(&source, &*scope)
                        .map(|truth| Arc::new(Value::Bool(truth))),
                    Want::Text => evaluator
                        .text_of(&source, &*scope)
                        .map(|text| Arc::new(Value::String(text))),
                };
                match value {
                    Ok(value) => Outcome::Value(value),
                    Err(Unevaluated::Fault(fault)) => Outcome::Failed(fault.into()),
                    Err(Unevaluated::Later) => unevaluated(),
                }
            }
        }
    }
}

/// Result for a deferred snippet, which an evaluator of a script thread never returns.
fn unevaluated() -> Outcome {
    Outcome::Failed(RunError::new(
        RunErrorCode::ScriptError,
        "the expression was not evaluated",
    ))
}
