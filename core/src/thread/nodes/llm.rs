//! LLM: adds the prompt to the conversation, calls the model, and executes its tool calls until it replies without any.
//!
//! | stage | awaits | then |
//! |---|---|---|
//! | Texts | the rendered prompt and system message | Prompting, or Preparing if there is no prompt |
//! | Prompting | the conversation to add the prompt, or messages of people | Preparing |
//! | Preparing | the next request | Calling, or Announcing if it exceeds the token limit |
//! | Announcing | the triggers that hold the thread | Preparing, or Held |
//! | Held | the firings that hold it | Merging, Preparing |
//! | Merging | the conversation to apply a firing's result | Held, Preparing |
//! | Calling | the model | Replying |
//! | Replying | the conversation to add the reply | done, Tools, Closing after the last round, or Prompting if messages of people wait |
//! | Tools | all tool results, and people's approval of the calls that need it | Answering |
//! | Answering | the conversation to add the results | Preparing |
//! | Closing | the conversation to add the refusals of further calls | failed, or Preparing the final reply without tools |
//!
//! If the node is left early, each unanswered tool call in the conversation gets a result that states the cancel. Providers reject
//! a history with unanswered calls.

use std::sync::Arc;

use pirn_conversation::conversation::{AgentKind, TokenUsage, first_prompt};
use pirn_conversation::model_call::{FinishReason, ModelFailure};
use pirn_definition::definition::{BuiltInTool, ToolRoundLimit};
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::event_type::EventType;
use pirn_definition::graph::{LlmNode, NodeKind};
use pirn_definition::message::{Message, Part, Role, ToolCall};
use pirn_events::event::RaisedEvent;
use serde_json::{Value, json};

use super::questions::consent::{ConsentOutcome, RESULT_BYTES, result_of_call};
use super::request;
use crate::thread::context::{Progress, StepContext, evaluate, failure};
use crate::thread::data::effect::{
    AnsweredRequest, ConversationOp, Effect, EffectId, Evaluation, ModelReply, OfferedTools, Outcome,
    RequestWithEvents, ToolResult, When, revealing,
};
use crate::thread::data::pending::SafePointKind;
use crate::thread::data::question::{Consent, Interaction};
use crate::thread::data::stages::{LlmCall, LlmPhase, LlmStage, NodeRun};
use crate::thread::machine::ThreadMachine;

impl LlmStage {
    /// Returns the open questions, each with the effect that awaits its answer.
    pub(super) fn interactions(&self, thread: &ThreadMachine) -> Vec<(EffectId, Interaction)> {
        // Only tool calls ask for approval.
        let LlmPhase::Tools { calls, .. } = &self.at else {
            return Vec::new();
        };
        let consents = calls.iter().filter_map(|running| running.consent.as_ref());
        consents.filter_map(|consent| consent.interaction(thread)).collect()
    }

    fn wait(self) -> Progress {
        Progress::Wait(NodeRun::Llm(Box::new(self)))
    }

    fn to(self, at: LlmPhase) -> Progress {
        Self { at, ..self }.wait()
    }
}

pub(super) fn enter(cx: &mut StepContext<'_>, node: &LlmNode) -> Progress {
    if let Err(error) = cx.start_agents(1) {
        return Progress::Failed(error);
    }
    let stage = LlmStage {
        // A placeholder: each path below sets the stage that awaits an effect.
        at: LlmPhase::Held,
        system: None,
        choice: None,
        rounds: 0,
        usage: TokenUsage::default(),
        announced: false,
        is_last_word: false,
        offered: None,
    };
    if node.prompt.is_none() && node.system.is_none() && !node.is_computed() {
        // Without templates there is nothing to evaluate, and without parts nothing to add to the conversation.
        return if node.parts.is_empty() {
            prepare(cx, stage)
        } else {
            append_prompt(cx, stage, None, Vec::new())
        };
    }
    let id = evaluate(cx, Evaluation::Prompt);
    stage.to(LlmPhase::Texts { id })
}

