//! The effects of a thread, and the answers to them.
//!
//! An effect with an [`EffectId`] is answered exactly once by [`Input::Answer`], or dropped by the machine itself
//! with [`Effect::Drop`]; an answer to an effect that is no longer awaited changes nothing. A thread is rebuilt
//! from its input and the ordered list of its answers.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Millis;
use crate::conversation::{AgentKind, ModelRequest, PreparedRequest, Spent};
use crate::definition::{
    BuiltInTool, CompressionConfig, ConversationHistoryOptions, ConversationMode, FilterContext, PinSection,
    TruncateContext,
};
use crate::error::RunError;
use crate::event::{EventMask, RaisedEvent, TakenEvents};
use crate::graph::{ContextNode, ForkIx, Graph, NodeIx, NodeKind, SnippetIx};
use crate::message::{Message, Part, ToolCall};
use crate::model_call::FinishReason;
use crate::status::ThreadStatus;
use crate::value::Output;

/// Names one effect of one thread; ascending from 1.
pub type EffectId = u64;

/// Names one firing of a trigger within a run.
pub type FiringId = u64;

/// The profile and the parameters of a model call, where its node does not name them itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelChoice {
    /// The profile's id.
    pub profile_id: Option<Arc<str>>,
    /// Laid over the profile's parameters.
    pub parameters: Option<Arc<Map<String, Value>>>,
}

impl ModelChoice {
    /// The profile, and the parameters over its own, that a node's call is made with: those that were evaluated for it, those of
    /// the request that it goes on from, or the node's.
    pub fn of(graph: &Graph, node: NodeIx, choice: Option<&Self>, goes_on: Option<&GoesOn>) -> Self {
        let (profile_id, own) = match &graph.node(node).kind {
            NodeKind::Llm(llm) => (llm.profile_id.clone(), llm.parameters.clone()),
            NodeKind::Context(ContextNode::Compress(config)) => {
                let named = config.parameters.get("profileId").and_then(Value::as_str);
                (Some(Arc::from(named.unwrap_or("extractive"))), None)
            }
            _ => (None, None),
        };
        let chosen = choice.cloned().unwrap_or_default();
        Self {
            profile_id: chosen.profile_id.or(profile_id),
            parameters: match goes_on {
                Some(goes_on) => goes_on.parameters.clone(),
                None => chosen.parameters.or(own),
            },
        }
    }
}

/// Tool choice of a model call, over the parameters of its profile and node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolChoice {
    /// The configured choice, or the provider's default.
    AsConfigured,
    /// No choice is sent.
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
        if self == Self::AsConfigured {
            return;
        }
        parameters.remove("tool_choice");
        parameters.remove("toolChoice");
        if self == Self::Forbidden {
            parameters.insert("toolChoice".to_owned(), Value::from("none"));
        }
    }
}

/// The request for a summary where it is the one that the conversation's model would get next, with an instruction after it: it is
/// sent as that model's requests are, so that the provider's cache serves what they have in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GoesOn {
    /// The thread whose requests these are.
    pub thread_id: Arc<str>,
    /// The tools that they offer.
    pub tools: Vec<Arc<str>>,
    /// Laid over the profile's parameters.
    pub parameters: Option<Arc<Map<String, Value>>>,
    /// The request with a transcript, for a model that does not take so much.
    pub transcript: Arc<ModelRequest>,
}

/// Everything that an LLM node evaluates where it is more than texts: the object that answers [`Evaluation::Prompt`].
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Computed {
    pub(super) prompt: Option<String>,
    pub(super) system: Option<String>,
    pub(super) profile: Option<String>,
    pub(super) parameters: Option<Arc<Value>>,
    /// For each piece of the message that is computed.
    pub(super) parts: Vec<Arc<Value>>,
}

/// The world at a step: chance, and who listens. No thread asks what time it is: it asks for timers.
#[derive(Clone, Copy, Debug)]
pub struct Environment {
    /// A fresh random number, for jitter.
    pub random: u64,
    /// Event types somebody listens to; others are not built.
    pub interest: EventMask,
    /// Event types a trigger with `waitForCompletion` watches: after raising one, the thread asks at its next
    /// safe point whether it is held.
    pub holding: EventMask,
    /// The run has global variables, which bare names mean before anything else.
    pub has_globals: bool,
}

