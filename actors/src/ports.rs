//! The outside of an engine: models, tools, functions, scripts, tokenizers.
//!
//! Every call is work: it may take long, fail, or be dropped. What it answers is an [`Outcome`]
//! of the thread that asked.

mod sampler;

use std::sync::Arc;

use futures::future::BoxFuture;
use pirn_core::conversation::{MessageRules, ModelRequest, Tokenizer};
use pirn_core::definition::{InDoubt, Profile};
use pirn_core::error::RunError;
use pirn_core::graph::{Evaluator, Graph, NodeIx, NodeKind, SnippetIx};
use pirn_core::message::{Part, ToolCall};
use pirn_core::model_call::CallBound;
use pirn_core::run::Fits;
use pirn_core::schedule::Kept;
use pirn_core::script::{Scope, ScopeValues};
use pirn_core::thread::{
    ConsentRequest, Evaluation, ModelReply, Outcome, ScriptLogs, Snapshot, ThreadScope, ToolResult, Variables,
};
use serde_json::{Map, Value};

pub use crate::call_context::CallContext;
use crate::cause::idempotency_key;
use crate::host::WorkClock;
/// Stops a script when it is dropped.
pub use crate::host::WorkHandle as ScriptHandle;
pub use crate::input::Input;
pub use sampler::{MAX_SAMPLES, Sampler};

/// One call of a model.
#[derive(Clone)]
pub struct ModelCall {
    /// The request, in order; repaired, system first.
    pub request: Arc<ModelRequest>,
    /// The profile that was chosen.
    pub profile: Arc<Profile>,
    /// The node's parameters laid over the profile's.
    pub parameters: Map<String, Value>,
    /// The tools the model may ask for.
    pub tools: Vec<ToolSpec>,
    /// Structured output the node wants.
    pub response_format: Option<Arc<Value>>,
    /// The memory of this thread's earlier calls of this profile.
    pub session: ModelSession,
    /// The place in the run that the call comes from.
    pub context: CallContext,
    /// The thread whose earlier requests it goes on from.
    pub goes_on_from: Arc<str>,
    /// Tells the idempotency key of this request from those of the other requests that its call makes: another profile's, one that
    /// says what was wrong with a reply. Empty for the first; a retry keeps it.
    pub key_part: String,
    /// The host's clock, for delays that virtual time can skip.
    pub clock: WorkClock,
    /// A random number of this call's own, for the jitter of its retries; a seeded one under virtual time.
    pub chance: u64,
    /// The sink for pieces of the reply as they come; does nothing where nobody listens.
    pub tokens: TokenSink,
}

impl ModelCall {
    /// The idempotency key of the request: another body has another one. None outside of a run's calls.
    pub fn idempotency_key(&self) -> Option<String> {
        Some(idempotency_key()? + &self.key_part)
    }
}

/// The memory of a thread for a model between calls: which of a script's responses were used.
#[derive(Clone, Debug, Default)]
pub struct ModelSession {
    used: Arc<std::sync::Mutex<std::collections::BTreeSet<usize>>>,
    others: Arc<std::sync::Mutex<std::collections::BTreeMap<String, ModelSession>>>,
}

impl ModelSession {
    /// Takes the first of `count` places that `wanted` accepts and that was not taken before.
    pub fn take(&self, count: usize, wanted: impl Fn(usize) -> bool) -> Option<usize> {
        let mut used = self.used.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let place = (0..count).find(|place| !used.contains(place) && wanted(*place))?;
        used.insert(place);
        Some(place)
    }

    /// The memory of the calls that fell back to `profile`.
    #[must_use]
    pub fn of_fallback(&self, profile: &str) -> Self {
        let mut others = self.others.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        others.entry(profile.to_owned()).or_default().clone()
    }
}

/// Takes a piece of a reply.
type TakePiece = dyn Fn(&str) + Send + Sync;

/// Hears that a reply begins anew.
type Restart = dyn Fn() + Send + Sync;

