//! State of a node while the thread awaits an answer: one type for each node type with more than one awaited answer.
//!
//! Not here: functions that process the answers (`nodes/`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use imbl::Vector;
use pirn_conversation::conversation::TokenUsage;
use pirn_conversation::model_call::FinishReason;
use pirn_definition::Millis;
use pirn_definition::definition::PinSection;
use pirn_definition::message::{Message, ToolCall};
use pirn_definition::value::Output;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::effect::{EffectId, Joined, ModelChoice, OfferedTools, SummaryRequest};
use super::pending::PendingMerge;
use super::question::{Consent, OpenQuestion};
use super::script_state::{CallKind, ScriptInstance, SeenBudget};

/// The answer that the thread awaits.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::thread) enum NodeRun {
    /// The thread awaits no answer.
    #[default]
    Idle,
    /// Held or paused before a node.
    SafePoint,
    /// The node waits for the answer whether triggers hold the thread.
    AwaitingTriggers {
        id: EffectId,
    },
    /// The conversation to apply the result of a firing.
    Merging {
        id: EffectId,
        // Boxed: every waiting thread has the size of the largest state.
        merge: Box<PendingMerge>,
    },
    /// The conditions of the outgoing edges.
    Edges {
        id: EffectId,
    },
    /// The delay before the next attempt.
    RetryDelay {
        id: EffectId,
    },
    /// The output expression of END.
    End {
        id: EffectId,
    },
    Variable(VariableStage),
    /// State of an LLM node. Boxed because it is large and most threads wait for something else.
    Llm(Box<LlmStage>),
    Code(CodeStage),
    /// State of a SCRIPT node. Boxed because it is large.
    Script(Box<ScriptStage>),
    Route {
        id: EffectId,
    },
    Join {
        id: EffectId,
    },
    /// Reducers for the variables of a join. Boxed because few joins have any.
    Reducing(Box<JoinReduction>),
    Subgraph(SubgraphStage),
    Map(MapStage),
    Context(ContextStage),
    Tool(ToolStage),
    Interaction(InteractionStage),
    /// The items of a loop.
    LoopStart {
        id: EffectId,
    },
    /// The break condition of a loop.
    LoopEnd {
        id: EffectId,
    },
    Wait {
        id: EffectId,
    },
}

impl NodeRun {
    /// Returns true while the conversation applies a firing's result or a compression. The change is atomic and cannot be
    /// cancelled.
    pub(in crate::thread) fn is_merging(&self) -> bool {
        match self {
            // Every state is listed: a new atomic state that is missing here would be cancelled in the middle.
            Self::Merging { .. } => true,
            Self::Llm(stage) => stage.is_merging(),
            Self::Context(stage) => stage.is_compressing(),
            Self::Idle
            | Self::SafePoint
            | Self::AwaitingTriggers { .. }
            | Self::Edges { .. }
            | Self::RetryDelay { .. }
            | Self::End { .. }
            | Self::Variable(_)
            | Self::Code(_)
            | Self::Script(_)
            | Self::Route { .. }
            | Self::Join { .. }
            | Self::Reducing(_)
            | Self::Subgraph(_)
            | Self::Map(_)
            | Self::Tool(_)
            | Self::Interaction(_)
            | Self::LoopStart { .. }
            | Self::LoopEnd { .. }
            | Self::Wait { .. } => false,
        }
    }

    /// Returns the names of the deferred tools that the last request offered.
    pub(in crate::thread) fn revealed_tools(&self) -> &[Arc<str>] {
        match self {
            Self::Llm(stage) => stage.revealed_tools(),
            // No other node calls tools of a request.
            _ => &[],
        }
    }
}

/// VariableStage of the node, named after the answer that it awaits.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::thread) enum VariableStage {
    /// Value to assign.
    Value { id: EffectId },
    /// Assignment of a global variable by the run.
    Global { id: EffectId },
}

