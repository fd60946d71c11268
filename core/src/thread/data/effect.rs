//! The effects of a thread, and the answers to them.
//!
//! An effect with an [`EffectId`] is answered exactly once by [`Input::Answer`], or cancelled by the thread with [`Effect::Drop`].
//! Late answers to cancelled effects are ignored. The input and the ordered list of answers are enough to rebuild a thread.

use std::borrow::Cow;
use std::sync::Arc;

use pirn_conversation::conversation::{AgentKind, ModelRequest, PreparedRequest, TokenUsage};
use pirn_conversation::model_call::{CacheUse, FinishReason};
use pirn_definition::Millis;
use pirn_definition::definition::{
    BuiltInTool, CompressionConfig, ConversationHistoryOptions, ConversationMode, FilterContext, PinSection,
    ToolDefinition, ToolEntry, TruncateContext,
};
use pirn_definition::error::RunError;
use pirn_definition::graph::{ContextNode, ForkIx, Graph, LlmNode, NodeIx, NodeKind, SnippetIx};
use pirn_definition::message::{Message, Part, Role, ToolCall};
use pirn_definition::value::Output;
use pirn_events::event::{EventMask, RaisedEvent, TakenEvents};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::script_state::ScriptState;
use crate::status::ThreadStatus;

/// Number of an effect within its thread, ascending from 1.
pub type EffectId = u64;

/// Number of a trigger's firing within its run.
pub type FiringId = u64;

/// Returns the id of the run that a firing of the run `run_id` starts. A start that another process repeats has an equal id.
pub fn started_run_id(run_id: &str, firing: FiringId) -> String {
    format!("{run_id}-f{firing}")
}

/// Profile and parameters of a model call, if expressions of the node compute them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelChoice {
    /// Id of the profile.
    pub profile_id: Option<Arc<str>>,
    /// Parameters that override those of the profile.
    pub parameters: Option<Arc<Map<String, Value>>>,
}

impl ModelChoice {
    /// Returns the profile and the parameter overrides of a node's model call.
    ///
    /// The profile is the evaluated one, else the node's. The parameters are those of the continued request if there is one, because
    /// the provider's cache needs an equal request; else the evaluated ones, else the node's.
    pub fn of(graph: &Graph, node: NodeIx, choice: Option<&Self>, goes_on: Option<&ContinuedRequest>) -> Self {
        // Both node types call models: an LLM node for its reply, a compression for its summary.
        let (profile_id, own) = match &graph.node(node).kind {
            NodeKind::Llm(llm) => (llm.profile_id.clone(), llm.parameters.clone()),
            NodeKind::Context(ContextNode::Compress(config)) => {
                // Compressions have untyped parameters: the profile is one of them. Runs of earlier versions used `extractive` otherwise.
                let named = config.parameters.get("profileId").and_then(Value::as_str);
                (Some(Arc::from(named.unwrap_or("extractive"))), None)
            }
            // No other node type calls a model.
            _ => (None, None),
        };
        // Cloning copies two pointers: both fields are shared.
        let chosen = choice.cloned().unwrap_or_default();
        Self {
            // A continued request differs in its parameters only: `goes_on` names no profile.
            profile_id: chosen.profile_id.or(profile_id),
            parameters: match goes_on {
                Some(goes_on) => goes_on.parameters.clone(),
                None => chosen.parameters.or(own),
            },
        }
    }
}

/// Tools of a model call in addition to those of its node. The request lists the tools of the node first, then these in the order of
/// the fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OfferedTools {
    /// `read_skill`, whose definition lists the skills of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skills: Option<Arc<Vec<ToolDefinition>>>,
    /// Tools of the run's client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<Arc<Vec<ToolDefinition>>>,
    /// Names of the deferred tools that the conversation has revealed, in the order of their revelation: each request lists those of the
    /// request before first, so that the provider's prompt cache serves the common prefix.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub revealed: Vec<Arc<str>>,
    /// Deferred entries of the node's tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    deferred: Vec<Arc<str>>,
}