pub(super) fn answer(cx: &mut StepContext<'_>, stage: LlmStage, effect: EffectId, outcome: Outcome) -> Progress {
    let mut stage = stage;
    // Moved out, because each arm consumes the data of its stage. The last arm puts an unawaited one back.
    match std::mem::replace(&mut stage.at, LlmPhase::Held) {
        LlmPhase::Texts { id } if id == effect => match outcome {
            Outcome::Texts(texts) => {
                // The order of `evaluate`: prompt, system message.
                let mut texts = texts.into_iter();
                let prompt = texts.next().flatten();
                stage.system = texts.next().flatten();
                append_prompt(cx, stage, prompt, Vec::new())
            }
            // An object instead of texts: the node computes more than its two templates.
            Outcome::Value(computed) => match request::read(&computed) {
                Ok(computed) => {
                    stage.system = computed.system;
                    stage.choice = Some(Arc::new(computed.choice));
                    append_prompt(cx, stage, computed.prompt, computed.parts)
                }
                Err(error) => Progress::Failed(error),
            },
            other => Progress::Failed(failure(other)),
        },
        LlmPhase::Prompting { id } | LlmPhase::Answering { id } if id == effect => match outcome {
            Outcome::Done => prepare(cx, stage),
            other => Progress::Failed(failure(other)),
        },
        LlmPhase::Preparing { id } if id == effect => match outcome {
            Outcome::Prepared(prepared) => call(cx, stage, prepared),
            other => Progress::Failed(failure(other)),
        },
        LlmPhase::Announcing { id } if id == effect => {
            // Any other outcome names no firing: the call is then made although the limit is exceeded.
            if let Outcome::HeldByFiring(firings) = outcome {
                cx.hold(firings);
            }
            prepare(cx, stage)
        }
        LlmPhase::Merging { id, merge } if id == effect => {
            cx.merged(&merge, outcome);
            // The conversation has changed, so that the request is prepared again unless the node must stop.
            cx.unless_stopped(|cx| prepare(cx, stage))
        }
        LlmPhase::Calling { id } if id == effect => match outcome {
            Outcome::Reply(reply) => replied(cx, stage, *reply),
            other => Progress::Failed(call_error(cx, other)),
        },
        LlmPhase::Replying {
            id,
            content,
            calls,
            finish,
        } if id == effect => match outcome {
            Outcome::Done => after_reply(cx, stage, &content, calls, finish),
            other => Progress::Failed(failure(other)),
        },
        // No `if id == effect`: several effects are in flight, and `tool_answer` finds the answered one.
        LlmPhase::Tools { calls, answered } => tool_answer(cx, stage, (calls, answered), effect, outcome),
        LlmPhase::Closing { id } if id == effect => match outcome {
            Outcome::Done => handle_round_limit(cx, stage),
            other => Progress::Failed(failure(other)),
        },
        // A late answer to a cancelled effect.
        unawaited => stage.to(unawaited),
    }
}

/// Applies work that arrived while the node is held before its model call.
pub(in crate::thread) fn safe_point(cx: &mut StepContext<'_>) -> Option<Progress> {
    // Moved out, because `prepare` consumes the stage and changes the thread.
    match std::mem::take(&mut cx.thread.run) {
        NodeRun::Llm(stage) => Some(prepare(cx, *stage)),
        other => {
            cx.thread.run = other;
            None
        }
    }
}

/// Cancels the node and answers its open tool calls in the conversation.
pub(super) fn abandon(cx: &mut StepContext<'_>, stage: LlmStage) {
    const CANCELLED: &str = "The tool call was cancelled before it had a result.";
    match stage.at {
        // The operation is already queued at the conversation, whose changes are not cancelled. Its answer is ignored.
        LlmPhase::Held | LlmPhase::Answering { .. } | LlmPhase::Closing { .. } => {}
        LlmPhase::Texts { id }
        | LlmPhase::Prompting { id }
        | LlmPhase::Preparing { id }
        | LlmPhase::Announcing { id }
        | LlmPhase::Calling { id } => {
            cx.out.push(Effect::Drop { id });
        }
        // Not reached while the conversation applies the change: see `NodeRun::is_merging`.
        LlmPhase::Merging { id, merge } => NodeRun::Merging { id, merge }.abandon(cx),
        // The reply is queued at the conversation and adds the calls. The results follow it in the same queue.
        LlmPhase::Replying { calls, .. } => {
            let results = calls
                .into_iter()
                .map(|call| Message::tool_result(call.id, CANCELLED))
                .collect();
            append_unasked(cx, results);
        }
        LlmPhase::Tools { calls, answered: _ } => {
            let mut results = Vec::with_capacity(calls.len());
            for running in calls {
                // The tool may have been called: a retry that repeats the call must use its key.
                let has_started = running.result.is_none() && !running.is_queued;
                if has_started {
                    let cut_off = cx.thread.cut_off.get_or_insert_default();
                    cut_off.calls.push((running.key, running.call.clone()));
                }
                match &running.consent {
                    // The effect of the call was answered by `NeedsConsent`: only the effects of the consent are in flight.
                    Some(consent) => consent.abandon(cx),
                    None if has_started => cx.out.push(Effect::Drop { id: running.id }),
                    None => {}
                }
                // Results that arrived before are kept: the model of the next attempt sees what was done.
                let cancelled = || Message::tool_result(running.call.id, CANCELLED);
                results.push(running.result.unwrap_or_else(cancelled));
            }
            append_unasked(cx, results);
        }
    }
}

