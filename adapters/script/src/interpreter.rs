//! Interpreter of a script thread.

use std::sync::Arc;

use pirn_actors::ports::{ExpectedKind, Texts};
use pirn_core::thread::{Outcome, ThreadScope, evaluate};
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::graph::{Evaluator, Unevaluated};
use serde_json::Value;

use crate::task::{CancelHandle, Task, TaskResult};
#[cfg(feature = "javascript")]
use crate::worker::{SharedWorker, Worker};
use crate::{CodeOutcome, JsEvaluator, Logs, ScriptSettings};

/// Executes jobs on a script thread, in this process or through a worker process.
pub(super) struct Interpreter {
    settings: ScriptSettings,
    evaluator: JsEvaluator,
    #[cfg(feature = "javascript")]
    worker: Option<SharedWorker>,
}

impl Interpreter {
    #[cfg(feature = "javascript")]
    pub(super) fn new(settings: &ScriptSettings, cancel_handle: &Arc<CancelHandle>) -> Self {
        use crate::ScriptLevel;

        let worker = match &settings.level {
            ScriptLevel::Thread => None,
            ScriptLevel::Process(program) => Some(Worker::shared(program, settings, cancel_handle)),
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
    pub(super) fn new(settings: &ScriptSettings, _: &Arc<CancelHandle>) -> Self {
        Self {
            settings: settings.clone(),
            evaluator: JsEvaluator::new(settings.expressions),
        }
    }

    pub(super) fn run(&mut self, task: Task) -> TaskResult {
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
                TaskResult { outcome, logs }
            }
            Task::Texts(texts) => TaskResult {
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
                    ExpectedKind::Value => evaluator.value_of(&source, &*scope),
                    ExpectedKind::Truth => evaluator
                        .truth_of(&source, &*scope)
                        .map(|truth| Arc::new(Value::Bool(truth))),
                    ExpectedKind::Text => evaluator
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
