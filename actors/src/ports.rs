//! The interfaces of an engine to the outside: models, tools, functions, scripts, tokenizers.
//!
//! Every call may take long, fail or be dropped. Its result becomes an [`Outcome`] for the thread that made the call.

mod sampler;

use std::sync::Arc;

use futures::future::BoxFuture;
use pirn_conversation::conversation::{MessageRules, ModelRequest, Tokenizer};
use pirn_conversation::model_call::CallBound;
use pirn_core::run::Fits;
use pirn_core::thread::{
    ConsentRequest, Evaluation, ModelReply, Outcome, ScriptLogs, ScriptState, Snapshot, ThreadScope, ToolResult,
    Variables,
};
use pirn_definition::definition::{Fault, InDoubt, Profile, ToolDefinition};
use pirn_definition::error::RunError;
use pirn_definition::graph::{Evaluator, Graph, NodeIx, NodeKind, SnippetIx};
use pirn_definition::message::{Part, ToolCall};
use pirn_definition::script::{Scope, ScopeValues};
use pirn_events::schedule::ScheduleState;
use serde_json::{Map, Value};

pub use crate::calls::call_context::CallContext;
use crate::calls::current_call::idempotency_key;
pub use crate::calls::input::Input;
use crate::host::WorkClock;
/// Stops a script when it is dropped.
pub use crate::host::WorkHandle as ScriptHandle;
pub use sampler::{MAX_SAMPLES, Sampler};

/// A call of a model.
#[derive(Clone)]
pub struct ModelCall {
    /// The request: messages in order, repaired for the model, system message first.
    pub request: Arc<ModelRequest>,
    /// The chosen profile.
    pub profile: Arc<Profile>,
    /// The profile's parameters, overridden by the node's.
    pub parameters: Map<String, Value>,
    /// The node's parameters, which also override those of a fallback's profile.
    pub own_parameters: Map<String, Value>,
    /// The tools that the model may call.
    pub tools: Vec<ToolSpec>,
    /// Schema of the structured output that the node requires.
    pub response_format: Option<Arc<Value>>,
    /// State of this thread's earlier calls of this profile.
    pub session: ModelSession,
    /// Origin of the call.
    pub context: CallContext,
    /// Id of the thread whose earlier requests this one extends. Lets a provider's prompt cache match.
    pub goes_on_from: Arc<str>,
    /// Suffix that distinguishes the idempotency keys of the requests of one call: fallbacks to another profile, and repairs of
    /// an invalid reply. Empty for the first request; unchanged by a retry.
    pub key_part: String,
    /// The host's clock, for delays that virtual time can skip.
    pub clock: WorkClock,
    /// A random number for this call, for the jitter of its retries. Seeded under virtual time.
    pub chance: u64,
    /// Receives the pieces of a streamed reply. Does nothing without a subscriber.
    pub tokens: TokenSink,
}

impl ModelCall {
    /// The idempotency key of the request; differs for every request body. None outside of a run.
    pub fn idempotency_key(&self) -> Option<String> {
        Some(idempotency_key()? + &self.key_part)
    }
}

/// A thread's state between calls of a scripted model: the responses used so far.
#[derive(Clone, Debug, Default)]
pub struct ModelSession {
    used: Arc<std::sync::Mutex<std::collections::BTreeSet<usize>>>,
    others: Arc<std::sync::Mutex<std::collections::BTreeMap<String, ModelSession>>>,
}

impl ModelSession {
    /// Takes the first index below `count` that is unused and for which `wanted` returns true.
    pub fn take(&self, count: usize, wanted: impl Fn(usize) -> bool) -> Option<usize> {
        // The set is valid after a panic too: it changes by one insertion.
        let mut used = self.used.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let place = (0..count).find(|place| !used.contains(place) && wanted(*place))?;
        used.insert(place);
        Some(place)
    }