impl VariableStage {
    pub(in crate::thread) fn id(&self) -> EffectId {
        match self {
            Self::Value { id } | Self::Global { id } => *id,
        }
    }
}

/// State of an LLM node.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::thread) struct LlmStage {
    pub(in crate::thread) at: LlmPhase,
    /// System message, used if the history has none.
    pub(in crate::thread) system: Option<String>,
    /// Evaluated profile and parameters, if the node computes them.
    #[serde(default)]
    pub(in crate::thread) choice: Option<Arc<ModelChoice>>,
    /// Number of rounds of tool calls.
    pub(in crate::thread) rounds: u32,
    /// Usage in this node, as reported by the provider.
    pub(in crate::thread) usage: TokenUsage,
    /// True if TOKEN_LIMIT_EXCEEDED was raised for the next call: it is raised once per call.
    pub(in crate::thread) announced: bool,
    /// True after the last round of tool calls: the model must reply without tools.
    #[serde(default)]
    pub(in crate::thread) is_last_word: bool,
    /// Tools of the last request in addition to those of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::thread) offered: Option<Arc<OfferedTools>>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::thread) enum LlmPhase {
    Texts {
        id: EffectId,
    },
    Prompting {
        id: EffectId,
    },
    Preparing {
        id: EffectId,
    },
    Announcing {
        id: EffectId,
    },
    Held,
    Merging {
        id: EffectId,
        merge: Box<PendingMerge>,
    },
    Calling {
        id: EffectId,
    },
    Replying {
        id: EffectId,
        content: String,
        calls: Vec<ToolCall>,
        finish: FinishReason,
    },
    Tools {
        /// Calls by ascending effect id.
        calls: Vec<LlmCall>,
        /// Number of leading calls with a result.
        #[serde(default)]
        answered: usize,
    },
    Answering {
        id: EffectId,
    },
    Closing {
        id: EffectId,
    },
}

/// An active tool call.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::thread) struct LlmCall {
    pub(in crate::thread) id: EffectId,
    /// Effect id that names the idempotency key.
    pub(in crate::thread) key: EffectId,
    pub(in crate::thread) call: ToolCall,
    /// Tool message with the result.
    pub(in crate::thread) result: Option<Message>,
    /// State of the approval, if the tool needs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::thread) consent: Option<Box<Consent>>,
    /// True if it waits until fewer other calls are in progress.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::thread) is_queued: bool,
}

impl LlmCall {
    /// Returns true if the call waits for this effect.
    pub(in crate::thread) fn awaits(&self, effect: EffectId) -> bool {
        match &self.consent {
            Some(consent) => consent.awaits(effect),
            None => self.result.is_none() && self.id == effect,
        }
    }
}

impl LlmStage {
    /// Returns true if work for a safe point takes effect now.
    pub(in crate::thread) fn is_safe_point(&self) -> bool {
        matches!(self.at, LlmPhase::Held)
    }

    /// Returns the names of the deferred tools that the last request offered.
    pub(in crate::thread) fn revealed_tools(&self) -> &[Arc<str>] {
        self.offered.as_ref().map_or(&[], |offered| &offered.revealed)
    }

    /// Allows TOKEN_LIMIT_EXCEEDED to be raised again if the next call still exceeds the limit.
    pub(in crate::thread) fn check_limit(&mut self) {
        self.announced = false;
    }

    /// Returns true while the conversation applies a firing's result.
    pub(in crate::thread) fn is_merging(&self) -> bool {
        matches!(self.at, LlmPhase::Merging { .. })
    }
}

/// CodeStage of the node, named after the answer that it awaits.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::thread) enum CodeStage {
    /// Input of the node.
    Input { id: EffectId },
    /// Result of the function or script.
    Work { id: EffectId },
}

impl CodeStage {
    pub(in crate::thread) fn id(&self) -> EffectId {
        match self {
            Self::Input { id } | Self::Work { id } => *id,
        }
    }
}

/// Number of a call in its script, from 0.
pub(in crate::thread) type CallNo = u32;

