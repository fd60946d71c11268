//! CODE and expressions as an engine asks for them.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use pirn_actors::ports::{ScriptAnswer, ScriptHandle, ScriptJob, Scripts};
use pirn_core::conversation::Tokenizer;
use pirn_core::error::{RunError, RunErrorCode};
use pirn_core::graph::Evaluator;

use super::compress;
use super::{CodeJob, CodeLimits, CodeOutcome, HostFunctions, JsEvaluator, Logs, PoolClosed, ScriptPool, StopFlag};

/// Jobs that wait for a thread; one more is refused with `OVERLOADED`.
const MOST_WAITING: usize = 4096;

/// Runs CODE on a [`ScriptPool`] that is made when the first job comes, or in place where a job wants that. Scripts can
/// call `compressMessages` and what [`ScriptPort::with_functions`] adds.
pub struct ScriptPort {
    limits: CodeLimits,
    functions: Arc<HostFunctions>,
    tokenizer: TokenizerByName,
    waiting: usize,
    pool: OnceLock<std::io::Result<ScriptPool>>,
}

/// Finds the tokenizer of a name.
type TokenizerByName = Arc<dyn Fn(Option<&str>) -> Arc<dyn Tokenizer> + Send + Sync>;

/// An evaluator with the usual limits, for one thread: what `Ports::evaluator` is made of.
pub fn evaluator() -> Box<dyn Evaluator> {
    Box::new(JsEvaluator::default())
}

impl ScriptPort {
    /// A port with limits on each run.
    pub fn new(limits: CodeLimits) -> Self {
        Self {
            limits,
            functions: Arc::default(),
            tokenizer: Arc::new(crate::tokens::tokenizer),
            waiting: MOST_WAITING,
            pool: OnceLock::new(),
        }
    }

    /// The same port whose scripts can call these functions too.
    #[must_use]
    pub fn with_functions(mut self, functions: HostFunctions) -> Self {
        self.functions = Arc::new(functions);
        self
    }

    /// The same port that counts with other tokenizers (for `compressMessages`; by the workflow's `config.tokenizer`).
    #[must_use]
    pub fn with_tokenizers(
        mut self,
        tokenizer: impl Fn(Option<&str>) -> Arc<dyn Tokenizer> + Send + Sync + 'static,
    ) -> Self {
        self.tokenizer = Arc::new(tokenizer);
        self
    }

    /// The same port that lets at most `waiting` jobs wait for a thread.
    #[must_use]
    pub fn with_queue(mut self, waiting: usize) -> Self {
        self.waiting = waiting;
        self
    }

    fn code_job(&self, job: &ScriptJob<'_>) -> CodeJob {
        let source = &job.graph.snippet(job.code).source;
        let mut code = CodeJob::new(Arc::clone(source), job.scope);
        code.scope.input = Arc::clone(&job.input);
        code.limits = self.limits;
        code.seed = job.seed;
        code.functions = if source.contains(compress::NAME) {
            let tokenizer = (self.tokenizer)(job.graph.config.tokenizer.as_deref());
            let call = move |arguments| compress::compress_messages(arguments, &*tokenizer);
            Arc::new(HostFunctions::clone(&self.functions).with(compress::NAME, call))
        } else {
            Arc::clone(&self.functions)
        };
        code
    }

    fn submit(&self, job: CodeJob, answer: ScriptAnswer) {
        let pool = match self.pool.get_or_init(|| ScriptPool::new(self.waiting)) {
            Ok(pool) => pool,
            Err(error) => return answer(Err(overloaded(format!("no thread for scripts: {error}")))),
        };
        // Shared with the pool, which drops its callback where it takes no more.
        let slot = Arc::new(Mutex::new(Some(answer)));
        let theirs = Arc::clone(&slot);
        let refused = pool.submit(job, move |outcome| {
            if let Some(answer) = taken(&theirs) {
                tell(answer, outcome);
            }
        });
        if let Err(PoolClosed { is_full, .. }) = refused {
            let why = if is_full {
                "too many scripts wait"
            } else {
                "scripts are shut down"
            };
            if let Some(answer) = taken(&slot) {
                answer(Err(overloaded(why)));
            }
        }
    }
}

impl Default for ScriptPort {
    fn default() -> Self {
        Self::new(CodeLimits::default())
    }
}

impl Scripts for ScriptPort {
    fn run(&self, job: ScriptJob<'_>, answer: ScriptAnswer) -> ScriptHandle {
        let code = self.code_job(&job);
        if job.inline {
            tell(answer, code.run_inline());
            return ScriptHandle::new(|| {});
        }
        let stop: StopFlag = code.stop.clone();
        self.submit(code, answer);
        ScriptHandle::new(move || stop.stop())
    }
}

impl std::fmt::Debug for ScriptPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScriptPort")
            .field("limits", &self.limits)
            .field("functions", &self.functions)
            .finish_non_exhaustive()
    }
}

fn taken(slot: &Mutex<Option<ScriptAnswer>>) -> Option<ScriptAnswer> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn tell(answer: ScriptAnswer, outcome: CodeOutcome) {
    show(&outcome.logs);
    answer(outcome.result.map(Arc::new).map_err(RunError::from));
}

fn show(logs: &Logs) {
    for (level, line) in logs.lines() {
        tracing::info!(target: "pirn::script", level, "{line}");
    }
    if logs.dropped() > 0 {
        tracing::info!(target: "pirn::script", lines = logs.dropped(), "more was logged than is kept");
    }
}

fn overloaded(message: impl Into<String>) -> RunError {
    RunError::new(RunErrorCode::Overloaded, message)
}
