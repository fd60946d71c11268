//! Putting an engine together.

mod build;
mod error;

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use pirn_actors::journal::Journal;
use pirn_actors::ports::{CallContext, Function, Input, Model, Notify, Tool};
use pirn_core::conversation::Tokenizer;
use pirn_core::definition::{Profile, SourceFile, TriggerDefinition, WorkflowDefinition};
use pirn_store::Store;
use serde::Serialize;
use serde_json::Value;

use super::Compression;
use super::durable::{AskDoubt, DoubtAnswer, DoubtQuestion};
use crate::check::Checked;
use crate::faults::Faults;
use crate::models::ChooseKey;
use crate::script::ScriptPort;
use crate::tools::{ApprovalRequest, Elicitation, ToolRegistry, Verdict};

pub(crate) use build::Plan;
pub use error::BuildError;

/// The text of a panic, where it has one.
fn text_of_panic(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no text")
}

/// The JSON of a definition, which always has one: its maps have texts for keys.
fn written(definition: &impl Serialize) -> String {
    serde_json::to_string_pretty(definition).unwrap_or_else(|error| error.to_string())
}

/// An engine that is being put together. Every setting has a default.
#[derive(Default)]
pub struct EngineBuilder {
    files: Vec<SourceFile>,
    unread: Vec<(PathBuf, std::io::Error)>,
    checked: Option<Checked>,
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
}

/// Which clock an engine lives by.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Clock {
    #[default]
    Real,
    Virtual {
        seed: Option<u64>,
    },
}

impl EngineBuilder {
    /// Keeps the engine's runs in a store, so that they survive their process: [`Engine::recover`](super::Engine::recover) has them go on. What follows
    /// from something that a run is told begins, and is told, when that is durable.
    #[must_use]
    pub fn store(mut self, store: impl Store) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// How long a run that is kept and waits for people, events or timers alone stays in memory when nothing comes to it (default a
    /// minute; `Duration::MAX`: for ever). Its messages, variables and threads leave memory then, and are made again from the store
    /// when the first thing comes: an answer, an event, a time that is due, a cancel, a question after its status. Nobody who
    /// holds the run or hears its events notices. Without a store it does nothing.
    #[must_use]
    pub fn park_after(mut self, quiet: Duration) -> Self {
        self.park_after = Some(quiet);
        self
    }

    /// The same, for a store that others have a handle to.
    #[must_use]
    pub fn shared_store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// Asks a person what is to become of an effect that had begun when the process of its run ended, where its node or tool
    /// says `"inDoubt": "ask"`. Without, such a run can not be resumed.
    #[must_use]
    pub fn ask_in_doubt(
        mut self,
        ask: impl Fn(DoubtQuestion) -> BoxFuture<'static, DoubtAnswer> + Send + Sync + 'static,
    ) -> Self {
        self.ask = Some(Arc::new(ask));
        self
    }

    /// Keeps what the engine's runs are told, so that they can be [rebuilt](super::Engine::rebuild). An engine has a journal or a
    /// [store](Self::store).
    #[must_use]
    pub fn journal(mut self, journal: Arc<dyn Journal>) -> Self {
        self.journal = Some(journal);
        self
    }

    /// The workflows (and triggers and profiles) of a JSON text.
    #[must_use]
    pub fn workflows(self, text: impl Into<String>) -> Self {
        let name = format!("workflows-{}", self.files.len() + 1);
        self.file(name, text)
    }

    /// As [`EngineBuilder::workflows`], with a name for errors.
    #[must_use]
    pub fn file(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.files.push(SourceFile::new(name.into(), text.into()));
        self
    }

    /// The workflows (and triggers and profiles) of a JSON file, which is read now; that it can not be is an error of
    /// [`build`](Self::build).
    ///
    /// ```no_run
    /// let engine = pirn::Engine::builder().path("workflows/greet.json").build()?;
    /// # Ok::<(), pirn::BuildError>(())
    /// ```
    #[must_use]
    pub fn path(mut self, path: impl AsRef<Path>) -> Self {
        let path = path.as_ref();
        match std::fs::read_to_string(path) {
            Ok(text) => self.file(path.display().to_string(), text),
            Err(error) => {
                self.unread.push((path.to_owned(), error));
                self
            }
        }
    }

    /// A workflow that is a value, as [`workflow`](crate::workflow()) makes it. What is wrong with it is told by its place in the
    /// JSON that it stands for.
    #[must_use]
    pub fn workflow(self, workflow: &WorkflowDefinition) -> Self {
        let name = format!("workflow {}", workflow.id);
        self.file(name, written(workflow))
    }

    /// A trigger that is a value, and watches every run.
    #[must_use]
    pub fn trigger(self, trigger: &TriggerDefinition) -> Self {
        let name = format!("trigger {}", trigger.id);
        self.file(name, written(trigger))
    }

    /// Workflows that were [checked](crate::check) already, which are not loaded and compiled again; those of
    /// [`workflows`](Self::workflows) may name them. The last set given counts.
    #[must_use]
    pub fn checked(mut self, checked: Checked) -> Self {
        self.checked = Some(checked);
        self
    }

