//! The host's side of a realm: values by name, `{{path}}`s, logs, seeded random numbers, registered functions.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use pirn_definition::script::{JS_GLOBALS, Path, Scope, ScopeValues};
use rquickjs::function::{Constructor, Rest, This};
use rquickjs::{Array, Ctx, Error, Exception, Function, Object, Value as JsValue};
use serde_json::Value;

use super::convert::{NotJson, Reader, describe, to_js};
use super::interrupt::Interrupt;
use super::realm_options::RealmOptions;
use crate::{HostFunctions, Logs};

/// State of the host functions during the execution of a snippet.
#[derive(Default)]
pub(crate) struct ScriptContext {
    pub(crate) scope: ScopeValues,
    pub(crate) paths: Arc<[Path]>,
    pub(crate) missing: Option<Arc<str>>,
    pub(crate) unknown: Vec<Arc<str>>,
    pub(crate) logs: Logs,
    pub(crate) random: Option<u64>,
    pub(crate) now: Option<f64>,
    /// True if a script ended because of its memory limit.
    pub(crate) is_exhausted: bool,
}

/// Creates the object that the prelude receives.
pub(crate) fn host_object<'js>(
    ctx: &Ctx<'js>,
    options: &RealmOptions,
    frame: &Arc<Mutex<ScriptContext>>,
    interrupt: &Arc<Interrupt>,
) -> rquickjs::Result<Object<'js>> {
    let host = Object::new(ctx.clone())?;
    host.set("allowed", JS_GLOBALS.to_vec())?;
    host.set("shared", options.shared)?;
    host.set("longest", options.memory / 16)?;
    let polled = interrupt.clone();
    host.set(
        "pause",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>| {
            // A script that catches this error is interrupted at its next poll.
            if polled.must_stop_after_much() {
                Err(throw(&ctx, "its time is up"))
            } else {
                Ok(())
            }
        })?,
    )?;

    host.set("at", path_reader(ctx, frame)?)?;
    let at = frame.clone();
    host.set(
        "fixed",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>, name: String| fixed(&ctx, &at, &name))?,
    )?;
    let at = frame.clone();
    host.set(
        "member",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>, kind: u8, name: String| {
            let value = members(&locked(&at).scope, kind).get(name.as_str()).cloned();
            optional(&ctx, value.as_deref())
        })?,
    )?;
    let at = frame.clone();
    host.set(
        "has",
        Function::new(ctx.clone(), move |kind: u8, name: String| {
            members(&locked(&at).scope, kind).contains_key(name.as_str())
        })?,
    )?;
    let at = frame.clone();
    host.set(
        "unknown",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>| list(&ctx, &locked(&at).unknown))?,
    )?;
    let at = frame.clone();
    host.set(
        "keys",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>, kind: u8| {
            let names: Vec<Arc<str>> = members(&locked(&at).scope, kind).keys().cloned().collect();
            list(&ctx, &names)
        })?,
    )?;
    let at = frame.clone();
    host.set(
        "log",
        Function::new(ctx.clone(), move |level: String, text: String| {
            locked(&at).logs.add(&level, &text);
        })?,
    )?;
    let at = frame.clone();
    host.set(
        "random",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>| random(&ctx, &at))?,
    )?;

    let at = frame.clone();
    host.set(
        "exhausted",
        Function::new(ctx.clone(), move || locked(&at).is_exhausted = true)?,
    )?;

    let at = frame.clone();
    host.set("now", Function::new(ctx.clone(), move || locked(&at).now)?)?;

    let functions = Object::new(ctx.clone())?;
    functions.set_prototype(None)?;
    for name in options.functions.names() {
        let (all, interrupt, memory, name) = (
            options.functions.clone(),
            interrupt.clone(),
            options.memory,
            name.clone(),
        );
        let key = name.clone();
        let call = move |ctx: Ctx<'js>, _this: This<JsValue<'js>>, arguments: Rest<JsValue<'js>>| {
            call_host(&ctx, &all, &name, &arguments.0, &interrupt, memory)
        };
        functions.set(key.as_ref(), Function::new(ctx.clone(), call)?)?;
    }
    host.set("functions", functions)?;
    Ok(host)
}

fn locked(frame: &Mutex<ScriptContext>) -> std::sync::MutexGuard<'_, ScriptContext> {
    frame.lock().unwrap_or_else(PoisonError::into_inner)
}

