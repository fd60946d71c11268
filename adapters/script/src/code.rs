//! One execution of a CODE node.

use std::sync::Arc;

use pirn_definition::script::{Names, Scope, ScopeValues, ScriptFault};
use serde_json::Value;

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
        }
    }

    /// Runs the job on the calling thread.
    pub fn run_inline(self) -> CodeOutcome {
        run(self)
    }
}

#[cfg(feature = "javascript")]
fn run(job: CodeJob) -> CodeOutcome {
    use crate::quickjs::realm::{Form, Realm, Run};
    use crate::quickjs::realm_options::RealmOptions;

    if job.stop.is_stopped() {
        return CodeOutcome {
            result: Err(ScriptFault::cancelled()),
            logs: Logs::default(),
        };
    }
    let options = RealmOptions {
        memory: job.limits.memory,
        stack: job.limits.stack,
        shared: false,
        functions: job.functions,
    };
    let mut realm = match Realm::new(&options) {
        Ok(realm) => realm,
        Err(fault) => {
            return CodeOutcome {
                result: Err(fault),
                logs: Logs::default(),
            };
        }
    };
    let names = Names::of(&job.code);
    let mut unknown = job.scope.unknown(&names);
    unknown.retain(|name| !options.functions.names().any(|function| function == name));
    let run = Run {
        scope: job.scope,
        unknown,
        paths: Arc::default(),
        seed: job.seed,
        time: job.limits.time,
        stop: Some(job.stop),
    };
    let result = realm
        .compile(&job.code, Form::Script, &names)
        .and_then(|compiled| realm.script(&compiled, run))
        .map_err(|fault| in_characters(fault, &job.code));
    CodeOutcome {
        result,
        logs: realm.take_logs(),
    }
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