fn append_unasked(cx: &mut StepContext<'_>, messages: Vec<Message>) {
    if !messages.is_empty() {
        // No effect id: the node or the thread ends now, so that nothing waits for the answer.
        cx.converse(0, ConversationOp::Append(messages));
    }
}

/// Adds the prompt and its parts to the conversation, once for all attempts at the node.
fn append_prompt(
    cx: &mut StepContext<'_>,
    stage: LlmStage,
    prompt: Option<String>,
    computed: Vec<Vec<Part>>,
) -> Progress {
    let parts = match &cx.thread.graph().node(cx.thread.at).kind {
        NodeKind::Llm(node) => request::parts(node, computed),
        _ => Vec::new(),
    };
    // A retry continues the conversation of the attempt before: a second prompt would repeat the question.
    if cx.thread.prompted || (prompt.is_none() && parts.is_empty()) {
        return prepare(cx, stage);
    }
    cx.thread.prompted = true;
    // A sub-agent's role precedes its first prompt only. Later prompts continue the same conversation.
    let text = match cx.thread.agent.as_deref().filter(|_| cx.thread.first_prompt) {
        Some(agent) => match first_prompt(&prompt.unwrap_or_default(), agent) {
            Ok(text) => Some(text),
            Err(error) => return Progress::Failed(error.into()),
        },
        None => prompt,
    };
    cx.thread.first_prompt = false;
    let message = match text {
        Some(text) if parts.is_empty() => Message::new(Role::User, text),
        // An empty prompt is left out, because providers reject blank text parts.
        text => {
            let text = text.filter(|text| !text.is_empty()).map(Part::text);
            Message::of_parts(Role::User, text.into_iter().chain(parts).collect::<Vec<_>>())
        }
    };
    let id = append(cx, vec![message]);
    stage.to(LlmPhase::Prompting { id })
}

fn append(cx: &mut StepContext<'_>, messages: Vec<Message>) -> EffectId {
    let id = cx.next_effect();
    cx.converse(id, ConversationOp::Append(messages));
    id
}

/// Applies pending compressions, then requests the next model request unless a firing holds the thread.
fn prepare(cx: &mut StepContext<'_>, stage: LlmStage) -> Progress {
    // Before the check for holds and before each call, so that the request includes a finished compression.
    if let Some((id, merge)) = cx.apply_arrived(SafePointKind::BeforeModelCall) {
        return stage.to(LlmPhase::Merging { id, merge });
    }
    if cx.is_held() {
        // `safe_point` continues here when the firing's result arrives.
        return stage.to(LlmPhase::Held);
    }
    // Here every tool call has its result, and the request that follows includes the messages.
    if cx.environment.user_messages == Some(When::BeforeNextRequest) {
        return add_user_messages(cx, stage, When::BeforeNextRequest);
    }
    let id = cx.next_effect();
    let agent = if cx.thread.agent.is_some() {
        AgentKind::Sub
    } else {
        AgentKind::Main
    };
    let node = cx.thread.at;
    let op = ConversationOp::Prepare {
        agent,
        // Cloned, because the request is prepared again for each round of tools.
        system: stage.system.clone(),
        node,
        choice: stage.choice.clone(),
        recheck: stage.announced,
    };
    cx.converse(id, op);
    stage.to(LlmPhase::Preparing { id })
}

