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

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pirn_definition::error::RunErrorCode;
use pirn_definition::script::{Names, Path, ScopeValues, ScriptFault};
use rquickjs::context::EvalOptions;
use rquickjs::{
    CaughtError, Context, Ctx, Error, Exception, FromJs, Function, Object, Persistent, Runtime, Value as JsValue,
};
use serde_json::{Value, json};

use super::convert::{NotJson, Reader, describe};
use super::host::{ScriptContext, host_object};
use super::interrupt::{Interrupt, Interruption};
use super::realm_options::RealmOptions;
use crate::{Logs, StopFlag};

/// A compiled snippet of a realm.
#[derive(Clone, Debug)]
pub(crate) struct Compiled(Persistent<Function<'static>>);

/// A realm. Fields are dropped in order: saved handles must be dropped before their runtime.
pub(crate) struct Realm {
    run: Persistent<Function<'static>>,
    truth: Persistent<Function<'static>>,
    forget: Persistent<Function<'static>>,
    bind: Persistent<Function<'static>>,
    at: Persistent<Function<'static>>,
    well_formed: Persistent<Function<'static>>,
    context: Context,
    runtime: Runtime,
    interrupt: Arc<Interrupt>,
    frame: Arc<Mutex<ScriptContext>>,
    memory: usize,
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
    /// Time limit of the execution.
    pub(crate) time: Duration,
    /// Stops the execution from another thread.
    pub(crate) stop: Option<StopFlag>,
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
        let (run, truth, forget, bind, at, well_formed) = context.with(|ctx| {
            let prelude: Function<'_> = ctx.eval(include_str!("prelude.js"))?;
            let host = host_object(&ctx, options, &frame, &interrupt)?;
            let at: Function<'_> = host.get("at")?;
            let made: Object<'_> = prelude.call((host,))?;
            let saved = |name: &str| -> rquickjs::Result<Persistent<Function<'static>>> {
                Ok(Persistent::save(&ctx, made.get::<_, Function<'_>>(name)?))
            };
            Ok::<_, Error>((
                saved("run")?,
                saved("truth")?,
                saved("forget")?,
                saved("bind")?,
                Persistent::save(&ctx, at),
                saved("wellFormed")?,
            ))
        })?;
        Ok(Self {
            run,
            truth,
            forget,
            bind,
            at,
            well_formed,
            context,
            runtime,
            interrupt,
            frame,
            memory: options.memory,
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
                    let scope: Object<'_> = realm.bind.clone().restore(&ctx)?.call((bound,))?;
                    let at = realm.at.clone().restore(&ctx)?;
                    let function: Function<'_> = wrapper.call((scope, at))?;
                    Ok(Compiled(Persistent::save(&ctx, function)))
                };
                compile().map_err(|error| realm.fault(&ctx, error))
            })
        })
    }

    /// Evaluates an expression to its value.
    pub(crate) fn value(&mut self, compiled: &Compiled, run: Run) -> Result<Value, ScriptFault> {
        self.running(run, |realm, ctx| {
            let text = compiled
                .0
                .clone()
                .restore(ctx)
                .map_err(|error| realm.fault(ctx, error))?;
            let value = realm
                .run
                .clone()
                .restore(ctx)
                .and_then(|run| run.call::<_, JsValue<'_>>((text,)));
            realm.json(ctx, &value.map_err(|error| realm.fault(ctx, error))?)
        })
    }

    /// Evaluates an expression to its truthiness.
    pub(crate) fn truth(&mut self, compiled: &Compiled, run: Run) -> Result<bool, ScriptFault> {
        self.running(run, |realm, ctx| {
            let truth = || {
                realm
                    .truth
                    .clone()
                    .restore(ctx)?
                    .call((compiled.0.clone().restore(ctx)?,))
            };
            truth().map_err(|error| realm.fault(ctx, error))
        })
    }

    /// Runs a script until its promise settles.
    pub(crate) fn script(&mut self, compiled: &Compiled, run: Run) -> Result<Value, ScriptFault> {
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
        }
        self.interrupt.begin(run.time, run.stop);
        let (result, forgotten) = self.context.with(|ctx| {
            let result = body(self, &ctx);
            let forget = || self.forget.clone().restore(&ctx)?.call::<_, ()>(());
            (result, forget())
        });
        // If clearing fails, values of this run may remain, so discard the realm.
        self.spent |= forgotten.is_err();
        self.finished(result)
    }

    /// Compiles with a fixed time limit. Snippets are small, so only a stalled machine reaches it.
    fn watched<R>(&mut self, body: impl FnOnce(&Self) -> Result<R, ScriptFault>) -> Result<R, ScriptFault> {
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
        }
        let hit_limit = matches!(&result, Err(fault) if fault.code == RunErrorCode::ScriptLimitExceeded);
        self.spent |= was_interrupted || hit_limit || self.runtime.is_job_pending();
        result
    }

    fn frame(&self) -> std::sync::MutexGuard<'_, ScriptContext> {
        self.frame.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn json<'js>(&self, ctx: &Ctx<'js>, value: &JsValue<'js>) -> Result<Value, ScriptFault> {
        let well_formed = self
            .well_formed
            .clone()
            .restore(ctx)
            .map_err(|error| self.fault(ctx, error))?;
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
            CaughtError::Value(value) if value.is_null() => out_of_memory(),
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

impl Realm {
    /// Rewrites the fault of an undefined name of the snippet.
    fn name_unknown(&self, fault: &mut ScriptFault) {
        let name = fault.message.strip_prefix("ReferenceError: ");
        let Some(name) = name.and_then(|text| text.strip_suffix(" is not defined")) else {
            return;
        };
        let name = name.trim_matches(['\'', '"']);
        if self.frame().unknown.iter().any(|unknown| **unknown == *name) {
            let mut named = ScriptFault::unknown_name(name);
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

/// Returns a function that takes the snippet's names and returns the snippet's function.
fn wrapped(source: &str, form: Form, label: &str) -> String {
    // No parentheses around the functions: QuickJS parses everything in parentheses twice, in search of an arrow function.
    format!(
        "0, function ({label}_scope, {PLACEHOLDER}) {{ with ({label}_scope) {{ return {}; }} }}",
        function(source, form, label)
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

/// Returns the call that replaces the `{{path}}` with this index in an expression.
pub(crate) fn placeholder_call(index: usize) -> String {
    format!("{PLACEHOLDER}({index})")
}

/// Name of the function that reads a `{{path}}`. A snippet that calls it directly can read only its declared paths.
pub(crate) const PLACEHOLDER: &str = "$pirn_at";

pub(crate) fn fresh_label() -> String {
    // The keys of `RandomState` are random, so the author of a workflow cannot predict the label.
    format!("$pirn_{:016x}", RandomState::new().hash_one(0_u8))
}