    /// The state of the calls that fell back to `profile`.
    #[must_use]
    pub fn of_fallback(&self, profile: &str) -> Self {
        let mut others = self.others.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // The clone shares its state with the entry.
        others.entry(profile.to_owned()).or_default().clone()
    }
}

/// Receives a piece of a reply.
type TakePiece = dyn Fn(&str) + Send + Sync;

/// Called when a reply restarts.
type Restart = dyn Fn() + Send + Sync;

/// A sink for the pieces of a model's streamed reply.
#[derive(Clone)]
pub struct TokenSink {
    send: Option<Arc<TakePiece>>,
    restart: Option<Arc<Restart>>,
}

impl TokenSink {
    /// A sink that discards everything.
    pub fn closed() -> Self {
        Self {
            send: None,
            restart: None,
        }
    }

    /// A sink that passes every piece to `send`.
    pub fn new(send: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self {
            send: Some(Arc::new(send)),
            restart: None,
        }
    }

    /// Adds a callback for a restarted reply: the earlier pieces are void.
    #[must_use]
    pub fn on_restart(self, restart: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            restart: Some(Arc::new(restart)),
            ..self
        }
    }

    /// Passes a piece of the reply to the subscriber.
    pub fn put(&self, piece: &str) {
        if let Some(send) = &self.send {
            send(piece);
        }
    }

    /// Signals that the reply restarts: the request is retried, or sent to another model.
    pub fn begin_anew(&self) {
        if let Some(restart) = &self.restart {
            restart();
        }
    }

    /// True if there is a subscriber.
    pub fn is_open(&self) -> bool {
        self.send.is_some()
    }
}

/// A language model behind a profile. Dropping the future of a call cancels the call.
pub trait Model: Send + Sync + 'static {
    /// Sends one request.
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>>;

    /// Restores session state in a resumed run, for a request that the model answered in an earlier process. The request contains
    /// only the last user message.
    fn answered(&self, _request: &ModelRequest, _session: &ModelSession) {}

    /// True if calls wait for the outside world (a network, a process). The virtual clock then follows the real clock.
    fn is_external(&self) -> bool {
        false
    }

    /// Returns the maximum output of this request and the model's prices. Called if a budget limits tokens or cost. `parameters`
    /// are the profile's, overridden by the node's. Default: `maxTokens` of the parameters, and no prices.
    fn call_bound(&self, _request: &ModelRequest, parameters: &Map<String, Value>) -> CallBound {
        CallBound {
            output: max_tokens(parameters),
            prices: None,
        }
    }

    /// The message order that the model accepts; requests are repaired accordingly.
    fn message_rules(&self) -> MessageRules {
        MessageRules::default()
    }
}

/// Returns `maxTokens` (or `max_tokens`) of the parameters.
pub fn max_tokens(parameters: &Map<String, Value>) -> Option<u64> {
    let written = parameters.get("maxTokens").or_else(|| parameters.get("max_tokens"));
    written.and_then(Value::as_u64)
}

/// Returns the profile's parameters, overridden by the node's, also if the two spell a name differently (`maxTokens`,
/// `max_tokens`).
pub fn laid_over_profile(profile: &Profile, own: Option<&Map<String, Value>>) -> Map<String, Value> {
    let mut parameters = profile.parameters.clone().unwrap_or_default();
    let Some(own) = own.filter(|own| !own.is_empty()) else {
        return parameters;
    };
    let overridden: Vec<String> = own.keys().map(|name| plain_name(name)).collect();
    parameters.retain(|name, _| !overridden.contains(&plain_name(name)));
    parameters.extend(own.iter().map(|(name, value)| (name.clone(), value.clone())));
    parameters
}

/// Returns a name of a parameter in the spelling that all its spellings share.
fn plain_name(name: &str) -> String {
    let plain = name.replace('_', "").to_ascii_lowercase();
    if plain == "stopsequences" {
        return "stop".to_owned();
    }
    plain
}

