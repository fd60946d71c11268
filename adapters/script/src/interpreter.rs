//! Interpreter of a script thread.

use std::sync::Arc;

use pirn_actors::ports::{ExpectedKind, Texts};
use pirn_core::thread::{Outcome, ThreadScope, evaluate};
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::graph::{Evaluator, Unevaluated};
use serde_json::Value;
#[cfg(feature = "javascript")]
use {pirn_core::thread::ScriptState, pirn_definition::script::ScriptFault, serde_json::json, std::time::Duration};

use crate::task::{CancelHandle, Task, TaskResult};
#[cfg(feature = "javascript")]
use crate::{
    CodeJob,
    code::{resume_workflow, start_workflow},
    quickjs::live_script::{LiveScript, StepLimits, Upkeep},
    quickjs::reserve::RealmReserve,
    sessions::{Position, Session, Sessions, new_inputs},
    worker::{SharedWorker, Worker},
};
use crate::{CodeOutcome, JsEvaluator, Logs, ScriptSettings};

/// Executes jobs on a script thread, in this process or through a worker process.
pub(super) struct Interpreter {
    settings: ScriptSettings,
    evaluator: JsEvaluator,
    #[cfg(feature = "javascript")]
    worker: Option<SharedWorker>,
    #[cfg(feature = "javascript")]
    reserve: RealmReserve,
    #[cfg(feature = "javascript")]
    sessions: Arc<Sessions>,
    #[cfg(feature = "javascript")]
    cancel_handle: Arc<CancelHandle>,
}

impl Interpreter {
    #[cfg(feature = "javascript")]
    pub(super) fn new(settings: &ScriptSettings, cancel_handle: &Arc<CancelHandle>, sessions: &Arc<Sessions>) -> Self {
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
            reserve: RealmReserve::default(),
            sessions: Arc::clone(sessions),
            cancel_handle: Arc::clone(cancel_handle),
        }
    }

    /// Returns true if [`Interpreter::prepare`] creates a realm, which takes about as long as a script.
    #[cfg_attr(
        not(feature = "javascript"),
        allow(clippy::unused_self, reason = "only QuickJS needs preparation")
    )]
    pub(super) fn must_prepare(&self) -> bool {
        #[cfg(feature = "javascript")]
        return self.reserve.must_prepare();
        #[cfg(not(feature = "javascript"))]
        false
    }

    /// Uses the time until the next task.
    #[cfg(feature = "javascript")]
    pub(super) fn prepare(&mut self) {
        self.reserve.prepare();
        self.sessions.drop_released();
    }

    #[cfg(not(feature = "javascript"))]
    pub(super) fn new(settings: &ScriptSettings, _: &Arc<CancelHandle>) -> Self {
        Self {
            settings: settings.clone(),
            evaluator: JsEvaluator::new(settings.expressions),
        }
    }

    pub(super) fn run(&mut self, task: Task) -> TaskResult {
        #[cfg(feature = "javascript")]
        if let Some(worker) = &self.worker
            && worker.is_detached()
            && let Some(spare) = self.sessions.take_spare()
        {
            worker.attach(spare);
        }
        match task {
            #[cfg(feature = "javascript")]
            Task::DropReleased => TaskResult {
                // Dropped after the answer, by `prepare`.
                outcome: Outcome::Done,
                logs: Logs::default(),
            },
            Task::Code(job) => {
                #[cfg(feature = "javascript")]
                let CodeOutcome { result, logs } = if let Some(state) = job.state.clone() {
                    self.step(*job, &state)
                } else if let Some(worker) = &self.worker {
                    worker.code(&job).0
                } else {
                    job.run_in(&mut self.reserve)
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

    /// Evaluates a step of a script workflow: by the cached script, or from the start.
    #[cfg(feature = "javascript")]
    fn step(&mut self, job: CodeJob, state: &ScriptState) -> CodeOutcome {
        if job.stop.is_stopped() {
            return CodeOutcome::failed(ScriptFault::cancelled());
        }
        if let Some((session, position)) = self.sessions.take(state, job.limits.time) {
            let more = new_inputs(state, &position);
            let limits = StepLimits {
                time: job.limits.time.saturating_sub(position.used),
                stop: job.stop.clone(),
            };
            if let Some((outcome, kept)) = self.resume(session, more, limits) {
                self.sessions.count_resumed(state.results.len() - position.results);
                return self.keep(state, outcome, kept, position.used);
            }
            // The job was answered when its process was killed.
            if job.stop.is_stopped() || self.cancel_handle.is_killed() {
                return CodeOutcome::failed(ScriptFault::cancelled());
            }
        }
        self.sessions.count_evaluated(state.results.len());
        let (outcome, kept) = if let Some(worker) = &self.worker {
            let (outcome, upkeep) = worker.code(&job);
            let upkeep = upkeep.filter(|_| self.sessions.is_enabled());
            let kept = upkeep.and_then(|upkeep| Some((Session::Process(worker.detach()?), upkeep)));
            (outcome, kept)
        } else {
            let (outcome, kept) = start_workflow(job, &json!(state), &mut self.reserve);
            (outcome, kept.map(in_this_process))
        };
        self.keep(state, outcome, kept, Duration::ZERO)
    }

    /// Continues a cached script. Returns `None` if its process has exited.
    #[cfg(feature = "javascript")]
    fn resume(&mut self, session: Session, more: Value, limits: StepLimits) -> Option<SessionStep> {
        match (session, &self.worker) {
            (Session::Realm(script), _) => {
                let (outcome, kept) = resume_workflow(*script, &more, limits, &mut self.reserve);
                Some((outcome, kept.map(in_this_process)))
            }
            (Session::Process(process), Some(worker)) => {
                let own = worker.detach();
                worker.attach(process);
                let step = worker.resume(more, limits.time);
                let process = worker.detach();
                let step = step.map(|(outcome, upkeep)| match (process, upkeep) {
                    (Some(process), Some(upkeep)) => (outcome, Some((Session::Process(process), upkeep))),
                    (Some(process), None) => {
                        self.sessions.release(Session::Process(process));
                        (outcome, None)
                    }
                    (None, _) => (outcome, None),
                });
                if let Some(own) = own.or_else(|| self.sessions.take_spare()) {
                    worker.attach(own);
                }
                step
            }
            // A pool has one level.
            (Session::Process(_), None) => None,
        }
    }

    /// Caches a script for its next step. Returns the outcome of this one.
    #[cfg(feature = "javascript")]
    fn keep(
        &self,
        state: &ScriptState,
        outcome: CodeOutcome,
        kept: Option<(Session, Upkeep)>,
        used: Duration,
    ) -> CodeOutcome {
        if let (Ok(answer), Some((session, upkeep))) = (&outcome.result, kept) {
            let position = Position::after(state, answer, used + upkeep.used);
            self.sessions.put(state, session, position, upkeep);
        }
        outcome
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

/// Outcome of a step, and the script if it waits for results.
#[cfg(feature = "javascript")]
type SessionStep = (CodeOutcome, Option<(Session, Upkeep)>);

#[cfg(feature = "javascript")]
fn in_this_process((script, upkeep): (LiveScript, Upkeep)) -> (Session, Upkeep) {
    (Session::Realm(Box::new(script)), upkeep)
}

/// Result for a deferred snippet, which an evaluator of a script thread never returns.
fn unevaluated() -> Outcome {
    Outcome::Failed(RunError::new(
        RunErrorCode::ScriptError,
        "the expression was not evaluated",
    ))
}