impl OfferedTools {
    /// Returns the tools that an LLM node of a thread offers; `None` if there are none.
    pub(crate) fn of(node: &LlmNode, is_main: bool, client: Option<&Arc<Vec<ToolDefinition>>>) -> Option<Self> {
        let is_offered = node.client_tools.unwrap_or(is_main);
        let client = client.filter(|_| is_offered).map(|tools| {
            // A run with such a clash is refused at its start. A workflow that is only known later may clash nevertheless: two tools
            // of one name would make the provider refuse the request.
            let is_of_node = |tool: &ToolDefinition| {
                let mut own = node.tools.iter();
                own.any(|own| ToolEntry::includes(ToolEntry::name_in(own), &tool.name))
            };
            if tools.iter().any(is_of_node) {
                Arc::new(tools.iter().filter(|tool| !is_of_node(tool)).cloned().collect())
            } else {
                Arc::clone(tools)
            }
        });
        let deferred = node
            .tools
            .iter()
            .filter(|listed| ToolEntry::deferred_name(listed).is_some());
        let deferred: Vec<Arc<str>> = deferred.cloned().collect();
        let skills = node.skills.as_ref().map(|skills| Arc::clone(&skills.definitions));
        (skills.is_some() || client.is_some() || !deferred.is_empty()).then(|| Self {
            skills,
            client,
            revealed: Vec::new(),
            deferred,
        })
    }

    /// Sets the revealed tools of the node to those that messages of the conversation name, in their order.
    pub(crate) fn reveal<'a>(&mut self, messages: impl Iterator<Item = &'a Message>) {
        if self.deferred.is_empty() {
            return;
        }
        for name in messages.flat_map(revealed_by) {
            // Other nodes of the conversation may defer other tools.
            let is_deferred = self
                .deferred
                .iter()
                .any(|listed| ToolEntry::includes(ToolEntry::name_in(listed), name));
            if is_deferred && !self.revealed.iter().any(|known| **known == *name) {
                self.revealed.push(name.into());
            }
        }
    }

    /// Returns the tools whose definitions the run knows, in the order of the request.
    pub fn definitions(&self) -> impl Iterator<Item = &ToolDefinition> {
        self.skills.iter().chain(&self.client).flat_map(|tools| tools.iter())
    }

    /// Returns true if the run's client executes the tool of this name.
    pub(crate) fn is_of_client(&self, name: &str) -> bool {
        self.client
            .iter()
            .flat_map(|tools| tools.iter())
            .any(|tool| tool.name == name)
    }
}

/// Key of the revealed tools in the metadata of a tool message.
const REVEALED: &str = "revealedTools";

/// Returns the metadata of a message with a search's result.
pub(in crate::thread) fn revealing(revealed: &[String]) -> Option<Map<String, Value>> {
    (!revealed.is_empty()).then(|| Map::from_iter([(REVEALED.to_owned(), Value::from(revealed))]))
}

/// Returns the tools that a message has revealed. The complete history of a conversation contains every such message, also after
/// compressions, in forks and in later runs of a session.
fn revealed_by(message: &Message) -> impl Iterator<Item = &str> {
    // Only results of tools reveal: a reply of a model or a message of a person contains no such metadata.
    let metadata = message.metadata.as_ref().filter(|_| message.role == Role::Tool);
    let names = metadata.and_then(|metadata| metadata.get(REVEALED)?.as_array());
    names.into_iter().flatten().filter_map(Value::as_str)
}

/// Tool choice of a model call, over the parameters of its profile and node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolChoice {
    /// The configured choice, or the provider's default.
    AsConfigured,
    /// The request contains no choice.
    Unset,
    /// The model may call no tool.
    Forbidden,
}

impl ToolChoice {
    /// Returns the choice for a call that lists `has_tools` and in which the model may call them (`offers_tools`).
    pub fn of(is_continuation: bool, offers_tools: bool, has_tools: bool) -> Self {
        match (is_continuation, offers_tools, has_tools) {
            // Some providers count the choice as part of the cached prefix, and the continued request was sent without.
            (true, ..) => Self::Unset,
            // The tools stay listed: providers refuse a history with calls of tools that the request does not define.
            (false, false, true) => Self::Forbidden,
            (false, ..) => Self::AsConfigured,
        }
    }