/// Chooses the model of an LLM node.
pub trait Models: Send + Sync + 'static {
    /// Returns the profile with this id, or the default profile, and its model.
    fn choose(&self, profile_id: Option<&str>) -> (Arc<Profile>, Arc<dyn Model>);

    /// Returns models for the lifetime of a new or resumed run over these workflows. None: the engine's models.
    fn of_run(&self, _graphs: &crate::journal::Graphs) -> Option<Arc<dyn Models>> {
        None
    }
}

/// A tool's name, description and schema, for a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// Name of the tool.
    pub name: String,
    /// Description for the model.
    pub description: String,
    /// JSON Schema of the arguments.
    pub parameters: Value,
}

impl From<ToolDefinition> for ToolSpec {
    fn from(tool: ToolDefinition) -> Self {
        Self {
            name: tool.name,
            description: tool.description,
            parameters: tool.parameters,
        }
    }
}

/// A tool that models may call.
pub trait Tool: Send + Sync + 'static {
    /// Returns name, description and schema.
    fn spec(&self) -> ToolSpec;

    /// Executes the tool. An error is sent to the model as the result; it does not fail the run.
    fn call(&self, arguments: Value, clock: WorkClock) -> BoxFuture<'static, Result<String, String>>;

    /// Executes the tool with the context of its call. The result may contain images and files in addition to its text. The
    /// engine calls this method; the default implementation calls [`Tool::call`].
    fn call_in(
        &self,
        arguments: Value,
        context: ToolContext,
    ) -> BoxFuture<'static, Result<(String, Vec<Part>), String>> {
        let called = self.call(arguments, context.clock);
        Box::pin(async move { called.await.map(|text| (text, Vec::new())) })
    }

    /// True if calls wait for the outside world.
    fn is_external(&self) -> bool {
        true
    }

    /// True if the tool has no side effects. A call in doubt is then repeated without a decision.
    fn is_read_only(&self) -> bool {
        false
    }
}

/// A question to a person during a tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The text of the question.
    pub message: String,
    /// JSON Schema of the answer.
    pub schema: Value,
}

/// Asks a person. Resolves to an answer that matches the schema, or none if no person is available or the question is declined.
pub type AskPerson = dyn Fn(Question) -> BoxFuture<'static, Option<Value>> + Send + Sync;

/// The context of a tool call.
#[derive(Clone)]
pub struct ToolContext {
    /// The host's clock, for delays that virtual time can skip.
    pub clock: WorkClock,
    /// The call's id from the model.
    pub call_id: String,
    /// Asks a person a question while the tool runs. None if questions are not possible.
    pub ask: Option<Arc<AskPerson>>,
    /// Origin of the call. None for a call outside of a run.
    pub caller: Option<CallContext>,
    /// Sends model requests while the tool runs. None for a call outside of a run.
    pub sampler: Option<Sampler>,
}

/// A tool call requested by a model.
#[derive(Clone)]
pub struct AskedCall {
    /// Name, arguments and the model's id of the call.
    pub call: ToolCall,
    /// Origin of the call. None for a call outside of a run.
    pub caller: Option<CallContext>,
    /// The run's models, for a tool that sends model requests. None for a call outside of a run.
    pub models: Option<Arc<dyn Models>>,
    /// A person has approved the call.
    pub is_consented: bool,
}

/// The outcome of a tool call.
#[derive(Clone, Debug)]
pub enum ToolOutcome {
    /// The call was made, or could not be.
    Result(ToolResult),
    /// The call was not made, because it needs a person's approval. Once approved it is made again.
    NeedsConsent(Box<ConsentRequest>),
}

impl ToolOutcome {
    /// Returns the result. A call that needs approval becomes an error.
    pub fn unasked(self) -> ToolResult {
        match self {
            Self::Result(result) => result,
            Self::NeedsConsent(request) => ToolResult::failed(format!(
                "the call needs a person's consent, which cannot be requested here: {}",
                request.reason
            )),
        }
    }
}