    /// Compresses every conversation that outgrows its token limit.
    #[must_use]
    pub fn compression(mut self, compression: &Compression) -> Self {
        self.speculative_at = compression.begins_early_at();
        self.file("ready-made compression", compression.bundle().to_string())
    }

    /// A function for CODE nodes and CUSTOM triggers, called in place: for what takes microseconds. It gets the node's
    /// `input`, or the last output; for a trigger `{event, parameters}`. What it does not look at is not made for it
    /// ([`Input`]). An error fails the node. It can not wait for a run, which may wait for
    /// it: [`outcome_blocking`](super::RunHandle::outcome_blocking) says so there.
    #[must_use]
    pub fn function<F>(mut self, name: impl Into<String>, function: F) -> Self
    where
        F: Fn(&Input<'_>) -> Result<Value, String> + Send + Sync + 'static,
    {
        self.functions.insert(name.into(), Function::Inline(Arc::new(function)));
        self
    }

    /// A function for CODE nodes and CUSTOM triggers that takes its time: its future runs on the work runtime, and is dropped
    /// when its node is stopped. A panic in it fails the node, with the panic's text.
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

    /// As [`EngineBuilder::async_function`], for a function that is told where it is called from: run, thread, node, and the
    /// [`metadata`](super::RunBuilder::metadata) of the run. (A function that is called in place asks its
    /// [`Input`] for that.)
    #[must_use]
    pub fn async_function_in<F, R>(mut self, name: impl Into<String>, function: F) -> Self
    where
        F: Fn(Value, CallContext) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Value, String>> + Send + 'static,
    {
        let name = name.into();
        let called = name.clone();
        let contained = move |input, context| {
            let name = called.clone();
            let work = AssertUnwindSafe(function(input, context)).catch_unwind();
            async move {
                let failed =
                    |panic: Box<dyn Any + Send>| Err(format!("function {name} panicked: {}", text_of_panic(&*panic)));
                work.await.unwrap_or_else(failed)
            }
            .boxed()
        };
        self.functions.insert(name, Function::Work(Arc::new(contained)));
        self
    }

    /// A tool that LLM nodes may name.
    #[must_use]
    pub fn tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.register(tool);
        self
    }

    /// Tools with what stands around their calls: limits, consent, those of a config file ([`crate::tools`]). They join
    /// those that are there; the limit of calls and whoever is asked are those given last.
    #[must_use]
    pub fn tools(mut self, mut tools: ToolRegistry) -> Self {
        let earlier = std::mem::take(&mut self.tools);
        tools.extend_missing(earlier);
        self.tools = tools;
        self
    }

    /// Has `decide` decide on every tool call before it runs. Without, a person is asked about the calls of tools that are
    /// marked [`Approval::Ask`](crate::tools::Approval::Ask), by a question of the run
    /// ([`RunHandle::interactions`](super::RunHandle::interactions)), and all others run.
    #[must_use]
    pub fn approve_tools(mut self, decide: impl Fn(&ApprovalRequest) -> Verdict + Send + Sync + 'static) -> Self {
        self.tools.approve(decide);
        self
    }

    /// As [`EngineBuilder::approve_tools`], where the decision takes its time. It does not outlive the process: a person is
    /// better asked by [`Verdict::Ask`].
    #[must_use]
    pub fn approve_tools_async(
        mut self,
        decide: impl Fn(ApprovalRequest) -> BoxFuture<'static, Verdict> + Send + Sync + 'static,
    ) -> Self {
        self.tools.approve_async(decide);
        self
    }

    /// Has `answer` answer what tools ask a person in the middle of a call (elicitations of MCP servers); none declines.
    /// Without, all are declined.
    #[must_use]
    pub fn on_elicitation(
        mut self,
        answer: impl Fn(Elicitation) -> BoxFuture<'static, Option<serde_json::Value>> + Send + Sync + 'static,
    ) -> Self {
        self.tools.on_elicitation(answer);
        self
    }

    /// Gives the key of each call of a provider across the network, by its profile and by where it comes from (the run's
    /// [`metadata`](super::RunBuilder::metadata) says for whom); none: the profile says which key. It is asked before each
    /// request, and must not block.
    #[cfg(feature = "providers")]
    #[must_use]
    pub fn model_keys(
        mut self,
        choose: impl Fn(&Profile, &CallContext) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.keys = Some(Arc::new(choose));
        self
    }

    /// A model, by the name of its provider or of a profile. One that no profile names is a profile by itself, with its name
    /// for an id: a node names it by `profileId`, and where there is no other profile every node without one has it (of several, the first by name).
    #[must_use]
    pub fn model(mut self, name: impl Into<String>, model: Arc<dyn Model>) -> Self {
        self.models.insert(name.into(), model);
        self
    }

    /// Counts with this where `config.tokenizer` of a workflow names it. A panic in it ends the thread that counts, FAILED.
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