/// A sink for the pieces of a streaming model's reply.
#[derive(Clone)]
pub struct TokenSink {
    send: Option<Arc<TakePiece>>,
    restart: Option<Arc<Restart>>,
}

impl TokenSink {
    /// A sink that nobody reads.
    pub fn closed() -> Self {
        Self {
            send: None,
            restart: None,
        }
    }

    /// A sink that hands every piece to `send`.
    pub fn new(send: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self {
            send: Some(Arc::new(send)),
            restart: None,
        }
    }

    /// The same sink, which also hears when what it was handed so far is void.
    #[must_use]
    pub fn on_restart(self, restart: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            restart: Some(Arc::new(restart)),
            ..self
        }
    }

    /// Hands on a piece of the reply.
    pub fn put(&self, piece: &str) {
        if let Some(send) = &self.send {
            send(piece);
        }
    }

    /// Says that the reply begins anew: the model is asked again, or another one is.
    pub fn begin_anew(&self) {
        if let Some(restart) = &self.restart {
            restart();
        }
    }

    /// True if anybody reads.
    pub fn is_open(&self) -> bool {
        self.send.is_some()
    }
}

/// A language model behind a profile. Dropping the future stops the call at once.
pub trait Model: Send + Sync + 'static {
    /// Answers one request.
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>>;

    /// It answered this request before the process of its run ended: what later calls depend on is put in the session.
    /// Of the request there is the message that the user said last.
    fn answered(&self, _request: &ModelRequest, _session: &ModelSession) {}

    /// True if it waits for the outside world (a network, a process): virtual time then stands by the real clock.
    fn is_external(&self) -> bool {
        false
    }

    /// The most that it writes to this request, and its prices; asked where a budget limits tokens or cost. `parameters` are the
    /// node's laid over the profile's. By default `maxTokens` among them, and no prices.
    fn call_bound(&self, _request: &ModelRequest, parameters: &Map<String, Value>) -> CallBound {
        CallBound {
            output: max_tokens(parameters),
            prices: None,
        }
    }

    /// The order of messages that it takes; requests for it are repaired accordingly.
    fn message_rules(&self) -> MessageRules {
        MessageRules::default()
    }
}

/// `maxTokens` of parameters.
pub fn max_tokens(parameters: &Map<String, Value>) -> Option<u64> {
    let written = parameters.get("maxTokens").or_else(|| parameters.get("max_tokens"));
    written.and_then(Value::as_u64)
}

/// The parameters of a call: a node's laid over its profile's.
pub fn laid_over_profile(profile: &Profile, own: Option<&Map<String, Value>>) -> Map<String, Value> {
    let mut parameters = profile.parameters.clone().unwrap_or_default();
    let own = own.into_iter().flatten();
    parameters.extend(own.map(|(name, value)| (name.clone(), value.clone())));
    parameters
}

/// Chooses the model for an LLM node.
pub trait Models: Send + Sync + 'static {
    /// The profile with this id, or the default one, and its model.
    fn choose(&self, profile_id: Option<&str>) -> (Arc<Profile>, Arc<dyn Model>);

    /// The models of a run that begins, or goes on, over these workflows, for as long as it takes; none: these.
    fn of_run(&self, _graphs: &crate::journal::Graphs) -> Option<Arc<dyn Models>> {
        None
    }
}

/// A tool's name, description and schema, for a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// The description, for the model.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Value,
}

