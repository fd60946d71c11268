//! A hardened QuickJS realm: one runtime, one context, its limits, and the names visible to snippets.
//!
//! Isolation measures:
//!
//! 1. A snippet is the body of a strict function inside `with (scope)`: a bare name that JavaScript does not define is a member of
//!    `scope`, read at the time of use.
//! 2. The function's body is a labelled block that ends in `break LABEL`, with a random label. A snippet that closes the enclosing
//!    brackets to escape does not parse.
//! 3. Functions that compile code, read the clock or generate random numbers are removed (`prelude.js`). In a realm that several
//!    snippets share, all remaining objects are frozen.
//! 4. QuickJS polls the time limit while it runs, including in regular expressions, and scripts cannot catch the interruption. A
//!    realm that exceeded a limit is discarded.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pirn_definition::error::RunErrorCode;
use pirn_definition::graph::agent_option_fault;
use pirn_definition::script::{HOST_NAMES, Names, Path, ScopeValues, ScriptFault};
use pirn_definition::value::levels;
use rquickjs::context::EvalOptions;
use rquickjs::{
    CaughtError, Context, Ctx, Error, Exception, FromJs, Function, Object, Persistent, Runtime, Value as JsValue,
};
use serde_json::{Value, json};

use super::convert::{DEEPEST, NotJson, Reader, describe, to_js};
use super::host::{ScriptContext, host_object};
use super::interrupt::{Interrupt, Interruption};
use super::label::fresh_label;
use super::library::{PRELUDE, WORKFLOW};
use super::realm_options::RealmOptions;
use crate::{Logs, StopFlag};

/// Bytes of a name in a message of QuickJS beyond which it may be truncated: 63 in its buffer, less a character that does not fit.
const LONGEST_SHOWN_NAME: usize = 60;

/// A compiled snippet of a realm, and whether its source can throw `null`.
#[derive(Clone, Debug)]
pub(crate) struct Compiled(Persistent<Function<'static>>, bool);

/// A realm. It can move to another thread: its functions are stored in its runtime.
pub(crate) struct Realm {
    context: Context,
    runtime: Runtime,
    interrupt: Arc<Interrupt>,
    frame: Arc<Mutex<ScriptContext>>,
    memory: usize,
    /// True if the source of the running snippet can throw `null`.
    can_throw_null: bool,
    spent: bool,
}

/// Inputs of one execution of a snippet.
pub(crate) struct Run {
    /// The values visible to the snippet.
    pub(crate) scope: ScopeValues,
    /// The snippet's `{{path}}`s, by number.
    pub(crate) paths: Arc<[Path]>,
    /// The snippet's names that are undefined in this scope.
    pub(crate) unknown: Vec<Arc<str>>,
    /// Seed of `Math.random`.
    pub(crate) seed: Option<u64>,
    /// Value of the clock, in milliseconds.
    pub(crate) now: Option<f64>,
    /// Time limit of the execution.
    pub(crate) time: Duration,
    /// Stops the execution from another thread.
    pub(crate) stop: Option<StopFlag>,
}

/// One step of a script workflow.
pub(crate) struct WorkflowStep {
    /// The new calls, the new log lines, and the end.
    pub(crate) answer: Value,
    /// State of `Math.random` after the step.
    pub(crate) random: Option<u64>,
}

/// A function of a realm's prelude or host: its index in the list that the runtime stores.
#[derive(Clone, Copy)]
enum Builtin {
    Run,
    Truth,
    Forget,
    Bind,
    WellFormed,
    Caught,
    At,
}

/// The kind of wrapper around a snippet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// An expression.
    Expression,
    /// An expression in the other kind of brackets: source that parses in both is one expression.
    BracketedExpression,
    /// The body of an async function.
    Script,
}

impl Realm {
    pub(crate) fn new(options: &RealmOptions) -> Result<Self, ScriptFault> {
        Self::build(options).map_err(|error| ScriptFault::limit(format!("no JavaScript realm could be made: {error}")))
    }