/// Why a thread is stopped from outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum CancelReason {
    /// Someone asked for it.
    Requested {
        /// Their words.
        reason: String,
    },
    /// Its JOIN was decided without it.
    JoinDecided,
    /// The thread that started it ended.
    ParentEnded,
    /// Its time limit passed: it ends TIMEOUT.
    TimedOut {
        /// The limit, milliseconds.
        after_ms: Millis,
    },
    /// The engine shuts down.
    Shutdown,
}

impl CancelReason {
    /// For people; a join that has a thousand losers says it as often.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Requested { reason } => reason.into(),
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
    /// Take the first step.
    Start,
    /// The answer to an effect.
    Answer {
        /// Which.
        effect: EffectId,
        /// The outcome.
        outcome: Outcome,
    },
    /// Stop.
    Cancel {
        /// Why.
        reason: CancelReason,
        /// Triggers between the run's own steps and this.
        trigger_depth: u32,
    },
    /// The thing that it lives on is gone: it ends FAILED.
    Fail(RunError),
    /// Stop at the next safe point until resumed.
    Pause {
        /// Triggers between the run's own steps and this.
        trigger_depth: u32,
    },
    /// Go on.
    Resume {
        /// Triggers between the run's own steps and this.
        trigger_depth: u32,
    },
    /// Somebody else raised an event in the thread's name that may hold it: it asks at its next safe point.
    Raised,
    /// A triggered sub-workflow has ended; its result takes effect at the next safe point.
    Triggered {
        /// Which firing.
        firing: FiringId,
        /// The result that it hands back.
        result: TriggeredResult,
    },
    /// A trigger assigns a variable of this thread: at its next safe point, or its end.
    Assign {
        /// The trigger.
        trigger_id: Arc<str>,
        /// Its name.
        name: Arc<str>,
        /// Its value.
        value: Arc<Value>,
        /// Triggers between the run's own steps and this assignment.
        trigger_depth: u32,
    },
}

/// The result of a triggered sub-workflow for its main thread. All or nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TriggeredResult {
    /// Variables of the thread to assign.
    pub variables: Vec<(Arc<str>, Arc<Value>)>,
    /// True if the shell has a change of the conversation, or of global variables, for this firing to apply.
    pub conversation: bool,
    /// True if the firing holds the thread: it may end before the thread learns that it is held.
    pub holds: bool,
    /// True if a token event set it off: it takes effect before the next model call, also inside a node.
    pub is_compression: bool,
    /// Triggers between the run's own steps and what it changes.
    pub trigger_depth: u32,
    /// True if what held the thread had begun before its limit was reached: the limit is looked at anew.
    #[serde(default)]
    pub checks_limit: bool,
}

/// The texts that a node evaluates: they are in the graph, the values in the thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Evaluation {
    /// Which edge out of the node holds: [`Outcome::Choice`].
    Edges,
    /// Which route holds: [`Outcome::Choice`].
    Routes,
    /// An expression: [`Outcome::Value`].
    Value(SnippetIx),
    /// The node's `input`: [`Outcome::Value`].
    Input,
    /// The LLM node's prompt and system texts: [`Outcome::Texts`], the prompt first.
    Prompt,
    /// The CONTEXT_PROCESSOR's texts, or a question and whom it is for: [`Outcome::Texts`].
    Texts,
    /// The value of a `pin`: [`Outcome::Value`].
    Pin,
    /// One value of several for each of these variables: [`Outcome::Value`], a list in their order.
    Folds(Arc<Vec<Fold>>),
}

/// The values that several paths gave a variable whose reducer is an expression.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fold {
    /// The variable.
    pub name: Arc<str>,
    /// The expression over `a` and `b`.
    pub expression: SnippetIx,
    /// In path order.
    pub values: Vec<Arc<Value>>,
}