impl From<ToolCall> for AskedCall {
    /// A call outside of a run.
    fn from(call: ToolCall) -> Self {
        Self {
            call,
            caller: None,
            models: None,
            is_consented: false,
        }
    }
}

/// Finds tools by name.
pub trait Tools: Send + Sync + 'static {
    /// Returns the specs of these tools, for models. Unknown names are skipped.
    fn specs(&self, names: &[Arc<str>]) -> Vec<ToolSpec>;

    /// True if calls of this tool wait for the outside world. The virtual clock then follows the real clock.
    fn is_external(&self, name: &str) -> bool;

    /// The policy for a call in doubt: its outcome was unknown when the process of its run ended. `_is_consented` is true if a
    /// person had approved the call. None: the node's policy applies.
    fn in_doubt(&self, _name: &str, _is_consented: bool) -> Option<InDoubt> {
        None
    }

    /// Calls one of these tools. An unknown name produces an error result for the model.
    fn call(&self, names: &[Arc<str>], asked: AskedCall, clock: WorkClock) -> BoxFuture<'static, ToolOutcome>;

    /// Stops background processes of the tools. May block for some seconds. No call follows it.
    fn close(&self) {}
}

/// A function that is called inline.
pub type InlineFunction = dyn Fn(&Input<'_>) -> Result<Value, String> + Send + Sync;

/// A function that is called as asynchronous work.
pub type WorkFunction = dyn Fn(Value, CallContext) -> BoxFuture<'static, Result<Value, String>> + Send + Sync;

/// A registered Rust function for CODE nodes and CUSTOM triggers.
#[derive(Clone)]
pub enum Function {
    /// Called inline on the arbiter's thread. For functions that take microseconds: a longer call delays every run of the
    /// arbiter.
    Inline(Arc<InlineFunction>),
    /// Called as asynchronous work.
    Work(Arc<WorkFunction>),
}

/// The evaluation of one CODE node.
pub struct ScriptJob<'a> {
    /// The graph that holds the script.
    pub graph: &'a Arc<Graph>,
    /// The script's index in the graph.
    pub code: SnippetIx,
    /// The node's `input`.
    pub input: Arc<Value>,
    /// The other values visible to the script. Captured before [`Scripts::run`] returns.
    pub scope: &'a dyn Scope,
    /// The run; script threads are shared fairly between runs.
    pub run_id: &'a Arc<str>,
    /// Seed of the script's random numbers. None: drawing one is an error.
    pub seed: Option<u64>,
    /// Recorded inputs of a step of a SCRIPT node; `None` for CODE.
    pub state: Option<Arc<ScriptState>>,
}

/// The result and output of a script.
#[derive(Debug)]
pub struct ScriptEnd {
    /// Value that the script returned, or its error.
    pub result: Result<Arc<Value>, RunError>,
    /// Output of the script by `console`.
    pub logs: ScriptLogs,
}

/// Callback for the result of a script.
pub type ScriptAnswer = Box<dyn FnOnce(ScriptEnd) + Send>;

/// Expressions or templates that an [`Evaluator`] could not evaluate inline, with the values that they use.
pub struct TextJob {
    /// The run; script threads are shared fairly between runs.
    pub run_id: Arc<str>,
    /// Texts to evaluate.
    pub texts: Texts,
}

/// Source texts to evaluate.
pub enum Texts {
    /// Texts of a node, evaluated for a thread.
    OfNode {
        /// The graph.
        graph: Arc<Graph>,
        /// Node to which the texts belong.
        node: NodeIx,
        /// The part of the node to evaluate.
        what: Evaluation,
        /// Snapshot of the thread.
        thread: Box<Snapshot>,
        /// The run's global variables.
        globals: Variables,
    },
    /// A text of a trigger; the result is an [`Outcome::Value`].
    OfEvent {
        /// The expression or template.
        source: Arc<str>,
        /// The expected kind of result.
        want: ExpectedKind,
        /// The values that the text can use.
        scope: Box<ScopeValues>,
    },
}

