//! Builder of engines.

mod build;
mod error;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use pirn_actors::journal::Journal;
use pirn_actors::ports::{CallContext, Function, Input, Model, Notify, Ports, Tool};
use pirn_conversation::conversation::Tokenizer;
use pirn_definition::Millis;
use pirn_definition::definition::{Loaded, Profile, SourceFile, TriggerDefinition, WorkflowDefinition};
use pirn_models::ChooseKey;
use pirn_script::ScriptPort;
use pirn_store::Store;
use serde::Serialize;
use serde_json::Value;

use super::Compression;
use super::durable::{AskDoubt, DoubtAnswer, DoubtQuestion};
use crate::check::CheckedFiles;
use crate::faults::Faults;
use crate::skills::with_skills;
use crate::tools::{ApprovalRequest, Elicitation, ToolRegistry, Verdict};

pub(crate) use build::Plan;
pub use error::BuildError;

/// Returns the message of a panic, if it has one.
fn text_of_panic(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no text")
}

/// Serializes a definition, which cannot fail: its map keys are strings.
fn written(definition: &impl Serialize) -> String {
    serde_json::to_string_pretty(definition).unwrap_or_else(|error| error.to_string())
}

/// Builder of an engine. Every setting has a default.
#[derive(Default)]
pub struct EngineBuilder {
    files: Vec<SourceFile>,
    unread: Vec<(PathBuf, std::io::Error)>,
    checked: Option<CheckedFiles>,
    functions: BTreeMap<String, Function>,
    tools: ToolRegistry,
    models: BTreeMap<String, Arc<dyn Model>>,
    keys: Option<Arc<ChooseKey>>,
    tokenizers: BTreeMap<String, Arc<dyn Tokenizer>>,
    profiles: Vec<Profile>,
    max_runs: Option<usize>,
    arbiters: Option<usize>,
    work: Option<tokio::runtime::Handle>,
    clock: Clock,
    is_local: bool,
    notify: Option<Arc<Notify>>,
    seed: Option<u64>,
    faults: Faults,
    journal: Option<Arc<dyn Journal>>,
    store: Option<Arc<dyn Store>>,
    ask: Option<AskDoubt>,
    park_after: Option<Duration>,
    scripts: Option<Arc<ScriptPort>>,
    max_waiting: Option<usize>,
    has_schedules: Option<bool>,
    speculative_at: Option<f64>,
    max_run_bytes: Option<u64>,
    over_ports: Option<Box<OverPorts>>,
}

/// Replaces models and tools of an engine before it starts.
type OverPorts = dyn FnOnce(&mut Ports) + Send + Sync;

/// Clock of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Clock {
    #[default]
    Real,
    Virtual {
        seed: Option<u64>,
        /// Wall-clock time of the start, in milliseconds since 1970.
        origin: Millis,
    },
}

impl EngineBuilder {
    /// Persists the engine's runs in a store, so that they survive the process: [`Engine::recover`](super::Engine::recover) resumes
    /// them. Effects and outputs that follow from an input are released once that input is durable.
    #[must_use]
    pub fn store(mut self, store: impl Store) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// Sets the idle time after which a durable run that waits only for people, events or timers is parked (default 1 minute;
    /// `Duration::MAX`: never).
    ///
    /// Parking drops the run's messages, variables and threads from memory. They are rebuilt from the store on the next input: an
    /// answer, an event, a due timer, a cancellation or a status query. Handles and subscribers of the run are not affected.
    /// Without a store the setting has no effect.
    #[must_use]
    pub fn park_after(mut self, quiet: Duration) -> Self {
        self.park_after = Some(quiet);
        self
    }

    /// Like [`EngineBuilder::store`], for a store to which others hold a handle.
    #[must_use]
    pub fn shared_store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// Sets the function that asks a person about an effect in doubt: one that had started when the run's process ended and whose
    /// node or tool sets `"inDoubt": "ask"`. Without it, such a run cannot be resumed.
    #[must_use]
    pub fn ask_in_doubt(
        mut self,
        ask: impl Fn(DoubtQuestion) -> BoxFuture<'static, DoubtAnswer> + Send + Sync + 'static,
    ) -> Self {
        self.ask = Some(Arc::new(ask));
        self
    }