fn list<'js>(ctx: &Ctx<'js>, names: &[Arc<str>]) -> rquickjs::Result<Array<'js>> {
    let list = Array::new(ctx.clone())?;
    for (index, name) in names.iter().enumerate() {
        list.set(index, name.as_ref())?;
    }
    Ok(list)
}

fn members(scope: &ScopeValues, kind: u8) -> &BTreeMap<Arc<str>, Arc<Value>> {
    if kind == 0 { &scope.variables } else { &scope.nodes }
}

/// Returns the value of one of the fixed names.
fn fixed<'js>(ctx: &Ctx<'js>, frame: &Mutex<ScriptContext>, name: &str) -> rquickjs::Result<JsValue<'js>> {
    let value = {
        let scope = &locked(frame).scope;
        match name {
            "input" => Some(scope.input()),
            "output" => Some(scope.output()),
            "event" => scope.event(),
            _ => None,
        }
    };
    optional(ctx, value.as_deref())
}

fn optional<'js>(ctx: &Ctx<'js>, value: Option<&Value>) -> rquickjs::Result<JsValue<'js>> {
    value.map_or_else(|| Ok(JsValue::new_undefined(ctx.clone())), |value| to_js(ctx, value))
}

/// Creates the function that reads the `{{path}}`s of the running snippet.
fn path_reader<'js>(ctx: &Ctx<'js>, frame: &Arc<Mutex<ScriptContext>>) -> rquickjs::Result<Function<'js>> {
    let frame = frame.clone();
    Function::new(ctx.clone(), move |ctx: Ctx<'js>, index: usize| {
        placeholder(&ctx, &frame, index)
    })
}

fn placeholder<'js>(ctx: &Ctx<'js>, frame: &Mutex<ScriptContext>, index: usize) -> rquickjs::Result<JsValue<'js>> {
    let (value, path) = {
        let frame = locked(frame);
        let path = frame.paths.get(index).cloned();
        (path.as_ref().and_then(|path| path.value(&frame.scope)), path)
    };
    if let Some(value) = value {
        return to_js(ctx, &value);
    }
    let source = path.map(|path| path.source().clone()).unwrap_or_default();
    let error = throw(ctx, &format!("`{source}` does not exist"));
    locked(frame).missing = Some(source);
    Err(error)
}

/// Throws an `Error`. The function of rquickjs assigns the message, which fails on a frozen prototype.
fn throw(ctx: &Ctx<'_>, message: &str) -> Error {
    let made = ctx
        .globals()
        .get::<_, Constructor<'_>>("Error")
        .and_then(|error| error.construct((message,)));
    match made {
        Ok(error) => ctx.throw(error),
        Err(error) => error,
    }
}

fn random(ctx: &Ctx<'_>, frame: &Mutex<ScriptContext>) -> rquickjs::Result<f64> {
    let mut frame = locked(frame);
    let Some(state) = frame.random.as_mut() else {
        drop(frame);
        return Err(Exception::throw_type(
            ctx,
            "Math.random needs a seed, so that a run can be repeated",
        ));
    };
    // SplitMix64: every seed yields a good sequence, and the state is one number.
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    Ok((mixed >> 11) as f64 / (1_u64 << 53) as f64)
}

fn call_host<'js>(
    ctx: &Ctx<'js>,
    functions: &HostFunctions,
    name: &str,
    arguments: &[JsValue<'js>],
    interrupt: &Interrupt,
    memory: usize,
) -> rquickjs::Result<JsValue<'js>> {
    let throw = |message: &str| throw(ctx, &format!("{name}: {message}"));
    let well_formed = Function::new(ctx.clone(), |text: JsValue<'js>| text)?;
    let mut reader = Reader::new(&well_formed, interrupt, memory);
    let mut given = Vec::with_capacity(arguments.len());
    for argument in arguments {
        given.push(reader.read(argument).map_err(|error| match error {
            NotJson::Threw(error) => error,
            NotJson::TooLarge => throw("an argument is too large"),
            NotJson::Holds { what, at } => throw(&describe("an argument", &what, &at)),
        })?);
    }
    match catch_unwind(AssertUnwindSafe(|| functions.call(name, given))) {
        Ok(Ok(value)) => to_js(ctx, &value),
        Ok(Err(message)) => Err(throw(&message)),
        Err(_) => Err(throw("it panicked")),
    }
}