    fn build(options: &RealmOptions) -> rquickjs::Result<Self> {
        let runtime = Runtime::new()?;
        runtime.set_memory_limit(options.memory);
        runtime.set_max_stack_size(options.stack);
        let interrupt = Arc::new(Interrupt::new());
        let polled = interrupt.clone();
        runtime.set_interrupt_handler(Some(Box::new(move || polled.must_stop())));
        let context = Context::full(&runtime)?;
        let frame = Arc::new(Mutex::new(ScriptContext::default()));
        context.with(|ctx| {
            let prelude = PRELUDE.function(&ctx)?;
            let host = host_object(&ctx, options, &frame, &interrupt)?;
            let at: Function<'_> = host.get("at")?;
            let made: Object<'_> = prelude.call((host,))?;
            // The order of `Builtin`.
            let mut functions: Vec<Function<'_>> = Vec::new();
            for name in ["run", "truth", "forget", "bind", "wellFormed", "caught"] {
                functions.push(made.get(name)?);
            }
            functions.push(at);
            ctx.store_userdata(functions).map_err(|_| Error::Unknown)?;
            Ok::<_, Error>(())
        })?;
        Ok(Self {
            context,
            runtime,
            interrupt,
            frame,
            memory: options.memory,
            can_throw_null: false,
            spent: false,
        })
    }

    /// Returns whether a limit was exceeded or work was left running: the realm must be replaced.
    pub(crate) fn is_spent(&self) -> bool {
        self.spent
    }

    /// Compiles a snippet that uses `names`.
    pub(crate) fn compile(&mut self, source: &str, form: Form, names: &Names) -> Result<Compiled, ScriptFault> {
        let label = fresh_label();
        self.watched(|realm| {
            realm.context.with(|ctx| {
                let compile = || {
                    let wrapper: Function<'_> = evaluate(&ctx, wrapped(source, form, &label))?;
                    let bound: Vec<&str> = names.bare().map(AsRef::as_ref).collect();
                    let scope: Object<'_> = builtin(&ctx, Builtin::Bind)?.call((bound,))?;
                    let at = builtin(&ctx, Builtin::At)?;
                    let caught = builtin(&ctx, Builtin::Caught)?;
                    let function: Function<'_> = wrapper.call((scope, at, caught))?;
                    Ok(Compiled(Persistent::save(&ctx, function), can_throw_null(source)))
                };
                compile().map_err(|error| realm.fault(&ctx, error))
            })
        })
    }