    /// Applies the choice to the parameters of the call. Profiles write the key in either spelling.
    pub fn apply(self, parameters: &mut Map<String, Value>) {
        // The only choice that leaves the configured value in the parameters.
        if self == Self::AsConfigured {
            return;
        }
        // Both spellings, so that none of them overrides the inserted one.
        parameters.remove("tool_choice");
        parameters.remove("toolChoice");
        if self == Self::Forbidden {
            parameters.insert("toolChoice".to_owned(), Value::from("none"));
        }
    }
}

/// Marks a summary request that continues the conversation of another model call: its messages are the next request of that model,
/// with an instruction at the end. Profile, tools and parameters equal those of that call, so that the provider's prompt cache
/// serves the common prefix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContinuedRequest {
    /// Thread that sent the continued requests.
    pub thread_id: Arc<str>,
    /// Tools that those requests offer.
    pub tools: Vec<Arc<str>>,
    /// Tools that those requests offer in addition to their node's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered: Option<Arc<OfferedTools>>,
    /// Parameters that override those of the profile.
    pub parameters: Option<Arc<Map<String, Value>>>,
    /// Fallback for a model with a smaller context window: a request with a transcript.
    pub transcript: Arc<ModelRequest>,
}

/// Request for a summary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SummaryRequest {
    /// Messages for the model.
    pub request: Arc<ModelRequest>,
    /// Model call that the request continues.
    pub goes_on: Option<Arc<ContinuedRequest>>,
    /// Profile of the model; `None` for the profile of the node.
    pub profile_id: Option<Arc<str>>,
}

/// Summary by a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WrittenSummary {
    /// Text of the reply.
    pub text: String,
    /// True if the reply reached its maximum length.
    pub is_truncated: bool,
}

/// Computed values of an LLM node, if it has more than templates: the object that answers [`Evaluation::Prompt`].
#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::thread) struct ComputedPrompt {
    pub(in crate::thread) prompt: Option<String>,
    pub(in crate::thread) system: Option<String>,
    pub(in crate::thread) profile: Option<String>,
    pub(in crate::thread) parameters: Option<Arc<Value>>,
    /// Values of the computed parts of the message.
    pub(in crate::thread) parts: Vec<Arc<Value>>,
}

/// Environment of one step: randomness and subscriptions. There is no clock: threads set timers instead, so that a replay needs
/// no time.
#[derive(Clone, Copy, Debug)]
pub struct Environment {
    /// Random number for jitter, new at each step.
    pub random: u64,
    /// Event types with a subscriber. Events of other types are not built.
    pub interest: EventMask,
    /// Event types watched by a trigger with `waitForCompletion`. After it raises one, the thread checks at its next safe point
    /// whether a firing holds it.
    pub holding: EventMask,
    /// True if the run has global variables. In expressions they take precedence over every other bare name.
    pub has_globals: bool,
    /// When the next message of a person is to be added to the conversation; `None` if none waits.
    pub user_messages: Option<When>,
    /// Number of agents that the thread may start; `None` if no limit applies.
    pub agents_left: Option<u64>,
    /// Maximum number of concurrent calls of the thread, in addition to the limits of its node; `None` if no limit applies.
    pub concurrency: Option<u32>,
}

/// Time at which a person's message is added to the conversation of the main thread. The earlier one is the lesser.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum When {
    /// Before the next model request. An LLM node that is about to finish calls its model again.
    #[default]
    BeforeNextRequest,
    /// When an LLM node is about to finish: the node calls its model again.
    WhenIdle,
}

/// Reason that a thread is cancelled from outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum CancelReason {
    /// A person or a trigger cancelled it.
    Requested {
        /// Reason that the caller gave.
        reason: String,
    },
    /// The JOIN was decided without this thread.
    JoinDecided,
    /// The thread that started it has ended.
    ParentEnded,
    /// The time limit passed: the status is TIMEOUT.
    TimedOut {
        /// Time limit in milliseconds.
        after_ms: Millis,
    },
    /// The engine shuts down.
    Shutdown,
}