    /// Records the inputs of the engine's runs, so that they can be [rebuilt](super::Engine::rebuild). An engine has either a
    /// journal or a [store](Self::store).
    #[must_use]
    pub fn journal(mut self, journal: Arc<dyn Journal>) -> Self {
        self.journal = Some(journal);
        self
    }

    /// Adds the workflows, triggers and profiles of JSON source.
    #[must_use]
    pub fn workflows(self, text: impl Into<String>) -> Self {
        let name = format!("workflows-{}", self.files.len() + 1);
        self.file(name, text)
    }

    /// Like [`EngineBuilder::workflows`], with a name for error messages.
    #[must_use]
    pub fn file(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.files.push(SourceFile::new(name.into(), text.into()));
        self
    }

    /// Adds the workflows, triggers and profiles of a JSON file, which is read now, with the folders of its `skills`. If it cannot be read, [`build`](Self::build)
    /// returns the error.
    ///
    /// ```no_run
    /// let engine = pirn::Engine::builder().path("workflows/greet.json").build()?;
    /// # Ok::<(), pirn::BuildError>(())
    /// ```
    #[must_use]
    pub fn path(mut self, path: impl AsRef<Path>) -> Self {
        let path = path.as_ref();
        match std::fs::read_to_string(path) {
            Ok(text) => {
                let file = SourceFile::new(path.display().to_string(), text);
                self.files.push(with_skills(file, path));
                self
            }
            Err(error) => {
                // Collected, so that `build` reports all unreadable files at once.
                self.unread.push((path.to_owned(), error));
                self
            }
        }
    }

    /// Adds files that were read already, with their skills and scripts ([`with_skills`](crate::with_skills())).
    #[must_use]
    pub fn files(mut self, files: impl IntoIterator<Item = SourceFile>) -> Self {
        self.files.extend(files);
        self
    }

    /// Adds a workflow built in Rust with [`workflow`](crate::workflow()). Faults are reported by their location in the equivalent
    /// JSON.
    #[must_use]
    pub fn workflow(self, workflow: &WorkflowDefinition) -> Self {
        let name = format!("workflow {}", workflow.id);
        self.file(name, written(workflow))
    }

    /// Adds a trigger built in Rust that watches every run.
    #[must_use]
    pub fn trigger(self, trigger: &TriggerDefinition) -> Self {
        let name = format!("trigger {}", trigger.id);
        self.file(name, written(trigger))
    }

    /// Adds workflows that were [checked](crate::check) already, without loading and compiling them again. Those of
    /// [`workflows`](Self::workflows) may refer to them. A later call replaces the set.
    #[must_use]
    pub fn checked(mut self, checked: CheckedFiles) -> Self {
        self.checked = Some(checked);
        self
    }

    /// Compresses every conversation that exceeds its token limit.
    #[must_use]
    pub fn compression(mut self, compression: &Compression) -> Self {
        // The share applies to every workflow of the engine, while the bundle's own config covers only the compression workflow.
        self.speculative_at = compression.begins_early_at();
        self.file("ready-made compression", compression.bundle().to_string())
    }