/// A tool that models may call.
pub trait Tool: Send + Sync + 'static {
    /// Name, description, schema.
    fn spec(&self) -> ToolSpec;

    /// Does it. An error answers the model; it never ends the run.
    fn call(&self, arguments: Value, clock: WorkClock) -> BoxFuture<'static, Result<String, String>>;

    /// Does it, for who asks in `context`; the result may hold images and files beside its text. This is what is called; by
    /// default it gives the text of [`Tool::call`] alone.
    fn call_in(
        &self,
        arguments: Value,
        context: ToolContext,
    ) -> BoxFuture<'static, Result<(String, Vec<Part>), String>> {
        let called = self.call(arguments, context.clock);
        Box::pin(async move { called.await.map(|text| (text, Vec::new())) })
    }

    /// True if it waits for the outside world.
    fn is_external(&self) -> bool {
        true
    }

    /// True if it changes nothing: a call that may have been made is then made again without a thought.
    fn is_read_only(&self) -> bool {
        false
    }
}

/// A question to a person, in the middle of a tool's call.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The words.
    pub message: String,
    /// JSON Schema of the answer.
    pub schema: Value,
}

/// Asks a person: an answer that fits the schema; none where nobody is there, or declines.
pub type AskPerson = dyn Fn(Question) -> BoxFuture<'static, Option<Value>> + Send + Sync;

/// The circumstances of a tool's call, beside its arguments.
#[derive(Clone)]
pub struct ToolContext {
    /// The host's clock, for delays that virtual time can skip.
    pub clock: WorkClock,
    /// The model's id of the call.
    pub call_id: String,
    /// Whoever is asked for consent, for what the tool has to ask while it works; none: nobody is.
    pub ask: Option<Arc<AskPerson>>,
    /// The place in the run that the call comes from; none where it is made by hand.
    pub caller: Option<CallContext>,
    /// Models that the tool may ask while it works; none where the call is made by hand.
    pub sampler: Option<Sampler>,
}

/// A tool call that a model has made.
#[derive(Clone)]
pub struct AskedCall {
    /// Tool, arguments, and the model's id for it.
    pub call: ToolCall,
    /// The place in the run that the call comes from; none where it is made by hand.
    pub caller: Option<CallContext>,
    /// The run's models, for a tool that asks one while it works; none where it is made by hand.
    pub models: Option<Arc<dyn Models>>,
    /// A person has allowed it.
    pub is_consented: bool,
}

/// The end of a tool's call.
#[derive(Clone, Debug)]
pub enum Called {
    /// It was made, or could not be.
    Result(ToolResult),
    /// Nothing was done: a person is asked first. The call comes again where the person allows it.
    NeedsConsent(Box<ConsentRequest>),
}

impl Called {
    /// The result, for who has nobody to ask.
    pub fn unasked(self) -> ToolResult {
        match self {
            Self::Result(result) => result,
            Self::NeedsConsent(request) => ToolResult::failed(format!(
                "it needs a person's consent, and nobody is asked here: {}",
                request.reason
            )),
        }
    }
}

impl From<ToolCall> for AskedCall {
    /// A call made by hand.
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
    /// The specs of these tools, for models; unknown names are left out.
    fn specs(&self, names: &[Arc<str>]) -> Vec<ToolSpec>;

    /// True if a call of this tool waits for the outside world: virtual time then stands by the real clock.
    fn is_external(&self, name: &str) -> bool;

    /// The policy for a call of this tool that was under way when the process of its run ended (a person had allowed it, or
    /// had not been asked); none: as its node says.
    fn in_doubt(&self, _name: &str, _is_consented: bool) -> Option<InDoubt> {
        None
    }

    /// Calls a tool of these; an unknown one is an error result for the model.
    fn call(&self, names: &[Arc<str>], asked: AskedCall, clock: WorkClock) -> BoxFuture<'static, Called>;

    /// Ends what the tools keep running between calls. May block for some seconds; no call comes after it.
    fn close(&self) {}
}