impl CancelReason {
    /// Returns the reason as text. Fixed texts are borrowed: a join may cancel thousands of threads at once.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Requested { reason } => reason.into(),
            // Only the arm of `TimedOut` formats; `Requested` borrows the caller's text.
            Self::JoinDecided => "its JOIN was decided without it".into(),
            Self::ParentEnded => "the thread that started it ended".into(),
            Self::TimedOut { after_ms } => format!("its time limit of {after_ms} ms passed").into(),
            Self::Shutdown => "the engine shuts down".into(),
        }
    }
}

impl std::fmt::Display for CancelReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text())
    }
}

/// An input of a thread.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Input {
    /// Starts the thread.
    Start,
    /// Answers an effect.
    Answer {
        /// Answered effect.
        effect: EffectId,
        /// Outcome of the effect.
        outcome: Outcome,
    },
    /// Cancels the thread.
    Cancel {
        /// Reason of the cancel.
        reason: CancelReason,
        /// Number of triggers between the run's steps and this input.
        trigger_depth: u32,
    },
    /// Ends the thread with status FAILED: something that it needs is lost, such as its conversation.
    Fail(RunError),
    /// Pauses the thread at its next safe point.
    Pause {
        /// Number of triggers between the run's steps and this input.
        trigger_depth: u32,
    },
    /// Resumes a paused thread.
    Resume {
        /// Number of triggers between the run's steps and this input.
        trigger_depth: u32,
    },
    /// An event that may hold the thread was raised in its name from outside: the thread checks at its next safe point.
    Raised,
    /// A triggered sub-workflow has ended. Its result takes effect at the next safe point.
    Triggered {
        /// Firing that started the sub-workflow.
        firing: FiringId,
        /// Result for this thread.
        result: TriggeredResult,
    },
    /// A trigger assigns a variable of this thread: at its next safe point or when the thread ends.
    Assign {
        /// Id of the trigger.
        trigger_id: Arc<str>,
        /// Name of the variable.
        name: Arc<str>,
        /// New value.
        value: Arc<Value>,
        /// Number of triggers between the run's steps and this assignment.
        trigger_depth: u32,
    },
}

/// Result of a triggered sub-workflow for its main thread. It is applied as a whole or not at all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TriggeredResult {
    /// Assignments to variables of the thread.
    pub variables: Vec<(Arc<str>, Arc<Value>)>,
    /// True if the firing also changes the conversation or global variables. The run machine holds these changes.
    pub conversation: bool,
    /// True if the firing holds the thread. The firing may end before the thread receives that it is held.
    pub holds: bool,
    /// True if a token event caused the firing. The result takes effect before the next model call, even inside a node.
    pub is_compression: bool,
    /// Number of triggers between the run's steps and these changes.
    pub trigger_depth: u32,
    /// True if a firing that held the thread started before the token limit was exceeded: the limit is checked again.
    #[serde(default)]
    pub checks_limit: bool,
}

/// Expressions or templates of a node to evaluate. Their source is in the graph, their variables in the thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Evaluation {
    /// Index of the outgoing edge whose condition is true: [`Outcome::Choice`].
    Edges,
    /// Index of the route whose condition is true: [`Outcome::Choice`].
    Routes,
    /// An expression: [`Outcome::Value`].
    Value(SnippetIx),
    /// The node's `input`: [`Outcome::Value`].
    Input,
    /// The LLM node's prompt and system templates: [`Outcome::Texts`], the prompt first.
    Prompt,
    /// The CONTEXT_PROCESSOR's templates, or a question and its addressee: [`Outcome::Texts`].
    Texts,
    /// The value of a `pin`: [`Outcome::Value`].
    Pin,
    /// The reduced value of each of these variables: [`Outcome::Value`], a list in their order.
    Folds(Arc<Vec<PendingReduction>>),
}

/// Values of one variable from several paths, to be reduced by an expression.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingReduction {
    /// Name of the variable.
    pub name: Arc<str>,
    /// Reducer: an expression over `a` and `b`.
    pub expression: SnippetIx,
    /// Values in path order.
    pub values: Vec<Arc<Value>>,
}