    /// Evaluates an expression to its value.
    pub(crate) fn value(&mut self, compiled: &Compiled, run: Run) -> Result<Value, ScriptFault> {
        self.can_throw_null = compiled.1;
        self.running(run, |realm, ctx| {
            let text = compiled
                .0
                .clone()
                .restore(ctx)
                .map_err(|error| realm.fault(ctx, error))?;
            let value = builtin(ctx, Builtin::Run).and_then(|run| run.call::<_, JsValue<'_>>((text,)));
            realm.json(ctx, &value.map_err(|error| realm.fault(ctx, error))?)
        })
    }

    /// Evaluates an expression to its truthiness.
    pub(crate) fn truth(&mut self, compiled: &Compiled, run: Run) -> Result<bool, ScriptFault> {
        self.can_throw_null = compiled.1;
        self.running(run, |realm, ctx| {
            let truth = || builtin(ctx, Builtin::Truth)?.call((compiled.0.clone().restore(ctx)?,));
            truth().map_err(|error| realm.fault(ctx, error))
        })
    }

    /// Runs a script until its promise settles.
    pub(crate) fn script(&mut self, compiled: &Compiled, run: Run) -> Result<Value, ScriptFault> {
        self.can_throw_null = compiled.1;
        self.running(run, |realm, ctx| {
            let start = || compiled.0.clone().restore(ctx)?.call::<_, JsValue<'_>>(());
            let started = start().map_err(|error| realm.fault(ctx, error))?;
            let Some(promise) = started.as_promise() else {
                return realm.json(ctx, &started);
            };
            loop {
                if let Some(settled) = promise.result::<JsValue<'_>>() {
                    return realm.json(ctx, &settled.map_err(|error| realm.fault(ctx, error))?);
                }
                let has_run = ctx.execute_pending_job();
                if realm.interrupt.must_stop() {
                    return Err(realm.fault(ctx, Error::WouldBlock));
                }
                if !has_run && promise.result::<JsValue<'_>>().is_none() {
                    return Err(ScriptFault::error(
                        "the script waits for a promise that will never settle",
                    ));
                }
            }
        })
    }

    /// Runs a script workflow from its start: until it waits for calls without a result, or ends.
    ///
    /// The realm must be fresh.
    pub(crate) fn workflow(&mut self, source: &str, state: &Value, run: Run) -> Result<WorkflowStep, ScriptFault> {
        let label = fresh_label();
        self.can_throw_null = can_throw_null(source);
        self.running(run, |realm, ctx| {
            let start = || {
                // Before the user's script, which may change the built-in objects that the library uses.
                let library = WORKFLOW.function(ctx)?;
                let digest = Function::new(ctx.clone(), |text: String, most: usize| {
                    let bytes = text.as_bytes();
                    (!is_deeper(bytes, most)).then(|| digest(bytes))
                })?;
                let option_fault = Function::new(ctx.clone(), |name: String| agent_option_fault(&name))?;
                let library: Function<'_> = library.call((digest, option_fault))?;
                let make: Function<'_> = evaluate(ctx, workflow_function(source, &label))?;
                let make: Function<'_> = make.call((builtin(ctx, Builtin::Caught)?,))?;
                let written: Vec<&str> = tool_names(source).into_iter().collect();
                let driver: Object<'_> = library.call((make, to_js(ctx, state)?, written))?;
                ctx.store_userdata(driver.clone()).map_err(|_| Error::Unknown)?;
                Ok::<_, Error>(driver)
            };
            let driver = start().map_err(|error| realm.fault(ctx, error))?;
            realm.advance(ctx, &driver)
        })
    }

    /// Continues the script workflow of this realm with further results.
    pub(crate) fn resume(&mut self, more: &Value, run: Run) -> Result<WorkflowStep, ScriptFault> {
        self.running(run, |realm, ctx| {
            let resume = || {
                let driver = ctx.userdata::<Object<'_>>().map(|driver| Object::clone(&driver));
                let driver = driver.ok_or(Error::Unknown)?;
                driver
                    .get::<_, Function<'_>>("resume")?
                    .call::<_, ()>((to_js(ctx, more)?,))?;
                Ok::<_, Error>(driver)
            };
            let driver = resume().map_err(|error| realm.fault(ctx, error))?;
            realm.advance(ctx, &driver)
        })
    }

    /// Runs a script workflow until it waits for calls without a result, or ends.
    fn advance<'js>(&self, ctx: &Ctx<'js>, driver: &Object<'js>) -> Result<WorkflowStep, ScriptFault> {
        let fault = |error| self.fault(ctx, error);
        let next: Function<'_> = driver.get("next").map_err(fault)?;
        loop {
            while ctx.execute_pending_job() {
                if self.interrupt.must_stop() {
                    return Err(fault(Error::WouldBlock));
                }
            }
            // A job that is interrupted reports no error.
            if self.interrupt.interruption().is_some() {
                return Err(fault(Error::WouldBlock));
            }
            if !next.call::<_, bool>(()).map_err(fault)? {
                break;
            }
        }
        let take: Function<'_> = driver.get("take").map_err(fault)?;
        let answer: Object<'js> = take.call(()).map_err(fault)?;
        // Read separately, so that limits and paths are those of the value.
        let returned = take_returned(&answer).map_err(fault)?;
        let mut answer = self.json(ctx, answer.as_value())?;
        if let Some(returned) = returned {
            let returned = self.json(ctx, &returned)?;
            // The answer has the limit of a value, and two levels around this one.
            answer["end"] = if levels(&returned) + 2 > DEEPEST {
                json!({ "written": returned.to_string() })
            } else {
                json!({ "returned": returned })
            };
        }
        locate(&mut answer, self.can_throw_null());
        let random = self.frame().random;
        Ok(WorkflowStep { answer, random })
    }

    /// Returns a number of bytes that the realm does not exceed: a power of two times `least`.
    pub(crate) fn bytes_at_most(&self, least: usize) -> usize {
        // QuickJS counts its bytes, but reports them only after a walk through all objects. An allocation under a lower limit shows in
        // constant time whether the limit is exceeded.
        let fits = |limit: usize| {
            self.runtime.set_memory_limit(limit);
            self.context.with(|ctx| {
                let probe = Object::new(ctx.clone());
                let fits = probe.is_ok();
                if !fits {
                    ctx.catch();
                }
                fits
            })
        };
        let mut bytes = least.max(1);
        while bytes < self.memory && !fits(bytes) {
            bytes *= 2;
        }
        self.runtime.set_memory_limit(self.memory);
        bytes.min(self.memory)
    }

    /// Returns the log lines since the last call.
    pub(crate) fn take_logs(&self) -> Logs {
        std::mem::take(&mut self.frame().logs)
    }

    fn running<R>(
        &mut self,
        run: Run,
        body: impl FnOnce(&Self, &Ctx<'_>) -> Result<R, ScriptFault>,
    ) -> Result<R, ScriptFault> {
        {
            let mut frame = self.frame();
            frame.scope = run.scope;
            frame.paths = run.paths;
            frame.missing = None;
            frame.unknown = run.unknown;
            frame.random = run.seed;
            frame.now = run.now;
            frame.is_exhausted = false;
        }
        self.interrupt.begin(run.time, run.stop);
        let (result, forgotten) = self.context.with(|ctx| {
            let result = body(self, &ctx);
            let forget = || builtin(&ctx, Builtin::Forget)?.call::<_, ()>(());
            (result, forget())
        });
        // If clearing fails, values of this run may remain, so discard the realm.
        self.spent |= forgotten.is_err();
        self.finished(result)
    }

    /// Compiles with a fixed time limit. Snippets are small, so only a stalled machine reaches it.
    fn watched<R>(&mut self, body: impl FnOnce(&Self) -> Result<R, ScriptFault>) -> Result<R, ScriptFault> {
        // The snippet itself does not run.
        self.can_throw_null = false;
        self.interrupt.begin(Duration::from_secs(5), None);
        let result = body(self);
        self.finished(result)
    }

    fn finished<R>(&mut self, result: Result<R, ScriptFault>) -> Result<R, ScriptFault> {
        let was_interrupted = self.interrupt.interruption().is_some();
        self.interrupt.end();
        {
            let mut frame = self.frame();
            frame.scope = ScopeValues::default();
            frame.paths = Arc::default();
            frame.missing = None;
            frame.unknown = Vec::new();
            frame.random = None;
            frame.now = None;
        }
        let hit_limit = matches!(&result, Err(fault) if fault.code == RunErrorCode::ScriptLimitExceeded);
        self.spent |= was_interrupted || hit_limit || self.runtime.is_job_pending();
        result
    }

    fn frame(&self) -> std::sync::MutexGuard<'_, ScriptContext> {
        self.frame.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn json<'js>(&self, ctx: &Ctx<'js>, value: &JsValue<'js>) -> Result<Value, ScriptFault> {
        let well_formed = builtin(ctx, Builtin::WellFormed).map_err(|error| self.fault(ctx, error))?;
        Reader::new(&well_formed, &self.interrupt, self.memory)
            .read(value)
            .map_err(|error| match error {
                NotJson::Threw(error) => self.fault(ctx, error),
                NotJson::TooLarge => self
                    .interrupted()
                    .unwrap_or_else(|| ScriptFault::limit("the result is too large")),
                NotJson::Holds { what, at } => ScriptFault::error(describe("the result", &what, &at)),
            })
    }

    /// True if a thrown `null` is the snippet's, and not QuickJS's.
    fn can_throw_null(&self) -> bool {
        self.can_throw_null && !self.frame().is_exhausted
    }

    fn interrupted(&self) -> Option<ScriptFault> {
        self.interrupt.interruption().map(ScriptFault::from)
    }

    fn fault(&self, ctx: &Ctx<'_>, error: Error) -> ScriptFault {
        let caught = CaughtError::from_error(ctx, error);
        if let Some(fault) = self.interrupted() {
            return fault;
        }
        match caught {
            CaughtError::Exception(exception) => {
                let mut fault = thrown(&exception, || self.interrupted(), || self.frame().missing.take());
                self.name_unknown(&mut fault);
                fault
            }
            // QuickJS throws null if the memory does not suffice for an error object.
            CaughtError::Value(value) if value.is_null() && !self.can_throw_null() => out_of_memory(),
            CaughtError::Value(value) if value.is_null() || value.is_undefined() => {
                ScriptFault::error(format!("it threw {}", value.type_name()))
            }
            CaughtError::Value(value) => {
                let shown = self.json(ctx, &value).map(|json| match json {
                    Value::String(text) => text,
                    other => other.to_string(),
                });
                match shown {
                    Ok(text) => ScriptFault::error(text),
                    Err(fault) if fault.code == RunErrorCode::ScriptError => {
                        ScriptFault::error(format!("it threw {}", value.type_name()))
                    }
                    Err(fault) => fault,
                }
            }
            CaughtError::Error(error) => ScriptFault::error(error.to_string()),
        }
    }
}