fn call(cx: &mut StepContext<'_>, mut stage: LlmStage, prepared: RequestWithEvents) -> Progress {
    // The limit event is held back until the others are raised, because the thread waits after it.
    let mut crossed = None;
    for event in prepared.events {
        // Without a subscriber no trigger can compress, so that the thread does not wait for one.
        if event.event_type == EventType::TokenLimitExceeded && cx.listens(EventType::TokenLimitExceeded) {
            crossed = Some(event);
        } else {
            cx.emit_raised(event);
        }
    }
    if let Some(event) = crossed {
        // Before the wait: the request is prepared again afterwards and would raise the event once more.
        stage.announced = true;
        let id = cx.next_effect();
        // Not by `emit_raised`: event and wait are one effect, so that no trigger is matched between them.
        let event = event.at_depth(cx.thread.trigger_depth);
        cx.out.push(Effect::RaiseAndAwaitTriggers { id, event: Some(event) });
        return stage.to(LlmPhase::Announcing { id });
    }
    // The event is raised once per call, and the next call starts here.
    stage.announced = false;
    // The host raises the tokens in the thread's name while the model answers.
    cx.may_be_held_by(&[EventType::LlmToken]);
    // Retries of the node share the key until a reply arrives: see `replied`.
    let (id, key) = cx.next_call();
    let node = cx.thread.at;
    cx.out.push(Effect::Model {
        id,
        key,
        node,
        request: prepared.request,
        offers_tools: !stage.is_last_word,
        choice: stage.choice.clone(),
        goes_on: None,
        offered: prepared.offered.clone(),
    });
    stage.offered = prepared.offered;
    stage.to(LlmPhase::Calling { id })
}

fn replied(cx: &mut StepContext<'_>, mut stage: LlmStage, reply: ModelReply) -> Progress {
    // The next call has a new body, and must not reuse the idempotency key.
    cx.thread.first_call = None;
    cx.spend(reply.usage);
    // Counted twice on purpose: `spend` for the report by node, here for the node's output.
    stage.usage.add(reply.usage);
    let message = Message {
        // Cloned: the conversation gets the message, and the stage starts the calls after its answer.
        tool_calls: reply.tool_calls.clone(),
        metadata: reply.metadata,
        ..Message::new(Role::Assistant, reply.content.clone())
    };
    let id = cx.next_effect();
    let op = match reply.cache {
        None => ConversationOp::Append(vec![message]),
        Some(cache) => ConversationOp::AppendReply(Box::new(AnsweredRequest {
            node: cx.thread.at,
            message,
            cache: *cache,
        })),
    };
    cx.converse(id, op);
    stage.to(LlmPhase::Replying {
        id,
        content: reply.content,
        calls: reply.tool_calls,
        finish: reply.finish_reason,
    })
}

/// Returns the error of a failed model call, after counting its usage.
pub(super) fn call_error(cx: &mut StepContext<'_>, outcome: Outcome) -> RunError {
    let error = failure(outcome);
    // A failed call may have been billed, for example if its stream broke off.
    cx.spend(ModelFailure::of(&error).spent);
    error
}

fn after_reply(
    cx: &mut StepContext<'_>,
    mut stage: LlmStage,
    content: &str,
    calls: Vec<ToolCall>,
    finish: FinishReason,
) -> Progress {
    // A reply without calls ends the node, in every round, unless a person has something to add.
    if calls.is_empty() {
        return match cx.environment.user_messages {
            Some(_) => add_user_messages(cx, stage, When::WhenIdle),
            None => done(cx, &stage, content, finish),
        };
    }
    // Read from the graph at each round, so that the stage does not store it.
    let limit = tool_rounds(cx).0;
    // The calls are in the conversation already, and providers reject a history with unanswered calls.
    if stage.is_last_word || stage.rounds >= limit {
        let said = format!("The tool was not called: the limit of {limit} tool rounds is reached.");
        let results = calls
            .into_iter()
            .map(|call| Message::tool_result(call.id, said.clone()))
            .collect();
        let id = append(cx, results);
        return stage.to(LlmPhase::Closing { id });
    }
    stage.rounds += 1;
    // All calls start at once, up to the limit. Their ids ascend, on which the binary search of `tool_answer` relies.
    let limit = max_calls(cx);
    let mut open = 0;
    let running = calls.into_iter().map(|call| {
        let call = start_tool(cx, &stage, call, open >= limit);
        open += usize::from(call.result.is_none());
        call
    });
    let running = running.collect();
    after_results(cx, stage, running, 0)
}