/// A request to the thread's conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ConversationOp {
    /// Adds messages: [`Outcome::Done`].
    Append(Vec<Message>),
    /// Adds the reply of a model that is across the network: [`Outcome::Done`].
    // Boxed: the size of every message is that of the largest one.
    AppendReply(Box<AnsweredRequest>),
    /// Applies a CONTEXT_PROCESSOR operation: [`Outcome::Done`] or an error.
    Apply(ContextChange),
    /// Applies a built-in compression: [`Outcome::Done`], or [`Outcome::Summarize`] if a model must write the summary.
    Compress(CompressionConfig),
    /// Applies the summary that a model wrote for [`Outcome::Summarize`]: [`Outcome::Done`].
    // Boxed: the size of every message is that of the largest one.
    FinishSummary(Box<WrittenSummary>),
    /// Builds the next model request: [`Outcome::Prepared`].
    Prepare {
        /// Kind of agent, which selects the message rules.
        agent: AgentKind,
        /// System message, used if the history has none.
        system: Option<String>,
        /// The LLM node, which names the tools and the profile.
        node: NodeIx,
        /// Evaluated profile and parameters, if the node computes them.
        choice: Option<Arc<ModelChoice>>,
        /// True if TOKEN_LIMIT_EXCEEDED was raised for this call already: the event is not repeated.
        recheck: bool,
    },
    /// Adds the messages of people that are due at this time: [`Outcome::Done`].
    AddUserMessages(When),
    /// Applies the result of a firing: [`Outcome::Done`], or an error and no change.
    Merge(FiringId),
    /// Answers a call of a built-in tool: [`Outcome::Tool`].
    BuiltIn(BuiltInTool, Box<ToolCall>),
}

/// A model's reply with the use of the provider's prompt cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AnsweredRequest {
    /// The LLM node.
    pub node: NodeIx,
    /// The reply.
    pub message: Message,
    /// Use of the cache by the request.
    pub cache: CacheUse,
}

/// A CONTEXT_PROCESSOR operation with rendered templates. The conversation counts the tokens of its messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ContextChange {
    /// Adds messages.
    Insert {
        /// New messages.
        messages: Vec<Message>,
        /// Index among the visible messages; negative values count from the end.
        position: i64,
    },
    /// Replaces messages.
    Replace {
        /// Messages to remove; absent: all.
        target: Option<ConversationHistoryOptions>,
        /// New messages.
        messages: Vec<Message>,
    },
    /// Retains or removes messages at one end.
    Truncate(TruncateContext),
    /// Removes all messages.
    Clear {
        /// True to retain system messages.
        keep_system: bool,
    },
    /// Retains the messages that match.
    Filter(FilterContext),
}

/// Workflow of a child thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Callee {
    /// The workflow and the agent of the SUBGRAPH node.
    #[default]
    OfNode,
    /// The registered workflow with this id.
    Registered(Arc<str>),
    /// The registered workflow with this id, called by a model: the child's input is read from the arguments of the call.
    Tool(Arc<str>),
    /// The workflow with this source, which is compiled when the child starts ([`compile_inline`]). Equal sources share one graph, so
    /// that values which differ between children belong into the input.
    ///
    /// [`compile_inline`]: pirn_definition::graph::compile_inline
    Inline(Arc<str>),
}

impl Callee {
    /// Returns true for the workflow of a SUBGRAPH node.
    pub fn is_of_node(&self) -> bool {
        *self == Self::OfNode
    }
}

/// Purpose of a thread's timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimerPurpose {
    /// Duration of a WAIT node.
    Wait,
    /// Delay before another attempt.
    Retry,
    /// Time limit of a node.
    Limit,
}