    /// Adds a function for CODE nodes and CUSTOM triggers that is called inline, for work of microseconds. Its argument is the
    /// node's `input`, or the last output; for a trigger it is `{event, parameters}`. Parts of the [`Input`] that the function does
    /// not read are not built. An error fails the node. The function cannot wait for a run, because that run may wait for the
    /// function: [`outcome_blocking`](super::RunHandle::outcome_blocking) returns an error there.
    #[must_use]
    pub fn function<F>(mut self, name: impl Into<String>, function: F) -> Self
    where
        F: Fn(&Input<'_>) -> Result<Value, String> + Send + Sync + 'static,
    {
        self.functions.insert(name.into(), Function::Inline(Arc::new(function)));
        self
    }

    /// Adds an async function for CODE nodes and CUSTOM triggers. Its future runs on the work runtime and is dropped when its node
    /// is stopped. A panic fails the node with the panic's message.
    ///
    /// ```
    /// # use serde_json::{Value, json};
    /// async fn fetch(url: Value) -> Result<Value, String> {
    ///     Ok(json!({ "fetched": url }))
    /// }
    /// let engine = pirn::Engine::builder()
    ///     .async_function("fetch", fetch)
    ///     .workflows(r#"{"id": "get", "nodes": [{"id": "s", "type": "START"},
    ///         {"id": "f", "type": "CODE", "config": {"function": "fetch", "input": "input.url"}}, {"id": "e", "type": "END"}],
    ///       "edges": [{"from": "s", "to": "f"}, {"from": "f", "to": "e"}]}"#)
    ///     .build()?;
    /// let report = engine.start("get", json!({"url": "u"}))?.outcome_blocking();
    /// assert_eq!(report.output, json!({"fetched": "u"}));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn async_function<F, R>(self, name: impl Into<String>, function: F) -> Self
    where
        F: Fn(Value) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Value, String>> + Send + 'static,
    {
        self.async_function_in(name, move |input, _| function(input))
    }

    /// Like [`EngineBuilder::async_function`], for a function that also receives the call's origin: run, thread, node, and the
    /// [`metadata`](super::RunBuilder::metadata) of the run. (A function that is called inline reads these from its [`Input`].)
    #[must_use]
    pub fn async_function_in<F, R>(mut self, name: impl Into<String>, function: F) -> Self
    where
        F: Fn(Value, CallContext) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Value, String>> + Send + 'static,
    {
        let name = name.into();
        let called = name.clone();
        // A panic is caught here and not by the work runtime, so that the node's error has the panic's message.
        let contained = move |input, context| {
            let name = called.clone();
            let failed =
                move |panic: Box<dyn Any + Send>| Err(format!("function {name} panicked: {}", text_of_panic(&*panic)));
            // The function may panic before it returns its future, which has the same effect as a panic inside.
            match catch_unwind(AssertUnwindSafe(|| function(input, context))) {
                Ok(work) => AssertUnwindSafe(work)
                    .catch_unwind()
                    .map(move |result| result.unwrap_or_else(failed))
                    .boxed(),
                Err(panic) => std::future::ready(failed(panic)).boxed(),
            }
        };
        self.functions.insert(name, Function::Work(Arc::new(contained)));
        self
    }

    /// Adds a tool that LLM nodes can name.
    #[must_use]
    pub fn tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.register(tool);
        self
    }

    /// Adds tools with the settings of their calls: limits, approval, and the tools of a config file ([`crate::tools`]). They are
    /// added to the tools registered before; the call limit and the approval callbacks of the last call apply.
    #[must_use]
    pub fn tools(mut self, mut tools: ToolRegistry) -> Self {
        let earlier = std::mem::take(&mut self.tools);
        // The new set wins where names are equal, as a later call of any other setter does.
        tools.extend_missing(earlier);
        self.tools = tools;
        self
    }

    /// Sets the function that decides on every tool call before it runs. Without it, calls of tools that are marked
    /// [`Approval::Ask`](crate::tools::Approval::Ask) wait for a person's decision, through a question of the run
    /// ([`RunHandle::interactions`](super::RunHandle::interactions)), and all others run.
    #[must_use]
    pub fn approve_tools(mut self, decide: impl Fn(&ApprovalRequest) -> Verdict + Send + Sync + 'static) -> Self {
        self.tools.approve(decide);
        self
    }

    /// Like [`EngineBuilder::approve_tools`], with an async decision. A pending decision does not survive the process: to involve a
    /// person, return [`Verdict::Ask`].
    #[must_use]
    pub fn approve_tools_async(
        mut self,
        decide: impl Fn(ApprovalRequest) -> BoxFuture<'static, Verdict> + Send + Sync + 'static,
    ) -> Self {
        self.tools.approve_async(decide);
        self
    }

    /// Sets the function that answers the questions which tools put to a person during a call (elicitations of MCP servers). `None`
    /// declines. Without this function all are declined.
    #[must_use]
    pub fn on_elicitation(
        mut self,
        answer: impl Fn(Elicitation) -> BoxFuture<'static, Option<serde_json::Value>> + Send + Sync + 'static,
    ) -> Self {
        self.tools.on_elicitation(answer);
        self
    }