fn builtin<'js>(ctx: &Ctx<'js>, which: Builtin) -> rquickjs::Result<Function<'js>> {
    let functions = ctx.userdata::<Vec<Function<'js>>>();
    functions
        .and_then(|functions| functions.get(which as usize).cloned())
        .ok_or(Error::Unknown)
}

impl Realm {
    /// Rewrites the fault of an undefined name of the snippet.
    fn name_unknown(&self, fault: &mut ScriptFault) {
        let name = fault.message.strip_prefix("ReferenceError: ");
        let Some(name) = name.and_then(|text| text.strip_suffix(" is not defined")) else {
            return;
        };
        let name = name.trim_matches(['\'', '"']);
        // QuickJS truncates a long name in its message.
        let is_cut = name.len() >= LONGEST_SHOWN_NAME;
        let is_named = |unknown: &&Arc<str>| ***unknown == *name || (is_cut && unknown.starts_with(name));
        let unknown = self.frame().unknown.iter().find(is_named).cloned();
        if let Some(name) = unknown {
            let mut named = ScriptFault::unknown_name(&name);
            if let (Some(Value::Object(details)), Some(Value::Object(place))) = (&mut named.details, &fault.details) {
                details.extend(place.clone());
            }
            *fault = named;
        }
    }
}

/// Converts an exception to a fault. `interrupted` returns the limit that caused it, if any; `missing` returns the last requested
/// path that does not exist.
pub(crate) fn thrown(
    exception: &Exception<'_>,
    interrupted: impl FnOnce() -> Option<ScriptFault>,
    missing: impl FnOnce() -> Option<Arc<str>>,
) -> ScriptFault {
    let message = exception.message().unwrap_or_default();
    let name = exception
        .as_object()
        .get::<_, String>("name")
        .unwrap_or_else(|_| "Error".to_owned());
    if let Some(fault) = interrupted() {
        return fault;
    }
    if name == "InternalError" && matches!(message.as_str(), "out of memory" | "string too long") {
        return out_of_memory();
    }
    if name == "RangeError" && message == "Maximum call stack size exceeded" {
        return ScriptFault::limit("its call stack is too deep");
    }
    if let Some(path) = missing().filter(|path| message.contains(path.as_ref())) {
        return ScriptFault::missing_path(RunErrorCode::ScriptError, &path);
    }
    let mut fault = ScriptFault::error(if name == "Error" {
        message
    } else {
        format!("{name}: {message}")
    });
    fault.details = exception
        .stack()
        .as_deref()
        .and_then(place)
        .map(|(line, column)| json!({ "line": line, "column": column }));
    fault
}