/// A request to the thread's conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ConversationOp {
    /// Add messages: [`Outcome::Done`].
    Append(Vec<Message>),
    /// A CONTEXT_PROCESSOR operation: [`Outcome::Done`] or an error.
    Apply(ContextChange),
    /// A built-in compression: [`Outcome::Done`], or [`Outcome::Summarize`] where a model must write the summary.
    Compress(CompressionConfig),
    /// The model's summary for the plan that [`Outcome::Summarize`] pending: [`Outcome::Done`].
    FinishSummary(String),
    /// Build the next model request: [`Outcome::Prepared`].
    Prepare {
        /// The kind of agent, for its rules.
        agent: AgentKind,
        /// System text where the history has none.
        system: Option<String>,
        /// The node, for its tools and profile.
        node: NodeIx,
        /// Its profile, where that was evaluated.
        choice: Option<Arc<ModelChoice>>,
        /// The limit was announced for this call already: crossing it is not said again.
        recheck: bool,
    },
    /// Take in what a firing pending: [`Outcome::Done`], or an error and no change.
    Merge(FiringId),
    /// Answer a call of a built-in tool: [`Outcome::Tool`].
    BuiltIn(BuiltInTool, Box<ToolCall>),
}

/// A CONTEXT_PROCESSOR operation with its texts rendered; the conversation counts its messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ContextChange {
    /// Adds messages.
    Insert {
        /// The messages.
        messages: Vec<Message>,
        /// Index among the visible; negative from the end.
        position: i64,
    },
    /// Puts messages in the place of others.
    Replace {
        /// The messages that go; absent: all.
        target: Option<ConversationHistoryOptions>,
        /// The messages that come.
        messages: Vec<Message>,
    },
    /// Keeps or removes from an end.
    Truncate(TruncateContext),
    /// Removes all.
    Clear {
        /// But not system messages.
        keep_system: bool,
    },
    /// Keeps what matches.
    Filter(FilterContext),
}

/// The reason that a thread wants to wake up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimerPurpose {
    /// A WAIT node's own time.
    Wait,
    /// The pause before another attempt.
    Retry,
    /// The end of a node's time limit.
    Limit,
}