    /// Sets the function that returns the API key for each network request of a provider, given the profile and the origin of the
    /// call (the run's [`metadata`](super::RunBuilder::metadata) can name the customer). `None` uses the profile's key. The
    /// function is called before each request and must not block.
    #[cfg(feature = "providers")]
    #[must_use]
    pub fn model_keys(
        mut self,
        choose: impl Fn(&Profile, &CallContext) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.keys = Some(Arc::new(choose));
        self
    }

    /// Adds a model under the name of its provider or of a profile. A model to which no profile refers becomes a profile with its
    /// name as id: a node selects it by `profileId`, and if there is no other profile, it is the default of nodes without one (of
    /// several, the first by name).
    #[must_use]
    pub fn model(mut self, name: impl Into<String>, model: Arc<dyn Model>) -> Self {
        self.models.insert(name.into(), model);
        self
    }

    /// Adds a tokenizer that `config.tokenizer` of a workflow can name. If it panics, the thread that counts tokens ends FAILED.
    #[must_use]
    pub fn tokenizer(mut self, name: impl Into<String>, tokenizer: Arc<dyn Tokenizer>) -> Self {
        self.tokenizers.insert(name.into(), tokenizer);
        self
    }

    /// Model profiles.
    #[must_use]
    pub fn profiles(mut self, profiles: impl IntoIterator<Item = Profile>) -> Self {
        self.profiles.extend(profiles);
        self
    }

    /// Adds the profiles with ids that are neither in the builder nor in its files.
    #[must_use]
    pub(crate) fn other_profiles(mut self, profiles: impl IntoIterator<Item = Profile>) -> Self {
        let loaded = Loaded::of(&self.files);
        let known = loaded.profiles.iter().map(|profile| &profile.value);
        let known: BTreeSet<&String> = known.chain(&self.profiles).map(|profile| &profile.id).collect();
        let others = profiles.into_iter().filter(|other| !known.contains(&other.id));
        let others: Vec<Profile> = others.collect();
        self.profiles.extend(others);
        self
    }

    /// Sets the maximum number of concurrent runs; further ones are refused with `OVERLOADED` (default 100,000).
    #[must_use]
    pub fn max_runs(mut self, runs: usize) -> Self {
        self.max_runs = Some(runs);
        self
    }

    /// Sets the memory limit in bytes for runs whose workflow has no `config.limits.runBytes`: it covers variables, outputs and
    /// conversations. A run that exceeds it fails with `MEMORY_LIMIT_EXCEEDED` (default 256 MiB). A durable run retains the limit
    /// with which it started.
    #[must_use]
    pub fn max_run_bytes(mut self, bytes: u64) -> Self {
        self.max_run_bytes = Some(bytes);
        self
    }

    /// Sets the maximum number of runs that wait for one [session](super::RunBuilder::session); further ones are refused with
    /// `SESSION_BUSY` (default 64).
    #[must_use]
    pub fn max_waiting(mut self, runs: usize) -> Self {
        self.max_waiting = Some(runs);
        self
    }

    /// Sets whether triggers of type SCHEDULE start runs in this engine (default true). Set it to false for an engine that only
    /// inspects the runs of another, or in all but one of several engines with equal workflows: schedules fire in each.
    #[must_use]
    pub fn schedules(mut self, fire: bool) -> Self {
        self.has_schedules = Some(fire);
        self
    }

    /// Sets the number of threads that run actors (default: one per core).
    #[must_use]
    pub fn arbiters(mut self, arbiters: usize) -> Self {
        self.arbiters = Some(arbiters);
        self
    }