/// State of the node.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::thread) struct ScriptStage {
    /// Evaluation of the input, or step in progress.
    pub(in crate::thread) id: Option<EffectId>,
    /// Arguments of the script; `None` until they are evaluated.
    pub(in crate::thread) args: Option<Arc<Value>>,
    /// Seed of the script's random numbers.
    pub(in crate::thread) seed: u64,
    /// Time of the first step.
    pub(in crate::thread) now: Option<Millis>,
    /// Number of log lines so far.
    pub(in crate::thread) notes: u64,
    /// Kind and digest of every call so far.
    pub(in crate::thread) calls: Vector<(CallKind, Arc<str>)>,
    /// Calls that wait for others to end.
    pub(in crate::thread) queue: VecDeque<(CallNo, Value)>,
    pub(in crate::thread) running: BTreeMap<CallNo, ScriptCall>,
    /// Results in the order of their arrival.
    pub(in crate::thread) results: Vector<Arc<Value>>,
    /// Number of results that the last step received.
    pub(in crate::thread) delivered: usize,
    /// Events among the results that the script may not have received.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::thread) taken: Vec<TakenEvent>,
    /// Bytes of the results.
    pub(in crate::thread) bytes: u64,
    /// Number of calls that cancel others.
    #[serde(default)]
    pub(in crate::thread) cancels: u32,
    /// Number of agents and workflows that were started.
    pub(in crate::thread) agents: u32,
    /// Token budget that the script has seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::thread) budget: Option<SeenBudget>,
    /// Log lines for the output of a script of `run_code`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(in crate::thread) log: String,
    /// Lets the evaluator cache the evaluated script between steps.
    #[serde(skip)]
    pub(in crate::thread) instance: ScriptInstance,
}

/// A CUSTOM event that a call has taken from the later waits of its thread.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::thread) struct TakenEvent {
    /// Index of the result.
    pub(in crate::thread) result: usize,
    pub(in crate::thread) call: CallNo,
    /// Name of the awaited events.
    pub(in crate::thread) word: Arc<str>,
    /// Sequence of the event.
    pub(in crate::thread) sequence: u64,
    /// Sequence of the event taken before, or 0.
    pub(in crate::thread) before: u64,
}

/// A call in progress.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::thread) struct ScriptCall {
    pub(in crate::thread) kind: CallKind,
    pub(in crate::thread) id: EffectId,
    pub(in crate::thread) work: ScriptWork,
}

/// State of a call, by its kind.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::thread) enum ScriptWork {
    /// A child thread. True if its output is the text of a JSON value.
    Child {
        is_json: bool,
    },
    Tool {
        name: String,
        consent: Option<Box<Consent>>,
    },
    Ask {
        open: OpenQuestion,
        question: Arc<str>,
        schema: Option<Arc<Map<String, Value>>>,
        timeout_ms: Option<Millis>,
    },
    Sleep,
    /// An event, with the timer of its time limit.
    Event {
        event: Arc<str>,
        timer: Option<EffectId>,
    },
}

impl ScriptCall {
    pub(in crate::thread) fn awaits(&self, effect: EffectId) -> bool {
        match &self.work {
            ScriptWork::Tool {
                consent: Some(consent), ..
            } => consent.awaits(effect),
            ScriptWork::Ask { open, .. } => open.awaits(effect),
            ScriptWork::Event { timer, .. } => self.id == effect || *timer == Some(effect),
            ScriptWork::Child { .. } | ScriptWork::Tool { consent: None, .. } | ScriptWork::Sleep => self.id == effect,
        }
    }
}

/// Result of a join, while the reducers of its variables are evaluated.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::thread) struct JoinReduction {
    pub(in crate::thread) id: EffectId,
    pub(in crate::thread) names: Vec<Arc<str>>,
    pub(in crate::thread) joined: Joined,
}