/// An effect that a thread asks for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Effect {
    /// Evaluate texts of `node`: in place, or where that may take long on a thread of scripts.
    Evaluate {
        /// Answer here.
        id: EffectId,
        /// The node.
        node: NodeIx,
        /// Which.
        what: Evaluation,
    },
    /// Call a registered function: [`Outcome::Value`] or an error.
    Function {
        /// Answer here.
        id: EffectId,
        /// The effect of the node's first attempt at this call: the call's idempotency key.
        key: EffectId,
        /// The CODE node.
        node: NodeIx,
        /// The node's input, made when the function looks.
        input: Output,
    },
    /// Run a script: [`Outcome::Value`] or an error.
    Script {
        /// Answer here.
        id: EffectId,
        /// The effect of the node's first attempt at this call: the call's idempotency key.
        key: EffectId,
        /// The CODE node.
        node: NodeIx,
        /// The node's input.
        input: Arc<Value>,
    },
    /// Ask the conversation.
    Conversation {
        /// Answer here; 0: no answer wanted.
        id: EffectId,
        /// The operation.
        op: ConversationOp,
    },
    /// Call a model: [`Outcome::Reply`] or an error.
    Model {
        /// Answer here.
        id: EffectId,
        /// The effect of the node's first attempt at this call: the call's idempotency key.
        key: EffectId,
        /// The LLM node (or the CONTEXT_PROCESSOR that summarizes).
        node: NodeIx,
        /// The request.
        request: Arc<PreparedRequest>,
        /// True if the model may ask for tools.
        offers_tools: bool,
        /// The profile and the parameters, where they were evaluated.
        choice: Option<Arc<ModelChoice>>,
        /// The request goes on from one that the model got before.
        #[serde(default)]
        goes_on: Option<Arc<GoesOn>>,
    },
    /// Call a tool: [`Outcome::Tool`], or [`Outcome::NeedsConsent`] where nothing was done.
    Tool {
        /// Answer here.
        id: EffectId,
        /// The effect of the node's first attempt at this call: the call's idempotency key.
        key: EffectId,
        /// The LLM or TOOL node.
        node: NodeIx,
        /// The call.
        call: ToolCall,
        /// A person has allowed it.
        #[serde(default)]
        is_consented: bool,
    },
    /// Start the paths of a fork and join them: [`Outcome::Joined`] or an error.
    Fork {
        /// Answer here.
        id: EffectId,
        /// Which.
        fork: ForkIx,
    },
    /// Run another workflow for each item of a list, and join them: [`Outcome::Joined`] or an error.
    Map {
        /// Answer here.
        id: EffectId,
        /// The MAP node.
        node: NodeIx,
        /// A list: the input of each thread.
        inputs: Arc<Value>,
    },
    /// Run another workflow: [`Outcome::Child`] or an error.
    Child {
        /// Answer here.
        id: EffectId,
        /// The SUBGRAPH node.
        node: NodeIx,
        /// The child's input.
        input: Arc<Value>,
        /// The origin of its conversation.
        conversation: ConversationMode,
    },
    /// Wake up later: [`Outcome::Elapsed`].
    Timer {
        /// Answer here.
        id: EffectId,
        /// The node that waits.
        node: NodeIx,
        /// When, from now.
        after_ms: Millis,
        /// Its purpose.
        purpose: TimerPurpose,
    },
    /// Wait for an event: [`Outcome::Event`].
    WaitEvent {
        /// Answer here.
        id: EffectId,
        /// The node that waits.
        node: NodeIx,
        /// Name of a CUSTOM event, or an event type's word.
        event: Arc<str>,
        /// The CUSTOM events that the thread has taken before: it takes none of them again.
        taken: TakenEvents,
    },
    /// Wait for a person's answer: [`Outcome::Answered`]. The question is among what [`ThreadMachine::interactions`] gives
    /// meanwhile.
    ///
    /// [`ThreadMachine::interactions`]: super::ThreadMachine::interactions
    Ask {
        /// Answer here.
        id: EffectId,
        /// The node that asks.
        node: NodeIx,
    },
    /// Assign a variable of the run: [`Outcome::Value`], the value as its type has it, or an error.
    SetGlobal {
        /// Answer here.
        id: EffectId,
        /// Its name.
        name: Arc<str>,
        /// Its value.
        value: Arc<Value>,
        /// True if it is the last assignment.
        readonly: bool,
        /// True if it is handed on to the next run of the session.
        is_of_session: bool,
    },
    /// Set a section of the pinned context: [`Outcome::Done`] or an error.
    Pin {
        /// Answer here.
        id: EffectId,
        /// Which.
        section: PinSection,
        /// Its value; null removes it.
        value: Arc<Value>,
    },
    /// Tell who listens.
    Emit(RaisedEvent),
    /// Tell who listens, and answer when every trigger has been matched: [`Outcome::HeldByFiring`].
    RaiseAndAwaitTriggers {
        /// Answer here.
        id: EffectId,
        /// The event; absent: only ask about those told before.
        event: Option<RaisedEvent>,
    },
    /// A firing's result has been applied, or could not be.
    Applied {
        /// Which.
        firing: FiringId,
        /// Why not.
        error: Option<RunError>,
    },
    /// Stop work on an effect; its answer is no longer wanted.
    Drop {
        /// Which.
        id: EffectId,
    },
    /// The thread has ended. Nothing follows.
    Ended(ThreadEnd),
}

/// The outcome of an effect.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Outcome {
    /// It was done.
    Done,
    /// A value.
    Value(Arc<Value>),
    /// A script's end, where it said something before.
    Logged(Box<LoggedOutcome>),
    /// Which of several holds.
    Choice(Option<u32>),
    /// Rendered texts, absent ones absent.
    Texts(Vec<Option<String>>),
    /// The next model request.
    Prepared(Prepared),
    /// A model's reply.
    Reply(Box<ModelReply>),
    /// A tool's result; a failed tool answers the model, not the thread.
    Tool(ToolResult),
    /// A tool's call was not made: a person is asked first.
    NeedsConsent(Box<ConsentRequest>),
    /// A summary is to be written from this request, which may go on from one that the model got before.
    Summarize(Arc<ModelRequest>, Option<Arc<GoesOn>>),
    /// A fork was joined.
    Joined(Joined),
    /// A called workflow ended well.
    Child {
        /// Its output.
        output: Arc<Value>,
    },
    /// A timer's time has come.
    Elapsed,
    /// The event waited for.
    Event {
        /// Its sequence.
        sequence: u64,
        /// As JSON.
        event: Output,
    },
    /// A person has answered.
    Answered(PersonsAnswer),
    /// Every trigger has been matched; these firings hold the thread until they end.
    HeldByFiring(Vec<FiringId>),
    /// It failed.
    Failed(RunError),
}

