//! Scripts in a worker process: the worker's side.

use std::io::{BufWriter, stdin, stdout};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use pirn_definition::graph::{Evaluator, Unevaluated};
use pirn_definition::script::ScriptFault;
use serde_json::Value;

use super::confine::{allow_time, confine};
use super::message::{Reply, Request, WorkerMessage};
use crate::code::{Stepped, resume_workflow, start_workflow};
use crate::quickjs::live_script::{LiveScript, StepLimits};
use crate::quickjs::reserve::RealmReserve;
use crate::{
    CodeJob, CodeLimits, CodeOutcome, ExpressionLimits, HostFunctions, JsEvaluator, Logs, StopFlag, WorkerProgram,
};

/// Serves scripts if this process was started as a worker ([`WorkerProgram`]), until its engine closes the connection. Call it
/// first in `main`: no resource may be open that scripts must not reach.
///
/// ```no_run
/// fn main() -> std::process::ExitCode {
///     if let Some(code) = pirn_script::serve_worker() {
///         return code;
///     }
///     // the program
///     std::process::ExitCode::SUCCESS
/// }
/// ```
pub fn serve_worker() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != WorkerProgram::ARGUMENT {
        return None;
    }
    let memory = arguments.next().and_then(|memory| memory.to_str()?.parse().ok());
    Some(match memory.map(serve) {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(_)) | None => ExitCode::FAILURE,
    })
}

/// Reads the engine's next request.
fn hear() -> std::io::Result<WorkerMessage<Request>> {
    WorkerMessage::read(&mut stdin().lock(), usize::MAX)
}

fn say(reply: &WorkerMessage<Reply>) -> std::io::Result<()> {
    reply.write(&mut BufWriter::new(stdout().lock()))
}

/// Calls a host function through the engine.
fn call(name: &Arc<str>, arguments: Vec<Value>) -> Result<Value, String> {
    let head = Reply::Call { name: Arc::clone(name) };
    let call = WorkerMessage { head, parts: arguments };
    let returned = say(&call).and_then(|()| hear()).map_err(|error| error.to_string())?;
    match (returned.head, returned.parts.into_iter().next()) {
        (Request::Returned { error: None }, Some(value)) => Ok(value),
        (Request::Returned { error: Some(error) }, _) => Err(error),
        _ => Err("unexpected message from the engine".to_owned()),
    }
}

fn serve(memory: usize) -> std::io::Result<()> {
    confine(memory)?;
    let mut evaluator = JsEvaluator::new(ExpressionLimits {
        time: Duration::MAX,
        memory,
        ..ExpressionLimits::default()
    });
    let mut host = Host::default();
    loop {
        let request = match hear() {
            Ok(request) => request,
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        say(&carry_out(request, &mut evaluator, &mut host))?;
        // After the answer, so that the engine does not wait for it. A process with a script workflow runs no other script.
        if host.script.is_none() {
            host.reserve.prepare();
        }
    }
}

/// The realms of this process and the functions that they call.
#[derive(Default)]
struct Host {
    reserve: RealmReserve,
    functions: Arc<HostFunctions>,
    /// The script workflow that waits for results.
    script: Option<LiveScript>,
}

impl Host {
    /// Returns the answer of a step of a script workflow, and caches the script.
    fn answer(&mut self, step: impl FnOnce(&mut RealmReserve) -> Stepped) -> WorkerMessage<Reply> {
        let (CodeOutcome { result, logs }, kept) = step(&mut self.reserve);
        let upkeep = kept.map(|(script, upkeep)| {
            self.script = Some(script);
            upkeep
        });
        match result {
            Ok(value) => WorkerMessage::done_and_kept(value, &logs, upkeep),
            Err(fault) => WorkerMessage::fault_after(fault, &logs),
        }
    }

    /// Returns the functions of these names, which call the engine: those of the last request if the names are equal, so that
    /// a realm that was prepared for them fits.
    fn functions(&mut self, names: Vec<Arc<str>>) -> Arc<HostFunctions> {
        if !self.functions.names().eq(&names) {
            let mut known = HostFunctions::default();
            for name in names {
                let own = Arc::clone(&name);
                known.insert(name, Arc::new(move |arguments| call(&own, arguments)));
            }
            self.functions = Arc::new(known);
        }
        Arc::clone(&self.functions)
    }
}

fn carry_out(request: WorkerMessage<Request>, evaluator: &mut JsEvaluator, host: &mut Host) -> WorkerMessage<Reply> {
    let WorkerMessage { head, parts } = request;
    let script = host.script.take();
    match head {
        Request::Resume { time_ms } => {
            let Some(script) = script else {
                return WorkerMessage {
                    head: Reply::Gone,
                    parts: Vec::new(),
                };
            };
            let time = Duration::from_millis(time_ms);
            allow_time(time);
            let limits = StepLimits {
                time,
                stop: StopFlag::default(),
            };
            let more = parts.into_iter().next().unwrap_or_default();
            host.answer(|reserve| resume_workflow(script, &more, limits, reserve))
        }
        Request::Value { source, time_ms, seen } => {
            begin(evaluator, time_ms);
            let value = evaluator.value_of(&source, &seen.values(parts));
            evaluated(value.map(Arc::unwrap_or_clone))
        }
        Request::Truth { source, time_ms, seen } => {
            begin(evaluator, time_ms);
            evaluated(evaluator.truth_of(&source, &seen.values(parts)).map(Value::Bool))
        }
        Request::Code {
            source,
            time_ms,
            memory,
            stack,
            seed,
            functions,
            is_workflow,
            seen,
        } => {
            let mut parts = parts;
            let state = is_workflow.then(|| parts.pop().unwrap_or_default());
            let time = Duration::from_millis(time_ms);
            allow_time(time);
            let job = CodeJob {
                code: source,
                scope: seen.values(parts),
                limits: CodeLimits { time, memory, stack },
                functions: host.functions(functions),
                stop: StopFlag::default(),
                seed,
                state: None,
            };
            if let Some(state) = state {
                return host.answer(|reserve| start_workflow(job, &state, reserve));
            }
            let outcome = job.run_in(&mut host.reserve);
            match outcome.result {
                Ok(value) => WorkerMessage::done(value, &outcome.logs),
                Err(fault) => WorkerMessage::fault_after(fault, &outcome.logs),
            }
        }
        Request::Returned { .. } => WorkerMessage::fault(ScriptFault::error("nothing was called")),
    }
}

fn begin(evaluator: &mut JsEvaluator, time_ms: u64) {
    let time = Duration::from_millis(time_ms);
    allow_time(time);
    evaluator.begin(time);
}

fn evaluated(result: Result<Value, Unevaluated>) -> WorkerMessage<Reply> {
    match result {
        Ok(value) => WorkerMessage::done(value, &Logs::default()),
        Err(Unevaluated::Fault(fault)) => WorkerMessage::fault(fault),
        Err(Unevaluated::Later) => WorkerMessage::fault(ScriptFault::error("the expression was not evaluated")),
    }
}
