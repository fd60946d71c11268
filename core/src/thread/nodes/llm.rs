//! LLM: adds the prompt to the conversation, calls the model, and executes its tool calls until it replies without any.
//!
//! | stage | awaits | then |
//! |---|---|---|
//! | Texts | the rendered prompt and system message | Prompting, or Preparing if there is no prompt |
//! | Prompting | the conversation to add the prompt | Preparing |
//! | Preparing | the next request | Calling, or Announcing if it exceeds the token limit |
//! | Announcing | the triggers that hold the thread | Preparing, or Held |
//! | Held | the firings that hold it | Merging, Preparing |
//! | Merging | the conversation to apply a firing's result | Held, Preparing |
//! | Calling | the model | Replying |
//! | Replying | the conversation to add the reply | done, Tools, or Closing after the last round |
//! | Tools | all tool results, and people's approval of the calls that need it | Answering |
//! | Answering | the conversation to add the results | Preparing |
//! | Closing | the conversation to add the refusals of further calls | failed, or Preparing the final reply without tools |
//!
//! If the node is left early, each unanswered tool call in the conversation gets a result that states the cancel. Providers reject
//! a history with unanswered calls.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::consent::{Consent, Consented};
use super::question::Interaction;
use super::{NodeRun, Progress, asking, evaluate, failure};
use crate::conversation::{AgentKind, Spent, first_prompt};
use crate::definition::{BuiltInTool, ToolRoundLimit};
use crate::error::{RunError, RunErrorCode};
use crate::event::EventType;
use crate::graph::{LlmNode, NodeKind};
use crate::message::{Message, Part, Role, ToolCall};
use crate::model_call::{FinishReason, ModelFailure};
use crate::thread::ThreadMachine;
use crate::thread::effect::{
    ConversationOp, Effect, EffectId, Evaluation, ModelChoice, ModelReply, Outcome, Prepared, ToolResult,
};
use crate::thread::safe_point::{PendingMerge, When};
use crate::thread::step::StepContext;

/// State of an LLM node.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::thread) struct Stage {
    at: At,
    /// System message, used if the history has none.
    system: Option<String>,
    /// Evaluated profile and parameters, if the node computes them.
    #[serde(default)]
    choice: Option<Arc<ModelChoice>>,
    /// Number of rounds of tool calls.
    rounds: u32,
    /// Usage in this node, as reported by the provider.
    usage: Spent,
    /// True if TOKEN_LIMIT_EXCEEDED was raised for the next call: it is raised once per call.
    announced: bool,
    /// True after the last round of tool calls: the model must reply without tools.
    #[serde(default)]
    is_last_word: bool,
}

#[derive(Debug, Serialize, Deserialize)]
enum At {
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
        merge: PendingMerge,
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
        calls: Vec<Running>,
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
struct Running {
    id: EffectId,
    /// Effect id that names the idempotency key.
    key: EffectId,
    call: ToolCall,
    /// Tool message with the result.
    result: Option<Message>,
    /// State of the approval, if the tool needs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    consent: Option<Box<Consent>>,
}

impl Running {
    /// Returns true if the call waits for this effect.
    fn awaits(&self, effect: EffectId) -> bool {
        match &self.consent {
            Some(consent) => consent.awaits(effect),
            None => self.result.is_none() && self.id == effect,
        }
    }
}

impl Stage {
    /// Returns true if work for a safe point takes effect now.
    pub(in crate::thread) fn is_safe_point(&self) -> bool {
        matches!(self.at, At::Held)
    }

    /// Allows TOKEN_LIMIT_EXCEEDED to be raised again if the next call still exceeds the limit.
    pub(in crate::thread) fn check_limit(&mut self) {
        self.announced = false;
    }

    /// Returns true while the conversation applies a firing's result.
    pub(in crate::thread) fn is_merging(&self) -> bool {
        matches!(self.at, At::Merging { .. })
    }

    /// Returns the open questions, each with the effect that awaits its answer.
    pub(super) fn interactions(&self, thread: &ThreadMachine) -> Vec<(EffectId, Interaction)> {
        let At::Tools { calls, .. } = &self.at else {
            return Vec::new();
        };
        let consents = calls.iter().filter_map(|running| running.consent.as_ref());
        consents.filter_map(|consent| consent.interaction(thread)).collect()
    }