    /// Runs at once; one more is `OVERLOADED` (default 100,000).
    #[must_use]
    pub fn max_runs(mut self, runs: usize) -> Self {
        self.max_runs = Some(runs);
        self
    }

    /// Bytes of memory that a run may hold whose workflow has no `config.limits.runBytes`: its variables, outputs and
    /// conversations; of more it fails with `MEMORY_LIMIT_EXCEEDED` (default 256 MiB). A durable run keeps the limit that it
    /// began with.
    #[must_use]
    pub fn max_run_bytes(mut self, bytes: u64) -> Self {
        self.max_run_bytes = Some(bytes);
        self
    }

    /// Runs that may wait for one [session](super::RunBuilder::session); one more is `SESSION_BUSY` (default 64).
    #[must_use]
    pub fn max_waiting(mut self, runs: usize) -> Self {
        self.max_waiting = Some(runs);
        self
    }

    /// False: triggers of type SCHEDULE start no runs here (default true). For an engine that looks at the runs of another, or one of
    /// several with the same workflows: schedules fire in each.
    #[must_use]
    pub fn schedules(mut self, fire: bool) -> Self {
        self.has_schedules = Some(fire);
        self
    }

    /// Threads that carry actors (default: one a core).
    #[must_use]
    pub fn arbiters(mut self, arbiters: usize) -> Self {
        self.arbiters = Some(arbiters);
        self
    }

    /// No threads for actors: they are one task of the thread that calls [`build`](EngineBuilder::build), among the local
    /// tasks of its tokio `LocalSet`, local runtime or actix arbiter. For a program that lives on such a thread: there,
    /// starting a run, sending it something and hearing of its end wake no other thread.
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
    /// - The engine is as `Send` and as `Clone` as any: other threads use it too, by messages.
    /// - It goes on while its thread runs its local tasks, and only then. Dropping the last handle ends the engine; dropping
    ///   the `LocalSet`, or ending the arbiter, does too: who awaits a run then is told that the engine has stopped.
    /// - What blocks would wait for itself on that thread, and does not: see [`outcome_blocking`], [`settled_blocking`],
    ///   [`shutdown_blocking`] and [`BlockingEvents`]. Await instead.
    /// - Timers follow the clock of the thread's tokio runtime: while that is paused (`tokio::time::pause`), an hour's WAIT
    ///   takes no time.
    /// - Models, tools, JavaScript and async functions still run elsewhere: on the engine's threads for work, which are
    ///   started by the first of them, or where [`work_on`](EngineBuilder::work_on) says.
    ///
    /// [`build`](EngineBuilder::build) fails where the thread has no tokio runtime, no timers or no local tasks
    /// ([`BuildError::Local`]), and beside [`virtual_time`](EngineBuilder::virtual_time) and
    /// [`arbiters`](EngineBuilder::arbiters) ([`BuildError::Settings`]).
    ///
    /// [`outcome_blocking`]: super::RunHandle::outcome_blocking
    /// [`settled_blocking`]: super::RunHandle::settled_blocking
    /// [`shutdown_blocking`]: super::Engine::shutdown_blocking
    /// [`BlockingEvents`]: super::BlockingEvents
    #[must_use]
    pub fn local(mut self) -> Self {
        self.is_local = true;
        self
    }

    /// The runtime for models, tools and async functions (default: threads of the engine's own).
    #[must_use]
    pub fn work_on(mut self, handle: tokio::runtime::Handle) -> Self {
        self.work = Some(handle);
        self
    }

    /// One thread and a clock that jumps: an hour passes at once, and the same seed gives the same order of events.
    #[must_use]
    pub fn virtual_time(mut self, seed: Option<u64>) -> Self {
        self.clock = Clock::Virtual { seed };
        self
    }

    /// A run to be had again: [`EngineBuilder::virtual_time`] and [`EngineBuilder::seed`] with the same seed. The same
    /// seed gives the same order of events, the same faults and the same `Math.random`, so the same report and the same
    /// event log, byte for byte, as long as no model or tool waits for the outside world.
    #[must_use]
    pub fn simulated(self, seed: u64) -> Self {
        self.virtual_time(Some(seed)).seed(seed)
    }

    /// Seeds `Math.random` in CODE, which throws without, and [`EngineBuilder::faults`]. Each CODE node of each thread
    /// draws from a sequence of its own.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Has calls of models and tools fail, stall and come late ([`crate::faults`]).
    #[must_use]
    pub fn faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    /// The settings of scripts: [`ScriptSettings`](crate::script::ScriptSettings) (default: on threads of this process;
    /// `docs/security.md` says which level to choose), or a port that several engines share.
    #[must_use]
    pub fn scripts(mut self, scripts: impl Into<Arc<ScriptPort>>) -> Self {
        self.scripts = Some(scripts.into());
        self
    }

    /// Called with the text and channel of every SEND_NOTIFICATION.
    #[must_use]
    pub fn on_notification(mut self, notify: impl Fn(&str, Option<&str>) + Send + Sync + 'static) -> Self {
        self.notify = Some(Arc::new(notify));
        self
    }
}