/// Adds messages of people to the conversation, then prepares the next request.
fn add_user_messages(cx: &mut StepContext<'_>, stage: LlmStage, when: When) -> Progress {
    let id = cx.next_effect();
    cx.converse(id, ConversationOp::AddUserMessages(when));
    stage.to(LlmPhase::Prompting { id })
}

/// Handles tool calls after the last round: a final reply without tools, or TOOL_ROUNDS_EXCEEDED.
fn handle_round_limit(cx: &mut StepContext<'_>, mut stage: LlmStage) -> Progress {
    let (limit, on_limit) = tool_rounds(cx);
    // Once only: a model that ignores the missing tools would otherwise continue without end.
    if on_limit == ToolRoundLimit::Answer && !stage.is_last_word {
        stage.is_last_word = true;
        return prepare(cx, stage);
    }
    let message = format!("the model still requests tools after {limit} rounds of tool calls (`maxToolRounds`)");
    let error = RunError::new(RunErrorCode::ToolRoundsExceeded, message);
    Progress::Failed(error.with_details(json!({ "maxToolRounds": limit, "usage": stage.usage })))
}

fn tool_rounds(cx: &StepContext<'_>) -> (u32, ToolRoundLimit) {
    match &cx.thread.graph().node(cx.thread.at).kind {
        NodeKind::Llm(node) => (node.max_tool_rounds, node.on_limit),
        // The stage belongs to an LLM node, so that this does not occur.
        _ => (0, ToolRoundLimit::Fail),
    }
}

/// Returns the maximum number of calls in progress.
fn max_calls(cx: &StepContext<'_>) -> usize {
    cx.environment.concurrency.map_or(usize::MAX, |limit| limit as usize)
}

fn start_tool(cx: &mut StepContext<'_>, stage: &LlmStage, call: ToolCall, is_queued: bool) -> LlmCall {
    // The client executes its tools: the run waits for the result as for a person's answer.
    let is_of_client = |offered: &Arc<OfferedTools>| offered.is_of_client(&call.name);
    if stage.offered.as_ref().is_some_and(is_of_client) {
        tool_event(
            cx,
            EventType::ToolCallStarted,
            &call,
            ("arguments", call.arguments.clone()),
            true,
        );
        let (id, consent) = Consent::ask_client(cx, &call);
        return LlmCall {
            id,
            key: id,
            call,
            result: None,
            consent: Some(Box::new(consent)),
            is_queued: false,
        };
    }
    let id = cx.next_effect();
    let mut started = LlmCall {
        id,
        key: id,
        call,
        result: None,
        consent: None,
        is_queued,
    };
    if !is_queued {
        begin(cx, stage, &mut started);
    }
    started
}

/// Starts a call that is not one of the client.
fn begin(cx: &mut StepContext<'_>, stage: &LlmStage, started: &mut LlmCall) {
    let LlmCall { id, call, .. } = &*started;
    let id = *id;
    // Before the effect: the event must precede the one with the result.
    tool_event(
        cx,
        EventType::ToolCallStarted,
        call,
        ("arguments", call.arguments.clone()),
        false,
    );
    // Known at once: no effect is in flight for the call.
    if let Some(result) = immediate_result(cx, stage, call) {
        let event_type = if result.failed {
            EventType::ToolCallFailed
        } else {
            EventType::ToolCallCompleted
        };
        tool_event(cx, event_type, call, ("result", json!(result.content)), false);
        started.result = Some(answered_by(result, call));
        return;
    }
    // Unlike a model call, a tool call of a retry may differ from all calls before: it gets a new key then.
    let key = key_of_tool_call(cx, call).unwrap_or(id);
    let node = cx.thread.at;
    // Built-in tools read the conversation, which only its actor can access.
    match built_in(cx, &call.name) {
        Some(tool) => cx.converse(id, ConversationOp::BuiltIn(tool, Box::new(call.clone()))),
        None => cx.out.push(Effect::Tool {
            id,
            key,
            node,
            call: call.clone(),
            is_consented: false,
        }),
    }
    started.key = key;
}