impl From<Interruption> for ScriptFault {
    fn from(interruption: Interruption) -> Self {
        match interruption {
            Interruption::TimeIsUp => Self::limit("it exceeded its time limit"),
            Interruption::Stopped => Self::cancelled(),
        }
    }
}

pub(crate) fn out_of_memory() -> ScriptFault {
    ScriptFault::limit("it exceeded its memory limit")
}

/// File name of snippets in error stacks.
const FILE: &str = "text";

/// Returns the line and column in the snippet of the innermost stack entry within it.
fn place(stack: &str) -> Option<(u32, u32)> {
    stack.lines().find_map(|line| {
        let (_, place) = line.rsplit_once(&format!("{FILE}:"))?;
        let (line, column) = place.trim_end_matches(')').split_once(':')?;
        // The wrapper has one line before the snippet.
        Some((
            line.parse::<u32>().ok()?.checked_sub(1).filter(|line| *line > 0)?,
            column.parse().ok()?,
        ))
    })
}

pub(crate) fn evaluate<'js, V: FromJs<'js>>(ctx: &Ctx<'js>, source: String) -> rquickjs::Result<V> {
    let mut options = EvalOptions::default();
    options.strict = false; // for `with`; the text itself is in a strict function
    options.filename = Some(FILE.to_owned());
    ctx.eval_with_options(source, options)
}

