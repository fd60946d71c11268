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
use crate::{CodeJob, CodeLimits, ExpressionLimits, HostFunctions, JsEvaluator, Logs, StopFlag, WorkerProgram};

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
    loop {
        let request = match hear() {
            Ok(request) => request,
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        say(&carry_out(request, &mut evaluator))?;
    }
}

fn carry_out(request: WorkerMessage<Request>, evaluator: &mut JsEvaluator) -> WorkerMessage<Reply> {
    let WorkerMessage { head, parts } = request;
    match head {
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
            seen,
        } => {
            let time = Duration::from_millis(time_ms);
            allow_time(time);
            let mut known = HostFunctions::default();
            for name in functions {
                let own = Arc::clone(&name);
                known.insert(name, Arc::new(move |arguments| call(&own, arguments)));
            }
            let job = CodeJob {
                code: source,
                scope: seen.values(parts),
                limits: CodeLimits { time, memory, stack },
                functions: Arc::new(known),
                stop: StopFlag::default(),
                seed,
            };
            let outcome = job.run_inline();
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