/// Starts the queued calls that the limit allows.
fn start_queued(cx: &mut StepContext<'_>, stage: &LlmStage, calls: &mut [LlmCall]) {
    let limit = max_calls(cx);
    let mut open = calls
        .iter()
        .filter(|call| call.result.is_none() && !call.is_queued)
        .count();
    for call in calls.iter_mut().filter(|call| call.is_queued) {
        if open >= limit {
            return;
        }
        call.is_queued = false;
        begin(cx, stage, call);
        open += usize::from(call.result.is_none());
    }
}

/// Returns the result of a call that needs nothing outside of the thread: a file of a skill, or the refusal of a tool that the node
/// defers and that the request of the call did not offer.
fn immediate_result(cx: &StepContext<'_>, stage: &LlmStage, call: &ToolCall) -> Option<ToolResult> {
    let NodeKind::Llm(node) = &cx.thread.graph().node(cx.thread.at).kind else {
        return None;
    };
    if let Some(skills) = node
        .skills
        .as_ref()
        .filter(|_| call.name == BuiltInTool::ReadSkill.name())
    {
        return Some(match skills.read(&call.arguments) {
            Ok(content) => ToolResult {
                content,
                ..ToolResult::default()
            },
            Err(why) => ToolResult::failed(why),
        });
    }
    let revealed = stage.offered.iter().flat_map(|offered| &offered.revealed);
    let is_hidden = node.defers(&call.name) && !revealed.into_iter().any(|known| **known == *call.name);
    is_hidden.then(|| {
        ToolResult::failed(format!(
            "the tool `{}` cannot be called yet: reveal it with `{}`, then call it in a later reply",
            call.name,
            BuiltInTool::ToolSearch.name()
        ))
    })
}

