//! The engine's interface to CODE and expressions.

use std::sync::{Arc, OnceLock};

use pirn_actors::ports::{ScriptAnswer, ScriptEnd, ScriptHandle, ScriptJob, ScriptStats, Scripts, TextAnswer, TextJob};
use pirn_conversation::conversation::{Estimator, Tokenizer};
use pirn_core::thread::Outcome;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::graph::{Evaluator, Graph, SnippetIx, SnippetKind};
use pirn_definition::script::ScopeValues;

use crate::compress;
use crate::evaluator::advice;
use crate::pool::{JobGuard, ScriptPool};
use crate::task::{Task, TaskResult};
use crate::{CodeJob, HostFunctions, JsEvaluator, ScriptSettings};

/// Runs CODE, and the snippets that evaluators defer, on threads that are started on demand. Scripts can call `compressMessages`
/// and the functions added by [`ScriptPort::with_functions`].
pub struct ScriptPort {
    settings: ScriptSettings,
    functions: Arc<HostFunctions>,
    /// The functions of script workflows. Shared, so that a prepared realm fits.
    no_functions: Arc<HostFunctions>,
    tokenizer: OnceLock<TokenizerByName>,
    pool: ScriptPool,
}

/// Returns the tokenizer of a name.
type TokenizerByName = Arc<dyn Fn(Option<&str>) -> Arc<dyn Tokenizer> + Send + Sync>;

/// Creates an evaluator for a thread that other work waits for; it defers snippets that may take long. Used for `Ports::evaluator`.
pub fn evaluator() -> Box<dyn Evaluator> {
    Box::new(JsEvaluator::in_place())
}

impl ScriptPort {
    /// Creates a port with these settings.
    pub fn new(settings: ScriptSettings) -> Self {
        Self {
            pool: ScriptPool::new(settings.clone()),
            settings,
            functions: Arc::default(),
            no_functions: Arc::default(),
            tokenizer: OnceLock::new(),
        }
    }

    /// Returns the port with additional functions for scripts.
    #[must_use]
    pub fn with_functions(mut self, functions: HostFunctions) -> Self {
        self.functions = Arc::new(functions);
        self
    }

    /// Sets the tokenizers of a port that has none yet, for the engine that uses it. Without any, tokens are estimated.
    #[doc(hidden)]
    pub fn set_default_tokenizers(
        &self,
        tokenizer: impl Fn(Option<&str>) -> Arc<dyn Tokenizer> + Send + Sync + 'static,
    ) {
        // Fails if the port has tokenizers.
        let _: Result<(), TokenizerByName> = self.tokenizer.set(Arc::new(tokenizer));
    }

    fn code_job(&self, job: &ScriptJob<'_>) -> CodeJob {
        let source = &job.graph.snippet(job.code).source;
        // A script workflow depends only on its recorded inputs: variables and functions may change between its steps.
        if job.graph.snippet(job.code).kind == SnippetKind::Workflow {
            let mut code = CodeJob::new(Arc::clone(source), &ScopeValues::default());
            code.limits = self.settings.code;
            code.functions = Arc::clone(&self.no_functions);
            code.state = Some(job.state.clone().unwrap_or_default());
            return code;
        }
        let mut code = CodeJob::new(Arc::clone(source), job.scope);
        code.scope.input = Arc::clone(&job.input);
        code.limits = self.settings.code;
        code.seed = job.seed;
        code.functions = if source.contains(compress::NAME) {
            let name = job.graph.config.tokenizer.as_deref();
            let tokenizer: Arc<dyn Tokenizer> = match self.tokenizer.get() {
                Some(by_name) => by_name(name),
                None => Arc::new(Estimator),
            };
            let call = move |arguments| compress::compress_messages(arguments, &*tokenizer);
            Arc::new(HostFunctions::clone(&self.functions).with(compress::NAME, call))
        } else {
            Arc::clone(&self.functions)
        };
        code
    }
}

impl From<ScriptSettings> for Arc<ScriptPort> {
    fn from(settings: ScriptSettings) -> Self {
        Self::new(ScriptPort::new(settings))
    }
}

impl Default for ScriptPort {
    fn default() -> Self {
        Self::new(ScriptSettings::default())
    }
}

impl ScriptPort {
    /// Evaluates snippets and waits for the result, for at most their time limit plus the time of earlier jobs. The calling thread
    /// must be allowed to block.
    pub fn evaluate_here(&self, job: TextJob) -> Outcome {
        self.pool.wait_for(&job.run_id, Task::Texts(job.texts)).outcome
    }
}

impl Scripts for ScriptPort {
    fn run(&self, job: ScriptJob<'_>, answer: ScriptAnswer) -> ScriptHandle {
        let task = Task::Code(Box::new(self.code_job(&job)));
        let graph = Arc::clone(job.graph);
        let span = tracing::Span::current();
        let code = job.code;
        let answer = Box::new(move |done| answer(span.in_scope(|| told(done, &graph, code))));
        handle(self.pool.submit(job.run_id, task, answer))
    }

    fn evaluate(&self, job: TextJob, answer: TextAnswer) -> ScriptHandle {
        let task = Task::Texts(job.texts);
        let guard = self
            .pool
            .submit(&job.run_id, task, Box::new(|done| answer(done.outcome)));
        handle(guard)
    }

    fn stats(&self) -> ScriptStats {
        self.pool.stats()
    }
}

impl std::fmt::Debug for ScriptPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScriptPort")
            .field("settings", &self.settings)
            .field("functions", &self.functions)
            .finish_non_exhaustive()
    }
}

fn handle(guard: JobGuard) -> ScriptHandle {
    ScriptHandle::new(move || drop(guard))
}

fn told(done: TaskResult, graph: &Graph, code: SnippetIx) -> ScriptEnd {
    let result = match done.outcome {
        Outcome::Value(value) => Ok(value),
        Outcome::Failed(error) => Err(advised(error, graph, code)),
        _ => Err(RunError::new(RunErrorCode::ScriptError, "the script returned no value")),
    };
    ScriptEnd {
        result,
        logs: done.logs.into_script_logs(),
    }
}

/// Adds a suggestion for an unknown name.
fn advised(mut error: RunError, graph: &Graph, code: SnippetIx) -> RunError {
    let kind = graph.snippet(code).kind;
    if let Some(meant) = advice(error.code, error.details.as_ref(), graph, kind) {
        error.message = format!("{}: {meant}", error.message);
    }
    error
}
