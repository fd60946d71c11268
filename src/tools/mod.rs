//! Tools by name.
//!
//! A tool that is unknown, fails, panics, is called wrongly or takes too long answers the model with a text that says
//! so; none of that ends a run (SPEC section 3).

mod arguments;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, Either, select};
use pirn_actors::host::WorkClock;
use pirn_actors::ports::{Tool, ToolSpec, Tools};
use pirn_core::Millis;
use pirn_core::message::ToolCall;
use pirn_core::thread::ToolResult;
use serde_json::Value;

/// How long a tool may take where nothing else is said.
pub const DEFAULT_TIMEOUT: Millis = 60_000;

/// Tools registered in code.
#[derive(Clone, Default)]
pub struct ToolRegistry {
    tools: BTreeMap<String, Registered>,
}

#[derive(Clone)]
struct Registered {
    tool: Arc<dyn Tool>,
    spec: ToolSpec,
    timeout: Millis,
}

impl ToolRegistry {
    /// No tools.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool that may take [`DEFAULT_TIMEOUT`]; one of the same name is replaced.
    pub fn register(&mut self, tool: Arc<dyn Tool>) {
        self.register_with_timeout(tool, DEFAULT_TIMEOUT);
    }

    /// Adds a tool that may take `timeout` milliseconds.
    pub fn register_with_timeout(&mut self, tool: Arc<dyn Tool>, timeout: Millis) {
        let spec = tool.spec();
        self.tools.insert(spec.name.clone(), Registered { tool, spec, timeout });
    }

    /// The same registry and this tool: `ToolRegistry::new().with(tool_fn(...))`.
    #[must_use]
    pub fn with(mut self, tool: Arc<dyn Tool>) -> Self {
        self.register(tool);
        self
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.keys().map(String::as_str)
    }

    fn offered(&self, names: &[Arc<str>], name: &str) -> Option<&Registered> {
        let is_offered = names.iter().any(|offered| **offered == *name);
        self.tools.get(name).filter(|_| is_offered)
    }

    fn unknown(&self, names: &[Arc<str>], name: &str) -> String {
        let known: Vec<&str> = names
            .iter()
            .map(AsRef::as_ref)
            .filter(|name| self.tools.contains_key(*name))
            .collect();
        if known.is_empty() {
            return format!("there is no tool `{name}`; there are no tools");
        }
        format!("there is no tool `{name}`; there are: {}", known.join(", "))
    }
}

impl Tools for ToolRegistry {
    fn specs(&self, names: &[Arc<str>]) -> Vec<ToolSpec> {
        names
            .iter()
            .filter_map(|name| self.tools.get(&**name))
            .map(|found| found.spec.clone())
            .collect()
    }

    fn call(&self, names: &[Arc<str>], call: ToolCall, clock: WorkClock) -> BoxFuture<'static, ToolResult> {
        let Some(found) = self.offered(names, &call.name).cloned() else {
            let failed = failed(self.unknown(names, &call.name));
            return std::future::ready(failed).boxed();
        };
        async move {
            match found.call(call.arguments, clock).await {
                Ok(content) => ToolResult { content, failed: false },
                Err(message) => failed(message),
            }
        }
        .boxed()
    }
}

impl Registered {
    async fn call(self, given: Value, clock: WorkClock) -> Result<String, String> {
        let Self { tool, spec, timeout } = self;
        let name = &spec.name;
        let given = if given.is_null() {
            Value::Object(serde_json::Map::new())
        } else {
            given
        };
        arguments::check(&spec.parameters, &given).map_err(|fault| format!("wrong arguments for `{name}`: {fault}"))?;
        let limit = clock.sleep(timeout);
        let panicked = |payload| Err(format!("the tool `{name}` panicked: {}", panic_message(payload)));
        let work = match catch_unwind(AssertUnwindSafe(|| tool.call(given, clock))) {
            Ok(work) => AssertUnwindSafe(work).catch_unwind(),
            Err(payload) => return panicked(payload),
        };
        match select(work, limit).await {
            Either::Left((Ok(result), _)) => result,
            Either::Left((Err(payload), _)) => panicked(payload),
            Either::Right(((), _)) => Err(format!(
                "the tool `{name}` took longer than {timeout} ms and was stopped"
            )),
        }
    }
}

impl std::fmt::Debug for ToolRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.tools.keys()).finish()
    }
}

/// The text of a panic. A payload that is no text is leaked: its destructor is as little to be trusted as the tool.
fn panic_message(payload: Box<dyn Any + Send>) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| {
        std::mem::forget(payload);
        "it gave no reason".to_owned()
    })
}

fn failed(content: String) -> ToolResult {
    ToolResult { content, failed: true }
}

/// A tool from a function. `schema` is the JSON Schema of its arguments; it waits for nothing outside the program.
///
/// ```
/// use serde_json::json;
/// let schema = json!({"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]});
/// let double = pirn::tools::tool_fn("double", "Doubles a number", schema, |arguments| async move {
///     let a = arguments["a"].as_f64().ok_or("`a` is no number")?;
///     Ok((2.0 * a).to_string())
/// });
/// assert_eq!(double.spec().name, "double");
/// ```
pub fn tool_fn<F, R>(name: impl Into<String>, description: impl Into<String>, schema: Value, call: F) -> Arc<dyn Tool>
where
    F: Fn(Value) -> R + Send + Sync + 'static,
    R: Future<Output = Result<String, String>> + Send + 'static,
{
    Arc::new(FunctionTool {
        spec: ToolSpec {
            name: name.into(),
            description: description.into(),
            parameters: schema,
        },
        call,
    })
}

struct FunctionTool<F> {
    spec: ToolSpec,
    call: F,
}

impl<F, R> Tool for FunctionTool<F>
where
    F: Fn(Value) -> R + Send + Sync + 'static,
    R: Future<Output = Result<String, String>> + Send + 'static,
{
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn call(&self, arguments: Value, _: WorkClock) -> BoxFuture<'static, Result<String, String>> {
        (self.call)(arguments).boxed()
    }

    fn is_external(&self) -> bool {
        false
    }
}