/// Raises an event about a tool call. A call that the client executes is marked.
fn tool_event(
    cx: &mut StepContext<'_>,
    event_type: EventType,
    call: &ToolCall,
    content: (&'static str, Value),
    is_of_client: bool,
) {
    if !cx.listens(event_type) {
        return;
    }
    let fields = [
        ("nodeId", json!(cx.thread.graph().node(cx.thread.at).id)),
        ("toolCallId", json!(call.id)),
        ("name", json!(call.name)),
        content,
    ];
    let client = is_of_client.then_some(("client", json!(true)));
    let fields = fields.into_iter().chain(client).collect::<Vec<_>>();
    cx.emit_raised(RaisedEvent::of(event_type, fields));
}

/// Returns the idempotency key of an equal call that an earlier attempt left without a result. Calls are compared by name and
/// arguments, because the model gives each call a new id.
fn key_of_tool_call(cx: &mut StepContext<'_>, call: &ToolCall) -> Option<EffectId> {
    let cut_off = cx.thread.cut_off.as_deref_mut()?;
    let place = cut_off
        .calls
        .iter()
        .position(|(_, before)| before.name == call.name && before.arguments == call.arguments)?;
    // Removed, so that two equal calls of one reply do not share a key.
    Some(cut_off.calls.remove(place).0)
}

/// Returns the built-in tool of this name if the conversation answers it and the node lists it.
fn built_in(cx: &StepContext<'_>, name: &str) -> Option<BuiltInTool> {
    let NodeKind::Llm(node) = &cx.thread.graph().node(cx.thread.at).kind else {
        return None;
    };
    let answered = BuiltInTool::of_name(name).filter(|tool| tool.reads_conversation());
    // A model may name a built-in tool that was not offered. Such a call goes to the host, like one of an unknown tool.
    answered.filter(|_| node.tools.iter().any(|offered| **offered == *name))
}

fn tool_answer(
    cx: &mut StepContext<'_>,
    stage: LlmStage,
    (mut calls, answered): (Vec<LlmCall>, usize),
    effect: EffectId,
    outcome: Outcome,
) -> Progress {
    let place = calls.binary_search_by_key(&effect, |running| running.id).ok();
    // Approvals have separate effect ids. They are rare, so that a linear search is enough.
    let place = place.or_else(|| calls.iter().position(|running| running.awaits(effect)));
    let running = place.and_then(|place| calls.get_mut(place));
    // A second answer to a call that has a result, or that waits for a person, changes nothing.
    if let Some(running) = running.filter(|running| running.awaits(effect)) {
        // Taken, because the answer consumes the state. A question that stays open is put back.
        let (result, edited) = match (running.consent.take(), outcome) {
            (Some(consent), outcome) => match consent.answer(cx, running.key, effect, outcome) {
                ConsentOutcome::Waits(consent) => {
                    running.consent = Some(Box::new(consent));
                    return stage.to(LlmPhase::Tools { calls, answered });
                }
                ConsentOutcome::Ended(result, edited) => (result, edited),
            },
            (None, Outcome::NeedsConsent(request)) => {
                let ToolCall { id, name, .. } = &running.call;
                let consent = Consent::ask(cx, name.clone(), id.clone(), *request);
                running.consent = Some(Box::new(consent));
                return stage.to(LlmPhase::Tools { calls, answered });
            }
            (None, outcome) => {
                // The output of a script of `run_code` has its own limit.
                let is_code = running.call.name == BuiltInTool::RunCode.name();
                let limit = if is_code { usize::MAX } else { RESULT_BYTES };
                (result_of_call(outcome, limit), None)
            }
        };
        // Also for a failed tool: its model calls were made.
        cx.spend(result.spent.as_deref().copied().unwrap_or_default());
        let event_type = if result.failed {
            EventType::ToolCallFailed
        } else {
            EventType::ToolCallCompleted
        };
        let is_of_client = |offered: &Arc<OfferedTools>| offered.is_of_client(&running.call.name);
        let is_of_client = stage.offered.as_ref().is_some_and(is_of_client);
        tool_event(
            cx,
            event_type,
            &running.call,
            ("result", json!(result.content)),
            is_of_client,
        );
        // After the event, which has the tool's own text.
        running.result = Some(answered_by(
            note_edited_arguments(result, edited.as_ref()),
            &running.call,
        ));
    }
    after_results(cx, stage, calls, answered)
}

/// Continues when every call has a result. The first `answered` calls have one.
fn after_results(cx: &mut StepContext<'_>, stage: LlmStage, mut calls: Vec<LlmCall>, mut answered: usize) -> Progress {
    // Calls start in order, so that the last one is queued if any is.
    if calls.last().is_some_and(|last| last.is_queued) {
        start_queued(cx, &stage, &mut calls);
    }
    // Results arrive in any order. This cursor avoids scanning all calls after each: n calls cost n steps in total.
    while calls.get(answered).is_some_and(|running| running.result.is_some()) {
        answered += 1;
    }
    if answered < calls.len() {
        return stage.to(LlmPhase::Tools { calls, answered });
    }
    // In the order of the calls, not of arrival, so that equal runs build equal requests.
    let results = calls.into_iter().filter_map(|running| running.result).collect();
    let id = append(cx, results);
    stage.to(LlmPhase::Answering { id })
}

/// Tells the model that a person changed the arguments of its call.
fn note_edited_arguments(mut result: ToolResult, edited: Option<&Value>) -> ToolResult {
    if let Some(arguments) = edited {
        result.content = format!("(A person changed the arguments to {arguments}.)\n{}", result.content);
    }
    result
}

/// Converts a result to the tool message for a call.
fn answered_by(result: ToolResult, call: &ToolCall) -> Message {
    let metadata = revealing(&result.revealed);
    // The common case: plain content needs no list of parts.
    if result.media.is_empty() {
        return Message {
            metadata,
            ..Message::tool_result(call.id.clone(), result.content)
        };
    }
    // Providers reject blank text parts.
    let text = (!result.content.is_empty()).then_some(Part::Text { text: result.content });
    let parts: Vec<Part> = text.into_iter().chain(result.media).collect();
    Message {
        tool_call_id: Some(call.id.clone()),
        metadata,
        ..Message::of_parts(Role::Tool, parts)
    }
}

fn done(cx: &mut StepContext<'_>, stage: &LlmStage, content: &str, finish: FinishReason) -> Progress {
    // Set here, because only the last reply of the node counts.
    if let Some(record) = cx.thread.history.last_mut() {
        record.finish_reason = Some(finish);
    }
    let output = json!({ "content": content, "usage": stage.usage, "finishReason": finish });
    Progress::Done(output.into())
}