/// A request of a thread to the outside.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Effect {
    /// Evaluates expressions or templates of `node`: inline, or on a script thread if that may take long.
    Evaluate {
        /// Id of this effect.
        id: EffectId,
        /// Node that contains them.
        node: NodeIx,
        /// Expressions or templates to evaluate.
        what: Evaluation,
    },
    /// Calls a registered function: [`Outcome::Value`] or an error.
    Function {
        /// Id of this effect.
        id: EffectId,
        /// Effect id of the first attempt at this call, used as idempotency key by every attempt.
        key: EffectId,
        /// The CODE node.
        node: NodeIx,
        /// Input of the node. The JSON value is built only if the function reads it.
        input: Output,
    },
    /// Runs a script: [`Outcome::Value`] or an error.
    Script {
        /// Id of this effect.
        id: EffectId,
        /// Effect id of the first attempt at this call, used as idempotency key by every attempt.
        key: EffectId,
        /// The CODE node.
        node: NodeIx,
        /// Input of the node.
        input: Arc<Value>,
    },
    /// Evaluates the script of a SCRIPT node until it waits for its calls: [`Outcome::Value`] with its new calls and its end, or an
    /// error. The evaluation has no effect outside, so that it may be repeated.
    ScriptStep {
        /// Id of this effect.
        id: EffectId,
        /// The SCRIPT node.
        node: NodeIx,
        /// Recorded inputs of the script: its arguments, its calls, and their results so far.
        state: Arc<ScriptState>,
    },
    /// Sends an operation to the conversation.
    Conversation {
        /// Id of this effect; 0 if the thread expects no answer.
        id: EffectId,
        /// Operation to perform.
        op: ConversationOp,
    },
    /// Calls a model: [`Outcome::Reply`] or an error.
    Model {
        /// Id of this effect.
        id: EffectId,
        /// Effect id of the first attempt at this call, used as idempotency key by every attempt.
        key: EffectId,
        /// The LLM node, or the CONTEXT_PROCESSOR that summarizes.
        node: NodeIx,
        /// Request to send.
        request: Arc<PreparedRequest>,
        /// True if the model may call tools.
        offers_tools: bool,
        /// Evaluated profile and parameters, if the node computes them.
        choice: Option<Arc<ModelChoice>>,
        /// Set if the request continues one that the model received before.
        #[serde(default)]
        goes_on: Option<Arc<ContinuedRequest>>,
        /// Tools that the request offers in addition to those of the node.
        #[serde(default)]
        offered: Option<Arc<OfferedTools>>,
    },
    /// Calls a tool: [`Outcome::Tool`], or [`Outcome::NeedsConsent`] if nothing was called.
    Tool {
        /// Id of this effect.
        id: EffectId,
        /// Effect id of the first attempt at this call, used as idempotency key by every attempt.
        key: EffectId,
        /// The LLM or TOOL node.
        node: NodeIx,
        /// Tool, arguments and id of the call.
        call: ToolCall,
        /// True if a person has approved the call.
        #[serde(default)]
        is_consented: bool,
    },
    /// Starts the paths of a fork and joins them: [`Outcome::Joined`] or an error.
    Fork {
        /// Id of this effect.
        id: EffectId,
        /// Fork to start.
        fork: ForkIx,
    },
    /// Runs another workflow for each item of a list and joins the threads: [`Outcome::Joined`] or an error.
    Map {
        /// Id of this effect.
        id: EffectId,
        /// The MAP node.
        node: NodeIx,
        /// Input of each thread, as a list.
        inputs: Arc<Value>,
    },
    /// Runs another workflow in a child thread: [`Outcome::Child`] or an error. A node may have several children at once.
    Child {
        /// Id of this effect.
        id: EffectId,
        /// Node that starts the child.
        node: NodeIx,
        /// Workflow of the child.
        #[serde(default, skip_serializing_if = "Callee::is_of_node")]
        callee: Callee,
        /// Input of the child.
        input: Arc<Value>,
        /// Origin of the child's conversation.
        conversation: ConversationMode,
    },
    /// Sets a timer: [`Outcome::Elapsed`].
    Timer {
        /// Id of this effect.
        id: EffectId,
        /// The node that waits.
        node: NodeIx,
        /// Delay in milliseconds.
        after_ms: Millis,
        /// Purpose of the timer.
        purpose: TimerPurpose,
    },
    /// Waits for an event: [`Outcome::Event`].
    WaitEvent {
        /// Id of this effect.
        id: EffectId,
        /// The node that waits.
        node: NodeIx,
        /// Name of a CUSTOM event, or the name of an event type.
        event: Arc<str>,
        /// CUSTOM events that this thread has consumed already; they do not match again.
        taken: TakenEvents,
    },
    /// Waits for a person's answer: [`Outcome::Answered`]. While it waits, [`ThreadMachine::interactions`] returns the question.
    ///
    /// [`ThreadMachine::interactions`]: crate::thread::ThreadMachine::interactions
    Ask {
        /// Id of this effect.
        id: EffectId,
        /// Node with the question.
        node: NodeIx,
        /// JSON Schema to validate first, for a question of a script: those of nodes are validated with their workflow.
        unchecked_schema: Option<Arc<Map<String, Value>>>,
    },
    /// Assigns a global variable: [`Outcome::Value`] with the value converted to the variable's type, or an error.
    SetGlobal {
        /// Id of this effect.
        id: EffectId,
        /// Name of the variable.
        name: Arc<str>,
        /// New value.
        value: Arc<Value>,
        /// True if later assignments are errors.
        readonly: bool,
        /// True if the next run of the session receives the variable.
        is_of_session: bool,
    },
    /// Sets a section of the pinned context: [`Outcome::Done`] or an error.
    Pin {
        /// Id of this effect.
        id: EffectId,
        /// Section to set.
        section: PinSection,
        /// New value; null removes the section.
        value: Arc<Value>,
    },
    /// Raises an event.
    Emit(RaisedEvent),
    /// Raises an event and waits until every trigger has been matched: [`Outcome::HeldByFiring`].
    RaiseAndAwaitTriggers {
        /// Id of this effect.
        id: EffectId,
        /// Event to raise; absent: wait for the triggers of earlier events only.
        event: Option<RaisedEvent>,
    },
    /// The result of a firing was applied or rejected.
    Applied {
        /// Firing with this result.
        firing: FiringId,
        /// Reason of the rejection.
        error: Option<RunError>,
    },
    /// Cancels an effect. An answer that still arrives is ignored.
    Drop {
        /// Effect to cancel.
        id: EffectId,
    },
    /// The thread has ended. No effect follows.
    Ended(ThreadEnd),
}