    fn wait(self) -> Progress {
        Progress::Wait(NodeRun::Llm(Box::new(self)))
    }

    fn to(self, at: At) -> Progress {
        Self { at, ..self }.wait()
    }
}

pub(super) fn enter(walk: &mut StepContext<'_>, node: &LlmNode) -> Progress {
    let stage = Stage {
        at: At::Held,
        system: None,
        choice: None,
        rounds: 0,
        usage: Spent::default(),
        announced: false,
        is_last_word: false,
    };
    if node.prompt.is_none() && node.system.is_none() && !node.is_computed() {
        return if node.parts.is_empty() {
            prepare(walk, stage)
        } else {
            speak(walk, stage, None, Vec::new())
        };
    }
    let id = evaluate(walk, Evaluation::Prompt);
    stage.to(At::Texts { id })
}

pub(super) fn answer(walk: &mut StepContext<'_>, stage: Stage, effect: EffectId, outcome: Outcome) -> Progress {
    let mut stage = stage;
    match std::mem::replace(&mut stage.at, At::Held) {
        At::Texts { id } if id == effect => match outcome {
            Outcome::Texts(texts) => {
                let mut texts = texts.into_iter();
                let prompt = texts.next().flatten();
                stage.system = texts.next().flatten();
                speak(walk, stage, prompt, Vec::new())
            }
            Outcome::Value(computed) => match asking::read(&computed) {
                Ok(computed) => {
                    stage.system = computed.system;
                    stage.choice = Some(Arc::new(computed.choice));
                    speak(walk, stage, computed.prompt, computed.parts)
                }
                Err(error) => Progress::Failed(error),
            },
            other => Progress::Failed(failure(other)),
        },
        At::Prompting { id } | At::Answering { id } if id == effect => match outcome {
            Outcome::Done => prepare(walk, stage),
            other => Progress::Failed(failure(other)),
        },
        At::Preparing { id } if id == effect => match outcome {
            Outcome::Prepared(prepared) => call(walk, stage, prepared),
            other => Progress::Failed(failure(other)),
        },
        At::Announcing { id } if id == effect => {
            if let Outcome::HeldByFiring(firings) = outcome {
                walk.hold(firings);
            }
            prepare(walk, stage)
        }
        At::Merging { id, merge } if id == effect => {
            walk.merged(&merge, outcome);
            walk.unless_stopped(|walk| prepare(walk, stage))
        }
        At::Calling { id } if id == effect => match outcome {
            Outcome::Reply(reply) => replied(walk, stage, *reply),
            other => Progress::Failed(call_error(walk, other)),
        },
        At::Replying {
            id,
            content,
            calls,
            finish,
        } if id == effect => match outcome {
            Outcome::Done => after_reply(walk, stage, &content, calls, finish),
            other => Progress::Failed(failure(other)),
        },
        At::Tools { calls, answered } => tool_answer(walk, stage, (calls, answered), effect, outcome),
        At::Closing { id } if id == effect => match outcome {
            Outcome::Done => after_last_round(walk, stage),
            other => Progress::Failed(failure(other)),
        },
        unawaited => stage.to(unawaited),
    }
}

/// Applies work that arrived while the node is held before its model call.
pub(in crate::thread) fn safe_point(walk: &mut StepContext<'_>) -> Option<Progress> {
    match std::mem::take(&mut walk.thread.run) {
        NodeRun::Llm(stage) => Some(prepare(walk, *stage)),
        other => {
            walk.thread.run = other;
            None
        }
    }
}

/// Cancels the node and answers its open tool calls in the conversation.
pub(super) fn abandon(walk: &mut StepContext<'_>, stage: Stage) {
    const CANCELLED: &str = "The tool call was cancelled before it had a result.";
    match stage.at {
        At::Held | At::Answering { .. } | At::Closing { .. } => {}
        At::Texts { id } | At::Prompting { id } | At::Preparing { id } | At::Announcing { id } | At::Calling { id } => {
            walk.out.push(Effect::Drop { id });
        }
        At::Merging { id, merge } => NodeRun::Merging { id, merge }.abandon(walk),
        At::Replying { calls, .. } => {
            let results = calls
                .into_iter()
                .map(|call| Message::tool_result(call.id, CANCELLED))
                .collect();
            append_unasked(walk, results);
        }
        At::Tools { calls, answered: _ } => {
            let mut results = Vec::with_capacity(calls.len());
            for running in calls {
                if running.result.is_none() {
                    let cut_off = walk.thread.cut_off.get_or_insert_default();
                    cut_off.calls.push((running.key, running.call.clone()));
                }
                match &running.consent {
                    Some(consent) => consent.abandon(walk),
                    None if running.result.is_none() => walk.out.push(Effect::Drop { id: running.id }),
                    None => {}
                }
                let cancelled = || Message::tool_result(running.call.id, CANCELLED);
                results.push(running.result.unwrap_or_else(cancelled));
            }
            append_unasked(walk, results);
        }
    }
}

fn append_unasked(walk: &mut StepContext<'_>, messages: Vec<Message>) {
    if !messages.is_empty() {
        walk.converse(0, ConversationOp::Append(messages));
    }
}

/// Adds the prompt and its parts to the conversation, once for all attempts at the node.
fn speak(walk: &mut StepContext<'_>, stage: Stage, prompt: Option<String>, computed: Vec<Vec<Part>>) -> Progress {
    let parts = match &walk.thread.graph().node(walk.thread.at).kind {
        NodeKind::Llm(node) => asking::parts(node, computed),
        _ => Vec::new(),
    };
    if walk.thread.prompted || (prompt.is_none() && parts.is_empty()) {
        return prepare(walk, stage);
    }
    walk.thread.prompted = true;
    let text = match walk.thread.agent.as_deref().filter(|_| walk.thread.first_prompt) {
        Some(agent) => match first_prompt(&prompt.unwrap_or_default(), agent) {
            Ok(text) => Some(text),
            Err(error) => return Progress::Failed(error.into()),
        },
        None => prompt,
    };
    walk.thread.first_prompt = false;
    let message = match text {
        Some(text) if parts.is_empty() => Message::new(Role::User, text),
        text => {
            let text = text.filter(|text| !text.is_empty()).map(Part::text);
            Message::of_parts(Role::User, text.into_iter().chain(parts).collect::<Vec<_>>())
        }
    };
    let id = append(walk, vec![message]);
    stage.to(At::Prompting { id })
}

fn append(walk: &mut StepContext<'_>, messages: Vec<Message>) -> EffectId {
    let id = walk.next_effect();
    walk.converse(id, ConversationOp::Append(messages));
    id
}

/// Applies pending compressions, then requests the next model request unless a firing holds the thread.
fn prepare(walk: &mut StepContext<'_>, stage: Stage) -> Progress {
    if let Some((id, merge)) = walk.apply_arrived(When::BeforeModelCall) {
        return stage.to(At::Merging { id, merge });
    }
    if walk.is_held() {
        return stage.to(At::Held);
    }
    let id = walk.next_effect();
    let agent = if walk.thread.agent.is_some() {
        AgentKind::Sub
    } else {
        AgentKind::Main
    };
    let node = walk.thread.at;
    let op = ConversationOp::Prepare {
        agent,
        system: stage.system.clone(),
        node,
        choice: stage.choice.clone(),
        recheck: stage.announced,
    };
    walk.converse(id, op);
    stage.to(At::Preparing { id })
}

fn call(walk: &mut StepContext<'_>, mut stage: Stage, prepared: Prepared) -> Progress {
    let mut crossed = None;
    for event in prepared.events {
        if event.event_type == EventType::TokenLimitExceeded && walk.listens(EventType::TokenLimitExceeded) {
            crossed = Some(event);
        } else {
            walk.emit_raised(event);
        }
    }
    if let Some(event) = crossed {
        stage.announced = true;
        let id = walk.next_effect();
        let event = event.at_depth(walk.thread.trigger_depth);
        walk.out.push(Effect::RaiseAndAwaitTriggers { id, event: Some(event) });
        return stage.to(At::Announcing { id });
    }
    stage.announced = false;
    walk.may_be_held_by(&[EventType::LlmToken]);
    let (id, key) = walk.next_call();
    let node = walk.thread.at;
    walk.out.push(Effect::Model {
        id,
        key,
        node,
        request: prepared.request,
        offers_tools: !stage.is_last_word,
        choice: stage.choice.clone(),
        goes_on: None,
    });
    stage.to(At::Calling { id })
}

fn replied(walk: &mut StepContext<'_>, mut stage: Stage, reply: ModelReply) -> Progress {
    // The next call has a new body, and must not reuse the idempotency key.
    walk.thread.first_call = None;
    walk.spend(reply.usage);
    stage.usage.add(reply.usage);
    let message = Message {
        tool_calls: reply.tool_calls.clone(),
        metadata: reply.metadata,
        ..Message::new(Role::Assistant, reply.content.clone())
    };
    let id = append(walk, vec![message]);
    stage.to(At::Replying {
        id,
        content: reply.content,
        calls: reply.tool_calls,
        finish: reply.finish_reason,
    })
}

/// Returns the error of a failed model call, after counting its usage.
pub(super) fn call_error(walk: &mut StepContext<'_>, outcome: Outcome) -> RunError {
    let error = failure(outcome);
    walk.spend(ModelFailure::of(&error).spent);
    error
}

fn after_reply(
    walk: &mut StepContext<'_>,
    mut stage: Stage,
    content: &str,
    calls: Vec<ToolCall>,
    finish: FinishReason,
) -> Progress {
    if calls.is_empty() {
        return done(walk, &stage, content, finish);
    }
    let limit = tool_rounds(walk).0;
    if stage.is_last_word || stage.rounds >= limit {
        let said = format!("The tool was not called: the limit of {limit} tool rounds is reached.");
        let results = calls
            .into_iter()
            .map(|call| Message::tool_result(call.id, said.clone()))
            .collect();
        let id = append(walk, results);
        return stage.to(At::Closing { id });
    }
    stage.rounds += 1;
    let running = calls.into_iter().map(|call| start_tool(walk, call)).collect();
    stage.to(At::Tools {
        calls: running,
        answered: 0,
    })
}

/// Handles tool calls after the last round: a final reply without tools, or TOOL_ROUNDS_EXCEEDED.
fn after_last_round(walk: &mut StepContext<'_>, mut stage: Stage) -> Progress {
    let (limit, on_limit) = tool_rounds(walk);
    if on_limit == ToolRoundLimit::Answer && !stage.is_last_word {
        stage.is_last_word = true;
        return prepare(walk, stage);
    }
    let message = format!("the model still requests tools after {limit} rounds of tool calls (`maxToolRounds`)");
    let error = RunError::new(RunErrorCode::ToolRoundsExceeded, message);
    Progress::Failed(error.with_details(json!({ "maxToolRounds": limit, "usage": stage.usage })))
}

fn tool_rounds(walk: &StepContext<'_>) -> (u32, ToolRoundLimit) {
    match &walk.thread.graph().node(walk.thread.at).kind {
        NodeKind::Llm(node) => (node.max_tool_rounds, node.on_limit),
        _ => (0, ToolRoundLimit::Fail),
    }
}

fn start_tool(walk: &mut StepContext<'_>, call: ToolCall) -> Running {
    let id = walk.next_effect();
    let key = key_of_tool_call(walk, &call).unwrap_or(id);
    walk.emit(EventType::ToolCallStarted, |thread| {
        [
            ("nodeId", json!(thread.graph().node(thread.at).id)),
            ("toolCallId", json!(call.id)),
            ("name", json!(call.name)),
            ("arguments", call.arguments.clone()),
        ]
    });
    let node = walk.thread.at;
    match built_in(walk, &call.name) {
        Some(tool) => walk.converse(id, ConversationOp::BuiltIn(tool, Box::new(call.clone()))),
        None => walk.out.push(Effect::Tool {
            id,
            key,
            node,
            call: call.clone(),
            is_consented: false,
        }),
    }
    Running {
        id,
        key,
        call,
        result: None,
        consent: None,
    }
}

/// Returns the idempotency key of an equal call that an earlier attempt left without a result. Calls are compared by name and
/// arguments, because the model gives each call a new id.
fn key_of_tool_call(walk: &mut StepContext<'_>, call: &ToolCall) -> Option<EffectId> {
    let cut_off = walk.thread.cut_off.as_deref_mut()?;
    let place = cut_off
        .calls
        .iter()
        .position(|(_, before)| before.name == call.name && before.arguments == call.arguments)?;
    Some(cut_off.calls.remove(place).0)
}

/// Returns the built-in tool of this name if the node lists it.
fn built_in(walk: &StepContext<'_>, name: &str) -> Option<BuiltInTool> {
    let NodeKind::Llm(node) = &walk.thread.graph().node(walk.thread.at).kind else {
        return None;
    };
    BuiltInTool::of_name(name).filter(|_| node.tools.iter().any(|offered| **offered == *name))
}

fn tool_answer(
    walk: &mut StepContext<'_>,
    stage: Stage,
    (mut calls, mut answered): (Vec<Running>, usize),
    effect: EffectId,
    outcome: Outcome,
) -> Progress {
    let place = calls.binary_search_by_key(&effect, |running| running.id).ok();
    // Approvals have separate effect ids. They are rare, so that a linear search is enough.
    let place = place.or_else(|| calls.iter().position(|running| running.awaits(effect)));
    let running = place.and_then(|place| calls.get_mut(place));
    if let Some(running) = running.filter(|running| running.awaits(effect)) {
        let (result, edited) = match (running.consent.take(), outcome) {
            (Some(consent), outcome) => match consent.answer(walk, running.key, effect, outcome) {
                Consented::Waits(consent) => {
                    running.consent = Some(Box::new(consent));
                    return stage.to(At::Tools { calls, answered });
                }
                Consented::Ended(result, edited) => (result, edited),
            },
            (None, Outcome::NeedsConsent(request)) => {
                let ToolCall { id, name, .. } = &running.call;
                let consent = Consent::ask(walk, name.clone(), id.clone(), *request);
                running.consent = Some(Box::new(consent));
                return stage.to(At::Tools { calls, answered });
            }
            (None, Outcome::Tool(result)) => (result, None),
            (None, other) => {
                let error = failure(other);
                (ToolResult::failed(error.to_string()), None)
            }
        };
        walk.spend(result.spent.as_deref().copied().unwrap_or_default());
        let event_type = if result.failed {
            EventType::ToolCallFailed
        } else {
            EventType::ToolCallCompleted
        };
        walk.emit(event_type, |thread| {
            [
                ("nodeId", json!(thread.graph().node(thread.at).id)),
                ("toolCallId", json!(running.call.id)),
                ("name", json!(running.call.name)),
                ("result", json!(result.content)),
            ]
        });
        running.result = Some(answered_by(told_of_edit(result, edited.as_ref()), &running.call));
    }
    // Results arrive in any order. This cursor avoids scanning all calls after each: n calls cost n steps in total.
    while calls.get(answered).is_some_and(|running| running.result.is_some()) {
        answered += 1;
    }
    if answered < calls.len() {
        return stage.to(At::Tools { calls, answered });
    }
    let results = calls.into_iter().filter_map(|running| running.result).collect();
    let id = append(walk, results);
    stage.to(At::Answering { id })
}

/// Tells the model that a person changed the arguments of its call.
fn told_of_edit(mut result: ToolResult, edited: Option<&Value>) -> ToolResult {
    if let Some(arguments) = edited {
        result.content = format!("(A person changed the arguments to {arguments}.)\n{}", result.content);
    }
    result
}

/// Converts a result to the tool message for a call.
fn answered_by(result: ToolResult, call: &ToolCall) -> Message {
    if result.media.is_empty() {
        return Message::tool_result(call.id.clone(), result.content);
    }
    let text = (!result.content.is_empty()).then_some(Part::Text { text: result.content });
    let parts: Vec<Part> = text.into_iter().chain(result.media).collect();
    Message {
        tool_call_id: Some(call.id.clone()),
        ..Message::of_parts(Role::Tool, parts)
    }
}

fn done(walk: &mut StepContext<'_>, stage: &Stage, content: &str, finish: FinishReason) -> Progress {
    if let Some(record) = walk.thread.history.last_mut() {
        record.finish_reason = Some(finish);
    }
    let output = json!({ "content": content, "usage": stage.usage, "finishReason": finish });
    Progress::Done(output.into())
}