/// A function that is called in place.
pub type InlineFunction = dyn Fn(&Input<'_>) -> Result<Value, String> + Send + Sync;

/// A function that is called as work.
pub type WorkFunction = dyn Fn(Value, CallContext) -> BoxFuture<'static, Result<Value, String>> + Send + Sync;

/// A registered Rust function for CODE nodes and CUSTOM triggers.
#[derive(Clone)]
pub enum Function {
    /// Called in place, on the run's own thread: for what takes microseconds.
    Inline(Arc<InlineFunction>),
    /// Called as work.
    Work(Arc<WorkFunction>),
}

/// One CODE job.
pub struct ScriptJob<'a> {
    /// The graph that holds the script.
    pub graph: &'a Arc<Graph>,
    /// Which text of it.
    pub code: SnippetIx,
    /// The node's `input`.
    pub input: Arc<Value>,
    /// The other values that the script sees; captured before this returns.
    pub scope: &'a dyn Scope,
    /// The run that asks: runs share the threads of scripts evenly.
    pub run_id: &'a Arc<str>,
    /// For what it draws; none: it can not.
    pub seed: Option<u64>,
}

/// The end of a script, and what it wrote before.
#[derive(Debug)]
pub struct ScriptEnd {
    /// Its value.
    pub result: Result<Arc<Value>, RunError>,
    /// Its `console` output.
    pub logs: ScriptLogs,
}

/// The callback of a script.
pub type ScriptAnswer = Box<dyn FnOnce(ScriptEnd) + Send>;

/// Texts that an [`Evaluator`] left for later, with all that they see.
pub struct TextJob {
    /// The run that asks: runs share the threads of scripts evenly.
    pub run_id: Arc<str>,
    /// Which.
    pub texts: Texts,
}

/// Texts to evaluate.
pub enum Texts {
    /// The texts that a thread evaluates of a node.
    OfNode {
        /// The graph.
        graph: Arc<Graph>,
        /// Its node.
        node: NodeIx,
        /// Which of the node's.
        what: Evaluation,
        /// The thread as it stood.
        thread: Box<Snapshot>,
        /// The run's global variables.
        globals: Variables,
    },
    /// A text of a trigger, for an [`Outcome::Value`].
    OfEvent {
        /// The text.
        source: Arc<str>,
        /// The kind of result that is wanted.
        want: Want,
        /// The values that it sees.
        scope: Box<ScopeValues>,
    },
}

impl Texts {
    /// Texts of a node, over a scope as it is now.
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

/// The kind of result that is wanted of a text which stands by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// An expression's value.
    Value,
    /// The truth of an expression.
    Truth,
    /// A template's text.
    Text,
}

/// The callback of evaluated texts.
pub type TextAnswer = Box<dyn FnOnce(Outcome) + Send>;

/// Statistics of the threads of scripts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScriptStats {
    /// Scripts that wait for a thread.
    pub waiting: usize,
    /// Scripts that run.
    pub running: usize,
    /// Threads that were given up, and have not come back: a script did not stop at its limit.
    pub stuck: usize,
    /// Threads that were ever given up.
    pub given_up: u64,
    /// Scripts that were refused, because too many were stuck or waited.
    pub refused: u64,
}

/// Runs what needs JavaScript on threads of its own.
pub trait Scripts: Send + Sync + 'static {
    /// Starts a job; `answer` is called once, from any thread, at the latest shortly after the script's time limit.
    fn run(&self, job: ScriptJob<'_>, answer: ScriptAnswer) -> ScriptHandle;

    /// Starts an evaluation; `answer` is called as that of [`Scripts::run`].
    fn evaluate(&self, job: TextJob, answer: TextAnswer) -> ScriptHandle;

    /// Statistics of its threads.
    fn stats(&self) -> ScriptStats {
        ScriptStats::default()
    }
}

/// The name of a tokenizer, and the profile that its texts go to: each where there is one.
pub struct TokenizerChoice<'a> {
    /// As the workflow names it.
    pub name: Option<&'a str>,
    /// That of the workflow's first LLM node.
    pub profile: Option<&'a Profile>,
}