    /// Runs the actors as one task of the thread that calls [`build`](EngineBuilder::build), among the local tasks of its tokio
    /// `LocalSet`, local runtime or actix arbiter, instead of on threads of the engine. For a program that lives on such a thread:
    /// starting a run, sending it inputs and awaiting its outcome there wake no other thread.
    ///
    /// ```
    /// let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// let thread = tokio::task::LocalSet::new();
    /// let report = thread.block_on(&runtime, async {
    ///     let engine = pirn::Engine::builder()
    ///         .local()
    ///         .workflows(r#"{"id": "short", "edges": [{"from": "start", "to": "end"}],
    ///             "nodes": [{"id": "start", "type": "START"}, {"id": "end", "type": "END"}]}"#)
    ///         .build()?;
    ///     Ok::<_, Box<dyn std::error::Error>>(engine.start("short", serde_json::Value::Null)?.outcome().await)
    /// })?;
    /// assert_eq!(report.status, pirn::ThreadStatus::Completed);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// - Local engines are `Send` and `Clone` like others: other threads use them too, by messages.
    /// - The engine makes progress only while its thread runs its local tasks. Dropping the last handle, dropping the `LocalSet` or
    ///   ending the arbiter stops the engine; tasks that await a run then receive an error that the engine has stopped.
    /// - Blocking calls would deadlock on that thread, and return at once instead: see [`outcome_blocking`], [`wait_all_ended_blocking`],
    ///   [`shutdown_blocking`] and [`BlockingEvents`]. Use the async calls.
    /// - Timers follow the clock of the thread's tokio runtime: while that is paused (`tokio::time::pause`), an hour's WAIT takes
    ///   no time.
    /// - Models, tools, JavaScript and async functions still run on other threads: on the engine's worker threads, which start with
    ///   the first of them, or where [`work_on`](EngineBuilder::work_on) places them.
    ///
    /// [`build`](EngineBuilder::build) fails if the thread has no tokio runtime, no timers or no local tasks
    /// ([`BuildError::Local`]), and in combination with [`virtual_time`](EngineBuilder::virtual_time) or
    /// [`arbiters`](EngineBuilder::arbiters) ([`BuildError::Settings`]).
    ///
    /// [`outcome_blocking`]: super::RunHandle::outcome_blocking
    /// [`wait_all_ended_blocking`]: super::RunHandle::wait_all_ended_blocking
    /// [`shutdown_blocking`]: super::Engine::shutdown_blocking
    /// [`BlockingEvents`]: super::BlockingEvents
    #[must_use]
    pub fn local(mut self) -> Self {
        self.is_local = true;
        self
    }

    /// Sets the runtime for models, tools and async functions (default: threads of the engine).
    #[must_use]
    pub fn work_on(mut self, handle: tokio::runtime::Handle) -> Self {
        self.work = Some(handle);
        self
    }

    /// Uses one thread and a virtual clock: an hour passes at once, and equal seeds give equal orders of events.
    #[must_use]
    pub fn virtual_time(mut self, seed: Option<u64>) -> Self {
        self.clock = Clock::Virtual { seed, origin: 0 };
        self
    }

    /// Sets the wall-clock time at which a virtual clock starts (default 0).
    #[must_use]
    pub(crate) fn wall_clock(mut self, start: Millis) -> Self {
        if let Clock::Virtual { origin, .. } = &mut self.clock {
            *origin = start;
        }
        self
    }

    /// Makes runs reproducible: [`EngineBuilder::virtual_time`] and [`EngineBuilder::seed`] with one seed. Equal seeds give equal
    /// event orders, faults and `Math.random` values, and therefore byte-identical reports and event logs, if no model or tool
    /// waits for the outside world.
    #[must_use]
    pub fn simulated(self, seed: u64) -> Self {
        self.virtual_time(Some(seed)).seed(seed)
    }

    /// Seeds [`EngineBuilder::faults`] and `Math.random` in CODE, which throws without a seed. Each CODE node of each thread draws
    /// from a separate sequence.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Injects failures, stalls and delays into calls of models and tools ([`crate::faults`]).
    #[must_use]
    pub fn faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    /// Sets a function that may wrap the models and tools.
    #[must_use]
    pub(crate) fn over_ports(mut self, wrap: impl FnOnce(&mut Ports) + Send + Sync + 'static) -> Self {
        self.over_ports = Some(Box::new(wrap));
        self
    }

    /// Sets how scripts run: [`ScriptSettings`](pirn_script::ScriptSettings) (default: on threads of this process;
    /// `docs/security.md` explains the levels), or a port that several engines share.
    #[must_use]
    pub fn scripts(mut self, scripts: impl Into<Arc<ScriptPort>>) -> Self {
        self.scripts = Some(scripts.into());
        self
    }

    /// Sets a function that is called with the text and channel of every SEND_NOTIFICATION.
    #[must_use]
    pub fn on_notification(mut self, notify: impl Fn(&str, Option<&str>) + Send + Sync + 'static) -> Self {
        self.notify = Some(Arc::new(notify));
        self
    }
}
