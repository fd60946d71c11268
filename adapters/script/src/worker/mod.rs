//! Scripts in a worker process: the engine's side.
//!
//! Each script thread has one worker, which is started with its first script and restarted after it has exited. They communicate
//! over the worker's standard input and output, one request at a time ([`message`]). The engine kills a worker with a script that
//! does not stop ([`CancelHandle`]). Replies of a worker are not trusted.
//!
//! Not here: the choice of the process or the thread, which is in `interpreter`.

mod confine;
mod message;
mod serve;

use std::cell::RefCell;
use std::io::{BufReader, BufWriter};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use pirn_definition::error::RunErrorCode;
use pirn_definition::script::{Names, Scope, ScopeValues, ScriptFault};
use serde_json::Value;

use self::message::{Reply, Request, ScopeManifest, WorkerMessage};
pub use self::serve::serve_worker;
use crate::expressions::{JavaScript, Script};
use crate::quickjs::live_script::Upkeep;
use crate::task::CancelHandle;
use crate::{CodeJob, CodeOutcome, HostFunctions, ScriptSettings, WorkerProgram};

/// Bytes of a worker's reply in addition to the limit of its values.
const SLACK: usize = 1 << 20;

/// A worker process, with the settings to start another.
pub(super) struct Worker {
    program: WorkerProgram,
    /// Maximum bytes of a script's values.
    memory: usize,
    cancel_handle: Arc<CancelHandle>,
    pipes: Option<Pipes>,
}

/// A worker process that no thread uses. Dropping it ends the process.
pub(super) struct Process {
    child: Option<Child>,
    pipes: Option<Pipes>,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.pipes = None;
        if let Some(child) = &mut self.child {
            // The process may have exited already.
            let _: std::io::Result<()> = child.kill();
            let _: std::io::Result<std::process::ExitStatus> = child.wait();
        }
    }
}

/// A worker shared by expressions and CODE of one thread.
#[derive(Clone)]
pub(super) struct SharedWorker(Rc<RefCell<Worker>>);

struct Pipes {
    to: BufWriter<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Worker {
    pub(super) fn shared(
        program: &WorkerProgram,
        settings: &ScriptSettings,
        cancel_handle: &Arc<CancelHandle>,
    ) -> SharedWorker {
        SharedWorker(Rc::new(RefCell::new(Self {
            program: program.clone(),
            memory: settings.code.memory.max(settings.expressions.memory),
            cancel_handle: Arc::clone(cancel_handle),
            pipes: None,
        })))
    }

    /// Sends a request, serves the script's function calls until the reply arrives, and returns it.
    fn ask(
        &mut self,
        request: &WorkerMessage<Request>,
        functions: &HostFunctions,
    ) -> Result<WorkerMessage<Reply>, ScriptFault> {
        if self.pipes.is_none() {
            self.pipes = Some(self.start()?);
        }
        let Some(pipes) = &mut self.pipes else {
            return Err(ScriptFault::cancelled());
        };
        let answer = converse(pipes, request, functions, self.memory);
        answer.map_err(|error| {
            self.pipes = None;
            lost(self.cancel_handle.set_process(None), &error)
        })
    }

    fn start(&self) -> Result<Pipes, ScriptFault> {
        let mut command = Command::new(&self.program.program);
        command
            .args(&self.program.arguments)
            .arg(self.memory.to_string())
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        // A terminal sends Ctrl-C to its foreground group. A worker in that group would end before the engine, and the run would record a
        // failed script.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let refused = |why: String| ScriptFault {
            code: RunErrorCode::Overloaded,
            message: format!(
                "cannot start a script process: {}: {why}",
                self.program.program.display()
            ),
            details: None,
        };
        let mut child = command.spawn().map_err(|error| refused(error.to_string()))?;
        let (to, from) = (child.stdin.take(), child.stdout.take());
        self.cancel_handle.set_process(Some(child));
        match (to, from) {
            (Some(to), Some(from)) => Ok(Pipes {
                to: BufWriter::new(to),
                from: BufReader::new(from),
            }),
            _ => Err(refused("it has no pipes".to_owned())),
        }
    }