/// Finds a tokenizer, or the default one.
pub type FindTokenizer = dyn Fn(&TokenizerChoice<'_>) -> Arc<dyn Tokenizer> + Send + Sync;

/// Takes the text and channel of a notification.
pub type Notify = dyn Fn(&str, Option<&str>) + Send + Sync;

/// Everything an engine is given.
#[derive(Clone)]
pub struct Ports {
    /// Keeps what runs are told, where anybody wants that.
    pub journal: Option<Arc<dyn crate::journal::Journal>>,
    /// Models by profile.
    pub models: Arc<dyn Models>,
    /// Tools by name.
    pub tools: Arc<dyn Tools>,
    /// Functions by name.
    pub functions: Arc<std::collections::BTreeMap<String, Function>>,
    /// CODE, and the texts that evaluators leave for later.
    pub scripts: Arc<dyn Scripts>,
    /// Makes the evaluator of one arbiter, on that arbiter.
    pub evaluator: Arc<dyn Fn() -> Box<dyn Evaluator> + Send + Sync>,
    /// The tokenizer of a workflow.
    pub tokenizer: Arc<FindTokenizer>,
    /// The share of its token limit at which the compression of a workflow that names none begins early.
    pub speculative_at: Option<f64>,
    /// Bytes that a run may hold whose workflow names no limit.
    pub run_bytes: u64,
    /// Called for SEND_NOTIFICATION.
    pub notify: Arc<Notify>,
    /// Checks people's answers.
    pub fits: Fits,
    /// Keeps what runs leave in their sessions.
    pub sessions: Arc<dyn crate::sessions::SessionKeeper>,
    /// Remembers what schedules have done; none: no schedule fires.
    pub schedules: Option<Arc<dyn ScheduleMemory>>,
}

/// The memory of what schedules have done, from process to process.
pub trait ScheduleMemory: Send + Sync {
    /// A schedule's knowledge of earlier processes; none where that is not known.
    fn kept(&self, schedule: &str) -> BoxFuture<'static, Option<Kept>>;

    /// Remembers that.
    fn keep(&self, schedule: &str, kept: &Kept);

    /// The state of a run that an earlier process may have begun.
    fn begun(&self, run_id: &str) -> BoxFuture<'static, Begun>;
}

/// The state of a run that an earlier process may have begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// It has not.
    No,
    /// It has, and the run has not ended: it goes on with whoever resumes it in this process.
    Here,
    /// The same, in this process or in another one.
    Somewhere,
    /// It has, and the run has ended.
    Ended,
}

/// Remembers nothing: what is missed while no engine lives is not known.
pub struct NoScheduleMemory;

impl ScheduleMemory for NoScheduleMemory {
    fn kept(&self, _: &str) -> BoxFuture<'static, Option<Kept>> {
        Box::pin(std::future::ready(None))
    }

    fn keep(&self, _: &str, _: &Kept) {}

    fn begun(&self, _: &str) -> BoxFuture<'static, Begun> {
        Box::pin(std::future::ready(Begun::No))
    }
}

/// The profile of a workflow's first LLM node; the default one where that is evaluated.
pub(crate) fn first_profile(models: &dyn Models, graph: &Graph) -> Option<Arc<Profile>> {
    let profile_id = graph.nodes.iter().find_map(|node| match &node.kind {
        NodeKind::Llm(llm) => Some(llm.profile_id.as_deref()),
        _ => None,
    })?;
    Some(models.choose(profile_id).0)
}

impl Ports {
    /// The tokenizer of a workflow: the one that it names, else that of its first LLM node's profile.
    pub(crate) fn tokenizer_of(&self, models: &dyn Models, graph: Option<&Graph>) -> Arc<dyn Tokenizer> {
        let name = graph.and_then(|graph| graph.config.tokenizer.as_deref());
        let unnamed = graph.filter(|_| name.is_none());
        let profile = unnamed.and_then(|graph| first_profile(models, graph));
        (self.tokenizer)(&TokenizerChoice {
            name,
            profile: profile.as_deref(),
        })
    }

    /// True if runs go on in another process where this one ends.
    pub fn is_durable(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.is_durable())
    }
}