/// Returns a function that takes `caught` of the prelude. Its result takes the values of [`HOST_NAMES`] and returns the function of a
/// script workflow.
fn workflow_function(source: &str, label: &str) -> String {
    let names = HOST_NAMES.join(", ");
    format!(
        "0, function ({label}_caught) {{ return function ({names}) {{ return {}; }}; }}",
        caught_function(source, Form::Script, label)
    )
}

/// Returns whether a source can throw `null`, or reject a promise with it. If not, a thrown `null` is QuickJS's, which had no memory for
/// an error object.
fn can_throw_null(source: &str) -> bool {
    let rests = |word: &'static str| {
        let found = source.match_indices(word);
        found.map(move |(at, _)| source[at + word.len()..].trim_start())
    };
    // Only a promise's constructor and `reject` accept the reason of a rejection.
    let combines = |rest: &str| {
        [".all", ".any", ".race", ".resolve"]
            .iter()
            .any(|name| rest.starts_with(name))
    };
    rests("throw").any(|rest| !rest.starts_with("new "))
        || rests("Promise").any(|rest| !combines(rest))
        || source.contains("reject")
}

/// Returns the names of tools that the script writes: `tools.NAME` and `tools["NAME"]`. The list of a node's tools may contain patterns, so
/// that it does not have all names.
fn tool_names(source: &str) -> BTreeSet<&str> {
    let named = source.match_indices("tools").filter_map(|(at, word)| {
        let rest = source[at + word.len()..].trim_start();
        let rest = rest.strip_prefix('?').unwrap_or(rest);
        let rest = rest.strip_prefix('.').unwrap_or(rest).trim_start();
        if let Some(rest) = rest.strip_prefix('[') {
            let rest = rest.trim_start();
            let quote = rest.chars().next().filter(|sign| matches!(sign, '"' | '\'' | '`'))?;
            return Some(rest[1..].split_once(quote)?.0);
        }
        let end = rest
            .find(|letter: char| !(letter.is_alphanumeric() || matches!(letter, '_' | '$')))
            .unwrap_or(rest.len());
        Some(&rest[..end])
    });
    named.filter(|name| !name.is_empty()).collect()
}

/// Removes the value that the script returned from an answer.
fn take_returned<'js>(answer: &Object<'js>) -> rquickjs::Result<Option<JsValue<'js>>> {
    let Some(end) = answer.get::<_, Option<Object<'js>>>("end")? else {
        return Ok(None);
    };
    if !end.contains_key("returned")? {
        return Ok(None);
    }
    let returned = end.get("returned")?;
    end.remove("returned")?;
    Ok(Some(returned))
}

