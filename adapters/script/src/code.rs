//! One execution of a CODE node.

use std::sync::Arc;

use pirn_core::thread::ScriptState;
use pirn_definition::script::{Names, Scope, ScopeValues, ScriptFault};
use serde_json::Value;

#[cfg(feature = "javascript")]
use crate::quickjs::live_script::{LiveScript, StepLimits, Upkeep};
#[cfg(feature = "javascript")]
use crate::quickjs::realm_options::RealmOptions;
#[cfg(feature = "javascript")]
use crate::quickjs::reserve::RealmReserve;
use crate::{CodeLimits, HostFunctions, Logs, StopFlag};

/// The body of an async function with all its inputs. It can be moved to another thread.
///
/// The script sees the names that expressions see, and the host's functions by name. Its inputs are copies; its return value is its
/// only result.
#[derive(Clone, Debug)]
pub struct CodeJob {
    /// The body.
    pub code: Arc<str>,
    /// The values visible to the script.
    pub scope: ScopeValues,
    /// Limits of the job.
    pub limits: CodeLimits,
    /// The functions that the script can call.
    pub functions: Arc<HostFunctions>,
    /// Stops it.
    pub stop: StopFlag,
    /// Seed of `Math.random`, which throws if there is none.
    pub seed: Option<u64>,
    /// Recorded inputs of a script workflow; `None` for CODE.
    pub state: Option<Arc<ScriptState>>,
}

/// The result of an execution of CODE.
#[derive(Clone, Debug, PartialEq)]
pub struct CodeOutcome {
    /// The return value; `undefined` is `null`.
    pub result: Result<Value, ScriptFault>,
    /// Log of the script.
    pub logs: Logs,
}

impl CodeJob {
    /// Creates a job with the values of `scope` that `code` uses, default limits and no functions.
    pub fn new(code: impl Into<Arc<str>>, scope: &dyn Scope) -> Self {
        let code = code.into();
        Self {
            scope: ScopeValues::capture(&Names::of(&code), scope),
            code,
            limits: CodeLimits::default(),
            functions: Arc::default(),
            stop: StopFlag::default(),
            seed: None,
            state: None,
        }
    }

    /// Runs the job on the calling thread.
    pub fn run_inline(self) -> CodeOutcome {
        #[cfg(feature = "javascript")]
        return self.run_in(&mut RealmReserve::default());
        #[cfg(not(feature = "javascript"))]
        run(self)
    }

    /// Runs the job on the calling thread, in a realm of its reserve.
    #[cfg(feature = "javascript")]
    pub(crate) fn run_in(self, reserve: &mut RealmReserve) -> CodeOutcome {
        run(self, reserve)
    }
}

/// Outcome of a step of a script workflow, and the script if it waits for results.
#[cfg(feature = "javascript")]
pub(crate) type Stepped = (CodeOutcome, Option<(LiveScript, Upkeep)>);

/// Evaluates a script workflow from its start with its recorded inputs.
#[cfg(feature = "javascript")]
pub(crate) fn start_workflow(job: CodeJob, state: &Value, reserve: &mut RealmReserve) -> Stepped {
    if job.stop.is_stopped() {
        return (CodeOutcome::failed(ScriptFault::cancelled()), None);
    }
    let realm = match reserve.take(&job.realm_options()) {
        Ok(realm) => realm,
        Err(fault) => return (CodeOutcome::failed(fault), None),
    };
    let limits = StepLimits {
        time: job.limits.time,
        stop: job.stop,
    };
    let (script, result, upkeep) = LiveScript::start(realm, &job.code, state, limits);
    stepped(script, result, upkeep, reserve)
}

/// Continues a script workflow with its new inputs.
#[cfg(feature = "javascript")]
pub(crate) fn resume_workflow(
    mut script: LiveScript,
    more: &Value,
    limits: StepLimits,
    reserve: &mut RealmReserve,
) -> Stepped {
    let (result, upkeep) = script.resume(more, limits);
    stepped(script, result, upkeep, reserve)
}

#[cfg(feature = "javascript")]
fn stepped(
    script: LiveScript,
    result: Result<Value, ScriptFault>,
    upkeep: Option<Upkeep>,
    reserve: &mut RealmReserve,
) -> Stepped {
    let result = result.map_err(|fault| in_characters(fault, script.source()));
    let logs = Logs::default();
    let outcome = CodeOutcome { result, logs };
    if let Some(upkeep) = upkeep {
        (outcome, Some((script, upkeep)))
    } else {
        reserve.retire(script.into_realm());
        (outcome, None)
    }
}

#[cfg(feature = "javascript")]
impl CodeJob {
    fn realm_options(&self) -> RealmOptions {
        RealmOptions {
            memory: self.limits.memory,
            stack: self.limits.stack,
            shared: false,
            functions: Arc::clone(&self.functions),
        }
    }
}

#[cfg(feature = "javascript")]
impl CodeOutcome {
    pub(crate) fn failed(fault: ScriptFault) -> Self {
        Self {
            result: Err(fault),
            logs: Logs::default(),
        }
    }
}

#[cfg(feature = "javascript")]
fn run(job: CodeJob, reserve: &mut RealmReserve) -> CodeOutcome {
    use crate::quickjs::realm::{Form, Run};

    if let Some(state) = &job.state {
        let state = serde_json::json!(&**state);
        return start_workflow(job, &state, reserve).0;
    }
    if job.stop.is_stopped() {
        return CodeOutcome::failed(ScriptFault::cancelled());
    }
    let options = job.realm_options();
    let mut realm = match reserve.take(&options) {
        Ok(realm) => realm,
        Err(fault) => return CodeOutcome::failed(fault),
    };
    let names = Names::of(&job.code);
    let mut unknown = job.scope.unknown(&names);
    unknown.retain(|name| !options.functions.names().any(|function| function == name));
    let run = Run {
        scope: job.scope,
        unknown,
        paths: Arc::default(),
        seed: job.seed,
        now: None,
        time: job.limits.time,
        stop: Some(job.stop),
    };
    let result = realm
        .compile(&job.code, Form::Script, &names)
        .and_then(|compiled| realm.script(&compiled, run))
        .map_err(|fault| in_characters(fault, &job.code));
    let logs = realm.take_logs();
    reserve.retire(realm);
    CodeOutcome { result, logs }
}

/// Converts the fault's column from bytes to characters.
#[cfg(feature = "javascript")]
fn in_characters(mut fault: ScriptFault, code: &str) -> ScriptFault {
    if let Some(Value::Object(details)) = &mut fault.details {
        let number = |name: &str| u32::try_from(details.get(name)?.as_u64()?).ok();
        if let Some((line, column)) = number("line").zip(number("column")) {
            let column = pirn_definition::script::place::column_of_bytes(code, line, column);
            details.insert("column".to_owned(), column.into());
        }
    }
    fault
}

#[cfg(not(feature = "javascript"))]
fn run(_: CodeJob) -> CodeOutcome {
    CodeOutcome {
        result: Err(built_without()),
        logs: Logs::default(),
    }
}

/// The fault of everything except plain paths in a build without JavaScript.
#[cfg(not(feature = "javascript"))]
pub(super) fn built_without() -> ScriptFault {
    ScriptFault::error("this program was built without JavaScript")
}