    fn expression(
        &mut self,
        script: &Script,
        scope: &dyn Scope,
        time: Duration,
        request: impl FnOnce(Arc<str>, u64, ScopeManifest) -> Request,
    ) -> Result<WorkerMessage<Reply>, ScriptFault> {
        let values = ScopeValues::capture(&script.names, scope);
        let (seen, parts) = ScopeManifest::scope(&script.names, &values);
        let request = WorkerMessage {
            head: request(Arc::clone(&script.text), millis(time), seen),
            parts,
        };
        self.ask(&request, &HostFunctions::default())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.pipes = None;
        self.cancel_handle.set_process(None);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn converse(
    pipes: &mut Pipes,
    request: &WorkerMessage<Request>,
    functions: &HostFunctions,
    memory: usize,
) -> std::io::Result<WorkerMessage<Reply>> {
    request.write(&mut pipes.to)?;
    loop {
        let reply = WorkerMessage::<Reply>::read(&mut pipes.from, memory.saturating_mul(2) + SLACK)?;
        let Reply::Call { name } = &reply.head else {
            return Ok(reply);
        };
        let returned = match functions.call(name, reply.parts) {
            Ok(value) => WorkerMessage {
                head: Request::Returned { error: None },
                parts: vec![value],
            },
            Err(error) => WorkerMessage {
                head: Request::Returned { error: Some(error) },
                parts: Vec::new(),
            },
        };
        returned.write(&mut pipes.to)?;
    }
}

/// Returns the fault of a script with a worker that exited before its reply.
fn lost(status: Option<std::process::ExitStatus>, error: &std::io::Error) -> ScriptFault {
    if error.kind() == std::io::ErrorKind::InvalidData {
        return ScriptFault::limit(format!("its process returned an invalid answer: {error}"));
    }
    #[cfg(unix)]
    if let Some(signal) = status.as_ref().and_then(std::os::unix::process::ExitStatusExt::signal) {
        // A failed allocation ends a process by SIGABRT.
        return match signal {
            6 => crate::quickjs::realm::out_of_memory(),
            _ => ScriptFault::limit(format!("its process was ended by signal {signal}")),
        };
    }
    match status {
        Some(status) => ScriptFault::limit(format!("its process ended: {status}")),
        None => ScriptFault::limit("its process is gone"),
    }
}

impl JavaScript for SharedWorker {
    fn value(&mut self, script: &Script, scope: &dyn Scope, time: Duration) -> Result<Value, ScriptFault> {
        let mut worker = self.0.borrow_mut();
        let request = |source, time_ms, seen| Request::Value { source, time_ms, seen };
        let reply = worker.expression(script, scope, time, request)?;
        reply.value()
    }

    fn truth(&mut self, script: &Script, scope: &dyn Scope, time: Duration) -> Result<bool, ScriptFault> {
        let mut worker = self.0.borrow_mut();
        let request = |source, time_ms, seen| Request::Truth { source, time_ms, seen };
        let reply = worker.expression(script, scope, time, request)?;
        Ok(reply.value()? == Value::Bool(true))
    }
}

impl SharedWorker {
    /// Returns true if the thread has no process.
    pub(super) fn is_detached(&self) -> bool {
        self.0.borrow().pipes.is_none()
    }

    /// Takes the process from the thread.
    pub(super) fn detach(&self) -> Option<Process> {
        let mut worker = self.0.borrow_mut();
        let pipes = worker.pipes.take()?;
        let child = worker.cancel_handle.take_process();
        let pipes = Some(pipes);
        Some(Process { child, pipes })
    }

    /// Makes a process that of the thread, which has none.
    pub(super) fn attach(&self, mut process: Process) {
        let mut worker = self.0.borrow_mut();
        worker.pipes = process.pipes.take();
        worker.cancel_handle.set_process(process.child.take());
    }

    /// Continues the script workflow of the thread's process. Returns its answer, and its upkeep if it is cached; `None` if the
    /// process has exited or has no script.
    pub(super) fn resume(&self, more: Value, time: Duration) -> Option<(CodeOutcome, Option<Upkeep>)> {
        let time_ms = millis(time);
        let head = Request::Resume { time_ms };
        let parts = vec![more];
        // Script workflows have no functions of the host.
        let functions = HostFunctions::default();
        let reply = self.0.borrow_mut().ask(&WorkerMessage { head, parts }, &functions);
        let reply = reply.ok()?;
        match reply.head {
            Reply::Done { .. } | Reply::Fault { .. } => Some(reply.outcome()),
            Reply::Gone | Reply::Call { .. } => None,
        }
    }

    /// Runs CODE, or evaluates a script workflow from its start. Returns its upkeep if the process caches it.
    pub(super) fn code(&self, job: &CodeJob) -> (CodeOutcome, Option<Upkeep>) {
        if job.stop.is_stopped() {
            return (CodeOutcome::failed(ScriptFault::cancelled()), None);
        }
        let (seen, mut parts) = ScopeManifest::scope(&Names::of(&job.code), &job.scope);
        parts.extend(job.state.as_deref().map(|state| serde_json::json!(state)));
        let head = Request::Code {
            source: Arc::clone(&job.code),
            time_ms: millis(job.limits.time),
            memory: job.limits.memory,
            stack: job.limits.stack,
            seed: job.seed,
            functions: job.functions.names().cloned().collect(),
            is_workflow: job.state.is_some(),
            seen,
        };
        let reply = self.0.borrow_mut().ask(&WorkerMessage { head, parts }, &job.functions);
        let reply = match reply {
            Ok(reply) => reply,
            Err(_) if job.stop.is_stopped() => WorkerMessage::fault(ScriptFault::cancelled()),
            Err(fault) => WorkerMessage::fault(fault),
        };
        reply.outcome()
    }
}

impl WorkerMessage<Reply> {
    fn outcome(self) -> (CodeOutcome, Option<Upkeep>) {
        let logs = self.logs();
        let upkeep = match &self.head {
            Reply::Done { upkeep, .. } => *upkeep,
            Reply::Fault { .. } | Reply::Call { .. } | Reply::Gone => None,
        };
        let result = self.value();
        (CodeOutcome { result, logs }, upkeep)
    }
}