/// The outcome of an effect.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Outcome {
    /// Success without a value.
    Done,
    /// A value.
    Value(Arc<Value>),
    /// Outcome of a script that wrote log lines.
    Logged(Box<LoggedOutcome>),
    /// Index of the alternative whose condition is true, if there is one.
    Choice(Option<u32>),
    /// Rendered templates; `None` for absent ones.
    Texts(Vec<Option<String>>),
    /// The next model request.
    Prepared(RequestWithEvents),
    /// A model's reply.
    Reply(Box<ModelReply>),
    /// A tool's result. A failed tool does not fail the thread: the model receives the error.
    // Boxed: the size of every message is that of the largest one, and a run copies each message several times.
    Tool(Box<ToolResult>),
    /// The tool was not called: a person must approve the call first.
    NeedsConsent(Box<ConsentRequest>),
    /// Request for a summary.
    Summarize(Box<SummaryRequest>),
    /// A fork was joined successfully.
    Joined(Box<Joined>),
    /// A called workflow completed.
    Child {
        /// Output of the workflow.
        output: Arc<Value>,
    },
    /// A timer fired.
    Elapsed,
    /// The awaited event arrived.
    Event {
        /// Sequence number of the event.
        sequence: u64,
        /// The event as JSON.
        event: Output,
    },
    /// A person has answered.
    Answered(PersonsAnswer),
    /// Every trigger has been matched. These firings hold the thread until they end.
    HeldByFiring(Vec<FiringId>),
    /// The effect failed.
    Failed(RunError),
}

/// Log lines that a script wrote with `console`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScriptLogs {
    /// The first lines, each with its level: `log`, `info`, `warn`, `error`, `debug`.
    pub lines: Vec<(Arc<str>, String)>,
    /// Number of lines dropped after the first ones.
    pub dropped: u64,
}

/// Outcome of a script that wrote log lines.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoggedOutcome {
    /// Log lines.
    pub logs: ScriptLogs,
    /// [`Outcome::Value`] or [`Outcome::Failed`].
    pub outcome: Outcome,
}

impl Outcome {
    /// Adds the log lines of the script to its outcome.
    #[must_use]
    pub fn after(self, logs: ScriptLogs) -> Self {
        // Most scripts write nothing: their outcome needs neither the box nor space for lines in the journal.
        if logs == ScriptLogs::default() {
            return self;
        }
        Self::Logged(Box::new(LoggedOutcome { logs, outcome: self }))
    }
}