impl Texts {
    /// Texts of a node, with a snapshot of the current scope.
    pub fn of_node(graph: &Arc<Graph>, node: NodeIx, what: Evaluation, scope: &ThreadScope<'_>) -> Self {
        let (thread, globals) = scope.snapshot();
        Self::OfNode {
            graph: Arc::clone(graph),
            node,
            what,
            thread: Box::new(thread),
            globals,
        }
    }
}

/// The expected kind of result of a single text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedKind {
    /// An expression's value.
    Value,
    /// An expression's value as a condition.
    Truth,
    /// The output of a template.
    Text,
}

/// Callback for the result of an evaluation.
pub type TextAnswer = Box<dyn FnOnce(Outcome) + Send>;

/// Statistics of the script threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScriptStats {
    /// Number of scripts that wait for a thread.
    pub waiting: usize,
    /// Number of running scripts.
    pub running: usize,
    /// Number of abandoned threads that are still running: their script did not stop at its time limit.
    pub stuck: usize,
    /// Number of threads abandoned so far.
    pub given_up: u64,
    /// Number of scripts refused because too many were stuck or queued.
    pub refused: u64,
    /// Number of script workflows that are cached between their steps.
    pub live_scripts: usize,
    /// Number of steps so far in which a script workflow was evaluated from its start.
    pub evaluated_steps: u64,
    /// Number of steps so far in which a cached script workflow was continued.
    pub resumed_steps: u64,
    /// Number of results that these steps passed to their scripts. An evaluation from the start receives all results again.
    pub delivered_results: u64,
}

/// Runs JavaScript on dedicated threads.
pub trait Scripts: Send + Sync + 'static {
    /// Starts a script. `answer` is called once, from any thread, at the latest shortly after the script's time limit.
    fn run(&self, job: ScriptJob<'_>, answer: ScriptAnswer) -> ScriptHandle;

    /// Starts an evaluation. `answer` is called as for [`Scripts::run`].
    fn evaluate(&self, job: TextJob, answer: TextAnswer) -> ScriptHandle;

    /// Returns statistics of the threads.
    fn stats(&self) -> ScriptStats {
        ScriptStats::default()
    }
}

/// The criteria for choosing a tokenizer.
pub struct TokenizerChoice<'a> {
    /// Name in the workflow's configuration.
    pub name: Option<&'a str>,
    /// Profile of the workflow's first LLM node.
    pub profile: Option<&'a Profile>,
}