/// The lines that a script wrote with `console`, and how it ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScriptLogs {
    /// The first lines, each with its level: `log`, `info`, `warn`, `error`, `debug`.
    pub lines: Vec<(Arc<str>, String)>,
    /// Lines that were not kept.
    pub dropped: u64,
}

/// The outcome of a script that wrote something.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoggedOutcome {
    /// Its logs.
    pub logs: ScriptLogs,
    /// [`Outcome::Value`] or [`Outcome::Failed`].
    pub outcome: Outcome,
}

impl Outcome {
    /// The outcome, with what was written before it.
    #[must_use]
    pub fn after(self, logs: ScriptLogs) -> Self {
        if logs == ScriptLogs::default() {
            return self;
        }
        Self::Logged(Box::new(LoggedOutcome { logs, outcome: self }))
    }
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PersonsAnswer {
    /// As it was given.
    pub answer: Arc<Value>,
    /// The person who gave it, where that is known.
    pub by: Option<Arc<str>>,
    /// When, by the clock that events have.
    pub at: Millis,
}

/// A model request, and what the token limit says of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Prepared {
    /// The request.
    pub request: Arc<PreparedRequest>,
    /// Events of the conversation (TOKEN_LIMIT_EXCEEDED, TOKEN_LIMIT_APPROACHED, REQUEST_PREPARED, ...), in order. They were
    /// decided by the conversation; the thread raises them so that they stand in its order.
    pub events: Vec<RaisedEvent>,
}

/// A model's reply.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelReply {
    /// The text.
    #[serde(default)]
    pub content: String,
    /// Tools it asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// The tokens that the provider reported, over every attempt.
    #[serde(default)]
    pub usage: Spent,
    /// Why the reply ended. Where it asks for tools that is why, whatever stands here.
    #[serde(default)]
    pub finish_reason: FinishReason,
    /// The metadata of the message that it becomes: whatever the model wants to see again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
}

/// The result of a tool, for the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// Text for the model.
    pub content: String,
    /// Images and files for the model, after the text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub media: Vec<Part>,
    /// True if it is an error.
    pub failed: bool,
    /// The tokens of models that the tool asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent: Option<Box<Spent>>,
}

impl ToolResult {
    /// An error, with this text for the model.
    pub fn failed(content: impl Into<String>) -> Self {
        Self {
            content: content.into(),
            failed: true,
            ..Self::default()
        }
    }
}

/// The request for a person's consent to a tool's call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConsentRequest {
    /// The reason that a person is asked.
    pub reason: String,
    /// The arguments that the tool would be called with.
    pub arguments: Value,
    /// JSON Schema of the tool's arguments: others than those that were asked for are checked by it.
    pub schema: Value,
    /// Time that the call waits for the answer, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<Millis>,
}

/// A fork that was joined well. The conversation has been replaced already where it is to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Joined {
    /// JOIN's output.
    pub output: Output,
    /// Thread variables that come back.
    pub variables: Vec<(Arc<str>, Arc<Value>)>,
    /// Others that come back when their reducers have made them one value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub folds: Vec<Fold>,
}

/// The end of a thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadEnd {
    /// COMPLETED, FAILED, CANCELLED or TIMEOUT.
    pub status: ThreadStatus,
    /// Its output; null where it did not complete.
    pub output: Output,
    /// Why it did not complete.
    pub error: Option<RunError>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_call_that_may_use_no_tool_forbids_them_and_a_continued_request_sends_no_choice() {
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