/// A person's answer to a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PersonsAnswer {
    /// Answer as received.
    pub answer: Arc<Value>,
    /// Person who answered, if known.
    pub by: Option<Arc<str>>,
    /// Time of the answer, by the clock of the events.
    pub at: Millis,
}

/// A model request, with the events that building it raised.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RequestWithEvents {
    /// Request to send.
    pub request: Arc<PreparedRequest>,
    /// Events of the conversation (TOKEN_LIMIT_EXCEEDED, TOKEN_LIMIT_APPROACHED, REQUEST_PREPARED, ...), in order. The thread
    /// raises them, not the conversation, so that they are ordered among its other events.
    pub events: Vec<RaisedEvent>,
    /// Tools that the request offers in addition to those of the node.
    #[serde(default)]
    pub offered: Option<Arc<OfferedTools>>,
}

/// A model's reply.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelReply {
    /// Text of the reply.
    #[serde(default)]
    pub content: String,
    /// Tool calls of the reply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Tokens that the provider reported, summed over all attempts.
    #[serde(default)]
    pub usage: TokenUsage,
    /// Reason that the reply ended. A reply with tool calls ended because of them, regardless of this value.
    #[serde(default)]
    pub finish_reason: FinishReason,
    /// Metadata of the assistant message, such as provider data that later requests must include.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// Use of the provider's prompt cache by the answered attempt; `None` for offline models and in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<Box<CacheUse>>,
}

/// Result of a tool call, for the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// Text for the model.
    pub content: String,
    /// Images and files for the model, after the text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub media: Vec<Part>,
    /// True if it is an error.
    pub failed: bool,
    /// Names of the deferred tools that a search has found. The conversation offers them from its next request on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub revealed: Vec<String>,
    /// Tokens of model calls that the tool made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent: Option<Box<TokenUsage>>,
}

impl ToolResult {
    /// Returns the note after an output of which only the first bytes are retained. `total`: the size of the whole output, if it is
    /// known.
    pub fn cut_note(retained: usize, total: Option<u64>) -> String {
        let of = total.map(|total| format!(" of {total}")).unwrap_or_default();
        format!("\n[output cut: the first {retained} bytes{of}]")
    }

    /// Creates an error result with this text for the model.
    pub fn failed(content: impl Into<String>) -> Self {
        Self {
            content: content.into(),
            failed: true,
            ..Self::default()
        }
    }
}

/// Request for a person's approval of a tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConsentRequest {
    /// Reason that approval is needed.
    pub reason: String,
    /// Arguments of the call.
    pub arguments: Value,
    /// JSON Schema of the arguments. Arguments that the person changed are validated against this schema.
    pub schema: Value,
    /// Time limit for the answer, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<Millis>,
}

/// Result of a successful join. If the join replaces the parent's conversation, that is done already.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Joined {
    /// Output of the JOIN node.
    pub output: Output,
    /// Thread variables that the branches return.
    pub variables: Vec<(Arc<str>, Arc<Value>)>,
    /// True if the assignments raise VARIABLE_CHANGED.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub raises_events: bool,
    /// Returned variables whose reducer is an expression: still to be evaluated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub folds: Vec<PendingReduction>,
}

/// Outcome of a thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadEnd {
    /// COMPLETED, FAILED, CANCELLED or TIMEOUT.
    pub status: ThreadStatus,
    /// Output; null if the thread did not complete.
    pub output: Output,
    /// Error, if the thread did not complete.
    pub error: Option<RunError>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_call_without_offered_tools_forbids_tool_use_and_a_continued_request_sends_no_choice() {
        let sent = |continuation, offers, has| {
            let mut parameters = Map::from_iter([("tool_choice".to_owned(), json!("required"))]);
            ToolChoice::of(continuation, offers, has).apply(&mut parameters);
            Value::Object(parameters)
        };
        assert_eq!(sent(false, true, true), json!({ "tool_choice": "required" }));
        assert_eq!(sent(false, false, false), json!({ "tool_choice": "required" }));
        assert_eq!(sent(false, false, true), json!({ "toolChoice": "none" }));
        for (offers, has) in [(false, false), (false, true), (true, true)] {
            assert_eq!(sent(true, offers, has), json!({}));
        }
    }
}