/// SubgraphStage of the node, named after the answer that it awaits.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::thread) enum SubgraphStage {
    /// Input of the child.
    Input { id: EffectId },
    /// Outcome of the child.
    Child { id: EffectId },
    /// Value of the output expression.
    Output {
        id: EffectId,
        /// The child's output, which is `output` in the expression.
        child: Output,
    },
}

impl SubgraphStage {
    pub(in crate::thread) fn id(&self) -> EffectId {
        match self {
            Self::Input { id } | Self::Child { id } | Self::Output { id, .. } => *id,
        }
    }

    /// Returns the child's output while the output expression is evaluated.
    pub(in crate::thread) fn child_output(&self) -> Option<&Output> {
        match self {
            Self::Output { child, .. } => Some(child),
            Self::Input { .. } | Self::Child { .. } => None,
        }
    }
}

/// Stage of the node, named after the answer that it awaits.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::thread) enum MapStage {
    /// Inputs of the threads.
    Inputs { id: EffectId },
    /// Decision of the join.
    Join { id: EffectId },
}

impl MapStage {
    pub(in crate::thread) fn id(&self) -> EffectId {
        match self {
            Self::Inputs { id } | Self::Join { id } => *id,
        }
    }
}

/// ContextStage of the node, named after the answer that it awaits.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::thread) enum ContextStage {
    /// Templates of the node.
    Texts { id: EffectId },
    /// Value to pin.
    Pin { id: EffectId, section: PinSection },
    /// Answer of the conversation, or of the run that sets the pinned section.
    Work { id: EffectId },
    /// End of a compression in the conversation, or of applying a summary. Atomic: it cannot be cancelled.
    Compressing { id: EffectId },
    /// Summary of a model, with a fallback request if the model rejects this one or continues the conversation instead.
    Summary {
        id: EffectId,
        // Boxed: every waiting thread has the size of the largest stage of any node.
        #[serde(default)]
        fallback: Option<Box<SummaryRequest>>,
    },
}

impl ContextStage {
    pub(in crate::thread) fn id(&self) -> EffectId {
        match self {
            Self::Texts { id }
            | Self::Pin { id, .. }
            | Self::Work { id }
            | Self::Compressing { id }
            | Self::Summary { id, .. } => *id,
        }
    }

    /// Returns true while the conversation compresses.
    pub(in crate::thread) fn is_compressing(&self) -> bool {
        matches!(self, Self::Compressing { .. })
    }
}

/// Stage of the node, named after the answer that it awaits.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::thread) enum ToolStage {
    /// Arguments of the call.
    Arguments { id: EffectId },
    /// Result of the tool.
    Call { id: EffectId },
    /// Approval by a person, or the result of the approved call.
    Consent(Box<CallUnderConsent>),
}

/// A call that needs a person's approval.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::thread) struct CallUnderConsent {
    /// Effect whose number identifies the call.
    pub(in crate::thread) id: EffectId,
    pub(in crate::thread) consent: Consent,
}

impl ToolStage {
    pub(in crate::thread) fn awaits(&self, effect: EffectId) -> bool {
        match self {
            Self::Arguments { id } | Self::Call { id } => *id == effect,
            // A call under consent has several effects: the question, its timer, then the approved call.
            Self::Consent(under) => under.consent.awaits(effect),
        }
    }
}

/// Stage of the node, named after the answer that it awaits.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::thread) enum InteractionStage {
    /// Templates of the question.
    Texts { id: EffectId },
    /// Answer of a person.
    Asked(Box<AskedQuestion>),
}

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::thread) struct AskedQuestion {
    pub(in crate::thread) id: EffectId,
    pub(in crate::thread) timer: Option<EffectId>,
    pub(in crate::thread) question: Arc<str>,
    pub(in crate::thread) assignee: Option<Arc<str>>,
}

impl AskedQuestion {
    pub(in crate::thread) fn open(&self) -> OpenQuestion {
        OpenQuestion {
            id: self.id,
            timer: self.timer,
        }
    }
}