/// Replaces the stack of an error that the script threw by its line and column. A `null` that it cannot have thrown is QuickJS's.
fn locate(answer: &mut Value, can_throw_null: bool) {
    let Some(thrown) = answer.pointer_mut("/end/thrown").map(Value::take) else {
        return;
    };
    let message = thrown["message"].as_str().unwrap_or_default();
    let details = place(thrown["stack"].as_str().unwrap_or_default());
    let details = details.map(|(line, column)| json!({ "line": line, "column": column }));
    let limit = match message {
        "RangeError: Maximum call stack size exceeded" => Some(ScriptFault::limit("its call stack is too deep")),
        "InternalError: out of memory" | "InternalError: string too long" => Some(out_of_memory()),
        // QuickJS rejects with null if not even an error fits into the memory.
        _ if thrown["isNull"] == true && !can_throw_null => Some(out_of_memory()),
        _ => None,
    };
    if let Some(ScriptFault { code, message, .. }) = limit {
        answer["end"] = json!({ "failed": { "code": code, "message": message } });
        return;
    }
    let message = message.strip_prefix("Error: ").unwrap_or(message);
    answer["end"] = json!({ "failed": { "code": RunErrorCode::ScriptError, "message": message, "details": details } });
}

/// Returns true if the JSON text has more than `most` levels.
fn is_deeper(json: &[u8], most: usize) -> bool {
    let (mut level, mut is_string, mut is_escaped) = (0_usize, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_string,
            b'"' => is_string = !is_string,
            b'[' | b'{' if !is_string => level += 1,
            b']' | b'}' if !is_string => level = level.saturating_sub(1),
            _ => {}
        }
        if level > most {
            return true;
        }
    }
    false
}

/// Returns the digest of a call: FNV-1a with 128 bits, in hexadecimal digits.
fn digest(bytes: &[u8]) -> String {
    // Written out: the digests of a recorded run must not change with the version of a library. They detect changes of a script by
    // its author, so that a cryptographic hash is not needed.
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for byte in bytes {
        hash = (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    format!("{hash:032x}")
}

/// Returns a function that takes the snippet's names and returns the snippet's function.
fn wrapped(source: &str, form: Form, label: &str) -> String {
    // No parentheses around the functions: QuickJS parses everything in parentheses twice, in search of an arrow function.
    format!(
        "0, function ({label}_scope, {PLACEHOLDER}, {label}_caught) {{ with ({label}_scope) {{ return {}; }} }}",
        caught_function(source, form, label)
    )
}

/// Returns the snippet's function. A snippet with surplus closing brackets leaves the labelled block, and then the `break` does not
/// parse.
pub(crate) fn function(source: &str, form: Form, label: &str) -> String {
    let (before, after) = match form {
        Form::Expression => ("function () { \"use strict\"; {label}: { return (", "\n);"),
        Form::BracketedExpression => ("function () { \"use strict\"; {label}: { return [", "\n];"),
        Form::Script => ("async function () { \"use strict\"; {label}: {", "\n"),
    };
    let before = before.replace("{label}", label);
    format!("{before}\n{source}{after} break {label}; }} }}")
}

/// Returns the snippet's function. That of a script passes its error to `caught` of the prelude, inside of the function, while its
/// variables still use their memory.
fn caught_function(source: &str, form: Form, label: &str) -> String {
    let function = function(source, form, label);
    match form {
        Form::Expression | Form::BracketedExpression => function,
        Form::Script => {
            let function = function.replacen("\"use strict\";", "\"use strict\"; try {", 1);
            format!("{function} catch ({label}_error) {{ throw {label}_caught({label}_error); }} }}")
        }
    }
}

/// Returns the call that replaces the `{{path}}` with this index in an expression.
pub(crate) fn placeholder_call(index: usize) -> String {
    format!("{PLACEHOLDER}({index})")
}

/// Name of the function that reads a `{{path}}`. A snippet that calls it directly can read only its declared paths.
pub(crate) const PLACEHOLDER: &str = "$pirn_at";