/// Returns the matching tokenizer, or the default.
pub type FindTokenizer = dyn Fn(&TokenizerChoice<'_>) -> Arc<dyn Tokenizer> + Send + Sync;

/// Receives the text and channel of a notification.
pub type Notify = dyn Fn(&str, Option<&str>) + Send + Sync;

/// The ports of an engine.
#[derive(Clone)]
pub struct Ports {
    /// Records the inputs of runs. None: runs exist in memory only.
    pub journal: Option<Arc<dyn crate::journal::Journal>>,
    /// Models by profile.
    pub models: Arc<dyn Models>,
    /// Tools by name.
    pub tools: Arc<dyn Tools>,
    /// Functions by name.
    pub functions: Arc<std::collections::BTreeMap<String, Function>>,
    /// Runs CODE nodes, and the texts that the evaluators cannot evaluate inline.
    pub scripts: Arc<dyn Scripts>,
    /// Creates the evaluator of one arbiter, on that arbiter's thread.
    pub evaluator: Arc<dyn Fn() -> Box<dyn Evaluator> + Send + Sync>,
    /// Compiles workflows that are written during a run.
    pub compile: Arc<CompileInline>,
    /// Chooses the tokenizer of a workflow.
    pub tokenizer: Arc<FindTokenizer>,
    /// Fraction of the token limit at which compression starts speculatively, for workflows that configure none.
    pub speculative_at: Option<f64>,
    /// Memory limit of a run in bytes, for workflows that configure none.
    pub run_bytes: u64,
    /// Called for a SEND_NOTIFICATION trigger.
    pub notify: Arc<Notify>,
    /// Validates a person's answer.
    pub fits: Fits,
    /// Returns the fault of a JSON Schema that is invalid.
    pub schema_fault: fn(&Value) -> Option<String>,
    /// Stores the state of sessions.
    pub sessions: Arc<dyn crate::sessions::SessionKeeper>,
    /// Persists the progress of schedules. None: no schedule fires.
    pub schedules: Option<Arc<dyn ScheduleMemory>>,
}

/// Compiles the source of a workflow that was written during a run over these registered workflows. Equal arguments give equal graphs
/// in every process, because a replay compiles the source again.
pub type CompileInline = dyn Fn(&Arc<str>, &[Arc<Graph>]) -> Result<Arc<Graph>, Vec<Fault>> + Send + Sync;

/// Storage for the progress of schedules across processes.
pub trait ScheduleMemory: Send + Sync {
    /// Loads the stored progress of a schedule. None if it is unknown.
    fn kept(&self, schedule: &str) -> BoxFuture<'static, Option<ScheduleState>>;

    /// Stores the progress of a schedule.
    fn keep(&self, schedule: &str, kept: &ScheduleState);

    /// Returns the state of a run that an earlier process may have started.
    fn begun(&self, run_id: &str) -> BoxFuture<'static, EarlierRun>;

    /// Returns the seed of a schedule's random delays, if several processes must agree on them.
    fn seed(&self, schedule: &str) -> Option<u64>;

    /// Cancels a run that this engine does not own. Returns true if the run has ended or does not exist.
    fn cancel(&self, run_id: &str, reason: &str) -> BoxFuture<'static, bool>;
}

/// State of a run that an earlier process may have started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlierRun {
    /// The run was not started.
    No,
    /// The run was started and has not ended. Only this process can resume it.
    Here,
    /// The run was started and has not ended. Another process may be executing it.
    Somewhere,
    /// The run was started and has ended.
    Ended,
}

/// Stores nothing. Times that pass while no engine runs are not detected.
pub struct NoScheduleMemory;

impl ScheduleMemory for NoScheduleMemory {
    fn kept(&self, _: &str) -> BoxFuture<'static, Option<ScheduleState>> {
        Box::pin(std::future::ready(None))
    }

    fn keep(&self, _: &str, _: &ScheduleState) {}

    fn begun(&self, _: &str) -> BoxFuture<'static, EarlierRun> {
        Box::pin(std::future::ready(EarlierRun::No))
    }

    fn seed(&self, _: &str) -> Option<u64> {
        None
    }

    fn cancel(&self, _: &str, _: &str) -> BoxFuture<'static, bool> {
        Box::pin(std::future::ready(true))
    }
}

/// Returns the profile of a workflow's first LLM node; the default profile if the node evaluates its profile at run time.
pub(crate) fn first_profile(models: &dyn Models, graph: &Graph) -> Option<Arc<Profile>> {
    let profile_id = graph.nodes.iter().find_map(|node| match &node.kind {
        NodeKind::Llm(llm) => Some(llm.profile_id.as_deref()),
        _ => None,
    })?;
    Some(models.choose(profile_id).0)
}

impl Ports {
    /// Returns the tokenizer named by a workflow, or else that of its first LLM node's profile.
    pub(crate) fn tokenizer_of(&self, models: &dyn Models, graph: Option<&Graph>) -> Arc<dyn Tokenizer> {
        let name = graph.and_then(|graph| graph.config.tokenizer.as_deref());
        // A named tokenizer saves the search for the first LLM node.
        let unnamed = graph.filter(|_| name.is_none());
        let profile = unnamed.and_then(|graph| first_profile(models, graph));
        (self.tokenizer)(&TokenizerChoice {
            name,
            profile: profile.as_deref(),
        })
    }

    /// True if another process can resume runs after this one stops.
    pub fn is_durable(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.is_durable())
    }
}
